"""A quick, seeded part of each campaign of bench/faults.py; the whole of them takes minutes."""

import json
import os
import secrets
import shutil
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

N_OPERATIONS = 1650  # a run of 150 for each kind of index
FAULTS = Path(__file__).parents[2] / "bench" / "faults.py"


@pytest.fixture(scope="module")
def lines():
    """What the campaigns print, all of them run by one process, which imports once."""
    finished = subprocess.run(
        [sys.executable, FAULTS, "all", "--quick"], capture_output=True, text=True, timeout=400, check=False
    )
    assert finished.returncode in (0, 1), finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


def summary_of(lines, campaign):
    return next(line for line in reversed(lines) if line["campaign"] == campaign)


@pytest.fixture
def outcomes_of_calls(lines):
    """How often each thing came of calls that failed; they are made to fail by a library in C."""
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("no call was made to fail: there is no C compiler")
    return summary_of(lines, "calls")["outcomes"]


@pytest.mark.parametrize("campaign", ["kills", "disks", "flips", "calls", "fuzz", "writers"])
def test_no_fault_breaks_a_promise(lines, campaign):
    summary, *failures = (line for line in reversed(lines) if line["campaign"] == campaign)
    assert failures == []
    assert summary["faults"] > len(summary["targets"]) > 0
    if campaign == "fuzz":
        assert summary["outcomes"]["refused"] > summary["outcomes"]["read"] > 0


def test_calls_that_fail_are_refused_or_made_again(outcomes_of_calls):
    assert outcomes_of_calls["refused"] > 5
    assert outcomes_of_calls["succeeded"] > 5


@pytest.mark.parametrize(
    ("machine", "outcome"),
    [
        ("no writing", "refused"),
        ("locks fail with ENOLCK", "succeeded"),
        ("a clock that jumps by 34560000 s", "succeeded"),
        ("0 open files", "refused"),
        ("10 open files", "succeeded"),
    ],
)
def test_a_poor_machine_is_named_or_served(lines, outcomes_of_calls, machine, outcome):
    assert outcomes_of_calls[f"{machine}: {outcome}"] == len(summary_of(lines, "calls")["targets"])


def test_indexes_of_strangers_are_read_or_refused(lines):
    targets = summary_of(lines, "fuzz")["targets"]
    indexes = [outcomes for name, outcomes in targets.items() if name.startswith("index, ")]
    assert len(indexes) > 10
    refused, read = (sum(outcomes.get(outcome, 0) for outcomes in indexes) for outcome in ("refused", "read"))
    assert refused > read > 0


def test_files_that_name_what_to_run_are_read_or_refused():
    command = [sys.executable, FAULTS, "fuzz", "--only", "tokenizer", "--only", "paper", "--runs", "20", "--seed", "5"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode in (0, 1), finished.stderr
    *failures, summary = map(json.loads, finished.stdout.splitlines())
    assert failures == []
    assert summary["faults"] >= 40


def test_random_operations_leave_an_index_as_they_would_a_dictionary(record_property):
    seed = secrets.randbelow(1 << 30)
    record_property("seed", seed)  # printed at the end of the run
    memory = Path("/dev/shm")  # the operations wait for disks more than they compute
    environment = os.environ | ({"TMPDIR": str(memory)} if os.access(memory, os.W_OK) else {})
    process = subprocess.Popen(
        [sys.executable, FAULTS, "model", "--operations", str(N_OPERATIONS), "--seed", str(seed)],
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
