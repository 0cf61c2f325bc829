"""What every step of a model must do: apply, save and load itself, fold, and refuse what cannot follow."""

import numpy as np
import pytest

import isosent
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.exports import export
from isosent.model import SentenceEncoder
from isosent.numeric.glow import Glow, GlowStep
from isosent.numeric.linear_map import LinearMap
from isosent.postprocessing import STEPS, Postprocessing
from isosent.role import DOCUMENTS, QUERIES, Role
from isosent.transforms.flow_step import FlowStep
from isosent.transforms.maps import GroupMaps, MapStep
from isosent.transforms.scaling import NormalizeStep
from isosent.transforms.step import Step

DIM, HALF = 6, 3
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(9, DIM)).astype(np.float32)
ROWS[4] = 0
W, V, Q = (RNG.normal(size=shape) for shape in ((DIM, 4), (4, 4), (DIM, 4)))
B, C, D = (RNG.normal(size=4) for _ in range(3))
SHIFT, SCALE, ORDER = RNG.normal(size=DIM), RNG.normal(size=DIM) / 4, RNG.permutation(DIM)
LAYER = RNG.normal(size=(HALF, DIM - HALF)), RNG.normal(size=DIM - HALF)


def shifted(rows):
    return (rows + SHIFT) * np.exp(SCALE)


def coupled(rows):
    mixed = shifted(rows)[:, ORDER]
    return np.hstack([mixed[:, :HALF], mixed[:, HALF:] + mixed[:, :HALF] @ LAYER[0] + LAYER[1]])


def unit(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms, norms, 1)


def documents(rows):
    return rows @ W + B


def queries(rows):
    return rows @ Q + D


# of each step: what it does to documents, queries, and texts of the group "de"; None where it refuses groups
CASES = {
    "map": (MapStep(LinearMap(W, B)), documents, documents, None),
    "query map": (MapStep(LinearMap(W, B), LinearMap(Q, D)), documents, queries, None),
    "shifted queries": (
        MapStep(LinearMap(W, B), LinearMap(W, D)),
        documents,
        lambda rows: rows @ W + D,
        None,
    ),
    "only queries": (MapStep(None, LinearMap(np.diag(SHIFT), SCALE)), np.array, lambda x: x * SHIFT + SCALE, None),
    "groups": (
        MapStep(LinearMap(W, B), groups=GroupMaps("lang", "en", {"de": LinearMap(Q, D)})),
        documents,
        documents,
        queries,
    ),
    "flow": (
        FlowStep(Glow(((GlowStep(SHIFT, SCALE, ORDER, (LAYER,)),),))),
        coupled,
        coupled,
        None,
    ),
    "scaling": (NormalizeStep(), unit, unit, None),
}
LAST = [name for name, (step, *_) in CASES.items() if not step.streams]


def model_of(*steps):
    return SentenceEncoder(PrecomputedVectors(DIM, {}), Postprocessing(steps))


def test_every_kind_of_step_is_tested():
    assert {type(step) for step, *_ in CASES.values()} == set(STEPS)
    assert len({step.kind for step in STEPS}) == len(STEPS)


@pytest.mark.parametrize("name", CASES)
def test_a_step_gives_each_role_its_vectors_and_zero_rows_stay_zero(name):
    step, *expected = CASES[name]
    for role, map_rows in zip((DOCUMENTS, QUERIES, Role(group="de")), expected, strict=True):
        if map_rows is None:
            with pytest.raises(InputError, match="'de'"):
                Postprocessing((step,)).apply(ROWS, role)
            continue
        vectors = map_rows(ROWS.astype(np.float64))
        vectors[4] = 0
        applied = Postprocessing((step,)).apply(ROWS, role)
        assert applied.dtype == np.float32
        np.testing.assert_allclose(applied, vectors, rtol=2e-6, atol=1e-6)
        for n_rows in (0, 1, len(ROWS)):  # the same bits in any batch
            np.testing.assert_array_equal(Postprocessing((step,)).apply(ROWS[:n_rows], role), applied[:n_rows])


@pytest.mark.parametrize("name", CASES)
def test_a_saved_step_is_the_same_step(name, tmp_path):
    step, _, _, of_group = CASES[name]
    model = model_of(step)
    model.save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    assert again.fingerprint == model.fingerprint != model_of().fingerprint
    assert [type(each) for each in again.record.postprocessing.steps] == [type(step)]
    assert again.record.facts() == model.record.facts()
    for options in ({}, {"queries": True}, *([{"group": "de"}] if of_group else [])):
        np.testing.assert_array_equal(again.transform(ROWS, **options), model.transform(ROWS, **options))
    again.save(tmp_path / "copy")
    for path in (tmp_path / "model").iterdir():
        assert path.read_bytes() == (tmp_path / "copy" / path.name).read_bytes()


