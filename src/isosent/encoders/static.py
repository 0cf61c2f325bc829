"""Encoders without context: word vectors, Model2Vec folders, and the token embeddings of transformers.

`tokenize` gives token ids; `embed` looks up their rows in a `RowTable`, which holds words after the word map and their
products with principal vectors, and lets the weighting combine them. `on_corpus` counts words and texts and, for GEM,
takes principal vectors from the moments of coarse vectors; it returns a new encoder that shares the vectors.
`summands` and `token_vectors` are the same sums word by word, for explanations and exports. Models are read in
`static_models`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent._locks import Lock
from isosent.encoders.base import WINDOW, Encoder, Summands, TokenSpan, check_range, check_same
from isosent.encoders.output_modules import LoadedModule, apply_to_rows
from isosent.encoders.reference import (
    FILE_OPTIONS,
    options_of,
    write_options,
)
from isosent.encoders.word_average import Average, Corpus, Weighting, Words
from isosent.errors import InputError, wrong_value
from isosent.io.texts import text_blocks
from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.pages.progress import Progress, counted
from isosent.space import Space
from isosent.transforms.base import LinearTransform, make_linear
from isosent.words.frequencies import (
    count_tokens,
    frequencies_of_counts,
    share_without,
    warn_if_many_without,
)
from isosent.words.ngrams import NgramTable, vectors_of_unknown
from isosent.words.subwords import SubwordTokenizer
from isosent.words.tokens import (
    TokenIds,
    Tokenizing,
)
from isosent.words.word_vectors import WordVectors

MOST_EXPLAINED = 5000  # two such texts have 25 million pairs of words
_BLOCK = 1 << 16
_WINDOWS_AT_ONCE = 8
_NO_PRODUCTS = np.empty((0, 0))


class StaticEncoder(Encoder):
    """Word vectors, and a weighting that turns those of a text into one vector."""

    skips_unknown = True
    shared_space: Space | None = None  # of another model, with whose vectors these can be compared
    fitted_texts: NDArray[np.uint64] | None = None  # hashes of the texts that it was distilled from

    def __init__(
        self,
        reference: str,
        options: Mapping[str, str],
        tokenizer: Tokenizing,
        vectors: NDArray[np.float32] | WordVectors,
        *,
        weighting: Weighting = Average(),  # noqa: B008
        frequencies: NDArray[np.float64] | None = None,
        corpus: Corpus | None = None,
        modules: Sequence[LoadedModule] = (),
        normalize: bool = False,
    ) -> None:
        self._rows = vectors.vectors if isinstance(vectors, WordVectors) else vectors
        tables = vectors.tables if isinstance(vectors, WordVectors) else ()
        if not isinstance(vectors, WordVectors):
            _check.finite_rows(reference, "token vectors", vectors)
        weighting.check(self._rows.shape[1])
        self.vectors = vectors
        self.tokenizer = tokenizer
        self.weighting = weighting
        self.frequencies = frequencies
        self.modules = tuple(modules)  # after the mean, for arrays
        self.normalize = normalize  # after these
        if corpus is None and not weighting.learns and (frequencies is not None or not weighting.uses_frequencies):
            corpus = self._corpus(frequencies)
        self.corpus = corpus
        learned = corpus or Corpus()
        self._table = RowTable(self._rows, tables, learned.word_map, learned.principal)
        super().__init__(reference, options, modules[-1].out_dim if modules else weighting.dim(self._table.dim))

    @property
    def needs_corpus(self) -> bool:
        """Whether it must be fitted on texts before it can encode."""
        return self.corpus is None

    @property
    def corpus_size(self) -> int:
        """Texts with a known word that it was fitted on."""
        return 0 if self.corpus is None else self.corpus.n_texts

    def on_corpus(self, texts: Sequence[str], *, progress: Progress | None = None) -> StaticEncoder:
        """Return it fitted on texts, if the weighting needs them."""
        if not self.needs_corpus:
            return self
        texts = _check.text_list("on_corpus", texts)
        windows = [self.tokenize(window) for window in text_blocks(texts, WINDOW)]
        n_texts = sum(int(np.count_nonzero(window.lengths)) for window in windows)
        if not n_texts:
            raise InputError(f"fit: the encoder knows no word of the {len(texts)} texts.")
        frequencies = self.frequencies
        if self.weighting.uses_frequencies:
            counts = np.zeros(len(self._rows), dtype=np.int64)
            for window in windows:
                counts += count_tokens(window, len(counts))
            if frequencies is None:
                frequencies = frequencies_of_counts(counts)
            else:
                warn_if_many_without(share_without(frequencies, counts), self.options.get("frequencies", "frequencies"))
        mean_length = sum(len(window.ids) for window in windows) / n_texts
        fitted = self._with(self._corpus(frequencies, n_texts, mean_length))
        if not self.weighting.has_principal:
            return fitted
        counted_windows = counted(windows, progress, len(texts), lambda window: len(window.lengths))
        return fitted.on_moments(fitted._coarse_moments(counted_windows))

    def corpus_moments(self, texts: Sequence[str]) -> Moments:
        """Moments of the coarse vectors of texts, from which GEM takes its principal vectors; they may be added."""
        self._require_principal("corpus_moments")
        if self.weighting.whitens_words and self.frequencies is None:
            raise InputError("zipfian whitening needs frequencies from a file.", where="corpus_moments")
        encoder = self._with(self.corpus or self._corpus(self.frequencies))
        texts = _check.text_list("corpus_moments", texts)
        return encoder._coarse_moments(encoder.tokenize(window) for window in text_blocks(texts, WINDOW))

    def on_moments(self, moments: Moments) -> StaticEncoder:
        """Return it with GEM fitted on what `corpus_moments` returned."""
        self._require_principal("on_moments")
        corpus = self.corpus or self._corpus(self.frequencies)
        _check.same_dim("on_moments", "moments", moments.dim, self._with(corpus)._table.dim)
        if not moments.weight:
            raise wrong_value("on_moments", "moments", "be those of at least one text", "none")
        n_texts = corpus.n_texts or round(moments.weight)
        return self._with(replace(corpus, n_texts=n_texts, principal=self.weighting.principal(moments)))

    def own_transform(self) -> LinearTransform | None:
        """The linear step of the weighting."""
        return self.weighting.transform()

    def settings(self) -> dict[str, str]:
        """Weighting, its settings, and where frequencies come from."""
        settings, facts = write_options(options_of(self.weighting)), self.fingerprint_facts()
        return settings | {"frequencies": facts["frequencies"]} if "frequencies" in facts else settings

    def corpus_tensors(self) -> dict[str, NDArray[np.float64]]:
        """What it learned from texts."""
        return self.corpus.tensors() if self.corpus is not None and self.corpus_size else {}

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts."""
        return self.tokenizer(texts)

    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors of texts, shape (n_texts, dim); zero for a text without a known word."""
        with self._table.lock:
            vectors = self.weighting.combine(self._words(tokens), self.corpus or Corpus())
        vectors = apply_to_rows(self.modules, vectors) if self.modules else vectors
        return unit_rows(vectors).astype(np.float32, copy=False) if self.normalize else vectors

    def spans(self, text: str) -> list[TokenSpan]:
        """Return the tokens of a text."""
        tokens = self.tokenize([text])
        if isinstance(self.tokenizer, SubwordTokenizer):
            places = self.tokenizer.spans(text, tokens)
        else:
            return self._word_spans(text, tokens)
        return [
            TokenSpan(number, text[start:stop], False, start, stop)
            for number, (start, stop) in zip(tokens.ids.tolist(), places, strict=True)
        ]

    def _word_spans(self, text: str, tokens: TokenIds) -> list[TokenSpan]:
        """Words with their places; without one if the text does not have the word as it is in the vocabulary."""
        spans, end = [], 0
        for number, word in zip(tokens.ids.tolist(), self.tokenizer.spell(text, tokens)[0], strict=True):
            start = text.find(word, end)
            end = end if start < 0 else start + len(word)
            place = (None, None) if start < 0 else (start, end)
            spans.append(TokenSpan(number, word, False, *place))
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        """Return a text with these token ids; refuse ids that `tokenize` would not give it."""
        check_range(self.reference, ids, len(self._rows))
        text = self.tokenizer.decode(ids)
        check_same(self.reference, ids, self.tokenize([text]).ids.tolist())
        return text

    def token_embeddings(self, text: str) -> NDArray[np.float32]:
        """Return the vectors of the tokens of a text, shape (n_tokens, token_dim)."""
        self.require_fitted("token embeddings")
        with self._table.lock:
            rows, _, ids = self._table.look_up(self.tokenize([text]))
            return rows[ids]

    def summands(self, text: str) -> Summands:
        """Return the words of a text and the vectors that add up to its own."""
        self.require_fitted("explain")
        if self.modules:
            raise InputError(
                f"explain: {self.reference} applies {self.modules[0].spec.kind} to the mean of token vectors, so that "
                "a cosine is no sum over pairs of words. Use a static model without such modules."
            )
        tokens = self.tokenize([text])
        if len(tokens.ids) > MOST_EXPLAINED:
            raise InputError(
                f"explain: the text has {len(tokens.ids):,} tokens. At most {MOST_EXPLAINED:,} can be explained."
            )
        with self._table.lock:
            vectors = self.weighting.summands(self._words(tokens), self.corpus or Corpus())
        if vectors is None:
            raise InputError(
                f"explain: {self.weighting.name} takes other powers of word vectors than their mean, so that a cosine "
                "is no sum over pairs of words. Use another weighting, or powers=1."
            )
        if self.normalize:
            vectors /= np.linalg.norm(vectors.sum(axis=0)) or 1.0
        words, word_of = self.tokenizer.spell(text, tokens)
        sums, n_tokens = np.zeros((len(words), vectors.shape[1])), np.bincount(word_of, minlength=len(words))
        np.add.at(sums, word_of, vectors)
        is_mean = self.weighting.is_linear and self._weights is None and not self.normalize
        return Summands(words, sums, n_tokens / max(1, len(vectors)) if is_mean else None)

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield the vectors, or their hash, and what it learned from texts."""
        if isinstance(self.vectors, WordVectors):
            yield np.frombuffer(self.vectors.content_hash.encode(), dtype=np.uint8)
        else:
            yield self.vectors
        tensors = {} if self.corpus is None else self.corpus.tensors()
        yield from (tensors[name] for name in sorted(tensors))
        for module in self.modules:
            yield np.frombuffer(json.dumps([module.spec.kind, module.spec.config], sort_keys=True).encode(), np.uint8)
            yield from (module.weights[name] for name in sorted(module.weights))

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        return self.tokenizer.vocabulary()

    def fingerprint_facts(self) -> dict[str, str]:
        """Options, with the names of files in place of their paths, and the stop words themselves."""
        facts = {
            name: value.rpartition("/")[2] if name in FILE_OPTIONS else value for name, value in self.options.items()
        }
        token_filter = getattr(self.tokenizer, "token_filter", None)
        stop_words = " ".join(sorted(token_filter.stop_words)) if token_filter else ""
        return facts | {"stop_words": stop_words} if stop_words else facts

    @cached_property
    def token_vectors(self) -> NDArray[np.float32]:
        """One vector per token, whose mean is that of a text before the modules, for exports; (vocab_size, dim)."""
        self.require_fitted("export")
        if not self.weighting.is_linear or getattr(self.tokenizer, "unknown", "skip") != "skip":
            option = f"unknown={self.options['unknown']}" if self.weighting.is_linear else self.weighting.name
            raise InputError(
                f"export: other formats have no {option}: there, a text is the mean of its known words, plain or "
                "weighted. Use isosent itself for this model."
            )
        rows = self._rows
        if self.corpus is not None and self.corpus.word_map is not None:
            rows = self.corpus.word_map.apply(rows).astype(np.float32, copy=False)
        return rows if self._weights is None else rows * self._weights[:-1, None]

    @cached_property
    def _weights(self) -> NDArray[np.float32] | None:
        """Weight of each word; the last one is that of any unknown word."""
        weights = self.weighting.word_weights(self.corpus or Corpus())
        return None if weights is None else weights.astype(np.float32)

    def _words(self, tokens: TokenIds) -> Words:
        rows, products, ids = self._table.look_up(tokens)
        weights = self._weights
        token_weights = None if weights is None else weights[np.minimum(tokens.ids, len(weights) - 1)]
        return Words(rows, products, ids, tokens.offsets, token_weights)

    def _coarse_moments(self, windows: Iterable[TokenIds]) -> Moments:
        # several windows at a time: the threads of coarse vectors and of moments would get in each other's way
        moments, collected = Moments.empty(self._table.dim), []
        for tokens in windows:
            with self._table.lock:
                vectors = self.weighting.coarse(self._words(tokens))
            has_words = tokens.lengths > 0
            collected.append(vectors if has_words.all() else vectors[has_words])
            if len(collected) == _WINDOWS_AT_ONCE:
                moments, collected = moments + Moments.from_rows(np.concatenate(collected)), []
        return moments + Moments.from_rows(np.concatenate(collected)) if collected else moments

    def _require_principal(self, where: str) -> None:
        if not self.weighting.has_principal:
            raise InputError(f"the weighting is {self.weighting.name}. Only gem has principal vectors.", where=where)

    def _with(self, corpus: Corpus) -> StaticEncoder:
        return StaticEncoder(
            self.reference,
            self.options,
            self.tokenizer,
            self.vectors,
            weighting=self.weighting,
            frequencies=self.frequencies,
            corpus=corpus,
            modules=self.modules,
            normalize=self.normalize,
        )

    def _corpus(self, frequencies: NDArray[np.float64] | None, n_texts: int = 0, mean_length: float = 0.0) -> Corpus:
        """What frequencies and counts determine, without principal vectors."""
        if not self.weighting.uses_frequencies or frequencies is None:
            return Corpus(n_texts, mean_length)
        probabilities = frequencies
        word_map = self._zipfian_map(probabilities) if self.weighting.whitens_words else None
        return Corpus(n_texts, mean_length, probabilities, word_map)

    def _zipfian_map(self, probabilities: NDArray[np.float64]) -> LinearMap:
        """Whitening of the word vectors, each weighted by its probability (Yokoi et al. 2024)."""
        frequent = np.flatnonzero(probabilities)
        if not len(frequent):
            raise InputError("zipfian: the model knows no word of the frequencies. Check their language.")
        moments = Moments.empty(self._rows.shape[1])
        for start in range(0, len(frequent), _BLOCK):
            ids = frequent[start : start + _BLOCK]
            moments = moments + Moments.from_rows(self._rows[ids], probabilities[ids])
        return make_linear("whitening").fit_moments(moments).linear_map_


