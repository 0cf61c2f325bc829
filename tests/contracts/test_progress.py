"""One shape of progress: every function calls `progress(done, total)`, where each stage rises to its total."""

import inspect
from itertools import pairwise

import numpy as np
import pytest

import isosent
from isosent import exports, search, training
from isosent.evaluation.unlabelled import compare_models
from isosent.search import Index

TEXTS = isosent.demo_texts()[:300]
LONG = [f"{first} {second}" for first, second in pairwise(isosent.demo_texts()[:320])]
WORDS = "\n".join(f"word{n} {n} {n + 1} 0.5" for n in range(50)) + "\n"


def evaluated(progress, model, folder, write_stsb):
    return isosent.evaluate(model, write_stsb(folder), progress=progress)


def compared(progress, model, folder, write_stsb):
    result = evaluated(None, model, folder, write_stsb)
    return isosent.compare_results(result, result, n_resamples=10, progress=progress)


def exported(progress, model, folder, *_):
    np.save(folder / "v.npy", model.encode(TEXTS))
    fitted = model.fitted(TEXTS, "whitening", settings={"n_components": 8})
    exports.export(fitted, "faiss", folder / "i.faiss", vectors=folder / "v.npy", index="Flat", progress=progress)


def loaded(progress, _, folder, *__):
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(WORDS)
    isosent.load(f"words:{folder / 'a.txt'},{folder / 'b.txt'}", progress=progress)


def written(progress, model, folder, *_):
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    sharding = isosent.io.shards.Sharding(70)
    isosent.encode_folder(model, [str(folder / "texts.txt")], folder / "out", sharding=sharding, progress=progress)


def added(progress, model, folder, *_):
    Index.create(TEXTS[:30], model, folder=folder / "index").add(TEXTS[30:], progress=progress)


CALLS = {  # with the totals of the stages
    "SentenceEncoder.encode": (lambda progress, model, *_: model.encode(TEXTS, progress=progress), [300]),
    "SentenceEncoder.fitted": (lambda progress, model, *_: model.fitted(TEXTS, "whitening", progress=progress), [300]),
    "SentenceEncoder.fitted_on_pairs": (
        lambda progress, model, *_: model.fitted_on_pairs(TEXTS[::2], TEXTS[1::2], progress=progress),
        [300],
    ),
    "compare_models": (
        lambda progress, model, *_: compare_models({"a": model, "b": model}, LONG, progress=progress),
        [4 * len(LONG)],
    ),
    "compare_results": (compared, [12]),
    "encode_folder": (written, [300]),
    "evaluate": (evaluated, [24]),
    "export": (exported, [300]),
    "inspect_texts": (lambda progress, model, *_: isosent.inspect_texts(model, TEXTS[:40], progress=progress), [40]),
    "inspect_vectors": (
        lambda progress, model, *_: isosent.inspect_vectors(model.encode(TEXTS[:40]), progress=progress),
        [40],
    ),
    "load": (loaded, [2 * len(WORDS)]),
    "migrate": (lambda progress, model, *_: isosent.migrate(model, model, LONG, progress=progress), [512, 126, 63, 63]),
    "Index.add": (added, [270]),
    "Index.create": (lambda progress, model, *_: Index.create(TEXTS, model, progress=progress), [300]),
    "cluster": (lambda progress, model, *_: search.cluster(TEXTS, model, progress=progress), [300]),
    "find_known": (
        lambda progress, model, *_: search.find_known(TEXTS, LONG, model, progress=progress),
        [300 + len(LONG)],
    ),
    "find_duplicates": (lambda progress, model, *_: search.find_duplicates(TEXTS, model, progress=progress), [300]),
    "neighbor_map": (  # the steps of openTSNE, which may be missing: tests/unit/test_places.py
        lambda progress, model, *_: search.neighbor_map(model.encode(TEXTS[:9]), progress=progress),
        [9],
    ),
}
OTHERS = {"train", "distill"}  # whose tests make a transformer


@pytest.mark.parametrize("name", CALLS)
def test_a_stage_rises_to_its_total(wordllama, tmp_path, write_stsb, progress, name):
    call, totals = CALLS[name]
    call(progress, wordllama, tmp_path, write_stsb)
    assert progress.complete() == totals


def test_all_public_functions_are_called():
    named = [(name, getattr(module, name)) for module in (isosent, search, training) for name in module.__all__]
    for name, value in list(named):
        if inspect.isclass(value):
            named += [(f"{name}.{method}", each) for method, each in inspect.getmembers(value, inspect.isroutine)]
    takes = {name for name, value in named if callable(value) and "progress" in _parameters(value) and "._" not in name}
    assert takes | {"compare_models", "export"} == CALLS.keys() | OTHERS


def _parameters(value):
    try:
        return inspect.signature(value).parameters
    except (TypeError, ValueError):
        return {}
