import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import isosent
from isosent.io.vectors import open_vectors
from isosent.jobs.moments import read_moments
from isosent.numeric.similarity import unit_rows

N_ROWS, DIM = 200, 4
ROWS = (np.random.default_rng(0).normal(size=(N_ROWS, DIM)) * [4.0, 2.0, 1.0, 0.5] + 3.0).astype(np.float32)
ROWS[[7, 70]] = 0
KNOWN = np.delete(ROWS, [7, 70], axis=0).astype(np.float64)
GLOVE = "man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n"
TEXTS = "a man\na dog\n\ncat and yak\nthe man, the cat\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    np.save("v.npy", ROWS)
    (tmp_path / "glove.txt").write_text(GLOVE)
    (tmp_path / "texts.txt").write_text(TEXTS)
    return tmp_path


def lists(rows):
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def whitens(folder, rows=KNOWN):
    """Whether a model whitens rows, as numpy sees it."""
    covariance = np.cov(isosent.load(folder).transform(rows).T.astype(np.float64), ddof=0)
    np.testing.assert_allclose(covariance, np.eye(len(covariance)), atol=1e-4)


def test_fit_on_vectors_makes_a_model_that_whitens_them(isosent_, here):
    code, out, err = isosent_("fit", "v.npy", "--transform", "whitening", "-o", "model")
    assert (code, err) == (0, "")
    assert "fitted on 198 vectors, zero rows left out: 2" in out
    assert "198 of 200 vectors of v.npy" in out
    whitens(here / "model")


def test_fit_takes_several_files_and_the_settings_of_a_transform(isosent_, here):
    np.save("a.npy", ROWS[:50].astype(np.float64))
    pq.write_table(pa.table({"id": np.arange(150), "v": lists(ROWS[50:])}), "b.parquet")
    arguments = ("--transform", "principal_components", "--dims", "2")
    assert isosent_("fit", "a.npy", "b.parquet", *arguments, "-o", "model")[0] == 0
    model = isosent.load(here / "model")
    _, vectors = np.linalg.eigh(np.cov(KNOWN.T, ddof=0))
    expected = (KNOWN - KNOWN.mean(axis=0)) @ vectors[:, [-1, -2]]
    np.testing.assert_allclose(np.abs(model.transform(KNOWN)), np.abs(expected), atol=1e-4)


def test_fit_on_moments_is_fit_on_their_vectors(isosent_, here):
    np.save("a.npy", ROWS[:50])
    np.save("b.npy", ROWS[50:])
    assert isosent_("moments", "a.npy", "-o", "a.safetensors")[0] == 0
    code, out, err = isosent_("moments", "a.safetensors", "b.npy", "-o", "all.safetensors")
    assert (code, err) == (0, "")
    assert out == "all.safetensors: 198 vectors of 4 dimensions; zero rows left out: 2\n"
    np.testing.assert_allclose(
        read_moments("all.safetensors").moments.covariance, np.cov(KNOWN.T, ddof=0), rtol=1e-5, atol=1e-5
    )
    assert isosent_("fit", "all.safetensors", "--transform", "whitening", "-o", "model")[0] == 0
    whitens(here / "model")


def test_transform_takes_vectors_through_the_model(isosent_, here):
    isosent_("fit", "v.npy", "--dims", "3", "-o", "model")
    code, out, err = isosent_("transform", "v.npy", "-m", "model", "-o", "o.npy")
    assert (code, out, err) == (0, "o.npy: 200 x 3 float32; zero rows: 2\n", "")
    model = isosent.load(here / "model")
    np.testing.assert_allclose(np.load("o.npy"), model.transform(ROWS), rtol=1e-5, atol=1e-6)
    assert not np.load("o.npy")[[7, 70]].any()
    assert open_vectors("o.npy").space.fingerprint == model.fingerprint


def test_transform_keeps_the_other_columns_of_a_table(isosent_, refuses):
    isosent_("fit", "v.npy", "--dims", "3", "-o", "model")
    pq.write_table(pa.table({"id": np.arange(N_ROWS), "a": lists(ROWS), "b": lists(ROWS)}), "v.parquet")
    arguments = ("transform", "v.parquet", "-m", "model", "-o", "o.parquet")
    refuses(isosent_(*arguments), "has 2 columns of vectors (a, b). Choose one: --column NAME")
    assert isosent_(*arguments, "--column", "b")[0] == 0
    assert pq.ParquetFile("o.parquet").read().column_names == ["id", "a", "b"]
    assert str(pq.ParquetFile("o.parquet").schema_arrow.field("b").type) == "fixed_size_list<element: float>[3]"


