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
    Rule("an index or a database is told apart", r"\bis_(index|database)\b", "search"),
    Rule(
        "the nearest are selected",
        r"argpartition|np\.partition|\.knn\(|\.topk\(|fill_diagonal\(\w+, -np\.inf\)",
        "numeric/neighbors",
    ),
]


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
        modules[path.relative_to(SOURCE).with_suffix("").as_posix().removesuffix("/__init__")] = ast.unparse(tree)
    return modules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_question_is_asked_by_its_owners_only(rule):
    asking = {module for module, text in code().items() if re.search(rule.pattern, text)}
    owned = {module for module in asking if any(f"{module}/".startswith(f"{each}/") for each in rule.owners.split())}
    assert asking - owned == set()
    assert owned  # the pattern finds something
