"""What JSON files may hold: those of isosent, where unknown fields are refused, and those of other libraries.

Numbers are bounded, so that no value of a file can overflow what is computed from it. None is an undefined score.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from isosent.errors import FileFormatError
from isosent.io.checksum import PATTERN

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
    """One state of the file that a note describes."""

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


class _AutoChoice(Struct):  # open: it is shown and no more
    chosen: str
    reason: str


class _FlowStep(Struct):
    held_out_bits: float | None


class FitFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a transform was fitted on."""

    transform: str
    parameters: dict[str, Any]
    n_texts: Count
    n_zero_rows: Count
    source: Text
    fitted_at: str
    choice: _AutoChoice | None = None
    history: list[_FlowStep] | None = None


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


Whole = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=2**53)]
Finite = Annotated[float, Meta(ge=-1e15, le=1e15)]
Seconds = Annotated[float, Meta(ge=0, le=1e15)]
Score = Annotated[float, Meta(ge=-1, le=1)] | None


class _Fields(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class _File(_Fields):
    """What results and studies begin and end with; those from before checksums have none."""

    format: str
    checksum: Checksum | None = None


# -- results of evaluations ------------------------------------------------------------------------------------------


class _Fit(Struct, kw_only=True):
    transform: str
    parameters: dict[str, Any]
    source: str
    n_texts: Whole = 0
    n_zero_rows: Whole = 0
    fitted_at: str = ""


class _Model(Struct, kw_only=True):  # open, as the two below: newer releases may say more, which is shown and no more
    reference: Text
    options: dict[str, str]
    fits: list[_Fit]
    fingerprint: str


class _Fitting(Struct, kw_only=True):
    transform: str | None
    parameters: dict[str, Any]
    fit: str | None
    transductive: bool
    overlap: dict[str, dict[str, Whole]] = {}


class _Environment(Struct, kw_only=True):
    versions: dict[str, str]
    machine: str
    system: str
    n_cpus: Whole | None


class _Choice(Struct, kw_only=True):
    chosen: str
    reason: str


class _Task(_Fields):
    kind: str
    metric: str
    scores: dict[str, Finite | None]
    intervals: dict[str, tuple[Score, Score]]
    protocol: dict[str, Any]
    data: dict[str, str]
    n_items: Whole
    dim: Whole
    n_zero_rows: Whole
    n_tokens: Whole
    n_unknown: Whole
    elapsed_s: Seconds
    details: dict[str, Any] = {}
    choice: _Choice | None = None


class _Items(_Fields):
    values: list[Finite | None]
    gold: list[Finite | None] | None


class Result(_File, kw_only=True):
    """What ``isosent evaluate ... --json`` writes."""

    model: _Model
    fitting: _Fitting
    environment: _Environment
    seed: Annotated[int, Meta(ge=0)]
    n_resamples: Whole
    n_texts: Whole
    n_cut: Whole
    encode_s: Seconds
    elapsed_s: Seconds
    tasks: Annotated[dict[str, _Task], Meta(min_length=1)]
    items: dict[str, _Items] = {}
    variants: list[Result] = []  # the same under further transforms


# -- exports ---------------------------------------------------------------------------------------------------------


class _Agreement(_Fields):
    n_vectors: Whole
    largest_difference: Seconds
    lowest_cosine: Finite


class _FilesOfRole(_Fields):
    tokenizer: str | None
    graph: str


class _ExportedFile(_Fields):
    size_bytes: Whole
    sample_sha256: Sha256
    checksum: Checksum
    fingerprint: str
    reference: Text


class ExportNote(_File, kw_only=True):
    """``isosent.json`` in an exported folder, or ``FILE.isosent.json`` beside an index of FAISS."""

    target: str
    isosent_version: str
    fingerprint: str
    reference: Text
    normalize: bool
    model: dict[str, Any]
    agreement: _Agreement
    tei: bool = False
    inputs: str | None = None
    output: str | None = None
    files: dict[str, _FilesOfRole] | Annotated[list[_ExportedFile], Meta(max_length=2)] = {}
    index: str | None = None
    checksums: dict[str, Checksum] = {}


# -- graphs in the user's cache --------------------------------------------------------------------------------------


class GraphNote(Document, kw_only=True):
    """``graph.json`` beside a graph."""

    files: Annotated[dict[str, Checksum], Meta(min_length=1)]


# -- files of other libraries: unknown fields are allowed, as each library writes more than isosent reads ------------


_OUTSIDE = re.compile(r"/|[A-Za-z]:|.*[\\\0]|(.*/)?\.\.(/|$)", re.DOTALL)


def path_inside(folder: Path, name: str, file: Path) -> Path:
    """The path that a file of a folder names, refused if it leads out of the folder; "" is the folder itself."""
    # What links point to is not looked at: folders in the cache of the hub client are made of links.
    if _OUTSIDE.match(name):
        raise FileFormatError(f"{file}: must name files inside its folder; got {name!r}.")
    return folder / name


class Module(Struct):
    """An entry of ``modules.json``, of sentence-transformers."""

    type: str
    path: str


class PoolingConfig(Struct):
    """``1_Pooling/config.json``: names of poolings since release 6, a flag each before."""

    pooling_mode: str | list[str] | None = None
    pooling_mode_cls_token: bool | None = None
    pooling_mode_max_tokens: bool | None = None
    pooling_mode_mean_tokens: bool | None = None
    pooling_mode_mean_sqrt_len_tokens: bool | None = None
    pooling_mode_weightedmean_tokens: bool | None = None
    pooling_mode_lasttoken: bool | None = None
    include_prompt: bool | None = None


class LayersConfig(Struct):
    """``config.json`` of a WeightedLayerPooling."""

    layer_start: int | None = None


class ModuleConfig(Struct):
    """``config.json`` of a Dense or LayerNorm module."""

    activation_function: str | None = None
    use_residual: bool | None = None
    module_input_name: str | None = None


class TransformerModuleConfig(Struct):
    """``sentence_bert_config.json``, or what other releases named after the architecture."""

    max_seq_length: int | None = None
    do_lower_case: bool | None = None


class SentenceTransformersConfig(Struct):
    """``config_sentence_transformers.json``."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None


class TransformersConfig(Struct):
    """``config.json`` of transformers."""

    model_type: str | None = None
    auto_map: dict[str, Any] | None = None
    vocab_size: int | None = None
    text_config: dict[str, Any] | None = None
    transformers_weights: str | None = None


class TokenizerConfig(Struct):
    """``tokenizer_config.json`` of transformers."""

    model_max_length: int | float | None = None


class WeightsIndex(Struct):
    """``model.safetensors.index.json``: the file of each tensor."""

    weight_map: dict[str, str]


class Model2VecConfig(Struct):
    """``config.json`` of Model2Vec."""

    normalize: bool | None = None
    max_length: Annotated[int, Meta(ge=1)] | None = None


class Truncation(Struct):
    """How a tokenizer cuts texts."""

    max_length: int | None = None


class TokenizerHeader(Struct):
    """Settings at the start of a ``tokenizer.json``."""

    truncation: Truncation | None = None
