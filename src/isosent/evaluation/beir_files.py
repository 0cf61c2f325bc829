"""Reading folders in the format of BEIR: documents, queries, and which documents answer which query."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.json_rows import json_lines, text_of
from isosent.evaluation.tab_files import folders_below, read_lines, split_fields
from isosent.evaluation.task import Role, Task

_CORPUS, _QUERIES, _QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
_HEADER = ["query-id", "corpus-id", "score"]


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalTask(Task):
    """Documents to be found by queries.

    Parameters
    ----------
    name : str
        Name of the task.
    queries, documents : tuple of str
        Their texts. Of documents of equal score the earlier one is ranked first.
    relevant : ndarray of shape (n_relevant, 2), intp
        Row of a query and row of a document that answers it, ordered by query.
    gains : ndarray of shape (n_relevant,), float64
        How well it does, > 0.
    own : ndarray of shape (n_queries,), intp
        Row of the document that is the query itself and does not count, -1 where there is none.
    n_left_out : int
        Queries of the files that nothing is said about.
    files : tuple of Path
        What it was read from.
    """

    name: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    relevant: NDArray[np.intp]
    gains: NDArray[np.float64]
    own: NDArray[np.intp]
    n_left_out: int
    files: tuple[Path, ...]

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
    """Find and read folders in the format of BEIR.

    Parameters
    ----------
    folder : path-like
        Such a folder, or one with such folders anywhere below it: ``corpus.jsonl`` (``_id``, ``text`` and, where there
        is one, ``title``), ``queries.jsonl`` (``_id``, ``text``) and ``qrels/SPLIT.tsv`` (``query-id``, ``corpus-id``,
        ``score``).
    split : str, default "test"
        Which of the files under ``qrels``.

    Returns
    -------
    tuple of RetrievalTask
        Each called as its folder, by name.

    Raises
    ------
    InputError
        If there is no such folder, or two of the same name.
    FileFormatError
        If a line is malformed, an id occurs twice, or the qrels name an id that is not there; the message tells the
        line.

    Notes
    -----
    The text of a document is its title and its text, joined by a space. Documents are ordered by id, from the last to
    the first, so that ties are broken as trec_eval does. A document with the id of a query does not count for that
    query, as in BEIR, unless the qrels call it relevant. A score above 0 is relevant.
    """
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
    for number, row in json_lines(path):
        where = f"{path}: line {number}"
        key = _id(where, row)
        if key in texts:
            raise FileFormatError(f"{where}: _id must occur once; got {key!r} again.")
        title = text_of(where, row, "title") if row.get("title") else ""
        texts[key] = f"{title} {text_of(where, row, 'text')}".strip()
    if not texts:
        raise FileFormatError(f"{path} must hold at least one text; got none.")
    return texts


def _id(where: str, row: Mapping[str, Any]) -> str:
    key = row.get("_id")
    if isinstance(key, bool) or not isinstance(key, (str, int)) or key == "":
        raise FileFormatError(f"{where}: _id must be a string; got {key!r}.")
    return str(key)


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
