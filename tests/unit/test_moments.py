import tracemalloc

import numpy as np
import pytest

from isosent import LinearMap, Moments
from isosent.errors import InputError
from isosent.numeric.moments import JointFolds, JointMoments

MANY = 10**12  # rows, of which products in float32 are worth their care


def slanted(n_rows, dim, *, condition, offset, seed=0):
    """float32 rows with a geometric spectrum and a common mean of `offset` times their spread."""
    rng = np.random.default_rng(seed)
    scales = condition ** (-np.arange(dim) / (dim - 1) / 2)
    basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    mean = rng.normal(size=dim)
    mean *= offset * np.sqrt((scales**2).sum()) / np.linalg.norm(mean)
    return ((rng.normal(size=(n_rows, dim)) * scales) @ basis + mean).astype(np.float32)


def exact(rows):
    rows = rows.astype(np.float64)
    mean = rows.mean(axis=0)
    return mean, (rows - mean).T @ (rows - mean)


def relative_error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("n_rows_total", [None, MANY])
def test_float32_rows_with_mean_cosine_095_keep_the_accuracy_of_float64(n_rows_total):
    rows = slanted(40_000, 48, condition=6e5, offset=4.36)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert abs((unit.sum(axis=0) @ unit.sum(axis=0)) / len(rows) ** 2 - 0.95) < 0.01
    mean, scatter = exact(rows)
    found = Moments.from_rows(rows, n_rows_total=n_rows_total)
    assert relative_error(found.mean, mean) < 1e-7
    assert relative_error(found.scatter, scatter) < 1e-7
    weakest = np.linalg.eigvalsh(scatter)[0]
    assert abs(np.linalg.eigvalsh(found.scatter)[0] / weakest - 1) < (5e-3 if n_rows_total else 1e-9)


def test_the_plain_formula_fails_where_ours_holds():
    rows = slanted(40_000, 48, condition=6e5, offset=4.36)
    plain = rows.T @ rows - len(rows) * np.outer(rows.mean(axis=0), rows.mean(axis=0))
    assert np.linalg.eigvalsh(plain)[0] / np.linalg.eigvalsh(exact(rows)[1])[0] < 0.5


@pytest.mark.parametrize("offset", [0, 5, 30])
@pytest.mark.parametrize(("dim", "rank", "n_rows"), [(8, 3, 500), (16, 4, 40_000), (64, 20, 40_000), (300, 40, 2_000)])
def test_rows_of_low_rank_are_taken_in_double_precision(dim, rank, n_rows, offset):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, dim)) + offset).astype(np.float32)
    found = Moments.from_rows(rows, n_rows_total=MANY)
    np.testing.assert_array_equal(found.scatter, Moments.from_rows(rows).scatter)
    values = np.linalg.eigvalsh(found.scatter)
    assert values[dim - rank - 1] / values[-1] < 1e-13


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int32, np.bool_])
def test_every_real_dtype_gives_float64(dtype):
    rows = np.random.default_rng(0).integers(0, 5, size=(50, 3)).astype(dtype)
    mean, scatter = exact(rows)
    found = Moments.from_rows(rows)
    assert found.mean.dtype == found.scatter.dtype == np.float64
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.scatter, scatter, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_rows", [0, 1, 2, 1234, 32_768, 32_769, 40_961])  # blocks of 8192, where there are over four
def test_blocks_add_up(n_rows, weighted):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.normal(size=(n_rows, 3)), axis=0) * 10 + 100
    weights = rng.integers(0, 3, size=n_rows) if weighted else None
    repeated = rows if weights is None else np.repeat(rows, weights, axis=0)
    found = Moments.from_rows(rows, weights)
    assert found.weight == len(repeated)
    if len(repeated):
        mean, scatter = exact(repeated)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(found.scatter, scatter, rtol=1e-9, atol=1e-9)


def test_covariance_divides_by_the_weight():
    rows = np.random.default_rng(0).normal(size=(20, 4))
    np.testing.assert_allclose(Moments.from_rows(rows).covariance, np.cov(rows.T, ddof=0))


def test_covariance_of_nothing_is_zero():
    assert not Moments.empty(3).covariance.any()


