"""A server of Qdrant: what is sent to it, and what it refuses. It is a double that hands requests to the local mode."""

import json
import re
import threading
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from isosent.errors import InputError, IsosentWarning, OutputError
from isosent.search import Index
from isosent.search.engine import SearchSettings
from isosent.search.stores.database import DatabaseStore, open_database, pull, push
from isosent.search.where import matching_rows
from isosent.space import Space
from isosent.storage import Storage

qdrant_client = pytest.importorskip("qdrant_client")
models = pytest.importorskip("qdrant_client.http.models")

DIM = 16
LIMIT = 32 << 20  # bytes of a request
SPACE = Space("a" * 64, "made-up")


class Double:
    """The requests of a server by the local mode of its client, with what that leaves out: keys, limits, an index."""

    def __init__(self):
        self.local, self.key, self.requests, self.needed_ef = qdrant_client.QdrantClient(":memory:"), None, [], 0
        self.n_yellow, self.keeps_metadata, self.created = 0, True, {}

    def answer(self, method, path, body, key):
        self.requests.append((method, path, body))
        if self.key is not None and key != self.key:
            return 401, {"status": {"error": f"Invalid API key {key}"}}
        name, _, action = path.partition("?")[0].removeprefix("/collections/").partition("/")
        if not self.local.collection_exists(name) and action != "exists" and (method, action) != ("PUT", ""):
            return 404, {"status": {"error": f"Not found: Collection `{name}` doesn't exist!"}}
        result = getattr(self, f"{method.lower()}_{action.replace('/', '_')}")(name, body)
        return 200, {"result": result, "status": "ok"}

    def get_exists(self, name, _):
        return {"exists": self.local.collection_exists(name)}

    def get_(self, name, _):
        found = self.local.get_collection(name).model_dump(mode="json")
        self.n_yellow -= 1
        return found | {"status": "yellow" if self.n_yellow >= 0 else "green"}

    def put_(self, name, body):
        self.created[name] = body
        metadata = body.get("metadata") if self.keeps_metadata else None
        return self.local.create_collection(name, models.VectorParams(**body["vectors"]), metadata=metadata)

    def patch_(self, name, body):
        return self.local.update_collection(name, metadata=body["metadata"])

    def delete_(self, name, _):
        return self.local.delete_collection(name)

    def put_index(self, name, body):
        return {"operation_id": 0, "status": "completed"}

    def put_points(self, name, body):
        self.local.upsert(name, [models.PointStruct(**point) for point in body["points"]])
        return {"operation_id": 0, "status": "completed"}

    def post_points_delete(self, name, body):
        self.local.delete(name, models.PointIdsList(**body))
        return {"operation_id": 0, "status": "completed"}

    def post_points_count(self, name, body):
        chosen = body.get("filter") and models.Filter(**body["filter"])
        return {"count": self.local.count(name, chosen).count}

    def post_points_scroll(self, name, body):
        points, offset = self.local.scroll(
            name,
            limit=body["limit"],
            offset=body.get("offset"),
            with_payload=body["with_payload"],
            with_vectors=body["with_vector"],
        )
        return {"points": [point.model_dump(mode="json") for point in points], "next_page_offset": offset}

    def post_points_query(self, name, body):
        chosen = body.get("filter") and models.Filter(**body["filter"])
        points = self.local.query_points(
            name, body["query"]["nearest"], query_filter=chosen, limit=body["limit"]
        ).points
        if body["params"]["hnsw_ef"] < self.needed_ef:  # the graph misses the nearest row
            points = points[1:]
        return {"points": [point.model_dump(mode="json") for point in points]}


@pytest.fixture
def server():
    double = Double()

    class Handler(BaseHTTPRequestHandler):
        def respond(self):
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            if len(content) > LIMIT:
                status, answer = 413, {"status": {"error": "larger than allowed"}}
            else:
                body = json.loads(content) if content else None
                status, answer = double.answer(self.command, self.path, body, self.headers.get("api-key"))
            sent = json.dumps(answer | {"time": 0}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = respond  # noqa: N815

        def log_message(self, *_):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
    thread.start()
    double.url = f"qdrant:http://127.0.0.1:{listening.server_port}?table=docs-1"
    yield double
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)


@pytest.fixture
def index(wordllama, texts):
    return Index.create(
        texts[:60], wordllama, ids=[f"r{row}" for row in range(60)], metadata={"two words": list(range(60))}
    )


