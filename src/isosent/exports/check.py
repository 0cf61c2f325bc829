"""What every export shares: its note, and the check that it gives the vectors of the model.

`exportable` and `required_maps` refuse what a format cannot hold. When an export is written, `compare_on_texts` encodes
texts with it and with the model, and `require_agreement` refuses an `Agreement` that is worse than rounding explains.
`note_bytes` and `write_folder_note` put next to it what it is, its space and its checksums; `read_space` reads the note
again.
"""

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
from msgspec.structs import replace
from numpy.typing import NDArray

from isosent.demo import demo_texts
from isosent.encoders.base import Encoder
from isosent.encoders.load import encoder_for
from isosent.encoders.reference import ENCODER_FOLDER
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import PROMPT_OF, TransformerEncoder
from isosent.errors import FileFormatError, InputError, IsosentWarning, OutputError, next_step, option
from isosent.exports.tokenizer import WORD_MARK
from isosent.io.atomic import Replaceable
from isosent.io.checksum import verify_file
from isosent.io.json import document_bytes, without_nan
from isosent.io.notes import (
    EXPORT_FORMAT,
    NOTE_FILE,
    exported_checksums,
    file_identity,
    is_replaceable,
    read_export_note,
    verify_export,
)
from isosent.model import SentenceEncoder
from isosent.networks.load import TORCH, Runtime
from isosent.numeric.linear_map import LinearMap
from isosent.role import RoleName
from isosent.space import Space
from isosent.words.subwords import SubwordTokenizer

EXPORT = Replaceable("an older export and nothing else", is_replaceable)

# More than float32 rounding explains, and far less than an error in the export would cause.
LARGEST_DIFFERENCE = 1e-3
LOWEST_COSINE = 1 - 1e-5


@dataclass(frozen=True, slots=True)
class Agreement:
    """How close the vectors of an export are to those of the model."""

    n_vectors: int
    largest_difference: float  # of two entries, as a share of the length of the vector
    lowest_cosine: float

    @property
    def holds(self) -> bool:
        """Whether the difference is at most 0.001 and the cosine at least 0.99999."""
        return self.largest_difference <= LARGEST_DIFFERENCE and self.lowest_cosine >= LOWEST_COSINE


@dataclass(frozen=True, slots=True)
class Export:
    """An export that was written.

    Parameters
    ----------
    target : str
        Name of the format.
    path : Path
        The file or folder.
    space : Space
        The vector space, with its fingerprint.
    agreement : Agreement
        How close its vectors are to those of the model.
    contents : str
        What a filled index holds, in words; empty for other exports.
    """

    target: str
    path: Path
    space: Space
    agreement: Agreement
    contents: str = ""


def read_space(path: str | os.PathLike[str]) -> Space:
    """Read the vector space of an exported folder or file, and check that its files are unchanged."""
    path = Path(path)
    document = read_export_note(path)
    if path.is_dir():
        verify_export(path)
    elif path.is_file():
        identity = file_identity(path).items()
        entry = next((entry for entry in document["files"] if identity <= entry.items()), None)
        if entry is None:
            raise FileFormatError(
                f"{path} is not the file that its note describes: one of them was replaced. Export again."
            )
        verify_file(path, entry["checksum"])
        document = entry
    return Space.of(document)


def exportable(model: SentenceEncoder) -> SentenceEncoder:
    """The model on the CPU in float32; refuses what other libraries cannot do."""
    refuse_nonlinear(model)
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        return model
    if encoder.network.is_graph:
        raise InputError(
            f"export: {encoder.reference} is an ONNX file here, whose weights cannot be written elsewhere or trained. "
            "Name a folder with weights in .safetensors, or export to faiss or numpy."
        )
    if encoder.equal_lengths:
        raise InputError(
            f"export: {encoder.reference} sees its padding. In other libraries, texts in one batch would change each "
            "other's vectors. Use isosent for it, or export to faiss or numpy."
        )
    if encoder.has_windows:
        raise InputError(
            "export: this model averages windows of long texts, which other libraries truncate. Load its encoder with "
            "long=truncate and fit again, or export to faiss or numpy."
        )
    return SentenceEncoder.from_record(encoder.with_runtime(Runtime(TORCH, devices="cpu")), model.record)


