"""The encoder of an embedding API.

`load_api` reads a reference, such as ``api:openai/text-embedding-3-small``. An `ApiEncoder` looks up or asks for what a
`Session` gives it: blank texts have zero rows and are not sent, equal texts are sent once, and queries and documents go
the way of the API, or get a prompt. Nothing is sent before a text is encoded, or the dimensions are needed of an API
that was never seen. What a folder names is not asked at all without the permission ``send_texts``.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from isosent import _check, api
from isosent.api.cache import find_cache
from isosent.api.dialects import DIALECTS, PROVIDERS, dialect_of, is_local, provider_of
from isosent.encoders.base import WINDOW, Encoder, EncodingStats, report
from isosent.encoders.reference import (
    CALLING_OPTIONS,
    PROMPTS,
    escape,
    path_of,
    unescape,
    with_options,
    without_keys,
    write_options,
)
from isosent.errors import InputError, IsosentWarning, ModelReferenceError
from isosent.io.atomic import user_cache
from isosent.io.texts import text_blocks
from isosent.numeric.canary import Canary
from isosent.pages.progress import Progress, counted, part_of
from isosent.role import RoleName

if TYPE_CHECKING:
    from isosent.api.session import Endpoint, Estimate, Session
    from isosent.api.usage import Usage

_CACHE_MB: Final = 10_000.0
KEPT_IN: Final = "kept_in"  # in a model folder: the cache that was named, for messages
_NO_CACHE: Final = "none"
_OF_KEYS: Final = re.compile("key|sig|token|secret|password|auth|credential|code", re.IGNORECASE)
_PROMPT_OF: Final[dict[RoleName, str]] = dict(zip(("text", "query", "document"), PROMPTS, strict=True))


class ApiEncoder(Encoder):
    """A model of an API. A vector costs money: equal texts are sent once, and the answers are kept."""

    is_costly = True
    has_tokens = False

    def __init__(
        self,
        reference: str,
        options: Mapping[str, str],
        session: Session,
        *,
        may_send: bool = True,
        has_named_cache: bool = True,
    ) -> None:
        self.reference, self.options = reference, dict(options)
        self._session, self._may_send, self._has_named_cache = session, may_send, has_named_cache
        self._role: RoleName = "text"
        self._prompt: str | None = None  # in place of that of the role

    @cached_property
    def dim(self) -> int:  # type: ignore[override]
        """Dimensions of the vectors; an API that was never seen is asked for them."""
        return self._asked.known.dim

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the name of the model, its dimensions and prompts, and where its vectors of fixed texts lie."""
        return self._asked.known.fingerprint

    @property
    def model(self) -> str:
        """Name of the model of the API."""
        return self._session.endpoint.model

    @property
    def usage(self) -> Usage:
        """What the API was asked in this process."""
        return self._session.usage

    def check_permission(self) -> None:
        """Refuse if the API may not be asked, or if that would pay again for what another cache has."""
        cache = {} if (kept_in := self._other_cache) is None else {"cache": kept_in}
        folder = with_options("FOLDER", {"send_texts": "true"} | cache)
        if not self._may_send:
            url = self._session.endpoint.url
            raise InputError(
                f"a file names the model {self.reference}: your texts, and a key, would be sent to {url}. If you want "
                f"that, permit it: '{folder}'; of an index, name the API: -m '{with_options(self.reference, cache)}'."
            )
        if kept_in is not None:
            raise InputError(
                f"{self.reference}: what was paid when the model was fitted is kept in {unescape(kept_in)}. Name that "
                f"cache, '{folder}', or another folder; or cache=none."
            )

    @property
    def _other_cache(self) -> str | None:
        """The cache of whoever fitted a saved model, if it is here and none was named: a file chooses none."""
        kept_in = None if self._has_named_cache else self.options.get(KEPT_IN)
        return kept_in if kept_in is not None and find_cache(path_of(kept_in)) is not None else None

    @property
    def _asked(self) -> Session:
        """The session, if the API may be asked; what a folder knows of it is known without asking."""
        self.check_permission()
        return self._session

    def as_saved(self, fingerprint: str, dim: int, canary: Canary | None, kept_in: str | None) -> Encoder:
        """The encoder that must give the vectors of a canary; it is asked when the first text is encoded."""
        other = copy.copy(self)
        other.options = ({} if kept_in is None else {KEPT_IN: kept_in}) | self.options
        if canary is None:
            return other
        other._session = self._session.of_saved(fingerprint, dim, canary)
        other.dim, other.fingerprint = dim, fingerprint
        return other

    # -- roles and prompts -----------------------------------------------------------------------------------------

    def for_queries(self) -> ApiEncoder:
        """Return the encoder of queries: as the API encodes them, or with a prompt."""
        return self._with_role("query")

    def for_documents(self) -> ApiEncoder:
        """Return the encoder of documents: as the API encodes them, or with a prompt."""
        return self._with_role("document")

    def _with_role(self, role: RoleName) -> ApiEncoder:
        endpoint = self._session.endpoint
        if not DIALECTS[endpoint.dialect].has_roles and endpoint.prompts[role] == endpoint.prompts["text"]:
            return self
        other = copy.copy(self)
        other._role = role
        return other

    def with_prompt(self, prompt: str) -> ApiEncoder:
        """Return the encoder with this prompt before every text."""
        other = copy.copy(self)
        other._prompt = prompt
        return other

    @property
    def has_base64(self) -> bool:
        """Whether it is asked for vectors in base64 first."""
        return self._session.endpoint.has_base64

    def without_base64(self) -> ApiEncoder:
        """Return the encoder that is asked for numbers alone, as if it had never been seen."""
        other = ApiEncoder(self.reference, self.options, self._session.without_base64(), may_send=self._may_send)
        other._role, other._prompt = self._role, self._prompt
        return other

    @property
    def _prompt_in_use(self) -> str:
        return self._session.endpoint.prompts[self._role] if self._prompt is None else self._prompt

    # -- encoding --------------------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts, shape (n_texts, dim); blank texts have zero rows, and the API does not see them."""
        texts = _check.text_list("encode", texts)
        row_of = {text: row for row, text in enumerate(dict.fromkeys(text for text in texts if text.strip()))}
        if not row_of:
            return np.zeros((len(texts), self.dim), dtype=np.float32)
        session, start = self._asked, 0
        # the last row is that of blank texts
        distinct = np.zeros((len(row_of) + 1, session.known.dim), dtype=np.float32)
        for block in counted(text_blocks(list(row_of), WINDOW), progress, len(texts)):
            reported = part_of(progress, start, len(texts))
            distinct[start : start + len(block)] = session.vectors(
                block, self._role, self._prompt_in_use, progress=reported
            )
            start += len(block)
        if progress:
            progress(len(texts), len(texts))
        report(EncodingStats(len(texts)), self.reference, None)
        vectors: NDArray[np.float32] = distinct[[row_of.get(text, -1) for text in texts]]
        return vectors

    def estimate(self, texts: Iterable[str]) -> Estimate:
        """What encoding texts would cost; nothing is sent."""
        if self._other_cache is not None:
            self.check_permission()
        return self._session.estimate(texts, self._role, self._prompt_in_use)

    def canary_now(self, *, of_first_query: bool = False) -> Canary:
        """Vectors of fixed texts as the API gives them now; the cache is not asked."""
        return self._asked.canary(of_first_query=of_first_query)

    def tokenize(self, texts: Sequence[str]) -> NoReturn:
        """Refuse: only the API knows its tokens."""
        raise InputError(f"tokenize: {self.reference} is an API; its tokens are not known to isosent.")

    def embed(self, tokens: Any, progress: Progress | None = None) -> NoReturn:
        """Refuse: only the API knows its tokens."""
        raise InputError(f"embed: {self.reference} is an API; its tokens are not known to isosent.")

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield nothing."""
        return iter(())

    def vocabulary(self) -> Iterable[str]:
        """Yield nothing."""
        return ()


def load_api(location: str, options: Mapping[str, Any]) -> ApiEncoder:
    """Load the encoder of an API that a reference names; nothing is sent."""
    model = options.get("model")
    reference = f"api:{location}" if model is None else f"api:{location}?model={model}"  # which people should see
    endpoint = _endpoint(reference, unescape(location), options)
    cache = options.get("cache")
    folder = None if cache == _NO_CACHE else user_cache("api") if cache is None else path_of(cache).absolute()
    resolved = {name: value for name, value in options.items() if name not in ("model", *CALLING_OPTIONS)}
    if any(endpoint.prompts.values()):
        resolved |= {name: endpoint.prompts[role] for role, name in _PROMPT_OF.items()}
    if cache is not None and folder is not None:
        resolved[KEPT_IN] = escape(str(folder))
    session = api.Session(endpoint, folder, options.get("cache_mb", _CACHE_MB))
    may_send = options.get("send_texts", True)
    return ApiEncoder(reference, write_options(resolved), session, may_send=may_send, has_named_cache=cache is not None)


def _endpoint(reference: str, location: str, options: Mapping[str, Any]) -> Endpoint:
    prompts = {role: options.get(name, options.get("prompt", "")) for role, name in _PROMPT_OF.items()}
    model, dialect, key_variable = options.get("model"), options.get("dialect"), options.get("key_env")
    if re.match("https?://", location):
        url, provider = _checked_url(reference, location), provider_of(location)
        if dialect is None:
            dialect = dialect_of(url) if provider is None else provider.dialect
        if dialect is None:
            raise _refused(f"{reference}: name its dialect, as in {reference}?dialect=openai: {', '.join(DIALECTS)}.")
        if model is None and dialect != "tei":  # which serves one
            raise _refused(f"{reference}: name the model of the API, as in {reference}?model=NAME.")
    else:
        name, _, named_model = location.partition("/")
        if name not in PROVIDERS or not named_model:
            raise _refused(
                f"{without_keys(reference)}: write api:PROVIDER/MODEL or api:URL?model=NAME; providers: "
                f"{', '.join(PROVIDERS)}."
            )
        if model is not None or dialect is not None:
            raise _refused(f"{reference} says its model and dialect. Leave model and dialect out.")
        provider, model = PROVIDERS[name], named_model
        url, dialect = provider.url, provider.dialect
    if key_variable is None and provider is not None:
        key_variable = provider.key_variable
    if key_variable is not None and url.startswith("http:") and not is_local(url):
        warnings.warn(
            f"{without_keys(reference)}: the key in {key_variable} and the texts are sent unencrypted. Write https:// "
            "if the API has it.",
            IsosentWarning,
            stacklevel=6,  # the caller of `load`
        )
    return api.Endpoint(
        reference, url.rstrip("/"), dialect, model or dialect, options.get("dimensions"), prompts, key_variable
    )


def _checked_url(reference: str, url: str) -> str:
    """The URL, without a key: references are saved and shown."""
    try:
        parts = urlsplit(url)
        is_wrong = not parts.hostname or (parts.port is not None and not parts.port)
    except ValueError:
        is_wrong = True
    has_user = "@" in re.split("[/?#]", url.partition("://")[2])[0]
    names = [unquote(part.partition("=")[0]) for part in re.split("[?&;#]", url)[1:]]
    if has_user or any(_OF_KEYS.search(name) for name in names):
        raise _refused(
            "the URL of an API holds no key: put it into an environment variable, and name that: key_env=NAME."
        )
    if is_wrong:
        raise _refused(f"{without_keys(reference)} is no URL. Write api:https://HOST/v1?model=NAME.")
    return url


def _refused(problem: str) -> ModelReferenceError:
    return ModelReferenceError(f"Model reference: {problem}")
