"""The functions of an SQL export, run by PostgreSQL with pgvector."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.exports import export
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.transforms.chain import chain
from isosent.transforms.linear import MeanCentering, Truncate

WIDE = 2100  # more than HNSW of pgvector can hold


@pytest.fixture(scope="module")
def connection(postgres_url):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_url.rstrip("?&"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield connection


@pytest.fixture(scope="module")
def wide_rows():
    rng = np.random.default_rng(0)
    spread = 1 / np.arange(1, WIDE + 1) ** 0.5
    return (rng.standard_normal((400, WIDE)) * spread + rng.standard_normal(WIDE)).astype(np.float32)


@pytest.fixture(scope="module")
def wide(wide_rows, connection, tmp_path_factory):
    model = SentenceEncoder(PrecomputedVectors(WIDE)).fitted_on_moments(
        Moments.from_rows(wide_rows), transform=chain(MeanCentering(), Truncate(24))
    )
    return model, install(connection, model, tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def with_queries(wordllama, texts, connection, tmp_path_factory):
    model = wordllama.fitted(texts[:300], transform=isosent.Whitening(32), queries=texts[300:])
    return model, install(connection, model, tmp_path_factory.mktemp("queries"))


def install(connection, model, folder):
    """Run the script, twice; return what the names of its functions end with."""
    export(model, "sql", folder / "map.sql")
    for _ in range(2):
        connection.execute((folder / "map.sql").read_text("utf-8"))
    return model.fingerprint[:8]


def literal(vector):
    return str(vector.tolist())


def mapped(connection, function, vectors, kind):
    found = []
    for vector in vectors:
        [[text]] = connection.execute(f"SELECT {function}(%s::{kind})::text", [literal(vector)]).fetchall()
        found.append(None if text is None else json.loads(text))
    return found


@pytest.mark.parametrize("case", ["with_queries", "wide"])
def test_the_server_gives_the_vectors_of_the_model(case, request, connection, texts, wide_rows):
    model, name = request.getfixturevalue(case)
    vectors = wide_rows[:20] if case == "wide" else model.encoder.encode(texts[:40])
    expected = unit_rows(model.transform(vectors))
    assert_allclose(mapped(connection, f"isosent_map_{name}", vectors, "vector"), expected, atol=1e-5)
    if case == "with_queries":
        expected = unit_rows(model.transform(vectors, queries=True))
        assert_allclose(mapped(connection, f"isosent_query_map_{name}", vectors, "vector"), expected, atol=1e-5)


def test_half_precision_changes_vectors_by_no_more_than_its_rounding(wide, connection, wide_rows):
    model, name = wide
    rows = wide_rows[:20].astype(np.float64)
    images = rows @ model.linear_map.weight + model.linear_map.bias
    rounding = (2**-11 * np.abs(rows) + 2**-25) @ np.abs(model.linear_map.weight)
    bound = 2 * np.linalg.norm(rounding, axis=1) / np.linalg.norm(images, axis=1)
    found = np.array(mapped(connection, f"isosent_map_{name}", wide_rows[:20], "halfvec"))
    assert (np.linalg.norm(found - unit_rows(images), axis=1) <= bound + 1e-5).all()


def test_a_zero_vector_and_null_have_no_image(with_queries, connection):
    model, name = with_queries
    zero = np.zeros((1, model.encoder.dim))
    for function, kind in (("map", "vector"), ("map", "halfvec"), ("query_map", "vector")):
        assert mapped(connection, f"isosent_{function}_{name}", zero, kind) == [None]
        assert connection.execute(f"SELECT isosent_{function}_{name}(NULL::{kind})").fetchone() == (None,)


def test_a_column_too_wide_for_an_index_is_indexed_by_its_image(wide, connection, wide_rows):
    model, name = wide
    connection.execute(f"CREATE TABLE wide (id int, embedding halfvec({WIDE}))")
    with connection.cursor().copy("COPY wide FROM STDIN") as copy:
        for number, row in enumerate(wide_rows):
            copy.write_row((number, literal(row)))
    image = f"(isosent_map_{name}(embedding)::vector(24))"
    connection.execute(f"CREATE INDEX wide_images ON wide USING hnsw ({image} vector_ip_ops)")
    connection.execute("ANALYZE wide")
    query = f"SELECT id, -({image} <#> %s::vector(24)) FROM wide ORDER BY {image} <#> %s::vector(24) LIMIT 10"
    units = unit_rows(model.transform(wide_rows))
    overlaps = []
    for unit in units[:10]:
        plan = "\n".join(line for (line,) in connection.execute("EXPLAIN " + query, [literal(unit)] * 2))
        assert "Index Scan using wide_images" in plan
        ids, scores = zip(*connection.execute(query, [literal(unit)] * 2), strict=True)
        assert_allclose(scores, units[list(ids)] @ unit, atol=0.01)
        overlaps.append(len(set(ids) & set(np.argsort(-units @ unit)[:10].tolist())))
    assert np.mean(overlaps) >= 9


def test_functions_name_their_space(with_queries, connection):
    model, name = with_queries
    for function, role in (
        (f"isosent_map_{name}(halfvec)", "document"),
        (f"isosent_query_map_{name}(vector)", "query"),
    ):
        [[comment]] = connection.execute("SELECT obj_description(%s::regprocedure)", [function]).fetchall()
        assert json.loads(comment)["fingerprint"] == model.fingerprint
        assert json.loads(comment)["role"] == role


def test_vectors_wider_than_pgvector_holds_are_refused(wide, tmp_path, monkeypatch):
    monkeypatch.setattr("isosent.exports.sql._WIDEST", 2000)
    with pytest.raises(InputError, match=r"2,000 dimensions.*2,100"):
        export(wide[0], "sql", tmp_path / "map.sql")
