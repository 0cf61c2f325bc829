"""The process: signals, draining, reload, hostile connections, and what the command line refuses."""

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

import isosent
from isosent.numeric.similarity import unit_rows
from isosent.server.run import log_to_stderr


@pytest.fixture(scope="module")
def model(wordllama, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    wordllama.fitted(texts, isosent.Whitening(n_components=16)).save(folder)
    return folder


def ask(url, n_texts=1, **arguments):
    return httpx.post(f"{url}/embed", json={"inputs": ["a dog"] * n_texts}, trust_env=False, timeout=30, **arguments)


@pytest.mark.slow
def test_a_second_signal_ends_at_once(serving, model, wait_until):
    with serving("serve", model, "--drain", 600, 30) as (process, url, lines):
        assert ask(url).status_code == 200
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{url}/ready", trust_env=False).status_code == 503)
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10) as waiting:
            waiting.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            waiting.sendall(b"Content-Length: 50\r\n\r\n{")  # a request in flight, whose body never comes
            assert ask(url).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    events = [line for line in lines if line["event"] != "request"]
    assert [line["event"] for line in events] == ["draining", "stopped at once"]
    assert [line["level"] for line in events] == ["info", "warning"]


@pytest.mark.slow
def test_an_answer_that_nobody_reads_is_dropped(serving, model, wait_until):
    with serving("serve", model, "--request-timeout", 1) as (_, url, _):
        body = json.dumps({"inputs": ["a dog " * 1500]}).encode()  # answered with the vectors of 3,000 tokens
        head = b"POST /embed_all HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as connection:
            connection.sendall(head + b"%d\r\n\r\n" % len(body) + body)
            assert connection.recv(12) == b"HTTP/1.1 200"

            def is_closed():
                try:
                    connection.send(b"\r")
                except OSError:
                    return True
                return False

            wait_until(is_closed)
        answer = httpx.post(f"{url}/embed_all", content=body, headers={"Content-Type": "application/json"}, timeout=60)
        assert len(answer.content) > 5_000_000  # far more than the kernel holds
        assert len(answer.json()[0]) >= 3000


def is_answered(url):
    try:
        return ask(url).status_code == 200  # 503 as long as nobody has been silent for a second
    except httpx.TransportError:
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of open files")
def test_few_open_files_leave_a_server_that_answers(serving, model, wait_until):
    with serving("serve", model, open_files=64) as (_, url, lines), ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 20))
        stack.close()
        wait_until(lambda: is_answered(url))
        assert ask(url).status_code == 200
    [fewer] = [line for line in lines if line["event"] == "fewer connections than requested"]
    assert 0 < fewer["max_connections"] < fewer["open_files"] == 64
    assert len(lines) < 20


@pytest.mark.slow
def test_silent_connections_make_room_for_others(serving, model, wait_until):
    with serving("serve", model, "--max-connections", 3, "--request-timeout", 600) as (_, url, _):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        silent = [socket.create_connection(address, 30) for _ in range(3)]

        wait_until(lambda: is_answered(url))
        assert silent[0].recv(1) == b""  # the first to come
        for connection in silent:
            connection.close()


@pytest.mark.slow
def test_connections_between_two_requests_make_room_and_the_limit_holds_in_a_burst(serving, model, wait_until):
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving("serve", model, "--max-connections", 3, "--request-timeout", 600) as (_, url, _), ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))

        def connected():
            return stack.enter_context(socket.create_connection(address, 30))

        kept = [connected() for _ in range(3)]
        for connection in kept:
            connection.sendall(health)
            assert connection.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: is_answered(url))
        burst = [connected() for _ in range(20)]
        time.sleep(0.5)
        n_refused = 0
        for connection in burst:
            connection.settimeout(0.5)
            with suppress(TimeoutError):  # it waits for a request
                n_refused += connection.recv(12) in (b"HTTP/1.1 503", b"")
        assert n_refused >= 17


