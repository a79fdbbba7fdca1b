"""Prepare the package's names for the site: a Griffe extension, which mkdocs.yml registers.

- Doctests in docstrings become blocks of code.
- The methods that `AsyncModel` makes from those of `Model` are shown as asynchronous methods with
  the parameters of the original; its constructor is shown with those of `Model`.
- Keyword arguments that a typed dictionary lists (``**settings: Unpack[S]``) are shown as
  parameters. If the docstring has a line for ``**settings``, these are the others, which it does
  not describe one by one.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

griffe: Any = importlib.import_module("griffe")  # not typed: it is only in the extra docs

DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)+", re.MULTILINE)
UNPACKED = re.compile(r"Unpack\[(\w+)\]")
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
        if member.is_function:
            show_keywords(member)
    if parent.docstring is not None:
        parent.docstring.value = with_code_blocks(parent.docstring.value)


def show_keywords(function: Any) -> None:
    """List a function's keyword arguments, which it names by a class, as its parameters."""
    if any(str(each.value) == "_with_parameters_of(Model)" for each in function.decorators):
        function.parameters = function.package["model.Model"].parameters
    *own, last = list(function.parameters) or [None]
    if last is None or not UNPACKED.fullmatch(str(last.annotation)):
        return
    owner = function.parent if function.name == "__init__" else function
    described = owner.docstring.value if owner.docstring is not None else ""
    has_rest = f"**{last.name}" in described
    settings = function.parent.modules_collection[last.annotation.slice.canonical_path]
    keywords = [
        griffe.Parameter(
            name, annotation=field.annotation, kind=griffe.ParameterKind.keyword_only, default="..."
        )
        for name, field in settings.all_members.items()
        if field.is_attribute
        if not has_rest or re.search(rf"^ *(\w+, )*{name}(, \w+)*$", described, re.MULTILINE)
    ]
    function.parameters = griffe.Parameters(*own, *keywords, *([last] if has_rest else []))


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
