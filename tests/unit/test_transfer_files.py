"""Files of the transfer tasks, found and read; the ones here are made up."""

import os

import pytest

from isosent.errors import EvaluationWarning, FileFormatError, InputError, InputTypeError, TaskNotFoundError
from isosent.evaluation.transfer import TRANSFER_TASKS, read_transfer

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
SICK_ROWS = "1\ta cat\ta dog\t4.5\tNEUTRAL\n2\ta man\tno man\t3\tCONTRADICTION\n7\tone\ttwo\t1\tENTAILMENT\n"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
STSB = 'main\tMSRvid\t2012\t0\t5.000\ta cat\tsaid "no\nmain\tMSRvid\t2012\t1\t0.4\tx\ty\tmore\tmore\n'
FILES = {  # as in SentEval's data folder
    "MR": {"rt-polarity.pos": "good\n", "rt-polarity.neg": "bad\nworse\n"},
    "CR": {"custrev.pos": "good ! . \n\nfine\n", "custrev.neg": "bad\n"},
    "SUBJ": {"subj.objective": "it is\n", "subj.subjective": "i think\n"},
    "MPQA": {"mpqa.pos": "complained not\n", "mpqa.neg": "complained\nwar\n"},
    "SST/binary": {f"sentiment-{part}": "a charming journey . \t1\nbleak \t0\n" for part in ("train", "dev", "test")},
    "SST/fine": {f"sentiment-{part}": "2 so so .\n4 charming\n0 bleak\n" for part in ("train", "dev", "test")},
    "TREC": {"train_5500.label": "NUM:dist How far ?\nLOC:city Where ?\n", "TREC_10.label": "HUM:ind Who ?\nNUM:x 1\n"},
    "MRPC": {
        f"msr_paraphrase_{part}.txt": MRPC + '1\t1\t2\tHe said " so .\tSo\r\n0\t3\t4\tx\ty\n'
        for part in ("train", "test")
    },
    "SICK": {f"SICK_{part}.txt": SICK + SICK_ROWS for part in ("train", "trial", "test_annotated")},
    "STS/STSBenchmark": {f"sts-{part}.csv": STSB for part in ("train", "dev", "test")},
}


@pytest.fixture
def data(tmp_path):
    home = tmp_path / "data" / "downstream"
    for folder, files in FILES.items():
        (home / folder).mkdir(parents=True)
        for name, content in files.items():
            (home / folder / name).write_bytes(content.encode())
    return home


def read(folder, task):
    (found,) = read_transfer(folder, tasks=[task])
    return found


def labeled(task):
    """Texts of each item with the name of its label, by part."""
    return {
        name: [(*texts, task.classes[int(label)]) for *texts, label in zip(*part.sides, part.labels, strict=True)]
        for name, part in task.texts_by_part.items()
    }


def test_all_tasks_are_found_in_the_layout_of_senteval(data):
    tasks = read_transfer(data.parent)
    assert tuple(task.name for task in tasks) == TRANSFER_TASKS
    for task in tasks:
        assert task.texts == tuple(text for part in task.texts_by_part.values() for side in part.sides for text in side)
        assert all(path.is_file() for path in task.files)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("MR", [("bad", "negative"), ("worse", "negative"), ("good", "positive")]),
        ("CR", [("bad", "negative"), ("good ! .", "positive"), ("", "positive"), ("fine", "positive")]),
        ("SUBJ", [("it is", "objective"), ("i think", "subjective")]),
        ("MPQA", [("complained", "negative"), ("war", "negative"), ("complained not", "positive")]),
    ],
)
def test_a_file_for_each_class(data, task, expected):
    assert labeled(read(data, task)) == {"whole": expected}


def test_both_kinds_of_sst_are_told_apart_by_their_content(data):
    two, five = read_transfer(data, tasks=["SST5", "sst-2"])
    charming = [("a charming journey .", "1"), ("bleak", "0")]
    assert labeled(two) == {"train": charming, "dev": charming, "test": charming}
    assert labeled(five)["dev"] == [("so so .", "2"), ("charming", "4"), ("bleak", "0")]
    assert {path.parent.name for path in five.files} == {"fine"}


