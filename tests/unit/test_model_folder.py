import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import load_file
from tampering import refuses, replace_part, rewrite

import isosent
from isosent import Whitening, persistence
from isosent.errors import InputError, OutputError
from isosent.loading import read_record
from isosent.transforms.quantization import Quantization


@pytest.fixture
def glove(tmp_path):
    """Word vectors of 40 words, 4 dimensions."""
    path = tmp_path / "glove.txt"
    rows = np.random.default_rng(1).normal(size=(40, 4)).round(3) + 1
    path.write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    return path


@pytest.fixture
def words():
    return [f"w{i} w{(7 * i + 3) % 40}" for i in range(40)]


@pytest.fixture
def saved(glove, words, tmp_path):
    model = isosent.load(f"words:{glove}").fitted(words, transform=Whitening(3), source="words")
    model.save(tmp_path / "model")
    return tmp_path / "model"


def map_file(folder):
    (path,) = folder.glob("linear_map-*.safetensors")
    return path


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_loaded_model_gives_bit_identical_vectors(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=Whitening(64, strength=0.5))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(isosent.load(tmp_path / "model").encode(texts), model.encode(texts))


def test_a_loaded_model_has_the_fingerprint_and_width_it_was_saved_with(glove, words, tmp_path):
    model = isosent.load(f"words:{glove}").fitted(words, transform=Whitening(3))
    model.save(tmp_path / "model")
    loaded = isosent.load(tmp_path / "model")
    assert (loaded.fingerprint, loaded.dim) == (model.fingerprint, 3)


def test_a_bare_encoder_can_be_saved(glove, words, tmp_path):
    model = isosent.load(f"words:{glove}?lowercase=false")
    model.save(tmp_path / "model")
    assert files(tmp_path / "model") == ["model.json"]
    loaded = isosent.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.encode(words), model.encode(words))
    assert loaded.encoder.options == {
        "lowercase": "false",
        "tokenizer": "wordpunct",
        "punctuation": "keep",
        "stop_words": "keep",
        "unknown": "skip",
        "weighting": "mean",
    }


def test_options_in_force_are_saved_so_that_they_need_not_be_repeated(glove, words, tmp_path):
    model = isosent.load(f"words:{glove}?tokenizer=whitespace").fitted(words, transform=Whitening(2))
    model.save(tmp_path / "model")
    assert isosent.load(tmp_path / "model").encoder.options["tokenizer"] == "whitespace"


def test_a_model_saved_with_a_relative_reference_opens_from_elsewhere(glove, words, tmp_path, monkeypatch):
    monkeypatch.chdir(glove.parent)
    isosent.load("words:glove.txt").fitted(words, transform=Whitening(2)).save("model")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert isosent.load(tmp_path / "model").dim == 2


