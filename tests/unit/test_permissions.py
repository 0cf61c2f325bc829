"""Nothing in a folder or file runs, downloads or unpickles anything unless the caller permits it, every time."""

import json
import re
import shutil
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_models import TEXTS, save_labse, write_json
from untrusted import change_json, save_model_of_own_code, save_pickle_that_runs

import isosent
from isosent.errors import FileFormatError, InputError, ModelFolderError, PermissionIgnoredWarning
from isosent.exports.sentence_transformers import export_sentence_transformers
from isosent.loading import read_record
from isosent.research.reproduce import reproduce
from isosent.training.base_models import open_base

pytestmark = pytest.mark.usefixtures("one_thread", "own_modules")

CODE, PICKLE = "trust_remote_code", "pickled_weights"
WAYS = ["options", "reference", "nested reference"]


@pytest.fixture(scope="module")
def bert(tiny_model):
    return tiny_model("bert")


@pytest.fixture
def marker(tmp_path):
    """A file that is there once something was run."""
    return tmp_path / "ran"


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch):
    """Whoever is asked whether code may run says yes, as people do."""
    monkeypatch.setattr("builtins.input", lambda *question: "y")


@pytest.fixture
def own_code(bert, tmp_path, marker):
    """The folder of a model with code of its own."""
    return save_model_of_own_code(bert, tmp_path / "own_code", marker)


