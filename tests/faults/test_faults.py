"""A quick, seeded part of each campaign of bench/faults.py; the whole of them takes minutes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits on memory and files, as Linux has them"),
]

FAULTS = Path(__file__).parents[2] / "bench" / "faults.py"


@pytest.fixture(scope="module")
def lines():
    """What the campaigns print, all of them run by one process, which imports once."""
    finished = subprocess.run(
        [sys.executable, FAULTS, "all", "--quick"], capture_output=True, text=True, timeout=400, check=False
    )
    assert finished.returncode in (0, 1), finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


@pytest.mark.parametrize("campaign", ["kills", "disks", "flips", "calls", "fuzz", "writers"])
def test_no_fault_breaks_a_promise(lines, campaign):
    summary, *failures = (line for line in reversed(lines) if line["campaign"] == campaign)
    if any("skipped, they need a C compiler" in outcome for outcome in summary["outcomes"]):
        pytest.skip("no call was made to fail: there is no C compiler")
    assert failures == []
    assert summary["faults"] > len(summary["targets"]) > 0