def test_transform_writes_half_precision(isosent_, refuses):
    isosent_("fit", "v.npy", "-o", "model")
    assert isosent_("transform", "v.npy", "-m", "model", "-o", "o.npy", "--dtype", "float16")[0] == 0
    assert np.load("o.npy").dtype == np.float16
    refuses(
        isosent_("transform", "v.npy", "-m", "model", "-o", "o.npy", "--dtype", "float64"),
        "'float64' is not one of",
    )


def test_vectors_of_encode_fit_and_transform_as_their_texts_do(isosent_, here):
    for name in ("v.npy", "v.parquet"):
        assert isosent_("encode", "texts.txt", "-m", "words:glove.txt", "-o", name)[0] == 0
    assert isosent_("fit", "texts.txt", "-m", "words:glove.txt", "--dims", "2", "-o", "of_texts")[0] == 0
    assert isosent_("fit", "v.parquet", "--column", "vector", "--dims", "2", "-o", "of_vectors")[0] == 0
    assert isosent_("transform", "v.npy", "-m", "of_vectors", "-o", "a.npy")[0] == 0
    assert isosent_("transform", "v.npy", "-m", "of_texts", "-o", "b.npy")[0] == 0
    np.testing.assert_allclose(np.load("a.npy"), np.load("b.npy"), atol=1e-5)
    np.testing.assert_allclose(np.load("b.npy"), isosent.load(here / "of_texts").encode(TEXTS.splitlines()), atol=1e-6)


def test_fit_with_a_model_stands_behind_the_encoder_of_the_vectors(isosent_, here, refuses):
    isosent_("encode", "texts.txt", "-m", "words:glove.txt", "-o", "v.npy")
    assert isosent_("fit", "v.npy", "-m", "words:glove.txt", "--dims", "2", "-o", "model")[0] == 0
    assert isosent.load(here / "model").encode(["a man"]).shape == (1, 2)
    np.save("w.npy", ROWS[:, :3])
    isosent_("fit", "w.npy", "--space", "elsewhere", "-o", "other")
    refuses(isosent_("fit", "v.npy", "-m", "other", "-o", "model"), "words:", "elsewhere")
    refuses(isosent_("fit", "w.npy", "-m", "wordllama", "-o", "model"), "those of wordllama have 256")
    refuses(isosent_("fit", "w.npy", "-m", "other", "--space", "x", "-o", "model"), "--space")


def test_vectors_of_another_space_are_refused(isosent_, refuses):
    isosent_("encode", "texts.txt", "-m", "words:glove.txt", "-o", "words.npy")
    isosent_("fit", "words.npy", "--dims", "2", "-o", "model")
    isosent_("transform", "words.npy", "-m", "model", "-o", "mapped.npy")
    isosent_("encode", "texts.txt", "-m", "words:glove.txt?lowercase=false", "-o", "cased.npy")
    refuses(
        isosent_("transform", "cased.npy", "-m", "model", "-o", "o.npy"), "cased.npy holds vectors of the space words"
    )
    refuses(isosent_("fit", "words.npy", "cased.npy", "-o", "m"), "cased.npy holds vectors", "words.npy belongs to")
    refuses(isosent_("moments", "words.npy", "cased.npy", "-o", "m.safetensors"), "cannot be compared")
    refuses(
        isosent_("transform", "v.npy", "-m", "model", "-o", "o.npy"), "v.npy: expected vectors of 3 dimensions, found 4"
    )


def test_a_named_space_has_the_same_fingerprint_everywhere(isosent_, here):
    for name in ("a", "b"):
        isosent_("fit", "v.npy", "--space", "text-embedding-3-small", "-o", name)
    assert isosent.load(here / "a").encoder.fingerprint == isosent.load(here / "b").encoder.fingerprint
    isosent_("fit", "v.npy", "-o", "c")
    assert isosent.load(here / "c").encoder.fingerprint != isosent.load(here / "a").encoder.fingerprint


