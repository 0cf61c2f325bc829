"""The map of a model as functions of PostgreSQL with pgvector: columns too wide to index are indexed by expression."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief
from isosent.errors import InputError, OutputError
from isosent.exports.check import Export, compare, require_agreement, required_maps, sample_vectors, space_of, total
from isosent.io.atomic import check_destination, replacing
from isosent.io.system import open_to_read, read_bytes
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import unit_rows
from isosent.space import Space

TARGET: Final = "sql"
_FIRST_LINE: Final = "-- isosent map"
_WIDEST: Final = 16_000  # of the type vector
_WIDEST_INDEXED: Final = 2_000  # above, the index is one of halfvec
_PRODUCTS_PER_COST: Final = 300  # of the planner: one unit is a comparison, about 10 ns
_VECTORS: Final = re.compile(r"(?:[-+]|<#>) '\[(.*?)\]'")
_RESTS: Final = re.compile(r"\]'\) \+ ([^\s,]+),?$", re.MULTILINE)


def export_sql(model: SentenceEncoder, output: str | os.PathLike[str]) -> Export:
    """Write the functions ``isosent_map_...`` and, if queries have their own map, ``isosent_query_map_...``."""
    check_destination(output)
    if Path(output).exists() and not _is_export(Path(output)):
        raise OutputError(f"{output} exists, and is no older sql export. Name another file.")
    linear_map, *others = required_maps(TARGET, model)
    if linear_map.dim > _WIDEST:
        raise InputError(f"export: pgvector holds {_WIDEST:,} dimensions; the vectors have {linear_map.dim:,}.")
    if any(not np.array_equal(other.weight, linear_map.weight) for other in others):
        raise InputError("export: functions in SQL only shift queries; this model rotates them. Export to numpy.")
    vectors = sample_vectors(model)
    with replacing(output) as temporary:
        temporary.write_text(_script(model, linear_map, *others), "utf-8")
        roles = (False, True) if others else (False,)
        agreements = [
            compare(unit_rows(model.transform(vectors, queries=queries)), _apply(temporary, vectors, queries=queries))
            for queries in roles
        ]
        require_agreement(TARGET, total(agreements))
    return Export(TARGET, Path(output), space_of(model), total(agreements))


def _is_export(path: Path) -> bool:
    with open_to_read(path) as file:
        return file.read(len(_FIRST_LINE)) == _FIRST_LINE.encode()


# -- writing ---------------------------------------------------------------------------------------------------------


def _script(model: SentenceEncoder, linear_map: LinearMap, *others: LinearMap) -> str:
    space = space_of(model)
    name, width = f"isosent_map_{space.fingerprint[:8]}", linear_map.n_components
    kind = "vector" if width <= _WIDEST_INDEXED else "halfvec"
    mapped = f"{name}(embedding)::{kind}({width})"
    query_name = f"isosent_query_map_{space.fingerprint[:8]}" if others else name
    lines = [
        f"{_FIRST_LINE}: {brief(space)}",
        f"-- From vectors of the encoder, of width {linear_map.dim}, to unit vectors of width {width}.",
        "-- Needs PostgreSQL 14 and pgvector 0.7, or newer ones. A zero vector has the result NULL.",
        f"-- CREATE INDEX ON documents USING hnsw (({mapped}) {kind}_ip_ops);",
        f"-- SELECT * FROM documents ORDER BY {mapped} <#> {query_name}($1::vector)::{kind}({width}) LIMIT 10;",
        "BEGIN;",
        _document_function(name, linear_map),
        # resolved when it is made, so it needs no search_path; the planner puts it in place of the call
        f"CREATE OR REPLACE FUNCTION {name}(encoded halfvec) RETURNS vector",
        f"IMMUTABLE STRICT PARALLEL SAFE RETURN {name}(encoded::vector);",
        *(_comment(f"{name}({kind})", space, "document") for kind in ("vector", "halfvec")),
    ]
    for other in others:
        shift = _preimage(linear_map, other.bias - linear_map.bias)
        lines += [
            f"CREATE OR REPLACE FUNCTION {query_name}(encoded vector) RETURNS vector",
            "IMMUTABLE STRICT PARALLEL SAFE RETURN CASE WHEN vector_norm(encoded) > 0 THEN",
            f"{name}(encoded + {_literal(shift)}) END;",
            _comment(f"{query_name}(vector)", space, "query"),
        ]
    return "\n".join([*lines, "COMMIT;", ""])


def _document_function(name: str, linear_map: LinearMap) -> str:
    """The map itself: one inner product per component."""
    # Fetching a wide vector from its TOAST table takes longer than an inner product. The difference is in memory, so
    # the vector is fetched once and not for every component: 9 to 18 times the rows per second.
    mean = _preimage(linear_map, -linear_map.bias)
    weight = linear_map.weight.astype(np.float32)
    bias = linear_map.bias + mean.astype(np.float64) @ weight.astype(np.float64)  # what rounding leaves
    # <#> is the negative inner product
    products = [f"(centered <#> {_literal(-w)}) + {b!r}" for w, b in zip(weight.T, bias.tolist(), strict=True)]
    entries = ",\n".join(products)
    return f"""CREATE OR REPLACE FUNCTION {name}(encoded vector) RETURNS vector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST {100 + weight.size // _PRODUCTS_PER_COST}
SET search_path FROM CURRENT -- indexes are built with another one, which may lack pgvector
AS $isosent$
DECLARE
  centered vector := encoded - {_literal(mean)};
BEGIN
  IF vector_norm(encoded) = 0 THEN RETURN NULL; END IF;
  RETURN l2_normalize(ARRAY[
{entries}
  ]::vector);
END $isosent$;"""


def _preimage(linear_map: LinearMap, mapped: NDArray[np.float64]) -> NDArray[np.float32]:
    """The shortest vector that a weight maps to a vector."""
    return np.linalg.lstsq(linear_map.weight.T, mapped)[0].astype(np.float32)


def _literal(vector: NDArray[np.float32]) -> str:
    return f"'[{','.join(map(str, vector))}]'"


def _comment(function: str, space: Space, role: str) -> str:
    facts = json.dumps({"format": "isosent-map", **space.to_json(), "role": role}).replace("'", "''")
    return f"COMMENT ON FUNCTION {function} IS '{facts}';"


def _apply(path: Path, vectors: NDArray[np.float32], *, queries: bool) -> NDArray[np.float32]:
    """What the functions compute, from the numbers in the file."""
    script = read_bytes(path).decode("utf-8")
    mean, *rest = (np.array(match[1].split(","), np.float32) for match in _VECTORS.finditer(script))
    bias = np.array(_RESTS.findall(script), np.float64)
    if queries:
        vectors = vectors + rest[len(bias)]
    return unit_rows((vectors - mean) @ -np.stack(rest[: len(bias)]).T + bias)
