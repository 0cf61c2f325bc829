import json

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
        (("--dims", "auto", "--strength", "auto"), None),
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
    finished = fit(isosent_, "--transform", "auto")
    assert (finished.code, finished.err) == (0, "")
    choice = isosent.load(here / "model").fits[0].choice
    assert f"auto chose: {choice['chosen']}\nbecause over 480 texts, " in "\n".join(
        line.rstrip() for line in finished.out.splitlines()
    )
    assert "keeps meaning" in finished.out


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
        (("--transform", "auto", "--dims", "8"), "n_components cannot be set"),
        (("--transform", "mean_projection", "--dims", "8"), "mean_projection has no setting n_components"),
        (("--transform", "l2_normalize,whitening"), "L2Normalize must be the last step"),
        (("--strength", "strong"), "strength must lie in [0, 1]; got 'strong'"),
        (("--dims", "1000"), "n_components must lie in 1 ... 256"),
        (("--transform", "whitening?shrinkage=lots"), "shrinkage must be one of ledoit_wolf, oas; got 'lots'"),
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
    finished = isosent_("evaluate", "sts", "--data", "sts", "--transform", "auto", "--json", "-")
    assert finished.code == 0
    document = json.loads(finished.out)
    assert document["fitting"]["transform"] == "auto"
    assert document["tasks"]["STSB"]["choice"]["reason"]
    several = ("none", "mean_centering,l2_normalize", "whitening")
    flags = [flag for name in several for flag in ("--transform", name)]
    finished = isosent_("evaluate", "sts", "--data", "sts", *flags, "--dims", 4, "--json", "r.json", "--csv", "r.csv")
    assert finished.code == 0, finished.err
    assert "chain(steps=" in finished.out
    (row,) = [line for line in finished.out.splitlines() if line.startswith("│ STSB")]
    document = json.loads((here / "r.json").read_text())
    scores = [one["tasks"]["STSB"]["scores"]["spearman"] for one in (document, *document["variants"])]
    assert [cell.strip() for cell in row.split("│")[3:-1]] == [f"{100 * score:.2f}" for score in scores]
    assert "STSB" in (here / "r.csv").read_text()


def test_a_study_of_auto_sets_it_against_fixed_rules(isosent_, here, write_stsb):
    write_stsb(here / "sts", n_pairs=60)
    finished = isosent_("study", "auto", "--data", "sts", "-m", "wordllama", "--json", "study.json")
    assert finished.code == 0
    for row in ROWS:
        assert row in finished.out
    (cell,) = json.loads((here / "study.json").read_text())["results"]
    assert (cell["model"], cell["task"]) == ("wordllama", "STSB")
    assert cell["scores"]["best in hindsight"] >= max(cell["scores"].values())
    assert "largest loss against the vectors as they are: " in finished.out


def test_info_shows_the_values_used_in_a_chain(isosent_, here):
    assert fit(isosent_, "--transform", "whitening?strength=auto&dims=0.9,l2_normalize").code == 0
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
