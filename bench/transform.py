"""Time of applying a map against the bare matrix product of the same shape, in turns in one process.

Prints a JSON line for each shape. Usage: python bench/transform.py [--quick] [--repeats N]
"""

import argparse
import json
import time

import numpy as np
from threadpoolctl import threadpool_limits

from isosent import LinearMap
from whitening_fit import SEED, THREADS, conditions

SHAPES = ((200_000, 768, 768), (200_000, 768, 256), (1_000_000, 256, 256))
QUICK_SHAPES = ((20_000, 256, 64),)


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(n_rows, dim, n_components, repeats):
    rng = np.random.default_rng(SEED)
    rows = rng.standard_normal((n_rows, dim), dtype=np.float32)
    linear_map = LinearMap(rng.standard_normal((dim, n_components)), rng.standard_normal(n_components))
    weight = linear_map.weight.astype(np.float32)
    linear_map.apply(rows[:10])
    times = [(seconds(lambda: rows @ weight), seconds(lambda: linear_map.apply(rows))) for _ in range(repeats)]
    bare, ours = np.median(times, axis=0)
    return {
        "rows": n_rows,
        "dim": dim,
        "components": n_components,
        "bare_product_seconds": float(bare),
        "apply_seconds": float(ours),
        "speed_of_bare_product": float(np.median([product / apply for product, apply in times])),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small shape")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    print(json.dumps(conditions()))
    for shape in QUICK_SHAPES if arguments.quick else SHAPES:
        print(json.dumps(measure(*shape, arguments.repeats)), flush=True)


if __name__ == "__main__":
    with threadpool_limits(THREADS):
        main()
