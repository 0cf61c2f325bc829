"""The shape of the code: size, layers, imports, README."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import isosent
from isosent.cli.main import COMMANDS
from isosent.search import Index

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "isosent"
LAYERS = [
    {"errors", "storage", "space", "role", "_check", "_extras", "_locks"},
    {"numeric", "io", "pages"},
    {"words", "transforms", "datasets"},
    {"networks", "api"},
    {"encoders"},
    {"postprocessing"},
    {"persistence", "explanation"},
    {"fitting"},
    {"model"},
    {"loading"},
    {"search"},
    {"jobs", "demo"},
    {"evaluation", "distributed"},
    {"exports", "compat"},
    {"training"},
    {"report"},
    {"server"},
    {"cli"},
    {"research"},
    {"__main__"},
]
LAYER_OF = {package: number for number, packages in enumerate(LAYERS) for package in packages}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def nodes_of(path):
    return list(ast.walk(tree_of(path)))


def own_imports(path):
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isosent"):
            parts = node.module.split(".")
            names = parts[1:2] or [alias.name for alias in node.names]
            yield from ((node, name) for name in names)
        elif isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[1]) for alias in node.names if alias.name.startswith("isosent."))


def test_imports_point_to_lower_layers_or_stay_in_the_package():
    wrong = []
    for path, package in modules():
        if package == "__init__":
            continue
        for _, imported in own_imports(path):
            if imported != package and not LAYER_OF[imported] < LAYER_OF[package]:
                if LAYER_OF[package] == 0 and LAYER_OF[imported] == 0:
                    continue
                wrong.append(f"{path.relative_to(SOURCE)} imports {imported}")
    assert wrong == []


def test_own_modules_are_imported_at_the_top():
    wrong = []
    for path, package in modules():
        tree = tree_of(path)
        top = set(
            map(id, ast.walk(ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef)], [])))
        )
        nested = {
            id(node)
            for function in nodes_of(path)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        wrong += [
            f"{path.relative_to(SOURCE)}:{node.lineno}"
            for node, _ in own_imports(path)
            if id(node) in nested or id(node) not in top
            if package != "__init__"
        ]
    assert wrong == []


def own_modules():
    """Path of every module by its name."""
    names = ((path, path.relative_to(SOURCE.parent).with_suffix("").parts) for path, _ in modules())
    return {".".join(name).removesuffix(".__init__"): path for path, name in names}


LONGEST_MERGED = 600
OF_ITS_OWN = {"isosent.training.objectives"}  # where a new objective goes


def kinds_of_tables(tree):
    """Modules that a table of a module names: ``TARGETS = (faiss.TARGET, ...)``, where `faiss` is a module."""
    modules_by_name = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.Assign) and all(ast.unparse(name).isupper() for name in node.targets):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    yield modules_by_name.get(part.value.id)


def test_a_module_that_one_neighbor_imports_is_part_of_it():
    """Unless it is public, a kind in a table of the neighbour, or would make the neighbour too long."""
    by_name, importers = own_modules(), defaultdict(set)
    for name, path in by_name.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    importers[full if full in by_name else node.module].add(name)
    parts = set()
    for name, path in by_name.items():
        if path.name != "__init__.py" and len(importers[name]) == 1:
            [importer] = importers[name]
            n_lines = sum(len(by_name[each].read_text().splitlines()) for each in (name, importer))
            is_neighbor = name.count(".") > 1 and importer.split(".")[1:2] == name.split(".")[1:2]
            is_kind = name in kinds_of_tables(tree_of(by_name[importer]))
            is_neighbor &= by_name[importer].name != "__init__.py"  # the front of a package names what is in it
            if is_neighbor and not is_kind and name not in OF_ITS_OWN and n_lines <= LONGEST_MERGED:
                parts.add(f"{name} is part of {importer}")
    assert parts == set()


def load_bench(name):
    spec = spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_modules_import_each_other_in_a_circle():
    by_name = own_modules()
    imported = {name: set() for name in by_name}
    for name, path in by_name.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and name != "isosent":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    imported[name] |= {full if full in by_name else node.module} & set(by_name) - {"isosent", name}
    TopologicalSorter(imported).prepare()  # raises CycleError, which names the circle


def n_lines_without_docstrings(path):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [node.body[0] for node in nodes_of(path) if isinstance(node, documented) and ast.get_docstring(node)]
    n_documented = sum(docstring.end_lineno - docstring.lineno + 1 for docstring in docstrings)
    return len(path.read_text().splitlines()) - n_documented


def test_a_long_module_opens_with_its_story():
    """How its parts work together, in a few lines at the top."""
    long = [path for path, _ in modules() if len(path.read_text().splitlines()) > 300]
    stories = {path: (ast.get_docstring(tree_of(path)) or "").splitlines() for path in long}
    assert [str(path.relative_to(SOURCE)) for path, story in stories.items() if len(story) < 5] == []


def test_modules_and_functions_stay_small():
    too_long = []
    for path, _ in modules():
        if (n_lines := n_lines_without_docstrings(path)) > 600:
            too_long.append(f"{path.relative_to(SOURCE)}: {n_lines} lines without docstrings")
        for node in nodes_of(path):
            # a class whose base is imported on demand stands in a function; its methods are measured
            if isinstance(node, ast.FunctionDef) and not any(isinstance(part, ast.ClassDef) for part in node.body):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and node.end_lineno - body[0].lineno > 60:
                    too_long.append(f"{path.relative_to(SOURCE)}: {node.name}")
    assert too_long == []


def test_functions_take_few_arguments_by_position():
    """Except kernels, which numba compiles without keywords, and commands, which click calls by keywords."""
    too_many = []
    for path, _ in modules():
        for node in nodes_of(path):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            names = [argument.arg for argument in node.args.posonlyargs + node.args.args]
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if len(names) - (names[:1] in (["self"], ["cls"])) > 6 and not re.search(r"click\.|njit", decorators):
                too_many.append(f"{path.relative_to(SOURCE)}: {node.name}")
    assert too_many == []


def test_equal_scores_are_taken_in_their_order():
    """Else the processor decides. The k best of each row: `best_columns` in `numeric/neighbors.py`."""
    wrong = []
    for path, _ in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_stable = any(each.arg == "kind" and ast.unparse(each.value) == "'stable'" for each in node.keywords)
                if node.func.attr == "argpartition" or (node.func.attr == "argsort" and not is_stable):
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert wrong == []


def test_a_progress_has_one_type():
    arguments = (node for path, _ in modules() for node in nodes_of(path) if isinstance(node, ast.arg))
    types = {ast.unparse(each.annotation) for each in arguments if each.arg == "progress" and each.annotation}
    assert types == {"Progress", "Progress | None"}


def test_commands_and_options_stay_few():
    by_command = load_bench("shape").options()
    assert len(by_command) >= 20
    n_options, n_commands = sum(by_command.values()), sum(map(len, COMMANDS.values()))
    assert n_options <= 238, "can it be a setting after a question mark, or replace an option?"
    assert {name: n for name, n in by_command.items() if n > 22} == {}, "a command has 22 options at most"
    assert n_commands <= 30, "the first help fits on a screen: make it an option of a command, or say which one goes"


def test_an_install_stays_light():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 14
    assert len(project["optional-dependencies"]) <= 19


def test_the_public_names_are_few_and_all_there():
    assert len(isosent.__all__) <= 40
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    for_type_checkers = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(isosent.__all__) == sorted(isosent._MODULE_OF)
    assert for_type_checkers - {"import_module", "version", "TYPE_CHECKING", "Any"} == set(isosent.__all__)
    assert all(getattr(isosent, name).__name__ == name for name in isosent.__all__)


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_loads_numpy_at_most():
    heavy = "['scipy', 'sklearn', 'torch', 'transformers', 'tokenizers', 'pyarrow', 'rich', 'typer', 'wordllama']"
    loaded = run_python(f"import sys, isosent; print(*[name for name in {heavy} if name in sys.modules])")
    assert loaded == []


def test_the_help_of_the_command_line_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['isosent', '--help']; from isosent.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "print('--', *({'numpy', 'numba', 'torch', 'sklearn', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    assert run_python(code)[-1] == "--"


LIGHT_JOBS = """
import sys, isosent
from isosent.cli.main import main
from isosent.search import Index
from isosent.server import create_app

