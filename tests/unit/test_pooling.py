import warnings

import numpy as np
import pytest
import torch

from isosent.networks.pooling import POOLING_ALIASES, POOLINGS, pooled_width

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
    "mean_sqrt_len": lambda tokens: tokens.sum(axis=0) / np.sqrt(len(tokens)),
    "weighted_mean": lambda tokens: np.average(tokens, axis=0, weights=np.arange(1, len(tokens) + 1)),
    "last_token": lambda tokens: tokens[-1],
    "p_mean": lambda tokens: np.concatenate([tokens.min(axis=0), tokens.mean(axis=0), tokens.max(axis=0)]),
}


def pooled(name, token_embeddings, attention_mask):
    """What a pooling makes of arrays, as an array."""
    tensors = (torch.from_numpy(np.ascontiguousarray(array)) for array in (token_embeddings, attention_mask))
    return POOLINGS[name](*tensors).numpy()


every_pooling = pytest.mark.parametrize("name", POOLINGS)


@every_pooling
def test_a_pooling_is_its_definition(batch, name):
    token_embeddings, attention_mask = batch
    expected = [EXPECTED[name](row[:length]) for row, length in zip(token_embeddings, LENGTHS, strict=True)]
    found = pooled(name, token_embeddings, attention_mask)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert found.dtype == np.float32
    assert found.shape[1] == pooled_width(name, 5)


@pytest.mark.parametrize("rubbish", [1e30, -1e30, np.nan, np.inf])
@every_pooling
def test_what_stands_under_the_padding_is_invisible(batch, name, rubbish):
    token_embeddings, attention_mask = batch
    spoilt = np.where(attention_mask[:, :, None] == 1, token_embeddings, np.float32(rubbish))
    found = pooled(name, spoilt, attention_mask)
    np.testing.assert_array_equal(found, pooled(name, token_embeddings, attention_mask))


@every_pooling
def test_padding_on_the_left_is_invisible_too(batch, name):
    token_embeddings, attention_mask = batch
    flipped = pooled(name, token_embeddings[:, ::-1], attention_mask[:, ::-1])
    expected = [EXPECTED[name](row[:length][::-1]) for row, length in zip(token_embeddings, LENGTHS, strict=True)]
    np.testing.assert_allclose(flipped, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [np.int32, np.float32, np.bool_])
@every_pooling
def test_a_mask_may_have_any_type(batch, name, kind):
    token_embeddings, attention_mask = batch
    found = pooled(name, token_embeddings, attention_mask.astype(kind))
    np.testing.assert_array_equal(found, pooled(name, token_embeddings, attention_mask))


@pytest.mark.parametrize("rubbish", [1.0, np.nan])
@every_pooling
def test_a_text_without_tokens_is_the_zero_row(batch, name, rubbish):
    token_embeddings, attention_mask = batch
    token_embeddings[1] = rubbish
    attention_mask[1] = 0
    found = pooled(name, token_embeddings, attention_mask)
    assert found.any(axis=1).tolist() == [True, False, True]
    assert np.isfinite(found).all()


@every_pooling
def test_no_texts_have_no_rows(name):
    found = pooled(name, np.zeros((0, 4, 5), dtype=np.float32), np.zeros((0, 4), dtype=np.int64))
    assert found.shape == (0, pooled_width(name, 5))
    assert found.dtype == np.float32


@every_pooling
def test_a_nan_in_a_token_stays_in_its_own_text(batch, name):
    token_embeddings, attention_mask = batch
    token_embeddings[0, [0, 3]] = np.nan
    found = pooled(name, token_embeddings, attention_mask)
    assert np.isnan(found).all(axis=1).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_pooling
def test_half_precision_is_summed_in_float32(name, dtype):
    """300 tokens of 1 to 1.5: in bfloat16 a sum stops growing at 256."""
    halves = (1 + torch.rand(2, 300, 6, generator=torch.Generator().manual_seed(0)) / 2).to(dtype)
    attention_mask = torch.ones(2, 300, dtype=torch.int64)
    found = POOLINGS[name](halves, attention_mask)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), POOLINGS[name](halves.double(), attention_mask), rtol=1e-6, atol=0)


@every_pooling
def test_automatic_mixed_precision_rounds_no_sum(batch, name):
    tensors = [torch.from_numpy(array) for array in batch]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = POOLINGS[name](*tensors)
    torch.testing.assert_close(found, POOLINGS[name](*tensors))


@every_pooling
def test_torch_traces_a_pooling_for_any_number_of_texts_and_tokens(batch, name):
    class Pool(torch.nn.Module):
        def forward(self, token_embeddings, attention_mask):
            return POOLINGS[name](token_embeddings, attention_mask)

    texts, tokens = torch.export.Dim("n_texts"), torch.export.Dim("seq_len")
    shapes = {"token_embeddings": {0: texts, 1: tokens}, "attention_mask": {0: texts, 1: tokens}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        traced = torch.export.export(Pool(), tuple(map(torch.from_numpy, batch)), dynamic_shapes=shapes).module()
    other = torch.rand(7, 11, 5), (torch.arange(11) > torch.arange(7)[:, None]).long()
    torch.testing.assert_close(traced(*other), POOLINGS[name](*other))


def test_the_spellings_of_sentence_transformers_are_known():
    assert sorted(POOLING_ALIASES) == ["lasttoken", "mean_sqrt_len_tokens", "weightedmean"]
    assert set(POOLING_ALIASES.values()) <= set(POOLINGS)
    assert not set(POOLING_ALIASES) & set(POOLINGS)
