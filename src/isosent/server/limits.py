"""The limits of a server, and the error of a request that is refused. The help of ``isosent serve`` needs no extra."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Final

from isosent.api.refusals import HttpError
from isosent.errors import in_shell, option

KEYS_VARIABLE: Final = "ISOSENT_API_KEYS"


def flag_of(name: str) -> str:
    """The option of ``isosent serve`` for a parameter or a limit, for whoever runs the server."""
    return f"--{name.removesuffix('_s').replace('_', '-')}"


class RequestError(HttpError):
    """A request that is refused; its message is for the client and says nothing about the machine."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(status, in_shell(message, lambda name, _: flag_of(name)), **more)


def _limit(default: float, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


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

    max_body_bytes: int = _limit(4_000_000, "Bytes of a request.")
    max_texts: int = _limit(2048, "Texts of a request.")
    max_batch_tokens: int = _limit(16_384, "Tokens of a batch; larger requests are split.")
    max_queued_tokens: int = _limit(1_000_000, "Tokens that may wait; later requests get 429.")
    max_connections: int = _limit(512, "Connections at the same time.")
    request_timeout_s: float = _limit(30.0, "Seconds to send a request, or to read 1 MiB of an answer.")

    def to_json(self) -> list[dict[str, Any]]:
        """Return names, values, flags and meanings, for ``/info``.

        Returns
        -------
        list of dict
            One for each limit.
        """
        return [
            {"name": f.name, "value": getattr(self, f.name), "flag": flag_of(f.name), **f.metadata}
            for f in fields(self)
        ]

    def check_texts(self, n_texts: int, param: str) -> None:
        """Refuse too many texts.

        Parameters
        ----------
        n_texts : int
            Texts of a request.
        param : str
            Field of the body that holds them, for the message.

        Raises
        ------
        RequestError
            With status 413, if there are more than `max_texts`.
        """
        if n_texts > self.max_texts:
            raise RequestError(
                413,
                f"{param} has {n_texts} texts; a request may have at most {self.max_texts} ({option('max_texts')}).",
                param=param,
            )

    def body_too_large(self) -> RequestError:
        """The error for a request of too many bytes.

        Returns
        -------
        RequestError
            With status 413.
        """
        return RequestError(
            413, f"a request may have at most {self.max_body_bytes} bytes ({option('max_body_bytes')})."
        )

    def queue_is_full(self, n_tokens: int, tokens_per_s: float) -> RequestError:
        """The error for a request that comes when too many tokens wait.

        Parameters
        ----------
        n_tokens : int
            Tokens that wait.
        tokens_per_s : float
            How fast the model has been; 0 if that is not known.

        Returns
        -------
        RequestError
            With status 429, and the seconds to wait in the header ``Retry-After``.
        """
        wait_s = max(1, math.ceil(n_tokens / tokens_per_s)) if tokens_per_s > 0 else 1
        return RequestError(
            429,
            f"{n_tokens} tokens wait for this model; at most {self.max_queued_tokens} may "
            f"({option('max_queued_tokens')}). Try again in {wait_s} s.",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(wait_s)},
        )
