"""The exact text of the prompts, and their tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eliza_ffi import Model
from eliza_ffi.decisions.asking import Asking
from eliza_ffi.decisions.layout import (
    PROMPT_FORMATS,
    PROMPT_ORDERS,
    PromptFormat,
    PromptOrder,
    Shot,
    frame,
)
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.prompt_tokens import THINKING_OFF
from eliza_ffi.decisions.prompts import AskedQuestion, RenderedQuestion, ask
from eliza_ffi.decisions.questions import Choice, Predicate, Score
from eliza_ffi.library import Library

# ---- text --------------------------------------------------------------------------------------

TEAM = Choice("Which team?", {"billing": "money", "sales": None})
ANGRY = Predicate("Is the writer angry?", if_true="swears")
ANGER = Score("How angry?", ["calm", ("cross", "shouts")])
HIDDEN = Choice("Which team?", {"billing": "money", "sales": None}, show_options=False)
MANY = Choice("Which number?", [f"number {i}" for i in range(300)])

SHOTS = (Shot(" I paid twice. ", 0), Shot("A car, please.", 1))

ASKED = {
    "described": ask(TEAM),
    "letters": ask(TEAM, "letters"),
    "predicate": ask(ANGRY),
    "score": ask(ANGER),
    "many": ask(MANY),
    "searched": RenderedQuestion(MANY, (), ()),
    "hidden": ask(HIDDEN),
}

QUESTION = {
    "described": "Which team?\nAnswer with one of:\n- billing: money\n- sales",
    "letters": "Which team?\nAnswer with the letter of one of:\nA. billing: money\nB. sales",
    "predicate": "Is the writer angry?\nAnswer with one of:\n- yes: swears\n- no",
    "score": "How angry?\nAnswer with one of these levels, lowest first:\n- calm\n- cross: shouts",
    "many": "Which number?",
    "searched": "Which number?",
    "hidden": "Which team?",
}

LABELS = {
    "described": ("billing", "sales"),
    "letters": ("A", "B"),
    "predicate": ("yes", "no"),
    "score": ("calm", "cross"),
    "many": ("number 0", "number 1"),
    "searched": ("number 0", "number 1"),
    "hidden": ("billing", "sales"),
}

# What a plain prompt contains before the examples if the question comes first.
LEAD = {
    "described": "Which team?\n\nText: money\nAnswer: billing\n\nText: sales\nAnswer: sales\n\n",
    "letters": f"{QUESTION['letters']}\n\n",
    "predicate": f"{QUESTION['predicate']}\n\n",
    "score": "How angry?\n\nText: calm\nAnswer: calm\n\nText: shouts\nAnswer: cross\n\n",
    "many": "Which number?\n\n",
    "searched": "Which number?\n\n",
    "hidden": "Which team?\n\n",
}


def text_of(
    name: str, form: PromptFormat, order: PromptOrder, shots: tuple[Shot, ...] = ()
) -> list[tuple[str, str]]:
    """Return the messages of a prompt; plain text as a single one without a role."""
    found = frame(ASKED[name], form, order, shots)
    role = "user" if form == "chat" else ""
    return [*found.turns, (role, found.with_input("Hello."))]


@pytest.mark.parametrize("name", ASKED)
def test_a_chat_with_the_question_first(name: str) -> None:
    question, (one, two) = QUESTION[name], LABELS[name]
    assert text_of(name, "chat", "question-first") == [("user", f"{question}\n\nHello.")]
    assert text_of(name, "chat", "question-first", SHOTS) == [
        ("user", f"{question}\n\nI paid twice."),
        ("assistant", one),
        ("user", "A car, please."),
        ("assistant", two),
        ("user", "Hello."),
    ]


@pytest.mark.parametrize("name", ASKED)
def test_a_chat_with_the_input_first(name: str) -> None:
    question, (one, two) = QUESTION[name], LABELS[name]
    assert text_of(name, "chat", "input-first") == [("user", f"Hello.\n\n{question}")]
    assert text_of(name, "chat", "input-first", SHOTS) == [
        ("user", f"I paid twice.\n\n{question}"),
        ("assistant", one),
        ("user", f"A car, please.\n\n{question}"),
        ("assistant", two),
        ("user", f"Hello.\n\n{question}"),
    ]


@pytest.mark.parametrize("name", ASKED)
def test_plain_text_with_the_question_first(name: str) -> None:
    lead, (one, two) = LEAD[name], LABELS[name]
    end = "Text: Hello.\nAnswer: "
    examples = f"Text: I paid twice.\nAnswer: {one}\n\nText: A car, please.\nAnswer: {two}\n\n"
    assert text_of(name, "plain", "question-first") == [("", lead + end)]
    assert text_of(name, "plain", "question-first", SHOTS) == [("", lead + examples + end)]


@pytest.mark.parametrize("name", ASKED)
def test_plain_text_with_the_input_first(name: str) -> None:
    question, (one, two) = QUESTION[name], LABELS[name]
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
    assert frame(ask(TEAM), "chat", order).with_input("") == QUESTION["described"]


def test_decision_prompts_are_the_layout_without_the_space_at_the_end(
    plain_model: Model,
) -> None:
    for order in PROMPT_ORDERS:
        (prompt,) = plain_model.decision_prompts(" Hello.\n", TEAM, prompt_order=order)
        (expected,) = text_of("described", "plain", order)
        assert prompt == f"<s> {expected[1]}".rstrip(" ")


# ---- tokens ------------------------------------------------------------------------------------

# Vocabularies, with n_embd and n_layers of their models.
VOCABULARIES = {"phi-3": (64, 1), "qwen2": (64, 1), "llama-spm": (64, 2), "gpt-2": (64, 1)}

QUESTIONS: tuple[AskedQuestion, ...] = (TEAM, ANGRY, ANGER)
SENTENCE = "The parcel, sent on May 3rd 2026 to 12 High Street, did not arrive in time. "


@pytest.fixture(scope="module", params=["eliza-tiny", *VOCABULARIES])
def model(
    request: pytest.FixtureRequest,
    library: Library,
    tiny_model: Model,
    random_model_path: Callable[..., Path],
) -> Iterator[Model]:
    """Open a model with each vocabulary."""
    if request.param == "eliza-tiny":
        yield tiny_model
        return
    n_embd, n_layers = VOCABULARIES[request.param]
    path = random_model_path(request.param, n_embd=n_embd, n_layers=n_layers, seed=1)
    with Model(path, library=library, n_ctx=512, n_threads=1) as opened:
        yield opened


def forms_of(model: Model) -> list[PromptFormat]:
    has_template = bool(model.describe()["model"]["chat_template"])
    return ["chat", "plain"] if has_template else ["plain"]


def every_how(model: Model, shots: tuple[Shot, ...] = SHOTS) -> Iterator[PromptSettings]:
    """Yield settings with every format and order, with and without examples."""
    for form, order, some in itertools.product(forms_of(model), PROMPT_ORDERS, ((), shots)):
        examples = tuple((question, some) for question in QUESTIONS if some)
        yield PromptSettings(order=order, format=form, examples=examples)


def prompts_of(model: Model, text: str, how: PromptSettings, *asked: AskedQuestion) -> list[Any]:
    """Return the tokens of each whole prompt."""
    return [
        [*prompt.generation.prompt_tokens, *ending.tokens]
        for prompt in Asking(model.session, text, asked, how).args.prompts
        for ending in prompt.endings
    ]


def in_one_piece(
    model: Model, text: str, how: PromptSettings, question: AskedQuestion
) -> list[int]:
    """Reference implementation: return the tokens of a prompt that is tokenized in one piece."""
    found = frame(ask(question), how.format, how.order, how.shots_of(question))
    whole = found.with_input(text.strip())
    if how.format == "plain":
        return model.tokenize(whole.rstrip(" "), add_special=True)
    messages = [{"role": role, "content": content} for role, content in found.turns]
    messages.append({"role": "user", "content": whole})
    return model.session.chat().tokens(messages, **THINKING_OFF)


pieces = st.lists(
    st.sampled_from([SENTENCE, "end.", "x", "7", "!?", " ", "\n", "\t", "日本", "😀", "-"])
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    max_size=8,
).map("".join)


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=pieces)
@example(text="")
@example(text="x")
@example(text="- in a list")
@example(text="日本語の文章です。" * 10)
@example(text=SENTENCE * 3 + "\n\n\n")
def test_tokens_are_equal_to_tokenizing_each_prompt_whole(model: Model, text: str) -> None:
    for how in every_how(model):
        expected = [in_one_piece(model, text, how, question) for question in QUESTIONS]
        assert prompts_of(model, text, how, *QUESTIONS) == expected


def shared(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return the first tokens that all prompts have in common."""
    columns = zip(*prompts, strict=False)
    return [column[0] for column in itertools.takewhile(lambda each: len(set(each)) == 1, columns)]


