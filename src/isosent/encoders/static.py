"""Encoders without context: a text is the mean of its tokens' vectors."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy.sparse import csr_array

from isosent import _check
from isosent.encoders.base import Encoder
from isosent.encoders.reference import escape, unescape
from isosent.errors import FileFormatError, InputFileError
from isosent.numeric.similarity import unit_rows
from isosent.text.tokens import SubwordTokenizer, TokenIds, Tokenizing, WordTokenizer
from isosent.text.word_vectors import read_word_vectors

_MODEL2VEC_MAX_LENGTH = 512
Document = TypeVar("Document", dict[str, Any], list[Any])


class StaticEncoder(Encoder):
    """Mean of token vectors.

    Parameters
    ----------
    reference : str
        Model reference without options.
    options : mapping of str to str
        Every option with the value in force.
    tokenizer : Tokenizing
        Turns texts into rows of `token_vectors`.
    token_vectors : ndarray of shape (vocab_size, dim), float32
        One vector a token.
    normalize : bool, default False
        Whether the mean is scaled to length 1.

    Raises
    ------
    InputError
        If a vector holds NaN or infinity (the message names the row).
    """

    def __init__(
        self,
        reference: str,
        options: Mapping[str, str],
        tokenizer: Tokenizing,
        token_vectors: NDArray[np.float32],
        *,
        normalize: bool = False,
    ) -> None:
        _check.finite_rows(reference, "token vectors", token_vectors)
        super().__init__(reference, options, token_vectors.shape[1])
        self.tokenizer = tokenizer
        self.token_vectors = token_vectors
        self.normalize = normalize

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of texts."""
        return self.tokenizer(texts)

    def embed(self, tokens: TokenIds) -> NDArray[np.float32]:
        """Return the mean vectors, each summed in the order of its text, so that batches change nothing."""
        shape = (len(tokens.lengths), len(self.token_vectors))
        ones = np.ones(len(tokens.ids), dtype=np.float32)
        sums = csr_array((ones, tokens.ids, tokens.offsets), shape=shape) @ self.token_vectors
        means: NDArray[Any] = sums / tokens.lengths[:, None].astype(np.float32)
        return unit_rows(means).astype(np.float32, copy=False) if self.normalize else means

    def parameters(self) -> Iterator[NDArray[np.generic]]:
        """Yield the token vectors."""
        yield self.token_vectors

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        return self.tokenizer.vocabulary()


