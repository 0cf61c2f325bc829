"""Batches: how texts are cut into them, every row in its place, on one worker or several, and where memory runs out."""

import threading
import warnings

import numpy as np
import pytest
import torch

from isosent.errors import InputError, MemoryWarning
from isosent.networks.batching import BatchRunner, batches_of, run_batches, share_of_threads
from isosent.words.tokens import TokenIds

FEW = [3, 9, 1, 4, 4, 30, 2, 9, 1, 5]


def tokens_of(lengths, n_unpooled=0):
    lists = [list(range(100 * row + 1, 100 * row + length + 1)) for row, length in enumerate(lengths)]
    return TokenIds.from_lists(lists, n_unpooled=n_unpooled)


@pytest.mark.parametrize("budget", [1, 5, 9, 18, 40, 1000])
@pytest.mark.parametrize("equal_lengths", [False, True])
def test_every_text_is_in_one_batch_within_the_budget(budget, equal_lengths):
    batches = list(batches_of(tokens_of(FEW), budget, equal_lengths=equal_lengths))
    assert sorted(np.concatenate([batch.rows for batch in batches]).tolist()) == list(range(len(FEW)))
    for batch in batches:
        assert batch.input_ids.size <= budget or len(batch.rows) == 1
        for row, ids, mask in zip(batch.rows, batch.input_ids, batch.attention_mask, strict=True):
            assert ids[mask == 1].tolist() == list(range(100 * row + 1, 100 * row + FEW[row] + 1))


def test_the_longest_come_first_and_no_batch_is_wider_than_its_longest_text():
    batches = list(batches_of(tokens_of(FEW), 18))
    assert [batch.input_ids.shape for batch in batches] == [(1, 30), (2, 9), (3, 5), (4, 3)]
    assert [batch.rows.tolist() for batch in batches] == [[5], [1, 7], [9, 3, 4], [0, 6, 2, 8]]


def test_padding_stands_on_the_right_and_is_the_id_that_was_named():
    [batch] = batches_of(tokens_of([1, 3]), 100, pad_id=77)
    assert batch.input_ids.tolist() == [[101, 102, 103], [1, 77, 77]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.pooling_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert {array.dtype for array in batch.arrays} == {np.dtype(np.int64)}


def test_leading_tokens_that_are_not_pooled_are_seen_all_the_same():
    [batch] = batches_of(tokens_of([2, 4, 5], 3), 100)
    assert batch.attention_mask.sum(axis=1).tolist() == [5, 4, 2]
    assert batch.pooling_mask.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]


def test_each_text_may_have_its_own_number_of_tokens_that_are_not_pooled():
    [batch] = batches_of(tokens_of([2, 4, 5], np.array([1, 0, 4])), 100)
    assert batch.attention_mask.sum(axis=1).tolist() == [5, 4, 2]
    assert batch.pooling_mask.tolist() == [[0, 0, 0, 0, 1], [1, 1, 1, 1, 0], [0, 1, 0, 0, 0]]


def test_texts_of_equal_lengths_have_no_padding():
    batches = list(batches_of(tokens_of(FEW), 1000, equal_lengths=True))
    assert all(batch.attention_mask.all() for batch in batches)
    assert [batch.input_ids.shape for batch in batches] == [(1, 30), (2, 9), (1, 5), (2, 4), (1, 3), (1, 2), (2, 1)]


def test_no_text_is_no_batch():
    assert list(batches_of(tokens_of([]), 10)) == []


@pytest.mark.parametrize("lengths", [[4, 4], [5, 3, 2], [6, 6, 6, 6, 1]])
def test_halves_are_the_whole(lengths):
    [batch] = batches_of(tokens_of(lengths, 1), 1000)
    first, second = batch.halves()
    assert 0 < len(first.rows) <= len(second.rows) <= len(first.rows) + 1
    for whole, upper, lower in zip(
        (batch.rows, *batch.arrays), (first.rows, *first.arrays), (second.rows, *second.arrays), strict=True
    ):
        np.testing.assert_array_equal(np.concatenate([upper, lower]), whole)


RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 30, size=83)
TOKENS = TokenIds.from_lists([RNG.integers(1, 1000, size=length).tolist() for length in LENGTHS])
EXPECTED = [TOKENS.ids[start:stop].sum() for start, stop in zip(TOKENS.offsets[:-1], TOKENS.offsets[1:], strict=True)]


def sums(input_ids, attention_mask, pooling_mask):
    """Two layer poolings: the sum of the ids of a text, and that with the number of its tokens."""
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
def test_rows_are_in_their_places_whoever_computes_them(n_workers, progress):
    outputs = BatchRunner([sums] * n_workers, [1, 2], 64).run(TOKENS, progress)
    assert_right(outputs)
    assert progress.complete() == [len(LENGTHS)]


def test_a_backend_runs_one_batch_at_a_time_even_for_two_callers():
    inside, most = [], []

    def backend(*arrays):
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.001)
        inside.pop()
        return sums(*arrays)

    runner = BatchRunner([backend], [1, 2], 64)
    outputs = {}

    def call(name):
        outputs[name] = runner.run(TOKENS)

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

    assert_right(BatchRunner([backend], [1, 2], 64).run(TOKENS))


