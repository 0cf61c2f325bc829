"""Compare two results task by task: which is better, and where the difference may be chance.

`compare_results` takes two results and goes through the tasks that both have, after `check_comparable` has seen that
data and protocol are the same. `_compare` tests each task by resampling its items, Spearman also by Williams's test;
the p-values are then corrected for the number of tasks, and `_averages` tests the mean over tasks of a kind. A file of
MTEB has no items: then a task has no interval, and `compare_over_tasks` resamples the tasks themselves. A `Difference`
is one line of the answer, with its verdict; a `Comparison` has them all, and writes JSON, CSV and LaTeX.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, InputTypeError, option, wrong_value
from isosent.evaluation.mteb import BENCHMARK
from isosent.evaluation.result import (
    EvaluationResult,
    TaskResult,
    fit_notes,
    labels_of,
    seen_notes,
    task_seed,
    texts_in_corpus,
)
from isosent.evaluation.sizes import MARK, deviation_note
from isosent.io.json import without_nan
from isosent.numeric.similarity import pearson
from isosent.numeric.statistics import (
    LEVEL,
    N_RESAMPLES,
    bootstrap_differences,
    bootstrap_p_value,
    central_interval,
    holm,
    mcnemar_exact,
    smallest_p_value,
    williams_test,
)
from isosent.pages.progress import Progress, counted
from isosent.pages.tables import csv_table, latex_table

ResultPair = tuple[EvaluationResult, EvaluationResult]
Names = tuple[str, str]
CORRELATIONS = ("spearman", "pearson")
BETTER, WORSE, CANNOT_TELL, SAME, NO_INTERVAL = "better", "worse", "cannot tell", "the same", "no interval"
BOOTSTRAP, WILLIAMS, MCNEMAR, OVER_TASKS = "paired bootstrap", "Williams", "exact McNemar", "bootstrap over tasks"
NO_TEST = "none"
ALL_TASKS = "all tasks"
_MOST_NAMES = 6
LEAST_TASKS = 10  # to be resampled; of fewer, an interval is too short


@dataclass(frozen=True, slots=True)
class Difference:
    """The second result minus the first, on a task or on average over tasks."""

    metric: str
    n_items: int  # pairs, texts or queries
    first: float  # scores; NaN if undefined
    second: float
    difference: float  # `second` minus `first`
    interval: tuple[float, float]  # percentile interval of the difference by the paired bootstrap
    # What the p-value comes from: the paired bootstrap (of items, or of tasks), Williams's test, or the exact McNemar
    # test; "none" without items
    test: str
    p_value: float  # two-sided p-value of no difference; NaN if a score is undefined
    p_corrected: float  # the same by Holm's correction over all compared tasks; NaN for an average, a separate test
    # By `p_corrected`, of an average by `p_value`: "better" or "worse" (the second than the first) or "cannot tell";
    # "the same" if no draw of items gives a difference; "no interval" without items
    verdict: str
    # For Spearman, in addition to the p-value that decides: Williams's test of the ranks. Ranks do not meet its
    # assumptions, so it finds differences somewhat too often. NaN for other metrics
    p_williams_on_ranks: float = float("nan")
    is_comparable: bool = True  # whether both scores compare with published ones; they do with one another
    is_bound: bool = False  # whether no draw is against the sign of the difference: then p-values are upper bounds

    @property
    def is_one_sided(self) -> bool:
        """Whether the interval is on one side of zero; Williams's test also rejects where a few items decide."""
        return self.interval[0] > 0 or self.interval[1] < 0

    @property
    def mark(self) -> str:
        """What follows the name of the task in tables: a dagger if its scores compare with no others."""
        return "" if self.is_comparable else f" {MARK}"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two results."""

    name: str
    model: Mapping[str, Any]
    fitting: Mapping[str, Any]
    only: tuple[str, ...]  # tasks that the other one does not have


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results side by side."""

    first: Side
    second: Side
    tasks: Mapping[str, Difference]
    # By kind of task and metric, such as "transfer, accuracy", if several tasks have both: the difference of the
    # unweighted means. Where items are missing, also over "all tasks", if there are ten
    averages: Mapping[str, Difference]
    notes: tuple[str, ...]  # what a reader should know before believing the verdicts
    level: float  # of the intervals; a verdict needs one on a side of zero, and a p-value below one minus it
    n_resamples: int
    seed: int

    def __str__(self) -> str:
        """Return one line per task or average: both scores, their difference with its interval, and the verdict."""
        lines = [f"A: {self.first.name}, B: {self.second.name}"]
        for name, each in self._rows():
            low, high = each.interval
            interval = "" if math.isnan(low) else f" [{low:+.4f}, {high:+.4f}]"
            scores = f"{each.first:.4f} and {each.second:.4f}, difference {each.difference:+.4f}{interval}"
            lines.append(f"{name}{each.mark}, {each.metric}: {scores}, B is: {each.verdict}")
        return "\n".join([*lines, *self.deviation_notes])

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values; what is undefined is None."""
        return without_nan(asdict(self))

    def to_csv(self) -> str:
        """Return every difference as CSV: one row per task or average."""
        columns = ("task", "metric", "items", "first", "second", "difference", "lower", "upper")
        rows = []
        for name, each in self._rows():
            numbers = (each.first, each.second, each.difference, *each.interval, each.p_value, each.p_corrected)
            cells = ["" if math.isnan(number) else repr(float(number)) for number in numbers]
            comparable = "yes" if each.is_comparable else "no"
            start = (name, each.metric, str(each.n_items))
            bound = "yes" if each.is_bound else "no"
            rows.append((*start, *cells[:5], each.test, *cells[5:], each.verdict, comparable, bound))
        return csv_table((*columns, "test", "p_value", "p_corrected", "verdict", "comparable", "p_is_bound"), rows)

    def to_latex(self) -> str:
        """Return the differences x100 as a LaTeX table for booktabs."""
        rows = []
        for name, each in self._rows():
            scores = ("" if math.isnan(score) else f"{100 * score:.2f}" for score in (each.first, each.second))
            signed = ["" if math.isnan(end) else f"{100 * end:+.2f}" for end in (each.difference, *each.interval)]
            interval = " to ".join(signed[1:]) if signed[1] else ""
            rows.append([name + each.mark, *scores, signed[0], interval, each.verdict])
        names = labels_of((self.first, self.second))
        if names[0] == names[1]:
            names = [f"{name} ({side.name})" for name, side in zip(names, (self.first, self.second), strict=True)]
        caption = " ".join([f"A: {names[0]}, B: {names[1]}; x100.", *self._protocol_notes(), *self.deviation_notes])
        return latex_table(
            ["task", "A", "B", "B - A", f"{100 * self.level:g}% interval", "B is"], rows, caption=caption
        )

    @property
    def deviation_notes(self) -> list[str]:
        """Those notes that say why a task is not comparable."""
        return [note for note in self.notes if note.startswith(MARK)]

    def _protocol_notes(self) -> Iterator[str]:
        """What was fitted on, how differences were tested, and what the intervals are."""
        yield from fit_notes((self.first.fitting, self.second.fitting))
        tests = list(dict.fromkeys(each.test for _, each in self._rows() if each.test != NO_TEST))
        if not tests:
            return
        n_tested = sum(task.test != NO_TEST for task in self.tasks.values())
        corrected = f", tasks corrected for {n_tested} tests (Holm)" if n_tested > 1 else ""
        average = ", averages not corrected" if self.averages else ""
        yield f"Tests: {', '.join(tests)}; p < {1 - self.level:g}{corrected}{average}."
        yield f"Intervals: paired percentile bootstrap, {self.n_resamples:,} resamples."

    def _rows(self) -> Iterator[tuple[str, Difference]]:
        yield from self.tasks.items()
        for alike, each in self.averages.items():
            yield f"average, {alike}", each


def compare_results(
    first: EvaluationResult,
    second: EvaluationResult,
    *,
    names: tuple[str, str] = ("the first", "the second"),
    tasks: Sequence[str] | None = None,
    correlation: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two results item by item, on the tasks that both have.

    Parameters
    ----------
    first, second : EvaluationResult
        Results on the same data by the same protocol. `second` is judged against `first`.
    names : pair of str
        Their names in messages and notes.
    tasks : sequence of str, optional
        Some tasks; by default all that both have.
    correlation : {"spearman", "pearson"}, optional
        How to compare tasks with human scores; by default by the main metric of each.
    level : float, default 0.95
        Level of the intervals, in (0, 1). A verdict needs an interval on one side of zero, and a p-value below one
        minus the level.
    seed : int, default 0
        Seed of all random numbers.
    n_resamples : int, default 2000
        Draws of the bootstrap.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in items.

    Returns
    -------
    Comparison
        Differences, intervals, p-values and verdicts.

    Raises
    ------
    InputError
        If a task is not in both results, or is of different data or protocol.

    Notes
    -----
    A Pearson correlation is tested by Williams's test, an accuracy by the exact McNemar test, a Spearman correlation or
    a mean over queries by the paired bootstrap; every interval is the bootstrap's. Holm's correction over the tasks
    keeps one false verdict among all of them as rare as in a single test. An average is resampled task by task, as if
    no two tasks shared texts.

    A result of MTEB is compared with one of isosent if the data are those of the task of MTEB. Files without items,
    such as those of MTEB, give a difference without an interval. If there are ten tasks, the mean over all of them is
    tested by drawing the tasks again: whether the order would be the same with other tasks of the same kind.

    The tests are about the choice of items. If a classifier was trained for the score, other training data could change
    the score as well, which no test here considers.
    """
    for result in (first, second):
        if not isinstance(result, EvaluationResult):
            raise wrong_value(
                "compare_results", "results", "be EvaluationResult", type(result).__name__, error=InputTypeError
            )
    if correlation is not None:
        _check.one_of("compare_results", "correlation", correlation, CORRELATIONS)
    if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
        raise wrong_value("compare_results", "level", "be between 0 and 1, as 0.95", repr(level))
    _check.whole_number("compare_results", "seed", seed, 0)
    _check.whole_number("compare_results", "n_resamples", n_resamples, 1)
    results = first, second
    shared = shared_tasks(results, names, tasks)
    check_comparable(results, names, shared)
    n_items = {task: first.tasks[task].n_items for task in shared}
    differences, draws = {}, {}
    for task in counted(shared, progress, sum(n_items.values()), n_items.__getitem__):
        differences[task], draws[task] = _compare(
            task,
            first.tasks[task],
            second.tasks[task],
            correlation=correlation,
            level=level,
            seed=seed,
            n_resamples=n_resamples,
        )
    corrected = holm([each.p_value for each in differences.values()])
    differences = {
        task: replace(each, p_corrected=p_value, verdict=_verdict(replace(each, p_value=p_value), level))
        for (task, each), p_value in zip(differences.items(), corrected, strict=True)
    }
    averages = _averages({task: first.tasks[task].kind for task in shared}, differences, draws, level)
    averages |= _over_tasks(results, differences, level=level, seed=seed, n_resamples=n_resamples)
    return Comparison(
        first=_side(names[0], first, second),
        second=_side(names[1], second, first),
        tasks=differences,
        averages=averages,
        notes=tuple(dict.fromkeys(_notes(results, names, differences, level, n_resamples))),
        level=level,
        n_resamples=n_resamples,
        seed=seed,
    )


