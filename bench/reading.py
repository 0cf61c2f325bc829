"""Numbers in 100 words of each page of the documentation; exits with 1 if a page has more than 5.

Left out: code (blocks and inline), tables, formulas, targets of links, and comments. A word is what stands between
whitespace and holds a letter or a digit. A number is a word that begins with a digit, after signs and brackets:
``0.5``, ``(95%``, ``-3`` and ``2021`` count; ``float32``, ``STS12`` and ``all-MiniLM-L6-v2`` are names.
Pages in ``research/`` and ``api/`` are shown and not judged: there the numbers are the content.
"""

import argparse
import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LIMIT = 5.0
EXEMPT = ("research", "api")
LEFT_OUT = (
    r"^ *(```|~~~).*?^ *\1 *$",  # fenced code, also inside a list
    r"<!--.*?-->",
    r"\$\$.*?\$\$",
    r"^ *\|.*?$",  # rows of tables
    r"`[^`\n]+`",
    r"\$[^$\n]+\$",
    r"(?<=\])\([^)]*\)",
)


def prose(page: str) -> str:
    for pattern in LEFT_OUT:
        page = re.sub(pattern, " ", page, flags=re.MULTILINE | re.DOTALL if ".*?" in pattern else 0)
    return page


def reading(page: str) -> dict[str, float | int]:
    words = [word for word in prose(page).split() if re.search(r"\w", word)]
    numbers = sum(re.match(r"[^\w\s]*\d", word) is not None for word in words)
    return {"words": len(words), "numbers": numbers, "per_100": round(100 * numbers / max(len(words), 1), 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="default: all pages of docs")
    pages = parser.parse_args().pages or sorted(DOCS.rglob("*.md"))
    n_above = 0
    for path in pages:
        name = path.resolve().relative_to(DOCS)
        measured = reading(path.read_text("utf-8"))
        is_above = name.parts[0] not in EXEMPT and measured["per_100"] > LIMIT
        n_above += is_above
        print(json.dumps({"page": name.as_posix(), **measured, "above": is_above}))
    print(json.dumps({"limit": LIMIT, "pages": len(pages), "above": n_above}))
    return int(n_above > 0)


if __name__ == "__main__":
    raise SystemExit(main())
