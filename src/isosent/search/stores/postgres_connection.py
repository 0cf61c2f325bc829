"""A connection to PostgreSQL: its URL, errors in one sentence, which never hold the password, and types of columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputError, IsosentError, OutputError
from isosent.search.rows import ID, VECTOR, plain_type

SCHEMES: Final = ("postgresql://", "postgres://")
_TIMEOUT: Final = 10  # seconds, of connecting
_LARGEST_VECTOR: Final = 2000  # dimensions that an HNSW index of pgvector can hold as float32; above, as float16
_LONGEST_NAME: Final = 63  # bytes of the name of a column of PostgreSQL
_TEXT: Final = 'text COLLATE "C"'  # the order of code points, as elsewhere in isosent
_ORPHAN: Final = "2s"  # how long the server goes on for a process that is gone


class Connection:
    """What a table of PostgreSQL is read and written through."""

    _connection: Any  # of psycopg

    def __init__(self, url: str) -> None:
        self._address, self.options = _split_url(url)
        self._secrets = _secrets(self._address)
        parts = urlsplit(self._address)
        host, user = parts.netloc.rpartition("@")[2], unquote(parts.netloc.rpartition("@")[0].partition(":")[0])
        self.name = f"postgresql://{user}{'@' if user else ''}{host}{parts.path}"

    def _connect(self) -> Any:
        psycopg = _extras.require("psycopg")
        try:
            settings = psycopg.conninfo.conninfo_to_dict(self._address)
        except psycopg.Error as error:
            raise InputError(self._unreadable(str(error))) from None
        with self._errors("connect"):
            return psycopg.connect(
                **{"connect_timeout": _TIMEOUT, **settings, "client_encoding": "utf8"},
                autocommit=True,
                prepare_threshold=None,  # poolers of connections lose prepared statements
            )

    def _unreadable(self, message: str) -> str:
        """What is wrong with the URL; not in the words of libpq, which repeat parts of a password."""
        psycopg = _extras.require("psycopg")
        address, _, query = self._address.partition("?")
        try:
            psycopg.conninfo.conninfo_to_dict(address)
        except psycopg.Error:
            return (
                "the URL cannot be read. Write postgresql://user@host/database?table=NAME; a password follows "
                "the user and a colon, with special characters as %XX."
            )
        names = [part.partition("=")[0] for part in query.split("&") if "=" in part]
        unknown = [name for name in names if f'parameter: "{name}"' in message]
        named = f"{brief(unknown[0])!r} is no option of PostgreSQL, or is not written NAME=VALUE" if unknown else ""
        return (
            f"the options of the URL, after its ?, cannot be read{': ' if named else ''}{named}. Write NAME=VALUE, "
            "with & between two options, and special characters of a value as %XX."
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction that the server ends if this process is gone: else it would build an index to the end."""
        psycopg = _extras.require("psycopg")
        with self._errors("write"), self._connection.transaction():
            with suppress(psycopg.Error), self._connection.transaction():  # old servers, and some systems, cannot
                self._run(
                    "SELECT set_config(name, %s, true) FROM pg_settings "
                    "WHERE name = 'client_connection_check_interval' AND setting = '0'",
                    [_ORPHAN],
                )
            yield

    def _quoted(self, name: str) -> str:
        """A name as an identifier in a statement with parameters, where % is written %%."""
        quoted: str = _extras.require("psycopg").sql.Identifier(name).as_string(self._connection)
        return quoted.replace("%", "%%")

    def _literal(self, value: str) -> str:
        quoted: str = _extras.require("psycopg").sql.Literal(value).as_string(self._connection)
        return quoted.replace("%", "%%")

    def _run(self, statement: str, parameters: Sequence[Any] = (), *, binary: bool = False) -> Any:
        """Execute a statement, where % is written %%."""
        return self._connection.execute(statement, parameters, binary=binary)

    @contextmanager
    def _errors(self, action: Literal["connect", "extension", "create", "read", "search", "write"]) -> Iterator[None]:
        """Say in one sentence what the server refused."""
        psycopg = _extras.require("psycopg")
        try:
            yield
        except IsosentError:
            raise
        except psycopg.Error as error:
            raise self._explained(error, action) from None

    def _explained(self, error: Any, action: str) -> IsosentError:
        errors, reason = _extras.require("psycopg").errors, self._reason(error)
        if action == "connect":
            return InputError(f"{self.name}: cannot connect: {reason}.")
        if action == "extension":
            return InputError(
                f"{self.name}: the database needs the extension pgvector ({reason}). Install it on the server, and let "
                "an administrator run: CREATE EXTENSION vector."
            )
        if isinstance(error, errors.RaiseException):
            return InputError(f"{self.name}: {reason}.")
        if isinstance(error, errors.UndefinedTable):
            return InputError(f"{self.name}: there is no such table any more.")
        is_write = action in ("create", "write")
        if isinstance(error, errors.DataError | errors.ProgrammingError | errors.NotSupportedError):
            kind: type[IsosentError] = InputError
            if isinstance(error, errors.InsufficientPrivilege) and is_write:
                kind = OutputError
            return kind(f"{self.name}: {reason}.")
        if is_write:
            return OutputError(f"{self.name} could not be written: {reason}; its last transaction is intact.")
        return InputError(f"{self.name} could not be read: {reason}.")

    def _reason(self, error: Any) -> str:
        """Why the server refused, on one line and without the password."""
        text = error.diag.message_primary or str(error)
        text = re.split(r"FATAL:\s*", text)[-1]
        text = " ".join(text.split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return brief(text.rstrip("."), 300)


def _split_url(url: str) -> tuple[str, dict[str, str]]:
    """The URL for psycopg, and our options ``table`` and ``bits``."""
    if not url.startswith(SCHEMES):
        raise InputError("the URL does not begin with postgresql://.")
    try:
        is_clear = "@" not in url.partition("@")[2] and ("@" in url) == ("@" in urlsplit(url).netloc)
    except ValueError:
        is_clear = False
    if not is_clear:  # not shown: a password with such characters would be
        raise InputError(
            "the URL has characters in its user or password that must be written as %XX, such as %40 for @."
        )
    address, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    ours = [part for part in parts if part.partition("=")[0] in ("table", "bits")]
    # libpq wants = within a value as %3D; options=-c name=value is usually written without
    rest = "&".join(
        name + equals + value.replace("=", "%3D")
        for name, equals, value in (part.partition("=") for part in parts if part not in ours)
    )
    options = {name: unquote(value) for name, _, value in (part.partition("=") for part in ours)}
    return address + ("?" + rest if rest else ""), options


def _secrets(address: str) -> set[str]:
    """Passwords in a URL, as they are written and as they are sent."""
    parts = urlsplit(address)
    found = {parts.netloc.rpartition("@")[0].partition(":")[2]}
    found |= {value for name, _, value in (p.partition("=") for p in parts.query.split("&")) if "password" in name}
    return {secret for written in found for secret in (written, unquote(written)) if secret}


# -- types of columns --------------------------------------------------------------------------------------------------


def _sql_types() -> dict[Any, str]:
    """Type of PostgreSQL by that of pyarrow."""
    import pyarrow as pa

    return {
        pa.string(): "text",
        pa.int64(): "bigint",
        pa.float64(): "double precision",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        pa.timestamp("us"): "timestamp without time zone",
        pa.timestamp("us", "UTC"): "timestamp with time zone",
    }


def arrow_types() -> dict[str, Any]:
    """Type of pyarrow by that of PostgreSQL."""
    return {name: kind for kind, name in _sql_types().items()}


def sql_columns(schema: Any, dim: int) -> dict[str, str]:
    """Definition of each column, vectors last."""
    columns = {field.name: _sql_type(field) for field in schema if field.name != VECTOR}
    if ID not in columns or columns[ID] not in ("bigint", _TEXT):
        raise InputError(f"an index needs the column {ID} with strings or whole numbers; there are: {schema.names}.")
    for name in columns:
        if len(name.encode()) > _LONGEST_NAME:
            raise InputError(
                f"the name of the column {name!r} is too long for PostgreSQL, which takes {_LONGEST_NAME} bytes."
            )
    return columns | {VECTOR: f"halfvec({dim})" if dim > _LARGEST_VECTOR else f"vector({dim})"}


def _sql_type(field: Any) -> str:
    name = _sql_types()[plain_type("PostgreSQL", field)]
    return _TEXT if name == "text" else name


def nul_in(batch: Any) -> tuple[Any, str] | None:
    """Id and column of the first text of a record batch that holds the character NUL."""
    import pyarrow as pa
    from pyarrow import compute

    for name in batch.schema.names:
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            row = compute.index(compute.match_substring(column, "\0"), True).as_py()
            if row >= 0:
                return batch.column(ID)[row].as_py(), name
    return None
