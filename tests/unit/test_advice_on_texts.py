"""What is no list of texts is refused with an advice that works as it is written."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import isosent
from isosent.errors import InputTypeError, IsosentError

# a call, a comprehension or an item of the variable that was passed, at the end of the message
ADVICE = re.compile(r"(\[.+\]|list\(texts.*\)|isosent\.read_texts\(texts\)|texts\S*)\.$")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (b"hello", ["hello"]),
        (b"caf\xe9", ["caf\u00e9"]),  # not UTF-8
        (bytearray(b"hi"), ["hi"]),
        (memoryview(b"hi"), ["hi"]),
        (["a", b"b"], ["a", "b"]),
        ([b"a", b"caf\xe9"], ["a", "caf\u00e9"]),
        (np.array([b"a", b"b"]), ["a", "b"]),
        (pd.Series([b"a", b"b"]), ["a", "b"]),
        (5, ["5"]),
        ([1, 2], ["1", "2"]),
        ([True, "a"], ["True", "a"]),
        (np.array([1.5, 2]), ["1.5", "2.0"]),
        (np.array("a"), ["a"]),
        (np.array([["a", "b"], ["c", "d"]]), ["a", "b", "c", "d"]),
        ({"text": ["a", "b"], "label": [1, 2]}, ["a", "b"]),
        ({1: "a", 2: "b"}, ["a", "b"]),
        ({"id": 7, "text": "a"}, ["a"]),
        ([{"id": 7, "text": "a"}, {"id": 8, "text": "b"}], ["a", "b"]),
        ([["a", "b"], ["c"]], ["a", "b", "c"]),
        ([("a", "b")], ["a", "b"]),
    ],
)
def test_the_advice_gives_the_texts(wordllama, texts, expected):
    with pytest.raises(IsosentError) as refused:
        wordllama.encode(texts)
    advised = eval(ADVICE.search(str(refused.value))[1], {"texts": texts, "isosent": isosent})
    np.testing.assert_array_equal(wordllama.encode(advised), wordllama.encode(expected))


def test_files_are_read_first(wordllama, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    for texts, expected in ((path, ["one", "two"]), ([path], ["one\ntwo\n"])):
        with pytest.raises(IsosentError) as refused:
            wordllama.encode(texts)
        advised = eval(ADVICE.search(str(refused.value))[1], {"texts": texts, "isosent": isosent})
        np.testing.assert_array_equal(wordllama.encode(advised), wordllama.encode(expected))


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT])
def test_a_missing_text_is_named_before_numbers(wordllama, missing):
    with pytest.raises(IsosentError, match=r"row 1 .* replace it by an empty text"):
        wordllama.encode([5, missing])  # str(None) would be a text


def test_missing_cells_of_tables_are_empty_texts(wordllama):
    expected = wordllama.encode(["a", ""])
    for texts in (pd.Series(["a", None]), pd.Series(["a", pd.NA], dtype="string"), pa.array(["a", None])):
        np.testing.assert_array_equal(wordllama.encode(texts), expected)
    np.testing.assert_array_equal(wordllama.encode(pa.chunked_array([["a"], [None]])), expected)


@pytest.mark.parametrize("rows", [np.ones((2, 256), np.float32), [[1.0] * 256]])
def test_rows_of_numbers_are_vectors(wordllama, rows):
    with pytest.raises(IsosentError, match=r"pass them to model\.transform"):
        wordllama.encode(rows)
    assert wordllama.transform(rows).shape == (len(rows), 256)


def test_a_lone_surrogate_can_be_replaced(wordllama):
    texts = ["a \ud800"]
    with pytest.raises(IsosentError) as refused:
        wordllama.encode(texts)
    advised = eval(re.search(r"Replace it: (.+)\.$", str(refused.value))[1], {"texts": texts})
    assert advised == "a ?"


def test_one_column_of_a_table_and_a_list_instead_of_nothing(wordllama):
    table = pd.DataFrame({"text": ["a"]})
    for texts, words in ((table, "Pass one column"), (None, "Pass a list of strings"), (Path, "Pass a list")):
        with pytest.raises(IsosentError, match=words):
            wordllama.encode(texts)
    assert wordllama.encode(table["text"]).shape == (1, 256)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_texts_without_an_order_are_refused(wordllama, kind):
    with pytest.raises(InputTypeError, match=r"no order.*sorted\(texts\)"):
        wordllama.encode(kind(["a dog", "the river"]))
