import numpy as np
import pytest

import isosent
from isosent import evaluate
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.evaluation.cqa import GEM_OPTIONS, read_cqa

DEV = "SemEval2016-Task3-CQA-QL-dev.xml"
TEST_INPUT = "SemEval2016-Task3-CQA-QL-test-input.xml"
TEST_LABELS = "SemEval2016-Task3-CQA-QL-test.xml.subtaskB.relevancy"
HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE xml [\n<!ELEMENT xml (OrgQuestion*)>\n]>\n<xml version="1.0">\n'
)
LABELS = ("PerfectMatch", "Irrelevant", "Relevant")


def original(key, question, rank, related, label):
    return (
        f'<OrgQuestion ORGQ_ID="{key}"><OrgQSubject>{question[0]}</OrgQSubject><OrgQBody>{question[1]}</OrgQBody>\n'
        f'<Thread><RelQuestion RELQ_ID="{key}_R{rank}" RELQ_RANKING_ORDER="{rank}" RELQ_RELEVANCE2ORGQ="{label}">'
        f"<RelQSubject>{related[0]}</RelQSubject><RelQBody>{related[1]}</RelQBody></RelQuestion>"
        "<RelComment><RelCText>a comment</RelCText></RelComment></Thread></OrgQuestion>\n"
    )


def xml(texts, label_of, n_questions=4, n_candidates=5):
    """Questions whose candidates lie in the file in another order than that of the search engine."""
    texts = iter(texts)
    items = []
    for number in range(n_questions):
        question = next(texts), next(texts)
        items += [
            original(f"Q{number}", question, rank, (next(texts), ""), label_of(number, rank))
            for rank in range(n_candidates, 0, -1)
        ]
    return HEAD + "".join(items) + "</xml>\n"


def label_of(number, rank):
    return "Irrelevant" if number == 3 else LABELS[(number + rank) % 3]


@pytest.fixture
def dev(tmp_path, texts):
    folder = tmp_path / "cqa" / "dev"
    folder.mkdir(parents=True)
    (folder / DEV).write_text(xml(texts, label_of), "utf-8")
    return folder


@pytest.fixture
def test(tmp_path, texts):
    folder = tmp_path / "cqa" / "test"
    folder.mkdir(parents=True)
    (folder / TEST_INPUT).write_text(xml(texts[50:], lambda number, rank: "?"), "utf-8")
    lines = [
        f"Q{number}\tQ{number}_R{rank}\t{rank}\t{1 / rank}\t{str(label_of(number, rank) != 'Irrelevant').lower()}\n"
        for number in range(4)
        for rank in range(1, 6)
    ]
    (folder / TEST_LABELS).write_text("".join(lines))
    return folder


def by_hand(model, questions):
    """MAP, MRR and accuracy by loops over candidates; as the scorer of the task, over all questions."""
    precisions, firsts, right = [], [], []
    for question in questions:
        asked, *found = model.encode([question.text, *question.candidates]).astype(np.float64)
        cosines = [asked @ vector / (np.linalg.norm(asked) * np.linalg.norm(vector)) for vector in found]
        right += [(cosine > 0.5) == label for cosine, label in zip(cosines, question.relevant, strict=True)]
        order = sorted(range(len(found)), key=lambda row: -cosines[row])
        labels = [bool(question.relevant[row]) for row in order]
        hits = [sum(labels[: place + 1]) / (place + 1) for place, label in enumerate(labels) if label]
        precisions.append(np.mean(hits) if hits else 0)
        firsts.append(1 / (1 + labels.index(True)) if hits else 0)
    return {"map": np.mean(precisions), "mrr": np.mean(firsts), "accuracy": np.mean(right)}


def test_the_parts_are_found_wherever_they_lie(tmp_path, dev, test):
    assert [task.name for task in read_cqa(tmp_path)] == ["CQA-2016-dev", "CQA-2016-test"]
    assert [task.name for task in read_cqa(test)] == ["CQA-2016-test"]


def test_candidates_stand_in_the_order_of_the_search_engine(dev, texts):
    (task,) = read_cqa(dev)
    assert len(task.questions) == 4
    assert task.questions[0].text == f"{texts[0]} {texts[1]}"
    assert task.questions[0].candidates == tuple(text.strip() for text in reversed(texts[2:7]))
    assert task.questions[0].relevant.tolist() == [label_of(0, rank) != "Irrelevant" for rank in range(1, 6)]
    assert len(task.texts) == 4 * 6


def test_the_text_of_a_question_can_be_chosen(dev, texts):
    assert read_cqa(dev, text="subject")[0].questions[0].text == texts[0]
    body = read_cqa(dev, text="body")[0].questions[0]
    assert (body.text, set(body.candidates)) == (texts[1], {""})
    with pytest.raises(InputError, match="text must be one of subject\\+body, subject, body; got 'title'"):
        read_cqa(dev, text="title")


@pytest.mark.parametrize("transform", [None, isosent.Whitening(8)])
def test_scores_are_those_counted_by_hand(wordllama, tmp_path, dev, test, transform):
    result = evaluate(wordllama, tmp_path, "cqa", transform=transform)
    for task in read_cqa(tmp_path):
        model = wordllama if transform is None else wordllama.fitted(task.texts, transform=transform)
        found = result.tasks[task.name]
        assert {name: found.scores[name] for name in ("map", "mrr", "accuracy")} == pytest.approx(
            by_hand(model, task.questions)
        )
        assert found.items.values.mean() == found.score == found.scores["map"]
        assert (found.metric, found.n_items) == ("map", 4)
    assert result.tasks["CQA-2016-test"].data.keys() == {f"cqa/test/{TEST_INPUT}", f"cqa/test/{TEST_LABELS}"}


