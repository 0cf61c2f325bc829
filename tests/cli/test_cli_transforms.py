import json
import re

import numpy as np
import pytest

import isosent
from isosent.research.study import ROWS


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    return tmp_path


def fit(isosent_, *more):
    return isosent_("fit", "texts.txt", "-o", "model", *more)


def test_a_chain_is_named_with_commas(isosent_, here):
    finished = fit(
        isosent_, "--transform", "mean_projection,whitening,l2_normalize", "--dims", "12", "--strength", "0.5"
    )
    assert (finished.code, finished.err) == (0, "")
    model = isosent.load(here / "model")
    assert (model.dim, model.normalize) == (12, True)
    steps = model.fits[0].parameters["steps"]
    assert [step["transform"] for step in steps] == ["mean_projection", "whitening", "l2_normalize"]
    assert steps[1]["strength"] == 0.5


@pytest.mark.parametrize(
    ("flags", "dim"),
    [
        (("--dims", "0.5"), None),
        (("--dims", "auto", "--strength", "0.5"), None),
        (("--transform", "auto?dims=9"), 9),
        (("--transform", "whitening?method=zca&shrinkage=oas&dims=7"), 256),
        (("--transform", "all_but_the_top", "--dims", "4"), 256),
        (("--transform", "truncate", "--dims", "30"), 30),
        (("--transform", "whitening?eps=0.01&shrinkage=0.1"), 256),
    ],
)
def test_settings_reach_their_transform(isosent_, here, flags, dim):
    assert fit(isosent_, *flags).code == 0
    assert isosent.load(here / "model").dim == dim or (dim is None and isosent.load(here / "model").dim < 256)


def test_auto_says_what_it_weighed_and_why(isosent_, here):
    finished = fit(isosent_)
    assert (finished.code, finished.err) == (0, "")
    choice = isosent.load(here / "model").fits[0].choice
    assert choice["reason"] in finished.out
    assert "candidate" not in finished.out
    assert f"auto: {choice['reason']}" in isosent_("info", "model").out
    detailed = fit(isosent_, "--details").out
    assert choice["reason"] in detailed
    assert "candidate" in detailed
    for each in choice["candidates"]:
        name, numbers = each["candidate"].split(" (")[0], f" {each['agreement']:.3f} │ {each['gain']:+.3f} │"
        (row,) = [line for line in detailed.splitlines() if line.startswith(f"│ {name}") and numbers in line]
        assert ("chosen" in row) == (each["candidate"] == choice["chosen"])


def test_a_width_alone_means_auto_and_a_strength_alone_means_whitening(isosent_, here, wordllama, texts):
    for flags, transform, settings in (
        (("--dims", "32"), "auto", {"n_components": 32}),
        (("--strength", "0.5"), "whitening", {"strength": 0.5}),
        (("--strength", "0.5", "--dims", "32"), "whitening", {"strength": 0.5, "n_components": 32}),
    ):
        assert fit(isosent_, *flags).code == 0
        expected = wordllama.fitted(texts, transform, settings=settings)
        assert isosent.load(here / "model").fingerprint == expected.fingerprint


def test_what_auto_chose_before_is_still_shown(isosent_, here):
    assert fit(isosent_).code == 0
    document = json.loads((here / "model" / "model.json").read_text())
    document.pop("checksum")
    old = {"candidate": "mean projection", "score": -1.5, "separation": None}
    document["fits"][0]["choice"] = {
        "chosen": "mean projection",
        "reason": "over 480 texts, it won.",
        "candidates": [old],
    }
    (here / "model" / "model.json").write_text(json.dumps(document))
    assert "auto: over 480 texts, it won." in isosent_("info", "model").out
    assert isosent.load(here / "model").fits[0].choice["candidates"] == [old]


def test_queries_get_a_mean_of_their_own(isosent_, here, texts):
    (here / "queries.txt").write_text("".join(f"Where is it said that {text}\n" for text in texts[:100]))
    assert fit(isosent_, "--queries", "queries.txt", "--dims", "9").code == 0
    model = isosent.load(here / "model")
    queries = [f"Where is it said that {text}" for text in texts[:100]]
    np.testing.assert_allclose(model.encode_query(queries).mean(axis=0), 0, atol=1e-4)
    facts = json.loads(isosent_("info", "model", "--json").out)
    assert facts["separate_query_mean"] is True
    assert isosent_("encode", "queries.txt", "--queries", "-m", "model", "-o", "q.npy").code == 0
    np.testing.assert_array_equal(np.load(here / "q.npy"), model.encode_query(queries))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--transform", "auto", "--strength", "1"), "auto has no option strength"),
        (("--transform", "mean_projection", "--dims", "8"), "mean_projection has no setting --dims"),
        (
            ("--transform", "l2_normalize,whitening"),
            "l2_normalize is step 1, but it is not linear. Make it the last step",
        ),
        (("--strength", "strong"), "'--strength': 'strong'"),
        (("--dims", "1000"), "--dims 1000: choose 1 to 256"),
        (("--transform", "whitening?shrinkage=lots"), "shrinkage=lots: choose one of oas"),
        (("--transform", "whitening?metod=zca"), "no option metod. Did you mean method"),
        (("--queries", "nowhere.txt"), "nowhere.txt"),
    ],
)
def test_settings_that_cannot_work_are_refused_and_nothing_is_written(isosent_, here, flags, words):
    finished = fit(isosent_, *flags)
    assert (finished.code, finished.out) == (2, "")
    assert words in finished.err
    assert not (here / "model").exists()


