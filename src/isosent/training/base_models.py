"""Base models: from a model reference, or from scratch, to a model of sentence-transformers that can be trained.

`open_base` loads a reference and expresses it in modules of sentence-transformers (`_trainable`). A table of token
vectors takes in the linear map after it; what the library cannot express or train is refused. A reference that begins
with ``scratch:`` names the sizes of a small BERT instead (`ScratchSettings`): `write_scratch` trains a vocabulary on
the texts, draws the weights, and writes a folder that is then loaded like any other.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import NFC, BertNormalizer
from tokenizers.normalizers import Sequence as Steps
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from isosent import _check, _extras
from isosent.encoders.reference import escape, parse_flag, parse_reference, parse_whole, with_options
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import WINDOWS, TransformerEncoder
from isosent.errors import InputError, IsosentError, IsosentWarning, ModelReferenceError, OutputError
from isosent.exports.check import exportable, shared_facts
from isosent.exports.sentence_transformers import InexpressibleError, as_sentence_transformer, quiet_library
from isosent.io.system import disk_error
from isosent.loading import load
from isosent.model import SentenceEncoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PREFIX: Final = "scratch"
SPECIAL_TOKENS: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_EXAMPLE = "scratch:?layers=4&dim=256"
_LEAST_LENGTH, _LEAST_VOCABULARY = 3, 16
_WIDENING = 4  # width of the inner layer of a block, in multiples of `dim`
_MOST_CHARACTERS = 0.25  # share of the vocabulary


def open_base(
    reference: str | os.PathLike[str],
    texts: Sequence[str] = (),
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> tuple[SentenceTransformer, dict[str, Any]]:
    """Load or create the model to train, and the facts of it; `texts` are those of a vocabulary from scratch."""
    # The model is on the CPU and in float32. Every weight has a gradient, except the weights of layers. The facts are,
    # from a reference, those of `ModelRecord.facts`; from scratch `reference` with all sizes, `pooling`, `dim`,
    # `vocab_size` and `seed`. Both have `n_parameters` and `kind`: "transformer"; "scratch", without pretrained
    # weights; or "static", a table of token vectors without a network, which is trained on the CPU.
    # What a saved model has after its encoder is trained too: after a transformer as a Dense module; for a static model
    # it is folded into the token vectors, mean(E) W + b = mean(E W + b). A final scaling to length 1 stays: cosines do
    # not see it, Euclidean distances do.
    # A table of n vectors of d dimensions takes 16 n d bytes, for vectors, gradients and the two moments of Adam, and
    # every step goes through all of them. For large word vectors, vocabulary=FILE keeps the words that are needed.
    _extras.require("sentence_transformers")
    torch = _extras.require("torch")
    if isinstance(reference, os.PathLike):
        reference = escape(str(Path(reference).absolute()))
    if max_length is not None:
        _check.whole_number("train", "max_length", max_length, 1)
    with torch.random.fork_rng(devices=[]), quiet_library():
        torch.manual_seed(seed)
        if is_scratch(reference):
            return _from_scratch(reference, texts, pooling or "mean", max_length, seed)
        options = {"pooling": pooling, "max_length": None if max_length is None else str(max_length)}
        model = _load(reference, {name: value for name, value in options.items() if value is not None})
        kind = "static" if isinstance(model.encoder, StaticEncoder) else "transformer"
        return _with_facts(_trainable(model), kind, shared_facts(model))


def is_scratch(reference: str) -> bool:
    """Whether a reference means a network without pretrained weights."""
    return reference.startswith(f"{PREFIX}:") or reference == PREFIX


def _from_scratch(
    reference: str, texts: Sequence[str], pooling: str, max_length: int | None, seed: int
) -> tuple[SentenceTransformer, dict[str, Any]]:
    settings = ScratchSettings.parse(reference)
    if max_length is not None:
        settings = replace(settings, max_length=max_length)
    with TemporaryDirectory(prefix="isosent-") as folder:
        try:
            vocab_size = write_scratch(Path(folder), settings, texts)
            model = _trainable(load(f"hf:{escape(folder)}", pooling=pooling))
        except Exception as error:
            if isinstance(error, IsosentError) or (reason := disk_error(error)) is None:
                raise
            raise OutputError(
                f"{folder} could not be written: {reason}. Free some space, or set TMPDIR to a folder with space."
            ) from error
    facts = {"pooling": pooling, "dim": model.get_embedding_dimension(), "vocab_size": vocab_size, "seed": seed}
    return _with_facts(model, "scratch", {"reference": settings.reference, **facts})


def _with_facts(
    model: SentenceTransformer, kind: str, facts: Mapping[str, Any]
) -> tuple[SentenceTransformer, dict[str, Any]]:
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return model, {**facts, "kind": kind, "n_parameters": n_parameters}


def _load(reference: str, options: Mapping[str, str]) -> SentenceEncoder:
    scheme = parse_reference(reference).scheme
    if options and scheme == "folder":
        raise InputError(
            f"train: {' and '.join(options)} of a model saved by isosent cannot be changed. Name its encoder instead: "
            "for a trained model, hf:FOLDER/encoder."
        )
    if "pooling" in options and scheme not in ("hf", "hub"):
        raise InputError(
            f"train: {reference} always pools by mean, not by {options['pooling']}. Leave the pooling out."
        )
    return load(with_options(reference, options))


def _trainable(model: SentenceEncoder) -> SentenceTransformer:
    """The model in modules of sentence-transformers; what they cannot express or train is refused."""
    encoder = model.encoder
    steps = model.record.postprocessing
    if steps.nonlinear is not None:
        raise InputError(
            f"train: {encoder.reference} ends with {steps.nonlinear.noun}, which cannot be trained. Name its encoder."
        )
    if steps.has_roles or model.groups is not None:
        kind = "queries" if model.groups is None else f"each {model.groups.column}"
        raise InputError(
            f"train: {encoder.reference} has a separate map for {kind}, which cannot be trained. Name its encoder."
        )
    if isinstance(encoder, StaticEncoder):
        return _trainable_static(model, encoder)
    if isinstance(encoder, TransformerEncoder):
        if encoder.equal_lengths:
            raise InputError(
                f"train: {encoder.reference} sees its padding, so texts in one batch would change each other's vectors."
                " Use another model."
            )
        if encoder.options["long"] == WINDOWS:
            raise InputError("train: long=windows does not work, because training truncates long texts. Leave it out.")
        model = exportable(model)
    trainable = _express(model)
    for module in trainable:
        if type(module).__name__ == "WeightedLayerPooling":
            module.requires_grad_(False)  # the weights of layers define how the model is used; they are not trained
    return trainable


def _express(model: SentenceEncoder) -> SentenceTransformer:
    try:
        built: SentenceTransformer = as_sentence_transformer(model)
    except InexpressibleError as error:
        raise InputError(f"train: {error}") from error
    return built


def _trainable_static(model: SentenceEncoder, encoder: StaticEncoder) -> SentenceTransformer:
    """A table of token vectors, with the linear map folded in."""
    unknown = encoder.options.get("unknown", "skip")
    if encoder.needs_corpus or not encoder.weighting.is_linear or unknown != "skip":
        option = f"unknown={unknown}" if unknown != "skip" else f"weighting={encoder.weighting.name}"
        raise InputError(
            f"train: {encoder.reference} has {option}. Leave that out: a text is trained as the mean of its word "
            "vectors, and training learns which words count."
        )
    if encoder.modules:
        return _express(model)  # a map after them cannot be folded into the token vectors
    if model.linear_map is not None and encoder.normalize:
        raise InputError(
            f"train: {encoder.reference} scales vectors to length 1 before the linear map, which cannot be folded into "
            "its vectors then. Name its encoder, or fit the map on a model with normalize=false."
        )
    bare = SentenceEncoder(encoder)
    if model.linear_map is None:
        return _express(bare if encoder.normalize else model)  # scaling twice is scaling once
    library = _extras.require("sentence_transformers")
    modules = library.sentence_transformer.modules
    embedding: Any = _express(bare)[0]
    vectors = model.linear_map.apply(embedding.embedding.weight.detach().numpy()).astype(np.float32, copy=False)
    parts = [modules.StaticEmbedding(embedding.tokenizer, vectors), *([modules.Normalize()] if model.normalize else [])]
    return library.SentenceTransformer(modules=parts, device="cpu")


@dataclass(frozen=True, slots=True)
class ScratchSettings:
    """Sizes of a small BERT, from a reference such as ``scratch:?layers=4&dim=256``."""

    layers: int = 4
    dim: int = 256
    heads: int = 4  # a divisor of `dim`
    vocab: int = 16_000  # most tokens of the vocabulary
    max_length: int = 128  # tokens that texts are cut at
    lowercase: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "dim", "heads", "vocab", "max_length"):
            _check.whole_number("scratch", name, getattr(self, name), 1)
        if self.dim % self.heads:
            raise InputError(
                f"scratch: heads={self.heads} does not divide dim={self.dim}. Choose a number of heads that does."
            )
        if self.max_length < _LEAST_LENGTH:
            raise InputError(
                f"scratch: max_length={self.max_length} is too short, because two special tokens are added to a text. "
                f"Choose {_LEAST_LENGTH} or more."
            )
        if self.vocab < _LEAST_VOCABULARY:
            raise InputError(f"scratch: vocab={self.vocab} is too small. Choose {_LEAST_VOCABULARY} or more.")

    @classmethod
    def parse(cls, reference: str) -> ScratchSettings:
        """Read a reference."""
        body, _, query = reference.partition("?")
        if body.removesuffix(":") != PREFIX:
            raise ModelReferenceError(f"{reference!r}: only options may follow scratch, as in {_EXAMPLE}.")
        known = [field.name for field in fields(cls)]
        values: dict[str, Any] = {}
        for part in query.split("&") if query else ():
            name, _, value = part.partition("=")
            if name not in known:
                nearest = get_close_matches(name, known, n=1, cutoff=0)[0]
                raise ModelReferenceError(
                    f"scratch: there is no option {name!r}. Did you mean {nearest}? Options: {', '.join(known)}."
                )
            if name in values:
                raise ModelReferenceError(f"scratch: {name} occurs twice in {reference!r}.")
            parse: Callable[[str], int | bool] = parse_flag if name == "lowercase" else parse_whole(1)
            try:
                values[name] = parse(value)
            except ValueError:
                rule = "true or false" if name == "lowercase" else "a whole number above 0"
                raise ModelReferenceError(f"scratch: {name}={value} is not {rule}.") from None
        return cls(**values)

    @property
    def reference(self) -> str:
        """The reference with all sizes."""
        return f"{PREFIX}:?" + "&".join(f"{f.name}={str(getattr(self, f.name)).lower()}" for f in fields(self))


def write_scratch(folder: Path, settings: ScratchSettings, texts: Sequence[str]) -> int:
    """Write a transformer with random weights, drawn as for BERT; returns the size of its vocabulary."""
    transformers = _extras.require("transformers")
    tokenizer = train_wordpiece(texts, vocab_size=settings.vocab, lowercase=settings.lowercase)
    vocab_size: int = tokenizer.get_vocab_size()
    if vocab_size < settings.vocab:
        warnings.warn(
            f"scratch: vocab is {vocab_size}, not {settings.vocab}: the texts do not give more tokens.",
            IsosentWarning,
            stacklevel=4,
        )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL_TOKENS, strict=True))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=settings.max_length, **names
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=vocab_size,
        hidden_size=settings.dim,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=_WIDENING * settings.dim,
        max_position_embeddings=settings.max_length,
        pad_token_id=tokenizer.token_to_id(SPECIAL_TOKENS[0]),
    )
    transformers.BertModel(config).save_pretrained(folder)
    return vocab_size


def train_wordpiece(texts: Sequence[str], *, vocab_size: int, lowercase: bool) -> Tokenizer:
    """Train a WordPiece tokenizer."""
    # Texts are normalized to NFC and keep their accents, so that a Hangul syllable stays one character. The most
    # frequent characters are in the vocabulary; each takes two entries, one that begins a word and one (##) inside. A
    # word with another character is [UNK].
    texts = _check.some_texts("scratch", texts)
    _, unknown, first, last = SPECIAL_TOKENS
    normalizer = Steps([NFC(), BertNormalizer(strip_accents=False, lowercase=lowercase)])
    counts = Counter(character for text in texts for character in normalizer.normalize_str(text))
    ranked = sorted((character for character in counts if not character.isspace()), key=lambda c: (-counts[c], c))
    if not ranked:
        raise InputError(f"scratch: all {len(texts)} texts are blank.")
    characters = sorted(ranked[: int(vocab_size * _MOST_CHARACTERS)])

    learned = Tokenizer(WordPiece(unk_token=unknown))
    learned.normalizer, learned.pre_tokenizer = normalizer, BertPreTokenizer()
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        # The library numbers the characters inside words in the order of a hash map, which changes from run to run, and
        # breaks ties by these numbers, so that even the set of tokens changes. Passed as special tokens, they have a
        # fixed order.
        special_tokens=[*SPECIAL_TOKENS, *(f"##{character}" for character in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learned.train_from_iterator(texts, trainer)

    vocabulary = learned.get_vocab(with_added_tokens=True)
    tokenizer = Tokenizer(WordPiece(vocab=vocabulary, unk_token=unknown))
    tokenizer.normalizer, tokenizer.pre_tokenizer = learned.normalizer, learned.pre_tokenizer
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(token, vocabulary[token]) for token in (first, last)],
    )
    return tokenizer
