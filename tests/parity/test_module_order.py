"""Modules after the pooling are applied in the order of the folder, as sentence-transformers applies them."""

import json
import shutil
from itertools import product

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tiny_models import DIM, TEXTS, write_json
from tokenizers import Tokenizer, models, pre_tokenizers

import isosent
from isosent.errors import InputError
from isosent.exports import export
from isosent.training.base_models import open_base
from isosent.transforms.chain import L2Normalize, chain

pytestmark = pytest.mark.usefixtures("one_thread")

ORDERS = ["".join(order) for length in range(4) for order in product("DLN", repeat=length)]  # 1 + 3 + 9 + 27
QUICK = ["", "N", "D", "ND", "DN", "LN", "NL", "NN", "NDN", "DNL", "DLN", "NLD"]
OF_TRANSFORMERS = ["", "N", "DN", "NDN", "DLN", "NLD"]  # 0.3 s each; a static model, of the same modules, has them all


def following(order, dim):
    """Random modules in an order, each letter the first of its name."""
    torch.manual_seed(len(order))
    made = []
    for place, letter in enumerate(order):
        if letter == "D":
            made.append(modules.Dense(dim, dim - 4 * place, activation_function=torch.nn.Identity()))
            dim -= 4 * place
        elif letter == "L":
            made.append(modules.LayerNorm(dim))
            torch.nn.init.normal_(made[-1].norm.weight, 1, 0.3)
            torch.nn.init.normal_(made[-1].norm.bias, 0, 0.3)
        else:
            made.append(modules.Normalize())
    return made


@pytest.fixture(scope="module")
def transformer(tiny_model):
    parts = [modules.Transformer(str(tiny_model("bert", n_layers=1))), modules.Pooling(DIM)]
    return SentenceTransformer(modules=parts, device="cpu")


@pytest.fixture(scope="module")
def static():
    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(["[UNK]", *words])}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    rows = np.random.default_rng(0).normal(size=(len(words) + 1, DIM)).astype(np.float32)
    rows[0] = 0
    return SentenceTransformer(modules=[modules.StaticEmbedding(tokenizer, embedding_weights=rows)], device="cpu")


def save(base, folder, *more, **settings):
    model = SentenceTransformer(modules=[*base, *more], device="cpu", **settings)
    model.save_pretrained(str(folder), create_model_card=False)
    return model


def encode(folder):
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS)


def check(base, order, tmp_path):
    """A folder, and its export, in both libraries."""
    theirs = save(base, tmp_path / "folder", *following(order, DIM)).encode(TEXTS)
    model = isosent.load(tmp_path / "folder")
    np.testing.assert_allclose(model.encode(TEXTS), theirs, atol=1e-5)
    assert model.encoder.options["normalize"] == str(order.endswith("N")).lower()
    export(model, "sentence-transformers", tmp_path / "export")
    np.testing.assert_allclose(encode(tmp_path / "export"), theirs, atol=1e-5)
    np.testing.assert_allclose(isosent.load(tmp_path / "export").encode(TEXTS), theirs, atol=1e-5)


