"""Lines, words, documents and packed files beyond their bounds are refused before they fill the memory."""

import gzip
import json
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent import read_texts
from isosent.errors import FileFormatError
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_scored_pairs
from isosent.io import bounds, parquet, typed_tables
from isosent.io.tables import open_table
from isosent.io.texts import open_texts, text_blocks
from isosent.io.vectors import open_vectors
from isosent.search import inputs
from isosent.search.inputs import read_rows
from isosent.training.data import read_examples
from isosent.words.frequencies import read_frequencies
from isosent.words.tokens import pieces_of
from isosent.words.vocabulary import Vocabulary, read_wanted_words
from isosent.words.word_vectors import read_word_vectors

LIMIT = 100
SHORT, LONG = "x" * 60, "x" * 200
HEADER = "sentence1{0}sentence2{0}score\n"


@pytest.fixture
def short_lines(monkeypatch):
    monkeypatch.setattr(bounds, "LONGEST_LINE", LIMIT)


def row(text):
    return json.dumps({"text": text, "sentence1": text, "sentence2": "b", "score": 1.5})


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("place", [0, 1, 5])
def test_the_number_of_a_long_line_is_told_wherever_the_pieces_are_cut(place, size):
    lines = [b"y" * 10] * 6
    lines[place] = b"x" * 11
    content = b"\n".join(lines)
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    with pytest.raises(FileFormatError, match=rf"a\.txt, line {place + 1}: longer than 10 bytes"):
        list(bounds.whole_lines("a.txt", pieces, 10))
    blocks = list(bounds.whole_lines("a.txt", pieces, 11))
    assert b"".join(block for _, block in blocks) == content
    assert [number for numbers, _ in blocks for number in numbers] == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize(
    ("name", "lines", "line"),
    [
        ("a.txt", [SHORT, SHORT, LONG, SHORT], 3),
        ("b.txt", [LONG], 1),
        ("a.tsv", ["text", SHORT, LONG], 3),
        ("a.csv", ["text", SHORT, LONG, SHORT], 3),
        ("b.csv", ["text", SHORT, f'"{SHORT}', SHORT, f'{SHORT}"'], 3),
        ("a.jsonl", [row("a"), row(LONG)], 2),
    ],
)
def test_a_long_line_of_texts_is_refused(write, name, lines, line):
    path = write(name, "\n".join(lines) + "\n")
    column = None if name.endswith(".txt") else "text"
    with pytest.raises(FileFormatError, match=rf"{name}, line {line}: longer than 100 bytes"):
        read_texts(path, column=column)
    with pytest.raises(FileFormatError, match=f"line {line}"), open_texts(path, column=column):
        pass


def test_a_row_of_csv_that_never_ends_is_refused(write, monkeypatch):
    monkeypatch.setattr(bounds, "LONGEST_LINE", 1 << 10)
    endless = '\n","' * 600_000  # two pieces of the file; every field is short
    with pytest.raises(FileFormatError, match="line 3: longer than 1 KiB"):
        read_texts(write("a.csv", f'text\none\n"{endless}"\n'))


@pytest.mark.usefixtures("short_lines")
def test_a_long_line_that_fits_is_read(write):
    texts = ["x" * LIMIT, "", "y" * LIMIT]
    assert read_texts(write("a.txt", "\n".join(texts))) == texts


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.csv", HEADER.format(",") + f"a,b,1\n{LONG},b,2\n", 3),
        ("a.tsv", HEADER.format("\t") + f"a\tb\t1\n{LONG}\tb\t2\n", 3),
        ("a.jsonl", f"{row('a')}\n\n{row(LONG)}\n", 3),
    ],
)
@pytest.mark.parametrize("reading", [read_scored_pairs, lambda path: read_examples("regression", [path])])
def test_a_long_row_of_pairs_is_refused(write, reading, name, content, line):
    with pytest.raises(FileFormatError, match=f"line {line}: longer than 100 bytes"):
        reading(write(name, content))


