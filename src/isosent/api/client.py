"""A client of an embedding API, for the proxy and for encoders.

`Upstream` is one API: it splits the texts into requests of the size that the API takes (`embed`), sends each, a few
times if need be (`_asked`), and checks what comes back (`_vectors_in`). An API may take fewer or shorter texts per
request than its dialect says (`_embed_block` sends parts), or no base64 (`_answer_in_format` requests floats); what it
has refused once it is not sent again. From the outcomes it is known whether the API can be reached (`is_up`). Errors of
the API become an `HttpError`, without what could be somebody's text or key.

A proxy gives up soon, because a caller waits. A job is patient (`Pace`): it waits as long as the API says, with fewer
requests at a time, and finds the text that the API refuses by asking for halves.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from isosent.api.dialects import NO_FIELDS, Dialect, Item, whole_number
from isosent.api.refusals import (
    LONGEST_MESSAGE,
    HttpError,
    RefusalError,
    code_in,
    rate_limits,
    said_in,
    wait_of,
    without_folders,
)
from isosent.errors import IsosentWarning
from isosent.io.answers import unpacked_rows
from isosent.numeric.canary import FIXED_TEXTS, N_SHORT
from isosent.role import RoleName, prompted

_ATTEMPTS: Final = 3
_ATTEMPTS_OF_JOBS: Final = 6  # while the API is down
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 20.0  # in which a caller waits
_LONG_PAUSE_S: Final = 5.0  # which a person should know of
_LONGEST_PAUSE_S: Final = 60.0  # of a job, if the API names none
_MOST_BYTES: Final = 1 << 28
_FEW_BYTES: Final = 1 << 20
_MOST_COMPRESSED: Final = 100
_RETRIED = (429, 500, 502, 503, 504)
_NOBODY_BEHIND: Final = (502, 503, 504)  # what a load balancer answers for servers that are down
_MAY_BE_ONE_TEXT: Final = (400, 413, 422, 500)
_NOT_AS_EXPECTED: Final = (
    *(msgspec.DecodeError, ValueError, TypeError, AttributeError),
    *(KeyError, OverflowError, RecursionError),
)
_KNOWN_FOR_S: Final = 10.0  # how long the last answer says whether the API can be reached
_FAILURES_IN_A_ROW: Final = 3  # as many as a request has attempts
_PROBE_TIMEOUT_S: Final = 3.0
_SILENT_TIMES: Final = 1.5  # the time limit, without any answer, after which no part is asked for
_CONNECT_TIMEOUT_S: Final = 10.0  # after which it is tried again: nothing has been charged
_FIRST_REQUESTS: Final = 4  # of a job, at the same time

_FORMAT: Final = "encoding_format"
_FORMATS: Final[tuple[str | None, ...]] = ("base64", "float", None)  # in this order; without a format, APIs send floats


class Answer(NamedTuple):
    """Vectors of an upstream API, as they came."""

    vectors: NDArray[np.float32]  # (n_items, dim)
    n_tokens: int  # that the upstream charged for
    headers: dict[str, str]  # its rate limits


Keep = Callable[[Sequence[Item], Answer], Awaitable[None]]  # what is done with each answer as it comes


class Pace:
    """How a job asks: requests at the same time, and when the next may begin. For one event loop.

    Each answer allows one more request, until a refusal for their rate halves them; after it, as many answers as there
    are requests allow one more.
    """

    def __init__(self, most: int, patience_s: float) -> None:
        self.patience_s = patience_s  # without any answer
        self._most, self._limit = most, float(min(most, _FIRST_REQUESTS))
        self._was_slowed, self._not_before, self._answered_at = False, -math.inf, -math.inf

    @property
    def n_requests(self) -> int:
        """Requests at the same time."""
        return int(self._limit)

    @property
    def has_answer(self) -> bool:
        """Whether the API has answered."""
        return self._answered_at > -math.inf

    async def wait(self) -> None:
        """Wait until the next request may begin."""
        while (wait_s := self._not_before - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)

    def speed_up(self) -> None:
        """Note an answer."""
        self._answered_at = time.monotonic()
        self._limit = min(self._most, self._limit + (1 / self._limit if self._was_slowed else 1))

    def slow_down(self, wait_s: float) -> None:
        """Note a refusal, or no answer; no request begins before the wait is over."""
        now = time.monotonic()
        if now >= self._not_before:  # requests that are refused together count as one
            self._limit, self._was_slowed = max(1.0, self._limit / 2), True
        self._not_before = max(self._not_before, now + wait_s)

    def is_over(self, wait_s: float, since: float) -> bool:
        """Whether it is of no use to wait so long."""
        return wait_s > self.patience_s or self.silence_s(since) > self.patience_s

    def silence_s(self, since: float) -> float:
        """Seconds without any answer."""
        return time.monotonic() - max(since, self._answered_at)


class Wording(NamedTuple):
    """What messages call an API, its key, and the limit of its time."""

    api: str = "the upstream"
    key: str = "the key of the proxy"
    time_limit: str = " (--upstream-timeout)"


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
    max_characters : int, optional
        Characters per request, >= 1, unless it has a single text. An API that refuses so many gets fewer.
    dimensions : int, optional
        Width that the API is asked for, >= 1; its own by default.
    pace : Pace, optional
        How a job asks, which waits; by default each request is sent at once, and given up soon.
    may_ask_base64 : bool, default True
        Whether base64 is requested first, of an API that has it.
    wording : Wording, optional
        What messages call the API.

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
        max_characters: int | None = None,
        dimensions: int | None = None,
        pace: Pace | None = None,
        may_ask_base64: bool = True,
        wording: Wording = Wording(),  # noqa: B008
    ) -> None:
        self.url, self.dialect, self.model, self.client, self.key = url, dialect, model, client, key
        self.dim, self._dimensions = dimensions, dimensions
        self._timeout_s, self._pace, self._wording = timeout_s, pace, wording
        self._timeouts = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S))
        self._most_items = min(max_texts or dialect.most_items, dialect.most_items)
        self._most_characters: float = max_characters or math.inf
        # What is requested, until it is refused; of an API that has sent base64 a refusal has other reasons.
        self._formats, self._sends_base64 = _FORMATS if may_ask_base64 else _FORMATS[1:], False
        self._has_warned = False  # of a pause
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
        self,
        items: Sequence[Item],
        role: RoleName,
        caller: Mapping[str, str],
        fields: Mapping[str, Any] = NO_FIELDS,
        *,
        keep: Keep | None = None,
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
        keep : callable, optional
            Called with the texts of each request and its answer, as soon as it comes.

        Returns
        -------
        Answer
            One finite vector per text, the tokens that were charged, and the rate limits.

        Raises
        ------
        HttpError
            If the API fails, refuses, or answers with something else.
        """
        try:
            async with asyncio.TaskGroup() as group:
                blocks, began_at = self.blocks(items), time.monotonic()
                tasks = [
                    group.create_task(self._embed_block(block, role, caller, fields, keep, began_at))
                    for block in blocks
                ]
        except* HttpError as errors:
            first = errors.exceptions[0]
            raise first from first.__cause__  # not from the group
        return _merged_answer([task.result() for task in tasks])

    def blocks(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Texts in blocks, none of which is larger than what the API takes in a request, as far as that is known."""
        start = n_characters = 0
        for stop, item in enumerate(items):
            is_full = stop - start >= self._most_items or n_characters + len(item) > self._most_characters
            if is_full and stop > start:
                yield items[start:stop]
                start, n_characters = stop, 0
            n_characters += len(item)
        if items:
            yield items[start:]

    async def _embed_block(
        self,
        items: Sequence[Item],
        role: RoleName,
        caller: Mapping[str, str],
        fields: Mapping[str, Any],
        keep: Keep | None,
        began_at: float,
    ) -> Answer:
        """Vectors of texts in one request; in several, if the API refuses so many."""
        blocks = list(self.blocks(items))  # another request may have learned meanwhile what the API takes
        if len(blocks) > 1:
            return _merged_answer(
                [await self._embed_block(block, role, caller, fields, keep, began_at) for block in blocks]
            )
        body = self.dialect.body(items, self.model, role, self._dimensions) | dict(fields)
        try:
            response, content = await self._answer_in_format(body, caller)
        except HttpError as error:
            if (size := self._size_of_parts(error, items, began_at)) is None:
                is_of_texts = isinstance(error, RefusalError) and error.answered in _MAY_BE_ONE_TEXT
                error.item = items[0] if is_of_texts and len(items) == 1 else None
                raise
            parts = [items[start : start + size] for start in range(0, len(items), size)]
            answer = _merged_answer(
                [await self._embed_block(part, role, caller, fields, keep, began_at) for part in parts]
            )
            # and not one text that is refused alone, too: that has ended this
            if error.status == 504 or (isinstance(error, RefusalError) and error.is_about_number):
                self._most_items = min(self._most_items, size)
            return answer
        return await self._kept(self._answer_in(response, content, items), items, keep)

    def _size_of_parts(self, error: HttpError, items: Sequence[Item], began_at: float) -> int | None:
        """How many of these texts to ask for at once after an error; None if that cannot help."""
        half = (len(items) + 1) // 2
        if len(items) < 2:
            return None
        if isinstance(error, RefusalError):
            size = error.size_of_parts(len(items))
            if size is not None and error.is_about_length:
                self._most_characters = min(self._most_characters, max(1, sum(map(len, items)) // 2))
            if size is not None:
                return min(size, self._most_items)
            return half if self._pace is not None and error.answered in _MAY_BE_ONE_TEXT else None  # and that is found
        if error.status != 504 or self._pace is None or not self._pace.has_answer:
            return None
        # it may have been too much work; an API that answers nothing at all is asked once more
        return None if self._pace.silence_s(began_at) > _SILENT_TIMES * self._timeout_s else half

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

    def _answer_in(self, response: httpx.Response, content: bytes, items: Sequence[Item]) -> Answer:
        """The vectors in an answer, one for each text."""
        try:
            answer = msgspec.json.decode(content)
            rows, n_tokens = self.dialect.rows(answer), self.dialect.n_tokens(answer, response.headers)
            vectors = _vectors(rows)
        except _NOT_AS_EXPECTED as error:
            raise HttpError(502, f"{self._wording.api}'s answer cannot be read as vectors.") from error
        if len(vectors) != len(items):
            raise self._wrong(f"{len(vectors)} vectors for {len(items)} texts.")
        self.dim = self.dim or vectors.shape[1]
        if vectors.shape[1] != self.dim:
            raise self._wrong(f"{vectors.shape[1]} dimensions; {self.dim} are expected.")
        return Answer(vectors, whole_number(n_tokens), rate_limits(response.headers))

    async def _kept(self, answer: Answer, items: Sequence[Item], keep: Keep | None) -> Answer:
        """The answer, of which what is right is kept; refused if some of it is not."""
        has_content = np.array([not isinstance(item, str) or bool(item.strip()) for item in items])
        is_finite = np.isfinite(answer.vectors).all(axis=1)
        is_zero = has_content & ~answer.vectors.any(axis=1)
        is_right = is_finite & ~is_zero
        if keep is not None and is_right.any():
            right = [item for item, each in zip(items, is_right, strict=True) if each]
            await keep(right, answer._replace(vectors=answer.vectors[is_right]))
        if is_right.all():
            return answer
        if not is_finite.all():
            error = self._wrong("NaN or infinity.")
        else:
            error = self._wrong(
                f"vectors of zeros for {int(is_zero.sum())} of {len(items)} texts, so these cannot be compared. Send "
                "them again, or leave them out."
            )
        error.item = items[int(np.argmin(is_right))]
        raise error

    def _wrong(self, what: str) -> HttpError:
        return HttpError(502, f"{self._wording.api} answered with {what}")

    async def _answer_to(self, url: str, content: bytes, headers: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        """Ask once; the answer is read as far as it may be long."""
        answer = bytearray()
        async with self.client.stream(
            "POST", url, content=content, headers=headers, timeout=self._timeouts, follow_redirects=False
        ) as response:
            async for part in response.aiter_bytes():
                answer += part
                # vectors cannot be compressed so much
                if len(answer) > min(_MOST_BYTES, _FEW_BYTES + _MOST_COMPRESSED * response.num_bytes_downloaded):
                    raise HttpError(502, f"{self._wording.api}'s answer is too long.")
        return response, bytes(answer)

    async def _asked(self, body: dict[str, Any], caller: Mapping[str, str]) -> tuple[httpx.Response, bytes]:
        """Ask, a few times if need be."""
        content, headers = msgspec.json.encode(body), self._headers(caller)
        url = self.url + self.dialect.path.replace("{model}", self.model)
        began_at, n_failures, n_refusals = time.monotonic(), 0, 0
        while True:
            try:
                async with self._free:
                    if self._pace is not None:
                        await self._pace.wait()
                    async with asyncio.timeout(self._timeout_s):
                        sent_at = time.monotonic()
                        response, answer = await self._answer_to(url, content, headers)
            except httpx.DecodingError as error:  # and not asked again: it has been charged
                raise HttpError(502, f"{self._wording.api}'s answer cannot be decompressed.") from error
            except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout, TimeoutError) as error:
                self._is_up, self._known_at = False, -math.inf  # or this request is a hard one: it is asked
                if self._pace is not None:
                    self._pace.slow_down(0)
                message = f"{self._wording.api} did not answer within {self._timeout_s:g} s{self._wording.time_limit}."
                raise HttpError(504, message) from error  # and not asked again: it may have been charged
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._note_failure(sent_at)
                n_failures += 1
                if n_failures >= self._most_attempts:
                    is_refused = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL))
                    what = "cannot be reached" if is_refused else "broke off the connection"
                    raise HttpError(502, f"{self._wording.api} {what}.") from error
                await asyncio.sleep(_pause(n_failures))
            else:
                if response.status_code in _NOBODY_BEHIND:
                    self._note_failure(sent_at)
                else:
                    self._note_success()
                if response.is_success:
                    if self._pace is not None:
                        self._pace.speed_up()
                    return response, answer
                asked_s = wait_of(response.headers, answer)
                is_rate = response.status_code == 429 or (response.status_code == 503 and asked_s is not None)
                n_refusals, n_failures = n_refusals + is_rate, n_failures + (not is_rate)
                wait_s = max(_pause(max(n_refusals, n_failures)), asked_s or 0)
                if response.status_code not in _RETRIED or self._is_over(
                    response.status_code, n_failures, n_refusals, asked_s or 0, began_at
                ):
                    raise self._refusal(response, answer, len(content))
                if self._pace is not None and is_rate:
                    self._warn_of_pause(wait_s)
                    self._pace.slow_down(wait_s)
                else:
                    await asyncio.sleep(wait_s)

    def _warn_of_pause(self, wait_s: float) -> None:
        if wait_s >= _LONG_PAUSE_S and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self._wording.api}: its rate limit is reached. Waiting {wait_s:.0f} s, then sending fewer requests "
                "at a time.",
                IsosentWarning,
                stacklevel=2,
            )

    def _is_over(self, status: int, n_failures: int, n_refusals: int, asked_s: float, began_at: float) -> bool:
        """Whether to ask again is of no use."""
        if self._pace is None:
            return n_failures + n_refusals >= _ATTEMPTS or asked_s > _LONGEST_WAIT_S
        n_attempts = self._most_attempts if status in _NOBODY_BEHIND else _ATTEMPTS
        return n_failures >= n_attempts or self._pace.is_over(asked_s, began_at)

    @property
    def _most_attempts(self) -> int:
        """Of a job they are more, if the API has answered before."""
        return _ATTEMPTS_OF_JOBS if self._pace is not None and self._pace.has_answer else _ATTEMPTS

    def _headers(self, caller: Mapping[str, str]) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key is None:
            return headers | dict(caller)
        value = f"Bearer {self.key}" if self.dialect.key_header == "Authorization" else self.key
        return headers | {self.dialect.key_header: value}

    def _refusal(self, response: httpx.Response, content: bytes, n_sent: int) -> HttpError:
        """The error of an upstream, for the caller."""
        status, api = response.status_code, self._wording.api
        if status in (401, 403) and self.key is not None:
            return HttpError(502, f"{api} refused {self._wording.key}.")
        answer, said = said_in(response.headers, content)
        facts: dict[str, Any] = {"said": said, "n_sent": n_sent, "answered": status}
        if 300 <= status < 400 or status >= 500:  # not what it said, but it may have said that it has no base64
            return RefusalError(502, f"{api} answered {status}.", **facts)
        if said and self.key:
            said = said.replace(self.key, "...")
        message = f"{api} answered {status}{f': {without_folders(said)}' if said else '.'}"
        limits = rate_limits(response.headers)
        return RefusalError(status, message[:LONGEST_MESSAGE], code=code_in(answer), headers=limits, **facts)

    # -- fixed texts -----------------------------------------------------------------------------------------------

    async def fixed_vectors(self, role: RoleName, prompt: str = "", *, is_short: bool = False) -> NDArray[np.float32]:
        """Vectors of the texts that show whether the API has changed.

        Parameters
        ----------
        role : {'text', 'query', 'document'}
            Which side of the model they are on.
        prompt : str, default ""
            What is put before each.
        is_short : bool, default False
            Whether to leave the long one out, as is done if the API takes none of its length.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            One vector per text.
        """
        try:
            texts = [prompted(prompt, text) for text in FIXED_TEXTS[: N_SHORT if is_short else None]]
            return (await self.embed(texts, role, {})).vectors
        except HttpError as error:
            if is_short or error.status not in (400, 413, 422):
                error.item = None  # these texts are not what is wrong
                raise
            return await self.fixed_vectors(role, prompt, is_short=True)


def _pause(n_times: int) -> float:
    """Seconds to wait after so many failures; callers that failed together do not return together."""
    return min(_FIRST_WAIT_S * 2 ** (n_times - 1), _LONGEST_PAUSE_S) * random.uniform(1, 1.5)


def _merged_answer(answers: Sequence[Answer]) -> Answer:
    """Answers to parts of a request, as one."""
    if len({answer.vectors.shape[1] for answer in answers}) > 1:
        raise HttpError(502, "the upstream answered with vectors of different widths.")
    vectors = np.concatenate([answer.vectors for answer in answers])
    return Answer(vectors, sum(answer.n_tokens for answer in answers), answers[-1].headers)


def upstream_facts(error: HttpError) -> dict[str, Any]:
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
        vectors = unpacked_rows(rows)
    else:
        with np.errstate(over="ignore"):  # infinity is refused
            vectors = np.array(rows, dtype=np.float32)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError("no vectors")
    return vectors
