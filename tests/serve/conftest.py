"""The server that most tests of this folder share, and OpenAI's client for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from served import Served, served

from eliza_ffi.library.loading import Library


@pytest.fixture(scope="session")
def server(library: Library) -> Iterator[Served]:
    """Return a server with the default settings."""
    with served() as running:
        yield running


@pytest.fixture
def client(server: Served) -> Any:
    """Return OpenAI's client for the server."""
    openai = pytest.importorskip("openai", "3.54", "the package openai is not installed")
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
