"""Folders with an ONNX file in place of weights, against numpy and torch."""

import pickle

import numpy as np
import onnx
import pytest
import tiny_models
import torch
from onnx import TensorProto, helper, numpy_helper

import isosent
from isosent.errors import FileFormatError, InputError, IsosentError
from isosent.exports import export
from isosent.training import read_examples, train

pytestmark = pytest.mark.usefixtures("one_thread")
DIM, TEXTS = 6, tiny_models.TEXTS
TABLE = np.random.default_rng(0).normal(size=(len(tiny_models.VOCABULARY), DIM)).astype(np.float32)


def states_of(ids, scale=1.0):
    """What the graph computes of one text: each token and the mean of all."""
    tokens = scale * TABLE[ids]
    return tokens + tokens.mean(axis=0)


def write_graph(
    path,
    *,
    scale=1.0,
    inputs=("input_ids", "attention_mask"),
    kind=TensorProto.INT64,
    shape=("n", "m"),
    outputs=None,
    rounds=False,
):
    """A graph by hand; with `rounds`, its states are rounded by the largest of the whole batch."""
    constants = [
        numpy_helper.from_array(np.float32(scale) * TABLE, "table"),
        numpy_helper.from_array(np.array([1]), "axis"),
        numpy_helper.from_array(np.array([2]), "last"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["tokens", "column"], ["seen"]),
        helper.make_node("ReduceSum", ["seen", "axis"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["column", "axis"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["tokens", "mean"], ["exact" if rounds else "states"]),
        helper.make_node("ReduceMean", ["states", "axis"], ["pooled"], keepdims=0),
    ]
    if rounds:
        nodes.insert(8, helper.make_node("DynamicQuantizeLinear", ["exact"], ["whole", "step", "zero"]))
        nodes.insert(9, helper.make_node("DequantizeLinear", ["whole", "step", "zero"], ["states"]))
    given = [helper.make_tensor_value_info(name, kind, shape) for name in inputs]
    shapes = {"states": ("n", "m", DIM), "pooled": ("n", DIM), "mask": ("n", "m")}
    made = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs or ("pooled", "states")
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "by hand", given, made, constants),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def write_folder(folder, files=("model.onnx",), *, pooling="mean", normalize=False, **how):
    """A sentence-transformers folder without weights."""
    tiny_models.save_model(folder, "bert")
    (folder / "model.safetensors").unlink()
    kinds = ["Transformer", *([] if pooling is None else ["Pooling"]), *(["Normalize"] if normalize else [])]
    modules = [
        {"idx": place, "name": str(place), "path": f"{place}_{kind}" if place else "", "type": f"{PLACE}{kind}"}
        for place, kind in enumerate(kinds)
    ]
    if pooling is not None:
        tiny_models.write_json(folder / "modules.json", modules)
        tiny_models.write_json(folder / "1_Pooling" / "config.json", {f"pooling_mode_{pooling}_tokens": True})
    for number, file in enumerate(files):
        write_graph(folder / file, scale=number + 1.0, **how)
    return folder


PLACE = "sentence_transformers.models."


def by_hand(folder, texts, pooling="mean", scale=1.0, *, normalize=False):
    ids = tiny_models.token_ids(folder, texts)
    rows = np.stack([tiny_models.plain_pooling(states_of(row, scale), pooling) for row in ids])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) if normalize else rows


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"kind": TensorProto.INT32},
        {"inputs": ("input_ids", "attention_mask", "token_type_ids")},
        {"outputs": ("mask", "states", "pooled")},
    ],
    ids=str,
)
def test_vectors_are_those_of_the_graph_with_the_pooling_of_the_folder(how, pooling, normalize, tmp_path):
    folder = write_folder(tmp_path / "model", pooling=pooling, normalize=normalize, **how)
    model = isosent.load(str(folder))
    expected = by_hand(folder, TEXTS, pooling, normalize=normalize)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=2e-6)
    np.testing.assert_allclose(model.encode(TEXTS[1:2]), expected[1:2], atol=2e-6)
    assert not model.encode(["", " "]).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_a_network_that_torch_exports_has_the_vectors_of_torch(tmp_path):
    folder = tiny_models.save_model(tmp_path / "model", "bert")
    network = tiny_models.loaded(folder)
    ids = torch.tensor([[2, 5, 6, 3], [2, 5, 3, 1]])
    axes = {0: torch.export.Dim("n"), 1: torch.export.Dim("m")}
    with torch.inference_mode():
        torch.onnx.export(
            network,
            (ids, (ids != 1).long()),
            str(folder / "model.onnx"),
            dynamo=True,
            verbose=False,
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state", "pooler_output"],
            dynamic_shapes=(axes, axes),
        )
    states = tiny_models.hidden_states(folder, tiny_models.token_ids(folder, TEXTS))
    (folder / "model.safetensors").unlink()
    for pooling in ("mean", "cls", "weighted_mean"):
        expected = [tiny_models.plain_pooling(of_text[-1], pooling) for of_text in states]
        np.testing.assert_allclose(isosent.load(f"{folder}?pooling={pooling}").encode(TEXTS), expected, atol=5e-6)


