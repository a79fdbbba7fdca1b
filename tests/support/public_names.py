"""The public names of the package, and those without a docstring."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from eliza_ffi._lazy import lazy_property

PARTS = (
    *("decisions", "evidence", "learning", "structured", "chat", "sampling", "choices", "session"),
    *("library", "elizaos", "ray", "errors"),
)
ROOMS = ("eliza_ffi", *(f"eliza_ffi.{name}" for name in PARTS))


def public_members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that our classes define, base classes first."""
    ours = [each for each in reversed(owner.__mro__) if each.__module__.startswith(ROOMS[0])]
    members = {name: found for each in ours for name, found in vars(each).items()}
    for name, found in members.items():
        is_method = isinstance(found, property | lazy_property | classmethod)
        if not name.startswith("_") and (is_method or inspect.isfunction(found)):
            yield name, found


def undocumented(room: ModuleType) -> list[str]:
    """Return the public names of a module, and methods of `eliza_ffi`, without a docstring."""
    constants = _documented_constants(Path(room.__file__ or ""))
    missing = []
    for name in room.__all__:
        found = getattr(room, name)
        is_code = inspect.isclass(found) or inspect.isroutine(found)
        if not (_has_own_doc(found) if is_code else name in constants):
            missing.append(name)
        if inspect.isclass(found) and room.__name__ == ROOMS[0]:
            members = public_members(found)
            missing += [f"{name}.{each}" for each, member in members if not _has_own_doc(member)]
    return missing


def _has_own_doc(found: Any) -> bool:
    """Return whether an object has a docstring that is neither inherited nor generated."""
    doc = vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__
    return bool(doc) and not (inspect.isclass(found) and doc.startswith(f"{found.__name__}("))


def _documented_constants(file: Path) -> set[str]:
    """Return the constants of a module, or of a package's modules, that a string follows."""
    names = set()
    is_package = file.name == "__init__.py" and file.parent.name != ROOMS[0]
    for each in file.parent.rglob("*.py") if is_package else [file]:
        body = ast.parse(each.read_text(encoding="utf-8")).body
        for assigned, following in itertools.pairwise(body):
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                targets = getattr(assigned, "targets", [getattr(assigned, "target", None)])
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
