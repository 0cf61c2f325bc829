"""PostgreSQL with pgvector as a store, on a server of its own."""

import datetime
import itertools
import json
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from isosent.errors import InputError, IsosentError, OutputError
from isosent.search import Index
from isosent.search.stores.database import push
from isosent.search.stores.postgres import PostgresTable
from isosent.space import Space

psycopg = pytest.importorskip("psycopg")

SPACE = Space("ab" * 32, "wordllama")
OTHER = Space("cd" * 32, "hf:model")
N, DIM = 60, 8
_NUMBERS = itertools.count()


def units(n=N, dim=DIM, seed=0):
    rows = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rows(vectors, ids, *, texts=True, without_vector=(), **columns):
    mask = pa.array(np.isin(np.arange(len(vectors)), without_vector))
    data = {"id": pa.array(ids)}
    if texts:
        data["text"] = pa.array([f"word{i % 7} common" for i in range(len(vectors))])
    data |= columns
    data["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1], mask=mask)
    return pa.record_batch(data)


def names(n, start=0):
    return [f"r{i:03d}" for i in range(start, start + n)]


@pytest.fixture
def sql(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection.execute


@pytest.fixture
def table_url(postgres_url):
    return f"{postgres_url}&table=rows%25{next(_NUMBERS)}"


@pytest.fixture
def table(table_url):
    with closing(PostgresTable(table_url)) as opened:
        yield opened


@pytest.fixture
def filled(table):
    batch = rows(units(), names(N), number=pa.array(np.arange(N)), without_vector=[5])
    table.create(batch.schema, SPACE, DIM)
    table.add(batch)
    return table


def test_a_new_table_is_empty(table):
    assert not table.exists
    with pytest.raises(InputError, match=r"rows%\d+.*no such table"):
        table.space  # noqa: B018
    table.create(rows(units(), names(N)).schema, SPACE, DIM)
    assert table.exists
    assert table.count == 0
    assert table.dim == DIM
    assert table.space == SPACE
    assert list(table.batches(10)) == []
    [result] = table.search(units(1), 3)
    assert result.column_names == ["id", "score", "text"]
    assert len(result) == 0


@pytest.mark.parametrize("is_indexed", [False, True])
def test_search_gives_the_order_of_numpy(filled, is_indexed):
    if is_indexed:
        filled.finish()
        filled.finish()
    queries = units(4, seed=1)
    cosines = queries @ units().T
    cosines[:, 5] = -np.inf
    for result, expected in zip(filled.search(queries, 7), cosines, strict=True):
        order = np.argsort(-expected)[:7]
        assert result.column("number").to_pylist() == order.tolist()
        assert result.column("score").to_numpy() == pytest.approx(expected[order], abs=1e-6)
        assert result.column("text")[0].as_py() == f"word{order[0] % 7} common"
    assert [len(result) for result in filled.search(queries, N + 40)] == [N - 1] * 4
    assert len(filled.search(np.zeros((1, DIM), np.float32), 3)[0]) == 0


def test_rows_come_back_as_they_went(table):
    columns = {
        "number": pa.array([1, None, 3]),
        "share": pa.array([0.5, float("nan"), None]),
        "is_new": pa.array([True, False, None]),
        "day": pa.array([datetime.date(2026, 1, 2), None, None]),
        "at": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 6), None, None]),
        "at_utc": pa.array([datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), None, None]),
        '100% "odd" {table}': pa.array(["ä\\\t\n", "", None]).dictionary_encode(),
    }
    batch = rows(units(3), [30, 10, 20], without_vector=[1], **columns)
    table.create(batch.schema, SPACE, DIM)
    table.add(batch)
    back = pa.Table.from_batches(table.batches(2)).sort_by("id")
    sent = pa.Table.from_batches([batch]).sort_by("id").cast(back.schema)
    assert str(back) == str(sent)  # NaN is not equal to itself
    assert back.column("vector").null_count == 1
    assert [batch.to_pydict() for batch in table.batches(10, ["id"])] == [{"id": [10, 20, 30]}]
    assert table.delete([np.int64(10), 99]) == 1
    with pytest.raises(InputError, match="whole numbers"):
        table.delete(["x"])


