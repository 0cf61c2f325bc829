import importlib.util
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from model2vec import StaticModel
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import isosent
from isosent import Whitening
from isosent.encoders.reference import escape
from isosent.encoders.static import StaticEncoder
from isosent.errors import FileFormatError, InputError, InputFileError, InputTypeError, TruncationWarning
from isosent.words.tokens import WordTokenizer
from isosent.words.vocabulary import Vocabulary

WORDS = ("[UNK]", "the", "man", "dog", "rides", "a", "horse", "runs", ".", "[CLS]")
SENTENCES = [
    "the man rides a horse .",
    "a dog runs .",
    "the zebra runs",
    "",
    "zebra unicorn",
    "man",
    "the the the the the dog " * 7,
]


def word_level(unknown="[UNK]"):
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 9)])
    return tokenizer


def unigram():
    pieces = [("<unk>", 0.0), *((f"▁{word}", -float(i)) for i, word in enumerate(WORDS[1:], start=1))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def table(dtype=np.float32):
    rows = np.random.default_rng(5).normal(size=(len(WORDS), 6))
    return (rows * 40).round().astype(np.int8) if dtype == np.int8 else rows.astype(dtype)


@pytest.fixture
def save_static(tmp_path):
    def save_static(vectors=None, tokenizer=None, **settings):
        model = StaticModel(table() if vectors is None else vectors, tokenizer or word_level(), **settings)
        model.save_pretrained(tmp_path / "static")
        return tmp_path / "static"

    return save_static


@pytest.fixture
def words_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 2\nman 3 4\n. 5 -7\n")
    return path


def assert_close(ours, theirs):
    assert ours.shape == theirs.shape
    norms = np.linalg.norm(theirs.astype(np.float64), axis=1)
    differences = np.linalg.norm(ours.astype(np.float64) - theirs.astype(np.float64), axis=1)
    assert (differences <= 1e-6 * norms).all()


ODD_FOLDERS = ["with, comma", "with? mark", "with % sign", "%2C", "a%3Fb, c? 100%25"]


def encoders(words_file, save_static):
    return [isosent.load(reference) for reference in ("wordllama", f"words:{words_file}", f"static:{save_static()}")]


def test_wordllama_is_the_mean_of_its_token_vectors(wordllama, texts):
    folder = Path(importlib.util.find_spec("wordllama").submodule_search_locations[0])
    vectors = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"].astype(np.float64)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    expected = [vectors[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text in texts[:100]]
    assert_close(wordllama.encode(texts[:100]), np.array(expected))


def test_wordllama_has_256_dimensions(wordllama):
    assert (wordllama.dim, wordllama.encode(["a man"]).dtype) == (256, np.float32)


def test_wordllama_is_the_default(wordllama):
    assert isosent.load().fingerprint == wordllama.fingerprint


def test_words_are_averaged_and_unknown_ones_skipped(words_file):
    vectors = isosent.load(f"words:{words_file}").encode(["The man.", "the zebra", "man man the"])
    np.testing.assert_array_equal(vectors, np.array([[3, -1 / 3], [1, 2], [7 / 3, 10 / 3]], dtype=np.float32))


def test_words_can_tell_case_apart(words_file):
    vectors = isosent.load(f"words:{words_file}?lowercase=false").encode(["The man", "the man"])
    np.testing.assert_array_equal(vectors, np.array([[3, 4], [2, 3]], dtype=np.float32))


def test_words_can_be_split_at_white_space(words_file):
    vectors = isosent.load(f"words:{words_file}", tokenizer="whitespace").encode(["the man.", "the man ."])
    np.testing.assert_array_equal(vectors, np.array([[1, 2], [3, -1 / 3]], dtype=np.float32))


def test_words_of_several_files_stand_side_by_side(words_file, tmp_path):
    (tmp_path / "more.txt").write_text("man 9\ndog 8\n")
    model = isosent.load(f"words:{words_file},{tmp_path / 'more.txt'}")
    np.testing.assert_array_equal(model.encode(["man", "the", "dog"]), [[3, 4, 9], [1, 2, 0], [0, 0, 8]])


def test_words_remember_where_they_lie_however_they_were_named(words_file, monkeypatch):
    monkeypatch.chdir(words_file.parent)
    assert isosent.load("words:vectors.txt").encoder.reference == f"words:{words_file.resolve()}"


@pytest.mark.parametrize("name", ODD_FOLDERS)
def test_words_in_folders_of_odd_names_are_opened_by_the_reference_they_remember(words_file, tmp_path, name):
    before = isosent.load(f"words:{words_file},{words_file}").encode(["The man."])
    (tmp_path / name).mkdir()
    moved = words_file.rename(tmp_path / name / "vectors.txt")
    written = escape(str(moved))
    model = isosent.load(f"words:{written},{written}?lowercase=true")
    assert model.encoder.reference == f"words:{written},{written}"
    np.testing.assert_array_equal(isosent.load(model.encoder.reference).encode(["The man."]), before)


@pytest.mark.parametrize("name", ODD_FOLDERS)
def test_static_folders_of_odd_names_are_opened_by_the_reference_they_remember(save_static, tmp_path, name):
    folder = save_static()
    before = isosent.load(f"static:{folder}").encode(SENTENCES)
    moved = folder.rename(tmp_path / name)
    model = isosent.load(f"static:{escape(str(moved))}?max_length=512")
    assert model.encoder.reference == f"static:{escape(str(moved))}"
    np.testing.assert_array_equal(isosent.load(model.encoder.reference).encode(SENTENCES), before)


@pytest.mark.parametrize("name", ODD_FOLDERS)
@pytest.mark.parametrize("kind", ["words", "static"])
def test_a_model_behind_an_encoder_in_a_folder_of_an_odd_name_is_saved_and_opened(
    words_file, save_static, tmp_path, name, kind
):
    (tmp_path / name).mkdir()
    moved = (words_file if kind == "words" else save_static()).rename(tmp_path / name / "moved")
    model = isosent.load(f"{kind}:{escape(str(moved))}").fitted(["the", "man", "the man"], transform=Whitening(1))
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(isosent.load(tmp_path / "model").encode(["man"]), model.encode(["man"]))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 2.0, len(WORDS), dtype=np.float32)], ids=["", "weights"])
def test_static_agrees_with_model2vec(save_static, dtype, weights):
    folder = save_static(table(dtype), weights=weights)
    theirs = StaticModel.from_pretrained(folder)
    assert theirs.embedding.dtype == dtype
    if dtype == np.float16:  # they average float16 in float16; the same vectors in float32 show the definition
        theirs.embedding = theirs.embedding.astype(np.float32)
    assert_close(isosent.load(f"static:{folder}").encode(SENTENCES), theirs.encode(SENTENCES))


