"""Where the library is searched for, and what happens if it is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from eliza_ffi import _resources
from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import ElizaError, LibraryLoadError, LibraryNotFoundError
from eliza_ffi.library import loading
from eliza_ffi.library.loading import (
    LIBRARY_VARIABLE,
    TRUST_VARIABLE,
    Library,
    find_library,
    library_file_name,
)

NAME = library_file_name()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Return the path that is searched in each place. None of these files exists yet."""
    checkout = tmp_path / "checkout"
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(_resources, "package_folders", lambda: [tmp_path / "package"])
    monkeypatch.setattr(_resources, "checkout_root", lambda: checkout)
    monkeypatch.setattr(_resources, "import_folders", lambda: [checkout, tmp_path / "site"])
    return {
        "explicit": tmp_path / "explicit" / NAME,
        "variable": tmp_path / "variable" / NAME,
        "package": tmp_path / "package" / "lib" / NAME,
        "checkout": checkout / "build" / "cpu" / NAME,
        "installed": tmp_path / "site" / "eliza_ffi" / "lib" / NAME,
        "bundle": tmp_path / "bundle" / "lib" / NAME,
    }


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a library")
    return path


def test_places_are_searched_in_order(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle"
    for name in ("bundle", "installed", "checkout", "package"):
        touch(places[name])
        assert find_library(bundle=bundle, trust_bundle=True) == places[name]
    monkeypatch.setenv(LIBRARY_VARIABLE, str(touch(places["variable"])))
    assert find_library(bundle=bundle) == places["variable"]
    assert find_library(touch(places["explicit"]), bundle) == places["explicit"]


def test_a_missing_file_that_was_named_is_never_skipped(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(places["package"])
    with pytest.raises(LibraryNotFoundError, match=r"the library path given is not a file: .*expl"):
        find_library(places["explicit"])
    monkeypatch.setenv(LIBRARY_VARIABLE, str(places["variable"]))
    with pytest.raises(LibraryNotFoundError, match=f"{LIBRARY_VARIABLE}=.* is not a file"):
        find_library()


def test_an_empty_environment_variable_is_ignored(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, "")
    assert find_library(touch(places["explicit"])) == places["explicit"]
    bundle = touch(places["bundle"]).parent.parent
    assert find_library(bundle=bundle, trust_bundle=True) == places["bundle"]


def test_the_library_in_a_bundle_is_used_only_if_the_bundle_is_trusted(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = touch(places["bundle"]).parent.parent
    with pytest.raises(LibraryNotFoundError, match=f"set {TRUST_VARIABLE}=1 to load it"):
        find_library(bundle=bundle)
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    assert find_library(bundle=bundle) == places["bundle"]
    with pytest.raises(LibraryNotFoundError):
        find_library(bundle=bundle, trust_bundle=False)


def test_a_file_is_loaded_once(library: Library) -> None:
    assert Library(library.path).lib is library.lib


def test_the_error_lists_the_places_and_the_next_step(places: dict[str, Path]) -> None:
    with pytest.raises(LibraryNotFoundError) as caught:
        find_library(bundle=places["bundle"].parent.parent, trust_bundle=True)
    for name in ("package", "checkout", "bundle"):
        assert str(places[name]) in str(caught.value)
    assert "make cpu" in str(caught.value)
    assert LIBRARY_VARIABLE in str(caught.value)


def test_an_installed_package_does_not_search_a_checkout(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_resources, "checkout_root", lambda: None)
    touch(places["checkout"])
    with pytest.raises(LibraryNotFoundError):
        find_library()


def test_a_file_that_is_not_a_library_raises_a_load_error(tmp_path: Path) -> None:
    with pytest.raises(LibraryLoadError, match=r"cannot load .*libelizainference.*: "):
        Library(touch(tmp_path / NAME))


def test_the_error_for_a_missing_resource_lists_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_resources, "package_folders", lambda: [tmp_path / "package"])
    monkeypatch.setattr(_resources, "checkout_root", lambda: tmp_path / "checkout")
    with pytest.raises(ElizaError, match=r"the embedded model is missing.*package.*checkout"):
        _resources.default_model_path()
    header = tmp_path / "checkout" / "native" / "include" / "eliza" / "eliza_inference.h"
    header.parent.mkdir(parents=True)
    header.write_text("int f(void);")
    assert _resources.header_path() == header


def test_c_types_lists_exactly_the_types_that_the_code_uses() -> None:
    """The types are parsed in advance. An interrupt during parsing would lock cffi's parser."""
    folder = Path(loading.__file__).parent
    use = re.compile(r'\b(?:new|from_buffer|cast|sizeof|typeof|callback)\(\s*"([^"]+)"')
    used = {name for file in folder.rglob("*.py") for name in use.findall(file.read_text("utf-8"))}
    assert used == set(loading.C_TYPES)


PROGRAM = """
import _ctypes, ctypes, sys

for _ in range(3):
    library = ctypes.CDLL(sys.argv[1])
    library.eliza_inference_create.restype = ctypes.c_void_p
    acquire = library.eliza_inference_mmap_acquire
    acquire.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.eliza_inference_destroy.argtypes = [ctypes.c_void_p]
    model = library.eliza_inference_create(sys.argv[2].encode(), None)
    assert model
    assert acquire(model, b"text", None) == 0
    library.eliza_inference_destroy(model)
    _ctypes.dlclose(library._handle)
"""


def test_a_closed_library_can_be_opened_again(library: Library) -> None:
    command = [sys.executable, "-c", PROGRAM, str(library.path), str(default_model_path())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
