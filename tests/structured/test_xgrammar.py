"""Another library's masks through the same door: the example of ``docs/schemas.md``."""

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
    """Return the page's example that begins with this import."""
    blocks = page.read_text(encoding="utf-8").split("```python\n")[1:]
    (found,) = [block.split("```")[0] for block in blocks if block.startswith(imports)]
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_example_of_xgrammar_answers_validly(tiny_model: Model, temperature: float) -> None:
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
    masks = names["XGrammarMasks"](tiny_model.token_texts(), json.dumps(schema))
    for _ in range(3):  # any number of texts can be begun
        result = tiny_model.generate("Hello", shape=masks, temperature=temperature)
        assert result.finish_reason == "end", result
        value = json.loads(result.text)
        assert value["kind"] in ("cat", "dog")
        assert isinstance(value["old"], bool)
