"""Indexes in databases: every backend keeps the promises of the protocol."""

import datetime
import signal
import subprocess
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from isosent.errors import InputError, IsosentWarning
from isosent.numeric.canary import Canary
from isosent.numeric.similarity import unit_rows
from isosent.search import Index
from isosent.search.stores.database import DatabaseStore, open_database, pull, push
from isosent.search.where import matching_rows
from isosent.space import Space

SPACE = Space("a" * 64, "made-up")
DIM = 8


PACKAGES = {"lance": "lancedb", "qdrant": "qdrant_client"}


@pytest.fixture(params=["lance", "postgres", "qdrant"])
def url(request, tmp_path):
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
        return f"{request.param}:{tmp_path / 'db'}"
    table = f"rows_{abs(hash(request.node.name)) % 10**9}"
    address = request.getfixturevalue("postgres_url")
    return f"{address}{'&' if '?' in address else '?'}table={table}"


@pytest.fixture
def database(url):
    database = open_database(url)
    yield database
    database.close()


def rows(numbers, *, seed=0, ids=str):
    vectors = unit_rows(np.random.default_rng(seed).normal(size=(200, DIM)).astype(np.float32))[numbers]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
    batch = {
        "id": [ids(number) for number in numbers],
        "text": [f"row {number} of {'cats' if number % 3 else 'dogs'}" for number in numbers],
        "year": [2000 + number for number in numbers],
        "vector": lists,
    }
    return pa.table(batch).to_batches()[0]


def ids_in(database):
    return [name for batch in database.batches(50, ["id"]) for name in batch.column(0).to_pylist()]


def search_with_words(database, query, k, words, **options):
    """The hits by vectors and words; None after the refusal of a database that cannot rank by words."""
    if database.name.partition(" of ")[2].startswith("qdrant:"):
        with pytest.raises(InputError, match=r"hybrid.*PostgreSQL"):
            database.search(query, k, texts=words, **options)
        return None
    return database.search(query, k, texts=words, **options)[0]


def vectors_of(batch):
    return np.stack(batch.column("vector").to_pylist()).astype(np.float32)


@pytest.mark.parametrize("ids", [str, int])
def test_rows_are_found_in_the_order_of_their_cosines(database, ids):
    batch = rows(range(50), ids=ids)
    assert not database.exists
    database.create(batch.schema, SPACE, DIM)
    assert database.exists
    assert (database.space.fingerprint, database.dim, database.count) == (SPACE.fingerprint, DIM, 0)
    database.add(batch)
    database.finish()
    queries = vectors_of(rows(range(100, 104)))
    cosines = queries @ vectors_of(batch).T
    for table, scores in zip(database.search(queries, 5), cosines, strict=True):
        order = np.argsort(-scores)[:5]
        assert table.column("id").to_pylist() == [ids(number) for number in order]
        assert_allclose(table.column("score").to_numpy(), scores[order], atol=1e-5)
        assert table.column("year").to_pylist() == [2000 + number for number in order]
    assert database.search(queries[:1], 500)[0].num_rows == 50


def test_of_equal_rows_those_with_the_first_ids_are_returned(database):
    numbers = np.random.default_rng(0).permutation(120)
    batch = pa.Table.from_batches([rows(numbers % 4, ids=int)]).drop_columns("id")
    batch = batch.add_column(0, "id", pa.array(numbers)).to_batches()[0]
    database.create(batch.schema, SPACE, DIM)
    database.add(batch)
    [found] = database.search(vectors_of(rows([2])), 7)
    assert found.column("id").to_pylist() == [2, 6, 10, 14, 18, 22, 26]


def test_rows_are_replaced_and_deleted(database):
    database.create(rows(range(9)).schema, SPACE, DIM)
    database.add(rows(range(9)))
    database.add(rows(range(6, 12), seed=1))
    assert database.count == 12
    assert sorted(ids_in(database)) == sorted(map(str, range(12)))
    assert database.search(vectors_of(rows([7], seed=1)), 1)[0].column("id").to_pylist() == ["7"]
    assert database.delete(["3", "4", "nobody"]) == 2
    assert database.delete([]) == 0
    assert database.count == 10
    found = pa.Table.from_batches(database.batches(4)).sort_by("id")
    assert found.column("id").to_pylist() == sorted(set(map(str, range(12))) - {"3", "4"})
    assert set(found.column_names) == {"id", "text", "year", "vector"}