def test_a_reload_loses_no_request_and_sigterm_drains(serving, model, wordllama, texts, wait_until):
    with serving("serve", f"model={model}", "--request-timeout", 1, "--drain", 1, 30) as (process, url, lines):
        assert httpx.get(f"{url}/ready", trust_env=False).status_code == 200
        before = isosent.load(model)
        after = wordllama.fitted(texts, isosent.Whitening(n_components=16, strength=0.5))
        expected = {each.fingerprint: unit_rows(each.encode(["a dog"])) for each in (before, after)}
        after.save(model)
        answers, is_over = [], threading.Event()

        def client():
            while not is_over.is_set():
                answers.append(ask(url))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for each in clients:
            each.start()
        process.send_signal(signal.SIGHUP)
        try:
            wait_until(lambda: answers and answers[-1].headers.get("X-Isosent-Space") == after.fingerprint)
        finally:
            is_over.set()
            for each in clients:
                each.join()
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["X-Isosent-Space"] for answer in answers} == set(expected)
        for answer in answers:
            assert np.allclose(answer.json(), expected[answer.headers["X-Isosent-Space"]], atol=1e-6)
        (model / "model.json").write_text("{}")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: any(line["event"] == "reload failed" for line in lines))
        assert ask(url).headers["X-Isosent-Space"] == after.fingerprint  # what was there stays
        hostile_connections(url)
        process.send_signal(signal.SIGTERM)  # it drains, and then ends
        wait_until(lambda: httpx.get(f"{url}/ready", trust_env=False).status_code == 503)
        assert ask(url).status_code == 200  # requests are still answered
        assert process.wait(20) == 0
    assert [line["event"] for line in lines if line["event"] != "request"][-1] == "draining"


