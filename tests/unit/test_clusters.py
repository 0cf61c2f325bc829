"""Clusters: texts by topic, with the words that describe each."""

import numpy as np
import pytest

from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.report.groups_page import clusters_page
from isosent.search import cluster

TOPICS = {
    "music": ["She plays the guitar in a band.", "The band plays a song.", "A guitar and a drum make music."],
    "food": ["He cooks soup with onions.", "Cut the onions for the soup.", "Boil the soup and add salt."],
    "money": ["The bank raised its interest rates.", "Shares of the bank fell.", "Interest rates rose again."],
}
KOREAN = {
    "weather": ["오늘 날씨 맑음", "내일 날씨 흐림", "주말 날씨 맑음"],
    "football": ["축구 경기 시작", "축구 경기 결과", "축구 선수 이적"],
}


class Vectors(SentenceEncoder):
    """A model that puts the texts of each topic near one direction; it knows no other text."""

    groups = None

    def __init__(self, topics):
        self.directions = {text: place for place, texts in enumerate(topics.values()) for text in texts}

    def encode(self, texts, progress=None):
        vectors = np.zeros((len(texts), 8), np.float32)
        for row, text in enumerate(texts):
            if text in self.directions:
                vectors[row] = 0.1 * np.random.default_rng(len(text)).random(8)
                vectors[row, self.directions[text]] = 1
        return vectors


def test_topics_become_clusters_with_their_words():
    texts = [text for listed in TOPICS.values() for text in listed]
    found = cluster(texts, Vectors(TOPICS), n_clusters=3)
    assert [len(set(found.labels[start : start + 3])) for start in (0, 3, 6)] == [1, 1, 1]
    words = {found.labels[row]: set() for row in (0, 3, 6)} | {each.number: set(each.words) for each in found.clusters}
    assert {"guitar", "band"} <= words[found.labels[0]]
    assert {"soup", "onions"} <= words[found.labels[3]]
    assert {"bank", "interest", "rates"} <= words[found.labels[6]]
    assert "the" not in set().union(*words.values())
    assert (found.scores > 0.9).all()


def test_function_words_describe_no_cluster(wordllama, texts):
    words = {word for each in cluster(texts, wordllama).clusters for word in each.words}
    assert len(words) > 40
    assert not words & {"a", "and", "he", "her", "his", "is", "it", "of", "on", "she", "so", "the", "to", "was"}


def test_words_of_other_scripts():
    texts = [text for listed in KOREAN.values() for text in listed]
    found = cluster(texts, Vectors(KOREAN), n_clusters=2)
    assert {each.words[0] for each in found.clusters} == {"날씨", "축구"}


def test_large_clusters_come_first_and_their_most_central_texts_are_examples():
    texts = [*TOPICS["music"], *TOPICS["food"], *TOPICS["food"]]
    found = cluster(texts, Vectors(TOPICS), n_clusters=2)
    assert [(each.number, each.size) for each in found.clusters] == [(1, 6), (2, 3)]
    first = found.clusters[0].examples
    assert {texts[row] for row in first} == set(TOPICS["food"])
    assert sorted(found.scores[list(first)], reverse=True) == list(found.scores[list(first)])


def test_texts_without_a_vector_are_apart():
    texts = ["?", *TOPICS["music"], *TOPICS["food"], "?"]
    found = cluster(texts, Vectors(TOPICS), n_clusters=2)
    assert found.labels[[0, -1]].tolist() == [0, 0]
    assert np.isnan(found.scores[[0, -1]]).all()
    last = found.clusters[-1]
    assert (last.number, last.size, last.words, last.examples) == (0, 2, (), (0,))
    assert found.to_pandas().cluster.tolist()[-2:] == [0, 0]
    assert cluster(["?", "!"], Vectors(TOPICS)).labels.tolist() == [0, 0]


def test_auto_depends_on_the_number_of_texts(wordllama, texts):
    assert len(cluster(texts, wordllama).clusters) == 7
    assert len(cluster(texts[:33], wordllama).clusters) == 4
    assert len(cluster(texts[:1], wordllama).clusters) == 1
    assert len(cluster([texts[0]] * 50, wordllama).clusters) == 1


def test_the_seed_decides(wordllama, texts):
    first, second = (cluster(texts[:200], wordllama, n_clusters=5, seed=4) for _ in range(2))
    assert (first.labels == second.labels).all()
    assert first.clusters == second.clusters


def test_every_text_has_a_row(wordllama, texts):
    found = cluster(texts[:60], wordllama, n_clusters=3)
    frame = found.to_pandas()
    assert list(frame.columns) == ["cluster", "row", "text", "score"]
    assert sorted(frame.row) == list(range(60))
    document = found.to_json()
    assert len(document["labels"]) == 60
    assert sum(each["size"] for each in document["clusters"]) == 60


def test_bad_arguments_are_refused(wordllama):
    with pytest.raises(InputError, match="no texts"):
        cluster([], wordllama)
    with pytest.raises(InputError, match=r"at most 2.*got 3"):
        cluster(["one", "two", "two"], wordllama, n_clusters=3)
    for number in (0, -1, 2.5, True, "many"):
        with pytest.raises(InputError, match="n_clusters"):
            cluster(["one", "two"], wordllama, n_clusters=number)


def test_a_page_escapes_texts(wordllama):
    hostile = "<img src=x onerror=alert(1)> & more"
    page = clusters_page(cluster([hostile, "a dog"], wordllama, n_clusters=2), source="a.txt", vectors="wordllama")
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; more" in page
