"""What onnxruntime, and what torch compiles, computes of a network is what torch computes of it."""

import copy
import pickle
import resource
import signal

import numpy as np
import pytest
import torch
from tiny_models import TEXTS

import isosent
from isosent.errors import InputError, MissingExtraError, OutputError
from isosent.exports.check import EXPORT
from isosent.io import atomic
from isosent.io.atomic import _host, replacing_folder
from isosent.networks import onnx_backend as graph_cache
from isosent.networks.layer_pooling import LayerPooling
from isosent.networks.load import load_network
from isosent.networks.onnx_backend import OnnxBackend, with_int8_products, write_graph
from isosent.networks.torch_backend import traceable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SHAPES = [(1, 1), (1, 20), (6, 9), (11, 2)]


class Largest(torch.nn.Module):
    """Counts the tokens, and stops tracing where asked to."""

    def __init__(self, factor=1.0, *, untraceable=False):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))
        self.untraceable = untraceable
        self.n_traced = 0

    def forward(self, input_ids, attention_mask, pooling_mask):
        self.n_traced += 1
        if self.untraceable and int(input_ids.sum()) > 0:
            raise ValueError
        return (self.factor * (input_ids + attention_mask + pooling_mask).sum(dim=1, keepdim=True),)


@pytest.fixture(scope="session")
def graphs(tmp_path_factory):
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(autouse=True)
def cache(monkeypatch, graphs):
    monkeypatch.setenv("ISOSENT_CACHE", str(graphs))
    return graphs / "isosent" / "graphs"


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path))
    return tmp_path / "isosent" / "graphs"


@pytest.fixture(scope="module")
def opened(tiny_model):
    """A tiny network with two readings by its name, what torch computes of them, and the id of its padding."""
    networks = {}

    def opened(name):
        if name not in networks:
            network = load_network(tiny_model(name, n_layers=2 if name == "modernbert" else 1))
            written = [("-1", "mean"), ("0,1", "max,cls,last_token")]
            layer_poolings = [LayerPooling.of(*parts, n_layers=network.n_layers) for parts in written]
            module = traceable(network.model, network.n_layers, layer_poolings)
            networks[name] = module, by_torch(module), network.pad_id
        return networks[name]

    return opened


def by_torch(module):
    def compute(*arrays):
        with torch.inference_mode():
            return [tensor.numpy() for tensor in module(*map(torch.from_numpy, arrays))]

    return compute


def batch(shape, pad_id, *, left=False):
    """Random tokens; each text is one token shorter than the one before, down to one token."""
    generator = np.random.default_rng(0)
    input_ids = generator.integers(4, 24, shape)
    n_tokens = np.maximum(shape[1] - np.arange(shape[0]), 1)
    mask = (np.arange(shape[1]) < n_tokens[:, None]).astype(np.int64)
    mask = mask[:, ::-1].copy() if left else mask
    return np.where(mask, input_ids, pad_id), mask, mask


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_vectors_are_those_of_torch(name, opened):
    module, expected_of, pad_id = opened(name)
    backend = OnnxBackend(module, name)
    for shape in SHAPES:
        for left in (False, True):
            arrays = batch(shape, pad_id, left=left)
            for found, expected in zip(backend(*arrays), expected_of(*arrays), strict=True):
                assert found.dtype == np.float32
                np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_prompt_that_is_not_pooled_is_left_out(opened):
    module, expected_of, pad_id = opened("bert")
    input_ids, mask, _ = batch((2, 9), pad_id)
    pooled = mask.copy()
    pooled[:, :3] = 0
    found, expected = OnnxBackend(module, "bert")(input_ids, mask, pooled)[0], expected_of(input_ids, mask, pooled)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_calls_from_several_threads_do_not_mix(opened):
    from concurrent.futures import ThreadPoolExecutor

    module, _, pad_id = opened("bert")
    backend = OnnxBackend(module, "bert")
    batches = [batch((n_texts, 12), pad_id) for n_texts in range(1, 17)]
    alone = [backend(*arrays)[0] for arrays in batches]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda arrays: backend(*arrays)[0], batches))
    for found, expected in zip(together, alone, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_int8_is_close_to_float32(name, opened):
    module, expected_of, pad_id = opened(name)
    arrays = batch((6, 12), pad_id)
    for found, expected in zip(OnnxBackend(module, name, dtype="int8")(*arrays), expected_of(*arrays), strict=True):
        assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)
        assert (found != expected).any()


def test_in_int8_the_vector_of_a_text_does_not_depend_on_its_batch(opened):
    module, _, pad_id = opened("bert")
    backend = OnnxBackend(module, "bert", dtype="int8")
    arrays = batch((6, 12), pad_id)
    together = backend(*arrays)[0]
    alone = np.concatenate([backend(*(array[row : row + 1] for array in arrays))[0] for row in range(6)])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("n_rows", [7, 64])
def test_whole_products_do_not_overflow_on_any_processor(n_rows):
    import onnx
    import onnxruntime

    generator = np.random.default_rng(0)
    weight = generator.choice([-1.0, 1.0], (n_rows, 5)).astype(np.float32)
    rows = generator.choice([-1.0, 1.0], (9, n_rows)).astype(np.float32)
    helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["rows", "weight"], ["products"])],
        "product",
        [helper.make_tensor_value_info("rows", FLOAT, ["n_texts", n_rows])],
        [helper.make_tensor_value_info("products", FLOAT, ["n_texts", 5])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    model = with_int8_products(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    assert "MatMul" not in [node.op_type for node in model.graph.node]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"rows": rows})[0], rows @ weight, atol=0.02 * n_rows)


