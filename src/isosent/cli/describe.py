"""The commands ``info``, ``similarity`` and ``explain``.

`info` tells by its argument what it describes: an index, a file of vectors, of statistics or of word vectors, or a
model. Each kind gives a mapping of facts, which `_aligned` shows; those of a model are worded by `_model_facts`.
"""

import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import click

from isosent.api.cache import MEGABYTE, VectorCache, find_cache
from isosent.cli.options import json_option, model_option, open_model
from isosent.cli.printing import deliver, likelihood_change, say, stats_report
from isosent.encoders.precomputed import PRECOMPUTED
from isosent.errors import InputError, IsosentWarning
from isosent.explanation import Explanation
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.notes import NOTE_FILE, read_export_note
from isosent.io.source import open_source
from isosent.io.system import open_to_read
from isosent.io.tables import is_number
from isosent.io.tensors import safetensors_header
from isosent.io.texts import TEXT_ENDINGS, TextSource, read_texts
from isosent.io.vectors import VECTOR_ENDINGS
from isosent.jobs.vectors import moments_in
from isosent.loading import read_record
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.pages.report import Part, Report, ReportTable
from isosent.persistence import MIGRATION, ModelRecord
from isosent.search.stores import find_index
from isosent.transforms.calibration import RANDOM_PAIRS
from isosent.words.formats import format_of
from isosent.words.word_vectors import FORMAT, read_word_vectors

_FIRST_WORDS = 8
_LONGEST_START = 1 << 20  # bytes of a line
_MOST_PAIRS = 12


@click.command()
@click.argument("source", metavar="MODEL|INDEX|FILE")
@json_option
def info(source: str, as_json: bool) -> None:
    """Describe a model, an index, a cache of an API, or a file of vectors, of mean and covariance, or of word vectors.

    A large file of word vectors is also converted into the cache, to open at once next time.

    \b
    isosent info model
    isosent info index
    isosent info glove.840B.300d.zip
    """  # noqa: D301
    path = Path(source)
    if (index := find_index(path)) is not None:
        deliver(stats_report(path, index.stats()), as_json=as_json)
        return
    if (cache := find_cache(path)) is not None:
        deliver(_cache_report(cache), as_json=as_json)
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are not encoded", IsosentWarning)  # nothing is, here
        facts = _facts_of_input(source)
        report = _model_report(path, read_record(source)) if facts is None else Report(facts, _aligned(facts.items()))
    deliver(report, as_json=as_json)


def _cache_report(file: Path) -> Report:
    """What was kept of embedding APIs, and what they were asked."""
    with closing(VectorCache(file, max_bytes=file.stat().st_size)) as cache:
        facts = cache.facts()
    table = ReportTable("API", "dimensions", "texts sent", "tokens", left=range(1))
    for api in facts["apis"]:
        table.add_row(api["name"], str(api["dim"]), f"{api['n_texts']:,}", f"{api['n_tokens']:,}")
    line = f"{file}: {facts['vectors']:,} vectors, {facts['bytes'] / MEGABYTE:,.1f} MB"
    return Report(facts, [line, *([table] if facts["apis"] else [])])


def _model_report(folder: Path, record: ModelRecord) -> Report:
    distilled = _distilled(folder)
    return Report(record.facts() | distilled, _aligned(_model_facts(record, distilled)))


def _distilled(folder: Path) -> dict[str, Any]:
    """How a static model was made and what is lost, if it was distilled."""
    document = read_export_note(folder) if (folder / NOTE_FILE).is_file() else {}
    if not document.get("distilled"):
        return {}
    return {"distilled": document["distilled"], "shares": document.get("shares")}


