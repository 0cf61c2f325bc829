"""Vectors that were written out as text, and what is no vector although it looks like one."""

import base64
import json
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isosent import read_texts
from isosent.errors import FileFormatError, InputError, IsosentWarning
from isosent.io.number_lists import is_cut, kind_of, parse_numbers
from isosent.io.tables import open_table
from isosent.io.vectors import holds_vectors, open_vectors

ROWS = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
TEXTS = [f"text number {row} of a corpus" for row in range(len(ROWS))]


def numpy_text(row):
    return np.array2string(row, max_line_width=30, precision=8)


def postgres_text(row):
    return "{" + ",".join(map(repr, row.tolist())) + "}"


WRITTEN = {
    "json": lambda row: json.dumps(row.tolist()),
    "no blanks": lambda row: json.dumps(row.tolist(), separators=(",", ":")),
    "numpy": numpy_text,
    "numpy repr": repr,
    "scalars of numpy": lambda row: repr(list(row)),
    "tuple": lambda row: repr(tuple(row.tolist())),
    "postgres": postgres_text,
    "blanks": lambda row: " ".join(map(repr, row.tolist())),
    "commas": lambda row: ",".join(map(repr, row.tolist())),
    "semicolons": lambda row: "; ".join(map(repr, row.tolist())),
    "decimal commas": lambda row: ";".join(map(repr, row.tolist())).replace(".", ","),
    "tensor": lambda row: f"tensor({row.tolist()}, device='cuda:0', dtype=torch.float64)",
    "tensor with a gradient": lambda row: f"tensor([{row.tolist()}], grad_fn=<DivBackward0>)",
    "tensorflow": lambda row: f"<tf.Tensor: shape=(6,), dtype=float32, numpy={row!r}>",
    "pgvector": lambda row: f"Vector({row.tolist()})",
    "quoted": lambda row: json.dumps(list(map(repr, row.tolist()))),
    "savetxt": lambda row: " ".join(f"{number:.18e}" for number in row),
}


def read(path, **settings):
    return np.concatenate(list(open_vectors(path, **settings).blocks()))


def write_table(path, columns):
    """A table of texts and vectors, which are texts in .csv and .tsv, as pandas writes it."""
    frame = pd.DataFrame(columns)
    ending = path.name.partition(".")[2]
    if ending == "parquet":
        pq.write_table(pa.table({name: pa.array(list(values)) for name, values in columns.items()}), path)
    elif ending in ("jsonl", "json"):
        frame.to_json(path, orient="records", lines=ending == "jsonl", double_precision=15)
    elif ending == "tsv":
        lines = ["\t".join(columns), *("\t".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", WRITTEN)
def test_vectors_that_were_written_as_text_are_read(form, tmp_path):
    written = [WRITTEN[form](row) for row in ROWS]
    for name, values in (("t.csv", written), ("t.jsonl", written), ("t.parquet", written)):
        path = write_table(tmp_path / name, {"text": TEXTS, "openai": values})
        with pytest.warns(IsosentWarning, match=r"column openai .* column='text'"):
            assert holds_vectors(path)
        np.testing.assert_allclose(read(path), ROWS, rtol=1e-6, atol=1e-8)
        assert read_texts(path) == TEXTS
        with pytest.raises(FileFormatError, match="openai holds vectors, not texts"):
            read_texts(path, column="openai")


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("name", ["emb", "vec", "embedding", "text-embedding-3-small", "data"])
def test_a_column_is_seen_by_its_content_in_every_format(name, ending, tmp_path):
    path = write_table(tmp_path / f"t.{ending}", {"text": TEXTS, name: ROWS.tolist()})
    with pytest.warns(IsosentWarning, match=f"column {name} "):
        assert holds_vectors(path)
    assert holds_vectors(path, column=name)
    assert not holds_vectors(path, column="text")
    np.testing.assert_allclose(read(path), ROWS, rtol=1e-6)
    np.testing.assert_allclose(read(path, column=name), ROWS, rtol=1e-6)
    assert open_vectors(path).column == name


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["(3, 4)", "(1, 2)"], "lists"),
        (["12 34", "5 678"], "lists"),
        (["+49 30 1234567", "+49 89 7654321", "+1 555 0123"], "lists"),
        (["2024-01-02", "2024-02-03"], None),
        (["3.5 stars", "it costs 4,50"], None),
        (["0.5 0.5 1.0"], "lists"),
        (["12", "34", "56"], None),
        (["1.5", "2.5"], None),
        (["1, 2, 3 ...", "and so on"], None),
        (["wait ...", "what?"], None),
        (["see [1, 2, 3]", "[4, 5, 6]"], None),
        ([[101, 7592, 102], [101, 2088, 102]], "lists"),
        ([[0.1, 0.2], [0.3, 0.4]], "lists"),
        ([[0.1, 0.2, 0.3], [0.4]], "lists"),
        ([["a", "b"], ["c"]], None),
        ([[True, False, True]], None),
        ([[0.1, 0.2, 0.3], [1, 0, 0]], "vectors"),
        ([None, "", "nan", "[0.1, 0.2, 0.3]"], "vectors"),
        ([[0.1, 0.2, 0.3]] * 4 + [[0.1, 0.2]], "vectors"),
        ([[0.1, 0.2, 0.3]] * 4 + ["error"], "vectors"),
        ([None, None], None),
        ([{"a": 1}], None),
    ],
)
def test_few_or_whole_numbers_are_no_vectors(texts, kind):
    assert kind_of(texts) == kind