@pytest.mark.usefixtures("short_lines")
def test_long_lines_of_numbers_and_of_lists_of_words_are_refused(write):
    path = write("a.jsonl", f'{{"n": 1}}\n{{"n": 2, "m": "{LONG}"}}\n')
    with pytest.raises(FileFormatError, match="line 2: longer"), open_table(path) as table:
        list(table.rows("n"))
    with pytest.raises(FileFormatError, match="line 2: longer"):
        read_wanted_words(write("words.txt", f"the\n{LONG}\n"))
    with pytest.raises(FileFormatError, match="line 2: longer"):
        read_frequencies(write("counts.txt", f"the 3\n{LONG} 1\n"), Vocabulary.from_words(["the"]))


def test_a_large_json_table_is_refused(write, monkeypatch):
    monkeypatch.setattr(bounds, "LARGEST_JSON", LIMIT)
    with pytest.raises(FileFormatError, match=r"larger than 100 bytes.*jsonl"):
        read_scored_pairs(write("a.json", json.dumps([json.loads(row(SHORT))] * 3)))


CQA = "SemEval2016-Task3-CQA-QL-dev.xml"


def test_a_large_xml_file_is_refused(write, monkeypatch):
    monkeypatch.setattr(bounds, "LARGEST_XML", LIMIT)
    with pytest.raises(FileFormatError, match="larger than 100 bytes"):
        read_cqa(write(CQA, f"<xml>{LONG}</xml>").parent)


@pytest.mark.parametrize("declared", ['<!ENTITY a "aa">', '<!ATTLIST a b CDATA "aa">', "<!ATTLIST a\nb CDATA 'a>a'>"])
def test_xml_that_multiplies_text_is_refused(write, declared):
    with pytest.raises(FileFormatError, match=declared[:8]):
        read_cqa(write(CQA, f"<!DOCTYPE xml [{declared}]><xml><a/><a/></xml>").parent)


# Word vectors


def read_vectors(path):
    return read_word_vectors([path], cache=False)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("header", [b"", b"3 2\n"])
def test_a_long_line_of_word_vectors_is_refused(write, monkeypatch, pack, header):
    monkeypatch.setattr(bounds, "LONGEST_VECTOR_LINE", LIMIT)
    content = header + b"the 1 2\na 3 4\n" + b"7" * 200 + b" 5 6\n"
    with pytest.raises(FileFormatError, match=f"line {3 + bool(header)}: longer than 100 bytes"):
        read_vectors(write("v.txt", pack(content)))


@pytest.mark.parametrize("content", [b"the 1 2 3 4 5\n", b"1 5\nthe 1 2 3 4 5\n", b"1 5\nthe " + bytes(20)])
def test_too_many_dimensions_are_refused(write, monkeypatch, content):
    monkeypatch.setattr(bounds, "MOST_DIMENSIONS", 4)
    with pytest.raises(FileFormatError, match="line 1: 5 dimensions"):
        read_vectors(write("v.txt", content))


@pytest.mark.parametrize(
    "content", [b"the 1 2\n" + b"x" * 200 + b" 1 2\n", b"2 1\nthe " + bytes(4) + b"\n" + b"x" * 200 + b" " + bytes(4)]
)
def test_a_long_word_is_refused(write, monkeypatch, content):
    monkeypatch.setattr(bounds, "LONGEST_WORD", LIMIT)
    with pytest.raises(FileFormatError, match=r" 2: its word is longer than 100 bytes"):
        read_vectors(write("v.txt", content))


def test_a_binary_word_that_never_ends_is_refused(write, monkeypatch):
    monkeypatch.setattr(bounds, "LONGEST_WORD", LIMIT)
    with pytest.raises(FileFormatError, match="vector 1: its word is longer"):
        read_vectors(write("v.bin", b"2 1\n\1" + b"x" * 1000))


