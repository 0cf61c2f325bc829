"""What an input is, asked once: texts, vectors or moments."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import FileFormatError, InputError, IsosentWarning
from isosent.io.source import open_source
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
