"""A transformers network and its tokenizer out of a folder, with a sentence for whatever is wrong with it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from safetensors import SafetensorError

from isosent import _extras
from isosent.errors import FileFormatError, InputError, PaddingWarning
from isosent.io.foreign_json import TokenizerConfig, TransformersConfig, WeightsIndex, path_inside
from isosent.io.json import read_json

AUTO = "auto"
TORCH, COMPILED, ONNX = BACKENDS = ("torch", "compiled", "onnx")
DTYPES = ("float32", "bfloat16", "float16", "int8")
_DTYPES_OF = {
    AUTO: DTYPES,
    TORCH: ("float32", "bfloat16", "float16"),
    COMPILED: ("float32", "bfloat16", "float16"),
    ONNX: ("float32", "int8"),
}


@dataclass(frozen=True, slots=True)
class Runtime:
    """How to compute."""

    backend: str = AUTO  # one of `BACKENDS`, or ``auto``, see `chosen_backend`
    dtype: str = "float32"  # one of `DTYPES`: what the layers are computed in. Pooling and what follows are float32
    # ``cpu``, ``cuda``, ``cuda:0,cuda:1`` and the like, as torch writes them; auto takes the GPU where there is one
    devices: str = AUTO
    batch_tokens: int | None = None  # tokens of a batch, padding counted; None for what suits the device

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES_OF[self.backend]:
            raise InputError(
                f"backend {self.backend} computes in {', '.join(_DTYPES_OF[self.backend])}; got dtype {self.dtype}."
            )
        if self.devices in (AUTO, "cpu"):
            return
        for is_asked, what, other in (
            (self.backend == ONNX, "backend onnx", TORCH),
            (self.dtype == "int8", "dtype int8", "float16"),
        ):
            if is_asked:
                raise InputError(f"{what} runs on the CPU here; got devices {self.devices}. Take {other}.")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Runtime:
        """Read what a model reference says of it."""
        budget = options.get("batch_tokens")
        return cls(
            options.get("backend", AUTO),
            options.get("dtype", "float32"),
            options.get("devices", AUTO),
            None if budget is None else int(budget),
        )


_LFS = b"version https://git-lfs"
_INDEX = "*.safetensors.index.json"
# What transformers computes with without code from elsewhere; other names are those of kernels that it downloads.
_BUILT_IN = {
    "attn_implementation": ("eager", "sdpa", "flex_attention"),
    "experts_implementation": ("eager", "batched_mm", "grouped_mm"),
}


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a folder may do that it may not do unasked."""

    # Run code that lies in the folder, and let transformers download what its config names
    trust_remote_code: bool = False
    pickled_weights: bool = False  # read weights out of pickles, where there are none in safetensors


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A transformer and its tokenizer."""

    # A copy or a pickle holds settings, weights and tokenizer. The rest is made again: transformers hangs functions
    # into a network that cannot be pickled.

    model: Any  # in float32, on the CPU, for inference; of an encoder-decoder, the encoder
    tokenizer: Any  # its tokenizer
    n_layers: int  # layers, the embedding layer not counted
    dim: int  # dimensions of the hidden states
    tells_layers: bool = True  # whether it gives the hidden states of layers below the last
    # What was made ready to compute it, by how it is computed: several readings and encoders share it
    prepared: dict[Hashable, Any] = field(default_factory=dict)
    # Held while the tokenizer runs, because whether it truncates is a state of it that every thread sees
    tokenizing: Lock = field(default_factory=Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        model = type(self.model), self.model.config, self.model.state_dict()
        return _of_weights, (*model, self.tokenizer, self.n_layers, self.dim, self.tells_layers)

    @property
    def pad_id(self) -> int:
        """Id that stands for padding."""
        return self.tokenizer.pad_token_id or 0


def load_network(folder: Path, permissions: Permissions, check: Callable[[int], None] = lambda _: None) -> Network:
    """Load a transformers encoder."""
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    _check_files(transformers, folder, permissions)
    with quiet(transformers), _told(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **_sources(permissions))
    if (n_layers := getattr(config.get_text_config(), "num_hidden_layers", None)) and not config.is_encoder_decoder:
        check(n_layers)
    with quiet(transformers), _told(folder):
        model, tokenizer, missing = _from_pretrained(torch, transformers, folder, config, permissions)
    if missing:
        raise FileFormatError(f"hf: {folder} lacks {len(missing)} weights of its own architecture, {missing[0]} first.")
    _check_vocabulary(folder, model, tokenizer)
    if tokenizer.pad_token_id is None:
        warnings.warn(
            f"hf: the tokenizer of {folder} has no padding token; id 0 stands for it, which the network does not see.",
            PaddingWarning,
            stacklevel=5,
        )
    n_layers = int(model.config.get_text_config().num_hidden_layers)
    return Network(model, tokenizer, n_layers, *_on_one_token(torch, model, n_layers))


def _of_weights(kind: Any, config: Any, weights: dict[str, Any], *others: Any) -> Network:
    """Make a network of settings and weights in memory; others: what `Network` takes behind the model."""
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    with quiet(transformers):
        model = kind.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    return Network(model.eval(), *others)


def _sources(permissions: Permissions) -> dict[str, bool]:
    """Where transformers may take code from: nothing but the folder is read unless its code is trusted."""
    trusted = permissions.trust_remote_code
    return {"trust_remote_code": trusted, "local_files_only": not trusted}


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Say which folder it was that something is wrong with."""
    try:
        yield
    except SafetensorError as error:
        raise FileFormatError(f"hf: {folder} holds a damaged .safetensors file: {error}.") from error
    except pickle.UnpicklingError as error:
        raise FileFormatError(f"hf: {folder}: pickled weights must be tensors and no code; these are more.") from error
    except Exception as error:  # tokenizers and code of strangers raise anything
        raise FileFormatError(f"hf: {folder} could not be loaded by transformers: {error}") from error


