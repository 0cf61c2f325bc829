"""What a model gives when it is served wrongly: with other texts, another prompt, another pooling, without its end.

`variants_of` lists them for a model, and `ServedModel` encodes texts as one of them. `evaluation.endpoint` looks for
the one that an endpoint gives.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Encoder, collecting_stats
from isosent.encoders.load import encoder_for, named_prompts, task_prompts, with_prompt
from isosent.encoders.output_modules import DENSE, LAYER_NORM
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.role import RoleName

# that servers add, or users forget, of models whose folders name none: E5, BGE, nomic, Instructor, Qwen
_KNOWN_PROMPTS: Final = (
    "query: ",
    "passage: ",
    "search_query: ",
    "search_document: ",
    "Represent this sentence for searching relevant passages: ",
    "title: none | text: ",
    "task: search result | query: ",
)
_POOLINGS: Final = ("mean", "cls", "last_token", "max", "weighted_mean")
_LAYERS: Final = ("-2", "0", "1,-1")


def _without_accents(text: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))


_CHANGES: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "lower-casing": ("texts in lower case", str.lower),
    "line breaks": ("spaces instead of line breaks", lambda text: text.replace("\n", " ")),
    "white space": ("texts without white space at their ends", str.strip),
    "accents": ("texts without accents", _without_accents),
    "lower-casing and accents": ("texts in lower case, without accents", lambda text: _without_accents(text.lower())),
    "compatibility characters": ("texts in the Unicode form NFKC", lambda text: unicodedata.normalize("NFKC", text)),
}


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to serve a model."""

    cause: str
    detail: str
    change: Callable[[str], str] | None = None  # of texts
    options: Mapping[str, Any] = field(default_factory=dict)  # of a transformer
    prompt: str | None = None  # in place of that of the model
    is_bare: bool = False  # without what isosent fitted


THE_MODEL: Final = Variant("", "the model")


class ServedModel:
    """A model, and how it encodes the texts of a role as a variant."""

    def __init__(self, model: SentenceEncoder, role: RoleName) -> None:
        self.model, self.role = model, role

    def encode(self, texts: Sequence[str], variant: Variant = THE_MODEL, **options: Any) -> NDArray[np.float32] | None:
        """Vectors of texts, shape (n_texts, dim); None if the model has no such variant. `options` win."""
        model, texts = self.model, list(texts) if variant.change is None else list(map(variant.change, texts))
        try:
            encoder = self._encoder(dict(variant.options) | options)
            if variant.prompt is not None:
                encoder, texts = with_prompt(encoder, texts, variant.prompt)
            with collecting_stats():  # that a text is cut is no news
                vectors = encoder.encode(texts)
        except InputError:  # a network without such layers
            if variant is THE_MODEL and not options:
                raise
            return None
        if variant.is_bare:
            return vectors
        if vectors.shape[1] != model.encoder.dim:
            return None if model.fits else vectors
        return model.transform(vectors, queries=self.role == "query")

    def _encoder(self, options: Mapping[str, Any]) -> Encoder:
        encoder = self.model.encoder
        if options and isinstance(encoder, TransformerEncoder):
            encoder = encoder.with_options(**options)
        return encoder_for(encoder, self.role)

    # -- lengths ---------------------------------------------------------------------------------------------------

    @property
    def max_length(self) -> int | None:
        """Tokens at which the model cuts texts, as far as they are known."""
        length: int | None = getattr(self.model.encoder, "max_length", None)
        return length

    @property
    def longest(self) -> dict[str, Any]:
        """Options with which a transformer cuts as late as it can."""
        encoder = self.model.encoder
        return {"max_length": encoder.n_positions} if isinstance(encoder, TransformerEncoder) else {}

    def n_tokens(self, text: str) -> int | None:
        """Tokens of a text, special ones and a prompt included, cut at what the network can read; None if unknown."""
        encoder = self._encoder(self.longest)
        return int(encoder.tokenize([text]).lengths[0]) if encoder.has_tokens else None


def variants_of(model: SentenceEncoder) -> Iterator[Variant]:
    """How a model can be served wrongly, the simplest first."""
    encoder = model.encoder
    yield from _prompts(encoder)
    if isinstance(encoder, TransformerEncoder):
        for pooling in _POOLINGS:
            if pooling != encoder.options["pooling"]:
                yield Variant("other pooling", f"pooling {pooling}", options={"pooling": pooling})
        if any(module.spec.kind in (DENSE, LAYER_NORM) for module in encoder.modules):
            yield Variant("Dense ignored", "without the modules after the pooling", options={"dense": False})
        for layers in _LAYERS:
            yield Variant("other layers", f"layers {layers} of the network", options={"layers": layers})
    for cause, (detail, change) in _CHANGES.items():
        yield Variant(cause, detail, change=change)
    if model.fits:
        yield Variant("transform ignored", "the encoder without its transform", is_bare=True)


def _prompts(encoder: Encoder) -> Iterator[Variant]:
    own = {name: prompt for name, prompt in {**named_prompts(encoder), **task_prompts(encoder)}.items() if prompt}
    if own:
        yield Variant("prompt missing", "no prompt", prompt="")
    for name, prompt in own.items():
        yield Variant("another prompt", f"the prompt {name!r}: {prompt!r}", prompt=prompt)
    for prompt in _KNOWN_PROMPTS:
        if prompt not in own.values():
            yield Variant("another prompt", f"the prompt {prompt!r}", prompt=prompt)
