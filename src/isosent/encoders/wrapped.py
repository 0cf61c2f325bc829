"""Encoders that exist in memory only: models of other libraries, functions from texts to an array, stored vectors."""

from __future__ import annotations

import copy
import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Encoder, Summands
from isosent.encoders.load import DEFAULT_PROMPT, load_encoder
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.reference import escape, parse_reference
from isosent.errors import InputError, InputTypeError, IsosentError, IsosentWarning
from isosent.io.texts import text_blocks
from isosent.numeric.similarity import pairwise_cosine
from isosent.pages.progress import Progress, counted
from isosent.role import TEXT_PLACE, prompted
from isosent.words.tokens import TokenIds

_PROBES = (
    "A man is riding a horse.",
    "The quick brown fox, it's 3.5 km away!",
    "Interest rates rose for the third time this year.",
    "ÉCOLE Straße naïve",
    "你好 мир 안녕 🙂",
    "no",
)
_BLOCK = 1024  # texts of a call
_STORED = "stored vectors"
_LARGEST_DIFFERENCE, _LOWEST_COSINE = 1e-3, 1 - 1e-5
_NOT_SAVABLE = (
    "{}: {} cannot be saved, because isosent cannot load it again. If it was loaded from a folder or the hub, say so: "
    "wrap(model, reference='NAME'). Otherwise save its vectors."
)
_METHODS = {"text": ("encode",), "query": ("encode_query", "encode"), "document": ("encode_document", "encode")}


class WrappedEncoder(Encoder):
    """A model or a function, called with a list of texts."""

    is_costly = True
    has_tokens = False

    def __init__(self, model: Any, name: str, dim: int, fingerprint: str, reference: str | None = None) -> None:
        super().__init__(name, {}, dim)
        self.model = model
        self.loaded_from = reference
        self._role = "text"
        self._prompt: str | None = None  # in place of the model's own
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> str:
        """Hash of the vectors of fixed texts: the parameters of the model are not known."""
        return self._fingerprint

    def for_queries(self) -> WrappedEncoder:
        """Return the encoder of queries, for models that encode them differently."""
        return self._with_role("query")

    def for_documents(self) -> WrappedEncoder:
        """Return the encoder of documents, for models that encode them differently."""
        return self._with_role("document")

    def _with_role(self, role: str) -> WrappedEncoder:
        if not hasattr(self.model, f"encode_{role}"):
            return self
        other = copy.copy(self)
        other._role = role
        return other

    @property
    def prompts(self) -> dict[str, str]:
        """Those of a SentenceTransformer by their names, and the one of texts without a role as "default"."""
        prompts = dict(getattr(self.model, "prompts", {}) if _is_theirs(self.model) else {})
        default = getattr(self.model, "default_prompt_name", None)
        return prompts | ({DEFAULT_PROMPT: prompts[default]} if default in prompts else {})

    def with_prompt(self, prompt: str) -> WrappedEncoder:
        """Return the encoder with this prompt before every text; a SentenceTransformer adds none itself."""
        if TEXT_PLACE in prompt and _is_theirs(self.model):
            raise InputError(
                f"encode: prompt {prompt!r}: sentence-transformers puts prompts before texts only. Load its folder as "
                "hf:FOLDER, which takes {text}."
            )
        other = copy.copy(self)
        other._prompt = prompt
        return other

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts, shape (n_texts, dim); blank texts have zero rows, and the model does not see them."""
        texts = _check.text_list("encode", texts)
        row_of = {text: row for row, text in enumerate(dict.fromkeys(text for text in texts if text.strip()))}
        distinct = np.zeros((len(row_of) + 1, self.dim), dtype=np.float32)  # the last row is that of blank texts
        start = 0
        for block in counted(text_blocks(list(row_of), _BLOCK), progress, len(texts)):
            distinct[start : start + len(block)] = _called(
                self.model, self._role, block, self.reference, dim=self.dim, prompt=self._prompt
            )
            start += len(block)
        if progress:
            progress(len(texts), len(texts))
        vectors: NDArray[np.float32] = distinct[[row_of.get(text, -1) for text in texts]]
        return vectors.reshape(len(texts), self.dim)

    def on_device(self, device: str) -> Encoder:
        """Refuse: the model is on a device already."""
        raise InputError(
            f"encode: {self.reference} is on a device already, so {device!r} cannot be chosen. Move the model."
        )

    def saved_as(self) -> Encoder:
        """The encoder by whose reference a model is saved: it must give the same vectors."""
        if self.loaded_from is None:
            raise InputError(_NOT_SAVABLE.format("save", self.reference))
        try:
            encoder = load_encoder(parse_reference(self.loaded_from))
        except (IsosentError, OSError) as error:
            raise InputError(f"save: {self.loaded_from}, which {self.reference} was loaded from: {error}") from error
        ours, theirs = self.encode(_PROBES), encoder.encode(_PROBES)
        if ours.shape == theirs.shape:
            is_close = np.abs(ours - theirs).max() <= _LARGEST_DIFFERENCE * np.linalg.norm(ours, axis=1).max()
            has_vector = ours.any(axis=1)
            if is_close and (pairwise_cosine(ours, theirs)[has_vector] >= _LOWEST_COSINE).all():
                return encoder
        raise InputError(
            f"save: {self.reference} does not give the vectors of {self.loaded_from}, so it cannot be saved by that "
            "name. Save the model itself first, and load that folder."
        )

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Refuse: only the model knows its tokens."""
        raise InputError(f"tokenize: {self.reference} is wrapped; its tokens are not known to isosent.")

    def embed(self, tokens: TokenIds, progress: Progress | None = None) -> NDArray[np.float32]:
        """Refuse: only the model knows its tokens."""
        raise InputError(f"embed: {self.reference} is wrapped; its tokens are not known to isosent.")

    def summands(self, text: str) -> Summands:
        """Refuse: only the model knows its tokens."""
        raise InputError(f"explain: {self.reference} is wrapped; its tokens are not known to isosent.")

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield nothing."""
        return iter(())

    def vocabulary(self) -> Iterable[str]:
        """Yield nothing."""
        return ()


class StoredVectors(WrappedEncoder):
    """Vectors of known texts, which is all that can be encoded."""

    def __init__(self, stored: Mapping[str, NDArray[np.floating]]) -> None:
        texts = [text for text in _check.text_list("wrap", list(stored)) if text.strip()]
        if not texts:
            raise InputError("wrap: the mapping holds no vector of a text that is not empty.")
        vectors = _called(lambda listed: [stored[text] for text in listed], "text", texts, _STORED)
        self._row_of = {text: row for row, text in enumerate(texts)}
        self._vectors = vectors
        digest = hashlib.sha256(str(vectors.shape).encode())
        for row in sorted(range(len(texts)), key=texts.__getitem__):
            digest.update(texts[row].encode() + b"\0" + vectors[row].astype("<f4").tobytes())
        super().__init__(self.looked_up, _STORED, vectors.shape[1], digest.hexdigest())

    def looked_up(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, all of which must be known."""
        if unknown := next((text for text in texts if text not in self._row_of), None):
            raise InputError(
                f"encode: no vector is stored for the text {unknown!r:.80}. Encode it where the others came from, and "
                "add it to the files."
            )
        return self._vectors[[self._row_of[text] for text in texts]]

    def saved_as(self) -> Encoder:
        """A placeholder: a saved model transforms vectors from the same place, and cannot encode."""
        return PrecomputedVectors.of_space(self.dim, self.space)


