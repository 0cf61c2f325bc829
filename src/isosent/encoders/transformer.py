"""Any transformers encoder, with any layers and any pooling (Huang et al. 2021, section 3)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.encoders.base import Encoder, Progress
from isosent.encoders.st_modules import Head, ModuleFolder
from isosent.errors import InputError
from isosent.io.texts import text_blocks
from isosent.networks.batching import Computing, Layout
from isosent.networks.layer_pooling import LayerPooling
from isosent.networks.load import computing_of
from isosent.networks.network import Network, Runtime
from isosent.networks.torch_backend import traceable
from isosent.words.tokens import LONGEST_PIECE, TokenIds, offsets_of


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How a long text is cut."""

    max_length: int  # tokens of a window, the leading and closing ones included
    overlap: int  # tokens that a window shares with the one before
    n_leading: int  # special tokens, and those of a prompt, that stand at the beginning and the end of every window
    n_closing: int  # special tokens, and those of a prompt, that stand at the beginning and the end of every window

    @property
    def n_own(self) -> int:
        """Tokens of the text itself in a window."""
        return self.max_length - self.n_leading - self.n_closing


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of several texts."""

    tokens: TokenIds  # the windows, those of a text side by side
    starts: NDArray[np.intp]  # first window of each text; each has one at least
    weights: NDArray[np.float32]  # tokens that no window before it has, so that every token counts once

    def joined(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give each text the weighted mean of the vectors of its windows."""
        if len(self.starts) == len(vectors):
            return vectors
        sums = np.add.reduceat(vectors * self.weights[:, None], self.starts)
        joined = (sums / np.add.reduceat(self.weights, self.starts)[:, None]).astype(np.float32, copy=False)
        single = np.diff(np.append(self.starts, len(vectors))) == 1
        joined[single] = vectors[self.starts[single]]
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
        leading, own, end = ids[: rule.n_leading], ids[rule.n_leading : closing], ids[closing:]
        done = 0
        while done < len(own):
            first = max(0, done - rule.overlap)
            window = own[first : first + rule.n_own]
            lists.append(np.concatenate([leading, window, end]))
            weights.append(first + len(window) - done)
            done = first + len(window)
    ids, offsets = np.concatenate([*lists, tokens.ids[:0]]), offsets_of([len(window) for window in lists])
    return Windows(
        TokenIds(ids, offsets),
        np.array(starts, dtype=np.intp),
        np.array(weights, dtype=np.float32),
    )


