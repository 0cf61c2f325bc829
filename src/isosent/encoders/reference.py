"""Model references, such as ``hf:DIR?layers=1,-1&pooling=mean``: their grammar and their options.

A reference is parsed once, into typed values. `write_options` is the inverse, for model folders and fingerprints.

`OPTIONS` is the table of all options: each `Option` has its parser, its default, and its help. `SCHEMES` says which
ones a kind of model takes. `parse_reference` finds the scheme, by the prefix or by the files of a folder
(`folder_kind`), and parses each option. `with_options` adds options to a text; `relative_reference` and
`absolute_reference` move one with its folder. What comes out of a file passes through `stored_reference`, which grants
no permission. `weighting_of` makes the weighting of words that options name.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from isosent import _check
from isosent.api.dialects import DIALECTS, PROVIDERS
from isosent.encoders.word_average import GEM, SIF, USIF, Average, PowerMean, Weighting, ZipfianWhitening
from isosent.errors import InputError, InputFileError, ModelReferenceError, PermissionIgnoredWarning
from isosent.io.atomic import recover
from isosent.io.json import read_json
from isosent.io.schemas import Module
from isosent.io.signatures import READ_AS_WORDS, refuse_other_file
from isosent.networks.layer_pooling import LAYER_NAMES, POOLING_NAMES, canonical_pooling, parse_layers
from isosent.networks.load import AUTO, BACKENDS
from isosent.storage import COMPUTED
from isosent.words.tokens import SPLITTERS

DEFAULT_REFERENCE: Final = "wordllama"
MODEL_FILE: Final = "model.json"
LANGUAGES: Final = {"wordllama": "English"}  # of bundled models
ENCODER_FOLDER: Final = "encoder"  # within a model folder that holds its encoder
FUNCTION: Final = "function"  # a tokenizer that is a Python function, which a reference cannot name


# Parsers take what a reference says (a string) or what Python passes (a number, a bool, a list, a Path), and return the
# typed value; they raise ValueError or TypeError for anything else.


def parse_flag(value: Any) -> bool:
    """Take a bool, or true or false."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return bool(value.lower() == "true")