@pytest.mark.parametrize("text", ["(3, 4)", "12 34", "+49 30 1234567", "7, 8 and 9", "[sic]", "1, 2, 3 ..."])
def test_texts_of_numbers_stay_texts(text, tmp_path):
    for name, content in (("t.txt", f"{text}\n{text}\n"), ("t.csv", f'text\n"{text}"\n"{text}"\n')):
        (tmp_path / name).write_text(content)
        assert not holds_vectors(tmp_path / name)
        assert read_texts(tmp_path / name) == [text] * 2


def test_a_name_makes_vectors_of_whole_numbers(tmp_path):
    path = write_table(tmp_path / "t.jsonl", {"text": ["a", "b"], "codes": [[1, 0], [0, 3]]})
    assert not holds_vectors(path)
    assert holds_vectors(path, column="codes")
    np.testing.assert_array_equal(read(path, column="codes"), [[1, 0], [0, 3]])
    path = write_table(tmp_path / "u.jsonl", {"id": [1, 2], "codes": [[1, 0], [0, 3]]})
    np.testing.assert_array_equal(read(path), [[1, 0], [0, 3]])


CUT = {
    "numpy": lambda: str(np.linspace(0, 1, 1500)),
    "numpy repr": lambda: repr(np.linspace(0, 1, 1500)),
    "torch": lambda: "tensor([0.1000, 0.2000, 0.3000,  ..., 0.4000, 0.5000])",
    "pandas": lambda: "[0.123456, 0.234567, 0.34...",
    "a cell at its longest": lambda: json.dumps(np.linspace(0, 1, 3000).tolist())[:32767],
    "node": lambda: "[ 0.1, 0.2, 0.3, ... 1533 more items ]",
}