@pytest.mark.parametrize("order", OF_TRANSFORMERS)
def test_the_modules_of_a_transformer_have_an_order(transformer, tmp_path, order):
    check(transformer, order, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("order", sorted(set(QUICK) - set(OF_TRANSFORMERS)))
def test_other_orders_after_a_transformer(transformer, tmp_path, order):
    check(transformer, order, tmp_path)


@pytest.mark.parametrize("order", QUICK)
def test_the_modules_of_a_static_model_have_an_order(static, tmp_path, order):
    check(static, order, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("order", sorted(set(ORDERS) - set(QUICK)))
def test_every_other_order_after_a_static_embedding(static, tmp_path, order):
    check(static, order, tmp_path)


@pytest.mark.parametrize(
    ("order", "normalize", "same"),
    [
        ("ND", True, "NDN"),
        ("ND", False, "ND"),
        ("DN", False, "D"),
        ("NDN", False, "ND"),
        ("DNN", False, "D"),
        ("DN", True, "DN"),
        ("", True, "N"),
    ],
)
@pytest.mark.parametrize("kind", ["transformer", "static"])
def test_normalize_is_about_the_end_alone(request, tmp_path, kind, order, normalize, same):
    base = request.getfixturevalue(kind)
    torch.manual_seed(1)
    dense = modules.Dense(DIM, 8)

    def made(letters):
        return [dense if letter == "D" else modules.Normalize() for letter in letters]

    save(base, tmp_path / "folder", *made(order))
    expected = SentenceTransformer(modules=[*base, *made(same)], device="cpu").encode(TEXTS)
    model = isosent.load(tmp_path / "folder", normalize=normalize)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(isosent.load(tmp_path / "saved").encode(TEXTS), model.encode(TEXTS))


def test_dense_false_leaves_the_scaling_before_it(transformer, tmp_path):
    save(transformer, tmp_path, *following("NDL", DIM))
    expected = transformer.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(isosent.load(tmp_path, dense=False).encode(TEXTS), expected, atol=1e-5)
    raw = isosent.load(tmp_path, dense=False, normalize=False)
    np.testing.assert_allclose(raw.encode(TEXTS), transformer.encode(TEXTS), atol=1e-5)


def test_a_space_without_any_scaling_is_not_that_of_a_folder_that_scales_inside(transformer, tmp_path):
    # normalize=false once meant: without any Normalize of the folder. A model saved then must not open with other rows.
    save(transformer, tmp_path / "scaled", *following("ND", DIM))
    shutil.copytree(tmp_path / "scaled", tmp_path / "unscaled")
    listed = json.loads((tmp_path / "unscaled" / "modules.json").read_text())
    write_json(tmp_path / "unscaled" / "modules.json", [entry for entry in listed if "Normalize" not in entry["type"]])
    scaled, unscaled = (isosent.load(tmp_path / name) for name in ("scaled", "unscaled"))
    assert np.abs(scaled.encode(TEXTS) - unscaled.encode(TEXTS)).max() > 0.1
    assert scaled.fingerprint != unscaled.fingerprint


def test_training_starts_from_the_modules_of_the_folder(transformer, tmp_path):
    theirs = save(transformer, tmp_path, *following("ND", DIM)).encode(TEXTS)
    base, _ = open_base(f"hf:{tmp_path}")
    assert [type(part).__name__ for part in list(base)[2:]] == ["Normalize", "Dense"]
    np.testing.assert_allclose(base.encode(TEXTS), theirs, atol=1e-5)


@pytest.mark.slow
def test_an_onnx_export_has_the_modules_in_order(transformer, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    theirs = save(transformer, tmp_path / "folder", *following("ND", DIM)).encode(TEXTS)
    export(isosent.load(tmp_path / "folder"), "onnx", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    batch = Tokenizer.from_file(str(tmp_path / "onnx" / "tokenizer.json")).encode_batch(TEXTS)
    names = {"input_ids": [e.ids for e in batch], "attention_mask": [e.attention_mask for e in batch]}
    vectors = session.run(None, {name: np.array(rows, dtype=np.int64) for name, rows in names.items()})[0]
    np.testing.assert_allclose(vectors, theirs, atol=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "static"])
@pytest.mark.parametrize("end", [(), (L2Normalize(),)])
def test_a_fitted_model_opens_again_from_its_export(request, tmp_path, texts, kind, end):
    save(request.getfixturevalue(kind), tmp_path / "folder", modules.Normalize())
    model = isosent.load(tmp_path / "folder").fitted(texts, transform=chain(isosent.Whitening(6), *end))
    export(model, "sentence-transformers", tmp_path / "export")
    theirs = encode(tmp_path / "export")
    assert np.allclose(np.linalg.norm(theirs, axis=1), 1) is bool(end)
    np.testing.assert_allclose(isosent.load(tmp_path / "export").encode(TEXTS), theirs, atol=1e-5)


@pytest.mark.parametrize("activation", [torch.nn.Tanh(), torch.nn.ReLU(), torch.nn.GELU(), torch.nn.Softplus()])
@pytest.mark.parametrize("bias", [True, False])
def test_a_static_model_has_every_activation(static, tmp_path, activation, bias):
    dense = modules.Dense(DIM, 5, bias=bias, activation_function=activation)
    theirs = save(static, tmp_path, dense, modules.Dropout(0.5), modules.Normalize()).encode(TEXTS)
    np.testing.assert_allclose(isosent.load(tmp_path).encode(TEXTS), theirs, atol=1e-5)


def test_a_static_model_with_modules_in_all_its_uses(static, tmp_path, texts):
    save(static, tmp_path / "folder", *following("DL", DIM))
    model = isosent.load(tmp_path / "folder")
    assert not model.encode(["", "???"]).any()  # ??? is an unknown token, whose vector is zero
    with pytest.raises(InputError, match=r"StaticEmbedding.*static:DIR"):
        isosent.load(f"hf:{tmp_path / 'folder'}")
    with pytest.raises(InputError, match=r"explain: .*Dense"):
        model.encoder.summands(TEXTS[0])
    with pytest.raises(InputError, match="onnx has no Dense"):
        export(model, "onnx", tmp_path / "onnx")
    base, facts = open_base(f"static:{tmp_path / 'folder'}")
    assert facts["kind"] == "static"
    np.testing.assert_allclose(base.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    fitted = model.fitted(texts, transform=isosent.Whitening(8))
    fitted.save(tmp_path / "saved")
    np.testing.assert_array_equal(isosent.load(tmp_path / "saved").encode(TEXTS), fitted.encode(TEXTS))
