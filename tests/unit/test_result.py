import csv
import json
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from made_results import made_result, right_and_wrong

from isosent.errors import FileFormatError, InputFileError
from isosent.evaluation.compare import compare_results
from isosent.evaluation.result import FORMAT, EvaluationResult, Items, TaskResult
from isosent.evaluation.result_file import read_result
from isosent.evaluation.run import environment

NAN = float("nan")


@pytest.fixture
def result():
    """A task with human scores, one of right and wrong, and one that is undefined."""
    random = np.random.default_rng(0)
    gold = random.integers(0, 11, size=40) / 2
    one, two = {"similarity": "cosine"}, {"dev": 1 / 3, "list": ["a", None]}
    counts = {"n_items": 40, "dim": 3, "n_zero_rows": 1, "n_tokens": 7, "n_unknown": 2, "elapsed_s": 0.1 + 0.2}
    tasks = {
        "STSB": TaskResult(
            "sts",
            "spearman",
            {"spearman": 1 / 3, "pearson": random.random()},
            {"spearman": (1 / 7, 2 / 3), "pearson": (0.1, random.random())},
            one,
            {"a.txt": "0a"},
            items=Items(random.random(40), gold),
            details={"subsets": {"a": {"spearman": NAN}}},
            choice={"chosen": "raw", "reason": "so", "candidates": [1e-17]},
            **counts,
        ),
        "MR": TaskResult(
            "transfer",
            "accuracy",
            {"accuracy": 0.55, "mse": 1.7},
            {"accuracy": (0.5, 0.6)},
            two,
            {"b.txt": "0b"},
            items=Items((random.random(40) > 0.5).astype(float)),
            **counts,
        ),
        "STS12": TaskResult(
            "sts",
            "spearman",
            {"spearman": NAN, "pearson": NAN},
            {"spearman": (NAN, NAN), "pearson": (NAN, NAN)},
            one,
            {},
            items=Items(np.ones(40), gold),
            **counts,
        ),
    }
    fitting = {"transform": None, "parameters": {}, "fit": None, "transductive": False}
    model = {"reference": "wörter", "options": {}, "fits": [], "fingerprint": "ab"}
    machine = {"versions": {"isosent": "0.1.0"}, "machine": "x86_64", "system": "Linux", "n_cpus": 2}
    return EvaluationResult(model, fitting, tasks, machine, 3, 1000, 80, 0, 0.3, 1 / 3)


