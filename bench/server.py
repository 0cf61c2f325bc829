"""The server under load: throughput against the library, a small FastAPI server and infinity; answers; memory.

throughput [MODEL [INFINITY]]  32 clients with 1, 16 and 256 texts a request, in turns with calls of the library; p50
                    and p99 of one text; if MODEL is a transformer, the same for FastAPI + sentence-transformers and
                    for infinity, if the path of its program is given
workers [MODEL]     32 clients with one text a request, in turns at a bare uvicorn that says hello, one process and
                    --workers 2: requests per second, processor time per request, p50 and p99, memory of each process
soak MINUTES        4 to 64 clients of a model, an index and a proxy, with 1 to 256 texts of mixed lengths, some of whom
                    hang up: every answer is compared with the library, memory and p99 are written down every minute,
                    and in the last minute server and proxy are killed and started again
kills N             clients of a proxy, while the proxy and the server behind it are killed in turn, N times in all
searches ROWS ROUNDS  32 clients search an index of so many rows as soon as its server listens, when nothing of it has
                    been read; every hit is compared with the library's; the server is started again for each round
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
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import closing
from pathlib import Path

import numpy as np

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.jobs.moments import read_moments
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.search import Index

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

HELLO = """
import sys, uvicorn

async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})

options = {"log_level": "error", "http": "h11", "loop": "asyncio", "access_log": False, "lifespan": "off"}
uvicorn.run(app, port=int(sys.argv[1]), **options)
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


def start(arguments, port=0):
    """Start a server or a proxy; its process and its port."""
    command = [sys.executable, "-c", "from isosent.cli.main import main; main()", *arguments]
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
    process, port = start(["serve", f"model={reference}"])
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


def workers(reference="wordllama", rounds=3, seconds=4):
    """A bare uvicorn, one process and two, in turns, with the same clients."""
    texts = sentences()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hello = subprocess.Popen([sys.executable, "-c", HELLO, str(port)])
    servers = {"hello": (hello, port)}
    try:
        wait_for(port)
        for n_workers in (1, 2):
            servers[f"{n_workers} processes"] = start(["serve", f"model={reference}", "--workers", str(n_workers)])
        for _, port in servers.values():
            measured(port, texts, 1, seconds=1)
        for _ in range(int(rounds)):
            for name, (process, port) in servers.items():
                before = {pid: processor_s(pid) for pid in family(process.pid)}
                rate, p50, p99 = measured(port, texts, 1, seconds=seconds)
                used = sum(processor_s(pid) - begun for pid, begun in before.items())
                facts = {"per_s": round(rate), "processor_ms": round(1e3 * used / (rate * seconds), 3)}
                show(model=reference, server=name, **facts, p50_ms=p50, p99_ms=p99)
        for name, (process, _) in servers.items():
            show(server=name, memory_mb=[memory_mb(pid) for pid in family(process.pid)])
    finally:
        for process, _ in servers.values():
            stop(process)


def family(pid):
    """A process and its children that compute; not the one that multiprocessing starts to clean up."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(each) for each in children if b"resource_tracker" not in command_of(each))]


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def processor_s(pid):
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid):
    """Proportional and private memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kb = {line.split()[0].rstrip(":"): int(line.split()[1]) for line in lines}
    return {"pss": round(kb["Pss"] / 1e3), "private": round((kb["Private_Clean"] + kb["Private_Dirty"]) / 1e3)}


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