def refuse_nonlinear(model: SentenceEncoder) -> None:
    """Refuse a model with a step that is not linear."""
    if (step := model.record.postprocessing.nonlinear) is not None:
        raise InputError(
            f"export: the model ends with {step.noun}, which no other format can express. Use isosent for it, or fit a "
            "linear transform such as whitening."
        )


def required_maps(target: str, model: SentenceEncoder) -> tuple[LinearMap, ...]:
    """The map of a model, and that of queries if they have another, for formats that hold nothing else."""
    refuse_nonlinear(model)
    if not (maps := model.record.postprocessing.maps):
        lacks = f"export: {target} holds the fitted map without the encoder, and this model has none"
        if (stored := model.record.storage) is not None:
            made = next_step("isosent index VECTORS -m MODEL -o INDEX", "Index.create")
            exported = next_step(
                f"isosent export INDEX {option('to', 'faiss')} -o FILE", "isosent.exports.faiss_index.export_index"
            )
            raise InputError(
                f"{lacks}: it leaves vectors unchanged, and only isosent index stores them as {stored.dtype}. Make the "
                f"index: {made}. FAISS searches it, too: {exported}."
            )
        fitted = next_step(f"isosent fit TEXTS -m MODEL {option('transform', 'NAME')}", "model.fitted(texts, NAME)")
        raise InputError(f"{lacks} (auto may have chosen no transform). Fit one: {fitted}.")
    return maps


def space_of(model: SentenceEncoder) -> Space:
    """The vector space of a model, named without the folders of this machine."""
    return replace(model.space, reference=shortened(model.record.name))


def shortened(reference: str) -> str:
    """A model reference or the name of a source with the last name of each path: ``words:/a/b.txt`` is ``words:b.txt``.

    The encoder folder inside a model keeps the name of the model: ``hf:/a/trained/encoder`` is ``hf:trained/encoder``.
    """
    scheme, paths = re.fullmatch(r"([a-z][a-z0-9]+:)?(.*)", reference, re.DOTALL).groups("")  # type: ignore[union-attr]
    return scheme + ",".join(_last_name(path) for path in paths.split(","))


def _last_name(path: str) -> str:
    leading_space = path[: len(path) - len(path.lstrip())]
    names = re.split(r"[/\\]", path.strip().rstrip("/\\"))
    return leading_space + "/".join(names[-2:] if names[-1] == ENCODER_FOLDER else names[-1:])


def shared_facts(model: SentenceEncoder) -> dict[str, Any]:
    """`ModelRecord.facts` without the folders of this machine."""
    facts, prompts = model.record.facts(), PROMPT_OF.values()
    return facts | {
        "reference": shortened(facts["reference"]),
        "options": {name: value if name in prompts else shortened(value) for name, value in facts["options"].items()},
        "fits": [fit | {"source": shortened(fit["source"])} for fit in facts["fits"]],
    }


def note_bytes(target: str, model: SentenceEncoder, agreement: Agreement, more: Mapping[str, Any]) -> bytes:
    """The note of an export: what was exported, how the check went, and what a reader of this format needs."""
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
    """Write the note of a folder with the checksums of all its other files."""
    note = note_bytes(target, model, agreement, {**more, "checksums": exported_checksums(folder)})
    (folder / NOTE_FILE).write_bytes(note)


def require_agreement(target: str, agreement: Agreement) -> None:
    """Refuse an export that gives other vectors."""
    if not agreement.holds:
        raise OutputError(
            f"export: the {target} export does not give the vectors of the model: over {agreement.n_vectors} samples "
            f"they differ by up to {agreement.largest_difference:.1e} of their length, and the lowest cosine is "
            f"{agreement.lowest_cosine:.6f}. Nothing was written."
        )


