"""Fields of requests that this server does not have, but other servers and APIs do.

A field that says who asks, or when, changes no vector (`INERT`). One that says how a vector comes about does, and to
ignore it would give a client another vector than it requested. So `refuse_if_ignored` rejects such a field, unless its
value is what happens anyway, and the proxy sends it to the API (`upstream_fields`). There, what the proxy itself says
to the API (format and dimensions), and what would make a vector depend on the other texts of a request, is rejected.
The names are those of OpenAI, Cohere, Voyage, Jina, Mistral, Gemini, Text Embeddings Inference, vLLM, infinity, NIM and
Ollama, recognized by what they have in common, because each spells them in its way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from isosent.role import RoleName
from isosent.server.limits import RequestError
from isosent.storage import Storage

INERT: Final = frozenset(
    {"user", "metadata", "tags", "priority", "request_id", "safety_identifier", "service_tier", "store", "cache_salt"}
    | {"prompt_cache_key", "prompt_cache_retention"}
)
SIDES: Final = ("input_type", "prompt_name")  # which side of a model the texts are on
_OTHER_SIDES: Final = ("task", "task_type", "taskType", "text_type", "inputType")  # the same, elsewhere

_ROLES: Final[dict[str, RoleName]] = {"query": "query", "document": "document", "passage": "document"}
_QUERIES: Final = ("question_answering", "fact_verification")  # tasks of Gemini: the documents are retrieval_document

# what a name says, in this order: "truncate_dim" is about dimensions
_ABOUT: Final = {
    "model": r"^(engine|deployment|checkpoint|revision|model_?(name|id|path|version|revision)|deployment_?(name|id))$",
    "dimensions": r"dimension|(^|_)dims?(_|$)|(embedding|vector|output)_?size|n_components",
    "format": r"dtype|precision|quanti|endian|encoding|(embedding|output|response)_?(type|format|mode)|multi_?vector|"
    r"sparse|binar(y|ize)|compress|late_?interaction|colbert",
    "chunks": r"chunk|contextual",
    "length": r"truncat|max_?(input|text|sentence|sequence)?_?(tokens|len|seq|words|char)|^num_?ctx$",
    "scale": r"normali[sz]|(^|_)norm(ed)?(_|$)|unit_?(norm|length)",
    "side": r"(task|inputs?|text|sentence)_?type|^task|prompt|instruct|^(role|mode|purpose|intent)$|"
    r"^(is|for)_?(query|document|passage)",
    "other": r"prefix|suffix|template|title|special_tokens|pool|dense|layer|modal|image|language|^lang$|extra_?body|"
    r"^messages$|adapter|lora|hidden_?state|lower_?case|whiten|aggregat",
}
_PATTERNS: Final = {about: re.compile(pattern, re.IGNORECASE) for about, pattern in _ABOUT.items()}
_ON: Final = re.compile(  # so unless it is switched off
    rf"{_ABOUT['scale']}|special_tokens|truncat|dense", re.IGNORECASE
)
_OFF: Final = re.compile(r"(?:^|[_.])(?:no|not|non|skip|disabled?|without)(?:_|(?=[A-Z]))|(?:^|[_.])un_?normali")
_AS_IT_IS: Final[dict[str, tuple[Any, ...]]] = {
    "format": ("float", Storage.float32, "native", "little", "dense", ["float"]),
    "length": ("END", "end", "right", "Right", -1),
    "side": ("text", "default"),
    "other": ("text",),
}
_SAME_SPACE: Final = ("length", "scale")  # vectors of which may be compared
_INSTEAD: Final = {
    "model": ", or name the model by model",
    "dimensions": ", or use dimensions",
    "length": ", or use truncate: false rejects long texts",
    "side": ", or say query or document by input_type or prompt_name where the path has it",
    "format": "; vectors are float32, and encoding_format is float or base64",
}
_MOST_BYTES: Final = 1 << 14  # of the fields that each request to the API repeats
_SHOWN: Final = 60
_MOST_FIELDS: Final = 200  # of one request that are unknown, those in them included
_LONGEST_NAME: Final = 200


def _about(name: str) -> str | None:
    """What a field says of the vectors, by its name; None if nothing is known."""
    last = name.rpartition(".")[2].replace("-", "_")
    if last in INERT:
        return None
    return next((about for about, pattern in _PATTERNS.items() if pattern.search(last)), None)


def _is_as_it_is(name: str, about: str | None, value: Any) -> bool:
    """Whether a value says what happens anyway."""
    if isinstance(value, bool):
        return value is (bool(_ON.search(name)) != bool(_OFF.search(name)))
    return value in (None, "", [], {}) or value in _AS_IT_IS.get(about or "", ())


def refuse_if_ignored(name: str, value: Any, *, status: int) -> None:
    """Reject a field that a body does not have if it would change vectors, or one in it."""
    about = _about(name)
    for inner, more in _members(name, about, value):
        refuse_if_ignored(inner, more, status=status)
    if about is not None and not _is_as_it_is(name, about, value):
        message = f"{_field_text(name, value)} would have no effect here. Leave it out{_INSTEAD.get(about, '')}."
        raise RequestError(status, message, param=name)


def refuse_too_many(fields: Mapping[str, Any], *, status: int) -> None:
    """Reject more unknown fields than a client sends in good faith, before each is looked at."""
    waiting = list(islice(fields.items(), _MOST_FIELDS + 1))
    n_fields = 0
    while waiting:
        name, value = waiting.pop()
        n_fields += 1
        if len(name) > _LONGEST_NAME:
            message = f"{name[:_SHOWN]}... is no field: its name has {len(name):,} characters. Leave it out."
            raise RequestError(status, message)
        waiting += islice(_members(name, _about(name), value), _MOST_FIELDS + 1)
        if n_fields + len(waiting) > _MOST_FIELDS:
            raise RequestError(status, f"the body has more than {_MOST_FIELDS} unknown fields. Leave them out.")


def _members(name: str, about: str | None, value: Any) -> Iterator[tuple[str, Any]]:
    """Fields in a field whose name says nothing, such as `parameters` or `encode_kwargs`."""
    if isinstance(value, dict) and about is None and name.rpartition(".")[2] not in INERT:
        yield from ((f"{name}.{inner}", more) for inner, more in value.items())


def _field_text(name: str, value: Any) -> str:
    text = str(msgspec.json.encode(value), "utf-8")
    return f"{name}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"


def upstream_fields(fields: Mapping[str, Any], *, takes: Collection[str] | None, has_map: bool) -> dict[str, Any]:
    """The fields of a request that an API is sent with its texts.

    Parameters
    ----------
    fields : mapping of str to object
        Fields that the proxy itself does not have.
    takes : collection of str or None
        Fields that the API is known to take; None if nobody knows.
    has_map : bool
        Whether its vectors are transformed, by a map that was fitted on vectors of one scale.

    Returns
    -------
    dict of str to object
        Those that may change its vectors.

    Raises
    ------
    RequestError
        With status 400, if a field cannot have the effect that it has elsewhere.
    """
    sent = {}
    for name, value in fields.items():
        about = _about(name)
        if value is None or name in INERT:
            continue
        reason = _why_not(name, about, has_map=has_map)
        if reason is None and takes is not None and name not in takes:
            reason = f"this API has no such field. Leave it out{_INSTEAD.get(about or '', '')}"
        if reason is None:
            sent[name] = value
        elif not _is_as_it_is(name, about, value):
            raise RequestError(400, f"{_field_text(name, value)}: {reason}.", param=name)
        if reason is None:
            _refuse_members(name, about, value, has_map=has_map)
    if len(msgspec.json.encode(sent)) > _MOST_BYTES:
        message = f"the fields next to input have more than {_MOST_BYTES} bytes. Send fewer: {', '.join(sent)[:200]}."
        raise RequestError(400, message)
    return sent


def _refuse_members(name: str, about: str | None, value: Any, *, has_map: bool) -> None:
    for inner, more in _members(name, about, value):
        kind = _about(inner)
        reason = _why_not(inner.rpartition(".")[2], kind, has_map=has_map)
        if reason is not None and not _is_as_it_is(inner, kind, more):
            raise RequestError(400, f"{_field_text(inner, more)}: {reason}.", param=inner)
        _refuse_members(inner, kind, more, has_map=has_map)


def _why_not(name: str, about: str | None, *, has_map: bool) -> str | None:
    """Why the proxy cannot send a field to any API."""
    if name.lower() in ("extra_body", "extrabody"):
        return "send the fields in it next to input"
    if about == "dimensions":
        return "the proxy requests all dimensions. Use dimensions"
    if about == "format":
        return "the proxy requests float32. Leave it out"
    if about == "chunks":
        return "the vector of a text would depend on the other texts of the request. Leave it out"
    if about == "scale" and has_map:
        return "vectors have length 1 after the transform. Leave it out"
    return None


def space_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields that an API is sent with which its vectors may not be comparable with those without.

    Queries and documents are compared with each other, and so are cut texts, and vectors of any length.
    """

    def is_comparable(name: str, value: Any) -> bool:
        is_side = name in (*SIDES, *_OTHER_SIDES) and isinstance(value, str) and role_of(value) != "text"
        return is_side or name == "keep_alive" or _about(name) in _SAME_SPACE

    return {name: value for name, value in fields.items() if not is_comparable(name, value)}


def sides_of(fields: Mapping[str, Any]) -> list[str]:
    """What fields say of the side of a model that the texts are on."""
    return [value for name in (*SIDES, *_OTHER_SIDES) if isinstance(value := fields.get(name), str)]


def role_of(*sides: str | None) -> RoleName:
    """Role of texts, as requests name it, such as `search_query`, or `retrieval.query` of Jina."""
    names = ["query" if side.lower() in _QUERIES else re.split(r"[._]", side.lower())[-1] for side in sides if side]
    roles = {_ROLES[name] for name in names if name in _ROLES}
    if len(roles) > 1:
        raise RequestError(400, f"{' and '.join(filter(None, sides))} contradict each other. Send one of them.")
    return roles.pop() if roles else "text"
