"""Distil a transformer into a static model, in closed form: rows of tokens whose means are near the model's vectors.

`distill` takes texts, `distill_files` files, which are encoded in shards that an interrupted run resumes; the same pass
reads their tokens in context (`jobs.token_sums`). `_distilled` goes through the stages: the tokens of the texts, their
vectors, the regression and what it keeps of the model (`token_rows`), a linear transform, and the folder
(`exports.model2vec`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import WINDOW
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.exports.check import (
    EXPORT,
    space_of,
)
from isosent.exports.model2vec import TARGET, write_static
from isosent.io.atomic import check_folder
from isosent.io.remote import local_copies, remove
from isosent.io.shards import Sharding, input_paths
from isosent.io.texts import open_texts, text_blocks
from isosent.io.vectors import open_vectors
from isosent.jobs.shards import Engine, encode_folder, how_resumed
from isosent.jobs.token_sums import TokenSums, read_again, reading_tokens, token_encoder, token_sums_in
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine, unit_rows
from isosent.pages.progress import Progress, counted, part_of, progress_bar
from isosent.space import Space, same_space
from isosent.training.token_rows import (
    TIMED_TEXTS,
    Blocks,
    Fit,
    TokenizedTexts,
    contextual_rows,
    measure,
    prior_rows,
    static_tokenizer,
)
from isosent.transforms.base import Auto, Transform, needs_vectors, resolve_transform

_MOST_FITTED_ON = 20_000  # texts, by a transform
_MOST_READ = 20_000  # texts, for tokens in context, where the first pass does not give these
_SAME_COSINE = 0.99


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
    r"""Distil a transformer into a static model that is 44 times as fast or more, without labels and in closed form.

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
        Called as ``progress(done, total)`` for each stage: counted in texts to read, in texts to encode, in tokens to
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
    if vectors is not None:
        given = _check.matrix("distill", "vectors", vectors)
        _check.same_count("distill", "texts", len(texts), len(given))
        _check_same_vectors(model, texts, given)

    def encoded(is_read: NDArray[np.bool_] | None) -> tuple[Blocks, TokenSums | None]:
        if vectors is not None:
            return lambda: iter([given]), None
        rows, sums = [], TokenSums(model.dim)
        for start in range(0, len(texts), WINDOW):
            part, window = slice(start, start + WINDOW), TokenSums(model.dim)
            show = part_of(progress, start, len(texts))
            if is_read is None:
                rows.append(model.encode(texts[part], role="query", show_progress_bar=False, progress=show))
                continue
            rows.append(reading_tokens(model, is_read[part], window)(texts[part], progress=show))
            sums.add(**window.arrays())
        return lambda: iter(rows), None if is_read is None else sums

    return _distilled(
        model, lambda: iter(texts), encoded, output, chosen, progress=progress or (lambda done, total: None)
    )


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
    names = input_paths(inputs, "texts")
    with local_copies(names) as (paths, _):

        def texts() -> Iterator[str]:
            for path in paths:
                with open_texts(path, column=column, counted=(1, "")) as source:
                    yield from source.read()

        def encoded(is_read: NDArray[np.bool_] | None) -> tuple[Blocks, TokenSums | None]:
            if vectors is not None:
                return given, None
            with progress_bar("encoding", "texts", say=say) as bar:
                index = encode_folder(
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
                    is_read=is_read,
                )
            sums = None if is_read is None else token_sums_in(folder, index, model.dim)
            return open_vectors(folder).blocks, sums

        if vectors is not None:
            given = _given_blocks(model, vectors, texts)
        result = _distilled(model, texts, encoded, output, chosen, say=say)
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
        if (queries := encoder.for_queries()).has_place:
            raise InputError(
                f"distill: the prompt {queries.prompt!r} has words after the text, and a token alone has none. Name a "
                "prompt before the text, or none."
            )
    elif encoder.usage is None:
        raise InputError(f"distill: {encoder.reference} is neither a transformer nor an API.")
    chosen = resolve_transform(transform)
    if needs_vectors(chosen):
        raise InputError(f"distill: a {chosen.kind} cannot be folded into rows of tokens. Name a linear transform.")
    if chosen is not None:
        chosen.check_settings(model.dim)
    check_folder(output, EXPORT)
    return chosen


