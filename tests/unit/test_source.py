"""What an input is, asked once: texts, vectors or moments."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import FileFormatError, InputError, IsosentWarning
from isosent.io.source import open_source
from isosent.io.vectors import source_of
from isosent.jobs.moments import moments_of, write_moments

ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
LANGUAGES = ["en", "de", "en", "fr", "de"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("v.npy", ROWS)
    (tmp_path / "t.txt").write_text("a horse\na dog\n")
    columns = {"text": [f"text {n}" for n in range(5)], "lang": LANGUAGES, "emb": ROWS.tolist()}
    pq.write_table(pa.table(columns), "both.parquet")
    lines = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "both.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, ROWS.tolist())))
    write_moments("m.safetensors", moments_of([open_source("v.npy")]))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "column", "kind"),
    [
        ("t.txt", None, "texts"),
        ("-", None, "texts"),
        ("v.npy", None, "vectors"),
        ("lists.jsonl", None, "vectors"),
        ("both.parquet", "emb", "vectors"),
        ("both.jsonl", "emb", "vectors"),
        ("both.parquet", "text", "texts"),
        ("both.jsonl", "text", "texts"),
        ("m.safetensors", None, "moments"),
        ("http://localhost:1/v1", None, "moments"),
        ("wordllama", None, "texts"),  # no file, which is said when it is read
    ],
)
def test_a_source_says_what_it_is_and_nothing_is_fetched_or_read_for_it(name, column, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = open_source(name, column=column, moments=True)
    assert (source.kind, source.name) == (kind, name)


@pytest.mark.parametrize("name", ["both.parquet", "both.jsonl"])
def test_of_a_table_with_both_vectors_are_used_once_warned(name):
    with pytest.warns(IsosentWarning, match="vectors in its column emb are used") as warned:
        source = open_source(name)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert (source.kind, source.n_rows, source.dim, source.column) == ("vectors", 5, 3, "emb")
    assert source.text_columns == ("text", "lang")
    assert source.is_column


def test_vectors_are_a_column_of_a_table_or_not():
    assert not open_source("v.npy").is_table
    lists = open_source("lists.jsonl")
    assert (lists.is_table, lists.is_column) == (True, False)


@pytest.mark.parametrize("name", ["both.parquet", "both.jsonl"])
def test_labels_are_those_of_the_rows(name):
    vectors, texts = open_source(name, column="emb"), open_source(name, column="text")
    assert vectors.labels("lang") == texts.labels("lang") == LANGUAGES
    assert vectors.labels("lang", 1, 2) == LANGUAGES[1:3]
    part = vectors.part(2, 3)
    assert part.labels("lang") == LANGUAGES[2:]
    assert part.labels("lang", 1) == LANGUAGES[3:]
    np.testing.assert_array_equal(np.concatenate(list(part.blocks())), ROWS[2:])
    with texts.counted() as counted:
        assert counted.n_texts == 5
        assert counted.labels("lang", 3, 2) == LANGUAGES[3:]


def test_files_without_columns_have_no_labels():
    with pytest.raises(InputError, match=r"v\.npy has no column lang"):
        open_source("v.npy").labels("lang")
    with pytest.raises(InputError, match=r"t\.txt has no column lang"):
        open_source("t.txt").labels("lang")
    with open_source("t.txt").counted() as counted, pytest.raises(InputError, match="no column lang"):
        counted.labels("lang")


def test_moments_are_refused_where_only_texts_and_vectors_are_an_input():
    with pytest.raises(FileFormatError, match="isosent-moments"):
        open_source("m.safetensors")


def test_a_folder_without_shards_is_refused_when_it_is_read(here):
    (here / "other").mkdir()
    with pytest.raises(InputError, match="other"):
        open_source("other").texts()


@pytest.mark.parametrize(
    "vectors",
    [
        ROWS,
        ROWS.astype(">f4"),
        ROWS.tolist(),
        list(ROWS),
        pd.Series(ROWS.tolist()),
        pd.Series(list(ROWS), index=[7, 7, 1, 0, 3]),
        pd.Series(ROWS.tolist(), dtype=pd.ArrowDtype(pa.list_(pa.float32()))),
        pl.Series(ROWS.tolist()),
        pa.chunked_array([ROWS[:2].tolist(), ROWS[2:].tolist()]),
        "v.npy",
    ],
    ids=["array", "big-endian", "lists", "arrays", "pandas", "index", "arrow in pandas", "polars", "arrow", "path"],
)
def test_vectors_of_any_kind_become_a_source(vectors):
    source = source_of(vectors, where="inspect")
    assert (source.n_rows, source.dim, source.space) == (5, 3, None)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS)
    np.testing.assert_array_equal(np.concatenate(list(source.part(1, 3).blocks(1))), ROWS[2:4])
    assert source_of(source, where="inspect") is source


def test_tensors_become_a_source():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(ROWS)
    for vectors in (tensor.clone().requires_grad_(), list(tensor), [row.clone().requires_grad_() for row in tensor]):
        np.testing.assert_array_equal(next(source_of(vectors, where="inspect").blocks()), ROWS)
    rounded = next(source_of(tensor.bfloat16(), where="inspect").blocks())
    np.testing.assert_allclose(rounded, ROWS, rtol=2**-8)


@pytest.mark.parametrize(
    ("rows", "storage"),
    [(np.array([[1, 2]]), "float64"), (np.array([[1]], np.uint16), "float32"), (np.array([[True]]), "float32")],
)
def test_numbers_that_no_file_holds_become_floats(rows, storage):
    source = source_of(rows, where="inspect")
    assert source.storage == storage
    np.testing.assert_array_equal(next(source.blocks()), rows)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1.0, 2.0], None], "row 1 of vectors is missing"),
        ([[1.0, 2.0], [1.0]], "row 1 of vectors has 1"),
        (["[1, 2]", "[3, 4]"], r"row 0 of vectors is a string, '\[1, 2\]'"),
        ([[[1.0, 2.0], [3.0]], [[1.0], [2.0]]], "must be an array of real numbers"),
    ],
)
def test_a_row_that_is_no_vector_is_named(column, message):
    with pytest.raises(InputError, match=message):
        source_of(pd.Series(column, dtype=object), where="inspect")


def test_a_number_that_is_none_is_named_by_the_caller():
    source = source_of([[1.0, 2.0], [np.nan, 0.0]], where="search", name="queries")
    with pytest.raises(InputError, match="search: row 1 of queries, counted from 0, holds NaN"):
        source.check_finite(next(source.blocks()), 0)
