"""Filters: what they match, in pyarrow and as SQL, and that no text breaks the parser."""

import contextlib
import datetime
import sqlite3

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isosent.errors import InputError
from isosent.search.where import matching_rows, parse_where, sql_literal, to_sql

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
    ],
)
def test_a_wrong_filter_is_one_sentence(where, words):
    with pytest.raises(InputError) as caught:
        matching_rows(TABLE, where)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text(max_size=60) | st.text("lang=<>!()'\"`\\ andortis10,.-", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_parser(text):
    with contextlib.suppress(InputError):
        matching_rows(TABLE, text)


TESTS = (
    st.tuples(st.just("lang"), st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from(["en", "de", "x'y"]))
    | st.tuples(st.just("year"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.integers(1998, 2022))
    | st.tuples(
        st.just("price"), st.sampled_from(["<", ">"]), st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
    )
)


def quoted(value):
    return repr(value) if not isinstance(value, str) else "'" + value.replace("'", "\\'") + "'"


CONDITIONS = st.recursive(
    TESTS.map(lambda test: f"{test[0]} {test[1]} {quoted(test[2])}")
    | st.sampled_from(["lang is null", "price is not null", "year in (2020, 1999)", "lang not in ('en', 'de')"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
        | inner.map(lambda part: f"not ({part})")
    ),
    max_leaves=8,
)


@given(CONDITIONS)
@settings(max_examples=200, deadline=None)
def test_pyarrow_and_sql_agree(where):
    condition = parse_where(where, TABLE.column_names)
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (n integer, lang text, year integer, price real)")
    rows = [(number, row["lang"], row["year"], row["price"]) for number, row in enumerate(ROWS)]
    connection.executemany("insert into t values (?, ?, ?, ?)", rows)
    parameters = []

    def parameter(value):
        parameters.append(value)
        return "?"

    with_parameters = to_sql(condition, lambda name: f'"{name}"', parameter)
    with_literals = to_sql(condition, lambda name: f'"{name}"', sql_literal)
    expected = np.flatnonzero(matching_rows(TABLE, where)).tolist()
    for sql, values in ((with_parameters, parameters), (with_literals, [])):
        found = connection.execute(f"select n from t where {sql} order by n", values).fetchall()
        assert [number for (number,) in found] == expected
    connection.close()