def test_rows_with_the_same_ids_are_replaced(filled):
    batch = rows(units(20, seed=2), names(20, start=50), number=pa.array(np.arange(20) + 1000))
    filled.add(batch)
    assert filled.count == 70
    [result] = filled.search(units(20, seed=2)[:1], 1)
    assert result.to_pylist()[0]["number"] == 1000
    assert result.column("score")[0].as_py() == pytest.approx(1)
    assert filled.delete(["r050", "r050", "nobody"]) == 1
    assert filled.count == sum(map(len, filled.batches(50))) == 69


def test_columns_that_somebody_adds_keep_their_defaults(filled, table_url, sql):
    added = "ADD note text DEFAULT 'x', ADD twice bigint GENERATED ALWAYS AS (2 * number) STORED"
    sql(f'ALTER TABLE "{filled.table}" {added}')
    with closing(PostgresTable(table_url)) as again:
        again.add(rows(units(1), names(1), number=pa.array([21])))
        again.add(rows(units(1), names(1, start=1)))
        [first, second] = next(again.batches(2, ["number", "note", "twice"])).to_pylist()
    assert first == {"number": 21, "note": "x", "twice": 42}
    assert second == {"number": None, "note": "x", "twice": None}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_filter_hides_rows(filled, is_indexed):
    if is_indexed:
        filled.finish()
    [result] = filled.search(units(1), 100, where='number >= 50 and (text = "word1 common" or id in ("r059", "x"))')
    assert sorted(result.column("number").to_pylist()) == [50, 57, 59]
    [result] = filled.search(units(1), 100, where='number >= 58 or text = "%s"')
    assert sorted(result.column("id").to_pylist()) == ["r058", "r059"]
    for wrong in ("nothing = 1", 'number = "x"', "number ="):
        with pytest.raises(InputError, match="where"):
            filled.search(units(1), 1, where=wrong)
    assert len(filled.search(units(1), 3, where='text = "\'; DROP TABLE x; --"')[0]) == 0


def test_words_and_vectors_are_fused(filled):
    query = -units()[9:10]
    [result] = filled.search(query, 10, texts=["word2 common"])
    [by_vectors] = filled.search(query, N)
    assert any(text.startswith("word2") for text in result.column("text").to_pylist()[:2])
    scores = dict(zip(by_vectors.column("id").to_pylist(), by_vectors.column("score").to_pylist(), strict=True))
    for row in result.to_pylist():
        assert row["score"] == pytest.approx(scores.get(row["id"], 0))
    zero = np.zeros((1, DIM), np.float32)
    [words] = filled.search(zero, 20, texts=["word2"], where="number > 10")
    assert set(words.column("text").to_pylist()) == {"word2 common"}
    assert len(words) == 7
    [words] = filled.search(query, 3, texts=["unknown & words: (100% 'odd' \""])
    assert words.column("id").to_pylist() == by_vectors.column("id").to_pylist()[:3]


def test_words_need_texts(table):
    batch = rows(units(), list(range(N)), texts=False)
    table.create(batch.schema, SPACE, DIM)
    table.add(batch)
    assert table.search(units(1), 1)[0].to_pylist() == [{"id": 0, "score": pytest.approx(1)}]
    with pytest.raises(InputError, match="no texts"):
        table.search(units(1), 1, texts=["word"])


@pytest.mark.parametrize("options", ["", "&bits=true"])
def test_wide_vectors_are_halves_and_bits_are_ranked_again(table_url, options):
    dim = 2048 if not options else 256
    vectors = units(50, dim)
    batch = rows(vectors, names(50), texts=False)
    with closing(PostgresTable(table_url + options)) as table:
        table.create(batch.schema, SPACE, dim)
        table.add(batch)
        table.finish()
        queries = units(2, dim, seed=3) + 2 * vectors[:2]
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        for result, query in zip(table.search(queries, 5), queries, strict=True):
            order = np.argsort(-(vectors @ query))[:5]
            assert result.column("id").to_pylist() == [names(50)[i] for i in order]
            assert result.column("score").to_numpy() == pytest.approx((vectors @ query)[order], abs=1e-4)
        [back] = table.batches(100)
        assert back.column("vector").values.to_numpy() == pytest.approx(vectors.ravel(), abs=2**-11)


