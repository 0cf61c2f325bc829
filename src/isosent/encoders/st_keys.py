"""Keys of the files of sentence-transformers: those that are applied, those that change no vector, and no others.

A key that isosent does not know may change vectors, so `check_keys` refuses it unless it holds nothing. The lists are
those of the classes of sentence-transformers 6, with the names that they had in earlier releases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isosent.errors import FileFormatError


class Keys(NamedTuple):
    """What a file, or an object in it, may say."""

    applied: Collection[str] = ()  # by isosent
    harmless: Collection[str] = ()  # change no vector, whatever they hold
    fixed: Mapping[str, Collection[str | bool]] = {}  # change none if they hold one of these


_SENTENCE = ("sentence_embedding",)
_INPUT_AND_OUTPUT = {"module_input_name": _SENTENCE, "module_output_name": _SENTENCE}
# sentence-transformers overwrites these with what its caller says
_SOURCES = ("trust_remote_code", "local_files_only", "token", "revision", "cache_dir", "subfolder")
_FLOATS = tuple(prefix + name for prefix in ("", "torch.") for name in ("float32", "float16", "bfloat16", "float64"))
_NUMBERS = dict.fromkeys(("dtype", "torch_dtype"), ("auto", *_FLOATS))  # by rounding only
_HOW_TO_COMPUTE = ("attn_implementation", "use_cache", "add_pooling_layer", "reference_compile")

MODULES = Keys(applied=("type", "path", "kwargs"), harmless=("idx", "name"))
SETTINGS = Keys(
    applied=("prompts", "default_prompt_name", "truncate_dim"),
    harmless=("__version__", "requirements", "similarity_fn_name"),
    fixed={"model_type": ("SentenceTransformer",)},
)
TRANSFORMER = Keys(
    applied=("max_seq_length", "do_lower_case", "modality_config", "processing_kwargs"),
    harmless=("unpad_inputs", "backend"),
    fixed={"transformer_task": ("feature-extraction",), "module_output_name": ("token_embeddings",)},
)
_ARGUMENTS = {
    "model": Keys(harmless=("device_map", "low_cpu_mem_usage", "use_safetensors", *_HOW_TO_COMPUTE), fixed=_NUMBERS),
    "tokenizer": Keys(
        applied=("model_max_length",),
        harmless=("padding_side", "use_fast", "clean_up_tokenization_spaces", "chat_template"),
        fixed={"truncation_side": ("right",)},
    ),
    "config": Keys(applied=("output_hidden_states",), harmless=("output_attentions", *_HOW_TO_COMPUTE), fixed=_NUMBERS),
}
# two names of each: those of releases before 6, and those since
_ARGUMENT_NAMES = {
    "model": ("model_args", "model_kwargs"),
    "tokenizer": ("tokenizer_args", "processor_kwargs"),
    "config": ("config_args", "config_kwargs"),
}
_PROCESSING = Keys(harmless=("image", "audio", "video", "chat_template"))  # not of texts
# "message" is refused: with it, every text goes through the chat template
_MODALITIES = Keys(applied=("text",), harmless=("image", "audio", "video"))
_TEXT = Keys(harmless=("format",), fixed={"method": ("forward",), "method_output_name": ("last_hidden_state",)})
OF_MODULE = {
    "Pooling": Keys(
        applied=(
            *("pooling_mode", "pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_tokens"),
            *("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"),
            "include_prompt",
        ),
        harmless=("embedding_dimension", "word_embedding_dimension"),
    ),
    "WeightedLayerPooling": Keys(
        applied=("layer_start",), harmless=("embedding_dimension", "word_embedding_dimension", "num_hidden_layers")
    ),
    "Dense": Keys(
        applied=("activation_function", "bias"),
        harmless=("in_features", "out_features"),
        fixed={"use_residual": (False,), **_INPUT_AND_OUTPUT},
    ),
    "LayerNorm": Keys(harmless=("dimension",)),
    "Normalize": Keys(fixed=_INPUT_AND_OUTPUT),
    "Dropout": Keys(harmless=("dropout",)),
}


def check_keys(path: Path, values: Mapping[str, Any], keys: Keys, *, within: str = "") -> None:
    """Refuse a key that isosent does not know, or a value of it that it does not compute."""
    for name, value in values.items():
        if value in (None, "", [], {}) or name in keys.applied or name in keys.harmless:
            continue
        if not any(value == fixed and type(value) is type(fixed) for fixed in keys.fixed.get(name, ())):
            raise FileFormatError(
                f"{path}: {within}{name} is {_short(value)}. It may change the vectors, and isosent does not apply it. "
                "Let sentence-transformers compute them: isosent.wrap(SentenceTransformer(FOLDER)). Or remove it, if "
                "the model was trained without it."
            )


def check_transformer_keys(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Refuse what is not known of a ``sentence_bert_config.json``; its arguments of the tokenizer and of the config."""
    found: dict[str, dict[str, Any]] = {}
    for kind, names in _ARGUMENT_NAMES.items():
        found[kind] = {}
        for name in names:  # the old name wins
            arguments = config.get(name) or {}
            kept = {key: value for key, value in arguments.items() if key not in _SOURCES}
            check_keys(path, kept, _ARGUMENTS[kind], within=f"{name}: ")
            found[kind] = found[kind] or kept
    check_keys(path, config, TRANSFORMER._replace(harmless=(*TRANSFORMER.harmless, *_names())))
    check_keys(path, config.get("processing_kwargs") or {}, _PROCESSING, within="processing_kwargs: ")
    modalities = config.get("modality_config") or {}
    # "image+text" is of texts that come with an image
    check_keys(path, {k: v for k, v in modalities.items() if "+" not in k}, _MODALITIES, within="modality_config: ")
    text = modalities.get("text") or {}
    if isinstance(output := text.get("method_output_name"), list) and len(output) == 1:
        text = {**text, "method_output_name": output[0]}
    check_keys(path, text, _TEXT, within="modality_config: text: ")
    if modalities and not text:
        raise FileFormatError(f"{path}: modality_config has no text, but {', '.join(modalities)}: it takes no texts.")
    return found["tokenizer"], found["config"]


def _names() -> list[str]:
    return [name for names in _ARGUMENT_NAMES.values() for name in names]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
