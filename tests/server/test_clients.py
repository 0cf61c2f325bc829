"""LangChain and LlamaIndex: a URL, and nothing else; the vectors are those of the library."""

import numpy as np
import pytest

from isosent.numeric.similarity import unit_rows

KEY = "a key that is not looked at"


@pytest.fixture(scope="module")
def expected(small, texts):
    return unit_rows(small.encode(texts[:40]))


def test_langchain_gets_the_vectors_of_the_library(client, texts, expected):
    import langchain_openai

    url = f"{client.base_url}/v1"
    embeddings = langchain_openai.OpenAIEmbeddings(
        base_url=url, api_key=KEY, model="small", check_embedding_ctx_length=False, max_retries=0
    )
    assert np.allclose(embeddings.embed_documents(texts[:40]), expected, atol=1e-6)
    assert np.allclose(embeddings.embed_query(texts[0]), expected[0], atol=1e-6)


def test_llama_index_gets_the_vectors_of_the_library(client, texts, expected):
    from llama_index.embeddings import openai

    url = f"{client.base_url}/v1"
    embedding = openai.OpenAIEmbedding(model_name="small", api_base=url, api_key=KEY, max_retries=0)
    assert np.allclose(embedding.get_text_embedding_batch(texts[:40]), expected, atol=1e-6)
    assert np.allclose(embedding.get_query_embedding(texts[0]), expected[0], atol=1e-6)
