"""Every JSON file of isosent, with something else in any of its places: it is read, or refused in one sentence."""

import copy
import json
import random

import pytest
from made_results import fitted, made_result, made_task, right_and_wrong

import isosent
from isosent.datasets import (
    RECORD_NAME,
    DataRecord,
    FetchedRepository,
    FileState,
    parse_manifest,
    read_data_record,
    write_data_record,
)
from isosent.errors import FileFormatError
from isosent.exports import export
from isosent.exports.check import read_space
from isosent.io.json import read_json
from isosent.io.notes import verify_export
from isosent.report.leaderboard import make_leaderboard, read_report
from isosent.report.results_page import html_report
from isosent.research.study import (
    ROWS,
    AutoCell,
    DimsCell,
    DimsStudy,
    FlowCell,
    GemCell,
    LayerCell,
    PublishedScore,
    PublishedWidth,
    SearchTime,
    read_study,
    study_to_json,
)

N_CHANGES = 200
SPEARMAN = {"all": 0.5, "mean": 0.25, "wmean": 0.125}
OTHERS = [
    None,
    True,
    0,
    -1,
    2**63,
    10**400,
    float("nan"),
    float("inf"),
    1.5,
    "",
    "a",
    "a\0b",
    "\ud800",
    [],
    [None],
    {},
    {"a": [1]},
    ["a", 1, {}],
]
SHOWN = ("auto", "dims", "layers")  # of these, the ones that a report shows
STUDIES = {
    "auto": [AutoCell("m", task, dict.fromkeys(ROWS, 0.5), "none", "none") for task in ("STS12", "STSB")],
    "dims": [
        DimsStudy(
            "m",
            {"reference": "m"},
            {"transform": "whitening", "fit": "target"},
            (DimsCell("STSB", 8, 8, 5, 0, SPEARMAN),),
            tuple(DimsCell("STSB", k, k, 5, 0, SPEARMAN) for k in (2, 4)),
            (SearchTime(2, 100, 10, 3, 0.5), SearchTime(4, 100, 10, 3, 0.5)),
            (PublishedWidth("a paper", 4, True, "all", {"STSB": 40.0}),),
        )
    ],
    "flow": [FlowCell("m", "STSB", "flow(target)", [0.5], [[1.5, 0.5]], 0.5, 7)],
    "gem": [GemCell("m", "STSB", "window", "3", 0.5, 0.25, 1)],
    "layers": [
        LayerCell("m", "mean", layers, "none", None, "STSB", SPEARMAN, {"all": PublishedScore(0.5, "s")})
        for layers in ((0,), (1,), (0, 1))
    ],
}


def places(value, above=()):
    """Every place of a document, the document itself first."""
    yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from places(each, (*above, name))


def changes(document, seed=0):
    """The document with something else in one place, without it, or with something more."""
    rng = random.Random(seed)
    document = {name: value for name, value in document.items() if name != "checksum"}
    everywhere = list(places(document))[1:]
    for _ in range(N_CHANGES):
        changed = copy.deepcopy(document)
        *above, last = rng.choice(everywhere)
        inner = changed
        for name in above:
            inner = inner[name]
        match rng.randrange(4):
            case 0:
                del inner[last]
            case 1 if isinstance(inner[last], dict):
                inner[last]["surplus"] = 1
            case _:
                inner[last] = rng.choice(OTHERS)
        yield changed


def refused_share(path, read):
    """Read every change of a file; the share of those that are refused."""
    document, messages = json.loads(path.read_text("utf-8")), []
    deep = '{"format": ' + "[" * 100_000
    for content in [*map(json.dumps, changes(document)), deep, "[]", "7", '"a"', "null", "{}"]:
        path.write_text(content, "utf-8")
        try:
            read(path)
        except FileFormatError as error:
            messages.append(str(error))
    assert not any("\n" in message for message in messages)
    return len(messages) / N_CHANGES


def read_and_report(path):
    data = read_report([path])
    html_report(data, make_leaderboard(data.results))


def test_results(tmp_path):
    fit = {"transform": "whitening", "parameters": {"strength": 1.0}, "source": "a", "n_texts": 3}
    result = made_result("m", fitted("auto"), fits=[fit], STSB=made_task(0.5), MR=right_and_wrong(9))
    (tmp_path / "r.json").write_text(result.to_text(), "utf-8")
    assert refused_share(tmp_path / "r.json", read_and_report) > 0.5


@pytest.mark.parametrize("name", STUDIES)
def test_studies(tmp_path, name):
    (tmp_path / "s.json").write_text(json.dumps(study_to_json(name, STUDIES[name])), "utf-8")
    assert refused_share(tmp_path / "s.json", read_and_report if name in SHOWN else read_study) > 0.5


def test_fetched_data(tmp_path):
    state = FileState("ab" * 32, "owner/name", "cd" * 20, None)
    repositories = {"owner/name": FetchedRepository("cd" * 20, {"a": "ab" * 32})}
    lock = DataRecord(format="isosent-data", format_version=1, repositories=repositories, files={"a/b": state})
    write_data_record(tmp_path, lock)
    assert read_data_record(tmp_path).files == {"a/b": state}
    assert refused_share(tmp_path / RECORD_NAME, lambda path: read_data_record(path.parent)) > 0.5


def test_the_manifest(tmp_path):
    entry = dict.fromkeys(("name", "title", "command", "download", "terms", "text", "home", "place"), "a")
    files = [{"path": "a", "repository": "o/n", "file": "a", "sha256": "ab" * 32}]
    document = {"repositories": {"o/n": None}, "sets": [{**entry, "each": {"how": "copy"}, "files": files}]}
    (tmp_path / "m.json").write_text(json.dumps(document), "utf-8")
    assert refused_share(tmp_path / "m.json", lambda path: parse_manifest(read_json(path))) > 0.5


@pytest.mark.parametrize("target", ["onnx", "faiss"])
def test_notes_of_exports(tmp_path, target):
    (tmp_path / "glove.txt").write_text("a 1 2\nb 3 1\nc 5 7\n")
    model = isosent.load(f"words:{tmp_path / 'glove.txt'}").fitted(["a b", "b c", "c"], transform=isosent.Whitening(1))
    export(model, target, tmp_path / "out")
    note = tmp_path / "out" / "isosent.json" if target == "onnx" else tmp_path / "out.isosent.json"
    assert refused_share(note, lambda _: (read_space(tmp_path / "out"), verify_export(tmp_path / "out"))) > 0.3
