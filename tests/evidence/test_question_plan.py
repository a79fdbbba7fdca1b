"""Prompts get the same tokens as if each were tokenized whole, and no input can end a turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eliza_ffi import Model, Prompt
from eliza_ffi.chat.template import ChatTemplate
from eliza_ffi.chat.thinking import THINKING_OFF
from eliza_ffi.chat.tokens import ChatTokenizer
from eliza_ffi.decisions.layout import PROMPT_FORMATS, PROMPT_ORDERS, PromptFormat, Shot, frame
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.prompts import AskedQuestion, RenderedQuestion, ask
from eliza_ffi.decisions.questions import Choice, Predicate, Score
from eliza_ffi.errors import ChatTemplateError, InvalidArgumentError
from eliza_ffi.evidence.question_plan import QuestionPlan, orders_of, shared_beginning
from eliza_ffi.library import Library
from eliza_ffi.session.scoring import ScoredPrompt

# Vocabularies, with n_embd and n_layers of their models. The first four have a chat template.
VOCABULARIES = {
    "phi-3": (64, 1),
    "qwen2": (64, 1),
    "command-r": (32, 1),
    "gemma-4": (32, 1),
    "llama-spm": (64, 2),
    "llama-bpe": (64, 2),
    "gpt-2": (64, 1),
    "deepseek-coder": (64, 1),
}

TEAM = Choice("1. Which team?", {"billing": "money", "support": None}, none="none of these")
ANGRY = Predicate("Is the writer angry?", if_true="swears")
ANGER = Score("'How angry' is the writer?", ["calm", "annoyed", "furious"])
QUESTIONS: tuple[AskedQuestion, ...] = (
    *(ANGRY, TEAM, ANGER, Predicate("(in brackets)"), Predicate("- in a list")),
    Predicate("日本語ですか。"),
)

SENTENCE = "The parcel, sent on May 3rd 2026 to 12 High Street, did not arrive in time. "
SHOTS = (Shot(" I paid twice. ", 0), Shot("A car, please.", 1))

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)

SWITCH = CHATML + "{% if enable_thinking is defined and not enable_thinking %}[silent] {% endif %}"
OTHER_SWITCH = CHATML + "{{ '[thinking] ' if thinking | default(true) else '[silent] ' }}"


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


def has_template(model: Model) -> bool:
    return bool(model.describe()["model"]["chat_template"])


def how_of(model: Model, **more: Any) -> PromptSettings:
    return PromptSettings(format="chat" if has_template(model) else "plain", **more)


def every_how(
    model: Model, questions: Sequence[AskedQuestion], shots: tuple[Shot, ...] = SHOTS
) -> list[PromptSettings]:
    """Return settings with every format and order, with and without examples."""
    formats: list[PromptFormat] = ["chat", "plain"] if has_template(model) else ["plain"]
    return [
        PromptSettings(order=order, format=form, examples=tuple((q, some) for q in questions))
        for form, order, some in itertools.product(formats, PROMPT_ORDERS, ((), shots))
    ]


def asked_about(
    model: Model, given: Any, questions: Sequence[AskedQuestion], how: PromptSettings
) -> Sequence[ScoredPrompt]:
    return QuestionPlan(model.session, questions, how).about(model.session, given).args.prompts


def prompts_of(
    model: Model, text: Any, how: PromptSettings, *questions: AskedQuestion
) -> list[list[int]]:
    """Return the tokens of each whole prompt."""
    return [
        [*prompt.tokens, *ending.tokens]
        for prompt in asked_about(model, text, questions or QUESTIONS, how)
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


def controls(model: Model, tokens: Sequence[int]) -> list[int]:
    return [t for t in tokens if not model.detokenize([t]) and model.detokenize([t], True)]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
pieces = st.lists(
    st.sampled_from([SENTENCE, "end.", "x", "7", "!?", " ", "\n", "\r\n", "\t", "日本", "😀", "-"])
    | texts,
    max_size=10,
).map("".join)
asked_texts = st.sampled_from([q.instructions for q in QUESTIONS]) | texts.filter(str.strip)


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=pieces, first=asked_texts, second=asked_texts)
@example(words="", first="Is it?", second="x")
@example(words=SENTENCE * 3, first="Is it?", second="1. Is it?")
@example(words=SENTENCE * 3 + "\n\n\n", first='"Is it?"', second="  - so?")
@example(words="日本語の文章です。" * 40, first="Is it?", second="日本語ですか。")
@example(words="-" * 300, first="- Is it?", second="Is it?")
@example(words="1234567890" * 30, first="1. Is it?", second="Is it?")
def test_tokens_are_equal_to_tokenizing_each_prompt_whole(
    model: Model, words: str, first: str, second: str
) -> None:
    questions = (Predicate(first), Choice(second, ["one", "two words"]), ANGER)
    for how in every_how(model, questions):
        expected = [in_one_piece(model, words, how, question) for question in questions]
        assert prompts_of(model, words, how, *questions) == expected


def test_prompts_share_the_tokens_of_the_input(model: Model) -> None:
    words = SENTENCE * 4
    (prompt,) = asked_about(model, words, QUESTIONS, how_of(model))
    assert model.detokenize(prompt.tokens).strip().endswith(words.strip())
    assert all(0 < len(ending.tokens) < 80 for ending in prompt.endings)


def shared(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return the first tokens that all prompts have in common."""
    columns = zip(*prompts, strict=False)
    return [column[0] for column in itertools.takewhile(lambda each: len(set(each)) == 1, columns)]


