"""Decision models that return scores: their text, marks and roles, and how they are cut.

These tests use a vocabulary of characters. `test_beside_llama_server.py` compares real vocabularies
with llama-server.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from word_vocabulary import Words

from eliza_ffi.decisions.models.decision_model import DecisionModel, QuestionPrompts
from eliza_ffi.decisions.models.marked_prompts import MASK, SEPARATOR, JointPrompt, MarkedPrompt
from eliza_ffi.decisions.models.systemone import SystemoneQuestion
from eliza_ffi.errors import ChatTemplateError, ContextFullError, InvalidArgumentError, ModelError

WORDS = Words([], ["<|box_end|>", "[MASK]", "[SEP]", "[CLS]", "<|end|>"])
METADATA: dict[str, Any] = {
    MASK: WORDS.ids["[MASK]"],
    SEPARATOR: WORDS.ids["[SEP]"],
    "max_head_tokens": 60,
}
KEV = (
    "{{ state }}|{{ instructions }}|{% for option in options %}{{ option.key }}"
    "{{ '=' ~ option.description if option.description is not none }}<|box_end|>{% endfor %}<|end|>"
)
LAYA = (
    "[CLS]{{ instructions }}[SEP]{% for option in options %}[MASK]{{ option.key }}{% endfor %}"
    "[SEP]{{ state }}[SEP]"
)
OMNI = (
    "{{ sep }}{{ mark_question }}{{ instructions }}{{ sep }}{% for option in options %}[MASK]"
    "{{ sep }}{{ mark_option }}{{ option.key }}{{ sep }}{% endfor %}"
    "{{ sep }}{{ mark_state }}{{ state }}{{ sep }}<|end|>"
)
CLEF = (
    "{{ state | tojson if state is mapping else state }}{% for question in questions %}"
    "{{ sep }}{{ mark_question }}{{ question.instructions }}{% for option in question.options %}"
    "{{ sep }}-{{ sep }}{{ mark_option }}{{ option.key }}{% endfor %}{% endfor %}{{ sep }}<|end|>"
)
TEMPLATES = {"kev": KEV, "laya": LAYA, "lfm2-d1-omni": OMNI, "clef": CLEF}


def build(type: str, template: str | None = None, **metadata: Any) -> DecisionModel:
    entries = {**METADATA, **metadata}
    source = TEMPLATES[type] if template is None else template
    return DecisionModel(type, source, entries, WORDS.tokenize, WORDS.detokenize)


def choice_of(*keys: str, asked: Any = "?", text: Any = None) -> SystemoneQuestion:
    return SystemoneQuestion("q", "choice", asked, tuple((key, text) for key in keys))


def ask(model: DecisionModel, question: SystemoneQuestion, state: Any = "s") -> QuestionPrompts:
    (asked,) = model.ask([question], state)
    return asked


def written(model: DecisionModel, question: SystemoneQuestion, state: Any = "s") -> str:
    """Return the text of a question's prompt; check that the marks are at their positions."""
    (prompt,) = ask(model, question, state).prompts
    assert isinstance(prompt, MarkedPrompt)
    mark = WORDS.ids["<|box_end|>" if model.type == "kev" else "[MASK]"]
    assert list(prompt.marks) == [i for i, token in enumerate(prompt.tokens) if token == mark]
    return WORDS.detokenize(prompt.tokens, unparse_special=True)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("  as it is\n", "  as it is\n"),
        (True, "True"),
        (-3, "-3"),
        (20.0, "20.0"),
        ({}, ""),
        ({"a": 1, "b": None, "c": "x"}, "a: 1\nb: \nc: x"),
        ([1, "x", [2, {"a": False}]], "- 1\n- x\n- - 2\n  - a: False"),
        ({"a": {"b": [1, "  y"]}, "c": []}, "a:\n  b:\n    - 1\n    - y\nc:\n"),
        ("<|box_end|> <| x|> <|a_1|>", "<¦box_end¦> <| x|> <¦a_1¦>"),
        ({"<|end|>": "<|end|>"}, "<¦end¦>: <¦end¦>"),
    ],
)
def test_kev_gets_json_as_text_without_special_tokens(state: Any, text: str) -> None:
    question = choice_of("k", "<|end|>", asked={"ask": text}, text=[1])
    options = "k=- 1<|box_end|><¦end¦>=- 1<|box_end|>"
    assert written(build("kev"), question, state) == f"{text}|ask: {text}|{options}<|end|>"


