"""Damage in the files of vectors and moments that isosent writes is found when they are read."""

import io
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from vector_makers import write_vectors

import isosent
from isosent.errors import FileFormatError, InputError
from isosent.io.checksum import HashingFile, checksum_of, file_checksum
from isosent.io.json import parse_json, read_json, write_document
from isosent.io.notes import note_path
from isosent.io.shards import Sharding
from isosent.io.vectors import open_vectors, writing_vectors
from isosent.jobs import moments as checkpoint_module
from isosent.jobs.moments import moments_of, read_moments, write_moments
from isosent.jobs.shards import encode_folder
from isosent.space import Space

ROWS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
SPACE = Space("ab" * 32, "an encoder")
N_FLIPS = 120


def vectors(path):
    return np.concatenate(list(open_vectors(path).blocks()))


def file_of(name):
    def write(folder):
        write_vectors(folder / name, ROWS, [f"text {i}" for i in range(len(ROWS))], SPACE)

    return write, lambda folder: (vectors(folder / name), open_vectors(folder / name).space)


def write_shards(folder):
    (folder / "texts.txt").write_text("a man\na dog\na cat\n" * 3)
    sharding = Sharding(shard_size=4, file_format="parquet")
    encode_folder(isosent.load(), [str(folder / "texts.txt")], folder / "out", sharding=sharding)
    (folder / "texts.txt").unlink()


def write_some_moments(folder):
    np.save(folder / "v.npy", ROWS)
    write_moments(folder / "m.safetensors", moments_of([open_vectors(folder / "v.npy")]))
    (folder / "v.npy").unlink()


def read_some_moments(folder):
    measured = read_moments(folder / "m.safetensors")
    moments = measured.moments
    return (
        np.concatenate([moments.mean, moments.scatter.ravel(), moments.rounding]),
        (measured.n_zero_rows, measured.space, measured.sources, moments.weight),
    )


WRITERS = {
    **{name: file_of(name) for name in ("v.npy", "v.fvecs", "v.parquet")},
    "shards": (write_shards, lambda folder: (vectors(folder / "out"), open_vectors(folder / "out").space)),
    "moments": (write_some_moments, read_some_moments),
}