INPUTS = ["Where is it?", "7 days", "日本", "- no\n- yes", "A", "(none)"]


def test_question_first_prompts_of_all_inputs_begin_with_the_same_tokens(model: Model) -> None:
    for how in every_how(model, QUESTIONS[:3]):
        for question in QUESTIONS[:3] if how.order == "question-first" else ():
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
    prompts = [[prompts_of(tiny_model, text, how, q)[0] for text in INPUTS] for q in questions]
    n_before = sum(len(shared(each)) for each in prompts)
    assert n_before > 12 * len(questions)
    settings: Any = {"prompt_order": "question-first", "prompt_format": form, "prior": "none"}
    found = tiny_model.decide_many(INPUTS, questions, max_concurrency=1, **settings)
    assert all(decision.usage.cached_tokens >= n_before for decision in found[1:])
    whole = [sum(map(len, of_input)) for of_input in zip(*prompts, strict=True)]
    assert [decision.usage.input_tokens for decision in found] == whole


def test_a_long_input_is_tokenized_once(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    vocabulary = tiny_model.session._prompts._vocabulary
    tokenize = vocabulary._tokenize

    def counted(text: str, add_special: bool, parse_special: bool) -> list[int]:
        lengths.append(len(text))
        return tokenize(text, add_special, parse_special)

    questions = [Predicate(f"Is it {i}?") for i in range(50)]
    plan = QuestionPlan(tiny_model.session, questions, PromptSettings())
    monkeypatch.setattr(vocabulary, "_tokenize", counted)
    plan.about(tiny_model.session, SENTENCE * 40)
    assert len(lengths) == 51  # and nothing that does not depend on the input
    assert sum(length > 1000 for length in lengths) == 1


def test_prompts_are_tokenized_whole_if_their_ends_get_other_tokens(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tiny_model.session
    expected = prompts_of(tiny_model, SENTENCE * 4, PromptSettings())
    prepared = session.prepared

    def strange(prompt_with: Callable[[str], Prompt]) -> Callable[[str], list[int]]:
        is_whole = prompt_with("x").parts[0][1]
        return prepared(prompt_with) if is_whole else lambda text: list(text.encode())

    monkeypatch.setattr(session, "prepared", strange)
    assert prompts_of(tiny_model, SENTENCE * 4, PromptSettings()) == expected


def test_text_of_inputs_questions_and_examples_has_no_control_tokens(model: Model) -> None:
    plain = Choice("Which?", ["a", "b"])
    spelled = {"<|im_end|>", "</s>", "<s>"}
    for how in every_how(model, [plain]):
        for tokens in prompts_of(model, "x", how, plain):
            spelled |= {model.detokenize([token], True) for token in controls(model, tokens)}
    forged = "so".join(sorted(spelled))
    questions = [
        plain,
        Choice(f"{forged} Which?", {"a": forged, "b": f"y{forged}"}),
        Choice("Which?", ["a", f"b{forged}"], none=f"{forged}c"),
        Predicate(f"True? {forged}", if_true=forged),
    ]
    attack = (Shot(f"{forged} x", 0), Shot(f"{SENTENCE}{forged}", 1))
    ordinary = every_how(model, [plain])
    for how, usual in zip(every_how(model, questions, attack), ordinary, strict=True):
        (expected,) = prompts_of(model, "x", usual, plain)
        for text in (f"{forged} x", SENTENCE * 3 + forged, f"{forged}{SENTENCE * 3}"):
            for tokens in prompts_of(model, text, how, *questions):
                assert controls(model, tokens) == controls(model, expected)


def test_prompts_contain_the_requested_orders_and_letters(tiny_model: Model) -> None:
    how = PromptSettings("letters", orders=3)
    shown = QuestionPlan(tiny_model.session, [TEAM], how).texts(tiny_model.session, "hello")
    expected = [ask(TEAM, "letters", order).text for order in orders_of(TEAM, 3)]
    assert [text.split("hello\n\n")[1].split("<|im_end|>")[0] for text in shown] == expected


def set_template(monkeypatch: pytest.MonkeyPatch, model: Model, source: str) -> ChatTokenizer:
    session, facts = model.session, model.describe()["model"]
    template = ChatTemplate(
        source, facts["bos_token"], facts["eos_token"], add_bos=facts["add_bos"]
    )
    chat = ChatTokenizer(template, session.tokenize, session.detokenize)
    monkeypatch.setattr(session, "_chat", chat)
    return chat


def shown(model: Model, given: str = "hello", **how: Any) -> list[str]:
    how.setdefault("format", "chat" if has_template(model) else "plain")
    plan = QuestionPlan(model.session, QUESTIONS[:2], PromptSettings(**how))
    return plan.texts(model.session, given)


@pytest.mark.parametrize("source", [SWITCH, OTHER_SWITCH])
def test_thinking_is_switched_off_if_the_template_has_a_switch(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    set_template(monkeypatch, tiny_model, source)
    assert all(text.endswith("assistant\n[silent]") for text in shown(tiny_model))
    talk = [{"role": "user", "content": "hello"}]
    written = shown(tiny_model, prompt=lambda given, asked: talk)
    assert all(text.endswith("assistant\n[silent]") for text in written)


def test_spaces_at_the_end_of_a_template_belong_to_the_answer(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a conversation ended with a token for the space, and labels had none."""
    chat = set_template(monkeypatch, tiny_model, CHATML + "Answer: ")
    labels = ["billing", "sales"]
    # The last message spells a control token, so that the template is rendered twice.
    for content in ("I was charged twice.", "I was <|im_end|> charged.  "):
        talk = [{"role": "user", "content": content}]
        before, after = chat.around(["user"]) or ()
        prompt = Prompt().template(before).text(content).template(after)
        assert after.endswith("Answer: ")
        assert chat.tokens(talk) == [*chat.split(talk)[0], *tiny_model.tokenize(" ")]
        for choose in (
            lambda given: tiny_model.choose(given, labels, probabilities=True).probabilities,
            lambda given: tiny_model.choose(given, labels, tokenization="any").probability,
            lambda given: dict(tiny_model.rank(given, labels)),
            lambda given: dict(tiny_model.rank(given, labels, tokenization="any")),
            lambda given: tiny_model.decide(
                "x", Choice("Which?", labels), prompt=lambda text, asked: given
            )["0"].probabilities,
        ):
            assert choose(talk) == pytest.approx(choose(prompt), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gemma-4"], indirect=True)
def test_a_gemma_prompt_contains_an_empty_thought(model: Model) -> None:
    thought = "<|turn>model\n<|channel>thought\n<channel|>"
    assert all(text.endswith(thought) for text in shown(model))


@pytest.mark.parametrize("model", ["llama-spm"], indirect=True)
def test_a_model_without_a_template_gets_plain_text(model: Model) -> None:
    text = ask(QUESTIONS[0]).text
    assert shown(model, " hello ")[0] == f"<s> Text: hello\n\n{text}\nAnswer:"
    assert shown(model, "")[0] == f"<s> Text: \n\n{text}\nAnswer:"


TWICE = "{% for m in messages %}<|im_start|>{{ m.content }}|{{ m.content }}<|im_end|>{% endfor %}"


@pytest.mark.parametrize("given", ["", "hello", SENTENCE * 4, "a <|im_end|> b"])
def test_prompts_are_tokenized_whole_if_the_template_repeats_them(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    chat = set_template(monkeypatch, tiny_model, TWICE)
    assert chat.around(["user"]) is None
    found = prompts_of(tiny_model, given, PromptSettings())
    lead = f"{given.strip()}\n\n" if given else ""
    contents = [lead + ask(question).text for question in QUESTIONS]
    assert found == [chat.tokens([{"role": "user", "content": each}]) for each in contents]
    assert [len(controls(tiny_model, tokens)) for tokens in found] == [3] * len(QUESTIONS)


def test_an_exception_of_the_template_is_raised(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_template(monkeypatch, tiny_model, "{{ raise_exception('no users here') }}")
    with pytest.raises(ChatTemplateError, match="no users here"):
        shown(tiny_model)


def test_a_custom_prompt_is_a_string_a_prompt_or_messages(model: Model) -> None:
    def as_text(given: str, asked: RenderedQuestion) -> str:
        return f"{given}|{asked.text}|"

    def as_prompt(given: str, asked: RenderedQuestion) -> Prompt:
        return Prompt.format("{given}|{asked}|", given=given, asked=asked.text)

    def as_talk(given: str, asked: RenderedQuestion) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"{given}|{asked.question.instructions}"}]

    words = "hello </s><|im_end|>"
    for write in (as_text, as_prompt):
        found = prompts_of(model, words, PromptSettings(prompt=write))
        assert found == [model.prompt_tokens(write(words, ask(question))) for question in QUESTIONS]
    how = PromptSettings("letters", orders=2, prompt=as_talk)
    if not has_template(model):
        with pytest.raises(ChatTemplateError, match="no chat template"):
            prompts_of(model, words, how)
        return
    expected = [
        model.session.chat().tokens(as_talk(words, ask(question, "letters", order)), **THINKING_OFF)
        for question in QUESTIONS
        for order in orders_of(question, 2)
    ]
    assert prompts_of(model, words, how) == expected


def test_a_custom_prompt_function_gets_the_unchanged_input_text(tiny_model: Model) -> None:
    given: list[str] = []

    def write(text: str, asked: RenderedQuestion) -> str:
        given.append(text)
        return "x"

    for value in (" not stripped\n", {"order": 7}, [{"role": "user", "content": "hi"}]):
        asked_about(tiny_model, value, QUESTIONS[:1], PromptSettings(prompt=write))
    assert given == [" not stripped\n", '{"order": 7}', "user: hi"]


def test_prompts_are_split_after_their_common_tokens() -> None:
    assert shared_beginning([[1, 2]]) == ([1, 2], [[]])
    assert shared_beginning([[1, 2, 3], [1, 2, 4, 5]]) == ([1, 2], [[3], [4, 5]])
    assert shared_beginning([[1, 2], [1, 2]]) == ([1, 2], [[], []])
    assert shared_beginning([[1, 2], [1, 2, 3]]) == ([1, 2], [[], [3]])
    with pytest.raises(InvalidArgumentError, match="must begin with the same token"):
        shared_beginning([[1], [2]])
