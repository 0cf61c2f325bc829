import io
import sys
from dataclasses import dataclass

import pytest

from isosent.cli.main import main


@dataclass
class Finished:
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
