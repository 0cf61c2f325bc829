import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import isosent
from isosent import Moments, Whitening
from isosent.errors import InputError
from isosent.numeric.spectrum import mean_share, spectral_strength, spectrum
from isosent.transforms.auto import (
    candidates,
    choose_from_augmentations,
    choose_from_moments,
    choose_from_texts,
    log_odds,
    perturb,
)


@pytest.fixture(scope="module")
def badly_scaled(wordllama, texts):
    """An encoder whose vectors are drowned in a common mean and in the length of the text."""
    rng = np.random.default_rng(0)
    common, length = rng.normal(size=(2, 256))

    def encode(lines):
        vectors = wordllama.encode(lines)
        lengths = np.array([len(line) for line in lines])[:, None] / 40
        known = vectors.any(axis=1, keepdims=True)
        return ((vectors + 3 * common + 3 * length * lengths) * known).astype(np.float32)

    return encode


def test_log_odds_are_those_of_the_roc_curve():
    rng = np.random.default_rng(0)
    higher, lower = rng.normal(size=50) + 0.5, rng.normal(size=80)
    area = roc_auc_score(np.repeat([1, 0], [50, 80]), np.concatenate([higher, lower]))
    assert log_odds(higher, lower) == pytest.approx(np.log(area / (1 - area)))


def test_log_odds_of_a_perfect_order_are_finite():
    assert log_odds(np.array([1.0, 2.0]), np.array([0.0])) == pytest.approx(np.log(2))


def test_copies_are_what_they_are_called(texts):
    sample = perturb(texts)
    for row, text in enumerate(sample["text"]):
        words = text.split()
        assert sorted(f"{sample['half'][row]} {sample['other_half'][row]}".split()) == sorted(words)
        assert len(sample["content"][row].split()) < len(words)
        assert set(sample["frame"][row].split()) < set(words)
        assert sample["neighbour"][row] != text
    assert len(sample["text"]) <= 1000


def test_content_keeps_rare_words_and_frame_the_frequent_ones():
    texts = [f"the cat of number{i} and of letter{i} the end" for i in range(20)]
    sample = perturb(texts)
    for row, text in enumerate(sample["text"]):
        number = text.split()[3]
        assert number in sample["content"][row]
        assert number not in sample["frame"][row]


def test_a_neighbour_shares_rare_words():
    sample = perturb([f"word{i // 2} stands in line {i} of this" for i in range(40)])
    for text, neighbour in zip(sample["text"], sample["neighbour"], strict=True):
        assert neighbour.split()[0] == text.split()[0]


def test_neither_order_nor_repetition_of_the_texts_matters(texts):
    assert perturb(texts) == perturb([*reversed(texts), *texts])


def test_badly_scaled_vectors_are_whitened(badly_scaled, texts):
    choice = choose_from_texts(badly_scaled, texts, Moments.from_rows(badly_scaled(texts)))
    assert choice.chosen.name == "whitening"
    assert "separated related from unrelated pairs by +" in choice.reason


def test_what_is_chosen_finds_more_paraphrases(badly_scaled, texts):
    from isosent.demo import _sample
    from isosent.numeric.similarity import nearest_rows

    meanings = np.array([row["meaning"] for row in _sample()])
    vectors = badly_scaled(texts)
    chosen = (
        choose_from_texts(badly_scaled, texts, Moments.from_rows(vectors)).chosen.transform().fit_transform(vectors)
    )

    def n_found(rows):
        return (meanings[nearest_rows(rows)[0][:, 0]] == meanings).sum()

    assert n_found(chosen) > 1.5 * n_found(vectors)


def test_every_candidate_is_scored(wordllama, texts):
    choice = choose_from_texts(wordllama.encode, texts, Moments.from_rows(wordllama.encode(texts)))
    assert {scored.candidate for scored in choice.candidates} == set(candidates(256, 256))
    assert choice.chosen in candidates(256, 256)


def test_the_choice_is_the_same_twice(wordllama, texts):
    moments = Moments.from_rows(wordllama.encode(texts))
    assert choose_from_texts(wordllama.encode, texts, moments) == choose_from_texts(wordllama.encode, texts, moments)


@pytest.mark.parametrize("lines", [slice(None), slice(50)])
def test_copies_that_are_encoded_already_give_the_same_choice(badly_scaled, wordllama, texts, lines):
    some = texts[lines]
    sample = perturb(some)
    for encode in (badly_scaled, wordllama.encode):
        moments = Moments.from_rows(encode(some))
        parts = {name: encode(augmentations).astype(np.float64) for name, augmentations in sample.items()}
        chosen = choose_from_augmentations(
            parts, moments, spectrum(moments.covariance, noise=moments.rounding_variance)
        )
        assert chosen == choose_from_texts(encode, some, moments).chosen


def test_few_texts_leave_the_choice_to_the_spectrum(badly_scaled, texts):
    few = texts[:50]
    choice = choose_from_texts(badly_scaled, few, Moments.from_rows(badly_scaled(few)))
    assert choice.chosen == choose_from_moments(Moments.from_rows(badly_scaled(few))).chosen
    assert "Fewer than 100 texts" in choice.reason


def test_equal_texts_are_left_alone(wordllama):
    texts = ["the same four words"] * 200
    choice = choose_from_texts(wordllama.encode, texts, Moments.from_rows(wordllama.encode(texts)))
    assert (choice.chosen.name, choice.reason) == ("none", "the vectors are all equal: there is nothing to even out.")


@pytest.mark.parametrize(("offset", "strength", "name"), [(0.1, 0.0, "none"), (3.0, 0.5, "whitening")])
def test_the_spectrum_speaks_for_whitening_where_the_mean_is_large(offset, strength, name):
    moments = Moments.from_rows(np.random.default_rng(0).normal(size=(500, 8)) + offset)
    assert spectral_strength(moments) == strength == Whitening(strength="auto").fit_moments(moments).strength_
    assert choose_from_moments(moments).chosen.name == name


def test_the_share_of_the_mean_is_the_mean_cosine_of_unit_vectors():
    rows = np.random.default_rng(0).normal(size=(300, 8)) + 1
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert mean_share(Moments.from_rows(units)) == pytest.approx((units @ units.T).mean())


def test_candidates_are_no_wider_than_the_rank():
    assert max(candidate.n_components or 0 for candidate in candidates(384, 100)) == 100
    assert len(set(candidates(384, 100))) == len(candidates(384, 100))


def test_a_model_keeps_what_auto_weighed(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform="auto")
    model.save(tmp_path / "model")
    (fit,) = isosent.load(tmp_path / "model").fits
    assert fit.choice == json.loads(json.dumps(model.fits[0].choice))
    assert fit.choice["chosen"] in {scored["candidate"] for scored in fit.choice["candidates"]}
    assert model.record.facts()["fits"][0]["choice"] == fit.choice


def test_a_model_that_is_left_alone_gives_the_vectors_of_its_encoder(wordllama, texts, tmp_path):
    moments = Moments.from_rows(wordllama.encode(texts))
    model = wordllama.fitted_on_moments(moments, transform="auto")
    assert model.fits[0].transform == "none"
    np.testing.assert_array_equal(model.encode(texts[:9]), wordllama.encode(texts[:9]))
    model.save(tmp_path / "model")
    assert isosent.load(tmp_path / "model").fingerprint == wordllama.fingerprint


def test_another_word_than_auto_is_refused(wordllama, texts):
    with pytest.raises(InputError, match="'automatic'"):
        wordllama.fitted(texts, transform="automatic")
