"""The interface of encoders, and the loop that encodes texts in windows.

An `Encoder` tokenizes texts and embeds token ids; all else follows from these two. `over_windows` takes the texts in
windows, so that memory does not grow with their number, encodes equal texts once if a vector is costly, and counts
truncated and unknown tokens as `EncodingStats`, which `collecting_stats` gathers and `report` turns into warnings.
`fingerprint` hashes what decides the vectors: kind, options and parameters. The methods with a default are what an
encoder may add: spans, summands, prompts for queries and documents, and what it learned from a corpus.
"""

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.reference import LANGUAGES
from isosent.errors import InputError, TruncationWarning, UnknownWordsWarning, next_step
from isosent.io.texts import text_blocks
from isosent.numeric.canary import FIXED_TEXTS, LEAST_COSINE, N_SHORT, Canary
from isosent.pages.progress import Progress, counted, part_of
from isosent.space import Space
from isosent.storage import Storage
from isosent.transforms.base import LinearTransform
from isosent.words.tokens import TokenIds, offsets_of

if TYPE_CHECKING:
    from isosent.api.session import Estimate
    from isosent.api.usage import Usage

WINDOW = 8192
_MANY_UNKNOWN, _ENOUGH_TOKENS = 0.3, 100
_PROBES = ("The quick brown fox, it's 3.5 km away!", "ÉCOLE Straße naïve", "你好 мир 안녕 🙂", "  \tnew\nline  ")
_SEND_TEXTS = "Send texts; with LangChain, set check_embedding_ctx_length=False."


