"""The commands ``data ...``."""

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.terminal import out, progress_bar
from isosent.datasets.getting import GotFile, get_data
from isosent.datasets.hub import Mirror
from isosent.datasets.lock import LOCK_NAME
from isosent.datasets.manifest import DataSet, Manifest, read_manifest

_SHOWN_OF_COMMIT = 12

app = typer.Typer(no_args_is_help=True, help="Get the files of public tasks, and tell what there is.")


@app.command("list")
def list_sets() -> None:
    """Tell what there is to get: what it is for, how much it is, where it comes from, on which terms."""
    manifest = read_manifest()
    for each in manifest.sets.values():
        out.print(f"{each.name}: {each.title}")
        for label, text in _facts(each, manifest):
            out.print(f"    {label:<9} {text}")


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help='Sets to get, see "isosent data list".')],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to put them into.")],
    mirror: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="Take the hub's files from a folder: REPOSITORY/FILE."),
    ] = None,
) -> None:
    """Fetch sets from the Hugging Face hub, check them, and lay them out as "isosent evaluate" finds them.

    Commits are pinned; sums that were seen once are kept in DIR/isosent-data.json and hold for every later call. What
    is there, whole, is not fetched again. Each set has terms of use of its own.
    """
    with progress_bar("getting", "files") as bar:
        got = get_data(names, output, hub=None if mirror is None else Mirror(mirror), progress=bar)
    for of, files in groupby(got, key=lambda file: file.of):
        out.print(_outcome(of, list(files), output))


def _facts(each: DataSet, manifest: Manifest) -> list[tuple[str, str]]:
    sources = [_source(repository, manifest.revisions[repository]) for repository in each.repositories]
    return [
        ("read by", each.command),
        ("source", ", ".join(sources) or f"not on the hub; {each.home}"),
        ("download", each.download),
        ("texts", each.text + ("; converted into the layout that is read" if each.is_converted else "")),
        ("terms", each.terms),
    ]


def _source(repository: str, revision: str | None) -> str:
    return f"{repository} {f'at {revision[:_SHOWN_OF_COMMIT]}' if revision else '(not pinned)'}"


def _outcome(of: DataSet, files: list[GotFile], folder: Path) -> str:
    fetched = [file for file in files if not file.was_there]
    said = [f"{of.name}: {len(fetched)} files fetched, {len(files) - len(fetched)} were there, below {folder}"]
    originals = [file.original for file in files if file.original is not None]
    if originals:
        said.append(f"same as the originals: {sum(originals)} of the {len(originals)} whose sum is known")
    if not all(originals):
        said.append('the others differ, see "isosent data list"')
    if not all(file.is_pinned for file in fetched):
        said.append(f"commit not known beforehand: trusted, and kept in {LOCK_NAME}")
    return "; ".join(said)
