"""The commands ``train ...``: Sentence-BERT training (Reimers & Gurevych 2019)."""

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from isosent.cli.evaluate import overlap_table
from isosent.cli.options import (
    NO_TRANSFORM,
    TransformChoice,
    flag,
    split_names,
    whole_numbers,
    with_flags,
    with_transform_flags,
)
from isosent.cli.printing import Interrupted, err, examples_tables, notes, out, scores_table
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.io.atomic import check_parent
from isosent.io.texts import read_texts
from isosent.training.curve import check_curve_output, write_curve
from isosent.training.data import Examples, count_seen_texts, read_dev_set, read_examples, warn_if_seen
from isosent.training.metrics import TrainingProgress, read_metrics
from isosent.training.run import TrainingJob, is_first_process, plan, train_all
from isosent.training.saving import check_training_folder
from isosent.training.settings import TrainingSettings
from isosent.training.trainer import trainer_class

_BASE, _RUN, _SCORES, _OBJECTIVE = "Base", "Run", "Scores", "Objective"
_DEFAULT = TrainingSettings()


@dataclass(frozen=True, slots=True)
class Training:
    """How a command trains, whatever the objective and the data.

    Parameters
    ----------
    base : str
        Model reference of the base.
    output : Path
        Folder of the model.
    settings : TrainingSettings
        Settings; the objective is that of the command.
    dev, test : str or None, list of str
        Files of scored pairs.
    transform : TransformChoice or None
        What is fitted at the end.
    fit_on : str or None
        Texts to fit on; those of the training where left out.
    seeds : int or None
        Seeds to repeat the training with.
    resume : bool
        Whether to go on.
    overlap : Path or None
        Folder of evaluation sets, looked through for training texts.
    """

    base: str
    output: Path
    settings: TrainingSettings
    dev: str | None
    test: list[str]
    transform: TransformChoice | None
    fit_on: str | None
    seeds: int | None
    resume: bool
    overlap: Path | None

    def job(self, examples: Examples, **objective: Any) -> TrainingJob:
        """Make the job of this command line.

        Parameters
        ----------
        examples : Examples
            The data.
        **objective : object
            What the command says of the objective.

        Returns
        -------
        TrainingJob
            The job.
        """
        return TrainingJob(
            self.base,
            examples,
            self.output,
            replace(self.settings, objective=examples.objective, **objective),
            None if self.dev is None else read_dev_set(self.dev),
            [read_dev_set(path) for path in self.test],
            *self._transform(),
        )

    def train(self, *stages: TrainingJob) -> None:
        """Show the data, train, and print the scores.

        Parameters
        ----------
        *stages : TrainingJob
            One after another, each on top of the one before.
        """
        trainer_class()
        jobs = plan(stages, n_seeds=self.seeds)
        if len(jobs) == 1:
            check_training_folder(self.output)
        check_parent(self.output)
        is_first = is_first_process()
        for job in stages if is_first else ():
            for table in [*examples_tables(job.examples), *self._overlap(job)]:
                err.print(table)
        try:
            results = train_all(jobs, resume=self.resume, progress=_shown)
        except KeyboardInterrupt:
            err.print("interrupted; what is done is kept, and the same command with --resume goes on")
            raise Interrupted from None
        if is_first:
            out.print(scores_table(results, seeded=self.seeds is not None))
            for note in notes(results):
                err.print(note)
            out.print(f"saved: {', '.join(str(result.folder) for result in results)}")

    def _overlap(self, job: TrainingJob) -> list[Table]:
        """Where texts that are scored occur in the training data; sets that are mostly training pairs are warned of."""
        for devset in job.scored:
            warn_if_seen(job.examples, devset)
        if not job.scored and self.overlap is None:
            return []
        counts = count_seen_texts(job.examples, job.scored, folder=self.overlap)
        return [overlap_table(counts, "the training data")]

    def _transform(self) -> tuple[Any, ...]:
        """Transform, texts to fit it on, and where they come from."""
        if self.transform is None or self.transform.names == NO_TRANSFORM:
            if self.fit_on is not None:
                raise InputError("train: --fit-on must come with a transform to fit. Add --transform auto.")
            return ()
        made = self.transform.make(None)
        return (made,) if self.fit_on is None else (made, read_texts(self.fit_on), self.fit_on)


