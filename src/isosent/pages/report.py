"""A report says what came out of a command. It knows nothing of terminals: `cli.printing.deliver` renders it.

A command makes a `Report` of the result of the library: its JSON values, its text as sentences, notes and tables in
reading order, and the content of files by their endings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class TableRow(NamedTuple):
    cells: tuple[str, ...]
    is_dim: bool = False  # of less weight than the others
    ends_section: bool = False  # a line follows


class ReportTable:
    """A table of texts.

    The columns that `left` numbers hold texts, negative numbers count from the last one; the others hold numbers, and
    align to the right. `last_width` is the most characters of a line in the last column.
    """

    def __init__(
        self,
        *columns: str,
        left: Collection[int] = (0,),
        title: str | None = None,
        caption: str | None = None,
        has_header: bool = True,
        last_width: int | None = None,
    ) -> None:
        self.columns = columns
        self.left = {place % len(columns) for place in left}
        self.title, self.caption = title, caption
        self.has_header, self.last_width = has_header, last_width
        self.rows: list[TableRow] = []

    def add_row(self, *cells: str, is_dim: bool = False) -> None:
        """Add a row; cells that are left out are empty."""
        self.rows.append(TableRow(cells, is_dim))

    def add_section(self) -> None:
        """Draw a line below the last row, if there is one."""
        if self.rows:
            self.rows[-1] = self.rows[-1]._replace(ends_section=True)


class Note(NamedTuple):
    """A sentence about the text, for standard error."""

    text: str


Part = str | ReportTable | Note
Content = Callable[[], str | bytes]  # of a file


@dataclass(frozen=True)
class Report:
    """What came out, as JSON, as text, and as files.

    Parameters
    ----------
    document : JSON values or callable, optional
        What programs read, also in a ``.json`` file; or what gives these values, where they are many, or their text,
        where a result writes its own. Without it, nothing is printed as JSON: this is a part of a report, shown before
        the rest is known.
    parts : iterable of Part
        What people read, in this order. It is read once, and only if it is shown: it may make its tables then.
    files : mapping of str to callable
        What gives the content of a file, by its ending in lower case.
    """

    document: Any = None
    parts: Iterable[Part] = ()
    files: Mapping[str, Content] = field(default_factory=dict)
