"""Calibrate the cosines of a model on texts, vectors or pairs of texts with scores, and quantize the same vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pairwise_cosine, unit_rows
from isosent.persistence import check_encoder_space
from isosent.postprocessing import rows_with_vector
from isosent.transforms.calibration import Calibration
from isosent.transforms.quantization import Quantization

MOST_TEXTS = 20_000  # random pairs are drawn among so many


def calibrated_on_texts(
    model: SentenceEncoder, texts: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> SentenceEncoder:
    """The model calibrated by random pairs of texts, so that a cosine becomes the share of pairs with a lower one."""
    texts = _check.some_texts("calibrate", texts)
    rows = np.sort(np.random.default_rng(seed).permutation(len(texts))[:MOST_TEXTS])
    vectors = model.encode([texts[row] for row in rows], progress=progress)
    return _quantized(model.with_calibration(Calibration.from_random_pairs(vectors, seed=seed)), vectors)


def calibrated_on_vectors(model: SentenceEncoder, source: VectorSource, *, seed: int = 0) -> SentenceEncoder:
    """As `calibrated_on_texts`, of vectors of the model's encoder."""
    check_encoder_space(model.record, str(source.path), source.space)
    _check.same_dim(str(source.path), "vectors", source.dim, model.encoder.dim)
    rows = np.sort(np.random.default_rng(seed).permutation(source.n_rows)[:MOST_TEXTS])
    encoded = picked_rows(source.blocks(), rows) if len(rows) else np.empty((0, source.dim))
    source.check_finite(encoded, 0)
    encoded = rows_with_vector(encoded)
    if len(encoded) < 2:
        raise InputError(
            f"{source.path}: a calibration needs two vectors or more that are not zero; got {len(encoded)}."
        )
    vectors = model.transform(encoded)
    return _quantized(model.with_calibration(Calibration.from_random_pairs(vectors, seed=seed)), vectors)


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
    return _quantized(model.with_calibration(Calibration.from_labels(cosines, scores)), vectors)


def _quantized(model: SentenceEncoder, vectors: NDArray[np.float32]) -> SentenceEncoder:
    """The model with a quantization fitted on some of its vectors."""
    return model.with_quantization(Quantization.fit(unit_rows(vectors)), model.record.storage)
