"""The index: what it finds, what it refuses, and what is left of it after a failure."""

import dataclasses
import errno
import json
import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import isosent
from isosent import SentenceEncoder
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import (
    FileFormatError,
    InputError,
    InputFileError,
    InputTypeError,
    IsosentWarning,
    OutputError,
)
from isosent.io.atomic import locked
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import writing_vectors
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.persistence import read_model, write_model
from isosent.search import Index, engine
from isosent.search.build import FLAT_LIMIT, plan
from isosent.search.commits import MANIFEST
from isosent.space import Space
from isosent.transforms.quantization import Quantization

faiss = pytest.importorskip("faiss")

KINDS_AND_STORES = [
    (kind, store)
    for kind in ("flat", "ivf", "hnsw")
    for store in ("float32", "float16", "int8", "binary", "product")
    if (kind, store) not in (("hnsw", "binary"), ("hnsw", "product"))
]


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, 32))
    return (centers[rng.integers(40, size=1500)] + rng.normal(size=(1500, 32)) + 0.3).astype(np.float32)


@pytest.fixture(scope="module")
def index(vectors):
    return Index.create(vectors=vectors)


@pytest.fixture(scope="module")
def text_index(wordllama, texts):
    metadata = {"lang": ["en" if row % 3 else "de" for row in range(len(texts))], "year": list(range(len(texts)))}
    return Index.create(texts, wordllama, metadata=metadata)


@pytest.fixture
def small(wordllama, tmp_path):
    texts = ["a cat sleeps", "a dog barks", "the stock market fell", "shares rose today", "rain is expected"]
    return Index.create(texts, wordllama, ids=list("abcde"), folder=tmp_path / "index")


def nearest(vectors, queries, k):
    cosines = unit_rows(queries) @ unit_rows(vectors).T
    return np.argsort(-cosines, axis=1, kind="stable")[:, :k]


# -- what it finds ---------------------------------------------------------------------------------------------------


def test_a_number_that_is_not_one_is_missing(vectors):
    index = Index.create(vectors=vectors[:3], metadata={"price": np.array([1, np.nan, 3], np.float32)})
    assert sorted(index.search(vectors[0], 3, where="price > 0").ids[0].tolist()) == [-1, 0, 2]
    assert index.search(vectors[0], 1, where="price is null").ids.tolist() == [[1]]


def test_equal_texts_count_once_where_that_is_asked(wordllama):
    texts = ["a cat sleeps", "a dog barks", *["a cat sleeps"] * 7, "shares rose today"]
    index = Index.create(texts, wordllama)
    assert set(index.search("a cat sleeps", 3).ids[0].tolist()) <= {0, *range(2, 9)}
    found = index.search(["a cat sleeps", "a dog barks"], 3, unique=True)
    assert [sorted(texts[row] for row in ids) for ids in found.ids.tolist()] == [sorted(set(texts))] * 2
    assert index.search("a cat sleeps", 5, unique=True).n_hits.tolist() == [3]
    assert (np.diff(found.scores, axis=1) <= 0).all()
    two = index.search("a dog barks", 1, where="id > 1", unique=True)
    assert two.n_hits.tolist() == [1]


def test_a_flat_index_finds_what_numpy_finds(index, vectors):
    result = index.search(vectors[:50] + 0.1, k=7)
    assert_array_equal(result.ids, nearest(vectors, vectors[:50] + 0.1, 7))
    cosines = (unit_rows(vectors[:50] + 0.1)[:, None] * unit_rows(vectors)[result.ids]).sum(axis=2)
    assert_allclose(result.scores, cosines, atol=1e-6)


@pytest.mark.parametrize(("kind", "store"), KINDS_AND_STORES[::3])
def test_kinds_and_stores_reach_the_recall_that_they_state(vectors, kind, store):
    vectors = vectors[:, :27]  # float16 and int8 codes are padded with zeros
    index = Index.create(vectors=vectors, kind=kind, store=store)
    stats = index.stats()
    assert stats.recall.recall >= 0.95
    rows = np.arange(0, 1500, 5)
    found = index.search(vectors[rows], k=11).ids
    hits = [
        len(set(found[i]) & set(truth) - {row})
        for i, (row, truth) in enumerate(zip(rows, nearest(vectors, vectors[rows], 11), strict=True))
    ]
    assert np.mean(hits) / 10 >= 0.93
    # scores are cosines of the finest copy
    assert_allclose(index.search(vectors[:1], k=1).scores, 1, atol=2e-3)
    if kind != "hnsw":
        index.remove([0])
        index.compact()
    index.add(vectors=vectors[1:3] + 0.01)
    assert 1500 in index.search(vectors[1], k=2).ids


def test_texts_and_vectors_give_the_same_hits(text_index, wordllama, texts):
    by_text = text_index.search(texts[:5])
    by_vector = text_index.search(wordllama.encoder.encode(texts[:5]))
    assert_array_equal(by_text.ids, by_vector.ids)
    assert_array_equal(by_text.ids[:, 0], range(5))


def test_the_map_is_applied_to_rows_and_queries(wordllama, texts):
    model = wordllama.fitted(texts, "whitening", settings={"n_components": 32})
    index = Index.create(texts, model)
    assert index.dim == 32
    raw = wordllama.encode(texts)
    assert_array_equal(index.search(raw[:9]).ids, Index.create(model=model, vectors=raw).search(raw[:9]).ids)
    assert_array_equal(index.search(raw[:9], k=5).ids, nearest(model.encode(texts), model.encode(texts[:9]), 5))


