"""The commands ``data ...``."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.options import (
    Data,
    Evaluating,
    check_output,
    one_source,
    refuse_flags,
    split_names,
    with_evaluation_flags,
    write_output,
    write_text,
)
from isosent.cli.printing import err, out, progress_bar
from isosent.datasets import LOCK_NAME, DataSet, FetchedFile, Manifest, Mirror, get_data, read_manifest
from isosent.encoders.base import Progress
from isosent.errors import EvaluationWarning, InputError
from isosent.evaluation.compare import CORRELATIONS, N_RESAMPLES, Comparison, Difference, compare_results
from isosent.evaluation.cqa import TEXT_PARTS
from isosent.evaluation.overlap import NEAR_SHARE, NEAR_WORDS, count_overlap
from isosent.evaluation.result import read_result
from isosent.evaluation.run import KINDS, evaluate, read_tasks
from isosent.evaluation.sts import SICKR_PARTS
from isosent.evaluation.sts import TASKS as STS_TASKS
from isosent.evaluation.tables import model_lines, rte_table, sts_table, subset_table, task_table, x100
from isosent.evaluation.task import Task
from isosent.evaluation.transfer import TRANSFER_TASKS
from isosent.io.atomic import check_destination
from isosent.io.texts import TextSource, open_texts, text_blocks
from isosent.numeric.statistics import LEVEL
from isosent.report.figures import check_figures, write_figures
from isosent.report.leaderboard import make_leaderboard, read_report
from isosent.report.results_page import html_report, report_title

app = typer.Typer(no_args_is_help=True, help="Measure a model against human judgement.")

DataOrPairs = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Folder with the original files, anywhere below it.")
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Columns of --pairs, with commas between. [default: those of the usual names]"),
]


def _of_kind(kind: str, tasks: str | None) -> list[str]:
    names = split_names(tasks)
    return [kind] if names is None else [f"{kind}:{name}" for name in names]


@app.command()
@with_evaluation_flags
def sts(
    evaluating: Evaluating,
    data: DataOrPairs = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"Some of {','.join(STS_TASKS)}. [default: all that are found]")
    ] = None,
    sickr: Annotated[
        str,
        typer.Option(metavar="|".join(SICKR_PARTS), help="Pairs of SICK-R: all 9,927, or the 4,927 of the test part."),
    ] = SICKR_PARTS[0],
    subsets: Annotated[bool, typer.Option("--subsets", help="Print every subset, too.")] = False,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="In place of --data: two texts and a score a row, .tsv .csv .jsonl .parquet."
        ),
    ] = None,
    columns: Columns = None,
) -> None:
    """Correlate cosines with human scores on STS12 ... STS16, STS-B and SICK-R, or on a file of yours.

    Spearman and Pearson of every subset, and three ways to put subsets together: "all" is one correlation over all
    pairs (Sentence-BERT, SimCSE, MTEB), "mean" the mean over subsets (WhiteningBERT), "wmean" the same weighted by
    pairs (BERT-whitening). Published scores of the same model stand beside the measured ones.
    """
    source, is_file = one_source(data, pairs)
    if is_file:
        refuse_flags("--data", tasks=tasks, subsets=subsets or None, sickr=None if sickr == SICKR_PARTS[0] else sickr)
        evaluating.show(partial(evaluate, data=source, tasks="pairs", columns=columns), task_table, reads=source)
        return
    refuse_flags("--pairs", columns=columns)
    tables = (subset_table, sts_table) if subsets else (sts_table,)
    evaluating.show(partial(evaluate, data=source, tasks=_of_kind("sts", tasks), sickr=sickr), *tables)


@app.command()
@with_evaluation_flags
def transfer(
    evaluating: Evaluating,
    data: Data,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=f"Some of {','.join(TRANSFER_TASKS)}. [default: all that are found]"),
    ] = None,
) -> None:
    """Learn a classifier on frozen vectors, as SentEval does: what the vectors know that a cosine does not show.

    Logistic regression, its strength chosen within the training part.
    """
    evaluating.show(partial(evaluate, data=data, tasks=_of_kind("transfer", tasks)), task_table)


@app.command()
@with_evaluation_flags
def cqa(
    evaluating: Evaluating,
    data: Data,
    text: Annotated[
        str, typer.Option(metavar="|".join(TEXT_PARTS), help="What is encoded of a question.")
    ] = TEXT_PARTS[0],
) -> None:
    """Rank ten related questions of a forum by the cosine, on SemEval's task 3, subtask B: mean average precision.

    Beside it: the order of the search engine, and that of chance.
    """
    evaluating.show(partial(evaluate, data=data, tasks="cqa", text=text), task_table)


@app.command()
@with_evaluation_flags
def retrieval(
    evaluating: Evaluating,
    data: DataOrPairs = None,
    qrels: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which judgements: those of qrels/NAME.tsv in each folder. [default: test]"),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="In place of --data: two texts of the same meaning a row."),
    ] = None,
    columns: Columns = None,
) -> None:
    """Search: recall, MRR and nDCG in folders of BEIR's format, or finding the other text of each pair of a file.

    A folder holds corpus.jsonl, queries.jsonl and qrels/; several may lie below DIR.
    """
    source, is_file = one_source(data, pairs)
    if is_file:
        refuse_flags("--data", qrels=qrels)
        evaluating.show(partial(evaluate, data=source, tasks="retrieval", columns=columns), task_table, reads=source)
    else:
        refuse_flags("--pairs", columns=columns)
        evaluating.show(partial(evaluate, data=source, tasks="retrieval", split=qrels or "test"), task_table)


@app.command()
@with_evaluation_flags
def rte(evaluating: Evaluating, data: Data) -> None:
    """Tell entailment by the cosine of premise and hypothesis, on the 277 dev pairs of RTE.

    Accuracy where a cosine above 0.5 counts as entailment (WhiteningBERT), where one above the threshold best on train
    does, and of always naming the more frequent label.
    """
    evaluating.show(partial(evaluate, data=data, tasks="rte"), rte_table)


@app.command("all")
@with_evaluation_flags
def everything(
    evaluating: Evaluating,
    data: Data,
    kinds: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"Some of {','.join(KINDS)}. [default: all that are found]")
    ] = None,
) -> None:
    """Evaluate on every task below a folder, each with its defaults; a text in several tasks is encoded once."""
    evaluating.show(partial(evaluate, data=data, tasks=split_names(kinds) or "all"), task_table)


_SMALLEST_P = 0.0001


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="Result file to start from.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Result file that is judged against it.")],
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that both have]")
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(CORRELATIONS),
            help="Compare tasks with human scores by this. [default: what each is judged by]",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals; a verdict needs p below 1 - level.")] = LEVEL,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the bootstrap.")] = N_RESAMPLES,
    tests: Annotated[bool, typer.Option("--tests", help="Print the test of every task and its p-values, too.")] = False,
    json_output: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Write all numbers as JSON; - prints them in place of the table."),
    ] = None,
) -> None:
    """Tell whether B is better than A, worse, or whether that cannot be told.

    Both are result files of "isosent evaluate ... --json", of the same data by the same protocol. They are compared
    item by item: Pearson correlations by Williams's test, accuracies by the exact McNemar test, all else by the paired
    bootstrap. P-values are corrected for the number of tasks (Holm).
    """
    check_output(json_output, reads=(first, second))
    results = read_result(first), read_result(second)
    with progress_bar("comparing", "items") as bar:
        found = compare_results(
            *results,
            names=(str(first), str(second)),
            tasks=split_names(tasks),
            correlation=correlation,
            level=level,
            seed=seed,
            n_resamples=resamples,
            progress=bar,
        )
    written = json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
    if write_output(json_output, written):
        return
    if tests:
        out.print(test_table(found))
    out.print(comparison_table(found))


def comparison_table(found: Comparison) -> Table:
    """Lay out a comparison, x100.

    Parameters
    ----------
    found : Comparison
        What was compared.

    Returns
    -------
    Table
        One row a task or average; below it what A and B are, and what to know of the verdicts.
    """
    table = Table(caption="\n".join(_caption(found)), caption_justify="left")
    for name in ("x100", "A", "B", "B - A", f"{100 * found.level:g} % interval", "B is"):
        table.add_column(name, justify="left" if name in ("x100", "B is") else "right")
    for name, of in found.tasks.items():
        table.add_row(name, *_cells(of))
    table.add_section()
    for alike, of in found.averages.items():
        table.add_row(f"average, {alike}", *_cells(of))
    return table


def test_table(found: Comparison) -> Table:
    """Lay out the tests behind the verdicts.

    Parameters
    ----------
    found : Comparison
        What was compared.

    Returns
    -------
    Table
        One row a task or average: metric, items, test, p-value, the corrected one, and for Spearman that of Williams's
        test of the ranks.
    """
    table = Table()
    for name in ("task", "metric", "items", "by", "p", "corrected", "Williams on ranks"):
        table.add_column(name, justify="left" if name in ("task", "metric", "by") else "right")
    for name, of in found.tasks.items():
        tested = of.test, _p_value(of.p_value), _p_value(of.p_corrected), _p_value(of.p_williams_on_ranks)
        table.add_row(name, of.metric, f"{of.n_items:,}", *tested)
    table.add_section()
    for alike, of in found.averages.items():
        table.add_row(f"average, {alike}", of.metric, f"{of.n_items:,}", of.test, _p_value(of.p_value), "", "")
    return table


def _cells(of: Difference) -> tuple[str, ...]:
    ends = [_signed(end) for end in of.interval]
    interval = ends[0] if ends[0] == "undefined" else " to ".join(ends)
    return x100(of.first), x100(of.second), _signed(of.difference), interval, of.verdict


def _signed(difference: float) -> str:
    return "undefined" if math.isnan(difference) else f"{100 * difference:+.2f}"


def _p_value(p_value: float) -> str:
    if math.isnan(p_value):
        return ""
    return f"< {_SMALLEST_P}" if p_value < _SMALLEST_P else f"{p_value:.4f}"


def _caption(found: Comparison) -> Iterator[str]:
    for letter, side in (("A", found.first), ("B", found.second)):
        yield f"{letter}: {side.name}"
        yield from (f"   {line}" for line in model_lines(side.model, side.fitting))
    for metric, test in dict.fromkeys((of.metric, of.test) for of in found.tasks.values()):
        own = (name for name, of in found.tasks.items() if (of.metric, of.test) == (metric, test))
        yield f"{metric}, {test}: {', '.join(own)}"
    if len(found.tasks) > 1:
        yield f"p-values are corrected for {len(found.tasks)} tasks (Holm), intervals are not; an average stands alone."
    yield f'A verdict needs p < {1 - found.level:g}; "cannot tell" is not "the same": see the interval.'
    for side in (found.first, found.second):
        if side.only:
            yield f"only in {side.name}: {', '.join(side.only)}"
    yield from found.notes


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
        available = read_tasks(data)
    found = {task.name: task.items for task in _chosen(available, split_names(tasks))}
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


def _chosen(jobs: list[Task], names: list[str] | None) -> list[Task]:
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


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...", help="What isosent evaluate ... --json and isosent study ... --json wrote."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write, as report.html.")],
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also write the figures and the leaderboard (CSV, LaTeX); needs the extra plots."
        ),
    ] = None,
) -> None:
    """Make a page of results: leaderboard, figures, what auto chose, speed and memory, and the small print.

    One HTML file that needs no network. Files of one model and the same settings share a row. Scores of other data or
    another protocol get columns of their own. The best of a column is marked only where it beats the second beyond
    chance. Studies of dimensions, layers, poolings and auto are shown, too.
    """
    check_destination(output, reads=results)
    if figures is not None:
        check_figures(figures)
    data = read_report(results)
    with progress_bar("testing the best", "columns") as bar:
        board = make_leaderboard(data.results, progress=bar)
    for note in board.notes:
        err.print(f"note: {note}")
    write_text(output, html_report(data, board))
    out.print(f"{output}: {report_title(data, board)}")
    if figures is not None:
        for path in write_figures(figures, data, board):
            out.print(f"{path}")


_SHOWN_OF_COMMIT = 12

app_data = typer.Typer(no_args_is_help=True, help="Get the files of public tasks, and tell what there is.")


@app_data.command("list")
def list_sets() -> None:
    """Tell what there is to get: what it is for, how much it is, where it comes from, on which terms."""
    manifest = read_manifest()
    for each in manifest.sets.values():
        out.print(f"{each.name}: {each.title}")
        for label, text in _facts(each, manifest):
            out.print(f"    {label:<9} {text}")


@app_data.command()
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
    for of, files in groupby(got, key=lambda file: file.data_set):
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


def _outcome(of: DataSet, files: list[FetchedFile], folder: Path) -> str:
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
