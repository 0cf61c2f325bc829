import json

import numpy as np
import pytest

import isosent
from isosent import GEM, SIF, Whitening

GEM_MODEL = "words:words.txt?weighting=gem&n_candidates=4&n_removed=2"
NONE = ("--transform", "none")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 6)).round(3) + 0.5
    (tmp_path / "words.txt").write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 30, rng.integers(1, 9))) for _ in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join([*texts, "zebra"]) + "\n")
    (tmp_path / "counts.txt").write_text("".join(f"w{i} {30 - i}\n" for i in range(30)))
    return tmp_path


@pytest.fixture
def corpus(here):
    return (here / "texts.txt").read_text().splitlines()


def fitted(texts, weighting, query="", transform=None):
    return isosent.load(f"words:words.txt{query}", weighting=weighting).fitted(texts, transform=transform)


def test_an_encoder_is_fitted_by_flags(isosent_, corpus):
    finished = isosent_("fit", "texts.txt", "-m", f"{GEM_MODEL}&window=3", *NONE, "-o", "model")
    assert finished.code == 0, finished.err
    assert "fitted on 60 texts, texts without a vector: 1" in finished.out
    model = isosent.load("model")
    assert [fit.transform for fit in model.fits] == ["gem"]
    assert model.fits[0].source == "texts.txt"
    expected = fitted(corpus, GEM(window=3, n_candidates=4, n_removed=2))
    assert model.fingerprint == expected.fingerprint


def test_a_transform_is_fitted_behind_it_where_one_is_named(isosent_, corpus):
    flags = ("-m", "words:words.txt?weighting=sif", "--transform", "whitening", "--dims", "3")
    finished = isosent_("fit", "texts.txt", *flags, "-o", "model")
    assert finished.code == 0, finished.err
    assert "was fitted before" not in finished.out
    model = isosent.load("model")
    assert [fit.transform for fit in model.fits] == ["sif", "whitening"]
    np.testing.assert_allclose(
        model.encode(corpus), fitted(corpus, SIF(), transform=Whitening(3)).encode(corpus), atol=1e-5
    )


def test_auto_is_chosen_behind_it(isosent_):
    finished = isosent_("fit", "texts.txt", "-m", GEM_MODEL, "-o", "model")
    assert finished.code == 0, finished.err
    assert len(isosent.load("model").fits) == 2


def test_frequencies_of_a_file_need_no_fit(isosent_, corpus):
    flags = ("-m", "words:words.txt?weighting=sif&n_components=0&frequencies=counts.txt")
    finished = isosent_("encode", "texts.txt", *flags, "-o", "v.npy")
    assert finished.out.startswith("v.npy: 61 x 6 float32; texts without a vector: 1")
    model = isosent.load("words:words.txt?frequencies=counts.txt", weighting=SIF(n_components=0))
    np.testing.assert_array_equal(np.load("v.npy"), model.encode(corpus))


def test_a_fitted_model_encodes_new_texts(isosent_):
    isosent_("fit", "texts.txt", "-m", GEM_MODEL, *NONE, "-o", "model")
    finished = isosent_("encode", "-", "-m", "model", "-o", "v.npy", stdin=b"w1 w2\nzebra\n")
    assert finished.code == 0, finished.err
    np.testing.assert_array_equal(np.load("v.npy"), isosent.load("model").encode(["w1 w2", "zebra"]))


def test_info_tells_the_weighting_and_its_settings(isosent_):
    isosent_("fit", "texts.txt", "-m", GEM_MODEL, *NONE, "-o", "model")
    facts = json.loads(isosent_("info", "model", "--json").out)
    assert facts["options"]["weighting"] == "gem"
    assert facts["options"]["n_candidates"] == "4"
    assert facts["fits"][0]["parameters"]["window"] == "7"
    assert "gem" in isosent_("info", "model").out


