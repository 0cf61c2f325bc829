"""Operations on an index as plain values: drawing them, doing them, and the process that does some and is killed."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from campaign.dictionary import COLUMNS, DIM, Setting, condition
from campaign.kills import patched

_OBJECTS = ("first", "second", "reader")
_FREQUENCIES = {
    "search": 24, "filter": 14, "hybrid": 8, "more like": 6, "reader": 10, "add": 12, "remove": 8, "compact": 2,
    "reopen": 4, "kill": 3, "two writers": 3, "watch": 2, "refuse": 3, "save": 0.6, "push": 0.4, "create": 0.4,
}  # fmt: skip


def drawn_operation(rng: random.Random, setting: Setting, n_numbers: int) -> dict[str, Any]:
    """Draw an operation: a name, and plain values."""
    name = rng.choices(list(_FREQUENCIES), list(_FREQUENCIES.values()))[0]
    operation: dict[str, Any] = {"name": name, "by": rng.choice(_OBJECTS[:2])}
    match name:
        case "search" | "filter" | "hybrid" | "more like" | "reader":
            operation |= {"seed": rng.randrange(1 << 30), "k": rng.choice((1, 3, 10, 10, 40))}
            operation["by"] = "reader" if name == "reader" else operation["by"]
            if name == "filter" or rng.random() < 0.1:
                operation["where"] = condition(rng)
            if name == "more like":
                operation["ids"] = [rng.randrange(max(1, n_numbers)) for _ in range(3)]
            if name == "reader":
                operation["reopen"] = rng.random() < 0.1
        case "kill":
            operation |= {"change": drawn_change(rng, setting, n_numbers), "place": rng.randrange(110)}
            if rng.random() < 0.3:
                operation |= {"place": None, "after_ms": rng.uniform(0, 60)}
        case "two writers":
            operation |= {
                "change": drawn_change(rng, setting, n_numbers),
                "other": drawn_change(rng, setting, n_numbers),
            }
        case "watch":
            operation |= {"change": drawn_change(rng, setting, n_numbers)}
        case "add" | "remove" | "compact" | "create":
            operation = drawn_change(rng, setting, n_numbers, name) | {"by": rng.choice((*_OBJECTS[:2], "process"))}
        case "refuse":
            operation["what"] = rng.choice(("column", "twice", "ids", "count", "nan", "type"))
    return operation


def drawn_change(rng: random.Random, setting: Setting, n_numbers: int, name: str = "") -> dict[str, Any]:
    """Draw an operation that changes the index."""
    name = name or rng.choice(("add", "add", "remove", "compact"))
    change: dict[str, Any] = {"name": name}
    if name == "compact":
        return change
    n = rng.choice((0, 1, 1, 2, 5, 12, 30))
    n = 1050 if name == "add" and rng.random() < 0.005 else n  # more than is compared row by row: compacts
    span = max(1, n_numbers + (0 if name == "remove" else 40))
    if name == "create":
        n = 1200 if setting.kind == "ivf" else rng.choice((60, 200))
        n = n if setting.store in ("int8", "binary", "product") or rng.random() < 0.7 else rng.choice((0, 1, 15))
    if name == "remove" and rng.random() < 0.03:
        n = span  # all of them
    is_new = name == "create" or setting.kind == "hnsw" or rng.random() < 0.3
    start = 0 if name == "create" else n_numbers
    numbers = range(start, start + n) if is_new and name != "remove" else rng.sample(range(span), min(n, span))
    if setting.kind == "hnsw" and name == "add" and rng.random() < 0.05:
        numbers = rng.sample(range(span), min(n, span))  # to be refused
    change["ids"] = list(numbers)
    if name != "remove":
        change["seed"] = rng.randrange(1 << 30)
    return change


def change_index(index: Any, setting: Setting, change: dict[str, Any]) -> Any:
    """Change an index as an operation says; what it returns, or the name of the error."""
    from isosent.errors import InputError, OutputError

    try:
        match change["name"]:
            case "compact":
                return index.compact()
            case "remove":
                return index.remove([setting.name(number) for number in change["ids"]])
            case "create":
                create_index(setting, change, index.folder)
                return None
        texts, vectors, columns, _ = setting.drawn(change["seed"], len(change["ids"]))
        ids = None if setting.ids == "numbers" else [setting.name(number) for number in change["ids"]]
        return index.add(texts, vectors=vectors, ids=ids, metadata=columns).tolist()
    except OutputError as error:
        if "another process" in str(error):
            return "busy"
        raise
    except InputError:
        return "refused"


def create_index(setting: Setting, change: dict[str, Any], folder: Path) -> Any:
    """Make an index, in place of another."""
    import pyarrow as pa

    from isosent.search import Index

    texts, vectors, columns, rows = setting.drawn(change["seed"], len(change["ids"]))
    columns = {"price": [None] * len(rows)} | columns
    types = dict(zip(COLUMNS, (pa.string(), pa.int64(), pa.float64()), strict=True))
    return Index.create(
        texts,
        setting.model,
        vectors=vectors,
        ids=None if setting.ids == "numbers" else _typed_ids(setting, change["ids"]),
        metadata=pa.table({name: pa.array(columns[name], types[name]) for name in COLUMNS}),
        folder=folder,
        kind=setting.kind,
        store=setting.store,
    )


def _typed_ids(setting: Setting, numbers: list[int]) -> Any:
    import pyarrow as pa

    return pa.array([setting.name(number) for number in numbers], pa.string() if setting.ids == "str" else pa.int64())


def content_of(index: Any) -> tuple[list[dict[str, Any]], np.ndarray]:
    """All rows of an index, and their vectors."""
    import pyarrow as pa

    table = pa.Table.from_batches(index.batches(500)) if len(index) else None
    if table is None:
        return [], np.empty((0, DIM), np.float32)
    lists = table.column("vector").combine_chunks()
    vectors = np.zeros((len(lists), DIM), np.float32)
    vectors[lists.is_valid().to_numpy(zero_copy_only=False)] = lists.flatten().to_numpy().reshape(-1, DIM)
    return table.drop_columns(["vector"]).to_pylist(), vectors


def write(connection: Connection) -> None:
    """The process that changes the index of the driver, and is killed: it keeps one object as long as it lives."""
    from isosent.search import Index

    index, left = None, [-1]

    def die(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    patched(die)
    with suppress(EOFError):
        while True:
            folder, setting, change, place = connection.recv()
            left[0] = -1 if place is None else place + 1
            index = index or Index.open(folder, setting.model)
            result = change_index(index, setting, change)
            left[0] = -1
            if change["name"] == "create":
                index = Index.open(folder, setting.model)
            is_shown = result not in ("busy", "refused")
            connection.send((result, content_of(index) if is_shown else None, index.stats().generation))
