"""BM25 and the fusion of rankings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isosent.errors import FileFormatError
from isosent.search.keywords import Keywords, fuse
from isosent.transforms.auto import words_of

pytest.importorskip("bm25s")


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
    read = Keywords.read(tmp_path / "words")
    for query in ("the man on a horse", "天气"):
        for one, other in zip(keywords.search(query, 7), read.search(query, 7), strict=True):
            assert one.tolist() == other.tolist()
    assert read.search("天气", 7)[0].tolist() == [len(texts)]


def test_texts_without_words_match_nothing(tmp_path):
    keywords = Keywords.build(["", None, "!!"])
    keywords.write(tmp_path / "words")
    for each in (keywords, Keywords.read(tmp_path / "words")):
        assert each.n_rows == 3
        assert len(each.search("a word", 5)[0]) == 0


def test_a_damaged_file_is_refused(texts, tmp_path):
    Keywords.build(texts).write(tmp_path / "words")
    content = (tmp_path / "words").read_bytes()
    for damaged in (content[:100], b"x" * 200, content[:-50]):
        (tmp_path / "words").write_bytes(damaged)
        with pytest.raises(FileFormatError, match="words"):
            Keywords.read(tmp_path / "words")


def test_ranks_are_fused_by_their_reciprocals():
    positions, scores = fuse([np.array([5, 3, 9]), np.array([3, 7])], 3)
    assert positions.tolist() == [3, 5, 7]
    assert_allclose(scores, [1 / 62 + 1 / 61, 1 / 61, 1 / 62])
    assert fuse([np.array([], int), np.array([4])], 5)[0].tolist() == [4]
