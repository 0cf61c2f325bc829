"""Embedding APIs: OpenAI, Azure, Cohere, Text Embeddings Inference, Ollama.

A `Dialect` says how an API is asked and how it answers. `Upstream` is one API: it splits the texts into requests of the
size that the API takes (`embed`), sends each, a few times if need be (`_asked`), and checks what comes back
(`_vectors_in`). An API may take fewer texts per request than its dialect says (`_embed_block` sends parts), or no
base64 (`_answer_in_format` requests floats); what it has refused once it is not sent again. From the outcomes it is
known whether the API can be reached (`is_up`). Errors of the API become a `RequestError` for the client, without what
could be somebody's text or key.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.io.answers import unpacked
from isosent.role import RoleName
from isosent.server.fields import NO_FIELDS
from isosent.server.service import RequestError

Item = str | tuple[int, ...]  # a text, or its token ids

_ATTEMPTS: Final = 3
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 20.0
_LONGEST_MESSAGE: Final = 500
_MOST_BYTES: Final = 1 << 28
_RETRIED = (429, 500, 502, 503, 504)
_NOBODY_BEHIND: Final = (502, 503, 504)  # what a load balancer answers for servers that are down
_KNOWN_FOR_S: Final = 10.0  # how long the last answer says whether the API can be reached
_FAILURES_IN_A_ROW: Final = 3  # as many as a request has attempts
_PROBE_TIMEOUT_S: Final = 3.0


_COUNTS: Final = ("prompt_tokens", "total_tokens", "input_tokens")  # of texts, which are all tokens of an embedding
_FORMAT: Final = "encoding_format"
_FORMATS: Final[tuple[str | None, ...]] = ("base64", "float", None)  # in this order; without a format, APIs send floats
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


class Answer(NamedTuple):
    """Vectors of an upstream API, as they came."""

    vectors: NDArray[np.float32]  # (n_items, dim)
    n_tokens: int  # that the upstream charged for
    headers: dict[str, str]  # its rate limits


class Dialect(NamedTuple):
    """How an API is asked, and how it answers."""

    path: str  # after the URL of the API
    most_items: int  # of one request
    takes_ids: bool
    body: Callable[[Sequence[Item], str, RoleName], dict[str, Any]]
    rows: Callable[[Any], list[Any]]  # vectors in the answer: lists of numbers, or base64
    n_tokens: Callable[[Any, httpx.Headers], Any]
    key_header: str = "Authorization"
    has_roles: bool = False  # whether queries and documents have different vectors
    fields: frozenset[str] | None = None  # that it takes besides; None if that depends on who speaks it


def _openai_body(items: Sequence[Item], model: str, role: RoleName) -> dict[str, Any]:
    return {"input": list(items), "model": model, "encoding_format": "base64"}


def _openai_rows(answer: Any) -> list[Any]:
    """Vectors by their numbers. Some APIs send no numbers, and Gemini none that is 0."""
    data = answer["data"]
    numbers = [row.get("index") for row in data]
    if all(number is None for number in numbers):
        return [row["embedding"] for row in data]
    if numbers[0] is None:
        numbers[0] = 0
    if sorted(numbers) != list(range(len(data))):
        raise ValueError("the rows are not numbered from 0 on")
    return [data[place]["embedding"] for place in np.argsort(numbers, kind="stable")]


def _openai_tokens(answer: Any, headers: httpx.Headers) -> Any:
    usage = answer.get("usage")
    counts = [_whole_number(usage.get(name)) for name in _COUNTS] if isinstance(usage, dict) else []
    return next(filter(None, counts), 0)


def _cohere_body(items: Sequence[Item], model: str, role: RoleName) -> dict[str, Any]:
    input_type = "search_query" if role == "query" else "search_document"
    return {"texts": list(items), "model": model, "input_type": input_type, "embedding_types": ["float"]}


DIALECTS = {
    "openai": Dialect("/embeddings", 2048, True, _openai_body, _openai_rows, _openai_tokens),
    "azure": Dialect("", 2048, True, _openai_body, _openai_rows, _openai_tokens, key_header="api-key"),
    "cohere": Dialect(
        "/v2/embed",
        96,
        False,
        _cohere_body,
        lambda answer: answer["embeddings"]["float"],
        lambda answer, headers: ((answer.get("meta") or {}).get("billed_units") or {}).get("input_tokens"),
        has_roles=True,
        fields=frozenset({"input_type", "truncate", "max_tokens"}),
    ),
    "tei": Dialect(
        "/embed",
        32,
        True,
        lambda items, *_: {"inputs": list(items), "truncate": True},
        list,
        lambda answer, headers: int(n) if (n := headers.get("x-compute-tokens", "")).isdecimal() else 0,
        fields=frozenset({"truncate", "truncation_direction", "prompt_name", "normalize"}),
    ),
    "ollama": Dialect(
        "/api/embed",
        256,
        False,
        lambda items, model, _: {"model": model, "input": list(items)},
        lambda answer: answer["embeddings"],
        lambda answer, headers: answer.get("prompt_eval_count"),
        fields=frozenset({"truncate", "options", "keep_alive"}),
    ),
}


def dialect_of(url: str) -> str:
    """The dialect of an API, by its URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host.endswith(".openai.azure.com") or "/openai/deployments/" in parts.path:
        return "azure"
    if host == "api.cohere.com":
        return "cohere"
    if parts.port == 11434:
        return "ollama"
    if parts.path.rstrip("/").endswith("/v1"):
        return "openai"
    raise InputError(f"--upstream {url}: name its dialect: --dialect {', '.join(DIALECTS)}.")


