"""The vocabulary of what readers meet: pages, help texts and messages have one name for each thing.

Prints each place with a word that has a better one, and each message on a file or folder that has the form of a wrong
argument ("must ...; got ..."), and exits with 1 if there is any. Pages of research and of the API and code are not
checked.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from isosent.cli.main import app

ROOT = Path(__file__).parents[1]
BETTER = {
    r"false alarms?": "false positives",
    r"beats? chance|what chance gives": "higher than an unrelated text would score",
    r"number types?": "dtype",
    r"say the same": "near-duplicates",
    r"clients of OpenAI": "OpenAI-compatible clients",
    r"verdict": "recommendation",
    r"made-up": "synthetic",
    r"scored again": "reranked",
    r"the image of a column": "the transformed column",
    r"appl(y|ies) (a|the) map": "transform",
    r"scatter matrix": "covariance",
    r"whitening was rejected": "a recommendation",
    r"most hits": "number of results",
    r"in turns": "interleaved",
    r"told (from|by|apart)": "detected, or distinguished",
    r"at hand": "available",
    r"for want of": "without",
    r"stands? (behind|beside)": "follows, or is next to",
    r"beside": "next to",
    r"likewise|thereby": "also, or so",
    r"of (its|their|your|our) own": "separate, or its",
    r"as (they are|it is)(?=[.,;:)|]| and |$)": "unchanged, or original",
    r"that (is|are) there": "existing",
    r"asked for": "requested",
    r"(one|each) a (line|row)": "one per line",
    r"(texts|rows|queries|requests|vectors|bytes) a (second|vector|request|text)": "per",
    r"(answer|answers)( is)? [45]\d\d": "responds with",
    r"neighbours?|colours?|labelled|behaviours?|centred|(normal|standard)ised": "US spelling",
}
# calls that say what is wrong with a file or a folder, which is a state rather than a wrong argument
_STATES = {"InputFileError", "FileFormatError", "ModelFolderError", "OutputError"}
_FORM_OF_ARGUMENTS = re.compile(r"; got\b|\bmust\b")
# keys of JSON, of settings and of arguments, which do not change with the words of readers
_KEYS = {"as they are", "verdict", "beside", "neighbours", "standardised"}


def pages() -> Iterator[tuple[str, str]]:
    """Lines of the pages, without code."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = re.sub(r"```.*?```", lambda match: "\n" * match[0].count("\n"), path.read_text("utf-8"), flags=re.S)
        for number, line in enumerate(text.splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Help texts of the commands and of their options."""
    yield name, command.help or ""
    yield from ((f"{name} {option.name}", getattr(option, "help", "") or "") for option in command.params)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            if found := command.get_command(context, sub):
                yield from helps(found, f"{name} {sub}")


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Every node of the sources, parents first, and its place."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", node


def messages() -> Iterator[tuple[str, str]]:
    """Texts of the sources without docstrings: messages, tables, logs and pages."""
    docstrings = set()
    for place, node in nodes():
        if isinstance(node, ast.Expr):
            docstrings.add(node.value)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and not (node in docstrings or node.value in _KEYS)
        ):
            yield place, node.value


def states() -> Iterator[str]:
    """Messages on files and folders that read like those of wrong arguments."""
    for place, node in nodes():
        name = getattr(node, "func", None)
        if isinstance(node, ast.Call) and getattr(name, "id", getattr(name, "attr", "")) in _STATES:
            parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            if found := _FORM_OF_ARGUMENTS.search("".join(part for part in parts if isinstance(part, str))):
                yield f"{place}: {found[0]!r}: better: say what was found"


def main() -> int:
    """Check everything."""
    found = [
        f"{place}: {match[0]!r}: better: {better}"
        for place, text in [*pages(), *helps(app, "isosent"), *messages()]
        for pattern, better in BETTER.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.I)
    ]
    found += states()
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
