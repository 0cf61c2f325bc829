"""`isosent migrate`: what to do, the map that is saved, what is refused; `isosent compare` without labels."""

import csv
import json

import numpy as np
import pytest

import isosent
from isosent import Quantization
from isosent.errors import InputError
from isosent.evaluation.migration import WAYS, migrate
from isosent.evaluation.unlabelled import (
    Difference,
    UnlabelledComparison,
    VectorComparison,
    compare_models,
    explained_by_words,
)
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import unit_rows
from isosent.persistence import StoredSize
from isosent.postprocessing import Postprocessing
from isosent.search import Index
from isosent.transforms.maps import GroupMaps, MapStep


@pytest.fixture(scope="module")
def texts():
    """Texts whose halves share most words."""
    words = [text.split() for text in isosent.demo_texts()]
    return [" ".join([*each[:-2], *each[2:]]) for each in words]


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("migrate") / "texts.txt"
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def short(texts, tmp_path_factory):
    """A saved model that is worse: the first four principal components of wordllama."""
    folder = tmp_path_factory.mktemp("migrate") / "short"
    model = isosent.load("wordllama").fitted(texts, "principal_components", settings={"n_components": 4})
    model.save(folder)
    return folder


def skewed(model):
    """The model behind an invertible map that drowns most of its directions."""
    weight = np.random.default_rng(0).normal(size=(model.dim, model.dim)) @ np.diag(0.95 ** np.arange(model.dim))
    return isosent.wrap(lambda listed: model.encode(list(listed)) @ weight)


def test_a_worse_model_is_no_reason_to_move(isosent_, corpus, short):
    finished = isosent_("migrate", "wordllama", short, corpus)
    assert finished.code == 0
    assert all(way in finished.out for way in WAYS)
    assert "Stay with the old model. On these texts the new one is worse" in finished.out


def test_a_map_that_is_not_recommended_is_said_to_be_saved_all_the_same(isosent_, texts, short, tmp_path):
    table = tmp_path / "texts.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "body"), *((f"t{row}", text) for row, text in enumerate(texts))])
    finished = isosent_("migrate", "wordllama", short, table, "--column", "body", "-o", tmp_path / "map")
    assert "Stay with the old model" in finished.out
    assert "not because it is recommended" in finished.err
    assert "among ten" in finished.out
    assert isosent.load(tmp_path / "map").fits[-1].n_texts <= 384  # four fifths of 480 texts


def test_what_a_linear_map_can_bring_back_is_mapped(texts, wordllama):
    with pytest.warns(isosent.IsosentWarning, match="cannot be saved"):
        old = skewed(wordllama)
    result = migrate(old, wordllama, texts)
    assert result.report["advice"] == "map"
    rows = result.report["rows"]
    assert rows["documents mapped"]["low"] > 0
    assert rows["embedded again"]["score"] >= rows["documents mapped"]["score"]
    assert not result.model.linear_map.bias.any()


def test_what_the_old_model_has_lost_is_embedded_again_and_the_map_says_what_it_is(isosent_, corpus, short, tmp_path):
    finished = isosent_("migrate", short, "wordllama", corpus, "-o", tmp_path / "map", "--json")
    report = json.loads(finished.out)
    assert report["advice"] == "embed again"
    assert 0 < report["r2"] < 0.5
    assert report["n_fitted"] + report["n_held_out"] <= 480
    [record] = isosent.load(tmp_path / "map").fits
    old, new = isosent.load(short), isosent.load("wordllama")
    assert record.parameters["fingerprint"] == new.fingerprint
    vectors = tmp_path / "old.npy"
    isosent_("encode", corpus, "-m", short, "-o", vectors)
    assert isosent_("transform", vectors, "-m", tmp_path / "map", "-o", tmp_path / "new.npy").code == 0
    assert np.load(tmp_path / "new.npy").shape == (480, new.dim)
    assert isosent.load(tmp_path / "map").encoder.fingerprint == old.fingerprint


