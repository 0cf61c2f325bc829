"""README.md of an exported folder: what it is, what was fitted, what was measured, how to use it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.exports.note import space_of
from isosent.files.space import Space, same_space
from isosent.model import SentenceEncoder
from isosent.model_record import FitRecord

_USAGE = """## Use

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
vectors = model.encode(["A man is riding a horse.", "Someone rides a horse."])
print(model.similarity(vectors, vectors))
```
"""


def model_card(model: SentenceEncoder, results: Mapping[str, Any] | None = None) -> str:
    """Write the model card.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    results : mapping, optional
        What ``evaluate_sts(...).to_json()`` gave for this model.

    Returns
    -------
    str
        Markdown with the YAML header of the hub.

    Raises
    ------
    InputError
        If the results are those of another vector space.
    """
    facts = model.record.facts()
    options = ", ".join(f"{name}={value}" for name, value in facts["options"].items())
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, sentence-similarity, feature-extraction, isosent]",
        "---",
        "",
        "# Sentence vectors with a fitted linear map",
        "",
        f"- Encoder: `{_short(facts['reference'])}`" + (f" with {options}" if options else ""),
        f"- Dimensions: {facts['dim']}, from {facts['encoder_dim']} of the encoder",
        f"- Scaled to length 1 behind the map: {'yes' if model.normalize else 'no'}",
        f"- Fingerprint of the vector space: `{model.fingerprint}`",
        "",
        "Only vectors with the same fingerprint can be compared. All settings are in `isosent.json`. A text without a",
        "token has no vector: isosent gives it a zero row, this folder does not. Leave such texts out.",
        "",
        "## What was fitted",
        "",
        *(_fit_line(fit) for fit in model.fits),
        *(["Nothing: these are the vectors of the encoder."] if not model.fits else []),
        "",
        *(_score_lines(model, results) if results else []),
    ]
    return "\n".join(lines) + "\n" + _USAGE


def _short(reference: str) -> str:
    """A reference without the folders of the machine it was made on."""
    return re.sub(r"(^|[:,])/[^,]*/", r"\1", reference)


def _fit_line(fit: FitRecord) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in fit.parameters.items())
    return f"- {fit.transform}({settings}), on {fit.n_texts} texts of {_short(fit.source)}, {fit.fitted_at}"


def _score_lines(model: SentenceEncoder, results: Mapping[str, Any]) -> list[str]:
    measured = Space(results["model"]["fingerprint"], results["model"]["reference"])
    same_space("the model", space_of(model), "export: the result file", measured)
    if results["protocol"]["transform"] is not None:
        raise InputError(
            "export --results: the scores must be those of the model as it is; they were measured with a transform "
            "fitted behind it. Measure the model itself: isosent evaluate sts -m MODEL --data DIR --json scores.json"
        )
    rows = [
        f"| {name} | {100 * task['spearman']['all']:.2f} |"
        for name, task in results["tasks"].items()
        if task["spearman"]["all"] is not None
    ]
    return [
        "## Measured",
        "",
        "Spearman correlation of cosines with human scores over all pairs, x100:",
        "",
        "| task | spearman |",
        "|---|---:|",
        *rows,
        "",
    ]


def read_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the scores that ``isosent evaluate sts --json`` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    dict
        What `model_card` takes.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it holds something else.
    """
    try:
        document = json.loads(_check.input_file(path).read_text("utf-8"))
        results = {name: dict(document[name]) for name in ("model", "protocol", "tasks")}
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputFileError):
            raise
        raise FileFormatError(
            f"{path} must be what 'isosent evaluate sts --json' wrote; it is not: {error!r}."
        ) from None
    return results
