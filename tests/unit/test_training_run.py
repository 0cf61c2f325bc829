"""A whole training on a tiny network: what is saved, how it goes on, and how it stops."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("accelerate")

from isosent import Whitening, load
from isosent.errors import FileFormatError, InputError, IsosentError, NonFiniteLossError, OutputError
from isosent.io.atomic import _host, locked
from isosent.io.pairs import ScoredPairs
from isosent.training import run, saving
from isosent.training import trainer as checkpoints
from isosent.training.base_models import open_base
from isosent.training.data import Examples, read_examples
from isosent.training.metrics import StepRecorder
from isosent.training.objectives import make_loss
from isosent.training.run import RunFolder, TrainingJob, plan, read_training, spread, train_all
from isosent.training.run import train as train_model
from isosent.training.run import train_job as train
from isosent.training.settings import TrainingSettings, parse_setting
from isosent.training.trainer import make_arguments, make_trainer, newest_checkpoint
from isosent.transforms.flow import GlowFlow

BASE = "scratch:?layers=1&dim=16&heads=2&vocab=40&max_length=16"
WORDS = [f"{a}{b}" for a in "bdfg" for b in "aeiou"]
SETTINGS = TrainingSettings(batch_size=8, checkpoint_every=3, learning_rate=1e-2)


def sentences(n, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 7))) for _ in range(n)]


def examples(n=50):
    rng = random.Random(2)
    columns = {
        "sentence1": sentences(n, 0),
        "sentence2": sentences(n, 1),
        "label": [rng.randrange(3) for _ in range(n)],
    }
    return Examples(columns, "classification", ("contradiction", "entailment", "neutral"))


def development(n=20, name="dev"):
    return ScoredPairs(name, tuple(sentences(n, 3)), tuple(sentences(n, 4)), np.arange(n, dtype=float))


def job(output, **settings):
    return TrainingJob(BASE, examples(), output, replace(SETTINGS, **settings))


def weights(folder):
    return load(folder).encode(sentences(10, 9))


class StoppedError(Exception):
    """Stands for a kill."""


class StopAt:
    """A progress that stops the run behind a step."""

    def __init__(self, step):
        self.step = step

    def stepped(self, step, *_):
        if step == self.step:
            raise StoppedError

    def started(self, *_):
        pass

    evaluated = message = finished = started


def stop_at(step, stopped):
    with pytest.raises(StoppedError):
        train(stopped, progress=StopAt(step))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip_a_bit(path, rng):
    """Damage a file; returns what it held."""
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(flipped)
    return content


def strip_checksums(path):
    """Leave of a document what versions before checksums wrote."""
    document = json.loads(path.read_text())
    new = {"checksum", "checksums", "run"} | (set() if path.name == "training.json" else {"format", "format_version"})
    path.write_text(json.dumps({name: value for name, value in document.items() if name not in new}))


def test_the_same_seed_gives_the_same_weights_and_another_one_others(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(job(tmp_path / name, seed=seed))
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert np.abs(weights(tmp_path / "a") - weights(tmp_path / "c")).max() > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"n_epochs": 1.5},
        {"n_epochs": 2.0, "accumulation": 2, "batching": "length"},
    ],
)
@pytest.mark.parametrize("step", [4, 7])
def test_a_run_that_goes_on_ends_with_the_weights_of_an_unbroken_one(tmp_path, settings, step):
    unbroken = replace(job(tmp_path / "unbroken", **settings), dev=development())
    stopped = replace(unbroken, output=tmp_path / "stopped")
    stop_at(step, stopped)
    resumed = train(stopped, resume=True)
    assert resumed.scores == train(unbroken).scores
    np.testing.assert_allclose(weights(tmp_path / "stopped"), weights(tmp_path / "unbroken"), atol=1e-6)


def test_a_run_stopped_before_its_first_checkpoint_begins_again(tmp_path):
    stop_at(2, job(tmp_path / "a"))
    train(job(tmp_path / "a"), resume=True)
    train(job(tmp_path / "b"))
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_the_first_checkpoint_does_not_wait_for_its_step_and_changes_no_weight(tmp_path, monkeypatch):
    unbroken, stopped = (job(tmp_path / name, n_epochs=1.5, checkpoint_every=1000) for name in ("b", "a"))
    train(unbroken)
    monkeypatch.setattr(checkpoints, "FIRST_CHECKPOINT_S", 0)
    stop_at(4, stopped)
    assert newest_checkpoint(tmp_path / "a.training").name == "checkpoint-1"
    train(stopped, resume=True)
    np.testing.assert_allclose(weights(tmp_path / "a"), weights(tmp_path / "b"), atol=1e-6)


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_killed_when_its_model_is_in_place_is_finished(tmp_path, monkeypatch, resume):
    own = replace(job(tmp_path / "a"), dev=development())

    def killed(reference):
        if reference == own.output:  # the first thing that is done after the model was put in place
            raise StoppedError
        return load(reference)

    with monkeypatch.context() as context:
        context.setattr(saving, "load", killed)
        with pytest.raises(StoppedError):
            train_all([own])
    assert names(tmp_path) == ["a", "a.training"]
    before = (own.output / "training.json").read_bytes()
    (again,) = train_all([own], resume=resume)
    assert names(tmp_path) == ["a"]
    assert ((own.output / "training.json").read_bytes() == before) == resume
    assert again.scores["dev"].after.spearman == json.loads(before)["scores"]["dev"]["after"]["spearman"]


def test_what_killed_processes_left_is_removed_and_what_others_write_is_not(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [tmp_path / name for name in (".a", ".a.training", "a.training/.checkpoint-6")]
    for path in [path.with_name(f"{path.name}.isosent-{_host()}-{ended.pid}-0123abcd.tmp") for path in left]:
        path.mkdir()
        (path / "weights.safetensors").write_text("half")
    others = tmp_path / f".a.isosent-{_host()}-{os.getppid()}-0123abcd.tmp"
    others.mkdir()
    with pytest.raises(StoppedError):
        train(job(tmp_path / "a"), resume=True, progress=StopAt(5))
    assert names(tmp_path) == [others.name, "a.training"]
    assert names(tmp_path / "a.training") == ["checkpoint-3", "metrics.jsonl", "run.json"]


def test_an_older_checkpoint_is_whole_or_gone(tmp_path, monkeypatch):
    rmtree = shutil.rmtree

    def killed(path, **how):
        if "checkpoint-3" in str(path) and Path(path).exists():
            next(path.glob("*.safetensors")).unlink()
            raise StoppedError
        rmtree(path, **how)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(StoppedError):
        train(job(tmp_path / "a"))
    monkeypatch.undo()
    assert [name for name in names(tmp_path / "a.training") if name.startswith("checkpoint")] == ["checkpoint-6"]


def test_the_head_of_the_softmax_is_trained_and_kept_in_checkpoints(tmp_path):
    own = job(tmp_path / "a")
    base = open_base(BASE, own.examples.texts())
    loss = make_loss(base.model, own.settings, n_classes=3)
    (tmp_path / "run").mkdir()
    trainer = make_trainer(own, base, loss, make_arguments(own, base, tmp_path / "run"), StepRecorder())
    heads = {name: tensor.clone() for name, tensor in trainer.weights().items() if name.startswith("loss.")}
    trainer.train()
    assert heads
    kept = checkpoints.Checkpoint(newest_checkpoint(tmp_path / "run")).weights()
    for name, before in heads.items():
        assert (trainer.weights()[name] - before).abs().max() > 1e-3
        assert (kept[name] == trainer.weights()[name]).all()


def test_the_model_can_be_read_by_whoever_may_read_new_files(tmp_path):
    train(job(tmp_path / "a"))
    (tmp_path / "new").touch()
    modes = {path.stat().st_mode for path in [*(tmp_path / "a").rglob("*"), tmp_path / "new"] if path.is_file()}
    assert len(modes) == 1


def test_neither_the_model_nor_a_checkpoint_holds_a_pickle(tmp_path):
    stop_at(5, job(tmp_path / "a"))
    files = [path for path in (tmp_path / "a.training").rglob("*") if path.is_file()]
    train(job(tmp_path / "a"), resume=True)
    files += [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".jsonl", ".safetensors", ".txt", ".html", ".md"}


def test_what_a_run_kept_is_removed_when_the_model_is_there(tmp_path):
    result = train(replace(job(tmp_path / "a"), dev=development(), tests=[development(8, "test")]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    record = json.loads((tmp_path / "a" / "training.json").read_text())
    assert record["scores"]["dev"]["after"]["spearman"] == result.scores["dev"].after.spearman
    assert record["n_steps"] == 7
    assert read_training(tmp_path / "a").scores == result.scores


def test_the_development_set_is_scored_before_the_first_step_on_the_way_and_at_the_end(tmp_path):
    train(replace(job(tmp_path / "a", n_evaluations=3), dev=development()))
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "dev"] == [0, 3, 6, 7]


def test_the_best_weights_are_kept_unless_the_last_are_asked_for(tmp_path):
    of = {
        keep: train(replace(job(tmp_path / keep, keep=keep, n_epochs=3), dev=development()))
        for keep in ("best", "last")
    }
    lines = [json.loads(line) for line in (tmp_path / "best" / "metrics.jsonl").read_text().splitlines()]
    dev = {line["step"]: line["spearman"] for line in lines if line["event"] == "dev" and line["step"]}
    assert of["best"].kept_step == max(dev, key=dev.get)
    assert of["best"].scores["dev"].after.spearman == pytest.approx(max(dev.values()), abs=1e-6)
    assert of["last"].kept_step == of["last"].n_steps
    assert of["last"].scores["dev"].after.spearman == pytest.approx(dev[21], abs=1e-6)


def test_a_transform_is_fitted_at_the_end_and_saved(tmp_path):
    result = train(replace(job(tmp_path / "a"), dev=development(), transform=Whitening(4)))
    assert load(tmp_path / "a").dim == 4
    assert result.scores["dev"].with_transform != result.scores["dev"].after


@pytest.mark.parametrize("objective", ["regression", "triplet", "ranking"])
def test_every_objective_trains(tmp_path, objective):
    first, second, third = sentences(30, 0), sentences(30, 1), sentences(30, 2)
    columns = {
        "regression": {"sentence1": first, "sentence2": second, "score": [i / 29 for i in range(30)]},
        "triplet": {"anchor": first, "positive": second, "negative": third},
        "ranking": {"anchor": first, "positive": second},
    }[objective]
    settings = replace(SETTINGS, objective=objective)
    data = Examples(columns, objective)
    train(TrainingJob(BASE, data, tmp_path / "a", settings))
    before = open_base(BASE, data.texts()).model.encode(sentences(10, 9))
    assert np.abs(weights(tmp_path / "a") - before).max() > 0.01
    record = json.loads((tmp_path / "a" / "training.json").read_text())
    assert record["objective"] == objective


def test_words_are_trained_too(tmp_path):
    (tmp_path / "words.txt").write_text("".join(f"{word} {i} {i % 3} 1\n" for i, word in enumerate(WORDS)))
    train(replace(job(tmp_path / "a"), base=f"words:{tmp_path}/words.txt"))
    before = load(f"words:{tmp_path}/words.txt").encode(sentences(10, 9))
    assert np.abs(weights(tmp_path / "a") - before).max() > 0.01


def test_a_loss_that_is_no_number_stops_and_names_the_rows(tmp_path):
    with pytest.raises(
        NonFiniteLossError, match=r"after \d+ steps .*(nan|inf|not finite), in the batch of the rows \d+.*is kept"
    ):
        train(job(tmp_path / "a", learning_rate=1e30, max_gradient_norm=1e30, checkpoint_every=1))
    kept = checkpoints.Checkpoint(newest_checkpoint(tmp_path / "a.training"))
    assert all(tensor.isfinite().all() for tensor in kept.weights().values())


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    save, calls = checkpoints._save, []

    def full(path, tensors):
        calls.append(path)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(path, tensors)

    monkeypatch.setattr(checkpoints, "_save", full)
    with pytest.raises(
        OutputError, match=r"checkpoint-6 could not .*No space left on device.*step 3 is intact.*--resume"
    ):
        train(job(tmp_path / "a"))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "a.training").iterdir() if "checkpoint" in path.name] == ["checkpoint-3"]
    train(job(tmp_path / "a"), resume=True)
    train(job(tmp_path / "b"))
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_a_run_whose_model_could_not_be_saved_goes_on_to_the_same_model(tmp_path, monkeypatch):
    own = replace(job(tmp_path / "a", n_epochs=2), dev=development())

    def full(*_, **__):
        raise OutputError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(run, "save_trained", full)
        with pytest.raises(OutputError, match="the disk is full"):
            train(own)
    resumed = train(own, resume=True)
    unbroken = train(replace(own, output=tmp_path / "b"))
    assert (resumed.scores, resumed.kept_step) == (unbroken.scores, unbroken.kept_step)
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(tmp_path / "b"))


@pytest.mark.parametrize(("transform", "message"), [(GlowFlow(), "must be linear"), (Whitening(17), "n_components")])
def test_what_could_not_be_fitted_at_the_end_is_refused_at_the_beginning(tmp_path, transform, message):
    with pytest.raises(InputError, match=message):
        train(replace(job(tmp_path / "a"), transform=transform))
    assert list(tmp_path.iterdir()) == []


def test_resuming_with_other_data_or_settings_is_refused_and_every_difference_listed(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    other = replace(job(tmp_path / "a", batch_size=4, seed=1), examples=examples(40))
    with pytest.raises(InputError, match=r"differ: .*batch_size: 8 then, 4 now.*seed: 0 then, 1 now.*data: "):
        train(other, resume=True)


def test_an_unfinished_run_is_not_overwritten(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    with pytest.raises(OutputError, match=r"stopped after step 3\. Resume it with --resume"):
        train(job(tmp_path / "a"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"base": BASE.replace("dim=16", "dim=32")}, "base_reference"),
        ({"settings": replace(SETTINGS, pooling="max")}, "pooling: None then, 'max' now"),
        ({"transform": "auto"}, "transform: None then, 'auto' now"),
        ({"tests": [development(8, "test")]}, "tests"),
    ],
)
def test_what_is_done_is_not_taken_for_another_training(tmp_path, change, named):
    train_all([job(tmp_path / "a")])
    with pytest.raises(InputError, match=named):
        train_all([replace(job(tmp_path / "a"), **change)], resume=True)


def test_a_lost_file_of_metrics_does_not_change_what_was_before(tmp_path):
    own = replace(job(tmp_path / "a"), dev=development())
    stop_at(7, own)
    (tmp_path / "a.training" / "metrics.jsonl").unlink()
    assert train(own, resume=True).scores == train(replace(own, output=tmp_path / "b")).scores


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rest.json", "{}"),
        ("rest.json", "{"),
        ("trainer_state.json", "[]"),
        ("weights.safetensors", "torn"),
        ("optimizer.safetensors", None),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, name, content):
    stop_at(4, job(tmp_path / "a"))
    path = tmp_path / "a.training" / "checkpoint-3" / name
    path.write_text(content) if content is not None else path.unlink()
    with pytest.raises(FileFormatError, match=rf"step 3 is damaged: .*{name}.* Remove .*a\.training to train"):
        train(job(tmp_path / "a"), resume=True)


def test_a_flipped_bit_in_what_a_run_keeps_is_found(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    folder, rng = RunFolder(tmp_path / "a"), random.Random(0)
    for path in [path for path in files(folder.path) if path.name != "metrics.jsonl"]:
        for _ in range(8):
            content = flip_a_bit(path, rng)
            with pytest.raises(FileFormatError, match=rf"{path.name}.*Remove"):
                folder.resume({})
            path.write_bytes(content)
    shutil.copytree(folder.path / "checkpoint-3", folder.path / "checkpoint-2")
    flip_a_bit(folder.path / "checkpoint-3" / "random.safetensors", rng)
    with pytest.raises(FileFormatError, match=r"Remove .*checkpoint-3 to resume from step 2"):
        folder.resume({})


def test_a_flipped_bit_in_a_trained_folder_is_found(tmp_path):
    train(replace(job(tmp_path / "a"), transform=Whitening(4)))
    rng = random.Random(0)
    for path in files(tmp_path / "a"):
        if path.name in ("curve.html", "metrics.jsonl"):  # not read to load the model
            continue
        content = flip_a_bit(path, rng)
        with pytest.raises(IsosentError, match=path.name):
            read_training(tmp_path / "a") if path.name == "training.json" else load(tmp_path / "a")
        path.write_bytes(content)
    assert load(tmp_path / "a").dim == 4


def test_damaged_metrics_are_named_and_can_be_left_behind(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    flip_a_bit(RunFolder(tmp_path / "a").metrics, random.Random(0))
    with pytest.raises(FileFormatError, match=r"metrics\.jsonl: line \d+: .*Remove .*metrics\.jsonl"):
        train(job(tmp_path / "a"), resume=True)


def test_what_was_written_before_checksums_goes_on_and_opens(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    for name in ("run.json", "checkpoint-3/rest.json"):
        strip_checksums(tmp_path / "a.training" / name)
    result = train(job(tmp_path / "a"), resume=True)
    strip_checksums(tmp_path / "a" / "training.json")
    assert read_training(tmp_path / "a").n_steps == result.n_steps == 7


def test_a_running_training_is_not_disturbed_by_another(tmp_path):
    class Again(StopAt):
        def stepped(self, step, *_):
            with pytest.raises(OutputError, match="another process writes to it"):
                RunFolder(tmp_path / "a").begin({})

    train(job(tmp_path / "a"), progress=Again(2))


def test_a_running_training_is_not_resumed_by_another(tmp_path):
    stop_at(4, job(tmp_path / "a"))
    folder = RunFolder(tmp_path / "a")
    before = folder.metrics.read_bytes()
    with locked(folder.path), pytest.raises(OutputError, match="another process writes to it"):
        train(job(tmp_path / "a"), resume=True)
    assert folder.metrics.read_bytes() == before


def test_tied_weights_are_kept_once(tmp_path):
    own = job(tmp_path / "a")
    base = open_base(BASE, own.examples.texts())
    base.model[0].again = next(module for module in base.model.modules() if type(module).__name__ == "Embedding")
    loss = make_loss(base.model, own.settings, n_classes=3)
    (tmp_path / "run").mkdir()
    trainer = make_trainer(own, base, loss, make_arguments(own, base, tmp_path / "run"), StepRecorder())
    tied = {name for name in trainer.model.state_dict() if ".again." in name}
    assert tied
    assert not [name for name in trainer.weights() if name.removeprefix("model.") in tied]
    trainer.train()
    assert newest_checkpoint(tmp_path / "run") is not None


def test_files_of_others_in_a_trained_folder_are_not_lost(tmp_path):
    train(job(tmp_path / "a"))
    train(job(tmp_path / "a"))
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="must be a new or empty folder or an older trained model"):
        train(job(tmp_path / "a"))
    with pytest.raises(OutputError, match="must not lie in a trained model"):
        train(job(tmp_path / "a" / "seed-0"))
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


def test_the_data_must_be_for_the_objective(tmp_path):
    settings = replace(SETTINGS, objective="triplet")
    with pytest.raises(InputError, match="the objective is triplet, but the data are for classification"):
        TrainingJob(BASE, examples(), tmp_path / "a", settings)


def test_resuming_needs_a_run(tmp_path):
    with pytest.raises(InputError, match="--resume needs a run that was stopped"):
        train(job(tmp_path / "a"), resume=True)


def test_a_folder_of_somebody_else_is_not_taken_for_checkpoints(tmp_path):
    (tmp_path / "a.training").mkdir()
    (tmp_path / "a.training" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"a\.training must be .*got something else"):
        train(job(tmp_path / "a"))
    assert (tmp_path / "a.training" / "thesis.txt").read_text() == "mine"


def test_a_run_can_be_repeated_with_seeds_and_what_is_done_is_not_done_again(tmp_path):
    jobs = plan([replace(job(tmp_path / "a"), dev=development())], n_seeds=2)
    first = train_all(jobs)
    assert [result.folder.name for result in first] == ["seed-0", "seed-1"]
    shutil.rmtree(tmp_path / "a" / "seed-1")
    times = (tmp_path / "a" / "seed-0" / "training.json").stat().st_mtime_ns
    again = train_all(jobs, resume=True)
    assert [result.scores for result in again] == [result.scores for result in first]
    assert (tmp_path / "a" / "seed-0" / "training.json").stat().st_mtime_ns == times


def test_a_second_stage_goes_on_with_the_model_of_the_first(tmp_path):
    stages = plan([job(tmp_path / "first"), job(tmp_path / "second")], n_seeds=1)
    assert [stage.settings.learning_rate for stage in stages] == [1e-2, 1e-2]
    assert [stage.base for stage in stages] == [BASE, str(tmp_path / "first" / "seed-0")]
    train_all(stages)
    assert load(tmp_path / "second" / "seed-0").dim == 16


def test_what_began_from_scratch_goes_on_with_that_learning_rate(tmp_path):
    stages = plan([job(tmp_path / "a", learning_rate=None), job(tmp_path / "b", learning_rate=None)], n_seeds=2)
    assert [stage.settings.learning_rate for stage in stages] == [None, 5e-4, None, 5e-4]


def test_spread_over_seeds():
    assert spread([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert np.isnan(spread([1.0])[1])


def test_no_seeds_are_refused(tmp_path):
    with pytest.raises(InputError, match="seeds must be at least 1"):
        plan([job(tmp_path / "a")], n_seeds=0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number >= 1"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"seed": 1 << 32}, "seed must be below"),
        ({"warmup": 1.0}, "warmup must be below 1"),
        ({"n_epochs": 0.0}, "n_epochs must be a finite number > 0"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number > 0"),
        ({"warmup": 1.5}, "warmup"),
        ({"precision": "float8"}, "precision must be"),
        ({"keep": "first"}, "keep must be"),
        ({"batching": "tokens"}, "batching must be"),
        ({"mini_batch": 4}, "mini_batch works with"),
        ({"regularizer_weight": 0.1}, "regularizer_weight is 0.1"),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(InputError, match=message):
        replace(SETTINGS, **setting)


def test_the_run_folder_lies_beside_the_output(tmp_path):
    assert RunFolder(tmp_path / "model").path == tmp_path / "model.training"


def test_files_and_settings_are_enough(tmp_path):
    pairs = zip(sentences(24, 0), sentences(24, 1), strict=True)
    lines = [f"{i % 6}\t{one}\t{other}\n" for i, (one, other) in enumerate(pairs)]
    (tmp_path / "texts.txt").write_text("\n".join(sentences(40, 5)))
    scaled = "".join(f"{int(line[0]) / 5}{line[1:]}" for line in lines)
    (tmp_path / "sts.tsv").write_text("gold\ta\tb\n" + scaled)
    settings = {"batch_size": 8, "learning_rate": 1e-2, "n_evaluations": 1}
    data = read_examples("regression", [tmp_path / "sts.tsv"], columns="a,b,gold", score_range=(0, 1))
    result = train_model(
        *(BASE, data, tmp_path / "m"),
        dev=tmp_path / "sts.tsv",
        dev_columns="a,b,gold",
        tests=[development(8, "test")],
        transform="auto",
        fit_on=tmp_path / "texts.txt",
        **settings,
    )
    assert (result.n_steps, list(result.scores)) == (3, ["sts", "test"])
    record = json.loads((tmp_path / "m" / "training.json").read_text())
    assert (record["objective"], record["batch_size"], record["fitted_on"]) == (
        "regression",
        8,
        str(tmp_path / "texts.txt"),
    )
    assert read_training(tmp_path / "m").scores == result.scores
    again = train_model(tmp_path / "m", data, tmp_path / "n", max_gradient_norm=2.0, **settings)
    assert again.n_steps == 3
    with pytest.raises(InputError, match="the objective is triplet, but the data are for regression"):
        train_model(BASE, data, tmp_path / "x", "triplet")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch_size=32", ("batch_size", 32)),
        ("learning-rate = 1e-3", ("learning_rate", 1e-3)),
        ("learning_rate=none", ("learning_rate", None)),
        ("matryoshka=256,64", ("matryoshka", (256, 64))),
        ("concatenation=|u-v|,u*v", ("concatenation", "|u-v|,u*v")),
        ("recompute=true", ("recompute", True)),
        ("regularizer=whitening", ("regularizer", "whitening")),
    ],
)
def test_a_setting_is_parsed(text, expected):
    assert parse_setting(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch_sise=32", "no setting 'batch_sise'. Did you mean batch_size"),
        ("xyz=1", "no setting 'xyz'. Settings: objective, "),
        ("batch_size", "must be NAME=VALUE; got 'batch_size'"),
        ("batch_size=many", "batch_size must be a whole number; got 'many'"),
        ("batch_size=0", "batch_size must be a whole number >= 1; got 0"),
        ("batch_size=none", "batch_size must be a whole number; got 'none'"),
        ("recompute=maybe", "recompute must be true or false; got 'maybe'"),
        ("matryoshka=8,x", "matryoshka must be whole numbers with commas between them; got '8,x'"),
        ("warmup=nan", "warmup"),
        ("keep=first", "keep must be one of best, last; got 'first'"),
    ],
)
def test_a_setting_that_is_not_one_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_setting(text)
