import json
import sys

import numpy as np
import pytest

import isosent
from isosent.evaluation.result_file import read_result

pytest.importorskip("torch")

FLOW = ("--transform", "glow_flow?depth=1&width=4")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    np.save("vectors.npy", np.random.default_rng(0).exponential(size=(200, 12)))
    return tmp_path


def test_a_flow_is_fitted_told_about_and_used(isosent_, here, texts):
    finished = isosent_("fit", "texts.txt", "-o", "model", *FLOW)
    assert finished.code == 0, finished.err
    first, *_, last = finished.err.splitlines()
    assert first.startswith("0 of 456 rows: ")
    assert last.startswith("456 of 456 rows: ")
    assert "bits per dimension before, " in finished.out
    model = isosent.load(here / "model")
    assert model.fits[0].parameters["depth"] == 1
    told = isosent_("info", "model").out
    assert "glow_flow(" in told
    assert "bits per dimension before, " in told
    assert isosent_("encode", "texts.txt", "-m", "model", "-o", "out.npy").code == 0
    np.testing.assert_allclose(np.load("out.npy"), model.encode(texts), atol=1e-5)


def test_a_flow_is_fitted_on_files_of_vectors(isosent_, here):
    finished = isosent_("fit", "vectors.npy", "vectors.npy", "-o", "model", *FLOW)
    assert finished.code == 0, finished.err
    assert "fitted on 400 vectors" in finished.out
    assert "bits per dimension before, " in finished.out
    assert isosent_("transform", "vectors.npy", "-m", "model", "-o", "out.npy").code == 0
    np.testing.assert_allclose(np.load("out.npy"), isosent.load(here / "model").transform(np.load("vectors.npy")))


@pytest.mark.parametrize("fit", ["target", "texts.txt"])
def test_a_flow_is_evaluated(isosent_, write_stsb, here, fit):
    write_stsb(here / "data", n_pairs=40)
    finished = isosent_("evaluate", "sts", "--data", "data", *FLOW, "--fit-on", fit, "-o", "scores.json")
    assert finished.code == 0, finished.err
    fitting = json.loads((here / "scores.json").read_text())["fitting"]
    assert (fitting["transform"], fitting["parameters"]["depth"]) == ("glow_flow", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("texts.txt", "--transform", "whitening,glow_flow"),
            "a flow, which is not linear and cannot be part of a chain",
        ),
        (("texts.txt", "--transform", "whitening?depth=2"), "whitening has no option depth"),
        (("texts.txt", "--transform", "glow_flow", "--dims", "8"), "glow_flow has no setting --dims"),
        (("texts.txt", "--transform", "glow_flow?depth"), "name=value"),
        (("texts.txt", "--transform", "glow_flow?depth=0"), "depth=0: choose a whole number >= 1"),
        (("texts.txt", "--queries", "texts.txt", *FLOW), "queries"),
        (("vectors.npy", "--queries", "vectors.npy", *FLOW), "a flow needs vectors"),
        (("vectors.npy", "--checkpoint", "kept", *FLOW), "a flow needs vectors"),
        (("moments.safetensors", *FLOW), "a flow needs vectors"),
    ],
)
def test_what_does_not_go_with_a_flow_is_refused(isosent_, refuses, arguments, words):
    isosent_("moments", "vectors.npy", "-o", "moments.safetensors")
    refuses(isosent_("fit", *arguments, "-o", "model"), words)


def test_a_flow_needs_torch(isosent_, refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    refuses(isosent_("fit", "texts.txt", "-o", "model", *FLOW), "pip install 'isosent[plm]'")


def test_a_study_compares_the_flow_with_whitening(isosent_, write_stsb, here):
    write_stsb(here / "data", n_pairs=40)
    sentences = (f'{{"premise": "a dog runs {i}", "hypothesis": "{i} cats sleep"}}\n' for i in range(60))
    (here / "nli.jsonl").write_text("".join(sentences))
    settings = ("--transform", "glow_flow?depth=1", "-o", "flow.json")
    finished = isosent_("research", "study", "flow?nli=nli.jsonl&seeds=0,1", "--data", "data", *settings)
    assert finished.code == 0, finished.err
    cells = {cell["row"]: cell for cell in json.loads((here / "flow.json").read_text())["results"]}
    assert list(cells) == [
        *("as they are", "auto(target)", "standardize(target)", "whitening(target)", "flow(target)"),
        *("standardize(NLI)", "whitening(NLI)", "flow(NLI)"),
    ]
    assert (len(cells["flow(NLI)"]["scores"]), cells["flow(NLI)"]["n_rows"]) == (2, 120)
    (line,) = [line for line in finished.out.splitlines() if "flow(NLI)" in line]
    assert f"{50 * sum(cells['flow(NLI)']['scores']):.2f} ± " in line


def test_the_study_repeats_what_evaluate_finds(isosent_, write_stsb, here):
    write_stsb(here / "data", n_pairs=40)
    isosent_("research", "study", "flow?seeds=3", "--data", "data", "-o", "flow.json")
    seeded = ("--transform", "glow_flow?seed=3", "-o", "scores.json")
    isosent_("evaluate", "sts", "--data", "data", *seeded)
    cells = {cell["row"]: cell for cell in json.loads((here / "flow.json").read_text())["results"]}
    (task,) = read_result("scores.json").tasks.values()
    assert cells["flow(target)"]["scores"] == [pytest.approx(task.score, abs=1e-6)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flow", "-m", "wordllama?weighting=gem"), "learns from texts"),
        (("flow?seeds=a",), "flow?seeds=a: write whole numbers"),
        (("flow", "--transform", "glow_flow?depth=x"), "depth=x: choose a whole number >= 1"),
        (("flow?nli=texts.txt,no.jsonl",), "no.jsonl: no such file"),
    ],
)
def test_a_study_that_cannot_be_made_is_refused(isosent_, refuses, write_stsb, here, arguments, words):
    write_stsb(here / "data", n_pairs=40)
    refuses(isosent_("research", "study", *arguments, "--data", "data"), words)
