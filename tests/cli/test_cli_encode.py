import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.io.vectors import open_vectors

GLOVE = "man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n"
TEXTS = "".join(f"a man {'dog ' * i}\n" for i in range(5)) + "\nzebra\ncat and yak\n"
MODEL = ("-m", "words:glove.txt")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glove.txt").write_text(GLOVE)
    (tmp_path / "texts.txt").write_text(TEXTS)
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def vectors_of(folder):
    return np.concatenate(list(open_vectors(folder).blocks()))


def test_a_name_without_an_ending_is_a_folder_of_shards(isosent_, here):
    finished = isosent_("encode", "texts.txt", *MODEL, "-o", "out", "--shard-size", "3")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out == (
        "out: 8 x 3 float32, shards: 3; texts without a vector: 2\ntokens: 24; unknown: 7 (29.2%)\n"
    )
    assert sorted(contents(here / "out")) == [
        *(name for i in range(3) for name in (f"part-0000{i}.npy", f"part-0000{i}.npy.isosent.json")),
        "shards.json",
    ]
    expected = isosent.load("words:glove.txt").encode(TEXTS.splitlines())
    np.testing.assert_array_equal(np.concatenate([np.load(f"out/part-0000{i}.npy") for i in range(3)]), expected)


def test_shards_hold_a_hundred_thousand_texts_where_nothing_is_said(isosent_, here):
    assert isosent_("encode", "texts.txt", *MODEL, "-o", "out").code == 0
    assert json.loads((here / "out" / "shards.json").read_text("utf-8"))["sharding"] == {
        "shard_size": 100_000,
        "file_format": "npy",
        "dtype": "float32",
    }


@pytest.mark.parametrize("output", ["there", "there.npy", "new.v2/", "new"])
def test_an_existing_folder_and_a_name_that_ends_in_a_slash_are_folders(isosent_, here, output):
    (here / "there").mkdir()
    (here / "there.npy").mkdir()
    assert isosent_("encode", "texts.txt", *MODEL, "-o", output).code == 0
    assert (here / output / "part-00000.npy").is_file()


def test_tables_of_shards_hold_the_texts(isosent_, here):
    arguments = ("--format", "parquet", "--shard-size", "5", "--dtype", "float16")
    assert isosent_("encode", "texts.txt", *MODEL, "-o", "out", *arguments).code == 0
    tables = [pq.ParquetFile(here / "out" / f"part-0000{i}.parquet").read() for i in range(2)]
    assert [text for table in tables for text in table["text"].to_pylist()] == TEXTS.splitlines()
    assert str(tables[0].schema.field("vector").type) == "fixed_size_list<element: halffloat>[3]"


def test_a_file_is_stored_in_half_the_space(isosent_, here):
    finished = isosent_("encode", "texts.txt", *MODEL, "-o", "v.npy", "--dtype", "float16")
    assert finished.out.startswith("v.npy: 8 x 3 float16; ")
    assert np.load("v.npy").dtype == np.float16


def test_a_folder_is_fitted_on_transformed_and_inspected_as_a_file_is(isosent_, here, texts):
    (here / "many.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    assert isosent_("encode", "many.txt", "-o", "out", "--shard-size", "100").code == 0
    assert isosent_("encode", "many.txt", "-o", "v.npy").code == 0
    for name in ("out", "v.npy"):
        assert isosent_("fit", name, "--dims", "8", "-o", f"model of {name}").code == 0
        assert isosent_("transform", name, "-m", "model of out", "-o", f"behind {name}.npy").code == 0
        assert isosent_("inspect", name, "--json").code == 0
    assert isosent_("moments", "out", "-o", "m.safetensors").code == 0
    assert (here / "behind out.npy").read_bytes() == (here / "behind v.npy.npy").read_bytes()
    of_folder, of_file = (isosent.load(here / f"model of {name}") for name in ("out", "v.npy"))
    np.testing.assert_array_equal(of_folder.linear_map.weight, of_file.linear_map.weight)


def test_a_table_keeps_its_other_columns(isosent_, here):
    rows = [
        {"id": 1, "text": "man", "tag": "a"},
        {"id": 2, "text": "", "tag": None},
        {"id": 3, "text": "dog", "tag": "c"},
    ]
    (here / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), "t.parquet")
    (here / "t.csv").write_text("id,text,tag\n1,man,a\n2,,\n3,dog,c\n")
    for name in ("t.jsonl", "t.parquet", "t.csv"):
        finished = isosent_("encode", name, "--column", "text", *MODEL, "-o", "v.parquet")
        assert finished.code == 0, finished.err
        table = pq.ParquetFile(here / "v.parquet").read()
        assert table.column_names == ["id", "text", "tag", "vector"]
        assert list(map(str, table["id"].to_pylist())) == ["1", "2", "3"]
        assert table["text"].to_pylist() == ["man", "", "dog"]
        assert table["vector"].to_pylist() == [[1, 2, 3], [0, 0, 0], [2, 1, 5]]