def test_filters_and_words(database):
    database.create(rows(range(60)).schema, SPACE, DIM)
    database.add(rows(range(60)))
    database.finish()
    query = vectors_of(rows([7]))
    [table] = database.search(query, 60, where="year >= 2050 and not id in ('55')")
    assert sorted(table.column("id").to_pylist()) == sorted(set(map(str, range(50, 60))) - {"55"})
    text = rows([7])["text"][0].as_py()
    [table] = database.search(query, 3, where=f"text = '{text}'")
    assert table.column("text").to_pylist() == [text]
    both = search_with_words(database, query, 3, ["dogs 33"], where=f"text = '{text}'")
    if both is not None:
        assert both.column("text").to_pylist() == [text]
        [table] = database.search(query, 3, texts=["dogs 33"])
        assert "33" in table.column("id").to_pylist()
        [table] = database.search(query, 3, texts=['a "quoted" (odd) query: with & signs | \' here'])
        assert table.num_rows == 3
    with pytest.raises(InputError, match="colour"):
        database.search(query, 3, where="colour = 1")


def test_filters_give_the_same_rows_everywhere(database, url):
    is_qdrant = url.startswith("qdrant:")
    odd = "per%cent 'quote' a.b[0]" if is_qdrant else 'per%cent "quote"'

    def days(n_hours, tz=None):
        first = datetime.datetime(2021, 5, 31, 23, 30, tzinfo=datetime.UTC if tz else None)
        return pa.array(
            [first + datetime.timedelta(hours=n_hours * n) for n in range(4)] + [None], pa.timestamp("us", tz)
        )

    batch = rows(range(5))
    columns = {
        "big": pa.array([1234567890123456789, 1234567890123456788, -5, 0, None]),
        "small": pa.array([100, -3, 0, 1, None], pa.int8()),
        "price": [0.1, -3, 1e300, 19.99, None],
        "name": ["a", "B", "ä", "x'y", None],
        "tag": pa.array(["a", "b", "a", "c", None]).dictionary_encode(),
        "sold": [True, False, True, False, None],
        "day": pa.array([datetime.date(2020, 1, 1 + n) for n in range(4)] + [None]),
        "at": days(12),
        "night": days(1, "Europe/Berlin"),
        odd: [1, 2, 3, 4, None],
    }
    table = pa.table({"id": batch["id"], **columns, "vector": batch["vector"]})
    database.create(table.schema, SPACE, DIM)
    database.add(table.to_batches()[0])
    database.finish()
    query = vectors_of(rows([7]))
    for where in (
        "big = 1234567890123456789",
        "big < 1.5 and big <= 99999999999999999999999",
        "big in (1.5, 1234567890123456788, 18446744073709551615)",
        "big != 1.5 and not big > 1e300",
        "small < 1000 and small > -2.5 and small not in (2.5, 1e300)",
        "price = 0.1 or price >= 1e300 or price in (19.99, 3)",
        "name = 'x\\'y' or not tag in ('a', 'b')",
        "not (name = 'a' or big = 0) and not (tag = 'c' and sold = true)",
        "sold != true",
        "day > '2020-01-02' or day in ('2020-01-01')",
        "at >= '2021-06-01T11:30' and at < '2021-06-02'",
        "at in ('2021-05-31 23:30:00')",
        "night < '2021-06-01' or night = '2021-06-01T03:30:00+01:00'",
        f"`{odd}` > 2",
        f"not (`{odd}` <= 2 or big >= 1e300)",
        "not (name is null or big > 0)",
    ):
        expected = table["id"].to_numpy()[matching_rows(table, where)].tolist()
        assert 0 < len(expected) < 5
        [found] = database.search(query, 5, where=where)
        assert sorted(found.column("id").to_pylist()) == expected
    for where in ("name < 'Z' or name = 'x\\'y'", "name >= 'b' or not tag in ('a', 'b')", "big < 1234567890123456789"):
        if is_qdrant:  # it has no order of texts, and rounds large numbers
            with pytest.raises(InputError, match=r"(?:name|big)\b.* with = or in"):
                database.search(query, 5, where=where)
        else:
            expected = table["id"].to_numpy()[matching_rows(table, where)].tolist()
            [found] = database.search(query, 5, where=where)
            assert sorted(found.column("id").to_pylist()) == expected
    for where in ("name = 3", "big = 'x'", "sold = 1", "day = 'yesterday'", "price = true", "vector = 1", "tag = '\0'"):
        with pytest.raises(InputError, match="where"):
            database.search(query, 5, where=where)