UNBOUNDED = 1 << 20
WINDOWS = "windows"
PROMPT_OF = {"text": "prompt", "query": "query_prompt", "document": "document_prompt"}
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
        options: Mapping[str, str],
        module_folder: ModuleFolder,
        network: Network,
        heads: list[Head],
        runtime: Runtime = Runtime(),  # noqa: B008
    ) -> None:
        self.module_folder = module_folder
        self.network = network
        self.heads = heads
        self.runtime = runtime
        self.computed_in = runtime.dtype
        self.n_layers = network.n_layers
        self.own_layer_pooling = self.reading(options["layers"], options["pooling"])
        self.equal_lengths = network.model.config.model_type in _PADDING_IS_VISIBLE
        self.n_special_tokens = network.tokenizer.num_special_tokens_to_add(pair=False)
        self._max_length = UNBOUNDED if options["max_length"] == "none" else int(options["max_length"])
        self._first = self  # stays this one in encoders of other prompts, which share its network
        super().__init__(reference, options, heads[-1].out_dim if heads else self.own_layer_pooling.width(network.dim))
        self.prompt = self.options["prompt"]
        if options["long"] == WINDOWS:
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
        """Return the encoder with this prompt in the place of the one that stands before every text now."""
        if prompt == self.prompt:
            return self
        other = copy.copy(self)
        other.prompt = prompt
        other.__dict__.pop("fingerprint", None)  # depends on the prompt
        return other

    def reading(self, layers: str, pooling: str) -> LayerPooling:
        """Say what is to be read off a pass, in the spelling of a model reference."""
        reading = LayerPooling.of(layers, pooling, n_layers=self.n_layers)
        if not self.network.tells_layers and any(layer < self.n_layers for layer, _ in reading.layers):
            raise InputError(
                f"hf: layers must be the last one for this network, which gives no other hidden states; got {layers}."
            )
        return reading

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts, special tokens included, cut at the maximum unless they become windows."""
        is_blank = [not text.strip() for text in texts]
        if self.options["long"] != WINDOWS:  # what is cut off anyway is not tokenized
            most = max(LONGEST_PIECE, _CHARACTERS_A_TOKEN * self._max_length)
            texts = [text[:most] for text in texts]
        texts = [self.prompt + text for text in texts]
        if self.module_folder.lowercase:
            texts = [text.lower() for text in texts]
        lists = self._input_ids(texts) if texts else []
        lists = [[] if blank else ids for blank, ids in zip(is_blank, lists, strict=True)]
        if self.options["long"] == WINDOWS:
            return TokenIds.from_lists(lists)
        too_long = [i for i, ids in enumerate(lists) if len(ids) > self._max_length]
        if too_long:
            shortened = self._input_ids([texts[i] for i in too_long], truncation=True, max_length=self._max_length)
            for i, ids in zip(too_long, shortened, strict=True):
                lists[i] = ids
        return TokenIds.from_lists(lists, cut=too_long)

    def _input_ids(self, texts: Sequence[str], **truncation: Any) -> list[list[int]]:
        """Token ids, some texts at a time: a character takes 100 bytes while it is tokenized."""
        lists: list[list[int]] = []
        settings = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False} | truncation
        with self.network.tokenizing:
            for block in text_blocks(texts, len(texts), n_characters=LONGEST_PIECE, at_once=1):
                lists += self.tokenizer(block, **settings)["input_ids"]
        return lists

    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the vectors of texts, zero for those without a token of their own."""
        vectors = np.zeros((len(tokens.lengths), self.dim), dtype=np.float32)
        known, [pooled] = self._pooled(tokens, self._own_computing, progress)
        if len(known):
            vectors[known] = self._behind_heads(pooled)
        return vectors

    def read(
        self, texts: Sequence[str], layer_poolings: Sequence[LayerPooling], *, progress: Progress | None = None
    ) -> list[NDArray[np.float32]]:
        """Read several things off one pass over texts: layers and poolings, without the modules behind them."""
        listed = _check.text_list("read", texts)
        if not layer_poolings:
            raise InputError("read: readings must hold at least one reading; got none.")
        if (highest := max(reading.highest for reading in layer_poolings)) > self.n_layers:
            raise InputError(f"read: readings must be of layers up to {self.n_layers}; got layer {highest}.")
        widths = [reading.width(self.network.dim) for reading in layer_poolings]
        computing = self._computing(tuple(layer_poolings))

        def embed(tokens: TokenIds) -> list[NDArray[np.float32]]:
            known, pooled = self._pooled(tokens, computing, progress)
            outputs = [np.zeros((len(tokens.lengths), width), dtype=np.float32) for width in widths]
            for output, vectors in zip(outputs, pooled, strict=True):
                output[known] = vectors
            return outputs

        return self.over_windows(listed, embed, widths, progress)

    def _pooled(
        self, tokens: TokenIds, computing: Computing, progress: Progress | None
    ) -> tuple[NDArray[np.intp], list[NDArray[np.float32]]]:
        """Texts that have a vector, and what was read of each of them."""
        known = np.flatnonzero(tokens.lengths > self.n_special_tokens)
        if progress:
            progress(len(tokens.lengths) - len(known))
        whole = tokens.take(known)
        if self.options["long"] != WINDOWS:
            return known, computing.vectors(whole, self._layout(computing), progress)
        windows = windows_of(whole, self._frame)
        vectors = computing.vectors(windows.tokens, self._layout(computing))
        if progress:
            progress(len(known))
        return known, [windows.joined(each) for each in vectors]

    def _layout(self, computing: Computing) -> Layout:
        return Layout(computing.budget, self.network.pad_id, self.equal_lengths, n_unpooled=self._n_unpooled)

    @property
    def _n_unpooled(self) -> int:
        """Leading tokens that are not pooled."""
        pools_prompt = self.module_folder.pools_prompt or not self.prompt
        return 0 if pools_prompt else self._frame.n_leading

    @cached_property
    def _frame(self) -> WindowRule:
        """What stands around the tokens of a text: special tokens, and the prompt in front."""
        word = "a" if self.prompt[-1:].isspace() else " a"  # the space may belong to the first token of the text
        before = self.prompt.lower() if self.module_folder.lowercase else self.prompt
        special, one, prompt, prompted = self._input_ids(["", "a", before, before + word])
        n_closing = len(special) - _n_common(special, one)
        n_leading = _n_common(prompt, prompted)
        overlap = 0 if self.options["long"] != WINDOWS else int(self.options["overlap"])
        return WindowRule(self._max_length, overlap, n_leading, n_closing)

    def _require_room(self) -> None:
        """Refuse windows that are full before a text begins, or never get on in it."""
        for rule in (encoder._frame for encoder in (self, self.for_queries(), self.for_documents())):
            if rule.n_own <= rule.overlap:
                raise InputError(
                    f"{self.reference}: max_length must leave room for more tokens of a text than "
                    f"overlap={rule.overlap} beside {rule.n_leading + rule.n_closing} of prompt and special tokens; "
                    f"got {rule.max_length}."
                )

    @property
    def _own_computing(self) -> Computing:
        """How `encode` computes."""
        return self._computing((self.own_layer_pooling,))

    def _computing(self, layer_poolings: tuple[LayerPooling, ...]) -> Computing:
        """How some readings are computed: made once, shared with the encoders of other roles."""
        prepared, place = self.network.prepared, (self.runtime, layer_poolings)
        if place not in prepared:
            prepared[place] = computing_of(
                self.network, layer_poolings, self.runtime, key=lambda: self._first.fingerprint
            )
        computing: Computing = prepared[place]
        return computing

    def _behind_heads(self, pooled: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self.heads:
            return pooled
        torch = _extras.require("torch")
        with torch.inference_mode():
            vectors = torch.from_numpy(pooled)
            for head in self.heads:
                vectors = head.apply(vectors)
        result: NDArray[np.float32] = vectors.numpy()
        return result

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return the vectors of padded texts, tensor to tensor: what a graph of this encoder holds."""
        torch = _extras.require("torch")
        pooling_mask = attention_mask
        if n_unpooled := self._n_unpooled:
            pooling_mask = torch.cat(
                [torch.zeros_like(attention_mask[:, :n_unpooled]), attention_mask[:, n_unpooled:]], dim=1
            )
        [vectors] = traceable(self.network, [self.own_layer_pooling])(input_ids, attention_mask, pooling_mask)
        for head in self.heads:
            vectors = head.apply(vectors)
        return vectors

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield the weights of the transformer and of its heads, and the settings of both."""
        torch = _extras.require("torch")
        for weights in (self.model.state_dict(), *(head.weights for head in self.heads)):
            for name in sorted(weights):
                yield weights[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        config = {k: v for k, v in self.model.config.to_diff_dict().items() if k not in _NOT_OF_THE_CONFIG}
        heads = [head.config for head in self.module_folder.heads]
        settings = (self.module_folder.pools_prompt, self.module_folder.lowercase, heads, config)
        yield np.frombuffer(json.dumps(settings, sort_keys=True, default=str).encode(), dtype=np.uint8)

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)


def _n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens that two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
