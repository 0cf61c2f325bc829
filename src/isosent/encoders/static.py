"""Encoders without context: what a weighting makes of the vectors of a text's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import WINDOW, Encoder, Progress
from isosent.encoders.reference import options_of
from isosent.encoders.word_average import Average, Corpus, Weighting, Words
from isosent.errors import InputError
from isosent.io.texts import text_blocks
from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.transforms.base import LinearTransform, make_linear
from isosent.words.frequencies import Frequencies, count_tokens, frequencies_of_counts, warn_if_many_without
from isosent.words.stored_numbers import Numbers, Scales, decoded
from isosent.words.tokens import TokenIds, Tokenizing
from isosent.words.word_vectors import Subwords, WordVectors

_NO_PRODUCTS = np.empty((0, 0))


class RowTable:
    """Rows and products of words, made when a word is first seen and kept."""

    # Float32 vectors that nothing is to be done with are used where they lie.

    def __init__(
        self,
        vectors: Numbers,
        scales: Scales | None,
        subwords: Subwords | None,
        word_map: LinearMap | None,
        principal: PrincipalVectors | None,
    ) -> None:
        self._vectors = vectors
        self._scales = scales
        self._subwords = subwords
        self._word_map = word_map
        self._principal = principal
        self._is_direct = vectors.dtype == np.float32 and word_map is None and principal is None
        self._n_rows = 0
        self._place: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._rows = np.empty((0, vectors.shape[1] if word_map is None else word_map.n_components), dtype=np.float32)
        self._products = _NO_PRODUCTS
        self._mean: NDArray[np.float32] | None = None
        self.lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RowTable, (self._vectors, self._scales, self._subwords, self._word_map, self._principal)

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return self._rows.shape[1]

    def look_up(self, tokens: TokenIds) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int32]]:
        """Rows of the words of some texts; hold `lock` while they are in use."""
        if self._is_direct and not tokens.unknown:
            return self._vectors, _NO_PRODUCTS, tokens.ids
        vocab_size = len(self._vectors)
        if not len(self._place):
            self._place = np.full(vocab_size, -1, dtype=np.int32)
        is_known = tokens.ids < vocab_size
        known = tokens.ids[is_known] if tokens.unknown else tokens.ids
        new = np.unique(known[self._place[known] < 0])
        self._write(decoded(self._vectors, self._scales, new))
        self._place[new] = np.arange(self._n_rows, self._n_rows + len(new))
        self._n_rows += len(new)
        if not tokens.unknown:
            return self._rows, self._products, self._place[known]
        self._write(self._vectors_of_unknown(tokens.unknown))  # behind those that stay, for this call only
        ids = tokens.ids + np.int32(self._n_rows - vocab_size)
        ids[is_known] = self._place[known]
        return self._rows, self._products, ids

    def _write(self, vectors: NDArray[np.float32]) -> None:
        """Write rows behind those that stay."""
        rows = vectors
        if self._word_map is not None:  # in float64: float32 products of one row and of many are not the same
            rows = self._word_map.apply(vectors.astype(np.float64)).astype(np.float32)
        start, stop = self._n_rows, self._n_rows + len(rows)
        self._rows = _with_room(self._rows, stop)
        self._rows[start:stop] = rows
        if self._principal is not None:
            products = self._principal.products(rows)
            if not len(self._products):
                self._products = products[:0]
            self._products = _with_room(self._products, stop)
            self._products[start:stop] = products

    def _vectors_of_unknown(self, words: tuple[str, ...]) -> NDArray[np.float32]:
        if self._subwords is not None:
            return self._subwords.vectors(words)
        if self._mean is None:
            self._mean = _mean_row(self._vectors, self._scales)
        return np.broadcast_to(self._mean, (len(words), len(self._mean)))


def _with_room(array: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """The array, or one of at least twice its length that begins with it."""
    if n_rows <= len(array):
        return array
    longer = np.empty((max(n_rows, 2 * len(array)), array.shape[1]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _mean_row(vectors: Numbers, scales: Scales | None, block: int = 65536) -> NDArray[np.float32]:
    sums = [
        decoded(vectors, scales, slice(start, start + block)).sum(axis=0, dtype=np.float64)
        for start in range(0, len(vectors), block)
    ]
    mean: NDArray[np.float64] = np.sum(sums, axis=0) / len(vectors)
    return mean.astype(np.float32)


FILE_OPTIONS = ("frequencies", "stop_words", "tokenizer", "vocabulary")
_BLOCK = 1 << 16
_WINDOWS_AT_ONCE = 8


class StaticEncoder(Encoder):
    """Word vectors, and a weighting that makes one vector of those of a text."""

    skips_unknown = True

    def __init__(
        self,
        reference: str,
        options: Mapping[str, str],
        tokenizer: Tokenizing,
        vectors: NDArray[np.float32] | WordVectors,
        *,
        weighting: Weighting = Average(),  # noqa: B008
        frequencies: Frequencies | None = None,
        corpus: Corpus | None = None,
        normalize: bool = False,
    ) -> None:
        self._numbers: Numbers = vectors.vectors if isinstance(vectors, WordVectors) else vectors
        self._scales: Scales | None = vectors.scales if isinstance(vectors, WordVectors) else None
        self._subwords: Subwords | None = vectors.subwords if isinstance(vectors, WordVectors) else None
        if not isinstance(vectors, WordVectors):
            _check.finite_rows(reference, "token vectors", vectors)
        weighting.check(self._numbers.shape[1])
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.weighting = weighting
        self.frequencies = frequencies
        self.normalize = normalize
        if corpus is None and not weighting.learns and (frequencies is not None or not weighting.uses_frequencies):
            corpus = self._corpus(frequencies)
        self.corpus = corpus
        known = Corpus() if corpus is None else corpus
        self._table = RowTable(self._numbers, self._scales, self._subwords, known.word_map, known.principal)
        word_dim = self._numbers.shape[1] if known.word_map is None else known.word_map.n_components
        super().__init__(reference, options, weighting.dim(word_dim))

    @property
    def needs_corpus(self) -> bool:
        """Whether it has to be fitted on texts before it can encode."""
        return self.corpus is None

    @property
    def is_plain(self) -> bool:
        """Whether the words are plainly averaged."""
        return isinstance(self.weighting, Average)

    @property
    def corpus_size(self) -> int:
        """Texts with a known word that it was fitted on."""
        return 0 if self.corpus is None else self.corpus.n_texts

    def on_corpus(self, texts: Sequence[str], *, progress: Progress | None = None) -> StaticEncoder:
        """Fit the weighting on texts, if it needs them."""
        if not self.needs_corpus:
            return self
        texts = _check.text_list("on_corpus", texts)
        windows = [self.tokenize(window) for window in text_blocks(texts, WINDOW)]
        n_texts = sum(int(np.count_nonzero(window.lengths)) for window in windows)
        if not n_texts:
            raise InputError(f"fit: texts must hold words that the encoder knows; got {len(texts)} texts without any.")
        frequencies = self.frequencies
        if self.weighting.uses_frequencies:
            counts = np.zeros(len(self._numbers), dtype=np.int64)
            for window in windows:
                counts += count_tokens(window, len(counts))
            if frequencies is None:
                frequencies = frequencies_of_counts(counts)
            else:
                warn_if_many_without(frequencies.share_without(counts), self.options.get("frequencies", "frequencies"))
        known = self._with(self._corpus(frequencies, n_texts, sum(len(window.ids) for window in windows) / n_texts))
        if not self.weighting.has_principal:
            return known
        return known.on_moments(known._coarse_moments(windows, progress))

    def corpus_moments(self, texts: Sequence[str]) -> Moments:
        """Moments of the coarse vectors of texts, from which GEM takes its principal vectors; parts may be added."""
        self._require_principal("corpus_moments")
        if self.weighting.whitens_words and self.frequencies is None:
            raise InputError("corpus_moments: frequencies must be given before words are whitened; got none.")
        known = self._with(self.corpus or self._corpus(self.frequencies))
        texts = _check.text_list("corpus_moments", texts)
        windows = (known.tokenize(window) for window in text_blocks(texts, WINDOW))
        return known._coarse_moments(windows)

    def on_moments(self, moments: Moments) -> StaticEncoder:
        """Fit GEM on what `corpus_moments` returned."""
        self._require_principal("on_moments")
        corpus = self.corpus or self._corpus(self.frequencies)
        _check.same_dim("on_moments", "moments", moments.dim, self._with(corpus)._table.dim)
        if not moments.weight:
            raise InputError("on_moments: moments must be those of at least one text; got none.")
        n_texts = corpus.n_texts or round(moments.weight)
        return self._with(replace(corpus, n_texts=n_texts, principal=self.weighting.principal(moments)))

    def own_transform(self) -> LinearTransform | None:
        """Return the linear step of the weighting."""
        return self.weighting.transform()

    def settings(self) -> dict[str, str]:
        """Return weighting, its settings, and where frequencies come from."""
        settings, facts = options_of(self.weighting), self.fingerprint_facts()
        return settings | {"frequencies": facts["frequencies"]} if "frequencies" in facts else settings

    def corpus_tensors(self) -> dict[str, NDArray[np.float64]]:
        """Return what it knows of its corpus."""
        return self.corpus.tensors() if self.corpus is not None and self.corpus_size else {}

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts."""
        return self.tokenizer(texts)

    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors of texts, which depend on nothing but their own words; zero for a text without any."""
        corpus = self.corpus or Corpus()
        with self._table.lock:
            vectors = self.weighting.combine(self._words(tokens), corpus)
        if progress:
            progress(len(tokens.lengths))
        return unit_rows(vectors).astype(np.float32, copy=False) if self.normalize else vectors

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield the vectors, or their hash, and what it knows of its corpus."""
        if isinstance(self.vectors, WordVectors):
            yield np.frombuffer(self.vectors.content_hash.encode(), dtype=np.uint8)
        else:
            yield self.vectors
        tensors = {} if self.corpus is None else self.corpus.tensors()
        yield from (tensors[name] for name in sorted(tensors))

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        return self.tokenizer.vocabulary()

    def fingerprint_facts(self) -> dict[str, str]:
        """Return the options, with the names of files in place of their paths, and the stop words themselves."""
        facts = {
            name: value.rpartition("/")[2] if name in FILE_OPTIONS else value for name, value in self.options.items()
        }
        token_filter = getattr(self.tokenizer, "token_filter", None)
        stop_words = " ".join(sorted(token_filter.stop_words)) if token_filter else ""
        return facts | {"stop_words": stop_words} if stop_words else facts

    @cached_property
    def token_vectors(self) -> NDArray[np.float32]:
        """One vector a token, of which a text's vector is the mean, for exports; shape (vocab_size, dim)."""
        self.require_fitted("export")
        if not self.weighting.is_linear or getattr(self.tokenizer, "unknown", "skip") != "skip":
            got = f"unknown={self.options['unknown']}" if self.weighting.is_linear else self.weighting.name
            raise InputError(
                f"export: a text must be the mean of its known words, plain or weighted; got {got}. "
                "Take isosent itself along for it."
            )
        corpus = self.corpus or Corpus()
        rows = decoded(self._numbers, self._scales, slice(None))
        if corpus.word_map is not None:
            rows = corpus.word_map.apply(rows).astype(np.float32, copy=False)
        return rows if self._weights is None else rows * self._weights[:-1, None]

    @cached_property
    def _weights(self) -> NDArray[np.float32] | None:
        """Weight of each word, and of any unknown one behind them."""
        weights = self.weighting.word_weights(self.corpus or Corpus())
        return None if weights is None else weights.astype(np.float32)

    def _words(self, tokens: TokenIds) -> Words:
        rows, products, ids = self._table.look_up(tokens)
        weights = self._weights
        of_tokens = None if weights is None else weights[np.minimum(tokens.ids, len(weights) - 1)]
        return Words(rows, products, ids, tokens.offsets, of_tokens)

    def _coarse_moments(self, windows: Iterable[TokenIds], progress: Progress | None = None) -> Moments:
        """Moments of several windows at a time: the threads of both kinds of work get in each other's way."""
        moments, collected = Moments.empty(self._table.dim), []
        for tokens in windows:
            with self._table.lock:
                vectors = self.weighting.coarse(self._words(tokens))
            collected.append(vectors[tokens.lengths > 0])
            if len(collected) == _WINDOWS_AT_ONCE:
                moments, collected = moments + Moments.from_rows(np.concatenate(collected)), []
            if progress:
                progress(len(tokens.lengths))
        return moments + Moments.from_rows(np.concatenate(collected)) if collected else moments

    def _require_principal(self, where: str) -> None:
        if not self.weighting.has_principal:
            raise InputError(f"{where}: weighting must be gem, with principal vectors; got {self.weighting.name}.")

    def _with(self, corpus: Corpus) -> StaticEncoder:
        return StaticEncoder(
            self.reference,
            self.options,
            self.tokenizer,
            self.vectors,
            weighting=self.weighting,
            frequencies=self.frequencies,
            corpus=corpus,
            normalize=self.normalize,
        )

    def _corpus(self, frequencies: Frequencies | None, n_texts: int = 0, mean_length: float = 0.0) -> Corpus:
        """What frequencies and counts tell, ahead of principal vectors."""
        if not self.weighting.uses_frequencies or frequencies is None:
            return Corpus(n_texts, mean_length)
        probabilities = frequencies.probabilities
        word_map = self._zipfian_map(probabilities) if self.weighting.whitens_words else None
        return Corpus(n_texts, mean_length, probabilities, word_map)

    def _zipfian_map(self, probabilities: NDArray[np.float64]) -> LinearMap:
        """Whitening of the word vectors, each counted by its probability."""
        frequent = np.flatnonzero(probabilities)
        if not len(frequent):
            raise InputError("zipfian: frequencies must be those of at least one known word; got none.")
        moments = Moments.empty(self._numbers.shape[1])
        for start in range(0, len(frequent), _BLOCK):
            ids = frequent[start : start + _BLOCK]
            moments = moments + Moments.from_rows(decoded(self._numbers, self._scales, ids), probabilities[ids])
        return make_linear("whitening").fit_moments(moments).linear_map_
