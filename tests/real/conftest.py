"""Skip the tests of real models unless they were selected: they download hundreds of megabytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fetch_real_models import FetchError, fetch
from sentence_encoder import SentenceEncoder

from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests in this folder unless pytest was started with ``-m real``."""
    if "real" in str(config.getoption("markexpr")).split():
        return
    skip = pytest.mark.skip(reason="downloads models; to run it: make test-real")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(skip)


def opened(name: str, library: Library) -> Iterator[Model]:
    try:
        path = fetch(name)
    except FetchError as error:
        pytest.skip(str(error))
    with Model(path, library=library, n_threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def smollm2(library: Library) -> Iterator[Model]:
    yield from opened("smollm2", library)


@pytest.fixture(scope="session")
def minilm(library: Library) -> Iterator[Model]:
    yield from opened("minilm", library)


@pytest.fixture(scope="session")
def reference(minilm: Model) -> SentenceEncoder:
    return SentenceEncoder(fetch("minilm"))
