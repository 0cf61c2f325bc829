import csv
import json
import xml.etree.ElementTree as ET

import pytest
from tiny_models import save_model

from isosent.evaluation import sizes

SVG = "{http://www.w3.org/2000/svg}svg"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb, tiny_model):
    """STS-B in miniature, and a tiny random transformer."""
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data", n_pairs=30)
    (tmp_path / "tiny").symlink_to(tiny_model("bert"))
    return tmp_path


def lines_of(printed, *labels):
    rows = ([field.strip() for field in line.strip("│").split("│")] for line in printed.splitlines())
    return [row for row in rows if tuple(row[: len(labels)]) == labels]


def outputs_of(name):
    return "-o", f"{name}.csv", "-o", f"{name}.json", "-o", f"{name}.svg"


def test_layers_are_printed_and_written(isosent_, here):
    finished = isosent_("research", "study", "layers", "--data", "data", "-m", "hf:tiny", *outputs_of("layers"))
    assert finished.code == 0, finished.err
    cells = json.loads((here / "layers.json").read_text())["results"]
    scores = {(tuple(cell["layers"]), cell["transform"]): cell["spearman"]["all"] for cell in cells}
    assert len(scores) == len(cells) == 15 + 15 + 13
    for transform, title in (("none", "original"), ("whitening", "whitening"), ("auto", "auto")):
        for layers, label in (((3,), "L3"), ((1, 3), "L1+L3")):
            ((*_, score),) = lines_of(finished.out, label, title)
            assert score == f"{100 * scores[layers, transform]:.2f}"
    assert "then the best one grew layer by layer" in finished.out
    rows = list(csv.DictReader((here / "layers.csv").read_text().splitlines()))
    assert len(rows) == 3 * len(cells)
    assert {row["aggregation"] for row in rows} == {"all", "mean", "wmean"}
    (row,) = [row for row in rows if (row["layers"], row["transform"], row["aggregation"]) == ("L1+L3", "none", "mean")]
    assert (row["model"], row["task"], row["published"]) == ("hf:tiny", "STSB", "")
    assert float(row["spearman"]) == scores[(1, 3), "none"]
    assert ET.parse(here / "layers.svg").getroot().tag == SVG


def test_poolings_are_printed_and_written(isosent_, here):
    finished = isosent_(
        *(
            "research",
            "study",
            "pooling",
            "--data",
            "data",
            "-m",
            "hf:tiny",
            "--pooling",
            "mean,cls",
            *outputs_of("pooling"),
        )
    )
    assert finished.code == 0, finished.err
    cells = json.loads((here / "pooling.json").read_text())["results"]
    scores = {(cell["pooling"], tuple(cell["layers"]), cell["transform"]): cell["spearman"]["all"] for cell in cells}
    assert len(scores) == len(cells) == 2 * 3 * 3
    ((*_, score),) = lines_of(finished.out, "cls", "L1+L3", "whitening")
    assert score == f"{100 * scores['cls', (1, 3), 'whitening']:.2f}"
    ((_, change, *_),) = lines_of(finished.out, "mean minus cls, last layer")
    assert change == f"{100 * (scores['mean', (3,), 'none'] - scores['cls', (3,), 'none']):+.2f}"
    assert len((here / "pooling.csv").read_text().splitlines()) == 1 + 3 * len(cells)
    assert ET.parse(here / "pooling.svg").getroot().tag == SVG


def test_published_numbers_have_a_column_beside_the_measured_ones(isosent_, here, monkeypatch):
    monkeypatch.setattr(sizes, "KNOWN_SETS", {})  # the set counts as the known one
    save_model(here / "bert-base-uncased", "bert", changes={"num_hidden_layers": 12})
    finished = isosent_(
        *("research", "study", "pooling", "--data", "data", "-m", "hf:bert-base-uncased", "--pooling", "cls,mean"),
        *("--aggregation", "all", "-o", "pooling.csv"),
    )
    assert finished.code == 0, finished.err
    assert "published: BERT-base [CLS], last layer, list of Awesome-Sentence-Embedding" in finished.out
    ((*_, published),) = lines_of(finished.out, "cls", "L12", "original")
    assert published == "20.30"
    ((*_, published),) = lines_of(finished.out, "mean", "L11+L12", "original")
    assert published == ""
    rows = csv.DictReader((here / "pooling.csv").read_text().splitlines())
    beside = {(row["pooling"], row["layers"], row["transform"], row["aggregation"]): row["published"] for row in rows}
    assert float(beside["mean", "L1+L12", "whitening", "wmean"]) == pytest.approx(0.7134)
    assert beside["mean", "L1+L12", "auto", "wmean"] == ""


@pytest.mark.parametrize("study", ["layers", "pooling"])
def test_what_cannot_be_done_is_refused_first(isosent_, refuses, study):
    command = ("research", "study", study, "--data", "data", "-m", "hf:none")
    refuses(isosent_(*command, "-o", "a.gif"), "a.gif")
    refuses(isosent_(*command, "-o", "no/a.csv"), "there is no folder")
    refuses(isosent_(*command, "--aggregation", "sum"), "'sum' is not one of")
    refuses(
        isosent_("research", "study", study, "--data", "data", "-m", "wordllama"),
        f"study {study}: wordllama is no transformer",
    )
    refuses(isosent_("research", "study", study, "--data", "data", "-m", "hf:tiny", "--tasks", "STS12"), "STS12")
