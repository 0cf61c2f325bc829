"""What the JSON files of a training may hold, as `isosent.io.schemas`: fields with a default were added later."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from isosent.io.schemas import Checksum, Count, Document, RelativePath, Sha256


class Facts(Document, kw_only=True):
    """What the weights depend on, see `TrainingJob.facts`."""

    objective: str
    concatenation: str
    margin: float
    scale: float
    mini_batch: int | None
    matryoshka: list[int]
    regularizer: str | None
    regularizer_weight: float
    batch_size: int
    n_epochs: float
    learning_rate: float | None
    warmup: float
    weight_decay: float
    max_gradient_norm: float
    accumulation: int
    batching: str
    token_budget: int | None
    precision: str
    recompute: bool
    n_evaluations: int
    checkpoint_every: int
    keep: str
    seed: int
    data: Sha256
    development: Sha256 | None
    base: dict[str, Any]
    base_reference: str | None = None
    pooling: str | None = None
    max_length: int | None = None
    n_processes: int = 1
    run: str | None = None


class EvaluationSettings(Facts, kw_only=True):
    """``run.json`` in the folder of a run that goes on."""

    format: Literal["isosent-run"] = "isosent-run"
    format_version: Literal[1] = 1


class DevScoreFields(Struct, forbid_unknown_fields=True):
    """Fields of `DevScore`."""

    spearman: float | None
    pearson: float | None
    n_pairs: Count


class ScoresFields(Struct, forbid_unknown_fields=True):
    """Fields of `Scores`."""

    before: DevScoreFields
    after: DevScoreFields
    with_transform: DevScoreFields | None = None


class Record(Facts, kw_only=True):
    """``training.json`` in a trained folder."""

    peak_learning_rate: float
    examples: dict[str, Any]
    n_steps: Count
    kept_step: Count
    elapsed_s: float
    scores: dict[str, ScoresFields]
    fingerprint: str
    python: str
    packages: dict[str, str]
    tests: dict[str, Sha256] | None = None
    transform: str | None = None
    transform_settings: dict[str, Any] | None = None
    fitted_on: str | None = None
    checksums: dict[RelativePath, Checksum] | None = None


class OptimizerFields(Struct, forbid_unknown_fields=True):
    """The state of an optimizer without its tensors."""

    values: dict[str, Any]
    param_groups: list[dict[str, Any]]


class RandomFields(Struct, forbid_unknown_fields=True):
    """The random generators of a process: what ``random.setstate`` and ``numpy.random.set_state`` take."""

    python: tuple[int, list[int], float | None]
    numpy: tuple[str, list[int], int, int, float]


class CheckpointFields(Document, kw_only=True):
    """``rest.json`` in a checkpoint."""

    n_tensors: dict[str, Count]
    optimizer: OptimizerFields
    scheduler: dict[str, Any]
    random: list[RandomFields]
    format: Literal["isosent-training-checkpoint"] = "isosent-training-checkpoint"
    format_version: Literal[1] = 1
    checksums: dict[RelativePath, Checksum] | None = None


class TrainerState(Struct):
    """``trainer_state.json`` in a checkpoint, which is the library's: only what is needed here is checked."""

    global_step: Count


class LossLine(Struct, forbid_unknown_fields=True, kw_only=True):
    """A loss in ``metrics.jsonl``."""

    event: Literal["loss"]
    step: Count
    epoch: float | None
    loss: float | None
    learning_rate: float | None
    gradient_norm: float | None
    examples_per_s: float | None
    elapsed_s: float | None
    checksum: Checksum | None = None


class DevLine(Struct, forbid_unknown_fields=True, kw_only=True):
    """A score of the development set in ``metrics.jsonl``."""

    event: Literal["dev"]
    step: Count
    spearman: float | None
    pearson: float | None
    n_pairs: Count
    checksum: Checksum | None = None


class MilestoneLine(Struct, forbid_unknown_fields=True, kw_only=True):
    """Any other line of ``metrics.jsonl``."""

    event: str
    step: Count
    n_steps: Count | None = None
    elapsed_s: float | None = None
    reason: str | None = None
    spearman: float | None = None
    checksum: Checksum | None = None
