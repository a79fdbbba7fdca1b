"""Forty shapes of answers, and whether a skeleton says each."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from json_schema_check import is_valid, made_up, read
from schema_table import SHAPES

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.masks.guidance import takes_schema
from eliza_ffi.model import Model
from eliza_ffi.shapes import shape_of
from eliza_ffi.skeleton.response import Skeleton

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schemas.md"
BEGIN = "<!-- written by tests/skeleton/test_schema_table.py -->\n"
END = "<!-- end -->"
SAID = [name for name, (_, text, _) in SHAPES.items() if text is not None]


def test_there_are_forty_of_which_few_are_refused() -> None:
    assert len(SHAPES) == 40
    assert len(SAID) == 35


@pytest.mark.parametrize("name", SAID)
def test_all_that_is_written_is_valid(name: str) -> None:
    schema, text, _ = SHAPES[name]
    skeleton = Skeleton.from_json_schema(schema)
    assert text is not None
    assert is_valid(read(text), schema)
    assert skeleton.matches(text)
    rng = random.Random(name)
    for _ in range(20):
        written = made_up(skeleton, rng)
        assert is_valid(read(written), schema), written
        assert skeleton.matches(written)


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - SAID))
def test_what_is_refused_is_named_with_its_place(name: str) -> None:
    schema, _, reason = SHAPES[name]
    with pytest.raises(InvalidArgumentError, match=reason):
        Skeleton.from_json_schema(schema)


def test_a_model_fills_all_of_them(tiny_model: Model) -> None:
    for name in SAID:
        schema = SHAPES[name][0]
        skeleton = Skeleton.from_json_schema(schema)
        for temperature in (0.0, 2.0):
            result = tiny_model.fill("Answer: ", skeleton, max_tokens=24, temperature=temperature)
            assert is_valid(result.value, schema), (name, result.text)
            assert skeleton.matches(result.text), name


def answer_of(schema: dict[str, Any]) -> str:
    """Return who answers a schema, and what of it is left out or keeps both from it."""
    try:
        left_out = Skeleton.from_json_schema(schema).left_out
        reason = left_out[0] if left_out else ""
    except InvalidArgumentError as error:
        left_out, reason = (), str(error)
    reason = re.sub(r"JSON schema at #\S*: ", "", reason).replace("|", "\\|")
    if shape_of(schema).skeleton is not None:
        return f"skeleton, without some: {reason}" if left_out else "skeleton"
    has_end = "without end" not in reason  # else there is no value, which llguidance does not see
    return "llguidance" if has_end and takes_schema(schema) else f"nobody: {reason}"


def table() -> str:
    """Return the table of the page: each shape, a text that it may be, and who answers."""
    lines = ["| shape | for example | answered by |", "| --- | --- | --- |"]
    for name, (schema, text, _) in SHAPES.items():
        example = f"`{text}`".replace("|", "\\|") if text else ""
        lines.append(f"| {name} | {example} | {answer_of(schema)} |")
    return "\n".join(lines) + "\n"


def rewritten(page: str) -> str:
    """Return the page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def test_the_table_of_the_page_is_as_it_is_now() -> None:
    pytest.importorskip("llguidance", reason="the extra schema is not installed")
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert END in page
    assert rewritten(page) == page, f"run {Path(__file__).name} to write it anew"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
