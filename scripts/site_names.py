"""Prepare the package's names for the site: a Griffe extension, which mkdocs.yml registers.

- Doctests in docstrings become blocks of code.
- The methods that `AsyncModel` makes from those of `Model` are shown as asynchronous methods with
  the parameters of the original.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

griffe: Any = importlib.import_module("griffe")  # not typed: it is only in the extra docs

DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)+", re.MULTILINE)
MADE = re.compile(r"_(?:awaited|iterated|on_thread|streamed)\(Model\.(\w+)\)")


def with_code_blocks(text: str) -> str:
    """Put fences around a docstring's doctests."""
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


def prepare(parent: Any) -> None:
    for name, member in list(parent.members.items()):
        if member.is_alias:
            continue
        if member.is_attribute and (made := MADE.fullmatch(str(member.value))):
            parent.set_member(name, _method(member, parent.package["model.Model"][made[1]]))
        if member.is_module or member.is_class:
            prepare(member)
        elif member.docstring is not None:
            member.docstring.value = with_code_blocks(member.docstring.value)
    if parent.docstring is not None:
        parent.docstring.value = with_code_blocks(parent.docstring.value)


def _method(made: Any, original: Any) -> Any:
    """Return an asynchronous method for the attribute that is made from a method."""
    method = griffe.Function(
        made.name,
        lineno=made.lineno,
        endlineno=made.endlineno,
        parameters=original.parameters,
        returns=original.returns,
        docstring=griffe.Docstring(f"Run :meth:`{original.path.split('.', 2)[2]}` on a thread."),
    )
    method.labels.add("async")
    return method


def _on_package(self: Any, *, pkg: Any, **_: Any) -> None:
    if pkg.name == "eliza_ffi":
        prepare(pkg)


SiteNames = type("SiteNames", (griffe.Extension,), {"on_package": _on_package})
