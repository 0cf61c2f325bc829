"""Arrays in .npz and .hdf5: read as the numpy and h5py that wrote them say, and refused in a sentence if damaged."""

import io
import zipfile

import numpy as np
import pytest

from isosent.errors import FileFormatError, InputError
from isosent.io.source import open_source
from isosent.io.vectors import open_vectors

h5py = pytest.importorskip("h5py")

ROWS = np.random.default_rng(0).normal(size=(500, 9)).astype(np.float32)
NAMES = ["stored.npz", "packed.npz", "columns.npz", "whole.hdf5", "chunks.h5", "big_endian.h5"]


def write(path, rows=ROWS):
    if path.suffix == ".npz":
        save = np.savez_compressed if path.stem == "packed" else np.savez
        save(path, ids=np.arange(len(rows)), vectors=np.asfortranarray(rows) if path.stem == "columns" else rows)
        return path
    with h5py.File(path, "w") as file:
        if path.stem == "chunks":
            file.create_dataset("of/vectors", data=rows, chunks=(64, 4), compression="gzip")
        else:
            file["vectors"] = rows.astype(rows.dtype.newbyteorder(">")) if path.stem == "big_endian" else rows
        file["ids"] = np.arange(len(rows))
    return path


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8"])
@pytest.mark.parametrize("name", NAMES)
def test_an_array_is_read_from_any_row(tmp_path, name, dtype):
    rows = (np.abs(ROWS) * 30).astype(dtype)
    source = open_source(write(tmp_path / name, rows))
    assert (source.kind, source.n_rows, source.dim, source.storage) == ("vectors", 500, 9, dtype)
    for start in (0, 123, 499):
        blocks = list(source.read(start, 100))
        assert all(block.flags.aligned for block in blocks)
        np.testing.assert_array_equal(np.concatenate(blocks), rows[start:])


@pytest.mark.parametrize("name", ["several.npz", "several.hdf5"])
def test_of_several_arrays_one_is_named(tmp_path, name):
    arrays = {"a": ROWS, "b": ROWS[:5], "ids": np.arange(500)}
    if name.endswith("npz"):
        np.savez(tmp_path / name, **arrays)
    else:
        with h5py.File(tmp_path / name, "w") as file:
            file.update(arrays)
    with pytest.raises(InputError, match=r"2 2-D .*a, b.*column"):
        open_vectors(tmp_path / name)
    assert open_vectors(tmp_path / name, column="b").n_rows == 5
    with pytest.raises(InputError, match=r"no .* c; it has: a, b, ids"):
        open_vectors(tmp_path / name, column="c")
    with pytest.raises(FileFormatError, match=r"int64|shape"):
        open_vectors(tmp_path / name, column="ids")


