"""What an endpoint should serve, with the vectors of texts, and the ways to serve it wrongly.

A `ServedModel` encodes texts as a model does, or as each `Variant` of it: with other texts, another prompt, another
pooling. A `ServedCanary` has only the vectors that a canary kept of fixed texts.
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
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.canary import FIXED_TEXTS, N_SHORT, Canary
from isosent.role import RoleName

_SHORT_TEXTS: Final = (
    *FIXED_TEXTS[:N_SHORT],
    "NASA and the FBI met Dr. Müller of BMW in New York.",
    "The QUICK Brown fOX",
    "Déjà vu: la façade naïve de l'élite, señor Núñez.",
    "Great job 🎉🙂 see you tomorrow 👋🏽",
    "First line.\nSecond line.\n\n\tAn indented one.",
    "  two  spaces  at  the  ends  ",
    "no",
    "ﬁne ½ Ⅳ ①② ㎞ ﬂag",
    "<p>Tom &amp; Jerry</p> https://example.org/a?b=c#d (50%)",
    "Zażółć gęślą jaźń, быстрая лиса, الثعلب السريع",
    " ".join(FIXED_TEXTS[:N_SHORT]),
)
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


THE_MODEL: Final = Variant("", "the model, unchanged")


class ServedModel:
    """A model, and how it encodes the texts of a role as a variant."""

    texts: Sequence[str] = _SHORT_TEXTS
    has_lengths = True  # of vectors

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

    def variants(self) -> Iterator[Variant]:
        """How the model can be served wrongly, the simplest first."""
        encoder = self.model.encoder
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
        if self.model.fits:
            yield Variant("transform ignored", "the encoder without its transform", is_bare=True)

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


def _prompts(encoder: Encoder) -> Iterator[Variant]:
    own = {name: prompt for name, prompt in {**named_prompts(encoder), **task_prompts(encoder)}.items() if prompt}
    if own:
        yield Variant("prompt missing", "no prompt", prompt="")
    for name, prompt in own.items():
        yield Variant("another prompt", f"the prompt {name!r}: {prompt!r}", prompt=prompt)
    for prompt in _KNOWN_PROMPTS:
        if prompt not in own.values():
            yield Variant("another prompt", f"the prompt {prompt!r}", prompt=prompt)


class ServedCanary:
    """The vectors that a canary kept of fixed texts; it cannot say which other model or setting gives others."""

    texts: Sequence[str] = FIXED_TEXTS[:N_SHORT]
    has_lengths = False  # they are scaled to length 1

    def __init__(self, canary: Canary, role: RoleName) -> None:
        rows = canary.queries if role == "query" or canary.documents is None else canary.documents
        self._row_of = dict(zip(FIXED_TEXTS, rows.astype(np.float32), strict=False))

    def encode(self, texts: Sequence[str], variant: Variant = THE_MODEL, **options: Any) -> NDArray[np.float32]:
        """Vectors of fixed texts, shape (n_texts, dim)."""
        return np.stack([self._row_of[text] for text in texts])

    def variants(self) -> Iterator[Variant]:
        """None: nothing can be encoded."""
        return iter(())

    @property
    def long_texts(self) -> list[str]:
        """The long one, if it was kept."""
        return [text for text in FIXED_TEXTS[N_SHORT:] if text in self._row_of]


def roles_of(model: SentenceEncoder, *, has_roles: bool) -> tuple[RoleName, ...]:
    """The sides of a model that are compared with an API; one that has no roles is sent texts as they are."""
    canary = model.encoder.canary if isinstance(model.encoder, PrecomputedVectors) else None
    has_sides = canary is not None and "queries" in canary.tensors()
    return ("query", "document") if has_roles or has_sides else ("text",)


def served_as(model: SentenceEncoder, role: RoleName) -> ServedModel | ServedCanary:
    """What an API should give texts of a role."""
    encoder = model.encoder
    if not isinstance(encoder, PrecomputedVectors):
        return ServedModel(model, role)
    if encoder.canary is None:
        raise InputError(
            "check: this model was fitted on vectors, and has none of fixed texts. Name the model that made them."
        )
    return ServedCanary(encoder.canary, role)
