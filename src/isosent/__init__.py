"""Better, smaller and comparable sentence vectors, with or without training.

>>> import isosent
>>> model = isosent.load("wordllama").fitted(isosent.demo_texts(), isosent.Whitening(n_components=64))
>>> model.encode(["A man is riding a horse."]).shape
(1, 64)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.demo import demo_texts
    from isosent.encoders.word_average import GEM, SIF, USIF, Average, PowerMean, ZipfianWhitening
    from isosent.errors import IsosentError, IsosentWarning
    from isosent.evaluation.compare import compare_results
    from isosent.evaluation.evaluate import evaluate
    from isosent.evaluation.migration import migrate
    from isosent.evaluation.result import EvaluationResult
    from isosent.evaluation.result_file import read_result
    from isosent.evaluation.unlabelled import compare_on_texts
    from isosent.io.texts import read_texts
    from isosent.jobs.inspect import inspect_texts, inspect_vectors
    from isosent.jobs.shards import encode_folder
    from isosent.loading import load, wrap
    from isosent.model import SentenceEncoder
    from isosent.numeric.drift import drift
    from isosent.numeric.linear_map import LinearMap
    from isosent.numeric.moments import Moments
    from isosent.training.distill import distill
    from isosent.transforms.calibration import Calibration
    from isosent.transforms.chain import L2Normalize, chain
    from isosent.transforms.erasure import Erasure
    from isosent.transforms.flow import GlowFlow
    from isosent.transforms.linear import (
        AllButTheTop,
        CommonComponentRemoval,
        MeanCentering,
        MeanProjection,
        Standardize,
        Truncate,
    )
    from isosent.transforms.quantization import Quantization
    from isosent.transforms.whitening import PrincipalComponents, Whitening

# A name is imported when it is first used: importing isosent takes milliseconds, scikit-learn alone takes 0.5 s.
_NAMES = {
    "demo": "demo_texts",
    "encoders.word_average": "GEM SIF USIF Average PowerMean ZipfianWhitening",
    "errors": "IsosentError IsosentWarning",
    "evaluation.compare": "compare_results",
    "evaluation.migration": "migrate",
    "evaluation.unlabelled": "compare_on_texts",
    "evaluation.result": "EvaluationResult",
    "evaluation.result_file": "read_result",
    "evaluation.evaluate": "evaluate",
    "io.texts": "read_texts",
    "loading": "load wrap",
    "model": "SentenceEncoder",
    "numeric.drift": "drift",
    "numeric.linear_map": "LinearMap",
    "numeric.moments": "Moments",
    "jobs.inspect": "inspect_texts inspect_vectors",
    "jobs.shards": "encode_folder",
    "training.distill": "distill",
    "transforms.calibration": "Calibration",
    "transforms.chain": "L2Normalize chain",
    "transforms.erasure": "Erasure",
    "transforms.flow": "GlowFlow",
    "transforms.linear": "AllButTheTop CommonComponentRemoval MeanCentering MeanProjection Standardize Truncate",
    "transforms.quantization": "Quantization",
    "transforms.whitening": "PrincipalComponents Whitening",
}
_MODULE_OF = {name: f"isosent.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "GEM",
    "SIF",
    "USIF",
    "AllButTheTop",
    "Average",
    "Calibration",
    "CommonComponentRemoval",
    "Erasure",
    "EvaluationResult",
    "GlowFlow",
    "IsosentError",
    "IsosentWarning",
    "L2Normalize",
    "LinearMap",
    "MeanCentering",
    "MeanProjection",
    "Moments",
    "PowerMean",
    "PrincipalComponents",
    "Quantization",
    "SentenceEncoder",
    "Standardize",
    "Truncate",
    "Whitening",
    "ZipfianWhitening",
    "chain",
    "compare_on_texts",
    "compare_results",
    "demo_texts",
    "distill",
    "drift",
    "encode_folder",
    "evaluate",
    "inspect_texts",
    "inspect_vectors",
    "load",
    "migrate",
    "read_result",
    "read_texts",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes 70 ms

        return version("isosent")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'isosent' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
