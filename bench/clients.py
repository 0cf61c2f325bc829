"""Real clients against a running server and a proxy: what they get, and how far it is from the library's vectors.

Starts `isosent serve` with a model and with the same model whitened to 64 dimensions, and two `isosent proxy` that ask
it as OpenAI's API and as Text Embeddings Inference. Every client that is installed asks for texts of all kinds: short,
long, with blank lines, emoji, other scripts. Prints a JSON line for each client and call, with the largest difference
of a number from the vectors of the library, and ends with 1 if one is above 1e-6 or a call failed.

Needs the extra serve, and for each client its package: openai, huggingface_hub, langchain-openai,
llama-index-embeddings-openai, -openai-like, -text-embeddings-inference, -huggingface-api. langchain-huggingface takes
no URL.
Usage: python bench/clients.py [MODEL]
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows

KEY, LIMIT, N_ASYNC = "a key that nobody looks at", 1e-6, 32
ODD = [
    "  spaces around  ",
    "two\nlines\n\nand a blank one",
    "emoji \U0001f408\u200d\u2b1b and flags \U0001f1e9\U0001f1ea",
    "今天天气很好。",
    "שלום עולם",
    'quotes " and \\ backslashes',
    "word " * 400,
    "a",
]
NO_CALL = object()


class Checks:
    """The checks of one client and server; each prints a line."""

    def __init__(self, client, server):
        self.facts, self.is_good = {"client": client, "server": server}, True

    def __call__(self, call, ask, expected=NO_CALL):
        """Compare what a call gives with vectors or cosines; without these, only that it is true."""
        try:
            answer = ask()
            if expected is NO_CALL:
                result = {"ok": bool(answer)}
            else:
                vectors = np.array(answer, np.float64)
                result = {"difference": float(np.abs(vectors - expected).max()), "values": vectors.size}
                result["ok"] = vectors.shape == np.shape(expected) and result["difference"] <= LIMIT
        except Exception as error:  # whatever a client raises is a finding
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"[:300]}
        self.is_good &= result["ok"]
        print(json.dumps({**self.facts, "call": call, **result}), flush=True)


def vectors_of(answer):
    return [row.embedding for row in answer.data]


def use_openai(url, name, texts, expected, checks):
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        create = client.embeddings.create
        checks("base64", lambda: vectors_of(create(model=name, input=texts)), expected)
        checks("float", lambda: vectors_of(create(model=name, input=texts, encoding_format="float")), expected)
        checks("one text", lambda: vectors_of(create(model=name, input=texts[0])), expected[:1])
        shorter = unit_rows(expected[:, :16])
        checks("dimensions", lambda: vectors_of(create(model=name, input=texts, dimensions=16)), shorter)
        unknown = {"field_of_a_newer_client": True}
        checks(
            "unknown field", lambda: vectors_of(create(model=name, input=texts[:2], extra_body=unknown)), expected[:2]
        )
        checks("usage", lambda: create(model=name, input="these tokens are new").usage.total_tokens > 0)
        checks("models.list", lambda: name in [model.id for model in client.models.list()])
        checks("models.retrieve", lambda: client.models.retrieve(name).id == name)

        def refused(kind, **body):
            try:
                create(**{"model": name, "input": "a", **body})
            except kind as error:
                return str(error)
            return ""

        checks("unknown model", lambda: name in refused(openai.NotFoundError, model="large"))
        checks("empty text", lambda: "empty" in refused(openai.BadRequestError, input=""))

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            calls = [client.embeddings.create(model=name, input=text) for text in texts[:N_ASYNC]]
            return [vectors_of(answer)[0] for answer in await asyncio.gather(*calls)]

    checks(f"{N_ASYNC} at once", lambda: asyncio.run(ask_all()), expected[:N_ASYNC])


def use_huggingface_hub(url, name, texts, expected, checks):
    from huggingface_hub import AsyncInferenceClient, InferenceClient

    client = InferenceClient(model=url, token=KEY)
    checks("feature_extraction", lambda: client.feature_extraction(texts), expected)
    checks("one text", lambda: client.feature_extraction(texts[0], normalize=True, truncate=True), expected[:1])
    cosines = expected[1:] @ expected[0]
    checks("sentence_similarity", lambda: client.sentence_similarity(texts[0], other_sentences=texts[1:]), cosines)

    async def ask_all():
        client = AsyncInferenceClient(model=url, token=KEY)
        calls = [client.feature_extraction(text) for text in texts[:N_ASYNC]]
        return [rows[0] for rows in await asyncio.gather(*calls)]

    checks(f"{N_ASYNC} at once", lambda: asyncio.run(ask_all()), expected[:N_ASYNC])


def use_langchain_openai(url, name, texts, expected, checks):
    from langchain_openai import OpenAIEmbeddings

    client = OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key=KEY, model=name, check_embedding_ctx_length=False, max_retries=0
    )
    checks("embed_documents", lambda: client.embed_documents(texts), expected)
    checks("embed_query", lambda: client.embed_query(texts[0]), expected[0])
    checks("aembed_documents", lambda: asyncio.run(client.aembed_documents(texts)), expected)


def use_llama_index_openai(url, name, texts, expected, checks):
    from llama_index.embeddings.openai import OpenAIEmbedding

    make = partial(OpenAIEmbedding, model_name=name, api_base=f"{url}/v1", api_key=KEY, max_retries=0)
    use_llama_index(make, texts, expected, checks)


def use_llama_index_openai_like(url, name, texts, expected, checks):
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    make = partial(OpenAILikeEmbedding, model_name=name, api_base=f"{url}/v1", api_key=KEY, max_retries=0)
    use_llama_index(make, texts, expected, checks)


def use_llama_index_tei(url, name, texts, expected, checks):
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    use_llama_index(partial(TextEmbeddingsInference, model_name=name, base_url=url), texts, expected, checks)


def use_llama_index_hub(url, name, texts, expected, checks):
    from llama_index.embeddings.huggingface_api import HuggingFaceInferenceAPIEmbedding

    use_llama_index(partial(HuggingFaceInferenceAPIEmbedding, model_name=url, token=KEY), texts, expected, checks)


def use_llama_index(make, texts, expected, checks):
    # some of its clients put blanks for line ends, and strip texts
    kept = [row for row, text in enumerate(texts) if text == " ".join(text.splitlines()).strip()]
    texts, expected = [texts[row] for row in kept], expected[kept]
    make = partial(make, embed_batch_size=len(texts))

    async def ask_all():
        return await make().aget_text_embedding_batch(texts)

    # a client for each call: one that has run in an event loop keeps connections that belong to it
    checks("get_text_embedding_batch", lambda: make().get_text_embedding_batch(texts), expected)
    checks("get_query_embedding", lambda: make().get_query_embedding(texts[0]), expected[0])
    checks("aget_text_embedding_batch", lambda: asyncio.run(ask_all()), expected)


# package -> how its client asks, and whether it asks as OpenAI's does
CLIENTS = {
    "openai": (use_openai, True),
    "huggingface_hub": (use_huggingface_hub, False),
    "langchain-openai": (use_langchain_openai, True),
    "llama-index-embeddings-openai": (use_llama_index_openai, True),
    "llama-index-embeddings-openai-like": (use_llama_index_openai_like, True),
    "llama-index-embeddings-text-embeddings-inference": (use_llama_index_tei, False),
    "llama-index-embeddings-huggingface-api": (use_llama_index_hub, False),
}


def throw(error):
    raise error


@contextmanager
def running(*arguments):
    """A process of isosent; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "isosent", *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"ISOSENT_API_KEYS": "", "ISOSENT_UPSTREAM_KEY": ""},
    )
    lines = []
    try:
        port = json.loads(process.stderr.readline())["port"]
        reader = threading.Thread(target=lambda: lines.extend(process.stderr))  # a full pipe would stop the process
        reader.start()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
    reader.join()
    for facts in map(json.loads, lines):
        if facts["level"] != "info":
            print(json.dumps({"log of": arguments[0], **facts}), flush=True)