def _given_blocks(model: SentenceEncoder, vectors: str, texts: Callable[[], Iterator[str]]) -> Blocks:
    """The vectors of a file, which must be those of the model for these texts."""
    source = open_vectors(vectors)
    same_space("the model", model.space, str(source.path), source.space)
    n_texts = sum(1 for _ in texts())
    if n_texts != source.n_rows:
        raise InputError(
            f"distill: {source.path} holds {source.n_rows:,} vectors of {n_texts:,} texts. "
            "Name files of the same texts."
        )
    if source.space is None:
        first = next(source.blocks())[:TIMED_TEXTS]
        _check_same_vectors(model, [text for text, _ in zip(texts(), first, strict=False)], first)
    return source.blocks


def _check_same_vectors(model: SentenceEncoder, texts: Sequence[str], vectors: NDArray[Any]) -> None:
    """Refuse vectors of unknown origin: without the model that made them, nothing says where a rare token lies."""
    sample = list(texts[:TIMED_TEXTS])
    own = model.encode(sample, role="query", show_progress_bar=False)
    if own.shape[1] != vectors.shape[1] or np.median(pairwise_cosine(own, vectors[: len(own)])) < _SAME_COSINE:
        raise InputError(
            f"distill: the vectors are not those of {model.record.name}. Vectors of unknown origin cannot be "
            "distilled: without their model there is no prior for rare tokens, and the result ranks texts worse than "
            "wordllama, which costs nothing. Name the model that made them."
        )


def _distilled(
    model: SentenceEncoder,
    texts: Callable[[], Iterator[str]],
    encoded: Callable[[NDArray[np.bool_] | None], tuple[Blocks, TokenSums | None]],
    output: str | os.PathLike[str],
    transform: Transform | Auto | None,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Distillation:
    """Distil, and show bars or say the stages where there is no progress to report to.

    `encoded` gives the vectors of the texts, and the sums of the tokens of some of them if one pass gives both.
    """

    def stage(label: str, unit: str) -> AbstractContextManager[Progress]:
        return nullcontext(progress) if progress else progress_bar(label, unit, say=say)

    with tempfile.TemporaryDirectory() as temporary:
        tokenizer = static_tokenizer(model, Path(temporary, "tokenizer.json"))
        with stage("reading tokens", "texts") as show:
            windows = counted(text_blocks(texts(), WINDOW), show, sum(1 for _ in texts()))
            corpus = TokenizedTexts(windows, tokenizer)
        encoder = token_encoder(model)
        blocks, sums = encoded(corpus.is_fitted_on if encoder is not None and encoder.shows_tokens else None)
        corpus.keep(np.concatenate([nonzero_rows(block) for block in blocks()]))
        if encoder is not None and sums is None:
            with stage("reading tokens in context", "texts") as show:
                sums = read_again(model, _at(texts(), corpus.fitted[:: -(-len(corpus.fitted) // _MOST_READ)]), show)
        with stage("encoding", "tokens") as show:
            alone = prior_rows(model, tokenizer, show)
        priors = [alone] if sums is None else [alone, contextual_rows(alone, sums)]
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
        report |= measure(model, static, held_out, units, is_shared=shares is not None)
        shared = None if shares is None else shares.to_json()
        write_static(static, output, {"shares": shared, "distilled": report, "tei": False}, texts())
    return Distillation(Path(output), report, shares, [*sentences, *_advice(report, shares)])


def _at(texts: Iterator[str], numbers: NDArray[np.intp]) -> list[str]:
    """Texts with these numbers, in their order."""
    wanted = set(numbers.tolist())
    found = {number: text for number, text in enumerate(texts) if number in wanted}
    return [found[number] for number in numbers.tolist()]


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
