r"""First bytes of formats that isosent does not read, or reads elsewhere: what a file is, and how to save it instead.

Every reader of texts, tables, vectors and word vectors asks `refuse_other_formats` before it parses. Each pattern holds
bytes that no text begins with, or enough of them: "PK" and "BM" begin words, ``PK\x03\x04`` does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from isosent.errors import FileFormatError
from isosent.io.formats import format_by_name
from isosent.io.system import open_to_read

START_BYTES: Final = 1 << 14  # of a file, which show what it is; the names in an archive lie in them
GZIP: Final = "gzip"

_UNPACK: Final = "Unpack it first."
_ARRAYS: Final = "Save the vectors as one array, a row each, with numpy.save."
_TABLE: Final = "Save the table as .parquet, .csv or .jsonl."
_TEXTS: Final = "Save its text as .txt, one text per line, or as .csv."
_GENSIM: Final = (
    "Pickles can run code and are not read. Save word vectors in gensim with save_word2vec_format, arrays with "
    "numpy.save, tables as .parquet."
)
_TORCH: Final = "Save tensors with safetensors, or vectors with numpy.save; a model as a folder, with save_pretrained."
_NETWORK: Final = "Name a folder of the model, as sentence-transformers or transformers save it, or save its vectors."


class _Signature(NamedTuple):
    kind: str
    start: re.Pattern[bytes]
    what: str
    advice: str


def _signature(kind: str, start: bytes, what: str, advice: str) -> _Signature:
    return _Signature(kind, re.compile(start, re.DOTALL), what, advice)


_SIGNATURES: Final = (
    _signature("npy", rb"\x93NUMPY", "an array saved by numpy", "Rename it to end in .npy."),
    _signature("parquet", rb"PAR[1E]\x15", "a Parquet table", "Rename it to end in .parquet."),
    _signature(
        "safetensors", rb'.{4}\x00{4}\{["}]', "a file of tensors in safetensors", "Rename it to end in .safetensors."
    ),
    _signature("fasttext", rb"\xba\x16O/", "a model of fastText", "Name it words:FILE, where a model is expected."),
    _signature(
        "word2vec",
        rb"\d{1,18} \d{1,5}\s{0,2}\n[^\n]{0,99} [^\x00-\x08\x0e-\x1a\x1c-\x1f]{0,999}[\x00-\x08\x0e-\x1a\x1c-\x1f]",
        "a file of word vectors in word2vec's binary format",
        "Name it words:FILE, where a model is expected.",
    ),
    # torch before 1.6, then any pickle: of protocol 2 or later, or one that begins with a known class or a container
    _signature("torch", rb"\x80\x02\x8a\nl\xfc\x9cF\xf9", "a file of torch, which is a pickle", _TORCH),
    _signature("pickle", rb"\x80[\x02-\x05]", "a pickle, as .kv and .model files of gensim are", _GENSIM),
    _signature(
        "pickle",
        rb"\([dl]p\d+\n|[}\]]q\x00|c(?:numpy|copy_reg|gensim|pandas|__builtin__|builtins|collections)[\w.]*\n\w+\n[pq(]",
        "a pickle, as .kv and .model files of gensim are",
        _GENSIM,
    ),
    # archives, by the names of their files
    _signature(
        "torch", rb"PK\x03\x04.{26}[^\x00]{1,250}?/(?:data\.pkl|\.format_version|byteorder)", "a file of torch", _TORCH
    ),
    _signature("npz", rb"PK\x03\x04.{26}[^\x00/]{1,250}?\.npy", "an archive of arrays", "Rename it to end in .npz."),
    _signature("xlsx", rb"PK\x03\x04.*?PK\x03\x04.{26}xl/", "an Excel workbook", _TABLE),
    _signature("docx", rb"PK\x03\x04.*?PK\x03\x04.{26}word/", "a Word document", _TEXTS),
    _signature("pptx", rb"PK\x03\x04.*?PK\x03\x04.{26}ppt/", "a PowerPoint presentation", _TEXTS),
    _signature(
        "odf", rb"PK\x03\x04.{26}mimetype[^P]{0,40}application/", "a document, such as .ods, .odt or .epub", _TEXTS
    ),
    _signature("keras", rb"PK\x03\x04.*?model\.weights\.h5", "a model of Keras", _NETWORK),
    _signature("zip", rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", "a zip archive", _UNPACK),
    _signature(GZIP, rb"\x1f\x8b\x08", "compressed with gzip", _UNPACK),
    _signature("bzip2", rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "compressed with bzip2", _UNPACK),
    _signature("xz", rb"\xfd7zXZ\x00", "compressed with xz", _UNPACK),
    _signature("zstd", rb"[\x22-\x28]\xb5/\xfd", "compressed with zstd", _UNPACK),
    _signature("lz4", rb"\x04\x22M\x18", "compressed with lz4", _UNPACK),
    _signature("compress", rb"\x1f[\x9d\xa0][\x80-\x9f]", "compressed with compress", _UNPACK),
    _signature(
        "zlib", rb"x[\x01^\x9c\xda](?!\x00\x00).{0,200}?[\x00-\x08\x0e-\x1a\x1c-\x1f]", "compressed with zlib", _UNPACK
    ),
    _signature("7z", rb"7z\xbc\xaf'\x1c", "a 7z archive", _UNPACK),
    _signature("rar", rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
    _signature("tar", rb".{257}ustar(?:\x00|  \x00)", "a tar archive", _UNPACK),
    # data
    _signature("hdf5", rb"\x89HDF\r\n\x1a\n", "an HDF5 file", "Rename it to end in .hdf5."),
    _signature("arrow", rb"ARROW1\x00\x00", "a table of Arrow or Feather", "Rename it to end in .arrow."),
    _signature("arrow", rb"\xff{4}.{3}\x00.\x00{3}", "a stream of Arrow", "Rename it to end in .arrow."),
    _signature("feather1", rb"FEA1\x00", "a table of Feather's first version", _TABLE),
    _signature("orc", rb"ORC[^\n]?[\n\x80-\xff]?[\x00-\x08]", "a table of ORC", _TABLE),
    _signature("avro", rb"Obj\x01", "a table of Avro", _TABLE),
    _signature("sqlite", rb"SQLite format 3\x00", "a database of SQLite", "Export the table as .csv."),
    _signature("duckdb", rb".{8}DUCK.\x00{3}", "a database of DuckDB", "Export the table as .parquet or .csv."),
    _signature("access", rb"\x00\x01\x00\x00Standard (?:Jet|ACE) DB", "a database of Access", "Export it as .csv."),
    _signature("lmdb", rb".{16}\xde\xc0\xef\xbe", "a database of LMDB", _ARRAYS),
    _signature("matlab", rb"MATLAB [57]\.\d MAT-file.{107}(?:IM|MI)", "a file of MATLAB", _ARRAYS),
    _signature("r", rb"RD[XAB][23]\n[XAB]\n", "a file of R", _TABLE),
    _signature("stata", rb"<stata_dta>|\$FL[23]@\(#\)", "a data file of Stata or SPSS", _TABLE),
    # indexes and networks
    _signature(
        "faiss",
        rb"I[A-Za-z]\w\w.{12}\x00\x00\x10\x00{5}|IB\w\w.{2}\x00\x00.{2}\x00\x00",
        "an index of FAISS",
        "Build an index of its vectors or texts: isosent index VECTORS -o INDEX.",
    ),
    _signature(
        "usearch", rb"usearch[\x00-\x1f]", "an index of USearch", "Save its vectors as one array, with numpy.save."
    ),
    _signature("gguf", rb"GGUF(?:[\x01-\x09]\x00{3}|\x00{3}[\x01-\x09])", "a network in GGUF", _NETWORK),
    _signature("ggml", rb"(?:fmgg|tjgg|algg)[\x00-\x09]\x00{3}", "a network in GGML", _NETWORK),
    _signature("tflite", rb"[\x08-\x80]\x00{3}TFL3", "a network of TensorFlow Lite", _NETWORK),
    _signature("onnx", rb"\x08[\x01-\x20]\x12.[A-Za-z]", "a network in ONNX", _NETWORK),
    _signature(
        "sentencepiece",
        rb"\n[\x05-\x40]\n[\x01-\x20][^\n]{1,32}?\x15.{3}",
        "a tokenizer of SentencePiece",
        "Convert it to a tokenizer.json.",
    ),
    # documents, pictures, programs
    _signature("pdf", rb"%PDF-\d\.\d\s*[\r\n]", "a PDF document", _TEXTS),
    _signature("office", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document, such as .xls or .doc", _TABLE),
    _signature("rtf", rb"\{\\rtf\d\\", "a document in RTF", _TEXTS),
    _signature(
        "picture",
        rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a.{4}[\x80-\xff]|BM.{4}\x00{4}|RIFF.{4}WEBPVP8|II\*\x00|MM\x00\*",
        "a picture",
        "Name a file of texts or vectors.",
    ),
    _signature(
        "recording",
        rb"RIFF.{4}(?:WAVEfmt |AVI LIST)|ID3[\x02-\x04]\x00|(?:OggS|fLaC)\x00|\x00{2}.{2}ftyp|\x1aE\xdf\xa3",
        "a recording",
        "Name a file of texts or vectors.",
    ),
    _signature("program", rb"\x7fELF|MZ\x90\x00", "a program", "Name a file of texts or vectors."),
    _signature(
        "lfs",
        rb"version https://git-lfs\.github\.com/spec/v\d\r?\n",
        "a pointer of Git LFS instead of the file",
        "Download the file: git lfs pull.",
    ),
    _signature("utf-16", rb"\xff\xfe|\xfe\xff", "text in UTF-16 or UTF-32", "Convert the file to UTF-8."),
)
_KINDS: Final = {".h5": "hdf5", ".arrows": "arrow", ".feather": "arrow"}  # of endings that are no kind themselves
READ_AS_WORDS: Final = ("fasttext", "word2vec", "zip", GZIP)  # besides text


def refuse_other_formats(where: str, start: bytes, *, reads: Collection[str] | None = None) -> None:
    """Refuse a file by its first bytes.

    A reader passes the kinds that it `reads`. Without them, it is a reader that has chosen by the ending of the name.
    """
    if reads is None:
        named = format_by_name(where)
        reads = () if named.refusal else (_KINDS.get(named.ending, named.ending.removeprefix(".")),)
    for signature in _SIGNATURES:
        if signature.start.match(start):
            if signature.kind not in reads:
                has_ending = where.lower().endswith(f".{signature.kind}") and signature.advice.startswith("Rename")
                advice = "Something else is expected here." if has_ending else signature.advice
                raise FileFormatError(f"{where} is {signature.what}. {advice}")
            return


def refuse_other_file(path: str | os.PathLike[str], *, reads: Collection[str] | None = None) -> None:
    """Refuse a file that is not open, as `refuse_other_formats`."""
    with open_to_read(path) as file:
        refuse_other_formats(str(path), file.read(START_BYTES), reads=reads)
