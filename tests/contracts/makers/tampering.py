"""Changes of a saved model as somebody makes them who knows the format: the checksums fit, or are left out."""

import hashlib
import json

import pytest
from safetensors.numpy import save

import isosent
from isosent.errors import ModelFolderError


def rewrite(folder, **changes):
    """Change fields of ``model.json``, and leave out its checksum."""
    document = json.loads((folder / "model.json").read_text("utf-8"))
    document.pop("checksum", None)
    (folder / "model.json").write_text(json.dumps(document | changes), "utf-8")


def replace_part(folder, kind, tensors):
    """Replace the file of a kind ("linear_map", "flow", "corpus") by one of other tensors under a name that fits."""
    for older in folder.glob(f"{kind}-*.safetensors"):
        older.unlink()
    content = save(tensors)
    name = f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
    (folder / name).write_bytes(content)
    rewrite(folder, **{kind: name})


def refuses(folder, words):
    """Check that a model folder is refused with these words."""
    with pytest.raises(ModelFolderError, match=words):
        isosent.load(folder)