@pytest.mark.parametrize("folder", ["with, comma", "with? mark", "with & and % 41"])
def test_a_model_opens_again_whatever_the_folder_of_its_encoder_is_called(glove, words, tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    glove.rename(tmp_path / folder / "glove.txt")
    monkeypatch.chdir(tmp_path / folder)
    isosent.load("words:glove.txt").fitted(words, transform=Whitening(2)).save("model")
    assert isosent.load("./model").dim == 2


def test_the_fit_is_recorded(saved):
    (fit,) = isosent.load(saved).fits
    assert (fit.transform, fit.n_texts, fit.n_zero_rows, fit.source) == ("whitening", 40, 0, "words")
    assert fit.parameters == isosent.Whitening(3).get_params()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", fit.fitted_at)


def test_texts_without_a_vector_are_left_out_of_the_fit_and_counted(glove, words):
    model = isosent.load(f"words:{glove}")
    with_empty = model.fitted(["", *words, "unknown"], transform=Whitening(3))
    assert (with_empty.fits[0].n_texts, with_empty.fits[0].n_zero_rows) == (40, 2)
    np.testing.assert_array_equal(with_empty.encode(words), model.fitted(words, transform=Whitening(3)).encode(words))


def test_a_transform_is_copied_and_not_changed_by_the_fit(glove, words):
    transform = Whitening(3)
    isosent.load(f"words:{glove}").fitted(words, transform=transform)
    assert not hasattr(transform, "_fit")


def test_a_fit_leaves_the_model_it_started_from_as_it_was(glove, words):
    model = isosent.load(f"words:{glove}")
    before = model.encode(words)
    model.fitted(words, transform=Whitening(3))
    assert (model.fits, model.linear_map) == ((), None)
    np.testing.assert_array_equal(model.encode(words), before)


def test_texts_of_unknown_words_only_cannot_be_fitted(glove):
    with pytest.raises(InputError, match=r"no word of the 2 texts"):
        isosent.load(f"words:{glove}").fitted(["unknown", ""], transform=Whitening(3))


def test_zero_texts_cannot_be_fitted(glove):
    with pytest.raises(InputError, match=r"fit: there are no texts"):
        isosent.load(f"words:{glove}").fitted([], transform=Whitening(3))


def test_zero_rows_stay_zero_behind_a_map(saved):
    vectors = isosent.load(saved).encode(["w1", "", "unknown"])
    assert vectors.any(axis=1).tolist() == [True, False, False]


def test_zero_texts_give_zero_rows_of_the_width_behind_the_map(saved):
    vectors = isosent.load(saved).encode([])
    assert (vectors.shape, vectors.dtype) == ((0, 3), np.float32)


def test_the_map_is_applied_to_the_vectors_of_the_encoder(saved, glove, words):
    model = isosent.load(saved)
    encoded = isosent.load(f"words:{glove}").encode(words).astype(np.float64)
    expected = encoded @ model.linear_map.weight + model.linear_map.bias
    np.testing.assert_allclose(model.encode(words), expected, atol=1e-5)


def test_a_second_fit_folds_into_one_map(glove, words, tmp_path):
    first = isosent.load(f"words:{glove}").fitted(words, transform=Whitening(3, strength=0.5), source="first")
    second = first.fitted(words[:20], transform=Whitening(2), source="second")
    second.save(tmp_path / "model")
    assert len(files(tmp_path / "model")) == 2
    loaded = isosent.load(tmp_path / "model")
    assert [fit.source for fit in loaded.fits] == ["first", "second"]
    assert loaded.linear_map.weight.shape == (4, 2)
    expected = Whitening(2).fit(first.encode(words[:20])).transform(first.encode(words))
    np.testing.assert_allclose(loaded.encode(words), expected, atol=1e-5)


def test_a_second_fit_keeps_zero_rows_zero(saved, words):
    again = isosent.load(saved).fitted(["", *words], transform=Whitening(2))
    assert again.fits[1].n_zero_rows == 1
    assert not again.encode([""]).any()


def test_a_saved_model_is_two_files(saved):
    assert files(saved) == [map_file(saved).name, "model.json"]


def test_saving_over_an_older_model_replaces_it_and_leaves_exactly_two_files(saved, glove, words):
    older = map_file(saved).name
    newer = isosent.load(f"words:{glove}").fitted(words, transform=Whitening(2))
    newer.save(saved)
    assert files(saved) == [map_file(saved).name, "model.json"]
    assert map_file(saved).name != older
    assert isosent.load(saved).fingerprint == newer.fingerprint


def test_saving_the_same_model_again_leaves_it_as_it_was(saved):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    isosent.load(saved).save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_saving_a_bare_encoder_over_a_model_leaves_no_map_behind(saved, glove):
    isosent.load(f"words:{glove}").save(saved)
    assert files(saved) == ["model.json"]


def test_saving_into_an_empty_folder_works(saved, tmp_path):
    (tmp_path / "empty").mkdir()
    isosent.load(saved).save(tmp_path / "empty")
    assert isosent.load(tmp_path / "empty").dim == 3


def test_a_folder_in_no_folder_is_refused(saved, tmp_path):
    with pytest.raises(OutputError, match="there is no folder"):
        isosent.load(saved).save(tmp_path / "a" / "b")


def test_a_map_of_the_user_is_no_leftover(wordllama, tmp_path):
    (tmp_path / "linear_map-0123456789abcdef.safetensors").write_bytes(b"mine")
    with pytest.raises(OutputError, match="is neither empty"):
        wordllama.save(tmp_path)
    assert (tmp_path / "linear_map-0123456789abcdef.safetensors").read_bytes() == b"mine"


def test_saves_at_the_same_time_leave_a_model(wordllama, texts, tmp_path):
    models = [wordllama.fitted(texts, transform=Whitening(k)) for k in (3, 4, 5, 6)]

    def save_often(model):
        for _ in range(20):
            model.save(tmp_path / "model")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save_often, models))
    assert isosent.load(tmp_path / "model").dim in (3, 4, 5, 6)
    assert len(list((tmp_path / "model").iterdir())) == 3  # with model.json, map and canary


