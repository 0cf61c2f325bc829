import json
import math
from functools import cache

import pytest

import isosent
from isosent import evaluate
from isosent.errors import FileFormatError, InputError, InputFileError, ModelReferenceError
from isosent.evaluation import sizes
from isosent.research.dims import width_grid
from isosent.research.gem import study_gem
from isosent.research.layer_tables import best_of_sizes
from isosent.research.layers import study_layers
from isosent.research.reproduce import reproduce
from isosent.research.reproduction import Cell, Number
from isosent.research.study import layers_label


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Sets made up for a test count as the known ones."""
    monkeypatch.setattr(sizes, "KNOWN_SETS", {})


PAPER = """
name: T
title: Tiny
citation: Nobody 2000
tables:
  - name: table 1
    title: Some rows
    source: made up
    family: sts
    columns: [STSB, {name: dev, task: STSB-dev}, STS16]
    metric: spearman
    aggregation: all
    notes: [a thing to know]
    conditions:
      - {label: mean, model: here, published: [50, null, 60]}
      - &narrow {label: narrow, model: here, transform: principal_components, settings: {n_components: 3}, fit: target,
         published: unknown}
      - {<<: *narrow, label: pairs alone, fit: evaluated}
      - {label: elsewhere, model: bert-base-uncased, options: {layers: "-1"}, published: [10, 20, 30], note: a note}
      - {label: on NLI, model: here, transform: whitening, fit: nli, published: unknown}
      - {label: flow, model: here, needs: [BERT-flow], published: unknown}
      - {label: nothing of isosent, needs: [InferSent], published: unknown}
  - name: figure 1
    title: Widths
    source: made up
    family: dims
    columns: [STSB]
    metric: spearman
    conditions:
      - {label: widths, model: here, transform: truncate, fit: target, published: [40]}
  - name: table 2
    title: Speed
    source: made up
    family: speed
    columns: [CPU, GPU]
    metric: null
    unit: sentences/s
    conditions:
      - {label: fast, model: here, published: [137, 1000]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, write_stsb):
    monkeypatch.chdir(tmp_path)
    write_stsb(tmp_path / "data")
    (tmp_path / "paper.yaml").write_text(PAPER)
    (tmp_path / "map.yaml").write_text("here: wordllama\n")
    return tmp_path


def reproduced(*tables, **how):
    return reproduce("paper.yaml", "data", tables=tables, models="map.yaml", n_resamples=2, **how)


def outcomes(*tables, **how):
    found = reproduced(*tables, **how)
    return {(done.table.name, outcome.label): outcome for done in found.tables for outcome in done.outcomes}


@cache
def table_1():
    """The first table as it is written above: the folder of every test holds the same."""
    return reproduced("1")


def row(label):
    return next(outcome for outcome in table_1().tables[0].outcomes if outcome.label == label)


def stsb(**how):
    model = isosent.load("wordllama")
    return evaluate(model, "data", n_resamples=2, **how).tasks["STSB"].scores["spearman"]


def test_what_is_at_hand_is_measured():
    outcome = row("mean")
    cell = outcome.cells["STSB"]
    assert cell.measured.value == stsb()
    assert cell.difference == pytest.approx(stsb() - 0.5)
    assert cell.measured.unknown == 0
    assert outcome.cells["STS16"] == Cell(0.6, None)
    assert outcome.missing == ("files of STS16",)


def test_a_command_gives_the_number_that_stands_beside_it():
    narrow = row("narrow")
    assert narrow.command == (
        "isosent evaluate STSB --data data -m wordllama --transform 'principal_components?n_components=3' && "
        "isosent evaluate STSB --data DEV -m wordllama --transform 'principal_components?n_components=3'"
    )
    assert narrow.cells["STSB"].measured.value == stsb(transform=isosent.PrincipalComponents(3))


def test_the_dev_part_is_a_task_of_its_own(here):
    dev = row("mean").cells["dev"].measured.value
    (here / "data" / "sts-test.csv").write_text((here / "data" / "sts-dev.csv").read_text())
    assert dev == stsb()


def test_a_transform_can_be_fitted_on_the_evaluated_pairs_alone(here):
    alone = row("pairs alone")
    assert "--fit-on SENTENCES" in alone.command
    lines = (here / "data" / "sts-test.csv").read_text().splitlines()
    (here / "test.txt").write_text("".join(f"{text}\n" for line in lines for text in line.split("\t")[5:7]))
    expected = stsb(transform=isosent.PrincipalComponents(3), fit_on="test.txt")
    assert alone.cells["STSB"].measured.value == pytest.approx(expected, abs=1e-9)
    assert expected != stsb(transform=isosent.PrincipalComponents(3))


