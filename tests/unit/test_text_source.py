import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent import read_texts
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io import bounds as lines
from isosent.io.texts import open_texts, text_blocks

TEXTS = ["one", "", "zwö,\ufeff", 'a "quoted" one', "\u2028half", "x" * 40, "last"]
LINES = "\n".join(TEXTS)
QUOTED = 'id,text\r\n1,one\r\n2,"two\nlines, and a ""comma"""\r\n3,\ufeffmark\r\n4,\r\n'


def texts_of(path, **settings):
    with open_texts(path, **settings) as source:
        return list(source.read())


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5, 8, 13, 40, 100])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_pieces_of_any_size_give_the_same_texts(write, monkeypatch, piece_bytes, mark):
    monkeypatch.setattr(lines, "_PIECE_BYTES", piece_bytes)
    assert read_texts(write("t.txt", mark + LINES)) == TEXTS
    assert read_texts(write("t.txt", mark + LINES.replace("\n", "\r\n") + "\r\n")) == TEXTS
    path = write("t.csv", mark + QUOTED)
    assert read_texts(path, column="text") == ["one", 'two\nlines, and a "comma"', "\ufeffmark", ""]
    path = write("t.tsv", mark + "id\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    assert read_texts(path, column="text") == TEXTS


@pytest.mark.parametrize("piece_bytes", [1, 4, 9, 100])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_undecodable_bytes_name_their_line_whatever_the_pieces(write, monkeypatch, piece_bytes, mark):
    monkeypatch.setattr(lines, "_PIECE_BYTES", piece_bytes)
    with pytest.raises(FileFormatError, match=r"line 4 is not UTF-8: byte 0xe9"):
        read_texts(write("t.txt", mark + b"one\nz\xc3\xb6\n\ncaf\xe9\nfive\n"))


def test_rows_of_parquet_are_counted_over_its_batches(tmp_path):
    listed = [f"text {i}" for i in range(5000)]  # batches of 1024
    pq.write_table(pa.table({"text": listed}), tmp_path / "t.parquet", row_group_size=1500)
    assert texts_of(tmp_path / "t.parquet") == listed
    pq.write_table(pa.table({"text": [*listed, None]}), tmp_path / "t.parquet", row_group_size=1500)
    assert texts_of(tmp_path / "t.parquet") == [*listed, ""]


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.parquet"])
def test_texts_are_counted_and_read_as_often_as_wanted(write, tmp_path, name):
    if name == "t.parquet":
        pq.write_table(pa.table({"text": ["a", "b", "c"]}), tmp_path / name)
    else:
        write(name, "a\nb\nc\n" if name == "t.txt" else "text\na\nb\nc\n")
    with open_texts(tmp_path / name) as source:
        assert (source.name, source.n_texts) == (str(tmp_path / name), 3)
        assert list(source.read()) == list(source.read()) == ["a", "b", "c"]


def test_the_hash_is_that_of_the_texts_and_not_of_the_file(write, tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}), tmp_path / "t.parquet")
    paths = [write("t.txt", "a\nb"), write("u.md", "a\r\nb\r\n"), write("t.jsonl", '{"t": "a"}\n{"t": "b"}')]
    found = set()
    for path in paths:
        with open_texts(path) as source:
            found.add(source.sha256)
    with open_texts(tmp_path / "t.parquet", column="text") as source:
        found.add(source.sha256)
    assert len(found) == 1


def test_the_hash_knows_where_texts_end_and_which_come_first(write):
    contents = ['"a\nb"\nc', 'a\n"b\nc"', "a\nb\nc", "b\na\nc", "a\nb", "ab\nc", "a\n\nb\nc"]
    found = []
    for content in contents:
        with open_texts(write("t.csv", f"text\n{content}\n")) as source:
            found.append(source.sha256)
    assert len(set(found)) == len(contents)


def test_a_bad_line_is_refused_before_the_first_text_is_handed_out(write):
    with (
        pytest.raises(FileFormatError, match=r"line 3 is no JSON object"),
        open_texts(write("t.jsonl", '{"a": "b"}\n\n3')),
    ):
        pytest.fail("opened")


def test_no_text_is_refused(write):
    with pytest.raises(FileFormatError, match=r"t\.csv holds no texts"):
        texts_of(write("t.csv", "text\n"))


def test_a_column_for_plain_lines_is_refused(write):
    with pytest.raises(InputError, match=r"is read as plain lines, so there is no column 'text'"):
        texts_of(write("t.txt", "one\n"), column="text")


@pytest.mark.parametrize("content", ["a\nb\nc\n", "x\ny\n"])
def test_a_file_that_is_changed_meanwhile_is_refused(write, content):
    path = write("t.txt", "a\nb\n")
    with open_texts(path) as source:
        source.check_unchanged()
        path.write_text(content)
        os.utime(path, (1, 1))
        with pytest.raises(InputFileError, match=r"t\.txt was changed while it was read"):
            source.check_unchanged()


@pytest.mark.skipif(os.name != "posix", reason="needs a named pipe")
def test_a_pipe_is_copied_so_that_it_can_be_read_twice(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    writer = threading.Thread(target=lambda: (tmp_path / "t.csv").write_text("id,text\n1,one\n2,two\n"))
    writer.start()
    with open_texts(tmp_path / "t.csv", column="text") as source:
        assert list(source.read()) == list(source.read()) == ["one", "two"]
        source.check_unchanged()
    writer.join()


@pytest.mark.parametrize("n_texts", [1, 2, 3, 7, 100])
def test_blocks_hold_every_text_once_in_order(n_texts):
    blocks = list(text_blocks(iter(TEXTS), n_texts))
    assert [text for block in blocks for text in block] == TEXTS
    assert all(len(block) == n_texts for block in blocks[:-1])
    assert 1 <= len(blocks[-1]) <= n_texts


def test_no_text_is_no_block():
    assert list(text_blocks(iter([]), 3)) == []


def test_long_texts_make_shorter_blocks():
    blocks = list(text_blocks(["x" * 30] * 9, 1000, n_characters=100, at_once=2))
    assert [len(block) for block in blocks] == [4, 4, 1]