def test_an_index_goes_to_a_server_and_back(server, index, wordllama, tmp_path):
    said = []
    assert push(index, server.url, say=said.append) == (60, 0)
    assert push(index, server.url) == (0, 0)
    expected = index.search("somebody rides a horse", k=5)
    [table] = DatabaseStore(server.url, wordllama).search(
        "somebody rides a horse", 5, where="`two words` < 50 or `two words` >= 50"
    )
    assert table.column("id").to_pylist() == expected.ids[0].tolist()
    assert table.column("score").to_numpy() == pytest.approx(expected.scores[0], abs=1e-5)
    copy = pull(server.url, tmp_path / "copy", model=wordllama)
    for batch, other in zip(index.batches(), copy.batches(), strict=True):
        assert pa.table([batch["id"], batch["text"]], ["id", "text"]).sort_by("id") == pa.table(
            [other["id"], other["text"]], ["id", "text"]
        ).sort_by("id")
    indexed = {(body["field_name"], body["field_schema"]) for _, path, body in server.requests if "/index" in path}
    assert indexed == {
        ("id", "keyword"),
        ('"two words"', "integer"),
    }  # a server in strict mode filters by no other column
    index.remove(["r1"])
    assert push(index, server.url) == (0, 1)


@pytest.mark.parametrize(
    ("size", "codes", "candidates"),
    [
        ({"store": "float32"}, None, None),
        ({"store": "float16"}, None, None),
        ({"store": "int8"}, {"scalar": {"type": "int8", "always_ram": True}}, 2),
        ({"store": "binary"}, {"binary": {"always_ram": True}}, 10),
        ({"store": "product", "code_bytes": 12}, {"product": {"compression": "x4", "always_ram": True}}, 10),
        ({"store": "product", "code_bytes": 4}, {"product": {"compression": "x16", "always_ram": True}}, 10),
    ],
)
def test_codes_are_those_of_qdrant_that_are_nearest_to_the_size(server, size, codes, candidates):
    settings = SearchSettings(**size | {"store": Storage(size["store"])}, oversampling=candidates or 0)
    database = open_database(server.url)
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), DIM))])
    database.create(schema, SPACE, DIM, size=settings)
    sent = server.created["docs-1"]
    assert sent.get("quantization_config") == codes
    vectors = {"size": DIM, "distance": "Dot"}
    vectors |= {} if size["store"] == "float32" else {"datatype": "float16"}
    assert sent["vectors"] == vectors | ({"on_disk": True} if codes else {})
    database.search(np.ones((1, DIM), np.float32), 3)
    params = server.requests[-1][2]["params"]
    expected = None if codes is None else {"rescore": True, "oversampling": candidates}
    assert params.get("quantization") == expected
    database.close()


def test_a_push_waits_for_the_index_and_says_the_recall(server, wordllama, texts, monkeypatch):
    monkeypatch.setattr("isosent.search.stores.qdrant._WAIT", 0.01)
    server.needed_ef = 500  # 512 is the first effort that is enough
    said = []
    index = Index.create(texts[:80], wordllama)
    database = open_database(server.url)
    assert not database.exists
    database.close()
    server.n_yellow = 2  # the look at what was created is the first
    push(index, server.url, say=said.append)
    assert [line for line in said if "waiting" in line]
    assert re.search(r"recall@10: 1\.0000 .* hnsw_ef 512$", said[-1])
    DatabaseStore(server.url, wordllama).search("a cat", 3)
    assert server.requests[-1][2]["params"]["hnsw_ef"] == 512


def test_a_server_that_does_not_go_on_indexing_is_not_waited_for(server, wordllama, texts, monkeypatch):
    for name in ("_WAIT", "_LONGEST_WAIT"):
        monkeypatch.setattr(f"isosent.search.stores.qdrant.{name}", 0.01)
    server.n_yellow = 10**9
    index = Index.create(texts[:80], wordllama)
    with pytest.warns(IsosentWarning, match="recall is not measured"):
        assert push(index, server.url) == (80, 0)
    server.n_yellow, said = 0, []
    assert push(index, server.url, say=said.append) == (0, 0)
    assert "recall@10" in said[-1]


def test_requests_stay_below_the_limit_of_a_server(server):
    database = open_database(server.url)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.eye(6, DIM, dtype=np.float32).ravel()), DIM)
    texts = ["\u00e4" * 2_000_000] * 6  # 24 MB, and 72 MB where each letter is written as six
    batch = pa.table({"id": list(range(6)), "text": texts, "vector": vectors}).to_batches()[0]
    database.create(batch.schema, SPACE, DIM)
    database.add(batch)  # the double takes 32 MiB
    assert database.count == 6
    database.close()


