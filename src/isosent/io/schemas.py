"""Types of the fields of JSON files, and what is read of the files of other libraries.

What a file of isosent may hold is said by its reader, with these types. Its unknown fields are refused. Numbers are
bounded, so that no value of a file can overflow what is computed from it.
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
FileName = Annotated[str, Meta(pattern=r"^(?!\.\.?$)[^/\\\x00-\x1f]+\Z")]
RelativePath = Annotated[str, Meta(pattern=r"^(?!/)(?!(.*/)?\.\.?(/|$))[^\\\x00-\x1f]+\Z")]
Text = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
Label = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]  # is printed in a terminal


class Document(Struct, forbid_unknown_fields=True, kw_only=True):
    """What every document of isosent begins and ends with."""

    format: str
    format_version: int
    isosent_version: str | None = None
    checksum: Checksum | None = None


class FileList(Struct):
    """What a document says of the other files of its folder, whatever else it says."""

    checksums: dict[RelativePath, Checksum] | None = None


Whole = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=2**53)]
Finite = Annotated[float, Meta(ge=-1e15, le=1e15)]
Seconds = Annotated[float, Meta(ge=0, le=1e15)]
Score = Annotated[float, Meta(ge=-1, le=1)] | None


class Fields(Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields of a result or a note."""


class SealedFile(Fields):
    """What results and notes of exports begin and end with; one that was edited on purpose may lack the checksum."""

    format: str
    checksum: Checksum | None = None


# -- files of other libraries: unknown fields are allowed here; `encoders.st_modules` refuses those that could matter --


_OUTSIDE = re.compile(r"/|[A-Za-z]:|.*[\\\0]|(.*/)?\.\.(/|$)", re.DOTALL)


def path_inside(folder: Path, name: str, file: Path) -> Path:
    """The path that a file of a folder names, refused if it leads out of the folder; "" is the folder itself."""
    # What links point to is not looked at: folders in the cache of the hub client are made of links.
    if _OUTSIDE.match(name):
        raise FileFormatError(f"{file}: it names {name!r}, which is outside its folder.")
    return folder / name


class Module(Struct):
    """An entry of ``modules.json``, of sentence-transformers."""

    type: str
    path: str
    kwargs: list[str] | None = None


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
    bias: bool | None = None


class TokenizerArguments(Struct):
    """Arguments of the tokenizer, in the settings of a Transformer module."""

    model_max_length: Positive | None = None


class TransformerModuleConfig(Struct):
    """``sentence_bert_config.json``, or what other releases named after the architecture."""

    max_seq_length: int | None = None
    do_lower_case: bool | None = None
    model_args: dict[str, Any] | None = None
    model_kwargs: dict[str, Any] | None = None
    tokenizer_args: TokenizerArguments | None = None
    processor_kwargs: TokenizerArguments | None = None
    config_args: dict[str, Any] | None = None
    config_kwargs: dict[str, Any] | None = None
    processing_kwargs: dict[str, Any] | None = None
    modality_config: dict[str, dict[str, Any]] | None = None


class SentenceTransformersConfig(Struct):
    """``config_sentence_transformers.json``."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    truncate_dim: Positive | None = None


class TransformersConfig(Struct):
    """``config.json`` of transformers."""

    model_type: str | None = None
    auto_map: dict[str, Any] | None = None
    vocab_size: int | None = None
    text_config: dict[str, Any] | None = None
    transformers_weights: str | None = None
    output_hidden_states: bool | None = None


class TokenizerConfig(Struct):
    """``tokenizer_config.json`` of transformers."""

    model_max_length: int | float | None = None
    add_eos_token: bool | None = None


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
    direction: str | None = None


class TokenizerHeader(Struct):
    """Settings at the start of a ``tokenizer.json``."""

    truncation: Truncation | None = None
