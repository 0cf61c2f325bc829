"""Prompts by the names that sentence-transformers gives them."""

from __future__ import annotations

from isosent.encoders.base import Encoder
from isosent.encoders.transformer import PROMPT_OF

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
