"""The command ``overlap``."""

import json
import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.evaluation_options import Data
from isosent.cli.flags import split_names
from isosent.cli.outputs import check_output, write_output
from isosent.cli.terminal import out, progress_bar
from isosent.encoders.base import Progress
from isosent.errors import EvaluationWarning, InputError
from isosent.evaluation.everything import jobs_of_kinds
from isosent.evaluation.overlap import NEAR_SHARE, NEAR_WORDS, count_overlap
from isosent.evaluation.running import Job
from isosent.files.text_source import TextSource, open_texts, text_blocks

_BLOCK_TEXTS = 8192


def overlap(
    corpus: Annotated[
        str,
        typer.Argument(metavar="CORPUS", help="Texts that a model is fitted or trained on; - for standard input."),
    ],
    data: Data,
    column: Annotated[str | None, typer.Option(metavar="NAME", help="Column that holds the texts of a table.")] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that are found]")
    ] = None,
    json_output: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Write all numbers as JSON; - prints them in place of the table."),
    ] = None,
) -> None:
    """Count the texts of evaluation tasks that occur in a corpus: what was fitted on them was not tested on them.

    Exactly; the same up to case, punctuation, white space and Unicode form; or nearly: texts of at least eight words,
    four fifths of whose word trigrams stand in one text of the corpus. The corpus is read block by block, whatever its
    size.
    """
    check_output(json_output, reads=(corpus,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)  # of kinds and subsets that are not there
        jobs = jobs_of_kinds(data)
    found = {job.name: job.task for job in _chosen(jobs, split_names(tasks))}
    with open_texts(corpus, column=column) as source, progress_bar("comparing") as bar:
        counts = count_overlap(_texts(source, bar(source.n_texts)), found)
    written = json.dumps({"corpus": source.name, "n_texts": source.n_texts, "tasks": counts}, indent=2) + "\n"
    if not write_output(json_output, written):
        out.print(overlap_table(counts, f"{source.name}: {source.n_texts:,} texts"))


def overlap_table(counts: Mapping[str, Mapping[str, int]], corpus: str) -> Table:
    """Lay out what `count_overlap` counted.

    Parameters
    ----------
    counts : mapping of str to mapping of str to int
        The counts by task.
    corpus : str
        What they were looked for in.

    Returns
    -------
    Table
        One row a task.
    """
    caption = (
        f"in {corpus}\n"
        "exact: letter for letter; same: up to case, punctuation, white space; near: "
        f"{NEAR_SHARE:.0%} of the word trigrams in one text, from {NEAR_WORDS} words on; each counts those before it\n"
        "items: what is scored, such as pairs; in full: those all of whose texts are the same as one of the corpus"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("task")
    for name in ("texts", "exact", "same", "near", "items", "in full"):
        table.add_column(name, justify="right")
    for task, of in counts.items():
        texts = [_share(of[name], of["n_texts"]) for name in ("n_exact", "n_same", "n_near")]
        table.add_row(
            task, f"{of['n_texts']:,}", *texts, f"{of['n_items']:,}", _share(of["n_items_same"], of["n_items"])
        )
    return table


def _share(n: int, of: int) -> str:
    return f"{n:,} ({n / of:.1%})" if n else "0"


def _chosen(jobs: list[Job], names: list[str] | None) -> list[Job]:
    if names is None:
        return jobs
    found = [job.name for job in jobs]
    for name in names:
        if name not in found:
            (nearest,) = get_close_matches(name, found, n=1, cutoff=0)
            raise InputError(f"--tasks must be among {', '.join(found)}; got {name!r}. The nearest is {nearest}.")
    return [job for job in jobs if job.name in names]


def _texts(source: TextSource, advance: Progress) -> Iterator[str]:
    for block in text_blocks(source.read(), _BLOCK_TEXTS):
        yield from block
        advance(len(block))