def test_vectors_in_files_are_compared_by_word_overlap(isosent_, corpus, texts, wordllama, tmp_path):
    vectors = wordllama.encode(texts)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(256, 256)))[0]
    np.save(tmp_path / "old.npy", vectors)
    np.save(tmp_path / "new.npy", vectors @ rotation)
    finished = isosent_("migrate", tmp_path / "old.npy", tmp_path / "new.npy", corpus, "-o", tmp_path / "map", "--json")
    report = json.loads(finished.out)
    assert "among ten" not in isosent_("migrate", tmp_path / "old.npy", tmp_path / "new.npy", corpus).out
    assert report["advice"] == "stay"
    assert report["measure"] == "agreement of cosines with word overlap"
    assert report["rows"]["embedded again"]["gain"] == pytest.approx(0, abs=1e-9)
    mapped = isosent.load(tmp_path / "map").transform(vectors)
    cosines = np.einsum("ij,ij->i", unit_rows(mapped), unit_rows(vectors @ rotation))
    assert np.median(cosines) > 0.8


def test_vectors_of_other_texts_are_named(isosent_, corpus, texts, wordllama, tmp_path):
    vectors = wordllama.encode(texts)
    np.save(tmp_path / "old.npy", vectors)
    np.save(tmp_path / "new.npy", np.random.default_rng(0).permutation(vectors))
    report = json.loads(isosent_("migrate", tmp_path / "old.npy", tmp_path / "new.npy", corpus, "--json").out)
    assert report["advice"] == "cannot tell"
    assert "of NEW" in report["reason"]
    assert "of other texts" in report["reason"]


def test_ids_of_vectors_must_be_those_of_the_texts(isosent_, refuses, texts, tmp_path):
    table = tmp_path / "texts.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *enumerate(texts)])
    vectors = tmp_path / "vectors.parquet"
    assert isosent_("encode", table, "--column", "text", "-o", vectors).code == 0
    assert isosent_("migrate", vectors, "wordllama", table).code == 0
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *reversed(list(enumerate(texts)))])
    refuses(isosent_("migrate", vectors, "wordllama", table), "vectors.parquet", "ids", "order")


def test_queries_with_answers_are_searched_among_texts_that_no_map_has_seen(isosent_, corpus, texts, short, tmp_path):
    queries = tmp_path / "queries.tsv"
    parts = [(" ".join(text.split()[::2]), text) for text in texts[:60]]
    queries.write_text("query\ttext\n" + "".join(f"{query}\t{text}\n" for query, text in parts), "utf-8")
    report = json.loads(isosent_("migrate", "wordllama", short, corpus, "--queries", queries, "--json").out)
    assert report["n_held_out"] == 60
    assert report["n_fitted"] <= 0.8 * 420 + 1
    assert report["rows"]["old model"]["found"] > 0.9


def test_other_right_answers_of_a_query_do_not_compete(texts, wordllama, monkeypatch):
    asked = [" ".join(sorted(set(text.split()))) for text in texts[:40]]
    mirrored = [" ".join(query.split()[::-1]) for query in asked]  # the same vector: without a filter, a tie
    answers = [*zip(asked, asked, strict=True), *zip(asked, mirrored, strict=True)]
    unique, sorted_kinds = np.unique, set()  # of texts, it pads all to the longest
    monkeypatch.setattr(np, "unique", lambda a, **k: sorted_kinds.add(np.asarray(a).dtype.kind) or unique(a, **k))
    report = migrate(wordllama, wordllama, texts, answers=answers).report
    assert "U" not in sorted_kinds
    assert report["n_held_out"] == len(set(asked))
    assert report["rows"]["old model"]["score"] == 1


def test_an_index_is_the_old_model_with_its_texts_and_vectors(isosent_, refuses, texts, short, corpus, tmp_path):
    folder, model = tmp_path / "index", isosent.load(short)
    Index.create([*texts, ""], model, folder=folder)
    shown = json.loads(isosent_("migrate", folder, "wordllama", "-o", tmp_path / "map", "--json").out)
    expected = migrate(model, isosent.load("wordllama"), texts).report
    assert shown["advice"] == "embed again"
    assert shown["rows"]["old model"]["score"] == pytest.approx(expected["rows"]["old model"]["score"], abs=0.05)
    assert isosent_("index", "migrate", folder, "--map", tmp_path / "map").code == 0
    refuses(isosent_("migrate", folder, "wordllama"), "480 mapped rows", "index add")
    refuses(isosent_("migrate", folder, "wordllama", corpus), "is an index", "Leave out", corpus.name)
    refuses(isosent_("migrate", short, "wordllama"), "OLD NEW TEXTS")
    Index.create(vectors=model.encode(texts), folder=tmp_path / "bare")
    refuses(isosent_("migrate", tmp_path / "bare", "wordllama"), "holds no texts")