def test_faiss_alone_searches_the_folder_with_raw_vectors(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, "whitening", settings={"n_components": 32})
    index = Index.create(texts, model, folder=tmp_path / "index")
    plain = faiss.read_index(str(next((tmp_path / "index").glob("codes-*.faiss"))))
    raw = wordllama.encode(texts[:20])
    scores, positions = plain.search(raw, 5)
    assert_array_equal(positions, index.search(raw, k=5).ids)
    assert_allclose(scores, index.search(raw, k=5).scores, atol=1e-5)


def test_queries_use_the_query_side_of_a_model(wordllama, texts):
    model = wordllama.fitted(texts[:200], "whitening", queries=texts[200:300], settings={"n_components": 16})
    index = Index.create(texts[:200], model)
    expected = nearest(model.encode_document(texts[:200]), model.encode_query(texts[300:310]), 4)
    assert_array_equal(index.search(texts[300:310], k=4).ids, expected)


def test_hits_come_as_tables(text_index):
    result = text_index.search(["a man rides a horse", "snow"], k=3)
    table = result.to_arrow()
    assert table.column_names == ["query", "rank", "id", "score", "share", "text", "lang", "year"]
    assert table.column("query").to_pylist() == [0, 0, 0, 1, 1, 1]
    frame = result.to_pandas()
    assert frame["score"].is_monotonic_decreasing is False
    assert (frame["share"].between(0, 1)).all()
    assert result.n_hits.tolist() == [3, 3]


def test_filters_hold_for_every_hit(text_index):
    hits = text_index.search("people", k=30, where='lang = "de" and year >= 100').to_arrow().to_pylist()
    assert len(hits) == 30
    assert all(hit["lang"] == "de" and hit["year"] >= 100 for hit in hits)


def test_texts_are_filtered_like_the_other_columns(small, wordllama):
    def found(where, **how):
        return sorted(name for name in small.search("an animal", 5, where=where, **how).ids[0] if name is not None)

    small.add(["a dog barks", "A dog barks"], ids=["x", "y"])
    small.remove(["b"])
    assert found("text = 'a dog barks'") == ["x"]
    assert found("text in ('a cat sleeps', 'A dog barks') and id != 'y'") == ["a"]
    assert found("text >= 'r'", hybrid=True) == ["c", "d", "e"]
    assert found("text is null or text = 'no such text'") == []
    assert small.more_like(["a"], 5, where="text = 'A dog barks'").ids[0, 0] == "y"
    with pytest.raises(InputError, match="colour; there are: id, text"):
        small.search("x", where="colour = 1")
    with pytest.raises(InputError, match="text"):  # rows of vectors have none
        Index.create(vectors=wordllama.encode(["a dog"])).search(np.ones(256), where="text = 'a dog'")


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_a_filtered_search_is_exact_among_few_rows(vectors, kind):
    index = Index.create(vectors=vectors, kind=kind, metadata={"group": np.arange(1500) % 50})
    result = index.search(vectors[:5], k=10, where="group = 7")
    members = np.arange(7, 1500, 50)
    assert_array_equal(result.ids, members[nearest(vectors[members], vectors[:5], 10)])


@pytest.mark.parametrize(
    ("kind", "store"), [("ivf", "float32"), ("ivf", "binary"), ("ivf", "product"), ("hnsw", "int8")]
)
def test_a_filter_for_rows_far_from_the_query_finds_the_nearest_of_them(vectors, kind, store, monkeypatch):
    side = vectors[:, 0] > np.median(vectors[:, 0])
    index = Index.create(vectors=vectors, kind=kind, store=store, metadata={"side": side})
    queries = vectors[~side][:40]
    expected = nearest(vectors[side], queries, 10)
    for most_scored_one_by_one in (50_000, 0):
        monkeypatch.setattr("isosent.search.engine._SMALL_SELECTION", most_scored_one_by_one)
        found = index.search(queries, 10, where="side = true").ids
        hits = [len(set(row) & set(np.flatnonzero(side)[truth])) for row, truth in zip(found, expected, strict=True)]
        assert np.mean(hits) >= (9.9 if most_scored_one_by_one else 9.0)


def test_more_like_this_leaves_the_row_out(text_index, texts):
    result = text_index.more_like([3, 8], k=4)
    assert result.ids.shape == (2, 4)
    assert 3 not in result.ids[0]
    assert_array_equal(result.ids[0], [hit for hit in text_index.search(texts[3], k=5).ids[0] if hit != 3][:4])
    with pytest.raises(InputError, match="99999"):
        text_index.more_like([99999])


def test_hybrid_search_finds_a_rare_word(wordllama, texts):
    index = Index.create([*texts, "order no. qzx-9981 was sent"], wordllama)
    assert index.search("qzx-9981", k=3, hybrid=True).ids[0, 0] == len(texts)
    scores = index.search("where is order qzx-9981", k=5, hybrid=True).scores
    assert (np.abs(scores) <= 1).all()
    with pytest.raises(InputError, match="vectors"):
        index.search(np.ones(256, np.float32), hybrid=True)


def test_rows_without_a_vector_never_match(wordllama):
    index = Index.create(["a cat", "", "a dog", ""], wordllama)
    assert set(index.search("an animal", k=4).ids[0]) == {0, 2, -1}
    assert index.stats().n_zero_rows == 2
    assert index.search(np.zeros(256), k=2).n_hits.tolist() == [0]


def test_k_above_the_number_of_rows_gives_all_rows(small):
    assert small.search("animals", k=50).n_hits.tolist() == [5]
    assert small.search("animals", k=50).ids.shape == (1, 5)


def test_an_index_without_rows_finds_nothing_until_rows_are_added(wordllama):
    index = Index.create([], wordllama)
    assert len(index) == 0
    assert index.search("anything").n_hits.tolist() == [0]
    index.add(["a first text"])
    assert index.search("text").ids[0, 0] == 0


