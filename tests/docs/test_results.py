"""The page of results, and the numbers of other pages that it owns.

A result is a number with decimals, or in percent. Those of a block of the README or a guide that links to the page of
results, and of the table right after such a block, are rounded from docs/results.json, in which each has its command.
"""

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
NUMBER = re.compile(r"(?<![\w.,/-])\d+(?:\.\d+)?(?= to \d+(?:\.\d+)?%)|(?<![\w.,/-])\d[\d,]*\.\d+%?|(?<![\w.,/-])\d+%")


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
    listed = {number.rstrip("%") for each in RESULTS["studies"] for number in NUMBER.findall(each["shown"])}
    return shown in listed or any(abs(value - float(shown)) <= 0.5001 * 10**-n_decimals for value in values)


@pytest.mark.parametrize("page", [name for name, path in GUIDES.items() if "results.md" in path.read_text("utf-8")])
def test_every_result_is_one_of_the_page_of_results(page):
    strange = [number for number in results_in(GUIDES[page].read_text("utf-8")) if not is_result(number)]
    assert not strange, f"measure them (bench/results.py), name them in docs/results.json, or leave them out: {strange}"


def test_the_tables_of_the_readme_are_looked_at():
    found = list(results_in(GUIDES["README"].read_text("utf-8")))
    assert {"73.2", "0.9964", "17", "41", "72.10", "91.3"} <= set(found)
    assert not is_result("72.13")
    assert not is_result("12.3")


def test_the_page_is_that_of_the_file(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    import results

    page = (ROOT / "docs/results.md").read_text("utf-8")
    assert page == results.render(RESULTS), "run: python bench/results.py render"
    assert not re.search(r"\{\w+\}", page)


def test_every_row_has_a_command_or_a_source():
    runs = {each["name"] for each in RESULTS["runs"] if "date" in each}
    sources = {each["name"] for each in RESULTS["sources"]}
    for each in RESULTS["entries"]:
        assert (each.get("run") in runs) != (each.get("source") in sources), each
