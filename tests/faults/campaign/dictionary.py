"""What an index should hold and find: a plain dictionary, rows drawn from seeds, and filters written twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DIM = 16
N_TEXTS = 4000
LANGS = ("en", "de", "größe 'x' \"y\"", "")
COLUMNS = ("lang", "year", "price")
_ATOL = {"float32": 3e-7, "float16": 6e-4}  # of a value of a unit vector, half a step of the number type


class RefusedError(Exception):
    """The index must refuse this operation."""


@dataclass(slots=True)
class Row:
    """What a row was made of, and its vector as the index first gave it: later it must have the same bits."""

    text: str | None
    fields: tuple[Any, ...]
    unit: np.ndarray
    stored: np.ndarray | None = None


@dataclass(slots=True)
class Setting:
    """What an index is made with, and the texts, vectors and models of its run."""

    kind: str
    store: str
    ids: str  # numbers, int, str
    rows: str  # texts, vectors, or both
    texts: list[str]
    units: np.ndarray  # (N_TEXTS, DIM) unit vectors of the texts
    model: Any  # that is passed; None for vectors that are used as they are
    weight: np.ndarray  # of the map of raw vectors
    bias: np.ndarray

    def name(self, number: int) -> Any:
        """An id."""
        return f"r{number}" if self.ids == "str" else number

    def drawn(self, seed: int, n_rows: int) -> tuple[list[str] | None, Any, dict[str, list[Any]], list[Row]]:
        """Texts, raw vectors and fields of new rows, and the rows that the index should make of them."""
        rng = random.Random(seed)
        numbers = [rng.randrange(N_TEXTS) for _ in range(n_rows)]
        fields = [_fields(rng) for _ in range(n_rows)]
        texts = [self.texts[number] for number in numbers] if self.rows != "vectors" else None
        vectors = None if self.rows == "texts" else self.vectors(seed, n_rows)
        units = self.units[numbers] if vectors is None else self.mapped(vectors)
        rows = [Row(texts and texts[i], fields[i], units[i]) for i in range(n_rows)]
        columns = {name: [row[place] for row in fields] for place, name in enumerate(COLUMNS)}
        if not n_rows or all(value is None for value in columns["price"]):
            del columns["price"]  # columns that are left out are null
        return texts, vectors, columns, rows

    def vectors(self, seed: int, n_rows: int) -> np.ndarray:
        """Raw vectors, some of them zero, some of them copies."""
        rng = np.random.default_rng(seed)
        vectors = rng.standard_normal((n_rows, DIM)).astype(np.float32) * np.float32(rng.choice([0.5, 1, 100]))
        if n_rows and rng.random() < 0.2:
            vectors[rng.integers(n_rows)] = vectors[0]
        if self.model is None and n_rows and rng.random() < 0.2:
            vectors[rng.integers(n_rows)] = 0
        return vectors

    def mapped(self, vectors: np.ndarray) -> np.ndarray:
        """Unit vectors of raw ones."""
        mapped = vectors.astype(np.float64) @ self.weight + self.bias
        lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
        return mapped / np.where(lengths, lengths, 1)

    def queries(self, seed: int, n_queries: int) -> tuple[Any, np.ndarray]:
        """Queries as the index takes them, and their unit vectors."""
        if self.rows == "texts":
            numbers = np.random.default_rng(seed).integers(N_TEXTS, size=n_queries)
            while not all(self.texts[number].strip() for number in numbers):
                numbers = (numbers + 1) % N_TEXTS
            return [self.texts[number] for number in numbers], self.units[numbers]
        vectors = np.random.default_rng(seed).standard_normal((n_queries, DIM)).astype(np.float32)
        return vectors, self.mapped(vectors)


def _fields(rng: random.Random) -> tuple[Any, ...]:
    return (
        rng.choice((*LANGS, None)),
        rng.choice((None, *range(2000, 2008))),
        rng.choice((None, 0.1, -2.5, rng.random())),
    )


# -- filters ---------------------------------------------------------------------------------------------------------


def condition(rng: random.Random, depth: int = 2) -> list[Any]:
    """A filter, as lists: an operator and what it joins or compares."""
    if depth and rng.random() < 0.5:
        operator = rng.choice(("and", "or", "not"))
        return [operator, *(condition(rng, depth - 1) for _ in range(1 if operator == "not" else 2))]
    column = rng.choice(COLUMNS)
    if rng.random() < 0.15:
        return ["is null", column]
    draw = {"lang": lambda: rng.choice(LANGS), "year": lambda: rng.randrange(1999, 2009)}.get(column, rng.random)
    if rng.random() < 0.3:
        return ["in", column, [draw() for _ in range(rng.randrange(1, 4))]]
    return [rng.choice(("=", "!=", "<", "<=", ">", ">=")), column, draw()]


def written(test: list[Any]) -> str:
    """A filter as its users write it."""
    operator, *parts = test
    if operator in ("and", "or"):
        return f"({written(parts[0])} {operator} {written(parts[1])})"
    if operator == "not":
        return f"not {written(parts[0])}"
    if operator == "is null":
        return f"{parts[0]} is null"
    if operator == "in":
        return f"{parts[0]} in ({', '.join(map(_literal, parts[1]))})"
    return f"{parts[0]} {operator} {_literal(parts[1])}"


def _literal(value: Any) -> str:
    return '"' + value.replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)


def matches(test: list[Any], row: Row) -> bool | None:
    """Whether a row matches; None where SQL says null."""
    operator, *parts = test
    if operator == "not":
        inner = matches(parts[0], row)
        return None if inner is None else not inner
    if operator in ("and", "or"):
        values = [matches(part, row) for part in parts]
        decides = operator == "or"
        return decides if decides in values else None if None in values else not decides
    value = row.fields[COLUMNS.index(parts[0])]
    if operator == "is null":
        return value is None
    if value is None:
        return None
    if operator == "in":
        return value in parts[1]
    other = parts[1]
    if isinstance(value, str):  # in the order of their bytes
        value, other = value.encode(), other.encode()
    results = {"=": value == other, "!=": value != other, "<": value < other, ">": value > other}
    return results[operator] if operator in results else value == other or results[operator[0]]


# -- the dictionary --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Dictionary:
    """The rows of an index by their ids, in their order, and the number that the next row gets."""

    setting: Setting
    rows: dict[Any, Row] = field(default_factory=dict)
    next_number: int = 0

    def copy(self) -> Dictionary:
        return Dictionary(self.setting, dict(self.rows), self.next_number)

    def apply(self, operation: dict[str, Any]) -> Any:
        """Change the rows; returns what the index should return, and raises `RefusedError` where it should refuse."""
        setting, name = self.setting, operation["name"]
        if name == "compact":
            return None
        if name == "remove":
            if setting.kind == "hnsw":
                raise RefusedError
            return sum(self.rows.pop(setting.name(number), None) is not None for number in operation["ids"])
        ids = [setting.name(number) for number in operation["ids"]]
        if name == "create":
            self.rows, self.next_number = {}, 0
        if setting.ids == "numbers":
            ids = list(range(self.next_number, self.next_number + len(ids)))
            self.next_number += len(ids)
        if setting.kind == "hnsw" and any(name in self.rows for name in ids):
            raise RefusedError
        *_, rows = setting.drawn(operation["seed"], len(ids))
        for name, row in zip(ids, rows, strict=True):
            self.rows.pop(name, None)
            self.rows[name] = row
        return None if operation["name"] == "create" else ids

    def difference(self, content: tuple[list[dict[str, Any]], np.ndarray], *, is_exact: bool = True) -> str:
        """How rows and vectors as an index gives them differ from these; "" if they do not."""
        listed, vectors = content
        expected = []
        for name, row in self.rows.items():
            texts = {} if row.text is None else {"text": row.text}
            expected.append({"id": name, **texts, **dict(zip(COLUMNS, row.fields, strict=True))})
        if listed != expected:
            here, there = ({repr(row) for row in rows} for rows in (listed, expected))
            if here == there and len(listed) == len(expected):
                return f"the rows are in the order {_ids(listed)}, not {_ids(expected)}"
            return f"{len(listed)} rows, not {len(expected)}; more {_few(here - there)}; missing {_few(there - here)}"
        if not listed:
            return ""
        rows = list(self.rows.values())
        atol = _ATOL["float32" if self.setting.store == "float32" else "float16"]
        wrong = np.abs(vectors - np.array([row.unit for row in rows])).max(axis=1)
        if (worst := int(wrong.argmax())) >= 0 and not wrong[worst] <= atol:
            return f"the vector of {listed[worst]['id']!r} is off by {wrong[worst]:.2g}"
        for number, row in enumerate(rows):
            if row.stored is None:
                row.stored = vectors[number]
            elif is_exact and row.stored.tobytes() != vectors[number].tobytes():
                return f"the vector of {listed[number]['id']!r} has changed"
        return ""

    def wrong_hits(
        self,
        units: np.ndarray,
        k: int,
        ids: np.ndarray,
        scores: np.ndarray,
        *,
        test: list[Any] | None,
        is_exact: bool,
        atol: float = 5e-6,
    ) -> tuple[str, int, int]:
        """What is wrong with hits, "" if nothing is; the number of the best rows that are among them, and of both."""
        names = [name for name, row in self.rows.items() if row.unit.any() and (test is None or matches(test, row))]
        places = {name: place for place, name in enumerate(names)}
        vectors = np.array([_vector(self.rows[name]) for name in names]).reshape(-1, DIM)
        exact = units @ vectors.T.astype(np.float64)
        n_best = n_found = 0
        for query in range(len(units)):
            n_hits = min(k, len(names)) if units[query].any() else 0
            hits = [name for name in ids[query].tolist() if name not in (-1, None)]
            if len(hits) != n_hits or len(set(hits)) != n_hits:
                return f"query {query} has the {len(hits)} hits {hits[:20]}, of {n_hits} that there are", 0, 0
            if unknown := [name for name in hits if name not in places]:
                return f"query {query} has the hits {unknown[:5]}, which are not there or do not match", 0, 0
            if not n_hits:
                continue
            own = exact[query, [places[name] for name in hits]]
            if (off := np.abs(own - scores[query, :n_hits]).max()) > atol:
                return f"query {query} has scores off by {off:.2g}", 0, 0
            if (np.diff(scores[query, :n_hits]) > 0).any():
                return f"query {query} has scores that are not in order: {scores[query]}", 0, 0
            best = -np.sort(-exact[query])[:n_hits]
            if is_exact and (off := np.abs(best - own).max()) > atol:
                return f"query {query} does not have the nearest rows; scores are off by {off:.2g}", 0, 0
            n_best += n_hits
            n_found += int((own >= best[-1] - atol).sum())
        return "", n_found, n_best


def _vector(row: Row) -> np.ndarray:
    return row.unit if row.stored is None else row.stored


def _ids(rows: list[dict[str, Any]]) -> str:
    return str([row["id"] for row in rows])[:300]


def _few(rows: set[str]) -> str:
    return "none" if not rows else f"{len(rows)}: {', '.join(sorted(rows)[:3])}"
