"""The commands ``data ...`` and ``words ...``."""

import warnings
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path

import click

from isosent import _check
from isosent.cli.options import PATH, column_option, data_option, json_option, output_option, tasks_option
from isosent.cli.printing import deliver, show
from isosent.datasets import RECORD_NAME, FetchedFile, Manifest, Mirror, get_data, read_manifest
from isosent.errors import EvaluationWarning, InputError
from isosent.evaluation.evaluate import read_tasks
from isosent.evaluation.overlap import count_hashed, count_overlap
from isosent.evaluation.tables import overlap_table
from isosent.io.notes import fitted_texts
from isosent.io.texts import open_texts, text_blocks
from isosent.pages.progress import counted, progress_bar
from isosent.pages.report import Report
from isosent.words.word_vectors import convert_word_vectors

_SHOWN_OF_COMMIT = 12
_BLOCK_TEXTS = 8192


@click.group(no_args_is_help=False)
def data() -> None:
    """List and download public evaluation data, and find it in a corpus."""


@data.command("list")
def list_sets() -> None:
    """List the data sets: what they are for, their source, size and terms of use.

    \b
    isosent data list
    """  # noqa: D301
    deliver(Report(parts=_set_lines(read_manifest())))


def _set_lines(manifest: Manifest) -> Iterator[str]:
    for entry in manifest.sets.values():
        sources = [
            f"{repository} {f'at {revision[:_SHOWN_OF_COMMIT]}' if revision else '(not pinned)'}"
            for repository in entry.repositories
            for revision in [manifest.revisions[repository]]
        ]
        yield f"{entry.name}: {entry.title}"
        for label, text in (
            ("read by", entry.command),
            ("source", ", ".join(sources) or f"not on the hub; {entry.home}"),
            ("download", entry.download),
            ("texts", entry.text + ("; converted to the layout that isosent reads" if entry.is_converted else "")),
            ("terms", entry.terms),
        ):
            yield f"    {label:<9} {text}"


@data.command()
@click.argument("names", nargs=-1, required=True)
@output_option("DIR", "Folder for the data.")
@click.option(
    "--from", "mirror", type=PATH, metavar="FOLDER", help="Copy REPOSITORY/FILE from a folder instead of the hub."
)
def get(names: tuple[str, ...], output: Path, mirror: Path | None) -> None:
    """Download the data sets NAMES from the Hugging Face hub, and lay them out for "isosent evaluate".

    Commits are pinned, and checksums of the first download, kept in DIR/isosent-data.json, hold for every later one.
    Complete files are not downloaded again. Each data set has its own terms of use: see "isosent data list".

    \b
    isosent data get STS-B SICK -o DIR
    """  # noqa: D301
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
        parts.append(f"commit not pinned: trusted this time, and recorded in {RECORD_NAME}")
    return "; ".join(parts)


@data.command()
@click.argument("corpus")
@data_option
@column_option
@tasks_option
@json_option
def overlap(corpus: str, data: Path, column: str | None, tasks: str | None, as_json: bool) -> None:
    """Count evaluation texts that occur in CORPUS, texts that a model is fitted or trained on.

    Three ways of counting: exact; the same up to case, punctuation, white space and Unicode form; and near duplicates,
    with four fifths of their word trigrams in one text of the corpus. The corpus may be larger than memory. It may also
    be the folder of "isosent distill", which holds hashes of its texts: the same texts are counted.

    \b
    isosent data overlap corpus.txt --data DIR
    """  # noqa: D301
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)  # about tasks and subsets that are missing
        items = {task.name: task.items for task in read_tasks(data, tasks or "all")}
    hashes = fitted_texts(Path(corpus)) if Path(corpus).is_dir() else None
    if hashes is not None:
        name, n_texts, counts = corpus, len(hashes), count_hashed(hashes, items)
    else:
        with open_texts(corpus, column=column) as source, progress_bar("comparing") as bar:
            blocks = counted(text_blocks(source.read(), _BLOCK_TEXTS), bar, source.n_texts)
            counts = count_overlap(chain.from_iterable(blocks), items)
        name, n_texts = source.name, source.n_texts
    table = overlap_table(counts, f"{name}: {n_texts:,} texts" + ", of which hashes are kept" * (hashes is not None))
    deliver(Report({"corpus": name, "n_texts": n_texts, "tasks": counts}, [table]), as_json=as_json)


@click.group(no_args_is_help=False)
def words() -> None:
    """Convert files of word vectors; "isosent info FILE" describes one."""


@words.command()
@click.argument("files", nargs=-1, required=True)
@output_option("FILE", "A .safetensors file.")
@click.option(
    "--vocabulary", type=PATH, metavar="FILE", help="Keep only these words: one per line, with or without a count."
)
def convert(files: tuple[str, ...], output: Path, vocabulary: Path | None) -> None:
    """Convert word vectors to a file that opens at once, through a memory map.

    FILES are GloVe, word2vec or fastText, text or binary, also .gz or .zip. Vectors of several files are
    concatenated. Use the result with -m words:FILE.

    \b
    isosent words convert glove.840B.300d.zip -o glove.safetensors
    """  # noqa: D301
    if any(output.exists() and _check.input_file(file).samefile(output) for file in files):
        raise InputError(f"{output} is one of the files that are read. Name another file.")
    with progress_bar("converting", "bytes") as bar:
        vectors = convert_word_vectors(files, output, vocabulary=vocabulary, progress=bar)
    show(
        f"{output}: {len(vectors.vocabulary)} x {vectors.dim} {vectors.vectors.dtype}; sub-words: "
        f"{'yes' if vectors.tables else 'none'}"
    )
