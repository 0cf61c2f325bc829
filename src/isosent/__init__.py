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
    from isosent.demo import demo_texts
    from isosent.encoders.base import Encoder
    from isosent.encoders.word_average import GEM, SIF, USIF, Average, PowerMean, ZipfianWhitening
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
    from isosent.evaluation.all_tasks import evaluate_all
    from isosent.evaluation.compare import compare_results
    from isosent.evaluation.cqa import evaluate_cqa
    from isosent.evaluation.result import EvaluationResult, read_result
    from isosent.evaluation.retrieval import evaluate_retrieval
    from isosent.evaluation.rte import evaluate_rte
    from isosent.evaluation.run import EvaluationSettings
    from isosent.evaluation.sts import evaluate_pairs, evaluate_sts
    from isosent.evaluation.transfer import evaluate_transfer
    from isosent.io.texts import read_texts
    from isosent.loading import load
    from isosent.model import SentenceEncoder
    from isosent.numeric.linear_map import LinearMap
    from isosent.numeric.moments import Moments
    from isosent.report.inspect import inspect_texts, inspect_vectors
    from isosent.transforms.calibration import Calibration
    from isosent.transforms.chain import L2Normalize, chain
    from isosent.transforms.flow import GlowFlow
    from isosent.transforms.linear import (
        AllButTheTop,
        CommonComponentRemoval,
        MeanCentering,
        MeanProjection,
        Standardize,
        Truncate,
    )
    from isosent.transforms.whitening import PrincipalComponents, Whitening

_HOME = {
    "AllButTheTop": "isosent.transforms.linear",
    "Average": "isosent.encoders.word_average",
    "Calibration": "isosent.transforms.calibration",
    "CommonComponentRemoval": "isosent.transforms.linear",
    "Encoder": "isosent.encoders.base",
    "EvaluationResult": "isosent.evaluation.result",
    "FileFormatError": "isosent.errors",
    "GEM": "isosent.encoders.word_average",
    "GlowFlow": "isosent.transforms.flow",
    "InputError": "isosent.errors",
    "InputFileError": "isosent.errors",
    "InputTypeError": "isosent.errors",
    "IsosentError": "isosent.errors",
    "IsosentWarning": "isosent.errors",
    "L2Normalize": "isosent.transforms.chain",
    "LinearMap": "isosent.numeric.linear_map",
    "MeanCentering": "isosent.transforms.linear",
    "MeanProjection": "isosent.transforms.linear",
    "MissingExtraError": "isosent.errors",
    "ModelFolderError": "isosent.errors",
    "ModelReferenceError": "isosent.errors",
    "Moments": "isosent.numeric.moments",
    "OutputError": "isosent.errors",
    "PowerMean": "isosent.encoders.word_average",
    "PrincipalComponents": "isosent.transforms.whitening",
    "EvaluationSettings": "isosent.evaluation.run",
    "SIF": "isosent.encoders.word_average",
    "SentenceEncoder": "isosent.model",
    "Standardize": "isosent.transforms.linear",
    "TaskNotFoundError": "isosent.errors",
    "Truncate": "isosent.transforms.linear",
    "USIF": "isosent.encoders.word_average",
    "Whitening": "isosent.transforms.whitening",
    "ZipfianWhitening": "isosent.encoders.word_average",
    "chain": "isosent.transforms.chain",
    "compare_results": "isosent.evaluation.compare",
    "demo_texts": "isosent.demo",
    "evaluate_all": "isosent.evaluation.all_tasks",
    "evaluate_cqa": "isosent.evaluation.cqa",
    "evaluate_pairs": "isosent.evaluation.sts",
    "evaluate_retrieval": "isosent.evaluation.retrieval",
    "evaluate_rte": "isosent.evaluation.rte",
    "evaluate_sts": "isosent.evaluation.sts",
    "evaluate_transfer": "isosent.evaluation.transfer",
    "inspect_texts": "isosent.report.inspect",
    "inspect_vectors": "isosent.report.inspect",
    "load": "isosent.loading",
    "read_result": "isosent.evaluation.result",
    "read_texts": "isosent.io.texts",
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
    "EvaluationSettings",
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