def wrap_encoder(model: Any, reference: str | None = None) -> WrappedEncoder:
    """Wrap a model or a function; it is called once, on fixed texts, for its dimensions and its fingerprint."""
    if isinstance(model, Mapping):
        if reference is not None:
            raise InputError(f"wrap: stored vectors have no reference such as {reference!r}. Leave it out.")
        return StoredVectors(model)
    if not callable(getattr(model, "encode", model)) or isinstance(model, (type, str, bytes)):
        raise InputTypeError(
            f"wrap: expected a model with a method encode, or a function from a list of texts to an array; got "
            f"{type(model).__name__}.{f' Use isosent.load({model!r}).' if isinstance(model, str) else ''}"
        )
    name = getattr(model, "__qualname__", None) or type(model).__name__
    reference = reference or _loaded_from(model)
    try:
        probes = _called(model, "text", list(_PROBES), name)
    except LookupError as error:  # of a dictionary
        raise InputError(
            f"wrap: {name} knows no vector of {error}, one of the texts that wrap asks for. If it looks up stored "
            "vectors, wrap these: isosent.wrap({text: vector, ...})."
        ) from error
    # rounded, because the last bits depend on the machine and on the batch
    rounded = np.round(probes / np.maximum(np.abs(probes).max(), 1e-30), 4) + 0.0
    fingerprint = hashlib.sha256(str(probes.shape).encode() + rounded.astype("<f4").tobytes()).hexdigest()
    if reference is None:
        warnings.warn(_NOT_SAVABLE.format("wrap", name), IsosentWarning, stacklevel=3)
    return WrappedEncoder(model, name, probes.shape[1], fingerprint, reference)


def _is_theirs(model: Any) -> bool:
    return any(kind.__module__.startswith("sentence_transformers") for kind in type(model).__mro__)


def _called(
    model: Any, role: str, texts: list[str], name: str, *, dim: int | None = None, prompt: str | None = None
) -> NDArray[np.float32]:
    """Vectors of texts, checked: the model is not ours."""
    call: Callable[..., Any] = next((getattr(model, m) for m in _METHODS[role] if hasattr(model, m)), model)
    if _is_theirs(model):
        output = call(texts, show_progress_bar=False, **({} if prompt is None else {"prompt": prompt}))
    else:
        output = call(texts if prompt is None else [prompted(prompt, text) for text in texts])
    if hasattr(output, "detach"):  # a tensor
        output = output.detach().cpu().float().numpy()
    vectors = _check.matrix(name, "vectors", output)
    _check.same_count(name, "vectors", len(vectors), len(texts))
    if dim is not None:
        _check.same_dim(name, "vectors", vectors.shape[1], dim)
    _check.finite_rows(name, "vectors", vectors)
    return vectors.astype(np.float32, copy=False)


def _loaded_from(model: Any) -> str | None:
    """Reference of a SentenceTransformer, whose transformer knows the name it was loaded by."""
    try:
        name = model[0].auto_model.config.name_or_path
    except (AttributeError, TypeError, LookupError):
        return None
    if not isinstance(name, str) or not name:
        return None
    if Path(name).is_dir():
        return f"hf:{escape(str(Path(name).resolve()))}"
    return f"hf:{name}" if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else None