def test_questions_of_trec_have_their_coarse_type(data):
    (data / "TREC" / "TREC_10.label").write_bytes("DESC:def What is a caf\xe9 ?\nNUM:count 1\n".encode("latin-1"))
    found = labeled(read(data, "TREC"))
    assert found["train"] == [("How far ?", "NUM"), ("Where ?", "LOC")]
    assert found["test"] == [("What is a caf\xe9 ?", "DESC"), ("1", "NUM")]


def test_paraphrases_know_no_quoting(data):
    found = labeled(read(data, "MRPC"))
    assert found == {part: [('He said " so .', "So", "1"), ("x", "y", "0")] for part in ("train", "test")}


def test_sick_is_read_twice(data):
    (data / "SICK" / "SICK_trial.txt").write_bytes((SICK + SICK_ROWS).replace("\n", "\r\n").encode())
    relatedness, entailment = read_transfer(data, tasks=["SICK-R", "SICK-E"])
    assert relatedness.is_scored
    assert relatedness.texts_by_part["dev"].labels.tolist() == [4.5, 3, 1]
    assert relatedness.classes == ("1", "2", "3", "4", "5")
    assert labeled(entailment)["dev"] == [
        ("a cat", "a dog", "NEUTRAL"),
        ("a man", "no man", "CONTRADICTION"),
        ("one", "two", "ENTAILMENT"),
    ]


def test_scores_of_the_benchmark_begin_at_0(data):
    task = read(data, "STSB-supervised")
    assert task.is_scored
    assert task.classes == ("0", "1", "2", "3", "4", "5")
    assert task.texts_by_part["test"].labels.tolist() == [5, 0.4]
    assert task.texts_by_part["test"].sides == (("a cat", "x"), ('said "no', "y"))


@pytest.mark.parametrize(
    ("written", "nearest"), [("MRR", "MR"), ("SST-3", "SST5"), ("STSB", "STSB-supervised"), ("sickr2", "SICK-R")]
)
def test_of_an_unknown_task_the_nearest_is_named(data, written, nearest):
    with pytest.raises(
        InputError, match=rf"there is no task '{written}'\. Did you mean {nearest}\? There are MR, CR, "
    ):
        read_transfer(data, tasks=[written])


@pytest.mark.parametrize(
    ("tasks", "error", "message"),
    [
        ("MR", InputTypeError, r"got one string. Pass \['MR'\]"),
        ([], InputError, "no tasks are named"),
        ([3], InputTypeError, r"tasks must be names; got \[3\]"),
    ],
)
def test_tasks_that_are_no_names(data, tasks, error, message):
    with pytest.raises(error, match=message):
        read_transfer(data, tasks=tasks)


def test_a_missing_file_is_named_with_its_place(data):
    (data / "SUBJ" / "subj.subjective").unlink()
    with pytest.raises(TaskNotFoundError, match=r"lacks SUBJ \(subj.subjective, expected in .*SUBJ\), all files"):
        read_transfer(data, tasks=["MR", "SUBJ"])
    with pytest.warns(EvaluationWarning, match=r"tasks left out: .* lacks SUBJ \(subj.subjective, expected in"):
        assert "SUBJ" not in [task.name for task in read_transfer(data)]


def test_of_a_task_that_is_not_there_the_files_are_named(data):
    for path in (data / "MPQA").iterdir():
        path.unlink()
    with pytest.raises(TaskNotFoundError, match=r"lacks MPQA \(mpqa.neg, mpqa.pos\), .*; it holds MR, CR, SUBJ"):
        read_transfer(data, tasks=["MPQA"])


def test_a_folder_without_any_task(tmp_path):
    (tmp_path / "SICK_test_annotated.txt").write_text(SICK + SICK_ROWS)
    with pytest.raises(
        TaskNotFoundError, match=r"in one folder. Known: MR \(rt-polarity.neg, rt-.*SICK_train.txt, SICK_tri"
    ):
        read_transfer(tmp_path)


