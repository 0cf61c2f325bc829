"""Jobs by workers: texts a second, the cost of an engine, of a plan, and of adding moments.

rates MODEL N_TEXTS  one process, 1 and 2 processes, and Ray with 1 and 2 workers; the time to start is apart
plan N_SHARDS        shards of 10 texts: time to plan, make and resume them
moments DIM ...      seconds to write, read and add the moments of a shard, and a prediction for 256 shards, checked
Needs the extra distributed for Ray. Prints JSON lines.
Usage: python bench/distributed.py rates wordllama 800000
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import isosent
from isosent.distributed import engine_for
from isosent.io.shards import Sharding
from isosent.jobs.shards import encode_folder, sum_of_pairs
from isosent.jobs.vectors import FileMoments, read_moments, write_moments
from isosent.numeric.moments import Moments

N_SHARDS = 16


def show(**facts):
    print(json.dumps(facts), flush=True)


def sentences():
    lines = (Path(os.environ["ISOSENT_DATA"]) / "stsbenchmark" / "sts-train.csv").read_text("utf-8").splitlines()
    return [text for line in lines for text in line.split("\t")[5:7]]


def write_texts(path, n_texts):
    texts = sentences()
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{texts[number * 7 % len(texts)]}\n" for number in range(n_texts))
    return str(path)


def seconds(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def rates(reference, n_texts):
    model, shard_size = isosent.load(reference), int(n_texts) // N_SHARDS
    model.encode(sentences()[:1000])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (write_texts(folder / f"{n}.txt", n * shard_size) for n in (2, N_SHARDS))
        base = None
        for engine in (None, (None, 1), (None, 2), ("ray", 1), ("ray", 2)):

            def run(texts, engine=engine):
                out = Path(tempfile.mkdtemp(dir=folder)) / "out"
                made = engine_for(*engine) if engine and engine != (None, 1) else None
                settings = {"sharding": Sharding(shard_size), "engine": made, "reference": reference}
                encode_folder(model, [texts], out, **settings)

            if engine == (None, 1):
                continue  # the same as one process
            short, long = seconds(lambda: run(few)), seconds(lambda: run(many))
            per_s = (N_SHARDS - 2) * shard_size / (long - short)
            base = base or per_s
            facts = {"per_s": round(per_s), "ratio": round(per_s / base, 2), "total_s": round(long, 1)}
            on, workers = engine or ("this process", 1)
            show(model=reference, on=on or "processes", workers=workers, texts=N_SHARDS * shard_size, **facts)


def plan(n_shards):
    model = isosent.load()
    with tempfile.TemporaryDirectory() as name:
        texts, out = write_texts(Path(name) / "t.txt", 10 * int(n_shards)), Path(name) / "out"
        settings = {"sharding": Sharding(10)}
        first = seconds(lambda: encode_folder(model, [texts], out, **settings))
        again = seconds(lambda: encode_folder(model, [texts], out, **settings))
        for number in range(0, int(n_shards), 2):
            (out / f"part-{number:05d}.npy").unlink()
        seen = []
        started = time.perf_counter()
        encode_folder(model, [texts], out, **settings, resumed=lambda _: seen.append(time.perf_counter()))
        size_mb = round((out / "shards.json").stat().st_size / 1e6, 2)
        ms = {"make_s": round(first, 1), "resume_all_s": round(again, 2), "resume_half_s": round(seen[0] - started, 2)}
        show(shards=int(n_shards), index_mb=size_mb, **ms)


def moments(*dims):
    for dim in map(int, dims):
        with tempfile.TemporaryDirectory() as name:
            show(dim=dim, **sum_of_shards(Path(name), dim))


def sum_of_shards(folder, dim, n_files=16, n_shards=256):
    rows = np.random.default_rng(0).normal(size=(2 * dim, dim)).astype(np.float32)
    part = FileMoments(Moments.from_rows(rows), 0, None, ())
    paths = [folder / f"{number}.safetensors" for number in range(n_files)]
    write_s = seconds(lambda: [write_moments(path, part) for path in paths]) / n_files
    parts = list(map(read_moments, paths))
    read_s = seconds(lambda: [read_moments(path) for path in paths]) / n_files
    add_s = seconds(lambda: sum_of_pairs(parts)) / (n_files - 1)
    measured = seconds(lambda: sum_of_pairs(read_moments(paths[number % n_files]) for number in range(n_shards)))
    ms = {"write_ms": write_s, "read_ms": read_s, "add_ms": add_s}
    return {
        "mb": round(paths[0].stat().st_size / 1e6, 2),
        **{name: round(1e3 * value, 2) for name, value in ms.items()},
        "shards": n_shards,
        "predicted_s": round(n_shards * read_s + (n_shards - 1) * add_s, 2),
        "measured_s": round(measured, 2),
    }


if __name__ == "__main__":
    {"rates": rates, "plan": plan, "moments": moments}[sys.argv[1]](*sys.argv[2:])
