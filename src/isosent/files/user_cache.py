"""Where files lie that can be made again: the user's cache."""

import os
from pathlib import Path


def user_cache(kind: str) -> Path:
    """Find the folder of one kind of files.

    Parameters
    ----------
    kind : str
        Name of the folder.

    Returns
    -------
    Path
        ``isosent/KIND`` in the folder that ISOSENT_CACHE names, else XDG_CACHE_HOME, else ``~/.cache``.
    """
    root = os.environ.get("ISOSENT_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "isosent" / kind
