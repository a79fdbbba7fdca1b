"""What `mkdocs build` does besides: hooks that mkdocs.yml names.

- Pages link to files of the checkout outside of docs/. The site has a copy of each, as a text.
- Docstrings have the roles of reStructuredText (``:class:`~eliza_ffi.Model` ``). They become links.
- A site that asks anyone for anything when it is read is refused.
"""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COPIES = "checkout"

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((\.\.?/[^)\s#]+)\)")
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|math):<code>(~?)([^<]+)</code>")
ASKS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc(?:set)?=["']?(?:https?:)?//
    |<link\b[^>]*?\bhref=["']?(?:https?:)?//(?![^>]*\brel=["']?canonical)
    |@import\s+(?:url\()?["']?(?:https?:)?//
    |url\(["']?(?:https?:)?//""",
    re.VERBOSE,
)

_copied: set[Path] = set()


def on_pre_build(config: Any) -> None:
    """Forget what an earlier build linked to."""
    _copied.clear()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links to files of the checkout into links to copies of them."""
    folder = Path(page.file.abs_src_path).parent
    up = "../" * page.file.src_uri.count("/")
    docs = Path(config["docs_dir"])

    def copied(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path = (folder / target).resolve()
        if path.is_relative_to(docs) or not path.is_relative_to(ROOT) or not path.exists():
            return found[0]
        if path.is_dir():
            return words
        _copied.add(path)
        url = html.escape(up + _address(path))
        if mark:
            return f'<img alt="{html.escape(words)}" src="{url}">'
        return f'<a href="{url}">{words}</a>'

    return LINK.sub(copied, markdown)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Turn the roles of docstrings into links, where what they name is on a page."""

    def linked(found: re.Match[str]) -> str:
        tilde, name = found.groups()
        words, _, target = name.rstrip(">").partition("&lt;")
        shown = words.strip() if target else name.rpartition(".")[2] if tilde else name
        target = (target or name).strip()
        if not target.startswith("eliza_ffi"):
            return f"<code>{shown}</code>"
        return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'

    return ROLE.sub(linked, content)


def on_post_build(config: Any) -> None:
    """Copy what pages link to, and look for what a reader's browser would ask others for."""
    site = Path(config["site_dir"])
    for path in sorted(_copied):
        copy = site / _address(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    asking = [
        f"{page.relative_to(site)}: {found[0]}"
        for page in sorted(site.rglob("*"))
        if page.suffix in (".html", ".css") and COPIES not in page.relative_to(site).parts
        for found in [ASKS.search(page.read_text(encoding="utf-8"))]
        if found is not None
    ]
    if asking:
        raise SystemExit("these pages ask others for something:\n" + "\n".join(asking))


def _address(path: Path) -> str:
    """Return where the copy of a file is: a picture as it is, all else as a text."""
    name = path.relative_to(ROOT).as_posix()
    return f"{COPIES}/{name}" if path.suffix in (".png", ".svg") else f"{COPIES}/{name}.txt"