@dataclass(frozen=True, slots=True)
class EncodingStats:
    """Counts over encoded texts; they can be added."""

    n_texts: int = 0
    n_cut: int = 0  # texts cut at the encoder's maximum length
    n_tokens: int = 0  # unknown ones included
    n_unknown: int = 0
    n_zero_rows: int = 0  # texts without a vector, if they were counted

    def __add__(self, other: EncodingStats) -> EncodingStats:
        return EncodingStats(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def warn(self, reference: str, max_length: str | None, *, stacklevel: int = 2) -> None:
        """Warn of many unknown tokens, and of texts that were cut."""
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


class Summands(NamedTuple):
    """The words of a text, and the vectors that add up to its sentence vector."""

    words: list[str]  # as the text has them
    vectors: NDArray[np.float64]  # (n_words, dim)
    shares: NDArray[np.float64] | None  # of each word in a mean, with the sum 1; None for other sums


class TokenSpan(NamedTuple):
    """A token, and the part of the text that it stands for."""

    id: int
    text: str
    is_special: bool
    start: int | None  # in characters; None if it is unknown
    stop: int | None


class CollectedStats:
    """The counts of every encoder within a block of `collecting_stats`."""

    def __init__(self) -> None:
        self.total = EncodingStats()


_collected: ContextVar[CollectedStats | None] = ContextVar("collected_stats", default=None)


@contextmanager
def collecting_stats() -> Iterator[CollectedStats]:
    """Count over several calls of ``encode``, which do not warn in this block."""
    collected = CollectedStats()
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def report(encoding_stats: EncodingStats, reference: str, max_length: str | None, *, stacklevel: int = 2) -> None:
    """Add the counts of a call to those that are collected, or warn if none are."""
    collected = _collected.get()
    if collected is None:
        encoding_stats.warn(reference, max_length, stacklevel=stacklevel + 1)
    else:
        collected.total += encoding_stats


class Encoder(ABC):
    """Turns texts into sentence vectors. A text without a single token (special tokens do not count) has a zero row."""

    is_costly: bool = False  # a vector costs far more than its tokens: identical texts are encoded once
    has_tokens: bool = True  # whether its tokens are known, so that it has `tokenize` and `embed`
    skips_unknown: bool = False  # leaves unknown tokens out, so that their share is worth knowing
    computed_in: str = Storage.float32  # number type of the computation; it changes the last bits, not the space

    def __init__(self, reference: str, options: Mapping[str, str], dim: int) -> None:
        self.reference = reference  # loads the same encoder again, without options
        self.options = dict(options)  # every option in force, defaults included: a later default changes nothing
        self.dim = dim

    @property
    def languages(self) -> str | None:
        """Languages of a bundled model. Its tokenizer splits texts of others into bytes, so no token is unknown."""
        return LANGUAGES.get(self.reference)

    def __getstate__(self) -> dict[str, Any]:
        # leave out cached properties, except the fingerprint, which takes long to compute
        return {
            name: value
            for name, value in self.__dict__.items()
            if name == "fingerprint" or not isinstance(getattr(type(self), name, None), cached_property)
        }

    @abstractmethod
    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts, special tokens included, cut at the encoder's maximum length."""

    @abstractmethod
    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors, shape (n_texts, dim); those of texts without tokens are zero."""

    def spans(self, text: str) -> list[TokenSpan]:
        """Return the tokens of a text, without a prompt."""
        raise InputError(f"tokenize: the tokens of {self.reference} are not known.")

    def decode(self, ids: Sequence[int]) -> str:
        """Return a text with these token ids; refuse ids that `tokenize` would not give it."""
        raise InputError(f"token ids: the tokens of {self.reference} are not known. Send texts.")

    def token_embeddings(self, text: str) -> NDArray[np.float32]:
        """Return the vectors of the tokens of a text before they are pooled, shape (n_tokens, token_dim)."""
        raise InputError(f"token embeddings: {self.reference} gives vectors of whole texts only.")

    def summands(self, text: str) -> Summands:
        """Return the words of a text and the vectors that add up to its own; refuse if it is no such sum."""
        raise InputError(
            f"explain: {self.reference} computes a vector from all words of a text at once, so that a cosine is no "
            "sum over pairs of words. Use word vectors or a static model."
        )

    @abstractmethod
    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield every array that the vectors depend on, in a fixed order."""

    @abstractmethod
    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""

    @property
    def needs_corpus(self) -> bool:
        """Whether it must be fitted on texts before it can encode."""
        return False

    @property
    def corpus_size(self) -> int:
        """Texts with a known word that it was fitted on; 0 if it needs none."""
        return 0

    def on_corpus(self, texts: Sequence[str], *, progress: Progress | None = None) -> Encoder:
        """Return it fitted on texts, if it needs them."""
        return self

    def for_queries(self) -> Encoder:
        """Return the encoder of queries; itself, unless it has a prompt for them."""
        return self

    def for_documents(self) -> Encoder:
        """Return the encoder of documents; itself, unless it has a prompt for them."""
        return self

    def on_device(self, device: str) -> Encoder:
        """Return the encoder on a device; static encoders have only the CPU."""
        if device != "cpu":
            raise InputError(f"encode: {self.reference} runs on the CPU. Leave device={device!r} out.")
        return self

    def saved_as(self) -> Encoder:
        """Return the encoder that a saved model names; itself, unless it exists in memory only."""
        return self

    def as_saved(self, fingerprint: str, dim: int, canary: Canary | None, kept_in: str | None) -> Encoder:
        """Return the encoder of a saved model; itself, unless it must be told what it is to give."""
        return self

    @property
    def usage(self) -> Usage | None:
        """What an API was asked in this process; None of an encoder that computes its vectors."""
        return None

    def estimate(self, texts: Iterable[str]) -> Estimate:
        """What encoding texts would cost; nothing is sent."""
        raise InputError(f"estimate: {self.reference} is no API, such as api:openai/NAME. It costs nothing.")

    def require_fitted(self, where: str) -> None:
        """Refuse an encoder that must be fitted on texts first."""
        if self.needs_corpus:
            raise InputError(
                f"{self.reference} with {', '.join((f'{k}={v}' for k, v in self.settings().items()))} is not "
                "fitted. Fit it on texts first: "
                f"{next_step('isosent fit TEXTS -m REFERENCE -o FOLDER', 'model.fitted(texts)')}.",
                where=where,
            )

    def own_transform(self) -> LinearTransform | None:
        """The linear step that belongs to the encoder, to be fitted on the vectors of the same texts."""
        return None

    def settings(self) -> dict[str, str]:
        """What was fitted on texts and how, for the record."""
        return {}

    def corpus_tensors(self) -> dict[str, NDArray[np.float64]]:
        """What it learned from texts, as named arrays."""
        return {}

    def fingerprint_facts(self) -> dict[str, str]:
        """Options that the vectors depend on, without paths of files."""
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

    @property
    def space(self) -> Space:
        """Space of the vectors."""
        return Space(self.fingerprint, self.reference)

    def canary_now(self, *, of_first_query: bool = False) -> Canary | None:
        """Vectors of fixed texts as they are now; None if it cannot encode them, or knows none of their words.

        Those that a first query may wait for are of short texts as queries.
        """
        if self.needs_corpus:
            return None
        texts = list(FIXED_TEXTS[:N_SHORT] if of_first_query else FIXED_TEXTS)
        with collecting_stats():  # that one is cut, or unknown, is no news
            try:
                queries = self.for_queries().encode(texts)
                documents = None if of_first_query else self.for_documents().encode(texts)
            except (InputError, LookupError):  # of a function that looks up vectors
                return None
        return Canary.of(documents, queries) if queries.any() else None

    def has_vectors_of(self, canary: Canary | None) -> bool:
        """Whether it makes the vectors of a canary. Never known of tables of words: most are in no fixed text."""
        now = self.canary_now() if self.is_costly and canary is not None else None
        return canary is not None and now is not None and canary.lowest_cosine(now) >= LEAST_COSINE

    def coverage(self, texts: Sequence[str]) -> tuple[int, int]:
        """Count tokens and unknown ones; dropped stop words do not count, and (0, 0) means that none can be unknown."""
        if not self.skips_unknown:
            return 0, 0
        windows = [self.tokenize(window) for window in text_blocks(texts, WINDOW)]
        return sum(window.n_tokens for window in windows), sum(window.n_unknown for window in windows)

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts, shape (n_texts, dim); row i does not depend on the other texts.

        Warns once per call of texts that were cut (`TruncationWarning`), and if more than 30% of at least 100 tokens
        are unknown (`UnknownWordsWarning`).
        """
        texts = _check.text_list("encode", texts)
        self.require_fitted("encode")
        return self.over_windows(texts, lambda *window: [self.embed(*window)], [self.dim], progress)[0]

    def over_windows(
        self,
        texts: list[str],
        embed: Callable[[TokenIds, Progress | None], Sequence[NDArray[np.float32]]],
        dims: Sequence[int],
        progress: Progress | None = None,
    ) -> list[NDArray[np.float32]]:
        """Tokenize texts window by window; one array of shape (n_texts, dim) for each output of `embed`."""
        repeats = Counter(texts) if self.is_costly else None
        distinct = texts if repeats is None else list(repeats)
        outputs = [np.zeros((len(distinct), dim), dtype=np.float32) for dim in dims]
        n_cut = n_tokens = n_unknown = 0
        windows = counted(self._tokenized(distinct), progress, len(texts), lambda window: len(window[1].lengths))
        for start, tokens in windows:
            cut = (distinct[start + row] for row in tokens.truncated_rows)
            n_cut += tokens.n_cut if repeats is None else sum(repeats[text] for text in cut)
            n_tokens += tokens.n_tokens
            n_unknown += tokens.n_unknown
            embedded = embed(tokens, part_of(progress, start, len(texts)))
            for output, vectors in zip(outputs, embedded, strict=True):
                output[start : start + len(vectors)] = vectors
        if len(distinct) < len(texts):
            row_of = {text: row for row, text in enumerate(distinct)}
            rows = [row_of[text] for text in texts]
            outputs = [output[rows] for output in outputs]
            if progress:
                progress(len(texts), len(texts))
        encoding_stats = EncodingStats(len(texts), n_cut, n_tokens, n_unknown)
        report(encoding_stats, self.reference, self.options.get("max_length"), stacklevel=3)
        return outputs

    def _tokenized(self, texts: list[str]) -> Iterator[tuple[int, TokenIds]]:
        """Yield the start of each window and its tokens."""
        windows = list(text_blocks(texts, WINDOW))
        starts = offsets_of(list(map(len, windows))).tolist()
        if len(windows) < 2 or not self.is_costly:
            yield from zip(starts, map(self.tokenize, windows), strict=False)
            return
        with ThreadPoolExecutor(1) as pool:  # the next window is tokenized while the vectors of this one are computed
            ahead = [pool.submit(self.tokenize, windows[0])]
            for number, start in enumerate(starts[:-1]):
                tokens = ahead.pop().result()
                if number + 1 < len(windows):
                    ahead.append(pool.submit(self.tokenize, windows[number + 1]))
                yield start, tokens


def check_range(reference: str, ids: Sequence[int], vocab_size: int) -> None:
    """Refuse token ids outside the vocabulary."""
    if wrong := [number for number in ids if not 0 <= number < vocab_size]:
        raise InputError(f"token id {wrong[0]}: those of {reference} are 0 to {vocab_size - 1}. {_SEND_TEXTS}")


def check_same(reference: str, ids: Sequence[int], again: Sequence[int]) -> None:
    """Refuse token ids that are not those of the text that they stand for: another tokenizer made them."""
    if list(ids) != list(again):
        raise InputError(f"the token ids are of another vocabulary than that of {reference}. {_SEND_TEXTS}")
