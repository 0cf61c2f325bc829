"""Load a transformers network from a folder, and choose the backend that computes it.

`load_network` checks the files of a folder (`_check_files`) before transformers sees them, loads tokenizer and weights
without network access, and learns from one token what the network returns: a `Network`. `batch_runner` makes it
compute: `Runtime` says with which backend, number type and devices. On the CPU that is the network without padding if
it is of the BERT family (`UnpaddedLayers`), else the network with packed matrices and hooks (`LayerTaps`); on a GPU it
is a copy there; or what torch compiles, or onnxruntime. Prepared layers are kept on the `Network`, behind its lock, so
that encoders with other layers and poolings share them.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import pickle
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from isosent import _extras
from isosent._locks import Lock
from isosent.errors import FileFormatError, InputError, PaddingWarning
from isosent.io.bounds import check_growth
from isosent.io.json import read_json
from isosent.io.schemas import TokenizerConfig, TransformersConfig, WeightsIndex, path_inside
from isosent.io.system import open_to_read
from isosent.networks.batching import Backend, BatchRunner, share_of_threads
from isosent.networks.graph_file import GraphBackend, GraphModel, graph_of
from isosent.networks.layer_pooling import TOKENS, LayerPooling
from isosent.networks.onnx_backend import ONNX_STORAGES, OnnxBackend
from isosent.networks.torch_backend import CompiledNetwork, Layers, LayerTaps, TorchNetwork, traceable
from isosent.networks.unpadded import NotSupportedError, UnpaddedLayers, packed
from isosent.storage import COMPUTED, Storage

AUTO = "auto"
TORCH, COMPILED, ONNX = BACKENDS = ("torch", "compiled", "onnx")
_DTYPES_OF = {
    AUTO: COMPUTED,
    **dict.fromkeys((TORCH, COMPILED), tuple(storage for storage in COMPUTED if storage.is_float)),
    ONNX: ONNX_STORAGES,
}
_CPU_BUDGET, _GPU_BUDGET = 1024, 32768  # tokens of a batch


@dataclass(frozen=True, slots=True)
class Runtime:
    """How a network is computed. It is never part of what a model is."""

    backend: str = AUTO  # of `BACKENDS`; auto is onnx for int8, torch otherwise
    dtype: str = Storage.float32  # of `COMPUTED`, for the layers; pooling and what follows are float32
    devices: str = AUTO  # cpu, cuda, "cuda:0,cuda:1", as torch spells them; auto is the GPU if there is one
    batch_tokens: int | None = None  # tokens of a batch, padding included; None for what suits the device

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES_OF[self.backend]:
            known = ", ".join(_DTYPES_OF[self.backend])
            raise InputError(f"backend {self.backend} cannot compute in {self.dtype}. Choose one of {known}.")
        if self.devices in (AUTO, "cpu"):
            return
        if self.backend == ONNX:
            raise InputError(f"backend onnx runs on the CPU, not on {self.devices}. Use backend torch.")
        if self.dtype == Storage.int8:
            raise InputError(f"dtype int8 runs on the CPU, not on {self.devices}. Use float16.")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Runtime:
        """Read the runtime from the options of a model reference; the other options are ignored."""
        budget = options.get("batch_tokens")
        return cls(
            options.get("backend", AUTO),
            options.get("dtype", Storage.float32),
            options.get("devices", AUTO),
            None if budget is None else int(budget),
        )

    @property
    def chosen_backend(self) -> str:
        """The backend in use, where ``auto`` leaves the choice."""
        if self.backend != AUTO:
            return self.backend
        return ONNX if self.dtype == Storage.int8 else TORCH

    def device_names(self) -> list[str]:
        """The devices in use, as torch spells them."""
        torch = _extras.require("torch")
        if self.devices == AUTO:
            names = ["cuda"] if torch.cuda.is_available() and self.chosen_backend != ONNX else ["cpu"]
        else:
            names = self.devices.split(",")
        if "cpu" in names and self.dtype == Storage.float16:
            raise InputError("dtype float16 needs a GPU, and the device is cpu. Use float32 or bfloat16.")
        return names

    def check_devices(self) -> None:
        """Refuse devices that torch does not reach, before anything is loaded."""
        torch = _extras.require("torch")
        for device in self.device_names():
            try:
                torch.empty(0, device=device)
            except (RuntimeError, AssertionError) as error:
                reason = (str(error).strip() or "-").splitlines()[0]
                raise InputError(f"hf: torch does not reach devices={device}: {reason}") from error


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A transformer and its tokenizer."""

    # A copy or a pickle holds settings, weights and tokenizer. The rest is made again, because transformers attaches
    # functions to a network that cannot be pickled.

    model: Any  # float32, on the CPU, for inference; the encoder of an encoder-decoder; or a `GraphModel`
    tokenizer: Any
    n_layers: int  # without the embedding layer
    dim: int  # of the hidden states
    has_hidden_states: bool = True  # whether it returns the hidden states of layers below the last
    # Layers and batch runners by how they are computed: several layer poolings and encoders share them.
    prepared: dict[Hashable, Any] = field(default_factory=dict)
    preparing: Lock = field(default_factory=Lock)
    tokenizing: Lock = field(default_factory=Lock)  # truncation is a state of the tokenizer that all threads share

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_graph:
            return Network, (self.model, self.tokenizer, self.n_layers, self.dim, self.has_hidden_states)
        model = type(self.model), self.model.config, self.model.state_dict()
        return _unpickled, (*model, self.tokenizer, self.n_layers, self.dim, self.has_hidden_states)

    @property
    def is_graph(self) -> bool:
        """Whether it is an ONNX file, which has no weights that torch could use."""
        return isinstance(self.model, GraphModel)

    def check_runtime(self, runtime: Runtime) -> None:
        """Refuse to compute an ONNX file in another way than onnxruntime does on the CPU."""
        if self.is_graph and (runtime.backend not in (AUTO, ONNX) or runtime.devices not in (AUTO, "cpu")):
            raise InputError(
                f"hf: {self.model.path.name} is an ONNX file, which onnxruntime computes on the CPU: leave backend="
                f"{runtime.backend} and devices={runtime.devices} out, or name a folder with weights in .safetensors."
            )
        if self.is_graph and runtime.dtype != Storage.float32:
            raise InputError(
                f"hf: {self.model.path.name} is an ONNX file, which is computed unchanged: leave dtype={runtime.dtype} "
                "out, or name another file as in graph=model_quantized.onnx."
            )

    @property
    def pad_id(self) -> int:
        """Id of the padding token; 0 if there is none."""
        return self.tokenizer.pad_token_id or 0


