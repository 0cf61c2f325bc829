import json
import string
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from isosent.errors import FileFormatError, InputError
from isosent.words.subwords import SubwordTokenizer, TokenLookup, odd_patterns
from isosent.words.tokens import TokenFilter
from isosent.words.vocabulary import Vocabulary


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


def test_the_subword_tokenizer_adds_no_special_tokens_no_padding_and_no_limit_of_the_file(word_level):
    assert as_lists(SubwordTokenizer(word_level)(["a b a b", "b"])) == [[1, 2, 1, 2], [2]]


def test_the_subword_tokenizer_skips_the_unknown_token(word_level):
    assert as_lists(SubwordTokenizer(word_level)(["a zebra b", "zebra", ""])) == [[1, 2], [], []]


def test_the_subword_tokenizer_skips_the_unknown_token_of_a_unigram_model(unigram):
    assert as_lists(SubwordTokenizer(unigram)(["a zebra b", "zebra", ""])) == [[0, 1], [], []]


def test_a_vocabulary_without_its_unknown_token_is_refused(word_level):
    content = json.loads(word_level.read_text())
    content["model"]["unk_token"] = "[NONE]"
    word_level.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"tokenizer\.json cannot be used: .*Missing"):
        SubwordTokenizer(word_level)(["zebra"])
    content["model"] |= {"vocab": {}, "unk_token": "[UNK]"}
    word_level.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match="has no tokens"):
        SubwordTokenizer(word_level)


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
    with pytest.raises(FileFormatError, match=r"tokenizer\.json is no tokenizer\.json: "):
        SubwordTokenizer(tmp_path / "tokenizer.json")


def replacing(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Sequence", "normalizers": [replacing({"String": "a"}, "aa")] * 5}},
        {"normalizer": replacing({"Regex": ""}, "a" * 16)},
        {"normalizer": {"type": "Prepend", "prepend": "a" * 65}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 65,
                "pair": [],
                "special_tokens": {},
            }
        },
    ],
)
def test_a_tokenizer_that_makes_texts_many_times_longer_is_refused(word_level, tmp_path, change):
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(json.loads(Tokenizer.from_file(str(word_level)).to_str()) | change))
    Tokenizer.from_file(str(path))  # the library takes it
    with pytest.raises(FileFormatError, match=r"hostile\.json (makes texts many times longer|repeats or cuts)"):
        SubwordTokenizer(path)


def test_a_tokenizer_that_panics_is_refused(word_level, tmp_path, capfd):
    split = {"type": "Split", "pattern": {"Regex": "(?=(a+)+b)"}, "behavior": "Isolated", "invert": False}
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(json.loads(Tokenizer.from_file(str(word_level)).to_str()) | {"pre_tokenizer": split}))
    with pytest.raises(FileFormatError, match="cannot be used"):
        SubwordTokenizer(path)(["a" * 60])
    capfd.readouterr()  # what the library prints


def test_a_truncated_tokenizer_file_is_refused(word_level):
    word_level.write_bytes(word_level.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match=r"is no tokenizer\.json: EOF"):
        SubwordTokenizer(word_level)


CORPUS = [
    "the cat sat on the mat, the cats sat on mats.",
    "a dog's dog-house isn't a cat's house!",
    "안녕하세요 세계 안녕",
    "你好世界 你好",
    "straße café naïve résumé",
]
WRITTEN_OUT = ["[UNK]", "<unk>", "<s>", "  ", " cat", " the "]
PARTS = [*"acth es\u0301\t\n\xa0\u2028▁.'-[]<>éßİΣ安녕你好🙂\u200d\0\x85", *WRITTEN_OUT]
odd_texts = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)


def train(model, trainer, *, normalizer=None, pre_tokenizer=None):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def llama():
    mark = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words = train(
        models.BPE(unk_token="<unk>"),
        trainers.BpeTrainer(vocab_size=150, special_tokens=["<unk>", "<s>"], show_progress=False),
        pre_tokenizer=pre_tokenizers.Metaspace(),
    )
    state = json.loads(words.to_str())
    tokenizer = Tokenizer.from_str(json.dumps(state | {"pre_tokenizer": None}))
    tokenizer.normalizer = mark
    return tokenizer


