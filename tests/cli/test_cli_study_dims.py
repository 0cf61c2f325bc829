import csv
import json
import xml.etree.ElementTree as ET

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb):
    """STS-B in miniature."""
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data", n_pairs=30)
    return tmp_path


def line_of(printed, label):
    (line,) = [line for line in printed.splitlines() if line.startswith(f"│ {label} ")]
    return [field.strip() for field in line.strip("│").split("│")]


def test_a_study_is_printed_and_written(isosent_, here):
    outputs = ("-o", "dims.csv", "-o", "dims.json", "-o", "dims.svg")
    finished = isosent_("research", "study", "dims?widths=4,16,8&docs=50", "--data", "data", *outputs)
    assert finished.code == 0, finished.err
    (study,) = json.loads((here / "dims.json").read_text())["results"]
    scores = {cell["k"]: cell["spearman"]["all"] for cell in study["cells"]}
    assert list(scores) == [4, 8, 16]
    best = max(scores, key=scores.get)
    for k, score in scores.items():
        assert line_of(finished.out, k)[1] == f"{100 * score:.2f}" + "*" * (k == best)
        low, high = (float(part) for part in line_of(finished.out, k)[2].split(", "))
        assert low < 100 * score < high
        assert line_of(finished.out, k)[3] == f"{4 * k}"
    drawn = {cell["k"]: 100 * cell["spearman"]["all"] for cell in study["random"]}
    assert list(drawn) == [4, 8, 16]
    assert all(line_of(finished.out, f"random {k}")[1] == f"{score:.2f}" for k, score in drawn.items())
    assert study["best"]["STSB"]["all"] == best
    assert [time["n_docs"] for time in study["search"]] == [50] * 3
    assert line_of(finished.out, "256, original")[1] == f"{100 * study['untransformed'][0]['spearman']['all']:.2f}"
    rows = list(csv.DictReader((here / "dims.csv").read_text().splitlines()))
    assert [(row["transform"], row["k"]) for row in rows] == [
        ("none", "256"),
        *((name, str(k)) for name in ("whitening", "random dimensions") for k in (4, 8, 16)),
    ]
    assert [float(row["spearman_all"]) for row in rows[1:4]] == list(scores.values())
    assert all(float(row["interval_low"]) < float(row["spearman_all"]) < float(row["interval_high"]) for row in rows)
    assert ET.parse(here / "dims.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert "ten nearest of 50 float32 vectors" in finished.out


def test_another_transform_without_a_search(isosent_):
    arguments = ("--transform", "truncate", "--aggregation", "wmean")
    finished = isosent_("research", "study", "dims?widths=4&docs=0", "--data", "data", *arguments)
    assert "truncate() fitted on target" in finished.out
    assert "Spearman x100, wmean" in finished.out
    assert "ms a query" not in finished.out


def test_what_cannot_be_studied_is_refused(isosent_, refuses):
    def study(*arguments, what="dims"):
        return isosent_("research", "study", what, "--data", "data", *arguments)

    refuses(study("-o", "dims.gif"), "dims.gif")
    refuses(study("-o", "no/dims.csv"), "there is no folder")
    refuses(study(what="dims?widths=8,wide"), "dims?widths=8,wide: write whole numbers separated by commas")
    refuses(study(what="dims?widths=8,300"), "widths=8,300: choose 1 to 256")
    refuses(study(what="dims?docs=-1"), "docs")
    refuses(study(what="dims?seeds=1"), "no setting seeds. It has: widths, docs")
    refuses(study(what="gem?docs=1"), "no setting docs. It has: none")
    refuses(study(what="widths"), "the kinds are layers, pooling")
    refuses(
        study("--transform", "auto"),
        "--transform auto: the study of dimensions needs whitening or principal_components or truncate",
    )
    refuses(study("--transform", "all_but_the_top"), "the transform ends with all_but_the_top")
    refuses(study("--aggregation", "median"), "'median' is not one of")
