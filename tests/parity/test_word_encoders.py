"""The compiled encoders give what plain code gives that takes one sentence and one word at a time."""

import os
import re
from pathlib import Path

import averages_reference as plain
import gem_reference
import numpy as np
import pytest

import isosent
from isosent.evaluation.sts import read_sts
from isosent.numeric.gem import PrincipalVectors, coarse_vectors, gem_vectors
from isosent.numeric.moments import Moments
from isosent.numeric.word_averages import balanced_means, power_means, sif_weights, usif_weights, weighted_means

TOLERANCE = 1e-5
CQA = {"window": 6, "n_removed": 15, "ranking": "unweighted"}


def ragged(sentences):
    offsets = np.concatenate([[0], np.cumsum([len(words) for words in sentences])]).astype(np.int64)
    return np.array([word for words in sentences for word in words], np.int32), offsets


def gap(fast, slow):
    """Largest distance of two vectors of a text, as a share of their length; float32 has nothing below 1e-38."""
    lengths = np.maximum(np.linalg.norm(slow, axis=1), 1e-30)
    return (np.linalg.norm(fast - slow, axis=1) / lengths).max()


def both_gem(rows, sentences, principal, **settings):
    ids, offsets = ragged(sentences)
    known = PrincipalVectors(*principal)
    fast, _, _ = gem_vectors(rows, known.products(rows), ids, offsets, principal=known, **settings)
    slow = [gem_reference.gem_vector(rows[words], *principal, **settings) for words in sentences]
    return fast, np.array(slow)


def principal_of(rows, sentences, n_candidates=45):
    coarse = [gem_reference.coarse_vector(rows[words]) for words in sentences]
    return gem_reference.principal_vectors(coarse, n_candidates)


def zipfian(rng, n_words, n_sentences, longest):
    shares = 1 / np.arange(1, n_words + 1)
    lengths = rng.integers(1, longest + 1, n_sentences)
    return [rng.choice(n_words, length, p=shares / shares.sum()) for length in lengths]


def word_vectors(rng, n_words, dim, common=0.5):
    """Frequent words share a direction; some words are multiples or sums of others, one is zero."""
    rows = rng.standard_normal((n_words, dim))
    rows += np.outer(common / np.sqrt(np.arange(1, n_words + 1)), rng.standard_normal(dim))
    rows = rows.astype(np.float32)
    rows[10:20] = 2 * rows[:10]
    rows[20:25] = -0.5 * rows[:5]
    rows[25:30] = rows[:5] + rows[5:10]
    rows[30] = 0
    return rows


@pytest.fixture(scope="module")
def made():
    """Word vectors, sentences of them, and the principal vectors of these."""
    rng = np.random.default_rng(0)
    rows = word_vectors(rng, 500, 128)
    sentences = zipfian(rng, len(rows), 800, 20)
    return rows, sentences, principal_of(rows, sentences)


@pytest.fixture(scope="module")
def stsb_texts():
    if "ISOSENT_DATA" not in os.environ:
        pytest.skip("ISOSENT_DATA does not say where the research sets lie")
    (task,) = read_sts(Path(os.environ["ISOSENT_DATA"]) / "stsbenchmark", tasks=["STSB"])
    return list(dict.fromkeys(text for pairs in task.subsets for text in (*pairs.first, *pairs.second)))


@pytest.fixture(scope="module")
def glove(stsb_texts):
    """GloVe rows, and the sentences of STS-B's test part in words that have one."""
    folder = Path(os.environ["ISOSENT_DATA"]) / "vectors" / "glove.840B.300d.subset"
    lines = (folder / "glove.840B.300d.subset.txt").read_text("utf-8").splitlines()
    index = {line.partition(" ")[0]: row for row, line in enumerate(lines)}
    rows = np.array([line.split(" ")[1:] for line in lines], np.float32)
    words = [
        [index[word] for word in re.findall(r"\w+|[^\w\s]+", text.lower()) if word in index] for text in stsb_texts
    ]
    return rows, [ids for ids in words if ids]


