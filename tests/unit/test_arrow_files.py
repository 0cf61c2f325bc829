"""Tables of Arrow: files and streams of pyarrow, pandas and polars, and data sets of Hugging Face on disk."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from isosent.errors import FileFormatError, InputError
from isosent.io.arrow import ArrowTable
from isosent.io.columns import unused_vectors
from isosent.io.source import open_source
from isosent.io.tables import open_table
from isosent.io.texts import read_texts
from isosent.io.vectors import open_vectors
from isosent.search.index import Index
from isosent.search.inputs import opened_rows

ROWS = np.random.default_rng(0).normal(size=(900, 6)).astype(np.float32)
TEXTS = [f"text number {n}" for n in range(900)]
KINDS = pa.array(["one", "two", None] * 300)
ZSTD = ipc.IpcWriteOptions(compression="zstd")
OLD = ipc.IpcWriteOptions(use_legacy_format=True)  # of versions before 0.15

pytestmark = pytest.mark.filterwarnings("ignore:.*are not encoded")


def table(vectors=None):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 6) if vectors is None else vectors
    return pa.table({"text": TEXTS, "embedding": vectors, "kind": KINDS.dictionary_encode()})


def write(path, rows, options=None, is_stream=False):
    make = ipc.new_stream if is_stream else ipc.new_file
    with make(path, rows.schema, options=options) as file:
        file.write_table(rows, 200)
    return path


WRITERS = {
    "file.arrow": write,
    "zstd.arrow": lambda path, rows: write(path, rows, ZSTD),
    "stream.arrows": lambda path, rows: write(path, rows, is_stream=True),
    "stream.arrow": lambda path, rows: write(path, rows, ZSTD, is_stream=True),
    "old.arrow": lambda path, rows: write(path, rows, OLD),
    "old.arrows": lambda path, rows: write(path, rows, OLD, is_stream=True),
    "padded.arrows": lambda path, rows: path.write_bytes(write(path, rows, is_stream=True).read_bytes() + bytes(4)),
    "lz4.feather": lambda path, rows: pyarrow.feather.write_feather(rows, path),
    "polars.arrow": lambda path, rows: pl.from_arrow(rows).write_ipc(path, compression="zstd"),
    "polars.arrows": lambda path, rows: pl.from_arrow(rows).write_ipc_stream(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_vectors_texts_and_labels_are_read_from_any_row(tmp_path, name):
    WRITERS[name](tmp_path / name, table())
    source = open_source(tmp_path / name)
    assert (source.n_rows, source.dim, source.storage, source.column) == (900, 6, "float32", "embedding")
    for start in (0, 399, 899):
        np.testing.assert_array_equal(np.concatenate(list(source.read(start, 100))), ROWS[start:])
    assert source.labels("kind", 500, 3) == KINDS[500:503].to_pylist()
    assert read_texts(tmp_path / name, column="text") == TEXTS
    assert open_source(tmp_path / name, column="text").kind == "texts"


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8"])
@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 6)])
def test_lists_have_the_dtype_of_their_numbers(tmp_path, make, dtype):
    rows = (ROWS * 20).astype(dtype)
    lists = pa.array(list(rows), make(pa.from_numpy_dtype(rows.dtype)))
    source = open_vectors(write(tmp_path / "a.arrow", table(lists)))
    assert source.storage == dtype
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), rows)


def test_a_feather_file_of_pandas_is_read_in_float64(tmp_path):
    pd.DataFrame({"text": TEXTS, "embedding": list(ROWS.astype(float))}).to_feather(tmp_path / "a.feather")
    source = open_vectors(tmp_path / "a.feather")
    assert source.storage == "float64"
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0, 2, 3], None], "lacks a vector in row 1"),
        ([[1.0, 2, 3], [1, 2, None]], "lacks a number in row 1"),
        ([[1.0, 2, 3], [1, 2]], "row 1 of embedding.* 2 dimensions"),
    ],
)
def test_a_row_that_is_no_vector_is_named(tmp_path, values, words):
    path = write(tmp_path / "a.arrow", pa.table({"embedding": pa.array(values, pa.list_(pa.float32()))}))
    with pytest.raises(FileFormatError, match=words):
        list(open_vectors(path).blocks())


def zeros(path):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(17 << 20, np.float32)), 64)
    rows = pa.table({"embedding": lists})
    with ipc.new_file(path, rows.schema, options=ZSTD) as file:
        file.write_table(rows)


def npy(path):
    np.save(path.with_suffix(".npy"), ROWS)
    path.with_suffix(".npy").rename(path)


def read_all(path):
    source = open_source(path)
    return list(source.blocks()) if source.kind == "vectors" else source.texts()


def of_type(kind, values):
    return lambda path: write(path, pa.table({"text": pa.array(values, kind)}))


def cut(n_bytes, **settings):
    def make(path):
        write(path, table(), **settings)
        path.write_bytes(path.read_bytes()[:-n_bytes])

    return make


def killed(path):
    """What a writer leaves behind that was ended before it could close its stream."""
    with path.open("wb") as file, ipc.new_stream(file, table().schema) as stream:
        stream.write_table(table()[:400], 200)
        file.flush()
        content = path.read_bytes()
    path.write_bytes(content)


def without_end(path):
    """A stream of a version before 0.15, without the four zeros of its end, which its last batch has as padding."""
    write(path, pa.table({"number": pa.array([0], pa.int8())}), OLD, is_stream=True)
    content = path.read_bytes()
    assert content.endswith(bytes(8))
    path.write_bytes(content[:-4])


def doubled(**settings):
    def make(path):
        """Two tables, one after the other, of which pyarrow reads the first."""
        content = write(path, table(), **settings).read_bytes()
        path.write_bytes(2 * content)

    return make


def shorter_batch(path):
    """The first batch says that it has more rows than its columns."""
    write(path, table())
    content = path.read_bytes()
    path.write_bytes(content.replace((200).to_bytes(8, "little"), (201).to_bytes(8, "little")))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (zeros, "unpacks to"),
        (cut(3), "truncated"),
        (cut(20_000), "truncated"),
        (cut(9, is_stream=True), "truncated|not a readable table"),
        (cut(5000, is_stream=True), "truncated|not a readable table"),
        (killed, "truncated"),
        (without_end, "truncated"),
        (cut(8, is_stream=True), "not closed"),
        (cut(5, is_stream=True), "truncated|not a readable table"),
        (doubled(is_stream=True), "follow"),
        (doubled(options=OLD, is_stream=True), "follow"),
        (doubled(), "follow"),
        (shorter_batch, "not a readable table|damaged"),
        (npy, r"Rename it to end in \.npy"),
        (lambda path: pyarrow.feather.write_feather(table().select(["text"]), path, version=1), "first version"),
        (of_type(pa.run_end_encoded(pa.int32(), pa.string()), ["a"] * 9), "run_end_encoded"),
        (of_type(pa.list_view(pa.string()), [["a"]]), "list_view"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, make, words):
    make(tmp_path / "a.arrow")
    with pytest.raises(FileFormatError, match=words) as caught:
        read_all(tmp_path / "a.arrow")
    assert "a.arrow" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_unpacks_too_far_is_refused_unread(tmp_path, monkeypatch):
    zeros(tmp_path / "a.arrow")
    monkeypatch.setattr("isosent.io.arrow.ArrowTable._at_once", None)  # the first that looks at a batch
    with pytest.raises(FileFormatError, match="unpacks to"):
        open_source(tmp_path / "a.arrow")


def test_a_long_text_that_many_rows_share_is_read_a_few_rows_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("isosent.io.arrow.BATCH_TEXT_BYTES", 1 << 16)
    text = "x" * 9000
    for kind in (pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        rows = pa.table({"text": pa.array([text, "y"] * 300).cast(kind)})
        assert read_texts(write(tmp_path / "a.arrow", rows)) == [text, "y"] * 300
        sizes = [len(batch) for batch in ArrowTable("a", tmp_path / "a.arrow").batches(["text"])]
        assert (max(sizes), sum(sizes)) == ((1 << 16) // len(text), 600)


@pytest.mark.parametrize(
    "values", [[3, 1, 3], [True, False, True], list(pd.to_datetime(["2020-01-01"] * 3)), [None] * 3]
)
def test_categories_that_are_no_texts_stand_beside_texts(tmp_path, values):
    frame = pd.DataFrame({"text": TEXTS[:3], "kind": pd.Categorical(values)})
    frame.to_feather(tmp_path / "a.feather")
    assert read_texts(tmp_path / "a.feather", column="text") == TEXTS[:3]
    with open_table(tmp_path / "a.feather") as opened:
        assert len(list(opened.rows(optional=["text", "kind"]))) == 3


def numbered(values):
    """Lists or structs that rows name by their number."""
    return lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), pa.array(values))


UNUSUAL = {
    "binary": lambda: pa.array([b"a", b"b", None, b"d"], pa.binary_view()),
    "list": lambda: pa.array([[1.5], [2.5, 3], None, []], pa.list_view(pa.float32())),
    "large": lambda: pa.array([["a"], ["b", "c"], None, []], pa.large_list_view(pa.string_view())),
    "nested": lambda: pa.array([{"a": ["x"]}, None, {"a": ["y"]}, {}], pa.struct({"a": pa.list_(pa.string_view())})),
    "map": lambda: pa.array([[("a", "b")], None, [], []], pa.map_(pa.string(), pa.string_view())),
    "lists by number": numbered([["a", "b"], ["c"]]),
    "structs by number": numbered([{"a": "x"}, {"a": "y"}]),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("ending", [".parquet", ".arrow", ""])
def test_types_that_pyarrow_cannot_take_from_are_columns_of_an_index(tmp_path, name, ending):
    if name in {".arrow": ("list", "large"), ".parquet": ("lists by number", "structs by number")}.get(ending, ()):
        pytest.skip("refused, or not written by pyarrow")
    other, path = UNUSUAL[name](), tmp_path / f"a{ending}"
    metadata = pa.table({"other": other})
    if ending:
        rows = metadata.append_column("embedding", pa.array(ROWS[:4].tolist()))
        (pq.write_table if ending == ".parquet" else pyarrow.feather.write_feather)(rows, path)
        metadata = opened_rows(str(path)).read().metadata
    index = Index.create(vectors=ROWS[:4], metadata=metadata)
    assert [index.rows([row])["other"][0].as_py() for row in range(4)] == other.to_pylist()


@pytest.mark.parametrize("start", [0, 7, 899])
def test_views_of_lists_in_parquet_are_vectors(tmp_path, start):
    pq.write_table(pa.table({"embedding": pa.array(ROWS.tolist(), pa.list_view(pa.float32()))}), tmp_path / "a.parquet")
    source = open_vectors(tmp_path / "a.parquet")
    np.testing.assert_array_equal(np.concatenate(list(source.read(start, 100))), ROWS[start:])


@pytest.mark.parametrize("is_category", [False, True])
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_texts_that_are_no_utf8_are_refused_with_their_rows(tmp_path, ending, is_category):
    texts = [text.encode() for text in TEXTS[:60]]
    texts[40] = "caf\xe9".encode("latin-1")
    column = pa.array(texts).view(pa.string())
    rows = pa.table({"id": range(60), "text": column.dictionary_encode() if is_category else column})
    (pq.write_table if ending == ".parquet" else pyarrow.feather.write_feather)(rows, tmp_path / f"a{ending}")
    for read in (open_source, read_texts):
        with pytest.raises(FileFormatError, match=f"a{ending}, rows 0 to 59.*UTF"):
            read(tmp_path / f"a{ending}")


# -- data sets of Hugging Face -----------------------------------------------------------------------------------------


def save(folder, tables, **state):
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, rows in zip(names, tables, strict=True):
        write(folder / name, rows, is_stream=True)
    files = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_split": None, **state}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_data_set_on_disk_is_one_table(tmp_path):
    folder = save(tmp_path / "saved", [table()[:300], table()[300:310], table()[310:]])
    write(folder / "cache-1234.arrow", table()[:7], is_stream=True)  # of a map that was computed later
    source = open_source(folder)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS)
    np.testing.assert_array_equal(np.concatenate(list(source.part(295, 30).blocks())), ROWS[295:325])
    assert source.labels("kind", 299, 4) == KINDS[299:303].to_pylist()
    assert read_texts(folder, column="text") == TEXTS
    assert open_source(folder / "state.json").n_rows == 900


def test_vectors_beside_the_texts_of_a_data_set_are_found(tmp_path):
    folder = save(tmp_path / "saved", [table()])
    assert unused_vectors(folder, "text") == unused_vectors(folder / "state.json") == "embedding"
    assert unused_vectors(folder, "embedding") is None
    assert unused_vectors(tmp_path) is None  # a folder of other files


def test_a_file_of_a_data_set_that_is_replaced_is_noticed(tmp_path):
    folder = save(tmp_path / "saved", [table()[:300], table()[300:]])
    source = open_source(folder)
    next(source.blocks())
    write(tmp_path / "other.arrow", table()[300:], is_stream=True)
    (tmp_path / "other.arrow").replace(folder / "data-00001-of-00002.arrow")  # of the same size
    with pytest.raises(FileFormatError, match="replaced"):
        next(source.blocks())


def test_what_the_package_datasets_saves_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    saved = datasets.Dataset.from_dict({"text": TEXTS, "embedding": ROWS.tolist()})
    datasets.DatasetDict({"train": saved, "test": saved.select([5, 3])}).save_to_disk(tmp_path / "both")
    source = open_source(tmp_path / "both" / "train")
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS)
    assert read_texts(tmp_path / "both" / "test", column="text") == [TEXTS[5], TEXTS[3]]
    with pytest.raises(InputError, match="splits test, train"):
        read_texts(tmp_path / "both")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "data-00001-of-00002.arrow").unlink(), "data-00001-of-00002.arrow is missing"),
        (lambda folder: (folder / "state.json").write_text("{"), "state.json"),
        (lambda folder: (folder / "state.json").write_text('{"_data_files": [{"filename": "../x"}]}'), "state.json"),
        (lambda folder: (folder / "state.json").write_text('{"_data_files": []}'), "without files"),
        (lambda folder: write(folder / "data-00001-of-00002.arrow", table().select(["text"])), "other columns"),
    ],
)
def test_a_data_set_that_is_not_whole_is_refused(tmp_path, change, words):
    folder = save(tmp_path / "saved", [table()[:300], table()[300:]])
    change(folder)
    with pytest.raises(InputError, match=words):
        open_source(folder)


def test_an_order_apart_from_the_rows_is_refused(tmp_path):
    folder = save(tmp_path / "saved", [table()], _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(FileFormatError, match="flatten_indices"):
        open_source(folder)


# -- lists of bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_bytes_of_floats_are_no_vectors(tmp_path, dtype):
    rows = ROWS.astype("<f2") if dtype == "float16" else (ROWS.view("<u4") >> 16).astype("<u2")
    lists = pa.array([row.tobytes() for row in rows]).cast(pa.binary())
    lists = pa.array([list(row) for row in lists.to_pylist()], pa.list_(pa.uint8()))
    pq.write_table(pa.table({"vector": lists}), tmp_path / "milvus.parquet")
    with pytest.raises(FileFormatError, match="bytes of float16 or bfloat16"):
        open_vectors(tmp_path / "milvus.parquet")


@pytest.mark.parametrize("kind", ["bits", "quantized", "descriptors"])
def test_bytes_that_are_numbers_are_vectors(tmp_path, kind):
    rng = np.random.default_rng(1)
    rows = {
        "bits": rng.integers(0, 256, (300, 16)),
        "quantized": np.clip(rng.normal(128, 30, (300, 16)), 0, 255),
        "descriptors": np.minimum(rng.gamma(0.7, 40, (300, 16)), 255),  # as SIFT: many are small
    }[kind].astype(np.uint8)
    lists = pa.array(list(rows), pa.list_(pa.uint8()))
    pq.write_table(pa.table({"vector": lists}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(np.concatenate(list(open_vectors(tmp_path / "a.parquet").blocks())), rows)
