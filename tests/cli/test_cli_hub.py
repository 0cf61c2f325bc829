"""Files of data sets on the Hugging Face hub, read by its own client from a hub on this machine."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("huggingface_hub")

REPOSITORY = "/api/datasets/owner/name"
ISOSENT = [sys.executable, "-c", "from isosent.cli.main import main; main()"]
ROWS = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one data set, whose file is data/train.parquet."""
    parquet = tmp_path / "train.parquet"
    pq.write_table(pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 6)}), parquet)
    content = parquet.read_bytes()
    folder = {"type": "directory", "path": "data", "oid": "b" * 40}
    file = {"type": "file", "path": "data/train.parquet", "size": len(content), "oid": "c" * 40}
    answers = {
        REPOSITORY: {"id": "owner/name", "sha": "a" * 40, "private": False, "tags": [], "siblings": []},
        f"{REPOSITORY}/tree/main": [folder],
        f"{REPOSITORY}/tree/main/data": [file],
    }

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            is_file = path == "/datasets/owner/name/resolve/main/data/train.parquet"
            body = content if is_file else json.dumps(answers.get(path, {"error": "not found"})).encode()
            self.send_response(200 if is_file or path in answers else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - so called by http.server

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    server.shutdown()
    server.server_close()


def run(*arguments):
    return subprocess.run([*ISOSENT, *arguments], capture_output=True, text=True, timeout=120, env=os.environ)


def test_vectors_of_a_data_set_are_read_by_its_address(hub, tmp_path):
    for number, path in enumerate(("hf://datasets/owner/name/data/*.parquet", "train.parquet")):
        finished = run("fit", path, "--transform", "whitening", "-o", f"model-{number}")
        assert finished.returncode == 0, finished.stderr
        assert run("transform", "train.parquet", "-m", f"model-{number}", "-o", f"{number}.npy").returncode == 0
    assert (tmp_path / "0.npy").read_bytes() == (tmp_path / "1.npy").read_bytes()


def test_a_file_that_the_data_set_has_not_is_one_sentence(hub):
    finished = run("fit", "hf://datasets/owner/name/data/none.parquet", "-o", "model")
    assert finished.returncode == 2
    assert finished.stderr == "error: hf://datasets/owner/name/data/none.parquet: no such file.\n"
    inspected = run("inspect", "hf://datasets/owner/name/data/train.parquet")
    assert inspected.returncode == 2
    assert "another machine" in inspected.stderr