def run(*arguments):
    sys.argv = ["isosent", *arguments]
    try: main()
    except SystemExit as stop: assert not stop.code

heavy = {"sklearn", "scipy.stats", "scipy.optimize", "torch", "transformers"}
of_extras = {"numba", "pyarrow", "pandas", "faiss"}
model = isosent.load("model")
jobs = {
    "encode": lambda: model.encode(["a b", "c"]),
    "codes": lambda: model.encode(["a b"], precision="ubinary"),
    "transform": lambda: model.transform(model.encoder.encode(["a b"])),
    "save": lambda: model.save("copy"),
    "isosent encode": lambda: run("encode", "texts.txt", "-m", "model", "-o", "out.npy"),
    "isosent transform": lambda: run("transform", "raw.npy", "-m", "model", "-o", "out2.npy"),
    "isosent fit": lambda: run("fit", "texts.txt", "-o", "unchanged"),
    "isosent cluster": lambda: run("cluster", "texts.txt"),
    "isosent duplicates": lambda: run("duplicates", "texts.txt"),
}
for name, job in jobs.items():
    job()
    loaded = (heavy | of_extras) & set(sys.modules)
    assert not loaded, (name, loaded)
jobs = {
    "search": lambda: Index.open("index").search(["a horse"]),
    "serve": lambda: create_app({"m": model, "i": Index.open("index")}),
    "isosent search": lambda: run("search", "index", "a horse"),
}
for name, job in jobs.items():
    job()
    loaded = heavy & set(sys.modules)
    assert not loaded, (name, loaded)
