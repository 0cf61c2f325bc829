"""What follows an encoder: a list of steps, such as a map, a flow, and scaling to length 1.

`Postprocessing` applies its steps one after the other and folds a new one into the last where both are maps. `STEPS`
lists all kinds in the order in which they follow each other, of which a model has at most one each. Each step says
itself whether it is linear and whether anything can follow it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, IsosentWarning
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows
from isosent.role import DOCUMENTS, QUERIES, Role
from isosent.transforms import flow_step, maps, scaling
from isosent.transforms.base import FitCallback, Transform, check_transform, needs_vectors
from isosent.transforms.maps import GroupMaps, MapStep
from isosent.transforms.scaling import NormalizeStep
from isosent.transforms.step import Step

STEPS: tuple[type[Step], ...] = (maps.MapStep, flow_step.FlowStep, scaling.NormalizeStep)
Kind = TypeVar("Kind", bound=Step)


@dataclass(frozen=True, slots=True, eq=False)
class Postprocessing:
    """The steps that follow an encoder, in their order."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        n_components = None
        for step in self.steps:
            if n_components is not None and step.dim is not None:
                _check.same_dim("Postprocessing", f"input of the {step.kind}", step.dim, n_components)
            n_components = n_components if step.n_components is None else step.n_components

    @property
    def dim(self) -> int | None:
        """Dimensions of the encoder's vectors; None if any number is accepted."""
        return next((step.dim for step in self.steps if step.dim is not None), None)

    @property
    def n_components(self) -> int | None:
        """Dimensions of the vectors; None if these are those of the encoder."""
        return next((step.n_components for step in reversed(self.steps) if step.n_components is not None), None)

    @property
    def last(self) -> Step | None:
        """The step that nothing can be fitted after, if there is one."""
        return next((step for step in reversed(self.steps) if not step.streams), None)

    @property
    def nonlinear(self) -> Step | None:
        """The step that is no linear map, if there is one; scaling to length 1 does not count."""
        return next((step for step in self.steps if not step.is_linear), None)

    @property
    def groups(self) -> GroupMaps | None:
        """The maps of groups; None without any."""
        step = self.step(MapStep)
        return None if step is None else step.groups

    @property
    def query_map(self) -> LinearMap | None:
        """The map of queries, if they have another one than documents."""
        step = self.step(MapStep)
        return None if step is None else step.query_map

    @property
    def flow(self) -> Glow | None:
        """The flow after the map; None if there is none."""
        step = self.step(flow_step.FlowStep)
        return None if step is None else step.glow

    @property
    def normalizes(self) -> bool:
        """Whether the vectors are scaled to length 1 in the end."""
        return self.step(NormalizeStep) is not None

    @property
    def maps(self) -> tuple[LinearMap, ...]:
        """The map of documents and, if they have another, that of queries; empty without one."""
        found = [each for role in (DOCUMENTS, QUERIES) if (each := self.map_of(role)) is not None]
        return tuple(found if self.has_roles else found[:1])

    @property
    def has_roles(self) -> bool:
        """Whether queries have other vectors than documents."""
        return any(step.has_roles for step in self.steps)

    def step(self, kind: type[Kind]) -> Kind | None:
        """The step of a kind; None if there is none."""
        return next((step for step in self.steps if isinstance(step, kind)), None)

    def map_of(self, role: Role) -> LinearMap | None:
        """The linear map of texts of a role; None without one."""
        return next((linear_map for step in self.steps if (linear_map := step.map_of(role)) is not None), None)

    def apply(self, vectors: NDArray[np.floating], role: Role = DOCUMENTS) -> NDArray[np.float32]:
        """Map vectors of the encoder, shape (n_texts, dim), of one group or of one each; zero rows stay zero."""
        vectors = _check.matrix("transform", "vectors", vectors)
        if role.group is not None and self.groups is None:
            raise InputError(f"group: this model has no groups, such as {role.group!r:.80}. Leave the group out.")
        if vectors.dtype.kind != "f":
            vectors = vectors.astype(np.float64)
        if self.step(MapStep) is None:  # which checks what it is applied to
            _check.finite_rows("transform", "vectors", vectors)
        mapped = vectors
        for step in self.steps:
            mapped = step.apply(mapped, role)
            if step.dim is not None:
                mapped[~nonzero_rows(vectors)] = 0
        with np.errstate(over="ignore"):
            single = mapped.astype(np.float32, copy=False)
        if mapped.dtype == np.float64 and not np.isfinite(single).all():
            raise InputError(f"transform: a number of the result, {np.abs(mapped).max():g}, is too large for float32.")
        return single

    def moments(self, moments: Moments, role: Role = DOCUMENTS) -> Moments:
        """Moments of vectors after the steps, from those before them."""
        self._check_last()
        if not moments.weight:
            raise InputError("fit: there are no vectors, or only zero ones. At least one that is not zero is needed.")
        for step in self.steps:
            moments = step.moments(moments, role)
        return moments

    def check_fit(self, transform: object, *, queries: bool = False) -> None:
        """Refuse a transform that cannot be added; called before any work is done."""
        check_transform(transform)
        self._check_last()
        if queries and needs_vectors(transform):
            raise InputError(
                f"fit: a {transform.kind} cannot shift queries. Leave them out, or fit a linear transform with queries "
                f"first, and then the {transform.kind}."
            )

    def _check_last(self) -> None:
        if self.last is not None:
            raise InputError(
                f"fit: cannot add a transform after {self.last.noun}. Fit it on the encoder of this model instead."
            )

    def fitted(
        self,
        transform: Transform | None,
        statistics: Moments | NDArray[np.floating],
        query_moments: Moments | None = None,
        *,
        report: FitCallback | None = None,
    ) -> Postprocessing:
        """Fit a transform and add it: on moments of the encoder's vectors, or on these themselves if it needs them."""
        if transform is None:
            if query_moments is not None:
                warnings.warn(
                    "fit: no transform was chosen, so the vectors of queries stay as they are too.",
                    IsosentWarning,
                    stacklevel=3,
                )
            return self
        if needs_vectors(transform):
            assert isinstance(statistics, np.ndarray)  # moments are refused before
            self.check_fit(transform, queries=query_moments is not None)
            return self.append(transform.fit(self.apply(statistics), report=report).step_)
        # With queries, the transform is fitted on the mean of the documents and on the scatter of both, each about its
        # own mean. Queries are shifted by mean_d - mean_q before the same map, so that the two means coincide.
        documents = self.moments(Moments.from_rows(statistics) if isinstance(statistics, np.ndarray) else statistics)
        if query_moments is None:
            step = MapStep(transform.fit_moments(documents).linear_map_)
        else:
            queries = self.moments(query_moments, QUERIES)
            fitted = transform.fit_moments(documents + replace(queries, mean=documents.mean))
            step = maps.shifted_queries(fitted.linear_map_, documents, queries)
        return self.append(step, *([NormalizeStep()] if transform.normalize_ else []))

    def append(self, *steps: Step) -> Postprocessing:
        """Add steps; a map is folded into that before it."""
        listed = list(self.steps)
        for step in steps:
            folded = listed[-1].then(step) if listed else None
            listed[-1:] = [*listed[-1:], step] if folded is None else [folded]
        return Postprocessing(tuple(listed))


NO_POSTPROCESSING = Postprocessing()
