"""Folders of sentence-transformers: their modules in order, their settings, and their prompts.

`read_module_folder` reads one that begins with a Transformer, and `read_static_folder` one that begins with a
StaticEmbedding. Both go through the entries of ``modules.json`` (`_entries`): the Transformer has its own settings
(`_transformer_config`), Pooling and WeightedLayerPooling become options of a reference, and what follows them is a
`ModuleSpec`, which `output_modules` loads. What a file says is applied, known not to change a vector, or refused:
`MODULE_KEYS`, `TRANSFORMER_KEYS` and the lists next to them say which, and `_check_keys` compares.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from isosent.encoders.output_modules import DENSE, LAYER_NORM, NORMALIZE, TRUNCATE, ModuleSpec
from isosent.errors import FileFormatError, ModelReferenceError
from isosent.io.json import read_json
from isosent.io.notes import verify_export
from isosent.io.schemas import (
    LayersConfig,
    Module,
    ModuleConfig,
    PoolingConfig,
    SentenceTransformersConfig,
    TransformerModuleConfig,
    TransformersConfig,
    path_inside,
)
from isosent.io.tensors import read_all_tensors
from isosent.networks.layer_pooling import canonical_pooling, format_layers
from isosent.role import TEXT_PLACE
from isosent.storage import Storage

MODULES_FILE, _SETTINGS_FILE = "modules.json", "config_sentence_transformers.json"
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_FOLLOWING = (DENSE, LAYER_NORM, NORMALIZE)
_THEIRS = "sentence_transformers."  # modules of other packages may have the same names and compute something else
ROLES: tuple[Literal["text", "query", "document"], ...] = ("text", "query", "document")
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


# A key that isosent does not know may change vectors, so `_check_keys` refuses it unless it holds nothing. The lists
# are those of the classes of sentence-transformers 6, with the names that they had in earlier releases.


class Keys(NamedTuple):
    """What a file, or an object in it, may say."""

    applied: Collection[str] = ()  # by isosent
    harmless: Collection[str] = ()  # change no vector, whatever they hold
    fixed: Mapping[str, Collection[str | bool]] = {}  # change none if they hold one of these


_SENTENCE = ("sentence_embedding",)
_INPUT_AND_OUTPUT = {"module_input_name": _SENTENCE, "module_output_name": _SENTENCE}
# sentence-transformers overwrites these with what its caller says
_SOURCES = ("trust_remote_code", "local_files_only", "token", "revision", "cache_dir", "subfolder")
_FLOATS = tuple(
    prefix + name
    for prefix in ("", "torch.")
    for name in (Storage.float32, Storage.float16, Storage.bfloat16, Storage.float64)
)
_NUMBERS = dict.fromkeys(("dtype", "torch_dtype"), ("auto", *_FLOATS))  # by rounding only
_HOW_TO_COMPUTE = ("attn_implementation", "use_cache", "add_pooling_layer", "reference_compile")

_MODULES_KEYS = Keys(applied=("type", "path", "kwargs"), harmless=("idx", "name"))
_SETTINGS_KEYS = Keys(
    applied=("prompts", "default_prompt_name", "truncate_dim"),
    harmless=("__version__", "requirements", "similarity_fn_name"),
    fixed={"model_type": ("SentenceTransformer",)},
)
TRANSFORMER_KEYS = Keys(
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
MODULE_KEYS = {
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


class _Entry(NamedTuple):
    """An entry of ``modules.json``."""

    kind: str | None  # None for a module of another package
    type: str
    folder: Path
    arguments: Sequence[str]  # of ``encode`` that the module wants


class _Settings(NamedTuple):
    """``config_sentence_transformers.json``."""

    prompts: Mapping[str, str] = {}  # by name
    default: str = ""  # the prompt of a text without a role
    truncate_dim: int | None = None


@dataclass(frozen=True, slots=True)
class ModuleFolder:
    """A folder of a sentence encoder, before its weights are loaded."""

    transformer: Path  # folder of the transformer and its tokenizer
    pooling: str = "mean"  # as in ``pooling=``
    layers: str = "-1"  # as in ``layers=``
    modules: tuple[ModuleSpec, ...] = ()  # modules after the pooling, in order
    max_length: int | None = None  # None if the folder leaves it to the tokenizer
    lowercase: bool = False  # before the tokenizer
    cuts_end: bool = False  # whether the settings say so, whatever the tokenizer does by itself
    # of each of `ROLES`, possibly empty
    prompts: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(ROLES, ""))
    pools_prompt: bool = True  # with the tokens of the text
    named_prompts: Mapping[str, str] = field(default_factory=dict)  # all of them by the names of the folder


def read_module_folder(folder: Path, *, pooling: str | None = None) -> ModuleFolder:
    """Read ``modules.json`` and the configs it points to; without it, the folder is a transformer with mean pooling."""
    verify_export(folder)
    path = folder / MODULES_FILE
    if not path.exists():
        return _bare(folder, pooling)
    entries = _entries(folder)
    if not entries:
        raise FileFormatError(f"{path} lists no Transformer.")
    first, *others = entries
    if first.kind != "Transformer":
        raise _unread(path, first)
    stored, pools_prompt, layers, modules = None, True, "-1", list[ModuleSpec]()
    for entry in others:
        if entry.kind == "WeightedLayerPooling" and layers == "-1" and not (stored or modules):
            layers = _layers(entry.folder)
        elif entry.kind == "Pooling" and not (stored or modules):
            stored, pools_prompt = _pooling(entry.folder, pooling)
        elif entry.kind in (*_FOLLOWING, "Dropout"):
            modules += _following(entry)
        else:
            raise _unread(path, entry)
    config, of_tokenizer = _transformer_config(first, has_layers=layers != "-1")
    settings = _read_settings(folder)
    is_weighted = pooling is None and "weighted_mean" in (stored or "").split(",")
    if is_weighted and not pools_prompt and any(settings.prompts.values()):
        raise FileFormatError(
            f"{path}: it pools by weightedmean without the prompt, but counts its positions, which isosent does not. "
            "Let sentence-transformers compute the vectors: isosent.wrap(SentenceTransformer(FOLDER))."
        )
    stored = stored or pooling
    if stored is None:
        raise FileFormatError(f"{path} lists no Pooling, so the pooling is unknown. {NAME_POOLING}")
    if layers != "-1" and "max" in stored.split(","):
        raise FileFormatError(
            f"{path} pools the mean of layers by max, which isosent takes of each layer. Choose another pooling."
        )
    return ModuleFolder(
        first.folder,
        stored,
        layers,
        (*modules, *_truncation(settings)),
        max_length=of_tokenizer.get("model_max_length") or config.get("max_seq_length"),
        lowercase=bool(config.get("do_lower_case")),
        cuts_end="truncation_side" in of_tokenizer,
        prompts=_prompts_by_role(settings),
        pools_prompt=pools_prompt,
        named_prompts=settings.prompts,
    )


def read_static_folder(folder: Path) -> tuple[Path, tuple[ModuleSpec, ...]]:
    """Folder of the StaticEmbedding that a ``modules.json`` begins with, and the modules that follow it."""
    path = folder / MODULES_FILE
    entries, settings, modules = _entries(folder), _read_settings(folder), list[ModuleSpec]()
    if not entries or entries[0].kind != "StaticEmbedding":
        raise FileFormatError(
            f"{path} lists {', '.join(entry.type for entry in entries) or 'nothing'}. Expected a StaticEmbedding of "
            "sentence-transformers first. A transformer is hf:DIR."
        )
    for entry in entries[1:]:
        if entry.kind not in (*_FOLLOWING, "Dropout"):
            raise FileFormatError(
                f"{path}: the module {entry.kind or entry.type} is not read. After a StaticEmbedding, "
                f"{', '.join(_FOLLOWING)} and Dropout of sentence-transformers are."
            )
        modules += _following(entry)
    if prompt := next(filter(None, settings.prompts.values()), None):
        raise FileFormatError(
            f"{folder / _SETTINGS_FILE}: prompts: isosent adds no prompts to the texts of a static model, and the "
            f"folder has {prompt!r:.60}. Remove the prompts, and write yours into the texts."
        )
    return entries[0].folder, (*modules, *_truncation(settings))


def _entries(folder: Path) -> list[_Entry]:
    """The modules of a folder, in order."""
    path, entries = folder / MODULES_FILE, []
    for module in read_json(path, list[Module]):
        _check_keys(path, module, _MODULES_KEYS)
        package, _, kind = module["type"].rpartition(".")
        # modules of other packages may have the same names and compute something else
        is_theirs = f"{package}.".startswith(_THEIRS)
        inner = path_inside(folder, module["path"], path)
        entries.append(_Entry(kind if is_theirs else None, module["type"], inner, module.get("kwargs") or ()))
    return entries


def _unread(path: Path, entry: _Entry) -> FileFormatError:
    if entry.kind == "StaticEmbedding":
        return FileFormatError(f"{path} lists a StaticEmbedding: it is a static model. Write static:DIR for it.")
    return FileFormatError(
        f"{path}: the module {(entry.kind or entry.type)!r} is not read at its place; of sentence-transformers, "
        f"Transformer, WeightedLayerPooling, Pooling, and then {', '.join(_FOLLOWING)} and Dropout are."
    )


def _following(entry: _Entry) -> list[ModuleSpec]:
    """The module after the pooling, if it changes vectors."""
    assert entry.kind is not None
    path = entry.folder / "config.json"
    if entry.kind in (DENSE, LAYER_NORM):
        return [ModuleSpec(entry.kind, entry.folder, _config(entry.kind, entry.folder, ModuleConfig))]
    if path.exists():
        _check_keys(path, read_json(path), MODULE_KEYS[entry.kind])
    return [ModuleSpec(entry.kind, entry.folder, {})] if entry.kind == NORMALIZE else []


def _truncation(settings: _Settings) -> list[ModuleSpec]:
    """What cuts the vectors after all modules."""
    return [ModuleSpec(TRUNCATE, Path(), {"truncate_dim": settings.truncate_dim})] if settings.truncate_dim else []


NAME_POOLING = (
    "It cannot be guessed: a model trained with one pooling gives wrong vectors with another. Copy the whole folder "
    "again, or name the pooling, as in hf:DIR?pooling=cls."
)


def _bare(folder: Path, pooling: str | None) -> ModuleFolder:
    """A folder without ``modules.json``, refused if other files show that there was one."""
    others = sorted(
        path.name for path in (*folder.glob("*_Pooling"), *folder.glob("config_sentence_transformers.json"))
    )
    if others and pooling is None:
        raise FileFormatError(
            f"{folder} has no modules.json, but {others[0]}: it is a part of a sentence-transformers folder. "
            f"{NAME_POOLING}"
        )
    return ModuleFolder(folder)


def _transformer_config(entry: _Entry, *, has_layers: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the Transformer, and its arguments of the tokenizer."""
    paths = [path for name in _TRANSFORMER_CONFIGS if (path := entry.folder / name).exists()]
    config, of_tokenizer, of_config = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for path in paths:
        if config := read_json(path, TransformerModuleConfig):
            of_tokenizer, of_config = _check_transformer_keys(path, config)
            break
    inner = entry.folder / "config.json"
    network: dict[str, Any] = read_json(inner, TransformersConfig) if inner.exists() else {}
    if entry.arguments and network.get("auto_map"):
        raise FileFormatError(
            f"{inner}: its code takes {', '.join(map(str, entry.arguments))} (kwargs in {MODULES_FILE}), which isosent "
            "does not pass. Let sentence-transformers compute the vectors: isosent.wrap(SentenceTransformer(FOLDER))."
        )
    if has_layers and not (of_config.get("output_hidden_states") or network.get("output_hidden_states")):
        raise FileFormatError(
            f"{inner}: output_hidden_states is not true, so that sentence-transformers skips the WeightedLayerPooling. "
            "Set it to true if the layers are meant, or remove that module."
        )
    return config, of_tokenizer


