import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr

import isosent
from isosent import evaluate
from isosent.errors import EvaluationWarning, FileFormatError, InputError, InputFileError
from isosent.evaluation.sts import read_paraphrases, read_scored_pairs


@pytest.fixture
def table(texts):
    """Pairs whose texts hold quotation marks and commas."""
    first = [f'"{text}, he said' if row % 3 == 0 else text for row, text in enumerate(texts[:20])]
    return pd.DataFrame({"sentence1": first, "sentence2": texts[1:21], "score": np.arange(20) * 7 % 11 / 2})


def write(table, path, **how):
    match path.suffix:
        case ".csv":
            table.to_csv(path, index=False, **how)
        case ".tsv" | ".txt":
            lines = ["\t".join(map(str, row)) for row in [table.columns, *table.itertuples(index=False)]]
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        case ".jsonl":
            table.to_json(path, orient="records", lines=True)
        case ".json":
            table.to_json(path, orient="records")
        case ".parquet":
            table.to_parquet(path)
    return path


def assert_reads(task, table):
    assert list(task.first) == table.sentence1.tolist()
    assert list(task.second) == table.sentence2.tolist()
    assert task.scores.tolist() == table.score.tolist()


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt", "jsonl", "json", "parquet"])
def test_every_format_holds_the_same_pairs(tmp_path, table, ending):
    table["more"] = "a, b"
    task = read_scored_pairs(write(table, tmp_path / f"pairs.{ending}"))
    assert_reads(task, table)
    assert (task.name, task.columns, sum(task.dropped.values())) == ("pairs", ("sentence1", "sentence2", "score"), 0)


def test_tabs_know_no_quoting_and_commas_do(tmp_path):
    (tmp_path / "a.tsv").write_text('s1\ts2\tscore\n"a "b\tc"\t1\n"\td\t2\n')
    assert read_scored_pairs(tmp_path / "a.tsv").first == ('"a "b', '"')
    (tmp_path / "a.csv").write_text('s1,s2,score\n"a, ""b""","c\nd",1\ne,f,2\n')
    task = read_scored_pairs(tmp_path / "a.csv")
    assert (task.first, task.second) == (('a, "b"', "e"), ("c\nd", "f"))


def test_a_file_without_a_header_is_two_texts_and_a_score(tmp_path, table):
    assert_reads(read_scored_pairs(write(table, tmp_path / "pairs.csv", header=False)), table)
    (tmp_path / "rows.tsv").write_text("id\ta\t3\tb\nid\tc\t4\td\n")
    task = read_scored_pairs(tmp_path / "rows.tsv", columns="2,4,3")
    assert (task.first, task.second, task.scores.tolist()) == (("a", "c"), ("b", "d"), [3, 4])
    (tmp_path / "two.tsv").write_text("a\tb\nc\td\n")
    assert read_paraphrases(tmp_path / "two.tsv", columns="1,2").first == ("a", "c")


def test_nested_columns_are_named_by_their_path(tmp_path, table):
    rows = [
        {"guid": row, "sentence1": one, "sentence2": other, "labels": {"label": score, "real-label": score + 0.01}}
        for row, (one, other, score) in enumerate(table.itertuples(index=False))
    ]
    (tmp_path / "klue.json").write_text(json.dumps(rows))
    task = read_scored_pairs(tmp_path / "klue.json")
    assert task.columns[2] == "labels.label"
    assert_reads(task, table)
    real = read_scored_pairs(tmp_path / "klue.json", columns=["sentence1", "sentence2", "labels.real-label"])
    assert real.scores == pytest.approx(table.score + 0.01)
    pd.DataFrame(rows).to_parquet(tmp_path / "klue.parquet")
    assert_reads(read_scored_pairs(tmp_path / "klue.parquet"), table)


def test_rows_without_a_score_are_dropped_and_counted(tmp_path, table):
    table.loc[[3, 5], "score"] = np.nan
    for ending in ("csv", "jsonl", "parquet"):
        task = read_scored_pairs(write(table, tmp_path / f"pairs.{ending}"))
        assert (len(task.first), task.dropped) == (18, {"without a score": 2})
        assert table.sentence1[3] not in task.first


