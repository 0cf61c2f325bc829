"""The commands ``train ...``: Sentence-BERT training (Reimers & Gurevych 2019)."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from isosent.cli.flags import split_names
from isosent.cli.training_options import Training, with_training_flags
from isosent.errors import InputError
from isosent.training.curve import check_curve_output, write_curve
from isosent.training.examples import Examples
from isosent.training.metrics import read_metrics
from isosent.training.reading import read_examples

app = typer.Typer(help="Train a sentence encoder on labelled pairs or triplets.", no_args_is_help=True)

_STS_EPOCHS = 4.0

Data = Annotated[list[str], typer.Option(metavar="FILE", help="Training data; may be repeated.")]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAME=COLUMN,...", help="Columns of other names, as in anchor=question,positive=answer."),
]
ScoreRange = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="Range of the scores, where the format does not say it.")
]
Concatenation = Annotated[str, typer.Option(help="What the classifier sees of the two vectors, as in '|u-v|,u*v'.")]
CONCATENATION = "u,v,|u-v|"


@app.command()
@with_training_flags
def classification(
    data: Data,
    training: Training,
    columns: Columns = None,
    classes: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Names of the classes; those of numbers count from 0.")
    ] = None,
    concatenation: Concatenation = CONCATENATION,
) -> None:
    """Train on pairs with a class, such as entailment, neutral, contradiction.

    A softmax over (u, v, |u-v|) that is thrown away after the training. --data: SNLI and MultiNLI (.jsonl or .tsv),
    KorNLI, KLUE-NLI, or any table with the columns sentence1, sentence2 and label.
    """
    examples = _examples("classification", data, columns, class_names=split_names(classes))
    training.train(training.job(examples, concatenation=concatenation))


@app.command()
@with_training_flags
def regression(
    data: Data,
    training: Training,
    columns: Columns = None,
    score_range: ScoreRange = None,
) -> None:
    """Train on pairs with a score: the cosine is to be the score, scaled to [0, 1].

    --data: STS-B, KorSTS, SICK, or any table with the columns sentence1, sentence2 and score.
    """
    training.train(training.job(_examples("regression", data, columns, score_range=_limits(score_range))))


@app.command()
@with_training_flags
def triplet(
    data: Data,
    training: Training,
    columns: Columns = None,
    margin: Annotated[float, typer.Option(help="How much nearer the positive is to be, in Euclidean distance.")] = 1.0,
) -> None:
    """Train on triplets: the anchor is to lie nearer to the positive than to the negative.

    --data: a table with the columns anchor, positive and negative, or NLI files, which give a premise, what follows
    from it, and what contradicts it.
    """
    training.train(training.job(_examples("triplet", data, columns), margin=margin))


@app.command()
@with_training_flags
def ranking(
    data: Data,
    training: Training,
    columns: Columns = None,
    scale: Annotated[float, typer.Option(help="Of the cosines, ahead of the softmax.")] = 20.0,
    mini_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Examples in memory at a time; the batch may be any size then.")
    ] = None,
) -> None:
    """Train on pairs that belong together: the other positives of a batch are the negatives.

    --data: a table with the columns anchor and positive, and negative where there are hard ones, or NLI files. Larger
    batches are better.
    """
    training.train(training.job(_examples("ranking", data, columns), scale=scale, mini_batch=mini_batch))


class Recipe(StrEnum):
    """Trainings that people know by name."""

    NLI_STSB = "nli-stsb"


@app.command()
@with_training_flags
def recipe(
    name: Annotated[Recipe, typer.Argument(help="nli-stsb: classification on NLI, then regression on STS-B.")],
    nli: Annotated[list[str], typer.Option(metavar="FILE", help="NLI data; may be repeated.")],
    sts: Annotated[list[str], typer.Option(metavar="FILE", help="Scored pairs; may be repeated.")],
    training: Training,
    score_range: ScoreRange = None,
    concatenation: Concatenation = CONCATENATION,
    sts_epochs: Annotated[float, typer.Option(help="Passes over the scored pairs.")] = _STS_EPOCHS,
) -> None:
    """Train by a recipe of several steps; each leaves a model.

    nli-stsb (Reimers & Gurevych 2019, section 4.2): one epoch of classification on NLI (FOLDER/nli), then four of
    regression on STS-B (FOLDER/nli-stsb).
    """
    if training.transform is not None:
        raise InputError("train recipe: --transform must wait for the last model. Use isosent fit -m FOLDER/nli-stsb.")
    first = training.job(read_examples("classification", nli), concatenation=concatenation)
    second = training.job(read_examples("regression", sts, score_range=_limits(score_range)))
    training.train(
        replace(first, output=training.output / "nli"),
        replace(
            second,
            output=training.output / name.value,
            settings=replace(second.settings, n_epochs=sts_epochs),
            reading={},
        ),
    )


@app.command()
def curve(
    metrics: Annotated[Path, typer.Argument(help="metrics.jsonl of a run, which may still go on.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help=".html or .png.")],
) -> None:
    """Draw loss and development scores of a run."""
    check_curve_output(output)
    write_curve(output, read_metrics(metrics))


def _examples(objective: str, data: list[str], columns: str | None, **options: Any) -> Examples:
    named = None
    if columns is not None:
        pairs = [part.partition("=") for part in split_names(columns) or ()]
        if not all(equals and name and column for name, equals, column in pairs):
            raise InputError(f"train: --columns must be NAME=COLUMN,...; got {columns!r}.")
        named = {name: column for name, _, column in pairs}
    return read_examples(objective, data, columns=named, **options)


def _limits(written: str | None) -> tuple[float, float] | None:
    if written is None:
        return None
    try:
        low, high = map(float, written.split(","))
    except ValueError:
        raise InputError(f"train: --score-range must be LOW,HIGH, as in 0,5; got {written!r}.") from None
    return low, high
