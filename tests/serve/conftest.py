"""The server that most tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from served import Served, served

from eliza_ffi.library.loading import Library


@pytest.fixture(scope="session")
def server(library: Library) -> Iterator[Served]:
    """Return a server with the default settings."""
    with served() as running:
        yield running
