"""What the web page asks of the server."""

import io
import zipfile

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.demo import EXAMPLE
from isosent.evaluation.unlabelled import compare_on_texts
from isosent.numeric.similarity import cosine_matrix
from isosent.server import create_app, page


def tried(client, texts):
    response = client.post("/try", json={"texts": texts, "model": "wordllama"})
    assert response.status_code == 200, response.text
    return response.json()


def draw(client, made, **sliders):
    return client.post("/try/draw", json={"id": made["id"], "strength": 1.0, "dimensions": 20, "query": 0} | sliders)


def test_the_page_and_its_files_are_there(client):
    assert client.get("/").headers["Content-Type"].startswith("text/html")
    for name in ("app.js", "style.css", "theme.css", "icon.svg"):
        assert client.get(f"/page/{name}").status_code == 200
    for name in ("nothing.js", "%2e%2e%2fapp.py", "..%5capp.py"):
        assert client.get(f"/page/{name}").status_code == 404


def test_without_a_strength_and_a_cut_only_the_mean_changes(client, wordllama, texts):
    made = tried(client, texts[:100])
    vectors = wordllama.encode(texts[:100])
    assert np.allclose(made["before"]["matrix"], cosine_matrix(vectors[:24], vectors[:24]), atol=1e-3)
    answer = draw(client, made, strength=0.0, dimensions=made["rank"]).json()
    centered = vectors - vectors.mean(axis=0)
    assert np.allclose(answer["matrix"], cosine_matrix(centered[:24], centered[:24]), atol=2e-3)
    nearest = answer["neighbours"][0]
    assert nearest["after"]["rank"] == 1
    cosines = cosine_matrix(vectors[:1], vectors)[0]
    assert nearest["before"]["rank"] == 1 + int((cosines[1:] > cosines[nearest["row"]]).sum())
    assert sum(answer["histogram"]) == pytest.approx(1)


@pytest.mark.parametrize(
    "sliders", [{"strength": 1.1}, {"strength": -1}, {"dimensions": 0}, {"dimensions": 999}, {"query": 100}]
)
def test_sliders_beyond_their_ends_are_refused(client, texts, sliders):
    assert draw(client, tried(client, texts[:100]), **sliders).status_code == 422


def test_old_sets_are_forgotten(client, texts):
    first = tried(client, texts[:10])
    for _ in range(8):
        tried(client, texts[:10])
    response = draw(client, first)
    assert response.status_code == 404
    assert "Load them again" in response.json()["error"]["message"]


def test_the_sample_is_a_pool_of_languages_that_can_be_erased(client):
    plain, erased = (
        client.post("/try", json={"model": "wordllama", "erase_language": erase}).json() for erase in (False, True)
    )
    assert plain["n_texts"] == erased["n_texts"] == 800
    assert plain["before"] == erased["before"]
    assert plain["languages"][:5] == ["en", "de", "es", "fr", "en"]
    assert plain["texts"][plain["query"]] == EXAMPLE
    found = [
        draw(client, made, strength=0.25, dimensions=made["rank"]).json()["translated"] for made in (plain, erased)
    ]
    assert plain["before"]["translated"] < 0.1 < found[0] < found[1]
    assert client.post("/try", json={"erase_language": True, "model": "small"}).status_code == 200


def test_the_language_of_other_texts_is_not_known(client, texts):
    refused = client.post("/try", json={"texts": texts[:100], "erase_language": True})
    assert refused.status_code == 422
    assert "erase_language" in refused.json()["error"]["message"]
    made = tried(client, texts[:100])
    assert made["before"]["translated"] is None
    assert draw(client, made).json()["translated"] is None


def test_a_model_is_a_folder_in_a_zip(client, texts):
    made = tried(client, texts[:100])
    body = {"id": made["id"], "strength": 0.5, "dimensions": 8}
    response = client.post("/try/model", json=body)
    names = zipfile.ZipFile(io.BytesIO(response.content)).namelist()
    assert "isosent-model/model.json" in names
    assert all(name.startswith("isosent-model/") for name in names)


def test_a_model_in_a_zip_names_no_folder_of_its_texts(running, wordllama, texts):
    model = wordllama.fitted(texts, isosent.Whitening(8), source="/a secret/corpus.txt")
    app, keys = create_app({"wordllama": model}, keys=["k" * 20]), {"api-key": "k" * 20}
    with (
        running(app) as port,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=60, headers=keys
        ) as client,
    ):
        body = {"id": tried(client, texts[:100])["id"], "strength": 0.5, "dimensions": 4}
        content = client.post("/try/model", json=body).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        document = archive.read("isosent-model/model.json")
    assert b"corpus.txt" in document
    assert b"secret" not in document


