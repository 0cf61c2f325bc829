"""A few calls of one command that fail, as on a bad disk or a poor machine; `bench/faults.py calls` has all of them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or not (shutil.which("cc") or shutil.which("gcc")),
        reason="a C compiler makes the library whose calls fail, as Linux loads it",
    ),
]

FAULTS = Path(__file__).parents[2] / "bench" / "faults.py"


@pytest.fixture(scope="module")
def lines():
    finished = subprocess.run(
        [sys.executable, FAULTS, "calls", "--quick", "--runs", "6", "--only", "vectors .npy"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode in (0, 1), finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


def test_a_call_that_fails_is_one_sentence_and_leaves_the_old_file(lines):
    *failures, summary = lines
    assert failures == []
    assert summary["outcomes"]["refused"] > 5
    assert summary["outcomes"]["succeeded"] > 5


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
def test_a_poor_machine_is_named_or_served(lines, machine, outcome):
    assert lines[-1]["outcomes"].get(f"{machine}: {outcome}") == 1