def fasttext(dim=2, longest=3, word=b"the"):
    settings = struct.pack("<12id", dim, 5, 5, 1, 5, 1, 1, 2, 2, 3, longest, 1, 1e-4)
    words = struct.pack("<3i2q", 1, 1, 0, 1, -1) + word + b"\0" + struct.pack("<qb", 1, 0)
    matrix = struct.pack("<qq", 3, max(dim, 0)) + bytes(12 * max(dim, 0))
    return struct.pack("<2i", 793712314, 12) + settings + words + b"\0" + matrix + b"\0" + matrix


def test_a_fasttext_model_within_the_bounds_is_read(write):
    assert list(read_vectors(write("m.bin", fasttext())).vocabulary) == ["the"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dim": 1 << 20}, "1048576"),
        ({"dim": -1}, "-1"),
        ({"longest": 1 << 30}, "1073741824"),
        ({"word": b"x" * 70_000}, "word is longer"),
    ],
)
def test_a_fasttext_model_beyond_the_bounds_is_refused(write, changed, message):
    with pytest.raises(FileFormatError, match=message):
        read_vectors(write("m.bin", fasttext(**changed)))


@pytest.mark.parametrize("pack", ["gzip", "zip"])
def test_a_packed_file_that_grows_a_thousandfold_is_refused(write, tmp_path, monkeypatch, pack):
    monkeypatch.setattr(bounds, "FREELY_EXPANDED", 1 << 20)
    content = b"a 1\n" * (5 << 20)
    path = tmp_path / "v.packed"
    if pack == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("v.txt", content)
    else:
        path.write_bytes(gzip.compress(content))
    with pytest.raises(FileFormatError, match="unpacks to more than 100 times"):
        read_vectors(path)


def test_blank_lines_end_a_file_of_any_length_but_stand_in_none(write):
    vectors = read_vectors(write("v.txt", b"the 1 2\n" + b"\n" * (5 << 20)))
    assert list(vectors.vocabulary) == ["the"]
    with pytest.raises(FileFormatError, match=r"line 2: .*blank"):
        read_vectors(write("v.txt", b"the 1 2\n" + b"\n" * (5 << 20) + b"a 1 2\n"))


def test_a_header_of_endless_digits_is_no_header(write):
    with pytest.raises(FileFormatError, match=r"dimensions|numbers|rows"):
        read_vectors(write("v.txt", b"9" * 5000 + b" " + b"9" * 5000 + b"\nthe 1 2\n"))


# Parquet