@pytest.mark.parametrize("form", CUT)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_vectors_that_lack_numbers_are_refused_with_their_row(form, ending, tmp_path):
    assert is_cut(CUT[form]())
    path = write_table(tmp_path / f"t.{ending}", {"text": ["a", "b"], "emb": [CUT[form]()] * 2})
    place = {"csv": "line [23]", "jsonl": "line 1", "parquet": "row 0"}[ending]
    for column in (None, "emb"):
        for ask in (holds_vectors, open_vectors):
            with pytest.raises(FileFormatError, match=rf"{place}.*emb lacks numbers.*numpy\.save"):
                ask(path, column=column)
    assert not holds_vectors(path, column="text")
    with pytest.raises(FileFormatError, match=r"emb holds vectors.*Numbers are missing"):
        read_texts(path, column="emb")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("", "row 1.*lacks a vector"),
        (None, "row 1.*lacks a vector"),
        ("[0.1, 0.2]", "row 1.*has 2 numbers, and the first has 9"),
        ("[]", "row 1.*lacks a vector"),
        (str([0.1] * 8 + [float("nan")]), "row 1.*not finite"),
        (str([0.1] * 8 + [None]), "row 1.*lacks a number"),
        ("error 500", "row 1.*'error 500', not a list of numbers"),
    ],
)
@pytest.mark.parametrize("name", ["embedding", "x"])
def test_a_row_without_its_vector_is_named(name, second, words, tmp_path):
    vector = str([0.25] * 9)
    table = pa.table({"text": ["a", "b", "c", "d"], name: [vector, second, vector, vector]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(FileFormatError, match=words):
        open_vectors(tmp_path / "t.parquet")


def test_a_first_row_without_a_vector_hides_nothing(tmp_path):
    path = write_table(tmp_path / "t.csv", {"text": TEXTS, "emb": ["", *map(str, ROWS[1:].tolist())]})
    with pytest.warns(IsosentWarning, match="emb"):
        assert holds_vectors(path)
    with pytest.raises(FileFormatError, match="line 2 lacks a vector"):
        open_vectors(path)
    (tmp_path / "t.jsonl").write_text('{"id": 1}\n' + json.dumps({"id": 2, "emb": [0.1, 0.2, 0.3]}) + "\n")
    with pytest.raises(FileFormatError, match="line 1 lacks a vector"):
        open_vectors(tmp_path / "t.jsonl")


@pytest.mark.filterwarnings("ignore:.*separated by semicolons")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("v.txt", {}),
        ("v.txt", {"delimiter": ","}),
        ("v.dat", {"fmt": "%.9g"}),
        ("v.csv", {"delimiter": ","}),
        ("v.csv", {"delimiter": ";"}),
        ("v.csv", {"delimiter": "\t"}),
        ("v.tsv", {"delimiter": "\t"}),
        ("v.txt", {"header": "six numbers a row"}),
    ],
)
def test_lines_of_numpy_are_vectors(name, settings, tmp_path):
    np.savetxt(tmp_path / name, ROWS, **settings)
    assert holds_vectors(tmp_path / name)
    np.testing.assert_allclose(read(tmp_path / name), ROWS, rtol=1e-6)
    np.testing.assert_allclose(next(open_vectors(tmp_path / name).part(3, 4).blocks(2)), ROWS[5:7], rtol=1e-6)
    with pytest.raises(FileFormatError, match="not texts"):
        read_texts(tmp_path / name)


@pytest.mark.parametrize("is_first", [True, False])
def test_lines_of_texts_may_begin_as_comments_do(is_first, tmp_path):
    tags, numbers = [f"#tag{n} a nice text" for n in range(150)], ["1.5 2.5 3.5"] * 3
    lines = tags + numbers if is_first else numbers + tags
    (tmp_path / "t.txt").write_text("\n".join(lines))
    assert not holds_vectors(tmp_path / "t.txt")
    assert read_texts(tmp_path / "t.txt") == lines


def test_a_comment_between_lines_of_numbers_is_named(tmp_path):
    np.savetxt(tmp_path / "v.txt", np.tile(ROWS, 2), header="of a model\nnumpy 2", footer="end\n2 more")
    np.testing.assert_array_equal(read(tmp_path / "v.txt"), np.tile(ROWS, 2))
    with pytest.raises(FileFormatError, match="vectors, not texts"):
        read_texts(tmp_path / "v.txt")
    with (tmp_path / "v.txt").open("a") as file:
        np.savetxt(file, np.tile(ROWS, 2))
    assert holds_vectors(tmp_path / "v.txt")
    with pytest.raises(FileFormatError, match=r"line 15.*'# end"):
        open_vectors(tmp_path / "v.txt")