def shared_tasks(results: ResultPair, names: Names, wanted: Sequence[str] | None) -> list[str]:
    """Find the tasks that two results share."""
    if isinstance(wanted, str):
        raise wrong_value(
            "compare_results",
            "tasks",
            "be a sequence of names",
            "one string",
            f"Pass [{wanted!r}].",
            error=InputTypeError,
        )
    for task in wanted or ():
        for name, result in zip(names, results, strict=True):
            if task not in result.tasks:
                nearest = get_close_matches(task, result.tasks, n=1)
                advice = f" Did you mean {nearest[0]}?" if nearest else ""
                raise InputError(f"{name} has no task {task!r}.{advice} It has: {', '.join(result.tasks)}.")
    first, second = (result.tasks for result in results)
    shared = [task for task in first if task in (second if wanted is None else wanted)]
    if not shared:
        contents = [f"{name} has {', '.join(result.tasks)}" for name, result in zip(names, results, strict=True)]
        raise InputError(f"{names[0]} and {names[1]} have no task in common: {'; '.join(contents)}.")
    return shared


def check_comparable(results: ResultPair, names: Names, tasks: Iterable[str]) -> None:
    """Refuse results with other data or another protocol on some tasks, and name what differs."""
    unlike = []
    for task in tasks:
        first, second = (result.tasks[task] for result in results)
        if BENCHMARK in (first.protocol.get("benchmark"), second.protocol.get("benchmark")):
            differing = list(_unlike_published(task, first, second))
        else:
            differing = [*_unlike_fields(first, second), *_unlike_data(first, second)]
        if differing:
            unlike.append(f"{task}: {', '.join(differing)}")
    if unlike:
        raise InputError(
            f"{names[0]} and {names[1]} are not of the same data by the same protocol: {'; '.join(unlike)}. "
            f"Evaluate again alike, or name the other tasks with {option('tasks')}."
        )


