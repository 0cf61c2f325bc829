"""Exports that need no transformer: tokenizers, graphs, indexes, arrays, and what keeps a wrong one from a reader."""

import json
import re
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from vector_makers import write_vectors

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import (
    FileFormatError,
    InputError,
    InputFileError,
    MissingExtraError,
    OutputError,
    UnknownWordsWarning,
)
from isosent.exports import export, faiss_index
from isosent.exports import faiss as faiss_export
from isosent.exports import numpy as numpy_export
from isosent.exports import onnx as onnx_folder
from isosent.exports import onnx as onnx_static
from isosent.exports import sql as sql_export
from isosent.exports import tokenizer as tokenizer_files
from isosent.exports.check import EXPORT, compare, compare_on_texts, read_space, sample_texts, shortened, space_of
from isosent.exports.faiss_index import export_index
from isosent.exports.tokenizer import static_tokenizer, without_literal
from isosent.io import atomic
from isosent.io.atomic import replacing_folder
from isosent.io.checksum import is_intact
from isosent.io.notes import verify_export
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.persistence import StoredSize
from isosent.search import Index, engine
from isosent.space import Space, same_space
from isosent.transforms.chain import L2Normalize, chain
from isosent.transforms.quantization import Quantization

DOCS = Path(__file__).parents[2] / "docs" / "export.md"

GLOVE = "man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n. 1 1 1\nt 5 5 5\nδίς 1 0 2\n3 2 2 9\n"
TEXTS = [
    "a man",
    "The DOG, the cat.",
    "yak.dog?man",
    "x3 3",
    "ΔΊΣ ΔΊΣΔΊΣ ΣΔ δίσ",
    "dont t\x1cman\xa0dog",
    "Straße\u2028cat",
    "",
    " ",
]


@pytest.fixture(scope="module")
def fitted(wordllama, texts):
    return wordllama.fitted(texts, transform=isosent.Whitening(16))


@pytest.fixture
def words(tmp_path):
    def words(query="", *texts):
        (tmp_path / "glove.txt").write_text(GLOVE, "utf-8")
        model = isosent.load(f"words:{tmp_path / 'glove.txt'}{query}")
        return model.fitted(texts or ["man dog", "cat", "yak", "man 3", "t dog"], transform=isosent.Whitening(2))

    return words


@pytest.fixture
def save_static(tmp_path):
    """A Model2Vec folder whose tokenizer has an unknown token."""

    def save_static(**settings):
        vocabulary = {"[UNK]": 0, "man": 1, "dog": 2, "cat": 3, "a": 4}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        tokenizer.save(str((tmp_path / "static").mkdir() or tmp_path / "static" / "tokenizer.json"))
        vectors = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
        save_file({"embeddings": vectors}, tmp_path / "static" / "model.safetensors")
        (tmp_path / "static" / "config.json").write_text(json.dumps(settings))
        return tmp_path / "static"

    return save_static


def run_onnx(path, texts):
    import onnxruntime

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(path / "model.onnx"))
    batch = tokenizer.encode_batch(texts)
    inputs = {"input_ids": [e.ids for e in batch], "attention_mask": [e.attention_mask for e in batch]}
    return session.run(None, {name: np.array(rows, dtype=np.int64) for name, rows in inputs.items()})[0]


@pytest.mark.parametrize("query", ["", "?lowercase=false", "?tokenizer=whitespace"])
def test_the_tokenizer_file_of_words_gives_the_ids_of_the_encoder(words, query):
    encoder = words(query).encoder
    theirs = Tokenizer.from_str(static_tokenizer(encoder).to_str()).encode_batch(TEXTS)
    ours = encoder.tokenize(TEXTS)
    assert [e.ids for e in theirs] == [
        ours.ids[a:b].tolist() for a, b in zip(ours.offsets, ours.offsets[1:], strict=False)
    ]


def test_words_are_split_at_the_same_characters(words):
    characters = [chr(c) for c in range(0x20, 0x3000) if unicodedata.category(chr(c)) != "Cn"]
    splitter = static_tokenizer(words().encoder).pre_tokenizer
    found = [len(splitter.pre_tokenize_str(f"a{character}a")) for character in characters]
    assert found == [len(re.findall(r"\w+|[^\w\s]+", f"a{character}a")) for character in characters]


def test_letters_of_unknown_words_are_no_words(words):
    assert static_tokenizer(words().encoder).encode("tt t3t", add_special_tokens=False).ids == []


def test_a_tokenizer_file_cuts_where_model2vec_cuts(save_static):
    encoder = isosent.load(f"static:{save_static(normalize=True, max_length=3)}").encoder
    assert encoder.tokenizer.max_characters == 9
    tokenizer = static_tokenizer(encoder)
    assert tokenizer.encode("man dog cat").ids == [1, 2, 0]  # "c" is unknown
    assert tokenizer.encode("a a a a a").ids == [4, 4, 4]