def test_the_name_of_a_model_as_a_space_is_only_a_name(isosent_, refuses):
    np.save("three.npy", ROWS[:, :3])
    finished = isosent_("fit", "three.npy", "--space", "words:glove.txt", "--transform", "whitening", "-o", "model")
    assert finished.code == 0
    assert "-m words:glove.txt in place of --space" in finished.err
    asked = isosent_("encode", "texts.txt", "-m", "model?encoder=words:glove.txt", "-o", "o.npy")
    refuses(asked, "only the name", "--model words:", "--space")
    assert "in place" not in isosent_("fit", "v.npy", "--space", "text-embedding-3-small", "-o", "api").err
    assert "in place" not in isosent_("fit", "v.npy", "--space", "sentence-transformers/LaBSE", "-o", "api").err


def test_queries_get_their_own_mean(isosent_, here, refuses):
    np.save("q.npy", ROWS + 2)
    assert isosent_("fit", "v.npy", "--queries", "q.npy", "--transform", "whitening", "-o", "model")[0] == 0
    isosent_("transform", "q.npy", "-m", "model", "--queries", "-o", "o.npy")
    np.testing.assert_allclose(np.load("o.npy").mean(axis=0), np.zeros(DIM), atol=1e-2)
    np.save("q.npy", ROWS[:, :2])
    refuses(
        isosent_("fit", "v.npy", "--queries", "q.npy", "--transform", "whitening", "-o", "model"),
        "q.npy: vectors of 2 dimensions, but those of v.npy have 4",
    )


def test_info_tells_of_a_model_of_vectors(isosent_):
    isosent_("fit", "v.npy", "--space", "text-embedding-3-small", "-o", "model")
    code, out, _ = isosent_("info", "model")
    assert code == 0
    assert "space=text-embedding-3-small" in out
    assert "v.npy" in out


def test_a_model_of_vectors_encodes_no_texts(isosent_, refuses):
    isosent_("fit", "v.npy", "-o", "model")
    refuses(
        isosent_("encode", "texts.txt", "-m", "model", "-o", "o.npy"),
        "cannot encode texts",
        "isosent transform VECTORS",
    )


def test_texts_and_vectors_are_not_mixed(isosent_, refuses):
    refuses(isosent_("fit", "v.npy", "texts.txt", "-o", "m"), "texts.txt holds texts, and v.npy holds vectors.")
    refuses(isosent_("fit", "texts.txt", "--space", "x", "-o", "m"), "--checkpoint are for vectors")
    refuses(isosent_("fit", "texts.txt", "-o", "m", "--shard-size", 3), "--shard-size is for --workers")


