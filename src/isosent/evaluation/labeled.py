"""Texts with a label, by the protocol of MTEB: do clusters agree with labels, and do a few examples tell them apart.

`clustering_tasks` and `classification_tasks` find sets below a folder, `clustering_task` reads one from a table; all
make a `Task` of `LabeledTexts`. `_measure_clusters` draws texts, clusters their vectors into as many clusters
as there are labels, and compares both by v-measure. `_measure_classes` draws a few examples of each label, learns a
logistic regression from them, and counts which texts of the test part it labels correctly. Draws, numbers and settings
are those of MTEB (`AbsTaskClustering`, `AbsTaskClassification`), so that scores are comparable.
"""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, TaskNotFoundError, option
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.sizes import KNOWN_SETS, N_DRAWS, TEST, TRAIN, WHOLE
from isosent.evaluation.task import Task, TaskEncoder, name_key
from isosent.io.bounds import folders_below, read_lines
from isosent.io.pairs import take_part
from isosent.io.tables import (
    ColumnSet,
    columns_missing,
    find_columns,
    has_columns,
    has_table_name,
    open_table,
    parse_columns,
    table_name,
)
from isosent.io.texts import is_missing
from isosent.numeric.similarity import unit_rows

CLUSTERING, CLASSIFICATION = "clustering", "classification"
MTEB_SEED = 42  # the draws of seed 0 are those of MTEB
TEXTS_OF_A_DRAW, BATCH_SIZE = 16_384, 512
N_EXAMPLES = 8
# MTEB has more examples of each label in some tasks
EXAMPLES_OF: Mapping[str, int] = {
    "AmazonCounterfactualClassification": 32,
    "EmotionClassification": 16,
    "ToxicConversationsClassification": 16,
    "TweetSentimentExtractionClassification": 32,
    "YahooAnswersTopicsClassification": 32,
    "YelpReviewFullClassification": 128,
}
_MAX_ITER = 100
_GROUPS = (
    ColumnSet(("text",), (("text",), ("sentence",), ("sentences",), ("utterance",))),
    ColumnSet(("label",), (("label",), ("labels",), ("category",), ("intent",), ("class",), ("topic",))),
)
_GOLD = "_gnd.txt"  # labels of the lines of NAME.txt, as in the sets of Xu et al. 2015