def parse_whole(least: int) -> Callable[[Any], int]:
    """Make the parser of whole numbers from `least` on."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (str, int, np.integer)) or int(value) < least:
            raise ValueError(value)
        return int(value)

    return parse


def _whole_or_none(value: Any) -> int | None:
    is_none = value is None or (isinstance(value, str) and value.lower() == "none")
    return None if is_none else parse_whole(1)(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(float(value)) or float(value) < 0:
        raise ValueError(value)
    return float(value)


def _positive_number(value: Any) -> float:
    if _number(value) == 0:
        raise ValueError(value)
    return float(value)


def _split_values(value: Any) -> list[Any]:
    return value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]


def _powers(value: Any) -> tuple[float, ...]:
    powers = tuple(float(power) for power in _split_values(value))
    if not all(power > 0 or power == -math.inf for power in powers):
        raise ValueError(value)
    return powers


def _layers(value: Any) -> str:
    text = ",".join(map(str, _split_values(value)))  # resolved when the network is loaded
    parse_layers(text)
    return text


def _poolings(value: Any) -> str:
    return canonical_pooling(",".join(_split_values(value)))


def _devices(value: Any) -> str:
    devices = _split_values(value)
    known = all(re.fullmatch(r"cpu|(cuda|mps|xpu)(:\d+)?", device) for device in devices)
    if devices != [AUTO] and (not known or len(set(devices)) < len(devices)):
        raise ValueError(value)
    return ",".join(devices)


def _one_of(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError(value)
        return str(value)

    return parse


def _some_of(*names: str) -> Callable[[Any], tuple[str, ...]]:
    def parse(value: Any) -> tuple[str, ...]:
        chosen = tuple(_split_values(value))
        if set(chosen) - set(names) or len(set(chosen)) < len(chosen):
            raise ValueError(value)
        return chosen

    return parse


def _file(value: Any) -> str:
    """A keyword or a path, escaped as in a reference."""
    if not value:
        raise ValueError(value)
    return value if isinstance(value, str) else escape(os.fspath(value))


def _tokenizer(value: Any) -> str:
    text = _file(value)
    if text not in (*SPLITTERS, FUNCTION) and not text.endswith(".json"):
        raise ValueError(value)
    return text


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[A-Z_][A-Z0-9_]*", value):  # others may be a key
        raise ValueError(value)
    return value


def _model(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^?&%\s]+", value):
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_PROMPT = "a text, to be put before each text, or around it where {text} stands"
MODEL, RUNNING, CALLING = "Model", "Running", "Calling an API"
_TEXT, _WEIGHTING, _GEM = WORD_PANELS = ("Words of a text", "Weighting of words", "GEM")


class Option(NamedTuple):
    """One option of a model reference."""

    name: str  # a flag of the command line has dashes for the underscores
    values: str  # allowed values, in short
    rule: str  # "lowercase=maybe: choose <rule>."
    summary: str
    parse: Callable[[Any], Any]
    panel: str = MODEL  # heading of its flag in the help


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _choice(name: str, summary: str, *names: str, panel: str) -> Option:
    return Option(name, "|".join(names), _or(names), summary, _one_of(*names), panel)


def _yes_or_no(name: str, summary: str, panel: str = MODEL) -> Option:
    return Option(name, "true|false", "true or false", summary, parse_flag, panel)


def _count(name: str, summary: str, panel: str, least: int = 1) -> Option:
    rule = "a whole number above 0" if least else "a whole number, 0 or more"
    return Option(name, "N", rule, summary, parse_whole(least), panel)


_LAYERS_RULE = f"layers as in 1,-1 or L1+L12 or 0..4 or 0.3*1,0.7*-1, or {_or(tuple(LAYER_NAMES))}"
_POOLING_RULE = f"among {', '.join(POOLING_NAMES)}, or several of these with commas between them, none twice"
_SPLITTERS = "|".join(SPLITTERS)
CODE_PERMISSIONS = ("trust_remote_code", "pickled_weights")
PERMISSIONS = (*CODE_PERMISSIONS, "send_texts")  # only the caller grants them; no file can

# fmt: off
OPTIONS = {
    option.name: option
    for option in (
        _yes_or_no("lowercase", "words: lower-case texts before look-up (default true)", _TEXT),
        Option("tokenizer", "NAME|FILE", f"{', '.join(SPLITTERS)} or a FILE.json",
               f"words: {_SPLITTERS}|FILE.json (a tokenizer.json) splits texts (default wordpunct)", _tokenizer, _TEXT),
        _choice("punctuation", "words: keep, drop, or drop the eight signs that the authors of GEM drop (default keep)",
                "keep", "drop", "gem", panel=_TEXT),
        Option("stop_words", "keep|english|FILE", "keep, english or a file",
               "words: drop English stop words or those of a file (default keep)", _file, _TEXT),
        _choice("unknown", "words: skip unknown words, build them from sub-words, or take the mean of all words "
                "(default: sub-words if the file has them, else skip)", "skip", "subwords", "mean", panel=_TEXT),
        Option("vocabulary", "FILE", "a file", "words: keep only the words of this file", _file, _TEXT),
        _choice("weighting", "words, static, wordllama: how word vectors are averaged (default mean)",
                "mean", "sif", "usif", "p_mean", "gem", panel=_WEIGHTING),
        _yes_or_no("zipfian", "whiten the word vectors by word frequency first (default false)", _WEIGHTING),
        Option("frequencies", "corpus|rank|FILE", "corpus, rank or a file",
               "sif, usif, zipfian: count words in the texts fitted on, estimate from their order (Zipf), or read "
               "'word count' lines (default corpus)", _file, _WEIGHTING),
        Option("a", "A", "a number above 0", "sif: smoothing constant (default 0.001)",
               _positive_number, _WEIGHTING),
        _count("n_components", "sif, usif: common components removed (default 1, 5)", _WEIGHTING, least=0),
        Option("powers", "-inf,1,inf", "numbers above 0, -inf or inf, with commas between them",
               "p_mean: powers, concatenated (default -inf,1,inf)", _powers, _WEIGHTING),
        _yes_or_no("z_norm", "p_mean: standardize over the texts fitted on (default true)", _WEIGHTING),
        _count("window", "gem: words on each side (default 7)", _GEM),
        _count("n_candidates", "gem: principal vectors of the corpus (default 45)", _GEM),
        _count("n_removed", "gem: principal vectors removed from a text (default 17)", _GEM),
        Option("power", "T", "a number, 0 or more",
               "gem: power of the singular values in coarse vectors (default 3)", _number, _GEM),
        _choice("removal", "gem: by sentence, the same for all, or none (default sdr)",
                "sdr", "sir", "none", panel=_GEM),
        Option("scores", "NAMES", "some of novelty, significance, uniqueness, with commas between them",
               "gem: scores that count, of novelty,significance,uniqueness (default all)",
               _some_of("novelty", "significance", "uniqueness"), _GEM),
        _choice("significance", "gem: divide by the words present or by 2m+1 (default columns)",
                "columns", "window", panel=_GEM),
        _choice("ranking", "gem: rank principal vectors with or without singular values (default weighted)",
                "weighted", "unweighted", panel=_GEM),
        _choice("uniqueness", "gem: singular values as published or over the largest (default published)",
                "published", "scaled", panel=_GEM),
        _yes_or_no("static", "hf: the token embeddings alone, no layer of the network (default false)"),
        Option("layers", "1,-1", _LAYERS_RULE,
               "hf: layers to average, 0 the embedding layer, -1 the last; first_last_avg is 1,-1, last2 is -2,-1 "
               "(default -1)", _layers),
        Option("pooling", "mean,...", _POOLING_RULE, f"hf: {'|'.join(POOLING_NAMES)}; several are concatenated",
               _poolings),
        _yes_or_no("dense", "hf: apply the folder's Dense and LayerNorm modules (default true)"),
        _yes_or_no("normalize", "hf, static: end with length 1, or without a last Normalize (default: as the folder)"),
        Option("max_length", "N|none", "a whole number above 0, or none",
               "hf, static: cut texts at N tokens (default: as the folder says)", _whole_or_none),
        Option("long", "truncate|windows", "truncate or windows",
               "hf: cut texts at max_length, or take the mean over windows of it (default truncate)",
               _one_of("truncate", "windows")),
        _count("overlap", "hf: tokens that windows share (default: a quarter of max_length)", MODEL, least=0),
        Option("prompt", "TEXT", _PROMPT, "hf: put before every text, or around {text} (default: the folder's)", _text),
        Option("query_prompt", "TEXT", _PROMPT, "hf: the same for queries (default: as the folder says)", _text),
        Option("document_prompt", "TEXT", _PROMPT, "hf: the same for documents (default: as the folder says)", _text),
        Option("model", "NAME", "a name", "api: the model, where the location does not say it", _model),
        _choice("dialect", "api: how it is asked (default: by the URL)", *DIALECTS, panel=MODEL),
        _count("dimensions", "api: how many are requested (default: all)", MODEL),
        Option("encoder", "REFERENCE", "an encoder", "FOLDER: where its encoder is now, if it was moved", _text),
        Option("graph", "FILE", "a file", "hf: ONNX file to compute (default: the weights, else model.onnx)", _model),
        _choice("backend", "hf: what computes (default auto)", AUTO, *BACKENDS, panel=RUNNING),
        _choice("dtype", "hf: dtype of the layers (default float32)", *COMPUTED, panel=RUNNING),
        Option("devices", "auto|cpu|cuda:0,...", "auto, or devices as torch writes them, with commas between them",
               "hf: where to compute; several GPUs share the work (default auto: a GPU if there is one)",
               _devices, RUNNING),
        _count("batch_tokens", "hf: most tokens of a batch, padding included (default: as suits the device)", RUNNING),
        _yes_or_no("trust_remote_code",
                   "hf: run code that comes with the model or that its config names (default false)", RUNNING),
        _yes_or_no("pickled_weights", "hf: read weights from pickles if there are no others (default false)", RUNNING),
        Option("key_env", "NAME", "the name of an environment variable, in capital letters",
               "api: environment variable of the key (default: that of the provider)", _variable, CALLING),
        Option("cache", "DIR|none", "a folder, or none", "api: where answers are kept (default: the user's cache)",
               _file, CALLING),
        Option("cache_mb", "N", "a number above 0", "api: megabytes of the cache (default 10000)", _positive_number,
               CALLING),
        _yes_or_no("send_texts", "FOLDER: ask the API that the folder names (default false)", CALLING),
    )
}
# fmt: on


def options_under(panel: str) -> list[Option]:
    """List the options of a panel."""
    return [option for option in OPTIONS.values() if option.panel == panel]


CALLING_OPTIONS = tuple(option.name for option in options_under(CALLING))
_COMPUTING_OPTIONS = tuple(option.name for option in options_under(RUNNING))
RUNTIME_OPTIONS = (*_COMPUTING_OPTIONS, *CALLING_OPTIONS)
WEIGHTING_OPTIONS = tuple(option.name for panel in (_WEIGHTING, _GEM) for option in options_under(panel))
FILE_OPTIONS = ("frequencies", "stop_words", "tokenizer", "vocabulary")
PROMPTS = ("prompt", "query_prompt", "document_prompt")
_KEYWORDS = {"keep", "english", "corpus", "rank", FUNCTION, *SPLITTERS}  # values of FILE_OPTIONS that are no files


class Scheme(NamedTuple):
    """One kind of model."""

    name: str  # also its prefix, if it has one
    syntax: str
    summary: str
    options: tuple[str, ...]


_STATIC_OPTIONS = ("normalize", "max_length", *WEIGHTING_OPTIONS)
_HF_OPTIONS = (
    *("layers", "pooling", "dense", "normalize", "max_length", "long", "overlap", *PROMPTS, "static", "graph"),
    *(*WEIGHTING_OPTIONS, *_COMPUTING_OPTIONS),
)
_WORDS_OPTIONS = ("lowercase", "tokenizer", "punctuation", "stop_words", "unknown", "vocabulary", *WEIGHTING_OPTIONS)
SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("wordllama", "wordllama", "32,000 x 256 English static token vectors, the default", WEIGHTING_OPTIONS),
        Scheme(
            "hub", "OWNER/NAME", "a model of the hub: transformers, sentence-transformers or Model2Vec", _HF_OPTIONS
        ),
        Scheme("folder", "FOLDER", "a model saved by isosent", ("encoder", *RUNTIME_OPTIONS)),
        Scheme("words", "words:FILE[,FILE...]", "word vectors: GloVe, word2vec, fastText", _WORDS_OPTIONS),
        Scheme("static", "static:ID-OR-DIR", "a Model2Vec or StaticEmbedding model, hub or folder", _STATIC_OPTIONS),
        Scheme(
            "hf",
            "hf:ID-OR-DIR",
            "a transformers or sentence-transformers model, from the hub (ID[@REVISION]) or a folder",
            _HF_OPTIONS,
        ),
        Scheme(
            "api",
            "api:PROVIDER/MODEL|URL",
            f"a model of an embedding API: {', '.join(PROVIDERS)}, or a URL",
            ("model", "dialect", "dimensions", *PROMPTS, *CALLING_OPTIONS),
        ),
    )
}

_PREFIXES = ("words", "static", "hf", "api")

GRAMMAR = "\n".join(
    [
        "A model reference is one of:",
        *(f"  {scheme.syntax:<22} {scheme.summary}" for scheme in SCHEMES.values()),
        "Folders of transformers, sentence-transformers and Model2Vec need no prefix.",
        "Options may follow, as in hf:DIR?layers=1,-1&pooling=mean:",
        *(f"  {f'{option.name}={option.values}':<22} {option.summary}" for option in options_under(MODEL)),
        *(
            f"  {panel}: {', '.join(o.name for o in options_under(panel))}"
            for panel in (RUNNING, CALLING, *WORD_PANELS)
        ),
        "In a path, %2C, %3F, %26 and %25 stand for a comma, a question mark, an ampersand and a percent sign.",
    ]
)

_ADVICE = (
    "Use wordllama, OWNER/NAME, a folder, words:FILE, static:DIR, hf:DIR or api:PROVIDER/MODEL. "
    "All options: isosent help models"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed model reference."""

    scheme: str  # a key of `SCHEMES`
    location: str  # what follows the prefix, still escaped (see `unescape`); empty for ``wordllama``
    options: Mapping[str, Any]  # typed values