def _pooling(folder: Path, asked: str | None) -> tuple[str, bool]:
    if asked is not None and not (folder / "config.json").exists():
        return asked, True
    config = _config("Pooling", folder, PoolingConfig, NAME_POOLING)
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [name for name, flag in _POOLING_FLAGS.items() if config.get(flag)] or "mean"
    try:
        pooling = canonical_pooling(",".join([modes] if isinstance(modes, str) else modes))
    except ModelReferenceError as error:
        raise FileFormatError(f"{folder}/config.json: pooling_mode: {error}") from None
    return pooling, config.get("include_prompt") is not False


def _layers(folder: Path) -> str:
    """Layers of a WeightedLayerPooling with a weight above 0, as a model reference writes them."""
    start = _config("WeightedLayerPooling", folder, LayersConfig).get("layer_start", 4)
    stored = read_all_tensors(folder / "model.safetensors").get("layer_weights")
    weights = None if stored is None or stored.ndim != 1 else stored.astype(float).tolist()
    if not weights or type(start) is not int or not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise FileFormatError(
            f"{folder}: expected weights of 0 or more of the layers from layer_start on, not all of them 0."
        )
    return format_layers([(start + place, weight) for place, weight in enumerate(weights) if weight])


def _read_settings(folder: Path) -> _Settings:
    path = folder / _SETTINGS_FILE
    if not path.exists():
        return _Settings()
    config = read_json(path, SentenceTransformersConfig)
    _check_keys(path, config, _SETTINGS_KEYS)
    prompts = {name: prompt or "" for name, prompt in (config.get("prompts") or {}).items()}
    if placed := next((prompt for prompt in prompts.values() if TEXT_PLACE in prompt), None):
        raise FileFormatError(
            f"{path}: the prompt {placed!r:.60} holds {TEXT_PLACE}, which sentence-transformers puts before a text "
            "unchanged, and isosent replaces by the text. Remove it there, and name the prompt as in hf:DIR?prompt=..."
        )
    name = config.get("default_prompt_name")
    if name is not None and name not in (*prompts, "query", "document"):  # these two always exist, and may be empty
        raise FileFormatError(
            f"{path}: default_prompt_name is {name!r}, but the prompts are {', '.join(prompts) or 'none'}. Correct it, "
            "or set it to null."
        )
    return _Settings(prompts, prompts.get(name or "", ""), config.get("truncate_dim"))


