"""What a report takes from a result file: a file that was changed by hand may lack it, and is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isosent.errors import FileFormatError
from isosent.evaluation.result import EvaluationResult

Fields = Mapping[str, type | tuple[type, ...]]

_NONE = type(None)
_NUMBER = (int, float)
_RESULT: Fields = {
    **dict.fromkeys(("seed", "n_resamples", "n_texts", "n_cut"), int),
    **dict.fromkeys(("encode_s", "elapsed_s"), _NUMBER),
}
_MODEL: Fields = {"reference": str, "options": dict, "fits": list, "fingerprint": str}
_FIT: Fields = {"transform": str, "parameters": dict, "source": str}
_FITTING: Fields = {"transform": (str, _NONE), "parameters": dict, "fit": (str, _NONE), "transductive": bool}
_ENVIRONMENT: Fields = {"versions": dict, "machine": str, "system": str, "n_cpus": (int, _NONE)}
_TASK: Fields = {
    "kind": str,
    "elapsed_s": _NUMBER,
    **dict.fromkeys(("dim", "n_zero_rows", "n_tokens", "n_unknown"), int),
}
_CHOICE: Fields = {"chosen": str, "reason": str}


def check_shape(path: str, result: EvaluationResult) -> None:
    """Refuse a result that lacks what a report takes from it.

    Parameters
    ----------
    path : str
        Its file.
    result : EvaluationResult
        The result.

    Raises
    ------
    FileFormatError
        If it has no task, or a field is missing or of another type.
    """
    if not result.tasks:
        raise FileFormatError(f"{path} must hold the scores of at least one task; it holds none.")
    wrong = next(_wrong_fields(result), None)
    if wrong is not None:
        raise FileFormatError(
            f"{path} must be as isosent evaluate ... --json wrote it; its {wrong} is missing or of another type. "
            "Evaluate again."
        )


def _wrong_fields(result: EvaluationResult) -> Iterator[str]:
    of_result = {name: getattr(result, name) for name in _RESULT}
    yield from _wrong("result", of_result, _RESULT)
    yield from _wrong("model", result.model, _MODEL)
    for fit in result.model["fits"]:
        yield from _wrong("model, fits", fit, _FIT)
    yield from _wrong("fitting", result.fitting, _FITTING)
    yield from _wrong("environment", result.environment, _ENVIRONMENT)
    for name, task in result.tasks.items():
        yield from _wrong(name, {field: getattr(task, field) for field in _TASK}, _TASK)
        if not all(isinstance(checksum, str) for checksum in task.data.values()):
            yield f"{name}, data"
        if task.choice is not None:
            yield from _wrong(f"{name}, choice", task.choice, _CHOICE)


def _wrong(where: str, values: Any, fields: Fields) -> Iterator[str]:
    if not isinstance(values, dict):
        yield where
    else:
        yield from (f"{where}, {name}" for name, of in fields.items() if not isinstance(values.get(name, ...), of))