def test_the_plain_code_on_a_sentence_done_by_hand():
    """Words (3, 4) and (5, 0): residuals 4 and 4, the first one's q = (0, 1), the second one's (0.8, -0.6)."""
    words = np.array([[3.0, 4.0], [5.0, 0.0]])
    found = gem_reference.gem_vector(words, np.array([[1.0, 0.0]]), np.array([2.0]), n_removed=1, removal="none")
    first = np.exp(4 / 5) + 4 / 2 + np.exp(-2 * 0.0)
    second = np.exp(4 / 5) + 4 / 2 + np.exp(-2 * 0.8)
    np.testing.assert_allclose(found, first * words[0] + second * words[1], rtol=1e-12)


def test_the_plain_code_gives_a_repeated_word_the_weight_2():
    words = np.array([[3.0, 4.0], [3.0, 4.0]])
    found = gem_reference.gem_vector(words, np.array([[0.0, 1.0]]), np.array([1.0]), n_removed=1)
    np.testing.assert_allclose(found, [12, 0], atol=1e-12)


def test_the_plain_coarse_vector_of_perpendicular_words():
    """Singular values are the lengths 2 and 3, to the third power."""
    words = np.array([[2.0, 0.0, 0.0], [0.0, -3.0, 0.0]])
    np.testing.assert_allclose(gem_reference.coarse_vector(words), [8, -27, 0], atol=1e-12)


def test_gem_of_random_sentences(made):
    assert gap(*both_gem(*made)) < TOLERANCE


@pytest.mark.parametrize(
    "settings",
    [
        CQA,
        {"removal": "sir"},
        {"removal": "none"},
        {"scores": ("novelty",)},
        {"scores": ("significance",)},
        {"scores": ("uniqueness",)},
        {"scores": ("novelty", "significance"), "removal": "sir"},
        {"significance": "window"},
        {"ranking": "unweighted"},
        {"uniqueness": "scaled"},
        {"uniqueness": "scaled", "removal": "sir", "scores": ("uniqueness",)},
        {"window": 1},
        {"window": 2, "significance": "window"},
        {"window": 50},
        {"n_removed": 1},
        {"n_removed": 45},
    ],
    ids=str,
)
def test_gem_with_every_setting(made, settings):
    rows, sentences, principal = made
    assert gap(*both_gem(rows, sentences[:50], principal, **settings)) < TOLERANCE


@pytest.mark.parametrize("removal", ["sdr", "sir", "none"])
def test_gem_of_repeated_collinear_and_zero_words(made, removal):
    rows, others, _ = made
    principal = principal_of(np.roll(rows, 250, axis=0), others[:200])  # its own frequent words it would nearly empty
    sentences = [[7], [30], [7, 7], [7, 7, 7, 8], [0, 10], [0, 20, 10, 40], [0, 5, 25], [30, 7, 30], [7] * 40]
    sentences += [[0, 5, 10, 15, 20, 25, 30] * 4, [1, 1, 2, 11, 2, 26, 6, 1] * 3]
    assert gap(*both_gem(rows, sentences, principal, removal=removal)) < TOLERANCE


def test_gem_of_texts_that_removal_nearly_empties():
    """What is left of two numbers that almost cancel is as exact as they were in single precision."""
    rng = np.random.default_rng(6)
    rows = word_vectors(rng, 200, 48, common=5.0)
    sentences = zipfian(rng, len(rows), 100, 10)
    principal = principal_of(rows, sentences)
    before, _ = both_gem(rows, sentences, principal, n_removed=45, removal="none")
    fast, slow = both_gem(rows, sentences, principal, n_removed=45)
    assert np.linalg.norm(slow, axis=1).min() < 0.1 * np.linalg.norm(before, axis=1).min()
    assert (np.linalg.norm(fast - slow, axis=1) < 1e-6 * np.linalg.norm(before, axis=1) + 1e-30).all()


def test_a_repeated_word_weighs_2(made):
    rows, _, principal = made
    fast, _ = both_gem(rows, [[7, 7, 7]], principal, removal="none")
    np.testing.assert_allclose(fast[0], 6 * rows[7], rtol=1e-6)


def test_words_that_are_alike(made):
    """Of a word a thousandth is new: products in single precision alone would not do."""
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal(128) + 1e-3 * rng.standard_normal((40, 128))).astype(np.float32)
    sentences = zipfian(rng, len(rows), 100, 12)
    assert gap(*both_gem(rows, sentences, made[2], removal="none")) < TOLERANCE


