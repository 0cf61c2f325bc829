"""Sentence-BERT training: data, objectives, the run, and the model that it saves (Reimers & Gurevych 2019)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.training.data import Examples, read_dev_set, read_examples
    from isosent.training.development import DevSet
    from isosent.training.run import TrainingResult, train
    from isosent.training.settings import TrainingSettings, parse_setting

_MODULES = {
    "DevSet": "development",
    "Examples": "data",
    "TrainingResult": "run",
    "TrainingSettings": "settings",
    "parse_setting": "settings",
    "read_dev_set": "data",
    "read_examples": "data",
    "train": "run",
}
__all__ = [
    "DevSet",
    "Examples",
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
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