@contextmanager
def _shown(job: TrainingJob) -> Iterator[TrainingProgress]:
    with training_progress() as progress:
        yield progress


def _option(name: str, kind: Any, summary: str, panel: str, default: object = None, metavar: str | None = None) -> Any:
    option = typer.Option(f"--{name}", help=summary, rich_help_panel=panel, metavar=metavar)
    return flag(name.replace("-", "_"), Annotated[kind, option], default)


def _setting(name: str, kind: Any, summary: str, metavar: str | None = None) -> Any:
    return _option(name, kind, summary, _RUN, getattr(_DEFAULT, _SETTING_OF.get(name, name.replace("-", "_"))), metavar)


_SETTING_OF = {"epochs": "n_epochs", "evaluations": "n_evaluations"}
_SETTINGS = [
    _setting("epochs", float, "Passes over the data."),
    _setting("batch-size", int, "Examples a batch, on each device."),
    _setting(
        "learning-rate", float | None, "Of AdamW. [default: 2e-5; 5e-4 for scratch:; 1e-2 for tables of token vectors]"
    ),
    _setting("warmup", float, "Share of the steps over which the learning rate rises."),
    _setting("weight-decay", float, "Of AdamW."),
    _setting("max-gradient-norm", float, "Norm that longer gradients are scaled down to."),
    _setting("accumulation", int, "Batches whose gradients make one step."),
    _setting("batching", str, "random; length: texts of similar length share a batch."),
    _setting("precision", str, "float32 or bfloat16."),
    _setting("recompute", bool, "Compute activations again in place of keeping them: less memory, more time."),
    _setting("evaluations", int, "Scores of the development set after the one at the start."),
    _setting("checkpoint-every", int, "Steps between checkpoints."),
    _setting("keep", str, "Which weights are saved: best on the development set, or last."),
    _setting("seed", int, "Of first weights, order of the data, and dropout."),
]
_WRAPPING = [
    _option(
        "matryoshka", str | None, "Train the first K dimensions too, as in 256,128,64.", _OBJECTIVE, metavar="K,..."
    ),
    _option("regularizer", str | None, "whitening or isotropy: a penalty on the vectors of a batch.", _OBJECTIVE),
    _option("regularizer-weight", float | None, "Of that penalty.", _OBJECTIVE),
]
_OTHERS = [
    _option("base", str, "What is trained: any model reference, or scratch:", _BASE, DEFAULT_REFERENCE, "MODEL"),
    _option("pooling", str | None, "mean, max or cls, in place of the base's own.", _BASE),
    _option("max-length", int | None, "Tokens that texts are cut at, in place of the base's own.", _BASE),
    _option("dev", str | None, "Scored pairs, for the scores on the way and the best step.", _SCORES, metavar="FILE"),
    _option("test", list[str], "Scored pairs, before and after; may be repeated.", _SCORES, [], "FILE"),
    _option("overlap", Path | None, "Evaluation sets to look for training texts in.", _SCORES, metavar="DIR"),
    _option("fit-on", str | None, "Texts for --transform. [default: the training texts]", "Transform", metavar="FILE"),
    _option("seeds", int | None, "Train with that many seeds; scores are mean and deviation.", _RUN),
    _option("resume", bool, "Go on with what was stopped.", _RUN, False),
]
_OUTPUT = flag(
    "output",
    Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.")],
    inspect.Parameter.empty,
)


