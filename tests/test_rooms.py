"""The rooms (top-level modules and folders) of the package, and their imports."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import eliza_ffi

PACKAGE = Path(eliza_ffi.__file__).parent
NATIVE = Path(__file__).resolve().parent.parent / "native" / "src"

# From the top to the bottom. A file includes headers only of its own place and of lower ones.
LAYERS = ("abi", "engine", "sampling", "grammar", "constraint", "byte_trie", "token_trie")
ENGINE_ROOMS = ("", "stream", "answer", "choice", "draft", "pass", "base", "cache", "model")

# From the bottom to the top. A room imports only from lower floors, not from its own floor.
FLOORS = (
    ("errors", "terminal", "_lazy"),
    ("checks",),
    ("_resources",),
    ("hub", "library"),
    ("choices", "sampling", "structured"),
    ("chat",),
    ("session",),
    ("decisions",),
    ("evidence",),
    ("learning",),
    ("tables",),
    ("model",),
    ("async_model", "classifier"),
    ("duckdb", "elizaos", "ray"),
    ("serve",),
    ("cli",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_rooms(file: Path) -> set[str]:
    """Return the rooms that a module imports from, including imports for type checking only."""
    here = file.relative_to(PACKAGE).with_suffix("").parts
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = here[: len(here) - node.level]
            path = (*folder, *(node.module or "").split("."))
            names = [path[0]] if path[0] else [name.name for name in node.names]
            rooms.update(name for name in names if name in FLOOR_OF)
    return rooms - {here[0]}


@pytest.mark.parametrize("room", sorted(FLOOR_OF))
def test_a_room_imports_only_from_lower_floors(room: str) -> None:
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").exists() else []
    files += sorted((PACKAGE / room).rglob("*.py"))
    assert files
    for file in files:
        upward = {other for other in imported_rooms(file) if FLOOR_OF[other] >= FLOOR_OF[room]}
        assert not upward, f"{file.relative_to(PACKAGE)} imports {upward}"


def imported_modules(file: Path) -> set[Path]:
    """Return the files of the package that a module imports, including for type checking only."""
    here = file.relative_to(PACKAGE).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.ImportFrom) and node.level):
            continue
        base = PACKAGE.joinpath(*here[: len(here) - node.level], *(node.module or "").split("."))
        for name in (base, *(base / each.name for each in node.names)):
            found |= {name.with_suffix(".py"), name / "__init__.py"}
    return {each for each in found if each.is_file()}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Packages' own `__init__` files are left out: they only name what their modules have."""
    files = [each for each in PACKAGE.rglob("*.py") if each.name != "__init__.py"]
    graph = {each: imported_modules(each) & set(files) for each in files}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(str(each.relative_to(PACKAGE)) for each in error.args[1]))


def test_every_module_is_in_a_room() -> None:
    rooms = {room_of(file) for file in PACKAGE.rglob("*.py")}
    assert rooms == {*FLOOR_OF, "__init__", "__main__"}


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_submodules_or_dependencies() -> None:
    modules = loaded_by("import eliza_ffi")
    assert not {"numpy", "cffi", "jinja2"} & modules
    assert not any(name.startswith("eliza_ffi.") for name in modules)


def test_importing_a_model_does_not_import_jinja2() -> None:
    """Importing it takes time, and only a chat template needs it."""
    modules = loaded_by("from eliza_ffi import Model, chat, cli; cli.main, chat.ChatTemplate")
    assert "eliza_ffi.sampling.params" in modules
    assert "jinja2" not in modules


def test_code_for_older_libraries_is_reached_through_the_dialect_only() -> None:
    """No other code checks whether the library is an older version."""
    checking = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "is_elizaos" in file.read_text(encoding="utf-8")
    ]
    assert sorted(checking) == [
        "library/capabilities.py",  # reports it
        "library/dialect.py",
        "library/loading.py",
    ]


def native_place(file: str) -> tuple[int, int] | None:
    """Return the place of a native file in the order of layers and rooms; None if it is free."""
    layer, *rest = file.split("/")
    if layer not in LAYERS:
        return None
    room = rest[0] if layer == "engine" and len(rest) == 2 else ""
    return LAYERS.index(layer), ENGINE_ROOMS.index(room)


def test_native_files_include_only_lower_layers_and_rooms() -> None:
    upward = []
    for path in sorted(NATIVE.rglob("*.h")) + sorted(NATIVE.rglob("*.cpp")):
        name = path.relative_to(NATIVE).as_posix()
        here = native_place(name)
        included = re.findall(r'^#include "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
        places = {other: native_place(other) for other in included if (NATIVE / other).exists()}
        upward += [
            f"{name} includes {other}"
            for other, place in places.items()
            if here is not None and place is not None and place < here
        ]
    assert not upward


SYSTEM_DEPENDENT = re.compile(
    r"#\s*include <(?:unistd|fcntl|sched|poll|pthread|dlfcn|netdb|signal|windows|sys/|netinet/)"
    r"|\b(?:__unix__|__linux__|__APPLE__|_WIN32|_MSC_VER)\b"
)


def test_system_dependent_code_is_in_one_folder() -> None:
    """The only exception is the RPC client."""
    found = {
        file.relative_to(NATIVE).as_posix()
        for file in NATIVE.rglob("*")
        if file.suffix in (".cpp", ".h")
        and SYSTEM_DEPENDENT.search(file.read_text(encoding="utf-8"))
    }
    assert any(name.startswith("platform/") for name in found)
    assert {name for name in found if not name.startswith("platform/")} == {
        "engine/model/rpc_connections.cpp"
    }
