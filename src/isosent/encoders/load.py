"""From a parsed reference to an encoder."""

from __future__ import annotations

from isosent.encoders.base import Encoder
from isosent.encoders.reference import WEIGHTING_OPTIONS, Reference
from isosent.encoders.static_load import Given, open_static_folder, open_token_embeddings, open_wordllama, open_words
from isosent.encoders.transformer import PROMPT_OF
from isosent.encoders.transformer_load import open_transformer
from isosent.errors import InputError

DEFAULT_PROMPT = "default"


def named_prompts(encoder: Encoder) -> dict[str, str]:
    """Name the prompts of an encoder."""
    prompts = {role: encoder.options.get(PROMPT_OF[role], "") for role in ("query", "document")}
    default = encoder.options.get(PROMPT_OF["text"], "")
    return prompts | ({DEFAULT_PROMPT: default} if default else {})


def encoder_for(encoder: Encoder, role: str) -> Encoder:
    """Return the encoder of texts of a role."""
    match role:
        case "query":
            return encoder.for_queries()
        case "document":
            return encoder.for_documents()
        case _:
            return encoder


_NOTHING = Given()


def open_encoder(reference: Reference, given: Given = _NOTHING) -> Encoder:
    """Open the encoder that a reference names."""
    location, options = reference.location, reference.options
    if given.split is not None and reference.scheme != "words":
        raise InputError(f"load: a tokenizer function is for words: only; got {reference.scheme}.")
    match reference.scheme:
        case "wordllama":
            return open_wordllama(options, given)
        case "words":
            return open_words(location, options, given)
        case "static":
            return open_static_folder(location, options, given)
        case _ if options.get("static") == "true":
            return open_token_embeddings(location, options, given)
        case _:
            if weights := [name for name in WEIGHTING_OPTIONS if name in options]:
                raise InputError(
                    f"hf:{location}: {', '.join(weights)} must come with static=true, for token embeddings."
                )
            layers = {name: value for name, value in options.items() if name != "static"}
            return open_transformer(location, layers)
