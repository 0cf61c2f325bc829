"""How much of a file is read at once: longer lines and larger documents are refused before they fill the memory.

Every reader asks here. The bounds are far above what data sets of the field hold; `docs/encoding.md` lists them.
"""

from __future__ import annotations

from typing import IO, Any, Final

from isosent.errors import FileFormatError

LONGEST_LINE = 16 << 20  # bytes of a line of text, or of a row of a table: several novels
LARGEST_JSON = 256 << 20  # bytes of a .json table, which is parsed as one: it takes 5 to 30 times that
LARGEST_DOCUMENT = 256 << 20  # bytes of a model file, a result, a config; results of a million items have 40 MB
LARGEST_XML = 32 << 20  # bytes; parsed it takes up to 40 times that, and the files of SemEval have 4 MiB
MOST_DIMENSIONS = 1 << 16  # of a vector; published ones have 25 to 8,192
LONGEST_NUMBER = 32  # characters of a number and a blank; a float64 takes 25
LONGEST_WORD = 1 << 16  # bytes; the longest of published word vectors are URLs
LONGEST_VECTOR_LINE = LONGEST_WORD + MOST_DIMENSIONS * LONGEST_NUMBER
LARGEST_TOKEN_ID = 1 << 24  # tables have a row for each id up to the largest; vocabularies have up to 1 M tokens
LONGEST_NGRAM = 256  # characters; fastText's default is 6
LARGEST_EXPANSION = 100  # bytes for each packed byte; text and word vectors pack 3:1, zeros 1000:1
FREELY_EXPANDED = 64 << 20  # bytes up to which a packed file may expand by any factor

_BATCH_ROWS, _TIGHT_ROWS = 1024, 16
_UNITS: Final = ((20, "MiB"), (10, "KiB"), (0, "bytes"))


def shown_bytes(n_bytes: int) -> str:
    """A number of bytes in a unit that fits: 16 MiB."""
    exponent, unit = next((power, unit) for power, unit in _UNITS if n_bytes >> power or not power)
    return f"{n_bytes / (1 << exponent):.3g} {unit}"


def line_too_long(
    where: str, number: int, longest: int, advice: str = "Split the text into shorter lines."
) -> FileFormatError:
    """What is raised for a line beyond its bound."""
    return FileFormatError(f"{where}, line {number}: longer than {shown_bytes(longest)}. {advice}")


def parquet_batch_rows(name: str, metadata: Any, column: str | None = None) -> int:
    """Rows of a parquet file, or of one of its columns, to decode at once; refuses what its text cannot be packed to."""  # noqa: E501
    # Few where they are packed tightly: a dictionary page holds a text once, whatever the number of its rows.
    n_unpacked = n_packed = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if column is None or chunk.path_in_schema.partition(".")[0] == column:
                n_unpacked += chunk.total_uncompressed_size
                n_packed += chunk.total_compressed_size
    is_tight = n_unpacked > LARGEST_EXPANSION * n_packed
    if is_tight and n_unpacked > FREELY_EXPANDED:
        raise FileFormatError(
            f"{name} unpacks to {shown_bytes(n_unpacked)}, more than {LARGEST_EXPANSION} times its size; texts do not. "
            "Write it again without compression if you trust it."
        )
    return _TIGHT_ROWS if is_tight else _BATCH_ROWS


def read_document(name: str, file: IO[bytes], largest: int, advice: str = "") -> bytes:
    """Read a file that is parsed as one, packed or not."""
    content = file.read(largest + 1)
    if len(content) > largest:
        raise FileFormatError(f"{name}: larger than {shown_bytes(largest)}.{advice and ' '}{advice}")
    return content
