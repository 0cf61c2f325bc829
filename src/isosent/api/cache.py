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
_SQLITE: Final = b"SQLite format 3\0"  # begins the file
_BUSY_S: Final = 10
_REMOVED_SHARE: Final = 0.1
_AT_ONCE: Final = 500


def find_cache(path: Path) -> Path | None:
    """The file of a cache, or that in its folder; None if there is none."""
    file = path / CACHE_FILE if path.is_dir() else path
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        return file if opened.read(len(_SQLITE)) == _SQLITE else None


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


class VectorCache:
    """Vectors in an SQLite file. The least recently used ones are removed.

    Several processes may share the file. Threads may share this object: its connection is behind a lock.

    Parameters
    ----------
    path : Path
        The file; it is made if it is not there.
    max_bytes : int
        Size above which a tenth of the vectors are removed.

    Raises
    ------
    FileFormatError
        If the file is something else, or damaged.
    OutputError
        If it cannot be written.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._max_bytes, self._lock = max_bytes, threading.Lock()
        try:
            self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(path)
            except BaseException:
                self._database.close()
                raise
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OutputError(f"{path} cannot be used as a cache: {error}.") from None
            raise FileFormatError(
                f"{path} is no cache of vectors, or it is damaged. Name another file, or remove it."
            ) from None

    def _prepare(self, path: Path) -> None:
        """Refuse a database of something else; make the table where there is none."""
        [[application]] = self._database.execute("PRAGMA application_id")
        [[n_tables]] = self._database.execute("SELECT count(*) FROM sqlite_master")
        if application != _APPLICATION_ID and n_tables:
            raise FileFormatError(f"{path} is a database of something else. Name another file.")
        self._database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")  # after a power cut the last vectors may be missing
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, used INTEGER NOT NULL)"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS by_use ON vectors (used)")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS apis (identity TEXT, fingerprint TEXT, name TEXT, canary TEXT, dim INTEGER, "
            "seen_at INTEGER, n_texts INTEGER, n_bytes INTEGER, n_tokens INTEGER, "
            "PRIMARY KEY (identity, fingerprint))"
        )

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
                vectors |= {key: np.frombuffer(vector, "<f4") for key, vector in rows}
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
            rows = self._database.execute("SELECT * FROM apis ORDER BY seen_at DESC").fetchall()
        return [known for known in map(KnownApi._make, rows) if identity in (None, known.identity)]

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
            self._database.execute(
                "INSERT INTO apis VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at",
                api,
            )

    def count(self, api: KnownApi, *, n_texts: int, n_bytes: int, n_tokens: int) -> None:
        """Add to what an API was asked.

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
                "UPDATE apis SET n_texts = n_texts + ?, n_bytes = n_bytes + ?, n_tokens = n_tokens + ? "
                "WHERE identity = ? AND fingerprint = ?",
                [n_texts, n_bytes, n_tokens, api.identity, api.fingerprint],
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
