"""`logit_bias` applies to the choices of schemas and tool arguments, not only to free text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eliza_ffi import InvalidArgumentError, Model, Sampling

TALK = [{"role": "user", "content": "What to do?"}]
COLOURS = ["red", "green", "blue"]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": COLOURS}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


def banning(model: Model, *begins: str, **more: Any) -> Sampling:
    """Return settings that ban all tokens that begin with one of these texts."""
    texts = model.session.vocabulary().texts
    banned = [
        token for token, text in enumerate(texts) if text.decode("latin-1").startswith(begins)
    ]
    return Sampling(logit_bias=tuple((token, -1e6) for token in banned), **more)


def answers(model: Model, sampling: Sampling | None) -> list[Any]:
    return [
        json.loads(model.generate(TALK, 60, schema=SCHEMA, sampling=sampling).text),
        model.fill(TALK, SCHEMA, sampling=sampling).value,
        model.call_tool(TALK, [TOOL], "required", sampling=sampling).arguments,  # type: ignore[union-attr]
    ]


@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 3}])
def test_a_banned_label_is_not_chosen(tiny_model: Model, more: dict[str, Any]) -> None:
    for found in answers(tiny_model, Sampling(**more) if more else None):
        assert found["a"] in COLOURS
    plain = answers(tiny_model, None)
    for begin in {value["a"][0] for value in plain}:
        for found in answers(tiny_model, banning(tiny_model, begin, "t", **more)):
            assert found["a"][0] != begin and found["a"] in COLOURS
            assert found["b"] is False


def test_healing_a_prompt_cannot_be_combined_with_a_bias(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="heal_prompt=True cannot be combined"):
        tiny_model.fill(
            "The answer: ",
            {"enum": COLOURS},
            heal_prompt=True,
            sampling=Sampling(logit_bias=((5, -1.0),)),
        )
