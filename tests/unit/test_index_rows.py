"""The rows of an index: what a file or a table is read as."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import InputError, InputTypeError
from isosent.search.inputs import read_rows
from isosent.search.rows import id_array, like, rows_table, write_rows


@pytest.fixture
def csv_of(tmp_path):
    def csv_of(*lines):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return str(path)

    return csv_of


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-20", ""], [1, -20, None]),
        (["1.50", "2", ""], [1.5, 2.0, None]),
        (["+4912", "1"], ["+4912", "1"]),
        (["12e4", "1"], ["12e4", "1"]),
        (["007", "1.5"], ["007", "1.5"]),
        (["1e-05", "2.5"], [1e-05, 2.5]),
        (["-1.25e+20", "3"], [-1.25e20, 3.0]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["0.30000000000000004", "1"], [0.1 + 0.2, 1.0]),
        (["9223372036854775807"], [2**63 - 1]),
        (["", ""], [None, None]),
        (["x", ""], ["x", None]),
    ],
)
def test_numbers_are_what_is_written_as_numbers(csv_of, values, expected):
    rows = read_rows(csv_of("text,value", *(f"a,{value}" for value in values)))[2]
    assert rows.column("value").to_pylist() == expected
    assert not pa.types.is_null(rows.column("value").type)


def test_texts_and_ids_are_not_rewritten(csv_of):
    texts, ids, *_ = read_rows(csv_of("id,text", "1.1,1.50", "1.10,1e3"))
    assert texts == ["1.50", "1e3"]
    assert ids.to_pylist() == ["1.1", "1.10"]
    for names, expected in ((("17", "18"), [17, 18]), (("-17", "18"), ["-17", "18"]), (("x", ""), ["x", None])):
        assert read_rows(csv_of("id,text", f"{names[0]},a", f"{names[1]},b"))[1].to_pylist() == expected


def test_the_only_texts_are_found(csv_of):
    assert read_rows(csv_of("title,year", "a horse,2000", "a dog,2001"))[0] == ["a horse", "a dog"]
    for columns, row in (("title,lang", "a horse,en"), ("title,later", "a horse,"), ("sku,price", "AB-7X,12")):
        with pytest.raises(InputError, match="column='NAME'"):
            read_rows(csv_of(columns, row))


def test_texts_are_not_taken_for_numbers():
    with pytest.raises(InputError, match="double in the index"):
        like(rows_table(1, metadata={"price": ["nan"]}), pa.schema([("id", pa.int64()), ("price", pa.float64())]))


@pytest.mark.parametrize(("values", "kind"), [([2], pa.bool_()), ([True], pa.int64()), ([1.5], pa.string())])
def test_truth_values_numbers_and_texts_are_not_converted(values, kind):
    with pytest.raises(InputError, match=rf"the column seen is .* here, and {kind} in the index"):
        like(rows_table(1, metadata={"seen": values}), pa.schema([("id", pa.int64()), ("seen", kind)]))


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        (pa.float64(), ".5", 0.5),
        (pa.bool_(), "true", True),
        (pa.date32(), "2026-11-22", date(2026, 11, 22)),
        (pa.timestamp("us"), "2026-11-22 10:30:00", datetime(2026, 11, 22, 10, 30)),
        (pa.int64(), "7", 7),
    ],
)
def test_every_type_of_an_index_can_be_read_from_a_text_file(csv_of, kind, written, expected):
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("value", kind)])
    texts, ids, metadata, _ = read_rows(csv_of("text,value", f"a,{written}", "b,"), schema=schema)
    assert like(rows_table(2, ids=ids, texts=texts, metadata=metadata), schema)["value"].to_pylist() == [expected, None]


def test_a_name_is_not_taken_for_a_number_of_an_index(csv_of):
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    assert read_rows(csv_of("id,text", "007,a"), schema=schema)[1].to_pylist() == ["007"]


def test_a_file_is_read_with_the_types_of_the_index_that_it_is_added_to(csv_of):
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("code", pa.string()), ("price", pa.float64())])
    texts, ids, metadata, _ = read_rows(csv_of("id,text,code,price", "17,a,1.50,2"), schema=schema)
    added = like(rows_table(1, ids=ids, texts=texts, metadata=metadata), schema)
    assert added.to_pylist() == [{"id": "17", "text": "a", "code": "1.50", "price": 2.0}]


def test_columns_that_an_index_has_itself_are_renamed(csv_of):
    path = csv_of("id,sku,title,text", "1,a,A horse,long", "2,b,A dog,longer")
    texts, ids, metadata, _ = read_rows(path, column="title", id_column="sku")
    assert (texts, ids.to_pylist()) == (["A horse", "A dog"], ["a", "b"])
    assert metadata.column_names == ["id_", "text_"]
    with pytest.raises(InputError, match="text_"):
        read_rows(csv_of("title,text,text_", "a,b,c"), column="title")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_any_type_are_found(tmp_path, kind):
    column = pa.array(["a horse", "a dog"]).cast(kind)
    try:
        pq.write_table(pa.table({"title": column, "price": [1, 2]}), tmp_path / "t.parquet")
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow cannot write such a column")
    assert read_rows(str(tmp_path / "t.parquet"))[0] == ["a horse", "a dog"]


def test_rows_of_dictionaries_may_lack_keys():
    rows = rows_table(2, metadata=[{"a": 1}, {"a": 2, "b": 3}])
    assert rows.column("b").to_pylist() == [None, 3]


def test_half_floats_that_are_no_numbers_are_missing():
    rows = rows_table(2, metadata={"x": np.array([1, np.nan], np.float16), "empty": [None, None]})
    assert rows.column("x").to_pylist() == [1.0, None]
    assert rows.column("empty").type == pa.string()


@pytest.mark.parametrize(
    "line", ['{"text": "a", "x": "s"}', '{"text": "a", "x": [1]}', f'{{"text": "a", "x": {2**70}}}']
)
def test_a_column_of_several_types_is_refused(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "b", "x": 1}\n' + line + "\n")
    with pytest.raises(InputError, match="values of x are not of one type"):
        read_rows(str(path))


@pytest.mark.parametrize(
    "metadata", [{"x": [1, "s"]}, {"x": [2**70, 1]}, [1, 2], [{"x": 1}, None]], ids=["mixed", "large", "flat", "none"]
)
def test_metadata_that_is_no_table_is_refused(metadata):
    with pytest.raises(InputTypeError, match="metadata"):
        rows_table(2, metadata=metadata)


@pytest.mark.parametrize("ids", [["\ud800"], "ab", 3, iter("ab"), [2**63]])
def test_ids_that_are_none_are_refused(ids):
    with pytest.raises(InputTypeError, match="ids must be"):
        id_array(ids)


def test_metadata_that_parquet_cannot_hold_is_refused(tmp_path):
    rows = rows_table(1, metadata=pa.table({"x": pa.array([{}], pa.struct([]))}))
    with pytest.raises(InputError, match="Parquet"):
        write_rows(rows, np.ones(1, bool), tmp_path / "rows.parquet")
