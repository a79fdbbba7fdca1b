"""Masks from another library, XGrammar: the example in ``docs/guides/structured-answers.md``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from checkout import ROOT
from pages import programs_of

from eliza_ffi.model import Model

pytest.importorskip("xgrammar", reason="xgrammar is not installed")

PAGE = (ROOT / "docs" / "guides" / "structured-answers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_with_the_documented_xgrammar_example_are_valid(
    tiny_model: Model, temperature: float
) -> None:
    (source,) = [each for each in programs_of(PAGE) if each.startswith("import xgrammar")]
    names: dict[str, Any] = {}
    exec(source, names)
    fields = {"kind": {"enum": ["cat", "dog"]}, "old": {"type": "boolean"}}
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    schema["additionalProperties"] = False
    masks = names["XGrammarMasks"](tiny_model.vocabulary(), json.dumps(schema))
    for _ in range(3):  # the same masks can be used for several answers
        result = tiny_model.generate("Hello", schema=masks, temperature=temperature)
        assert result.finish_reason == "end", result
        value = json.loads(result.text)
        assert value["kind"] in ("cat", "dog")
        assert isinstance(value["old"], bool)
