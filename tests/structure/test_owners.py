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
    # model: the public property; base: names of transforms; main: names of classes in messages; flow, study: a paper
    Rule(
        "a flow is known",
        r"(?<!research)\.flow\b|\bFlowStep\b|\bGlow\b|\bGlowFlow\b",
        "transforms/flow_step transforms/flow numeric/glow postprocessing model transforms/base __init__ cli/main "
        "research/flow",
    ),
    # migration fits two maps between models, and reports both
    Rule("a map of queries is known", r"\bquery_map\b", "transforms/maps transforms/pairs model evaluation/migration"),
    # the others read the column of a table that names the group of each row
    Rule(
        "maps of groups are known",
        r"\b(GroupMaps|group_maps)\b",
        "transforms/maps transforms/pairs postprocessing model jobs/vectors search/index cli/encode",
    ),
    Rule("a transform is asked what it is", r"hasattr\((type\()?transform\b", "transforms/base"),
    Rule("whether anything can follow a step is asked", r"\.streams\b", "postprocessing transforms"),
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
        modules[path.relative_to(SOURCE).with_suffix("").as_posix()] = ast.unparse(tree)
    return modules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_question_is_asked_by_its_owners_only(rule):
    asking = {module for module, text in code().items() if re.search(rule.pattern, text)}
    allowed = {module for module in code() if any(f"{module}/".startswith(f"{each}/") for each in rule.owners.split())}
    assert asking - allowed == set()
    assert asking & allowed != set()  # the pattern finds something