def test_rows_without_a_vector_are_kept_and_never_found(database):
    batch = rows(range(4))
    lists = pa.FixedSizeListArray.from_arrays(
        pa.array(vectors_of(batch).ravel()), DIM, mask=pa.array([False, True, False, False])
    )
    batch = batch.set_column(batch.schema.get_field_index("vector"), "vector", lists)
    database.create(batch.schema, SPACE, DIM)
    database.add(batch)
    assert database.count == 4
    assert sorted(database.search(vectors_of(rows([1])), 10)[0].column("id").to_pylist()) == ["0", "2", "3"]
    found = pa.Table.from_batches(database.batches(2)).sort_by("id")
    assert found.column("vector").is_valid().to_pylist() == [True, False, True, True]


def test_a_query_without_a_vector_finds_words_only(database):
    database.create(rows(range(20)).schema, SPACE, DIM)
    database.add(rows(range(20)))
    database.finish()
    zero = np.zeros((1, DIM), np.float32)
    [table] = database.search(zero, 5)
    assert (table.num_rows, table.column_names) == (0, ["id", "score", "text", "year"])
    if (table := search_with_words(database, zero, 20, ["dogs"])) is None:
        return
    assert sorted(table.column("id").to_pylist()) == sorted(str(number) for number in range(0, 20, 3))
    assert set(table.column("score").to_pylist()) == {0}


@pytest.mark.parametrize(("there", "here"), [(str, int), (int, str)])
def test_ids_of_another_kind_are_refused(database, there, here):
    database.create(rows(range(3), ids=there).schema, SPACE, DIM)
    database.add(rows(range(3), ids=there))
    kinds = {str: "strings", int: "whole numbers"}
    with pytest.raises(InputError, match=rf"the table \w+ of .* are {kinds[there]}.* are {kinds[here]}"):
        database.add(rows(range(3), ids=here))
    assert sorted(ids_in(database)) == [there(number) for number in range(3)]


@pytest.mark.parametrize("ids", [[1, 2], ["1", "2"]])
def test_a_push_of_ids_of_another_kind_changes_nothing(url, wordllama, ids):
    texts = ["a cat", "a dog"]
    push(Index.create(texts, wordllama, ids=ids), url)
    other = [str(name) if isinstance(name, int) else int(name) for name in ids]
    with pytest.raises(InputError, match=r"whole numbers.*strings|strings.*whole numbers"):
        push(Index.create(texts, wordllama, ids=other), url)
    assert push(Index.create(texts, wordllama, ids=ids), url) == (0, 0)


def test_columns_of_a_table_are_kept_apart_from_those_of_a_hit(url, wordllama, tmp_path):
    metadata = {"score": [7, 8], "score_": [1, 2], "rank": ["x", "y"], "_x": [3, 4]}
    index = Index.create(["a cat", "a dog"], wordllama, metadata=metadata)
    push(index, url)
    [expected] = index.search("a dog", k=1).to_arrow().drop_columns(["query", "rank", "share"]).to_pylist()
    [table] = DatabaseStore(url, wordllama).search("a dog", 1, where="score = 8 and rank = 'y'")
    assert table.to_pylist() == [expected | {"score": pytest.approx(1)}]
    assert [expected[name] for name in ("score__", "score_", "rank_", "_x")] == [8, 2, "y", 4]
    assert next(pull(url, tmp_path / "copy").batches()).schema.names == next(index.batches()).schema.names


def test_columns_that_the_rows_lack_become_null(url, wordllama):
    texts = ["a cat", "a dog"]
    push(Index.create(texts, wordllama, metadata={"a": [1, 2]}), url)
    assert push(Index.create(texts, wordllama), url) == (2, 0)
    assert push(Index.create(texts, wordllama), url) == (0, 0)
    [table] = DatabaseStore(url, wordllama).search("a cat", 5)
    assert table.column("a").to_pylist() == [None, None]
    with pytest.raises(InputError, match="has no column b; it has: "):
        push(Index.create(texts, wordllama, metadata={"b": [1, 2]}), url)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_a_number_is_found_by_its_name_in_whatever_bits_it_came(url, wordllama, tmp_path, kind):
    prices = [0.1, 0.3, 4.7, None, float("nan")]
    column = pa.array(
        [None if each is None else np.dtype(kind).type(each) for each in prices], pa.from_numpy_dtype(kind)
    )
    index = Index.create(["a", "b", "c", "d", "e"], wordllama, metadata=pa.table({"price": column}))
    push(index, url)
    pulled = pull(url, tmp_path / "pulled", model=wordllama)
    assert next(pulled.batches()).column("price").cast("f8").to_pylist() == pytest.approx([0.1, 0.3, 4.7, None, None])
    for where, expected in (("price = 0.1", [0]), ("price <= 0.3", [0, 1]), ("price in (0.3, 4.7)", [1, 2])):
        [found] = DatabaseStore(url, wordllama).search("a", 5, where=where)
        ids = [index.search("a", where=where).ids[0], pulled.search("a", where=where).ids[0], found["id"].to_pylist()]
        assert [sorted(each for each in row if each >= 0) for row in ids] == [expected] * 3


