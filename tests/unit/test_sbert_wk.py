import warnings

import numpy as np
import pytest
import sbert_wk_reference
import torch

from isosent.errors import InputError
from isosent.networks.layer_pooling import sbert_wk, sbert_wk_layers

LENGTHS = (6, 1, 4, 2, 3)
TOLERANCE = 1e-6


def network_like(n_layers, seed=0, dim=16):
    """Layers that change step by step, each token at its own pace."""
    rng = np.random.default_rng(seed)
    pace = rng.uniform(0.1, 1.0, size=(n_layers, len(LENGTHS), max(LENGTHS), 1))
    steps = pace * rng.normal(size=(n_layers, len(LENGTHS), max(LENGTHS), dim))
    return (rng.normal(size=dim) + np.cumsum(steps, axis=0)).astype(np.float32)


def mask():
    return (np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]).astype(np.int64)


def plain(hidden_states):
    return np.array(
        [sbert_wk_reference.sbert_wk_vector(hidden_states[:, text, :length]) for text, length in enumerate(LENGTHS)]
    )


def fused(hidden_states, attention_mask):
    """Sentence vectors of arrays, as an array."""
    return sbert_wk(
        *(torch.from_numpy(np.ascontiguousarray(array)) for array in (hidden_states, attention_mask))
    ).numpy()


def assert_near(found, expected):
    assert np.isfinite(found).all()
    lengths = np.maximum(np.linalg.norm(expected, axis=1), 1e-30)
    assert (np.linalg.norm(np.asarray(found, np.float64) - expected, axis=1) / lengths).max() < TOLERANCE


def test_the_plain_code_on_a_token_done_by_hand():
    """Layers (1, 0), (3, 4): both have one neighbour, are as novel (4 / 5), and align with it fully once projected."""
    token = np.array([[1.0, 0.0], [3.0, 4.0]])
    assert sbert_wk_reference.alignment_and_novelty(token, 1, 2) == pytest.approx((1 / (2 * 2 * 1), 0.8))
    np.testing.assert_allclose(sbert_wk_reference.unified_token(token, 2), [2, 2])


def test_the_plain_code_weighs_tokens_by_the_variance_of_their_steps():
    """Cosines 0 and 1 of the first token, 0 and 0 of the second; the third is left out."""
    changing, still = np.array([[1, 0], [0, 1], [0, 1]]), np.array([[1, 0], [0, 1], [1, 0]])
    found = sbert_wk_reference.sbert_wk_vector(np.stack([changing, still, 9 * changing], axis=1))
    np.testing.assert_allclose(found, sbert_wk_reference.unified_token(changing.astype(float), 2))


@pytest.mark.parametrize("n_layers", [2, 3, 5, 9])
def test_sbert_wk_is_its_definition(n_layers):
    hidden_states = network_like(n_layers)
    found = fused(hidden_states, mask())
    assert found.dtype == np.float32
    assert_near(found, plain(hidden_states))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_more_layers_than_dimensions(dim):
    """Where a window spans the whole space, no layer in it is novel."""
    hidden_states = network_like(6, dim=dim) + np.float32(4)
    assert_near(fused(hidden_states, mask()), plain(hidden_states))


def repeated(hidden_states):
    hidden_states[2] = hidden_states[1]
    return hidden_states


def scaled(hidden_states):
    hidden_states[3] = 2 * hidden_states[1]
    return hidden_states


def with_zeros(hidden_states):
    hidden_states[[0, 3], :, ::2] = 0
    return hidden_states


def opposite(hidden_states):
    hidden_states[2] = -hidden_states[1]
    return hidden_states


def all_the_same(hidden_states):
    hidden_states[:] = hidden_states[0]
    return hidden_states


def perpendicular(hidden_states):
    hidden_states[:] = np.eye(hidden_states.shape[0], hidden_states.shape[3])[:, None, None]
    return hidden_states


def all_zero(hidden_states):
    return 0 * hidden_states


@pytest.mark.parametrize("spoil", [repeated, scaled, with_zeros, opposite, all_the_same, perpendicular, all_zero])
def test_degenerate_windows_have_finite_weights(spoil):
    hidden_states = spoil(network_like(5))
    assert_near(fused(hidden_states, mask()), plain(hidden_states))


