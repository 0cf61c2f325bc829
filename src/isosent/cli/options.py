"""What the commands ``study ...`` share: their options, and how results are written."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from isosent.cli.printing import out, progress_bar
from isosent.encoders.reference import DEFAULT_REFERENCE, OPTIONS, RUNTIME_OPTIONS
from isosent.errors import InputError
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.run import TARGET
from isosent.evaluation.sts import AGGREGATIONS, SICKR_PARTS
from isosent.io.atomic import check_destination, replacing
from isosent.io.json import write_document
from isosent.loading import load, read_record
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import N_RESAMPLES
from isosent.persistence import ModelRecord
from isosent.research.study import Record, study_to_json
from isosent.transforms.base import AUTO, TRANSFORMS, Transform, make_transform


def flag(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    """A flag of a command.

    Parameters
    ----------
    name : str
        Name of the parameter.
    annotation : type
        With the typer option in it.
    default : object, optional
        Its value where it is left out.

    Returns
    -------
    inspect.Parameter
        The parameter, keyword only.
    """
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_flags(
    parameter: str,
    flags: Sequence[inspect.Parameter],
    build: Callable[[Mapping[str, Any]], object],
    *,
    first: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put flags in the place of one parameter of a command.

    Parameters
    ----------
    parameter : str
        Name of the parameter that goes.
    flags : sequence of inspect.Parameter
        What comes.
    build : callable
        From the values of the flags to the value of the parameter.
    first : bool, default False
        Whether the flags stand in front of the others.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [
            other.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, other in signature.parameters.items()
            if name != parameter
        ]
        parameters = [*flags, *own] if first else [*own, *flags]

        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            built = build({flag.name: values.pop(flag.name) for flag in flags})
            command(**{parameter: built}, **values)

        wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {other.name: other.annotation for other in parameters}
        return wrapped

    return decorate


def split_names(written: str | None) -> list[str] | None:
    """Split names at their commas; None where there is nothing."""
    return None if written is None else written.split(",")


def whole_numbers(name: str, written: str) -> list[int]:
    """Read whole numbers with commas between; `name` is the flag that they belong to."""
    try:
        return [int(number) for number in written.split(",")]
    except ValueError:
        raise InputError(f"{name} must be whole numbers with commas between; got {written!r}.") from None


STANDARD_OUTPUT = Path("-")


def check_output(path: Path | None, *, reads: Iterable[str | Path | None] = ()) -> None:
    """Refuse, before any work is done, a file that cannot be written, or that the work reads."""
    if path is not None and path != STANDARD_OUTPUT:
        check_destination(path, reads=reads)


def write_output(path: Path | None, content: str) -> bool:
    """Write a text where it was asked for; tell whether it went to standard output, in place of a table."""
    if path == STANDARD_OUTPUT:
        typer.echo(content, nl=False)
        return True
    if path is not None:
        write_text(path, content)
    return False


def write_text(path: Path, content: str) -> None:
    """Write a text."""
    with replacing(path) as temporary:
        temporary.write_text(content, "utf-8")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that the command line names; it is opened when a command asks for it.

    Parameters
    ----------
    reference : str
        Model reference.
    options : dict of str to str
        What the flags say.
    is_named : bool
        Whether the command line says anything of it.
    """

    reference: str
    options: dict[str, str]
    is_named: bool

    def open(self) -> SentenceEncoder:
        """Open the model.

        Returns
        -------
        SentenceEncoder
            The model.
        """
        with progress_bar("reading word vectors", "bytes") as bar:
            return load(self.reference, options=self.options, progress=bar)

    def read_record(self) -> ModelRecord:
        """Read what the model is, without opening the encoder of a saved folder.

        Returns
        -------
        ModelRecord
            The record.
        """
        return read_record(self.reference, options=self.options)


