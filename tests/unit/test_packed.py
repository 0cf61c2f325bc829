"""A packed network gives what the plain one gives, and leaves it alone."""

import pytest
import torch
import transformers

from isosent.networks import unpadded as packing
from isosent.networks.unpadded import packed

SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30}
BART = {"d_model": 24, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_attention_heads": 2, "vocab_size": 30}
CONFIGS = {
    "bert": transformers.BertConfig(**SMALL),
    "roberta": transformers.RobertaConfig(**SMALL),
    "xlm-roberta": transformers.XLMRobertaConfig(**SMALL),
    "distilbert": transformers.DistilBertConfig(dim=24, n_layers=3, n_heads=2, hidden_dim=32, vocab_size=30),
    "mpnet": transformers.MPNetConfig(**SMALL),
    "modernbert": transformers.ModernBertConfig(**SMALL, pad_token_id=1, cls_token_id=2, sep_token_id=3),
    "electra": transformers.ElectraConfig(**SMALL, embedding_size=24),
    "fnet": transformers.FNetConfig(hidden_size=24, num_hidden_layers=3, intermediate_size=32, vocab_size=30),
    "albert": transformers.AlbertConfig(**SMALL, embedding_size=12),
    "xlnet": transformers.XLNetConfig(d_model=24, n_layer=3, n_head=2, d_inner=32, vocab_size=30),
    "bart": transformers.BartConfig(**BART, encoder_layers=3, decoder_layers=3, decoder_attention_heads=2),
    "gpt2": transformers.GPT2Config(n_embd=24, n_layer=3, n_head=2, n_positions=40, vocab_size=30),
    "t5": transformers.T5Config(d_model=24, d_kv=12, d_ff=32, num_layers=3, num_heads=2, vocab_size=30),
    "deberta-v2": transformers.DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"]),
}
IDS = torch.arange(4, 28).view(3, 8)
MASK = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 2 + [0] * 6])


def plain(name):
    torch.manual_seed(0)
    config = CONFIGS[name]
    model = transformers.T5EncoderModel(config) if name == "t5" else transformers.AutoModel.from_config(config)
    return (model.get_encoder() if name == "bart" else model).eval()


def hidden_states(model):
    with torch.inference_mode():
        output = model(input_ids=IDS, attention_mask=MASK, output_hidden_states=True, return_dict=True)
    return [*output.hidden_states, output.last_hidden_state]


@pytest.fixture
def n_products(monkeypatch):
    """Count the products of packed matrices."""
    calls = []

    def counted(grad_is_wanted, product, plain_product, rows):
        calls.append(rows.shape)
        return product(rows)

    monkeypatch.setattr(packing, "_forward", counted)
    return calls


@pytest.mark.parametrize("name", CONFIGS)
def test_every_layer_is_as_before(name, n_products):
    model = plain(name)
    for before, after in zip(hidden_states(model), hidden_states(packed(model)), strict=True):
        torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)
    assert n_products


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_model_itself_stays_as_it_is(dtype):
    model = plain("bert")
    parameters = {name: (id(tensor), tensor.clone()) for name, tensor in model.named_parameters()}
    packed(model, dtype)
    assert not any("forward" in vars(module) for module in model.modules())
    for name, tensor in model.named_parameters():
        assert id(tensor) == parameters[name][0]
        torch.testing.assert_close(tensor, parameters[name][1], atol=0, rtol=0)


def test_parameters_are_shared_in_float32():
    model = plain("bert")
    assert [id(tensor) for tensor in packed(model).parameters()] == [id(tensor) for tensor in model.parameters()]


def test_bfloat16_is_close_and_uses_half_the_memory():
    model = plain("bert")
    low = packed(model, "bfloat16")
    assert {tensor.dtype for tensor in low.parameters()} == {torch.bfloat16}
    for before, after in zip(hidden_states(model), hidden_states(low), strict=True):
        torch.testing.assert_close(after.float(), before, atol=0.1, rtol=0)


def test_a_network_without_bfloat16_stays_in_float32():
    model = plain("fnet")
    low = packed(model, "bfloat16")
    assert {tensor.dtype for tensor in low.parameters()} == {torch.float32}
    torch.testing.assert_close(hidden_states(low)[-1], hidden_states(model)[-1], atol=1e-5, rtol=1e-5)


def test_hooks_on_layers_see_their_hidden_states():
    model = packed(plain("bert"))
    seen = []
    for layer in model.encoder.layer:
        layer.register_forward_hook(lambda module, args, output: seen.append(output))
    states = hidden_states(model)
    for found, expected in zip(seen, states[1:4], strict=True):
        torch.testing.assert_close(found if torch.is_tensor(found) else found[0], expected, atol=0, rtol=0)


def test_gradients_go_the_plain_way():
    model = packed(plain("bert"))
    model(input_ids=IDS, attention_mask=MASK).last_hidden_state.sum().backward()
    assert model.encoder.layer[0].intermediate.dense.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("problem", ["missing", "refuses", "wrong"])
def test_a_product_that_cannot_be_trusted_is_not_used(problem, monkeypatch):
    def refuses(*args):
        raise RuntimeError("not on this processor")

    operations = {
        "missing": object(),
        "refuses": type("Namespace", (), {"_reorder_linear_weight": staticmethod(refuses)}),
        "wrong": type(
            "Namespace",
            (),
            {
                "_reorder_linear_weight": staticmethod(lambda weight: weight),
                "_linear_pointwise": type(
                    "Packet", (), {"default": staticmethod(lambda x, w, b, *_: torch.nn.functional.linear(x, w) * 1.1)}
                ),
            },
        ),
    }
    monkeypatch.setattr(packing, "_operations", lambda torch: operations[problem])
    model = plain("bert")
    twin = packed(model)
    assert not any("forward" in vars(module) for module in twin.modules())
    torch.testing.assert_close(hidden_states(twin)[-1], hidden_states(model)[-1], atol=0, rtol=0)


def test_a_packed_network_computes_in_several_threads():
    from concurrent.futures import ThreadPoolExecutor

    model = packed(plain("bert"))
    expected = hidden_states(model)[-1]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: hidden_states(model)[-1], range(16)):
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