def test_evaluate_takes_what_fit_takes(isosent_, here, write_stsb):
    write_stsb(here / "sts", n_pairs=60)
    finished = isosent_("evaluate", "sts", "--data", "sts", "--transform", "auto", "--json")
    assert finished.code == 0
    document = json.loads(finished.out)
    assert document["fitting"]["transform"] == "auto"
    assert document["tasks"]["STSB"]["choice"]["reason"]
    several = ("none", "mean_centering,l2_normalize", "whitening")
    flags = [flag for name in several for flag in ("--transform", name)]
    finished = isosent_("evaluate", "sts", "--data", "sts", *flags, "--dims", 4, "-o", "r.json", "-o", "r.csv")
    assert finished.code == 0, finished.err
    assert "chain(steps=" in finished.out
    (row,) = [line for line in finished.out.splitlines() if line.startswith("│ STSB")]
    document = json.loads((here / "r.json").read_text())
    scores = [one["tasks"]["STSB"]["scores"]["spearman"] for one in (document, *document["variants"])]
    assert [cell.strip() for cell in row.split("│")[3:-1]] == [f"{100 * score:.2f}" for score in scores]
    assert "STSB" in (here / "r.csv").read_text()
    both = ("--transform", "whitening", "--transform", "auto", "--dims", 4)
    assert isosent_("evaluate", "sts", "--data", "sts", *both, "-o", "r.json").code == 0
    document = json.loads((here / "r.json").read_text())
    assert [one["tasks"]["STSB"]["dim"] for one in (document, *document["variants"])] == [4, 4]


def test_a_study_of_auto_sets_it_against_fixed_rules(isosent_, here, write_stsb):
    write_stsb(here / "sts", n_pairs=60)
    finished = isosent_("research", "study", "auto", "--data", "sts", "-m", "wordllama", "-o", "study.json")
    assert finished.code == 0
    for row in ROWS:
        assert row in finished.out
    (cell,) = json.loads((here / "study.json").read_text())["results"]
    assert (cell["model"], cell["task"]) == ("wordllama", "STSB")
    assert cell["scores"]["best in hindsight"] >= max(cell["scores"].values())
    assert "largest loss against the original vectors: " in finished.out


def test_vectors_need_a_width_to_be_changed_by_auto(isosent_, here, wordllama, texts):
    np.save(here / "v.npy", wordllama.encode(texts))
    vectors = ("fit", "v.npy", "-o", "model")
    finished = isosent_(*vectors)
    assert (finished.code, finished.err) == (0, "")
    assert "No recommendation without texts" in finished.out
    assert "recall@10" not in finished.out
    assert isosent.load(here / "model").dim == 256
    finished = isosent_(*vectors, "--dims", "8")
    assert (finished.code, finished.err) == (0, "replaced the model that was in model\n")
    assert (
        "Reduce to 8 dimensions by PCA, without whitening and without subtracting the mean. Without texts"
        in finished.out
    )
    (line,) = [line for line in finished.out.splitlines() if line.startswith("recall@10")]
    said = r"with 8 dimensions, held-out queries among 432 vectors: principal components (0\.\d{3})$"
    recall = float(re.search(said, line)[1])
    assert 0.1 < recall < 0.9
    assert isosent.load(here / "model").fits[0].transform == "principal_components"


@pytest.mark.parametrize("transform", ["truncate?dims=8", "whitening?dims=8&shrinkage=oas"])
def test_the_recall_of_a_named_transform_stands_beside_that_of_principal_components(
    isosent_, here, wordllama, texts, transform
):
    np.save(here / "v.npy", wordllama.encode(texts))
    finished = isosent_("fit", "v.npy", "-o", "model", "--transform", transform)
    assert (finished.code, finished.err) == (0, "")
    name = transform.partition("?")[0]
    pattern = rf"recall@10 .*: {name} (0\.\d{{3}}), principal components (0\.\d{{3}})$"
    by_name, by_components = map(float, re.search(pattern, finished.out, re.MULTILINE).groups())
    assert 0 < by_name <= by_components < 1


@pytest.mark.parametrize("n_rows", [2, 20, 21, 22])
def test_few_vectors_are_fitted(isosent_, here, n_rows):
    np.save(here / "v.npy", np.random.default_rng(0).normal(size=(n_rows, 3)))
    finished = isosent_("fit", "v.npy", "-o", "model", "--dims", "1")
    assert (finished.code, finished.err) == (0, "")
    assert ("recall@10" in finished.out) == (n_rows >= 22)


def test_info_shows_the_values_used_in_a_chain(isosent_, here):
    assert fit(isosent_, "--transform", "whitening?strength=0.5&dims=auto,l2_normalize").code == 0
    shown = isosent_("info", "model").out
    assert "auto" not in shown
    assert "whitening(" in shown
    assert "then l2_normalize()" in shown


def test_info_survives_strange_steps(isosent_, here):
    assert fit(isosent_, "--transform", "whitening,l2_normalize").code == 0
    document = json.loads((here / "model" / "model.json").read_text())
    document.pop("checksum")
    for steps in (3, [3], [{}], []):
        document["fits"][0]["parameters"] = {"steps": steps}
        (here / "model" / "model.json").write_text(json.dumps(document))
        assert isosent_("info", "model").code == 0
