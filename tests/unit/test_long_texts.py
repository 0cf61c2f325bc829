"""Windows of long texts, against a loop that knows nothing of how they are cut."""

import numpy as np
import pytest

from isosent.encoders.transformer import WindowRule, windows_of
from isosent.words.tokens import TokenIds


def rows_of(tokens):
    return [
        tokens.ids[start:stop].tolist() for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
    ]


def framed(n_own, n_leading=1, n_closing=1, first=100):
    return [*range(1, n_leading + 1), *range(first, first + n_own), *range(50, 50 + n_closing)]


def plain_windows(own, room, overlap):
    """Each window begins `overlap` tokens before the end of the one before; the last one ends with the text."""
    cuts, end = [], 0
    while end < len(own):
        begin = max(0, end - overlap)
        cuts.append((own[begin : begin + room], min(begin + room, len(own)) - end))
        end = begin + room
    return cuts


@pytest.mark.parametrize("n_leading", [0, 1, 4])
@pytest.mark.parametrize("n_closing", [0, 1])
@pytest.mark.parametrize("overlap", [0, 1, 5])
def test_windows_are_those_of_a_plain_loop(n_leading, n_closing, overlap):
    room = 6
    rule = WindowRule(room + n_leading + n_closing, overlap, n_leading, n_closing)
    leading, closing = framed(0, n_leading, 0), framed(0, 0, n_closing)
    for n_own in (1, 5, 6, 7, 11, 12, 13, 40):
        windows = windows_of(TokenIds.from_lists([framed(n_own, n_leading, n_closing)]), rule)
        expected = plain_windows(list(range(100, 100 + n_own)), room, overlap)
        assert rows_of(windows.tokens) == [[*leading, *own, *closing] for own, _ in expected]
        assert windows.weights.tolist() == [fresh for _, fresh in expected]
        assert windows.weights.sum() == n_own
        assert windows.tokens.lengths.max() <= rule.max_length


def test_texts_within_the_maximum_stay_whole():
    lists = [framed(3), framed(4), framed(1), [1, 50]]
    windows = windows_of(TokenIds.from_lists(lists), WindowRule(6, 2, 1, 1))
    assert rows_of(windows.tokens) == lists
    assert windows.starts.tolist() == [0, 1, 2, 3]
    vectors = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_array_equal(windows.joined(vectors), vectors)


def test_a_text_is_the_mean_of_its_windows_and_every_token_counts_once():
    windows = windows_of(TokenIds.from_lists([framed(2), framed(10), framed(4), framed(5)]), WindowRule(6, 1, 1, 1))
    assert windows.starts.tolist() == [0, 1, 4, 5]
    assert windows.weights.tolist() == [2, 4, 3, 3, 4, 4, 1]
    vectors = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    joined = windows.joined(vectors)
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined[[0, 2]], vectors[[0, 4]])
    np.testing.assert_allclose(joined[1], (4 * vectors[1] + 3 * vectors[2] + 3 * vectors[3]) / 10, atol=1e-6)
    np.testing.assert_allclose(joined[3], (4 * vectors[5] + vectors[6]) / 5, atol=1e-6)


def test_no_text_has_no_window():
    windows = windows_of(TokenIds.from_lists([]), WindowRule(6, 1, 1, 1))
    assert windows.joined(np.zeros((0, 4), np.float32)).shape == (0, 4)
