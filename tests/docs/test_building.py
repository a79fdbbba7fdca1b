"""The site is built without a warning."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

pytestmark = pytest.mark.slow

HAS_MKDOCS = all(
    importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings_handlers")
)


@pytest.mark.skipif(not HAS_MKDOCS, reason="MkDocs is not installed: it is in the extra docs")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "start" / "tutorial.html").is_file()
    names = (tmp_path / "reference" / "python" / "eliza_ffi.html").read_text(encoding="utf-8")
    choose = names.partition('id="eliza_ffi.AsyncModel.choose"')[2].partition("doc-contents")[0]
    assert "labels" in choose  # its signature is that of Model.choose,
    assert "temperature" in choose  # with the keyword arguments that a typed dictionary lists
    header = (tmp_path / "reference" / "c-header.html").read_text(encoding="utf-8")
    assert "eliza_inference_create" in header
