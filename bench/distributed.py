"""Jobs by workers: texts a second, the cost of an engine, of a plan, and of adding moments.

rates MODEL N_TEXTS [processes]  this process, 1 and 2 processes, and Ray with 1 and 2 workers; the time to start is
                     apart, and so is the processor time of the coordinator and of its processes
plan N_SHARDS        shards of 10 texts: time to plan, make and resume them
bookkeeping N_SHARDS the coordinator alone, with workers that say at once that a shard is complete and write nothing:
                     time and memory to plan, to give out and take back the shards, to resume, and to add moments
moments DIM ...      seconds to write, read and add the moments of a shard, and a prediction for 256 shards, checked
Needs the extra distributed for Ray. Prints JSON lines.
Usage: python bench/distributed.py rates wordllama 800000
"""

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import numpy as np

import isosent
from isosent.distributed import Processes, engine_for
from isosent.errors import OutputError
from isosent.io.notes import INDEX_FILE
from isosent.io.shards import InputFile, Sharding, ShardRecord, read_index, write_index
from isosent.jobs.moments import FileMoments, read_moments, write_moments
from isosent.jobs.shards import encode_folder, make_shards, sum_of_pairs
from isosent.jobs.worker import Job
from isosent.numeric.moments import Moments
from isosent.space import Space

N_SHARDS = 16
ROWS_OF_SIMULATED = 10_000_000  # of each input


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


def costs(call):
    """Seconds, and processor seconds of this process and of those that it started."""
    started = time.perf_counter(), time.process_time(), processor_of_children()
    call()
    return np.array([time.perf_counter(), time.process_time(), processor_of_children()]) - started


def processor_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rates(reference, n_texts, only=""):
    model, shard_size = isosent.load(reference), int(n_texts) // N_SHARDS
    model.encode(sentences()[:1000])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (write_texts(folder / f"{n}.txt", n * shard_size) for n in (2, N_SHARDS))
        base = None
        for on, workers in ((None, 1), ("processes", 1), ("processes", 2), ("ray", 1), ("ray", 2)):
            if only and on not in (None, only):
                continue

            def run(texts, on=on, workers=workers):
                out = Path(tempfile.mkdtemp(dir=folder)) / "out"
                engine = Processes(workers) if on == "processes" else engine_for(on, workers)
                settings = {"sharding": Sharding(shard_size), "engine": engine, "reference": reference}
                encode_folder(model, [texts], out, **settings)
                shutil.rmtree(out)

            short, long = costs(lambda: run(few)), costs(lambda: run(many))
            wall_s, coordinator_s, workers_s = long - short
            per_s = (N_SHARDS - 2) * shard_size / wall_s
            base = base or (per_s, coordinator_s + workers_s)
            facts = {"per_s": round(per_s), "ratio": round(per_s / base[0], 2), "total_s": round(long[0], 1)}
            facts |= {"coordinator_processor_s": round(coordinator_s, 2), "workers_processor_s": round(workers_s, 2)}
            facts["processor_x"] = round((coordinator_s + workers_s) / base[1], 2)
            show(model=reference, on=on or "this process", workers=workers, texts=N_SHARDS * shard_size, **facts)


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


class Instant:
    """Workers that are done at once. The outcome of each shard is a record of the usual size."""

    @contextmanager
    def workers(self, job, progress):
        def run(tasks):
            for number, task in enumerate(tasks):
                if task.name == "describe":
                    yield task, InputFile(task.arguments[0], ROWS_OF_SIMULATED, f"{number:064x}")
                else:
                    counts = {"n_texts": 10_000, "n_cut": 0, "n_tokens": 110_000, "n_unknown": 0, "n_zero_rows": 0}
                    yield task, ShardRecord(f"xxh3:{number:032x}", 5_120_128, counts)

        yield run


def bookkeeping(n_shards, n_inputs=1000):
    n_shards = int(n_shards)
    model = isosent.load()
    space = Space(model.fingerprint, model.record.name)
    size = ROWS_OF_SIMULATED * n_inputs // n_shards
    job = Job(makes="encode", reference="wordllama", fingerprint=model.fingerprint, sharding=Sharding(size))
    inputs = [f"texts/{number:05d}.txt" for number in range(n_inputs)]
    before_mb = memory_mb()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "out"

        def make():
            try:
                make_shards(job, inputs, folder, Instant(), space=space, dim=model.dim)
            except OutputError:  # it has looked for the files of all shards, and there are none
                return

        made_s = seconds(make)
        index = read_index(folder)
        facts = {"shards": index.n_shards, "make_s": round(made_s, 1)}
        facts |= {"index_mb": round((folder / INDEX_FILE).stat().st_size / 1e6), "memory_mb": memory_mb() - before_mb}
        facts["write_index_s"] = round(seconds(lambda: write_index(folder, index)), 1)
        facts["read_index_s"] = round(seconds(lambda: read_index(folder)), 1)
        facts["resume_s"] = round(seconds(make), 1)
    part = FileMoments(Moments.from_rows(np.random.default_rng(0).normal(size=(64, 8))), 0, None, ())
    facts["add_tiny_moments_s"] = round(seconds(lambda: sum_of_pairs(repeat(part, n_shards))), 1)
    show(**facts)


def memory_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


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
    {"rates": rates, "plan": plan, "bookkeeping": bookkeeping, "moments": moments}[sys.argv[1]](*sys.argv[2:])
