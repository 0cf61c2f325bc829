"""Commands with a model that is an embedding API, in front of one on loopback."""

import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from fake_api import Answer, FakeApi, texts_in

import isosent
from isosent.api.cache import VectorCache
from isosent.numeric.canary import FIXED_TEXTS

TEXTS = isosent.demo_texts()[:320]


@pytest.fixture
def api():
    with FakeApi().running() as api:
        yield api


@pytest.fixture
def model(api, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, *TEXTS[:20]]))
    return f"api:{api.url}/v1?model=big&cache=paid"


def test_a_dry_run_says_what_would_be_sent_and_what_was_paid(isosent_, refuses, api, model, tmp_path):
    dry = ("encode", "texts.txt", "-m", model, "-o", "vectors.npy", "--dry-run")
    n_bytes = sum(len(text.encode()) for text in TEXTS)
    estimated = isosent_(*dry)
    assert estimated.code == 0, estimated.err
    assert "320 texts" in estimated.out
    assert f"about {round(n_bytes / 4):,} tokens" in estimated.out
    assert api.requests == []
    assert not (tmp_path / "vectors.npy").exists()
    encoded = isosent_(*dry[:-1])
    assert f"sent: 320 texts, {sum(map(len, TEXTS)):,} tokens; from the cache: 0 texts" in encoded.err
    np.testing.assert_array_equal(np.load("vectors.npy"), [api.vector_of(text) for text in [*TEXTS, *TEXTS[:20]]])
    n_requests = len(api.requests)
    again = isosent_(*dry)
    assert " 0 texts would be sent" in again.out
    assert "in the cache: 320 texts" in again.out
    assert len(api.requests) == n_requests
    facts = json.loads(isosent_("info", "paid", "--json").out)
    assert (facts["vectors"], facts["apis"][0]["n_texts"], facts["apis"][0]["dim"]) == (320, 320, api.dim)
    assert "320 vectors" in isosent_("info", "paid/vectors.sqlite").out
    refuses(isosent_("encode", "texts.txt", "-o", "vectors.npy", "--dry-run"), "wordllama", "no API")


def test_an_error_of_the_api_is_one_sentence_and_no_file_is_left(isosent_, refuses, api, model, tmp_path):
    api.misbehave = lambda body, n: Answer(404, {"error": {"message": "The model big does not exist"}})
    refuses(isosent_("encode", "texts.txt", "-m", model, "-o", "vectors.npy"), "404", "does not exist")
    assert not list(tmp_path.glob("*.npy"))
    refuses(isosent_("encode", "texts.txt", "-m", "api:openai", "-o", "vectors.npy"), "api:openai", "PROVIDER/MODEL")


def test_a_folder_and_an_index_name_what_permits_them_to_ask(isosent_, refuses, api, model):
    for command in (
        ("fit", "texts.txt", "-m", model, "--transform", "whitening", "--dims", 4, "-o", "small"),
        ("index", "texts.txt", "-m", "small?send_texts=true&cache=paid", "-o", "index"),
    ):
        assert isosent_(*command).code == 0
    n_requests = len(api.requests)
    assert json.loads(isosent_("info", "small", "--json").out)["dim"] == 4
    refuses(isosent_("encode", "texts.txt", "-m", "small", "-o", "x.npy"), api.url, "send_texts=true")
    refuses(isosent_("search", "index", "a man"), api.url, f"-m 'api:{api.url}/v1?model=big")
    assert len(api.requests) == n_requests
    found = isosent_("search", "index", TEXTS[7], "-m", model, "-k", 1)
    assert TEXTS[7] in found.out, found.err


def test_what_a_fit_has_paid_is_not_paid_again_by_its_folder(isosent_, refuses, api, model, tmp_path):
    fitted = isosent_("fit", "texts.txt", "-m", model, "--transform", "whitening", "--dims", 4, "-o", "small")
    assert "sent: 320 texts" in fitted.err
    n_requests = len(api.requests)
    encode = ("encode", "texts.txt", "-o", "vectors.npy", "-m")
    for permitted in ("small?send_texts=true", "small?send_texts=true"):
        refuses(isosent_(*encode, permitted), "cache=", str(tmp_path / "paid"))
    refused = isosent_(*encode, "small")
    named = refused.err.split("'")[1].replace("FOLDER", "small")
    finished = isosent_(*encode, named)
    assert "sent: 0 texts, 0 tokens; from the cache: 320 texts" in finished.err
    assert len(api.requests) == n_requests
    (tmp_path / "paid").rename(tmp_path / "elsewhere")  # or the folder is on another machine
    assert "sent: 320 texts" in isosent_(*encode, "small?send_texts=true").err


