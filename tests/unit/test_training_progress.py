import io
import math

import numpy as np
import pytest
from rich.console import Console

from isosent.cli.train import TrainingLines, training_display
from isosent.training.development import DevScore
from isosent.training.metrics import (
    WINDOW,
    DevPoint,
    LossPoint,
    MetricsLog,
    Milestone,
    StepPoint,
    StepRecorder,
    read_metrics,
)

NAN = math.nan
SCORE = DevScore(0.8, 0.7, 30)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shown():
    """What is reported."""
    return []


def take_step(recorder, clock, step, seconds=2.0, losses=(0.5,)):
    recorder.step_began()
    for loss in losses:
        recorder.record(loss, 16)
    clock.now += seconds
    recorder.step_ended(step, 1e-5)


def test_examples_a_second_leave_evaluations_and_checkpoints_out(clock, shown):
    recorder = StepRecorder(report=shown.append, clock=clock)
    recorder.began(0, 10)
    for step in range(1, 5):
        take_step(recorder, clock, step)
        clock.now += 50
        recorder.pause_ended()
    assert recorder.examples_per_s == 8
    assert shown[-1].examples_per_s == 8


def test_making_a_batch_belongs_to_its_step(clock):
    recorder = StepRecorder(clock=clock)
    recorder.began(0, 10)
    take_step(recorder, clock, 1)
    clock.now += 2  # the collator works between two steps
    take_step(recorder, clock, 2)
    assert recorder.examples_per_s == 32 / 6


def test_what_comes_before_the_first_step_is_left_out(clock):
    recorder = StepRecorder(clock=clock)
    recorder.began(500, 1000)
    clock.now += 300  # batches that were seen are passed over
    take_step(recorder, clock, 501)
    assert recorder.examples_per_s == 8


def test_remaining_time_takes_in_pauses_at_the_share_there_was(clock, shown):
    recorder = StepRecorder(report=shown.append, clock=clock)
    recorder.began(0, 10)
    clock.now += 70
    recorder.pause_ended()  # the evaluation before the first step will not come again
    take_step(recorder, clock, 1)
    assert shown[-1].remaining_s == 9 * 2
    clock.now += 6
    recorder.pause_ended()
    take_step(recorder, clock, 2)
    assert shown[-1].remaining_s == 8 * (2 + 6 / 2)


def test_a_resumed_run_counts_the_steps_that_are_left(clock, shown):
    steps = []
    recorder = StepRecorder(progress=lambda *step: steps.append(step), report=shown.append, clock=clock)
    recorder.began(990, 1000)
    take_step(recorder, clock, 991)
    assert steps == [(990, 1000), (991, 1000)]
    assert shown[-1].remaining_s == 9 * 2


def test_shown_loss_is_the_mean_of_the_last_steps(clock, shown):
    recorder = StepRecorder(report=shown.append, clock=clock)
    recorder.began(0, 200)
    losses = np.random.default_rng(0).random(WINDOW + 9)
    for step, loss in enumerate(losses, start=1):
        take_step(recorder, clock, step, losses=(loss,))
    assert shown[-1].loss == pytest.approx(losses[-WINDOW:].mean())


def test_a_step_with_accumulation_is_the_mean_of_its_batches(clock, shown):
    recorder = StepRecorder(report=shown.append, clock=clock)
    recorder.began(0, 10)
    take_step(recorder, clock, 1, losses=(0.2, 0.6))
    assert (shown[-1].step, shown[-1].loss) == (1, pytest.approx(0.4))
    assert recorder.examples_per_s == 16


def test_examples_of_all_processes_count(clock):
    recorder = StepRecorder(n_processes=4, clock=clock)
    recorder.began(0, 10)
    take_step(recorder, clock, 1)
    assert recorder.examples_per_s == 4 * 8


def test_what_happens_is_written_down(tmp_path, clock, shown):
    path = tmp_path / "metrics.jsonl"
    recorder = StepRecorder(MetricsLog(path), report=shown.append, clock=clock)
    recorder.began(0, 2)
    recorder.evaluated(0, SCORE)
    take_step(recorder, clock, 1)
    recorder.logged(1, 0.5, {"loss": 0.25, "learning_rate": 2e-5, "grad_norm": 3.0})
    recorder.logged(1, 0.5, {"eval_spearman": 0.8})
    recorder.mark("checkpoint", 1)
    recorder.mark_end(1)
    found = read_metrics(path)
    assert found.losses == (LossPoint(1, 0.5, 0.25, 2e-5, 3.0, 8.0, 2.0),)
    assert found.devs == (DevPoint(0, 0.8, 0.7, 30),)
    assert found.milestones == (
        Milestone("start", 0, n_steps=2, elapsed_s=0.0),
        Milestone("checkpoint", 1, elapsed_s=2.0),
        Milestone("end", 1, elapsed_s=2.0),
    )
    assert found.devs[0] in shown


