"""The commands ``data ...``."""

import gzip
import json

import pytest

from isosent.datasets import read_manifest


@pytest.fixture
def mirror(tmp_path):
    """A folder like the hub that holds BIOSSES."""
    path = tmp_path / "hub" / "mteb" / "biosses-sts" / "test.jsonl.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b'{"sentence1": "a", "sentence2": "b", "score": 1}\n'))
    return tmp_path / "hub"


def test_list_tells_source_commit_size_and_terms_of_every_set(isosent_):
    done = isosent_("data", "list")
    assert (done.code, done.err) == (0, "")
    blocks = dict(block.split(":", 1) for block in ("\n" + done.out).replace("\n    ", "\t").strip().split("\n"))
    assert list(blocks) == list(read_manifest().sets)
    assert "nyu-mll/glue at bcdcba79d07b" in blocks["rte"]
    assert "converted to the layout that isosent reads" in blocks["rte"]
    assert "BeIR/scifact-qrels (not pinned)" in blocks["scifact"]
    assert "terms     CC BY-NC-SA 3.0" in blocks["sick"]
    assert "not on the hub" in blocks["cqa"]


def test_get_puts_a_set_where_evaluate_finds_it(isosent_, mirror, tmp_path):
    done = isosent_("data", "get", "biosses", "-o", tmp_path / "data", "--from", mirror)
    assert (done.code, done.err) == (0, "")
    assert "1 files downloaded, 0 already there" in done.out
    assert "commit not pinned: trusted this time, and recorded in isosent-data.json" in done.out
    assert json.loads((tmp_path / "data" / "biosses" / "biosses.jsonl").read_text()) == {
        "sentence1": "a",
        "sentence2": "b",
        "score": 1,
    }
    again = isosent_("data", "get", "biosses", "-o", tmp_path / "data", "--from", mirror)
    assert "0 files downloaded, 1 already there" in again.out


def test_get_says_whether_texts_are_the_original_ones(isosent_, mirror, tmp_path):
    stsb = mirror / "mteb" / "stsbenchmark-sts"
    stsb.mkdir()
    for part in ("train", "validation", "test"):
        row = {"sentence1": "a", "sentence2": "b", "score": 1.0}
        (stsb / f"{part}.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    done = isosent_("data", "get", "stsb", "-o", tmp_path / "data", "--from", mirror)
    assert "0 of 3 files with a known checksum equal the originals; the others differ" in done.out


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["biossess"], ["no set 'biossess'", "Did you mean biosses"]),
        (["rte"], ["rte could not be fetched", "no such file", "place train.tsv", "--from FOLDER"]),
        (["cqa"], ["not on the hub", "relevancy", "SemEval 2016 task 3"]),
    ],
)
def test_what_cannot_be_got_is_refused(isosent_, refuses, mirror, tmp_path, names, words):
    refuses(isosent_("data", "get", *names, "-o", tmp_path / "data", "--from", mirror), *words)


def test_a_mirror_that_is_not_there_is_refused(isosent_, refuses, tmp_path):
    refuses(isosent_("data", "get", "rte", "-o", tmp_path, "--from", tmp_path / "no"), "no: no such folder")


def test_without_network_it_is_said_what_to_place_where(isosent_, refuses, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    done = isosent_("data", "get", "rte", "-o", tmp_path / "data")
    refuses(done, "offline mode", "place train.tsv, dev.tsv and test.tsv in one folder", "nyu-mll/glue/rte/train-")
    assert not list((tmp_path / "data").rglob("*"))
