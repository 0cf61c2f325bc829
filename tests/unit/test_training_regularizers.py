"""What spreads the embeddings of a batch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from isosent.numeric import isotropy  # noqa: E402
from isosent.training.objectives import REGULARIZATIONS, regularization, sphericity, uniformity  # noqa: E402


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
    assert uniformity(embeddings).item() == pytest.approx(isotropy.uniformity(cosines), abs=1e-12)


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
