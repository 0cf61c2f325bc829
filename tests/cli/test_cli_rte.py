import json

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, texts):
    """RTE in miniature."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for part, start, n_pairs in (("train", 0, 12), ("dev", 50, 7)):
        rows = [
            f"{row}\t{texts[start + row]}\t{texts[start + row * 2]}\t{'not_' * (row % 3 == 0)}entailment"
            for row in range(n_pairs)
        ]
        lines = ["index\tsentence1\tsentence2\tlabel", *rows]
        (tmp_path / "data" / f"{part}.tsv").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_accuracies_are_printed_and_written(isosent_, here):
    finished = isosent_("evaluate", "rte", "--data", "data", "-m", "wordllama", "-o", "rte.json")
    assert finished.code == 0, finished.err
    written = json.loads((here / "rte.json").read_text())
    (fixed,) = [line for line in finished.out.splitlines() if "cosine > 0.5 " in line]
    details = written["tasks"]["RTE"]["details"]
    assert f"{100 * details['fixed']['dev_accuracy']:.2f}" in fixed
    (tuned,) = [line for line in finished.out.splitlines() if "best on train" in line]
    assert f"{100 * details['tuned']['dev_accuracy']:.2f}" in tuned
    (majority,) = [line for line in finished.out.splitlines() if "always entailment" in line]
    assert "57.14" in majority
    assert "12 of train, 7 of dev" in finished.out
    assert "texts without a vector: 0" in finished.out


def test_json_can_go_to_standard_output(isosent_):
    finished = isosent_("evaluate", "rte", "--data", "data", "--transform", "whitening", "--dims", "4", "--json")
    written = json.loads(finished.out)
    assert written["fitting"]["parameters"]["n_components"] == 4
    assert written["fitting"]["fit"] == "target"
    assert written["tasks"]["RTE"]["dim"] == 4


def test_what_cannot_be_done_is_refused_first(isosent_, refuses):
    refuses(isosent_("evaluate", "rte", "--data", "nowhere"), "nowhere: no such folder")
    refuses(isosent_("evaluate", "rte", "--data", "data", "--fit-on", "x.txt"), "x.txt", "transform")
    refuses(isosent_("evaluate", "rte", "--data", "data", "-o", "no/rte.json"), "there is no folder")