def _unlike_published(name: str, *sides: TaskResult) -> Iterator[str]:
    """How a score of MTEB and another one are no scores of the same task."""
    one, other = (side.mteb(name) for side in sides)
    if one is None or one != other:
        yield f"the task of {BENCHMARK} is {one or 'none'} and {other or 'none'}"


def _unlike_fields(first: TaskResult, second: TaskResult) -> Iterator[str]:
    one, other = (
        without_nan(
            {name: getattr(task, name) for name in ("kind", "metric", "n_items")}
            | {f"protocol {name}": value for name, value in task.protocol.items()}
        )
        for task in (first, second)
    )
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other or one[name] != other[name]:
            yield f"{name} is {one.get(name, 'absent')} and {other.get(name, 'absent')}"


def _unlike_data(first: TaskResult, second: TaskResult) -> list[str]:
    """Files that differ by their content, whatever folder they were read from."""
    unshared = set(first.data.values()) ^ set(second.data.values())
    if files := sorted({name for task in (first, second) for name, sha256 in task.data.items() if sha256 in unshared}):
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        return [f"files differ ({', '.join(files[:3])}{more})"]
    if not (len(first.items.values) and len(second.items.values)):
        return []
    one, other = first.items.gold, second.items.gold
    alike = other is None if one is None else other is not None and np.array_equal(one, other)
    return [] if alike else ["human scores differ"]


