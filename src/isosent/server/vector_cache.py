"""A bounded file of upstream vectors by the hash of their text, so that a new map costs no calls."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError, OutputError

_APPLICATION_ID = 0x1505E47
_BUSY_S = 10
_REMOVED_SHARE = 0.1
_AT_ONCE = 500


class VectorCache:
    """Vectors in an SQLite file, which several processes may share. The least recently used ones are removed.

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
            raise FileFormatError(f"{path} must be a cache of vectors; it is damaged or something else.") from None

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

    def get(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are there."""
        found: dict[bytes, NDArray[np.float32]] = {}
        with self._lock:
            for start in range(0, len(keys), _AT_ONCE):
                block = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(block))
                rows = self._database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", block)
                found |= {key: np.frombuffer(vector, "<f4") for key, vector in rows}
            if found:
                self._touch(list(found))
        return found

    def _touch(self, keys: list[bytes]) -> None:
        """Note that vectors were used; not while another process writes, because a lookup should not wait."""
        with suppress(sqlite3.Error):
            self._database.execute("PRAGMA busy_timeout = 0")
            rows = [(time.time_ns(), key) for key in keys]
            self._database.executemany("UPDATE vectors SET used = ? WHERE key = ?", rows)
        self._database.execute(f"PRAGMA busy_timeout = {round(1000 * _BUSY_S)}")

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep vectors, and remove others if there are too many."""
        now = time.time_ns()
        rows = [(key, vector.astype("<f4").tobytes(), now) for key, vector in vectors.items()]
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
                self._remove_oldest()
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise

    def _remove_oldest(self) -> None:
        [[n_pages]], [[n_free]], [[page_bytes]] = (
            self._database.execute(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
        )
        if (n_pages - n_free) * page_bytes > self._max_bytes:
            self._database.execute(
                "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used LIMIT "
                "(SELECT 1 + CAST(count(*) * ? AS INTEGER) FROM vectors))",
                [_REMOVED_SHARE],
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock, closing(self._database):
            pass
