import json

import numpy as np
import pytest

import isosent
from isosent import evaluate
from isosent.errors import EvaluationWarning, FileFormatError, InputError, InputFileError
from isosent.evaluation.retrieval import read_collections, retrieval_tasks
from isosent.search import Index

HEADER = "query-id\tcorpus-id\tscore\n"


def write_lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


@pytest.fixture
def judged():
    rng = np.random.default_rng(0)
    judged = {f"q{row}": {f"d{document}": int(score) for document, score in rng.integers((40, 3), size=(6, 2))}
              for row in range(12)}  # fmt: skip
    return {**judged, "q5": {"d0": 0}}


@pytest.fixture
def folder(tmp_path, texts, judged):
    home = tmp_path / "Forum"
    (home / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{row}", "title": texts[row], "text": texts[100 + row]} for row in range(38)]
    documents += [{"_id": "d38", "text": texts[138]}, {"_id": "d39", "title": "", "text": texts[138]}]
    write_lines(home / "corpus.jsonl", documents)
    write_lines(home / "queries.jsonl", [{"_id": f"q{row}", "text": texts[50 + 2 * row]} for row in range(14)])
    rows = [f"{query}\t{document}\t{score}\n" for query, of in judged.items() for document, score in of.items()]
    (home / "qrels" / "test.tsv").write_text(HEADER + "".join(rows))
    return home


def run_of(model, folder, skipped=()):
    """What trec_eval takes: the score of every document for every query."""
    task = read_collections(folder)[0]
    documents, queries = (model.encode(list(texts)).astype(np.float64) for texts in (task.documents, task.queries))
    cosines = queries @ documents.T / np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(documents, axis=1))
    ids = sorted(
        (json.loads(line)["_id"] for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()), reverse=True
    )
    return [
        {key: float(np.float32(cosine)) for key, cosine in zip(ids, row, strict=True) if key not in skipped}
        for row in cosines
    ]


@pytest.mark.parametrize("transform", [None, isosent.Whitening(8)])
def test_scores_are_those_of_trec_eval(wordllama, folder, judged, transform):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    found = evaluate(wordllama, folder, "retrieval", transform=transform).tasks["Forum"]
    model = wordllama
    if transform is not None:
        model = wordllama.fitted(list(read_collections(folder)[0].documents), transform=transform)
    run = dict(zip(judged, run_of(model, folder), strict=True))
    names = {"map", "recip_rank", "ndcg_cut.10", "recall.1,5,10,100"}
    each = pytrec_eval.RelevanceEvaluator(judged, names).evaluate(run).values()
    expected = {name: np.mean([of[name] for of in each]) for name in ("map", "ndcg_cut_10", "recall_1", "recall_5")}
    assert {name.replace("@", "_"): found.scores[name] for name in ("map", "recall@1", "recall@5")} | {
        "ndcg_cut_10": found.scores["ndcg@10"]
    } == pytest.approx(expected)
    within = [of["recip_rank"] if of["recip_rank"] >= 0.1 else 0 for of in each]
    assert found.scores["mrr@10"] == pytest.approx(np.mean(within))
    assert found.scores["recall@100"] == pytest.approx(11 / 12)
    assert (found.metric, found.n_items, found.details["n_left_out"]) == ("ndcg@10", 12, 2)
    assert found.details["n_without_relevant"] == sum(max(of.values()) == 0 for of in judged.values())
    assert found.data.keys() == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}


def test_a_document_is_its_title_and_its_text(folder, texts):
    (task,) = read_collections(folder)
    assert texts[0] + " " + texts[100] in task.documents
    assert task.documents[:2] == (f"{texts[9]} {texts[109]}".strip(), f"{texts[8]} {texts[108]}".strip())
    assert task.documents.count(texts[138].strip()) == 2


def test_transforms_are_fitted_on_documents(folder):
    (task,), (retrieval_set,) = retrieval_tasks(folder), read_collections(folder)
    assert task.target_texts == task.texts["document"] == retrieval_set.documents
    assert task.target_role == "document"


def test_queries_and_documents_are_encoded_by_their_roles(folder, wordllama, monkeypatch):
    seen = []
    monkeypatch.setattr(type(wordllama.encoder), "for_queries", lambda self: seen.append("query") or self)
    monkeypatch.setattr(type(wordllama.encoder), "for_documents", lambda self: seen.append("document") or self)
    evaluate(wordllama, folder, "retrieval")
    assert sorted(seen) == ["document", "query"]


