"""Vectors that an embedding API was paid for, in an SQLite file.

A `VectorCache` keeps vectors by the hashes of their texts, for a proxy, and for encoders also which APIs made them
(`KnownApi`): the vectors that each gave fixed texts, by which a change is noticed, and what it was asked. Several
processes may share the file. Texts and keys are not in it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError, OutputError

CACHE_FILE: Final = "vectors.sqlite"  # in a folder
MEGABYTE: Final = 1_000_000
_APPLICATION_ID: Final = 0x1505E47
_VERSION: Final = 1  # of the tables
_SQLITE: Final = b"SQLite format 3\0"  # begins the file
_ID_AT: Final = 68  # where the file has the application ID
_BUSY_S: Final = 10
_ASKED_AGAIN_S: Final = 0.01
_REMOVED_SHARE: Final = 0.1
_AT_ONCE: Final = 500


def find_cache(path: Path) -> Path | None:
    """The file of a cache, or that in its folder; None if there is none."""
    file = path / CACHE_FILE if path.is_dir() else path
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        header = opened.read(_ID_AT + 4)
    is_ours = header.startswith(_SQLITE) and int.from_bytes(header[_ID_AT:], "big") == _APPLICATION_ID
    return file if is_ours else None


class KnownApi(NamedTuple):
    """A model of an API, as it was when its fixed texts were encoded, and what it was asked since."""

    identity: str  # address, model and options
    fingerprint: str
    name: str  # for people
    canary: str  # vectors of fixed texts: `Canary.to_text`
    dim: int
    seen_at: int  # when it was last found to be the model that answers, in nanoseconds since 1970
    n_texts: int = 0
    n_bytes: int = 0  # of these texts
    n_tokens: int = 0  # that the API charged for, as far as it says


_TYPES_OF_API: Final = [str, str, str, str, int, int, int, int, int]
_INSERTED_API: Final = f"INSERT INTO apis ({', '.join(KnownApi._fields)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, used INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS by_use ON vectors (used)",
    "CREATE TABLE IF NOT EXISTS apis (identity TEXT, fingerprint TEXT, name TEXT, canary TEXT, dim INTEGER, "
    "seen_at INTEGER, n_texts INTEGER, n_bytes INTEGER, n_tokens INTEGER, PRIMARY KEY (identity, fingerprint))",
)


class VectorCache:
    """Vectors in an SQLite file. The least recently used ones are removed.

    Several processes may share the file. Threads may share this object: its connection is behind a lock.

    Parameters
    ----------
    path : Path
        The file; it is made if it is not there.
    max_bytes : int
        Size above which a tenth of the vectors are removed.
    is_read_only : bool, default False
        Whether to leave the file as it is.

    Raises
    ------
    FileFormatError
        If the file is something else, or damaged.
    OutputError
        If it cannot be opened.
    """

    def __init__(self, path: Path, *, max_bytes: int, is_read_only: bool = False) -> None:
        self.path, self._max_bytes, self._lock = path, max_bytes, threading.Lock()
        # A file that nobody writes is opened without making a log next to it: its folder may be closed.
        is_alone = is_read_only and not path.with_name(f"{path.name}-wal").exists()
        self._alone_since = _state(path) if is_alone else None
        mode = "mode=ro&immutable=1" if is_alone else "mode=ro" if is_read_only else "mode=rwc"
        try:
            self._database = sqlite3.connect(
                f"{path.absolute().as_uri()}?{mode}",
                uri=True,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(path, is_read_only=is_read_only)
            except BaseException:
                self._database.close()
                raise
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OutputError(f"{path} cannot be used as a cache: {error}.") from None
            raise FileFormatError(
                f"{path} is no cache of vectors, or it is damaged. Name another file, or remove it."
            ) from None

    def _prepare(self, path: Path, *, is_read_only: bool) -> None:
        """Refuse a database of something else; make the tables where there are none."""
        # In this order: another process that is making them has written the ID before the first table.
        [[n_tables]] = self._database.execute("SELECT count(*) FROM sqlite_master")
        [[application]] = self._database.execute("PRAGMA application_id")
        [[version]] = self._database.execute("PRAGMA user_version")
        if application != _APPLICATION_ID and (n_tables or is_read_only):
            raise FileFormatError(f"{path} is a database of something else. Name another file.")
        if version > _VERSION:
            raise FileFormatError(f"{path} is a cache of a newer version of isosent ({version}). Name another file.")
        if is_read_only:
            return
        if application != _APPLICATION_ID:
            self._database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        if version != _VERSION:  # last, so that a kill leaves no half of it
            self._use_log()
            with self._writing():
                for statement in _TABLES:
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {_VERSION}")
        self._database.execute("PRAGMA synchronous = NORMAL")  # after a power cut the last vectors may be missing

    def _use_log(self) -> None:
        """Write changes to a log first. For this alone SQLite does not wait until others are done."""
        end = time.monotonic() + _BUSY_S
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() >= end:
                    raise
            time.sleep(_ASKED_AGAIN_S)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the stored vectors.

        Parameters
        ----------
        keys : sequence of bytes
            Hashes of texts.

        Returns
        -------
        dict of bytes to ndarray of shape (dim,), float32
            The vectors by their hashes. Those that are not there are left out.

        Raises
        ------
        sqlite3.Error
            If the file cannot be read.
        """
        vectors: dict[bytes, NDArray[np.float32]] = {}
        with self._lock:
            for start in range(0, len(keys), _AT_ONCE):
                block = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(block))
                rows = self._database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", block)
                vectors |= {
                    key: np.frombuffer(vector, "<f4")
                    for key, vector in rows
                    if isinstance(vector, bytes) and vector and not len(vector) % 4  # else it is damaged
                }
            if self._alone_since is not None and _state(self.path) != self._alone_since:
                raise sqlite3.OperationalError("another process writes to it; open it again")
            if vectors and self._n_bytes() > self._max_bytes / 2:  # else which are removed first is of no use
                self._touch(list(vectors))
        return vectors

    def _touch(self, keys: list[bytes]) -> None:
        """Note that vectors were used; not while another process writes, because a lookup should not wait."""
        rows = [(time.time_ns(), key) for key in keys]
        with suppress(sqlite3.Error):
            self._database.execute("PRAGMA busy_timeout = 0")
            with self._writing():
                self._database.executemany("UPDATE vectors SET used = ? WHERE key = ?", rows)
        self._database.execute(f"PRAGMA busy_timeout = {round(1000 * _BUSY_S)}")

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep vectors, and remove others if there are too many.

        Parameters
        ----------
        vectors : mapping of bytes to ndarray of shape (dim,)
            Vectors by the hashes of their texts. They are kept as float32.

        Raises
        ------
        sqlite3.Error
            If the file cannot be written.
        """
        now = time.time_ns()
        rows = [(key, vector.astype("<f4").tobytes(), now) for key, vector in vectors.items()]
        with self._lock, self._writing():
            self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._remove_oldest()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write all in one step, or nothing."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # SQLite itself ends it if the disk is full
                self._database.execute("ROLLBACK")
            raise

    def _n_bytes(self) -> int:
        """Bytes of the file that are in use."""
        [[n_pages]], [[n_free]], [[page_bytes]] = (
            self._database.execute(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
        )
        return int((n_pages - n_free) * page_bytes)

    def _remove_oldest(self) -> None:
        if self._n_bytes() > self._max_bytes:
            self._database.execute(
                "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used LIMIT "
                "(SELECT 1 + CAST(count(*) * ? AS INTEGER) FROM vectors))",
                [_REMOVED_SHARE],
            )

    def known(self, identity: str | None = None) -> list[KnownApi]:
        """Return the APIs that made vectors.

        Parameters
        ----------
        identity : str, optional
            Address, model and options of one; all by default.

        Returns
        -------
        list of KnownApi
            The one that was seen last comes first.

        Raises
        ------
        sqlite3.Error
            If the file cannot be read.
        """
        with self._lock:
            rows = self._database.execute(
                f"SELECT {', '.join(KnownApi._fields)} FROM apis WHERE ? IN (identity, '') ORDER BY seen_at DESC",
                [identity or ""],
            ).fetchall()
        if any([type(value) for value in row] != _TYPES_OF_API for row in rows):
            raise sqlite3.DatabaseError("what it knows of an API is damaged")
        return [KnownApi._make(row) for row in rows]

    def remember(self, api: KnownApi) -> None:
        """Keep what is known of an API, or note that it is the model that answers now.

        Parameters
        ----------
        api : KnownApi
            The API.

        Raises
        ------
        sqlite3.Error
            If the file cannot be written.
        """
        with self._lock:
            self._database.execute(f"{_INSERTED_API} ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at", api)

    def count(self, api: KnownApi, *, n_texts: int, n_bytes: int, n_tokens: int) -> None:
        """Add to what an API was asked; it is kept if it is new.

        Parameters
        ----------
        api : KnownApi
            The API.
        n_texts, n_bytes, n_tokens : int
            Texts, their bytes, and the tokens that were charged.

        Raises
        ------
        sqlite3.Error
            If the file cannot be written.
        """
        with self._lock:
            self._database.execute(
                f"{_INSERTED_API} ON CONFLICT DO UPDATE SET n_texts = n_texts + excluded.n_texts, "
                "n_bytes = n_bytes + excluded.n_bytes, n_tokens = n_tokens + excluded.n_tokens",
                api._replace(n_texts=n_texts, n_bytes=n_bytes, n_tokens=n_tokens),
            )

    def facts(self) -> dict[str, Any]:
        """Return what the file holds.

        Returns
        -------
        dict
            Numbers of vectors and bytes, and what each API was asked.
        """
        with self._lock:
            [[n_vectors]] = self._database.execute("SELECT count(*) FROM vectors")
            n_bytes = self._n_bytes()
        fields = ("name", "dim", "fingerprint", "n_texts", "n_tokens", "seen_at")
        apis = [{name: getattr(api, name) for name in fields} for api in self.known()]
        return {"vectors": n_vectors, "bytes": n_bytes, "apis": apis}

    def close(self) -> None:
        """Close the file."""
        with self._lock, closing(self._database):
            pass


def _state(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
