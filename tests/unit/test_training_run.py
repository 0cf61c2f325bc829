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
from isosent.training import record as records
from isosent.training import run, trainer
from isosent.training.base_models import open_base
from isosent.training.data import Examples, read_examples
from isosent.training.metrics import StepRecorder, read_metrics
from isosent.training.objectives import make_loss
from isosent.training.plan import plan, train_all
from isosent.training.plan import train as train_model
from isosent.training.record import RunFolder, TrainingJob, newest_checkpoint, read_training
from isosent.training.run import train_job as train
from isosent.training.settings import TrainingSettings, parse_setting
from isosent.training.trainer import make_arguments, make_trainer
from isosent.transforms.base import Auto
from isosent.transforms.flow import GlowFlow

pytestmark = pytest.mark.usefixtures("quick_trainers")

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


def stopping_at(step):
    """A progress that stops the run behind a step."""

    def progress(done, total):
        if done == step:
            raise StoppedError

    return progress


def stop_at(step, stopped):
    with pytest.raises(StoppedError):
        train(stopped, progress=stopping_at(step))


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


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder of runs that many tests look at, or copy."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def finished(home):
    """Model folder of a finished run without development set."""
    return train(job(home / "finished")).folder


@pytest.fixture(scope="module")
def stopped(home):
    """Run folder of the same run, stopped after 4 steps; its checkpoint is that of step 3."""
    stop_at(4, job(home / "stopped"))
    return home / "stopped.training"


@pytest.fixture(scope="module")
def scored(home):
    """Result of a finished run with a development and a test set."""
    return train(with_dev(home / "scored"))


@pytest.fixture(scope="module")
def whitened(home):
    """Result of a finished run with a transform."""
    return train(replace(job(home / "whitened"), transform=Whitening(4), dev=development()))


@pytest.fixture
def resumable(stopped, tmp_path):
    """A job whose run was stopped after 4 steps."""
    shutil.copytree(stopped, tmp_path / "a.training")
    return job(tmp_path / "a")


def with_dev(output, **settings):
    chosen = replace(SETTINGS, **{"n_evaluations": 3} | settings)
    return replace(job(output), settings=chosen, dev=development(), tests=[development(8, "test")])


def test_the_same_seed_gives_the_same_weights_and_another_one_others(finished, tmp_path):
    for seed in (0, 1):
        train(job(tmp_path / str(seed), seed=seed))
    np.testing.assert_array_equal(weights(tmp_path / "0"), weights(finished))
    assert np.abs(weights(tmp_path / "1") - weights(finished)).max() > 0.01


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        ({"n_epochs": 1.5}, 4),
        ({"n_epochs": 2.0, "accumulation": 2, "batching": "length"}, 7),
        ({"n_epochs": 2.0, "checkpoint_every": 7}, 8),  # the checkpoint is that of the end of an epoch
    ],
)
def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(tmp_path, settings, step, progress):
    unbroken = replace(job(tmp_path / "unbroken", **settings), dev=development())
    interrupted = replace(unbroken, output=tmp_path / "interrupted")
    stop_at(step, interrupted)
    resumed = train(interrupted, resume=True)
    assert resumed.scores == train(unbroken, progress=progress).scores
    assert progress.complete() == [resumed.n_steps]
    np.testing.assert_array_equal(weights(tmp_path / "interrupted"), weights(tmp_path / "unbroken"))


def test_a_run_stopped_before_its_first_checkpoint_begins_again(finished, tmp_path):
    stop_at(2, job(tmp_path / "a"))
    train(job(tmp_path / "a"), resume=True)
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(finished))


def test_the_first_checkpoint_does_not_wait_for_its_step_and_changes_no_weight(finished, tmp_path, monkeypatch):
    own = job(tmp_path / "a", checkpoint_every=1000)
    monkeypatch.setattr(trainer, "FIRST_CHECKPOINT_S", 0)
    stop_at(4, own)
    assert newest_checkpoint(tmp_path / "a.training").name == "checkpoint-1"
    train(own, resume=True)
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(finished))


@pytest.fixture(scope="module")
def killed_at_the_end(home):
    """A run that was killed when its model was in place."""
    (home / "killed").mkdir()
    own = with_dev(home / "killed" / "a")

    def killed(reference):
        if reference == own.output:  # the first thing that is done after the model was put in place
            raise StoppedError
        return load(reference)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(run, "load", killed)
        with pytest.raises(StoppedError):
            train_all([own])
    assert names(home / "killed") == ["a", "a.training"]
    return home / "killed"


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_killed_when_its_model_is_in_place_is_finished(killed_at_the_end, tmp_path, resume):
    shutil.copytree(killed_at_the_end, tmp_path, dirs_exist_ok=True)
    own = with_dev(tmp_path / "a")
    before = (own.output / "training.json").read_bytes()
    (again,) = train_all([own], resume=resume)
    assert names(tmp_path) == ["a"]
    assert ((own.output / "training.json").read_bytes() == before) == resume
    assert again.scores["dev"].after.spearman == json.loads(before)["scores"]["dev"]["after"]["spearman"]


