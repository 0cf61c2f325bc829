"""Small input files for the commands of the campaign."""

import gzip
import json
import os
import re
import sys
from pathlib import Path

import numpy as np

import isosent

sys.path.insert(0, str(Path(__file__).parents[2] / "contracts" / "makers"))

DIM = 8
SCRATCH = "scratch:?layers=1&dim=16&heads=2&vocab=40&max_length=16"


def write_inputs(folder: Path) -> None:
    """Texts, words, vectors, scored and labelled pairs, and a mirror of the hub: tiny, and always the same."""
    folder.mkdir(parents=True)
    texts = isosent.demo_texts()
    write_lines(folder / "texts.txt", texts[:70])
    write_lines(folder / "other.txt", texts[100:140])
    write_lines(folder / "corpus.txt", texts)
    for name, rows in (("rows.csv", range(60)), ("more.csv", range(50, 75))):
        write_lines(folder / name, ["id,text,year", *(f'r{i},"{texts[i]}",{2000 + i % 7}' for i in rows)])
    words = list(dict.fromkeys(word for text in texts for word in re.findall(r"\w+", text.lower())))[:300]
    for seed, name in enumerate(("words.txt", "other_words.txt")):
        rows = np.random.default_rng(seed).standard_normal((len(words), DIM)).round(3)
        write_lines(folder / name, [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True)])
    for seed, name in enumerate(("vectors", "other_vectors")):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).standard_normal((60, DIM)).astype(np.float32))
    write_stsb(folder / "data", texts)
    rows = [f"{i % 6}\t{texts[i]}\t{texts[i + 1 + i % 2]}" for i in range(24)]
    write_lines(folder / "pairs.tsv", ["score\tsentence1\tsentence2", *rows])
    labels = ("contradiction", "entailment", "neutral")
    pairs = [{"premise": texts[i // 2], "hypothesis": texts[i + 9], "label": labels[i % 3]} for i in range(48)]
    write_lines(folder / "nli.jsonl", map(json.dumps, pairs))
    mirror = folder / "hub" / "mteb" / "biosses-sts"
    mirror.mkdir(parents=True)
    content = "".join(json.dumps({"sentence1": text, "sentence2": text[:9], "score": 1}) + "\n" for text in texts[:9])
    (mirror / "test.jsonl.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
    for path in folder.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))


def write_stsb(folder: Path, texts: list[str]) -> None:
    """The three files of the STS benchmark."""
    folder.mkdir()
    for start, part in enumerate(("train", "dev", "test")):
        rows = [
            f"main-captions\tMSRvid\t2012test\t{i:04d}\t{i % 6}\t{texts[50 * start + i]}\t{texts[50 * start + i + 1]}"
            for i in range(12)
        ]
        write_lines(folder / f"sts-{part}.csv", rows)


def write_lines(path: Path, lines: object) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
