"""Time of the transfer tasks, and of their logistic regressions against those of scikit-learn, in one process.

Prints a JSON line for each task, then one for each way to fit. Usage: python bench/transfer.py --data DIR [--model REF]
[--tasks NAMES]; without --data only the regressions, on random rows.
"""

import argparse
import json
import time

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import isosent
from isosent.evaluation.run import run_tasks
from isosent.evaluation.transfer import N_FOLDS, STRENGTHS, stratified_folds, transfer_tasks
from isosent.numeric.logistic import logistic_path
from whitening_fit import SEED, THREADS, conditions

N_ROWS, DIM = 9595, 384
SOLVERS = (("lbfgs", 1e-4), ("newton-cholesky", 1e-4), ("lbfgs", 1e-8))


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def tasks_lines(reference, data, names):
    model = isosent.load(reference)
    read_s, jobs = seconds(lambda: transfer_tasks(data, names))
    result = run_tasks(model, jobs, data)
    for name, task in result.tasks.items():
        yield {"task": name, "n_items": task.n_items, "seconds": task.elapsed_s, **task.scores}
    yield {
        "model": reference,
        "dim": model.dim,
        "n_texts": result.n_texts,
        "read_seconds": read_s,
        "encode_seconds": result.encode_s,
        "score_seconds": sum(task.elapsed_s for task in result.tasks.values()),
    }


def fits_lines():
    """The fits of one of the ten outer folds of MR: ten inner ones and the whole, at each of six penalties."""
    rng = np.random.default_rng(SEED)
    rows = rng.standard_normal((N_ROWS, DIM)) / np.sqrt(DIM)
    labels = (rows @ rng.standard_normal(DIM) + rng.logistic(size=N_ROWS) > 0).astype(float)
    fold = stratified_folds(labels, SEED)
    weights = np.column_stack([fold[:, None] != np.arange(N_FOLDS), np.ones(N_ROWS)])
    spent, path = seconds(lambda: logistic_path(rows, np.eye(2)[labels.astype(int)], weights, STRENGTHS))
    ours = spent / weights.shape[1] / len(STRENGTHS)
    yield {"fits": "isosent, all at once", "seconds_per_fit": ours, "speed": 1.0}
    held_in = weights[:, 0] > 0
    for solver, tol in SOLVERS:
        models = [LogisticRegression(C=C, solver=solver, tol=tol, max_iter=10_000) for C in STRENGTHS]
        spent, _ = seconds(lambda models=models: [model.fit(rows[held_in], labels[held_in]) for model in models])
        away = max(
            np.abs(model.predict_proba(rows)[:, 1] - fits.probabilities(rows)[:, 1, 0]).max()
            for model, fits in zip(models, path, strict=True)
        )
        theirs = spent / len(STRENGTHS)
        yield {
            "fits": f"scikit-learn {solver}, tol {tol:g}",
            "seconds_per_fit": theirs,
            "speed": ours / theirs,
            "largest_difference_of_a_probability": float(away),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of the transfer tasks")
    parser.add_argument("--model", default="wordllama")
    parser.add_argument("--tasks", help="some of the tasks, with commas between them")
    arguments = parser.parse_args()
    print(json.dumps(conditions()))
    lines = [fits_lines()]
    if arguments.data:
        lines.insert(0, tasks_lines(arguments.model, arguments.data, arguments.tasks and arguments.tasks.split(",")))
    for part in lines:
        for line in part:
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    with threadpool_limits(THREADS):
        main()
