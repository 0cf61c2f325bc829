"""Score a model on the tasks of a folder or a table.

`evaluate` checks its arguments, and `read_tasks` makes `Task` objects of the files. `_by_kind` sorts the names that
were requested by kind (`KINDS`): each has a module that finds its files in a folder. A table is read by
`_task_of_table`, for the task that its kind says. `evaluation.run` then encodes and scores the tasks.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

from isosent.errors import EvaluationWarning, InputError, InputTypeError, TaskNotFoundError, wrong_value
from isosent.evaluation.cqa import TEXT_PARTS, cqa_tasks
from isosent.evaluation.labeled import (
    CLASSIFICATION,
    CLUSTERING,
    classification_tasks,
    clustering_task,
    clustering_tasks,
)
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.retrieval import paraphrase_task, retrieval_tasks
from isosent.evaluation.rte import rte_tasks
from isosent.evaluation.run import TARGET, run_tasks
from isosent.evaluation.sizes import KNOWN_SETS
from isosent.evaluation.sts import SICKR_PARTS, TASKS, pairs_task, sts_tasks
from isosent.evaluation.task import Task, name_key
from isosent.evaluation.transfer import TRANSFER_TASKS, transfer_tasks
from isosent.loading import check_model
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import N_RESAMPLES
from isosent.pages.progress import Progress
from isosent.search.index import Index
from isosent.transforms.base import Auto, Transform, resolve_transform

KINDS = ("sts", "transfer", "cqa", "rte", "retrieval", CLUSTERING, CLASSIFICATION)
PAIRS = "pairs"


def evaluate(
    model: SentenceEncoder | Index,
    data: str | os.PathLike[str],
    tasks: str | Sequence[str] = "sts",
    *,
    transform: Transform | Auto | str | Sequence[Transform | Auto | str | None] | None = None,
    fit_on: str | os.PathLike[str] = TARGET,
    sickr: str = SICKR_PARTS[0],
    text: str = TEXT_PARTS[0],
    split: str = "test",
    columns: str | Sequence[str] | None = None,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    progress: Progress | None = None,
) -> EvaluationResult:
    r"""Score a model on tasks with human judgements.

    Parameters
    ----------
    model : SentenceEncoder or Index
        The model; stored vectors are one, wrapped by their texts: ``isosent.wrap({text: vector, ...})``. Of an index,
        "retrieval" scores the first 100 results of each query, as they come from its type, dtype and settings.
    data : path-like
        A folder that holds the original files of the tasks, anywhere below it; or a table (.csv, .tsv, .jsonl, .json,
        .parquet) of pairs of texts, or of texts with labels to cluster.
    tasks : str or sequence of str, default "sts"
        Kinds of tasks, single sets, or both; names in a string are separated by commas. Case and dashes do not matter.

        - "sts": STS12 to STS16, STS-B and SICK-R. With a table: pairs with a human score, as "pairs".
        - "transfer": a classifier on frozen vectors, as in SentEval (MR, CR, SUBJ, MPQA, SST2, SST5, TREC, MRPC,
          SICK-E, and the supervised STSB-supervised and transfer:SICK-R).
        - "retrieval": folders in the format of BEIR, and collections of SMART such as Cranfield. With a table: find
          the second text of each pair among all.
        - "clustering": do clusters of vectors agree with labels (MTEB)? With a table: its texts and labels.
        - "classification": a classifier on a few examples of each label (MTEB).
        - "cqa": questions of a forum ranked against a new one (SemEval task 3, subtask B).
        - "rte": entailment, decided by the cosine (GLUE).
        - "all": every kind that has files in the folder.

        A set is named by its name, such as "STS12", "STS-B" or "MR". "KIND:NAME" names a set of one kind:
        "transfer:SICK-R", or "retrieval:scifact" for the folder ``scifact``.
    transform : str, Transform, None, or a list of these, optional
        Fitted after the model before scoring, such as ``Whitening(n_components=128)``, "whitening" or "auto"; None or
        "none" scores the model unchanged. With a list, texts are encoded once, and each transform is scored.
    fit_on : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all texts of the task under evaluation,
        without labels (of retrieval, the documents), or the texts of a file.
    sickr : {"full", "test"}, default "full"
        All 9,927 pairs of SICK-R, or the 4,927 of its test set. For the STS task only.
    text : {"subject+body", "subject", "body"}, default "subject+body"
        What is encoded of a question. For "cqa" only.
    split : str, default "test"
        Which queries: those of ``qrels/SPLIT.tsv``. For "retrieval" only.
    columns : str or sequence of str, optional
        Columns of a table: of the two texts and the score, such as ``"sentence1,sentence2,labels.label"``; for
        "retrieval" of the two texts, for "clustering" of the text and the label. By default columns are detected by
        their usual names.
    seed : int, default 0
        Seed of all random numbers.
    n_resamples : int, default 2000
        Draws of the bootstrap.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.

    Returns
    -------
    EvaluationResult
        Scores of every task, with 95% intervals. With a list of transforms, the result of the first; those of the
        others are its ``variants``.

        - STS: ``spearman`` and ``pearson`` over all pairs of a task; their mean over subsets as ``spearman_mean`` and
          weighted by pairs as ``spearman_wmean``, the same for Pearson; every subset under ``details["subsets"]``.
        - transfer: ``accuracy``, and ``f1`` of MRPC; for SICK-R and STSB-supervised ``pearson``, ``spearman``, ``mse``.
        - retrieval: ``ndcg@10``, ``mrr@10``, ``map``, and ``recall`` at 1, 5, 10 and 100; for pairs ``mrr`` and recall.
        - clustering: ``v_measure`` and ``ami``, means over ten draws of texts, which are its items.
        - classification: ``accuracy`` and ``f1`` (macro), means over ten draws of examples.
        - cqa: ``map``, ``mrr``, ``accuracy`` at a cosine of 0.5, ``accuracy_majority``.
        - rte: ``accuracy`` on dev at a cosine of 0.5, ``accuracy_tuned`` at the threshold that is best on train, and
          ``accuracy_majority``.

    Raises
    ------
    InputError
        If a task is unknown, lies in several folders, or a setting does not fit.
    TaskNotFoundError
        If no files of a task that was requested are found.
    FileFormatError
        If a file is malformed.

    Warns
    -----
    EvaluationWarning
        If files of a task are incomplete, a known set has another number of items, or a correlation is undefined
        because all values are the same.

    Notes
    -----
    Cosines and correlations are float64. Under "target" a transform sees the sentences of train, dev and test (Su et
    al. 2021), each as often as it occurs.

    *Transfer* follows SentEval (Conneau and Kiela 2018) but for two things. The features of a pair are :math:`|u - v|`
    and :math:`u v`. The penalty :math:`C` of the logistic regression is chosen among SentEval's values, divided by the
    total variance of the features, so that the score does not depend on the unit of the vectors. Scores are predicted
    by maximum likelihood with a penalty, over 0 to 5 for STS-B, where SentEval uses least squares with early stopping.

    *Retrieval* compares every query with every document. A document with the id of the query (of pairs: with its text)
    is left out, unless it is called relevant. Rows of an index are documents by their ids, or by their texts if the
    index has numbered its rows; what is not among the results counts as not found. Metrics are those of trec_eval, with
    linear gain.

    *Clustering* and *classification* follow MTEB (Muennighoff et al. 2023), with its random numbers for seed 0. Vectors
    are taken as they are, so scores depend on their length. Clusters are those of mini-batch k-means (one for each
    label, batches of 512) of 16,384 texts that are drawn with replacement. The interval is over the ten draws; it says
    nothing about other texts. A logistic regression (C = 1, at most 100 steps) learns from eight examples of each
    label, more in some tasks of MTEB. An item is a text of the test part: the share of draws in which its label is
    found, so the interval is over texts.

    *cqa* counts a question without a relevant candidate as 0. The threshold 0.5 of *rte* and *cqa* is that of Huang et
    al. (2021); accuracy at a fixed threshold says as much about where the cosines of a model lie as about what they
    separate.

    Examples
    --------
    >>> import isosent
    >>> model = isosent.load("wordllama")
    >>> result = isosent.evaluate(model, "data", "sts", transform=[None, "whitening"])  # doctest: +SKIP
    >>> print(result.to_csv())  # doctest: +SKIP
    """
    index = model if isinstance(model, Index) else None
    if isinstance(model, Index):
        model = model.model
    transforms = transforms_of(transform, model)
    if index is not None and transforms != [None]:
        raise InputError("evaluate: the vectors of an index are stored, with its transform. Leave transform out.")
    if fit_on != TARGET and transforms == [None] and not model.encoder.needs_corpus:
        raise InputError(f"evaluate: there is nothing to fit on {fit_on}. Name a transform, such as whitening.")
    chosen = read_tasks(data, tasks, sickr=sickr, text=text, split=split, columns=columns, index=index)
    return run_tasks(
        model,
        chosen,
        data,
        transforms=transforms,
        fit_on=fit_on,
        seed=seed,
        n_resamples=n_resamples,
        progress=progress,
    )


def transforms_of(
    transform: Transform | Auto | str | Sequence[Transform | Auto | str | None] | None, model: SentenceEncoder
) -> list[Transform | Auto | None]:
    """List the transforms to evaluate; names become unfitted transforms."""
    check_model("evaluate", model)
    if isinstance(transform, Sequence) and not isinstance(transform, str):
        listed: list[Transform | Auto | str | None] = list(transform)
    else:
        listed = [transform]
    if not listed:
        raise wrong_value("evaluate", "transform", "name at least one transform", "an empty list", "Use None for none.")
    return [resolve_transform(each, dim=model.dim) for each in listed]


def read_tasks(
    data: str | os.PathLike[str],
    tasks: str | Sequence[str] = "all",
    *,
    sickr: str = SICKR_PARTS[0],
    text: str = TEXT_PARTS[0],
    split: str = "test",
    columns: str | Sequence[str] | None = None,
    index: Index | None = None,
) -> list[Task]:
    """Read tasks from a folder, or one from a table; arguments, errors and warnings as for `evaluate`."""
    wanted = _by_kind(tasks.split(",") if isinstance(tasks, str) else tasks)
    if index is not None and list(wanted) != ["retrieval"]:
        raise InputError(f"evaluate: an index is scored on retrieval only, not on {', '.join(wanted) or 'all tasks'}.")
    is_table = Path(data).is_file() or PAIRS in wanted
    for name, kind, value, default in (
        ("sickr", "sts", sickr, SICKR_PARTS[0]),
        ("text", "cqa", text, TEXT_PARTS[0]),
        ("split", "retrieval", split, "test"),
    ):
        if value != default and (is_table or (wanted and kind not in wanted)):
            kinds = "a table" if is_table else ", ".join(wanted)
            raise InputError(f"evaluate: {name} is a setting of {kind}, not of {kinds}. Leave {value!r} out.")
    if is_table:
        return [_task_of_table(data, list(wanted), columns, index)]
    if columns is not None:
        raise InputError(f"evaluate: columns are those of a table; {data} is a folder. Leave columns out.")
    readers: dict[str, Callable[[Sequence[str] | None], list[Task]]] = {
        "sts": lambda names: sts_tasks(data, names, sickr=sickr),
        "transfer": lambda names: transfer_tasks(data, names),
        "cqa": lambda names: _tasks_by_name(cqa_tasks(data, text=text), names),
        "rte": lambda names: _tasks_by_name(rte_tasks(data), names),
        "retrieval": lambda names: retrieval_tasks(data, names, split=split, index=index),
        CLUSTERING: lambda names: clustering_tasks(data, names),
        CLASSIFICATION: lambda names: classification_tasks(data, names),
    }
    read: list[Task] = []
    missing: list[TaskNotFoundError] = []
    for kind, names in wanted.items() if wanted else dict.fromkeys(KINDS).items():
        try:
            read += readers[kind](names)
        except TaskNotFoundError as error:
            if wanted:
                raise
            missing.append(error)
    if not read:
        raise TaskNotFoundError(" ".join(map(str, missing)))
    for reason in missing:
        warnings.warn(f"left out: {reason}", EvaluationWarning, stacklevel=3)
    return read


def _by_kind(tasks: Sequence[str]) -> dict[str, list[str] | None]:
    """Sort names of kinds and sets by kind; None means all sets of a kind, and an empty dict all kinds."""
    if not all(isinstance(name, str) for name in tasks):
        raise InputTypeError(f"tasks must be names; got {list(tasks)!r}.")
    names = [name.strip() for name in tasks if name.strip()]
    if not names:
        raise InputError("no tasks are named. Use 'all' for all tasks of a folder.")
    # SICK-R is a set of both STS and transfer: as in the literature, the name alone is that of STS
    kind_of = {name_key(name): kind for kind in (CLUSTERING, CLASSIFICATION) for name in KNOWN_SETS[kind]}
    kind_of |= {name_key(name): "transfer" for name in TRANSFER_TASKS} | {name_key(name): "sts" for name in TASKS}
    wanted: dict[str, list[str] | None] = {}
    for name in names:
        kind, _, set_name = name.rpartition(":")
        if name.lower() == "all":
            continue
        if name.lower() in (*KINDS, PAIRS):
            wanted[name.lower()] = None
            continue
        kind = kind.lower() or ("cqa" if name.upper().startswith("CQA-") else kind_of.get(name_key(name), ""))
        if kind not in KINDS:
            known = ("all", *KINDS, PAIRS, *TASKS, *TRANSFER_TASKS)
            by_key = {name_key(other): other for other in reversed(known)}
            nearest = get_close_matches(name_key(name), by_key, 1)
            advice = f" Did you mean {by_key[nearest[0]]}?" if nearest else ""
            raise InputError(f"there is no task {name!r}.{advice} There are {', '.join(known)}, and KIND:NAME.")
        if (sets := wanted.setdefault(kind, [])) is not None and set_name not in sets:
            sets.append(set_name)
    return {} if "all" in map(str.lower, names) else wanted


def _task_of_table(
    data: str | os.PathLike[str], kinds: Sequence[str], columns: str | Sequence[str] | None, index: Index | None
) -> Task:
    if kinds == ["retrieval"]:
        return paraphrase_task(data, columns=columns, index=index)
    if kinds in (["sts"], [PAIRS]):
        return pairs_task(data, columns=columns)
    if kinds == [CLUSTERING]:
        return clustering_task(data, columns=columns)
    raise InputError(
        "evaluate: a table is scored as pairs or retrieval, or of texts with labels as clustering, not as "
        f"{', '.join(kinds) or 'all tasks'}."
    )


def _tasks_by_name(tasks: Sequence[Task], names: Sequence[str] | None) -> list[Task]:
    if names is None:
        return list(tasks)
    available = {name_key(task.name): task for task in tasks}
    if missing := [name for name in names if name_key(name) not in available]:
        raise TaskNotFoundError(
            f"{tasks[0].kind} has no {', '.join(missing)} here; it has {', '.join(task.name for task in tasks)}."
        )
    return [available[name_key(name)] for name in names]