def test_encoding_without_a_fit_is_refused(isosent_, refuses, here):
    finished = isosent_("encode", "texts.txt", "-m", GEM_MODEL, "-o", "v.npy")
    refuses(finished, "is not fitted. Fit it on texts first: isosent fit TEXTS -m REFERENCE -o FOLDER")
    assert not (here / "v.npy").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("weighting=tfidf", "weighting=tfidf: choose mean, sif, usif, p_mean or gem"),
        ("weighting=gem&window=0", "window=0: choose a whole number above 0"),
        ("weighting=gem&n_candidates=5", "n_removed must be at most n_candidates, 5; got 17"),
        ("weighting=gem", "n_candidates must be at most 6, the dimensions"),
        ("window=3", "window is for weighting=gem, but the weighting is mean"),
        ("weighting=sif&a=-1", "a=-1: choose a number above 0"),
        ("weighting=sif&frequencies=none.txt", "none.txt"),
        ("weighting=gem&frequencies=rank", "frequencies are for sif, usif or zipfian=true"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(isosent_, refuses, here, options, words):
    refuses(isosent_("fit", "texts.txt", "-m", f"words:words.txt?{options}", "-o", "model"), words)
    assert not (here / "model").exists()


def test_a_corpus_without_a_known_word_is_refused(isosent_, refuses, here):
    (here / "foreign.txt").write_text("zebra\nunicorn\n")
    finished = isosent_("fit", "foreign.txt", "-m", GEM_MODEL, *NONE, "-o", "model")
    refuses(finished, "texts")
    assert not (here / "model").exists()


def test_queries_without_a_transform_are_refused(isosent_, refuses):
    flags = ("-m", GEM_MODEL, *NONE, "--queries", "texts.txt")
    refuses(isosent_("fit", "texts.txt", *flags, "-o", "model"), "--queries needs a transform")


def test_vectors_of_an_unfitted_encoder_are_refused(isosent_, refuses, here):
    np.save("v.npy", np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32))
    finished = isosent_("fit", "v.npy", "-m", GEM_MODEL, "-o", "model")
    refuses(finished, "is not fitted. Fit it on texts first")
    assert not (here / "model").exists()


def test_what_is_no_mean_is_not_exported(isosent_, refuses, here):
    isosent_("fit", "texts.txt", "-m", GEM_MODEL, *NONE, "-o", "model")
    finished = isosent_("export", "model", "--to", "onnx", "-o", "out")
    refuses(finished, "is the mean of its known words", "no gem", "Use isosent itself")
    assert not (here / "out").exists()


def test_an_unfitted_encoder_is_inspected(isosent_):
    finished = isosent_("inspect", "texts.txt", "-m", GEM_MODEL, "--json")
    assert finished.code == 0, finished.err
    assert json.loads(finished.out)["model"].endswith("-> gem")


def test_an_unfitted_encoder_is_evaluated(isosent_, write_stsb, here):
    write_stsb(here / "data")
    flags = ("-m", GEM_MODEL.replace("words:words.txt", "wordllama"), "-o", "result.json")
    finished = isosent_("evaluate", "sts", "--data", "data", *flags)
    assert finished.code == 0, finished.err
    result = json.loads((here / "result.json").read_text("utf-8"))
    model = isosent.load("wordllama", weighting=GEM(n_candidates=4, n_removed=2))
    expected = isosent.evaluate(model, here / "data").tasks["STSB"]
    assert result["tasks"]["STSB"]["scores"] == expected.scores


@pytest.mark.filterwarnings("ignore::isosent.errors.RankWarning")
def test_auto_is_studied_behind_an_unfitted_encoder(isosent_, write_stsb, here):
    write_stsb(here / "data")
    finished = isosent_(
        "research", "study", "auto", "--data", "data", "-m", "wordllama?weighting=sif", "-o", "cells.json"
    )
    assert finished.code == 0, finished.err
    (cell,) = json.loads((here / "cells.json").read_text("utf-8"))["results"]
    assert (cell["model"], cell["task"]) == ("wordllama?weighting=sif", "STSB")