class LabeledTexts(NamedTuple):
    """Texts and their labels."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    files: tuple[Path, ...]
    columns: tuple[str, ...] = ()  # of a table
    part: str | None = None  # of a table with several parts, the one whose rows these are


def clustering_tasks(folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> list[Task]:
    """Find sets to cluster: ``NAME.txt`` with ``NAME_gnd.txt``, and folders with a table of test alone."""
    root = _check.input_folder(folder).resolve()
    places: list[tuple[str, Callable[[], LabeledTexts]]] = []
    for home, files in folders_below(root):
        for name in sorted(file.removesuffix(_GOLD) for file in files if file.endswith(_GOLD)):
            if (lines := f"{name}.txt") in files:
                read = partial(_read_lines, home / lines, home / f"{name}{_GOLD}")
                places.append((_known_name(CLUSTERING, name), read))
        if not _tables(home, files, TRAIN) and (tables := _tables(home, files, TEST)):
            places.append((_known_name(CLUSTERING, home.name), partial(_read_only, tables)))
    described = f"NAME.txt with NAME{_GOLD}, or a folder with a table called test, of the columns text and label"
    return [_clustering(name, read()) for name, read in _select_tasks(root, CLUSTERING, places, names, described)]


def clustering_task(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> Task:
    """Read a table of texts and their labels; all of them are clustered."""
    name = table_name(file)
    return _clustering(_known_name(CLUSTERING, name), _read_table(Path(file), columns, part=TEST))


def classification_tasks(folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> list[Task]:
    """Find sets to classify: folders with a table of train and one of test."""
    root = _check.input_folder(folder).resolve()
    places: list[tuple[str, tuple[list[Path], list[Path]]]] = []
    for home, files in folders_below(root):
        train, test = _tables(home, files, TRAIN), _tables(home, files, TEST)
        if train and test:
            places.append((_known_name(CLASSIFICATION, home.name), (train, test)))
    described = "a folder with two tables called train and test, of the columns text and label"
    return [
        _classification(name, _read_only(train), _read_only(test))
        for name, (train, test) in _select_tasks(root, CLASSIFICATION, places, names, described)
    ]


def _clustering(name: str, labeled: LabeledTexts) -> Task:
    classes, labels = np.unique(labeled.labels, return_inverse=True)
    _check_labels(labeled, len(classes))
    return Task(
        name=name,
        kind=CLUSTERING,
        texts={"text": labeled.texts},
        target_texts=labeled.texts,
        items=[(text,) for text in labeled.texts],
        score=partial(_measure_clusters, labeled.texts, labels),
        protocol={
            "clusters": "mini-batch k-means, one for each label",
            "batch_size": BATCH_SIZE,
            "draws": N_DRAWS,
            "texts_of_a_draw": TEXTS_OF_A_DRAW,
            **_table_protocol(labeled),
        },
        files=labeled.files,
        sizes={WHOLE: len(labels)},
    )


def _classification(name: str, train: LabeledTexts, test: LabeledTexts) -> Task:
    for part in (train, test):
        _check_labels(part, len(set(part.labels)))
    n_examples = EXAMPLES_OF.get(name, N_EXAMPLES)
    return Task(
        name=name,
        kind=CLASSIFICATION,
        texts={"text": [*train.texts, *test.texts]},
        target_texts=[*train.texts, *test.texts],
        items=[(text,) for text in test.texts],
        score=partial(_measure_classes, train, test, n_examples),
        protocol={
            "classifier": "logistic regression",
            "C": 1.0,
            "max_iter": _MAX_ITER,
            "examples_of_a_label": n_examples,
            "draws": N_DRAWS,
            **_table_protocol(test),
        },
        files=(*train.files, *test.files),
        sizes={TRAIN: len(train.texts), TEST: len(test.texts)},
    )


def _table_protocol(labeled: LabeledTexts) -> dict[str, str]:
    columns = {"columns": ",".join(labeled.columns)} if labeled.columns else {}
    return columns | ({"split": labeled.part} if labeled.part else {})


def _measure_clusters(texts: Sequence[str], labels: NDArray[np.intp], encode: TaskEncoder, seed: int) -> Measurement:
    vectors = encode(texts)
    v_measures, informations = _cluster_draws(vectors, labels, seed)
    of_units, _ = _cluster_draws(unit_rows(vectors), labels, seed)
    return Measurement(
        "v_measure",
        {
            "v_measure": float(np.mean(v_measures)),
            "ami": float(np.mean(informations)),
            "v_measure_unit": float(np.mean(of_units)),
        },
        Items(np.array(v_measures)),
        {"draws_std": float(np.std(v_measures)), "n_labels": len(np.unique(labels)), "n_clustered": len(texts)},
    )


def _cluster_draws(
    vectors: NDArray[np.float32], labels: NDArray[np.intp], seed: int
) -> tuple[list[float], list[float]]:
    """V-measure, and adjusted mutual information, of the clusters of each draw."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import adjusted_mutual_info_score, v_measure_score

    generator = random.Random(MTEB_SEED + seed)  # as MTEB draws
    v_measures, informations = [], []
    for _ in range(N_DRAWS):
        drawn = generator.choices(range(len(labels)), k=TEXTS_OF_A_DRAW)  # with replacement
        clusters = MiniBatchKMeans(
            len(np.unique(labels)), batch_size=BATCH_SIZE, init="k-means++", n_init=1, random_state=MTEB_SEED + seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than labels
            found = clusters.fit_predict(vectors[drawn])
        v_measures.append(float(v_measure_score(labels[drawn], found)))
        informations.append(float(adjusted_mutual_info_score(labels[drawn], found)))
    return v_measures, informations


def _measure_classes(
    train: LabeledTexts, test: LabeledTexts, n_examples: int, encode: TaskEncoder, seed: int
) -> Measurement:
    from sklearn.metrics import f1_score

    gold = np.array(test.labels)
    rows, test_rows = encode(train.texts), encode(test.texts)
    draws = draws_of_examples(train.labels, n_examples, seed)
    predicted = _predict_draws(rows, train.labels, draws, test_rows)
    of_units = _predict_draws(unit_rows(rows), train.labels, draws, unit_rows(test_rows))
    is_correct = predicted == gold
    accuracies = is_correct.mean(axis=1)
    majority, _ = Counter(train.labels).most_common(1)[0]
    return Measurement(
        "accuracy",
        {
            "accuracy": float(accuracies.mean()),
            "f1": float(np.mean([f1_score(gold, each, average="macro", zero_division=0) for each in predicted])),
            "accuracy_unit": float((of_units == gold).mean()),
        },
        Items(is_correct.mean(axis=0)),
        {
            "draws": accuracies.tolist(),
            "draws_std": float(accuracies.std()),
            "n_train": len(train.labels),
            "n_labels": len(set(train.labels)),
            "majority": {"label": majority, "accuracy": float((gold == majority).mean())},
        },
    )


def _predict_draws(
    rows: NDArray[np.float32],
    labels: Sequence[str],
    draws: Sequence[Sequence[int]],
    test_rows: NDArray[np.float32],
) -> NDArray[np.str_]:
    """Labels of the texts of the test part by the examples of each draw, shape (n_draws, n_texts)."""
    # scikit-learn's, as in MTEB, and not `numeric.logistic`: the score is defined with at most 100 steps, which end
    # before the minimum is reached if vectors are long; and there the memory grows with labels times dim squared
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 100 steps are the protocol
        models = [LogisticRegression(max_iter=_MAX_ITER).fit(rows[list(d)], np.array(labels)[list(d)]) for d in draws]
    return np.array([model.predict(test_rows) for model in models])


def draws_of_examples(labels: Sequence[str], n_examples: int, seed: int) -> list[list[int]]:
    """Rows of up to `n_examples` of each label, ten times; with seed 0 those of MTEB."""
    # MTEB shuffles the order of the last draw again, each time from the same seed
    order, draws = list(range(len(labels))), []
    for _ in range(N_DRAWS):
        np.random.RandomState(MTEB_SEED + seed).shuffle(order)
        counts: Counter[str] = Counter()
        drawn = []
        for row in order:
            if counts[labels[row]] < n_examples:
                counts[labels[row]] += 1
                drawn.append(row)
        draws.append(drawn)
    return draws


# -- files -------------------------------------------------------------------------------------------------------------


def _known_name(kind: str, name: str) -> str:
    """Name of a known set, which may lack the kind, as banking77 for Banking77Classification; or the name itself."""
    known = {name_key(each): each for each in KNOWN_SETS[kind]}
    return known.get(name_key(name)) or known.get(name_key(name + kind)) or name


def _select_tasks(
    root: Path, kind: str, places: list[tuple[str, Any]], names: Sequence[str] | None, described: str
) -> list[tuple[str, Any]]:
    available = sorted(name for name, _ in places)
    if not places:
        raise TaskNotFoundError(f"{root} holds no set for {kind}: {described}.")
    wanted = available if names is None else [_known_name(kind, name) for name in names]
    keys = {name_key(name) for name in wanted}
    if missing := [name for name in wanted if name_key(name) not in set(map(name_key, available))]:
        raise TaskNotFoundError(f"{kind} has no {', '.join(missing)} here; it has {', '.join(available)}.")
    chosen = sorted((place for place in places if name_key(place[0]) in keys), key=lambda place: place[0])
    if twice := [name for name, count in Counter(name for name, _ in chosen).items() if count > 1]:
        raise InputError(f"{root} holds two sets called {twice[0]} for {kind}. Name the folder of one of them.")
    return chosen


def _tables(home: Path, files: Sequence[str], part: str) -> list[Path]:
    """Tables of a part that have texts and labels."""
    named = [file for file in sorted(files) if table_name(file).lower() == part and has_table_name(file)]
    return [home / file for file in named if _has_labels(home / file)]


def _has_labels(path: Path) -> bool:
    try:
        with open_table(path) as table:
            return has_columns(table, _GROUPS)
    except InputError:  # a file of something else
        return False


def _read_only(tables: Sequence[Path]) -> LabeledTexts:
    if len(tables) > 1:
        raise InputError(f"{tables[0].parent} holds {' and '.join(path.name for path in tables)}. Keep one of them.")
    return _read_table(tables[0], None)


def _read_table(path: Path, columns: str | Sequence[str] | None, part: str | None = None) -> LabeledTexts:
    texts, labels = [], []
    named = parse_columns(columns, ("text", "label"))
    with open_table(path) as table:
        found = find_columns(table, _GROUPS, named)
        if found is None:
            raise columns_missing(table, "texts with labels", _GROUPS, named)
        names = (found["text"], found["label"])
        if part is not None:
            take_part(table, part, names)
        for number, (text, label) in table.rows(*names):
            texts.append(table.text(number, names[0], text))
            if is_missing(label) or not f"{label}".strip():
                raise FileFormatError(f"{table.place(number)}: {names[1]} is empty. Fill it in, or leave the row out.")
            labels.append(f"{label}".strip())
        return LabeledTexts(tuple(texts), tuple(labels), (path,), names, table.part)


def _read_lines(path: Path, gold: Path) -> LabeledTexts:
    texts, labels = read_lines(path), [line.strip() for line in read_lines(gold)]
    if len(texts) != len(labels):
        raise FileFormatError(f"{gold} has {len(labels):,} labels, {path} has {len(texts):,} texts: one for each line.")
    if "" in labels:
        raise FileFormatError(f"{gold}, line {labels.index('') + 1}: the label is empty.")
    return LabeledTexts(tuple(texts), tuple(labels), (path, gold))


def _check_labels(labeled: LabeledTexts, n_labels: int) -> None:
    if n_labels < 2:
        raise FileFormatError(
            f"{labeled.files[-1]}: {len(labeled.texts):,} texts with {n_labels} label. At least two are needed."
        )
    if n_labels > TEXTS_OF_A_DRAW:
        raise FileFormatError(
            f"{labeled.files[-1]}: {n_labels:,} different labels; at most {TEXTS_OF_A_DRAW:,} are possible. Name a "
            f"column of labels: {option('columns', 'TEXT,LABEL')}."
        )
