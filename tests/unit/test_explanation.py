"""A cosine as a sum over pairs of words: `SentenceEncoder.explain`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isosent
from isosent import GEM, SIF, USIF, GlowFlow, L2Normalize, LinearMap, MeanCentering, SentenceEncoder, Whitening, chain
from isosent.encoders.word_average import Average, PowerMean
from isosent.errors import InputError, InputTypeError, IsosentWarning
from isosent.explanation import MEAN, ROUNDING
from isosent.postprocessing import Postprocessing
from isosent.transforms.linear import CommonComponentRemoval
from isosent.transforms.maps import MapStep

A, B = "A man is riding an unbelievably fast Horse.", "Someone rides a horse, isn't he?"
TRANSFORMS = {
    "none": None,
    "mean": MeanCentering(),
    "whitening": Whitening(32),
    "component": CommonComponentRemoval(1),
    "unit": chain(Whitening(32), L2Normalize()),
}
WEIGHTINGS = {"mean": Average(), "sif": SIF(), "usif": USIF(), "gem": GEM(), "p_mean": PowerMean(powers=[1.0])}


@pytest.fixture(scope="module")
def models(texts):
    """Every weighting of wordllama before every transform, and with its own mean for queries."""
    queries = [f"Where can I read that {text.lower()}" for text in texts[:200]]
    fitted = {}
    for name, weighting in WEIGHTINGS.items():
        model = isosent.load("wordllama", weighting=weighting).fitted(texts, None)
        fitted |= {(name, step): model.fitted(texts, transform) for step, transform in TRANSFORMS.items()}
        fitted[name, "queries"] = model.fitted(texts, MeanCentering(), queries=queries)
    return fitted


@pytest.fixture
def words_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("bike 1 0\nbicycle 1 0.1\nparis 0 1\nfrance 0.1 1\na 0.5 0.5\nnone 0 0\n")
    return f"words:{path}"


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_the_contributions_add_up_to_the_cosine(models, texts, data):
    model = models[data.draw(st.sampled_from(sorted(models)))]
    text = st.one_of(st.sampled_from(texts), st.text(max_size=40), st.lists(st.sampled_from(A.split())).map(" ".join))
    a, b = data.draw(text), data.draw(text)
    explanation = model.explain(a, b, roles=("query", "document"))
    expected = model.similarity(model.encode_query(a), model.encode_document(b))[0, 0]
    assert explanation.contributions.dtype == np.float64
    assert explanation.contributions.shape == (len(explanation.words_a), len(explanation.words_b))
    assert explanation.contributions.sum() == pytest.approx(expected, abs=1e-6)
    assert explanation.cosine == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_words_alone_give_the_vector_but_for_rounding(models, texts, weighting):
    encoder = models[weighting, "none"].encoder
    for text in texts[:40]:
        [vector] = encoder.encode([text])
        np.testing.assert_allclose(
            encoder.summands(text).vectors.sum(axis=0), vector, atol=1e-5 * np.linalg.norm(vector)
        )


def test_a_contribution_is_the_product_of_two_words(words_file):
    model = isosent.load(words_file)
    explanation = model.explain("a bike", "bicycle")
    a, b = np.array([[0.5, 0.5], [1, 0]]) / 2, np.array([[1, 0.1]])
    lengths = np.linalg.norm(a.sum(axis=0)) * np.linalg.norm(b)
    np.testing.assert_allclose(explanation.contributions, a @ b.T / lengths, atol=1e-6)


def test_a_mean_of_words_shares_the_mean_that_is_subtracted(models):
    explanation = models["mean", "mean"].explain(A, B)
    assert MEAN not in explanation.words_a + explanation.words_b


def test_a_word_is_centered_alike_in_every_text(words_file):
    model = isosent.load(words_file)
    model = model.fitted(["a bike", "paris", "france a", "bicycle"], MeanCentering())
    products = model.explain("bike a", "paris france").contributions
    lengths = np.linalg.norm(model.encode(["bike a"])) * np.linalg.norm(model.encode(["paris france"]))
    centered = model.encode(["bike", "paris"]).astype(float)
    assert products[0, 0] * lengths * 4 == pytest.approx(centered[0] @ centered[1], abs=1e-6)


@pytest.mark.parametrize("weighting", ["sif", "usif", "gem"])
def test_other_weights_show_the_mean_as_a_word(models, weighting):
    explanation = models[weighting, "mean"].explain(A, B)
    assert explanation.words_a[-1] == explanation.words_b[-1] == MEAN
    assert MEAN not in models[weighting, "none"].explain(A, B).words_a


def test_rounding_that_a_map_enlarges_is_shown(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("a 1 0.1\nb 1 0.2\nc 1 -0.3\n")  # 0.1 + 0.2 - 0.3 is rounding alone
    enlarging = Postprocessing((MapStep(LinearMap(np.diag([1, 1e8]), np.zeros(2))),))
    model = SentenceEncoder(isosent.load(f"words:{path}").encoder, enlarging)
    explanation = model.explain("a b c", "a")
    assert explanation.words_a == ("a", "b", "c", ROUNDING)
    assert explanation.words_b == ("a",)
    assert explanation.contributions.sum() == pytest.approx(model.similarity("a b c", "a")[0, 0], abs=1e-6)


def test_queries_use_their_own_map(models):
    model = models["mean", "queries"]
    as_texts, as_query = model.explain(A, B), model.explain(A, B, roles=("query", "document"))
    assert as_texts.cosine != pytest.approx(as_query.cosine, abs=1e-3)
    assert as_query.cosine == pytest.approx(model.similarity(model.encode_query(A), model.encode_document(B))[0, 0])


def test_pieces_of_a_word_are_one_word_as_it_is_written(wordllama):
    explanation = wordllama.explain(A, B)
    assert explanation.words_a == ("A", "man", "is", "riding", "an", "unbelievably", "fast", "Horse", ".")
    assert explanation.words_b == ("Someone", "rides", "a", "horse", ",", "isn", "'", "t", "he", "?")
    others = wordllama.explain("안녕하세요 Łódź naïve 我爱你 🙂\n 3.5km", "x").words_a
    assert others == ("안녕하세요", "Łódź", "naïve", "我", "爱", "你", "🙂", "<0x0A>", "3", ".", "5km")


def test_word_vectors_show_words_as_they_are_written(words_file):
    assert isosent.load(words_file).explain("A Bike, zebra", "France").words_a == ("A", "Bike")
    split = isosent.load(words_file, tokenizer=lambda text: [word.removesuffix("s") for word in text.split()])
    assert split.explain("Bikes a", "bike").words_a == ("Bike", "a")
    kept = isosent.load(words_file, unknown="mean", lowercase=False).explain("Zebra paris", "paris")
    assert (kept.words_a, kept.words_b) == (("Zebra", "paris"), ("paris",))


@pytest.mark.parametrize(("a", "b"), [("", "bike"), ("bike", "zebra unicorn"), ("", "")])
def test_a_text_without_a_known_word_has_the_cosine_zero(words_file, a, b):
    model = isosent.load(words_file)
    for transform in (None, MeanCentering()):
        explanation = model.fitted(["a bike", "paris"], transform).explain(a, b)
        assert (explanation.cosine, explanation.contributions.sum()) == (0.0, 0.0)
        assert explanation.contributions.shape == (int(a == "bike"), int(b == "bike"))
        assert (explanation.top(), explanation.line()) == ([], "no known word")


def test_a_text_with_the_zero_vector_contributes_nothing(words_file):
    explanation = isosent.load(words_file).explain("none", "bike")
    assert explanation.contributions.tolist() == [[0.0]]


def test_the_largest_pairs_come_first_and_those_of_the_same_words_are_one(wordllama):
    explanation = wordllama.explain("A man and a horse", "a man on a horse")
    pairs = explanation.top()
    assert sum(pair.contribution for pair in pairs) == pytest.approx(explanation.cosine)
    assert len(pairs) == 4 * 4
    sizes = [abs(pair.contribution) for pair in pairs]
    assert sizes == sorted(sizes, reverse=True)
    assert {pair[:2] for pair in explanation.top(2)} == {("man", "man"), ("horse", "horse")}


def test_a_line_names_the_largest_pairs_and_adds_up(wordllama):
    explanation = wordllama.explain("A man rides a bike.", "Someone is on a bicycle.")
    first, *_, others = explanation.line(3).split(", ")
    assert first.startswith("bike ~ bicycle 0.")
    assert "other pairs" in others
    shown = sum(float(part.rsplit(" ", 1)[1]) for part in explanation.line(3).split(", "))
    assert shown == pytest.approx(explanation.cosine, abs=0.03)
    assert str(explanation) == explanation.line(5)
    assert "other" not in explanation.line(1000)


def test_the_table_has_the_words_as_labels(wordllama):
    explanation = wordllama.explain("A bike", "A bicycle on a road")
    table = explanation.to_pandas()
    assert (tuple(table.index), tuple(table.columns)) == (explanation.words_a, explanation.words_b)
    np.testing.assert_array_equal(table.to_numpy(), explanation.contributions)


def test_what_is_no_sum_over_words_is_refused(wordllama, texts, words_file, tiny_model, one_thread):
    refused = {
        "hf:": isosent.load(f"hf:{tiny_model('bert')}"),
        "flow": wordllama.fitted(texts, Whitening(4)).fitted(texts, GlowFlow(depth=1, width=4)),
        "p_mean": isosent.load(words_file, weighting=PowerMean(powers=[1.0, 3.0], z_norm=False)),
        "Fit it on texts": isosent.load(words_file, weighting=SIF()),
    }
    with pytest.warns(IsosentWarning, match="cannot be saved"):
        refused["wrapped"] = isosent.wrap(lambda texts: np.ones((len(texts), 2)))
    for reason, model in refused.items():
        with pytest.raises(InputError, match=reason):
            model.explain(A, B)


def test_bad_input_is_refused(wordllama):
    with pytest.raises(InputTypeError, match="explain"):
        wordllama.explain(A, 3)
    with pytest.raises(InputError, match="answer"):
        wordllama.explain(A, B, roles=("query", "answer"))
    with pytest.raises(InputError, match="roles"):
        wordllama.explain(A, B, roles=("query",))
    with pytest.raises(InputError, match=r"6,001 tokens.*5,000"):
        wordllama.explain(A, "one " * 6000)
