"""The classes for LangChain, in the hands of its own standard test suite. No network."""

import numpy as np
import pytest

import isosent
from isosent.errors import InputError, InputTypeError
from isosent.search import Index

pytest.importorskip("langchain_tests")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, VectorStoreIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from isosent.compat.langchain import IsosentEmbeddings, IsosentVectorStore

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*marked with '@pytest.mark.asyncio' but it is not an async"),
]


class OfWordllama:
    embeddings_class = IsosentEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": isosent.load("wordllama")}


class TestEmbeddings(OfWordllama, EmbeddingsUnitTests):
    pass


@pytest.mark.asyncio
class TestEmbeddingsAtWork(OfWordllama, EmbeddingsIntegrationTests):
    pass


@pytest.mark.asyncio
class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self):
        return IsosentVectorStore.from_texts([], IsosentEmbeddings(isosent.load("wordllama")))


@pytest.fixture(scope="module")
def embeddings(wordllama):
    texts = isosent.demo_texts()
    return IsosentEmbeddings(wordllama.fitted(texts, isosent.Whitening(32), queries=texts[::3]))


@pytest.fixture(scope="module")
def store(embeddings):
    texts = isosent.demo_texts()
    metadatas = [{"length": len(text), "words": text.split()} for text in texts]
    return IsosentVectorStore.from_texts(texts, embeddings, metadatas, columns=["length"])


def test_queries_and_documents_are_encoded_as_such_with_length_1(embeddings):
    text, model = isosent.demo_texts()[0], embeddings.model
    query, document = (np.asarray(vector) for vector in (model.encode_query(text), model.encode_document(text)))
    assert not np.allclose(query, document)
    np.testing.assert_allclose(embeddings.embed_query(text), query / np.linalg.norm(query), rtol=1e-5)
    np.testing.assert_allclose(embeddings.embed_documents([text])[0], document / np.linalg.norm(document), rtol=1e-5)
    assert embeddings.embed_documents([]) == []


def test_relevance_is_the_percentile_of_the_index(store):
    query = "How do I get a new password?"
    result = store.index.search(query, k=3)
    hits = store.similarity_search_with_relevance_scores(query, k=3)
    assert [share for _, share in hits] == result.shares[0].tolist()
    assert [score for _, score in store.similarity_search_with_score(query, k=3)] == result.scores[0].tolist()
    assert [document.id for document, _ in hits] == result.ids[0].tolist()
    threshold = (hits[0][1] + hits[1][1]) / 2
    retriever = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": threshold}
    )
    assert retriever.invoke(query) == [hits[0][0]]


@pytest.mark.asyncio
async def test_relevance_and_diversity_are_the_same_in_a_thread_of_their_own(store):
    query = "How do I get a new password?"
    expected = store.similarity_search_with_relevance_scores(query, k=2)
    assert await store.asimilarity_search_with_relevance_scores(query, k=2) == expected
    assert await store.amax_marginal_relevance_search(query, 3) == store.max_marginal_relevance_search(query, 3)


def test_filters_name_columns_and_other_arguments_are_those_of_the_index(store):
    for document in store.similarity_search("the weather", k=20, filter="length < 30"):
        assert document.metadata["length"] == len(document.page_content) < 30
        assert document.metadata["words"] == document.page_content.split()
    with pytest.raises(InputError, match="words"):
        store.similarity_search("the weather", filter='words = "a"')
    assert len(store.similarity_search("the weather", k=5, hybrid=True)) == 5


def test_diverse_hits_begin_with_the_nearest_and_are_less_alike(store):
    query = "How do I get a new password?"
    nearest, diverse = store.similarity_search(query, 4), store.max_marginal_relevance_search(query, 4, lambda_mult=0.2)
    assert diverse[0] == nearest[0]
    assert store.max_marginal_relevance_search(query, 4, lambda_mult=1) == nearest

    def likeness(documents):
        vectors = np.array(store.embeddings.embed_documents([each.page_content for each in documents]))
        return (vectors @ vectors.T).mean()

    assert likeness(diverse) < likeness(nearest)


def test_an_index_that_was_made_elsewhere(wordllama, tmp_path):
    texts = isosent.demo_texts()[:40]
    Index.create(texts, wordllama, metadata={"lang": ["en", None] * 20}, folder=tmp_path / "index")
    store = IsosentVectorStore(Index.open(tmp_path / "index"))
    [first, second] = store.get_by_ids(["0", "1", "99", "x"])
    assert first == Document(page_content=texts[0], metadata={"lang": "en"}, id="0")
    assert second.metadata == {}
    assert store.add_texts(["Two dogs play."], [{"lang": "en"}]) == ["40"]
    with pytest.raises(InputError, match="column year"):
        store.add_texts(["Two dogs play."], [{"year": 2020}])
    assert store.delete(["40"])
    assert store.get_by_ids(["40"]) == []
    assert store.delete()
    assert store.similarity_search("dogs") == []


def test_percentiles_need_thirty_texts(embeddings):
    store = IsosentVectorStore.from_texts([], embeddings)
    store.add_texts(isosent.demo_texts()[:60])
    with pytest.raises(InputError, match="no percentiles"):
        store.similarity_search_with_relevance_scores("a dog")
    store.index.compact()
    assert 0 <= store.similarity_search_with_relevance_scores("a dog", k=1)[0][1] <= 1


def test_what_is_no_model_no_index_or_no_json_is_refused(wordllama, embeddings):
    with pytest.raises(InputTypeError, match="must be a SentenceEncoder; got str"):
        IsosentEmbeddings("wordllama")
    with pytest.raises(InputTypeError, match="must be an Index; got str"):
        IsosentVectorStore("index")
    with pytest.raises(InputError, match="no texts"):
        IsosentVectorStore(Index.create(vectors=np.eye(3, dtype=np.float32)))
    with pytest.raises(InputTypeError, match="got DeterministicFakeEmbedding"):
        IsosentVectorStore.from_texts(["a dog"], DeterministicFakeEmbedding(size=3))
    with pytest.raises(InputError, match="JSON"):
        IsosentVectorStore.from_texts(["a dog"], embeddings, [{"words": {"a", "dog"}}])
    with pytest.raises(InputError, match="metadatas"):
        IsosentVectorStore.from_texts(["a dog"], embeddings, [{}, {}])
