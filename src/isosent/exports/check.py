"""What every export must show before it appears under its name: the same vectors as the model, on the same texts."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.demo import demo_texts
from isosent.encoders.base import Encoder
from isosent.encoders.load import encoder_for
from isosent.encoders.reference import ENCODER_FOLDER
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import PROMPT_OF, WINDOWS, TransformerEncoder
from isosent.errors import FileFormatError, InputError, IsosentWarning, OutputError
from isosent.exports.tokenizer import WORD_MARK
from isosent.io.atomic import Replaceable
from isosent.io.checksum import verify_file
from isosent.io.json import document_bytes, without_nan
from isosent.io.space import (
    EXPORT_FORMAT,
    NOTE_FILE,
    Space,
    exported_checksums,
    file_identity,
    is_replaceable,
    read_export_note,
    verify_export,
)
from isosent.model import SentenceEncoder
from isosent.networks.load import TORCH, Runtime
from isosent.words.subwords import SubwordTokenizer

EXPORT = Replaceable("an older export and nothing else", is_replaceable)

_PROMPTS = frozenset(PROMPT_OF.values())


@dataclass(frozen=True, slots=True)
class Export:
    """What was written.

    Parameters
    ----------
    target : str
        Name of the format.
    path : Path
        Where it is.
    space : Space
        The space of its vectors.
    agreement : Agreement
        How close its vectors are to those of the model.
    """

    target: str
    path: Path
    space: Space
    agreement: Agreement


def space_of(model: SentenceEncoder) -> Space:
    """The space of a model's vectors."""
    return Space(model.fingerprint, shortened(model.record.name))


def shortened(reference: str) -> str:
    """Write a reference, or the name of a source, without the folders of the machine it was made on."""
    scheme, rest = re.fullmatch(r"([a-z][a-z0-9]+:)?(.*)", reference, re.DOTALL).groups("")  # type: ignore[union-attr]
    return scheme + ",".join(_last_name(path) for path in rest.split(","))


def _last_name(path: str) -> str:
    blank = path[: len(path) - len(path.lstrip())]
    names = re.split(r"[/\\]", path.strip().rstrip("/\\"))
    return blank + "/".join(names[-2:] if names[-1] == ENCODER_FOLDER else names[-1:])


def shared_facts(model: SentenceEncoder) -> dict[str, Any]:
    """What a result file says about a model, without the folders of the machine it was made on."""
    facts = model.record.facts()
    return facts | {
        "reference": shortened(facts["reference"]),
        "options": {name: value if name in _PROMPTS else shortened(value) for name, value in facts["options"].items()},
        "fits": [fit | {"source": shortened(fit["source"])} for fit in facts["fits"]],
    }


def note_bytes(target: str, model: SentenceEncoder, agreement: Agreement, more: Mapping[str, Any]) -> bytes:
    """Write the note: what was exported, how the check went, and what a reader of this format must know."""
    return document_bytes(
        {
            "format": EXPORT_FORMAT,
            "target": target,
            "isosent_version": version("isosent"),
            **space_of(model).to_json(),
            "normalize": model.normalize,
            **more,
            "model": without_nan(shared_facts(model)),
            "agreement": asdict(agreement),
        }
    )


def write_folder_note(
    folder: Path, target: str, model: SentenceEncoder, agreement: Agreement, more: Mapping[str, Any]
) -> None:
    """Write the note of a folder, whose other files are there, with the checksum of each."""
    note = note_bytes(target, model, agreement, {**more, "checksums": exported_checksums(folder)})
    (folder / NOTE_FILE).write_bytes(note)


def read_space(path: str | os.PathLike[str]) -> Space:
    """Read which space an export belongs to."""
    document = read_export_note(path)
    if Path(path).is_dir():
        verify_export(Path(path))
    else:
        document |= file_entry(Path(path), document) or {}
    return Space(document["fingerprint"], document["reference"])


