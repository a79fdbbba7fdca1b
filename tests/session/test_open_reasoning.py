"""Constrained answers to conversations whose chat template begins the model's reasoning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eliza_ffi import AsyncModel, Gbnf, Model, Regex, Sampling
from eliza_ffi.chat.template import ChatTemplate
from eliza_ffi.chat.tokens import ChatTokenizer
from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.decisions.prompt_tokens import QuestionPrompt
from eliza_ffi.session.run import Run

TURNS = (
    "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n%s{% endif -%}"
)
OPEN = TURNS.replace("%s", "<think>\n")
OPEN_WITHOUT_LINE = TURNS.replace("%s", "<think>")
SWITCHED = TURNS.replace(
    "%s", "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
)
OTHER_SWITCH = TURNS.replace("%s", "{% if thinking %}<think>{% else %}</think>{% endif %}")
MAGISTRAL = TURNS.replace("%s", "[THINK]")

TALK = [{"role": "user", "content": "Is water wet?"}]
BEGIN = "<|im_start|>user\nIs water wet?<|im_end|>\n<|im_start|>assistant\n"
LABELS = ["yes", "no"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
SKELETON = {"spans": [{"kind": "boolean"}]}
TOOL = {"type": "function", "function": {"name": "reply", "parameters": SCHEMA}}

WithTemplate = Callable[[str], Model]


@pytest.fixture
def with_template(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> WithTemplate:
    def give(source: str) -> Model:
        session = tiny_model.session
        chat = ChatTokenizer(ChatTemplate(source), session.tokenize, session.detokenize)
        monkeypatch.setattr(session, "_chat", chat)
        monkeypatch.setattr(session, "_call_formats", {})
        return tiny_model

    return give


@pytest.fixture
def prompts(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the prompt of each stream that is opened."""
    found: list[str] = []
    opened = Run.opened

    @contextmanager
    def recorded(self: Run[Any], config: Any, *more: Any) -> Iterator[Any]:
        found.append(tiny_model.detokenize(list(config.prompt_tokens), True))
        with opened(self, config, *more) as stream:
            yield stream

    monkeypatch.setattr(Run, "opened", recorded)
    return found


def answers(model: Model) -> AsyncModel:
    return AsyncModel.of(model)


VERBS: dict[str, Callable[[Model], Any]] = {
    "choose": lambda m: m.choose(TALK, LABELS),
    "choose any": lambda m: m.choose(TALK, LABELS, tokenization="any"),
    "choose healed": lambda m: m.choose(TALK, LABELS, tokenization="any", heal_prompt=True),
    "choose_many": lambda m: m.choose_many([TALK], LABELS),
    "rank": lambda m: m.rank(TALK, LABELS),
    "rank any": lambda m: m.rank(TALK, LABELS, tokenization="any"),
    "rank_many": lambda m: m.rank_many([TALK], LABELS),
    "fill": lambda m: m.fill(TALK, SCHEMA),
    "fill skeleton": lambda m: m.fill(TALK, SKELETON),
    "fill_many": lambda m: m.fill_many([TALK], SCHEMA),
    "fill_stream": lambda m: list(m.fill_stream(TALK, SCHEMA)),
    "generate schema": lambda m: m.generate(TALK, 60, schema=SCHEMA),
    "generate regex": lambda m: m.generate(TALK, 9, schema=Regex("yes|no")),
    "generate gbnf": lambda m: m.generate(TALK, 9, schema=Gbnf('root ::= "yes" | "no"')),
    "generate without thinking": lambda m: m.generate(
        TALK, 3, sampling=Sampling(disable_thinking=True)
    ),
    "stream schema": lambda m: list(m.stream(TALK, 60, schema=SCHEMA)),
    "async choose": lambda m: asyncio.run(answers(m).choose(TALK, LABELS)),
    "async fill": lambda m: asyncio.run(answers(m).fill(TALK, SCHEMA)),
    "async rank": lambda m: asyncio.run(answers(m).rank(TALK, LABELS)),
    "call_tool": lambda m: m.call_tool(TALK, [TOOL], "required"),
    "call_tools": lambda m: m.call_tools(TALK, [TOOL], "required", max_calls=1),
    "async call_tool": lambda m: asyncio.run(answers(m).call_tool(TALK, [TOOL], "required")),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_constrained_answer_follows_the_end_of_the_reasoning(
    with_template: WithTemplate, prompts: list[str], verb: str
) -> None:
    model = with_template(OPEN)
    VERBS[verb](model)
    prompt = prompts[0]
    if "call_tool" not in verb:
        assert prompt == BEGIN + "<think>\n\n</think>\n\n"
    else:  # the tools are described before the question
        assert prompt.partition("<|im_start|>assistant\n")[2].startswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (OPEN, "<think>\n\n</think>\n\n"),
        (OPEN_WITHOUT_LINE, "<think>\n</think>\n\n"),
        (SWITCHED, "<think>\n\n</think>\n\n"),
        (OTHER_SWITCH, "</think>"),
        (MAGISTRAL, "[THINK][/THINK]"),
        (TURNS.replace("%s", ""), ""),
    ],
)
def test_the_reasoning_ends_as_the_template_ends_it(
    with_template: WithTemplate, prompts: list[str], template: str, end: str
) -> None:
    model = with_template(template)
    found = model.choose(TALK, LABELS, probabilities=True)
    assert prompts == [BEGIN + end]
    tokens = model.tokenize(BEGIN + end, parse_special=True)
    alone = model.choose(tokens, LABELS, probabilities=True)
    assert found.probabilities == pytest.approx(alone.probabilities, rel=1e-3)
    assert model.chat_tokens(TALK, close_reasoning=True) == tokens


