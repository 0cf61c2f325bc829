"""The class for LlamaIndex, in the hands of its own index. No network."""

import asyncio

import numpy as np
import pytest

import isosent
from isosent.errors import InputTypeError

pytest.importorskip("llama_index.core")

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode

from isosent.compat.llama_index import IsosentEmbedding

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(wordllama):
    texts = isosent.demo_texts()
    return wordllama.fitted(texts, isosent.Whitening(32), queries=texts[::3])


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_queries_and_documents_are_encoded_as_such_with_length_1(model):
    embedding, texts = IsosentEmbedding(model), isosent.demo_texts()[:25]
    query, documents = unit(model.encode_query(texts[0])), [unit(row) for row in model.encode_document(texts)]
    np.testing.assert_allclose(embedding.get_query_embedding(texts[0]), query, rtol=1e-5)
    np.testing.assert_allclose(embedding.get_text_embedding(texts[0]), documents[0], rtol=1e-5)
    np.testing.assert_allclose(embedding.get_text_embedding_batch(texts), documents, rtol=1e-5)
    assert asyncio.run(embedding.aget_query_embedding(texts[0])) == embedding.get_query_embedding(texts[0])
    assert asyncio.run(embedding.aget_text_embedding(texts[0])) == embedding.get_text_embedding(texts[0])
    assert asyncio.run(embedding.aget_text_embedding_batch(texts)) == embedding.get_text_embedding_batch(texts)


def test_its_index_finds_what_the_model_finds(model):
    texts = isosent.demo_texts()[:100]
    index = VectorStoreIndex([TextNode(text=text) for text in texts], embed_model=IsosentEmbedding(model))
    query = "How do I get a new password?"
    [hit] = index.as_retriever(similarity_top_k=1).retrieve(query)
    cosines = [unit(row) @ unit(model.encode_query(query)) for row in model.encode_document(texts)]
    assert hit.text == texts[int(np.argmax(cosines))]
    assert hit.score == pytest.approx(max(cosines), abs=1e-5)


def test_it_is_named_by_the_space_and_takes_the_fields_of_its_base(model):
    embedding = IsosentEmbedding(model, embed_batch_size=50)
    assert model.fingerprint[:16] in embedding.model_name
    assert (embedding.embed_batch_size, embedding.class_name()) == (50, "IsosentEmbedding")
    with pytest.raises(InputTypeError, match="must be a SentenceEncoder; got str"):
        IsosentEmbedding("wordllama")
