"""Options that several commands share."""

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from isosent._check import split_options
from isosent.cli.printing import say
from isosent.distributed import engine_for
from isosent.encoders.reference import DEFAULT_REFERENCE, GRAMMAR, parse_reference
from isosent.errors import InputError, IsosentError, IsosentWarning, option
from isosent.io.shards import SHARD_SIZE
from isosent.loading import load_model
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import N_RESAMPLES
from isosent.transforms.auto import note_for
from isosent.transforms.base import AUTO, PURPOSES, parse_option

Command = Callable[..., None]

PATH = click.Path(path_type=Path)


def output_option(metavar: str, text: str, *, required: bool = True, kind: Any = PATH) -> Callable[[Command], Command]:
    """Pass ``-o``, the one file or folder that a command writes, as ``output``."""
    return click.option("--output", "-o", type=kind, metavar=metavar, required=required, help=text)


@contextmanager
def no_column_option() -> Iterator[None]:
    """Open files for which no ``--column`` can be typed: advice to choose one becomes what can be done."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* are not encoded", IsosentWarning)  # vectors are what is wanted
            yield
    except IsosentError as error:
        error.reword(lambda marked: marked.replace(option("column", "NAME"), "a file of it alone"))
        raise


column_option = click.option("--column", metavar="NAME", help="Column with the texts, if the file is a table.")
vector_column_option = click.option("--column", metavar="NAME", help="Column or tensor with the vectors.")
either_column_option = click.option("--column", metavar="NAME", help="Column with the texts or the vectors.")
texts_option = click.option("--texts", metavar="FILE", help="Texts of the rows, if the first file is vectors alone.")
shard_size_option = click.option(
    "--shard-size", type=int, metavar="N", help=f"Folder: rows of a file.  [default: {SHARD_SIZE}]"
)
checkpoint_option = click.option(
    "--checkpoint", type=PATH, metavar="FILE", help="Save the progress here, and resume from it."
)
vector_texts_option = click.option("--texts", metavar="FILE", help="Vectors: their texts, one per vector, for auto.")
columns_option = click.option("--columns", metavar="A,B,SCORE", help="Columns of a table of pairs, in this order.")
data_option = click.option(
    "--data", "data", metavar="DIR", type=PATH, required=True, help="Folder with the data files, at any depth."
)
model_folder_option = output_option("FOLDER", "Model folder to write.")


def _space_name(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """A name that a person chooses; a note says that it stands for no model, if there is one of that name."""
    try:
        is_model = name is not None and parse_reference(name).scheme != "hub"  # OWNER/NAME may be one of anything
    except InputError:
        is_model = False
    if is_model:
        say(
            f"note: --space {name} only gives the vectors a name: texts cannot be searched or compared with them. If "
            f"the model {name} made them, write -m {name} in place of --space"
        )
    return name


space_option = click.option(
    "--space",
    metavar="NAME",
    callback=_space_name,
    help="Vectors: what made them, such as text-embedding-3-small.",
)
tasks_option = click.option("--tasks", metavar="NAMES", help="Tasks, separated by commas.  [default: all in --data]")
purpose_option = click.option(
    "--for",
    "purpose",
    type=click.Choice(PURPOSES),
    help="What the vectors are for, which auto then judges alone.  [default: all three]",
)
details_option = click.option("--details", is_flag=True, help="Also print what was compared.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print nothing but JSON.")


class Share(click.FloatRange):
    """A number from 0 to 1, or a percentage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read 1% as 0.01."""
        if isinstance(value, str) and value.endswith("%"):
            value = click.FLOAT(value[:-1], param, ctx) / 100
        try:
            return float(super().convert(value, param, ctx))
        except click.BadParameter as error:
            if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) and 1 <= float(value) < 100:
                self.fail(f"{error.message} For {value} percent, write {value}%.", param, ctx)
            raise


def outputs_option(*extensions: str, required: bool = False) -> Callable[[Command], Command]:
    """Pass ``-o FILE``, which may be repeated, as ``outputs``; the extension of a file says what it gets."""

    def checked(_: click.Context, __: click.Parameter, outputs: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in outputs:
            if path.suffix.lower() not in extensions:
                raise InputError(f"--output {path}: the extension must be {one_of}.")
        return outputs

    one_of = " or ".join([", ".join(extensions[:-1])] * (len(extensions) > 1) + [extensions[-1]])
    return click.option(
        "--output",
        "-o",
        "outputs",
        type=PATH,
        metavar="FILE",
        multiple=True,
        required=required,
        callback=checked,
        help=f"File to write, as {one_of}; may be repeated.",
    )


seed_option = click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Random seed.")
resamples_option = click.option(
    "--resamples", type=click.IntRange(1), default=N_RESAMPLES, metavar="N", help="Bootstrap resamples."
)
models_option = click.option(
    "--model",
    "-m",
    "models",
    metavar="REFERENCE",
    multiple=True,
    default=[DEFAULT_REFERENCE],
    help="Model reference; may be repeated.",
)


@click.command("help")
@click.argument("topic", type=click.Choice(["models"]), required=False)
@click.pass_context
def help(context: click.Context, topic: str | None) -> None:
    """List all options of a model.

    \b
    isosent help models
    """  # noqa: D301
    click.echo(GRAMMAR if topic else context.find_root().get_help())


model_option = click.option(
    "--model",
    "-m",
    metavar="REFERENCE",
    help="wordllama, words:FILE, static:DIR, hf:ID, hf:DIR, api:PROVIDER/MODEL or a saved folder, with options after a "
    f"question mark, as in 'hf:DIR?layers=1,12&pooling=mean'.  [default: {DEFAULT_REFERENCE}]",
)


def open_model(model: str | None, *, purpose: str | None = None) -> SentenceEncoder:
    """Load the model that the command line names; with a purpose, say if it was fitted for another one."""
    loaded = load_model(model)
    for note in () if purpose is None else filter(None, (note_for(fit.choice, purpose) for fit in loaded.fits)):
        say(f"note: {model}: {note} To choose for this: isosent fit --for {purpose}")
    return loaded


def transform_options(*, default: str = AUTO, multiple: bool = False) -> Callable[[Command], Command]:
    """Pass ``--transform`` as ``transform``, and ``--dims``, ``--strength`` and ``--for`` as ``settings`` of it."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(
            transform: Any, dims: str | None, strength: float | None, purpose: str | None, **values: Any
        ) -> None:
            settings: dict[str, Any] = {} if strength is None else {"strength": strength}
            if dims is not None:
                settings["n_components"] = parse_option(dims)
            if purpose is not None:
                settings["purpose"] = purpose
            # auto chooses the strength for a width; who sets the strength means whitening
            names = transform or (default if not settings else AUTO if strength is None else "whitening")
            command(transform=(names,) if multiple and isinstance(names, str) else names, settings=settings, **values)

        sized = "" if default == AUTO else "; auto with --dims"
        help_text = (
            "auto, none, or transforms separated by commas, each with options after a question mark, as in "
            f"'whitening?method=zca&eps=1e-5'.{' May be repeated.' if multiple else ''}  "
            f"[default: {default}{sized}; whitening with --strength]"
        )
        dims_help = "Dimensions to keep: a number, a share of the variance such as 0.95, or auto."
        for decorator in (
            click.option(
                "--strength", type=click.FloatRange(0, 1), metavar="G", help="0 only rotates, 1 whitens fully."
            ),
            purpose_option,
            click.option("--dims", metavar="K|SHARE|auto", help=dims_help),
            click.option("--transform", metavar="NAME", multiple=multiple, help=help_text),
        ):
            wrapped = decorator(wrapped)
        return wrapped

    return decorate


def split_names(text: str | None) -> list[str] | None:
    """Split names at their commas; None if there are none."""
    return None if text is None else [name.strip() for name in text.split(",")]


def whole_numbers(option: str, text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise InputError(f"{option}{text}: write whole numbers separated by commas.") from None


def worker_options(command: Command) -> Command:
    """Pass ``--workers`` and ``--on`` as ``engine``, an `Engine`; None for one process."""

    @functools.wraps(command)
    def wrapped(workers: int | None, on: str | None, **values: Any) -> None:
        cluster, options = (None, {}) if on is None else split_options(on)
        gpus = parse_option(options.pop("gpus", "0"))
        if options or isinstance(gpus, str):
            raise InputError(f"--on {on}: the only option is the number of GPUs per worker, as in ray?gpus=0.5.")
        command(engine=None if workers is None and on is None else engine_for(cluster, workers, gpus), **values)

    for decorator in (
        click.option(
            "--on", "on", metavar="ray[://ADDRESS][?gpus=X]", help="Folder: run the workers on a Ray cluster."
        ),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Folder: processes.  [default: 1]"),
    ):
        wrapped = decorator(wrapped)
    return wrapped