def test_settings_of_numpy_types_are_saved(wordllama, texts, tmp_path):
    wordllama.fitted(texts, transform=Whitening(np.int64(8), strength=np.float32(0.5))).save(tmp_path / "model")
    assert isosent.load(tmp_path / "model").fits[0].parameters == Whitening(8, strength=0.5).get_params()


def test_a_wordllama_model_opens_wherever_one_stands(wordllama, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wordllama.fitted(texts, transform=Whitening(8)).save("wordllama")
    assert isosent.load("./wordllama").dim == 8


def test_a_folder_with_foreign_files_is_refused_and_kept(saved, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"foreign exists, and is neither empty nor an isosent model"):
        isosent.load(saved).save(tmp_path / "foreign")
    assert files(tmp_path / "foreign") == ["thesis.txt"]


def test_a_folder_with_a_model_file_of_another_tool_is_refused_and_kept(saved, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.json").write_text('{"format": "layers-model"}')
    with pytest.raises(OutputError, match=r"foreign exists, and is neither empty nor an isosent model"):
        isosent.load(saved).save(tmp_path / "foreign")
    assert (tmp_path / "foreign" / "model.json").read_text() == '{"format": "layers-model"}'


def test_a_file_in_place_of_the_folder_is_refused_and_kept(saved, tmp_path):
    (tmp_path / "file").write_text("content")
    with pytest.raises(OutputError, match=r"file exists, and is neither empty nor an isosent model"):
        isosent.load(saved).save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "content"


def test_a_copied_folder_opens(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "copy")
    assert isosent.load(tmp_path / "copy").fingerprint == isosent.load(saved).fingerprint


def test_an_unknown_format_version_says_which_isosent_wrote_it(saved):
    rewrite(saved, format_version=2, isosent_version="9.0")
    refuses(saved, r"format version 2; isosent .* reads version 1\. It was written by isosent 9\.0")


def test_another_format_is_refused(saved):
    rewrite(saved, format="something")
    refuses(saved, r"model\.json: expected the format isosent-model")


def test_a_missing_model_file_is_refused(saved):
    (saved / "model.json").unlink()
    refuses(saved, r"model is not a model saved by isosent: it has no model\.json")


@pytest.mark.parametrize("part", [0, 0.3, 0.99])
def test_a_truncated_model_file_is_refused(saved, part):
    content = (saved / "model.json").read_bytes()
    (saved / "model.json").write_bytes(content[: int(len(content) * part)].rstrip(b"}\n"))
    refuses(saved, r"model\.json: damaged, truncated or not JSON")


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b"[]", b'"isosent-model"', b"null"])
def test_a_model_file_of_something_else_is_refused(saved, content):
    (saved / "model.json").write_bytes(content)
    refuses(saved, r"model\.json: (damaged|Expected `object`|its format)")


@pytest.mark.parametrize(
    ("name", "value"), [("encoder", None), ("encoder", {}), ("fits", {}), ("fits", None), ("fingerprint", 3)]
)
def test_a_field_of_another_type_is_named(saved, name, value):
    rewrite(saved, **{name: value})
    refuses(saved, r"model\.json: .*(encoder|reference|fits|fingerprint)")


@pytest.mark.parametrize("fit", [{"transform": "whitening"}, {"unknown": 1}, "text", 3, None])
def test_a_malformed_entry_of_fits_is_refused(saved, fit):
    rewrite(saved, fits=[fit])
    refuses(saved, r"model\.json: .*fits")


