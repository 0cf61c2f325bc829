"""Files as Chroma, Pinecone, Milvus and Qdrant export them: vectors, ids, texts and metadata."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent.errors import FileFormatError
from isosent.io.source import open_source
from isosent.io.vectors import holds_vectors, open_vectors
from isosent.search.inputs import opened_rows

ROWS = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
LISTS = [[float(x) for x in row] for row in ROWS]
IDS = [f"doc-{n}" for n in range(12)]
TEXTS = [f"document {n} says something" for n in range(12)]
METADATA = [{"source": "a.pdf" if n % 2 else "b.pdf", "page": n} for n in range(12)]
SPARSE = {"indices": [3, 17, 99], "values": [0.5, 0.25, 0.125]}
CHROMA = {"ids": IDS, "embeddings": LISTS, "documents": TEXTS, "metadatas": METADATA, "uris": None, "data": None}
CHROMA["included"] = ["embeddings", "documents", "metadatas"]
PINECONE = [
    {"id": id_, "values": row, "metadata": {**fields, "text": text}}
    for id_, row, fields, text in zip(IDS, LISTS, METADATA, TEXTS, strict=True)
]
MILVUS = [{"id": n, "vector": LISTS[n], "text": TEXTS[n], **METADATA[n]} for n in range(12)]

pytestmark = pytest.mark.filterwarnings("ignore:.*are not encoded")


def as_json(path, document):
    path.write_text(json.dumps(document))


def as_lines(path, documents):
    path.write_text("\n".join(map(json.dumps, documents)))


def parquet(path, vectors, **columns):
    pq.write_table(pa.table({"id": IDS, **vectors, **columns}), path)


def milvus_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "vector", "text"])
        writer.writerows([row["id"], json.dumps(row["vector"]), row["text"]] for row in rows)


def pages(document):
    """What `collection.get` returns of parts of a collection."""
    lists = ("ids", "embeddings", "documents", "metadatas")
    return [document | {name: document[name][start : start + 5] for name in lists} for start in (0, 5, 10)]


FLOATS = {"values": pa.array(LISTS, pa.list_(pa.float32()))}
EXPORTS = {
    "chroma.json": (as_json, CHROMA, IDS, TEXTS),
    "chroma_pages.jsonl": (as_lines, pages(CHROMA), IDS, TEXTS),
    "chroma_vectors.json": (as_json, CHROMA | {"documents": None, "metadatas": None}, IDS, None),
    "pinecone.jsonl": (as_lines, PINECONE, IDS, None),
    "pinecone.json": (as_json, PINECONE, IDS, None),
    "pinecone_upsert.json": (as_json, {"vectors": PINECONE, "namespace": ""}, IDS, None),
    "pinecone_fetch.json": (as_json, {"namespace": "", "vectors": {row["id"]: row for row in PINECONE}}, IDS, None),
    "pinecone_query.json": (as_json, {"matches": [row | {"score": 0.5} for row in PINECONE]}, IDS, None),
    "pinecone_sparse.jsonl": (as_lines, [row | {"sparse_values": SPARSE} for row in PINECONE], IDS, None),
    "pinecone.parquet": (parquet, FLOATS | {"metadata": [json.dumps(each) for each in METADATA]}, IDS, None),
    "pinecone_sparse.parquet": (parquet, FLOATS | {"sparse_values": [SPARSE] * 12}, IDS, None),
    "milvus.json": (as_json, {"rows": MILVUS}, list(range(12)), TEXTS),
    "milvus.jsonl": (as_lines, MILVUS, list(range(12)), TEXTS),
    "milvus_query.json": (as_json, {"code": 0, "data": MILVUS}, list(range(12)), TEXTS),
    "milvus.csv": (milvus_csv, MILVUS, list(range(12)), TEXTS),
    "milvus.parquet": (parquet, {"vector": FLOATS["values"], "text": TEXTS, "$meta": ['{"page": 1}'] * 12}, IDS, TEXTS),
    "qdrant.json": (
        as_json,
        {"result": {"points": [{"id": n, "payload": METADATA[n], "vector": LISTS[n]} for n in range(12)]}},
        list(range(12)),
        [fields["source"] for fields in METADATA],  # the only column of texts
    ),
    "qdrant_named.jsonl": (
        as_lines,
        [{"id": n, "vector": {"dense": LISTS[n], "words": SPARSE}} for n in range(12)],
        list(range(12)),
        None,
    ),
    "spark.jsonl": (  # a sparse one has indices
        as_lines,
        [{"id": n, "features": {"type": 1, "indices": None, "values": LISTS[n]}} for n in range(12)],
        list(range(12)),
        None,
    ),
}
SPARSE_ALONE = {
    "pinecone.jsonl": (as_lines, [{"id": id_, "sparse_values": SPARSE} for id_ in IDS]),
    "pinecone_fetch.json": (as_json, {"vectors": {id_: {"id": id_, "sparseValues": SPARSE} for id_ in IDS}}),
    "pinecone.parquet": (parquet, {"sparse_values": [SPARSE] * 12}),
    "qdrant.json": (as_json, {"result": {"points": [{"id": n, "vector": {"words": SPARSE}} for n in range(12)]}}),
    "chroma.jsonl": (as_lines, [{"id": id_, "embedding": {"#type": "sparse_vector", **SPARSE}} for id_ in IDS]),
    "milvus.jsonl": (as_lines, [{"id": n, "vector": {"3": 0.5, "17": 0.25, "99": 0.125}} for n in range(12)]),
    "fields.jsonl": (as_lines, [SPARSE] * 12),
    "columns.parquet": (parquet, {f"sparse_{name}": [values] * 12 for name, values in SPARSE.items()}),
    "camel.jsonl": (as_lines, [{f"sparse{name.title()}": values for name, values in SPARSE.items()}] * 12),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_vectors_ids_and_texts_are_those_of_the_database(tmp_path, name):
    write, document, ids, texts = EXPORTS[name]
    write(tmp_path / name, document)
    source = open_source(tmp_path / name)
    assert source.kind == "vectors"
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), ROWS)
    rows = opened_rows(str(tmp_path / name)).read()
    assert rows.ids.to_pylist() == ids
    assert rows.texts == texts


@pytest.mark.parametrize("name", SPARSE_ALONE)
def test_sparse_vectors_are_not_read(tmp_path, name):
    write, document = SPARSE_ALONE[name]
    write(tmp_path / name, document)
    assert not holds_vectors(tmp_path / name)
    with pytest.raises(FileFormatError, match="no column of vectors"):
        open_vectors(tmp_path / name)


def test_metadata_are_columns_of_the_index(tmp_path):
    for name, prefix in (("chroma.json", "metadata."), ("pinecone.jsonl", "metadata."), ("milvus.json", "")):
        write, document, *_ = EXPORTS[name]
        write(tmp_path / name, document)
        columns = opened_rows(str(tmp_path / name)).read().metadata
        assert columns[f"{prefix}page"].to_pylist() == list(range(12))
        assert columns[f"{prefix}source"].to_pylist() == [fields["source"] for fields in METADATA]


def test_a_text_in_the_metadata_can_be_chosen(tmp_path):
    as_lines(path := tmp_path / "pinecone.jsonl", PINECONE)
    assert opened_rows(str(path), texts=str(path), column="metadata.text").read().texts == TEXTS


def test_results_of_queries_are_no_rows(tmp_path):
    document = {"ids": [IDS[:3], IDS[3:6]], "embeddings": [LISTS[:3], LISTS[3:6]], "documents": [TEXTS[:3], TEXTS[3:6]]}
    as_json(tmp_path / "chroma.json", document)
    with pytest.raises(FileFormatError, match=r"results of queries.*collection\.get"):
        open_source(tmp_path / "chroma.json")


def test_other_objects_are_no_exports(tmp_path):
    for document in ({"rows": [1, 2]}, {"data": []}, {"vectors": {}}, {"points": "none"}, {"rows": 3}):
        as_json(tmp_path / "a.json", document)
        with pytest.raises(FileFormatError, match="list of JSON objects"):
            open_source(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["ids", "documents"])
def test_a_list_beside_of_another_length_is_refused(tmp_path, name):
    as_json(tmp_path / "a.json", CHROMA | {name: CHROMA[name][:11]})
    with pytest.raises(FileFormatError, match=f"12 embeddings and 11 {name}"):
        open_source(tmp_path / "a.json")