def _prompts_by_role(settings: _Settings) -> dict[str, str]:
    """Prompts by role, as sentence-transformers names them; the default one is for texts without a role."""
    by_role = {
        role: next((settings.prompts[name] for name in names if settings.prompts.get(name)), "")
        for role, names in _PROMPT_NAMES.items()
    }
    return {"text": settings.default, **by_role}


def _config(kind: str, folder: Path, schema: type, advice: str = "Copy the whole folder again.") -> dict[str, Any]:
    """Config of a module; there are no safe defaults."""
    path = folder / "config.json"
    try:
        config: dict[str, Any] = read_json(path, schema)
    except FileNotFoundError:
        raise FileFormatError(
            f"{path} is missing, though modules.json lists its module. The folder was probably copied in part. {advice}"
        ) from None
    _check_keys(path, config, MODULE_KEYS[kind])
    return config


def _check_keys(path: Path, values: Mapping[str, Any], keys: Keys, *, within: str = "") -> None:
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


def _check_transformer_keys(path: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Refuse what is not known of a ``sentence_bert_config.json``; its arguments of the tokenizer and of the config."""
    found: dict[str, dict[str, Any]] = {}
    for kind, names in _ARGUMENT_NAMES.items():
        found[kind] = {}
        for name in names:  # the old name wins
            arguments = config.get(name) or {}
            kept = {key: value for key, value in arguments.items() if key not in _SOURCES}
            _check_keys(path, kept, _ARGUMENTS[kind], within=f"{name}: ")
            found[kind] = found[kind] or kept
    of_arguments = [name for names in _ARGUMENT_NAMES.values() for name in names]
    _check_keys(path, config, TRANSFORMER_KEYS._replace(harmless=(*TRANSFORMER_KEYS.harmless, *of_arguments)))
    _check_keys(path, config.get("processing_kwargs") or {}, _PROCESSING, within="processing_kwargs: ")
    modalities = config.get("modality_config") or {}
    # "image+text" is of texts that come with an image
    _check_keys(path, {k: v for k, v in modalities.items() if "+" not in k}, _MODALITIES, within="modality_config: ")
    text = modalities.get("text") or {}
    if isinstance(output := text.get("method_output_name"), list) and len(output) == 1:
        text = {**text, "method_output_name": output[0]}
    _check_keys(path, text, _TEXT, within="modality_config: text: ")
    if modalities and not text:
        raise FileFormatError(f"{path}: modality_config has no text, but {', '.join(modalities)}: it takes no texts.")
    return found["tokenizer"], found["config"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