@pytest.mark.parametrize("field", [{"choice": {"chosen": "none"}}, {"choice": {"reason": 3}}, {"history": [{}]}])
def test_a_malformed_choice_or_history_is_refused(saved, field):
    [fit] = json.loads((saved / "model.json").read_text())["fits"]
    rewrite(saved, fits=[fit | field])
    refuses(saved, r"model\.json: .*fits.*(choice|history)")


def test_a_missing_map_file_is_named(saved):
    path = map_file(saved)
    path.unlink()
    refuses(saved, rf"model: {path.name} is missing\. Copy the whole folder\.")


def test_a_model_replaced_while_it_is_read_is_read_again(glove, words, tmp_path, monkeypatch):
    models = [isosent.load(f"words:{glove}").fitted(words, transform=Whitening(n)) for n in (3, 2)]
    models[0].save(tmp_path / "model")
    read, waiting = persistence.read_document, [models[1]]

    def read_and_replace(path, *how):
        document = read(path, *how)
        if waiting:
            waiting.pop().save(tmp_path / "model")
        return document

    monkeypatch.setattr(persistence, "read_document", read_and_replace)
    assert persistence.read_model(tmp_path / "model").fingerprint == models[1].fingerprint


@pytest.mark.parametrize("n_kept", [0, 5, 60, -8])
def test_a_truncated_map_file_is_refused(saved, n_kept):
    path = map_file(saved)
    path.write_bytes(path.read_bytes()[:n_kept])
    refuses(saved, rf"{path.name}: damaged")


def test_a_map_with_one_wrong_byte_is_refused(saved):
    path = map_file(saved)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))
    refuses(saved, rf"{path.name}: damaged")


def test_a_map_of_another_model_is_refused(saved, glove, words, tmp_path):
    isosent.load(f"words:{glove}").fitted(words, transform=Whitening(2)).save(tmp_path / "other")
    replace_part(saved, "linear_map", load_file(map_file(tmp_path / "other")))
    refuses(saved, r"the map is not the one that was saved with this model; a file was altered")


def test_a_map_beyond_float32_is_refused(saved):
    arrays = load_file(map_file(saved))
    replace_part(saved, "linear_map", arrays | {"weight": arrays["weight"] * 1e300})
    refuses(saved, "weight holds numbers beyond float32")


def test_a_map_that_is_left_out_of_the_model_file_is_refused(saved):
    rewrite(saved, linear_map=None)
    refuses(saved, r"the map is not the one that was saved with this model; a file was altered")


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "/etc/passwd", "sub/map.safetensors", "..", "map\0.safetensors", ""]
)
def test_a_map_outside_the_folder_is_refused(saved, name):
    rewrite(saved, linear_map=name)
    refuses(saved, r"model\.json: .*linear_map")


@pytest.mark.parametrize(
    ("weight", "bias"), [((4, 3), (2,)), ((4,), (4,)), ((4, 3), (3, 1))], ids=["bias", "one-dimensional", "column"]
)
def test_a_map_of_shapes_that_do_not_agree_is_refused(saved, weight, bias):
    replace_part(saved, "linear_map", {"weight": np.ones(weight), "bias": np.ones(bias)})
    refuses(saved, r"does not hold weight \(dim, n_components\) and bias \(n_components,\): .* Make it again\.$")


def test_a_map_without_bias_is_refused(saved):
    replace_part(saved, "linear_map", {"weight": np.ones((4, 3))})
    refuses(saved, r"does not hold weight \(dim, n_components\) and bias \(n_components,\): 'bias'")


def test_a_map_of_another_width_than_the_encoder_is_refused(saved):
    replace_part(saved, "linear_map", {"weight": np.ones((5, 3)), "bias": np.ones(3)})
    refuses(saved, r"its transform takes 5 dimensions, but its encoder has 4")


def test_a_map_with_nan_is_refused(saved):
    tensors = load_file(map_file(saved))
    tensors["bias"][0] = np.nan
    replace_part(saved, "linear_map", tensors)
    refuses(saved, r"holds NaN or infinity")