def test_no_texts_are_no_rows():
    outputs = BatchRunner([sums], [1, 2], 64).run(TokenIds.from_lists([]))
    assert [output.shape for output in outputs] == [(0, 1), (0, 2)]


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    MemoryError(),
    RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bad allocation"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: str(error)[:20] or type(error).__name__)
@pytest.mark.parametrize("n_workers", [1, 3])
def test_a_batch_that_does_not_fit_is_halved_and_that_is_said_once(error, n_workers, progress):
    backends = [Small(30, error) for _ in range(n_workers)]
    runner = BatchRunner(backends, [1, 2], 64)
    with pytest.warns(MemoryWarning, match=r"did not fit into memory and was halved; the vectors are the same") as said:
        assert_right(runner.run(TOKENS, progress))
    assert len(said) == 1
    assert progress.complete() == [len(LENGTHS)]
    assert max(size for backend in backends for size in backend.sizes) <= 30
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        assert_right(runner.run(TOKENS))
    assert again == []


def test_a_text_that_does_not_fit_alone_is_refused_with_its_length():
    runner = BatchRunner([Small(20, OUT_OF_MEMORY[0])], [1, 2], 64)
    words = "encode: a text of 2[0-9] tokens does not fit into memory. Set max_length to less"
    with pytest.warns(MemoryWarning, match="halved"), pytest.raises(InputError, match=words) as refused:
        runner.run(TOKENS)
    assert refused.value.__cause__ is OUT_OF_MEMORY[0]
    small = TokenIds.from_lists([[5], [6, 7]])
    assert runner.run(small)[0].tolist() == [[5], [13]]  # the backend is free again


def test_other_failures_are_left_as_they_are():
    failing = BatchRunner([Small(0, RuntimeError("expected scalar type Float but found Half"))], [1, 2], 64)
    with pytest.raises(RuntimeError, match="expected scalar type Float"):
        failing.run(TOKENS)


@pytest.mark.parametrize("n_workers", [1, 2, 5])
@pytest.mark.parametrize("n_batches", [0, 1, 2, 30])
def test_results_come_in_the_order_of_the_batches(n_workers, n_batches):
    found = list(run_batches(range(n_batches), lambda batch: batch * batch, n_workers))
    assert found == [(batch, batch * batch) for batch in range(n_batches)]


def test_batches_are_taken_as_threads_come_free():
    taken = []

    def batches():
        for batch in range(100):
            taken.append(batch)
            yield batch

    results = run_batches(batches(), lambda batch: batch, 2)
    for done in range(1, 20):
        next(results)
        assert len(taken) <= done + 2 * 2
    results.close()


def test_several_threads_compute():
    both_are_in = threading.Barrier(2, timeout=30)
    assert len(list(run_batches(range(2), lambda _: both_are_in.wait(), 2))) == 2


def test_a_single_batch_stays_in_the_calling_thread():
    ((_, thread),) = run_batches([1], lambda _: threading.current_thread(), 4)
    assert thread is threading.current_thread()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("n_workers", [1, 3])
def test_what_a_batch_raises_comes_out_and_ends_the_rest(error, n_workers):
    begun = []

    def compute(batch):
        begun.append(batch)
        if batch == 3:
            raise error("batch 3")
        return batch

    with pytest.raises(error, match="batch 3"):
        list(run_batches(range(1000), compute, n_workers))
    assert len(begun) < 20


def test_what_the_batches_raise_comes_out():
    def batches():
        yield from range(5)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(run_batches(batches(), lambda batch: batch, 2))


def test_each_worker_has_its_threads_and_the_caller_keeps_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inside = {n for _, n in run_batches(range(8), lambda _: torch.get_num_threads(), 2, threads_each=1)}
        fresh = []
        thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert (inside, torch.get_num_threads(), fresh) == ({1}, 2, [2])
    finally:
        torch.set_num_threads(before)


def test_torch_has_its_threads_again_where_the_last_caller_was_born_among_workers():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    begun, may_end, fresh = threading.Event(), threading.Event(), []

    def call():
        results = run_batches(range(8), lambda batch: batch, 2, threads_each=1)
        next(results)
        begun.set()
        may_end.wait(30)
        list(results)

    def count():
        fresh.append(torch.get_num_threads())

    try:
        results = run_batches(range(8), lambda batch: batch, 2, threads_each=1)
        next(results)
        caller, counter = threading.Thread(target=call), threading.Thread(target=count)
        caller.start()
        begun.wait(30)
        list(results)
        may_end.set()
        caller.join()
        counter.start()
        counter.join()
        assert (fresh, torch.get_num_threads()) == ([2], 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("n_threads", "share"), [(1, (1, 1)), (2, (2, 1)), (16, (16, 1)), (64, (16, 4))])
def test_threads_are_shared_out(monkeypatch, n_threads, share):
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    assert share_of_threads() == share