@pytest.mark.filterwarnings("ignore:.*separated by semicolons")
@pytest.mark.parametrize(
    "settings", [{}, {"index": False}, {"sep": ";"}, {"sep": ";", "decimal": ","}, {"header": False, "index": False}]
)
def test_an_array_that_pandas_wrote_is_read_without_its_row_numbers(settings, tmp_path):
    pd.DataFrame(ROWS).to_csv(tmp_path / "v.csv", **settings)
    assert holds_vectors(tmp_path / "v.csv")
    np.testing.assert_allclose(read(tmp_path / "v.csv"), ROWS, rtol=1e-6)


def test_a_line_of_numbers_that_is_missing_or_longer_is_named(tmp_path):
    lines = [" ".join(map(repr, row.tolist())) for row in ROWS]
    lines = [f"{line} {line}" for line in lines]
    for place, line, words in (
        (4, "", "line 5 lacks"),
        (4, "0.5 1.5", "line 5.*has 2 numbers"),
        (0, "", "line 1 lacks"),
    ):
        (tmp_path / "v.txt").write_text("\n".join([*lines[:place], line, *lines[place:]]) + "\n\n")
        assert holds_vectors(tmp_path / "v.txt")
        with pytest.raises(FileFormatError, match=words):
            open_vectors(tmp_path / "v.txt")


def test_several_columns_of_vectors_are_asked_for(tmp_path):
    for ending in ("csv", "jsonl", "parquet"):
        path = write_table(tmp_path / f"t.{ending}", {"a": ROWS.tolist(), "b": (2 * ROWS).tolist()})
        with pytest.raises(InputError, match=r"2 columns of vectors \(a, b\).*column='NAME'"):
            open_vectors(path)
        np.testing.assert_allclose(read(path, column="b"), 2 * ROWS, rtol=1e-6)


def test_vectors_in_objects_are_columns(tmp_path):
    objects = [{"id": n, "data": {"embedding": row.tolist(), "n": n}} for n, row in enumerate(ROWS)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, objects)))
    (tmp_path / "t.json").write_text(json.dumps(objects))
    pq.write_table(pa.Table.from_pylist(objects), tmp_path / "t.parquet")
    for ending in ("jsonl", "json", "parquet"):
        source = open_vectors(tmp_path / f"t.{ending}")
        assert source.column == "data.embedding"
        np.testing.assert_allclose(np.concatenate(list(source.blocks())), ROWS, rtol=1e-6)


@pytest.mark.parametrize("kind", [pa.list_(pa.float16()), pa.list_(pa.float64(), 6), pa.large_list(pa.float32())])
def test_types_of_parquet_lists_make_no_difference(kind, tmp_path):
    values = pa.array(list(ROWS.astype(np.float16)), pa.list_(pa.float16())).cast(kind)
    pq.write_table(pa.table({"text": TEXTS, "openai": values}), tmp_path / "t.parquet")
    with pytest.warns(IsosentWarning, match="openai"):
        assert holds_vectors(tmp_path / "t.parquet")
    np.testing.assert_array_equal(read(tmp_path / "t.parquet"), ROWS.astype(np.float16))


def packed(row):
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def items(rows, encode=np.ndarray.tolist):
    """What OpenAI answers, not in the order of the texts."""
    listed = [{"object": "embedding", "index": n, "embedding": encode(row)} for n, row in enumerate(rows)]
    return listed[::-1]


ANSWERS = {
    "openai": {"object": "list", "data": items(ROWS), "model": "text-embedding-3-small", "usage": {"total_tokens": 5}},
    "openai, base64": {"object": "list", "data": items(ROWS, packed)},
    "the list of openai": items(ROWS),
    "ollama": {"model": "nomic", "embeddings": ROWS.tolist(), "total_duration": 1},
    "cohere": {
        "id": "x",
        "embeddings": {"float": ROWS.tolist()},
        "texts": TEXTS,
        "response_type": "embeddings_by_type",
    },
    "cohere, base64": {"embeddings": {"float": None, "base64": list(map(packed, ROWS))}},
    "gemini": {"embeddings": [{"values": row.tolist()} for row in ROWS]},
    "vertex": {"predictions": [{"embeddings": {"values": row.tolist(), "statistics": {}}} for row in ROWS]},
    "tei": ROWS.tolist(),
}


