"""What the commands ``evaluate ...`` share: model, transform, what to fit on, seed, and where the result goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from isosent.cli.flags import flag, with_flags
from isosent.cli.model_options import ModelChoice, with_model_flags
from isosent.cli.outputs import check_output, write_output
from isosent.cli.terminal import out, progress_bar
from isosent.cli.transform_options import TransformChoice, with_transform_flags
from isosent.errors import InputError
from isosent.evaluation.protocol import TARGET
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.running import Run
from isosent.numeric.resampling import N_RESAMPLES

_PANEL = "Evaluation"

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder with the original files, anywhere below it.")]


@dataclass(frozen=True, slots=True)
class Evaluating:
    """How a command evaluates, whatever it evaluates.

    Parameters
    ----------
    model : ModelChoice
        The model.
    transform : TransformChoice or None
        What is fitted behind it.
    fit : str or None
        What on; the texts of the task where left out.
    seed, resamples : int
        Of all random numbers; draws of the bootstrap.
    json_output : Path or None
        Where the result goes.
    """

    model: ModelChoice
    transform: TransformChoice | None
    fit: str | None
    seed: int
    resamples: int
    json_output: Path | None

    def show(
        self,
        evaluate: Callable[..., EvaluationResult],
        *tables: Callable[[EvaluationResult], Table],
        reads: Path | None = None,
    ) -> None:
        """Evaluate, write the result file, and print tables unless standard output is the file.

        Parameters
        ----------
        evaluate : callable
            Takes the model, ``transform``, ``fit`` and ``run``.
        *tables : callable
            From the result to what is printed.
        reads : Path, optional
            A file that is evaluated on.

        Raises
        ------
        OutputError
            If the result cannot be written; nothing is computed then.
        InputError
            If there is something to fit on, but nothing to fit.
        """
        check_output(self.json_output, reads=(reads, self.fit))
        model = self.model.open()
        if self.transform is None and self.fit is not None and not model.encoder.needs_corpus:
            raise InputError("--fit must come with a transform to fit. Add --transform whitening.")
        made = None if self.transform is None else self.transform.make(model.dim)
        with progress_bar("encoding") as bar:
            run = Run(seed=self.seed, n_resamples=self.resamples, progress=bar)
            result = evaluate(model, transform=made, fit=self.fit or TARGET, run=run)
        if self.json_output is None or not write_output(self.json_output, result.to_text()):
            for table in tables:
                out.print(table(result))


def one_source(data: Path | None, pairs: Path | None) -> tuple[Path, bool]:
    """Tell which of ``--data`` and ``--pairs`` was given.

    Parameters
    ----------
    data, pairs : Path or None
        What each says.

    Returns
    -------
    path : Path
        The one that was given.
    is_pairs : bool
        Whether that is ``--pairs``.

    Raises
    ------
    InputError
        If it is none or both.
    """
    if data is not None and pairs is None:
        return data, False
    if pairs is not None and data is None:
        return pairs, True
    raise InputError(f"evaluate: either --data or --pairs must be given; got {'neither' if data is None else 'both'}.")


def refuse_flags(belong_to: str, **given: object) -> None:
    """Refuse flags that would be without effect.

    Parameters
    ----------
    belong_to : str
        The flag that they belong to.
    **given : object
        Their values; None where they are not given.

    Raises
    ------
    InputError
        If one is given.
    """
    if named := [f"--{name}" for name, value in given.items() if value is not None]:
        raise InputError(f"evaluate: {', '.join(named)} must come with {belong_to}; it does not. Leave it out.")


_FLAGS = [
    flag(
        "fit",
        Annotated[
            str | None,
            typer.Option(
                metavar="target|FILE",
                help="What to fit on: all texts of the task, or those of a file. [default: target]",
            ),
        ],
    ),
    flag(
        "seed", Annotated[int, typer.Option(min=0, help="Of all random numbers.", rich_help_panel=_PANEL)], Run().seed
    ),
    flag(
        "resamples",
        Annotated[int, typer.Option(min=1, help="Draws of the bootstrap intervals.", rich_help_panel=_PANEL)],
        N_RESAMPLES,
    ),
    flag(
        "json_output",
        Annotated[
            Path | None,
            typer.Option("--json", metavar="OUT", help="Write the result file; - prints it in place of the table."),
        ],
    ),
]


def with_evaluation_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of `Evaluating` in place of its parameter ``evaluating``."""
    flags = [flag("model", ModelChoice), flag("transform", TransformChoice | None), *_FLAGS]

    def build(values: Mapping[str, Any]) -> Evaluating:
        return Evaluating(**values)

    return with_model_flags()(with_transform_flags(None)(with_flags("evaluating", flags, build)(command)))
