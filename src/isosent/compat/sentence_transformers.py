"""A model with the interface of ``sentence_transformers.SentenceTransformer``, for code written for that class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isosent import _extras
from isosent.encoders.load import DEFAULT_PROMPT, named_prompts, prompt_named
from isosent.errors import wrong_value
from isosent.model import SentenceEncoder
from isosent.storage import Storage


class SentenceTransformerLike:
    """Wraps a model for evaluators and other code that needs more than `SentenceEncoder.encode`.

    Attributes that it lacks raise AttributeError.

    Parameters
    ----------
    model : SentenceEncoder
        The model to wrap.
    prompts : mapping of str to str, optional
        Prompts by name. They are added to the encoder's own, which are named ``query``, ``document`` and, for texts
        without a role, ``default``, and replace those of the same name.

    Notes
    -----
    A text gets one prompt, never two, as in sentence-transformers: `prompt`, else the one named `prompt_name`, else the
    one of the method's role, else the default. An empty prompt counts.

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
        precision: str | None = Storage.float32,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        queries: bool = False,
    ) -> Any:
        """Encode texts, with the arguments and results of ``SentenceTransformer.encode``.

        Parameters
        ----------
        sentences : str or sequence of str
            One text or several.
        prompt_name, prompt : str, optional
            Name of a prompt to add before each text, or the prompt itself, which wins.
        batch_size, show_progress_bar : optional
            As for `SentenceEncoder.encode`.
        precision : {"float32"}, optional
            Type of the numbers.
        convert_to_numpy, convert_to_tensor, normalize_embeddings : bool
            As for `SentenceEncoder.encode`.
        truncate_dim : int, optional
            Number of leading dimensions to keep.
        queries : bool, default False
            Whether to apply the map of queries.

        Returns
        -------
        ndarray, tensor or list of tensors
            Shape (n_texts, dim) float32, or (dim,) for one text.

        Raises
        ------
        InputError
            If there is no prompt of that name, `precision` is another one, or `truncate_dim` is below 1.
        """
        if precision not in (None, Storage.float32):
            raise wrong_value(
                "encode",
                "precision",
                "be float32",
                repr(precision),
                "Quantize the result: sentence_transformers.quantize_embeddings.",
            )
        if prompt is None:
            name = self.default_prompt_name if prompt_name is None else prompt_name
            prompt = "" if name is None else prompt_named(self.prompts, name)
        return self.model.encode(
            sentences,
            role="query" if queries else "text",
            prompt=prompt,
            show_progress_bar=show_progress_bar,
            normalize_embeddings=normalize_embeddings,
            convert_to_numpy=convert_to_numpy,
            convert_to_tensor=convert_to_tensor,
            truncate_dim=truncate_dim,
        )

    def encode_query(self, sentences: str | Sequence[str], prompt_name: str | None = None, **options: Any) -> Any:
        """Encode queries.

        Parameters
        ----------
        sentences : str or sequence of str
            One text or several.
        prompt_name : str, optional
            Name of a prompt. The default is ``query``, if there is one.
        **options
            Other parameters of `encode`.

        Returns
        -------
        ndarray, tensor or list of tensors
            As for `encode`.
        """
        return self.encode(sentences, self._role_prompt("query", prompt_name), queries=True, **options)

    def encode_document(self, sentences: str | Sequence[str], prompt_name: str | None = None, **options: Any) -> Any:
        """Encode documents.

        Parameters
        ----------
        sentences : str or sequence of str
            One text or several.
        prompt_name : str, optional
            Name of a prompt. The default is ``document``, if there is one.
        **options
            Other parameters of `encode`.

        Returns
        -------
        ndarray, tensor or list of tensors
            As for `encode`.
        """
        return self.encode(sentences, self._role_prompt("document", prompt_name), **options)

    def _role_prompt(self, role: str, prompt_name: str | None) -> str | None:
        return role if prompt_name is None and role in self.prompts else prompt_name

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compare each vector with each other one.

        Parameters
        ----------
        embeddings1, embeddings2 : array-like of shape (n, dim) and (m, dim)
            Vectors.

        Returns
        -------
        tensor of shape (n, m)
            Cosines.
        """
        return _extras.require("sentence_transformers").util.cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compare each vector with its counterpart.

        Parameters
        ----------
        embeddings1, embeddings2 : array-like of shape (n, dim)
            Vectors.

        Returns
        -------
        tensor of shape (n,)
            Cosines.
        """
        return _extras.require("sentence_transformers").util.pairwise_cos_sim(embeddings1, embeddings2)

    def get_embedding_dimension(self) -> int:
        """Return the dimensions of the vectors.

        Returns
        -------
        int
            Length of each row that `encode` gives.
        """
        return self.model.dim

    get_sentence_embedding_dimension = get_embedding_dimension  # its name before release 5.4

    @property
    def max_seq_length(self) -> int | None:
        """Number of tokens at which texts are cut; None if they are not."""
        limit = self.model.encoder.options.get("max_length", "none")
        return None if limit == "none" else int(limit)


class CollectedMetrics:
    """Keeps the metrics that evaluators of sentence-transformers report to the model card."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def set_evaluation_metrics(
        self, evaluator: object, metrics: Mapping[str, float], epoch: int = 0, step: int = 0
    ) -> None:
        """Keep the metrics of an evaluator."""
        self.metrics.update(metrics)