@pytest.mark.filterwarnings("ignore:.*its texts or labels in text")  # Cohere returns them
@pytest.mark.parametrize("api", ANSWERS)
def test_answers_of_apis_are_vectors(api, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ANSWERS[api], indent=1))
    assert holds_vectors(tmp_path / "a.json")
    np.testing.assert_array_equal(read(tmp_path / "a.json"), ROWS)
    if isinstance(ANSWERS[api], dict):
        (tmp_path / "a.jsonl").write_text(f"{json.dumps(ANSWERS[api])}\n{json.dumps(ANSWERS[api])}\n")
        np.testing.assert_array_equal(read(tmp_path / "a.jsonl"), np.concatenate([ROWS, ROWS]))


def batch(rows, encode=np.ndarray.tolist):
    return [
        {
            "id": f"r{n}",
            "custom_id": f"doc-{n}",
            "response": {"status_code": 200, "body": {"data": items([row], encode)}},
        }
        | {"error": None}
        for n, row in enumerate(rows)
    ]


@pytest.mark.parametrize("encode", [np.ndarray.tolist, packed])
def test_a_batch_file_of_openai_is_vectors(encode, tmp_path):
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, batch(ROWS, encode))))
    assert holds_vectors(tmp_path / "b.jsonl")
    np.testing.assert_array_equal(read(tmp_path / "b.jsonl"), ROWS)
    with pytest.raises(InputError, match="vectors, not texts"):
        read_texts(tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"response": None, "error": {"code": "batch_expired", "message": "This request expired."}}, "expired"),
        ({"response": {"status_code": 429, "body": {"error": {"message": "Rate limit"}}}}, "Rate limit"),
        ({"response": {"status_code": 500, "body": {}}}, "status 500"),
        ({"response": {"status_code": 200, "body": {"data": []}}}, "no embedding"),
    ],
)
def test_a_request_that_failed_is_named(change, words, tmp_path):
    lines = batch(ROWS)
    lines[3] |= change
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for ask in (holds_vectors, open_vectors):
        with pytest.raises(FileFormatError, match=rf"line 4, custom_id 'doc-3'.*{words}"):
            ask(tmp_path / "b.jsonl")


@pytest.mark.parametrize("row", [{"response": "a text here"}, {"response": "a text here", "error": "a typo"}])
def test_texts_that_are_called_responses_are_no_batch(row, tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"custom_id": name} | row) for name in "abc"))
    assert read_texts(tmp_path / "t.jsonl", column="response") == ["a text here"] * 3


def test_an_answer_that_lacks_an_index_is_refused(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"data": items(ROWS)[1:]} | {"object": "list"}))
    assert holds_vectors(tmp_path / "a.json")  # the last one is missing, which nothing shows
    (tmp_path / "a.json").write_text(json.dumps({"object": "list", "data": items(ROWS)[:-1]}))
    with pytest.raises(FileFormatError, match="index of its 11 embeddings"):
        open_vectors(tmp_path / "a.json")


def test_the_index_0_may_be_left_out_and_none_is_a_list(tmp_path):
    answer = {"object": "list", "data": items(ROWS)[::-1]}
    del answer["data"][0]["index"]
    (tmp_path / "a.json").write_text(json.dumps(answer))
    np.testing.assert_array_equal(read(tmp_path / "a.json"), ROWS)
    for index in ([0], "0", 0.0, False, None):
        answer["data"][0]["index"] = 1 if index is None else index
        answer["data"][1]["index"] = index if index is None else 1
        (tmp_path / "a.json").write_text(json.dumps(answer))
        with pytest.raises(FileFormatError, match="index of its 12 embeddings"):
            open_vectors(tmp_path / "a.json")


def test_rows_of_a_table_are_no_answers(tmp_path):
    rows = [
        {"text": "a b", "embeddings": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]},
        {"text": "c", "embeddings": [[0.1, 0.2, 0.3]]},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_texts(tmp_path / "t.jsonl") == ["a b", "c"]


