"""Space: which vectors can be compared. A fingerprint with a name for people, as models, indexes and files say it."""

from __future__ import annotations

import base64
import hashlib
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct

from isosent.errors import InputError, IsosentWarning, next_step, option
from isosent.storage import CODES, Storage

SPACE_METADATA = _FINGERPRINT, _REFERENCE = "isosent.fingerprint", "isosent.reference"
UNNAMED: Final = "vectors"  # the name of a space of which nothing more is known
_CODES: Final = " codes"  # ends the name of the space of codes


_SKETCH: Final = "~"  # in the fingerprint of an API, between its hash and its sketch
_STEP: Final = 1 / 8192  # of the numbers of a sketch
_ROUNDING: Final = 2e-4  # 1 - cosine between float32 and bfloat16, or two kinds of hardware
_TIMES_NOISE: Final = 2.0
_MOST_NOISE: Final = 5e-3  # half of what a canary lets pass


class Sketch(NamedTuple):
    """Where the vectors of fixed texts of an API lie, which may answer with noise: what two fingerprints compare."""

    facts: str  # hash of the name of the model, its dimensions and prompts
    noise: float  # mean 1 - cosine between two answers
    values: Sequence[float]  # random projections: half their squared distance is the mean 1 - cosine, about

    def fingerprint(self, digest: str) -> str:
        """A hash with the sketch, as a fingerprint."""
        numbers = struct.pack(f"<{len(self.values)}h", *(round(value / _STEP) for value in self.values))
        return f"{digest}{_SKETCH}{self.facts}.{self.noise:.1e}.{base64.urlsafe_b64encode(numbers).decode()}"

    @classmethod
    def of(cls, fingerprint: str) -> Sketch | None:
        """The sketch in a fingerprint; None if it has none, or a damaged one."""
        try:
            facts, whole, part, packed = fingerprint.partition(_SKETCH)[2].split(".")
            numbers = base64.urlsafe_b64decode(packed)
            values = [_STEP * value for value in struct.unpack(f"<{len(numbers) // 2}h", numbers)]
            return cls(facts, float(f"{whole}.{part}"), values)
        except (ValueError, struct.error):
            return None

    def is_near(self, other: Sketch) -> bool:
        """Whether the vectors of two sketches differ by no more than the noise of either API, or by rounding."""
        if self.facts != other.facts or len(self.values) != len(other.values):
            return False
        difference = sum((a - b) ** 2 for a, b in zip(self.values, other.values, strict=True)) / 2
        return difference <= min(max(_ROUNDING, _TIMES_NOISE * max(self.noise, other.noise)), _MOST_NOISE)


def hash_of(fingerprint: str) -> str:
    """A fingerprint without its sketch."""
    return fingerprint.partition(_SKETCH)[0]


def are_same(fingerprint: str, other: str) -> bool:
    """Whether two fingerprints are of one space."""
    first, second = Sketch.of(fingerprint), Sketch.of(other)
    if fingerprint == other or first is None or second is None:
        return hash_of(fingerprint) == hash_of(other)
    return first.is_near(second)


class Space(Struct, frozen=True, forbid_unknown_fields=True):
    """A vector space; only vectors with the same fingerprint (`are_same`) can be compared."""

    fingerprint: str
    reference: Annotated[str, Meta(pattern=r"^[^\x00]*$")]  # what made the vectors, for people

    @property
    def is_unnamed(self) -> bool:
        """Whether nothing says what made the vectors."""
        return self.reference.partition(" -> ")[0] == UNNAMED or self.reference.startswith(f"unnamed {UNNAMED}")

    def __str__(self) -> str:
        return f"{self.reference} ({self.fingerprint[:16]})"

    @classmethod
    def of(cls, facts: Mapping[str, Any], name: str = "reference") -> Space:
        """The space that a document names by its ``fingerprint`` and a name."""
        return cls(facts["fingerprint"], facts[name])

    @classmethod
    def in_metadata(cls, metadata: Mapping[Any, Any]) -> Space | None:
        """The space in the metadata of a file; None if they name none."""

        def text(value: object) -> str:
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

        texts = {text(name): text(value) for name, value in metadata.items()}
        return cls(texts[_FINGERPRINT], texts.get(_REFERENCE, UNNAMED)) if _FINGERPRINT in texts else None

    def to_json(self) -> dict[str, str]:
        """Return the space as JSON values."""
        return {"fingerprint": self.fingerprint, "reference": self.reference}

    @property
    def metadata(self) -> dict[str, str]:
        """The same for the metadata of a file."""
        return {_FINGERPRINT: self.fingerprint, _REFERENCE: self.reference}

    def of_codes(self, storage: Storage) -> Space:
        """The space of the codes of these vectors: codes are no vectors of the space."""
        digest = hashlib.sha256(f"{hash_of(self.fingerprint)} {storage}".encode())
        return Space(digest.hexdigest(), f"{self.reference}, {storage}{_CODES}")


def same_space(here: str, space: Space | None, there: str, other: Space | None, *, otherwise: str = "") -> Space | None:
    """Refuse to compare, merge or search across two vector spaces; `otherwise` is what can be done besides."""
    if space and other and not are_same(space.fingerprint, other.fingerprint):
        advice = "They cannot be compared. Encode both with the same model."
        if unnamed := [name for name, each in ((there, other), (here, space)) if each.is_unnamed]:
            step = next_step("isosent index VECTORS -m MODEL -o INDEX", "Index.create(vectors=..., model=...)")
            advice = (
                f"Nothing says which model made the vectors of {' and of '.join(unnamed)}, which cannot be said later. "
                f"Make it again of the file of the vectors, with their model: {step}."
            )
        if space.reference == other.reference:
            advice = (
                "They cannot be compared, although their names are equal. Encode both with the same version and "
                f"options of the model. A name that was chosen with {option('space')} is no model: name it with "
                f"{option('model', other.reference)} instead."
            )
        advice += otherwise and f" {otherwise}"
        raise InputError(f"{there} holds vectors of the space {other}; {here} belongs to {space}. {advice}")
    return space or other


def warn_of_unknown_space(known: str, space: Space, unknown: str, advice: str = "") -> None:
    """Warn that vectors of a known space are used together with those of an unknown one."""
    warnings.warn(
        f"{known} holds vectors of the space {space}, and what made those of {unknown} is not known. If it is "
        f"something else, the result means nothing.{advice and ' '}{advice}",
        IsosentWarning,
        stacklevel=3,
    )


def refuse_codes(name: str, space: Space | None) -> None:
    """Refuse int8 codes and packed bits where vectors are needed."""
    if space and space.reference.endswith(tuple(f", {storage}{_CODES}" for storage in CODES)):
        raise InputError(
            f"{name} holds codes ({space.reference.removesuffix(_CODES)}), not vectors. Name the vectors that they "
            "were made of; isosent index -m MODEL stores them as codes. In Python: model.quantization.decode."
        )
