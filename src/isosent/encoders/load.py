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
    """Name the prompts of an encoder.

    Parameters
    ----------
    encoder : Encoder
        The encoder.

    Returns
    -------
    dict
        ``query`` and ``document``, possibly empty; ``default``, which stands before texts of neither role, where it is
        not.
    """
    prompts = {role: encoder.options.get(PROMPT_OF[role], "") for role in ("query", "document")}
    default = encoder.options.get(PROMPT_OF["text"], "")
    return prompts | ({DEFAULT_PROMPT: default} if default else {})


def encoder_for(encoder: Encoder, role: str) -> Encoder:
    """Return the encoder of texts of a role.

    Parameters
    ----------
    encoder : Encoder
        The encoder.
    role : {"text", "query", "document"}
        What the texts are.

    Returns
    -------
    Encoder
        One with the prompt of that role; the encoder itself where that is no other one.
    """
    match role:
        case "query":
            return encoder.for_queries()
        case "document":
            return encoder.for_documents()
        case _:
            return encoder


_NOTHING = Given()


def open_encoder(reference: Reference, given: Given = _NOTHING) -> Encoder:
    """Open the encoder that a reference names.

    Parameters
    ----------
    reference : Reference
        Any scheme but ``folder``, which is a model and no encoder.
    given : Given, optional
        What a reference cannot say.

    Returns
    -------
    Encoder
        The encoder, with every option resolved.

    Raises
    ------
    InputError
        If a file is missing or damaged, or an option does not fit the model.
    MissingExtraError
        If ``hf:`` is asked for without the extra ``plm``.
    """
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
