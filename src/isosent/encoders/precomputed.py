"""The encoder of vectors that come from elsewhere: it knows their space, and cannot encode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Encoder, Progress
from isosent.errors import InputError
from isosent.io.space import Space
from isosent.words.tokens import TokenIds

PRECOMPUTED = "vectors"


class PrecomputedVectors(Encoder):
    """Stands in a model for what made the vectors, an API for one."""

    def __init__(self, dim: int, options: Mapping[str, str] | None = None) -> None:
        super().__init__(PRECOMPUTED, options or {}, dim)

    @classmethod
    def of_space(cls, dim: int, space: Space | None, name: str | None = None) -> PrecomputedVectors:
        """Make the encoder of vectors of which this much is known."""
        named = {} if name is None else {"space": name}
        if space is None:
            return cls(dim, named)
        encoder = cls(dim, {"space": space.reference, "fingerprint": space.fingerprint})
        if name is not None and cls(dim, named).fingerprint != space.fingerprint:
            raise InputError(f"space must be that of the vectors, {space}; got {name}. Leave it out.")
        return encoder

    @property
    def fingerprint(self) -> str:
        """Hash of the space of the vectors."""
        if "fingerprint" in self.options:
            return self.options["fingerprint"]
        facts = {"space": self.options.get("space"), "dim": self.dim}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def space(self) -> Space:
        """Where the vectors belong."""
        unnamed = f"unnamed vectors of {self.dim} dimensions"
        return Space(self.fingerprint, self.options.get("space", unnamed))

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Refuse: what made the vectors is not here."""
        self._refuse()

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Refuse: what made the vectors is not here."""
        self._refuse()

    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Refuse: what made the vectors is not here."""
        self._refuse()

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield nothing: no parameter is known."""
        return iter(())

    def vocabulary(self) -> Iterable[str]:
        """Yield nothing: no token is known."""
        return ()

    def _refuse(self) -> NoReturn:
        raise InputError(
            f"encode: this model was fitted on vectors ({self.space.reference}) and cannot encode texts. Encode them "
            "where the vectors came from, then take the vectors through the model: model.transform(vectors), on the "
            "command line isosent transform VECTORS -m FOLDER -o OUT."
        )
