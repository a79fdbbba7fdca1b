"""Fake libraries, whose contexts are destroyed after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from elizaos_fake import OPEN, Fakes


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    return Fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture(autouse=True)
def destroy_contexts() -> Iterator[None]:
    """Destroy the contexts of the test, and check that no call would have crashed a library."""
    yield
    while OPEN:
        fake, binding, ctx = OPEN.pop()
        binding.destroy(ctx)
        assert fake.harm == ""
