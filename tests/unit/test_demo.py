"""The demo: its texts, and the shares that it shows."""

from collections import Counter

import numpy as np
import pytest

import isosent
from isosent.demo import demo_pool, run_demo, write_texts


@pytest.fixture(scope="module")
def report():
    return run_demo()


def test_the_pool_has_each_meaning_once_in_each_language():
    pool = demo_pool()
    assert len(pool) == len(set(pool)) == len({row.text for row in pool}) == 800
    assert set(Counter(row.meaning for row in pool).values()) == {4}
    assert Counter(row.lang for row in pool) == dict.fromkeys(("en", "de", "es", "fr"), 200)
    assert {row.text for row in pool if row.lang == "en"} < set(isosent.demo_texts())


def test_the_files_of_the_demo_are_read_back_as_the_texts(tmp_path):
    texts, pool = write_texts(tmp_path / "new" / "folder")
    assert isosent.read_texts(texts) == isosent.demo_texts()
    assert isosent.read_texts(pool, column="text") == [row.text for row in demo_pool()]
    assert isosent.read_texts(pool, column="lang") == [row.lang for row in demo_pool()]
    write_texts(tmp_path / "new" / "folder")  # the same again


def test_centering_and_erasing_find_translations_that_no_fit_has_seen(report, wordllama):
    shares = report.translations
    assert shares.original < 0.1 < shares.fitted < shares.erased
    assert shares.erased > 5 * shares.original
    held_out = [row for row in demo_pool() if not int(row.meaning) % 2]
    vectors = wordllama.encode([row.text for row in held_out]).astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = []
    for query, row in enumerate(held_out):
        others = [(-float(vectors[query] @ vectors[other]), other) for other in range(len(held_out)) if other != query]
        nearest = [held_out[other] for _, other in sorted(others)[:10]]
        if row.lang != "en":
            found.append(any(each.lang == "en" and each.meaning == row.meaning for each in nearest))
    assert (shares.n_queries, shares.n_texts) == (len(found), len(held_out)) == (300, 400)
    assert shares.original == pytest.approx(np.mean(found))


def test_the_example_finds_its_translation_after_erasing_only(report):
    of_text = {row.text: row for row in demo_pool()}
    example = report.translations
    query, before, after = (
        of_text[each] for each in (example.example, example.example_original, example.example_erased)
    )
    assert (query.lang, before.lang, after.lang) == ("de", "de", "en")
    assert query.meaning == after.meaning != before.meaning


def test_a_good_model_is_kept_and_loses_nothing_in_a_quarter_of_the_bytes(report):
    sample = report.shortened
    assert "Keep these vectors unchanged" in sample.recommendation
    assert sample.n_bytes == (1024, 256)
    assert sample.recall > 0.95
    assert abs(sample.n_found[1] - sample.n_found[0]) <= 2


def test_one_query_is_answered_and_one_is_not(report):
    pytest.importorskip("faiss")
    answered, refused = report.searched.matches
    assert "password" in answered
    assert refused is None
    assert report.searched.n_bytes <= 64
