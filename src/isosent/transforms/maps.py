"""The step that linear transforms become: a map of documents, and others for queries or for groups of texts.

Transforms that follow each other fold into one `MapStep`. Queries and the texts of other groups than the reference have
their maps in place of that of documents, so each role still goes through one product. A step with maps of groups is
the last: a transform would have to be fitted on each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.io.schemas import Label
from isosent.io.tensors import plain_tensors, plain_tensors_bytes
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.role import Role
from isosent.transforms.step import Parse, Rows, Step

MAPS, GROUP_MAPS = "linear_map", "group_maps"


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
        return f"{texts} count as {self.reference}, not {_check.brief(' or '.join(self.maps))}."

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


class _GroupNames(Struct, forbid_unknown_fields=True):
    """Names of the groups that have maps."""

    column: Label
    reference: Label
    names: list[Label]


def _maps(content: bytes) -> tuple[LinearMap, LinearMap | None]:
    tensors = _map_tensors(content)
    linear_map = LinearMap(tensors["weight"], tensors["bias"])
    query_bias, query_weight = tensors.get("query_bias"), tensors.get("query_weight", linear_map.weight)
    query_map = None if query_bias is None else LinearMap(query_weight, query_bias)
    if query_weight.shape != linear_map.weight.shape:
        raise InputError(f"query_weight has the shape {query_weight.shape}, and weight {linear_map.weight.shape}.")
    return linear_map, query_map


def _group_maps(content: bytes) -> list[LinearMap]:
    tensors = _map_tensors(content)
    weight, bias = tensors["weight"], tensors["bias"]
    if weight.ndim != 3 or bias.ndim != 2 or len(weight) != len(bias):
        raise InputError(f"the shapes are {weight.shape} and {bias.shape}.")
    return [LinearMap(*arrays) for arrays in zip(weight, bias, strict=True)]


def _map_tensors(content: bytes) -> dict[str, NDArray[np.float64]]:
    tensors = {name: array.astype(np.float64) for name, array in plain_tensors(content).items()}
    largest = np.finfo(np.float32).max  # vectors are computed in float32
    if outside := next((name for name, array in tensors.items() if (np.abs(array) > largest).any()), None):
        raise InputError(f"{outside} holds numbers beyond float32.")
    return tensors


class MapStep(Step):
    """A linear map of documents, and others in its place for queries, or for the texts of groups.

    Parameters
    ----------
    linear_map : LinearMap, optional
        The map of documents, and of queries without one; None leaves documents as they are.
    query_map : LinearMap, optional
        The map of queries; often only the bias differs.
    groups : GroupMaps, optional
        Maps of groups, which do not go with a map of queries.
    """

    kind = "map"
    is_linear = True
    files: ClassVar[Mapping[str, tuple[Parse, str]]] = {
        MAPS: (_maps, "weight (dim, n_components) and bias (n_components,)"),
        GROUP_MAPS: (_group_maps, "weight and bias of each map"),
    }
    values: ClassVar[Mapping[str, Any]] = {"groups": _GroupNames | None}
    first_fields: ClassVar[Mapping[str, Any]] = {MAPS: None}
    noun = "maps of groups"  # only these refuse anything

    def __init__(
        self,
        linear_map: LinearMap | None = None,
        query_map: LinearMap | None = None,
        groups: GroupMaps | None = None,
    ) -> None:
        check_roles(queries=query_map is not None, groups=groups is not None)
        self._linear_map, self.query_map, self.groups = linear_map, query_map, groups
        self.has_roles, self.streams = query_map is not None, groups is None

    @cached_property
    def linear_map(self) -> LinearMap:
        """The map of documents, by which the others are stored and told apart."""
        if self._linear_map is not None:
            return self._linear_map
        others = [] if self.query_map is None else [self.query_map]
        others += self.groups.maps.values() if self.groups else ()
        return LinearMap(np.eye(others[0].dim), np.zeros(others[0].dim))

    @property
    def dim(self) -> int:
        return self.linear_map.dim

    @property
    def n_components(self) -> int:
        return self.linear_map.n_components

    def apply(self, rows: Rows, role: Role) -> Rows:
        mapped = self.map_of(Role(role.is_query)).apply(rows)
        if role.group is not None and self.groups is not None:
            for group_map, places in self.groups.rows_of(role.group, len(rows)):
                mapped[places] = group_map.apply(rows[places])
        return mapped

    def map_of(self, role: Role) -> LinearMap:
        if role.group is not None and self.groups is not None:
            return next((each for each, _ in self.groups.rows_of(role.group, 1)), self.linear_map)
        return self.query_map if role.is_query and self.query_map is not None else self.linear_map

    def then(self, step: Step) -> Step | None:
        if not isinstance(step, MapStep):
            return None
        new, before = step._linear_map, self.linear_map
        query_map, groups = self.query_map, step.groups
        if step.query_map is not None:
            query_map = (self.query_map or before).then(step.query_map)
        elif query_map is not None and new is not None:
            query_map = query_map.then(new)
        if groups is not None:
            groups = groups._replace(maps={name: before.then(each) for name, each in groups.maps.items()})
        return MapStep(before if new is None else before.then(new), query_map, groups)

    def moments(self, moments: Moments, role: Role) -> Moments:
        return moments.mapped(self.map_of(role))

    def saved(self) -> dict[str, Any]:
        arrays = {"weight": self.linear_map.weight, "bias": self.linear_map.bias}
        if self.query_map is not None:
            arrays["query_bias"] = self.query_map.bias
            if not np.array_equal(self.query_map.weight, self.linear_map.weight):
                arrays["query_weight"] = self.query_map.weight
        fields: dict[str, Any] = {MAPS: plain_tensors_bytes(arrays)}
        if self.groups is not None:
            maps = self.groups.maps.values()
            stacks = {name: np.stack([getattr(each, name) for each in maps]) for name in ("weight", "bias")}
            fields[GROUP_MAPS] = plain_tensors_bytes(stacks)
            facts = {"column": self.groups.column, "reference": self.groups.reference, "names": list(self.groups.maps)}
            fields["groups"] = facts
        return fields

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any]) -> Self | None:
        linear_map, query_map = saved[MAPS] or (None, None)
        groups = _saved_groups(linear_map, saved[GROUP_MAPS] or [], saved["groups"])
        return None if linear_map is None else cls(linear_map, query_map, groups)

    def content(self) -> bytes:
        saved, names = self.saved(), [] if self.groups is None else self.groups.names
        content: bytes = saved[MAPS] + "\0".join(names).encode() + saved.get(GROUP_MAPS, b"")
        return content

    def facts(self) -> dict[str, Any]:
        groups = self.groups
        return {
            "separate_query_mean": self.query_map is not None,
            **({} if groups is None else {"groups": f"{', '.join(groups.maps)}, mapped to {groups.reference}"}),
            **({} if groups is None else {"group_column": groups.column}),
        }


def check_roles(*, queries: bool, groups: bool) -> None:
    """Refuse maps of queries next to maps of groups, whose queries and documents have the same."""
    if queries and groups:
        raise InputError("fit: maps of groups do not go with a separate map of queries. Leave one out.")


def shifted_queries(linear_map: LinearMap, documents: Moments, queries: Moments) -> MapStep:
    """A map, and for queries the same one after a shift of their mean onto that of the documents."""
    shift = (documents.mean - queries.mean) @ linear_map.weight
    return MapStep(linear_map, LinearMap(linear_map.weight, linear_map.bias + shift))


def _saved_groups(
    linear_map: LinearMap | None, maps: list[LinearMap], facts: Mapping[str, Any] | None
) -> GroupMaps | None:
    """The maps of groups, which must fit the names in ``model.json`` and the map of the reference."""
    facts = facts or {"column": "", "reference": "", "names": []}
    names = [facts["reference"], *facts["names"]]
    if not maps and not any(names):
        return None
    shapes = {each.weight.shape for each in (linear_map, *maps) if each is not None}
    are_names = len(set(names)) == len(maps) + 1 == len(names) and all(name and name == name.strip() for name in names)
    if linear_map is None or len(shapes) > 1 or not are_names:
        raise InputError("the maps of groups do not fit their names, or the map of the reference.")
    return GroupMaps(facts["column"], names[0], dict(zip(names[1:], maps, strict=True)))