@pytest.fixture
def path(result, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(result.to_text(), "utf-8")
    return path


def same(one, other):
    """Whether two values are equal to the last digit, NaN equal to NaN."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def test_a_file_gives_back_every_number_to_the_last_digit(result, path):
    read = read_result(path)
    for name in ("model", "fitting", "environment", "seed", "n_resamples", "n_texts", "n_cut", "encode_s", "elapsed_s"):
        assert same(getattr(read, name), getattr(result, name)), name
    assert list(read.tasks) == list(result.tasks)
    for name, task in result.tasks.items():
        back = read.tasks[name]
        for field in (
            "kind",
            "metric",
            "scores",
            "intervals",
            "protocol",
            "data",
            "n_items",
            "dim",
            "elapsed_s",
            "choice",
        ):
            assert same(getattr(back, field), getattr(task, field)), (name, field)


def test_writing_what_was_read_gives_the_same_file(path):
    assert read_result(path).to_text() == path.read_text("utf-8")


def test_items_keep_every_digit_and_whole_numbers_stay_short(result, path):
    read = read_result(path).tasks
    assert np.array_equal(read["STSB"].items.values, result.tasks["STSB"].items.values)
    assert np.array_equal(read["STSB"].items.gold, result.tasks["STSB"].items.gold)
    assert np.array_equal(read["MR"].items.values, result.tasks["MR"].items.values)
    assert read["MR"].items.gold is None
    assert read["MR"].items.values.dtype == np.float64
    (line,) = [line for line in path.read_text("utf-8").splitlines() if line.strip().startswith('"MR": {"values"')]
    assert set(line.split("[")[1].split("]")[0]) == set("01, ")


def test_what_is_undefined_is_null_and_comes_back(path):
    text = path.read_text("utf-8")
    assert "NaN" not in text
    assert json.loads(text)["tasks"]["STS12"]["scores"]["spearman"] is None
    read = read_result(path).tasks["STS12"]
    assert np.isnan([*read.scores.values(), *read.interval, read.score]).all()


def test_an_undefined_item_comes_back(result, tmp_path):
    task = replace(result.tasks["MR"], items=Items(np.array([0.5, NAN, 1.0] + [0.0] * 37)))
    (tmp_path / "r.json").write_text(replace(result, tasks={"MR": task}).to_text(), "utf-8")
    values = read_result(tmp_path / "r.json").tasks["MR"].items.values
    assert values[:3] == pytest.approx([0.5, NAN, 1.0], nan_ok=True)


def test_a_file_is_json_that_anything_can_read(path):
    document = json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)
    assert document["format"] == FORMAT
    assert list(document)[-2:] == ["items", "checksum"]
    assert "wörter" in path.read_text("utf-8")


def test_a_file_without_items_is_read_without_them(result, tmp_path):
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(result.to_json(items=False)), "utf-8")
    read = read_result(path)
    assert all(not len(task.items.values) for task in read.tasks.values())
    assert same(read.tasks["STSB"].scores, result.tasks["STSB"].scores)


def test_a_file_compares_with_the_result_it_was_written_from(result, path):
    found = compare_results(result, read_result(path), n_resamples=20).tasks
    assert found["STSB"].difference == 0
    assert found["STSB"].interval == pytest.approx((0, 0), abs=1e-6)


def test_averages_are_over_tasks_that_have_the_metric(result):
    assert np.isnan(result.average("spearman"))
    assert np.isnan(result.average("bleu"))
    assert result.average("accuracy") == 0.55
    defined = replace(
        result, tasks={**result.tasks, "STS12": replace(result.tasks["STSB"], scores={"spearman": 2 / 3})}
    )
    assert defined.average("spearman") == pytest.approx(0.5)
    assert defined.average_of("sts", "spearman") == pytest.approx(0.5)
    assert np.isnan(defined.average_of("sts", "pearson"))
    assert np.isnan(defined.average_of("rte", "accuracy"))


def test_a_missing_file_is_told_from_a_damaged_one(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_result(tmp_path / "nowhere.json")
    (tmp_path / "empty.json").touch()
    with pytest.raises(InputFileError, match="is empty"):
        read_result(tmp_path / "empty.json")


def test_another_format_is_named(path):
    write_changed(path, ("format",), "isosent result 9")
    with pytest.raises(FileFormatError, match=r"format is 'isosent result 9', not 'isosent result 1'"):
        read_result(path)


@pytest.mark.parametrize(
    "content",
    [
        b"spearman: 0.7",
        b"[]",
        b"3",
        b"{}",
        b'{"format": "isosent result 1"}',
        b'{"format": "isosent result 1", "tasks": []}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_what_is_no_result_is_refused(tmp_path, content):
    (tmp_path / "r.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"r\.json.*(not JSON|Expected `object`|result file|missing required)"):
        read_result(tmp_path / "r.json")


def test_a_file_cut_anywhere_is_refused(path):
    content = path.read_bytes()
    for end in np.linspace(1, len(content) - 3, 60).astype(int):
        path.write_bytes(content[:end])
        with pytest.raises(FileFormatError, match=r"r\.json: damaged, truncated or not JSON"):
            read_result(path)


@pytest.mark.parametrize("bit", [1, 64])
def test_a_changed_byte_anywhere_is_noticed(path, bit):
    content = path.read_bytes()
    for place in np.linspace(0, len(content) - 3, 150).astype(int):
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        with pytest.raises(FileFormatError, match=r"r\.json"):
            read_result(path)


def test_a_file_from_before_checksums_opens(result, path):
    document = json.loads(path.read_text("utf-8"))
    del document["checksum"]
    path.write_text(json.dumps(document), "utf-8")
    assert read_result(path).to_text() == result.to_text()


def write_changed(path, place, value=...):
    """Change a value of a file, or take it out; without a checksum, so that something else must notice."""
    document = json.loads(path.read_text("utf-8"))
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    if value is ...:
        del inner[place[-1]]
    document.pop("checksum", None)
    path.write_text(json.dumps(document), "utf-8")


@pytest.mark.parametrize(
    "place",
    [
        ("seed",),
        ("model",),
        ("fitting", "transductive"),
        ("environment", "versions"),
        ("tasks", "STSB", "metric"),
        ("tasks", "STSB", "scores", "spearman"),
        ("tasks", "STSB", "intervals", "spearman"),
        ("tasks", "STSB", "protocol"),
        ("tasks", "STSB", "n_items"),
        ("items", "STSB", "gold"),
        ("items", "STSB", "values"),
    ],
)
def test_a_file_that_lacks_something_is_refused(path, place):
    write_changed(path, place)
    with pytest.raises(FileFormatError, match=rf"r\.json.*{place[-1]}"):
        read_result(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("model",), None),
        (("fitting",), []),
        (("environment",), "here"),
        (("surplus",), 1),
        (("tasks", "STSB"), None),
        (("tasks", "STSB", "surplus"), 1),
        (("tasks", "STSB", "metric"), "kendall"),
        (("tasks", "STSB", "scores", "spearman"), 1.5),
        (("tasks", "STSB", "scores", "spearman"), 10**400),
        (("tasks", "STSB", "intervals", "spearman"), [NAN, float("inf")]),
        (("model", "reference"), "a\0b"),
        (("tasks", "STSB", "scores", "spearman"), "high"),
        (("tasks", "STSB", "intervals", "spearman"), [0.1]),
        (("tasks", "STSB", "protocol"), None),
        (("tasks", "STSB", "data"), "a.txt"),
        (("tasks", "STSB", "n_items"), 39),
        (("items", "STSB", "values"), [0.5] * 39),
        (("items", "STSB", "values"), [[0.5]] * 40),
        (("items", "STSB", "values"), ["a"] * 40),
        (("items", "STSB", "gold"), [0.5] * 39),
        (("items", "STSB"), 7),
        (("items",), 7),
    ],
)
def test_a_file_with_something_else_in_its_place_is_refused(path, place, value):
    write_changed(path, place, value)
    with pytest.raises(FileFormatError, match=r"r\.json"):
        read_result(path)


def test_several_transforms_are_written_read_and_exported(result, tmp_path):
    fittings = [
        {"transform": None, "parameters": {}, "fit": None, "transductive": False},
        {
            "transform": "whitening",
            "parameters": {"n_components": 64, "eps": 0.0},
            "fit": "target",
            "transductive": True,
        },
        {
            "transform": "whitening",
            "parameters": {"n_components": 8, "eps": 0.0},
            "fit": "target",
            "transductive": True,
        },
    ]
    first, *others = (replace(result, fitting=fitting) for fitting in fittings)
    together = replace(first, variants=tuple(others))
    (tmp_path / "r.json").write_text(together.to_text(), "utf-8")
    again = read_result(tmp_path / "r.json")
    assert again.to_text() == together.to_text()
    assert list(again.by_transform()) == ["none", "whitening(n_components=64)", "whitening(n_components=8)"]
    rows = list(csv.DictReader(again.to_csv().splitlines()))
    assert len(rows) == 3 * sum(len(task.scores) for task in result.tasks.values())
    assert {row["fit_on"] for row in rows} == {"", "target"}
    (row,) = [row for row in rows if (row["transform"], row["task"], row["metric"]) == ("none", "STSB", "spearman")]
    assert [float(row[name]) for name in ("score", "lower", "upper")] == [1 / 3, 1 / 7, 2 / 3]
    latex = again.to_latex()
    assert r" + whitening, n\_components=8 & 33.33 & " in latex
    assert latex.count(r" \\") == 1 + 3 * 3
    assert latex.count(r"\addlinespace") == 2
    for said in ("transductive", "all pairs", f"percentile bootstrap over items, {together.n_resamples:,} resamples"):
        assert said in latex
    assert r"95\% from & \scriptsize 14.29 & " in latex
    assert r"95\% to & \scriptsize 66.67 & " in latex


def test_a_result_and_a_comparison_print_their_scores_and_no_arrays(result):
    task = result.tasks["STSB"]
    assert f"STSB {100 * task.score:.2f}" in repr(result)
    assert f"{task.n_items:,}" in str(result)
    for text in (repr(result), str(result), str(compare_results(result, result))):
        assert "STSB" in text
        assert "array" not in text


def test_a_comparison_is_exported(result):
    compared = compare_results(result, result, n_resamples=20)
    rows = list(csv.DictReader(compared.to_csv().splitlines()))
    assert [row["task"] for row in rows][: len(compared.tasks)] == list(compared.tasks)
    assert {row["verdict"] for row in rows} <= {"the same", "cannot tell"}
    assert "STSB † & " in compared.to_latex()  # too many unknown tokens


def test_tables_name_the_fits_of_the_model(result):
    fits = [{"transform": name, "parameters": {}, "source": "c.txt"} for name in ("none", "whitening")]
    fitted = replace(result, model=result.model | {"fits": fits})
    assert {row["model"] for row in csv.DictReader(fitted.to_csv().splitlines())} == {"wörter -> whitening"}
    assert "wörter + whitening & " in fitted.to_latex()


def test_an_average_has_the_interval_of_tasks_that_are_drawn_apart():
    tasks = {"MR": right_and_wrong(60, n_items=400), "CR": right_and_wrong(100, 20, n_items=200)}
    result = made_result(**tasks)
    variance = sum(task.score * (1 - task.score) / task.n_items for task in tasks.values()) / 2**2  # of the mean
    middle, half_width = np.mean([task.score for task in tasks.values()]), 1.96 * variance**0.5
    low, high = result.average_interval(tasks, "accuracy")
    assert (low, high) == pytest.approx((middle - half_width, middle + half_width), abs=0.1 * half_width)
    cells = [line.split(" & ")[-1] for line in result.to_latex().splitlines() if r"\scriptsize 95" in line]
    assert cells == [rf"\scriptsize {100 * end:.2f} \\" for end in (low, high)]
    assert np.isnan(result.average_interval(tasks, "f1")).all()  # which no item has


def test_the_version_of_the_package_with_the_weights_is_recorded():
    assert environment()["versions"]["wordllama"] == version("wordllama")
