"""A report is rendered as text, as JSON and into files."""

import io
import json

import numpy as np
import pytest
from rich import box
from rich.console import Console
from rich.table import Table

from isosent.cli.printing import deliver
from isosent.pages.report import Note, Report, ReportTable


def table():
    made = ReportTable("name", "n", "note", left=(0, -1), title="the title", caption="the caption", last_width=9)
    made.add_section()  # of no row: draws nothing
    made.add_row("a", "1", "words in two lines")
    made.add_section()
    made.add_row("b", "20", is_dim=True)
    return made


def test_parts_are_printed_in_order_and_notes_go_to_standard_error(capsys):
    deliver(Report({"n": 1}, ["first", Note("note"), "last"]))
    assert capsys.readouterr() == ("first\nlast\n", "note\n")


def test_a_table_looks_as_rich_prints_one(capsys):
    deliver(Report(parts=[table()]))
    same = Table("name", title="the title", title_justify="left", caption="the caption", caption_justify="left")
    same.add_column("n", justify="right")
    same.add_column("note", max_width=9)
    same.add_row("a", "1", "words in two lines", end_section=True)
    same.add_row("b", "20", "")
    page = io.StringIO()
    Console(file=page, width=100, soft_wrap=True).print(same)
    printed = capsys.readouterr().out
    assert printed == page.getvalue()
    assert printed.count(box.HEAVY_HEAD.row_left) == 1


def test_a_table_without_a_header_has_no_header(capsys):
    facts = ReportTable("name", "value", has_header=False)
    facts.add_row("a", "1")
    deliver(Report(parts=[facts]))
    assert "name" not in capsys.readouterr().out


@pytest.mark.parametrize("make", [lambda values: values, lambda values: lambda: values])
def test_json_is_all_that_is_printed_and_is_what_its_file_holds(capsys, tmp_path, make):
    def parts():
        raise AssertionError  # text is not made for JSON
        yield

    document = make({"score": float("nan"), "name": "é", "rows": [1, 2]})
    deliver(Report(document, parts()), [tmp_path / "r.JSON"], as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"score": None, "name": "é", "rows": [1, 2]}
    assert (tmp_path / "r.JSON").read_text("utf-8") == printed.out
    assert printed.err == ""


def test_a_result_may_write_its_own_json(capsys, tmp_path):
    deliver(Report(lambda: "[1,\n2]\n", ["text"]), [tmp_path / "r.json"], as_json=True)
    assert capsys.readouterr().out == (tmp_path / "r.json").read_text() == "[1,\n2]\n"


def test_a_part_of_a_report_prints_nothing_as_json(capsys):
    deliver(Report(parts=["text", Note("note")]), as_json=True)
    assert capsys.readouterr() == ("", "")


def test_files_get_what_their_ending_names_before_anything_is_printed(capsys, tmp_path):
    pixels = np.arange(4, dtype=np.uint8).tobytes()
    files = {".csv": lambda: "a,é\n", ".png": lambda: pixels, ".html": lambda: 1 / 0}
    outputs = [tmp_path / "one.csv", tmp_path / "two.png"]
    deliver(Report({}, ["done"], files), outputs)
    assert [path.read_bytes() for path in outputs] == ["a,é\n".encode(), pixels]
    assert capsys.readouterr().out == "done\n"
    with pytest.raises(ZeroDivisionError):
        deliver(Report({}, ["done"], files), [tmp_path / "page.html"])
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.csv", "two.png"]
