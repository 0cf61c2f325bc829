"""Numbers in 100 words of each page of the documentation; exits with 1 if a page has more than 5.

A word stands between whitespace and holds a letter or a digit; a number is a word that holds a digit, names such as
``float32`` and ``all-MiniLM-L6-v2`` included. Paragraphs and items of lists count, with their inline code and formulas.
Blocks of code, tables, headings, displayed formulas, comments, pictures and targets of links do not.

Pages in ``research/`` and ``api/``, ``formats.md``, which names dtypes, and ``results.md`` are shown and not judged:
there the numbers are the content.
"""

import argparse
import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LIMIT = 5.0
EXEMPT = ("research", "api")
REFERENCE = ("formats.md", "results.md")
LEFT_OUT = (
    r"^ *(```|~~~).*?^ *\1 *$",  # fenced code, also inside a list
    r"<!--.*?-->",
    r"\$\$.*?\$\$",
    r"^ *\|.*?$",  # rows of tables
    r"^#.*?$",
    r"!\[[^]]*\]",
    r"(?<=\])\([^)]*\)(\{[^}]*\})?",
)


def prose(page: str) -> str:
    for pattern in LEFT_OUT:
        page = re.sub(pattern, " ", page, flags=re.MULTILINE | re.DOTALL if ".*?" in pattern else 0)
    return page


def reading(page: str) -> dict[str, float | int]:
    words = [word for word in prose(page).split() if re.search(r"\w", word)]
    numbers = sum(re.search(r"\d", word) is not None for word in words)
    return {"words": len(words), "numbers": numbers, "per_100": round(100 * numbers / max(len(words), 1), 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="default: all pages of docs")
    pages = parser.parse_args().pages or sorted(DOCS.rglob("*.md"))
    n_above = 0
    for path in pages:
        path = path.resolve()
        name = path.relative_to(DOCS if path.is_relative_to(DOCS) else path.parent)
        measured = reading(path.read_text("utf-8"))
        is_judged = name.parts[0] not in EXEMPT and name.as_posix() not in REFERENCE
        is_above = is_judged and measured["per_100"] > LIMIT
        n_above += is_above
        print(json.dumps({"page": name.as_posix(), **measured, "above": is_above}))
    print(json.dumps({"limit": LIMIT, "pages": len(pages), "above": n_above}))
    return int(n_above > 0)


if __name__ == "__main__":
    raise SystemExit(main())
