import json
from dataclasses import replace

import numpy as np
import pytest

from isosent.errors import InputError, InputTypeError
from isosent.evaluation.compare import compare_results
from isosent.evaluation.result import EvaluationResult, Items, TaskResult
from isosent.numeric.similarity import pearson, spearman
from isosent.pages.tables import latex_table

N_PAIRS = 200
GOLD = np.random.default_rng(0).integers(0, 11, size=N_PAIRS) / 2
FEW = 200


def task_of(kind, metric, scores, items, **more):
    facts = {"protocol": {"similarity": "cosine"}, "data": {"a.txt": "0a", "b.txt": "0b"}, "n_items": len(items.values)}
    counts = {"dim": 3, "n_zero_rows": 0, "n_tokens": 0, "n_unknown": 0, "elapsed_s": 0.0}
    intervals = dict.fromkeys(scores, (0.0, 1.0))
    return TaskResult(kind, metric, scores, intervals, items=items, **{**facts, **counts, **more})


def correlated(noise, seed=1, metric="spearman", kind="sts", **more):
    """A task with human scores, that a prediction of so much noise is scored on."""
    values = GOLD + np.random.default_rng(seed).normal(scale=noise, size=N_PAIRS)
    scores = {"spearman": spearman(values, GOLD), "pearson": pearson(values, GOLD)}
    return task_of(kind, metric, scores, Items(values, GOLD), **more)


def averaged(values, metric="accuracy", kind="transfer", **more):
    values = np.array(values, dtype=float)
    return task_of(kind, metric, {metric: values.mean()}, Items(values), **more)


def result_of(tasks, *, transductive=False, seed=0, isosent="0.1.0"):
    fitting = {"transform": None, "parameters": {}, "fit": None, "transductive": transductive}
    environment = {"versions": {"isosent": isosent}}
    return EvaluationResult({"reference": "wordllama"}, fitting, tasks, environment, seed, 100, 10, 0, 0.1, 0.2)


def test_a_clear_difference_is_told_from_both_ends():
    clear, dim = result_of({"STSB": correlated(0.5)}), result_of({"STSB": correlated(3, seed=2)})
    found = compare_results(dim, clear, n_resamples=FEW).tasks["STSB"]
    assert found.verdict == "better"
    assert found.difference == found.second - found.first > 0
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    back = compare_results(clear, dim, n_resamples=FEW).tasks["STSB"]
    assert back.verdict == "worse"
    assert back.difference == -found.difference
    assert back.interval == pytest.approx((-found.interval[1], -found.interval[0]))


def test_chance_cannot_be_told():
    first, second = (result_of({"STSB": correlated(2, seed)}) for seed in (3, 4))
    found = compare_results(first, second, n_resamples=FEW).tasks["STSB"]
    assert found.interval[0] < 0 < found.interval[1]
    assert found.p_value > 0.05
    assert found.verdict == "cannot tell"


def test_a_result_against_itself():
    result = result_of({"STSB": correlated(2), "MR": averaged([1, 0, 1])})
    for found in compare_results(result, result, n_resamples=FEW).tasks.values():
        assert (found.difference, found.interval, found.p_value, found.verdict) == (0, (0, 0), 1, "the same")


def test_each_metric_has_its_test():
    queries = np.random.default_rng(1).random(50)
    tasks = {
        "STSB": correlated(2),
        "SICK-R": correlated(2, metric="pearson", kind="transfer"),
        "MR": averaged(queries > 0.4),
        "CQA": averaged(queries, metric="map", kind="cqa"),
    }
    found = compare_results(result_of(tasks), result_of(tasks), n_resamples=FEW).tasks
    tests = {name: of.test for name, of in found.items()}
    assert tests == {
        "STSB": "paired bootstrap",
        "SICK-R": "Williams",
        "MR": "exact McNemar",
        "CQA": "paired bootstrap",
    }
    assert {name for name, of in found.items() if not np.isnan(of.p_williams_on_ranks)} == {"STSB"}


def test_another_correlation_can_be_asked_for_and_leaves_other_tasks_alone():
    tasks = {"STSB": correlated(2), "MR": averaged([1, 0, 1])}
    found = compare_results(result_of(tasks), result_of(tasks), correlation="pearson", n_resamples=FEW).tasks
    assert (found["STSB"].metric, found["STSB"].test) == ("pearson", "Williams")
    assert found["STSB"].first == tasks["STSB"].scores["pearson"]
    assert found["MR"].metric == "accuracy"


