"""The shape of the code: floors, face, imports, README."""

import ast
import subprocess
import sys
from pathlib import Path

import isosent

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "isosent"
FLOORS = [
    {"errors", "_check", "_extras"},
    {"numeric", "io", "pages"},
    {"words", "transforms", "datasets"},
    {"networks"},
    {"encoders"},
    {"postprocessing"},
    {"persistence"},
    {"model"},
    {"loading"},
    {"jobs", "demo"},
    {"evaluation"},
    {"exports", "compat"},
    {"training"},
    {"research"},
    {"report"},
    {"cli"},
]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, path.relative_to(SOURCE).parts[0].removesuffix(".py")


def own_imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isosent"):
            parts = node.module.split(".")
            names = parts[1:2] or [alias.name for alias in node.names]
            yield from ((node, name) for name in names)
        elif isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[1]) for alias in node.names if alias.name.startswith("isosent."))


def test_imports_point_to_lower_floors_or_within_the_room():
    wrong = []
    for path, room in modules():
        if room == "__init__":
            continue
        for _, imported in own_imports(ast.parse(path.read_text())):
            if imported != room and not FLOOR_OF[imported] < FLOOR_OF[room]:
                if FLOOR_OF[room] == 0 and FLOOR_OF[imported] == 0:
                    continue
                wrong.append(f"{path.relative_to(SOURCE)} imports {imported}")
    assert wrong == []


def test_own_modules_are_imported_at_the_top():
    wrong = []
    for path, room in modules():
        tree = ast.parse(path.read_text())
        top = set(
            map(id, ast.walk(ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef)], [])))
        )
        nested = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        wrong += [
            f"{path.relative_to(SOURCE)}:{node.lineno}"
            for node, _ in own_imports(tree)
            if id(node) in nested or id(node) not in top
            if room != "__init__"
        ]
    assert wrong == []


def test_modules_and_functions_stay_small():
    too_long = []
    for path, _ in modules():
        text = path.read_text()
        if len(text.splitlines()) > 600:
            too_long.append(f"{path.relative_to(SOURCE)}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and node.end_lineno - body[0].lineno > 60:
                    too_long.append(f"{path.relative_to(SOURCE)}: {node.name}")
    assert too_long == []


def test_the_face_names_what_it_has():
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


def test_the_command_line_starts_without_scikit_learn():
    assert run_python("import sys, isosent.cli.main; print('sklearn' in sys.modules, 'torch' in sys.modules)") == [
        "False",
        "False",
    ]


def test_a_few_texts_are_encoded_without_what_takes_long_to_import():
    heavy = "['numba', 'scipy', 'sklearn', 'torch', 'transformers', 'pyarrow']"
    code = (
        "import sys, isosent; isosent.load('wordllama').encode(['a text', 'another']); "
        f"print(*[name for name in {heavy} if name in sys.modules])"
    )
    assert run_python(code) == []


def test_import_sets_nothing():
    code = (
        "import os, warnings; before = dict(os.environ), list(warnings.filters); import isosent; "
        "print((dict(os.environ), list(warnings.filters)) == before)"
    )
    assert run_python(code) == ["True"]


HIDE_TORCH = """
import sys, importlib.abc
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("torch", "transformers"):
            raise ModuleNotFoundError("hidden", name=name)
sys.meta_path.insert(0, Hide())
import isosent
"""


def test_the_main_job_needs_no_torch():
    main_job = (
        "model = isosent.load().fitted(isosent.demo_texts(), transform=isosent.Whitening(8))\n"
        "print(model.encode(['a text']).shape)"
    )
    assert run_python(HIDE_TORCH + main_job) == ["(1,", "8)"]


def test_a_missing_extra_is_named():
    load = "try: isosent.load('hf:.')\nexcept isosent.IsosentError as error: print(error)"
    assert "pip install 'isosent[plm]'" in " ".join(run_python(HIDE_TORCH + load))


def test_the_readme_shows_its_two_commands_once_each():
    readme = (ROOT / "README.md").read_text()
    assert readme.count("isosent demo\n```") == 1
    assert readme.count("pytest\n```") == 1
