"""Attack a server and a proxy, and check what docs/server.md promises: short answers, bounded memory, no crash.

slow_writers: requests that never end, by more clients than there are connections. slow_readers: answers that nobody
reads. bombs: small files that unpack to much, for the server and for the commands. names: file names that no file can
have. abandoned: long work whose clients hang up, while others ask. cookies: an upstream that opens sessions. keys:
wrong keys, and keys of any bytes. traffic: all of it in random order for N minutes, with flat memory.
Prints a JSON line for each attack; exit code 1 if a promise is broken. Needs Linux, and the extras serve and search.
Usage: python bench/attack.py [NAME ...] [--minutes N] [--seed S] [--quick]
"""

import argparse
import gzip
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY, UPSTREAM_KEY = "a-key-of-16-letters", "good-key-of-16-letters"
MAIN = [sys.executable, "-c", "from isosent.cli.main import main; main()"]
TIMEOUT_S, MOST_CONNECTIONS = 2, 64
MOST_MIB = 300  # that an attack may add to the memory of the server: 64 of unread answers, and what it computes with
COMMAND_MIB = 700  # of a command that refuses a bomb; importing pyarrow, numba and FAISS takes 200
WAIT_S = 60  # for what must happen at some time


class Target:
    """A server or a proxy in a process of its own."""

    def __init__(self, *arguments, **environment):
        command = [*MAIN, *map(str, arguments), "--port", "0", "--request-timeout", str(TIMEOUT_S)]
        command += ["--max-connections", str(MOST_CONNECTIONS)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
        self.failures = []

    def listen(self):
        """Wait until it does."""
        lines = iter(self.process.stderr)
        facts = next(facts for facts in map(json.loads, lines) if facts["event"] == "listening")
        self.port = facts["port"]
        threading.Thread(target=self._watch, args=[lines], daemon=True).start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=WAIT_S)
        self.client.headers["Authorization"] = f"Bearer {KEY}"

    def _watch(self, lines):
        for line in lines:  # the only lines that tell of a defect
            if '"event": "failed"' in line or "Traceback" in line:
                self.failures.append(line.strip()[:300])

    def memory(self, name="VmRSS"):
        """MiB, now (VmRSS) or at most (VmHWM)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) >> 10
        return 0

    def forget_peak(self):
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu_s(self):
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def is_well(self):
        """Whether an honest client gets its answer."""
        with suppress(httpx.HTTPError):
            return self.client.post("/embed", json={"inputs": ["a dog"]}).status_code == 200
        return False

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def send(self, path, body, *, length=None, key=KEY, kind="application/json"):
        """Send a request or a part of it; the socket."""
        sock = self.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n".encode()
        key = key if isinstance(key, bytes) else key.encode()
        head += b"Authorization: Bearer " + key + b"\r\n" + f"Content-Length: {length or len(body)}\r\n\r\n".encode()
        with suppress(OSError):  # it may be refused before it is whole
            sock.sendall(head + body)
        return sock

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_until(is_so):
    stop = time.monotonic() + WAIT_S
    while time.monotonic() < stop:
        if is_so():
            return True
        time.sleep(0.1)
    return False


def is_closed(sock):
    """Whether the other side has closed a connection; what it has sent is left unread."""
    sock.setblocking(False)
    try:
        sock.recv(1, socket.MSG_PEEK)
        # an answer lies before its end: only a byte that is sent tells whether anybody is there
        sock.send(b"\r")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


# -- attacks: each gives what it saw, and what was broken ------------------------------------------------------------


def slow_writers(server, proxy, rng, is_quick):
    """Half-open connections, and requests that never end, by more clients than there are places."""
    starts = (b"", b"POST /embed HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 5000)
    socks = [server.connect() for _ in range(MOST_CONNECTIONS // 2)]
    for sock in socks:
        sock.sendall(rng.choice(starts))
    bodies = [server.send("/embed", b'{"inputs": [', length=100_000) for _ in range(MOST_CONNECTIONS)]
    broken = [] if wait_until(server.is_well) else ["an honest client got no answer"]
    socks += bodies
    if not wait_until(lambda: all(map(is_closed_reading, socks))):
        broken.append("a connection that never ends was not closed")
    for sock in socks:
        sock.close()
    return {"connections": len(socks)}, broken


def is_closed_reading(sock):
    """Whether the other side has closed a connection, after what it has sent was read."""
    sock.setblocking(False)
    try:
        while sock.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def slow_readers(server, proxy, rng, is_quick):
    """Answers of 5 to 10 MB that nobody reads."""
    before = server.memory()
    server.forget_peak()
    body = json.dumps({"inputs": [f"text {number}" for number in range(2048)]}).encode()
    socks = [server.send("/embed", body) for _ in range(20 if is_quick else 60)]
    broken = [] if wait_until(server.is_well) else ["an honest client got no answer"]
    if not wait_until(lambda: all(map(is_closed, socks))):
        broken.append("an answer that nobody reads was kept")
    for sock in socks:
        sock.close()
    return grown(server, before, broken, readers=len(socks))


def grown(target, before, broken, **facts):
    growth = target.memory("VmHWM") - before
    if growth > MOST_MIB:
        broken.append(f"the memory grew by {growth} MiB")
    return {"grew_mib": growth, **facts}, broken


def bombs_of(folder, is_quick):
    """Small files that unpack to much: path by name."""
    n = 1_000_000
    big = "".join(map(chr, np.random.default_rng(0).integers(33, 126, 3_000_000)))
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([big]))
    same = pa.table({"text": pa.array(["hello world"]).take(pa.array(np.zeros(n, np.int32)))})
    rows = folder / "rows.parquet"
    with pq.ParquetWriter(rows, same.schema) as writer:
        for _ in range(20 if is_quick else 100):
            writer.write_table(same, row_group_size=n)
    pq.write_table(pa.table({"text": repeated}), folder / "dictionary.parquet", store_schema=False)
    zeros = pa.table({"text": ["a" * (8 << 20) + str(number) for number in range(4 if is_quick else 24)]})
    pq.write_table(zeros, folder / "packed.parquet", compression="zstd", use_dictionary=False)
    offsets = pa.array(np.arange(1001, dtype=np.int32) * 1000)
    tags = pa.ListArray.from_arrays(offsets, repeated)
    table = pa.table({"text": [f"text {number}" for number in range(1000)], "tags": tags})
    pq.write_table(table, folder / "nested.parquet", store_schema=False)
    n_numbers = 50_000_000
    numbers = pa.ListArray.from_arrays(pa.array([0, 1, n_numbers], pa.int32()), pa.array(np.zeros(n_numbers, "f4")))
    pq.write_table(pa.table({"vector": numbers}), folder / "vectors.parquet")
    columns = ",".join(f"c{number}" for number in range(300_000))
    (folder / "columns.csv").write_text(f"{columns}\n{columns}\n")
    first = json.dumps({f"c{number}": "" for number in range(100_000)})
    (folder / "cells.jsonl").write_text(first + "\n" + "{}\n" * 700_000)
    (folder / "nested.jsonl").write_text('{"a":' * 400_000 + "1" + "}" * 400_000 + "\n")
    (folder / "deep.jsonl").write_text('{"a":' * 900 + '"b"' + "}" * 900 + "\n")
    (folder / "quote.csv").write_text('text\n"' + "a\n" * 1_900_000)
    (folder / "packed.csv").write_bytes(gzip.compress(b"text\n" + b"a\n" * (100 << 20)))
    (folder / "lines.txt").write_text("\n" * 3_900_000)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 256), }"
    (folder / "shape.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    (folder / "dim.fvecs").write_bytes((1 << 30).to_bytes(4, "little") + b"\0" * 64)
    return {path.name: path for path in sorted(folder.iterdir())}


def bombs(server, proxy, rng, is_quick):
    """Files that unpack to much, tried on the web page and read by commands."""
    with tempfile.TemporaryDirectory() as folder:
        files, broken, before = bombs_of(Path(folder), is_quick), [], server.memory()
        server.forget_peak()
        statuses = {}
        for name, path in files.items():
            answer = server.client.post("/try/file", params={"name": name}, content=path.read_bytes())
            statuses[name] = answer.status_code
            # the texts of this table are small; the lists beside them, which are not, are left unread
            expected = range(200, 201) if name == "nested.parquet" else range(400, 500)
            if answer.status_code not in expected:
                broken.append(f"/try/file answered {answer.status_code} to {name}")
        commands = {
            "rows.parquet": ["duplicates"],  # encode would write a hundred million vectors, batch by batch
            "dictionary.parquet": ["index", "-m", "wordllama", "-o", "out"],
            "packed.parquet": ["duplicates"],
            "nested.parquet": ["index", "-m", "wordllama", "-o", "out"],
            "vectors.parquet": ["inspect"],
            "cells.jsonl": ["index", "-m", "wordllama", "-o", "out"],
            "shape.npy": ["inspect"],
        }
        peaks = {}
        for name in ["nested.parquet"] if is_quick else commands:
            command, *options = commands[name]
            code, error, peak = run([command, files[name], *options], folder)
            peaks[name] = peak
            if code != 2 or len(error.strip().splitlines()) > 2 or peak > COMMAND_MIB:
                broken.append(f"isosent {command} {name}: exit {code}, {peak} MiB: {error[-300:]}")
    return grown(server, before, broken, statuses=statuses, command_mib=peaks)


def run(arguments, folder):
    """Run a command; its exit code, its errors and its peak of memory."""
    code = "import re\nfrom isosent.cli.main import main\n"
    # not ru_maxrss, which begins with the memory of this process
    code += "try: main()\nfinally:\n status = open('/proc/self/status').read()\n"
    code += " open('peak', 'w').write(re.search(r'VmHWM:\\s+(\\d+)', status)[1])"
    finished = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    return finished.returncode, finished.stderr, int(Path(folder, "peak").read_text()) >> 10


NAMES = [
    "con.csv%00",
    "%00",
    "a.parquet%00.csv",
    "..%2f..%2fx.jsonl",
    "a" * 5000,
    ".csv",
    "a.csv%0a",
    "%ff%fe.tsv",
    "%ed%a0%80",
]


def names(server, proxy, rng, is_quick):
    """Names that no file can have, and columns that no table has."""
    broken, statuses = [], {}
    for name in NAMES:
        for column in ("", "&column=%00", "&column=" + "c" * 5000):
            answer = server.client.post(f"/try/file?name={name}{column}", content=b"text\none\ntwo\nthree\n")
            statuses[f"{name[:30]}{column[:12]}"] = answer.status_code
            if answer.status_code not in ((422,) if "%0" in name else (200, 422)) or "/tmp" in answer.text:
                broken.append(f"name={name[:30]}{column[:12]}: {answer.status_code}")
    return {"statuses": statuses}, broken


def abandoned(server, proxy, rng, is_quick):
    """Long work whose clients hang up, or wait, while others send large requests."""
    texts = [f"{rng.choice(WORDS)} number {number} is a text of more than six words" for number in range(2000)]
    broken, before = [], server.memory()
    server.forget_peak()
    comparison = json.dumps({"model_a": "wordllama", "model_b": "small", "texts": texts}).encode()
    trial = json.dumps({"texts": texts, "model": "wordllama"}).encode()
    socks = [
        server.send(path, body) for path, body in [("/compare", comparison), ("/try", trial)] * (8 if is_quick else 24)
    ]
    large = {"inputs": ["word " * 14_000]}  # above 64 KiB, which a shared thread reads
    try:
        is_served = all(server.client.post("/embed", json=large).status_code == 200 for _ in range(3))
    except httpx.TimeoutException:
        is_served = False
    if not is_served:
        broken.append("a large request got no answer beside long work")
    waiting, gone = socks[::4], [sock for number, sock in enumerate(socks) if number % 4]
    for sock in gone:
        sock.close()
    for sock in waiting:
        sock.settimeout(WAIT_S)
        with suppress(OSError):
            status = sock.recv(64).split()[1:2]
            if status not in ([b"200"], [b"429"]):
                broken.append(f"long work was answered with {status}")
        sock.close()

    def is_idle():
        used = server.cpu_s()
        time.sleep(0.3)
        return server.cpu_s() - used < 0.1

    if not wait_until(is_idle):
        broken.append("the server goes on with work that nobody waits for")
    return grown(server, before, broken, requests=len(socks))


def cookies(server, proxy, rng, is_quick):
    """An upstream that opens a session for a good key, and a wrong key after it."""
    broken, statuses = [], []
    for turn, key in enumerate(
        [UPSTREAM_KEY, "wrong-key-of-16-letters", UPSTREAM_KEY, "", "other-key-of-16-letters"] * 2
    ):
        body = {"input": [f"text {turn}"], "model": "stub"}
        headers = {"Authorization": f"Bearer {key}"} if key else {"Authorization": ""}
        status = proxy.client.post("/v1/embeddings", json=body, headers=headers).status_code
        statuses.append(status)
        if (status == 200) != (key == UPSTREAM_KEY):
            broken.append(f"the key {key[:9]!r} was answered with {status}")
    return {"statuses": statuses}, broken


def keys(server, proxy, rng, is_quick):
    """Keys of any bytes."""
    wrong = [
        b"",
        b"\xff\xfe\xe9",
        "schl\u00fcssel-der-l\u00e4nge-16".encode(),
        b"\xe9" * 16,
        b"a" * 8000,
        KEY.encode()[:-1],
    ]
    wrong += [bytes(rng.choices(range(0x80, 0x100), k=20)) for _ in range(10)]
    broken = []
    for name, target in (("server", server), ("proxy", proxy)):
        for key in wrong:
            body = json.dumps({"input": ["one more text"]}).encode()
            with target.send("/v1/embeddings", body, key=key) as sock:
                status = sock.recv(64).split()[1:2]
            if status != [b"401"]:
                broken.append(f"{name}: the key {key[:12]!r} was answered with {status}")
    return {"keys": len(wrong)}, broken


ATTACKS = (slow_writers, slow_readers, bombs, names, abandoned, cookies, keys)


def traffic(server, proxy, rng, minutes):
    """Bad requests in random order; memory is written down every minute, and must not grow."""
    stop, samples, counts = time.monotonic() + 60 * minutes, [], {}
    started, broken = time.monotonic(), []
    every_s = min(60, 6 * minutes)  # ten samples at least
    texts = [f"{rng.choice(WORDS)} number {number} is a text of more than six words" for number in range(300)]
    comparison = json.dumps({"model_a": "wordllama", "model_b": "small", "texts": texts}).encode()
    many = json.dumps({"inputs": texts * 4}).encode()

    def garbage():
        return bytes(rng.choices(range(256), k=rng.randrange(1, 3000)))

    def rubbish(target):
        with target.connect() as sock, suppress(OSError):
            sock.sendall(garbage())

    def half(target):
        target.send("/embed", many[: rng.randrange(len(many))], length=len(many)).close()

    def unread(target):
        held.append(target.send("/embed", many))

    def open_only(target):
        held.append(target.connect())

    def body(target):
        target.client.post(rng.choice(PATHS), content=garbage(), headers={"Content-Type": "application/json"})

    def file(target):
        name = rng.choice(["a.csv", "a.jsonl", "a.parquet", "a.txt", "a.tsv"])
        target.client.post("/try/file", params={"name": name}, content=garbage())

    def leave(target):
        target.send("/compare", comparison).close()

    def key(target):
        target.send("/embed", many, key=garbage().translate(None, bytes(range(32)))[:100]).close()

    def honest(target):
        path, sent = (
            ("/embed", {"inputs": texts[:50]}) if target is server else ("/v1/embeddings", {"input": texts[:5]})
        )
        headers = {} if target is server else {"Authorization": f"Bearer {UPSTREAM_KEY}"}
        if target.client.post(path, json=sent, headers=headers).status_code not in (200, 429):
            broken.append("an honest request was refused")

    kinds, held = (rubbish, half, unread, open_only, body, file, leave, key, honest, honest), []
    while time.monotonic() < stop and len(broken) < 10:
        kind, target = rng.choice(kinds), rng.choice([server, server, proxy])
        counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
        try:
            kind(target)
        except httpx.RemoteProtocolError:  # a place in the table of connections was taken by another client
            counts["lost"] = counts.get("lost", 0) + 1
        except (OSError, httpx.HTTPError) as error:
            if target.process.poll() is not None:
                broken.append(f"the process ended with {target.process.returncode}: {error}")
                break
        while len(held) > MOST_CONNECTIONS // 2:
            held.pop(0).close()
        if time.monotonic() - started >= every_s * len(samples):
            samples.append((server.memory(), proxy.memory()))
            print(
                json.dumps({"attack": "traffic", "minute": len(samples) * every_s / 60, "rss_mib": samples[-1]}),
                flush=True,
            )
    for sock in held:
        sock.close()
    third = max(1, len(samples) // 3)
    for name, values in zip(("server", "proxy"), zip(*samples, strict=True), strict=True):
        # the first minutes fill caches: what counts is whether it still grows after a third of the time
        growth = statistics.median(values[-third:]) - statistics.median(values[third : 2 * third] or values)
        if growth > 32:
            broken.append(f"{name}: the memory grew by {growth} MiB in the last two thirds")
    facts = {"minutes": minutes, "requests": sum(counts.values()), "counts": counts}
    return facts | {"rss_mib": {"start": samples[0], "end": samples[-1]}}, broken


WORDS = ("dog", "horse", "bank", "river", "train", "onion", "snow", "bicycle")
PATHS = (
    "/embed",
    "/v1/embeddings",
    "/search",
    "/explain",
    "/compare",
    "/try",
    "/try/draw",
    "/tokenize",
    "/similarity",
    "/",
)


# -- what is attacked --------------------------------------------------------------------------------------------------


class Upstream(BaseHTTPRequestHandler):
    """An API that opens a session for a good key, and then asks for the cookie alone."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_known = self.headers.get("Authorization") == f"Bearer {UPSTREAM_KEY}"
        is_known = is_known or "session=good" in self.headers.get("Cookie", "")
        rows = [{"index": row, "embedding": [1.0, float(row), 0.5]} for row in range(len(asked["input"]))]
        answer = json.dumps({"data": rows} if is_known else {"error": {"message": "wrong key"}}).encode()
        self.send_response(200 if is_known else 401)
        if is_known:
            self.send_header("Set-Cookie", "session=good; Path=/")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def targets():
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "keys").write_text(KEY + "\n")
        upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        stack.callback(upstream.server_close)
        stack.callback(upstream.shutdown)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{upstream.server_address[1]}/v1"
        learn = ["--upstream-model", "stub", "--learn", folder / "seen.safetensors"]
        served = ["serve", "wordllama", "small=wordllama", "--api-key-file", folder / "keys"]
        started = [Target(*served), Target("proxy", "--upstream", url, "--dialect", "openai", *learn)]
        for target in started:
            stack.callback(target.stop)
        for target in started:
            target.listen()
        started[0].is_well()
        yield started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named = [attack.__name__ for attack in ATTACKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(named)}, traffic; all by default")
    parser.add_argument("--minutes", type=float, default=20, metavar="N", help="of traffic")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--quick", action="store_true", help="fewer clients, smaller bombs, three seconds of traffic")
    arguments = parser.parse_args()
    rng, n_broken = random.Random(arguments.seed), 0
    with targets() as (server, proxy):
        for attack in [*ATTACKS, traffic]:
            if arguments.names and attack.__name__ not in arguments.names:
                continue
            started, rss = time.monotonic(), server.memory()
            last = (0.05 if arguments.quick else arguments.minutes) if attack is traffic else arguments.quick
            facts, broken = attack(server, proxy, rng, last)
            for target in (server, proxy):
                broken += target.failures
                target.failures = []
                if target.process.poll() is not None:
                    broken.append(f"a process ended with {target.process.returncode}")
            if not wait_until(server.is_well):
                broken.append("the server does not answer any more")
            n_broken += len(broken)
            line = {"attack": attack.__name__, "broken": broken, "rss_mib": [rss, server.memory()]}
            line["s"] = round(time.monotonic() - started, 1)
            print(json.dumps(facts | line if attack is not traffic else line | facts), flush=True)
    sys.exit(bool(n_broken))


if __name__ == "__main__":
    main()
