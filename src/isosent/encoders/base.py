"""What every encoder is, and the only batching loop."""

from __future__ import annotations

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, TruncationWarning, UnknownWordsWarning
from isosent.io.texts import text_blocks
from isosent.transforms.base import LinearTransform
from isosent.words.tokens import TokenIds, offsets_of

_MANY_UNKNOWN, _ENOUGH_TOKENS = 0.3, 100


@dataclass(frozen=True, slots=True)
class EncodingStats:
    """Counts over texts that were encoded; adding two gives those of all the texts."""

    n_texts: int = 0  # texts encoded
    n_cut: int = 0  # texts among them that were cut at the encoder's maximum
    n_tokens: int = 0  # their tokens, unknown ones included
    n_unknown: int = 0  # tokens among them that the encoder does not know
    n_zero_rows: int = 0  # texts without a vector, where these are counted

    def __add__(self, other: EncodingStats) -> EncodingStats:
        """Return the counts of both."""
        return EncodingStats(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def warn(self, reference: str, max_length: str | None, *, stacklevel: int = 2) -> None:
        """Warn of what people would want to know of."""
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
    """What was counted so far."""

    total: EncodingStats  # the counts


_open: ContextVar[Tallied | None] = ContextVar("tallied", default=None)


@contextmanager
def collecting_stats() -> Iterator[Tallied]:
    """Count over several calls of ``encode``, which do not warn while the block runs."""
    tallied = Tallied(EncodingStats())
    token = _open.set(tallied)
    try:
        yield tallied
    finally:
        _open.reset(token)


def report(encoding_stats: EncodingStats, reference: str, max_length: str | None, *, stacklevel: int = 2) -> None:
    """Add the counts of one call to what is being counted, or warn where nobody counts."""
    tallied = _open.get()
    if tallied is None:
        encoding_stats.warn(reference, max_length, stacklevel=stacklevel + 1)
    else:
        tallied.total += encoding_stats


WINDOW = 8192
_PROBES = ("The quick brown fox, it's 3.5 km away!", "ÉCOLE Straße naïve", "你好 мир 안녕 🙂", "  \tnew\nline  ")

Progress = Callable[[int], None]


class Encoder(ABC):
    """Turns texts into sentence vectors.

    Parameters
    ----------
    reference : str
        Model reference that opens the same encoder again, without options.
    options : mapping of str to str
        Every option with the value in force, defaults included, so that a later default changes nothing.
    dim : int
        Dimensions of the vectors.

    Attributes
    ----------
    is_costly : bool
        Whether a vector costs far more than its tokens, so that identical texts are encoded once.
    skips_unknown : bool
        Whether it leaves unknown tokens out, so that their share tells something.
    computed_in : str
        Number type of the computation: no part of the space, but of the last bits.

    Notes
    -----
    A text without a single token (an empty text, or one of unknown words only) has no vector: its row is zero.
    Special tokens such as [CLS] do not count.
    """

    is_costly: bool = False
    skips_unknown: bool = False
    computed_in: str = "float32"

    def __init__(self, reference: str, options: Mapping[str, str], dim: int) -> None:
        self.reference = reference
        self.options = dict(options)
        self.dim = dim

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what follows from the rest, except the fingerprint, which takes long to compute."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name == "fingerprint" or not isinstance(getattr(type(self), name, None), cached_property)
        }

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts, special tokens included, cut at the encoder's maximum."""

    @abstractmethod
    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors, shape (n_texts, dim); those of texts without tokens are zero."""

    @abstractmethod
    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield every array that the vectors depend on, in a fixed order."""

    @abstractmethod
    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""

    @property
    def needs_corpus(self) -> bool:
        """Whether it has to be fitted on texts before it can encode."""
        return False

    @property
    def is_plain(self) -> bool:
        """Whether its vectors are left as a model or word vectors gave them, so that a whitening behind may pay."""
        return True

    @property
    def corpus_size(self) -> int:
        """Texts with a known word that it was fitted on; 0 where it needs none."""
        return 0

    def on_corpus(self, texts: Sequence[str], *, progress: Progress | None = None) -> Encoder:
        """Return this encoder fitted on texts, where it needs them; itself otherwise."""
        return self

    def for_queries(self) -> Encoder:
        """Return the encoder of texts to search with; itself where queries are encoded as any text."""
        return self

    def for_documents(self) -> Encoder:
        """Return the encoder of texts to be found; itself where documents are encoded as any text."""
        return self

    def on_device(self, device: str) -> Encoder:
        """Return the encoder on a device; static encoders have only the CPU."""
        if device != "cpu":
            raise InputError(f"encode: {self.reference} runs on the CPU; got device={device!r}. Leave it out.")
        return self

    def saved_as(self) -> Encoder:
        """Return the encoder that a saved model names; itself, unless it exists in memory only."""
        return self

    def require_fitted(self, where: str) -> None:
        """Refuse to go on where it still has to be fitted on texts; `where` begins the message."""
        if self.needs_corpus:
            raise InputError(
                f"{where}: {self.reference} with {', '.join(f'{k}={v}' for k, v in self.settings().items())} must be "
                "fitted on texts first; it is not. Call model.fitted(texts), on the command line "
                "isosent fit TEXTS -m REFERENCE -o FOLDER."
            )

    def own_transform(self) -> LinearTransform | None:
        """Return the linear step that belongs to the encoder, to be fitted behind it on the same texts."""
        return None

    def settings(self) -> dict[str, str]:
        """Return what sets apart what was fitted on a corpus, for the record of that."""
        return {}

    def corpus_tensors(self) -> dict[str, NDArray[np.float64]]:
        """Return what it knows of the texts it was fitted on, as named arrays."""
        return {}

    def fingerprint_facts(self) -> dict[str, str]:
        """Return the options that the vectors depend on; paths of files are not among them."""
        return self.options

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that the vectors depend on: options, parameters, vocabulary, and how sample texts are split."""
        digest = hashlib.sha256(json.dumps(self.fingerprint_facts(), sort_keys=True).encode())
        for array in self.parameters():
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\n".join(self.vocabulary()).encode("utf-8", "surrogatepass"))
        digest.update(self.tokenize(_PROBES).ids.tobytes())
        return digest.hexdigest()

    def coverage(self, texts: Sequence[str]) -> tuple[int, int]:
        """Count tokens and, among them, unknown ones.

        Parameters
        ----------
        texts : sequence of str
            Any number of texts.

        Returns
        -------
        n_tokens, n_unknown : int
            Those that were dropped on purpose, such as stop words, do not count; nothing does where no token can be
            unknown.
        """
        if not self.skips_unknown:
            return 0, 0
        windows = [self.tokenize(window) for window in text_blocks(texts, WINDOW)]
        return sum(window.n_tokens for window in windows), sum(window.n_unknown for window in windows)

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts.

        Parameters
        ----------
        texts : sequence of str
            Any number of texts, none included.
        progress : callable, optional
            Called with the number of texts finished since the last call.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            Row i belongs to text i, whatever else is encoded with it; a text without tokens has a zero row.

        Raises
        ------
        InputTypeError
            If `texts` is a bare string or holds something that is not a string.
        InputError
            If it has to be fitted on a corpus first, see `needs_corpus`.

        Warns
        -----
        TruncationWarning
            Once a call, with the number of texts that were cut at the encoder's maximum.
        UnknownWordsWarning
            Once a call, if more than 30 % of at least 100 tokens are unknown.

        Notes
        -----
        Texts are tokenized in windows of 8,192, or of about 16 Mi characters if these are fewer texts. Where vectors
        are costly, the next window is tokenized while they are computed, and identical texts are encoded once.
        """
        texts = _check.text_list("encode", texts)
        self.require_fitted("encode")
        return self.over_windows(texts, lambda tokens: [self.embed(tokens, progress)], [self.dim], progress)[0]

    def over_windows(
        self,
        texts: list[str],
        embed: Callable[[TokenIds], Sequence[NDArray[np.float32]]],
        dims: Sequence[int],
        progress: Progress | None = None,
    ) -> list[NDArray[np.float32]]:
        """Tokenize texts window by window, and put together what is made of the windows: the loop of `encode`.

        Parameters
        ----------
        texts : list of str
            The texts.
        embed : callable
            From the tokens of a window to arrays with a row a text.
        dims : sequence of int
            Width of each of these arrays.
        progress : callable, optional
            Called with the number of texts that needed no work of their own.

        Returns
        -------
        list of ndarray of shape (n_texts, dim), float32
            Row i belongs to text i.
        """
        repeats = Counter(texts) if self.is_costly else None
        distinct = texts if repeats is None else list(repeats)
        outputs = [np.zeros((len(distinct), dim), dtype=np.float32) for dim in dims]
        n_cut = n_tokens = n_unknown = 0
        for start, tokens in self._tokenized(distinct):
            n_cut += tokens.n_cut if repeats is None else sum(repeats[distinct[start + row]] for row in tokens.cut)
            n_tokens += tokens.n_tokens
            n_unknown += tokens.n_unknown
            for output, vectors in zip(outputs, embed(tokens), strict=True):
                output[start : start + len(vectors)] = vectors
        if len(distinct) < len(texts):
            row_of = {text: row for row, text in enumerate(distinct)}
            rows = [row_of[text] for text in texts]
            outputs = [output[rows] for output in outputs]
            if progress:
                progress(len(texts) - len(distinct))
        encoding_stats = EncodingStats(len(texts), n_cut, n_tokens, n_unknown)
        report(encoding_stats, self.reference, self.options.get("max_length"), stacklevel=3)
        return outputs

    def _tokenized(self, texts: list[str]) -> Iterator[tuple[int, TokenIds]]:
        """Yield the start of each window and its tokens; the next one is under way where vectors are costly."""
        windows = list(text_blocks(texts, WINDOW))
        starts = offsets_of(list(map(len, windows))).tolist()
        if len(windows) < 2 or not self.is_costly:
            yield from zip(starts, map(self.tokenize, windows), strict=False)
            return
        with ThreadPoolExecutor(1) as beside:
            ahead = [beside.submit(self.tokenize, windows[0])]
            for number, start in enumerate(starts[:-1]):
                tokens = ahead.pop().result()
                if number + 1 < len(windows):
                    ahead.append(beside.submit(self.tokenize, windows[number + 1]))
                yield start, tokens
