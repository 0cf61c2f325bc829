"""Retrieval: does the cosine find the documents that answer a query, or the second text of a pair."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent.evaluation.beir_files import RetrievalTask, read_beir
from isosent.evaluation.pair_files import read_paraphrases
from isosent.evaluation.protocol import TARGET, FittedTask
from isosent.evaluation.result import EvaluationResult, Items, Measured
from isosent.evaluation.running import Job, Run, run_jobs
from isosent.model import SentenceEncoder
from isosent.numeric.ranking import Ranks, average_precision, cosine_ranks, ndcg_at_k, recall_at_k, reciprocal_rank
from isosent.transforms.base import Transform

KIND = "retrieval"
Metric = Callable[[Ranks, NDArray[np.float64]], float]


def _recall(k: int) -> dict[str, Metric]:
    return {f"recall@{k}": lambda ranks, gains: recall_at_k(ranks, k)}


OF_QRELS: Mapping[str, Metric] = {
    "ndcg@10": partial(ndcg_at_k, k=10),
    "mrr@10": lambda ranks, gains: reciprocal_rank(ranks, 10),
    "map": lambda ranks, gains: average_precision(ranks),
    **_recall(1),
    **_recall(5),
    **_recall(10),
    **_recall(100),
}
OF_PAIRS: Mapping[str, Metric] = {
    "mrr": lambda ranks, gains: reciprocal_rank(ranks),
    **_recall(1),
    **_recall(5),
    **_recall(10),
}


def evaluate_retrieval(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    split: str = "test",
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: Run | None = None,
) -> EvaluationResult:
    """Find documents by the cosine with a query, in folders in the format of BEIR.

    Parameters
    ----------
    model : SentenceEncoder
        The model; queries and documents are encoded by their roles.
    folder : path-like
        A folder in the format of BEIR, or one with such folders below it, see `read_beir`.
    split : str, default "test"
        Which queries: those of ``qrels/SPLIT.tsv``.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: the documents of the task under
        evaluation, or the texts of a file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        For each folder, by its name, ``ndcg@10``, ``mrr@10``, ``map``, and ``recall`` at 1, 5, 10 and 100.

    Raises
    ------
    InputError
        If the files are not there or malformed.

    Notes
    -----
    Every query is compared with every document, see `isosent.numeric.ranking.cosine_ranks`; ``map`` is that of the
    whole ranking. The metrics are those of trec_eval: means over the queries of the qrels, linear gain, 0 for a query
    without a relevant document; ``mrr@10`` cuts its ``recip_rank`` at rank 10. Unjudged documents count as irrelevant.

    References
    ----------
    Thakur et al. 2021, *BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models*.
    """
    jobs = retrieval_jobs(folder, split=split)
    return run_jobs("evaluate_retrieval", model, jobs, folder, transform=transform, fit=fit, run=run)


def retrieval_jobs(folder: str | os.PathLike[str], *, split: str = "test") -> list[Job]:
    """Read folders in the format of BEIR and say how they are scored; parameters as for `evaluate_retrieval`."""
    protocol = {"similarity": "cosine", "split": split, "gain": "linear", "own_document": "left out"}
    return [_job(task, OF_QRELS, protocol) for task in read_beir(folder, split=split)]


def evaluate_paraphrases(
    model: SentenceEncoder,
    file: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: Run | None = None,
) -> EvaluationResult:
    """Find the second text of a pair among all second texts of a file, by the cosine with the first.

    Parameters
    ----------
    model : SentenceEncoder
        The model; first texts are encoded as queries, second ones as documents.
    file : path-like
        A table of pairs that mean the same, see `read_paraphrases`.
    columns : str or sequence of str, optional
        Columns of the two texts, such as ``"question1,question2"``; by usual names where left out.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: the second texts, or the texts of a file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        ``mrr``, and ``recall`` at 1, 5 and 10, under the name of the file.

    Raises
    ------
    InputError
        If the file is not there or malformed, or its columns cannot be told.

    Notes
    -----
    Equal first texts are one query, equal second texts one document. A query that has several second texts should find
    each. A second text that equals the query does not count for it, unless it is its own second text.
    """
    jobs = paraphrase_jobs(file, columns=columns)
    return run_jobs("evaluate_paraphrases", model, jobs, file, transform=transform, fit=fit, run=run)


def paraphrase_jobs(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> list[Job]:
    """Read pairs and say how they are scored; parameters as for `evaluate_paraphrases`."""
    pairs = read_paraphrases(file, columns=columns)
    first, second = (
        {text: row for row, text in enumerate(dict.fromkeys(texts))} for texts in (pairs.first, pairs.second)
    )
    relevant = {(first[one], second[other]) for one, other in zip(pairs.first, pairs.second, strict=True)}
    own = [second.get(text, -1) for text in first]
    task = RetrievalTask(
        name=pairs.name,
        queries=tuple(first),
        documents=tuple(second),
        relevant=np.array(sorted(relevant), dtype=np.intp),
        gains=np.ones(len(relevant)),
        own=np.array([-1 if (row, same) in relevant else same for row, same in enumerate(own)], dtype=np.intp),
        n_left_out=0,
        files=pairs.files,
    )
    return [
        _job(task, OF_PAIRS, {"similarity": "cosine", "own_document": "left out", "columns": ",".join(pairs.columns)})
    ]


def _job(task: RetrievalTask, metrics: Mapping[str, Metric], protocol: Mapping[str, Any]) -> Job:
    return Job(task.name, KIND, task, partial(_measure, task, metrics), protocol, task.files)


def _measure(task: RetrievalTask, metrics: Mapping[str, Metric], done: FittedTask, seed: int) -> Measured:
    queries, documents = (done.encode(texts, role) for role, texts in task.by_role.items())
    ranks = cosine_ranks(queries, documents, task.relevant, left_out=task.own)
    begins = np.searchsorted(task.relevant[:, 0], np.arange(1, len(task.queries)))
    by_query = list(zip(np.split(ranks, begins), np.split(task.gains, begins), strict=True))
    values = {name: np.array([metric(*of_one) for of_one in by_query]) for name, metric in metrics.items()}
    main = next(iter(metrics))
    return Measured(
        main,
        {name: float(of_queries.mean()) for name, of_queries in values.items()},
        Items(values[main]),
        {
            "n_documents": len(task.documents),
            "n_relevant": len(task.relevant),
            "n_without_relevant": sum(len(found) == 0 for found, _ in by_query),
            "n_left_out": task.n_left_out,
        },
    )
