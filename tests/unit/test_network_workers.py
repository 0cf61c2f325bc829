"""Batches side by side: in order, bounded in flight, with the threads of torch as they were afterwards."""

import threading

import pytest
import torch

from isosent.networks.batching import run_batches, share_of_threads


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
def test_threads_are_shared_out(n_threads, share):
    assert share_of_threads(n_threads) == share