def _optional(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of the base and of the regularizer that were named."""
    names = ["pooling", "max_length", *(s.name for s in _WRAPPING)]
    named = {name: value for name in names if (value := given.pop(name)) is not None}
    if "matryoshka" in named:
        named["matryoshka"] = tuple(whole_numbers("--matryoshka", named["matryoshka"]))
    return named


def with_training_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of `Training` in place of its parameter ``training``."""

    def build(values: Mapping[str, Any]) -> Training:
        given = dict(values)
        settings = TrainingSettings(
            **{_SETTING_OF.get(written, written): given.pop(written) for written in (s.name for s in _SETTINGS)},
            **_optional(given),
        )
        return Training(**given, settings=settings)

    flags = [_OUTPUT, *_OTHERS, *_WRAPPING, *_SETTINGS, flag("transform", TransformChoice | None)]
    return with_transform_flags(None)(with_flags("training", flags, build)(command))


_PAUSE_S = 60.0


@contextmanager
def training_progress(console: Console = err) -> Iterator[TrainingProgress]:
    """Show a training run while the block runs.

    Parameters
    ----------
    console : Console, default `err`
        Where.

    Yields
    ------
    TrainingProgress
        A bar where it is a terminal, see `TrainingBar`; else lines, see `TrainingLines`.
    """
    if not console.is_terminal:
        yield TrainingLines(console.print)
        return
    columns = TextColumn("training"), BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.fields[told]}")
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        yield TrainingBar(bar)


class TrainingLines:
    """Lines: the first step, then one at most a minute, the last step; and every score of the development set.

    Parameters
    ----------
    write : callable
        Takes a line.
    clock : callable, default `time.monotonic`
        Seconds.
    """

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
        """Write a line, unless the last one is not a minute old."""
        told = _told(loss, learning_rate, examples_per_s, remaining_s)
        self._waiting = f"step {step:,} of {self._n_steps:,}: {', '.join(told)}"
        if self._clock() >= self._next_s:
            self._write_waiting()

    def evaluated(self, step: int, spearman: float) -> None:
        """Write a line."""
        self._write(self._of_score(step, spearman))

    def message(self, text: str) -> None:
        """Write a line."""
        self._write(text)

    def finished(self) -> None:
        """Write the line of the last step, unless it is written."""
        self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting:
            self._write(self._waiting)
            self._waiting, self._next_s = "", self._clock() + _PAUSE_S

    def _of_score(self, step: int, spearman: float) -> str:
        if math.isnan(spearman):
            return f"step {step:,}: development Spearman undefined"
        gain = 100 * (spearman - self._first)
        since = "" if math.isnan(gain) else f" ({gain:+.2f} since the first)"
        self._first = spearman if math.isnan(self._first) else self._first
        return f"step {step:,}: development Spearman {100 * spearman:.2f}{since}"


class TrainingBar(TrainingLines):
    """A bar with loss, learning rate, examples a second and remaining time; scores and messages stand above it.

    Parameters
    ----------
    bar : Progress
        Of rich, with a column for the field ``told``.
    """

    def __init__(self, bar: Progress) -> None:
        super().__init__(bar.console.print)
        self._bar = bar

    def started(self, n_steps: int, done: int) -> None:
        """Begin."""
        super().started(n_steps, done)
        self._task = self._bar.add_task("", total=n_steps, completed=done, told="")

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Move the bar on."""
        told = _told(loss, learning_rate, examples_per_s, remaining_s)
        self._bar.update(self._task, completed=step, told="  ".join(told))
        self._waiting = f"{step:,} steps: {', '.join(told[:-1])}"


def _told(loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> tuple[str, ...]:
    remaining = "" if math.isnan(remaining_s) else f"{timedelta(seconds=round(remaining_s))} left"
    return f"loss {loss:.4f}", f"lr {learning_rate:.2g}", f"{examples_per_s:,.0f} examples/s", remaining


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
            settings=replace(second.settings, n_epochs=sts_epochs, pooling=None, max_length=None),
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
