"""Files of vectors for tests."""

from pathlib import Path

from isosent.io.parquet import ColumnsBeside
from isosent.io.vectors import writing_vectors


def write_vectors(path, vectors, texts, space=None):
    """Write the vectors of texts; a table has the texts beside them."""
    beside = ColumnsBeside.of_texts([texts]) if Path(path).suffix.lower() == ".parquet" else None
    with writing_vectors(path, vectors.shape, dtype=vectors.dtype.name, space=space, beside=beside) as write:
        write(vectors)
