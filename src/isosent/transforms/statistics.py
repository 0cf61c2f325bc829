"""What a transform is fitted on: moments of the vectors of a bare encoder, and a sample of these vectors.

`SentenceEncoder.fitted_on_statistics` takes `Statistics`, wherever they come from: texts in memory (`of_texts`), files
of vectors and moments, or the shards of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import rows_that_are_nonzero
from isosent.transforms.agreement import distinct_rows
from isosent.transforms.labels import Attribute, LabeledMoments


class LabeledStatistics(NamedTuple):
    """Labels to erase: their moments next to vectors, and the rows on which is measured what erasing changes."""

    attribute: Attribute  # of `vectors`
    vectors: NDArray[np.floating]  # (n_rows, dim)
    texts: Sequence[str] | None  # of `vectors`
    moments: LabeledMoments  # of all rows
    n_zero_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Moments and a sample of vectors; without moments, the vectors are no sample but all of them."""

    source: str  # where they come from, for the record
    moments: Moments | None = None  # of all vectors that are not zero
    n_zero_rows: int = 0  # that the moments leave out
    vectors: NDArray[np.floating] | None = None  # (n_rows, dim)
    texts: Sequence[str] | None = None  # of `vectors`, by which auto chooses
    groups: NDArray[Any] | None = None  # of `vectors`; -1 if the label that is erased is missing
    query_moments: Moments | None = None  # of queries, whose mean is fitted separately
    labels: LabeledStatistics | None = None  # what is erased before the transform is fitted

    @classmethod
    def of_texts(
        cls,
        texts: Sequence[str],
        vectors: NDArray[np.floating],
        attribute: Attribute | None = None,
        query_moments: Moments | None = None,
        *,
        source: str,
    ) -> Statistics:
        """Vectors of texts, perhaps with an attribute to erase."""
        groups, labels = None, None
        if attribute is not None:
            moments = attribute.moments(vectors)
            n_zero_rows = len(texts) - round(moments.weight) - moments.n_missing
            labels = LabeledStatistics(attribute, vectors, texts, moments, n_zero_rows)
            groups = attribute.groups
        return cls(source, vectors=vectors, texts=texts, groups=groups, query_moments=query_moments, labels=labels)

    def without_labels(self, *, erased: bool) -> Statistics:
        """What is fitted on next: if labels were erased, auto chooses by rows that have one, and knows their groups."""
        if not erased or self.vectors is None or self.texts is None or self.groups is None:
            return replace(self, groups=None, labels=None)
        rows = np.flatnonzero(self.groups >= 0)
        texts = [self.texts[row] for row in rows.tolist()]
        return replace(self, vectors=self.vectors[rows], texts=texts, groups=self.groups[rows], labels=None)

    def basis(self, *, distinct: bool) -> tuple[Moments | NDArray[np.floating], int]:
        """The moments, or all vectors that are not zero, of `distinct` texts or of all; and how many are left out."""
        if self.moments is not None:
            return self.moments, self.n_zero_rows
        assert self.vectors is not None
        # repeated texts would weigh more in what auto chose, and be their own neighbors
        vectors = self.vectors
        if self.texts is not None and distinct and len(kept := distinct_rows(self.texts)) < len(vectors):
            vectors = vectors[kept]
        rows = rows_with_vector(vectors)
        return rows, len(vectors) - len(rows)

    def all_moments(self) -> Moments:
        """Moments of all vectors that are not zero."""
        basis, _ = self.basis(distinct=False)
        return basis if isinstance(basis, Moments) else Moments.from_rows(basis)


def rows_with_vector(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows that are not zero, of which there must be one."""
    rows = rows_that_are_nonzero(vectors)
    if not len(rows):
        raise InputError(f"fit: the encoder knows no word of the {len(vectors)} texts, so all their vectors are zero.")
    return rows
