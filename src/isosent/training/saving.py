"""Save a trained model as one folder that both isosent and sentence-transformers load."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from safetensors import SafetensorError

from isosent.encoders.reference import ENCODER_FOLDER, escape
from isosent.errors import InputError, OutputError
from isosent.exports.check import compare_on_texts, exportable, require_agreement
from isosent.exports.sentence_transformers import (
    TARGET,
    InexpressibleError,
    check_vectors,
    postprocessing_modules,
    quiet_library,
)
from isosent.io.atomic import Replaceable, check_folder, replacing_folder
from isosent.io.checksum import folder_checksums
from isosent.io.json import document_bytes
from isosent.io.system import read_bytes
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.persistence import RECORD_FILE, holds_its_encoder, model_files
from isosent.transforms.base import Auto, Transform

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_MODULES, _CONFIG = "modules.json", "config_sentence_transformers.json"
_FILES: Final = re.compile(
    r"encoder|\d+_(Dense|Normalize)|(modules|config_sentence_transformers|model|training)\.json|metrics\.jsonl|curve\.html"
    r"|linear_map-[0-9a-f]{16}\.safetensors|events\.out\.tfevents\..*"
)
_TRAINED: Final = Replaceable(
    "an older trained model",
    lambda folder: holds_its_encoder(folder) and all(_FILES.fullmatch(path.name) for path in folder.iterdir()),
)


def check_training_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a place where no trained model can be written, before any work is done."""
    if holds_its_encoder(parent := Path(folder).absolute().parent):
        raise OutputError(f"{folder} must not lie in a trained model, {parent}. Choose another folder.")
    check_folder(folder, _TRAINED)


def save_trained(
    model: SentenceTransformer,
    folder: str | os.PathLike[str],
    *,
    transform: Transform | Auto | None = None,
    fit_texts: Sequence[str] = (),
    source: str = "training texts",
    extra_files: Mapping[str, bytes] | None = None,
    record: Callable[[SentenceEncoder], Mapping[str, Any]] | None = None,
) -> SentenceEncoder:
    """Fit a transform if there is one, save everything, and load it again.

    `record` makes ``training.json``; `extra_files`, which only people read, can be edited or removed later.
    """
    extra_files = extra_files or {}
    with replacing_folder(folder, _TRAINED) as temporary, quiet_library():
        try:
            encoder = _write_encoder(model, temporary / ENCODER_FOLDER)
            saved = encoder
            if transform is not None:
                saved = encoder.fitted(fit_texts, transform=transform, source=source)
            _write_model(saved, temporary)
            for name, content in extra_files.items():
                path = temporary / name
                if path.parent != temporary or path.exists():
                    raise InputError(f"save_trained: extra_files must have new names, without folders; got {name!r}.")
                path.write_bytes(content)
        except SafetensorError as error:
            raise OutputError(f"{folder} could not be written: {error}.") from error
        check_vectors(TARGET, exportable(saved), temporary)
        if record is not None:
            document = {**record(saved), "checksums": folder_checksums(temporary, without=extra_files)}
            (temporary / RECORD_FILE).write_bytes(document_bytes(document))
    return load(Path(folder))


def _write_encoder(model: SentenceTransformer, folder: Path) -> SentenceEncoder:
    """Write the trained encoder alone, and load it: the vectors must be those of the model in memory."""
    was_training = model.training
    # A tokenizer saves the padding and truncation of its last call; a run that is resumed after its last step had none.
    model.preprocess(["text"])
    model.save_pretrained(str(folder), create_model_card=False)
    kind = "static" if type(model[0]).__name__ == "StaticEmbedding" else "hf"
    encoder = load(f"{kind}:{escape(str(folder))}")
    encode = partial(model.encode, show_progress_bar=False)
    require_agreement("isosent", compare_on_texts(exportable(encoder), encode, has_zero_rows=False))
    model.train(was_training)
    return encoder


def _write_model(model: SentenceEncoder, folder: Path) -> None:
    """Write the files of both libraries; the weights of the encoder stay in its folder."""
    for name, content in model_files(folder, model.record).items():
        (folder / name).write_bytes(content)
    listed = json.loads(read_bytes(folder / ENCODER_FOLDER / _MODULES))
    for entry in listed:
        entry["path"] = "/".join(part for part in (ENCODER_FOLDER, entry["path"]) if part)
    try:
        postprocessing = postprocessing_modules(model)
    except InexpressibleError as error:
        raise InputError(f"train: {error}") from error
    for place, module in enumerate(postprocessing, start=len(listed)):
        kind = type(module)
        path = f"{place}_{kind.__name__}"
        (folder / path).mkdir()
        module.save(str(folder / path))
        listed.append({"idx": place, "name": str(place), "path": path, "type": f"{kind.__module__}.{kind.__name__}"})
    (folder / _MODULES).write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    shutil.copy(folder / ENCODER_FOLDER / _CONFIG, folder / _CONFIG)