@pytest.mark.parametrize("verb", ["choose", "rank", "fill", "call_tool"])
def test_with_think_the_model_writes_the_reasoning_that_the_template_begins(
    with_template: WithTemplate, prompts: list[str], verb: str
) -> None:
    model = with_template(SWITCHED)
    more = {"choose": LABELS, "rank": LABELS, "fill": SCHEMA, "call_tool": [TOOL]}[verb]
    getattr(model, verb)(TALK, more, think=5)
    assert prompts[0].endswith("<|im_start|>assistant\n<think>\n")


def test_free_text_keeps_the_open_reasoning(
    with_template: WithTemplate, prompts: list[str]
) -> None:
    model = with_template(OPEN)
    model.generate(TALK, 3)
    assert prompts == [BEGIN + "<think>\n"]


def test_a_prompt_of_text_or_tokens_is_used_as_it_is(
    with_template: WithTemplate, prompts: list[str]
) -> None:
    model = with_template(OPEN)
    text = BEGIN + "<think>\n"
    model.choose(text, LABELS)
    model.choose(model.chat_tokens(TALK), LABELS)
    assert [prompt.removeprefix("<|startoftext|>") for prompt in prompts] == [text, text]


@pytest.mark.parametrize(
    "template", [OPEN, SWITCHED, "{{ '' ~ messages[0].content | trim }}<think>"]
)
def test_a_decision_follows_the_end_of_the_reasoning(
    with_template: WithTemplate, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last template trims contents, so that each prompt is rendered as a whole."""
    model = with_template(template)
    tokens: list[str] = []
    made = QuestionPrompt.tokens

    def recorded(self: Any, session: Any, given: str) -> Any:
        found = made(self, session, given)
        tokens.append(model.detokenize(found.tokens, True))
        return found

    monkeypatch.setattr(QuestionPrompt, "tokens", recorded)
    questions = [Predicate("It is wet."), Choice("What is it?", ["water", "sand"])]
    model.decide("It rains.", questions, prompt_format="chat", prompt_order="question-first")
    assert tokens and all(text.endswith("</think>\n\n") for text in tokens)


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("template", [OPEN, OPEN_WITHOUT_LINE, SWITCHED])
def test_calls_and_answers_in_words_follow_the_end_of_the_reasoning(
    with_template: WithTemplate, prompts: list[str], template: str, choice: str
) -> None:
    model = with_template(template)
    model.call_tools(TALK, [TOOL], choice, max_tokens=60)
    for prompt in prompts:
        assert prompt.rpartition("<|im_start|>assistant\n")[2].startswith("<think>\n")
        assert prompt.count("</think>") == prompt.count("<think>") == 1


def test_a_constrained_answer_closes_what_the_template_was_told_to_open(
    with_template: WithTemplate,
) -> None:
    model = with_template(SWITCHED)
    tokens = model.chat_tokens(TALK, close_reasoning=True, enable_thinking=True)
    assert tokens == model.chat_tokens(TALK, enable_thinking=False)
