import io
import sys
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
        assert finished.err.startswith("error: ")
        assert len(finished.err.removesuffix(GRAMMAR + "\n").partition("\nTry: ")[0].splitlines()) == 1
        for word in words:
            assert word in finished.err

    return refuses
