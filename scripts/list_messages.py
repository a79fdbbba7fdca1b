#!/usr/bin/env python3
"""Print all messages of the package and of the library as tables, to read them in one go.

    $ python scripts/list_messages.py                     # all messages
    $ python scripts/list_messages.py tables native/src   # rooms whose names contain one of these

Prints a Markdown table for each room: the message, its exception or status, and its place. The
Python messages are string literals in ``raise`` statements, in calls of exception classes, and in
calls of the helpers in ``eliza_ffi/checks.py``. The native messages are string literals in calls
that throw, check or log. ``{name}`` stands for the value of a variable, and ``…`` for the value of
another expression. Messages that are assembled elsewhere, for example in a variable, are left out.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from page_tables import markdown_table

ROOT = Path(__file__).resolve().parent.parent
GAP = "…"

NATIVE_CALL = re.compile(
    r"\bthrow\s+(?:[\w:]+::)?(?P<thrown>\w+)\s*\("
    r"|(?<![\w.>])(?P<called>Error|ContextFull|invalid_argument|log"
    r"|(?:require|refuse|fail)\w*)\s*\("
)
NATIVE_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<raw>R"(?P<mark>[^(]*)\((?P<text>.*?)\)(?P=mark)")
    |"(?P<string>(?:[^"\\\n]|\\.)*)"
    |'(?P<character>(?:[^'\\\n]|\\.)+)'
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


class Message(NamedTuple):
    """A message in the sources; `kind` is its exception, status or function."""

    text: str
    kind: str
    file: str
    line: int

    @property
    def room(self) -> str:
        """The folder of the package or of native/src, or the file if it is in neither."""
        parts = self.file.split("/")
        depth = 2 if parts[0] == "eliza_ffi" else 3
        return "/".join(parts[:depth])


def messages(root: Path) -> Iterator[Message]:
    """Yield the messages of a checkout, by file and line."""
    helpers = Helpers((root / "eliza_ffi" / "checks.py").read_text(encoding="utf-8"))
    for path in sorted((root / "eliza_ffi").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        yield from python_messages(path.read_text(encoding="utf-8"), name, helpers)
    native = (root / "native" / "src").rglob("*")
    for path in sorted(each for each in native if each.suffix in (".cpp", ".h")):
        name = path.relative_to(root).as_posix()
        yield from native_messages(path.read_text(encoding="utf-8"), name)


class Helpers:
    """The helpers in ``eliza_ffi/checks.py`` that take the parameter `expected`.

    Parameters
    ----------
    source
        The text of the module. The function ``wrong`` makes an InvalidArgumentError from an
        f-string, which is the wording of all these messages.
    """

    def __init__(self, source: str) -> None:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        named = {each.name: [arg.arg for arg in each.args.args] for each in functions}
        self.parameters = {name: names for name, names in named.items() if "expected" in names}
        (wrong,) = (each for each in functions if each.name == "wrong")
        (self._wording,) = (
            each.args[0]
            for each in ast.walk(wrong)
            if isinstance(each, ast.Call) and _name_of(each.func) == "InvalidArgumentError"
        )

    def message(self, call: ast.Call) -> str | None:
        """Return the message of a call, or None if it is not a call of such a helper."""
        names = self.parameters.get(_name_of(call.func))
        if names is None:
            return None
        given = dict(zip(names, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg}
        values = {name: text_of(value) for name, value in given.items()}
        text = text_of(self._wording, {"name": GAP, "expected": GAP} | values)
        return f"{text}; {values['hint']}" if values.get("hint") else text


def python_messages(source: str, file: str, helpers: Helpers) -> Iterator[Message]:
    """Yield the messages in a Python source."""
    tree = ast.parse(source)
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
        kind = _name_of(call.func)
        text = helpers.message(call)
        if text is None and (id(call) in raised or re.search(r"(Error|Refusal)$", kind)):
            values = [*call.args, *(each.value for each in call.keywords)]
            text = " | ".join(text_of(value) for value in values if _has_text(value))
        if text and re.search(r"\w", text.replace(GAP, "")):
            yield Message(text, kind, file, call.lineno)


def text_of(node: ast.expr, known: Mapping[str, str] | None = None) -> str:
    """Return the text of an expression, with placeholders for values that are not `known`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value, known) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, known)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, known) + text_of(node.right, known)
    if isinstance(node, ast.IfExp) and _has_text(node):
        return f"({text_of(node.body, known)} / {text_of(node.orelse, known)})"
    if isinstance(node, ast.Name | ast.Attribute) and known is None:
        return f"{{{_name_of(node)}}}"
    if isinstance(node, ast.Name) and known is not None:
        return known.get(node.id, "")
    return GAP


def _has_text(node: ast.expr) -> bool:
    parts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return any(isinstance(part, str) for part in parts)


def _name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name; other expressions have an empty name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def native_messages(source: str, file: str) -> Iterator[Message]:
    """Yield the messages in a C++ source."""
    # Comments become spaces, so that calls in comments are not found and lines stay the same.
    code = NATIVE_TOKEN.sub(lambda found: _blank(found) if found["comment"] else found[0], source)
    end = 0
    for found in NATIVE_CALL.finditer(code):
        if found.start() < end:  # inside the previous call
            continue
        arguments, end = _arguments(code, found.end())
        text = " | ".join(each for each in arguments if re.search(r"\w", each.replace(GAP, "")))
        is_check = found["called"] not in (None, "log")  # their single words are argument names
        if text and (" " in text or not is_check):
            status = re.search(r"ELIZA_ERR_\w+", code[found.start() : end])
            kind = status[0] if status else found["thrown"] or found["called"]
            yield Message(text, kind, file, code.count("\n", 0, found.start()) + 1)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _arguments(code: str, begin: int) -> tuple[list[str], int]:
    """Return the texts of a call's arguments, and the place after the call's parenthesis."""
    arguments, parts, depth = [], [""], 1
    for found in NATIVE_TOKEN.finditer(code, begin):
        other = found["other"]
        if other is None:
            literal = found["text"] or found["string"] or found["character"] or ""
            parts[-1] += re.sub(r"\\([\"'\\])", r"\1", literal)
            continue
        depth += (other in "([{") - (other in ")]}")
        if depth == 0 or (depth == 1 and other == ","):
            arguments.append(GAP.join(parts))
            parts = [""]
            if depth == 0:
                return arguments, found.end()
        elif other.isalnum() and parts[-1]:
            parts.append("")
        elif other.isalnum() and len(parts) == 1:
            parts = ["", ""]
    return arguments, len(code)


def tables(found: Sequence[Message]) -> str:
    """Return a Markdown table for each room."""
    sections = []
    for room, group in groupby(found, key=lambda message: message.room):
        rows = [[_cell(each.text), f"`{each.kind}`", f"{each.file}:{each.line}"] for each in group]
        sections.append(f"## {room}\n\n{markdown_table(['message', 'kind', 'place'], rows, 3)}")
    return "\n\n".join(sections)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print all messages as Markdown tables.")
    parser.add_argument(
        "rooms", nargs="*", help="print only rooms whose names contain one of these"
    )
    options = parser.parse_args(arguments)
    found = [
        message
        for message in messages(ROOT)
        if not options.rooms or any(room in message.room for room in options.rooms)
    ]
    print(tables(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