def test_train_is_what_is_searched(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.update({"test": ROWS[:3], "train": ROWS, "distances": ROWS[:3]})
    assert open_vectors(tmp_path / "a.hdf5").column == "train"
    assert open_vectors(tmp_path / "a.hdf5", column="test").n_rows == 3


def test_links_out_of_a_file_are_not_followed(tmp_path):
    write(tmp_path / "other.hdf5")
    rows = h5py.VirtualLayout(ROWS.shape, "f4")
    rows[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "vectors", ROWS.shape)
    (tmp_path / "raw").write_bytes(ROWS.tobytes())
    with h5py.File(tmp_path / "links.hdf5", "w") as file:
        file["link"] = h5py.ExternalLink("other.hdf5", "vectors")
        file.create_virtual_dataset("virtual", rows)
        file.create_dataset("raw", ROWS.shape, "f4", external=[(tmp_path / "raw", 0, ROWS.nbytes)])
    for name, words in (("link", "no data set link"), ("virtual", "another file"), ("raw", "another file")):
        with pytest.raises(InputError, match=words):
            open_vectors(tmp_path / "links.hdf5", column=name)


@pytest.mark.parametrize("name", ["a.hdf5", "b.hdf5"])
def test_a_named_data_type_is_no_data_set(tmp_path, name):
    with h5py.File(tmp_path / name, "w") as file:
        file["kind"] = np.dtype("f4")
        file["of/numbers"] = np.arange(3.0)
        if name == "a.hdf5":
            file.create_dataset("vectors", data=ROWS, dtype=file["kind"])
    if name == "a.hdf5":
        np.testing.assert_array_equal(np.concatenate(list(open_vectors(tmp_path / name).blocks())), ROWS)
    else:
        with pytest.raises(FileFormatError, match="shape"):
            open_vectors(tmp_path / name)
    with pytest.raises(InputError, match="no data set kind"):
        open_vectors(tmp_path / name, column="kind")


def npy(path):
    np.save(path.with_suffix(".npy"), ROWS)
    path.with_suffix(".npy").rename(path)


def bomb(path):
    if path.suffix == ".npz":
        np.savez_compressed(path, np.zeros((300_000, 64), np.float32))
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("train", (10**9, 128), "f4", chunks=(1000, 128))  # nothing is stored


def pickled(path):
    np.savez(path, np.array([[{}, {}]], object))


def promises(path):
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 100)})
        file.write(ROWS.tobytes())


def long_header(path):
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w") as file:
        file.write(b"\x93NUMPY\x02\0" + b"\xff\xff\xff\x7f" + b" " * 100_000)


def flipped(path):
    write(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)


def longer(path):
    """A member of 1,000 bytes, of which its header and the central directory promise 25 MB."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (200_000, 32)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + b"0" * 1000)
    content, size = path.read_bytes(), len(header.getvalue()) + 200_000 * 32 * 4
    at = content.index(b"PK\1\2") + 24
    path.write_bytes(content[:at] + size.to_bytes(4, "little") + content[at + 4 :])


def large_chunks(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("train", (64, 32), "f4", maxshape=(None, 32), chunks=(1 << 23, 32))


def empty(path):
    with h5py.File(path, "w") as file:
        file["train"] = h5py.Empty("f4")


def truncated(path):
    write(path)
    path.write_bytes(path.read_bytes()[:-700])


def without_beginning(path):
    """zipfile asks for a place before the file, which the system refuses."""
    write(path)
    path.write_bytes(path.read_bytes()[5000:])


def appended(path):
    """Two arrays, one after the other, of which numpy.load reads the first."""
    with path.open("wb") as file:
        np.save(file, ROWS)
        np.save(file, ROWS)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("bomb.npz", bomb, "unpacks to"),
        ("bomb.hdf5", bomb, "unpacks to"),
        ("pickled.npz", pickled, "pickled"),
        ("promises.npz", promises, "400000"),
        ("header.npz", long_header, "header"),
        ("packed.npz", flipped, "CRC|invalid"),
        ("stored.npz", flipped, "CRC"),
        ("longer.npz", longer, "damaged"),
        ("large.h5", large_chunks, "chunks of 1"),
        ("empty.h5", empty, "holds nothing"),
        ("chunks.h5", flipped, "not a readable HDF5 file"),
        ("stored.npz", truncated, "archive"),
        ("stored.npz", without_beginning, "damaged archive"),
        ("two.npy", appended, f"{128 + ROWS.nbytes} bytes: it has {2 * (128 + ROWS.nbytes)}"),
        ("whole.hdf5", truncated, "truncated"),
        ("npy.npz", npy, r"Rename it to end in \.npy"),
        ("other.npz", lambda path: write(path.with_suffix(".hdf5")).rename(path), r"Rename it to end in \.hdf5"),
        ("other.h5", lambda path: write(path.with_suffix(".npz")).rename(path), r"Rename it to end in \.npz"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, make, words):
    make(tmp_path / name)
    with pytest.raises(FileFormatError, match=words) as caught:
        list(open_source(tmp_path / name).blocks())
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
