"""The commands ``train``, Sentence-BERT training (Reimers & Gurevych 2019), and ``distill``.

`train` reads options, settings and data into a job, or two for nli-stsb. It shows the data and the texts that are
in the scored sets too, trains by one call of `train_all`, and prints the scores, with a warning where one went down.
`training_progress` shows a run while it trains: a bar in a terminal (`TrainingBar`), else lines (`TrainingLines`).
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

from isosent.cli.options import PATH, column_option, open_model, split_names, worker_options
from isosent.cli.printing import say, show
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.tables import overlap_table, x100
from isosent.io.atomic import check_parent
from isosent.io.texts import read_texts
from isosent.jobs.shards import Engine
from isosent.pages.progress import make_console, progress_bar
from isosent.pages.tables import make_table
from isosent.training.data import Examples, read_dev_set, read_examples
from isosent.training.development import count_seen_texts, warn_if_seen
from isosent.training.distill import distill_files
from isosent.training.metrics import TrainingProgress
from isosent.training.record import TRAINING_TEXTS, TrainingJob, TrainingResult
from isosent.training.run import (
    NLI_STSB,
    check_training_folder,
    is_first_process,
    nli_stsb_stages,
    plan,
    train_all,
)
from isosent.training.settings import OBJECTIVES, TrainingSettings, parse_setting
from isosent.training.trainer import trainer_class
from isosent.transforms.base import AUTO, parse_option, resolve_transform

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

_EXIT_INTERRUPTED = 130
_PAUSE_S = 60.0
_SHOWN_CHARACTERS = 40


@click.command()
@click.argument("objective", type=click.Choice([*OBJECTIVES, NLI_STSB]))
@click.option("--data", "data", metavar="FILE", multiple=True, required=True, help="Training data; may be repeated.")
@click.option(
    "--base", metavar="REFERENCE", default=DEFAULT_REFERENCE, help="Model to train, or scratch: for a new one."
)
@click.option("--output", "-o", type=PATH, metavar="FOLDER", required=True, help="Model folder to write.")
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
@click.option("--batch-size", metavar="N", help="Examples per batch on each device.  [default: 16]")
@click.option("--learning-rate", metavar="R", help="[default: 2e-5; 5e-4 for scratch:; 1e-2 for token vectors]")
@click.option("--seed", metavar="N", help="Random seed.  [default: 0]")
@click.option("--set", "further", metavar="NAME=VALUE", multiple=True, help="Any other setting; may be repeated.")
@click.option(
    "--transform", metavar="NAME", help="Transform to fit afterwards: auto, or such as 'whitening?n_components=64'."
)
@click.option("--fit-on", metavar="FILE", help="Texts for --transform.  [default: the training texts]")
@click.option("--overlap", type=PATH, metavar="DIR", help="Evaluation data to look for training texts in.")
@click.option("--seeds", type=int, metavar="N", help="Repeat with N seeds, for the mean and the standard deviation.")
@click.option("--resume", is_flag=True, help="Resume an interrupted run.")
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
    scored = "ranking" if objective == "ranking" else "regression"
    scored_columns = {"columns": dev_columns, "data_columns": columns if objective == scored else None}
    chosen = resolve_transform(transform)
    if chosen is None and fit_on is not None:
        raise InputError("train: --fit-on needs a transform to fit. Add --transform auto.")
    if chosen is not None and is_recipe:
        raise InputError(f"train: {NLI_STSB} takes no transform. Use isosent fit TEXTS -m {output / NLI_STSB}.")
    class_names, limits_of_data = split_names(classes), None if is_recipe else limits
    job = TrainingJob(
        base,
        read_examples(first, list(data), columns=columns, class_names=class_names, score_range=limits_of_data),
        output,
        settings,
        dev=None if dev is None else read_dev_set(dev, **scored_columns, objective=scored),
        tests=[read_dev_set(path, **scored_columns, objective=scored) for path in tests],
        transform=chosen,
        fit_texts=None if fit_on is None else read_texts(fit_on),
        fit_source=fit_on or TRAINING_TEXTS,
    )
    stages = [job]
    if is_recipe:
        stages = nli_stsb_stages(job, read_examples("regression", list(sts), score_range=limits), n_epochs=sts_epochs)
    trainer_class()  # its extra is missed before any work is done
    jobs = plan(stages, n_seeds=seeds)
    if len(jobs) == 1:
        check_training_folder(output)
    check_parent(output)
    if is_first_process():
        _show_data(stages, overlap)
    try:
        results = train_all(jobs, resume=resume, progress=training_progress)
    except KeyboardInterrupt:
        say("interrupted; the run is saved, and the same command with --resume continues it")
        sys.exit(_EXIT_INTERRUPTED)
    if is_first_process():
        show(_scores_table(results, seeded=seeds is not None))
        for note in notes(results):
            say(note)
        show(f"saved: {', '.join(str(result.folder) for result in results)}")


def _score_range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError(f"train: --score-range must be LOW,HIGH, such as 0,5; got {text!r}.") from None
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


def _data_tables(examples: Examples) -> "Iterator[Table]":
    """What the data hold, and their first rows under the columns they were read from."""
    facts = make_table("", "", left=2, header=False, title=f"{examples.objective}: {len(examples):,} examples")
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
    rows = make_table(*columns, left=len(columns), title="first rows")
    for row in examples.sample():
        cells = map(str, row.values())
        rows.add_row(
            *(cell if len(cell) <= _SHOWN_CHARACTERS else f"{cell[: _SHOWN_CHARACTERS - 1]}…" for cell in cells)
        )
    yield rows


def _scores_table(results: Sequence[TrainingResult], *, seeded: bool) -> "Table":
    """Spearman x100 before and after, one row per model and scored set; seeds share a row."""
    groups: dict[str, list[TrainingResult]] = {}
    for result in results:
        groups.setdefault(str(result.folder.parent if seeded else result.folder), []).append(result)
    with_transform = any(scores.with_transform for result in results for scores in result.scores.values())
    n_seeds = max(map(len, groups.values()))
    caption = "Spearman x100" + (f"; mean and standard deviation of {n_seeds} seeds" if n_seeds > 1 else "")
    names = ("before", "after", *(["with transform"] if with_transform else []), "step kept", "seconds")
    table = make_table("model", "set", *names, left=2, caption=caption)
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
@click.option("--output", "-o", type=PATH, metavar="FOLDER", required=True, help="Folder of the static model.")
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
    """Turn MODEL, a transformer, into a static model that is a hundred times as fast, and say what is lost.

    TEXTS are files of texts like those to come, without labels: 20,000 texts or more. They are encoded once; run the
    same command again to resume. isosent, Model2Vec and sentence-transformers open FOLDER.

    Without a transform, the vectors lie in the space of MODEL: "isosent index -m MODEL --query-model FOLDER" makes an
    index whose queries cost microseconds. --transform auto or --dims give the static model a space of its own.

    \b
    isosent distill hf:DIR texts.txt -o static
    """  # noqa: D301
    if not inputs or Path(model).is_file():
        what = f"{model} is a file" if Path(model).is_file() else "there are no texts"
        raise InputError(
            f"distill: {what}. Name a transformer, and then files of texts: isosent distill hf:DIR TEXTS -o FOLDER. "
            "If you have its vectors of these texts, add --vectors FILE."
        )
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
        bars=progress_bar,
        say=say,
    )
    for line in result.lines():
        show(line)
    show(f"{output}: {loaded.encoder.reference} as a static model")


@contextmanager
def training_progress(console: "Console | None" = None) -> Iterator[TrainingProgress]:
    """Show a training run while the block runs: a bar in a terminal, else lines."""
    console = console or make_console(sys.stderr)
    if not console.is_terminal:
        yield TrainingLines(console.print)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("training"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        yield TrainingBar(bar)


class TrainingLines:
    """Lines: the first step, then at most one a minute, the last step, and every score of the development set."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._n_steps = 0
        self._next_s = -math.inf
        self._waiting = ""
        self._first = math.nan

    def started(self, n_steps: int, done: int) -> None:
        """Begin."""
        self._n_steps = n_steps

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Write a line, unless the last one is less than a minute old."""
        state = _state(loss, learning_rate, examples_per_s, remaining_s)
        self._waiting = f"step {step:,} of {self._n_steps:,}: {', '.join(state)}"
        if self._clock() >= self._next_s:
            self._write_waiting()

    def evaluated(self, step: int, spearman: float) -> None:
        """Write a score."""
        if math.isnan(spearman):
            self._write(f"step {step:,}: development Spearman undefined")
            return
        gain = 100 * (spearman - self._first)
        change = "" if math.isnan(gain) else f" ({gain:+.2f} since the first)"
        self._first = spearman if math.isnan(self._first) else self._first
        self._write(f"step {step:,}: development Spearman {100 * spearman:.2f}{change}")

    def message(self, text: str) -> None:
        """Write a message."""
        self._write(text)

    def finished(self) -> None:
        """Write the line of the last step, if it is not yet written."""
        self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting:
            self._write(self._waiting)
            self._waiting, self._next_s = "", self._clock() + _PAUSE_S


class TrainingBar(TrainingLines):
    """A bar with loss, learning rate, speed and remaining time; scores and messages are printed above it."""

    def __init__(self, bar: "Progress") -> None:
        super().__init__(bar.console.print)
        self._bar = bar

    def started(self, n_steps: int, done: int) -> None:
        """Begin."""
        super().started(n_steps, done)
        self._task = self._bar.add_task("", total=n_steps, completed=done, state="")

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Advance the bar."""
        state = _state(loss, learning_rate, examples_per_s, remaining_s)
        self._bar.update(self._task, completed=step, state="  ".join(state))
        self._waiting = f"{step:,} steps: {', '.join(state[:-1])}"


def _state(loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> tuple[str, ...]:
    remaining = "" if math.isnan(remaining_s) else f"{timedelta(seconds=round(remaining_s))} left"
    return f"loss {loss:.4f}", f"lr {learning_rate:.2g}", f"{examples_per_s:,.0f} examples/s", remaining
