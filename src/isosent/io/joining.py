"""Texts in one file and their vectors in another: joined by the ids of both, or else by their rows.

`texts_of_vectors` reads the texts that belong to vectors; `order_by_ids` says in which order they lie there.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from isosent._check import brief
from isosent.errors import InputError, IsosentWarning
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.tables import open_table
from isosent.io.texts import is_table, read_labels, read_texts
from isosent.io.vector_source import VectorSource

CUSTOM_ID: Final = "custom_id"  # of a request in a batch
_ID_COLUMNS: Final = (CUSTOM_ID, "id")
_DIGITS: Final = re.compile(r"\d+", re.ASCII)


def texts_of_vectors(texts: str, sources: Sequence[VectorSource], *, column: str | None = None) -> list[str]:
    """Texts in the order of the vectors, which lie in one file or several."""
    listed = read_texts(texts, column=column)
    files = [source for source in sources if source.column is not None and source.path.is_file()]
    if len(files) < len(sources) or not all(is_table(source.path) for source in files):
        return listed
    name_of_texts = None if texts == STANDARD_INPUT or not is_table(texts) else _id_column(texts)
    names = [_id_column(str(source.path)) for source in files]
    if None in names:
        return listed
    ids = None if name_of_texts is None else list(map(str, read_labels(texts, name_of_texts)))
    ids_of_vectors = [
        str(one)
        for source, name in zip(files, names, strict=True)
        for one in read_labels(source.path, str(name), first_row=source.first_row, n_rows=source.n_rows)
    ]
    vectors = ", ".join(str(source.path) for source in files)
    order = order_by_ids(texts, ids, vectors, ids_of_vectors)
    if order is None:
        return listed
    warnings.warn(
        f"{texts} has another order than {vectors}; texts and vectors are joined by their ids.",
        IsosentWarning,
        stacklevel=2,
    )
    return [listed[place] for place in order]


def _id_column(path: str) -> str | None:
    with open_table(path, header=True) as table:
        return next((name for name in _ID_COLUMNS if name in table.columns), None)


def order_by_ids(texts: str, ids: list[str] | None, vectors: str, ids_of_vectors: list[str] | None) -> list[int] | None:
    """The places of texts in the order of the vectors beside them, by the ids of both; None if they are in one order.

    An API does not promise the order of a batch. Where only the vectors have ids, numbers in these show an order.
    """
    if ids_of_vectors is None or (ids is not None and ids == ids_of_vectors):
        return None
    if ids is not None and set(ids) & set(ids_of_vectors):
        places = {one: place for place, one in enumerate(ids)}
        for path, listed in ((texts, ids), (vectors, ids_of_vectors)):
            if len(set(listed)) < len(listed):
                repeated = next(one for one, count in Counter(listed).items() if count > 1)
                raise InputError(
                    f"{path}: the id {brief(repeated)} is there twice, so texts and vectors cannot be joined."
                )
        missing = set(ids) ^ set(ids_of_vectors)
        if missing:
            one = min(missing)
            path, other = (vectors, texts) if one in places else (texts, vectors)
            raise InputError(f"{path} has no row of the id {brief(one)}, and {other} has. Make both of the same rows.")
        return [places[one] for one in ids_of_vectors]
    numbers = [tuple(map(int, _DIGITS.findall(one))) for one in ids_of_vectors]
    is_counted = len({_DIGITS.sub("0", one) for one in ids_of_vectors}) == 1 and all(numbers)
    if is_counted and all(one < other for one, other in pairwise(numbers)):
        return None
    what = f"{vectors} has ids such as {brief(ids_of_vectors[0])}, and {texts} has none of them"
    if is_counted and sorted(numbers) in [[(n + start,) for n in range(len(numbers))] for start in (0, 1)]:
        raise InputError(
            f"{what}: the numbers in them show that its rows are in another order. Give the texts these ids."
        )
    warnings.warn(
        f"{what}: texts and vectors are paired in the order of their rows, which a batch of an API does not keep.",
        IsosentWarning,
        stacklevel=2,
    )
    return None
