import pytest

from isosent.encoders.reference import SCHEMES, parse_reference
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.evaluation.published import PAPERS, TARGET, known_models, known_paper, read_paper
from isosent.research.reproduce import EVALUATED, reproduce
from isosent.transforms.base import TRANSFORMS

TABLES = {
    "bert-whitening": ["table 1", "table 2", "figure 1"],
    "whitening-bert": ["table 1", "figure 1", "figure 2", "appendix, RTE", "appendix, other pretrained models"],
    "gem": ["table 1", "table 2", "table 3", "table 4", "table 4, SUBJ", "table 5", "figure 2"],
    "sentence-bert": [f"table {number}" for number in range(1, 8)],
}
ROWS = {
    ("bert-whitening", "table 1", "BERT-base first-last-avg"): (57.86, 61.97, 62.49, 70.96, 69.76, 59.04, 63.75),
    ("bert-whitening", "table 1", "BERT-base whitening(NLI)"): (61.69, 65.70, 66.02, 75.11, 73.11, 68.19, 63.6),
    ("bert-whitening", "table 1", "BERT-base whitening-256(NLI)"): (61.46, 66.71, 66.17, 74.82, 72.10, 67.51, 64.9),
    ("bert-whitening", "table 1", "BERT-base whitening(target)"): (63.62, 73.02, 69.23, 74.52, 72.15, 71.34, 60.6),
    ("bert-whitening", "table 1", "BERT-base whitening-256(target)"): (63.89, 73.76, 69.08, 74.59, 74.40, 71.43, 62.2),
    ("bert-whitening", "table 1", "BERT-base flow(NLI)"): (59.54, 64.69, 64.66, 72.92, 71.84, 58.56, 65.44),
    ("bert-whitening", "table 1", "BERT-base flow(target)"): (63.48, 72.14, 68.42, 73.77, 75.37, 70.72, 63.11),
    ("sentence-bert", "table 1", "Avg. GloVe embeddings"): (55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76),
    ("sentence-bert", "table 1", "Avg. BERT embeddings"): (38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40),
    ("sentence-bert", "table 1", "BERT CLS-vector"): (20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63),
    ("sentence-bert", "table 1", "SBERT-NLI-base"): (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91),
    ("others", "MTEB", "all-MiniLM-L6-v2"): (72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.58),
    ("others", "Zipfian whitening", "GloVe 840B mean"): (56.46, 50.41, 51.13, 58.60, 49.03, 46.17, 57.01),
}
STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")


def every_condition():
    for name in PAPERS:
        for table in known_paper(name).tables:
            yield from ((table, condition) for condition in table.conditions)


def published(paper, table, label):
    (found,) = [table_ for table_ in known_paper(paper).tables if table_.name == table]
    (condition,) = [condition for condition in found.conditions if condition.label == label]
    return condition.published


@pytest.mark.parametrize("paper", TABLES)
def test_every_table_and_figure_has_its_entry(paper):
    assert [table.name for table in known_paper(paper).tables] == TABLES[paper]


def test_every_condition_can_be_written_as_isosent_takes_it():
    for table, condition in every_condition():
        assert condition.transform in (None, *TRANSFORMS)
        assert condition.fit in (None, TARGET, EVALUATED, *known_models())
        known = known_models().get(condition.model)
        if known is not None:
            parsed = parse_reference(known.reference, condition.options)
            assert set(condition.options) <= set(SCHEMES[parsed.scheme].options)
        assert table.source


@pytest.mark.parametrize(("paper", "table", "label"), ROWS)
def test_numbers_are_those_of_the_papers(paper, table, label):
    assert tuple(published(paper, table, label)[task] for task in STS) == ROWS[paper, table, label]