def with_model_flags(
    *, argument: bool = False, computes: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of a model reference in place of its parameter ``model``.

    Parameters
    ----------
    argument : bool, default False
        Whether the reference is the command's argument and not ``-m``.
    computes : bool, default True
        Whether the command opens the encoder, and so takes the options of how to compute.

    Returns
    -------
    callable
        A decorator for a command with a parameter ``model`` of type ModelChoice.
    """
    names = [name for name in OPTIONS if computes or name not in RUNTIME_OPTIONS]

    def build(values: Mapping[str, Any]) -> ModelChoice:
        flags = {name: _written(values[name]) for name in names if values[name] is not None}
        reference = DEFAULT_REFERENCE if values["model"] is None else values["model"]
        return ModelChoice(reference, flags, is_named=values["model"] is not None or bool(flags))

    return with_flags("model", [_reference(argument), *map(_flag, names)], build, first=argument)


def _reference(argument: bool) -> inspect.Parameter:
    help_text = (
        "Model reference: wordllama, words:FILE, static:DIR, hf:ID-OR-DIR or a saved folder. "
        f"[default: {DEFAULT_REFERENCE}]"
    )
    option = typer.Option("--model", "-m", metavar="REFERENCE", help=help_text)
    kind = typer.Argument(help=help_text) if argument else option
    return flag("model", Annotated[str | None, kind])


def _flag(name: str) -> inspect.Parameter:
    option, dashed = OPTIONS[name], name.replace("_", "-")
    is_switch = option.values == "true|false"
    names = f"--{dashed}/--no-{dashed}" if is_switch else f"--{dashed}"
    metavar = None if is_switch else option.values.upper() if option.values.isalpha() else option.values
    info = typer.Option(names, help=option.summary, metavar=metavar, show_default=False, rich_help_panel=option.panel)
    return flag(name, Annotated[(bool if is_switch else str) | None, info], None)


def _written(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


_PANEL = "Transform"
_FLOW = "flow"
NO_TRANSFORM = "none"
_NAMES = f"auto, or one or more, with commas between them, of {', '.join(TRANSFORMS)}."


@dataclass(frozen=True, slots=True)
class TransformChoice:
    """The transform that the command line names.

    Parameters
    ----------
    names : str
        "auto", or names of `TRANSFORMS` with commas between them.
    settings : dict of str to object
        What the flags say.
    is_named : bool
        Whether the command line says anything of it.
    """

    names: str
    settings: dict[str, Any]
    is_named: bool

    def make(self, dim: int | None) -> Transform | Literal["auto"]:
        """Make the transform.

        Parameters
        ----------
        dim : int or None
            Dimensions of the vectors that it will be fitted on; with them, settings are checked at once.

        Returns
        -------
        Transform or "auto"
            What a model's `fit` takes.

        Raises
        ------
        InputError
            If a setting is out of range, or belongs to none of the transforms.
        """
        if self.names != AUTO:
            return make_transform(self.names, dim=dim, settings=self.settings)
        if self.settings:
            raise InputError(
                f"auto chooses {_flags(self.settings)} itself. "
                "For a width of your own: --transform whitening --dims K --strength auto."
            )
        return AUTO


def with_transform_flags(
    default: str | None, *, dims: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command ``--transform`` and the flags of its settings in place of its parameter ``transform``.

    Parameters
    ----------
    default : str or None
        The transform where none is named.
    dims : bool, default True
        Whether ``--dims`` is among the flags; a command that looks at several widths has its own.

    Returns
    -------
    callable
        A decorator for a command with a parameter ``transform`` of type TransformChoice; None where there is no default
        and none is named.
    """

    def build(values: Mapping[str, Any]) -> TransformChoice | None:
        given = {setting: _number(values[name]) for setting, name in _FLAG_OF.items() if values.get(name) is not None}
        given |= {} if values[_FLOW] is None else flow_settings(values[_FLOW])
        names = values["transform"] or default
        if names is not None:
            return TransformChoice(names, given, is_named=values["transform"] is not None or bool(given))
        if given:
            suited = "whitening" if values[_FLOW] is None else "glow_flow"
            raise InputError(f"{_flags(given)} must come with a transform to set. Add --transform {suited}.")
        return None

    settings = [setting for setting in _SETTINGS if dims or setting.name != "dims"]
    flags = [_flag_transform_options("transform", "NAMES", f"{_NAMES} [default: {default or 'none'}]"), *settings]
    return with_flags("transform", flags, build)


def _flag_transform_options(name: str, metavar: str, summary: str) -> Any:
    option = typer.Option(f"--{name}", metavar=metavar, help=summary, show_default=False, rich_help_panel=_PANEL)
    return flag(name, Annotated[str | None, option], None)


_SETTINGS = [
    _flag_transform_options(
        "dims",
        "K|SHARE|auto",
        "Dimensions kept (for all_but_the_top and common_component_removal: removed), the share of variance that they "
        "must hold, as in 0.95, or auto. [default: all]",
    ),
    _flag_transform_options("strength", "G|auto", "Whitening: 0 only rotates (PCA), 1 whitens fully. [default: 1]"),
    _flag_transform_options("method", "NAME", "Whitening: pca, zca, pca_cor, zca_cor or cholesky. [default: pca]"),
    _flag_transform_options(
        "shrinkage", "A|NAME", "Whitening: pull of the covariance to the identity, ledoit_wolf or oas."
    ),
    _flag_transform_options("eps", "E", "Whitening: added to the variances (Soft-ZCA). [default: 0]"),
    _flag_transform_options(_FLOW, "SETTINGS", "glow_flow: as in depth=2,n_epochs=3,seed=1."),
]
_FLAG_OF = {"n_components": "dims", "strength": "strength", "method": "method", "shrinkage": "shrinkage", "eps": "eps"}


def _flags(settings: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(f"--{_FLAG_OF.get(name, _FLOW)}" for name in settings))


def flow_settings(written: str) -> dict[str, Any]:
    """Read settings of a flow from the command line.

    Parameters
    ----------
    written : str
        As in ``depth=2,seed=1``.

    Returns
    -------
    dict of str to object
        Value by name.

    Raises
    ------
    InputError
        If it is written otherwise.
    """
    pairs = [setting.partition("=") for setting in written.split(",")]
    if not all(name and value for name, _, value in pairs):
        raise InputError(f"--flow must be NAME=VALUE with commas between, as in depth=2,seed=1; got {written!r}.")
    return {name.strip(): _number(value) for name, _, value in pairs}


def _number(text: str) -> int | float | str:
    """A whole number, a number, or the word that it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_PANEL_evaluation_options = "Evaluation"

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
            result = evaluate(
                model,
                transform=made,
                fit_on=self.fit or TARGET,
                seed=self.seed,
                n_resamples=self.resamples,
                progress=bar,
            )
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
        "seed",
        Annotated[int, typer.Option(min=0, help="Of all random numbers.", rich_help_panel=_PANEL_evaluation_options)],
        0,
    ),
    flag(
        "resamples",
        Annotated[
            int,
            typer.Option(min=1, help="Draws of the bootstrap intervals.", rich_help_panel=_PANEL_evaluation_options),
        ],
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


Data_StudyOptions = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder with the original STS files, anywhere below it.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="REFERENCE", help=f"Model; may be repeated. [default: {DEFAULT_REFERENCE}]"),
]
Tasks = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that are found]")
]
SickR = Annotated[
    str, typer.Option(metavar="|".join(SICKR_PARTS), help="Pairs of SICK-R: all 9,927, or the 4,927 of the test part.")
]
Aggregation = Annotated[
    str,
    typer.Option(
        metavar="|".join(AGGREGATIONS),
        help="How subsets are put together in what is printed and drawn; files hold all three.",
    ),
]
CsvOutput = Annotated[
    Path | None, typer.Option("--csv", metavar="OUT", help="Write all numbers as CSV, a line a measurement.")
]
JsonOutput = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write all numbers as JSON.")]


def check_outputs(*paths: Path | None, figure: Path | None = None) -> None:
    """Refuse, before any work is done, what could not be written.

    Parameters
    ----------
    *paths : Path or None
        Files to write; None for those not asked for.
    figure : Path, optional
        A drawing to write.

    Raises
    ------
    InputError
        If the figure is no ``.svg``.
    OutputError
        If a file cannot be written.
    """
    if figure is not None and figure.suffix != ".svg":
        raise InputError(f"--figure must end in .svg; got {figure}.")
    for path in (*paths, figure):
        if path is not None:
            check_destination(path)


def write_json(path: Path | None, study: str, results: Sequence[Record]) -> None:
    """Write a study as JSON, where a file was asked for."""
    if path is not None:
        write_document(path, study_to_json(study, results))
