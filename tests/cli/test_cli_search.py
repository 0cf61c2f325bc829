"""``isosent index`` and ``isosent search``."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from safetensors.numpy import load_file
from tampering import replace_part

pytest.importorskip("faiss")

import isosent
from isosent.cli.main import main
from isosent.errors import InputError
from isosent.search import Index
from isosent.search.commits import CodebookFit, read_state, write_state


@pytest.fixture(scope="module")
def home(texts, tmp_path_factory):
    """A table, and an index of it."""
    folder = tmp_path_factory.mktemp("home")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "lang", "year"])
        writer.writerows(
            [f"r{row}", text, "en" if row % 2 else "de", 2000 + row] for row, text in enumerate(texts[:60])
        )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys, "argv", ["isosent", "index", str(folder / "rows.csv"), "-o", str(folder / "index")])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert not stopped.value.code
    return folder


@pytest.fixture
def table(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copy(home / "rows.csv", ".").removeprefix("./")


@pytest.fixture
def made(home, table):
    return shutil.copytree(home / "index", "index")


def hits(finished):
    assert finished.code == 0, finished.err
    return [[hit["id"] for hit in result["hits"]] for result in json.loads(finished.out)["results"]]


def test_a_table_becomes_an_index_that_is_searched(isosent_, made, texts):
    finished = isosent_("search", made, texts[7], texts[9], "-k", 3, "--json")
    assert [found[0] for found in hits(finished)] == ["r7", "r9"]
    first = json.loads(finished.out)["results"][0]["hits"][0]
    assert first["text"] == texts[7]
    assert (first["lang"], first["year"]) == ("en", 2007)
    assert first["score"] == pytest.approx(1, abs=1e-5)
    assert 0.9 < first["share"] <= 1


def test_hits_are_printed_for_people(isosent_, made, texts):
    out = isosent_("search", made, texts[7], "-k", 2).out
    assert "1.0000" in out
    assert "r7" in out
    assert "%" in out
    assert "year 2007" in out


def test_filters_words_and_rows_narrow_a_search(isosent_, made, texts):
    assert hits(isosent_("search", made, texts[7], "--where", "year < 2005", "-k", 50, "--json"))[0].count("r7") == 0
    assert hits(isosent_("search", made, texts[8], "--hybrid", "--json"))[0][0] == "r8"
    [like] = hits(isosent_("search", made, "--like", "r7", "--json", "-k", 4))
    assert "r7" not in like
    assert len(like) == 4


def test_words_explain_a_hit(isosent_, made, texts):
    assert "~" in isosent_("search", made, texts[7], "-k", 1, "--explain").out


def test_nothing_matches_an_unrelated_query(isosent_, made):
    finished = isosent_("search", made, "오늘 저녁에는 비가 올 것 같습니다", "--false-positives", 0.001)
    assert finished.out.strip() == "no match"
    assert finished.code == 0


def test_a_file_of_texts_holds_queries(isosent_, made, tmp_path):
    (tmp_path / "queries.txt").write_text("a man rides a horse\n\nonions\n")
    of_file = hits(isosent_("search", made, "queries.txt", "--json"))
    assert len(of_file) == 2
    assert of_file == hits(isosent_("search", made, "a man rides a horse", "onions", "--json"))
    assert isosent_("search", made, "a long text, " * 100 + "and no file.txt").code == 0


def test_rows_are_added_replaced_and_removed(isosent_, made, tmp_path):
    (tmp_path / "more.jsonl").write_text(
        '{"id": "r1", "text": "a new text", "lang": "fr", "year": 1}\n'
        '{"id": "n", "text": "another text", "lang": "fr", "year": 2}\n'
    )
    finished = isosent_("index", "add", made, "more.jsonl")
    assert finished.code == 0
    assert "1 replaced" in finished.out
    assert "61 now" in finished.out
    assert set(hits(isosent_("search", made, "text", "--where", 'lang = "fr"', "--json"))[0]) == {"r1", "n"}
    assert "2 of 3" in isosent_("index", "remove", made, "r1", "n", "nobody").out
    assert hits(isosent_("search", made, "text", "--where", 'lang = "fr"', "--json")) == [[]]
    finished = isosent_("index", "compact", made)
    assert finished.code == 0
    assert json.loads(isosent_("info", made, "--json").out)["n_rows"] == 59


def test_the_recall_is_stated_and_called_stale(isosent_, table):
    assert "recall@10" in isosent_("index", table, "--store", "float16", "-o", "half").out
    assert isosent_("index", "remove", "half", *(f"r{row}" for row in range(8))).code == 0
    finished = isosent_("info", "half")
    assert "8 of 60" in finished.err
    assert "compact" in finished.err


def test_the_recall_names_what_it_is_compared_with(isosent_, table):
    assert isosent_("fit", table, "--column", "text", "--transform", "whitening?n_components=8", "-o", "m").code == 0
    out = isosent_("index", table, "-m", "m", "-o", "small").out
    assert "its vectors, after the transform; 15 of 60 texts" in out
    assert "original vectors, before it; 15 of 60 texts" in out
    stats = json.loads(isosent_("info", "small", "--json").out)
    assert stats["recall"]["original_recall"] < stats["recall"]["recall"] == 1
    assert isosent_("encode", table, "--column", "text", "-o", "original.parquet").code == 0
    finished = isosent_("search", "small", "--against", "original.parquet", "--json")
    assert json.loads(finished.out)["recall"] == pytest.approx(stats["recall"]["original_recall"], abs=0.15)
    assert "original.parquet; 15 of 60 texts" in isosent_("search", "small", "--against", "original.parquet").out
    vectors = ("--against", "original.parquet")
    for arguments in (("a query", *vectors), ("--rerank", *vectors), ("--against", table), ("--against", "no.npy")):
        finished = isosent_("search", "small", *arguments)
        assert finished.code == 2
        assert finished.err.count("\n") == 1


def test_vectors_in_another_order_are_noticed(isosent_, table, texts):
    vectors = isosent.load("wordllama").encode(texts[:60])
    np.save("v.npy", vectors)
    np.save("shuffled.npy", vectors[np.random.default_rng(0).permutation(60)])
    assert isosent_("index", "v.npy", "-o", "of_vectors").code == 0
    assert isosent_("search", "of_vectors", "--against", "v.npy").err == ""
    assert "in the order of the index" in isosent_("search", "of_vectors", "--against", "shuffled.npy").err


def test_what_holds_no_vectors_is_named(isosent_, made):
    Path("q.json").write_text('[{"embedding": [0.1, 0.2]}]')
    assert "expected vectors of 256 dimensions, found 2" in isosent_("search", made, "q.json").err
    Path("n.csv").write_text("0.1,0.2\n0.3,0.4\n")
    np.savez("z.npz", np.ones(3))
    for command in ("index", "fit"):
        assert "n.csv holds numbers, not texts" in isosent_(command, "n.csv", "-o", "new").err
        assert "z.npz, array arr_0, has the shape (3,)" in isosent_(command, "z.npz", "-o", "new").err


def test_queries_may_be_vectors_in_a_file(isosent_, made, texts):
    with Path("queries.txt").open("w") as file:
        file.write(f"{texts[7]}\n{texts[9]}\n")
    assert isosent_("encode", "queries.txt", "-o", "queries.npy").code == 0
    with Path("queries.jsonl").open("w") as file:
        file.writelines(json.dumps(row.tolist()) + "\n" for row in np.load("queries.npy"))
    expected = hits(isosent_("search", made, texts[7], texts[9], "-k", 3, "--json"))
    assert hits(isosent_("search", made, "queries.npy", "-k", 3, "--json")) == expected
    assert hits(isosent_("search", made, "queries.jsonl", "-k", 3, "--json")) == expected
    assert "row 1 of queries.npy" in isosent_("search", made, "queries.npy").out
    np.save("narrow.npy", np.ones((2, 3), np.float32))
    for arguments in (
        ("queries.npy", "--explain"),
        ("queries.npy", "--hybrid"),
        ("queries.npy", "--rerank"),
        ("queries.npy", "a"),
        ("narrow.npy",),
    ):
        finished = isosent_("search", made, *arguments)
        assert finished.code == 2
        assert finished.err.count("\n") == 1


def test_added_vectors_that_differ_are_named(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2300, 64)) * 0.96 ** np.arange(64)
    turned = rows[2000:] @ np.linalg.qr(rng.normal(size=(64, 64)))[0]
    for name, vectors in {"v": rows[:2000], "same": rows[2000:], "moved": rows[2000:] + 0.4, "other": turned}.items():
        np.save(f"{name}.npy", vectors.astype(np.float32))
    assert isosent_("index", "v.npy", "-o", "index", "--space", "api").code == 0
    finished = isosent_("index", "add", "index", "other.npy")
    assert (finished.code, finished.err.count("\n")) == (0, 1)
    assert "another model" in finished.err
    assert isosent_("index", "v.npy", "-o", "index", "--space", "api").code == 0
    finished = isosent_("index", "add", "index", "same.npy")
    assert (finished.code, finished.err) == (0, "")
    finished = isosent_("index", "add", "index", "moved.npy")
    assert finished.code == 0
    assert finished.err.startswith("warning: the new vectors differ")
    assert isosent_("index", "add", "index", "other.npy", "--space", "another api").code == 2
    finished = isosent_("index", "add", "index", "other.npy", "--space", "api")  # a name is no proof
    assert finished.code == 0
    assert "another model" in finished.err
    (tmp_path / "t.txt").write_text("a text\n")
    assert isosent_("index", "t.txt", "-o", "texts", "--space", "api").code == 2
    finished = isosent_("search", "index", "nowhere.npy")
    assert (finished.code, finished.err) == (2, "error: nowhere.npy: no such file.\n")
    assert not (tmp_path / "texts").exists()


def test_plain_lines_get_numbers(isosent_, table, tmp_path):
    (tmp_path / "lines.txt").write_text("a cat\na dog\nthe stock market\n")
    assert isosent_("index", "lines.txt", "-o", "lines").code == 0
    assert hits(isosent_("search", "lines", "an animal", "-k", 2, "--json"))[0] in ([0, 1], [1, 0])
    assert "1 of 1" in isosent_("index", "remove", "lines", 1).out


def test_an_index_of_many_texts_resumes_after_a_kill(isosent_, table, texts, monkeypatch):
    monkeypatch.setattr("isosent.jobs.shards.SHARD_SIZE", 50)

    def killed(*args, **kwargs):
        raise InputError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Index, "create", killed)
        assert isosent_("index", table, "-o", "many").code == 2
    assert len(np.load("many.shards/part-00000.npy")) == 60
    finished = isosent_("index", table, "-o", "many")
    assert "nothing is left to encode" in finished.err
    assert not Path("many.shards").exists()
    assert hits(isosent_("search", "many", texts[7], "-k", 1, "--json")) == [["r7"]]


def test_a_search_says_that_the_codebooks_no_longer_fit(isosent_, tmp_path):
    folder, rows = tmp_path / "index", np.random.default_rng(0).standard_normal((1100, 32))
    np.save(tmp_path / "query.npy", rows[:2])
    Index.create(vectors=rows, store="product", folder=folder)
    state = read_state(folder)
    for refitted, n_said in ((0.62, 0), (0.7, 1)):
        write_state(folder, replace(state, recall=replace(state.recall, codebooks=CodebookFit(0.6, refitted))))
        found = isosent_("search", str(folder), str(tmp_path / "query.npy"), "--json")
        assert found.err.count("codebooks") == n_said
        assert hits(found)[0][0] == 0


def test_vectors_become_an_index_with_texts_and_ids_beside_them(isosent_, table, texts):
    assert isosent_("encode", table, "--column", "text", "-o", "vectors.parquet").code == 0
    assert isosent_("index", "vectors.parquet", "-m", "wordllama", "-o", "with_texts").code == 0
    assert hits(isosent_("search", "with_texts", texts[5], "-k", 1, "--json")) == [["r5"]]
    assert isosent_("encode", table, "--column", "text", "-o", "vectors.npy").code == 0
    assert isosent_("index", "vectors.npy", "--texts", table, "-m", "wordllama", "-o", "beside").code == 0
    assert hits(isosent_("search", "beside", texts[5], "-k", 1, "--json")) == [["r5"]]
    assert isosent_("index", "vectors.npy", "-o", "bare").code == 0
    finished = isosent_("search", "bare", "a text")
    assert finished.code == 2
    assert "has no model of texts" in finished.err


def test_ids_that_begin_with_zeros_stay_texts(isosent_, table, tmp_path):
    (tmp_path / "codes.csv").write_text("id,text,price\n007,a cat,1\n7,a dog,2.5\n")
    assert isosent_("index", "codes.csv", "-o", "codes").code == 0
    assert hits(isosent_("search", "codes", "a cat", "-k", 1, "--where", "price = 1", "--json")) == [["007"]]
    assert "1 of 1" in isosent_("index", "remove", "codes", "007").out


def test_types_of_a_parquet_table_are_kept(isosent_, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {"text": texts[:30], "price": np.linspace(0, 1, 30), "sold": [row % 2 == 0 for row in range(30)]}
    pq.write_table(pa.table(rows), "rows.parquet")
    assert isosent_("index", "rows.parquet", "-o", "index").code == 0
    [found] = hits(isosent_("search", "index", "x", "-k", 30, "--where", "price > 0.5 and sold = true", "--json"))
    assert sorted(found) == list(range(16, 30, 2))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search", "index", ""], ["empty"]),
        (["search", "index"], ["name queries, or rows with --like"]),
        (["search", "index", "x", "--like", "r1"], ["both"]),
        (["search", "index", "x", "-k", "0"], ["0"]),
        (["search", "index", "x", "--where", "colour = 1"], ["colour", "lang"]),
        (["search", "index", "x", "--where", "year ="], ["year ="]),
        (["search", "index", "--like", "nobody"], ["nobody"]),
        (["search", "none", "x"], ["none"]),
        (["index", "rows.csv", "-o", "rows.csv"], ["rows.csv"]),
        (["index", "none.csv", "-o", "new"], ["none.csv"]),
        (["index", "rows.csv", "-o", "new", "--column", "title"], ["title"]),
        (["index", "rows.csv", "-o", "new", "--id-column", "lang"], ["'de'"]),
        (["index", "rows.csv", "-o", "new", "--kind", "hnsw", "--store", "binary"], ["hnsw", "binary"]),
        (["index", "rows.csv", "-o", "new", "--budget-mb", "0.001"], ["0.001"]),
        (["index", "rows.csv", "-o", "new", "--texts", "rows.csv"], ["--texts"]),
        (["index", "add", "index", "none.csv"], ["none.csv"]),
        (["index", "remove", "none", "1"], ["none"]),
        (["index", "remov", "index"], ["remov", "remove"]),
    ],
)
def test_bad_input_is_one_sentence(isosent_, refuses, made, arguments, words):
    refuses(isosent_(*arguments), *words)


def test_lists_of_numbers_beside_texts_are_vectors_only_by_their_name(isosent_, tmp_path, monkeypatch, wordllama):
    monkeypatch.chdir(tmp_path)
    texts = ["a horse", "a dog", "the stock market"]
    for name, rows in (("pos", [[0.5, 1.5]] * 3), ("embedding", wordllama.encoder.encode(texts[::-1]).tolist())):
        pq.write_table(pa.table({"text": texts, name: rows}), "rows.parquet")
        assert isosent_("index", "rows.parquet", "-m", "wordllama", "-o", "index").code == 0
        nearest = texts.index("a horse") if name == "pos" else 2
        assert hits(isosent_("search", "index", "a horse", "-k", 1, "--json")) == [[nearest]]


@pytest.mark.parametrize("command", [("index",), ("index", "create")])
@pytest.mark.parametrize("option", [("-m", "wordllama"), ("-o", "index"), ("--kind", "flat")])
def test_an_option_that_is_given_twice_is_refused(isosent_, refuses, tmp_path, monkeypatch, command, option):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a horse\na dog\n")
    for arguments in (["a.txt", *option, *option], [*option, *option, "a.txt"]):
        refuses(isosent_(*command, *arguments, *(() if "-o" in option else ("-o", "index"))), "2 times", option[1])
    assert not (tmp_path / "index").exists()


def test_rows_that_others_add_meanwhile_are_not_counted(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a horse\na dog\n")
    assert isosent_("index", "a.txt", "-o", "index").code == 0
    begin = Index._writing

    def after_another(self):
        monkeypatch.setattr(Index, "_writing", begin)
        Index.open("index").add(["a goat", "a cow", "a hen"])
        return begin(self)

    monkeypatch.setattr(Index, "_writing", after_another)
    assert "2 rows added, 0 replaced; 7 now" in isosent_("index", "add", "index", "a.txt").out


def test_files_are_added_with_the_types_of_the_index(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,text,code\na1,a horse,x\n2,a dog,1.50\n")
    (tmp_path / "b.csv").write_text("id,text,code\n17,a goat,1.10\n2,a cow,2.50\n")
    assert isosent_("index", "a.csv", "-o", "index").code == 0
    assert "2 rows added, 1 replaced; 3 now" in isosent_("index", "add", "index", "b.csv").out
    assert hits(isosent_("search", "index", "a goat", "--where", 'code = "1.10"', "--json")) == [["17"]]
    conditions = ("--where", 'code > "1"', "--where", 'code < "2"')
    assert hits(isosent_("search", "index", "a goat", *conditions, "--json")) == [["17"]]
    assert "index holds an index, which is replaced" in isosent_("index", "b.csv", "-o", "index").err
    assert "which is replaced" in isosent_("index", "nowhere.csv", "-o", "index").err  # before any work
    assert len(Index.open("index")) == 2


def test_an_unknown_id_is_named_without_a_python_method(isosent_, made):
    finished = isosent_("search", made, "--like", "nobody")
    assert finished.code != 0
    assert "nobody" in finished.err
    assert "more_like" not in finished.err


def test_vectors_without_texts_are_announced(isosent_, table, tmp_path):
    (tmp_path / "lines.txt").write_text("a cat\na dog\nthe stock market\n")
    np.save(tmp_path / "more.npy", np.eye(2, 256, dtype=np.float32))
    assert isosent_("index", "lines.txt", "-o", "untold").code == 0
    finished = isosent_("index", "add", "untold", "more.npy")
    assert finished.code == 0
    assert "no texts" in finished.err


def test_a_table_without_rows_is_refused(isosent_, table, tmp_path):
    (tmp_path / "none.csv").write_text("text,lang\n")
    finished = isosent_("index", "none.csv", "-o", "none")
    assert finished.code != 0
    assert "no texts" in finished.err
    assert not (tmp_path / "none").exists()


def test_verify_says_whether_the_model_is_the_one_that_made_the_index(isosent_, made, refuses):
    finished = isosent_("index", "verify", made)
    assert finished.code == 0, finished.err
    assert "unchanged" in finished.out
    found = json.loads(isosent_("index", "verify", made, "--json").out)
    assert not found["has_changed"]
    assert found["lowest_cosine"] > 0.999
    assert (found["kept_neighbors"], found["n_rows"]) == (1, 8)
    [path] = Path(made, "model").glob("canary-*")
    replace_part(Path(made, "model"), "canary", {"documents": np.roll(load_file(path)["documents"], 1, axis=1)})
    refuses(isosent_("index", "verify", made), "has changed", "lowest cosine", "100% of the ten nearest")
    finished = isosent_("search", made, "a query")
    assert finished.code == 0
    assert finished.err.count("warning:") == 1
    assert "index verify" in finished.err


def test_verify_leaves_out_rows_without_a_text(isosent_, table):
    rng = np.random.default_rng(0)
    Path("few.txt").write_text("a cat sleeps\na dog barks\nshares rose today\n")
    np.save("u.npy", rng.normal(size=(5, 256)).astype(np.float32))
    isosent_("index", "few.txt", "-o", "few")
    assert isosent_("index", "add", "few", "u.npy").code == 0
    found = json.loads(isosent_("index", "verify", "few", "--json").out)
    assert (found["n_rows"], found["has_changed"]) == (3, False)


def test_ids_that_do_not_fit_an_index_are_told_apart(isosent_, refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"named": "id,text\na,a cat\nb,a dog\n", "plain": "text\na cow\n", "twice": "id,text\na,1\na,2\n"}
    for name, table in (files | {"blank": "id,text\na,1\n,2\n", "numbers": "id,text\n1,a cat\n"}).items():
        (tmp_path / f"{name}.csv").write_text(table)
    (tmp_path / "numbers.jsonl").write_text('{"id": 1, "text": "a cat"}\n')
    for name in ("named", "plain"):
        assert isosent_("index", f"{name}.csv", "-o", name).code == 0
    refuses(isosent_("index", "add", "named", "plain.csv"), "ids of named are strings", "missing", "--id-column")
    refuses(isosent_("index", "add", "named", "numbers.jsonl"), "ids of named are strings", "whole numbers")
    refuses(isosent_("index", "add", "plain", "named.csv"), "plain was made without ids", "column id")
    refuses(isosent_("index", "add", "named", "twice.csv"), "'a'", "Keep one row")
    refuses(isosent_("index", "add", "named", "blank.csv"), "row 1, counted from 0")


def test_a_model_that_has_moved_is_named_and_another_is_refused(isosent_, refuses, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = sorted({word.lower() for text in texts for word in text.split()})
    for name in ("glove.txt", "other.txt"):
        lines = (f"{word} {' '.join(map(str, rng.normal(size=8)))}" for word in words)
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "texts.txt").write_text("\n".join(texts), "utf-8")
    assert isosent_("fit", "texts.txt", "-m", "words:glove.txt", "--transform", "whitening", "-o", "model").code == 0
    assert isosent_("index", "texts.txt", "-m", "model", "-o", "index").code == 0
    (tmp_path / "glove.txt").rename("new.txt")
    query = ("search", "index", texts[3], "-k", 1, "--json")
    missing = isosent_(*query)
    assert "isosent search index QUERY -m REFERENCE" in missing.err
    assert hits(isosent_(*query, "-m", "words:new.txt")) == [[3]]
    refuses(isosent_(*query, "-m", "words:other.txt"), "cannot be compared")


def test_an_index_that_does_not_know_its_space_warns_of_vectors_of_a_named_model(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    np.save("vectors.npy", vectors)
    assert isosent_("index", "vectors.npy", "-o", "index").code == 0
    assert isosent_("fit", "vectors.npy", "--transform", "whitening", "-o", "other").code == 0
    assert isosent_("transform", "vectors.npy", "-m", "other", "-o", "of_other.npy").code == 0
    for command in (("search", "index", "of_other.npy"), ("index", "add", "index", "of_other.npy")):
        assert "of_other.npy holds vectors of the space vectors -> whitening" in isosent_(*command).err
    assert "holds vectors of" not in isosent_("search", "index", "vectors.npy").err


def test_what_is_no_index_is_named_with_what_to_do(isosent_, refuses, table, texts, wordllama):
    np.save("v.npy", wordllama.encode(texts))
    assert isosent_("fit", "v.npy", "-o", "model").code == 0
    refuses(isosent_("search", "model", "x"), "model is not an index: it is a model", "isosent index TEXTS -m model -o")
    assert isosent_("encode", table, "-o", "shards").code == 0
    refuses(isosent_("search", "shards", "x"), "a folder of vectors", "isosent index shards -o")
    refuses(isosent_("search", "v.npy", "x"), "it is a file", "isosent index v.npy -o")
    refuses(isosent_("search", "nowhere", "x"), "there is no such folder", "isosent index TEXTS -o")
    of_texts = isosent_("index", table, "-m", "model", "-o", "index")
    refuses(of_texts, "cannot encode texts", "isosent index VECTORS --texts TEXTS -m")


def test_vectors_whose_model_is_only_named_find_no_vectors_of_the_model(isosent_, refuses, table, texts, wordllama):
    np.save("v.npy", wordllama.encode(texts))
    assert "-m wordllama in place of --space" in isosent_("index", "v.npy", "--space", "wordllama", "-o", "named").err
    Path("q.txt").write_text("a horse\n")
    assert isosent_("encode", "q.txt", "-o", "q.npy").code == 0
    refuses(isosent_("search", "named", "q.npy"), "although their names are equal", "--model wordllama")
    refuses(isosent_("search", "named", "a horse", "-m", "wordllama"), "only the name", "--model wordllama")


def _batch(name, ids, rows):
    lines = (json.dumps({"custom_id": one, "embedding": row.tolist()}) for one, row in zip(ids, rows, strict=True))
    Path(name).write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("ids", "advice"),
    [
        (None, "columns id and text"),
        ([str(row) for row in range(60)], "Write the ids alike"),
        ([f"{'request-' * (row % 2)}{row}" for row in range(60)], "60 ids are in one of them alone"),
    ],
)
def test_ids_of_two_forms_are_refused_with_what_to_write(isosent_, refuses, tmp_path, monkeypatch, ids, advice, texts):
    monkeypatch.chdir(tmp_path)
    order = np.random.default_rng(0).permutation(60)
    _batch("batch.jsonl", [f"request-{row}" for row in order], np.eye(60)[order])
    lines = texts[:60] if ids is None else ["id,text", *(f"{one},text {one}" for one in ids)]
    Path("texts.txt" if ids is None else "texts.csv").write_text("\n".join(lines))
    name = "texts.txt" if ids is None else "texts.csv"
    refuses(isosent_("index", "batch.jsonl", "--texts", name, "-o", "index"), advice)


def test_the_index_is_named_before_the_query(isosent_, refuses, made):
    refuses(isosent_("search", "query", "index"), "isosent search index query")


def test_many_texts_are_read_from_the_only_column_of_texts(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("isosent.jobs.shards.SHARD_SIZE", 5)
    rows = [
        f"the {name} is here,{2000 + number}" for number, name in enumerate(["cat", "dog", "car", "sea", "sun", "hat"])
    ]
    (tmp_path / "big.csv").write_text("title,year\n" + "\n".join(rows) + "\n")
    (tmp_path / "other.csv").write_text("name,year\na river,1999\n")
    for options in ([], ["--workers", 1], ["other.csv"]):  # the last has its texts in another column
        finished = isosent_("index", "big.csv", *options, "-o", "big")
        assert finished.code == 0, finished.err
        assert hits(isosent_("search", "big", "the sea is here", "-k", 1, "--json")) == [[3]]


def test_vectors_of_an_unknown_model_are_to_be_fitted_again_with_it(isosent_, table, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = isosent.load("wordllama").encode(texts)
    np.save("bare.npy", vectors)
    Path("texts.txt").write_text("\n".join(texts), "utf-8")
    assert isosent_("fit", "bare.npy", "--transform", "mean_centering", "-o", "small").code == 0
    finished = isosent_("index", "bare.npy", "-m", "small", "--texts", "texts.txt", "-o", "of_small")
    assert finished.code == 0, finished.err
    fitted = "small?encoder=wordllama"
    for asked, model in (
        (["search", "of_small", "a text"], "MODEL"),
        (["search", "of_small", "a text", "-m", "wordllama"], "wordllama"),
        (["index", "texts.txt", "-m", fitted, "-o", "of_texts"], "wordllama"),
    ):
        finished = isosent_(*asked)
        assert finished.code == 2
        assert f"isosent fit VECTORS -m {model}" in finished.err
    assert "?encoder=REFERENCE" not in isosent_("search", "of_small", "a text", "-m", fitted).err
    assert isosent_("fit", "bare.npy", "-m", "wordllama", "--transform", "mean_centering", "-o", "known").code == 0
    assert isosent_("index", "bare.npy", "-m", "known", "--texts", "texts.txt", "-o", "of_known").code == 0
    assert hits(isosent_("search", "of_known", texts[5], "-k", 1, "--json")) == [[5]]


def test_vectors_of_other_texts_are_not_resumed(isosent_, table, tmp_path, monkeypatch):
    monkeypatch.setattr("isosent.jobs.shards.SHARD_SIZE", 5)
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(f"{name}.txt").write_text("".join(f"{name} {number}\n" for number in range(9)))

    def killed(*args, **kwargs):
        raise InputError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Index, "create", killed)
        assert isosent_("index", "one.txt", "-o", "new").code == 2
    finished = isosent_("index", "two.txt", "-o", "new")
    assert finished.code == 2
    assert "Remove new.shards" in finished.err
