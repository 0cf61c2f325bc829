"""Writing a table as CSV."""

import csv
import os
from collections.abc import Mapping, Sequence
from typing import Any

from isosent.files.atomic import replacing


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
