"""What the JSON files that isosent writes may hold: unknown fields are refused, for they are damage or a typing error.

`isosent.files.documents` checks against these when a file is read. Fields with a default were added later: files from
before open without them.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from isosent.files.checksum import PATTERN

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Checksum = Annotated[str, Meta(pattern=PATTERN)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, Meta(pattern=r"^(?!\.\.?$)[^/\\\x00]+$")]
RelativePath = Annotated[str, Meta(pattern=r"^(?!/)(?!(.*/)?\.\.?(/|$))[^\\\x00]+$")]
Text = Annotated[str, Meta(pattern=r"^[^\x00]*$")]


class Document(Struct, forbid_unknown_fields=True, kw_only=True):
    """What every document of isosent begins and ends with."""

    format: str
    format_version: int
    isosent_version: str | None = None
    checksum: Checksum | None = None


class FileList(Struct):
    """What a document says of the other files of its folder, whatever else it says."""

    checksums: dict[RelativePath, Checksum] | None = None


class NotedFile(Struct, forbid_unknown_fields=True, kw_only=True):
    """One state of the file that a note stands beside."""

    size_bytes: Count
    sample_sha256: Sha256
    checksum: Checksum | None = None
    fingerprint: str | None = None
    reference: Text | None = None
    shape: tuple[Count, Positive] | None = None
    dtype: str | None = None


class VectorNote(Document):
    """``FILE.isosent.json`` beside an array."""

    files: Annotated[list[NotedFile], Meta(min_length=1, max_length=2)]


class VectorNoteV1(Document):
    """The same before one note could describe an array and the one that it replaces."""

    shape: tuple[Count, Positive]
    dtype: str
    fingerprint: str
    reference: Text
    size_bytes: Count
    sample_sha256: Sha256


class SpaceFields(Struct, forbid_unknown_fields=True):
    """A vector space."""

    fingerprint: str
    reference: Text


class TextsFields(Struct, forbid_unknown_fields=True):
    """Texts that a folder of shards is made of."""

    name: Text
    n_texts: Count
    sha256: str


class ShardingFields(Struct, forbid_unknown_fields=True):
    """How vectors are cut into shards."""

    shard_size: Positive
    file_format: str
    dtype: str


class CountFields(Struct, forbid_unknown_fields=True):
    """What is counted over texts while they are encoded."""

    n_texts: Count = 0
    n_cut: Count = 0
    n_tokens: Count = 0
    n_unknown: Count = 0
    n_zero_rows: Count = 0


class Shards(Document):
    """``shards.json`` in a folder of shards."""

    space: SpaceFields
    dim: Positive
    texts: TextsFields
    sharding: ShardingFields
    role: str
    computed_in: str
    n_written: Count
    counts: CountFields
    n_shards: Count
    is_complete: bool


class CheckpointRun(Struct, forbid_unknown_fields=True):
    """How far the moments of files have come, in the metadata of a checkpoint."""

    settings: dict[str, Any]
    data: list[dict[str, Any]]
    source: Count
    row: Count
    is_complete: bool


class EncoderFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """The encoder of a saved model."""

    reference: Text
    options: dict[str, Text]
    dim: Positive
    fingerprint: str
    inside: bool = False
    files: dict[str, Checksum] | None = None


class FitFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a transform was fitted on."""

    transform: str
    parameters: dict[str, Any]
    n_texts: Count
    n_zero_rows: Count
    source: Text
    fitted_at: str
    choice: dict[str, Any] | None = None
    history: list[dict[str, Any]] | None = None


class CalibrationFields(Struct, forbid_unknown_fields=True):
    """Knots of the map from cosines to what they mean."""

    kind: str
    n_pairs: Count
    label_range: tuple[float, float] | None
    cosines: list[float]
    values: list[float]


class Model(Document):
    """``model.json`` in a model folder."""

    encoder: EncoderFields
    fingerprint: str
    fits: list[FitFields]
    linear_map: FileName | None = None
    flow: FileName | None = None
    corpus: FileName | None = None
    normalize: bool = False
    calibration: CalibrationFields | None = None
