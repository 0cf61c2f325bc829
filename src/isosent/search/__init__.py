"""Search: an index that knows its vector space, its recall, and when nothing matches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.search.clusters import Cluster, Clusters, cluster
    from isosent.search.duplicates import Duplicates, find_duplicates
    from isosent.search.index import Index
    from isosent.search.known import Known, find_known
    from isosent.search.places import NeighborMap, neighbor_map
    from isosent.search.result import IndexStats, SearchResult
    from isosent.search.smaller import Size, Sizes, sizes

_MODULE_OF = {
    "Cluster": "clusters",
    "Clusters": "clusters",
    "Duplicates": "duplicates",
    "Index": "index",
    "IndexStats": "result",
    "Known": "known",
    "NeighborMap": "places",
    "SearchResult": "result",
    "Size": "smaller",
    "Sizes": "smaller",
    "cluster": "clusters",
    "find_duplicates": "duplicates",
    "find_known": "known",
    "neighbor_map": "places",
    "sizes": "smaller",
}

__all__ = [
    "Cluster",
    "Clusters",
    "Duplicates",
    "Index",
    "IndexStats",
    "Known",
    "NeighborMap",
    "SearchResult",
    "Size",
    "Sizes",
    "cluster",
    "find_duplicates",
    "find_known",
    "neighbor_map",
    "sizes",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'isosent.search' has no attribute {name!r}")
    return getattr(import_module(f"isosent.search.{_MODULE_OF[name]}"), name)
