import json
import xml.etree.ElementTree as ET

import pytest

from isosent.evaluation.sts import read_sts

SMALL = "tokenizer=whitespace&weighting=gem&window=2&n_candidates=3&n_removed=2"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb):
    """STS-B in miniature, and a vector of four numbers for each of its words."""
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data")
    words = {word for task in read_sts("data") for text in task.target_texts for word in text.lower().split()}
    rows = (
        [word, *(f"0.{1 + 7 * len(word) * (k + number) % 9}" for k in range(4))]
        for number, word in enumerate(sorted(words))
    )
    (tmp_path / "vectors.txt").write_text("".join(" ".join(row) + "\n" for row in rows))
    return tmp_path


def test_a_study_is_printed_and_written(isosent_, here):
    outputs = ("-o", "gem.csv", "-o", "gem.json", "-o", "gem.svg")
    finished = isosent_("research", "study", "gem", "--data", "data", "-m", f"words:vectors.txt?{SMALL}", *outputs)
    assert finished.code == 0, finished.err
    cells = json.loads((here / "gem.json").read_text())["results"]
    assert list(dict.fromkeys(cell["study"] for cell in cells)) == [
        *("ablation", "window", "candidates", "removed", "power")
    ]
    assert len((here / "gem.csv").read_text().splitlines()) == 1 + len(cells)
    assert ET.parse(here / "gem.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    line, other = [line for line in finished.out.splitlines() if "novelty + significance" in line]
    (cell,) = [cell for cell in cells if cell["condition"] == "novelty + significance"]
    assert f"{100 * cell['pearson']:.2f}" in line
    assert f"{100 * cell['spearman']:.2f}" in other
    assert "words:vectors.txt" in finished.out


def test_what_cannot_be_written_is_refused_first(isosent_, refuses):
    refuses(isosent_("research", "study", "gem", "--data", "data", "-o", "gem.gif"), "gem.gif")
    refuses(isosent_("research", "study", "gem", "--data", "data", "-o", "no/gem.csv"), "there is no folder")


def test_models_that_are_no_plain_word_vectors_are_refused(isosent_, refuses):
    refuses(
        isosent_(
            "research", "study", "gem", "--data", "data", "-m", "words:vectors.txt?tokenizer=whitespace&zipfian=true"
        ),
        "study gem: words:vectors.txt?tokenizer=whitespace&zipfian=true is not word vectors with weighting=mean or gem",
    )
    refuses(
        isosent_("research", "study", "gem", "--data", "data", "-m", "words:vectors.txt"), "at most 4, the dimensions"
    )
