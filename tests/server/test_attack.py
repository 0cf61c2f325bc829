"""A quick part of each attack of bench/attack.py; the whole of it takes half an hour."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory as Linux counts it"),
]
ATTACK = Path(__file__).parents[2] / "bench" / "attack.py"


@pytest.fixture(scope="module")
def lines():
    """What the attacks print, on one server and one proxy."""
    finished = subprocess.run(
        [sys.executable, ATTACK, "--quick"], capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode in (0, 1), finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


@pytest.mark.parametrize(
    "attack", ["slow_writers", "slow_readers", "bombs", "names", "abandoned", "cookies", "keys", "traffic"]
)
def test_no_attack_breaks_a_promise(lines, attack):
    [broken] = [line["broken"] for line in lines if line["attack"] == attack and "broken" in line]
    assert broken == []
