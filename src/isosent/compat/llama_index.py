"""A model as the ``BaseEmbedding`` of LlamaIndex."""

from __future__ import annotations

from typing import Any

from isosent import _extras
from isosent.loading import check_model
from isosent.model import SentenceEncoder

_extras.require("llama_index.core")  # names what to install

from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402


class IsosentEmbedding(BaseEmbedding):
    """Implements ``llama_index.core.embeddings.BaseEmbedding``: queries are encoded as queries, nodes as documents.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    **options
        Other fields of ``BaseEmbedding``, such as `embed_batch_size`. `model_name` is by default the name of the space,
        with its fingerprint.

    Notes
    -----
    Vectors have length 1. A text without a token that the model knows has the zero vector.

    Examples
    --------
    >>> import isosent
    >>> embedding = IsosentEmbedding(isosent.load("wordllama"))
    >>> len(embedding.get_query_embedding("A man is riding a horse."))
    256
    """

    _model: SentenceEncoder = PrivateAttr()

    def __init__(self, model: SentenceEncoder, **options: Any) -> None:
        check_model("IsosentEmbedding", model)
        super().__init__(**{"model_name": f"{model.record.name} ({model.fingerprint[:16]})"} | options)
        self._model = model

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, which LlamaIndex stores."""
        return "IsosentEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._model.encode(query, role="query", normalize_embeddings=True, show_progress_bar=False).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._model.encode(texts, role="document", normalize_embeddings=True, show_progress_bar=False).tolist()

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._get_text_embeddings(texts)
