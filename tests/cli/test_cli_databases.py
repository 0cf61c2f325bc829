"""``isosent index push``, ``pull``, and ``search`` in a database."""

import json
import shutil

import numpy as np
import pytest

from isosent.search import Index


@pytest.fixture(scope="module")
def index(tmp_path_factory, wordllama, texts):
    folder = tmp_path_factory.mktemp("home") / "index"
    Index.create(texts[:40], wordllama, metadata={"year": list(range(40))}, folder=folder)
    return folder


@pytest.fixture
def here(index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(index, "index")
    return tmp_path


@pytest.mark.parametrize(("url", "package"), [("lance:db", "lancedb"), ("qdrant:db", "qdrant_client")])
def test_an_index_goes_to_a_database_and_back(isosent_, here, wordllama, url, package):
    pytest.importorskip(package)
    finished = isosent_("index", "push", "index", "--to", url)
    assert (finished.code, finished.out) == (0, "40 rows written, 0 deleted; 40 now\n")
    assert isosent_("index", "push", "index", "--to", url).out.startswith("0 rows written, 0 deleted")
    query = ("salt for the soup", "--where", "year < 20", "-k", "3", "--json")
    hits = ids(isosent_("search", url, *query, "-m", "wordllama"))
    assert len(hits) == 3
    np.save("query.npy", wordllama.encode(["salt for the soup"]))
    assert hits == ids(isosent_("search", url, "query.npy", *query[1:], "-m", "wordllama"))
    assert isosent_("index", "pull", url, "-o", "copy", "-m", "wordllama").code == 0
    assert hits == ids(isosent_("search", "index", *query)) == ids(isosent_("search", "copy", *query))


def test_a_pull_without_a_model_says_what_is_missing(isosent_, here):
    pytest.importorskip("lancedb")
    isosent_("index", "push", "index", "--to", "lance:db")
    pulled = isosent_("index", "pull", "lance:db", "-o", "copy")
    assert pulled.code == 0
    assert "no model" in pulled.err
    assert "-m wordllama" in pulled.err
    assert isosent_("search", "copy", "salt").code == 2
    assert "no model" not in isosent_("index", "pull", "lance:db", "-o", "other", "-m", "wordllama").err


@pytest.mark.parametrize(
    ("space", "words", "other"),
    [
        (("--space", "acme-1"), ["acme-1", "-m INDEX/model"], "-m acme-1"),
        (("--space", "acme/one"), ["-m acme/one, if", "INDEX/model"], "acme-1"),
        ((), ["index them again"], "-m unnamed"),
    ],
)
def test_a_pull_names_no_model_that_is_only_a_name(isosent_, here, space, words, other):
    pytest.importorskip("lancedb")
    np.save("vectors.npy", np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32))
    isosent_("index", "vectors.npy", *space, "-o", "named")
    isosent_("index", "push", "named", "--to", "lance:db")
    pulled = isosent_("index", "pull", "lance:db", "-o", "copy")
    assert pulled.code == 0
    assert all(word in pulled.err for word in words)
    assert other not in pulled.err


def ids(finished):
    [result] = json.loads(finished.out)["results"]
    return [hit["id"] for hit in result["hits"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("index", "push", "index", "--to", "postgresql://me:secret@127.0.0.1:1/db"), ["127.0.0.1", "connect"]),
        (("search", "postgresql://me:secret@127.0.0.1:1/db", "a query", "-m", "wordllama"), ["127.0.0.1", "connect"]),
        (("search", "mysql://me:secret@host/db", "a query", "-m", "wordllama"), ["mysql"]),
        (("search", "postgresql://me:secret@127.0.0.1/db", "a query"), ["-m MODEL"]),
        (("search", "postgresql:/me:secret@127.0.0.1/db", "a query"), ["-m MODEL"]),
        (("index", "add", "postgresql://me:secret@host/db", "texts.txt"), ["index add", "isosent index pull"]),
        (("index", "remove", "postgresql://me:secret@host/db?password=secret", "3"), ["index remove", "database"]),
        (("index", "compact", "postgres://me:secret@host/db"), ["index compact", "//host/db is a database"]),
        (("index", "verify", "POSTGRESQL://me:secret@host/db"), ["index verify", "//host/db is a database"]),
        (("index", "migrate", "lance:db", "--map", "map"), ["index migrate", "lance:db is a database"]),
        (("index", "push", "lance:db", "--to", "lance:other"), ["index push", "lance:db is a database"]),
        (("info", "postgresql://me:secret@host/db"), ["info", "//host/db is a database"]),
        (("migrate", "postgresql://me:secret@host/db", "wordllama"), ["migrate", "//host/db is a database"]),
        (("evaluate", "sts", "--data", ".", "-m", "lance:db"), ["evaluate", "lance:db is a database"]),
        (("serve", "postgresql://me:secret@host/db"), ["serve", "//host/db is a database"]),
        (("similarity", "a", "b", "-m", "mysql://me:secret@host/db"), ["mysql", "***"]),
        (("encode", "postgresql://me:secret@host/db", "-o", "v.npy"), ["***@host"]),
        (("index", "create", "https://me:secret@host/t.txt?password=secret"), ["--output"]),
        (("search", "postgresql:/me:secret@127.0.0.1/db", "a query", "--unique"), ["--unique", "127.0.0.1/db"]),
        (("index", "push", "index", "--to", "postgresql:/me:sec!secret@h/db"), ["postgresql"]),
        (("index", "push", "index", "--to", "mysql://h/?pass=secret"), ["mysql"]),
        (("search", "lance:copy", "a query", "-m", "wordllama"), ["lance:copy", "isosent_rows"]),
        (("index", "pull", "postgresql://me:sec@secret@127.0.0.1/db", "-o", "copy"), ["%40"]),
        (("index", "push", "index", "--to", "qdrant:https://me:secret@host"), ["qdrant:https", "QDRANT_API_KEY"]),
        (("index", "add", "qdrant:https://me:secret@host", "texts.txt"), ["index add", "host is a database"]),
        (("info", "qdrant:db?api_key=secret"), ["info", "qdrant:db is a database"]),
        (("index", "pull", "lance:nowhere", "-o", "copy"), ["lance:nowhere", "isosent_rows"]),
    ],
)
def test_a_database_that_cannot_be_used_is_named_without_its_password(isosent_, here, refuses, arguments, words):
    finished = isosent_(*arguments)
    refuses(finished, *words)
    assert "secret" not in finished.err
    assert not (here / "copy").exists()