def test_static_with_shared_vectors_agrees_with_model2vec(save_static):
    folder = save_static(table()[:4], token_mapping=np.arange(len(WORDS)) % 4, weights=np.linspace(0.1, 2, len(WORDS)))
    assert_close(
        isosent.load(f"static:{folder}").encode(SENTENCES), StaticModel.from_pretrained(folder).encode(SENTENCES)
    )


def test_static_with_normalize_agrees_with_model2vec(save_static):
    folder = save_static(normalize=True)
    ours = isosent.load(f"static:{folder}").encode(SENTENCES)
    assert_close(ours, StaticModel.from_pretrained(folder).encode(SENTENCES))
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1)[[0, 1, 2, 5, 6]], 1, rtol=1e-6)


def test_static_without_normalize_can_be_told_to(save_static):
    folder = save_static()
    theirs = StaticModel.from_pretrained(folder).encode(SENTENCES, normalize=True)
    assert_close(isosent.load(f"static:{folder}?normalize=true").encode(SENTENCES), theirs)


def test_static_with_a_unigram_tokenizer_agrees_with_model2vec(save_static):
    folder = save_static(tokenizer=unigram())
    assert_close(
        isosent.load(f"static:{folder}").encode(SENTENCES), StaticModel.from_pretrained(folder).encode(SENTENCES)
    )


@pytest.mark.parametrize("tokenizer", [word_level, unigram])
def test_static_leaves_texts_of_unknown_words_zero(save_static, tokenizer):
    vectors = isosent.load(f"static:{save_static(tokenizer=tokenizer())}").encode(["zebra unicorn", "man"])
    assert vectors.any(axis=1).tolist() == [False, True]


def test_static_takes_its_settings_from_the_folder(save_static):
    encoder = isosent.load(f"static:{save_static(normalize=True, max_length=7)}").encoder
    assert encoder.options == {"normalize": "true", "max_length": "7", "weighting": "mean"}


def test_static_without_a_maximum_says_so(save_static):
    assert isosent.load(f"static:{save_static(max_length=None)}").encoder.options["max_length"] == "none"