def test_a_task_in_two_folders(data):
    (data / "again").mkdir()
    for name, content in FILES["CR"].items():
        (data / "again" / name).write_text(content)
    with pytest.raises(InputError, match=r"CR is in several folders: .*CR, .*again. Name one of them"):
        read_transfer(data)
    assert read(data, "MR").name == "MR"


@pytest.mark.parametrize(
    ("task", "file", "content", "message"),
    [
        ("SST2", "SST/binary/sentiment-dev", "a \t1\nb \t2\n", "dev, line 2: expected the label 0 or 1, found '2'"),
        ("SST2", "SST/binary/sentiment-dev", "a \t1\nb\n", "sentiment-dev, line 2: expected at least 2 fields"),
        (
            "SST5",
            "SST/fine/sentiment-test",
            "1 a\n\n",
            "sentiment-test, line 2: expected the label 0 or 1 or .*, found ''",
        ),
        ("TREC", "TREC/TREC_10.label", "NUM:x a\nHUMAN:x b\n", "line 2: expected the label ABBR or .*, found 'HUMAN'"),
        (
            "MRPC",
            "MRPC/msr_paraphrase_test.txt",
            "1\t2\t3\ta\tb\n",
            "line 1: expected the columns Quality, .*, found 1, 2",
        ),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", MRPC + "1\t2\t3\ta\n", "line 2: expected at least 5 fields"),
        ("SICK-E", "SICK/SICK_trial.txt", SICK + "1\ta\tb\t3\tMAYBE\n", "line 2: expected the label CONTRADICTION or"),
        (
            "SICK-R",
            "SICK/SICK_trial.txt",
            SICK + "1\ta\tb\t0.5\tx\n",
            r"line 2: expected a score from 1 to 5, found '0.5'",
        ),
        (
            "SICK-R",
            "SICK/SICK_trial.txt",
            SICK + "1\ta\tb\tx\tNEUTRAL\n",
            "line 2: expected a score from .*, found 'x'",
        ),
        ("SICK-R", "SICK/SICK_trial.txt", SICK + "1\ta\tb\t3\tx\n" * 2, r"2 items with 1 label\. At least two"),
        ("STSB-supervised", "STS/STSBenchmark/sts-dev.csv", STSB.replace("5.000", "nan"), "line 1: expected a score"),
        ("TREC", "TREC/train_5500.label", "NUM:x a\n", r"1 items with 1 label\. At least two"),
        ("CR", "CR/custrev.neg", "", "custrev.neg is empty"),
    ],
)
def test_a_malformed_file(data, task, file, content, message):
    (data / file).write_text(content, "utf-8")
    with pytest.raises(InputError, match=message):
        read_transfer(data, tasks=[task])


def test_a_file_that_must_be_utf8(data):
    (data / "MRPC" / "msr_paraphrase_test.txt").write_bytes((MRPC + "1\t2\t3\ta\t").encode() + b"\xe9\n")
    with pytest.raises(FileFormatError, match="line 2 is not UTF-8: byte 0xe9"):
        read(data, "MRPC")


@pytest.mark.data
def test_the_real_files():
    if "ISOSENT_DATA" not in os.environ:
        pytest.skip("ISOSENT_DATA does not say where the research sets lie")
    found = {
        task.name: [len(part.labels) for part in task.texts_by_part.values()]
        for task in read_transfer(os.environ["ISOSENT_DATA"])
    }
    assert (
        found.items()
        >= {
            "MR": [10662],
            "CR": [3775],
            "SUBJ": [10000],
            "SST2": [67349, 872, 1821],
            "SST5": [8544, 1101, 2210],
            "TREC": [5452, 500],
            "MRPC": [4076, 1725],
            "SICK-R": [4500, 500, 4927],
            "SICK-E": [4500, 500, 4927],
            "STSB-supervised": [5749, 1500, 1379],
        }.items()
    )
