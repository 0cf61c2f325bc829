import json

import pytest

from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io.tables import read_table
from isosent.training.tables import SENTENCES, STSB_COLUMNS, Group, find_columns, open_table, text_in

KOREAN = (
    'index,premise,hypothesis\n0,"씨름은, 남자들의 대표적인 놀이이다.",씨름은 “놀이”이다\n'
    "1,가격을 내렸다,똠방각하가 가격을 내렸다\n"
)
GROUPS = (Group(SENTENCES, (("sentence1", "sentence2"), ("premise", "hypothesis"))), Group(("label",), (("label",),)))


def fields_of(path):
    return [dict(row.fields) for row in open_table(path).rows]


@pytest.fixture
def write(tmp_path):
    def write(name, content, encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
def test_the_first_line_tells_the_separator_whatever_the_ending(write, ending):
    tabs = write(f"tabs.{ending}", '\na\tb, c\n"1\t2"\n3\t"4, 5"\n')
    assert fields_of(tabs) == [{"a": '"1', "b, c": '2"'}, {"a": "3", "b, c": '"4, 5"'}]
    commas = write(f"commas.{ending}", '\na,b\n"1,\t""2""","3\n4"\n\n5,6\n')
    assert fields_of(commas) == [{"a": '1,\t"2"', "b": "3\n4"}, {"a": "5", "b": "6"}]


def test_a_table_of_tabs_is_what_the_readers_of_tasks_see(write):
    path = write("a.tsv", '\ufeffa\tb\r\n"1\u2028\t2\x85\r\n\r\n3\t4')
    names, rows = read_table(path)
    table = open_table(path)
    assert (table.names, list(table.rows)) == (tuple(names), list(rows))


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_tables_of_objects_are_those_of_the_readers_of_tasks(tmp_path, ending):
    import pandas as pd

    path, frame = tmp_path / f"a.{ending}", pd.DataFrame({"a": ["1", "2"], "b": [{"c": "3"}, {"c": "4"}]})
    frame.to_parquet(path) if ending == "parquet" else frame.to_json(path, orient="records", lines=ending == "jsonl")
    table = open_table(path)
    assert table.names == ("a", "b.c")
    assert [row.fields["b.c"] for row in table.rows] == ["3", "4"]


def test_the_benchmark_has_no_header_and_sometimes_two_fields_more(write):
    rows = "main\tMSRvid\t2012\t0001\t5.000\tA plane.\tAn air plane.\nmain\tx\t2013\t2\t1\tc\td\te\tf\n"
    table = open_table(write("sts.csv", rows))
    assert table.names == STSB_COLUMNS
    assert [list(row.fields.values())[4:] for row in table.rows] == [
        ["5.000", "A plane.", "An air plane."],
        ["1", "c", "d"],
    ]
    assert open_table(write("sts.csv", rows)).rows.__next__().where.endswith("sts.csv: line 1")


def test_cp949_is_told_by_its_syllables(write):
    for encoding, told in (("utf-8", "UTF-8"), ("utf-8-sig", "UTF-8"), ("cp949", "cp949")):
        table = open_table(write("klue.csv", KOREAN, encoding))
        assert table.encoding == told
        assert [row.fields["premise"] for row in table.rows] == ["씨름은, 남자들의 대표적인 놀이이다.", "가격을 내렸다"]
        assert "".join(row.fields["hypothesis"] for row in open_table(table.path).rows).startswith(
            "씨름은 “놀이”이다똠"
        )


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("it\u2019s what he\u2019s got", "cp1252"),  # each of these is valid cp949
        ("\u5f20\u4e09\u5403\u996d", "gb2312"),
        ("\u3072\u3089\u304c\u306a", "euc-jp"),
        ("\u043a\u043e\u043d\u0435\u0447\u043d", "koi8-r"),
    ],
)
def test_what_is_only_valid_cp949_is_not_read_as_korean(write, text, encoding):
    content = f"premise,hypothesis\na,b\n{text},c\n".encode(encoding)
    content.decode("cp949")
    with pytest.raises(FileFormatError, match="line 3 must be UTF-8; got byte 0x"):
        open_table(write("a.csv", content))


def test_bytes_of_no_encoding_are_refused_by_line(write):
    with pytest.raises(FileFormatError, match="line 2 must be UTF-8; got byte 0xff"):
        open_table(write("a.csv", b"a,b\n\xff\xfe,c\n"))


def test_columns_are_found_by_usual_names_in_any_case_and_order(write):
    table = open_table(write("a.tsv", "Label\tHypothesis\tid\tPremise\n"))
    assert find_columns(table, GROUPS, {}) == {"sentence1": "Premise", "sentence2": "Hypothesis", "label": "Label"}


def test_named_columns_go_first_and_the_others_are_called_as_their_roles(write):
    table = open_table(write("a.tsv", "sentence1\tsentence2\tquestion\tkind\tlabel\n"))
    found = find_columns(table, GROUPS, {"sentence1": "question", "label": "kind"})
    assert found == {"sentence1": "question", "sentence2": "sentence2", "label": "kind"}
    assert find_columns(table, GROUPS, {"sentence1": "Question"}) is None


def test_columns_that_could_be_several_are_refused(write):
    table = open_table(write("a.tsv", "sentence1\tsentence2\tpremise\thypothesis\tlabel\n"))
    with pytest.raises(
        InputError, match="several usual names for sentence1 and sentence2: sentence1 and sentence2; prem"
    ):
        find_columns(table, GROUPS, {})


def test_null_is_an_empty_text(write):
    lines = [json.dumps({"a": text}) for text in ("b", None)]
    assert [text_in(row, "a") for row in open_table(write("a.jsonl", "\n".join(lines))).rows] == ["b", ""]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tb\n1\t2\t3\n", "line 2 must have 2 fields; got 3"),
        ("a.csv", "a,b\n1,2,3\n", "line 2 must have 2 fields; got 3"),
        ("a.csv", 'a,b\n"1,2\n', "is not valid CSV"),
        ("a.tsv", "a\tb\ta\n", "line 1 must name every column differently; got 'a' twice"),
        ("a.txt", "\n\n", "must hold at least one line; got none"),
        ("a.tsv", "", "must not be empty"),
        ("a.xlsx", "a", "must end with one of .csv, .tsv, .txt, .jsonl, .json, .parquet; got .xlsx"),
    ],
)
def test_malformed_files_are_told(write, name, content, message):
    with pytest.raises(InputFileError, match=message):
        fields_of(write(name, content))


def test_fields_that_are_left_out_at_the_end_are_told_to_who_asks(write):
    (row,) = open_table(write("a.tsv", "a\tb\tc\n1\t2\n")).rows
    assert text_in(row, "b") == "2"
    with pytest.raises(FileFormatError, match="line 2: c must be a string; got no such field"):
        text_in(row, "c")
