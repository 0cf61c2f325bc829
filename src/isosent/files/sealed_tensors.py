"""A .safetensors file of isosent: the same bytes for the same content, with its own checksum in its metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from isosent.errors import FileFormatError
from isosent.files.checksum import UNSEALED, damaged, is_intact, sealed

SEAL = "isosent.checksum"


def tensors_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata in the format of safetensors, sealed."""
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    length = int.from_bytes(content[:8], "little")
    # the library writes its metadata in another order in every process
    header = {"__metadata__": dict(sorted(metadata.items())) | {SEAL: UNSEALED}} | json.loads(content[8 : 8 + length])
    written = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    written += b" " * (-len(written) % 8)  # the format aligns the tensors
    return sealed(len(written).to_bytes(8, "little") + written + content[8 + length :])


def read_tensors(path: Path, metadata: Mapping[str, str], known: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read what `tensors_bytes` gave.

    Parameters
    ----------
    path : Path
        The file.
    metadata : mapping of str to str
        What its header says.
    known : collection of str
        The names that its metadata may have: any other one is damage.

    Returns
    -------
    dict of str to ndarray
        Its arrays.

    Raises
    ------
    FileFormatError
        If it is damaged. Files from before checksums have none to compare.
    """
    content = path.read_bytes()
    if unknown := sorted(set(metadata) - {*known, SEAL}):
        raise FileFormatError(f"{path}: damaged. Its metadata has an unknown field {unknown[0]!r}. Write it again.")
    if SEAL in metadata and not is_intact(content, metadata[SEAL]):
        raise damaged(str(path))
    try:
        return load(content)
    except SafetensorError as error:
        raise FileFormatError(f"{path}: damaged or truncated: {error}.") from None
