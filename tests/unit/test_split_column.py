"""A column that names the part of each row: one rule for all readers of pairs; SICK in one file."""

import gzip
import json
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import FileFormatError, IsosentWarning
from isosent.evaluation.evaluate import read_tasks
from isosent.evaluation.sts import read_paraphrases, read_scored_pairs, read_sts
from isosent.io.pairs import read_matches
from isosent.training import read_dev_set, read_examples

PARTS = ["train"] * 6 + ["dev"] * 3 + ["test"] * 4
HEADER = "split\tdataset\tfilename\tyear\tscore\tsentence1\tsentence2\n"


def stsb(column="split", names=PARTS):
    rows = (f"{part}\tnews\tMSRpar\t2012\t{row % 6}\tone {row}\ttwo {row}\n" for row, part in enumerate(names))
    return HEADER.replace("split", column, 1) + "".join(rows)


def rows_of(pairs):
    return [int(text.split()[1]) for text in pairs.first]


def quiet(read, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsosentWarning)
        return read(*arguments, **options)


def test_each_purpose_takes_its_part(write):
    path = write("stsbenchmark.tsv", stsb())
    with pytest.warns(IsosentWarning, match="the 6 rows of train"):
        examples = read_examples("regression", [path])
    assert examples.columns["sentence1"] == [f"one {row}" for row in range(6)]
    assert examples.columns["score"] == [row % 6 / 5 for row in range(6)]  # the range of STS-B is known
    with pytest.warns(IsosentWarning, match="the 3 rows of dev"):
        dev = read_dev_set(path)
    assert (dev.name, rows_of(dev)) == ("stsbenchmark-dev", [6, 7, 8])
    test = quiet(read_dev_set, path, part="test")
    assert (test.name, rows_of(test)) == ("stsbenchmark-test", [9, 10, 11, 12])
    with pytest.warns(IsosentWarning, match="the 4 rows of test"):
        assert rows_of(read_scored_pairs(path)) == [9, 10, 11, 12]
    assert rows_of(quiet(read_paraphrases, path)) == [9, 10, 11, 12]


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("Split", {"train": "Train", "dev": "Dev", "test": "Test"}),
        ("set", {"train": "training", "dev": "val", "test": "test"}),
        ("partition", {"train": "TRAIN", "dev": "validation", "test": "TEST"}),
        ("SemEval_set", {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}),
        ("fold", {"train": "train", "dev": "valid", "test": "test"}),
        ("subset", {"train": "train", "dev": "eval", "test": "test"}),
        ("split", {"train": "train", "dev": "validation_matched", "test": "test-1"}),
    ],
)
def test_columns_and_parts_have_other_names_too(write, column, names):
    path = write("a.tsv", stsb(column, [names[part] for part in PARTS]))
    assert rows_of(quiet(read_scored_pairs, path)) == [9, 10, 11, 12]
    assert rows_of(quiet(read_dev_set, path)) == [6, 7, 8]
    assert len(quiet(read_examples, "regression", [path])) == 6


def test_a_column_of_anything_else_leaves_all_rows(write):
    path = write("a.tsv", stsb("set", ["animals", "train", *PARTS[2:]]))
    with pytest.warns(IsosentWarning, match="all rows are taken, as set holds 'animals'"):
        assert rows_of(read_scored_pairs(path)) == list(range(13))
    numbered = write("b.tsv", stsb("fold", [str(row % 5) for row in range(13)]))
    assert len(read_scored_pairs(numbered).first) == 13  # says nothing: folds have numbers


def test_a_file_of_one_part_is_taken_whole(write):
    path = write("dev.tsv", stsb(names=["dev"] * 13))
    assert len(read_dev_set(path).first) == 13
    with pytest.warns(IsosentWarning, match="all rows are taken for test, though split says dev"):
        assert len(read_scored_pairs(path).first) == 13


def test_parts_without_the_one_that_is_wanted_are_refused(write):
    path = write("a.tsv", stsb(names=["train"] * 6 + ["dev"] * 7))
    with pytest.raises(FileFormatError, match="no rows of test; it has 6 train, 7 dev"):
        read_scored_pairs(path)


def test_rows_without_a_part_are_refused(write):
    path = write("a.tsv", stsb(names=["", *PARTS[1:]]))
    with pytest.raises(FileFormatError, match="its column split is empty in 1 rows"):
        read_examples("regression", [path])