def test_no_verdict_where_one_pair_decides():
    random = np.random.default_rng(5)
    gold = np.append(random.normal(size=40), 12.0)  # the last pair is an outlier, which only the first model finds
    noise, other = random.normal(size=(2, 40))
    first, second = np.append(noise, 12.0), np.append(0.3 * gold[:40] + other, 0.0)
    a, b, between = (np.corrcoef(*each)[0, 1] for each in ((first, gold), (second, gold), (first, second)))
    n, determinant = len(gold), 1 - a**2 - b**2 - between**2 + 2 * a * b * between
    rest = 2 * (n - 1) / (n - 3) * determinant + ((a + b) / 2) ** 2 * (1 - between) ** 3  # Williams 1959
    assert abs(b - a) * np.sqrt((n - 1) * (1 + between) / rest) > 2.5
    draws = [random.integers(n, size=n) for _ in range(500)]
    lost = [np.corrcoef(second[rows], gold[rows])[0, 1] - np.corrcoef(first[rows], gold[rows])[0, 1] for rows in draws]
    assert np.quantile(lost, 0.025) < 0 < np.quantile(lost, 0.975)
    tasks = [
        {"SICK-R": task_of("transfer", "pearson", {"pearson": score}, Items(values, gold))}
        for score, values in ((a, first), (b, second))
    ]
    found = compare_results(*map(result_of, tasks), n_resamples=FEW).tasks["SICK-R"]
    assert found.p_value < 0.05
    assert found.interval[0] < 0 < found.interval[1]
    assert found.verdict == "cannot tell"


def test_verdicts_count_all_tasks():
    first = {f"MR{number}": averaged([0] * 6 + [1] * 20) for number in range(4)}
    second = {**first, "MR0": averaged([1] * 26)}
    found = compare_results(result_of(first), result_of(second), n_resamples=FEW).tasks["MR0"]
    assert found.p_value == pytest.approx(2 / 2**6)
    assert found.p_corrected == pytest.approx(4 * found.p_value)
    assert found.verdict == "cannot tell"
    alone = compare_results(result_of(first), result_of(second), tasks=["MR0"], n_resamples=FEW).tasks["MR0"]
    assert alone.verdict == "better"


def test_the_average_has_an_interval_narrower_than_its_tasks():
    first = result_of({f"STS1{number}": correlated(2, number) for number in range(2, 6)})
    second = result_of({f"STS1{number}": correlated(1.5, number + 10) for number in range(2, 6)})
    compared = compare_results(first, second, n_resamples=FEW)
    average = compared.averages["sts, spearman"]
    assert average.difference == pytest.approx(np.mean([of.difference for of in compared.tasks.values()]))
    assert average.first == pytest.approx(first.average_of("sts", "spearman"))
    widths = [high - low for low, high in (of.interval for of in compared.tasks.values())]
    width = average.interval[1] - average.interval[0]
    assert width == pytest.approx(np.sqrt(np.mean(np.square(widths)) / 4), rel=0.3)  # as if tasks were independent
    assert average.verdict == "better"


def test_only_like_scores_are_averaged():
    tasks = {
        "MR": averaged([1, 0, 1]),
        "CR": averaged([1, 0, 1]),
        "SICK-R": correlated(2, metric="pearson", kind="transfer"),
        "RTE": averaged([1, 0], kind="rte"),
    }
    compared = compare_results(result_of(tasks), result_of(tasks), n_resamples=FEW)
    assert list(compared.averages) == ["transfer, accuracy"]
    assert compared.averages["transfer, accuracy"].n_items == 6


def test_an_undefined_score_leaves_only_its_task_and_the_average_undefined():
    flat = replace(correlated(2), scores={"spearman": float("nan")}, items=Items(np.ones(N_PAIRS), GOLD))
    first = result_of({"STSB": correlated(2), "STS12": correlated(2)})
    second = result_of({"STSB": correlated(0.1), "STS12": flat})
    compared = compare_results(first, second, n_resamples=FEW)
    assert compared.tasks["STSB"].verdict == "better"
    assert compared.tasks["STSB"].p_corrected == compared.tasks["STSB"].p_value  # one test only
    for undefined in (compared.tasks["STS12"], compared.averages["sts, spearman"]):
        assert np.isnan([undefined.difference, *undefined.interval, undefined.p_value]).all()
        assert undefined.verdict == "cannot tell"
    assert any("STS12" in note and "undefined" in note for note in compared.notes)
    assert json.loads(json.dumps(compared.to_json(), allow_nan=False))["tasks"]["STS12"]["p_value"] is None