@pytest.mark.parametrize("settings", [{}, {"window": 25}, CQA, {"removal": "none", "window": 3}], ids=str)
def test_gem_of_texts_of_more_words_than_dimensions(settings):
    rng = np.random.default_rng(2)
    rows = word_vectors(rng, 300, 20)
    sentences = zipfian(rng, len(rows), 60, 60)
    principal = principal_of(rows, sentences, 18)
    settings = settings | {"n_removed": 5}
    assert gap(*both_gem(rows, sentences, principal, **settings)) < TOLERANCE


def test_gem_of_a_long_text_among_short_ones(made):
    rows, sentences, principal = made
    long = np.random.default_rng(3).integers(0, len(rows), 1000)
    assert gap(*both_gem(rows, [*sentences[:5], long, *sentences[5:10]], principal)) < TOLERANCE


def test_a_text_without_words_has_the_zero_vector(made):
    rows, _, principal = made
    fast, slow = both_gem(rows, [[3, 4], [], [5]], principal)
    assert not fast[1].any()
    assert gap(fast, slow) < TOLERANCE


@pytest.mark.data
def test_gem_of_real_sentences(glove):
    rows, sentences = glove
    assert gap(*both_gem(rows, sentences[:700], principal_of(rows, sentences[:700]))) < TOLERANCE


@pytest.mark.data
def test_gem_of_real_sub_words(wordllama, stsb_texts):
    tokens = wordllama.encoder.tokenize(stsb_texts[:300])
    used, ids = np.unique(tokens.ids, return_inverse=True)
    rows = np.asarray(wordllama.encoder.token_vectors[used], np.float32)
    sentences = np.split(ids, tokens.offsets[1:-1])
    assert gap(*both_gem(rows, sentences, principal_of(rows, sentences))) < TOLERANCE


@pytest.mark.parametrize("power", [1.0, 2.5, 3.0])
def test_coarse_vectors(made, power):
    rows, sentences, _ = made
    slow = np.array([gem_reference.coarse_vector(rows[words], power) for words in sentences])
    assert gap(coarse_vectors(rows, *ragged(sentences), power=power), slow) < TOLERANCE


def test_coarse_vectors_of_texts_of_more_words_than_dimensions():
    rng = np.random.default_rng(4)
    rows = word_vectors(rng, 300, 20)
    sentences = zipfian(rng, len(rows), 100, 60)
    slow = np.array([gem_reference.coarse_vector(rows[words]) for words in sentences])
    assert gap(coarse_vectors(rows, *ragged(sentences)), slow) < TOLERANCE


def test_signs_that_the_mean_does_not_decide():
    """The words a and b of one length have the singular vectors a + b and a - b; the mean is perpendicular to a - b."""
    rows = np.array([[3.0, 1.0, 0.0], [3.0, -1.0, 0.0], [-3.0, 1.0, 0.0]], np.float32)
    sentences = [[0, 1], [1, 0], [0, 2], [2, 0], [0, 1, 0, 1]]
    slow = np.array([gem_reference.coarse_vector(rows[words]) for words in sentences])
    assert gap(coarse_vectors(rows, *ragged(sentences)), slow) < TOLERANCE


def test_principal_vectors_are_those_of_the_coarse_vectors(made):
    rows, sentences, (vectors, singular_values) = made
    coarse = coarse_vectors(rows, *ragged(sentences))
    found = PrincipalVectors.from_moments(Moments.from_rows(coarse), 45)
    np.testing.assert_allclose(found.singular_values, singular_values, rtol=1e-5)
    np.testing.assert_allclose(np.abs((found.vectors * vectors).sum(axis=1)), 1, atol=1e-5)


def test_fewer_directions_than_candidates():
    """Three texts have three coarse vectors; GEM then removes these three."""
    rng = np.random.default_rng(5)
    rows = word_vectors(rng, 60, 32)
    sentences = zipfian(rng, len(rows), 3, 10)
    found = PrincipalVectors.from_moments(Moments.from_rows(coarse_vectors(rows, *ragged(sentences))), 32)
    assert len(found.vectors) == 3
    principal = (found.vectors, found.singular_values)
    others = zipfian(rng, len(rows), 50, 10)
    assert gap(*both_gem(rows, others, principal)) < TOLERANCE


@pytest.fixture(scope="module")
def probabilities(made):
    counts = np.bincount(np.concatenate(made[1]), minlength=len(made[0]))
    return counts / counts.sum()


def test_means(made):
    rows, sentences, _ = made
    slow = np.array([plain.mean(rows[words].astype(np.float64)) for words in sentences])
    assert gap(weighted_means(rows, *ragged(sentences)), slow) < TOLERANCE