def test_every_format_has_the_rule(tmp_path, write):
    rows = [
        {"sentence1": f"one {row}", "sentence2": f"two {row}", "score": row % 6, "split": part}
        for row, part in enumerate(PARTS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    write("a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    write("a.json", json.dumps(rows))
    write("a.tsv.gz", gzip.compress(stsb().encode()))
    for ending in ("parquet", "jsonl", "json", "tsv.gz"):
        pairs = quiet(read_scored_pairs, tmp_path / f"a.{ending}")
        assert (pairs.name, rows_of(pairs), pairs.scores.tolist()) == ("a", [9, 10, 11, 12], [3, 4, 5, 0])


def test_a_damaged_packed_table_is_refused(write):
    packed = gzip.compress(stsb().encode())
    for name, content in (("cut.tsv.gz", packed[:-9]), ("text.tsv.gz", b"no gzip")):
        with pytest.raises(FileFormatError, match=f"{name} is no complete file of gzip"):
            read_scored_pairs(write(name, content))


def test_pairs_to_fit_on_are_those_of_train(write):
    rows = "".join(f"{part},q {row},d {row}\n" for row, part in enumerate(PARTS))
    path = write("a.csv", f"split,query,document\n{rows}")
    assert quiet(read_matches, path).first == [f"q {row}" for row in range(6)]


def test_a_table_is_scored_on_its_test_rows_and_says_so(write):
    (task,) = quiet(read_tasks, write("a.tsv", stsb()), "pairs")
    assert (len(task.items), task.protocol["split"]) == (4, "test")


SICK = [  # pair, label, score, part; numbers as in no order
    ("a1", "b1", "NEUTRAL", 4.5, "TRAIN"),
    ("a2", "b2", "ENTAILMENT", 3.5, "TEST"),
    ("a3", "b3", "CONTRADICTION", 1.5, "TRIAL"),
    ("a4", "b4", "ENTAILMENT", 5, "TRAIN"),
    ("a5", "b5", "NEUTRAL", 2, "TEST"),
    ("a6", "b6", "NEUTRAL", 4, "TRIAL"),
]
SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tentailment_AB\tSemEval_set\n"


def one_file(rows=SICK):
    lines = (f"{i}\t{a}\t{b}\t{label}\t{score}\tx\t{part}\n" for i, (a, b, label, score, part) in enumerate(rows))
    return SICK_HEADER + "".join(lines)


def test_sick_in_one_file_is_the_task(write, tmp_path):
    write("SICK.txt", one_file())
    (test,) = read_sts(tmp_path, tasks=["SICKR"], sickr="test")
    assert (test.subsets[0].first, test.subsets[0].scores.tolist()) == (("a2", "a5"), [3.5, 2])
    (full,) = read_sts(tmp_path, tasks=["SICKR"])
    assert full.sizes == {"train": 2, "dev": 2, "test": 2}
    scored = {name: read_tasks(tmp_path, f"transfer:{name}")[0] for name in ("SICK-R", "SICK-E")}
    assert all(task.items == [("a2", "b2"), ("a5", "b5")] for task in scored.values())
    assert all(task.sizes == {"train": 2, "dev": 2, "test": 2} for task in scored.values())
    examples = quiet(read_examples, "classification", [tmp_path / "SICK.txt"])
    assert examples.label_counts == {"entailment": 1, "neutral": 1}


def test_the_three_files_of_sick_go_before_the_one(write, tmp_path):
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        write(f"{name}.txt", header + "1\tx\ty\t2\tNEUTRAL\n2\tv\tw\t3\tENTAILMENT\n")
    write("SICK.txt", one_file())
    (sick,) = read_sts(tmp_path, tasks=["SICKR"], sickr="test")
    assert sick.subsets[0].first == ("x", "v")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (one_file([*SICK, ("a7", "b7", "NEUTRAL", 4, "LATER")]), "SemEval_set is 'LATER'"),
        (one_file(SICK[:2]), "names no pairs of dev"),
        (one_file().replace("SemEval_set", "part"), "has no column SemEval_set"),
    ],
)
def test_a_file_of_sick_without_its_parts_is_refused(write, tmp_path, content, words):
    write("SICK.txt", content)
    with pytest.raises(Exception, match=words):
        read_sts(tmp_path, tasks=["SICKR"])
