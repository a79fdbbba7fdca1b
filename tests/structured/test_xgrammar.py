"""Masks from another library, XGrammar: ``examples/xgrammar_masks.py``."""

from __future__ import annotations

import json
import runpy

import pytest
from checkout import ROOT

from eliza_ffi.model import Model

pytest.importorskip("xgrammar", reason="xgrammar is not installed")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_with_the_documented_xgrammar_example_are_valid(
    tiny_model: Model, temperature: float
) -> None:
    names = runpy.run_path(str(ROOT / "examples" / "xgrammar_masks.py"))
    fields = {"kind": {"enum": ["cat", "dog"]}, "old": {"type": "boolean"}}
    schema: dict[str, object] = {"type": "object", "properties": fields, "required": [*fields]}
    schema["additionalProperties"] = False
    masks = names["XGrammarMasks"](tiny_model.vocabulary(), json.dumps(schema))
    for _ in range(3):  # the same masks can be used for several answers
        result = tiny_model.generate("Hello", schema=masks, temperature=temperature)
        assert result.finish_reason == "end", result
        value = json.loads(result.text)
        assert value["kind"] in ("cat", "dog")
        assert isinstance(value["old"], bool)
