"""The page of troubleshooting quotes messages that there are, and that of variables names all that are read."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ANY = "\0"  # what stands in a message for a value


@cache
def trees():
    return {path: ast.parse(path.read_text("utf-8")) for path in (ROOT / "src").rglob("*.py")}


@cache
def strings():
    """Every string of the source, with a mark for each value that is put in."""
    found = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def first_cells(page):
    """Code in the first cells of the tables of a page."""
    rows = re.findall(r"^\| (`.+?`) \| ", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return [code for cell in rows for code in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("message", first_cells("troubleshooting.md"))
def test_a_message_of_the_page_is_one_of_the_source(message):
    parts = [re.escape(part).replace(r"\ ", " ") for part in re.split(r"\s*\.\.\.\s*", message) if part]
    assert sum(map(len, parts)) > 15  # says something
    pattern = re.compile(r"[\s\S]*".join(parts))
    assert any(pattern.search(each) for each in strings()), message


def test_the_page_explains_the_most_common_messages():
    assert len(set(first_cells("troubleshooting.md"))) >= 30


def variables():
    """Names in the modules that ask the environment, and those of keys."""
    found = {each for each in strings() if re.fullmatch(r"[A-Z]+_API_KEY", each)}
    for tree in trees().values():
        nodes = list(ast.walk(tree))
        if any(isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") for node in nodes):
            texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            found |= {text for text in texts if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", text)}
            for node in nodes:  # any other name that is asked for at once
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
                    found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    return found


def test_every_variable_of_the_environment_is_on_its_page():
    listed = set(first_cells("environment.md"))
    asked = variables()
    text = (DOCS / "environment.md").read_text("utf-8")
    assert {"ISOSENT_CACHE", "OMP_NUM_THREADS", "RANK", "VOYAGE_API_KEY"} <= asked
    assert sorted(each for each in asked if f"`{each}`" not in text) == []
    assert sorted(listed - asked) == []


def test_the_list_for_language_models_has_every_page_of_the_navigation():
    pages = re.findall(r"^ +- (?:[^:\n]+: )?([\w/]+)\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    wanted = {page for page in pages if not page.startswith("research/")} - {"architecture", "reliability", "index"}
    text = (DOCS / "llms.txt").read_text("utf-8")
    linked = set(re.findall(r"\(https://isosent\.github\.io/isosent/([\w/]+)/\)", text))
    assert linked == wanted
    assert all((DOCS / f"{page}.md").is_file() for page in linked)
