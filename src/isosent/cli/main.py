"""The entry point: ``isosent``."""

import sys
import traceback
import warnings
from importlib.metadata import version
from typing import Annotated

import typer

from isosent.cli import encode, evaluate, export, fit, study, train, vectors, words
from isosent.cli.printing import EXIT_INTERRUPTED, Interrupted, err
from isosent.encoders.reference import GRAMMAR
from isosent.errors import IsosentError, IsosentWarning

EXIT_OUR_FAULT = 1
EXIT_BAD_INPUT = 2
_LONGEST_LINE = 1000  # characters of a line of a message

_HELP = f"""Turn texts into better, smaller, comparable sentence vectors, and measure whether it helped.

\b
First steps:
  isosent demo
  isosent fit texts.txt --dims 128 -o model
  isosent encode texts.txt -m model -o vectors.npy
  isosent evaluate sts --data DIR -m model
  isosent train classification --data nli.jsonl --base hf:DIR -o trained

\b
{GRAMMAR}

\b
Results go to standard output, everything else to standard error.
Exit code: 0 done, 2 bad input, 130 interrupted, 1 our fault.
"""

app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(fit.demo)
app.command()(encode.encode)
app.command()(fit.fit)
app.add_typer(evaluate.app, name="evaluate")
app.command()(evaluate.compare)
app.command()(evaluate.overlap)
app.command()(fit.info)
app.command()(evaluate.report)
app.add_typer(study.app, name="study")
app.add_typer(train.app, name="train")
app.command()(study.reproduce)
app.command()(fit.inspect)
app.command()(fit.calibrate)
app.command()(export.export)
app.command()(vectors.moments)
app.command()(vectors.transform)
app.add_typer(words.app, name="words")
app.add_typer(evaluate.app_data, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isosent {version('isosent')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with its code."""
    warnings.simplefilter("always", IsosentWarning)
    warnings.showwarning = lambda message, category, *_: err.print(f"{_label(category)}: {_shown(str(message))}")
    try:
        app()
    except IsosentError as error:
        err.print(f"error: {_shown(str(error))}")
        sys.exit(EXIT_BAD_INPUT)
    except SystemExit as stop:
        if stop.code == EXIT_INTERRUPTED and not isinstance(stop, Interrupted):
            err.print("interrupted; nothing unfinished was kept")
        raise
    except OSError as error:
        err.print(f"error: {error.filename or 'standard output'} could not be used: {error.strerror}.")
        sys.exit(EXIT_BAD_INPUT)
    except MemoryError as error:
        err.print(_shown(f"error: not enough memory: {str(error).rstrip('.') or 'the input is too large'}."))
        sys.exit(EXIT_BAD_INPUT)
    except Exception:
        traceback.print_exc()
        err.print("This is a fault of isosent, not yours. Please report it with the lines above.")
        sys.exit(EXIT_OUR_FAULT)


def _shown(message: str) -> str:
    """A message as it can be printed: it may quote a value, and a hostile file holds values of megabytes."""
    # nor may a value hold what a terminal takes for a command
    lines = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in message).split("\n")
    return "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:600]} [...] {line[-300:]}" for line in lines)


def _label(category: type[Warning]) -> str:
    return "warning" if issubclass(category, IsosentWarning) else category.__name__