def test_copies_of_texts_do_not_make_a_search_look_better(vectors):
    rows = np.concatenate([vectors, *[vectors[:50]] * 40])
    ivf, flat = (Index.create(vectors=rows, kind=kind) for kind in ("ivf", "flat"))
    queries = vectors[::30] + np.random.default_rng(1).normal(size=(50, 32)).astype(np.float32)
    assert ivf.stats().settings.n_probe > 1
    found, exact = ivf.search(queries, 10).scores, flat.search(queries, 10).scores
    assert (found >= exact[:, -1:] - 1e-5).mean() >= 0.93


@pytest.mark.parametrize("n_with_vector", [0, 1, 45])
def test_few_different_rows_are_searched_one_by_one(vectors, n_with_vector):
    rows = np.zeros((1500, 32), np.float32)
    rows[:n_with_vector] = vectors[:n_with_vector]
    index = Index.create(vectors=rows, kind="ivf")
    assert index.stats().settings.kind == "flat"
    assert index.search(vectors[0], 50).n_hits.tolist() == [n_with_vector]
    assert index.stats().n_zero_rows == 1500 - n_with_vector


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_more_hits_than_the_recall_was_measured_for_are_found(vectors, kind):
    index = Index.create(vectors=vectors, kind=kind, min_recall=0.5)
    found = index.search(vectors[:20], 400).ids
    hits = [set(row) & set(truth) for row, truth in zip(found, nearest(vectors, vectors[:20], 400), strict=True)]
    assert (found >= 0).all()
    assert np.mean([len(each) for each in hits]) >= 0.5 * 400


def test_one_hit_of_few_bits_is_as_good_as_the_first_of_ten(vectors):
    index = Index.create(vectors=vectors, kind="flat", store="binary")
    queries = vectors[:200] + np.random.default_rng(2).normal(size=(200, 32)).astype(np.float32)
    assert_array_equal(index.search(queries, 1).ids[:, 0], index.search(queries, 10).ids[:, 0])


def test_all_rows_of_a_graph_are_found_if_they_are_asked_for(vectors):
    rows = np.concatenate([vectors, *[vectors[:1]] * 400])
    index = Index.create(vectors=rows, kind="hnsw")
    assert index.search(vectors[:2], k=len(rows)).n_hits.tolist() == [len(rows), len(rows)]
    assert index.search(vectors[:1], k=10**9).ids.shape == (1, len(rows))


def test_hits_that_beat_chance_keep_the_order_of_a_hybrid_search(text_index):
    query = "a dog and a man playing music"
    fused = text_index.search(query, 6, hybrid=True).ids[0]
    kept = text_index.search(query, 6, hybrid=True, false_positives=0.999999).ids[0]
    assert [number for number in kept if number in fused] == [number for number in fused if number in kept]
    assert len(set(fused) & set(kept)) >= 4


# -- what it states --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_product_codes_are_searched_among_many_rows_of_a_filter(vectors, monkeypatch, kind):
    monkeypatch.setattr(engine, "_SMALL_SELECTION", 10)  # rows that are compared one by one
    third = np.arange(1500) % 3
    index = Index.create(
        vectors=vectors, metadata={"third": third.tolist()}, kind=kind, store="product", min_recall=0.99
    )
    index.remove(range(300))
    rows = np.flatnonzero((third != 1) & (np.arange(1500) >= 300))
    found = index.search(vectors[:100], 10, where="third != 1").ids
    assert set(found.ravel().tolist()) <= set(rows.tolist())
    expected = rows[nearest(vectors[rows], vectors[:100], 10)]
    assert np.mean([len(np.intersect1d(*pair)) / 10 for pair in zip(found, expected, strict=True)]) > 0.95


def test_faiss_searches_the_files_of_an_index_of_product_codes(vectors, tmp_path):
    index = Index.create(vectors=vectors, store="product", folder=tmp_path / "index")
    codes, finer = (faiss.read_index(str(tmp_path / "index" / f"{name}-000001.faiss")) for name in ("codes", "vectors"))
    refined = faiss.IndexRefine(codes, finer)
    refined.k_factor = index.stats().settings.oversampling
    found = refined.search(unit_rows(vectors[:200]), 10)[1]
    assert (found == index.search(vectors[:200], 10).ids).mean() > 0.97  # one candidate more is taken by isosent


def test_codebooks_do_not_depend_on_the_order_of_the_rows(vectors, tmp_path):
    folders = tmp_path / "index", tmp_path / "other"
    for folder, rows in zip(folders, (vectors, vectors[np.random.default_rng(0).permutation(1500)]), strict=True):
        Index.create(vectors=rows, store="product", folder=folder)
    assert_array_equal(*(isosent.load(folder / "model").quantization.codebooks for folder in folders))


def test_product_codes_are_packed_once_for_all_snapshots(vectors, tmp_path, monkeypatch):
    index = Index.create(vectors=vectors, store="product", folder=tmp_path / "index")
    index = Index.open(tmp_path / "index")
    packed = []
    for module in ("engine", "snapshot"):
        monkeypatch.setattr(f"isosent.search.{module}.packed_codes", lambda codes: packed.append(codes) or codes)
    index.remove([0, 1])
    index.remove([2])
    assert packed == []
    assert 0 not in index.search(vectors[:1], k=5).ids


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_few_rows_that_were_added_are_found_by_their_product_codes(vectors, kind):
    index = Index.create(vectors=vectors, store="product", kind=kind)
    for row in range(3):  # FAISS may find nothing among so few
        (added,) = index.add(vectors=-vectors[row : row + 1])
        assert index.search(-vectors[row], k=1).ids.tolist() == [[added]]


