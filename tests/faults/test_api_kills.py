"""A job that asks an embedding API is killed again and again: no text is paid for twice, and none is lost."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest
from fake_api import Answer, FakeApi

from isosent.numeric.canary import FIXED_TEXTS

N_KILLS, N_TEXTS, N_REQUESTS, N_TEXTS_OF_REQUEST = 12, 700, 4, 5
ENCODE = f"""
from isosent.api import session
session._MOST_REQUESTS, session._MOST_TEXTS = {N_REQUESTS}, {N_TEXTS_OF_REQUEST}
from isosent.cli.main import main
main()
"""


def limit(body, n):
    """Take a moment, and refuse every 25th request for its rate."""
    time.sleep(0.01)
    return None if n % 25 else Answer(429, {"error": {"message": "Rate limit reached"}}, {"retry-after-ms": "20"})


@pytest.mark.slow
def test_kills_cost_no_more_than_what_was_in_flight(tmp_path, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    moments = random.Random(seed)
    texts = [f"text {number}" for number in range(N_TEXTS)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    with FakeApi().running() as api:
        api.misbehave = limit

        def start(cache, output):
            model = f"api:{api.url}/v1?model=m&cache={tmp_path / cache}"
            arguments = ["encode", tmp_path / "texts.txt", "-m", model, "-o", tmp_path / output]
            return subprocess.Popen([sys.executable, "-c", ENCODE, *arguments], stdout=subprocess.DEVNULL)

        paid_for, n_again = {}, []
        for _ in range(N_KILLS):
            n_requests = len(api.requests)
            job = start("killed", "killed.npy")
            while len(api.requests) < n_requests + 2 and job.poll() is None:
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.1))
            job.kill()
            job.wait()
            while api.n_running:
                time.sleep(0.002)
            n_again.append(count(paid_for, api))
        assert not (tmp_path / "killed.npy").exists()  # all kills came in the middle
        assert start("killed", "killed.npy").wait(300) == 0
        n_again.append(count(paid_for, api))
        assert start("fresh", "fresh.npy").wait(300) == 0
    assert set(paid_for) == set(texts)
    assert max(n_again) <= N_REQUESTS * N_TEXTS_OF_REQUEST
    vectors = np.load(tmp_path / "killed.npy")
    np.testing.assert_array_equal(vectors, [api.vector_of(text) for text in texts])
    assert (tmp_path / "killed.npy").read_bytes() == (tmp_path / "fresh.npy").read_bytes()


def count(paid_for, api):
    """Add what was answered since; how many of these texts had been answered before."""
    n_again = 0
    for texts in api.paid:
        for text in texts:
            if text not in FIXED_TEXTS:
                n_again += text in paid_for
                paid_for[text] = paid_for.get(text, 0) + 1
    api.paid.clear()
    return n_again