def test_an_index_of_stored_vectors_is_compared_by_word_overlap(isosent_, texts, wordllama, tmp_path):
    Index.create(texts, vectors=wordllama.encode(texts), folder=tmp_path / "index")
    report = json.loads(isosent_("migrate", tmp_path / "index", "wordllama", "--json").out)
    assert (report["advice"], report["measure"]) == ("stay", "agreement of cosines with word overlap")


def test_stored_texts_are_not_encoded_again_by_the_old_model(texts, wordllama):
    encoded = []
    with pytest.warns(isosent.IsosentWarning, match="cannot be saved"):
        old = isosent.wrap(lambda listed: encoded.extend(listed) or wordllama.encode(list(listed)))
    answers = [(" ".join(text.split()[::2]), text) for text in texts[:60]]
    for given in (None, answers):
        encoded.clear()
        report = migrate(old, wordllama, texts, answers=given, stored=wordllama.encode(texts)).report
        assert encoded
        assert not set(encoded) & set(texts)
        assert report["rows"]["embedded again"]["gain"] == pytest.approx(0, abs=1e-9)
    encoded.clear()
    migrate(old, wordllama.encode(texts), texts, stored=wordllama.encode(texts))
    assert not encoded


def test_halves_of_one_language_are_no_measure_of_several(isosent_, texts, wordllama, tmp_path):
    some = texts[:210]
    other = [" ".join(word[::-1] for word in text.split()) for text in some]
    pool, language = [*some, *other], ["en"] * len(some) + ["ne"] * len(other)
    erased = wordllama.fitted(pool, transform=None, erase={"language": language})
    assert "erased" in migrate(wordllama, erased, pool).report["caution"]
    (tmp_path / "pool.txt").write_text("\n".join(pool) + "\n")
    erased.save(tmp_path / "erased")
    assert "translations" in isosent_("migrate", "wordllama", tmp_path / "erased", tmp_path / "pool.txt").err
    assert "migrate A B" in isosent_("compare", tmp_path / "pool.txt", "-m", "wordllama", "-m", tmp_path / "erased").err
    assert compare_models({"a": wordllama, "b": wordllama.fitted(texts)}, texts).caution is None
    report = migrate(wordllama, erased, pool, answers=list(zip(texts[:50], other[:50], strict=True))).report
    assert report["caution"] is None
    assert migrate(wordllama, wordllama, texts).report["caution"] is None


@pytest.mark.parametrize(
    ("old", "extra", "words"),
    [
        ("three.npy", (), ("3 vectors of 480 texts",)),
        ("all.npy", ("--queries", "pairs.tsv"), ("encoded by both models",)),
        ("wordllama", ("--queries", "texts.txt"), ("texts.txt", "two columns", "a query, and the text that answers")),
        ("wordllama", ("--queries", "one.tsv"), ("one.tsv", "query", "a query, and the text that answers")),
        ("words.txt", (), ("migrate", "6 words or more")),
        ("nan.npy", (), ("NaN",)),
        ("few.txt", (), ("different texts are too few", "300")),
        ("other.tsv", (), ("2 columns", "title, body", "--column NAME")),
    ],
)
def test_what_cannot_be_compared_is_refused_and_nothing_is_written(
    isosent_, refuses, corpus, tmp_path, monkeypatch, old, extra, words
):
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(480, 8)).astype(np.float32)
    np.save("three.npy", vectors[:3])
    np.save("all.npy", vectors)
    vectors[7] = np.nan
    np.save("nan.npy", vectors)
    (tmp_path / "pairs.tsv").write_text("query\ttext\na\tb\n")
    (tmp_path / "texts.txt").write_text(corpus.read_text("utf-8"), "utf-8")
    (tmp_path / "one.tsv").write_text("query\na\n")
    (tmp_path / "words.txt").write_text(
        "".join(f"{text.split()[0]} {n}\n" for n, text in enumerate(isosent.demo_texts()))
    )
    (tmp_path / "few.txt").write_text("a\nb\n" * 200)
    (tmp_path / "other.tsv").write_text("title\tbody\na\tb\nc\td\n")
    listed, model = (old, "wordllama") if old in ("few.txt", "other.tsv", "words.txt") else ("texts.txt", old)
    finished = isosent_("migrate", model, "wordllama", listed, "-o", "map", *extra)
    refuses(finished, *words)
    assert "compare" not in finished.err
    assert not (tmp_path / "map").exists()


