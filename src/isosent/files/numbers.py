"""Reading a column of numbers beside texts."""

import json
import os
from pathlib import Path

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.files import bounds
from isosent.files.texts import lines_in, read_texts


def read_numbers(path: str | os.PathLike[str], *, column: str) -> list[float]:
    """Read a column of numbers.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, as for `read_texts`.
    column : str
        Column that holds the numbers, written as numbers or as text.

    Returns
    -------
    list of float
        In the order of the file.

    Raises
    ------
    InputFileError
        If the file is missing, empty or a directory.
    FileFormatError
        If it is malformed, or a row holds no number (the message names it).
    InputError
        If the column is not there.
    """
    file = _check.input_file(path)
    numbers = []
    for row, value in enumerate(_values(file, column)):
        try:
            numbers.append(float(value))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise FileFormatError(
                f"{path}: column {column} must hold a number in every row; got {value!r} in row {row}, counted from 0."
            ) from None
    return numbers


def _values(file: Path, column: str) -> list[object]:
    ending = file.suffix.lower()
    if ending == ".jsonl":
        return _jsonl_values(file, column)
    if ending == ".parquet":
        return _parquet_values(file, column)
    return list(read_texts(file, column=column))


def _jsonl_values(file: Path, column: str) -> list[object]:
    values = []
    with file.open("rb") as content:
        for number, line in enumerate(lines_in(str(file), content), start=1):
            if not line.strip():
                continue
            try:
                values.append(json.loads(line)[column])
            except (ValueError, RecursionError, TypeError):
                raise FileFormatError(f"{file}: line {number} must be a JSON object; it is none.") from None
            except KeyError:
                raise InputError(f"{file}: line {number} has no column {column}.") from None
    return values


def _parquet_values(file: Path, column: str) -> list[object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        names = table.schema_arrow.names
        if column not in names:
            raise InputError(f"{file} has no column {column}; it has: {_check.brief(', '.join(names), 600)}.")
        n_rows = bounds.parquet_batch_rows(str(file), table.metadata, column)
        batches = table.iter_batches(n_rows, columns=[column])
        values: list[object] = [value for batch in batches for value in batch.column(0).to_pylist()]
    except FileFormatError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{file} is not a readable parquet file: {_check.brief(error)}.") from None
    return values
