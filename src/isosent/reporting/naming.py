"""What a model and its settings are called, in as few words as tell them from the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isosent.evaluation.protocol import TARGET
from isosent.evaluation.result import EvaluationResult
from isosent.selection.candidates import LEAVE

_LONGEST_REFERENCE, _PARTS_SHOWN = 28, 2


@dataclass(frozen=True, slots=True)
class Step:
    """Something fitted behind an encoder.

    Parameters
    ----------
    transform : str
        What.
    parameters : mapping
        Its settings.
    source : str
        What on.
    """

    transform: str
    parameters: Mapping[str, Any]
    source: str


def steps_of(result: EvaluationResult) -> list[Step]:
    """List what stands behind the encoder: what came with the model, then what was fitted for the evaluation."""
    fitting = result.fitting
    steps = [Step(fit["transform"], fit["parameters"], fit["source"]) for fit in result.model["fits"]]
    if fitting["transform"] is not None:
        if fitting["fit"] != TARGET:  # the model was fitted once for all tasks, and says so itself
            steps.pop()
        steps.append(Step(fitting["transform"], fitting["parameters"], fitting["fit"]))
    return [step for step in steps if step.transform != LEAVE]


def identity_of(result: EvaluationResult) -> str:
    """Write down model and settings, the same for any two results that measured the same thing."""
    fits = [{**fit, "fitted_at": None} for fit in result.model["fits"]]
    return json.dumps([{**result.model, "fits": fits}, {**result.fitting, "overlap": None}], sort_keys=True)


def labels_of(results: Sequence[EvaluationResult]) -> list[str]:
    """Name models by reference and transforms, and by those settings that tell namesakes apart.

    Parameters
    ----------
    results : sequence of EvaluationResult
        Results.

    Returns
    -------
    list of str
        A label each, such as ``wordllama + whitening, n_components=64``; the same where no setting differs.
    """
    names = [
        " + ".join([short_reference(result.model["reference"]), *(step.transform for step in steps_of(result))])
        for result in results
    ]
    settings = [_settings_of(result) for result in results]
    labels = []
    for name, own in zip(names, settings, strict=True):
        namesakes = [of for other, of in zip(names, settings, strict=True) if other == name]
        told = [name]
        for key, value in own.items():
            alike = [of for of in namesakes if of.get(key) == value]
            if len(alike) < len(namesakes) and value is not None:
                told.append(f"{key}={value}")
            namesakes = alike
        labels.append(", ".join(told))
    return labels


def short_reference(reference: str) -> str:
    """Shorten a long path to its end, for a label; the small print has the whole.

    Parameters
    ----------
    reference : str
        Reference of a model.

    Returns
    -------
    str
        The whole where it is short; else what kind it is, and the last two parts of its path.

    Examples
    --------
    >>> short_reference("hf:bert-base-uncased"), short_reference("hf:/home/somebody/models/2024/mini/model")
    ('hf:bert-base-uncased', 'hf:…/mini/model')
    """
    kind, colon, path = reference.rpartition(":")
    parts = path.split("/")
    if len(reference) <= _LONGEST_REFERENCE or len(parts) <= _PARTS_SHOWN:
        return reference
    return "/".join([f"{kind}{colon}…", *parts[-_PARTS_SHOWN:]])


def _settings_of(result: EvaluationResult) -> dict[str, Any]:
    settings = dict(result.model["options"])
    for step in steps_of(result):
        settings |= step.parameters
    return settings | {"fitted on": result.fitting["fit"]}