def hostile_connections(url):
    """Connections that hold a server up or confuse it: they end, and it goes on."""
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def answered(content):
        with socket.create_connection(address, 10) as connection:
            connection.sendall(content)
            return connection.recv(1 << 16)

    assert answered(b"") == b""  # silent: closed
    assert answered(b"POST /embed HTTP/1.1\r\nHost:") == b""
    assert b" 408 " in answered(head + b'Content-Length: 20\r\n\r\n{"inputs"').partition(b"\r\n")[0]
    both = answered(
        head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /info HTTP/1.1\r\n\r\n"
    )
    assert b" 400 " in both.partition(b"\r\n")[0]
    assert both.count(b"HTTP/1.1") == 1  # what follows is no second request
    for twice in (
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: +5",
        b"Transfer-Encoding: gzip, chunked",
    ):
        status = answered(head + twice + b"\r\n\r\n").partition(b"\r\n")[0]
        assert b" 4" in status or b" 501" in status
    assert b" 4" in answered(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n").partition(b"\r\n")[0]
    with socket.create_connection(address, 10) as gone:
        gone.sendall(head + b'Content-Length: 16\r\n\r\n{"inputs": "a"} ')
    assert ask(url).status_code == 200


def test_other_machines_need_keys(isosent_, refuses, tmp_path, monkeypatch):
    monkeypatch.delenv("ISOSENT_API_KEYS", raising=False)
    refuses(isosent_("serve", "wordllama", "--host", "0.0.0.0"), "--api-key-file")
    keys = tmp_path / "keys.txt"
    for content, word in (("\n# no key\n", "no key"), ("short\n", "16"), ("with a blank inside\n", "whitespace")):
        keys.write_text(content)
        refuses(isosent_("serve", "wordllama", "--api-key-file", keys), word)
    refuses(isosent_("serve", "wordllama", "--api-key-file", tmp_path / "none"), "none")


@pytest.fixture
def log_settings(monkeypatch):
    """Loggers and warnings, set again after the test."""
    for name in ("isosent.server", "uvicorn", "asyncio"):
        for attribute in ("handlers", "propagate", "level"):
            changed = logging.getLogger(name)
            monkeypatch.setattr(changed, attribute, getattr(changed, attribute))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


def test_a_port_in_use_is_refused(isosent_, refuses, log_settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refuses(isosent_("serve", "wordllama", "--port", port), "in use")
        refuses(isosent_("serve", "wordllama", "--port", port, "--workers", 2), "in use")


def test_what_cannot_be_served_is_refused(isosent_, refuses, tmp_path):
    refuses(isosent_("serve", "wordllama", "wordllama"), "wordllama", "NAME=")
    refuses(isosent_("serve", tmp_path / "nothing"), "nothing")
    refuses(isosent_("serve", "wordllama?weighting=sif"), "is not fitted. Fit it on texts first")
    vectors = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    assert isosent_("fit", tmp_path / "vectors.npy", "-o", tmp_path / "map", "--transform", "whitening").code == 0
    refuses(isosent_("serve", tmp_path / "map"), "proxy")


def test_the_log_goes_to_what_standard_error_is_now(monkeypatch, capsys, log_settings):
    logger = logging.getLogger("isosent.server")
    with monkeypatch.context() as patch:
        before = io.StringIO()
        patch.setattr(sys, "stderr", before)
        log_to_stderr()
        before.close()
    logger.warning("still there")
    assert json.loads(capsys.readouterr().err)["event"] == "still there"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no port that processes share")
def test_workers_share_a_port_and_are_replaced(serving, wordllama, texts, wait_until):
    with serving("serve", "wordllama", "--workers", 2) as (process, url, lines):
        expected = unit_rows(wordllama.encode(["a dog"]))

        def of(event):
            return [line for line in lines if line["event"] == event]

        def numbers():
            return {httpx.get(f"{url}/status", trust_env=False).json()["worker"] for _ in range(4)}

        wait_until(lambda: numbers() == {0, 1})
        assert all(np.array_equal(np.float32(ask(url).json()), expected) for _ in range(8))
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
        assert 'te_request_count{method="/embed"} 8.0' in metrics  # of both, whichever answers
        assert httpx.post(f"{url}/try", json={"texts": list(texts[:50])}, trust_env=False).status_code == 403
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(of("reloaded")) == 2)
        [first, _] = [line for line in lines if line["event"] == "worker serves"]
        os.kill(first["pid"], signal.SIGKILL)
        wait_until(lambda: len(of("worker serves")) == 3)
        assert [line["exit"] for line in of("worker ended")] == [-signal.SIGKILL]
        assert ask(url).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert len(of("draining")) == 2
    pids = {line["pid"] for line in of("worker serves")}
    assert not any(map(is_running, pids))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
def test_a_worker_that_is_just_starting_keeps_the_signal_until_it_can_reload(wait_until):
    command = [sys.executable, "-m", "isosent", "serve", "wordllama", "--workers", "2", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        tasks = Path("/proc", str(process.pid), "task", str(process.pid), "children")

        def signalled():
            starting = [pid for pid in map(int, tasks.read_text().split()) if b"spawn_main" in command_of(pid)]
            for pid in starting[:1]:
                os.kill(pid, signal.SIGHUP)
            return bool(starting)

        try:
            wait_until(signalled)
            for line in process.stderr:  # "worker ended" would be the last line
                if '"reloaded"' in line:
                    break
            process.send_signal(signal.SIGTERM)
            assert '"reloaded"' in line
            process.stderr.read()
        finally:
            process.kill()


def command_of(pid):
    return Path("/proc", str(pid), "cmdline").read_bytes()


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="has no port that processes share")
def test_workers_that_lose_their_parent_end(serving, wait_until):
    with serving("serve", "wordllama", "--workers", 2) as (process, _, lines):
        process.kill()
        process.wait()
        pids = [line["pid"] for line in lines if line["event"] == "worker serves"]
        wait_until(lambda: not any(map(is_running, pids)))
    assert len(pids) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="has no port that processes share")
def test_workers_that_cannot_load_end_the_service(serving, tmp_path):
    with pytest.raises(RuntimeError, match="nothing"), serving("serve", tmp_path / "nothing", "--workers", 2):
        pass
