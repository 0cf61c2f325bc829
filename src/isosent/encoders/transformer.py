"""Any transformers encoder, with any layers and any pooling (Huang et al. 2021, section 3)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.errors import StrictDataclassError
from numpy.typing import NDArray
from safetensors import SafetensorError

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.heads import Head, load_heads
from isosent.encoders.module_folder import ModuleFolder, read_module_folder
from isosent.encoders.reference import GRAMMAR, escape, unescape
from isosent.errors import FileFormatError, InputError, InputFileError, ModelReferenceError
from isosent.numeric.pooling import POOLINGS
from isosent.text.tokens import TokenIds

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
_HUB_LEAVE = ["onnx/*", "openvino/*", "*.msgpack", "*.h5"]
_UNBOUNDED = 1 << 20
_NO_CODE = {"trust_remote_code": False}
_PADDING_IS_VISIBLE = ("convbert", "fnet", "mobilebert")
_NOT_OF_THE_CONFIG = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache")


class TransformerEncoder(Encoder):
    """A transformer, the mean of some of its layers, a pooling, and what follows it.

    Parameters
    ----------
    reference : str
        Model reference without options.
    options : mapping of str to str
        Every option with the value in force.
    dim : int
        Dimensions of the vectors.
    module_folder : ModuleFolder
        Where the parts lie.
    model, tokenizer : transformers objects
        The transformer in float32 and its tokenizer.
    heads : list of Head
        What follows the pooling.

    Notes
    -----
    Layer 0 is the embedding layer and layer L the last. Each layer is pooled, then the layers are averaged. Batches
    hold at most `batch_tokens` tokens, padding counted: on a CPU small batches stay in its cache.
    """

    batch_tokens = 2048

    def __init__(
        self,
        reference: str,
        options: Mapping[str, str],
        dim: int,
        module_folder: ModuleFolder,
        model: Any,
        tokenizer: Any,
        heads: list[Head],
    ) -> None:
        self._torch = _extras.require("torch")
        self.module_folder = module_folder
        self.model = model
        self.tokenizer = tokenizer
        self.heads = heads
        self.layers = [int(layer) for layer in options["layers"].split(",")]
        self._poolings = [POOLINGS[name] for name in options["pooling"].split(",")]
        self._max_length = _UNBOUNDED if options["max_length"] == "none" else int(options["max_length"])
        self.n_layers = _n_layers(model)
        self.equal_lengths = model.config.model_type in _PADDING_IS_VISIBLE
        self.n_special_tokens = tokenizer.num_special_tokens_to_add(pair=False)
        super().__init__(reference, options, dim)

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts, special tokens included, cut at the maximum."""
        is_blank = [not text.strip() for text in texts]
        texts = [self.module_folder.prompt + text for text in texts]
        if self.module_folder.lowercase:
            texts = [text.lower() for text in texts]
        lists = self._input_ids(texts) if texts else []
        lists = [[] if blank else ids for blank, ids in zip(is_blank, lists, strict=True)]
        too_long = [i for i, ids in enumerate(lists) if len(ids) > self._max_length]
        if too_long:
            shortened = self._input_ids([texts[i] for i in too_long], truncation=True, max_length=self._max_length)
            for i, ids in zip(too_long, shortened, strict=True):
                lists[i] = ids
        return TokenIds.from_lists(lists, n_cut=len(too_long))

    def _input_ids(self, texts: list[str], **truncation: Any) -> list[list[int]]:
        encoded = self.tokenizer(
            texts, return_attention_mask=False, return_token_type_ids=False, verbose=False, **truncation
        )
        return list(encoded["input_ids"])

    def embed(self, tokens: TokenIds) -> NDArray[np.float32]:
        """Return the vectors of texts that all have tokens."""
        torch, device = self._torch, self.model.device
        input_ids, attention_mask = (
            torch.from_numpy(array).to(device) for array in tokens.padded(self.tokenizer.pad_token_id or 0)
        )
        with torch.inference_mode():
            result: NDArray[np.float32] = self.forward(input_ids, attention_mask).cpu().numpy()
        return result

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return the vectors of padded texts, tensor to tensor: what a graph of this encoder holds."""
        pooled = [
            self._torch.cat([pool(layer, attention_mask) for pool in self._poolings], dim=1)
            for layer in self._layer_outputs(input_ids, attention_mask)
        ]
        vectors = sum(pooled[1:], start=pooled[0]) / len(pooled)
        for head in self.heads:
            vectors = head.apply(vectors)
        return vectors

    def _layer_outputs(self, input_ids: Any, attention_mask: Any) -> list[Any]:
        """Outputs of the chosen layers, each (n_texts, seq_len, dim)."""
        only_last = self.layers == [self.n_layers]
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=not only_last, return_dict=True
        )
        return [
            output.last_hidden_state if layer == self.n_layers else output.hidden_states[layer] for layer in self.layers
        ]

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield the weights of the transformer and of its heads, and the settings of both."""
        for weights in (self.model.state_dict(), *(head.weights for head in self.heads)):
            for name in sorted(weights):
                yield weights[name].detach().cpu().contiguous().view(-1).view(self._torch.uint8).numpy()
        config = {k: v for k, v in self.model.config.to_diff_dict().items() if k not in _NOT_OF_THE_CONFIG}
        heads = [head.config for head in self.module_folder.heads]
        settings = (self.module_folder.prompt, self.module_folder.lowercase, heads, config)
        yield np.frombuffer(json.dumps(settings, sort_keys=True, default=str).encode(), dtype=np.uint8)

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)


