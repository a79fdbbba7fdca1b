"""What `mkdocs build` does besides: hooks that mkdocs.yml names.

- Pages link to files of the checkout outside of docs/. The site has a copy of each, as a text.
- Docstrings have the roles of reStructuredText (``:class:`~eliza_ffi.Model` ``). They become links.
- A site that asks anyone for anything when it is read is refused, and so is one that lacks a public
  name.
"""

from __future__ import annotations

import ast
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
    """Copy what pages link to, and look for what should not be there and for what should."""
    site = Path(config["site_dir"])
    for path in sorted(_copied):
        copy = site / _address(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    faults = [*asking(site), *missing_names(site)]
    if faults:
        raise SystemExit("the site is not as it should be:\n" + "\n".join(faults))


def asking(site: Path) -> list[str]:
    """Return what a reader's browser would ask others for."""
    pages = [page for page in sorted(site.rglob("*")) if page.suffix in (".html", ".css")]
    found = [(page, ASKS.search(page.read_text(encoding="utf-8"))) for page in pages]
    return [f"{page.relative_to(site)}: {asks[0]}" for page, asks in found if asks is not None]


def missing_names(site: Path) -> list[str]:
    """Return the public names that the page of their room does not have."""
    missing = []
    for source in sorted((ROOT / "docs" / "reference" / "python").glob("*.md")):
        room = source.read_text(encoding="utf-8").partition("::: ")[2].split()[0]
        page = site / source.relative_to(ROOT / "docs").with_suffix(".html")
        text = page.read_text(encoding="utf-8")
        for name in _public_names(room):
            if not re.search(rf'id="[\w.]+\.{name}"|<code>{name}</code>', text):
                missing.append(f"{room}.{name} is not on {page.relative_to(site)}")
    return missing


def _public_names(room: str) -> list[str]:
    """Return the ``__all__`` of a room, without importing it."""
    path = ROOT.joinpath(*room.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError(f"{file} has no __all__")


def _address(path: Path) -> str:
    """Return where the copy of a file is: a picture as it is, all else as a text."""
    name = path.relative_to(ROOT).as_posix()
    return f"{COPIES}/{name}" if path.suffix in (".png", ".svg") else f"{COPIES}/{name}.txt"
