"""What the site's build does besides: copies of files, links in docstrings, faults it finds."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import build_docs
import pytest
from checkout import ROOT
from write_reference import ROOMS

pytestmark = pytest.mark.slow

HAS_MKDOCS = all(
    importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings_handlers")
)


def markdown_of(text: str, page: str = "how-to/a.md") -> str:
    file = SimpleNamespace(src_uri=page, abs_src_path=str(ROOT / "docs" / page))
    config = {"docs_dir": str(ROOT / "docs")}
    return build_docs.on_page_markdown(text, SimpleNamespace(file=file), config, None)


def test_a_link_to_a_file_of_the_checkout_leads_to_a_copy() -> None:
    assert markdown_of("see [`abi`](../../native/include/eliza/eliza_voice.h).") == (
        'see <a href="../checkout/native/include/eliza/eliza_voice.h.txt">`abi`</a>.'
    )
    assert markdown_of("[it](../LICENSE)", "a.md") == '<a href="checkout/LICENSE.txt">it</a>'


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js">',
        '<link rel="stylesheet" href="//example.org/a.css">',
        "<img alt=x src=http://example.org/a.png>",
        "@import 'https://example.org/a.css'",
        "src: url(https://example.org/a.woff2)",
    ],
)
def test_what_would_be_asked_of_others_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    assert len(build_docs.asking(tmp_path)) == 1


def test_a_public_name_that_is_not_on_its_page_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "reference" / "python"
    folder.mkdir(parents=True)
    for room in ROOMS:
        names = [name for name in importlib.import_module(room).__all__ if name != "BusyError"]
        text = "".join(f'<h2 id="{room}.{name}">' for name in names)
        (folder / f"{room.removeprefix('eliza_ffi.')}.html").write_text(text, encoding="utf-8")
    assert build_docs.missing_names(tmp_path) == [
        "eliza_ffi.BusyError is not on reference/python/eliza_ffi.html",
        "eliza_ffi.errors.BusyError is not on reference/python/errors.html",
    ]


@pytest.mark.skipif(not HAS_MKDOCS, reason="MkDocs is not installed: it is in the extra docs")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tutorial" / "route-messages.html").is_file()
    assert (
        tmp_path / "checkout" / "native" / "include" / "eliza" / "eliza_inference.h.txt"
    ).is_file()
