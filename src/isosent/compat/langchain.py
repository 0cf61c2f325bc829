"""A model as the ``Embeddings`` of LangChain, and an index as its ``VectorStore``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from isosent import _check, _extras
from isosent.errors import InputError, InputTypeError, wrong_value
from isosent.loading import check_model
from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.search.rows import MAPPED

_extras.require("langchain_core")  # names what to install

from langchain_core.documents import Document  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.runnables import run_in_executor  # noqa: E402
from langchain_core.vectorstores import VectorStore  # noqa: E402
from langchain_core.vectorstores.utils import maximal_marginal_relevance  # noqa: E402

METADATA: Final = "langchain_metadata"  # the column, JSON, of metadata that have no column of their own


class IsosentEmbeddings(Embeddings):
    """Implements ``langchain_core.embeddings.Embeddings``: queries are encoded as queries, documents as documents.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Notes
    -----
    Vectors have length 1, so that every vector store ranks by cosine. A text without a token that the model knows has
    the zero vector.

    Examples
    --------
    >>> import isosent
    >>> embeddings = IsosentEmbeddings(isosent.load("wordllama"))
    >>> len(embeddings.embed_query("A man is riding a horse."))
    256
    """

    def __init__(self, model: SentenceEncoder) -> None:
        check_model("IsosentEmbeddings", model)
        self.model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Encode documents, one vector each."""
        return self.model.encode(texts, role="document", normalize_embeddings=True, show_progress_bar=False).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Encode a query."""
        return self.model.encode(text, role="query", normalize_embeddings=True, show_progress_bar=False).tolist()


class IsosentVectorStore(VectorStore):
    """Implements ``langchain_core.vectorstores.VectorStore`` over an index. Relevance scores are percentiles.

    Parameters
    ----------
    index : Index
        An index of texts, with a model that encodes queries. Its columns are the metadata of a document, without nulls.

    Notes
    -----
    Methods that search take the arguments of `Index.search` by name, and ``filter`` for its ``where``, as in
    ``store.as_retriever(search_kwargs={"k": 3, "filter": 'lang = "en"'})``. Scores are cosines, higher for nearer
    texts. The relevance score of a hit is the share of random pairs of texts of the index with a lower score.

    Examples
    --------
    >>> import isosent
    >>> embeddings = IsosentEmbeddings(isosent.load("wordllama"))
    >>> store = IsosentVectorStore.from_texts(isosent.demo_texts(), embeddings)
    >>> store.similarity_search("How do I get a new password?", k=1)[0].page_content
    'How do I change my password?'
    """

    def __init__(self, index: Index) -> None:
        if not isinstance(index, Index):
            raise wrong_value(
                "IsosentVectorStore",
                "index",
                "be an Index",
                type(index).__name__,
                "Use Index.open(FOLDER).",
                error=InputTypeError,
            )
        if "text" not in index.schema.names:
            raise InputError("the index has no texts to return. Make it of texts.", where="IsosentVectorStore")
        self.index = index

    @property
    def embeddings(self) -> IsosentEmbeddings:
        """The model of the index."""
        return IsosentEmbeddings(self.index.model)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        columns: Sequence[str] = (),
        **options: Any,
    ) -> IsosentVectorStore:
        """Make an index of texts, and a store of it.

        Parameters
        ----------
        texts : list of str
            The texts.
        embedding : IsosentEmbeddings
            The model that encodes texts and queries.
        metadatas : list of dict, optional
            JSON values of each text by their names.
        ids : sequence of str, optional
            A different id for each text; random ones by default.
        columns : sequence of str, optional
            Names of metadata that become columns of the index, which a filter can name.
        **options
            Other arguments of `Index.create`, such as `folder`; without one, the index lives as long as the store.

        Returns
        -------
        IsosentVectorStore
            The store.
        """
        if not isinstance(embedding, IsosentEmbeddings):
            raise wrong_value(
                "IsosentVectorStore",
                "embedding",
                "be IsosentEmbeddings",
                type(embedding).__name__,
                error=InputTypeError,
            )
        table = _columns_of(metadatas, len(texts), [*columns, METADATA])
        index = Index.create(texts, embedding.model, ids=_with_ids(ids, len(texts)), metadata=table, **options)
        return cls(index)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, and replace those with the same ids.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        metadatas : list of dict, optional
            Metadata of each text. What has no column is kept as JSON if `from_texts` made the index, else refused.
        ids : sequence of str, optional
            A different id for each text. Where one is missing, a random one; an index that gives numbers takes none.
        **kwargs
            Without effect.

        Returns
        -------
        list of str
            The ids.
        """
        listed = list(texts)
        table = _columns_of(metadatas, len(listed), self.index.schema.names)
        own: Any = None
        if self.index.ids_are_strings:
            own = _with_ids(ids, len(listed))
        elif ids is not None:
            own = [int(each) if each is not None and each.isdecimal() else each for each in ids]
        return [str(each) for each in self.index.add(listed, ids=own, metadata=table)]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete the texts with these ids, or all; those that the index has not are ignored."""
        own = self._own_ids(ids) if ids is not None else [e for b in self.index.batches() for e in b["id"].to_pylist()]
        if own:
            self.index.remove(own)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids in their order, without those that the index has not."""
        return [_document(row) for row in self.index.rows(self._own_ids(ids)).drop_columns("vector").to_pylist()]

    def _own_ids(self, ids: Sequence[str]) -> list[Any]:
        return (
            list(ids)
            if self.index.ids_are_strings
            else [int(each) for each in ids if each.isdecimal() and len(each) < 19]
        )

    def _hits(
        self, query: str, k: int, filter: str | None, options: Mapping[str, Any]
    ) -> list[tuple[Any, float, float]]:
        """Row, cosine and share of random pairs below, of each hit that nobody has deleted meanwhile."""
        result = self.index.search(query, k, where=filter, **options)
        hits = result.positions[0] >= 0
        ids = result.ids[0][hits].tolist()
        rows = {row["id"]: row for row in self.index.rows(ids).to_pylist()}
        found = zip(ids, result.scores[0][hits].tolist(), result.shares[0][hits].tolist(), strict=True)
        return [(rows[each], score, share) for each, score, share in found if each in rows]

    def similarity_search(self, query: str, k: int = 4, *, filter: str | None = None, **kwargs: Any) -> list[Document]:
        """Return the texts nearest to a query; `filter` is the `where` of `Index.search`."""
        return [_document(row) for row, _, _ in self._hits(query, k, filter, kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: str | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the texts nearest to a query, and their cosines."""
        return [(_document(row), score) for row, score, _ in self._hits(query, k, filter, kwargs)]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, *, filter: str | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        kwargs.pop("score_threshold", None)  # the caller applies it
        hits = [(_document(row), share) for row, _, share in self._hits(query, k, filter, kwargs)]
        if any(np.isnan(share) for _, share in hits):
            raise InputError(
                "the index has no percentiles; they are learned from 30 texts or more when it is made or "
                "compacted. Call store.index.compact().",
                where="IsosentVectorStore",
            )
        return hits

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        return await run_in_executor(None, self._similarity_search_with_relevance_scores, query, k, **kwargs)

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: str | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return texts, of the `fetch_k` nearest, that differ from each other: most with a `lambda_mult` of 0."""
        rows = [row for row, _, _ in self._hits(query, fetch_k, filter, kwargs) if row["vector"] is not None]
        vector = np.asarray(IsosentEmbeddings(self.index.query_model).embed_query(query))
        chosen = maximal_marginal_relevance(vector, [row["vector"] for row in rows], lambda_mult, k)
        return [_document(rows[place]) for place in chosen]

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search`."""
        search = self.max_marginal_relevance_search
        return await run_in_executor(None, search, query, k, fetch_k, lambda_mult, **kwargs)


def _with_ids(ids: Sequence[str | None] | None, n_texts: int) -> list[str]:
    """The ids, and random ones where there is none."""
    given = [None] * n_texts if ids is None else list(ids)
    _check.same_count("IsosentVectorStore", "ids", len(given), n_texts)
    return [str(uuid.uuid4()) if each is None else each for each in given]


def _columns_of(metadatas: Sequence[Mapping[str, Any]] | None, n_texts: int, names: Sequence[str]) -> dict[str, Any]:
    """Metadata by the columns of an index; what has none goes into `METADATA` as JSON, or has a column that fails."""
    rows = [{} for _ in range(n_texts)] if metadatas is None else [dict(row) for row in metadatas]
    _check.same_count("IsosentVectorStore", "metadatas", len(rows), n_texts)
    own = [name for name in names if name not in ("id", "text", MAPPED, METADATA)]
    if METADATA not in names:
        own = list(dict.fromkeys([*own, *(name for row in rows for name in row)]))
    table: dict[str, Any] = {name: [row.pop(name, None) for row in rows] for name in own}
    try:
        return table | ({METADATA: [json.dumps(row) for row in rows]} if METADATA in names else {})
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata are not JSON values: {error}.", where="IsosentVectorStore") from None


def _document(row: Mapping[str, Any]) -> Document:
    columns = {name: value for name, value in row.items() if value is not None}
    others = json.loads(columns.pop(METADATA, "{}"))
    number, text = columns.pop("id"), columns.pop("text", "")
    for name in ("vector", MAPPED):
        columns.pop(name, None)
    return Document(page_content=text, metadata=columns | others, id=str(number))
