"""The server under load: throughput against the library, a small FastAPI server and infinity; answers; memory.

throughput [MODEL [INFINITY]]  32 clients with 1, 16 and 256 texts a request, in turns with calls of the library; p50
                    and p99 of one text; if MODEL is a transformer, the same for FastAPI + sentence-transformers and
                    for infinity, if the path of its program is given
soak MINUTES        1 to 64 clients with 1 to 256 texts of mixed lengths, some of whom hang up: every answer is compared
                    with the library, memory is written down every minute, and in the last minute the server is killed
                    and started again
Needs the extra serve, and for the peer fastapi and sentence-transformers. Prints JSON lines.
Usage: python bench/server.py throughput wordllama
"""

import base64
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import isosent

N_CLIENTS, SECONDS = 32, 8
PEER = """
import base64, sys
import numpy as np, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

app, model = FastAPI(), SentenceTransformer(sys.argv[1], device="cpu")

class Body(BaseModel):
    input: str | list[str]
    model: str = ""
    encoding_format: str = "float"

@app.post("/v1/embeddings")
def embeddings(body: Body):
    texts = [body.input] if isinstance(body.input, str) else body.input
    vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    rows = vectors.tolist()
    if body.encoding_format == "base64":
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": body.model, "usage": {"prompt_tokens": 0, "total_tokens": 0}}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


def show(**facts):
    print(json.dumps(facts), flush=True)


def sentences(n=20_000):
    """Sentences of the STS benchmark, if ISOSENT_DATA is there, else the sample; they repeat."""
    folder = os.environ.get("ISOSENT_DATA")
    texts = isosent.demo_texts()
    if folder:
        lines = (Path(folder) / "stsbenchmark" / "sts-train.csv").read_text("utf-8").splitlines()
        texts = list(dict.fromkeys(part for line in lines for part in line.split("\t")[5:7]))
    return [texts[i % len(texts)] for i in range(n)]


class Connection:
    """A keep-alive connection that sends bodies as they are: a client that costs little."""

    def __init__(self, port, path="/v1/embeddings"):
        self.port, self.path, self.sock = port, path, None

    def send(self, body):
        if self.sock is None:
            self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=120)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def receive(self):
        data = bytearray()
        self.sock.settimeout(120)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = bytes(data[:end]).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(data) < end + 4 + length:
            data += self._more()
        return int(head.split(b" ", 2)[1]), bytes(data[end + 4 :])

    def _more(self):
        part = self.sock.recv(1 << 20)
        if not part:
            raise ConnectionError("closed")
        return part

    def close(self):
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def body_of(texts):
    return json.dumps({"input": texts, "model": "model", "encoding_format": "base64"}).encode()


def vectors_of(content):
    rows = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in json.loads(content)["data"]]
    return np.array(rows)


def start_server(reference, port=0):
    command = [sys.executable, "-c", "from isosent.cli.main import main; main()", "serve", f"model={reference}"]
    process = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        facts = json.loads(line)
        if facts["event"] == "listening":
            break
    threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
    return process, facts["port"]


def load(port, bodies, n_clients, seconds, results):
    """Clients in one process, a thread each; the requests that were answered and the seconds each took."""
    times, begun = [], time.perf_counter()
    stop = begun + seconds

    def client(number):
        connection, turn = Connection(port), number
        while time.perf_counter() < stop:
            started = time.perf_counter()
            connection.send(bodies[turn % len(bodies)])
            status, _ = connection.receive()
            assert status == 200, status
            times.append(time.perf_counter() - started)
            turn += n_clients
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((times, time.perf_counter() - begun))


def measured(port, texts, n_texts, n_clients=N_CLIENTS, seconds=SECONDS):
    """Texts a second, and the percentiles of a request, with clients in a process of their own."""
    bodies = [body_of(texts[start : start + n_texts]) for start in range(0, min(len(texts), 64 * n_texts), n_texts)]
    results = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(
        target=load, args=(port, bodies, n_clients, seconds, results)
    )
    process.start()
    times, elapsed = results.get()
    process.join()
    p50, p99 = np.quantile(times, [0.5, 0.99])
    return len(times) * n_texts / elapsed, round(1e3 * p50, 2), round(1e3 * p99, 2)


def library_rate(model, texts, n_texts, seconds=SECONDS):
    """Texts a second of calls with as many texts as 32 clients send at once."""
    n_done, started, block = 0, time.perf_counter(), min(len(texts), N_CLIENTS * n_texts)
    while time.perf_counter() - started < seconds:
        start = n_done % (len(texts) - block + 1)
        model.encode(texts[start : start + block], show_progress_bar=False, normalize_embeddings=True)
        n_done += block
    return n_done / (time.perf_counter() - started)


def throughput(reference="wordllama", infinity=None):
    texts, model = sentences(), isosent.load(reference)
    model.encode(texts[:2000])
    process, port = start_server(reference)
    try:
        measured(port, texts, 16, seconds=2)
        show(model=reference, server="isosent", clients=1, texts=1, **latency(measured(port, texts, 1, 1, 4)))
        for n_texts in (1, 16, 256):
            library = library_rate(model, texts, n_texts)
            rate, p50, p99 = measured(port, texts, n_texts)
            facts = {"per_s": round(rate), "library_per_s": round(library), "ratio": round(rate / library, 3)}
            show(model=reference, server="isosent", clients=N_CLIENTS, texts=n_texts, **facts, p50_ms=p50, p99_ms=p99)
    finally:
        stop(process)
    if reference.startswith("hf:"):
        folder = reference.removeprefix("hf:")
        peer("FastAPI", reference, texts, [sys.executable, "-c", PEER, folder])
        if infinity:
            options = ["v2", "--model-id", folder, "--engine", "torch", "--device", "cpu", "--no-bettertransformer"]
            options += ["--url-prefix", "/v1", "--served-model-name", "model", "--host", "127.0.0.1", "--port"]
            peer("infinity", reference, texts, [infinity, *options])


def peer(name, reference, texts, command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, str(port)], stdout=subprocess.DEVNULL, env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    try:
        wait_for(port)
        peer_rates(name, reference, port, texts)
    finally:
        stop(process)


def peer_rates(name, reference, port, texts):
    measured(port, texts, 16, seconds=2)
    show(model=reference, server=name, clients=1, texts=1, **latency(measured(port, texts, 1, 1, 4)))
    for n_texts in (1, 16, 256):
        rate, p50, p99 = measured(port, texts, n_texts)
        show(
            model=reference,
            server=name,
            clients=N_CLIENTS,
            texts=n_texts,
            per_s=round(rate),
            p50_ms=p50,
            p99_ms=p99,
        )


def latency(figures):
    return {"per_s": round(figures[0]), "p50_ms": figures[1], "p99_ms": figures[2]}


def wait_for(port, seconds=120):
    stop_at = time.monotonic() + seconds
    while time.monotonic() < stop_at:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the server does not listen")


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def resident_mb(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1e3, 1)


def soak(minutes, reference="wordllama"):
    """Mixed load; every answer is compared with the library's."""
    texts = sentences(4000)
    rng = random.Random(0)
    texts += [" ".join(rng.choices(texts, k=rng.choice([2, 8, 40]))) for _ in range(1000)]
    rng.shuffle(texts)
    with tempfile.TemporaryDirectory() as folder:
        model = isosent.load(reference).fitted(texts, isosent.Whitening(n_components=128))
        model.save(folder)
        process, port = start_server(folder)
        expected = model.encode(texts, normalize_embeddings=True)
        tolerance = 2e-6 if reference.startswith("hf:") else 1e-6
        counts, lock = dict.fromkeys(("answered", "hung_up", "wrong", "closed", "refused"), 0), threading.Lock()
        finished = threading.Event()

        def count(name):
            with lock:
                counts[name] += 1

        def client(number):
            mine, connection = random.Random(number), Connection(port)
            while not finished.is_set():
                start = mine.randrange(len(texts))
                chosen = texts[start : start + mine.choice([1, 1, 1, 4, 16, 64, 256])]
                try:
                    connection.send(body_of(chosen))
                    if mine.random() < 0.05:
                        connection.close()
                        count("hung_up")
                        continue
                    status, content = connection.receive()
                except OSError:  # the client is told, by a closed connection
                    connection.close()
                    count("closed")
                    time.sleep(0.2)
                    continue
                if status != 200:
                    count("refused")
                    continue
                error = np.abs(vectors_of(content) - expected[start : start + len(chosen)]).max()
                count("answered" if error <= tolerance else "wrong")
                time.sleep(mine.choice([0, 0, 0.01, 0.1]))

        threads = []
        try:
            for minute in range(int(minutes)):
                wanted = 64 if minute else 1
                while len(threads) < wanted:
                    threads.append(threading.Thread(target=client, args=(len(threads),)))
                    threads[-1].start()
                time.sleep(30)
                if minute + 1 == int(minutes):
                    process.kill()
                    process.wait()
                    process, _ = start_server(folder, port)
                time.sleep(30)
                show(minute=minute + 1, clients=len(threads), resident_mb=resident_mb(process.pid), **counts)
        finally:
            finished.set()
            for thread in threads:
                thread.join()
            stop(process)


if __name__ == "__main__":
    {"throughput": throughput, "soak": soak}[sys.argv[1]](*sys.argv[2:])
