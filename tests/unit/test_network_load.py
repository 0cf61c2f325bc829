"""Folders that cannot be opened, or only with permission: one sentence each, and what opens them."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import DIM, TEXTS, write_json
from untrusted import change_json, save_model_of_own_code

import isosent
from isosent.errors import FileFormatError, InputError, InputFileError, MissingExtraError, ModelReferenceError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bert(tiny_model):
    return tiny_model("bert")


@pytest.fixture
def copied(bert, tmp_path):
    """A copy of the folder of a tiny BERT, to be damaged."""
    return Path(shutil.copytree(bert, tmp_path / "copied"))


@pytest.fixture(scope="module")
def mine(bert, tmp_path_factory):
    """A folder of a model that only code in it knows: embeddings and one layer, twice."""
    return save_model_of_own_code(bert, tmp_path_factory.mktemp("code") / "mine")


def in_pickle(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match=r"is not a transformers model; it has no config\.json"):
        isosent.load(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    "content", ["", "version https://git-lfs.github.com/spec/v1\n", "{", "[1, 2]", '{"model_type": "bert"}', "null"]
)
def test_a_config_that_says_nothing_is_refused(copied, content):
    (copied / "config.json").write_text(content)
    with pytest.raises(FileFormatError, match=r"hf: .*copied"):
        isosent.load(f"hf:{copied}")


def test_missing_weights_are_refused(copied):
    weights = load_file(copied / "model.safetensors")
    weights.pop("encoder.layer.2.output.dense.weight")
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FileFormatError, match=r"lacks 1 weights .*encoder.layer.2.output.dense.weight"):
        isosent.load(f"hf:{copied}")


@pytest.mark.parametrize("n_bytes", [0, 5, 1000, -1])
def test_truncated_weights_are_refused(copied, n_bytes):
    whole = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(whole[:n_bytes])
    with pytest.raises(FileFormatError, match=r"hf: .*copied holds a damaged \.safetensors file"):
        isosent.load(f"hf:{copied}")


def test_a_pointer_of_git_lfs_is_told_from_weights(copied):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 90868376\n"
    (copied / "model.safetensors").write_text(pointer)
    with pytest.raises(
        FileFormatError, match=r"model\.safetensors is a Git LFS pointer, not the weights. Run: git lfs pull"
    ):
        isosent.load(f"hf:{copied}")


@pytest.mark.parametrize("with_first", [True, False])
def test_a_half_downloaded_folder_is_refused_with_what_lacks(copied, with_first):
    weights = load_file(copied / "model.safetensors")
    (copied / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-00001-of-00003.safetensors": names[:9], "model-00002-of-00003.safetensors": names[9:20]}
    parts["model-00003-of-00003.safetensors"] = names[20:]
    write_json(
        copied / "model.safetensors.index.json",
        {"metadata": {}, "weight_map": {name: part for part, held in parts.items() for name in held}},
    )
    if with_first:
        first = next(iter(parts))
        save_file({name: weights[name] for name in parts[first]}, copied / first, metadata={"format": "pt"})
    n_absent, absent = (2, "model-00002-of-00003") if with_first else (3, "model-00001-of-00003")
    words = rf"is incomplete: {n_absent} of the 3 weight files .* are missing, such as {absent}"
    with pytest.raises(FileFormatError, match=words):
        isosent.load(f"hf:{copied}")
    for part, held in parts.items():
        save_file({name: weights[name] for name in held}, copied / part, metadata={"format": "pt"})
    assert isosent.load(f"hf:{copied}").dim == DIM


def test_a_damaged_index_is_refused(copied):
    (copied / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"hf: .*copied.*index\.json: .*`weight_map`"):
        isosent.load(f"hf:{copied}")


def test_no_weights_at_all_are_told_from_pickled_ones(copied):
    (copied / "model.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"has no weights in \.safetensors. The download may be incomplete"):
        isosent.load(f"hf:{copied}?pickled_weights=true")


def test_pickled_weights_are_read_only_if_asked_for(bert, copied):
    in_pickle(copied)
    with pytest.raises(
        FileFormatError, match=r"pickles are not loaded by default.* pickled_weights=true if you trust pyt"
    ):
        isosent.load(f"hf:{copied}")
    model = isosent.load(f"hf:{copied}?pickled_weights=true")
    expected = isosent.load(f"hf:{bert}")
    np.testing.assert_array_equal(model.encode(TEXTS), expected.encode(TEXTS))
    assert model.fingerprint == expected.fingerprint


def test_safetensors_are_preferred_to_pickles(bert, copied):
    (copied / "pytorch_model.bin").write_bytes(b"never looked at")
    for permission in ("", "?pickled_weights=true"):
        np.testing.assert_array_equal(
            isosent.load(f"hf:{copied}{permission}").encode(TEXTS), isosent.load(f"hf:{bert}").encode(TEXTS)
        )


def test_a_pickle_that_would_run_something_does_not(copied, tmp_path):
    class Runs:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    (copied / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Runs()}, copied / "pytorch_model.bin")
    with pytest.raises(FileFormatError, match=r"hf: .*copied: its pickled weights hold code"):
        isosent.load(f"hf:{copied}?pickled_weights=true")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_tokenizer_is_refused(copied, name):
    (copied / name).write_text("{")
    with pytest.raises(FileFormatError, match=r"hf: (.*copied.*)?(transformers could not load|damaged)"):
        isosent.load(f"hf:{copied}")


def test_a_folder_without_a_tokenizer_is_refused(copied):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied / name).unlink()
    with pytest.raises(FileFormatError, match=r"hf: .*copied"):
        isosent.load(f"hf:{copied}")


@pytest.mark.parametrize("options", ["", "?trust_remote_code=false"])
@pytest.mark.parametrize("kind", ["mine", "bert"])
@pytest.mark.usefixtures("own_modules")
def test_code_in_a_folder_is_named_and_not_run_unasked_even_where_somebody_answers_yes(
    mine, tmp_path, monkeypatch, options, kind
):
    folder = Path(shutil.copytree(mine, tmp_path / "copied"))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    change_json(folder / "config.json", model_type=kind)
    monkeypatch.setattr("builtins.input", lambda *question: "y")
    named = r"of the kind 'mine', which needs code from its folder \(mine.Mine, mine.MineConfig\).*trust_remote_code="
    with pytest.raises(FileFormatError, match=named if kind == "mine" else "hf: "):
        isosent.load(f"hf:{folder}{options}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("own_modules")
def test_code_is_run_where_it_is_trusted(mine):
    model = isosent.load(f"hf:{mine}?trust_remote_code=true&layers=0,1,2&pooling=max")
    weights = load_file(mine / "model.safetensors")
    expected = []
    for ids in model.encoder.tokenizer(TEXTS)["input_ids"]:
        states = [weights["words.weight"][ids]]
        for _ in range(2):
            states.append(torch.tanh(states[-1] @ weights["mix.weight"].T + weights["mix.bias"]))
        expected.append(sum(state.max(dim=0).values for state in states) / 3)
    np.testing.assert_allclose(model.encode(TEXTS), torch.stack(expected).numpy(), atol=2e-6)
    assert "trust_remote_code" not in model.encoder.options


@pytest.mark.usefixtures("own_modules")
def test_a_model_without_hidden_states_gives_its_last_layer_only(mine, tmp_path):
    folder = Path(shutil.copytree(mine, tmp_path / "mute"))
    change_json(folder / "config.json", tells_layers=False)
    last = isosent.load(f"hf:{folder}?trust_remote_code=true").encode(TEXTS)
    np.testing.assert_allclose(last, isosent.load(f"hf:{mine}?trust_remote_code=true").encode(TEXTS), atol=2e-6)
    for layers in ("0", "1,-1", "all"):
        with pytest.raises(InputError, match="this network gives the hidden states of its last layer only"):
            isosent.load(f"hf:{folder}?trust_remote_code=true&layers={layers}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("layers=99", r"no layer 99\. The layers are 0 to 3, or -4 to -1\.$"),
        ("layers=2&pooling=sbert_wk", "layers=2: pooling=sbert_wk needs two layers or more, without weights"),
        ("layers=frist", "layers=frist: choose layers as in "),
        ("pooling=maen", "pooling=maen: choose among mean, "),
    ],
)
def test_layers_and_poolings_that_are_not_there_are_refused_before_the_weights_are_read(copied, options, words):
    (copied / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelReferenceError, match=words):
        isosent.load(f"hf:{copied}?{options}")


@pytest.mark.parametrize("location", ["./nowhere", "~/nowhere-at-all", "/nowhere"])
def test_a_folder_that_is_not_there_is_refused(location):
    with pytest.raises(InputFileError, match=r"no such folder\. Name a folder, or an id on the hub"):
        isosent.load(f"hf:{location}")


def test_a_hub_out_of_reach_is_told_with_the_way_round_it(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    words = r"hf: nobody/no-such-model@main is no folder here, and the hub did not give .*as in \./NAME"
    with pytest.raises(InputFileError, match=words):
        isosent.load("hf:nobody/no-such-model@main")


@pytest.mark.parametrize(
    ("options", "in_first", "asked"),
    [
        ("", True, [["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]]),
        ("?pickled_weights=true", True, [["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]]),
        (
            "?pickled_weights=true",
            False,
            [
                ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"],
                ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors", "*.bin"],
            ],
        ),
        ("?trust_remote_code=true", True, [["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors", "*.py"]]),
    ],
)
def test_an_id_is_opened_from_the_hub_with_no_more_than_is_allowed(copied, monkeypatch, options, in_first, asked):
    if not in_first:
        in_pickle(copied)
    calls = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **how: calls.append((name, how)) or str(copied)
    )
    model = isosent.load(f"hf:owner/name@abc123{options}")
    assert model.encoder.reference == "hf:owner/name@abc123"
    assert [(name, how["revision"]) for name, how in calls] == [("owner/name", "abc123")] * len(asked)
    assert [how["allow_patterns"] for _, how in calls] == asked


@pytest.mark.parametrize("device", ["cuda:63", "cpu,cuda:63"])
def test_a_device_that_is_not_there_is_refused(bert, device):
    with pytest.raises(InputError, match="torch does not reach devices=cuda:63"):
        isosent.load(f"hf:{bert}?devices={device}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("backend=torch&dtype=int8", "backend torch cannot compute in int8. Choose one of float32, bfloat16, float16"),
        ("backend=onnx&dtype=bfloat16", "backend onnx cannot compute in bfloat16. Choose one of float32, int8"),
        ("backend=onnx&devices=cuda", "backend onnx runs on the CPU, not on cuda. Use backend torch"),
        ("dtype=int8&devices=cuda:1", "dtype int8 runs on the CPU, not on cuda:1. Use float16"),
    ],
)
def test_what_does_not_go_together_is_refused(bert, options, words):
    with pytest.raises(InputError, match=words):
        isosent.load(f"hf:{bert}?{options}")


@pytest.mark.parametrize(
    "options",
    [
        "backend=jax",
        "backend=openvino",
        "dtype=float8",
        "devices=cpu,cpu",
        "devices=",
        "devices=banana",
        "devices=cpu:x",
        "batch_tokens=0",
        "batch_tokens=many",
        "trust_remote_code=yes",
        "pickled_weights=1",
        "long=cut",
        "overlap=-1",
    ],
)
def test_an_option_outside_its_rule_is_refused(bert, options):
    with pytest.raises(ModelReferenceError, match=f"{options}: choose ") as refused:
        isosent.load(f"hf:{bert}?{options}")
    assert len(str(refused.value).splitlines()) == 1


def test_a_folder_that_is_not_there_is_named_although_torch_is_missing(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputFileError, match=r"\./nothere: no such folder"):
        isosent.load("hf:./nothere")
    with pytest.raises(MissingExtraError, match=r"torch.*nothere is no folder"):
        isosent.load("hf:nothere")
    (tmp_path / "here").mkdir()
    with pytest.raises(MissingExtraError) as caught:
        isosent.load("hf:here")
    assert "no folder" not in str(caught.value)
