"""Files of vectors for tests."""

from pathlib import Path

import pyarrow as pa

from isosent.io.typed_tables import OtherColumns
from isosent.io.vectors import writing_vectors


def write_vectors(path, vectors, texts, space=None):
    """Write the vectors of texts; a table has the texts beside them."""
    table = pa.table({"text": texts})
    is_table = Path(path).suffix.lower() == ".parquet"
    other_columns = OtherColumns(table.schema, iter(table.to_batches())) if is_table else None
    dtype = vectors.dtype.name
    with writing_vectors(path, vectors.shape, dtype=dtype, space=space, other_columns=other_columns) as write:
        write(vectors)
