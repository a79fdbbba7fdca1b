"""Fixtures for tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Run, runner

from eliza_ffi.library.loading import Library


@pytest.fixture
def eliza(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command in a new folder, with the library of the tests, on one thread."""
    monkeypatch.chdir(tmp_path)
    return runner(capsys, "--library", str(library.path), "--threads", "1")
