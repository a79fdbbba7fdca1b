"""What the tests share: the library, and models for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from hypothesis import settings
from large_vocabularies import LARGE_VOCABULARIES
from make_test_models import cached_model
from native_chain import NativeChain

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import LibraryNotFoundError
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library, library_file_name
from eliza_ffi.model import Model

NATIVE_FIXTURES = frozenset(("library", "hooks_path", "older_engine"))

# Native calls take as long as the machine lets them.
settings.register_profile("eliza-ffi", deadline=None, max_examples=60)
settings.register_profile("few", deadline=None, max_examples=20)  # for `make test-fast`
settings.register_profile("many", deadline=None, max_examples=100)  # for `.ci/run`
settings.load_profile("eliza-ffi")

# A shell that runs the tests in the background ignores interrupts for them and all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-library",
        action="store_true",
        help="leave out the tests that need the native library",
    )


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files of slow tests come first: at the end they would keep one process of several busy.

    What is tested on many vocabularies is slow on a large one. Tests that need the library fail
    without it; only the option leaves them out.
    """
    for item in items:
        if LARGE_VOCABULARIES.intersection(_texts_among_parameters(item)):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if not config.getoption("--without-library"):
        return
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        needs = NATIVE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        (left_out if needs else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _texts_among_parameters(item: pytest.Item) -> Iterator[str]:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return (value for value in parameters.values() if isinstance(value, str))


@pytest.fixture(autouse=True)
def nobody_says_how_wide_a_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that pytest starts beside each other have 80 columns, whatever there is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)


@pytest.fixture(scope="session")
def library() -> Library:
    """Return the native library: the one named in the environment, the installed or built one."""
    try:
        return Library()
    except LibraryNotFoundError as error:
        pytest.fail(f"{error}; or run pytest with --without-library")


@pytest.fixture(scope="session")
def hooks_path(library: Library) -> Path:
    """Return the library of test hooks."""
    return _built(library_file_name().replace("libelizainference", "libeliza_test_hooks"))


@pytest.fixture(scope="session")
def older_engine(library: Library) -> Library:
    """Return the same engine linked again, without the functions that other libraries lack."""
    return Library(_built(Path("elder") / library_file_name()))


def _built(name: str | Path) -> Path:
    """Return a file that the build with tests leaves beside the library."""
    built = ROOT / "build" / "cpu"
    folder = Path(os.environ[LIBRARY_VARIABLE]).parent if LIBRARY_VARIABLE in os.environ else built
    if not (folder / name).is_file():
        pytest.fail(f"{folder / name} is missing: build it with 'make cpu'")
    return folder / name


@pytest.fixture(scope="session")
def random_model_path() -> Callable[..., Path]:
    """Return a function from a vocabulary's name to a model of random weights around it."""
    return cached_model


@pytest.fixture(scope="session")
def tiny_model(library: Library) -> Iterator[Model]:
    """Return the embedded model; where it samples, it draws the same in every run."""
    with Model(default_model_path(), library=library, n_threads=1, seed=1) as model:
        yield model


@pytest.fixture(scope="session")
def native(hooks_path: Path, random_model_path: Callable[..., Path]) -> NativeChain:
    """The chain of samplers in the native library, over a vocabulary of 32,000."""
    return NativeChain(hooks_path, random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1))
