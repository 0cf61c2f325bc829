import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from isosent.evaluation.overlap import text_hashes


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb):
    """A task, and a corpus that holds a pair of it and half of another."""
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data", n_pairs=9)
    lines = (tmp_path / "data" / "sts-test.csv").read_text("utf-8").splitlines()
    pairs = [line.split("\t")[5:7] for line in lines]
    corpus = [pairs[0][0], f"  {pairs[0][1].upper()} ", pairs[1][0], "something else"]
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in corpus), "utf-8")
    (tmp_path / "corpus.tsv").write_text("id\ttext\n" + "".join(f"0\t{text}\n" for text in corpus), "utf-8")
    return tmp_path


def test_shared_texts_are_counted(isosent_):
    finished = isosent_("data", "overlap", "corpus.txt", "--data", "data")
    assert finished.code == 0, finished.err
    (row,) = [line for line in finished.out.splitlines() if line.startswith("│ STSB ")]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "STSB",
        "18",
        "2 (11.1%)",
        "3 (16.7%)",
        "3 (16.7%)",
        "9",
        "1 (11.1%)",
    ]
    assert "in corpus.txt: 4 texts" in finished.out


def test_numbers_are_printed_as_json(isosent_):
    printed = isosent_("data", "overlap", "corpus.tsv", "--column", "text", "--data", "data", "--json")
    document = json.loads(printed.out)
    assert (document["corpus"], document["n_texts"]) == ("corpus.tsv", 4)
    assert document["tasks"]["STSB"]["n_items_same"] == 1


def test_the_corpus_may_come_from_standard_input(isosent_, here):
    corpus = (here / "corpus.txt").read_bytes()
    finished = isosent_("data", "overlap", "-", "--data", "data", "--tasks", "STSB", stdin=corpus)
    assert "in standard input: 4 texts" in finished.out


def test_what_cannot_be_read_is_refused(isosent_, refuses):
    refuses(isosent_("data", "overlap", "corpus.txt", "--data", "nowhere"), "nowhere: no such folder")
    refuses(
        isosent_("data", "overlap", "nowhere.txt", "--data", "data", "--tasks", "STSB"), "nowhere.txt: no such file"
    )


def test_an_unknown_task_is_refused_with_the_nearest_name(isosent_, refuses):
    finished = isosent_("data", "overlap", "corpus.txt", "--data", "data", "--tasks", "STSX")
    refuses(finished, "no task 'STSX'", "Did you mean")


def test_the_corpus_may_be_a_distilled_model_which_holds_hashes(isosent_, here):
    (here / "static").mkdir()
    (here / "static" / "isosent.json").write_text("{}")
    hashes = np.unique(text_hashes((here / "corpus.txt").read_text("utf-8").splitlines()))
    save_file({"hashes": hashes}, here / "static" / "texts.safetensors")
    expected, found = (
        json.loads(isosent_("data", "overlap", corpus, "--data", "data", "--json").out)["tasks"]["STSB"]
        for corpus in ("corpus.txt", "static")
    )
    assert found == {name: expected[name] for name in ("n_texts", "n_same", "n_items", "n_items_same")}
    assert "not known" in isosent_("data", "overlap", "static", "--data", "data").out
