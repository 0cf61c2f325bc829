"""Filters: what they match, in pyarrow and as SQL, and that no text breaks the parser."""

import contextlib
import datetime
import sqlite3
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isosent.errors import InputError
from isosent.search.where import Condition, matching_rows, parse_where, sql_literal, to_sql

ROWS = [
    {"lang": "en", "year": 2020, "price": 1.5, "sold": True, "two words": "a"},
    {"lang": "de", "year": 2021, "price": None, "sold": False, "two words": "b'c"},
    {"lang": None, "year": 1999, "price": 80.0, "sold": None, "two words": 'say "hi"'},
    {"lang": "Köln", "year": None, "price": -3.0, "sold": True, "two words": "a"},
]
TABLE = pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('lang = "en"', [0]),
        ("lang == 'en' or lang = 'Köln'", [0, 3]),
        ("year >= 2020", [0, 1]),
        ("YEAR >= 2020 and 1 = 1", None),
        ("not year >= 2020", [2]),
        ("year < 2021 and price > 1", [0, 2]),
        ("lang in ('en', 'de') and sold = true", [0]),
        ("year not in (2020)", [1, 2]),
        ("lang is null", [2]),
        ("lang is not null and price is null", [1]),
        ("`two words` = 'b\\'c'", [1]),
        ('`two words` = "say \\"hi\\""', [2]),
        ("price <> 80", [0, 3]),
        ("price = -3 OR (sold = false AND NOT lang = 'x')", [1, 3]),
        ("year > 1e3", [0, 1, 2]),
    ],
)
def test_rows_that_match(where, expected):
    if expected is None:
        with pytest.raises(InputError):
            matching_rows(TABLE, where)
    else:
        assert np.flatnonzero(matching_rows(TABLE, where)).tolist() == expected


def test_dates_are_written_as_texts():
    table = pa.table({"day": [datetime.date(2020, 1, 5), datetime.date(2021, 6, 1), None]})
    assert matching_rows(table, "day > '2020-12-31'").tolist() == [False, True, False]
    with pytest.raises(InputError, match="yesterday"):
        matching_rows(table, "day > 'yesterday'")


