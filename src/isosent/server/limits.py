"""What a server accepts, and the error that a client gets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from isosent.errors import IsosentError


class RequestError(Exception):
    """A request that is refused; its message is for the client and says nothing about the machine."""

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


def reason_of(error: Exception) -> str:
    """The message of an error of ours, unless it names a file of this machine."""
    message = str(error)
    has_path = re.search(r"(^|[\s'\"(=])(/|[A-Za-z]:\\)\S", message)
    return message if isinstance(error, IsosentError) and not has_path else "its reason names files of the server."


def _limit(default: float, flag: str, meaning: str) -> Any:
    return field(default=default, metadata={"flag": flag, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server; each is an option of ``isosent serve``.

    Parameters
    ----------
    max_body_bytes : int, default 4,000,000
        Bytes of a request.
    max_texts : int, default 2048
        Texts of a request.
    max_batch_tokens : int, default 16,384
        Tokens that a model computes at once. Larger requests are split.
    max_queued_tokens : int, default 1,000,000
        Tokens that may wait for a model. A request that comes later gets 429.
    max_connections : int, default 512
        Connections at the same time. For a further one, that is closed whose client has sent nothing for longest.
    request_timeout_s : float, default 30
        Seconds in which a request must have arrived, and in which a client must read 1 MiB of an answer, or its rest.
    """

    max_body_bytes: int = _limit(4_000_000, "--max-body-bytes", "Bytes of a request.")
    max_texts: int = _limit(2048, "--max-texts", "Texts of a request.")
    max_batch_tokens: int = _limit(16_384, "--max-batch-tokens", "Tokens of a batch; larger requests are split.")
    max_queued_tokens: int = _limit(1_000_000, "--max-queued-tokens", "Tokens that may wait; later requests get 429.")
    max_connections: int = _limit(512, "--max-connections", "Connections at the same time.")
    request_timeout_s: float = _limit(
        30.0, "--request-timeout", "Seconds to send a request, or to read 1 MiB of an answer."
    )

    def to_json(self) -> list[dict[str, Any]]:
        """Return names, values, flags and meanings, for ``/info``."""
        return [{"name": f.name, "value": getattr(self, f.name), **f.metadata} for f in fields(self)]

    def check_texts(self, n_texts: int, param: str) -> None:
        """Refuse too many texts."""
        if n_texts > self.max_texts:
            raise RequestError(
                413,
                f"{param} has {n_texts} texts; a request may have at most {self.max_texts} (--max-texts).",
                param=param,
            )

    def body_too_large(self) -> RequestError:
        """The error for a request of too many bytes."""
        return RequestError(413, f"a request may have at most {self.max_body_bytes} bytes (--max-body-bytes).")

    def queue_is_full(self, n_tokens: int, tokens_per_s: float) -> RequestError:
        """The error for a request that comes when too many tokens wait."""
        wait_s = max(1, math.ceil(n_tokens / tokens_per_s)) if tokens_per_s > 0 else 1
        return RequestError(
            429,
            f"{n_tokens} tokens wait for this model; at most {self.max_queued_tokens} may "
            f"(--max-queued-tokens). Try again in {wait_s} s.",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(wait_s)},
        )
