"""Prompts with words after the text, such as ``This sentence : "{text}" means in one word:``.

Tokens do not add up: the last one of a text and the first one after it may be one token of both. So a text is tokenized
with its prompt, and its tokens are found by where they stand in the characters (`placed`). A text that is too long
loses tokens at its end, at every place alike; the words of the prompt stay, and so do the special tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError, InputError, IsosentWarning
from isosent.io.json import read_json
from isosent.io.schemas import TokenizerConfig
from isosent.role import TEXT_PLACE


class Tokens(NamedTuple):
    """What a tokenizer makes of a text with its prompt."""

    ids: Sequence[int]
    spans: Sequence[tuple[int, int]]  # of each token, in characters
    is_special: Sequence[int]  # whether the tokenizer added it


class Placed(NamedTuple):
    """Tokens of a text with its prompt, cut at the maximum."""

    ids: list[int]
    start: int  # first token of the last place of the text
    is_cut: bool


def placed(tokens: Tokens, parts: Sequence[str], text: str, max_length: int, *, cuts_left: bool = False) -> Placed:
    """Find the tokens of a text between the parts of its prompt, and leave out as many as are too many."""
    n_characters, ids = len(text), np.asarray(tokens.ids)
    starts, stops = np.asarray(tokens.spans).reshape(-1, 2).T
    order = np.full(len(ids), -1)  # of the tokens of the text: how far each reaches from the end that is kept
    begin, first = 0, 0
    for part in parts[:-1]:
        begin += len(part)
        # a token that reaches beyond the text belongs to the words after it
        inside = (stops > begin) & (stops <= begin + n_characters) & (np.asarray(tokens.is_special) == 0)
        if not inside.any():  # a text that shares its only token with the words around it
            inside = (stops > begin) & (starts < begin + n_characters) & (np.asarray(tokens.is_special) == 0)
            inside &= np.cumsum(inside) == 1
        order[inside] = (begin + n_characters - starts if cuts_left else stops - begin)[inside]
        first = int(inside.argmax()) if inside.any() else len(ids)
        begin += n_characters
    if len(ids) <= max_length:
        return Placed(ids.tolist(), first, is_cut=False)
    is_kept = order <= _farthest(order[order >= 0], max_length - int((order < 0).sum()), max_length)
    return Placed(ids[is_kept].tolist(), int(is_kept[:first].sum()), is_cut=True)


def _farthest(order: NDArray[np.int64], room: int, max_length: int) -> int:
    """How far the tokens of a text may reach, so that there is room for them; those of one character stay together."""
    ascending = np.sort(order)
    fitting = ascending[ascending < ascending[max(room, 0)]] if len(ascending) else ascending
    if not len(fitting):
        raise InputError(
            f"hf: max_length={max_length} leaves no room for a text next to the words and special tokens around it. "
            "Raise it, or shorten the prompt."
        )
    return int(fitting[-1])


def check_end(folder: Path, tokenizer: Any, prompts: Sequence[str], *, is_saved: bool) -> None:
    """Refuse a folder that says that texts end with a token, if neither its tokenizer nor the prompts add it.

    The encoder of a saved model keeps its vectors, with a warning.
    """
    # transformers 5 takes the post-processor of tokenizer.json, and no longer add_eos_token of tokenizer_config.json;
    # the last token, which such models pool, is then another one than in training
    path, end = folder / "tokenizer_config.json", tokenizer.eos_token
    if not (path.exists() and end and read_json(path, TokenizerConfig).get("add_eos_token")):
        return
    is_added = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"][-1]
    if is_added or all(each.endswith(end) for each in prompts):
        return
    problem = f"hf: {path} says add_eos_token, and tokenizer.json does not end texts with {end!r}."
    if is_saved:
        warnings.warn(
            f"{problem} The saved model keeps the vectors that it was made of, whose texts lack the token.",
            IsosentWarning,
            stacklevel=6,
        )
    else:
        raise FileFormatError(
            f"{problem} Add the token there, or as a prompt: "
            f"prompt={TEXT_PLACE}{end} (and so query_prompt and document_prompt, if they differ)."
        )
