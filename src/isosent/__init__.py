"""Sentence vectors that are better, smaller and comparable: with no training at all, or with little.

>>> import isosent
>>> encoder = isosent.load("wordllama")
>>> model = encoder.fit(isosent.demo_texts(), transform=isosent.Whitening(n_components=64))
>>> model.encode(["A man is riding a horse."]).shape
(1, 64)
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.demo.run import demo_texts
    from isosent.encoders.base import Encoder
    from isosent.errors import (
        FileFormatError,
        InputError,
        InputFileError,
        InputTypeError,
        IsosentError,
        IsosentWarning,
        MissingExtraError,
        ModelFolderError,
        ModelReferenceError,
        OutputError,
    )
    from isosent.evaluation.sts import evaluate_sts
    from isosent.files.texts import read_texts
    from isosent.model import SentenceEncoder, load
    from isosent.numeric.linear_map import LinearMap
    from isosent.numeric.moments import Moments
    from isosent.transforms.whitening import Whitening

_HOME = {
    "Encoder": "isosent.encoders.base",
    "FileFormatError": "isosent.errors",
    "InputError": "isosent.errors",
    "InputFileError": "isosent.errors",
    "InputTypeError": "isosent.errors",
    "IsosentError": "isosent.errors",
    "IsosentWarning": "isosent.errors",
    "LinearMap": "isosent.numeric.linear_map",
    "MissingExtraError": "isosent.errors",
    "ModelFolderError": "isosent.errors",
    "ModelReferenceError": "isosent.errors",
    "Moments": "isosent.numeric.moments",
    "OutputError": "isosent.errors",
    "SentenceEncoder": "isosent.model",
    "Whitening": "isosent.transforms.whitening",
    "demo_texts": "isosent.demo.run",
    "evaluate_sts": "isosent.evaluation.sts",
    "load": "isosent.model",
    "read_texts": "isosent.files.texts",
}

__all__ = [
    "Encoder",
    "FileFormatError",
    "InputError",
    "InputFileError",
    "InputTypeError",
    "IsosentError",
    "IsosentWarning",
    "LinearMap",
    "MissingExtraError",
    "ModelFolderError",
    "ModelReferenceError",
    "Moments",
    "OutputError",
    "SentenceEncoder",
    "Whitening",
    "demo_texts",
    "evaluate_sts",
    "load",
    "read_texts",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("isosent")
    if name not in _HOME:
        raise AttributeError(f"module 'isosent' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
