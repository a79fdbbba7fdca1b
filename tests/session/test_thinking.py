"""Reasoning before a constrained answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from eliza_ffi import AsyncModel, InvalidArgumentError, Model
from eliza_ffi.chat.thinking import ThinkingFormat
from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.errors import GenerationCancelledError
from eliza_ffi.evidence.deciding import plan_of
from eliza_ffi.evidence.reasoning import decision_task
from eliza_ffi.learning import calibrate
from eliza_ffi.session import thinking
from eliza_ffi.session.results import ReasoningPiece
from eliza_ffi.session.runs import choice_run, tools_run
from eliza_ffi.session.tool_calls import TextAnswer, ToolCalls, tool_request

HELLO = [{"role": "user", "content": "hi"}]
PROMPT = "<|im_start|>user\nWhat is your name?<|im_end|>\n<|im_start|>assistant\n"
LABELS = ["RESPOND", "IGNORE", "STOP"]
FLAGS = {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}
TOOL = {"type": "function", "function": {"name": "reply", "parameters": {"type": "object"}}}


class Answer(BaseModel):
    good: bool


def after(model: Model, prompt: str, reasoning: str, end: str = "\n</think>\n\n") -> list[int]:
    """Return the prompt of an answer after a reasoning."""
    tokens = model.prompt_tokens(prompt) + model.tokenize("<think>\n", parse_special=True)
    return tokens + model.tokenize(reasoning) + model.tokenize(end, parse_special=True)


def test_the_reasoning_is_the_text_that_the_model_writes_after_its_mark(tiny_model: Model) -> None:
    found = tiny_model.choose(PROMPT, LABELS, think=20)
    alone = tiny_model.generate(PROMPT + "<think>\n", 20)
    assert found.reasoning == alone.text.strip() != ""


def test_the_answer_is_the_answer_after_that_text(tiny_model: Model) -> None:
    found = tiny_model.choose(PROMPT, LABELS, think=20, probabilities=True)
    assert found.reasoning is not None
    then = tiny_model.choose(after(tiny_model, PROMPT, found.reasoning), LABELS, probabilities=True)
    assert found.value == then.value
    assert found.probabilities == pytest.approx(then.probabilities, rel=0.02)
    assert tiny_model.choose(PROMPT, LABELS).reasoning is None


def test_the_reasoning_ends_at_its_closing_mark(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_model.choose(PROMPT, LABELS, think=20).reasoning
    assert whole is not None
    word = whole.split()[2]
    format = ThinkingFormat("", "<think>\n", word, f"{word}\n")
    monkeypatch.setattr(thinking, "thinking_format", lambda _: format)
    pull = tiny_model.binding.next

    def pull_many(stream: Any, *, at_once: bool) -> Any:
        assert at_once
        return pull(stream, at_once=at_once)

    monkeypatch.setattr(tiny_model.binding, "next", pull_many)
    cut = tiny_model.choose(PROMPT, LABELS, think=20).reasoning
    assert cut == whole[: whole.index(word)].strip()


def test_the_reasoning_ends_at_a_control_token(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    format = ThinkingFormat("", "<|im_start|>assistant\n", "<|im_end|>", "<|im_end|>\n")
    monkeypatch.setattr(thinking, "thinking_format", lambda _: format)
    found = tiny_model.choose(PROMPT, LABELS, think=200)
    assert found.reasoning == tiny_model.generate(PROMPT, 200).text.strip()


@pytest.mark.parametrize(
    "call",
    [
        lambda m, n: m.choose(PROMPT, LABELS, think=n),
        lambda m, n: m.choose_many([PROMPT], LABELS, think=n)[0],
        lambda m, n: m.rank(PROMPT, LABELS, think=n),
        lambda m, n: m.rank_many([PROMPT], LABELS, think=n)[0],
        lambda m, n: m.fill(PROMPT, Answer, think=n),
        lambda m, n: m.fill(PROMPT, FLAGS, think=n),
        lambda m, n: m.fill_many([PROMPT], Answer, think=n)[0],
        lambda m, n: m.call_tool(HELLO, [TOOL], "required", think=n),
    ],
)
def test_every_constrained_answer_can_follow_a_reasoning(tiny_model: Model, call: Any) -> None:
    assert call(tiny_model, 12).reasoning
    assert call(tiny_model, 0).reasoning is None


def test_all_questions_of_a_decision_share_one_reasoning(tiny_model: Model) -> None:
    questions = [Predicate("It is a greeting."), Choice("What to do?", ["reply", "wait"])]
    found = tiny_model.decide("hello there", questions, think=15)
    assert found.reasoning
    then = tiny_model.decide(f"hello there\n\nReasoning:\n{found.reasoning}", questions)
    for answer, expected in zip(found.answers, then.answers, strict=True):
        assert answer.distribution == pytest.approx(expected.distribution, rel=0.02, abs=1e-3)
    alone = tiny_model.decide("hello there", questions)
    assert alone.reasoning is None
    assert alone.answers != found.answers

    calibration = calibrate(tiny_model, questions, [], method="none")
    with pytest.raises(InvalidArgumentError, match="calibrations are fitted without reasoning"):
        tiny_model.decide("hello there", questions, think=15, calibration=calibration)

    async def story() -> Any:
        return await AsyncModel.of(tiny_model).decide("hello there", questions, think=15)

    assert asyncio.run(story()).reasoning == found.reasoning


INPUTS = ["hello there", "I was charged twice!", "Where is my order?"]


def test_many_decisions_reason_separately_and_equal_single_decisions(tiny_model: Model) -> None:
    questions = [Predicate("It is a greeting."), Choice("What to do?", ["reply", "wait"])]
    expected = [tiny_model.decide(each, questions, think=15) for each in INPUTS]
    found = tiny_model.decide_many(INPUTS, questions, think=15)

    async def story() -> Any:
        return await AsyncModel.of(tiny_model).decide_many(INPUTS, questions, think=15)

    for many in (found, asyncio.run(story())):
        assert [each.reasoning for each in many] == [each.reasoning for each in expected]
        for one, alone in zip(many, expected, strict=True):
            for answer, other in zip(one.answers, alone.answers, strict=True):
                # Small probabilities differ more, because shared passes round differently.
                near = pytest.approx(other.distribution, rel=0.02, abs=1e-3)
                assert answer.distribution == near
    assert len({each.reasoning for each in found}) > 1
    assert found[0].to_dict()["reasoning"] == found[0].reasoning


def test_reasonings_about_many_inputs_share_forward_passes(tiny_model: Model) -> None:
    def passes(at_once: int) -> int:
        before = tiny_model.describe()["passes"]["run"]
        tiny_model.decide_many(
            INPUTS * 3, [Predicate("It is a greeting.")], think=40, max_concurrency=at_once
        )
        return int(tiny_model.describe()["passes"]["run"]) - before

    assert passes(8) < passes(1)


def test_a_cancelled_decision_ends_while_it_reasons(tiny_model: Model) -> None:
    plan = plan_of(tiny_model.session, Predicate("It is a greeting."), {"think": 2000})
    task = decision_task(tiny_model.session, "hello", plan)
    task.cancel()
    with pytest.raises(GenerationCancelledError):
        task.run()


def test_messages_are_followed_by_the_reasoning(tiny_model: Model) -> None:
    messages = [{"role": "user", "content": "What is your name?"}]
    found = tiny_model.choose(messages, LABELS, think=12)
    assert found.reasoning == tiny_model.choose(PROMPT, LABELS, think=12).reasoning


def test_a_wrong_request_fails_before_the_model_reasons(tiny_model: Model) -> None:
    before = tiny_model.describe()["passes"]
    with pytest.raises(InvalidArgumentError, match="think must be"):
        tiny_model.choose(PROMPT, LABELS, think=-1)
    with pytest.raises(InvalidArgumentError, match="labels"):
        tiny_model.choose(PROMPT, ["a", "a"], think=20)
    with pytest.raises(InvalidArgumentError, match="think must be"):
        tiny_model.decide_many(["hi"], [Predicate("It is a greeting.")], think=-1)
    with pytest.raises(InvalidArgumentError, match="prompt must be a string, a Prompt"):
        tiny_model.decide("hi", [Predicate("It is a greeting.")], think=20, prompt=lambda *_: 5)
    assert tiny_model.describe()["passes"] == before


def test_tool_calls_after_a_reasoning_have_its_counts(tiny_model: Model) -> None:
    plain = tiny_model.call_tools(HELLO, [TOOL], "required", max_calls=1)
    found = tiny_model.call_tools(HELLO, [TOOL], "required", max_calls=1, think=8)
    assert isinstance(plain, ToolCalls) and isinstance(found, ToolCalls)
    opened = len(tiny_model.tokenize("<think>\n", parse_special=True))
    assert found.prompt_tokens == plain.prompt_tokens + opened
    assert 8 < found.generated_tokens < 8 + 60
    again = tiny_model.call_tools(HELLO, [TOOL], "required", max_calls=1, think=8)
    assert isinstance(again, ToolCalls)
    assert 0 < again.cached_tokens < again.prompt_tokens
    assert again.generated_tokens == found.generated_tokens


def test_a_truncated_turn_after_a_reasoning_is_truncated(tiny_model: Model) -> None:
    run = tools_run(
        *(tiny_model.session, HELLO, [TOOL], "required"),
        think=8,
        max_tokens=1,
        ends_at_limit=True,
        method="call_tools",
    )
    *_, calls = run.steps()
    assert isinstance(calls, ToolCalls) and calls.is_truncated and not calls


def test_an_answer_in_words_after_a_reasoning_has_the_counts_of_the_prompt(
    tiny_model: Model,
) -> None:
    session = tiny_model.session
    words = tiny_model.call_tools(HELLO, [TOOL], think=8, max_tokens=4)
    assert isinstance(words, TextAnswer)
    opened = len(session.tokenize("<think>\n", False, True))
    format = session.call_format({"close_reasoning": False})
    assert format.lead == format.cut == ""
    request, _ = tool_request(session, HELLO, [TOOL], close_reasoning=False)
    assert words.prompt_tokens == len(request.prompt_tokens) + opened
    assert words.cached_tokens < words.prompt_tokens


def test_pieces_of_the_reasoning_are_yielded_before_the_answer(tiny_model: Model) -> None:
    told: list[thinking.Reasoning] = []
    think = thinking.Thinking(10, with_steps=True, on_end=told.append)
    *pieces, found = choice_run(
        tiny_model.session, PROMPT, LABELS, method="choose", think=think
    ).steps()
    assert len(pieces) > 1 and all(isinstance(each, ReasoningPiece) for each in pieces)
    assert "".join(pieces) == found.reasoning == told[0].text
    assert told[0].n_generated == 10
    assert told[0].n_prompt == len(tiny_model.prompt_tokens(PROMPT + "<think>\n"))


def test_the_usage_of_a_decision_includes_the_reasoning(tiny_model: Model) -> None:
    question = Predicate("It is about money.")
    alone = tiny_model.decide("I was charged twice", question).usage
    passes = tiny_model.describe()["passes"]["run"]
    found = tiny_model.decide("I was charged twice", question, think=6)
    assert found.usage.forward_passes == tiny_model.describe()["passes"]["run"] - passes
    assert found.usage.reasoning_tokens > 0 == alone.reasoning_tokens
    assert found.usage.input_tokens > 1.5 * alone.input_tokens
    both = found.usage + alone
    assert both.reasoning_tokens == found.usage.reasoning_tokens
    assert both.input_tokens == found.usage.input_tokens + alone.input_tokens
