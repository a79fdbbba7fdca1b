"""The public names of the package, and those without a docstring or an example."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
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


INTERNAL = (
    *("CacheOptions.settings", "Speculation.settings"),
    *("Calibration.apply", "Calibration.check", "Calibration.needs_inputs"),
    *("Calibration.needs_whole_rows", "Calibration.threshold_of_labels"),
    *("Calibration.wanted_hidden", "Choice.label_set", "Choice.texts"),
    *("Classifier.get_metadata_routing", "PreparedLabels.payload", "PreparedLabels.tokens_for"),
    *("Skeleton.placed", "Skeleton.script"),
)
"""Members that only the package itself, or scikit-learn, uses."""


def without_example(room: ModuleType) -> list[str]:
    """Return the public functions of a module, and classes and members of `eliza_ffi`, without an
    example in their docstring. An example of its class may also show a member."""
    missing = []
    for name in room.__all__:
        found = getattr(room, name)
        examples = re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", found.__doc__ or "", re.MULTILINE)
        is_class = inspect.isclass(found) and not issubclass(found, Exception)
        if not examples and (inspect.isfunction(found) or (is_class and room.__name__ == ROOMS[0])):
            missing.append(name)
        if is_class and room.__name__ == ROOMS[0]:
            for each, member in public_members(found):
                is_shown = re.search(rf"\.{each}\b", "\n".join(examples))
                if not is_shown and ">>>" not in (member.__doc__ or ""):
                    missing.append(f"{name}.{each}")
    return [name for name in missing if name not in INTERNAL]


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
