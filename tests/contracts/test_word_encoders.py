"""Every weighting of every kind of word vectors keeps one contract, before and after it is fitted and saved."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import isosent
from isosent import GEM, SIF, USIF, Whitening
from isosent.encoders.word_average import Average, PowerMean, ZipfianWhitening
from isosent.errors import InputError

SMALL = {"n_candidates": 6, "n_removed": 3}
GEMS = {
    "gem": GEM(**SMALL),
    "gem-window": GEM(**SMALL, window=2, power=1.5, significance="window"),
    "gem-cqa": GEM(**SMALL, ranking="unweighted"),
    "gem-sir": GEM(**SMALL, removal="sir", uniqueness="scaled"),
    "gem-supervised": GEM(**SMALL, removal="none"),
    "gem-novelty": GEM(**SMALL, removal="none", scores=("novelty",)),
}
OTHERS = {
    "mean": Average(),
    "sif": SIF(),
    "sif-3": SIF(a=0.01, n_components=3),
    "sif-0": SIF(n_components=0),
    "usif": USIF(),
    "p_mean": PowerMean(),
    "p_mean-raw": PowerMean(powers=(0.5, 3.0), z_norm=False),
}
PLAIN = OTHERS | GEMS
WHITENED = {f"zipfian-{name}": ZipfianWhitening(PLAIN[name]) for name in ("mean", "usif", "gem")}
WEIGHTINGS = PLAIN | WHITENED
CASES = [
    *product(["words"], WEIGHTINGS),
    *product(["static"], ["mean", "gem", "zipfian-gem"]),
]
NEEDS_NO_CORPUS = {"mean", "p_mean-raw", "gem-novelty"}
UNFITTED = [(source, name) for source, name in CASES if name not in NEEDS_NO_CORPUS]

DIM, N_WORDS = 12, 80
WORDS = [f"w{i}" for i in range(N_WORDS)]
ODD = ["", "zebra", "  ", "zebra unicorn"]  # nothing that a vocabulary of `WORDS` knows


def made_texts(n_texts=300, seed=0):
    """Texts of frequent and rare words, with repeated words, one-word texts and doubles among them."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, N_WORDS + 1)
    lengths = rng.integers(1, 14, n_texts)
    return [" ".join(rng.choice(WORDS, length, p=shares / shares.sum())) for length in lengths]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """References of a small file of word vectors and of a small static model."""
    folder = tmp_path_factory.mktemp("sources")
    rows = np.random.default_rng(1).normal(size=(N_WORDS, DIM)) + 0.5
    lines = (f"{word} {' '.join(f'{number:.4f}' for number in row)}\n" for word, row in zip(WORDS, rows, strict=True))
    (folder / "words.txt").write_text("".join(lines))
    (folder / "static").mkdir()
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0} | {word: i for i, word in enumerate(WORDS, 1)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "static" / "tokenizer.json"))
    vectors = np.concatenate([np.ones((1, DIM)), rows]).astype(np.float32)
    save_file({"embeddings": vectors}, folder / "static" / "model.safetensors")
    (folder / "static" / "config.json").write_text(json.dumps({"normalize": False}))
    return {"words": f"words:{folder / 'words.txt'}", "static": f"static:{folder / 'static'}"}


@pytest.fixture(scope="module")
def corpus():
    return made_texts()


@pytest.fixture(scope="module")
def bare(places):
    """Open a weighting that has seen no corpus."""
    return cache(lambda source, name: isosent.load(places[source], weighting=WEIGHTINGS[name]))


@pytest.fixture(scope="module")
def fitted(bare, corpus):
    """Open a weighting and fit it, where it needs that."""

    @cache
    def fitted(source, name):
        model = bare(source, name)
        return model.fitted(corpus, transform=None) if model.encoder.needs_corpus else model

    return fitted


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    @cache
    def saved(source, name):
        folder = tmp_path_factory.mktemp("saved") / "model"
        fitted(source, name).save(folder)
        return folder

    return saved


every_case = pytest.mark.parametrize(("source", "name"), CASES)


def anew(model):
    """The same model with nothing looked up yet."""
    return pickle.loads(pickle.dumps(model))


@every_case
def test_vectors_are_finite_float32_and_zero_only_without_a_known_word(fitted, corpus, source, name):
    model = fitted(source, name)
    for texts in (corpus, []):
        vectors = model.encode(texts)
        assert (vectors.shape, vectors.dtype) == ((len(texts), model.dim), np.float32)
        assert np.isfinite(vectors).all()
        assert vectors.any(axis=1).all()
    assert not model.encode(ODD).any()


