"""What every encoder is, and the only batching loop."""

from __future__ import annotations

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, TruncationWarning, UnknownWordsWarning
from isosent.text.tokens import TokenIds
from isosent.transforms.base import LinearTransform

WINDOW = 8192
_MANY_UNKNOWN, _ENOUGH_TOKENS = 0.3, 100
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

    Notes
    -----
    A text without a single token (an empty text, or one of unknown words only) has no vector: its row is zero.
    Special tokens such as [CLS] do not count.
    """

    batch_tokens: int | None = None
    n_special_tokens: int = 0
    equal_lengths: bool = False
    skips_unknown: bool = False

    def __init__(self, reference: str, options: Mapping[str, str], dim: int) -> None:
        self.reference = reference
        self.options = dict(options)
        self.dim = dim

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts, special tokens included, cut at the encoder's maximum."""

    @abstractmethod
    def embed(self, tokens: TokenIds) -> NDArray[np.float32]:
        """Return the vectors, shape (n_texts, dim); with `batch_tokens`, of texts that all have tokens."""

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

    def require_fitted(self, where: str) -> None:
        """Refuse to go on where it still has to be fitted on texts; `where` begins the message."""
        if self.needs_corpus:
            raise InputError(
                f"{where}: {self.reference} with {', '.join(f'{k}={v}' for k, v in self.settings().items())} must be "
                "fitted on texts first; it is not. Call model.fit(texts, transform=None), on the command line "
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
        windows = [self.tokenize(texts[start : start + WINDOW]) for start in range(0, len(texts), WINDOW)]
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
        Texts are tokenized in windows of 8,192. With `batch_tokens`, they are batched longest first so that texts of
        like length share a batch of at most that many tokens, padding counted; encoders that see the padding
        (`equal_lengths`) get none. How texts are batched moves a vector by float32 rounding only.
        """
        texts = _check.text_list("encode", texts)
        self.require_fitted("encode")
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        n_cut = n_tokens = n_unknown = 0
        for start in range(0, len(texts), WINDOW):
            tokens = self.tokenize(texts[start : start + WINDOW])
            n_cut += tokens.n_cut
            n_tokens += tokens.n_tokens
            n_unknown += tokens.n_unknown
            self._embed_window(tokens, vectors[start : start + WINDOW], progress)
        if n_tokens >= _ENOUGH_TOKENS and n_unknown > _MANY_UNKNOWN * n_tokens:
            warnings.warn(
                f"{n_unknown} of {n_tokens} tokens ({n_unknown / n_tokens:.0%}) are unknown to {self.reference}.",
                UnknownWordsWarning,
                stacklevel=2,
            )
        if n_cut:
            maximum = self.options["max_length"]
            warnings.warn(
                f"{n_cut} of {len(texts)} texts were cut at the encoder's maximum of {maximum} tokens.",
                TruncationWarning,
                stacklevel=2,
            )
        return vectors

    def _embed_window(self, tokens: TokenIds, vectors: NDArray[np.float32], progress: Progress | None) -> None:
        """Fill the vectors of the texts of one window; they are zero before."""
        lengths = tokens.lengths
        if self.batch_tokens is None:
            vectors[:] = self.embed(tokens)
            if progress:
                progress(len(lengths))
            return
        known = np.flatnonzero(lengths > self.n_special_tokens)
        longest_first = known[np.argsort(-lengths[known], kind="stable")]
        for rows in _batches(longest_first, lengths, self.batch_tokens, equal_lengths=self.equal_lengths):
            vectors[rows] = self.embed(tokens.take(rows))
            if progress:
                progress(len(rows))
        if progress:
            progress(len(lengths) - len(known))


def _batches(
    longest_first: NDArray[np.intp], lengths: NDArray[np.int64], budget: int, *, equal_lengths: bool
) -> Iterator[NDArray[np.intp]]:
    """Cut rows, sorted by falling length, so that rows times longest row stays within the budget."""
    falling = -lengths[longest_first]
    start = 0
    while start < len(longest_first):
        stop = start + max(1, budget // -int(falling[start]))
        if equal_lengths:
            stop = min(stop, int(np.searchsorted(falling, falling[start], side="right")))
        yield longest_first[start:stop]
        start = stop