BERLIN = datetime.timezone(datetime.timedelta(hours=1))
NIGHT = datetime.datetime(2021, 6, 1, 0, 30, tzinfo=BERLIN)  # May 31 in UTC
MANY_TYPES = pa.table(
    {
        "id": [1234567890123456789, 1234567890123456788, None],
        "u64": pa.array([2**64 - 1, 1, None], pa.uint64()),
        "i8": pa.array([100, -3, None], pa.int8()),
        "f32": pa.array([0.5, 1e30, 0.1], pa.float32()),
        "f16": pa.array(np.array([0.5, 2, 3], np.float16), mask=np.array([False, False, True])),
        "euro": pa.array([Decimal("19.99"), Decimal("-0.10"), None], pa.decimal128(10, 2)),
        "tag": pa.array(["a", "b", None]).dictionary_encode(),
        "view": pa.array(["a", "b", None], pa.string_view()),
        "large": pa.array(["a", "b", None], pa.large_string()),
        "nothing": pa.nulls(3),
        "at": pa.array([datetime.datetime(2020, 1, 5, 3), datetime.datetime(2021, 6, 1), None], pa.timestamp("s")),
        "night": pa.array([NIGHT, NIGHT + datetime.timedelta(days=1), None], pa.timestamp("us", "Europe/Berlin")),
        "list": [[1], [2], None],
    }
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 1234567890123456789", [0]),
        ("id < 1.5", []),
        ("id > 1.5 and id < 1e300", [0, 1]),
        ("id in (1.5, 1234567890123456788, 99999999999999999999999)", [1]),
        ("u64 = 18446744073709551615 or u64 = -1", [0]),
        ("u64 > -1", [0, 1]),
        ("i8 < 1000 and i8 > -2.5", [0]),
        ("i8 != 2.5", [0, 1]),
        ("i8 not in (2.5)", [0, 1]),
        ("f32 = 0.1", [2]),
        ("f32 = 0.5 or f32 > 9007199254740993", [0, 1]),
        ("f16 in (0.5, 9007199254740993)", [0]),
        ("euro = 19.99 or euro < -0.099", [0, 1]),
        ("euro = 19.990000001", []),
        ("euro < 1e300", [0, 1]),
        ("tag = 'a' and view != 'b' and large in ('a')", [0]),
        ("tag not in ('a')", [1]),
        ("nothing = 3 or not nothing in ('a', 2)", []),
        ("nothing is null", [0, 1, 2]),
        ("at >= '2020-01-05T03:00:00'", [0, 1]),
        ("at in ('2021-06-01', '1999-01-01')", [1]),
        ("night < '2021-06-01'", [0]),
        ("night = '2021-06-01T00:30:00+01:00'", [0]),
        ("list is not null", [0, 1]),
        ("list = 1", None),
        ("at = '2021-06-01T00:00:00.5' or night = '2021-05-31T23:30'", [0]),
        ("at = '2021-06-01T00:00:00Z'", None),
        ("tag = 1", None),
    ],
)
def test_types_of_columns(where, expected):
    for table in (MANY_TYPES, MANY_TYPES.slice(0, 0), pa.concat_tables([MANY_TYPES.slice(0, 1), MANY_TYPES.slice(1)])):
        if expected is None:
            with pytest.raises(InputError, match=where.split()[0]):
                matching_rows(table, where)
        else:
            found = np.flatnonzero(matching_rows(table, where)).tolist()
            assert found == [row for row in expected if row < len(table)]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("colour = 'red'", ["colour", "lang, year"]),
        ("lang = 3", ["lang", "string", "3"]),
        ("year = 'x'", ["year", "'x'"]),
        ("sold = 1", ["sold", "1"]),
        ("", ["at its end"]),
        ("lang =", ["at its end", "lang ="]),
        ("lang = en", ["en"]),
        ("lang = 'en' lang", ["'lang'"]),
        ("(lang = 'en'", ["parenthesis"]),
        ("lang in ()", [")"]),
        ("lang ; drop table x", ["; drop"]),
        ("__import__('os')", ["("]),
        ("not " * 60 + "sold = true", ["50"]),
        ("(" * 60 + "sold = true" + ")" * 60, ["50"]),
        ("lang = '" + "x" * 10_000 + "'", ["10,000"]),
        ("price < 1e999", ["1e999"]),
        ("lang = '\ud800'", ["Unicode"]),
        ("lang = '\0'", ["zero byte"]),
    ],
)
def test_a_wrong_filter_is_one_sentence(where, words):
    with pytest.raises(InputError) as caught:
        matching_rows(TABLE, where)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text(max_size=60) | st.text("lang=<>!()'\"`\\ andortis10,.-\ud800", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_parser(text):
    with contextlib.suppress(InputError):
        matching_rows(TABLE, text)


COLUMNS = {
    "lang": st.sampled_from(["en", "de", "x'y", "", "\\", "Köln"]),
    "year": st.integers(1998, 2022) | st.floats(1998, 2022) | st.sampled_from([2020.0, -(2**70), 2**70, 1e300]),
    "price": st.floats(-100, 100).map(lambda price: round(price, 3)) | st.sampled_from([1.5, 80]),
    "sold": st.booleans(),
    "two words": st.sampled_from(["a", "b'c", 'say "hi"']),
}
COMPARISONS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def conditions(columns):
    def conditions_on(column):
        values = columns[column]
        comparison = st.builds(
            lambda operator, value: Condition(operator, column, (value,)), st.sampled_from(list(COMPARISONS)), values
        )
        one_of = st.lists(values, min_size=1, max_size=3).map(lambda listed: Condition("in", column, tuple(listed)))
        return comparison | one_of | st.just(Condition("is null", column))

    return st.recursive(
        st.sampled_from(sorted(columns)).flatmap(conditions_on),
        lambda inner: (
            st.builds(
                lambda operator, parts: Condition(operator, conditions=tuple(parts)),
                st.sampled_from(["and", "or"]),
                st.lists(inner, min_size=2, max_size=3),
            )
            | inner.map(lambda part: Condition("not", conditions=(part,)))
        ),
        max_leaves=8,
    )


def written(condition):
    match condition.operator:
        case "and" | "or":
            return f" {condition.operator} ".join(f"({written(part)})" for part in condition.conditions)
        case "not":
            return f"not ({written(condition.conditions[0])})"
        case "is null":
            return f"`{condition.column}` is null"
    values = [value_written(value) for value in condition.values]
    listed = f"({', '.join(values)})" if condition.operator == "in" else values[0]
    return f"`{condition.column}` {condition.operator} {listed}"


def value_written(value):
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" if isinstance(value, str) else repr(value)


def truth(condition, row):
    """True, False or None, which is unknown: what SQL says."""
    parts = [truth(part, row) for part in condition.conditions]
    match condition.operator:
        case "and":
            return False if False in parts else None if None in parts else True
        case "or":
            return True if True in parts else None if None in parts else False
        case "not":
            return None if parts[0] is None else not parts[0]
        case "is null":
            return row[condition.column] is None
    if (cell := row[condition.column]) is None:
        return None
    if condition.operator == "in":
        return cell in condition.values
    # texts are ordered by their bytes
    cell, value = (v.encode() if isinstance(v, str) else v for v in (cell, condition.values[0]))
    return COMPARISONS[condition.operator](cell, value)


@given(conditions(COLUMNS | {"year": st.integers(-(2**63), 2**63 - 1)}))
@settings(max_examples=100, deadline=None)
def test_a_condition_is_parsed_as_it_is_written(condition):
    assert parse_where(written(condition), TABLE.schema) == condition


@given(conditions(COLUMNS))
@settings(max_examples=100, deadline=None)
def test_python_pyarrow_and_sql_agree(condition):
    expected = [number for number, row in enumerate(ROWS) if truth(condition, row)]
    assert np.flatnonzero(matching_rows(TABLE, written(condition))).tolist() == expected
    parameters = []

    def parameter(value):
        parameters.append(value)
        return "?"

    condition = parse_where(written(condition), TABLE.schema)
    with_parameters = to_sql(condition, lambda name: f'"{name}"', parameter)
    with_literals = to_sql(condition, lambda name: f'"{name}"', sql_literal)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute('create table t (n integer, lang text, year integer, price real, sold, "two words" text)')
        rows = [(number, *row.values()) for number, row in enumerate(ROWS)]
        connection.executemany("insert into t values (?, ?, ?, ?, ?, ?)", rows)
        for sql, values in ((with_parameters, parameters), (with_literals, [])):
            found = connection.execute(f"select n from t where {sql} order by n", values).fetchall()
            assert [number for (number,) in found] == expected