def parse_reference(text: str, options: Mapping[str, Any] | None = None, *, in_use: bool = False) -> Reference:
    """Parse a reference; `options` win over those in it. `in_use`: wordllama is meant, whatever lies in the folder."""
    shown = without_keys(text)
    try:
        body, query = _check.split_options(text)
    except InputError as error:
        raise _refused(str(error).replace(repr(text), repr(shown))) from None
    query = {name: unescape(value) if name in PROMPTS else value for name, value in query.items()}
    scheme, location = ("wordllama", "") if in_use and body == "wordllama" else _scheme_of(shown, body)
    allowed = SCHEMES[scheme]
    parsed = {name: _option(shown, allowed, name, each) for name, each in (query | dict(options or {})).items()}
    return Reference(scheme, location, parsed)


def _scheme_of(text: str, body: str) -> tuple[str, str]:
    prefix = re.match(r"([A-Za-z][A-Za-z0-9_]+):", body)
    if prefix and not _is_folder(body):
        name, location = prefix[1], body[prefix.end() :]
        if name not in _PREFIXES:
            problem = f"{text!r} has the unknown prefix {name}:."
            if nearest := get_close_matches(name, _PREFIXES, n=1):
                raise _refused(f"{problem} Did you mean {nearest[0]}:?")
            raise _not_understood(problem)
        if not location:
            raise _not_understood(f"{text!r} names nothing after {name}:.")
        return name, location
    if body == "wordllama":
        if Path(body, MODEL_FILE).exists():
            raise _refused("'wordllama' is also a model folder here. Write ./wordllama for the folder.")
        return "wordllama", ""
    if body and _is_folder(body):
        return folder_kind(path_of(body)) or "folder", body
    problem = f"{text!r} is neither a model nor a folder."
    if _is_file(body):
        refuse_other_file(path_of(body), reads=READ_AS_WORDS)
        raise _refused(f"{problem} It is a file. For word vectors, write words:{body}.")
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?", body):
        return "hub", body
    if nearest := get_close_matches(body, [DEFAULT_REFERENCE, *_folders_here()], n=1):
        raise _refused(f"{problem} Did you mean {nearest[0]}?")
    raise _not_understood(problem)


