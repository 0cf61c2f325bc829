import csv
import json

import pytest

from isosent.evaluation.sts import read_sts


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb):
    """STS-B in miniature."""
    pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data", n_pairs=30)
    return tmp_path


def test_every_kind_of_index_is_measured(isosent_, here):
    finished = isosent_("research", "study", "retrieval", "--data", "data", "-o", "r.csv", "-o", "r.json")
    assert finished.code == 0, finished.err
    cells = json.loads((here / "r.json").read_text())["results"]
    # ivf needs more rows than these, and is flat
    kinds = [("flat", store) for store in ("float32", "float16", "int8", "binary", "product")] * 2
    kinds += [("hnsw", store) for store in ("float32", "float16", "int8")]
    vectors = ("as they are", "principal_components 128", "whitening 128")
    expected = [(name, *kind) for name in vectors for kind in kinds]
    assert [(cell["vectors"], cell["kind"], cell["store"]) for cell in cells] == expected
    assert {cell["n_rows"] for cell in cells} == {len({text for task in read_sts("data") for text in task.texts})}
    assert [cell["bytes_searched"] for cell in cells[:5]] == [1024, 512, 256, 40, 16]
    assert cells[0]["recall"] == 1.0
    assert all(cell["recall"] >= 0.95 for cell in cells[: len(kinds)])
    assert all(0 <= cell["labelled_recall"] <= 1 and cell["plain_queries_per_s"] > 0 for cell in cells)
    assert len(list(csv.DictReader((here / "r.csv").read_text().splitlines()))) == len(cells)
    lines = [line for line in finished.out.splitlines() if line.startswith("│ flat ")]
    assert f"{100 * cells[0]['labelled_recall']:.2f}" in lines[0]


def test_there_is_no_figure(isosent_, refuses):
    refuses(
        isosent_("research", "study", "retrieval", "--data", "data", "-o", "r.svg"), "there is no figure of this study"
    )