def test_codebooks_of_a_model_are_those_of_its_index(vectors, tmp_path):
    units = unit_rows(vectors)
    quantization = Quantization.fit(units).with_product(units, 16)
    model = SentenceEncoder(PrecomputedVectors(32)).with_quantization(quantization)
    stats = Index.create(vectors=vectors, model=model, store="product", folder=tmp_path / "index").stats()
    assert (stats.settings.code_bytes, stats.bytes_searched) == (16, 16 * 1500)
    saved = isosent.load(tmp_path / "index" / "model").quantization
    assert_array_equal(saved.codebooks, quantization.codebooks)
    unfitted = model.with_quantization(Quantization.fit(units))  # codebooks are fitted when they are needed
    assert Index.create(vectors=vectors, model=unfitted, store="product").stats().settings.code_bytes == 8


def test_an_index_whose_model_has_other_codebooks_is_refused(vectors, tmp_path):
    index = Index.create(vectors=vectors[:300], store="product", folder=tmp_path / "index")
    record, units = read_model(tmp_path / "index" / "model"), unit_rows(vectors)
    for quantization in (record.quantization.with_product(units, 4), record.quantization.with_product(units, 0)):
        write_model(tmp_path / "index" / "model", dataclasses.replace(record, quantization=quantization))
        with pytest.raises(InputError, match=f"{quantization.code_bytes} bytes"):
            Index.open(index.folder).add(vectors=vectors[300:310])


def test_the_budget_chooses_the_number_type(vectors):
    sizes = {"float32": 0.2, "float16": 0.1, "int8": 0.05, "binary": 0.02, "product": 0.0121}
    for store, budget in sizes.items():
        stats = Index.create(vectors=vectors, budget_mb=budget).stats()
        assert stats.settings.store == store
        assert stats.bytes_searched <= budget * 1e6
    with pytest.raises(InputError, match=r"0.01"):
        Index.create(vectors=vectors, budget_mb=0.01)
    with pytest.raises(InputError, match="float32"):
        Index.create(vectors=vectors, budget_mb=0.1, store="float32")


def test_the_kind_follows_the_number_of_rows():
    assert plan(FLAT_LIMIT, 8, None, None).kind == "flat"
    settings = plan(1_000_000, 8, None, None)
    assert settings.kind == "ivf"
    assert settings.n_lists == 4096


def test_a_higher_recall_is_reached_by_searching_more(vectors):
    low, high = (Index.create(vectors=vectors, kind="ivf", min_recall=recall).stats() for recall in (0.5, 0.999))
    assert low.settings.n_probe < high.settings.n_probe
    assert low.recall.recall >= 0.5
    assert high.recall.recall >= 0.999


def test_the_stated_recall_is_that_of_queries_that_did_not_choose_the_settings(vectors):
    exact, chosen = (Index.create(vectors=vectors[:900], store=store).stats() for store in ("float16", "binary"))
    assert (exact.recall.n_queries, chosen.recall.n_queries) == (225, 112)


def test_changes_make_the_recall_stale_and_compacting_measures_again(vectors):
    index = Index.create(vectors=vectors[:300], store="float16")
    assert not index.stats().is_stale
    index.add(vectors=vectors[300:340])
    assert index.stats().is_stale
    assert index.stats().n_added == 40
    index.compact()
    stats = index.stats()
    assert not stats.is_stale
    assert (stats.n_rows, stats.n_added, stats.recall.n_rows) == (340, 0, 340)


def test_a_row_that_changes_often_is_one_changed_row(vectors):
    names = [f"row {number}" for number in range(302)]
    index = Index.create(vectors=vectors[:300], ids=names[:300], store="float16")
    assert index.stats().n_changed == 0
    for start in (10, 40, 70):
        index.add(vectors=vectors[start : start + 20], ids=names[:20])
    index.remove(names[10:25])  # ten that were replaced, and five more
    index.add(vectors=vectors[:2], ids=names[300:])
    index.remove(names[301:])  # is as if it had not been there
    index.add(vectors=vectors[:1], ids=names[24:25])
    assert index.stats().n_changed == 26  # 25 of the 300, and one that is new
    assert not index.stats().is_stale


def test_quantization_of_the_model_is_used_and_saved(wordllama, texts, tmp_path):
    from isosent.transforms.quantization import Quantization

    model = wordllama.with_quantization(Quantization.fit(wordllama.encode(texts[:100])))
    index = Index.create(texts, model, store="int8", folder=tmp_path / "index")
    saved = isosent.load(tmp_path / "index" / "model")
    assert_array_equal(saved.quantization.low, model.quantization.low)
    codes = faiss.vector_to_array(index._snapshot.segments[0].codes.codes).reshape(len(texts), -1)
    expected = model.quantization.encode(unit_rows(wordllama.encode(texts)), "int8").astype(np.int16) + 128
    assert (codes != expected).mean() < 1e-4  # rounding of float32 at the border of a step


# -- changing --------------------------------------------------------------------------------------------------------


def test_rows_with_known_ids_are_replaced(small):
    small.add(["a horse neighs", "a bird sings"], ids=["b", "f"])
    assert len(small) == 6
    assert "b" in small.search("horse", k=1).ids
    assert small.search("a dog barks", k=6).to_pandas()["text"].tolist().count("a dog barks") == 0
    assert len(Index.open(small.folder)) == 6


@pytest.mark.parametrize("ids", [["a", "b"], [1, 2]])
def test_no_rows_have_ids_of_any_kind(wordllama, ids):
    index = Index.create(["a cat", "a dog"], wordllama, ids=ids)
    assert index.add([], ids=[]).tolist() == []
    with pytest.raises(InputError, match="1"):
        index.add([], ids=ids[:1])
    assert len(index) == 2


