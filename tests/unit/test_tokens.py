import numpy as np
import pytest

from isosent.errors import InputError, InputTypeError
from isosent.words.tokens import CallableTokenizer, TokenFilter, TokenIds, WordTokenizer, read_stop_words
from isosent.words.vocabulary import Vocabulary


def as_lists(tokens):
    return [ids.tolist() for ids in np.split(tokens.ids, tokens.offsets[1:-1])] if len(tokens.lengths) else []


def test_token_ids_join_lists():
    tokens = TokenIds.from_lists([[5, 6], [], [7]], truncated_rows=[2])
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


def test_tokens_are_as_many_as_ids_unless_some_were_left_out():
    assert (TokenIds.from_lists([[1, 2]]).n_tokens, TokenIds.from_lists([[1, 2]]).n_unknown) == (2, 0)


def test_take_keeps_the_unknown_words():
    tokens = WordTokenizer(Vocabulary.from_words(["a"]), unknown="keep")(["a b", "c"]).take(np.array([1]))
    assert (tokens.ids.tolist(), tokens.unknown) == ([2], ("b", "c"))


def test_the_word_tokenizer_lower_cases_before_it_looks_up():
    tokenizer = WordTokenizer(Vocabulary.from_words(["the", "man", "straße"]))
    assert as_lists(tokenizer(["The MAN", "STRAßE"])) == [[0, 1], [2]]


def test_the_word_tokenizer_can_tell_case_apart():
    tokenizer = WordTokenizer(Vocabulary.from_words(["the", "The"]), lowercase=False)
    assert as_lists(tokenizer(["The the THE"])) == [[1, 0]]


def test_the_word_tokenizer_skips_and_counts_unknown_words():
    tokens = WordTokenizer(Vocabulary.from_words(["the", "."]))(["the zebra.", "zebra", ""])
    assert (as_lists(tokens), tokens.n_unknown, tokens.n_tokens, tokens.unknown) == ([[0, 1], [], []], 2, 4, ())


def test_unknown_words_that_are_kept_get_ids_behind_the_vocabulary_as_they_appear():
    tokens = WordTokenizer(Vocabulary.from_words(["the", "."]), unknown="keep")(["the zebra.", "ox Zebra", ""])
    assert (as_lists(tokens), tokens.unknown) == ([[0, 2, 1], [3, 2], []], ("zebra", "ox"))
    assert (tokens.n_unknown, tokens.n_tokens, tokens.ids.dtype) == (3, 5, np.int32)


def test_the_word_tokenizer_can_split_at_white_space_only():
    tokenizer = WordTokenizer(Vocabulary.from_words(["it's", "here."]), split="whitespace")
    assert as_lists(tokenizer(["It's  here."])) == [[0, 1]]


def test_the_vocabulary_of_the_word_tokenizer_is_in_the_order_of_the_ids():
    assert list(WordTokenizer(Vocabulary.from_words(["b", "a"])).vocabulary()) == ["b", "a"]


WITH_PUNCTUATION = 'He said: "no!" -- it\'s 3.5 @ home... , _ ؟'


@pytest.mark.parametrize(
    ("split", "punctuation", "left"),
    [
        ("wordpunct", "keep", 'he said : " no !" -- it \' s 3 . 5 @ home ... , _ ؟'),
        ("wordpunct", "drop", "he said no it s 3 5 home _"),
        ("wordpunct", "gem", 'he said no !" -- it s 3 5 home ... , _ ؟'),
        ("whitespace", "drop", 'he said: "no!" it\'s 3.5 home... _'),
        ("whitespace", "gem", 'he said: "no!" -- it\'s 3.5 home... , _ ؟'),
    ],
)
def test_punctuation_is_left_out_as_told(split, punctuation, left):
    tokens = WordTokenizer(Vocabulary.from_words([]), split=split, punctuation=punctuation, unknown="keep")(
        [WITH_PUNCTUATION]
    )
    assert [tokens.unknown[i] for i in tokens.ids] == left.split(" ")


def test_what_is_left_out_counts_neither_as_token_nor_as_unknown():
    tokenizer = WordTokenizer(Vocabulary.from_words(["man"]), punctuation="drop", stop_words=["the", "man"])
    tokens = tokenizer(["The man, a zebra."])
    assert (tokens.ids.tolist(), tokens.n_tokens, tokens.n_unknown) == ([], 2, 2)


def test_stop_words_are_looked_up_after_lower_casing():
    words = Vocabulary.from_words(["the", "man"])
    assert WordTokenizer(words, stop_words=["the"])(["THE man"]).ids.tolist() == [1]
    assert WordTokenizer(words, stop_words=["The"])(["THE man"]).ids.tolist() == [0, 1]


@pytest.mark.parametrize("options", [{"split": "words"}, {"punctuation": "no"}, {"unknown": "random"}])
def test_options_outside_the_list_are_refused(options):
    with pytest.raises(InputError, match=f"tokenizer: {next(iter(options))} must be one of "):
        WordTokenizer(Vocabulary.from_words(["a"]), **options)


def test_a_function_can_split_texts_without_spaces():
    tokenizer = CallableTokenizer(list, Vocabulary.from_words(["你", "好", "世"]))
    tokens = tokenizer(["你好世界", "", "好"])
    assert (as_lists(tokens), tokens.n_unknown, tokens.n_tokens) == ([[0, 1, 2], [], [1]], 1, 5)


def test_words_of_a_function_can_be_kept_when_they_are_unknown():
    tokens = CallableTokenizer(str.split, Vocabulary.from_words(["세계"]), unknown="keep")(["안녕 세계 안녕", "말"])
    assert (as_lists(tokens), tokens.unknown) == ([[1, 0, 1], [2]], ("안녕", "말"))


def test_words_of_a_function_are_left_out_as_those_of_a_regular_expression_are():
    tokenizer = CallableTokenizer(
        str.split, Vocabulary.from_words("abc"), lowercase=True, punctuation="drop", stop_words=["b"]
    )
    tokens = tokenizer(["A , B c ?!"])
    assert (tokens.ids.tolist(), tokens.n_tokens) == ([0, 2], 2)


@pytest.mark.parametrize("function", [lambda text: text, lambda text: [1], lambda text: None, lambda text: [b"a"]])
def test_a_function_that_returns_no_words_is_refused(function):
    with pytest.raises(InputTypeError, match="tokenizer: the function must return a sequence of strings; got "):
        CallableTokenizer(function, Vocabulary.from_words(["a"]))(["a b"])


def test_english_stop_words_are_those_of_scikit_learn():
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    assert read_stop_words("english") == ENGLISH_STOP_WORDS


def test_no_stop_words_are_the_default():
    assert read_stop_words("keep") == TokenFilter().stop_words == frozenset()


def test_stop_words_come_from_a_file_of_one_word_a_line(tmp_path):
    (tmp_path / "words.txt").write_bytes("\ufeffder\r\n\n die \n는".encode())
    assert read_stop_words(str(tmp_path / "words.txt")) == {"der", "die", "는"}


@pytest.mark.parametrize(("content", "message"), [(b"a\nb c\n", "line 2: expected one word"), (b"\xff", "UTF-8")])
def test_a_damaged_file_of_stop_words_is_refused(tmp_path, content, message):
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_stop_words(str(tmp_path / "words.txt"))
