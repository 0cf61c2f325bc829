"""The page of results, and the numbers of other pages that it owns.

A result is a number with decimals, or in percent. Those of a block of the README or a guide that links to the page of
results, and of the table right after such a block, are rounded from docs/results.json, in which each has its command.
Every other table of results in a guide is one of that file, written there by `bench/results.py render`.
"""

import itertools
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "docs/results.json").read_text("utf-8"))
GUIDES = {
    path.stem: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.stem != "results"
}
NUMBER = re.compile(
    r"(?<![\w.,/-])\d+(?:\.\d+)?(?= to \d+(?:\.\d+)?%)|(?<![\w.,/-])\d[\d,]*\.\d+(?![\de])%?|(?<![\w.,/-])\d+%"
)


def results_in(text):
    """Numbers of the blocks that name the page, and of a table right after one."""
    blocks = re.split(r"\n\s*\n", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for place, block in enumerate(blocks):
        is_table_of_one = place > 0 and block.startswith("|") and "results.md" in blocks[place - 1]
        if "results.md" in block or is_table_of_one:
            words = re.sub(r"\]\([^)]*\)|<[^>]*>|`[^`]*`", "]", block)
            yield from (number.rstrip("%") for number in NUMBER.findall(words))


def is_result(shown):
    n_decimals = len(shown.partition(".")[2])
    values = [each["value"] for each in RESULTS["entries"]]
    said = " ".join(str(each.get("shown", each.get("rows"))) for each in RESULTS["studies"])
    listed = {number.rstrip("%") for number in NUMBER.findall(said)}
    return shown in listed or any(abs(value - float(shown)) <= 0.5001 * 10**-n_decimals for value in values)


@pytest.mark.parametrize("page", [name for name, path in GUIDES.items() if "results.md" in path.read_text("utf-8")])
def test_every_result_is_one_of_the_page_of_results(page):
    strange = [number for number in results_in(GUIDES[page].read_text("utf-8")) if not is_result(number)]
    assert not strange, f"measure them (bench/results.py), name them in docs/results.json, or leave them out: {strange}"


def test_the_tables_of_the_readme_are_looked_at():
    found = list(results_in(GUIDES["README"].read_text("utf-8")))
    assert {"73.2", "0.9918", "17", "41", "72.10", "91.3"} <= set(found)
    assert not is_result("72.13")
    assert not is_result("12.3")


@pytest.fixture
def results(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    import results

    return results


@pytest.mark.parametrize("page", GUIDES)
def test_every_table_of_results_is_one_of_the_file(results, page):
    blocks = re.split(r"\n\s*\n", re.sub(r"```.*?```", "", GUIDES[page].read_text("utf-8"), flags=re.DOTALL))
    for before, block in itertools.pairwise(blocks):
        words = re.sub(r"\]\([^)]*\)|<[^>]*>|`[^`]*`|\b\d{4}\.\d{5}\b", "]", block)  # an address, code, an arXiv number
        if block.startswith("|") and len(NUMBER.findall(words)) > 1:
            is_checked = "table of results.json" in before or "results.md" in before
            assert is_checked, f"name this table in docs/results.json, with the command that makes it: {block[:200]}"


def test_tables_of_guides_are_those_of_the_file(results):
    tables = [each for each in RESULTS["studies"] if "rows" in each]
    for each in tables:
        guide = GUIDES[each["guide"]].read_text("utf-8")
        assert f"table of results.json: {each['name']} -->" in guide
        assert guide == results.with_tables(guide, RESULTS), "run: python bench/results.py render"
        assert all(len(row) == len(each["rows"][0]) for row in each["rows"])
    spoiled = GUIDES["distill"].read_text("utf-8").replace("| 73.1 |", "| 73.9 |")
    assert spoiled != results.with_tables(spoiled, RESULTS)


def test_the_page_is_that_of_the_file(results):
    page = (ROOT / "docs/results.md").read_text("utf-8")
    assert page == results.render(RESULTS), "run: python bench/results.py render"
    assert not re.search(r"\{\w+\}", page)


def test_every_row_has_a_command_or_a_source():
    runs = {each["name"] for each in RESULTS["runs"] if "date" in each}
    sources = {each["name"] for each in RESULTS["sources"]}
    for each in RESULTS["entries"]:
        assert (each.get("run") in runs) != (each.get("source") in sources), each
