"""Write a static model as a folder of Model2Vec that sentence-transformers opens too, and compare their vectors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from isosent import _extras
from isosent.encoders.static import StaticEncoder
from isosent.evaluation.overlap import text_hashes
from isosent.exports.check import (
    EXPORT,
    compare_on_texts,
    require_agreement,
    total,
    write_folder_note,
)
from isosent.exports.sentence_transformers import check_vectors, quiet_library
from isosent.io.atomic import replacing_folder
from isosent.io.notes import TEXTS_FILE
from isosent.io.tensors import tensors_bytes
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.storage import Storage
from isosent.words.subwords import SubwordTokenizer

TARGET = "model2vec"


def write_static(
    static: StaticEncoder, output: str | os.PathLike[str], notes: dict[str, Any], seen: Iterable[str]
) -> None:
    """Write a folder of Model2Vec that sentence-transformers opens too, and compare the vectors of each library."""
    modules = [
        {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": static.dim,
        "normalize": True,
        "max_length": None,
        "embedding_dtype": Storage.float32,
    }
    assert isinstance(static.tokenizer, SubwordTokenizer)
    with replacing_folder(output, EXPORT) as folder:
        save_file({"embeddings": np.ascontiguousarray(static.token_vectors)}, folder / "model.safetensors")
        (folder / TEXTS_FILE).write_bytes(tensors_bytes({"hashes": np.unique(text_hashes(seen))}, {}))
        static.tokenizer.tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        for name, document in (("config.json", config), ("modules.json", modules)):
            (folder / name).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        model = load(f"static:{folder}")
        agreements = [compare_on_texts(SentenceEncoder(static), model.encode, has_zero_rows=True)]
        if find_spec("model2vec"):
            theirs = _extras.require("model2vec").StaticModel.from_pretrained(str(folder))
            agreements.append(compare_on_texts(model, theirs.encode, has_zero_rows=True))
        if find_spec("sentence_transformers"):
            with quiet_library():
                agreements.append(check_vectors(TARGET, model, folder))
        agreement = total(agreements)
        require_agreement(TARGET, agreement)
        reference = f"static:{Path(output).name}"  # not the temporary folder
        named = StaticEncoder(reference, model.encoder.options, static.tokenizer, static.token_vectors, normalize=True)
        write_folder_note(folder, TARGET, SentenceEncoder(named), agreement, notes)