def test_a_parquet_file_that_grows_a_thousandfold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "FREELY_EXPANDED", 1 << 20)
    texts = [f"{number}{'a' * 10_000}" for number in range(400)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(FileFormatError, match=r"unpacks to 3.8"):
        read_texts(tmp_path / "a.parquet")


@pytest.mark.usefixtures("short_lines")
def test_a_long_text_of_a_parquet_file_is_refused(tmp_path):
    pq.write_table(pa.table({"text": ["a"] * 2000 + [LONG]}), tmp_path / "a.parquet")
    with pytest.raises(FileFormatError, match=r"row 2000 \(counted from 0\): text is longer"):
        read_texts(tmp_path / "a.parquet")


# Texts in memory


def test_a_long_text_is_tokenized_in_pieces_that_are_put_together(monkeypatch):
    text = " ".join(isosent.demo_texts()[:200])
    model = isosent.load("wordllama")
    texts = [text, "short", "", text.replace(" ", "  ", 1), text.replace(" ", "")[:3000]]
    expected = model.encode(texts)
    monkeypatch.setattr("isosent.words.tokens.LONGEST_PIECE", 1000)
    monkeypatch.setattr("isosent.words.subwords.LONGEST_PIECE", 1000)
    assert [len(piece) <= 1000 for piece in pieces_of(text)].count(False) == 0
    assert " ".join(pieces_of(text)) == text
    vectors = isosent.load("wordllama").encode(texts)
    np.testing.assert_allclose(vectors[:4], expected[:4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vectors[4], expected[4], atol=0.05)  # no blank to cut at


def test_windows_of_long_texts_hold_fewer(monkeypatch):
    texts = [f"{text} {number}" for number, text in enumerate(isosent.demo_texts()[:300])]
    model = isosent.load("wordllama")
    expected = model.encode(texts)
    monkeypatch.setattr("isosent.encoders.base.text_blocks", lambda texts, n: text_blocks(texts, n, n_characters=500))
    np.testing.assert_array_equal(model.encode(texts), expected)


# In a process of its own, with the bounds as they are


def peak_mib(tmp_path, code):
    code = f"import resource, isosent\n{code}\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert found.returncode == 0, found.stderr
    return int(found.stdout.split()[-1])


REFUSED = """
try:
    {0}
except isosent.IsosentError as error:
    assert "line 1: longer than" in str(error), error
else:
    raise AssertionError("it was read")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts in KiB on Linux")
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("v.gz", "read_word_vectors(['v.gz'], cache=False)"),
        ("long.txt", "isosent.read_texts('long.txt')"),
    ],
)
@pytest.mark.slow
def test_a_line_of_a_gigabyte_takes_no_memory(tmp_path, name, call):
    if name.endswith(".gz"):
        piece = gzip.compress(b"0" * (64 << 20), 1)
        (tmp_path / name).write_bytes(piece * 16)
    else:
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)  # sparse
    imports = "from isosent.words.word_vectors import read_word_vectors\n"
    before, after = peak_mib(tmp_path, imports), peak_mib(tmp_path, imports + REFUSED.format(call))
    assert after - before < 150


# -- small parquet files of many rows --------------------------------------------------------------------------------


def repeated(value, n_rows):
    """A column that a file stores once, whatever the number of its rows."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), pa.array([value]))


READERS = [lambda path: read_texts(path, column="text"), lambda path: read_rows(str(path), column="text")]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("value", "n_rows"), [("a short text", 6_000_000), ("x y " * 50_000, 20_000)])
def test_rows_without_number_in_a_small_file_are_refused(tmp_path, read, value, n_rows):
    path = tmp_path / "rows.parquet"
    part = pa.table({"text": repeated(value, min(n_rows, 1_000_000))})
    with pq.ParquetWriter(path, part.schema, store_schema=False) as writer:
        for _ in range(n_rows // len(part)):
            writer.write_table(part)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FileFormatError, match=r"rows.parquet unpacks to .*100 times its size"):
        read(path)


def test_repeated_texts_are_streamed_whatever_they_add_up_to(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "FREELY_EXPANDED", 1 << 20)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": repeated("a short text", 200_000)}), path, store_schema=False)
    with open_texts(path) as texts:
        assert texts.n_texts == sum(text == "a short text" for text in texts.read())
    with pytest.raises(FileFormatError, match="unpacks to"):
        read_texts(path)


def test_a_row_group_that_grows_a_thousandfold_is_not_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "FREELY_EXPANDED", 1 << 20)
    texts = pa.table({"text": [f"{number}{'a' * 10_000}" for number in range(400)]})
    for n_rows, name in ((400, "tight.parquet"), (50, "loose.parquet")):
        pq.write_table(texts, tmp_path / name, row_group_size=n_rows, compression="zstd", use_dictionary=False)
    with open_texts(tmp_path / "loose.parquet") as source:
        assert source.n_texts == 400
    with pytest.raises(FileFormatError, match="unpacks to"), open_texts(tmp_path / "tight.parquet"):
        pass