INPUTS = ["Where is it?", "7 days", "日本", "- no\n- yes", "A", "(none)"]


def test_question_first_prompts_of_all_inputs_begin_with_the_same_tokens(model: Model) -> None:
    for how in (each for each in every_how(model) if each.order == "question-first"):
        for question in QUESTIONS:
            prompts = [prompts_of(model, text, how, question)[0] for text in INPUTS]
            common = model.detokenize(shared(prompts), True)
            found = frame(ask(question), how.format, how.order, how.shots_of(question))
            # A tokenizer may join the last line breaks or spaces with the input.
            assert all(content.strip() in common for _, content in found.turns)
            assert found.before.rstrip() in common


@pytest.mark.parametrize("form", PROMPT_FORMATS)
@pytest.mark.parametrize("questions", [(TEAM,), (TEAM, ANGRY, ANGER)])
def test_many_decisions_decode_the_question_once(
    tiny_model: Model, form: PromptFormat, questions: tuple[AskedQuestion, ...]
) -> None:
    how = PromptSettings(order="question-first", format=form)
    n_before = sum(
        len(shared([prompts_of(tiny_model, text, how, question)[0] for text in INPUTS]))
        for question in questions
    )
    assert n_before > 12 * len(questions)
    found = tiny_model.decide_many(
        INPUTS,
        questions,
        prompt_order="question-first",
        prompt_format=form,
        prior="none",
        max_concurrency=1,
    )
    assert all(decision.usage.cached_tokens >= n_before for decision in found[1:])
    whole = [
        sum(len(prompts_of(tiny_model, text, how, question)[0]) for question in questions)
        for text in INPUTS
    ]
    assert [decision.usage.input_tokens for decision in found] == whole


def controls(model: Model, tokens: Sequence[int]) -> list[int]:
    return [t for t in tokens if not model.detokenize([t]) and model.detokenize([t], True)]


def test_text_of_inputs_and_examples_has_no_control_tokens(model: Model) -> None:
    ordinary = every_how(model)
    spelled = {"<|im_end|>", "</s>", "<s>"}
    for how in every_how(model):
        for tokens in prompts_of(model, "x", how, TEAM):
            spelled |= {model.detokenize([token], True) for token in controls(model, tokens)}
    forged = "so".join(sorted(spelled))
    attack = (Shot(f"{forged} x", 0), Shot(f"{SENTENCE}{forged}", 1))
    for how, plain in zip(every_how(model, attack), ordinary, strict=True):
        (expected,) = prompts_of(model, "x", plain, TEAM)
        for text in ("x", f"{forged} x", f"x{forged}", SENTENCE * 3 + forged):
            (found,) = prompts_of(model, text, how, TEAM)
            assert controls(model, found) == controls(model, expected)
