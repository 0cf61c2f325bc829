"""The notebooks run as written, on the bundled texts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def cells(path, kind):
    document = json.loads(path.read_text("utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == kind]


def test_there_are_three_without_outputs():
    assert [path.stem for path in NOTEBOOKS] == ["honest_no", "languages", "should_i_whiten"]
    assert [cell for path in NOTEBOOKS for cell in cells(path, "code") if cell["outputs"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path, tmp_path):
    code = "\n".join("".join(cell["source"]) for cell in cells(path, "code"))
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout
