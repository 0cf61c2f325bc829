"""Result files made up: models of chosen skill on tasks of a few items."""

import numpy as np

from isosent.evaluation.result import EvaluationResult, Items, TaskResult

NAN = float("nan")
ENVIRONMENT = {"versions": {"python": "3.11.7", "isosent": "0.1.0"}, "machine": "x86", "system": "Linux", "n_cpus": 2}
NOTHING_FITTED = {"transform": None, "parameters": {}, "fit": None, "transductive": False}


def fitted(transform, fit="target", **parameters):
    return {"transform": transform, "parameters": parameters, "fit": fit, "transductive": fit == "target"}


def made_task(score=0.5, *, kind="sts", metric="spearman", items=None, **changes):
    """A task of that score, judged by items that tell nothing, or by the items given."""
    items = Items(np.array([0.1, 0.4, 0.3, 0.2]), np.array([1.0, 3.0, 4.0, 2.0])) if items is None else items
    fields = {
        "kind": kind,
        "metric": metric,
        "scores": {metric: score},
        "intervals": {metric: (score - 0.02, score + 0.03)},
        "protocol": {"similarity": "cosine"},
        "data": {"pairs.txt": "ab" * 32},
        "n_items": len(items.values),
        "dim": 64,
        "n_zero_rows": 3,
        "n_tokens": 1000,
        "n_unknown": 7,
        "elapsed_s": 1.5,
        "items": items,
    }
    return TaskResult(**{**fields, **changes})


def right_and_wrong(n_right, n_wrong=0, n_items=100, **changes):
    """An accuracy: so many items right from the first on, so many wrong from the last on, the others every second."""
    values = np.arange(n_items) % 2.0
    values[:n_right] = 1
    values[n_items - n_wrong :] = 0
    return made_task(float(values.mean()), items=Items(values), **{"kind": "transfer", "metric": "accuracy", **changes})


def made_result(reference="wordllama", /, fitting=NOTHING_FITTED, *, options=None, fits=(), fingerprint="f", **tasks):
    model = {
        "reference": reference,
        "options": options or {},
        "dim": 64,
        "encoder_dim": 64,
        "normalize": False,
        "separate_query_mean": False,
        "calibration": None,
        "fits": list(fits),
        "fingerprint": fingerprint * 64,
    }
    return EvaluationResult(model, fitting, tasks, ENVIRONMENT, 5, 1000, 400, 2, 0.5, 4.0)
