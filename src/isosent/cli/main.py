"""The entry point ``isosent``. The module of a command is imported when the command runs or shows its help."""

import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from isosent.api import usage
from isosent.errors import IsosentError, IsosentWarning, in_shell, without_passwords
from isosent.io.system import sentence
from isosent.pages import progress

EXIT_INTERNAL_ERROR = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_LONGEST_LINE = 1000  # characters of one line of a message
_OF_PYTHON = re.compile(r"[a-z]+(_\w+)+|[A-Z]\w+")  # a function or a class; a command or a file is named in messages
# options that are called otherwise than their parameters
_SHELL_NAMES = {
    "n_components": "dims",
    "class_names": "classes",
    "file_format": "format",
    "n_bytes": "bytes",
    "mirror": "from",
    "purpose": "for",
    "engine": "workers",
}
_MODEL_OPTIONS = ("layers", "pooling", "weighting", "prompt")  # of a reference, and looked for among the flags
# heading -> command -> module in this package, or full name of one above it; help in one line
COMMANDS = {
    "Vectors": {
        "demo": ("fit", "See what isosent does, on bundled texts, offline."),
        "inspect": ("inspect", "Is whitening worth it? Statistics and a recommendation."),
        "encode": ("encode", "Turn texts into vectors."),
        "fit": ("fit", "Fit a transform on texts or vectors, and save the model."),
        "transform": ("encode", "Apply a fitted model to vectors."),
        "info": ("info", "Describe a model, an index or a file of vectors."),
        "similarity": ("similarity", "Compare two texts."),
        "explain": ("similarity", "Say which words make two texts similar."),
    },
    "Search": {
        "index": ("index", "Make an index of texts or vectors, and change it."),
        "search": ("search", "Find the nearest texts of an index or a database."),
        "duplicates": ("groups", "Find near-duplicates."),
        "cluster": ("groups", "Cluster texts by topic, and describe each cluster by words."),
        "map": ("map", "Draw texts or vectors as a map with the neighbors it keeps."),
    },
    "Models": {
        "train": ("train", "Train a sentence encoder on labeled pairs or triplets."),
        "distill": ("train", "Turn a transformer into a fast static model."),
        "calibrate": ("calibrate", "Give the cosines of a model a meaning."),
        "quantize": ("calibrate", "Fit int8 codes and bits of a model's vectors."),
        "export": ("export", "Write a model in the format of another library."),
        "moments": ("encode", "Compute and merge the mean and covariance of vectors."),
        "words": ("data", "Convert files of word vectors."),
    },
    "Server": {
        "serve": ("serve", "Serve models and indexes to OpenAI-compatible clients."),
        "proxy": ("serve", "Transform the vectors of an embedding API."),
    },
    "Evaluation": {
        "evaluate": ("evaluate", "Score a model on STS, transfer, retrieval and other tasks."),
        "compare": ("compare", "Test whether one model is better than another."),
        "check": ("check", "Does an API give the vectors of a model, and if not, why?"),
        "migrate": ("migrate", "Change the model: stay, map the vectors, or embed again?"),
        "report": ("report", "Write an HTML page of results."),
        "drift": ("drift", "Have vectors changed significantly? Is a refit worthwhile?"),
        "data": ("data", "List, download and look for evaluation data."),
        "research": ("isosent.research.commands", "Study settings, and measure the tables of the papers again."),
    },
}
_MODULES = {name: module for commands in COMMANDS.values() for name, (module, _) in commands.items()}
_MODULES["help"] = "options"  # `isosent help models`; the first help names it in its text


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = _MODULES[cmd_name]
        return getattr(import_module(module if "." in module else f"isosent.cli.{module}"), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _MODULES and not args[0].startswith("-"):
            nearest = get_close_matches(args[0], _MODULES, n=1)
            advice = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise click.UsageError(f"No such command {args[0]!r}.{advice}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_repeated(command, name, ctx, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<10}", summary) for name, (_, summary) in commands.items()])


