import json
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from vector_makers import write_vectors

from isosent.errors import FileFormatError, InputError, InputFileError, IsosentWarning
from isosent.io import vector_source
from isosent.io.notes import note_path, older_entry, write_note
from isosent.io.typed_tables import OtherColumns
from isosent.io.vectors import (
    check_vector_file,
    holds_vectors,
    open_vectors,
    writing_vectors,
)
from isosent.space import Space

N_ROWS, DIM = 57, 5
ROWS = np.random.default_rng(0).normal(size=(N_ROWS, DIM)).astype(np.float32)
SPACE = Space("ab" * 32, "an encoder")
DTYPES = ["float16", "float32", "float64", "int8", "uint8"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Seven rows of float32 a block, so that every file has several and the last one is short."""
    monkeypatch.setattr(vector_source, "BLOCK_BYTES", 7 * DIM * 4)
    monkeypatch.setattr(vector_source, "BLOCK_ROWS_A_DIM", 0)


def rows_as(dtype):
    return (np.abs(ROWS) * 20).astype(dtype) if np.dtype(dtype).kind == "u" else (ROWS * 20).astype(dtype)


def read(path, **settings):
    return np.concatenate(list(open_vectors(path, **settings).blocks()))


def write_vecs(path, rows, dims=None):
    records = np.empty(len(rows), [("dim", "<i4"), ("values", rows.dtype, (rows.shape[1],))])
    records["dim"] = rows.shape[1] if dims is None else dims
    records["values"] = rows
    records.tofile(path)
    return path


def list_array(rows, kind):
    flat = pa.array(rows.ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def write_table(path, columns, **settings):
    try:
        pq.write_table(pa.table(columns), path, **settings)
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow cannot write such a column")
    return path


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_of_numpy_is_read(tmp_path, dtype, order):
    rows = rows_as(dtype)
    np.save(tmp_path / "v.npy", np.asarray(rows, order=order))
    source = open_vectors(tmp_path / "v.npy")
    assert (source.n_rows, source.dim, source.storage) == (N_ROWS, DIM, dtype)
    found = read(tmp_path / "v.npy")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path, version):
    with (tmp_path / "v.npy").open("wb") as file:
        np.lib.format.write_array(file, ROWS, version=version)
    np.testing.assert_array_equal(read(tmp_path / "v.npy"), ROWS)


def test_an_array_of_the_other_byte_order_is_read_in_that_of_the_machine(tmp_path):
    np.save(tmp_path / "v.npy", ROWS.astype(">f8"))
    found = read(tmp_path / "v.npy")
    assert found.dtype == np.float64
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, ROWS.astype(np.float64))


def bfloat16_bits(rows):
    """Cut float32 to its upper half: bfloat16, rounded to zero."""
    return (rows.view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_and_its_neighbors_have_the_values_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch_file

    tensor = torch.from_numpy(ROWS.copy()).to(torch.bfloat16)
    save_torch_file({"v": tensor}, tmp_path / "v.safetensors")
    source = open_vectors(tmp_path / "v.safetensors")
    assert source.storage == "bfloat16"
    np.testing.assert_array_equal(read(tmp_path / "v.safetensors"), tensor.float().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_that_of_numpy(tmp_path, dtype):
    np.save(tmp_path / "v.npy", rows_as(dtype))
    expected = np.finfo(dtype).eps if np.dtype(dtype).kind == "f" else 0.0
    assert open_vectors(tmp_path / "v.npy").storage.eps == expected


@pytest.mark.parametrize(("ending", "dtype"), [(".fvecs", np.float32), (".bvecs", np.uint8)])
def test_vecs_are_read(tmp_path, ending, dtype):
    path = write_vecs(tmp_path / f"v{ending}", rows_as(dtype))
    assert open_vectors(path).storage == np.dtype(dtype).name
    np.testing.assert_array_equal(read(path), rows_as(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_matrix_of_a_safetensors_file_is_read(tmp_path, dtype):
    save_file({"v": rows_as(dtype), "ids": np.arange(3)}, tmp_path / "v.safetensors")
    np.testing.assert_array_equal(read(tmp_path / "v.safetensors"), rows_as(dtype))


def test_several_matrices_need_a_name(tmp_path):
    save_file({"a": ROWS, "b": 2 * ROWS}, tmp_path / "v.safetensors")
    with pytest.raises(InputError, match=r"has 2 2-D tensors \(a, b\)\. Choose one: column='NAME'"):
        open_vectors(tmp_path / "v.safetensors")
    np.testing.assert_array_equal(read(tmp_path / "v.safetensors", column="b"), 2 * ROWS)
    with pytest.raises(InputError, match=r"has no tensor c; it has: a, b"):
        open_vectors(tmp_path / "v.safetensors", column="c")


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_of_lists_is_read_across_row_groups(tmp_path, kind, dtype):
    columns = {"id": np.arange(N_ROWS), "v": list_array(rows_as(dtype), kind)}
    path = write_table(tmp_path / "v.parquet", columns, row_group_size=11)
    source = open_vectors(path)
    assert (source.n_rows, source.dim, source.storage, source.column) == (N_ROWS, DIM, dtype, "v")
    assert {len(block) for block in list(source.blocks())[:-1]} == {source.block_rows}
    np.testing.assert_array_equal(read(path), rows_as(dtype))


def every_format(folder):
    np.save(folder / "v.npy", ROWS)
    np.save(folder / "f.npy", np.asfortranarray(ROWS))
    write_vecs(folder / "v.fvecs", ROWS)
    save_file({"v": ROWS}, folder / "v.safetensors")
    write_table(folder / "v.parquet", {"v": list_array(ROWS, "fixed")}, row_group_size=10)
    return [folder / name for name in ("v.npy", "f.npy", "v.fvecs", "v.safetensors", "v.parquet")]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("start_row", [0, 7, 14, 20, 56, 57])
def test_blocks_start_at_any_row(tmp_path, number, start_row):
    source = open_vectors(every_format(tmp_path)[number])
    found = [np.empty((0, DIM)), *source.blocks(start_row)]
    np.testing.assert_array_equal(np.concatenate(found), ROWS[start_row:])


@pytest.mark.parametrize("number", range(5))
def test_reading_needs_memory_for_a_few_blocks_only(tmp_path, number, monkeypatch):
    rows = np.zeros((20_000, 64), np.float32)
    monkeypatch.setattr(f"{__name__}.ROWS", rows)
    monkeypatch.setattr(vector_source, "BLOCK_BYTES", 1 << 18)
    source = open_vectors(every_format(tmp_path)[number])
    tracemalloc.start()
    n_rows = sum(len(block) for block in source.blocks())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_rows == 20_000
    assert peak < rows.nbytes / 8


def test_an_empty_array_has_no_blocks(tmp_path):
    np.save(tmp_path / "v.npy", np.empty((0, 3), np.float32))
    source = open_vectors(tmp_path / "v.npy")
    assert (source.n_rows, list(source.blocks())) == (0, [])


@pytest.mark.parametrize(
    "header",
    ["{'descr': '<f4', 'shape': (3, 2), ", "'''", "{'descr': (), 'fortran_order': False, 'shape': (3, 2)}", "1 2"],
)
def test_a_damaged_header_is_refused_whatever_numpy_raises(tmp_path, header):
    content = header.encode()
    (tmp_path / "v.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(content)) + content + bytes(24))
    with pytest.raises(FileFormatError, match="header is damaged"):
        open_vectors(tmp_path / "v.npy")


def test_a_header_that_promises_gigabytes_is_not_read(tmp_path):
    (tmp_path / "v.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(8 << 20))
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="header is damaged"):
        open_vectors(tmp_path / "v.npy")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_pickled_objects_are_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"holds pickled objects, which are not read"):
        open_vectors(tmp_path / "v.npy")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(3, np.float32), r"has the shape \(3,\)"),
        (np.zeros((3, 0), np.float32), r"shape \(3, 0\)"),
        (np.zeros((3, 2), np.int64), r"holds int64\. Convert it to float16, .*uint8, with astype"),
        (np.zeros((3, 2), np.complex64), r"holds complex64"),
        (np.array([["a", "b"]]), r"holds <U1"),
        (np.zeros((3, 2), [("a", "<f4")]), r"holds \[\('a', '<f4'\)\]"),
    ],
)
def test_an_array_of_another_kind_is_refused(tmp_path, array, words):
    np.save(tmp_path / "v.npy", array)
    with pytest.raises(FileFormatError, match=words):
        open_vectors(tmp_path / "v.npy")


def test_a_tensor_of_another_type_is_refused_in_one_line(tmp_path):
    header = json.dumps({"v": {"dtype": "\n", "shape": [1, 2], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "v.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(FileFormatError, match=r"tensor v holds '\\n'\. Expected F16, "):
        open_vectors(tmp_path / "v.safetensors")


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_truncated_file_is_refused(tmp_path, number):
    path = every_format(tmp_path)[number]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FileFormatError, match=r"is truncated: its header says \d+ bytes, and it has \d+"):
        open_vectors(path)


@pytest.mark.parametrize("n_bytes", [1, 7, 9, 40])
@pytest.mark.parametrize("number", range(5))
def test_a_file_cut_in_its_header_is_refused(tmp_path, number, n_bytes):
    path = every_format(tmp_path)[number]
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(FileFormatError, match=str(path.name)):
        open_vectors(path)


@pytest.mark.parametrize("ending", [".npy", ".fvecs", ".bvecs", ".safetensors", ".parquet"])
@pytest.mark.parametrize("content", [b"\x00" * 64, b"\xff" * 64, b"id,text\n1,a\n" * 9, b"\x93NUMPY\x01\x00\xff\xff{}"])
def test_a_file_of_something_else_is_refused(tmp_path, ending, content):
    (tmp_path / f"v{ending}").write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"v\{ending}"):
        list(open_vectors(tmp_path / f"v{ending}").blocks())


def test_a_truncated_row_of_fvecs_is_named(tmp_path):
    path = write_vecs(tmp_path / "v.fvecs", ROWS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match=rf"row {N_ROWS - 1} is truncated"):
        open_vectors(path)


def test_a_row_of_fvecs_with_other_dimensions_is_named(tmp_path):
    dims = np.full(N_ROWS, DIM)
    dims[31] = 4
    path = write_vecs(tmp_path / "v.fvecs", ROWS, dims)
    with pytest.raises(FileFormatError, match=r"row 31, counted from 0, has 4 dimensions, and the first has 5"):
        list(open_vectors(path).blocks())


def test_a_shorter_row_of_fvecs_is_named(tmp_path):
    rows = [struct.pack("<i3f", 3, 1, 2, 3)] * 4 + [struct.pack("<i2f", 2, 1, 2)] + [struct.pack("<i3f", 3, 1, 2, 3)]
    (tmp_path / "v.fvecs").write_bytes(b"".join(rows))
    with pytest.raises(FileFormatError, match=r"row 4, counted from 0, has 2 dimensions, and the first has 3"):
        open_vectors(tmp_path / "v.fvecs")


def test_a_ragged_list_names_its_row(tmp_path):
    lists = [list(map(float, row)) for row in ROWS]
    lists[23] = lists[23][:2]
    path = write_table(tmp_path / "v.parquet", {"v": lists}, row_group_size=10)
    with pytest.raises(FileFormatError, match=r"row 23 of v, counted from 0, has 2 dimensions, and the first has 5"):
        list(open_vectors(path).blocks())


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), DIM)])
@pytest.mark.parametrize(("null", "words"), [(None, "a vector"), ([1.0, None, 2.0, 3.0, 4.0], "a number")])
def test_a_null_names_its_row(tmp_path, kind, null, words):
    lists = [list(map(float, row)) for row in ROWS]
    lists[41] = null
    path = write_table(tmp_path / "v.parquet", {"v": pa.array(lists, kind)}, row_group_size=10)
    with pytest.raises(FileFormatError, match=rf"column v lacks {words} in row 41"):
        list(open_vectors(path).blocks())


def test_a_corrupt_row_group_is_named(tmp_path):
    path = write_table(
        tmp_path / "v.parquet",
        {"v": list_array(ROWS, "list")},
        row_group_size=20,
        compression="zstd",
        use_dictionary=False,
    )
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    start = chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"row group 1 \(rows 20 to 39\), is not a readable"):
        list(open_vectors(path).blocks())


def test_a_flipped_bit_in_our_own_table_is_found(tmp_path):
    write_vectors(tmp_path / "v.parquet", ROWS, ["a"] * N_ROWS)
    chunk = pq.ParquetFile(tmp_path / "v.parquet").metadata.row_group(0).column(1)
    content = bytearray((tmp_path / "v.parquet").read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 9] ^= 1
    (tmp_path / "v.parquet").write_bytes(content)
    with pytest.raises(FileFormatError, match="damaged"):
        list(open_vectors(tmp_path / "v.parquet").blocks())


def test_several_columns_of_vectors_need_a_name(tmp_path):
    columns = {"id": np.arange(N_ROWS), "a": list_array(ROWS, "list"), "b": list_array(2 * ROWS, "fixed")}
    path = write_table(tmp_path / "v.parquet", columns)
    with pytest.raises(InputError, match=r"has 2 columns of vectors \(a, b\)\. Choose one: column='NAME'"):
        open_vectors(path)
    np.testing.assert_array_equal(read(path, column="b"), 2 * ROWS)


def test_columns_that_are_no_vectors_are_refused_with_what_there_is(tmp_path):
    path = write_table(tmp_path / "v.parquet", {"id": np.arange(2), "text": ["a", "b"]})
    with pytest.raises(FileFormatError, match=r"has no column of vectors, .* it has: id \(int64\), text \(string\)"):
        open_vectors(path)
    with pytest.raises(InputError, match=r"column text holds no vectors: its type is string"):
        open_vectors(path, column="text")
    with pytest.raises(InputError, match=r"has no column vector; it has: id \(int64\), text \(string\)"):
        open_vectors(path, column="vector")


def test_a_table_without_rows_is_refused(tmp_path):
    path = write_table(tmp_path / "v.parquet", {"v": pa.array([], pa.list_(pa.float32()))})
    with pytest.raises(FileFormatError, match=r"holds no vectors"):
        open_vectors(path)


@pytest.mark.parametrize("name", ["v.npy", "v.fvecs"])
def test_a_format_without_names_takes_no_column(tmp_path, name):
    every_format(tmp_path)
    with pytest.raises(InputError, match=r"has no columns, so there is no 'v'\. Leave it out"):
        open_vectors(tmp_path / name, column="v")


def test_an_unknown_ending_is_refused(tmp_path):
    for name, message in (
        ("v.csv", r"no column of vectors.* it has: PK"),
        ("v.vec", r"ends in \.npy, \.fvecs, \.bvecs, .*\.safetensors, .*\.jsonl, \.json, \.parquet"),
        ("v.npz", "archive of arrays"),
        ("v.npy", "is not an array saved by numpy"),
    ):
        (tmp_path / name).write_bytes(b"PK")
        with pytest.raises(InputError, match=message):
            open_vectors(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"no such file"):
        open_vectors(tmp_path / "v.npy")


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_a_number_that_is_not_finite_names_its_row_in_the_file(tmp_path, value, word):
    rows = ROWS.copy()
    rows[33, 2] = value
    np.save(tmp_path / "v.npy", rows)
    source = open_vectors(tmp_path / "v.npy")
    with pytest.raises(FileFormatError, match=rf"v\.npy: row 33 of vectors, counted from 0, holds {word}"):
        source.check_finite(next(source.blocks(28)), 28)


def test_texts_and_vectors_are_told_apart(tmp_path):
    every_format(tmp_path)
    write_table(tmp_path / "texts.parquet", {"text": ["a"]})
    both = write_table(tmp_path / "both.parquet", {"text": ["a"], "v": list_array(ROWS[:1], "list")})
    assert all(holds_vectors(path) for path in every_format(tmp_path))
    assert not holds_vectors(tmp_path / "texts.parquet")
    assert not holds_vectors("texts.txt")
    assert not holds_vectors("-")
    assert holds_vectors(both, column="v")
    assert not holds_vectors(both, column="text")
    with pytest.warns(IsosentWarning, match="column v are used; its texts or labels in text"):
        assert holds_vectors(both)


@pytest.mark.parametrize("name", ["v.npy", "v.fvecs", "v.parquet"])
def test_what_is_written_is_read_again_with_its_space(tmp_path, name):
    write_vectors(tmp_path / name, ROWS, ["a"] * N_ROWS, SPACE)
    source = open_vectors(tmp_path / name)
    assert (source.space, source.n_rows, source.dim) == (SPACE, N_ROWS, DIM)
    np.testing.assert_array_equal(read(tmp_path / name), ROWS)


def test_fvecs_are_written_as_others_read_them(tmp_path):
    write_vectors(tmp_path / "v.fvecs", ROWS, ["a"] * N_ROWS)
    words = np.fromfile(tmp_path / "v.fvecs", "<i4").reshape(N_ROWS, DIM + 1)
    assert set(words[:, 0]) == {DIM}
    np.testing.assert_array_equal(words[:, 1:].copy().view("<f4"), ROWS)


def test_half_precision_is_written(tmp_path):
    with writing_vectors(tmp_path / "v.npy", (N_ROWS, DIM), dtype="float16") as write:
        write(ROWS)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), ROWS.astype(np.float16))
    with pytest.raises(InputError, match=r"a \.fvecs file holds float32, not float16"):
        check_vector_file(tmp_path / "v.fvecs", "float16")
    with pytest.raises(InputError, match=r"no dtype 'int8'. Choose one of float32, float16"):
        check_vector_file(tmp_path / "v.npy", "int8")


def test_the_other_columns_of_a_table_come_along_where_they_stood(tmp_path):
    columns = {"id": np.arange(N_ROWS), "v": list_array(ROWS, "list"), "text": [f"text {i}" for i in range(N_ROWS)]}
    table = pa.table(columns).replace_schema_metadata({"pandas": "{}", "huggingface": "{}"})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=13)
    source = open_vectors(tmp_path / "in.parquet")
    other_columns = OtherColumns.of_file(source.path, str(source.column), n_rows=source.block_rows, state=source.state)
    with writing_vectors(tmp_path / "out.parquet", (N_ROWS, 2), space=SPACE, other_columns=other_columns) as write:
        for block in source.blocks():
            write(block[:, :2])
    found = pq.ParquetFile(tmp_path / "out.parquet").read()
    assert found.column_names == ["id", "v", "text"]
    assert found.drop_columns("v").equals(table.drop_columns("v"))
    np.testing.assert_array_equal(np.array(found["v"].to_pylist(), np.float32), ROWS[:, :2])
    assert found.schema.metadata == {
        b"pandas": b"{}",
        b"isosent.fingerprint": SPACE.fingerprint.encode(),
        b"isosent.reference": b"an encoder",
    }


@pytest.mark.parametrize("name", ["v.npy", "v.fvecs", "v.parquet"])
def test_a_failing_writer_leaves_the_old_file_and_its_note(tmp_path, name):
    write_vectors(tmp_path / name, ROWS, ["a"] * N_ROWS, SPACE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with (  # noqa: PT012
        pytest.raises(RuntimeError, match="mine"),
        writing_vectors(tmp_path / name, (2, DIM), space=Space("cd" * 32, "other")) as write,
    ):
        write(ROWS[:1])
        raise RuntimeError("mine")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_vectors_without_a_space_replace_the_note_of_older_ones(tmp_path):
    write_vectors(tmp_path / "v.npy", ROWS, ["a"] * N_ROWS, SPACE)
    write_vectors(tmp_path / "v.npy", 2 * ROWS, ["a"] * N_ROWS)
    assert open_vectors(tmp_path / "v.npy").space is None


@pytest.mark.parametrize("rows", [ROWS[:-1], ROWS.T.copy(), 2 * ROWS])
def test_a_note_about_other_content_is_refused(tmp_path, rows):
    write_vectors(tmp_path / "v.npy", ROWS, ["a"] * N_ROWS, SPACE)
    np.save(tmp_path / "v.npy", rows)
    with pytest.raises(FileFormatError, match=r"isosent\.json describes other content than v\.npy"):
        open_vectors(tmp_path / "v.npy")


def test_an_array_that_was_renamed_over_an_old_one_is_not_paired_with_its_note(tmp_path, monkeypatch):
    write_vectors(tmp_path / "v.npy", ROWS, ["a"] * N_ROWS, SPACE)
    note = note_path(tmp_path / "v.npy").read_bytes()
    write_vectors(tmp_path / "v.npy", 2 * ROWS, ["a"] * N_ROWS, Space("cd" * 32, "other"))
    note_path(tmp_path / "v.npy").write_bytes(note)
    with pytest.raises(FileFormatError, match=r"describes other content"):
        open_vectors(tmp_path / "v.npy")


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", '{"fingerprint": "x"}'])
def test_a_damaged_note_is_refused(tmp_path, content):
    np.save(tmp_path / "v.npy", ROWS)
    note_path(tmp_path / "v.npy").write_text(content)
    with pytest.raises(FileFormatError, match=r"v\.npy\.isosent\.json: "):
        open_vectors(tmp_path / "v.npy")


def test_the_note_says_what_lies_beside_it(tmp_path):
    write_vectors(tmp_path / "v.npy", ROWS, ["a"] * N_ROWS, SPACE)
    [note] = json.loads(note_path(tmp_path / "v.npy").read_text())["files"]
    assert (note["shape"], note["dtype"], note["fingerprint"], note["reference"]) == (
        [N_ROWS, DIM],
        "float32",
        SPACE.fingerprint,
        SPACE.reference,
    )


def test_a_note_describes_the_file_that_is_about_to_be_replaced(tmp_path):
    with writing_vectors(tmp_path / "v.npy", ROWS.shape, space=SPACE) as write:
        write(ROWS)
    entry = older_entry(tmp_path / "v.npy")
    write_note(tmp_path / "v.npy", entry | {"size_bytes": 1}, entry)
    assert open_vectors(tmp_path / "v.npy").space == SPACE


@pytest.mark.parametrize("note", ["{", '{"format": "isosent-vectors", "format_version": 99}'])
def test_a_damaged_note_is_replaced_with_its_array(tmp_path, note):
    np.save(tmp_path / "v.npy", ROWS)
    note_path(tmp_path / "v.npy").write_text(note)
    write_vectors(tmp_path / "v.npy", 2 * ROWS, ["a"] * N_ROWS, SPACE)
    assert open_vectors(tmp_path / "v.npy").space == SPACE


def test_the_note_lies_beside_the_file_that_a_link_leads_to(tmp_path):
    write_vectors(tmp_path / "v.npy", ROWS, ["a"] * N_ROWS)
    (tmp_path / "latest.npy").symlink_to(tmp_path / "v.npy")
    write_vectors(tmp_path / "latest.npy", 2 * ROWS, ["a"] * N_ROWS, SPACE)
    for name in ("v.npy", "latest.npy"):
        assert open_vectors(tmp_path / name).space == SPACE
    assert (tmp_path / "latest.npy").is_symlink()


def test_identity_follows_the_content_and_not_the_name(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    before = open_vectors(tmp_path / "v.npy").identity
    (tmp_path / "v.npy").rename(tmp_path / "w.npy")
    assert open_vectors(tmp_path / "w.npy").identity == before
    rows = ROWS.copy()
    rows[30, 1] += 1
    np.save(tmp_path / "w.npy", rows)
    assert open_vectors(tmp_path / "w.npy").identity != before


@pytest.mark.parametrize("n_times", [1, 400], ids=["one piece of the file", "several"])
@pytest.mark.parametrize("name", ["v.json", "v.jsonl"])
def test_lists_in_json_are_vectors(tmp_path, name, n_times):
    rows = ROWS.tolist() * n_times
    text = json.dumps(rows, indent=1) if name == "v.json" else "\n".join(map(json.dumps, rows)) + "\n\n"
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    source = open_vectors(tmp_path / name)
    assert holds_vectors(tmp_path / name)
    assert (source.n_rows, source.dim, source.storage) == (N_ROWS * n_times, DIM, "float32")
    np.testing.assert_array_equal(read(tmp_path / name), np.tile(ROWS, (n_times, 1)))
    np.testing.assert_array_equal(next(source.part(20, 9).blocks(3)), ROWS[23:29])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("v.json", "[[1, 2], [3, 4]", "truncated"),
        ("v.json", "[[1, 2], [3, ", "truncated"),
        ("v.json", "[[1, 2],, [3, 4]]", "row 1, counted from 0"),
        ("v.json", "[[1, 2], [3, 4]] []", "row 2"),
        ("v.json", "[[1, 2], [3]]", "row 1, counted from 0, has 1 numbers"),
        ("v.json", '[[1, 2], ["a", 4]]', "row 1"),
        ("v.json", "[[1, 2], [[3, 4]]]", "truncated"),
        ("v.json", "[[1, NaN]]", "row 0"),
        ("v.json", "[[]]", "shape \\(1, 0\\)"),
        ("v.json", "[]", "no rows"),
        ("v.jsonl", "[1, 2] [3, 4]\n", "row 1"),
        ("v.jsonl", "[1, 2]\n[3, 4\n", "truncated"),
        ("v.jsonl", "[1, 2]\n{}\n", "truncated"),
    ],
)
def test_lists_that_are_no_vectors_are_refused_with_their_row(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read(tmp_path / name)


def test_objects_in_json_are_texts(tmp_path):
    (tmp_path / "t.json").write_text('[{"text": "a"}]')
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n')
    assert not holds_vectors(tmp_path / "t.json")
    assert not holds_vectors(tmp_path / "t.jsonl")