def open_transformer(location: str, options: Mapping[str, str]) -> TransformerEncoder:
    """Open a transformers encoder or a sentence-transformers model.

    Parameters
    ----------
    location : str
        A local folder, or an id on the hub, ``owner/name`` or ``owner/name@revision``. An id goes through the hub
        client with its cache and its offline switches; a folder needs no network.
    options : mapping of str to str
        ``layers``, ``pooling``, ``dense``, ``normalize`` and ``max_length``; what is left out is as the folder says.

    Returns
    -------
    TransformerEncoder
        The encoder, in float32.

    Raises
    ------
    MissingExtraError
        If torch or transformers is not installed.
    InputFileError
        If there is no such folder, or the hub does not give the model.
    FileFormatError
        If the folder holds no weights in safetensors (pickles are not loaded), or not all of them.
    ModelReferenceError
        If a layer does not exist.
    """
    folder = _local_folder(location)
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    reference = f"hf:{location}" if folder is None else f"hf:{escape(str(folder))}"
    folder = folder or _download(location)
    modules = read_module_folder(folder)
    model, tokenizer = _load(transformers, torch, modules.transformer)
    options = {
        "layers": "-1",
        "pooling": modules.pooling,
        "dense": "true",
        "normalize": str(any(head.kind == "Normalize" for head in modules.heads)).lower(),
        "max_length": _max_length(modules, model, tokenizer),
    } | dict(options)
    _check_max_length(options["max_length"], model, tokenizer)
    options["layers"] = _resolve_layers(options["layers"], _n_layers(model))
    model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    dim = _pooled_dim(torch, model, options)
    heads = load_heads(
        modules.heads,
        dim=dim,
        dense=options["dense"] == "true",
        normalize=options["normalize"] == "true",
        device=model.device,
    )
    dim = heads[-1].out_dim if heads else dim
    return TransformerEncoder(reference, options, dim, modules, model, tokenizer, heads)


def _local_folder(location: str) -> Path | None:
    """The folder that is meant, or None for an id on the hub."""
    path = Path(unescape(location)).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise InputFileError(f"hf: {location} must be a folder or an id on the hub; got a file.")
    if not _HUB_ID.fullmatch(location) or location.startswith("."):
        raise InputFileError(f"hf: {location} must be a folder or an id on the hub; got no such folder.")
    return None


