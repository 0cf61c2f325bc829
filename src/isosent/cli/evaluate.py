"""The commands ``evaluate ...``."""

from functools import partial
from typing import Annotated

import typer

from isosent.cli.evaluation_options import Data, Evaluating, with_evaluation_flags
from isosent.evaluation.rte import evaluate_rte
from isosent.evaluation.sts import evaluate_sts
from isosent.evaluation.sts_files import SICKR_PARTS
from isosent.evaluation.sts_files import TASKS as STS_TASKS
from isosent.evaluation.tables import rte_table, sts_table, subset_table

app = typer.Typer(no_args_is_help=True, help="Measure a model against human judgement.")


@app.command()
@with_evaluation_flags
def sts(
    evaluating: Evaluating,
    data: Data,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"Some of {','.join(STS_TASKS)}. [default: all that are found]")
    ] = None,
    sickr: Annotated[
        str,
        typer.Option(metavar="|".join(SICKR_PARTS), help="Pairs of SICK-R: all 9,927, or the 4,927 of the test part."),
    ] = SICKR_PARTS[0],
    subsets: Annotated[bool, typer.Option("--subsets", help="Print every subset, too.")] = False,
) -> None:
    """Correlate cosines with human scores on STS12 ... STS16, STS-B and SICK-R.

    Spearman and Pearson of every subset, and three ways to put subsets together: "all" is one correlation over all
    pairs (Sentence-BERT, SimCSE, MTEB), "mean" the mean over subsets (WhiteningBERT), "wmean" the same weighted by
    pairs (BERT-whitening). Published scores of the same model stand beside the measured ones.
    """
    names = None if tasks is None else tasks.split(",")
    tables = (subset_table, sts_table) if subsets else (sts_table,)
    evaluating.show(partial(evaluate_sts, folder=data, tasks=names, sickr=sickr), *tables)


@app.command()
@with_evaluation_flags
def rte(evaluating: Evaluating, data: Data) -> None:
    """Tell entailment by the cosine of premise and hypothesis, on the 277 dev pairs of RTE.

    Accuracy where a cosine above 0.5 counts as entailment (WhiteningBERT), where one above the threshold best on train
    does, and of always naming the more frequent label.
    """
    evaluating.show(partial(evaluate_rte, folder=data), rte_table)
