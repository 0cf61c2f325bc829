"""From a model reference to a model of sentence-transformers that can be trained."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from isosent import _check, _extras
from isosent.encoders.reference import escape, parse_reference
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import WINDOWS, TransformerEncoder
from isosent.errors import InputError, IsosentError, OutputError
from isosent.exports.exportable import exportable
from isosent.exports.note import shared_facts
from isosent.exports.sentence_transformers_folder import as_sentence_transformer, quiet_library
from isosent.exports.sentence_transformers_modules import InexpressibleError
from isosent.files.atomic import disk_error
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.training.scratch import PREFIX, ScratchSettings, write_scratch

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TRANSFORMER, SCRATCH, STATIC = "transformer", "scratch", "static"


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A model to train.

    Parameters
    ----------
    model : SentenceTransformer
        On the CPU, in float32; every weight has a gradient, but for the shares of layers in a mean of layers.
    name : str
        What people call it: the reference, without the folders of this machine.
    kind : {"transformer", "scratch", "static"}
        A network with weights from somewhere, one without, or a table of token vectors.
    facts : mapping of str to plain values
        ``reference``, ``options``, ``dim`` and ``fingerprint`` as `ModelRecord.facts` has them, ``fits`` of what comes
        along behind the encoder, ``kind``, ``n_parameters``. From scratch: ``reference`` with all sizes, ``pooling``,
        ``dim``, ``vocab_size``, ``seed``, ``kind``, ``n_parameters``.
    """

    model: SentenceTransformer
    name: str
    kind: str
    facts: Mapping[str, Any]

    @property
    def is_static(self) -> bool:
        """Whether it is a table without a network, which is trained on the CPU."""
        return self.kind == STATIC