@pytest.mark.parametrize(
    ("label", "needed"),
    [
        ("elsewhere", ("bert-base-uncased",)),
        ("on NLI", ("an NLI corpus (nli: sentences of MultiNLI train and SNLI, one per line)",)),
        ("flow", ("BERT-flow",)),
        ("nothing of isosent", ("InferSent",)),
    ],
)
def test_what_is_not_at_hand_is_named_and_nothing_is_measured(label, needed):
    outcome = row(label)
    assert outcome.missing == needed
    assert all(cell.measured is None for cell in outcome.cells.values())


def test_a_condition_that_cannot_be_run_has_its_command_all_the_same():
    assert row("elsewhere").command.startswith(
        "isosent evaluate STSB STS16 --data data -m 'hf:bert-base-uncased?layers=-1' && "
    )
    assert row("nothing of isosent").command is None


def test_another_model_can_stand_in_and_is_said_to_be_another(here):
    (here / "map.yaml").write_text("instead: {bert-base-uncased: wordllama}\n")
    outcome = outcomes("1")["table 1", "elsewhere"]
    assert outcome.missing == ("bert-base-uncased",)
    (other,) = outcome.stand_ins
    assert (other.model, other.measured["STSB"].value) == ("wordllama", stsb())
    assert outcome.cells["STSB"] == Cell(0.1, None)


def test_equal_conditions_are_measured_once(here):
    again = "label: again, model: here, published: unknown}\n      - {label: elsewhere"
    (here / "paper.yaml").write_text(PAPER.replace("label: elsewhere", again))
    told = []
    found = outcomes("1", tell=told.append)
    assert len(told) == len(set(told)) == 3
    assert found["table 1", "again"].cells["STSB"].measured == found["table 1", "mean"].cells["STSB"].measured


def test_a_study_is_summed_up_by_its_best():
    cell = outcomes("figure 1")["figure 1", "widths"].cells["STSB"]
    scores = {width: stsb(transform=isosent.Truncate(width)) for width in width_grid(256)[::4]}
    assert cell.measured.value >= max(scores.values())
    assert cell.measured.at.endswith(" dimensions")


def test_speed_is_measured_on_the_cpu():
    outcome = outcomes("2")["table 2", "fast"]
    assert outcome.cells["CPU"].measured.value > 0
    assert outcome.cells["GPU"] == Cell(1000, None)
    assert outcome.missing == ("a run on the GPU",)
    assert outcome.command == "isosent encode SENTENCES -m wordllama"


def test_word_vectors_and_counts_in_the_data_folder_are_found(here):
    (here / "data" / "glove.840B.300d.part.txt").write_text("the 0.5 0.1\na 0.1 0.7\nis 0.3 0.2\nof 0.2 0.9\n")
    (here / "data" / "enwiki_vocab_min200.txt").write_text("the 10\na 5\nis 3\nof 2\n")
    found = reproduce("others", "data", tables=["Zipfian whitening"], n_resamples=2)
    (done,) = found.tables
    mean, sif, zipfian = done.outcomes
    assert mean.cells["STSB"].measured is not None
    assert "frequencies=data/enwiki_vocab_min200.txt" in sif.command
    assert zipfian.missing == ("files of STS12, STS13, STS14, STS15, STS16, SICKR",)


def test_numbers_of_a_model_that_lacks_words_are_not_compared():
    assert Cell(0.5, Number(0.4, unknown=0.06)).difference is None
    assert Cell(0.5, Number(0.4, unknown=0.04)).difference == pytest.approx(-0.1)
    assert Cell(None, Number(0.4)).difference is None


def test_tables_say_measured_published_and_difference():
    laid_out = {line[0]: line for line in table_1().tables[0].rows(line_end=" ")}
    assert laid_out["mean"][1] == f"{100 * stsb():.2f} (50.00) {100 * stsb() - 50:+.2f}"
    assert laid_out["mean"][2].endswith(" (unknown)")
    assert laid_out["mean"][3:] == ["60.00", "missing: needs files of STS16"]
    assert laid_out["elsewhere (a note)"][1:] == ["10.00", "20.00", "30.00", "missing: needs bert-base-uncased"]
    assert not any(cell == "" for line in laid_out.values() for cell in line)


def test_markdown_holds_every_row_and_command():
    text = table_1().to_markdown(with_commands=True)
    assert "## T: Tiny" in text
    assert "### T, table 1: Some rows" in text
    assert "- a thing to know" in text
    assert "| nothing of isosent | unknown | unknown | unknown | missing: needs InferSent |" in text
    assert "n_components=3' && isosent evaluate STSB --data DEV" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_json_holds_scores_between_minus_one_and_one():
    found = table_1().to_json()
    json.dumps(found, allow_nan=False)
    cell = found["tables"][0]["conditions"][0]["cells"]["STSB"]
    assert cell["published"] == 0.5
    assert math.isclose(cell["difference"], cell["measured"]["value"] - 0.5)
    assert found["environment"]["versions"]["isosent"]


