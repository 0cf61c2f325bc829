"""An embedding API on loopback: it answers as its path says, counts what it was asked, and misbehaves as it is told."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import numpy as np

DIM = 24


class Answer(NamedTuple):
    status: int
    content: object = None
    headers: dict | None = None


class FakeApi:
    """`misbehave(body, n)` is called with each request and its number; what it returns is the answer, if not None."""

    def __init__(self, dim=DIM):
        self.dim, self.seed, self.noise = dim, 0, 0.0
        self.requests, self.misbehave = [], lambda body, n: None
        self._lock = threading.Lock()
        self.n_running = self.most_running = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self):
        return [body for _, _, body in self.requests]

    @property
    def texts(self):
        """Every text of every request, in the order in which they came."""
        return [text for body in self.bodies for text in texts_in(body)]

    @property
    def answered(self):
        """Texts that were answered, and so paid for."""
        return [text for texts in self.paid for text in texts]

    def vector_of(self, text, side="", dim=None):
        digest = hashlib.sha256(f"{self.seed}{side}{text}".encode()).digest()
        rng = np.random.default_rng(list(digest))
        row = rng.standard_normal(self.dim)[:dim] + self.noise * np.random.default_rng().standard_normal(self.dim)[:dim]
        return row.astype(np.float32)

    def rows(self, body):
        side = body.get("input_type") or body.get("task") or ""
        dim = body.get("dimensions") or body.get("output_dimension")
        if "requests" in body:
            side, dim = body["requests"][0].get("taskType", ""), body["requests"][0].get("outputDimensionality")
        return [self.vector_of(text, side, dim) for text in texts_in(body)]

    def usual(self, path, body):
        rows = self.rows(body)
        listed = [row.tolist() for row in rows]
        n_tokens = sum(len(text) for text in texts_in(body))
        if path.endswith(":batchEmbedContents"):
            return {"embeddings": [{"values": row} for row in listed]}
        if path.endswith("/v2/embed"):
            return {"embeddings": {"float": listed}, "meta": {"billed_units": {"input_tokens": n_tokens}}}
        if path.endswith("/api/embed"):
            return {"embeddings": listed, "prompt_eval_count": n_tokens}
        if path.endswith("/embed"):
            return listed
        if body.get("encoding_format") == "base64":
            listed = [base64.b64encode(row.tobytes()).decode() for row in rows]
        data = [{"index": number, "embedding": row} for number, row in enumerate(listed)]
        return {"data": data[::-1], "usage": {"total_tokens": n_tokens}}  # in another order, as is allowed

    def answer(self, path, headers, body):
        with self._lock:
            self.requests.append((path, headers, body))
            number = len(self.requests)
            self.n_running += 1
            self.most_running = max(self.most_running, self.n_running)
        try:
            answer = self.misbehave(body, number)
            if answer is None:
                with self._lock:
                    self.paid.append(texts_in(body))
                answer = Answer(200, self.usual(path, body))
            return answer
        finally:
            with self._lock:
                self.n_running -= 1

    @contextmanager
    def running(self, port=0):
        api, self.paid = self, []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, content, headers = api.answer(self.path, dict(self.headers), body)
                sent = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **(headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # a client that hung up
                pass

        with Server(("127.0.0.1", port), Handler) as server:
            self.port = server.server_port
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def texts_in(body):
    if "requests" in body:
        return [request["content"]["parts"][0]["text"] for request in body["requests"]]
    return next(body[name] for name in ("input", "texts", "inputs") if name in body)