def test_static_reads_the_layout_of_sentence_transformers(tmp_path):
    inner = tmp_path / "st" / "0_StaticEmbedding"
    inner.mkdir(parents=True)
    word_level().save(str(inner / "tokenizer.json"))
    save_file({"embedding.weight": table()}, inner / "model.safetensors")
    modules = [
        {"path": "0_StaticEmbedding", "type": "sentence_transformers.models.StaticEmbedding"},
        {"path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
    model = isosent.load(f"static:{tmp_path / 'st'}")
    assert model.encoder.options == {"normalize": "true", "max_length": "none", "weighting": "mean"}
    static = StaticEmbedding(word_level(), embedding_weights=table())
    theirs = SentenceTransformer(modules=[static, Normalize()], device="cpu").encode(SENTENCES)
    assert_close(model.encode(SENTENCES), theirs)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (["StaticEmbedding", "Pooling"], "the module Pooling is not read"),
        (["Dense", "StaticEmbedding"], "Expected a StaticEmbedding"),
        (["Transformer"], "Expected a StaticEmbedding"),
        ([], "lists nothing"),
    ],
)
def test_other_modules_than_static_ones_are_refused(tmp_path, kinds, words):
    modules = [{"path": "", "type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FileFormatError, match=words):
        isosent.load(f"static:{tmp_path}")


def test_ids_beyond_the_vectors_are_refused(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 5_000_000}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    save_file({"embeddings": np.ones((3, 2), dtype=np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(FileFormatError, match="has 3 vectors, but its tokens go up to 5000000"):
        isosent.load(f"static:{tmp_path}")


def test_max_length_cuts_as_model2vec_does_and_counts_once(save_static):
    folder = save_static()
    model = isosent.load(f"static:{folder}?max_length=2")
    texts = ["the man rides", "dog", "a a dog", "a a a a a a"]
    with pytest.warns(TruncationWarning, match=r"3 of 4 texts were cut at the encoder's maximum of 2 tokens") as caught:
        vectors = model.encode(texts)
    assert len(caught) == 1
    assert_close(vectors, StaticModel.from_pretrained(folder, max_length=2).encode(texts))


@pytest.mark.filterwarnings("ignore::isosent.errors.UnknownWordsWarning")
def test_the_cut_texts_of_all_windows_are_counted_in_one_warning(save_static):
    model = isosent.load(f"static:{save_static()}?max_length=2")
    with pytest.warns(TruncationWarning, match=r"10000 of 10000 texts were cut") as caught:
        model.encode(["the man rides"] * 10_000)
    assert [warning.category for warning in caught].count(TruncationWarning) == 1


def test_max_length_none_cuts_nothing(save_static):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        isosent.load(f"static:{save_static(max_length=2)}?max_length=none").encode(["the man rides a horse"])


def test_zero_texts_give_zero_rows_of_the_right_width_and_dtype(words_file, save_static):
    for model in encoders(words_file, save_static):
        vectors = model.encode([])
        assert (vectors.shape, vectors.dtype) == ((0, model.dim), np.float32)


def test_an_empty_text_gives_a_zero_row(words_file, save_static):
    for model in encoders(words_file, save_static):
        vectors = model.encode(["", "the man", "  \n"])
        assert (vectors.shape, vectors.dtype) == ((3, model.dim), np.float32)
        assert vectors[:2].any(axis=1).tolist() == [False, True]


def test_a_text_of_unknown_words_only_gives_a_zero_row(words_file, save_static):
    for model in encoders(words_file, save_static)[1:]:
        assert model.encode(["zebra unicorn", "man"]).any(axis=1).tolist() == [False, True]


@pytest.mark.filterwarnings("ignore::isosent.errors.UnknownWordsWarning")
def test_a_vector_does_not_depend_on_what_is_encoded_with_it(words_file, save_static, texts):
    for model in encoders(words_file, save_static):
        some = [*texts[:150], *SENTENCES]
        together = model.encode(some)
        np.testing.assert_array_equal(together, np.concatenate([model.encode([text]) for text in some]))


@pytest.mark.filterwarnings("ignore::isosent.errors.UnknownWordsWarning")
def test_a_vector_does_not_depend_on_the_order_of_the_texts(words_file, save_static, texts):
    order = np.random.default_rng(0).permutation(len(texts))
    for model in encoders(words_file, save_static):
        shuffled = model.encode([texts[i] for i in order])
        np.testing.assert_array_equal(shuffled, model.encode(texts)[order])


def test_a_vector_does_not_depend_on_the_size_of_the_batches(wordllama, texts, monkeypatch):
    expected = wordllama.encode(texts)
    monkeypatch.setattr("isosent.encoders.base.WINDOW", 30)
    np.testing.assert_array_equal(wordllama.encode(texts), expected)


def test_progress_counts_every_text_once(wordllama, texts, progress):
    wordllama.encode([*texts[:50], "", ""], progress=progress)
    assert progress.complete() == [52]


def test_a_bare_string_is_refused_by_an_encoder(wordllama):
    with pytest.raises(InputTypeError, match=r"got one str\. Pass \[text\]\."):
        wordllama.encoder.encode("a man")


def test_a_text_that_is_no_string_names_its_row(wordllama):
    with pytest.raises(InputTypeError, match=r"encode: row 1 of the texts is NoneType, not a string"):
        wordllama.encode(["a man", None])


def test_a_generator_of_texts_is_taken(wordllama):
    assert wordllama.encode(text for text in ("a", "b")).shape == (2, 256)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_vectors_that_are_not_finite_are_refused_with_their_row(value, word):
    vectors = np.ones((3, 2), dtype=np.float32)
    vectors[2, 1] = value
    tokenizer = WordTokenizer(Vocabulary.from_words("abc"), split="wordpunct", lowercase=True)
    with pytest.raises(InputError, match=rf"row 2 of token vectors, counted from 0, holds {word}"):
        StaticEncoder("words:x", {}, tokenizer, vectors)


def test_a_static_folder_with_nan_is_refused_with_its_row(save_static):
    vectors = table()
    vectors[4, 0] = np.nan
    with pytest.raises(InputError, match=r"row 4 of token vectors, counted from 0, holds NaN"):
        isosent.load(f"static:{save_static(vectors)}")


def test_a_missing_static_folder_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"nowhere: no such folder"):
        isosent.load(f"static:{tmp_path / 'nowhere'}")


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
def test_a_missing_file_of_a_static_folder_is_named(save_static, name):
    folder = save_static()
    (folder / name).unlink()
    with pytest.raises(InputFileError, match=rf"^/.*{name}: no such file\.$"):
        isosent.load(f"static:{folder}")


def test_a_truncated_safetensors_file_is_refused(save_static):
    path = save_static() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileFormatError, match=r"model\.safetensors is no safetensors file"):
        isosent.load(f"static:{path.parent}")


def test_fewer_vectors_than_tokens_are_refused(save_static):
    folder = save_static()
    save_file({"embeddings": table()[:4]}, folder / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"has 4 vectors, but its tokens go up to 9"):
        isosent.load(f"static:{folder}")


def test_a_safetensors_file_without_embeddings_lists_what_it_holds(save_static):
    folder = save_static()
    save_file({"other": table()}, folder / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"has no matrix 'embeddings'\. It holds other"):
        isosent.load(f"static:{folder}")


def test_a_mapping_that_points_beyond_the_vectors_is_refused(save_static):
    folder = save_static()
    save_file({"embeddings": table(), "mapping": np.arange(1, 11)}, folder / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"mapping points beyond its 10 vectors"):
        isosent.load(f"static:{folder}")


def test_weights_of_another_number_are_refused(save_static):
    folder = save_static()
    save_file({"embeddings": table(), "weights": np.ones(9, np.float32)}, folder / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"10 tokens, but weights of the shape \(9,\)"):
        isosent.load(f"static:{folder}")


@pytest.mark.parametrize(
    "config",
    ["{", "[]", '{"max_length": "long"}', '{"max_length": 1.5}', '{"max_length": 0}', '{"max_length": -1}'],
)
def test_a_malformed_config_of_a_static_folder_is_refused(save_static, config):
    folder = save_static()
    (folder / "config.json").write_text(config)
    with pytest.raises(FileFormatError, match=r"config\.json"):
        isosent.load(f"static:{folder}")


def test_the_fingerprint_follows_vectors_options_and_tokenizer(words_file, tmp_path):
    def fingerprint(query=""):
        return isosent.load(f"words:{words_file}{query}").fingerprint

    before = fingerprint()
    assert fingerprint() == before
    assert fingerprint("?lowercase=true&tokenizer=wordpunct") == before
    assert fingerprint("?lowercase=false") != before
    words_file.write_text("the 1 2\nman 3 4\n. 5 -8\n")
    assert fingerprint() != before
    words_file.write_text("the 1 2\nmen 3 4\n. 5 -7\n")
    assert fingerprint() != before


def test_the_fingerprint_does_not_follow_the_place(words_file):
    before = isosent.load(f"words:{words_file}").fingerprint
    moved = words_file.rename(words_file.with_name("moved.txt"))
    assert isosent.load(f"words:{moved}").fingerprint == before