def test_another_space_or_width_is_refused(filled, table_url):
    schema = rows(units(), names(N)).schema
    with closing(PostgresTable(table_url)) as again:
        again.create(schema, SPACE, DIM)
        with pytest.raises(InputError, match=f"{SPACE.fingerprint[:16]}.*{OTHER.fingerprint[:16]}"):
            again.create(schema, OTHER, DIM)
        with pytest.raises(InputError, match=r"8 .*9"):
            again.create(schema, SPACE, 9)
        with pytest.raises(InputError, match=r"8 .*9"):
            again.add(rows(units(1, 9), ["x"]))
        with pytest.raises(InputError, match=r"8 .*9"):
            again.search(units(1, 9), 1)
        with pytest.raises(InputError, match="no column strange"):
            again.add(rows(units(1), ["x"], strange=pa.array([1])))
        with pytest.raises(InputError, match="number is int64"):
            again.add(rows(units(1), ["x"], number=pa.array(["x"])))
        with pytest.raises(InputError, match="NUL"):
            again.add(rows(units(1), ["x\0"]))
    assert filled.count == N


def test_the_server_refuses_vectors_that_do_not_say_their_space(filled, sql):
    write = f"INSERT INTO \"{filled.table}\" (id, vector) VALUES ('new', '[1,0,0,0,0,0,0,0]')"
    for statement in (write, f'UPDATE "{filled.table}" SET number = 1'):
        with pytest.raises(psycopg.errors.RaiseException, match=SPACE.fingerprint):
            sql(statement)
    sql(f"SET isosent.space = '{OTHER.fingerprint}'")
    with pytest.raises(psycopg.errors.RaiseException, match=f"{SPACE.fingerprint}.*{OTHER.fingerprint}"):
        sql(write)
    sql(f"SET isosent.space = '{SPACE.fingerprint}'")
    sql(write)
    assert filled.count == N + 1


def test_a_table_that_is_not_ours_is_left_alone(table, table_url, sql):
    sql(f'CREATE TABLE "{table.table}" (id int)')
    with closing(PostgresTable(table_url)) as theirs:
        assert not theirs.exists
        for use in (lambda: theirs.count, lambda: theirs.create(rows(units(), names(N)).schema, SPACE, DIM)):
            with pytest.raises(InputError, match=rf"{table.table}.*not a table of isosent"):
                use()


@pytest.mark.parametrize(
    ("column", "word"),
    [(pa.array([[1]]), "list<"), (pa.array([b"x"]), "binary")],
)
def test_columns_that_a_table_cannot_hold_are_named(table, column, word):
    with pytest.raises(InputError, match=f"odd is {word}"):
        table.create(rows(units(1), ["x"], odd=column).schema, SPACE, DIM)
    with pytest.raises(InputError, match="4,001"):
        table.create(rows(units(1), ["x"]).schema, SPACE, 4001)
    assert not table.exists


@pytest.fixture
def with_password(postgres_url, sql):
    """URL of a role that needs a password."""
    folder = Path(sql("SHOW data_directory").fetchone()[0])
    settings = (folder / "pg_hba.conf").read_text()
    if "secretary" not in settings:
        (folder / "pg_hba.conf").write_text("local all secretary scram-sha-256\n" + settings)
        sql("CREATE ROLE secretary LOGIN PASSWORD 'pass:word'")
        for _ in range(600):
            sql("SELECT pg_reload_conf()")  # the server reads it some time after that
            try:
                psycopg.connect(postgres_url.replace("postgres:@", "secretary:wrong@")).close()
            except psycopg.OperationalError as error:
                if "password" in str(error):
                    break
            time.sleep(0.05)
        else:
            raise TimeoutError("the server asks for no password: " + (folder / "log").read_text()[-3000:])
    return lambda password: postgres_url.replace("postgres:@", f"secretary:{password}@")


