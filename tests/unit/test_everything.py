"""Every task of a folder in one run."""

import pytest

import isosent
from isosent import evaluate
from isosent.errors import EvaluationWarning, InputError, TaskNotFoundError
from isosent.evaluation.evaluate import read_tasks


@pytest.fixture
def data(tmp_path, write_stsb, texts):
    """STS-B, RTE, CR, and a folder of BEIR's format; no CQA."""
    write_stsb(tmp_path / "stsb", n_pairs=9)
    (tmp_path / "RTE").mkdir()
    for name in ("train", "dev"):
        rows = [
            f"{row}\t{texts[row]}\t{texts[row + 1]}\t{label}\n"
            for row, label in enumerate(["entailment", "not_entailment"] * 4)
        ]
        (tmp_path / "RTE" / f"{name}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "".join(rows), "utf-8")
    (tmp_path / "CR").mkdir()
    (tmp_path / "CR" / "custrev.pos").write_text("\n".join(texts[:30]), "utf-8")
    (tmp_path / "CR" / "custrev.neg").write_text("\n".join(texts[30:60]), "utf-8")
    home = tmp_path / "small"
    (home / "qrels").mkdir(parents=True)
    (home / "corpus.jsonl").write_text('{"_id": "a", "text": "a cat"}\n{"_id": "b", "text": "a dog"}\n')
    (home / "queries.jsonl").write_text('{"_id": "q", "text": "the cat"}\n')
    (home / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    return tmp_path


def test_every_task_that_is_found_is_scored_and_what_is_not_is_said(wordllama, data):
    with pytest.warns(EvaluationWarning, match="left out: ") as said:
        result = evaluate(wordllama, data, "all")
    for kind in ("questions of SemEval's task 3", "set for clustering"):
        assert any(f"holds no {kind}" in str(each.message) for each in said)
    assert {name: task.kind for name, task in result.tasks.items()} == {
        "STSB": "sts",
        "CR": "transfer",
        "STSB-supervised": "transfer",
        "RTE": "rte",
        "small": "retrieval",
    }
    assert result.tasks["small"].score == 1


def test_scores_are_those_of_the_kinds_alone(wordllama, data):
    whitening = isosent.Whitening(8)
    result = evaluate(wordllama, data, tasks=["rte", "sts"], transform=whitening)
    assert list(result.tasks) == ["RTE", "STSB"]
    for kind in ("sts", "rte"):
        for name, task in evaluate(wordllama, data, kind, transform=whitening).tasks.items():
            assert result.tasks[name].scores == pytest.approx(task.scores, abs=1e-9)


def test_a_kind_that_was_asked_for_must_be_there(data):
    with pytest.raises(TaskNotFoundError, match="holds no questions of SemEval's task 3"):
        read_tasks(data, ["sts", "cqa"])


def test_an_unknown_kind_is_refused(data):
    with pytest.raises(InputError, match=r"no task 'stss'\. Did you mean sts\? There are all, sts"):
        read_tasks(data, ["stss"])


def test_a_folder_without_any_task_is_refused_with_what_it_may_hold(tmp_path):
    with pytest.raises(TaskNotFoundError) as caught:
        read_tasks(tmp_path)
    assert all(name in str(caught.value) for name in ("STS files", "transfer task", "task 3", "RTE", "corpus.jsonl"))


def test_settings_apply_to_their_kind_only(wordllama, data):
    for setting in ({"sickr": "test"}, {"text": "body"}, {"split": "dev"}):
        with pytest.raises(InputError, match=r"is a setting of .*, not of rte"):
            read_tasks(data, "rte", **setting)
    table = data / "pairs.tsv"
    table.write_text("sentence1\tsentence2\na\tb\nc\td\n", "utf-8")
    with pytest.raises(InputError, match=r"split is a setting of retrieval, not of a table\. Leave 'dev' out"):
        read_tasks(table, "retrieval", split="dev")


def test_sets_are_named_within_their_kind(wordllama, data):
    (data / "other").mkdir()  # not read, so that it may be incomplete
    for name in ("corpus.jsonl", "queries.jsonl"):
        (data / "other" / name).write_text("", "utf-8")
    assert [task.name for task in read_tasks(data, "retrieval:Small, rte:RTE,")] == ["small", "RTE"]
    for names in ("retrieval:smal", "rte:dev"):
        with pytest.raises(TaskNotFoundError, match=f"has no {names.partition(':')[2]}"):
            read_tasks(data, names)
    with pytest.raises(InputError, match="no task 'STSX'"):
        read_tasks(data, ["all", "STSX"])
