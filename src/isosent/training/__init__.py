"""Sentence-BERT training: data, objectives, the run, and the model that it saves (Reimers & Gurevych 2019)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.io.pairs import ScoredPairs
    from isosent.training.data import Examples, read_dev_set, read_examples
    from isosent.training.plan import train
    from isosent.training.record import TrainingResult
    from isosent.training.settings import TrainingSettings, parse_setting

_MODULES = {
    "Examples": "isosent.training.data",
    "ScoredPairs": "isosent.io.pairs",
    "TrainingResult": "isosent.training.record",
    "TrainingSettings": "isosent.training.settings",
    "parse_setting": "isosent.training.settings",
    "read_dev_set": "isosent.training.data",
    "read_examples": "isosent.training.data",
    "train": "isosent.training.plan",
}
__all__ = [
    "Examples",
    "ScoredPairs",
    "TrainingResult",
    "TrainingSettings",
    "parse_setting",
    "read_dev_set",
    "read_examples",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
