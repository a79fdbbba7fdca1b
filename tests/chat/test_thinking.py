"""The format of a model's reasoning, and prompts that end in it."""

from __future__ import annotations

import random

import pytest
from real_templates import real_templates

from eliza_ffi.chat.thinking import ReasoningReader, known_thinking_format, thinking_format

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


def read(reader: ReasoningReader, text: str, seed: int) -> tuple[str, str]:
    """Return the reasoning and the answer of a text that comes in random pieces."""
    draw = random.Random(seed)
    reasoning, answer = [], []
    while text:
        n = draw.randint(1, 5)
        piece = reader.push(text[:n])
        text = text[n:]
        reasoning.append(piece[0])
        answer.append(piece[1])
    last = reader.push("", is_last=True)
    found = "".join(reasoning) + last[0], "".join(answer) + last[1]
    assert found == (reader.reasoning, reader.answer)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_reasoning_is_split_from_the_answer(seed: int) -> None:
    formats = {known_thinking_format(each.source) for each in real_templates().values()}
    assert len(formats) > 4
    for format in formats - {None}:
        assert format is not None
        thought = "One < two?\n\nSo it is."
        text = f"{thought}{format.end}\n Yes,\nit is. "
        for is_open, given in ((True, text), (False, format.start + text)):
            found = read(ReasoningReader(format, is_open), given, seed)
            assert found == (thought, "Yes,\nit is. ")
        plain = "  <Yes,\n\nit is"
        assert read(ReasoningReader(format, False), plain, seed) == ("", plain)
        assert read(ReasoningReader(format, True), thought, seed) == (thought, "")


def test_only_templates_with_reasoning_have_a_known_format() -> None:
    assert known_thinking_format(real_templates()["google-gemma-2-2b-it"].source) is None
    assert known_thinking_format("") is None
