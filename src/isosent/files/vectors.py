"""Writing vectors: a numpy array, or a parquet table with the texts beside them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.files.atomic import check_destination, replacing

ENDINGS = (".npy", ".parquet")


def check_vector_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `write_vectors` cannot write, before any work is done.

    Parameters
    ----------
    path : path-like
        The file to write.

    Raises
    ------
    InputError
        If the name ends in neither ``.npy`` nor ``.parquet``.
    OutputError
        If it is a directory, or its folder does not exist.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"{path} must end in {' or '.join(ENDINGS)}; got {Path(path).suffix or 'no ending'}.")
    check_destination(path)


def write_vectors(
    path: str | os.PathLike[str], vectors: NDArray[np.floating], texts: Sequence[str], metadata: Mapping[str, str]
) -> None:
    """Write vectors under a temporary name and rename the file when it is whole.

    Parameters
    ----------
    path : path-like
        ``.npy``: the array. ``.parquet``: columns ``text`` and ``vector`` (fixed-size list).
    vectors : ndarray of shape (n_texts, dim), float32
        Row i belongs to text i.
    texts : sequence of str
        The texts.
    metadata : mapping of str to str
        Kept in the schema of a parquet file; a .npy file has no place for it.

    Raises
    ------
    InputError
        If the name has another ending.
    OutputError
        If the file cannot be written; what was there is intact.
    """
    check_vector_file(path)
    with replacing(path) as temporary:
        if temporary.suffix.lower() == ".npy":
            _write_npy(temporary, vectors)
        else:
            _write_parquet(temporary, vectors, texts, metadata)


def _write_npy(path: Path, vectors: NDArray[np.floating]) -> None:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    rows = np.ascontiguousarray(vectors)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.write(rows.data)


def _write_parquet(
    path: Path, vectors: NDArray[np.floating], texts: Sequence[str], metadata: Mapping[str, str]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(vectors).ravel())
    table = pa.table(
        {
            "text": pa.array(list(texts), pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    pq.write_table(table.replace_schema_metadata(dict(metadata)), path)
