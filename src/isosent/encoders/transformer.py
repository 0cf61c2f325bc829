"""Any transformers encoder, with any layers and any pooling (Huang et al. 2021, section 3).

`load_transformer` reads a folder and resolves its options. A `TransformerEncoder` tokenizes with the tokenizer of the
network and `read` runs batches of similar length through a backend of `networks`, which pools each layer as it is
computed. A text that is longer than the network allows is truncated, or read in overlapping `Windows`, whose vectors
are averaged by the tokens that are their own. Encoders with another prompt, runtime or device share the network.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.encoders.base import WINDOW, Encoder, TokenSpan, check_range, check_same
from isosent.encoders.hub import download, local_folder
from isosent.encoders.output_modules import (
    NORMALIZE,
    LoadedModule,
    ends_with_normalize,
    load_modules,
    modules_in_use,
)
from isosent.encoders.reference import (
    CODE_PERMISSIONS,
    PROMPTS,
    RUNTIME_OPTIONS,
    escape,
    parse_reference,
    write_options,
)
from isosent.encoders.st_modules import MODULES_FILE, NAME_POOLING, ModuleFolder, read_module_folder
from isosent.encoders.text_places import Placed, Tokens, check_end, placed
from isosent.errors import FileFormatError, InputError, MissingExtraError, ModelReferenceError
from isosent.io.texts import text_blocks
from isosent.networks.batching import Batch, BatchRunner, See
from isosent.networks.graph_file import GraphModel
from isosent.networks.layer_pooling import (
    SBERT_WK,
    TOKENS,
    LayerPooling,
    canonical_pooling,
    format_layers,
    resolve_layers,
    sbert_wk_layers,
)
from isosent.networks.load import TORCH, Network, Runtime, batch_runner, load_network
from isosent.networks.torch_backend import traceable
from isosent.pages.progress import Progress, part_of
from isosent.role import TEXT_PLACE, parts_of
from isosent.words.tokens import LONGEST_PIECE, TokenIds, offsets_of

UNBOUNDED = 1 << 20
WINDOWS = "windows"
PROMPT_OF = {"text": "prompt", "query": "query_prompt", "document": "document_prompt"}
SeeTokens = Callable[[NDArray[np.intp], NDArray[np.int64], NDArray[np.float32]], None]
_CHARACTERS_A_TOKEN = 64  # on average, in the beginning of a text: more than any
_PADDING_IS_VISIBLE = ("convbert", "fnet", "mobilebert")
_NOT_OF_THE_CONFIG = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache")


class TransformerEncoder(Encoder):
    """A transformer, the weighted mean of some of its layers, poolings, and what follows them."""

    # Layer 0 is the embedding layer and layer L the last. Each layer is pooled, then the layers are averaged. Texts
    # are batched longest first, so that texts of like length share a batch of at most so many tokens, padding
    # counted: how they are batched moves a vector by rounding only. Networks that see their padding get batches of
    # equal lengths.

    is_costly = True

    def __init__(
        self,
        reference: str,
        options: Mapping[str, Any],
        module_folder: ModuleFolder,
        network: Network,
        modules: list[LoadedModule],
        runtime: Runtime = Runtime(),  # noqa: B008
    ) -> None:
        self.module_folder = module_folder
        self.network = network
        self.modules = modules  # after the pooling
        self.runtime = runtime
        self.computed_in = runtime.dtype
        self.n_layers = network.n_layers
        self.own_layer_pooling = self.layer_pooling(options["layers"], options["pooling"])
        self.equal_lengths = network.model.config.model_type in _PADDING_IS_VISIBLE
        self.n_special_tokens = network.tokenizer.num_special_tokens_to_add(pair=False)
        self.max_length: int | None = options["max_length"]
        self.has_windows = options["long"] == WINDOWS
        self.prompt: str = options["prompt"]
        self._overlap = options["overlap"] if self.has_windows else 0
        self._first = self  # also in copies with other prompts, which share its network
        dim = modules[-1].out_dim if modules else self.own_layer_pooling.width(network.dim)
        super().__init__(reference, write_options(options), dim)
        if self.has_windows:
            self._require_room()

    @cached_property
    def model(self) -> Any:
        """The transformer."""
        return self.network.model

    @cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self.network.tokenizer

    @property
    def has_place(self) -> bool:
        """Whether its prompt has a place for the text, and so words after it."""
        return TEXT_PLACE in self.prompt

    @property
    def layers(self) -> list[int]:
        """The layers that are averaged."""
        return [layer for layer, _ in self.own_layer_pooling.layers]

    def for_queries(self) -> TransformerEncoder:
        """Return the encoder with the prompt of queries."""
        return self.with_prompt(self.options["query_prompt"])

    def for_documents(self) -> TransformerEncoder:
        """Return the encoder with the prompt of documents."""
        return self.with_prompt(self.options["document_prompt"])

    def with_prompt(self, prompt: str) -> TransformerEncoder:
        """Return the encoder with another prompt before every text."""
        if prompt == self.prompt:
            return self
        other = copy.copy(self)
        other.prompt = prompt
        for name in ("fingerprint", "_frame"):  # depend on the prompt
            other.__dict__.pop(name, None)
        return other

    def with_options(self, **options: object) -> TransformerEncoder:
        """Return the encoder with other options, such as a pooling, with the same network."""
        follow = PROMPTS if "prompt" in options else ()  # if they have the prompt of every text
        own = {k: v for k, v in self.options.items() if k not in follow or v != self.options["prompt"]}
        typed = parse_reference(self.reference, {**own, **options}).options
        resolved = _resolved(self.module_folder, self.network, typed)
        return TransformerEncoder(
            self.reference,
            resolved,
            self.module_folder,
            self.network,
            _modules(self.module_folder, self.network, resolved),
            self.runtime,
        )

    @property
    def n_positions(self) -> int | None:
        """Most tokens that the network can read; None if it has no such limit."""
        return _n_positions(self.model)

    def with_runtime(self, runtime: Runtime) -> TransformerEncoder:
        """Return the encoder computed in another way, with the same network."""
        self.network.check_runtime(runtime)
        other = copy.copy(self)
        other.runtime, other.computed_in, other._first = runtime, runtime.dtype, other
        return other

    def on_device(self, device: str) -> TransformerEncoder:
        """Return the encoder on other devices, as torch writes them: ``cuda:1``, or several with commas between."""
        runtime = replace(self.runtime, devices=parse_reference(self.reference, {"devices": device}).options["devices"])
        runtime.check_devices()
        return self if runtime == self.runtime else self.with_runtime(runtime)

    def layer_pooling(self, layers: str, pooling: str) -> LayerPooling:
        """Layers and pooling, as a model reference writes them."""
        layer_pooling = LayerPooling.of(layers, pooling, n_layers=self.n_layers)
        if not self.network.has_hidden_states and any(layer < self.n_layers for layer, _ in layer_pooling.layers):
            raise InputError(
                f"hf: layers={layers}: this network gives the hidden states of its last layer only. Leave layers out."
            )
        return layer_pooling

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts, special tokens included, cut at the maximum unless they become windows."""
        is_blank = [not text.strip() for text in texts]
        if not self.has_windows:  # what is cut off anyway is not tokenized
            most = max(LONGEST_PIECE, _CHARACTERS_A_TOKEN * (self.max_length or UNBOUNDED))
            is_cut_left = getattr(self.tokenizer, "truncation_side", "right") == "left"
            texts = [text[-most:] if is_cut_left else text[:most] for text in texts]
        if self.has_place:
            return self._placed_tokens(texts, is_blank)
        texts = [self._lowered(self.prompt + text) for text in texts]
        lists = self._input_ids(texts) if texts else []
        lists = [[] if blank else ids for blank, ids in zip(is_blank, lists, strict=True)]
        if self.has_windows:
            return TokenIds.from_lists(lists, n_unpooled=self._n_unpooled)
        too_long = [i for i, ids in enumerate(lists) if len(ids) > (self.max_length or UNBOUNDED)]
        if too_long:
            shortened = self._input_ids([texts[i] for i in too_long], truncation=True, max_length=self.max_length)
            for i, ids in zip(too_long, shortened, strict=True):
                lists[i] = ids
        return TokenIds.from_lists(lists, too_long, self._n_unpooled)

    def _placed_tokens(self, texts: Sequence[str], is_blank: Sequence[bool]) -> TokenIds:
        """Token ids of texts with words around them."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise InputError(
                f"{self.reference}: its tokenizer does not tell where tokens are, so that a prompt with {TEXT_PLACE} "
                "cannot be kept when texts are cut. Write the words into the texts."
            )
        parts, texts = [self._lowered(part) for part in parts_of(self.prompt)], [*map(self._lowered, texts)]
        cuts_left, length = self.tokenizer.truncation_side == "left", self.max_length or UNBOUNDED
        found: list[Placed] = []
        with self.network.tokenizing:
            for block in text_blocks(texts, len(texts), n_characters=LONGEST_PIECE, at_once=1):
                encoded = self.tokenizer(
                    [text.join(parts) for text in block],
                    verbose=False,
                    return_offsets_mapping=True,
                    return_special_tokens_mask=True,
                )
                columns = (encoded[name] for name in ("input_ids", "offset_mapping", "special_tokens_mask"))
                rows = zip(block, map(Tokens._make, zip(*columns, strict=True)), strict=True)
                found += [placed(tokens, parts, text, length, cuts_left=cuts_left) for text, tokens in rows]
        n_unpooled: int | NDArray[np.intp] = 0
        if len(parts) > 2 or not self.module_folder.pools_prompt:
            n_unpooled = np.array([row.start for row in found], dtype=np.intp)
        lists = [[] if blank else row.ids for blank, row in zip(is_blank, found, strict=True)]
        cut = [number for number, row in enumerate(found) if row.is_cut and not is_blank[number]]
        return TokenIds.from_lists(lists, cut, n_unpooled)

    def _lowered(self, text: str) -> str:
        """A text as the folder wants it: in lower case, or unchanged."""
        return _lowered(text) if self.module_folder.lowercase else text

    def _input_ids(self, texts: Sequence[str], **truncation: Any) -> list[list[int]]:
        """Token ids, some texts at a time: a character takes 100 bytes while it is tokenized."""
        lists: list[list[int]] = []
        settings = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False} | truncation
        with self.network.tokenizing:
            for block in text_blocks(texts, len(texts), n_characters=LONGEST_PIECE, at_once=1):
                lists += self.tokenizer(block, **settings)["input_ids"]
        return lists

    def spans(self, text: str) -> list[TokenSpan]:
        """Return the tokens of a text, special ones included; where they are, if the tokenizer can tell."""
        lowered = self._lowered(text)
        with_offsets = bool(getattr(self.tokenizer, "is_fast", False)) and len(lowered) == len(text)
        with self.network.tokenizing:
            encoded = self.tokenizer(
                lowered, verbose=False, return_special_tokens_mask=True, return_offsets_mapping=with_offsets
            )
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        places = encoded["offset_mapping"] if with_offsets else [(None, None)] * len(ids)
        names = self.tokenizer.convert_ids_to_tokens(ids)
        return [
            TokenSpan(number, name if is_special or start is None else text[start:stop], bool(is_special), start, stop)
            for number, name, is_special, (start, stop) in zip(ids, names, special, places, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return a text with these token ids, with or without special tokens; refuse ids of another vocabulary."""
        check_range(self.reference, ids, len(self.tokenizer))
        with self.network.tokenizing:
            special = set(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}
            own = [number for number in ids if number not in special]
            text: str = self.tokenizer.decode(own, skip_special_tokens=False)
        [again] = self._input_ids([text])
        check_same(self.reference, own, [number for number in again if number not in special])
        return text

    def token_embeddings(self, text: str) -> NDArray[np.float32]:
        """Return the hidden states of a text, averaged over the layers, shape (seq_len, dim of the network)."""
        if self.network.is_graph:
            raise InputError(f"token embeddings: {self.reference} is an ONNX file here. Name a folder with weights.")
        torch, ids = _extras.require("torch"), self.tokenize([text]).ids
        if not ids.size:
            return np.zeros((0, self.network.dim), dtype=np.float32)
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            given = torch.from_numpy(ids[None, :].astype(np.int64)).to(device)
            states = self.model(input_ids=given, output_hidden_states=True).hidden_states
        weighted = [weight * states[layer][0].float().cpu() for layer, weight in self.own_layer_pooling.layers]
        return (sum(weighted) / sum(w for _, w in self.own_layer_pooling.layers)).numpy()

    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors of texts, zero for texts of special tokens only."""
        return self._embedded(tokens, self._batch_runner((self.own_layer_pooling,)), progress)

    def _embedded(
        self, tokens: TokenIds, runner: BatchRunner, progress: Progress | None, see: SeeTokens | None = None
    ) -> NDArray[np.float32]:
        vectors = np.zeros((len(tokens.lengths), self.dim), dtype=np.float32)
        known, [pooled] = self._pooled(tokens, runner, progress, see)
        if len(known):
            vectors[known] = self._after_pooling(pooled)
        return vectors

    def embed_alone(self, ids: Sequence[int], progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors of single tokens, each as a text by itself, shape (n_tokens, dim)."""
        [one] = self._input_ids([f"{self.prompt}a"])
        n_leading, n_closing = self._frame.n_leading, self._frame.n_closing
        before, after = one[:n_leading], one[len(one) - n_closing :]
        vectors = np.zeros((len(ids), self.dim), dtype=np.float32)
        for start in range(0, len(ids), WINDOW):
            window = [[*before, number, *after] for number in ids[start : start + WINDOW]]
            part = part_of(progress, start, len(ids))
            vectors[start : start + WINDOW] = self.embed(TokenIds.from_lists(window, (), self._n_unpooled), part)
        return vectors

    @property
    def pools_to_tokens(self) -> bool:
        """Whether a token has a vector like those of texts; poolings side by side are wider than its hidden state."""
        return self.own_layer_pooling.width(self.network.dim) == self.network.dim

    @property
    def shows_tokens(self) -> bool:
        """Whether one pass gives both the vectors of texts and the hidden states of their tokens."""
        return self.pools_to_tokens and self.runtime.chosen_backend == TORCH

    def encode_with_tokens(
        self, texts: Sequence[str], see: SeeTokens, *, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """As `encode` by torch; `see` gets the tokens of the texts, but for prompt and special ones, batch by batch.

        It gets the number of the text, the id and what the state would pool to, of each token. Equal texts count once.
        """
        listed, own = _check.text_list("encode", texts), self.own_layer_pooling
        encoder = self if self.shows_tokens else self.with_runtime(Runtime(devices=self.runtime.devices))
        runner = encoder._batch_runner((own, LayerPooling(own.layers, (TOKENS,))))
        numbers = {text: number for number, text in reversed(list(enumerate(listed)))}
        rest = iter([numbers[text] for text in dict.fromkeys(listed)])  # in the order of `over_windows`

        def embed(tokens: TokenIds, progress: Progress | None) -> list[NDArray[np.float32]]:
            window = np.fromiter(islice(rest, len(tokens.lengths)), np.intp)
            return [self._embedded(tokens, runner, progress, lambda rows, *shown: see(window[rows], *shown))]

        return self.over_windows(listed, embed, [self.dim], progress)[0]

    def read(
        self, texts: Sequence[str], layer_poolings: Sequence[LayerPooling], *, progress: Progress | None = None
    ) -> list[NDArray[np.float32]]:
        """Vectors of several layers and poolings from one pass over texts, without the modules that follow."""
        listed = _check.text_list("read", texts)
        if not layer_poolings:
            raise InputError("read: layer_poolings is empty; pass at least one.")
        if (highest := max(each.highest for each in layer_poolings)) > self.n_layers:
            raise InputError(f"read: there is no layer {highest}; the network has {self.n_layers} layers.")
        widths = [each.width(self.network.dim) for each in layer_poolings]
        runner = self._batch_runner(tuple(layer_poolings))

        def embed(tokens: TokenIds, progress: Progress | None) -> list[NDArray[np.float32]]:
            known, pooled = self._pooled(tokens, runner, progress)
            outputs = [np.zeros((len(tokens.lengths), width), dtype=np.float32) for width in widths]
            for output, vectors in zip(outputs, pooled, strict=True):
                output[known] = vectors
            return outputs

        return self.over_windows(listed, embed, widths, progress)

    def _pooled(
        self, tokens: TokenIds, runner: BatchRunner, progress: Progress | None, see: SeeTokens | None = None
    ) -> tuple[NDArray[np.intp], list[NDArray[np.float32]]]:
        """Numbers of the texts that have a vector, and their vectors, one array per layer pooling."""
        known = np.flatnonzero(tokens.lengths > self.n_special_tokens)
        tokens = tokens.take(known)
        if not self.has_windows:
            return known, self._run(runner, tokens, progress, see and partial(self._show, see, known))
        windows = windows_of(tokens, self._frame)
        texts = np.repeat(known, np.diff(np.append(windows.starts, len(windows.weights))))
        vectors = self._run(runner, windows.tokens, None, see and partial(self._show, see, texts))
        return known, [windows.joined(each) for each in vectors]

    def _run(
        self, runner: BatchRunner, tokens: TokenIds, progress: Progress | None, see: See | None
    ) -> list[NDArray[np.float32]]:
        pad_id, equal_lengths = self.network.pad_id, self.equal_lengths
        return runner.run(tokens, progress, pad_id=pad_id, equal_lengths=equal_lengths, see=see)

    def _show(self, see: SeeTokens, texts: NDArray[np.intp], batch: Batch, states: NDArray[np.float32]) -> None:
        """Show the tokens of a batch that are of the texts themselves; `texts` says which text each row is of."""
        places, lengths = np.arange(batch.input_ids.shape[1]), batch.attention_mask.sum(axis=1, keepdims=True)
        is_own = (places >= self._frame.n_leading) & (places < lengths - self._frame.n_closing)
        is_shown = is_own & (is_state := batch.pooling_mask > 0)
        rows = texts[batch.rows[np.nonzero(is_shown)[0]]]
        see(rows, batch.input_ids[is_shown], self._after_pooling(states[is_shown[is_state]]))

    @property
    def _n_unpooled(self) -> int:
        """Leading tokens that are not pooled."""
        pools_prompt = self.module_folder.pools_prompt or not self.prompt
        return 0 if pools_prompt else self._frame.n_leading

    @cached_property
    def _frame(self) -> WindowRule:
        """How many tokens precede and follow those of a text: special tokens and the prompt."""
        if self.has_place:  # `text_places` finds the tokens of each text
            raise InputError(
                f"{self.reference}: words after the text, as in the prompt {self.prompt!r}, exclude long=windows and "
                "what is computed of single tokens."
            )
        before = self._lowered(self.prompt)
        word = "a" if before[-1:].isspace() else " a"  # the space may belong to the first token of the text
        special, one, prompt, whole = self._input_ids(["", "a", before, before + word])
        n_closing = len(special) - _n_common(special, one)
        n_leading = _n_common(prompt, whole)
        return WindowRule(self.max_length or UNBOUNDED, self._overlap, n_leading, n_closing)

    def _require_room(self) -> None:
        """Refuse windows without room for the text, or with so much overlap that they never advance."""
        for rule in (encoder._frame for encoder in (self, self.for_queries(), self.for_documents())):
            if rule.n_own <= rule.overlap:
                raise InputError(
                    f"{self.reference}: max_length={rule.max_length} leaves too little room for a text next to "
                    f"overlap={rule.overlap} and {rule.n_leading + rule.n_closing} of prompt and special tokens. Raise "
                    "it, or lower the overlap."
                )

    def _batch_runner(self, layer_poolings: tuple[LayerPooling, ...]) -> BatchRunner:
        """What computes some layer poolings: made once, shared with the encoders of other roles."""
        prepared, place = self.network.prepared, (self.runtime, layer_poolings)
        with self.network.preparing:
            if place not in prepared:
                prepared[place] = batch_runner(
                    self.network, layer_poolings, self.runtime, key=lambda: self._first.fingerprint
                )
            runner: BatchRunner = prepared[place]
        return runner

    def _after_pooling(self, pooled: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self.modules:
            return pooled
        torch = _extras.require("torch")
        with torch.inference_mode():
            vectors = torch.from_numpy(pooled)
            for module in self.modules:
                vectors = module.apply(vectors)
        return vectors.numpy()

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return the vectors of padded texts, tensor to tensor: what a graph of this encoder holds."""
        torch = _extras.require("torch")
        pooling_mask = attention_mask
        if n_unpooled := self._n_unpooled:
            pooling_mask = torch.cat(
                [torch.zeros_like(attention_mask[:, :n_unpooled]), attention_mask[:, n_unpooled:]], dim=1
            )
        network = traceable(self.model, self.n_layers, [self.own_layer_pooling])
        [vectors] = network(input_ids, attention_mask, pooling_mask)
        for module in self.modules:
            vectors = module.apply(vectors)
        return vectors

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield the weights of the transformer and of the modules after it, and the settings of both."""
        torch = _extras.require("torch")
        for weights in (self.model.state_dict(), *(module.weights for module in self.modules)):
            for name in sorted(weights):
                yield weights[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        config = {k: v for k, v in self.model.config.to_diff_dict().items() if k not in _NOT_OF_THE_CONFIG}
        modules = [spec.config for spec in self.module_folder.modules]
        settings = (self.module_folder.pools_prompt, self.module_folder.lowercase, modules, config)
        yield np.frombuffer(json.dumps(settings, sort_keys=True, default=str).encode(), dtype=np.uint8)
        kinds = [module.spec.kind for module in self.modules]
        if self.options["normalize"] == "false" and NORMALIZE in kinds:
            # another space than before: normalize=false once left out every Normalize, not only one at the end
            yield np.frombuffer(" ".join(kinds).encode(), dtype=np.uint8)
        if any(TEXT_PLACE in self.options[name] for name in PROMPTS):
            yield np.frombuffer(TEXT_PLACE.encode(), dtype=np.uint8)  # it once stood before the text like other words

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)


def _lowered(text: str) -> str:
    """A text in lower case, letter by letter as in tokenizers: Python writes another sigma at the end of a word."""
    return text.replace("\u03a3", "\u03c3").lower()


def _n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of leading tokens that two texts share."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def load_transformer(location: str, options: Mapping[str, Any], *, is_saved: bool = False) -> TransformerEncoder:
    """Load a transformers encoder or a sentence-transformers model; `is_saved`: a saved model names it."""
    permissions: dict[str, Any] = {name: bool(options.get(name)) for name in CODE_PERMISSIONS}
    local = local_folder("hf", location)  # one that is not there is named first: packages would not help
    try:
        for package in ("torch", "transformers"):
            _extras.require(package)
    except MissingExtraError as error:
        if local is None:
            raise MissingExtraError(f"{error} Besides, {location} is no folder here; check its spelling.") from None
        raise
    reference = f"hf:{location}" if local is None else f"hf:{escape(str(local))}"
    folder = local or download("hf", location, graph=options.get("graph"), **permissions)
    module_folder = read_module_folder(folder, pooling=options.get("pooling"))
    runtime = Runtime.of(options)
    runtime.check_devices()

    def check(n_layers: int) -> None:  # before the weights are read
        if "layers" in options:
            _layer_pooling({"pooling": module_folder.pooling, **options}, n_layers)

    network = load_network(module_folder.transformer, check, graph=options.get("graph"), **permissions)
    network.check_runtime(runtime)
    if network.is_graph and "pooling" not in options and not (folder / MODULES_FILE).exists():
        raise FileFormatError(
            f"hf: {folder} has an ONNX file and no modules.json, so the pooling is unknown. {NAME_POOLING}"
        )
    if module_folder.cuts_end and getattr(network.tokenizer, "truncation_side", "right") != "right":
        raise FileFormatError(
            f"hf: {module_folder.transformer}: truncation_side is 'right' in the settings of its Transformer, and "
            f"{network.tokenizer.truncation_side!r} in the files of its tokenizer, which isosent follows. Write the "
            "one that the model was trained with into both."
        )
    resolved = _resolved(module_folder, network, options)
    check_end(
        module_folder.transformer, network.tokenizer, [resolved[name] for name in PROMPT_OF.values()], is_saved=is_saved
    )
    modules = _modules(module_folder, network, resolved)
    return TransformerEncoder(reference, resolved, module_folder, network, modules, runtime)


def _modules(module_folder: ModuleFolder, network: Network, resolved: Mapping[str, Any]) -> list[LoadedModule]:
    """What follows the pooling."""
    return load_modules(
        modules_in_use(module_folder.modules, dense=resolved["dense"], normalize=resolved["normalize"]),
        dim=_layer_pooling(resolved, network.n_layers).width(network.dim),
    )


def _resolved(module_folder: ModuleFolder, network: Network, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option that the vectors depend on, with the value in force."""
    n_positions = _n_positions(network.model) or UNBOUNDED
    # the limit of the folder, else that of the tokenizer, and at most the positions of the model
    limits = [limit for limit in (module_folder.max_length or network.tokenizer.model_max_length, n_positions) if limit]
    resolved: dict[str, Any] = {
        "layers": module_folder.layers,
        "pooling": module_folder.pooling,
        "dense": True,
        "normalize": ends_with_normalize(modules_in_use(module_folder.modules, dense=options.get("dense", True))),
        "max_length": min((limit for limit in limits if 0 < limit < UNBOUNDED), default=None),
        "long": "truncate",
        **({"graph": network.model.path.relative_to(module_folder.transformer).as_posix()} if network.is_graph else {}),
        **{PROMPT_OF[role]: prompt for role, prompt in module_folder.prompts.items()},
    }
    if "prompt" in options:  # of every text, unless the folder or an option has another one for a side
        resolved |= {name: resolved[name] or options["prompt"] for name in PROMPT_OF.values()}
    resolved |= {name: value for name, value in options.items() if name not in RUNTIME_OPTIONS}
    resolved["pooling"] = canonical_pooling(resolved["pooling"])
    if "layers" not in options and SBERT_WK in resolved["pooling"].split(","):
        resolved["layers"] = ",".join(map(str, sbert_wk_layers(network.n_layers)))
    _layer_pooling(resolved, network.n_layers)
    resolved["layers"] = format_layers(resolve_layers(resolved["layers"], network.n_layers))
    n_special = network.tokenizer.num_special_tokens_to_add(pair=False)
    if not n_special < (resolved["max_length"] or UNBOUNDED) <= n_positions:
        most = " or more" if n_positions == UNBOUNDED else f" to {n_positions}, the positions of this model"
        length = resolved["max_length"] or "none"
        raise InputError(f"hf: max_length={length}: choose {n_special + 1} (one more than the special tokens){most}.")
    if resolved["long"] != WINDOWS:
        if "overlap" in resolved:
            raise InputError("hf: overlap is for long=windows. Leave it out, or add that.")
        return resolved
    if resolved["max_length"] is None:
        raise InputError("hf: long=windows needs a max_length, which is none. Name one.")
    return {"overlap": resolved["max_length"] // 4} | resolved


def _layer_pooling(options: Mapping[str, Any], n_layers: int) -> LayerPooling:
    try:
        return LayerPooling.of(options["layers"], options["pooling"], n_layers=n_layers)
    except ModelReferenceError as error:
        raise ModelReferenceError(f"hf: {error}") from None


def _n_positions(model: Any) -> int | None:
    """Length of a model's table of learned positions, if it has one; some families leave its first entries unused."""
    if isinstance(model, GraphModel):
        return model.n_positions
    within = getattr(model, "embeddings", model)
    tables = (getattr(within, name, None) for name in ("position_embeddings", "embed_positions", "wpe"))
    table: Any = next((table for table in tables if hasattr(table, "num_embeddings")), None)
    if table is None:
        return None
    unused = getattr(table, "offset", 0 if table.padding_idx is None else table.padding_idx + 1)
    return int(table.num_embeddings - unused)


class WindowRule(NamedTuple):
    """How a long text is cut into windows."""

    max_length: int  # tokens of a window, leading and closing ones included
    overlap: int  # tokens that a window shares with the one before
    n_leading: int  # special tokens, and those of a prompt, at the start of every window
    n_closing: int  # special tokens at the end of every window

    @property
    def n_own(self) -> int:
        """Tokens of the text itself in a window."""
        return self.max_length - self.n_leading - self.n_closing


class Windows(NamedTuple):
    """Windows of several texts."""

    tokens: TokenIds  # the windows, those of a text side by side
    starts: NDArray[np.intp]  # first window of each text; each text has one at least
    weights: NDArray[np.float32]  # tokens that no window before it has, so that every token counts once

    def joined(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The weighted mean of the window vectors of each text, shape (n_texts, dim)."""
        if len(self.starts) == len(vectors):
            return vectors
        sums = np.add.reduceat(vectors * self.weights[:, None], self.starts)
        joined = (sums / np.add.reduceat(self.weights, self.starts)[:, None]).astype(np.float32, copy=False)
        single = np.diff(np.append(self.starts, len(vectors))) == 1
        joined[single] = vectors[self.starts[single]]  # bit-identical for texts of one window
        return joined


def windows_of(tokens: TokenIds, rule: WindowRule) -> Windows:
    """Cut long texts into windows."""
    lists: list[NDArray[np.int32]] = []
    starts, weights = [], []
    for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
        ids = tokens.ids[start:stop]
        starts.append(len(lists))
        if len(ids) <= rule.max_length:
            lists.append(ids)
            weights.append(max(1, len(ids) - rule.n_leading - rule.n_closing))
            continue
        closing = len(ids) - rule.n_closing
        leading, text_ids, end = ids[: rule.n_leading], ids[rule.n_leading : closing], ids[closing:]
        n_covered = 0
        while n_covered < len(text_ids):
            first = max(0, n_covered - rule.overlap)
            window = text_ids[first : first + rule.n_own]
            lists.append(np.concatenate([leading, window, end]))
            weights.append(first + len(window) - n_covered)
            n_covered = first + len(window)
    ids, offsets = np.concatenate([*lists, tokens.ids[:0]]), offsets_of([len(window) for window in lists])
    return Windows(
        TokenIds(ids, offsets, n_unpooled=tokens.n_unpooled),
        np.array(starts, dtype=np.intp),
        np.array(weights, dtype=np.float32),
    )
