"""The command ``map``: the page, the table for embedding-atlas, and what is said."""

import base64
import csv
import datetime
import json
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent
from isosent.search import Index, neighbor_map

NASTY = '</script><script>window.hacked = 1</script> & "<b>"'
LANGUAGES = ("en", "de", None)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Texts as lines, as a table with columns, and their vectors; one text is empty, two are equal."""
    monkeypatch.chdir(tmp_path)
    texts = [*isosent.demo_texts()[:57], NASTY, isosent.demo_texts()[0], ""]
    rows = [[text, LANGUAGES[row % 3] or "", row / 8, f"2024-01-{row % 28 + 1:02}"] for row, text in enumerate(texts)]
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "lang", "score", "x"], *rows])
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts[:59]), "utf-8")
    np.save(tmp_path / "vectors.npy", isosent.load("wordllama").encode(texts[:59]))
    return tmp_path


def data_of(path):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"))[1]
    )


def unpacked(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_the_page_has_the_texts_places_and_neighbors(isosent_, here):
    finished = isosent_("map", "table.csv", "--color", "lang", "-o", "map.html", "-o", "map.parquet")
    assert finished.code == 0, finished.err
    assert "1 of 60 rows" in finished.err
    kept = re.search(r"keeps (\d+)% of the ten nearest", finished.out)[0]
    assert kept in (here / "map.html").read_text("utf-8")
    data, table = data_of(here / "map.html"), pq.read_table(here / "map.parquet").to_pydict()
    assert data["texts"] == table["text"][:59]
    assert unpacked(data["rows"], "<i4").tolist() == list(range(59))
    near = unpacked(data["near"], "<i4").reshape(59, 10)
    assert near.tolist() == [each["ids"] for each in table["neighbors"][:59]]
    on_page = unpacked(data["maps"][0], "<u2").reshape(-1, 2).astype(float)
    for axis, name in enumerate("xy"):
        assert np.corrcoef(on_page[:, axis], table[name][:59])[0, 1] > 0.9999
    assert data["color"]["labels"] == [["en", 20], ["de", 20], ["0 others", 0], ["no value", 19]]
    assert unpacked(data["color"]["codes"], "u1").tolist()[:3] == [0, 1, 3]


def test_the_table_is_what_embedding_atlas_opens(isosent_, here):
    assert isosent_("map", "table.csv", "-o", "map.parquet").code == 0
    table = pq.read_table(here / "map.parquet")
    assert table.column_names == ["text", "x", "y", "neighbors", "lang", "score", "x_"]
    near = table.schema.field("neighbors").type
    assert near == pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float64()))])
    rows = table.to_pylist()
    assert [rows[59][name] for name in ("x", "y", "neighbors")] == [None] * 3  # it has no vector
    vectors = isosent.load("wordllama").encode(table["text"].to_pylist()[:59]).astype(float)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for row in range(59):
        ids, distances = rows[row]["neighbors"].values()
        others = np.delete(np.arange(58), row % 58)  # row 58 equals row 0
        expected = np.sort(1 - units[others] @ units[row])[:10]
        np.testing.assert_allclose(distances, expected, atol=1e-5)
        np.testing.assert_allclose(distances, 1 - units[ids] @ units[row], atol=1e-5)


def test_a_text_cannot_end_the_script(isosent_, here):
    assert isosent_("map", "texts.txt", "-o", "map.html").code == 0
    page = (here / "map.html").read_text("utf-8")
    assert data_of(here / "map.html")["texts"][57] == NASTY
    assert page.count("</script>") == 2
    assert "<script>window.hacked" not in page


@pytest.mark.parametrize(("name", "is_date"), [("score", False), ("day", True)])
def test_numbers_and_days_have_a_scale(isosent_, here, name, is_date):
    texts = (here / "texts.txt").read_text("utf-8").splitlines()
    values = {"score": [*np.arange(57) / 8, 1e6, None], "day": [*range(19723, 19780), 30000, None]}
    days = pa.array(values["day"], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"text": texts, "score": values["score"], "day": days}), "days.parquet")
    assert isosent_("map", "days.parquet", "--color", name, "-o", "map.html").code == 0
    color = data_of(here / "map.html")["color"]
    expected = np.array(values[name], float)
    np.testing.assert_allclose(unpacked(color["numbers"], "<f8"), expected)
    assert color["ends"] == pytest.approx(list(np.quantile(expected[:58], [0.02, 0.98])))
    assert color["ends"][1] < expected[57]  # one far number does not set the scale
    assert (color["isDate"], color["beyond"], color["missing"]) == (is_date, [True, True], 1)


def test_numbers_and_times_keep_all_digits_and_their_zone(isosent_, here):
    texts = (here / "texts.txt").read_text("utf-8").splitlines()
    zone = datetime.timezone(datetime.timedelta(hours=1))
    times = [datetime.datetime(2020, 1, 1, 13, 30, 15, n, tzinfo=zone) for n in range(len(texts))]
    numbers = [2**53 + n for n in range(len(texts))]
    pq.write_table(pa.table({"text": texts, "time": times, "number": numbers}), "exact.parquet")
    for name, expected in (("time", times), ("number", numbers)):
        assert isosent_("map", "exact.parquet", "--color", name, "-o", "map.html").code == 0
        values = data_of(here / "map.html")["color"]["values"]
        assert list(map(datetime.datetime.fromisoformat if name == "time" else int, values)) == expected


def test_vectors_take_their_texts_and_columns_from_a_table(isosent_, here):
    lines = (here / "table.csv").read_text("utf-8").splitlines()[:60]
    (here / "59.csv").write_text("\n".join(lines) + "\n", "utf-8")
    assert isosent_("map", "vectors.npy", "--texts", "59.csv", "--color", "lang", "-o", "a.html").code == 0
    assert isosent_("map", "59.csv", "--color", "lang", "-o", "b.html").code == 0
    assert data_of(here / "a.html") == data_of(here / "b.html")
    assert isosent_("map", "vectors.npy", "-o", "c.html").code == 0
    alone = data_of(here / "c.html")
    assert alone.pop("texts") is None
    assert alone["maps"] == data_of(here / "a.html")["maps"]


def test_an_index_is_drawn_with_its_columns(isosent_, here, wordllama):
    texts = isosent.demo_texts()[:40]
    Index.create(texts, wordllama, metadata={"lang": ["en", "de"] * 20}).save(here / "index")
    finished = isosent_("map", "index", "--color", "lang", "-o", "map.html", "-o", "map.parquet")
    assert finished.code == 0, finished.err
    data, table = data_of(here / "map.html"), pq.read_table(here / "map.parquet").to_pydict()
    assert data["texts"] == table["text"] == texts
    assert data["color"]["labels"][:2] == [["en", 20], ["de", 20]]
    assert table["id"] == list(range(40))


def test_a_transform_is_drawn_next_to_the_unchanged_vectors(isosent_, here):
    finished = isosent_(
        "map", "vectors.npy", "--transform", "whitening?n_components=8", "-o", "m.html", "-o", "m.parquet"
    )
    assert finished.code == 0, finished.err
    vectors = np.load(here / "vectors.npy")
    before, after = neighbor_map(vectors), neighbor_map(isosent.Whitening(n_components=8).fit_transform(vectors))
    assert f"After whitening: the map keeps {after.kept:.0%}" in finished.out
    assert f"{after.kept_of(before):.0%} of those before" in finished.out
    table = pq.read_table(here / "m.parquet").to_pydict()
    np.testing.assert_allclose(np.transpose([table["x"], table["y"]]), before.places, rtol=1e-4)
    assert {"x_2", "y_2"} <= {*table}
    assert len(data_of(here / "m.html")["maps"]) == 2


def test_a_saved_model_is_drawn_next_to_the_vectors_of_its_encoder(isosent_, here, wordllama):
    texts = (here / "texts.txt").read_text("utf-8").splitlines()
    fitted = wordllama.fitted(texts, transform="whitening?n_components=8")
    fitted.save(here / "fitted")
    before, after = neighbor_map(wordllama.encode(texts)), neighbor_map(fitted.encode(texts))
    for rows, folder in (("texts.txt", "fitted"), ("texts.txt", "fitted?encoder=wordllama"), ("vectors.npy", "fitted")):
        finished = isosent_("map", rows, "--transform", folder, "-o", "m.html", "-o", "m.parquet")
        assert finished.code == 0, finished.err
        table = pq.read_table(here / "m.parquet").to_pydict()
        assert [each["ids"] for each in table["neighbors"]] == before.neighbors.tolist()
        np.testing.assert_allclose(np.transpose([table["x_2"], table["y_2"]]), after.places, rtol=1e-3, atol=1e-2)
    alone = isosent_("map", "texts.txt", "-m", "fitted", "-o", "m.html")
    assert f"After whitening: the map keeps {after.kept:.0%}" in alone.out
    assert "Unchanged" not in alone.out + (here / "m.html").read_text("utf-8")


def test_a_column_that_is_named_as_a_new_one_is_kept(isosent_, here):
    pq.write_table(pa.table({"text": ["a cat", "a dog", "rain"], "x": [1, 3, 5], "x_": [2, 4, 6]}), "xs.parquet")
    assert isosent_("map", "xs.parquet", "--column", "text", "-o", "m.parquet").code == 0
    table = pq.read_table(here / "m.parquet").to_pydict()
    assert [1, 3, 5] in table.values()
    assert table["x_"] == [2, 4, 6]


def test_auto_that_keeps_the_vectors_draws_one_map(isosent_, here):
    finished = isosent_("map", "texts.txt", "--transform", "auto", "-o", "map.html")
    assert finished.code == 0
    assert "unchanged" in finished.err
    assert len(data_of(here / "map.html")["maps"]) == 1


def test_a_sample_by_scikit_learn_is_said(isosent_, monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    monkeypatch.setattr("isosent.search.places._MOST_FITTED", {"t-SNE by scikit-learn": 30})
    finished = isosent_("map", "vectors.npy", "-o", "map.html")
    assert "fitted on 30 of 58" in finished.out
    [note] = [line for line in finished.err.splitlines() if "isosent[map]" in line]
    kept = int(re.search(r"keeps (\d+)%", finished.out)[1])
    assert f"{100 - kept}% of the nearest neighbors are lost" in note


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("map", "texts.txt", "--color", "lang", "-o", "m.html"), ("--color lang", "texts.txt")),
        (("map", "table.csv", "--color", "land", "-o", "m.html"), ("--color land", "lang")),
        (("map", "texts.txt", "-o", "m.png"), ("m.png", ".html")),
        (("map", "vectors.npy", "--texts", "table.csv", "-o", "m.html"), ("60", "59")),
        (("map", "table.csv", "--transform", "whitenin", "-o", "m.html"), ("whitenin", "whitening")),
        (("map", "same.npy", "--transform", "mean_centering", "-o", "m.html"), ("after mean centering", "zero")),
        (("map", "texts.txt", "-m", "wordllama", "--transform", "fitted", "-o", "m.html"), ("fitted", "-m")),
        (("map", "index", "--transform", "fitted", "-o", "m.html"), ("index", "length 1")),
        (("map", "nan.npy", "-o", "m.html"), ("nan.npy", "NaN")),
        (("map", "zero.npy", "-o", "m.html"), ("zero",)),
        (("map", "missing.txt", "-o", "m.html"), ("missing.txt",)),
        (("map", "texts.txt", "-o", "texts.txt"), ("texts.txt",)),
    ],
)
def test_what_cannot_be_drawn_is_refused(isosent_, refuses, here, wordllama, arguments, words):
    wordllama.fitted(isosent.demo_texts()[:40], transform="mean_centering").save(here / "fitted")
    Index.create(isosent.demo_texts()[:40], wordllama).save(here / "index")
    np.save(here / "same.npy", np.ones((12, 2)))
    np.save(here / "nan.npy", np.array([[1.0, 2.0], [np.nan, 1.0]]))
    np.save(here / "zero.npy", np.zeros((3, 2)))
    refuses(isosent_(*arguments), *words)
    assert not (here / "m.html").exists()