def test_a_model_whose_word_vectors_were_rewritten_is_refused(saved, glove):
    glove.write_text(glove.read_text().replace("w0 ", "w0 9"))
    refuses(saved, r"model was fitted on words:.*glove\.txt with the fingerprint [0-9a-f]{16}; .* now has [0-9a-f]{16}")


def test_an_encoder_with_a_nul_in_its_name_is_refused(saved):
    encoder = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    rewrite(saved, encoder=encoder | {"reference": "words:glove\0.txt"})
    refuses(saved, r"model\.json: .*reference")


def test_a_model_with_a_damaged_map_can_be_replaced(saved, glove, words):
    map_file(saved).write_bytes(b"damaged")
    isosent.load(f"words:{glove}").fitted(words, transform=Whitening(2)).save(saved)
    assert isosent.load(saved).dim == 2
    assert len(files(saved)) == 2


def test_a_model_whose_options_were_altered_is_refused(saved):
    encoder = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    rewrite(saved, encoder=encoder | {"options": {"lowercase": "false", "tokenizer": "wordpunct"}})
    refuses(saved, r"cannot be compared")


@pytest.mark.parametrize("options", [{"lowercase": 1}, {"lowercase": "maybe", "tokenizer": "nltk"}, {"strange": "x"}])
def test_a_model_with_impossible_options_is_refused(saved, options):
    encoder = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    rewrite(saved, encoder=encoder | {"options": options})
    refuses(saved, r"(lowercase=.*: choose true|there is no option strange|encoder\.options)")


def test_a_model_whose_word_vectors_are_gone_says_how_to_name_them(saved, glove):
    glove.unlink()
    refuses(
        saved,
        r"model: its encoder, words:.*glove\.txt, could not be loaded: .*glove\.txt: no such file\.\n"
        r"If it was moved, name it: FOLDER\?encoder=REFERENCE.*\.$",
    )


def test_a_model_whose_word_vectors_were_moved_opens_with_the_new_place(saved, glove, words):
    before = isosent.load(saved).encode(words)
    moved = glove.rename(glove.with_name("moved.txt"))
    np.testing.assert_array_equal(isosent.load(f"{saved}?encoder=words:{moved}").encode(words), before)
    np.testing.assert_array_equal(isosent.load(saved, encoder=f"words:{moved}").encode(words), before)


def test_a_model_opened_at_a_new_place_and_saved_remembers_it(saved, glove, tmp_path):
    moved = glove.rename(glove.with_name("moved.txt"))
    isosent.load(f"{saved}?encoder=words:{moved}").save(tmp_path / "again")
    assert isosent.load(tmp_path / "again").encoder.reference == f"words:{moved}"


def test_other_vectors_are_refused_for_a_model(saved, tmp_path):
    (tmp_path / "other.txt").write_text("w0 1 2 3 4\nw1 5 6 7 8\n")
    words = r"was fitted on words:.*glove\.txt with .*; words:.*other\.txt now has .*Name the right encoder with \?enc"
    refuses(f"{saved}?encoder=words:{tmp_path / 'other.txt'}", words)


def test_an_encoder_of_another_kind_is_refused_for_a_model(saved):
    refuses(
        f"{saved}?encoder=wordllama",
        r"its encoder, wordllama, could not be loaded: it is another kind of model than words:.*glove\.txt\.\n"
        r"If it was moved, name it: FOLDER\?encoder=REFERENCE.*\.$",
    )


def test_a_reference_that_is_none_is_refused_without_the_whole_grammar(saved):
    encoder = json.loads((saved / "model.json").read_text("utf-8"))["encoder"]
    rewrite(saved, encoder=encoder | {"reference": "1words:x"})
    refuses(saved, r"could not be loaded: [^\n]*'1words:x' is neither a model[^\n]*\n[^\n]*$")


def test_a_model_folder_is_no_encoder(saved):
    refuses(
        f"{saved}?encoder={saved}",
        r"its encoder, .*model, could not be loaded: it is another kind of model than words:",
    )


