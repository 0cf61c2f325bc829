"""Which of the models and files that the tables name are at hand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from isosent.encoders.reference import escape, without_permissions
from isosent.errors import FileFormatError
from isosent.papers.reading import PAPERS, known_models, known_paper, read_yaml
from isosent.papers.tables import Paper

INSTEAD = "instead"


@dataclass(frozen=True, slots=True)
class AtHand:
    """Models and files by the names that the tables have for them.

    Parameters
    ----------
    named : mapping of str to str
        Model reference, or path, of what a table names.
    stand_ins : mapping of str to tuple of str
        References of other models, to be measured in the place of one that a table names.
    """

    named: Mapping[str, str]
    stand_ins: Mapping[str, tuple[str, ...]]


def find_at_hand(data: Path, models: str | os.PathLike[str] | None = None, *, more: Iterable[Paper] = ()) -> AtHand:
    """Find what a data folder holds, and add what a map names.

    Parameters
    ----------
    data : Path
        Searched for the files of `known_models`, with everything below it.
    models : path-like, optional
        YAML: names of the tables, and where they are, which wins over what was found; below ``instead`` the references,
        one or a list, of models to measure in the place of another.
    more : iterable of Paper
        Papers whose names are known, beside those that come with isosent.

    Returns
    -------
    AtHand
        What there is.

    Raises
    ------
    InputFileError
        If there is no such map.
    FileFormatError
        If it is none, or names what no table has; the nearest name is shown.

    Warns
    -----
    PermissionIgnoredWarning
        If a reference holds a permission, which no file can grant.
    """
    found = dict(_files_below(data))
    if models is None:
        return AtHand(found, {})
    document = read_yaml(models)
    instead = document.pop(INSTEAD, {})
    if not isinstance(instead, dict):
        raise FileFormatError(f"{models}: {INSTEAD} must hold names and references; got {instead!r}.")
    stand_ins = {name: tuple(written) if isinstance(written, list) else (written,) for name, written in instead.items()}
    names = _names(more)
    for name, written in [*document.items(), *((name, each) for name, all_ in stand_ins.items() for each in all_)]:
        if name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0)[0]
            raise FileFormatError(
                f"{models}: names must be those of the tables; got {name!r}. The nearest is {nearest}."
            )
        if not isinstance(written, str) or not written:
            raise FileFormatError(f"{models}: {name} must be a model reference or a path; got {written!r}.")

    def untrusted(reference: str) -> str:
        return without_permissions(reference, {}, file=models)[0]

    named = {name: untrusted(written) for name, written in document.items()}
    return AtHand(found | named, {name: tuple(map(untrusted, written)) for name, written in stand_ins.items()})


def _files_below(data: Path) -> Iterable[tuple[str, str]]:
    for name, known in known_models().items():
        paths = sorted(path for path in data.rglob(known.file) if path.is_file()) if known.file else []
        if paths:
            yield name, f"words:{escape(str(paths[0]))}" if known.reference else str(paths[0])


def _names(more: Iterable[Paper]) -> list[str]:
    papers = [*map(known_paper, PAPERS), *more]
    models = (condition.model for paper in papers for table in paper.tables for condition in table.conditions)
    return list(dict.fromkeys([*known_models(), *filter(None, models)]))
