"""Operations at random on an index, against a dictionary; after each, the open and the reopened index are compared.

A run of operations begins with a new index. It is changed by two objects of one process and by another process, which
is killed now and then; objects that did not change it must show what they showed before. A run is a list of plain
values (`drawn_operation`), so that it can be repeated with fewer of them.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from campaign.dictionary import COLUMNS, DIM, N_TEXTS, Dictionary, RefusedError, Setting, matches, written
from campaign.operations import change_index, content_of, create_index, drawn_change, drawn_operation, write
from campaign.outcomes import Outcome
from campaign.processes import Forks, with_forks

A_RUN = 150  # operations
FLOOR = 0.9  # share of the nearest rows that the searches of a run must find; 0.95 is measured when an index is built
LIMIT_S = 60  # of an operation
CUT_S = 60  # while a failing run is cut down


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of index and its number type."""

    name: str
    kind: str
    store: str
    modules: tuple[str, ...] = ("faiss", "lancedb")
    is_quick: bool = True


TARGETS = tuple(
    Target(f"{kind} {store}", kind, store)
    for kind in ("flat", "ivf", "hnsw")
    for store in ("float32", "float16", "int8", "binary", "product")
    if (kind, store) not in (("hnsw", "binary"), ("hnsw", "product"))
)


def model(targets: list[Target], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Do `n_runs` operations: runs of 150 on one target after the other, on all cores."""
    del keep  # a failure is a list of operations
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    # one more than there are cores, because each waits for its writer now and then
    n_drivers = min(len(os.sched_getaffinity(0)) + 1, -(-n_runs // A_RUN))
    reads = []
    for driver in range(n_drivers):
        read, results = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read)
            (home / str(driver)).mkdir()
            os.chdir(home / str(driver))
            os._exit(with_forks(partial(_runs, targets, n_runs, seed, driver, n_drivers, results), write) != 0)
        os.close(results)
        reads.append((process, read, home / str(driver)))
    for process, read, folder in reads:
        with os.fdopen(read, "rb") as outcomes:
            while True:
                try:
                    yield from pickle.load(outcomes)
                except EOFError:
                    break
        _, status = os.waitpid(process, 0)
        if status:
            last = (folder / "operations").read_text() if (folder / "operations").exists() else "nothing"
            yield Outcome("model", "crash", f"seed {seed}: a process ended during the last of {last}", is_failure=True)


def _runs(
    targets: list[Target], n_operations: int, seed: int, first: int, step: int, results: int, forks: Forks
) -> None:
    """Every `step`-th run, and its outcomes as pickled lists."""
    words = _write_words(Path.cwd())
    for number in range(first, -(-n_operations // A_RUN), step):
        target = targets[number % len(targets)]
        n = min(A_RUN, n_operations - number * A_RUN)
        outcomes = _run(target, words, f"{seed} {number}", n, forks)
        content = pickle.dumps(outcomes)
        while content:
            content = content[os.write(results, content) :]


def _run(target: Target, words: tuple[Any, ...], seed: str, n_operations: int, forks: Forks) -> list[Outcome]:
    rng = random.Random(seed)
    ids, rows = rng.choice(("numbers", "int", "str")), rng.choice(("texts", "both", "vectors"))
    is_mapped = rng.random() < 0.5
    setting = _setting(target, ids, rows, words[is_mapped and rows != "vectors"])
    counts: Counter[str] = Counter()
    run = Run(setting, forks, counts)
    problem = run.draw_and_do(rng, n_operations)
    outcomes = [Outcome(target.name, name) for name in counts.elements()]
    if not problem:
        return outcomes
    operations, is_repeated = _cut(setting, forks, run.operations)
    detail = {
        "seed": seed,
        "index": f"{target.name}, ids {ids}, rows {rows}, {'a map' if is_mapped else 'no map'}",
        "problem": problem,
        "operations": [_brief(operation) for operation in operations],
        "cut": f"from {len(run.operations)}" if is_repeated else "not: repeated, it does not fail",
    }
    return [*outcomes, Outcome(target.name, "failure", json.dumps(detail), is_failure=True)]


def _brief(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation as it is printed: many numbers in a row are a range."""
    ids = operation.get("ids", [])
    if len(ids) < 4 or ids != list(range(ids[0], ids[0] + len(ids))):
        return operation
    return operation | {"ids": f"{ids[0]}..{ids[-1]}"}


def _cut(setting: Setting, forks: Forks, operations: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    """The fewest operations, of those tried, that still fail; and whether all of them failed again."""
    stop_s = time.monotonic() + CUT_S

    def fails(some: list[dict[str, Any]]) -> bool:
        return bool(Run(setting, forks, Counter()).do_all(some))

    if not fails(operations):
        return operations, False
    size = len(operations) // 2
    while size and time.monotonic() < stop_s:
        start = 1  # the first makes the index, the last fails
        while start < len(operations) - 1 and time.monotonic() < stop_s:
            fewer = operations[:start] + operations[min(start + size, len(operations) - 1) :]
            if fails(fewer):
                operations = fewer
            else:
                start += size
        size //= 2
    return operations, True


# -- texts, models and settings --------------------------------------------------------------------------------------


def _write_words(home: Path) -> tuple[Any, ...]:
    """Texts with their unit vectors by two models: words alone, and words with a map."""
    import isosent

    rng = np.random.default_rng(0)
    vocabulary = [f"w{number}" for number in range(150)]
    rows = rng.standard_normal((len(vocabulary), DIM)).round(3) + 0.2
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(vocabulary, rows, strict=True)]
    (home / "words.txt").write_text("".join(lines))
    ends = ("", " Größe 서울에서", "\n'\"")
    texts = [
        f"tag{number} {' '.join(rng.choice(vocabulary, rng.integers(1, 6)))}{ends[number % 3]}"
        for number in range(N_TEXTS)
    ]
    for number in range(0, N_TEXTS, 40):
        texts[number] = ("", f"tag{number}", f"tag{number} w1 w2", " ")[number // 40 % 4]  # without a vector, or copies
    plain = isosent.load(f"words:{home}/words.txt")
    mapped = plain.fitted(texts, "whitening")
    eye = np.eye(DIM), np.zeros(DIM)
    maps = [eye if m.linear_map is None else (m.linear_map.weight, m.linear_map.bias) for m in (plain, mapped)]
    return tuple(
        (texts, m.encode(texts).astype(np.float64), m, *weights)
        for m, weights in zip((plain, mapped), maps, strict=True)
    )


def _setting(target: Target, ids: str, rows: str, words: tuple[Any, ...]) -> Setting:
    texts, vectors, model_, weight, bias = words
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if rows == "vectors":
        model_, weight, bias = None, np.eye(DIM), np.zeros(DIM)
    return Setting(
        target.kind, target.store, ids, rows, texts, vectors / np.where(lengths, lengths, 1), model_, weight, bias
    )


# -- a run -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class View:
    """An open index, and what it should show."""

    index: Any
    rows: Dictionary


class ProblemError(Exception):
    """What a run shows that it should not."""


class Run:
    """An index in a folder of its own, the objects that have it open, and what it should hold."""

    def __init__(self, setting: Setting, forks: Forks, counts: Counter[str]) -> None:
        self.setting, self.counts, self._forks = setting, counts, forks
        self.home = Path.cwd() / "run"
        self.folder = self.home / "index"
        self.operations: list[dict[str, Any]] = []
        self.rows = Dictionary(setting)  # of the last commit
        self.views: dict[str, View] = {}
        self._writer: tuple[int, Connection] | None = None
        self._pushed: Dictionary | None = None
        self._found = [0, 0]
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        Path("operations").write_text("")

    def draw_and_do(self, rng: random.Random, n_operations: int) -> str:
        """Draw operations and do them; what went wrong, or ""."""
        first = drawn_change(rng, self.setting, 0, "create") | {"by": "first"}

        def drawn() -> Iterator[dict[str, Any]]:
            yield first
            for _ in range(n_operations - 1):
                yield drawn_operation(rng, self.setting, self.rows.next_number or len(self.rows.rows) + 20)

        return self.do_all(drawn())

    def do_all(self, operations: Any) -> str:
        """Do operations until one shows something wrong; what it is, or ""."""
        try:
            for operation in operations:
                self.operations.append(operation)
                with Path("operations").open("a") as file:  # for a crash
                    file.write(f"{json.dumps(operation)}\n")
                signal.alarm(LIMIT_S)
                self.do(operation)
                signal.alarm(0)
                self.counts[operation["name"]] += 1
            self._compare_folder()
            n_found, n_best = self._found
            if n_best > 1000 and n_found < FLOOR * n_best:
                return f"a recall of {n_found / n_best:.3f} in {n_best} rows"
        except ProblemError as problem:
            return f"operation {len(self.operations) - 1}: {problem}"
        except Exception as error:  # whatever the index raises is a finding
            import traceback

            trace = traceback.format_exc()[-1500:]
            return f"operation {len(self.operations) - 1}: {type(error).__name__}: {error}\n{trace}"
        finally:
            signal.alarm(0)
            self._end_writer()
        return ""

    def do(self, operation: dict[str, Any]) -> None:
        match operation["name"]:
            case "add" | "remove" | "compact" | "create":
                self._change(operation)
            case "search" | "filter" | "more like" | "hybrid" | "reader":
                self._read(operation)
            case "reopen":
                self.views[operation["by"]] = self._opened()
            case "kill":
                self._kill(operation)
            case "two writers":
                self._two_writers(operation)
            case "watch":
                self._watch(operation)
            case "refuse":
                self._refuse(operation)
            case "save":
                self._save()
            case "push":
                self._push()

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _opened(self) -> View:
        from isosent.search import Index

        return View(Index.open(self.folder, self.setting.model), self.rows.copy())

    def _compare(self, index: Any, rows: Dictionary, what: str) -> None:
        """Compare all that an index shows."""
        if len(index) != len(rows.rows):
            raise ProblemError(f"{what}: {len(index)} rows, not {len(rows.rows)}")
        if difference := rows.difference(content_of(index)):
            raise ProblemError(f"{what}: {difference}")
        n_zero = sum(not row.unit.any() for row in rows.rows.values())
        if (stats := index.stats()).n_zero_rows != n_zero or stats.n_rows != len(rows.rows):
            raise ProblemError(f"{what}: {stats}, but {n_zero} rows have no vector")

    def _compare_committed(self, what: str) -> None:
        """Open the folder again, and compare."""
        view = self._opened()
        self._compare(view.index, view.rows, f"{what}, reopened")
        self._search(view, {"seed": len(self.operations), "k": 10}, f"{what}, reopened")

    def _compare_folder(self) -> None:
        """After a commit, nothing is left but what it names."""
        if self.setting.kind != "hnsw":
            self._change({"name": "add", "by": "first", "seed": 1, "ids": [1]})
        self.views["first"].index.compact()
        self._compare_committed("at the end")
        manifest = (self.folder / "manifest.json").read_text()
        named = {*re.findall(r'"name": ?"([^"]+)"', manifest), "manifest.json", "model"}
        if left := [path.name for path in self.folder.iterdir() if path.name not in named]:
            raise ProblemError(f"these files are left: {left}")
        if left := [path.name for path in self.home.iterdir() if path.name.startswith(".")]:
            raise ProblemError(f"these files are left beside it: {left}")

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, operation: dict[str, Any]) -> None:
        by = operation["by"]
        if by not in self.views:
            self.views[by] = self._opened()
        view, what = self.views[by], f"{operation['name']} by {by}"
        match operation["name"]:
            case "more like":
                self._more_like(view, operation, what)
            case "hybrid" if self.setting.rows != "vectors":
                self._hybrid(view, operation, what)
            case _:
                self._search(view, operation, what)
        if by == "reader":
            self._compare(view.index, view.rows, "a reader across commits")
            if operation["reopen"]:
                self.views[by] = self._opened()

    def _search(self, view: View, operation: dict[str, Any], what: str) -> None:
        queries, units = self.setting.queries(operation["seed"], 4)
        test, k = operation.get("where"), operation["k"]
        result = view.index.search(queries, k, where=None if test is None else written(test))
        is_exact = test is not None or (self.setting.kind == "flat" and self.setting.store.startswith("float"))
        self._judge(view, result, units, k, test, what, is_exact=is_exact)

    def _judge(self, view: View, result: Any, units: Any, k: int, test: Any, what: str, *, is_exact: bool) -> None:
        k = min(k, max(1, len(view.rows.rows)))
        problem, n_found, n_best = view.rows.wrong_hits(
            units, k, result.ids, result.scores, test=test, is_exact=is_exact
        )
        if problem:
            raise ProblemError(f"{what}: {problem}")
        if not is_exact:
            self._found[0] += n_found
            self._found[1] += n_best
        self._compare_texts(view, result, what)

    def _compare_texts(self, view: View, result: Any, what: str) -> None:
        table = result.to_arrow()
        for hit in table.to_pylist():
            row = view.rows.rows.get(hit["id"])
            if row is None or (hit.get("text"), *(hit[name] for name in COLUMNS)) != (row.text, *row.fields):
                raise ProblemError(f"{what}: the hit {hit} is {row}")
        if table.num_rows != int(result.n_hits.sum()):
            raise ProblemError(f"{what}: {table.num_rows} rows of {result}")

    def _more_like(self, view: View, operation: dict[str, Any], what: str) -> None:
        from isosent.errors import InputError

        names = [self.setting.name(number) for number in operation["ids"]]
        try:
            result = view.index.more_like(names, operation["k"])
        except InputError:
            if all(name in view.rows.rows for name in names):
                raise
            return
        if missing := [name for name in names if name not in view.rows.rows]:
            raise ProblemError(f"{what}: {missing} are not there, but were found")
        for name, found in zip(names, result.ids.tolist(), strict=True):
            hits = [hit for hit in found if hit not in (-1, None)]
            n_others = sum(row.unit.any() for other, row in view.rows.rows.items() if other != name)
            n_hits = min(operation["k"], n_others) if view.rows.rows[name].unit.any() else 0
            if name in hits or len(hits) != n_hits or any(hit not in view.rows.rows for hit in hits):
                raise ProblemError(f"{what}: {name!r} is like {hits}, of {n_others}")
        self._compare_texts(view, result, what)

    def _hybrid(self, view: View, operation: dict[str, Any], what: str) -> None:
        """A row is found by a word that it alone has; hits are rows of the index, and their scores cosines."""
        test, rng = operation.get("where"), random.Random(operation["seed"])
        rows = {name: row for name, row in view.rows.rows.items() if test is None or matches(test, row)}
        tagged = Counter(row.text.split()[0] for row in rows.values() if row.text and row.text.startswith("tag"))
        unique = [tag for tag, count in sorted(tagged.items()) if count == 1]
        query = " ".join(filter(None, (rng.choice(unique) if unique else "tag0", rng.choice(("", "w3", "w5 größe")))))
        k = max(2, operation["k"])
        result = view.index.search([query], k, hybrid=True, where=None if test is None else written(test))
        hits = [hit for hit in result.ids[0].tolist() if hit not in (-1, None)]
        unit = np.asarray(self.setting.model.encode([query], role="query"), np.float64)
        unit /= np.linalg.norm(unit) or 1
        for hit, score in zip(hits, result.scores[0], strict=False):
            row = rows.get(hit)
            vector = None if row is None else row.unit if row.stored is None else row.stored
            if vector is None or abs(vector @ unit[0] - score) > 5e-6:
                raise ProblemError(
                    f"{what}: {hit!r} with the score {score} does not match {query!r}, or has another score"
                )
        if len(set(hits)) != len(hits):
            raise ProblemError(f"{what}: hits occur twice: {hits}")
        owners = {name for name, row in rows.items() if row.text and query.split()[0] in row.text.split()}
        if unique and " " not in query and not owners & set(hits[:2]):
            raise ProblemError(f"{what}: {owners} with the word {query!r} is not among the first hits {hits[:5]}")
        self._compare_texts(view, result, what)

    # -- changing ----------------------------------------------------------------------------------------------------

    def _expected(self, change: dict[str, Any], rows: Dictionary) -> tuple[Any, Dictionary]:
        """What a change returns, and the rows after it."""
        after = rows.copy()
        try:
            return after.apply(change), after
        except RefusedError:
            return "refused", rows

    def _change(self, operation: dict[str, Any]) -> None:
        if not self.views:  # the first operation
            self.rows.apply(operation)
            self.views["first"] = View(create_index(self.setting, operation, self.folder), self.rows.copy())
            self._compare(self.views["first"].index, self.rows, "created")
            return
        expected, after = self._expected(operation, self.rows)
        by, what = operation["by"], f"{operation['name']} by {operation['by']}"
        if by == "process":
            self._send(operation, None)
            returned, content, _ = self._received()
            if content is not None and (difference := after.difference(content)):
                raise ProblemError(f"{what}: {difference}")
        else:
            view = self.views.get(by) or self._opened()
            returned = change_index(view.index, self.setting, operation)
            if operation["name"] == "create":
                view = View(view.index, view.rows)
            else:  # also one that is refused begins with the last commit
                view.rows = after.copy()
                self._compare(view.index, after, what)
            self.views[by] = view
        if returned != expected:
            raise ProblemError(f"{what}: returned {returned!r:.200}, not {expected!r:.200}")
        self.rows = after
        self._compare_committed(what)

    def _send(self, change: dict[str, Any], place: int | None) -> tuple[int, Connection]:
        if self._writer is None:
            self._writer = self._forks.fork()
        self._writer[1].send((self.folder, self.setting, change, place))
        return self._writer

    def _received(self) -> tuple[Any, Any, int]:
        assert self._writer is not None
        try:
            received: tuple[Any, Any, int] = self._writer[1].recv()
        except EOFError:
            process, self._writer = self._writer[0], None
            raise ProblemError(f"a writer ended with {self._forks.wait(process)}") from None
        return received

    def _end_writer(self) -> int:
        if self._writer is None:
            return 0
        process, connection = self._writer
        self._writer = None
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        connection.close()
        return self._forks.wait(process)

    def _kill(self, operation: dict[str, Any]) -> None:
        """Kill a writer, at an operation on a file or after a time: all of its change is there, or nothing."""
        change, place = operation["change"], operation["place"]
        _, connection = self._send(change, place)
        is_killed = place is None and not connection.poll(operation["after_ms"] / 1000)
        if not is_killed:
            try:
                connection.recv()
                self.counts["killed too late"] += 1
                is_after = True
            except (EOFError, ConnectionResetError):
                is_killed = True
        if is_killed:
            self._end_writer()
            is_after = False
        _, after = self._expected(change, self.rows)
        view = self._opened()
        content = content_of(view.index)
        if not (difference := after.difference(content)):
            self.counts["killed, new"] += is_killed
            self.rows = after
        elif is_after or self.rows.difference(content):
            raise ProblemError(f"killed at {place} of {change['name']}: {difference}; {self.rows.difference(content)}")
        else:
            self.counts["killed, old"] += 1
        self._compare_committed("killed")

    def _two_writers(self, operation: dict[str, Any]) -> None:
        """Two processes at once: one may be refused; what they did has an order."""
        mine, theirs = operation["change"], operation["other"]
        view = self.views.get(operation["by"]) or self._opened()
        self._send(theirs, None)
        my_result = change_index(view.index, self.setting, mine)
        their_result, _, _ = self._received()
        if "busy" in (my_result, their_result):
            self.counts["refused, another writes"] += 1
            again = mine if my_result == "busy" else theirs
            result = change_index(view.index, self.setting, again)
            my_result, their_result = (result, their_result) if again is mine else (my_result, result)
        done = [(mine, my_result)] * (my_result != "busy") + [(theirs, their_result)] * (their_result != "busy")
        problems = []
        for order in (done, done[::-1]):
            rows, returned = self.rows, []
            for change, _ in order:
                result, rows = self._expected(change, rows)
                returned.append(result)
            problem = rows.difference(content_of(self._opened().index))
            if not problem and returned == [result for _, result in order]:
                break
            problems.append(problem or f"returned {returned}, not {[result for _, result in order]}"[:500])
        else:
            raise ProblemError(f"two writers: {problems}")
        self.rows = rows
        self.views.pop(operation["by"], None)  # which of the two states it shows depends on the order
        self._compare_committed("two writers")
        self.views.setdefault("first", self._opened())

    def _watch(self, operation: dict[str, Any]) -> None:
        """Open the index again and again while it is changed: what is there before, or after."""
        expected, after = self._expected(operation["change"], self.rows)
        _, connection = self._send(operation["change"], None)
        is_after = False
        while not connection.poll(0.002):
            content = content_of(self._opened().index)
            if not is_after and not self.rows.difference(content):
                continue
            if difference := after.difference(content):
                raise ProblemError(f"while {operation['change']['name']} goes on: {difference}")
            is_after = True
        returned, _, _ = self._received()
        if returned != expected:
            raise ProblemError(f"watched, it returned {returned!r:.200}, not {expected!r:.200}")
        self.rows = after
        self._compare_committed("watched")

    def _refuse(self, operation: dict[str, Any]) -> None:
        """Rows that do not fit are refused, and nothing is changed."""
        from isosent.errors import InputError

        setting = self.setting
        vectors = None if setting.rows == "texts" else np.ones((2, DIM), np.float32)
        texts = None if setting.rows == "vectors" else ["w1", "w2"]
        ids: Any = None if setting.ids == "numbers" else [setting.name(number) for number in (1, 2)]
        metadata: dict[str, Any] = {}
        match operation["what"]:
            case "column":
                metadata = {"unknown": [1, 2]}
            case "twice":
                ids = ["r1", "r1"] if setting.ids == "str" else [1, 1]
            case "ids":
                ids = [1, 2] if setting.ids == "str" else ["a", "b"]
            case "count":
                metadata = {"year": [1]}
            case "type":
                metadata = {"year": ["a", "b"]}
            case "nan":
                texts, vectors = None, np.full((2, DIM), np.nan, np.float32)
        view = self.views["first"] if "first" in self.views else self._opened()
        try:
            view.index.add(texts, vectors=vectors, ids=ids, metadata=metadata)
        except InputError:
            pass
        else:
            raise ProblemError(f"rows with a wrong {operation['what']} were added")
        self._compare_committed(f"after a refusal ({operation['what']})")
        self.views["first"] = self._opened()

    # -- copies ------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        from isosent.search import Index

        view = next(iter(self.views.values()))
        view.index.save(self.home / "saved")
        self._compare(Index.open(self.home / "saved", self.setting.model), self.rows, "saved")

    def _push(self) -> None:
        """Push to a local LanceDB: its table holds the rows of the object that pushes, and `pull` gives them back."""
        from isosent.search.stores.database import pull, push

        view = self._opened()
        if not view.rows.rows:
            return
        url = f"lance:{self.home / 'lance'}"
        n_written, n_deleted = push(view.index, url)
        before = {} if self._pushed is None else self._pushed.rows
        expected = sum(before.get(name) is not row for name, row in view.rows.rows.items())
        gone = sum(name not in view.rows.rows for name in before)
        if n_written > expected or n_deleted != gone:
            raise ProblemError(f"pushed {n_written} and deleted {n_deleted} rows, not {expected} and {gone}")
        self._pushed = view.rows
        pulled = pull(url, self.home / "pulled", model=self.setting.model)
        rows, vectors = content_of(pulled)
        places = {row["id"]: place for place, row in enumerate(rows)}
        if places.keys() != view.rows.rows.keys():
            raise ProblemError(f"pulled {len(places)} rows, not {len(view.rows.rows)}")
        order = [places[name] for name in view.rows.rows]
        columns = ("id", "text", *COLUMNS) if self.setting.rows != "vectors" else ("id", *COLUMNS)
        listed = [{name: rows[place][name] for name in columns} for place in order]
        if difference := view.rows.difference((listed, vectors[order]), is_exact=False):
            raise ProblemError(f"pulled: {difference}")
