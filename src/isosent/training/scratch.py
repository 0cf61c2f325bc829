"""A small BERT with a vocabulary of its own, from nothing but texts: for tests, and for languages without a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from isosent import _check, _extras
from isosent.encoders import option_rules as rules
from isosent.errors import InputError, IsosentWarning, ModelReferenceError
from isosent.training.wordpiece import FIRST, LAST, PAD, UNKNOWN, train_wordpiece

PREFIX = "scratch"

_LEAST_LENGTH = 3
_LEAST_VOCABULARY = 16
_WIDENING = 4


@dataclass(frozen=True, slots=True)
class ScratchSettings:
    """Sizes of a small BERT.

    Parameters
    ----------
    layers : int, default 4
        Layers.
    dim : int, default 256
        Dimensions of a vector; the inner layer of a block has four times as many.
    heads : int, default 4
        Attention heads, a divisor of `dim`.
    vocab : int, default 16000
        Tokens of the vocabulary at most.
    max_length : int, default 128
        Tokens a text is cut at, and positions of the network.
    lowercase : bool, default True
        Whether texts are lower-cased.

    Raises
    ------
    InputError
        If a size is no whole number or too small, or `heads` does not divide `dim`.
    """

    layers: int = 4
    dim: int = 256
    heads: int = 4
    vocab: int = 16_000
    max_length: int = 128
    lowercase: bool = True

    def __post_init__(self) -> None:
        for name in _SIZES:
            _check.whole_number("scratch", name, getattr(self, name), 1)
        if self.dim % self.heads:
            raise InputError(f"scratch: heads must divide dim; got heads={self.heads} and dim={self.dim}.")
        if self.max_length < _LEAST_LENGTH:
            raise InputError(
                f"scratch: max_length must be at least {_LEAST_LENGTH}, since two tokens stand around a text; got "
                f"{self.max_length}."
            )
        if self.vocab < _LEAST_VOCABULARY:
            raise InputError(f"scratch: vocab must be at least {_LEAST_VOCABULARY}; got {self.vocab}.")

    @classmethod
    def parse(cls, reference: str) -> ScratchSettings:
        """Read a reference.

        Parameters
        ----------
        reference : str
            ``scratch:``, with options behind a ``?``.

        Returns
        -------
        ScratchSettings
            The sizes.

        Raises
        ------
        ModelReferenceError
            If something stands behind the colon, or an option is unknown, repeated or misspelt.
        InputError
            If the sizes do not go together.

        Examples
        --------
        >>> ScratchSettings.parse("scratch:?layers=2&dim=64&lowercase=false")
        ScratchSettings(layers=2, dim=64, heads=4, vocab=16000, max_length=128, lowercase=False)
        """
        body, _, query = reference.partition("?")
        if body.removesuffix(":") != PREFIX:
            raise ModelReferenceError(
                f"scratch: the reference must be scratch: with options behind a ?, as in {_EXAMPLE}; got {reference!r}."
            )
        values: dict[str, Any] = {}
        for part in query.split("&") if query else ():
            name, _, written = part.partition("=")
            if name in values:
                raise ModelReferenceError(f"scratch: {name} must be given once; got it twice in {reference!r}.")
            values[name] = _value_of(name, written)
        return cls(**values)

    @property
    def reference(self) -> str:
        """The reference of these sizes, all of them written out."""
        written = {name: str(getattr(self, name)).lower() for name in _PARSERS}
        return f"{PREFIX}:?" + "&".join(f"{name}={value}" for name, value in written.items())


_EXAMPLE = "scratch:?layers=4&dim=256"
_SIZES = ("layers", "dim", "heads", "vocab", "max_length")
_PARSERS: Mapping[str, tuple[Callable[[str], str], str]] = {
    **dict.fromkeys(_SIZES, (rules.whole_number, "a whole number above 0")),
    "lowercase": (rules.yes_or_no, "true or false"),
}


def _value_of(name: str, written: str) -> int | bool:
    if name not in _PARSERS:
        nearest = get_close_matches(name, _PARSERS, n=1, cutoff=0)[0]
        raise ModelReferenceError(
            f"scratch: options must be {', '.join(_PARSERS)}; got {name!r}. The nearest is {nearest}."
        )
    parse, rule = _PARSERS[name]
    try:
        value = parse(written)
    except ValueError:
        raise ModelReferenceError(f"scratch: {name} must be {rule}; got {written!r}.") from None
    return value == "true" if name == "lowercase" else int(value)


def write_scratch(folder: Path, settings: ScratchSettings, texts: Sequence[str]) -> int:
    """Write the folder of a transformer with random weights.

    Parameters
    ----------
    folder : Path
        An existing folder.
    settings : ScratchSettings
        Sizes.
    texts : sequence of str
        Texts that the vocabulary is made from.

    Returns
    -------
    int
        Tokens of the vocabulary.

    Raises
    ------
    InputError
        If the texts give no vocabulary.

    Warns
    -----
    IsosentWarning
        If the vocabulary is smaller than asked for.

    Notes
    -----
    The weights come from the random numbers of torch: whoever wants the same ones again sets its seed. They are drawn
    as BERT draws them, from a normal distribution with standard deviation 0.02.
    """
    transformers = _extras.require("transformers")
    tokenizer = train_wordpiece(texts, vocab_size=settings.vocab, lowercase=settings.lowercase)
    vocab_size: int = tokenizer.get_vocab_size()
    if vocab_size < settings.vocab:
        warnings.warn(
            f"scratch: vocab is {vocab_size}, not {settings.vocab}: the texts do not give more tokens.",
            IsosentWarning,
            stacklevel=4,
        )
    names = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": FIRST, "sep_token": LAST}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=settings.max_length, **names
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=settings.dim,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=_WIDENING * settings.dim,
        max_position_embeddings=settings.max_length,
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    transformers.BertModel(config).save_pretrained(folder)
    return vocab_size
