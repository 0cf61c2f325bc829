"""Semantic textual similarity: correlation of the cosine with human scores, on the STS sets and on tables of pairs.

`read_sts` finds the original files below a folder (`_find`) and gives an `STSSet` each; `sts_task` makes a `Task` of
one. `score_task` takes the cosine of each pair and correlates it with the human scores in each aggregation
(`aggregate`): all pairs at once, or the mean over subsets, plain or weighted. `pairs_task` does the same for a table of
the user's pairs, which `read_scored_pairs` reads; training uses that reader too, and `read_paraphrases` for pairs
without scores.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.sizes import DEV, TEST, WHOLE, deviations, warn_of_repetition
from isosent.evaluation.task import Task, TaskEncoder, task_names
from isosent.io.bounds import folders_below, read_lines, split_fields
from isosent.io.number_lists import SAMPLED_ROWS
from isosent.io.pairs import (
    NO_SCORE,
    PARAPHRASES,
    SCORED_GROUPS,
    SICK_FILE,
    SICK_FILES,
    ScoredPairs,
    open_pairs,
    read_pairs,
    read_sick,
    read_stsb,
    sick_paths,
)
from isosent.io.tables import table_name
from isosent.io.texts import refuse_vectors
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine, pearson, spearman

YEAR_SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "OnWN", "headlines"),
    "STS14": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
TASKS = (*YEAR_SUBSETS, "STSB", "SICKR")
SICKR_PARTS = ("full", "test")
METRICS: Mapping[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "spearman": spearman,
    "pearson": pearson,
}
# "all": one correlation over all pairs (Sentence-BERT, SimCSE, MTEB); "mean": mean over the subsets (WhiteningBERT);
# "wmean": the same, weighted by pairs (BERT-whitening)
AGGREGATIONS = ("all", "mean", "wmean")
_ROUNDING = 1e-12

Lookup = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class STSSet:
    """One STS set."""

    name: str  # one of `TASKS`
    subsets: tuple[ScoredPairs, ...]  # the pairs that are evaluated
    # All sentences of scored pairs, those of parts that are not evaluated included, such as train and dev of STS-B
    target_texts: tuple[str, ...]
    files: tuple[Path, ...] = ()
    missing_subsets: tuple[str, ...] = ()  # subsets of the year without a file
    n_pairs_by_part: Mapping[str, int] | None = None  # of the evaluated parts, where these are no subsets

    @property
    def texts(self) -> tuple[str, ...]:
        """All sentences of the evaluated pairs, as often as they occur."""
        return _sentences(self.subsets)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Pairs of each part."""
        return self.n_pairs_by_part or {subset.name: len(subset.scores) for subset in self.subsets}

    @property
    def deviations(self) -> tuple[str, ...]:
        """How it differs from the known set of its name, if it does."""
        return deviations("sts", self.name, self.sizes, self.texts)


@dataclass(frozen=True, slots=True, eq=False)
class STSScores:
    """Scores of one set, in every aggregation."""

    n_pairs: int
    n_zero_rows: int  # sentences without a vector; their cosine counts as 0
    spearman: Mapping[str, float]  # by aggregation; NaN if undefined
    pearson: Mapping[str, float]
    subsets: Mapping[str, Mapping[str, float]]  # n_pairs, spearman and pearson of every subset
    cosines: NDArray[np.float64]  # of shape (n_pairs,)


def sts_tasks(folder: str | os.PathLike[str], names: Sequence[str] | None = None, *, sickr: str = "full") -> list[Task]:
    """Read STS sets; all that the folder holds if no name is given."""
    return [sts_task(sts_set, sickr=sickr) for sts_set in read_sts(folder, tasks=names, sickr=sickr)]


def sts_task(sts_set: STSSet, *, sickr: str = "full") -> Task:
    """Make a task of an STS set."""
    protocol: dict[str, Any] = {"similarity": "cosine", "aggregation": "all"}
    if sts_set.name == "SICKR":
        protocol["sickr"] = sickr
    if sts_set.missing_subsets:
        protocol["missing_subsets"] = list(sts_set.missing_subsets)
    return Task(
        name=sts_set.name,
        kind="sts",
        texts={"text": sts_set.texts},
        target_texts=sts_set.target_texts,
        sizes=sts_set.sizes,
        items=[pair for subset in sts_set.subsets for pair in zip(subset.first, subset.second, strict=True)],
        score=partial(_measure, sts_set),
        protocol=protocol,
        files=sts_set.files,
    )