def test_removed_rows_are_gone_and_their_numbers_are_not_given_again(wordllama, texts):
    index = Index.create(texts[:10], wordllama)
    assert index.remove([3, 9, 77]) == 2
    assert len(index) == 8
    assert 3 not in index.search(texts[3], k=8).ids
    assert index.add([texts[3]]).tolist() == [10]
    index.compact()
    assert index.add(["new"]).tolist() == [11]
    assert sorted(index.search("x", k=20).ids[0]) == [0, 1, 2, 4, 5, 6, 7, 8, 10, 11]


@pytest.mark.parametrize(
    ("kind", "store"), [("flat", "float32"), ("flat", "binary"), ("flat", "product"), ("ivf", "int8")]
)
def test_any_order_of_changes_leaves_the_rows_that_a_dictionary_would_have(vectors, kind, store):
    rng = np.random.default_rng(1)
    rows = {f"r{i}": i for i in range(1100)}
    index = Index.create(vectors=vectors[:1100], ids=list(rows), kind=kind, store=store, min_recall=1)
    for step in range(11):
        chosen = rng.choice(1500, 30, replace=False)
        names = [f"r{i % 1200}" for i in chosen]
        chosen = [row for row, name in zip(chosen, names, strict=True) if names.count(name) == 1]
        if step % 3 == 2:
            gone = [f"r{i}" for i in chosen]
            assert index.remove(gone) == sum(rows.pop(name, None) is not None for name in gone)
        else:
            index.add(vectors=vectors[chosen], ids=[f"r{i % 1200}" for i in chosen])
            rows |= {f"r{i % 1200}": i for i in chosen}
        if step == 7:
            index.compact()
    assert len(index) == len(rows)
    found = {
        name: row
        for batch in index.batches(100)
        for name, row in zip(batch["id"].to_pylist(), batch["vector"].to_pylist(), strict=True)
    }
    assert found.keys() == rows.keys()
    for name, row in rows.items():
        assert_allclose(found[name], unit_rows(vectors[row : row + 1])[0], atol=1e-3)
    names = np.array(list(rows))
    expected = names[nearest(vectors[list(rows.values())], vectors[:40], 1)]
    assert (index.search(vectors[:40], k=1).ids == expected).mean() > 0.95


def test_many_small_additions_are_merged(vectors):
    index = Index.create(vectors=vectors[:100])
    for row in range(100, 130):
        index.add(vectors=vectors[row : row + 1])
    assert len(list(index.folder.glob("codes-*"))) < 12
    assert_array_equal(index.search(vectors[:130], k=1).ids[:, 0], range(130))


def test_an_hnsw_index_only_grows(vectors):
    index = Index.create(vectors=vectors[:200], ids=[str(i) for i in range(200)], kind="hnsw")
    index.add(vectors=vectors[200:210], ids=[str(i) for i in range(200, 210)])
    assert index.search(vectors[205], k=1).ids[0, 0] == "205"
    for change in (lambda: index.remove(["3"]), lambda: index.add(vectors=vectors[:1], ids=["3"])):
        with pytest.raises(InputError, match="hnsw"):
            change()
    assert len(index) == 210


def test_a_reader_keeps_what_it_opened(small):
    reader = Index.open(small.folder)
    small.remove(["a", "b"])
    small.add(["zebras run"], ids=["z"])
    small.compact()
    assert sorted(reader.search("animals", k=5).to_pandas()["id"]) == list("abcde")
    assert sorted(Index.open(small.folder).search("animals", k=5).ids[0]) == list("cdez")


def test_two_objects_take_turns(small):
    other = Index.open(small.folder)
    small.add(["one"], ids=["x"])
    other.add(["two"], ids=["y"])
    assert len(other) == 7
    assert len(Index.open(small.folder)) == 7


@pytest.mark.parametrize("change", ["add", "remove", "compact"])
def test_an_index_that_was_replaced_is_changed_not_reverted(small, wordllama, change):
    Index.create(["a horse", "a goat"], wordllama, ids=["h", "g"], folder=small.folder)
    if change == "add":
        small.add(["a pig"], ids=["p"])
    elif change == "remove":
        small.remove(["g", "a"])
    else:
        small.compact()
    expected = {"add": ["g", "h", "p"], "remove": ["h"], "compact": ["g", "h"]}[change]
    assert sorted(Index.open(small.folder).search("horse", 9).ids[0].tolist()) == expected


def test_vectors_of_a_model_that_was_replaced_are_refused(small, wordllama, texts):
    Index.create(["a horse"], wordllama.fitted(texts, "whitening"), ids=["h"], folder=small.folder)
    with pytest.raises(InputError, match="whitening"):
        small.add(vectors=np.ones((1, 256), np.float32), ids=["v"])


def test_an_index_that_somebody_writes_to_is_not_replaced(small, wordllama):
    other = Index.create(["a horse"], wordllama)
    with locked(small.folder), pytest.raises(OutputError, match="writing"):
        other.save(small.folder)
    assert len(Index.open(small.folder)) == 5


def test_the_last_commit_is_saved(small, tmp_path):
    reader = Index.open(small.folder)
    small.remove(["a"])
    small.compact()
    reader.save(tmp_path / "copy")
    assert len(Index.open(tmp_path / "copy")) == 4