def _folders_here() -> list[str]:
    try:
        return [path.name for path in Path().iterdir() if path.is_dir()]
    except OSError:
        return []


def _is_file(body: str) -> bool:
    try:
        return path_of(body).is_file()
    except OSError:
        return False


class _Config(Struct):
    model_type: str | None = None


def folder_kind(folder: Path) -> str | None:
    """Scheme of the model in a folder, detected by its files: "folder" (saved by isosent), "static" or "hf"."""
    if (folder / MODEL_FILE).exists():
        return "folder"
    if (folder / "modules.json").exists():  # sentence-transformers; Model2Vec writes one, too
        modules = read_json(folder / "modules.json", list[Module])
        return "static" if modules and modules[0]["type"].endswith(".StaticEmbedding") else "hf"
    if (folder / "config.json").exists():
        # the first releases of Model2Vec wrote no model_type
        return "static" if read_json(folder / "config.json", _Config).get("model_type") in (None, "model2vec") else "hf"
    if (folder / "model.safetensors").exists() and (folder / "tokenizer.json").exists():
        return "static"
    return "hf" if any(folder.glob("*.onnx")) or any(folder.glob("onnx/*.onnx")) else None


def _is_folder(body: str) -> bool:
    try:
        recover(unescape(body))
        return path_of(body).is_dir()
    except OSError:  # longer than a file name can be, or in the home of an unknown user
        return False


