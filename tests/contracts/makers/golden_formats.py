"""A small file or folder of every format that a release of isosent writes, and the numbers that are read from them.

Before a release, after its version was set, ``python tests/contracts/makers/golden_formats.py`` writes
``tests/golden/formats/VERSION``, with the extra ``export``. What is there is never written again: every later version
must open it, which ``tests/golden/test_formats.py`` checks.
"""

import contextlib
import json
import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

FORMATS = Path(__file__).parents[2] / "golden" / "formats"
EXPECTED = "expected.json"
DIM, WIDTH = 8, 4
N_CLUSTERED = 1000  # the fewest rows that are clustered
# float16 in the other kinds is written as int8 is there, with the number type of the flat one
KINDS = [("flat", store) for store in ("float32", "float16", "int8", "binary")]
KINDS += [("ivf", "float32"), ("ivf", "int8"), ("ivf", "binary"), ("hnsw", "float32"), ("hnsw", "int8")]
KINDS += [("flat", "product"), ("ivf", "product")]  # not in 0.1.0
MODELS = ("whitened", "queries", "sif", "calibrated", "flow")
WORDS = "-m words:words.txt"
COMMANDS = (
    f"fit texts.txt {WORDS} --transform whitening --dims {WIDTH} -o whitened",
    f"fit texts.txt {WORDS} --transform whitening --dims {WIDTH} --queries queries.txt -o queries",
    f"fit texts.txt {WORDS}?weighting=sif --transform none -o sif",
    "calibrate texts.txt -m ./whitened -o calibrated",
    f"fit texts.txt {WORDS} --transform glow_flow?n_levels=1&depth=1&width=4 -o flow",
    f"fit vectors.npy --transform whitening --dims {WIDTH} --space made-up -o vectors",
    "words convert words.txt -o words.safetensors",
    "encode texts.txt -m ./whitened -o encoded.npy",
    "encode texts.txt -m ./whitened -o encoded.fvecs",
    "encode texts.txt -m ./whitened -o encoded.parquet",
    "encode texts.txt -m ./whitened --shard-size 24 -o shards",
    "encode texts.txt -m ./whitened --shard-size 24 --format parquet -o parquet_shards",
    "moments vectors.npy -o moments.safetensors",
    "moments more_vectors.npy --checkpoint checkpoint -o more_moments.safetensors",
    f"evaluate pairs --data pairs.tsv {WORDS} --resamples 20 -o result.json",
    "evaluate pairs --data pairs.tsv -m ./whitened --resamples 20 -o other_result.json",
    f"research study dims?widths=2,4&docs=0 --data data {WORDS} -o study.json",
    "export ./whitened --to faiss -o exported.faiss",
    "data get biosses -o fetched --from hub",
)


def run(command: str) -> None:
    """One command of isosent, here."""
    from isosent.cli.main import main

    sys.argv = ["isosent", *command.split()]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            main()
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"isosent {command} ended with {stop.code}") from None


def write(folder: Path) -> None:
    """Write every format into a folder, and the numbers that are read back."""
    import isosent
    from isosent.search import Index

    words = write_inputs(folder)
    with contextlib.chdir(folder):
        for command in COMMANDS:
            run(command)
        model, texts = isosent.load("whitened"), Path("texts.txt").read_text("utf-8").splitlines()
        rows = np.random.default_rng(2).standard_normal((N_CLUSTERED, WIDTH)).astype(np.float32)
        for kind, store in KINDS:
            if kind == "ivf":
                Index.create(vectors=rows, folder=f"index-{kind}-{store}", kind=kind, store=store)
            else:
                index = Index.create(texts, model, folder=f"index-{kind}-{store}", kind=kind, store=store)
        index = Index.open("index-flat-int8")
        index.add([f"{words[5]} {words[6]} {words[7]}"])
        index.remove([0])
        shutil.rmtree("hub")
    (folder / EXPECTED).write_text(json.dumps({"formats": formats_in(folder), "numbers": numbers(folder)}, indent=1))