def test_rows_are_added_even_if_the_index_cannot_be_compacted(small, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("isosent.search.index.rebuilt", fails)
    n_added = 1001
    small.add(vectors=np.eye(n_added, 256, dtype=np.float32), texts=["x"] * n_added, ids=list(map(str, range(n_added))))
    assert len(Index.open(small.folder)) == 5 + n_added


def test_a_second_writer_is_refused(small):
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with locked(small.folder):
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    try:
        with pytest.raises(OutputError, match="another process"):
            small.add(["late"], ids=["l"])
    finally:
        leave.set()
        thread.join()
    assert len(Index.open(small.folder)) == 5


def test_batches_make_the_same_index(text_index, wordllama):
    copy = Index.from_batches(text_index.batches(100), space=text_index.space, dim=256, model=wordllama)
    query = "a man is cooking"
    assert_array_equal(copy.search(query).ids, text_index.search(query).ids)
    assert copy.search(query).to_arrow().column_names == text_index.search(query).to_arrow().column_names
    with pytest.raises(InputError, match="other"):
        Index.from_batches(text_index.batches(), space=Space("0" * 64, "other"), dim=256, model=wordllama)


# -- spaces ----------------------------------------------------------------------------------------------------------


def test_vectors_of_another_space_are_refused(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, "whitening")
    index = Index.create(texts, wordllama, folder=tmp_path / "index")
    with pytest.raises(InputError, match="whitening"):
        Index.open(tmp_path / "index", model)
    path = tmp_path / "other.npy"
    with writing_vectors(path, (2, 256), space=Space("1" * 64, "another encoder")) as write:
        write(np.ones((2, 256), np.float32))
    for change in (lambda: Index.create(vectors=path, model=wordllama), lambda: index.add(vectors=path)):
        with pytest.raises(InputError, match="another encoder"):
            change()


def test_vectors_that_the_model_made_are_not_mapped_twice(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, "whitening", settings={"n_components": 16})
    for name, space, rows in (
        ("raw.npy", Space(model.encoder.fingerprint, "wordllama"), wordllama.encode(texts)),
        ("mapped.npy", Space(model.fingerprint, "wordllama -> whitening"), model.encode(texts)),
    ):
        with writing_vectors(tmp_path / name, rows.shape, space=space) as write:
            write(rows)
    raw, mapped = (Index.create(model=model, vectors=tmp_path / name) for name in ("raw.npy", "mapped.npy"))
    assert_array_equal(raw.search(texts[:5]).ids, mapped.search(texts[:5]).ids)


def test_an_index_of_vectors_alone_cannot_encode(index, vectors):
    assert index.search(vectors[0], k=1).ids.tolist() == [[0]]
    with pytest.raises(InputError, match="has no model of texts"):
        index.search("a text")


def test_a_wrapped_model_must_be_passed_again(tmp_path):
    with pytest.warns(isosent.IsosentWarning, match="saved"):
        model = isosent.wrap(lambda texts: np.array([[len(text), text.count("a"), 1.0] for text in texts]))
    index = Index.create(["banana", "a", "tree"], model, folder=tmp_path / "index")
    index.add(["llama"])
    assert Index.open(tmp_path / "index", model).search("llama", k=1).ids.tolist() == [[3]]
    with pytest.raises(InputError, match="model"):
        Index.open(tmp_path / "index").search("lama")


# -- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"ids": ["a", "b"]}, "3"),
        ({"ids": ["a", "b", "a"]}, "'a'"),
        ({"ids": ["a", 2, "c"]}, "strings"),
        ({"ids": [1.5, 2.5, 3.5]}, "double"),
        ({"ids": [1, -2, 3]}, "-2"),
        ({"metadata": {"lang": ["en"]}}, "lang"),
        ({"metadata": {"text": ["x", "y", "z"]}}, "text"),
        ({"vectors": np.ones((2, 256), np.float32)}, "2"),
        ({"vectors": np.ones((3, 7), np.float32)}, "7"),
        ({"vectors": np.full((3, 256), np.nan, np.float32)}, "NaN"),
        ({"min_recall": 1.5}, "1.5"),
    ],
)
def test_bad_rows_are_refused(wordllama, arguments, word, tmp_path):
    with pytest.raises((InputError, InputTypeError), match=word):
        Index.create(["a", "b", "c"], wordllama, folder=tmp_path / "index", **arguments)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputTypeError, match="Use isosent"):
        Index.create(["a"], "wordllama")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"queries": ""}, "empty"),
        ({"queries": ["fine", "  "]}, "empty"),
        ({"queries": []}, "no texts"),
        ({"queries": "x", "k": 0}, "0"),
        ({"queries": "x", "k": -3}, "-3"),
        ({"queries": "x", "where": "colour = 1"}, "colour"),
        ({"queries": "x", "false_positives": 2}, "2"),
        ({"queries": np.ones((1, 5), np.float32)}, "5"),
        ({"queries": np.full((1, 256), np.inf, np.float32)}, "infinity"),
    ],
)
def test_bad_queries_are_refused(small, arguments, word):
    with pytest.raises(InputError, match=word):
        small.search(**arguments)


def test_rows_of_other_columns_or_ids_are_refused(small):
    for arguments, word in (
        ({"ids": ["x"], "metadata": {"colour": ["red"]}}, "colour"),
        ({}, "strings"),
        ({"ids": [4]}, "strings"),
    ):
        with pytest.raises(InputError, match=word):
            small.add(["a text"], **arguments)
    with pytest.raises(InputError, match="strings"):
        small.remove([3])
    assert len(Index.open(small.folder)) == 5