def _side(name: str, result: EvaluationResult, other: EvaluationResult) -> Side:
    return Side(name, result.model, result.fitting, tuple(task for task in result.tasks if task not in other.tasks))


def _compare(
    name: str,
    first: TaskResult,
    second: TaskResult,
    *,
    correlation: str | None,
    level: float,
    seed: int,
    n_resamples: int,
) -> tuple[Difference, NDArray[np.float64]]:
    """The difference on a task before its p-value is corrected, and the resampled differences."""
    a, b, gold = first.items.values, second.items.values, first.items.gold
    if not len(a) or len(a) != len(b):
        metric = correlation if correlation in first.scores.keys() & second.scores.keys() else first.metric
        scores, nan = (first.scores[metric], second.scores[metric]), math.nan
        n_items = first.n_items or second.n_items
        bare = Difference(metric, n_items, *scores, scores[1] - scores[0], (nan, nan), NO_TEST, nan, nan, NO_INTERVAL)
        is_comparable = first.is_comparable and second.is_comparable
        return replace(bare, is_comparable=is_comparable), np.full(n_resamples, nan)
    statistics = first.items.statistics(first.metric)
    metric = correlation if correlation in statistics else first.metric
    draws = bootstrap_differences(statistics[metric], a, b, gold, n_resamples=n_resamples, seed=task_seed(seed, name))
    test, p_value, p_on_ranks = BOOTSTRAP, bootstrap_p_value(draws), float("nan")
    if statistics[metric] == "spearman" and gold is not None:
        p_on_ranks = _williams(*map(scipy.stats.rankdata, (a, b, gold)))
    elif statistics[metric] == "pearson" and gold is not None:
        test, p_value = WILLIAMS, _williams(a, b, gold)
    elif np.isin([a, b], [0, 1]).all():
        test, p_value = MCNEMAR, mcnemar_exact(a, b)
    scores = first.scores[metric], second.scores[metric]
    interval = central_interval(draws, level)
    difference = Difference(
        metric, len(a), *scores, scores[1] - scores[0], interval, test, p_value, p_value, CANNOT_TELL, p_on_ranks
    )
    difference = replace(difference, is_comparable=first.is_comparable and second.is_comparable)
    return _marked(difference, n_resamples), draws