ALIASES = [f"&a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9)]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "bert-base-uncase: hf:x\n",
            "no table has a model or file named 'bert-base-uncase'. Did you mean bert-base-uncased",
        ),
        ("here: 3\n", "here is 3, neither a model reference nor a path"),
        ("instead: wordllama\n", "instead does not hold names and references, but 'wordllama'"),
        ("- wordllama\n", "holds a list instead of names and their values"),
        ("here: &a [*a]\n", "an alias is a part of itself"),
        (f"here: [&a0 [x], {', '.join(ALIASES)}]\n", "more than 100,000 values"),
        (f"here: {'1:' * 9000}1\n", "a whole number is too large"),
        (f"here: {'x' * (1 << 17)}\n", "larger than 128 KiB"),
    ],
)
def test_a_map_of_another_form_is_refused(here, written, message):
    (here / "map.yaml").write_text(written)
    with pytest.raises(FileFormatError, match=message):
        outcomes("1")


def test_what_cannot_be_done_is_refused(here):
    with pytest.raises(InputError, match=r"T has no 'table 9'\. Its tables: table 1; figure 1; table 2"):
        outcomes("9")
    with pytest.raises(InputFileError, match="none: no such folder"):
        reproduce("bert-whitening", "none")
    with pytest.raises(InputError, match=r"'nothing.yaml' is no paper\. Use bert-whitening, .*YAML file"):
        reproduce("nothing.yaml", "data")
    (here / "map.yaml").write_text("here: nowhere\n")
    with pytest.raises(ModelReferenceError, match=r"^[^\n]*'nowhere' is neither a model nor a folder\.[^\n]*$"):
        outcomes("1")
    (here / "map.yaml").write_text("here: wordllama\n")
    (here / "paper.yaml").write_text(PAPER.replace("metric: spearman", "metric: rho", 1))
    with pytest.raises(InputError, match=r"table 1: STSB has no metric rho; it has spearman"):
        outcomes("1")


FIGURES = """
name: F
title: Figures
citation: Nobody 2000
tables:
  - name: figure 1
    title: Layers
    source: made up
    family: layers
    columns: [{name: best layer, task: "1"}, {name: best pair, task: "2"}, {name: too many, task: "9"}]
    metric: spearman
    aggregation: mean
    conditions:
      - {label: plain, model: net, options: {pooling: mean}, published: unknown}
  - name: figure 2
    title: Settings of GEM
    source: made up
    family: gem
    columns: [STSB]
    metric: pearson
    conditions:
      - {label: window, model: words, options: {n_removed: 2}, study: window, published: unknown}
"""


def figure(name, here, reference):
    (here / "paper.yaml").write_text(FIGURES)
    (here / "map.yaml").write_text(f"{'net' if name == 'figure 1' else 'words'}: {reference}\n")
    (done,) = reproduced(name).tables
    return done.outcomes[0]


def test_the_best_layers_are_those_of_the_study(here, tiny_model, one_thread):
    reference = f"hf:{tiny_model('bert')}"
    outcome = figure("figure 1", here, reference)
    cells = study_layers(isosent.load(reference), here / "data", name="net", aggregation="mean")
    best = best_of_sizes(cells, "mean")["none"]
    for column, size in (("best layer", 1), ("best pair", 2)):
        measured = outcome.cells[column].measured
        assert (measured.value, measured.at) == (best[size].average, layers_label(best[size].layers))
    assert outcome.missing == ("as many as 9 layers",)
    assert (
        outcome.command == f"isosent research study layers --data data -m '{reference}?pooling=mean' --aggregation mean"
    )


def test_the_best_setting_of_gem_is_that_of_the_study(here):
    words = {word for text in isosent.demo_texts() for word in text.lower().split()}
    lines = (
        " ".join([word, *(f"0.{1 + 7 * len(word) * (k + place) % 9}" for k in range(4))])
        for place, word in enumerate(sorted(words))
    )
    (here / "words.txt").write_text("".join(f"{line}\n" for line in lines))
    reference = "words:words.txt?tokenizer=whitespace&weighting=gem&window=2&n_candidates=3&n_removed=2"
    outcome = figure("figure 2", here, reference)
    measured = outcome.cells["STSB"].measured
    cells = [cell for cell in study_gem(isosent.load(reference), "data", name="w") if cell.study == "window"]
    best = max(cells, key=lambda cell: cell.pearson)
    assert measured.value == best.pearson
    assert measured.at.startswith(f"window = {best.condition}; ")
    assert outcome.command == f"isosent research study gem --data data --tasks STSB -m '{reference}'"
