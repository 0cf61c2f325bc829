"""``isosent train``: what it prints, what it refuses, and a run that is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("accelerate")

import isosent
from isosent.cli import train as training_options
from isosent.cli.train import notes, over_seeds
from isosent.training import base_models as bases
from isosent.training import run, trainer
from isosent.training.development import DevScore
from isosent.training.metrics import MetricsLog
from isosent.training.record import Scores, TrainingResult

pytestmark = pytest.mark.usefixtures("quick_trainers")

BASE = "scratch:?layers=1&dim=16&heads=2&vocab=40&max_length=16"
WORDS = [f"{a}{b}" for a in "bdfg" for b in "aeiou"]
FAST = ("--base", BASE, "--batch-size", 8, "--learning-rate", 0.01)
STS = ("--data", "sts.tsv", "--score-range", "0,5")
LABELS = ("contradiction", "entailment", "neutral")


def sentences(n, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 7))) for _ in range(n)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """NLI, scored pairs and triplets of made-up words."""
    monkeypatch.chdir(tmp_path)
    premises = [premise for premise in sentences(14, 0) for _ in range(4)]
    rows = [
        {"premise": first, "hypothesis": second, "label": (*LABELS, "-")[i % 4]}
        for i, (first, second) in enumerate(zip(premises, sentences(56, 1), strict=True))
    ]
    (tmp_path / "nli.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, seed in (("sts", 2), ("dev", 4), ("test", 6)):
        pairs = zip(sentences(30, seed), sentences(30, seed + 1), strict=True)
        lines = [f"{i % 6}\t{first}\t{second}\n" for i, (first, second) in enumerate(pairs)]
        (tmp_path / f"{name}.tsv").write_text("score\tsentence1\tsentence2\n" + "".join(lines))
    columns = [sentences(30, seed) for seed in (8, 9, 10)]
    lines = "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))
    (tmp_path / "triplets.csv").write_text("question,answer,other\n" + lines)
    return tmp_path


def test_the_data_are_shown_before_the_first_step_and_the_scores_after_the_last(isosent_, here):
    finished = isosent_(
        "train", "classification", "--data", "nli.jsonl", *FAST, "--dev", "dev.tsv", "--test", "test.tsv", "-o", "m"
    )
    assert finished.code == 0, finished.err
    for shown in (
        "42 examples",
        "dropped: ",
        "entailment",
        "14 (33.3%)",
        "sentence1 (from premise)",
        "step 0: development",
    ):
        assert shown in finished.err
    assert "saved: m" in finished.out
    rows = [line.split("│")[2].strip() for line in finished.out.splitlines() if line.startswith("│")]
    assert rows == ["dev", "test"]
    assert isosent.load(here / "m").dim == 16


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("regression", ("--data", "sts.tsv", "--score-range", "0,5")),
        ("triplet", ("--data", "triplets.csv", "--columns", "question,answer,other")),
        ("ranking", ("--data", "nli.jsonl", "--set", "mini_batch=4", "--set", "matryoshka=16,8")),
        (
            "classification",
            (
                "--data",
                "nli.jsonl",
                "--set",
                "regularizer=whitening",
                "--set",
                "regularizer-weight=0.1",
                "--set",
                "pooling=max",
            ),
        ),
    ],
)
def test_every_objective_has_a_command(isosent_, here, command, more):
    finished = isosent_("train", command, *more, *FAST, "-o", "m", "--transform", "whitening?n_components=4")
    assert finished.code == 0, finished.err
    assert isosent.load(here / "m").dim == 4
    assert json.loads((here / "m" / "training.json").read_text())["objective"] == command


def test_the_recipe_leaves_a_model_of_each_step_and_repeats_with_seeds(isosent_, here):
    finished = isosent_(
        *("train", "nli-stsb", "--data", "nli.jsonl", "--sts", "sts.tsv", "--score-range", "0,5"),
        *(*FAST, "--epochs", "1,2", "--dev", "dev.tsv", "--seeds", 2, "-o", "m"),
    )
    assert finished.code == 0, finished.err
    assert sorted(str(path.relative_to(here)) for path in here.glob("m/*/*")) == [
        f"m/{stage}/seed-{seed}" for stage in ("nli-stsb", "nli") for seed in (0, 1)
    ]
    assert finished.out.count("±") == 4
    second = json.loads((here / "m" / "nli-stsb" / "seed-1" / "training.json").read_text())
    assert (second["n_epochs"], second["seed"], second["n_steps"]) == (2.0, 1, 8)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(isosent_, here):
    arguments = ["train", "regression", "--data", "sts.tsv", "--score-range", "0,5", *map(str, FAST)]
    arguments += ["--epochs", "40", "--set", "checkpoint_every=20"]
    isosent_(*arguments, "-o", "unbroken")
    code = "from isosent.cli.main import main; main()"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    killed = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "-o", "killed"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not list(here.glob("killed.training/checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert not (here / "killed").exists()
    finished = isosent_(*arguments, "-o", "killed", "--resume")
    assert finished.code == 0, finished.err
    texts = sentences(10, 11)
    after = [isosent.load(here / name).encode(texts) for name in ("killed", "unbroken")]
    np.testing.assert_allclose(*after, atol=1e-5)
    again = isosent_(*arguments, "-o", "killed", "--resume")
    assert (again.code, again.out) == (0, finished.out)
    assert "killed: this run is finished" in again.err
    assert sorted(path.name for path in here.glob("killed*")) == ["killed"]


@pytest.mark.parametrize(
    ("owner", "name", "named"),
    [
        (bases, "write_scratch", "TMPDIR"),
        (MetricsLog, "write", "metrics.jsonl"),
        (trainer, "write_checkpoint", "--resume"),
        (run, "_write_encoder", "/m could not be written"),
    ],
)
def test_a_full_disk_is_one_sentence(isosent_, here, monkeypatch, owner, name, named):
    resource = pytest.importorskip("resource")
    limits, write = resource.getrlimit(resource.RLIMIT_FSIZE), getattr(owner, name)

    def full(*args, **kwargs):
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
        try:
            return write(*args, **kwargs)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(owner, name, full)
    finished = isosent_("train", "regression", "--data", "sts.tsv", "--score-range", "0,5", *FAST, "-o", "m")
    assert finished.code == 2
    last = finished.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "File too large" in last
    assert named in last
    assert not (here / "m").exists()
    assert not [path for path in here.rglob(".*") if path.name.endswith(".tmp")]


def test_what_auto_chose_and_that_nothing_was_scored_is_said(isosent_):
    finished = isosent_(
        *("train", "regression", "--data", "sts.tsv", "--score-range", "0,5", "--base", BASE, "--test", "sts.tsv"),
        *("--transform", "auto", "-o", "m"),
    )
    assert finished.code == 0, finished.err
    reason = isosent.load("m").fits[-1].choice["reason"]
    assert f"m: {reason}" in finished.err
    unscored = isosent_("train", "regression", "--data", "sts.tsv", "--score-range", "0,5", *FAST, "-o", "n")
    assert "nothing was scored; use --dev or --test" in unscored.err


def test_columns_are_those_of_the_scored_sets_too(isosent_, here):
    for name in ("sts", "dev", "test"):
        text = (here / f"{name}.tsv").read_text().replace("score\tsentence1\tsentence2", "grade\ta\tb")
        (here / f"{name}.tsv").write_text(text)
    columns = ("--columns", "a,b,grade", "--dev", "dev.tsv", "--test", "test.tsv")
    finished = isosent_("train", "regression", *STS, *FAST, *columns, "-o", "m")
    assert finished.code == 0, finished.err
    assert [line.split("│")[2].strip() for line in finished.out.splitlines() if line.startswith("│")] == ["dev", "test"]


def test_scores_of_several_seeds_have_a_mean_and_a_standard_deviation():
    assert [over_seeds(scores) for scores in ([], [0.5], [0.1, 0.2, 0.3])] == ["-", "50.00", "20.00 ± 10.00"]


def test_scores_that_went_down_are_named():
    down = Scores(DevScore(0.5, 0.5, 9), DevScore(0.4, 0.4, 9), DevScore(0.3, 0.3, 9))
    result = TrainingResult(isosent.load("wordllama"), Path("m"), {"dev": down}, 3, 3, 1.0)
    assert list(notes([result])) == [
        "warning: m: training lowered the score on dev by 10.00",
        "warning: m: the transform lowered the score on dev by 10.00",
    ]


def test_an_interrupted_run_says_how_to_go_on(isosent_, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(training_options, "train_all", interrupted)
    finished = isosent_("train", "classification", "--data", "nli.jsonl", *FAST, "-o", "m")
    assert finished.code == 130
    assert finished.err.endswith("interrupted; the run is saved, and the same command with --resume continues it\n")


def test_a_development_set_of_training_pairs_is_warned_of(isosent_):
    finished = isosent_(
        *("train", "regression", "--data", "sts.tsv", "--score-range", "0,5", *FAST, "--dev", "sts.tsv", "-o", "m")
    )
    assert "warning: sts: 30 of its 30 pairs are pairs of the training data" in finished.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("classification", "--data", "sts.tsv"), ("columns",)),
        (("regression", "--data", "sts.tsv"), ("--score-range",)),
        (("regression", "--data", "sts.tsv", "--score-range", "0"), ("LOW,HIGH",)),
        (("regression", "--data", "sts.tsv", "--score-range", "0,4"), ("score",)),
        (("classification", "--data", "nowhere.jsonl"), ("nowhere.jsonl",)),
        (("classification", "--data", "nli.jsonl", "--columns", "anchor"), ("columns", "anchor")),
        (("classification", "--data", "nli.jsonl", "--set", "concatenation=u"), ("concatenation", "|u-v|")),
        (("classification", "--data", "nli.jsonl", "--base", "scratch:?dim=15"), ("does not divide dim=15",)),
        (("classification", "--data", "nli.jsonl", "--fit-on", "nli.jsonl"), ("--fit-on", "--transform auto")),
        (("classification", "--data", "nli.jsonl", "--set", "matryoshka=8,x"), ("matryoshka",)),
        (("classification", "--data", "nli.jsonl", "--set", "matryoshka=32", *FAST), ("matryoshka", "16")),
        (("triplet", "--data", "triplets.csv", "--set", "margin=0"), ("margin",)),
        (("triplet", "--data", "triplets.csv", "--set", "marginn=1"), ("marginn", "Did you mean margin?")),
        (("triplet", "--data", "triplets.csv"), ("anchor",)),
        (("nli-stsb", "--data", "nli.jsonl"), ("--sts",)),
        (("classification", "--data", "nli.jsonl", "--dev", "dev.tsv", "--test", "dev.tsv"), ("dev", "twice")),
        (("classification", "--data", "nli.jsonl", "--resume"), ("--resume needs a run",)),
        (("classification", "--data", "nli.jsonl", "--seeds", "0"), ("seeds",)),
    ],
)
def test_bad_input_is_one_sentence(isosent_, arguments, words):
    finished = isosent_("train", *arguments, "-o", "m")
    assert finished.code == 2
    assert finished.out == ""
    last = finished.err.splitlines()[-1]
    assert last.startswith("error: ")
    for word in words:
        assert word in last


def test_distill_says_what_it_needs(isosent_, refuses, here):
    refuses(
        isosent_("distill", "nli.jsonl", "nli.jsonl", "-o", "s"), "nli.jsonl is a file", "hf:DIR TEXTS", "--vectors"
    )
    refuses(isosent_("distill", "wordllama", "-o", "s"), "no texts", "hf:DIR TEXTS")


def test_a_model_that_will_be_replaced_is_named_before_any_work(isosent_, here):
    train = ("train", "classification", "--data", "nli.jsonl", *FAST, "-o", "m", "--seeds", 1)
    assert "replaced" not in isosent_(*train).err
    finished = isosent_(*train)
    assert finished.code == 0, finished.err
    assert finished.err.count("m/seed-0 holds a model, which is replaced") == 1


def test_a_folder_of_something_else_is_not_replaced(isosent_, refuses, here):
    (here / "m").mkdir()
    (here / "m" / "thesis.txt").write_text("mine")
    refuses(isosent_("train", "classification", "--data", "nli.jsonl", *FAST, "-o", "m"), "m exists")
    assert (here / "m" / "thesis.txt").read_text() == "mine"