def test_anchors_tell_what_no_model_scores(wordllama, dev):
    (task,) = evaluate(wordllama, dev, "cqa").tasks.values()
    assert task.scores["accuracy_majority"] == pytest.approx(0.5)
    assert task.details["n_without_relevant"] == 1
    assert (task.details["n_candidates"], task.details["n_relevant"]) == (20, 10)
    # relevant ranks of the three first questions: 2 3 5, 1 2 4 5, 1 3 4
    every = [(1 / 2 + 2 / 3 + 3 / 5) / 3, (1 + 1 + 3 / 4 + 4 / 5) / 4, (1 + 2 / 3 + 3 / 4) / 3, 0]
    assert task.details["search_engine"] == pytest.approx({"map": np.mean(every), "mrr": (1 / 2 + 1 + 1) / 4})
    assert task.details["best"]["map"] == 0.75


def test_equal_candidates_are_ranked_as_by_the_search_engine(wordllama, tmp_path, texts):
    (tmp_path / DEV).write_text(xml([texts[0]] * 99, label_of), "utf-8")
    task = evaluate(wordllama, tmp_path, "cqa", text="subject").tasks["CQA-2016-dev"]
    assert {name: task.scores[name] for name in ("map", "mrr")} == task.details["search_engine"]


def test_gem_has_options_for_this_task(dev):
    model = isosent.load("wordllama", **GEM_OPTIONS)
    weighting = model.encoder.weighting
    assert (weighting.window, weighting.n_removed, weighting.ranking) == (6, 15, "unweighted")


def test_where_there_are_no_files_their_names_are_told(tmp_path):
    with pytest.raises(InputError, match=r"task 3. They are called SemEval2016-Task3-CQA-QL-dev.xml"):
        read_cqa(tmp_path)
    with pytest.raises(InputFileError, match="no such folder"):
        read_cqa(tmp_path / "nowhere")


def test_a_part_without_labels_tells_which_file_has_them(test):
    (test / TEST_LABELS).unlink()
    with pytest.raises(InputError, match=rf"has no label for Q0_R5 and 19 more; .* as {TEST_LABELS}\."):
        read_cqa(test)


def test_a_part_in_two_places_is_refused(tmp_path, dev):
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / DEV).write_bytes((dev / DEV).read_bytes())
    with pytest.raises(InputError, match=r"CQA-2016-dev is in two folders: .*again.*dev.xml"):
        read_cqa(tmp_path)


def test_truncated_xml_is_told_by_its_line(dev):
    content = (dev / DEV).read_text("utf-8")
    (dev / DEV).write_text(content[: len(content) // 2], "utf-8")
    with pytest.raises(FileFormatError, match=r"dev.xml, line 2\d: no valid XML: .*\. Is the file complete\?"):
        read_cqa(dev)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<!ELEMENT xml", '<!ENTITY a "a"><!ELEMENT xml', "declares entities"),
        ('RELQ_ID="Q1_R2"', 'RELQ_ID="Q1_R3"', "RELQ_ID Q1_R3 occurs twice"),
        (
            'RELQ_RANKING_ORDER="2"',
            'RELQ_RANKING_ORDER="second"',
            "ORGQ_ID 'Q0', RELQ_ID 'Q0_R2' and RELQ_RANKING_ORDER 'second'",
        ),
        ("RelQuestion", "Question", "holds no related questions"),
        ("Relevant", "Irrelevant", "none of its 20 candidates is relevant"),
        ("<?xml", "\x00<?xml", "line 1: no valid XML"),
    ],
)
def test_malformed_questions_are_told(dev, old, new, message):
    content = (dev / DEV).read_text("utf-8").replace("PerfectMatch", "Relevant").replace(old, new)
    (dev / DEV).write_text(content, "utf-8")
    with pytest.raises(FileFormatError, match=message):
        read_cqa(dev)


def test_bytes_that_are_not_utf_8_are_told_by_their_line(dev):
    (dev / DEV).write_bytes((dev / DEV).read_bytes().replace(b"a comment", b"caf\xe9", 1))
    with pytest.raises(FileFormatError, match=r"line 7 is not UTF-8: byte 0xe9"):
        read_cqa(dev)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Q0\tQ0_R1\t1\t1.0\tfalse\n", "", "has no label for Q0_R1, a related question of"),
        ("Q0\tQ0_R1\t", "Q9\tQ9_R1\t", "has no label for Q0_R1, a related question of"),
        ("Q0\tQ0_R1", "Q9\tQ9_R1\t1\t1.0\tfalse\nQ0\tQ0_R1", "labels Q9_R1, which is no related question"),
        ("1.0\tfalse", "1.0\tmaybe", "line 1: expected true or false at its end, found 'maybe'"),
        ("1.0\tfalse", "1.0", "line 1: expected at least 5 fields between tabs; found 4"),
    ],
)
def test_labels_that_do_not_match_the_questions_are_told(test, old, new, message):
    content = (test / TEST_LABELS).read_text()
    assert old in content
    (test / TEST_LABELS).write_text(content.replace(old, new, 1))
    with pytest.raises(FileFormatError, match=message):
        read_cqa(test)


def test_labels_of_both_files_must_agree(dev, test):
    content = (test / TEST_LABELS).read_text()
    (dev / f"{DEV}.subtaskB.relevancy").write_text(content)
    assert len(read_cqa(dev)[0].files) == 2
    (dev / f"{DEV}.subtaskB.relevancy").write_text(content.replace("true", "false", 1))
    with pytest.raises(FileFormatError, match=rf"labels Q0_R2 otherwise than {DEV}"):
        read_cqa(dev)
