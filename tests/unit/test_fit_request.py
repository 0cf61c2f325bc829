"""What goes together in a fit: refused by one table, and worded for Python here; the command line says --flags."""

import numpy as np
import pytest

import isosent
from isosent.errors import InputError
from isosent.io.source import open_source
from isosent.jobs.fit_request import EXCLUSIONS, FitRequest
from isosent.jobs.moments import FileMoments, write_moments

ENGINE = object()
FLOW = {"transform": "glow_flow"}


def request(inputs=("v.npy",), **options):
    return FitRequest(inputs=inputs, output="model", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_bytes": 9, "loss": 0.1}, "n_bytes and loss"),
        ({"n_bytes": 9, "settings": {"n_components": 4}}, "n_bytes and n_components"),
        ({"loss": 0.1, "erase": "lang", "queries": "q"}, "erase and queries"),
        ({"loss": 0.1, "transform": "none"}, "transform='none'"),
        ({"loss": float("inf")}, "loss is not a finite number"),
        ({"engine": ENGINE, "checkpoint": "c"}, "checkpoint and pairs do not go with engine"),
        ({"engine": ENGINE, "loss": 0.1}, "loss does not go with engine"),
        ({"engine": ENGINE, "transform": "none"}, "engine are for a linear transform"),
        ({"engine": ENGINE, **FLOW}, "a flow"),
        ({"shard_size": 9}, "shard_size is for engine"),
        ({"queries": "q", "transform": "none"}, "queries needs a transform"),
        ({"queries_only": True}, "queries names no file"),
        ({"space": "a", "model": "b"}, "space and model"),
        ({"pairs": "p", "texts": "t", "loss": 0.1}, "texts and loss"),
        ({"pairs": "p", "settings": {"n_components": 4}}, "n_components"),
        ({"pairs": "p", "queries": "q"}, "a file of queries"),
        ({"pairs": "p", "erase": "lang", "inputs": ()}, "inputs=[TABLE]"),
        ({"inputs": ()}, "no input"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_opened(options, words):
    with pytest.raises(InputError, match="fit: ") as refused:
        request(**options).check()
    assert words in str(refused.value)
    assert "--" not in str(refused.value)


@pytest.fixture
def sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(40, 4))
    np.save("v.npy", rows)
    (tmp_path / "t.txt").write_text("a\nb\n")
    write_moments("m.safetensors", FileMoments(isosent.Moments.from_rows(rows), 0, None, ("x",)))
    return {
        name: open_source(path, moments=True) for name, path in (("v", "v.npy"), ("t", "t.txt"), ("m", "m.safetensors"))
    }


@pytest.mark.parametrize(
    ("inputs", "options", "words"),
    [
        ("tv", {}, "t.txt holds texts, and v.npy holds vectors"),
        ("t", {"space": "a"}, "t.txt holds texts"),
        ("v", {"pairs": "p", "erase": "lang"}, "v.npy holds vectors"),
        ("vm", {"erase": "lang"}, "erase of vectors does not go with moments"),
        ("v", {"erase": "lang", "checkpoint": "c"}, "erase of vectors"),
        ("m", {"loss": 0.1}, "loss needs vectors"),
        ("v", {"texts": "t", "transform": "whitening"}, "transform='auto'"),
        ("m", {"texts": "t"}, "transform='auto'"),
        ("vm", FLOW, "a flow needs vectors"),
        ("v", {"queries": "q", **FLOW}, "a flow needs vectors"),
    ],
)
def test_what_inputs_do_not_go_with_is_refused_once_they_are_opened(sources, inputs, options, words):
    asked = request(**options)
    asked.check()
    with pytest.raises(InputError, match="fit: ") as refused:
        asked.check([sources[name] for name in inputs])
    assert words in str(refused.value)


def test_what_goes_together_is_not_refused(sources):
    for inputs, options in (
        ("t", {"erase": "lang", "pairs": "p", "queries": "q"}),
        ("t", {"loss": 0.1, **FLOW}),
        ("v", {"erase": "lang", "texts": "t"}),
        ("v", {"texts": "t", "loss": 0.1, "space": "a"}),
        ("vm", {"queries": "q", "checkpoint": "c", "transform": "whitening"}),
    ):
        request(**options).check([sources[name] for name in inputs])
    request(pairs="p", queries_only=True, space="a").check([sources["v"]], pairs="vectors")


def test_every_sentence_can_be_formed():
    for each in EXCLUSIONS:
        assert "{" not in each.sentence.format(these="a", those="b", first="b", every="b", request=request())
