"""Opening encoders without context: word vectors, static models, and the token embeddings of transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from isosent import _check
from isosent.encoders.base import Progress
from isosent.encoders.options import FUNCTION, RUNTIME_OPTIONS
from isosent.encoders.reference import PROMPTS, escape, options_of, unescape, weighting_of
from isosent.encoders.static import FILE_OPTIONS, StaticEncoder
from isosent.encoders.word_average import Corpus, Weighting
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io.atomic import recover
from isosent.io.export_note import verify_export
from isosent.io.foreign_json import Model2VecConfig, Module, TokenizerHeader, path_inside
from isosent.io.json import read_json
from isosent.words.cache import model_folder, read_embedding_matrix
from isosent.words.frequencies import Frequencies, read_frequencies, zipf_probabilities
from isosent.words.subwords import SubwordTokenizer, TokenLookup
from isosent.words.tokenizer import CallableTokenizer, TokenFilter, WordTokenizer, read_stop_words
from isosent.words.tokens import SPLITTERS, Tokenizing
from isosent.words.vocabulary import Vocabulary
from isosent.words.word_vectors import WordVectors, read_word_vectors, size_of_files

_MODEL2VEC_MAX_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a static model's files lie, and what its settings say."""

    inner: Path  # folder of the files
    normalize: bool  # whether vectors are scaled to length 1
    max_length: int | None  # tokens that a text is cut at
    is_model2vec: bool  # whether Model2Vec's rules hold: it cuts characters, too, and skips unknown tokens


def read_layout(folder: Path) -> Layout:
    """Read Model2Vec's config; without one, the modules of a sentence-transformers folder."""
    verify_export(folder)
    config = _read(folder / "config.json", Model2VecConfig)
    if config is not None:
        max_length = config.get("max_length", _MODEL2VEC_MAX_LENGTH)
        return Layout(folder, bool(config.get("normalize")), max_length, is_model2vec=True)
    path = folder / "modules.json"
    modules = _read(path, list[Module])
    if modules is None:
        return Layout(folder, False, _MODEL2VEC_MAX_LENGTH, is_model2vec=True)
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    is_theirs = all(module["type"].startswith("sentence_transformers.") for module in modules)
    if kinds not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]) or not is_theirs:
        raise FileFormatError(
            f"{path} must list a StaticEmbedding, and at most a Normalize behind it, both of sentence-transformers; "
            f"got {', '.join(module['type'] for module in modules) or 'nothing'}."
        )
    inner = path_inside(folder, modules[0]["path"], path)
    header = _read(inner / "tokenizer.json", TokenizerHeader) or {}
    max_length = (header.get("truncation") or {}).get("max_length")  # sentence-transformers lets the tokenizer cut
    return Layout(inner, len(kinds) == 2, max_length, is_model2vec=False)


def _read(path: Path, schema: Any) -> Any:
    return read_json(path, schema) if path.exists() else None


