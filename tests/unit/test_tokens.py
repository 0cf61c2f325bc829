import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from isosent import FileFormatError
from isosent.text.tokens import SubwordTokenizer, TokenIds, WordTokenizer, wordpunct


def as_lists(tokens):
    return [ids.tolist() for ids in np.split(tokens.ids, tokens.offsets[1:-1])] if len(tokens.lengths) else []


@pytest.fixture
def word_level(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "[CLS]": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 3)])
    tokenizer.enable_padding(pad_id=0, length=5)
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def unigram(tmp_path):
    tokenizer = Tokenizer(models.Unigram([("▁a", -1.0), ("▁b", -2.0), ("<unk>", 0.0)], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_token_ids_join_lists():
    tokens = TokenIds.from_lists([[5, 6], [], [7]], 1)
    assert (tokens.ids.tolist(), tokens.offsets.tolist(), tokens.lengths.tolist()) == (
        [5, 6, 7],
        [0, 2, 2, 3],
        [2, 0, 1],
    )
    assert (tokens.ids.dtype, tokens.offsets.dtype, tokens.n_cut) == (np.int32, np.int64, 1)


def test_token_ids_of_no_texts_are_empty():
    tokens = TokenIds.from_lists([])
    assert (tokens.ids.shape, tokens.offsets.tolist(), tokens.lengths.tolist()) == ((0,), [0], [])


def test_take_selects_texts_in_the_order_wanted():
    tokens = TokenIds.from_lists([[1, 2], [], [3], [4, 5, 6]]).take(np.array([3, 1, 0, 0]))
    assert as_lists(tokens) == [[4, 5, 6], [], [1, 2], [1, 2]]


def test_take_of_nothing_is_empty():
    assert as_lists(TokenIds.from_lists([[1], [2]]).take(np.array([], dtype=np.intp))) == []


def test_take_of_empty_texts_only_is_empty_texts():
    assert TokenIds.from_lists([[], [1], []]).take(np.array([0, 2])).lengths.tolist() == [0, 0]


def test_padded_lays_out_a_rectangle():
    input_ids, attention_mask = TokenIds.from_lists([[5, 6], [], [7]]).padded(9)
    assert input_ids.tolist() == [[5, 6], [9, 9], [7, 9]]
    assert attention_mask.tolist() == [[1, 1], [0, 0], [1, 0]]
    assert input_ids.dtype == attention_mask.dtype == np.int64


def test_padded_of_no_texts_has_no_rows_and_no_columns():
    input_ids, attention_mask = TokenIds.from_lists([]).padded(0)
    assert input_ids.shape == attention_mask.shape == (0, 0)


def test_padded_keeps_an_id_that_equals_the_padding():
    input_ids, attention_mask = TokenIds.from_lists([[0, 0], [0]]).padded(0)
    assert (input_ids.tolist(), attention_mask.tolist()) == ([[0, 0], [0, 0]], [[1, 1], [1, 0]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \t\n", []),
        ("Don't stop -- it's 3.5 km!", ["Don", "'", "t", "stop", "--", "it", "'", "s", "3", ".", "5", "km", "!"]),
        ("naïve café_1", ["naïve", "café_1"]),
        ("...?!", ["...?!"]),
        ("你好 мир", ["你好", "мир"]),
    ],
)
def test_wordpunct_splits_runs_of_word_characters_and_of_punctuation(text, words):
    assert wordpunct(text) == words


def test_the_word_tokenizer_lower_cases_before_it_looks_up():
    tokenizer = WordTokenizer({"the": 0, "man": 1, "straße": 2}, split="wordpunct", lowercase=True)
    assert as_lists(tokenizer(["The MAN", "STRAßE"])) == [[0, 1], [2]]


def test_the_word_tokenizer_can_tell_case_apart():
    tokenizer = WordTokenizer({"the": 0, "The": 1}, split="wordpunct", lowercase=False)
    assert as_lists(tokenizer(["The the THE"])) == [[1, 0]]


def test_the_word_tokenizer_skips_unknown_words():
    tokenizer = WordTokenizer({"the": 0, ".": 1}, split="wordpunct", lowercase=True)
    assert as_lists(tokenizer(["the zebra.", "zebra", ""])) == [[0, 1], [], []]


def test_the_word_tokenizer_can_split_at_white_space_only():
    tokenizer = WordTokenizer({"it's": 0, "here.": 1}, split="whitespace", lowercase=True)
    assert as_lists(tokenizer(["It's  here."])) == [[0, 1]]


def test_the_vocabulary_of_the_word_tokenizer_is_in_the_order_of_the_ids():
    assert list(WordTokenizer({"b": 0, "a": 1}, split="wordpunct", lowercase=True).vocabulary()) == ["b", "a"]


def test_the_subword_tokenizer_adds_no_special_tokens_no_padding_and_no_limit_of_the_file(word_level):
    assert as_lists(SubwordTokenizer(word_level)(["a b a b", "b"])) == [[1, 2, 1, 2], [2]]


def test_the_subword_tokenizer_skips_the_unknown_token(word_level):
    assert as_lists(SubwordTokenizer(word_level)(["a zebra b", "zebra", ""])) == [[1, 2], [], []]


def test_the_subword_tokenizer_skips_the_unknown_token_of_a_unigram_model(unigram):
    assert as_lists(SubwordTokenizer(unigram)(["a zebra b", "zebra", ""])) == [[0, 1], [], []]


def test_the_subword_tokenizer_cuts_and_counts(word_level):
    tokens = SubwordTokenizer(word_level, max_length=2)(["a b a", "a b", "b b b b"])
    assert (as_lists(tokens), tokens.n_cut) == ([[1, 2], [1, 2], [2, 2]], 2)


def test_unknown_tokens_count_towards_the_maximum(word_level):
    tokens = SubwordTokenizer(word_level, max_length=2)(["a zebra b"])
    assert (as_lists(tokens), tokens.n_cut) == ([[1]], 1)


def test_the_subword_tokenizer_takes_no_texts(word_level):
    assert as_lists(SubwordTokenizer(word_level)([])) == []


def test_the_vocabulary_of_the_subword_tokenizer_is_in_the_order_of_the_ids(word_level):
    tokenizer = SubwordTokenizer(word_level)
    assert (tokenizer.largest_id, list(tokenizer.vocabulary())) == (3, ["[UNK]", "a", "b", "[CLS]"])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": {"type": "none such"}}'])
def test_a_damaged_tokenizer_file_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"tokenizer\.json must be a tokenizer\.json; got: "):
        SubwordTokenizer(tmp_path / "tokenizer.json")


def test_a_truncated_tokenizer_file_is_refused(word_level):
    word_level.write_bytes(word_level.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match=r"must be a tokenizer\.json; got: EOF"):
        SubwordTokenizer(word_level)
