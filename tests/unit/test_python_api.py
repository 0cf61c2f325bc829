"""What users of sentence-transformers, Model2Vec, scikit-learn and pandas try first."""

import json
import pickle

import numpy as np
import pytest

import isosent
from isosent.errors import InputError, InputTypeError, IsosentWarning

TEXTS = ["A man is riding a horse.", "", "Rates rose again.", "A man is riding a horse."]


def count_letters(texts):
    """An encoder of three dimensions."""
    return np.array([[len(text), text.count("a"), text.count("e")] for text in texts], dtype=np.float64)


class Outer:
    """An encoder with one method for texts and another for queries."""

    def encode(self, texts):
        return count_letters(texts)

    def encode_query(self, texts):
        return count_letters(texts) + 1


def test_a_single_string_gives_one_vector(wordllama):
    vector = wordllama.encode(TEXTS[0])
    assert vector.shape == (256,)
    np.testing.assert_array_equal(vector, wordllama.encode(TEXTS)[0])


def test_arguments_of_sentence_transformers_are_taken(wordllama, capsys):
    torch = pytest.importorskip("torch")
    plain = wordllama.encode(TEXTS)
    same = wordllama.encode(TEXTS, batch_size=2, show_progress_bar=True, device=torch.device("cpu"))
    np.testing.assert_array_equal(same, plain)
    assert "encoding" in capsys.readouterr().err
    units = wordllama.encode_query(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), [1, 0, 1, 1], atol=1e-6)
    tensor = wordllama.encode_document(TEXTS, convert_to_tensor=True)
    np.testing.assert_array_equal(tensor.numpy(), plain)
    assert [row.shape for row in wordllama.encode(TEXTS, convert_to_numpy=False)] == [(256,)] * 4
    assert wordllama.encode("one", convert_to_tensor=True).shape == (256,)


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"device": "cuda:0"}])
def test_arguments_out_of_range_are_refused(wordllama, arguments):
    [(name, value)] = arguments.items()
    with pytest.raises(InputError, match=f"{name}.*{value}"):
        wordllama.encode(TEXTS, **arguments)


def test_a_transformer_takes_a_device(tiny_model):
    model = isosent.load(f"hf:{tiny_model('bert')}")
    np.testing.assert_array_equal(model.encode(TEXTS, device="cpu"), model.encode(TEXTS))
    with pytest.raises(InputError, match="devices"):
        model.encode(TEXTS, device="abacus")


def test_texts_may_be_a_tuple_an_array_or_a_series(wordllama):
    expected = wordllama.encode(TEXTS)
    for texts in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object), iter(TEXTS)):
        np.testing.assert_array_equal(wordllama.encode(texts), expected)
    pandas = pytest.importorskip("pandas")
    for blank in (None, float("nan"), pandas.NA):
        series = pandas.Series([TEXTS[0], blank, *TEXTS[2:]], index=[7, 7, 8, 9])
        np.testing.assert_array_equal(wordllama.encode(series), expected)
    with pytest.raises(InputTypeError, match=r"DataFrame.*column"):
        wordllama.encode(pandas.DataFrame({"text": TEXTS}))


def test_no_texts_give_no_rows(wordllama):
    assert wordllama.encode(()).shape == (0, 256)


def test_similarity_takes_single_texts_and_vectors(wordllama):
    first, second = wordllama.encode(TEXTS[0]), wordllama.encode(TEXTS[2])
    expected = wordllama.similarity([TEXTS[0]], [TEXTS[2]])
    for pair in ((TEXTS[0], TEXTS[2]), (first, second), (first.tolist(), second.tolist()), (first[None], [second])):
        np.testing.assert_allclose(wordllama.similarity(*pair), expected, atol=1e-6)
    np.testing.assert_allclose(wordllama.similarity(np.array([TEXTS[0]]), (TEXTS[2],)), expected, atol=1e-6)
    with pytest.raises(InputError, match="similarity"):
        wordllama.similarity(1, 2)


