"""A model with the interface of ``sentence_transformers.SentenceTransformer``, for code that was written for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from isosent import _check, _extras
from isosent.encoders.base import Encoder
from isosent.encoders.load import DEFAULT_PROMPT, named_prompts
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows


class CollectedMetrics:
    """Where evaluators of sentence-transformers leave their numbers."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def set_evaluation_metrics(
        self, evaluator: object, metrics: Mapping[str, float], epoch: int = 0, step: int = 0
    ) -> None:
        """Keep the numbers of an evaluator."""
        self.metrics.update(metrics)


class SentenceTransformerLike:
    """Wraps a model; what it does not have raises AttributeError.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    prompts : mapping of str to str, optional
        Texts that stand before a text, by name. They come on top of the encoder's own, which are named ``query``,
        ``document`` and, for texts of neither role, ``default``, and take the place of those of the same name.

    Notes
    -----
    One prompt stands before a text, never two: `prompt`, else the one that `prompt_name` names, else that of the
    method's role, else the default one; as in the library. An empty one is one, too. The encoder then has no other.

    Examples
    --------
    >>> import isosent
    >>> model = SentenceTransformerLike(isosent.load("wordllama"))
    >>> model.encode("A man is riding a horse.").shape, model.encode(["one", "two"]).shape
    ((256,), (2, 256))
    """

    similarity_fn_name = "cosine"

    def __init__(self, model: SentenceEncoder, prompts: Mapping[str, str] | None = None) -> None:
        self.model = model
        self.prompts = named_prompts(model.encoder)
        self.default_prompt_name = DEFAULT_PROMPT if DEFAULT_PROMPT in self.prompts else None
        self.prompts |= prompts or {}
        self.model_card_data = CollectedMetrics()

    def encode(
        self,
        sentences: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        *,
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        queries: bool = False,
    ) -> Any:
        """Encode texts.

        Parameters
        ----------
        sentences : str or sequence of str
            One text or several.
        prompt_name : str, optional
            Name of the prompt to put before each text.
        prompt : str, optional
            The prompt itself; it wins.
        batch_size : int, default 32
            Without effect: isosent makes its own batches.
        show_progress_bar : bool, optional
            Whether to show a bar.
        precision : {"float32"}, optional
            Type of the numbers.
        convert_to_numpy : bool, default True
            Whether the result is an array; if not, it is a list of tensors.
        convert_to_tensor : bool, default False
            Whether the result is one tensor; it wins.
        normalize_embeddings : bool, default False
            Whether vectors are scaled to length 1; zero rows stay zero.
        truncate_dim : int, optional
            Leading dimensions that are kept.
        queries : bool, default False
            Whether the texts go through the map of queries.

        Returns
        -------
        ndarray, tensor or list of tensors
            Shape (n_texts, dim) float32, or (dim,) for one text.

        Raises
        ------
        InputError
            If there is no prompt of that name, another precision is asked for, or `truncate_dim` is below 1.
        InputTypeError
            If something is not a string.
        """
        if precision not in (None, "float32"):
            raise InputError(
                f"encode: precision must be float32; got {precision!r}. Quantize the result: "
                "sentence_transformers.quantize_embeddings."
            )
        if truncate_dim is not None and truncate_dim < 1:
            raise InputError(f"encode: truncate_dim must be 1 or more, or None for all; got {truncate_dim}.")
        if prompt is None:
            prompt = self._prompt(self.default_prompt_name if prompt_name is None else prompt_name)
        single = isinstance(sentences, str)
        texts = _check.text_list("encode", [sentences] if isinstance(sentences, str) else sentences)
        with Progress(transient=True, disable=not show_progress_bar) as bar:
            task = bar.add_task("encoding", total=len(texts))
            encoded = _encode_behind(self.model.encoder, prompt, texts, lambda done: bar.advance(task, done))
        vectors = self.model.transform(encoded, queries=queries)[:, :truncate_dim]
        if normalize_embeddings:
            vectors = unit_rows(vectors).astype(np.float32, copy=False)
        return _converted(vectors[0] if single else vectors, as_array=convert_to_numpy, as_tensor=convert_to_tensor)

    def encode_query(self, sentences: str | Sequence[str], prompt_name: str | None = None, **options: Any) -> Any:
        """Encode texts to search with; parameters as for `encode`."""
        return self.encode(sentences, self._prompt_name("query", prompt_name), queries=True, **options)

    def encode_document(self, sentences: str | Sequence[str], prompt_name: str | None = None, **options: Any) -> Any:
        """Encode texts to be found; parameters as for `encode`."""
        return self.encode(sentences, self._prompt_name("document", prompt_name), **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosine of each vector with each other one, a tensor of shape (n, m)."""
        return _extras.require("sentence_transformers").util.cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosine of each vector with its counterpart, a tensor of shape (n,)."""
        return _extras.require("sentence_transformers").util.pairwise_cos_sim(embeddings1, embeddings2)

    def get_embedding_dimension(self) -> int:
        """Dimensions of the vectors."""
        return self.model.dim

    def get_sentence_embedding_dimension(self) -> int:
        """Dimensions of the vectors, under the name of releases before 5.4."""
        return self.model.dim

    @property
    def max_seq_length(self) -> int | None:
        """Tokens at which texts are cut; None for no limit."""
        limit = self.model.encoder.options.get("max_length", "none")
        return None if limit == "none" else int(limit)

    def _prompt_name(self, role: str, given: str | None) -> str | None:
        return role if given is None and role in self.prompts else given

    def _prompt(self, name: str | None) -> str:
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise InputError(f"encode: prompt_name must be the name of a prompt; got {name!r}. There are: {known}.")
        return self.prompts[name]


def _encode_behind(
    encoder: Encoder, prompt: str, texts: list[str], progress: Callable[[int], None]
) -> NDArray[np.float32]:
    """Encode texts behind a prompt, and no other one."""
    if isinstance(encoder, TransformerEncoder):
        return encoder.with_prompt(prompt).encode(texts, progress=progress)
    return encoder.encode([prompt + text for text in texts], progress=progress)


def _converted(vectors: NDArray[np.float32], *, as_array: bool, as_tensor: bool) -> Any:
    if as_array and not as_tensor:
        return vectors
    tensors = _extras.require("torch").from_numpy(np.ascontiguousarray(vectors))
    return tensors if as_tensor or vectors.ndim == 1 else list(tensors)
