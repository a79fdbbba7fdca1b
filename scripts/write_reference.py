#!/usr/bin/env python3
"""Generate docs/reference.md: every public name of the package, its signature and its summary.

Names come from ``__all__``, signatures from the code, and summaries from the first paragraphs of
docstrings. The docstring of a constant is the string after its assignment.

    $ python scripts/write_reference.py           # the same as make reference
    $ python scripts/write_reference.py --check   # exit code 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from page_tables import markdown_table

from eliza_ffi._lazy import lazy_property

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"
HOW = "run make reference to update docs/reference.md"

ROOMS = (
    "eliza_ffi",
    "eliza_ffi.decisions",
    "eliza_ffi.structured",
    "eliza_ffi.chat",
    "eliza_ffi.sampling",
    "eliza_ffi.choices",
    "eliza_ffi.session",
    "eliza_ffi.library",
    "eliza_ffi.elizaos",
    "eliza_ffi.ray",
    "eliza_ffi.errors",
)
HEAD = """\
# Reference

Every public name of the Python package, with its signature and a summary. `help(name)` shows the
whole docstring, and the annotations have the types. Pass the parameters after `*` by name. Where a
signature has `**more`, the docstring lists the settings.

`make reference` generates this page from the code with `scripts/write_reference.py`.
"""


def page() -> str:
    """Return the content of the page."""
    return "\n".join([HEAD, *(_section(importlib.import_module(room)) for room in ROOMS)])


def undocumented(room: ModuleType) -> list[str]:
    """Return the public names and methods of a module that have no docstring."""
    names = [name for name in room.__all__ if not _words(room, name)]
    for each in _with_methods(room):
        names += [f"{each.__name__}.{name}" for name, found in _public(each) if not _own_doc(found)]
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the page of public names.")
    parser.add_argument(
        "--check", action="store_true", help="compare the page instead of writing it"
    )
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)
    wanted = page()
    if not options.check:
        options.page.write_text(wanted, encoding="utf-8")
    elif not options.page.is_file() or options.page.read_text(encoding="utf-8") != wanted:
        print(f"{options.page} is out of date: {HOW}", file=sys.stderr)
        return 1
    return 0


def _section(room: ModuleType) -> str:
    rows = [[_call_of(room, name), _words(room, name)] for name in room.__all__]
    parts = [f"## {room.__name__}", _plain(room.__doc__ or ""), _table("name", rows)]
    for each in _with_methods(room):
        methods = [[_call(name, found), _plain(_own_doc(found))] for name, found in _public(each)]
        parts += [f"### {each.__name__}", _table("method", methods)]
    return "\n\n".join(parts) + "\n"


def _table(what: str, rows: list[list[str]]) -> str:
    named = [[f"`{call}`", words] for call, words in rows]
    return markdown_table([what, "summary"], named, left=2)


def _with_methods(room: ModuleType) -> list[type]:
    """Return the classes with a table of methods: the public classes of ``eliza_ffi`` itself."""
    found = [getattr(room, name) for name in room.__all__] if room.__name__ == ROOMS[0] else []
    return [each for each in found if inspect.isclass(each) and any(_public(each))]


def _public(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that our classes define, base classes first."""
    ours = [each for each in reversed(owner.__mro__) if each.__module__.startswith(ROOMS[0])]
    members = {name: found for each in ours for name, found in vars(each).items()}
    for name, found in members.items():
        is_method = isinstance(found, property | lazy_property | classmethod)
        if not name.startswith("_") and (is_method or inspect.isfunction(found)):
            yield name, found


def _call_of(room: ModuleType, name: str) -> str:
    found = getattr(room, name)
    if inspect.isclass(found) or inspect.isroutine(found) or hasattr(found, "__wrapped__"):
        return _call(name, found)
    # Leave out the version, which changes with each release, and long values such as tables.
    shown = isinstance(found, int | str) and not name.startswith("__")
    return _cell(f"{name} = {found!r}" if shown else name)


def _call(name: str, found: Any) -> str:
    """Return the signature of a function, method or class, or the name of a property."""
    if isinstance(found, property | lazy_property):
        return name
    if isinstance(found, classmethod):
        found = found.__func__
    if inspect.isclass(found) and not _is_constructed(found):
        return name
    signature = inspect.signature(found)
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_default(parameter))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    call = name + str(inspect.Signature(parameters))
    if not inspect.isclass(found):
        call += f" -> {signature.return_annotation}"
    is_async = inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)
    return _cell(f"async {call}" if is_async else call)


def _is_constructed(found: type) -> bool:
    """Return whether a class of ours defines a constructor; protocols and most errors do not."""
    if "__dataclass_fields__" in vars(found):
        return True
    init = inspect.getattr_static(found, "__init__")
    return getattr(init, "__module__", "").partition(".")[0] == ROOMS[0]


class _Dots:
    """Stands for a default whose representation is of no use to readers."""

    def __repr__(self) -> str:
        return "..."


def _default(parameter: inspect.Parameter) -> Any:
    default = parameter.default
    if default is parameter.empty or isinstance(default, int | float | str | tuple | None):
        return default
    return _Dots()


def _words(room: ModuleType, name: str) -> str:
    found = getattr(room, name)
    if inspect.isclass(found) or inspect.isroutine(found) or hasattr(found, "__wrapped__"):
        return _plain(_own_doc(found))
    return _plain(_docs_of_constants(Path(room.__file__ or "")).get(name, ""))


def _own_doc(found: Any) -> str:
    """Return an object's own docstring, neither inherited nor generated."""
    doc = vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__
    is_made_up = inspect.isclass(found) and (doc or "").startswith(f"{found.__name__}(")
    return "" if doc is None or is_made_up else inspect.cleandoc(doc)


@functools.cache
def _docs_of_constants(file: Path) -> dict[str, str]:
    """Return the docstrings of the constants in a module, or in all modules of a package."""
    docs: dict[str, str] = {}
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    if file.parent.name == "eliza_ffi":
        files = [file]
    for each in files:
        body = ast.parse(each.read_text(encoding="utf-8")).body
        for assignment, following in itertools.pairwise(body):
            targets: list[ast.expr] = []
            if isinstance(assignment, ast.Assign):
                targets = assignment.targets
            elif isinstance(assignment, ast.AnnAssign):
                targets = [assignment.target]
            if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
                continue
            for target in targets:
                if isinstance(target, ast.Name):
                    docs[target.id] = inspect.cleandoc(str(following.value.value))
    return docs


def _plain(doc: str) -> str:
    """Return the first paragraph of a docstring as Markdown for a table cell."""
    text = " ".join(doc.partition("\n\n")[0].split())
    text = re.sub(
        r":\w+:`~?(?:[^`<]*\.)?([^`<.]+)`", r"`\1`", text
    )  # keep the name without its module
    text = re.sub(
        r":\w+:`([^`<]+?) <[^`]*>`", r"`\1`", text
    )  # keep the words that stand for a name
    text = re.sub(r":math:`([^`]*)`", r"`\1`", text)
    return _cell(text.replace("``", "`"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
