"""The objectives are the formulas of Reimers & Gurevych 2019, section 3, on numbers that can be followed by hand."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer  # noqa: E402
from sentence_transformers.sentence_transformer import losses, modules  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from tokenizers.pre_tokenizers import Whitespace  # noqa: E402

from isosent.errors import InputError  # noqa: E402
from isosent.numeric import spectrum  # noqa: E402
from isosent.training.objectives import (  # noqa: E402
    REGULARIZATIONS,
    make_loss,
    regularization,
    sphericity,
    uniformity,
)
from isosent.training.settings import CONCATENATIONS, TrainingSettings  # noqa: E402

WORDS = list("abcdefgh")


class Trainer(SentenceTransformerTrainer):
    """A trainer of nothing, for its methods."""

    def __init__(self):
        pass


def table(vectors, dtype=torch.float64):
    """A model that gives the word ``a`` the first vector, ``b`` the second, and so on."""
    vocabulary = {word: row for row, word in enumerate(WORDS[: len(vectors)])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="a"))
    tokenizer.pre_tokenizer = Whitespace()
    static = modules.StaticEmbedding(tokenizer, embedding_weights=torch.tensor(vectors, dtype=torch.float32))
    return SentenceTransformer(modules=[static], device="cpu").to(dtype)


def loss_of(model, columns, labels=None, *, n_classes=None, head=None, **settings):
    loss = make_loss(model, TrainingSettings(**settings), n_classes=n_classes)
    if head is not None:
        loss.classifier.weight.data = torch.tensor(head, dtype=torch.float64)
        loss.classifier.bias.data.zero_()
    labels = None if labels is None else torch.tensor(labels)
    return loss([model.preprocess(column) for column in columns], labels).item()


def test_regression_is_the_squared_gap_of_cosine_and_gold():
    model = table([[3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [0.0, 2.0]])
    # cos(a, b) = (12 + 12) / (5 * 5) = 0.96 against 0.5; cos(c, d) = 0 against 0.25
    expected = ((0.96 - 0.5) ** 2 + (0.0 - 0.25) ** 2) / 2
    got = loss_of(model, [["a", "c"], ["b", "d"]], [0.5, 0.25], objective="regression")
    assert got == pytest.approx(expected, abs=1e-12)


def test_triplet_is_a_hinge_of_euclidean_distances():
    model = table([[0.0, 0.0], [3.0, 4.0], [0.0, 5.5], [0.0, 9.0]])
    # |a - b| = 5, |a - c| = 5.5: max(5 - 5.5 + 1, 0) = 0.5; |a - d| = 9: max(5 - 9 + 1, 0) = 0
    got = loss_of(model, [["a", "a"], ["b", "b"], ["c", "d"]], objective="triplet")
    assert got == pytest.approx((0.5 + 0.0) / 2, abs=1e-12)


def test_triplet_takes_another_margin():
    model = table([[0.0, 0.0], [3.0, 4.0], [0.0, 5.5]])
    got = loss_of(model, [["a"], ["b"], ["c"]], objective="triplet", margin=3.0)
    assert got == pytest.approx(5 - 5.5 + 3, abs=1e-12)


def test_classification_is_cross_entropy_of_u_v_and_their_distance():
    model = table([[1.0, 2.0], [4.0, -2.0]])
    # (u, v, |u - v|) = (1, 2, 4, -2, 3, 4); two classes
    head = [[1.0, 0, 0, 0, 1.0, 0], [0, 1.0, 0, 0, 0, -0.25]]
    # scores: 1 + 3 = 4 and 2 - 1 = 1; label 1: -log(e / (e^4 + e))
    expected = -math.log(math.e / (math.e**4 + math.e))
    got = loss_of(model, [["a"], ["b"]], [1], n_classes=2, head=head)
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("concatenation", "features"),
    [
        ("u,v", [1, 2, 4, -2]),
        ("|u-v|", [3, 4]),
        ("u*v", [4, -4]),
        ("|u-v|,u*v", [3, 4, 4, -4]),
        ("u,v,u*v", [1, 2, 4, -2, 4, -4]),
        ("u,v,|u-v|", [1, 2, 4, -2, 3, 4]),
        ("u,v,|u-v|,u*v", [1, 2, 4, -2, 3, 4, 4, -4]),
    ],
)
def test_the_seven_concatenations(concatenation, features):
    model = table([[1.0, 2.0], [4.0, -2.0]])
    weights = np.linspace(-0.2, 0.3, 2 * len(features)).reshape(2, -1)
    scores = weights @ features
    expected = math.log(np.exp(scores).sum()) - scores[0]
    got = loss_of(model, [["a"], ["b"]], [0], n_classes=2, head=weights.tolist(), concatenation=concatenation)
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("concatenation", CONCATENATIONS)
def test_swapped_columns_are_seen_where_the_two_embeddings_stand_side_by_side(concatenation):
    torch.manual_seed(3)
    model = table([[1.0, 2.0], [4.0, -2.0], [0.5, 1.5]])
    loss = make_loss(model, TrainingSettings(concatenation=concatenation), n_classes=3)
    first, second, labels = ["a", "b"], ["b", "c"], torch.tensor([0, 2])
    straight, swapped = (
        loss([model.preprocess(column) for column in columns], labels).item()
        for columns in ((first, second), (second, first))
    )
    sees_the_order = "u" in concatenation.split(",")
    assert (abs(straight - swapped) > 1e-3) == sees_the_order
    assert straight == pytest.approx(swapped, abs=1e-15) or sees_the_order


@pytest.mark.parametrize("mini_batch", [None, 1, 2])
def test_ranking_is_cross_entropy_of_the_own_positive_among_all(mini_batch, bert):
    columns = [["a dog", "the red river"], ["the man", "a horse in the park"]]
    u, v = (bert.encode(column, convert_to_tensor=True, normalize_embeddings=True) for column in columns)
    scores = (7.0 * u @ v.T).tolist()
    expected = sum(math.log(sum(map(math.exp, row))) - row[i] for i, row in enumerate(scores)) / 2
    got = loss_of(bert, columns, objective="ranking", scale=7.0, mini_batch=mini_batch)
    assert got == pytest.approx(expected, abs=1e-10)


def test_ranking_takes_negatives_beside_the_positives():
    model = table([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
    # cosines of a with its positive c and its negative b: 0.6 and 0
    got = loss_of(model, [["a"], ["c"], ["b"]], objective="ranking", scale=10.0)
    assert got == pytest.approx(math.log(math.exp(6) + math.exp(0)) - 6, abs=1e-12)


def test_matryoshka_adds_the_objective_of_leading_dimensions():
    model = table([[3.0, 4.0], [4.0, 3.0]])
    # two dimensions: cosine 0.96; the first alone: cosine 1; gold 0.5
    got = loss_of(model, [["a"], ["b"]], [0.5], objective="regression", matryoshka=(1,))
    assert got == pytest.approx(0.46**2 + 0.5**2, abs=1e-12)


def test_matryoshka_leaves_distances_as_long_as_they_are():
    model = table([[0.0, 0.0], [3.0, 4.0], [0.0, 5.5]])
    # two dimensions: 5 - 5.5 + 1; the first alone: 3 - 0 + 1
    got = loss_of(model, [["a"], ["b"], ["c"]], objective="triplet", matryoshka=(1,))
    assert got == pytest.approx(0.5 + 4, abs=1e-12)


def test_matryoshka_of_classification_has_a_head_for_each_width():
    model = table([[1.0, 2.0, 3.0], [4.0, -2.0, 0.0]])
    loss = make_loss(model, TrainingSettings(matryoshka=(1, 2)), n_classes=3)
    assert [part.classifier.in_features for part in loss.losses] == [9, 6, 3]


@pytest.mark.parametrize("objective", ["regression", "ranking", "cached"])
def test_matryoshka_of_cosines_is_that_of_sentence_transformers(objective, bert):
    columns, labels = [["a dog", "the red river"], ["the man", "a horse"]], torch.tensor([0.25, 1.0])
    theirs = {
        "regression": losses.CosineSimilarityLoss,
        "ranking": losses.MultipleNegativesRankingLoss,
        "cached": losses.CachedMultipleNegativesRankingLoss,
    }[objective](bert)
    settings = {"objective": "ranking", "mini_batch": 1} if objective == "cached" else {"objective": objective}
    ours = make_loss(bert, TrainingSettings(matryoshka=(8, 16), **settings))
    values, gradients = [], []
    for loss in (ours, losses.MatryoshkaLoss(bert, theirs, [24, 16, 8])):
        bert.zero_grad()
        value = loss([bert.preprocess(column) for column in columns], labels)
        value.backward()
        values.append(value.item())
        gradients.append(torch.cat([p.grad.flatten() for p in bert.parameters() if p.grad is not None]))
    assert values[0] == pytest.approx(values[1], abs=1e-10)
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=1e-8)


def test_the_model_runs_once_for_all_widths_and_the_regularizer(bert):
    calls = []
    handle = bert.register_forward_hook(lambda *_: calls.append(1))
    settings = TrainingSettings("regression", matryoshka=(8,), regularizer="whitening", regularizer_weight=0.1)
    columns = [["a dog", "the red river"], ["the man", "a horse"]]
    make_loss(bert, settings)([bert.preprocess(column) for column in columns], torch.tensor([0.25, 1.0]))
    handle.remove()
    assert len(calls) == 2  # one for each column


@pytest.mark.parametrize("mini_batch", [None, 1])
@pytest.mark.parametrize("regularizer", ["whitening", "isotropy"])
def test_the_regularizer_is_added_once_with_its_weight(regularizer, mini_batch, bert):
    columns = [["a dog", "the red river", "the man"], ["the man", "a horse", "the blue park"]]
    plain, both = (
        loss_of(bert, columns, objective="ranking", mini_batch=mini_batch, matryoshka=(8,), **more)
        for more in ({}, {"regularizer": regularizer, "regularizer_weight": 0.5})
    )
    embedded = [bert.encode(column, convert_to_tensor=True) for column in columns]
    assert both - plain == pytest.approx(0.5 * float(regularization(regularizer, embedded)), abs=1e-10)


def test_heads_depend_on_the_seed_alone():
    model = table([[1.0, 2.0], [4.0, -2.0]])
    heads = []
    for seed, n_drawn in ((5, 0), (5, 17), (6, 0)):
        torch.manual_seed(seed)
        torch.rand(n_drawn)
        heads.append(make_loss(model, TrainingSettings(), n_classes=3).classifier.weight)
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_processes_train_one_head(monkeypatch):
    """Each of two processes takes the mean of the gradients of both, here of its own and of one that is 0."""
    model = table([[1.0, 2.0], [4.0, -2.0]])
    gradients = []
    for several in (False, True):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda several=several: several)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
        monkeypatch.setattr(torch.distributed, "all_reduce", lambda gradient: None)
        loss = make_loss(model, TrainingSettings(), n_classes=2)
        loss([model.preprocess(["a"]), model.preprocess(["b"])], torch.tensor([1])).backward()
        gradients.append(loss.classifier.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0] / 2)


@pytest.mark.parametrize(
    ("weights", "head"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_a_head_has_the_number_type_of_the_weights_or_float32(weights, head):
    loss = make_loss(table([[1.0, 2.0], [4.0, -2.0]], weights), TrainingSettings(), n_classes=2)
    assert {parameter.dtype for parameter in loss.classifier.parameters()} == {head}


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "classification", "matryoshka": (8,)},
        {"objective": "ranking", "mini_batch": 1},
        {"objective": "regression", "regularizer": "isotropy", "regularizer_weight": 1.0},
        {"objective": "triplet"},
    ],
)
def test_the_trainer_can_put_a_wrapped_model_in_the_loss(settings, bert):
    class Wrapped(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.module, self.n_calls = model, 0

        def forward(self, features):
            self.n_calls += 1
            return self.module(features)

    loss, wrapped = make_loss(bert, TrainingSettings(**settings), n_classes=3), Wrapped(bert)
    loss = Trainer().override_model_in_loss(loss, wrapped)
    columns = [["a dog", "the red river"], ["the man", "a horse"], ["the dog", "a park"]]
    n_columns = 3 if settings["objective"] in ("triplet", "ranking") else 2
    labels = {"classification": torch.tensor([0, 2]), "regression": torch.tensor([0.25, 1.0])}
    loss([bert.preprocess(column) for column in columns[:n_columns]], labels.get(settings["objective"])).backward()
    assert wrapped.n_calls > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"objective": "cosine"},
            "objective must be one of classification, regression, triplet, ranking; got 'cosine'",
        ),
        ({"concatenation": "v,u"}, 'concatenation must be one of "u,v", "|u-v|", .*"u,v,|u-v|,u\\*v"; got "v,u"'),
        ({"margin": 0.0}, "margin must be a finite number > 0; got 0.0"),
        ({"scale": -1.0}, "scale must be a finite number > 0; got -1.0"),
        ({"objective": "ranking", "mini_batch": 0}, "mini_batch must be a whole number >= 1; got 0"),
        ({"mini_batch": 8}, "mini_batch works with the objective ranking only, not classification"),
        ({"matryoshka": (0,)}, "matryoshka must be a whole number >= 1; got 0"),
        ({"regularizer": "zca"}, "regularizer must be one of whitening, isotropy; got 'zca'"),
        ({"regularizer": "whitening"}, "regularizer_weight must be a finite number > 0; got 0.0"),
        ({"regularizer_weight": 1.0}, "regularizer_weight is 1.0"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words.replace("|", "\\|")):
        TrainingSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "n_classes", "words"),
    [
        ({"objective": "regression", "matryoshka": (1, 3)}, None, "matryoshka must be from 1 to 2, .*; got 3"),
        ({}, None, "at least two labels, not None"),
        ({}, 1, "at least two labels, not 1"),
        ({"objective": "ranking", "mini_batch": 4}, None, "mini_batch does not work with a table of token vectors"),
    ],
)
def test_settings_that_do_not_go_with_the_model_or_the_data_are_refused(settings, n_classes, words):
    with pytest.raises(InputError, match=words):
        make_loss(table([[1.0, 2.0]]), TrainingSettings(**settings), n_classes=n_classes)


@pytest.fixture(scope="module")
def bert(tiny_model, quick_trainers):
    """A random transformer of 24 dimensions in float64, without dropout."""
    transformer = modules.Transformer(str(tiny_model("bert")))
    model = SentenceTransformer(modules=[transformer, modules.Pooling(24)], device="cpu")
    return model.double().eval()


def rows(n_texts, dim, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n_texts, dim))).to(dtype)


def test_sphericity_is_the_gap_of_the_covariance_and_the_identity():
    embeddings = rows(40, 6) * torch.arange(1.0, 7.0)
    covariance = np.cov(embeddings.numpy().T)
    gap = covariance / (np.trace(covariance) / 6) - np.eye(6)
    assert sphericity(embeddings).item() == pytest.approx((gap**2).sum() / 6 / 5, abs=1e-12)


def test_sphericity_sees_neither_mean_nor_scale_nor_rotation():
    embeddings = rows(20, 4) * torch.arange(1.0, 5.0)
    rotation = torch.linalg.qr(rows(4, 4, seed=1))[0]
    moved = 1e4 * embeddings @ rotation + 7
    assert sphericity(moved).item() == pytest.approx(sphericity(embeddings).item(), abs=1e-10)


def test_sphericity_is_zero_for_whitened_vectors_and_one_on_a_line():
    embeddings = rows(50, 5)
    white = torch.linalg.qr(embeddings - embeddings.mean(dim=0))[0]
    assert sphericity(white).item() == pytest.approx(0, abs=1e-12)
    assert sphericity(rows(9, 1) * torch.ones(5)).item() == pytest.approx(1, abs=1e-12)


def test_sphericity_of_few_texts_has_the_floor_that_is_documented():
    n_texts, dim = 4, 10
    simplex = torch.zeros(n_texts, dim, dtype=torch.float64)
    simplex[:, :n_texts] = torch.eye(n_texts)
    assert sphericity(simplex).item() == pytest.approx((dim - n_texts + 1) / (n_texts - 1) / (dim - 1), abs=1e-12)


def test_uniformity_is_that_of_the_inspection():
    embeddings = rows(12, 5)
    unit = torch.nn.functional.normalize(embeddings).numpy()
    cosines = (unit @ unit.T)[~np.eye(12, dtype=bool)]
    assert uniformity(embeddings).item() == pytest.approx(spectrum.uniformity(cosines), abs=1e-12)


def test_uniformity_is_that_of_the_paper():
    embeddings = torch.nn.functional.normalize(rows(12, 5))
    theirs = torch.pdist(embeddings, p=2).pow(2).mul(-2).exp().mean().log()
    assert uniformity(embeddings).item() == pytest.approx(theirs.item(), abs=1e-12)


@pytest.mark.parametrize("name", REGULARIZATIONS)
def test_a_step_against_the_gradient_spreads_the_vectors(name):
    embeddings = (rows(16, 8) + 2).requires_grad_()
    before = regularization(name, [embeddings])
    (gradient,) = torch.autograd.grad(before, embeddings)
    after = regularization(name, [embeddings.detach() - 0.1 * gradient])
    assert after.item() < before.item()


@pytest.mark.parametrize("name", REGULARIZATIONS)
@pytest.mark.parametrize("embeddings", [torch.ones(1, 3), torch.ones(4, 3), torch.zeros(4, 3)])
def test_texts_that_cannot_be_told_apart_give_a_finite_value_and_gradient(name, embeddings):
    embeddings = embeddings.clone().requires_grad_()
    value = regularization(name, [embeddings])
    (gradient,) = torch.autograd.grad(value, embeddings)
    assert value.item() in (pytest.approx(0, abs=1e-6), pytest.approx(-4))
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", REGULARIZATIONS)
def test_columns_are_spread_each_on_its_own(name):
    first, second = rows(6, 3), rows(6, 3, seed=1)
    mean = (REGULARIZATIONS[name](first) + REGULARIZATIONS[name](second)) / 2
    assert regularization(name, [first, second]).item() == pytest.approx(mean.item(), abs=1e-15)


@pytest.mark.parametrize("name", REGULARIZATIONS)
def test_half_precision_is_computed_in_float32(name):
    embeddings = rows(8, 4, dtype=torch.bfloat16)
    value = regularization(name, [embeddings])
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(regularization(name, [embeddings.double()]).item(), abs=1e-5)
