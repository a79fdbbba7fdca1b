"""Models that were made for decisions: what they are asked, where they are read, and what it means.

The pure tests have a vocabulary of words; the last ones run random models of each type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st
from label_scores import answered, label_scores, made_of
from large_vocabularies import DECISION_MODEL_TYPES
from write_decision_models import DEFINITIONS, REFUSED, cached_decision_model, main

from eliza_ffi.decisions.models import decision_model
from eliza_ffi.decisions.models.decision_model import DecisionModel, DecisionPrompt, QuestionPrompts
from eliza_ffi.decisions.models.option_labels import code_labels, letter_labels, typed_labels
from eliza_ffi.decisions.models.systemone import SystemoneQuestion, json_copy, read_state
from eliza_ffi.decisions.questions import Choice, Level, Option, Predicate, Score
from eliza_ffi.errors import (
    ChatTemplateError,
    InvalidArgumentError,
    ModelError,
    NotSupportedError,
)
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

TYPES = tuple(DEFINITIONS)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

NOUL = SystemoneQuestion("angry", "noul", "Angry?", (("true", "yes!"), ("false", None)))
CHOICE = SystemoneQuestion(
    "route", "choice", {"z": 1, "a": [2]}, (("sales", None), ("it", {"y": 1, "b": 2}), ("x", "X"))
)
SCORE = SystemoneQuestion("urgency", "score", "How?", (("0", "low"), ("1", "mid"), ("2", "high")))

# Whatever a template is given, in the order it is given.
ECHO = (
    "{{ {'id': id, 'type': type, 'instructions': instructions, 'state': state, 'options': options,"
    " 'images': images, 'questions': questions if questions is defined else none} | tojson }}"
)


def choice_of(n: int) -> SystemoneQuestion:
    return SystemoneQuestion("q", "choice", "?", tuple((f"option {i}", None) for i in range(n)))


class Words:
    """A vocabulary: words of one token each, everything else a token per character."""

    def __init__(self, words: Sequence[str], controls: Sequence[str] = ()) -> None:
        self.ids = {word: 0x200000 + i for i, word in enumerate((*words, *controls))}
        self.controls = frozenset(controls)
        self.texts = {token: word for word, token in self.ids.items()}
        self.by_first: dict[str, list[str]] = {}
        for word in self.ids:
            self.by_first.setdefault(word[0], []).append(word)

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        assert not add_special  # decision templates write their own beginning
        tokens = []
        while text:
            beginning_alike = (
                word
                for word in self.by_first.get(text[0], ())
                if text.startswith(word) and (parse_special or word not in self.controls)
            )
            found = max(beginning_alike, key=len, default=text[0])
            tokens.append(self.ids[found] if found in self.ids else ord(found))
            text = text[len(found) :]
        return tokens

    def detokenize(self, tokens: Sequence[int], unparse_special: bool = False) -> str:
        texts = [self.texts[token] if token in self.texts else chr(token) for token in tokens]
        return "".join(text for text in texts if unparse_special or text not in self.controls)

    def single(self, text: str) -> list[int]:
        return self.tokenize(text)


PAIRS = [a + b for a in LETTERS for b in LETTERS]
YES_NO = ["yes", "Yes", "YES", "no", "No", "NO"]
DIGITS = [f"{i:02}" for i in range(100)]
WORDS = Words([*PAIRS, *YES_NO, *DIGITS, *(f" {letter}" for letter in LETTERS)], ["<s>", "<end>"])


def made(
    type: str = "openjev", template: str = ECHO, temperatures: Any = (), words: Words = WORDS
) -> DecisionModel:
    return DecisionModel(type, template, dict(temperatures), words.tokenize, words.detokenize)


def told(prompt: DecisionPrompt, words: Words = WORDS) -> dict[str, Any]:
    """Return what the template of a prompt was told, if it echoes."""
    return dict(json.loads(words.detokenize(prompt.tokens, unparse_special=True)))


def ask(model: DecisionModel, question: SystemoneQuestion, state: Any = "s") -> QuestionPrompts:
    (asked,) = model.ask([question], state)
    return asked


# ---- labels ------------------------------------------------------------------------------------


def test_letters_are_upper_case_first_and_must_all_be_one_token() -> None:
    labels = letter_labels(WORDS.single)
    assert "".join(label.text for label in labels) == LETTERS + LETTERS.lower()
    assert [label.tokens for label in labels] == [(ord(label.text),) for label in labels]
    with pytest.raises(ModelError, match="the label 'A' must be one token, got 2"):
        letter_labels(lambda text: [0, 1])


def test_codes_that_are_several_tokens_are_left_out_and_255_are_enough() -> None:
    few = Words(["AB", "ZZ"])
    assert [label.text for label in code_labels(few.single)] == [*LETTERS, "AB", "ZZ"]
    many = [label.text for label in code_labels(WORDS.single)]
    assert many == [*LETTERS, *PAIRS][:255]


def test_a_predicate_is_read_at_the_spellings_that_are_one_token() -> None:
    words = Words(["yes", "Yes", "NO"])
    labels = typed_labels(words.single, NOUL)
    assert [label.text for label in labels] == ["true", "false"]
    assert [label.tokens for label in labels] == [
        (words.ids["yes"], words.ids["Yes"]),
        (words.ids["NO"],),
    ]
    with pytest.raises(ModelError, match="the label 'no' must be one token"):
        typed_labels(Words(["yes"]).single, NOUL)


def test_a_score_is_read_at_digits() -> None:
    labels = typed_labels(WORDS.single, SCORE)
    assert labels == [("0", (ord("0"),)), ("1", (ord("1"),)), ("2", (ord("2"),))]


def typed_texts(words: Words, keys: Sequence[str]) -> list[str]:
    question = SystemoneQuestion("q", "choice", "?", tuple((key, None) for key in keys))
    return [label.text for label in typed_labels(words.single, question)]


def test_options_that_are_letters_are_their_own_labels() -> None:
    assert typed_texts(WORDS, ["z", "B", "a"]) == ["z", "B", "a"]
    assert typed_texts(WORDS, ["z", "é", "a"]) == ["A", "B", "C"]


def test_more_options_than_letters_have_numbers_and_after_them_what_is_left() -> None:
    assert typed_texts(WORDS, [f"o{i}" for i in range(26)]) == list(LETTERS)
    texts = typed_texts(WORDS, [f"o{i}" for i in range(150)])
    assert texts == [*DIGITS, *LETTERS, *LETTERS.lower()[:24]]


def test_a_code_is_also_read_behind_a_space() -> None:
    labels = typed_labels(WORDS.single, choice_of(2))
    assert labels[1] == ("B", (ord("B"), WORDS.ids[" B"]))


def test_a_vocabulary_may_have_too_few_labels() -> None:
    letters_only = Words([])  # and single digits, which are no codes
    assert len(typed_texts(letters_only, [f"o{i}" for i in range(52)])) == 52
    with pytest.raises(InvalidArgumentError, match="too few labels for 53 options"):
        typed_texts(letters_only, [f"o{i}" for i in range(53)])


def slow_codes(words: Words, keys: Sequence[str]) -> list[str]:
    """Find codes the slow way: every key looks through all substitutes from the first."""
    pool = [*LETTERS, *DIGITS, *LETTERS.lower(), *(f"#{i}" for i in range(200)), *PAIRS]
    codes: list[str] = []
    for i, key in enumerate(keys):
        letters = all(len(key) == 1 and key.isascii() and key.isalpha() for key in keys)
        suited = key if letters else LETTERS[i] if len(keys) <= 26 else f"{i:02}"
        free = (c for c in (suited, *pool) if len(words.single(c)) == 1 and c not in codes)
        codes.append(next(free))
    return codes


@given(
    st.lists(st.sampled_from([*DIGITS, *PAIRS[:60], "#7", "100"]), unique=True),
    st.one_of(
        st.lists(st.sampled_from(LETTERS + "abc"), min_size=1, unique=True),
        st.integers(1, 50).map(lambda n: [f"o{i}" for i in range(n)]),
    ),
)
def test_codes_are_those_that_are_found_the_slow_way(single: list[str], keys: list[str]) -> None:
    words = Words(single)
    assert typed_texts(words, keys) == slow_codes(words, keys)


# ---- prompts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("type", TYPES)
def test_a_template_is_told_the_question_and_the_input(type: str) -> None:
    asked = ask(made(type), CHOICE, {"b": [1, None], "a": "text"})
    variables = told(asked.prompts[0])
    assert variables["id"] == "route"
    assert variables["type"] == "choice"
    assert variables["instructions"] == CHOICE.instructions
    assert variables["state"] == {"b": [1, None], "a": "text"}
    assert variables["images"] == []
    told_options = [(option["key"], option["description"]) for option in variables["options"]]
    assert told_options == list(CHOICE.options)


@pytest.mark.parametrize(
    ("type", "labels"),
    [
        ("openjev", [None] * 3),  # the template has them itself
        ("lev", ["A", "B", "C"]),
        ("nimble", ["A", "B", "C"]),
        ("pplx-decider", ["A", "B", "C"]),
        ("lfm2-d1", ["A", "B", "C"]),
    ],
)
def test_a_template_is_told_the_labels(type: str, labels: list[str | None]) -> None:
    variables = told(ask(made(type), CHOICE).prompts[0])
    assert [option.get("label") for option in variables["options"]] == labels


@pytest.mark.parametrize("type", TYPES)
def test_true_comes_first_only_where_the_type_has_it_so(type: str) -> None:
    variables = told(ask(made(type), NOUL).prompts[0])
    keys = [option["key"] for option in variables["options"]]
    true_first = type in ("openjev", "lfm2-d1")
    assert keys == (["true", "false"] if true_first else ["false", "true"])


def test_lev_sorts_the_keys_of_all_json() -> None:
    state = {"b": {"d": 1, "c": [{"z": 1, "y": 2}]}, "a": 0, "Z": 0, "é": 0}
    (prompt, _) = ask(made("lev"), CHOICE, state).prompts
    variables = told(prompt)
    assert json.dumps(variables["state"]) == json.dumps(state, sort_keys=True)
    assert list(variables["instructions"]) == ["a", "z"]
    assert list(variables["options"][1]) == ["description", "key", "label"]
    assert list(variables["options"][1]["description"]) == ["b", "y"]
    unsorted = told(ask(made("pplx-decider"), CHOICE, state).prompts[0])
    assert json.dumps(unsorted["state"]) == json.dumps(state)
    assert list(unsorted["options"][1]) == ["key", "description", "label"]


def test_lev_asks_a_choice_a_second_time_in_the_opposite_order_with_the_same_labels() -> None:
    first, second = ask(made("lev"), CHOICE).prompts
    assert [option["key"] for option in told(first)["options"]] == ["sales", "it", "x"]
    assert [option["key"] for option in told(second)["options"]] == ["x", "it", "sales"]
    assert [option["label"] for option in told(second)["options"]] == ["A", "B", "C"]
    assert first.labels == second.labels == ((65,), (66,), (67,))
    assert len(ask(made("lev"), SCORE).prompts) == 1
    assert len(ask(made("lev"), choice_of(1)).prompts) == 1


@pytest.mark.parametrize("type", sorted(set(TYPES) - {"lev"}))
def test_other_types_ask_a_choice_once(type: str) -> None:
    assert len(ask(made(type), CHOICE).prompts) == 1


def test_lev_reads_a_predicate_at_nine_ratings_and_shows_two_options() -> None:
    (prompt,) = ask(made("lev"), NOUL).prompts
    assert prompt.labels == tuple((ord(letter),) for letter in "ABCDEFGHI")
    assert [option["label"] for option in told(prompt)["options"]] == ["A", "B"]


def test_nimble_shows_all_questions_in_every_prompt_and_others_do_not() -> None:
    several = made("nimble").ask([NOUL, CHOICE, SCORE], "s")
    for question, asked in zip((NOUL, CHOICE, SCORE), several, strict=True):
        variables = told(asked.prompts[0])
        assert variables["id"] == question.id
        assert [each["id"] for each in variables["questions"]] == ["angry", "route", "urgency"]
        own = next(each for each in variables["questions"] if each["id"] == question.id)
        assert own["options"] == variables["options"]
        assert own["instructions"] == question.instructions
    for type in set(TYPES) - {"nimble"}:
        assert told(made(type).ask([NOUL, CHOICE], "s")[0].prompts[0])["questions"] is None


def test_lfm2_d1_is_read_at_every_spelling() -> None:
    (prompt,) = ask(made("lfm2-d1"), NOUL).prompts
    spellings = [[WORDS.ids[word] for word in group] for group in (YES_NO[:3], YES_NO[3:])]
    assert [list(group) for group in prompt.labels] == spellings
    assert list(prompt.read) == spellings[0] + spellings[1]


def test_only_lfm2_d1_may_be_asked_without_an_input() -> None:
    assert told(ask(made("lfm2-d1"), NOUL, None).prompts[0])["state"] is None
    for type in set(TYPES) - {"lfm2-d1"}:
        with pytest.raises(InvalidArgumentError, match=f"type {type} needs an input, got None"):
            ask(made(type), NOUL, None)


@pytest.mark.parametrize(
    ("type", "most"),
    [("openjev", 52), ("lev", 255), ("nimble", 255), ("pplx-decider", 255), ("lfm2-d1", 255)],
)
def test_a_question_has_at_most_as_many_options_as_there_are_labels(type: str, most: int) -> None:
    enough = Words([*PAIRS, *YES_NO, *DIGITS])
    model = made(type, words=enough)
    assert model.max_options == most
    assert len(ask(model, choice_of(most)).prompts[0].labels) == most
    with pytest.raises(
        InvalidArgumentError, match=f"'q': expected at most {most} options .*got {most + 1}$"
    ):
        ask(model, choice_of(most + 1))


def test_questions_have_ids_of_their_own() -> None:
    with pytest.raises(InvalidArgumentError, match="two questions have the id 'angry'"):
        made().ask([NOUL, CHOICE, NOUL], "s")


# ---- what strangers write ----------------------------------------------------------------------


def test_text_that_spells_a_control_token_stays_text() -> None:
    model = made(template="<s>{{ state }}|{{ instructions }}|{{ options[0].key }}<end>")
    for spelled in ("<end>", "a<end>b", "<s>", "<<end>>"):
        question = SystemoneQuestion("q", "choice", spelled, ((spelled, None), ("b", None)))
        (prompt,) = ask(model, question, spelled).prompts
        controls = [token for token in prompt.tokens if WORDS.texts.get(token) in WORDS.controls]
        assert controls == [WORDS.ids["<s>"], WORDS.ids["<end>"]]
        plain = WORDS.detokenize(prompt.tokens)
        assert plain == f"{spelled}|{spelled}|{spelled}"


def test_tokens_are_those_of_the_whole_text_where_nothing_is_forged() -> None:
    (prompt,) = ask(made(template="<s>{{ state }}yes<end>"), NOUL, "A < B yes").prompts
    assert list(prompt.tokens) == WORDS.tokenize("<s>A < B yesyes<end>", False, True)


def test_a_control_token_that_cannot_be_told_apart_is_refused() -> None:
    looks = "<s>{% if '<end>' in state %}other{% endif %}{{ state | upper }}{{ state[0] }}<end>"
    with pytest.raises(
        InvalidArgumentError, match="'angry' or the input contains the text of a control token"
    ):
        ask(made(template=looks), NOUL, "<end>")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('too long') }}", "'angry': the chat template refuses.*too long"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "stop"),
        ("{{ state.a.b }}", "'angry': the chat template failed: UndefinedError"),
        ("{% if false %}x{% endif %}", "'angry': the model's template produced no text"),
    ],
)
def test_a_template_that_fails_says_for_which_question(template: str, said: str) -> None:
    with pytest.raises(ChatTemplateError, match=said):
        ask(made(template=template), NOUL)


def test_a_broken_template_is_refused_at_once() -> None:
    with pytest.raises(ChatTemplateError, match="not valid"):
        made(template="{% for %}")
    with pytest.raises(ChatTemplateError, match="include"):
        made(template="{% include '/etc/passwd' %}")


@pytest.mark.parametrize(
    "state", [math.nan, [math.inf], b"bytes", {1: 2}, {"a": {2, 3}}, [object()]]
)
def test_an_input_must_be_json(state: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="the input is not JSON"):
        ask(made(), NOUL, state)


def test_an_input_has_a_depth() -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    assert told(ask(made(), NOUL, deep).prompts[0])["state"] == deep
    with pytest.raises(InvalidArgumentError, match="nested deeper than 40"):
        ask(made(), NOUL, [deep])
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidArgumentError, match="nested deeper than 40"):
        ask(made("lev"), NOUL, deep)


@pytest.mark.parametrize("kind", ["image_url", "input_image", "input_audio"])
def test_an_input_with_images_or_sound_is_refused(kind: str) -> None:
    turns = [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": kind}]}]
    for state in (turns, {"messages": turns, "more": 1}):
        with pytest.raises(InvalidArgumentError, match=f"{kind}.*only text is read"):
            ask(made(), NOUL, state)
    assert read_state({"photos": turns}) == {"photos": turns}  # data, not a conversation


def test_json_is_copied_as_it_is() -> None:
    value = {"b": (1, 2.5, None, True), "a": [{"d": "x", "c": {}}]}
    copied = json_copy(value)
    assert json.dumps(copied) == json.dumps(value)
    assert json.dumps(json_copy(value, sort=True)) == json.dumps(value, sort_keys=True)


def test_numbers_are_written_in_full() -> None:
    (prompt,) = ask(made(template="{{ state | tojson }}"), NOUL, [20.0, 1234567.25, 2**70]).prompts
    assert WORDS.detokenize(prompt.tokens) == f"[20.0, 1234567.25, {2**70}]"


# ---- questions ---------------------------------------------------------------------------------


def test_questions_of_ours_are_put_in_this_form() -> None:
    of = SystemoneQuestion.of
    assert of(Predicate("Is it?", if_true="so"), "p") == SystemoneQuestion(
        "p", "noul", "Is it?", (("true", "so"), ("false", None))
    )
    choice = Choice("Which?", [Option("a", "A"), Option(True), "true"], none="none of these")
    assert of(choice, "c").options == (
        ("a", "A"),
        ("true (bool)", None),
        ("true", None),
        ("none of these", None),
    )
    score = Score("How?", [Level("low"), Level("high", "very")])
    assert of(score, "s").options == (("0", "low"), ("1", "high: very"))


def test_questions_of_a_request_keep_their_json() -> None:
    read = SystemoneQuestion.read
    noul = {"type": "noul", "instructions": [1, {"a": None}], "criteria": {"true": {"x": 1}}}
    assert read(noul, "n") == SystemoneQuestion(
        "n", "noul", [1, {"a": None}], (("true", {"x": 1}), ("false", None))
    )
    assert read({"type": "noul", "instructions": "?"}, "n").options[0] == ("true", None)
    choice = {"type": "choice", "instructions": "?", "criteria": {"a": None, "b": [1]}}
    assert read(choice, "c").options == (("a", None), ("b", [1]))
    score = {"type": "score", "instructions": "?", "criteria": ["low", {"high": 1}]}
    assert read(score, "s").options == (("0", "low"), ("1", {"high": 1}))


@pytest.mark.parametrize(
    ("given_question", "said"),
    [
        ("noul", "expected a mapping, got 'noul'"),
        ({"type": "noul"}, "instructions are missing"),
        ({"type": "maybe", "instructions": "x"}, "noul, choice, score, got 'maybe'"),
        (
            {"type": "noul", "instructions": "x", "criteria": ["a"]},
            "object with the keys true and false",
        ),
        ({"type": "choice", "instructions": "x"}, "a key for each option"),
        ({"type": "choice", "instructions": "x", "criteria": {}}, "a key for each option"),
        ({"type": "score", "instructions": "x", "criteria": ["one"]}, "2 to 10 levels"),
        ({"type": "score", "instructions": "x", "criteria": ["a"] * 11}, "2 to 10 levels"),
        ({"type": "noul", "instructions": math.nan}, "not JSON"),
    ],
)
def test_a_malformed_question_is_refused_with_its_id(given_question: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'my id'.*{said}"):
        SystemoneQuestion.read(given_question, "my id")


# ---- temperatures ------------------------------------------------------------------------------

BUCKETS = {"choice": 9.0} | {
    f"choice.{name}": i for i, name in enumerate(("2", "3_5", "6_10", "11"), 1)
}
LEV_BUCKETS = {"choice": 9.0, "choice.small": 1, "choice.mid": 2, "choice.large": 3}


@pytest.mark.parametrize(
    ("n", "temperature", "of_lev"),
    [
        *((1, 1, 1), (2, 1, 1), (3, 2, 1), (5, 2, 1), (6, 3, 1), (8, 3, 1), (9, 3, 2)),
        *((10, 3, 2), (11, 4, 2), (26, 4, 2), (27, 4, 3), (52, 4, 3)),
    ],
)
def test_a_temperature_depends_on_the_number_of_options(
    n: int, temperature: int, of_lev: int
) -> None:
    for type in set(TYPES) - {"lev"}:
        assert made(type, temperatures=BUCKETS).temperature(choice_of(n)) == temperature
    assert made("lev", temperatures=LEV_BUCKETS).temperature(choice_of(n)) == of_lev


def test_a_temperature_without_a_bucket_is_for_the_others_and_1_for_none() -> None:
    model = made(temperatures={"choice.2": 5, "choice": 4, "noul": 3, "choice.small": 2})
    assert model.temperature(choice_of(2)) == 5
    assert model.temperature(choice_of(3)) == 4
    assert model.temperature(NOUL) == 3
    assert model.temperature(SCORE) == 1
    assert ask(model, NOUL).temperature == 3
    assert made("lev", temperatures={"noul.small": 7, "noul": 3}).temperature(NOUL) == 7


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, math.inf, "warm", True, None])
def test_a_temperature_must_be_a_number_above_0(value: Any) -> None:
    with pytest.raises(ModelError, match=r"the temperature choice\.2 must be a number above 0"):
        made(temperatures={"choice.2": value})


# ---- probabilities -----------------------------------------------------------------------------

LOGITS = np.random.default_rng(7).normal(0.0, 3.0, size=(2, 9))


def softmax(logits: Any, temperature: float) -> Any:
    weights = np.exp(np.asarray(logits) / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("type", ["openjev", "nimble", "pplx-decider"])
@pytest.mark.parametrize("question", [CHOICE, SCORE], ids=["choice", "score"])
def test_options_have_the_softmax_of_their_logits(type: str, question: SystemoneQuestion) -> None:
    asked = ask(made(type, temperatures={question.type: 1.7}), question)
    p = asked.probabilities([LOGITS[0, :3]])
    assert p == pytest.approx(softmax(LOGITS[0, :3], 1.7), abs=1e-12)
    assert asked.probabilities([LOGITS[0, :3] - 40.0]) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize("type", ["openjev", "nimble", "pplx-decider"])
def test_true_is_told_first_whatever_was_shown_first(type: str) -> None:
    asked = ask(made(type, temperatures={"noul": 0.6}), NOUL)
    shown = softmax(LOGITS[0, :2], 0.6)
    true_first = type == "openjev"
    expected = shown if true_first else shown[::-1]
    assert asked.probabilities([LOGITS[0, :2]]) == pytest.approx(expected, abs=1e-12)


def test_two_orders_are_averaged() -> None:
    asked = ask(made("lev", temperatures={"choice.small": 1.3}), CHOICE)
    first, second = softmax(LOGITS[0, :3], 1.3), softmax(LOGITS[1, :3], 1.3)
    p = asked.probabilities(LOGITS[:, :3].tolist())
    assert p == pytest.approx((first + second[::-1]) / 2, abs=1e-12)


def test_a_preference_for_the_first_label_cancels_out() -> None:
    p = ask(made("lev"), choice_of(2)).probabilities([[5.0, 0.0], [5.0, 0.0]])
    assert p == pytest.approx([0.5, 0.5])


def test_ratings_come_to_the_expected_rating() -> None:
    asked = ask(made("lev", temperatures={"noul": 1.1}), NOUL)
    true = softmax(LOGITS[0], 1.1) @ np.linspace(0.0, 1.0, 9)
    assert asked.probabilities([LOGITS[0]]) == pytest.approx([true, 1.0 - true], abs=1e-12)
    sure = [-30.0] * 8 + [0.0]
    assert asked.probabilities([sure]) == pytest.approx([1.0, 0.0], abs=1e-9)
    assert asked.probabilities([sure[::-1]]) == pytest.approx([0.0, 1.0], abs=1e-9)


def test_of_several_spellings_the_likeliest_counts() -> None:
    asked = ask(made("lfm2-d1", temperatures={"noul": 1.4}), NOUL)
    row = LOGITS[0, :6]
    expected = softmax([row[:3].max(), row[3:].max()], 1.4)
    assert asked.probabilities([row]) == pytest.approx(expected, abs=1e-12)


def test_a_token_of_two_labels_is_read_once_and_counts_for_both() -> None:
    prompt = DecisionPrompt((1,), ((7,), (8, 7), (9, 8)))
    assert prompt.read == (7, 8, 9)
    assert prompt.scores([3.0, 1.0, 2.0]) == [3.0, 3.0, 2.0]


def test_a_single_option_is_certain() -> None:
    assert ask(made(), choice_of(1)).probabilities([[-3.0]]) == [1.0]


def test_logits_far_apart_do_no_harm() -> None:
    p = ask(made(temperatures={"choice": 0.01}), CHOICE).probabilities([[1e4, -1e4, -math.inf]])
    assert p == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "logits",
    [[], [[1.0]], [[1.0] * 4], [[1.0] * 3] * 2, [[math.nan, 1, 2]], [[-math.inf] * 3]],
)
def test_logits_that_do_not_fit_are_refused(logits: list[list[float]]) -> None:
    with pytest.raises(InvalidArgumentError, match="'route'"):
        ask(made(), CHOICE).probabilities(logits)


# ---- files -------------------------------------------------------------------------------------


def model_file(file: Path, metadata: dict[str, Any], architecture: str = "llama") -> dict[str, str]:
    """Write a file of metadata and return the facts of a model with that file."""
    writer = GGUFWriter(file, architecture)
    for key, value in metadata.items():
        kind = GGUFValueType.STRING if isinstance(value, str) else GGUFValueType.FLOAT32
        writer.add_key_value(key, value, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return {"path": str(file), "decision_type": metadata.get(f"{architecture}.decision.type", "")}


def of(facts: dict[str, Any]) -> DecisionModel | None:
    return DecisionModel.of(facts, WORDS.tokenize, WORDS.detokenize)


TEMPLATE = "tokenizer.chat_template.systemone"


def test_a_file_tells_type_template_and_temperatures(tmp_path: Path) -> None:
    metadata = {
        TEMPLATE: "{{ state }}: {{ instructions }}",
        "qwen3.decision.type": "nimble",
        "qwen3.decision.temperature.choice": 2.0,
        "qwen3.decision.temperature.choice.3_5": 0.5,
        "qwen3.decision.head_count": 3.0,
        "llama.decision.temperature.noul": 4.0,  # of no model here
    }
    model = of(model_file(tmp_path / "m.gguf", metadata, "qwen3"))
    assert model is not None
    assert model.type == "nimble"
    assert model.temperatures == {"choice": 2.0, "choice.3_5": 0.5}
    (prompt,) = ask(model, NOUL, "so").prompts
    assert WORDS.detokenize(prompt.tokens) == "so: Angry?"


@pytest.mark.parametrize("type", REFUSED)
def test_types_that_are_not_read_at_labels_are_refused_by_name(type: str) -> None:
    with pytest.raises(
        NotSupportedError, match=f"unsupported type '{type}', which .*; supported: openjev"
    ):
        of({"path": str(cached_decision_model(type)), "decision_type": type})


def test_a_type_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="unsupported type 'new'; supported: openjev, lev"):
        of(model_file(tmp_path / "m.gguf", {"llama.decision.type": "new"}))


def test_what_a_file_lacks_is_said_with_its_name(tmp_path: Path) -> None:
    facts = model_file(tmp_path / "m.gguf", {"llama.decision.type": "lev"})
    with pytest.raises(
        ModelError, match=r"decision model .*m\.gguf cannot be used: the file has no template"
    ):
        of(facts)
    cold = {"llama.decision.type": "lev", "llama.decision.temperature.noul": 0.0, TEMPLATE: "x"}
    with pytest.raises(
        ModelError, match=r"m\.gguf cannot be used: the temperature noul must .* got 0\.0"
    ):
        of(model_file(tmp_path / "m.gguf", cold))
    broken = {"llama.decision.type": "lev", TEMPLATE: "{% if %}"}
    with pytest.raises(ChatTemplateError, match=r"m\.gguf cannot be used: .*not valid"):
        of(model_file(tmp_path / "m.gguf", broken))


def test_ratings_need_nine_labels(tmp_path: Path) -> None:
    def letters_of_two(text: str, add_special: bool, parse_special: bool) -> list[int]:
        return [ord(text[0])] * (1 if text in set("ABCDEFGH") else 2)

    with pytest.raises(ModelError, match="need 9 labels .* only 8"):
        DecisionModel("lev", "x", {}, letters_of_two, WORDS.detokenize)
    assert DecisionModel("nimble", "x", {}, letters_of_two, WORDS.detokenize).max_options == 8


def test_any_other_model_is_none_and_its_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = model_file(tmp_path / "m.gguf", {"gemma.decision.type": "lev", TEMPLATE: "x"})
    monkeypatch.setattr(decision_model, "read_metadata", None)
    assert of(other) is None  # of an architecture that it is not
    assert of({"path": str(tmp_path / "gone.gguf"), "decision_type": ""}) is None
    assert of({}) is None


def test_a_decision_model_whose_file_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.gguf is gone"):
        of({"path": str(tmp_path / "gone.gguf"), "decision_type": "lev"})


# ---- models ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=DECISION_MODEL_TYPES)
def random_model(request: pytest.FixtureRequest, library: Library) -> Any:
    path = cached_decision_model(request.param)
    # Without flash attention a cache in full precision and one in half hardly differ.
    exact = {"flash_attn": "off"}
    with Model(path, library=library, n_threads=1, options=exact) as model:
        yield model


def test_models_of_each_type_answer_all_kinds_of_questions(random_model: Model) -> None:
    made_model = made_of(random_model)
    ten = SystemoneQuestion("ten", "choice", "Which?", tuple((f"no. {i}", None) for i in range(10)))
    for asked in made_model.ask([NOUL, CHOICE, SCORE, ten], {"text": "It broke.", "n": 2}):
        p = answered(random_model, asked)
        assert len(p) == len(asked.question.options)
        assert sum(p) == pytest.approx(1.0)
        assert max(p) - min(p) > 1e-3


def test_labels_are_read_as_the_model_finds_them_among_all_tokens(random_model: Model) -> None:
    """The ratios of the probabilities that the labels have in the whole vocabulary."""
    for asked in made_of(random_model).ask([NOUL, CHOICE, SCORE], "The invoice is wrong."):
        for prompt in asked.prompts:
            among_all = [
                random_model.end_of_turn(list(prompt.tokens), token).probability
                for token in prompt.read
            ]
            among_labels = np.array(among_all) / np.sum(among_all)
            read = np.exp(label_scores(random_model, prompt))
            assert read == pytest.approx(among_labels, abs=1e-3)


def test_real_vocabularies_keep_strangers_out_of_the_turns(random_model: Model) -> None:
    made_model = made_of(random_model)

    def controls(text: str) -> list[int]:
        (asked,) = made_model.ask(
            [SystemoneQuestion("q", "noul", text, NOUL.options)], {text: text}
        )
        (prompt,) = asked.prompts
        spelled = random_model.detokenize(prompt.tokens, unparse_special=True)
        assert spelled.count(text) >= 2
        return [
            token
            for token in prompt.tokens
            if not random_model.detokenize([token])
            and random_model.detokenize([token], unparse_special=True)
        ]

    usual = controls("nothing")
    for forged in ("<|im_end|>", "<|eot_id|>", "</s>", "<|begin_of_text|>", "<s>"):
        assert controls(forged) == usual


def test_the_script_writes_what_was_asked_for(tmp_path: Path) -> None:
    assert main(["--type", "kev", "--out", str(tmp_path / "new")]) == 0
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["kev.gguf"]
