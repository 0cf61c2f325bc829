"""The commands ``similarity`` and ``explain``, of two texts."""

import os
from collections.abc import Iterator

import click

from isosent.cli.options import json_option, model_option, open_model
from isosent.cli.printing import deliver, say
from isosent.errors import InputError
from isosent.explanation import Explanation
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.source import is_file_name
from isosent.io.texts import read_texts
from isosent.model import SentenceEncoder
from isosent.pages.report import Part, Report, ReportTable
from isosent.transforms.calibration import RANDOM_PAIRS

_MOST_PAIRS = 12


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
    if files := [text for text in texts if is_file_name(text) and os.path.isfile(text)]:  # noqa: PTH113 - a text may be longer than a path can be
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
        group = next(iter(model.groups.maps))
        say(f"note: {model.groups.note('both texts')} In Python: model.encode(TEXT, group={group!r})")


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