@pytest.mark.parametrize("transform", [None, isosent.Whitening(8)])
def test_scores_are_correlations_of_the_cosine(wordllama, tmp_path, table, transform):
    result = evaluate(wordllama, write(table, tmp_path / "own.csv"), "pairs", transform=transform)
    model = wordllama
    if transform is not None:
        model = wordllama.fitted([*table.sentence1, *table.sentence2], transform=transform)
    first, second = (model.encode(column.tolist()).astype(np.float64) for column in (table.sentence1, table.sentence2))
    cosines = (first * second).sum(axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    task = result.tasks["own"]
    assert task.scores == pytest.approx(
        {"spearman": spearmanr(cosines, table.score)[0], "pearson": pearsonr(cosines, table.score)[0]}
    )
    assert (task.kind, task.metric, task.n_items) == ("pairs", "spearman", 20)
    assert task.details == {
        "columns": ["sentence1", "sentence2", "score"],
        "score_range": [0.0, 5.0],
        "n_unscored": 0,
    }
    assert task.protocol == {"similarity": "cosine", "columns": "sentence1,sentence2,score"}
    assert list(task.data) == ["own.csv"]


def test_cosines_that_are_all_the_same_are_undefined_and_said_so(wordllama, tmp_path):
    (tmp_path / "same.csv").write_text("s1,s2,score\na car,a car,1\na sea,a sea,2\n")
    with pytest.warns(EvaluationWarning, match="same: every cosine is the same; its correlation is undefined"):
        result = evaluate(wordllama, tmp_path / "same.csv", "pairs")
    assert np.isnan(result.tasks["same"].score)


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        (
            "a,b,score",
            None,
            r"has the columns a, b, score; pairs must have sentence1, sentence2 or",
        ),
        ("s1,s2,points", None, "has the columns s1, s2, points; pairs must have .*; and score or"),
        (
            "s1,s2,score,text1,text2",
            None,
            "has several usual names for sentence1 and sentence2: text1 and text2; s1 and s2",
        ),
        ("s1,s2,score,label", None, "has several usual names for score: score; label"),
        ("s1,s2,score", "s1,s2,points", "has no column points; it has: s1, s2, score"),
        ("s1,s2,score", "1,2,4", "has no column 4; it has: 1, 2, 3"),
        ("s1,s2,score", "s1,s2", "columns 's1,s2': name 3 different columns in the order sentence1,sentence2,score"),
        ("s1,s2,score", ["s1", "s1", "score"], "columns .*: name 3 different columns"),
    ],
)
def test_columns_that_cannot_be_told_are_listed(tmp_path, header, columns, message):
    (tmp_path / "pairs.csv").write_text(f"{header}\n" + ",".join("1" * len(header.split(","))) + "\n")
    with pytest.raises(InputError, match=message):
        read_scored_pairs(tmp_path / "pairs.csv", columns=columns)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "s1\ts2\tscore\na\tb\n", "line 2: expected 3 fields, as in the first row; found 2"),
        ("a.csv", "s1,s2,score\na,b,1,2\n", "line 2: expected 3 fields, as in the first row; found 4"),
        ("a.csv", 's1,s2,score\n"a,b,1\n', "not valid CSV"),
        ("a.csv", "\n\n", "holds no rows"),
        ("a.csv", "s1,s2,score\na,b,high\n", "line 2: score is 'high', not a number"),
        ("a.csv", "s1,s2,score\na,b,inf\n", "line 2: score is 'inf', not a number"),
        ("a.csv", "s1,s2,score\na,b,1\nc,d,1\n", "the scores of the 2 pairs of a are all 1"),
        ("a.csv", "s1,s2,score\na,b,\n", "the scores of the 0 pairs .* missing"),
        ("a.jsonl", '{"s1": "a", "s2": "b", "score": 1}\n{', "line 2 is no JSON object"),
        ("a.jsonl", '{"s1": 1, "s2": "b", "score": 1}\n', "line 1: s1 is a number, not a text"),
        ("a.jsonl", '{"s1": "a", "s2": "b", "score": true}\n', "line 1: score is True, not a number"),
        ("a.jsonl", '{"s1": "a", "s2": "b", "score": [1]}\n', r"line 1: score is \[1\], not a number"),
        ("a.jsonl", "\n", "holds no rows"),
        (
            "a.json",
            '[{"s1": "a", "s2": "b", "score": 1}, 3]',
            "row 1 \\(counted from 0\\) is no JSON object",
        ),
        ("a.json", '{"s1": "a"}', "is no list of JSON objects"),
        ("a.json", "[", "a.json is not valid JSON"),
        ("a.parquet", "no table", "is not a readable parquet file"),
        ("a.xlsx", "no table", r"is no table. Expected a name that ends in .txt, .csv, .tsv, .jsonl, .json, .parquet"),
        ("a.csv", "", "is empty"),
    ],
)
def test_malformed_files_are_told(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputFileError, match=message):
        read_scored_pairs(tmp_path / name)


def test_a_missing_text_is_told_by_its_row(tmp_path, table):
    table.loc[4, "sentence2"] = None
    with pytest.raises(FileFormatError, match="row 4 \\(counted from 0\\): sentence2 is null, not a text"):
        read_scored_pairs(write(table, tmp_path / "pairs.parquet"))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_scored_pairs(tmp_path / "pairs.csv")
