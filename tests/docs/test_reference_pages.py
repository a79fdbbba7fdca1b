"""The pages of options, statuses and messages: what they list is what there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from write_reference import ROOMS

from eliza_ffi import errors
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow

REFERENCE = ROOT / "docs" / "reference"
OPTIONS, STATUSES, MESSAGES = (
    (REFERENCE / f"{name}.md").read_text(encoding="utf-8")
    for name in ("options", "statuses", "messages")
)
HEADER = (ROOT / "native" / "include" / "eliza" / "eliza_inference.h").read_text(encoding="utf-8")

DIFFERS = "…"
QUOTED = re.findall(r"^\| `([^|]*?(?:\\\|[^|]*?)*)` \|", MESSAGES, flags=re.MULTILINE)


def first_cells(page: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)


def texts_of_python(file: Path) -> Iterator[str]:
    """Yield the texts in a file of Python but docstrings, with a mark where a value is put in."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    every = list(ast.walk(tree))
    # A literal that is a statement is a docstring; a call that is one may be a check.
    statements = [node.value for node in every if isinstance(node, ast.Expr)]
    docs = {id(value) for value in statements if not isinstance(value, ast.Call)}
    for node in every:
        if id(node) in docs:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield text_of(node)
        elif isinstance(node, ast.Call):
            yield from texts_of_check(node)


def texts_of_check(call: ast.Call) -> Iterator[str]:
    """Yield the errors of a check of arguments, put together as in `eliza_ffi.checks.wrong`."""
    check = call.func.id if isinstance(call.func, ast.Name) else ""
    if call.args and (check == "wrong" or check.startswith("check_")):
        name, *others = map(text_of, call.args)
        one_of = "one of " if check == "check_one_of" else ""
        for expected in others:
            yield f"{name} must be {one_of}{expected}, got {DIFFERS}"


def text_of(node: ast.expr) -> str:
    """Return a literal's text, with a mark where a value is put in; of other nodes the mark."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else DIFFERS


def texts_of_native(file: Path) -> Iterator[str]:
    """Yield the texts of the statements in a file of C++, with a mark between literals."""
    joined = re.sub(r'"\s*\n\s*"', "", file.read_text(encoding="utf-8"))
    parts: list[str] = []
    for found in re.finditer(r'"((?:[^"\\\n]|\\.)*)"|;', joined):
        if found[0] == ";":
            yield DIFFERS.join(parts)
            parts = []
        else:
            parts.append(found[1].replace('\\"', '"'))


@pytest.fixture(scope="module")
def sources() -> list[str]:
    python = [texts_of_python(file) for file in sorted((ROOT / "eliza_ffi").rglob("*.py"))]
    native = [texts_of_native(file) for file in sorted((ROOT / "native" / "src").rglob("*.cpp"))]
    return [text for texts in (*python, *native) for text in texts]


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_is_in_the_sources(message: str, sources: list[str]) -> None:
    parts = [part.strip() for part in message.replace("\\|", "|").split(DIFFERS)]
    pattern = re.compile(".*".join(map(re.escape, filter(None, parts))), flags=re.DOTALL)
    assert any(pattern.search(text) for text in sources)


def test_the_options_are_those_of_the_library(library: Library) -> None:
    with pytest.raises(errors.InvalidArgumentError) as refusal:
        Model(library=library, options={"no_such_option": "1"})
    known = str(refusal.value).partition("known options: ")[2].partition(" (status")[0]
    listed = first_cells(OPTIONS)
    assert sorted(listed) == sorted(known.split(", "))


def test_the_statuses_are_those_of_the_header() -> None:
    named = dict(re.findall(r"^\s+(ELIZA_(?:OK|ERR_\w+)) = (-?\d+)", HEADER, flags=re.MULTILINE))
    rows = re.findall(r"^\| (-?\d+) \| `(ELIZA_\w+)` \|", STATUSES, flags=re.MULTILINE)
    assert {name: number for number, name in rows} == named


def test_the_ends_of_a_generation_are_those_of_the_header() -> None:
    named = re.findall(r"^\s+(ELIZA_FINISH_\w+) =", HEADER, flags=re.MULTILINE)
    assert re.findall(r"^\| `(ELIZA_FINISH_\w+)` \|", STATUSES, flags=re.MULTILINE) == named


def test_every_room_has_a_page_of_its_names() -> None:
    pages = {
        path.read_text(encoding="utf-8").partition("::: ")[2].split()[0]
        for path in (REFERENCE / "python").glob("*.md")
    }
    assert pages == set(ROOMS)
