import json

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb):
    """STS-B in miniature, a table in miniature, and a map."""
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data")
    (tmp_path / "paper.yaml").write_text(
        """
name: T
title: Tiny
citation: Nobody 2000
tables:
  - name: table 1
    title: Two rows
    source: made up
    family: sts
    columns: [STSB]
    metric: spearman
    conditions:
      - {label: mean, model: here, published: [50]}
      - {label: elsewhere, model: bert-base-uncased, options: {layers: "-1"}, published: [60]}
"""
    )
    (tmp_path / "map.yaml").write_text("here: wordllama\n")
    return tmp_path


def test_measured_stands_beside_published(isosent_, here):
    finished = isosent_(
        "research", "reproduce", "paper.yaml", "--data", "data", "--models", "map.yaml", "-o", "out.json"
    )
    assert finished.code == 0, finished.err
    measured = json.loads((here / "out.json").read_text())["tables"][0]["conditions"][0]["cells"]["STSB"]["measured"]
    assert f" {100 * measured['value']:.2f} " in finished.out
    assert "(50.00)" in finished.out
    assert "missing: needs bert-base-uncased" in finished.out
    assert "Published numbers: made up." in finished.out
    assert "done: isosent evaluate STSB --data data -m wordllama" in finished.err


def test_commands_are_written_beside_the_tables(isosent_, here):
    arguments = ("research", "reproduce", "paper.yaml", "--data", "data", "--models", "map.yaml")
    command = "isosent evaluate STSB --data data -m 'hf:bert-base-uncased?layers=-1'"
    assert command not in isosent_(*arguments).out
    isosent_(*arguments, "-o", "t.md")
    assert f"{command}  # elsewhere" in (here / "t.md").read_text()


def test_a_paper_has_its_tables_without_any_model(isosent_, here):
    finished = isosent_(
        "research",
        "reproduce",
        "bert-whitening",
        "--data",
        "data",
        "--table",
        "1",
        "--table",
        "figure 1",
        "-o",
        "bert-whitening.md",
    )
    assert finished.code == 0, finished.err
    written = (here / "bert-whitening.md").read_text()
    assert "### bert-whitening, table 1: Without supervision of NLI" in written
    assert "### bert-whitening, figure 1:" in written
    assert "table 2" not in written
    assert "| BERT-base whitening-256(target) | 71.43 | 63.89 |" in written


def test_json_can_go_to_standard_output(isosent_):
    finished = isosent_("research", "reproduce", "gem", "--data", "data", "--table", "5", "--json")
    document = json.loads(finished.out)
    assert document["paper"]["citation"] == "Yang et al. 2019"
    assert document["tables"][0]["conditions"][0]["missing"] == ["LexVec, fastText and PSL vectors (L.F.P)"]


def test_what_cannot_be_done_is_refused_first(isosent_, refuses, here):
    refuses(
        isosent_("research", "reproduce", "bert-whitening", "--data", "nowhere"),
        "nowhere: no such folder",
    )
    refuses(isosent_("research", "reproduce", "S7", "--data", "data"), "'S7' is no paper")
    refuses(
        isosent_("research", "reproduce", "bert-whitening", "--data", "data", "--table", "7"),
        "Its tables: table 1; table 2;",
    )
    refuses(
        isosent_("research", "reproduce", "bert-whitening", "--data", "data", "-o", "no/a.json"),
        "there is no folder",
    )
    (here / "map.yaml").write_text("bert-base-uncase: hf:x\n")
    refuses(
        isosent_("research", "reproduce", "bert-whitening", "--data", "data", "--models", "map.yaml"),
        "Did you mean bert-base-uncased?",
    )
