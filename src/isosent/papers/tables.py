"""The tables of a paper: which condition gave which number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FAMILIES = ("sts", "transfer", "cqa", "rte", "dims", "layers", "gem", "speed")
TARGET, EVALUATED = "target", "evaluated"
SCORE = "x100"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        Its heading.
    task : str
        What is measured for it: a task; for ``layers`` a number of layers.
    metric : str or None
        Where it is not that of the table.
    """

    name: str
    task: str
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A row of a table: what was measured, and which numbers it gave.

    Parameters
    ----------
    label : str
        What the table calls it.
    published : mapping of str to float
        Numbers by name of their column, x100 unless the table has another unit; those that are not known are not there.
    model : str or None
        A name of `known_models`, or any other; None where isosent opens nothing of that kind.
    options : mapping of str to str
        Options of the model's reference. A value that names a file of `known_models` stands for it.
    transform : str or None
        Fitted behind the model.
    settings : mapping
        Settings of the transform.
    fit : str or None
        "target"; "evaluated": the sentences of the evaluated pairs alone; or a name of `known_models`.
    aggregation : str or None
        Where it is not that of the table.
    needs : tuple of str
        What isosent does not have.
    quoted : str or None
        The work that the paper took the numbers from.
    beside : bool
        Whether the numbers stand beside those that anybody measures under this condition.
    study : str or None
        Which setting a study moves.
    note : str or None
        What else there is to say.
    """

    label: str
    published: Mapping[str, float]
    model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    transform: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    fit: str | None = None
    aggregation: str | None = None
    needs: tuple[str, ...] = ()
    quoted: str | None = None
    beside: bool = True
    study: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table or figure.

    Parameters
    ----------
    name : str
        Such as "table 1".
    title : str
        What it shows.
    source : str
        Where its numbers were read.
    family : str or None
        One of `FAMILIES`, which says how it is measured; None where isosent has no such task.
    columns : tuple of Column
        The columns.
    metric : str or None
        What is reported; None for the metric that each task is judged by.
    conditions : tuple of Condition
        The rows.
    aggregation : str or None
        How subsets are put together; None for one score over all.
    sickr : str
        Pairs of SICK-R.
    unit : str
        "x100" for scores.
    citation : str or None
        Where it is not that of the paper.
    notes : tuple of str
        What to know when reading it, where an evaluation of isosent differs included.
    """

    name: str
    title: str
    source: str
    family: str | None
    columns: tuple[Column, ...]
    metric: str | None
    conditions: tuple[Condition, ...]
    aggregation: str | None = None
    sickr: str = "full"
    unit: str = SCORE
    citation: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[str]:
        """What its columns are about, each once."""
        return list(dict.fromkeys(column.task for column in self.columns))

    def metric_of(self, column: Column, condition: Condition) -> str | None:
        """Name, in a result of isosent, of the metric in a cell; None for the one that the task is judged by."""
        metric = column.metric or self.metric
        how = condition.aggregation or self.aggregation
        return metric if metric is None or how in (None, "all") else f"{metric}_{how}"


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper.

    Parameters
    ----------
    name : str
        Such as "S1".
    title, citation : str
        Title; authors and year.
    tables : tuple of PaperTable
        Its tables and figures.
    arxiv : str or None
        Number on arXiv.
    """

    name: str
    title: str
    citation: str
    tables: tuple[PaperTable, ...]
    arxiv: str | None = None


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What a name in a table stands for.

    Parameters
    ----------
    reference : str or None
        Model reference under which it is to be had; None for a file that is no model.
    file : str or None
        Pattern of its file name below a data folder.
    needs : str or None
        How to ask for it, where not by its name.
    pattern : str or None
        Regular expression for references, in lower case, that mean it.
    n_layers : int or None
        Layers of the network.
    """

    reference: str | None = None
    file: str | None = None
    needs: str | None = None
    pattern: str | None = None
    n_layers: int | None = None