def test_options_of_a_moved_encoder_are_those_of_the_folder(saved, glove):
    refuses(
        f"{saved}?encoder=words:{glove}?lowercase=false",
        "it has options, .* except files that were moved",
    )


@pytest.mark.parametrize("name", ["with? mark", "100%25", "a, b"])
def test_a_path_is_a_folder_whatever_characters_it_has(wordllama, texts, tmp_path, name):
    model = wordllama.fitted(texts, transform=isosent.Whitening(4))
    model.save(tmp_path / name)
    assert isosent.load(tmp_path / name).fingerprint == model.fingerprint


def test_the_record_is_read_without_the_encoder(saved, glove):
    fingerprint = isosent.load(saved).fingerprint
    glove.unlink()
    record = read_record(saved)
    assert (record.fingerprint, record.encoder_dim) == (fingerprint, 4)
    assert record.facts()["dim"] == 3


def test_the_fingerprint_of_a_model_is_another_than_that_of_its_encoder(saved):
    model = isosent.load(saved)
    assert model.fingerprint != model.encoder.fingerprint


@pytest.fixture
def quantized(saved, words):
    """The saved model with a quantization."""
    model = isosent.load(saved)
    model = model.with_quantization(Quantization.fit(model.encode(words, normalize_embeddings=True)))
    model.save(saved)
    return model


def test_a_quantization_is_saved_and_leaves_the_space_as_it_is(quantized, saved, words):
    kinds = [name.partition("-")[0] for name in files(saved)]
    assert kinds == ["linear_map", "model.json", "quantization"]
    loaded = isosent.load(saved)
    assert loaded.fingerprint == quantized.with_quantization(None).fingerprint
    for precision, dtype, width in (("int8", np.int8, 3), ("ubinary", np.uint8, 1)):
        codes = loaded.encode(words, precision=precision)
        assert (codes.dtype, codes.shape) == (dtype, (40, width))
        np.testing.assert_array_equal(codes, quantized.encode(words, precision=precision))
    decoded = loaded.quantization.decode(loaded.encode(words, precision="int8"), "int8")
    np.testing.assert_allclose(decoded, loaded.encode(words, normalize_embeddings=True), atol=0.02)


def test_a_quantization_stays_with_its_space(quantized, words):
    calibration = isosent.Calibration.from_random_pairs(quantized.encode(words))
    assert quantized.with_calibration(calibration).quantization is quantized.quantization
    assert quantized.with_calibration(calibration).with_quantization(None).calibration is calibration
    assert quantized.fitted(words, transform=Whitening(2)).quantization is None
    with pytest.raises(InputError, match="2"):
        quantized.fitted(words, transform=Whitening(2)).with_quantization(quantized.quantization)


def test_a_model_without_a_quantization_says_how_to_fit_one(saved, words):
    with pytest.raises(InputError, match="with_quantization"):
        isosent.load(saved).encode(words, precision="int8")
    with pytest.raises(InputError, match="float16"):
        isosent.load(saved).encode(words, precision="float16")


@pytest.mark.parametrize(
    ("change", "key_word"),
    [
        ({"low": np.zeros(2, np.float32)}, "expected .* as float32 of"),
        ({"step": np.full(3, -1, np.float32)}, "negative"),
        ({"center": np.full(3, np.nan, np.float32)}, "center holds NaN"),
        ({"rotation": np.eye(3)}, "float64"),
        ({"rotation": None}, "missing"),
        ({"low": None, "step": None, "center": None, "rotation": None}, "missing"),
    ],
)
def test_a_damaged_quantization_is_refused(quantized, saved, change, key_word):
    tensors = quantized.quantization.tensors() | change
    replace_part(saved, "quantization", {name: array for name, array in tensors.items() if array is not None})
    refuses(saved, key_word)


def test_a_quantization_of_another_width_is_refused(quantized, saved):
    other = Quantization.fit(np.eye(2))
    replace_part(saved, "quantization", other.tensors())
    refuses(saved, "vectors have 3")
    (path,) = saved.glob("quantization-*")
    path.write_bytes(path.read_bytes()[:-3])
    refuses(saved, "damaged")
