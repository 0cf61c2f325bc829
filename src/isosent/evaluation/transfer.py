"""Transfer tasks: what a logistic regression learns from frozen vectors, by the protocol of SentEval.

`read_transfer` finds the original files below a folder: `_Format` says for each set which they are and how they are
read. A `TransferSet` has parts of `ScoredTexts`. `_measure` learns by the protocol of the set: with the penalty that
is best on a development set (`probe_by_dev`), in cross-validation (`probe_by_folds`), or by ten folds of the whole,
each with its own choice (`probe_each_fold`). A `Probe` is the regression that was chosen. All folds and penalties are
fitted at once, by `numeric.logistic`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.sizes import DEV, TEST, TRAIN, WHOLE
from isosent.evaluation.task import Task, TaskEncoder, task_names
from isosent.io import bounds
from isosent.io.bounds import folders_below, read_lines, split_fields
from isosent.io.pairs import SICK_FILE, SICK_FILES, open_sick
from isosent.io.system import open_to_read
from isosent.numeric.logistic import LogisticFits, logistic_path
from isosent.numeric.similarity import pearson, spearman

# SentEval's values of C, which are divided by the total variance of the features: on features of variance 1 that is
# SentEval's choice; on others the score does not depend on the unit that vectors are measured in
STRENGTHS = tuple(2.0**t for t in range(-2, 4))
STRENGTHS_ON_TRAIN = tuple(2.0**t for t in range(-1, 6))  # if chosen by folds of train
N_FOLDS = 10
LEAST_OF_A_CLASS = 12  # so that each of ten folds holds some, and each of ten folds of any nine of them
_F1_OF = {"MRPC": "1"}
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ScoredTexts:
    """Texts, or pairs of texts, and their labels."""

    sides: tuple[tuple[str, ...], ...]  # the texts; of pairs the first ones, then the second ones
    labels: NDArray[np.float64]  # index of the label among the classes of the task, or the human score


@dataclass(frozen=True, slots=True, eq=False)
class TransferSet:
    """A set that a classifier is trained on."""

    name: str  # one of `TRANSFER_TASKS`
    texts_by_part: Mapping[str, ScoredTexts]  # "whole" alone; "train" and "test"; or "train", "dev" and "test"
    classes: tuple[str, ...]  # the labels; for human scores the whole numbers of their scale
    is_scored: bool  # whether the labels are human scores
    files: tuple[Path, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of all parts, as often as they occur."""
        return tuple(text for part in self.texts_by_part.values() for side in part.sides for text in side)

    @property
    def learnt_from(self) -> str:
        """The part that the classifier learns from."""
        return WHOLE if WHOLE in self.texts_by_part else TRAIN

    @property
    def scored(self) -> str:
        """The part that is scored."""
        return WHOLE if WHOLE in self.texts_by_part else TEST

    @property
    def strengths(self) -> tuple[float, ...]:
        """The penalties to choose from."""
        return STRENGTHS if WHOLE in self.texts_by_part or DEV in self.texts_by_part else STRENGTHS_ON_TRAIN

    def class_counts(self, part: str) -> dict[str, int]:
        """Count the items of each class."""
        counts = np.bincount(self.texts_by_part[part].labels.astype(np.int64), minlength=len(self.classes))
        return {label: int(count) for label, count in zip(self.classes, counts, strict=True)}


