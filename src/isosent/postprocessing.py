"""What follows an encoder: a linear map, others for queries or for groups of texts, a flow, and scaling to length 1."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, IsosentWarning
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.transforms.base import LinearTransform, check_transform, is_flow


class GroupMaps(NamedTuple):
    """Maps of texts of some groups, such as languages, to the space of a reference group, in place of `linear_map`."""

    column: str  # of tables, which names the group of each text
    reference: str  # the group that the others are mapped to; its texts have `linear_map`
    maps: Mapping[str, LinearMap]

    @property
    def names(self) -> list[str]:
        """All groups, the reference first."""
        return [self.reference, *self.maps]

    def note(self, texts: str) -> str:
        """Say how texts are read whose group is not given."""
        return f"note: {texts} count as {self.reference}, not {_check.brief(' or '.join(self.maps))}."

    def rows_of(self, groups: object, n_rows: int) -> list[tuple[LinearMap, NDArray[np.intp]]]:
        """The rows that have a map, map by map; `groups` is the group of all rows, or that of each."""
        is_one = isinstance(groups, str) or not isinstance(groups, Iterable)
        listed: list[Any] = [groups] * n_rows if is_one else list(groups)  # type: ignore[call-overload]
        _check.same_count("encode", "group", len(listed), n_rows)
        places: dict[str, list[int]] = {name: [] for name in self.names}
        for row, group in enumerate([groups] if is_one and not n_rows else listed):
            name = str(group).strip()
            if name not in places:
                where = "" if is_one else f" in row {row}, counted from 0,"
                raise InputError(
                    f"{self.column}: {group!r:.80}{where} is no group of this model. It has: "
                    f"{_check.brief(', '.join(self.names))}."
                )
            if n_rows:
                places[name].append(row)
        return [(self.maps[name], np.array(rows)) for name, rows in places.items() if rows and name in self.maps]


@dataclass(frozen=True, slots=True, eq=False)
class Postprocessing:
    """What follows an encoder: map, flow, scaling to length 1."""

    linear_map: LinearMap | None = None
    query_map: LinearMap | None = None  # for queries in place of `linear_map`; often only the bias differs
    normalize: bool = False  # scale to length 1 in the end
    flow: Glow | None = None  # after the map
    groups: GroupMaps | None = None

    def __post_init__(self) -> None:
        others = [] if self.query_map is None else [self.query_map]
        others += self.groups.maps.values() if self.groups else ()
        if others and self.linear_map is None:  # with which the others are stored and told apart
            object.__setattr__(self, "linear_map", LinearMap(np.eye(others[0].dim), np.zeros(others[0].dim)))
        if self.flow is not None and self.linear_map is not None:
            _check.same_dim("Postprocessing", "input of the flow", self.flow.dim, self.linear_map.n_components)

    @property
    def dim(self) -> int | None:
        """Dimensions of the encoder's vectors; None if any number is accepted."""
        first = self.linear_map or self.flow
        return None if first is None else first.dim

    def apply(
        self, vectors: NDArray[np.floating], *, queries: bool = False, group: object = None
    ) -> NDArray[np.float32]:
        """Map vectors of the encoder, shape (n_texts, dim), of one group or of one each; zero rows stay zero."""
        vectors, linear_map = _check.matrix("transform", "vectors", vectors), self.map_of(queries)
        if group is not None and self.groups is None:
            raise InputError(f"group: this model has no groups, such as {group!r:.80}. Leave the group out.")
        if vectors.dtype.kind != "f":
            vectors = vectors.astype(np.float64)
        if linear_map is None:
            mapped = vectors
            _check.finite_rows("transform", "vectors", mapped)
        else:
            mapped = linear_map.apply(vectors)
        if group is not None and self.groups is not None:
            for group_map, rows in self.groups.rows_of(group, len(vectors)):
                mapped[rows] = group_map.apply(vectors[rows])
        if self.flow is not None:
            mapped = self.flow.forward(mapped)
        if self.dim is not None:
            mapped[~nonzero_rows(vectors)] = 0
        if self.normalize:
            mapped = unit_rows(mapped)
        with np.errstate(over="ignore"):
            single = mapped.astype(np.float32, copy=False)
        if mapped.dtype == np.float64 and not np.isfinite(single).all():
            raise InputError(f"transform: a number of the result, {np.abs(mapped).max():g}, is too large for float32.")
        return single

    def moments(self, moments: Moments, *, queries: bool = False) -> Moments:
        """Moments of vectors after the map, from those before it."""
        if self.flow is not None or self.groups is not None:
            end = "a flow" if self.groups is None else "maps of groups"
            raise InputError(f"fit: nothing can be fitted on moments after {end}. Fit on the vectors of its encoder.")
        if not moments.weight:
            raise InputError("fit: there are no vectors, or only zero ones. At least one that is not zero is needed.")
        linear_map = self.map_of(queries)
        return moments if linear_map is None else moments.mapped(linear_map)

    def check_fit(self, transform: object, *, queries: bool = False) -> None:
        """Refuse a transform that cannot be added; called before any work is done."""
        check_transform(transform)
        if self.normalize or self.flow is not None or self.groups is not None:
            end = "maps of groups" if self.groups else "scaling to length 1" if self.normalize else "a flow"
            raise InputError(f"fit: cannot add a transform after {end}. Fit it on the encoder of this model instead.")
        if queries and is_flow(transform):
            raise InputError(
                "fit: a flow cannot shift queries. Leave them out, or fit a linear transform with queries first, and "
                "then the flow."
            )

    def fitted(
        self,
        transform: LinearTransform | None,
        moments: Moments,
        query_moments: Moments | None = None,
    ) -> Postprocessing:
        """Add a linear transform, fitted on the moments of the encoder's vectors."""
        # With queries, the transform is fitted on the mean of the documents and on the scatter of both, each about its
        # own mean. Queries are shifted by mean_d - mean_q before the same map, so that the two means coincide.
        documents = self.moments(moments)
        if transform is None:
            if query_moments is not None:
                warnings.warn(
                    "fit: no transform was chosen, so the vectors of queries stay as they are too.",
                    IsosentWarning,
                    stacklevel=3,
                )
            return self
        if query_moments is None:
            new = transform.fit_moments(documents).linear_map_
            query_map = None if self.query_map is None else self.query_map.then(new)
        else:
            queries = self.moments(query_moments, queries=True)
            new = transform.fit_moments(documents + replace(queries, mean=documents.mean)).linear_map_
            shifted = LinearMap(new.weight, new.bias + (documents.mean - queries.mean) @ new.weight)
            before = self.map_of(queries=True)
            query_map = shifted if before is None else before.then(shifted)
        linear_map = new if self.linear_map is None else self.linear_map.then(new)
        return Postprocessing(linear_map, query_map, transform.normalize_)

    def followed_by(self, linear_map: LinearMap, *, queries_only: bool) -> Postprocessing:
        """Add a map of documents and queries, or of queries alone."""
        documents, queries = self.map_of(False), self.map_of(True)
        query_map = linear_map if queries is None else queries.then(linear_map)
        if queries_only:
            return Postprocessing(documents, query_map)
        new = linear_map if documents is None else documents.then(linear_map)
        return Postprocessing(new, None if self.query_map is None else query_map)

    def with_groups(
        self, column: str, reference: str, linear_map: LinearMap | None, maps: Mapping[str, LinearMap]
    ) -> Postprocessing:
        """Add a map of each group, and of the reference if it does not stay unchanged."""
        both = self if linear_map is None else self.followed_by(linear_map, queries_only=False)
        before = self.linear_map
        combined = {name: each if before is None else before.then(each) for name, each in maps.items()}
        return replace(both, groups=GroupMaps(column, reference, combined))

    def map_of(self, queries: bool, group: str | None = None) -> LinearMap | None:
        """The map of queries or of documents, or that of a group."""
        if group is not None and self.groups is not None:
            return next((each for each, _ in self.groups.rows_of(group, 1)), self.linear_map)
        return self.query_map if queries and self.query_map is not None else self.linear_map


NO_POSTPROCESSING = Postprocessing()


def rows_with_vector(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows that are not zero, of which there must be one."""
    rows = vectors[nonzero_rows(vectors)]
    if not len(rows):
        raise InputError(f"fit: the encoder knows no word of the {len(vectors)} texts, so all their vectors are zero.")
    return rows
