"""Each question has one owner: a rule says what asks it in code, and which modules may.

What asks it elsewhere today is an exception with a number, which only goes down.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from isosent.storage import Storage

SOURCE = Path(__file__).parents[2] / "src" / "isosent"
MOST_IMPORTS = 20


class Rule(NamedTuple):
    name: str
    pattern: str  # in code as `ast.unparse` writes it: strings in single quotes; docstrings and comments are gone
    owners: str  # modules, or packages
    exceptions: str = ""  # modules, each with a number


RULES = [
    # a gain of nDCG is called binary, too
    Rule(
        "number types are named",
        rf"'({'|'.join(Storage)})'",
        "storage evaluation/retrieval",
    ),
    # of what has a fingerprint: an encoder, a model's record, the comment of a table
    Rule(
        "spaces are made",
        r"(?<!class )\bSpace\(",
        "space encoders/base encoders/precomputed persistence search/stores/postgres",
    ),
    Rule("what an input holds is asked", r"\b(holds_vectors|contents_of|is_list_file|_?holds_moments)\(", "io"),
    Rule("whether a file is a table is asked", r"(?<!\.)\bis_table\(", "io"),
    Rule("moments are recognized", r"'isosent-moments'", "io"),
    # encode says so of paths that workers open, maybe on other machines
    Rule("vectors next to texts are looked for", r"\bunused_vectors\b", "io cli/printing jobs/fit_texts"),
    # a caller of Python passed an array, or a file that is open: arrays of every number type are vectors
    Rule(
        "vectors in a file are told from an array",
        r"isinstance\(\w+, (\(.*)?VectorSource\b",
        "io",
        "evaluation/migration 2, jobs/inspect 1, search/build 1, search/index 1, search/stores 1, "
        "search/stores/database 1, search/units 4",
    ),
    Rule("an index or a database is told apart", r"\bis_(index|database)\b", "search"),
    Rule(
        "the nearest are selected",
        r"argpartition|np\.partition|\.knn\(|\.topk\(|fill_diagonal\(\w+, -np\.inf\)",
        "numeric/neighbors",
    ),
    # model: the public property; base: names of transforms; flow, study: a paper
    Rule(
        "a flow is known",
        r"(?<!research)\.flow\b|\bFlowStep\b|\bGlow\b|\bGlowFlow\b",
        "transforms/flow_step transforms/flow numeric/glow postprocessing model transforms/base __init__ research/flow",
    ),
    # migration fits two maps between models, and reports both
    Rule("a map of queries is known", r"\bquery_map\b", "transforms/maps transforms/pairs model evaluation/migration"),
    # the others read the column of a table that names the group of each row
    Rule(
        "maps of groups are known",
        r"\b(GroupMaps|group_maps)\b",
        "transforms/maps transforms/pairs postprocessing model jobs/vectors search/index search/stores cli/encode",
    ),
    Rule("a transform is asked what it is", r"hasattr\((type\()?transform\b", "transforms/base"),
    Rule("whether anything can follow a step is asked", r"\.streams\b", "postprocessing transforms"),
    Rule("JSON or text is decided", r"\b(if|not|and|or) as_json\b", "cli/printing"),
    Rule("a table is laid out on a terminal", r"\brich\.table\b", "cli/printing"),
    Rule("the edge is found by its name", r"isosent\.research", "research cli/main report/leaderboard"),
    Rule(
        "endings of files are named",
        r"'\*?\.(npy|npz|parquet|safetensors|jsonl|ndjson|csv|tsv|txt|json|yaml|arrow|feather|gz|zip|h5|bin|vec|pt|pkl)'",
        "io words encoders",
        "cli/describe 5, cli/evaluate 11, cli/groups 6, cli/inspect 1, cli/printing 1, cli/search 4, "
        "evaluation/labeled 8, evaluation/retrieval 1, exports/faiss 1, exports/numpy 2, "
        "exports/sentence_transformers 1, jobs/encode 1, jobs/shards 1, jobs/vectors 1, networks/load 5, "
        "research/commands 6, search/rows 4, server/page 2, training/data 1",
    ),
    Rule(
        "flags are named",
        r"(?<![\w-])--[a-z]",
        "cli research",
        "api/client 1, demo 5, evaluation/compare 1, exports/check 1, exports/sentence_transformers 1, "
        "io/number_lists 2, jobs/inspect 2, report/groups_page 2, search/build 1, search/stores/lance 1, "
        "server/dialects 1, server/http 2, server/isosent_api 1, server/maps 2, server/page 1, server/proxy 2, "
        "server/run 5, server/service 9, server/workers 1, training/run 1, transforms/auto 1",
    ),
]
# how many modules of isosent a module imports, where it is more than the most
WIDE = (
    "cli/describe 24, cli/evaluate 39, cli/inspect 24, cli/search 32, encoders/static 28, evaluation/run 24, "
    "jobs/shards 21, jobs/vectors 27, model 27, search/build 23, search/index 25, training/distill 33, "
    "training/run 24"
)


@cache
def trees():
    """Syntax of each module by its path without ending; docstrings are empty."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    modules = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, documented) and ast.get_docstring(node) is not None:
                node.body[0].value.value = ""
        modules[path.relative_to(SOURCE).with_suffix("").as_posix().removesuffix("/__init__")] = tree
    return modules


@cache
def code():
    return {module: ast.unparse(tree) for module, tree in trees().items()}


def counted(rule):
    """How often each module asks."""
    counts = {module: len(re.findall(rule.pattern, text)) for module, text in code().items()}
    return {module: n for module, n in counts.items() if n}


def others(rule):
    """Those that are no owners."""
    owners = rule.owners.split()
    return {
        module: n
        for module, n in counted(rule).items()
        if not any(f"{module}/".startswith(f"{each}/") for each in owners)
    }


def wide_modules():
    by_module = {}
    for module, tree in trees().items():
        names = {
            f"{node.module}.{alias.name}".removeprefix("isosent.").replace(".", "/")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module.startswith("isosent")
            for alias in node.names
        }
        by_module[module] = {name if name in trees() else name.rpartition("/")[0] for name in names}
    # that of the package lists the public names, and imports them when they are used
    return {name: len(own) for name, own in by_module.items() if len(own) > MOST_IMPORTS and name != "__init__"}


def read(exceptions):
    return {module: int(n) for module, n in (each.split() for each in exceptions.split(",") if each.strip())}


def above(numbers, allowed):
    """What is more than allowed, in words."""
    more = {module: n for module, n in numbers.items() if n > allowed.get(module, 0)}
    return ", ".join(f"{module} {n} times, {allowed.get(module, 0)} are allowed" for module, n in more.items())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_question_is_asked_by_its_owners_only(rule):
    more = above(others(rule), read(rule.exceptions))
    assert not more, f"{rule.name} here: {more}. Ask {rule.owners.replace(' ', ' or ')} instead."
    assert counted(rule) != others(rule)  # the pattern finds something


def test_a_module_imports_few_others():
    more = above(wide_modules(), read(WIDE))
    assert not more, f"these modules import more than {MOST_IMPORTS} others of isosent: {more}. Split them."
