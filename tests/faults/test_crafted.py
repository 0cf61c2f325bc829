"""Files of an attacker, whose checksums fit: read, or refused in one sentence, in bounded time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits on memory, as Linux has them")

FAULTS = Path(__file__).parents[2] / "bench" / "faults.py"


def fuzzed(only, n_runs):
    """What the campaign prints of the readers with this in their names."""
    command = [sys.executable, FAULTS, "fuzz", "--only", only, "--runs", str(n_runs), "--seed", "5"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    *failures, summary = map(json.loads, finished.stdout.splitlines())
    assert failures == []
    return summary


@pytest.mark.slow
def test_indexes_of_strangers_are_read_or_refused():
    summary = fuzzed("index, ", 2)
    assert len(summary["targets"]) > 10
    assert summary["outcomes"]["refused"] > summary["outcomes"]["read"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("only", ["tokenizer", "paper"])
def test_files_that_name_what_to_run_are_read_or_refused(only):
    assert fuzzed(only, 20)["faults"] >= 20
