"""Hidden states as they come by: one at a time, from the lowest on, and no more of them than are wanted."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from tiny_models import N_LAYERS, VOCABULARY, network_of

from isosent.networks.layer_pooling import LayerPooling
from isosent.networks.torch_backend import LayerTaps, Readout

pytestmark = pytest.mark.usefixtures("one_thread")

IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 9, 3, 1]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])


@pytest.fixture
def bert():
    return network_of("bert", len(VOCABULARY))


def states_of(model):
    with torch.inference_mode():
        output = model(input_ids=IDS, attention_mask=MASK, output_hidden_states=True)
    return [*output.hidden_states[:-1], output.last_hidden_state]


@pytest.mark.parametrize("wanted", [[0], [N_LAYERS], [1], [0, 2], [3, 0], [2, 1], range(N_LAYERS + 1)])
@pytest.mark.parametrize("name", ["bert", "albert", "xlnet", "llama"])
def test_layers_are_visited_once_each_from_the_lowest_on(name, wanted):
    model = network_of(name, len(VOCABULARY))
    taps, seen = LayerTaps(model, N_LAYERS), []
    with torch.inference_mode():
        taps.run(IDS, MASK, wanted, lambda layer, states: seen.append((layer, states)))
    assert [layer for layer, _ in seen] == sorted(wanted)
    for (layer, states), expected in zip(seen, (states_of(model)[layer] for layer in sorted(wanted)), strict=True):
        torch.testing.assert_close(states, expected, rtol=0, atol=0, msg=f"layer {layer}")


def test_memory_does_not_grow_with_the_layers_that_are_pooled():
    """What a layer takes in, what it gives, and what the network was given are alive; no other states are."""
    taps, alive, most = LayerTaps(network_of("bert", len(VOCABULARY), num_hidden_layers=8), 8), [], []

    def visit(layer, states):
        alive.append(weakref.ref(states))
        most.append(sum(state() is not None for state in alive))

    with torch.inference_mode():
        taps.run(IDS, MASK, range(9), visit)
    assert len(most) == 9
    assert max(most) <= 3


def test_pooling_keeps_no_states(bert):
    taps, alive = LayerTaps(bert, N_LAYERS), []
    readout = Readout([LayerPooling.of("all", "mean,max,cls,p_mean", n_layers=N_LAYERS)], MASK)

    def visit(layer, states):
        alive.append(weakref.ref(states))
        readout.visit(layer, states)

    gc.freeze()  # what was imported is no garbage, and takes a second to look at
    with torch.inference_mode():
        taps.run(IDS, MASK, range(N_LAYERS + 1), visit)
        [vectors] = readout.vectors()
    gc.collect()
    assert not any(state() is not None for state in alive)
    expected = torch.stack(states_of(bert))[:, 0].mean(dim=1).mean(dim=0)
    torch.testing.assert_close(vectors[0, : len(expected)], expected, rtol=0, atol=2e-6)


def test_a_network_is_as_before_outside_of_a_run(bert):
    before = states_of(bert)
    taps = LayerTaps(bert, N_LAYERS)
    with torch.inference_mode():
        taps.run(IDS, MASK, [1], lambda layer, states: None)
    for found, expected in zip(states_of(bert), before, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_visitor_that_fails_leaves_nothing_behind(bert):
    taps = LayerTaps(bert, N_LAYERS)

    def fail(layer, states):
        raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        taps.run(IDS, MASK, [0], fail)
    seen = {}
    with torch.inference_mode():
        taps.run(IDS, MASK, [0, 3], seen.__setitem__)
        states_of(bert)
    assert list(seen) == [0, 3]


def test_two_taps_and_two_threads_on_one_network_do_not_see_each_other(bert):
    expected = states_of(bert)
    every, low = LayerTaps(bert, N_LAYERS), LayerTaps(bert, N_LAYERS)
    start, failures = threading.Barrier(4), []

    def run(taps, wanted):
        start.wait()
        for _ in range(20):
            seen = {}
            with torch.inference_mode():
                taps.run(IDS, MASK, wanted, seen.__setitem__)
            if list(seen) != wanted or any(not torch.equal(seen[layer], expected[layer]) for layer in wanted):
                failures.append(wanted)

    threads = [
        threading.Thread(target=run, args=args)
        for args in ((every, [0, 1, 2, 3]), (every, [2]), (low, [0]), (low, [1, 3]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_tapped_network_can_be_copied(bert):
    taps = LayerTaps(bert, N_LAYERS)
    other = copy.deepcopy(bert)
    with torch.no_grad():
        other.embeddings.word_embeddings.weight.zero_()
    seen, of_other = {}, {}
    with torch.inference_mode():
        LayerTaps(other, N_LAYERS).run(IDS, MASK, [0], of_other.__setitem__)
        taps.run(IDS, MASK, [0], seen.__setitem__)
    torch.testing.assert_close(seen[0], states_of(bert)[0], rtol=0, atol=0)
    torch.testing.assert_close(of_other[0], states_of(other)[0], rtol=0, atol=0)
    assert not torch.equal(seen[0], of_other[0])


def test_one_layer_is_enough():
    model = network_of("bert", len(VOCABULARY), num_hidden_layers=1)
    taps, seen = LayerTaps(model, 1), {}
    assert taps.stops_early
    with torch.inference_mode():
        taps.run(IDS, MASK, [0, 1], seen.__setitem__)
    for layer, expected in enumerate(states_of(model)):
        torch.testing.assert_close(seen[layer], expected, rtol=0, atol=0)
