"""One folder for isosent and sentence-transformers: the same vectors, wherever it lies."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

import isosent
from isosent import Whitening
from isosent.errors import InputError, OutputError
from isosent.training.base_models import open_base
from isosent.training.run import check_training_folder, saving_trained
from isosent.transforms.chain import L2Normalize, chain

SCRATCH = "scratch:?layers=2&dim=8&heads=2&vocab=300&max_length=64"
PROBES = ["A man is riding a horse.", "no", "Two dogs run across the wet grass, and a third one sleeps."]
TRANSFORMS = {"bare": None, "mapped": chain(Whitening(4), L2Normalize())}


@pytest.fixture(scope="module", autouse=True)
def few_threads(quick_trainers):
    return quick_trainers


def train_a_step(model, texts):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(model.preprocess(texts[:8]))["sentence_embedding"].square().sum().backward()
    optimizer.step()
    return model


def save_trained(model, folder, extra_files=(), **transform):
    with saving_trained(model, folder, **transform) as (_, temporary):
        for name, content in dict(extra_files).items():
            (temporary / name).write_bytes(content)
    return isosent.load(folder)


@pytest.fixture(scope="module")
def trained(texts, tmp_path_factory):
    """Trained models by the kind of their base."""
    path = tmp_path_factory.mktemp("words") / "glove.txt"
    words = sorted({word.lower() for text in texts for word in text.split() if word.isalpha()})
    rows = np.random.default_rng(1).normal(size=(len(words), 6)).round(3) + 1
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows, strict=True)))
    references = {"transformer": SCRATCH, "static": f"words:{path}"}
    return {kind: train_a_step(open_base(name, texts)[0], texts) for kind, name in references.items()}


@pytest.fixture(scope="module")
def saved(trained, texts, tmp_path_factory):
    """Folders of trained models, with a map fitted behind them and without."""
    folder, made = tmp_path_factory.mktemp("saved"), {}

    def saved(kind, ending):
        path = folder / f"{kind}-{ending}"
        if path not in made:
            extra = {"metrics.jsonl": b"{}\n"}
            made[path] = save_trained(
                trained[kind], path, transform=TRANSFORMS[ending], fit_texts=texts[:100], extra_files=extra
            )
        return path, made[path]

    return saved


def theirs(folder):
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


FOUR = pytest.mark.parametrize(("kind", "ending"), [(k, e) for k in ("transformer", "static") for e in TRANSFORMS])


@FOUR
def test_both_libraries_give_the_same_vectors(saved, trained, kind, ending):
    folder, model = saved(kind, ending)
    np.testing.assert_allclose(theirs(folder).encode(PROBES), model.encode(PROBES), atol=1e-4)
    np.testing.assert_array_equal(isosent.load(folder).encode(PROBES), model.encode(PROBES))
    assert model.dim == {"bare": {"transformer": 8, "static": 6}[kind], "mapped": 4}[ending]


@FOUR
def test_the_encoder_alone_is_the_model_that_was_trained(saved, trained, kind, ending):
    folder, _ = saved(kind, ending)
    expected = trained[kind].encode(PROBES)
    scheme = {"transformer": "hf", "static": "static"}[kind]
    np.testing.assert_allclose(theirs(folder / "encoder").encode(PROBES), expected, atol=1e-6)
    np.testing.assert_allclose(isosent.load(f"{scheme}:{folder / 'encoder'}").encode(PROBES), expected, atol=1e-5)


@FOUR
def test_the_folder_can_be_moved(saved, tmp_path, kind, ending):
    folder, model = saved(kind, ending)
    moved = tmp_path / "a place, with signs?" / "moved"
    moved.parent.mkdir()
    shutil.copytree(folder, tmp_path / "copied")
    shutil.move(tmp_path / "copied", moved)
    reopened = isosent.load(moved)
    np.testing.assert_array_equal(reopened.encode(PROBES), model.encode(PROBES))
    np.testing.assert_allclose(theirs(moved).encode(PROBES), model.encode(PROBES), atol=1e-4)
    assert reopened.fingerprint == model.fingerprint


def test_what_lies_where(saved):
    folder, _ = saved("transformer", "mapped")
    (linear_map,), (canary,) = folder.glob("linear_map-*.safetensors"), folder.glob("canary-*.safetensors")
    own = ["config_sentence_transformers.json", "encoder", linear_map.name, "metrics.jsonl"]
    assert files(folder) == ["2_Dense", "3_Normalize", canary.name, *own, "model.json", "modules.json"]
    paths = [module["path"] for module in json.loads((folder / "modules.json").read_text())]
    assert paths == ["encoder", "encoder/1_Pooling", "2_Dense", "3_Normalize"]
    assert (folder / "metrics.jsonl").read_bytes() == b"{}\n"


@FOUR
def test_weights_exist_once_and_in_no_pickle(saved, kind, ending):
    folder, _ = saved(kind, ending)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} <= {".json", ".jsonl", ".safetensors"}
    assert [path.name for path in paths if path.suffix == ".safetensors"].count("model.safetensors") == 1 + (
        ending == "mapped"
    )


@FOUR
def test_no_path_of_this_machine_is_in_the_folder(saved, kind, ending):
    folder, _ = saved(kind, ending)
    parts = [path.read_bytes() for path in folder.rglob("*.json")]
    assert not any(str(folder.parent).encode() in part or b"/tmp" in part for part in parts)
    assert json.loads((folder / "model.json").read_text())["encoder"]["inside"] is True


def test_the_fit_is_on_record(saved):
    _, model = saved("static", "mapped")
    (fit,) = model.fits
    assert (fit.n_texts, fit.source) == (100, "training texts")


def test_a_trained_folder_is_a_base(saved, texts):
    folder, model = saved("transformer", "mapped")
    base = open_base(folder)
    assert [type(module).__name__ for module in base[0]] == ["Transformer", "Pooling", "Dense", "Normalize"]
    np.testing.assert_allclose(base[0].encode(PROBES), model.encode(PROBES), atol=1e-4)


def test_a_map_goes_on_being_trained_inside_of_the_encoder(saved, texts, tmp_path):
    folder, _ = saved("transformer", "mapped")
    model = train_a_step(open_base(folder)[0], texts)
    again = save_trained(model, tmp_path / "again")
    assert files(tmp_path / "again" / "encoder")[:3] == ["1_Pooling", "2_Dense", "3_Normalize"]
    assert (again.dim, again.linear_map) == (4, None)


def test_a_mean_of_layers_is_read_back(trained, texts, tmp_path):
    save_trained(trained["transformer"], tmp_path / "first")
    base = open_base(f"hf:{tmp_path / 'first' / 'encoder'}?layers=0.25*1,0.75*2")
    model = save_trained(train_a_step(base[0], texts), tmp_path / "second")
    assert model.encoder.options["layers"] == "0.25*1,0.75*2"
    np.testing.assert_allclose(base[0].encode(PROBES), model.encode(PROBES), atol=1e-5)


def test_a_trained_folder_may_be_replaced(trained, tmp_path):
    save_trained(trained["static"], tmp_path / "out", extra_files={"curve.html": b""})
    check_training_folder(tmp_path / "out")
    save_trained(trained["transformer"], tmp_path / "out")
    assert "curve.html" not in files(tmp_path / "out")
    assert isosent.load(tmp_path / "out").dim == 8
    assert files(tmp_path) == ["out"]


@pytest.mark.parametrize("content", ["notes.txt", "model.json", "isosent.json"])
def test_other_folders_are_not_replaced(trained, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / content).write_text("{}")
    for write in (check_training_folder, lambda folder: save_trained(trained["static"], folder)):
        with pytest.raises(OutputError, match="is neither empty nor an older trained model"):
            write(tmp_path / "out")
    assert files(tmp_path / "out") == [content]


def test_a_model_with_its_encoder_elsewhere_is_not_replaced(wordllama, tmp_path):
    wordllama.save(tmp_path / "model")
    with pytest.raises(OutputError, match="nor an older trained model"):
        check_training_folder(tmp_path / "model")


def test_a_transform_that_cannot_be_fitted_leaves_nothing_behind(trained, texts, tmp_path):
    with pytest.raises(InputError, match=r"n_components must be from 1 to 6"):
        save_trained(trained["static"], tmp_path / "out", transform=Whitening(7), fit_texts=texts[:50])
    with pytest.raises(InputError, match="there are no texts"):
        save_trained(trained["static"], tmp_path / "out", transform=Whitening(2))
    assert files(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_full_disk_leaves_the_old_model(trained, tmp_path, monkeypatch, error):
    save_trained(trained["static"], tmp_path / "out")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(StaticEmbedding, "save", fail)
    with pytest.raises(OutputError, match=r"could not be written: .*No space left on device"):
        save_trained(trained["static"], tmp_path / "out")
    assert isosent.load(tmp_path / "out").dim == 6
    assert files(tmp_path) == ["out"]


def test_other_vectors_are_not_written(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(Pooling, "get_config_dict", lambda self: {"embedding_dimension": 8, "pooling_mode": "cls"})
    with pytest.raises(OutputError, match="the isosent export does not give the vectors"):
        save_trained(trained["transformer"], tmp_path / "out")
    assert files(tmp_path) == []


def test_the_model_stays_as_it_was(trained, tmp_path):
    model = trained["transformer"].train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    save_trained(model, tmp_path / "out")
    assert model.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