def write_inputs(folder: Path) -> list[str]:
    """Texts, random word vectors, random vectors, scored pairs."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))
    from campaign import inputs

    with tempfile.TemporaryDirectory() as home:
        inputs.write_inputs(Path(home) / "inputs")
        for name in ("words.txt", "pairs.tsv", "data", "hub"):
            (Path(home) / "inputs" / name).rename(folder / name)
        texts = (Path(home) / "inputs" / "texts.txt").read_text("utf-8").splitlines()
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    (folder / "queries.txt").write_text("\n".join(texts[50:]) + "\n", "utf-8")
    for seed, name in enumerate(("vectors.npy", "more_vectors.npy")):
        np.save(folder / name, np.random.default_rng(seed).standard_normal((30, DIM)).astype(np.float32))
    return [line.split()[0] for line in (folder / "words.txt").read_text("utf-8").splitlines()]


def formats_in(folder: Path) -> dict[str, str]:
    """Each format with its version, as the files name them, and a file of it."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        head = path.read_bytes()[:4000].decode("latin-1")
        versioned = re.search(r'"format": ?"(isosent-[a-z-]+)",\s*"(?:format_)?version": ?"?(\d+)', head)
        other = re.search(r'"format": ?"(isosent[a-z0-9 -]+)"', head)
        if versioned or other:
            name = f"{versioned[1]} {versioned[2]}" if versioned else other[1]
            found.setdefault(name, path.relative_to(folder).as_posix())
    return found


def numbers(folder: Path) -> dict[str, object]:
    """What this version reads from the files of a folder."""
    import isosent
    from isosent.datasets import read_data_record
    from isosent.exports.faiss import read_index
    from isosent.io.vectors import open_vectors
    from isosent.jobs.moments import read_moments
    from isosent.research.study import read_study
    from isosent.search import Index

    texts = (folder / "texts.txt").read_text("utf-8").splitlines()[:3]
    words = f"words:{folder / 'words.txt'}"
    models = {name: isosent.load(f"{folder / name}?encoder={words}") for name in MODELS}
    read: dict[str, object] = {f"model {name}": model.encode(texts).tolist() for name, model in models.items()}
    read["model queries, of a query"] = models["queries"].encode(texts, role="query").tolist()
    read["calibrated"] = models["calibrated"].similarity(texts, texts, calibrated=True).tolist()
    for precision in ("int8", "ubinary"):
        read[f"quantized, {precision}"] = models["calibrated"].encode(texts, precision=precision).tolist()
    read["model of vectors"] = isosent.load(folder / "vectors").transform(np.load(folder / "vectors.npy")[:3]).tolist()
    read["words"] = isosent.load(f"words:{folder / 'words.safetensors'}").encode(texts).tolist()
    for name in ("encoded.npy", "encoded.fvecs", "encoded.parquet", "shards", "parquet_shards"):
        source = open_vectors(folder / name)
        rows = np.concatenate(list(source.blocks()))
        read[name] = [len(rows), source.space.fingerprint == models["whitened"].fingerprint, *rows[-1].tolist()]
    parts = [read_moments(folder / f"{name}.safetensors") for name in ("moments", "more_moments")]
    merged = (parts[0] + parts[1]).moments
    read["moments"] = [merged.weight, *merged.mean.tolist(), *np.diag(merged.scatter).tolist()]
    results = [isosent.read_result(folder / f"{name}.json") for name in ("result", "other_result")]
    read["result"] = [task.score for result in results for task in result.tasks.values()]
    compared = isosent.compare_results(*results, n_resamples=20).tasks.values()
    read["comparison"] = [difference.difference for difference in compared]
    for kind, store in KINDS:
        name = f"index-{kind}-{store}"
        if not (folder / name).exists():  # of a version that did not write such
            continue
        index = Index.open(folder / name, None if kind == "ivf" else models["whitened"])
        queries = np.eye(WIDTH, dtype=np.float32) if kind == "ivf" else texts
        hits = index.search(queries, k=3)
        read[name] = [len(index), np.asarray(hits.ids).tolist(), hits.scores.tolist()]
    hybrid = Index.open(folder / "index-flat-int8", models["whitened"]).search(texts, k=3, hybrid=True)
    exported = read_index(folder / "exported.faiss", models["whitened"])
    exported.add(np.load(folder / "vectors.npy"))
    read["exported index"] = exported.search(np.load(folder / "vectors.npy")[:2], 3)[0].tolist()
    read["study"] = [len(study.results) for study in [read_study(folder / "study.json")]]
    read["fetched data"] = len(read_data_record(folder / "fetched").files)
    read["index, hybrid"] = [np.asarray(hybrid.ids).tolist(), hybrid.scores.tolist()]
    return read


if __name__ == "__main__":
    target = FORMATS / version("isosent")
    if target.exists():
        sys.exit(f"{target} exists. It was written by that version, and stays as it is.")
    # models name their word vectors by a path; it is the same wherever this runs
    home = Path(tempfile.gettempdir()) / "isosent-formats"
    home.mkdir()
    try:
        write(home)
        shutil.copytree(home, target)
    finally:
        shutil.rmtree(home)