def test_a_reader_can_search_and_not_write(filled, with_password, sql):
    sql(f'GRANT SELECT ON "{filled.table}" TO secretary')
    with closing(PostgresTable(f"{with_password('pass%3Aword')}&table={filled.table.replace('%', '%25')}")) as reader:
        assert reader.count == N
        assert len(reader.search(units(1), 3, texts=["word2"])[0]) == 3
        assert sum(batch.num_rows for batch in reader.batches(20)) == N
        for write in (lambda: reader.delete(["r001"]), lambda: reader.add(rows(units(1), ["x"])), reader.finish):
            with pytest.raises(OutputError, match=r"permission|owner"):
                write()
    another = PostgresTable(f"{with_password('pass%3Aword')}&table=another")
    with closing(another), pytest.raises(OutputError, match="permission"):
        another.create(rows(units(1), ["x"]).schema, SPACE, DIM)


@pytest.mark.parametrize(
    "address",
    [
        "WITH_PASSWORD",
        "postgresql://me:hush%21hush@localhost:1/db?connect_timeout=2",
        "postgresql://me@localhost:1/db?password=hush%21hush",
        "postgresql://me:hush!hush@there@localhost/db",
        "postgresql://me:hush!hush/there@localhost/db",
        "postgresql://me:hush!hush?there@localhost/db",
        "postgresql://me:hush!hush%zz@localhost/db",
        "postgresql://me:hush!hush@[::1/db",
        "postgresql://me:hush!hush@localhost:port/db",
        "me:hush!hush@localhost/db",
    ],
)
def test_passwords_are_never_shown(address, with_password):
    address = with_password("hush!hush") if address == "WITH_PASSWORD" else address
    with pytest.raises(InputError) as raised:
        PostgresTable(address)
    assert "hush" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_options_of_the_url_reach_the_server(table_url):
    options = "options=-c%20maintenance_work_mem=123MB%20-c%20work_mem%3D5MB"
    with closing(PostgresTable(f"{table_url}&{options}")) as table:
        settings = table._run("SELECT current_setting('maintenance_work_mem'), current_setting('work_mem')")
        assert settings.fetchone() == ("123MB", "5MB")


@pytest.mark.parametrize("option", ["colour=red", "password=hush%zz", "password=a&hush!hush", "connect_timeout"])
def test_options_that_cannot_be_read_are_no_question_of_the_password(postgres_url, option):
    with pytest.raises(InputError, match="options") as raised:
        PostgresTable(f"{postgres_url}&{option}")
    assert "of the password" not in str(raised.value)
    assert "hush" not in str(raised.value)
    assert ("colour" in str(raised.value)) == ("colour" in option)


def test_what_is_wrong_with_the_server_is_said(postgres_url):
    with pytest.raises(InputError, match=r"nowhere.*does not exist"):
        PostgresTable(postgres_url.replace("/postgres?", "/nowhere?"))
    for option in ("table=", "table=" + 51 * "x", "bits=1", "unknown=1"):
        with pytest.raises(InputError):
            PostgresTable(f"{postgres_url}&{option}")


def test_two_writers_wait_for_each_other(filled, table_url):
    errors = []

    def write(seed):
        try:
            with closing(PostgresTable(table_url)) as writer:
                for number in range(5):
                    order = np.random.default_rng(seed + number).permutation(N)
                    ids = [names(N)[i] for i in order]
                    writer.add(rows(units(seed=seed), ids, number=pa.array(np.full(N, 100 * seed + number))))
        except IsosentError as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=[seed]) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    assert filled.count == N
    [batch] = filled.batches(N)
    assert len(set(batch.column("number").to_pylist())) == 1