def test_vectors_without_a_map_are_calibrated_quantized_and_watched(isosent_, here, refuses):
    rng = np.random.default_rng(1)
    np.save("old.npy", rng.normal(1, 1, size=(400, 9)).astype(np.float32))
    np.save("same.npy", rng.normal(1, 1, size=(400, 9)).astype(np.float32))
    np.save("moved.npy", rng.normal(2, 1, size=(400, 9)).astype(np.float32))
    assert isosent_("fit", "old.npy", "--transform", "none", "--space", "api", "-o", "m").code == 0
    model = isosent.load(here / "m")
    np.testing.assert_array_equal(model.transform(np.load("old.npy")), np.load("old.npy"))
    assert "fit 1" in (out := isosent_("info", "m").out)
    assert "chosen by auto" not in out
    refuses(isosent_("transform", "same.npy", "-m", "m", "--dtype", "int8", "-o", "c.npy"), "isosent quantize")
    assert "percentile" in isosent_("calibrate", "old.npy", "-m", "m").out
    assert isosent_("quantize", "old.npy", "-m", "m").code == 0
    assert isosent_("transform", "same.npy", "-m", "m", "--dtype", "int8", "-o", "c.npy").code == 0
    assert isosent_("transform", "same.npy", "-m", "m", "--dtype", "ubinary", "-o", "b.npy").code == 0
    model = isosent.load(here / "m")
    units = unit_rows(np.load("same.npy"))
    assert (np.load("c.npy").dtype, np.load("b.npy").dtype, np.load("b.npy").shape) == (np.int8, np.uint8, (400, 2))
    np.testing.assert_allclose(model.quantization.decode(np.load("c.npy"), "int8"), units, atol=0.02)
    np.testing.assert_array_equal(model.quantization.encode(units, "ubinary"), np.load("b.npy"))
    refuses(isosent_("transform", "same.npy", "-m", "m", "--dtype", "ubinary", "-o", "b.parquet"), "an .npy file")
    refuses(isosent_("transform", "same.npy", "-m", "m", "--dtype", "ubinary", "-o", "folder"), "one .npy file")
    refuses(isosent_("fit", "c.npy", "-m", "m", "-o", "again"), "holds codes")  # they are no vectors of the space
    (here / "400.txt").write_text("".join(f"text {row}\n" for row in range(400)))
    for command in (
        ("fit", "b.npy", "-o", "again"),
        ("index", "b.npy", "-o", "index"),
        ("inspect", "b.npy"),
        ("migrate", "b.npy", "same.npy", "400.txt"),
        ("migrate", "same.npy", "b.npy", "400.txt"),
    ):
        refuses(isosent_(*command), "b.npy holds codes")
    assert isosent_("fit", "old.npy", "--transform", "none", "--space", "zip codes", "-o", "zip").code == 0
    assert isosent_("transform", "same.npy", "-m", "zip", "-o", "zip.npy").code == 0
    assert isosent_("inspect", "zip.npy").code == 0  # a space may have such a name
    np.save("unnamed.npy", np.load("b.npy"))
    assert "packed bits" in isosent_("index", "unnamed.npy", "-o", "index").err
    assert "No refit" in isosent_("drift", "m", "same.npy").out
    assert "Refit" in isosent_("drift", "m", "moved.npy").out
    expected = json.loads(isosent_("drift", "old.npy", "moved.npy", "--json").out)
    found = json.loads(isosent_("drift", "m", "moved.npy", "--json").out)
    assert found["mean_p_value"] == pytest.approx(expected["mean_p_value"], rel=1e-3)
    assert found["spread"] == pytest.approx(expected["spread"], rel=1e-4)
    isosent_("fit", "texts.txt", "-m", "words:glove.txt", "--transform", "none", "-o", "of_texts")
    refuses(isosent_("drift", "of_texts", "same.npy"), "holds no statistics")


def test_texts_of_vectors_let_auto_choose(isosent_, here, refuses, texts):
    (here / "demo.txt").write_text("\n".join(texts) + "\n")
    vectors = isosent.load("wordllama").encode(texts)
    (here / "vectors.jsonl").write_text("\n".join(json.dumps(row.tolist()) for row in vectors))
    assert isosent_("fit", "demo.txt", "-o", "by_texts").code == 0
    assert isosent_("fit", "vectors.jsonl", "--texts", "demo.txt", "-o", "m").code == 0
    chosen = [isosent.load(here / name).fits[-1].choice for name in ("by_texts", "m")]
    assert chosen[0]["chosen"] == chosen[1]["chosen"]
    assert chosen[0]["reason"] == chosen[1]["reason"]
    by_texts, of_vectors = (
        isosent_("inspect", *inputs, "--json") for inputs in (("demo.txt",), ("vectors.jsonl", "--texts", "demo.txt"))
    )
    by_texts, of_vectors = json.loads(by_texts.out), json.loads(of_vectors.out)
    assert by_texts["choice"]["chosen"] == of_vectors["choice"]["chosen"]
    assert by_texts["advice"] == of_vectors["advice"]
    assert of_vectors["sizes"]
    refuses(isosent_("encode", "vectors.jsonl", "-o", "n.npy"), "holds vectors, not texts")
    refuses(isosent_("fit", "vectors.jsonl", "--texts", "texts.txt", "-o", "n"), "texts.txt holds 5 texts", "480")
    refuses(isosent_("inspect", "vectors.jsonl", "--texts", "texts.txt"), "5 texts for 480 vectors")
    refuses(isosent_("fit", "v.npy", "--texts", "texts.txt", "--transform", "whitening", "-o", "n"), "--transform auto")
    refuses(isosent_("fit", "texts.txt", "--texts", "texts.txt", "-o", "n"), "are for vectors")
    refuses(isosent_("inspect", "texts.txt", "--texts", "texts.txt"), "are for vectors")
    assert not (here / "n").exists()


