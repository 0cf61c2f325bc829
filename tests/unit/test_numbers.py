import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import FileFormatError, InputError
from isosent.io.tables import read_numbers


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
        ("a.tsv", "grade\n1\nhigh\n", "must hold a number in every row; got 'high' in row 1"),
        ("a.jsonl", '{"grade": null}\n', "got None in row 0"),
        ("a.jsonl", '{"grade": 1}\n{"grade"\n', "line 2 must be a JSON object"),
        ("a.jsonl", "[1]\n", "line 1 must be a JSON object"),
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