@pytest.fixture(scope="module")
def mapping(texts, short, wordllama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("migrate") / "map"
    migrate(isosent.load(short), wordllama, texts, reference="wordllama").model.save(folder)
    return folder


@pytest.mark.parametrize("store", ["float32", "int8"])
def test_rows_of_an_index_are_mapped_and_replaced_one_by_one(
    isosent_, texts, short, mapping, wordllama, tmp_path, store
):
    folder, model = tmp_path / "index", isosent.load(short)
    Index.create([*texts, ""], model, metadata={"year": [2000] * 481}, folder=folder, store=store)
    printed = isosent_("index", "migrate", folder, "--map", mapping).out
    assert "mapped to wordllama" in printed
    assert f"recommended: {isosent.load(mapping).fits[-1].choice['reason']}" in printed
    opened, mapped = Index.open(folder), isosent.load(mapping)
    assert opened.space.fingerprint == wordllama.fingerprint
    assert opened.recall.n_rows == 481
    expected = unit_rows(mapped.transform(unit_rows(model.encode(texts))))
    [batch] = opened.batches()
    vectors = np.stack(batch.column("vector").to_pylist()[:480])
    np.testing.assert_allclose(vectors, expected, atol=1e-5 if store == "float32" else 1e-2)
    assert opened.stats().n_mapped == 480  # the empty text has no vector
    assert opened.schema.names == ["id", "text", "year", "isosent_mapped"]
    again = isosent_("index", "migrate", folder, "--map", mapping).out
    assert all(words in again for words in ("before", "nothing was changed", "480 mapped rows"))
    opened.add(texts[:100], ids=list(range(100)))
    assert json.loads(isosent_("info", folder, "--json").out)["n_mapped"] == 380
    assert "380; replace them" in isosent_("info", folder).out
    assert opened.search(texts[7], k=1).ids == [[7]]
    assert opened.search(texts[7], k=500, where="isosent_mapped = true").n_hits == [380]
    opened.compact()
    assert opened.stats().n_mapped == 380


def test_mapped_and_compacted_rows_are_stored_as_they_were(texts, short, mapping, tmp_path):
    model = isosent.load(short)
    codes = Quantization.fit(unit_rows(model.encode(texts))).with_product(unit_rows(model.encode(texts)), 1)
    size = StoredSize("product", 1, 0.9, 0.9, 480, "the original vectors", oversampling=40)
    index = Index.create(texts, model.with_quantization(codes, size), folder=tmp_path / "index")
    before = index.stats().settings
    assert (before.store, before.code_bytes, before.oversampling >= 40) == ("product", 1, True)
    index.migrate(isosent.load(mapping), isosent.load("wordllama"))
    assert index.dim == 256
    for change in (index.stats, index.compact):
        change()
        after = index.stats().settings
        assert (after.store, after.code_bytes, after.oversampling >= 40) == ("product", 1, True)
    assert index.rows([3]).num_rows == 1


@pytest.mark.parametrize(
    ("kind", "other", "words"),
    [
        ("flat", "map", ("ordinary model", "isosent migrate OLD NEW")),
        ("flat", "space", ("the map belongs to", "wordllama")),
        ("hnsw", None, ("hnsw", "replace mapped rows")),
    ],
)
def test_what_cannot_be_mapped_stays_as_it_is(isosent_, refuses, texts, short, mapping, tmp_path, kind, other, words):
    folder = tmp_path / "index"
    model = isosent.load("wordllama" if other == "space" else short)
    before = Index.create(texts, model, folder=folder, kind=kind).stats()
    refuses(isosent_("index", "migrate", folder, "--map", short if other == "map" else mapping), *words)
    assert Index.open(folder).stats() == before


def test_vectors_without_a_name_are_named_as_the_refusal_says(
    isosent_, refuses, corpus, texts, short, wordllama, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    np.save("old.npy", old := unit_rows(isosent.load(short).encode(texts)))
    np.save("new.npy", wordllama.encode(texts))
    assert isosent_("index", "old.npy", "--space", "acme-1", "-o", "index").code == 0
    refuses(isosent_("migrate", "index", "new.npy"), "holds no texts", "isosent transform", "index/model")
    isosent_("migrate", "old.npy", "new.npy", corpus, "-o", "unnamed")
    refuses(
        isosent_("index", "migrate", "index", "--map", "unnamed"), "acme-1", "INDEX/model", "-o NAMED", "--space NAME"
    )
    for command in (
        "transform old.npy -m index/model -o old_named.npy",
        "fit new.npy --transform none --space acme-2 -o model",
        "transform new.npy -m model -o new_named.npy",
    ):
        assert isosent_(*command.split()).code == 0
    np.testing.assert_array_equal(np.load("old_named.npy"), old)
    assert isosent_("migrate", "old_named.npy", "new_named.npy", corpus, "-o", "map").code == 0
    assert isosent_("index", "migrate", "index", "--map", "map").code == 0
    assert Index.open("index").space.reference == "acme-2"


def test_models_are_compared_on_texts_without_labels(isosent_, corpus, short, tmp_path):
    report = json.loads(isosent_("compare", corpus, "-m", "wordllama", "-m", short, "--json").out)
    [pair] = report["pairs"]
    assert report["caution"] is None
    assert pair["verdict"] == "worse"
    assert pair["high"] < 0
    assert pair["overlap_high"] < 0
    r2 = {each["of"]: each["r2"] for each in report["contains"]}
    assert r2[str(short)] > 0.8 > 0.5 > r2["wordllama"]
    assert report["models"]["wordllama"]["better_than"] == [str(short)]
    assert report["models"][str(short)]["better_than"] == []
    assert report["models"][str(short)]["bytes"] == 16
    shown = isosent_("compare", corpus, "-m", "wordllama", "-m", short, "-o", tmp_path / "models.json").out
    assert "worse" in shown
    assert json.loads((tmp_path / "models.json").read_text())["pairs"] == report["pairs"]


def test_halves_that_have_nothing_in_common_are_named(isosent_, texts, short, tmp_path):
    words = sorted({word for text in texts for word in text.split()})
    rng = np.random.default_rng(0)
    (tmp_path / "random.txt").write_text("\n".join(" ".join(rng.choice(words, 8)) for _ in range(150)), "utf-8")
    models = ("-m", "wordllama", "-m", short)
    report = json.loads(isosent_("compare", tmp_path / "random.txt", *models, "--json").out)
    assert f"({np.mean(1 / np.arange(1, 151)):.3f})" in report["caution"]


def test_where_word_overlap_points_the_other_way_nobody_can_tell():
    by_halves = {"n_texts": 9, "score_a": 0.1, "score_b": 0.3, "difference": 0.2, "low": 0.1, "high": 0.3}
    for ends, verdict in (((0.1, 0.2), "better"), ((-0.1, 0.2), "cannot tell"), ((np.nan, np.nan), "cannot tell")):
        compared = UnlabelledComparison(**by_halves, overlap=np.mean(ends), overlap_low=ends[0], overlap_high=ends[1])
        assert compared.verdict == verdict


def test_a_model_that_works_more_by_words_is_not_better_for_it():
    ahead = {"n_texts": 9, "score_a": 0.1, "score_b": 0.3, "difference": 0.2, "low": 0.1, "high": 0.3}
    ahead |= {"overlap": 0.2, "overlap_low": 0.1, "overlap_high": 0.3}
    behind = {name: -value if name not in ("n_texts", "score_a", "score_b") else value for name, value in ahead.items()}
    behind |= {"low": -0.3, "high": -0.1, "overlap_low": -0.3, "overlap_high": -0.1}
    for words, verdicts in (
        ((0.5, 0.3), ("better", "cannot tell")),
        ((0.5, 0.51), ("better", "worse")),
        ((0.3, 0.5), ("cannot tell", "worse")),
        ((np.nan, np.nan), ("better", "worse")),
    ):
        for facts, verdict in zip((ahead, behind), verdicts, strict=True):
            assert UnlabelledComparison(**facts, words_a=words[0], words_b=words[1]).verdict == verdict


UP, DOWN, NOTHING = Difference(0.1, 0.05, 0.15), Difference(-0.1, -0.15, -0.05), Difference(0.0, 0.0, 0.0)
UNKNOWN = Difference(*(float("nan"),) * 3)


@pytest.mark.parametrize(
    ("overlap", "topics", "words", "verdict"),
    [
        (UP, UP, (0.5, 0.4), "better"),
        (UP, UP, (0.4, 0.5), "cannot tell"),  # it works by words
        (UP, UP, (0.5, 0.5), "cannot tell"),
        (UP, Difference(0.01, 0.005, 0.015), (0.5, 0.4), "cannot tell"),
        (UP, DOWN, (0.5, 0.4), "cannot tell"),
        (UP, UNKNOWN, (0.5, 0.4), "cannot tell"),
        (UP, UP, (np.nan, np.nan), "cannot tell"),
        (DOWN, DOWN, (0.4, 0.5), "worse"),
        (DOWN, DOWN, (0.5, 0.4), "cannot tell"),
        (NOTHING, NOTHING, (0.5, 0.5), "the same"),
    ],
)
def test_word_overlap_alone_decides_nothing_between_vectors(overlap, topics, words, verdict):
    assert VectorComparison(overlap, topics, words).verdict == verdict


def bag_of_words(texts, dim=256):
    """Means of random word vectors: nothing but words."""
    names = sorted({word for text in texts for word in text.lower().split()})
    table = dict(zip(names, np.random.default_rng(0).normal(size=(len(names), dim)), strict=True))
    return np.array([np.mean([table[word] for word in text.lower().split()], axis=0) for text in texts])


def test_vectors_that_are_words_win_by_overlap_and_nobody_can_tell(texts, wordllama):
    bag, better = bag_of_words(texts), wordllama.encode(texts)
    report = migrate(better, bag, texts).report
    assert report["rows"]["embedded again"]["low"] > 0  # by word overlap
    assert report["advice"] == "cannot tell"
    assert migrate(bag, better, texts).report["advice"] == "cannot tell"


def test_how_much_words_explain_is_a_ridge_regression(texts, wordllama):
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import Ridge

    vectors = wordllama.encode(texts).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    counts = CountVectorizer(token_pattern=r"(?u)\b\w+\b").fit_transform(texts).toarray()
    shares, rows = counts / counts.sum(axis=1, keepdims=True), np.random.default_rng(0).permutation(len(texts))
    held_out = np.zeros_like(vectors)
    means = np.zeros_like(vectors)
    for fitted, other in ((rows[:240], rows[240:]), (rows[240:], rows[:240])):
        mean = vectors[fitted].mean(axis=0)
        alpha = 0.1 * (shares[fitted] ** 2).sum(axis=1).mean()
        ridge = Ridge(alpha=alpha, fit_intercept=False, solver="cholesky").fit(shares[fitted], vectors[fitted] - mean)
        held_out[other], means[other] = ridge.predict(shares[other]) + mean, mean
    expected = 1 - ((vectors - held_out) ** 2).sum() / ((vectors - means) ** 2).sum()
    assert explained_by_words(vectors, texts) == pytest.approx(expected, abs=1e-6)
    assert explained_by_words(bag_of_words(texts), texts) > expected + 0.03 > 0.03


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-m", "wordllama"), ("1 model", "two different models")),
        ((), ("two results",)),
        (("-m", "wordllama", "-m", "none", "--tests"), ("--tests", "two results")),
        (("-m", "wordllama", "-m", "none", "-o", "table.csv"), ("table.csv", ".json")),
        (("other.txt", "-m", "wordllama"), ("one file", "not on 2")),
    ],
)
def test_a_comparison_needs_two_models_or_two_results(
    isosent_, refuses, corpus, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    refuses(isosent_("compare", corpus, *arguments), *words)
    assert not (tmp_path / "table.csv").exists()


def test_constant_vectors_and_empty_queries_are_refused(texts, wordllama):
    vectors = wordllama.encode(texts)
    with pytest.raises(InputError, match="all vectors are equal"):
        migrate(np.ones((len(texts), 8), np.float32), vectors, texts)
    with pytest.raises(InputError, match="no queries with their answers"):
        migrate(wordllama, wordllama, texts, answers=[])


def test_maps_of_groups_need_the_column_of_an_index_and_are_no_old_model(
    isosent_, refuses, texts, short, wordllama, tmp_path
):
    eye = LinearMap(np.eye(wordllama.dim), np.zeros(wordllama.dim))
    grouped = SentenceEncoder(
        wordllama.encoder, Postprocessing((MapStep(groups=GroupMaps("lang", "en", {"de": eye})),))
    )
    index = Index.create(texts[:100], isosent.load(short), folder=tmp_path / "index")
    result = migrate(isosent.load(short), grouped, texts, reference="grouped")
    with pytest.raises(InputError, match=r"for each lang, and .* no such column"):
        index.migrate(result.model, grouped)
    Index.create(texts[:100], grouped, metadata={"lang": ["de"] * 100}, folder=tmp_path / "grouped")
    refuses(isosent_("migrate", tmp_path / "grouped", "wordllama"), "lang")
