"""fit --bytes and --loss, and what an index and inspect make of them."""

import json

import numpy as np
import pytest

import isosent
from isosent.jobs.fit import run_fit
from isosent.jobs.fit_request import FitRequest
from isosent.numeric import similarity
from isosent.search import Index, sizes
from isosent.transforms.base import resolve_transform


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(1500, 32)) * np.linspace(1, 0.1, 32) + 0.3).astype(np.float32)


def test_an_index_of_a_model_that_became_smaller_is_what_was_measured(isosent_, here, vectors):
    np.save(here / "v.npy", vectors)
    finished = isosent_("fit", "v.npy", "--bytes", "20", "-o", "model")
    assert (finished.code, finished.err) == (0, "")
    assert "Neighbors are those of the original vectors." in finished.out
    storage = isosent.load(here / "model").record.storage
    assert storage.dtype == "product"
    assert f"{1 - storage.recall:.2%} of the neighbors lost" in finished.out
    assert "dtype=product" in isosent_("info", "model").out
    assert isosent_("index", "v.npy", "-m", "model", "-o", "index").code == 0
    stats = Index.open(here / "index").stats()
    assert (stats.settings.store, stats.settings.code_bytes) == ("product", storage.n_bytes)
    assert stats.bytes_searched / stats.n_rows == pytest.approx(storage.n_bytes, abs=0.01)
    assert stats.recall.recall >= storage.min_recall
    assert stats.settings.oversampling >= storage.oversampling >= 40
    assert isosent_("index", "v.npy", "-m", "model", "-o", "exact", "--store", "float32").code == 0
    assert Index.open(here / "exact").stats().settings.store == "float32"


def test_inspect_fit_and_sizes_measure_on_the_same_rows_of_all_files(isosent_, here, vectors, monkeypatch):
    monkeypatch.setattr(similarity, "MOST_SAMPLED", 600)
    for name, rows in (("v.npy", vectors), ("first.npy", vectors[:900]), ("second.npy", vectors[900:])):
        np.save(here / name, rows)
    found = sizes(vectors)
    shown = json.loads(isosent_("inspect", "v.npy", "--json").out)["sizes"]
    assert shown["n_texts"] == found.n_texts == 540
    assert sorted(row["recall"] for row in shown["rows"]) == sorted(each.recall for each in found.rows)
    finished = isosent_("fit", "first.npy", "second.npy", "--loss", "0.05", "-o", "model")
    assert "600 of 1,500 vectors of 2 files" in finished.out
    assert "Among all 1,500 vectors" in finished.out
    storage = isosent.load(here / "model").record.storage
    assert (storage.recall, storage.n_texts) == (found.smallest(0.05).recall, 540)
    finished = isosent_("fit", "v.npy", "--dims", "16", "-o", "model")
    [half] = {e.recall for e in found.rows if (e.n_components, e.center, e.dtype) == (16, False, "float32")} - {
        e.recall for e in found.rows if e.transform == "truncate"
    }
    assert f"among 540 vectors: principal components {half:.3f}" in finished.out
    monkeypatch.setattr(similarity, "MOST_SAMPLED", 1500)
    assert "Among all" not in isosent_("fit", "v.npy", "--loss", "0.05", "-o", "all").out


def test_where_whitening_wins_the_two_goals_are_told_apart(isosent_, here, vectors):
    np.save(here / "v.npy", vectors)
    finished = isosent_("fit", "v.npy", "--loss", "0.05", "--transform", "whitening?strength=0.5", "-o", "model")
    assert finished.code == 0
    assert "Two goals differ here" in finished.out
    assert "of those of the original vectors, among" in finished.out
    storage = isosent.load(here / "model").record.storage
    assert storage.neighbors_of == "the transformed vectors"
    exported = isosent_("export", "model", "--to", "numpy", "-o", "map.safetensors")
    assert f"stores them as {storage.dtype}" in exported.err