def test_a_query_does_not_find_itself_unless_it_should(tmp_path, wordllama):
    home = tmp_path / "Same"
    (home / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "text": text} for key, text in (("a", "a red car"), ("b", "the red car"), ("c", "a blue sea"))]
    write_lines(home / "corpus.jsonl", rows)
    write_lines(home / "queries.jsonl", rows[:2])
    (home / "qrels" / "test.tsv").write_text(f"{HEADER}a\tb\t1\nb\tb\t1\n")
    task = evaluate(wordllama, home, "retrieval").tasks["Same"]
    assert task.items.values.tolist() == [1, 1]
    assert read_collections(home)[0].self_rows.tolist() == [2, -1]


def test_folders_are_found_below_and_called_by_their_names(folder, wordllama):
    assert list(evaluate(wordllama, folder.parent, "retrieval").tasks) == ["Forum"]
    (folder.parent / "deep" / "Forum").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (folder.parent / "deep" / "Forum" / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match=r"holds two folders of one name, .*Forum and .*Forum\. Name one"):
        read_collections(folder.parent)


def test_missing_files_are_told(folder):
    with pytest.raises(InputError, match=r"qrels/dev.tsv: no such file\. Available splits: test\."):
        read_collections(folder, split="dev")
    (folder / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"holds no folder with corpus.jsonl, queries.jsonl and qrels/test.tsv"):
        read_collections(folder)
    with pytest.raises(InputFileError, match="no such folder"):
        read_collections(folder / "nowhere")


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("corpus.jsonl", "{", "corpus.jsonl, line 41 is no JSON object: "),
        ("corpus.jsonl", "[1]", "corpus.jsonl, line 41 is no JSON object"),
        ("corpus.jsonl", '{"_id": "d3", "text": "a"}', "line 41: _id 'd3' occurs twice"),
        ("corpus.jsonl", '{"text": "a"}', "line 41 has no column _id"),
        ("corpus.jsonl", '{"_id": "x"}', "line 41 has no column text"),
        ("corpus.jsonl", '{"_id": "x", "text": null}', "line 41: text is null, not a text"),
        ("corpus.jsonl", '{"_id": "x", "text": "\\ud800"}', "line 41: text is not valid Unicode"),
        ("queries.jsonl", '{"_id": "q0", "text": "a"}', "queries.jsonl, line 15: _id 'q0' occurs twice"),
        ("qrels/test.tsv", "q99\td1\t1", r"queries.jsonl has no id 'q99'"),
        ("qrels/test.tsv", "q1\td99\t1", r"corpus.jsonl has no id 'd99'"),
        ("qrels/test.tsv", "q1\td1", r"expected at least 3 fields between tabs; found 2"),
        ("qrels/test.tsv", "q13\td1\thigh", r"expected a whole number as score, found 'high'"),
        ("qrels/test.tsv", "q13\td1\t1\nq13\td1\t1", r"'q13' and 'd1' are judged twice"),
    ],
)
def test_a_malformed_line_is_named(folder, name, line, message):
    with (folder / name).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FileFormatError, match=message):
        read_collections(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q1\td1\t1\n", r"line 1: expected the columns query-id, corpus-id, score, between tabs, found 'q1\\td1\\t1'"),
        (HEADER, "calls no document relevant to any of its 0 queries"),
        (f"{HEADER}q1\td1\t0\nq1\td2\t-1\n", "calls no document relevant to any of its 1 queries"),
        ("", "is empty"),
    ],
)
def test_qrels_that_judge_nothing_are_refused(folder, content, message):
    (folder / "qrels" / "test.tsv").write_text(content)
    with pytest.raises(InputFileError, match=message):
        read_collections(folder)


def test_numbers_are_ids_too(folder):
    for name in ("corpus.jsonl", "queries.jsonl"):
        write_lines(folder / name, [{"_id": 7, "text": "a sentence"}, {"_id": 8, "text": "a word"}])
    (folder / "qrels" / "test.tsv").write_text(f"{HEADER}7\t8\t1\n")
    assert read_collections(folder)[0].queries == ("a sentence",)


def test_a_first_text_finds_its_second(wordllama, tmp_path, texts):
    first, second = texts[:30], [f"{text} again" for text in texts[:30]]
    rows = "".join(f"{one}\t{other}\n" for one, other in zip(first, second, strict=True))
    (tmp_path / "same.tsv").write_text(f"text1\ttext2\n{rows}", "utf-8")
    task = evaluate(wordllama, tmp_path / "same.tsv", "retrieval").tasks["same"]
    asked, found = (wordllama.encode(texts).astype(np.float64) for texts in (first, second))
    cosines = asked @ found.T / np.outer(np.linalg.norm(asked, axis=1), np.linalg.norm(found, axis=1))
    ranks = [1 + int((row > row[place]).sum()) for place, row in enumerate(cosines)]
    assert task.items.values == pytest.approx([1 / rank for rank in ranks])
    assert task.scores == pytest.approx(
        {"mrr": np.mean([1 / rank for rank in ranks])}
        | {f"recall@{k}": np.mean([rank <= k for rank in ranks]) for k in (1, 5, 10)}
    )
    assert (task.metric, task.n_items, task.protocol["columns"]) == ("mrr", 30, "text1,text2")


