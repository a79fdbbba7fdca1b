"""The exact text of the prompts."""

from __future__ import annotations

import pytest

from eliza_ffi import Model
from eliza_ffi.decisions.layout import (
    PROMPT_FORMATS,
    PROMPT_ORDERS,
    PromptFormat,
    PromptOrder,
    Shot,
    frame,
)
from eliza_ffi.decisions.prompts import RenderedQuestion, ask
from eliza_ffi.decisions.questions import Choice, Predicate, Score

TEAM = Choice("Which team?", {"billing": "money", "sales": None})
HIDDEN = Choice("Which team?", {"billing": "money", "sales": None}, show_options=False)
MANY = Choice("Which number?", [f"number {i}" for i in range(300)])

SHOTS = (Shot(" I paid twice. ", 0), Shot("A car, please.", 1))

ANGRY = Predicate("Is the writer angry?", if_true="swears")
ANGER = Score("How angry?", ["calm", ("cross", "shouts")])
# Questions, whether their text lists the options, and their first two labels.
QUESTIONS: dict[str, tuple[RenderedQuestion, bool, tuple[str, str]]] = {
    "described": (ask(TEAM), True, ("billing", "sales")),
    "letters": (ask(TEAM, "letters"), True, ("A", "B")),
    "predicate": (ask(ANGRY), True, ("yes", "no")),
    "score": (ask(ANGER), True, ("calm", "cross")),
    "many": (ask(MANY), False, ("number 0", "number 1")),
    "searched": (RenderedQuestion(MANY, (), ()), False, ("number 0", "number 1")),
    "hidden": (ask(HIDDEN), False, ("billing", "sales")),
}
# What a plain prompt contains before the examples if the question comes first, where it is not
# the text of the question.
LEAD = {
    "described": "Which team?\n\nText: money\nAnswer: billing\n\nText: sales\nAnswer: sales",
    "score": "How angry?\n\nText: calm\nAnswer: calm\n\nText: shouts\nAnswer: cross",
}


def text_of(
    name: str, form: PromptFormat, order: PromptOrder, shots: tuple[Shot, ...] = ()
) -> list[tuple[str, str]]:
    """Return the messages of a prompt; plain text as a single one without a role."""
    found = frame(QUESTIONS[name][0], form, order, shots)
    role = "user" if form == "chat" else ""
    return [*found.turns, (role, found.with_input("Hello."))]


def parts_of(name: str) -> tuple[str, str, str]:
    """Return the text of a question, which `test_prompts.py` checks, and its first labels."""
    asked, lists_options, labels = QUESTIONS[name]
    return asked.text if lists_options else asked.question.instructions, *labels


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_chat_shows_the_question_once_or_after_each_input(name: str) -> None:
    question, one, two = parts_of(name)
    assert text_of(name, "chat", "question-first") == [("user", f"{question}\n\nHello.")]
    assert text_of(name, "chat", "question-first", SHOTS) == [
        ("user", f"{question}\n\nI paid twice."),
        ("assistant", one),
        ("user", "A car, please."),
        ("assistant", two),
        ("user", "Hello."),
    ]
    assert text_of(name, "chat", "input-first") == [("user", f"Hello.\n\n{question}")]
    assert text_of(name, "chat", "input-first", SHOTS) == [
        ("user", f"I paid twice.\n\n{question}"),
        ("assistant", one),
        ("user", f"A car, please.\n\n{question}"),
        ("assistant", two),
        ("user", f"Hello.\n\n{question}"),
    ]


@pytest.mark.parametrize("name", QUESTIONS)
def test_plain_text_shows_the_question_once_or_after_each_input(name: str) -> None:
    question, one, two = parts_of(name)
    lead = f"{LEAD.get(name, question)}\n\n"
    end = "Text: Hello.\nAnswer: "
    examples = f"Text: I paid twice.\nAnswer: {one}\n\nText: A car, please.\nAnswer: {two}\n\n"
    assert text_of(name, "plain", "question-first") == [("", lead + end)]
    assert text_of(name, "plain", "question-first", SHOTS) == [("", lead + examples + end)]
    end = f"Text: Hello.\n\n{question}\nAnswer: "
    examples = (
        f"Text: I paid twice.\n\n{question}\nAnswer: {one}\n\n"
        f"Text: A car, please.\n\n{question}\nAnswer: {two}\n\n"
    )
    assert text_of(name, "plain", "input-first") == [("", end)]
    assert text_of(name, "plain", "input-first", SHOTS) == [("", examples + end)]


@pytest.mark.parametrize("form", PROMPT_FORMATS)
@pytest.mark.parametrize("order", PROMPT_ORDERS)
def test_examples_name_the_same_option_in_every_order_of_the_options(
    form: PromptFormat, order: PromptOrder
) -> None:
    for labels, expected in (("text", "sales"), ("letters", "A")):
        backwards = ask(TEAM, labels, [1, 0])  # type: ignore[arg-type]
        shown = frame(backwards, form, order, (Shot("x", 1),))
        assert expected in (shown.turns[1][1] if form == "chat" else shown.before.split())


def test_plain_options_are_examples_in_the_shown_order() -> None:
    before = frame(ask(TEAM, "text", [1, 0]), "plain", "question-first").before
    assert before.startswith("Which team?\n\nText: sales\nAnswer: sales\n\nText: money\n")


@pytest.mark.parametrize("order", PROMPT_ORDERS)
def test_an_empty_input_leaves_no_line_breaks_in_a_chat(order: PromptOrder) -> None:
    assert frame(ask(TEAM), "chat", order).with_input("") == ask(TEAM).text


def test_decision_prompts_are_the_layout_without_the_space_at_the_end(plain_model: Model) -> None:
    for order in PROMPT_ORDERS:
        (prompt,) = plain_model.decision_prompts(" Hello.\n", TEAM, prompt_order=order)
        (expected,) = text_of("described", "plain", order)
        assert prompt == f"<s> {expected[1]}".rstrip(" ")
