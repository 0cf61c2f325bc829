"""Each question has one owner: a rule says what asks it in code, and which modules may."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "isosent"


class Rule(NamedTuple):
    name: str
    pattern: str  # in code as `ast.unparse` writes it: strings in single quotes; docstrings and comments are gone
    owners: str  # modules, or packages


RULES = [
    Rule("what an input holds is asked", r"\b(holds_vectors|contents_of|is_list_file|_?holds_moments)\(", "io"),
    Rule("whether a file is a table is asked", r"(?<!\.)\bis_table\(", "io"),
    Rule("moments are recognized", r"'isosent-moments'", "io"),
    # encode says so of paths that workers open, maybe on other machines
    Rule("vectors next to texts are looked for", r"\bunused_vectors\b", "io cli/printing jobs/fit"),
]

# Questions with several askers that cannot be fewer yet; these numbers only go down.
MOST = {
    # whether a caller of Python passed an array, or a file that is open: arrays of every number type are vectors
    r"isinstance\(\w+, (\(.*)?VectorSource\b": 9,
}


@cache
def code():
    """Code of each module by its path without ending."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    modules = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, documented) and ast.get_docstring(node) is not None:
                node.body[0].value.value = ""
        modules[path.relative_to(SOURCE).with_suffix("").as_posix()] = ast.unparse(tree)
    return modules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_question_is_asked_by_its_owners_only(rule):
    asking = {module for module, text in code().items() if re.search(rule.pattern, text)}
    allowed = {module for module in code() if any(f"{module}/".startswith(f"{each}/") for each in rule.owners.split())}
    assert asking - allowed == set()
    assert asking & allowed != set()  # the pattern finds something


@pytest.mark.parametrize("pattern", MOST)
def test_a_question_is_asked_no_more_often(pattern):
    n_asked = sum(len(re.findall(pattern, text)) for module, text in code().items() if not module.startswith("io/"))
    assert n_asked == MOST[pattern]  # fewer is good: then lower the number