def test_tasks_that_only_one_has_are_listed():
    first = result_of({"STSB": correlated(2), "STS12": correlated(2)})
    second = result_of({"RTE": averaged([1, 0]), "STSB": correlated(2)})
    compared = compare_results(first, second, n_resamples=FEW)
    assert list(compared.tasks) == ["STSB"]
    assert (compared.first.only, compared.second.only) == (("STS12",), ("RTE",))


def test_the_seed_makes_the_draws():
    first, second = (result_of({"STSB": correlated(2, seed)}) for seed in (3, 4))
    intervals = [
        compare_results(first, second, seed=seed, n_resamples=200).tasks["STSB"].interval for seed in (0, 0, 1)
    ]
    assert intervals[0] == intervals[1] != intervals[2]


def test_a_wider_level_gives_a_wider_interval():
    first, second = (result_of({"STSB": correlated(2, seed)}) for seed in (3, 4))
    (low, high), (lower, higher) = (
        compare_results(first, second, level=level, n_resamples=FEW).tasks["STSB"].interval for level in (0.9, 0.99)
    )
    assert lower < low < high < higher


def test_progress_counts_the_items(progress):
    result = result_of({"STSB": correlated(2), "MR": averaged([1, 0, 1])})
    compare_results(result, result, n_resamples=10, progress=progress)
    assert progress.complete() == [N_PAIRS + 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"protocol": {"similarity": "dot"}}, "STSB: protocol similarity is cosine and dot"),
        ({"protocol": {}}, "STSB: protocol similarity is cosine and absent"),
        ({"metric": "pearson"}, "STSB: metric is spearman and pearson"),
        ({"kind": "transfer"}, "STSB: kind is sts and transfer"),
        ({"n_items": 7}, "STSB: n_items is 200 and 7"),
        ({"data": {"a.txt": "0a", "b.txt": "ff"}}, "STSB: files differ (b.txt)"),
        ({"data": {"a.txt": "0a"}}, "STSB: files differ (b.txt)"),
        ({"data": {str(number): str(number) for number in range(9)}}, "STSB: files differ (0, 1, 2 and 8 more)"),
        ({"items": Items(GOLD, GOLD[::-1])}, "STSB: human scores differ"),
    ],
)
def test_results_that_were_not_measured_alike_are_refused(change, words):
    first = result_of({"STSB": correlated(2), "MR": averaged([1, 0])})
    second = result_of({"STSB": replace(correlated(2), **change), "MR": averaged([1, 0])})
    with pytest.raises(InputError) as caught:
        compare_results(first, second, names=("A.json", "B.json"), n_resamples=FEW)
    assert words in str(caught.value)
    assert "A.json and B.json are not of the same data by the same protocol" in str(caught.value)
    assert "name the other tasks" in str(caught.value)
    assert list(compare_results(first, second, tasks=["MR"], n_resamples=FEW).tasks) == ["MR"]


def test_all_that_differs_is_said_at_once():
    first = result_of({"STSB": correlated(2), "MR": averaged([1, 0])})
    other = replace(correlated(2), protocol={"similarity": "dot"}, n_items=7)
    second = result_of({"STSB": other, "MR": averaged([1, 0], data={})})
    with pytest.raises(InputError, match=r"STSB: n_items .*, protocol similarity .*; MR: files differ"):
        compare_results(first, second, n_resamples=FEW)


def test_files_are_known_by_their_content():
    elsewhere = replace(correlated(2), data={"sts/a.txt": "0a", "sts/b.txt": "0b"})
    compare_results(result_of({"STSB": correlated(2)}), result_of({"STSB": elsewhere}), n_resamples=FEW)


def test_lists_and_tuples_of_a_protocol_are_the_same():
    first, second = (correlated(2, protocol={"missing_subsets": missing}) for missing in (["FNWN"], ("FNWN",)))
    compare_results(result_of({"STSB": first}), result_of({"STSB": second}), n_resamples=FEW)