def bert():
    return train(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]", "<s>"], show_progress=False),
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    )


def metaspace_unigram():
    return train(
        models.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=120, unk_token="<unk>", special_tokens=["<unk>", "<s>"], show_progress=False
        ),
        normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"),
    )


def split_words():
    return train(
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False),
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.StripAccents()]),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
    )


FAST = {"llama": llama, "bert": bert, "metaspace": metaspace_unigram, "words": split_words}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, build in FAST.items():
        build().save(str(folder / f"{name}.json"))
    return {name: folder / f"{name}.json" for name in FAST}


@pytest.mark.parametrize("name", FAST)
def test_tokens_of_these_kinds_never_cross_a_blank(saved, name):
    assert odd_patterns(json.loads(saved[name].read_text("utf-8"))) is not None


@pytest.mark.parametrize("name", FAST)
@settings(max_examples=100, deadline=None)
@given(batches=st.lists(st.lists(odd_texts, max_size=5), max_size=3))
@example(batches=[CORPUS])
def test_ids_are_those_of_the_library(saved, name, batches):
    library, tokenizer = Tokenizer.from_file(str(saved[name])), SubwordTokenizer(saved[name], skip_unknown=False)
    with patch.multiple("isosent.words.subwords", _FEW_CHARACTERS=0, _MANY_CHARACTERS=0, _TOGETHER=3):
        for texts in batches:
            expected = [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]
            assert as_lists(tokenizer(texts)) == expected


@pytest.mark.parametrize("content", ["cat sat", "at on", "e\u2581m"])
def test_an_added_token_with_a_blank_or_a_mark_in_it(saved, tmp_path, content):
    library = Tokenizer.from_file(str(saved["llama"]))
    library.add_tokens([AddedToken(content, normalized=False)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = SubwordTokenizer(tmp_path / "tokenizer.json", skip_unknown=False)
    texts = ["the cat", "sat on", "cat", "sat", "the cat sat on", "e m", "at", "on", "e\u2581m"]
    expected = [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]
    with patch.multiple("isosent.words.subwords", _FEW_CHARACTERS=0, _MANY_CHARACTERS=0, _TOGETHER=3):
        assert as_lists(tokenizer(texts)) == expected


def test_ids_of_wordllama_are_those_of_the_library(wordllama, texts):
    tokenizer = wordllama.encoder.tokenizer
    odd = ["a  b", " a", "a ", "", "<s> a", "a</s>b c", "x\ny z", "▁a b", "a ▁ b", "naïve Ünïcode 🙂 \t tab"]
    many = [*texts, *odd, *texts] * 5
    expected = tokenizer.tokenizer.encode_batch(many, add_special_tokens=False)
    assert as_lists(tokenizer(many)) == [encoding.ids for encoding in expected]


@pytest.mark.parametrize("n_threads", ["1", "2"])
def test_any_number_of_threads_gives_the_same_subword_ids(monkeypatch, saved, n_threads):
    monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
    many = [" ".join(text.split()[: i % 4]) for i in range(3000) for text in CORPUS]
    tokenizer = SubwordTokenizer(saved["bert"], skip_unknown=False)
    with patch("isosent.words.subwords._MANY_CHARACTERS", 0):
        assert np.array_equal(tokenizer(many).ids, tokenizer._whole_texts(many).ids)


def test_compiled_code_is_loaded_only_for_many_texts(saved):
    tokenizer = SubwordTokenizer(saved["bert"], skip_unknown=False)
    texts = ["the cat sat on"] * 1000
    with patch("isosent.words.subwords.scan_texts", side_effect=MemoryError):
        for _ in range((1 << 18) // 14_000):
            tokenizer(texts)
        with pytest.raises(MemoryError):
            tokenizer(texts)


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "WhitespaceSplit"}]}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
        {"pre_tokenizer": None},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"added_tokens": [{"content": "new york", "normalized": True}]},
        {"model": {"type": "BPE", "dropout": 0.1}},
    ],
)
def test_all_other_kinds_are_not_taken_apart(saved, change):
    assert odd_patterns(json.loads(saved["bert"].read_text("utf-8")) | change) is None