def _marked(each: Difference, n_resamples: int) -> Difference:
    """Say of a p-value of resampling that is as small as so many draws can give that it is a bound."""
    by_draws = each.test in (BOOTSTRAP, OVER_TASKS)
    return replace(each, is_bound=by_draws and each.p_value == smallest_p_value(n_resamples))


def _williams(first: NDArray[np.float64], second: NDArray[np.float64], gold: NDArray[np.float64]) -> float:
    return williams_test(pearson(first, gold), pearson(second, gold), pearson(first, second), len(gold))[1]


def listed(names: Sequence[str]) -> str:
    """Some names, for a sentence."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def means_of_tasks(tasks: Mapping[str, TaskResult]) -> list[float]:
    """The main score of each task, the mean over its subsets, which files of MTEB have."""
    subsets: dict[str, list[float]] = {}
    for name, task in tasks.items():
        subsets.setdefault(task.protocol.get("task", name), []).append(task.score)
    return [float(np.mean(scores)) for scores in subsets.values()]


def _over_tasks(results: ResultPair, differences: Mapping[str, Difference], **settings: Any) -> dict[str, Difference]:
    """The mean over all tasks, where items are missing and there are enough tasks to draw them again."""
    scores = [means_of_tasks({task: result.tasks[task] for task in differences}) for result in results]
    is_bare = any(each.test == NO_TEST for each in differences.values())
    return {ALL_TASKS: compare_over_tasks(*scores, **settings)} if is_bare and len(scores[0]) >= LEAST_TASKS else {}


def compare_over_tasks(
    first: Sequence[float], second: Sequence[float], *, level: float = LEVEL, seed: int = 0, n_resamples: int
) -> Difference:
    """Compare the means of two models over tasks, which are drawn again as items are."""
    draws = bootstrap_differences("mean", np.array(first), np.array(second), n_resamples=n_resamples, seed=seed)
    means = float(np.mean(first)), float(np.mean(second))
    interval, p_value = central_interval(draws, level), bootstrap_p_value(draws)
    mean = Difference("mean", len(first), *means, means[1] - means[0], interval, OVER_TASKS, p_value, math.nan, "")
    return _marked(replace(mean, verdict=_verdict(mean, level)), n_resamples)


def _verdict(each: Difference, level: float) -> str:
    if each.test == NO_TEST:
        return NO_INTERVAL
    if each.difference == 0 and each.interval == (0, 0):
        return SAME
    if not each.p_value < 1 - level or not each.is_one_sided or each.difference == 0:
        return CANNOT_TELL
    return BETTER if each.difference > 0 else WORSE


def _averages(
    kinds: Mapping[str, str],
    differences: Mapping[str, Difference],
    draws: Mapping[str, NDArray[np.float64]],
    level: float,
) -> dict[str, Difference]:
    alike: dict[tuple[str, str], list[str]] = {}
    for name, each in differences.items():
        alike.setdefault((kinds[name], each.metric), []).append(name)
    averages = {}
    for (kind, metric), names in alike.items():
        if len(names) == 1:
            continue
        own = [differences[name] for name in names]
        mean_draws = np.mean([draws[name] for name in names], axis=0)
        first, second, difference = (
            float(np.mean([getattr(each, side) for each in own])) for side in ("first", "second", "difference")
        )
        p_value, interval = bootstrap_p_value(mean_draws), central_interval(mean_draws, level)
        mean = Difference(
            metric,
            sum(each.n_items for each in own),
            first,
            second,
            difference,
            interval,
            NO_TEST if any(each.test == NO_TEST for each in own) else BOOTSTRAP,
            p_value,
            math.nan,
            "",
            is_comparable=all(each.is_comparable for each in own),
        )
        averages[f"{kind}, {metric}"] = _marked(replace(mean, verdict=_verdict(mean, level)), len(mean_draws))
    return averages


def _notes(
    results: ResultPair, names: Names, differences: Mapping[str, Difference], level: float, n_resamples: int
) -> Iterator[str]:
    first, second = results
    if (first.model, first.fitting) == (second.model, second.fitting) and all(
        each.verdict == SAME for each in differences.values()
    ):
        yield "Both are the same model with the same settings and scores: there is nothing to compare."
    transductive = [result.fitting["transductive"] for result in results]
    if transductive[0] != transductive[1]:
        yield (
            f"{names[transductive.index(True)]} was fitted on the texts of each task (without labels), "
            f"{names[transductive.index(False)]} was not: that may be part of a difference."
        )
    for name, result in zip(names, results, strict=True):
        in_corpus = {task: counts for task, counts in texts_in_corpus([result]).items() if task in differences}
        yield from seen_notes(name, in_corpus)
    for what, values in (
        ("isosent", [result.environment["versions"].get("isosent") for result in results]),
        ("seed", [result.seed for result in results]),
    ):
        if None not in values and values[0] != values[1]:
            yield f"{names[0]} was made with {what} {values[0]}, {names[1]} with {what} {values[1]}."
    for name, result in zip(names, results, strict=True):
        if result.variants and not any(other.startswith(f"{name}?") for other in names):
            yield (
                f"{name} holds {1 + len(result.variants)} transforms ({', '.join(result.by_transform())}); only the "
                f"first is compared. To compare another: isosent compare '{name}?transform=NAME'. In Python: "
                "EvaluationResult.by_transform."
            )
    for task in differences:
        sides = [result.tasks[task].deviations for result in results]
        yield from dict.fromkeys(deviation_note(task, side) for side in sides if side)
    for name, result in zip(names, results, strict=True):
        if bare := [task for task in differences if not len(result.tasks[task].items.values)]:
            yield (
                f"no interval: {name} has no scores of single items of {listed(bare)}. A file of isosent evaluate -o "
                f"OUT.json has them, one of {BENCHMARK} has not."
            )
    for task in differences:
        revisions = [result.tasks[task].protocol.get("dataset_revision") for result in results]
        if None not in revisions and revisions[0] != revisions[1]:
            yield f"{task}: {names[0]} is of the revision {revisions[0]} of the data, {names[1]} of {revisions[1]}."
    tested = {task: each for task, each in differences.items() if each.test != NO_TEST}
    if undefined := [task for task, each in tested.items() if np.isnan(each.p_value)]:
        yield f"undefined, so that they cannot be compared: {', '.join(undefined)}."
    by_bootstrap = any(each.test == BOOTSTRAP for each in differences.values())
    if by_bootstrap and 2 * len(tested) / (n_resamples + 1) >= 1 - level:
        yield f"{n_resamples} draws are too few for a test by the bootstrap on {len(tested)} tasks. Draw more."