def _measure(sts_set: STSSet, encode: TaskEncoder, seed: int) -> Measurement:
    scores = score_task(sts_set, encode)
    by_name = {
        metric if how == "all" else f"{metric}_{how}": getattr(scores, metric)[how]
        for metric in METRICS
        for how in AGGREGATIONS
    }
    gold = np.concatenate([subset.scores for subset in sts_set.subsets])
    return Measurement("spearman", by_name, Items(scores.cosines, gold), {"subsets": scores.subsets})


def score_task(sts_set: STSSet, encode: Lookup) -> STSScores:
    """Score the vectors that `encode` looks up for texts."""
    cosines, n_zero_rows = [], 0
    for subset in sts_set.subsets:
        first, second = encode(subset.first), encode(subset.second)
        cosines.append(pair_scores(first, second))
        n_zero_rows += int((~nonzero_rows(first)).sum() + (~nonzero_rows(second)).sum())
    if flat := [subset.name for subset, scores in zip(sts_set.subsets, cosines, strict=True) if np.ptp(scores) == 0]:
        warnings.warn(
            f"{sts_set.name}: every cosine of {', '.join(flat)} is the same; its correlation is undefined.",
            EvaluationWarning,
            stacklevel=4,
        )
    by_metric = {metric: aggregate(correlate, sts_set.subsets, cosines) for metric, correlate in METRICS.items()}
    return STSScores(
        n_pairs=sum(map(len, cosines)),
        n_zero_rows=n_zero_rows,
        spearman=by_metric["spearman"],
        pearson=by_metric["pearson"],
        subsets={
            subset.name: {
                "n_pairs": len(scores),
                **{metric: correlate(scores, subset.scores) for metric, correlate in METRICS.items()},
            }
            for subset, scores in zip(sts_set.subsets, cosines, strict=True)
        },
        cosines=np.concatenate(cosines),
    )


