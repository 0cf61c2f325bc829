import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from made_results import fitted, made_result, made_task

import isosent
from isosent.evaluation.result import Items


@pytest.fixture(scope="module")
def written(tmp_path_factory, wordllama, sts_lines):
    """Result files of the same task: a model, the same whitened, and both without items."""
    folder = tmp_path_factory.mktemp("results")
    data = folder / "data"
    data.mkdir()
    for number, part in enumerate(("train", "dev", "test")):
        sentences, scores = sts_lines(30, 100 * number)
        rows = [
            f"g\tf\ty\t{row}\t{score}\t{line}\n"
            for row, (line, score) in enumerate(zip(sentences, scores, strict=True))
        ]
        (data / f"sts-{part}.csv").write_text("".join(rows), "utf-8")
    plain = isosent.evaluate(wordllama, data)
    white = isosent.evaluate(wordllama, data, transform=isosent.Whitening(8))
    several = isosent.evaluate(wordllama, data, transform=["none", isosent.Whitening(8)])
    (folder / "several.json").write_text(several.to_text(), "utf-8")
    (folder / "plain.json").write_text(plain.to_text(), "utf-8")
    (folder / "white.json").write_text(white.to_text(), "utf-8")
    (folder / "bare.json").write_text(json.dumps(plain.to_json(items=False)), "utf-8")
    return folder


@pytest.fixture(autouse=True)
def here(written, monkeypatch):
    monkeypatch.chdir(written)


def test_two_results_are_laid_side_by_side(isosent_):
    finished = isosent_("compare", "plain.json", "white.json", "--resamples", "200")
    assert finished.code == 0, finished.err
    (row,) = [line for line in finished.out.splitlines() if line.startswith("│ STSB")]
    assert any(verdict in row for verdict in ("better", "worse", "cannot tell"))
    assert " to " in row
    assert "A: plain.json" in finished.out
    assert "-> whitening(" in finished.out
    assert "white.json was fitted on the texts of each task (without labels), plain.json was not" in finished.out
    assert "spearman, paired bootstrap: STSB" in finished.out


def test_each_transform_of_a_result_can_be_compared(isosent_, refuses):
    def differences(first, second):
        finished = isosent_("compare", first, second, "--resamples", "200", "--json")
        assert finished.code == 0, finished.err
        return json.loads(finished.out)["tasks"]

    whitened = "several.json?transform=whitening"
    alone = differences("plain.json", "white.json")
    assert differences("several.json", whitened) == alone
    assert differences("several.json?transform=none", "white.json") == alone
    assert {each["verdict"] for each in differences(whitened, "white.json").values()} == {"the same"}
    assert "several.json?transform=NAME" in isosent_("compare", "several.json", "white.json").out
    assert "?transform=NAME" not in isosent_("compare", whitened, "white.json").out
    for wrong in ("several.json?transform=gem", "several.json?dims=8"):
        refuses(isosent_("compare", "plain.json", wrong), wrong, "none, whitening")


def test_a_transform_is_named_as_the_option_takes_it(isosent_, refuses, tmp_path):
    settings = [isosent.Whitening(), isosent.Whitening(8), isosent.Whitening(8, strength=0.5)]
    plain = made_result("first", STS12=made_task(0.6))
    fittings = [fitted("whitening", **each.get_params()) for each in settings]
    several = replace(plain, variants=tuple(replace(plain, fitting=fitting) for fitting in fittings))
    file = tmp_path / "whitenings.json"
    file.write_text(several.to_text(), "utf-8")

    def second(name):
        finished = isosent_("compare", file, f"{file}?transform={name}", "--resamples", 50, "--json")
        assert finished.code == 0, finished.err
        parameters = json.loads(finished.out)["second"]["fitting"]["parameters"]
        return parameters["n_components"], parameters["strength"]

    assert second("whitening") == (None, 1.0)  # the default settings, as --transform whitening has them
    assert second("whitening?strength=0.5") == (8, 0.5)
    assert second("whitening?n_components=8&strength=1") == (8, 1.0)
    assert second("whitening(n_components=8, strength=0.5)") == (8, 0.5)
    for wrong in ("whitening?strength=0.25", "whitening?n_components=2&strength=1"):
        refuses(isosent_("compare", file, f"{file}?transform={wrong}"), wrong, "strength=0.5")