def _distilled_lines(report: Mapping[str, Any], shares: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The model and texts of a distillation, and what it keeps."""
    model = report.get("model") or (shares or {}).get("reference") or "a transformer"
    space = "whose embedding space it shares" if shares else "with a separate embedding space"
    prior = f", prior of {report['prior']}" if "prior" in report else ""
    kept = f"mean cosine to the model {report['cosine']:.3f}, ten nearest kept {report['nearest']['static']:.1%}"
    return [
        ("distilled", f"from {model}, {space}, on {report['n_texts']:,} texts{prior}"),
        ("", f"{kept}, on {report['n_held_out']:,} held-out texts"),
    ]


def _facts_of_input(name: str) -> dict[str, Any] | None:
    """Facts of a file or of a folder of vectors; None for anything else, which is a model."""
    is_file = Path(name).is_file()
    if is_file and name.lower().endswith(".safetensors") and safetensors_header(Path(name))[1].get("format") == FORMAT:
        return _facts_of_words(name)
    source = open_source(name, moments=is_file)
    if source.kind == "texts":
        if not is_file:
            return None
        _refuse_texts(source)
        return _facts_of_words(name)
    if source.kind == "moments":
        measured = moments_in(source)
        return {
            "mean and covariance of": f"{measured.moments.weight:.0f} vectors",
            "dimensions": measured.moments.dim,
            "zero rows left out": measured.n_zero_rows,
            "embedding space": str(measured.space or "unknown"),
            "files": ", ".join(measured.sources),
        }
    column = {"column": source.column} if source.column else {}
    return {
        "vectors": source.n_rows,
        "dimensions": source.dim,
        "dtype": source.storage,
        **column,
        "embedding space": str(source.space or "unknown"),
    }


def _facts_of_words(name: str) -> dict[str, Any]:
    with progress_bar("reading", "bytes") as bar:
        vectors = read_word_vectors([name], progress=bar)
    return {
        "format": format_of(Path(name)),
        "rows": len(vectors.vocabulary),
        "dimensions": vectors.dim,
        "dtype": str(vectors.vectors.dtype),
        "sub-words": "yes" if vectors.tables else "none",
        "first words": " ".join(islice(vectors.vocabulary, _FIRST_WORDS)),
        "content hash": vectors.content_hash,
    }


def _refuse_texts(source: TextSource) -> None:
    """Say which command describes texts, instead of what is wrong with them as word vectors."""
    name = source.name
    if name.lower().endswith((".txt", ".tsv", ".csv")):  # word vectors have these endings, too
        with open_to_read(Path(name)) as file:
            lines = file.readline(_LONGEST_START), file.readline(_LONGEST_START)
        if all(is_number(field) for line in lines for field in line.split()[-1:]):
            return
    if source.is_table:
        raise InputError(
            f"info: {name} is a table. Its texts are described by isosent inspect {name} --column NAME; vectors "
            "must be saved as .npy or .parquet."
        )
    if name.lower().endswith(".txt"):
        raise InputError(f"info: {name} holds texts. Describe them with a model: isosent inspect {name}")


def _aligned(facts: Collection[tuple[str, object]]) -> Iterator[str]:
    """A line for each fact."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        yield f"{name:<{width}}  {value}"


def _model_facts(record: ModelRecord, distilled: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What a model is, and what each fit gave it."""
    lines: list[tuple[str, object]] = [
        (name.replace("_", " "), _plain(value)) for name, value in record.facts().items() if name != "fits"
    ]
    if distilled:
        lines += _distilled_lines(distilled["distilled"], distilled["shares"])
    unit = "vectors" if record.reference == PRECOMPUTED else "texts"
    for step, fit in enumerate(record.fits, start=1):
        steps = fit.parameters.get("steps") if fit.transform == "chain" else None
        if not (isinstance(steps, list) and all(isinstance(each, dict) for each in steps) and steps):
            steps = [{"transform": fit.transform, **fit.parameters}]
        calls = []
        for each in steps:
            settings = {name: value for name, value in each.items() if name != "transform"}
            calls.append(f"{each.get('transform')}({_plain(settings) if settings else ''})")
        lines.append(
            (
                f"fit {step}",
                ("none, chosen by auto" if "candidates" in (fit.choice or {}) else "none")
                if fit.transform == "none"
                else calls[0],
            )
        )
        lines += [("", f"then {call}") for call in calls[1:]]
        is_of_pairs = "tested" in (fit.choice or {})
        counted = "pairs" if is_of_pairs else unit
        lines.append(("", f"on {fit.n_texts} {counted} of {fit.source}, {fit.fitted_at}"))
        zero = "zero rows left out" if counted == "vectors" else f"{counted} without a vector"
        lines.append(("", f"{zero}: {fit.n_zero_rows}"))
        if fit.choice:
            by = "held out" if is_of_pairs or fit.transform in ("erasure", MIGRATION) else "auto"
            lines.append(("", f"{by}: {fit.choice['reason']}"))
        if fit.history:
            lines.append(("", likelihood_change(fit.history)))
    return lines


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_plain(inner)}" for name, inner in value.items()) or "none"
    return str(value)


@click.command()
@click.argument("first", metavar="TEXT")
@click.argument("second", metavar="TEXT")
@model_option
@json_option
def similarity(first: str, second: str, model: str | None, as_json: bool) -> None:
    """Compare two texts: their cosine and, after "isosent calibrate", what it means.

    \b
    isosent similarity "A man rides a bike." "Someone is on a bicycle."
    """  # noqa: D301
    first, second = _two_texts(first, second)
    loaded = open_model(model)
    _say_reference(loaded)
    figures = {"cosine": float(loaded.similarity(first, second)[0, 0])}
    if loaded.calibration is not None:
        meaning = "percentile" if loaded.calibration.kind == RANDOM_PAIRS else "expected score"
        figures[meaning] = float(loaded.calibration(figures["cosine"]))
    lines = [f"{name} {value:.4f}" for name, value in figures.items()]
    if loaded.calibration is None:
        lines.append(
            "What this cosine means depends on the model and the texts: isosent calibrate TEXTS -m MODEL -o FOLDER"
        )
    deliver(Report(figures, lines), as_json=as_json)


def _two_texts(*texts: str) -> list[str]:
    """Two texts, of which one may be the line of standard input; files are refused."""
    endings = (*TEXT_ENDINGS, *VECTOR_ENDINGS)
    if files := [text for text in texts if text.lower().endswith(endings) and os.path.isfile(text)]:  # noqa: PTH113 - a text may be longer than a path can be
        raise InputError(
            f"{files[0]} is a file; similarity and explain compare two texts. Compare vectors: isosent search, isosent "
            "drift."
        )
    lines = read_texts(STANDARD_INPUT) if STANDARD_INPUT in texts else []
    if len(lines) != texts.count(STANDARD_INPUT):
        raise InputError(f"standard input has {len(lines)} lines. Give a line for each - that is named.")
    return [lines.pop(0) if text == STANDARD_INPUT else text for text in texts]


def _say_reference(model: SentenceEncoder) -> None:
    if model.groups is not None:
        say(f"{model.groups.note('both texts')} In Python: model.encode(TEXT, group={next(iter(model.groups.maps))!r})")


@click.command()
@click.argument("first", metavar="TEXT")
@click.argument("second", metavar="TEXT")
@model_option
@json_option
def explain(first: str, second: str, model: str | None, as_json: bool) -> None:
    """Say which words make two texts similar: the cosine as an exact sum over pairs of words.

    For word vectors and static models, with any linear transform; not for transformers.

    \b
    isosent explain "A man rides a bike." "Someone is on a bicycle."
    """  # noqa: D301
    first, second = _two_texts(first, second)
    loaded = open_model(model)
    _say_reference(loaded)
    explanation = loaded.explain(first, second)
    document = {"cosine": explanation.cosine, "pairs": [pair._asdict() for pair in explanation.top()]}
    deliver(Report(document, _explanation_parts(explanation)), as_json=as_json)


def _explanation_parts(explanation: Explanation) -> Iterator[Part]:
    pairs, cosine = explanation.top(), explanation.cosine
    table = ReportTable("first text", "second text", "contribution", left=range(2), title=f"cosine {cosine:.4f}")
    for pair in pairs[:_MOST_PAIRS]:
        table.add_row(pair.a, pair.b, f"{pair.contribution:+.4f}")
    if others := pairs[_MOST_PAIRS:]:
        table.add_row(f"{len(others)} other pairs", "", f"{sum(pair.contribution for pair in others):+.4f}")
    yield table