def token_vectors(folder: Path, tensors: dict[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    """Make one vector a token, with the mapping and the weights of Model2Vec folded in."""
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    if vectors is None or vectors.ndim != 2:
        raise FileFormatError(
            f"{folder}/model.safetensors must hold a matrix 'embeddings'; it holds "
            f"{', '.join(list(tensors)[:3])}{' and others' if len(tensors) > 3 else ''}. "
            "A transformer is written hf:DIR."
        )
    table = vectors.astype(np.float32)
    if "mapping" in tensors:
        mapping = tensors["mapping"].astype(np.int64)
        if mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(table):
            raise FileFormatError(
                f"{folder}/model.safetensors: mapping must point to {len(table)} vectors; it points beyond."
            )
        table = table[mapping]
    if "weights" in tensors:
        weights = tensors["weights"].astype(np.float32)
        if weights.shape != (len(table),):
            raise FileFormatError(
                f"{folder}/model.safetensors: weights must have shape ({len(table)},); got {weights.shape}."
            )
        table = table * weights[:, None]
    return table


def read_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read every tensor of a safetensors file."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputFileError(f"{path} must exist; got no such file.") from None
    except (SafetensorError, TypeError) as error:
        raise FileFormatError(f"{path} must be a safetensors file of int8, float16 or float32; got: {error}.") from None


SplitFunction = Callable[[str], Sequence[str]]
_KEYWORDS = {"keep", "english", "corpus", "rank", FUNCTION, *SPLITTERS}


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What an encoder is opened with that a reference cannot say."""

    split: SplitFunction | None = None  # from a text to its words, for ``tokenizer=function``
    corpus: Corpus | None = None  # what a saved model knows of the texts it was fitted on
    # Called with the bytes of the files of word vectors; returns what is called with the bytes read
    progress: Callable[[int], Progress] | None = None


def open_wordllama(options: Mapping[str, str], given: Given) -> StaticEncoder:
    """Open the vectors and the tokenizer that the package ``wordllama`` carries, without importing it."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise InputFileError("wordllama: the package must be installed; it is not. Run: pip install wordllama")
    folder = Path(spec.submodule_search_locations[0])
    tensors = read_tensors(folder / "weights" / "l2_supercat_256.safetensors")
    tokenizer = SubwordTokenizer(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    vectors = tensors["embedding.weight"].astype("float32")
    return _assemble("wordllama", options, tokenizer, vectors, given)


def open_words(location: str, options: Mapping[str, str], given: Given) -> StaticEncoder:
    """Open word vectors."""
    paths = [Path(unescape(part)).expanduser().resolve() for part in location.split(",")]
    options = {"lowercase": "true", "tokenizer": "wordpunct", "punctuation": "keep", "stop_words": "keep"} | dict(
        options
    )
    options = _with_whole_paths(options)
    wanted = unescape(options["vocabulary"]) if "vocabulary" in options else None
    progress = None if given.progress is None else given.progress(size_of_files(paths))
    words = read_word_vectors(paths, vocabulary=wanted, progress=progress)
    options.setdefault("unknown", "skip" if words.subwords is None else "subwords")
    if options["unknown"] == "subwords" and words.subwords is None:
        raise InputError(f"{location}: unknown=subwords must come with vectors of sub-words; the file has none.")
    tokenizer = _word_tokenizer(words.vocabulary, options, given.split)
    reference = f"words:{','.join(escape(str(path)) for path in paths)}"
    return _assemble(reference, options, tokenizer, words, given)


def open_static_folder(location: str, options: Mapping[str, str], given: Given) -> StaticEncoder:
    """Open a Model2Vec folder, or a sentence-transformers one that holds a StaticEmbedding."""
    recover(Path(unescape(location)).expanduser())
    folder = _check.input_folder(Path(unescape(location)).expanduser().resolve())
    layout = read_layout(folder)
    options = {"normalize": str(layout.normalize).lower(), "max_length": str(layout.max_length).lower()} | dict(options)
    tokenizer = SubwordTokenizer(
        _check.input_file(layout.inner / "tokenizer.json"),
        max_length=None if options["max_length"] == "none" else int(options["max_length"]),
        cut_characters=layout.is_model2vec,
        skip_unknown=layout.is_model2vec,
    )
    vectors = token_vectors(layout.inner, read_tensors(_check.input_file(layout.inner / "model.safetensors")))
    _check_fit(folder, vectors, tokenizer)
    return _assemble(f"static:{escape(str(folder))}", options, tokenizer, vectors, given)


def open_token_embeddings(location: str, options: Mapping[str, str], given: Given) -> StaticEncoder:
    """Open the input embeddings of a transformer, and its tokenizer, without its layers."""
    for name in ("layers", "pooling", "dense", "long", "overlap", *PROMPTS, *RUNTIME_OPTIONS):
        if name in options:
            raise InputError(f"hf:{location}: static=true takes no {name}; it leaves the layers out.")
    options = {"normalize": "false", "max_length": "none"} | dict(options)
    folder = model_folder(unescape(location))
    max_length = None if options["max_length"] == "none" else int(options["max_length"])
    tokenizer = SubwordTokenizer(_check.input_file(folder / "tokenizer.json"), max_length=max_length)
    vectors = read_embedding_matrix(folder)
    _check_fit(folder, vectors, tokenizer)
    reference = str(folder) if Path(unescape(location)).expanduser().is_dir() else unescape(location)
    return _assemble(f"hf:{escape(reference)}", options, tokenizer, vectors, given)


def _assemble(
    reference: str, options: Mapping[str, str], tokenizer: Tokenizing, vectors: Any, given: Given
) -> StaticEncoder:
    """Put an encoder together, with the weighting that the options name and every option in force."""
    weighting = weighting_of(options)
    options = {name: value for name, value in options.items() if (name, value) != ("zipfian", "false")}
    options |= options_of(weighting)
    if weighting.uses_frequencies:
        options.setdefault("frequencies", "corpus")
    elif "frequencies" in options:
        raise InputError(f"frequencies must come with sif, usif or zipfian=true; got weighting={weighting.name}.")
    options = _with_whole_paths(options)
    frequencies = None if given.corpus is not None else _frequencies(options, weighting, tokenizer, len(_rows(vectors)))
    return StaticEncoder(
        reference,
        options,
        tokenizer,
        vectors,
        weighting=weighting,
        frequencies=frequencies,
        corpus=given.corpus,
        normalize=options.get("normalize") == "true",
    )


def _frequencies(
    options: Mapping[str, str], weighting: Weighting, tokenizer: Tokenizing, vocab_size: int
) -> Frequencies | None:
    source = options.get("frequencies", "corpus")
    if source == "corpus" or not weighting.uses_frequencies:
        return None
    if source == "rank":
        return Frequencies(zipf_probabilities(vocab_size))
    words = getattr(tokenizer, "words", None)
    return read_frequencies(unescape(source), Vocabulary.from_words(tokenizer.vocabulary()) if words is None else words)


def _word_tokenizer(words: Vocabulary, options: Mapping[str, str], split: SplitFunction | None) -> Tokenizing:
    unknown = "skip" if options["unknown"] == "skip" else "keep"
    lowercase = options["lowercase"] == "true"
    stop_words = read_stop_words(unescape(options["stop_words"]))
    name = options["tokenizer"]
    if (name == FUNCTION) != (split is not None):
        if split is None:
            raise InputError("load: tokenizer must be the function that the model was made with; got none. Pass it.")
        raise InputError(f"load: the model was made with tokenizer={name}; got a function. Leave it out.")
    if name in SPLITTERS:
        return WordTokenizer(
            words,
            split=name,
            lowercase=lowercase,
            punctuation=options["punctuation"],
            stop_words=stop_words,
            unknown=unknown,
        )
    if split is not None:
        return CallableTokenizer(
            split,
            words,
            lowercase=lowercase,
            punctuation=options["punctuation"],
            stop_words=stop_words,
            unknown=unknown,
        )
    subwords = SubwordTokenizer(_check.input_file(unescape(name)), skip_unknown=False)
    token_filter = TokenFilter(options["punctuation"], stop_words)
    return TokenLookup(subwords, words, lowercase=lowercase, token_filter=token_filter, unknown=unknown)


def _with_whole_paths(options: Mapping[str, str]) -> dict[str, str]:
    """Options with the paths in them made absolute, so that a saved model finds its files from anywhere."""
    return {
        name: escape(str(Path(unescape(value)).expanduser().resolve()))
        if name in FILE_OPTIONS and value not in _KEYWORDS
        else value
        for name, value in options.items()
    }


def _rows(vectors: Any) -> Any:
    return vectors.vectors if isinstance(vectors, WordVectors) else vectors


def _check_fit(folder: Path, vectors: Any, tokenizer: SubwordTokenizer) -> None:
    if len(vectors) <= tokenizer.largest_id:
        raise FileFormatError(
            f"{folder}: every token must have a vector; got {len(vectors)} vectors and the token "
            f"{tokenizer.largest_id}."
        )