@every_case
def test_a_row_belongs_to_its_text_whatever_stands_beside_it(fitted, corpus, source, name):
    texts = [*ODD[:1], *corpus[:60], *ODD[2:3]]
    encoder = fitted(source, name).encoder
    together = anew(encoder).encode(texts)
    alone = np.concatenate([anew(encoder).encode([text]) for text in texts[:6]])
    np.testing.assert_array_equal(alone, together[:6])
    np.testing.assert_array_equal(anew(encoder).encode(texts[::-1])[::-1], together)
    model, unseen = fitted(source, name), made_texts(20, seed=7)
    alone = np.concatenate([model.encode([text]) for text in unseen])
    np.testing.assert_allclose(alone, model.encode(unseen), atol=1e-5)


@pytest.mark.parametrize("weighting", [GEM(), ZipfianWhitening(SIF())], ids=["gem", "zipfian-sif"])
def test_a_word_has_the_same_vector_wherever_it_was_first_seen(weighting, texts):
    model = isosent.load("wordllama", weighting=weighting).fitted(texts, transform=None)
    words = sorted(set(" ".join(texts).split()))[:200]
    alone = np.concatenate([model.encoder.encode([word]) for word in words])
    together = anew(model).encoder.encode(words)
    np.testing.assert_array_equal(alone, together)


@every_case
def test_the_words_add_up_to_the_vector(fitted, corpus, source, name):
    encoder = fitted(source, name).encoder
    if "p_mean" in name:
        with pytest.raises(InputError, match="p_mean"):
            encoder.summands(corpus[0])
        return
    for text in [*corpus[:20], *ODD]:
        summands, [vector] = encoder.summands(text), encoder.encode([text])
        assert len(summands.words) == len(text.split()) * (text not in ODD)
        np.testing.assert_allclose(summands.vectors.sum(axis=0), vector, atol=1e-5)


def test_words_of_a_vector_of_length_one_add_up_to_it(places, corpus):
    bare = isosent.load(places["static"], normalize=True)
    for model in (bare, bare.fitted(corpus, "mean_centering")):
        explanation = model.explain(corpus[0], corpus[1])
        assert ("(mean)" in explanation.words_a) == (model is not bare)  # the weights do not add up to one
        expected = model.similarity(corpus[0], corpus[1])[0, 0]
        assert explanation.contributions.sum() == pytest.approx(expected, abs=1e-6)


@every_case
def test_windows_of_texts_change_nothing(fitted, corpus, source, name, monkeypatch):
    texts, model = corpus[:50], fitted(source, name)
    before = anew(model).encode(texts)
    monkeypatch.setattr("isosent.encoders.base.WINDOW", 7)
    np.testing.assert_array_equal(anew(model).encode(texts), before)


@every_case
def test_the_number_of_threads_changes_nothing(fitted, corpus, source, name, monkeypatch):
    texts, model = corpus * 9, fitted(source, name)  # enough for several chunks
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = anew(model).encode(texts)
    for n_threads in ("2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        np.testing.assert_array_equal(anew(model).encode(texts), before)


@every_case
def test_several_threads_may_encode_at_once(fitted, corpus, source, name):
    texts, model = corpus, fitted(source, name)
    expected, shared = model.encode(texts), anew(model)
    starts = list(range(0, len(texts) - 40, 5)) * 2
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda start: shared.encode(texts[start : start + 40]), starts))
    for start, vectors in zip(starts, found, strict=True):
        np.testing.assert_allclose(vectors, expected[start : start + 40], rtol=0, atol=1e-6)  # a map may round by rows


@every_case
def test_whether_it_needs_a_corpus_is_known_and_it_encodes_nothing_before_that(bare, source, name):
    assert bare(source, name).encoder.needs_corpus == (name not in NEEDS_NO_CORPUS)
    if name in NEEDS_NO_CORPUS:
        return
    words = r"encode: .* with .*weighting=.* is not fitted\. .*model\.fitted"
    with pytest.raises(InputError, match=words):
        bare(source, name).encode(["w1 w2"])


@pytest.mark.parametrize(("source", "name"), [case for case in CASES if case not in UNFITTED])
def test_a_fit_of_nothing_leaves_the_model_as_it_is(bare, source, name):
    model = bare(source, name)
    assert model.fitted(["w1 w2"], transform=None) is model