def _unpickled(kind: Any, config: Any, weights: dict[str, Any], *others: Any) -> Network:
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    with quiet(transformers):
        model = kind.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    return Network(model.eval(), *others)


def batch_runner(
    network: Network, layer_poolings: Sequence[LayerPooling], runtime: Runtime, *, key: Callable[[], str]
) -> BatchRunner:
    """Prepare a network to compute some layer poolings; `key` identifies its weights, for the cache of ONNX graphs."""
    widths = [each.width(network.dim) for each in layer_poolings if each.poolings != (TOKENS,)]
    if isinstance(network.model, GraphModel):
        n_workers, _ = share_of_threads()
        backend = GraphBackend(network.model, network.n_layers, layer_poolings)
        budget = 1 if network.model.takes_texts_alone else runtime.batch_tokens or _CPU_BUDGET
        return BatchRunner([backend] * n_workers, widths, budget)
    devices = runtime.device_names()
    budget = runtime.batch_tokens or (_CPU_BUDGET if devices == ["cpu"] else _GPU_BUDGET)
    backends: list[Backend] = []
    if runtime.chosen_backend == ONNX:
        n_workers, threads_each = share_of_threads()
        name = hashlib.sha256(f"{key()} {layer_poolings}".encode()).hexdigest()
        module = traceable(network.model, network.n_layers, layer_poolings)
        backends = [OnnxBackend(module, name, dtype=runtime.dtype, n_threads=threads_each)] * n_workers
        return BatchRunner(backends, widths, budget)
    for device in devices:
        if runtime.backend == COMPILED:
            model = _converted(network.model, runtime.dtype, device)
            backends.append(CompiledNetwork(model, network.n_layers, layer_poolings))
        else:
            layers = _prepared_layers(network, runtime.dtype, device)
            backends.append(TorchNetwork(layers, layer_poolings, device=_extras.require("torch").device(device)))
    if devices == ["cpu"] and runtime.backend != COMPILED:
        n_workers, threads_each = share_of_threads()
        return BatchRunner(backends * n_workers, widths, budget, threads_each=threads_each)
    return BatchRunner(backends, widths, budget)


