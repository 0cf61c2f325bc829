"""Retrieval: does the cosine rank the documents that answer a query first, or the second text of a pair.

`read_collections` reads folders in the format of BEIR and collections of SMART, such as Cranfield, `paraphrase_task` a
table of pairs. All give a `RetrievalSet`, of which `_task` makes a `Task`. `_measure` ranks the documents of each query
by cosine, or takes the results of an index (`_ranks_in_index`), and computes the metrics of trec_eval.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError, option
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.sizes import DOCUMENTS, QUERIES, TEST
from isosent.evaluation.sts import part_protocol, read_paraphrases
from isosent.evaluation.task import Task, TaskEncoder, name_key
from isosent.io.bounds import folders_below, read_lines, split_fields
from isosent.io.tables import open_table
from isosent.numeric.ranking import Ranks, average_precision, cosine_ranks, ndcg_at_k, recall_at_k, reciprocal_rank
from isosent.search.index import Index

# From the ranks of the documents that answer a query, and their gains, to the metric of that query; the first one is
# the main metric. All are those of trec_eval, with linear gain: 0 for a query without a relevant document.
Metric = Callable[[Ranks, NDArray[np.float64]], float]


def _recall(ranks: Ranks, gains: NDArray[np.float64], k: int) -> float:
    return recall_at_k(ranks, k)


_BEIR_METRICS: Mapping[str, Metric] = {
    "ndcg@10": partial(ndcg_at_k, k=10),
    "mrr@10": lambda ranks, gains: reciprocal_rank(ranks, 10),
    "map": lambda ranks, gains: average_precision(ranks),
    **{f"recall@{k}": partial(_recall, k=k) for k in (1, 5, 10, 100)},
}
_PAIR_METRICS: Mapping[str, Metric] = {
    "mrr": lambda ranks, gains: reciprocal_rank(ranks),
    **{f"recall@{k}": partial(_recall, k=k) for k in (1, 5, 10)},
}


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalSet:
    """Queries, and documents that answer them."""

    name: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]  # of documents of equal score the earlier one is ranked first
    relevant: NDArray[np.intp]  # of shape (n_relevant, 2): rows of a query and of a document, ordered by query
    gains: NDArray[np.float64]  # of shape (n_relevant,), > 0
    self_rows: NDArray[np.intp]  # of each query the row of the same text, a document that does not count, or -1
    n_left_out: int = 0  # queries of the files without a judgement
    ids: tuple[str, ...] = ()  # of the documents, where the files have them
    files: tuple[Path, ...] = ()
    is_test: bool = False  # whether its queries are those of the test split, of which sizes are known
    is_graded: bool = True  # whether gains are the grades of the files, rather than 1

    @property
    def sizes(self) -> dict[str, int]:
        """Queries and documents, of a test split."""
        return {QUERIES: len(self.queries), DOCUMENTS: len(self.documents)} if self.is_test else {}


def retrieval_tasks(
    folder: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    *,
    split: str = "test",
    index: Index | None = None,
) -> list[Task]:
    """Read folders in the format of BEIR (Thakur et al. 2021) and collections of SMART; all if no name is given."""
    protocol = {"similarity": "cosine", "split": split, "own_document": "left out"}
    return [
        _task(each, _BEIR_METRICS, protocol | {"gain": "linear" if each.is_graded else "binary"}, index)
        for each in read_collections(folder, names, split=split)
    ]


def paraphrase_task(
    file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None, index: Index | None = None
) -> Task:
    """Read pairs of texts that mean the same: the second text of each is to be found among all second texts."""
    # Equal first texts are one query, equal second texts one document. A query with several second texts should find
    # each. A second text that equals the query does not count for it, unless it is its own second text.
    pairs = read_paraphrases(file, columns=columns)
    row_of_query = {text: row for row, text in enumerate(dict.fromkeys(pairs.first))}
    row_of_document = {text: row for row, text in enumerate(dict.fromkeys(pairs.second))}
    relevant = {
        (row_of_query[first], row_of_document[second]) for first, second in zip(pairs.first, pairs.second, strict=True)
    }
    same = [(row, row_of_document.get(text, -1)) for text, row in row_of_query.items()]
    retrieval_set = RetrievalSet(
        name=pairs.name,
        queries=tuple(row_of_query),
        documents=tuple(row_of_document),
        relevant=np.array(sorted(relevant), dtype=np.intp),
        gains=np.ones(len(relevant)),
        self_rows=np.array([-1 if pair in relevant else pair[1] for pair in same], dtype=np.intp),
        files=(Path(file),),
    )
    protocol = {"similarity": "cosine", "own_document": "left out", "columns": ",".join(pairs.columns)}
    return _task(retrieval_set, _PAIR_METRICS, protocol | part_protocol(pairs), index)


def _task(
    retrieval_set: RetrievalSet, metrics: Mapping[str, Metric], protocol: Mapping[str, Any], index: Index | None
) -> Task:
    return Task(
        name=retrieval_set.name,
        kind="retrieval",
        # an index holds the vectors of its documents, and encodes queries itself
        texts={"query": retrieval_set.queries, "document": retrieval_set.documents} if index is None else {},
        target_texts=retrieval_set.documents,
        items=[(text,) for text in (*retrieval_set.queries, *retrieval_set.documents)],
        score=partial(_measure, retrieval_set, metrics, index),
        protocol=protocol,
        files=retrieval_set.files,
        target_role="document",
        sizes=retrieval_set.sizes,
    )


def _measure(
    retrieval_set: RetrievalSet, metrics: Mapping[str, Metric], index: Index | None, encode: TaskEncoder, seed: int
) -> Measurement:
    relevant = retrieval_set.relevant
    if index is None:
        queries, documents = encode(retrieval_set.queries, "query"), encode(retrieval_set.documents, "document")
        ranks = cosine_ranks(queries, documents, relevant, excluded=retrieval_set.self_rows)
    else:
        ranks = _ranks_in_index(index, retrieval_set)
    begins = np.searchsorted(relevant[:, 0], np.arange(1, len(retrieval_set.queries)))
    by_query = list(zip(np.split(ranks, begins), np.split(retrieval_set.gains, begins), strict=True))
    values = {name: np.array([metric(*query) for query in by_query]) for name, metric in metrics.items()}
    main = next(iter(metrics))
    return Measurement(
        main,
        {name: float(query_values.mean()) for name, query_values in values.items()},
        Items(values[main]),
        {
            "n_documents": len(retrieval_set.documents),
            "n_relevant": len(relevant),
            "n_without_relevant": sum(len(query_ranks) == 0 for query_ranks, _ in by_query),
            "n_left_out": retrieval_set.n_left_out,
            **({} if index is None else {"index": repr(index), "n_ranked": _N_RANKED}),
        },
    )


_N_RANKED = 100  # results of an index that are looked at for each query
_NOT_FOUND = 1 << 60  # the rank of a document that is not among them, which adds nothing to any metric


def _ranks_in_index(index: Index, retrieval_set: RetrievalSet) -> Ranks:
    """Rank of each relevant document among the results of an index, without the query itself."""
    if len(index) == 0:
        raise InputError(f"evaluate: {index.folder} is an index without rows. Add its documents: isosent index add.")
    asked = np.array([row for row, query in enumerate(retrieval_set.queries) if query.strip()], np.intp)
    if len(asked) == 0:
        raise InputError(f"evaluate: all queries of {retrieval_set.name} are blank.")
    texts = [retrieval_set.queries[row] for row in asked]
    hits = index.search(texts, k=min(_N_RANKED + 1, len(index))).to_arrow()
    found = _documents_of(index, retrieval_set, hits)
    queries = asked[hits.column("query").to_numpy()]
    ties = np.round(hits.column("score").to_numpy(), 6)  # they rank in the order of the documents, as in `cosine_ranks`
    rank_of: dict[tuple[int, int], int] = {}
    n_ranked = [0] * len(retrieval_set.queries)
    for hit in np.lexsort(([min(rows, default=-1) for rows in found], -ties, queries)).tolist():
        query = int(queries[hit])
        new = [row for row in found[hit] if (query, row) not in rank_of and row != retrieval_set.self_rows[query]]
        if new or not found[hit]:  # another document, or a row that is none
            n_ranked[query] += 1
        if new:
            rank_of[query, new[0]] = n_ranked[query]
    return np.array([rank_of.get((query, row), _NOT_FOUND) for query, row in retrieval_set.relevant.tolist()])


def _documents_of(index: Index, retrieval_set: RetrievalSet, hits: Any) -> list[list[int]]:
    """Documents that each result is, by its id or its text, whichever is that of more documents."""
    # An index that numbered its rows itself knows nothing of the ids of the files, but may have the texts.
    by = ["text", "id"] if "text" in index.schema.names else ["id"]
    found: list[list[int]] = []
    for column in reversed(by) if index.ids_are_strings else by:
        rows_of: dict[str, list[int]] = {}
        for row, key in enumerate(retrieval_set.ids if column == "id" else retrieval_set.documents):
            rows_of.setdefault(key, []).append(row)
        matched = [rows_of.get(str(key), []) for key in hits.column(column).to_pylist()]
        if not found or sum(map(bool, matched)) > sum(map(bool, found)):
            found = matched
    is_document = dict(zip(hits.column("id").to_pylist(), map(bool, found), strict=True))
    n_others = len(is_document) - sum(is_document.values())
    others = (
        f"{n_others:,} of {len(is_document):,} rows found in {index.folder} are no document of {retrieval_set.name}"
    )
    columns = f"{option('column', 'text')} {option('id_column', '_id')}"
    advice = f"neither ids nor texts are equal. Index its corpus with its ids: {columns}."
    if 2 * n_others > len(is_document):
        raise InputError(f"evaluate: {others}: {advice}")
    if n_others:
        warnings.warn(f"{others}: {advice}", EvaluationWarning, stacklevel=2)
    return found


_CORPUS, _QUERIES, _QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
_HEADER = ["query-id", "corpus-id", "score"]


def read_collections(
    folder: str | os.PathLike[str], names: Sequence[str] | None = None, *, split: str = TEST
) -> tuple[RetrievalSet, ...]:
    """Find and read folders in the format of BEIR, and collections of SMART, which have no split but test."""
    root = _check.input_folder(folder).resolve()
    places: list[tuple[str, Path, Callable[[], RetrievalSet]]] = []
    for home, files in folders_below(root):
        if {_CORPUS, _QUERIES} <= set(files):
            places.append((home.name, home, partial(_read_home, home, split)))
        for name, paths in _smart_files(home, files) if split == TEST else ():
            places.append((name, home, partial(_read_smart, name, *paths)))
    places.sort(key=lambda place: place[0])
    if not places:
        raise TaskNotFoundError(
            f"{root} holds no folder with {_CORPUS}, {_QUERIES} and {_QRELS}/{split}.tsv, and no collection of SMART "
            "(NAME.all, NAME.qry, NAME.rel)."
        )
    if names is not None:
        available = ", ".join(name for name, *_ in places)
        wanted = set(map(name_key, names))
        if missing := wanted - {name_key(name) for name, *_ in places}:
            listed = ", ".join(name for name in names if name_key(name) in missing)
            raise TaskNotFoundError(f"retrieval has no {listed} here; it has {available}.")
        places = [place for place in places if name_key(place[0]) in wanted]
    for one, other in pairwise(places):
        if one[0] == other[0]:
            raise InputError(f"{root} holds two folders of one name, {one[1]} and {other[1]}. Name one of them.")
    return tuple(read() for *_, read in places)


def _read_home(home: Path, split: str) -> RetrievalSet:
    qrels = home / _QRELS / f"{split}.tsv"
    if not qrels.exists():
        splits = sorted(path.stem for path in home.glob(f"{_QRELS}/*.tsv"))
        raise InputError(f"{qrels}: no such file. Available splits: {', '.join(splits) or 'none'}.")
    documents, queries = _read_texts(home / _CORPUS), _read_texts(home / _QUERIES)
    judged = _read_qrels(qrels, queries, documents)
    # Documents are ordered by id, from the last to the first: so ties are broken as by trec_eval
    row_of = {key: row for row, key in enumerate(sorted(documents, reverse=True))}
    relevant = [
        (row, row_of[document], score)
        for row, scores in enumerate(judged.values())
        for document, score in scores.items()
        if score > 0
    ]
    if not relevant:
        raise FileFormatError(f"{qrels} calls no document relevant to any of its {len(judged)} queries.")
    # As in BEIR, a document with the id of a query does not count for it, unless it is called relevant
    own = [-1 if scores.get(key, 0) > 0 else row_of.get(key, -1) for key, scores in judged.items()]
    rows = np.array(relevant)
    return RetrievalSet(
        name=home.name,
        queries=tuple(queries[key] for key in judged),
        documents=tuple(documents[key] for key in row_of),
        relevant=rows[:, :2].astype(np.intp),
        gains=rows[:, 2].astype(np.float64),
        self_rows=np.array(own, dtype=np.intp),
        n_left_out=len(queries) - len(judged),
        ids=tuple(row_of),
        files=(home / _CORPUS, home / _QUERIES, qrels),
        is_test=split == TEST,
    )


def _read_texts(path: Path) -> dict[str, str]:
    """Texts by id; that of a document is its title and its text, joined by a space."""
    texts: dict[str, str] = {}
    with open_table(path) as table:
        for number, (key, text, title) in table.rows("_id", "text", optional=["title"]):
            if isinstance(key, bool) or not isinstance(key, (str, int)) or key == "":
                raise FileFormatError(f"{table.place(number)}: _id is {key!r:.80}, not a text.")
            if str(key) in texts:
                raise FileFormatError(f"{table.place(number)}: _id {key!r:.80} occurs twice.")
            title = table.text(number, "title", title or "")
            texts[str(key)] = f"{title} {table.text(number, 'text', text)}".strip()
    return texts


def _read_qrels(path: Path, queries: Container[str], documents: Container[str]) -> dict[str, dict[str, int]]:
    """Grades by the ids of queries and documents; 0 and less is irrelevant."""
    lines = read_lines(path)
    if lines[:1] != ["\t".join(_HEADER)]:
        raise FileFormatError(
            f"{path}, line 1: expected the columns {', '.join(_HEADER)}, between tabs, found {lines[0]!r:.80}."
        )
    judged: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines[1:], start=2):
        query, document, grade = split_fields(path, number, line, 3)[:3]
        for key, ids, file in ((query, queries, _QUERIES), (document, documents, _CORPUS)):
            if key not in ids:
                raise FileFormatError(f"{path}, line {number}: {file} has no id {key!r:.80}.")
        if document in judged.setdefault(query, {}):
            raise FileFormatError(f"{path}, line {number}: {query!r:.80} and {document!r:.80} are judged twice.")
        try:
            judged[query][document] = int(grade)
        except ValueError:
            raise FileFormatError(
                f"{path}, line {number}: expected a whole number as score, found {grade!r:.80}."
            ) from None
    return judged


# -- collections of SMART ----------------------------------------------------------------------------------------------
# A record begins with ".I NUMBER"; ".T" begins its title and ".W" its text, other fields are no text. Judgements name a
# query by its position in the file: the numbers of the queries of Cranfield have gaps.

_SMART_NAMES = {"CRAN": "Cranfield", "CISI": "CISI", "MED": "MED", "CACM": "CACM"}
_SMART_DOCUMENTS = re.compile(r"(?P<name>.+)\.all(\.\d+)?", re.IGNORECASE)
_SMART_FIELD = re.compile(r"\.([A-Z])\s*")
_SMART_GRADES = range(1, 5)  # of Cranfield: 1 is a complete answer, 4 of minimum interest; 5 and -1 are of none


def _smart_files(home: Path, files: Sequence[str]) -> Iterator[tuple[str, tuple[Path, Path, Path]]]:
    """Name of each collection in a folder, and its files of documents, queries and judgements."""
    by_lower = {file.lower(): file for file in files}
    for file in sorted(files):
        if match := _SMART_DOCUMENTS.fullmatch(file):
            stem = match["name"].lower()
            queries = by_lower.get(f"{stem}.qry")
            judged = by_lower.get(f"{stem}.rel") or by_lower.get(f"{stem}qrel")
            if queries and judged:
                yield _SMART_NAMES.get(stem.upper(), match["name"]), (home / file, home / queries, home / judged)


def _read_smart(name: str, documents_file: Path, queries_file: Path, judged_file: Path) -> RetrievalSet:
    documents = dict(_smart_texts(documents_file))
    queries = [text for _, text in _smart_texts(queries_file)]
    judged = _smart_judgments(judged_file, len(queries), documents)
    row_of = {key: row for row, key in enumerate(sorted(documents, reverse=True))}  # as of BEIR
    relevant = [
        (row, row_of[document])
        for row, answers in enumerate(judged.values())
        for document, is_relevant in answers.items()
        if is_relevant
    ]
    if not relevant:
        raise FileFormatError(f"{judged_file} calls no document relevant to any of its {len(judged)} queries.")
    return RetrievalSet(
        name=name,
        queries=tuple(queries[position - 1] for position in judged),
        documents=tuple(documents[key] for key in row_of),
        relevant=np.array(relevant, dtype=np.intp),
        gains=np.ones(len(relevant)),
        self_rows=np.full(len(judged), -1, dtype=np.intp),
        n_left_out=len(queries) - len(judged),
        ids=tuple(row_of),
        files=(documents_file, queries_file, judged_file),
        is_test=True,
        is_graded=False,
    )


def _smart_texts(path: Path) -> list[tuple[str, str]]:
    """Number and text of each record: its title and its text, unless the text begins with the title."""
    records: list[tuple[str, dict[str, list[str]]]] = []
    field: list[str] = []
    for line_number, line in enumerate(_lines(path), start=1):
        if line.startswith(".I "):
            records.append((line[3:].strip(), {}))
            field = []  # what precedes the first field is no text
        elif match := _SMART_FIELD.fullmatch(line):
            if not records:
                raise FileFormatError(f"{path}, line {line_number}: expected .I and a number, found {line!r:.80}.")
            field = records[-1][1].setdefault(match[1], [])
        else:
            field.append(line)
    texts = []
    for number, fields in records:
        title, text = (" ".join(" ".join(fields.get(name, ())).split()) for name in "TW")
        texts.append((number, text if text.startswith(title) else f"{title} {text}".strip()))
    if len({number for number, _ in texts}) < len(texts) or not texts:
        raise FileFormatError(f"{path}: expected records that begin with .I and different numbers.")
    return texts


def _smart_judgments(path: Path, n_queries: int, documents: Container[str]) -> dict[int, dict[str, bool]]:
    """Which documents answer the query at a position, from 1."""
    rows = [(number, line.split()) for number, line in enumerate(_lines(path), start=1) if line.strip()]
    # "query document grade"; in MED "query 0 document 1"; in CISI and CACM "query document 0 0", all relevant
    has_zeros = all(len(fields) == 4 and fields[1] == "0" for _, fields in rows)
    judged: dict[int, dict[str, bool]] = {}
    for number, fields in rows:
        try:
            if has_zeros:
                position, document, is_relevant = int(fields[0]), str(int(fields[2])), int(fields[3]) > 0
            elif len(fields) == 3:
                position, document = int(fields[0]), str(int(fields[1]))
                is_relevant = int(fields[2]) in _SMART_GRADES
            else:
                position, document, zeros = int(fields[0]), str(int(fields[1])), fields[2:]
                is_relevant = len(zeros) == 2
                if not is_relevant or any(map(float, zeros)):
                    raise ValueError
        except (ValueError, IndexError):
            raise FileFormatError(
                f"{path}, line {number}: expected a query, a document and a grade, found {' '.join(fields)!r:.80}."
            ) from None
        if not 1 <= position <= n_queries:
            raise FileFormatError(f"{path}, line {number}: there is no query {position}; there are {n_queries:,}.")
        if document not in documents:
            raise FileFormatError(f"{path}, line {number}: there is no document {document}.")
        answers = judged.setdefault(position, {})
        answers[document] = answers.get(document, False) or is_relevant
    return judged


def _lines(path: Path) -> list[str]:
    try:
        lines = read_lines(path)
    except FileFormatError:
        lines = read_lines(path, "latin-1")
    return [line.rstrip("\r") for line in lines]
