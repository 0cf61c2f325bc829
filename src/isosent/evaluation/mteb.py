"""MTEB: which of its scores ours can be compared with, and what its result files hold.

`mteb_score` is the one place that knows MTEB's names. `scores_of_file` reads both forms of its files: the newer one has
a list of subsets for each split under "scores", the older one has the splits themselves, and nested similarities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from msgspec import Struct

from isosent.errors import FileFormatError
from isosent.evaluation.sizes import KNOWN_SETS, TEST
from isosent.io.json import check_schema

BENCHMARK = "MTEB"
# Ours by kind, and MTEB's. Classification has the names of MTEB; of retrieval, folders are named as in BEIR
_TASKS: Mapping[str, Mapping[str, str]] = {
    "sts": {name: name for name in ("STS12", "STS13", "STS14", "STS15", "STS16")}
    | {"STSB": "STSBenchmark", "SICKR": "SICK-R"},
    "classification": {name: name for name in KNOWN_SETS["classification"]},
    "retrieval": {
        "arguana": "ArguAna",
        "fiqa": "FiQA2018",
        "nfcorpus": "NFCorpus",
        "quora": "QuoraRetrieval",
        "scidocs": "SCIDOCS",
        "scifact": "SciFact",
        "trec-covid": "TRECCOVID",
    },
}
_METRICS = {"sts": "cosine_spearman", "classification": "accuracy", "retrieval": "ndcg_at_10"}
_OURS = {"cosine_spearman": "spearman", "cosine_pearson": "pearson", "ndcg_at_10": "ndcg@10", "map_at_1000": "map"}
# Files do not say what kind their task is: by the metric that equals the main score, in this order
_KINDS = {
    "cosine_spearman": "sts",
    "ndcg_at_10": "retrieval",
    "v_measure": "clustering",
    "accuracy": "classification",
    "max_ap": "pair classification",
    "cosine_ap": "pair classification",
    "map": "reranking",
    "map_at_1000": "reranking",
    "f1": "bitext mining",
}
_SUMMARIES = "SummEval"  # judged by Spearman as STS, and no STS
_SIMILARITIES = {"cos_sim": "cosine", "dot": "dot", "euclidean": "euclidean", "manhattan": "manhattan", "max": "max"}
_DEFAULT = "default"


class MtebScore(NamedTuple):
    """A published score: of a task and split of MTEB, by a metric."""

    task: str
    split: str
    metric: str

    def __str__(self) -> str:
        """Return task, split and metric, separated by commas."""
        return ", ".join(self)


class FileScores(NamedTuple):
    """The scores of a task, split and subset in a file of MTEB."""

    name: str  # ours, if we have the task; else MTEB's, with split and subset if they are not the usual ones
    kind: str
    metric: str
    scores: Mapping[str, float]  # NaN if undefined
    draws: tuple[float, ...]  # of a clustering; empty for all other tasks, of which files have no single scores
    protocol: Mapping[str, Any]


def mteb_score(kind: str, name: str, protocol: Mapping[str, Any]) -> MtebScore | None:
    """The score of MTEB that one of a `TaskResult` compares with, ours or of a file of MTEB; None if there is none."""
    if protocol.get("benchmark") == BENCHMARK:
        return MtebScore(protocol["task"], protocol["split"], protocol["metric"])
    task = _TASKS.get(kind, {}).get(name)
    if task is None or protocol.get("split", TEST) != TEST or protocol.get("sickr", "full") != "full":
        return None
    return MtebScore(task, TEST, _METRICS[kind])


def is_mteb(document: Mapping[str, Any]) -> bool:
    """Whether a JSON document is a result file of MTEB."""
    return "mteb_dataset_name" in document or {"task_name", "scores"} <= document.keys()


class _File(Struct):
    """What every file of MTEB says, whatever else it says."""

    task_name: str | None = None
    mteb_dataset_name: str | None = None
    mteb_version: str | None = None
    dataset_revision: str | None = None
    scores: dict[str, list[dict[str, Any]]] | None = None


def scores_of_file(document: Mapping[str, Any], where: str) -> Iterator[FileScores]:
    """Read a file of MTEB: one score for each subset of the split "test", or of every split if none is called so."""
    check_schema(document, where, _File)
    task = document.get("task_name") or document.get("mteb_dataset_name") or "unnamed"
    facts = {"dataset_revision": document.get("dataset_revision")}
    found = False
    for split, subset, values in _subsets(document):
        main = values.get("main_score")
        metrics = ("f1",) if _is_bitext(values) else _KINDS
        metric = next((name for name in metrics if name in values and _is_main(values[name], main)), "main_score")
        score = values.get(metric)
        if not _is_score(score):
            raise FileFormatError(f"{where}: {split} has the {metric} {score!r}; expected a number from -1 to 1.")
        found = True
        ours = _OURS.get(metric, metric)
        kind = "summarization" if _SUMMARIES in task else _KINDS.get(metric, BENCHMARK)
        protocol = {
            "benchmark": BENCHMARK,
            "task": task,
            "split": split,
            "subset": subset,
            "metric": _METRICS.get(kind, ours),
        }
        names = [name for name, each in _TASKS.get(kind, {}).items() if (each, split, subset) == (task, TEST, _DEFAULT)]
        parts = [part for part, usual in ((split, TEST), (subset, _DEFAULT)) if part != usual]
        name = names[0] if names else f"{task} ({', '.join(parts)})" if parts else task
        scores = {
            _OURS.get(each, each): float(values[each]) for each in (metric, *_OURS) if _is_score(values.get(each))
        }
        yield FileScores(name, kind, ours, scores, _draws(values, score), protocol | facts)
    if not found:
        raise FileFormatError(f"{where}: a result file of MTEB without scores.")


def _is_bitext(values: Mapping[str, Any]) -> bool:
    """Whether all metrics are those of bitext mining, of which accuracy and f1 are often equal.

    Classification has no precision in older files, and weighted means next to it in newer ones.
    """
    return {"accuracy", "f1", "precision", "recall"} <= values.keys() and "f1_weighted" not in values


def _is_score(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) > 1  # NaN is one


def _is_main(score: Any, main: Any) -> bool:
    """Whether a score is the main one, which older files do not always name."""
    if main is None or score == main:
        return True
    numbers = isinstance(score, float) and isinstance(main, float)
    return numbers and (math.isclose(score, main, abs_tol=1e-9) or (math.isnan(score) and math.isnan(main)))


def _subsets(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Split, subset and metrics, by the names of newer files."""
    if (splits := document.get("scores")) is not None:
        for split in _chosen(splits):
            for values in splits[split]:
                yield split, str(values.get("hf_subset", _DEFAULT)), values
        return
    splits = {name: values for name, values in document.items() if isinstance(values, dict)}
    for split in _chosen(splits):
        values = splits[split]
        languages = {name: each for name, each in values.items() if isinstance(each, dict)}
        if languages and not languages.keys() & _SIMILARITIES.keys():
            yield from ((split, name, _flat(each)) for name, each in languages.items())
        else:
            yield split, _DEFAULT, _flat(values)


def _chosen(splits: Mapping[str, Any]) -> list[str]:
    """The split called test, which MTEB ranks by, or else all."""
    return [TEST] if TEST in splits else list(splits)


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    nested = {name: each for name, each in values.items() if name in _SIMILARITIES and isinstance(each, dict)}
    flat = {f"{_SIMILARITIES[name]}_{metric}": score for name, each in nested.items() for metric, score in each.items()}
    return {name: each for name, each in values.items() if name not in nested} | flat


def _draws(values: Mapping[str, Any], score: float) -> tuple[float, ...]:
    """Scores of the draws of a clustering, if there is one level of labels, whose mean is the score."""
    levels = values.get("v_measures")
    draws = list(levels.values()) if isinstance(levels, dict) else []
    if len(draws) != 1 or not isinstance(draws[0], list) or len(draws[0]) < 2:
        return ()
    numbers = tuple(each for each in draws[0] if isinstance(each, (int, float)) and abs(each) <= 1)
    is_mean = len(numbers) == len(draws[0]) and math.isclose(sum(numbers) / len(numbers), score, abs_tol=1e-6)
    return numbers if is_mean else ()
