"""Each question has one owner: a rule says what asks it in code, and which modules may.

What asks it elsewhere today is an exception with a number, which only goes down.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from isosent.io.formats import FORMATS
from isosent.storage import Storage

SOURCE = Path(__file__).parents[2] / "src" / "isosent"
MOST_IMPORTS = 20
ENDINGS = {each.ending for each in FORMATS} | {
    *(".ndjson", ".yaml", ".arrow", ".feather", ".gz", ".zip", ".h5", ".bin", ".vec", ".pt", ".pkl")
}


class Rule(NamedTuple):
    name: str
    pattern: str  # in code as `ast.unparse` writes it: strings in single quotes; docstrings and comments are gone
    owners: str  # modules, or packages
    exceptions: str = ""  # modules, each with a number
    apart: str = ""  # code that asks nothing


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
    Rule(
        "a map of queries is known",
        r"\bquery_map\b",
        "transforms/maps transforms/pairs postprocessing model evaluation/migration",
    ),
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
    # a command says what it writes: its `outputs_option`, and the `files` of its report; asked is what an input holds.
    # A pattern such as *.tsv is the layout of a folder of another library, as is what networks/load finds in that of a
    # model; exports/numpy writes one format, and refuses the names of others
    Rule(
        "endings of files are named",
        rf"'({'|'.join(map(re.escape, ENDINGS))})'",
        "io words encoders networks/load exports/numpy",
        "cli/compare 2, cli/report 1",
        apart=r"outputs_option\(.*\)|\bfiles(: .*)? = \{.*\}",
    ),
    # the demo prints commands; the others are sentences for people, or speak to whoever runs a server
    Rule(
        "flags are named",
        r"(?<![\w-])(?<!var\()--[a-z]",
        "cli research demo",
        "api/client 1, jobs/inspect 2, server/dialects 1, server/maps 1, server/proxy 2",
    ),
]
# options whose name means something else on another command, each with the number of its definitions
MEANINGS = (
    "--against 2, --column 5, --columns 3, --data 3, --dims 2, --dtype 2, --false-positives 2, --fit-on 3, --model 7, "
    "--output 2, --queries 4, --seed 2, --sickr 2, --texts 3, --to 2, --transform 5, --vectors 2, --workers 2"
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


@cache
def counted(rule):
    """How often each module asks."""
    texts = {module: re.sub(rule.apart, "", text) if rule.apart else text for module, text in code().items()}
    counts = {module: len(re.findall(rule.pattern, text)) for module, text in texts.items()}
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


def options():
    """How often each option of a command is defined; those that several commands share are in `cli/options.py`."""
    return Counter(
        name.value
        for module, tree in trees().items()
        if module.startswith(("cli/", "research/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.option"
        for name in node.args
        if isinstance(name, ast.Constant) and name.value.startswith("--")
    )


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
    assert wide_modules() == {}, f"These modules import more than {MOST_IMPORTS} others of isosent. Split them."


def test_an_option_is_defined_once():
    counts = options()
    more = above({name: n for name, n in counts.items() if n > 1}, read(MEANINGS))
    assert not more, f"{more}. An option that several commands share belongs in cli/options.py."
    assert counts["--model"] == read(MEANINGS)["--model"]