def pair_scores(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each pair; all the same if only rounding separates them, because it must not make a ranking."""
    cosines = pairwise_cosine(first, second)
    return cosines if np.ptp(cosines) > _ROUNDING else np.full_like(cosines, cosines[0])


def aggregate(
    correlate: Callable[[NDArray[np.float64], NDArray[np.float64]], float],
    subsets: Sequence[ScoredPairs],
    cosines: Sequence[NDArray[np.float64]],
) -> dict[str, float]:
    """Correlate the cosines of a task with its human scores, in each of `AGGREGATIONS`."""
    each = [correlate(scores, subset.scores) for subset, scores in zip(subsets, cosines, strict=True)]
    return {
        "all": correlate(np.concatenate(cosines), np.concatenate([subset.scores for subset in subsets])),
        "mean": float(np.mean(each)),
        "wmean": float(np.average(each, weights=[len(scores) for scores in cosines])),
    }


# -- the files of the STS sets -----------------------------------------------------------------------------------------

_PREFIXES = ("STS", "STS2016")
_INPUT_NAME = re.compile(r"STS(?:2016)?\.input\.(.+)\.txt")
_STSB_FILES = ("sts-train.csv", "sts-dev.csv", "sts-test.csv")


def read_sts(
    folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None, sickr: str = "full"
) -> tuple[STSSet, ...]:
    """Find and read STS sets in their original format, anywhere below a folder."""
    root = _check.input_folder(folder).resolve()
    _check.one_of("read_sts", "sickr", sickr, SICKR_PARTS)
    wanted = None if tasks is None else task_names(tasks, TASKS)
    places = _find(root, TASKS if wanted is None else wanted)
    if not places:
        raise TaskNotFoundError(
            f"{root} holds no STS files. Known names: STS.input.NAME.txt with STS.gs.NAME.txt, in "
            "a folder that holds a subset of one year only or is named by its year, such as STS12 (train parts are not "
            f"evaluated); {', '.join((*_STSB_FILES, *SICK_FILES.values(), SICK_FILE))}."
        )
    if missing := [task for task in wanted or () if task not in places]:
        raise TaskNotFoundError(f"{root} holds no {', '.join(missing)}; it holds {', '.join(places)}.")
    sets = []
    for task in places if wanted is None else [task for task in TASKS if task in wanted]:
        if task == "STSB":
            sets.append(_read_stsb(places[task]))
        elif task == "SICKR":
            sets.append(_read_sick(places[task], sickr))
        else:
            sets.append(_read_year(task, places[task]))
    return tuple(sets)


def _find(root: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """Folder of each set, in the order of `TASKS`; those that are wanted must lie in one folder."""
    places: dict[str, list[Path]] = {}
    one_file: list[Path] = []  # folders with SICK in one file, which is taken where its three files are not
    for path, files in folders_below(root):
        subsets = {match[1] for name in files if (match := _INPUT_NAME.fullmatch(name))}
        if subsets and (year := _year_of(path, subsets)):
            places.setdefault(year, []).append(path)
        for task, file in (("STSB", _STSB_FILES[-1]), ("SICKR", SICK_FILES[TEST])):
            if file in files:
                places.setdefault(task, []).append(path)
        if SICK_FILE in files and SICK_FILES[TEST] not in files:
            one_file.append(path)
    if one_file:
        places.setdefault("SICKR", one_file)
    for task, paths in places.items():
        if len(paths) > 1 and task in wanted:
            raise InputError(f"{task} is in several folders: {', '.join(map(str, paths))}. Name one of them.")
    return {task: places[task][0] for task in TASKS if task in places}


def _year_of(path: Path, subsets: set[str]) -> str | None:
    """The year of a folder: by a subset of that year alone, else by the folder's name."""
    years = []
    for year, names in YEAR_SUBSETS.items():
        # Three subsets of 2012 also occur in its training part, which is not evaluated
        shared = {"MSRpar", "MSRvid", "SMTeuroparl"}.union(
            *(YEAR_SUBSETS[other] for other in YEAR_SUBSETS if other != year)
        )
        if subsets & (set(names) - shared):
            years.append(year)
    if len(years) > 1:
        raise InputError(f"{path} holds files of {' and '.join(years)}. Give each year a folder.")
    if years:
        return years[0]
    match = re.search(r"(?:20|STS)(1[2-6])", path.name)
    if match and not re.search("train|trial", path.name) and subsets & set(YEAR_SUBSETS[f"STS{match[1]}"]):
        return f"STS{match[1]}"
    return None


def _read_year(task: str, folder: Path) -> STSSet:
    subsets, missing, files = [], [], []
    for name in YEAR_SUBSETS[task]:
        prefix = next((prefix for prefix in _PREFIXES if (folder / f"{prefix}.input.{name}.txt").exists()), None)
        if prefix is None:
            missing.append(name)
            continue
        inputs, scores = folder / f"{prefix}.input.{name}.txt", folder / f"{prefix}.gs.{name}.txt"
        subsets.append(_read_subset(name, inputs, _check.input_file(scores)))
        files += [inputs, scores]
    return STSSet(task, tuple(subsets), _sentences(subsets), tuple(files), tuple(missing))


def _read_subset(name: str, inputs: Path, scores: Path) -> ScoredPairs:
    sentence_lines, score_lines = read_lines(inputs), read_lines(scores)
    if len(sentence_lines) != len(score_lines):
        raise FileFormatError(
            f"{inputs} has {len(sentence_lines)} lines and {scores.name} has {len(score_lines)}. Each pair needs both."
        )
    first, second, values = [], [], []
    for number, (line, score) in enumerate(zip(sentence_lines, score_lines, strict=True), start=1):
        if score.strip():  # a pair without a score was never scored
            one, other = split_fields(inputs, number, line, 2)[:2]
            first.append(one)
            second.append(other)
            try:
                values.append(float(score))
            except ValueError:
                values.append(math.nan)
            if not math.isfinite(values[-1]):
                raise FileFormatError(f"{scores}, line {number}: expected a score, found {score!r:.80}.")
    return ScoredPairs(name, tuple(first), tuple(second), np.array(values, dtype=np.float64)).require_variance(inputs)


def _read_stsb(folder: Path) -> STSSet:
    paths = [folder / name for name in _STSB_FILES if (folder / name).exists()]
    parts = {path.name: read_stsb(path).require_variance(path) for path in paths}
    test = parts[_STSB_FILES[-1]]
    return STSSet("STSB", (test,), _sentences(parts.values()), tuple(paths), n_pairs_by_part={TEST: len(test.scores)})


def stsb_dev_task(stsb: Task) -> Task | None:
    """The development set of the STS benchmark as a separate task; None if its file was not among those of the task."""
    path = next((path for path in stsb.files if path.name == _STSB_FILES[1]), None)
    if path is None:
        return None
    dev = read_stsb(path).require_variance(path)
    return sts_task(STSSet("STSB-dev", (dev,), dev.texts, (path,), n_pairs_by_part={DEV: len(dev.scores)}))


def _read_sick(folder: Path, sickr: str) -> STSSet:
    paths = sick_paths(folder)
    parts = {part: read_sick(path, part) for part, path in paths.items()}
    if sickr == TEST:
        chosen = {TEST: parts[TEST]}
    else:
        for part, name in SICK_FILES.items():
            _check.input_file(paths.get(part, folder / name))
        chosen = parts
    pairs = ScoredPairs(
        "sick",
        tuple(text for part in chosen.values() for text in part.first),
        tuple(text for part in chosen.values() for text in part.second),
        np.concatenate([part.scores for part in chosen.values()]),
    )
    texts = tuple(
        text for part in parts.values() for pair in zip(part.first, part.second, strict=True) for text in pair
    )
    sizes = {name: len(part.scores) for name, part in chosen.items()}
    files = tuple(dict.fromkeys(paths.values()))
    return STSSet("SICKR", (pairs.require_variance(folder),), texts, files, n_pairs_by_part=sizes)


def _sentences(subsets: Iterable[ScoredPairs]) -> tuple[str, ...]:
    return tuple(text for subset in subsets for text in subset.texts)


# -- tables of pairs ---------------------------------------------------------------------------------------------------

_SCORED = (*PARAPHRASES, SCORED_GROUPS[1])


def pairs_task(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> Task:
    """Read a table of pairs with a human score, such as KorSTS or an STS benchmark in another language."""
    pairs = read_scored_pairs(file, columns=columns)
    items = list(zip(pairs.first, pairs.second, strict=True))
    warn_of_repetition(pairs.name, items, stacklevel=4)
    return Task(
        name=pairs.name,
        kind="pairs",
        texts={"text": pairs.texts},
        target_texts=pairs.texts,
        items=items,
        score=partial(_measure_pairs, pairs),
        protocol={"similarity": "cosine", "columns": ",".join(pairs.columns)} | part_protocol(pairs),
        files=[Path(file)],
        sizes={WHOLE: len(pairs.scores)},
    )


def _measure_pairs(pairs: ScoredPairs, encode: TaskEncoder, seed: int) -> Measurement:
    cosines = pair_scores(encode(pairs.first), encode(pairs.second))
    if np.ptp(cosines) == 0:
        warnings.warn(
            f"{pairs.name}: every cosine is the same; its correlation is undefined.", EvaluationWarning, stacklevel=4
        )
    return Measurement(
        "spearman",
        {metric: correlate(cosines, pairs.scores) for metric, correlate in METRICS.items()},
        Items(cosines, pairs.scores),
        {
            "columns": list(pairs.columns),
            "score_range": [float(pairs.scores.min()), float(pairs.scores.max())],
            "n_unscored": pairs.dropped.get(NO_SCORE, 0),
        },
    )


def part_protocol(pairs: ScoredPairs) -> dict[str, str]:
    """Which rows of the file are scored, if these are not all."""
    return {"split": pairs.part} if pairs.part else {}


def read_scored_pairs(
    file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None, part: str = TEST
) -> ScoredPairs:
    """Read pairs with a human score; of a table with several parts the rows of one."""
    with open_pairs(file, columns, _SCORED, part=part) as (table, chosen):
        return read_pairs(table, chosen, name=table_name(file)).require_variance(file)


def read_paraphrases(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> ScoredPairs:
    """Read pairs of texts that mean the same; they have no scores."""
    with open_pairs(file, columns, PARAPHRASES, part=TEST) as (table, chosen):
        names = tuple(chosen.values())
        pairs = [
            (table.text(number, names[0], one), table.text(number, names[1], other))
            for number, (one, other) in table.rows(*names)
        ]
    if not pairs:
        raise FileFormatError(f"{file} holds no pairs.")
    first, second = zip(*pairs, strict=True)
    for name, side in zip(names, (first, second), strict=True):
        refuse_vectors(str(file), name, side[:SAMPLED_ROWS])
    return ScoredPairs(table_name(file), first, second, np.zeros(0), columns=names, part=table.part)
