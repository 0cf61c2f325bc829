import io
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from isosent.cli.main import main
from isosent.encoders.reference import GRAMMAR


class Finished(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def isosent_(monkeypatch, capsys):
    """Run the command line in this process."""

    def isosent_(*arguments, stdin=None):
        monkeypatch.setattr(sys, "argv", ["isosent", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Finished(caught.value.code or 0, out, err)

    return isosent_


@pytest.fixture
def refuses():
    """Check for exit code 2, nothing on standard output, and one sentence without a traceback on standard error."""

    def refuses(finished, *words):
        assert finished.code == 2, finished.err
        assert finished.out == ""
        err = re.sub(r"\A.* which is replaced when the new one is complete\n", "", finished.err)  # said before
        assert err.startswith("error: ")
        assert len(err.removesuffix(GRAMMAR + "\n").partition("\nTry: ")[0].splitlines()) == 1
        for word in words:
            assert word in err

    return refuses


ISOSENT = [sys.executable, "-c", "from isosent.cli.main import main; main()"]


@contextmanager
def _serving(*arguments, open_files=None, **environment):
    """Run a server and give the process, its address and the lines of its log."""

    def limit_files():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    process = subprocess.Popen(
        [*ISOSENT, *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        preexec_fn=None if open_files is None else limit_files,
    )
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(map(json.loads, process.stderr)))
    try:
        while True:
            line = process.stderr.readline()
            if not line.startswith("{"):  # it has not started
                raise RuntimeError(line + process.stderr.read())
            listening = json.loads(line)
            if listening["event"] == "listening":
                break
            lines.append(listening)
        reader.start()
        yield process, f"http://127.0.0.1:{listening['port']}", lines
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if reader.ident:
            reader.join()
        process.stderr.close()


@pytest.fixture(scope="session")
def serving():
    return _serving
