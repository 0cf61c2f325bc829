import numpy as np
import pytest
import torch

from isosent.numeric.pooling import POOLINGS

LENGTHS = [4, 1, 3]


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    token_embeddings = rng.normal(size=(3, 4, 5)).astype(np.float32)
    attention_mask = (np.arange(4) < np.array(LENGTHS)[:, None]).astype(np.int64)
    return token_embeddings, attention_mask


EXPECTED = {
    "cls": lambda tokens: tokens[0],
    "max": lambda tokens: tokens.max(axis=0),
    "mean": lambda tokens: tokens.mean(axis=0),
    "mean_sqrt_len_tokens": lambda tokens: tokens.sum(axis=0) / np.sqrt(len(tokens)),
    "weightedmean": lambda tokens: np.average(tokens, axis=0, weights=np.arange(1, len(tokens) + 1)),
    "lasttoken": lambda tokens: tokens[-1],
}


@pytest.mark.parametrize("name", POOLINGS)
def test_a_pooling_is_its_definition(batch, name):
    token_embeddings, attention_mask = batch
    expected = [EXPECTED[name](row[:length]) for row, length in zip(token_embeddings, LENGTHS, strict=True)]
    np.testing.assert_allclose(POOLINGS[name](token_embeddings, attention_mask), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rubbish", [1e30, -1e30, np.nan, np.inf])
@pytest.mark.parametrize("name", POOLINGS)
def test_what_stands_under_the_padding_is_invisible(batch, name, rubbish):
    token_embeddings, attention_mask = batch
    spoilt = np.where(attention_mask[:, :, None] == 1, token_embeddings, np.float32(rubbish))
    with np.errstate(invalid="ignore"):
        found = POOLINGS[name](spoilt, attention_mask)
    np.testing.assert_array_equal(found, POOLINGS[name](token_embeddings, attention_mask))


@pytest.mark.parametrize("name", POOLINGS)
def test_padding_on_the_left_is_invisible_too(batch, name):
    token_embeddings, attention_mask = batch
    flipped = POOLINGS[name](token_embeddings[:, ::-1], attention_mask[:, ::-1])
    expected = [EXPECTED[name](row[:length][::-1]) for row, length in zip(token_embeddings, LENGTHS, strict=True)]
    np.testing.assert_allclose(flipped, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", POOLINGS)
def test_torch_tensors_pool_as_numpy_arrays_do(batch, name):
    from_torch = POOLINGS[name](*map(torch.from_numpy, batch))
    np.testing.assert_allclose(from_torch.numpy(), POOLINGS[name](*batch), rtol=1e-6, atol=1e-6)
