import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from vector_makers import write_vectors

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import FileFormatError, InputError, MemoryWarning, ModelFolderError, OutputError
from isosent.io import vector_source
from isosent.io.source import open_source
from isosent.io.tensors import tensors_bytes
from isosent.io.vectors import open_vectors
from isosent.jobs import moments as checkpoint_module
from isosent.jobs.moments import moments_of, read_moments, write_moments
from isosent.jobs.vectors import transform_file
from isosent.model import SentenceEncoder
from isosent.space import Space
from isosent.transforms.whitening import Whitening

N_ROWS, DIM = 101, 4
ROWS = (np.random.default_rng(0).normal(size=(N_ROWS, DIM)) * [4.0, 2.0, 1.0, 0.5] + 3.0).astype(np.float32)
ROWS[[5, 60]] = 0
KNOWN = np.delete(ROWS, [5, 60], axis=0).astype(np.float64)
SPACE, OTHER = Space("ab" * 32, "one encoder"), Space("cd" * 32, "another encoder")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Eleven rows a block, and a checkpoint after each."""
    monkeypatch.setattr(vector_source, "BLOCK_BYTES", 11 * DIM * 4)
    monkeypatch.setattr(vector_source, "BLOCK_ROWS_A_DIM", 0)
    monkeypatch.setattr(checkpoint_module, "_PAUSE_S", 0.0)
    monkeypatch.setattr(checkpoint_module, "_SHARE_OF_TIME", 1e9)


@pytest.fixture
def vectors_in(tmp_path):
    def vectors_in(rows=ROWS, name="v.npy", space=None):
        write_vectors(tmp_path / name, rows, ["a"] * len(rows), space)
        return open_vectors(tmp_path / name)

    return vectors_in


def same_bits(first, second):
    assert first.moments.weight == second.moments.weight
    assert (first.n_zero_rows, first.space, first.sources) == (second.n_zero_rows, second.space, second.sources)
    for name in ("mean", "scatter", "rounding"):
        np.testing.assert_array_equal(getattr(first.moments, name), getattr(second.moments, name))


@pytest.mark.parametrize("name", ["v.npy", "v.fvecs", "v.parquet"])
def test_moments_of_a_file_are_those_of_its_rows_without_zero_rows(vectors_in, name):
    measured = moments_of([vectors_in(name=name)])
    assert (measured.moments.weight, measured.n_zero_rows) == (N_ROWS - 2, 2)
    np.testing.assert_allclose(measured.moments.mean, KNOWN.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(measured.moments.covariance, np.cov(KNOWN.T, ddof=0), rtol=1e-5, atol=1e-6)


def test_moments_of_several_files_are_those_of_all_their_rows(vectors_in):
    parts = [ROWS[:30], ROWS[30:31], ROWS[31:]]
    measured = moments_of([vectors_in(part, f"{i}.npy") for i, part in enumerate(parts)])
    assert (measured.moments.weight, measured.n_zero_rows, len(measured.sources)) == (N_ROWS - 2, 2, 3)
    np.testing.assert_allclose(measured.moments.covariance, np.cov(KNOWN.T, ddof=0), rtol=1e-5, atol=1e-6)


def test_int8_does_not_overflow(tmp_path):
    rows = np.where(np.random.default_rng(0).random((500, DIM)) < 0.5, -128, 127).astype(np.int8)
    np.save(tmp_path / "v.npy", rows)
    moments = moments_of([open_vectors(tmp_path / "v.npy")]).moments
    np.testing.assert_allclose(moments.scatter, 500 * np.cov(rows.T.astype(float), ddof=0), rtol=1e-6)
    np.testing.assert_array_equal(moments.rounding, np.zeros(DIM))


def test_the_rounding_of_bfloat16_is_kept_though_it_is_read_as_float32(tmp_path):
    bits = (ROWS.view(np.uint32) >> 16).astype(np.uint16)
    header = {"v": {"dtype": "BF16", "shape": bits.shape, "data_offsets": [0, bits.nbytes]}}
    encoded = json.dumps(header).encode()
    (tmp_path / "v.safetensors").write_bytes(len(encoded).to_bytes(8, "little") + encoded + bits.tobytes())
    moments = moments_of([open_vectors(tmp_path / "v.safetensors")]).moments
    values = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    np.testing.assert_allclose(moments.rounding, 2.0**-14 * (values**2).sum(axis=0), rtol=1e-5)


def test_files_of_other_dimensions_are_refused_before_they_are_read(vectors_in):
    first, second = vectors_in(name="a.npy"), vectors_in(ROWS[:, :3], "b.npy")
    with pytest.raises(InputError, match=r"b\.npy: vectors of 3 dimensions, but those of .*a\.npy have 4"):
        moments_of([first, second])


def test_files_of_two_known_spaces_are_refused_naming_both(vectors_in):
    first, second = vectors_in(name="a.npy", space=SPACE), vectors_in(name="b.npy", space=OTHER)
    words = r"b\.npy holds vectors of the space another encoder \(cdcd.*a\.npy belongs to one encoder \(abab"
    with pytest.raises(InputError, match=words):
        moments_of([first, second])


def test_a_file_that_says_nothing_goes_with_one_that_does(vectors_in):
    assert moments_of([vectors_in(name="a.npy"), vectors_in(name="b.npy", space=SPACE)]).space == SPACE


def test_a_row_that_is_not_finite_is_named_as_in_the_file(vectors_in):
    rows = ROWS.copy()
    rows[77, 1] = np.nan
    with pytest.raises(FileFormatError, match=r"v\.npy: row 77 of vectors, counted from 0, holds NaN"):
        moments_of([vectors_in(rows)])


def test_no_file_is_refused():
    with pytest.raises(InputError, match=r"no file is named"):
        moments_of([])


def interrupt(sources, path, after, **settings):
    """Run until a number of blocks is done; the exception comes after the checkpoint of the last one."""
    calls = []

    def progress(done, total):
        calls.append(done)
        if len(calls) > after:  # the first call is at the start
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moments_of(sources, checkpoint=path, progress=progress, **settings)


@pytest.mark.parametrize("after", [1, 2, 3, 4, 6, 10])
def test_an_interrupted_run_goes_on_to_the_same_bits(vectors_in, tmp_path, after, progress):
    sources = [vectors_in(ROWS[:30], "a.npy"), vectors_in(ROWS[30:], "b.parquet")]
    whole = moments_of(sources)
    interrupt(sources, tmp_path / "kept", after)
    before, progress.resumes = [], True
    again = moments_of(sources, checkpoint=tmp_path / "kept", resumed=before.append, progress=progress)
    same_bits(again, whole)
    assert before == [sum(([11, 11, 8] + [11] * 6 + [5])[:after])]
    assert progress.complete() == [N_ROWS]


def test_a_complete_checkpoint_gives_the_result_without_reading(vectors_in, tmp_path, monkeypatch):
    whole = moments_of([vectors_in()], checkpoint=tmp_path / "kept")
    source = open_vectors(tmp_path / "v.npy")
    monkeypatch.setattr(type(source), "blocks", None)
    same_bits(moments_of([source], checkpoint=tmp_path / "kept"), whole)


def test_a_checkpoint_of_other_data_is_refused(vectors_in, tmp_path):
    interrupt([vectors_in()], tmp_path / "kept", 3)
    kept = (tmp_path / "kept").read_bytes()
    words = r"kept is a checkpoint of other data: of .*v\.npy, not .*v\.npy, or a file has changed"
    with pytest.raises(InputError, match=words):
        moments_of([vectors_in(2 * ROWS)], checkpoint=tmp_path / "kept")
    with pytest.raises(InputError, match=r"is a checkpoint of other data"):
        moments_of([vectors_in(), vectors_in(name="w.npy")], checkpoint=tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == kept


def test_a_checkpoint_of_other_settings_is_refused(vectors_in, tmp_path, monkeypatch):
    interrupt([vectors_in()], tmp_path / "kept", 3)
    monkeypatch.setattr(vector_source, "BLOCK_BYTES", 7 * DIM * 4)
    with pytest.raises(InputError, match=r"other settings: .*\[11\].*, not .*'block_rows': \[7\]\}"):
        moments_of([open_vectors(tmp_path / "v.npy")], checkpoint=tmp_path / "kept")


def test_a_checkpoint_follows_data_that_was_moved(vectors_in, tmp_path):
    source = vectors_in()
    whole = moments_of([source])
    interrupt([source], tmp_path / "kept", 3)
    (tmp_path / "v.npy").rename(tmp_path / "w.npy")
    again = moments_of([open_vectors(tmp_path / "w.npy")], checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(again.moments.scatter, whole.moments.scatter)


@pytest.mark.parametrize("content", [b"", b"notes of mine", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_a_file_that_is_no_checkpoint_is_refused_and_left(vectors_in, tmp_path, content):
    (tmp_path / "kept").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"kept (is no checkpoint|is no safetensors)"):
        moments_of([vectors_in()], checkpoint=tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == content


def test_a_truncated_checkpoint_is_refused(vectors_in, tmp_path):
    source = vectors_in()
    interrupt([source], tmp_path / "kept", 3)
    (tmp_path / "kept").write_bytes((tmp_path / "kept").read_bytes()[:-8])
    with pytest.raises(FileFormatError, match=r"kept: damaged"):
        moments_of([source], checkpoint=tmp_path / "kept")


def test_a_checkpoint_in_a_missing_folder_is_refused(vectors_in, tmp_path):
    with pytest.raises(OutputError, match=r"there is no folder"):
        moments_of([vectors_in()], checkpoint=tmp_path / "nowhere" / "kept")


def test_written_moments_are_read_to_the_last_bit(vectors_in, tmp_path):
    measured = moments_of([vectors_in(space=SPACE)])
    write_moments(tmp_path / "m.safetensors", measured)
    assert open_source(tmp_path / "m.safetensors", moments=True).kind == "moments"
    same_bits(read_moments(tmp_path / "m.safetensors"), measured)


def test_radial_moments_of_version_0_1_are_skipped(vectors_in, tmp_path):
    measured = moments_of([vectors_in()])
    write_moments(tmp_path / "m.safetensors", measured)
    with safe_open(tmp_path / "m.safetensors", "numpy") as file:
        metadata = file.metadata()
    tensors = load_file(tmp_path / "m.safetensors") | {"third": np.ones(DIM), "fourth": np.ones(1)}
    (tmp_path / "old.safetensors").write_bytes(tensors_bytes(tensors, metadata))
    same_bits(read_moments(tmp_path / "old.safetensors"), measured)


def test_moments_taken_apart_are_those_of_all(vectors_in, tmp_path):
    for i, part in enumerate((ROWS[:40], ROWS[40:])):
        write_moments(tmp_path / f"{i}.safetensors", moments_of([vectors_in(part, f"{i}.npy")]))
    merged = read_moments(tmp_path / "0.safetensors") + read_moments(tmp_path / "1.safetensors")
    np.testing.assert_allclose(merged.moments.covariance, np.cov(KNOWN.T, ddof=0), rtol=1e-5, atol=1e-6)
    assert (merged.moments.weight, merged.n_zero_rows) == (N_ROWS - 2, 2)


def test_moments_of_other_dimensions_or_spaces_are_not_merged(vectors_in):
    narrow = moments_of([vectors_in(ROWS[:, :2], "narrow.npy")])
    one, two = (moments_of([vectors_in(name=f"{s.reference}.npy", space=s)]) for s in (SPACE, OTHER))
    with pytest.raises(InputError, match=r"narrow\.npy: vectors of 2 dimensions, .* have 4"):
        one + narrow
    with pytest.raises(InputError, match=r"space another encoder \(cdcd.* belongs to one encoder \(abab"):
        one + two


def test_a_file_without_moments_is_refused(tmp_path):
    save_file({"v": ROWS}, tmp_path / "v.safetensors")
    assert open_source(tmp_path / "v.safetensors", moments=True).kind == "vectors"
    with pytest.raises(FileFormatError, match=r"no file of moments of version 1, .*: its format is unknown"):
        read_moments(tmp_path / "v.safetensors")


def test_moments_that_are_not_finite_are_refused(vectors_in, tmp_path):
    measured = moments_of([vectors_in()])
    measured.moments.scatter[0, 0] = np.nan
    write_moments(tmp_path / "m.safetensors", measured)
    with pytest.raises(FileFormatError, match=r"is damaged: a number is not finite"):
        read_moments(tmp_path / "m.safetensors")


@pytest.fixture
def model():
    """Whitening to three dimensions, fitted in memory on vectors without a name."""
    return SentenceEncoder(PrecomputedVectors(DIM)).fitted_on_moments(
        isosent.Moments.from_rows(KNOWN), transform=Whitening(n_components=3)
    )


@pytest.mark.parametrize("output", ["o.npy", "o.fvecs", "o.parquet"])
@pytest.mark.parametrize("name", ["v.npy", "v.fvecs", "v.parquet"])
def test_a_transformed_file_holds_what_the_model_gives(vectors_in, tmp_path, model, name, output, progress):
    n_zero_rows = transform_file(vectors_in(name=name), model.record, tmp_path / output, progress=progress)
    assert (n_zero_rows, progress.complete()) == (2, [N_ROWS])
    source = open_vectors(tmp_path / output)
    assert (source.storage, source.space.fingerprint) == ("float32", model.fingerprint)
    found = np.concatenate(list(source.blocks()))
    np.testing.assert_allclose(found, model.transform(ROWS), rtol=1e-5, atol=1e-6)
    assert not found[[5, 60]].any()


def test_float64_is_calculated_in_float64(tmp_path, model):
    rows = KNOWN + 1e7
    np.save(tmp_path / "v.npy", rows)
    transform_file(open_vectors(tmp_path / "v.npy"), model.record, tmp_path / "o.npy")
    expected = (rows @ model.linear_map.weight + model.linear_map.bias).astype(np.float32)
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), expected)


def test_vectors_of_another_space_are_refused_naming_both(vectors_in, tmp_path):
    encoder = PrecomputedVectors.of_space(DIM, SPACE)
    model = SentenceEncoder(encoder).fitted_on_moments(isosent.Moments.from_rows(KNOWN), transform=Whitening())
    transform_file(vectors_in(space=SPACE), model.record, tmp_path / "o.npy")
    transform_file(vectors_in(), model.record, tmp_path / "o.npy")
    words = r"v\.npy holds vectors of the space another encoder \(cdcd.*the model belongs to one encoder \(abab"
    with pytest.raises(InputError, match=words):
        transform_file(vectors_in(space=OTHER), model.record, tmp_path / "o.npy")


def test_vectors_that_went_through_the_model_are_refused(vectors_in, tmp_path):
    encoder = PrecomputedVectors.of_space(DIM, SPACE)
    model = SentenceEncoder(encoder).fitted_on_moments(isosent.Moments.from_rows(KNOWN), transform=Whitening())
    transform_file(vectors_in(), model.record, tmp_path / "o.npy")
    with pytest.raises(InputError, match=r"o\.npy holds vectors that the model was already applied"):
        transform_file(open_vectors(tmp_path / "o.npy"), model.record, tmp_path / "p.npy")


def test_vectors_of_the_encoder_of_a_text_model_go_through_it(tmp_path, wordllama, texts):
    model = wordllama.fitted(texts, transform=Whitening(8))
    encoded = wordllama.encode(texts[:20])
    write_vectors(tmp_path / "v.npy", encoded, texts[:20], Space(wordllama.fingerprint, "wordllama"))
    transform_file(open_vectors(tmp_path / "v.npy"), model.record, tmp_path / "o.npy")
    np.testing.assert_allclose(np.load(tmp_path / "o.npy"), model.encode(texts[:20]), atol=1e-5)
    assert open_vectors(tmp_path / "o.npy").space == Space(model.fingerprint, "wordllama -> whitening")


def test_vectors_of_other_dimensions_are_refused(vectors_in, tmp_path, model):
    with pytest.raises(InputError, match=r"v\.npy: expected vectors of 4 dimensions, found 3"):
        transform_file(vectors_in(ROWS[:, :3]), model.record, tmp_path / "o.npy")


def test_a_model_that_was_not_fitted_is_refused(vectors_in, tmp_path):
    with pytest.raises(InputError, match=r"vectors is not fitted"):
        transform_file(vectors_in(), SentenceEncoder(PrecomputedVectors(DIM)).record, tmp_path / "o.npy")


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_row_that_is_not_finite_is_named_and_nothing_is_written(vectors_in, tmp_path, model, value):
    rows = ROWS.copy()
    rows[90, 3] = value
    with pytest.raises(FileFormatError, match=r"v\.npy: row 90 of vectors, counted from 0, holds (NaN|infinity)"):
        transform_file(vectors_in(rows), model.record, tmp_path / "o.npy")
    assert not (tmp_path / "o.npy").exists()


def test_numbers_too_large_for_half_precision_are_refused(vectors_in, tmp_path, model):
    rows = ROWS.copy()
    rows[42] = 1e7
    transform_file(vectors_in(), model.record, tmp_path / "o.npy", dtype="float16")
    assert np.load(tmp_path / "o.npy").dtype == np.float16
    with pytest.raises(OutputError, match=r"float16 cannot hold a number in row 42"):
        transform_file(vectors_in(rows), model.record, tmp_path / "p.npy", dtype="float16")


def test_other_columns_come_along_from_table_to_table(tmp_path, model):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), DIM)
    pq.write_table(pa.table({"id": np.arange(N_ROWS), "v": lists}), tmp_path / "v.parquet", row_group_size=13)
    transform_file(open_vectors(tmp_path / "v.parquet"), model.record, tmp_path / "o.parquet")
    found = pq.ParquetFile(tmp_path / "o.parquet").read()
    assert found.column("id").to_pylist() == list(range(N_ROWS))
    np.testing.assert_allclose(np.array(found["v"].to_pylist()), model.transform(ROWS), rtol=1e-5, atol=1e-6)


def test_vectors_are_not_replaced_by_what_becomes_of_them(tmp_path, model):
    np.save(tmp_path / "v.npy", ROWS)
    with pytest.raises(InputError, match="is the file of the vectors"):
        transform_file(open_vectors(tmp_path / "v.npy"), model.record, tmp_path / "v.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), ROWS)


def test_given_vectors_encode_no_texts():
    model = SentenceEncoder(PrecomputedVectors(DIM, {"space": "text-embedding-3-small"}))
    words = r"was fitted on vectors \(text-embedding-3-small\) and cannot encode texts\. .* model\.transform\(vectors\)"
    with pytest.raises(InputError, match=words):
        model.encode(["a text"])


def test_a_space_is_its_name_and_dimensions():
    fingerprints = {
        PrecomputedVectors(dim, options).fingerprint
        for dim in (3, 4)
        for options in (None, {"space": "one"}, {"space": "two"})
    }
    assert len(fingerprints) == 6
    assert PrecomputedVectors(4, {"space": "one"}).fingerprint == PrecomputedVectors(4, {"space": "one"}).fingerprint


def test_a_name_for_vectors_of_a_known_other_space_is_refused():
    with pytest.raises(InputError, match=r"the vectors are in the embedding space one encoder \(abab.*, not my-api"):
        PrecomputedVectors.of_space(DIM, SPACE, "my-api")


@pytest.mark.parametrize(
    "encoder",
    [PrecomputedVectors(DIM), PrecomputedVectors(DIM, {"space": "s"}), PrecomputedVectors.of_space(DIM, SPACE)],
)
def test_a_model_of_vectors_is_saved_and_loaded(tmp_path, encoder):
    model = SentenceEncoder(encoder).fitted_on_moments(isosent.Moments.from_rows(KNOWN), transform=Whitening(3))
    model.save(tmp_path / "model")
    loaded = isosent.load(tmp_path / "model")
    assert loaded.fingerprint == model.fingerprint
    np.testing.assert_array_equal(loaded.transform(ROWS), model.transform(ROWS))


def test_a_model_of_vectors_takes_the_encoder_that_made_them(tmp_path, wordllama, texts):
    space = Space(wordllama.fingerprint, "wordllama")
    moments = isosent.Moments.from_rows(wordllama.encode(texts))
    fitted = SentenceEncoder(PrecomputedVectors.of_space(wordllama.dim, space)).fitted_on_moments(
        moments, transform=Whitening(8)
    )
    fitted.save(tmp_path / "model")
    model = isosent.load(tmp_path / "model", encoder="wordllama")
    assert model.fingerprint == fitted.fingerprint
    np.testing.assert_allclose(
        model.encode(texts), wordllama.fitted(texts, transform=Whitening(8)).encode(texts), atol=1e-4
    )


def test_a_model_of_vectors_takes_no_other_encoder(tmp_path, wordllama, model):
    model.save(tmp_path / "model")
    with pytest.raises(ModelFolderError, match=r"model is not known.* fit them again .*'wordllama'"):
        isosent.load(tmp_path / "model", encoder="wordllama")


@pytest.mark.filterwarnings("error::isosent.errors.MemoryWarning")  # ends it: they take half a second
def test_many_dimensions_are_warned_of(vectors_in):
    with pytest.raises(MemoryWarning, match="covariance of 4,097 dimensions"):
        moments_of([vectors_in(np.ones((2, 4097), np.float32))])