def compare_on_texts(
    model: SentenceEncoder,
    encode: Callable[[Sequence[str]], NDArray[np.floating]],
    *,
    has_zero_rows: bool,
    role: RoleName = "text",
) -> Agreement:
    """Compare the model with an export that encodes texts; without zero rows there, such texts are left out."""
    texts = sample_texts(encoder_for(model.encoder, role))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsosentWarning)
        expected = model.encode(texts, role=role, show_progress_bar=False)
        rows = np.flatnonzero(expected.any(axis=1) | has_zero_rows)
        # the first text is long: alone, it does not pad the others
        batches = [[texts[row] for row in batch] for batch in (rows[:1], rows[1:]) if len(batch)]
        encoded = np.concatenate([encode(batch) for batch in batches]) if batches else np.empty(0)
    return compare(expected[rows], encoded)


def compare(expected: NDArray[np.floating], vectors: NDArray[np.floating]) -> Agreement:
    """Compare vectors (n_vectors, dim) row by row; another shape, or values that are not finite, never agree."""
    vectors = np.asarray(vectors)
    if expected.shape != vectors.shape or not np.isfinite(vectors).all():
        return Agreement(len(expected), float("inf"), -1.0)
    expected, vectors = expected.astype(np.float64), vectors.astype(np.float64)
    norms, other_norms = np.linalg.norm(expected, axis=1), np.linalg.norm(vectors, axis=1)
    differences = np.abs(expected - vectors).max(axis=1) / np.where(norms > 0, norms, 1)
    differences[(norms > 0) != (other_norms > 0)] = np.inf  # a zero row on one side only
    products = norms * other_norms
    cosines = np.where(products > 0, (expected * vectors).sum(axis=1) / np.where(products > 0, products, 1), 1.0)
    return Agreement(len(expected), float(differences.max(initial=0)), float(min(cosines.min(initial=1), 1)))


def total(agreements: Iterable[Agreement]) -> Agreement:
    """The agreement of several sets of vectors, at least one, as of a single set."""
    counts, differences, cosines = zip(*map(astuple, agreements), strict=True)
    return Agreement(sum(counts), max(differences), min(cosines))


def sample_vectors(model: SentenceEncoder) -> NDArray[np.float32]:
    """Random vectors (64, encoder.dim), long enough that the weight and the bias of the map matter alike."""
    rows = np.random.default_rng(0).standard_normal((64, model.encoder.dim))
    if model.linear_map is not None and model.linear_map.bias.any():
        mapped = rows @ model.linear_map.weight
        rows *= np.linalg.norm(model.linear_map.bias) / np.sqrt((mapped**2).sum(axis=1).mean())
    return rows.astype(np.float32)


LONGEST_LIMIT = 2048  # tokens; above that, no text is made that exceeds the maximum length
_EVERY = 15  # of the demo texts
_N_JOINED = 40  # words or texts that make one long text
_MAX_SPECIAL = 8  # special tokens
_TOKEN_MARKS = f"{WORD_MARK}▁Ġ#"  # at the beginning or the end of a token, and not part of the text
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


def sample_texts(encoder: Encoder) -> list[str]:
    """Texts to compare on: first one that is too long, then ordinary and unusual ones, one empty and one blank."""
    ordinary = demo_texts()
    # half as many words again as the maximum length has tokens; no word has fewer than one token
    maximum = encoder.options.get("max_length", "none")
    limit = 0 if maximum == "none" or int(maximum) > LONGEST_LIMIT else int(maximum)
    joined = " ".join(ordinary[:_N_JOINED])
    long_text = " ".join([joined] * max(1, math.ceil(1.5 * limit / len(joined.split()))))
    known_words, special = [], []
    if isinstance(encoder, StaticEncoder):  # in the language of the vocabulary
        words = (token.strip(_TOKEN_MARKS) for token in encoder.vocabulary())
        known_words = [" ".join(islice(filter(str.isalnum, words), _N_JOINED))]
        if isinstance(encoder.tokenizer, SubwordTokenizer):
            special = [token.content for token in encoder.tokenizer.tokenizer.get_added_tokens_decoder().values()]
    elif isinstance(encoder, TransformerEncoder) and not (encoder.module_folder.lowercase or encoder.prompt):
        # elsewhere exports cannot follow a special token written out in a text, see docs/export.md
        special = encoder.tokenizer.all_special_tokens
    with_special = [f"the company said {token} shares{token} rose" for token in special[:_MAX_SPECIAL]]
    return [long_text, *ordinary[::_EVERY], *_UNUSUAL, *known_words, *with_special, "", "   "]