def open_base(
    reference: str | os.PathLike[str],
    texts: Sequence[str] = (),
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> Base:
    r"""Open a model to train.

    Parameters
    ----------
    reference : str or path-like
        Any model reference or folder, see `isosent.load`, or ``scratch:`` with its options, see `ScratchSettings`.
    texts : sequence of str, optional
        The texts to train on, from which ``scratch:`` makes its vocabulary; other bases do not look at them.
    pooling : str, optional
        ``mean``, ``max``, ``cls`` or another pooling in place of the one that the base has; transformers only.
    max_length : int, optional
        Tokens that texts are cut at, in place of what the base says; not for word vectors, which take all.
    seed : int, default 0
        Of weights that no file gives: all of ``scratch:``, the unused pooler of some transformers.

    Returns
    -------
    Base
        The model and what is known of it.

    Raises
    ------
    InputError
        If the reference is outside the grammar, or the model has no counterpart in modules of sentence-transformers.
    MissingExtraError
        If torch, transformers or sentence-transformers is not installed.

    Notes
    -----
    What was fitted behind the encoder of a saved model comes along. Behind a transformer it is a Dense module, which is
    trained like the rest. Behind a static model it is folded into the token vectors,
    :math:`\mathrm{mean}(E) W + b = \mathrm{mean}(E W + b)`, and a table of vectors is left. Modules of the base stay
    as they are, a final scaling to length 1 among them: a cosine does not see it, a Euclidean distance does.

    A table of n vectors of d dimensions is trained whole: 16 n d bytes for vectors, gradients and the two moments of
    Adam, all of which a step goes through, whatever words a batch has. Of large word vectors, ``vocabulary=FILE`` keeps
    the words that are needed.
    """
    _extras.require("sentence_transformers")
    if isinstance(reference, os.PathLike):
        reference = escape(str(Path(reference).absolute()))
    given = _given(pooling, max_length)
    with _seeded(seed), quiet_library():
        if is_scratch(reference):
            return _from_scratch(reference, texts, given, seed)
        model = _opened(reference, given)
        kind = STATIC if isinstance(model.encoder, StaticEncoder) else TRANSFORMER
        return _base_of(_trainable(model), kind, shared_facts(model))


def is_scratch(reference: str) -> bool:
    """Whether a reference means a network without weights.

    Parameters
    ----------
    reference : str
        A reference as `open_base` takes it.

    Returns
    -------
    bool
        Whether it begins with ``scratch:``.
    """
    return reference.startswith(f"{PREFIX}:") or reference == PREFIX


def _given(pooling: str | None, max_length: int | None) -> dict[str, str]:
    """What was asked for, as options of a reference."""
    if max_length is not None:
        _check.whole_number("train", "max_length", max_length, 1)
    written = {"pooling": pooling, "max_length": None if max_length is None else str(max_length)}
    return {name: value for name, value in written.items() if value is not None}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers of torch from a seed, and after that those that would have come."""
    torch = _extras.require("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _base_of(model: SentenceTransformer, kind: str, facts: Mapping[str, Any]) -> Base:
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return Base(model, facts["reference"], kind, {**facts, "kind": kind, "n_parameters": n_parameters})


def _from_scratch(reference: str, texts: Sequence[str], given: Mapping[str, str], seed: int) -> Base:
    settings = ScratchSettings.parse(reference)
    if "max_length" in given:
        settings = replace(settings, max_length=int(given["max_length"]))
    pooling = given.get("pooling", "mean")
    with _temporary_folder() as folder:
        vocab_size = write_scratch(Path(folder), settings, texts)
        model = _trainable(load(f"hf:{escape(folder)}", options={"pooling": pooling}))
    facts = {"pooling": pooling, "dim": model.get_embedding_dimension(), "vocab_size": vocab_size, "seed": seed}
    return _base_of(model, SCRATCH, {"reference": settings.reference, **facts})


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """A folder that is gone when the block ends."""
    with TemporaryDirectory(prefix="isosent-") as folder:
        try:
            yield folder
        except Exception as error:
            if isinstance(error, IsosentError) or (reason := disk_error(error)) is None:
                raise
            raise OutputError(
                f"{folder} could not be written: {reason}. Free some space, or set TMPDIR to a folder that has it."
            ) from error


def _opened(reference: str, given: Mapping[str, str]) -> SentenceEncoder:
    """The model of a reference, with the options given beside it."""
    scheme = parse_reference(reference).scheme
    if given and scheme == "folder":
        raise InputError(
            f"train: {' and '.join(given)} must be left out for a model saved by isosent, which brings its own; got "
            f"{', '.join(given.values())}. Name its encoder instead: for a trained model, hf:FOLDER/encoder."
        )
    if "pooling" in given and scheme != "hf":
        raise InputError(
            f"train: pooling must be left out for {reference}, which takes the mean of its vectors; got "
            f"{given['pooling']}."
        )
    return load(reference, options=given)


def _trainable(model: SentenceEncoder) -> SentenceTransformer:
    """The model in modules of sentence-transformers."""
    encoder = model.encoder
    if model.flow is not None:
        raise InputError(f"train: {encoder.reference} must not end with a flow; it does. Name its encoder alone.")
    if model.query_map is not None:
        raise InputError(
            f"train: {encoder.reference} must have one map for all texts; it has another mean for queries. Name its "
            "encoder alone."
        )
    if isinstance(encoder, StaticEncoder):
        return _static(model, encoder)
    if isinstance(encoder, TransformerEncoder):
        _check_transformer(encoder)
        model = exportable(model)
    return _with_fixed_layers(_expressed(model))


def _expressed(model: SentenceEncoder) -> SentenceTransformer:
    try:
        built: SentenceTransformer = as_sentence_transformer(model)
    except InexpressibleError as error:
        raise InputError(f"train: {error}") from error
    return built


def _static(model: SentenceEncoder, encoder: StaticEncoder) -> SentenceTransformer:
    """A table of token vectors, with the map behind it folded in."""
    unknown = encoder.options.get("unknown", "skip")
    if encoder.needs_corpus or not encoder.weighting.is_linear or unknown != "skip":
        got = f"unknown={unknown}" if unknown != "skip" else f"weighting={encoder.weighting.name}"
        raise InputError(
            f"train: a text of {encoder.reference} must be the mean of vectors of its words; got {got}. Leave that "
            "out: training finds out which words count."
        )
    if model.linear_map is not None and encoder.normalize:
        raise InputError(
            f"train: {encoder.reference} must not scale to length 1 ahead of the map behind it, which cannot be folded "
            "into its vectors then. Name its encoder alone, or fit the map on one with normalize=false."
        )
    bare = SentenceEncoder(encoder)
    if model.linear_map is None:
        return _expressed(bare if encoder.normalize else model)  # scaling twice is scaling once
    library = _extras.require("sentence_transformers")
    modules = library.sentence_transformer.modules
    embedding: Any = _expressed(bare)[0]
    vectors = model.linear_map.apply(embedding.embedding.weight.detach().numpy()).astype(np.float32, copy=False)
    parts = [modules.StaticEmbedding(embedding.tokenizer, vectors), *([modules.Normalize()] if model.normalize else [])]
    folded: SentenceTransformer = library.SentenceTransformer(modules=parts, device="cpu")
    return folded


def _check_transformer(encoder: TransformerEncoder) -> None:
    """Refuse what is not computed in padded batches of cut texts."""
    if encoder.equal_lengths:
        raise InputError(
            f"train: {encoder.reference} must not see its padding, since texts of a batch would change each other's "
            "vectors; it does. Take another model."
        )
    if encoder.options["long"] == WINDOWS:
        raise InputError("train: long must be truncate, since training cuts long texts; got windows. Leave it out.")


def _with_fixed_layers(model: SentenceTransformer) -> SentenceTransformer:
    """The same, with the shares of layers in a mean of layers left as they are: they say how the model is read."""
    for module in model:
        if type(module).__name__ == "WeightedLayerPooling":
            module.requires_grad_(False)
    return model
