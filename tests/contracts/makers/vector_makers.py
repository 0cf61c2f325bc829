"""Files of vectors for tests."""

from pathlib import Path

import pyarrow as pa

from isosent.io.parquet import ColumnsBeside
from isosent.io.vectors import writing_vectors


def write_vectors(path, vectors, texts, space=None):
    """Write the vectors of texts; a table has the texts beside them."""
    table = pa.table({"text": texts})
    is_table = Path(path).suffix.lower() == ".parquet"
    beside = ColumnsBeside(table.schema, iter(table.to_batches())) if is_table else None
    with writing_vectors(path, vectors.shape, dtype=vectors.dtype.name, space=space, beside=beside) as write:
        write(vectors)