@pytest.mark.parametrize(
    ("files", "named", "number"),
    [
        (("model.onnx", "model_O4.onnx"), None, 0),
        (("model_O4.onnx", "model.onnx"), "model_O4.onnx", 0),
        (("onnx/model_quantized.onnx", "onnx/model.onnx"), None, 1),
        (("onnx/model_quantized.onnx", "onnx/model.onnx"), "onnx/model_quantized.onnx", 0),
        (("only.onnx",), None, 0),
    ],
)
def test_the_file_is_the_named_one_or_model_onnx(files, named, number, tmp_path):
    folder = write_folder(tmp_path / "model", files)
    model = isosent.load(str(folder), **({"graph": named} if named else {}))
    np.testing.assert_allclose(model.encode(TEXTS), by_hand(folder, TEXTS, scale=number + 1.0), atol=5e-6)
    assert model.encoder.options["graph"] == files[number]


def test_a_file_is_computed_in_place_of_the_weights_if_it_is_named(tiny_model, tmp_path):
    folder = tiny_models.save_model(tmp_path / "model", "bert")
    write_graph(folder / "onnx" / "model.onnx")
    np.testing.assert_array_equal(
        isosent.load(f"{folder}").encode(TEXTS), isosent.load(tiny_model("bert")).encode(TEXTS)
    )
    model = isosent.load(f"{folder}?graph=onnx/model.onnx&pooling=max")
    np.testing.assert_allclose(model.encode(TEXTS), by_hand(folder, TEXTS, "max"), atol=2e-6)


def test_a_text_is_computed_alone_if_the_file_rounds_by_the_whole_batch(tmp_path):
    model = isosent.load(str(write_folder(tmp_path / "model", rounds=True)))
    alone = np.vstack([model.encode([text]) for text in TEXTS])
    np.testing.assert_array_equal(model.encode(TEXTS), alone)
    exact = by_hand(tmp_path / "model", TEXTS)
    assert 1e-4 < np.abs(alone - exact).max() < 0.1  # rounded indeed


def test_saved_fitted_and_pickled(tmp_path):
    folder = write_folder(tmp_path / "graph", ("model.onnx", "other.onnx"))
    model = isosent.load(str(folder)).fitted(TEXTS * 5, transform=isosent.Whitening(3))
    model.save(tmp_path / "saved")
    again = isosent.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.fingerprint == model.fingerprint
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).encode(TEXTS), model.encode(TEXTS))
    assert isosent.load(f"{folder}?graph=other.onnx").fingerprint != isosent.load(str(folder)).fingerprint
    write_graph(folder / "model.onnx", scale=3.0)
    with pytest.raises(InputError, match="encoder"):
        isosent.load(tmp_path / "saved").encode(TEXTS)


def test_weights_in_a_file_of_any_name_are_part_of_the_fingerprint(tmp_path):
    folder, fingerprints = write_folder(tmp_path / "model"), set()
    for scale in (1.0, 2.0):
        write_graph(folder / "model.onnx", scale=scale)
        graph = onnx.load(str(folder / "model.onnx"))
        (folder / "model.onnx_data_1").unlink(missing_ok=True)  # it would be appended to
        how = {"save_as_external_data": True, "location": "model.onnx_data_1", "size_threshold": 100}
        onnx.save(graph, str(folder / "model.onnx"), **how)
        model = isosent.load(str(folder))
        np.testing.assert_allclose(model.encode(TEXTS), by_hand(folder, TEXTS, scale=scale), atol=5e-6)
        fingerprints.add(model.fingerprint)
    assert len(fingerprints) == 2


