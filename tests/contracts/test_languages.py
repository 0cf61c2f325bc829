"""Korean and mixed scripts: pieces of many languages, a tiny network, and the plain loop through both."""

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from tiny_models import SPECIAL, hidden_states, plain_vectors, save_model, token_ids
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import isosent

pytestmark = pytest.mark.usefixtures("one_thread")

KOREAN = [
    "한 남자가 말을 타고 있다.",
    "한 여자가 양파를 썰고 있다.",
    "개가 공원에서 빠르게 달린다.",
    "강가에 두 사람이 앉아 이야기를 나누고 있다.",
    "비가 오나요?",
    "주식 시장이 월요일에 2% 하락했다.",
    "아이들이 눈 속에서 놀고 있고 어머니는 창문으로 그들을 바라보고 있다.",
    "말",
]
MIXED = [
    "서울 Seoul 首尔 ソウル Сеул",
    "나는 BERT를 좋아한다 🙂",
    "café 카페 naïve",
    "\uff26\uff35\uff2c\uff2c 한글",
    "ABC",
    "\u1112\u1161\u11ab글",
]


def unigram(texts):
    """Pieces as XLM-R has them: compatibility characters composed, a mark for the space before a word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=800, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return framed(tokenizer)


def wordpiece(texts):
    """Pieces as multilingual BERT has them: Hangul taken apart with the accents of other scripts."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=True, lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=260, special_tokens=SPECIAL, show_progress=False)
    )
    return framed(tokenizer)


def framed(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return tokenizer


@pytest.fixture(scope="module", params=[("xlm-roberta", unigram), ("bert", wordpiece)], ids=["unigram", "wordpiece"])
def folder(request, tmp_path_factory):
    name, made = request.param
    long = {"max_position_embeddings": 130}
    return save_model(tmp_path_factory.mktemp(name), name, made([*KOREAN, *MIXED]), changes=long)


def assert_as_alone(folder, texts):
    encoder = isosent.load(f"hf:{folder}").encoder
    found = encoder.read(texts, [encoder.layer_pooling("1,-1", "mean"), encoder.layer_pooling("0", "weighted_mean")])
    states = hidden_states(folder, token_ids(folder, texts))
    np.testing.assert_allclose(found[0], plain_vectors(states, {1: 1, 3: 1}, "mean"), atol=2e-6)
    np.testing.assert_allclose(found[1], plain_vectors(states, {0: 1}, "weighted_mean"), atol=2e-6)


def test_korean_and_mixed_scripts_are_encoded_as_one_by_one(folder):
    assert_as_alone(folder, [*KOREAN, *MIXED])


def test_korean_is_known_to_the_tokenizer(folder):
    ids = token_ids(folder, KOREAN)
    assert all(0 not in row for row in ids)
    assert max(map(len, ids)) > 12


def test_composed_and_decomposed_hangul_are_the_same_text(folder):
    encoder = isosent.load(f"hf:{folder}").encoder
    composed = [unicodedata.normalize("NFC", text) for text in KOREAN]
    decomposed = [unicodedata.normalize("NFD", text) for text in KOREAN]
    assert composed != decomposed
    np.testing.assert_allclose(encoder.encode(decomposed), encoder.encode(composed), atol=2e-6)


def test_spaces_of_other_scripts_are_blank(folder):
    vectors = isosent.load(f"hf:{folder}").encode(["\u3000\u00a0\u2003", "말", "\u2028"])
    assert vectors.any(axis=1).tolist() == [False, True, False]


@pytest.mark.data
@pytest.mark.skipif("ISOSENT_DATA" not in os.environ, reason="ISOSENT_DATA does not say where the research sets lie")
def test_korsts_is_encoded_as_one_by_one(tmp_path):
    lines = Path(os.environ["ISOSENT_DATA"], "kornlu", "KorSTS", "sts-dev.tsv").read_text("utf-8").splitlines()[1:]
    texts = [text for line in lines[:100] for text in line.split("\t")[5:7]]
    assert len(texts) == 200
    folder = save_model(tmp_path, "xlm-roberta", unigram(texts), changes={"max_position_embeddings": 130})
    assert_as_alone(folder, texts)