def flipped(folder, rng):
    """Flip one bit of one file of a folder, a file the likelier the larger it is."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = np.array([path.stat().st_size for path in files])
    path = files[rng.choice(len(files), p=sizes / sizes.sum())]
    content = bytearray(path.read_bytes())
    place = int(rng.integers(len(content)))
    content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return f"{path.name}, byte {place}"


@pytest.mark.parametrize("name", WRITERS)
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path, name):
    write, read = WRITERS[name]
    (tmp_path / "whole").mkdir()
    write(tmp_path / "whole")
    rows, facts = read(tmp_path / "whole")
    rng, undetected, n_found = np.random.default_rng(7), [], 0
    for _ in range(N_FLIPS):
        shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
        where = flipped(tmp_path / "damaged", rng)
        try:
            found = read(tmp_path / "damaged")
        except InputError:
            n_found += 1
        else:
            if not (np.array_equal(found[0], rows) and found[1] == facts):
                undetected.append(where)
        shutil.rmtree(tmp_path / "damaged")
    assert undetected == []
    assert n_found > 0.9 * N_FLIPS


def test_a_flipped_bit_in_a_checkpoint_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "_PAUSE_S", 0.0)
    np.save(tmp_path / "v.npy", ROWS)
    (tmp_path / "kept").mkdir()
    sources = [open_vectors(tmp_path / "v.npy")]
    moments_of(sources, checkpoint=tmp_path / "kept" / "checkpoint")
    whole, rng = (tmp_path / "kept" / "checkpoint").read_bytes(), np.random.default_rng(3)
    for _ in range(N_FLIPS):
        (tmp_path / "kept" / "checkpoint").write_bytes(whole)
        flipped(tmp_path / "kept", rng)
        with pytest.raises(FileFormatError):
            moments_of(sources, checkpoint=tmp_path / "kept" / "checkpoint")


@pytest.mark.parametrize("word", [b'"format"', b"isosent-moments", b"isosent.checksum"])
def test_damaged_moments_are_not_taken_for_vectors(tmp_path, word):
    write_some_moments(tmp_path)
    content = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(content.replace(word, word[:3] + bytes([word[3] ^ 1]) + word[4:], 1))
    with pytest.raises(InputError):
        open_vectors(tmp_path / "m.safetensors")


def test_texts_in_a_damaged_table_are_not_read(tmp_path):
    write_vectors(tmp_path / "v.parquet", ROWS, [f"text {i}" for i in range(len(ROWS))], SPACE)
    assert len(isosent.read_texts(tmp_path / "v.parquet", column="text")) == len(ROWS)
    content = bytearray((tmp_path / "v.parquet").read_bytes())
    content[content.index(b"text ")] ^= 1
    (tmp_path / "v.parquet").write_bytes(content)
    with pytest.raises(FileFormatError, match="damaged"):
        isosent.read_texts(tmp_path / "v.parquet", column="text")


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_vectors_of_too_many_dimensions_are_refused(tmp_path, name):
    write_vectors(tmp_path / name, np.ones((1, (1 << 16) + 1), np.float32), ["a"])
    with pytest.raises(FileFormatError, match=r"65,537 dimensions"):
        open_vectors(tmp_path / name)


def test_moments_of_identical_runs_have_identical_bytes(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    for name in "abcdef":
        write_moments(tmp_path / f"{name}.safetensors", moments_of([open_vectors(tmp_path / "v.npy")]))
    assert len({path.read_bytes() for path in tmp_path.glob("*.safetensors")}) == 1


def test_a_table_that_another_tool_rewrote_is_no_damaged_one(tmp_path):
    write_vectors(tmp_path / "v.parquet", ROWS, ["a"] * len(ROWS), SPACE)
    pq.write_table(pq.read_table(tmp_path / "v.parquet"), tmp_path / "w.parquet")
    np.testing.assert_array_equal(vectors(tmp_path / "w.parquet"), ROWS)
    assert open_vectors(tmp_path / "w.parquet").space == SPACE


@pytest.mark.parametrize("n_groups", [1, 2, 7])
def test_a_sealed_table_of_many_row_groups_is_read_by_other_tools(tmp_path, n_groups):
    with writing_vectors(tmp_path / "v.parquet", ROWS.shape, space=SPACE) as write:
        for rows in np.array_split(ROWS, n_groups):
            write(rows)
    table = pq.read_table(tmp_path / "v.parquet")
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), ROWS)
    polars = pytest.importorskip("polars")
    np.testing.assert_array_equal(polars.read_parquet(tmp_path / "v.parquet")["vector"].to_numpy(), ROWS)


@pytest.mark.parametrize("name", ["v.npy", "v.fvecs"])
def test_a_note_goes_with_the_array_before_and_after_it_is_replaced(tmp_path, name, monkeypatch):
    """A kill comes between the two renames: at first the array is the older one."""
    write_vectors(tmp_path / name, ROWS, ["a"] * len(ROWS), SPACE)
    older, other = (tmp_path / name).read_bytes(), Space("cd" * 32, "another")
    notes = []
    monkeypatch.setattr("isosent.io.vectors.write_note", keep_notes(notes, tmp_path / name))
    write_vectors(tmp_path / name, 2 * ROWS, ["a"] * len(ROWS), other)
    newer = (tmp_path / name).read_bytes()
    note_path(tmp_path / name).write_bytes(notes[0])
    for content, space, rows in ((older, SPACE, ROWS), (newer, other, 2 * ROWS)):
        (tmp_path / name).write_bytes(content)
        assert open_vectors(tmp_path / name).space == space
        np.testing.assert_array_equal(vectors(tmp_path / name), rows)


def keep_notes(notes, path):
    from isosent.io.notes import write_note

    def write(*arguments):
        write_note(*arguments)
        notes.append(note_path(path).read_bytes())

    return write


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (30.0, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 120)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ('30', '4')}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': '34'}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-30, 4)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (30, 4)}",
        "{'descr': '<f4', 'fortran_order': 'no', 'shape': (30, 4)}",
        "{'descr': 7, 'fortran_order': False, 'shape': (30, 4)}",
        "{'descr': '<f4', 'shape': (30, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (30, 4), 'more': 1}",
        "[1, 2]",
    ],
)
def test_a_header_of_other_types_is_refused(tmp_path, header):
    content = header.encode().ljust(118) + b"\n"
    (tmp_path / "v.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + ROWS.tobytes()
    )
    with pytest.raises(FileFormatError, match=r"v\.npy (is no array|has the shape)"):
        open_vectors(tmp_path / "v.npy")


# -- documents -------------------------------------------------------------------------------------------------------


def test_a_document_is_read_as_it_was_written(tmp_path):
    write_document(tmp_path / "d.json", {"format": "mine", "text": "naïve ☃", "number": 0.1})
    document = read_json(tmp_path / "d.json")
    assert document.pop("checksum").startswith("xxh3:")
    assert document == {"format": "mine", "text": "naïve ☃", "number": 0.1}


@pytest.mark.parametrize("n", [1, 100, (1 << 20) + 3])
def test_a_checksum_is_the_same_however_it_is_taken(tmp_path, n):
    content = np.random.default_rng(0).bytes(n)
    (tmp_path / "file").write_bytes(content)
    hashing = HashingFile(io.BytesIO())
    for start in range(0, n, 1000):
        hashing.write(content[start : start + 1000])
    assert checksum_of(content) == file_checksum(tmp_path / "file") == hashing.checksum


@pytest.mark.parametrize(
    "content",
    [b'{"a": "\\ud800"}', b"[" * 100_000, b"{}" + b"\0", b"\xff", b'{"a": 1', b"9" * 5000, b"[]"],
)
def test_json_that_cannot_be_used_is_one_sentence(content):
    with pytest.raises(FileFormatError, match=r"^here: "):
        parse_json(content, "here")
