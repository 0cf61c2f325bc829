"""Published STS scores (Spearman x100) of the tables of `isosent.papers`, to stand beside measured ones."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from isosent.evaluation.sts_files import TASKS
from isosent.network.reading import resolve_layers, written_layers
from isosent.papers.reading import PAPERS, known_models, known_paper
from isosent.papers.tables import TARGET, Condition, KnownModel, Paper, PaperTable


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row of a published table.

    Parameters
    ----------
    label : str
        Model and source.
    aggregation : str
        How the subsets were put together, which decides what it can be compared with.
    scores : tuple of float
        STS12, 13, 14, 15, 16, STS-B, SICK-R.
    reference : str
        Regular expression that the model's reference matches in lower case.
    options : mapping of str to str
        Regular expressions that options of the model must match as a whole; one that it lacks is empty.
    sickr : {"full", "test"}
        Pairs that the score of SICK-R is over.
    transform : str or None
        Transform that is required; None for none.
    fit : str or None
        What the transform was fitted on.
    n_components : int or None
        Width that is required behind a transform; None for the full one.
    """

    label: str
    aggregation: str
    scores: tuple[float, ...]
    reference: str
    options: Mapping[str, str]
    sickr: str
    transform: str | None = None
    fit: str | None = None
    n_components: int | None = None

    def scores_of(self, tasks: Iterable[str], sickr: str) -> dict[str, float]:
        """Return the scores of some tasks, without SICK-R where ours is over other pairs.

        Parameters
        ----------
        tasks : iterable of str
            Among `TASKS`.
        sickr : {"full", "test"}
            Pairs of SICK-R that ours is over.

        Returns
        -------
        dict of str to float
            Spearman x100, in the order of `tasks`.
        """
        scores = dict(zip(TASKS, self.scores, strict=True))
        return {task: scores[task] for task in tasks if task != "SICKR" or sickr == self.sickr}


_WORDS = {
    "lowercase": "true",
    "tokenizer": "wordpunct",
    "stop_words": "keep",
    "weighting": "mean",
    "zipfian": "(false)?",
}
_UNSEEN = ("max_length", "punctuation")  # few texts of STS are that long; punctuation changes a score by tenths


@cache
def all_published() -> Sequence[PublishedRow]:
    """Return every row of `PAPERS` that tells all STS scores of a condition that isosent can be in."""
    return tuple(
        _row(paper, table, condition, known_models()[condition.model])
        for paper in map(known_paper, reversed(PAPERS))
        for table in paper.tables
        if table.family == "sts" and table.metric == "spearman"
        for condition in table.conditions
        if condition.model is not None and _stands_beside(condition)
    )


def _stands_beside(condition: Condition) -> bool:
    own = condition.beside and condition.quoted is None and condition.model in known_models() and not condition.needs
    return own and condition.fit in (None, TARGET) and set(TASKS) == set(condition.published)


def _row(paper: Paper, table: PaperTable, condition: Condition, model: KnownModel) -> PublishedRow:
    reference = (model.reference or "").lower()
    return PublishedRow(
        f"{condition.label}, {table.citation or paper.citation}",
        condition.aggregation or table.aggregation or "all",
        tuple(condition.published[task] for task in TASKS),
        model.pattern or rf"^hf:(.*/)?{re.escape(reference.rpartition('/')[2].removeprefix('hf:'))}(@.*)?$",
        _options(condition, model),
        table.sickr,
        condition.transform,
        None if condition.transform is None else condition.fit,
        condition.settings.get("n_components"),
    )


def _options(condition: Condition, model: KnownModel) -> dict[str, str]:
    """Options of a condition, as patterns for those that a model has in force."""
    patterns = dict(_WORDS) if (model.reference or "").startswith("words:") else {}
    for name, value in condition.options.items():
        if name == "layers" and model.n_layers:
            value = written_layers(resolve_layers(value, model.n_layers))
        if name not in _UNSEEN:
            known = known_models().get(value)
            patterns[name] = known.pattern if known and known.pattern else re.escape(value)
    return patterns


def published_rows(model: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[PublishedRow]:
    """Published rows for the same model under the same transform.

    Parameters
    ----------
    model, protocol : mapping
        The model of an `EvaluationResult`; its fitting, and the subsets of years that were missing.

    Returns
    -------
    list of PublishedRow
        Possibly none.

    Examples
    --------
    >>> options = {"lowercase": "true", "tokenizer": "wordpunct", "stop_words": "keep", "weighting": "mean"}
    >>> model = {"reference": "words:glove.840B.300d.txt", "options": options, "fits": []}
    >>> protocol = {"transform": None, "fit": None, "parameters": {}, "missing_subsets": {}}
    >>> [row.label for row in published_rows(model, protocol)]
    ['GloVe 840B mean, Yokoi et al. 2024']
    """
    if model["fits"] or protocol["missing_subsets"] or protocol["parameters"].get("strength", 1.0) != 1.0:
        return []
    reference = model["reference"].lower()
    return [
        row
        for row in all_published()
        if re.search(row.reference, reference)
        and all(re.fullmatch(pattern, model["options"].get(name, "")) for name, pattern in row.options.items())
        and row.transform == protocol["transform"]
        and (row.transform is None or row.fit == protocol["fit"])
        and row.n_components == protocol["parameters"].get("n_components")
    ]