def test_results_without_items_have_no_interval_and_it_is_said_how_to_get_one():
    full, bare = correlated(2), replace(correlated(2), items=Items(np.zeros(0)))
    first, second = (result_of({"STSB": stsb, "MR": averaged([1, 0])}) for stsb in (full, bare))
    found = compare_results(first, second, names=("A.json", "B.json"), n_resamples=FEW)
    assert (found.tasks["STSB"].verdict, found.tasks["STSB"].test) == ("no interval", "none")
    assert np.isnan(found.tasks["STSB"].interval).all()
    assert found.tasks["STSB"].difference == second.tasks["STSB"].score - first.tasks["STSB"].score
    assert found.tasks["MR"].verdict == "the same"
    (note,) = [note for note in found.notes if "no interval" in note]
    assert "B.json" in note
    assert "STSB" in note
    assert "MR" not in note
    assert "-o OUT.json" in note


def test_results_without_a_common_task_are_refused():
    with pytest.raises(InputError, match="no task in common: the first has STSB; the second has MR"):
        compare_results(result_of({"STSB": correlated(2)}), result_of({"MR": averaged([1, 0])}), n_resamples=FEW)


def test_an_unknown_task_is_refused_with_the_nearest_name():
    result = result_of({"STSB": correlated(2), "STS12": correlated(2)})
    with pytest.raises(InputError, match=r"the first has no task 'STSb'\. Did you mean STSB\? It has: STSB, STS12"):
        compare_results(result, result, tasks=["STSb"])
    with pytest.raises(InputTypeError, match="one string"):
        compare_results(result, result, tasks="STSB")


def test_what_is_no_setting_is_refused():
    result = result_of({"STSB": correlated(2)})
    with pytest.raises(InputError, match="level must be between 0 and 1"):
        compare_results(result, result, level=95.0)
    with pytest.raises(InputError, match="correlation must be one of spearman, pearson; got 'kendall'"):
        compare_results(result, result, correlation="kendall")
    with pytest.raises(InputTypeError, match="EvaluationResult; got dict"):
        compare_results(result, {})


def test_notes_say_what_weakens_a_verdict():
    plain = result_of({"STSB": correlated(2)})
    other = result_of({"STSB": correlated(2)}, transductive=True, seed=7, isosent="0.2.0")
    notes = " ".join(compare_results(plain, other, names=("A", "B"), n_resamples=30).notes)
    assert "B was fitted on the texts of each task (without labels), A was not" in notes
    assert "A was made with seed 0, B with seed 7" in notes
    assert "A was made with isosent 0.1.0, B with isosent 0.2.0" in notes
    assert "30 draws are too few" in notes


def test_texts_that_a_model_was_fitted_on_are_noted():
    plain, other = (result_of({"STSB": correlated(noise), "STS12": correlated(2)}) for noise in (2, 3))
    overlap = {"STSB": {"n_texts": 90, "n_same": 61}, "STS12": {"n_texts": 80, "n_same": 0}}
    seen = replace(other, fitting=other.fitting | {"overlap": overlap})
    (note,) = compare_results(plain, seen, names=("A", "B"), n_resamples=FEW).notes
    assert note.startswith("B was fitted")
    assert "61 of the 90 texts of STSB" in note
    assert "STS12" not in note
    assert compare_results(plain, seen, tasks=["STS12"], n_resamples=FEW).notes == ()


def test_a_result_and_itself_are_noted_once():
    plain = result_of({"STSB": correlated(2)})
    several = replace(plain, variants=(replace(plain, fitting=plain.fitting | {"transform": "whitening"}),))
    same, of_several = compare_results(several, several, names=("r.json", "r.json"), n_resamples=FEW).notes
    assert "nothing to compare" in same
    assert "r.json holds 2 transforms" in of_several
    changed = result_of({"STSB": correlated(3)})
    assert compare_results(plain, changed, n_resamples=FEW).notes == ()


def test_a_comparison_is_plain_values():
    result = result_of({"STSB": correlated(2)})
    document = json.loads(json.dumps(compare_results(result, result, n_resamples=FEW).to_json(), allow_nan=False))
    assert document["first"]["model"] == {"reference": "wordllama"}
    assert document["tasks"]["STSB"]["verdict"] == "the same"
    assert document["level"] == 0.95


def test_a_negative_number_has_a_minus_in_latex():
    made = latex_table(["all-MiniLM", "B - A"], [["gem-2", "-41.87"], ["a", "-1.50 to -0.20"]])
    assert "gem-2 & $-$41.87" in made
    assert "$-$1.50 to $-$0.20" in made