"""


def test_only_what_needs_a_heavy_package_imports_it(tmp_path):
    texts = isosent.demo_texts()
    model = isosent.load("wordllama")
    fitted = model.fitted(texts, transform="whitening")
    fitted = fitted.with_quantization(isosent.Quantization.fit(fitted.encode(texts)))
    fitted.save(tmp_path / "model")
    np.save(tmp_path / "raw.npy", model.encode(texts))
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    Index.create(texts, fitted).save(tmp_path / "index")
    subprocess.run([sys.executable, "-c", LIGHT_JOBS], cwd=tmp_path, check=True)


def test_import_sets_nothing():
    code = (
        "import os, warnings; before = dict(os.environ), list(warnings.filters); import isosent; "
        "print((dict(os.environ), list(warnings.filters)) == before)"
    )
    assert run_python(code) == ["True"]


HIDE_EXTRAS = """
import sys
from importlib.machinery import PathFinder
from isosent._extras import _EXTRA_OF
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name in {*_EXTRA_OF, "llvmlite", "pandas"}
        return None if hidden else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
import pytest

import isosent
"""


@pytest.mark.slow
def test_the_main_job_needs_no_extra_and_gives_the_same_bits():
    main_job = (
        "model = isosent.load().fitted(isosent.demo_texts(), transform=isosent.Whitening(8))\n"
        "import hashlib; print(hashlib.sha256(model.encode(isosent.demo_texts()).tobytes()).hexdigest())"
    )
    [bits], [expected] = run_python(HIDE_EXTRAS + main_job), run_python("import isosent\n" + main_job)
    assert bits == expected


def test_missing_extras_are_named():
    code = (
        "from isosent.search import Index\nfrom isosent.io.vectors import check_vector_file\nmodel = isosent.load()\n"
        "for job in (lambda: isosent.load('hf:.'), lambda: isosent.load('words:' + isosent.__file__),\n"
        "            lambda: isosent.load(weighting='gem').fitted(isosent.demo_texts()),\n"
        "            lambda: check_vector_file('vectors.parquet'), lambda: Index.create(['a'], model)):\n"
        "    try: job()\n    except isosent.IsosentError as error: print(error)"
    )
    named = [word for word in run_python(HIDE_EXTRAS + code) if word.startswith("'isosent[")]
    assert named == [f"'isosent[{extra}]'" for extra in ("plm", "words", "words", "parquet", "search")]


def test_the_help_of_every_command_needs_no_extra():
    code = (
        "import click\nfrom isosent.cli.main import app\n"
        "def names(group, before):\n"
        "    for name in group.list_commands(None):\n"
        "        command = group.get_command(None, name)\n"
        "        app.main([*before, name, '--help'], standalone_mode=False)\n"
        "        if isinstance(command, click.Group): names(command, [*before, name])\n"
        "names(app, [])"
    )
    helps = run_python(HIDE_EXTRAS + code)
    assert helps.count("Usage:") > sum(map(len, COMMANDS.values()))
    refusals = run_python(
        HIDE_EXTRAS + "from isosent.cli.main import app\n"
        "for arguments in (['serve', 'wordllama'], ['proxy', '--upstream', 'http://127.0.0.1']):\n"
        "    try: app.main(arguments, standalone_mode=False)\n    except isosent.IsosentError as error: print(error)"
    )
    assert refusals.count("'isosent[serve]'") == 2


def test_the_readme_shows_its_two_commands_once_each():
    readme = (ROOT / "README.md").read_text()
    assert readme.count("isosent demo\n```") == 1
    assert readme.count("pytest\n```") == 1


def test_a_badge_shows_a_workflow_that_runs_on_the_main_branch():
    badges = re.findall(r"!\[[^]]*\]\((https://[^)]+)\)", (ROOT / "README.md").read_text())
    assert badges
    for badge in badges:
        [workflow] = re.findall(r"/actions/workflows/([\w.]+)/badge\.svg\?branch=main$", badge)
        assert "branches: [main]" in (ROOT / ".github" / "workflows" / workflow).read_text()


CRASHES = """
import ctypes
def test_passes(): pass
def test_accident(): ctypes.{accident}
"""


@pytest.mark.parametrize("accident", ["string_at(0)", "CDLL(None).sleep(60)"], ids=["crash", "hang"])
@pytest.mark.slow
def test_a_crash_or_a_hang_ends_the_run_and_is_named(tmp_path, accident):
    (tmp_path / "test_it.py").write_text(CRASHES.format(accident=accident))
    (tmp_path / "test_other.py").write_text("def test_other(): pass")
    settings = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-n2", "-o", "faulthandler_timeout=2"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", *settings, tmp_path],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "crashed while running 'test_it.py::test_accident'" in run.stdout
    assert "in test_accident" in run.stderr  # the stack that faulthandler prints
