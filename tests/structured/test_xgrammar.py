"""Masks from another library, XGrammar: the example in ``docs/schemas.md``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from eliza_ffi.model import Model

pytest.importorskip("xgrammar", reason="xgrammar is not installed")

PAGE = ROOT / "docs" / "schemas.md"


def example_of(page: Path, imports: str) -> str:
    """Return the example on a page that begins with this import."""
    blocks = page.read_text(encoding="utf-8").split("```python\n")[1:]
    (found,) = [block.split("```")[0] for block in blocks if block.startswith(imports)]
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_with_the_documented_xgrammar_example_are_valid(
    tiny_model: Model, temperature: float
) -> None:
    source = example_of(PAGE, "import xgrammar")
    assert len([line for line in source.splitlines() if line.strip()]) <= 30
    names: dict[str, Any] = {}
    exec(source, names)
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["cat", "dog"]}, "old": {"type": "boolean"}},
        "required": ["kind", "old"],
        "additionalProperties": False,
    }
    masks = names["XGrammarMasks"](tiny_model.vocabulary(), json.dumps(schema))
    for _ in range(3):  # the same masks can be used for several answers
        result = tiny_model.generate("Hello", shape=masks, temperature=temperature)
        assert result.finish_reason == "end", result
        value = json.loads(result.text)
        assert value["kind"] in ("cat", "dog")
        assert isinstance(value["old"], bool)