def test_a_row_with_an_id_is_no_answer(tmp_path):
    rows = [{"id": f"doc{n}", "embeddings": [row.tolist()]} for n, row in enumerate(ROWS)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    np.testing.assert_array_equal(read(tmp_path / "t.jsonl"), ROWS)
    with open_table(tmp_path / "t.jsonl") as table:
        assert [value for _, (value,) in table.rows("id")] == [row["id"] for row in rows]


@pytest.mark.parametrize("ending", ["json", "jsonl"])
@pytest.mark.parametrize("mark", [{}, {"object": "embedding"}])
@pytest.mark.filterwarnings("ignore:.*vectors in its column embedding are used")
def test_a_table_in_data_keeps_its_columns(mark, ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    rows = [{"id": f"d{n}", "text": TEXTS[n], "embedding": row.tolist()} | mark for n, row in enumerate(ROWS)]
    document = {"data": rows} | ({"version": 1} if ending == "json" else {})
    path.write_text(json.dumps(document))
    np.testing.assert_array_equal(read(path), ROWS)
    assert read_texts(path, column="text") == TEXTS
    assert read_texts(path, column="id") == [row["id"] for row in rows]


def test_a_number_too_large_for_a_float_is_no_number(tmp_path):
    rows = [{"text": "a text", "n": 10**400, "emb": [0.1, 0.2, 10**400]}] * 3
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_texts(tmp_path / "t.jsonl") == ["a text"] * 3
    assert not holds_vectors(tmp_path / "t.jsonl", column="text")
    with pytest.raises(InputError, match="emb holds no vectors"):
        open_vectors(tmp_path / "t.jsonl", column="emb")


def test_one_value_is_read_as_python_reads_it():
    assert parse_numbers("[1e-05, -2.5, .5, 3.]").numbers == [1e-05, -2.5, 0.5, 3.0]
    assert parse_numbers("[Decimal('0.1'), np.float64(2e3)]").numbers == [0.1, 2e3]
    assert parse_numbers("[1_000, 2]") is None
    assert parse_numbers("[__import__('os'), 2]") is None


@pytest.mark.parametrize(
    "name", ["scores", "bbox", "class_probabilities", "input_ids", "location", "tokenIds", "bbox2"]
)
def test_numbers_that_are_called_something_else_are_no_vectors(name, tmp_path):
    path = write_table(tmp_path / "t.jsonl", {"text": ["a", "b"], name: [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]})
    assert not holds_vectors(path)
    assert read_texts(path) == ["a", "b"]
    assert holds_vectors(path, column=name)


@pytest.mark.parametrize("name", ["sentiment", "problem", "account", "geology", "strange", "valid"])
@pytest.mark.filterwarnings("ignore:.*vectors in its column")
def test_a_part_of_a_word_says_nothing_of_a_column(name, tmp_path):
    rows = [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]
    path = write_table(tmp_path / "t.jsonl", {"text": ["a", "b"], name: rows})
    assert holds_vectors(path)


def test_lines_that_begin_with_the_number_of_their_row_are_refused(tmp_path):
    lines = [f"{n} " + " ".join(map(repr, row.tolist())) for n, row in enumerate(ROWS)]
    (tmp_path / "v.txt").write_text("\n".join(lines))
    with pytest.raises(FileFormatError, match="number of its row"):
        holds_vectors(tmp_path / "v.txt")


def test_ids_of_a_batch_of_gemini_and_of_chroma_are_kept(tmp_path):
    lines = [{"key": f"r{n}", "response": {"embedding": {"values": row.tolist()}}} for n, row in enumerate(ROWS)]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ids = [line["key"] for line in lines]
    (tmp_path / "c.json").write_text(json.dumps({"ids": ids, "embeddings": ROWS.tolist(), "documents": TEXTS}))
    for name in ("b.jsonl", "c.json"):
        np.testing.assert_array_equal(read(tmp_path / name), ROWS)
        with open_table(tmp_path / name) as table:
            assert [value for _, (value,) in table.rows("id")] == ids
    assert read_texts(tmp_path / "c.json") == TEXTS


@pytest.mark.parametrize("n_columns", [3, 40, 2000])
def test_a_matrix_that_was_printed_is_refused(n_columns, tmp_path):
    (tmp_path / "v.txt").write_text(str(np.random.default_rng(0).normal(size=(5, n_columns))))
    for ask in (holds_vectors, open_vectors, read_texts):
        with pytest.raises(FileFormatError, match=r"numpy\.save"):
            ask(tmp_path / "v.txt")


UNCLEAR = ["[1,234.5, 0.25, 0.5]", "[0,25, -0,5, 1,125]", "[0,25,-0,5,1,125]", "[0,05,1,25,1,125]"]


@pytest.mark.parametrize("value", UNCLEAR)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_commas_that_may_be_a_part_of_numbers_are_refused(value, ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    frame = pd.DataFrame({"text": ["a b", "c d"], "emb": [value, value]})
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_json(path, orient="records", lines=True)
    for column in (None, "emb"):
        with pytest.raises(FileFormatError, match="commas in column emb"):
            open_vectors(path, column=column)


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("[0.5,0.25, 1.5]", [0.5, 0.25, 1.5]),
        ("[0,5 1 0,25]", [0.5, 1, 0.25]),
        ("[0,5; 1; 0,25]", [0.5, 1, 0.25]),
        ("[-0.0,1e-05,2.5,]", [-0.0, 1e-05, 2.5]),
    ],
)
def test_commas_that_are_clear_are_read(value, numbers, tmp_path):
    pd.DataFrame({"text": ["a b"] * 3, "emb": [value] * 3}).to_csv(tmp_path / "t.csv", index=False)
    np.testing.assert_allclose(next(open_vectors(tmp_path / "t.csv").blocks()), [numbers] * 3)


ROW = np.array([0.5, -0.25, 1.5, 2.0], "<f4")
UNREAD = {
    "base64": base64.b64encode(ROW.tobytes()).decode(),
    "bytes, printed": repr(ROW.tobytes()),
    "exponents of Fortran": "[1.0D-01, 2.5D-01, 5.0D-01]",
    "a minus of typography": "[\u22120.5, 0.25, 0.5]",
    "hexadecimal": "\\x3f800000bf800000",
    "sparse": "{1:0.5,3:0.25}/5",
}


@pytest.mark.parametrize("form", UNREAD)
def test_one_line_says_that_a_column_of_vectors_is_not_read(form, tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"text": ["a text"] * 3, "embedding": [UNREAD[form]] * 3}).to_csv(path, index=False)
    with pytest.warns(IsosentWarning, match="texts are used; embedding"):
        assert not holds_vectors(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not holds_vectors(path, column="text")


def test_packed_bytes_and_whole_numbers_are_mentioned(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["a text"] * 3, "vector": [ROW.tobytes()] * 3}), path)
    with pytest.warns(IsosentWarning, match="texts are used; vector"):
        assert not holds_vectors(path)
    pd.DataFrame({"text": ["a text"] * 3, "int8": [list(range(-5, 5))] * 3}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(IsosentWarning, match="texts are used; int8"):
        assert not holds_vectors(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("prefix", "first"), [("d", 0), ("", 0), ("emb_", 1)])
def test_vectors_that_are_spread_over_columns_are_mentioned(ending, prefix, first, tmp_path):
    frame = pd.DataFrame({"text": ["a text", "b text"]} | {f"{prefix}{n + first}": [0.5, n] for n in range(16)})
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        pq.write_table(pa.Table.from_pandas(frame), path)
    with pytest.warns(IsosentWarning, match=f"texts are used; {prefix}{first} to {prefix}{first + 15}"):
        assert not holds_vectors(path)


@pytest.mark.parametrize("name", ["year", "phone", "embedding_model"])
def test_other_columns_next_to_texts_are_not_mentioned(name, tmp_path):
    value = {"year": "(2019)", "phone": "(030) 12 34 56", "embedding_model": "text-embedding-3-small"}[name]
    pd.DataFrame({"text": ["a text"] * 3, name: [value] * 3, "q1": 1, "q2": 2}).to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not holds_vectors(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_many_first_rows_without_a_vector_hide_nothing(ending, tmp_path):
    path = tmp_path / f"t.{ending}"
    frame = pd.DataFrame({"text": ["a text"] * 1201, "emb": [None] * 1200 + [str(ROW.tolist())]})
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        pq.write_table(pa.Table.from_pandas(frame), path)
    with pytest.warns(IsosentWarning, match="vectors in its column emb are used"):
        assert holds_vectors(path)
    with pytest.raises(FileFormatError, match="lacks a vector"):
        open_vectors(path)


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    lines = ['a text,"[0.5, 0.25, 1.5]","[1.5, 2.5, 3.5]"'] * 3
    (tmp_path / "t.csv").write_text("\n".join(["text,emb,emb", *lines]))
    with pytest.raises(FileFormatError, match="'emb' twice"):
        open_vectors(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_columns_may_be_missing_in_the_first_row(ending, tmp_path):
    rows = [{"other": 1, "text": "one"}, {"text": "two", "title": "x"}]
    content = json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows))
    (tmp_path / f"t.{ending}").write_text(content)
    with open_table(tmp_path / f"t.{ending}") as table:
        assert table.columns == ("other", "text", "title")
    (tmp_path / f"t.{ending}").write_text(content.replace('"other": 1, "text": "one"', '"other": 1'))
    with pytest.raises(FileFormatError, match=r"(line 1|row 0).*no column text"):
        read_texts(tmp_path / f"t.{ending}")


def test_a_tensor_and_decimals_of_parquet_are_vectors(tmp_path):
    rows = [[0.5, 0.25, 1.5], [1.5, 2.5, 3.5]]
    tensors = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [3]), pa.array(rows, pa.list_(pa.float32(), 3))
    )
    decimals = pa.array([[Decimal(str(number)) for number in row] for row in rows])
    for values in (tensors, decimals):
        pq.write_table(pa.table({"text": ["a b", "c d"], "v": values}), tmp_path / "t.parquet")
        np.testing.assert_array_equal(next(open_vectors(tmp_path / "t.parquet").blocks()), rows)