class RowTable:
    """Rows of words, after the word map, and their products with principal vectors; computed once per word."""

    def __init__(
        self,
        vectors: NDArray[np.float32],
        tables: Sequence[NgramTable],
        word_map: LinearMap | None,
        principal: PrincipalVectors | None,
    ) -> None:
        self._vectors = vectors
        self._tables = tables
        self._word_map = word_map
        self._principal = principal
        # vectors that need no map are used where they lie
        self._is_direct = word_map is None and principal is None
        self._n_rows = 0
        self._place: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._rows = np.empty((0, vectors.shape[1] if word_map is None else word_map.n_components), dtype=np.float32)
        self._products = _NO_PRODUCTS
        self._mean: NDArray[np.float32] | None = None
        self.lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RowTable, (self._vectors, self._tables, self._word_map, self._principal)

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return self._rows.shape[1]

    def look_up(self, tokens: TokenIds) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int32]]:
        """Rows, products, and the row of each token; hold `lock` while they are in use."""
        if self._is_direct and not tokens.unknown:
            return self._vectors, _NO_PRODUCTS, tokens.ids
        vocab_size = len(self._vectors)
        if not len(self._place):
            self._place = np.full(vocab_size, -1, dtype=np.int32)
        is_known = tokens.ids < vocab_size
        ids = tokens.ids[is_known] if tokens.unknown else tokens.ids
        new = np.unique(ids[self._place[ids] < 0])
        self._write(self._vectors[new])
        first, self._n_rows = self._n_rows, self._n_rows + len(new)
        self._place[new] = np.arange(first, self._n_rows)
        if not tokens.unknown:
            return self._rows, self._products, self._place[ids]
        self._write(self._vectors_of_unknown(tokens.unknown))  # after the rows that stay, for this call only
        rows = tokens.ids + np.int32(self._n_rows - vocab_size)
        rows[is_known] = self._place[ids]
        return self._rows, self._products, rows

    def _write(self, vectors: NDArray[np.float32]) -> None:
        """Append rows to those that stay."""
        rows = vectors
        if self._word_map is not None:
            rows = self._word_map.apply(vectors).astype(np.float32, copy=False)
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
        if self._tables:
            return vectors_of_unknown(self._tables, words, self._vectors.shape[1])
        if self._mean is None:
            blocks = (slice(start, start + _BLOCK) for start in range(0, len(self._vectors), _BLOCK))
            sums = [self._vectors[block].sum(axis=0, dtype=np.float64) for block in blocks]
            self._mean = (np.sum(sums, axis=0) / len(self._vectors)).astype(np.float32)
        return np.broadcast_to(self._mean, (len(words), len(self._mean)))


def _with_room(array: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """The array, or one of at least twice its length that begins with it."""
    if n_rows <= len(array):
        return array
    longer = np.empty((max(n_rows, 2 * len(array)), array.shape[1]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
