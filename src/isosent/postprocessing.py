"""What follows an encoder: a linear map, a second one for queries, a flow, and scaling to length 1."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, IsosentWarning
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.transforms.base import LinearTransform, check_transform, is_flow


@dataclass(frozen=True, slots=True, eq=False)
class Postprocessing:
    """What follows an encoder: map, flow, scaling to length 1."""

    linear_map: LinearMap | None = None
    query_map: LinearMap | None = None  # for queries in place of `linear_map`; often only the bias differs
    normalize: bool = False  # scale to length 1 in the end
    flow: Glow | None = None  # after the map

    def __post_init__(self) -> None:
        if self.flow is not None and self.linear_map is not None:
            _check.same_dim("Postprocessing", "input of the flow", self.flow.dim, self.linear_map.n_components)

    @property
    def dim(self) -> int | None:
        """Dimensions of the encoder's vectors; None if any number is accepted."""
        first = self.linear_map or self.flow
        return None if first is None else first.dim

    def apply(self, vectors: NDArray[np.floating], *, queries: bool = False) -> NDArray[np.float32]:
        """Map vectors of the encoder, shape (n_texts, dim); zero rows stay zero."""
        vectors, linear_map = _check.matrix("transform", "vectors", vectors), self.map_of(queries)
        if vectors.dtype.kind != "f":
            vectors = vectors.astype(np.float64)
        if linear_map is None:
            mapped = vectors
            _check.finite_rows("transform", "vectors", mapped)
        else:
            mapped = linear_map.apply(vectors)
        if self.flow is not None:
            mapped = self.flow.forward(mapped)
        if self.dim is not None:
            mapped[~nonzero_rows(vectors)] = 0
        if self.normalize:
            mapped = unit_rows(mapped)
        with np.errstate(over="ignore"):
            single = mapped.astype(np.float32, copy=False)
        if mapped.dtype == np.float64 and not np.isfinite(single).all():
            raise InputError(f"transform: the result must be within float32; got {np.abs(mapped).max():g}.")
        return single

    def moments(self, moments: Moments, *, queries: bool = False) -> Moments:
        """Moments of vectors after the map, from those before it."""
        if self.flow is not None:
            raise InputError("fit: nothing can be fitted on moments after a flow. Fit on the vectors of its encoder.")
        if not moments.weight:
            raise InputError("fit: there must be at least one vector that is not zero; got none.")
        linear_map = self.map_of(queries)
        return moments if linear_map is None else moments.mapped(linear_map)

    def check_fit(self, transform: object, *, queries: bool = False) -> None:
        """Refuse a transform that cannot be added; called before any work is done."""
        check_transform(transform)
        if self.normalize or self.flow is not None:
            end = "scaling to length 1" if self.normalize else "a flow"
            raise InputError(f"fit: cannot add a transform after {end}. Fit it on the encoder of this model instead.")
        if queries and is_flow(transform):
            raise InputError(
                "fit: queries must come with a linear transform, which shifts them; got a flow. Leave them out, or fit "
                "a map with queries first, and then the flow."
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
            dim = linear_map.dim
            identity = LinearMap(np.eye(dim), np.zeros(dim))
            return Postprocessing(identity if documents is None else documents, query_map)
        new = linear_map if documents is None else documents.then(linear_map)
        return Postprocessing(new, None if self.query_map is None else query_map)

    def map_of(self, queries: bool) -> LinearMap | None:
        """The map of queries or of documents."""
        return self.query_map if queries and self.query_map is not None else self.linear_map


NO_POSTPROCESSING = Postprocessing()


def rows_with_vector(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows that are not zero, of which there must be one."""
    rows = vectors[nonzero_rows(vectors)]
    if not len(rows):
        raise InputError(f"fit: the encoder knows no word of the {len(vectors)} texts, so all their vectors are zero.")
    return rows