def test_the_order_of_steps_is_that_of_the_list(tmp_path):
    model = model_of(CASES["flow"][0], NormalizeStep())
    model.save(tmp_path / "model")
    expected = unit(coupled(ROWS.astype(np.float64)))
    expected[4] = 0
    for each in (model, isosent.load(tmp_path / "model")):
        np.testing.assert_allclose(each.transform(ROWS), expected, atol=1e-6)


def test_maps_fold_into_one_step_and_others_stay():
    rows = ROWS[:4].astype(np.float64)
    later = MapStep(LinearMap(V, C))
    for name in ("map", "query map", "shifted queries"):
        step, of_documents, of_queries, _ = CASES[name]
        folded = Postprocessing((step,)).append(later)
        assert len(folded.steps) == 1
        np.testing.assert_allclose(folded.apply(rows), of_documents(rows) @ V + C, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(folded.apply(rows, QUERIES), of_queries(rows) @ V + C, rtol=1e-5, atol=1e-6)
    first = Postprocessing((MapStep(LinearMap(W, B)),))
    only_queries = first.append(MapStep(query_map=LinearMap(V, C)))
    np.testing.assert_array_equal(only_queries.apply(rows), first.apply(rows))
    np.testing.assert_allclose(only_queries.apply(rows, QUERIES), documents(rows) @ V + C, rtol=1e-5, atol=1e-6)
    grouped = first.append(MapStep(groups=GroupMaps("lang", "en", {"de": LinearMap(V, C)})))
    np.testing.assert_array_equal(grouped.apply(rows, Role(group="en")), first.apply(rows))
    np.testing.assert_allclose(grouped.apply(rows, Role(group="de")), documents(rows) @ V + C, rtol=1e-5, atol=1e-6)
    assert [type(step) for step in first.append(NormalizeStep()).steps] == [MapStep, NormalizeStep]


@pytest.mark.parametrize("name", CASES)
def test_a_step_says_whether_a_transform_can_follow(name):
    step, (model, rows) = CASES[name][0], (model_of(CASES[name][0]), RNG.normal(size=(40, DIM)))
    if step.streams:
        assert model.fitted_on_vectors(rows, "mean_centering").fits
        return
    fits = (
        lambda: model.fitted_on_vectors(rows, "mean_centering"),
        lambda: model.fitted_on_vectors(rows, "l2_normalize"),
        lambda: model.fitted_on_vectors(rows, "glow_flow"),
        lambda: model.fitted_on_vectors(rows),
        lambda: model.fitted_on_moments(isosent.Moments.from_rows(rows), "whitening"),
        lambda: model.fitted_on_pairs(rows, rows),
    )
    for fit in fits:
        with pytest.raises(InputError, match=f"after {step.noun}"):
            fit()


def test_queries_and_groups_exclude_each_other():
    other = LinearMap(np.eye(DIM), np.ones(DIM))
    with pytest.raises(InputError, match=r"groups .* queries"):
        MapStep(None, other, GroupMaps("lang", "en", {"de": other}))
    for model, options in ((model_of(), {"queries_only": True}), (model_of(MapStep(None, other)), {})):
        with pytest.raises(InputError, match=r"groups .* queries"):
            model.fitted_on_pairs(ROWS, ROWS, groups=(["en"] * 9, ["de"] * 9), **options)


def test_widths_must_fit():
    with pytest.raises(InputError, match="flow"):
        Postprocessing((MapStep(LinearMap(W, B)), CASES["flow"][0]))


class Cubes(Step):
    """A step that nothing but its own file knows."""

    kind = "cubes"
    noun = "a power of three"

    def apply(self, rows, role):
        return rows**3


def test_a_new_step_is_applied_and_refused_without_anybody_knowing_it(tmp_path):
    model = model_of(MapStep(LinearMap(W, B)), Cubes())
    expected = documents(ROWS.astype(np.float64)) ** 3
    expected[4] = 0
    np.testing.assert_allclose(model.transform(ROWS), expected, rtol=1e-5, atol=1e-6)
    assert model.dim == 4
    with pytest.raises(InputError, match="after a power of three"):
        model.fitted_on_vectors(ROWS, "mean_centering")
    for target in ("numpy", "sql", "faiss"):
        with pytest.raises(InputError, match="a power of three"):
            export(model, target, tmp_path / f"{target}.out.safetensors")
    words = SentenceEncoder(isosent.load("wordllama").encoder, Postprocessing((Cubes(),)))
    with pytest.raises(InputError, match="a power of three"):
        words.explain("a", "b")


def test_a_new_step_needs_no_field_in_folders_of_earlier_versions():
    first = {name for step in STEPS for name in step.first_fields}
    assert first == {"linear_map", "flow", "normalize"}, (
        "those of version 0.1; leave `first_fields` of a new step empty"
    )
