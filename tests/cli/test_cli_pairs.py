"""`isosent fit --pairs`: texts and stored vectors; what is refused writes nothing."""

import csv
import json
import re

import numpy as np
import pytest

import isosent
from isosent.cli.printing import pairs_table
from isosent.io.vectors import open_vectors
from isosent.jobs.fit import run_fit
from isosent.jobs.fit_request import FitRequest
from isosent.numeric.similarity import unit_rows
from isosent.search import Index

WORD = re.compile(r"\w+")


def write_pairs(path, rows, columns=("query", "document")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A model of few dimensions, in which the vectors of words that are spelled backwards are rotated."""
    names = sorted({word for text in isosent.demo_texts() for word in WORD.findall(text)})
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(names), 24))
    rotated = vectors @ np.linalg.qr(rng.normal(size=(24, 24)))[0]
    table = {word[::-1]: row for word, row in zip(names, rotated, strict=True)} | dict(zip(names, vectors, strict=True))
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("".join(f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in table.items()), "utf-8")
    return f"words:{path}?lowercase=false"


@pytest.fixture(scope="module")
def backwards(tmp_path_factory):
    """Demo texts, and the same with every word spelled backwards, which only pairs can teach."""
    texts = list(dict.fromkeys(isosent.demo_texts()))[:240]
    rows = [(WORD.sub(lambda word: word[0][::-1], text), text) for text in texts]
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    write_pairs(path, rows)
    return path, rows


@pytest.mark.parametrize("queries", [(), ("--queries",)])
def test_fit_from_pairs_says_what_held_out_pairs_gain_and_info_names_it(
    isosent_, backwards, words, tmp_path, monkeypatch, queries
):
    monkeypatch.chdir(tmp_path)
    path, rows = backwards
    finished = isosent_("fit", "--pairs", path, *queries, "-m", words, "-o", "m")
    assert finished.code == 0, finished.err
    assert "unchanged" in finished.out
    assert "held-out queries" in finished.out
    assert "for among the second texts." in " ".join(finished.out.split())
    [fit] = json.loads(isosent_("info", "m", "--json").out)["fits"]
    in_memory = isosent.load(words).fitted_on_pairs(*zip(*rows, strict=True), queries_only=bool(queries))
    assert fit["transform"] == in_memory.fits[0].transform
    assert fit["choice"]["tested"][0]["mrr"] == pytest.approx(in_memory.fits[0].choice["tested"][0]["mrr"])
    saved = "query ridge" if queries else "pair whitening"
    assert f" + {saved}, 24 dimensions, fitted on" in finished.out.splitlines()[-1]
    model, query = isosent.load("m"), rows[3][0]
    np.testing.assert_allclose(model.encode_query(query), in_memory.encode_query(query), rtol=1e-5, atol=1e-6)
    assert "held out:" in isosent_("info", "m").out


def test_vectors_give_the_same_map(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    shared = random.normal(size=(300, 4))
    x, y = (np.hstack([shared, 3 * random.normal(size=(300, 4))]).astype(np.float32) for _ in range(2))
    np.save("queries.npy", x)
    np.save("documents.npy", y)
    finished = isosent_("fit", "documents.npy", "--pairs", "queries.npy", "--details", "-o", "m", "--space", "some-api")
    assert finished.code == 0, finished.err
    assert "pair whitening" in finished.out
    assert "on folds" in finished.out
    model = isosent.load("m")
    in_memory = model.fits[-1]
    assert (in_memory.transform, in_memory.n_texts) == ("pair_whitening", 300)
    isosent_("transform", "documents.npy", "-m", "m", "-o", "mapped.npy")
    np.testing.assert_allclose(np.load("mapped.npy"), model.transform(y), rtol=1e-5, atol=1e-5)


def test_pairs_that_teach_nothing_leave_the_model_unchanged(isosent_, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = list(dict.fromkeys(isosent.demo_texts()))[:240]
    write_pairs(tmp_path / "p.csv", [(text, f"{text} a man") for text in texts])  # each is found without a map
    finished = isosent_("fit", "--pairs", "p.csv", "-m", words, "-o", "m")
    assert finished.code == 0
    assert "Keep these vectors unchanged." in finished.out
    assert finished.out.splitlines()[-1].endswith(", 24 dimensions unchanged")
    assert isosent.load("m").linear_map is None


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (("query", "reply"), [("a", "b")] * 40, "--column sentence1,sentence2"),
        (("query", "document"), [("a", "b"), ("c", " ")], "line 3: document is empty"),
        (("query", "document"), [("a", f"text {row}") for row in range(40)], "1 groups"),
        (("query", "document"), [], "no pairs"),
        (("sentence1", "sentence2", "score"), [("a", "b", 5), ("c", "d", 0)], "has the column score"),
    ],
)
def test_bad_pairs_are_one_sentence_and_nothing_is_written(isosent_, tmp_path, columns, rows, message):
    write_pairs(tmp_path / "p.csv", rows, columns)
    finished = isosent_("fit", "--pairs", tmp_path / "p.csv", "-o", tmp_path / "m")
    assert finished.code == 2
    assert message in finished.err
    assert len(finished.err.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_options_that_do_not_go_together_are_refused(isosent_, backwards, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = backwards
    np.save("a.npy", np.ones((40, 4), np.float32))
    np.save("nan.npy", np.full((40, 4), np.nan, np.float32))
    np.save("b.npy", np.ones((39, 4), np.float32))
    for arguments, message in (
        (("--pairs", path, "--erase", "lang"), "--erase"),
        (("--pairs", path, "--dims", 64), "with --dims. Leave"),
        (("--pairs", path, "--queries", "q.txt"), "a file of --queries"),
        (("--pairs", path, "--workers", 2), "--workers"),
        ((path, "--pairs", path), "Leave it out"),
        (("--pairs", "a.npy"), "isosent fit DOCUMENTS --pairs a.npy"),
        (("b.npy", "--pairs", "a.npy"), "39"),
        (("a.npy", "--pairs", "nan.npy"), "row 0"),
        ((path, "--queries"), "--queries names no file"),
    ):
        finished = isosent_("fit", *arguments, "-o", "m")
        assert finished.code == 2, arguments
        assert message in finished.err
    assert "INPUTS" in isosent_("fit", "-o", "m").err
    assert not (tmp_path / "m").exists()


def test_columns_can_be_named_and_a_column_of_sources_makes_the_folds(
    isosent_, backwards, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _, rows = backwards
    table = [(first, second, ("news", "forum", "wiki")[number % 3]) for number, (first, second) in enumerate(rows)]
    write_pairs(tmp_path / "p.csv", table, ("odd", "plain", "source"))
    finished = isosent_("fit", "--pairs", "p.csv", "--column", "odd,plain", "-m", words, "-o", "m")
    assert finished.code == 0, finished.err
    kinds = [row[2] for row in table]
    in_memory = isosent.load(words).fitted_on_pairs(*zip(*rows, strict=True), kinds=kinds)
    folds = isosent.load("m").fits[0].choice["folds"]
    assert [each["mrr"] for each in folds] == pytest.approx(
        [each["mrr"] for each in in_memory.fits[0].choice["folds"]], abs=1e-3
    )


def pool_of(rows, lang="back"):
    return [(text, each) for row in rows for text, each in zip(row, (lang, "en"), strict=True)]


@pytest.fixture(scope="module")
def mapped(backwards, words, tmp_path_factory):
    """The folder of a model with a map of texts that are spelled backwards."""
    folder, (_, rows) = tmp_path_factory.mktemp("groups"), backwards
    columns = ("query", "document", "query_lang", "document_lang")
    write_pairs(folder / "pairs.csv", [(*row, "back", "en") for row in rows[:240]], columns)
    write_pairs(folder / "pool.csv", pool_of(rows[:40]), ("text", "lang"))
    run_fit(FitRequest(inputs=(), pairs=str(folder / "pairs.csv"), model=words, output=folder / "m"))
    return folder


def test_an_index_and_files_take_the_group_from_the_column_that_the_pairs_had(
    isosent_, mapped, backwards, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    described = isosent_("info", mapped / "m").out
    assert "texts of both sides" in pairs_table(isosent.load(mapped / "m").fits[-1].choice).caption
    assert "back, mapped to en" in described
    assert isosent_("index", mapped / "pool.csv", "-m", mapped / "m", "-o", "i").code == 0
    write_pairs(tmp_path / "new.csv", pool_of(backwards[1][40:50]), ("text", "lang"))
    assert isosent_("index", "add", "i", "new.csv").code == 0
    model, texts = isosent.load(mapped / "m"), pool_of(backwards[1][:50])
    expected = model.encode([text for text, _ in texts], group=[lang for _, lang in texts])
    index = Index.open("i")
    vectors = np.concatenate([batch.column("vector").flatten().to_numpy() for batch in index.batches()])
    np.testing.assert_allclose(vectors.reshape(100, -1), unit_rows(expected), atol=1e-6)
    query = ("search", "i", texts[6][0], "-k", 1, "--json")
    scores = {}
    for group in ("en", "back"):
        [result] = json.loads(isosent_(*query, "--group", group, "--explain").out)["results"]
        scores[group] = result["hits"][0]["score"]
    assert scores["back"] == pytest.approx(1, abs=1e-5)
    assert scores["en"] < 0.99
    without = isosent_(*query)
    assert json.loads(without.out)["results"][0]["hits"][0]["score"] == scores["en"]
    assert "without --group count as en, not back" in without.err
    for command in ("similarity", "explain"):
        assert "group='back'" in isosent_(command, *texts[0], "-m", mapped / "m").err
    assert isosent_("index", "verify", "i").code == 0
    assert isosent_("index", "compact", "i").code == 0
    for name in ("v.npy", "v.parquet", "v/"):
        assert isosent_("encode", mapped / "pool.csv", "--column", "text", "-m", mapped / "m", "-o", name).code == 0
        np.testing.assert_array_equal(np.concatenate([*open_vectors(name.rstrip("/")).blocks()]), expected[:80])
    isosent_("encode", mapped / "pool.csv", "--column", "text", "-m", words, "-o", "raw.parquet")
    assert isosent_("transform", "raw.parquet", "-m", mapped / "m", "-o", "t.parquet").code == 0
    np.testing.assert_array_equal(np.concatenate([*open_vectors("t.parquet").blocks()]), expected[:80])
    (tmp_path / "lines.txt").write_text("a man\n")
    assert "counts as en" in isosent_("encode", "lines.txt", "-m", mapped / "m", "-o", "l.npy").err
    for command in (("cluster",), ("duplicates",), ("map", "-o", "m.html")):
        for rows in (mapped / "pool.csv", "raw.parquet"):
            assert "count as en, not back" in isosent_(*command, rows, "-m", mapped / "m", "--column", "text").err
        assert "count as en" not in isosent_(*command, "v.parquet").err


def test_a_missing_column_and_an_unknown_group_are_refused(isosent_, refuses, mapped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ("-m", mapped / "m")
    for name, lang in (("french", "fr"), ("blank", "")):
        write_pairs(tmp_path / f"{name}.csv", [("a", "en"), ("b", lang)], ("text", "lang"))
    write_pairs(tmp_path / "none.csv", [("a", "b")], ("text", "title"))
    isosent_("index", mapped / "pool.csv", *model, "-o", "i")
    for command, named in (
        (("index", "french.csv", *model, "-o", "j"), ("fr", "row 1", "en, back")),
        (("index", "blank.csv", *model, "-o", "j"), ("row 1",)),
        (("index", "none.csv", "--column", "text", *model, "-o", "j"), ("column lang", "title")),
        (("index", "add", "i", "none.csv", "--column", "text"), ("column lang",)),
        (("index", "add", "i", "french.csv"), ("fr",)),
        (("encode", "none.csv", "--column", "text", *model, "-o", "v.npy"), ("no column lang",)),
        (("search", "i", "a", "--group", "fr"), ("fr", "en, back")),
        (("search", "i", "--like", "1", "--group", "back"), ("--group",)),
        (("search", "i", "--like", "1", "--group", ""), ("--group",)),
        (("export", mapped / "m", "--to", "numpy", "-o", "map.safetensors"), ("lang",)),
        (("fit", mapped / "pool.csv", "--column", "text", *model, "-o", "n"), ("maps of groups",)),
    ):
        refuses(isosent_(*command), *named)
    assert {path.name for path in tmp_path.iterdir()} == {"french.csv", "blank.csv", "none.csv", "i"}


@pytest.mark.parametrize(
    ("languages", "options", "message"),
    [
        (("en", "en"), (), "fewer than two"),
        (("en",), (), "no column document_lang"),
        (("back", "en"), ("--queries",), "only queries"),
    ],
)
def test_columns_of_groups_that_have_no_use_are_ignored(
    isosent_, backwards, words, tmp_path, languages, options, message
):
    columns = ("query", "document", "query_lang", "document_lang")[: 2 + len(languages)]
    write_pairs(tmp_path / "p.csv", [(*row, *languages) for row in backwards[1][:200]], columns)
    finished = isosent_("fit", "--pairs", tmp_path / "p.csv", *options, "-m", words, "-o", tmp_path / "m")
    assert finished.code == 0
    assert message in finished.err
    assert isosent.load(tmp_path / "m").groups is None
