"""The commands ``train``, Sentence-BERT training (Reimers & Gurevych 2019), and ``distill``.

`train` reads options, settings and data into a job, or two for nli-stsb. It shows the data and the texts that are
in the scored sets too, trains by one call of `train_all`, and prints the scores, with a warning where one went down.
`training_display` shows runs while they train: a bar in a terminal, and lines (`TrainingLines`).
Under torchrun every process runs this command; only the first one prints.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from isosent.cli.options import (
    PATH,
    column_option,
    model_folder_option,
    no_column_option,
    open_model,
    output_option,
    split_names,
    worker_options,
)
from isosent.cli.printing import deliver, say, say_replaced
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.tables import overlap_table, x100
from isosent.exports.check import EXPORT
from isosent.io.atomic import check_folder, check_parent
from isosent.jobs.shards import Engine
from isosent.pages.progress import Progress, make_console
from isosent.pages.report import Note, Report, ReportTable
from isosent.training.data import Examples, read_examples
from isosent.training.development import count_seen_texts, warn_if_seen
from isosent.training.distill import distill_files
from isosent.training.metrics import DevPoint, StepPoint, TrainingCallback
from isosent.training.plan import NLI_STSB, is_first_process, nli_stsb_stages, plan, train_all, training_job
from isosent.training.record import TrainingJob, TrainingResult
from isosent.training.run import check_training_folder
from isosent.training.settings import OBJECTIVES, TrainingSettings, parse_setting
from isosent.training.trainer import trainer_class
from isosent.transforms.base import AUTO, parse_option, resolve_transform

if TYPE_CHECKING:
    from rich.console import Console

_DEFAULTS = TrainingSettings()
_EXIT_INTERRUPTED = 130
_PAUSE_S = 60.0
_SHOWN_CHARACTERS = 40


@click.command()
@click.argument("objective", type=click.Choice([*OBJECTIVES, NLI_STSB]))
@click.option("--data", "data", metavar="FILE", multiple=True, required=True, help="Training data; may be repeated.")
@click.option(
    "--base", metavar="REFERENCE", default=DEFAULT_REFERENCE, help="Model to train, or scratch: for a new one."
)
@model_folder_option
@click.option("--dev", metavar="FILE", help="Scored pairs for choosing the best weights.")
@click.option("--test", "tests", metavar="FILE", multiple=True, help="Scored pairs, before and after; may be repeated.")
@click.option(
    "--columns", metavar="A,B,SCORE", help="Columns of --data; of --dev and --test too, if they are scored pairs."
)
@click.option("--dev-columns", metavar="A,B,SCORE", help="Columns of --dev and --test, if they differ.")
@click.option("--score-range", metavar="LOW,HIGH", help="Range of the scores, such as 0,5, if the format does not say.")
@click.option("--classes", metavar="NAMES", help="Names of the classes, in the order of their numbers.")
@click.option(
    "--sts", metavar="FILE", multiple=True, help=f"{NLI_STSB}: scored pairs for the second step; may be repeated."
)
@click.option(
    "--epochs", "n_epochs", metavar="N", help=f"Passes over the data; {NLI_STSB}: of both steps.  [default: 1; 1,4]"
)
@click.option(
    "--batch-size", metavar="N", help=f"Examples per batch on each device.  [default: {_DEFAULTS.batch_size}]"
)
@click.option("--learning-rate", metavar="R", help="[default: 2e-5; 5e-4 for scratch:; 1e-2 for token vectors]")
@click.option("--seed", metavar="N", help=f"Random seed.  [default: {_DEFAULTS.seed}]")
@click.option("--set", "further", metavar="NAME=VALUE", multiple=True, help="Any other setting; may be repeated.")
@click.option(
    "--transform", metavar="NAME", help="Transform to fit afterwards: auto, or such as 'whitening?n_components=64'."
)
@click.option("--fit-on", metavar="FILE", help="Texts for --transform.  [default: the training texts]")
@click.option("--overlap", type=PATH, metavar="DIR", help="Evaluation data to look for training texts in.")
@click.option("--seeds", type=int, metavar="N", help="Repeat with N seeds, for the mean and the standard deviation.")
@click.option("--resume", is_flag=True, help="Resume an interrupted run.")
@no_column_option()
def train(
    objective: str,
    data: tuple[str, ...],
    base: str,
    output: Path,
    dev: str | None,
    tests: tuple[str, ...],
    columns: str | None,
    dev_columns: str | None,
    score_range: str | None,
    classes: str | None,
    sts: tuple[str, ...],
    transform: str | None,
    fit_on: str | None,
    overlap: Path | None,
    seeds: int | None,
    resume: bool,
    further: tuple[str, ...],
    **flags: str | None,
) -> None:
    """Train a sentence encoder on labeled pairs or triplets.

    \b
    classification  pairs with a class, such as entailment (SNLI, MultiNLI, KorNLI, KLUE-NLI)
    regression      pairs with a score (STS-B, KorSTS, SICK)
    triplet         anchor, positive, negative; also made from NLI
    ranking         anchor, positive, perhaps a negative; other positives of a batch are negatives
    nli-stsb        classification on --data, then regression on --sts: FOLDER/nli and FOLDER/nli-stsb

    \b
    isosent train regression --data train.csv --base hf:DIR --dev dev.csv --test test.csv -o trained

    Files are .csv, .tsv, .jsonl or .parquet; usual column names are detected. Settings for --set: see TrainingSettings
    in the Python reference, for example --set margin=0.5 --set matryoshka=256,64.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    is_recipe = objective == NLI_STSB
    if is_recipe != bool(sts):
        raise InputError(f"train: the objective {NLI_STSB} and --sts go together.")
    first = "classification" if is_recipe else objective
    sts_epochs = 4.0
    if is_recipe and flags["n_epochs"] is not None and "," in flags["n_epochs"]:
        flags["n_epochs"], second = flags["n_epochs"].split(",", 1)
        sts_epochs = parse_setting(f"n_epochs={second}")[1]
    texts = [*(f"{name}={value}" for name, value in flags.items() if value is not None), *further]
    settings = TrainingSettings(objective=first, **dict(map(parse_setting, texts)))
    limits = _score_range(score_range)
    chosen = resolve_transform(transform)
    if chosen is not None and is_recipe:
        raise InputError(f"train: {NLI_STSB} takes no transform. Use isosent fit TEXTS -m {output / NLI_STSB}.")
    job = training_job(
        base,
        data,
        output,
        settings,
        columns=columns,
        class_names=split_names(classes),
        score_range=None if is_recipe else limits,
        dev=dev,
        dev_columns=dev_columns,
        tests=tests,
        transform=chosen,
        fit_on=fit_on,
    )
    stages = [job]
    if is_recipe:
        stages = nli_stsb_stages(job, read_examples("regression", list(sts), score_range=limits), n_epochs=sts_epochs)
    trainer_class()  # its extra is missed before any work is done
    jobs = plan(stages, n_seeds=seeds)
    for job in jobs:
        if job.output.parent.is_dir():
            is_replaced = check_training_folder(job.output) and not resume
            say_replaced("a model", job.output, is_replaced and is_first_process())
    check_parent(output)
    if is_first_process():
        _show_data(stages, overlap)
    try:
        with training_display() as (progress, report):
            results = train_all(jobs, resume=resume, progress=progress, report=report)
    except KeyboardInterrupt:
        say("interrupted; the run is saved, and the same command with --resume continues it")
        sys.exit(_EXIT_INTERRUPTED)
    if is_first_process():
        table = _scores_table(results, seeded=seeds is not None)
        saved = f"saved: {', '.join(str(result.folder) for result in results)}"
        deliver(Report(parts=[table, *map(Note, notes(results)), saved]))


