import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io.pairs import read_stsb
from isosent.io.tables import STSB_COLUMNS, ColumnSet, find_columns, open_table, parse_columns

PAIR = ("sentence1", "sentence2")
GROUPS = (ColumnSet(PAIR, (PAIR, ("premise", "hypothesis"))), ColumnSet(("label",), (("label",),)))
STS = "main\tMSRvid\t2012\t0001\t5.000\tA plane.\tAn air plane.\nmain\tx\t2013\t2\t1\tc\td\te\tf\n"


def fields_of(path, **settings):
    with open_table(path, **settings) as table:
        return [dict(zip(table.columns, values, strict=True)) for _, values in table.rows(*table.columns)]


def columns_of(path, **settings):
    with open_table(path, **settings) as table:
        return table.columns


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
def test_a_tab_in_the_first_line_separates_whatever_the_ending(write, ending):
    tabs = write(f"tabs.{ending}", '\na\tb, c\n"1\t2"\n3\t"4, 5"\n')
    assert fields_of(tabs) == [{"a": '"1', "b, c": '2"'}, {"a": "3", "b, c": '"4, 5"'}]


@pytest.mark.parametrize("ending", ["csv", "txt"])
def test_commas_separate_with_quoting(write, ending):
    commas = write(f"commas.{ending}", '\na,b\n"x,\t""2""","3\n4"\n\n5,6\n')
    assert fields_of(commas) == [{"a": 'x,\t"2"', "b": "3\n4"}, {"a": "5", "b": "6"}]


def test_rare_separators_and_marks_stay_out_of_lines_of_tabs(write):
    path = write("a.tsv", '\ufeffa\tb\r\n"1\u2028\t2\x85\r\n\r\n3\t4')
    assert fields_of(path) == [{"a": '"1\u2028', "b": "2\x85"}, {"a": "3", "b": "4"}]


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_nested_objects_are_columns_joined_by_dots(tmp_path, ending):
    path, frame = tmp_path / f"a.{ending}", pd.DataFrame({"a": ["1", "2"], "b": [{"c": "3"}, {"c": "4"}]})
    frame.to_parquet(path) if ending == "parquet" else frame.to_json(path, orient="records", lines=ending == "jsonl")
    assert fields_of(path) == [{"a": "1", "b.c": "3"}, {"a": "2", "b.c": "4"}]


