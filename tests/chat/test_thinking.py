"""The format of a model's reasoning, and prompts that end in it."""

from __future__ import annotations

import pytest

from eliza_ffi.chat.thinking import thinking_format
from tests.support.real_templates import real_templates

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("template", "start"),
    [
        ("Qwen-Qwen3-0.6B", "<think>\n"),
        ("openai-gpt-oss-120b", "<|channel|>analysis<|message|>"),
        ("ByteDance-Seed-OSS", "<seed:think>"),
        ("google-gemma-2-2b-it", "<think>\n"),
    ],
)
def test_the_template_decides_the_format(template: str, start: str) -> None:
    assert thinking_format(real_templates()[template].source).start == start


def test_a_model_without_a_template_gets_the_common_format() -> None:
    assert thinking_format("").start == "<think>\n"


def test_every_format_ends_with_what_the_model_stops_at() -> None:
    for template in real_templates().values():
        format = thinking_format(template.source)
        assert format.end.strip().startswith(format.stop)
        assert format.is_open("turn" + format.start)
        assert not format.is_open("turn")


def test_prompts_that_prevent_reasoning_are_recognized() -> None:
    template = real_templates()["Qwen-Qwen3-0.6B"]
    format = thinking_format(template.source)
    without = template.render(HELLO, enable_thinking=False)
    assert without[: format.closed_at(without)] == template.render(HELLO)
    assert format.closed_at(template.render(HELLO)) is None
    assert format.closed_at("turn\n</think>") == len("turn")
    assert format.closed_at("<think>\n</think>\nhello") is None
