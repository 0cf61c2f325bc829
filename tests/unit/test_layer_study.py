import xml.etree.ElementTree as ET
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from tiny_models import WORDS, save_model

import isosent
from isosent import evaluate
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError, ModelReferenceError
from isosent.evaluation.sizes import KNOWN_SETS
from isosent.evaluation.sts import AGGREGATIONS, YEAR_SUBSETS, STSSet, read_sts
from isosent.pages.figures import render
from isosent.research.layer_tables import (
    AUTO,
    NONE,
    TRANSFORMS,
    WHITENING,
    averages,
    best_of_sizes,
    layer_figure,
    pair_grid,
    pooling_figure,
    published_average,
)
from isosent.research.layers import Score, layer_cells, place_tasks, search_layers, study_layers, study_pooling
from isosent.research.study import LayerCell, PublishedScore
from isosent.transforms.auto import STRENGTHS, choose
from isosent.transforms.base import Auto

TEXT = "{http://www.w3.org/2000/svg}text"


def sentences(n, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=size)) for size in rng.integers(4, 12, size=n)]


def write_pairs(path, n_pairs, seed, scores):
    first, second = sentences(n_pairs, seed), sentences(n_pairs, seed + 1)
    second[0] = first[0]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(first, second, strict=True)), "utf-8")
    rng = np.random.default_rng(seed)
    scores.write_text("".join(f"{score:.1f}\n" for score in rng.uniform(0, 5, size=n_pairs)), "utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """STS13 and STS-B out of the words that tiny models know; enough of them for "auto"."""
    root = tmp_path_factory.mktemp("data")
    (root / "STS13").mkdir()
    for number, name in enumerate(YEAR_SUBSETS["STS13"]):
        write_pairs(
            root / "STS13" / f"STS.input.{name}.txt",
            25 + 10 * number,
            10 * number,
            root / "STS13" / f"STS.gs.{name}.txt",
        )
    for number, part in enumerate(("train", "dev", "test")):
        pairs = zip(sentences(40, 100 + number), sentences(40, 200 + number), strict=True)
        lines = (f"g\tf\ty\t{row:04d}\t{(7 * row + number) % 26 / 5}\t{a}\t{b}\n" for row, (a, b) in enumerate(pairs))
        (root / f"sts-{part}.csv").write_text("".join(lines), "utf-8")
    return root


@pytest.fixture(scope="module")
def reference(tiny_model):
    return f"hf:{tiny_model('bert')}"


@pytest.fixture(scope="module")
def cells(reference, data):
    return study_layers(isosent.load(reference), data, name="tiny")


@pytest.fixture(scope="module")
def pooled(reference, data):
    return study_pooling(isosent.load(reference), data, name="tiny")


def evaluated(reference, data, layers, pooling, transform):
    model = isosent.load(f"{reference}?layers={layers}&pooling={pooling}&normalize=false")
    made = {NONE: None, WHITENING: isosent.Whitening(), AUTO: "auto"}[transform]
    return evaluate(model, data, transform=made).tasks


def aggregations(scores):
    return {how: scores["spearman" if how == "all" else f"spearman_{how}"] for how in AGGREGATIONS}


def found(cells, layers, transform, pooling="mean"):
    same = [cell for cell in cells if (cell.pooling, cell.layers, cell.transform) == (pooling, layers, transform)]
    return {cell.task: cell for cell in same}


@pytest.mark.filterwarnings("ignore:Whitening:isosent.errors.RankWarning")  # layer norm leaves one axis less
@pytest.mark.parametrize(
    ("layers", "transform"), [((0,), WHITENING), ((3,), AUTO), ((1, 3), NONE), ((1, 3), AUTO), ((0, 1, 2, 3), NONE)]
)
def test_a_cell_is_what_evaluate_sts_says_of_that_model(cells, reference, data, layers, transform):
    expected = evaluated(reference, data, ",".join(map(str, layers)), "mean", transform)
    measured = found(cells, layers, transform)
    assert list(measured) == list(expected) == ["STS13", "STSB"]
    for task, cell in measured.items():
        scores = aggregations(expected[task].scores)
        assert cell.spearman == pytest.approx(scores, abs=5e-3)  # small variances magnify rounding
        assert cell.chosen == (expected[task].choice["chosen"] if transform == AUTO else None)


def test_auto_compared_strengths(data):
    _, placed = place_tasks(read_sts(data))
    for task in placed:
        rng = np.random.default_rng(0)
        vectors = rng.normal(size=(len(task.rows), 8))
        assert len(choose(vectors, task.overlap_pairs, Auto()).candidates) == 2 + len(STRENGTHS)


def sets_of(cells, transform):
    return {cell.layers for cell in cells if cell.transform == transform}


@pytest.mark.parametrize(("transform", "exhaustive"), [(NONE, 3), (WHITENING, 3), (AUTO, 2)])
def test_small_sets_are_all_tried_and_larger_ones_grow(cells, transform, exhaustive):
    tried = sets_of(cells, transform)
    for size in range(1, exhaustive + 1):
        assert {layers for layers in tried if len(layers) == size} == set(combinations(range(4), size))
    best = best_of_sizes(cells, "all")[transform]
    for size in range(exhaustive, 4):
        grown = {tuple(sorted((*best[size].layers, layer))) for layer in set(range(4)) - set(best[size].layers)}
        assert {layers for layers in tried if len(layers) == size + 1} == grown


@pytest.fixture
def random_layers(data):
    """Seven layers of random vectors in the place of a network, the fifth near to the scores."""
    texts, placed = place_tasks(read_sts(data, tasks=["STSB"]))
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(len(texts), 8)).astype(np.float32) for _ in range(7)]
    return layers, placed, partial(layer_cells, name="random", reference="hf:random", sickr="full", pooling="mean")


def test_the_greedy_search_follows_the_best_and_the_progress_counts_every_measurement(random_layers, progress):
    cells = search_layers(*random_layers, aggregation="mean", progress=progress)
    assert progress.complete() == [len(cells)]
    best = best_of_sizes(cells, "mean")
    assert [len(each.layers) for each in best[NONE].values()] == [1, 2, 3, 4, 5, 6, 7]
    for size in range(3, 7):
        assert set(best[NONE][size].layers) < set(best[NONE][size + 1].layers)
    assert len(sets_of(cells, NONE)) == 7 + 21 + 35 + 4 + 3 + 2 + 1
    assert len(sets_of(cells, AUTO)) == 7 + 21 + 5 + 4 + 3 + 2 + 1


def test_every_text_goes_through_the_network_once(reference, data, monkeypatch):
    read, calls = TransformerEncoder.read, []

    def counted(self, texts, layer_poolings, **how):
        calls.append(list(texts))
        return read(self, texts, layer_poolings, **how)

    monkeypatch.setattr(TransformerEncoder, "read", counted)
    study_layers(isosent.load(reference), data, name="tiny", tasks=["STSB"])
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0]))
    calls.clear()
    study_pooling(isosent.load(reference), data, name="tiny", poolings=["mean", "cls"])
    assert [len(texts) for texts in calls] == [len(set(texts)) for texts in calls]
    assert len(calls) == 2  # one a task


def test_equal_vectors_are_undefined(reference, data):
    cells = study_layers(isosent.load(reference), data, name="tiny", tasks=["STSB"], pooling="cls")
    for transform in (NONE, WHITENING):
        cell = found(cells, (0,), transform, "cls")["STSB"]  # [CLS] is the same for every text in the embedding layer
        assert np.isnan(list(cell.spearman.values())).all()
        assert cell.to_json()["spearman"] == dict.fromkeys(AGGREGATIONS)
        assert [row["spearman"] for row in cell.rows()] == [None, None, None]
    assert not np.isnan(found(cells, (0, 3), WHITENING, "cls")["STSB"].spearman["all"])
    assert best_of_sizes(cells, "all")[NONE][1].layers != (0,)


@pytest.mark.parametrize(("study", "asked"), [(study_layers, "study layers"), (study_pooling, "study pooling")])
def test_other_models_are_refused(study, asked, reference, data, texts, tmp_path):
    with pytest.raises(InputError, match=f"{asked}: words is no transformer"):
        study(isosent.load("wordllama"), data, name="words")
    fitted = isosent.load(reference).fitted(texts, transform=isosent.MeanCentering())
    with pytest.raises(InputError, match=f"{asked}: fitted has a fitted transform"):
        study(fitted, data, name="fitted")
    save_model(tmp_path / "shallow", "bert", changes={"num_hidden_layers": 1})
    with pytest.raises(InputError, match=rf"{asked}: shallow has 1 layer\. At least 2"):
        study(isosent.load(f"hf:{tmp_path / 'shallow'}"), data, name="shallow")


def test_unknown_poolings_are_refused(reference, data):
    model = isosent.load(reference)
    with pytest.raises(ModelReferenceError, match=r"pooling=median: .* Choose among"):
        study_layers(model, data, name="tiny", pooling="median")
    with pytest.raises(ModelReferenceError, match=r"pooling=median: .* Choose among"):
        study_pooling(model, data, name="tiny", poolings=["mean", "median"])


@pytest.mark.filterwarnings("ignore:Whitening:isosent.errors.RankWarning")  # layer norm leaves one axis less
@pytest.mark.parametrize(
    ("pooling", "layers", "transform"),
    [
        ("cls", (3,), NONE),
        ("max", (1, 3), WHITENING),
        ("last_token", (2, 3), NONE),
        ("p_mean", (3,), AUTO),
        ("sbert_wk", (1, 2, 3), WHITENING),
    ],
)
def test_a_pooling_is_what_evaluate_sts_says_of_that_model(pooled, reference, data, pooling, layers, transform):
    expected = evaluated(reference, data, ",".join(map(str, layers)), pooling, transform)
    for task, cell in found(pooled, layers, transform, pooling).items():
        scores = aggregations(expected[task].scores)
        assert cell.spearman == pytest.approx(scores, abs=5e-3)  # small variances magnify rounding


def test_every_pooling_is_crossed_with_layers_and_transforms(pooled):
    layer_poolings = dict.fromkeys((cell.pooling, cell.layers) for cell in pooled)
    assert {pooling for pooling, _ in layer_poolings} == {
        *("cls", "mean", "max", "mean_sqrt_len", "last_token", "weighted_mean", "p_mean", "sbert_wk")
    }
    assert [layers for pooling, layers in layer_poolings if pooling == "mean"] == [(3,), (1, 3), (2, 3)]
    assert len(pooled) == 2 * 3 * len(layer_poolings)


def test_poolings_go_by_either_name(reference, data):
    cells = study_pooling(
        isosent.load(reference), data, name="tiny", tasks=["STSB"], poolings=["lasttoken", "last_token"]
    )
    assert {cell.pooling for cell in cells} == {"last_token"}
    assert len(cells) == 9


def published(reference, layers, transform, *, pooling="mean", task="STSB", sickr="test", missing=()):
    known = KNOWN_SETS["sts"][task]  # sets of the known sizes, without texts
    made_up = STSSet(task, (), (), n_pairs_by_part={name: size for name, size in known.items() if name not in missing})
    scores = {transform: Score(dict.fromkeys(AGGREGATIONS, 0.5))}
    [cell] = layer_cells(layers, made_up, scores, name="m", reference=reference, sickr=sickr, pooling=pooling)
    return cell.published


BERT = "hf:bert-base-uncased"


def test_published_numbers_stand_beside_the_same_reading():
    assert published(BERT, (1, 12), NONE)["wmean"].spearman == pytest.approx(0.5904)
    assert published(f"{BERT}@main", (1, 12), WHITENING)["wmean"].spearman == pytest.approx(0.7134)
    assert published("hf:/models/bert-base-uncased", (1, 12), WHITENING)["all"].spearman == pytest.approx(0.7134)
    assert published(BERT, (12,), NONE, pooling="cls")["all"].spearman == pytest.approx(0.2030)
    assert published(BERT, (12,), NONE, task="STS15")["all"].spearman == pytest.approx(0.6029)
    assert "Gao et al. 2021" in published("hf:roberta-base", (0, 12), NONE)["all"].source


@pytest.mark.parametrize(
    ("reference", "layers", "transform", "more"),
    [
        (BERT, (0, 12), WHITENING, {}),
        (BERT, (1, 12), AUTO, {}),
        (BERT, (1, 12), NONE, {"pooling": "max"}),
        (BERT, (11, 12), NONE, {}),
        ("hf:bert-base-cased", (1, 12), NONE, {}),
        (BERT, (1, 12), NONE, {"task": "SICKR", "sickr": "full"}),
        (BERT, (1, 12), NONE, {"task": "STS13", "missing": ("FNWN",)}),
    ],
)
def test_published_numbers_do_not_stand_beside_others(reference, layers, transform, more):
    assert published(reference, layers, transform, **more) == {}


def cell(layers, transform, score, *, task="STSB", model="m", pooling="mean", there=None):
    beside = {} if there is None else {"all": PublishedScore(there, "a paper")}
    return LayerCell(model, pooling, layers, transform, None, task, dict.fromkeys(AGGREGATIONS, score), beside)


SMALL = [
    cell((0,), NONE, 0.5),
    cell((1,), NONE, 0.25),
    cell((0, 1), NONE, 0.75),
    cell((0,), WHITENING, float("nan")),
    cell((1,), WHITENING, 0.5),
    cell((0, 1), WHITENING, 0.875),
    cell((0,), AUTO, 0.5),
    cell((1,), AUTO, 0.5),
    cell((0, 1), AUTO, 0.625),
]


def test_pairs_are_a_triangle_with_single_layers_on_the_diagonal():
    np.testing.assert_array_equal(pair_grid(SMALL, NONE, "all"), [[0.5, np.nan], [0.75, 0.25]])


def test_an_undefined_set_is_never_the_best():
    best = best_of_sizes(SMALL, "all")[WHITENING]
    assert {size: (each.layers, each.average) for size, each in best.items()} == {1: ((1,), 0.5), 2: ((0, 1), 0.875)}


def test_averages_are_over_the_tasks():
    two = [cell((1,), NONE, 0.5, there=0.25), cell((1,), NONE, 0.25, task="STS12", there=0.75)]
    assert averages(two, "all") == {("mean", (1,), NONE): 0.375}
    assert published_average(two, "all") == 0.5
    assert np.isnan(published_average([*two, cell((1,), NONE, 0.5, task="STS13")], "all"))


def test_figures_have_a_block_a_model():
    cells = [*SMALL, *(cell((layer,), transform, 0.5, model="<other>") for layer in (0, 1) for transform in TRANSFORMS)]
    for draw in (layer_figure, pooling_figure):
        root = ET.fromstring(render(draw(cells, "all"), ".svg"))
        written = [text.text for text in root.iter(TEXT)]
        assert {f"{name}, average over the tasks, Spearman x100" for name in ("m", "<other>")} <= set(written)
        assert {"87.5", "62.5", "25.0"} <= set(written)
        assert "nan" not in written


def test_the_figure_of_layers_has_a_line_a_transform():
    root = ET.fromstring(render(layer_figure(SMALL, "all"), ".svg"))
    dots = [
        dot.find("{http://www.w3.org/2000/svg}title").text for dot in root.iter("{http://www.w3.org/2000/svg}circle")
    ]
    assert dots == ["L0: 50.00", "L0+L1: 75.00", "L1: 50.00", "L0+L1: 87.50", "L0: 50.00", "L0+L1: 62.50"]
