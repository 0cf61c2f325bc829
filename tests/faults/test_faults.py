"""A quick, seeded part of each campaign of bench/faults.py; the whole of them takes minutes."""

import json
import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
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
    if campaign == "fuzz":
        assert summary["outcomes"]["refused"] > summary["outcomes"]["read"] > 0


def test_random_operations_leave_an_index_as_they_would_a_dictionary(record_property):
    seed = secrets.randbelow(1 << 30)
    record_property("seed", seed)  # printed at the end of the run
    memory = Path("/dev/shm")  # the operations wait for disks more than they compute
    environment = os.environ | ({"TMPDIR": str(memory)} if os.access(memory, os.W_OK) else {})
    process = subprocess.Popen(
        [sys.executable, FAULTS, "model", "--operations", "5000", "--seed", str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=540)
    finally:
        with suppress(ProcessLookupError):  # all of its forks, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, f"bench/faults.py model --seed {seed}: {out}{err}"
    summary = json.loads(out.splitlines()[-1])
    assert len(summary["targets"]) == 11
    assert {"killed, old", "killed, new", "refused, another writes", "push"} <= summary["outcomes"].keys()
