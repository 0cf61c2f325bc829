"""BM25 and the fusion of rankings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isosent.errors import FileFormatError
from isosent.io.tensors import tensors_bytes
from isosent.search.keywords import Keywords, fuse
from isosent.transforms.agreement import words_of


def bm25(texts, query, k1=1.5, b=0.75):
    """The formula of Lucene, for each text."""
    rows = [words_of(text or "") for text in texts]
    mean_length = np.mean([len(row) for row in rows])
    scores = np.zeros(len(rows))
    for word in words_of(query):
        n_with = sum(word in row for row in rows)
        if n_with:
            idf = np.log(1 + (len(rows) - n_with + 0.5) / (n_with + 0.5))
            for number, row in enumerate(rows):
                count = row.count(word)
                scores[number] += idf * count / (count + k1 * (1 - b + b * len(row) / mean_length))
    return scores


@pytest.mark.parametrize("query", ["the horse", "A man and a man", "snow", "xyzzy", ""])
def test_scores_follow_the_formula(texts, query):
    texts = [*texts[:120], None, ""]
    expected = bm25(texts, query)
    positions, scores = Keywords.build(texts).search(query, 20)
    assert_allclose(scores, np.sort(expected)[::-1][: len(scores)], rtol=1e-5)
    assert_allclose(scores, expected[positions], rtol=1e-5)
    assert len(positions) == min(20, (expected > 0).sum())


def test_rows_can_be_left_out(texts):
    keywords = Keywords.build(texts)
    positions, _ = keywords.search("the man", 10)
    mask = np.ones(len(texts), bool)
    mask[positions] = False
    others, _ = keywords.search("the man", 10, mask=mask)
    assert len(others) == 10
    assert not set(others) & set(positions)


def test_a_file_gives_the_same_hits(texts, tmp_path):
    keywords = Keywords.build([*texts, "北京天气很好"])
    keywords.write(tmp_path / "words")
    read = Keywords.read(tmp_path / "words", len(texts) + 1)
    for query in ("the man on a horse", "天气"):
        for one, other in zip(keywords.search(query, 7), read.search(query, 7), strict=True):
            assert one.tolist() == other.tolist()
    assert read.search("天气", 7)[0].tolist() == [len(texts)]


def test_texts_without_words_match_nothing(tmp_path):
    keywords = Keywords.build(["", None, "!!"])
    keywords.write(tmp_path / "words")
    for each in (keywords, Keywords.read(tmp_path / "words", 3)):
        assert each.n_rows == 3
        assert len(each.search("a word", 5)[0]) == 0


def test_a_damaged_file_is_refused(texts, tmp_path):
    Keywords.build(texts).write(tmp_path / "words")
    content = (tmp_path / "words").read_bytes()
    for damaged in (content[:100], b"x" * 200, content[:-50]):
        (tmp_path / "words").write_bytes(damaged)
        with pytest.raises(FileFormatError, match="words"):
            Keywords.read(tmp_path / "words", len(texts))


def test_a_file_that_does_not_fit_is_refused(tmp_path):
    def arrays(**others):
        parts = {"data": np.ones(2, np.float32), "indices": np.arange(2, dtype=np.int32)}
        return parts | {"indptr": np.array([0, 2]), "words": np.frombuffer(b"a", np.uint8)} | others

    cases = [
        (arrays(indices=np.array([0, 5], np.int32)), "2"),
        (arrays(indices=np.array([0, -1], np.int32)), "2"),
        (arrays(indptr=np.array([0, 1])), "2"),
        (arrays(indptr=np.array([0, 3])), "2"),
        (arrays(words=np.frombuffer(b"a\nb", np.uint8)), "2"),
        (arrays(words=np.frombuffer(b"\xff", np.uint8)), "2"),
        (arrays(data=np.ones((2, 1), np.float32)), "2"),
        (arrays(data=np.ones(2)), "2"),
        (arrays(), "3"),
        (arrays(), "two"),
    ]
    path = tmp_path / "words"
    path.write_bytes(tensors_bytes(arrays(), {"n_rows": "2"}))
    assert Keywords.read(path, 2).search("a", 5)[0].tolist() == [0, 1]
    for tensors, n_rows in cases:
        path.write_bytes(tensors_bytes(tensors, {"n_rows": n_rows}))
        with pytest.raises(FileFormatError, match="words"):
            Keywords.read(path, 2)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Straße", "STRASSE"),
        ("cafe\u0301", "caf\u00e9"),
        ("\uff38\uff32-200", "xr-200"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165", "한국어를"),
        ("BTS가 노래한다", "bts"),
        ("고양이가 잔다", "고양이를"),
    ],
)
def test_one_spelling_finds_another(text, query):
    assert Keywords.build(["other words", text]).search(query, 5)[0].tolist() == [1]


def test_scores_are_those_of_bm25s(texts):
    bm25s = pytest.importorskip("bm25s")
    model = bm25s.BM25(method="lucene")
    model.index([words_of(text) for text in texts], show_progress=False)
    positions, scores = Keywords.build(texts).search("a man on a horse", 10)
    expected = model.get_scores(words_of("a man on a horse"))
    assert_allclose(scores, expected[positions], rtol=1e-5)
    assert_allclose(scores, np.sort(expected)[::-1][:10], rtol=1e-5)


def test_ranks_are_fused_by_their_reciprocals():
    positions, scores = fuse([np.array([5, 3, 9]), np.array([3, 7])], 3)
    assert positions.tolist() == [3, 5, 7]
    assert_allclose(scores, [1 / 62 + 1 / 61, 1 / 61, 1 / 62])
    assert fuse([np.array([], int), np.array([4])], 5)[0].tolist() == [4]
