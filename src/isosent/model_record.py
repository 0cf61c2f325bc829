"""What a model is, as values: its encoder, its map, what the map was fitted on, and the fingerprint of its space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from isosent.behind import Behind
from isosent.calibration import Calibration
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a transform was fitted on.

    Parameters
    ----------
    transform : str
        Name of the transform.
    parameters : mapping
        Its settings.
    n_texts : int
        Texts it was fitted on, those without a vector left out.
    n_zero_rows : int
        Texts left out because they have no vector.
    source : str
        Where the texts came from.
    fitted_at : str
        Time, ISO 8601, UTC.
    choice : mapping, optional
        What "auto" weighed and why it chose, where it did.
    history : sequence of mapping, optional
        For a flow, how likely held-out vectors were on the way: the fields of `FitProgress`.
    """

    transform: str
    parameters: Mapping[str, Any]
    n_texts: int
    n_zero_rows: int
    source: str
    fitted_at: str
    choice: Mapping[str, Any] | None = None
    history: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Everything a model folder holds.

    Parameters
    ----------
    reference : str
        Model reference of the encoder, without options.
    options : mapping of str to str
        Its options.
    encoder_dim : int
        Dimensions of the encoder's vectors.
    encoder_fingerprint : str
        Hash of all that the encoder's vectors depend on.
    behind : Behind
        What follows the encoder.
    fits : tuple of FitRecord
        What that was fitted on, step by step.
    calibration : Calibration, optional
        What a cosine of the space means.
    corpus : mapping of str to ndarray, optional
        What the encoder knows of the texts it was fitted on; empty where it was not.
    """

    reference: str
    options: Mapping[str, str]
    encoder_dim: int
    encoder_fingerprint: str
    behind: Behind
    fits: tuple[FitRecord, ...] = ()
    calibration: Calibration | None = None
    corpus: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hash of the vector space: only vectors with the same one can be compared."""
        return space_fingerprint(self.encoder_fingerprint, self.behind)

    @property
    def name(self) -> str:
        """What the space is called where people read it: what made its vectors, and what was fitted behind."""
        made_by = self.options.get("space", self.reference)
        return " -> ".join([made_by, *(fit.transform for fit in self.fits if fit.transform != "none")])

    def facts(self) -> dict[str, Any]:
        """Return what a person or a result file wants to know, as plain values.

        Returns
        -------
        dict
            Reference, options, dimensions, fits and fingerprint.
        """
        linear_map = self.behind.linear_map
        return {
            "reference": self.reference,
            "options": dict(self.options),
            "dim": self.encoder_dim if linear_map is None else linear_map.n_components,
            "encoder_dim": self.encoder_dim,
            "normalize": self.behind.normalize,
            "separate_query_mean": self.behind.query_map is not None,
            "calibration": None if self.calibration is None else self.calibration.kind,
            "fits": [asdict(fit) for fit in self.fits],
            "fingerprint": self.fingerprint,
        }


def space_fingerprint(encoder_fingerprint: str, behind: Behind) -> str:
    """Fingerprint of the space that an encoder and what follows it give.

    Parameters
    ----------
    encoder_fingerprint : str
        Fingerprint of the encoder.
    behind : Behind
        What follows the encoder.

    Returns
    -------
    str
        The encoder's own where nothing follows.
    """
    if behind.dim is None and not behind.normalize:
        return encoder_fingerprint
    normalize = b"normalize" if behind.normalize else b""
    content = encoder_fingerprint.encode() + map_bytes(behind) + flow_bytes(behind) + normalize
    return hashlib.sha256(content).hexdigest()


def map_bytes(behind: Behind) -> bytes:
    """The maps behind an encoder in the format of safetensors.

    Parameters
    ----------
    behind : Behind
        What follows the encoder.

    Returns
    -------
    bytes
        ``weight`` and ``bias``, and ``query_bias`` where queries have their own; float64. Nothing without a map.
    """
    if behind.linear_map is None:
        return b""
    arrays = {"weight": behind.linear_map.weight, "bias": behind.linear_map.bias}
    if behind.query_map is not None:
        arrays["query_bias"] = behind.query_map.bias
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def flow_bytes(behind: Behind) -> bytes:
    """The flow behind an encoder in the format of safetensors.

    Parameters
    ----------
    behind : Behind
        What follows the encoder.

    Returns
    -------
    bytes
        The arrays of `Glow.arrays`. Nothing without a flow.
    """
    if behind.flow is None:
        return b""
    return save({name: np.ascontiguousarray(array) for name, array in behind.flow.arrays().items()})


def maps_of_bytes(content: bytes) -> tuple[LinearMap, LinearMap | None]:
    """The inverse of `map_bytes`.

    Parameters
    ----------
    content : bytes
        What `map_bytes` returned.

    Returns
    -------
    linear_map : LinearMap
        The map.
    query_map : LinearMap or None
        That of queries, where they have their own.

    Raises
    ------
    SafetensorError
        If the content is damaged.
    KeyError, InputError
        If an array is missing or has another shape.
    """
    tensors = {name: array.astype(np.float64) for name, array in load(content).items()}
    linear_map = LinearMap(tensors["weight"], tensors["bias"])
    query_bias = tensors.get("query_bias")
    return linear_map, None if query_bias is None else LinearMap(linear_map.weight, query_bias)


def flow_of_bytes(content: bytes) -> Glow:
    """The inverse of `flow_bytes`.

    Parameters
    ----------
    content : bytes
        What `flow_bytes` returned.

    Returns
    -------
    Glow
        The flow.

    Raises
    ------
    SafetensorError
        If the content is damaged.
    InputError
        If an array is missing or has another shape.
    """
    return Glow.from_arrays(load(content))


def corpus_bytes(corpus: Mapping[str, NDArray[np.float64]]) -> bytes:
    """What an encoder knows of its corpus in the format of safetensors.

    Parameters
    ----------
    corpus : mapping of str to ndarray
        Named arrays.

    Returns
    -------
    bytes
        All of them; nothing where there are none.
    """
    return save({name: np.ascontiguousarray(array) for name, array in corpus.items()}) if corpus else b""


def corpus_of_bytes(content: bytes) -> dict[str, NDArray[np.float64]]:
    """The inverse of `corpus_bytes`.

    Parameters
    ----------
    content : bytes
        What `corpus_bytes` returned.

    Returns
    -------
    dict of str to ndarray
        Named arrays.

    Raises
    ------
    SafetensorError
        If the content is damaged.
    """
    return {name: array.astype(np.float64) for name, array in load(content).items()}
