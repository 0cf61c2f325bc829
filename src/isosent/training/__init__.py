"""Sentence-BERT training: data, objectives, the run, and the model it gives (Reimers & Gurevych 2019)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.training.data import read_dev_set, read_examples
    from isosent.training.development import DevSet
    from isosent.training.examples import Examples
    from isosent.training.objectives import ObjectiveSettings
    from isosent.training.run import train
    from isosent.training.settings import PostFit, TrainingJob, TrainingResult, TrainingSettings

_HOME = {
    "DevSet": "development",
    "PostFit": "settings",
    "Examples": "examples",
    "ObjectiveSettings": "objectives",
    "TrainingJob": "settings",
    "TrainingResult": "settings",
    "TrainingSettings": "settings",
    "read_dev_set": "data",
    "read_examples": "data",
    "train": "run",
}
__all__ = [
    "DevSet",
    "Examples",
    "ObjectiveSettings",
    "PostFit",
    "TrainingJob",
    "TrainingResult",
    "TrainingSettings",
    "read_dev_set",
    "read_examples",
    "train",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
