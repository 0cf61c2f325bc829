"""Gradients of every objective against central differences in float64, and what a batch does not change."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from tokenizers.pre_tokenizers import Whitespace  # noqa: E402

from isosent.training.objectives import make_loss  # noqa: E402
from isosent.training.settings import CONCATENATIONS, TrainingSettings  # noqa: E402

STEP = 1e-5
COLUMNS = [
    ["the man is riding a horse", "a dog", "the red river"],
    ["a woman was running", "the dog in the park", "blue"],
    ["horse", "the woman and the man", "a park of the river"],
]
LABELS = {"classification": torch.tensor([0, 2, 1]), "regression": torch.tensor([0.25, 1.0, 0.5])}
BOTH = {"matryoshka": (2, 5), "regularizer": "whitening", "regularizer_weight": 0.3}
SETTINGS = [
    *({"concatenation": name} for name in CONCATENATIONS),
    {"objective": "regression"},
    {"objective": "triplet"},
    {"objective": "ranking"},
    *({"objective": name} | BOTH for name in ("classification", "regression", "triplet", "ranking")),
    {"objective": "ranking", "regularizer": "isotropy", "regularizer_weight": 0.3},
]
CACHED = [
    {"objective": "ranking", "mini_batch": 2},
    {"objective": "ranking", "mini_batch": 2} | BOTH,
]


def named(settings):
    return " ".join(map(str, settings.values()))


@pytest.fixture(scope="module")
def bert(tiny_model, quick_trainers):
    transformer = modules.Transformer(str(tiny_model("bert", n_layers=1)))
    model = SentenceTransformer(modules=[transformer, modules.Pooling(24)], device="cpu")
    return model.double().eval()


@pytest.fixture(scope="module")
def table():
    words = sorted({word for column in COLUMNS for text in column for word in text.split()})
    tokenizer = Tokenizer(WordLevel({word: row for row, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = Whitespace()
    weights = torch.randn(len(words), 7, generator=torch.Generator().manual_seed(2))
    model = SentenceTransformer(modules=[modules.StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")
    return model.double()


def assert_gradients_are_differences(model, settings):
    """The derivative along one random direction in every tensor that is trained, of the head too."""
    torch.manual_seed(0)
    settings = TrainingSettings(**settings)
    n_columns = 3 if settings.objective in ("triplet", "ranking") else 2
    labels = LABELS.get(settings.objective)
    loss = make_loss(model, settings, n_classes=3).double()

    def value():
        return loss([model.preprocess(column) for column in COLUMNS[:n_columns]], labels)

    loss.zero_grad()
    value().backward()
    named_gradients = {name: (p, p.grad) for name, p in loss.named_parameters() if p.grad is not None}
    assert any(gradient.abs().max() > 1e-4 for _, gradient in named_gradients.values())
    assert (settings.objective == "classification") == any("classifier" in name for name in named_gradients)
    for name, (parameter, gradient) in named_gradients.items():
        direction = torch.randn(parameter.shape, dtype=torch.float64)
        direction /= direction.norm()
        ends = []
        for step in (STEP, -STEP):
            with torch.no_grad():
                parameter.add_(direction, alpha=step)
                ends.append(value().item())
                parameter.sub_(direction, alpha=step)
        difference = (ends[0] - ends[1]) / (2 * STEP)
        assert (gradient * direction).sum().item() == pytest.approx(difference, abs=2e-8, rel=1e-6), name


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_gradients_of_a_table_of_vectors(settings, table):
    assert_gradients_are_differences(table, settings)


@pytest.mark.parametrize("settings", [SETTINGS[5], SETTINGS[10], *CACHED], ids=named)
def test_gradients_of_a_transformer(settings, bert):
    assert_gradients_are_differences(bert, settings)


def test_a_longer_text_beside_it_does_not_change_a_vector(bert):
    short, long = "a dog", "a woman was running quickly in the park and the dog was running in the river"
    alone, beside = (bert(bert.preprocess(texts))["sentence_embedding"][0] for texts in ([short], [short, long]))
    torch.testing.assert_close(beside, alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("objective", ["classification", "regression", "triplet"])
def test_the_loss_is_the_mean_over_examples_whatever_batch_they_are_in(objective, bert):
    torch.manual_seed(0)
    loss = make_loss(bert, TrainingSettings(objective), n_classes=3)
    n_columns, labels = (3, None) if objective == "triplet" else (2, LABELS[objective])

    def of(rows):
        columns = [[column[row] for row in rows] for column in COLUMNS[:n_columns]]
        return loss([bert.preprocess(texts) for texts in columns], None if labels is None else labels[rows]).item()

    assert of([0, 1, 2]) == pytest.approx(sum(of([row]) for row in range(3)) / 3, abs=1e-12)