def test_what_was_paid_is_said_of_several_apis_and_next_to_json(isosent_, api, model):
    with FakeApi(dim=16).running() as other:
        compared = isosent_("migrate", model, f"api:{other.url}/v1?model=small&cache=none", "texts.txt", "--json")
        json.loads(compared.out)
        for each, name in ((api, "big"), (other, "small")):
            n_texts = len(set(each.answered) - set(FIXED_TEXTS))
            assert f"sent to api:{each.url}/v1?model={name}: {n_texts} texts" in compared.err


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_job_says_what_is_kept(api, model, tmp_path, sent):
    answered, over, n_blocks = threading.Event(), threading.Event(), itertools.count()

    def misbehave(body, n):
        if texts_in(body)[0] not in FIXED_TEXTS and next(n_blocks):  # the first is answered
            answered.set()
            over.wait(60)

    api.misbehave = misbehave
    isosent_ = [sys.executable, "-c", "from isosent.cli.main import main; main()"]
    command = [*isosent_, "encode", "texts.txt", "-m", model, "-o", "vectors.npy"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert answered.wait(60)
        deadline = time.monotonic() + 50
        while not VectorCache(tmp_path / "paid/vectors.sqlite", max_bytes=10**9).facts()["vectors"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(sent)
        said = process.communicate(timeout=60)[1]
        over.set()
    assert process.returncode == 130
    assert "interrupted" in said
    assert str(tmp_path / "paid") in said
    assert "the same command" in said


def test_info_writes_into_no_database(isosent_, refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("theirs.sqlite")) as theirs:
        theirs.execute("CREATE TABLE mine (a)")
    with closing(sqlite3.connect("empty.sqlite")) as empty:
        empty.execute("PRAGMA user_version = 5")
    before = {name: (tmp_path / name).read_bytes() for name in ("theirs.sqlite", "empty.sqlite")}
    for name, content in before.items():
        refuses(isosent_("info", name), name)
        assert (tmp_path / name).read_bytes() == content


def test_info_of_a_cache_that_is_not_there_says_so(isosent_, refuses, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path))
    (tmp_path / "empty").mkdir()
    for place in ("empty", "paid/vectors.sqlite", "isosent/api"):
        refuses(isosent_("info", tmp_path / place), place, "A cache is made")
        assert not (tmp_path / "isosent").exists()


def test_info_of_a_damaged_cache_says_so(isosent_, refuses, tmp_path):
    with closing(VectorCache(tmp_path / "vectors.sqlite", max_bytes=10**6)) as cache:
        assert cache.facts()["vectors"] == 0
    with closing(sqlite3.connect(tmp_path / "vectors.sqlite")) as database:
        database.execute("DROP TABLE apis")
    refuses(isosent_("info", tmp_path), "vectors.sqlite", "apis")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors.sqlite"]


@pytest.mark.slow
def test_what_workers_send_is_summed_up(isosent_, api, model, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    encode = ("encode", "texts.txt", "-m", model, "-o", "shards/", "--workers", "2", "--shard-size", "100")
    finished = isosent_(*encode)
    assert finished.code == 0, finished.err
    paid = [text for text in api.answered if text in set(TEXTS)]
    assert sorted(paid) == sorted(TEXTS)
    assert f"sent: 320 texts, {sum(map(len, TEXTS)):,} tokens; from the cache: 0 texts" in finished.err
    indexed = isosent_("index", "texts.txt", "-m", model, "-o", "index", "--workers", "2")
    assert "sent: 0 texts, 0 tokens; from the cache: 320 texts" in indexed.err


@pytest.mark.slow
def test_commands_take_an_api_as_any_model(isosent_, api, model, tmp_path):
    lines = [f'"{a}","{b}",{row % 6}' for row, (a, b) in enumerate(zip(TEXTS[:60], TEXTS[60:120], strict=True))]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b,score", *lines]))
    scored = ("evaluate", "pairs", "--data", "pairs.csv", "--columns", "a,b,score")
    for command in (
        ("inspect", "texts.txt", "-m", model),
        ("similarity", TEXTS[0], TEXTS[1], "-m", model),
        ("duplicates", "texts.txt", "-m", model),
        ("cluster", "texts.txt", "-m", model, "-o", "clusters.csv"),
        ("calibrate", "texts.txt", "-m", model, "-o", "calibrated"),
        ("moments", "texts.txt", "-m", model, "-o", "moments.safetensors"),
        ("migrate", "wordllama", model, "texts.txt"),
        ("encode", "texts.txt", "-m", model, "-o", "shards/", "--workers", "2", "--shard-size", "200"),
        (*scored, "-m", model, "-o", "big.json"),
        (*scored, "-o", "wordllama.json"),
        ("compare", "big.json", "wordllama.json"),
        ("distill", model, "texts.txt", "-o", "static"),
        ("index", "texts.txt", "-m", model, "--query-model", "static", "-o", "index"),
    ):
        finished = isosent_(*command)
        assert finished.code == 0, (command, finished.err)
        assert ("sent: " in finished.err) == (model in command), command
    n_requests = len(api.requests)
    found = isosent_("search", "index", TEXTS[0])  # by the static model
    assert found.code == 0, found.err
    assert len(api.requests) == n_requests
    paid = [text for text in api.answered if text in set(TEXTS)]
    assert sorted(paid) == sorted(set(TEXTS))  # each once, whatever asked for it