def _from_pretrained(
    torch: Any, transformers: Any, folder: Path, config: Any, permissions: Permissions
) -> tuple[Any, Any, list[str]]:
    """The network, its tokenizer, and the names of missing weights."""
    sources = _sources(permissions)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **sources)
    has_encoder_alone = type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
    auto = transformers.AutoModelForTextEncoding if has_encoder_alone else transformers.AutoModel
    model, loading = auto.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=_has_safetensors(folder),
        output_loading_info=True,
        **sources,
    )
    model = (model.get_encoder() if config.is_encoder_decoder else model).eval()
    model.config.use_cache = False
    return model, tokenizer, sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))


def _on_one_token(torch: Any, model: Any, n_layers: int) -> tuple[int, bool]:
    """Width of the hidden states, and whether all of them are given: not every model's config tells."""
    with torch.inference_mode():
        one = torch.ones((1, 1), dtype=torch.int64, device=model.device)
        output = model(input_ids=one, attention_mask=one, output_hidden_states=True, return_dict=True)
    return int(output.last_hidden_state.shape[-1]), len(output.get("hidden_states") or ()) == n_layers + 1


def _has_safetensors(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _check_files(transformers: Any, folder: Path, permissions: Permissions) -> None:
    """Refuse what transformers would refuse less clearly, or do unasked."""
    if not (folder / "config.json").exists():
        raise FileFormatError(f"hf: {folder} must hold a transformers model; it has no config.json.")
    if (folder / "adapter_config.json").exists():
        raise FileFormatError(
            f"hf: {folder} holds an adapter (adapter_config.json), whose base model would be loaded from elsewhere. "
            "Merge the two with peft (merge_and_unload) and save the result."
        )
    try:
        config: dict[str, Any] = read_json(folder / "config.json", TransformersConfig)
        if (folder / "tokenizer_config.json").exists():
            read_json(folder / "tokenizer_config.json", TokenizerConfig)
        indexed = [name for path in folder.glob(_INDEX) for name in _indexed(path)]
    except FileFormatError as error:
        raise FileFormatError(f"hf: {error}") from None
    _check_weights_name(folder, config.get("transformers_weights"))
    _check_code(transformers, folder, config, permissions)
    if absent := sorted({name for name in indexed if not (folder / name).exists()}):
        raise FileFormatError(
            f"hf: {folder} is half downloaded: its index names {len(set(indexed))} files of weights, {len(absent)} of "
            f"which are not there, {absent[0]} first. Download it again."
        )
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            if file.read(len(_LFS)) == _LFS:
                raise FileFormatError(f"hf: {path} is a pointer of Git LFS, not the weights. Run git lfs pull.")
    if not indexed and not _has_safetensors(folder):
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        if not pickles:
            raise FileFormatError(
                f"hf: {folder} must hold its weights as .safetensors; it holds none. Was it downloaded whole?"
            )
        if not permissions.pickled_weights:
            raise FileFormatError(
                f"hf: {folder} must hold its weights as .safetensors; it holds none. Pickles are not loaded unasked: "
                f"add pickled_weights=true if you trust {pickles[0]}."
            )


def _indexed(path: Path) -> list[str]:
    """Files that an index of weights names: in the folder, and no pickles."""
    names: list[str] = list(read_json(path, WeightsIndex)["weight_map"].values())
    for name in set(names):
        path_inside(path.parent, name, path)
        if not name.endswith(".safetensors"):
            raise FileFormatError(f"{path}: weights must be .safetensors; got {name!r}.")
    return names


def _check_weights_name(folder: Path, name: str | None) -> None:
    """Refuse a config that names weights which were not checked: a pickle, or an index elsewhere."""
    if name is not None and ("/" in name or not name.endswith((".safetensors", _INDEX.removeprefix("*")))):
        raise FileFormatError(
            f"hf: {folder / 'config.json'}: transformers_weights must name a .safetensors file or its index in the "
            f"folder; got {name!r}."
        )


def _check_code(transformers: Any, folder: Path, config: dict[str, Any], permissions: Permissions) -> None:
    """Refuse a model that needs code of its folder, or code that transformers would download for it."""
    if permissions.trust_remote_code:
        return
    kind, code = config.get("model_type"), config.get("auto_map") or {}
    if code and kind not in transformers.CONFIG_MAPPING:
        raise FileFormatError(
            f"hf: {folder} is a model of the kind {kind!r}, which needs code that comes with it "
            f"({', '.join(sorted(set(map(str, code.values()))))}). It is not run unasked: read it, and add "
            "trust_remote_code=true if you trust it."
        )
    if asked := next(_downloaded_code(config), None):
        raise FileFormatError(
            f"hf: {folder / 'config.json'} asks for {asked}, for which transformers may download and run code. Take "
            "that entry out, or add trust_remote_code=true if you trust it."
        )


def _downloaded_code(config: Any) -> Iterator[str]:
    """Entries of a config, on any level, that make transformers fetch kernels."""
    if isinstance(config, list):
        for value in config:
            yield from _downloaded_code(value)
    if not isinstance(config, dict):
        return
    for name, value in config.items():
        built_in = _BUILT_IN.get(name.removeprefix("_"))
        if built_in is not None:
            asked = value.values() if isinstance(value, dict) else [value]
            yield from (f"{name} {one!r}" for one in asked if one is not None and one not in built_in)
        elif name == "quantization_config" and value is not None:
            method = value.get("quant_method") if isinstance(value, dict) else value
            yield f"quantized weights ({name} {method!r})"
        else:
            yield from _downloaded_code(value)


def _check_vocabulary(folder: Path, model: Any, tokenizer: Any) -> None:
    """Refuse the bare tokenizer that transformers makes up where the files of one are missing."""
    known, expected = len(tokenizer.get_vocab()), getattr(model.config.get_text_config(), "vocab_size", 0)
    if 2 * known < expected:
        raise FileFormatError(
            f"hf: {folder} must hold the tokenizer of its network, which has {expected} tokens; found {known}. Was it "
            "downloaded whole?"
        )


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Keep the progress bars and notes of transformers off the terminal while loading."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
