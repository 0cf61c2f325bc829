import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics.pairwise import cosine_similarity

from isosent.errors import EvaluationWarning, InputError
from isosent.io.pairs import ScoredPairs
from isosent.training.development import check_dev_set, dev_evaluator, score_pairs, score_trained

TEXTS = [f"text {number}" for number in range(12)]
PAIRS = ScoredPairs("pairs", tuple(TEXTS[:8]), tuple(TEXTS[(3 * row + 5) % 12] for row in range(8)), np.arange(8.0) % 5)


def vectors_of(texts):
    return np.stack([np.random.default_rng(int(text.split()[1])).standard_normal(6) for text in texts])


def test_scores_are_those_of_scipy():
    found = score_pairs(vectors_of, PAIRS)
    cosines = np.diag(cosine_similarity(vectors_of(PAIRS.first), vectors_of(PAIRS.second)))
    assert found.spearman == pytest.approx(spearmanr(cosines, PAIRS.scores).statistic)
    assert found.pearson == pytest.approx(pearsonr(cosines, PAIRS.scores).statistic)
    assert found.n_pairs == 8


def test_each_text_is_encoded_once():
    calls = []
    score_pairs(lambda texts: calls.append(texts) or vectors_of(texts), PAIRS)
    assert len(calls) == 1
    assert sorted(calls[0]) == sorted({*PAIRS.first, *PAIRS.second})


def test_a_model_of_isosent_is_scored(wordllama, texts):
    devset = ScoredPairs("demo", texts[:20], texts[20:40], np.arange(20.0))
    assert -1 <= score_pairs(wordllama.encode, devset).spearman <= 1


@pytest.mark.parametrize(
    ("vector", "says"), [(1.0, "every cosine is the same"), (np.nan, "some vectors are not finite")]
)
def test_an_undefined_score_is_nan_and_said(vector, says):
    with pytest.warns(EvaluationWarning, match=f"development set pairs: {says}"):
        found = score_pairs(lambda texts: np.full((len(texts), 3), vector), PAIRS)
    assert math.isnan(found.spearman)
    assert math.isnan(found.pearson)


def test_scores_that_are_all_the_same_are_said():
    with pytest.warns(EvaluationWarning, match="every score is 3; no correlation"):
        check_dev_set(ScoredPairs("flat", TEXTS[:3], TEXTS[3:6], [3.0, 3.0, 3.0]))


@pytest.mark.parametrize(
    ("first", "scores", "says"),
    [
        (TEXTS[:2], [1.0, 2.0, 3.0], "one entry per pair, for at least two pairs; got 2, 3"),
        (TEXTS[:3], [1.0, 2.0], "one entry per pair"),
        (TEXTS[:3], [1.0, np.nan, 3.0], "row 1 of scores, counted from 0, holds NaN"),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(first, scores, says):
    with pytest.raises(InputError, match=f"development set d.*{says}"):
        check_dev_set(ScoredPairs("d", first, TEXTS[3:6], scores))


def test_another_number_of_vectors_is_refused():
    with pytest.raises(InputError, match="expected 10 rows of vectors, found 3"):
        score_pairs(lambda texts: np.eye(3), PAIRS)


@pytest.fixture(scope="module")
def model():
    """Draws random numbers in evaluation mode, too; one of its modules is kept in evaluation mode on purpose."""
    torch, library = pytest.importorskip("torch"), pytest.importorskip("sentence_transformers")

    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.trained = torch.nn.Dropout(), torch.nn.Linear(3, 3)

        def preprocess(self, inputs, prompt=None, **kwargs):
            return {"lengths": torch.tensor([[float(len(text)), 1.0, float(text.split()[1])] for text in inputs])}

        def forward(self, features, **kwargs):
            noise = torch.rand(features["lengths"].shape)
            return {"sentence_embedding": self.frozen(self.trained(features["lengths"])) + noise}

    model = library.SentenceTransformer(modules=[Noisy()], device="cpu")
    model.train()
    model[0].frozen.eval()
    return model


def test_training_goes_on_undisturbed(model):
    torch = pytest.importorskip("torch")
    state, modes = torch.random.get_rng_state(), [module.training for module in model.modules()]
    score_trained(model, PAIRS)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert {True, False} == set(modes)


def test_modes_are_put_back_after_an_error(model, monkeypatch):
    modes = [module.training for module in model.modules()]
    monkeypatch.setattr(model[0], "forward", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        score_trained(model, PAIRS)
    assert [module.training for module in model.modules()] == modes


def test_the_evaluator_tells_the_trainer_and_the_recorder(model):
    told = []
    evaluator = dev_evaluator(PAIRS, report=lambda *of: told.append(of))
    metrics = evaluator(model, output_path=None, epoch=0.5, steps=7)
    assert evaluator.primary_metric == "spearman"
    assert evaluator.greater_is_better
    assert [step for step, _ in told] == [7]
    assert metrics == {"spearman": told[0][1].spearman, "pearson": told[0][1].pearson}