@pytest.mark.parametrize(
    ("query", "content", "status"),
    [
        ("name=a.txt", b"one line\nanother line\na third\n", 200),
        ("name=a.csv&column=b", b"a,b\n1,first\n2,second\n3,third\n", 200),
        ("name=a.csv&column=c", b"a,b\n1,first\n", 422),
        ("name=a.jsonl", b"{broken", 422),
        ("name=../../etc/passwd", b"one\ntwo\nthree\n", 200),
        ("name=a.txt", b"", 422),
        ("", b"\0\0\0", 422),
        ("name=a.txt&model=none", b"one\ntwo\nthree\n", 404),
    ],
)
def test_files_are_read_or_refused(client, query, content, status):
    response = client.post(f"/try/file?{query}", content=content)
    assert response.status_code == status, response.text
    assert "/tmp" not in response.text


def test_too_many_texts_are_refused(client):
    response = client.post("/try/file?name=a.txt", content=b"a\n" * 20_001)
    assert response.status_code == 413


def test_models_are_compared_without_labels(client, texts):
    body = {"model_a": "wordllama", "model_b": "small", "texts": texts[:200]}
    answer = client.post("/compare", json=body).json()
    assert answer["verdict"] in ("better", "worse", "cannot tell")
    assert answer["low"] <= answer["difference"] <= answer["high"]
    assert answer["difference"] == pytest.approx(answer["score_b"] - answer["score_a"])
    same = client.post("/compare", json=body | {"model_b": "wordllama"}).json()
    assert same["verdict"] == "cannot tell"
    few = client.post("/compare", json=body | {"texts": texts[:5]})
    assert few.status_code == 422


def test_the_status_lists_models_and_limits(client):
    status = client.get("/status").json()
    assert [model["name"] for model in status["models"]] == ["small", "wordllama", "notes"]
    assert status["models"][2]["rows"] == 5
    assert all(model["recall"] is None for model in status["models"])  # five texts are too few to measure it
    assert len(status["limits"]) == 6


@pytest.mark.parametrize("name", ["con.csv%00", "%00", "a.parquet%00.csv", "a.csv%0a", "%1b.txt"])
def test_names_that_no_file_can_have_are_refused(client, name):
    response = client.post(f"/try/file?name={name}", content=b"one\ntwo\nthree\n")
    assert response.status_code == 422
    assert "name" in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["a" * 3000, ".csv", "%ff.tsv", "nul", "a.CSV", "a.nothing"])
def test_strange_names_change_nothing(client, name):
    assert client.post(f"/try/file?name={name}", content=b"one\ntwo\nthree\nfour\n").status_code == 200


def parquet_of(texts):
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), file, compression="zstd", use_dictionary=False)
    return file.getvalue()


def test_a_table_of_too_many_rows_is_not_decoded(client, monkeypatch):
    monkeypatch.setattr(page, "read_texts", None)
    content = parquet_of(["a text"] * 20_001)
    response = client.post("/try/file?name=a.parquet", content=content)
    assert response.status_code == 413
    assert "20001 texts" in response.json()["error"]["message"]


def test_texts_that_unpack_to_more_than_a_few_requests_are_refused(client):
    texts = [str(number) + "a b " * 100_000 for number in range(4)]
    assert client.post("/try/file?name=a.parquet", content=parquet_of(texts)).status_code == 413
    assert client.post("/try/file?name=a.parquet", content=parquet_of(["one", "two", "three"])).status_code == 200


def test_a_comparison_takes_turns_in_the_queues_of_its_models(client, wordllama, small, texts):
    body = {"model_a": "wordllama", "model_b": "small", "texts": texts[:200]}
    answer = client.post("/compare", json=body).json()
    expected = compare_on_texts(wordllama, small, texts[:200])
    assert answer["n_texts"] == expected.n_texts
    assert answer["difference"] == pytest.approx(expected.difference, abs=1e-3)
    for name in ("model_a", "model_b"):
        assert client.post("/compare", json=body | {name: "none"}).status_code == 404
    assert client.post("/compare", json=body | {"texts": ["too short"] * 50}).status_code == 422
