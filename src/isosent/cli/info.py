"""The command ``info``, which tells by its argument what it describes.

That is an index, a file of vectors, of statistics or of word vectors, or a model. Each kind gives a mapping of facts,
which `_aligned` shows; those of a model are worded by `_model_facts`.
"""

import sqlite3
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import click

from isosent._check import brief
from isosent.api.cache import CACHE_FILE, MEGABYTE, VectorCache, find_cache
from isosent.cli.options import json_option, vector_column_option
from isosent.cli.printing import deliver, likelihood_change, stats_report
from isosent.encoders.precomputed import PRECOMPUTED
from isosent.errors import FileFormatError, InputError, InputFileError, IsosentWarning
from isosent.io.json import format_of as document_format
from isosent.io.notes import NOTE_FILE, read_export_note
from isosent.io.source import open_source
from isosent.io.system import open_to_read
from isosent.io.texts import TextSource
from isosent.jobs.moments import moments_in
from isosent.loading import read_record
from isosent.pages.progress import progress_bar
from isosent.pages.report import Report, ReportTable
from isosent.persistence import MIGRATION, ModelRecord
from isosent.search.stores import find_index
from isosent.transforms.auto import saved_choice
from isosent.words.formats import format_of, may_hold_words
from isosent.words.word_vectors import is_saved_table, read_word_vectors

_FIRST_WORDS = 8
_BEGINNING = 1 << 10  # bytes that show a page
_SHOWN = ("isosent result", "isosent study")  # formats that isosent report reads
_DEFAULT_CACHE = ("isosent", "api")  # how the folder of a user ends
_LONGEST_VALUE = 60  # of a setting, in characters


@click.command()
@click.argument("source", metavar="MODEL|INDEX|FILE")
@vector_column_option
@json_option
def info(source: str, column: str | None, as_json: bool) -> None:
    """Describe a model, an index, a cache of an API, or a file of vectors, of mean and covariance, or of word vectors.

    A large file of word vectors is also converted into the cache, to open at once next time.

    \b
    isosent info model
    isosent info index
    isosent info glove.840B.300d.zip
    """  # noqa: D301
    if column is None and (index := find_index(source, "info")) is not None:
        deliver(stats_report(index.folder, index.stats()), as_json=as_json)
        return
    if column is None and (cache := find_cache(Path(source))) is not None:
        deliver(_cache_report(cache), as_json=as_json)
        return
    _refuse_missing(Path(source))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are not encoded", IsosentWarning)  # nothing is, here
        facts = _facts_of_input(source, column)
        if column is not None and "column" not in (facts or ()):
            raise InputError(f"info: --column {column} is for a file of several arrays or columns. Leave it out.")
        report = (
            _model_report(Path(source), read_record(source))
            if facts is None
            else Report(facts, _aligned(facts.items()))
        )
    deliver(report, as_json=as_json)


def _refuse_missing(path: Path) -> None:
    """Refuse a folder or file where a cache is not yet, rather than look for a model of this name."""
    is_empty = path.is_dir() and not any(path.iterdir())
    is_missing = not path.exists() and (path.name == CACHE_FILE or path.parts[-2:] == _DEFAULT_CACHE)
    if is_empty or is_missing:
        problem = "is empty" if is_empty else "is not there"
        raise InputFileError(f"info: {path} {problem}. A cache is made when an API has answered the first text.")


def _cache_report(file: Path) -> Report:
    """What was kept of embedding APIs, and what they were asked."""
    try:
        with closing(VectorCache(file, max_bytes=file.stat().st_size, is_read_only=True)) as cache:
            facts = cache.facts()
    except sqlite3.Error as error:
        raise FileFormatError(f"info: {file}: the cache cannot be read: {error}.") from None
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


def _facts_of_input(name: str, column: str | None) -> dict[str, Any] | None:
    """Facts of a file or of a folder of vectors; None for anything else, which is a model."""
    is_file = Path(name).is_file()
    if is_file and is_saved_table(Path(name)):
        return _facts_of_words(name)
    try:
        source = open_source(name, column=column, moments=is_file)
    except FileFormatError:
        if is_file:
            _refuse_own_file(name)
        raise
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
    return {
        "vectors": source.n_rows,
        "dimensions": source.dim,
        "dtype": source.storage,
        **({"column": source.column} if source.column else {}),
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
    if may_hold_words(Path(name)):
        return
    if source.is_table:
        raise InputError(
            f"info: {name} is a table. Its texts are described by isosent inspect {name} --column NAME; vectors "
            "must be saved as .npy or .parquet."
        )
    with open_to_read(Path(name)) as file:
        if file.read(_BEGINNING).lstrip().startswith(b"<"):
            raise InputError(f"info: {name} is a page. Open it in a browser.")
    raise InputError(f"info: {name} holds texts. Describe them with a model: isosent inspect {name}")


def _refuse_own_file(name: str) -> None:
    """Say what a JSON file of isosent is."""
    written = document_format(name) or ""
    if written.startswith(_SHOWN):
        kind = written.rpartition(" ")[0]  # without its version
        raise InputError(f"info: {name} is an {kind}. Show it on a page: isosent report {name} -o page.html")
    if written.startswith("isosent"):
        raise InputError(
            f"info: {name} is a part of what lies next to it ({written}). Name the folder, or the file of vectors that "
            "it belongs to."
        )


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
        choice = saved_choice(fit.choice)
        is_of_pairs = choice is not None and choice.tested is not None
        steps = fit.parameters.get("steps") if fit.transform == "chain" else None
        if not (isinstance(steps, list) and all(isinstance(each, dict) for each in steps) and steps):
            steps = [{"transform": fit.transform, **fit.parameters}]
        calls = []
        for each in steps:
            settings = {name: value for name, value in each.items() if name != "transform"}
            calls.append(f"{each.get('transform')}({_settings(settings) if settings else ''})")
        lines.append(
            (
                f"fit {step}",
                ("none, chosen by auto" if choice is not None and not is_of_pairs else "none")
                if fit.transform == "none"
                else calls[0],
            )
        )
        lines += [("", f"then {call}") for call in calls[1:]]
        counted = "pairs" if is_of_pairs else unit
        lines.append(("", f"on {fit.n_texts} {counted} of {fit.source}, {fit.fitted_at}"))
        zero = "zero rows left out" if counted == "vectors" else f"{counted} without a vector"
        lines.append(("", f"{zero}: {fit.n_zero_rows}"))
        if choice is not None:
            by = "held out" if is_of_pairs or fit.transform in ("erasure", MIGRATION) else "auto"
            purpose = f", for {choice.purpose}" if choice.purpose is not None and choice.candidates else ""
            lines.append(("", f"{by}{purpose}: {choice.reason}"))
        if fit.history:
            lines.append(("", likelihood_change(fit.history)))
    return lines


def _settings(settings: Mapping[str, Any]) -> str:
    """Settings of a fit; one of many values, such as all that were erased, is shortened."""
    return ", ".join(f"{name}={brief(_plain(value), _LONGEST_VALUE)}" for name, value in settings.items())


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_plain(inner)}" for name, inner in value.items()) or "none"
    return str(value)