class Soak:
    """A server with a model and an index, a proxy whose API is that server, and what each must answer."""

    def __init__(self, folder, reference):
        self.texts = long_and_short()
        plain = isosent.load(reference)
        raw = plain.encode(self.texts, normalize_embeddings=True)
        fitted = plain.fitted(self.texts, isosent.Whitening(n_components=128))
        fitted.save(folder / "fitted")
        index = Index.create(self.texts, fitted, folder=folder / "index")
        behind = SentenceEncoder(PrecomputedVectors.of_space(plain.dim, None, "plain"))
        mapped = behind.fitted_on_vectors(raw, isosent.Whitening(n_components=64))
        mapped.save(folder / "mapped")
        self.vectors = {
            "/v1/embeddings": fitted.encode(self.texts, normalize_embeddings=True),
            "proxy": unit_rows(mapped.transform(raw)),
        }
        self.scores = index.search(self.texts, k=5).scores
        self.tolerance = 1e-5 if reference.startswith("hf:") else 2e-6
        served = [f"plain={reference}", f"model={folder / 'fitted'}", f"index={folder / 'index'}"]
        self.serve = ["serve", *served]
        self.server, self.port = start(self.serve)
        upstream = ["--upstream", f"http://127.0.0.1:{self.port}/v1", "--upstream-model", "plain"]
        kept = ["--cache", str(folder / "vectors.sqlite"), "--learn", str(folder / "seen.safetensors")]
        self.proxying = ["proxy", *upstream, "-m", f"model={folder / 'mapped'}", *kept]
        self.proxy, self.proxy_port = start(self.proxying)

    def restart(self):
        """Kill both, and start them again."""
        for process in (self.proxy, self.server):
            process.kill()
            process.wait()
        self.server, _ = start(self.serve, self.port)
        self.proxy, _ = start(self.proxying, self.proxy_port)

    def request(self, kind, start, n_texts):
        """The body of a request, and whether an answer to it is right."""
        texts = self.texts[start : start + n_texts]
        if kind == "/search":
            body = json.dumps({"query": texts[0], "k": 5, "index": "index"}).encode()
            return body, lambda content: self._is_close(scores_of(content), self.scores[start])
        expected = self.vectors[kind][start : start + len(texts)]
        return body_of(texts), lambda content: self._is_close(vectors_of(content), expected)

    def _is_close(self, found, expected):
        return found.shape == expected.shape and np.abs(found - expected).max() <= self.tolerance


def scores_of(content):
    return np.array([hit["score"] for hit in json.loads(content)["hits"]])


def long_and_short():
    texts, rng = sentences(4000), random.Random(0)
    texts += [" ".join(rng.choices(texts, k=rng.choice([2, 8, 40]))) for _ in range(1000)]
    rng.shuffle(texts)
    return list(dict.fromkeys(texts))


def soak(minutes, reference="wordllama"):
    """Mixed load on a server, an index and a proxy; every answer is compared with the library's."""
    with tempfile.TemporaryDirectory() as name:
        made = Soak(Path(name), reference)
        kinds = ("/v1/embeddings", "/v1/embeddings", "/search", "proxy")
        tallies = {kind: dict.fromkeys(("answered", "hung_up", "wrong", "closed", "refused"), 0) for kind in kinds}
        times = {kind: deque(maxlen=20_000) for kind in kinds}
        lock, finished = threading.Lock(), threading.Event()

        def client(number):
            mine, kind = random.Random(number), kinds[number % len(kinds)]
            is_proxy = kind == "proxy"
            connection = Connection(made.proxy_port if is_proxy else made.port, "/v1/embeddings" if is_proxy else kind)
            while not finished.is_set():
                body, is_right = made.request(
                    kind, mine.randrange(len(made.texts)), mine.choice([1, 1, 1, 4, 16, 64, 256])
                )
                outcome, seconds = asked(connection, body, is_right, mine.random() < 0.05)
                with lock:
                    tallies[kind][outcome] += 1
                    times[kind].append(seconds)
                time.sleep(0.2 if outcome == "closed" else mine.choice([0, 0, 0.01, 0.1]))

        threads = []
        try:
            for minute in range(int(minutes)):
                while len(threads) < (64 if minute else 4):
                    threads.append(threading.Thread(target=client, args=(len(threads),)))
                    threads[-1].start()
                time.sleep(30)
                if minute + 1 == int(minutes):
                    made.restart()
                time.sleep(30)
                memory = {"server_mb": resident_mb(made.server.pid), "proxy_mb": resident_mb(made.proxy.pid)}
                p99 = {kind: round(1e3 * float(np.quantile(list(values), 0.99)), 1) for kind, values in times.items()}
                show(minute=minute + 1, clients=len(threads), **memory, p99_ms=p99, **tallies)
        finally:
            finished.set()
            for thread in threads:
                thread.join()
            stop(made.proxy)
            stop(made.server)


