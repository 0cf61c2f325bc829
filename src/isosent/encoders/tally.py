"""What encoding met on its way: texts that were cut, tokens that are unknown; counted, and warned of once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass

from isosent.errors import TruncationWarning, UnknownWordsWarning

_MANY_UNKNOWN, _ENOUGH_TOKENS = 0.3, 100


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over texts that were encoded; adding two gives those of all the texts.

    Parameters
    ----------
    n_texts : int, default 0
        Texts encoded.
    n_cut : int, default 0
        Texts among them that were cut at the encoder's maximum.
    n_tokens : int, default 0
        Their tokens, unknown ones included.
    n_unknown : int, default 0
        Tokens among them that the encoder does not know.
    n_zero_rows : int, default 0
        Texts without a vector, where these are counted.

    Examples
    --------
    >>> Tally(n_texts=2, n_cut=1) + Tally(n_texts=3, n_tokens=9)
    Tally(n_texts=5, n_cut=1, n_tokens=9, n_unknown=0, n_zero_rows=0)
    """

    n_texts: int = 0
    n_cut: int = 0
    n_tokens: int = 0
    n_unknown: int = 0
    n_zero_rows: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return the counts of both."""
        return Tally(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def warn(self, reference: str, max_length: str | None, *, stacklevel: int = 2) -> None:
        """Warn of what people would want to know of.

        Parameters
        ----------
        reference : str
            The encoder.
        max_length : str or None
            Its maximum of tokens, where it has one.
        stacklevel : int, default 2
            Whose line the warning names, as for `warnings.warn`.

        Warns
        -----
        TruncationWarning
            If texts were cut.
        UnknownWordsWarning
            If more than 30 % of at least 100 tokens are unknown.
        """
        if self.n_tokens >= _ENOUGH_TOKENS and self.n_unknown > _MANY_UNKNOWN * self.n_tokens:
            warnings.warn(
                f"{self.n_unknown} of {self.n_tokens} tokens ({self.n_unknown / self.n_tokens:.0%}) "
                f"are unknown to {reference}.",
                UnknownWordsWarning,
                stacklevel=stacklevel + 1,
            )
        if self.n_cut:
            warnings.warn(
                f"{self.n_cut} of {self.n_texts} texts were cut at the encoder's maximum of {max_length} tokens.",
                TruncationWarning,
                stacklevel=stacklevel + 1,
            )


@dataclass(slots=True)
class Tallied:
    """What was counted so far.

    Parameters
    ----------
    total : Tally
        The counts.
    """

    total: Tally


_open: ContextVar[Tallied | None] = ContextVar("tallied", default=None)


@contextmanager
def tallying() -> Iterator[Tallied]:
    """Count over several calls of ``encode``, which do not warn while the block runs.

    Yields
    ------
    Tallied
        Its total grows with every call.
    """
    tallied = Tallied(Tally())
    token = _open.set(tallied)
    try:
        yield tallied
    finally:
        _open.reset(token)


def report(tally: Tally, reference: str, max_length: str | None, *, stacklevel: int = 2) -> None:
    """Add the counts of one call to what is being counted, or warn where nobody counts.

    Parameters
    ----------
    tally : Tally
        Of one call.
    reference : str
        The encoder.
    max_length : str or None
        Its maximum of tokens, where it has one.
    stacklevel : int, default 2
        Whose line a warning names, as for `warnings.warn`.
    """
    tallied = _open.get()
    if tallied is None:
        tally.warn(reference, max_length, stacklevel=stacklevel + 1)
    else:
        tallied.total += tally
