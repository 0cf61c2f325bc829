"""``isosent proxy`` from the first vector to a new map, with ``isosent serve`` as the API."""

import signal

import httpx
import numpy as np
import pytest

import isosent
from isosent.jobs.moments import read_moments
from isosent.numeric.similarity import unit_rows
from isosent.server import create_app


@pytest.fixture(scope="module")
def api(running, wordllama):
    with running(create_app({"big": wordllama})) as port:
        yield f"http://127.0.0.1:{port}/v1"


def ask(url, texts):
    response = httpx.post(f"{url}/v1/embeddings", json={"input": texts}, trust_env=False, timeout=30)
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]], dtype=np.float32)


@pytest.mark.slow
def test_a_map_is_learned_from_traffic_and_then_applied(isosent_, refuses, serving, api, texts, wordllama, tmp_path):
    cache, seen, small = (tmp_path / name for name in ("cache", "seen.safetensors", "small"))
    learning = ("proxy", "--upstream", api, "--upstream-model", "big", "--learn", seen, "--cache", cache)
    raw = unit_rows(wordllama.encode(texts)).astype(np.float32)
    with serving(*learning) as (process, url, _):
        refuses(isosent_("inspect", url), "no text has passed")
        assert np.allclose(ask(url, texts), raw, atol=1e-6)
        inspected = isosent_("inspect", url)
        assert inspected.code == 0
        for word in ("mean cosine of random pairs", "480 vectors", "95% of the variance", "without texts"):
            assert word in inspected.out
        np.save(tmp_path / "raw.npy", raw)
        drift = isosent_("drift", url, tmp_path / "raw.npy")
        assert drift.out.startswith("The vectors have not changed"), drift.err
        fitted = isosent_("fit", url, "--transform", "whitening", "--dims", 32, "-o", small)
        assert fitted.code == 0, fitted.err
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert read_moments(seen).moments.weight == len(set(texts))
    assert isosent_("inspect", seen, "--json").code == 0
    model = isosent.load(small)
    assert model.encoder.options["space"] == "big"
    exact = isosent.SentenceEncoder(model.encoder).fitted_on_vectors(raw, isosent.Whitening(n_components=32))
    assert np.allclose(np.abs(model.transform(raw)), np.abs(exact.transform(raw)), atol=1e-4)
    few = ("--dialect", "openai?texts=10")
    with serving("proxy", "--upstream", api, "-m", small, "--cache", cache, *few) as (process, url, _):
        assert np.allclose(ask(url, texts[:50]), unit_rows(model.transform(raw[:50])), atol=1e-5)
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
        assert "isosent_cached_texts_total 50.0" in metrics
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert isosent.load(small).canary is not None


def test_what_cannot_be_a_proxy_is_refused(isosent_, refuses, tmp_path, monkeypatch):
    api = ("proxy", "--upstream", "http://127.0.0.1:1/v1")
    refuses(isosent_(*api), "-m FOLDER")
    refuses(isosent_("proxy", "--upstream", "ftp://x"), "http://")
    refuses(isosent_("proxy", "--upstream", "http://127.0.0.1:1", "-m", "x"), "--dialect")
    refuses(isosent_(*api, "--learn", tmp_path / "seen.safetensors"), "--upstream-model")
    refuses(isosent_(*api, "-m", tmp_path / "none"), "none")
    refuses(isosent_(*api, "-m", tmp_path / "none", "--host", "0.0.0.0"), "--api-key-file")
    (tmp_path / "cache").write_text("something else, and long enough to be looked at")
    refuses(isosent_(*api, "--upstream-model", "m", "--cache", tmp_path / "cache"), "cache")
    for dialect in ("opnai", "openai?texts=0", "openai?texts=x", "openai?texts=", "openai?text=3"):
        refuses(isosent_(*api, "--upstream-model", "m", "--dialect", dialect), dialect, "openai?texts=10")
    for size in ("0", "x", "nan", ""):
        refuses(isosent_(*api, "--upstream-model", "m", "--cache", f"new?mb={size}"), "1 megabyte or more")
    refuses(isosent_(*api, "--upstream-model", "m", "--learn", tmp_path / "none" / "seen"), "folder")
    (tmp_path / "seen").write_text("no moments")
    refuses(isosent_(*api, "--upstream-model", "m", "--learn", tmp_path / "seen"), "seen")


def test_what_is_no_proxy_has_no_moments(isosent_, refuses, api, tmp_path):
    refuses(isosent_("inspect", "http://127.0.0.1:1"), "cannot be reached")
    refuses(isosent_("inspect", api), "no moments")
    refuses(isosent_("fit", api, "-o", tmp_path / "model"), "no moments")