def test_keys_are_sent_and_never_shown(server, index, wordllama, monkeypatch):
    server.key = "right-key"
    with pytest.raises(InputError, match=r"401.*QDRANT_API_KEY"):
        push(index, server.url)
    monkeypatch.setenv("QDRANT_API_KEY", "secret-key")
    with pytest.warns(UserWarning, match="insecure"), pytest.raises(InputError, match="QDRANT_API_KEY") as caught:
        push(index, server.url)
    assert "secret-key" not in str(caught.value)
    monkeypatch.setenv("QDRANT_API_KEY", "right-key")
    with pytest.warns(UserWarning, match="insecure"):
        assert push(index, server.url) == (60, 0)
    assert "right-key" not in json.dumps([body for _, _, body in server.requests])


@pytest.mark.parametrize(
    "url",
    [
        "qdrant:https://me:secret@host:6333",
        "qdrant:https://host:6333?api_key=secret",
        "qdrant:https://host:6333?table=a&api_key=secret",
        "qdrant://me:secret@host",
        "qdrant:https:/me:secret@host",
        "qdrant:ftp://host/secret",
        "qdrant:https://[secret",
        "qdrant:",
        "qdrant:dir?table=a/b",
    ],
)
def test_urls_that_cannot_be_used_are_refused_without_what_may_be_a_key(url):
    with pytest.raises(InputError, match="qdrant:") as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_or_keeps_no_space_is_named(server, index):
    with pytest.raises(InputError, match=r"127\.0\.0\.1:1\b"):
        push(index, "qdrant:http://127.0.0.1:1")
    server.keeps_metadata = False
    with pytest.raises(InputError, match=r"1\.16"):
        push(index, server.url)
    assert not server.local.collection_exists("docs-1")
    server.local.create_collection("docs-1", models.VectorParams(size=DIM, distance="Cosine"))  # somebody else's
    with pytest.raises(InputError, match="names no space"):
        push(index, server.url)
    assert server.local.count("docs-1").count == 0


def test_a_refused_write_says_how_to_go_on(server, index, monkeypatch):
    monkeypatch.setattr(f"{__name__}.LIMIT", 20_000)
    with pytest.raises(OutputError, match=r"larger than allowed.*push again"):
        push(index, server.url)
    monkeypatch.undo()
    assert push(index, server.url) == (60, 0)


def test_ids_of_points_are_those_of_the_rows_where_qdrant_has_such(server):
    uuid = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"
    for name, ids in {"a": ["x", uuid], "b": [7, 0]}.items():
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.eye(2, DIM, dtype=np.float32).ravel()), DIM)
        batch = pa.table({"id": ids, "vector": vectors}).to_batches()[0]
        database = open_database(server.url.replace("docs-1", name))
        database.create(batch.schema, SPACE, DIM)
        database.add(batch)
        points = {point.payload["id"]: point.id for point in server.local.scroll(name)[0]}
        assert set(points) == set(ids)
        assert all(points[name] == name for name in ids if name != "x")
        assert database.search(np.eye(1, DIM, dtype=np.float32), 1)[0].column("id").to_pylist() == ids[:1]
        assert database.delete([ids[0], ids[1]]) == 2
        database.close()


def on_engine(engine, parts):
    """A filter of the client, as JSON, for the engine of Qdrant."""
    if "key" in parts:
        if parts["match"] is not None:
            return engine.FieldCondition(parts["key"], match=engine.MatchValue(parts["match"]["value"]))
        bounds = {name: bound for name, bound in parts["range"].items() if bound is not None}
        is_time = isinstance(next(iter(bounds.values())), str)
        return engine.FieldCondition(
            parts["key"], range=(engine.RangeDateTime if is_time else engine.RangeFloat)(**bounds)
        )
    if "is_empty" in parts:
        return engine.IsEmptyCondition(parts["is_empty"]["key"])
    lists = {name: [on_engine(engine, part) for part in each] for name, each in parts.items() if each is not None}
    return engine.Filter(**lists)