def _score_range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError(f"--score-range {text}: write LOW,HIGH, such as 0,5.") from None
    return low, high


def _show_data(stages: Sequence[TrainingJob], overlap: Path | None) -> None:
    """Show the examples of each stage, and which scored texts are among them."""
    for job in stages:
        for table in _data_tables(job.examples):
            say(table)
        for devset in job.scored:
            warn_if_seen(job.examples, devset)
        if job.scored or overlap is not None:
            say(overlap_table(count_seen_texts(job.examples, job.scored, folder=overlap), "the training data"))


def _data_tables(examples: Examples) -> Iterator[ReportTable]:
    """What the data hold, and their first rows under the columns they were read from."""
    title = f"{examples.objective}: {len(examples):,} examples"
    facts = ReportTable("", "", left=range(2), has_header=False, title=title)
    for source in examples.sources:
        facts.add_row(str(source.path), f"{source.n_rows:,} rows, {source.encoding}")
    for reason, count in examples.dropped.items():
        facts.add_row(f"dropped: {reason}", f"{count:,}")
    for name, count in examples.label_counts.items():
        facts.add_row(name, f"{count:,} ({count / len(examples):.1%})")
    for name, value in examples.score_summary.items():
        facts.add_row(f"score, {name}", f"{value:.3f}")
    yield facts
    columns = [
        name if source == name else f"{name} (from {source})" for name, source in examples.source_columns.items()
    ]
    rows = ReportTable(*columns, left=range(len(columns)), title="first rows")
    for row in examples.sample():
        cells = map(str, row.values())
        rows.add_row(
            *(cell if len(cell) <= _SHOWN_CHARACTERS else f"{cell[: _SHOWN_CHARACTERS - 1]}…" for cell in cells)
        )
    yield rows