def _download(hub_id: str) -> Path:
    import huggingface_hub

    name, _, revision = hub_id.partition("@")
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision or None, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_LEAVE
            )
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputFileError(
            f"hf: {hub_id} is no folder here, and the hub did not give a model of that name: {reason}. "
            "Check the spelling and the network, or name a local folder."
        ) from error


def _load(transformers: Any, torch: Any, folder: Path) -> tuple[Any, Any]:
    """The transformer in float32 and its tokenizer, silently, refusing weights that are missing."""
    if not (folder / "config.json").exists():
        raise FileFormatError(f"hf: {folder} must hold a transformers model; it has no config.json.")
    if not list(folder.glob("*.safetensors")):
        raise FileFormatError(
            f"hf: {folder} must hold its weights as .safetensors; it holds none. Pickles are not loaded."
        )
    with quiet(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **_NO_CODE)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **_NO_CODE)
            has_encoder_alone = type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
            auto = transformers.AutoModelForTextEncoding if has_encoder_alone else transformers.AutoModel
            model, loading = auto.from_pretrained(
                folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **_NO_CODE
            )
        except SafetensorError as error:
            raise FileFormatError(f"hf: {folder} holds a damaged .safetensors file: {error}.") from error
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError, StrictDataclassError) as error:
            raise FileFormatError(f"hf: {folder} could not be loaded by transformers: {error}") from error
    missing = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise FileFormatError(f"hf: {folder} lacks {len(missing)} weights of its own architecture, {missing[0]} first.")
    return (model.get_encoder() if config.is_encoder_decoder else model), tokenizer


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


def _pooled_dim(torch: Any, model: Any, options: Mapping[str, str]) -> int:
    """Width of the pooled vectors, taken from a run on one token: not every model's config tells."""
    with torch.inference_mode():
        one = torch.ones((1, 1), dtype=torch.int64, device=model.device)
        width = model(input_ids=one, attention_mask=one).last_hidden_state.shape[-1]
    return int(width) * len(options["pooling"].split(","))


def _n_layers(model: Any) -> int:
    return int(model.config.get_text_config().num_hidden_layers)


def _resolve_layers(written: str, n_layers: int) -> str:
    """Layers counted from 0, each in range and named once."""
    layers = []
    for layer in map(int, written.split(",")):
        resolved = layer if layer >= 0 else n_layers + 1 + layer
        if not 0 <= resolved <= n_layers:
            raise ModelReferenceError(
                f"hf: layers must lie in 0 ... {n_layers}, or -{n_layers + 1} ... -1; got {layer}.\n{GRAMMAR}"
            )
        if resolved in layers:
            raise ModelReferenceError(f"hf: layers must differ; got layer {resolved} twice in {written!r}.\n{GRAMMAR}")
        layers.append(resolved)
    return ",".join(map(str, layers))


def _max_length(modules: ModuleFolder, model: Any, tokenizer: Any) -> str:
    """What the folder says, else what the tokenizer says, as far as the positions of the model reach."""
    wanted = modules.max_length or tokenizer.model_max_length
    limits = [limit for limit in (wanted, _n_positions(model)) if limit and 0 < limit < _UNBOUNDED]
    return str(min(limits)) if limits else "none"


def _check_max_length(written: str, model: Any, tokenizer: Any) -> None:
    """Refuse fewer tokens than the special ones, and more than the model has positions for."""
    length = _UNBOUNDED if written == "none" else int(written)
    n_special, n_positions = tokenizer.num_special_tokens_to_add(pair=False), _n_positions(model) or _UNBOUNDED
    if not n_special < length <= n_positions:
        most = "" if n_positions == _UNBOUNDED else f" and at most {n_positions}, the positions of this model"
        raise InputError(f"hf: max_length must be above {n_special}, its special tokens,{most}; got {written}.")


def _n_positions(model: Any) -> int | None:
    """Length of a model's table of positions, if it has one; RoBERTa's family leaves its first entries unused."""
    table: Any = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if not hasattr(table, "num_embeddings"):
        return None
    return int(table.num_embeddings if table.padding_idx is None else table.num_embeddings - table.padding_idx - 1)
