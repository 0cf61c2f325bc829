import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isosent.words.tokens import WordTokenizer
from isosent.words.vocabulary import Vocabulary

ODD_CHARACTERS = (
    "aZß1_.,!'- \t\n\r\v\f\0\x1c\x1d\x1e\x1f\x7f\x85\xa0\xad\u0301\u0345\u200b\u200d\u2028\u2029\u3000\ufeff"
    "İıẞΣσςάДд你好안녕กำनि½²ǅﬁ🙂👩🏽\ufe0f\U000e0041\U0001f1e6\U0001d49c𞤀\U0010ffff"
)
odd_texts = st.text(st.sampled_from(ODD_CHARACTERS), max_size=30)
any_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)

SPLITTERS = {"wordpunct": re.compile(r"\w+|[^\w\s]+").findall, "whitespace": str.split}


def words_found(texts, **options):
    """All tokens of each text, read back from a tokenizer that knows no word and keeps all."""
    tokens = WordTokenizer(Vocabulary.from_words([]), unknown="keep", **options)(texts)
    found = [tokens.unknown[i] for i in tokens.ids]
    return [found[start:stop] for start, stop in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


@pytest.mark.parametrize("split", SPLITTERS)
@settings(max_examples=300, deadline=None)
@given(texts=st.lists(odd_texts | any_texts, max_size=6))
def test_tokens_are_those_of_python(split, texts):
    assert words_found(texts, split=split) == [SPLITTERS[split](text.lower()) for text in texts]


@pytest.mark.parametrize("split", SPLITTERS)
@settings(deadline=None)
@given(texts=st.lists(odd_texts, max_size=6))
def test_without_lower_casing_tokens_are_those_of_python(split, texts):
    assert words_found(texts, split=split, lowercase=False) == [SPLITTERS[split](text) for text in texts]


@pytest.mark.parametrize("split", SPLITTERS)
def test_every_character_is_of_the_class_that_python_gives_it(split):
    text = "".join(f"a{chr(code)}b" for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    assert words_found([text], split=split, lowercase=False) == [SPLITTERS[split](text)]


@settings(deadline=None)
@given(texts=st.lists(odd_texts, max_size=6), index=st.lists(odd_texts, unique=True, max_size=9))
def test_ids_are_those_of_a_regular_expression_and_a_dict(texts, index):
    known = dict.fromkeys(["a", ".", "你好", *index])
    ids = {word: i for i, word in enumerate(known)}
    tokens = WordTokenizer(Vocabulary.from_words(known))(texts)
    lists = [SPLITTERS["wordpunct"](text.lower()) for text in texts]
    assert tokens.ids.tolist() == [ids[word] for words in lists for word in words if word in ids]
    assert tokens.lengths.tolist() == [sum(word in ids for word in words) for words in lists]
    assert tokens.n_tokens == sum(map(len, lists))
    assert tokens.n_unknown == tokens.n_tokens - len(tokens.ids)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n\x85\xa0\u2028\x1c", []),
        ("Don't stop -- it's 3.5 km!", ["don", "'", "t", "stop", "--", "it", "'", "s", "3", ".", "5", "km", "!"]),
        ("ein\xa0Wort\x85zwei\u2028drei", ["ein", "wort", "zwei", "drei"]),
        ("cafe\u0301s", ["cafe", "\u0301", "s"]),
        ("你好、世界。", ["你好", "、", "世界", "。"]),
        ("안녕하세요 세계!", ["안녕하세요", "세계", "!"]),
        ("ok🙂👩\u200d💻!", ["ok", "🙂👩\u200d💻!"]),
        ("STRAẞE İstanbul", ["straße", "i", "\u0307", "stanbul"]),
        ("ΟΔΟΣ ΟΔΟΣ. ΣΑΣ", ["οδος", "οδος", ".", "σας"]),
        ("a\0b\x7f", ["a", "\0", "b", "\x7f"]),
        ("नमस्ते", ["नमस", "\u094d", "त", "\u0947"]),
    ],
)
def test_wordpunct_splits_runs_of_word_characters_and_of_others(text, words):
    assert words_found([text]) == [words]


def test_a_line_feed_does_not_end_a_text():
    assert words_found(["a\nb", "\n", "", "c\n\n", "d"]) == [["a", "b"], [], [], ["c"], ["d"]]


def test_a_text_does_not_change_its_neighbor():
    assert words_found(["ΔΣ", "Δ", "a\u0301", "\u0301b"]) == [["δς"], ["δ"], ["a", "\u0301"], ["\u0301", "b"]]


@pytest.mark.parametrize("unknown", ["skip", "keep"])
def test_any_number_of_threads_gives_the_same_ids(monkeypatch, unknown):
    many = [f"the {i % 97} a. {'x' * (i % 11)} Straße 🙂" * (i % 5) for i in range(2000)]
    tokenizer = WordTokenizer(Vocabulary.from_words(["the", "a", ".", "straße"]), unknown=unknown)
    found = []
    for n_threads in (1, 2, 5):
        monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
        found.append(tokenizer(many))
    for tokens in found[1:]:
        assert np.array_equal(tokens.ids, found[0].ids)
        assert np.array_equal(tokens.offsets, found[0].offsets)
        assert (tokens.n_unknown, tokens.n_tokens, tokens.unknown) == (
            found[0].n_unknown,
            found[0].n_tokens,
            found[0].unknown,
        )


def test_a_text_of_a_hundred_thousand_words_is_one_text():
    tokens = WordTokenizer(Vocabulary.from_words(["a", "ü"]))(["A " * 100_000, "Ü"])
    assert (tokens.lengths.tolist(), tokens.ids[-1]) == ([100_000, 1], 1)


def test_no_texts_have_no_tokens():
    tokens = WordTokenizer(Vocabulary.from_words(["a"]))([])
    assert (tokens.ids.shape, tokens.offsets.tolist(), tokens.n_tokens) == ((0,), [0], 0)