@pytest.mark.parametrize("query", ["", "?lowercase=false", "?tokenizer=whitespace"])
def test_a_graph_of_words_gives_the_vectors_of_the_model_and_zero_rows(words, query, tmp_path):
    model = words(query)
    export(model, "onnx", tmp_path / "out")
    found = run_onnx(tmp_path / "out", TEXTS)
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-6)
    assert not found[-2:].any()


def test_a_graph_leaves_out_the_unknown_token_where_the_model_does(save_static, tmp_path):
    model = isosent.load(f"static:{save_static(normalize=False)}")
    export(model, "onnx", tmp_path / "out")
    texts = ["man zebra dog", "zebra", "man dog"]
    found = run_onnx(tmp_path / "out", texts)
    np.testing.assert_allclose(found, model.encode(texts), atol=1e-6)
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_graph_takes_the_vectors_of_a_model_without_texts(normalize, tmp_path):
    import onnxruntime

    rows = np.random.default_rng(0).standard_normal((50, 6)) + 1
    steps = [isosent.Whitening(3), *([L2Normalize()] if normalize else [])]
    model = SentenceEncoder(PrecomputedVectors(6)).fitted_on_moments(Moments.from_rows(rows), transform=chain(*steps))
    export(model, "onnx", tmp_path / "out")
    vectors = np.vstack([rows[:5], np.zeros((1, 6))]).astype(np.float32)
    found = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx").run(None, {"encoded": vectors})[0]
    np.testing.assert_allclose(found, model.transform(vectors), atol=1e-5)
    assert not (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.slow
def test_a_graph_carries_the_fingerprint(fitted, tmp_path):
    import onnx

    export(fitted, "onnx", tmp_path / "out")
    properties = {prop.key: prop.value for prop in onnx.load(tmp_path / "out" / "model.onnx").metadata_props}
    assert properties["isosent.fingerprint"] == fitted.fingerprint
    onnx.checker.check_model(tmp_path / "out" / "model.onnx")


@pytest.mark.slow
def test_queries_get_a_graph_of_their_own(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening(8), queries=texts[:100])
    export(model, "onnx", tmp_path / "out")
    files = json.loads((tmp_path / "out" / "isosent.json").read_text())["files"]
    assert files["query"] == {"tokenizer": "tokenizer.json", "graph": "query_model.onnx"}
    assert files["text"] == files["document"] == {"tokenizer": "tokenizer.json", "graph": "model.onnx"}
    (tmp_path / "out" / "query_model.onnx").rename(tmp_path / "out" / "model.onnx")
    np.testing.assert_allclose(run_onnx(tmp_path / "out", texts[:9]), model.encode_query(texts[:9]), atol=1e-4)


def test_a_vector_transform_is_the_map(fitted):
    vectors = np.random.default_rng(0).standard_normal((20, 256)).astype(np.float32)
    found = faiss_export.to_vector_transform(fitted.linear_map).apply(vectors)
    np.testing.assert_allclose(found, fitted.linear_map.apply(vectors), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("factory", ["Flat", "HNSW8"])
def test_an_index_takes_bare_vectors_and_gives_cosines_behind_the_map(fitted, texts, tmp_path, factory):
    import faiss

    export(fitted, "faiss", tmp_path / "a.faiss", index=factory)
    index = faiss.read_index(str(tmp_path / "a.faiss"))
    assert (index.ntotal, index.d) == (0, 256)
    bare = fitted.encoder.encode(texts[:30])
    index.add(bare)
    scores, found = index.search(bare[:5], 3)
    cosines = fitted.similarity(fitted.transform(bare[:5]), fitted.transform(bare))
    np.testing.assert_array_equal(found[:, 0], np.arange(5))
    np.testing.assert_allclose(scores, np.take_along_axis(cosines, found, axis=1), atol=1e-5)


def test_an_index_opens_with_the_model_it_was_made_from_only(fitted, wordllama, texts, tmp_path):
    export(fitted, "faiss", tmp_path / "a.faiss")
    assert faiss_export.read_index(tmp_path / "a.faiss", fitted).d == 256
    other = wordllama.fitted(texts, transform=isosent.Whitening(8))
    with pytest.raises(InputError, match=f"{fitted.fingerprint[:16]}.*{other.fingerprint[:16]}"):
        faiss_export.read_index(tmp_path / "a.faiss", other)


def test_an_index_that_faiss_does_not_know_is_refused(fitted, tmp_path):
    with pytest.raises(InputError, match="'Flatt' is no index of FAISS"):
        export(fitted, "faiss", tmp_path / "a.faiss", index="Flatt")
    assert list(tmp_path.iterdir()) == []


def test_an_index_has_one_map(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening(8), queries=texts[:100])
    with pytest.raises(InputError, match=r"has one map .* this model has two"):
        export(model, "faiss", tmp_path / "a.faiss")


@pytest.fixture(scope="module")
def quantized(fitted, texts):
    return fitted.with_quantization(Quantization.fit(fitted.encode(texts, normalize_embeddings=True)))


@pytest.mark.parametrize("factory", ["SQ8", "HNSW8_SQ8"])
def test_the_ranges_of_the_model_train_an_index(quantized, texts, tmp_path, factory):
    export(quantized, "faiss", tmp_path / "a.faiss", index=factory)
    index = faiss_export.read_index(tmp_path / "a.faiss", quantized)
    assert index.is_trained
    index.add(quantized.encoder.encode(texts))
    assert index.search(quantized.encoder.encode(texts[:9]), 1)[1].ravel().tolist() == list(range(9))
    if factory == "SQ8":
        faiss = sys.modules["faiss"]
        codes = faiss.downcast_index(index.index).codes
        ours = quantized.encode(texts, precision="int8").view(np.uint8) ^ 128
        np.testing.assert_array_equal(faiss.vector_to_array(codes).reshape(ours.shape), ours)


@pytest.fixture(scope="module")
def encoded(fitted, texts):
    """Vectors of the encoder; one text has none."""
    return np.concatenate([fitted.encoder.encode(texts[:400]), np.zeros((1, 256), np.float32)])


def spaces(model):
    return Space(model.encoder.fingerprint, "wordllama"), space_of(model)


@pytest.mark.parametrize("with_map", [True, False])
@pytest.mark.parametrize("are_mapped", [True, False])
@pytest.mark.parametrize("factory", ["Flat", "IVF4,SQ8", "HNSW8"])
def test_a_filled_index_finds_the_rows_of_a_file(quantized, encoded, tmp_path, with_map, are_mapped, factory, progress):
    vectors = quantized.transform(encoded) if are_mapped else encoded
    write_vectors(tmp_path / "v.npy", vectors, [], spaces(quantized)[are_mapped])
    written = export(
        quantized,
        "faiss",
        tmp_path / "a.faiss",
        index=factory,
        vectors=tmp_path / "v.npy",
        with_map=with_map,
        progress=progress,
    )
    assert "400 vectors" in written.contents
    assert "zero rows left out: 1" in written.contents
    assert progress.complete() == [401]
    index = faiss_export.read_index(tmp_path / "a.faiss", quantized)
    queries = encoded[:50] if with_map else quantized.transform(encoded[:50])
    scores, ids = index.search(queries, 3)
    assert (ids[:, 0] == np.arange(50)).mean() > 0.95  # some texts are alike
    np.testing.assert_allclose(scores[:, 0], 1, atol=0.01)


def test_ids_come_from_a_column(quantized, encoded, tmp_path):
    ids = np.random.default_rng(0).permutation(10_000)[: len(encoded)]

    def write(**columns):
        rows = pa.FixedSizeListArray.from_arrays(pa.array(encoded.ravel()), 256)
        pq.write_table(pa.table({"v": rows, **columns}), tmp_path / "v.parquet", row_group_size=150)

    write(key=ids, small=pa.array(ids.astype(np.uint16)))
    for column in ("key", "small"):
        export(quantized, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.parquet", ids=column)
        index = faiss_export.read_index(tmp_path / "a.faiss", quantized)
        assert index.search(encoded[250:251], 1)[1][0, 0] == ids[250]
    before = (tmp_path / "a.faiss").read_bytes()
    twice = np.where(np.arange(len(ids)) == 7, ids[3], ids)
    write(
        twice=twice,
        below=-ids,
        text=ids.astype(str),
        gap=pa.array([None, *ids[1:].tolist()]),
        wide=ids.astype(np.uint64) + 2**63,
    )
    for column, key_word in [
        ("twice", str(ids[3])),
        ("below", "0 or more"),
        ("text", "integers"),
        ("gap", "lacks"),
        ("wide", "63"),
        ("none", "twice"),
    ]:
        with pytest.raises(InputError, match=key_word):
            export(quantized, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.parquet", ids=column)
    assert (tmp_path / "a.faiss").read_bytes() == before


def test_vectors_that_cannot_fill_an_index_are_refused(quantized, wordllama, encoded, tmp_path):
    def refuses(key_word, vectors, space=None, **options):
        write_vectors(tmp_path / "v.npy", vectors, [], space)
        with pytest.raises(InputError, match=key_word):
            export(quantized, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.npy", **options)
        assert not (tmp_path / "a.faiss").exists()

    refuses("an encoder", encoded, Space("ab" * 32, "an encoder"))
    refuses("256", encoded[:, :16].copy())
    refuses("16 dimensions", encoded, space_of(quantized))
    refuses("has no columns", encoded, ids="id")
    refuses("row 3 of vectors, counted from 0, holds NaN", np.where(np.arange(401)[:, None] == 3, np.nan, encoded))
    refuses("9 vectors are too few to train", encoded[:9], index="IVF64,Flat")
    refuses("holds no vectors", encoded[:0])
    with pytest.raises(InputError, match="vectors='FILE'"):
        export(quantized, "faiss", tmp_path / "a.faiss", with_map=False)


def test_a_model_without_a_map_fills_an_index(wordllama, encoded, tmp_path):
    np.save(tmp_path / "v.npy", encoded)
    export(wordllama, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.npy")
    assert faiss_export.read_index(tmp_path / "a.faiss", wordllama).search(encoded[5:6], 1)[1] == 5


def test_two_means_and_the_encoder_go_without_the_map(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening(8), queries=texts[:100])
    np.save(tmp_path / "v.npy", model.encoder.encode(texts))
    with pytest.raises(InputError, match="map=false"):
        export(model, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.npy")
    export(model, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.npy", with_map=False)
    index = faiss_export.read_index(tmp_path / "a.faiss", model)
    assert index.search(model.encode_document(texts[5:6]), 1)[1] == 5


def test_an_index_that_loses_rows_is_not_written(quantized, encoded, tmp_path, monkeypatch):
    np.save(tmp_path / "v.npy", encoded)
    distinct = faiss_export._ModelVectors.pick

    def shifted(self, first_row, block, numbers=None):
        rows = distinct(self, first_row, block, numbers)
        return rows if numbers is not None else rows._replace(ids=np.roll(rows.ids, 1))

    monkeypatch.setattr(faiss_export._ModelVectors, "pick", shifted)
    with pytest.raises(OutputError, match="neighbors"):
        export(quantized, "faiss", tmp_path / "a.faiss", vectors=tmp_path / "v.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


def test_arrays_include_the_quantization(quantized, tmp_path):
    export(quantized, "numpy", tmp_path / "map.safetensors")
    with safe_open(tmp_path / "map.safetensors", "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert set(tensors) == {"weight", "bias", "low", "step", "center", "rotation"}
    np.testing.assert_array_equal(Quantization.from_tensors(tensors).span, quantized.quantization.span)


def test_five_lines_read_the_arrays(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=chain(isosent.Whitening(8), L2Normalize()))
    export(model, "numpy", tmp_path / "map.safetensors")
    reader = re.search(r"```python\n(from safetensors import safe_open.*?)```", DOCS.read_text("utf-8"), re.DOTALL)[1]
    names = {"vectors": model.encoder.encode(texts[:9]), "path": str(tmp_path / "map.safetensors")}
    exec(reader.replace('"map.safetensors"', "path"), names)
    assert len(reader.strip().splitlines()) <= 7
    np.testing.assert_allclose(names["mapped"], model.encode(texts[:9]), atol=1e-6)


def test_the_arrays_carry_the_fingerprint_and_the_bias_of_queries(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening(8), queries=texts[:100])
    export(model, "numpy", tmp_path / "map.safetensors")
    with safe_open(tmp_path / "map.safetensors", "numpy") as file:
        assert file.metadata()["isosent.fingerprint"] == model.fingerprint
        np.testing.assert_array_equal(file.get_tensor("query_bias"), model.query_map.bias.astype(np.float32))


@pytest.mark.parametrize("target", ["faiss", "numpy", "sql"])
def test_a_model_without_a_map_has_nothing_to_put_there(wordllama, target, tmp_path):
    with pytest.raises(InputError, match=f"{target} holds the fitted map without the encoder, and this model has none"):
        export(wordllama, target, tmp_path / "out")
    storage = StoredSize("int8", 256.0, 0.9, 0.9, 100, "the original vectors")
    with pytest.raises(InputError, match=r"only isosent index stores them as int8.*Index\.create"):
        export(wordllama.with_quantization(None, storage), target, tmp_path / "out")


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("tensorflow", {}, "no format 'tensorflow'. Choose one of sentence-transformers, onnx, faiss, numpy, sql"),
        ("onnx", {"tei": True}, "tei and results are for sentence-transformers, not for onnx"),
        ("numpy", {"index": "Flat"}, "index.* are for faiss, not for numpy"),
    ],
)
def test_options_of_other_targets_are_refused(fitted, target, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export(fitted, target, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("target", "package", "extra"), [("faiss", "faiss", "search"), ("onnx", "onnxruntime", "onnx")]
)
def test_a_missing_package_is_named(fitted, target, package, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=re.escape(f"pip install 'isosent[{extra}]'")):
        export(fitted, target, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def wrong(linear_map):
    return LinearMap(linear_map.weight, linear_map.bias * 1.01)


@pytest.mark.slow
def test_a_wrong_graph_is_not_written_and_the_older_one_stays(fitted, tmp_path, monkeypatch):
    export(fitted, "onnx", tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    postprocessing = onnx_static._Graph.postprocessing
    monkeypatch.setattr(
        onnx_static._Graph,
        "postprocessing",
        lambda self, vectors, linear_map, normalize: postprocessing(
            self, vectors, wrong(linear_map), normalize=normalize
        ),
    )
    with pytest.raises(OutputError, match=r"does not give the vectors of the model: .* the lowest cosine is"):
        export(fitted, "onnx", tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_wrong_index_is_not_written(fitted, tmp_path, monkeypatch):
    right = faiss_export.to_vector_transform
    monkeypatch.setattr(engine, "to_vector_transform", lambda linear_map: right(wrong(linear_map)))
    with pytest.raises(OutputError, match="the faiss export does not give the vectors"):
        export(fitted, "faiss", tmp_path / "a.faiss")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", [numpy_export, sql_export])
def test_wrong_numbers_are_not_written(fitted, module, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "required_maps", lambda target, model: (wrong(model.linear_map),))
    with pytest.raises(OutputError, match=f"the {module.TARGET} export does not give the vectors"):
        export(fitted, module.TARGET, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_things_is_not_replaced(fitted, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="is neither empty nor an older export"):
        export(fitted, "onnx", tmp_path / "out")
    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"


def test_an_older_export_and_an_empty_folder_are_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    for content in ("one", "two"):
        with replacing_folder(tmp_path / "out", EXPORT) as temporary:
            (temporary / "isosent.json").write_text(json.dumps({"format": "isosent-export", "target": content}))
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        assert json.loads((tmp_path / "out" / "isosent.json").read_text())["target"] == content


@pytest.mark.parametrize("name", ["notes.txt", "mine/notes.txt"])
def test_an_export_that_somebody_added_files_to_is_not_replaced(fitted, tmp_path, name):
    export(fitted, "onnx", tmp_path / "out")
    (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / name).write_text("years of work")
    with pytest.raises(OutputError, match="older export"):
        export(fitted, "onnx", tmp_path / "out")
    assert (tmp_path / "out" / name).read_text() == "years of work"


def test_an_export_without_its_modules_is_not_taken_for_the_bare_encoder(wordllama, texts, tmp_path):
    export(wordllama.fitted(texts, transform=isosent.Whitening(8)), "sentence-transformers", tmp_path / "out")
    (tmp_path / "out" / "modules.json").unlink()
    with pytest.raises(InputError, match=r"modules\.json is missing"):
        isosent.load(f"static:{tmp_path / 'out'}")


def test_the_note_says_what_was_exported_and_how_well(fitted, tmp_path):
    export(fitted, "onnx", tmp_path / "out")
    note = json.loads((tmp_path / "out" / "isosent.json").read_text())
    assert note["fingerprint"] == fitted.fingerprint
    assert note["model"]["fits"][0]["n_texts"] == 480
    assert note["agreement"]["n_vectors"] == len(sample_texts(fitted.encoder))
    assert read_space(tmp_path / "out") == space_of(fitted)


@pytest.mark.parametrize("limit", ["none", "12", "512", "2048"])
def test_the_long_sample_reaches_beyond_the_limit(wordllama, limit, monkeypatch):
    monkeypatch.setattr(wordllama.encoder, "options", {"max_length": limit})
    n_tokens = wordllama.encoder.tokenize(sample_texts(wordllama.encoder)).lengths.max()
    assert n_tokens > (400 if limit == "none" else 1.4 * int(limit))


def test_a_lost_limit_is_found(texts, tmp_path, monkeypatch):
    words = [*sorted({word for text in texts for word in re.findall(r"\w+", text)}), *(f"{i:030}" for i in range(2000))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vectors = np.random.default_rng(0).standard_normal((len(words) + 1, 16)).astype(np.float32)
    save_file({"embeddings": vectors}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"normalize": True, "max_length": 512}))
    model = isosent.load(f"static:{tmp_path}")
    export(model, "onnx", tmp_path / "out")
    monkeypatch.setattr(tokenizer_files, "_limit", lambda tokenizer, max_length: tokenizer.no_truncation())
    with pytest.raises(OutputError, match="the onnx export does not give the vectors"):
        export(model, "onnx", tmp_path / "other")


def test_a_dropped_token_leaves_the_others_as_they_are(wordllama):
    texts = ["a <unk> b", "<unk>", "<unk> a", "a<unk>", "x<unk><unk>  y <unk>z", "<unk><s>é<unk></s>"]
    tokenizer = static_tokenizer(wordllama.encoder)
    expected = [[i for i in encoding.ids if i != 0] for encoding in tokenizer.encode_batch(texts)]
    assert [encoding.ids for encoding in without_literal(tokenizer, 0).encode_batch(texts)] == expected


def test_an_interrupt_between_two_renames_brings_the_older_folder_back(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "isosent.json").write_text('{"format": "isosent-export"}')
    rename = Path.rename
    monkeypatch.setattr(atomic, "exchange", lambda *_: False)

    def interrupted(self, target):
        rename(self, target)
        if str(target).endswith(".old"):
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), replacing_folder(tmp_path / "out", EXPORT):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "isosent.json").read_text() == '{"format": "isosent-export"}'


def test_a_graph_forgets_where_it_was_made():
    import onnx

    node = onnx.helper.make_node("Identity", ["a"], ["b"], doc_string="/home/me/code.py")
    onnx.helper.set_model_props(node, {"pkg.torch.onnx.stack_trace": "/home/me/code.py"})
    inner = onnx.helper.make_node("If", ["c"], ["d"], then_branch=onnx.helper.make_graph([node], "then", [], []))
    graph = onnx.helper.make_graph([inner], "graph", [], [], doc_string="/home/me")
    onnx_folder._forget_sources(graph)
    assert b"/home/me" not in graph.SerializeToString()
    assert b"Identity" in graph.SerializeToString()


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("wordllama", "wordllama"),
        ("hf:/home/me/MiniLM", "hf:MiniLM"),
        ("words:/home/me/a.txt,/home/me/b.txt", "words:a.txt,b.txt"),
        ("../me/corpus.txt, ~/other.txt", "corpus.txt, other.txt"),
        ("/home/me/my texts/", "my texts"),
        ("C:\\me\\corpus.txt", "corpus.txt"),
        ("/home/me/model -> Whitening", "model -> Whitening"),
    ],
)
def test_folders_of_a_machine_are_left_out(reference, expected):
    assert shortened(reference) == expected


@pytest.mark.parametrize("target", ["onnx", "faiss", "numpy", "sql"])
def test_no_export_names_the_folders_of_a_machine(words, target, tmp_path):
    export(words(), target, tmp_path / "out")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "glove.txt"]
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in written)


@pytest.mark.parametrize("target", ["faiss", "numpy", "sql"])
def test_only_an_older_export_is_replaced(fitted, target, tmp_path):
    export(fitted, target, tmp_path / "out")
    export(fitted, target, tmp_path / "out")
    (tmp_path / "thesis").write_text("years of work")
    save_file({"vectors": np.eye(3)}, tmp_path / "vectors.safetensors", space_of(fitted).metadata)
    for name in ("thesis", "vectors.safetensors"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(OutputError, match=f"is no older {target} export"):
            export(fitted, target, tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("content", [b"\xff\xfe" * 500, b"{" * 500, b"[" * 100_000, b"[1]", b'{"model": {}}'])
def test_other_content_of_a_note_is_refused_in_one_sentence(content, tmp_path):
    (tmp_path / "isosent.json").write_bytes(content)
    with pytest.raises(InputFileError, match=r"isosent\.json.*(not the note|not JSON|Expected)") as caught:
        read_space(tmp_path)
    assert len(str(caught.value)) < 200 + len(str(tmp_path))


def test_a_missing_note_is_named(tmp_path):
    with pytest.raises(InputFileError, match="there is no such note of an export"):
        read_space(tmp_path)


def test_two_spaces_are_refused_by_name():
    ours, theirs = Space("a" * 64, "wordllama"), Space("b" * 64, "words:glove.txt")
    with pytest.raises(
        InputError,
        match=r"the index holds .* words:glove.txt \(b{16}\); the model belongs to wordllama \(a{16}\)",
    ):
        same_space("the model", ours, "the index", theirs)


def test_agreement_is_measured_row_by_row():
    ours = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])
    theirs = np.array([[3.0, 4.5], [0.0, 0.0], [0.0, 1.0]])
    agreement = compare(ours, theirs)
    assert (agreement.n_vectors, agreement.largest_difference, agreement.lowest_cosine) == (3, 1.0, 0.0)
    assert compare(ours[:1], theirs[:1]).largest_difference == pytest.approx(0.1)


@pytest.mark.parametrize("theirs", [np.zeros((3, 2)), np.array([[1.0, np.nan]])])
def test_another_shape_or_nan_never_agrees(theirs):
    assert not compare(np.ones((1, 2)), theirs).holds


def test_a_vector_where_the_model_has_none_does_not_agree():
    for tiny in (np.full((1, 2), 1e-9), np.ones((1, 2))):
        assert compare(np.zeros((1, 2)), tiny).largest_difference == np.inf
        assert compare(tiny, np.zeros((1, 2))).largest_difference == np.inf


def test_a_tokenizer_of_words_leaves_punctuation_and_stop_words_out(tmp_path):
    (tmp_path / "glove.txt").write_text("the 1\n. 2\nman 3\n!! 4\ncat 5\n, 6\n", "utf-8")
    encoder = isosent.load(f"words:{tmp_path}/glove.txt?punctuation=drop&stop_words=english").encoder
    text = "The man, a cat!! ox."
    assert static_tokenizer(encoder).encode(text).ids == encoder.tokenize([text]).ids.tolist() == [2, 4]


KILLED_BETWEEN = """
import os, signal, sys
import faiss, isosent
from pathlib import Path
from isosent.exports import export
rename, n_renamed = Path.replace, 0
def replace(self, target):
    global n_renamed
    if n_renamed == last:
        os.kill(os.getpid(), signal.SIGKILL)
    n_renamed += 1
    return rename(self, target)
Path.replace = replace
model = isosent.load(sys.argv[1])
for case in sys.argv[2:]:
    path, last = case.split()
    last = int(last)
    if not os.fork():
        export(model, "faiss", path)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.slow
def test_a_killed_export_leaves_an_index_and_a_note_that_belong_together(fitted, words, tmp_path, monkeypatch):
    old, new = fitted, words()
    new.save(tmp_path / "new")
    folders = [tmp_path / name for name in ("old-0", "old-1", "none-0", "none-1")]
    for folder in folders:
        folder.mkdir()
        if folder.name.startswith("old"):
            export(old, "faiss", folder / "a.faiss")
    cases = [f"{folder / 'a.faiss'} {folder.name[-1]}" for folder in folders]
    command = [sys.executable, "-c", KILLED_BETWEEN, str(tmp_path / "new"), *cases]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.stdout.split(), finished.stderr) == (["-9"] * 4, "")
    monkeypatch.setattr(atomic, "_SWEPT", set())  # as in the next process
    for folder in folders:
        index = folder / "a.faiss"
        assert index.exists() == folder.name.startswith("old")
        if index.exists():
            assert faiss_export.read_index(index, old).d == 256
        export(new, "faiss", index)
        assert faiss_export.read_index(index, new).d == 3
        assert sorted(path.name for path in folder.iterdir()) == ["a.faiss", "a.faiss.isosent.json"]


def test_a_damaged_index_is_refused(fitted, tmp_path):
    export(fitted, "faiss", tmp_path / "a.faiss")
    content = (tmp_path / "a.faiss").read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        (tmp_path / "a.faiss").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FileFormatError, match=r"a\.faiss"):
            faiss_export.read_index(tmp_path / "a.faiss", fitted)


@pytest.mark.parametrize("target", ["onnx", "sentence-transformers"])
def test_a_changed_byte_of_an_exported_folder_is_noticed(words, target, tmp_path):
    export(words(), target, tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        if path.name != "README.md":  # which people edit
            with pytest.raises(FileFormatError, match=re.escape(path.name)):
                verify_export(tmp_path / "out")
        path.write_bytes(content)
        verify_export(tmp_path / "out")
    path.unlink()
    with pytest.raises(FileFormatError, match=re.escape(path.name)):
        read_space(tmp_path / "out")


def test_a_folder_that_is_no_export_is_not_looked_at(tmp_path):
    (tmp_path / "isosent.json").write_text('{"format": "another"}')
    verify_export(tmp_path)


def test_the_arrays_are_sealed(fitted, tmp_path):
    export(fitted, "numpy", tmp_path / "map.safetensors")
    content = (tmp_path / "map.safetensors").read_bytes()
    with safe_open(tmp_path / "map.safetensors", "numpy") as file:
        seal = file.metadata()["isosent.checksum"]
    assert is_intact(content, seal)
    assert not is_intact(content[:-1] + bytes([content[-1] ^ 1]), seal)


def test_the_texts_of_a_check_cause_no_warning(wordllama):
    def encode(texts):
        warnings.warn("many words are unknown to a temporary folder", UnknownWordsWarning, stacklevel=1)
        return wordllama.encode(texts)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare_on_texts(wordllama, encode, has_zero_rows=True).holds


def test_arrays_are_not_written_as_files_of_numpy(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening())
    with pytest.raises(OutputError, match=r"map\.npz.*\.safetensors"):
        numpy_export.export_numpy(model, tmp_path / "map.npz")


# -- an index of isosent as a file of FAISS ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    """Vectors around a hundred centers; the last one is zero."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((100, 32)).repeat(12, axis=0) + 0.5 * random.standard_normal((1200, 32))
    return np.concatenate([rows, np.zeros((1, 32))]).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "store", "chain_of_ours"),
    [
        ("flat", "float32", "Flat"),
        ("flat", "int8", "SQ8,Refine(SQfp16)"),
        ("flat", "binary", "RR24,RaBitQ,Refine(SQfp16)"),
        ("flat", "product", "PCAR16,PQ16x4fs,Refine(SQfp16)"),
        ("ivf", "product", "PCAR16,IVF30,PQ16x4fs,Refine(SQfp16)"),
        ("hnsw", "float16", "HNSW16,SQfp16"),
    ],
)
def test_plain_faiss_finds_what_an_index_finds(many, tmp_path, kind, store, chain_of_ours):
    import faiss

    model = SentenceEncoder(PrecomputedVectors(32)).fitted_on_moments(
        Moments.from_rows(many[:-1]), transform=isosent.Whitening(24)
    )
    ids = np.random.default_rng(1).permutation(len(many)) + 5
    index = Index.create(vectors=many, model=model, ids=ids.tolist(), folder=tmp_path / "index", kind=kind, store=store)
    written = export_index(tmp_path / "index", tmp_path / "a.faiss")
    queries = many[:40] + np.float32(0.01)  # vectors of the encoder: the file has the map
    plain = faiss.read_index(str(tmp_path / "a.faiss"), faiss.IO_FLAG_MMAP_IFC)
    found = plain.search(queries, 10)[1]
    np.testing.assert_array_equal(found, index.search(queries, 10).ids)
    assert np.isin(found, ids).all()
    assert chain_of_ours in written.contents
    assert faiss.index_factory(24, chain_of_ours, faiss.METRIC_INNER_PRODUCT).d == 24
    note = json.loads((tmp_path / "a.faiss.isosent.json").read_text())
    assert (note["index"], note["fingerprint"], note["inputs"]) == (
        chain_of_ours,
        model.fingerprint,
        "encoder vectors",
    )
    assert faiss_export.read_index(tmp_path / "a.faiss", model).d == 32
    zero = int(ids[-1])
    assert zero not in plain.search(queries[:1], len(many))[1]  # a row without a vector has no id


def test_ids_that_are_text_become_numbers(many, tmp_path):
    import faiss

    Index.create(vectors=many[:200], ids=[f"row {number}" for number in range(200)], folder=tmp_path / "index")
    written = export_index(tmp_path / "index", tmp_path / "a.faiss")
    assert "numbered from 0" in written.contents
    assert faiss.read_index(str(tmp_path / "a.faiss")).search(many[7:8], 1)[1] == 7


def test_only_an_index_as_it_was_built_is_a_file(many, tmp_path):
    index = Index.create(vectors=many[:200], folder=tmp_path / "index")
    index.remove([3])
    with pytest.raises(InputError, match=r"deleted.*compact"):
        export_index(tmp_path / "index", tmp_path / "a.faiss")
    index.compact()
    export_index(tmp_path / "index", tmp_path / "a.faiss")
    before = (tmp_path / "a.faiss").read_bytes()
    index.add(vectors=many[300:310])
    with pytest.raises(InputError, match=r"added.*compact"):
        export_index(tmp_path / "index", tmp_path / "a.faiss")
    assert (tmp_path / "a.faiss").read_bytes() == before


def test_an_index_of_two_maps_is_written_without_them(wordllama, texts, tmp_path):
    import faiss

    model = wordllama.fitted(texts, transform=isosent.Whitening(8), queries=texts[:100])
    index = Index.create(texts, model, folder=tmp_path / "index")
    with pytest.raises(InputError, match="map=false"):
        export_index(tmp_path / "index", tmp_path / "a.faiss")
    export_index(tmp_path / "index", tmp_path / "a.faiss", with_map=False)
    found = faiss.read_index(str(tmp_path / "a.faiss")).search(model.encode_query(texts[:9]), 3)[1]
    np.testing.assert_array_equal(found, index.search(texts[:9], 3).ids)


def test_a_file_that_finds_other_rows_is_not_written(many, tmp_path, monkeypatch):
    Index.create(vectors=many[:200], folder=tmp_path / "index")
    with_ids = faiss_index._with_ids
    monkeypatch.setattr(faiss_index, "_with_ids", lambda made, ids: with_ids(made, np.roll(ids, 1)))
    with pytest.raises(OutputError, match="64 of 64"):
        export_index(tmp_path / "index", tmp_path / "a.faiss")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
