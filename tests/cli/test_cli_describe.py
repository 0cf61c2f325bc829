import json

import numpy as np
import pytest

from isosent.errors import FileFormatError
from isosent.io.json import write_document
from isosent.io.notes import read_export_note

GLOVE = "man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glove.txt").write_text(GLOVE)
    (tmp_path / "texts.txt").write_text("man dog\ncat yak\ndog cat\nyak\n" * 9)
    np.save("v.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    return tmp_path


def facts(isosent_, source):
    printed = [line.split("  ", 1) for line in isosent_("info", source).out.splitlines()]
    described = {name: value.strip() for name, value in printed}
    assert list(json.loads(isosent_("info", source, "--json").out)) == list(described)
    return described


def test_info_describes_vectors_in_a_file_and_in_a_folder(isosent_):
    assert facts(isosent_, "v.npy") == {
        "vectors": "4",
        "dimensions": "3",
        "dtype": "float32",
        "embedding space": "unknown",
    }
    isosent_("encode", "texts.txt", "-m", "words:glove.txt", "-o", "shards/", "--shard-size", "20")
    assert facts(isosent_, "shards")["vectors"] == "36"


def test_info_of_texts_says_which_command_describes_them(isosent_, refuses, here):
    (here / "table.csv").write_text("id,v1,v2\n1,0.1,0.2\n")
    refuses(isosent_("info", "texts.txt"), "texts.txt holds texts", "isosent inspect texts.txt")
    refuses(isosent_("info", "table.csv"), "is a table", "isosent inspect table.csv", ".npy")
    (here / "words.tsv").write_text("the\t0.1\t0.2\ncat\t0.3\t0.4\n")
    assert facts(isosent_, "words.tsv")["rows"] == "2"
    (here / "wrong.txt").write_text("man 1 2 3\ndog 2 1\n")
    refuses(isosent_("info", "wrong.txt"), "line 2")


def test_info_of_other_files_of_isosent_says_what_they_are(isosent_, refuses, here):
    (here / "r.json").write_text('{"format": "isosent result 1", "tasks": {}}')
    refuses(isosent_("info", "r.json"), "isosent result", "isosent report r.json")
    (here / "model.json").write_text('{"format": "isosent-model"}')
    refuses(isosent_("info", "model.json"), "isosent-model", "Name the folder")
    (here / "page.html").write_text("<!DOCTYPE html><html></html>\n")
    refuses(isosent_("info", "page.html"), "page.html is a page", "browser")


def test_info_shortens_erased_values_and_names_the_purpose_of_auto(isosent_, here):
    options = ("-m", "words:glove.txt", "--transform", "mean_centering")
    assert isosent_("fit", "texts.txt", *options, "-o", "m").code == 0
    document = json.loads((here / "m" / "model.json").read_text())
    document.pop("checksum")
    tried = {"candidate": "centering", "name": "mean_centering", "gain": 0.1, "low": 0.05, "high": 0.2}
    choice = {"chosen": "centering", "reason": "x", "purpose": "topics", "candidates": [tried]}
    values = ", ".join(f"value{number}" for number in range(36))
    [fit] = document["fits"]
    erasure = {"attribute": "kind", "values": values, "n_missing": 0}
    document["fits"] = [fit | {"transform": "erasure", "parameters": erasure}, fit | {"choice": choice}]
    (here / "m" / "model.json").write_text(json.dumps(document))
    out = isosent_("info", "m").out
    assert "value1, " in out
    assert "value35" not in out
    assert "n_missing=0" in out
    assert "auto, for topics: x" in out
    assert values in isosent_("info", "m", "--json").out


def test_a_note_without_what_info_shows_is_refused(here):
    agreement = {"n_vectors": 1, "largest_difference": 0.0, "lowest_cosine": 1.0}
    note = {"format": "isosent-export", "target": "static", "isosent_version": "0.1.0", "fingerprint": "0" * 64}
    note |= {"reference": "m", "normalize": True, "model": {}, "agreement": agreement, "checksums": {}}
    write_document(here / "isosent.json", note | {"distilled": {"a": 1}})
    with pytest.raises(FileFormatError, match=r"distilled.*n_texts|n_texts.*distilled"):
        read_export_note(here)


def test_info_describes_a_mean_and_covariance(isosent_):
    isosent_("moments", "v.npy", "-o", "m.safetensors")
    assert facts(isosent_, "m.safetensors")["mean and covariance of"] == "4 vectors"


def test_info_describes_an_index(isosent_):
    isosent_("index", "texts.txt", "-m", "words:glove.txt", "-o", "index")
    assert isosent_("info", "index").out.startswith("index: 36 rows of 3 dimensions")
    assert json.loads(isosent_("info", "index", "--json").out)["n_rows"] == 36


def test_an_index_in_place_of_texts_or_a_model_is_named_as_one(isosent_, refuses):
    isosent_("index", "texts.txt", "-m", "words:glove.txt", "-o", "index")
    refuses(isosent_("fit", "index", "-o", "x"), "index is an index. Name the texts")
    refuses(isosent_("index", "index", "-o", "x"), "index is an index. Name the texts")
    refuses(isosent_("calibrate", "texts.txt", "-m", "index"), "index is an index, not a model")
    refuses(isosent_("calibrate", "v.npy"), "no model is named (-m FOLDER)")


def test_files_are_not_compared_as_texts(isosent_, refuses):
    refuses(isosent_("similarity", "v.npy", "a text", "-m", "words:glove.txt"), "v.npy is a file")


def test_help_without_a_topic_is_the_first_help(isosent_):
    assert isosent_("help").out == isosent_("--help").out != isosent_("help", "models").out


def test_two_texts_are_compared_and_their_cosine_is_explained_word_by_word(isosent_):
    texts = ("man dog", "dog cat")
    printed = isosent_("similarity", *texts, "-m", "words:glove.txt").out.splitlines()
    cosine = json.loads(isosent_("similarity", *texts, "-m", "words:glove.txt", "--json").out)["cosine"]
    assert printed[0] == f"cosine {cosine:.4f}"
    assert "isosent calibrate" in printed[1]
    explained = json.loads(isosent_("explain", *texts, "-m", "words:glove.txt", "--json").out)
    assert {(pair["a"], pair["b"]) for pair in explained["pairs"]} == {
        (a, b) for a in ("man", "dog") for b in ("dog", "cat")
    }
    assert sum(pair["contribution"] for pair in explained["pairs"]) == pytest.approx(cosine, abs=1e-6)
    assert f"cosine {cosine:.4f}" in isosent_("explain", *texts, "-m", "words:glove.txt").out
