import json
import math

import pytest

from isosent.errors import FileFormatError, InputFileError, OutputError
from isosent.training.metrics import DevPoint, LossPoint, Metrics, MetricsLog, Milestone, read_metrics

START = Milestone("start", 0, n_steps=30)
BEFORE = DevPoint(0, 0.5, 0.4, 20)


def loss(step, value=0.5):
    return LossPoint(step, step / 30, value, 2e-5, 1.5, 400.0, step / 10)


@pytest.fixture
def path(tmp_path):
    """The file of a run that was killed behind step 20 while it wrote a line; its checkpoint is of step 20."""
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for point in (START, BEFORE, loss(10), loss(20), Milestone("checkpoint", 20, elapsed_s=2.5), loss(25)):
        log.write(point)
    with path.open("a") as file:
        file.write('{"event": "loss", "st')
    return path


def test_what_is_written_is_read_again(path):
    found = read_metrics(path)
    assert found.losses == (loss(10), loss(20), loss(25))
    assert found.devs == (BEFORE,)
    assert found.milestones == (START, Milestone("checkpoint", 20, elapsed_s=2.5))


def test_a_line_is_one_flat_object(path):
    lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines[:2]]
    assert all(row.pop("checksum") for row in rows)
    assert rows[0] == {"event": "start", "step": 0, "n_steps": 30}
    assert rows[1] == {"event": "dev", "step": 0, "spearman": 0.5, "pearson": 0.4, "n_pairs": 20}
    assert list(json.loads(lines[2])) == [
        "event",
        "step",
        "epoch",
        "loss",
        "learning_rate",
        "gradient_norm",
        "examples_per_s",
        "elapsed_s",
        "checksum",
    ]


def test_each_line_is_in_the_file_at_once(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(loss(1))
    assert read_metrics(tmp_path / "metrics.jsonl").losses == (loss(1),)


def test_an_undefined_number_is_null(tmp_path):
    MetricsLog(tmp_path / "m.jsonl").write(DevPoint(3, math.nan, math.nan, 5))
    assert '"spearman": null' in (tmp_path / "m.jsonl").read_text()
    assert math.isnan(read_metrics(tmp_path / "m.jsonl").devs[0].spearman)


def test_a_resumed_run_drops_later_steps_and_the_torn_line(path):
    log = MetricsLog(path, after_step=20)
    log.write(Milestone("resumed", 20))
    found = read_metrics(path)
    assert found.losses == log.earlier.losses == (loss(10), loss(20))
    assert [milestone.event for milestone in found.milestones] == ["start", "checkpoint", "resumed"]
    assert path.read_bytes().endswith(b"\n")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_time_goes_on_from_the_last_checkpoint(path):
    assert MetricsLog(path, after_step=20).earlier.elapsed_s == 2.5


def test_kept_lines_keep_their_bytes(path):
    before = path.read_bytes().splitlines(keepends=True)
    MetricsLog(path, after_step=20)
    assert path.read_bytes().splitlines(keepends=True) == before[:5]


def test_a_new_run_begins_a_new_file(path):
    assert MetricsLog(path).earlier == Metrics()
    assert path.read_bytes() == b""


def test_a_resumed_run_whose_file_was_lost_begins_a_new_one(tmp_path):
    assert MetricsLog(tmp_path / "m.jsonl", after_step=20).earlier == Metrics()


def test_best_is_the_first_of_the_highest_and_never_undefined():
    devs = [DevPoint(step, score, 0, 9) for step, score in ((0, math.nan), (1, 0.3), (2, 0.7), (3, 0.7))]
    assert Metrics(devs=tuple(devs)).best == devs[2]
    assert Metrics(devs=tuple(devs[:1])).best is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no json", "line 2: .*not JSON"),
        ('{"step": 3, "loss": 0.5}', "line 2: .*event.*None"),
        ('{"event": ["dev"], "step": 1}', "line 2: .*event.*dev"),
        ('{"event": "dev", "step": "x", "spearman": 0.5, "pearson": 0.5, "n_pairs": 2}', "line 2: .*step"),
        ('{"event": "dev", "step": 1, "spearman": 0.5, "n_pairs": 2}', "line 2: .*pearson"),
        ('{"event": "dev", "step": 1, "spearman": "high", "pearson": 0.5, "n_pairs": 2}', "line 2: .*spearman"),
        ('{"event": "start", "step": 0, "n_stepz": 30}', "line 2: .*n_stepz"),
        ('{"event": "start", "step": 0, "n_steps": 30}', "line 2: .*checksum is missing"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, says):
    path = tmp_path / "m.jsonl"
    MetricsLog(path).write(START)
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(FileFormatError, match=says):
        read_metrics(path)
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match=says):
        MetricsLog(path, after_step=5)
    assert path.read_bytes() == before


def test_a_bit_that_was_flipped_is_found(tmp_path):
    path = tmp_path / "m.jsonl"
    log = MetricsLog(path)
    for point in (START, BEFORE, loss(10)):
        log.write(point)
    content = path.read_bytes()
    last = 8 * (len(content) - 1)  # the last line feed, without which a line looks torn
    for bit in [*range(0, last, 17), *range(last, last + 8)]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(FileFormatError, match=r"m\.jsonl"):
            read_metrics(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_metrics(tmp_path / "none.jsonl")


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(OutputError, match="there is no folder"):
        MetricsLog(tmp_path / "none" / "m.jsonl")


def test_a_file_that_went_away_is_told(tmp_path):
    (tmp_path / "run").mkdir()
    log = MetricsLog(tmp_path / "run" / "m.jsonl")
    (tmp_path / "run" / "m.jsonl").unlink()
    (tmp_path / "run").rmdir()
    with pytest.raises(OutputError, match="could not be written"):
        log.write(START)
