"""What an environment takes on disk: megabytes of each package, and of the bytecode that Python compiles of it.

ENVIRONMENT is the folder of a virtual environment, installed with or without --no-compile.
Usage: python bench/install.py ENVIRONMENT [--markdown]
"""

import argparse
import json
from collections import Counter
from importlib.metadata import distributions
from pathlib import Path

BLOCK = 512  # bytes, of st_blocks


def sizes(folder):
    """Bytes on disk of each package: its files, its tests among them, and its bytecode."""
    files, tests, bytecode, seen = Counter(), Counter(), Counter(), set()
    for package in distributions(path=[str(folder)]):
        name = package.metadata["Name"].lower()
        for entry in package.files or ():
            path = (folder / entry).resolve()
            compiled = list(path.parent.glob(f"__pycache__/{path.stem}.*.pyc")) if path.suffix == ".py" else []
            for each in {path, *compiled} - seen:
                if each.is_file() and folder in each.parents:
                    seen.add(each)
                    n_bytes = each.stat().st_blocks * BLOCK
                    (bytecode if each.suffix == ".pyc" else files)[name] += n_bytes
                    tests[name] += n_bytes * (each.suffix != ".pyc" and "tests" in each.parts)
    for name in sorted(files, key=lambda name: -files[name] - bytecode[name]):
        parts = {"files": files[name], "of_these_tests": tests[name], "bytecode": bytecode[name]}
        yield {"package": name} | {part: round(n_bytes / 2**20, 1) for part, n_bytes in parts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print a table in place of JSON lines")
    arguments = parser.parse_args()
    (folder,) = arguments.environment.resolve().glob("lib/python*/site-packages")
    lines = list(sizes(folder))
    total = {"package": "all"}
    total |= {name: round(sum(line[name] for line in lines), 1) for name in list(lines[0])[1:]}
    if arguments.markdown:
        print("| package | MB | tests among them | bytecode |\n|---|---|---|---|")
    for line in [total, *lines]:
        print("| " + " | ".join(map(str, line.values())) + " |" if arguments.markdown else json.dumps(line))


if __name__ == "__main__":
    main()