def test_a_p_value_of_all_draws_is_a_bound_and_an_average_is_not_corrected(isosent_, tmp_path):
    for name, noise in (("near", 0.1), ("far", 9.0)):
        gold = np.arange(40.0)
        tasks = {
            task: made_task(0.5, items=Items(gold + noise * np.random.default_rng(seed).normal(size=40), gold))
            for seed, task in enumerate(("STS12", "STS13"))
        }
        (tmp_path / f"{name}.json").write_text(made_result(name, **tasks).to_text(), "utf-8")
    sides = (tmp_path / "near.json", tmp_path / "far.json")
    finished = isosent_("compare", *sides, "--tests", "--resamples", 499, "-o", tmp_path / "c.csv")
    assert finished.code == 0, finished.err
    rows = [line for line in finished.out.splitlines() if "paired bootstrap │" in line]
    assert ["≤ 0.0040" in row for row in rows] == [True] * 3  # 2 / 500
    assert ["≤ 0.0080" in row for row in rows] == [True, True, False]  # of two tasks, by Holm
    assert "--resamples" in finished.out
    assert "not corrected" in finished.out
    cells = list(csv.DictReader((tmp_path / "c.csv").read_text("utf-8").splitlines()))
    assert [row["p_corrected"] for row in cells] == ["0.008", "0.008", ""]
    assert [row["p_is_bound"] for row in cells] == ["yes"] * 3


def test_the_tests_are_printed_where_asked_for(isosent_):
    finished = isosent_(
        "compare", "plain.json", "white.json", "--tests", "--correlation", "pearson", "--resamples", "50"
    )
    assert "pearson, Williams: STSB" in finished.out
    (row, _) = [line for line in finished.out.splitlines() if line.startswith("│ STSB")]
    assert "Williams" in row
    assert " 30 " in row


def test_vectors_are_compared_by_another_command(isosent_, refuses, tmp_path):
    np.save(tmp_path / "v.npy", np.eye(3))
    refuses(isosent_("compare", tmp_path / "v.npy", tmp_path / "v.npy"), "v.npy holds vectors", "isosent migrate")


def test_all_numbers_are_written(isosent_, written, tmp_path):
    finished = isosent_(
        "compare",
        "plain.json",
        "white.json",
        "-o",
        tmp_path / "c.json",
        "--resamples",
        "50",
        "--seed",
        3,
        "-o",
        tmp_path / "c.tex",
    )
    document = json.loads((tmp_path / "c.json").read_text("utf-8"))
    assert (document["seed"], document["n_resamples"]) == (3, 50)
    found = document["tasks"]["STSB"]
    assert f"{100 * found['difference']:+.2f}" in finished.out
    assert "STSB † & " in (tmp_path / "c.tex").read_text("utf-8")
    plain = json.loads((written / "plain.json").read_text("utf-8"))
    assert found["first"] == plain["tasks"]["STSB"]["scores"]["spearman"]


def test_json_goes_to_standard_output_alone(isosent_):
    finished = isosent_("compare", "plain.json", "white.json", "--json", "--resamples", "50")
    assert json.loads(finished.out)["first"]["name"] == "plain.json"


def test_what_cannot_be_compared_is_refused(isosent_, refuses, written, tmp_path):
    refuses(isosent_("compare", "plain.json", "nowhere.json"), "nowhere.json: no such file")
    refuses(
        isosent_("compare", "plain.json", "white.json", "--tasks", "STS21"), "has no task 'STS21'", "Did you mean STSB"
    )
    refuses(
        isosent_("compare", "plain.json", "white.json", "--level", "95"), "--level 95: choose a number between 0 and 1"
    )
    refuses(isosent_("compare", "plain.json", "white.json", "-o", "no/c.json"), "there is no folder")
    document = json.loads((written / "plain.json").read_text("utf-8"))
    document["tasks"]["STSB"]["protocol"]["similarity"] = "dot"
    del document["checksum"]
    (tmp_path / "dot.json").write_text(json.dumps(document), "utf-8")
    refuses(isosent_("compare", "plain.json", tmp_path / "dot.json"), "protocol similarity is cosine and dot")


def test_a_name_may_hold_a_question_mark_and_a_transform_go_without_settings(isosent_, written):
    (written / "really?.json").write_bytes((written / "plain.json").read_bytes())
    assert isosent_("compare", "really?.json", "white.json", "--resamples", "20").code == 0
    assert isosent_("compare", "really?.json", "white.json", "-o", "really?.json").code == 2  # it is read
    said = isosent_("compare", "several.json", "several.json?transform=whitening", "--resamples", "20").out
    assert "first is compared" not in said
    document = json.loads((written / "white.json").read_text("utf-8"))
    document.pop("checksum")
    document["fitting"]["transform"] = "whitening(strength=1.0)"
    (written / "strength.json").write_text(json.dumps(document), "utf-8")
    assert isosent_("compare", "strength.json?transform=whitening", "white.json", "--resamples", "20").code == 0