def test_a_graph_is_traced_once(empty_cache):
    arrays = [np.ones((3, 4), np.int64)] * 3
    for dtype in ("float32", "int8"):
        first, second = Largest(), Largest()
        found = [OnnxBackend(module, "key", dtype=dtype)(*arrays)[0] for module in (first, second)]
        np.testing.assert_array_equal(*found)
        assert second.n_traced == 0
    assert len(list(empty_cache.iterdir())) == 2


def test_another_module_has_another_graph(empty_cache):
    arrays = [np.ones((1, 4), np.int64)] * 3
    assert OnnxBackend(Largest(1.0), "one")(*arrays)[0] == 12
    assert OnnxBackend(Largest(2.0), "two")(*arrays)[0] == 24


def test_a_damaged_graph_is_made_again(empty_cache):
    OnnxBackend(Largest(), "key")
    [path] = empty_cache.glob("*/graph.onnx")
    path.write_bytes(b"damaged")
    assert OnnxBackend(Largest(), "key")(*[np.ones((1, 4), np.int64)] * 3)[0] == 12
    assert path.stat().st_size > 7


def test_the_graphs_used_last_are_kept(empty_cache):
    import os

    for number in range(18):
        with graph_cache.cached_graph(str(number), lambda path: path.write_text("graph")) as path:
            os.utime(path.parent, (number, number))
    assert sorted(path.name for path in empty_cache.iterdir()) == sorted(map(str, range(2, 18)))


def test_without_a_cache_it_warns_and_goes_on(tmp_path, monkeypatch):
    (tmp_path / "isosent").write_text("no folder")
    monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path))
    with pytest.warns(isosent.errors.CacheWarning, match="Set ISOSENT_CACHE to another folder"):
        backend = OnnxBackend(Largest(), "key")
    assert backend(*[np.ones((1, 4), np.int64)] * 3)[0] == 12


def test_what_fails_leaves_nothing_in_the_cache(empty_cache):
    with pytest.raises(InputError, match=r"backend onnx: torch cannot trace .* Use backend=torch\."):
        OnnxBackend(Largest(untraceable=True), "key")
    assert list(empty_cache.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(package, empty_cache, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is not installed.*isosent\[onnx\]"):
        OnnxBackend(Largest(), "key")


def test_a_number_type_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="dtype must be one of float32, int8; got float16"):
        OnnxBackend(Largest(), "key", dtype="float16")


def test_a_compiled_network_gives_the_same_vectors_and_no_warning_of_the_compiler(tiny_model, monkeypatch):
    """Traced as ever; code of its own, which takes the compiler half a minute, is not written."""
    compile_, compiled = torch.compile, []
    monkeypatch.setattr(
        torch, "compile", lambda module, **how: compiled.append(how) or compile_(module, backend="eager", **how)
    )
    reference = f"hf:{tiny_model('bert', n_layers=1)}?layers=1"
    plain, model = (isosent.load(f"{reference}&backend={name}") for name in ("torch", "compiled"))
    for texts in (TEXTS, TEXTS[:1]):
        np.testing.assert_allclose(model.encode(texts), plain.encode(texts), atol=2e-6)
    assert compiled == [{"dynamic": True}]


def test_a_compiled_graph_is_made_again_behind_a_pickle(tiny_model, empty_cache):
    model = isosent.load(f"hf:{tiny_model('bert', n_layers=1)}?backend=onnx")
    expected = model.encode(TEXTS)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(copied.encode(TEXTS), expected)
        assert copied.fingerprint == model.fingerprint


def test_a_changed_byte_of_a_graph_is_noticed(empty_cache):
    OnnxBackend(Largest(), "key")
    (graph,) = empty_cache.glob("*/graph.onnx")
    content = graph.read_bytes()
    for place in np.linspace(0, len(content) - 1, 20).astype(int):
        graph.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with graph_cache.cached_graph(graph.parent.name, lambda path: path.write_bytes(content)) as path:
            assert path.read_bytes() == content


def test_what_a_killed_run_left_is_removed_and_what_a_live_one_makes_is_not(empty_cache, monkeypatch):
    left = empty_cache / f".a.isosent-{_host()}-4194300-0123abcd.tmp"  # no process has such a number
    left.mkdir(parents=True)
    (left / "graph.onnx").write_text("half")

    def make(path):
        monkeypatch.setattr(atomic, "_SWEPT", set())
        with graph_cache.cached_graph("b", lambda path: path.write_text("another")):
            pass
        path.write_text("graph")

    with graph_cache.cached_graph("a", make) as path:
        assert path.read_text() == "graph"
    assert sorted(path.name for path in empty_cache.iterdir()) == ["a", "b"]


def test_a_full_disk_while_a_graph_is_written_is_told(tmp_path):
    inputs = {name: torch.ones(2, 3, dtype=torch.int64) for name in ("input_ids", "attention_mask", "pooling_mask")}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with (
            pytest.raises(OutputError, match="out could not be written: File too large"),
            replacing_folder(tmp_path / "out", EXPORT) as folder,
        ):
            write_graph(folder / "model.onnx", Largest(), inputs, where="export")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []
