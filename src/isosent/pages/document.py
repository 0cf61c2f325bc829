"""A page as one HTML document that needs nothing else, and may fetch nothing."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files


def html_document(title: str, body: str, *, css: str, script: str | None = None) -> str:
    """Put a page together.

    Parameters
    ----------
    title : str
        What the browser calls it; it is escaped.
    body : str
        What stands in ``main``, as HTML. It has no style or script of its own: the browser would not follow them.
    css : str
        Rules beyond those that all pages share.
    script : str, optional
        JavaScript, run behind the body.

    Returns
    -------
    str
        The document. It follows the reader's light or dark scheme and prints. Its content security policy lets these
        styles and this script in, by their hash, and nothing else: no request leaves the page.
    """
    style = (files("isosent.pages") / "base.css").read_text("utf-8") + css
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    policy += [] if script is None else [f"script-src {_hash(script)}"]
    ending = "" if script is None else f"<script>{script}</script>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main>{ending}</body></html>\n"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
