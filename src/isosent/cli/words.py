"""The commands ``words ...``."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.printing import out, progress_bar
from isosent.errors import InputError
from isosent.words.formats import STORED_TYPES, FilePlace
from isosent.words.word_vectors import WordVectors, convert_word_vectors, format_of, read_word_vectors, size_of_files

_FIRST_WORDS = 8

app = typer.Typer(no_args_is_help=True, help="Convert files of word vectors, and tell what they hold.")

Vocabulary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep the words of this file only: one a line, a count behind it or not."),
]


@app.command()
def convert(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="GloVe, word2vec or fastText, text or binary; .gz, or .zip!MEMBER. Several are put side by side.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .safetensors.")],
    dtype: Annotated[str, typer.Option(metavar="|".join(STORED_TYPES), help="How to store a number.")] = "float32",
    vocabulary: Vocabulary = None,
) -> None:
    """Write word vectors as a file that opens at once, through a memory map.

    float16 takes half the bytes, int8 a quarter. One file is converted block by block; -m words:OUT uses the result.
    """
    places = [FilePlace.of(file) for file in files]
    if any(output.exists() and place.path.samefile(output) for place in places):
        raise InputError(f"{output} must be another file than those that are read. Choose another name.")
    with progress_bar("converting", "bytes") as bar:
        words = convert_word_vectors(
            files, output, dtype=dtype, vocabulary=vocabulary, progress=bar(size_of_files(files))
        )
    out.print(f"{output}: {len(words.vocabulary)} x {words.dim} {words.vectors.dtype}; sub-words: {_subwords(words)}")


@app.command()
def info(file: Annotated[str, typer.Argument(metavar="FILE", help="A file of word vectors, as for convert.")]) -> None:
    """Tell what a file of word vectors holds.

    A large file is converted into the cache on the way, so that it opens at once the next time.
    """
    place = FilePlace.of(file)
    with progress_bar("reading", "bytes") as bar:
        words = read_word_vectors([file], progress=bar(size_of_files([file])))
    table = Table(show_header=False, box=None)
    table.add_row("format", format_of(place))
    table.add_row("rows", f"{len(words.vocabulary)}")
    table.add_row("dimensions", f"{words.dim}")
    table.add_row("numbers", f"{words.vectors.dtype}")
    table.add_row("sub-words", _subwords(words))
    table.add_row("first words", " ".join(islice(words.vocabulary, _FIRST_WORDS)))
    table.add_row("content hash", words.content_hash)
    out.print(table)


def _subwords(words: WordVectors) -> str:
    return "none" if words.subwords is None else "yes"