def test_the_score_of_kev_is_the_product_of_a_query_and_a_key() -> None:
    (prompt,) = ask(build("kev"), choice_of("a", "b", "c")).prompts
    assert isinstance(prompt, MarkedPrompt)
    assert prompt.read == (*prompt.marks, len(prompt.tokens) - 1)
    rows = np.random.default_rng(3).normal(size=(4, 10))
    expected = [rows[3, :5] @ rows[i, 5:] / math.sqrt(5) for i in range(3)]
    assert prompt.scores(rows) == pytest.approx(expected)
    assert prompt.scores(rows * 2) == pytest.approx([4 * each for each in expected])
    last_is_mark = MarkedPrompt((7, 8), (0, 1), None)
    assert last_is_mark.read == (0, 1)
    expected = [rows[1, :5] @ rows[i, 5:] / math.sqrt(5) for i in range(2)]
    assert last_is_mark.scores(rows[:2]) == pytest.approx(expected)


@pytest.mark.parametrize("type", ["laya", "lfm2-d1-omni"])
def test_the_score_is_in_the_column_of_the_questions_type(type: str) -> None:
    rows = np.random.default_rng(4).normal(size=(2, 3))
    model = build(type)
    options = (("0", None), ("1", None))
    for column, kind in enumerate(("choice", "score")):
        asked = ask(model, SystemoneQuestion("q", kind, "?", options))  # type: ignore[arg-type]
        (prompt,) = asked.prompts
        assert isinstance(prompt, MarkedPrompt) and prompt.read == prompt.marks
        assert prompt.scores(rows) == pytest.approx(rows[:, column])
    noul = ask(model, SystemoneQuestion("q", "noul", "?", (("true", None), ("false", None))))
    p = noul.probabilities([rows])
    weights = np.exp(rows[:, 2])
    assert p == pytest.approx((weights / weights.sum())[::-1])  # false is shown first


def test_laya_replaces_the_text_of_a_mark() -> None:
    question = choice_of("x[MASK]y", asked=["[MASK]", {"[MASK]": 1}])
    text = written(build("laya", LAYA.replace("instructions", "instructions | tojson")), question)
    assert text == '[CLS][" ", {"[MASK]": 1}][SEP][MASK]x y[SEP]s[SEP]'
    text = written(build("laya"), choice_of("a"), "b[SEP]c")
    assert text == "[CLS]?[SEP][MASK]a[SEP]b[SEP]c[SEP]"


@pytest.mark.parametrize(
    ("keys", "asked", "n_asked", "n_options", "max_head_tokens"),
    [
        (["a" * 5, "b"], "?" * 60, 52, [5, 1], 60),  # 60 without the options and their marks
        (["a" * 60], "?" * 60, 16, [43], 60),  # the option has (60 - 16) / 1 tokens with its mark
        (["a" * 60], "?" * 9, 9, [43], 60),
        (["a" * 30, "b" * 30, "c"], "?" * 60, 30, [13, 13, 1], 60),  # (60 - 16) / 3 with marks
        (["a" * 9] * 20, "?" * 60, 8, [3] * 20, 60),  # at least 4 tokens, and 8 of the question
        (["a" * 60, "b" * 48], "?" * 60, 60, [48, 48], 1000),
    ],
)
def test_laya_cuts_options_and_question(
    keys: list[str], asked: str, n_asked: int, n_options: list[int], max_head_tokens: int
) -> None:
    options = "".join(f"[MASK]{key[:n]}" for key, n in zip(keys, n_options, strict=True))
    model = build("laya", max_head_tokens=max_head_tokens)
    text = written(model, choice_of(*keys, asked=asked), "s" * 1000)
    assert text == f"[CLS]{asked[:n_asked]}[SEP]{options}[SEP]{'s' * 1000}[SEP]"