def test_numbers_of_other_tasks_are_those_of_the_papers():
    assert published("gem", "table 1", "GEM + L.F.P") == {"dev": 82.1, "test": 77.5}
    assert published("gem", "table 1", "mean of GloVe") == {"dev": 52.4, "test": 40.6}
    assert published("gem", "table 1", "mean of LexVec") == {"dev": 58.78, "test": 50.43}
    assert published("gem", "table 2", "GEM + L.F.P") == {"test of 2017": 48.97}
    assert list(published("gem", "table 3", "GEM + GloVe").values()) == [
        *(78.8, 81.1, 93.1, 89.4, 83.6, 88.6, 73.4, 82.3, 86.3, 85.3)
    ]
    assert not {"MRPC", "MRPC, F1"} & published("gem", "table 3", "SIF").keys()
    assert published("gem", "table 4", "novelty, significance + SDR") == {"dev": 81.9}
    assert published("gem", "table 4, SUBJ", "novelty + SDR") == {"SUBJ": 93.42}
    assert published("gem", "table 5", "SkipThought") == {"CPU": 64}
    assert published("gem", "table 5", "GEM + L.F.P") == {"CPU": 137}
    assert published("sentence-bert", "table 6", "NLI, (u, v, |u-v|)") == {"STSB dev": 80.78}
    assert published("bert-whitening", "figure 1", "(a) BERT-base (NLI)") == {"SICKR": 66.52}
    assert published("whitening-bert", "table 1", "BERT-base, mean of L1+L12, whitening") == {}


def test_a_map_names_its_convention():
    (table,) = [each for each in known_paper("gem").tables if each.name == "table 2"]
    assert any("count as 0" in note and "41.85" in note and "62.42" in note for note in table.notes)


@pytest.mark.parametrize(
    ("table", "averages"),
    [
        ("table 1", (61.32, 54.81, 29.19, 65.01, 71.22, 74.86, 76.55, 74.21, 76.68)),  # the sixth is printed as 74.89
        ("table 5", (81.52, 82.42, 84.94, 84.66, 85.59, 85.10, 87.41, 87.69)),
    ],
)
def test_the_averages_that_sentence_bert_prints_are_those_of_its_rows(table, averages):
    (found,) = [each for each in known_paper("sentence-bert").tables if each.name == table]
    rows = [list(condition.published.values()) for condition in found.conditions]
    assert [sum(row) / len(row) for row in rows] == pytest.approx(averages, abs=0.006)


SMALL = """
name: T
title: Tiny
citation: Nobody 2000
tables:
  - name: table 1
    title: One row
    source: made up
    family: sts
    columns: [STSB, {name: dev, task: STSB-dev}]
    metric: spearman
    conditions:
      - {label: mean, model: wordllama, published: [50, null]}
"""


@pytest.fixture
def written(tmp_path):
    def written(text):
        (tmp_path / "paper.yaml").write_text(text)
        return tmp_path / "paper.yaml"

    return written


def test_a_file_of_that_form_is_read(written):
    (table,) = read_paper(written(SMALL)).tables
    assert [(column.name, column.task) for column in table.columns] == [("STSB", "STSB"), ("dev", "STSB-dev")]
    assert table.conditions[0].published == {"STSB": 50}
    assert table.sickr == "full"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[50, null]", "[50]", r"mean: published is \[50\.0\]; expected 2 numbers.* or the word unknown"),
        ("[50, null]", "[50, high]", r"Expected `float.*tables\[0\].conditions\[0\].published"),
        ("model: wordllama, ", "", "mean: name the model of this condition, or what it needs"),
        ("label: mean", "labl: mean", r"unknown field `labl`.*conditions\[0\]"),
        ("title: Tiny", "subtitle: Tiny", "unknown field `subtitle`"),
        ("title: Tiny\n", "", "missing required field `title`"),
        ("family: sts", "family: stss", r"Invalid enum value 'stss'.*tables\[0\].family"),
        ("columns: [STSB, {name: dev", "columns: [dev, {name: dev", "table 1: the name 'dev' occurs twice"),
        ("conditions:\n", "conditions: []\n#", "table 1: a table needs at least one column and one condition"),
        ("label: mean", "label: mean, options: 3", "Expected `object`, got `int`.*options"),
        ("name: T", "[", "is not valid YAML: .*line"),
        ("name: T", "name: " + "[" * 30_000, "is not valid YAML: maximum recursion depth exceeded"),
        (SMALL, "- 1", "holds a list instead of names and their values"),
    ],
)
def test_a_file_of_another_form_is_refused(written, old, new, message):
    with pytest.raises(FileFormatError, match=message):
        read_paper(written(SMALL.replace(old, new)))


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_paper(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=r"'S5' is no paper\. Use bert-whitening, .*YAML file"):
        reproduce("S5", tmp_path)