def _option(text: str, scheme: Scheme, name: str, value: Any) -> Any:
    if name not in OPTIONS:
        nearest = get_close_matches(name, scheme.options, n=1)
        advice = f"Did you mean {nearest[0]}?" if nearest else f"There are {', '.join(scheme.options)}."
        raise _refused(f"{text!r}: there is no option {name}. {advice}")
    if name not in scheme.options:
        raise _refused(f"{text!r}: {scheme.syntax} has no option {name}. It takes {', '.join(scheme.options)}.")
    try:
        return OPTIONS[name].parse(value)
    except (ValueError, TypeError, AttributeError, OverflowError):
        value = "***" if name == "key_env" else value  # a key, perhaps
        raise _refused(f"{text!r}: {name}={value}: choose {OPTIONS[name].rule}.") from None


def without_keys(text: str) -> str:
    """A reference for messages: of an API, without what may be a key."""
    if not re.search("api:|://", text, re.IGNORECASE):
        return text
    location, mark, query = text.partition("?")
    location = re.sub("%3F.*", "%3F***", re.sub("(//|:)[^/]*@", r"\1***@", location), flags=re.IGNORECASE)
    return location + mark + "&".join(re.sub("(?<==).+|^[^=]+$", "***", part) for part in query.split("&"))


def _refused(problem: str) -> ModelReferenceError:
    return ModelReferenceError(f"Model reference: {problem}")


