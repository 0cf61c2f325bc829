"""What an embedding API says no to, and when it may be asked again.

A `RefusalError` is about a format, a number of texts, their length, or something else; APIs say so in sentences, which
it reads. `wait_of` reads how long to wait. Messages of the API are passed on without folders and keys.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

LONGEST_MESSAGE: Final = 500
_FEW_BYTES: Final = 1 << 18  # of a request, that are refused for the number of its texts and not for its length
_MOST_PROBLEMS: Final = 8
# What the error of an API may be about. Each has its own sentences.
_GENERIC: Final = re.compile(
    r"(http|error|status|code|40\d|413|422|bad|invalid|request|unprocessable|entity|content|payload|too large|input|"
    r"value|parameters?|arguments?|validation|failed|_)[\s:.]*",
    re.IGNORECASE,
)
_SAYS_FORMAT: Final = re.compile(r"base64|encoding.?format|encoding_?type|\bencoding\b", re.IGNORECASE)
_SAYS_NUMBER: Final = re.compile(
    r"batch|\b(inputs|items|texts|documents|entries|elements|sentences|strings|requests|instances|chunks|contents)\b|"
    r"\b(array|list)\b|input.?(size|count|length)|per request",
    re.IGNORECASE,
)
_SAYS_LENGTH: Final = re.compile(r"token|character|context|bytes|\b[km]i?b\b", re.IGNORECASE)
_MOST: Final = re.compile(
    r"(?:than|at most|max\w*|limit\w*|up to|exceed\w*|only|within|<=?)\D{0,40}?(\d{1,5})(?!\d)", re.IGNORECASE
)
_FOLDER: Final = re.compile(
    r"(?<![\w/:.])(?:[a-z]+:)?(?:/(?!/|v\d|api/|openai/)|[A-Za-z]:\\)(?:[^\s'\"`/\\]+[/\\])*(?P<name>[^\s'\"`/\\]+)"
)
_WAIT: Final = re.compile(r"(?:try again in|retry in|retryDelay\W{1,5})\s*(?P<n>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m)\b")
_SECONDS_OF: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_NO_CREDIT: Final = ("insufficient_quota", "billing_hard_limit_reached")  # codes that no waiting mends
_LONGEST_ANSWER: Final = 1 << 16  # bytes of an error that are searched


class HttpError(Exception):
    """An answer that is no success; its message is for a client, and says nothing about the machine."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.param, self.code = param, code  # of OpenAI's errors
        self.headers = dict(headers or {})
        self.item: object = None  # the text that it is about, if it is known to be a single one


class RefusalError(HttpError):
    """What the API said no to, and what that can be about."""

    def __init__(self, status: int, message: str, *, said: str | None, n_sent: int, answered: int, **more: Any) -> None:
        super().__init__(status, message, **more)
        self.answered = answered  # by the API, whatever `status` is
        said = said or ""
        self._says_nothing = not _GENERIC.sub("", said).strip(" .:!")
        self._says_format, self._says_number = bool(_SAYS_FORMAT.search(said)), bool(_SAYS_NUMBER.search(said))
        self._said, self._n_sent = said, n_sent

    def is_about_format(self, *, is_known: bool) -> bool:
        """Whether another format may be taken; `is_known` if this one has been."""
        return self._says_format or (self._says_nothing and self.status in (400, 422) and not is_known)

    @property
    def is_about_number(self) -> bool:
        """Whether it refuses a number of texts, whatever their length."""
        if self.is_about_length:
            return False
        return self._says_number or self._n_sent <= _FEW_BYTES

    @property
    def is_about_length(self) -> bool:
        """Whether it refuses the length of a text, or of all texts together."""
        return bool(_SAYS_LENGTH.search(self._said))

    def size_of_parts(self, n_items: int) -> int | None:
        """How many texts the API may take in place of so many; None if it refuses something else."""
        may_be = self.status == 413 or (self.status in (400, 422) and (self._says_number or self._says_nothing))
        if n_items < 2 or not may_be:
            return None
        numbers = [int(number) for number in _MOST.findall(self._said)]
        return next((number for number in numbers if 1 <= number < n_items), (n_items + 1) // 2)


def said_in(headers: Mapping[str, str], content: bytes) -> tuple[Any, str | None]:
    """The answer of an API that refuses, if it is JSON, and what it says in words."""
    try:
        answer = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, _plain_text(headers, content)
    said = _message_in(answer)
    # what a terminal would obey, and what turns the direction of a line
    return answer, said and "".join(each if each.isprintable() else " " for each in said)


def code_in(answer: Any) -> str | None:
    """The code of an error, as OpenAI gives it."""
    details = answer.get("error") if isinstance(answer, dict) else None
    code = details.get("code") if isinstance(details, dict) else None
    return code if isinstance(code, str) else None


def wait_of(headers: Mapping[str, str], content: bytes = b"") -> float | None:
    """Seconds after which an API may be asked again: its header says so, or its error; infinity if never."""
    if code_in(said_in(headers, content)[0]) in _NO_CREDIT:
        return float("inf")
    milliseconds, value = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)?", milliseconds):
        return float(milliseconds) / 1000
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value):
        return float(value)
    try:  # a date
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        found = _WAIT.search(content[:_LONGEST_ANSWER].decode("utf-8", "replace"))
        return float(found["n"]) * _SECONDS_OF[found["unit"]] if found else None


def rate_limits(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that tell a client when to come again."""
    return {
        name: value
        for name, value in headers.items()
        if name.lower() == "retry-after" or name.lower().startswith("x-ratelimit-")
    }


def _message_in(answer: Any) -> str | None:
    """The message of an error in any of the dialects: a text, or what was wrong with which field (FastAPI)."""
    if isinstance(answer, str):
        return answer or None
    if isinstance(answer, list):  # Gemini has a list of one
        return "; ".join(filter(None, map(_message_in, answer[:_MOST_PROBLEMS]))) or None
    if not isinstance(answer, dict):
        return None
    place = answer.get("loc")
    if isinstance(said := answer.get("msg"), str) and isinstance(place, list):  # and not its input: it may be a text
        return f"{'.'.join(map(str, place))}: {said}"
    names = ("error", "message", "detail", "details", "msg", "errors")
    return next((said for name in names if name in answer and (said := _message_in(answer[name]))), None)


def _plain_text(headers: Mapping[str, str], content: bytes) -> str | None:
    """A short message that is no JSON."""
    kind = headers.get("content-type", "").partition(";")[0]
    text = " ".join(content[: 4 * LONGEST_MESSAGE].decode("utf-8", "replace").split())
    return text if text and kind in ("", "text/plain") and text.isprintable() and "<" not in text[:1] else None


def without_folders(message: str) -> str:
    """A message with the last name of each folder and file of another machine, or of this one."""
    return _FOLDER.sub(lambda match: match["name"], message)
