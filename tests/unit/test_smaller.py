"""Sizes: what vectors keep of their neighbors in fewer bytes."""

import numpy as np
import pytest

from isosent.errors import InputError
from isosent.numeric.neighbors import neighbor_recall
from isosent.numeric.similarity import held_out_rows, unit_rows
from isosent.search import Index, sizes
from isosent.search.engine import bytes_per_vector


@pytest.fixture(scope="module")
def vectors():
    """Unit vectors of 32 dimensions with a common mean, of which the last half matters little."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 32)) * np.r_[np.ones(16), np.full(16, 0.02)] + 0.3
    return unit_rows(rows @ np.linalg.qr(rng.normal(size=(32, 32)))[0]).astype(np.float32)


@pytest.fixture(scope="module")
def measured(vectors):
    return sizes(vectors)


def one(measured, dtype, width=32, transform="none", *, center=False, oversampling=0, code_bytes=8):
    asked = (dtype, width, transform, center, oversampling)
    [found] = [
        e
        for e in measured.rows
        if (e.dtype, e.n_components, e.transform, e.center, e.oversampling) == asked and e.code_bytes in (0, code_bytes)
    ]
    return found


def test_recall_is_that_of_the_original_neighbors(measured):
    assert one(measured, "float32").recall == 1
    about_zero, centered, first = (
        one(measured, "float32", 16, name, center=center).recall
        for name, center in (("principal_components", False), ("principal_components", True), ("truncate", False))
    )
    assert about_zero > centered > first
    assert one(measured, "float32", 32, "principal_components", center=True).recall < 0.95  # centering alone loses


def test_bytes_are_those_of_an_index(measured):
    for each in measured.rows:
        if each.is_stored:
            assert each.n_bytes == bytes_per_vector(each.n_components, "flat", each.dtype)
            assert (each.n_bytes_on_disk > 0) == (each.oversampling > 0)
        assert each.low <= each.recall <= each.high


def test_the_front_rises_with_the_bytes_and_nothing_is_above_it(measured):
    front = measured.front
    assert [each.n_bytes for each in front] == sorted({each.n_bytes for each in front}, reverse=True)
    assert [each.recall for each in front] == sorted({each.recall for each in front}, reverse=True)
    for each in measured.rows:
        assert max(e.recall for e in front if e.n_bytes <= each.n_bytes) >= each.recall


def test_a_size_is_chosen_by_bytes_or_by_loss(measured):
    for n_bytes in (20, 64, 1000):
        best = measured.within(n_bytes)
        assert best.n_bytes <= n_bytes
        assert all(e.recall <= best.recall for e in measured.rows if e.is_stored and e.n_bytes <= n_bytes)
    smallest = measured.smallest(0.05)
    assert smallest.recall >= 0.95
    assert all(e.recall < 0.95 for e in measured.rows if e.is_stored and e.n_bytes < smallest.n_bytes)
    assert measured.smallest(0).recall == 1
    with pytest.raises(InputError, match="n_bytes=1"):
        measured.within(1)


def test_the_sentence_says_what_is_saved_and_what_the_next_step_costs(measured):
    int8 = one(measured, "int8", oversampling=2)
    sentence = measured.sentence(int8)
    smaller = measured.next_smaller(int8)
    assert "a quarter of the memory (and 64 bytes on disk)" in sentence
    assert f"{1 - int8.recall:.2%} of the neighbors lost" in sentence
    assert f"{int8.recall - smaller.recall:.2%} more" in sentence
    assert "2,700 vectors" in sentence


def test_copies_and_zero_rows_do_not_count(vectors):
    again = sizes(np.concatenate([vectors[:300], np.zeros((50, 32), np.float32), vectors[:200]]))
    assert again.n_texts + again.n_queries == 300
    for too_few in (vectors[:3], vectors[:100], np.ones((500, 4), np.float32)):
        with pytest.raises(InputError, match="too few different vectors"):
            sizes(too_few)
    with pytest.raises(InputError, match=r"v\.npy is a path"):
        sizes("v.npy")


def test_no_loss_has_an_interval():
    found = sizes(np.random.default_rng(0).normal(size=(200, 64)), widths=())
    half = one(found, "float16", 64)
    assert half.recall == half.high == 1
    assert half.low == pytest.approx(1 - 3 / (10 * found.n_queries))
    assert one(found, "float32", 64).low == 1  # the vectors themselves


def test_what_is_measured_is_what_is_saved(vectors):
    rng = np.random.default_rng(1)
    rows = vectors * rng.lognormal(0, 2, size=(len(vectors), 1)).astype(np.float32)  # lengths say where the mean is
    found = sizes(rows)
    queries, others = held_out_rows(rows)
    for center in (False, True):
        size = one(found, "float32", 16, "principal_components", center=center)
        mapped = found.model(size, rows[others]).transform(rows)
        kept = neighbor_recall(*(each[np.r_[queries, others]] for each in (rows, mapped)), len(queries))
        assert size.recall == pytest.approx(kept, abs=0.002)


def test_a_size_becomes_a_model_and_an_index(vectors):
    found = sizes(vectors)
    size = found.within(20)
    model = found.model(size, vectors)
    assert (model.dim, model.record.storage.dtype) == (size.n_components, size.dtype)
    stats = Index.create(vectors=vectors, model=model).stats()
    assert stats.bytes_searched / stats.n_rows == pytest.approx(size.n_bytes, abs=0.01)
    assert stats.recall.original_recall is None or stats.recall.original_recall > size.recall - 0.05
    alone = next(each for each in found.rows if each.dtype == "binary" and not each.oversampling)
    with pytest.raises(InputError, match="does not store binary"):
        found.model(alone, vectors)


def test_neighbors_before_a_transform_are_counted_too(vectors):
    found = sizes(vectors[:, :8], originals=vectors)
    assert one(found, "float32", 8).recall == 1
    queries, others = held_out_rows(vectors[:, :8])
    rows = np.r_[queries, others]
    kept = neighbor_recall(vectors[rows], vectors[rows, :8], len(queries))
    assert one(found, "float32", 8).original_recall == pytest.approx(kept, abs=0.002)
    assert f"{1 - kept:.0%}"[:-1] in found.sentence(one(found, "float32", 8))


def test_vectors_of_signs_are_no_copies_and_lengths_beyond_float32_do_not_matter(vectors):
    signs = sizes(np.sign(vectors - vectors.mean(axis=0)), widths=())
    assert signs.n_texts + signs.n_queries > 2900
    large = sizes(vectors[:300].astype(np.float64) * 1e200, n_bytes=np.inf)
    assert large.n_texts == sizes(vectors[:300]).n_texts


def test_codecs_of_faiss_stand_beside_those_of_an_index():
    found = sizes(np.random.default_rng(0).normal(size=(10_600, 16)).astype(np.float32), codecs=True, widths=())
    names = {each.dtype for each in found.rows}
    assert {"4 bits", "product quantization, 1/8", "OPQ, 1/8"} <= names
    assert all(not each.is_stored for each in found.rows if each.dtype == "4 bits")
    product = one(found, "product quantization, 1/8", 16)
    assert (product.n_bytes, product.n_bytes_on_disk, product.is_stored) == (2, 0, False)


def test_product_codes_keep_more_than_bits_of_the_same_bytes_and_as_many_of_other_texts():
    """Vectors as an API returns them: most of the variance lies along few axes, and there are groups."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(200, 64)) * np.linspace(1, 0.2, 64)
    rows = groups[rng.integers(200, size=7000)] + rng.normal(size=(7000, 64)) * np.linspace(1, 0.1, 64) + 0.2
    found = sizes(rows[:4000].astype(np.float32), widths=())
    alone, rescored = (one(found, "product", 64, oversampling=n) for n in (0, 40))
    bits = [one(found, "binary", 64, oversampling=n) for n in (0, 40)]
    assert (rescored.n_bytes, rescored.n_bytes_on_disk, bits[1].n_bytes) == (8, 128, 16)
    assert rescored.recall > bits[1].recall - 0.01
    assert alone.recall < rescored.recall
    assert (alone.is_stored, rescored.is_stored) == (False, True)
    size = found.within(8)
    index = Index.create(vectors=rows[4000:6500], model=found.model(size, rows[:4000]))
    ids = index.search(rows[6500:], k=10).ids
    cosines = unit_rows(rows[6500:]) @ unit_rows(rows[4000:6500]).T
    exact = np.argsort(-cosines, axis=1, kind="stable")[:, :10]
    kept = np.mean([len(np.intersect1d(*pair)) / 10 for pair in zip(ids, exact, strict=True)])
    assert kept >= size.recall - 0.01
    stats = index.stats()
    assert (stats.settings.store, stats.settings.code_bytes, stats.bytes_searched) == ("product", 8, 8 * 2500)


def test_of_few_vectors_product_codes_are_not_measured(vectors):
    assert "product" not in {each.dtype for each in sizes(vectors[:900]).rows}
