from dataclasses import replace

import numpy as np
import pytest
from made_results import fitted, made_result, made_task, right_and_wrong


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Result files of two models."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.json", made_result("first", STS12=made_task(0.6), MR=right_and_wrong(60)))
    write(tmp_path, "b.json", made_result("second", STS12=made_task(0.4), MR=right_and_wrong(0)))
    return tmp_path


def write(folder, name, result):
    (folder / name).write_text(result.to_text(), "utf-8")


def test_a_page_is_written(isosent_, here):
    finished = isosent_("report", "a.json", "b.json", "-o", "report.html")
    assert finished.code == 0, finished.err
    assert finished.out == "report.html: 2 models on 2 tasks\n"
    assert finished.err == ""
    text = (here / "report.html").read_text()
    assert "first" in text
    assert text.count("★</span>") == 1


def test_the_table_for_a_paper_has_intervals_where_files_have_them(isosent_, here):
    write(here, "c.json", made_result("third", STS12=made_task(0.5, intervals={"spearman": (np.nan, np.nan)})))
    finished = isosent_("report", "a.json", "c.json", "-o", "table.tex", "-o", "table.csv")
    assert finished.code == 0, finished.err
    rows = [line.removesuffix(r" \\").split(" & ") for line in (here / "table.tex").read_text().splitlines()]
    scores = {cells[0]: cells[1] for cells in rows if len(cells) > 1}
    assert scores["first"] == "60.00"
    assert scores["third"] == "50.00"
    assert [cells[1] for cells in rows if r"\scriptsize 95" in cells[0]] == [r"\scriptsize 58.00", r"\scriptsize 63.00"]
    assert "percentile bootstrap over items, 1,000 resamples" in (here / "table.tex").read_text()
    assert "interval" not in (here / "table.csv").read_text()


def test_a_star_says_by_which_test(isosent_, here):
    assert isosent_("report", "a.json", "b.json", "-o", "table.tex", "-o", "r.html").code == 0
    for text in ((here / "table.tex").read_text(), (here / "r.html").read_text()):
        for said in ("paired test", "0.05", "Holm", "of an average is not"):
            assert said in text


def test_transforms_of_one_model_are_one_model(isosent_, here):
    result = made_result("first", STS12=made_task(0.6))
    write(here, "c.json", replace(result, variants=(replace(result, fitting=fitted("whitening")),)))
    assert isosent_("report", "c.json", "-o", "c.html").out == "c.html: 2 rows of 1 model on 1 task\n"
    assert isosent_("report", "c.json", "b.json", "-o", "c.html").out.startswith("c.html: 3 rows of 2 models")


def test_figures_are_written_beside_it(isosent_, here):
    finished = isosent_("report", "a.json", "-o", "report.html", "--figures", "figures")
    assert finished.code == 0, finished.err
    assert [line for line in finished.out.splitlines() if "sts" in line] == [
        "figures/scores_sts.svg",
        "figures/scores_sts.png",
        "figures/scores_sts.pdf",
    ]
    assert (here / "figures" / "scores_transfer.svg").stat().st_size


def test_what_cannot_be_compared_is_noted(isosent_, here):
    write(here, "c.json", made_result("first", STS12=made_task(0.6)))
    finished = isosent_("report", "a.json", "c.json", "-o", "report.html")
    assert finished.code == 0
    assert finished.err == (
        "note: a.json and c.json are of the same model and settings (first). Their rows carry the names of the files.\n"
    )
    write(here, "d.json", made_result("third", TREC=right_and_wrong(3)))
    finished = isosent_("report", "c.json", "d.json", "-o", "report.html")
    assert "note: No two models were measured on the same task of the same data" in finished.err


def test_what_cannot_be_reported_is_refused(isosent_, refuses, here):
    def report(*arguments, output="report.html"):
        return isosent_("report", *arguments, "-o", output)

    (here / "other.json").write_text("[]")
    refuses(report("a.json", "other.json"), "other.json")
    refuses(report("a.json", "no.json"), "no.json: no such file")
    refuses(report("a.json", "a.json"), "a.json is named 2 times")
    refuses(report("a.json", output="a.json"), "the extension must be .html")
    refuses(report("a.json", output="report.svg"), "--figures DIR")
    assert not (here / "report.svg").exists()
    refuses(report("a.json", output="no/report.html"), "there is no folder")
    refuses(report("a.json", "--figures", "b.json"), "b.json is a file")
    assert not (here / "report.html").exists()
    finished = isosent_("report", "-o", "report.html")
    assert finished.code == 2
    assert "Missing argument 'RESULTS...'" in finished.err
