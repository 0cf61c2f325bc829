import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isosent.errors import InputError
from isosent.numeric.glow import Glow
from isosent.transforms.flow import MIXINGS, GlowFlow, GlowGraph

torch = pytest.importorskip("torch")


def bent(n_rows, dim, seed=0):
    """Rows that are correlated and not Gaussian: the second half of the dimensions follows from the first, bent."""
    random = np.random.default_rng(seed)
    first = random.normal(size=(n_rows, dim - dim // 2))
    second = np.abs(first[:, : dim // 2]) + 0.1 * random.normal(size=(n_rows, dim // 2))
    return np.hstack([first, second]) @ random.normal(size=(dim, dim)) / np.sqrt(dim) + 3


def graph_on(rows, n_levels=2, mixing="permutation"):
    return GlowGraph(torch.from_numpy(rows), n_levels=n_levels, depth=3, width=8, mixing=mixing, seed=0)


def bits(flow, rows):
    return -flow.log_likelihood(rows).mean() / (rows.shape[1] * np.log(2))


def stirred_graph(dim=11, *, n_rows=50, **changes):
    """A float64 graph whose parameters are all away from where they start."""
    graph = graph_on(bent(n_rows, dim), **changes)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for tensor in graph.parameters:
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return graph


@pytest.fixture(scope="module")
def fitted():
    return GlowFlow(width=8, n_epochs=12, learning_rate=3e-3).fit(bent(1000, 6))


@pytest.mark.parametrize("mixing", MIXINGS)
def test_the_inverse_is_the_inverse_at_768_dimensions(mixing):
    rows = bent(256, 768).astype(np.float32)
    flow = GlowFlow(mixing=mixing, batch_size=128).fit(rows)
    np.testing.assert_allclose(flow.inverse_transform(flow.transform(rows)), rows, atol=1e-4)
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(flow.inverse_transform(flow.transform(exact)), exact, atol=1e-9)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_the_flow_in_numpy_is_the_graph_that_was_trained(mixing):
    graph, rows = stirred_graph(mixing=mixing, n_levels=3), bent(20, 11, seed=1)
    flow, tensor = graph.state(), torch.from_numpy(rows)
    with torch.no_grad():
        np.testing.assert_allclose(flow.forward(rows), graph(tensor).numpy(), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(bits(flow, rows), graph.bits(tensor).item(), rtol=1e-10)


def test_densities_add_up_to_one():
    flow = stirred_graph(dim=2, n_levels=1, mixing="matrix").state()
    latents = np.random.default_rng(0).normal(size=(4000, 2))
    low, high = flow.inverse(latents).min(0) - 3, flow.inverse(latents).max(0) + 3
    axes = [np.linspace(*ends, 900) for ends in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    assert np.exp(flow.log_likelihood(grid)).sum() * cell == pytest.approx(1, abs=1e-3)


def test_a_fit_starts_from_standardized_dimensions():
    rows = bent(400, 6)
    start = graph_on(rows).state().forward(rows)
    expected = StandardScaler().fit_transform(rows)
    np.testing.assert_allclose(np.sort(start, axis=1), np.sort(expected, axis=1), atol=1e-9)


def test_rows_that_were_held_out_become_likelier(fitted):
    before, after = (seen.held_out_bits for seen in (fitted.history_[0], fitted.history_[-1]))
    assert after < before - 0.3
    assert bits(fitted, bent(1000, 6)) == pytest.approx(after, abs=0.2)


def test_the_likelihood_is_reported_at_the_start_on_the_way_and_at_the_end():
    seen = []
    flow = GlowFlow(n_epochs=2, held_out=0.1).fit(bent(500, 4), report=seen.append)
    assert tuple(seen) == flow.history_
    assert [progress.n_rows for progress in (seen[0], seen[-1])] == [0, 900]
    assert {progress.n_total for progress in seen} == {900}
    assert 5 < len(seen) < 15


def test_the_same_seed_gives_the_same_numbers():
    rows = bent(200, 5)
    first, again, other = (GlowFlow(seed=seed).fit(rows).glow_.arrays() for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["0.0.shift"], other["0.0.shift"])


def test_a_fit_leaves_the_random_numbers_of_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    GlowFlow().fit(bent(100, 4))
    assert torch.equal(torch.rand(3), expected)


def test_a_constant_dimension_survives():
    rows = bent(300, 6)
    rows[:, 2] = 4.0
    flow = GlowFlow(n_epochs=3).fit(rows)
    np.testing.assert_allclose(flow.inverse_transform(flow.transform(rows)), rows, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
def test_precision_is_that_of_the_rows(fitted, dtype):
    transformed = fitted.transform(bent(5, 6).astype(dtype))
    assert (transformed.shape, transformed.dtype) == ((5, 6), np.float64 if dtype == np.float64 else np.float32)


def test_rows_may_be_read_only_and_in_any_layout():
    rows = np.asfortranarray(bent(100, 4))
    rows.flags.writeable = False
    np.testing.assert_array_equal(GlowFlow().fit(rows).transform(rows), GlowFlow().fit(rows.copy("C")).transform(rows))


def test_no_rows_stay_no_rows(fitted):
    assert fitted.transform(np.empty((0, 6))).shape == (0, 6) == fitted.inverse_transform(np.empty((0, 6))).shape
    assert fitted.log_likelihood(np.empty((0, 6))).shape == (0,)


def test_rows_are_independent_of_their_neighbors(fitted):
    rows = bent(5000, 6)
    np.testing.assert_allclose(fitted.transform(rows)[4500:4510], fitted.transform(rows[4500:4510]), rtol=1e-12)


def test_it_is_an_estimator_of_scikit_learn(fitted):
    rows = bent(200, 6)
    assert clone(fitted).get_params() == fitted.get_params()
    assert fitted.n_features_in_ == 6
    assert list(fitted.get_feature_names_out()) == [f"glowflow{i}" for i in range(6)]
    assert make_pipeline(StandardScaler(), GlowFlow()).fit_transform(rows).shape == (200, 6)
    with pytest.raises(NotFittedError):
        GlowFlow().transform(rows)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 0}, "depth must be a whole number >= 1; got 0"),
        ({"width": 2.5}, "width must be a whole number >= 1; got 2.5"),
        ({"n_levels": 4}, "n_levels must leave every level two of the 6 dimensions or more; got 4"),
        ({"mixing": "shuffle"}, "mixing must be one of permutation, reversal, matrix; got 'shuffle'"),
        ({"learning_rate": 0}, "learning_rate must be a finite number > 0; got 0"),
        ({"held_out": 0}, "held_out must be a finite number > 0; got 0"),
        ({"held_out": 0.7}, "held_out must be at most 0.5"),
        ({"seed": -1}, "seed must be a whole number >= 0; got -1"),
        ({"learning_rate": 1e6}, r"the loss became \w+ after [\d,]+ of 190 rows. Lower learning_rate"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(InputError, match=f"GlowFlow: {words}"):
        GlowFlow(**settings).fit(bent(200, 6))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.ones((63, 4)), r"63 rows are too few to fit on\. At least 64"),
        (np.ones((100, 4)), "all 100 rows are equal"),
        (np.where(np.eye(100, 4) > 0, np.nan, 1.0), "row 0 of X, counted from 0, holds NaN"),
        (np.ones(100), "Expected 2D array"),
        (bent(100, 4) * 1e40, "too large for float32, in which the fit is computed"),
    ],
)
def test_rows_that_cannot_be_fitted_on_are_refused(rows, words):
    with pytest.raises(InputError, match=words):
        GlowFlow().fit(rows)


def test_a_failed_fit_leaves_the_last_one_as_it_was(fitted):
    before = fitted.glow_
    with pytest.raises(InputError):
        fitted.fit(np.ones((100, 6)))
    assert fitted.glow_ is before
    assert fitted.n_features_in_ == 6


def test_rows_to_transform_are_checked(fitted):
    with pytest.raises(InputError, match=r"row 1 of .*, counted from 0, holds infinity"):
        fitted.transform(np.array([np.zeros(6), np.full(6, np.inf)]))
    with pytest.raises(InputError, match="7 features"):
        fitted.transform(np.zeros((2, 7)))
    with pytest.raises(InputError, match="beyond float32, from row 0 on"):
        fitted.transform(np.full((2, 6), 3e38, dtype=np.float32))


def without_a_name(arrays):
    del arrays["1.0.shift"]


def with_another_width(arrays):
    arrays["1.1.bias.2"] = np.zeros(9)


def with_an_order_that_repeats(arrays):
    arrays["0.0.mixing"] = np.zeros(6, dtype=np.int64)


def with_nan(arrays):
    arrays["0.1.shift"] = np.full(6, np.nan)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without_a_name, "the arrays are not those of a flow: '1.0.shift'"),
        (with_another_width, "the shapes of a step do not agree, at 3 dimensions"),
        (with_an_order_that_repeats, "mixing does not hold each of 0 to 5 once"),
        (with_nan, "some numbers are NaN or infinity"),
    ],
)
def test_arrays_that_are_no_flow_are_refused(fitted, damage, words):
    arrays = fitted.glow_.arrays()
    damage(arrays)
    with pytest.raises(InputError, match=words):
        Glow.from_arrays(arrays)
