"""Distil a transformer into a static model, in closed form: rows of tokens whose means are near the model's vectors.

`distill` takes texts, `distill_files` files, which are encoded in shards that an interrupted run resumes. `_distilled`
does the rest: `TokenizedTexts` holds the tokens of all texts, and which of them are held out; `prior_rows` are the
tokens alone, `contextual_rows` in texts; `Fit` solves the regression of `numeric.sparse_ridge` with the prior and the
penalty that are best on held-out texts; `_measure` says what is lost, against the model and against wordllama; `_save`
writes a folder that Model2Vec and sentence-transformers open, after a comparison of their vectors.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers.processors import TemplateProcessing

from isosent import _check, _extras
from isosent.encoders.base import WINDOW
from isosent.encoders.load import encoder_for
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.evaluation.overlap import text_hashes
from isosent.exports.check import (
    EXPORT,
    compare_on_texts,
    require_agreement,
    space_of,
    total,
    write_folder_note,
)
from isosent.exports.sentence_transformers import check_vectors, quiet_library
from isosent.exports.tokenizer import tokenizer_for_static
from isosent.io.atomic import check_folder, replacing_folder
from isosent.io.notes import TEXTS_FILE
from isosent.io.remote import local_copies, remove
from isosent.io.shards import Sharding, input_paths
from isosent.io.tensors import tensors_bytes
from isosent.io.texts import TEXT_ENDINGS, open_texts, text_blocks
from isosent.io.vector_source import VectorSource, in_blocks
from isosent.io.vectors import open_vectors
from isosent.jobs.shards import Engine, encode_folder, how_resumed
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import nearest_of_blocks
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine, spearman, unit_rows
from isosent.numeric.sparse_ridge import PART_TEXTS, TokenShares, solve
from isosent.numeric.statistics import bootstrap_interval
from isosent.numeric.word_averages import sif_weights
from isosent.pages.progress import Progress, counted, part_of, progress_bar
from isosent.space import Space, same_space
from isosent.storage import Storage
from isosent.transforms.agreement import sample_pairs
from isosent.transforms.base import Auto, Transform, needs_vectors, resolve_transform
from isosent.words.subwords import SubwordTokenizer

TARGET = "model2vec"
FEWEST_TEXTS = 200
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0)
_MOST_HELD_OUT = 2000
_TRIAL_COLUMNS = 32  # of the vectors, on which penalties are compared
_TRIAL_TOLERANCE = 1e-3
_SCALES = np.geomspace(0.5, 4, 13)
_NEAREST = 10
_TIMED_TEXTS = 128
_MOST_FITTED_ON = 20_000  # texts, by a transform
_MOST_READ = 20_000  # texts, for tokens in context
_N_ALONE = 30  # occurrences for which a token alone counts
_SAME_COSINE = 0.99
_RESERVED = re.compile(r"[\[<]unused_?\d+[\]>]")

Array = NDArray[np.float64]
Blocks = Callable[[], Iterator[NDArray[Any]]]  # opens vectors, which are read several times


class Distillation(Struct, frozen=True):
    """A static model that was distilled, and what is lost.

    Attributes
    ----------
    path : Path
        The folder of the static model.
    report : dict
        What was measured on held-out texts, as JSON values. ``r2`` and ``cosine``: how close the vectors are to those
        of the model. ``nearest``: which share of the ten nearest texts is kept, by the static model, by its queries
        against vectors of the model, and by wordllama, with ``nearest_gain`` over wordllama (95% interval).
        ``word_overlap``: agreement of cosines with word overlap. ``texts_per_second`` and ``bytes`` of both. ``model``
        names the transformer, and ``prior`` says how its tokens were encoded.
    shares : Space, optional
        The embedding space of the model, if the vectors can be compared with its own; None after a transform.
    """

    path: Path
    report: dict[str, Any]
    shares: Space | None = None
    advice: list[str] = []  # sentences for people

    def lines(self) -> list[str]:
        """The report in sentences."""
        report = self.report
        nearest, overlap, speed, size = (
            report[name] for name in ("nearest", "word_overlap", "texts_per_second", "bytes")
        )
        low, high = report["nearest_gain"]
        queries = f" (as queries for vectors of the model: {nearest['queries']:.1%})" if "queries" in nearest else ""
        agreement = ", ".join(f"{name} {value:.3f}" for name, value in overlap.items())
        return [
            f"fitted on {report['n_texts']:,} texts, measured on {report['n_held_out']:,} others",
            f"R2 {report['r2']:.3f}, mean cosine to the model {report['cosine']:.3f}",
            f"ten nearest of the model kept: {nearest['static']:.1%}{queries}; by wordllama {nearest['wordllama']:.1%} "
            f"(difference {low:+.1%} to {high:+.1%})",
            *([f"agreement of cosines with word overlap: {agreement}"] if agreement else []),
            f"texts per second: model {speed['model']:,.0f}, static {speed['static']:,.0f}; MB: model "
            f"{size['model'] / 1e6:,.0f}, static {size['static'] / 1e6:,.0f}",
            *self.advice,
        ]


def distill(
    model: SentenceEncoder,
    texts: Sequence[str],
    output: str | os.PathLike[str],
    *,
    vectors: NDArray[np.floating] | None = None,
    transform: Transform | Auto | str | None = None,
    progress: Progress | None = None,
) -> Distillation:
    r"""Distil a transformer into a static model that is a hundred times as fast, without labels and in closed form.

    A static model gives a text the mean of the rows of its tokens, :math:`A E`. The rows minimize
    :math:`\|Y - A E\|^2 + \lambda \|E - E_0\|^2`, where Y are the vectors of the model, about their mean, and the prior
    :math:`E_0` are its vectors of each token, alone or in context, times SIF weights. One sparse system of equations
    gives them.

    Parameters
    ----------
    model : SentenceEncoder
        A transformer, with whatever layers, pooling, prompt of queries and transform it has. Or an embedding API, which
        is asked for each token of wordllama alone; these are the tokens of its static model.
    texts : sequence of str
        Texts like those to come, 200 at least and better 20,000 to 1,000,000.
    output : path-like
        Folder for the static model: new, empty, or with one that is replaced. `load`, Model2Vec and
        sentence-transformers open it.
    vectors : ndarray of shape (n_texts, dim), float, optional
        The vectors of the texts, if the model has encoded them already.
    transform : Transform, Auto or str, optional
        A linear transform to fold into the static model, such as ``"auto"``. Without one, its vectors lie in the space
        of the model and can be compared with those of the model.
    progress : callable, optional
        Called as ``progress(done, total)`` for each stage: counted in texts to encode, in texts to read, in tokens to
        encode, and in systems to solve.

    Returns
    -------
    Distillation
        The folder, and what is lost.

    Raises
    ------
    InputError
        If the model is neither a transformer nor an API, there are fewer than 200 distinct texts, or the vectors are
        not those of the model.
    OutputError
        If the folder cannot be written, or another library gives other vectors.

    Examples
    --------
    >>> model = isosent.load("sentence-transformers/all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> isosent.distill(model, isosent.read_texts("corpus.txt"), "static").report["r2"]  # doctest: +SKIP
    0.65
    """
    texts = _check.text_list("distill", texts)
    chosen = _checked(model, output, transform)
    if vectors is None:
        encode = partial(model.encode, role="query", show_progress_bar=False)
        rows = [
            encode(texts[start : start + WINDOW], progress=part_of(progress, start, len(texts)))
            for start in range(0, len(texts), WINDOW)
        ]
    else:
        rows = [_check.matrix("distill", "vectors", vectors)]
        _check.same_count("distill", "texts", len(texts), len(rows[0]))
        _check_same_vectors(model, texts, rows[0])
    progress = progress or (lambda done, total: None)
    return _distilled(model, lambda: iter(texts), lambda: iter(rows), output, chosen, progress=progress)


def distill_files(
    inputs: Sequence[str],
    output: str | os.PathLike[str],
    model: SentenceEncoder,
    *,
    reference: str,
    vectors: str | None = None,
    column: str | None = None,
    transform: Transform | Auto | None = None,
    engine: Engine | None = None,
    say: Callable[[str], None] = print,
) -> Distillation:
    """As `distill`, for files of texts; the folder OUTPUT.shards lets an interrupted run resume."""
    chosen, folder = _checked(model, output, transform), f"{os.fspath(output)}.shards"
    if "-" in inputs:
        raise InputError("distill: the texts are read several times, which standard input cannot be. Name a file.")
    names = input_paths(inputs, TEXT_ENDINGS)
    with local_copies(names) as (paths, _):

        def texts() -> Iterator[str]:
            for path in paths:
                with open_texts(path, column=column, counted=(1, "")) as source:
                    yield from source.read()

        if vectors is None:
            with progress_bar("encoding", "texts", say=say) as bar:
                encode_folder(
                    model,
                    names,
                    folder,
                    column=column,
                    sharding=Sharding(WINDOW),  # shards of whole windows have the bits of texts encoded at once
                    role="query",
                    engine=engine,
                    reference=reference,
                    resumed=lambda index: say(how_resumed(folder, "encode", index)),
                    progress=bar,
                )
        source = open_vectors(folder if vectors is None else vectors)
        if vectors is not None:
            _check_given(model, source, texts)
        result = _distilled(model, texts, source.blocks, output, chosen, say=say)
    if vectors is None:
        remove(folder)
    return result


def _checked(
    model: SentenceEncoder, output: str | os.PathLike[str], transform: Transform | Auto | str | None
) -> Transform | Auto | None:
    """Refuse a model that cannot be distilled, before any work is done."""
    if isinstance(encoder := model.encoder, TransformerEncoder):
        if getattr(encoder.tokenizer, "backend_tokenizer", None) is None:
            raise InputError(f"distill: {encoder.reference} has no tokenizer.json, which the static model needs.")
    elif encoder.usage is None:
        raise InputError(f"distill: {encoder.reference} is neither a transformer nor an API.")
    chosen = resolve_transform(transform)
    if needs_vectors(chosen):
        raise InputError(f"distill: a {chosen.kind} cannot be folded into rows of tokens. Name a linear transform.")
    if chosen is not None:
        chosen.check_settings(model.dim)
    check_folder(output, EXPORT)
    return chosen


def _check_given(model: SentenceEncoder, source: VectorSource, texts: Callable[[], Iterator[str]]) -> None:
    same_space("the model", model.space, str(source.path), source.space)
    n_texts = sum(1 for _ in texts())
    if n_texts != source.n_rows:
        raise InputError(
            f"distill: {source.path} holds {source.n_rows:,} vectors of {n_texts:,} texts. "
            "Name files of the same texts."
        )
    if source.space is None:
        first = next(source.blocks())[:_TIMED_TEXTS]
        _check_same_vectors(model, [text for text, _ in zip(texts(), first, strict=False)], first)


def _check_same_vectors(model: SentenceEncoder, texts: Sequence[str], vectors: NDArray[Any]) -> None:
    """Refuse vectors of unknown origin: without the model that made them, nothing says where a rare token lies."""
    sample = list(texts[:_TIMED_TEXTS])
    own = model.encode(sample, role="query", show_progress_bar=False)
    if own.shape[1] != vectors.shape[1] or np.median(pairwise_cosine(own, vectors[: len(own)])) < _SAME_COSINE:
        raise InputError(
            f"distill: the vectors are not those of {model.record.name}. Vectors of unknown origin cannot be "
            "distilled: without their model there is no prior for rare tokens, and the result ranks texts worse than "
            "wordllama, which costs nothing. Name the model that made them."
        )


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
        self._hashes = np.concatenate(hashes)

    def split(self, has_vector: NDArray[np.bool_]) -> None:
        """Choose the texts by their tokens alone: each sequence of tokens counts once, and is in one part only."""
        first = np.zeros(len(self._hashes), bool)
        first[np.unique(self._hashes, return_index=True)[1]] = True
        used = np.flatnonzero(first & has_vector & (np.diff(self.shares.offsets) > 0))
        if len(used) < FEWEST_TEXTS:
            raise InputError(f"distill: there are {len(used)} different texts; {FEWEST_TEXTS} at least are needed.")
        n_held_out = min(_MOST_HELD_OUT, len(used) // 10)
        is_held_out = np.zeros(len(used), bool)
        is_held_out[np.argsort(self._hashes[used], kind="stable")[:n_held_out]] = True
        self.fitted, self.held_out = used[~is_held_out], used[is_held_out]

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


def contextual_rows(model: SentenceEncoder, texts: Sequence[str], alone: Array, progress: Progress | None) -> Array:
    """Mean unit vector of each token in these texts and alone, about the mean of all; zero where `alone` is."""
    encoder = encoder_for(model.encoder, "query")
    if not isinstance(encoder, TransformerEncoder):
        return alone  # only the API knows its tokens
    if encoder.own_layer_pooling.width(encoder.network.dim) != encoder.network.dim:
        return alone  # poolings side by side: a token has no vector of this width
    rows, counts, is_used = _N_ALONE * alone, np.full((len(alone), 1), float(_N_ALONE)), alone.any(axis=1)
    for ids, states in counted(encoder.embed_in_context(texts), progress, None, lambda part: len(part[0])):
        np.add.at(rows, ids, unit_rows(model.transform(states, queries=True)))
        np.add.at(counts, ids, 1)
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
        added = solve(shares or self.shares, right, penalty, tolerance=_TRIAL_TOLERANCE)
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

    def rows_with_directions(self, rows: Array, penalty: float) -> Array:
        """One more solve: targets with the direction of the vectors and the length that is predicted of them."""

        def targets() -> Iterator[Array]:
            parts = rows_in_parts(self._blocks(), self._corpus.fitted)
            for part, predicted in zip(parts, self.shares.vectors(rows), strict=True):
                units = unit_rows(part - self.mean)
                yield units * np.einsum("ij,ij->i", units, predicted).clip(min=0)[:, None]

        return self.rows(penalty, self.shares.transposed(targets()))

    def best_scale(self, rows: Array) -> tuple[float, float]:
        """Highest mean cosine to the model on held-out texts, and the scale of the rows that has it."""
        predicted, vectors = self.predicted(rows), self.held_out + self.mean
        cosines = {float(s): float(pairwise_cosine(vectors, s * predicted + self.mean).mean()) for s in _SCALES}
        scale = max(cosines, key=cosines.__getitem__)
        return cosines[scale], scale

    def best(self, progress: Progress) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Rows of all tokens in the space of the model, and how well they predict its vectors of held-out texts."""
        n_systems = len(PENALTIES) + 3
        penalties = counted(PENALTIES, progress, n_systems, lambda _: 1)
        trials = {penalty: self.held_out_r2(penalty) for penalty in penalties}
        penalty = max(trials, key=trials.__getitem__)
        halves = {"half": self.half_data_r2(penalty), "all": trials[penalty]}
        progress(len(PENALTIES) + 1, n_systems)
        solved = self.rows(penalty)
        progress(len(PENALTIES) + 2, n_systems)
        # targets without lengths bear a smaller penalty than R2 asks for
        smaller = PENALTIES[max(0, PENALTIES.index(penalty) - 1)]
        candidates = [(penalty, solved), (penalty, self.rows_with_directions(solved, penalty))]
        if smaller < penalty:
            candidates.append((smaller, self.rows_with_directions(self.rows(smaller), smaller)))
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


def _distilled(
    model: SentenceEncoder,
    texts: Callable[[], Iterator[str]],
    blocks: Blocks,
    output: str | os.PathLike[str],
    transform: Transform | Auto | None,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Distillation:
    """Distil, and show bars or say the stages where there is no progress to report to."""

    def stage(label: str, unit: str) -> AbstractContextManager[Progress]:
        return nullcontext(progress) if progress else progress_bar(label, unit, say=say)

    with tempfile.TemporaryDirectory() as temporary:
        tokenizer = _static_tokenizer(model, Path(temporary, "tokenizer.json"))
        with stage("reading tokens", "texts") as show:
            windows = counted(text_blocks(texts(), WINDOW), show, sum(1 for _ in texts()))
            corpus = TokenizedTexts(windows, tokenizer)
        corpus.split(np.concatenate([nonzero_rows(block) for block in blocks()]))
        sample = corpus.fitted[:: -(-len(corpus.fitted) // _MOST_READ)]
        n_alone, n_in_context = tokenizer.largest_id + 1, int(np.diff(corpus.shares.offsets)[sample].sum())
        with stage("encoding", "tokens") as show:
            n_tokens = n_alone + n_in_context
            alone = prior_rows(model, tokenizer, part_of(show, 0, n_tokens))
            part = part_of(show, n_alone, n_tokens)
            priors = [alone, contextual_rows(model, _at(texts(), sample), alone, part)]
            show(n_tokens, n_tokens)
        with stage("solving", "systems") as show:
            fit = Fit(corpus, blocks, priors)
            rows, report = fit.best(show)
        seen = len(corpus.vocab) / max(1, int(alone.any(axis=1).sum()))
        report |= {"n_texts": len(corpus.fitted), "n_held_out": len(corpus.held_out), "vocabulary_seen": seen}
        report["model"] = model.record.name
        sentences = corpus.sentences()
        chosen = np.concatenate([corpus.fitted[:_MOST_FITTED_ON], corpus.held_out])
        by_number = dict(zip(chosen.tolist(), _at(texts(), chosen), strict=True))
        shares: Space | None = space_of(model)
        if transform is not None:
            fitted_on = [by_number[number] for number in corpus.fitted[:_MOST_FITTED_ON].tolist()]
            static = StaticEncoder(TARGET, {}, tokenizer, rows)
            fitted = SentenceEncoder(static).fitted(fitted_on, transform)
            if fitted.linear_map is not None:
                rows, shares = fitted.linear_map.apply(rows).astype(np.float32), None
            if fitted.fits and fitted.fits[-1].choice:
                sentences.append(fitted.fits[-1].choice["reason"])
        if tokenizer.unknown_id is not None:
            rows[tokenizer.unknown_id] = 0  # Model2Vec leaves it out, sentence-transformers adds it
        static = StaticEncoder(TARGET, {"normalize": "true"}, tokenizer, rows, normalize=True)
        held_out = [by_number[number] for number in corpus.held_out.tolist()]
        units = unit_rows(fit.held_out + fit.mean).astype(np.float32)
        report |= _measure(model, static, held_out, units, is_shared=shares is not None)
        shared = None if shares is None else shares.to_json()
        _save(static, output, {"shares": shared, "distilled": report, "tei": False}, texts())
    return Distillation(Path(output), report, shares, [*sentences, *_advice(report, shares)])


def _static_tokenizer(model: SentenceEncoder, path: Path) -> SubwordTokenizer:
    """The tokenizer of the model without prompt, special tokens and maximum length."""
    tokenizer = tokenizer_for_static(model.encoder)
    tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(path), pretty=False)
    return SubwordTokenizer(path)


def _at(texts: Iterator[str], numbers: NDArray[np.intp]) -> list[str]:
    """Texts with these numbers, in their order."""
    wanted = set(numbers.tolist())
    found = {number: text for number, text in enumerate(texts) if number in wanted}
    return [found[number] for number in numbers.tolist()]


def _measure(
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
    timed = texts[:_TIMED_TEXTS]
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


def _advice(report: Mapping[str, Any], shares: Space | None) -> list[str]:
    half, whole = report["r2_trial"]["half"], report["r2_trial"]["all"]
    gain = max(0.0, 0.8 * (whole - half))  # doublings gain less and less, by about a fifth each
    advice = [f"R2 with half of the texts {half:.2f}, with all {whole:.2f}: twice as many will bring about {gain:+.2f}"]
    if report["vocabulary_seen"] < 0.2:
        advice.append(
            f"{report['vocabulary_seen']:.0%} of the model's tokens occur in the texts; the others keep the vector "
            "that the model gives them alone. Add texts if yours will have other words."
        )
    if report["nearest_gain"][0] <= 0:
        advice.append("wordllama keeps as much of the model's ranking on these texts, and costs nothing: use it.")
    if shares is not None:
        advice.append(f"the vectors lie in the space of {shares.reference}: its index takes them as queries")
    return advice


def _save(static: StaticEncoder, output: str | os.PathLike[str], notes: dict[str, Any], seen: Iterable[str]) -> None:
    """Write a folder of Model2Vec that sentence-transformers opens too, and compare the vectors of each library."""
    modules = [
        {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": static.dim,
        "normalize": True,
        "max_length": None,
        "embedding_dtype": Storage.float32,
    }
    assert isinstance(static.tokenizer, SubwordTokenizer)
    with replacing_folder(output, EXPORT) as folder:
        save_file({"embeddings": np.ascontiguousarray(static.token_vectors)}, folder / "model.safetensors")
        (folder / TEXTS_FILE).write_bytes(tensors_bytes({"hashes": np.unique(text_hashes(seen))}, {}))
        static.tokenizer.tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        for name, document in (("config.json", config), ("modules.json", modules)):
            (folder / name).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        model = load(f"static:{folder}")
        agreements = [compare_on_texts(SentenceEncoder(static), model.encode, has_zero_rows=True)]
        if find_spec("model2vec"):
            theirs = _extras.require("model2vec").StaticModel.from_pretrained(str(folder))
            agreements.append(compare_on_texts(model, theirs.encode, has_zero_rows=True))
        if find_spec("sentence_transformers"):
            with quiet_library():
                agreements.append(check_vectors(TARGET, model, folder))
        agreement = total(agreements)
        require_agreement(TARGET, agreement)
        reference = f"static:{Path(output).name}"  # not the temporary folder
        named = StaticEncoder(reference, model.encoder.options, static.tokenizer, static.token_vectors, normalize=True)
        write_folder_note(folder, TARGET, SentenceEncoder(named), agreement, notes)
