"""Facts of number types, against numpy and torch."""

import json

import numpy as np
import pytest

from isosent.errors import FileFormatError
from isosent.io.json import document_bytes
from isosent.search import Index
from isosent.search.commits import MANIFEST
from isosent.search.engine import bytes_per_vector
from isosent.storage import COMPUTED, ENCODED, INDEXED, NUMPY, TENSORS, WRITTEN, Storage


def test_the_names_that_folders_files_and_commands_have_stay():
    names = {"float64", "float32", "float16", "bfloat16", "int8", "uint8", "binary", "ubinary"}  # of 0.1.0
    assert set(map(str, Storage)) == names | {"product"}
    assert set(TENSORS) == {"float16", "bfloat16", "float32", "float64", "int8", "uint8"}
    assert set(TENSORS) - set(NUMPY) == {"bfloat16"}
    assert WRITTEN == ("float32", "float16")
    assert ENCODED == ("float32", "int8", "ubinary")
    assert INDEXED == ("float32", "float16", "int8", "binary", "product")
    assert COMPUTED == ("float32", "bfloat16", "float16", "int8")


@pytest.mark.parametrize("storage", NUMPY)
@pytest.mark.parametrize("dim", [1, 7, 256])
def test_numbers_take_the_bytes_that_numpy_takes(storage, dim):
    rows = np.arange(2 * dim).reshape(2, dim).astype(storage)
    assert storage.n_bytes(dim) == rows[0].nbytes
    assert storage.eps == (np.finfo(rows.dtype).eps if rows.dtype.kind == "f" else 0)
    assert storage.decoded(rows.astype(storage.stored)).dtype == rows.dtype
    assert storage.decoded_bytes == rows.itemsize


@pytest.mark.parametrize("dim", [1, 8, 9, 250])
def test_packed_bits_take_the_bytes_of_packbits(dim):
    packed = np.packbits(np.ones(dim, bool))
    assert Storage.ubinary.n_bytes(dim) == Storage.binary.n_bytes(dim) == packed.nbytes
    assert Storage.ubinary.stored == packed.dtype


def test_bfloat16_is_that_of_torch():
    torch = pytest.importorskip("torch")
    numbers = torch.tensor([[0.0, -1.5, 3.14159, 1e30, -1e-30]], dtype=torch.bfloat16)
    decoded = Storage.bfloat16.decoded(numbers.view(torch.int16).numpy().view("<u2"))
    np.testing.assert_array_equal(decoded, numbers.float().numpy())
    assert Storage.bfloat16.eps == torch.finfo(torch.bfloat16).eps
    assert (Storage.bfloat16.n_bytes(5), Storage.bfloat16.decoded_bytes) == (numbers.nbytes, decoded.itemsize)


def test_what_lies_in_an_index_is_what_files_call_otherwise():
    assert Storage.binary.codes is Storage.ubinary
    assert [storage for storage in Storage if storage.codes is not storage] == ["binary"]


@pytest.mark.parametrize(
    ("store", "code"),
    [("float32", "Flat"), ("float16", "SQfp16"), ("int8", "SQ8"), ("binary", "RaBitQ"), ("product", "PQ16x4np")],
)
def test_a_vector_in_an_index_takes_the_bytes_that_faiss_says(store, code):
    faiss = pytest.importorskip("faiss")
    index = faiss.index_factory(64, code, faiss.METRIC_INNER_PRODUCT)
    assert bytes_per_vector(64, "flat", Storage(store)) == index.sa_code_size()


@pytest.mark.parametrize(
    "settings",
    [
        {"store": "ubinary"},
        {"store": "none"},
        {"kind": "hnsw", "store": "binary"},
        {"store": "product"},
        {"store": "int8", "code_bytes": 8},
    ],
)
def test_an_index_of_a_number_type_that_none_has_is_damaged(tmp_path, settings):
    pytest.importorskip("faiss")
    rows = np.random.default_rng(0).standard_normal((120, 8))
    Index.create(vectors=rows, folder=tmp_path / "index")
    document = json.loads((tmp_path / "index" / MANIFEST).read_bytes())
    del document["checksum"]
    document["index"]["settings"] |= settings
    (tmp_path / "index" / MANIFEST).write_bytes(document_bytes(document))
    with pytest.raises(FileFormatError, match=settings["store"]):
        Index.open(tmp_path / "index")