def _not_understood(problem: str) -> ModelReferenceError:
    return _refused(f"{problem} {_ADVICE}")


def write_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Write typed options as text, as model folders and fingerprints hold them."""
    return {name: _option_text(value) for name, value in options.items()}


def with_options(text: str, options: Mapping[str, str]) -> str:
    """Write options into a reference; they win over those in it."""
    location, _, query = text.partition("?")
    parts = [part for part in query.split("&") if part and part.partition("=")[0] not in options]
    parts += [f"{name}={escape(value) if name in PROMPTS else value}" for name, value in options.items()]
    return f"{location}?{'&'.join(parts)}" if parts else location


def _option_text(value: Any) -> str:
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return ",".join(map(_option_text, value))
    return repr(float(value)).removesuffix(".0")  # the fewest digits that are read as the same number


def escape(path: str) -> str:
    """Escape a path for use in a reference."""
    return path.replace("%", "%25").replace("?", "%3F").replace(",", "%2C").replace("&", "%26")


def unescape(location: str) -> str:
    """Undo `escape`."""
    return location.replace("%2C", ",").replace("%3F", "?").replace("%26", "&").replace("%25", "%")


def path_of(location: str) -> Path:
    """Path of a location in a reference, with ``~`` expanded."""
    try:
        return Path(unescape(location)).expanduser()
    except RuntimeError as error:  # ``~name`` of a user that does not exist
        raise InputFileError(f"{location!r} is no path: {error}") from None


def with_absolute_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with absolute paths, so that a saved model finds its files from anywhere."""
    return {
        name: escape(str(path_of(value).resolve())) if name in FILE_OPTIONS and value not in _KEYWORDS else value
        for name, value in options.items()
    }


def stored_reference(
    text: str, options: Mapping[str, str], *, file: object, runtime: Mapping[str, Any] | None = None
) -> Reference:
    """Parse the reference of an encoder that a model folder holds."""
    # Every reference that comes out of a file passes through here or through `without_permissions`.
    text, options = without_permissions(text, options, file=file, ignored=RUNTIME_OPTIONS)
    parsed = parse_reference(text, {**options, **(runtime or {})}, in_use=True)
    if parsed.scheme == "folder":
        raise _refused(f"{file}: {text!r} is a saved model. Name an encoder.")
    return parsed