def test_equal_texts_are_one_query_and_one_document(wordllama, tmp_path):
    pairs = [
        ("a red car", "the red car"),
        ("a red car", "the car is red"),
        ("the sea", "a red car"),
        ("sea", "a red car"),
    ]
    (tmp_path / "pairs.csv").write_text("s1,s2\n" + "".join(f"{one},{other}\n" for one, other in pairs))
    task = evaluate(wordllama, tmp_path / "pairs.csv", "retrieval").tasks["pairs"]
    assert (task.n_items, task.details["n_documents"], task.details["n_relevant"]) == (3, 3, 4)
    assert task.items.values[0] == 1  # the query itself, which is a second text of others, is passed over


def test_a_file_without_pairs_is_refused(tmp_path, wordllama):
    (tmp_path / "pairs.csv").write_text("s1,s2\n")
    with pytest.raises(FileFormatError, match="holds no pairs"):
        evaluate(wordllama, tmp_path / "pairs.csv", "retrieval")


@pytest.fixture
def index_of(folder, tmp_path, wordllama):
    pytest.importorskip("faiss")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]

    def index_of(ids):
        listed = [f"{row.get('title', '')} {row['text']}".strip() for row in rows]
        return Index.create(listed, wordllama, ids=[row["_id"] for row in rows] if ids else None, folder=tmp_path / "i")

    return index_of


@pytest.mark.parametrize("ids", [True, False])
def test_an_exact_index_scores_as_its_model(wordllama, folder, index_of, ids):
    by_index = evaluate(index_of(ids), folder, "retrieval").tasks["Forum"]
    by_model = evaluate(wordllama, folder, "retrieval").tasks["Forum"]
    assert by_index.scores == pytest.approx(by_model.scores)
    assert by_index.protocol == by_model.protocol
    assert "flat" in by_index.details["index"]


def test_a_query_does_not_find_itself_in_an_index(tmp_path, wordllama):
    pytest.importorskip("faiss")
    home = tmp_path / "Same"
    (home / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "text": text} for key, text in (("a", "a red car"), ("b", "the red car"), ("c", "a blue sea"))]
    write_lines(home / "corpus.jsonl", rows)
    write_lines(home / "queries.jsonl", rows[:2])
    (home / "qrels" / "test.tsv").write_text(f"{HEADER}a\tb\t1\nb\tb\t1\n")
    index = Index.create([row["text"] for row in rows], wordllama, ids=["a", "b", "c"], folder=tmp_path / "index")
    assert evaluate(index, home, "retrieval").tasks["Same"].items.values.tolist() == [1, 1]


def test_pairs_are_found_in_an_index_by_their_texts(tmp_path, wordllama):
    pytest.importorskip("faiss")
    (tmp_path / "pairs.tsv").write_text("first\tsecond\na red car\ta red car\na blue car\tthe blue sea\n")
    index = Index.create(["a red car", "the blue sea", "something else"], wordllama, folder=tmp_path / "index")
    with pytest.warns(EvaluationWarning, match="1 of 3 rows"):
        task = evaluate(index, tmp_path / "pairs.tsv", "retrieval", columns="first,second").tasks["pairs"]
    assert task.items.values[0] == 1
    assert task.scores["recall@5"] == 1


def test_what_an_index_cannot_be_scored_on_is_refused(folder, index_of, wordllama, tmp_path):
    index = index_of(ids=True)
    with pytest.raises(InputError, match="retrieval only, not on sts"):
        evaluate(index, folder)
    with pytest.raises(InputError, match="Leave transform out"):
        evaluate(index, folder, "retrieval", transform="whitening")
    other = Index.create(["one text", "another"], wordllama, folder=tmp_path / "other")
    with pytest.raises(InputError, match=r"2 of 2 rows .* no document of Forum"):
        evaluate(other, folder, "retrieval")