def test_times_that_python_has_not(url, wordllama):
    times = pa.array([2**38, 0], pa.timestamp("s"))  # the year 10680
    index = Index.create(["a cat", "a dog"], wordllama, metadata={"at": times})
    if url.startswith("lance:"):
        assert push(index, url) == (2, 0)
        assert push(index, url) == (0, 0)
    else:
        with pytest.raises(InputError, match="the column at is timestamp"):
            push(index, url)


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "_distance", "_score", "_rowid"])
def test_names_that_lancedb_cannot_hold_are_refused_at_once(name, tmp_path):
    pytest.importorskip("lancedb")
    batch = rows(range(2)).append_column(name, pa.array([1, 2]))
    with pytest.raises(InputError, match="cannot have a column named"):
        open_database(f"lance:{tmp_path / 'db'}").create(batch.schema, SPACE, DIM)
    assert not (tmp_path / "db").exists()


def test_an_error_of_lancedb_names_no_file_of_its_source(tmp_path, monkeypatch):
    def connect(folder):
        raise RuntimeError("lance error: not found: x.lance, /build/lance-13/src/table.rs:495:28\nBacktrace")

    monkeypatch.setattr(pytest.importorskip("lancedb"), "connect", connect)
    with pytest.raises(InputError, match=r"x\.lance$"):
        open_database(f"lance:{tmp_path}")


def test_reading_creates_no_folder(tmp_path, wordllama):
    pytest.importorskip("lancedb")
    url = f"lance:{tmp_path / 'db'}"
    for read in (lambda: DatabaseStore(url, wordllama).search("a cat"), lambda: pull(url, tmp_path / "copy")):
        with pytest.raises(InputError, match="no table"):
            read()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def index(wordllama, texts):
    metadata = {"year": list(range(2000, 2060)), "two words": [f"it's {row}" for row in range(60)]}
    return Index.create(texts[:60], wordllama, ids=[f"r{row}" for row in range(60)], metadata=metadata)


def test_an_index_is_pushed_searched_and_pulled(index, url, wordllama, texts, tmp_path):
    assert push(index, url) == (60, 0)
    assert push(index, url) == (0, 0)
    query = "somebody rides a horse"
    expected = index.search(query, k=5)
    [table] = DatabaseStore(url, wordllama).search(query, 5)
    assert table.column("id").to_pylist() == expected.ids[0].tolist()
    assert_allclose(table.column("score").to_numpy(), expected.scores[0], atol=1e-5)
    assert table.column_names == ["id", "score", "text", "year", "two words"]
    [same] = DatabaseStore(url, wordllama).search(wordllama.encode([query]), 5)
    assert same.column("id").to_pylist() == expected.ids[0].tolist()
    with pytest.raises(InputError, match="texts of the queries"):
        DatabaseStore(url, wordllama).search(wordllama.encode([query]), 5, hybrid=True)
    copy = pull(url, tmp_path / "copy", model=wordllama)
    assert copy.search(query, k=5).ids.tolist() == expected.ids.tolist()
    assert len(copy) == 60
    assert set(copy.search(query, k=1).to_arrow().column_names) == set(expected.to_arrow().column_names)


def test_the_first_query_of_a_table_warns_of_a_model_that_has_changed(index, url, wordllama, monkeypatch):
    push(index, url)
    database = open_database(url)
    stored = database.canary
    database.close()
    assert Canary.from_text("the table", stored).lowest_cosine(index.canary) == pytest.approx(1, abs=1e-3)
    DatabaseStore(url, wordllama).search("a cat", 1)  # unchanged: a warning would be an error
    other = Canary(None, np.roll(index.canary.queries, 1, axis=1))
    monkeypatch.setattr(type(wordllama.encoder), "canary_now", lambda self, *, of_first_query: other)
    with pytest.warns(IsosentWarning, match="has changed.*cosine"):
        DatabaseStore(url, wordllama).search("a cat", 1)
    for damaged in ("no base64", "AAAA", b64encode(np.full(14, np.nan, np.float16).tobytes())):
        with pytest.raises(InputError, match=r"the table.*fixed texts are damaged"):
            Canary.from_text("the table", damaged)


