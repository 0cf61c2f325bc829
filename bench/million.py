"""A million texts through the commands: seconds, processor time, peak memory and bytes written, also at a tenth of it.

python bench/million.py DATA VECTORS [--sizes N ...]. DATA is the folder of the research data sets, VECTORS a file of
word vectors, the new model of `migrate`. The encoder is wordllama. Each command is a process of its own and prints a
JSON line. One text in twenty is a copy with 10% of its words changed; where there are too few sentences, two of them
are joined.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from many_duplicates import sentences, texts_with_copies

N_QUERIES = 1_000
SIZES = (100_000, 1_000_000)
COMMANDS = (
    "encode texts.txt -o vectors.npy",
    "inspect texts.txt",
    "fit texts.txt --transform whitening --dims 128 -o whitened",
    "fit vectors.npy --bytes 64 -o small",
    "transform vectors.npy -m whitened -o whitened.npy",
    "index texts.txt -o index",
    "index texts.txt --store product -o codes",
    "search index queries.txt",
    "search codes queries.txt",
    "duplicates texts.txt -o groups.csv",
    "cluster texts.txt -o clusters.csv",
    "migrate wordllama words:VECTORS texts.txt -o map",
)


def measured(command, folder):
    """What a command used in a process of its own."""
    before = written_bytes(folder)
    with Path(folder, "said").open("w+b") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "isosent", *command], cwd=folder, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            said.seek(0)
            raise SystemExit(f"{' '.join(command)}: {said.read().decode('utf-8', 'replace')}")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": used.ru_maxrss // 1024,
        "written_mb": round((written_bytes(folder) - before) / 1e6, 1),
    }


def written_bytes(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file() and path.name != "said")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    pool = sentences(arguments.data)
    for n_texts in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            texts, _ = texts_with_copies(pool, n_texts + N_QUERIES, np.random.default_rng(n_texts))
            for name, part in (("queries.txt", texts[:N_QUERIES]), ("texts.txt", texts[N_QUERIES:])):
                Path(folder, name).write_text("".join(f"{text}\n" for text in part), "utf-8")
            for command in COMMANDS:
                words = command.replace("VECTORS", str(arguments.vectors.resolve())).split()
                print(json.dumps({"texts": n_texts, "command": command} | measured(words, folder)), flush=True)


if __name__ == "__main__":
    main()