@pytest.mark.parametrize(
    ("n", "n_asked", "n_option"), [(1, 96, 93), (2, 96, 45), (4, 128, 29), (200, 4832, 21)]
)
def test_omni_cuts_options_and_question(n: int, n_asked: int, n_option: int) -> None:
    keys = [f"{i:03}" + "o" * 100 for i in range(n)]
    text = written(build("lfm2-d1-omni"), choice_of(*keys, asked="?" * 9000), "s" * 9000)
    expected = "?" * n_asked + "".join(f"[MASK]{key[:n_option]}" for key in keys)
    n_state = 16_384 - len(expected.replace("[MASK]", "M")) - 1
    assert text == f"{expected}{('s' * 9000)[:n_state]}<|end|>"


def test_omni_changes_text_that_looks_like_special_tokens_or_pieces() -> None:
    template = OMNI.replace("{{ state }}", "{{ state | tojson }}")
    state = {"<|end|>": "<|end|> <<d1omni:sep>>", "<<d1omni:option>>": "[MASK]"}
    text = written(build("lfm2-d1-omni", template), choice_of("<<d1omni:sep>>a"), state)
    assert text == (
        '?[MASK]<<d1omni sep>>a{"<¦end¦>": "<¦end¦> <<d1omni sep>>", '
        '"<<d1omni:option>>": "[MASK]"}<|end|>'
    )


def test_omni_tokenizes_pieces_one_by_one() -> None:
    words = Words(["?x"], ["[MASK]"])
    metadata = {MASK: words.ids["[MASK]"]}

    def tokens(template: str) -> tuple[int, ...]:
        model = DecisionModel("lfm2-d1-omni", template, metadata, words.tokenize, words.detokenize)
        return ask(model, choice_of("x"), None).prompts[0].tokens

    end = "{{ sep }}{{ mark_state }}"
    mark, together = words.ids["[MASK]"], words.ids["?x"]
    assert tokens("{{ sep }}?{{ sep }}x[MASK]" + end) == (ord("?"), ord("x"), mark)
    assert tokens("{{ sep }}?x[MASK]" + end) == (together, mark)


def test_clef_asks_all_questions_in_one_prompt_with_sorted_keys() -> None:
    noul = SystemoneQuestion("n", "noul", "N", (("true", None), ("false", None)))
    score = SystemoneQuestion("s", "score", "S", (("0", None), ("1", None)))
    first, second, third = build("clef").ask([choice_of("b", "a"), noul, score], {"z": 1, "a": 2})
    prompts = [each.prompts[0] for each in (first, second, third)]
    (prompt, *_) = prompts
    assert isinstance(prompt, JointPrompt)
    text = '{"a": 2, "z": 1}?-a-bN-true-falseS-0-1<|end|>'
    assert WORDS.detokenize(prompt.tokens, unparse_special=True) == text
    roles = "0" * 16 + "2" + "0404" + "1" + "04444" + "044444" + "3" + "0404" + "0"
    assert "".join(map(str, prompt.roles)) == roles
    assert [(each.tokens, each.read) for each in prompts] == [(prompt.tokens, range(6))] * 3
    rows = np.array([[2.0], [1.0], [3.0], [3.0], [0.0], [1.0]])
    of_a, of_b = np.exp(2.0), np.exp(1.0)
    assert first.probabilities([rows]) == pytest.approx(
        [of_b / (of_a + of_b), of_a / (of_a + of_b)]
    )
    assert second.probabilities([rows]) == pytest.approx([0.5, 0.5])
    assert third.probabilities([rows]) == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e)])


def test_clef_replaces_the_text_of_a_mark_and_needs_text() -> None:
    asked = ask(build("clef"), choice_of("<<clef:sep>>a", asked="<<clef:option>>"), "<<clef:sep>>")
    text = WORDS.detokenize(asked.prompts[0].tokens)
    assert text == "<<clef sep>><<clef option>>-<<clef sep>>a"
    for empty in (choice_of("a", ""), choice_of("a", asked="")):
        with pytest.raises(InvalidArgumentError, match="'q': instructions and options must not be"):
            ask(build("clef"), empty)