def test_similarity_takes_a_column_with_blank_cells(wordllama):
    pandas = pytest.importorskip("pandas")
    cosines = wordllama.similarity(pandas.Series([None, TEXTS[0]]), TEXTS[0])
    np.testing.assert_allclose(cosines, [[0], [1]], atol=1e-6)


def test_transform_takes_lists(wordllama, texts):
    model = wordllama.fitted(texts, "whitening", settings={"n_components": 4})
    vectors = wordllama.encode(TEXTS)
    np.testing.assert_allclose(model.transform(vectors.tolist()), model.encode(TEXTS), atol=1e-5)
    assert model.transform([[1] * 256]).shape == (1, 4)
    for vectors in ([[1, 2, 3]], [1.0] * 256, [["a"] * 256]):
        with pytest.raises(InputError, match="transform"):
            model.transform(vectors)


def test_fitted_without_a_transform_means_auto(wordllama, texts):
    assert wordllama.fitted(texts).fingerprint == wordllama.fitted(texts, "auto").fingerprint
    assert wordllama.fitted(texts, "none") is wordllama.fitted(texts, None) is wordllama


def test_a_transform_may_be_a_name_with_settings(wordllama, texts):
    by_class = wordllama.fitted(texts, isosent.chain(isosent.MeanCentering(), isosent.Whitening(8)))
    by_name = wordllama.fitted(texts, "mean_centering,whitening", settings={"n_components": 8})
    by_options = wordllama.fitted(texts, "mean_centering,whitening?dims=8")
    on_vectors = wordllama.fitted_on_vectors(wordllama.encode(texts), "mean_centering,whitening?dims=8")
    assert by_class.fingerprint == by_name.fingerprint == by_options.fingerprint == on_vectors.fingerprint


@pytest.mark.parametrize("transform", ["none", None, isosent.Whitening()])
def test_settings_need_a_name(wordllama, texts, transform):
    with pytest.raises(InputError, match="n_components"):
        wordllama.fitted(texts, transform, settings={"n_components": 8})


def test_the_record_holds_numbers_for_auto(wordllama, texts):
    for transform, width in (("whitening", "auto"), ("whitening", 0.9), ("auto", 0.9), ("auto", "auto")):
        [fit] = wordllama.fitted(texts, transform, settings={"n_components": width}).fits
        assert 1 < fit.parameters["n_components"] < 256
        json.dumps(fit.parameters)


def test_the_record_of_a_chain_holds_numbers_too(wordllama, texts):
    [fit] = wordllama.fitted(texts, "whitening?strength=0.5&n_components=0.9,l2_normalize").fits
    whitening, normalize = fit.parameters["steps"]
    assert whitening["strength"] == 0.5
    assert 1 < whitening["n_components"] < 256
    assert normalize == {"transform": "l2_normalize"}
    json.dumps(fit.parameters)


def wrap_without_reference(model):
    with pytest.warns(IsosentWarning, match="wrap: .* cannot be saved"):
        return isosent.wrap(model)


@pytest.mark.parametrize("model", [count_letters, Outer()], ids=["function", "object"])
def test_a_wrapped_encoder_is_fitted_and_pickled(model, texts):
    wrapped = wrap_without_reference(model)
    np.testing.assert_array_equal(wrapped.encode(["a tea", "  ", "a tea"]), [[5, 2, 1], [0, 0, 0], [5, 2, 1]])
    assert wrapped.encode([]).shape == (0, 3)
    fitted = wrapped.fitted(texts, "whitening")
    np.testing.assert_allclose(np.cov(fitted.encode(texts).T, ddof=0), np.eye(3), atol=1e-3)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.encode(texts), fitted.encode(texts))
    assert again.fingerprint == fitted.fingerprint != wrapped.fingerprint == wrap_without_reference(model).fingerprint


