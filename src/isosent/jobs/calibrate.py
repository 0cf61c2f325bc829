"""Calibrate the cosines of a model, and quantize its vectors, on a sample of texts, vectors or pairs with scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pairwise_cosine, unit_rows
from isosent.pages.progress import Progress
from isosent.persistence import check_encoder_space
from isosent.transforms.calibration import Calibration
from isosent.transforms.quantization import Quantization
from isosent.transforms.statistics import rows_with_vector

MOST_TEXTS = 20_000  # random pairs are drawn among so many


def sample_of_texts(
    model: SentenceEncoder, texts: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> NDArray[np.float32]:
    """Vectors of a random part of the texts."""
    texts = _check.some_texts("sample", texts)
    rows = np.sort(np.random.default_rng(seed).permutation(len(texts))[:MOST_TEXTS])
    return model.encode([texts[row] for row in rows], progress=progress)


def sample_of_vectors(model: SentenceEncoder, source: VectorSource, *, seed: int = 0) -> NDArray[np.float32]:
    """A random part of the vectors of the model's encoder, transformed."""
    check_encoder_space(model.record, source.name, source.space)
    _check.same_dim(source.name, "vectors", source.dim, model.encoder.dim)
    rows = np.sort(np.random.default_rng(seed).permutation(source.n_rows)[:MOST_TEXTS])
    encoded = picked_rows(source.blocks(), rows) if len(rows) else np.empty((0, source.dim))
    source.check_finite(encoded, 0)
    encoded = rows_with_vector(encoded)
    if len(encoded) < 2:
        raise InputError(
            f"{source.name}: at least two vectors that are not zero are needed, and there are {len(encoded)}."
        )
    return model.transform(encoded)


def calibrated(model: SentenceEncoder, sample: NDArray[np.float32], *, seed: int = 0) -> SentenceEncoder:
    """The model calibrated by random pairs, so that a cosine becomes its percentile: the share with a lower one."""
    return model.with_calibration(Calibration.from_random_pairs(sample, seed=seed))


def calibrated_on_pairs(
    model: SentenceEncoder,
    first: Sequence[str],
    second: Sequence[str],
    scores: Sequence[float],
    *,
    progress: Progress | None = None,
) -> SentenceEncoder:
    """The model calibrated by pairs, so that a cosine becomes the expected score, scaled to 0 ... 1."""
    _check.same_count("calibrate", "second", len(second), len(first))
    vectors = model.encode([*first, *second], progress=progress)
    cosines = pairwise_cosine(vectors[: len(first)], vectors[len(first) :])
    return model.with_calibration(Calibration.from_labels(cosines, scores))


def quantized(model: SentenceEncoder, sample: NDArray[np.float32]) -> SentenceEncoder:
    """The model with ranges, rotation, and codebooks if it had some, fitted on some of its vectors."""
    units, before = unit_rows(sample), model.quantization
    code_bytes = 0 if before is None else before.code_bytes
    return model.with_quantization(Quantization.fit(units).with_product(units, code_bytes), model.record.storage)