def test_what_killed_processes_left_is_removed_and_what_others_write_is_not(resumable, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [tmp_path / name for name in (".a", ".a.training", "a.training/.checkpoint-6")]
    for path in [path.with_name(f"{path.name}.isosent-{_host()}-{ended.pid}-0123abcd.tmp") for path in left]:
        path.mkdir()
        (path / "weights.safetensors").write_text("half")
    others = tmp_path / f".a.isosent-{_host()}-{os.getppid()}-0123abcd.tmp"
    others.mkdir()
    with pytest.raises(StoppedError):
        train(resumable, resume=True, progress=stopping_at(5))
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
    base, facts = open_base(BASE, own.examples.texts())
    loss = make_loss(base, own.settings, n_classes=3)
    (tmp_path / "run").mkdir()
    trained = make_trainer(own, base, loss, make_arguments(own, facts["kind"], tmp_path / "run"), StepRecorder())
    heads = {name: tensor.clone() for name, tensor in trained.weights().items() if name.startswith("loss.")}
    trained.train()
    assert heads
    kept = records.Checkpoint(newest_checkpoint(tmp_path / "run")).weights()
    for name, before in heads.items():
        assert (trained.weights()[name] - before).abs().max() > 1e-3
        assert (kept[name] == trained.weights()[name]).all()


def test_the_model_can_be_read_by_whoever_may_read_new_files(finished, tmp_path):
    (tmp_path / "new").touch()
    modes = {path.stat().st_mode for path in [*files(finished), tmp_path / "new"]}
    assert len(modes) == 1


def test_neither_the_model_nor_a_checkpoint_holds_a_pickle(finished, stopped):
    endings = {path.suffix for path in [*files(finished), *files(stopped)]}
    assert endings <= {".json", ".jsonl", ".safetensors", ".txt", ".html", ".md"}


def test_what_a_run_kept_is_removed_when_the_model_is_there(scored, home):
    assert not (home / "scored.training").exists()
    record = json.loads((scored.folder / "training.json").read_text())
    assert record["scores"]["dev"]["after"]["spearman"] == scored.scores["dev"].after.spearman
    assert record["n_steps"] == 7
    assert read_training(scored.folder).scores == scored.scores


def test_a_run_writes_losses_scores_and_events(scored):
    metrics = read_metrics(scored.folder / "metrics.jsonl")
    assert [point.step for point in metrics.devs] == [0, 3, 6, 7]
    assert [point.step for point in metrics.losses] == [1, 7]
    assert all(point.loss > 0 and point.gradient_norm > 0 and point.elapsed_s > 0 for point in metrics.losses)
    assert metrics.losses[-1].learning_rate == pytest.approx(1e-2 / 6)
    events = [(event.event, event.step) for event in metrics.milestones if event.event != "best"]
    assert events == [("start", 0), ("checkpoint", 3), ("checkpoint", 6), ("checkpoint", 7), ("end", 7)]


def test_the_best_weights_are_kept_unless_the_last_are_asked_for(scored, tmp_path):
    results = {"best": scored, "last": train(with_dev(tmp_path / "last", keep="last"))}
    dev = {point.step: point.spearman for point in read_metrics(scored.folder / "metrics.jsonl").devs if point.step}
    kept = {"best": max(dev, key=dev.get), "last": 7}
    for keep, result in results.items():
        assert result.kept_step == kept[keep]
        assert result.scores["dev"].after.spearman == pytest.approx(dev[kept[keep]], abs=1e-6)
    assert len(set(dev.values())) > 1


def test_a_transform_is_fitted_at_the_end_and_saved(whitened):
    assert load(whitened.folder).dim == 4
    assert whitened.scores["dev"].with_transform != whitened.scores["dev"].after


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
    before = open_base(BASE, data.texts())[0].encode(sentences(10, 9))
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
    kept = records.Checkpoint(newest_checkpoint(tmp_path / "a.training"))
    assert all(tensor.isfinite().all() for tensor in kept.weights().values())


def test_a_full_disk_leaves_the_checkpoint_before(finished, tmp_path, monkeypatch):
    save, calls = records._save, []

    def full(path, tensors):
        calls.append(path)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(path, tensors)

    monkeypatch.setattr(records, "_save", full)
    with pytest.raises(
        OutputError, match=r"checkpoint-6 could not .*No space left on device.*step 3 is intact.*resume=True"
    ):
        train(job(tmp_path / "a"))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "a.training").iterdir() if "checkpoint" in path.name] == ["checkpoint-3"]
    train(job(tmp_path / "a"), resume=True)
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(finished))