def test_columns_whose_names_hold_dots_and_nested_nulls_are_read(tmp_path):
    rows = [{"a.b": 1, "c": {"d.e": {"f": 2}}, "g": None}, {"a.b": 3, "c": {"d.e": {"f": 4}}, "g": {"h": 5}}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with open_table(tmp_path / "a.jsonl") as table:
        assert [values for _, values in table.rows("a.b", "c.d.e.f", optional=["g.h"])] == [(1, 2, None), (3, 4, 5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert fields_of(tmp_path / "a.parquet") == [
        {"a.b": 1, "c.d.e.f": 2, "g.h": None},
        {"a.b": 3, "c.d.e.f": 4, "g.h": 5},
    ]


def test_the_sts_benchmark_has_no_header_and_sometimes_two_fields_more(write):
    path = write("sts.csv", STS)
    assert columns_of(path) == STSB_COLUMNS
    assert [list(fields.values())[4:] for fields in fields_of(path)] == [
        ["5.000", "A plane.", "An air plane."],
        ["1", "c", "d"],
    ]
    pairs = read_stsb(path)
    assert (pairs.first, pairs.second, pairs.scores.tolist()) == (("A plane.", "c"), ("An air plane.", "d"), [5, 1])
    with pytest.raises(FileFormatError, match="line 1: expected the 7 fields genre"):
        read_stsb(write("other.csv", "a\tb\n"))
    with pytest.raises(FileFormatError, match="1 pairs have no score"):
        read_stsb(write("unscored.csv", STS + "main\tx\t2013\t2\t\tc\td\n"))


def test_a_first_line_with_a_number_is_no_header_unless_said_so(write):
    path = write("a.csv", "a,1.5\nb,2\n")
    assert fields_of(path) == [{"1": "a", "2": "1.5"}, {"1": "b", "2": "2"}]
    assert fields_of(path, header=True) == [{"a": "b", "1.5": "2"}]
    assert columns_of(write("b.csv", "a,b\n"), header=False) == ("1", "2")


def test_fields_may_be_left_out_at_the_end_if_nobody_asks_for_them(write):
    path = write("a.tsv", "a\tb\tc\n1\t2\n")
    with open_table(path, short_rows=True) as table:
        assert list(table.rows("b", optional=["c"])) == [(2, ("2", ""))]
    for short_rows, columns in ((True, ["c"]), (False, ["b"])):
        with (
            pytest.raises(FileFormatError, match="line 2: expected 3 fields, as in the first row; found 2"),
            open_table(path, short_rows=short_rows) as table,
        ):
            list(table.rows(*columns))


def test_cp949_is_told_by_its_syllables(write):
    rows = (
        "premise,hypothesis\n"
        + "a,b\n" * 3
        + "씨름은 남자들의 대표적인 놀이이다,씨름은 “놀이”이다\n똠방각하가,가격을 내렸다\n"
    )
    for encoding, name in (("utf-8", "UTF-8"), ("utf-8-sig", "UTF-8"), ("cp949", "cp949")):
        with open_table(write("klue.csv", rows.encode(encoding))) as table:
            *_, (_, before), (_, last) = table.rows("premise", "hypothesis")
            assert (before, last) == (
                ("씨름은 남자들의 대표적인 놀이이다", "씨름은 “놀이”이다"),
                ("똠방각하가", "가격을 내렸다"),
            )
            assert table.encoding == name


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
    with pytest.raises(FileFormatError, match="line 3 is not UTF-8: byte 0x"):
        fields_of(write("a.csv", content))


def test_columns_are_found_by_usual_names_in_any_case_and_order(write):
    with open_table(write("a.tsv", "Label\tHypothesis\tid\tPremise\n")) as table:
        assert find_columns(table, GROUPS, {}) == {"sentence1": "Premise", "sentence2": "Hypothesis", "label": "Label"}


def test_named_columns_go_first_and_the_others_are_called_as_their_roles(write):
    with open_table(write("a.tsv", "sentence1\tsentence2\tquestion\tkind\tlabel\n")) as table:
        columns = find_columns(table, GROUPS, {"sentence1": "question", "label": "kind"})
        assert columns == {"sentence1": "question", "sentence2": "sentence2", "label": "kind"}
        assert find_columns(table, GROUPS, {"sentence1": "Question"}) is None


def test_columns_that_could_be_several_are_refused(write):
    with (
        open_table(write("a.tsv", "sentence1\tsentence2\tpremise\thypothesis\tlabel\n")) as table,
        pytest.raises(
            InputError, match="several usual names for sentence1 and sentence2: sentence1 and sentence2; prem"
        ),
    ):
        find_columns(table, GROUPS, {})


def test_columns_are_named_in_order_or_by_role():
    roles = (*PAIR, "score")
    in_order = {"sentence1": "q1", "sentence2": "q2", "score": "grade"}
    for columns in ("q1, q2,grade", ["q1", "q2", "grade"], in_order, "score=grade,sentence1=q1,sentence2=q2"):
        assert parse_columns(columns, roles) == in_order
    assert parse_columns("score=grade", roles) == {"score": "grade"}
    assert parse_columns(None, roles) == {}
    for columns in ("q1,q2", ["q1", "q1", "grade"], {"anchor": "q1"}, ""):
        with pytest.raises(InputError, match=r"columns .*: name 3 different columns"):
            parse_columns(columns, roles)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "a\tb\n1\t2\t3\n", "line 2: expected 2 fields, as in the first row; found 3"),
        ("a.csv", "a,b\n1,2,3\n", "line 2: expected 2 fields, as in the first row; found 3"),
        ("a.csv", 'a,b\n"1,2\n', "not valid CSV"),
        ("a.tsv", "a\tb\ta\n", "names the column 'a' twice"),
        ("a.txt", "\n\n", "holds no rows"),
        ("a.jsonl", '{"a": 1, "b": {"c": 2}}\n{"a": 1, "b": {"d": 2}}', "line 1 has no column b.d; it has: a, b.c"),
        ("a.tsv", "", "is empty"),
        ("a.xlsx", "a", "is no table. Expected a name that ends in .txt, .csv, .tsv, .jsonl, .json, .parquet"),
    ],
)
def test_malformed_files_are_refused(write, name, content, message):
    with pytest.raises(InputFileError, match=message):
        fields_of(write(name, content))


def read_numbers(path, column):
    with open_table(path, header=True) as table:
        return [table.number(row, column, value) for row, (value,) in table.rows(column)]


def test_numbers_are_read_from_every_table(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tgrade\nx\t1.5\ny\t-2\n")
    (tmp_path / "a.csv").write_text('text,grade\n"x, y",1.5\ny,-2\n')
    (tmp_path / "a.jsonl").write_text('{"grade": 1.5}\n\n{"grade": "-2"}\n')
    pq.write_table(pa.table({"grade": [1.5, -2.0]}), tmp_path / "a.parquet")
    for ending in ("tsv", "csv", "jsonl", "parquet"):
        assert read_numbers(tmp_path / f"a.{ending}", column="grade") == [1.5, -2.0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.tsv", "grade\n1\nhigh\n", "line 3: grade is 'high', not a number"),
        ("a.jsonl", '{"grade": true}\n', "line 1: grade is True, not a number"),
        ("a.jsonl", '{"grade": 1}\n{"grade"\n', "line 2 is no JSON object"),
        ("a.jsonl", "[1]\n", "line 1 is no JSON object"),
        ("a.parquet", "no parquet", "not a readable parquet file"),
    ],
)
def test_what_is_no_number_is_refused_with_its_place(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(FileFormatError, match=words):
        read_numbers(tmp_path / name, column="grade")


def test_a_column_that_is_not_there_is_refused(tmp_path):
    pq.write_table(pa.table({"label": [1.5]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"label": 1}\n')
    for name in ("a.parquet", "a.jsonl"):
        with pytest.raises(InputError, match="has no column grade"):
            read_numbers(tmp_path / name, column="grade")