def test_several_files_of_texts_are_fitted_on(isosent_, here):
    (here / "more.txt").write_text("yak\ndog man\n")
    assert isosent_("fit", "texts.txt", "more.txt", "-m", "words:glove.txt", "--dims", "2", "-o", "model")[0] == 0
    assert isosent.load(here / "model").fits[-1].n_texts == 6


def test_bad_vectors_are_refused_in_a_sentence(isosent_, here, refuses):
    rows = ROWS.copy()
    rows[150, 1] = np.nan
    np.save("nan.npy", rows)
    np.save("zero.npy", np.zeros((9, 3), np.float32))
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    (here / "cut.npy").write_bytes((here / "v.npy").read_bytes()[:-1])
    save_file({"a": ROWS, "b": ROWS}, "two.safetensors")
    refuses(isosent_("fit", "nan.npy", "-o", "m"), "nan.npy: row 150 of vectors, counted from 0, holds NaN")
    refuses(isosent_("fit", "zero.npy", "-o", "m"), "no vectors, or only zero ones. At least one that is not zero")
    refuses(isosent_("fit", "objects.npy", "-o", "m"), "holds pickled objects")
    refuses(isosent_("moments", "cut.npy", "-o", "m.safetensors"), "is truncated")
    refuses(isosent_("moments", "two.safetensors", "-o", "m.safetensors"), "Choose one: --column NAME")
    refuses(isosent_("moments", "v.npy", "-o", "m.npy"), "m.npy: moments are written to .safetensors")
    refuses(
        isosent_("moments", "texts.txt", "-o", "m.safetensors"), "texts.txt holds texts, not vectors. Name the model"
    )
    refuses(
        isosent_("moments", "v.npy", "texts.txt", "-m", "wordllama", "-o", "m.safetensors"),
        "error: texts.txt: vectors of 256 dimensions, but those of v.npy have 4",
    )
    refuses(isosent_("transform", "v.npy", "-o", "o.npy"), "Missing option '--model'")
    isosent_("moments", "v.npy", "-o", "of_v.safetensors")
    refuses(isosent_("transform", "of_v.safetensors", "-m", "m", "-o", "o.npy"), "holds isosent-")
    assert not {"m", "m.safetensors", "o.npy"} & {path.name for path in here.iterdir()}


