import json
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isosent


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, wordllama, texts):
    """A folder with texts, vectors and pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("isosent.jobs.inspect.COSINE_PAIRS", 4000)
    (tmp_path / "texts.txt").write_text("\n".join(texts[:200]) + "\n", "utf-8")
    np.save(tmp_path / "v.npy", wordllama.encode(texts[:200]))
    pairs = zip(texts[:60], texts[1:61], (i % 7 for i in range(60)), strict=True)
    lines = [f"{a}\t{b}\t{5 if a == b else label}\n" for a, b, label in (*pairs, *((t, t, 5) for t in texts[:40]))]
    (tmp_path / "pairs.tsv").write_text("first\tsecond\tgrade\n" + "".join(lines), "utf-8")
    return tmp_path


def test_texts_get_the_advice_and_tables(isosent_):
    finished = isosent_("inspect", "texts.txt")
    assert (finished.code, finished.err) == (0, "")
    for word in ("rows (N)", "IsoScore"):
        assert word in finished.out
    assert finished.out.splitlines()[0].endswith("fit on more.")
    details = ("share of random pairs below a cosine", "what auto compared")
    assert not any(word in finished.out for word in details)
    finished = isosent_("inspect", "texts.txt", "--details")
    assert all(word in finished.out for word in details)


def test_inspect_and_fit_give_the_same_verdict(isosent_, here, texts):
    (here / "repeated.txt").write_text("\n".join([*texts[:150], *texts[:40]]) + "\n", "utf-8")
    for source in ("texts.txt", "repeated.txt", "v.npy"):
        inspected, fitted = isosent_("inspect", source), isosent_("fit", source, "-o", "fitted")
        assert (inspected.code, fitted.code) == (0, 0)
        reason = isosent.load(here / "fitted").fits[-1].choice["reason"]
        assert inspected.out.splitlines()[source == "v.npy"].startswith(reason)
        assert reason in fitted.out.splitlines()


def test_vectors_get_tables_with_recall(isosent_):
    finished = isosent_("inspect", "v.npy")
    assert (finished.code, finished.err) == (0, "")
    assert "float32" in finished.out
    assert "recall@10" in finished.out
    size, advice = finished.out.splitlines()[:2]  # what vectors alone can say is first
    assert "of the memory" in size
    assert size.endswith("isosent fit v.npy --loss 0.01 -o FOLDER")
    assert advice.startswith("No recommendation without texts")


def test_a_missing_extra_is_named(isosent_, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert "isosent[search]" in isosent_("inspect", "v.npy").out.splitlines()[0]
    assert "isosent[search]" in isosent_("inspect", "texts.txt").out.splitlines()[-1]


def test_json_is_all_of_standard_output(isosent_):
    document = json.loads(isosent_("inspect", "v.npy", "--json").out)
    assert (document["source"], document["model"], document["counts"]["n_rows"]) == ("v.npy", None, 200)


def test_the_page_is_written_beside_the_tables(isosent_, here):
    finished = isosent_("inspect", "texts.txt", "-o", "page.html")
    assert finished.code == 0
    page = (here / "page.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert finished.out.splitlines()[0].split(":")[0] in page


def test_bad_rows_are_counted_where_other_commands_refuse_them(isosent_, here):
    vectors = np.load(here / "v.npy")
    vectors[3], vectors[5] = np.nan, 0
    np.save(here / "bad.npy", vectors)
    counts = json.loads(isosent_("inspect", "bad.npy", "--json").out)["counts"]
    assert (counts["n_non_finite"], counts["n_zero"], counts["n_used"]) == (1, 1, 198)
    first, refused = "First remove the rows that hold NaN or infinity (1)", isosent_("fit", "bad.npy", "--loss", "0.01")
    assert refused.code == 2
    assert first in " ".join(isosent_("inspect", "bad.npy").out.split())
    assert "First remove" not in isosent_("inspect", "v.npy").out


def test_a_table_of_texts_and_vectors_holds_vectors_unless_a_column_of_texts_is_named(isosent_, here, refuses):
    isosent_("encode", "texts.txt", "-o", "v.parquet")
    assert json.loads(isosent_("inspect", "v.parquet", "--json").out)["model"] is None
    refuses(isosent_("inspect", "v.parquet", "-m", "wordllama"), "--column NAME")
    assert json.loads(isosent_("inspect", "v.parquet", "--column", "vector", "--json").out)["model"] is None
    assert json.loads(isosent_("inspect", "v.parquet", "--column", "text", "--json").out)["model"] == "wordllama"


def test_what_cannot_be_inspected_is_refused_before_any_work(isosent_, here, refuses):
    refuses(isosent_("inspect", "v.npy", "-m", "wordllama"), "--model is for texts")
    refuses(isosent_("inspect", "nothing.txt"), "nothing.txt", "no such file")
    refuses(isosent_("inspect", "texts.txt", "-o", "no/where.html"), "no folder")
    (here / "o.json").mkdir()
    refuses(isosent_("inspect", "texts.txt", "-o", "o.json"), "directory")
    before = (here / "texts.txt").read_bytes()
    refuses(isosent_("inspect", "texts.txt", "-o", "texts.txt"), ".html or .json")
    assert (here / "texts.txt").read_bytes() == before


@pytest.fixture(scope="module")
def saved(tmp_path_factory, wordllama, texts):
    folder = tmp_path_factory.mktemp("saved") / "model"
    wordllama.fitted(texts, transform=isosent.Whitening(64)).save(folder)
    return folder


@pytest.fixture
def model(saved, here):
    shutil.copytree(saved, here / "model")
    return "model"


def test_texts_calibrate_a_model_in_its_own_folder(isosent_, model, here, texts):
    finished = isosent_("calibrate", "texts.txt", "-m", model)
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.startswith("model: calibrated on 100,000 random pairs")
    loaded = isosent.load(here / model)
    vectors = loaded.encode(texts[:5])
    same = loaded.similarity(vectors, vectors, calibrated=True).diagonal()
    np.testing.assert_allclose(same, 1, atol=1e-4)
    percentile = loaded.calibration(0.0)
    assert 0.3 < percentile < 0.8
    assert loaded.quantization is None
    assert isosent_("quantize", "texts.txt", "-m", model).out.startswith("model: int8 and bits fitted on")
    assert isosent.load(here / model).encode(texts[:5], precision="ubinary").shape == (5, 8)
    assert "int8, ubinary" in isosent_("info", model).out
    same = isosent_("similarity", texts[0], texts[0], "-m", model).out
    assert same.splitlines()[0] == "cosine 1.0000"
    assert same.splitlines()[1].startswith("percentile 0.99") or same.splitlines()[1] == "percentile 1.0000"


def test_labeled_pairs_calibrate_a_model_into_a_new_folder(isosent_, model, here):
    pairs = ("pairs.tsv", "--columns", "first,second,grade")
    finished = isosent_("calibrate", *pairs, "-m", model, "-o", "calibrated")
    assert (finished.code, finished.err) == (0, "")
    assert "calibrated on 100 labels" in finished.out
    assert isosent.load(here / model).calibration is None
    assert isosent.load(here / "calibrated").calibration.label_range == (0, 6)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_labels_may_be_numbers_of_their_format(isosent_, model, here, ending):
    header, *lines = (line.split("\t") for line in (here / "pairs.tsv").read_text("utf-8").splitlines())
    rows = [dict(zip(header, [a, b, int(c)], strict=True)) for a, b, c in lines]
    if ending == "jsonl":
        (here / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), here / "pairs.parquet")
    pairs = (f"pairs.{ending}", "--columns", "first,second,grade")
    assert "calibrated on 100 labels" in isosent_("calibrate", *pairs, "-m", model).out


def test_a_calibration_that_cannot_be_made_is_refused_and_the_model_is_as_it_was(isosent_, model, here, refuses):
    pairs = ("pairs.tsv", "--columns")
    both = (*pairs, "first,second,grade", "--column", "first")
    refuses(isosent_("calibrate", *both, "-m", model), "--column is for TEXTS")
    refuses(isosent_("calibrate", *pairs, "first,second,first", "-m", model), "name 3 different columns")
    refuses(isosent_("calibrate", *pairs, "first,second,score", "-m", model), "no column score")
    refuses(isosent_("calibrate", *pairs, "first,grade", "-m", model), "three columns")
    refuses(isosent_("calibrate", "texts.txt"), "wordllama", "-o FOLDER")
    (here / "same.tsv").write_text("a\tb\tgrade\n" + "one\ttwo\t1\n" * 40, "utf-8")
    same = ("same.tsv", "--columns", "a,b,grade")
    refuses(isosent_("calibrate", *same, "-m", model), "the scores of the 40 pairs of same are all 1")
    (here / "few.txt").write_text("one\ntwo\n", "utf-8")
    refuses(isosent_("calibrate", "few.txt", "-m", model), "make 1 pairs, and at least 30 are needed")
    assert isosent.load(here / model).calibration is None


def test_drift_takes_vectors_and_moments_and_names_what_changed(isosent_, here):
    random = np.random.default_rng(0)
    old, new = random.normal(size=(2, 400, 6))
    new[:, 4] = 3 * new[:, 4] + 2
    np.save(here / "old.npy", old)
    np.save(here / "new.npy", new)
    for name in ("old", "new"):
        isosent_("moments", f"{name}.npy", "-o", f"{name}.safetensors")
    finished = isosent_("drift", "old.npy", "new.npy")
    assert (finished.code, finished.err) == (0, "")
    assert "dimension 4" in finished.out
    first, second = finished.out.splitlines()[:2]
    assert "changed beyond chance. Refit: " in first
    assert "another model" in second  # these files do not say which model made them
    documents = [
        json.loads(isosent_("drift", f"old.{first}", f"new.{second}", "--json").out)
        for first, second in (("npy", "npy"), ("safetensors", "npy"), ("safetensors", "safetensors"))
    ]
    assert [each["knows_kurtosis"] for each in documents] == [True, True, False]
    assert [each["axes"][0]["dimension"] for each in documents] == [4, 4, 4]
    assert [each["axes"][0]["variance_p_value"] is None for each in documents] == [False, False, True]
    assert "not tested" in isosent_("drift", "old.safetensors", "new.safetensors").out
    same = isosent_("drift", "old.npy", "old.npy")
    assert same.code == 0


def test_drift_leaves_out_zero_rows(isosent_, here):
    rows = np.random.default_rng(0).normal(size=(100, 4)) + 5
    np.save(here / "old.npy", rows)
    np.save(here / "new.npy", np.vstack([rows, np.zeros((50, 4))]))
    document = json.loads(isosent_("drift", "old.npy", "new.npy", "--json").out)
    assert (document["n_new"], document["mean_p_value"], document["covariance_p_value"]) == (100, 1, 1)


def test_drift_refuses_what_cannot_be_compared(isosent_, here, refuses):
    np.save(here / "wide.npy", np.ones((200, 7)))
    np.save(here / "few.npy", np.load(here / "v.npy")[:5])
    isosent_("encode", "texts.txt", "-o", "a.npy")
    isosent_("fit", "texts.txt", "--transform", "mean_centering", "-o", "centred")
    isosent_("encode", "texts.txt", "-m", "centred", "-o", "b.npy")
    refuses(isosent_("drift", "v.npy", "wide.npy"), "256", "7")
    refuses(isosent_("drift", "v.npy", "few.npy"), "20", "5")
    refuses(isosent_("drift", "wide.npy", "wide.npy"), "equal")
    refuses(isosent_("drift", "a.npy", "b.npy"), "space")
    refuses(isosent_("drift", "v.npy", "nothing.npy"), "nothing.npy")
    refuses(isosent_("drift", "v.npy", "v.npy", "--json", "v.npy"), "v.npy")


def test_drift_takes_texts_and_names_those_that_are_least_like_the_old_ones(isosent_, here, texts):
    (here / "old.txt").write_text("\n".join(texts[:300]))
    (here / "new.csv").write_text(
        "text,lang\n" + "".join(f'"{text}",en\n' for text in [*texts[300:400], "Zahlungserinnerung"])
    )
    finished = isosent_("drift", "old.txt", "new.csv", "-m", "wordllama")
    assert finished.code == 0, finished.err
    assert "Zahlungserinnerung" in finished.out.partition("least like")[2]
    assert "another model" not in finished.out
    document = json.loads(isosent_("drift", "old.txt", "new.csv", "-m", "wordllama", "--json").out)
    assert len(document["unusual"]) == 20
    [row] = [each["row"] for each in document["unusual"] if each["text"] == "Zahlungserinnerung"]
    assert row == 100
    distances = [each["distance"] for each in document["unusual"]]
    assert distances == sorted(distances, reverse=True)


def test_moments_of_texts_are_those_of_their_vectors(isosent_, here, texts, refuses):
    (here / "old.txt").write_text("\n".join(texts[:50]))
    isosent_("encode", "old.txt", "-o", "old.npy")
    for source in ("old.txt", "old.npy"):
        assert isosent_("moments", source, "-m", "wordllama", "-o", f"{source}.safetensors").code == 0
    facts = [json.loads(isosent_("info", f"{source}.safetensors", "--json").out) for source in ("old.txt", "old.npy")]
    assert [each.pop("files") for each in facts] == ["old.txt", "old.npy"]
    assert facts[0] == facts[1]
    again = ("moments", "old.txt", "-m", "wordllama", "--checkpoint", "kept", "-o", "m.safetensors")
    refuses(isosent_(*again), "--checkpoint is for vectors")


def test_columns_of_texts_may_be_named_where_vectors_were_expected(isosent_, here, texts):
    rows = "".join(f'{number},"{text}"\n' for number, text in enumerate(texts[:60]))
    (here / "table.csv").write_text(f"id,body\n{rows}")
    named = ("--column", "body", "-m", "wordllama")
    assert isosent_("moments", "table.csv", *named, "-o", "t.safetensors").code == 0
    assert isosent_("drift", "table.csv", "table.csv", *named).out.startswith("The vectors have not changed")
