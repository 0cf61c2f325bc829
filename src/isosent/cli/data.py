"""The commands ``data ...`` and ``words ...``."""

from itertools import groupby, islice
from pathlib import Path

import click

from isosent import _check
from isosent.cli.printing import show
from isosent.datasets import LOCK_NAME, FetchedFile, Mirror, get_data, read_manifest
from isosent.errors import InputError
from isosent.pages.progress import progress_bar
from isosent.words.formats import format_of
from isosent.words.word_vectors import WordVectors, convert_word_vectors, read_word_vectors, size_of_files

_SHOWN_OF_COMMIT = 12
_FIRST_WORDS = 8
_PATH = click.Path(path_type=Path)


@click.group(no_args_is_help=False)
def data() -> None:
    """List and download public evaluation data."""


@data.command("list")
def list_sets() -> None:
    """List the data sets: what they are for, their source, size and terms of use."""
    manifest = read_manifest()
    for entry in manifest.sets.values():
        sources = [
            f"{repository} {f'at {revision[:_SHOWN_OF_COMMIT]}' if revision else '(not pinned)'}"
            for repository in entry.repositories
            for revision in [manifest.revisions[repository]]
        ]
        show(f"{entry.name}: {entry.title}")
        for label, text in (
            ("read by", entry.command),
            ("source", ", ".join(sources) or f"not on the hub; {entry.home}"),
            ("download", entry.download),
            ("texts", entry.text + ("; converted to the layout that isosent reads" if entry.is_converted else "")),
            ("terms", entry.terms),
        ):
            show(f"    {label:<9} {text}")


@data.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--output", "-o", type=_PATH, metavar="DIR", required=True, help="Folder for the data.")
@click.option(
    "--from", "mirror", type=_PATH, metavar="FOLDER", help="Copy REPOSITORY/FILE from a folder instead of the hub."
)
def get(names: tuple[str, ...], output: Path, mirror: Path | None) -> None:
    """Download the data sets NAMES from the Hugging Face hub, and lay them out for "isosent evaluate".

    Commits are pinned, and checksums of the first download, kept in DIR/isosent-data.json, hold for every later one.
    Complete files are not downloaded again. Each data set has its own terms of use: see "isosent data list".
    """
    with progress_bar("downloading", "files") as bar:
        files = get_data(list(names), output, hub=None if mirror is None else Mirror(mirror), progress=bar)
    for entry, group in groupby(files, key=lambda file: file.data_set):
        show(f"{entry.name}: {_outcome(list(group), output)}")


def _outcome(files: list[FetchedFile], folder: Path) -> str:
    new = [file for file in files if not file.was_there]
    parts = [f"{len(new)} files downloaded, {len(files) - len(new)} already there, in {folder}"]
    originals = [file.original for file in files if file.original is not None]
    if originals:
        parts.append(f"{sum(originals)} of {len(originals)} files with a known checksum equal the originals")
    if not all(originals):
        parts.append('the others differ, see "isosent data list"')
    if not all(file.is_pinned for file in new):
        parts.append(f"commit not pinned: trusted this time, and recorded in {LOCK_NAME}")
    return "; ".join(parts)


@click.group(no_args_is_help=False)
def words() -> None:
    """Convert and describe files of word vectors."""


@words.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--output", "-o", type=_PATH, metavar="FILE", required=True, help="A .safetensors file.")
@click.option(
    "--vocabulary", type=_PATH, metavar="FILE", help="Keep only these words: one per line, with or without a count."
)
def convert(files: tuple[str, ...], output: Path, vocabulary: Path | None) -> None:
    """Convert word vectors to a file that opens at once, through a memory map.

    FILES are GloVe, word2vec or fastText, text or binary, also .gz or .zip. Vectors of several files are
    concatenated. Use the result with -m words:FILE.
    """
    if any(output.exists() and _check.input_file(file).samefile(output) for file in files):
        raise InputError(f"{output} must be another file than those that are read.")
    with progress_bar("converting", "bytes") as bar:
        vectors = convert_word_vectors(files, output, vocabulary=vocabulary, progress=bar(size_of_files(files)))
    show(
        f"{output}: {len(vectors.vocabulary)} x {vectors.dim} {vectors.vectors.dtype}; sub-words: {_subwords(vectors)}"
    )


@words.command()
@click.argument("file")
def info(file: str) -> None:
    """Describe a file of word vectors. A large file is also converted into the cache, to open at once next time."""
    with progress_bar("reading", "bytes") as bar:
        vectors = read_word_vectors([file], progress=bar(size_of_files([file])))
    for label, value in (
        ("format", format_of(Path(file))),
        ("rows", len(vectors.vocabulary)),
        ("dimensions", vectors.dim),
        ("numbers", vectors.vectors.dtype),
        ("sub-words", _subwords(vectors)),
        ("first words", " ".join(islice(vectors.vocabulary, _FIRST_WORDS))),
        ("content hash", vectors.content_hash),
    ):
        show(f"{label:<12}  {value}")


def _subwords(vectors: WordVectors) -> str:
    return "yes" if vectors.tables else "none"