def main():
    model = isosent.load(sys.argv[1] if len(sys.argv) > 1 else "wordllama")
    sample = isosent.demo_texts()
    texts = [*sample[:200], *ODD]
    raw = model.encode(sample)
    space = {"space": "base"}
    small = SentenceEncoder(PrecomputedVectors(model.dim, space)).fitted_on_vectors(
        unit_rows(raw), isosent.Whitening(n_components=64)
    )
    whitened = model.fitted(sample, isosent.Whitening(n_components=64))
    expected = unit_rows(whitened.encode(texts))
    expected_small = unit_rows(small.transform(unit_rows(model.encode(texts)).astype(np.float32)))
    is_good = True
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        whitened.save(Path(folder) / "whitened")
        small.save(Path(folder) / "small")
        reference = sys.argv[1] if len(sys.argv) > 1 else "wordllama"
        server = stack.enter_context(running("serve", f"{folder}/whitened", f"base={reference}"))
        tei_server = stack.enter_context(running("serve", f"base={reference}"))  # its default is what /embed gives
        proxy = ["proxy", "-m", f"small={folder}/small", "--upstream-model", "base"]
        proxies = {
            "proxy of openai": stack.enter_context(running(*proxy, "--upstream", f"{server}/v1")),
            "proxy of tei": stack.enter_context(running(*proxy, "--upstream", tei_server, "--dialect", "tei")),
        }
        for package, (use, is_openai) in CLIENTS.items():
            try:
                client = f"{package} {version(package)}"
            except PackageNotFoundError:
                print(json.dumps({"client": package, "skipped": "not installed"}), flush=True)
                continue
            places = [("server", server, "whitened", expected)]
            if is_openai:
                places += [(place, url, "small", expected_small) for place, url in proxies.items()]
            for place, url, name, vectors in places:
                checks = Checks(client, place)
                try:
                    use(url, name, texts, vectors, checks)
                except Exception as error:  # a client that refuses its arguments
                    checks("make", partial(throw, error))
                is_good &= checks.is_good
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
