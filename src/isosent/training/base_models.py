"""From a model reference to a model of sentence-transformers that can be trained."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import NFC, BertNormalizer
from tokenizers.normalizers import Sequence as Steps
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from isosent import _check, _extras
from isosent.encoders.reference import escape, parse_flag, parse_reference, parse_whole
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import WINDOWS, TransformerEncoder
from isosent.errors import InputError, IsosentError, IsosentWarning, ModelReferenceError, OutputError
from isosent.exports.check import exportable, shared_facts
from isosent.exports.sentence_transformers import InexpressibleError, as_sentence_transformer, quiet_library
from isosent.io.atomic import disk_error
from isosent.loading import load
from isosent.model import SentenceEncoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers.normalizers import Normalizer


PAD, UNKNOWN, FIRST, LAST = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_INNER = "##"
_MOST_CHARACTERS = 0.25


def train_wordpiece(texts: Sequence[str], *, vocab_size: int, lowercase: bool) -> Tokenizer:
    """Train a WordPiece tokenizer."""
    # Texts are brought into Unicode's composed form (NFC) and keep their accents, so that a Hangul syllable stays one
    # character. The characters in the vocabulary are the most frequent ones, a quarter of it at most: each takes two
    # entries, one to begin a word and one (``##``) inside of it. A word with another character is ``[UNK]``.
    # The library numbers characters inside of words in the order of a hash map that changes from run to run, and
    # settles ties by these numbers, so that even the set of tokens changes. They are handed to it in a fixed order,
    # as if they were special tokens.
    texts = _check.some_texts("scratch", texts)
    tokenizer = Tokenizer(WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer = _normalizer(lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    characters = _frequent_characters(normalizer, texts, int(vocab_size * _MOST_CHARACTERS))
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *(_INNER + character for character in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _with_vocabulary(tokenizer)


def _normalizer(lowercase: bool) -> Normalizer:
    return Steps([NFC(), BertNormalizer(strip_accents=False, lowercase=lowercase)])


def _frequent_characters(normalizer: Normalizer, texts: Sequence[str], n_most: int) -> list[str]:
    """The most frequent characters, ties by code point, in the order of code points."""
    counts = Counter(character for text in texts for character in normalizer.normalize_str(text))
    ranked = sorted((character for character in counts if not character.isspace()), key=lambda c: (-counts[c], c))
    if not ranked:
        raise InputError(f"scratch: texts must hold characters; got {len(texts)} blank texts.")
    return sorted(ranked[:n_most])


def _with_vocabulary(trained: Tokenizer) -> Tokenizer:
    """The same without the characters among the special tokens, and with those around a text."""
    vocabulary = trained.get_vocab(with_added_tokens=True)
    tokenizer = Tokenizer(WordPiece(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{FIRST} $A {LAST}",
        pair=f"{FIRST} $A {LAST} $B:1 {LAST}:1",
        special_tokens=[(token, vocabulary[token]) for token in (FIRST, LAST)],
    )
    return tokenizer


PREFIX = "scratch"

_LEAST_LENGTH = 3
_LEAST_VOCABULARY = 16
_WIDENING = 4


@dataclass(frozen=True, slots=True)
class ScratchSettings:
    """Sizes of a small BERT."""

    layers: int = 4  # layers
    dim: int = 256  # dimensions of a vector; the inner layer of a block has four times as many
    heads: int = 4  # attention heads, a divisor of `dim`
    vocab: int = 16_000  # tokens of the vocabulary at most
    max_length: int = 128  # tokens a text is cut at, and positions of the network
    lowercase: bool = True  # whether texts are lower-cased

    def __post_init__(self) -> None:
        for name in _SIZES:
            _check.whole_number("scratch", name, getattr(self, name), 1)
        if self.dim % self.heads:
            raise InputError(f"scratch: heads must divide dim; got heads={self.heads} and dim={self.dim}.")
        if self.max_length < _LEAST_LENGTH:
            raise InputError(
                f"scratch: max_length must be at least {_LEAST_LENGTH}, since two tokens stand around a text; got "
                f"{self.max_length}."
            )
        if self.vocab < _LEAST_VOCABULARY:
            raise InputError(f"scratch: vocab must be at least {_LEAST_VOCABULARY}; got {self.vocab}.")

    @classmethod
    def parse(cls, reference: str) -> ScratchSettings:
        """Read a reference."""
        body, _, query = reference.partition("?")
        if body.removesuffix(":") != PREFIX:
            raise ModelReferenceError(
                f"scratch: the reference must be scratch: with options behind a ?, as in {_EXAMPLE}; got {reference!r}."
            )
        values: dict[str, Any] = {}
        for part in query.split("&") if query else ():
            name, _, written = part.partition("=")
            if name in values:
                raise ModelReferenceError(f"scratch: {name} must be given once; got it twice in {reference!r}.")
            values[name] = _value_of(name, written)
        return cls(**values)

    @property
    def reference(self) -> str:
        """The reference of these sizes, all of them written out."""
        written = {name: str(getattr(self, name)).lower() for name in _PARSERS}
        return f"{PREFIX}:?" + "&".join(f"{name}={value}" for name, value in written.items())


_EXAMPLE = "scratch:?layers=4&dim=256"
_SIZES = ("layers", "dim", "heads", "vocab", "max_length")
_PARSERS: Mapping[str, tuple[Callable[[str], int | bool], str]] = {
    **dict.fromkeys(_SIZES, (parse_whole(1), "a whole number above 0")),
    "lowercase": (parse_flag, "true or false"),
}


def _value_of(name: str, written: str) -> int | bool:
    if name not in _PARSERS:
        nearest = get_close_matches(name, _PARSERS, n=1, cutoff=0)[0]
        raise ModelReferenceError(
            f"scratch: options must be {', '.join(_PARSERS)}; got {name!r}. The nearest is {nearest}."
        )
    parse, rule = _PARSERS[name]
    try:
        return parse(written)
    except ValueError:
        raise ModelReferenceError(f"scratch: {name} must be {rule}; got {written!r}.") from None


def write_scratch(folder: Path, settings: ScratchSettings, texts: Sequence[str]) -> int:
    """Write the folder of a transformer with random weights."""
    # The weights come from the random numbers of torch: whoever wants the same ones again sets its seed. They are
    # drawn as BERT draws them, from a normal distribution with standard deviation 0.02.
    transformers = _extras.require("transformers")
    tokenizer = train_wordpiece(texts, vocab_size=settings.vocab, lowercase=settings.lowercase)
    vocab_size: int = tokenizer.get_vocab_size()
    if vocab_size < settings.vocab:
        warnings.warn(
            f"scratch: vocab is {vocab_size}, not {settings.vocab}: the texts do not give more tokens.",
            IsosentWarning,
            stacklevel=4,
        )
    names = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": FIRST, "sep_token": LAST}
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
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    transformers.BertModel(config).save_pretrained(folder)
    return vocab_size


TRANSFORMER, SCRATCH, STATIC = "transformer", "scratch", "static"


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A model to train."""

    # On the CPU, in float32; every weight has a gradient, but for the shares of layers in a mean of layers
    model: SentenceTransformer
    name: str  # what people call it: the reference, without the folders of this machine
    kind: str  # A network with weights from somewhere, one without, or a table of token vectors
    # ``reference``, ``options``, ``dim`` and ``fingerprint`` as `ModelRecord.facts` has them, ``fits`` of what comes
    # along behind the encoder, ``kind``, ``n_parameters``. From scratch: ``reference`` with all sizes, ``pooling``,
    # ``dim``, ``vocab_size``, ``seed``, ``kind``, ``n_parameters``
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
    """Open a model to train."""
    # What was fitted behind the encoder of a saved model comes along. Behind a transformer it is a Dense module,
    # which is trained like the rest. Behind a static model it is folded into the token vectors,
    # :math:`\mathrm{mean}(E) W + b = \mathrm{mean}(E W + b)`, and a table of vectors is left. Modules of the base
    # stay as they are, a final scaling to length 1 among them: a cosine does not see it, a Euclidean distance does.
    # A table of n vectors of d dimensions is trained whole: 16 n d bytes for vectors, gradients and the two moments
    # of Adam, all of which a step goes through, whatever words a batch has. Of large word vectors,
    # ``vocabulary=FILE`` keeps the words that are needed.
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
    """Whether a reference means a network without weights."""
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