class Upstream:
    """An embedding API. It is asked by a few requests at a time; those that may succeed later are repeated.

    All requests of a proxy share it, in one event loop.

    Parameters
    ----------
    url : str
        Address of the API, without the path of its dialect.
    dialect : Dialect
        How it is asked: one of ``DIALECTS``.
    model : str
        Name of the model of the API.
    client : httpx.AsyncClient
        What sends the requests. It keeps no cookies from now on: all callers share it.
    key : str, optional
        Key for the API. Without one, that of each caller is passed on.
    timeout_s : float, default 60
        Seconds in which the API must answer, > 0.
    max_requests : int, default 8
        Requests at the same time, >= 1.
    max_texts : int, optional
        Texts per request, >= 1; as many as its dialect has by default. An API that refuses so many gets fewer.

    Attributes
    ----------
    dim : int or None
        Width of the vectors. The first answer sets it, unless it is known before; other widths are refused.
    """

    def __init__(
        self,
        url: str,
        dialect: Dialect,
        model: str,
        client: httpx.AsyncClient,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        max_requests: int = 8,
        max_texts: int | None = None,
    ) -> None:
        self.url, self.dialect, self.model, self.client, self.key = url, dialect, model, client, key
        self.dim: int | None = None
        self._timeout_s = timeout_s
        self._most_items = min(max_texts or dialect.most_items, dialect.most_items)
        # What is requested, until it is refused; of an API that has sent base64 a refusal has other reasons.
        self._formats, self._sends_base64 = _FORMATS, False
        self._free, self._probing = asyncio.Semaphore(max_requests), asyncio.Lock()
        self._is_up, self._known_at = True, -math.inf
        self._n_failures, self._failed_at = 0, -math.inf  # since the last success
        # A session that the upstream opens for one caller must not serve another.
        client.cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))

    # -- whether it can be reached ---------------------------------------------------------------------------------

    async def is_up(self) -> bool:
        """Whether the API can be reached.

        Requests of the last seconds say so: one that succeeds, or several that fail in a row. Otherwise the API is
        asked without key and text.

        Returns
        -------
        bool
            Whether it can.
        """
        async with self._probing:
            if time.monotonic() - self._known_at < _KNOWN_FOR_S:
                return self._is_up
            try:
                url = self.url + self.dialect.path
                response = await self.client.head(url, timeout=_PROBE_TIMEOUT_S, follow_redirects=False)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL):
                self._note(is_up=False)
            except httpx.HTTPError:  # busy, or it does not know HEAD: what the last request showed still holds
                self._note(is_up=self._is_up)
            else:  # that it refuses is an answer, too
                self._note(is_up=response.status_code not in _NOBODY_BEHIND)
            return self._is_up

    def _note(self, *, is_up: bool) -> None:
        self._is_up, self._known_at = is_up, time.monotonic()

    def _note_success(self) -> None:
        self._n_failures = 0
        self._note(is_up=True)

    def _note_failure(self, sent_at: float) -> None:
        """A failure, of one server among many or of one text, proves nothing: whoever wants to know asks the API."""
        if sent_at > self._failed_at:  # requests that fail together count as one
            self._n_failures, self._failed_at = self._n_failures + 1, time.monotonic()
        if self._n_failures >= _FAILURES_IN_A_ROW:
            self._note(is_up=False)
        else:
            self._known_at = -math.inf

    # -- embedding -------------------------------------------------------------------------------------------------

    async def embed(
        self, items: Sequence[Item], role: RoleName, caller: Mapping[str, str], fields: Mapping[str, Any] = NO_FIELDS
    ) -> Answer:
        """Return the vectors of texts.

        Parameters
        ----------
        items : sequence of str or tuple of int
            Texts, or their token ids. As many requests are sent as the API needs for them.
        role : {'text', 'query', 'document'}
            Which side of the model the texts are on, where the API makes a difference.
        caller : mapping of str to str
            Headers with the key of the caller; used if the proxy itself has no key.
        fields : mapping of str to object, optional
            What the API is sent with the texts (`isosent.server.fields.upstream_fields`).

        Returns
        -------
        Answer
            One finite vector per text, the tokens that were charged, and the rate limits.

        Raises
        ------
        RequestError
            If the API fails, refuses, or answers with something else.
        """
        size = self._most_items
        blocks = [items[start : start + size] for start in range(0, len(items), size)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._embed_block(block, role, caller, fields)) for block in blocks]
        except* RequestError as errors:
            first = errors.exceptions[0]
            raise first from first.__cause__  # not from the group
        answer = _merged_answer([task.result() for task in tasks])
        dim = answer.vectors.shape[1]
        self.dim = self.dim or dim
        if dim != self.dim:
            raise RequestError(502, f"the upstream answered with {dim} dimensions; {self.dim} are expected.")
        return answer

    async def _embed_block(
        self, items: Sequence[Item], role: RoleName, caller: Mapping[str, str], fields: Mapping[str, Any]
    ) -> Answer:
        """Vectors of texts in one request; in several, if the API refuses so many."""
        body = self.dialect.body(items, self.model, role) | dict(fields)
        try:
            response, content = await self._answer_in_format(body, caller)
        except RefusalError as refusal:
            size = refusal.size_of_parts(len(items))
            if size is None:
                raise
            size = min(size, self._most_items)  # which another request may have learned meanwhile
            parts = [items[start : start + size] for start in range(0, len(items), size)]
            answer = _merged_answer([await self._embed_block(part, role, caller, fields) for part in parts])
            if refusal.is_about_number:  # and not one text that is refused alone, too: that has ended this
                self._most_items = min(self._most_items, size)
            return answer
        return self._vectors_in(response, content, items)

    async def _answer_in_format(self, body: dict[str, Any], caller: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        """Ask for base64, and in another format if that is refused."""
        if _FORMAT not in body:
            return await self._asked(body, caller)
        for encoding in (formats := self._formats):
            asked = {name: value for name, value in (body | {_FORMAT: encoding}).items() if value is not None}
            try:
                response, content = await self._asked(asked, caller)
            except RefusalError as refusal:
                is_known = self._sends_base64 or encoding != "base64"
                if encoding == formats[-1] or not refusal.is_about_format(is_known=is_known):
                    raise
            else:
                self._sends_base64 |= encoding == "base64"
                if encoding != formats[0]:
                    self._formats = formats[formats.index(encoding) :]
                return response, content
        raise AssertionError

    def _vectors_in(self, response: httpx.Response, content: bytes, items: Sequence[Item]) -> Answer:
        """The vectors in an answer, checked."""
        try:
            answer = msgspec.json.decode(content)
            rows, n_tokens = self.dialect.rows(answer), self.dialect.n_tokens(answer, response.headers)
            vectors = _vectors(rows)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RequestError(502, "the upstream's answer cannot be read as vectors.") from error
        if len(vectors) != len(items):
            raise RequestError(502, f"the upstream answered with {len(vectors)} vectors for {len(items)} texts.")
        if not np.isfinite(vectors).all():
            raise RequestError(502, "the upstream answered with NaN or infinity.")
        has_content = np.array([not isinstance(item, str) or bool(item.strip()) for item in items])
        if n_zero := int((has_content & ~vectors.any(axis=1)).sum()):
            raise RequestError(
                502,
                f"the upstream answered with vectors of zeros for {n_zero} of {len(items)} texts, so these cannot be "
                "compared. Send them again, or leave them out.",
            )
        return Answer(vectors, _whole_number(n_tokens), _rate_limits(response))

    async def _answer_to(self, url: str, content: bytes, headers: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        """Ask once; the answer is read as far as it may be long."""
        answer = bytearray()
        async with self.client.stream(
            "POST", url, content=content, headers=headers, timeout=self._timeout_s, follow_redirects=False
        ) as response:
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > _MOST_BYTES:
                    raise RequestError(502, "the upstream's answer is too long.")
        return response, bytes(answer)

    async def _asked(self, body: dict[str, Any], caller: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        """Ask, a few times if need be."""
        content, headers = msgspec.json.encode(body), self._headers(caller)
        url = self.url + self.dialect.path
        for attempt in range(_ATTEMPTS):
            is_last, wait_s = attempt + 1 == _ATTEMPTS, _FIRST_WAIT_S * 2**attempt
            try:
                async with self._free, asyncio.timeout(self._timeout_s):
                    sent_at = time.monotonic()
                    response, answer = await self._answer_to(url, content, headers)
            except (httpx.TimeoutException, TimeoutError) as error:
                self._is_up, self._known_at = False, -math.inf  # or this request is a hard one: it is asked
                message = f"the upstream did not answer within {self._timeout_s:g} s (--upstream-timeout)."
                raise RequestError(504, message) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._note_failure(sent_at)
                if is_last:
                    is_refused = isinstance(error, (httpx.ConnectError, httpx.InvalidURL))
                    what = "cannot be reached" if is_refused else "broke off the connection"
                    raise RequestError(502, f"the upstream {what}.") from error
            else:
                if response.status_code in _NOBODY_BEHIND:
                    self._note_failure(sent_at)
                else:
                    self._note_success()
                if response.is_success:
                    return response, answer
                asked_s = _retry_after(response)
                if is_last or response.status_code not in _RETRIED or (asked_s or 0) > _LONGEST_WAIT_S:
                    raise self._refusal(response, answer, len(content))
                wait_s = max(wait_s, asked_s or 0)
            await asyncio.sleep(wait_s * random.uniform(1, 1.5))  # callers that failed together do not return together
        raise AssertionError

    def _headers(self, caller: Mapping[str, str]) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key is None:
            return headers | dict(caller)
        value = self.key if self.dialect.key_header == "api-key" else f"Bearer {self.key}"
        return headers | {self.dialect.key_header: value}

    def _refusal(self, response: httpx.Response, content: bytes, n_sent: int) -> RequestError:
        """The error of an upstream, for the caller."""
        status = response.status_code
        if status in (401, 403) and self.key is not None:
            return RequestError(502, "the upstream refused the key of the proxy.")
        try:
            answer = msgspec.json.decode(content)
            said = _message_in(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            answer, said = None, _plain_text(response, content)
        if 300 <= status < 400 or status >= 500:  # not what it said, but it may have said that it has no base64
            return RefusalError(502, f"the upstream answered {status}.", said=said, n_sent=n_sent)
        if said and self.key:
            said = said.replace(self.key, "...")
        message = f"the upstream answered {status}{f': {_without_folders(said)}' if said else '.'}"
        details = answer.get("error") if isinstance(answer, dict) else None
        code = details.get("code") if isinstance(details, dict) else None
        code = code if isinstance(code, str) else None
        return RefusalError(
            status, message[:_LONGEST_MESSAGE], code=code, headers=_rate_limits(response), said=said, n_sent=n_sent
        )


class RefusalError(RequestError):
    """What the API said no to, and what that can be about."""

    def __init__(self, status: int, message: str, *, said: str | None, n_sent: int, **more: Any) -> None:
        super().__init__(status, message, **more)
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
        if _SAYS_LENGTH.search(self._said):
            return False
        return self._says_number or self._n_sent <= _FEW_BYTES

    def size_of_parts(self, n_items: int) -> int | None:
        """How many texts the API may take in place of so many; None if it refuses something else."""
        may_be = self.status == 413 or (self.status in (400, 422) and (self._says_number or self._says_nothing))
        if n_items < 2 or not may_be:
            return None
        numbers = [int(number) for number in _MOST.findall(self._said)]
        return next((number for number in numbers if 1 <= number < n_items), (n_items + 1) // 2)


def _merged_answer(answers: Sequence[Answer]) -> Answer:
    """Answers to parts of a request, as one."""
    if len({answer.vectors.shape[1] for answer in answers}) > 1:
        raise RequestError(502, "the upstream answered with vectors of different widths.")
    vectors = np.concatenate([answer.vectors for answer in answers])
    return Answer(vectors, sum(answer.n_tokens for answer in answers), answers[-1].headers)


def _whole_number(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else 0


def upstream_facts(error: RequestError) -> dict[str, Any]:
    """Why the upstream failed, for the log: never the text of another library, which may quote what was sent."""
    cause: BaseException | None = error.__cause__
    facts: dict[str, Any] = {"status": error.status, "reason": error.message}
    while isinstance(cause, Exception):  # a time limit is a cancellation underneath
        facts["cause"] = type(cause).__name__
        cause = cause.exceptions[0] if isinstance(cause, ExceptionGroup) else cause.__cause__ or cause.__context__
    return facts


def _vectors(rows: list[Any]) -> NDArray[np.float32]:
    """Vectors from lists of numbers, or from base64 of little-endian float32."""
    if rows and all(isinstance(row, str) for row in rows):
        vectors = np.stack([unpacked(row) for row in rows])
    else:
        vectors = np.array(rows, dtype=np.float32)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError("no vectors")
    return vectors


def _rate_limits(response: httpx.Response) -> dict[str, str]:
    """Headers that tell a client when to come again."""
    return {
        name: value
        for name, value in response.headers.items()
        if name.lower() == "retry-after" or name.lower().startswith("x-ratelimit-")
    }


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value):
        return float(value)
    try:  # a date
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


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


def _plain_text(response: httpx.Response, content: bytes) -> str | None:
    """A short message that is no JSON."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    text = " ".join(content[: 4 * _LONGEST_MESSAGE].decode("utf-8", "replace").split())
    return text if text and kind in ("", "text/plain") and text.isprintable() and "<" not in text[:1] else None


def _without_folders(message: str) -> str:
    """A message with the last name of each folder and file of another machine, or of this one."""
    return _FOLDER.sub(lambda match: match["name"], message)
