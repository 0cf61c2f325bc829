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
    from isosent.calibration import Calibration
    from isosent.demo.run import demo_texts
    from isosent.encoders.base import Encoder
    from isosent.encoders.gem_weighting import GEM
    from isosent.encoders.weighting import SIF, USIF, Average, PowerMean
    from isosent.encoders.zipfian_weighting import ZipfianWhitening
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
        TaskNotFoundError,
    )
    from isosent.evaluation.compare import compare_results
    from isosent.evaluation.cqa import evaluate_cqa
    from isosent.evaluation.everything import evaluate_all
    from isosent.evaluation.pairs import evaluate_pairs
    from isosent.evaluation.result import EvaluationResult
    from isosent.evaluation.result_file import read_result
    from isosent.evaluation.retrieval import evaluate_retrieval
    from isosent.evaluation.rte import evaluate_rte
    from isosent.evaluation.running import Run
    from isosent.evaluation.sts import evaluate_sts
    from isosent.evaluation.transfer import evaluate_transfer
    from isosent.files.texts import read_texts
    from isosent.inspection.inspecting import inspect_texts, inspect_vectors
    from isosent.loading import load
    from isosent.model import SentenceEncoder
    from isosent.numeric.linear_map import LinearMap
    from isosent.numeric.moments import Moments
    from isosent.transforms.chain import L2Normalize, chain
    from isosent.transforms.components import (
        AllButTheTop,
        CommonComponentRemoval,
        MeanCentering,
        MeanProjection,
        Standardize,
        Truncate,
    )
    from isosent.transforms.glow import GlowFlow
    from isosent.transforms.whitening import PrincipalComponents, Whitening

_HOME = {
    "AllButTheTop": "isosent.transforms.components",
    "Average": "isosent.encoders.weighting",
    "Calibration": "isosent.calibration",
    "CommonComponentRemoval": "isosent.transforms.components",
    "Encoder": "isosent.encoders.base",
    "EvaluationResult": "isosent.evaluation.result",
    "FileFormatError": "isosent.errors",
    "GEM": "isosent.encoders.gem_weighting",
    "GlowFlow": "isosent.transforms.glow",
    "InputError": "isosent.errors",
    "InputFileError": "isosent.errors",
    "InputTypeError": "isosent.errors",
    "IsosentError": "isosent.errors",
    "IsosentWarning": "isosent.errors",
    "L2Normalize": "isosent.transforms.chain",
    "LinearMap": "isosent.numeric.linear_map",
    "MeanCentering": "isosent.transforms.components",
    "MeanProjection": "isosent.transforms.components",
    "MissingExtraError": "isosent.errors",
    "ModelFolderError": "isosent.errors",
    "ModelReferenceError": "isosent.errors",
    "Moments": "isosent.numeric.moments",
    "OutputError": "isosent.errors",
    "PowerMean": "isosent.encoders.weighting",
    "PrincipalComponents": "isosent.transforms.whitening",
    "Run": "isosent.evaluation.running",
    "SIF": "isosent.encoders.weighting",
    "SentenceEncoder": "isosent.model",
    "Standardize": "isosent.transforms.components",
    "TaskNotFoundError": "isosent.errors",
    "Truncate": "isosent.transforms.components",
    "USIF": "isosent.encoders.weighting",
    "Whitening": "isosent.transforms.whitening",
    "ZipfianWhitening": "isosent.encoders.zipfian_weighting",
    "chain": "isosent.transforms.chain",
    "compare_results": "isosent.evaluation.compare",
    "demo_texts": "isosent.demo.run",
    "evaluate_all": "isosent.evaluation.everything",
    "evaluate_cqa": "isosent.evaluation.cqa",
    "evaluate_pairs": "isosent.evaluation.pairs",
    "evaluate_retrieval": "isosent.evaluation.retrieval",
    "evaluate_rte": "isosent.evaluation.rte",
    "evaluate_sts": "isosent.evaluation.sts",
    "evaluate_transfer": "isosent.evaluation.transfer",
    "inspect_texts": "isosent.inspection.inspecting",
    "inspect_vectors": "isosent.inspection.inspecting",
    "load": "isosent.loading",
    "read_result": "isosent.evaluation.result_file",
    "read_texts": "isosent.files.texts",
}

__all__ = [
    "GEM",
    "SIF",
    "USIF",
    "AllButTheTop",
    "Average",
    "Calibration",
    "CommonComponentRemoval",
    "Encoder",
    "EvaluationResult",
    "FileFormatError",
    "GlowFlow",
    "InputError",
    "InputFileError",
    "InputTypeError",
    "IsosentError",
    "IsosentWarning",
    "L2Normalize",
    "LinearMap",
    "MeanCentering",
    "MeanProjection",
    "MissingExtraError",
    "ModelFolderError",
    "ModelReferenceError",
    "Moments",
    "OutputError",
    "PowerMean",
    "PrincipalComponents",
    "Run",
    "SentenceEncoder",
    "Standardize",
    "TaskNotFoundError",
    "Truncate",
    "Whitening",
    "ZipfianWhitening",
    "chain",
    "compare_results",
    "demo_texts",
    "evaluate_all",
    "evaluate_cqa",
    "evaluate_pairs",
    "evaluate_retrieval",
    "evaluate_rte",
    "evaluate_sts",
    "evaluate_transfer",
    "inspect_texts",
    "inspect_vectors",
    "load",
    "read_result",
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
