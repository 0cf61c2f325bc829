"""What a training has seen of the sets that its model is scored on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable

from isosent.errors import EvaluationWarning
from isosent.evaluation.everything import jobs_of_kinds
from isosent.evaluation.overlap import count_overlap, plain_form
from isosent.evaluation.pair_files import PairTask
from isosent.evaluation.task import Task
from isosent.training.development import DevSet
from isosent.training.examples import Examples

MOST = 0.5


def count_seen_texts(
    examples: Examples, sets: Iterable[DevSet] = (), *, folder: str | os.PathLike[str] | None = None
) -> dict[str, dict[str, int]]:
    """Count the texts of evaluation sets that are training texts, too.

    Parameters
    ----------
    examples : Examples
        The training data.
    sets : iterable of DevSet, default ()
        Development and test sets, each of another name.
    folder : path-like, optional
        Evaluation sets as for `evaluate_all`.

    Returns
    -------
    dict of str to dict of str to int
        Counts by name of the set, see `isosent.evaluation.overlap.count_overlap`.

    Raises
    ------
    InputError
        If the folder holds no task, or one is malformed.
    """
    tasks: dict[str, Task] = {}
    if folder is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvaluationWarning)  # of kinds and subsets that are not there
            tasks = {job.name: job.task for job in jobs_of_kinds(folder)}
    for pairs in sets:
        tasks[pairs.name] = PairTask(pairs.name, tuple(pairs.first), tuple(pairs.second), pairs.scores, (), 0, ())
    return count_overlap(examples.texts(), tasks)


def warn_if_seen(examples: Examples, pairs: DevSet) -> int:
    """Count the pairs of a set that are pairs of one training example, and warn if most of them are.

    Parameters
    ----------
    examples : Examples
        The training data.
    pairs : DevSet
        A development or test set.

    Returns
    -------
    int
        Pairs of the set that training sees as pairs: both texts in one example, in any order, the same up to Unicode
        form, case, punctuation and white space.

    Warns
    -----
    EvaluationWarning
        If more than half of the pairs are: the score on the set does not tell how well the model does on new pairs.

    Examples
    --------
    >>> examples = Examples({"anchor": ["A man eats.", "A dog."], "positive": ["He eats.", "A cat."]}, "ranking")
    >>> warn_if_seen(examples, DevSet("dev", ["He eats", "A bird."], ["A MAN eats.", "A dog."], [1.0, 0.0]))
    1
    """
    items = [frozenset(map(plain_form, pair)) for pair in zip(pairs.first, pairs.second, strict=True)]
    wanted = {form for item in items for form in item}
    form_of = {text: form for text in examples.texts() if (form := plain_form(text)) in wanted}
    anchors, *others = examples.text_columns.values()
    seen = {
        frozenset((form_of[anchor], form_of[other]))
        for column in others
        for anchor, other in zip(anchors, column, strict=True)
        if anchor in form_of and other in form_of
    }
    n_seen = sum(item in seen for item in items)
    if n_seen > MOST * len(items):
        warnings.warn(
            f"{pairs.name}: {n_seen} of its {len(items)} pairs are pairs of the training data; its scores do not "
            "tell how well the model does on new pairs. Score on another set.",
            EvaluationWarning,
            stacklevel=2,
        )
    return n_seen