def test_a_long_text_that_many_rows_repeat_is_decoded_a_few_rows_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_TEXT_BYTES", 1 << 16)
    text = "".join(map(chr, np.random.default_rng(0).integers(0x4E00, 0x9FA5, 3000)))
    pq.write_table(pa.table({"text": repeated(text, 2000)}), tmp_path / "long.parquet", store_schema=False)
    table = parquet.ParquetTable("long", tmp_path / "long.parquet")
    batches = list(table.batches(["text"], start_row=500, is_streamed=False))
    assert sum(map(len, batches)) == 1500
    assert max(batch.nbytes for batch in batches) <= 1 << 17
    assert read_texts(tmp_path / "long.parquet") == [text] * 2000


def test_lists_of_one_long_text_are_refused(tmp_path):
    tags = pa.ListArray.from_arrays(pa.array([0, 100_000, 200_000], pa.int32()), repeated("x" * 100_000, 200_000))
    path = tmp_path / "tags.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "tags": tags}), path, store_schema=False)
    with pytest.raises(FileFormatError, match="unpacks to"):
        read_rows(str(path), column="text")


def test_a_vector_of_endless_numbers_is_refused_unread(tmp_path, monkeypatch):
    numbers = pa.ListArray.from_arrays(pa.array([0, 1, 20_000_000], pa.int32()), pa.array(np.zeros(20_000_000, "f4")))
    pq.write_table(pa.table({"vector": numbers}), tmp_path / "vectors.parquet")
    monkeypatch.setattr(typed_tables, "table_batches", None)
    with pytest.raises(FileFormatError, match="unpacks to"):
        open_vectors(tmp_path / "vectors.parquet")


@pytest.mark.parametrize("first_row", [0, 5, 10, 25])
def test_row_groups_are_read_from_any_row_on(tmp_path, first_row):
    texts = [f"text {number % 7}" for number in range(40)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts.parquet", row_group_size=10)
    with open_texts(tmp_path / "texts.parquet") as source:
        assert list(source.read(first_row)) == texts[first_row:]


# -- tables of text whose cells are not in the file ------------------------------------------------------------------


def test_rows_that_lack_the_columns_of_the_first_are_refused(write, monkeypatch):
    monkeypatch.setattr(inputs, "_FREE_CELLS", 1000)
    first = json.dumps({"text": "one"} | {f"c{number}": "" for number in range(100)})
    path = write("cells.jsonl", first + "\n" + '{"text": "two"}\n' * 1000)
    with pytest.raises(FileFormatError, match="101 columns"):
        read_rows(str(path), column="text")
    assert len(read_texts(path, column="text")) == 1001  # one column is no matter


@pytest.mark.parametrize("depth", [100, 900])
def test_objects_deep_in_each_other_are_refused(write, depth):
    nested = '{"a":' * depth + '"b"' + "}" * depth
    path = write("deep.jsonl", nested + "\n")
    with pytest.raises(FileFormatError, match=r"deep.jsonl: objects lie more than 64 deep"):
        read_texts(path, column="a")
    path = write("later.jsonl", '{"text": "one"}\n{"text": "two", "more": ' + nested + "}\n")
    assert read_texts(path, column="text") == ["one", "two"]
    with open_texts(path, column="text") as source, pytest.raises(FileFormatError, match="64 deep"):
        source.table()


def test_a_table_of_many_columns_is_read(write):
    names = [f"c{number}" for number in range(8_000)]
    path = write("wide.csv", ",".join(names) + "\n" + ",".join(names) + "\n")
    assert read_rows(str(path), column="c7999")[0] == ["c7999"]
    path.write_text(",".join([*names, "c7"]) + "\n")
    with pytest.raises(FileFormatError, match="'c7' twice"):
        read_rows(str(path), column="c1")


def test_a_footer_with_a_flipped_bit_never_ends_the_process(tmp_path):
    """pyarrow does that, if it is asked for a column that such a footer does not describe."""
    path = tmp_path / "vectors.parquet"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(20, dtype=np.float32)), 4)
    pq.write_table(pa.table({"vector": vectors}), path)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    n_refused = 0
    for place in range(start, start + 60):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                open_vectors(path)
            except FileFormatError:
                n_refused += 1
    assert n_refused > 200