@pytest.mark.parametrize("is_indexed", [False, True])
def test_the_engine_of_qdrant_finds_the_rows_of_a_filter(tmp_path, is_indexed):
    engine = pytest.importorskip("qdrant_edge")
    first = datetime(2021, 5, 31, 23, 30, tzinfo=UTC)
    times = [first + timedelta(hours=12 * n, microseconds=n) for n in range(4)]
    columns = {
        "id": ["a", "b", "c", "d", "e"],
        "big": pa.array([1234567890123456789, 1234567890123456788, -5, 0, None]),
        "price": [0.1, -3, 1e300, 19.99, None],
        "name": ["a", "B", "\u00e4", "x'y", None],
        "day": pa.array([date(2020, 1, 1 + n) for n in range(4)] + [None]),
        "at": pa.array([time.replace(tzinfo=None) for time in times] + [None], pa.timestamp("us")),
        "night": pa.array([*times, None], pa.timestamp("us", "Europe/Berlin")),
        "odd a.b[0] 'x'": [1, 2, 3, 4, None],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array([1.0] * 5, pa.float32()), 1),
    }
    table = pa.table(columns)
    database = open_database(f"qdrant:{tmp_path / 'local'}")
    database.create(table.schema, SPACE, 1)
    database.add(table.to_batches()[0])
    points, _ = database._client.scroll(database._name)
    sent = []  # the filters of searches
    database._client.query_points = lambda *_, query_filter, **__: (
        sent.append(query_filter) or SimpleNamespace(points=[])
    )
    config = engine.EdgeConfig(vectors=engine.EdgeVectorParams(size=1, distance=engine.Distance.Dot))
    (tmp_path / "shard").mkdir()
    shard = engine.EdgeShard.create(str(tmp_path / "shard"), config)
    kinds = {"id": "Keyword", "name": "Keyword", "price": "Float", "day": "Datetime", "at": "Datetime"}
    kinds |= {"night": "Datetime", "big": "Integer", "odd a.b[0] 'x'": "Integer"}
    for name, kind in kinds.items() if is_indexed else ():
        index = getattr(engine.PayloadSchemaType, kind)
        shard.update(engine.UpdateOperation.create_field_index(f'"{name}"', index))
    rows = [engine.Point(point.id, [1.0], point.payload) for point in points]
    shard.update(engine.UpdateOperation.upsert_points(rows))
    for where in (  # not of a truth value: the binding of Python sends a number
        "big = 1234567890123456789",
        "big < 1.5 and big <= 99999999999999999999999",
        "big in (1.5, 1234567890123456788, 18446744073709551615)",
        "big != 1.5 and not big > 1e300",
        "price = 0.1 or price >= 1e300 or price in (19.99, 3)",
        "name = 'x\\'y' or not name in ('a', '\u00e4')",
        "not (name = 'a' or big = 0) and not (name = 'c' and price = 1)",
        "day > '2020-01-02' or day in ('2020-01-01')",
        "at > '2021-06-01T11:30:00.000001'",
        "at in ('2021-05-31 23:30:00')",
        "night < '2021-06-01' or night = '2021-06-02T13:30:00.000003+02:00'",
        "`odd a.b[0] 'x'` > 2",
        "not (name is null or big > 0)",
        "id in ('d', 'e') and name is null",
    ):
        database.search(np.ones((1, 1), np.float32), 1, where=where)
        chosen = on_engine(engine, sent.pop().model_dump(mode="json"))
        found, _ = shard.scroll(engine.ScrollRequest(limit=100, filter=chosen, with_payload=True))
        expected = table["id"].to_numpy()[matching_rows(table, where)].tolist()
        assert 0 < len(expected) < 5
        assert sorted(row.payload["id"] for row in found) == expected, where
    shard.close()
    database.close()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the client itself
def test_a_folder_that_is_in_use_or_of_something_else_is_left_alone(tmp_path, index):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="no table"):
        _ = open_database(f"qdrant:{tmp_path}").space
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    other = qdrant_client.QdrantClient(path=str(tmp_path / "db"))
    with pytest.raises(InputError, match="already accessed"):
        push(index, f"qdrant:{tmp_path / 'db'}")
    other.close()
    said = []
    coarse = Index.create([f"texts about {n} horses" for n in range(120)], index.model, store="int8")
    push(coarse, f"qdrant:{tmp_path / 'db'}", say=said.append)
    assert any("no codes" in line for line in said)


def test_a_host_without_a_scheme_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address in ("localhost:6333", "10.0.0.1:6333/x"):
        with pytest.raises(InputError, match=f"qdrant:http://{address}"):
            open_database(f"qdrant:{address}?table=rows")
    assert not [*tmp_path.iterdir()]


def test_infinite_numbers_are_refused_by_column_and_id(server):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.eye(2, DIM, dtype=np.float32).ravel()), DIM)
    batch = pa.table({"id": ["a", "b"], "price": [1.5, -np.inf], "vector": vectors}).to_batches()[0]
    database = open_database(server.url)
    database.create(batch.schema, SPACE, DIM)
    with pytest.raises(InputError, match=r"-inf.*price.*'b'"):
        database.add(batch)
    assert database.count == 0
    database.close()
