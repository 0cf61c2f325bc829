"""README.md of an exported folder: what it is, what was fitted, what was measured, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isosent.encoders.prompts import named_prompts
from isosent.encoders.transformer import PROMPT_OF
from isosent.errors import InputError, InputTypeError
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.tables import interval_x100, x100
from isosent.exports.note import shared_facts, space_of
from isosent.files.space import Space, same_space
from isosent.model import SentenceEncoder

_USAGE = """## Use

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
vectors = model.encode(["A man is riding a horse.", "Someone rides a horse."])
print(model.similarity(vectors, vectors))
```

Texts to search with go through `encode_query`, texts to be found through `encode_document`: each puts its prompt in
front, where there is one.
"""


def model_card(model: SentenceEncoder, results: EvaluationResult | None = None) -> str:
    """Write the model card.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    results : EvaluationResult, optional
        Scores of this model.

    Returns
    -------
    str
        Markdown with the YAML header of the hub.

    Raises
    ------
    InputError
        If the results are those of another vector space, or of a transform fitted for them.
    """
    facts = shared_facts(model)
    options = ", ".join(f"{k}={v}" for k, v in facts["options"].items() if k not in PROMPT_OF.values())
    prompts = ", ".join(f"{name} `{prompt}`" for name, prompt in named_prompts(model.encoder).items() if prompt)
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, sentence-similarity, feature-extraction, isosent]",
        "---",
        "",
        "# Sentence vectors with a fitted linear map",
        "",
        f"- Encoder: `{facts['reference']}`" + (f" with {options}" if options else ""),
        *([f"- Prompts: {prompts}"] if prompts else []),
        f"- Dimensions: {facts['dim']}, from {facts['encoder_dim']} of the encoder",
        f"- Scaled to length 1 behind the map: {'yes' if model.normalize else 'no'}",
        f"- Fingerprint of the vector space: `{model.fingerprint}`",
        "",
        "Only vectors with the same fingerprint can be compared. All settings are in `isosent.json`. A text without a",
        "token has no vector: isosent gives it a zero row, this folder does not. Leave such texts out.",
        "",
        "## What was fitted",
        "",
        *(_fit_line(fit) for fit in facts["fits"]),
        *(["Nothing: these are the vectors of the encoder."] if not model.fits else []),
        "",
        *(_score_lines(model, results) if results else []),
    ]
    return "\n".join(lines) + "\n" + _USAGE


def _fit_line(fit: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in fit["parameters"].items())
    return f"- {fit['transform']}({settings}), on {fit['n_texts']} texts of {fit['source']}, {fit['fitted_at']}"


def _score_lines(model: SentenceEncoder, results: EvaluationResult) -> list[str]:
    if not isinstance(results, EvaluationResult):
        raise InputTypeError(
            f"export: results must be what evaluate_sts or read_result returned; got {type(results).__name__}."
        )
    measured = Space(results.model["fingerprint"], results.model["reference"])
    same_space("the model", space_of(model), "export: the result file", measured)
    if results.fitting["transform"] is not None:
        raise InputError(
            "export --results: the scores must be those of the model as it is; they were measured with a transform "
            "fitted behind it. Measure the model itself: isosent evaluate sts -m MODEL --data DIR --json scores.json"
        )
    rows = [
        f"| {name} | {task.metric} | {x100(task.score)} | {interval_x100(task.interval)} | {task.n_items} |"
        for name, task in results.tasks.items()
    ]
    return [
        "## Measured",
        "",
        "x100; spearman and pearson are correlations of cosines with human scores over all pairs of a task:",
        "",
        "| task | metric | score | 95 % interval | items |",
        "|---|---|---:|---:|---:|",
        *rows,
        "",
    ]
