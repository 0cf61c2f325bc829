import itertools

import numpy as np
import pytest

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
