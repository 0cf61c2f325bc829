import itertools
import math

import numpy as np
import pytest

from isosent.numeric.neighbors import best_columns, exact_products, nearest_columns, nearest_rows
from isosent.numeric.ranking import (
    average_precision,
    cosine_ranks,
    expected_average_precision,
    ndcg_at_k,
    ranks_by_score,
    recall_at_k,
    reciprocal_rank,
)

NO_POSTPROCESSING = np.zeros(0, dtype=np.int64)


N_QUERIES, N_DOCUMENTS = 300, 17_000  # two blocks of each


def directions(rng, n_rows):
    """Vectors along few directions, whose cosines are the same in any order of summation: many ties."""
    return (np.eye(4, dtype=np.float32)[rng.integers(4, size=n_rows)] * 2 ** rng.integers(4, size=(n_rows, 1))).astype(
        np.float32
    )


def ranks_by_sorting(queries, documents, pairs, left_out):
    ranks, norms = [], np.linalg.norm(documents, axis=1)
    for asked, found in pairs:
        cosines = documents @ queries[asked] / np.maximum(1e-9, norms * np.linalg.norm(queries[asked]))
        order = np.argsort(-cosines, kind="stable")
        ranks.append(1 + order[order != left_out[asked]].tolist().index(found))
    return ranks


@pytest.mark.parametrize("make", [directions, lambda rng, n_rows: rng.normal(size=(n_rows, 5)).astype(np.float32)])
def test_ranks_are_those_of_a_sorted_list(make):
    rng = np.random.default_rng(0)
    queries, documents = make(rng, N_QUERIES), make(rng, N_DOCUMENTS)
    documents[17] = 0
    left_out = np.where(rng.random(N_QUERIES) < 0.5, rng.integers(N_DOCUMENTS, size=N_QUERIES), -1)
    pairs = rng.integers((N_QUERIES, N_DOCUMENTS), size=(60, 2))
    pairs = pairs[left_out[pairs[:, 0]] != pairs[:, 1]]
    found = cosine_ranks(queries, documents, pairs, excluded=left_out).tolist()
    assert found == ranks_by_sorting(queries.astype(float), documents.astype(float), pairs, left_out)


def test_equal_documents_are_ranked_in_their_order_whatever_block_they_lie_in():
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(5, 301)).astype(np.float32)
    documents = np.repeat(rng.normal(size=(1, 301)).astype(np.float32), N_DOCUMENTS, axis=0)
    rows = np.r_[:50, N_DOCUMENTS - 50 : N_DOCUMENTS]
    pairs = np.array(list(itertools.product(range(5), rows)))
    assert cosine_ranks(queries, documents, pairs).reshape(5, -1).tolist() == [(rows + 1).tolist()] * 5


def test_a_query_without_a_vector_finds_documents_in_their_order():
    documents = np.eye(3, dtype=np.float32)
    assert cosine_ranks(np.zeros((1, 3), dtype=np.float32), documents, np.array([[0, 2], [0, 0]])).tolist() == [3, 1]


def test_no_pair_has_no_rank():
    assert cosine_ranks(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), np.zeros((0, 2), int)).shape == (0,)


def test_equal_scores_keep_their_order():
    assert ranks_by_score(np.array([0.5, 0.7, 0.5, -1.0, 0.7])).tolist() == [3, 1, 4, 5, 2]
    assert ranks_by_score(np.zeros(0)).tolist() == []