def run_until_killed(arguments, kept):
    """Start the command line, wait for its first checkpoint, and kill it."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not kept.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return process.returncode


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bits(here):
    rows = np.random.default_rng(0).standard_normal((20_000, 512), np.float32) * np.linspace(3, 0.1, 512) + 1
    np.save("big.npy", rows)
    command = [sys.executable, "-c", "from isosent.cli.main import main; main()", "moments", "big.npy", "-o"]
    resumable = [*command, "killed.safetensors", "--checkpoint", "kept"]
    assert run_until_killed(resumable, here / "kept") == -signal.SIGKILL
    assert not (here / "killed.safetensors").exists()
    again = subprocess.run(resumable, capture_output=True, text=True, check=True)
    assert again.stderr.startswith("resuming from row ")
    subprocess.run([*command, "whole.safetensors"], capture_output=True, check=True)
    moments, whole = load_file("killed.safetensors"), load_file("whole.safetensors")
    assert {name: tensor.tobytes() for name, tensor in moments.items()} == {
        name: tensor.tobytes() for name, tensor in whole.items()
    }
    assert moments["weight"] == [20_000]
    np.testing.assert_allclose(moments["scatter"] / 20_000, np.cov(rows.T, ddof=0), rtol=1e-9, atol=1e-9)


def test_vectors_that_went_through_the_model_do_not_go_through_it_again(isosent_, here, refuses):
    assert isosent_("fit", "v.npy", "--transform", "whitening", "-o", "model").code == 0
    assert isosent_("transform", "v.npy", "-m", "model", "-o", "w.npy").code == 0
    refuses(isosent_("transform", "w.npy", "-m", "model", "-o", "x.npy"), "w.npy", "the model was already applied")
    refuses(isosent_("fit", "w.npy", "-m", "model", "-o", "again"), "w.npy", "the model was already applied")


def test_a_file_without_a_vector_is_refused_and_nothing_is_written(isosent_, here, refuses):
    np.save("zeros.npy", np.zeros((5, 4), dtype=np.float32))
    np.save("none.npy", np.zeros((0, 4), dtype=np.float32))
    for path in ("zeros.npy", "none.npy"):
        for transform in ("auto", "none"):
            finished = isosent_("fit", path, "-o", "model", "--transform", transform)
            refuses(finished, "no vectors, or only zero ones. At least one that is not zero")
        assert not (here / "model").exists()
    np.save("old.npy", KNOWN)
    assert isosent_("fit", "none.npy", "old.npy", "-o", "model").code == 0
    refuses(isosent_("calibrate", "none.npy", "-m", "model"), "all their vectors are zero")


def test_a_folder_of_vectors_that_were_written_is_fitted_on(isosent_, here):
    np.save("old.npy", KNOWN)
    assert isosent_("fit", "old.npy", "--transform", "none", "-o", "model").code == 0
    (here / "folder").mkdir()
    assert isosent_("transform", "old.npy", "-m", "model", "-o", "folder/w.npy").code == 0
    assert (here / "folder" / "w.npy.isosent.json").exists()
    assert isosent_("fit", "folder", "-o", "again").code == 0


def test_queries_are_opened_before_the_vectors_are_read(isosent_, here, refuses):
    np.save("nan.npy", np.full((5, 4), np.nan, dtype=np.float32))
    refuses(isosent_("fit", "nan.npy", "--queries", "nowhere.npy", "-o", "model"), "nowhere.npy: no such file")


def test_a_fit_on_a_known_and_an_unknown_space_is_warned_of_once(isosent_):
    assert isosent_("encode", "texts.txt", "-m", "words:glove.txt", "-o", "known.npy").code == 0
    np.save("unknown.npy", ROWS[:, :3])
    np.save("other.npy", ROWS[:, :3])
    mixed = isosent_("fit", "known.npy", "unknown.npy", "other.npy", "-o", "mixed")
    assert (mixed.code, mixed.err.count("warning: ")) == (0, 1)
    assert "unknown.npy, other.npy is not known" in mixed.err
    assert isosent_("fit", "unknown.npy", "other.npy", "-o", "unnamed", "--transform", "whitening").err == ""
    quantized = isosent_("quantize", "known.npy", "-m", "unnamed")
    assert quantized.err.count("warning: ") == 1
    assert "of the model is not known" in quantized.err


def test_a_fit_says_that_it_replaces_another_model_and_not_its_own(isosent_):
    fit = ("fit", "v.npy", "--transform", "mean_centering", "-o", "model")
    assert isosent_(*fit).err == ""
    assert "model holds a model, which is replaced" in isosent_(*fit).err
    failing = ("fit", "nowhere.npy", "-o", "model")
    assert "which is replaced" in isosent_(*failing).err  # before any work
    assert isosent.load("model").dim == 4
    assert "which is replaced" in isosent_("calibrate", "v.npy", "-m", "words:glove.txt", "-o", "model").err
    assert isosent_("fit", "v.npy", "--transform", "whitening", "-m", "model", "-o", "model").err == ""


@pytest.mark.filterwarnings("ignore:.*its texts or labels in")
def test_auto_takes_the_texts_of_a_table_next_to_its_vectors_and_no_labels(isosent_, here):
    texts = isosent.demo_texts()[:300]
    vectors = lists(isosent.load("wordllama").encode(texts))
    pq.write_table(pa.table({"vector": vectors, "sentence": texts, "n": np.arange(300)}), "own.parquet")
    pq.write_table(pa.table({"vector": vectors, "kind": ["news", "mail", "chat"] * 100}), "labels.parquet")
    np.save("alone.npy", vectors.flatten().to_numpy().reshape(300, -1))
    (here / "own.txt").write_text("".join(f"{text}\n" for text in texts))
    choices = []
    for arguments in (["own.parquet"], ["alone.npy", "--texts", "own.txt"], ["labels.parquet"], ["alone.npy"]):
        assert isosent_("fit", *arguments, "-o", "model").code == 0
        choices.append(isosent.load(here / "model").fits[-1].choice)
    assert choices[0] == choices[1] != choices[2] == choices[3]


def test_a_loss_in_percent_is_named(isosent_, refuses):
    refuses(isosent_("fit", "v.npy", "--loss", "5", "-o", "model"), "--loss", "write 5%")
