"""Which column a command takes, and which numbers: the same whatever the format."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.io.vectors import open_vectors
from isosent.search.index import Index

ENDINGS = ["parquet", "jsonl", "json", "csv", "tsv"]
ROWS = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
TEXTS = [
    f"a sentence about {word} and {other}"
    for word in ["cats", "dogs", "taxes", "music", "ships"]
    for other in range(12)
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(ending, name="emb", rows=ROWS, texts=TEXTS):
    path = f"t.{ending}"
    frame = pd.DataFrame({"id": [f"r{n}" for n in range(len(rows))], "text": texts, name: rows.tolist()})
    if ending == "parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif ending in ("jsonl", "json"):
        frame.to_json(path, orient="records", lines=ending == "jsonl", double_precision=15)
    else:
        frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    return path


def stored(folder):
    batches = list(Index.open(folder).batches())
    return {name: [value for batch in batches for value in batch.column(name).to_pylist()] for name in ("id", "text")}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_command_takes_the_vectors_next_to_texts(isosent_, refuses, ending):
    table = write(ending)
    np.save("v.npy", ROWS)
    Path("queries.txt").write_text("a query\n")

    def check(*arguments):
        finished = isosent_(*arguments)
        assert finished.code == 0, finished.err
        assert finished.err.count(f"{table}: the vectors in its column emb are used; its texts or labels in text") == 1
        assert "--column text" in finished.err
        return finished.out

    check("index", table, "-o", "index")
    assert stored("index") == {"id": [f"r{n}" for n in range(60)], "text": TEXTS}
    query = json.loads(check("search", "index", table, "-k", 1, "--json"))
    assert [result["hits"][0]["id"] for result in query["results"]] == [f"r{n}" for n in range(60)]
    fits = [
        (check if name == table else isosent_)("fit", name, "--dims", 2, "-o", name[:1]) for name in (table, "v.npy")
    ]
    assert fits
    expected = isosent.load("v").transform(ROWS)
    np.testing.assert_allclose(isosent.load("t").transform(ROWS), expected, rtol=1e-4, atol=1e-5)
    assert isosent_("transform", table, "-m", "v", "-o", "o.npy").code == 0
    np.testing.assert_allclose(np.load("o.npy"), expected, rtol=1e-4, atol=1e-5)
    inspected = json.loads(check("inspect", table, "--json"))
    inspected["counts"]["dtype"] = "float32"  # parquet may hold float64
    assert inspected["counts"] == json.loads(isosent_("inspect", "v.npy", "--json").out)["counts"]
    assert "p-value" in check("drift", "v.npy", table)
    isosent_("moments", table, "-o", "m.safetensors")
    assert isosent_("fit", "m.safetensors", "--dims", 2, "-o", "m").code == 0
    check("calibrate", table, "-m", "v", "-o", "c")
    check("quantize", table, "-m", "v", "-o", "q")
    described = isosent_("info", table)  # nothing is encoded or used
    assert ("dimensions       6" in described.out, described.err) == (True, "")


@pytest.mark.parametrize("ending", ENDINGS)
def test_commands_of_texts_take_the_texts_and_say_so(isosent_, refuses, ending):
    table = write(ending)
    for arguments in (
        ("encode", table, "-o", "e.npy"),
        ("index", table, "--column", "text", "-o", "index"),
        ("fit", table, "--column", "text", "--transform", "none", "-o", "fitted"),
    ):
        finished = isosent_(*arguments)
        assert finished.code == 0, finished.err
        assert f"{table}: texts are encoded; the vectors in its column emb are not used" in finished.err
    np.testing.assert_allclose(np.load("e.npy"), isosent.load("wordllama").encode(TEXTS), rtol=1e-4, atol=1e-5)
    assert Index.open("index").dim == 256
    refuses(isosent_("encode", table, "--column", "emb", "-o", "n.npy"), "holds vectors")


@pytest.mark.parametrize("ending", ENDINGS)
def test_tasks_find_vectors_by_their_texts_in_every_table(isosent_, ending):
    table = write(ending, rows=np.repeat(np.eye(30, dtype=np.float32) + 0.5, 2, axis=0))  # pairs of equal vectors
    Path("pairs.tsv").write_text(
        "first\tsecond\n" + "".join(f"{a}\t{b}\n" for a, b in zip(TEXTS[::2], TEXTS[1::2], strict=True))
    )
    arguments = ("--data", "pairs.tsv", "--columns", "first,second", "--json", "-m", table)
    finished = isosent_("evaluate", "retrieval", *arguments)
    assert finished.code == 0, finished.err
    scores = json.loads(finished.out)["tasks"]["pairs"]["scores"]
    assert scores["mrr"] == pytest.approx(1)


def test_a_batch_file_becomes_an_index_with_its_ids(isosent_, refuses):
    lines = [
        {"custom_id": f"doc-{n}", "response": {"body": {"data": [{"index": 0, "embedding": row.tolist()}]}}}
        for n, row in enumerate(ROWS)
    ]
    Path("b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert isosent_("index", "b.jsonl", "-o", "index").code == 0
    np.save("q.npy", ROWS[[7, 3]])
    found = json.loads(isosent_("search", "index", "q.npy", "-k", 1, "--json").out)["results"]
    assert [result["hits"][0]["id"] for result in found] == ["doc-7", "doc-3"]
    assert isosent_("fit", "b.jsonl", "--dims", 2, "-o", "m").code == 0
    lines[5] = {"custom_id": "doc-5", "response": None, "error": {"message": "expired"}}
    Path("b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    refuses(isosent_("index", "b.jsonl", "-o", "new"), "line 6", "doc-5", "expired")
    refuses(isosent_("encode", "b.jsonl", "-o", "new.npy"), "embedding holds vectors, not texts")


@pytest.mark.parametrize("ending", ENDINGS)
def test_columns_of_vectors_and_of_texts_are_chosen_by_name(isosent_, refuses, ending):
    frame = {"title": TEXTS, "a": ROWS.tolist(), "b": (2 * ROWS[::-1]).tolist()}
    path = f"t.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table(frame), path)
    elif ending in ("jsonl", "json"):
        pd.DataFrame(frame).to_json(path, orient="records", lines=ending == "jsonl", double_precision=15)
    else:
        pd.DataFrame(frame).to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    for command in ("index", "fit"):
        finished = isosent_(command, path, "-o", "new")
        assert finished.code == 2
        assert "2 columns of vectors (a, b). Choose one: --column" in finished.err
        assert isosent_(command, path, "--column", "b", "-o", command).code == 0
    [batch] = Index.open("index").batches()
    assert batch.column("text").to_pylist() == TEXTS
    vectors = np.array(batch.column("vector").to_pylist())
    expected = ROWS[::-1] / np.linalg.norm(ROWS[::-1], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=1e-6)
    assert isosent_("index", path, "--column", "title", "-o", "of_texts").code == 0
    assert Index.open("of_texts").dim == 256


@pytest.mark.parametrize("form", [";", "|", "sep=;"])
def test_other_separators_are_read_and_named(isosent_, form):
    separator = form[-1]
    rows = [["id", "text", "price"], ["3", "my text, with a comma", "0,12"], ["4", "another; one", "1,50"]]
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    first = "sep=;\n" if form == "sep=;" else ""
    Path("t.csv").write_text(first + "".join(separator.join(row) + "\n" for row in quoted))
    finished = isosent_("index", "t.csv", "-o", "index")
    assert finished.code == 0, finished.err
    assert finished.err.count("semicolons" if separator == ";" else "bars") == 1
    assert stored("index") == {"id": [3, 4], "text": ["my text, with a comma", "another; one"]}
    if separator == ";":
        found = json.loads(isosent_("search", "index", "text", "--where", "price < 1", "--json").out)
        assert [hit["id"] for hit in found["results"][0]["hits"]] == [3]
    assert isosent_("encode", "t.csv", "-o", "v.npy").code == 0
    expected = isosent.load("wordllama").encode(["my text, with a comma", "another; one"])
    np.testing.assert_allclose(np.load("v.npy"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("text\none; two\nthree\n", ["one; two", "three"]),
        ("text,note\na;b,c;d\ne;f,g;h\n", ["a;b", "e;f"]),
        ("text\na|b\nc|d\n", ["a|b", "c|d"]),
        ('text\n"a;b"\n"c;d"\n', ["a;b", "c;d"]),
    ],
)
def test_semicolons_in_texts_separate_nothing(content, texts, isosent_):
    Path("t.csv").write_text(content)
    assert isosent.read_texts("t.csv") == texts


def test_a_row_with_another_number_of_semicolons_is_named(isosent_, refuses):
    Path("t.csv").write_text("id;text\n1;one\n2;two; and more\n")
    finished = isosent_("encode", "t.csv", "-o", "v.npy")
    assert finished.code == 2
    assert "line 3: expected 2 fields" in finished.err


def test_standard_input_holds_queries(isosent_, refuses):
    Path("t.txt").write_text("\n".join(TEXTS))
    assert isosent_("index", "t.txt", "-o", "index").code == 0
    lines = f"{TEXTS[5]}\n{TEXTS[40]}\n".encode()
    found = json.loads(isosent_("search", "index", "-", "-k", 1, "--json", stdin=lines).out)["results"]
    assert [(result["query"], result["hits"][0]["id"]) for result in found] == [(TEXTS[5], 5), (TEXTS[40], 40)]
    refuses(isosent_("search", "index", "-", "more", stdin=lines), "Name it alone")
    refuses(isosent_("search", "index", "-", stdin=b""), "standard input is empty")
    vectors = "\n".join(map(json.dumps, ROWS.tolist())).encode()
    for arguments in (("search", "index", "-"), ("encode", "-", "-o", "v.npy"), ("inspect", "-")):
        refuses(isosent_(*arguments, stdin=vectors), "standard input holds vectors, not texts")


@pytest.mark.parametrize("command", ["fit", "inspect", "index"])
def test_lines_of_numbers_are_vectors_for_every_command(isosent_, refuses, command):
    np.savetxt("v.txt", ROWS)
    output = {"fit": ("-o", "m"), "index": ("-o", "m"), "inspect": ()}[command]
    finished = isosent_(command, "v.txt", *output)
    assert finished.code == 0, finished.err
    refuses(isosent_("encode", "v.txt", "-o", "n.npy"), "v.txt holds vectors, not texts")
    np.testing.assert_allclose(next(open_vectors("v.txt").blocks()), ROWS, rtol=1e-6)


def test_vectors_that_printing_has_cut_are_refused_by_every_command(isosent_, refuses):
    printed = str(np.linspace(0, 1, 1500)).replace("\n", " ")
    pd.DataFrame({"text": ["a", "b"], "embedding": [printed] * 2}).to_csv("t.csv", index=False)
    for arguments in (("index", "t.csv", "-o", "n"), ("fit", "t.csv", "-o", "n"), ("inspect", "t.csv")):
        refuses(isosent_(*arguments), "t.csv, line 2", "embedding lacks numbers", "numpy.save")
    assert isosent_("index", "t.csv", "--column", "text", "-o", "n").code == 0


def test_standard_input_is_one_of_two_texts(isosent_, refuses):
    expected = isosent_("similarity", TEXTS[0], TEXTS[40]).out
    assert isosent_("similarity", "-", TEXTS[40], stdin=TEXTS[0].encode() + b"\n").out == expected
    assert isosent_("similarity", "-", "-", stdin=f"{TEXTS[0]}\n{TEXTS[40]}".encode()).out == expected
    refuses(isosent_("similarity", "-", "a", stdin=b"one\ntwo\n"), "2 lines")
    assert isosent_("explain", "-", "a cat", stdin=b"a cat\n").out == isosent_("explain", "a cat", "a cat").out


def test_workers_do_not_encode_texts_that_have_vectors(isosent_, refuses):
    table = write("jsonl")
    refuses(isosent_("fit", table, "--workers", "2", "--dims", "2", "-o", "m"), "column emb", "--column")


def batch(names, rows=ROWS):
    lines = [
        {"custom_id": name, "response": {"body": {"data": [{"index": 0, "embedding": row.tolist()}]}}}
        for name, row in zip(names, rows, strict=True)
    ]
    Path("b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")


@pytest.mark.parametrize("id_name", ["id", "custom_id"])
def test_texts_join_the_vectors_of_a_batch_by_their_ids(isosent_, refuses, id_name):
    order = np.random.default_rng(1).permutation(60)
    batch([f"request-{n}" for n in order], ROWS[order])
    frame = pd.DataFrame({id_name: [f"request-{n}" for n in range(60)], "text": TEXTS, "place": range(60)})
    frame.to_csv("texts.csv", index=False)
    finished = isosent_("index", "b.jsonl", "--texts", "texts.csv", "-o", "index")
    assert finished.code == 0, finished.err
    assert finished.err.count("joined by their ids") == 1
    [rows] = Index.open("index").batches()
    vectors = np.array(rows.column("vector").to_pylist())
    for text, place, vector in zip(rows["text"].to_pylist(), rows["place"].to_pylist(), vectors, strict=True):
        assert text == TEXTS[place]
        np.testing.assert_allclose(vector, ROWS[place] / np.linalg.norm(ROWS[place]), atol=1e-6)
    frame[:-1].to_csv("texts.csv", index=False)
    refuses(isosent_("index", "b.jsonl", "--texts", "texts.csv", "-o", "new"), "request-59")


def test_ids_that_show_another_order_are_refused(isosent_, refuses):
    Path("texts.txt").write_text("\n".join(TEXTS))
    arguments = ("index", "b.jsonl", "--texts", "texts.txt", "-o", "index")
    batch([f"request-{n}" for n in range(60)])
    finished = isosent_(*arguments)
    assert (finished.code, "order" in finished.err) == (0, False)
    assert stored("index")["text"] == TEXTS
    batch([f"request-{n}" for n in reversed(range(60))])
    refuses(isosent_(*arguments), "another order")
    batch([f"row-{n:x}-{TEXTS[n][20:24]}" for n in range(60)])
    finished = isosent_(*arguments)
    assert finished.code == 0
    assert finished.err.count("in the order of their rows") == 1


@pytest.mark.parametrize("command", ["fit", "inspect", "duplicates", "cluster"])
def test_every_command_joins_texts_to_vectors_by_their_ids(isosent_, refuses, command):
    options = {"fit": ("--transform", "auto", "-o", "m"), "cluster": ("--clusters", "3")}.get(command, ())
    frame = pd.DataFrame({"custom_id": [f"request-{n}" for n in range(60)], "text": TEXTS})
    frame.to_csv("texts.csv", index=False)
    batch(frame["custom_id"])
    arguments = (command, "b.jsonl", *options, "--texts")
    finished = isosent_(*arguments, "texts.csv")
    assert (finished.code, "their ids" in finished.err) == (0, False), finished.err
    frame.sample(frac=1, random_state=1).to_csv("texts.csv", index=False)
    joined = isosent_(*arguments, "texts.csv")
    assert (joined.code, joined.err.count("joined by their ids")) == (0, 1), joined.err
    assert joined.out == finished.out
    Path("texts.txt").write_text("\n".join(TEXTS))
    batch(reversed(frame["custom_id"]))
    refuses(isosent_(*arguments, "texts.txt"), "another order")
    frame[:-1].to_csv("texts.csv", index=False)
    refuses(isosent_(*arguments, "texts.csv"), "request-59")


@pytest.mark.parametrize("dim", [8, 12])
@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_spreadsheet_of_decimal_commas_without_header_is_vectors(isosent_, separator, dim):
    rows = np.random.default_rng(0).normal(size=(60, dim))
    lines = [separator.join(f"{number:.4f}".replace(".", ",") for number in row) for row in rows]
    lines[1] = separator.join(["1", *lines[1].split(separator)[1:]])  # without a comma
    for name in ("n.csv", "n.tsv", "n.txt"):
        Path(name).write_text("\n".join(lines) + "\n")
        finished = isosent_("index", name, "-o", name[2:])
        assert finished.code == 0, finished.err
        [batch] = Index.open(name[2:]).batches()
        vectors = np.array(batch["vector"].to_pylist())
        np.testing.assert_allclose(vectors[2:], (rows / np.linalg.norm(rows, axis=1)[:, None])[2:], atol=1e-3)


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_pairs_of_numbers_are_refused(isosent_, refuses, command):
    lists = [str(row) for row in ROWS.tolist()]
    pd.DataFrame({"query": lists, "document": lists}).to_csv("p.csv", index=False)
    if command == "fit":
        finished = isosent_("fit", "--pairs", "p.csv", "-o", "m")
    else:
        finished = isosent_("evaluate", "retrieval", "--data", "p.csv", "--columns", "query,document")
    refuses(finished, "holds vectors")


def test_commands_say_once_that_a_column_is_not_read(isosent_):
    pd.DataFrame({"text": TEXTS, "embedding": ["AAAAPwAAgL4AAMA/AAAAQA=="] * 60}).to_csv("t.csv", index=False)
    for arguments in (
        ("encode", "t.csv", "-o", "e.npy"),
        ("fit", "t.csv", "-o", "m"),
        ("index", "t.csv", "-o", "index"),
        ("inspect", "t.csv"),
        ("duplicates", "t.csv"),
    ):
        finished = isosent_(*arguments)
        assert finished.code == 0, finished.err
        assert finished.err.count("texts are used; embedding") == 1, arguments


def test_several_tables_with_vectors_are_texts_if_their_column_is_named(isosent_):
    for name, start in (("a.csv", 0), ("b.csv", 30)):
        frame = pd.DataFrame({"text": TEXTS[start : start + 30], "emb": ROWS[:30].tolist()})
        frame.to_csv(name, index=False)
    finished = isosent_("index", "a.csv", "b.csv", "--column", "text", "-o", "i")
    assert finished.code == 0, finished.err
    assert stored("i")["text"] == TEXTS
    assert Index.open("i").dim == 256  # of the default model


def test_pairs_of_texts_are_found_next_to_vectors_if_their_columns_are_named(isosent_, refuses):
    words = [f"{text} {n}" for n, text in enumerate(TEXTS)]
    frame = pd.DataFrame({"query": words, "document": TEXTS, "emb": ROWS.tolist()})
    frame.to_csv("p.csv", index=False)
    finished = isosent_("fit", "--pairs", "p.csv", "--queries", "--column", "query,document", "-o", "m")
    assert finished.code == 0, finished.err
    assert "pairs" in finished.out


# ``t`` and ``more.en`` hold texts
ONE_OF_TEXTS = [{"id": f"r{n}", "n": n, "t": text, "more": {"en": text.upper()}} for n, text in enumerate(TEXTS)]


def saved(name, rows):
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), name)
    else:
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_every_command_takes_the_same_texts_of_a_table(isosent_, refuses, name, wordllama):
    commands = (("index", "-o", "index"), ("encode", "-o", "made.npy"))
    few = [{column: row[column] for column in ("id", "n", "t")} for row in ONE_OF_TEXTS]
    upper = [text.upper() for text in TEXTS]
    for rows, column, expected in ((few, (), TEXTS), (ONE_OF_TEXTS, ("--column", "more.en"), upper)):
        saved(name, rows)
        for command in commands:
            assert isosent_(*command, name, *column).code == 0
        assert stored("index")["text"] == expected
        np.testing.assert_array_equal(np.load("made.npy"), wordllama.encode(expected))
        if not column:
            assert isosent_("encode", name, "-o", "ours.parquet").code == 0
            assert isosent_("index", "ours.parquet", "-o", "index").code == 0
            assert stored("index")["text"] == expected
    for command in (*commands, ("duplicates",), ("fit", "-o", "model")):
        refuses(isosent_(*command, name), name, "--column NAME")


def test_a_row_without_a_text_is_refused_by_every_command(isosent_, refuses):
    rows = [{"id": f"r{n}", "text": text, "n": n} for n, text in enumerate(TEXTS)]
    saved("whole.jsonl", rows)
    assert isosent_("index", "whole.jsonl", "-o", "index").code == 0
    for row in ({"id": "r2"}, {"id": "r2", "text": 5}, {"id": "r2", "text": ["a"]}):
        saved("rows.jsonl", [*rows[:2], row, *rows[3:]])
        for command in (("index", "-o", "made"), ("encode", "-o", "made.npy"), ("index", "add", "index")):
            refuses(isosent_(*command, "rows.jsonl"), "rows.jsonl, line 3")
    saved("rows.jsonl", [*rows[:2], {"id": "r2", "text": None}, *rows[3:]])  # null is empty; metadata may be missing
    assert isosent_("index", "add", "index", "rows.jsonl").code == 0
    texts = dict(zip(*stored("index").values(), strict=True))
    assert texts["r2"] == ""
    assert texts["r3"] == TEXTS[3]


@pytest.mark.parametrize("texts", ["texts.csv", "two.csv", "vectors.parquet"])
def test_a_column_is_chosen_in_every_file_that_has_it(isosent_, texts):
    """Of vectors a and b and a table of texts, ``--column b`` chooses those that it names in each."""
    np.savez("vectors.npz", a=ROWS, b=2 * ROWS[::-1] + 1)
    frame = pa.table({"title": TEXTS, "text": TEXTS[::-1], "a": ROWS.tolist(), "b": (2 * ROWS[::-1] + 1).tolist()})
    pq.write_table(frame, "vectors.parquet")
    pd.DataFrame({"text": TEXTS[::-1], "title": TEXTS}).to_csv("texts.csv", index=False)
    pd.DataFrame({"b": TEXTS[::-1], "text": TEXTS}).to_csv("two.csv", index=False)
    np.save("b.npy", 2 * ROWS[::-1] + 1)
    Path("lines.txt").write_text("\n".join(TEXTS[::-1]))
    for command in (("duplicates",), ("inspect", "--json")):
        found = isosent_(*command, "vectors.npz", "--column", "b", "--texts", texts)
        expected = isosent_(*command, "b.npy", "--texts", "lines.txt")
        assert found.code == 0, found.err
        assert found.out.replace("vectors.npz", "b.npy") == expected.out
    for name in ("vectors.npz", "vectors.parquet"):
        assert isosent_("index", name, "--column", "b", "--texts", texts, "-o", "index").code == 0
        assert stored("index")["text"] == TEXTS[::-1]
    assert isosent_("fit", "vectors.npz", "--column", "b", "--texts", texts, "-o", "model").code == 0


def test_a_column_that_both_files_need_is_advised_to_be_renamed(isosent_, refuses):
    np.savez("vectors.npz", a=ROWS, b=ROWS)
    pd.DataFrame({"title": TEXTS, "body": TEXTS}).to_csv("texts.csv", index=False)
    for command in (("index", "-o", "index"), ("duplicates",), ("inspect",), ("fit", "-o", "model")):
        for column in ("a", "body"):
            words = ("--column", "rename", "text") + (("body",) if column == "body" else ())
            refuses(isosent_(*command, "vectors.npz", "--column", column, "--texts", "texts.csv"), *words)
        refuses(isosent_(*command, "vectors.npz", "--column", "c", "--texts", "texts.csv"), "no column c")


def test_a_table_without_a_header_loses_no_text_in_silence(isosent_, refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = isosent.demo_texts()[:8]
    (tmp_path / "texts.csv").write_text("".join(f'"{text}"\n' for text in texts))
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in itertools.pairwise(texts)))
    (tmp_path / "ids.csv").write_text("".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    (tmp_path / "named.csv").write_text("".join(f'"{text}"\n' for text in ["review", *texts]))
    for command in (("duplicates",), ("encode", "-o", "v.npy"), ("fit", "-o", "model"), ("index", "-o", "index")):
        finished = isosent_(*command, "texts.csv")
        assert finished.code == 0, finished.err
        assert f"texts.csv: its first line, '{texts[0]}'" in finished.err
        assert "first line" not in isosent_(*command, "named.csv").err
        refuses(isosent_(*command, "pairs.tsv"), "pairs.tsv has", "--column NAME", "first line", "names above it")
    for command in (("duplicates",), ("index", "-o", "index")):
        assert "first line" in isosent_(*command, "ids.csv").err
