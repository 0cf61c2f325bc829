"""Writing so that a failed or killed run leaves the old file as it was."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isosent.errors import OutputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; when the block ends well, it becomes `path` in one step.

    Parameters
    ----------
    path : path-like
        The file to write. Its folder must exist.

    Yields
    ------
    Path
        A path, not yet taken, in the same folder and with the same ending.

    Raises
    ------
    OutputError
        If the file cannot be written, the disk is full for one. What was at `path` is still there.
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} must be a file to write; got a directory. Name a file.")
    if not path.parent.is_dir():
        raise OutputError(f"{path} must lie in an existing folder; got no folder {path.parent}. Make it first.")
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        kept = "; the file that was there is intact" if path.exists() else ""
        raise OutputError(f"{path} could not be written: {error.strerror or error}{kept}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _flush_to_disk(path: Path) -> None:
    """Wait until the content is on the disk, so that the rename never precedes it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