def _scores_table(results: Sequence[TrainingResult], *, seeded: bool) -> ReportTable:
    """Spearman x100 before and after, one row per model and scored set; seeds share a row."""
    groups: dict[str, list[TrainingResult]] = {}
    for result in results:
        groups.setdefault(str(result.folder.parent if seeded else result.folder), []).append(result)
    with_transform = any(scores.with_transform for result in results for scores in result.scores.values())
    n_seeds = max(map(len, groups.values()))
    caption = "Spearman x100" + (f"; mean and standard deviation of {n_seeds} seeds" if n_seeds > 1 else "")
    names = ("before", "after", *(["with transform"] if with_transform else []), "step kept", "seconds")
    table = ReportTable("model", "set", *names, left=range(2), caption=caption)
    for name, group in groups.items():
        steps = ", ".join(str(result.kept_step) for result in group) + f" of {group[0].n_steps}"
        seconds = f"{sum(result.elapsed_s for result in group):,.0f}"
        for devset in group[0].scores or ["-"]:
            scores = [result.scores[devset] for result in group if devset in result.scores]
            columns = [[score.before for score in scores], [score.after for score in scores]]
            if with_transform:
                columns.append([score.with_transform for score in scores if score.with_transform])
            cells = (over_seeds([score.spearman for score in column]) for column in columns)
            table.add_row(name, devset, *cells, steps, seconds)
    return table


def over_seeds(values: Sequence[float]) -> str:
    """Mean and standard deviation (divisor n - 1) x100."""
    if len(values) < 2:
        return x100(values[0]) if values else "-"
    return f"{x100(float(np.mean(values)))} ± {x100(float(np.std(values, ddof=1)))}"


def notes(results: Sequence[TrainingResult]) -> Iterator[str]:
    """What auto chose, which scores went down, and whether nothing was scored."""
    for result in results:
        if result.model.fits and result.model.fits[-1].choice:
            yield f"{result.folder}: {result.model.fits[-1].choice['reason']}"
        for name, scores in result.scores.items():
            for cause, before, after in (
                ("training", scores.before, scores.after),
                ("the transform", scores.after, scores.with_transform),
            ):
                if after is not None and after.spearman < before.spearman:
                    loss = x100(before.spearman - after.spearman)
                    yield f"warning: {result.folder}: {cause} lowered the score on {name} by {loss}"
    if not any(result.scores for result in results):
        yield "nothing was scored; use --dev or --test to score pairs"