def test_a_flipped_bit_in_any_file_is_noticed(small, tmp_path):
    small.remove(["a"])
    small.add(["late"], ids=["l"])
    files = [path for path in small.folder.rglob("*") if path.is_file()]
    assert len(files) >= 9
    for path in files:
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[len(content) // 2] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            Index.open(small.folder).search("a text")
        path.write_bytes(content)
    assert len(Index.open(small.folder)) == 5


def test_missing_files_are_named(small):
    path = next(small.folder.glob("codes-*"))
    path.unlink()
    with pytest.raises(FileFormatError, match=path.name):
        Index.open(small.folder)
    with pytest.raises(InputFileError, match="no such folder"):
        Index.open(small.folder / "none")
    (small.folder / MANIFEST).unlink()
    with pytest.raises(InputFileError, match=MANIFEST):
        Index.open(small.folder)


def test_other_folders_are_never_replaced(wordllama, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="mine"):
        Index.create(["a", "b"], wordllama, folder=tmp_path / "mine")
    index = Index.create(["a", "b"], wordllama)
    with pytest.raises(OutputError, match="mine"):
        index.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_failed_build_leaves_the_older_index(small, wordllama):
    with pytest.raises(InputError):
        Index.create(["a", "b"], wordllama, ids=["same", "same"], folder=small.folder)
    assert len(Index.open(small.folder)) == 5


def test_a_temporary_index_is_removed_with_its_object(wordllama, tmp_path):
    index = Index.create(["a cat", "a dog"], wordllama)
    folder = Path(index.folder)
    index.save(tmp_path / "kept")
    assert folder.exists()
    del index
    assert not folder.exists()
    assert len(Index.open(tmp_path / "kept")) == 2


# -- edges -----------------------------------------------------------------------------------------------------------


def test_an_emptied_index_can_be_compacted_and_filled_again(small):
    assert small.remove(list("abcde")) == 5
    small.compact()
    assert (len(small), small.search("a cat").n_hits.tolist()) == (0, [0])
    small.add(["a horse"], ids=["h"])
    assert small.search("a cat", hybrid=True, k=10**9).ids.tolist() == [["h"]]


def test_columns_of_data_frames_are_taken_as_they_are(wordllama):
    import pandas as pd

    frame = pd.DataFrame(
        {"kind": pd.Categorical(["x", "y", "x"]), "day": pd.to_datetime(["2020-01-01", "2021-01-01", None])},
        index=["r", "s", "t"],
    )
    index = Index.create(["a cat", "a dog", "a cow"], wordllama, ids=frame.index, metadata=frame)
    assert sorted(index.search("animal", where="kind = 'x'").ids[0, :2]) == ["r", "t"]
    assert index.search("animal", where="day > '2020-06-01'").ids[0, 0] == "s"
    index.add(["a hen"], ids=["u"], metadata=pd.DataFrame({"kind": ["z"]}))
    assert index.search("animal", where="kind = 'z' and day is null").ids[0, 0] == "u"


def test_rows_and_queries_without_a_vector_are_near_to_nothing(wordllama):
    index = Index.create(["a cat", "", "a dog"], wordllama)
    assert index.more_like([1], k=2).n_hits.tolist() == [0]
    assert index.more_like([0], k=2).ids.tolist() == [[2, -1]]


def test_arrays_of_strings_are_queries(small):
    assert small.search(np.array(["dog", "shares"]), k=1).ids[:, 0].tolist() == ["b", "d"]


def test_nothing_is_asked(small):
    assert small.more_like([]).ids.shape[0] == 0
    assert small.search(np.empty((0, 256), np.float32)).ids.shape[0] == 0


@pytest.mark.parametrize("ids", ["ab", 3, iter("a")])
def test_ids_must_be_listed(small, ids):
    for change in (small.remove, small.more_like):
        with pytest.raises(InputTypeError, match="list of ids"):
            change(ids)
    assert len(small) == 5


@pytest.mark.parametrize("ids", [["a", 1], [1.5], [None, object()]])
def test_ids_of_no_kind_are_refused(small, ids):
    for call in (small.remove, small.more_like):
        with pytest.raises((InputError, InputTypeError), match=r"ids|id "):
            call(ids)


def test_a_manifest_that_promises_other_rows_is_refused(small):
    import json

    from isosent.io.json import document_bytes

    document = json.loads((small.folder / MANIFEST).read_text())
    document["index"]["segments"][0]["n_rows"] = 10**15
    (small.folder / MANIFEST).write_bytes(document_bytes(document))
    with pytest.raises(FileFormatError, match=r"codes-.* its number of rows"):
        Index.open(small.folder)
    document["index"]["segments"][0] |= {
        "n_rows": 5,
        "rows": {"name": "../rows.parquet", "checksum": "xxh3:" + "0" * 32},
    }
    (small.folder / MANIFEST).write_bytes(document_bytes(document))
    with pytest.raises(FileFormatError):
        Index.open(small.folder)
    document["index"]["segments"] = []
    (small.folder / MANIFEST).write_bytes(document_bytes(document))
    with pytest.raises(FileFormatError, match=r"length >= 1 - at .*segments"):
        Index.open(small.folder)


def test_a_manifest_cannot_ask_for_memory(tmp_path, small):
    from msgspec.structs import replace

    from isosent.search.commits import read_state, write_state

    state = read_state(small.folder)
    write_state(small.folder, replace(state, segments=state.segments * 2))
    with pytest.raises(FileFormatError, match="names a file twice"):
        Index.open(small.folder)
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((3, 16)).astype(np.float32)
    for kind, settings in (
        ("hnsw", {"ef_search": 1 << 62}),
        ("flat", {"oversampling": 10_000}),
        ("ivf", {"n_probe": 1 << 62}),
    ):
        folder = tmp_path / kind
        made = Index.create(vectors=rng.standard_normal((1200, 16)), folder=folder, kind=kind, store="int8")
        state = read_state(folder)
        write_state(folder, replace(state, settings=replace(state.settings, **settings)))
        hits = Index.open(folder).search(queries, k=1000)
        assert hits.scores.shape == (3, 1000)
        assert (hits.scores[:, 0] >= made.search(queries, k=1).scores[:, 0] - 1e-6).all()


def test_the_recall_of_an_exact_index_is_never_stale(vectors):
    index = Index.create(vectors=vectors[:300])
    index.add(vectors=vectors[300:340])
    assert not index.stats().is_stale


def test_a_change_that_fails_leaves_no_file_and_the_last_commit(vectors, tmp_path, monkeypatch):
    index = Index.create(vectors=vectors[:300], folder=tmp_path / "index")
    names = {path.name for path in index.folder.iterdir()}

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("isosent.search.build.write_codes", fail)
        with pytest.raises(OutputError, match=r"No space left.*its last commit is intact"):
            index.add(vectors=vectors[300:340])
    assert {path.name for path in index.folder.iterdir()} == names
    index.add(vectors=vectors[300:340])
    assert len(Index.open(index.folder)) == 340


def test_filtered_searches_of_few_and_of_many_queries_agree(vectors):
    index = Index.create(vectors=vectors[:300], metadata={"half": [row % 2 for row in range(300)]})
    together = index.search(vectors[:200], 5, where="half = 1")
    for row in range(0, 200, 40):
        alone = index.search(vectors[row : row + 1], 5, where="half = 1")
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "store"), [("flat", "float32"), ("flat", "int8"), ("flat", "binary"), ("flat", "product")]
)
def test_of_equal_rows_the_first_ones_are_returned(wordllama, texts, kind, store):
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 30))
    index = Index.create([texts[row] for row in rows], wordllama, kind=kind, store=store)
    found = index.search(texts[:40], 12)
    assert found.ids.tolist() == [np.flatnonzero(rows == text)[:12].tolist() for text in range(40)]
    assert (found.scores == found.scores[:, :1]).all()


