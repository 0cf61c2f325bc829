"""JSON bodies of requests: what they hold, and why one is refused."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from typing import Final, TypeVar, get_args

import msgspec

from isosent.io.json import decode
from isosent.server.limits import RequestError

Body = TypeVar("Body", bound=msgspec.Struct)
_log = logging.getLogger("isosent.server")
_MOST_UNKNOWN: Final = 100  # names that are logged; a client may make up any number
_NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
# An escape of the first half of a character without one of the second half behind it, or the other way round.
_HALF_CHARACTER: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F])"
)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])  # values are skipped, not read

_unknown: set[tuple[str, str]] = set()
_lock = threading.Lock()


def decode_body(content: bytes, kind: type[Body], *, wrong: int = 422) -> Body:
    """Decode the body of a request; `wrong` is the status for one that is JSON, but not as it should be.

    Fields that are unknown are left out, unless the struct forbids them: a newer client may send more than this server
    knows. The log names each of them once.
    """
    try:
        body = decode(content, kind)
        if not kind.__struct_config__.forbid_unknown_fields:
            _log_unknown(content, kind)
    except msgspec.ValidationError as error:
        place = re.search(r"`\$\.(\w+)", str(error)) or re.search(r"field `(\w+)`", str(error))
        names = ", ".join(field.name for field in msgspec.structs.fields(kind))
        message = f"the body must have other fields or values: {_short(str(error))}. Its fields are {names}."
        raise RequestError(wrong, message, param=place and place[1]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = _short(str(error))
        if _HALF_CHARACTER.search(content):
            reason = "a text has one half of a surrogate pair, such as \\ud83d without \\ude00, which is no character"
        elif isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        raise RequestError(400, f"the body is no valid JSON: {reason}.") from None
    return body


def _short(message: str) -> str:
    return message.rstrip(".").replace("\n", " ")[:300]


def _log_unknown(content: bytes | msgspec.Raw, kind: type[msgspec.Struct]) -> None:
    for name in _unknown_fields(content, kind):
        with _lock:
            is_new = (kind.__name__, name) not in _unknown and len(_unknown) < _MOST_UNKNOWN
            if is_new:
                _unknown.add((kind.__name__, name))
        if is_new:
            shown = name if _NAME.fullmatch(name) else "(not a name)"  # which could be a text
            _log.warning("unknown field ignored", extra={"facts": {"body": kind.__name__, "field": shown}})


def _unknown_fields(content: bytes | msgspec.Raw, kind: type[msgspec.Struct]) -> Iterator[str]:
    """Names that a struct, or one in it, does not have."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in _MEMBERS.decode(content).items():
        if name not in fields:
            yield name
            continue
        for nested in (fields[name], *get_args(fields[name])):  # a struct, or a union with one
            if isinstance(nested, type) and issubclass(nested, msgspec.Struct) and bytes(memoryview(value)[:1]) == b"{":
                yield from (f"{name}.{inner}" for inner in _unknown_fields(value, nested))
