"""Weightings as options of a model reference, and back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from isosent._check import split_options
from isosent.encoders.options import (
    MODEL,
    OPTIONS,
    PERMISSIONS,
    RUNNING,
    RUNTIME_OPTIONS,
    WORD_PANELS,
    options_under,
    written_number,
)
from isosent.encoders.word_average import GEM, SIF, USIF, Average, PowerMean, Weighting, ZipfianWhitening
from isosent.errors import InputError, ModelReferenceError, PermissionIgnoredWarning
from isosent.io.atomic import recover

WEIGHTING_OPTIONS = (
    *("weighting", "zipfian", "frequencies", "a", "n_components", "powers", "z_norm"),
    *("window", "n_candidates", "n_removed", "power", "removal", "scores", "significance", "ranking", "uniqueness"),
)

PROMPTS = ("prompt", "query_prompt", "document_prompt")

DEFAULT_REFERENCE = "wordllama"
MODEL_FILE = "model.json"


@dataclass(frozen=True, slots=True)
class Scheme:
    """One kind of model."""

    name: str  # its name, which is also its prefix where there is one
    syntax: str  # how it is written
    summary: str  # what it is
    options: tuple[str, ...]  # names of the options it takes


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            "wordllama",
            "wordllama",
            "32,000 x 256 static token vectors that come with isosent (the default)",
            WEIGHTING_OPTIONS,
        ),
        Scheme(
            "words",
            "words:FILE[,FILE...]",
            "word vectors: GloVe, word2vec, fastText, text or binary",
            ("lowercase", "tokenizer", "punctuation", "stop_words", "unknown", "vocabulary", *WEIGHTING_OPTIONS),
        ),
        Scheme("static", "static:DIR", "a Model2Vec folder", ("normalize", "max_length", *WEIGHTING_OPTIONS)),
        Scheme(
            "hf",
            "hf:ID-OR-DIR",
            "a transformers encoder or sentence-transformers model, from the hub (ID[@REVISION]) or a folder",
            (
                *("layers", "pooling", "dense", "normalize", "max_length", "long", "overlap", *PROMPTS, "static"),
                *WEIGHTING_OPTIONS,
                *RUNTIME_OPTIONS,
            ),
        ),
        Scheme("folder", "FOLDER", "a model saved by isosent", ("encoder", *RUNTIME_OPTIONS)),
    )
}

GRAMMAR = "\n".join(
    [
        "A model reference is one of:",
        *(f"  {scheme.syntax:<22} {scheme.summary}" for scheme in SCHEMES.values()),
        "Options may follow, as in hf:DIR?layers=1,-1&pooling=mean:",
        *(f"  {f'{option.name}={option.values}':<22} {option.summary}" for option in options_under(MODEL)),
        *(
            f"  {panel}: {', '.join(option.name for option in options_under(panel))}"
            for panel in (RUNNING, *WORD_PANELS)
        ),
        "In a path, %2C, %3F, %26 and %25 stand for a comma, a question mark, an ampersand and a percent sign.",
    ]
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed model reference."""

    scheme: str  # A key of `SCHEMES`
    location: str  # what stands behind the prefix, still escaped (see `unescape`); empty for ``wordllama``
    options: Mapping[str, str]  # checked options in their stored spelling


def parse_reference(text: str, options: Mapping[str, str] | None = None, *, in_use: bool = False) -> Reference:
    """Parse a model reference."""
    try:
        body, written = split_options(text)
    except InputError as error:
        raise _refused(str(error)) from None
    written = {name: unescape(value) if name in PROMPTS else value for name, value in written.items()}
    scheme, location = ("wordllama", "") if in_use and body == "wordllama" else _scheme_of(text, body)
    checked = {
        name: _check_option(text, SCHEMES[scheme], name, value)
        for name, value in (written | dict(options or {})).items()
    }
    return Reference(scheme, location, checked)


def stored_reference(
    text: str, options: Mapping[str, str], *, file: object, runtime: Mapping[str, str] | None = None
) -> Reference:
    """Parse the reference of an encoder that a model folder holds."""
    # Every reference that comes out of a file passes through here or through `without_permissions`.
    text, options = without_permissions(text, options, file=file, ignored=RUNTIME_OPTIONS)
    parsed = parse_reference(text, {**options, **(runtime or {})}, in_use=True)
    if parsed.scheme == "folder":
        raise _refused(f"{file} must name an encoder; {text!r} is a saved model.")
    return parsed