@pytest.mark.parametrize("store", ["float32", "int8", "binary", "product"])
def test_the_first_of_thousands_of_equal_rows_are_found(store):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20_000, 8)).astype(np.float32)
    equal = np.sort(rng.permutation(20_000)[:12_000])
    vectors[equal] = [3, 1, 0, 0, 0, 0, 0, 0]
    index = Index.create(vectors=vectors, kind="flat", store=store)
    found = index.search(vectors[equal[:2]], 20)
    assert found.ids.tolist() == [equal[:20].tolist()] * 2
    index.remove(equal[:300].tolist())
    assert index.search(vectors[equal[:1]], 20).ids[0].tolist() == equal[300:320].tolist()


@pytest.mark.parametrize("is_other", [True, False])
def test_codebooks_that_no_longer_fit_are_noticed_when_an_index_is_compacted(is_other):
    random = np.random.default_rng(0)

    def topic(first_axis):
        """Rows that vary along 24 of 240 axes."""
        rows = np.zeros((2500, 240), np.float32)
        axes = slice(first_axis, first_axis + 24)
        rows[:, axes] = random.standard_normal((250, 24)).repeat(10, axis=0) + random.standard_normal((2500, 24))
        return rows

    first, other = topic(0), topic(120)
    index = Index.create(vectors=first[:1250], store="product", kind="flat")
    assert index.stats().recall.codebooks is None
    index.add(vectors=other if is_other else first[1250:])  # so many rows that it is compacted
    stats = index.stats()
    fit = stats.recall.codebooks
    assert stats.n_added == 0
    assert stats.has_drifted == stats.to_json()["has_drifted"] == is_other
    assert (fit.refitted - fit.recall > 0.1) == is_other
    reopened = Index.open(index.folder).stats()
    assert reopened.has_drifted == is_other


def test_an_index_of_an_earlier_version_is_read_but_not_its_product_codes(tmp_path):
    rows = np.random.default_rng(0).standard_normal((20, 8))
    Index.create(vectors=rows, folder=tmp_path / "index")
    manifest = tmp_path / "index" / "manifest.json"
    for n_parts in (0, 4):
        document = json.loads(manifest.read_text("utf-8"))
        document.pop("checksum", None)
        document["index"]["settings"].pop("code_bytes", None)
        document["index"]["settings"]["n_parts"] = n_parts
        manifest.write_text(json.dumps(document), "utf-8")
        if n_parts:
            with pytest.raises(FileFormatError, match="again"):
                Index.open(tmp_path / "index")
        else:
            found = Index.open(tmp_path / "index").search(rows[:3], k=1)
            assert found.ids[:, 0].tolist() == [0, 1, 2]


def of_another_model(rows):
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(rows.shape[1], rows.shape[1])))[0]
    return (rows @ rotation).astype(np.float32)


def test_unnamed_vectors_of_another_model_are_told_from_those_of_a_fitted_one(wordllama, texts, tmp_path):
    rows = wordllama.encode(texts)
    encoder = PrecomputedVectors(256, {"space": "an API"}).with_statistics(Moments.from_rows(rows))
    SentenceEncoder(encoder).save(tmp_path / "model")
    model = isosent.load(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index = Index.create(vectors=rows, model=model)
        Index.create(vectors=rows[1::2].astype(np.float16), model=model)
        index.search(rows[1::2], k=1)
        index.search(of_another_model(rows[:19]), k=1)  # too few
        index.search(of_another_model(rows[:30]), k=1, where="id < 10")  # may match nothing
    with pytest.warns(IsosentWarning, match="beyond chance.*another model"):
        Index.create(vectors=of_another_model(rows), model=model)
    with pytest.warns(IsosentWarning, match="another model than an API"):
        index.search(of_another_model(rows[:30]), k=1)
    named = VectorSource.of_array(of_another_model(rows), "add", "vectors")
    with pytest.warns(IsosentWarning, match="beyond chance.*another model"):
        index.add(vectors=dataclasses.replace(named, space=model.space), check_space=True)
    with pytest.raises(InputError, match=r"an API.*is not here"):
        index.verify()
