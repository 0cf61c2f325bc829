"""The size and shape of the code: lines, modules, docstrings, comments, dataclasses, command-line options."""

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "isosent"


def measure(path: Path) -> Counter[str]:
    text = path.read_text()
    tree = ast.parse(text)
    counts = Counter(modules=1, lines=len(text.splitlines()))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            counts["docstring_lines"] += node.body[0].end_lineno - node.body[0].lineno + 1
        if isinstance(node, ast.ClassDef):
            counts["dataclasses"] += any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        counts["functions"] += isinstance(node, ast.FunctionDef)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    counts["comment_lines"] += sum(
        token.type == tokenize.COMMENT and "noqa" not in token.string and "type: ignore" not in token.string
        for token in tokens
    )
    return counts


def options() -> dict[str, int]:
    """Options of every command, ``--help`` left out."""
    import click

    from isosent.cli.main import app

    def count(command: Any, name: str) -> dict[str, int]:
        if hasattr(command, "list_commands"):
            context = click.Context(command)
            commands = {sub: command.get_command(context, sub) for sub in command.list_commands(context)}
            return {key: n for sub, found in commands.items() for key, n in count(found, f"{name} {sub}").items()}
        return {name.strip(): sum(parameter.param_type_name == "option" for parameter in command.params)}

    return count(app, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", action="store_true", help="a line for each package")
    by_package: dict[str, Counter[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0] if path.parent != SOURCE else "."
        by_package.setdefault(package, Counter()).update(measure(path))
    if parser.parse_args().packages:
        for package, counts in by_package.items():
            print(json.dumps({"package": package, **counts}))
    print(json.dumps({"package": "all", **sum(by_package.values(), Counter())}))
    by_command = options()
    print(
        json.dumps({"options": sum(by_command.values()), "largest": max(by_command.items(), key=lambda item: item[1])})
    )


if __name__ == "__main__":
    main()