def _prepared_layers(network: Network, dtype: str, device: str) -> Layers:
    """The layers of a network on a device, prepared once for all layer poolings."""
    if (device, dtype) not in network.prepared:
        layers: Layers
        if device != "cpu":
            layers = LayerTaps(_converted(network.model, dtype, device), network.n_layers)
        else:
            try:
                layers = UnpaddedLayers(network.model, network.n_layers, dtype)
            except NotSupportedError:
                layers = LayerTaps(packed(network.model, dtype), network.n_layers)
        network.prepared[device, dtype] = layers
    return network.prepared[device, dtype]


def _converted(model: Any, dtype: str, device: str) -> Any:
    """A copy of a model in a number type on a device, or the model itself if it is there already."""
    torch_dtype = getattr(_extras.require("torch"), dtype)
    return model if device == "cpu" and torch_dtype == model.dtype else copy.deepcopy(model).to(device, torch_dtype)


def load_network(
    folder: Path,
    check_n_layers: Callable[[int], None] = lambda _: None,
    *,
    graph: str | None = None,
    trust_remote_code: bool = False,
    pickled_weights: bool = False,
) -> Network:
    """Load a transformers encoder; `check_n_layers` is called before the weights are read, if the config states it."""
    # graph: an ONNX file of the folder, in place of its weights; without weights, the one that it has.
    # trust_remote_code: run code from the folder, and let transformers download what its config names.
    # pickled_weights: read weights from pickles if there are none in safetensors.
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    permissions = {"trust_remote_code": trust_remote_code, "pickled_weights": pickled_weights}
    file = _check_files(transformers, folder, graph=graph, **permissions)
    # Without permission, transformers may read nothing but the folder.
    sources = {"trust_remote_code": trust_remote_code, "local_files_only": not trust_remote_code}
    with quiet(transformers), _naming(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **sources)
    if (n_layers := getattr(config.get_text_config(), "num_hidden_layers", None)) and not config.is_encoder_decoder:
        check_n_layers(n_layers)
    with quiet(transformers), _naming(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **sources)
        if tokenizer.is_fast:
            check_growth(f"the tokenizer of {folder}", json.loads(tokenizer.backend_tokenizer.to_str()))
    model: Any = _weights(folder, config, sources) if file is None else GraphModel(file, config)
    # transformers makes up a bare tokenizer if the files of the tokenizer are missing
    n_tokens, vocab_size = len(tokenizer.get_vocab()), getattr(config.get_text_config(), "vocab_size", 0)
    if 2 * n_tokens < vocab_size:
        raise FileFormatError(
            f"hf: {folder}: its tokenizer has only {n_tokens} tokens, but its network {vocab_size}. "
            "The download may be incomplete."
        )
    if model.takes_types if file else "token_type_ids" in inspect.signature(model.forward).parameters:
        _check_token_types(folder, tokenizer)
    if tokenizer.pad_token_id is None:
        warnings.warn(
            f"hf: the tokenizer of {folder} has no padding token; id 0 is used, which the network does not see.",
            PaddingWarning,
            stacklevel=5,
        )
    n_layers = int(model.config.get_text_config().num_hidden_layers)
    if file is not None:
        return Network(model, tokenizer, n_layers, model.dim, has_hidden_states=False)
    # run one token to learn the width of the hidden states and whether all are returned; not every config says it
    with torch.inference_mode():
        one = torch.ones((1, 1), dtype=torch.int64, device=model.device)
        output = model(input_ids=one, attention_mask=one, output_hidden_states=True, return_dict=True)
    has_hidden_states = len(output.get("hidden_states") or ()) == n_layers + 1
    return Network(model, tokenizer, n_layers, int(output.last_hidden_state.shape[-1]), has_hidden_states)