@pytest.mark.parametrize("a", [1e-4, 1e-3, 1e-2])
def test_sif(made, probabilities, a):
    rows, sentences, _ = made
    ids, offsets = ragged(sentences)
    weights = sif_weights(probabilities, a).astype(np.float32)[ids]
    slow = np.array([plain.sif_vector(rows[words].astype(np.float64), probabilities[words], a) for words in sentences])
    assert gap(weighted_means(rows, ids, offsets, weights), slow) < TOLERANCE


def test_usif(made, probabilities):
    rows, sentences, _ = made
    ids, offsets = ragged(sentences)
    mean_length = len(ids) / len(sentences)
    a = plain.usif_a(probabilities[probabilities > 0], mean_length)
    weights = usif_weights(probabilities, mean_length).astype(np.float32)[ids]
    slow = [plain.usif_vector(rows[words].astype(np.float64), probabilities[words], a) for words in sentences]
    assert gap(balanced_means(rows, ids, offsets, weights), np.array(slow)) < TOLERANCE


@pytest.mark.parametrize("power", [-np.inf, 1, 2, 3, 0.5, np.inf])
def test_power_means(made, power):
    rows, sentences, _ = made
    slow = np.array([plain.power_mean(rows[words].astype(np.float64), power) for words in sentences])
    assert gap(power_means(rows, *ragged(sentences), (power,)), slow) < TOLERANCE


@pytest.fixture(scope="module")
def words_file(made, tmp_path_factory):
    """The made word vectors as a file, texts of them, and the vectors as the file has them."""
    rows, sentences, _ = made
    path = tmp_path_factory.mktemp("words") / "words.txt"
    lines = [f"w{word} " + " ".join(f"{number:.4f}" for number in row) for word, row in enumerate(rows)]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    texts = [" ".join(f"w{word}" for word in words) for words in sentences[:250]]
    return path, texts, np.array([line.split(" ")[1:] for line in lines], np.float32), sentences[:250]


def encoded(words_file, options):
    path, texts, *_ = words_file
    return isosent.load(f"words:{path}?{options}").fitted(texts, transform=None).encode(texts)


@pytest.fixture(scope="module")
def counted(words_file):
    _, _, rows, sentences = words_file
    counts = np.bincount(np.concatenate(sentences), minlength=len(rows))
    return rows.astype(np.float64), sentences, counts / counts.sum()


def test_a_gem_model(words_file):
    _, _, rows, sentences = words_file
    principal = principal_of(rows, sentences)
    slow = np.array([gem_reference.gem_vector(rows[words], *principal) for words in sentences])
    assert gap(encoded(words_file, "weighting=gem"), slow) < TOLERANCE


def test_a_sif_model(words_file, counted):
    rows, sentences, probabilities = counted
    slow = np.array([plain.sif_vector(rows[words], probabilities[words]) for words in sentences])
    assert gap(encoded(words_file, "weighting=sif"), plain.remove_components(slow, 1)) < TOLERANCE


def test_a_usif_model(words_file, counted):
    rows, sentences, probabilities = counted
    a = plain.usif_a(probabilities[probabilities > 0], np.mean([len(words) for words in sentences]))
    slow = np.array([plain.usif_vector(rows[words], probabilities[words], a) for words in sentences])
    assert gap(encoded(words_file, "weighting=usif"), plain.remove_components(slow, 5, weighted=True)) < TOLERANCE


def test_a_power_mean_model(words_file, counted):
    rows, sentences, _ = counted
    means = [np.array([plain.power_mean(rows[words], p) for words in sentences]) for p in (-np.inf, 1, np.inf)]
    slow = np.hstack([plain.z_normalized(mean, mean) for mean in means])
    assert gap(encoded(words_file, "weighting=p_mean"), slow) < TOLERANCE


def test_a_zipfian_model(words_file, counted):
    """Whitening is defined up to a rotation, so products are compared."""
    rows, sentences, probabilities = counted
    whitened = plain.zipfian_whitened(rows, probabilities)
    slow = np.array([plain.mean(whitened[words]) for words in sentences])
    fast = encoded(words_file, "zipfian=true").astype(np.float64)
    np.testing.assert_allclose(fast @ fast.T, slow @ slow.T, atol=1e-5 * np.abs(slow @ slow.T).max())
