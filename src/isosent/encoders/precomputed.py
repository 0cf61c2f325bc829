"""The encoder of a model that was fitted on vectors: it has their space and cannot encode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Encoder
from isosent.encoders.reference import parse_reference
from isosent.errors import InputError, next_step, option
from isosent.numeric.canary import Canary
from isosent.numeric.moments import Moments
from isosent.pages.progress import Progress
from isosent.space import UNNAMED, Space

PRECOMPUTED = UNNAMED
_STATISTICS = "statistics."  # begins the names of these tensors
_IN_SHELL = (
    f"isosent index VECTORS {option('texts', 'TEXTS')} -m FOLDER -o INDEX, "
    "or isosent transform VECTORS -m FOLDER -o OUT"
)


def made_again(model: str, output: str, *, is_fitted: bool, texts: str = "") -> str:
    """How a model or an index of vectors is made again with the model that made these, so that it encodes texts."""
    verb = "fit" if is_fitted else "index"
    return next_step(
        f"isosent {verb} VECTORS{texts} -m {model} -o {output}", f"model={model!r}" if model != "MODEL" else "model=..."
    )


class PrecomputedVectors(Encoder):
    """Placeholder for what made the vectors, such as an API."""

    def __init__(
        self,
        dim: int,
        options: Mapping[str, str] | None = None,
        tensors: Mapping[str, NDArray[np.float64]] | None = None,
        canary: Canary | None = None,
    ) -> None:
        super().__init__(PRECOMPUTED, options or {}, dim)
        # vectors of fixed texts, and statistics, to see whether what made the vectors has changed
        self._tensors, self.canary = dict(tensors or {}), canary

    def corpus_tensors(self) -> dict[str, NDArray[np.float64]]:
        """The statistics of the vectors that a model was fitted on."""
        return self._tensors

    def canary_now(self, *, of_first_query: bool = False) -> Canary | None:
        """That of the folder, or what a proxy measured: nothing can be encoded here."""
        return self.canary

    def with_canary(self, canary: Canary) -> PrecomputedVectors:
        """The same with vectors of fixed texts."""
        return PrecomputedVectors(self.dim, self.options, self._tensors, canary)

    def with_statistics(self, moments: Moments) -> PrecomputedVectors:
        """The same with the statistics of vectors of this space."""
        packed = moments.packed()
        statistics = {f"{_STATISTICS}{name}": array for name, array in packed.items()}
        return PrecomputedVectors(self.dim, self.options, self._tensors | statistics, self.canary)

    @property
    def statistics(self) -> Moments | None:
        """Those of the vectors that a model was fitted on; None if they are not known."""
        packed = {
            name.removeprefix(_STATISTICS): array
            for name, array in self._tensors.items()
            if name.startswith(_STATISTICS)
        }
        return Moments.unpacked(packed) if packed else None

    @classmethod
    def of_space(cls, dim: int, space: Space | None, name: str | None = None) -> PrecomputedVectors:
        """The encoder of vectors whose space is known, or is named by a person."""
        named = {} if name is None else {"space": name}
        if space is None:
            return cls(dim, named)
        if name is not None and cls(dim, named).fingerprint != space.fingerprint:
            raise InputError(f"the vectors are in the embedding space {space}, not {name}. Leave the space out.")
        return cls(dim, {"space": space.reference, "fingerprint": space.fingerprint})

    @property
    def fingerprint(self) -> str:
        """Hash of the space of the vectors."""
        if "fingerprint" in self.options:
            return self.options["fingerprint"]
        facts = {"space": self.options.get("space"), "dim": self.dim}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def space(self) -> Space:
        """Space of the vectors."""
        return Space(self.fingerprint, self.options.get("space", f"unnamed {UNNAMED} of {self.dim} dimensions"))

    @property
    def model(self) -> str | None:
        """The reference of the model that made the vectors, if their file said it, and not a person."""
        name = self.options.get("space", "")
        try:
            parse_reference(name)
        except InputError:
            return None
        return name if "fingerprint" in self.options else None

    def encode(self, texts: Any, progress: Progress | None = None) -> NoReturn:
        """Refuse: what made the vectors is not here."""
        raise InputError(
            f"encode: this model was fitted on vectors ({self.space.reference}) and cannot encode texts. If what made "
            f"them can be loaded here, {self._with_model()}. Else encode the texts where the vectors came from, and "
            f"name the file of these in place of the texts: {next_step(_IN_SHELL, 'model.transform(vectors)')}."
        )

    def _with_model(self) -> str:
        if self.model is None:
            return f"fit them again with it: {made_again('MODEL', 'FOLDER', is_fitted=True)}"
        step = next_step(f"-m 'FOLDER?encoder={self.model}'", f"load(folder, encoder={self.model!r})")
        return f"name it: {step}"

    def tokenize(self, texts: Any) -> NoReturn:
        """Refuse, as `encode` does."""
        self.encode(texts)

    def embed(self, tokens: Any, progress: Progress | None = None) -> NoReturn:
        """Refuse, as `encode` does."""
        self.encode(tokens)

    def summands(self, text: str) -> NoReturn:
        """Refuse, as `encode` does."""
        self.encode(text)

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield nothing: no parameter is known."""
        return iter(())

    def vocabulary(self) -> Iterable[str]:
        """Yield nothing: no token is known."""
        return ()
