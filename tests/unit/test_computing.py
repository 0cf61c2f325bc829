"""Batches through a backend: every row in its place, on one worker or several, and where memory runs out."""

import threading
import warnings

import numpy as np
import pytest
import torch

from isosent.errors import InputError, MemoryWarning
from isosent.networks.batching import Computing, Layout
from isosent.words.tokens import TokenIds

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 30, size=83)
TOKENS = TokenIds.from_lists([RNG.integers(1, 1000, size=length).tolist() for length in LENGTHS])
EXPECTED = [TOKENS.ids[start:stop].sum() for start, stop in zip(TOKENS.offsets[:-1], TOKENS.offsets[1:], strict=True)]
LAYOUT = Layout(64, 0)


def sums(input_ids, attention_mask, pooling_mask):
    """Two readings: the sum of the ids of a text, and that with the number of its tokens."""
    total, count = (input_ids * attention_mask).sum(axis=1), pooling_mask.sum(axis=1)
    return [total[:, None].astype(np.float32), np.stack([total, count], axis=1).astype(np.float32)]


class Small:
    """A backend with room for so many tokens."""

    def __init__(self, room, error):
        self.room, self.error, self.sizes = room, error, []

    def __call__(self, input_ids, attention_mask, pooling_mask):
        if input_ids.size > self.room:
            raise self.error
        self.sizes.append(input_ids.size)
        return sums(input_ids, attention_mask, pooling_mask)


def assert_right(outputs):
    total, both = outputs
    np.testing.assert_array_equal(total[:, 0], EXPECTED)
    np.testing.assert_array_equal(both, np.stack([EXPECTED, LENGTHS], axis=1))
    assert total.dtype == both.dtype == np.float32


@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_rows_are_in_their_places_whoever_computes_them(n_workers):
    done = []
    outputs = Computing([sums] * n_workers, [1, 2], 64).vectors(TOKENS, LAYOUT, done.append)
    assert_right(outputs)
    assert sum(done) == len(LENGTHS)


def test_a_backend_runs_one_batch_at_a_time_even_for_two_callers():
    inside, most = [], []

    def backend(*arrays):
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.001)
        inside.pop()
        return sums(*arrays)

    computing = Computing([backend], [1, 2], 64)
    outputs = {}

    def call(name):
        outputs[name] = computing.vectors(TOKENS, LAYOUT)

    callers = [threading.Thread(target=call, args=(name,)) for name in "ab"]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert max(most) == 1
    for name in "ab":
        assert_right(outputs[name])


def test_tensors_of_any_float_type_come_back_as_float32():
    def backend(*arrays):
        return [torch.from_numpy(vectors).to(torch.float64) for vectors in sums(*arrays)]

    assert_right(Computing([backend], [1, 2], 64).vectors(TOKENS, LAYOUT))


def test_no_texts_are_no_rows():
    outputs = Computing([sums], [1, 2], 64).vectors(TokenIds.from_lists([]), LAYOUT)
    assert [output.shape for output in outputs] == [(0, 1), (0, 2)]


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    MemoryError(),
    RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bad allocation"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: str(error)[:20] or type(error).__name__)
@pytest.mark.parametrize("n_workers", [1, 3])
def test_a_batch_that_does_not_fit_is_halved_and_that_is_said_once(error, n_workers):
    backends = [Small(30, error) for _ in range(n_workers)]
    computing, done = Computing(backends, [1, 2], 64), []
    with pytest.warns(MemoryWarning, match=r"did not fit into memory and was halved; vectors are the same") as said:
        assert_right(computing.vectors(TOKENS, LAYOUT, done.append))
    assert len(said) == 1
    assert sum(done) == len(LENGTHS)
    assert max(size for backend in backends for size in backend.sizes) <= 30
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        assert_right(computing.vectors(TOKENS, LAYOUT))
    assert again == []


def test_a_text_that_does_not_fit_alone_is_refused_with_its_length():
    computing = Computing([Small(20, OUT_OF_MEMORY[0])], [1, 2], 64)
    words = "encode: a text of 2[0-9] tokens must fit into memory; it does not. Set max_length to less"
    with pytest.warns(MemoryWarning, match="halved"), pytest.raises(InputError, match=words) as refused:
        computing.vectors(TOKENS, LAYOUT)
    assert refused.value.__cause__ is OUT_OF_MEMORY[0]
    small = TokenIds.from_lists([[5], [6, 7]])
    assert computing.vectors(small, LAYOUT)[0].tolist() == [[5], [13]]  # the backend is free again


def test_other_failures_are_left_as_they_are():
    failing = Computing([Small(0, RuntimeError("expected scalar type Float but found Half"))], [1, 2], 64)
    with pytest.raises(RuntimeError, match="expected scalar type Float"):
        failing.vectors(TOKENS, LAYOUT)