@pytest.mark.parametrize("transform", ["truncate?n_components=16", "principal_components", "mean_centering"])
def test_neighbors_of_cut_or_centered_vectors_are_not_called_original(isosent_, here, vectors, transform):
    np.save(here / "v.npy", vectors)
    assert isosent_("fit", "v.npy", "--bytes", "32", "--transform", transform, "-o", "model").code == 0
    assert isosent.load(here / "model").record.storage.neighbors_of == "the transformed vectors"


def test_a_size_that_loses_most_neighbors_warns_and_a_file_of_floats_says_how_to_get_codes(isosent_, here):
    np.save(here / "v.npy", np.random.default_rng(0).normal(size=(600, 64)).astype(np.float32))
    finished = isosent_("fit", "v.npy", "--bytes", "10", "-o", "model")
    assert finished.code == 0
    assert "of the neighbors are kept" in finished.err
    finished = isosent_("transform", "v.npy", "-m", "model", "-o", "small.npy")
    assert "--dtype ubinary" in finished.out
    assert "--dtype" not in isosent_("transform", "v.npy", "-m", "model", "-o", "codes.npy", "--dtype", "ubinary").out


def test_a_fit_on_top_says_that_the_size_is_not_kept(isosent_, here, texts):
    (here / "t.txt").write_text("\n".join(texts))
    assert isosent_("fit", "t.txt", "--bytes", "64", "-o", "model").code == 0
    finished = isosent_("fit", "t.txt", "-m", "model", "--transform", "whitening", "-o", "on_top")
    assert "size chosen for model is not kept" in finished.err


def test_a_loss_may_be_a_percentage(isosent_, here, vectors):
    np.save(here / "v.npy", vectors[:300])
    for place, loss in enumerate(("5%", "0.05")):
        finished = isosent_("fit", "v.npy", "--loss", loss, "-o", f"model{place}")
        saved = f"Saved model{place}: vectors of an unnamed model"
        assert saved in finished.out
        assert f"isosent index -m model{place} stores" in finished.out.splitlines()[-1]
    first, second = (isosent.load(here / f"model{place}").record.storage for place in range(2))
    assert first == second


def test_a_calibration_keeps_the_size(isosent_, here, vectors):
    np.save(here / "v.npy", vectors)
    assert isosent_("fit", "v.npy", "--bytes", "20", "-o", "model").code == 0
    before = isosent.load(here / "model").record.storage
    assert isosent_("calibrate", "v.npy", "-m", "model").code == 0
    assert isosent_("quantize", "v.npy", "-m", "model").code == 0
    assert isosent.load(here / "model").record.storage == before


def test_a_size_may_follow_a_flow(here, texts):
    (here / "t.txt").write_text("\n".join(texts))
    flow = resolve_transform("glow_flow", {"depth": 1, "n_levels": 1, "width": 8, "n_epochs": 1})
    result = run_fit(FitRequest(inputs=["t.txt"], output=here / "model", transform=flow, n_bytes=300))
    assert result.model.flow is not None
    assert result.model.record.storage.n_bytes <= 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bytes", "20", "--loss", "0.1"), "both set the size"),
        (("--bytes", "20", "--dims", "4"), "--bytes and --dims both set the size"),
        (("--loss", "0.1", "--transform", "none"), "--loss does not go with"),
        (("--loss", "0.1", "--queries", "v.npy"), "Fit twice: leave --loss out"),
        (("--loss", "nan"), "--loss is not a finite number"),
        (("--bytes", "inf"), "--bytes is not a finite number"),
    ],
)
def test_sizes_that_contradict_are_refused(isosent_, here, vectors, arguments, message):
    np.save(here / "v.npy", vectors[:200])
    finished = isosent_("fit", "v.npy", "-o", "model", *arguments)
    assert finished.code != 0
    assert message in finished.err
    assert not (here / "model").exists()


