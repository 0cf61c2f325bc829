"""What the commands ``train ...`` share: base, settings, scoring, and what becomes of the model."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from isosent.cli.flags import flag, whole_numbers, with_flags
from isosent.cli.overlap import overlap_table
from isosent.cli.terminal import Interrupted, err, out
from isosent.cli.training_progress import training_progress
from isosent.cli.training_tables import examples_tables, notes, scores_table
from isosent.cli.transform_options import NO_TRANSFORM, TransformChoice, with_transform_flags
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.files.atomic import check_parent
from isosent.files.texts import read_texts
from isosent.training.examples import Examples
from isosent.training.job import Ending, TrainingJob
from isosent.training.objectives import ObjectiveSettings
from isosent.training.overlaps import count_seen_texts, warn_if_seen
from isosent.training.progress import TrainingProgress
from isosent.training.reading import read_dev_set
from isosent.training.repeating import is_first_process, plan, train_all
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
    wrapping : dict
        Settings of the objective that any objective takes.
    reading : dict
        Pooling and maximum length of the base, where they are named.
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
    wrapping: dict[str, Any]
    reading: dict[str, Any]
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
            replace(self.settings, objective=ObjectiveSettings(examples.objective, **objective, **self.wrapping)),
            self.reading,
            None if self.dev is None else read_dev_set(self.dev),
            [read_dev_set(path) for path in self.test],
            self._ending(),
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

    def _ending(self) -> Ending:
        if self.transform is None or self.transform.names == NO_TRANSFORM:
            if self.fit_on is not None:
                raise InputError("train: --fit-on must come with a transform to fit. Add --transform auto.")
            return Ending()
        made = self.transform.make(None)
        return Ending(made) if self.fit_on is None else Ending(made, read_texts(self.fit_on), self.fit_on)


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
    _setting("batching", str, "random; length: texts of like length share a batch; tokens: as many as --token-budget."),
    _setting("token-budget", int | None, "Tokens a batch, padding counted."),
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


def with_training_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of `Training` in place of its parameter ``training``."""

    def build(values: Mapping[str, Any]) -> Training:
        given = dict(values)
        settings = TrainingSettings(
            **{_SETTING_OF.get(written, written): given.pop(written) for written in (s.name for s in _SETTINGS)}
        )
        reading = {name: value for name in ("pooling", "max_length") if (value := given.pop(name)) is not None}
        wrapping = {name: value for s in _WRAPPING if (value := given.pop(name := s.name)) is not None}
        if "matryoshka" in wrapping:
            wrapping["matryoshka"] = tuple(whole_numbers("--matryoshka", wrapping["matryoshka"]))
        return Training(**given, settings=settings, wrapping=wrapping, reading=reading)

    flags = [_OUTPUT, *_OTHERS, *_WRAPPING, *_SETTINGS, flag("transform", TransformChoice | None)]
    return with_transform_flags(None)(with_flags("training", flags, build)(command))
