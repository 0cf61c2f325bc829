"""Every later version opens what a release has written, and reads the same numbers from it.

The files are those of ``tests/contracts/makers/golden_formats.py``, which writes a folder for each release and never
again. The numbers were read by the version that wrote the files; float32 products on other machines differ in the last
digits.
"""

import ast
import json
import os
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import golden_formats
import numpy as np
import pytest
from safetensors import safe_open

from isosent.jobs.moments import read_moments

RELEASES = sorted(path.name for path in golden_formats.FORMATS.iterdir())
SOURCE = Path(__file__).parents[2] / "src" / "isosent"
WITHOUT_FILES = {
    "isosent-graph 1",  # a cache: what does not open is made again
    "isosent reproduction 1",  # isosent does not read it
    "isosent-training 1",  # a run is resumed from here, and needs torch
    "isosent-run",
    "isosent-training-checkpoint",
}


def expected(release):
    return json.loads((golden_formats.FORMATS / release / golden_formats.EXPECTED).read_text("utf-8"))


def assert_close(actual, expected, where):
    """Compare nested lists: numbers to float32, all else exactly; int8 codes may be rounded the other way."""
    if isinstance(expected, list):
        assert len(actual) == len(expected), where
        for inner, other in zip(actual, expected, strict=True):
            assert_close(inner, other, where)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=2e-5, rel=2e-5, nan_ok=True), where
    else:
        assert abs(actual - expected) <= (where == "quantized, int8"), where


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_wrote_gives_the_same_numbers(tmp_path, release):
    folder = shutil.copytree(golden_formats.FORMATS / release, tmp_path / "folder")  # reading may lock or sweep
    expected_numbers, numbers = expected(release)["numbers"], golden_formats.numbers(folder)
    for name, value in expected_numbers.items():
        assert_close(numbers[name], value, name)


@pytest.mark.parametrize("release", RELEASES)
def test_runs_of_a_release_are_resumed(tmp_path, monkeypatch, release):
    folder = shutil.copytree(golden_formats.FORMATS / release, tmp_path / "folder")
    monkeypatch.chdir(folder)
    before = np.load("shards/part-00000.npy")
    with safe_open("checkpoint", "numpy") as file:  # a checkout gives files another time
        when = json.loads(file.metadata()["run"])["data"][0]["mtime_ns"]
    os.utime("more_vectors.npy", ns=(when, when))
    golden_formats.run("moments more_vectors.npy --checkpoint checkpoint -o again.safetensors")
    golden_formats.run("encode texts.txt -m ./whitened?encoder=words:words.txt --shard-size 24 -o shards")
    again, first = (read_moments(f"{name}.safetensors").moments for name in ("again", "more_moments"))
    np.testing.assert_array_equal(again.scatter, first.scatter)
    np.testing.assert_array_equal(np.load("shards/part-00000.npy"), before)


@pytest.mark.parametrize("release", RELEASES)
def test_the_files_of_a_release_are_of_the_formats_that_it_lists(release):
    folder = golden_formats.FORMATS / release
    assert expected(release)["formats"] == golden_formats.formats_in(folder)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 500_000


def constants(path):
    """The constants of a module, by their names."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_pair = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            for name, value in zip(target.elts, node.value.elts, strict=True) if is_pair else [(target, node.value)]:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                    yield name.id, value.value


def formats_of_the_source():
    """Each format with its version: FORMAT and FORMAT_VERSION, with any words before, or both in one."""
    for path in sorted(SOURCE.rglob("*.py")):
        values = dict(constants(path))
        for name, value in values.items():
            if name.endswith("FORMAT") and isinstance(value, str) and value.startswith("isosent"):
                stem = name.removesuffix("FORMAT")
                number = values.get(f"{name}_VERSION", values.get(f"{stem}VERSION"))
                yield value if number is None else f"{value} {number}"


def test_every_format_has_a_file_of_a_release():
    """A new format, or a new version of one, needs a file that some release wrote: run the script at the next one."""
    kept = {name for release in RELEASES for name in expected(release)["formats"]} | WITHOUT_FILES
    current = set(formats_of_the_source())
    assert len(current) > 12
    missing = {
        name
        for name in current
        if not any(re.fullmatch(re.escape(name).replace(r"\{\}", "[a-z]+"), each) for each in kept)
    }
    assert missing == set()


def test_the_version_in_use_has_its_folder():
    """Run ``python tests/contracts/makers/golden_formats.py`` when the version is set."""
    assert version("isosent") in RELEASES