def test_a_push_leaves_exactly_the_rows_of_the_index(index, url, wordllama):
    push(index, url)
    index.remove(["r1", "r2"])
    index.add(["changed"], ids=["r3"], metadata={"year": [1]})
    other = next(index.batches(1)).drop_columns(["id"]).add_column(0, "id", pa.array(["somebody else's"]))
    database = open_database(url)
    database.add(other.append_column("isosent_digest", pa.array([None], pa.int64())))
    database.close()
    assert push(index, url) == (1, 3)
    database = open_database(url)
    assert database.count == 58
    [row] = [row for batch in database.batches(50) for row in batch.to_pylist() if row["year"] == 1]
    assert (row["id"], row["text"]) == ("r3", "changed")
    database.close()


KILLED = """
import os, signal, sys
from isosent.search import Index
from isosent.search.stores import database
database._PART_ROWS = 16
parts = []
def killed(done, total):
    parts.append(done)
    if len(parts) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
database.push(Index.open(sys.argv[1]), sys.argv[2], progress=killed)
"""


@pytest.mark.slow
def test_a_killed_push_is_resumed(index, url, tmp_path):
    index.save(tmp_path / "index")
    stopped = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "index"), url], timeout=120)
    assert stopped.returncode == -signal.SIGKILL
    database = open_database(url)
    assert database.count == 32
    database.close()
    assert push(index, url) == (28, 0)
    database = open_database(url)
    rows = {row["id"]: row for batch in database.batches(50) for row in batch.to_pylist()}
    assert len(rows) == database.count == 60
    database.close()
    for expected in (row for batch in index.batches() for row in batch.to_pylist()):
        assert {name: rows[expected["id"]][name] for name in expected} == expected


def test_two_pushes_at_once_write_every_row_once(index, url, monkeypatch):
    monkeypatch.setattr("isosent.search.stores.database._PART_ROWS", 8)
    for n_new in (60, 80):
        with ThreadPoolExecutor(2) as pool:
            written = [future.result()[0] for future in [pool.submit(push, index, url) for _ in range(2)]]
        assert n_new - 60 <= sum(written) <= 120
        database = open_database(url)
        assert database.count == n_new
        assert len(set(ids_in(database))) == n_new
        database.close()
        index.add([f"new {row}" for row in range(20)], ids=[f"new{row}" for row in range(20)])


def test_other_spaces_and_widths_are_refused(index, url, wordllama, texts):
    push(index, url)
    other = wordllama.fitted(texts, "whitening", settings={"n_components": 16})
    with pytest.raises(InputError, match=r"whitening.*wordllama|wordllama.*whitening"):
        push(Index.create(texts[:5], other), url)
    with pytest.raises(InputError, match="whitening"):
        DatabaseStore(url, other).search(["a query"])
    with pytest.raises(InputError, match="empty"):
        DatabaseStore(url, wordllama).search([" "])


def test_an_index_without_rows_is_not_pushed(url, wordllama):
    with pytest.raises(InputError, match="no rows"):
        push(Index.create([], wordllama), url)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:secret@host/db",
        "mysql://root:s@secret@host/db",
        "mysql://host/db?pass=secret",
        "postgresql:/me:sec!secret@host/db",
        "postgresql:me:secret@host/db",
        "me:secret@host/db",
        "lance:",
        "lance:dir?rows=1",
    ],
)
def test_other_urls_are_refused_without_their_password(url):
    with pytest.raises(InputError) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("option", ["password", "sslpassword"])
def test_a_password_among_the_options_is_never_shown(index, postgres_url, option, wordllama, texts):
    url = f"{postgres_url}&{option}=secret&table=with_{option}"
    push(index, url)
    with pytest.raises(InputError, match=f"table with_{option}") as caught:
        DatabaseStore(url, wordllama.fitted(texts, "whitening", settings={"n_components": 16})).search(["a query"])
    assert "secret" not in str(caught.value)


def test_a_table_that_is_not_there_is_named(url):
    database = open_database(url)
    with pytest.raises(InputError, match=r"isosent_rows|rows_\d+"):
        _ = database.space
    database.close()
