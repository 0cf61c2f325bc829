"""Every layer and pooling of every architecture, in one pass, against a plain loop: no padding, one text at a time."""

import functools

import numpy as np
import pytest
import torch
import transformers
from tiny_models import (
    CONFIGS,
    DECODERS,
    DIM,
    N_LAYERS,
    STOPPING,
    TEXTS,
    hidden_states,
    loaded,
    plain_pooling,
    plain_vectors,
    token_ids,
)

import isosent
from isosent.errors import InputError, InputTypeError, ModelReferenceError, PaddingWarning
from isosent.networks.layer_pooling import LayerPooling, sbert_wk
from isosent.networks.torch_backend import LayerTaps, TorchNetwork

pytestmark = pytest.mark.usefixtures("one_thread")

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "last_token", "weighted_mean", "p_mean")
LAYERS = {
    "last": {3: 1},
    "0": {0: 1},
    "1,-1": {1: 1, 3: 1},
    "L1+L2": {1: 1, 2: 1},
    "-2": {2: 1},
    "all": {0: 1, 1: 1, 2: 1, 3: 1},
    "first_last_avg": {1: 1, 3: 1},
    "last2": {2: 1, 3: 1},
    "0.3*1,0.7*-1": {1: 0.3, 3: 0.7},
    "3*0..1,1*3": {0: 3, 1: 3, 3: 1},
}
ATOL = 2e-6


@pytest.fixture(scope="module", params=list(CONFIGS))
def name(request):
    return request.param


@functools.cache
def plain_states(folder):
    return hidden_states(folder, token_ids(folder, TEXTS))


@functools.cache
def opened(folder):
    return isosent.load(f"hf:{folder}")


def test_one_pass_gives_every_layer_and_pooling(name, tiny_model):
    folder = tiny_model(name)
    encoder, states = opened(folder).encoder, plain_states(folder)
    cells = [(layers, pooling) for layers in LAYERS for pooling in POOLINGS]
    found = encoder.read(TEXTS, [encoder.layer_pooling(*cell) for cell in cells])
    for (layers, pooling), vectors in zip(cells, found, strict=True):
        expected = plain_vectors(states, LAYERS[layers], pooling)
        scale = max(1, np.abs(expected).max())
        np.testing.assert_allclose(vectors / scale, expected / scale, atol=ATOL, err_msg=f"{layers} {pooling}")


def test_sbert_wk_is_that_of_the_whole_unpadded_layers(name, tiny_model):
    folder = tiny_model(name)
    encoder, states = opened(folder).encoder, plain_states(folder)
    cells = {"all": [0, 1, 2, 3], "0,-1,2": [0, 2, 3]}
    found = encoder.read(TEXTS, [encoder.layer_pooling(layers, "sbert_wk") for layers in cells])
    for layers, vectors in zip(cells.values(), found, strict=True):
        inputs = [(torch.from_numpy(of_text[layers][:, None]), torch.ones((1, of_text.shape[1]))) for of_text in states]
        alone = [sbert_wk(*tensors) for tensors in inputs]
        np.testing.assert_allclose(vectors, np.concatenate(alone), atol=1e-5)


@pytest.mark.parametrize(
    "options", ["layers=1,-1&pooling=max", "layers=0.3*0,0.7*2&pooling=cls,p_mean", "pooling=sbert_wk"]
)
def test_an_encoder_opened_with_options_reads_the_same(tiny_model, options):
    folder = tiny_model("bert")
    encoder = isosent.load(f"hf:{folder}?{options}").encoder
    parted = dict(part.split("=") for part in options.split("&"))
    reading = encoder.layer_pooling(parted.get("layers", encoder.options["layers"]), parted["pooling"])
    [read] = opened(folder).encoder.read(TEXTS, [reading])
    np.testing.assert_array_equal(read, encoder.encode(TEXTS))
    assert read.shape[1] == encoder.dim


def test_the_layers_of_sbert_wk_are_those_of_its_paper_unless_named(tiny_model):
    assert isosent.load(f"hf:{tiny_model('bert')}?pooling=sbert_wk").encoder.options["layers"] == "1,2,3"
    assert isosent.load(f"hf:{tiny_model('bert')}?pooling=sbert_wk&layers=0..2").encoder.options["layers"] == "0,1,2"


def test_a_pass_over_the_network_is_made_once_for_all_readings(tiny_model, monkeypatch):
    encoder = isosent.load(f"hf:{tiny_model('bert')}?backend=torch&batch_tokens=40").encoder
    shapes = []
    monkeypatch.setattr(
        TorchNetwork,
        "__call__",
        lambda self, ids, *masks, real=TorchNetwork.__call__: shapes.append(ids.shape) or real(self, ids, *masks),
    )
    passes = []
    for cells in ([("-1", "mean")], [(layers, pooling) for layers in LAYERS for pooling in POOLINGS]):
        encoder.read(TEXTS, [encoder.layer_pooling(*cell) for cell in cells])
        passes.append(sorted(shapes))
        shapes.clear()
    assert passes[0] == passes[1]
    assert len(passes[0]) == 2


class counted:  # noqa: N801
    """Count the texts that go through modules."""

    def __init__(self, modules):
        self.calls = [0] * len(modules)
        self.modules = list(modules)

    def __enter__(self):
        self.hooks = [
            module.register_forward_pre_hook(functools.partial(self._count, place), with_kwargs=True)
            for place, module in enumerate(self.modules)
        ]
        return self.calls

    def _count(self, place, module, args, kwargs):
        self.calls[place] += len(args[0] if args else kwargs["hidden_states"])

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()


IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 1], [2, 5, 3, 1, 1]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])


