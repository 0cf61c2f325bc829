"""Files of other formats, written by their own libraries where they are installed, under names that readers take."""

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import tarfile
import zipfile

import numpy as np
import pytest

from isosent.errors import IsosentError
from isosent.io.bounds import read_lines
from isosent.io.tables import open_table
from isosent.io.texts import read_texts
from isosent.io.vectors import open_vectors
from isosent.words.word_vectors import read_word_vectors


def saved(save):
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def archive(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in names:
            opened.writestr(name, "<xml/>" * 500)
    return file.getvalue()


def tar(content):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        member = tarfile.TarInfo("vectors.txt")
        member.size = len(content)
        opened.addfile(member, io.BytesIO(content))
    return file.getvalue()


def sqlite():
    with sqlite3.connect(":memory:") as database:
        database.execute("create table texts (text)")
        return database.serialize()


def arrow(write):
    pa = pytest.importorskip("pyarrow")
    return saved(lambda file: write(pa, pa.table({"text": ["a", "b"]}), file))


def arrow_file(pa, table, file):
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def arrow_stream(pa, table, file):
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def torch_file(**options):
    torch = pytest.importorskip("torch")
    return saved(lambda file: torch.save({"weight": torch.ones(3)}, file, **options))


def faiss_index(kind):
    faiss = pytest.importorskip("faiss")
    index = faiss.index_factory(8, kind)
    index.train(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    return faiss.serialize_index(index).tobytes()


KINDS = {
    **{
        f"pickle {protocol}": (lambda protocol=protocol: pickle.dumps({"a": np.ones(3)}, protocol), "pickle")
        for protocol in range(6)
    },
    "torch": (torch_file, "torch"),
    "torch before 1.6": (lambda: torch_file(_use_new_zipfile_serialization=False), "torch"),
    "HDF5": (lambda: b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
    "Arrow": (lambda: arrow(arrow_file), "Arrow"),
    "stream of Arrow": (lambda: arrow(arrow_stream), "Arrow"),
    **{kind: (lambda kind=kind: faiss_index(kind), "FAISS") for kind in ("Flat", "IVF4,Flat", "HNSW8", "SQ8", "PQ2x4")},
    "GGUF": (lambda: b"GGUF\x03\0\0\0" + bytes(100), "GGUF"),
    "SQLite": (sqlite, "SQLite"),
    "bzip2": (lambda: bz2.compress(b"one\ntwo\n"), "bzip2"),
    "xz": (lambda: lzma.compress(b"one\ntwo\n"), "xz"),
    "zstd": (lambda: b"\x28\xb5\x2f\xfd\x24\x08\x41\0\0one\ntwo\n", "zstd"),
    "tar": (lambda: tar(b"one\ntwo\n"), "tar"),
    "PDF": (lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "PDF"),
    "npz": (lambda: saved(lambda file: np.savez(file, np.ones((3, 2)))), "archive of arrays"),
    "Excel": (lambda: archive("[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"), "Excel"),
    "old Excel": (lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(500), "Office"),
    "Word": (lambda: archive("[Content_Types].xml", "word/document.xml"), "Word"),
    "picture": (lambda: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "picture"),
    "pointer": (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n", "Git LFS"),
    "UTF-16": (lambda: "one\ntwo\n".encode("utf-16"), "UTF-8"),
}


def read_table(path):
    with open_table(path) as table:
        return list(table.rows(*table.columns))


@pytest.mark.parametrize(("make", "name"), KINDS.values(), ids=KINDS)
def test_every_reader_names_the_format(tmp_path, make, name):
    content = make()
    readers = [(read_texts, "t.txt"), (read_texts, "t.csv"), (read_table, "t.tsv"), (read_table, "t.jsonl")]
    readers += [(read_table, "t.json"), (read_table, "t.parquet"), (open_vectors, "v.npy"), (open_vectors, "v.fvecs")]
    readers += [(open_vectors, "v.parquet"), (open_vectors, "v.json"), (open_vectors, "v.pkl")]
    readers += [(lambda path: read_word_vectors([path]), "w.vec")]
    for read, file in readers:
        (tmp_path / file).write_bytes(content)
        with pytest.raises(IsosentError, match=rf"{file}.* is .*{name}"):
            read(tmp_path / file)


def test_files_that_isosent_reads_elsewhere_say_where(tmp_path):
    npy = saved(lambda file: np.save(file, np.ones((3, 2))))
    word2vec = b"2 3\nof " + np.array([1, 2, 3], "<f4").tobytes() + b"dog " + np.array([4, 5, 6], "<f4").tobytes()
    for content, advice in ((npy, r"\.npy"), (word2vec, "words:FILE"), (b"\xba\x16O/\x0c\0\0\0", "words:FILE")):
        (tmp_path / "t.txt").write_bytes(content)
        with pytest.raises(IsosentError, match=advice):
            read_texts(tmp_path / "t.txt")
    (tmp_path / "w.bin").write_bytes(npy)
    with pytest.raises(IsosentError, match=r"array saved by numpy.*\.npy"):
        read_word_vectors([tmp_path / "w.bin"])


def test_what_is_packed_is_named_too(tmp_path):
    (tmp_path / "model.kv.gz").write_bytes(gzip.compress(pickle.dumps({"a": 1})))
    with pytest.raises(IsosentError, match="unpacked, is a pickle"):
        read_word_vectors([tmp_path / "model.kv.gz"])


TEXTS = [
    *("PK wins", "BM Werke", "MZ", "PAR1 is first", "GGUF models", "ORC", "ORC\nelf", "II* x", "ID3 tags", "Rar! x"),
    *("7z x", "x^2 + y = z", "BZh91 is", "OggS", "RIFF WAVE", "GIF89a is old", "%PDF-1.4 is old", "SQLite format 3"),
    *("IxF2 index", "IBM is", "Iron man", "cats\nand\nparrots", "(lp", "12 34\nmen", "RDX3", "<html>", "{", "\x1b[0m"),
    *("\ufeffhello", "xځ", "안녕하세요", "\tindent", "", " ", "a\0b", "version https://example.com"),
    *("MATLAB 5.0 MAT-file is old", "x^2 \x1b[1mis", "3 4\nhello world \x1b[1mis", "a" * 257 + "ustar is old"),
]


@pytest.mark.parametrize("start", TEXTS)
def test_texts_that_begin_like_other_formats_are_texts(tmp_path, start):
    text = f"{start} and more\n" * 50
    (tmp_path / "t.txt").write_bytes(text.encode())
    assert read_texts(tmp_path / "t.txt") == text.removeprefix("\ufeff").split("\n")[:-1]
    if start:
        assert len(read_lines(tmp_path / "t.txt")) == text.count("\n")


def test_korean_in_its_own_encoding_is_text(tmp_path):
    text = "안녕하세요 여러분\n" * 50
    (tmp_path / "t.txt").write_bytes(text.encode("cp949"))
    assert read_texts(tmp_path / "t.txt") == text.split("\n")[:-1]


@pytest.mark.parametrize("dim", [376, 23117, 40223])
def test_vectors_whose_dimensions_begin_like_another_format_are_read(tmp_path, dim):
    record = np.zeros(2, [("dim", "<i4"), ("values", "<f4", (dim,))])
    record["dim"] = dim
    record.tofile(tmp_path / "v.fvecs")
    assert open_vectors(tmp_path / "v.fvecs").dim == dim