@pytest.fixture
def pickled(bert, tmp_path):
    """The folder of a model with harmless weights in a pickle."""
    folder = Path(shutil.copytree(bert, tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.fixture
def known_kind(bert, tmp_path, marker):
    """A model that transformers knows, with code of its own for everything."""
    folder = Path(shutil.copytree(bert, tmp_path / "known_kind"))
    (folder / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    (folder / "custom_generate").mkdir()
    shutil.copy(folder / "mine.py", folder / "custom_generate" / "generate.py")
    names = ("Config", "Model", "ModelForTextEncoding", "Tokenizer", "Processor", "FeatureExtractor", "ImageProcessor")
    code = {f"Auto{name}": f"mine.Mine{name}" for name in names}
    change_json(folder / "config.json", auto_map=code)
    change_json(folder / "tokenizer_config.json", auto_map=code | {"AutoTokenizer": ["mine.Mine", "mine.MineFast"]})
    for name in ("processor_config.json", "preprocessor_config.json"):
        write_json(folder / name, {"auto_map": code, "processor_class": "MineProcessor"})
    return folder


def save(reference, folder):
    """Save the model of a reference; returns what it says of its encoder."""
    isosent.load(reference).save(folder)
    return json.loads((folder / "model.json").read_text("utf-8"))["encoder"]


def store(folder, encoder, permission, way):
    """Write a permission into a saved folder."""
    reference, options = encoder["reference"], dict(encoder["options"])
    if way == "options":
        options[permission] = "true"
    elif way == "reference":
        reference += f"?{permission}=true"
    else:
        reference += f"?encoder={reference}?{permission}=true"
    change_json(folder / "model.json", encoder=encoder | {"reference": reference, "options": options})


@pytest.mark.parametrize("way", WAYS)
def test_a_stored_permission_to_run_code_is_ignored(own_code, tmp_path, marker, way):
    folder = tmp_path / "saved"
    encoder = save(f"hf:{own_code}?trust_remote_code=true", folder)
    marker.unlink()
    store(folder, encoder, CODE, way)
    words = rf"(?s){re.escape(str(folder / 'model.json'))}.*trust_remote_code.*REFERENCE"
    with (
        pytest.warns(PermissionIgnoredWarning, match=words),
        pytest.raises(ModelFolderError, match="trust_remote_code"),
    ):
        isosent.load(folder)
    assert not marker.exists()
    if way != "nested reference":
        with pytest.warns(PermissionIgnoredWarning):
            assert isosent.load(f"{folder}?trust_remote_code=true").dim == 24


@pytest.mark.parametrize("way", WAYS)
def test_a_stored_permission_to_unpickle_is_ignored(pickled, tmp_path, way):
    folder = tmp_path / "saved"
    encoder = save(f"hf:{pickled}?pickled_weights=true", folder)
    store(folder, encoder, PICKLE, way)
    with pytest.warns(PermissionIgnoredWarning, match=PICKLE), pytest.raises(ModelFolderError, match=PICKLE):
        isosent.load(folder)


def test_a_folder_that_moves_with_its_encoder_cannot_grant_anything(own_code, tmp_path, marker):
    folder = tmp_path / "saved"
    encoder = save(f"hf:{own_code}?trust_remote_code=true", folder)
    shutil.move(own_code, folder / "encoder")
    marker.unlink()
    for reference in ("hf:encoder?trust_remote_code=true", "hf:encoder%3Ftrust_remote_code=true", "hf:encoder"):
        stored = encoder | {"reference": reference, "inside": True}
        stored["options"] = encoder["options"] | {CODE: "true"}
        change_json(folder / "model.json", encoder=stored)
        with pytest.warns(PermissionIgnoredWarning), pytest.raises(ModelFolderError):
            isosent.load(folder)
        assert not marker.exists()


@pytest.mark.parametrize(
    "options", [{"backend": "torch"}, {"devices": "cuda:63"}, {"dtype": "float16"}, {"batch_tokens": "7"}]
)
def test_a_stored_option_of_how_to_compute_is_ignored(bert, tmp_path, options):
    encoder = save(f"hf:{bert}", tmp_path / "saved")
    change_json(tmp_path / "saved" / "model.json", encoder=encoder | {"options": encoder["options"] | options})
    with pytest.warns(PermissionIgnoredWarning, match=next(iter(options))):
        model = isosent.load(tmp_path / "saved")
    np.testing.assert_array_equal(model.encode(TEXTS), isosent.load(f"hf:{bert}").encode(TEXTS))


def test_a_stored_reference_to_a_saved_model_is_refused(own_code, tmp_path, marker):
    encoder = save(f"hf:{own_code}?trust_remote_code=true", tmp_path / "inner")
    marker.unlink()
    shutil.copytree(tmp_path / "inner", tmp_path / "outer")
    stored = encoder | {"reference": str(tmp_path / "inner"), "options": {}}
    change_json(tmp_path / "outer" / "model.json", encoder=stored)
    with pytest.raises(ModelFolderError, match="saved model"):
        isosent.load(tmp_path / "outer")
    assert not marker.exists()


@pytest.mark.parametrize("how", ["behind the folder", "options", "encoder", "options of the encoder"])
def test_the_caller_grants_it_every_time(own_code, tmp_path, marker, how):
    model = isosent.load(f"hf:{own_code}?trust_remote_code=true")
    model.save(tmp_path / "saved")
    marker.unlink()
    with pytest.raises(ModelFolderError, match=CODE):
        isosent.load(tmp_path / "saved")
    assert not marker.exists()
    reference, options = {
        "behind the folder": (f"{tmp_path / 'saved'}?trust_remote_code=true", {}),
        "options": (tmp_path / "saved", {CODE: "true"}),
        "encoder": (f"{tmp_path / 'saved'}?encoder=hf:{own_code}?trust_remote_code=true", {}),
        "options of the encoder": (tmp_path / "saved", {"encoder": f"hf:{own_code}?trust_remote_code=true"}),
    }[how]
    again = isosent.load(reference, **options)
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    again.save(tmp_path / "again")
    assert CODE not in (tmp_path / "again" / "model.json").read_text("utf-8")


def test_a_model_of_vectors_takes_the_caller_s_permission_with_its_encoder(pickled, tmp_path):
    encoder = isosent.load(f"hf:{pickled}?pickled_weights=true").encoder
    np.save(tmp_path / "vectors.npy", encoder.encode(isosent.demo_texts()[:60]))
    source = isosent.load(f"hf:{pickled}?pickled_weights=true").record
    folder = tmp_path / "saved"
    isosent.load(f"hf:{pickled}?pickled_weights=true").save(folder)
    stored = json.loads((folder / "model.json").read_text("utf-8"))["encoder"]
    vectors = {"reference": "vectors", "options": {"fingerprint": source.encoder_fingerprint}}
    change_json(folder / "model.json", encoder=stored | vectors)
    assert isosent.load(f"{folder}?encoder=hf:{pickled}&pickled_weights=true").encode(TEXTS).shape == (6, encoder.dim)
    with pytest.raises(ModelFolderError, match=PICKLE):
        isosent.load(f"{folder}?encoder=hf:{pickled}")


def attacks(folder, tmp_path):
    """Every way to open a folder, or a file that names it, as name and function."""
    saved = tmp_path / "saved by somebody"
    encoder = {"reference": f"hf:{folder}", "options": {CODE: "true", PICKLE: "true", "pooling": "mean"}}
    isosent.load("wordllama").save(saved)
    stored = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    change_json(saved / "model.json", encoder=stored | encoder)
    granted = f"hf:{folder}?trust_remote_code=true&pickled_weights=true"
    paper = {"label": "a", "model": "here", "published": "unknown"}
    table = {"name": "table 1", "title": "t", "source": "s", "family": "sts", "columns": ["STSB"], "metric": "spearman"}
    head = {"name": "T", "title": "t", "citation": "c"}

    def map_of(reference, **condition):
        def measure():
            write_json(tmp_path / "map.yaml", {"here": reference})
            write_json(tmp_path / "paper.yaml", head | {"tables": [table | {"conditions": [paper | condition]}]})
            reproduce(
                tmp_path / "paper.yaml",
                tmp_path / "data",
                models=tmp_path / "map.yaml",
                n_resamples=2,
            )

        return measure

    return {
        "hf": lambda: isosent.load(f"hf:{folder}").encode(TEXTS),
        "pooling named": lambda: isosent.load(f"hf:{folder}?pooling=mean"),
        "token embeddings": lambda: isosent.load(f"hf:{folder}?static=true"),
        "static": lambda: isosent.load(f"static:{folder}"),
        "path": lambda: isosent.load(folder),
        "saved": lambda: isosent.load(saved),
        "record": lambda: read_record(saved),
        "moved": lambda: isosent.load(f"{saved}?encoder=hf:{folder}"),
        "base": lambda: open_base(f"hf:{folder}"),
        "base saved": lambda: open_base(saved),
        "exported": lambda: export_sentence_transformers(isosent.load(f"hf:{folder}"), tmp_path / "out"),
        "map": map_of(granted),
        "map of a saved model": map_of(f"{saved}?encoder={granted}"),
        "map of a saved model alone": map_of(str(saved)),
        "paper": map_of(f"hf:{folder}", options={CODE: "true", PICKLE: "true"}),
        "paper with an encoder": map_of(str(saved), options={"encoder": granted}),
    }


@pytest.mark.parametrize("kind", ["own code", "known kind", "custom module", "code of a module", "pickle", "index"])
def test_no_way_to_open_a_folder_runs_what_lies_in_it(request, bert, tmp_path, marker, write_stsb, kind):
    write_stsb(tmp_path / "data")
    folder = tmp_path / "evil"
    if kind == "own code":
        save_model_of_own_code(bert, folder, marker)
    elif kind == "known kind":
        shutil.move(request.getfixturevalue("known_kind"), folder)
    elif kind in ("custom module", "code of a module"):
        folder.mkdir()
        save_labse(folder)
        (folder / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Transformer: pass\n")
        modules = json.loads((folder / "modules.json").read_text())
        changed = [("mine.Transformer", 0), ("mine.Dense", 2)][kind == "code of a module"]
        modules[changed[1]]["type"] = changed[0]
        write_json(folder / "modules.json", modules)
        if kind == "code of a module":
            modules[2]["type"] = "sentence_transformers.models.Dense"
            write_json(folder / "modules.json", modules)
            change_json(folder / "2_Dense" / "config.json", activation_function="mine.Transformer")
    else:
        save_pickle_that_runs(bert, folder, marker)
        if kind == "index":
            write_json(
                folder / "model.safetensors.index.json",
                {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": "pytorch_model.bin"}},
            )
    outcomes = {}
    for name, attack in attacks(folder, tmp_path).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with suppress(InputError):  # what is refused is refused with a sentence; anything else is a fault
                attack()
                outcomes[name] = "opened"
        assert not marker.exists(), name
    assert ("hf" in outcomes) == (kind == "known kind")


def test_what_the_command_line_grants_reaches_a_saved_folder(own_code, tmp_path, marker, monkeypatch, capsys):
    from isosent.cli.main import main

    isosent.load(f"hf:{own_code}?trust_remote_code=true").save(tmp_path / "saved")
    marker.unlink()
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))

    def run(options=""):
        model = f"{tmp_path / 'saved'}{options}"
        arguments = ["encode", str(tmp_path / "texts.txt"), "-m", model, "-o", str(tmp_path / "v.npy")]
        monkeypatch.setattr("sys.argv", ["isosent", *arguments])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr().err

    code, said = run()
    assert code == 2
    assert CODE in said
    assert not marker.exists()
    assert run("?trust_remote_code=true")[0] == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"attn_implementation": "kernels-community/flash-attn2"}, "kernels-community/flash-attn2"),
        ({"_attn_implementation": "somebody/kernel@v1"}, "somebody/kernel@v1"),
        ({"attn_implementation": {"": "sdpa", "text_config": "somebody/kernel"}}, "somebody/kernel"),
        ({"text_config": {"attn_implementation": "flash_attention_2"}}, "flash_attention_2"),
        ({"experts_implementation": "sonicmoe"}, "sonicmoe"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"transformers_weights": "adapter_model.bin"}, "adapter_model.bin"),
        ({"transformers_weights": "deep/model.safetensors.index.json"}, "deep/model"),
        ({"transformers_weights": "../model.safetensors"}, r"\.\./model"),
    ],
)
def test_a_config_that_makes_transformers_fetch_something_is_refused(bert, tmp_path, settings, named):
    folder = Path(shutil.copytree(bert, tmp_path / "copied"))
    change_json(folder / "config.json", **settings)
    with pytest.raises(FileFormatError, match=rf"config\.json.*{named}"):
        isosent.load(f"hf:{folder}")