def test_a_run_whose_model_could_not_be_saved_goes_on_to_the_same_model(scored, tmp_path, monkeypatch):
    own = with_dev(tmp_path / "a")

    def full(*_, **__):
        raise OutputError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(run, "saving_trained", full)
        with pytest.raises(OutputError, match="the disk is full"):
            train(own)
    (tmp_path / "a.training" / "metrics.jsonl").unlink()  # without it, too
    resumed = train(own, resume=True)
    assert (resumed.scores, resumed.kept_step) == (scored.scores, scored.kept_step)
    np.testing.assert_array_equal(weights(tmp_path / "a"), weights(scored.folder))


@pytest.mark.parametrize(
    ("transform", "message"), [(GlowFlow(), "cannot load a flow"), (Whitening(17), "n_components")]
)
def test_what_could_not_be_fitted_at_the_end_is_refused_at_the_beginning(tmp_path, transform, message):
    with pytest.raises(InputError, match=message):
        train(replace(job(tmp_path / "a"), transform=transform))
    assert list(tmp_path.iterdir()) == []


def test_resuming_with_other_data_or_settings_is_refused_and_every_difference_listed(resumable):
    other = replace(resumable, settings=replace(SETTINGS, batch_size=4, seed=1), examples=examples(40))
    with pytest.raises(InputError, match=r"differ: .*batch_size: 8 then, 4 now.*seed: 0 then, 1 now.*data: "):
        train(other, resume=True)


def test_an_unfinished_run_is_not_overwritten(resumable):
    with pytest.raises(OutputError, match=r"stopped after step 3\. Resume it: resume=True"):
        train(resumable)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"base": BASE.replace("dim=16", "dim=32")}, "base_reference"),
        ({"settings": replace(SETTINGS, pooling="max")}, "pooling: None then, 'max' now"),
        ({"transform": Auto()}, "transform: None then, 'auto' now"),
        ({"tests": [development(8, "test")]}, "tests"),
    ],
)
def test_what_is_done_is_not_taken_for_another_training(finished, change, named):
    with pytest.raises(InputError, match=named):
        train_all([replace(job(finished), **change)], resume=True)


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
def test_a_damaged_checkpoint_is_refused(resumable, tmp_path, name, content):
    path = tmp_path / "a.training" / "checkpoint-3" / name
    path.write_text(content) if content is not None else path.unlink()
    with pytest.raises(FileFormatError, match=rf"step 3 is damaged: .*{name}.* Remove .*a\.training to train"):
        train(resumable, resume=True)


def test_a_flipped_bit_in_what_a_run_keeps_is_found(resumable):
    folder, rng = RunFolder(resumable.output), random.Random(0)
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


def test_a_flipped_bit_in_a_trained_folder_is_found(whitened, tmp_path):
    shutil.copytree(whitened.folder, tmp_path / "a")
    rng = random.Random(0)
    for path in files(tmp_path / "a"):
        if path.name in ("curve.html", "metrics.jsonl"):  # not read to load the model
            continue
        content = flip_a_bit(path, rng)
        with pytest.raises(IsosentError, match=path.name):
            read_training(tmp_path / "a") if path.name == "training.json" else load(tmp_path / "a")
        path.write_bytes(content)
    assert load(tmp_path / "a").dim == 4


def test_damaged_metrics_are_named_and_can_be_left_behind(resumable):
    flip_a_bit(RunFolder(resumable.output).metrics, random.Random(0))
    with pytest.raises(FileFormatError, match=r"metrics\.jsonl: line \d+: .*Remove .*metrics\.jsonl"):
        train(resumable, resume=True)


def change(path, **fields):
    """Change fields of a document, which then has no checksum."""
    document = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in document.items() if name != "checksum"}))


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("n_processes", "two"), ("thesis", "mine")])
def test_a_run_of_other_fields_is_refused(resumable, name, value):
    folder = RunFolder(resumable.output)
    change(folder.path / "run.json", **{name: value})
    with pytest.raises(FileFormatError, match=rf"run\.json: .*{name}.*[^.]\. Remove .*a\.training"):
        folder.resume({})


