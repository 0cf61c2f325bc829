"""What every export must show before it appears under its name: the same vectors as the model, on the same texts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from isosent.demo.run import demo_texts
from isosent.encoders.base import Encoder
from isosent.encoders.prompts import encoder_for
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import IsosentWarning, OutputError
from isosent.exports.tokenizer_files import WORD_MARK
from isosent.model import SentenceEncoder
from isosent.text.subword_tokenizer import SubwordTokenizer

LARGEST_DIFFERENCE = 1e-3
LOWEST_COSINE = 1 - 1e-5

LONGEST_LIMIT = 2048

_EVERY = 15
_N_JOINED = 40
_MOST_SPECIAL = 8
_SIGNS_OF_TOKENS = f"{WORD_MARK}▁Ġ#"
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


def sample_texts(encoder: Encoder) -> list[str]:
    """Texts to compare on.

    Parameters
    ----------
    encoder : Encoder
        Encoder of the model.

    Returns
    -------
    list of str
        One long text, beyond the encoder's maximum length unless that is above `LONGEST_LIMIT`; 32 of the shipped
        sample; some in other scripts, with an unknown word, or with special tokens written out; for token vectors, one
        of the first tokens that they have; one empty, one blank.
    """
    ordinary = demo_texts()
    beside = (*_UNUSUAL, *_known_words(encoder), *_special_texts(encoder))
    return [_long_text(encoder, ordinary), *ordinary[::_EVERY], *beside, "", "   "]


def _long_text(encoder: Encoder, ordinary: Sequence[str]) -> str:
    """A text of half as many words again as the encoder takes tokens; no word has less than a token."""
    maximum = encoder.options.get("max_length", "none")
    limit = 0 if maximum == "none" or int(maximum) > LONGEST_LIMIT else int(maximum)
    joined = " ".join(ordinary[:_N_JOINED])
    return " ".join([joined] * max(1, math.ceil(1.5 * limit / len(joined.split()))))


def _known_words(encoder: Encoder) -> list[str]:
    """A text of words that the encoder knows, whatever its language."""
    if not isinstance(encoder, StaticEncoder):
        return []
    words = (token.strip(_SIGNS_OF_TOKENS) for token in encoder.vocabulary())
    return [" ".join(islice(filter(str.isalnum, words), _N_JOINED))]


def _special_texts(encoder: Encoder) -> list[str]:
    """A text with each special token written out; none where exports cannot follow (see docs/export.md)."""
    tokens: list[str] = []
    if isinstance(encoder, TransformerEncoder) and not (encoder.module_folder.lowercase or encoder.prompt):
        tokens = encoder.tokenizer.all_special_tokens
    elif isinstance(encoder, StaticEncoder) and isinstance(encoder.tokenizer, SubwordTokenizer):
        tokens = [token.content for token in encoder.tokenizer.tokenizer.get_added_tokens_decoder().values()]
    return [f"the company said {token} shares{token} rose" for token in tokens[:_MOST_SPECIAL]]


def compare_on_texts(model: SentenceEncoder, theirs: Encode, *, zero_rows: bool, role: str = "text") -> Agreement:
    """Compare an export that takes texts with the model.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    theirs : callable
        From texts to the vectors that the export gives, in the target's own library.
    zero_rows : bool
        Whether the export keeps the zero rows of texts without a token; if not, such texts are left out.
    role : {"text", "query", "document"}
        What the texts are encoded as.

    Returns
    -------
    Agreement
        How close both are.
    """
    texts = sample_texts(encoder_for(model.encoder, role))
    encode = {"text": model.encode, "query": model.encode_query, "document": model.encode_document}[role]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsosentWarning)
        ours = encode(texts)
    kept = np.flatnonzero(ours.any(axis=1) | zero_rows)
    parts = [[texts[row] for row in rows] for rows in (kept[:1], kept[1:]) if len(rows)]  # the long one pads no others
    return compare(ours[kept], np.concatenate([theirs(part) for part in parts]) if parts else np.empty(0))


def compare(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> Agreement:
    """Compare vectors row by row.

    Parameters
    ----------
    ours, theirs : ndarray of shape (n_vectors, dim), float
        Vectors of the same texts. A row that is zero in one of them only differs infinitely.

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
    differences[(lengths > 0) != (their_lengths > 0)] = np.inf
    products = lengths * their_lengths
    cosines = np.where(products > 0, (ours * theirs).sum(axis=1) / np.where(products > 0, products, 1), 1.0)
    return Agreement(len(ours), float(differences.max(initial=0)), float(min(cosines.min(initial=1), 1)))


def total(agreements: Iterable[Agreement]) -> Agreement:
    """Put together what was found of several sets of vectors.

    Parameters
    ----------
    agreements : iterable of Agreement
        One at least.

    Returns
    -------
    Agreement
        That of all vectors.

    Examples
    --------
    >>> total([Agreement(3, 0.0, 1.0), Agreement(2, 1e-7, 0.99)])
    Agreement(n_vectors=5, largest_difference=1e-07, lowest_cosine=0.99)
    """
    numbers, differences, cosines = zip(*map(astuple, agreements), strict=True)
    return Agreement(sum(numbers), max(differences), min(cosines))


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