def test_a_merge_across_a_blank_is_not_taken_apart(saved):
    state = json.loads(saved["llama"].read_text("utf-8"))
    state["model"]["vocab"]["t▁c"] = len(state["model"]["vocab"])
    assert odd_patterns(state) is None


def test_unknown_tokens_are_counted(word_level):
    skipped, kept = SubwordTokenizer(word_level), SubwordTokenizer(word_level, skip_unknown=False)
    for tokenizer in (skipped, kept):
        tokens = tokenizer(["a zebra b", "zebra", ""])
        assert (tokens.n_unknown, tokens.n_tokens) == (2, 4)


def test_a_text_is_cut_by_its_characters_first(word_level):
    tokens = SubwordTokenizer(word_level, max_length=3, cut_characters=True)(["b b b b b b b", "b b", "bbbbbbbbb a"])
    assert (as_lists(tokens), tokens.n_cut) == ([[2, 2, 2], [2, 2], []], 2)


def test_korean_and_chinese_tokens_are_looked_up_as_words(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "안녕": 1, "세계": 2, "你": 3, "好": 4}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = Vocabulary.from_words(["好", "세계", "你", "안녕"])
    lookup = TokenLookup(SubwordTokenizer(tmp_path / "tokenizer.json", skip_unknown=False), words)
    tokens = lookup(["안녕 세계", "你好吗", ""])
    assert (as_lists(tokens), tokens.n_unknown, tokens.n_tokens) == ([[3, 1], [2, 0], []], 1, 5)
    assert list(lookup.vocabulary()) == list(words)


def test_tokens_that_are_no_words_can_be_kept(word_level):
    subwords = SubwordTokenizer(word_level, skip_unknown=False)
    tokens = TokenLookup(subwords, Vocabulary.from_words(["b"]), unknown="keep")(["b zebra a", "a b ox"])
    assert (as_lists(tokens), tokens.unknown, tokens.n_unknown) == ([[0, 1, 2], [2, 0, 1]], ("[UNK]", "a"), 4)


def test_looked_up_tokens_are_lower_cased_and_left_out_as_told(word_level):
    subwords = SubwordTokenizer(word_level, skip_unknown=False)
    token_filter = TokenFilter(stop_words=frozenset("a"))
    lookup = TokenLookup(subwords, Vocabulary.from_words(["a", "b"]), lowercase=True, token_filter=token_filter)
    tokens = lookup(["A B zebra"])
    assert (tokens.ids.tolist(), tokens.n_tokens, tokens.n_unknown) == ([1], 2, 1)


def test_a_lookup_that_neither_skips_nor_keeps_is_refused(word_level):
    with pytest.raises(InputError, match="tokenizer: unknown must be one of skip, keep; got 'mean'"):
        TokenLookup(SubwordTokenizer(word_level), Vocabulary.from_words(["a"]), unknown="mean")


def normalized(folder, steps):
    """A file of a tokenizer with these steps."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_blanks_around_each_sign_do_not_multiply(tmp_path):
    """Model2Vec's normalizer has a step for each of 32 signs."""
    steps = [normalizers.Replace(sign, f" {sign} ") for sign in string.punctuation]
    steps += [normalizers.Replace(Regex(r"\s+"), " ") for _ in range(6)]
    assert SubwordTokenizer(normalized(tmp_path, [*steps, normalizers.Strip()]))


@pytest.mark.parametrize(
    "steps",
    [
        [normalizers.Replace("a", "aaa")] * 3,
        [normalizers.Replace("a", "bbb"), normalizers.Replace("b", "ccc"), normalizers.Replace("c", "ddd")],
        [normalizers.Replace("ab", "abababab"), normalizers.Replace("ab", "ababababab")],
        [normalizers.Replace(Regex("(?=.)"), "x" * 8), normalizers.Replace("x", "yyy")],
    ],
)
def test_replacements_that_multiply_are_refused(tmp_path, steps):
    with pytest.raises(FileFormatError, match="times longer"):
        SubwordTokenizer(normalized(tmp_path, steps))
