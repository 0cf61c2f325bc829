"""Vectors in files of other tools: the same bytes come out of every command, and recall against known neighbors."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc

from isosent.io.vectors import open_vectors
from isosent.search import Index

h5py = pytest.importorskip("h5py")

RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(400, 8)) * RNG.uniform(0.3, 3, (400, 1)) + 1).astype(np.float32)
ROWS[7] = 0
QUERIES = RNG.normal(size=(30, 8)).astype(np.float32)
WORDS = ["river", "stone", "garden", "music", "winter", "engine", "letter", "market", "doctor", "planet", "silver"]
TEXTS = [f"{n} " + " ".join(RNG.choice(WORDS, 6)) for n in range(400)]


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows.astype(float), axis=1, keepdims=True), 1e-9)


COSINES = unit(QUERIES) @ unit(ROWS).T
NEAREST = np.argsort(-COSINES, axis=1)[:, :20].astype("<i4")
DISTANCES = (1 - np.take_along_axis(COSINES, NEAREST, axis=1)).astype("<f4")
BY_LENGTH = np.argsort(((QUERIES[:, None] - ROWS) ** 2).sum(axis=2), axis=1)[:, :20].astype("<i4")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("v.npy", ROWS)
    np.save("queries.npy", QUERIES)
    np.save("new.npy", ROWS @ RNG.normal(size=(8, 8)) + RNG.normal(size=(400, 8)) / 9)
    return tmp_path


def hdf5(path, neighbors=NEAREST, distances=DISTANCES, distance="angular", **others):
    with h5py.File(path, "w") as file:
        file.update({"train": ROWS, "test": QUERIES, "neighbors": neighbors, "distances": distances, **others})
        if distance:
            file.attrs["distance"] = distance


def arrow(path, write=ipc.new_file):
    rows = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 8)})
    with write(path, rows.schema) as file:
        file.write_table(rows, 90)


def data_set(path):
    (here := path.parent / path.name).mkdir()
    arrow(here / "data-00000-of-00001.arrow", ipc.new_stream)
    (here / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    (here / "dataset_info.json").write_text("{}")


def chroma(path):
    rows = {"ids": [f"id-{n}" for n in range(400)], "embeddings": ROWS.tolist(), "documents": None, "metadatas": None}
    path.write_text(json.dumps({**rows, "included": ["embeddings"], "uris": None, "data": None}))


WRITERS = {
    "a.npz": lambda path: np.savez(path, ROWS),
    "b.npz": lambda path: np.savez_compressed(path, ids=np.arange(400), vectors=ROWS),
    "a.hdf5": hdf5,
    "a.arrow": arrow,
    "a.arrows": lambda path: arrow(path, ipc.new_stream),
    "a.feather": lambda path: feather.write_feather(
        pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 8)}), path
    ),
    "saved": data_set,
    "chroma.json": chroma,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_model_and_its_vectors_are_those_of_the_array(isosent_, here, name):
    WRITERS[name](here / name)
    for path, out in ((name, "one"), ("v.npy", "other")):
        assert isosent_("fit", path, "--transform", "whitening", "-o", f"{out}-model").code == 0
        assert isosent_("transform", path, "-m", f"{out}-model", "-o", f"{out}.npy").code == 0
    assert (here / "one.npy").read_bytes() == (here / "other.npy").read_bytes()
    one, other = (json.loads(isosent_("info", f"{name}-model", "--json").out) for name in ("one", "other"))
    assert one["space"] == other["space"] if "space" in one else one["fingerprint"] == other["fingerprint"]


@pytest.mark.parametrize("name", ["a.hdf5", "a.arrow", "b.npz", "saved"])
def test_every_command_that_takes_vectors_takes_them(isosent_, here, name):
    WRITERS[name](here / name)
    (here / "texts.txt").write_text("\n".join(TEXTS))
    outputs = []
    for path in (name, "v.npy"):
        folder = f"{path}-index"
        assert isosent_("index", path, "-o", folder).code == 0
        commands = {
            "inspect": (path, "--json"),
            "search": (folder, "queries.npy", "--json"),
            "duplicates": (path, "--texts", "texts.txt", "--json"),
            "drift": (path, "queries.npy", "--json"),
            "migrate": (path, "new.npy", "texts.txt", "--json"),
            "quantize": (path, "-m", "model"),
        }
        assert isosent_("fit", path, "--transform", "whitening", "-o", "model").code == 0
        results = [isosent_(command, *arguments) for command, arguments in commands.items()]
        assert [(result.code, command) for result, command in zip(results, commands, strict=True) if result.code] == []
        outputs.append([re.sub(r'"(queries_per_s|s_per_text)": [-+.e\d]+', "", result.out) for result in results])
    one, other = (
        [text.replace(path, "FILE") for text in texts] for texts, path in zip(outputs, (name, "v.npy"), strict=True)
    )
    assert one == other


def test_where_queries_are_wanted_a_benchmark_gives_its_queries(isosent_, here):
    hdf5(here / "bench.hdf5")
    assert isosent_("index", "bench.hdf5", "-o", "index").code == 0
    found = json.loads(isosent_("search", "index", "bench.hdf5", "-k", "5", "--json").out)["results"]
    assert [[hit["id"] for hit in result["hits"]] for result in found] == NEAREST[:, :5].tolist()
    rows = json.loads(isosent_("search", "index", "bench.hdf5", "--column", "train", "--json").out)["results"]
    assert len(rows) == 400
    assert rows[399]["hits"][0]["id"] == 399
    assert recall(isosent_("search", "index", "bench.hdf5", "--truth", "bench.hdf5", "--json")) == 1
    assert Index.open("index").recall_of_neighbors("bench.hdf5", "bench.hdf5") == (1, len(QUERIES))
    for queries in ("bench.hdf5", "queries.npy"):
        assert isosent_("fit", "v.npy", "--queries", queries, "--dims", "3", "-o", f"of-{queries}").code == 0
        for out in (f"{queries}.npy", f"{queries}-folder/"):
            arguments = ("-m", f"of-{queries}", "--queries", "-o", out)
            assert isosent_("transform", queries, *arguments).code == 0
    assert (here / "bench.hdf5.npy").read_bytes() == (here / "queries.npy.npy").read_bytes()
    assert open_vectors("bench.hdf5-folder").n_rows == len(QUERIES)


def test_info_describes_the_array_that_is_named(isosent_, here):
    np.savez("two.npz", rows=ROWS, queries=QUERIES[:, :5])
    facts = json.loads(isosent_("info", "two.npz", "--column", "queries", "--json").out)
    assert (facts["vectors"], facts["dimensions"], facts["column"]) == (30, 5, "queries")
    for name in ("v.npy", "wordllama"):
        assert "Leave it out" in isosent_("info", name, "--column", "queries").err


# -- recall ------------------------------------------------------------------------------------------------------------


def ivecs(path, rows):
    np.hstack([np.full((len(rows), 1), rows.shape[1], "<i4"), rows]).tofile(path)


def ibin(path, rows, *distances):
    path.write_bytes(np.array(rows.shape, "<u4").tobytes() + b"".join(part.tobytes() for part in (rows, *distances)))


@pytest.fixture
def index(isosent_, here):
    hdf5(here / "bench.hdf5")
    assert isosent_("index", "bench.hdf5", "-o", "index").code == 0
    return "index"


def recall(finished):
    assert finished.code == 0, finished.err
    return json.loads(finished.out)["recall"]


def test_recall_is_the_share_of_true_neighbors(isosent_, here, index):
    wrong = NEAREST.copy()
    wrong[:, 2] = wrong[:, 19]  # of the ten nearest, nine are left
    hdf5(here / "wrong.hdf5", wrong)
    ivecs(here / "truth.ivecs", NEAREST)
    ibin(here / "truth.ibin", NEAREST, DISTANCES)
    ibin(here / "ids.ibin", NEAREST)
    assert recall(isosent_("search", index, "--truth", "bench.hdf5", "--json")) == 1
    assert recall(isosent_("search", index, "--truth", "wrong.hdf5", "--json")) == pytest.approx(0.9)
    assert recall(isosent_("search", index, "--truth", "wrong.hdf5", "-k", "2", "--json")) == 1
    for truth in ("truth.ivecs", "truth.ibin", "ids.ibin"):
        assert recall(isosent_("search", index, "queries.npy", "--truth", truth, "-k", "20", "--json")) == 1
    assert Index.open(index).recall_of_neighbors("truth.ivecs", QUERIES, k=5) == (1, 30)
    shown = isosent_("search", index, "--truth", "wrong.hdf5").out
    assert shown.startswith("recall@10: 0.9000 against")


def test_rows_as_near_as_the_last_count(isosent_, here):
    np.save("twice.npy", np.vstack([ROWS, ROWS]))
    # of a row and its copy, the copy first, as another library may list them
    neighbors = np.stack([NEAREST + 400, NEAREST], axis=2).reshape(30, 40)
    hdf5(here / "twice.hdf5", neighbors, np.repeat(DISTANCES, 2, axis=1))
    ivecs(here / "twice.ivecs", neighbors)
    assert isosent_("index", "twice.npy", "-o", "index").code == 0
    assert recall(isosent_("search", "index", "--truth", "twice.hdf5", "-k", "5", "--json")) == 1
    without = recall(isosent_("search", "index", "queries.npy", "--truth", "twice.ivecs", "-k", "5", "--json"))
    assert without == pytest.approx(0.8)


BEYOND = NEAREST.copy()
BEYOND[4, 3] = 4711
NEGATIVE = np.where(BEYOND == 4711, -1, BEYOND)


@pytest.mark.parametrize(
    ("write", "arguments", "words"),
    [
        (lambda: hdf5("t.hdf5", BEYOND), ["t.hdf5"], ["query 4", "row 4711", "400 rows"]),
        (lambda: ivecs("t.ivecs", NEGATIVE), ["t.ivecs"], ["query 4", "row -1"]),
        (lambda: hdf5("t.hdf5", BY_LENGTH, distance="euclidean"), ["t.hdf5"], ["euclidean", "cosine"]),
        (lambda: hdf5("t.hdf5", BY_LENGTH, distance=b"hamming"), ["t.hdf5"], ["hamming"]),
        (lambda: hdf5("t.hdf5", BY_LENGTH, distance=""), ["t.hdf5"], ["order of their cosines"]),
        (lambda: ivecs("t.ivecs", BY_LENGTH), ["t.ivecs"], ["order of their cosines"]),
        (lambda: ivecs("t.ivecs", NEAREST[:9]), ["t.ivecs"], ["9 queries", "vectors of 30"]),
        (lambda: hdf5("t.hdf5"), ["t.hdf5", "-k", "21"], ["20 neighbors"]),
        (lambda: hdf5("t.hdf5", distances=DISTANCES[:, :3]), ["t.hdf5"], ["(30, 3)"]),
        (lambda: hdf5("t.hdf5", NEAREST / 2), ["t.hdf5"], ["neighbors", "float64"]),
        (lambda: h5py.File("t.hdf5", "w").close(), ["t.hdf5"], ["no data set neighbors"]),
        (lambda: ivecs("t.ivecs", NEAREST[:, :0]), ["t.ivecs"], ["damaged"]),
        (lambda: Path("t.ivecs").write_bytes(b"\x03\0\0\0\1\0"), ["t.ivecs"], ["damaged"]),
        (lambda: Path("t.ibin").write_bytes(b"\x03\0\0\0"), ["t.ibin"], ["truncated"]),
        (lambda: ibin(Path("t.ibin"), NEAREST, DISTANCES[:7]), ["t.ibin"], ["truncated"]),
        (lambda: None, ["v.npy"], [".ivecs"]),
        (lambda: hdf5("t.hdf5"), ["t.hdf5", "--hybrid"], ["--truth"]),
    ],
)
def test_neighbors_that_are_not_of_the_index_are_refused(isosent_, refuses, index, write, arguments, words):
    write()
    is_alone = arguments[0].endswith("hdf5")
    refuses(isosent_("search", index, *([] if is_alone else ["queries.npy"]), "--truth", *arguments), *words)


def test_neighbors_without_queries_and_ids_that_are_texts_are_refused(isosent_, refuses, here, index):
    ivecs(here / "t.ivecs", NEAREST)
    refuses(isosent_("search", index, "--truth", "t.ivecs"), "queries")
    chroma(here / "named.json")
    assert isosent_("index", "named.json", "-o", "named").code == 0
    refuses(isosent_("search", "named", "--truth", "bench.hdf5"), "strings")


def test_true_neighbors_are_not_compared_with_ids_of_another_kind(isosent_, here, refuses):
    rows = [f'{{"pk": {399 - n}, "embedding": {row.tolist()}}}' for n, row in enumerate(ROWS)]
    (here / "rows.jsonl").write_text("\n".join(rows))
    assert isosent_("index", "rows.jsonl", "--id-column", "pk", "-o", "own").code == 0
    hdf5(here / "bench.hdf5")
    refuses(isosent_("search", "own", "--truth", "bench.hdf5"), "bench.hdf5", "ids")


@pytest.mark.parametrize("has_ids", [True, False])
def test_true_neighbors_are_those_of_rows_that_are_left(isosent_, refuses, here, has_ids):
    hdf5(here / "bench.hdf5")
    index = Index.create(vectors=ROWS, ids=list(range(400)) if has_ids else None, folder="index")
    unnamed, named = np.setdiff1d(np.arange(400), NEAREST)[[0, -1]], NEAREST[3, 5]
    index.remove(unnamed.tolist())
    assert recall(isosent_("search", "index", "--truth", "bench.hdf5", "--json")) == 1
    index.remove([int(named)])
    refuses(isosent_("search", "index", "--truth", "bench.hdf5"), f"row {named}", "removed")


def test_an_array_of_several_is_indexed_by_its_name(isosent_, here, refuses):
    np.savez("two.npz", train=ROWS, test=QUERIES)
    Path("texts.txt").write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    assert isosent_("index", "v.npy", "-o", "expected").code == 0
    for more in ((), ("--texts", "texts.txt")):
        finished = isosent_("index", "two.npz", "--column", "train", *more, "-o", "made")
        assert finished.code == 0, finished.err
        found, expected = (Index.open(name).search(QUERIES, k=5).ids for name in ("made", "expected"))
        np.testing.assert_array_equal(found, expected)
    refuses(isosent_("index", "two.npz", "-o", "none"), "train", "test", "--column")
    refuses(isosent_("index", "v.npy", "--column", "train", "-o", "none"), "v.npy", "train")