def test_options_that_do_not_fit_are_rejected() -> None:
    template = OMNI.replace("{{ sep }}", "{{ sep }}" + "-" * 16_300 + "{{ sep }}", 1)
    with pytest.raises(ContextFullError, match="'q': 9 options do not fit a prompt of 16,384 tok"):
        ask(build("lfm2-d1-omni", template), choice_of(*("o" * 50 + str(i) for i in range(9))))


@pytest.mark.parametrize("type", TEMPLATES)
def test_more_than_255_options_are_rejected(type: str) -> None:
    model = build(type)
    assert len(ask(model, choice_of(*map(str, range(255)))).prompts[0].read) >= 255
    with pytest.raises(InvalidArgumentError, match=f"at most 255 .* type {type}, got 256"):
        ask(model, choice_of(*map(str, range(256))))


@pytest.mark.parametrize(
    ("type", "template", "reason"),
    [
        ("kev", "{{ state }}", "0 marks for 1 options"),
        ("laya", "[CLS][SEP][SEP]", "separators at other places"),
        ("laya", "[CLS][MASK]a[SEP]x[SEP]", "separators at other places"),
        ("laya", "[CLS]?[SEP][MASK]a[SEP]x", "separators at other places"),
        ("laya", "[CLS]?[SEP][MASK]a[SEP]", "separators at other places"),
        ("laya", "[CLS]?[SEP][MASK]a[MASK]b[SEP]x[SEP]", "2 marks for 1 options"),
        ("lfm2-d1-omni", "{{ sep }}[MASK]{{ state }}", "no pieces"),
        ("lfm2-d1-omni", "x{{ sep }}[MASK]{{ sep }}{{ mark_state }}", "no pieces"),
        ("lfm2-d1-omni", "[MASK]{{ state }}", "no pieces"),
        ("lfm2-d1-omni", "{{ sep }}{{ mark_state }}", "0 marks for 1 options"),
        ("lfm2-d1-omni", "{{ sep }}a{{ mark_state }}", "a mark within a piece"),
        ("clef", "{{ state }}", "0 options of 0 questions"),
        ("clef", CLEF.replace("{{ mark_option }}", ""), "0 options of 1 questions"),
        ("clef", CLEF.replace("{{ sep }}{{ mark_question }}", ""), "1 options of 0 questions"),
        ("clef", CLEF.replace("{{ sep }}<", "{{ sep }}{{ mark_question }}x<"), "more questions"),
        ("clef", CLEF.replace("<|end|>", "{{ mark_state }}"), ".* a mark of another type"),
        ("clef", CLEF.replace("-", "{{ mark_option }}-"), "no text between two options"),
        ("clef", CLEF.replace("-", "-{{ mark_option }}"), "a mark within a piece"),
    ],
)
def test_an_unexpected_prompt_names_the_question(type: str, template: str, reason: str) -> None:
    about = "" if type == "clef" else "'q': "
    with pytest.raises(ChatTemplateError, match=f"{about}the model's template .*: {reason}"):
        ask(build(type, template), choice_of("a"))


@pytest.mark.parametrize("value", [None, "103", True, -1, 0.5])
def test_missing_entries_of_the_file_are_named(value: Any) -> None:
    for type, name in (
        *(("laya", MASK), ("laya", SEPARATOR), ("laya", "max_head_tokens")),
        ("lfm2-d1-omni", MASK),
    ):
        with pytest.raises(ModelError, match=f"the metadata has no valid {name}: {value!r}"):
            build(type, **{name: value})
    with pytest.raises(ModelError, match="no valid max_head_tokens: 0"):
        build("laya", max_head_tokens=0)
    without = Words([], ["<s>"])
    with pytest.raises(ModelError, match=r"no token <\|box_end\|>"):
        DecisionModel("kev", KEV, {}, without.tokenize, without.detokenize)