def test_metrics_are_those_of_trec_eval_ties_included():
    """Its order of ties is that of the ids, from the last to the first."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(2)
    names = {"map", "recip_rank", "ndcg_cut.10", "recall.1,5,10"}
    ids = [f"{999 - row}" for row in range(60)]
    for n_judged in (0, 1, 3, 30):
        scores = rng.integers(5, size=60) / 4
        grades = np.zeros(60, dtype=int)
        grades[rng.choice(60, size=n_judged, replace=False)] = rng.integers(1, 4, size=n_judged)
        judged = dict(zip(ids, grades.tolist(), strict=True))
        run = {"q": dict(zip(ids, scores.tolist(), strict=True))}
        expected = pytrec_eval.RelevanceEvaluator({"q": judged}, names).evaluate(run)["q"]
        ranks, gains = ranks_by_score(scores)[grades > 0], grades[grades > 0].astype(float)
        ours = {
            "map": average_precision(ranks),
            "recip_rank": reciprocal_rank(ranks),
            "ndcg_cut_10": ndcg_at_k(ranks, gains, 10),
            **{f"recall_{k}": recall_at_k(ranks, k) for k in (1, 5, 10)},
        }
        assert ours == pytest.approx(expected)


def test_where_nothing_is_relevant_every_metric_is_zero():
    gains = np.zeros(0)
    assert [
        average_precision(NO_POSTPROCESSING),
        reciprocal_rank(NO_POSTPROCESSING),
        recall_at_k(NO_POSTPROCESSING, 5),
    ] == [0, 0, 0]
    assert ndcg_at_k(NO_POSTPROCESSING, gains, 10) == 0
    assert expected_average_precision(0, 10) == 0


def test_what_ranks_below_the_cut_is_not_found():
    ranks = np.array([11, 30])
    assert reciprocal_rank(ranks, 10) == 0
    assert ndcg_at_k(ranks, np.ones(2), 10) == 0


@pytest.mark.parametrize(("n_relevant", "n_items"), [(1, 1), (1, 4), (2, 5), (5, 5), (3, 6)])
def test_the_expected_average_precision_is_the_mean_over_all_orders(n_relevant, n_items):
    orders = itertools.combinations(range(1, n_items + 1), n_relevant)
    every = [average_precision(np.array(ranks)) for ranks in orders]
    assert expected_average_precision(n_relevant, n_items) == pytest.approx(np.mean(every))


def sorted_columns(scores, k):
    """The same by sorting lists of Python."""
    return [sorted(range(scores.shape[1]), key=lambda column: (-row[column], column))[:k] for row in scores.tolist()]


@pytest.mark.parametrize("k", [1, 3, 10, 64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 64), (5, 300), (2, 5000), (0, 9), (4, 0)])
@pytest.mark.parametrize("n_values", [1, 2, 9, 10**6])
def test_the_best_of_each_row_are_those_of_a_sorted_list(k, shape, n_values):
    scores = np.random.default_rng(k).integers(n_values, size=shape).astype(np.float32)
    scores[:, ::7] = -np.inf
    found = best_columns(scores, k)
    assert found.shape == (shape[0], min(k, shape[1]))
    assert found.tolist() == sorted_columns(scores, k)
    assert best_columns(scores.astype(np.float64), k).tolist() == found.tolist()


@pytest.mark.parametrize("columns", [[3], [0, 1, 2], range(0, 400, 2), range(399)])
def test_a_score_that_is_not_a_number_is_never_among_the_best(columns):
    scores = np.random.default_rng(0).integers(5, size=(3, 400)).astype(np.float32)
    scores[1, list(columns)] = np.nan
    lowest = np.where(np.isnan(scores), -np.inf, scores)
    assert best_columns(scores, 10).tolist() == sorted_columns(lowest, 10)


def equal_rows(rng, n_distinct, n_copies, dim=96):
    units = rng.normal(size=(n_distinct, dim))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    return units.astype(np.float32)[rng.permutation(np.repeat(np.arange(n_distinct), n_copies))]


@pytest.mark.parametrize(("n_distinct", "n_copies"), [(500, 1), (60, 7), (5, 100), (1, 300)])
def test_equal_rows_are_near_in_their_order_though_float32_products_differ(n_distinct, n_copies):
    rng = np.random.default_rng(n_copies)
    rows, queries = equal_rows(rng, n_distinct, n_copies), equal_rows(rng, 9, 1)
    exact = np.array([[math.fsum(query * row) for row in rows.astype(float)] for query in queries.astype(float)])
    exact = exact.astype(np.float32)
    # another machine adds up in another order
    noisy = exact + rng.uniform(-2e-7, 2e-7, exact.shape).astype(np.float32)
    for scores in (queries @ rows.T, noisy):
        found, columns = nearest_columns(scores, queries, rows, 10)
        assert columns.tolist() == sorted_columns(exact, 10)
        np.testing.assert_array_equal(found, np.take_along_axis(exact, columns, axis=1))


def test_a_row_that_is_left_out_is_no_neighbor():
    rows = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    scores = rows @ rows.T
    np.fill_diagonal(scores, -np.inf)
    found, columns = nearest_columns(scores, rows, rows, 12)
    assert columns[5].tolist() == [4, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 5]
    assert found[5].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, -np.inf]
    assert nearest_rows(rows).tolist() == [1, 0, 0, 0, 5, 4, 4, 4, 9, 8, 8, 8]


def test_products_are_sums_rounded_once():
    rng = np.random.default_rng(0)
    queries, rows = equal_rows(rng, 9, 1, dim=700), equal_rows(rng, 20, 3, dim=700)
    exact = [[np.float32(math.fsum(query * row)) for row in rows.astype(float)] for query in queries.astype(float)]
    assert exact_products(queries, rows).tolist() == exact
