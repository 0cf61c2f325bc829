"""The same searches of an index, wherever its rows are."""

import numpy as np
import pytest

from isosent.errors import InputError, InputFileError
from isosent.numeric.similarity import unit_rows
from isosent.search import Index
from isosent.search.stores import find_index, open_store
from isosent.search.stores.database import push


@pytest.fixture(scope="module")
def places(tmp_path_factory, wordllama, texts):
    """The folder of an index, and the URL of a table with its rows."""
    pytest.importorskip("lancedb")
    home = tmp_path_factory.mktemp("stores")
    url = f"lance:{home / 'db'}"
    index = Index.create(texts[:40], wordllama, ids=[f"r{row}" for row in range(40)], folder=home / "index")
    push(index, url)
    return str(home / "index"), url


def test_a_store_finds_the_nearest_rows_wherever_they_are(places, wordllama, texts):
    queries = ["somebody rides a horse", "salt for the soup"]
    documents, asked = (unit_rows(wordllama.encode(each).astype(float)) for each in (texts[:40], queries))
    order = np.argsort(-asked @ documents.T, axis=1, kind="stable")[:, :5]
    for place, model in zip(places, (None, "wordllama"), strict=True):
        hits = open_store(place, model).hits(queries, 5)
        assert [[hit.id for hit in rows] for rows in hits] == [[f"r{row}" for row in rows] for rows in order]
        assert [hit.rank for hit in hits[0]] == [1, 2, 3, 4, 5]
        assert [hit.score for hit in hits[1]] == pytest.approx((asked @ documents.T)[1, order[1]], abs=1e-5)
        assert hits[1][0].text == texts[order[1, 0]]
        assert [*hits[0][0].to_json()] == ["rank", "id", "score", *(["share"] if model is None else []), "text"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"like": ["r1"]}, "search: like needs"),
        ({"explain": True}, "search: explain needs"),
        ({"unique": True, "false_positives": 0.1}, "false_positives, unique"),
    ],
)
def test_what_a_table_cannot_do_it_refuses_before_it_is_opened(options, named):
    store = open_store("postgresql://me:secret@nowhere/db?password=secret&table=rows", "wordllama")
    with pytest.raises(InputError, match=rf"{named}.*//nowhere/db is a database") as caught:
        store.hits(["a query"], 5, **options)
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match=r"against needs .*database"):
        store.index("against")


@pytest.mark.parametrize("scheme", ["postgresql+psycopg2://", "POSTGRES://", "postgres:", "x\n://"])
def test_a_refusal_shows_no_password_whatever_the_scheme(scheme):
    with pytest.raises(InputError, match="here/db is a database") as caught:
        open_store(f"{scheme}me:se@cr\net@here/db").index("against")
    assert "cr\net" not in str(caught.value)


def test_only_an_index_is_found(places, tmp_path):
    folder, url = places
    assert len(find_index(folder, "info")) == 40
    assert find_index(str(tmp_path), "info") is find_index("s3://bucket/model", "info") is None
    for name in (url, "postgresql://me:secret@here/db?table=rows"):
        with pytest.raises(InputError, match=r"info needs an index, and .* is a database") as caught:
            find_index(name, "info")
        assert "secret" not in str(caught.value)
    with pytest.raises(InputFileError, match="nothing is not an index"):
        open_store(str(tmp_path / "nothing")).hits(["a query"], 5)
    with pytest.raises(InputError, match=f"Name it first.*{folder} what"):
        open_store("what").hits([folder], 5)