def transfer_tasks(folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> list[Task]:
    """Read transfer tasks; all that the folder holds if no name is given."""
    tasks = []
    for transfer_set in read_transfer(folder, tasks=names):
        if DEV not in transfer_set.texts_by_part:
            for label, count in transfer_set.class_counts(transfer_set.learnt_from).items():
                if 0 < count < LEAST_OF_A_CLASS:
                    raise FileFormatError(
                        f"{transfer_set.name}: every class needs at least {LEAST_OF_A_CLASS} items to be split "
                        f"into folds; {transfer_set.files[0].parent} holds {count} of {label}."
                    )
        tasks.append(
            Task(
                name=transfer_set.name,
                kind="transfer",
                texts={"text": transfer_set.texts},
                target_texts=transfer_set.texts,
                items=list(zip(*transfer_set.texts_by_part[transfer_set.scored].sides, strict=True)),
                score=partial(_measure, transfer_set),
                protocol=_protocol(transfer_set),
                files=transfer_set.files,
                sizes={name: len(part.labels) for name, part in transfer_set.texts_by_part.items()},
            )
        )
    return tasks


def _protocol(transfer_set: TransferSet) -> dict[str, Any]:
    learnt_from = transfer_set.learnt_from
    by_folds = f"{N_FOLDS}-fold cross-validation"
    within = {WHOLE: f"{by_folds} within each nine of {N_FOLDS} folds", TRAIN: f"{by_folds} on train"}
    return {
        "classifier": "logistic regression",
        "features": "u" if len(transfer_set.texts_by_part[learnt_from].sides) == 1 else "|u - v|, u * v",
        "standardised": False,
        "C_times_variance": list(transfer_set.strengths),
        "chosen_by": DEV if DEV in transfer_set.texts_by_part else within[learnt_from],
        **({"distribution_over": list(transfer_set.classes)} if transfer_set.is_scored else {}),
    }


def _measure(transfer_set: TransferSet, encode: TaskEncoder, seed: int) -> Measurement:
    rows, labels = {}, {}
    for name, part in transfer_set.texts_by_part.items():
        u, *v = (encode(side) for side in part.sides)
        rows[name] = np.hstack([np.abs(u - v[0]), u * v[0]]) if v else u
        labels[name] = part.labels
    strengths = transfer_set.strengths
    details: dict[str, Any] = {f"n_{name}": len(part_labels) for name, part_labels in labels.items()}
    if WHOLE in rows:
        predicted, fold, probes = probe_each_fold(rows[WHOLE], labels[WHOLE], strengths=strengths, seed=seed)
        accuracies = fold_means(predicted == labels[WHOLE], fold)
        details |= {"folds": accuracies.tolist(), "folds_std": float(accuracies.std(ddof=1))}
    else:
        if DEV in rows:
            train, dev = (rows[TRAIN], labels[TRAIN]), (rows[DEV], labels[DEV])
            probe = probe_by_dev(*train, *dev, strengths=strengths, is_scored=transfer_set.is_scored)
        else:
            probe = probe_by_folds(rows[TRAIN], labels[TRAIN], strengths=strengths, seed=seed)
        predicted, probes = probe.predict(rows[TEST]), [probe]
    details |= {
        "C": [probe.C for probe in probes],
        "C_times_variance": [probe.strength for probe in probes],
        "dev": float(np.mean([probe.dev for probe in probes])),
    }
    if transfer_set.is_scored:
        return _measure_scores(transfer_set, predicted, details)
    return _measure_labels(transfer_set, predicted, details)


def _measure_labels(
    transfer_set: TransferSet, predicted: NDArray[np.float64], details: Mapping[str, Any]
) -> Measurement:
    gold = transfer_set.texts_by_part[transfer_set.scored].labels
    correct = (predicted == gold).astype(np.float64)
    scores = {"accuracy": float(correct.mean())}
    if transfer_set.name in _F1_OF:
        positive = transfer_set.classes.index(_F1_OF[transfer_set.name])
        is_predicted, is_gold = predicted == positive, gold == positive
        scores["f1"] = float(2 * (is_predicted & is_gold).sum() / (is_predicted.sum() + is_gold.sum()))
    counts = {part: transfer_set.class_counts(part) for part in transfer_set.texts_by_part}
    learnt = counts[transfer_set.learnt_from]
    majority = max(learnt, key=learnt.__getitem__)
    baseline = {"label": majority, "accuracy": counts[transfer_set.scored][majority] / len(gold)}
    return Measurement("accuracy", scores, Items(correct), {**details, "majority": baseline, "class_counts": counts})


def _measure_scores(
    transfer_set: TransferSet, predicted: NDArray[np.float64], details: Mapping[str, Any]
) -> Measurement:
    gold = transfer_set.texts_by_part[TEST].labels
    if np.ptp(predicted) == 0:
        warnings.warn(
            f"{transfer_set.name}: every predicted score is the same; its correlation is undefined.",
            EvaluationWarning,
            stacklevel=4,
        )
    scores = {
        "pearson": pearson(predicted, gold),
        "spearman": spearman(predicted, gold),
        "mse": float(np.mean((predicted - gold) ** 2)),
    }
    return Measurement("pearson", scores, Items(predicted, gold), details)


# -- logistic regression with a chosen penalty -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A logistic regression whose penalty was chosen."""

    fits: LogisticFits  # one fit
    levels: NDArray[np.float64]  # the labels, or whole scores, that its probabilities are of
    is_scored: bool  # whether it predicts scores rather than labels
    strength: float  # the choice: inverse strength of the penalty, in units of the total variance of the rows
    C: float  # the same as scikit-learn means it: `strength` over that variance
    dev: float  # accuracy, or Pearson correlation of scores, on the items that it was chosen by

    def predict(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Predict labels or scores."""
        return _predicted(self.fits.probabilities(rows)[:, :, 0], self.levels, self.is_scored)


def probe_by_dev(
    rows: NDArray[np.floating],
    labels: NDArray[np.float64],
    dev_rows: NDArray[np.floating],
    dev_labels: NDArray[np.float64],
    *,
    strengths: Sequence[float],
    is_scored: bool = False,
) -> Probe:
    """Learn from some rows, with the penalty that is best on others."""
    levels, path = _path(rows, labels, np.ones((len(rows), 1)), strengths)
    probes = []
    for strength, C, fits in path:
        predicted = _predicted(fits.probabilities(dev_rows)[:, :, 0], levels, is_scored)
        dev = pearson(predicted, dev_labels) if is_scored else float(np.mean(predicted == dev_labels))
        probes.append(Probe(fits, levels, is_scored, strength, C, dev))
    return _best(probes)


def probe_by_folds(
    rows: NDArray[np.floating], labels: NDArray[np.float64], *, strengths: Sequence[float], seed: int
) -> Probe:
    """Learn labels, with the penalty that is best in cross-validation."""
    fold = stratified_folds(labels, seed)
    learnt_from = np.column_stack([fold[:, None] != np.arange(N_FOLDS), np.ones(len(rows))])
    levels, path = _path(rows, labels, learnt_from, strengths)
    probes = []
    for strength, C, fits in path:
        held_out = fits.probabilities(rows)[np.arange(len(rows)), :, fold]
        correct = _predicted(held_out, levels, False) == labels
        probes.append(
            Probe(fits.select(N_FOLDS), levels, False, strength, C, float(np.mean(fold_means(correct, fold))))
        )
    return _best(probes)


def probe_each_fold(
    rows: NDArray[np.floating], labels: NDArray[np.float64], *, strengths: Sequence[float], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.intp], list[Probe]]:
    """Predict the labels of every fold by what is learnt from the other nine."""
    fold = stratified_folds(labels, seed)
    predicted, probes = np.empty_like(labels), []
    for number in range(N_FOLDS):
        held_out = fold == number
        probes.append(probe_by_folds(rows[~held_out], labels[~held_out], strengths=strengths, seed=seed))
        predicted[held_out] = probes[-1].predict(rows[held_out])
    return predicted, fold, probes


def stratified_folds(labels: NDArray[np.float64], seed: int) -> NDArray[np.intp]:
    """Deal rows to ten folds at random, each label alike."""
    from sklearn.model_selection import StratifiedKFold

    fold = np.empty(len(labels), dtype=np.intp)
    splits = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(labels, labels)
    for number, (_, held_out) in enumerate(splits):
        fold[held_out] = number
    return fold


def fold_means(values: NDArray[np.generic], fold: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean of the values of each fold, shape (10,)."""
    return np.bincount(fold, values) / np.bincount(fold)


def _path(
    rows: NDArray[np.floating],
    labels: NDArray[np.float64],
    learnt_from: NDArray[np.float64],
    strengths: Sequence[float],
) -> tuple[NDArray[np.float64], Iterator[tuple[float, float, LogisticFits]]]:
    """Levels that occur, and the fits for each strength."""
    # A score between two whole ones is the distribution over both with that expectation (Tai et al. 2015, section
    # 4.2); the regression predicts a distribution, and its expectation is the predicted score
    levels = np.arange(np.floor(labels.min()), np.ceil(labels.max()) + 1)
    targets = np.maximum(1 - np.abs(labels[:, None] - levels), 0)
    occurs = targets.any(axis=0)
    variance = float(rows.var(axis=0, dtype=np.float64).sum())
    squared_length = float(np.vdot(rows, rows)) / len(rows)
    if variance <= np.finfo(np.float32).eps * squared_length:  # rounding noise
        variance = 1.0
    Cs = [strength / variance for strength in strengths]
    return levels[occurs], zip(strengths, Cs, logistic_path(rows, targets[:, occurs], learnt_from, Cs), strict=True)


def _predicted(probabilities: NDArray[np.float64], levels: NDArray[np.float64], is_scored: bool) -> NDArray[np.float64]:
    if not is_scored:
        return levels[probabilities.argmax(axis=1)]
    expected: NDArray[np.float64] = probabilities @ levels
    return expected if np.ptp(expected) > _ROUNDING else np.full_like(expected, expected[0])


def _best(probes: Sequence[Probe]) -> Probe:
    return max(probes, key=lambda probe: -np.inf if np.isnan(probe.dev) else probe.dev)


# -- files -------------------------------------------------------------------------------------------------------------
# Files are split at line feeds, and at tabs without quoting; white space at the ends of a text is dropped. A blank line
# in a file that holds one class is an empty text: CR has four, and with them the 3,775 texts that SentEval counts.

Rows = Iterator[tuple[int, Sequence[str], str]]  # number of the line, texts of the item, its label


def _unlabeled_rows(path: Path, part: str) -> Rows:
    for number, line in enumerate(_lines(path), start=1):
        yield number, [line], ""


def _label_first_rows(path: Path, part: str) -> Rows:
    """``label text`` or, in TREC, ``label:finer text``."""
    for number, line in enumerate(_lines(path), start=1):
        label, _, text = line.partition(" ")
        yield number, [text], label.partition(":")[0]


def _lines(path: Path) -> list[str]:
    try:
        return read_lines(path)
    except FileFormatError:  # a question of TREC is in Latin-1
        return read_lines(path, "latin-1")


def _table_rows(path: Path, part: str, *, texts: Sequence[int], label: int, header: Sequence[str] = ()) -> Rows:
    """Columns of a tab separated file; one with a header has the columns that are named, in that order."""
    lines = read_lines(path)
    if header and (first := lines.pop(0).split("\t"))[: len(header)] != list(header):
        raise FileFormatError(f"{path}, line 1: expected the columns {_names(header)}, found {_names(first)}.")
    for number, line in enumerate(lines, start=2 if header else 1):
        fields = split_fields(path, number, line, max(*texts, label) + 1)
        yield number, [fields[column] for column in texts], fields[label].strip()


def _sick_rows(path: Path, part: str, *, labels: Sequence[str]) -> Rows:
    """Pairs of SICK, by the first column of labels that the file has."""
    with open_sick(path, part) as table:
        columns = ("sentence_A", "sentence_B", next((name for name in labels if name in table.columns), labels[0]))
        for name in columns:
            if name not in table.columns:
                raise FileFormatError(f"{path}, line 1: expected the column {name}, found {_names(table.columns)}.")
        for number, (first, second, label) in table.rows(*columns):
            yield number, [first, second], label.strip()


@dataclass(frozen=True, slots=True)
class _Format:
    """Files of a set and how they are read."""

    files: Mapping[str, tuple[str, ...]]  # names by part; a part has one file, or one for each class
    classes: tuple[str, ...]
    rows: Callable[[Path, str], Rows]  # of a file, and of the part that is wanted of it
    is_scored: bool = False
    # Whether the first line of a file is that of this set: SST2 and SST5 have files of the same names
    begins: Callable[[str], bool] | None = None
    one_file: str | None = None  # name of a file that may hold all parts instead, which `rows` then reads by their name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for names in self.files.values() for name in names)

    def owns(self, path: Path) -> bool:
        if self.begins is None:
            return True
        with TextIOWrapper(open_to_read(path), "utf-8", "replace", "\n") as file:
            return self.begins(file.readline(bounds.LONGEST_LINE))


def _file_by_part(pattern: str, *parts: str) -> dict[str, tuple[str, ...]]:
    return {part: (pattern.format(part),) for part in parts}


_SICK_FILES = {part: (name,) for part, name in SICK_FILES.items()}
_MRPC_HEADER = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
_SST_FILES = _file_by_part("sentiment-{}", TRAIN, DEV, TEST)
_SENTIMENT = ("negative", "positive")
_FORMATS = {
    "MR": _Format({WHOLE: ("rt-polarity.neg", "rt-polarity.pos")}, _SENTIMENT, _unlabeled_rows),
    "CR": _Format({WHOLE: ("custrev.neg", "custrev.pos")}, _SENTIMENT, _unlabeled_rows),
    "SUBJ": _Format({WHOLE: ("subj.objective", "subj.subjective")}, ("objective", "subjective"), _unlabeled_rows),
    "MPQA": _Format({WHOLE: ("mpqa.neg", "mpqa.pos")}, _SENTIMENT, _unlabeled_rows),
    "SST2": _Format(
        _SST_FILES, tuple("01"), partial(_table_rows, texts=(0,), label=1), begins=lambda line: "\t" in line
    ),
    "SST5": _Format(_SST_FILES, tuple("01234"), _label_first_rows, begins=lambda line: "\t" not in line),
    "TREC": _Format(
        {TRAIN: ("train_5500.label",), TEST: ("TREC_10.label",)},
        ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
        _label_first_rows,
    ),
    "MRPC": _Format(
        _file_by_part("msr_paraphrase_{}.txt", TRAIN, TEST),
        tuple("01"),
        partial(_table_rows, texts=(3, 4), label=0, header=_MRPC_HEADER),
    ),
    "SICK-R": _Format(
        _SICK_FILES,
        tuple("12345"),
        partial(_sick_rows, labels=("relatedness_score",)),
        is_scored=True,
        one_file=SICK_FILE,
    ),
    "SICK-E": _Format(
        _SICK_FILES,
        ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
        partial(_sick_rows, labels=("entailment_judgment", "entailment_label")),
        one_file=SICK_FILE,
    ),
    "STSB-supervised": _Format(
        _file_by_part("sts-{}.csv", TRAIN, DEV, TEST),
        tuple("012345"),
        partial(_table_rows, texts=(5, 6), label=4),
        is_scored=True,
    ),
}
TRANSFER_TASKS = tuple(_FORMATS)


def read_transfer(folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None) -> tuple[TransferSet, ...]:
    """Find and read transfer sets in their original format, anywhere below a folder."""
    root = _check.input_folder(folder).resolve()
    wanted = None if tasks is None else task_names(tasks, TRANSFER_TASKS)
    places, incomplete = _find(root)
    expected = {task: incomplete.get(task, f"{task} ({_names(_FORMATS[task].names)})") for task in TRANSFER_TASKS}
    if missing := [expected[task] for task in wanted or () if task not in places]:
        raise TaskNotFoundError(
            f"{root} lacks {'; '.join(missing)}, all files of a task in one folder; it holds {_names(places)}."
        )
    if not places:
        raise TaskNotFoundError(
            f"{root} holds no transfer task, with all of its files in one folder. Known: "
            f"{'; '.join(expected.values())}."
        )
    if wanted is None and incomplete:
        warnings.warn(
            f"tasks left out: {root} lacks {'; '.join(incomplete.values())}.", EvaluationWarning, stacklevel=4
        )
    sets = []
    for task, folders in places.items():
        if wanted is None or task in wanted:
            if len(folders) > 1:
                raise InputError(f"{task} is in several folders: {_names(folders)}. Name one of them.")
            form, home = _FORMATS[task], folders[0]
            in_one = form.one_file is not None and not all((home / name).exists() for name in form.names)
            paths = {
                part: [home / name for name in ([form.one_file] if in_one and form.one_file else names)]
                for part, names in form.files.items()
            }
            parts = {part: _read_part(form, part, listed) for part, listed in paths.items()}
            files = tuple(dict.fromkeys(path for listed in paths.values() for path in listed))
            sets.append(TransferSet(task, parts, form.classes, form.is_scored, files))
    return tuple(sets)


def _find(root: Path) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Folders with all files of a set; and for incomplete sets, the missing files."""
    places: dict[str, list[Path]] = {}
    incomplete: dict[str, str] = {}
    one_file: dict[str, list[Path]] = {}  # folders with all parts in one file, which the separate files go before
    for path, files in folders_below(root):
        for task, form in _FORMATS.items():
            present = [name for name in form.names if name in files and form.owns(path / name)]
            if len(present) == len(form.names):
                places.setdefault(task, []).append(path)
            elif form.one_file in files:
                one_file.setdefault(task, []).append(path)
            elif present:
                missing = [name for name in form.names if name not in present]
                incomplete[task] = f"{task} ({_names(missing)}, expected in {path})"
    places = one_file | places
    return (
        {task: places[task] for task in TRANSFER_TASKS if task in places},
        {task: incomplete[task] for task in TRANSFER_TASKS if task in incomplete and task not in places},
    )


def _read_part(form: _Format, part: str, paths: Sequence[Path]) -> ScoredTexts:
    texts: list[Sequence[str]] = []
    labels: list[float] = []
    for position, path in enumerate(paths):
        for number, item_texts, label in form.rows(path, part):
            texts.append([text.strip() for text in item_texts])
            labels.append(position if len(paths) > 1 else _label(form, path, number, label))
    if len(set(labels)) < 2:
        raise FileFormatError(
            f"{_names(paths)}: {len(labels)} items with {len(set(labels))} label. At least two labels are needed."
        )
    return ScoredTexts(tuple(zip(*texts, strict=True)), np.array(labels, dtype=np.float64))


def _label(form: _Format, path: Path, number: int, label: str) -> float:
    classes = form.classes
    if not form.is_scored:
        if label not in classes:
            raise FileFormatError(
                f"{path}, line {number}: expected the label {' or '.join(classes)}, found {label!r:.80}."
            )
        return classes.index(label)
    try:
        score = float(label)
    except ValueError:
        score = float("nan")
    if not int(classes[0]) <= score <= int(classes[-1]):
        raise FileFormatError(
            f"{path}, line {number}: expected a score from {classes[0]} to {classes[-1]}, found {label!r:.80}."
        )
    return score


def _names(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "none"
