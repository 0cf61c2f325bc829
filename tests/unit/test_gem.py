import resource
from itertools import pairwise

import numpy as np
import pytest

from isosent import GEM
from isosent.errors import InputError
from isosent.numeric.gem import PrincipalVectors, coarse_vectors, gem_vectors
from isosent.numeric.moments import Moments

DIM, N_ROWS = 10, 40
LENGTHS = (4, 0, 1, 12, 7, 25, 2)


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(N_ROWS, DIM)).astype(np.float32)


def ragged(lengths=LENGTHS, n_rows=N_ROWS):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.random.default_rng(2).integers(0, n_rows, offsets[-1], dtype=np.int32), offsets


def principal_of(rows, n_candidates=6):
    return PrincipalVectors.from_moments(Moments.from_rows(coarse_vectors(rows, *ragged((5,) * 60))), n_candidates)


def encode(rows, ids, offsets, principal=None, **settings):
    known = principal_of(rows) if principal is None else principal
    return gem_vectors(rows, known.products(rows), ids, offsets, principal=known, **{"n_removed": 3} | settings)[0]


def test_a_text_without_words_has_the_zero_vector(rows):
    vectors = encode(rows, *ragged())
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert vectors.any(axis=1).tolist() == [length > 0 for length in LENGTHS]


def test_no_texts_have_no_vectors(rows):
    assert encode(rows, *ragged(())).shape == (0, DIM)
    assert coarse_vectors(rows, *ragged(())).shape == (0, DIM)
    assert not encode(rows, *ragged((0, 0))).any()
    assert not coarse_vectors(rows, *ragged((0, 0))).any()


def test_what_is_removed_is_gone(rows):
    """With all candidates removed, nothing of a vector lies in their span."""
    vectors = encode(rows, *ragged(), n_removed=6)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert (np.abs(vectors @ principal_of(rows).vectors.T) <= 1e-5 * lengths).all()


def test_fixed_removal_takes_the_strongest_of_the_corpus(rows):
    known = principal_of(rows)
    kept, removed = (encode(rows, *ragged(), known, removal=how, scores=("novelty",)) for how in ("none", "sir"))
    strongest = known.vectors[:3]
    np.testing.assert_allclose(removed, kept - (kept @ strongest.T) @ strongest, atol=1e-5)


def test_scores_add_up(rows):
    """A weight is the sum of its scores, and nothing behind it but a projection: the vectors add up too."""
    kinds = ("novelty", "significance", "uniqueness")
    alone = [encode(rows, *ragged(), scores=(kind,), removal="sir").astype(np.float64) for kind in kinds]
    np.testing.assert_allclose(sum(alone), encode(rows, *ragged(), removal="sir"), rtol=1e-4, atol=1e-4)


def test_perpendicular_words_have_the_whole_of_themselves_as_residual():
    """Of 3 words of length 2, each weighs exp(1) + 2 / 3 + exp(0), where nothing of the corpus is like them."""
    rows = 2 * np.eye(8, dtype=np.float32)
    nothing = PrincipalVectors(np.eye(8)[6:], np.ones(2))
    found = encode(rows, np.arange(3, dtype=np.int32), np.array([0, 3]), nothing, n_removed=2)[0]
    np.testing.assert_allclose(found, [2 * (np.e + 2 / 3 + 1)] * 3 + [0] * 5, rtol=1e-6)


def test_significance_is_divided_by_the_words_there_are_or_by_the_whole_window():
    rows = np.eye(4, dtype=np.float32)
    for significance, expected in (("columns", 1 / 2), ("window", 1 / 15)):
        found = encode(
            rows,
            np.arange(2, dtype=np.int32),
            np.array([0, 2]),
            PrincipalVectors(np.eye(4)[3:], np.ones(1)),
            scores=("significance",),
            significance=significance,
        )
        np.testing.assert_allclose(found[0, :2], expected, rtol=1e-6)


def test_scaled_uniqueness_does_not_depend_on_the_size_of_the_corpus(rows):
    known = PrincipalVectors(principal_of(rows).vectors, np.linspace(3, 1, 6))
    larger = PrincipalVectors(known.vectors, 10 * known.singular_values)
    before, after = (encode(rows, *ragged(), principal, uniqueness="scaled") for principal in (known, larger))
    np.testing.assert_allclose(after, before, rtol=1e-6)
    assert not np.allclose(encode(rows, *ragged(), larger), encode(rows, *ragged(), known), rtol=1e-3)


def test_a_window_beyond_the_text_is_the_text(rows):
    np.testing.assert_allclose(
        encode(rows, *ragged(), window=25), encode(rows, *ragged(), window=64), rtol=1e-5, atol=1e-5
    )


def test_words_outside_the_window_do_not_weigh(rows):
    """Only the weights of the words within reach of a changed word change."""
    ids = np.arange(20, dtype=np.int32)
    changed = ids.copy()
    changed[-1] = 30
    nothing = PrincipalVectors(np.zeros((0, DIM)), np.zeros(0))
    settings = {"removal": "none", "scores": ("novelty",), "window": 3}
    rows[[*range(16)]] = 0  # what is left of the sum is that of the words 16 ... 19
    far = [encode(rows, words, np.array([0, 20]), nothing, **settings) for words in (ids, changed)]
    near = [encode(rows, words[16:], np.array([0, 4]), nothing, **settings) for words in (ids, changed)]
    np.testing.assert_allclose(far, near, rtol=1e-5)