def _weights(folder: Path, config: Any, sources: Mapping[str, bool]) -> Any:
    """The network with its weights, all of which the folder must have."""
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    with quiet(transformers), _naming(folder):
        has_encoder_class = type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
        model, loading = (
            transformers.AutoModelForTextEncoding if has_encoder_class else transformers.AutoModel
        ).from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=any(folder.glob("*.safetensors")),
            output_loading_info=True,
            **sources,
        )
        model = (model.get_encoder() if config.is_encoder_decoder else model).eval()
        model.config.use_cache = False
    if missing := sorted(name for name in loading["missing_keys"] if not name.startswith("pooler.")):
        raise FileFormatError(f"hf: {folder} lacks {len(missing)} weights of its architecture, such as {missing[0]}.")
    return model


def _check_token_types(folder: Path, tokenizer: Any) -> None:
    """Refuse a network that is told types of tokens other than 0, which are never passed here."""
    if types := sorted({int(number) for number in tokenizer("a a").get("token_type_ids", ())} - {0}):
        raise FileFormatError(
            f"hf: {folder}: its tokenizer gives tokens of a single text the type {types[0]} (token_type_ids), and "
            "isosent computes with type 0 only. Let sentence-transformers compute the vectors: "
            "isosent.wrap(SentenceTransformer(FOLDER))."
        )


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Silence the progress bars and log messages of transformers while it loads."""
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


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Name the folder in errors of transformers."""
    try:
        yield
    except SafetensorError as error:
        raise FileFormatError(f"hf: {folder} holds a damaged .safetensors file: {error}.") from error
    except pickle.UnpicklingError as error:
        raise FileFormatError(f"hf: {folder}: its pickled weights hold code. Only tensors are loaded.") from error
    except Exception as error:  # tokenizers and code from the folder raise anything
        raise FileFormatError(f"hf: transformers could not load {folder}: {error}") from error


_LFS = b"version https://git-lfs"
_INDEX_ENDING = ".safetensors.index.json"
_PICKLES = "pytorch_model*.bin"  # others hold no weights, such as training_args.bin
# What transformers computes with built-in code; other names are kernels that it downloads.
_BUILT_IN = {
    "attn_implementation": ("eager", "sdpa", "flex_attention"),
    "experts_implementation": ("eager", "batched_mm", "grouped_mm"),
}