def test_a_file_that_onnxruntime_has_optimized_is_computed_alone_too(tmp_path):
    folder = write_folder(tmp_path / "model")
    graph = onnx.load(str(folder / "model.onnx"))
    weights = np.round(np.eye(DIM) * 100 + 100).astype(np.uint8)
    for name, value in (("whole", weights), ("step", np.float32(0.01)), ("zero", np.uint8(100))):
        graph.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    graph.graph.node[7].output[0] = "exact"
    inputs = ["exact", "whole", "step", "zero"]
    product = helper.make_node("DynamicQuantizeMatMul", inputs, ["states"], domain="com.microsoft")
    graph.graph.node.insert(8, product)
    graph.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(graph, str(folder / "model.onnx"))
    model = isosent.load(str(folder))
    alone = np.vstack([model.encode([text]) for text in TEXTS])
    np.testing.assert_array_equal(model.encode(TEXTS), alone)
    np.testing.assert_allclose(alone, by_hand(folder, TEXTS), atol=0.1)


def test_files_of_training_are_no_weights(tmp_path):
    folder = write_folder(tmp_path / "model")
    (folder / "training_args.bin").write_bytes(b"pickle")
    np.testing.assert_allclose(isosent.load(str(folder)).encode(TEXTS), by_hand(folder, TEXTS), atol=2e-6)


def test_the_vectors_of_prompts_and_windows(tmp_path):
    folder = write_folder(tmp_path / "model")
    prompted = isosent.load(str(folder), prompt="find : {text} and the")
    asked = [f"find : {text} and the" for text in TEXTS]
    np.testing.assert_allclose(prompted.encode(TEXTS), by_hand(folder, asked), atol=2e-6)
    windows = isosent.load(f"{folder}?long=windows&max_length=12&overlap=0").encode(["man dog " * 10])
    whole = [by_hand(folder, ["man dog " * 5])[0]] * 2
    np.testing.assert_allclose(windows[0], np.mean(whole, axis=0), atol=2e-6)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"outputs": ("pooled",)}, "pooled"),
        ({"inputs": ("input_ids", "attention_mask", "past_key_values.0.key")}, "past_key_values.0.key"),
        ({"shape": (1, 128)}, "128"),
    ],
    ids=str,
)
def test_a_graph_of_another_kind_is_refused(how, named, tmp_path):
    folder = write_folder(tmp_path / "model", **how)
    with pytest.raises(FileFormatError, match=rf"model\.onnx.*{named}"):
        isosent.load(str(folder))


def test_folders_that_lack_something_are_refused(tmp_path):
    folder = write_folder(tmp_path / "bare", pooling=None)
    with pytest.raises(FileFormatError, match="pooling=cls"):
        isosent.load(str(folder))
    several = write_folder(tmp_path / "several", ("a.onnx", "b.onnx"))
    with pytest.raises(FileFormatError, match=r"graph=FILE.*a\.onnx, b\.onnx"):
        isosent.load(str(several))
    with pytest.raises(FileFormatError, match=r"no model_O4\.onnx"):
        isosent.load(f"{several}?graph=model_O4.onnx")
    with pytest.raises(InputError, match="graph"):
        isosent.load(f"{several}?graph=../a.onnx")
    for content, word in ((b"no graph", "onnxruntime"), (b"version https://git-lfs", "git lfs pull")):
        (several / "a.onnx").write_bytes(content)
        with pytest.raises(FileFormatError, match=word):
            isosent.load(f"{several}?graph=a.onnx")
    (folder / "config.json").unlink()
    with pytest.raises(FileFormatError, match=r"config\.json"):
        isosent.load(str(folder))


@pytest.mark.parametrize(
    "options", ["layers=1", "layers=0,-1", "dtype=int8", "dtype=bfloat16", "backend=torch", "static=true"]
)
def test_what_needs_weights_is_refused(options, tmp_path):
    folder = write_folder(tmp_path / "model")
    with pytest.raises(IsosentError, match=r"ONNX|layers|safetensors"):
        isosent.load(f"{folder}?{options}").encode(TEXTS)


def test_it_cannot_be_trained_or_exported_as_a_network(tmp_path):
    folder = write_folder(tmp_path / "model")
    model = isosent.load(str(folder))
    for target in ("onnx", "sentence-transformers"):
        with pytest.raises(InputError, match=r"ONNX file"):
            export(model, target, tmp_path / "out")
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "a dog\ta man\t1\nhorse\tred\t0\n" * 8)
    examples = read_examples("regression", [tmp_path / "pairs.tsv"], score_range=(0, 1))
    with pytest.raises(InputError, match=r"ONNX file"):
        train(str(folder), examples, tmp_path / "trained")
