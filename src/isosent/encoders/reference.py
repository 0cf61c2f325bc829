"""The one grammar of model references, for ``isosent.load`` and the ``-m`` of every command."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from isosent.errors import ModelReferenceError
from isosent.numeric.pooling import POOLINGS
from isosent.text.tokens import SPLITTERS

DEFAULT_REFERENCE = "wordllama"
MODEL_FILE = "model.json"


@dataclass(frozen=True, slots=True)
class Option:
    """Something a reference can be followed by.

    Parameters
    ----------
    name : str
        As written behind the ``?``; the flag of the command line has dashes in place of underscores.
    values : str
        What may stand there, for people.
    summary : str
        What it does, for people.
    parse : callable
        From what was written to the one spelling that is stored; raises ValueError on anything else.
    """

    name: str
    values: str
    summary: str
    parse: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Scheme:
    """One kind of model.

    Parameters
    ----------
    name : str
        Its name, which is also its prefix where there is one.
    syntax : str
        How it is written.
    summary : str
        What it is.
    options : tuple of str
        Names of the options it takes.
    """

    name: str
    syntax: str
    summary: str
    options: tuple[str, ...]


def _yes_or_no(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower()


def _whole_number_or_none(value: str) -> str:
    if value.lower() == "none":
        return "none"
    if int(value) < 1:
        raise ValueError(value)
    return str(int(value))


def _layer_list(value: str) -> str:
    layers = [int(layer) for layer in value.split(",")]
    if len(set(layers)) < len(layers):
        raise ValueError(value)
    return ",".join(map(str, layers))


def _pooling_list(value: str) -> str:
    if any(name not in POOLINGS for name in value.split(",")):
        raise ValueError(value)
    return value


def _splitter(value: str) -> str:
    if value not in SPLITTERS:
        raise ValueError(value)
    return value


OPTIONS = {
    option.name: option
    for option in (
        Option("lowercase", "true|false", "words: lower-case texts before look-up (default true)", _yes_or_no),
        Option("tokenizer", "NAME", f"words: {'|'.join(SPLITTERS)} splits texts (default wordpunct)", _splitter),
        Option("layers", "1,-1", "hf: layers to average, 0 the embedding layer, -1 the last (default -1)", _layer_list),
        Option("pooling", "mean,...", f"hf: {'|'.join(POOLINGS)}; several are concatenated", _pooling_list),
        Option("dense", "true|false", "hf: apply the folder's Dense and LayerNorm modules (default true)", _yes_or_no),
        Option("normalize", "true|false", "hf, static: scale to length 1 (default: as the folder says)", _yes_or_no),
        Option(
            "max_length",
            "N|none",
            "hf, static: cut texts at N tokens (default: as the folder says)",
            _whole_number_or_none,
        ),
        Option("encoder", "REFERENCE", "FOLDER: where its encoder lies now, if it was moved", str),
    )
}

SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("wordllama", "wordllama", "32,000 x 256 static token vectors that come with isosent (the default)", ()),
        Scheme(
            "words",
            "words:FILE[,FILE...]",
            "word vectors, GloVe or word2vec, text or binary",
            ("lowercase", "tokenizer"),
        ),
        Scheme("static", "static:DIR", "a Model2Vec folder", ("normalize", "max_length")),
        Scheme(
            "hf",
            "hf:ID-OR-DIR",
            "a transformers encoder or sentence-transformers model, from the hub (ID[@REVISION]) or a folder",
            ("layers", "pooling", "dense", "normalize", "max_length"),
        ),
        Scheme("folder", "FOLDER", "a model saved by isosent", ("encoder",)),
    )
}

GRAMMAR = "\n".join(
    [
        "A model reference is one of:",
        *(f"  {scheme.syntax:<22} {scheme.summary}" for scheme in SCHEMES.values()),
        "Options may follow, as in hf:DIR?layers=1,-1&pooling=mean:",
        *(f"  {f'{option.name}={option.values}':<22} {option.summary}" for option in OPTIONS.values()),
    ]
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed model reference.

    Parameters
    ----------
    scheme : str
        A key of `SCHEMES`.
    location : str
        What stands behind the prefix; empty for ``wordllama``.
    options : mapping of str to str
        Checked options in their stored spelling.
    """

    scheme: str
    location: str
    options: Mapping[str, str]


def parse_reference(text: str, options: Mapping[str, str] | None = None) -> Reference:
    """Parse a model reference.

    Parameters
    ----------
    text : str
        As in `GRAMMAR`. Options start at the first ``?``; percent-encoding is undone in their values.
    options : mapping of str to str, optional
        Further options; they win over those in `text`.

    Returns
    -------
    Reference
        The same, taken apart and checked.

    Raises
    ------
    ModelReferenceError
        If the reference is unknown or ambiguous, or an option is unknown, repeated, misspelt or not for this kind of
        model. The message ends with the grammar.

    Examples
    --------
    >>> parse_reference("words:glove.txt?lowercase=False")
    Reference(scheme='words', location='glove.txt', options={'lowercase': 'false'})
    """
    body, has_options, query = text.partition("?")
    written: dict[str, str] = {}
    if has_options:
        for name, value in _split_query(text, query):
            if name in written:
                raise _outside_grammar(f"{text!r} gives the option {name} twice.")
            written[name] = value
    scheme, location = _scheme_of(text, body)
    checked = {
        name: _check_option(text, SCHEMES[scheme], name, value)
        for name, value in (written | dict(options or {})).items()
    }
    return Reference(scheme, location, checked)


def _split_query(text: str, query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise _outside_grammar(f"the options of {text!r} must be written name=value&name=value.") from None


def _scheme_of(text: str, body: str) -> tuple[str, str]:
    prefix = re.match(r"([A-Za-z][A-Za-z0-9_]+):", body)
    if prefix and not Path(body).exists():
        name, location = prefix[1], body[prefix.end() :]
        if name not in ("words", "static", "hf"):
            raise _outside_grammar(f"{text!r} has the unknown prefix {name}:.")
        if not location:
            raise _outside_grammar(f"{text!r} names nothing behind {name}:.")
        return name, location
    if body == "wordllama":
        if Path(body, MODEL_FILE).exists():
            raise _outside_grammar(
                "'wordllama' is ambiguous: a model folder of that name lies here. Write ./wordllama for it."
            )
        return "wordllama", ""
    if Path(body).is_dir():
        if Path(body, MODEL_FILE).exists() or not Path(body, "config.json").exists():
            return "folder", body
        raise _outside_grammar(
            f"{text!r} is no model saved by isosent. Write hf:{body} or static:{body}, whichever it is."
        )
    raise _outside_grammar(f"{text!r} is no model reference and no folder.")


def _check_option(text: str, scheme: Scheme, name: str, value: str) -> str:
    if name not in OPTIONS:
        raise _outside_grammar(f"{text!r}: there is no option {name}.")
    if name not in scheme.options:
        takes = f"takes {', '.join(scheme.options)}" if scheme.options else "takes none"
        raise _outside_grammar(f"{text!r}: the option {name} is not for {scheme.syntax}, which {takes}.")
    try:
        return OPTIONS[name].parse(value)
    except ValueError:
        option = OPTIONS[name]
        raise _outside_grammar(f"{text!r}: {name} must be {option.values}, {option.summary}; got {value!r}.") from None


def _outside_grammar(problem: str) -> ModelReferenceError:
    return ModelReferenceError(f"Model reference: {problem}\n{GRAMMAR}")
