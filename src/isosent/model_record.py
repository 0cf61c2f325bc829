"""What a model is, as values: its encoder, its map, what the map was fitted on, and the fingerprint of its space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from safetensors.numpy import save

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
    """

    transform: str
    parameters: Mapping[str, Any]
    n_texts: int
    n_zero_rows: int
    source: str
    fitted_at: str


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
    linear_map : LinearMap or None
        The map behind the encoder.
    fits : tuple of FitRecord
        What the map was fitted on, step by step.
    """

    reference: str
    options: Mapping[str, str]
    encoder_dim: int
    encoder_fingerprint: str
    linear_map: LinearMap | None
    fits: tuple[FitRecord, ...]

    @property
    def fingerprint(self) -> str:
        """Hash of the vector space: only vectors with the same one can be compared."""
        return space_fingerprint(self.encoder_fingerprint, self.linear_map)

    def facts(self) -> dict[str, Any]:
        """Return what a person or a result file wants to know, as plain values.

        Returns
        -------
        dict
            Reference, options, dimensions, fits and fingerprint.
        """
        return {
            "reference": self.reference,
            "options": dict(self.options),
            "dim": self.encoder_dim if self.linear_map is None else self.linear_map.n_components,
            "encoder_dim": self.encoder_dim,
            "fits": [asdict(fit) for fit in self.fits],
            "fingerprint": self.fingerprint,
        }


def space_fingerprint(encoder_fingerprint: str, linear_map: LinearMap | None) -> str:
    """Fingerprint of the space that an encoder and a map give.

    Parameters
    ----------
    encoder_fingerprint : str
        Fingerprint of the encoder.
    linear_map : LinearMap or None
        What follows the encoder.

    Returns
    -------
    str
        The encoder's own where there is no map.
    """
    if linear_map is None:
        return encoder_fingerprint
    return hashlib.sha256(encoder_fingerprint.encode() + map_bytes(linear_map)).hexdigest()


def map_bytes(linear_map: LinearMap) -> bytes:
    """A map in the format of safetensors.

    Parameters
    ----------
    linear_map : LinearMap
        The map.

    Returns
    -------
    bytes
        ``weight`` and ``bias`` in float64.
    """
    arrays = {"weight": linear_map.weight, "bias": linear_map.bias}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
