import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

import isosent
from isosent import Whitening
from isosent.demo import _sample
from isosent.errors import InputError
from isosent.numeric.neighbors import nearest_rows
from isosent.numeric.similarity import unit_rows
from isosent.transforms import agreement, auto
from isosent.transforms.agreement import sample_pairs, topical_agreement, topics_of_neighbors, words_of
from isosent.transforms.auto import STRENGTHS, Candidate, ScoredCandidate, TopicalGain, choose_from_texts, pick
from isosent.transforms.base import Auto, resolve_transform


@pytest.fixture(scope="module")
def well_scaled(wordllama, texts):
    return wordllama.encode(texts)


@pytest.fixture(scope="module")
def badly_scaled(well_scaled, texts):
    """Vectors drowned in a common mean and in the length of the text."""
    common, length = np.random.default_rng(0).normal(size=(2, 256))
    lengths = np.array([len(text) for text in texts])[:, None] / 40
    return (well_scaled + 3 * common + 3 * length * lengths).astype(np.float32)


def chosen_for(vectors, texts, width=None, purpose=None):
    """The choice, made without a warning of numpy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return choose_from_texts(vectors, texts, Auto(width, purpose))


# the choice


def test_badly_scaled_vectors_are_whitened(badly_scaled, texts):
    choice = chosen_for(badly_scaled, texts)
    assert choice.chosen.name == "whitening"
    assert choice.reason.startswith(
        f"Whiten with strength {choice.chosen.strength:g}. Pairs of texts are ranked better: +"
    )


def test_what_is_chosen_finds_more_paraphrases(badly_scaled, texts):
    meanings = np.array([row["meaning"] for row in _sample()])

    def n_found(rows):
        return (meanings[nearest_rows(rows)] == meanings).sum()

    transform = chosen_for(badly_scaled, texts).chosen.transform()
    assert n_found(transform.fit_transform(badly_scaled)) > 1.5 * n_found(badly_scaled)


def test_well_scaled_vectors_are_left_alone(well_scaled, texts):
    choice = chosen_for(well_scaled, texts)
    assert choice.chosen == Candidate()
    assert choice.reason.startswith("Keep these vectors unchanged.")


def scored(gains, low=0.001, topics=(0.02,) * 5, topics_low=0.001):
    """Centering and four strengths, with these gains of both signals."""
    names = [Candidate("mean_centering"), *(Candidate("whitening", g, 8) for g in STRENGTHS)]
    lows = np.broadcast_to(low, 5).tolist()
    of_topics = [None if topics is None else TopicalGain(0.3, gain, topics_low, 1.0) for gain in topics or [None] * 5]
    return [
        ScoredCandidate(name, 0.3, gain, low_end, 1.0, gain_in_topics)
        for name, gain, low_end, gain_in_topics in zip(names, gains, lows, of_topics, strict=True)
    ]


@pytest.mark.parametrize(
    ("gains", "low", "evenness", "strength"),
    [
        # the strongest of those that gain nearly as much as the best
        ((0.001, 0.010, 0.030, 0.028, 0.020), 0.001, 0.5, 0.75),
        ((0.001, 0.010, 0.030, 0.028, 0.020), (0.001, 0.001, 0.001, -0.001, 0.001), 0.5, 0.5),
        ((0.001, 0.001, 0.002, 0.003, 0.050), 0.001, 0.5, 1.0),
        ((0.001, 0.050, 0.010, 0.000, -0.10), 0.001, 0.5, 0.25),
        ((0.050, 0.010, 0.010, 0.000, -0.10), 0.001, 0.5, "centering"),
        ((0.001, 0.010, 0.030, 0.025, 0.020), -0.001, 0.5, None),
        ((0.001, 0.010, 0.015, 0.010, 0.000), 0.001, 0.5, None),
        ((0.001, 0.010, 0.015, 0.010, 0.000), 0.001, 0.7, 0.25),  # vectors that are spread evenly
        ((0.001, 0.010, 0.015, 0.010, 0.000), -0.001, 0.7, None),
    ],
)
def test_the_rule_for_pairs_looks_at_pairs_alone(gains, low, evenness, strength):
    picked = pick(scored(gains, low, topics=(-0.1,) * 5, topics_low=-0.2), "pairs", evenness=evenness)
    assert (picked and (picked.candidate.strength or str(picked.candidate))) == strength


@pytest.mark.parametrize("purpose", ["topics", "search"])
@pytest.mark.parametrize(
    ("topics", "low", "strength"),
    [
        ((0.005, 0.016, 0.020, 0.005, -0.05), 0.001, 0.5),
        ((0.020, 0.005, -0.01, -0.02, -0.05), 0.001, "centering"),
        ((0.005, 0.006, 0.008, 0.009, -0.05), 0.001, None),  # too little
        ((0.005, 0.016, 0.020, 0.005, -0.05), -0.001, None),  # not beyond chance
        (None, 0.0, None),
    ],
)
def test_the_rules_for_topics_and_search_look_at_topics_alone(purpose, topics, low, strength):
    picked = pick(scored((-0.1,) * 5, -0.2, topics, low), purpose, evenness=0.7)
    assert (picked and (picked.candidate.strength or str(picked.candidate))) == strength


@pytest.mark.parametrize(
    ("gains", "topics", "strength"),
    [
        ((0.001, 0.030, 0.050, 0.055, 0.02), (0.005, 0.016, 0.017, 0.012, -0.05), 0.5),
        ((0.001, 0.030, 0.050, 0.055, 0.02), (0.005, 0.004, -0.02, -0.04, -0.05), None),  # pairs gain, topics lose
        ((-0.01, -0.01, -0.02, -0.03, -0.04), (0.005, 0.016, 0.017, 0.012, -0.05), None),  # topics gain, pairs lose
        ((0.001, 0.030, 0.050, 0.055, 0.02), None, None),
    ],
)
def test_by_default_both_signals_must_gain(gains, topics, strength):
    candidates = [
        replace(each, low=each.gain - 0.001, topics=each.topics and replace(each.topics, low=each.topics.gain - 0.001))
        for each in scored(gains, topics=topics)
    ]
    picked = pick(candidates, None, evenness=0.7)
    assert (picked and picked.candidate.strength) == strength


@pytest.mark.parametrize(("dim", "seed"), [(8, 0), (8, 1), (8, 2), (600, 0)])
def test_noise_is_left_alone_even_with_fewer_rows_than_dimensions(texts, seed, dim):
    choice = chosen_for(np.random.default_rng(seed).normal(size=(len(texts), dim)), texts)
    assert choice.chosen == Candidate()
    assert min(scored.low for scored in choice.candidates) < 0


def test_every_strength_is_measured_on_the_half_that_it_was_not_fitted_on(badly_scaled, texts):
    choice = chosen_for(badly_scaled, texts, 32)
    first, *whitenings = choice.candidates
    assert [str(first.candidate), *(scored.candidate.strength for scored in whitenings)] == [
        "principal components (32 dimensions)",
        *STRENGTHS,
    ]
    assert "than by PCA alone" in choice.reason
    for scored in choice.candidates:
        agreements = []
        for half in sample_pairs(texts):
            transform = Whitening(32, strength=scored.candidate.strength or 0.0).fit(badly_scaled[half.other_rows])
            units = unit_rows(transform.transform(badly_scaled).astype(np.float64))
            agreements.append(spearmanr((units[half.first] * units[half.second]).sum(axis=1), half.overlap).statistic)
        assert scored.agreement == pytest.approx(np.mean(agreements), abs=1e-3)
        assert scored.gain == scored.agreement - first.agreement


def test_intervals_contain_the_gain(well_scaled, badly_scaled, texts):
    for vectors in (well_scaled, badly_scaled):
        first, *others = chosen_for(vectors, texts).candidates
        assert first.low == first.gain == first.high == 0
        assert all(scored.low < scored.gain < scored.high for scored in others)


def test_neither_order_nor_repetition_of_the_texts_matters(badly_scaled, texts):
    rows = np.random.default_rng(1).permutation(len(texts)).tolist()
    rows += rows[:100] * 3
    again = chosen_for(badly_scaled[rows], [texts[row] for row in rows])
    choice = chosen_for(badly_scaled, texts)
    assert again.chosen == choice.chosen
    for scored, other in zip(choice.candidates, again.candidates, strict=True):
        assert (other.agreement, other.low, other.high) == pytest.approx((scored.agreement, scored.low, scored.high))


def test_what_is_chosen_on_few_texts_blows_up_no_axis(badly_scaled, texts):
    few = badly_scaled[:120]
    whitening = chosen_for(few, texts[:120]).chosen.transform()
    assert whitening.shrinkage == "oas"
    scales = np.linalg.svd(whitening.fit(few).linear_map_.weight, compute_uv=False)
    plain = Whitening(100, strength=whitening.strength).fit(few).linear_map_.weight
    assert scales.max() < np.linalg.svd(plain, compute_uv=False).max()


# what cannot be measured

DISTINCT = [f"text {number} of number{number % 7} and {number % 5}" for number in range(100)]


@pytest.mark.parametrize(
    ("vectors", "texts", "words"),
    [
        (np.eye(30), DISTINCT[:30], "Not enough texts to decide (30; at least 100 different ones are needed)"),
        (np.eye(2), DISTINCT[:2], "Not enough texts to decide (2; at least 100 different ones are needed)"),
        (np.eye(1), DISTINCT[:1], "equal"),
        (np.eye(100), ["the same words"] * 100, "equal"),
        (np.ones((100, 4)), DISTINCT, "equal"),
        (np.zeros((100, 4)), DISTINCT, "equal"),
        (
            np.eye(100)[:, :30],
            DISTINCT,
            "Not enough texts to decide (30; at least 100 different ones are needed)",
        ),  # the others have no vector
        (np.eye(100), ["!" * number for number in range(1, 101)], "Too few pairs"),
        (np.eye(100), [f"word{number}" for number in range(100)], "could not be measured"),
        (np.eye(100), DISTINCT, "could not be measured"),  # every cosine is 0
    ],
)
@pytest.mark.parametrize("width", [None, 1])
def test_where_nothing_can_be_measured_nothing_is_whitened(vectors, texts, words, width):
    choice = chosen_for(vectors, texts, width)
    assert choice.chosen.name != "whitening"
    assert choice.candidates == () or words == "could not be measured"
    if width is None:
        assert choice.chosen == Candidate()
        assert words in choice.reason
        assert "unchanged" in choice.reason


@pytest.mark.parametrize("n_outliers", range(1, 12))
def test_a_reason_never_says_nan(n_outliers):
    vectors = np.ones((100, 4))
    vectors[np.random.default_rng(0).permutation(100)[:n_outliers], 0] = 2
    choice = chosen_for(vectors, DISTINCT)
    assert "nan" not in choice.reason
    assert choice.chosen == Candidate()


# the texts


def test_pairs_are_of_one_half_and_their_overlap_is_the_cosine_of_tfidf(texts):
    pairs = sample_pairs(texts)
    units = TfidfVectorizer(analyzer=words_of, sublinear_tf=True).fit_transform(texts)
    for half, other in (pairs, pairs[::-1]):
        assert {*half.first, *half.second} == {*other.other_rows}
        assert sorted([*half.other_rows, *other.other_rows]) == list(range(len(texts)))
        assert (half.first != half.second).all()
        cosines = np.asarray(units[half.first].multiply(units[half.second]).sum(axis=1)).ravel()
        np.testing.assert_allclose(half.overlap, cosines, atol=1e-12)


def test_the_nearest_texts_are_among_the_pairs():
    half, _ = sample_pairs([f"rare{number // 8} number{number} of this and that" for number in range(400)])
    same = half.first // 8 == half.second // 8
    assert half.overlap[same].min() > half.overlap[~same].max()
    assert same.mean() > 0.25


def test_near_duplicates_are_not_used_as_pairs():
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{word}" for word in rng.integers(300, size=12)) for _ in range(200)]
    doubled = [line + end for line in lines for end in ("", " more")]
    for half in sample_pairs(doubled):
        assert (half.overlap > 0.8).mean() < 0.02  # random pairs
        assert ((half.overlap > 0) & (half.overlap < 0.8)).mean() > 0.5


def test_long_lists_are_sampled(monkeypatch, texts):
    monkeypatch.setattr(agreement, "_MOST_TEXTS", 200)
    monkeypatch.setattr(agreement, "MOST_QUERIES", 30)
    for half in sample_pairs(texts):
        assert len(half.other_rows) == 100
        assert len(np.unique(half.first)) == 30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World_1 x!", ["hello", "world_1", "x"]),
        ("나는 학교에 간다", ["나는", "학교에", "간다"]),
        ("Où est-il ?", ["où", "est", "il"]),
        ("我喜欢猫。", ["我喜", "喜欢", "欢猫"]),
        ("我有2只猫", ["我有", "2", "只猫"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("รักแมว", ["รั", "ัก", "กแ", "แม", "มว"]),
        ("猫", ["猫"]),
        (" !? ", []),
    ],
)
def test_words(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize("first", "一あก가a", ids=["chinese", "japanese", "thai", "korean", "latin"])
def test_every_script_gets_a_choice(first):
    rng = np.random.default_rng(0)
    space = " " if first in "가a" else ""
    words = rng.integers(40, size=(400, 6))
    letters = [
        [chr(ord(first) + 26 * (word % 2) // 26 + word % 25) + chr(ord(first) + word // 25) for word in line]
        for line in words
    ]
    vectors = rng.normal(size=(40, 16))[words].sum(axis=1)
    vectors[:, 0] *= 100
    choice = chosen_for(vectors, [space.join(line) for line in letters])
    assert choice.chosen.name == "whitening"


# topics


def test_topical_agreement_is_that_of_latent_semantic_analysis(well_scaled, texts):
    vectors = well_scaled.copy()
    vectors[[3, 50]] = 0  # neither queries nor neighbors
    halves = [half.rows for half in sample_pairs(texts)]
    order = np.concatenate(halves)
    tfidf = TfidfVectorizer(analyzer=words_of, sublinear_tf=True, min_df=2).fit_transform(texts[row] for row in order)
    left, singular, _ = np.linalg.svd(tfidf.toarray(), full_matrices=False)
    topics = np.zeros((len(texts), 100))
    topics[order] = normalize(left[:, :100] * singular[:100])
    expected = []
    for rows in halves:
        used = rows[vectors[rows].any(axis=1)]
        near = NearestNeighbors(n_neighbors=10, metric="cosine").fit(vectors[used])
        values = (topics[used][:, None] * topics[used[near.kneighbors(return_distance=False)]]).sum(axis=2).mean(axis=1)
        expected += [dict(zip(used, values, strict=True)).get(row, np.nan) for row in rows]
    found = topical_agreement(vectors, texts)
    assert np.isnan(found).sum() == 2
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_neighbors_in_topic_are_those_of_the_same_group():
    topics = np.eye(2, dtype=np.float32)[[0, 1] * 20]
    rows = np.random.default_rng(0).normal(size=(40, 4))
    groups = np.array([0, 1] * 20)
    np.testing.assert_allclose(topics_of_neighbors(rows, topics, groups=groups), 1)
    alone = np.array([0] * 39 + [1])
    assert np.isnan(topics_of_neighbors(rows, topics, groups=alone)[39])


def test_texts_without_a_shared_word_have_no_topics():
    lines = [f"first{number} second{number}" for number in range(200)]
    assert topical_agreement(np.eye(200), lines) is None
    assert topical_agreement(np.eye(2), lines[:2]) is None


@pytest.mark.parametrize(
    ("purpose", "strength", "words"),
    [
        (
            None,
            None,
            "For pairs of texts alone: whiten with strength 0.75 (+0.055); for topics, .* would cost (-0.040, ",
        ),
        ("pairs", 0.75, "Pairs of texts are ranked better: +0.055 "),
        ("topics", None, "too little (+0.005, 95% interval 0.004 to 0.006; the limit is 0.01)"),
        ("search", None, "too little (+0.005, "),
    ],
)
def test_the_recommendation_says_what_for(monkeypatch, well_scaled, texts, purpose, strength, words):
    measured = [
        replace(
            each, low=each.gain - 0.001, topics=replace(each.topics, low=gain - 0.001, high=gain + 0.001, gain=gain)
        )
        for each, gain in zip(
            scored((0.001, 0.030, 0.050, 0.055, 0.02)), (0.005, 0.004, -0.02, -0.04, -0.05), strict=True
        )
    ]
    monkeypatch.setattr(auto, "_scored", lambda *_: (ScoredCandidate(Candidate(), 0.3, 0.0, 0.0, 0.0), *measured))
    choice = chosen_for(well_scaled, texts, purpose=purpose)
    assert choice.chosen.strength == strength
    assert choice.reason.startswith("Keep these" if strength is None else f"Whiten with strength {strength:g}. ")
    assert all(part in choice.reason for part in words.split(" .* "))
    assert choice.to_json()["purpose"] == purpose


@pytest.mark.parametrize("how", [{"settings": {"purpose": "topic"}}, {"transform": "auto?purpose=topic"}])
def test_another_purpose_is_refused(wordllama, texts, how):
    with pytest.raises(InputError, match=r"purpose must be one of pairs, topics, search; got 'topic'"):
        wordllama.fitted(texts, **how)


def test_a_purpose_is_kept_with_the_model(wordllama, texts):
    model = wordllama.fitted(texts, settings={"purpose": "topics"})
    assert model.fits[0].choice["purpose"] == "topics"
    assert resolve_transform("auto?purpose=search&dims=8", dim=256) == Auto(8, "search")


def test_after_erasing_the_mean_is_subtracted(wordllama, texts):
    language = ["a", "b"] * (len(texts) // 2)
    shift = np.where(np.array(language) == "a", 1.0, -1.0)[:, None] * np.random.default_rng(0).normal(size=256)
    encoded = (wordllama.encode(texts) + 2 * shift + 3).astype(np.float32)
    model = wordllama.fitted(texts, erase={"lang": language}, encoded=encoded)
    assert [fit.transform for fit in model.fits] == ["erasure", "mean_centering"]
    mapped = model.transform(encoded)
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-4)
    means = [mapped[np.array(language) == each].mean(axis=0) for each in "ab"]
    np.testing.assert_allclose(*means, atol=0.02)


# the width


@pytest.mark.parametrize("width", [32, np.int64(32), 0.5, "auto", 1])
def test_a_width_is_kept(well_scaled, badly_scaled, texts, width):
    for vectors in (well_scaled, badly_scaled) if width == "auto" else (badly_scaled,):
        choice = chosen_for(vectors, texts, width)
        expected = isosent.PrincipalComponents(width).fit(vectors).n_components_
        assert {scored.candidate.n_components for scored in choice.candidates} == {expected}
        assert choice.chosen.transform().fit_transform(vectors).shape == (480, expected)
        assert f"{expected} dimension" in choice.reason


@pytest.mark.parametrize("width", [257, 0, -1, 1.5, True, "half"])
def test_a_width_that_cannot_be_is_refused_with_one_sentence(wordllama, texts, width):
    for how in ({"settings": {"n_components": width}}, {"transform": Auto(width)}):
        with pytest.raises(InputError, match=rf"n_components .* got {width!r}\.$"):
            wordllama.fitted(texts, **how)


@pytest.mark.parametrize("name", ["auto?dims=32", "auto?n_components=32"])
def test_the_width_may_stand_behind_the_name(name):
    assert resolve_transform(name, dim=256) == Auto(32)
    assert resolve_transform(name, {"n_components": 0.5}, dim=256) == Auto(0.5)


def test_auto_takes_no_other_setting(wordllama, texts):
    for name, settings in (("auto?strength=1", None), ("auto", {"strength": 1.0})):
        with pytest.raises(
            InputError,
            match=r"auto has no option strength\. It chooses all but the dimensions and the purpose",
        ):
            wordllama.fitted(texts, name, settings=settings)
    with pytest.raises(InputError, match="n_components"):
        wordllama.fitted(texts, Auto(8), settings={"n_components": 16})


# the model


def test_without_texts_only_the_width_is_applied(wordllama, texts, badly_scaled):
    model = wordllama.fitted_on_vectors(badly_scaled)
    assert model.fits[0].transform == "none"
    assert "without texts" in model.fits[0].choice["reason"]
    np.testing.assert_array_equal(model.encode(texts[:9]), wordllama.encode(texts[:9]))
    by_auto = wordllama.fitted_on_vectors(badly_scaled, settings={"n_components": 64})
    about_zero = "principal_components?center=false"
    by_name = wordllama.fitted_on_vectors(badly_scaled, about_zero, settings={"n_components": 64})
    assert by_auto.fits[0].transform == "principal_components"
    assert "without centering" in by_auto.fits[0].choice["chosen"]  # which keeps more neighbors of these vectors
    assert by_auto.fingerprint == by_name.fingerprint


def test_a_fit_uses_each_distinct_text_once(wordllama, texts):
    once, often = (wordllama.fitted(listed, "auto?dims=16") for listed in (texts, [*texts, *texts[:100] * 5]))
    assert often.fits[0].n_texts == 480
    assert often.fingerprint == once.fingerprint


def test_a_model_keeps_what_auto_compared(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts)
    model.save(tmp_path / "model")
    (fit,) = isosent.load(tmp_path / "model").fits
    assert fit.choice == json.loads(json.dumps(model.fits[0].choice, allow_nan=False))
    assert fit.choice.keys() == {"chosen", "reason", "purpose", "candidates"}
    assert fit.choice["chosen"] in {scored["candidate"] for scored in fit.choice["candidates"]}
    for scored in fit.choice["candidates"]:
        assert scored.keys() == {
            *("candidate", "name", "strength", "n_components"),
            *("agreement", "gain", "low", "high"),
            "topics",
        }
    assert model.record.facts()["fits"][0]["choice"] == fit.choice
    assert isosent.load(tmp_path / "model").fingerprint == wordllama.fingerprint


def test_another_word_than_auto_is_refused(wordllama, texts):
    with pytest.raises(InputError, match="'automatic'"):
        wordllama.fitted(texts, transform="automatic")


@pytest.mark.parametrize("candidates", [5, None, [1], [{}], [{"candidate": "x", "name": "whitening", "gain": "a"}]])
def test_a_choice_that_was_altered_by_hand_says_nothing(candidates):
    assert auto.note_for({"chosen": "x", "reason": "y", "purpose": "topics", "candidates": candidates}, "pairs") is None


def test_a_note_says_what_a_transform_does_for_another_purpose():
    tried = {"candidate": "x", "name": "whitening", "gain": -0.25, "low": -0.5, "high": -0.125}
    note = auto.note_for({"chosen": "x", "reason": "y", "purpose": "topics", "candidates": [tried]}, "pairs")
    assert "it costs (-0.250, 95% interval -0.500 to -0.125)" in note
