"""Skip the tests of real models unless they were selected: they download hundreds of megabytes."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests in this folder unless pytest was started with ``-m real``."""
    if "real" in str(config.getoption("markexpr")).split():
        return
    skip = pytest.mark.skip(reason="downloads models; to run it: make test-real")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(skip)
