"""Texts of like length together, under a budget of tokens."""

import numpy as np
import pytest

from isosent.networks.batching import Layout, batches_of
from isosent.words.tokens import TokenIds

LENGTHS = [3, 9, 1, 4, 4, 30, 2, 9, 1, 5]


def tokens_of(lengths):
    return TokenIds.from_lists(
        [list(range(100 * row + 1, 100 * row + length + 1)) for row, length in enumerate(lengths)]
    )


@pytest.mark.parametrize("budget", [1, 5, 9, 18, 40, 1000])
@pytest.mark.parametrize("equal_lengths", [False, True])
def test_every_text_is_in_one_batch_within_the_budget(budget, equal_lengths):
    batches = list(batches_of(tokens_of(LENGTHS), Layout(budget, 0, equal_lengths)))
    assert sorted(np.concatenate([batch.rows for batch in batches]).tolist()) == list(range(len(LENGTHS)))
    for batch in batches:
        assert batch.input_ids.size <= budget or len(batch.rows) == 1
        for row, ids, mask in zip(batch.rows, batch.input_ids, batch.attention_mask, strict=True):
            assert ids[mask == 1].tolist() == list(range(100 * row + 1, 100 * row + LENGTHS[row] + 1))


def test_the_longest_come_first_and_no_batch_is_wider_than_its_longest_text():
    batches = list(batches_of(tokens_of(LENGTHS), Layout(18, 0)))
    assert [batch.input_ids.shape for batch in batches] == [(1, 30), (2, 9), (3, 5), (4, 3)]
    assert [batch.rows.tolist() for batch in batches] == [[5], [1, 7], [9, 3, 4], [0, 6, 2, 8]]


def test_padding_stands_on_the_right_and_is_the_id_that_was_named():
    [batch] = batches_of(tokens_of([1, 3]), Layout(100, 77))
    assert batch.input_ids.tolist() == [[101, 102, 103], [1, 77, 77]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.pooling_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert {array.dtype for array in batch.arrays} == {np.dtype(np.int64)}


def test_leading_tokens_that_are_not_pooled_are_seen_all_the_same():
    [batch] = batches_of(tokens_of([2, 4, 5]), Layout(100, 0, n_unpooled=3))
    assert batch.attention_mask.sum(axis=1).tolist() == [5, 4, 2]
    assert batch.pooling_mask.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]


def test_texts_of_equal_lengths_have_no_padding():
    batches = list(batches_of(tokens_of(LENGTHS), Layout(1000, 0, equal_lengths=True)))
    assert all(batch.attention_mask.all() for batch in batches)
    assert [batch.input_ids.shape for batch in batches] == [(1, 30), (2, 9), (1, 5), (2, 4), (1, 3), (1, 2), (2, 1)]


def test_no_text_is_no_batch():
    assert list(batches_of(tokens_of([]), Layout(10, 0))) == []


@pytest.mark.parametrize("lengths", [[4, 4], [5, 3, 2], [6, 6, 6, 6, 1]])
def test_halves_are_the_whole(lengths):
    [batch] = batches_of(tokens_of(lengths), Layout(1000, 0, n_unpooled=1))
    first, second = batch.halves()
    assert 0 < len(first.rows) <= len(second.rows) <= len(first.rows) + 1
    for whole, upper, lower in zip(
        (batch.rows, *batch.arrays), (first.rows, *first.arrays), (second.rows, *second.arrays), strict=True
    ):
        np.testing.assert_array_equal(np.concatenate([upper, lower]), whole)
