"""What every export must show before it appears under its name: the same vectors as the model, on the same texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.demo.run import demo_texts
from isosent.errors import OutputError, TruncationWarning
from isosent.model import SentenceEncoder

LARGEST_DIFFERENCE = 1e-3
LOWEST_COSINE = 1 - 1e-5

_EVERY = 15
_N_JOINED = 40
_UNUSUAL = (
    "no",
    "12.5 km/h, isn't it -- (really)!?",
    "  two  spaces\tand a\nnew line ",
    "Ein Satz auf Deutsch: ÄÖÜ äöü, naïve façade, Straße",
    "Привет, мир! Как дела?",
    "你好世界。今天天气很好",
    "ΚΑΛΗΜΕΡΑ ΚΟΣΜΕ, καλημέρα κόσμε",
    "مرحبا بالعالم",
    "안녕하세요 세계",
    "a smile 🙂 and qzxvk, an unknown word",
)

Encode = Callable[[Sequence[str]], NDArray[np.floating]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How close the vectors of an export are to those of the model.

    Parameters
    ----------
    n_vectors : int
        Vectors compared.
    largest_difference : float
        Largest difference of two entries, as a share of the length of the vector.
    lowest_cosine : float
        Lowest cosine of a vector with its counterpart.
    """

    n_vectors: int
    largest_difference: float
    lowest_cosine: float

    @property
    def holds(self) -> bool:
        """Whether both figures are within `LARGEST_DIFFERENCE` and `LOWEST_COSINE`."""
        return self.largest_difference <= LARGEST_DIFFERENCE and self.lowest_cosine >= LOWEST_COSINE


def sample_texts() -> list[str]:
    """Texts to compare on: 32 of the shipped sample, one long, some in other scripts, with an unknown word, or blank.

    Returns
    -------
    list of str
        The texts; the last two are empty and blank.
    """
    ordinary = demo_texts()
    return [*ordinary[::_EVERY], " ".join(ordinary[:_N_JOINED]), *_UNUSUAL, "", "   "]


def compare_on_texts(model: SentenceEncoder, theirs: Encode, *, zero_rows: bool, queries: bool = False) -> Agreement:
    """Compare an export that takes texts with the model.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    theirs : callable
        From texts to the vectors that the export gives, in the target's own library.
    zero_rows : bool
        Whether the export keeps the zero rows of texts without a token; if not, such texts are left out.
    queries : bool, default False
        Whether the texts are encoded as queries.

    Returns
    -------
    Agreement
        How close both are.
    """
    texts = sample_texts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        ours = model.encode_query(texts) if queries else model.encode(texts)
    kept = np.flatnonzero(ours.any(axis=1) | zero_rows)
    return compare(ours[kept], theirs([texts[row] for row in kept]))


def compare(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> Agreement:
    """Compare vectors row by row.

    Parameters
    ----------
    ours, theirs : ndarray of shape (n_vectors, dim), float
        Vectors of the same texts. Zero rows must be zero in both.

    Returns
    -------
    Agreement
        How close both are; vectors of another shape, or not finite, do not agree at all.

    Examples
    --------
    >>> import numpy as np
    >>> compare(np.eye(2), np.eye(2) + [[0, 0], [0, 0.5]])
    Agreement(n_vectors=2, largest_difference=0.5, lowest_cosine=1.0)
    """
    theirs = np.asarray(theirs)
    if ours.shape != theirs.shape or not np.isfinite(theirs).all():
        return Agreement(len(ours), float("inf"), -1.0)
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    lengths, their_lengths = np.linalg.norm(ours, axis=1), np.linalg.norm(theirs, axis=1)
    differences = np.abs(ours - theirs).max(axis=1) / np.where(lengths > 0, lengths, 1)
    products = lengths * their_lengths
    cosines = np.where(products > 0, (ours * theirs).sum(axis=1) / np.where(products > 0, products, 1), 1.0)
    return Agreement(len(ours), float(differences.max(initial=0)), float(min(cosines.min(initial=1), 1)))


def require_agreement(target: str, agreement: Agreement) -> None:
    """Refuse an export that gives other vectors.

    Parameters
    ----------
    target : str
        Name of the format, for the message.
    agreement : Agreement
        What was found.

    Raises
    ------
    OutputError
        If the vectors differ by more than float32 rounding explains.
    """
    if not agreement.holds:
        raise OutputError(
            f"export: the vectors of the {target} export must be those of the model; over {agreement.n_vectors} sample "
            f"texts they differ by up to {agreement.largest_difference:.1e} of their length, and the lowest cosine is "
            f"{agreement.lowest_cosine:.6f}. Nothing was written."
        )


def sample_vectors(model: SentenceEncoder, n_vectors: int = 64) -> NDArray[np.float32]:
    """Vectors to compare exports on that take the vectors of the bare encoder.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    n_vectors : int, default 64
        How many.

    Returns
    -------
    ndarray of shape (n_vectors, encoder.dim), float32
        Random directions from a fixed seed, of a length at which the weight and the bias of the map count alike.
    """
    rows = np.random.default_rng(0).standard_normal((n_vectors, model.encoder.dim))
    if model.linear_map is not None and model.linear_map.bias.any():
        mapped = rows @ model.linear_map.weight
        rows *= np.linalg.norm(model.linear_map.bias) / np.sqrt((mapped**2).sum(axis=1).mean())
    return rows.astype(np.float32)