@pytest.mark.parametrize("name", [*STOPPING, "t5", "bart"])
def test_layers_above_the_highest_one_wanted_are_not_computed(name, tiny_model):
    model = loaded.__wrapped__(tiny_model(name))
    taps = LayerTaps(model, N_LAYERS)
    assert taps.stops_early
    with torch.inference_mode():
        states = model(input_ids=IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
        for highest in range(N_LAYERS):
            seen = {}
            with counted(taps._stack) as calls:
                taps.run(IDS, MASK, range(highest + 1), seen.__setitem__)
            if name == "albert":  # one module, over and over
                assert calls == [len(IDS) * highest]
            else:
                assert calls == [len(IDS) * (place < highest) for place in range(N_LAYERS)]
            assert list(seen) == list(range(highest + 1))
            for layer, found in seen.items():
                torch.testing.assert_close(found, states[layer], rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "qwen2"])  # whose tokenizer pads anyway
def test_a_decoder_padded_on_the_left_and_one_without_padding_token_give_the_same(name, tiny_model):
    folder = tiny_model(name)
    assert transformers.AutoTokenizer.from_pretrained(folder).padding_side == "left"
    bare = tiny_model(name, has_padding=False)
    with pytest.warns(PaddingWarning, match="has no padding token; id 0 is used") as said:
        encoder = isosent.load(f"hf:{bare}?pooling=last_token")
    assert len(said) == 1
    vectors = encoder.encode(TEXTS)
    expected = np.stack([plain_pooling(of_text[-1], "last_token") for of_text in plain_states(folder)])
    np.testing.assert_allclose(vectors, expected, atol=ATOL)
    padded_right = isosent.load(f"hf:{tiny_model(name, padding_side='right')}?pooling=last_token")
    np.testing.assert_array_equal(vectors, padded_right.encode(TEXTS))


def test_labse_is_its_first_token_behind_a_dense_layer_with_tanh(tiny_model):
    folder = tiny_model("labse")
    from safetensors.numpy import load_file

    weights = load_file(folder / "2_Dense" / "model.safetensors")
    first = np.stack([of_text[-1, 0] for of_text in plain_states(folder)])
    expected = np.tanh(first @ weights["linear.weight"].T + weights["linear.bias"])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    model = isosent.load(f"hf:{folder}")
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=ATOL)
    assert {name: model.encoder.options[name] for name in ("pooling", "normalize", "max_length")} == {
        "pooling": "cls",
        "normalize": "true",
        "max_length": "32",
    }
    [read] = model.encoder.read(TEXTS, [model.encoder.layer_pooling("-1", "cls")])
    np.testing.assert_allclose(read, first, atol=ATOL)


def test_reading_keeps_the_order_and_gives_blank_texts_the_zero_row(tiny_model):
    encoder = opened(tiny_model("bert")).encoder
    texts = [*TEXTS, "", *TEXTS[::-1], "  ", TEXTS[2]]
    mean, powers = encoder.read(texts, [encoder.layer_pooling("all", "mean"), encoder.layer_pooling("0", "p_mean")])
    assert mean.shape == (len(texts), DIM)
    assert powers.shape == (len(texts), 3 * DIM)
    for vectors in (mean, powers):
        assert vectors.dtype == np.float32
        assert np.flatnonzero(~vectors.any(axis=1)).tolist() == [6, 13]
        np.testing.assert_array_equal(vectors[7:13], vectors[:6][::-1])
        np.testing.assert_array_equal(vectors[14], vectors[2])


def test_nothing_to_read_and_nobody_elses_reading(tiny_model):
    encoder = opened(tiny_model("bert")).encoder
    assert [each.shape for each in encoder.read([], [encoder.layer_pooling("0", "mean,cls")])] == [(0, 2 * DIM)]
    with pytest.raises(InputTypeError, match=r"Pass \[text\]"):
        encoder.read("a dog", [encoder.layer_pooling("0", "mean")])
    with pytest.raises(InputError, match="layer_poolings is empty"):
        encoder.read(TEXTS, [])
    with pytest.raises(InputError, match="no layer 4"):
        encoder.read(TEXTS, [LayerPooling.of("0,-1", "mean", n_layers=4)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("layers=4", r"no layer 4\. The layers are 0 to 3, or -4 to -1"),
        ("layers=-5", r"no layer -5\. The layers are 0 to 3, or -4 to -1"),
        ("layers=0..7", r"no layer 7\. The layers are 0 to 3, or -4 to -1"),
        ("layers=0,-4", "layer 0 occurs twice"),
        ("layers=all,1", "layers=all,1: choose layers as in"),
        ("layers=3..1", r"layers of a range must rise, and those of 3\.\.1"),
        ("layers=-1..1", r"layers of a range must rise, and those of -1\.\.1"),
        (
            "pooling=median",
            "pooling=median: choose among mean, cls, max, mean_sqrt_len, last_token, weighted_mean, p_mean, sbert_wk",
        ),
        ("pooling=mean,mean", "none twice"),
        ("pooling=lasttoken,last_token", "none twice"),
        ("pooling=sbert_wk&layers=-1", "layers=-1: pooling=sbert_wk needs two layers or more, without weights"),
        ("pooling=mean,sbert_wk&layers=0.2*1,0.8*2", "pooling=sbert_wk needs two layers or more, without weights"),
    ],
)
def test_layers_and_poolings_that_are_not_there_are_refused_with_what_is(tiny_model, options, words):
    with pytest.raises(ModelReferenceError, match=words) as refused:
        isosent.load(f"hf:{tiny_model('bert')}?{options}")
    assert len(str(refused.value).splitlines()) == 1
