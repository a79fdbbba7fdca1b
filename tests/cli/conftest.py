"""A fixture for tests of the commands."""

from __future__ import annotations

import pytest
from command import Run, runner


@pytest.fixture
def eliza(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)