def test_a_wrapped_encoder_may_encode_queries_in_another_way(texts):
    wrapped = wrap_without_reference(Outer())
    np.testing.assert_array_equal(wrapped.encode_query(["a tea"]), [[6, 3, 2]])
    np.testing.assert_array_equal(wrapped.encode_document(["a tea"]), [[5, 2, 1]])
    assert wrapped.fitted(texts, "mean_centering", queries=texts).query_map is not None


def test_a_function_cannot_be_saved_and_says_so_before_anything_is_written(tmp_path, texts):
    fitted = wrap_without_reference(count_letters).fitted(texts, "whitening")
    with pytest.raises(InputError, match=r"count_letters cannot be saved.*reference"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "function",
    [
        lambda texts: count_letters(texts)[0],
        lambda texts: count_letters(texts)[:1],
        lambda texts: count_letters(texts) * np.nan,
        lambda texts: texts,
    ],
)
def test_what_gives_no_vectors_is_not_wrapped(function):
    with pytest.raises(InputError, match="vectors"):
        isosent.wrap(function)


@pytest.mark.parametrize("value", [3, None, "wordllama", dict])
def test_what_cannot_be_called_is_not_wrapped(value):
    with pytest.raises(InputTypeError, match="wrap"):
        isosent.wrap(value)