def kills(n_kills, reference="wordllama"):
    """Kill the proxy and its server in turn, at random times under load; the cache and the moments must stay valid."""
    draw, wrong = random.Random(0), 0
    counts = dict.fromkeys(("answered", "hung_up", "wrong", "closed", "refused"), 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = Soak(folder, reference)
        try:
            for number in range(int(n_kills)):
                finished, lock = threading.Event(), threading.Lock()

                def client(seed, finished=finished, lock=lock):
                    mine, connection = random.Random(seed), Connection(made.proxy_port)
                    while not finished.is_set():
                        body, is_right = made.request(
                            "proxy", mine.randrange(len(made.texts)), mine.choice([1, 16, 64])
                        )
                        outcome, _ = asked(connection, body, is_right, False)
                        with lock:
                            counts[outcome] += 1
                        time.sleep(0.05 if outcome == "closed" else 0)

                threads = [threading.Thread(target=client, args=(8 * number + each,)) for each in range(4)]
                for thread in threads:
                    thread.start()
                n_before = counts["answered"]
                while counts["answered"] < n_before + len(threads):
                    time.sleep(0.01)
                time.sleep(draw.random())
                (made.proxy if number % 2 else made.server).kill()
                time.sleep(0.1)
                wrong += not is_whole(folder)
                made.restart()
                finished.set()
                for thread in threads:
                    thread.join()
        finally:
            stop(made.proxy)
            stop(made.server)
        show(kills=int(n_kills), damaged=wrong, **counts)


def searches(n_rows, n_rounds, dim=16, k=100, n_requests=8):
    """Clients that search as soon as the server listens, for rows like a row."""
    n_rows, n_rounds = int(n_rows), int(n_rounds)
    vectors = np.random.default_rng(0).standard_normal((n_rows, dim)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create([f"text {row}" for row in range(n_rows)], vectors=vectors, folder=folder, kind="flat")
        expected = {}
        for round_ in range(n_rounds):
            draw = np.random.default_rng(round_)
            rows = draw.integers(n_rows, size=(N_CLIENTS, n_requests)).tolist()
            for row in (row for of_client in rows for row in of_client if row not in expected):
                expected[row] = index.more_like([row], k).to_arrow().drop(["query"]).to_pylist()
            counts, times = dict.fromkeys(("right", "wrong", "errors"), 0), []

            def client(of_client, port, counts=counts, times=times):
                connection = Connection(port, "/search")
                for row in of_client:
                    begun = time.perf_counter()
                    try:
                        connection.send(json.dumps({"like": row, "k": k}).encode())
                        status, content = connection.receive()
                    except OSError:
                        status, connection = 0, Connection(port, "/search")
                    times.append(time.perf_counter() - begun)
                    is_right = status == 200 and json.loads(content)["hits"] == expected[row]
                    counts["right" if is_right else "wrong" if status == 200 else "errors"] += 1
                connection.close()

            process, port = start(["serve", f"index={folder}"])
            try:
                threads = [threading.Thread(target=client, args=(of_client, port)) for of_client in rows]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            finally:
                stop(process)
            p50, p99 = np.quantile(times, [0.5, 0.99])
            show(rows=n_rows, clients=N_CLIENTS, **counts, p50_ms=round(1e3 * p50, 1), p99_ms=round(1e3 * p99, 1))


def is_whole(folder):
    """Whether what a proxy keeps can be read: its moments, and its cache."""
    if (folder / "seen.safetensors").exists():
        read_moments(folder / "seen.safetensors")
    with closing(sqlite3.connect(folder / "vectors.sqlite")) as cache:
        return cache.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def asked(connection, body, is_right, hangs_up):
    """What came of a request, and the seconds that it took."""
    started = time.perf_counter()
    try:
        connection.send(body)
        if hangs_up:
            connection.close()
            return "hung_up", 0.0
        status, content = connection.receive()
    except OSError:  # the client is told, by a closed connection
        connection.close()
        return "closed", 0.0
    seconds = time.perf_counter() - started
    if status != 200:
        return "refused", seconds
    return ("answered" if is_right(content) else "wrong"), seconds


if __name__ == "__main__":
    {"throughput": throughput, "workers": workers, "soak": soak, "kills": kills, "searches": searches}[sys.argv[1]](
        *sys.argv[2:]
    )