def open_wordllama() -> StaticEncoder:
    """Open the vectors and the tokenizer that the package ``wordllama`` carries, without importing it.

    Returns
    -------
    StaticEncoder
        32,000 sub-word tokens, 256 dimensions.

    Raises
    ------
    InputFileError
        If the installed package lacks the files.
    """
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise InputFileError("wordllama: the package must be installed; it is not. Run: pip install wordllama")
    folder = Path(spec.submodule_search_locations[0])
    tensors = _read_tensors(folder / "weights" / "l2_supercat_256.safetensors")
    tokenizer = SubwordTokenizer(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    return StaticEncoder("wordllama", {}, tokenizer, tensors["embedding.weight"].astype(np.float32))


def open_words(location: str, options: Mapping[str, str]) -> StaticEncoder:
    """Open word vectors.

    Parameters
    ----------
    location : str
        One file or several with commas between them, see `read_word_vectors`.
    options : mapping of str to str
        ``lowercase`` and ``tokenizer``.

    Returns
    -------
    StaticEncoder
        Mean of the vectors of the known words.
    """
    options = {"lowercase": "true", "tokenizer": "wordpunct"} | dict(options)
    paths = [Path(unescape(part)).expanduser().resolve() for part in location.split(",")]
    words = read_word_vectors(paths)
    tokenizer = WordTokenizer(words.index, split=options["tokenizer"], lowercase=options["lowercase"] == "true")
    return StaticEncoder(f"words:{','.join(escape(str(path)) for path in paths)}", options, tokenizer, words.vectors)


def open_static_folder(location: str, options: Mapping[str, str]) -> StaticEncoder:
    """Open a Model2Vec folder, or a sentence-transformers one that holds a StaticEmbedding.

    Parameters
    ----------
    location : str
        Folder with ``tokenizer.json`` and ``model.safetensors``, which holds vectors in int8, float16 or float32 and
        may hold a weight a token and a mapping from tokens to shared vectors.
    options : mapping of str to str
        ``normalize`` and ``max_length``; left out, those of the folder's ``config.json``.

    Returns
    -------
    StaticEncoder
        Mean of the weighted token vectors.

    Raises
    ------
    InputFileError
        If the folder or one of the files is missing.
    FileFormatError
        If a file is damaged, or the vectors do not fit the tokenizer.
    """
    folder = _check.input_folder(Path(unescape(location)).expanduser().resolve())
    layout = _read_layout(folder)
    options = {"normalize": str(layout.normalize).lower(), "max_length": str(layout.max_length).lower()} | dict(options)
    tokenizer = SubwordTokenizer(
        _check.input_file(layout.inner / "tokenizer.json"),
        max_length=None if options["max_length"] == "none" else int(options["max_length"]),
        cut_characters=layout.is_model2vec,
        skip_unknown=layout.is_model2vec,
    )
    tensors = _read_tensors(_check.input_file(layout.inner / "model.safetensors"))
    token_vectors = _token_vectors(layout.inner, tensors)
    if len(token_vectors) <= tokenizer.largest_id:
        raise FileFormatError(
            f"{folder}: every token must have a vector; got {len(token_vectors)} vectors and the token "
            f"{tokenizer.largest_id}."
        )
    normalize = options["normalize"] == "true"
    return StaticEncoder(f"static:{escape(str(folder))}", options, tokenizer, token_vectors, normalize=normalize)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a static model's files lie, and what its settings say."""

    inner: Path
    normalize: bool
    max_length: int | None
    is_model2vec: bool


def _read_layout(folder: Path) -> _Layout:
    """Model2Vec's config; without one, the modules of a sentence-transformers folder."""
    config = _read_json(folder / "config.json", dict)
    if config is not None:
        normalize, max_length = config.get("normalize", False), config.get("max_length", _MODEL2VEC_MAX_LENGTH)
        if not isinstance(normalize, bool):
            raise FileFormatError(f"{folder}/config.json: normalize must be true or false; got {normalize!r}.")
        if max_length is not None and (type(max_length) is not int or max_length < 1):
            raise FileFormatError(
                f"{folder}/config.json: max_length must be a whole number above 0; got {max_length!r}."
            )
        return _Layout(folder, normalize, max_length, is_model2vec=True)
    modules = _read_json(folder / "modules.json", list)
    if modules is None:
        return _Layout(folder, False, _MODEL2VEC_MAX_LENGTH, is_model2vec=True)
    kinds = [str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else "" for module in modules]
    if kinds not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):
        raise FileFormatError(
            f"{folder}/modules.json must list a StaticEmbedding, and at most a Normalize behind it; "
            f"got {', '.join(kinds)}."
        )
    return _Layout(folder / str(modules[0].get("path", "")), len(kinds) == 2, None, is_model2vec=False)


def _read_json(path: Path, kind: type[Document]) -> Document | None:
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} must be JSON; got: {error}.") from None
    if not isinstance(document, kind):
        raise FileFormatError(f"{path} must hold a JSON {kind.__name__}; got {type(document).__name__}.")
    return document


def _token_vectors(folder: Path, tensors: dict[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    """One float32 vector a token: mapping and weights of Model2Vec folded in."""
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


def _read_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
    except FileNotFoundError:
        raise InputFileError(f"{path} must exist; got no such file.") from None
    except (SafetensorError, TypeError) as error:
        raise FileFormatError(f"{path} must be a safetensors file of int8, float16 or float32; got: {error}.") from None
