"""Rows of tokens whose means are near the vectors of a model: what a distilled model is made of, and what it keeps.

`TokenizedTexts` holds the tokens of all texts, and which of them are held out; `prior_rows` are the tokens alone,
`contextual_rows` in texts; `Fit` solves the regression of `numeric.sparse_ridge` with the prior and the penalty that
are best on held-out texts; `measure` says what is lost, against the model and against wordllama.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.processors import TemplateProcessing

from isosent.encoders.load import encoder_for
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.exports.tokenizer import tokenizer_for_static
from isosent.io.vector_source import in_blocks
from isosent.jobs.token_sums import TokenSums
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import nearest_of_blocks
from isosent.numeric.similarity import pairwise_cosine, spearman, unit_rows
from isosent.numeric.sparse_ridge import PART_TEXTS, TokenShares, solve
from isosent.numeric.statistics import bootstrap_interval
from isosent.numeric.word_averages import sif_weights
from isosent.pages.progress import Progress, counted
from isosent.transforms.agreement import sample_pairs
from isosent.words.subwords import SubwordTokenizer

FEWEST_TEXTS = 200
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0)
_MOST_HELD_OUT = 2000
_TRIAL_COLUMNS = 32  # of the vectors, on which penalties are compared
_SCALES = np.geomspace(0.5, 4, 13)
_NEAREST = 10
TIMED_TEXTS = 128
_N_ALONE = 30  # occurrences for which a token alone counts
_RESERVED = re.compile(r"[\[<]unused_?\d+[\]>]")

Array = NDArray[np.float64]
Blocks = Callable[[], Iterator[NDArray[Any]]]  # opens vectors, which are read several times


class TokenizedTexts:
    """The tokens of all texts: which texts are fitted on, which are held out, and which tokens they have."""

    def __init__(self, windows: Iterable[Sequence[str]], tokenizer: SubwordTokenizer) -> None:
        ids, lengths, hashes = [np.empty(0, np.int32)], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        self.n_unknown = self.n_characters = self.n_words = 0
        for window in windows:
            tokens = tokenizer(window)
            ids.append(tokens.ids)
            lengths.append(tokens.lengths)
            bounds = zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
            digests = (blake2b(tokens.ids[start:stop].tobytes(), digest_size=8).digest() for start, stop in bounds)
            hashes.append(np.frombuffer(b"".join(digests), np.uint64))
            self.n_unknown += tokens.n_unknown
            self.n_characters += sum(map(len, window))
            self.n_words += sum(len(text.split()) for text in window)
        together = np.concatenate(ids)
        self.vocab, self.n_tokens = np.flatnonzero(np.bincount(together)), len(together)  # tokens that occur
        place = np.zeros(together.max(initial=0) + 1, np.int32)
        place[self.vocab] = np.arange(len(self.vocab))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        self.shares = TokenShares(place[together], offsets, len(self.vocab))
        self._split(np.concatenate(hashes))

    def _split(self, hashes: NDArray[np.uint64]) -> None:
        """Choose the texts by their tokens alone: each sequence of tokens counts once, and is in one part only."""
        first = np.unique(hashes, return_index=True)[1]
        used = np.sort(first[np.diff(self.shares.offsets)[first] > 0])
        n_held_out = min(_MOST_HELD_OUT, len(used) // 10)
        is_held_out = np.zeros(len(used), bool)
        is_held_out[np.argsort(hashes[used], kind="stable")[:n_held_out]] = True
        self.fitted, self.held_out = used[~is_held_out], used[is_held_out]
        self.keep(np.ones(len(hashes), bool))

    def keep(self, has_vector: NDArray[np.bool_]) -> None:
        """Leave the other texts out."""
        self.fitted, self.held_out = (part[has_vector[part]] for part in (self.fitted, self.held_out))
        if (n_texts := len(self.fitted) + len(self.held_out)) < FEWEST_TEXTS:
            raise InputError(f"distill: there are {n_texts} different texts; {FEWEST_TEXTS} at least are needed.")

    @property
    def is_fitted_on(self) -> NDArray[np.bool_]:
        """Whether each text is fitted on, (n_texts,)."""
        flags = np.zeros(len(self.shares), bool)
        flags[self.fitted] = True
        return flags

    @cached_property
    def probabilities(self) -> Array:
        """Share of each token that occurs among all tokens of the texts that are fitted on."""
        counts = np.bincount(self.shares.take(self.fitted).ids, minlength=len(self.vocab))
        return counts / counts.sum()

    def sentences(self) -> list[str]:
        """What is wrong with the texts, in a sentence each."""
        characters = self.n_characters / max(1, self.n_tokens)
        is_spaced = self.n_characters < 12 * self.n_words
        warnings = []
        if len(self.fitted) < 1000:
            warnings.append(f"{len(self.fitted)} texts are few: with 20,000, more of the model is kept.")
        if characters < (1.25 if is_spaced else 0.6) or self.n_unknown > 0.3 * self.n_tokens:
            warnings.append(
                f"The tokenizer of the model cuts these texts into {characters:.1f} characters a token, and "
                f"{self.n_unknown:,} tokens are unknown to it: the texts are of another language than the model."
            )
        return warnings


def rows_in_parts(blocks: Iterator[NDArray[Any]], rows: NDArray[np.intp]) -> Iterator[NDArray[Any]]:
    """Unit vectors of some rows, whose numbers rise, in the parts that `TokenShares` has."""

    def unit_blocks() -> Iterator[NDArray[Any]]:
        start = 0
        for block in blocks:
            first, last = np.searchsorted(rows, [start, start + len(block)])
            yield unit_rows(block[rows[first:last] - start].astype(np.float32, copy=False))
            start += len(block)

    return in_blocks(unit_blocks(), PART_TEXTS)


def static_tokenizer(model: SentenceEncoder, path: Path) -> SubwordTokenizer:
    """The tokenizer of the model without prompt, special tokens and maximum length."""
    tokenizer = tokenizer_for_static(model.encoder)
    tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(path), pretty=False)
    return SubwordTokenizer(path)


def prior_rows(model: SentenceEncoder, tokenizer: SubwordTokenizer, progress: Progress | None) -> Array:
    """Unit vectors of each token alone, (vocab_size, dim); zero for tokens that stand for no part of a text."""
    encoder = encoder_for(model.encoder, "query")
    vocabulary = tokenizer.tokenizer.get_vocab(with_added_tokens=True)
    left_out = {number for token, number in vocabulary.items() if _RESERVED.fullmatch(token)}
    left_out |= {number for number, token in tokenizer.tokenizer.get_added_tokens_decoder().items() if token.special}
    ids = sorted(set(vocabulary.values()) - left_out - {tokenizer.unknown_id})
    rows = np.zeros((tokenizer.largest_id + 1, model.dim))
    if isinstance(encoder, TransformerEncoder):
        alone = encoder.embed_alone(ids, progress)
    else:  # an API takes texts alone; a part of a character is none
        texts = [tokenizer.tokenizer.decode([number]) for number in ids]
        alone = encoder.encode(["" if "\ufffd" in text else text for text in texts], progress=progress)
    rows[ids] = unit_rows(model.transform(alone, queries=True))
    return rows


def contextual_rows(alone: Array, sums: TokenSums) -> Array:
    """Mean unit vector of each token in texts and alone, about the mean of all; zero where `alone` is."""
    rows, counts, is_used = _N_ALONE * alone, np.full((len(alone), 1), float(_N_ALONE)), alone.any(axis=1)
    seen = sums.arrays()
    rows[seen["ids"]] += seen["sums"]
    counts[seen["ids"], 0] += seen["counts"]
    rows[~is_used] = 0
    rows[is_used] = rows[is_used] / counts[is_used] - (rows[is_used] / counts[is_used]).mean(axis=0)
    return rows


class Fit:
    """The regression: the better of some priors, and rows of all tokens for a penalty; vectors are about `mean`."""

    def __init__(self, corpus: TokenizedTexts, blocks: Blocks, priors: Sequence[Array]) -> None:
        self._corpus, self._blocks = corpus, blocks
        self.shares, self.held_shares = corpus.shares.take(corpus.fitted), corpus.shares.take(corpus.held_out)
        total = np.zeros(priors[0].shape[1])

        def counted() -> Iterator[NDArray[Any]]:
            for part in rows_in_parts(blocks(), corpus.fitted):
                total[:] += part.sum(axis=0, dtype=np.float64)
                yield part

        cross = self.shares.transposed(counted())
        self.mean = total / len(self.shares)
        self._sums = self.shares.transposed(np.ones((stop - start, 1)) for start, stop in self.shares.bounds())
        self._cross = cross - self._sums * self.mean
        self.held_out = np.concatenate(list(rows_in_parts(blocks(), corpus.held_out))) - self.mean
        scaled = [self._scaled_prior(prior) for prior in priors]
        scores = [r2(self.held_out, self.predicted(prior[corpus.vocab])) for prior in scaled]
        self.prior = scaled[int(np.argmax(scores))]
        self.is_in_context = int(np.argmax(scores)) > 0  # the prior
        self._image = self._normal_image(self.shares)

    def _scaled_prior(self, alone: Array) -> Array:
        """Tokens alone by their SIF weights, with mean 0 over the texts, and the scale of the vectors."""
        vocab, weights = self._corpus.vocab, np.ones((len(alone), 1))
        weights[vocab] = sif_weights(self._corpus.probabilities)[:, None]
        prior = alone * weights
        center = (self._sums * prior[vocab]).sum(axis=0) / len(self.shares)
        prior[alone.any(axis=1)] -= center
        own = sum(float((part**2).sum()) for part in self.shares.vectors(prior[vocab]))
        scale = float((self._cross * prior[vocab]).sum()) / own if own > 0 else 0.0
        return prior * max(scale, 0.0)

    def _normal_image(self, shares: TokenShares) -> Array:
        """A'A of the prior, for some of the texts."""
        return shares.transposed(shares.vectors(self.prior[self._corpus.vocab]))

    def rows(self, penalty: float, cross: Array | None = None) -> Array:
        """Rows of the tokens that occur, (n_tokens, dim); `cross` is A'Y of other targets."""
        right = (self._cross if cross is None else cross) - self._image
        return self.prior[self._corpus.vocab] + solve(self.shares, right, penalty)

    def predicted(self, rows: Array) -> Array:
        """Vectors of the held-out texts."""
        return np.concatenate(list(self.held_shares.vectors(rows)))

    def held_out_r2(self, penalty: float, shares: TokenShares | None = None, cross: Array | None = None) -> float:
        """R2 on held-out texts of some columns, fitted on all texts or on some with their own A'Y."""
        columns = self.trial_columns
        image = self._image if shares is None else self._normal_image(shares)
        right = (self._cross[:, columns] if cross is None else cross) - image[:, columns]
        added = solve(shares or self.shares, right, penalty)
        predicted = self.predicted(self.prior[self._corpus.vocab][:, columns] + added)
        return r2(self.held_out[:, columns], predicted)

    @property
    def trial_columns(self) -> slice:
        """Columns on which penalties are compared."""
        return slice(None, None, max(1, self.prior.shape[1] // _TRIAL_COLUMNS))

    def half_data_r2(self, penalty: float) -> float:
        """R2 as of `held_out_r2`, fitted on half of the texts."""
        texts, columns = self._corpus.fitted[::2], self.trial_columns
        shares = self._corpus.shares.take(texts)
        parts = (part[:, columns] - self.mean[columns] for part in rows_in_parts(self._blocks(), texts))
        return self.held_out_r2(penalty, shares, shares.transposed(parts))

    def cross_of_directions(self, rows: Array) -> Array:
        """A'Y of targets with the direction of the vectors, and the length that some rows predict of them."""

        def targets() -> Iterator[Array]:
            parts = rows_in_parts(self._blocks(), self._corpus.fitted)
            for part, predicted in zip(parts, self.shares.vectors(rows), strict=True):
                units = unit_rows(part - self.mean)
                yield units * np.einsum("ij,ij->i", units, predicted).clip(min=0)[:, None]

        return self.shares.transposed(targets())

    def best_scale(self, rows: Array) -> tuple[float, float]:
        """Highest mean cosine to the model on held-out texts, and the scale of the rows that has it."""
        predicted, vectors = self.predicted(rows), self.held_out + self.mean
        cosines = {float(s): float(pairwise_cosine(vectors, s * predicted + self.mean).mean()) for s in _SCALES}
        scale = max(cosines, key=cosines.__getitem__)
        return cosines[scale], scale

    def best(self, progress: Progress) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Rows of all tokens in the space of the model, and how well they predict its vectors of held-out texts."""
        n_systems = len(PENALTIES) + 4
        penalties = counted(PENALTIES, progress, n_systems, lambda _: 1)
        trials = {penalty: self.held_out_r2(penalty) for penalty in penalties}
        penalty = max(trials, key=trials.__getitem__)
        halves = {"half": self.half_data_r2(penalty), "all": trials[penalty]}
        progress(len(PENALTIES) + 1, n_systems)
        solved = self.rows(penalty)
        progress(len(PENALTIES) + 2, n_systems)
        # one more solve, for targets without lengths, which bear a smaller penalty than R2 asks for
        cross = self.cross_of_directions(solved)
        candidates = [(penalty, solved), (penalty, self.rows(penalty, cross))]
        progress(len(PENALTIES) + 3, n_systems)
        smaller = PENALTIES[max(0, PENALTIES.index(penalty) - 1)]
        if smaller < penalty:
            candidates.append((smaller, self.rows(smaller, cross)))
        progress(n_systems, n_systems)
        scored = [(*self.best_scale(rows), each, rows) for each, rows in candidates]
        cosine, scale, chosen, found = max(scored, key=lambda each: each[0])
        rows = self.prior.copy()
        rows[self._corpus.vocab] = found
        return (scale * rows + self.mean).astype(np.float32), {
            "penalty": chosen,
            "r2_by_penalty": {f"{each:g}": value for each, value in trials.items()},
            "r2": r2(self.held_out, self.predicted(solved)),
            "r2_trial": halves,
            "cosine": cosine,
            "scale": scale,
            "prior": "tokens in context" if self.is_in_context else "tokens alone",
        }


def r2(vectors: Array, predicted: Array) -> float:
    """Share of the squared lengths of vectors that is predicted."""
    return float(1 - ((vectors - predicted) ** 2).sum() / (vectors**2).sum())


def measure(
    model: SentenceEncoder,
    static: StaticEncoder,
    texts: Sequence[str],
    of_model: NDArray[np.float32],
    *,
    is_shared: bool,
) -> dict[str, Any]:
    """What is lost, on held-out texts: the nearest ten of the model that are kept, and agreement with word overlap."""
    vectors = {"model": of_model, "static": static.encode(texts), "wordllama": load("wordllama").encode(texts)}
    units = {name: unit_rows(rows.astype(np.float32, copy=False)) for name, rows in vectors.items()}
    nearest = {name: _nearest(each, each) for name, each in units.items()}
    if is_shared:
        nearest["queries"] = _nearest(units["static"], units["model"])
    kept = {
        name: np.array(
            [len(np.intersect1d(*pair)) / pair[0].size for pair in zip(nearest["model"], found, strict=True)]
        )
        for name, found in nearest.items()
        if name != "model"
    }
    pairs = sample_pairs(texts)
    overlap = {
        name: float(
            np.mean([spearman(pairwise_cosine(each[half.first], each[half.second]), half.overlap) for half in pairs])
        )
        for name, each in units.items()
        if pairs
    }
    timed = texts[:TIMED_TEXTS]
    speeds = {"model": _speed(model.encode_query, timed), "static": _speed(static.encode, texts)}
    sizes = {"model": sum(array.nbytes for array in model.encoder.parameters()), "static": static.token_vectors.nbytes}
    return {
        "nearest": {name: float(values.mean()) for name, values in kept.items()},
        "nearest_gain": list(bootstrap_interval("mean", kept["static"] - kept["wordllama"])),
        "word_overlap": overlap,
        "texts_per_second": speeds,
        "bytes": sizes,
    }


def _nearest(queries: NDArray[np.float32], units: NDArray[np.float32]) -> NDArray[np.intp]:
    """The ten nearest texts of each text but itself."""
    rows = np.arange(len(units))
    return nearest_of_blocks(queries, [(units, rows)], min(_NEAREST, len(units) - 1), self_rows=rows)[1]


def _speed(encode: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> float:
    encode(texts[:1])
    start_s = time.perf_counter()
    encode(texts)
    return len(texts) / (time.perf_counter() - start_s)