def _check_files(
    transformers: Any, folder: Path, *, graph: str | None, trust_remote_code: bool, pickled_weights: bool
) -> Path | None:
    """Refuse what transformers would refuse less clearly, or do without being asked; return the ONNX file in use."""
    if not (folder / "config.json").exists():
        raise FileFormatError(
            f"hf: {folder} is not a transformers model; it has no config.json. "
            "An ONNX file needs that and the tokenizer next to it: copy them from the model that it was made of. "
            "What isosent exports is not read back: name the model that was exported."
        )
    if (folder / "adapter_config.json").exists():
        raise FileFormatError(
            f"hf: {folder} holds an adapter (adapter_config.json), whose base model would be loaded from elsewhere. "
            "Merge the two with peft (merge_and_unload) and save the result."
        )
    try:
        config: dict[str, Any] = read_json(folder / "config.json", TransformersConfig)
        if (folder / "tokenizer_config.json").exists():
            read_json(folder / "tokenizer_config.json", TokenizerConfig)
        indexed = {name for path in folder.glob(f"*{_INDEX_ENDING}") for name in _indexed_files(path)}
    except FileFormatError as error:
        raise FileFormatError(f"hf: {error}") from None
    weights = config.get("transformers_weights")
    if weights is not None and ("/" in weights or not weights.endswith((".safetensors", _INDEX_ENDING))):
        # it would be read without the checks below: a pickle, or an index elsewhere
        raise FileFormatError(
            f"hf: {folder / 'config.json'}: transformers_weights names {weights!r}, which is no .safetensors file of "
            "the folder, nor an index of such files."
        )
    if not trust_remote_code:
        _check_code(transformers, folder, config)
    has_weights = any(any(folder.glob(ending)) for ending in ("*.safetensors", f"*{_INDEX_ENDING}", _PICKLES))
    if (file := graph_of(folder, graph, has_weights=has_weights)) is not None:
        _check_pointer(file)
        return file
    if missing := sorted(name for name in indexed if not (folder / name).exists()):
        raise FileFormatError(
            f"hf: {folder} is incomplete: {len(missing)} of the {len(indexed)} weight files that its index names are "
            f"missing, such as {missing[0]}. Download it again."
        )
    has_safetensors = False
    for path in folder.glob("*.safetensors"):
        has_safetensors = True
        _check_pointer(path)
    if indexed or has_safetensors:
        return None
    pickles = sorted(path.name for path in folder.glob(_PICKLES))
    if not pickles:
        raise FileFormatError(
            f"hf: {folder} has no weights in .safetensors. The download may be incomplete. ONNX files of the hub are "
            "downloaded if one is named, as in graph=onnx/model.onnx."
        )
    if not pickled_weights:
        raise FileFormatError(
            f"hf: {folder} has no weights in .safetensors, and pickles are not loaded by default: they can run code. "
            f"Add pickled_weights=true if you trust {pickles[0]}."
        )
    return None


def _check_pointer(path: Path) -> None:
    """Refuse a file of Git LFS that was not downloaded."""
    with open_to_read(path) as file:
        if file.read(len(_LFS)) == _LFS:
            raise FileFormatError(f"hf: {path} is a Git LFS pointer, not the weights. Run: git lfs pull")


def _indexed_files(path: Path) -> set[str]:
    """The files that an index of weights names: all in the folder, and no pickles."""
    names = set(read_json(path, WeightsIndex)["weight_map"].values())
    for name in names:
        path_inside(path.parent, name, path)
        if not name.endswith(".safetensors"):
            raise FileFormatError(f"{path}: it lists {name!r}, and only .safetensors files are loaded.")
    return names


def _check_code(transformers: Any, folder: Path, config: dict[str, Any]) -> None:
    """Refuse a model that needs code of its folder, or code that transformers would download for it."""
    kind, code = config.get("model_type"), config.get("auto_map") or {}
    if code and kind not in transformers.CONFIG_MAPPING:
        raise FileFormatError(
            f"hf: {folder} is a model of the kind {kind!r}, which needs code from its folder "
            f"({', '.join(sorted(set(map(str, code.values()))))}). Read the code, and add trust_remote_code=true if "
            "you trust it."
        )
    if download := next(_code_downloads(config), None):
        raise FileFormatError(
            f"hf: {folder / 'config.json'} asks for {download}, for which transformers may download and run code. "
            "Remove that entry, or add trust_remote_code=true if you trust it."
        )


def _code_downloads(config: Any) -> Iterator[str]:
    """Entries of a config, at any depth, that make transformers download kernels."""
    if isinstance(config, list):
        for value in config:
            yield from _code_downloads(value)
    if not isinstance(config, dict):
        return
    for name, value in config.items():
        built_in = _BUILT_IN.get(name.removeprefix("_"))
        if built_in is not None:
            kernels = value.values() if isinstance(value, dict) else [value]
            yield from (f"{name} {kernel!r}" for kernel in kernels if kernel is not None and kernel not in built_in)
        elif name == "quantization_config" and value is not None:
            method = value.get("quant_method") if isinstance(value, dict) else value
            yield f"quantized weights ({name} {method!r})"
        else:
            yield from _code_downloads(value)
