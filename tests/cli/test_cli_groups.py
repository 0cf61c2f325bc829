"""The commands ``duplicates`` and ``cluster``."""

import csv
import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.model import SentenceEncoder
from isosent.search import Index


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A corpus in which two texts occur twice, as lines and as a table."""
    monkeypatch.chdir(tmp_path)
    texts = isosent.demo_texts()[::3]
    texts = [*texts, texts[5], "  " + texts[9], "=1+1, <b>"]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(texts)])
    return tmp_path


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_group_says_how_many_of_its_texts_differ(isosent_):
    lines = ["The cat sat on the mat."] * 3 + ["the cat sat on the mat", "Rain fell.", "Rain fell."]
    shown = isosent_("duplicates", "-", stdin="\n".join(lines).encode()).out
    assert "4, 2 different" in shown
    assert "2, equal" in shown
    assert shown.count("Rain fell.") == 1


def test_duplicates_are_printed_and_written(isosent_, here):
    finished = isosent_("duplicates", "texts.txt", "-o", "d.csv", "-o", "d.html", "-o", "d.json")
    assert finished.code == 0, finished.err
    assert "groups" in finished.out
    assert all(f"saved d.{ending}" in finished.err for ending in ("csv", "html", "json"))
    rows = read_csv(here / "d.csv")
    assert list(rows[0]) == ["group", "row", "text", "score", "share"]
    groups = {frozenset(int(row["row"]) for row in rows if row["group"] == group["group"]) for group in rows}
    n_texts = len((here / "texts.txt").read_text("utf-8").splitlines())
    assert any({5, n_texts - 3} <= group for group in groups)
    assert any({9, n_texts - 2} <= group for group in groups)
    document = json.loads((here / "d.json").read_text("utf-8"))
    assert (document["n_texts"], document["n_duplicates"]) == (n_texts, len(rows))
    assert f"threshold: {document['threshold']:.2f} times" in finished.out
    assert (here / "d.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_table_gives_the_same_groups(isosent_):
    lines = isosent_("duplicates", "texts.txt", "--json")
    table = isosent_("duplicates", "texts.csv", "--column", "text", "--json")
    assert json.loads(table.out) == json.loads(lines.out)


@pytest.fixture
def with_vectors(here):
    """The vectors of the texts, in a file and in a table."""
    texts = (here / "texts.txt").read_text("utf-8").splitlines()
    vectors = isosent.load("wordllama").encode(texts)
    np.save(here / "vectors.npy", vectors)
    columns = {"text": texts, "vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])}
    pq.write_table(pa.table(columns), here / "table.parquet")
    columns["question"] = columns.pop("text")
    pq.write_table(pa.table(columns), here / "questions.parquet")
    pq.write_table(pa.table({**columns, "answer": texts}), here / "both.parquet")


@pytest.mark.usefixtures("with_vectors")
@pytest.mark.parametrize("command", ["duplicates", "cluster"])
def test_vectors_give_what_their_model_gives_and_are_named_first(isosent_, command):
    expected = json.loads(isosent_(command, "texts.txt", "--json").out)
    assert (expected.pop("model"), expected.pop("vectors")) == ("wordllama", None)
    for source, *options in (("vectors.npy", "--texts", "texts.txt"), ("table.parquet",), ("questions.parquet",)):
        found = json.loads(isosent_(command, source, *options, "--json").out)
        assert (found.pop("model"), found.pop("vectors")) == (None, source)
        assert {**found, "groups": 0} == {**expected, "groups": 0}
        rows = [[each["row"] for each in group] for group in found.get("groups", [])]
        assert rows == [[each["row"] for each in group] for group in expected.get("groups", [])]
        finished = isosent_(command, source, *options, "-o", "page.html")
        assert finished.out.splitlines()[0] == f"vectors of {source}"
        assert f"vectors of {source}" in Path("page.html").read_text("utf-8")
    assert isosent_(command, "texts.txt").out.splitlines()[0] == "model: wordllama"


@pytest.mark.usefixtures("with_vectors")
def test_vectors_alone_have_duplicates_but_no_words(isosent_, refuses, here):
    finished = isosent_("duplicates", "vectors.npy", "-o", "d.csv")
    assert finished.code == 0, finished.err
    assert {row["text"] for row in read_csv(here / "d.csv")} == {""}
    refuses(isosent_("cluster", "vectors.npy"), "--texts")
    (here / "few.txt").write_text("one\ntwo\n")
    for command in ("duplicates", "cluster"):
        refuses(isosent_(command, "vectors.npy", "--texts", "few.txt"), "2 texts and")
        refuses(isosent_(command, "texts.txt", "--texts", "texts.txt"), "--texts")
        refuses(isosent_(command, "vectors.npy", "--column", "text"), "no columns")
        finished = isosent_(command, "both.parquet")
        assert (finished.code, "question, answer" in finished.err) == (2, True)
        assert isosent_(command, "both.parquet", "--texts", "both.parquet", "--column", "question").code == 0


def test_recall_is_printed_for_many_texts(isosent_, monkeypatch):
    assert "recall" not in isosent_("duplicates", "texts.txt").err
    monkeypatch.setattr("isosent.search.closeness.MOST_EXACT", 100)
    finished = isosent_("duplicates", "texts.txt", "--json")
    recall = json.loads(finished.out)["recall"]
    assert f"recall: {recall:.1%}" in finished.err


def test_few_texts_are_said_to_be_few(isosent_, here):
    finished = isosent_("duplicates", "-", "-o", "o.csv", stdin=b"one\ntwo\none\n")
    assert finished.code == 0, finished.err
    assert (here / "o.csv").read_text().splitlines() == [
        "group,row,text,score,share",
        "1,0,one,1.0000,",
        "1,2,one,1.0000,",
    ]
    assert "100" in finished.err
    assert "0 groups" in isosent_("duplicates", "-", stdin=b"one\n").out


def test_clusters_are_printed_and_written(isosent_, here):
    finished = isosent_("cluster", "texts.txt", "--clusters", "3", "-o", "c.csv", "-o", "c.html")
    assert finished.code == 0, finished.err
    assert "words" in finished.out
    assert "saved c.csv" in finished.err
    rows = read_csv(here / "c.csv")
    assert {row["cluster"] for row in rows} == {"1", "2", "3"}
    assert "<b>" not in (here / "c.html").read_text("utf-8")
    again = isosent_("cluster", "texts.txt", "--clusters", "3", "--json")
    labels = json.loads(again.out)["labels"]
    assert all(labels[int(row["row"])] == int(row["cluster"]) for row in rows)


def test_bad_input_is_refused(isosent_, refuses, here):
    (here / "empty.txt").write_text("")
    (here / "others.csv").write_text("title,body\none,two\n")
    for command in ("duplicates", "cluster"):
        refuses(isosent_(command, "empty.txt"), "empty.txt")
        refuses(isosent_(command, "others.csv"), "--column")
        refuses(isosent_(command, "texts.txt", "-o", "no/d.html"), "no/d.html")
        refuses(isosent_(command, "texts.txt", "-o", "texts.txt"), "texts.txt")
    refuses(isosent_("duplicates", "texts.txt", "--false-positives", "0"), "--false-positives")
    refuses(isosent_("cluster", "texts.txt", "--clusters", "many"), "--clusters many: ")
    refuses(isosent_("cluster", "texts.txt", "--clusters", "0"), "0")
    refuses(isosent_("cluster", "texts.txt", "--clusters", "999"), "999")


def _fitted_for(purpose, folder, *, transform="whitening", topics=(-0.031, -0.04, -0.02), pairs=(0.042, 0.03, 0.05)):
    """A saved model whose record says what its transform was chosen for, and what it did to both signals."""
    model = isosent.load("wordllama").fitted(isosent.demo_texts(), transform=isosent.Whitening(strength=0.25))
    first, *others = (
        {"candidate": label, "name": name, "gain": gain[0], "low": gain[1], "high": gain[2]}
        | ({} if topics is None else {"topics": dict(zip(("gain", "low", "high"), of_topics, strict=True))})
        for label, name, gain, of_topics in (
            ("no transform", "none", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
            ("whitening (strength 0.25)", "whitening", pairs, topics),
        )
    )
    choice = {"chosen": first["candidate"] if transform == "none" else others[0]["candidate"], "reason": ""}
    choice |= {"candidates": [first, *others]} | ({} if purpose == "earlier version" else {"purpose": purpose})
    fits = (msgspec.structs.replace(model.fits[0], choice=choice),)
    SentenceEncoder.from_record(model.encoder, dataclasses.replace(model.record, fits=fits)).save(folder)


COMMANDS = {"duplicates": (), "cluster": (), "index": ("-o", "index")}


@pytest.mark.parametrize(
    ("purpose", "told"),
    [
        ("pairs", {"cluster": "costs (-0.031", "index": "costs (-0.031"}),
        ("earlier version", {"cluster": "costs (-0.031", "index": "costs (-0.031"}),
        ("topics", {"duplicates": "gains (+0.042"}),
        ("search", {"duplicates": "gains (+0.042"}),
        (None, {}),
    ],
)
def test_a_model_that_was_fitted_for_another_purpose_is_told(isosent_, here, purpose, told):
    _fitted_for(purpose, here / "m")
    for command, options in COMMANDS.items():
        finished = isosent_(command, "texts.txt", "-m", "m", *options)
        assert finished.code == 0, finished.err
        notes = [line for line in finished.err.splitlines() if "chosen for" in line]
        assert len(notes) == (command in told), notes
        for note in notes:
            assert told[command] in note
            assert {"duplicates": "--for pairs", "cluster": "--for topics", "index": "--for search"}[command] in note


@pytest.mark.usefixtures("with_vectors")
def test_vectors_with_a_model_of_another_purpose_are_told_too(isosent_, here):
    _fitted_for("pairs", here / "m", topics=None)
    finished = isosent_("cluster", "vectors.npy", "--texts", "texts.txt", "-m", "m", "--json")
    json.loads(finished.out)
    assert "not measured" in finished.err


def test_a_model_that_was_left_unchanged_serves_every_purpose(isosent_, here):
    _fitted_for("pairs", here / "m", transform="none")
    assert "chosen for" not in isosent_("cluster", "texts.txt", "-m", "m").err


@pytest.fixture
def sets(here):
    """Old texts, and new ones: two that are equal to old ones, one with a greeting, and others."""
    texts = isosent.demo_texts()
    old, new = texts[:300], [*texts[300:400], texts[7], texts[8], f"Hello, {texts[9].lower()}"]
    (here / "old.txt").write_text("".join(f"{text}\n" for text in old), "utf-8")
    (here / "new.txt").write_text("".join(f"{text}\n" for text in new), "utf-8")
    with (here / "old.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "text"], *((f"t{row}", text) for row, text in enumerate(old))])
    return here


@pytest.mark.parametrize("old", ["old.txt", "old.npy", "index"])
def test_each_new_text_is_named_with_the_old_one_that_it_is_near(isosent_, sets, old):
    commands = {"old.npy": ("encode", "old.txt", "-o", "old.npy"), "index": ("index", "old.csv", "-o", "index")}
    if old == "index":
        pytest.importorskip("faiss")
    if old in commands:
        assert isosent_(*commands[old]).code == 0
    model = ("-m", "wordllama") if old == "old.npy" else ()
    finished = isosent_(
        "duplicates", "new.txt", "--against", old, *model, "-o", "k.csv", "-o", "k.json", "-o", "k.html"
    )
    assert finished.code == 0, finished.err
    assert "<mark>Hello," in (sets / "k.html").read_text("utf-8")
    rows = read_csv(sets / "k.csv")
    assert len(rows) == 103
    prefix = "t" if old == "index" else ""
    assert [row["old"] for row in rows[100:]] == [f"{prefix}{row}" for row in (7, 8, 9)]
    matches = [row["match"] for row in rows]
    equal = 0 if old == "old.npy" else 2  # vectors in another batch may differ in their last digits
    assert matches[100] in ("equal", "near")
    assert matches[102] == "near"
    document = json.loads((sets / "k.json").read_text("utf-8"))
    assert document["n_equal"] == matches.count("equal") >= equal
    assert document["n_near"] == matches.count("near")
    assert document["n_new"] == matches.count("new")
    assert [each["row"] for each in document["known"]][-3:] == [100, 101, 102]
    assert f"{matches.count('new')} new" in finished.out


def test_against_an_index_of_which_rows_were_deleted(isosent_, sets):
    pytest.importorskip("faiss")
    assert isosent_("index", "old.csv", "-o", "index").code == 0
    assert isosent_("index", "remove", "index", "t7").code == 0
    found = json.loads(isosent_("duplicates", "new.txt", "--against", "index", "--json").out)
    assert {each["old"] for each in found["known"]} >= {"t8", "t9"}
    assert "t7" not in {each["old"] for each in found["known"]}


def test_against_what_cannot_be_compared(isosent_, refuses, sets):
    assert isosent_("encode", "old.txt", "-o", "old.npy").code == 0
    refuses(isosent_("duplicates", "new.txt", "--against", "old.npy"), "old.npy holds vectors", "-m MODEL")
    refuses(isosent_("duplicates", "new.txt", "--against", "nowhere.txt"), "nowhere.txt")
    assert isosent_("fit", "old.npy", "--transform", "whitening", "-o", "model").code == 0
    assert isosent_("transform", "old.npy", "-m", "model", "-o", "white.npy").code == 0
    refuses(isosent_("duplicates", "old.npy", "--against", "white.npy"), "white.npy", "cannot be compared")
    np.save("short.npy", np.load("old.npy")[:, :9])
    refuses(isosent_("duplicates", "old.npy", "--against", "short.npy"), "256 dimensions", "short.npy 9")
    refuses(isosent_("duplicates", "new.txt", "--against", "lance:x"), "database")


def test_clusters_and_maps_of_languages_are_told_until_the_language_is_erased(isosent_, here):
    isosent_("demo", "--texts", "pool")
    told = isosent_("cluster", "pool/pool.csv", "--column", "text", "-o", "c.json", "-o", "c.html")
    document = json.loads((here / "c.json").read_text("utf-8"))
    with (here / "pool" / "pool.csv").open(newline="", encoding="utf-8") as file:
        languages = np.array([row["lang"] for row in csv.DictReader(file)])
    shares = {
        number: max(np.unique(of_one, return_counts=True)[1]) / len(of_one)
        for number in np.unique(document["labels"])
        for of_one in [languages[np.array(document["labels"]) == number]]
    }
    assert sum(share >= 0.9 for share in shares.values()) >= 5
    assert {number for number, share in shares.items() if share >= 0.9} <= set(document["of_one_group"])
    assert f"{len(document['of_one_group'])} of {len(document['clusters'])} clusters" in told.err
    assert "--erase COLUMN" in (here / "c.html").read_text("utf-8")
    assert "separate groups" in isosent_("map", "pool/pool.csv", "--column", "text", "-o", "m.html").err

    isosent_("fit", "pool/pool.csv", "--column", "text", "--erase", "lang", "-o", "erased")
    for command in (["cluster", "-m", "erased", "--json"], ["map", "--transform", "erased", "-o", "m.html"]):
        assert "separate groups" not in isosent_(*command, "pool/pool.csv", "--column", "text").err
    assert "separate groups" not in isosent_("cluster", "texts.txt").err


def test_the_vectors_of_two_tables_are_compared_with_the_texts_next_to_them(isosent_, refuses, here, wordllama):
    texts = isosent.demo_texts()[:60]
    vectors = list(np.roll(wordllama.encode(texts), 1, axis=1))  # of a model that nobody has here
    table = pa.table({"sku": [f"P{n}" for n in range(60)], "title": texts, "vector": vectors})
    pq.write_table(table, here / "old.parquet")
    pq.write_table(table.slice(0, 20).drop_columns(["sku"]), here / "new.parquet")
    told = isosent_("duplicates", "new.parquet", "--against", "old.parquet")
    assert (told.code, "--texts new.parquet --column NAME" in told.err) == (2, True)
    advice = ["--texts", "new.parquet", "--column", "title"]
    found = json.loads(isosent_("duplicates", "new.parquet", "--against", "old.parquet", *advice, "--json").out)
    assert (found["model"], found["n_equal"]) == (None, 20)
    assert [each["old_text"] for each in found["known"]] == texts[:20]
    finished = isosent_("duplicates", "new.parquet", "--against", "old.parquet", "--column", "title")
    assert "vectors in its column vector are not used" in finished.err


def test_the_rows_of_an_index_are_grouped_by_its_own_vectors(isosent_, refuses, here, wordllama):
    texts = isosent.demo_texts()[:60]
    Index.create([*texts, *texts[:3]], wordllama, folder=here / "index")
    found = json.loads(isosent_("duplicates", "index", "--json").out)
    assert (found["model"], found["n_texts"]) == (None, 63)
    assert found["n_duplicates"] >= 6
    assert json.loads(isosent_("cluster", "index", "--json").out)["n_texts"] == 63
    refuses(isosent_("cluster", "index", "-m", "wordllama"), "index", "--model")
    Index.create([*texts[10:20], "something new entirely"], wordllama, folder=here / "new")
    (here / "old.txt").write_text("\n".join(texts[:12]) + "\n", "utf-8")
    found = json.loads(isosent_("duplicates", "new", "--against", "index", "--json").out)
    assert (found["n_texts"], found["n_equal"]) == (11, 10)
    refuses(isosent_("duplicates", "new", "--against", "old.txt"), "isosent encode old.txt -m new/model -o OLD.parquet")
    assert isosent_("encode", "old.txt", "-m", "new/model", "-o", "OLD.parquet").code == 0
    assert json.loads(isosent_("duplicates", "new", "--against", "OLD.parquet", "--json").out)["n_equal"] == 2