def test_documents_of_an_index_are_known_by_what_is_equal_in_most(folder, index_of, wordllama, texts, tmp_path):
    expected = evaluate(index_of(ids=True), folder, "retrieval").tasks["Forum"].scores
    ids = [f"d{row}" for row in range(40)]
    untitled = Index.create(texts[100:140], wordllama, ids=ids, folder=tmp_path / "untitled")  # two texts are equal
    found = evaluate(untitled, folder, "retrieval").tasks["Forum"].scores
    assert found["recall@100"] == pytest.approx(expected["recall@100"])
    foreign = Index.create(vectors=wordllama.encode(texts[100:140]), model=wordllama, folder=tmp_path / "foreign",
                           ids=["d0", *(f"x{row}" for row in range(39))])  # fmt: skip
    with pytest.raises(InputError, match="39 of 40 rows"):
        evaluate(foreign, folder, "retrieval")


def test_a_blank_query_finds_nothing_and_an_index_without_rows_is_refused(folder, index_of):
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text("utf-8").splitlines()]
    write_lines(folder / "queries.jsonl", [rows[0] | {"text": " "}, *rows[1:]])
    index = index_of(ids=True)
    task = evaluate(index, folder, "retrieval").tasks["Forum"]
    assert task.items.values[0] == 0 < task.scores["ndcg@10"]
    index.remove([f"d{row}" for row in range(40)])
    with pytest.raises(InputError, match="without rows"):
        evaluate(index, folder, "retrieval")


DOCUMENTS = """.I 1
.T
wing flow .
.A
a. name
.W
wing flow . of air
.I 2
.T
heat
.W
in a
plate
.I 3
.T
.W
"""
ASKED = ".I 001\n.W\nair over a wing\n.I 004\n.W\nwhat of heat ?\n"


@pytest.fixture
def smart(tmp_path):
    home = tmp_path / "old"
    home.mkdir()
    (home / "cran.all.1400").write_text(DOCUMENTS)
    (home / "cran.qry").write_bytes(ASKED.replace("\n", "\r\n").encode())
    (home / "cranqrel").write_text("1 1 2 \n1 2 -1\n2 1 5\n2 2 4 \n")
    return home


def test_a_collection_of_smart_is_read_by_the_positions_of_its_queries(smart):
    (found,) = read_collections(smart)
    assert found.name == "Cranfield"
    assert dict(zip(found.ids, found.documents, strict=True)) == {
        "1": "wing flow . of air",  # its title is there already
        "2": "heat in a plate",
        "3": "",
    }
    assert found.queries == ("air over a wing", "what of heat ?")
    relevant = [(found.queries[query], found.ids[document]) for query, document in found.relevant]
    assert relevant == [("air over a wing", "1"), ("what of heat ?", "2")]
    assert found.gains.tolist() == [1, 1]


def test_ndcg_of_a_collection_is_that_by_hand(smart):
    plane = {"wing flow . of air": (1, 0), "heat in a plate": (1, 1), "": (0, 0)}
    asked = {"air over a wing": (1, 0.1), "what of heat ?": (1, 0)}
    model = isosent.wrap({text: np.array(row, np.float32) for text, row in (plane | asked).items()})
    with pytest.warns(EvaluationWarning, match="2 items in queries instead of 225"):
        task = evaluate(model, smart, "retrieval:Cranfield").tasks["Cranfield"]
    # the first query finds its document first, the second one second: 1 / log2(3)
    assert task.items.values == pytest.approx([1, 1 / np.log2(3)])
    assert task.scores["mrr@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert task.scores["recall@1"] == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        ("1 0 1 1\n2 0 2 1\n2 0 1 0\n", [(0, "1"), (1, "2")]),  # as in MED
        ("1 1 0 0.000000\n2 2 0 0.000000\n", [(0, "1"), (1, "2")]),  # as in CISI
        ("1 2 1\n1 2 -1\n", [(0, "2")]),  # judged twice
    ],
)
def test_judgments_of_other_collections_are_read(smart, judged, expected):
    (smart / "cranqrel").write_text(judged)
    (found,) = read_collections(smart)
    assert [(query, found.ids[document]) for query, document in found.relevant.tolist()] == expected


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        ("1 1 1\n4 2 1\n", "line 2.*no query 4"),  # the number of a query in its file is no position
        ("1 9 1\n", "line 1.*no document 9"),
        ("1 1 x\n", "line 1.*'1 1 x'"),
        ("1 1\n", "line 1.*'1 1'"),
        ("1 1 -1\n", "relevant"),
    ],
)
def test_wrong_judgments_are_refused(smart, judged, words):
    (smart / "cranqrel").write_text(judged)
    with pytest.raises(FileFormatError, match=words):
        read_collections(smart)