KILLED = """
import os, sys
sys.path[:0] = [sys.argv[2]]
import test_postgres as t
table = t.PostgresTable(sys.argv[1])
table.add(t.rows(t.units(20), t.names(20, start=100)))
vectors = table._vector_values
def killed(column):
    values = vectors(column)
    return (value if row < 15 else os._exit(9) for row, value in enumerate(values))
table._vector_values = killed
table.add(t.rows(t.units(20), t.names(20, start=200)))
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_batches(filled, table_url):
    command = [sys.executable, "-c", KILLED, table_url, str(Path(__file__).parent)]
    assert subprocess.run(command, timeout=60).returncode == 9
    assert filled.count == N + 20
    filled.add(rows(units(20), names(20, start=200)))
    assert filled.count == N + 40


# -- the HNSW index --------------------------------------------------------------------------------------------------

BUILDS = """
import sys
sys.path[:0] = [sys.argv[2]]
import test_postgres as t
t.PostgresTable(sys.argv[1]).finish()
"""


def indexes(sql, table):
    query = (
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam "
        "WHERE indrelid = to_regclass(quote_ident(%s)) AND amname = 'hnsw' AND indisvalid ORDER BY 1"
    )
    return [name for (name,) in sql(query, [table]).fetchall()]


def until(condition):
    for _ in range(1200):
        if result := condition():
            return result
        time.sleep(0.05)
    raise AssertionError("waited for 60 seconds")


@pytest.mark.slow
def test_a_push_killed_while_it_builds_leaves_one_index(filled, table_url, postgres_url, sql):
    def builders():
        query = "SELECT pid FROM pg_stat_activity WHERE query LIKE %s AND wait_event_type = 'Lock'"
        return sql(query, [f'CREATE INDEX%"{filled.table}"%']).fetchone()

    with psycopg.connect(postgres_url) as writer:  # a build waits until this transaction ends
        writer.execute(f'LOCK TABLE "{filled.table}" IN ROW EXCLUSIVE MODE')
        command = [sys.executable, "-c", BUILDS, table_url, str(Path(__file__).parent)]
        with subprocess.Popen(command) as builder:
            [pid] = until(builders)
            builder.kill()
        said = []
        second = threading.Thread(target=filled.finish, kwargs={"say": said.append})
        second.start()
        until(lambda: said)
        assert f"process {pid} of the server" in said[0]
        # the server ends what nobody waits for, so that the second can begin
        until(lambda: builders() not in (None, (pid,)))
    second.join(60)
    assert indexes(sql, filled.table) == [f"{filled.table}_hnsw"]
    assert filled.count == N


def test_copies_of_the_index_are_dropped(filled, sql):
    def create(name, options=""):
        sql(f'CREATE INDEX "{name}" ON "{filled.table}" USING hnsw (vector vector_ip_ops) {options}')

    create("z old%")
    create("a copy%")
    create("finer", "WITH (m = 20)")
    create("broken%")
    sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = '\"broken%\"'::regclass")
    said = []
    filled.finish(say=said.append)
    assert indexes(sql, filled.table) == ["finer", "z old%"]
    assert sql("SELECT to_regclass('\"broken%\"')").fetchone() == (None,)
    assert ["a copy%" in said[0] or "a copy%" in said[1], len(said)] == [True, 2]
    sql('DROP INDEX "z old%", finer')


def test_indexes_of_others_are_left_alone_and_do_not_count(filled, sql):
    name = f"{filled.table}_hnsw"
    sql(f'ALTER TABLE "{filled.table}" ADD COLUMN title_vec vector({DIM})')
    for other, column in (("title%", "title_vec vector_ip_ops"), ("cosine", "vector vector_cosine_ops")):
        sql(f'CREATE INDEX "{other}" ON "{filled.table}" USING hnsw ({column}) WITH (ef_construction = 128)')
    sql(f"CREATE INDEX part ON \"{filled.table}\" USING hnsw (vector vector_ip_ops) WHERE id > 'r001'")
    others = ["cosine", "part", "title%"]
    said = []
    filled.finish(say=said.append)
    assert indexes(sql, filled.table) == sorted([*others, name])
    sql(f'DROP INDEX "{name}"')
    filled.finish(say=said.append)
    assert indexes(sql, filled.table) == sorted([*others, name])
    assert not any("dropped" in sentence for sentence in said)
    sql(f'DROP INDEX cosine, part, "title%"; ALTER TABLE "{filled.table}" DROP COLUMN title_vec')


def clustered(n, seed=0):
    centers, noise = units(400, 128), units(n, 128, seed=seed + 1)
    rows = 0.6 * centers[np.random.default_rng(seed).integers(400, size=n)] + noise
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def overlap(table, queries, vectors, k=10):
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :k]
    hits = [result.column("id").to_pylist() for result in table.search(queries, k)]
    return np.mean([len(set(found) & set(best)) / k for found, best in zip(hits, exact.tolist(), strict=True)])


@pytest.fixture(scope="module")
def many(postgres_url):
    """An index of vectors in clusters, URL of the table that a push made, vectors, and what was said."""
    vectors, said = clustered(3000), []
    url = f"{postgres_url}&table=many"
    index = Index.from_batches([rows(vectors, list(range(3000)), texts=False)], space=SPACE, dim=128)
    push(index, url, say=said.append)
    return index, url, vectors, said


def test_a_push_states_the_recall_and_searches_reach_it(many, sql):
    index, url, vectors, [said] = many
    assert "recall@10: 0.99" in said or "recall@10: 1.0" in said
    tuning = json.loads(sql("SELECT obj_description('many'::regclass)").fetchone()[0])["tuning"]
    assert tuning["recall"] >= 0.99
    assert f"ef_search {tuning['effort']}" in said
    assert tuning["effort"] > 40  # the default of pgvector
    with closing(PostgresTable(url)) as table:
        assert overlap(table, clustered(100, seed=7), vectors) >= 0.97
        assert overlap(table, clustered(20, seed=7), vectors, k=60) >= 0.9
    again = []
    push(index, url, say=again.append)
    assert again == [said]


@pytest.mark.parametrize("is_role", [True, False])
def test_what_the_user_has_set_is_left_as_it_is(many, sql, is_role):
    index, url, vectors, _ = many
    said = []
    if is_role:
        sql("ALTER ROLE postgres SET hnsw.ef_search = 12")
    try:
        url += "" if is_role else "&options=-c%20hnsw.ef_search=12"
        with closing(PostgresTable(url)) as table:
            assert overlap(table, clustered(100, seed=7), vectors) < 0.95
        push(index, url, say=said.append)
    finally:
        sql("ALTER ROLE postgres RESET hnsw.ef_search")
    assert "hnsw.ef_search is 12" in said[1]
    assert ("role" if is_role else "connection") in said[1]


def test_the_recall_of_bits_is_stated(many, postgres_url, sql):
    index, _, vectors, _ = many
    said = []
    push(index, f"{postgres_url}&table=many_bits&bits=true", say=said.append)
    recall = float(said[0].split("recall@10: ")[1].split()[0])
    assert ("no setting" in said[-1]) == (recall < 0.99)
    with closing(PostgresTable(f"{postgres_url}&table=many_bits")) as table:
        assert overlap(table, clustered(100, seed=7), vectors) == pytest.approx(recall, abs=0.03)


def test_the_recall_is_measured_again_when_many_rows_have_changed(postgres_url, sql):
    def pushed(n, seed):
        vectors = np.vstack([units(200, seed=1), units(n, seed=seed)])
        batch = rows(vectors, list(range(len(vectors))), texts=False)
        push(Index.from_batches([batch], space=SPACE, dim=DIM), f"{postgres_url}&table=changed", say=said.append)
        return json.loads(sql("SELECT obj_description('changed'::regclass)").fetchone()[0])["tuning"]

    said = []
    tunings = [pushed(0, 2), pushed(15, 2), pushed(15, 3)]
    assert [(each["n_rows"], each["n_changed"]) for each in tunings] == [(200, 0), (200, 15), (215, 0)]
    assert "15 rows have changed since" in said[1]


def test_a_text_that_cannot_be_stored_is_named_and_its_part_not_written(postgres_url, sql):
    ids, vectors = names(9000), units(9000)
    notes = ["fine"] * 8999 + ["a\0b"]

    def index():
        batch = rows(vectors, ids, texts=False, note=pa.array(notes).dictionary_encode())
        return Index.from_batches([batch], space=SPACE, dim=DIM)

    with pytest.raises(InputError, match=r"note of the row 'r8999'.*NUL"):
        push(index(), f"{postgres_url}&table=nul")
    assert sql("SELECT count(*) FROM nul").fetchone() == (8192,)
    notes[-1] = "ab"
    assert push(index(), f"{postgres_url}&table=nul") == (808, 0)
