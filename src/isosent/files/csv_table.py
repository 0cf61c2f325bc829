"""Tables as CSV: reading and writing."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from isosent.errors import FileFormatError
from isosent.files import bounds
from isosent.files.atomic import replacing


def csv_rows(name: str, blocks: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Read rows of standard quoting, each with the number of its last line.

    Parameters
    ----------
    name : str
        The file, for messages.
    blocks : iterable of str
        Its content in blocks of whole lines.

    Yields
    ------
    number : int
        Number of the last line of a row, from 1.
    row : list of str
        Its fields.

    Raises
    ------
    FileFormatError
        If a row is malformed, or longer than `bounds.LONGEST_LINE`; the message gives the line.
    """
    last = 0

    def too_long() -> FileFormatError:
        advice = "Close its quotation marks, or split its texts."
        return bounds.line_too_long(name, last + 1, bounds.LONGEST_LINE, advice)

    def lines() -> Iterator[io.StringIO]:
        """Blocks, as long as rows end in them: a quotation mark without its counterpart opens one that never does."""
        before, n_characters = 0, 0
        for block in blocks:
            if last > before:
                before, n_characters = last, 0
            if n_characters > bounds.LONGEST_LINE:
                raise too_long()
            n_characters += len(block)
            yield io.StringIO(block, newline="")

    csv.field_size_limit(bounds.LONGEST_LINE)
    rows = csv.reader(chain.from_iterable(lines()), strict=True)
    try:
        for row in rows:
            last = rows.line_num
            yield last, row
    except csv.Error as error:
        if "field limit" in str(error):
            raise too_long() from None
        raise FileFormatError(f"{name}: line {rows.line_num} is not valid CSV: {error}.") from None


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows under the names of their fields.

    Parameters
    ----------
    path : path-like
        The file to write.
    rows : sequence of mapping of str to object
        At least one, all with the same names in the same order; None is an empty field.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