def without_permissions(
    text: str, options: Mapping[str, str], *, file: object, ignored: Collection[str] = PERMISSIONS
) -> tuple[str, dict[str, str]]:
    """Take the permissions, or other options, out of what a file holds: a reference and options beside it."""
    # Those of an encoder named within it (``FOLDER?encoder=REFERENCE``) are taken out, too; what was granted is named
    # in a `PermissionIgnoredWarning`.
    found: list[str] = []

    def is_kept(name: str, value: str) -> bool:
        if name in ignored and value != "false":
            found.append(name)
        return name not in ignored

    def clean(text: str) -> str:
        location, _, query = text.partition("?")
        parts = []
        for part in query.split("&"):
            name, _, value = part.partition("=")
            if is_kept(name, value):
                parts.append(f"{name}={clean(value)}" if name == "encoder" and value else part)
        return f"{location}?{'&'.join(parts)}" if parts and "?" in text else location

    text = clean(text)
    options = {
        name: clean(value) if name == "encoder" and isinstance(value, str) else value
        for name, value in options.items()
        if is_kept(name, value)
    }
    if found:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in dict.fromkeys(found))
        warnings.warn(
            f"{file}: {', '.join(dict.fromkeys(found))} ignored. A file cannot grant permissions or choose how to "
            f"compute. If you want it, ask for it yourself: behind the reference that you write, as in "
            f"REFERENCE?{found[0]}=..., or with {flags}.",
            PermissionIgnoredWarning,
            stacklevel=6,  # the caller of `load`
        )
    return text, options


def escape(path: str) -> str:
    """Write a path so that it can stand in a reference."""
    return path.replace("%", "%25").replace("?", "%3F").replace(",", "%2C").replace("&", "%26")


def unescape(location: str) -> str:
    """Undo `escape`."""
    return location.replace("%2C", ",").replace("%3F", "?").replace("%26", "&").replace("%25", "%")


def _scheme_of(text: str, body: str) -> tuple[str, str]:
    prefix = re.match(r"([A-Za-z][A-Za-z0-9_]+):", body)
    if prefix and not _is_folder(body):
        name, location = prefix[1], body[prefix.end() :]
        if name not in ("words", "static", "hf"):
            raise _not_understood(f"{text!r} has the unknown prefix {name}:.")
        if not location:
            raise _not_understood(f"{text!r} names nothing behind {name}:.")
        return name, location
    if body == "wordllama":
        if Path(body, MODEL_FILE).exists():
            raise _refused("'wordllama' is also a model folder here. Write ./wordllama for the folder.")
        return "wordllama", ""
    if not body or not _is_folder(body):
        raise _not_understood(f"{text!r} is no model reference and no folder.")
    if not Path(unescape(body), MODEL_FILE).exists() and Path(unescape(body), "config.json").exists():
        raise _refused(f"{text!r} is no model saved by isosent. Write hf:{body} or static:{body}, whichever it is.")
    return "folder", body


def _is_folder(body: str) -> bool:
    try:
        recover(unescape(body))
        return Path(unescape(body)).is_dir()
    except OSError:  # longer than a file name can be
        return False


def _check_option(text: str, scheme: Scheme, name: str, value: str) -> str:
    if name not in OPTIONS:
        nearest = get_close_matches(name, scheme.options, n=1, cutoff=0)[0]
        raise _refused(f"{text!r}: there is no option {name}. The nearest for {scheme.syntax} is {nearest}.")
    option = OPTIONS[name]
    if name not in scheme.options:
        raise _refused(f"{text!r}: {scheme.syntax} takes {', '.join(scheme.options)}; got {name}.")
    try:
        if isinstance(value, str):
            return option.parse(value)
    except ValueError:
        pass
    raise _refused(f"{text!r}: {name} must {option.rule}; got {value!r}.")


def _refused(problem: str) -> ModelReferenceError:
    return ModelReferenceError(f"Model reference: {problem}")


def _not_understood(problem: str) -> ModelReferenceError:
    return ModelReferenceError(f"Model reference: {problem}\n{GRAMMAR}")


WEIGHTINGS: Mapping[str, type[Weighting]] = {kind.name: kind for kind in (Average, SIF, USIF, PowerMean, GEM)}
SETTINGS: Mapping[str, Mapping[str, Any]] = {  # with their defaults
    name: {each.name: each.default for each in fields(kind) if each.init}  # type: ignore[arg-type]
    for name, kind in WEIGHTINGS.items()
}


def weighting_of(options: Mapping[str, str]) -> Weighting:
    """Make the weighting that options name."""
    name = options.get("weighting", Average.name)
    foreign = {setting: other for other, owned in SETTINGS.items() for setting in owned if setting in options}
    for setting in SETTINGS[name]:
        foreign.pop(setting, None)
    for setting, other in foreign.items():
        raise InputError(f"{setting} must come with weighting={other}; got weighting={name}.")
    kind = WEIGHTINGS[name]
    written = {setting: default for setting, default in SETTINGS[name].items() if setting in options}
    chosen = kind(**{setting: _read(options[setting], default) for setting, default in written.items()})
    return ZipfianWhitening(chosen) if options.get("zipfian") == "true" else chosen


def options_of(weighting: Weighting) -> dict[str, str]:
    """Write a weighting as options of a model reference, the inverse of `weighting_of`."""
    if isinstance(weighting, ZipfianWhitening):
        return {"zipfian": "true"} | options_of(weighting.then)
    settings = {setting: _written(getattr(weighting, setting)) for setting in SETTINGS[weighting.name]}
    return {"weighting": weighting.name} | settings


def _written(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return ",".join(map(_written, value)) if isinstance(value, Iterable) else written_number(value)


def _read(text: str, like: Any) -> Any:
    """What was written, of the type of a default."""
    if isinstance(like, tuple):
        return tuple(_read(part, like[0]) for part in text.split(","))
    return text == "true" if isinstance(like, bool) else type(like)(text)