def test_sum_of_parts_starts_from_empty():
    rows = np.random.default_rng(0).normal(size=(20, 4))
    total = sum((Moments.from_rows(part) for part in np.split(rows, 4)), start=Moments.empty(4))
    np.testing.assert_allclose(total.covariance, np.cov(rows.T, ddof=0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_non_finite_rows_are_refused_with_their_number(value, dtype):
    rows = np.ones((40_000, 3), dtype=dtype)
    rows[12_321, 1] = value
    with pytest.raises(InputError, match=r"row 12321 of rows, counted from 0, holds (NaN|infinity)"):
        Moments.from_rows(rows)


def test_float32_rows_too_large_to_be_squared_in_float32_are_exact():
    rows = (np.random.default_rng(0).normal(size=(20_000, 2)) * 1e30).astype(np.float32)
    found = Moments.from_rows(rows, n_rows_total=MANY)
    assert relative_error(found.scatter, exact(rows)[1]) < 1e-7


def test_rows_too_large_for_float64_are_refused():
    with pytest.raises(InputError, match=r"squares of the rows, .* are not within float64"):
        Moments.from_rows(np.array([[1e200, 0], [-1e200, 0]]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones(3), "must be 2-D"),
        (np.ones((2, 0)), "at least one column"),
        (np.array([["a"]]), "must hold real numbers"),
        (np.ones((2, 2)) * 1j, "must hold real numbers"),
    ],
)
def test_malformed_rows_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        Moments.from_rows(rows)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "must have shape"), ([1.0, -1.0], "finite and >= 0"), ([1.0, np.nan], "finite and >= 0")],
)
def test_malformed_weights_are_refused(weights, message):
    with pytest.raises(InputError, match=message):
        Moments.from_rows(np.ones((2, 2)), weights)


def test_moments_of_other_dimensions_do_not_add():
    with pytest.raises(InputError, match="of 2 dimensions, found 3"):
        Moments.empty(2) + Moments.empty(3)


def test_shapes_that_disagree_are_refused():
    with pytest.raises(InputError, match=r"\(dim,\) and \(dim, dim\)"):
        Moments(1.0, np.zeros(2), np.zeros((3, 3)))


