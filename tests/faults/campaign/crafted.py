"""What a hostile author does and an accident does not: files that describe a changed one are made to fit it again."""

import hashlib
import json
import random
import re
import struct
from contextlib import suppress
from pathlib import Path

from isosent.io.checksum import checksum_of
from isosent.io.json import document_bytes
from isosent.io.notes import file_identity

_HASHED = re.compile(r"(linear_map|flow|corpus|quantization|canary)-[0-9a-f]{16}\.safetensors")
_NUMBERS = (0, 1, 2, 3, 7, 16, 255, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 63, (1 << 64) - 1)
_CODES = b"IxFI IxSQ IxPT LTra IHNf IwFl IwSq ilar full sprs VNrm RmDT IxMp Ixrq Iwrq null IxPq IwPQ ilod IxRF".split()


def described_again(folder: Path, name: str, before: bytes, content: bytes) -> list[str]:
    """Change what other files of the folder say of one; returns their names.

    Checksums and sizes in notes, manifests and indexes of shards; in a model, the hash in the name of the file, and the
    fingerprint.
    """
    path = folder / name
    changed = []
    for note in [*path.parent.glob("*.json"), *path.parent.glob(".*.json"), *path.parent.parent.glob("*.json")]:
        if note == path:
            continue
        with suppress(ValueError):
            document = json.loads(note.read_bytes())
            again = _replaced(document, _facts(path, before), _facts(path, content))
            if _HASHED.fullmatch(path.name) and note.name == "model.json":
                again = _model(again, path, content)
            if again != document:
                changed.append(str(note.relative_to(folder)))
                again.pop("checksum", None)
                note.write_bytes(document_bytes(again))
    return changed


def _facts(path: Path, content: bytes) -> dict[str, object]:
    """What a file may say of another."""
    path.write_bytes(content)
    return {"checksum": checksum_of(content), "sha256": hashlib.sha256(content).hexdigest(), **file_identity(path)}


def _replaced(value: object, before: dict[str, object], after: dict[str, object]) -> object:
    if isinstance(value, dict):
        return {
            name: after["size_bytes"]
            if (name, inner) == ("size_bytes", before["size_bytes"])
            else _replaced(inner, before, after)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_replaced(inner, before, after) for inner in value]
    return next((after[name] for name, old in before.items() if isinstance(value, str) and value == old), value)


def _model(document: dict[str, object], path: Path, content: bytes) -> dict[str, object]:
    """The document of a model with another file, whose name has no hash because somebody chose it."""
    from isosent.persistence import ModelRecord, _postprocessing

    kind = path.name.partition("-")[0]
    (path.parent / f"{kind}.safetensors").write_bytes(content)
    document = document | {kind: f"{kind}.safetensors"}
    with suppress(Exception):  # it cannot be read, which isosent has to say itself
        encoder = document["encoder"]
        steps = _postprocessing(path.parent, document)
        record = ModelRecord(encoder["reference"], encoder["options"], encoder["dim"], encoder["fingerprint"], steps)
        document["fingerprint"] = record.fingerprint
    return document


def binary(content: bytes, chosen: random.Random) -> bytes:
    """Change what says how long a vector is, which kind follows, or which row is meant, near the head or anywhere."""
    spoilt = bytearray(content)
    for _ in range(chosen.choice((1, 1, 1, 2, 4))):
        place = chosen.choice((chosen.randrange(len(spoilt)), chosen.randrange(min(len(spoilt), 2600))))
        match chosen.randrange(6):
            case 0:
                spoilt[place] ^= 1 << chosen.randrange(8)
            case 1:
                spoilt[place : place + 4] = struct.pack("<I", chosen.choice(_NUMBERS) & 0xFFFFFFFF)
            case 2:
                spoilt[place : place + 8] = struct.pack("<Q", chosen.choice(_NUMBERS))
            case 3 if place + 8 <= len(spoilt):
                (number,) = struct.unpack_from("<Q", spoilt, place)
                struct.pack_into("<Q", spoilt, place, (number + chosen.choice((-1, 1, 1000, number))) % (1 << 64))
            case 4:
                spoilt[place : place + 4] = chosen.choice(_CODES)
            case _:
                del spoilt[place : place + chosen.randrange(1, 64)]
        spoilt = spoilt or bytearray(1)
    return bytes(spoilt)
