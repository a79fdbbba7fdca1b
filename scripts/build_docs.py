"""Hooks for `mkdocs build`, which mkdocs.yml registers.

- Pages link to files of the checkout outside of docs/. The hooks copy these files into the site, as
  text files, and rewrite the links.
- Docstrings use roles of reStructuredText (``:class:`~eliza_ffi.Model` ``). They become links.
- The build fails if a page would load anything from another server, or if a public name is missing.
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
LOADS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc(?:set)?=["']?(?:https?:)?//
    |<link\b[^>]*?\bhref=["']?(?:https?:)?//(?![^>]*\brel=["']?canonical)
    |@import\s+(?:url\()?["']?(?:https?:)?//
    |url\(["']?(?:https?:)?//""",
    re.VERBOSE,
)

_copied: set[Path] = set()


def on_pre_build(config: Any) -> None:
    """Forget the files that an earlier build copied."""
    _copied.clear()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links to files of the checkout into links to their copies in the site."""
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
    """Turn reStructuredText roles into links, if a page describes the name."""

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
    """Copy the linked files into the site, then check the site."""
    site = Path(config["site_dir"])
    for path in sorted(_copied):
        copy = site / _address(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    faults = [*external_loads(site), *missing_names(site)]
    if faults:
        raise SystemExit("the site has errors:\n" + "\n".join(faults))


def external_loads(site: Path) -> list[str]:
    """Return the first place in each file where a browser would contact another server."""
    pages = [page for page in sorted(site.rglob("*")) if page.suffix in (".html", ".css")]
    found = [(page, LOADS.search(page.read_text(encoding="utf-8"))) for page in pages]
    return [f"{page.relative_to(site)}: {load[0]}" for page, load in found if load is not None]


def missing_names(site: Path) -> list[str]:
    """Return the public names that are missing on the page of their module."""
    missing = []
    for source in sorted((ROOT / "docs" / "reference" / "python").glob("*.md")):
        room = source.read_text(encoding="utf-8").partition("::: ")[2].split()[0]
        page = site / source.relative_to(ROOT / "docs").with_suffix(".html")
        text = page.read_text(encoding="utf-8")
        for name in _public_names(room):
            if not re.search(rf'id="[\w.]+\.{name}"|<code>{name}</code>', text):
                missing.append(f"{room}.{name} is missing on {page.relative_to(site)}")
    return missing


def _public_names(room: str) -> list[str]:
    """Return the ``__all__`` of a module, without importing it."""
    path = ROOT.joinpath(*room.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    values = {ast.unparse(n.targets[0]): n.value for n in body if isinstance(n, ast.Assign)}
    return [*ast.literal_eval(values["__all__"])]


def _address(path: Path) -> str:
    """Return the path of a file's copy in the site. All but pictures get the suffix ``.txt``."""
    name = path.relative_to(ROOT).as_posix()
    return f"{COPIES}/{name}" if path.suffix in (".png", ".svg") else f"{COPIES}/{name}.txt"
