"""Retrieval: does the cosine find the documents that answer a query, or the second text of a pair."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.result import Items, Measured
from isosent.evaluation.sts_files import read_paraphrases
from isosent.evaluation.task import Encode, Role, Task
from isosent.io.lines import folders_below, read_lines, split_fields
from isosent.io.tables import open_table
from isosent.numeric.ranking import Ranks, average_precision, cosine_ranks, ndcg_at_k, recall_at_k, reciprocal_rank

_CORPUS, _QUERIES, _QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
_HEADER = ["query-id", "corpus-id", "score"]


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalTask:
    """Documents to be found by queries."""

    name: str  # name of the task
    queries: tuple[str, ...]  # their texts. Of documents of equal score the earlier one is ranked first
    documents: tuple[str, ...]  # their texts. Of documents of equal score the earlier one is ranked first
    relevant: NDArray[np.intp]  # row of a query and row of a document that answers it, ordered by query
    gains: NDArray[np.float64]  # how well it does, > 0
    own: NDArray[np.intp]  # row of the document that is the query itself and does not count, -1 where there is none
    n_left_out: int  # queries of the files that nothing is said about
    files: tuple[Path, ...]  # what it was read from

    @property
    def texts(self) -> tuple[str, ...]:
        """All queries and documents."""
        return self.queries + self.documents

    @property
    def target_texts(self) -> tuple[str, ...]:
        """The documents: what a transform is fitted on under the protocol "target"."""
        return self.documents

    @property
    def by_role(self) -> Mapping[Role, Sequence[str]]:
        """Queries and documents apart."""
        return {"query": self.queries, "document": self.documents}

    @property
    def target_role(self) -> Role:
        """The role "document"."""
        return "document"


def read_beir(folder: str | os.PathLike[str], *, split: str = "test") -> tuple[RetrievalTask, ...]:
    """Find and read folders in the format of BEIR."""
    # The text of a document is its title and its text, joined by a space. Documents are ordered by id, from the last
    # to the first, so that ties are broken as trec_eval does. A document with the id of a query does not count for
    # that query, as in BEIR, unless the qrels call it relevant. A score above 0 is relevant.
    root = _check.input_folder(folder).resolve()
    homes = sorted((path for path, files in folders_below(root) if {_CORPUS, _QUERIES} <= set(files)), key=_name)
    if not homes:
        raise TaskNotFoundError(
            f"{root} must hold {_CORPUS}, {_QUERIES} and {_QRELS}/{split}.tsv; no such folder was found."
        )
    for one, other in pairwise(homes):
        if one.name == other.name:
            raise InputError(f"{root} must not hold two folders of one name; got {one} and {other}. Name one of them.")
    return tuple(_read_home(home, split) for home in homes)


def _name(path: Path) -> str:
    return path.name


def _read_home(home: Path, split: str) -> RetrievalTask:
    qrels = home / _QRELS / f"{split}.tsv"
    if not qrels.exists():
        there = sorted(path.stem for path in (home / _QRELS).glob("*.tsv"))
        raise InputError(f"{qrels} must exist; splits there: {', '.join(there) or 'none'}.")
    documents, queries = _read_texts(home / _CORPUS), _read_texts(home / _QUERIES)
    judged = _read_qrels(qrels, queries, documents)
    row_of = {key: row for row, key in enumerate(sorted(documents, reverse=True))}
    relevant = [
        (row, row_of[document], score)
        for row, scores in enumerate(judged.values())
        for document, score in scores.items()
        if score > 0
    ]
    if not relevant:
        raise FileFormatError(
            f"{qrels} must call at least one document relevant; got {len(judged)} queries without one."
        )
    own = [-1 if scores.get(key, 0) > 0 else row_of.get(key, -1) for key, scores in judged.items()]
    table = np.array(relevant)
    return RetrievalTask(
        home.name,
        tuple(queries[key] for key in judged),
        tuple(documents[key] for key in row_of),
        table[:, :2].astype(np.intp),
        table[:, 2].astype(np.float64),
        np.array(own, dtype=np.intp),
        len(queries) - len(judged),
        (home / _CORPUS, home / _QUERIES, qrels),
    )


def _read_texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    with open_table(path) as table:
        for number, (key, text, title) in table.rows("_id", "text", optional=["title"]):
            if isinstance(key, bool) or not isinstance(key, (str, int)) or key == "":
                raise FileFormatError(f"{table.place(number)}: _id must be a string; got {key!r}.")
            if str(key) in texts:
                raise FileFormatError(f"{table.place(number)}: _id must occur once; got {key!r} again.")
            title = table.text(number, "title", title or "")
            texts[str(key)] = f"{title} {table.text(number, 'text', text)}".strip()
    return texts


def _read_qrels(path: Path, queries: Container[str], documents: Container[str]) -> dict[str, dict[str, int]]:
    lines = read_lines(path)
    if lines[:1] != ["\t".join(_HEADER)]:
        raise FileFormatError(
            f"{path}: line 1 must name the columns {', '.join(_HEADER)}, between tabs; got {lines[0]!r}."
        )
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines[1:], start=2):
        query, document, score = split_fields(path, number, line, 3)[:3]
        for key, known, home in ((query, queries, _QUERIES), (document, documents, _CORPUS)):
            if key not in known:
                raise FileFormatError(f"{path}: line {number} must name ids of {home}; got {key!r}.")
        if document in judged.setdefault(query, {}):
            raise FileFormatError(f"{path}: line {number} must judge a new pair; got {query!r} and {document!r} again.")
        judged[query][document] = _grade(path, number, score)
    return judged


def _grade(path: Path, number: int, written: str) -> int:
    try:
        return int(written)
    except ValueError:
        raise FileFormatError(f"{path}: line {number} must hold a whole number as score; got {written!r}.") from None


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


def retrieval_tasks(folder: str | os.PathLike[str], *, split: str = "test") -> list[Task]:
    """Read folders in the format of BEIR."""
    protocol = {"similarity": "cosine", "split": split, "gain": "linear", "own_document": "left out"}
    return [_task(task, OF_QRELS, protocol) for task in read_beir(folder, split=split)]


def paraphrase_task(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> Task:
    """Read pairs of texts that mean the same: the second text of each is to be found among all second texts."""
    # Equal first texts are one query, equal second texts one document. A query that has several second texts should
    # find each. A second text that equals the query does not count for it, unless it is its own second text.
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
    protocol = {"similarity": "cosine", "own_document": "left out", "columns": ",".join(pairs.columns)}
    return _task(task, OF_PAIRS, protocol)


def _task(each: RetrievalTask, metrics: Mapping[str, Metric], protocol: Mapping[str, Any]) -> Task:
    return Task(
        name=each.name,
        kind=KIND,
        texts=each.by_role,
        target_texts=each.documents,
        items=[(text,) for text in each.texts],
        score=partial(_measure, each, metrics),
        protocol=protocol,
        files=each.files,
        target_role="document",
    )


def _measure(task: RetrievalTask, metrics: Mapping[str, Metric], encode: Encode, seed: int) -> Measured:
    queries, documents = (encode(texts, role) for role, texts in task.by_role.items())
    ranks = cosine_ranks(queries, documents, task.relevant, excluded=task.own)
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
