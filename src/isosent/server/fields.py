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
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from isosent.server.service import RequestError

INERT: Final = frozenset(
    {"user", "metadata", "tags", "priority", "request_id", "safety_identifier", "service_tier", "store", "cache_salt"}
    | {"prompt_cache_key", "prompt_cache_retention"}
)
SIDES: Final = ("input_type", "prompt_name")  # which side of a model the texts are on
_OTHER_SIDES: Final = ("task", "task_type", "taskType", "text_type", "inputType")  # the same, elsewhere

# what a name says, in this order: "truncate_dim" is about dimensions
_ABOUT: Final = {
    "dimensions": r"dimension|(^|_)dims?(_|$)",
    "format": r"dtype|precision|quanti|endian|encoding|(embedding|output|response)_?(type|format)|multi_?vector|sparse",
    "chunks": r"chunk|contextual",
    "length": r"truncat|max_?(input_?)?(tokens|length|seq)",
    "scale": r"normali[sz]",
    "side": r"(task|input|text)_?type|^task|prompt|instruct|^role$",
    "other": r"prefix|suffix|template|title|special_tokens|pool|dense|layer|modal|image|language|^lang$|extra_?body|"
    r"^messages$|adapter|lora",
}
_PATTERNS: Final = {about: re.compile(pattern, re.IGNORECASE) for about, pattern in _ABOUT.items()}
_ON: Final = re.compile(r"normali[sz]|special_tokens|truncat|dense", re.IGNORECASE)  # so unless it is switched off
_AS_IT_IS: Final[dict[str, tuple[Any, ...]]] = {
    "format": ("float", "float32", "native", "little", "dense", ["float"]),
    "length": ("END", "end", "right", "Right", -1),
    "side": ("text", "default"),
    "other": ("text",),
}
_INSTEAD: Final = {
    "dimensions": ", or use dimensions",
    "length": ", or use truncate: false rejects long texts",
    "side": ", or say query or document by input_type or prompt_name where the path has it",
    "format": "; vectors are float32, and encoding_format is float or base64",
}
_MOST_BYTES: Final = 1 << 14  # of the fields that each request to the API repeats
_SHOWN: Final = 60


def _about(name: str) -> str | None:
    """What a field says of the vectors, by its name; None if nothing is known."""
    last = name.rpartition(".")[2]
    if last in INERT:
        return None
    return next((about for about, pattern in _PATTERNS.items() if pattern.search(last)), None)


def _is_as_it_is(name: str, about: str | None, value: Any) -> bool:
    """Whether a value says what happens anyway."""
    if isinstance(value, bool):
        return value is bool(_ON.search(name))
    return value in (None, "", [], {}) or value in _AS_IT_IS.get(about or "", ())


def refuse_if_ignored(name: str, value: Any, *, status: int) -> None:
    """Reject a field that a body does not have if it would change vectors."""
    about = _about(name)
    if about is not None and not _is_as_it_is(name, about, value):
        message = f"{_shown(name, value)} would have no effect here. Leave it out{_INSTEAD.get(about, '')}."
        raise RequestError(status, message, param=name)


def _shown(name: str, value: Any) -> str:
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
            raise RequestError(400, f"{_shown(name, value)}: {reason}.", param=name)
    if len(msgspec.json.encode(sent)) > _MOST_BYTES:
        message = f"the fields next to input have more than {_MOST_BYTES} bytes. Send fewer: {', '.join(sent)[:200]}."
        raise RequestError(400, message)
    return sent


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


def sides_of(fields: Mapping[str, Any]) -> list[str]:
    """What fields say of the side of a model that the texts are on."""
    return [value for name in (*SIDES, *_OTHER_SIDES) if isinstance(value := fields.get(name), str)]