def test_texts_show_the_agreement_with_word_overlap(isosent_, here, texts):
    (here / "t.txt").write_text("\n".join(texts))
    finished = isosent_("inspect", "t.txt", "--json")
    rows = json.loads(finished.out)["sizes"]["rows"]
    exact, *_ = (row for row in rows if row["dtype"] == "float32" and row["transform"] == "none")
    assert 0 < exact["agreement"] < 1


def lost_by_hand(vectors, mapped):
    """Share of the ten nearest original vectors that are not among the ten nearest after a map, by brute force."""
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (vectors, mapped)]
    near = []
    for rows in units:
        cosines = rows @ rows.T
        np.fill_diagonal(cosines, -2)
        near.append(np.argsort(-cosines, axis=1)[:, :10])
    return 1 - np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*near, strict=True)])


def uneven_vectors(texts):
    """Vectors of texts that auto whitens: those of wordllama, and along three directions a lot of noise."""
    vectors, rng = isosent.load("wordllama").encode(texts), np.random.default_rng(0)
    noise = rng.normal(size=(len(texts), 3)) @ rng.normal(size=(3, vectors.shape[1])) / 16
    return (vectors + 1.5 * np.linalg.norm(vectors, axis=1).mean() * noise).astype(np.float32)


@pytest.mark.parametrize("given", [("--loss", "0.02"), ("--bytes", "300")])
def test_a_loss_is_one_of_the_neighbors_of_the_vectors_that_were_given(isosent_, here, texts, given):
    vectors = uneven_vectors(texts)
    np.save(here / "v.npy", vectors)
    (here / "t.txt").write_text("\n".join(texts) + "\n")
    whitened = isosent_("fit", "v.npy", "--texts", "t.txt", "--for", "pairs", *given, "-o", "asked")
    asked = isosent.load(here / "asked")
    assert asked.fits[0].transform == "whitening"  # on purpose: both numbers are given
    lost = lost_by_hand(vectors, asked.transform(vectors))
    assert lost > 0.1
    said = float(whitened.out.split("of the original neighbors, ")[1].split(" ")[0])
    # of held-out queries, among the others; codes may lose 0.02 more
    assert 1 - said == pytest.approx(lost, abs=0.07)

    assert isosent_("fit", "v.npy", "--texts", "t.txt", *given, "-o", "model").code == 0
    model = isosent.load(here / "model")
    assert "whitening" not in [fit.transform for fit in model.fits]
    assert model.record.storage.neighbors_of == "the original vectors"
    assert lost_by_hand(vectors, model.transform(vectors)) < 0.03


def test_texts_keep_the_neighbors_of_their_vectors_too(isosent_, here, texts):
    (here / "t.txt").write_text("\n".join(texts) + "\n")
    assert isosent_("fit", "t.txt", "--loss", "0.02", "-o", "model").code == 0
    vectors = isosent.load("wordllama").encode(texts)
    model = isosent.load(here / "model")
    assert lost_by_hand(vectors, model.encode(texts)) < 0.03
    assert model.record.storage.neighbors_of == "the original vectors"


def test_product_codes_are_explained_on_the_screen(isosent_, tmp_path):
    rows = np.random.default_rng(0).standard_normal((1300, 32)).astype(np.float32)
    np.save(tmp_path / "v.npy", rows)
    model, index = str(tmp_path / "model"), str(tmp_path / "index")
    fitted = isosent_("fit", str(tmp_path / "v.npy"), "--bytes", "8", "-o", model)
    assert fitted.code == 0, fitted.err
    assert "16 vectors" in fitted.out
    assert "% are reranked for ten results" in fitted.out  # of a thousand texts, 120 candidates per result are most
    assert "product (8 bytes)" in isosent_("info", model).out
    shown = isosent_("index", str(tmp_path / "v.npy"), "-m", model, "-o", index).out
    n_bytes = 4 * (32 * 32 + 16 * 32)  # the projection and the codebooks
    assert f"{n_bytes / 1e6:.3g} MB of codebooks" in shown
    assert "% of the rows for ten results" in shown