def _refuse_repeated(command: click.Command, name: str | None, parent: click.Context, args: Sequence[str]) -> None:
    """Refuse an option with one value that is given twice, of which click silently takes the last."""
    context = click.Context(command, info_name=name, parent=parent)
    with_command = getattr(command, "with_command", None)  # of a group, where a command may be left out
    args = list(args) if with_command is None else with_command(context, list(args))
    try:
        values, rest, given = command.make_parser(context).parse_args(list(args))
    except click.UsageError:  # said when the command itself reads its arguments
        return
    for option in given:
        takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
        if takes_one and (n_times := given.count(option)) > 1:
            flag, last = max(option.opts, key=len), values[option.name]
            raise click.UsageError(f"{flag} is given {n_times} times, the last time as {last}. Give it once.", context)
    if isinstance(command, click.Group) and rest and (inner := command.get_command(context, rest[0])):
        _refuse_repeated(inner, rest[0], context, rest[1:])


def _print_version(ctx: click.Context, _: click.Parameter, is_asked_for: bool) -> None:
    if is_asked_for:
        from importlib.metadata import version  # takes longer than all of click

        click.echo(f"isosent {version('isosent')}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.option(
    "--version", "-V", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show version."
)
def app() -> None:
    """Better, smaller, comparable sentence vectors.

    \b
    isosent demo
    isosent inspect texts.txt -m wordllama
    isosent fit texts.txt -m wordllama -o model
    isosent encode texts.txt -m model -o vectors.npy
    isosent evaluate sts --data DIR -m model

    A model is wordllama (the default), words:FILE (GloVe, word2vec, fastText), static:DIR (Model2Vec), hf:ID or hf:DIR
    (transformers), or a saved folder. Options follow a question mark: "hf:DIR?layers=12". All: isosent help models

    Results go to standard output, messages to standard error. Exit codes: 0 success, 2 bad input, 130 interrupted,
    1 internal error.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace


def main() -> None:
    """Run the command line and exit with its code."""
    progress.bars_by_encoders = False
    warnings.simplefilter("always", IsosentWarning)
    said: set[str] = set()  # a file that is read twice is warned of once

    def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        line = f"{_label(category)}: {_in_shell(message, sys.argv[1:])}"
        if line not in said:
            said.add(line)
            _say(line)

    warnings.showwarning = show_warning
    usage.used.clear()
    usage.before_sending = _catch_kill
    try:
        try:
            code = app.main(sys.argv[1:] or ["--help"], prog_name="isosent", standalone_mode=False)
        finally:
            for line in _sent():
                _say(line)
    except IsosentError as error:
        _stop(EXIT_BAD_INPUT, f"error: {_in_shell(error, sys.argv[1:])}")
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"\nTry: {context.command_path} --help" if context else ""
        _stop(EXIT_BAD_INPUT, f"error: {_usage(error)}{hint}")
    except click.Abort:
        _stop(EXIT_INTERRUPTED, f"interrupted{_kept()}")
    except BrokenPipeError:  # the reader of a pipe, such as head, has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INTERNAL_ERROR)
    except OSError as error:
        _stop(EXIT_BAD_INPUT, f"error: {sentence(error)}")
    except MemoryError as error:
        _stop(EXIT_BAD_INPUT, f"error: not enough memory: {str(error).rstrip('.') or 'the input is too large'}.")
    except Exception:
        traceback.print_exc()
        _stop(EXIT_INTERNAL_ERROR, "This is a bug in isosent. Please report it with the lines above.")
    sys.exit(code or 0)


def _sent() -> Iterator[str]:
    """What APIs were sent, with their names if they are several: whatever the command did, it was paid."""
    for reference, asked in usage.used.items():
        name = f" to {reference}" if len(usage.used) > 1 else ""
        yield (
            f"sent{name}: {asked.n_texts:,} texts, {asked.n_tokens:,} tokens; from the cache: {asked.n_cached:,} texts"
        )


def _kept() -> str:
    """Where the answers of an interrupted job are."""
    folders = {str(asked.folder) for asked in usage.used.values() if asked.folder is not None and asked.n_texts}
    kept = f"What was answered is kept in {' and '.join(sorted(folders))}: the same command goes on from there."
    return f". {kept}" if folders else ""


def _catch_kill() -> None:
    """Before something is paid: end as after Ctrl-C if the process is told to end, so that it says what is kept."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _usage(error: click.ClickException) -> str:
    """What is wrong with a command; an option of the model that was typed as a flag is said to belong to the model."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        name = error.option_name.lstrip("-")
        if name in _MODEL_OPTIONS and any(each.name == "model" for each in error.ctx.command.params):
            return f"No such option '--{name}'. Options of a model follow it: -m 'MODEL?{name}=VALUE'."
    return error.format_message()


def _in_shell(said: Exception | str, arguments: Sequence[str]) -> str:
    """The message of an error or a warning without names of Python: parameters become options."""
    if not isinstance(said, IsosentError | IsosentWarning):
        return str(said)
    message, wrong = said.marked, said.wrong
    if wrong and (typed := _typed(wrong.parameter, arguments, wrong.value)):
        name, value = typed
        joint = " " if name.startswith("-") else "="
        message = f"{name}{joint}{value or wrong.value}: {_choice(wrong.rule)}.{wrong.advice and ' '}{wrong.advice}"
    elif said.where and (not _OF_PYTHON.fullmatch(said.where) or any(said.where in each for each in arguments)):
        message = f"{said.where}: {message}"
    return in_shell(message, lambda name, value: _flag(name) + (f" {value}" if value not in ("", "True") else ""))


def _flag(parameter: str) -> str:
    return f"--{_SHELL_NAMES.get(parameter, parameter).replace('_', '-')}"


def _typed(parameter: str, arguments: Sequence[str], value: str) -> tuple[str, str] | None:
    """The option, or the setting after a question mark or ``--set``, that gave a parameter (this value); its value."""
    places: dict[tuple[str, str], None] = {}
    for name in dict.fromkeys([parameter, parameter.removeprefix("n_"), _SHELL_NAMES.get(parameter, parameter)]):
        option = _flag(name)
        setting = re.compile(rf"(?:.*[?&])?({name.replace('_', '[-_]')})=([^&]*).*")
        for argument, after in zip(arguments, [*arguments[1:], ""], strict=True):
            if argument.partition("=")[0] == option:
                places[option, argument.partition("=")[2] or after] = None
            elif match := setting.fullmatch(argument):
                places[match[1], match[2]] = None
    # the same name may have been typed in several places
    return next((place for place in places if len(places) == 1 or _is_same(place[1], value)), None)


def _is_same(typed: str, value: str) -> bool:
    """Whether a value in a message is what was typed."""
    try:
        return float(typed) == float(value)
    except ValueError:
        return typed == value.strip("'")


def _choice(rule: str) -> str:
    """What to choose, for "must <rule>"."""
    number = re.sub(
        r"^be (?=above|below|between|at most|at least)", "choose a number ", re.sub(r"^be from ", "choose ", rule)
    )
    return re.sub(r"^be ", "choose ", number) if number.startswith(("be ", "choose ")) else f"must {rule}"


def _stop(code: int, message: str) -> None:
    _say(message)
    sys.exit(code)


def _say(message: str) -> None:
    # a message may quote values of a hostile file: megabytes long, or with control sequences of a terminal
    lines = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in without_passwords(message)).split(
        "\n"
    )
    short = (line if len(line) <= _LONGEST_LINE else f"{line[:600]} [...] {line[-300:]}" for line in lines)
    click.echo("\n".join(short), err=True)


def _label(category: type[Warning]) -> str:
    return "warning" if issubclass(category, IsosentWarning) else category.__name__
