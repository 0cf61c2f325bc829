"""FAISS files that somebody wrote to attack it are refused before FAISS reads them."""

import shutil
import struct
from functools import cache, partial

import golden_formats
import numpy as np
import pytest
from msgspec.structs import replace

from isosent.errors import FileFormatError
from isosent.io.checksum import file_checksum
from isosent.search import Index
from isosent.search.codes_file import check_codes, write_blocks
from isosent.search.commits import read_state, write_state
from isosent.search.engine import SearchSettings, empty_codes, finer_settings
from isosent.storage import Storage
from isosent.transforms.quantization import Quantization

faiss = pytest.importorskip("faiss")
HUGE = struct.pack("<Q", 1 << 61)
RELEASE = sorted(golden_formats.FORMATS.iterdir())[-1]


@cache
def made(kind, store, place):
    """An index of a kind that the last release did not write."""
    rows = np.random.default_rng(0).standard_normal((1000, golden_formats.WIDTH))
    Index.create(vectors=rows, folder=place / f"index-{kind}-{store}", kind=kind, store=store)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The first segment of an index: its codes, its settings, its rows."""
    return partial(first_segment, tmp_path_factory.mktemp("made"))


def first_segment(place, kind, store):
    folder = RELEASE / f"index-{kind}-{store}"
    if not folder.exists():
        made(kind, store, place)
        folder = place / folder.name
    state = read_state(folder)
    return folder / state.segments[0].codes.name, state.settings, state.segments[0].n_rows, state.dim


def check(path, settings, n_rows, dim):
    check_codes(path, n_rows, dim, settings, has_map=True)


@pytest.mark.parametrize(("kind", "store"), golden_formats.KINDS)
def test_the_files_of_every_kind_pass_and_no_other_kind_does(parts, kind, store):
    path, settings, n_rows, dim = parts(kind, store)
    check(path, settings, n_rows, dim)
    for other_kind, other_store in golden_formats.KINDS:
        if (other_kind, other_store) != (kind, store):
            with pytest.raises(FileFormatError, match=r"codes-000001\.faiss does not hold .* codes"):
                check(path, parts(other_kind, other_store)[1], n_rows, dim)
    for other_rows, other_dim in ((n_rows + 1, dim), (n_rows, dim + 1), (0, dim)):
        with pytest.raises(FileFormatError):
            check(path, settings, other_rows, other_dim)


def after(content, code, n_bytes, *, last=False):
    """The place so many bytes after a code."""
    return (content.rindex(code) if last else content.index(code)) + n_bytes


def last_id(content):
    return len(content) - 8


def neighbors(content):
    """The place of the last neighbor in a graph, before five numbers and the vectors."""
    return content.rindex(b"IxFI") - 5 * 4 - 4


# what is changed, in which kind of index: the place, and the bytes put there
CRAFTED = {
    "steps": ("flat", "float32", lambda content: 37, struct.pack("<i", 1 << 30)),
    "the width of the map": ("flat", "float32", lambda content: after(content, b"LTra", 5), HUGE),
    "a map without biases": ("flat", "float32", lambda content: after(content, b"LTra", 4), b"\2"),
    "the scaling": ("flat", "float32", lambda content: after(content, b"VNrm", 8), struct.pack("<i", 1 << 20)),
    "the number of vectors": ("flat", "float32", lambda content: after(content, b"IxFI", 37), HUGE),
    "the metric": ("flat", "float32", lambda content: after(content, b"IxFI", 33), struct.pack("<i", 23)),
    "another kind": ("flat", "float32", lambda content: after(content, b"IxFI", 0), b"IxHe"),
    "the place of a dimension": (
        "flat",
        "int8",
        lambda content: after(content, b"RmDT", 12),
        struct.pack("<i", 1 << 20),
    ),
    "the dtype": ("flat", "int8", lambda content: after(content, b"IxSQ", 37), struct.pack("<i", 99)),
    "the bytes of a code": ("flat", "int8", lambda content: after(content, b"IxSQ", 37 + 20), struct.pack("<Q", 1)),
    "the ranges": ("flat", "int8", lambda content: after(content, b"IxSQ", 37 + 28), struct.pack("<Q", 0)),
    "the bits of a query": ("flat", "binary", lambda content: len(content) - 1, b"\xff"),
    "the bytes of a product code": ("flat", "product", lambda content: after(content, b"IxPq", 37 + 8), HUGE),
    "the codebooks": ("flat", "product", lambda content: after(content, b"IxPq", 37 + 24), HUGE),
    "the way of searching": ("flat", "product", lambda content: len(content) - 9, struct.pack("<i", 2)),
    "the map to parts": ("flat", "product", lambda content: after(content, b"LTra", 5, last=True), HUGE),
    "codes of residuals": ("ivf", "product", lambda content: after(content, b"ilar", -8 - 4 * 256 * 4 - 24 - 9), b"\1"),
    "codebooks of clusters": ("ivf", "product", lambda content: after(content, b"ilar", -8 - 4 * 256 * 4), HUGE),
    "the number of clusters": ("ivf", "float32", lambda content: after(content, b"IwFl", 37), HUGE),
    "a map of rows": ("ivf", "float32", lambda content: after(content, b"ilar", -9), b"\2"),
    "the size of a cluster": ("ivf", "int8", lambda content: after(content, b"full", 12), HUGE),
    "a row beyond the last": ("ivf", "binary", last_id, struct.pack("<q", 1 << 40)),
    "a row before the first": ("ivf", "float32", last_id, struct.pack("<q", -2)),
    "the layers": ("hnsw", "float32", lambda content: after(content, b"IHNf", 37), HUGE),
    "a neighbor beyond the last": ("hnsw", "float32", neighbors, struct.pack("<i", 1 << 24)),
    "a neighbor before the first": ("hnsw", "float32", neighbors, struct.pack("<i", -7)),
    "the first row": ("hnsw", "float32", lambda content: neighbors(content) + 4, struct.pack("<i", 1 << 24)),
    "the highest layer": ("hnsw", "float32", lambda content: neighbors(content) + 8, struct.pack("<i", 3)),
}


@pytest.mark.parametrize("change", CRAFTED)
def test_what_does_not_fit_is_refused(parts, tmp_path, change):
    kind, store, find, value = CRAFTED[change]
    path, settings, n_rows, dim = parts(kind, store)
    content = bytearray(path.read_bytes())
    place = find(bytes(content))
    assert content[place : place + len(value)] != value
    content[place : place + len(value)] = value
    spoilt = tmp_path / path.name
    spoilt.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"codes-000001\.faiss does not hold"):
        check(spoilt, settings, n_rows, dim)


@pytest.mark.parametrize(("kind", "store"), golden_formats.KINDS)
def test_a_file_that_is_cut_or_goes_on_is_refused(parts, tmp_path, kind, store):
    path, settings, n_rows, dim = parts(kind, store)
    content = path.read_bytes()
    spoilt = tmp_path / path.name
    for length in (0, 3, 40, len(content) // 3, len(content) // 2, len(content) - 1):
        spoilt.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            check(spoilt, settings, n_rows, dim)
    spoilt.write_bytes(content + b"\0")
    with pytest.raises(FileFormatError, match="goes on"):
        check(spoilt, settings, n_rows, dim)


@pytest.mark.parametrize(("store", "dim"), [("float32", 5), ("float16", 16), ("float16", 21)])
def test_a_file_that_is_written_in_blocks_is_that_of_faiss(tmp_path, store, dim):
    rows = np.random.default_rng(0).standard_normal((50, dim)).astype(np.float32)
    settings, quantization = SearchSettings(store=Storage(store)), Quantization.fit(rows)
    filled = empty_codes(dim, settings, quantization)
    filled.add(rows)
    faiss.write_index(filled, str(tmp_path / "theirs"))
    checksum = write_blocks(empty_codes(dim, settings, quantization), np.split(rows, [20, 47]), 50, tmp_path / "ours")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert checksum == file_checksum(tmp_path / "ours")


def test_links_to_rows_on_a_layer_that_they_are_not_on_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    Index.create(vectors=rng.standard_normal((300, 8)), folder=tmp_path / "index", kind="hnsw")
    state = read_state(tmp_path / "index")
    path = tmp_path / "index" / state.segments[0].codes.name
    check_codes(path, 300, 8, state.settings, has_map=True)
    content = bytearray(path.read_bytes())
    start = content.index(b"IHNf") + 37
    (n_layers,) = struct.unpack_from("<Q", content, start)
    levels_at = start + 8 + 8 * n_layers + 8 + 4 * (n_layers + 1) + 8
    levels = np.frombuffer(content, "<i4", 300, levels_at)
    high, low = int(np.flatnonzero(levels > 1)[0]), int(np.flatnonzero(levels == 1)[0])
    offsets_at = levels_at + 4 * 300 + 8
    offset = np.frombuffer(content, "<u8", 301, offsets_at)[high]
    place = offsets_at + 8 * 301 + 8 + 4 * (int(offset) + 32)  # its first neighbor on the second layer
    struct.pack_into("<i", content, place, low)
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="layer that they are not on"):
        check_codes(path, 300, 8, state.settings, has_map=True)


def test_vectors_are_beside_the_codes_where_the_settings_say_so(tmp_path):
    folder = shutil.copytree(RELEASE / "index-flat-int8", tmp_path / "index")
    state = read_state(folder)
    assert finer_settings(state.settings) is not None
    segments = (replace(state.segments[0], vectors=None), *state.segments[1:])
    write_state(folder, replace(state, segments=segments))
    with pytest.raises(FileFormatError, match="has no vectors next to it"):
        Index.open(folder)
