"""Formulas of the site as MathML, which browsers draw without a script and without a network."""

import html
import re
from functools import partial
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# what pymdownx.arithmatex makes of $...$ and $$...$$, and what Markdown makes of the role :math: in a docstring
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)
_ROLE = re.compile(r":math:<code>(.*?)</code>", re.S)


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """Replace the formulas of a page; one that is left would show as LaTeX, so the build ends."""
    for pattern, display in ((_BLOCK, "block"), (_INLINE, "inline"), (_ROLE, "inline")):
        content = pattern.sub(partial(_mathml, display), content)
    if left := re.search(r'class="arithmatex"|:math:|[.]{2} math', content):
        raise PluginError(f"{page.file.src_path}: a formula is left: {content[left.start() : left.start() + 80]}")
    return content


def _mathml(display: str, match: re.Match[str]) -> str:
    return str(convert(html.unescape(match[1]).strip(), display=display))
