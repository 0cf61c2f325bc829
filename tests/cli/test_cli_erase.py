"""`isosent fit --erase COLUMN`: texts, workers, stored vectors; what is refused writes nothing."""

import csv
import json
import re

import numpy as np
import pytest

import isosent
from isosent.demo import demo_pool


def write_table(path, texts, labels, name="lang"):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", name), *zip(texts, labels, strict=True)])


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Demo texts, half of them spelled backwards, as another language."""
    texts = isosent.demo_texts()
    backwards = [" ".join(word[::-1] for word in text.split()) for text in texts[240:]]
    mixed, labels = [*texts[:240], *backwards], ["en"] * 240 + ["ne"] * 239 + [""]
    path = tmp_path_factory.mktemp("erase") / "pool.csv"
    write_table(path, mixed, labels)
    return path, mixed, labels


def test_fit_erases_a_column_says_what_changed_and_info_names_it(isosent_, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, mixed, labels = pool
    finished = isosent_("fit", path, "--column", "text", "--erase", "lang", "-o", "m")
    assert "lang detected by a linear model" in finished.out
    assert "without a label, left out: 1" in finished.out
    facts = json.loads(isosent_("info", "m", "--json").out)
    assert facts["fits"][0]["parameters"] == {"attribute": "lang", "values": "en, ne", "n_missing": 1}
    assert "erasure(attribute=lang" in isosent_("info", "m").out
    model = isosent.load("m")
    in_memory = isosent.load("wordllama").fitted(mixed, erase={"lang": labels})
    np.testing.assert_allclose(model.linear_map.weight, in_memory.linear_map.weight, atol=1e-9)


def test_workers_and_stored_vectors_give_the_same_map(isosent_, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _, _ = pool
    fit = ("--erase", "lang", "--transform", "whitening?strength=0.5")
    isosent_("fit", path, "--column", "text", *fit, "-o", "one")
    isosent_("fit", path, "--column", "text", *fit, "-o", "many", "--workers", 2, "--shard-size", 100)
    isosent_("encode", path, "--column", "text", "-o", "vectors.parquet")
    isosent_("fit", "vectors.parquet", *fit, "-m", "wordllama", "-o", "stored")
    weights = [isosent.load(name).linear_map.weight for name in ("one", "many")]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-6 * np.abs(weights[0]).max())
    erased = [isosent.load(name).fits[0].parameters for name in ("one", "many", "stored")]
    assert erased[0] == erased[1] == erased[2]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["en"] * 480, "every label is 'en'"),
        (["en"] * 470 + ["de"] * 10, "de (10)"),
        ([f"author {number}" for number in range(480)], "480 different values"),
        ([""] * 480, "every label is missing"),
    ],
)
def test_bad_labels_are_one_sentence_and_nothing_is_written(isosent_, tmp_path, labels, message):
    write_table(tmp_path / "bad.csv", isosent.demo_texts(), labels)
    finished = isosent_("fit", tmp_path / "bad.csv", "--column", "text", "--erase", "lang", "-o", tmp_path / "m")
    assert message in finished.err
    assert finished.code == 2
    assert len(finished.err.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_plain_lines_and_files_without_the_column_are_refused(isosent_, tmp_path, pool):
    (tmp_path / "lines.txt").write_text("a\nb\n")
    assert "no column lang" in isosent_("fit", tmp_path / "lines.txt", "--erase", "lang", "-o", "m").err
    assert "language" in isosent_("fit", pool[0], "--column", "text", "--erase", "language", "-o", "m").err


def test_auto_decides_on_erased_vectors_by_their_texts(isosent_, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, mixed, labels = pool
    (tmp_path / "texts.txt").write_text("\n".join(mixed) + "\n")
    isosent_("encode", path, "--column", "text", "-o", "vectors.parquet")
    finished = isosent_("fit", "vectors.parquet", "--erase", "lang", "--texts", "texts.txt", "-o", "m")
    assert finished.code == 0, finished.err
    assert "agreement with word overlap within a lang" in finished.out
    erased, chosen = isosent.load("m").fits
    in_memory = isosent.load("wordllama").fitted(mixed, erase={"lang": labels})
    assert (erased.transform, erased.parameters) == ("erasure", in_memory.fits[0].parameters)
    assert chosen.choice["chosen"] == in_memory.fits[1].choice["chosen"]
    gains = [[each["gain"] for each in fit.choice["candidates"]] for fit in (chosen, in_memory.fits[1])]
    np.testing.assert_allclose(*gains, atol=0.01)
    assert len(gains[0]) > 1


def test_erasing_alone_is_the_fit_and_what_cannot_be_erased_is_refused(isosent_, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _, _ = pool
    isosent_("encode", path, "--column", "text", "-o", "vectors.parquet")
    alone = isosent_("fit", "vectors.parquet", "--erase", "lang", "--transform", "none", "-o", "m")
    assert alone.code == 0, alone.err
    assert [fit.transform for fit in isosent.load("m").fits] == ["erasure"]
    for more in (("--bytes", 64), ("--loss", 0.1), ("--checkpoint", "c"), ("--queries", "vectors.parquet")):
        refused = isosent_("fit", "vectors.parquet", "--erase", "lang", *more, "-o", "other")
        assert refused.code == 2
        assert "--erase" in refused.err
        assert len(refused.err.strip().splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_known_pairs_are_counted_before_and_after(isosent_, refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = demo_pool()
    write_table(tmp_path / "pool.csv", [row.text for row in rows], [row.lang for row in rows])
    of_meaning = {(row.meaning, row.lang): row.text for row in rows}
    pairs = [(row.text, of_meaning[row.meaning, "en"]) for row in rows if row.lang == "de"]
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2"), *pairs])
    fit = ("fit", "pool.csv", "--column", "text", "--erase", "lang", "-o", "m")
    finished = isosent_(*fit, "--pairs", "pairs.csv")
    assert finished.code == 0, finished.err
    listed = list(dict.fromkeys(row.text for row in rows))
    shares = []
    for model in (isosent.load("wordllama"), isosent.load("m")):
        vectors = model.encode(listed).astype(np.float64)
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        found = []
        for one, other in [*pairs, *((second, first) for first, second in pairs)]:
            here = listed.index(one)
            nearest = [row for row in np.argsort(-(units @ units[here])) if row != here][:10]
            found.append(listed.index(other) in nearest)
        shares.append(100 * np.mean(found))
    said = re.search(r"([\d.]+)% before, ([\d.]+)% after \((\d+) pairs", finished.out.replace("\n", " "))
    assert [float(said[1]), float(said[2])] == pytest.approx(shares, abs=0.06)
    assert shares[1] > shares[0]
    assert int(said[3]) == len(pairs)
    isosent_("encode", "pool.csv", "--column", "text", "-o", "v.parquet")
    refuses(isosent_("fit", "v.parquet", "--erase", "lang", "--pairs", "pairs.csv", "-o", "n"), "pairs.csv", "vectors")
    (tmp_path / "same.csv").write_text("sentence1,sentence2\nein Hund,ein Hund\na dog,a dog\n", "utf-8")
    refuses(isosent_(*fit[:-2], "--pairs", "same.csv", "-o", "n"), "same.csv", "2 pairs are equal")
    refuses(isosent_(*fit[:-2], "--workers", 2, "--pairs", "pairs.csv", "-o", "n"), "--pairs", "--workers")