@pytest.mark.parametrize("name", ["eager", "sdpa", None])
def test_a_config_that_names_what_transformers_has_is_opened(bert, tmp_path, name):
    folder = Path(shutil.copytree(bert, tmp_path / "copied"))
    change_json(folder / "config.json", attn_implementation=name, quantization_config=None)
    assert isosent.load(f"hf:{folder}").encode(TEXTS).shape == (6, 24)


def test_an_adapter_is_refused_whose_base_would_come_from_elsewhere(bert, tmp_path):
    folder = Path(shutil.copytree(bert, tmp_path / "copied"))
    write_json(folder / "adapter_config.json", {"base_model_name_or_path": "somebody/else", "peft_type": "LORA"})
    with pytest.raises(FileFormatError, match=r"adapter_config\.json"):
        isosent.load(f"hf:{folder}")


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "{}/model.safetensors", "a\\b.safetensors", "x/../../y"])
@pytest.mark.parametrize("options", ["", "?static=true"])
def test_an_index_of_weights_stays_in_its_folder(bert, tmp_path, name, options):
    folder = Path(shutil.copytree(bert, tmp_path / "copied"))
    name = name.format(bert)
    index = {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": name}}
    write_json(folder / "model.safetensors.index.json", index)
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    with pytest.raises(FileFormatError, match="outside its folder"):
        isosent.load(f"hf:{folder}{options}")


def test_transformers_looks_for_nothing_outside_the_folder_unless_its_code_is_trusted(own_code, bert, monkeypatch):
    import transformers

    asked = []
    for auto in (transformers.AutoConfig, transformers.AutoTokenizer, transformers.AutoModel):
        original = auto.from_pretrained.__func__

        def from_pretrained(cls, *arguments, original=original, **how):
            asked.append((how["trust_remote_code"], how["local_files_only"]) if "local_files_only" in how else None)
            return original(cls, *arguments, **how)

        monkeypatch.setattr(auto, "from_pretrained", classmethod(from_pretrained))
    isosent.load(f"hf:{bert}")
    assert asked
    assert set(asked) == {(False, True)}
