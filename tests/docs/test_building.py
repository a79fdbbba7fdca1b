"""The site's build rewrites links, finds errors, and succeeds without a warning."""

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

pytestmark = pytest.mark.slow

HAS_MKDOCS = all(
    importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings_handlers")
)


def test_a_link_outside_of_docs_leads_to_a_copy() -> None:
    file = SimpleNamespace(src_uri="how-to/a.md", abs_src_path=str(ROOT / "docs/how-to/a.md"))
    config = {"docs_dir": str(ROOT / "docs")}
    text = "see [`it`](../../LICENSE)."
    assert build_docs.on_page_markdown(text, SimpleNamespace(file=file), config, None) == (
        'see <a href="../checkout/LICENSE.txt">`it`</a>.'
    )


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
def test_a_page_that_loads_from_another_server_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    assert len(build_docs.external_loads(tmp_path)) == 1


def test_a_public_name_missing_on_its_page_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "reference" / "python"
    folder.mkdir(parents=True)
    for page in (ROOT / "docs" / "reference" / "python").glob("*.md"):
        module = page.read_text(encoding="utf-8").partition("::: ")[2].split()[0]
        names = [name for name in importlib.import_module(module).__all__ if name != "BusyError"]
        text = "".join(f'<h2 id="{module}.{name}">' for name in names)
        (folder / f"{page.stem}.html").write_text(text, encoding="utf-8")
    assert build_docs.missing_names(tmp_path) == [
        "eliza_ffi.BusyError is missing on reference/python/eliza_ffi.html",
        "eliza_ffi.errors.BusyError is missing on reference/python/errors.html",
    ]


@pytest.mark.skipif(not HAS_MKDOCS, reason="MkDocs is not installed: it is in the extra docs")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tutorial" / "route-messages.html").is_file()
    names = (tmp_path / "reference" / "python" / "eliza_ffi.html").read_text(encoding="utf-8")
    choose = names.partition('id="eliza_ffi.AsyncModel.choose"')[2].partition("doc-contents")[0]
    assert "labels" in choose  # its signature is that of Model.choose
    header = (tmp_path / "reference" / "c-header.html").read_text(encoding="utf-8")
    assert "eliza_inference_create" in header
