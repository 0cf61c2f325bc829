import json

import pandas as pd
import pytest

from isosent.errors import FileFormatError, InputError, InputFileError, InputTypeError
from isosent.training.data import read_dev_set, read_examples

NLI = "premise\thypothesis\tlabel\na\tb\tentailment\na\tc\tcontradiction\nd\te\tneutral\nf\tg\t-\n"
TWO = "premise\thypothesis\tlabel\nh\ti\tentailment\nj\tk\tnot_entailment\n"
STS = "main\tx\t2012\t1\t5\ta\tb\nmain\tx\t2012\t2\t0\tc\td\nmain\tx\t2012\t3\t1\te\tf\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


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
        InputError, match=r"same columns; got .*: anchor, positive, negative; .*: anchor, positive\. Leave"
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
        ("classification", NLI, {"columns": {"anchor": "premise"}}, "must be sentence1, sentence2, label; got anchor"),
        (
            "classification",
            NLI,
            {"columns": {"sentence1": "premise", "sentence2": "premise"}},
            "must name different columns; got premise twice",
        ),
        ("classification", NLI, {"class_names": ["neutral"]}, "class_names must be two different names at least"),
        ("classification", NLI, {"class_names": "neutral"}, "class_names must be two different names at least"),
        ("classification", NLI, {"class_names": ["A", "a"]}, "class_names must be two different names at least"),
        ("classification", STS, {}, "It has the columns of regression"),
        ("classification", TWO.replace("not_", ""), {}, "examples of two classes at least; got one"),
        (
            "classification",
            "premise\thypothesis\tlabel\na\tb\t-\n\tb\tneutral\n",
            {},
            "one example must be left; got none: 1 without a label, 1 with an empty text",
        ),
        ("classification", "premise\thypothesis\tlabel\n", {}, "got none: the files have no rows"),
        (
            "regression",
            NLI,
            {},
            r"regression must have sentence1, sentence2 or .* It has the columns of classification",
        ),
        ("regression", STS.replace("\t5\t", "\t7\t"), {}, r"line 1: score must lie in 0 \.\.\. 5"),
        ("regression", STS.replace("\t1\te", "\t7\te"), {}, r"line 3: score must lie in 0 \.\.\. 5"),
        (
            "regression",
            "s1\ts2\tscore\na\tb\t1\nc\td\t1\n",
            {"score_range": (0, 1)},
            "the scores must vary; all 2 are the same",
        ),
        ("regression", "s1\ts2\tscore\na\tb\t1\nc\td\t0\n", {}, "the range of the scores must be said"),
        ("regression", STS, {"score_range": (5, 0)}, r"score_range must be two numbers, the lower first; got \(5, 0\)"),
        ("regression", STS, {"score_range": (0, 1, 2)}, "score_range must be two numbers"),
        ("regression", STS, {"score_range": (0, float("inf"))}, "score_range must be two numbers"),
        ("triplet", STS, {}, r"must have anchor, positive, negative\. .* It has the columns of regression"),
        ("triplet", TWO, {}, "must have pairs of entailment and contradiction"),
        ("triplet", "a\tb\nc\td\n", {}, r"triplet, unless its pairs have a class .*, must have anchor, positive"),
        (
            "triplet",
            "anchor\tpositive\na\tb\n",
            {"columns": {"anchor": "anchor"}},
            "triplet must have anchor, positive, negative",
        ),
        ("triplet", "anchor\tpositive\tnegative\na\ta\tb\n", {}, "got none: 1 with the same text twice"),
        ("triplet", "id\tanchor\tpositive\tnegative\n1\ta\tb\tc\n1\td\te\tf\n", {}, "id must differ from row to row"),
        ("ranking", STS, {}, "It has the columns of regression"),
        (
            "ranking",
            NLI,
            {"columns": {"anchor": "premise", "label": "label"}},
            "must be anchor, positive, negative; or sentence1, sentence2, label; got anchor, label",
        ),
        ("rank", NLI, {}, "objective must be one of classification, regression, triplet, ranking; got 'rank'"),
    ],
)
def test_bad_data_is_told(write, objective, content, options, message):
    with pytest.raises(InputError, match=message):
        read_examples(objective, [write("data.tsv", content)], **options)


def test_a_file_given_twice_is_refused(write, tmp_path):
    path = write("nli.tsv", NLI)
    with pytest.raises(InputError, match=r"files must be different ones; got .* and .*, the same. Name it once"):
        read_examples("classification", [path, tmp_path / ".." / tmp_path.name / "nli.tsv"])


def test_files_are_a_sequence_of_at_least_one(write, tmp_path):
    path = write("nli.tsv", NLI)
    with pytest.raises(InputTypeError, match=r"files must be a sequence of paths; got one str. Pass \[path\]"):
        read_examples("classification", str(path))
    with pytest.raises(InputError, match="files must name one file at least; got none"):
        read_examples("classification", [])
    with pytest.raises(InputFileError, match="must exist"):
        read_examples("classification", [path, tmp_path / "absent.tsv"])


def test_a_set_to_score_on_keeps_its_scale(write):
    devset = read_dev_set(write("dev.csv", STS))
    assert (devset.name, list(devset.first), list(devset.second)) == ("dev", ["a", "c", "e"], ["b", "d", "f"])
    assert devset.scores.tolist() == [5, 0, 1]
    own = write("own.csv", "q,sentence2,label\na,b,0.5\nc,d,-3\n")
    assert read_dev_set(own, columns={"sentence1": "q"}).scores.tolist() == [0.5, -3]


def test_a_set_to_score_on_must_have_scores_that_vary(write):
    with pytest.raises(FileFormatError, match=r"the scores of dev must vary, .*; got 1 scored pairs, all scored 1"):
        read_dev_set(write("dev.csv", "s1,s2,score\na,b,1\nc,d,\n"))
    with pytest.raises(InputError, match=r"a set of scored pairs must have .* It has the columns of classification"):
        read_dev_set(write("nli.tsv", NLI))