def test_stored_vectors_are_wrapped_by_their_texts(texts, wordllama, tmp_path):
    vectors = wordllama.encode(texts)
    stored = dict(zip(texts, vectors, strict=True))
    model = isosent.wrap(stored)
    np.testing.assert_array_equal(model.encode([texts[3], "", texts[1]])[[0, 2]], vectors[[3, 1]])
    assert model.fingerprint == isosent.wrap(dict(reversed(stored.items()))).fingerprint
    assert model.fingerprint != isosent.wrap(stored | {texts[0]: vectors[1]}).fingerprint
    fitted = model.fitted(texts)
    assert fitted.fits[-1].choice["chosen"] == wordllama.fitted(texts).fits[-1].choice["chosen"]
    fitted.save(tmp_path / "m")
    np.testing.assert_array_equal(isosent.load(tmp_path / "m").transform(vectors), fitted.encode(texts))
    assert (pickle.loads(pickle.dumps(model)).encode(texts[0]) == vectors[0]).all()
    with pytest.raises(InputError, match=r"no vector is stored for the text 'a new text'.* add it to the files"):
        model.encode(["a new text"])
    with pytest.raises(InputError, match=r"wrap\(\{text: vector"):
        isosent.wrap(lambda some: np.stack([stored[text] for text in some]))
    for bad in ({}, {"": [1.0]}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": [float("nan")]}):
        with pytest.raises(InputError):
            isosent.wrap(bad)


def test_a_model_of_ours_is_wrapped_already(wordllama):
    assert isosent.wrap(wordllama) is wordllama
    assert isosent.wrap(wordllama.encoder).fingerprint == wordllama.fingerprint


def test_a_model_in_memory_is_not_loaded(wordllama):
    with pytest.raises(InputTypeError, match="wrap"):
        isosent.load(wordllama)


def test_a_sentence_transformer_is_wrapped_and_saved_by_the_name_it_was_loaded_by(tiny_model, tmp_path, texts):
    library = pytest.importorskip("sentence_transformers")
    folder = tiny_model("labse")
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    model = isosent.wrap(theirs)
    np.testing.assert_allclose(model.encode(texts[:9]), theirs.encode(texts[:9]), atol=1e-6)
    fitted = model.fitted(texts, "whitening", settings={"n_components": 4})
    fitted.save(tmp_path / "model")
    np.testing.assert_allclose(isosent.load(tmp_path / "model").encode(texts[:9]), fitted.encode(texts[:9]), atol=1e-3)
    np.testing.assert_array_equal(
        isosent.load(str(folder)).encode(texts[:9]), isosent.load(f"hf:{folder}").encode(texts[:9])
    )


def test_a_changed_sentence_transformer_is_not_saved_by_its_old_name(tiny_model, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(tiny_model("labse")), device="cpu")
    for parameter in theirs.parameters():
        parameter.data += 0.05
    with pytest.raises(InputError, match="does not give the vectors"):
        isosent.wrap(theirs).save(tmp_path / "model")


def test_a_static_model_is_wrapped_and_saved_by_the_reference_that_is_named(tmp_path, texts):
    library = pytest.importorskip("model2vec")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "A": 1, "man": 2, "is": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    theirs = library.StaticModel(np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32), tokenizer)
    theirs.save_pretrained(tmp_path / "potion")
    model = isosent.wrap(theirs, reference=str(tmp_path / "potion"))
    np.testing.assert_allclose(model.encode(["A man"]), theirs.encode(["A man"]), atol=1e-6)
    unnamed = wrap_without_reference(theirs)
    with pytest.raises(InputError, match="cannot be saved"):
        unnamed.save(tmp_path / "unnamed")
    with pytest.raises(InputError, match="nowhere"):
        isosent.wrap(theirs, reference=f"static:{tmp_path / 'nowhere'}").save(tmp_path / "model")
    model.save(tmp_path / "model")
    np.testing.assert_allclose(isosent.load(tmp_path / "model").encode(["A man"]), model.encode(["A man"]), atol=1e-6)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose models lie in a folder."""
    import huggingface_hub

    def snapshot_download(name, **_):
        folder = tmp_path / "hub" / name
        if not folder.is_dir():
            raise FileNotFoundError(name)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    (tmp_path / "hub" / "owner").mkdir(parents=True)
    return tmp_path / "hub" / "owner"


def test_a_plain_id_of_the_hub_is_loaded(hub, tiny_model, tmp_path, texts):
    (hub / "bert").symlink_to(tiny_model("bert"))
    model = isosent.load("owner/bert", layers=[1, -1], pooling="mean")
    assert model.encoder.reference == "hf:owner/bert"
    model.fitted(texts, "whitening", settings={"n_components": 4}).save(tmp_path / "model")
    assert isosent.load(tmp_path / "model").dim == 4
    assert isosent.load(tmp_path / "model", encoder="owner/bert").dim == 4
    with pytest.raises(InputError, match=r"owner/gone.*folder"):
        isosent.load("owner/gone")


def test_a_static_model_of_the_hub_is_recognized(hub, tmp_path):
    library = pytest.importorskip("model2vec")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    library.StaticModel(np.eye(2, 3, dtype=np.float32), tokenizer).save_pretrained(hub / "potion")
    for model in (isosent.load("owner/potion"), isosent.load("static:owner/potion")):
        assert (model.encoder.reference, model.dim) == ("static:owner/potion", 3)
    with pytest.raises(InputError, match=r"Model2Vec.*layers"):
        isosent.load("owner/potion?layers=1")
    (hub / "notes").mkdir()
    with pytest.raises(InputError, match="owner/notes"):
        isosent.load("owner/notes")


def test_options_are_keywords_of_any_type(tmp_path):
    model = isosent.load("wordllama", weighting="sif", n_components=1)
    assert model.fingerprint == isosent.load("wordllama?weighting=sif&n_components=1").fingerprint
    (tmp_path / "words, few.txt").write_text("a\n")
    (tmp_path / "vectors.txt").write_text("a 1 2\nb 3 4\n")
    words = f"words:{tmp_path / 'vectors.txt'}"
    assert not isosent.load(words, vocabulary=tmp_path / "words, few.txt").encode("b").any()
    assert (
        isosent.load(words, tokenizer="whitespace").fingerprint
        == isosent.load(f"{words}?tokenizer=whitespace").fingerprint
    )
    with pytest.raises(InputTypeError, match="weighting"):
        isosent.load(words, weighting=3)