def test_without_pyarrow_shards_of_parquet_are_refused_and_nothing_is_written(isosent_, refuses, here, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuses(isosent_("encode", "texts.txt", "--format", "parquet", "-o", "out"), "pip install 'isosent[parquet]'")
    assert not (here / "out").exists()


def test_columns_of_a_parquet_file_keep_their_types_and_a_later_shard_its_rows(isosent_, here):
    times = pa.array([1, 2, 3, 4, 5], pa.time64("ns"))  # Python has no type for these
    pq.write_table(pa.table({"text": ["man", "dog", "man", "dog", "man"], "at": times}), "t.parquet")
    words = ("encode", "t.parquet", "--column", "text", *MODEL, "--format", "parquet", "--shard-size", "3")
    assert isosent_(*words, "-o", "out").code == 0
    for name, rows in (("part-00000.parquet", times[:3]), ("part-00001.parquet", times[3:])):
        assert pq.ParquetFile(here / "out" / name).read()["at"].combine_chunks() == rows


def test_a_column_that_begins_in_a_later_row_of_jsonl_is_kept(isosent_, here):
    (here / "t.jsonl").write_text('{"text": "man"}\n{"text": "dog", "tag": 5, "of": {"a": "x"}}\n')
    assert isosent_("encode", "t.jsonl", "--column", "text", *MODEL, "-o", "v.parquet").code == 0
    table = pq.ParquetFile(here / "v.parquet").read()
    assert (table["tag"].to_pylist(), table["of.a"].to_pylist()) == ([None, 5], [None, "x"])


def test_two_columns_of_one_name_are_refused(isosent_, here, refuses):
    (here / "t.csv").write_text("text,tag,tag\nman,a,b\n")
    refuses(isosent_("encode", "t.csv", "--column", "text", *MODEL, "-o", "v.parquet"), "'tag' twice")
    assert not (here / "v.parquet").exists()


def test_standard_input_goes_into_a_folder(isosent_, here):
    for told in ("", "out: 3 of 3 shards exist; nothing is left to encode\n"):
        finished = isosent_("encode", "-", *MODEL, "-o", "out", "--shard-size", "3", stdin=TEXTS.encode())
        assert (finished.code, finished.err) == (0, told)
        assert finished.out.startswith("out: 8 x 3 float32, shards: 3; texts without a vector: 2\n")
    np.testing.assert_array_equal(vectors_of("out"), isosent.load("words:glove.txt").encode(TEXTS.splitlines()))


KILLED = """
import math, os, signal, sys
from isosent.cli.main import main
from isosent.jobs import encode, shards
write_index = shards.write_index

def killed(folder, index):
    write_index(folder, index)
    if len(index.missing) == 2:
        encode.narrowed = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # before vectors are written

shards.write_index, shards._SHARE_OF_TIME = killed, math.inf
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_bytes_of_an_undisturbed_one(isosent_, here):
    arguments = ("encode", "texts.txt", *MODEL, "--shard-size", "2", "--format", "parquet", "-o")
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments, "out"], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any(name.startswith(".part-00002") for name in contents(here / "out"))
    again, whole = isosent_(*arguments, "out"), isosent_(*arguments, "whole")
    assert (again.code, again.err) == (0, "out: 2 of 4 shards exist; resuming\n")
    assert again.out == whole.out.replace("whole", "out")
    assert contents(here / "out") == contents(here / "whole")


def test_an_interrupted_run_goes_on(isosent_, here, monkeypatch):
    arguments = ("encode", "texts.txt", *MODEL, "-o", "out", "--shard-size", "2")

    def interrupt(self, texts, **_):
        if texts:
            raise KeyboardInterrupt
        return np.zeros((0, 3), np.float32)

    with monkeypatch.context() as patched:
        patched.setattr(isosent.SentenceEncoder, "encode", interrupt)
        finished = isosent_(*arguments)
    assert (finished.code, finished.out) == (130, "")
    assert finished.err.endswith("interrupted\n")
    assert sorted(contents(here / "out")) == ["shards.json"]
    assert isosent_(*arguments).code == 0


def test_a_warning_comes_once_for_all_blocks(isosent_, here, monkeypatch):
    monkeypatch.setattr("isosent.jobs.encode.WINDOW", 16)
    monkeypatch.setattr("isosent.jobs.encode._MOST_WINDOWS", 1)
    (here / "texts.txt").write_text("man yak zebra gnu\n" * 100)
    for output in ("v.npy", "out"):
        finished = isosent_("encode", "texts.txt", *MODEL, "-o", output)
        assert finished.code == 0
        assert finished.err == f"warning: 200 of 400 tokens (50%) are unknown to words:{here / 'glove.txt'}.\n"
        assert finished.out.endswith("tokens: 400; unknown: 200 (50.0%)\n")


def test_a_bad_line_in_the_middle_is_refused_before_anything_is_made(isosent_, here, refuses):
    (here / "texts.jsonl").write_text('{"t": "man"}\n' * 5000 + '{"t": 3}\n' + '{"t": "man"}\n' * 5000)
    for output in ("out", "v.npy"):
        refuses(isosent_("encode", "texts.jsonl", *MODEL, "-o", output), "line 5001: t is a number, not a text")
        assert not (here / output).exists()


def test_a_changed_file_another_model_and_other_settings_are_refused(isosent_, here, refuses):
    assert isosent_("encode", "texts.txt", *MODEL, "-o", "out").code == 0
    before = contents(here / "out")
    refuses(isosent_("encode", "texts.txt", "-o", "out"), "out holds vectors of the space words:")
    refuses(isosent_("encode", "texts.txt", *MODEL, "-o", "out", "--shard-size", "9"), "shard_size=9. ")
    (here / "texts.txt").write_text(TEXTS.replace("yak", "cat"))
    refuses(isosent_("encode", "texts.txt", *MODEL, "-o", "out"), "and the content differs")
    assert contents(here / "out") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "v.npy", "--shard-size", "9"), "--format and --shard-size are for a folder; v.npy is one file."),
        (("-o", "v.npy", "--format", "parquet"), "--format and --shard-size are for a folder; v.npy is one file."),
        (("-o", "out", "--shard-size", "0"), "--shard-size 0: choose a whole number >= 1."),
        (("-o", "out", "--format", "fvecs"), "--format fvecs: choose one of npy, parquet."),
        (("-o", "out", "--dtype", "int8"), "'int8' is not one of"),
        (("-o", "v.fvecs", "--dtype", "float16"), "a .fvecs file holds float32, not float16."),
        (("-o", "nowhere/out"), "there is no folder "),
        (("-o", "glove"), "glove is a file."),
        (("-o", "thesis"), "thesis holds something else"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(isosent_, here, refuses, arguments, words):
    (here / "glove").write_bytes(b"")
    (here / "thesis").mkdir()
    (here / "thesis" / "chapter1.txt").write_text("years of work")
    refuses(isosent_("encode", "nowhere.txt", *MODEL, *arguments), words)


def test_a_folder_that_cannot_be_written_to_is_refused(isosent_, here, refuses):
    (here / "locked").mkdir(mode=0o555)
    if os.access(here / "locked", os.W_OK):
        pytest.skip("needs a user that may not write everywhere")
    for output in ("locked", "locked/out"):
        refuses(isosent_("encode", "nowhere.txt", *MODEL, "-o", output), "cannot be written to")


def test_an_unfinished_folder_is_not_read(isosent_, here, refuses):
    isosent_("encode", "texts.txt", *MODEL, "-o", "out", "--shard-size", "2")
    document = json.loads((here / "out" / "shards.json").read_text("utf-8"))
    del document["checksum"]
    (here / "out" / "shards.json").write_text(json.dumps(document | {"shards": [*document["shards"][:3], None]}))
    refuses(isosent_("fit", "out", "-o", "model"), "out has only 3 of its 4 shards.")