def test_threads_change_nothing(rows, monkeypatch):
    ids, offsets = ragged(np.arange(700) % 40)
    known = principal_of(rows)
    found = []
    for n_threads in ("1", "2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        found.append((encode(rows, ids, offsets, known), coarse_vectors(rows, ids, offsets)))
    for vectors, coarse in found[1:]:
        np.testing.assert_array_equal(vectors, found[0][0])
        np.testing.assert_array_equal(coarse, found[0][1])


def test_other_texts_change_nothing(rows):
    ids, offsets = ragged((3, 30, 1, 0, 9, 200, 5))
    together = encode(rows, ids, offsets), coarse_vectors(rows, ids, offsets)
    for text in range(7):
        words = ids[offsets[text] : offsets[text + 1]]
        bounds = np.array([0, len(words)])
        np.testing.assert_array_equal(encode(rows, words, bounds)[0], together[0][text])
        np.testing.assert_array_equal(coarse_vectors(rows, words, bounds)[0], together[1][text])


@pytest.mark.parametrize("removal", ["sdr", "sir", "none"])
@pytest.mark.parametrize("ranking", ["weighted", "unweighted"])
@pytest.mark.parametrize("uniqueness", ["published", "scaled"])
def test_a_corpus_without_any_direction_removes_nothing(rows, removal, ranking, uniqueness):
    """All words are new: the uniqueness score is 1."""
    nothing = PrincipalVectors.from_moments(Moments.from_rows(np.zeros((5, DIM))), 6)
    assert len(nothing.vectors) == 0
    found = encode(rows, *ragged(), nothing, removal=removal, ranking=ranking, uniqueness=uniqueness)
    only = encode(rows, *ragged(), nothing, removal="none", scores=("novelty", "significance"))
    ids, offsets = ragged()
    plain = np.array([rows[ids[a:b]].sum(axis=0) for a, b in pairwise(offsets)])
    np.testing.assert_allclose(found, only + plain, rtol=1e-4, atol=1e-4)


def test_fewer_directions_than_candidates_are_all_taken(rows):
    flat = np.zeros_like(rows)
    flat[:, :2] = rows[:, :2]
    known = principal_of(flat)
    assert known.vectors.shape == (2, DIM)
    assert known.products(flat).shape == (N_ROWS, 16)
    assert np.isfinite(encode(flat, *ragged(), known, n_removed=5)).all()


def test_principal_vectors_are_singular_vectors(rows):
    """Of the coarse vectors as they are, uncentred: vectors up to their sign, values as they are."""
    coarse = coarse_vectors(rows, *ragged((5,) * 60)).astype(np.float64)
    _, values, vectors = np.linalg.svd(coarse)
    known = principal_of(rows)
    np.testing.assert_allclose(known.singular_values, values[:6], rtol=1e-6)
    np.testing.assert_allclose(np.abs((known.vectors * vectors[:6]).sum(axis=1)), 1, atol=1e-6)


def test_moments_of_parts_give_the_principal_vectors_of_the_whole(rows):
    coarse = coarse_vectors(rows, *ragged((5,) * 60))
    parts = [Moments.from_rows(coarse[bounds]) for bounds in (slice(7), slice(7, 8), slice(8, 8), slice(8, None))]
    known = PrincipalVectors.from_moments(sum(parts[1:], start=parts[0]), 6)
    np.testing.assert_allclose(known.vectors, principal_of(rows).vectors, atol=1e-6)
    np.testing.assert_allclose(known.singular_values, principal_of(rows).singular_values, rtol=1e-9)


def test_products_are_padded_to_a_multiple_of_16(rows):
    for n_candidates, width in ((1, 16), (10, 16)):
        assert principal_of(rows, n_candidates).products(rows).shape == (N_ROWS, width)
    assert PrincipalVectors(np.eye(20), np.ones(20)).products(np.ones((3, 20), np.float32)).shape == (3, 32)


def test_more_candidates_than_dimensions_are_refused(rows):
    with pytest.raises(
        InputError, match=r"GEM: n_candidates must be at most 10, the dimensions of the vectors; got 11"
    ):
        principal_of(rows, 11)


def test_a_text_of_100000_words_takes_little_memory(rows):
    ids, offsets = ragged((100_000, 3))
    known = principal_of(rows)
    encode(rows, *ragged(), known)  # compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert np.isfinite(coarse_vectors(rows, ids, offsets)).all()
    assert np.isfinite(encode(rows, ids, offsets, known)).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": 0}, "GEM: window must be a whole number >= 1; got 0"),
        ({"window": 2.5}, "GEM: window must be a whole number >= 1; got 2.5"),
        ({"n_removed": 0}, "GEM: n_removed must be a whole number >= 1; got 0"),
        ({"removal": "all"}, "GEM: removal must be one of sdr, sir, none; got 'all'"),
        ({"significance": "rows"}, "GEM: significance must be one of columns, window; got 'rows'"),
        ({"ranking": "none"}, "GEM: ranking must be one of weighted, unweighted; got 'none'"),
        ({"uniqueness": "none"}, "GEM: uniqueness must be one of published, scaled; got 'none'"),
        ({"scores": ()}, r"GEM: scores must be some of novelty, significance, uniqueness, each once; got \(\)"),
        ({"scores": ("novelty", "novelty")}, "GEM: scores must be some of .*, each once; got"),
        ({"scores": ("length",)}, "GEM: scores must be some of .*; got"),
        ({"scores": "novelty"}, "GEM: scores must be some of .*; got 'novelty'"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        GEM(**settings)


def test_a_window_that_would_take_forever_is_refused():
    with pytest.raises(InputError, match=r"GEM: window must be at most 64; got 1000\."):
        GEM(window=1000)