def without_permissions(
    text: str, options: Mapping[str, str], *, file: object, ignored: Collection[str] = PERMISSIONS
) -> tuple[str, dict[str, str]]:
    """Remove permissions, or other options, from a reference and options that a file holds, with a warning.

    A file sends nothing to an API: its reference gets ``send_texts=false``.
    """
    removed: list[str] = []

    def is_kept(name: str, value: str) -> bool:
        if name in ignored and value != "false":
            removed.append(name)
        return name not in ignored

    def clean(text: str) -> str:
        location, _, query = text.partition("?")
        parts = []
        for part in query.split("&"):
            name, _, value = part.partition("=")
            if is_kept(name, value):  # an encoder named within it (FOLDER?encoder=REFERENCE) is cleaned, too
                parts.append(f"{name}={clean(value)}" if name == "encoder" and value else part)
        if location.startswith("api:"):
            parts = [*filter(None, parts), "send_texts=false"]
        return f"{location}?{'&'.join(parts)}" if any(parts) else location

    text = clean(text)
    options = {
        name: clean(value) if name == "encoder" and isinstance(value, str) else value
        for name, value in options.items()
        if is_kept(name, value)
    }
    if removed:
        names = list(dict.fromkeys(removed))
        warnings.warn(
            f"{file}: {', '.join(names)} ignored. A file cannot grant permissions or choose how to compute. If you "
            f"want it, add it to the reference that you write, as in REFERENCE?{names[0]}=...",
            PermissionIgnoredWarning,
            stacklevel=6,  # the caller of `load`
        )
    return text, options


def relative_reference(reference: str, folder: Path) -> str | None:
    """Reference of an encoder within a folder, relative to that folder, so that the two can be moved together."""
    scheme, _, location = reference.partition(":")
    path, folder = Path(unescape(location)), folder.resolve()
    if scheme not in ("hf", "static") or not path.is_absolute() or folder not in path.parents:
        return None
    return f"{scheme}:{escape(path.relative_to(folder).as_posix())}"


def absolute_reference(relative: str, folder: Path) -> str:
    """Undo `relative_reference`."""
    scheme, _, location = relative.partition(":")
    path = Path(unescape(location))
    if scheme not in ("hf", "static") or path.is_absolute() or not path.parts or ".." in path.parts:
        raise ModelReferenceError(f"{relative!r} is no encoder inside a model folder, which is hf:NAME or static:NAME.")
    return f"{scheme}:{escape(str(folder.resolve() / path))}"


_WEIGHTINGS: Mapping[str, type[Weighting]] = {kind.name: kind for kind in (Average, SIF, USIF, PowerMean, GEM)}
_SETTINGS = {name: [each.name for each in fields(kind) if each.init] for name, kind in _WEIGHTINGS.items()}  # type: ignore[arg-type]


def weighting_of(options: Mapping[str, Any]) -> Weighting:
    """Make the weighting that typed options name."""
    name = options.get("weighting", Average.name)
    for other, settings in _SETTINGS.items():
        for setting in settings:
            if setting in options and setting not in _SETTINGS[name]:
                raise InputError(
                    f"{setting} is for weighting={other}, but the weighting is {name}. Leave {setting} out."
                )
    weighting = _WEIGHTINGS[name](**{setting: options[setting] for setting in _SETTINGS[name] if setting in options})
    return ZipfianWhitening(weighting) if options.get("zipfian") else weighting


def options_of(weighting: Weighting) -> dict[str, Any]:
    """Typed options of a weighting, the inverse of `weighting_of`."""
    if isinstance(weighting, ZipfianWhitening):
        return {"zipfian": True} | options_of(weighting.then)
    return {"weighting": weighting.name} | {name: getattr(weighting, name) for name in _SETTINGS[weighting.name]}
