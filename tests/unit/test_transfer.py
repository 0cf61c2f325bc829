"""Transfer tasks from files to scores, on small ones made up of the demo's texts."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import isosent
from isosent import evaluate
from isosent.errors import EvaluationWarning, FileFormatError, TaskNotFoundError
from isosent.evaluation.transfer import STRENGTHS, STRENGTHS_ON_TRAIN, probe_each_fold, read_transfer

MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
JUDGMENTS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
QUICK = 20


@pytest.fixture
def cr(tmp_path, texts):
    """Texts of two topics, a fifth of them in the wrong file; and two empty ones."""
    for name, kind, more in (("pos", True, ""), ("neg", False, "\n\n")):
        chosen = [text for row, text in enumerate(texts[:70]) if ((row < 35) != (row % 5 == 0)) == kind]
        (tmp_path / f"custrev.{name}").write_text(more + "".join(f"{text}\n" for text in chosen), "utf-8")
    return tmp_path


@pytest.fixture
def mrpc(tmp_path, texts):
    for part, rows in (("train", range(90)), ("test", range(200, 230))):
        pairs = [(texts[row], texts[row + row % 3], int(row % 3 < 2)) for row in rows]
        lines = "".join(f"{label}\t0\t0\t{first}\t{second}\n" for first, second, label in pairs)
        (tmp_path / f"msr_paraphrase_{part}.txt").write_text(MRPC + lines, "utf-8")
    return tmp_path


@pytest.fixture
def sick(tmp_path, texts):
    for part, start in (("train", 0), ("trial", 100), ("test_annotated", 200)):
        rows = [
            (texts[row], texts[row + row % 5], 5 - row % 5 * 0.8, JUDGMENTS[row % 3])
            for row in range(start, start + 60)
        ]
        lines = "".join(f"{row}\t" + "\t".join(map(str, of)) + "\n" for row, of in enumerate(rows))
        (tmp_path / f"SICK_{part}.txt").write_text(SICK + lines, "utf-8")
    return tmp_path


def plain(rows, strengths):
    """Logistic regressions of scikit-learn for the penalties of the protocol."""
    variance = rows.var(axis=0).sum()
    return [LogisticRegression(C=strength / variance, tol=1e-8, max_iter=10_000) for strength in strengths]


def features(model, pairs):
    first, second = (model.encode(list(side)).astype(float) for side in zip(*pairs, strict=True))
    return np.hstack([abs(first - second), first * second])


def test_every_fold_is_predicted_by_the_others(wordllama, cr):
    task = evaluate(wordllama, cr, "transfer", transform=isosent.Truncate(8), n_resamples=QUICK).tasks["CR"]
    (task_set,) = read_transfer(cr)
    labels = task_set.texts_by_part["whole"].labels
    predicted, _, _ = probe_each_fold(
        wordllama.encode(list(task_set.texts))[:, :8], labels, strengths=STRENGTHS, seed=0
    )
    assert task.metric == "accuracy"
    assert np.array_equal(task.items.values, predicted == labels)
    assert task.score == np.mean(predicted == labels)


def test_what_is_known_of_a_task_of_folds(wordllama, cr):
    result = evaluate(wordllama, cr, "transfer", transform=isosent.Truncate(8), n_resamples=QUICK)
    task = result.tasks["CR"]
    details = task.details
    n_long = details["class_counts"]["whole"]["positive"]
    assert details["class_counts"]["whole"] == {"negative": 72 - n_long, "positive": n_long}
    majority = max(n_long, 72 - n_long)
    label = "positive" if n_long == majority else "negative"
    assert details["majority"] == {"label": label, "accuracy": majority / 72}
    assert (details["n_whole"], task.n_items, task.n_zero_rows) == (72, 72, 2)
    assert len(details["C"]) == len(details["folds"]) == 10
    assert details["folds_std"] == pytest.approx(np.std(details["folds"], ddof=1))
    assert np.mean(details["folds"]) == pytest.approx(task.score, abs=0.02)
    assert set(details["C_times_variance"]) <= set(STRENGTHS)
    assert task.protocol == {
        "classifier": "logistic regression",
        "features": "u",
        "standardised": False,
        "C_times_variance": [0.25, 0.5, 1, 2, 4, 8],
        "chosen_by": "10-fold cross-validation within each nine of 10 folds",
    }
    assert list(task.data) == ["custrev.neg", "custrev.pos"]


def test_pairs_have_difference_and_product_as_features(wordllama, mrpc):
    task = evaluate(wordllama, mrpc, "transfer", n_resamples=QUICK).tasks["MRPC"]
    (task_set,) = read_transfer(mrpc)
    train, test = (task_set.texts_by_part[part] for part in ("train", "test"))
    rows = features(wordllama, zip(*train.sides, strict=True))
    at = STRENGTHS_ON_TRAIN.index(task.details["C_times_variance"][0])
    model = plain(rows, STRENGTHS_ON_TRAIN)[at]
    assert task.details["C"] == [pytest.approx(model.C, rel=1e-5)]
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    assert task.details["dev"] == pytest.approx(
        np.mean(cross_val_predict(model, rows, train.labels, cv=folds) == train.labels), abs=0.02
    )
    told = model.fit(rows, train.labels).predict(features(wordllama, zip(*test.sides, strict=True)))
    assert task.scores == pytest.approx(
        {"accuracy": np.mean(told == test.labels), "f1": f1_score(test.labels, told)}, abs=1e-9
    )
    assert np.array_equal(task.items.values, told == test.labels)
    assert task.protocol["features"] == "|u - v|, u * v"
    assert (task.details["n_train"], task.details["n_test"]) == (90, 30)


def test_scores_of_pairs(wordllama, sick):
    result = evaluate(wordllama, sick, tasks="transfer:SICK-R", n_resamples=QUICK)
    task = result.tasks["SICK-R"]
    predicted, gold = task.items.values, task.items.gold
    assert gold[:3] == pytest.approx([5, 4.2, 3.4])
    assert task.scores["pearson"] == pytest.approx(np.corrcoef(predicted, gold)[0, 1])
    assert task.scores["mse"] == pytest.approx(np.mean((predicted - gold) ** 2))
    assert task.scores["pearson"] > 0.3
    assert (predicted.min() >= 1) & (predicted.max() <= 5)
    assert set(task.intervals) == {"pearson", "spearman"}
    assert task.protocol["chosen_by"] == "dev"
    assert task.protocol["distribution_over"] == ["1", "2", "3", "4", "5"]
    assert [task.details[f"n_{part}"] for part in ("train", "dev", "test")] == [60, 60, 60]


def test_one_folder_gives_both_tasks_of_sick(wordllama, sick):
    assert list(evaluate(wordllama, sick, "transfer", transform=isosent.Truncate(2), n_resamples=2).tasks) == [
        "SICK-R",
        "SICK-E",
    ]


def test_a_transform_is_fitted_on_all_texts_of_the_task(wordllama, mrpc):
    whitening = isosent.Whitening(8)
    task = evaluate(wordllama, mrpc, "transfer", transform=whitening, n_resamples=QUICK).tasks["MRPC"]
    (task_set,) = read_transfer(mrpc)
    fitted = wordllama.fitted(list(task_set.texts), transform=whitening)
    rows = features(fitted, zip(*task_set.texts_by_part["train"].sides, strict=True))
    assert task.dim == 8
    assert task.details["C"][0] == pytest.approx(task.details["C_times_variance"][0] / rows.var(axis=0).sum(), rel=1e-3)


def test_the_seed_deals_the_folds(wordllama, cr):
    folds = [
        evaluate(wordllama, cr, "transfer", transform=isosent.Truncate(4), seed=seed, n_resamples=2)
        .tasks["CR"]
        .details["folds"]
        for seed in (0, 0, 1)
    ]
    assert folds[0] == folds[1]
    assert folds[0] != folds[2]


def test_texts_without_a_vector_leave_a_correlation_undefined(wordllama, sick):
    for path in sick.glob("SICK_*.txt"):
        header, *lines = path.read_text("utf-8").splitlines()
        rows = ["\t".join([fields[0], "", "", *fields[3:]]) for fields in (line.split("\t") for line in lines)]
        path.write_text("\n".join([header, *rows]), "utf-8")
    with pytest.warns(
        EvaluationWarning, match="SICK-R: every predicted score is the same; its correlation is undefined"
    ):
        task = evaluate(wordllama, sick, tasks="transfer:SICK-R", n_resamples=QUICK).tasks["SICK-R"]
    assert np.isnan([task.scores["pearson"], task.scores["spearman"], task.details["dev"]]).all()
    assert task.scores["mse"] == pytest.approx(np.var(task.items.gold), abs=0.1)
    assert task.n_zero_rows == 360


def test_a_class_that_is_too_small_for_folds(wordllama, cr, texts):
    (cr / "custrev.pos").write_text("".join(f"{text}\n" for text in texts[:11]), "utf-8")
    with pytest.raises(FileFormatError, match=r"CR: every class needs at least 12 items .* holds 11 of positive"):
        evaluate(wordllama, cr, "transfer")


def test_a_class_that_does_not_occur_needs_no_folds(wordllama, tmp_path, texts):
    for name, n_texts in (("train_5500.label", 45), ("TREC_10.label", 9)):
        lines = [f"{('NUM:x', 'LOC:city', 'HUM:ind')[row % 3]} {text}\n" for row, text in enumerate(texts[:n_texts])]
        (tmp_path / name).write_text("".join(lines), "utf-8")
    task = evaluate(wordllama, tmp_path, "transfer", n_resamples=QUICK).tasks["TREC"]
    assert task.details["class_counts"]["train"]["ABBR"] == 0
    assert task.n_items == 9


def test_a_folder_without_tasks(wordllama, tmp_path):
    with pytest.raises(TaskNotFoundError, match="holds no transfer task"):
        evaluate(wordllama, tmp_path, "transfer")
