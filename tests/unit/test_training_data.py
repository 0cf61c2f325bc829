"""Examples read from files of every known form, what is refused, and what the examples say of themselves."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from isosent.errors import EvaluationWarning, FileFormatError, InputError, InputFileError, InputTypeError
from isosent.evaluation.sts import read_sts
from isosent.io.pairs import ScoredPairs
from isosent.training.data import COLUMNS, Examples, SourceFile, read_dev_set, read_examples
from isosent.training.development import count_seen_texts, warn_if_seen

NLI = "premise\thypothesis\tlabel\na\tb\tentailment\na\tc\tcontradiction\nd\te\tneutral\nf\tg\t-\n"
TWO = "premise\thypothesis\tlabel\nh\ti\tentailment\nj\tk\tnot_entailment\n"
STS = "main\tx\t2012\t1\t5\ta\tb\nmain\tx\t2012\t2\t0\tc\td\nmain\tx\t2012\t3\t1\te\tf\n"


def test_classes_are_numbered_by_name(write):
    examples = read_examples("classification", [write("nli.tsv", NLI)])
    assert examples.label_names == ("contradiction", "entailment", "neutral")
    assert examples.columns == {"sentence1": ["a", "a", "d"], "sentence2": ["b", "c", "e"], "label": [1, 0, 2]}
    assert (examples.objective, dict(examples.dropped)) == ("classification", {"without a label": 1})
    assert examples.source_columns == {"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}


def test_files_are_read_one_after_the_other(write):
    other = write("other.jsonl", json.dumps({"sentence1": "x", "sentence2": "y", "gold_label": "neutral"}))
    examples = read_examples("classification", [other, write("nli.tsv", NLI)])
    assert examples.columns["sentence1"] == ["x", "a", "a", "d"]
    assert [source.n_rows for source in examples.sources] == [1, 4]
    assert examples.source_columns["sentence1"] == "sentence1, premise"
    assert examples.files == (other, other.parent / "nli.tsv")


def test_scores_lie_between_zero_and_one(write):
    examples = read_examples("regression", [write("sts.csv", STS)])
    assert examples.columns == {"sentence1": ["a", "c", "e"], "sentence2": ["b", "d", "f"], "score": [1, 0, 0.2]}
    assert examples.sources[0].score_range == (0, 5)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_triplets_have_one_meaning_in_every_format(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    table = pd.DataFrame({"no": ["c", "f"], "answer": ["b", "e"], "anchor": ["a", "d"], "negative": ["x", "y"]})
    match ending:
        case "jsonl":
            table.to_json(path, orient="records", lines=True)
        case "parquet":
            table.to_parquet(path)
        case _:
            table.to_csv(path, index=False, sep="," if ending == "csv" else "\t")
    examples = read_examples("triplet", [path], columns={"positive": "answer", "negative": "no"})
    assert examples.columns == {"anchor": ["a", "d"], "positive": ["b", "e"], "negative": ["c", "f"]}
    assert list(read_examples("ranking", [path], columns={"positive": "answer"}).columns) == [
        "anchor",
        "positive",
        "negative",
    ]


def test_ranking_takes_pairs_or_triplets(write):
    pairs = read_examples("ranking", [write("pairs.csv", "anchor,positive\na,b\n")])
    assert pairs.columns == {"anchor": ["a"], "positive": ["b"]}
    with pytest.raises(
        InputError, match=r"different columns: .*: anchor, positive, negative; .*: anchor, positive\. Leave"
    ):
        read_examples("ranking", [write("triplets.csv", "anchor,positive,negative\na,b,c\n"), pairs.files[0]])


def test_pairs_with_a_class_become_triplets_or_pairs(write):
    triplet = {"anchor": ["a"], "positive": ["b"], "negative": ["c"]}
    nli = write("nli.tsv", NLI)
    for objective in ("triplet", "ranking"):
        assert read_examples(objective, [nli]).columns == triplet
    assert read_examples("ranking", [write("two.tsv", TWO)]).columns == {"anchor": ["h"], "positive": ["i"]}
    renamed = write("renamed.tsv", NLI.replace("premise", "text"))
    columns = {"sentence1": "text", "sentence2": "hypothesis"}
    assert read_examples("triplet", [renamed], columns=columns).columns == triplet


def test_classes_may_be_named(write):
    path = write("own.csv", "s1,s2,label\na,b,1\nc,d,0\n")
    examples = read_examples("classification", [path], class_names=["other", "alike"])
    assert (examples.label_names, examples.columns["label"]) == (("alike", "other"), [0, 1])


def test_the_fingerprint_hangs_on_the_content_alone(write):
    first = read_examples("classification", [write("nli.tsv", NLI)]).fingerprint
    assert read_examples("classification", [write("same.txt", f"{NLI}z\tz\t-\n")]).fingerprint == first
    assert read_examples("classification", [write("nli.tsv", f"{NLI}z\tz\tneutral\n")]).fingerprint != first


@pytest.mark.parametrize(
    ("objective", "content", "options", "message"),
    [
        (
            "classification",
            NLI.replace("label", "kind"),
            {},
            r"premise, hypothesis, kind; classification must have premise, hypothesis or .*; and label or gold_label",
        ),
        ("classification", NLI, {"columns": {"sentence1": "question"}}, "must have question, sentence2; and label or"),
        (
            "classification",
            NLI,
            {"columns": {"anchor": "premise"}},
            "columns for classification are sentence1,sentence2,label",
        ),
        (
            "classification",
            NLI,
            {"columns": {"sentence1": "premise", "sentence2": "premise"}},
            "columns .*: name 3 different columns",
        ),
        ("classification", NLI, {"class_names": ["neutral"]}, "class_names must be two different names or more"),
        ("classification", NLI, {"class_names": "neutral"}, "class_names must be two different names or more"),
        ("classification", NLI, {"class_names": ["A", "a"]}, "class_names must be two different names or more"),
        ("classification", STS, {}, "It has the columns of regression"),
        ("classification", TWO.replace("not_", ""), {}, "examples of at least two classes, and there is one"),
        (
            "classification",
            "premise\thypothesis\tlabel\na\tb\t-\n\tb\tneutral\n",
            {},
            "no example is left: 1 without a label, 1 with an empty text",
        ),
        ("classification", "premise\thypothesis\tlabel\n", {}, "no example is left: the files have no rows"),
        (
            "regression",
            NLI,
            {},
            r"regression must have sentence1, sentence2 or .* It has the columns of classification",
        ),
        (
            "regression",
            STS.replace("\t5\t", "\t7\t"),
            {},
            r"line 1: score is 7, outside the range of the scores, 0 to 5",
        ),
        (
            "regression",
            STS.replace("\t1\te", "\t7\te"),
            {},
            r"line 3: score is 7, outside the range of the scores, 0 to 5",
        ),
        (
            "regression",
            "s1\ts2\tscore\na\tb\t1\nc\td\t1\n",
            {"score_range": (0, 1)},
            "all 2 scores are the same",
        ),
        ("regression", "s1\ts2\tscore\na\tb\t1\nc\td\t0\n", {}, "the range of the scores is unknown"),
        ("regression", STS, {"score_range": (5, 0)}, r"score_range must be two numbers, the lower first; got \(5, 0\)"),
        ("regression", STS, {"score_range": (0, 1, 2)}, "score_range must be two numbers"),
        ("regression", STS, {"score_range": (0, float("inf"))}, "score_range must be two numbers"),
        ("triplet", STS, {}, r"must have anchor, positive, negative\. .* It has the columns of regression"),
        ("triplet", TWO, {}, "has no pairs of contradiction"),
        ("triplet", "a\tb\nc\td\n", {}, r"triplet, unless its pairs have a class .*, must have anchor, positive"),
        (
            "triplet",
            "anchor\tpositive\na\tb\n",
            {"columns": {"anchor": "anchor"}},
            "triplet must have anchor, positive, negative",
        ),
        ("triplet", "anchor\tpositive\tnegative\na\ta\tb\n", {}, "no example is left: 1 with the same text twice"),
        (
            "triplet",
            "id\tanchor\tpositive\tnegative\n1\ta\tb\tc\n1\td\te\tf\n",
            {},
            r"1 values of id occur more than once: 1\.",
        ),
        ("ranking", STS, {}, "It has the columns of regression"),
        (
            "ranking",
            NLI,
            {"columns": {"anchor": "premise", "label": "label"}},
            "anchor,positive,negative; or anchor,positive; or sentence1,sentence2,label",
        ),
        ("rank", NLI, {}, "objective must be one of classification, regression, triplet, ranking; got 'rank'"),
    ],
)
def test_bad_data_is_told(write, objective, content, options, message):
    with pytest.raises(InputError, match=message):
        read_examples(objective, [write("data.tsv", content)], **options)


def test_a_file_given_twice_is_refused(write, tmp_path):
    path = write("nli.tsv", NLI)
    with pytest.raises(InputError, match=r".* and .* are the same file. Name it once"):
        read_examples("classification", [path, tmp_path / ".." / tmp_path.name / "nli.tsv"])


def test_files_are_a_sequence_of_at_least_one(write, tmp_path):
    path = write("nli.tsv", NLI)
    with pytest.raises(InputTypeError, match=r"files must be a sequence of paths; got one str. Pass \[path\]"):
        read_examples("classification", str(path))
    with pytest.raises(InputError, match="no file is named"):
        read_examples("classification", [])
    with pytest.raises(InputFileError, match="no such file"):
        read_examples("classification", [path, tmp_path / "absent.tsv"])


def test_a_set_to_score_on_keeps_its_scale(write):
    devset = read_dev_set(write("dev.csv", STS))
    assert (devset.name, list(devset.first), list(devset.second)) == ("dev", ["a", "c", "e"], ["b", "d", "f"])
    assert devset.scores.tolist() == [5, 0, 1]
    own = write("own.csv", "q,sentence2,label\na,b,0.5\nc,d,-3\n")
    assert read_dev_set(own, columns={"sentence1": "q"}).scores.tolist() == [0.5, -3]


def test_pairs_that_match_are_a_set_to_score_a_ranking_on(write):
    pairs = write("pairs.csv", "anchor,positive\na,b\nc,d\nc,b\n")
    devset = read_dev_set(pairs, objective="ranking")
    assert list(zip(devset.first, devset.second, devset.scores, strict=True)) == [
        *(("a", "b", 1), ("c", "d", 1), ("c", "b", 1)),
        ("a", "d", 0),  # and not c with b, which match
    ]
    named = write("named.csv", "question,answer,wrong\na,b,x\nc,d,y\n")
    devset = read_dev_set(named, data_columns="question,answer,wrong", objective="ranking")
    assert devset.second == ("b", "d", "x", "y")
    assert read_dev_set(write("dev.csv", STS), objective="ranking").scores.tolist() == [5, 0, 1]
    with pytest.raises(InputError, match="scored pairs"):
        read_dev_set(pairs)


@pytest.mark.parametrize("columns", ["a,b,sim", "sentence1=a,sentence2=b,score=sim"])
def test_three_columns_of_a_set_to_score_a_ranking_on_are_scored_pairs(write, columns):
    path = write("dev.csv", "a,b,sim\nq,r,0\ns,t,1\n")
    assert read_dev_set(path, columns=columns, objective="ranking").scores.tolist() == [0, 1]
    with pytest.raises(InputError, match="scored pairs must have a, b; and other"):
        read_dev_set(path, columns=columns.replace("sim", "other"), objective="ranking")


@pytest.mark.parametrize(("objective", "columns"), [("ranking", "q,d"), ("regression", "q,d,s")])
def test_columns_of_the_data_that_a_set_to_score_on_lacks_are_detected(write, objective, columns):
    path = write("dev.csv", "sentence1,sentence2,score\na,b,0\nc,d,1\n")
    assert read_dev_set(path, data_columns=columns, objective=objective).scores.tolist() == [0, 1]
    with pytest.raises(InputError, match="must have q, d"):
        read_dev_set(path, columns=columns, objective=objective)


def test_a_set_to_score_on_must_have_scores_that_vary(write):
    with pytest.raises(FileFormatError, match=r"the scores of the 1 pairs of dev are all 1"):
        read_dev_set(write("dev.csv", "s1,s2,score\na,b,1\nc,d,\n"))
    with pytest.raises(InputError, match=r"a set of scored pairs must have .* It has the columns of classification"):
        read_dev_set(write("nli.tsv", NLI))


THREE = ("entailment", "neutral", "contradiction")
SNLI = "gold_label\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def read(path, class_names=None):
    return read_examples("classification", [path], class_names=class_names)


def names_of(examples):
    return [examples.label_names[label] for label in examples.columns["label"]]


@pytest.fixture
def jsonl(tmp_path):
    def jsonl(*labels, **more):
        rows = [{"premise": f"p{i}", "hypothesis": f"h{i}", "label": label, **more} for i, label in enumerate(labels)]
        path = tmp_path / "nli.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return path

    return jsonl


def hub(first, second, label, premise="premise"):
    return {premise: first, "hypothesis": second, "label": label}


def original(first, second, label):
    """A row as SNLI and MultiNLI publish it."""
    return {
        "annotator_labels": [label, "neutral"],
        "captionID": "3416050480.jpg#4",
        "gold_label": label,
        "sentence1": first,
        "sentence1_parse": "(ROOT)",
        "sentence2": second,
        "sentence2_parse": "(ROOT)",
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("premise.jsonl", [hub("a", "b", "neutral"), hub("c", "d", "entailment")]),
        ("original.jsonl", [original("a", "b", "neutral"), original("c", "d", "entailment")]),
        ("anli.jsonl", [hub("a", "b", "n", "context"), hub("c", "d", "e", "context")]),
        ("snli.txt", SNLI + "neutral\t()\t()\ta\tb\tneutral\t\nentailment\t()\t()\tc\td\tentailment\n"),
        ("kornli.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\nc\td\tentailment\n"),
        ("klue.csv", "index,premise,hypothesis,label\n0,a,b,neutral\n1,c,d,entailment\n"),
        ("SICK.txt", SICK + "1\ta\tb\t3\tNEUTRAL\n2\tc\td\t4\tENTAILMENT\n"),
    ],
)
def test_every_form_gives_the_same_pairs(tmp_path, name, content):
    if isinstance(content, list):
        content = "".join(f"{json.dumps(row)}\n" for row in content)
    (tmp_path / name).write_text(content)
    examples = read(tmp_path / name)
    assert examples.columns == {"sentence1": ["a", "c"], "sentence2": ["b", "d"], "label": [1, 0]}
    assert (dict(examples.dropped), examples.sources[0].n_rows) == ({}, 2)


def test_rows_without_label_or_text_are_dropped_and_counted(tmp_path, jsonl):
    examples = read(jsonl("neutral", "-", "entailment", None, "", -1, "-1"))
    assert (examples.columns["sentence1"], dict(examples.dropped)) == (["p0", "p2"], {"without a label": 5})
    assert examples.sources[0].n_rows == 7
    (tmp_path / "a.tsv").write_text(
        "premise\thypothesis\tlabel\n \tb\tneutral\na\t\tentailment\nc\td\tneutral\n\tb\t-\ne\tf\tentailment\n"
    )
    examples = read(tmp_path / "a.tsv")
    assert examples.columns["sentence1"] == ["c", "e"]
    assert dict(examples.dropped) == {"with an empty text": 2, "without a label": 1}


def test_unknown_labels_are_all_listed(jsonl):
    with pytest.raises(FileFormatError) as caught:
        read(jsonl("neutral", "hidden", "entailmnet", "hidden", True))
    assert "'hidden' (2 rows, the first: line 2), 'entailmnet' (1 rows, the first: line 3), 'True' (1 rows" in str(
        caught.value
    )
    assert "Expected contradiction, entailment, neutral or entailment, not_entailment, or - for none" in str(
        caught.value
    )


def test_two_sets_of_classes_in_one_file_are_refused(jsonl):
    with pytest.raises(FileFormatError, match=r"label holds entailment, neutral, not_entailment\. Expected "):
        read(jsonl("neutral", "not_entailment", "entailment"))


def test_numbers_need_names(jsonl):
    with pytest.raises(InputError, match=r"label has numbers without names: '0' \(2 rows") as caught:
        read(jsonl(0, 2, 1, 0, -1))
    assert "entailment, neutral, contradiction on the Hugging Face hub; contradiction, entailment, neutral in" in str(
        caught.value
    )
    assert names_of(read(jsonl(0, 2, 1, 0, -1), THREE)) == ["entailment", "contradiction", "neutral", "entailment"]
    assert names_of(read(jsonl("0", "2"), THREE)) == ["entailment", "contradiction"]
    with pytest.raises(
        FileFormatError, match=r"holds '3' \(1 rows.* Expected entailment, neutral, contradiction, or - "
    ):
        read(jsonl(0, 3), THREE)


def test_numbers_of_a_parquet_file_of_datasets_have_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    classes = datasets.ClassLabel(names=list(THREE))
    texts = datasets.Value("string")
    features = datasets.Features({"premise": texts, "hypothesis": texts, "label": classes})
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [2, -1, 0]}
    datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / "nli.parquet")
    examples = read(tmp_path / "nli.parquet")
    assert (names_of(examples), dict(examples.dropped)) == (["contradiction", "entailment"], {"without a label": 1})


def test_other_classes_are_named(jsonl):
    assert names_of(read(jsonl("Same", "other"), ("same", "Other"))) == ["same", "other"]
    with pytest.raises(FileFormatError, match=r"label holds 'neutral' .* Expected same, other, or - for none"):
        read(jsonl("same", "neutral"), ("same", "other"))


def test_a_line_that_ends_before_the_label_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tgold_label\na\tb\tneutral\nc\td\n")
    with pytest.raises(FileFormatError, match=r"line 3: expected 3 fields, .*; found 2"):
        read(tmp_path / "a.tsv")


def test_a_tab_too_many_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("label1\tgold_label\tsentence1\tsentence2\nneutral\tentailment\tneutral\ta\tb\n")
    with pytest.raises(FileFormatError, match=r"line 2: expected 4 fields, .*; found 5"):
        read(tmp_path / "a.tsv")


def test_classes_of_files_must_belong_together(tmp_path):
    def classes(*files, class_names=None):
        paths = []
        for number, labels in enumerate(files):
            paths.append(tmp_path / f"{number}.csv")
            paths[-1].write_text("s1,s2,label\n" + "".join(f"a{i},b,{label}\n" for i, label in enumerate(labels)))
        return read_examples("classification", paths, class_names=class_names).label_names

    three, two = ("contradiction", "neutral", "entailment"), ("entailment", "not_entailment")
    assert classes(three, ["neutral"]) == ("contradiction", "entailment", "neutral")
    assert classes(["neutral"], ["entailment"]) == ("entailment", "neutral")
    assert classes(["same"], ["other"], class_names=("same", "other")) == ("other", "same")
    with pytest.raises(
        InputError, match=r"different classes: .*: contradiction, entailment, neutral; .*: entailment, not_"
    ):
        classes(three, two)
    with pytest.raises(
        InputError, match=r"at least two classes, and there is one: .*0\.csv: neutral; .*1\.csv: neutral"
    ):
        classes(["neutral"], ["neutral"])


HEADERS = {
    "KorSTS.tsv": ("genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2", "g\tf\ty\t1\t{}\ta\tb"),
    "GLUE.tsv": ("index\tgenre\tfilename\tyear\tsentence1\tsentence2\tscore", "0\tg\tf\ty\ta\tb\t{}"),
    "SICK.txt": ("pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment", "1\ta\tb\t{}\tNEUTRAL"),
    "plain.csv": ("text1,text2,similarity", "a,b,{}"),
}


def write_scores(folder, name, *scores):
    header, row = HEADERS[name]
    path = folder / name
    path.write_text("\n".join([header, *(row.format(score) for score in scores)]))
    return path


def scaled(path, score_range=None):
    return read_examples("regression", [path], score_range=score_range).columns["score"]


@pytest.mark.parametrize(
    ("name", "expected"), [("KorSTS.tsv", [0.2, 0.5, 1.0]), ("GLUE.tsv", [0.2, 0.5, 1.0]), ("SICK.txt", [0, 0.375, 1])]
)
def test_known_scales_become_zero_to_one(tmp_path, name, expected):
    path = write_scores(tmp_path, name, "1", "2.5", "5.000")
    assert scaled(path) == pytest.approx(expected)
    devset = read_dev_set(path)
    assert devset.scores.tolist() == [1, 2.5, 5]
    assert (devset.first, devset.second) == (("a",) * 3, ("b",) * 3)


def test_the_benchmark_is_read_as_it_is(tmp_path):
    (tmp_path / "sts.csv").write_text('g\tf\ty\t1\t5\t"a\tb\ng\tf\ty\t2\t1.25\tc\td"\te\tf\n')
    examples = read_examples("regression", [tmp_path / "sts.csv"])
    assert list(examples.columns.values()) == [['"a', "c"], ["b", 'd"'], [1.0, 0.25]]


def test_another_scale_must_be_named(tmp_path):
    path = write_scores(tmp_path, "plain.csv", "-1", "0.5", "1")
    with pytest.raises(InputError, match=r"range of the scores is unknown; they lie between -1 and 1\."):
        scaled(path)
    assert scaled(path, (-1, 1)) == [0, 0.75, 1]


@pytest.mark.parametrize(
    ("name", "score", "score_range", "message"),
    [
        (
            "KorSTS.tsv",
            "5.2",
            None,
            r"KorSTS.tsv, line 3: score is 5.2, outside the range of the scores, 0 to 5",
        ),
        ("SICK.txt", "0.5", None, r"line 3: relatedness_score is 0.5, outside the range of the scores, 1 to 5"),
        ("plain.csv", "1.5", (0, 1), r"line 3: similarity is 1.5, outside the range of the scores, 0 to 1"),
        ("plain.csv", "high", (0, 1), "line 3: similarity is 'high', not a number"),
        ("plain.csv", "inf", (0, 1), "line 3: similarity is 'inf', not a number"),
        ("plain.csv", "nan", (0, 1), "line 3: similarity is 'nan', not a number"),
    ],
)
def test_scores_outside_the_scale_are_told_by_line(tmp_path, name, score, score_range, message):
    with pytest.raises(FileFormatError, match=message):
        scaled(write_scores(tmp_path, name, "1", score), score_range)


def test_rows_without_score_or_text_are_dropped_and_counted(tmp_path):
    (tmp_path / "a.csv").write_text("s1,s2,score\na,b,1\nc,d,\ne, ,0\nf,g,0\n")
    examples = read_examples("regression", [tmp_path / "a.csv"], score_range=(0, 1))
    assert (examples.columns["sentence1"], examples.columns["score"]) == (["a", "f"], [1, 0])
    assert dict(examples.dropped) == {"without a score": 1, "with an empty text": 1}
    assert (examples.sources[0].n_rows, examples.sources[0].score_range) == (4, (0, 1))


def test_nothing_but_rows_without_a_score(tmp_path):
    with pytest.raises(InputError, match="no example is left: 2 without a score"):
        scaled(write_scores(tmp_path, "plain.csv", "", ""))


E, C, N = "entailment", "contradiction", "neutral"


@pytest.fixture
def triplets(write):
    def triplets(content, objective="triplet", columns=None):
        examples = read_examples(objective, [write("a.csv", content)], columns=columns)
        return list(zip(*examples.columns.values(), strict=True)), examples

    return triplets


def nli(*rows):
    return "premise,hypothesis,label\nw,h,-\nw,h,-\n" + "".join(f'"{p}","{h}",{label}\n' for p, h, label in rows)


def test_columns_can_be_named_in_order_or_by_what_they_are(triplets):
    expected = {"anchor": "text", "positive": "good", "negative": "bad"}
    for columns in (expected, "text,good,bad", ["text", "good", "bad"], "negative=bad,anchor=text,positive=good"):
        rows, examples = triplets("bad,good,text\nc,b,a\n", columns=columns)
        assert rows == [("a", "b", "c")]
        assert examples.source_columns == expected
    assert triplets("bad,good,text\nc,b,a\n", "ranking", "text,good")[0] == [("a", "b")]


def test_triplets_with_a_text_twice_or_an_empty_one_are_dropped_and_counted(triplets):
    rows, examples = triplets("anchor,positive,negative\na,b,c\na,a,c\na,b,b\na,b,a\na,,c\n")
    assert rows == [("a", "b", "c")]
    assert dict(examples.dropped) == {"with the same text twice": 3, "with an empty text": 1}
    assert examples.sources[0].n_rows == 5


def test_pairs_of_the_same_text_are_kept(triplets):
    rows, examples = triplets("anchor,positive\na,a\nb,c\n", "ranking")
    assert (rows, dict(examples.dropped)) == ([("a", "a"), ("b", "c")], {})


def test_ids_that_occur_twice_are_listed(triplets):
    content = "id,anchor,positive,negative\n7,a,b,c\nx,d,e,f\n7,g,h,i\nx,,,\n8,j,k,l\n"
    with pytest.raises(FileFormatError, match=r"2 values of id occur more than once: 7, x\. Remove"):
        triplets(content)
    assert len(triplets(content, columns="id,anchor,negative")[0]) == 4


def test_an_entailment_goes_with_the_contradiction_of_the_same_place(triplets):
    of_p = [("p", "e1", E), ("p", "n", N), ("p", "c1", C), ("p", "e2", E), ("p", "c2", C), ("p", "e3", E)]
    of_q = [("q", "c", C), ("q", "e", E)]
    rows, examples = triplets(nli(of_p[0], of_q[0], *of_p[1:], of_q[1]))
    assert rows == [("p", "e1", "c1"), ("p", "e2", "c2"), ("q", "e", "c")]
    left = {"without a label": 2, "of another class": 1, "without a counterpart of the same premise": 1}
    assert dict(examples.dropped) == left
    assert examples.source_columns == {
        "anchor": "premise",
        "positive": "hypothesis (entailment)",
        "negative": "hypothesis (contradiction)",
    }


def test_derived_triplets_are_those_of_a_plain_search(triplets, texts):
    rows = [(texts[i % 7], texts[10 + i], (E, C, N)[i * i % 11 % 3]) for i in range(60)]
    expected = []
    for premise in dict.fromkeys(row[0] for row in rows if row[2] != N):
        of = {label: [h for p, h, of_class in rows if p == premise and of_class == label] for label in (E, C)}
        expected += [(premise, of[E][i], of[C][i]) for i in range(min(len(of[E]), len(of[C])))]
    derived, examples = triplets(nli(*rows))
    assert derived == expected
    assert 2 * len(expected) + sum(examples.dropped.values()) - 2 == len(rows)


def test_a_hypothesis_that_is_the_premise_tells_nothing(triplets):
    with pytest.raises(InputError, match="1 with the same text twice"):
        triplets(nli(("p", "p", E), ("p", "c", C)))


@pytest.mark.parametrize(("label", "absent"), [(E, C), (C, E)])
def test_triplets_need_both_classes(triplets, label, absent):
    with pytest.raises(InputError, match=f"has no pairs of {absent}"):
        triplets(nli(("p", "h", label), ("p", "n", N)))


def test_pairs_are_the_entailments(triplets):
    rows, examples = triplets(nli(("p", "e", E), ("p", "x", "not_entailment"), ("p", "p", E)), "ranking")
    assert rows == [("p", "e"), ("p", "p")]
    assert dict(examples.dropped) == {"without a label": 2, "of another class": 1}
    with pytest.raises(InputError, match="has no pairs of entailment"):
        triplets(nli(("p", "x", "not_entailment")), "ranking")


PAIRS = {"sentence1": ["a", "b", "a"], "sentence2": ["c", "a", "d"]}
CLASSES = ("contradiction", "entailment", "neutral")


@pytest.fixture
def labeled():
    sources = (
        SourceFile(Path("one.jsonl"), 3, {"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}),
        SourceFile(Path("two.csv"), 1, {"sentence1": "s1", "sentence2": "s2", "label": "label"}, "cp949"),
    )
    return Examples({**PAIRS, "label": [2, 0, 2]}, "classification", CLASSES, sources, {"without a label": 1})


def scored(scores):
    return Examples({**PAIRS, "score": scores}, "regression")


def test_examples_are_counted(labeled):
    assert len(labeled) == 3
    assert labeled.label_counts == {"contradiction": 1, "entailment": 0, "neutral": 2}
    assert labeled.score_summary == {}
    assert scored([0.0, 1.0, 0.8]).score_summary == pytest.approx({"min": 0, "mean": 0.6, "max": 1})
    assert scored([0.0, 1.0, 0.8]).label_counts == {}


def test_texts_are_distinct_and_in_order(labeled):
    assert labeled.texts() == ["a", "c", "b", "d"]
    assert Examples({"anchor": ["a"], "positive": ["b"], "negative": ["c"]}, "triplet").texts() == ["a", "b", "c"]


def test_samples_show_the_name_of_the_class(labeled):
    assert labeled.sample(2) == [
        {"sentence1": "a", "sentence2": "c", "label": "neutral"},
        {"sentence1": "b", "sentence2": "a", "label": "contradiction"},
    ]
    assert len(labeled.sample(9)) == 3


def test_columns_tell_where_they_come_from(labeled):
    assert labeled.source_columns == {"sentence1": "premise, s1", "sentence2": "hypothesis, s2", "label": "label"}
    assert labeled.files == (Path("one.jsonl"), Path("two.csv"))


def test_the_description_is_plain(labeled):
    described = labeled.describe()
    assert described["n_examples"] == 3
    assert described["n_texts"] == 4
    assert described["dropped"] == {"without a label": 1}
    assert described["files"][1] == {"path": "two.csv", "n_rows": 1, "encoding": "cp949", "score_range": None}
    assert described["fingerprint"] == labeled.fingerprint


def test_the_fingerprint_is_that_of_the_content(labeled):
    same = Examples({name: list(column) for name, column in labeled.columns.items()}, "classification", CLASSES)
    assert same.fingerprint == labeled.fingerprint
    assert Examples({"anchor": ["a"], "positive": ["b"]}, "ranking").fingerprint == (
        # printf '["ranking", [], [["anchor", "a"], ["positive", "b"]]]' | sha256sum
        "3617fcf8673e380e7c98d4593ad2e8cf40b6c27ee985157f30ba2ab46ae66db3"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns | {"sentence1": ["a", "b", "A"]},
        lambda columns: columns | {"sentence1": columns["sentence2"], "sentence2": columns["sentence1"]},
        lambda columns: columns | {"label": [2, 0, 1]},
        lambda columns: {name: column[::-1] for name, column in columns.items()},
        lambda columns: {name: column[:2] for name, column in columns.items()},
    ],
)
def test_any_change_changes_the_fingerprint(labeled, change):
    assert Examples(change(dict(labeled.columns)), "classification", CLASSES).fingerprint != labeled.fingerprint


def test_the_fingerprint_holds_objective_and_classes(labeled):
    named = Examples(labeled.columns, "classification", ("a", "b", "c"))
    triplets = {"anchor": ["a"], "positive": ["b"], "negative": ["c"]}
    assert named.fingerprint != labeled.fingerprint
    assert Examples(triplets, "triplet").fingerprint != Examples(triplets, "ranking").fingerprint


@pytest.mark.parametrize("objective", COLUMNS)
def test_the_data_set_keeps_columns_and_order(objective):
    values = {"label": [0, 1], "score": [0.0, 0.5]}
    columns = {name: values.get(name, [f"{name} 1", f"{name} 2"]) for name in COLUMNS[objective]}
    dataset = Examples(columns, objective, CLASSES if objective == "classification" else ()).to_dataset()
    assert tuple(dataset.column_names) == COLUMNS[objective]
    assert dataset.to_dict() == columns


@pytest.mark.parametrize(
    ("columns", "objective", "message"),
    [
        (PAIRS, "classification", "columns of classification must be sentence1, sentence2, label, in this order"),
        ({"label": [0], "sentence1": ["a"], "sentence2": ["b"]}, "classification", "in this order; got label, "),
        ({"positive": ["a"], "anchor": ["b"]}, "ranking", "must be anchor, positive, negative, in this order"),
        ({"anchor": ["a"], "positive": ["b"]}, "triplet", "must be anchor, positive, negative"),
        ({"anchor": ["a"], "positive": []}, "ranking", "must have one length; got {'anchor': 1, 'positive': 0}"),
        ({**PAIRS, "label": [0, 1, 2]}, "classification", r"label must lie in 0 \.\.\. -1, an index into label_names"),
        ({**PAIRS, "score": [0, 1, 1.5]}, "regression", r"score must lie in \[0, 1\]; got 0 \.\.\. 1.5"),
        ({**PAIRS, "score": [0, 1, float("nan")]}, "regression", r"score must lie in \[0, 1\]"),
        (PAIRS, "regresion", "objective must be one of classification, regression, triplet, ranking"),
    ],
)
def test_other_columns_are_refused(columns, objective, message):
    with pytest.raises(InputError, match=message):
        Examples(columns, objective)


@pytest.fixture
def examples():
    columns = {
        "anchor": ["A cat.", "A dog.", "Rain."],
        "positive": ["Cats", "Dogs", "It rains"],
        "negative": ["a", "b", "c"],
    }
    return Examples(columns, "triplet")


def devset(*pairs, name="dev"):
    return ScoredPairs(name, *zip(*pairs, strict=True), np.arange(len(pairs)))


def test_a_development_set_that_is_training_data_is_warned_of(examples):
    with pytest.warns(
        EvaluationWarning, match="dev: 2 of its 3 pairs are pairs of the training data; its scores do not"
    ):
        assert warn_if_seen(examples, devset(("a cat", "CATS!"), ("b", "a dog"), ("Rain.", "A cat."))) == 2


def test_some_shared_pairs_are_counted_in_silence(examples):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_if_seen(examples, devset(("A cat.", "Cats"), ("A cat.", "Dogs"))) == 1
        assert warn_if_seen(examples, devset(("new", "Cats"), ("A cat.", "A cat."))) == 0


def test_texts_of_sets_and_of_a_folder_are_counted(write_stsb, tmp_path):
    (task,) = read_sts(write_stsb(tmp_path, n_pairs=9))
    (subset,) = task.subsets
    examples = Examples({"anchor": [subset.first[0], "x"], "positive": [subset.second[0], "y"]}, "ranking")
    found = count_seen_texts(examples, [devset(("X!", "y"), ("y", "z"))], folder=tmp_path)
    assert found["dev"] == {"n_texts": 3, "n_exact": 1, "n_same": 2, "n_near": 2, "n_items": 2, "n_items_same": 1}
    assert (found["STSB"]["n_items"], found["STSB"]["n_items_same"]) == (9, 1)
    assert list(count_seen_texts(examples, [devset(("a", "b"), ("c", "d"), name="other")])) == ["other"]
