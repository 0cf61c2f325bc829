"""A transform from pairs of matching texts: exact, chosen on groups that are not divided, saved only if it helps."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import isosent
from isosent import LinearMap, Whitening
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, IsosentWarning, ModelFolderError
from isosent.exports import export
from isosent.model import SentenceEncoder
from isosent.numeric.moments import JointMoments
from isosent.postprocessing import Postprocessing
from isosent.transforms import pairs as pairs_module
from isosent.transforms.base import make_linear
from isosent.transforms.maps import MapStep
from isosent.transforms.pairs import MapCandidate, MatchingPairs, choose_from_pairs, pair_whitening

DIM = 12


def noisy_pairs(n_pairs=400, noise=3):
    """Both sides share four dimensions; the other, larger ones are noise, and queries are mirrored in one."""
    random = np.random.default_rng(0)
    shared = random.normal(size=(n_pairs, 4))
    sides = [np.hstack([shared, noise * random.normal(size=(n_pairs, DIM - 4))]) for _ in range(2)]
    sides[0][:, 0] *= -1
    return [side.astype(np.float32) for side in sides]


def keys(n_pairs):
    return [f"q{row}" for row in range(n_pairs)], [f"d{row}" for row in range(n_pairs)]


def model_of_vectors():
    return SentenceEncoder(PrecomputedVectors.of_space(DIM, None, "somewhere"))


def same_length(actual, expected):
    """Rows agree to 1e-5 of their length."""
    assert np.linalg.norm(actual - expected, axis=1).max() < 1e-5 * np.linalg.norm(expected, axis=1).min()


def test_each_map_equals_a_plain_reference_on_the_rows():
    x, y = (side.astype(np.float64) for side in noisy_pairs())
    joint = JointMoments.from_rows(x[:150], y[:150]) + JointMoments.from_rows(x[150:], y[150:])
    x_centered = x - x.mean(axis=0)
    amount = 3.0 * np.trace(x_centered.T @ x_centered) / len(x) / DIM * np.eye(DIM)
    weight = np.linalg.inv(x_centered.T @ x_centered / len(x) + amount) @ (
        x_centered.T @ (y - y.mean(axis=0)) / len(x) + amount
    )
    ridge = MapCandidate("query_ridge", (("penalty", 3.0),)).fit(joint)
    same_length(ridge.apply(x), x_centered @ weight + y.mean(axis=0))

    both = np.concatenate([x, y])
    covariance = np.cov((x - y).T, bias=True)
    level = np.trace(covariance) / DIM
    values, axes = np.linalg.eigh(0.7 * covariance / level + 0.3 * np.eye(DIM))
    whitened = (both - both.mean(axis=0)) @ (axes * values**-0.25) @ axes.T
    mapped = pair_whitening(joint, 0.5, 0.3).apply(both)
    np.testing.assert_allclose(mapped @ mapped[:50].T, whitened @ whitened[:50].T, atol=1e-8)  # but for a rotation
    spread = np.cov(mapped.T, bias=True)
    np.testing.assert_allclose(spread, np.diag(np.sort(spread.diagonal())[::-1]), atol=1e-9)  # its axes are in order
    np.testing.assert_allclose(pair_whitening(joint, 0.5, 0.3, is_turned=False).apply(both), whitened, atol=1e-8)

    plain = MapCandidate("whitening", (("strength", 0.5),)).fit(joint)
    same_length(plain.apply(x), Whitening(strength=0.5, shrinkage="oas").fit(both).linear_map_.apply(x))


def test_groups_that_share_a_text_stay_together_and_a_fifth_is_held_out():
    x, y = noisy_pairs(300)
    first, second = keys(300)
    first[1:100] = [first[row // 2] for row in range(1, 100)]  # two pairs of one query
    second[120] = first[0]  # a document that is a query elsewhere
    pairs = MatchingPairs(x, y, first, second)
    fold, held_out = pairs.folds()
    assert pairs.group[120] == pairs.group[0]
    for part in (fold, held_out):
        assert all(len(set(part[pairs.group == group])) == 1 for group in range(pairs.n_groups))
    assert 50 <= held_out.sum() <= 60
    assert min(np.bincount(fold[~held_out], minlength=4)) > 40


def test_folds_hold_out_kinds():
    x, y = noisy_pairs(300)
    kinds = np.repeat(["news", "forum", "captions", "news"], 75).tolist()
    pairs = MatchingPairs(x, y, *keys(300), kinds)
    fold, held_out = pairs.folds()
    for kind in set(kinds):
        rows = np.array(kinds) == kind
        assert len(set(fold[rows])) == 1
        assert held_out[rows].any()


@pytest.mark.parametrize(
    ("kinds", "n_folds"),
    [
        (["a"] * 300, None),
        (["a"] * 295 + ["b"] * 5, None),  # too few to be held out
        (["a"] * 150 + ["b"] * 145 + ["c"] * 5, 2),
        (["a"] * 200 + [f"b{row}" for row in range(100)], 2),  # small kinds are one
        ([str(row) for row in range(300)], None),
    ],
)
def test_small_kinds_are_one_or_no_kind(kinds, n_folds):
    pairs = MatchingPairs(*noisy_pairs(300), *keys(300), kinds)
    assert (pairs.kind is None) == (n_folds is None)
    assert len(set(pairs.folds()[0])) == (n_folds or 4)
    choose_from_pairs(pairs)


def test_a_map_that_does_not_hold_on_other_kinds_is_not_saved():
    x, y = noisy_pairs(400)
    x[200:, 0] *= -1  # queries of the second kind are not mirrored; the first, larger dimension decides
    x[:, 0], y[:, 0] = 5 * x[:, 0], 5 * y[:, 0]
    kinds = ["a"] * 200 + ["b"] * 200
    first = MatchingPairs(x[:200], y[:200], *keys(200))
    assert choose_from_pairs(first, queries_only=True).linear_map is not None
    both = choose_from_pairs(MatchingPairs(x, y, *keys(400), kinds), queries_only=True)
    assert both.linear_map is None
    assert "of other kinds" in both.reason


def test_repeated_pairs_pairs_of_one_text_and_zero_rows_do_not_count():
    x, y = noisy_pairs(100)
    first, second = keys(100)
    first[1], second[1] = first[0], second[0]
    second[2] = first[2]
    x[3] = 0
    pairs = MatchingPairs(x, y, first, second)
    assert len(pairs) == 97
    assert pairs.n_zero_rows == 1


@pytest.mark.parametrize("queries_only", [False, True])
def test_a_map_that_helps_is_fitted_on_all_pairs_and_saved(tmp_path, queries_only):
    x, y = noisy_pairs(noise=0.5 if queries_only else 3)
    model = model_of_vectors().fitted_on_pairs(x, y, queries_only=queries_only)
    [fit] = model.fits
    assert fit.transform == ("query_ridge" if queries_only else "pair_whitening")
    assert fit.choice["tested"][-1]["mrr_gain"][1] > 0
    expected = MapCandidate(fit.transform, tuple(fit.parameters.items())).fit(JointMoments.from_rows(x, y))
    same_length(model.transform(x, queries=True), expected.apply(x))
    if queries_only:
        np.testing.assert_array_equal(model.transform(y), y)
    else:
        same_length(model.transform(y), expected.apply(y))
    model.save(tmp_path / "m")
    loaded = isosent.load(tmp_path / "m")
    assert loaded.fingerprint == model.fingerprint
    for queries in (False, True):
        np.testing.assert_array_equal(loaded.transform(x, queries=queries), model.transform(x, queries=queries))


def test_a_map_follows_those_before_it():
    x, y = noisy_pairs(noise=0.5)
    before = model_of_vectors().fitted_on_vectors(y, "mean_centering")
    after = before.fitted_on_pairs(x, y, queries_only=True)
    again = after.fitted_on_vectors(y, "whitening")
    fit = MapCandidate("query_ridge", tuple(after.fits[-1].parameters.items()))
    mapped = fit.fit(JointMoments.from_rows(before.transform(x), before.transform(y))).apply(before.transform(x))
    same_length(after.transform(x, queries=True), mapped)
    np.testing.assert_array_equal(after.transform(y), before.transform(y))
    assert again.query_map.weight.shape == (DIM, DIM)


def test_pairs_by_chance_leave_the_model_unchanged():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 200, DIM))
    for queries_only in (False, True):
        model = model_of_vectors().fitted_on_pairs(x, y, queries_only=queries_only)
        assert model.fits[-1].transform == "none"
        assert model.linear_map is None
        assert model.fits[-1].choice["reason"].startswith("Keep these vectors unchanged.")


def test_a_document_that_is_the_query_does_not_count():
    x, y = noisy_pairs(60)
    first, second = keys(60)
    second[1:] = first[:-1]  # each document is the next query, of the same vector
    first[30:] = keys(60)[0][30:]
    y[1:] = x[:-1]
    second[::2], y[::2] = [f"d{row}" for row in range(0, 60, 2)], x[::2]  # even pairs match exactly
    choice = choose_from_pairs(MatchingPairs(x, y, first, second))
    assert choice.tested[0].mrr > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:29], y[:29]), "29 groups"),
        (lambda x, y: (np.tile(x[:1], (400, 1)), y), "1 groups"),
        (lambda x, y: (np.where(np.arange(400)[:, None] == 7, np.nan, x), y), "row 7"),
        (lambda x, y: (x[:-1], y), "399"),
        (lambda x, y: (x[:, :-1], y[:, :-1]), "11"),
        (lambda x, y: (x, 2 * x), None),
    ],
)
def test_what_cannot_be_used_is_refused(change, message):
    x, y = change(*noisy_pairs())
    if message is None:
        assert model_of_vectors().fitted_on_pairs(x, y).fits
        return
    with pytest.raises(InputError, match=message):
        model_of_vectors().fitted_on_pairs(x, y)


def test_exports_hold_the_map_of_queries_or_refuse_it(tmp_path):
    x, y = noisy_pairs(noise=0.5)
    model = model_of_vectors().fitted_on_pairs(x, y, queries_only=True)
    export(model, "numpy", tmp_path / "map.safetensors")
    arrays = load_file(tmp_path / "map.safetensors")
    mapped = x @ arrays["query_weight"] + arrays["query_bias"]
    same_length(mapped, model.transform(x, queries=True))
    with pytest.raises(InputError, match="rotates"):
        export(model, "sql", tmp_path / "map.sql")


def translations(n_pairs=90, names=("a", "b"), noise=0.3):
    """Pairs of each group with the reference r: rotated by the group, and shifted; half of them begin with r."""
    random = np.random.default_rng(0)
    sides, groups = ([], []), ([], [])
    for number, name in enumerate(names):
        rotation = np.linalg.qr(random.normal(size=(DIM, DIM)))[0]
        reference = random.normal(size=(n_pairs, DIM))
        other = reference @ rotation + 4 * number - 6 + noise * random.normal(size=(n_pairs, DIM))
        for row in range(n_pairs):
            pair, labels = (other[row], reference[row]), (name, "r")
            for side, group, vector, label in zip(
                sides, groups, pair[:: (-1) ** row], labels[:: (-1) ** row], strict=True
            ):
                side.append(vector)
                group.append(label)
    return *(np.array(side, np.float32) for side in sides), groups


@pytest.fixture(scope="module")
def grouped():
    x, y, groups = translations()
    return model_of_vectors().fitted_on_pairs(x, y, groups={"lang": groups})


@pytest.mark.parametrize("whitening", [(), (0.5,)])
def test_each_map_of_a_group_equals_a_plain_reference_on_the_rows(monkeypatch, whitening):
    x, y, groups = translations()
    settings = (("penalty", 0.3), *(("whitening", each) for each in whitening))
    only = [MapCandidate("group_maps", settings)]
    monkeypatch.setattr(pairs_module, "_candidates", lambda **_: (only, only))
    model = model_of_vectors().fitted_on_pairs(x, y, groups=groups)
    assert (model.groups.reference, list(model.groups.maps), model.groups.column) == ("r", ["a", "b"], "group")
    before = x, y
    if whitening:
        both = Whitening(strength=0.5, shrinkage="oas").fit(np.concatenate([x, y])).linear_map_
        before = both.apply(x), both.apply(y)
        same_length(model.transform(x), before[0])
    first, second = (np.array(side) for side in groups)
    for name in ("a", "b"):
        of_group = np.concatenate([before[0][first == name], before[1][second == name]]).astype(np.float64)
        of_reference = np.concatenate([before[1][first == name], before[0][second == name]]).astype(np.float64)
        a, b = of_group - of_group.mean(axis=0), of_reference - of_reference.mean(axis=0)
        amount = 0.3 * np.trace(a.T @ a) / DIM * np.eye(DIM)
        weight = np.linalg.inv(a.T @ a + amount) @ (a.T @ b + amount)
        raw = np.concatenate([x[first == name], y[second == name]])
        same_length(model.transform(raw, group=name), a @ weight + of_reference.mean(axis=0))
    same_length(model.transform(x, group="r"), before[0])


def test_rows_of_several_groups_and_of_none(grouped, tmp_path):
    x, _, (first, _) = translations()
    mixed = grouped.transform(x, group=first)
    for name in ("a", "b", "r"):
        rows = [row for row, each in enumerate(first) if each == name]
        np.testing.assert_array_equal(mixed[rows], grouped.transform(x[rows], group=name))
    np.testing.assert_array_equal(grouped.transform(x), grouped.transform(x, group="r"))
    assert not grouped.transform(np.zeros((1, DIM)), group="a").any()
    assert grouped.transform(np.zeros((0, DIM)), group="a").shape == (0, DIM)
    grouped.save(tmp_path / "m")
    loaded = isosent.load(tmp_path / "m")
    assert loaded.fingerprint == grouped.fingerprint != model_of_vectors().fingerprint
    assert loaded.groups.column == "lang"
    np.testing.assert_array_equal(loaded.transform(x, group=first), mixed)


@pytest.mark.parametrize(
    ("group", "message"),
    [("c", "'c' is no group.*r, a, b"), (["a", None], "None in row 1"), (["a"], "2 rows"), (7, "7 is no group")],
)
def test_an_unknown_group_is_refused(grouped, group, message):
    with pytest.raises(InputError, match=message):
        grouped.transform(np.ones((2, DIM)), group=group)


def test_maps_of_groups_end_a_model(grouped, tmp_path):
    x, y, groups = translations()
    for refused in (
        lambda: grouped.fitted_on_vectors(x, "whitening"),
        lambda: grouped.fitted_on_pairs(x, y, groups=groups),
        lambda: export(grouped, "numpy", tmp_path / "map.safetensors"),
        lambda: model_of_vectors().transform(x, group="a"),
        lambda: model_of_vectors().fitted_on_pairs(x, y, groups=groups, queries_only=True),
    ):
        with pytest.raises(InputError, match=r"group|lang"):
            refused()


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model["groups"].update(names=["b", "a"]),  # other texts would be mapped by them
        lambda model: model["groups"].update(names=["a"]),
        lambda model: model["groups"].update(names=["a", "r"]),
        lambda model: model["groups"].update(names=["a", ""]),
        lambda model: model["groups"].update(column="la\x1b[2Jng"),
        lambda model: model.update(group_maps=model["linear_map"]),
        lambda model: model.update(group_maps=None),
        lambda model: model.pop("groups"),
        lambda model: model.update(linear_map=None),
    ],
)
def test_maps_of_groups_that_were_altered_are_refused(grouped, tmp_path, change):
    grouped.save(tmp_path / "m")
    file = tmp_path / "m" / "model.json"
    document = json.loads(file.read_text())
    document.pop("checksum", None)
    change(document)
    file.write_text(json.dumps(document))
    with pytest.raises(ModelFolderError):
        isosent.load(tmp_path / "m")


def swapped(side, row, label):
    return [label if number in row else each for number, each in enumerate(side)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda first, second: (["a"] * 180, ["a"] * 180), "every text is of the group 'a'"),
        (lambda first, second: (swapped(first, range(20), "c"), second), r"c \(1.\)"),
        (lambda first, second: (swapped(first, range(90), "c"), swapped(second, range(90), "c")), r"c \(0\)"),
        (lambda first, second: ([f"{row}" for row in range(180)], second), "183 different groups; at most 100"),
        (lambda first, second: (first[:-1], second), "179"),
        (lambda first, second: ([None] * 180, second), "0 usable pairs"),
    ],
)
@pytest.mark.filterwarnings("ignore::isosent.errors.IsosentWarning")
def test_groups_that_cannot_have_maps_are_refused(change, message):
    x, y, groups = translations()
    with pytest.raises(InputError, match=message):
        model_of_vectors().fitted_on_pairs(x, y, groups=change(*groups))


def test_a_hundred_thousand_groups_are_refused_at_once():
    n_pairs = 100_000
    x, y = np.random.default_rng(0).normal(size=(2, n_pairs, 2)).astype(np.float32)
    with pytest.raises(InputError, match="100,001 different groups"):
        MatchingPairs(x, y, *keys(n_pairs), labels=([f"g{row}" for row in range(n_pairs)], ["en"] * n_pairs))


def test_pairs_without_a_group_or_kind_are_left_out():
    x, y, (first, second) = translations()
    with pytest.warns(IsosentWarning, match="3 of 180"):
        pairs = MatchingPairs(x, y, *keys(180), ["k", "", float("nan"), *["l"] * 177], ([None, *first[1:]], second))
    assert len(pairs) == 177
    assert pairs.kind is None  # what is left is of one kind
    assert MatchingPairs(x, y, *keys(180), [None] * 180).kind is None


def test_the_reference_is_the_group_that_others_have_pairs_with():
    x, y, (first, second) = translations()
    pairs = MatchingPairs(x, y, *keys(180), labels=(first, second))
    assert pairs.names[pairs.reference] == "r"
    only = MatchingPairs(x[:90], y[:90], *keys(90), labels=(["a"] * 90, ["z"] * 90))
    assert only.names[only.reference] == "z"  # two are even: documents stay as they are
    within = MatchingPairs(x, y, *keys(180), labels=(["a"] * 90 + ["b"] * 90, ["r"] * 90 + ["b"] * 40 + ["r"] * 50))
    assert [(within.names[label], joint.weight) for label, joint in within.moments_by_label(np.ones(180, bool))] == [
        ("a", 90),
        ("b", 50),
    ]


def test_maps_of_groups_that_do_not_hold_on_other_kinds_are_not_saved():
    x, y, groups = translations(names=("a",))
    u, v, _ = translations(names=("b", "a"))  # the second rotation is another one
    first = model_of_vectors().fitted_on_pairs(x, y, groups=groups)
    assert first.groups is not None
    x, y, groups = np.concatenate([x, u[90:]]), np.concatenate([y, v[90:]]), [2 * side for side in groups]
    both = model_of_vectors().fitted_on_pairs(x, y, groups=groups, kinds=["k"] * 90 + ["l"] * 90)
    assert both.groups is None


@pytest.mark.parametrize(("seed", "failed"), [(0, "nDCG@10"), (1, "no better on the folds"), (2, "MRR")])
def test_what_keeps_a_map_from_being_saved_is_named(seed, failed):
    sides = np.stack(noisy_pairs(200)) + (1 + seed / 3) * np.random.default_rng(seed).normal(size=(2, 200, DIM))
    reason = choose_from_pairs(MatchingPairs(*sides, *keys(200))).reason
    assert reason.startswith("Keep")
    assert failed in reason
    assert failed.startswith("no") or float(reason.partition("interval ")[2].partition(" to")[0]) <= 0


def test_the_record_of_plain_whitening_fits_it_again():
    x, y = noisy_pairs()
    candidate = MapCandidate("whitening", (("strength", 0.5),))
    again = make_linear("whitening", settings=candidate.parameters).fit(np.concatenate([x, y]).astype(np.float64))
    same_length(again.linear_map_.apply(x), candidate.fit(JointMoments.from_rows(x, y)).apply(x))


def test_a_map_of_queries_alone_is_part_of_the_space(tmp_path):
    doubled = Postprocessing((MapStep(None, LinearMap(2 * np.eye(DIM), np.zeros(DIM))),))
    model = SentenceEncoder.from_record(
        model_of_vectors().encoder, replace(model_of_vectors().record, postprocessing=doubled)
    )
    assert model.fingerprint != model_of_vectors().fingerprint
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(isosent.load(tmp_path / "m").transform(np.ones((1, DIM)), queries=True), 2)
    np.testing.assert_array_equal(model.transform(np.ones((1, DIM))), 1)


def test_the_name_of_a_prompt_is_the_role():
    encoder = isosent.load("wordllama").encoder
    model = SentenceEncoder(
        encoder, Postprocessing((MapStep(None, LinearMap(2 * np.eye(encoder.dim), np.zeros(encoder.dim))),))
    )
    texts = ["A man rides a bike."]
    np.testing.assert_array_equal(model.encode(texts, prompt_name="query"), model.encode_query(texts))
    np.testing.assert_array_equal(model.encode(texts, prompt_name="document"), model.encode_document(texts))
    np.testing.assert_array_equal(model.encode(texts, prompt_name="query", role="document"), model.encode(texts))


@pytest.mark.parametrize("bias", [np.zeros(()), np.zeros(2)])
def test_maps_of_groups_with_a_bias_of_another_shape_are_refused(grouped, tmp_path, bias):
    grouped.save(tmp_path / "m")
    file = tmp_path / "m" / "model.json"
    document = json.loads(file.read_text())
    document.pop("checksum", None)
    save_file({"weight": np.zeros((2, DIM, DIM)), "bias": bias}, tmp_path / "m" / "other.safetensors")
    document["group_maps"] = "other.safetensors"
    file.write_text(json.dumps(document))
    with pytest.raises(ModelFolderError, match="does not hold weight and bias") as caught:
        isosent.load(tmp_path / "m")
    assert "flow" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: {},
        lambda first, second: (first, second, second),
        lambda first, second: (first,),
        lambda first, second: {"a": (first, second), "b": (first, second)},
        lambda first, second: {"a\n": (first, second)},
        lambda first, second: ("r", "a"),
    ],
)
def test_groups_are_one_pair_of_sequences(change):
    x, y, groups = translations()
    with pytest.raises(InputError, match="groups: "):
        model_of_vectors().fitted_on_pairs(x, y, groups=change(*groups))


def test_groups_may_be_series_of_another_index():
    pd = pytest.importorskip("pandas")
    x, y, groups = translations()
    sides = [pd.Series(side, index=range(5, 5 + len(side)), dtype="string") for side in groups]
    sides[0].iloc[0] = pd.NA
    with pytest.warns(isosent.IsosentWarning, match="1 of 180 name no group"):
        model = model_of_vectors().fitted_on_pairs(x, y, groups=tuple(sides))
    assert model.groups.reference == "r"


def test_a_group_without_maps_names_no_command():
    with pytest.raises(InputError, match=r"^group: this model has no groups"):
        model_of_vectors().transform(np.ones((1, DIM)), group="a")
