"""What files of results, studies, exports and fetched data may hold: unknown fields are refused, as in `schemas`.

Numbers are bounded, so that no value of a file can overflow what is computed from it. None is an undefined score.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from isosent.files.schemas import Checksum, Document, Sha256, Text

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


# -- studies ---------------------------------------------------------------------------------------------------------


class _Spearman(_Fields):
    all: Score
    mean: Score
    wmean: Score


class _AutoCell(_Fields):
    model: str
    task: str
    scores: dict[str, Score]
    chosen: str
    best: str


class _FlowCell(_Fields):
    model: str
    task: str
    row: str
    scores: list[Score]
    held_out_bits: list[tuple[Finite | None, Finite | None]]
    fit_s: Seconds
    n_rows: Whole


class _GemCell(_Fields):
    model: str
    task: str
    study: str
    condition: str
    pearson: Score
    spearman: Score
    n_zero_rows: Whole


class _PublishedScore(_Fields):
    spearman: Finite
    source: str


class _ReadingCell(_Fields):
    model: str
    pooling: str
    layers: Annotated[list[Annotated[int, Meta(ge=0, le=10_000)]], Meta(min_length=1)]
    transform: str
    chosen: str | None
    task: str
    spearman: _Spearman
    published: dict[str, _PublishedScore]


class _DimsCell(_Fields):
    task: str
    k: Size
    n_components: Whole
    n_pairs: Whole
    n_zero_rows: Whole
    spearman: _Spearman


class _SearchTime(_Fields):
    k: Size
    n_docs: Whole
    n_queries: Whole
    n_repeats: Whole
    elapsed_s: Seconds


class _PublishedWidth(_Fields):
    label: str
    k: Size
    transformed: bool
    aggregation: str
    scores: dict[str, Finite]


class _DimsProtocol(Struct):
    transform: str
    fit: str


class _DimsStudy(_Fields):
    name: str
    model: dict[str, Any]
    protocol: _DimsProtocol
    untransformed: Annotated[list[_DimsCell], Meta(min_length=1)]
    cells: Annotated[list[_DimsCell], Meta(min_length=1)]
    search: list[_SearchTime]
    published: list[_PublishedWidth]
    best: dict[str, dict[str, Whole | None]] = {}
    bytes_per_million: dict[str, Whole] = {}


class AutoStudy(_File, kw_only=True):
    """What ``isosent study auto --json`` writes."""

    results: list[_AutoCell]


class FlowStudy(_File, kw_only=True):
    """What ``isosent study flow --json`` writes."""

    results: list[_FlowCell]


class GemStudy(_File, kw_only=True):
    """What ``isosent study gem --json`` writes."""

    results: list[_GemCell]


class ReadingStudy(_File, kw_only=True):
    """What ``isosent study layers --json`` and ``isosent study pooling --json`` write."""

    results: list[_ReadingCell]


class DimsStudies(_File, kw_only=True):
    """What ``isosent study dims --json`` writes."""

    results: list[_DimsStudy]


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


# -- fetched data ----------------------------------------------------------------------------------------------------


class _Seen(_Fields):
    revision: str
    files: dict[str, Sha256]


class _Written(_Fields):
    sha256: Sha256
    repository: str
    revision: str
    original: bool | None


class DataLock(Document, kw_only=True):
    """``isosent-data.json`` beside fetched data."""

    repositories: dict[str, _Seen]
    files: dict[str, _Written]


class _DataFile(_Fields):
    path: str
    repository: str = ""
    file: str = ""
    how: str = "copy"
    member: str = ""
    sha256: Sha256 | None = None
    original: Sha256 | None = None


class _Each(_Fields):
    repository: str = ""
    file: str = ""
    how: str = "copy"
    member: str = ""


class _DataSet(_Fields):
    name: str
    title: str
    command: str
    download: str
    terms: str
    text: str
    home: str
    place: str
    files: list[_DataFile]
    each: _Each | None = None
    includes: list[str] = []


class DataManifest(_Fields):
    """``manifest.json`` of `isosent.datasets`."""

    repositories: dict[str, str | None]
    sets: list[_DataSet]
    note: str = ""


# -- graphs in the user's cache --------------------------------------------------------------------------------------


class GraphNote(Document, kw_only=True):
    """``graph.json`` beside a graph."""

    files: Annotated[dict[str, Checksum], Meta(min_length=1)]