@pytest.mark.parametrize("dtype", ["i1", "<f2", "<f8"])
def test_base64_of_another_type_than_float32_is_refused(dtype, tmp_path):
    rng = np.random.default_rng(0)
    row = (rng.normal(size=256) * (40 if dtype == "i1" else 0.1)).astype(dtype)
    answer = {"data": [{"object": "embedding", "index": 0, "embedding": base64.b64encode(row.tobytes()).decode()}]}
    (tmp_path / "a.json").write_text(json.dumps(answer))
    with pytest.raises(FileFormatError, match="float32"):
        open_vectors(tmp_path / "a.json")


@pytest.mark.parametrize("ending", ["csv", "txt"])
@pytest.mark.parametrize("separator", [";", ",", "|"])
def test_a_separator_line_of_excel_is_no_row(tmp_path, ending, separator):
    rows = np.random.default_rng(0).normal(size=(4, 5))
    path = tmp_path / f"v.{ending}"
    np.savetxt(path, rows, delimiter=separator, header=f"sep={separator}", comments="")
    np.testing.assert_array_equal(read(path), rows.astype(np.float32))


@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", ","), (" ", ".")])
def test_a_first_row_that_counts_is_a_header_only_if_no_other_row_holds_whole_numbers(tmp_path, separator, decimal):
    rows = np.random.default_rng(0).normal(size=(6, 4))
    rows[2, 1] = 3
    path = tmp_path / "v.txt"
    pd.DataFrame(rows).to_csv(path, sep=separator, decimal=decimal, index=False)
    np.testing.assert_array_equal(read(path), rows.astype(np.float32))
    rows[0] = range(4)
    np.savetxt(path, rows, fmt="%g", delimiter=",")
    with pytest.raises(FileFormatError, match=r"first line counts from 0"):
        open_vectors(path)
    np.savetxt(path, rows, delimiter=",")
    np.testing.assert_array_equal(read(path), rows.astype(np.float32))