def test_elapsed_time_goes_on_in_a_resumed_run(tmp_path, clock):
    path = tmp_path / "metrics.jsonl"
    for after_step in (0, 1):
        recorder = StepRecorder(MetricsLog(path, after_step=after_step), clock=clock)
        recorder.began(after_step, 2)
        take_step(recorder, clock, after_step + 1)
        recorder.mark("checkpoint", after_step + 1)
    found = read_metrics(path)
    assert found.elapsed_s == 4.0
    assert [milestone.event for milestone in found.milestones] == ["start", "checkpoint", "resumed", "checkpoint"]


def test_a_resumed_run_shows_its_earlier_scores(tmp_path, shown):
    path = tmp_path / "metrics.jsonl"
    StepRecorder(MetricsLog(path)).evaluated(0, SCORE)
    StepRecorder(MetricsLog(path, after_step=5), report=shown.append).began(5, 10)
    assert shown == [DevPoint(0, 0.8, 0.7, 30)]


def test_a_process_that_is_not_the_first_writes_nothing(clock):
    recorder = StepRecorder(clock=clock)
    recorder.began(0, 2)
    take_step(recorder, clock, 1)
    recorder.logged(1, 0.5, {"loss": 0.5, "learning_rate": 0.1})
    recorder.evaluated(1, SCORE)
    recorder.mark_end(1)


def test_lines_come_at_the_start_once_a_minute_and_at_the_end(clock):
    written = []
    lines = TrainingLines(written.append, clock=clock)
    for step in range(1, 201):
        lines(StepPoint(step, 200, 1 / step, 2e-5, 431.4, 61.0))
        clock.now += 1
    assert [line.partition(":")[0] for line in written] == [f"step {step} of 200" for step in (1, 61, 121, 181, 200)]
    assert written[1] == "step 61 of 200: loss 0.0164, lr 2e-05, 431 examples/s, 0:01:01 left"


def test_every_run_has_a_first_step_and_a_first_score(clock):
    written = []
    lines = TrainingLines(written.append, clock=clock)
    for score in (0.5, 0.6):
        for event in ("A run.", DevPoint(0, score, 0.7, 30), StepPoint(1, 20, 0.5, 1e-5, 1.0, NAN)):
            lines(event)
    run = ["A run.", "step 0: development Spearman", "step 1 of 20: loss"]
    assert [line.startswith(start) for line, start in zip(written, run * 2, strict=True)] == [True] * 6
    assert "since" not in "".join(written)


def test_scores_and_messages_have_lines_of_their_own():
    written = []
    lines = TrainingLines(written.append)
    for step, score in ((0, 0.5), (10, NAN), (20, 0.755)):
        lines(DevPoint(step, score, score, 30))
    lines("A sentence.")
    assert written == [
        "step 0: development Spearman 50.00",
        "step 10: development Spearman undefined",
        "step 20: development Spearman 75.50 (+25.50 since the first)",
        "A sentence.",
    ]


def test_a_terminal_shows_a_bar_that_goes_away():
    screen = io.StringIO()
    with training_display(Console(file=screen, force_terminal=True, width=120, highlight=False)) as (progress, report):
        progress(100, 200)
        report(StepPoint(150, 200, 0.25, 2e-5, 431.0, 75.0))
        progress(150, 200)
        report(DevPoint(150, 0.8, 0.7, 30))
    told = screen.getvalue()
    assert "150/200" in told
    assert "loss 0.2500  lr 2e-05  431 examples/s  0:01:15 left" in told
    assert "step 150: development Spearman 80.00" in told


def test_elsewhere_there_are_lines():
    screen = io.StringIO()
    with training_display(Console(file=screen, width=200)) as (progress, report):
        assert progress is None
        report(StepPoint(1, 2, 0.5, 1e-5, 10.0, NAN))
    assert screen.getvalue().startswith("step 1 of 2: loss 0.5000, lr 1e-05, 10 examples/s")
