import json
import re
import resource
import shutil
import sys

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.search import Index


@pytest.fixture(scope="module")
def whitened(tmp_path_factory, wordllama, texts):
    folder = tmp_path_factory.mktemp("whitened") / "model"
    wordllama.fitted(texts, transform=isosent.Whitening(8)).save(folder)
    return folder


@pytest.fixture(autouse=True)
def here(whitened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whitened, "model")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe" * 500)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "output"),
    [
        ("sentence-transformers", "st"),
        ("onnx", "onnx"),
        ("faiss", "map.faiss"),
        ("numpy", "map.safetensors"),
        ("sql", "map.sql"),
    ],
)
def test_every_target_is_written_and_the_check_reported(isosent_, here, target, output):
    finished = isosent_("export", "model", "--to", target, "-o", output)
    assert (finished.code, finished.err) == (0, "")
    assert f"{output}: {target}, wordllama -> whitening (" in finished.out
    assert "largest difference" in finished.out
    assert (here / output).exists()


def test_a_folder_that_will_be_replaced_is_named_before_any_work(isosent_, refuses, here):
    export = ("export", "model", "--to", "sentence-transformers", "-o", "st")
    assert isosent_(*export).err == ""
    assert "st holds an export, which is replaced" in isosent_(*export).err
    (here / "texts.txt").write_text("a\nb\n")
    distill = isosent_("distill", "nowhere", "texts.txt", "-o", "st")
    assert "st holds a model, which is replaced" in distill.err
    refuses(distill, "nowhere")
    assert isosent.load("./st").dim == 8  # what was there still is
    (here / "st" / "thesis.txt").write_text("mine")
    refused = isosent_(*export)
    refuses(refused, "st exists")
    assert "replaced" not in refused.err


def test_an_index_has_the_fingerprint_beside_it(isosent_, here):
    assert isosent_("export", "model", "--to", "faiss?index=HNSW4", "-o", "map.faiss").code == 0
    note = json.loads((here / "map.faiss.isosent.json").read_text())
    assert (note["fingerprint"], note["index"]) == (isosent.load("./model").fingerprint, "HNSW4")


def test_a_file_of_vectors_fills_an_index(isosent_, here, wordllama, texts):
    table = {"n": np.arange(480) * 3, "v": list(wordllama.encode(texts)), "w": list(wordllama.encode(texts)[::-1])}
    pq.write_table(pa.table(table), here / "v.parquet")
    export = ("export", "model", "--to", "faiss?map=false", "-o", "a.faiss", "--vectors", "v.parquet")
    assert "--column" in isosent_(*export).err
    finished = isosent_(*export, "--column", "v", "--ids", "n")
    assert (finished.code, finished.err) == (0, "")
    assert "480 vectors" in finished.out
    assert "64 of 64" in finished.out
    index = faiss.read_index("a.faiss")
    assert index.search(isosent.load("./model").encode(texts[7:8]), 1)[1] == 21
    assert isosent_(*export[:-2], "--column", "v").code == 2


def test_an_index_becomes_a_file_with_its_recipe(isosent_, here):
    np.save("v.npy", np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32))
    assert isosent_("index", "v.npy", "-o", "index", "--store", "binary").code == 0
    finished = isosent_("export", "index", "--to", "faiss", "-o", "a.faiss")
    assert (finished.code, finished.err) == (0, "")
    assert "RR16,RaBitQ,Refine(SQfp16)" in finished.out
    assert "64 queries" in finished.out
    queries = np.load("v.npy")[:20]
    k_factor = float(re.search(r"k_factor ([\d.]+)", finished.out)[1])
    plain = faiss.read_index("a.faiss")
    assert faiss.downcast_index(plain.index).k_factor == pytest.approx(k_factor)
    found = plain.search(queries, 10)[1]
    assert found.tolist() == Index.open("index").search(queries, 10).ids.tolist()
    assert "no option but map=false" in isosent_("export", "index", "--to", "faiss?index=SQ8", "-o", "b.faiss").err


