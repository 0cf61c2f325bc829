"""Loading the encoder that a model reference names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isosent.encoders.api import load_api
from isosent.encoders.base import Encoder
from isosent.encoders.hub import download
from isosent.encoders.reference import CODE_PERMISSIONS, SCHEMES, WEIGHTING_OPTIONS, Reference, folder_kind
from isosent.encoders.st_modules import ModuleFolder
from isosent.encoders.static_models import (
    SplitFunction,
    load_static,
    load_token_embeddings,
    load_wordllama,
    load_words,
)
from isosent.encoders.transformer import PROMPT_OF, load_transformer
from isosent.encoders.word_average import Corpus
from isosent.errors import InputError, InputFileError
from isosent.pages.progress import Progress
from isosent.role import prompted

DEFAULT_PROMPT = "default"


def load_encoder(
    reference: Reference,
    *,
    split: SplitFunction | None = None,
    corpus: Corpus | None = None,
    progress: Progress | None = None,
    is_saved: bool = False,
) -> Encoder:
    """Load the encoder that a reference names.

    `split` is a tokenizer that a reference cannot name; `corpus` is what a saved model learned from texts; `progress`
    is called with the bytes of files of word vectors, and returns what is called with the bytes read.
    `is_saved`: a saved model names it, whose vectors are not to change.
    """
    if reference.scheme == "hub":
        reference = _hub_model(reference)
    location, options = reference.location, dict(reference.options)
    if split is not None and reference.scheme != "words":
        raise InputError(f"load: a tokenizer function is for words: only, not for {reference.scheme}. Leave it out.")
    match reference.scheme:
        case "wordllama":
            return load_wordllama(options, corpus=corpus)
        case "words":
            return load_words(location, options, split=split, corpus=corpus, progress=progress)
        case "static":
            return load_static(location, options, corpus=corpus)
        case "api":
            return load_api(location, options)
    if options.pop("static", False):
        return load_token_embeddings(location, options, corpus=corpus)
    if weights := [name for name in WEIGHTING_OPTIONS if name in options]:
        raise InputError(
            f"hf:{location}: token embeddings alone take {' and '.join(weights)}. Add static=true, or leave that out."
        )
    return load_transformer(location, options, is_saved=is_saved)


def _hub_model(reference: Reference) -> Reference:
    """Detect by its files whether a model on the hub is Model2Vec or a transformer."""
    permissions: dict[str, Any] = {name: reference.options.get(name, False) for name in CODE_PERMISSIONS}
    kind = folder_kind(download("hub", reference.location, **permissions))
    if kind not in ("hf", "static"):
        raise InputFileError(f"{reference.location}: the hub has no config.json of a known kind of model for it.")
    if foreign := set(reference.options) - set(SCHEMES[kind].options):
        raise InputError(f"{reference.location} is a Model2Vec model, which has no {', '.join(sorted(foreign))}.")
    return replace(reference, scheme=kind)


def named_prompts(encoder: Encoder) -> dict[str, str]:
    """Prompts of an encoder by the names that sentence-transformers gives them."""
    if (prompts := getattr(encoder, "prompts", None)) is not None:  # a wrapped model has its own names
        return dict(prompts)
    prompts = {role: encoder.options.get(PROMPT_OF[role], "") for role in ("query", "document")}
    default = encoder.options.get(PROMPT_OF["text"], "")
    return prompts | ({DEFAULT_PROMPT: default} if default else {})


def task_prompts(encoder: Encoder) -> dict[str, str]:
    """Prompts of an encoder for other things than queries, documents and all texts, by the names of its folder."""
    folder: ModuleFolder | None = getattr(encoder, "module_folder", None)
    prompts = named_prompts(encoder) if folder is None else folder.named_prompts
    return {name: prompt for name, prompt in prompts.items() if name not in ("query", "document", DEFAULT_PROMPT)}


def encoder_for(encoder: Encoder, role: str) -> Encoder:
    """The encoder of texts of a role: "text", "query" or "document"."""
    roles = {"query": encoder.for_queries, "document": encoder.for_documents}
    return roles[role]() if role in roles else encoder


def with_prompt(encoder: Encoder, texts: list[str], prompt: str) -> tuple[Encoder, list[str]]:
    """The encoder and the texts that give the vectors of these texts after a prompt, in place of the encoder's own."""
    if hasattr(encoder, "with_prompt"):  # a network must know its prompt, not to pool or cut it, or to add no other
        return encoder.with_prompt(prompt), texts
    return encoder, [prompted(prompt, text) for text in texts]


def prompt_named(prompts: Mapping[str, str], name: str) -> str:
    """One of the prompts; an `InputError` lists the names if there is none of this name."""
    if name not in prompts:
        names = ", ".join(prompts) or "none"
        raise InputError(f"encode: this model has no prompt named {name!r}. Its prompts: {names}.")
    return prompts[name]
