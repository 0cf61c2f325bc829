"""The commands ``evaluate ...``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.evaluation_options import Data, Evaluating, one_source, refuse_flags, with_evaluation_flags
from isosent.cli.flags import split_names
from isosent.evaluation.cqa import evaluate_cqa
from isosent.evaluation.cqa_files import TEXT_PARTS
from isosent.evaluation.everything import KINDS, evaluate_all
from isosent.evaluation.pairs import evaluate_pairs
from isosent.evaluation.retrieval import evaluate_paraphrases, evaluate_retrieval
from isosent.evaluation.rte import evaluate_rte
from isosent.evaluation.sts import evaluate_sts
from isosent.evaluation.sts_files import SICKR_PARTS
from isosent.evaluation.sts_files import TASKS as STS_TASKS
from isosent.evaluation.tables import rte_table, sts_table, subset_table, task_table
from isosent.evaluation.transfer import evaluate_transfer
from isosent.evaluation.transfer_files import TRANSFER_TASKS

app = typer.Typer(no_args_is_help=True, help="Measure a model against human judgement.")

DataOrPairs = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Folder with the original files, anywhere below it.")
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Columns of --pairs, with commas between. [default: those of the usual names]"),
]


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
        evaluating.show(partial(evaluate_pairs, file=source, columns=columns), task_table, reads=source)
        return
    refuse_flags("--pairs", columns=columns)
    tables = (subset_table, sts_table) if subsets else (sts_table,)
    evaluating.show(partial(evaluate_sts, folder=source, tasks=split_names(tasks), sickr=sickr), *tables)


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
    evaluating.show(partial(evaluate_transfer, folder=data, tasks=split_names(tasks)), task_table)


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
    evaluating.show(partial(evaluate_cqa, folder=data, text=text), task_table)


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
        evaluating.show(partial(evaluate_paraphrases, file=source, columns=columns), task_table, reads=source)
    else:
        refuse_flags("--pairs", columns=columns)
        evaluating.show(partial(evaluate_retrieval, folder=source, split=qrels or "test"), task_table)


@app.command()
@with_evaluation_flags
def rte(evaluating: Evaluating, data: Data) -> None:
    """Tell entailment by the cosine of premise and hypothesis, on the 277 dev pairs of RTE.

    Accuracy where a cosine above 0.5 counts as entailment (WhiteningBERT), where one above the threshold best on train
    does, and of always naming the more frequent label.
    """
    evaluating.show(partial(evaluate_rte, folder=data), rte_table)


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
    evaluating.show(partial(evaluate_all, folder=data, kinds=split_names(kinds)), task_table)