def test_scores_go_into_the_card(isosent_, here, write_stsb):
    write_stsb(here / "data")
    assert isosent_("evaluate", "sts", "--data", "data", "-m", "model", "-o", "scores.json").code == 0
    finished = isosent_("export", "model", "--to", "sentence-transformers", "--results", "scores.json", "-o", "out")
    assert finished.code == 0, finished.err
    assert "| STSB |" in (here / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "torchscript", "-o", "out"], "--to torchscript: the formats are"),
        (["--to", "faiss?indx=Flat", "-o", "out"], "there is no option indx. There are tei, index and map"),
        (["--to", "faiss?map=no", "-o", "out"], "map=no is neither true nor false"),
        (["--to", "numpy", "-o", "nowhere/out"], "there is no folder"),
        (["--to", "sentence-transformers", "-o", "."], "is neither empty nor an older export"),
        (["--to", "sentence-transformers?tei=true", "-o", "out"], "the encoder wordllama is no transformer"),
        (["--to", "sentence-transformers", "--results", "none.json", "-o", "out"], "none.json: no such file"),
        (
            ["--to", "sentence-transformers", "--results", "model/model.json", "-o", "out"],
            "'isosent result 1'",
        ),
        (
            ["--to", "sentence-transformers", "--results", "binary.json", "-o", "out"],
            "binary.json: damaged, truncated or not JSON",
        ),
        (["--to", "numpy", "-o", "model/model.json"], "is no older numpy export"),
    ],
)
def test_bad_input_ends_with_a_sentence(isosent_, here, arguments, message):
    finished = isosent_("export", "model", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert message in finished.err
    assert not (here / "out").exists()


def test_a_missing_package_ends_with_the_line_to_type(isosent_, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    finished = isosent_("export", "model", "--to", "sentence-transformers", "-o", "out")
    assert finished.code == 2
    assert "sentence_transformers is not installed. Install it with: pip install 'isosent[export]'" in finished.err
    assert not (here / "out").exists()


def test_the_model_is_left_as_it_was(isosent_, here):
    before = isosent.load("./model").encode(["a text"])
    isosent_("export", "model", "--to", "numpy", "-o", "map.safetensors")
    np.testing.assert_array_equal(isosent.load("./model").encode(["a text"]), before)


@pytest.fixture(scope="module")
def small_models(tmp_path_factory, tiny_model, texts):
    """Folders of a model of word vectors and of one with a transformer."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "glove.txt").write_text("man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n")
    words = isosent.load(f"words:{folder / 'glove.txt'}")
    words.fitted(["man dog", "cat", "yak", "dog cat"], transform=isosent.Whitening(2)).save(folder / "words")
    np.save(folder / "vectors.npy", words.encode(["man dog", "cat", "yak", "dog cat"] * 50))
    tiny = isosent.load(f"hf:{tiny_model('bert')}")
    tiny.fitted(texts[:40], transform=isosent.Whitening(4)).save(folder / "tiny")
    return folder


@pytest.mark.parametrize(
    ("model", "target", "limits", "more"),
    [
        ("words", "numpy", (50, 200), ()),
        ("words", "faiss", (10, 50, 100), ()),
        ("words", "faiss", (50, 1000), ("--vectors", "vectors.npy")),
        ("words", "onnx", (100, 800), ()),
        ("words", "sentence-transformers", (50, 200, 600), ()),
        ("tiny", "numpy", (200,), ()),
        ("tiny", "faiss?index=HNSW8", (50,), ()),
        ("tiny", "sentence-transformers", (100, 3000, 30000), ()),
        ("tiny", "sentence-transformers?tei=true", (100, 30000), ()),
    ],
)
def test_a_full_disk_ends_in_a_sentence(isosent_, refuses, small_models, tmp_path, model, target, limits, more):
    # a write limit stands for a full disk: of each size in bytes, some more of an export is written
    (tmp_path / "out").mkdir()
    more = [small_models / word if word.endswith(".npy") else word for word in more]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            made = tmp_path / "out" / "made"
            finished = isosent_("export", small_models / model, "--to", target, *more, "-o", made)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        error = "\n".join(line for line in finished.err.splitlines() if "Writing model shards" not in line)
        refuses(finished._replace(err=error), "made could not be written: File too large.")
        assert list((tmp_path / "out").iterdir()) == []
