"""Cost of a whitening fit over rows and over dimensions; draws docs/figures/fit_cost.svg.

Measures processor time with one thread, which other work on the machine hardly changes. All shapes are large enough
for products in float32. Prints a JSON line for each point.
Usage: python bench/scaling.py [--figure FILE] (drawing needs matplotlib)
"""

import argparse
import json
import time

import numpy as np
from threadpoolctl import threadpool_limits

from isosent import Whitening
from whitening_fit import SEED, conditions

ROWS = (100_000, 200_000, 300_000, 400_000)
ROWS_DIM = 512
DIMS = (384, 512, 768, 1024)
DIMS_ROWS = 200_000
REPEATS = 1


def points(shapes):
    """Median processor seconds of a fit for each shape, the shapes taken in turns."""
    rng = np.random.default_rng(SEED)
    values = rng.standard_normal(max(n_rows * dim for n_rows, dim in shapes), dtype=np.float32)
    seconds = {shape: [] for shape in shapes}
    for _ in range(REPEATS):
        for n_rows, dim in shapes:
            rows = values[: n_rows * dim].reshape(n_rows, dim)
            start = time.process_time()
            Whitening().fit(rows)
            seconds[n_rows, dim].append(time.process_time() - start)
    return [{"rows": n_rows, "dim": dim, "seconds": float(np.median(seconds[n_rows, dim]))} for n_rows, dim in shapes]


def draw(panels, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "isosent"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    for axis, (name, power, fixed, lines) in zip(axes, panels, strict=True):
        sizes = np.array([line[name] for line in lines])
        seconds = np.array([line["seconds"] for line in lines])
        slope = seconds[-1] * (sizes / sizes[-1]) ** power
        axis.loglog(sizes, slope, "--", color="0.6", label="linear" if power == 1 else "quadratic")
        axis.loglog(sizes, seconds, "o-", color="#1f5fa8", label="measured")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axis.minorticks_off()
        axis.set(xlabel=f"{name} ({fixed})", ylabel="seconds of processor time")
        axis.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="SVG file to write")
    arguments = parser.parse_args()
    print(json.dumps(conditions() | {"threads": 1}))
    over_rows = points([(n_rows, ROWS_DIM) for n_rows in ROWS])
    over_dims = points([(DIMS_ROWS, dim) for dim in DIMS])
    for line in over_rows + over_dims:
        print(json.dumps(line), flush=True)
    if arguments.figure:
        panels = ("rows", 1, f"{ROWS_DIM} dimensions", over_rows), ("dim", 2, f"{DIMS_ROWS:,} rows", over_dims)
        draw(panels, arguments.figure)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
