"""The commands ``evaluate ...``, apart from those of STS and RTE on their own files."""

import json
from itertools import pairwise

import pyarrow.parquet as pq
import pytest

from isosent.evaluation.result_file import read_result


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pairs_file(here, texts):
    rows = [f"{texts[row]}\t{texts[row + 1]}\t{row % 5}\n" for row in range(20)]
    (here / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows), "utf-8")
    return "pairs.tsv"


def test_sts_takes_a_file_of_pairs(isosent_, here, pairs_file):
    finished = isosent_("evaluate", "pairs", "--data", pairs_file, "-o", "r.json", "-o", "r.tex")
    assert finished.code == 0, finished.err
    (row,) = [line for line in finished.out.splitlines() if "spearman" in line]
    assert "pairs" in row
    assert read_result(here / "r.json").tasks["pairs"].n_items == 20
    assert "tabular" in (here / "r.tex").read_text()


def test_retrieval_takes_a_file_of_paraphrases(isosent_, pairs_file):
    finished = isosent_("evaluate", "retrieval", "--data", pairs_file, "--columns", "sentence1,sentence2", "--json")
    task = json.loads(finished.out)["tasks"]["pairs"]
    assert (task["kind"], task["metric"]) == ("retrieval", "mrr")


def test_vectors_and_an_index_are_scored_as_the_model_that_made_them(isosent_, here, refuses, texts):
    pairs = [f"{text}\t{other}" for text, other in pairwise(texts[:31])]
    (here / "pairs.tsv").write_text("\n".join(["first\tsecond", *pairs]) + "\n", "utf-8")
    (here / "texts.txt").write_text("\n".join(texts[:31]) + "\n", "utf-8")
    (here / "second.txt").write_text("\n".join(texts[1:31]) + "\n", "utf-8")
    for command in ("encode texts.txt -o v.parquet", "encode texts.txt -o v.npy", "index second.txt -o index"):
        assert isosent_(*command.split()).code == 0
    evaluate = ("evaluate", "retrieval", "--data", "pairs.tsv", "--columns", "first,second", "--json", "-m")
    by_model, by_vectors, by_index = (
        json.loads(isosent_(*evaluate, model).out)["tasks"]["pairs"]["scores"]
        for model in ("wordllama", "v.parquet", "index")
    )
    assert by_vectors == pytest.approx(by_model)
    assert by_index == pytest.approx(by_model)
    refuses(isosent_(*evaluate, "v.npy"), "v.npy holds no texts", "FILE.parquet")
    for command in ("fit texts.txt --transform whitening -o other", "encode texts.txt -m other -o o.parquet"):
        assert isosent_(*command.split()).code == 0
    refuses(isosent_(*evaluate, "v.parquet,o.parquet"), "o.parquet holds vectors of the space", "cannot be compared")
    table = pq.read_table("o.parquet").replace_schema_metadata(None)  # of no known space
    pq.write_table(table, "unknown.parquet")
    by_first = json.loads(isosent_(*evaluate, "v.parquet,unknown.parquet").out)["tasks"]["pairs"]["scores"]
    assert by_first == pytest.approx(by_model)


def test_all_prints_one_table_of_every_task(isosent_, here, write_stsb):
    write_stsb(here / "data", n_pairs=9)
    finished = isosent_("evaluate", "sts", "transfer", "--data", "data")
    assert finished.code == 0, finished.err
    lines = [line.split()[1:] for line in finished.out.splitlines() if line[:1] in ("┃", "│")]
    heads = [number for number, line in enumerate(lines) if line[0] in ("x100", "task")]
    assert [lines[number][0:3:2] for number in heads] == [["x100", "STSB"], ["task", "items"]]  # STS, then all else
    assert [line[0] for line in lines[heads[1] + 1 :]] == ["STSB-supervised"]
    assert "texts without a vector: 0" in finished.out


def test_transfer_names_the_nearest_task(isosent_, refuses, here, write_stsb):
    write_stsb(here / "data")
    refuses(isosent_("evaluate", "TRECK", "--data", "data"), "Did you mean TREC")


@pytest.mark.parametrize("command", ["transfer", "cqa", "retrieval", "all"])
def test_a_folder_without_the_files_is_refused_with_what_is_missing(isosent_, refuses, here, command):
    (here / "empty").mkdir()
    refuses(isosent_("evaluate", command, "--data", "empty"), "holds no")


def test_what_a_corpus_shares_with_a_task_is_told(isosent_, here, write_stsb, sts_lines):
    write_stsb(here / "data")
    sentences, _ = sts_lines(12, 200)  # those of the test part
    (here / "corpus.txt").write_text("\n".join(text for line in sentences for text in line.split("\t")), "utf-8")
    settings = ("--transform", "whitening", "--dims", "4", "--fit-on", "corpus.txt", "-o", "r.json")
    finished = isosent_("evaluate", "sts", "--data", "data", *settings)
    assert finished.code == 0, finished.err
    assert "STSB: 12 of 12 items occur in corpus.txt" in finished.out
    assert read_result(here / "r.json").fitting["overlap"]["STSB"]["n_items_same"] == 12


def test_a_file_that_is_read_is_not_written_over(isosent_, refuses, here, pairs_file):
    (here / "pairs.csv").write_bytes(before := (here / pairs_file).read_bytes())
    refuses(isosent_("evaluate", "pairs", "--data", "pairs.csv", "-o", "pairs.csv"), "is also an input")
    assert (here / "pairs.csv").read_bytes() == before


def test_columns_are_those_of_a_table(isosent_, refuses, here):
    (here / "empty").mkdir()
    refuses(isosent_("evaluate", "sts", "--data", "empty", "--columns", "a,b,c"), "columns")


def test_settings_that_no_transform_takes_are_refused(isosent_, refuses, here, write_stsb):
    write_stsb(here / "data")
    several = ("evaluate", "sts", "--data", "data", "--resamples", "9", "--transform", "none")
    refuses(isosent_(*several, "--transform", "mean_centering", "--dims", "4"), "mean_centering takes --dims")
    finished = isosent_(*several, "--transform", "whitening", "--dims", "4", "-o", "s.csv")
    assert finished.code == 0, finished.err
    assert (here / "s.csv").read_text().startswith("model,")
