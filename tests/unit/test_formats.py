"""The table of file formats, the page that shows it, and formats of other benchmarks."""

import gc
import json
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from isosent.errors import FileFormatError, InputError
from isosent.io import vector_source
from isosent.io.formats import FORMATS
from isosent.io.source import open_source
from isosent.io.texts import read_texts

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
ROWS = np.random.default_rng(0).integers(-90, 90, (7, 5))


def test_the_page_lists_the_formats_with_their_dtypes():
    rows = [line.strip("| \n").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `.")]
    shown = {}
    for names, _, read, written in ([cell.strip() for cell in (*row, "", "")][:4] for row in rows):
        for ending in re.findall(r"`(\.\w+)`", names):
            shown.setdefault(ending, set()).add((read, written))
    readable = [each for each in FORMATS if not each.refusal]
    table = {each.ending: {(", ".join(each.dtypes), ", ".join(each.written))} for each in readable}
    assert shown == table
    assert all(f"`{each.ending}`" in PAGE.read_text() for each in FORMATS)


def write(path, rows, header=None):
    path.write_bytes(np.array(header or rows.shape, "<u4").tobytes() + rows.tobytes())
    return path


@pytest.mark.parametrize(("ending", "dtype"), [("fbin", "<f4"), ("u8bin", "u1"), ("i8bin", "i1"), ("FBIN", "<f4")])
def test_files_of_big_ann_benchmarks_are_read(tmp_path, ending, dtype):
    rows = np.abs(ROWS).astype(dtype) if dtype == "u1" else (ROWS / (3 if dtype == "<f4" else 1)).astype(dtype)
    source = open_source(write(tmp_path / f"base.{ending}", rows))
    assert (source.n_rows, source.dim, source.storage) == (7, 5, rows.dtype.name)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), rows)
    np.testing.assert_array_equal(np.concatenate(list(source.part(2, 3).blocks())), rows[2:5])
    assert not source.may_be_bits


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ((8, 5), "truncated"),  # a row is missing
        ((6, 5), "of another dtype"),  # a row too many: a part of a larger file
        ((0x07000000, 0x00000005), "truncated"),
        ((7, 0), "shape"),
        ((7, 1 << 30), "dimensions"),
    ],
)
def test_a_header_that_does_not_fit_the_size_is_refused(tmp_path, header, message):
    path = write(tmp_path / "base.fbin", ROWS.astype("<f4"), header)
    with pytest.raises(FileFormatError, match=message):
        open_source(path)


def test_a_file_that_ends_in_its_header_is_refused(tmp_path):
    (tmp_path / "base.fbin").write_bytes(b"\7\0\0\0\5\0")
    with pytest.raises(FileFormatError, match="truncated"):
        open_source(tmp_path / "base.fbin")


@pytest.mark.parametrize("read", [open_source, read_texts])
@pytest.mark.parametrize("name", ["truth.ibin", "truth.ivecs"])
def test_neighbors_are_no_vectors(tmp_path, read, name):
    path = write(tmp_path / name, ROWS.astype("<i4"))
    with pytest.raises(InputError, match="neighbors"):
        read(path)


@pytest.fixture
def tables(tmp_path):
    rows = ROWS / 8  # exact in float32
    objects = [{"text": f"a text {n}", "embedding": row} for n, row in enumerate(rows.tolist())]
    (tmp_path / "lists.json").write_text(json.dumps(rows.tolist()))
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, rows.tolist())))
    (tmp_path / "both.json").write_text(json.dumps(objects, indent=1))
    (tmp_path / "both.jsonl").write_text("\n".join(map(json.dumps, objects)))
    lines = ["text,embedding", *(f'{fields["text"]},"{fields["embedding"]}"' for fields in objects)]
    (tmp_path / "both.csv").write_text("\n".join(lines))
    np.savetxt(tmp_path / "lines.csv", rows, delimiter=",")
    return tmp_path


TABLES = ["lists.json", "lists.jsonl", "both.json", "both.jsonl", "both.csv", "lines.csv"]
opened = []  # a hook of Python cannot be removed
is_counting = []


@pytest.mark.filterwarnings("ignore:.*in text are not encoded")
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_opened_once_for_its_head_and_once_for_its_rows(tables, name):
    if not opened:
        sys.addaudithook(lambda event, args: event == "open" and is_counting and opened.append(str(args[0])))
        opened.append("the hook")
    is_counting.append(True)
    try:
        before = opened.count(str(tables / name))
        source = open_source(tables / name)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS / 8)
        assert opened.count(str(tables / name)) - before == 2
    finally:
        is_counting.clear()


@pytest.mark.filterwarnings("ignore:.*in text are not encoded")
@pytest.mark.parametrize("name", TABLES)
def test_rows_that_are_not_kept_are_read_again(tables, name, monkeypatch):
    for kept in (1 << 20, 60):  # the second is full at the fourth row
        monkeypatch.setattr(vector_source, "KEPT_BYTES", kept)
        source = open_source(tables / name)
        np.testing.assert_array_equal(np.concatenate(list(source.blocks(3))), ROWS[3:] / 8)
        np.testing.assert_array_equal(np.concatenate(list(source.part(2, 4).blocks())), ROWS[2:6] / 8)


def test_what_is_kept_of_all_files_is_bounded(tables, monkeypatch):
    before = vector_source.ParsedRows.n_bytes_of_all
    monkeypatch.setattr(vector_source, "KEPT_BYTES", before + 2 * ROWS.size * 4)
    gc.freeze()  # what was imported is no garbage, and takes a second to look at
    sources = [open_source(tables / "lists.json") for _ in range(4)]
    assert vector_source.ParsedRows.n_bytes_of_all - before == 2 * ROWS.size * 4
    for source in sources:
        np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS / 8)
    del source, sources
    gc.collect()
    assert vector_source.ParsedRows.n_bytes_of_all <= before


def test_a_fault_far_down_in_a_list_of_objects_is_met_where_it_is_read(tmp_path):
    objects = [{"text": f"a text {n}"} for n in range(300)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(objects)[:-1] + ", {]")
    with pytest.raises(FileFormatError, match="not valid JSON"):
        read_texts(path)
    path.write_text(json.dumps(objects) + " more")
    with pytest.raises(FileFormatError, match="not valid JSON: Extra data"):
        read_texts(path)
    path.write_text(json.dumps([*objects, 7]))
    with pytest.raises(FileFormatError, match="row 300"):
        read_texts(path)
    path.write_text(f" \n{json.dumps(objects, indent=2)}\n")
    assert read_texts(path) == [each["text"] for each in objects]


def test_threads_that_share_a_source_read_each_row_once(tables):
    source = open_source(tables / "lists.jsonl")
    start = threading.Barrier(4)

    def read(_):
        start.wait()
        return np.concatenate(list(source.blocks()))

    with ThreadPoolExecutor(4) as threads:
        for rows in threads.map(read, range(4)):
            np.testing.assert_array_equal(rows, ROWS / 8)
