"""Settings and fixtures for all tests: the library, and models."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from effort import FEWEST_EXAMPLES, MAX_EXAMPLES, USUAL_EXAMPLES
from full_precision import write_in_full_precision
from hypothesis import settings
from large_vocabularies import LARGE_VOCABULARIES
from make_test_models import cached_model
from native_chain import NativeChain
from tiny_files import write_bert

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import LibraryNotFoundError
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library, library_file_name
from eliza_ffi.model import Model

NATIVE_FIXTURES = frozenset(("library", "hooks_path", "elizaos_engine"))

# No deadline, because native calls may take long on a busy machine.
settings.register_profile("eliza-ffi", deadline=None, max_examples=USUAL_EXAMPLES)
settings.register_profile("few", deadline=None, max_examples=FEWEST_EXAMPLES)  # `make test-fast`
settings.register_profile("many", deadline=None, max_examples=MAX_EXAMPLES)  # `.ci/run`
settings.load_profile("eliza-ffi")

# Only the tests in tests/hub may download, and no test may depend on this machine's caches.
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(ROOT / "build" / "no-cache"))
os.environ["LLAMA_CACHE"] = os.environ["HF_HUB_CACHE"]
os.environ["ELIZA_FFI_MEASUREMENTS"] = "off"

# If a shell runs the tests in the background, they and all processes they start ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-library", action="store_true", help="skip the tests that need the native library"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests with a large vocabulary as slow, and run files with slow tests first.

    At the end, a slow file would keep a single worker process busy while the others are idle. If
    the library is missing, tests that need it fail; the option skips them.
    """
    for item in items:
        if LARGE_VOCABULARIES.intersection(_string_parameters(item)):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if not config.getoption("--without-library"):
        return
    kept: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        needs_library = NATIVE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        (deselected if needs_library else kept).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = kept


def _string_parameters(item: pytest.Item) -> Iterator[str]:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return (value for value in parameters.values() if isinstance(value, str))


@pytest.fixture(autouse=True)
def default_terminal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all tests, and the processes they start, the default terminal width of 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)


@pytest.fixture(scope="session")
def library() -> Library:
    try:
        return Library()
    except LibraryNotFoundError as error:
        pytest.fail(f"{error}; or run pytest with --without-library")


@pytest.fixture(scope="session")
def hooks_path(library: Library) -> Path:
    return _built(library_file_name().replace("libelizainference", "libeliza_test_hooks"))


@pytest.fixture(scope="session")
def elizaos_engine(library: Library) -> Library:
    """Return this engine linked without the functions that elizaOS's library lacks."""
    return Library(_built(Path("elder") / library_file_name()))


def _built(name: str | Path) -> Path:
    """Return a file that a build with tests creates next to the library."""
    built = ROOT / "build" / "cpu"
    folder = Path(os.environ[LIBRARY_VARIABLE]).parent if LIBRARY_VARIABLE in os.environ else built
    if not (folder / name).is_file():
        pytest.fail(f"{folder / name} is missing: build it with 'make cpu'")
    return folder / name


@pytest.fixture(scope="session")
def random_model_path() -> Callable[..., Path]:
    return cached_model


@pytest.fixture(scope="session")
def tiny_model(library: Library) -> Iterator[Model]:
    with Model(default_model_path(), library=library, n_threads=1, seed=1) as model:
        yield model


@pytest.fixture(scope="session")
def exact_model(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Return the embedded model in full precision: other rows of a pass hardly change rounding."""
    file = tmp_path_factory.mktemp("exact") / "model.gguf"
    path = write_in_full_precision(Path(default_model_path()), file)
    options = {"cache_type_k": "f32", "cache_type_v": "f32"}
    with Model(path, library=library, n_threads=1, options=options) as model:
        yield model


@pytest.fixture(scope="session")
def encoder_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of an embedding model: a BERT with random weights."""
    path = tmp_path_factory.mktemp("encoder") / "encoder.gguf"
    write_bert(path)
    return path


@pytest.fixture(scope="session")
def encoder(encoder_file: Path, library: Library) -> Iterator[Model]:
    with Model(encoder_file, library=library) as model:
        yield model


@pytest.fixture(scope="session")
def plain_path() -> Path:
    """Return the file of a model without a chat template: random weights in full precision."""
    return cached_model("llama-spm", n_embd=64, n_layers=2, seed=1, tensor_type="f32")


@pytest.fixture(scope="session")
def plain_model(library: Library, plain_path: Path) -> Iterator[Model]:
    with Model(plain_path, library=library, n_ctx=4096, n_threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def native(hooks_path: Path, random_model_path: Callable[..., Path]) -> NativeChain:
    """Return the native library's sampler chain, with a vocabulary of 32,000 tokens."""
    return NativeChain(hooks_path, random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1))