def test_a_memory_map_is_read_without_being_copied_whole(tmp_path):
    rows = np.random.default_rng(0).normal(size=(200_000, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    found = Moments.from_rows(mapped)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(found.scatter, Moments.from_rows(rows).scatter)
    assert peak < rows.nbytes / 3


def test_a_row_of_weight_zero_counts_for_nothing_however_large():
    rows = np.random.default_rng(0).normal(size=(1000, 3))
    spoilt = np.vstack([np.full((1, 3), 1e20), rows])
    found = Moments.from_rows(spoilt, np.r_[0.0, np.ones(1000)])
    np.testing.assert_allclose(found.scatter, Moments.from_rows(rows).scatter, rtol=1e-12)


def test_an_outlier_that_drowns_the_rest_in_float32_is_taken_in_double_precision():
    rows = np.random.default_rng(0).normal(size=(40_000, 16)).astype(np.float32)
    rows[30_000] = 3e5
    scatter = exact(rows)[1]
    weakest = np.linalg.eigvalsh(scatter)[0]
    found = Moments.from_rows(rows, n_rows_total=MANY)
    assert abs(np.linalg.eigvalsh(found.scatter)[0] / weakest - 1) < 1e-6


def test_a_first_block_unlike_the_others_costs_no_digits():
    rng = np.random.default_rng(0)
    rows = (1000 + rng.normal(size=(400_000, 4)) * [1.0, 2.0, 3.0, 4.0]).astype(np.float32)
    rows[:8192] -= 1000  # the first block
    across = np.array([[1, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]]) / np.sqrt(2)
    found, expected = Moments.from_rows(rows, n_rows_total=MANY).scatter, exact(rows)[1]
    np.testing.assert_allclose(across @ found @ across.T, across @ expected @ across.T, rtol=1e-4)


def test_the_built_in_sum_merges():
    rows = np.random.default_rng(0).normal(size=(20, 4))
    total = sum(Moments.from_rows(part) for part in np.split(rows, 4))
    np.testing.assert_allclose(total.covariance, np.cov(rows.T, ddof=0))


def test_well_conditioned_blocks_of_a_large_set_are_multiplied_in_float32():
    rows = slanted(20_000, 16, condition=2e5, offset=4.36)
    alone, block = Moments.from_rows(rows), Moments.from_rows(rows, n_rows_total=MANY)
    assert not np.array_equal(block.scatter, alone.scatter)  # in double precision they would have the same bits
    np.testing.assert_allclose(block.scatter, alone.scatter, atol=1e-6 * np.abs(alone.scatter).max())


def test_a_block_of_fewer_rows_than_dimensions_is_taken_in_double_precision():
    rows = np.random.default_rng(0).normal(size=(10, 16)).astype(np.float32)
    np.testing.assert_array_equal(Moments.from_rows(rows, n_rows_total=MANY).scatter, Moments.from_rows(rows).scatter)


def joint_rows(n_rows=200, dim=5, n_outputs=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, dim)) @ rng.normal(size=(dim, dim)) + 3
    return x, x @ rng.normal(size=(dim, n_outputs)) + rng.normal(size=(n_rows, n_outputs)) - 1


def test_two_vectors_side_by_side_in_parts_are_those_of_all():
    x, y = joint_rows()
    whole = JointMoments.from_rows(x, y)
    parts = sum(JointMoments.from_rows(x[part], y[part]) for part in np.array_split(np.arange(200)[::-1], 7))
    for joint in (whole, parts):
        np.testing.assert_allclose(joint.cross, (x - x.mean(0)).T @ (y - y.mean(0)) / len(x), atol=1e-10)
        np.testing.assert_allclose(joint.x.covariance, np.cov(x.T, ddof=0))
        np.testing.assert_allclose(joint.y.mean, y.mean(0))


@pytest.mark.parametrize("towards", [None, np.eye(5, 3)])
def test_ridge_and_its_error_follow_from_the_blocks(towards):
    (x, y), (other_x, other_y) = joint_rows(), joint_rows(seed=1)
    joint, centered = JointMoments.from_rows(x, y), x - x.mean(0)
    amount = 0.3 * np.trace(centered.T @ centered) / 5
    right = centered.T @ (y - y.mean(0)) + (0 if towards is None else amount * towards)
    weight = np.linalg.solve(centered.T @ centered + amount * np.eye(5), right)
    found = joint.ridge(0.3, towards=towards)
    np.testing.assert_allclose(found.weight, weight, atol=1e-10)
    error = np.square(other_y - found.apply(other_x)).sum(axis=1).mean()
    assert JointMoments.from_rows(other_x, other_y).residual(found) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("about_zero", [False, True])
def test_maps_between_two_models_are_those_of_the_rows(about_zero):
    x, y = joint_rows()
    parts = sum(JointMoments.from_rows(x[part], y[part]) for part in np.array_split(np.arange(200)[::-1], 3))
    joint = parts.about_zero() if about_zero else parts
    a, b = (x, y) if about_zero else (x - x.mean(0), y - y.mean(0))
    left, _, right = np.linalg.svd(a.T @ b, full_matrices=False)
    shrunk = [each.T @ each + 0.3 * np.trace(each.T @ each) / each.shape[1] * np.eye(each.shape[1]) for each in (a, b)]
    roots = [np.linalg.inv(np.linalg.cholesky(each)) for each in shrunk]
    u, r, v = np.linalg.svd(roots[0] @ a.T @ b @ roots[1].T, full_matrices=False)
    both = (a @ roots[0].T @ u * np.sqrt(r)) @ (b @ roots[1].T @ v.T * np.sqrt(r)).T  # both sides are mapped
    found = joint.canonical(0.3)
    scores = (found.apply(x) - (0 if about_zero else y.mean(0))) @ b.T
    np.testing.assert_allclose(joint.procrustes().weight, left @ right, atol=1e-9)
    np.testing.assert_allclose(scores / np.linalg.norm(scores), both / np.linalg.norm(both), atol=1e-10)
    assert np.square(a @ found.weight).sum(axis=1).mean() == pytest.approx(1)
    assert about_zero == (not found.bias.any() and not joint.ridge(0.3).bias.any())


def test_mapped_joint_moments_are_those_of_mapped_rows():
    x, y = joint_rows()
    half = LinearMap(np.random.default_rng(2).normal(size=(5, 2)), np.array([1.0, 2.0]))
    mapped = JointMoments.from_rows(x, y).mapped(half)
    np.testing.assert_allclose(mapped.cross, JointMoments.from_rows(half.apply(x), y).cross, atol=1e-9)
    difference = LinearMap(np.vstack([np.eye(3, 3), -np.eye(3)]), np.zeros(3))
    moments = JointMoments.from_rows(x[:, :3], y).moments.mapped(difference)
    np.testing.assert_allclose(moments.covariance, np.cov((x[:, :3] - y).T, ddof=0), atol=1e-9)


def test_all_folds_but_one_need_no_second_pass():
    x, y = joint_rows()
    fold = np.random.default_rng(3).integers(4, size=len(x))
    folds = JointFolds.from_rows(x, y, fold, n_folds=4)
    np.testing.assert_allclose(folds.without(1).cross, JointMoments.from_rows(x[fold != 1], y[fold != 1]).cross)
    errors = []
    for each in range(4):
        found = JointMoments.from_rows(x[fold != each], y[fold != each]).ridge(0.1)
        errors.append(np.square(y[fold == each] - found.apply(x[fold == each])).sum())
    assert folds.r2(0.1) == pytest.approx(1 - sum(errors) / np.square(y - y.mean(0)).sum(), rel=1e-9)
    assert (folds + folds).r2(0.1) == pytest.approx(folds.r2(0.1), rel=1e-9)
    assert np.isnan(JointFolds.from_rows(x, np.ones((200, 1)), fold, n_folds=4).r2(0.1))


def test_the_place_of_the_cut_is_within_the_row():
    with pytest.raises(InputError, match=r"1 \.\.\. 4; got 5"):
        JointMoments(Moments.empty(5), 5)
