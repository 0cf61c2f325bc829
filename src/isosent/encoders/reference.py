"""The one grammar of model references, for ``isosent.load`` and the ``-m`` of every command."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
        What may stand there, in short.
    rule : str
        What must stand there, the end of a sentence.
    summary : str
        What it does, for people.
    parse : callable
        From what was written to the one spelling that is stored; raises ValueError on anything else.
    """

    name: str
    values: str
    rule: str
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


_YES_OR_NO = ("true|false", "be true or false")

OPTIONS = {
    option.name: option
    for option in (
        Option("lowercase", *_YES_OR_NO, "words: lower-case texts before look-up (default true)", _yes_or_no),
        Option(
            "tokenizer",
            "NAME",
            f"be {' or '.join(SPLITTERS)}",
            f"words: {'|'.join(SPLITTERS)} splits texts (default wordpunct)",
            _splitter,
        ),
        Option(
            "layers",
            "1,-1",
            "be whole numbers, none of them twice, with commas between them, as in 1,-1",
            "hf: layers to average, 0 the embedding layer, -1 the last (default -1)",
            _layer_list,
        ),
        Option(
            "pooling",
            "mean,...",
            f"be among {', '.join(POOLINGS)}, or several of these with commas between them",
            f"hf: {'|'.join(POOLINGS)}; several are concatenated",
            _pooling_list,
        ),
        Option("dense", *_YES_OR_NO, "hf: apply the folder's Dense and LayerNorm modules (default true)", _yes_or_no),
        Option("normalize", *_YES_OR_NO, "hf, static: scale to length 1 (default: as the folder says)", _yes_or_no),
        Option(
            "max_length",
            "N|none",
            "be a whole number above 0, or none",
            "hf, static: cut texts at N tokens (default: as the folder says)",
            _whole_number_or_none,
        ),
        Option("encoder", "REFERENCE", "name an encoder", "FOLDER: where its encoder lies now, if it was moved", str),
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
        "In a path, %2C, %3F and %25 stand for a comma, a question mark and a percent sign.",
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
        What stands behind the prefix, still escaped (see `unescape`); empty for ``wordllama``.
    options : mapping of str to str
        Checked options in their stored spelling.
    """

    scheme: str
    location: str
    options: Mapping[str, str]


def parse_reference(text: str, options: Mapping[str, str] | None = None, *, in_use: bool = False) -> Reference:
    """Parse a model reference.

    Parameters
    ----------
    text : str
        As in `GRAMMAR`. Options start at the first ``?``.
    options : mapping of str to str, optional
        Further options; they win over those in `text`.
    in_use : bool, default False
        Whether a saved model names it, so that what lies in the working directory does not make it ambiguous.

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
    body, _, query = text.partition("?")
    written: dict[str, str] = {}
    if query:
        for name, value in _split_query(text, query):
            if name in written:
                raise _outside_grammar(f"{text!r} gives the option {name} twice.")
            written[name] = value
    scheme, location = ("wordllama", "") if in_use and body == "wordllama" else _scheme_of(text, body)
    checked = {
        name: _check_option(text, SCHEMES[scheme], name, value)
        for name, value in (written | dict(options or {})).items()
    }
    return Reference(scheme, location, checked)


def _split_query(text: str, query: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in query.split("&")]
    if not all(name and equals for name, equals, _ in pairs):
        raise _outside_grammar(f"the options of {text!r} must be written name=value&name=value.")
    return [(name, value) for name, _, value in pairs]


def escape(path: str) -> str:
    """Write a path so that it can stand in a reference.

    Parameters
    ----------
    path : str
        A path.

    Returns
    -------
    str
        The same with ``%``, ``?`` and ``,`` escaped.

    Examples
    --------
    >>> escape("what, why?.txt"), unescape("what%2C why%3F.txt")
    ('what%2C why%3F.txt', 'what, why?.txt')
    """
    return path.replace("%", "%25").replace("?", "%3F").replace(",", "%2C")


def unescape(location: str) -> str:
    """Undo `escape`.

    Parameters
    ----------
    location : str
        A path as it stands in a reference.

    Returns
    -------
    str
        The path.
    """
    return location.replace("%2C", ",").replace("%3F", "?").replace("%25", "%")


def _scheme_of(text: str, body: str) -> tuple[str, str]:
    prefix = re.match(r"([A-Za-z][A-Za-z0-9_]+):", body)
    if prefix and not _is_folder(body):
        name, location = prefix[1], body[prefix.end() :]
        if name not in ("words", "static", "hf"):
            raise _outside_grammar(f"{text!r} has the unknown prefix {name}:.")
        if not location:
            raise _outside_grammar(f"{text!r} names nothing behind {name}:.")
        return name, location
    if body == "wordllama":
        if Path(body, MODEL_FILE).exists():
            raise _outside_grammar("'wordllama' is also a model folder here. Write ./wordllama for the folder.")
        return "wordllama", ""
    if not body or not _is_folder(body):
        raise _outside_grammar(f"{text!r} is no model reference and no folder.")
    if not Path(unescape(body), MODEL_FILE).exists() and Path(unescape(body), "config.json").exists():
        raise _outside_grammar(
            f"{text!r} is no model saved by isosent. Write hf:{body} or static:{body}, whichever it is."
        )
    return "folder", body


def _is_folder(body: str) -> bool:
    try:
        return Path(unescape(body)).is_dir()
    except OSError:  # longer than a file name can be
        return False


def _check_option(text: str, scheme: Scheme, name: str, value: str) -> str:
    if name not in OPTIONS:
        raise _outside_grammar(f"{text!r}: there is no option {name}.")
    option = OPTIONS[name]
    if name not in scheme.options:
        raise _outside_grammar(
            f"{text!r}: {scheme.syntax} takes {', '.join(scheme.options) or 'no options'}; got {name}."
        )
    try:
        if isinstance(value, str):
            return option.parse(value)
    except ValueError:
        pass
    raise _outside_grammar(f"{text!r}: {name} must {option.rule}; got {value!r}.")


def _outside_grammar(problem: str) -> ModelReferenceError:
    return ModelReferenceError(f"Model reference: {problem}\n{GRAMMAR}")
