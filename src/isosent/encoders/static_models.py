"""Reading static models: word vectors, folders of Model2Vec and sentence-transformers, embeddings of transformers.

Each `load_` function reads vectors and a tokenizer; `_assembled` makes a `StaticEncoder` of them, with the weighting
that the options name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.hub import EMBEDDING_FILES, download, local_folder
from isosent.encoders.output_modules import LoadedModule, ModuleSpec, load_modules, modules_in_use
from isosent.encoders.reference import (
    FUNCTION,
    PROMPTS,
    RUNTIME_OPTIONS,
    escape,
    options_of,
    path_of,
    unescape,
    weighting_of,
    with_absolute_paths,
    write_options,
)
from isosent.encoders.st_modules import MODULES_FILE, read_static_folder
from isosent.encoders.static import StaticEncoder
from isosent.encoders.word_average import Average, Corpus
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io.json import read_json
from isosent.io.notes import fitted_texts, shared_space, verify_export
from isosent.io.schemas import Model2VecConfig, TokenizerHeader
from isosent.io.tensors import read_all_tensors
from isosent.pages.progress import Progress
from isosent.words.embedding_matrix import read_embedding_matrix
from isosent.words.frequencies import (
    read_frequencies,
    zipf_probabilities,
)
from isosent.words.subwords import SubwordTokenizer, TokenLookup
from isosent.words.tokens import (
    SPLITTERS,
    CallableTokenizer,
    TokenFilter,
    Tokenizing,
    WordTokenizer,
    read_stop_words,
)
from isosent.words.vocabulary import Vocabulary
from isosent.words.word_vectors import read_word_vectors

SplitFunction = Callable[[str], Sequence[str]]
_MODEL2VEC_MAX_LENGTH = 512


def load_wordllama(options: Mapping[str, Any], *, corpus: Corpus | None = None) -> StaticEncoder:
    """Load the vectors and the tokenizer of the package wordllama, without importing it."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise InputFileError("wordllama is not installed. Run: pip install wordllama")
    folder = Path(spec.submodule_search_locations[0])
    tensors = read_all_tensors(folder / "weights" / "l2_supercat_256.safetensors")
    tokenizer = SubwordTokenizer(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    return _assembled("wordllama", options, tokenizer, tensors["embedding.weight"].astype(np.float32), corpus)


def load_words(
    location: str,
    options: Mapping[str, Any],
    *,
    split: SplitFunction | None = None,
    corpus: Corpus | None = None,
    progress: Progress | None = None,
) -> StaticEncoder:
    """Load word vectors."""
    paths = [path_of(part).resolve() for part in location.split(",")]
    defaults = {"lowercase": True, "tokenizer": "wordpunct", "punctuation": "keep", "stop_words": "keep"}
    options = with_absolute_paths(defaults | dict(options))
    vocabulary = unescape(options["vocabulary"]) if "vocabulary" in options else None
    words = read_word_vectors(paths, vocabulary=vocabulary, progress=progress)
    options.setdefault("unknown", "subwords" if words.tables else "skip")
    if options["unknown"] == "subwords" and not words.tables:
        raise InputError(f"{location}: unknown=subwords needs vectors of sub-words; the file has none.")
    tokenizer = _word_tokenizer(words.vocabulary, options, split)
    return _assembled(f"words:{','.join(escape(str(path)) for path in paths)}", options, tokenizer, words, corpus)


def _word_tokenizer(words: Vocabulary, options: Mapping[str, Any], split: SplitFunction | None) -> Tokenizing:
    name = options["tokenizer"]
    if name == FUNCTION and split is None:
        raise InputError("load: this model was made with a tokenizer function. Pass it: load(..., tokenizer=FUNCTION).")
    if name != FUNCTION and split is not None:
        raise InputError(f"load: the model was made with tokenizer={name}, not with a function. Leave it out.")
    unknown = "skip" if options["unknown"] == "skip" else "keep"
    lowercase, punctuation = options["lowercase"], options["punctuation"]
    stop_words = read_stop_words(unescape(options["stop_words"]))
    if name in SPLITTERS or split is not None:
        settings: dict[str, Any] = {"lowercase": lowercase, "punctuation": punctuation, "stop_words": stop_words}
        if split is None:
            return WordTokenizer(words, split=name, unknown=unknown, **settings)
        return CallableTokenizer(split, words, unknown=unknown, **settings)
    subwords = SubwordTokenizer(_check.input_file(unescape(name)), skip_unknown=False)
    token_filter = TokenFilter(punctuation, stop_words)
    return TokenLookup(subwords, words, lowercase=lowercase, token_filter=token_filter, unknown=unknown)


def load_static(location: str, options: Mapping[str, Any], *, corpus: Corpus | None = None) -> StaticEncoder:
    """Load a Model2Vec model, or a sentence-transformers folder that holds a StaticEmbedding."""
    folder = local_folder("static", location)
    reference = f"static:{location}" if folder is None else f"static:{escape(str(folder))}"
    folder = folder or download("static", location)
    inner, specs, max_length, is_model2vec = _static_layout(folder)
    following = modules_in_use(specs, normalize=False)  # a Normalize at the end is the option's
    options = {"normalize": len(following) < len(specs), "max_length": max_length} | dict(options)
    # Model2Vec cuts characters before it tokenizes, and leaves unknown tokens out
    tokenizer = SubwordTokenizer(
        _check.input_file(inner / "tokenizer.json"),
        max_length=options["max_length"],
        cut_characters=is_model2vec,
        skip_unknown=is_model2vec,
    )
    vectors = _token_vectors(inner, read_all_tensors(_check.input_file(inner / "model.safetensors")))
    _check_vocabulary(folder, vectors, tokenizer)
    modules = load_modules(following, dim=vectors.shape[1], in_numpy=True)
    encoder = _assembled(reference, options, tokenizer, vectors, corpus, modules)
    encoder.fitted_texts = fitted_texts(folder)
    if encoder.weighting == Average() and not modules:
        encoder.shared_space = shared_space(folder)
    return encoder


def _static_layout(folder: Path) -> tuple[Path, Sequence[ModuleSpec], int | None, bool]:
    """Folder of the files, modules after the mean, max_length, and whether it is a folder of Model2Vec."""
    verify_export(folder)
    config, path = folder / "config.json", folder / MODULES_FILE
    inner, modules = read_static_folder(folder) if path.exists() else (folder, ())
    if config.exists():
        settings = read_json(config, Model2VecConfig)
        if beyond := modules_in_use(modules, normalize=False):
            raise FileFormatError(
                f"{path}: it has {beyond[0].kind} after the StaticEmbedding, and {config} of Model2Vec has not. Remove "
                "the file of the library that you do not use."
            )
        scaling = modules_in_use((), normalize=bool(settings.get("normalize")))
        return folder, scaling, settings.get("max_length", _MODEL2VEC_MAX_LENGTH), True
    if not path.exists():
        return folder, (), _MODEL2VEC_MAX_LENGTH, True
    tokenizer = inner / "tokenizer.json"  # sentence-transformers lets the tokenizer cut texts
    truncation = (read_json(tokenizer, TokenizerHeader) if tokenizer.exists() else {}).get("truncation") or {}
    if truncation.get("direction") not in (None, "Right"):
        raise FileFormatError(
            f"{tokenizer}: truncation: direction is {truncation['direction']!r}, but isosent cuts the end of a text. "
            "Set it to Right, or truncation to null."
        )
    return inner, modules, truncation.get("max_length"), False


def _token_vectors(folder: Path, tensors: dict[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    """One vector per token, with the mapping and the weights of Model2Vec applied."""
    path = f"{folder}/model.safetensors"
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    if vectors is None or vectors.ndim != 2:
        names = f"{', '.join(list(tensors)[:3])}{' and others' if len(tensors) > 3 else ''}"
        raise FileFormatError(f"{path} has no matrix 'embeddings'. It holds {names}. A transformer is hf:DIR.")
    if "embedding.weight" in tensors and (others := sorted({"embeddings", "mapping", "weights"} & set(tensors))):
        raise FileFormatError(
            f"{path} holds {' and '.join(others)} next to embedding.weight: Model2Vec would apply that, and "
            "sentence-transformers would not. Remove what the model was not made with."
        )
    table = vectors.astype(np.float32)
    if "mapping" in tensors:
        mapping = tensors["mapping"].astype(np.int64)
        if mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(table):
            raise FileFormatError(f"{path}: its mapping points beyond its {len(table)} vectors.")
        table = table[mapping]
    if "weights" in tensors:
        weights = tensors["weights"].astype(np.float32)
        if weights.shape != (len(table),):
            raise FileFormatError(f"{path}: {len(table)} tokens, but weights of the shape {weights.shape}.")
        table = table * weights[:, None]
    return table


def load_token_embeddings(location: str, options: Mapping[str, Any], *, corpus: Corpus | None = None) -> StaticEncoder:
    """Load the input embeddings of a transformer, and its tokenizer, without its layers."""
    for name in ("layers", "pooling", "dense", "long", "overlap", *PROMPTS, *RUNTIME_OPTIONS):
        if name in options:
            raise InputError(f"hf:{location}: static=true takes no {name}, because it leaves the layers out.")
    options = {"normalize": False, "max_length": None, "static": True} | dict(options)
    local = local_folder("hf", location)
    folder = local or download("hf", location, files=EMBEDDING_FILES)
    tokenizer = SubwordTokenizer(_check.input_file(folder / "tokenizer.json"), max_length=options["max_length"])
    vectors = read_embedding_matrix(folder)
    _check_vocabulary(folder, vectors, tokenizer)
    reference = f"hf:{location}" if local is None else f"hf:{escape(str(local))}"
    return _assembled(reference, options, tokenizer, vectors, corpus)


def _assembled(
    reference: str,
    options: Mapping[str, Any],
    tokenizer: Tokenizing,
    vectors: Any,
    corpus: Corpus | None,
    modules: Sequence[LoadedModule] = (),
) -> StaticEncoder:
    """Build an encoder with the weighting that the options name, and record every option in force."""
    weighting = weighting_of(options)
    settings = options_of(weighting)
    # zipfian=false is dropped; all others keep their places, so that a model saved again has the same file
    options = {name: value for name, value in options.items() if name != "zipfian" or name in settings} | settings
    if weighting.uses_frequencies:
        options.setdefault("frequencies", "corpus")
    elif "frequencies" in options:
        raise InputError(
            f"frequencies are for sif, usif or zipfian=true, not for weighting={weighting.name}. Leave them out."
        )
    options = with_absolute_paths(options)
    frequencies, source = None, options.get("frequencies", "corpus")
    if corpus is None and source == "rank":
        frequencies = zipf_probabilities(len(getattr(vectors, "vectors", vectors)))
    elif corpus is None and source != "corpus":
        words = getattr(tokenizer, "words", None)
        words = Vocabulary.from_words(tokenizer.vocabulary()) if words is None else words
        frequencies = read_frequencies(unescape(source), words)
    return StaticEncoder(
        reference,
        write_options(options),
        tokenizer,
        vectors,
        weighting=weighting,
        frequencies=frequencies,
        corpus=corpus,
        modules=modules,
        normalize=bool(options.get("normalize")),
    )


def _check_vocabulary(folder: Path, vectors: Any, tokenizer: SubwordTokenizer) -> None:
    if len(vectors) <= tokenizer.largest_id:
        raise FileFormatError(
            f"{folder} has {len(vectors)} vectors, but its tokens go up to {tokenizer.largest_id}. Do both files "
            "belong together?"
        )
