import gzip
import io
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent import read_texts
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io.texts import open_texts


@pytest.fixture
def table(tmp_path):
    def table(columns, name="texts.parquet"):
        pq.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return table


def give_stdin(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_plain_lines_are_texts_in_order(write):
    assert read_texts(write("t.txt", "one\ntwo\nthree\n")) == ["one", "two", "three"]


def test_the_last_line_needs_no_line_feed(write):
    assert read_texts(write("t.txt", "one\ntwo")) == ["one", "two"]


def test_an_unknown_ending_is_read_as_plain_lines(write):
    assert read_texts(write("t.md", "a,b\n")) == ["a,b"]


def test_a_blank_line_is_an_empty_text(write):
    assert read_texts(write("t.txt", "one\n\nthree\n")) == ["one", "", "three"]


def test_a_file_of_one_blank_line_is_one_empty_text(write):
    assert read_texts(write("t.txt", "\n")) == [""]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_rarer_line_separators_stay_inside_a_line(write, separator):
    assert read_texts(write("t.txt", f"one{separator}half\ntwo\n")) == [f"one{separator}half", "two"]


@pytest.mark.parametrize("first_row", [0, 1, 1500, 3998, 3999, 4000])
@pytest.mark.parametrize(
    ("encoding", "word", "line_end"),
    [("utf-8-sig", "grün", "\n"), ("cp949", "안녕", "\n"), ("utf-8", "\u2028", "\r\n")],
)
def test_lines_are_read_from_a_row_on(write, encoding, word, line_end, first_row):
    texts = [f"{number} {word} {'x' * 999}" for number in range(3999)]  # four blocks
    with open_texts(write("texts.txt", line_end.join(texts).encode(encoding))) as source:
        assert list(source.read(first_row)) == texts[first_row:]


def test_spaces_around_a_line_are_kept(write):
    assert read_texts(write("t.txt", "  one \n")) == ["  one "]


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.tsv", "t.jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_first_text_or_column(write, name):
    content = '{"text": "one"}\n' if name == "t.jsonl" else "text\none\n" if name != "t.txt" else "one\n"
    path = write(name, b"\xef\xbb\xbf" + content.encode())
    assert read_texts(path, column=None if name == "t.txt" else "text") == ["one"]


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.tsv", "t.jsonl"])
def test_windows_line_ends_are_taken_off(write, name):
    content = '{"text": "one"}\r\n{"text": "two"}\r\n' if name == "t.jsonl" else "one\r\ntwo\r\n"
    header = "" if name in ("t.txt", "t.jsonl") else "text\r\n"
    assert read_texts(write(name, header + content)) == ["one", "two"]


def test_standard_input_is_read_as_lines(monkeypatch):
    give_stdin(monkeypatch, "one\r\nzwö\n\n".encode())
    assert read_texts("-") == ["one", "zwö", ""]


def test_empty_standard_input_is_refused(monkeypatch):
    give_stdin(monkeypatch, b"")
    with pytest.raises(InputFileError, match=r"standard input is empty"):
        read_texts("-")


def test_undecodable_standard_input_names_the_line(monkeypatch):
    give_stdin(monkeypatch, b"one\n\xff\n")
    with pytest.raises(FileFormatError, match=r"standard input, line 2 is not UTF-8: byte 0xff"):
        read_texts("-")


def test_a_column_of_a_csv_is_chosen(write):
    assert read_texts(write("t.csv", "id,text\n1,one\n2,two\n"), column="text") == ["one", "two"]


def test_a_quoted_csv_field_may_hold_commas_quotes_and_line_feeds(write):
    content = 'id,text\n1,"a, ""b""\nc"\n2,d\n'
    assert read_texts(write("t.csv", content), column="text") == ['a, "b"\nc', "d"]


def test_the_ending_is_recognized_in_upper_case(write):
    assert read_texts(write("T.CSV", "text\none\n")) == ["one"]


def test_a_table_of_one_column_needs_no_name(write):
    assert read_texts(write("t.csv", "anything\none\n")) == ["one"]


def test_a_blank_line_in_a_table_of_one_column_is_an_empty_text(write):
    assert read_texts(write("t.csv", "text\none\n\nthree\n")) == ["one", "", "three"]


def test_an_empty_field_is_an_empty_text(write):
    assert read_texts(write("t.csv", "id,text\n1,\n2,two\n"), column="text") == ["", "two"]


def test_a_table_of_several_columns_asks_for_one_and_lists_them(write):
    with pytest.raises(InputError, match=r"has 2 columns \(title, body\)\. Choose one: column='NAME'"):
        read_texts(write("t.csv", "title,body\nOne,one\n"))
    assert read_texts(write("t.csv", "title,text\nOne,one\n")) == ["one"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_missing_column_lists_those_that_are_there(write, name):
    content = "id,text\n1,one\n".replace(",", "\t" if name == "t.tsv" else ",")
    with pytest.raises(InputError, match=r"has no column body; it has: id, text\."):
        read_texts(write(name, content), column="body")


def test_a_column_for_plain_lines_is_refused(write):
    with pytest.raises(InputError, match=r"is read as plain lines, so there is no column 'text'"):
        read_texts(write("t.txt", "one\n"), column="text")


@pytest.mark.parametrize(("row", "n_fields"), [("2", 1), ("2,two,too", 3)])
def test_a_ragged_csv_row_names_its_line(write, row, n_fields):
    path = write("t.csv", f"id,text\n1,one\n{row}\n")
    with pytest.raises(FileFormatError, match=rf"line 3: expected 2 fields, as in the first row; found {n_fields}\."):
        read_texts(path, column="text")


def test_a_ragged_csv_row_behind_a_text_of_two_lines_names_its_line(write):
    path = write("t.csv", 'id,text\n1,"a\nb"\n2\n')
    with pytest.raises(FileFormatError, match=r"line 4: expected 2 fields, as in the first row; found 1\."):
        read_texts(path, column="text")


def test_an_open_quote_in_a_csv_is_refused(write):
    with pytest.raises(FileFormatError, match=r"line 2: not valid CSV: unexpected end of data"):
        read_texts(write("t.csv", 'id,text\n1,"one\n'), column="text")


def test_a_field_longer_than_pythons_limit_is_read(write):
    assert read_texts(write("t.csv", f"id,text\n1,{'x' * 200_000}\n"), column="text") == ["x" * 200_000]


def test_a_table_with_a_header_only_has_no_texts(write):
    with pytest.raises(FileFormatError, match=r"holds no texts"):
        read_texts(write("t.csv", "id,text\n"), column="text")


def test_quotes_in_a_tsv_are_kept(write):
    path = write("t.tsv", 'id\ttext\n1\t"one" said she\n2\t"two\n')
    assert read_texts(path, column="text") == ['"one" said she', '"two']


def test_a_line_separator_in_a_tsv_stays_inside_the_text(write):
    assert read_texts(write("t.tsv", "id\ttext\n1\tone\u2028half\n"), column="text") == ["one\u2028half"]


def test_a_lone_carriage_return_in_a_tsv_stays_inside_the_text(write):
    path = write("t.tsv", "id\ttext\r\n1\tone\rhalf\r\n2\t\rtwo\n3\n")
    with pytest.raises(FileFormatError, match=r"line 4: expected 2 fields, as in the first row; found 1\."):
        read_texts(path, column="text")
    path.write_bytes(path.read_bytes().removesuffix(b"3\n"))
    assert read_texts(path, column="text") == ["one\rhalf", "\rtwo"]


def test_a_ragged_tsv_row_names_its_line(write):
    with pytest.raises(FileFormatError, match=r"line 2: expected 2 fields, as in the first row; found 1\."):
        read_texts(write("t.tsv", "id\ttext\none\n"), column="text")


def test_json_lines_give_a_column(write):
    path = write("t.jsonl", '{"id": 1, "text": "one"}\n{"text": "two\\nlines", "id": 2}\n')
    assert read_texts(path, column="text") == ["one", "two\nlines"]


def test_json_lines_of_one_key_need_no_column(write):
    assert read_texts(write("t.jsonl", '{"text": "one"}\n\n{"text": "two"}\n')) == ["one", "two"]


def test_a_malformed_json_line_names_its_line(write):
    path = write("t.jsonl", '{"text": "one"}\n{"text": \n')
    with pytest.raises(FileFormatError, match=r"line 2 is no JSON object: Expecting value"):
        read_texts(path)


def test_a_json_line_that_is_no_object_names_its_line(write):
    with pytest.raises(FileFormatError, match=r"line 2 is no JSON object"):
        read_texts(write("t.jsonl", '{"text": "one"}\n["two"]\n'))


def test_a_json_text_that_is_no_string_names_its_line(write):
    with pytest.raises(FileFormatError, match=r"line 2: text is a number, not a text"):
        read_texts(write("t.jsonl", '{"text": "one"}\n{"text": 3}\n'))


def test_a_json_line_without_the_column_names_its_line(write):
    path = write("t.jsonl", '{"text": "one"}\n{"body": "two"}\n')
    with pytest.raises(InputError, match=r"line 2 has no column text; it has: body\."):
        read_texts(path, column="text")


def test_deeply_nested_json_is_malformed(write):
    with pytest.raises(FileFormatError, match=r"line 1"):
        read_texts(write("t.jsonl", "[" * 100_000 + "\n"))


def test_a_lone_surrogate_in_json_is_refused_because_no_file_and_no_tokenizer_can_hold_it(write):
    with pytest.raises(FileFormatError, match=r"line 2"):
        read_texts(write("t.jsonl", '{"text": "one"}\n{"text": "\\ud800"}\n'))


def test_a_column_of_a_parquet_file_is_read(table):
    path = table({"id": [1, 2, 3], "text": ["one", "", "three\nlines"]})
    assert read_texts(path, column="text") == ["one", "", "three\nlines"]


def test_a_parquet_file_of_one_column_needs_no_name(table):
    assert read_texts(table({"text": pa.array(["one"], pa.large_string())})) == ["one"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_a_parquet_column_of_strings_in_a_dictionary_is_read(table, kind):
    texts = ["one", "two", "one", ""]
    path = table({"text": pa.array(texts, kind).dictionary_encode()})
    assert pa.types.is_dictionary(pq.read_schema(path).field("text").type)
    assert read_texts(path) == texts


def test_a_null_is_an_empty_text(table, write):
    assert read_texts(table({"text": ["one", None, "three"]})) == ["one", "", "three"]
    assert read_texts(table({"text": pa.array(["one", None, "one"]).dictionary_encode()})) == ["one", "", "one"]
    assert read_texts(write("t.jsonl", '{"text": "one"}\n{"text": null}\n')) == ["one", ""]


def test_a_parquet_column_of_numbers_is_refused(table):
    with pytest.raises(FileFormatError, match=r"id is a number, not a text"):
        read_texts(table({"id": [1]}))


def test_a_missing_parquet_column_lists_those_that_are_there(table):
    with pytest.raises(InputError, match=r"has no column body; it has: id, text\."):
        read_texts(table({"id": [1], "text": ["one"]}), column="body")


def test_a_damaged_parquet_file_is_refused(write):
    with pytest.raises(FileFormatError, match=r"is not a readable parquet file"):
        read_texts(write("t.parquet", b"PAR1 and then nothing"))


def test_a_truncated_parquet_file_is_refused(table):
    path = table({"text": ["one", "two"]})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match=r"is not a readable parquet file"):
        read_texts(path)


def test_a_parquet_file_without_rows_has_no_texts(table):
    with pytest.raises(FileFormatError, match=r"holds no texts"):
        read_texts(table({"text": pa.array([], pa.string())}))


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.jsonl", "t.parquet"])
def test_a_missing_file_is_refused(tmp_path, name):
    with pytest.raises(InputFileError, match=rf"{name}: no such file"):
        read_texts(tmp_path / name)


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.jsonl", "t.parquet"])
def test_an_empty_file_is_refused(write, name):
    with pytest.raises(InputFileError, match=rf"{name} is empty"):
        read_texts(write(name, b""))


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"is a folder"):
        read_texts(tmp_path)


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.tsv", "t.jsonl"])
def test_undecodable_bytes_name_their_line(write, name):
    with pytest.raises(FileFormatError, match=r"line 3 is not UTF-8: byte 0xe9\. Convert the file to UTF-8"):
        read_texts(write(name, b"text\none\ncaf\xe9\n"))


def test_a_byte_order_mark_alone_is_no_text(write):
    with pytest.raises(FileFormatError, match=r"holds no texts"):
        read_texts(write("t.txt", b"\xef\xbb\xbf"))


def test_an_input_file_error_is_an_os_error_and_a_value_error(tmp_path):
    with pytest.raises(OSError, match="no such file"):
        read_texts(tmp_path / "t.txt")
    with pytest.raises(ValueError, match="no such file"):
        read_texts(tmp_path / "t.txt")


def test_a_packed_file_is_refused_as_such(write):
    with pytest.raises(FileFormatError, match=r"t.txt.gz is compressed with gzip"):
        read_texts(write("t.txt.gz", gzip.compress(b"one\n" * 100)))