@click.command()
@click.argument("model")
@click.argument("inputs", nargs=-1, metavar="TEXTS...")
@output_option("FOLDER", "Folder of the static model.")
@click.option("--vectors", metavar="FILE", help="Vectors that the model gave the texts, if there are some already.")
@column_option
@click.option(
    "--transform", metavar="NAME", help='Transform to fold in: auto, or as for "isosent fit".  [default: none]'
)
@click.option("--dims", metavar="K|SHARE|auto", help="Dimensions to keep; auto chooses the transform for them.")
@worker_options
def distill(
    model: str,
    inputs: tuple[str, ...],
    output: Path,
    vectors: str | None,
    column: str | None,
    transform: str | None,
    dims: str | None,
    engine: Engine | None,
) -> None:
    """Turn MODEL, a transformer, into a static model that is 44 times as fast or more, and say what is lost.

    TEXTS are files of texts like those to come, without labels: 20,000 texts or more. They are encoded once; run the
    same command again to resume. isosent, Model2Vec and sentence-transformers open FOLDER.

    Without a transform, the vectors lie in the space of MODEL: "isosent index -m MODEL --query-model FOLDER" makes an
    index whose queries cost microseconds. --transform auto or --dims give the static model a separate embedding space.

    \b
    isosent distill hf:DIR texts.txt -o static
    """  # noqa: D301
    if not inputs or Path(model).is_file():
        what = f"{model} is a file" if Path(model).is_file() else "there are no texts"
        raise InputError(
            f"distill: {what}. Name a transformer, and then files of texts: isosent distill hf:DIR TEXTS -o FOLDER. "
            "If you have its vectors of these texts, add --vectors FILE."
        )
    say_replaced("a model", output, check_folder(output, EXPORT))
    loaded = open_model(model)
    settings = {} if dims is None else {"n_components": parse_option(dims)}
    result = distill_files(
        inputs,
        output,
        loaded,
        reference=model,
        vectors=vectors,
        column=column,
        transform=resolve_transform(transform or (AUTO if settings else None), settings),
        engine=engine,
        say=say,
    )
    deliver(Report(parts=[*result.lines(), f"{output}: {loaded.encoder.reference} as a static model"]))


@contextmanager
def training_display(console: "Console | None" = None) -> Iterator[tuple[Progress | None, TrainingCallback]]:
    """Show training runs while the block runs: a bar in a terminal, else lines."""
    console = console or make_console(sys.stderr)
    if not console.is_terminal:
        yield None, TrainingLines(console.print)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("training"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        bar = bars.add_task("", visible=False, state="")

        def show(done: int, total: int | None) -> None:
            bars.update(bar, completed=done, total=total, visible=True)

        yield show, TrainingLines(bars.console.print, lambda state: bars.update(bar, state=state))


class TrainingLines:
    """Prints messages, scores, and the state of the first step, then at most once a minute, and of the last one.

    With `show`, what shows the state beside a bar, the state is a line at the last step only.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        show: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._show, self._clock = write, show, clock
        self._next_s = -math.inf
        self._first = math.nan

    def __call__(self, event: StepPoint | DevPoint | str) -> None:
        """Print what is due."""
        if isinstance(event, StepPoint):
            self._step(event)
        elif isinstance(event, DevPoint):
            self._score(event)
        else:
            self._write(event)
            self._next_s, self._first = -math.inf, math.nan  # a run begins with a message

    def _step(self, point: StepPoint) -> None:
        remaining = "" if math.isnan(point.remaining_s) else f"{timedelta(seconds=round(point.remaining_s))} left"
        state = f"loss {point.loss:.4f}", f"lr {point.learning_rate:.2g}", f"{point.examples_per_s:,.0f} examples/s"
        if self._show:
            self._show("  ".join((*state, remaining)))
            if point.step == point.n_steps:
                self._write(f"{point.step:,} steps: {', '.join(state)}")
        elif point.step == point.n_steps or self._clock() >= self._next_s:
            self._write(f"step {point.step:,} of {point.n_steps:,}: {', '.join((*state, remaining))}")
            self._next_s = self._clock() + _PAUSE_S

    def _score(self, point: DevPoint) -> None:
        if math.isnan(point.spearman):
            self._write(f"step {point.step:,}: development Spearman undefined")
            return
        gain = 100 * (point.spearman - self._first)
        change = "" if math.isnan(gain) else f" ({gain:+.2f} since the first)"
        self._first = point.spearman if math.isnan(gain) else self._first
        self._write(f"step {point.step:,}: development Spearman {100 * point.spearman:.2f}{change}")