def file_entry(path: Path, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the note beside an exported file says of it as it is now; the bytes of the file are checked."""
    # None where there is no file, or its note is from before notes described their file.
    if not path.is_file() or "files" not in document:
        return None
    identity = file_identity(path).items()
    entry = next((entry for entry in document["files"] if identity <= entry.items()), None)
    if entry is None:
        raise FileFormatError(
            f"{path} is not the file that its note describes: one of them was replaced. Export again."
        )
    verify_file(path, entry["checksum"])
    return dict(entry)


def refuse_flow(model: SentenceEncoder) -> None:
    """Refuse a model that ends with a flow, which no other format holds."""
    if model.flow is not None:
        raise InputError(
            "export: the model must not end with a flow, which no other format expresses; it does. Use isosent itself "
            "for it, or fit a linear transform such as whitening."
        )


def exportable(model: SentenceEncoder) -> SentenceEncoder:
    """Return a model as it can be exported."""
    refuse_flow(model)
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        return model
    if encoder.equal_lengths:
        raise InputError(
            f"export: {encoder.reference} sees its padding, so texts in one batch would change each other's vectors in "
            "other libraries. Use isosent itself for it, or export to faiss or numpy."
        )
    if encoder.options["long"] == WINDOWS:
        raise InputError(
            "export: other libraries cut long texts, and this model takes the mean over windows of them. Open its "
            "encoder with long=truncate and fit again, or export to faiss or numpy."
        )
    return SentenceEncoder.from_record(encoder.with_runtime(Runtime(TORCH, devices="cpu")), model.record)


LARGEST_DIFFERENCE = 1e-3
LOWEST_COSINE = 1 - 1e-5

LONGEST_LIMIT = 2048

_EVERY = 15
_N_JOINED = 40
_MOST_SPECIAL = 8
_SIGNS_OF_TOKENS = f"{WORD_MARK}▁Ġ#"
_UNUSUAL = (
    "no",
    "12.5 km/h, isn't it -- (really)!?",
    "  two  spaces\tand a\nnew line ",
    "Ein Satz auf Deutsch: ÄÖÜ äöü, naïve façade, Straße",
    "Привет, мир! Как дела?",
    "你好世界。今天天气很好",
    "ΚΑΛΗΜΕΡΑ ΚΟΣΜΕ, καλημέρα κόσμε",
    "مرحبا بالعالم",
    "안녕하세요 세계",
    "a smile 🙂 and qzxvk, an unknown word",
)

Encode = Callable[[Sequence[str]], NDArray[np.floating]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How close the vectors of an export are to those of the model."""

    n_vectors: int  # vectors compared
    largest_difference: float  # largest difference of two entries, as a share of the length of the vector
    lowest_cosine: float  # lowest cosine of a vector with its counterpart

    @property
    def holds(self) -> bool:
        """Whether both figures are within `LARGEST_DIFFERENCE` and `LOWEST_COSINE`."""
        return self.largest_difference <= LARGEST_DIFFERENCE and self.lowest_cosine >= LOWEST_COSINE


def sample_texts(encoder: Encoder) -> list[str]:
    """Texts to compare on."""
    ordinary = demo_texts()
    beside = (*_UNUSUAL, *_known_words(encoder), *_special_texts(encoder))
    return [_long_text(encoder, ordinary), *ordinary[::_EVERY], *beside, "", "   "]


def _long_text(encoder: Encoder, ordinary: Sequence[str]) -> str:
    """A text of half as many words again as the encoder takes tokens; no word has less than a token."""
    maximum = encoder.options.get("max_length", "none")
    limit = 0 if maximum == "none" or int(maximum) > LONGEST_LIMIT else int(maximum)
    joined = " ".join(ordinary[:_N_JOINED])
    return " ".join([joined] * max(1, math.ceil(1.5 * limit / len(joined.split()))))


def _known_words(encoder: Encoder) -> list[str]:
    """A text of words that the encoder knows, whatever its language."""
    if not isinstance(encoder, StaticEncoder):
        return []
    words = (token.strip(_SIGNS_OF_TOKENS) for token in encoder.vocabulary())
    return [" ".join(islice(filter(str.isalnum, words), _N_JOINED))]


def _special_texts(encoder: Encoder) -> list[str]:
    """A text with each special token written out; none where exports cannot follow (see docs/export.md)."""
    tokens: list[str] = []
    if isinstance(encoder, TransformerEncoder) and not (encoder.module_folder.lowercase or encoder.prompt):
        tokens = encoder.tokenizer.all_special_tokens
    elif isinstance(encoder, StaticEncoder) and isinstance(encoder.tokenizer, SubwordTokenizer):
        tokens = [token.content for token in encoder.tokenizer.tokenizer.get_added_tokens_decoder().values()]
    return [f"the company said {token} shares{token} rose" for token in tokens[:_MOST_SPECIAL]]


def compare_on_texts(model: SentenceEncoder, theirs: Encode, *, zero_rows: bool, role: str = "text") -> Agreement:
    """Compare an export that takes texts with the model."""
    texts = sample_texts(encoder_for(model.encoder, role))
    encode = {"text": model.encode, "query": model.encode_query, "document": model.encode_document}[role]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsosentWarning)
        ours = encode(texts)
    kept = np.flatnonzero(ours.any(axis=1) | zero_rows)
    parts = [[texts[row] for row in rows] for rows in (kept[:1], kept[1:]) if len(rows)]  # the long one pads no others
    return compare(ours[kept], np.concatenate([theirs(part) for part in parts]) if parts else np.empty(0))


def compare(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> Agreement:
    """Compare vectors row by row."""
    theirs = np.asarray(theirs)
    if ours.shape != theirs.shape or not np.isfinite(theirs).all():
        return Agreement(len(ours), float("inf"), -1.0)
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    lengths, their_lengths = np.linalg.norm(ours, axis=1), np.linalg.norm(theirs, axis=1)
    differences = np.abs(ours - theirs).max(axis=1) / np.where(lengths > 0, lengths, 1)
    differences[(lengths > 0) != (their_lengths > 0)] = np.inf
    products = lengths * their_lengths
    cosines = np.where(products > 0, (ours * theirs).sum(axis=1) / np.where(products > 0, products, 1), 1.0)
    return Agreement(len(ours), float(differences.max(initial=0)), float(min(cosines.min(initial=1), 1)))


def total(agreements: Iterable[Agreement]) -> Agreement:
    """Put together what was found of several sets of vectors."""
    numbers, differences, cosines = zip(*map(astuple, agreements), strict=True)
    return Agreement(sum(numbers), max(differences), min(cosines))


def require_agreement(target: str, agreement: Agreement) -> None:
    """Refuse an export that gives other vectors."""
    if not agreement.holds:
        raise OutputError(
            f"export: the vectors of the {target} export must be those of the model; over {agreement.n_vectors} sample "
            f"texts they differ by up to {agreement.largest_difference:.1e} of their length, and the lowest cosine is "
            f"{agreement.lowest_cosine:.6f}. Nothing was written."
        )


def sample_vectors(model: SentenceEncoder, n_vectors: int = 64) -> NDArray[np.float32]:
    """Vectors to compare exports on that take the vectors of the bare encoder."""
    rows = np.random.default_rng(0).standard_normal((n_vectors, model.encoder.dim))
    if model.linear_map is not None and model.linear_map.bias.any():
        mapped = rows @ model.linear_map.weight
        rows *= np.linalg.norm(model.linear_map.bias) / np.sqrt((mapped**2).sum(axis=1).mean())
    return rows.astype(np.float32)