@every_case
def test_a_saved_model_gives_the_same_vectors_fingerprint_and_files(fitted, saved, corpus, source, name, tmp_path):
    model, loaded, texts = fitted(source, name), isosent.load(saved(source, name)), corpus
    pickled = anew(model)
    assert loaded.fingerprint == pickled.fingerprint == model.fingerprint
    assert loaded.dim == model.dim
    np.testing.assert_allclose(loaded.encode(texts[:30]), model.encode(texts)[:30], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(pickled.encode(texts[:20]), model.encode(texts[:20]))
    isosent.load(saved(source, name)).save(tmp_path / "again")
    contents = [
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (saved(source, name), tmp_path / "again")
    ]
    assert contents[0] == contents[1]


@pytest.mark.parametrize(("source", "name"), UNFITTED)
def test_a_corpus_has_one_fingerprint_and_another_corpus_another(bare, fitted, corpus, source, name):
    again = anew(bare(source, name)).fitted(corpus, transform=None)
    assert again.fingerprint == fitted(source, name).fingerprint
    other = bare(source, name).fitted(corpus[50:], transform=None)
    assert other.fingerprint != fitted(source, name).fingerprint


@pytest.mark.parametrize(("source", "name"), UNFITTED)
def test_texts_without_a_known_word_take_no_part_in_the_fit(bare, fitted, corpus, source, name):
    with_odd = [*corpus[:100], "", *corpus[100:], ""]
    model = bare(source, name).fitted(with_odd, transform=None)
    assert (model.fits[0].n_texts, model.fits[0].n_zero_rows) == (len(corpus), 2)
    np.testing.assert_allclose(
        model.encode(corpus[:20]), fitted(source, name).encode(corpus[:20]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", [name for name in WEIGHTINGS if name not in NEEDS_NO_CORPUS])
def test_the_record_of_the_fit_tells_the_weighting(fitted, corpus, name):
    (record,) = fitted("words", name).fits
    weighting = WEIGHTINGS[name]
    plain = weighting.then if isinstance(weighting, ZipfianWhitening) else weighting
    assert record.transform == plain.name
    assert ("zipfian" in record.parameters) == (plain is not weighting)
    assert record.n_texts == len(corpus)


@pytest.mark.parametrize(
    ("name", "transform"),
    [*product(WEIGHTINGS, [Whitening(4)]), *product(["mean", "sif", "gem", "zipfian-usif"], ["auto"])],
    ids=lambda value: "whitening" if isinstance(value, Whitening) else value,
)
def test_a_transform_behind_it_folds_into_one_map(bare, fitted, corpus, name, transform):
    texts = corpus
    model = bare("words", name).fitted(texts, transform=transform)
    assert [fit.transform for fit in model.fits][:-1] == [fit.transform for fit in fitted("words", name).fits]
    expected = fitted("words", name).fitted(texts, transform=transform)
    np.testing.assert_array_equal(model.encode(texts), expected.encode(texts))
    assert not model.encode(ODD).any()
    if transform != "auto":
        theirs = Whitening(4).fit(fitted("words", name).encode(texts)).transform(fitted("words", name).encode(texts))
        np.testing.assert_allclose(model.encode(texts), theirs, atol=1e-3)


@pytest.mark.parametrize("name", ["sif", "gem", "zipfian-usif"])
def test_a_transform_behind_it_is_saved_with_it(fitted, corpus, name, tmp_path):
    texts = corpus
    model = fitted("words", name).fitted(texts, transform=Whitening(4))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(isosent.load(tmp_path / "model").encode(texts), model.encode(texts))


def test_what_belongs_to_nothing_in_the_corpus_is_a_small_share_of_the_vector(fitted, corpus):
    """The common component of the corpus is gone: no direction of it is left in the mean square."""
    vectors = fitted("words", "sif").encode(corpus).astype(np.float64)
    weighted = fitted("words", "sif").encoder.encode(corpus).astype(np.float64)
    first = np.linalg.svd(weighted)[2][0]
    assert np.abs(vectors @ first).max() < 1e-5
    np.testing.assert_allclose(vectors, weighted - np.outer(weighted @ first, first), atol=1e-5)


def test_p_mean_has_mean_0_and_deviation_1_over_its_corpus(fitted, corpus):
    vectors = fitted("words", "p_mean").encode(corpus).astype(np.float64)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.std(axis=0), 1, atol=1e-2)


def test_words_are_white_by_their_frequency(fitted, corpus):
    """Over the tokens of the corpus, mean 0 and covariance 1."""
    tokens = [word for text in corpus for word in text.split()]
    vectors = fitted("words", "zipfian-mean").encode(tokens).astype(np.float64)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors / len(tokens), np.eye(vectors.shape[1]), atol=1e-4)
