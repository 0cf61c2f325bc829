"""The encoder of an embedding API against the plain `openai` client with a thread pool, and its memory.

speed TEXTS      texts per second of both, in turns, at a server that answers 50 ms after it has a request, with as many
                 texts per request (256) and requests at the same time (16, which isosent finds by itself); the
                 processor time of each, of which that of the server is no part
memory N N...    the highest memory of a process that encodes so many texts into a file, with a cache
The server answers with random vectors of 384 dimensions, in base64. Needs openai. Prints JSON lines.
Usage: python bench/api.py speed 20000
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import isosent

LATENCY_S, DIM = 0.05, 384
N_TEXTS, N_REQUESTS, ROUNDS = 256, 16, 5
ROW = base64.b64encode(np.random.default_rng(0).standard_normal(DIM).astype("<f4")).decode()
CLIENTS = ("openai", "isosent", "isosent with a cache")


async def answer(reader, writer):
    """Answer the requests of a connection, each after the latency; a vector is of the number of a text."""
    rng = np.random.default_rng(0)
    rows = [base64.b64encode(row).decode() for row in rng.standard_normal((N_TEXTS, DIM)).astype("<f4")]
    parts = [f'{{"object":"embedding","index":{number},"embedding":"{row}"}}' for number, row in enumerate(rows)]
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        n_texts = len(json.loads(await reader.readexactly(length))["input"])
        await asyncio.sleep(LATENCY_S)
        usage = f'"usage":{{"prompt_tokens":{n_texts},"total_tokens":{n_texts}}}'
        body = f'{{"object":"list","model":"m","data":[{",".join(parts[:n_texts])}],{usage}}}'.encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()


async def serve():
    async def connected(reader, writer):
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving():
    """The server in another process; its address."""
    process = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def by_openai(url, texts, folder):
    """What people write: a pool of threads, each with a block of texts."""
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)

    def embed(block):
        answer = client.embeddings.create(model="m", input=block)
        return np.array([row.embedding for row in answer.data], np.float32)

    blocks = [texts[start : start + N_TEXTS] for start in range(0, len(texts), N_TEXTS)]
    with ThreadPoolExecutor(N_REQUESTS) as pool:
        return np.concatenate(list(pool.map(embed, blocks)))


def by_isosent(url, texts, folder):
    return isosent.load(f"api:{url}", model="m", cache=folder).encode(texts, show_progress_bar=False)


def speed(n_texts):
    texts = [f"This is text number {number}, of about the length of a sentence." for number in range(n_texts)]
    with serving() as url, tempfile.TemporaryDirectory() as folder:
        seconds = {name: [] for name in CLIENTS}
        for turn in range(ROUNDS + 1):
            for name in CLIENTS:
                cache = str(Path(folder) / str(turn)) if name.endswith("cache") else "none"
                client = by_openai if name == "openai" else by_isosent
                began, began_cpu = time.perf_counter(), time.process_time()
                vectors = client(url, texts, cache)
                seconds[name].append((time.perf_counter() - began, time.process_time() - began_cpu))
                assert vectors.shape == (n_texts, DIM)
        for name, measured in seconds.items():
            wall_s, cpu_s = (float(np.median(each)) for each in zip(*measured[1:], strict=True))  # the first warms up
            print(
                json.dumps(
                    {
                        "client": name,
                        "texts_per_s": round(n_texts / wall_s),
                        "cpu_s_per_10k": round(cpu_s / n_texts * 1e4, 2),
                    }
                )
            )


def memory(numbers):
    for n_texts in numbers:
        with serving() as url, tempfile.TemporaryDirectory() as folder:
            with (Path(folder) / "texts.txt").open("w") as file:
                file.writelines(f"This is text number {number}.\n" for number in range(n_texts))
            code = "from isosent.cli.main import main; main()"
            arguments = ["encode", "texts.txt", "-m", f"api:{url}?model=m&cache=cache", "-o", "vectors.npy"]
            began = time.perf_counter()
            process = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
            usage = os.wait4(process.pid, 0)[2]
            print(
                json.dumps(
                    {
                        "texts": n_texts,
                        "highest_mb": round(usage.ru_maxrss / 1e3),
                        "seconds": round(time.perf_counter() - began, 1),
                        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
                    }
                )
            )


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["help"]
    if command == "serve":
        asyncio.run(serve())
    elif command == "speed":
        speed(int(rest[0]))
    elif command == "memory":
        memory(map(int, rest))
    else:
        print(__doc__)
