"""A vocabulary and a small BERT from texts alone."""

import subprocess
import sys
import unicodedata

import pytest

from isosent import IsosentWarning
from isosent.errors import InputError, ModelReferenceError
from isosent.training.base_models import SPECIAL_TOKENS, ScratchSettings, train_wordpiece, write_scratch

KOREAN = ["한국어 문장을 나눕니다.", "고양이가 나무 위에 앉아 있다.", "문장 두 개를 비교한다."] * 3


@pytest.mark.parametrize("reference", ["scratch:", "scratch"])
def test_all_options_have_a_default(reference):
    assert ScratchSettings.parse(reference) == ScratchSettings(4, 256, 4, 16_000, 128, True)


def test_a_reference_with_all_sizes_says_the_same():
    settings = ScratchSettings.parse("scratch:?layers=2&dim=96&heads=3&vocab=500&max_length=64&lowercase=False")
    assert settings == ScratchSettings(2, 96, 3, 500, 64, False)
    assert ScratchSettings.parse(settings.reference) == settings


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("scratch:bert", r"only options may follow, .*got 'scratch:bert'"),
        ("scratch:?size=3", "no option 'size'.*Options: layers, dim, "),
        ("scratch:?layer=3", "Did you mean layers"),
        ("scratch:?layers=two", "layers must be a whole number above 0; got 'two'"),
        ("scratch:?layers=0", "layers must be a whole number above 0; got '0'"),
        ("scratch:?layers", "layers must be a whole number above 0; got ''"),
        ("scratch:?lowercase=no", "lowercase must be true or false; got 'no'"),
        ("scratch:?dim=8&dim=9", "dim occurs twice"),
    ],
)
def test_a_reference_outside_the_grammar_is_refused(reference, words):
    with pytest.raises(ModelReferenceError, match=words):
        ScratchSettings.parse(reference)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"dim": 10, "heads": 3}, "heads must divide dim; got heads=3 and dim=10"),
        ({"max_length": 2}, "max_length must be at least 3"),
        ({"vocab": 15}, "vocab must be at least 16; got 15"),
        ({"layers": 0}, "layers must be a whole number >= 1; got 0"),
        ({"heads": 2.0}, "heads must be a whole number >= 1; got 2.0"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes, words):
    with pytest.raises(InputError, match=words):
        ScratchSettings(**sizes)


def test_hangul_syllables_stay_whole():
    tokenizer = train_wordpiece(KOREAN, vocab_size=200, lowercase=True)
    composed = "고양이"
    tokens = tokenizer.encode(composed, add_special_tokens=False).tokens
    assert "".join(tokens).replace("##", "") == composed
    assert tokenizer.encode(unicodedata.normalize("NFD", composed), add_special_tokens=False).tokens == tokens


def test_accents_are_kept_and_letters_lowered():
    tokenizer = train_wordpiece(["Über die Straße", "über", "uber"], vocab_size=100, lowercase=True)
    assert tokenizer.normalizer.normalize_str("ÜBER") == "über"
    assert train_wordpiece(["Über"], vocab_size=100, lowercase=False).normalizer.normalize_str("ÜBER") == "ÜBER"


def test_special_tokens_come_first_and_stand_around_a_text(texts):
    tokenizer = train_wordpiece(texts, vocab_size=300, lowercase=True)
    assert [tokenizer.id_to_token(number) for number in range(4)] == list(SPECIAL_TOKENS)
    assert tokenizer.get_vocab_size() == 300
    encoded = tokenizer.encode("a man", "a dog")
    assert (encoded.tokens[0], encoded.tokens[-1], encoded.type_ids[0], encoded.type_ids[-1]) == (
        "[CLS]",
        "[SEP]",
        0,
        1,
    )


def test_rare_characters_make_way():
    tokenizer = train_wordpiece(["aaaa bbb cc d", "ab"], vocab_size=16, lowercase=True)  # room for 4 of them
    assert tokenizer.encode("abcd", add_special_tokens=False).tokens != ["[UNK]"]
    tokenizer = train_wordpiece(["aaaa bbb cc dd e", "ab"], vocab_size=16, lowercase=True)
    assert tokenizer.encode("e", add_special_tokens=False).tokens == ["[UNK]"]


def test_the_vocabulary_is_the_same_in_every_process():
    code = (
        "import isosent, hashlib; from isosent.training.base_models import train_wordpiece; "
        "v = train_wordpiece(isosent.demo_texts(), vocab_size=900, lowercase=True).get_vocab(); "
        "print(hashlib.sha256(str(sorted(v.items())).encode()).hexdigest())"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)]
    assert len(set(runs)) == 1


@pytest.mark.parametrize(
    ("texts", "words"), [([], "at least one text; got zero"), (["", " \n"], "must hold characters; got 2 blank texts")]
)
def test_texts_without_a_character_are_refused(texts, words):
    with pytest.raises(InputError, match=words):
        train_wordpiece(texts, vocab_size=100, lowercase=True)


def test_a_vocabulary_beyond_the_texts_shrinks_and_says_so(tmp_path):
    settings = ScratchSettings(layers=1, dim=8, heads=2, vocab=5000)
    with pytest.warns(IsosentWarning, match=r"scratch: vocab is \d+, not 5000: the texts do not give more"):
        assert write_scratch(tmp_path, settings, KOREAN) < 300
