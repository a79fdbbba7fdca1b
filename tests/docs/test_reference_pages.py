"""The pages of options, statuses and messages agree with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from checkout import ROOT
from list_messages import messages, text_of
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

GAP = "…"
QUOTED = re.findall(r"^\| `([^|]*?(?:\\\|[^|]*?)*)` \|", MESSAGES, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def sources() -> str:
    """All messages, and all other string literals, one per line."""
    texts = [*(message.text for message in messages(ROOT)), *literals()]
    return "\n".join(" ".join(text.split()) for text in texts)


def literals() -> Iterator[str]:
    for file in (ROOT / "eliza_ffi").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr | ast.Constant):
                yield text_of(node)
    for file in (ROOT / "native" / "src").rglob("*.cpp"):
        joined = re.sub(r'"\s*\n\s*"', "", file.read_text(encoding="utf-8"))
        yield from re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)


@pytest.mark.parametrize("message", QUOTED)
def test_a_documented_message_is_in_the_sources(message: str, sources: str) -> None:
    parts = [part.strip() for part in message.replace("\\|", "|").split(GAP)]
    pattern = ".*".join(map(re.escape, filter(None, parts)))
    assert re.search(pattern, sources)


def test_the_page_lists_all_options_of_the_library(library: Library) -> None:
    with pytest.raises(errors.InvalidArgumentError) as error:
        Model(library=library, options={"no_such_option": "1"})
    known = str(error.value).partition("known options: ")[2].partition(" (status")[0]
    listed = re.findall(r"^\| `(\w+)` \|", OPTIONS, flags=re.MULTILINE)
    assert sorted(listed) == sorted(known.split(", "))


def test_the_page_lists_all_statuses_of_the_header() -> None:
    named = dict(re.findall(r"^\s+(ELIZA_(?:OK|ERR_\w+)) = (-?\d+)", HEADER, flags=re.MULTILINE))
    rows = re.findall(r"^\| (-?\d+) \| `(ELIZA_\w+)` \|", STATUSES, flags=re.MULTILINE)
    assert {name: number for number, name in rows} == named
    finished = re.findall(r"^\s+(ELIZA_FINISH_\w+) =", HEADER, flags=re.MULTILINE)
    assert re.findall(r"^\| `(ELIZA_FINISH_\w+)` \|", STATUSES, flags=re.MULTILINE) == finished


def test_every_module_has_a_page_of_its_names() -> None:
    pages = {
        path.read_text(encoding="utf-8").partition("::: ")[2].split()[0]
        for path in (REFERENCE / "python").glob("*.md")
    }
    assert pages == set(ROOMS)