def test_an_undefined_score_is_null_in_the_record(scored, tmp_path):
    shutil.copytree(scored.folder, tmp_path / "a")
    scores = json.loads((tmp_path / "a" / "training.json").read_text())["scores"]
    scores["dev"]["before"]["spearman"] = None
    change(tmp_path / "a" / "training.json", scores=scores)
    result = read_training(tmp_path / "a")
    assert np.isnan(result.scores["dev"].before.spearman)
    assert result.scores["dev"].after == scored.scores["dev"].after


def test_a_running_training_is_not_disturbed_by_another(resumable):
    def begin_again(step, n_steps):
        with pytest.raises(OutputError, match="another process"):
            RunFolder(resumable.output).begin({})
        stopping_at(5)(step, n_steps)

    with pytest.raises(StoppedError):
        train(resumable, resume=True, progress=begin_again)


def test_a_running_training_is_not_resumed_by_another(resumable):
    folder = RunFolder(resumable.output)
    before = folder.metrics.read_bytes()
    with locked(folder.path), pytest.raises(OutputError, match="another process"):
        train(resumable, resume=True)
    assert folder.metrics.read_bytes() == before


def test_tied_weights_are_kept_once(tmp_path):
    own = job(tmp_path / "a")
    base, facts = open_base(BASE, own.examples.texts())
    base[0].again = next(module for module in base.modules() if type(module).__name__ == "Embedding")
    loss = make_loss(base, own.settings, n_classes=3)
    (tmp_path / "run").mkdir()
    trained = make_trainer(own, base, loss, make_arguments(own, facts["kind"], tmp_path / "run"), StepRecorder())
    tied = {name for name in trained.model.state_dict() if ".again." in name}
    assert tied
    assert not [name for name in trained.weights() if name.removeprefix("model.") in tied]
    trained.train()
    assert newest_checkpoint(tmp_path / "run") is not None


def test_files_of_others_in_a_trained_folder_are_not_lost(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "a")
    train(job(tmp_path / "a"))
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="is neither empty nor an older trained model"):
        train(job(tmp_path / "a"))
    with pytest.raises(OutputError, match="lies in a trained model"):
        train(job(tmp_path / "a" / "seed-0"))
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


def test_the_data_must_be_for_the_objective(tmp_path):
    settings = replace(SETTINGS, objective="triplet")
    with pytest.raises(InputError, match="the objective is triplet, but the data are for classification"):
        TrainingJob(BASE, examples(), tmp_path / "a", settings)


def test_resuming_needs_a_run(tmp_path):
    with pytest.raises(InputError, match="resume=True needs a run that was stopped"):
        train(job(tmp_path / "a"), resume=True)


def test_a_folder_of_somebody_else_is_not_taken_for_checkpoints(tmp_path):
    (tmp_path / "a.training").mkdir()
    (tmp_path / "a.training" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"a\.training exists, and is neither"):
        train(job(tmp_path / "a"))
    assert (tmp_path / "a.training" / "thesis.txt").read_text() == "mine"


def test_a_run_can_be_repeated_with_seeds_and_what_is_done_is_not_done_again(scored, tmp_path):
    jobs = plan([with_dev(tmp_path / "a")], n_seeds=2)
    shutil.copytree(scored.folder, tmp_path / "a" / "seed-0")
    before = (tmp_path / "a" / "seed-0" / "training.json").stat().st_mtime_ns
    results = train_all(jobs, resume=True)
    assert [result.folder.name for result in results] == ["seed-0", "seed-1"]
    assert results[0].scores == scored.scores != results[1].scores
    assert (tmp_path / "a" / "seed-0" / "training.json").stat().st_mtime_ns == before


def test_a_second_stage_goes_on_with_the_model_of_the_first(finished, tmp_path):
    stages = plan([job(tmp_path / "first"), job(tmp_path / "second")], n_seeds=1)
    assert [stage.settings.learning_rate for stage in stages] == [1e-2, 1e-2]
    assert [stage.base for stage in stages] == [BASE, str(tmp_path / "first" / "seed-0")]
    shutil.copytree(finished, tmp_path / "first" / "seed-0")
    train_all(stages, resume=True)
    assert load(tmp_path / "second" / "seed-0").dim == 16
    assert np.abs(weights(tmp_path / "second" / "seed-0") - weights(finished)).max() > 0.001


def test_what_began_from_scratch_goes_on_with_that_learning_rate(tmp_path):
    stages = plan([job(tmp_path / "a", learning_rate=None), job(tmp_path / "b", learning_rate=None)], n_seeds=2)
    assert [stage.settings.learning_rate for stage in stages] == [None, 5e-4, None, 5e-4]


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
        ("batch_size", r"'batch_size' is no setting\. Write NAME=VALUE"),
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