def test_equal_layers_are_that_layer():
    hidden_states = all_the_same(network_like(4))
    tokens = [hidden_states[0, text, : max(1, length - 1)] for text, length in enumerate(LENGTHS)]
    np.testing.assert_allclose(
        fused(hidden_states, mask()), [rows.mean(axis=0) for rows in tokens], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("rubbish", [1e30, np.nan, np.inf])
def test_what_stands_under_the_padding_is_invisible(rubbish):
    hidden_states = network_like(5)
    spoilt = np.where(mask()[:, :, None] == 1, hidden_states, np.float32(rubbish))
    np.testing.assert_array_equal(fused(spoilt, mask()), fused(hidden_states, mask()))


def test_padding_on_the_left_is_invisible_too():
    hidden_states = network_like(5)
    moved = np.full_like(hidden_states, np.nan)
    for text, length in enumerate(LENGTHS):
        moved[:, text, max(LENGTHS) - length :] = hidden_states[:, text, :length]
    np.testing.assert_allclose(fused(moved, mask()[:, ::-1]), fused(hidden_states, mask()), rtol=1e-6, atol=1e-6)


def test_a_text_without_tokens_is_the_zero_row():
    hidden_states, attention_mask = network_like(4), mask()
    hidden_states[:, 2] = np.nan
    attention_mask[2] = 0
    found = fused(hidden_states, attention_mask)
    assert found.any(axis=1).tolist() == [True, True, False, True, True]
    assert np.isfinite(found).all()


def test_no_texts_have_no_rows():
    found = fused(np.zeros((3, 0, 4, 5), dtype=np.float32), np.zeros((0, 4), dtype=np.int64))
    assert found.shape == (0, 5)


def test_layers_may_come_one_by_one():
    hidden_states, attention_mask = torch.from_numpy(network_like(5)), torch.from_numpy(mask())
    assert torch.equal(sbert_wk(list(hidden_states), attention_mask), sbert_wk(hidden_states, attention_mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_torch_tensors_of_every_precision(dtype):
    hidden_states = torch.from_numpy(network_like(6)).to(dtype)
    found = sbert_wk(hidden_states, torch.from_numpy(mask()))
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_near(found.numpy(), plain(hidden_states.double().numpy()))


def test_automatic_mixed_precision_changes_nothing():
    tensors = torch.from_numpy(network_like(5)), torch.from_numpy(mask())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = sbert_wk(*tensors)
    assert torch.equal(found, sbert_wk(*tensors))


@pytest.mark.slow
def test_torch_traces_it_for_any_number_of_texts_and_tokens():
    class Pool(torch.nn.Module):
        def forward(self, hidden_states, attention_mask):
            return sbert_wk(hidden_states, attention_mask)

    texts, tokens = torch.export.Dim("n_texts"), torch.export.Dim("seq_len")
    shapes = {"hidden_states": {1: texts, 2: tokens}, "attention_mask": {0: texts, 1: tokens}}
    inputs = torch.from_numpy(network_like(5)), torch.from_numpy(mask())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        traced = torch.export.export(Pool(), inputs, dynamic_shapes=shapes).module()
    attention_mask = (torch.arange(11) > torch.arange(7)[:, None]).long()
    hidden_states = torch.randn(5, 7, 11, 16, generator=torch.Generator().manual_seed(1)).cumsum(0)
    torch.testing.assert_close(traced(hidden_states, attention_mask), sbert_wk(hidden_states, attention_mask))


@pytest.mark.parametrize(
    ("n_layers", "expected"),
    [(1, (0, 1)), (2, (0, 1, 2)), (3, (1, 2, 3)), (6, (2, 3, 4, 5, 6)), (12, (*range(4, 13),)), (24, (*range(8, 25),))],
)
def test_the_lowest_third_of_the_layers_is_left_out(n_layers, expected):
    assert sbert_wk_layers(n_layers) == expected


def test_one_layer_is_refused():
    with pytest.raises(InputError, match="hidden_states must have 2 layers or more; got 1"):
        fused(network_like(1), mask())
