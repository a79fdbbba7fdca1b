"""Decision models: their prompts, their labels, and the probabilities of their answers.

Most tests use a vocabulary of words and no model. The last ones run a random model of each type.
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
from hypothesis import example, given
from hypothesis import strategies as st
from label_scores import label_scores, made_of
from large_vocabularies import DECISION_MODEL_TYPES
from word_vocabulary import Words
from write_decision_models import cached_decision_model

from eliza_ffi.decisions.models import decision_model
from eliza_ffi.decisions.models.decision_model import (
    DecisionModel,
    DecisionPrompt,
    QuestionPrompts,
    fixed_labels,
    typed_labels,
)
from eliza_ffi.decisions.models.systemone import SystemoneQuestion, read_state
from eliza_ffi.decisions.questions import Choice, Level, Option, Predicate, Score
from eliza_ffi.errors import (
    ChatTemplateError,
    InvalidArgumentError,
    ModelError,
    NotSupportedError,
    NotTextError,
)
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

TYPES = tuple(type for type, each in decision_model.TYPES.items() if each.labels != "marks")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

NOUL = SystemoneQuestion("angry", "noul", "Angry?", (("true", "yes!"), ("false", None)))
CHOICE = SystemoneQuestion(
    "route", "choice", {"z": 1, "a": [2]}, (("sales", None), ("it", {"y": 1, "b": 2}), ("x", "X"))
)
SCORE = SystemoneQuestion("urgency", "score", "How?", (("0", "low"), ("1", "mid"), ("2", "high")))

# A template that writes all of its variables, without changing the order of keys.
ECHO = (
    "{{ {'id': id, 'type': type, 'instructions': instructions, 'state': state, 'options': options,"
    " 'images': images, 'questions': questions if questions is defined else none} | tojson }}"
)


def choice_of(n: int) -> SystemoneQuestion:
    return SystemoneQuestion("q", "choice", "?", tuple((f"option {i}", None) for i in range(n)))


PAIRS = [a + b for a in LETTERS for b in LETTERS]
YES_NO = ["yes", "Yes", "YES", "no", "No", "NO"]
DIGITS = [f"{i:02}" for i in range(100)]
WORDS = Words([*PAIRS, *YES_NO, *DIGITS, *(f" {letter}" for letter in LETTERS)], ["<s>", "<end>"])


def build(
    type: str = "openjev", template: str = ECHO, temperatures: Any = (), words: Words = WORDS
) -> DecisionModel:
    metadata = {f"temperature.{name}": value for name, value in dict(temperatures).items()}
    return DecisionModel(type, template, metadata, words.tokenize, words.detokenize)


def variables_of(prompt: DecisionPrompt, words: Words = WORDS) -> dict[str, Any]:
    """Return the variables of the template, from a prompt that `ECHO` wrote."""
    return dict(json.loads(words.detokenize(prompt.tokens, unparse_special=True)))


def ask(model: DecisionModel, question: SystemoneQuestion, state: Any = "s") -> QuestionPrompts:
    (asked,) = model.ask([question], state)
    return asked


def test_letter_labels_start_with_upper_case_and_are_single_tokens() -> None:
    labels = fixed_labels("letters", WORDS.single)
    assert "".join(label.text for label in labels) == LETTERS + LETTERS.lower()
    assert [label.tokens for label in labels] == [(ord(label.text),) for label in labels]
    with pytest.raises(ModelError, match="the label 'C' must be one token, got 2"):
        fixed_labels("letters", lambda text: [0] if text in "AB" else [0, 1])


def test_code_labels_are_at_most_255_single_tokens() -> None:
    few = Words(["AB", "ZZ"])
    assert [label.text for label in fixed_labels("codes", few.single)] == [*LETTERS, "AB", "ZZ"]
    many = [label.text for label in fixed_labels("codes", WORDS.single)]
    assert many == [*LETTERS, *PAIRS][:255]


def test_a_predicate_uses_all_single_token_spellings() -> None:
    words = Words(["yes", "Yes", "NO"])
    labels = typed_labels(words.single, NOUL)
    yes, no = (words.ids["yes"], words.ids["Yes"]), (words.ids["NO"],)
    assert labels == [("true", yes), ("false", no)]
    with pytest.raises(ModelError, match="the label 'no' must be one token"):
        typed_labels(Words(["yes"]).single, NOUL)


def test_scores_have_digits_and_a_code_also_counts_with_a_leading_space() -> None:
    digits = typed_labels(WORDS.single, SCORE)
    assert digits == [("0", (ord("0"),)), ("1", (ord("1"),)), ("2", (ord("2"),))]
    labels = typed_labels(WORDS.single, choice_of(2))
    assert labels[1] == ("B", (ord("B"), WORDS.ids[" B"]))


LOGITS = np.random.default_rng(7).normal(0.0, 3.0, size=(2, 9))


def softmax(logits: Any, temperature: float) -> Any:
    weights = np.exp(np.asarray(logits) / temperature)
    return weights / weights.sum()


def typed_texts(words: Words, keys: Sequence[str]) -> list[str]:
    question = SystemoneQuestion("q", "choice", "?", tuple((key, None) for key in keys))
    return [label.text for label in typed_labels(words.single, question)]


def test_too_few_labels_in_the_vocabulary_are_rejected() -> None:
    letters_only = Words([])  # digits are single tokens, too, but not codes
    assert len(typed_texts(letters_only, [f"o{i}" for i in range(52)])) == 52
    with pytest.raises(InvalidArgumentError, match="too few labels for 53 options"):
        typed_texts(letters_only, [f"o{i}" for i in range(53)])


def reference_codes(words: Words, keys: Sequence[str]) -> list[str]:
    """Reference implementation: every key tries all substitutes from the first."""
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
        st.lists(st.sampled_from(LETTERS + "abcé"), min_size=1, unique=True),
        st.integers(1, 50).map(lambda n: [f"o{i}" for i in range(n)]),
    ),
)
@example(DIGITS, [f"o{i}" for i in range(150)])
def test_codes_match_the_reference_implementation(single: list[str], keys: list[str]) -> None:
    words = Words(single)
    assert typed_texts(words, keys) == reference_codes(words, keys)


@pytest.mark.parametrize("type", TYPES)
def test_a_template_receives_the_question_the_input_and_the_labels(type: str) -> None:
    state = {"b": [1, None, 20.0, 1234567.25, 2**70], "a": "text"}
    asked = ask(build(type), CHOICE, state)
    variables = variables_of(asked.prompts[0])
    assert (variables["id"], variables["type"]) == ("route", "choice")
    assert variables["instructions"] == CHOICE.instructions
    assert variables["state"] == state
    assert variables["images"] == []
    shown = [(option["key"], option["description"]) for option in variables["options"]]
    assert shown == list(CHOICE.options)
    labels = [option.get("label") for option in variables["options"]]
    assert labels == ([None] * 3 if type == "openjev" else ["A", "B", "C"])  # it has its own
    assert len(asked.prompts) == (2 if type == "lev" else 1)
    # Without forged tokens, a prompt is tokenized as one text.
    (prompt,) = ask(build(type, "<s>{{ state }}yes<end>"), SCORE, "A < B yes").prompts
    assert list(prompt.tokens) == WORDS.tokenize("<s>A < B yesyes<end>", False, True)


@pytest.mark.parametrize("type", TYPES)
def test_the_type_decides_whether_true_comes_first(type: str) -> None:
    variables = variables_of(ask(build(type), NOUL).prompts[0])
    keys = [option["key"] for option in variables["options"]]
    true_first = type in ("openjev", "lfm2-d1")
    assert keys == (["true", "false"] if true_first else ["false", "true"])
    if type not in ("lev", "lfm2-d1"):  # these have more labels than options
        asked = ask(build(type, temperatures={"noul": 0.6}), NOUL)
        shown = softmax(LOGITS[0, :2], 0.6)
        expected = shown if true_first else shown[::-1]
        assert asked.probabilities([LOGITS[0, :2]]) == pytest.approx(expected, abs=1e-12)


def test_lev_sorts_the_keys_of_all_json() -> None:
    state = {"b": {"d": 1, "c": [{"z": 1, "y": 2}]}, "a": 0, "Z": 0, "é": 0}
    (prompt, _) = ask(build("lev"), CHOICE, state).prompts
    variables = variables_of(prompt)
    assert json.dumps(variables["state"]) == json.dumps(state, sort_keys=True)
    assert list(variables["instructions"]) == ["a", "z"]
    assert list(variables["options"][1]) == ["description", "key", "label"]
    assert list(variables["options"][1]["description"]) == ["b", "y"]
    unsorted = variables_of(ask(build("pplx-decider"), CHOICE, state).prompts[0])
    assert json.dumps(unsorted["state"]) == json.dumps(state)
    assert list(unsorted["options"][1]) == ["key", "description", "label"]


def test_lev_asks_a_choice_again_with_reversed_options() -> None:
    first, second = ask(build("lev"), CHOICE).prompts
    shown, again = (variables_of(prompt)["options"] for prompt in (first, second))
    assert [each["key"] for each in shown] == [each["key"] for each in again[::-1]]
    assert [each["label"] for each in again] == ["A", "B", "C"]
    assert first.labels == second.labels == ((65,), (66,), (67,))
    assert len(ask(build("lev"), choice_of(1)).prompts) == 1


def test_a_predicate_is_read_from_ratings_or_from_all_spellings() -> None:
    (prompt,) = ask(build("lev"), NOUL).prompts
    assert prompt.labels == tuple((ord(letter),) for letter in "ABCDEFGHI")
    assert [option["label"] for option in variables_of(prompt)["options"]] == ["A", "B"]
    (prompt,) = ask(build("lfm2-d1"), NOUL).prompts
    spellings = [[WORDS.ids[word] for word in group] for group in (YES_NO[:3], YES_NO[3:])]
    assert [list(group) for group in prompt.labels] == spellings
    assert list(prompt.read) == spellings[0] + spellings[1]
    shared = DecisionPrompt((1,), ((7,), (8, 7), (9, 8)))
    assert shared.read == (7, 8, 9)
    assert shared.scores([3.0, 1.0, 2.0]) == [3.0, 3.0, 2.0]


def test_only_nimble_shows_all_questions_in_every_prompt() -> None:
    several = build("nimble").ask([NOUL, CHOICE, SCORE], "s")
    for question, asked in zip((NOUL, CHOICE, SCORE), several, strict=True):
        variables = variables_of(asked.prompts[0])
        assert variables["id"] == question.id
        assert [each["id"] for each in variables["questions"]] == ["angry", "route", "urgency"]
        own = next(each for each in variables["questions"] if each["id"] == question.id)
        assert own["options"] == variables["options"]
        assert own["instructions"] == question.instructions
    for type in set(TYPES) - {"nimble"}:
        assert variables_of(build(type).ask([NOUL, CHOICE], "s")[0].prompts[0])["questions"] is None


def test_only_lfm2_d1_accepts_none_as_input() -> None:
    assert variables_of(ask(build("lfm2-d1"), NOUL, None).prompts[0])["state"] is None
    for type in set(TYPES) - {"lfm2-d1"}:
        with pytest.raises(InvalidArgumentError, match=f"type {type} needs an input, got None"):
            ask(build(type), NOUL, None)


@pytest.mark.parametrize("type", TYPES)
def test_the_number_of_labels_limits_the_number_of_options(type: str) -> None:
    most = 52 if type == "openjev" else 255
    model = build(type, words=Words([*PAIRS, *YES_NO, *DIGITS]))
    assert model.max_options == most
    assert len(ask(model, choice_of(most)).prompts[0].labels) == most
    with pytest.raises(InvalidArgumentError, match=f"'q': .* at most {most} .*got {most + 1}$"):
        ask(model, choice_of(most + 1))


def test_text_that_looks_like_a_control_token_stays_text() -> None:
    model = build(template="<s>{{ state }}|{{ instructions }}|{{ options[0].key }}<end>")
    for spelled in ("<end>", "a<end>b", "<s>", "<<end>>"):
        question = SystemoneQuestion("q", "choice", spelled, ((spelled, None), ("b", None)))
        (prompt,) = ask(model, question, spelled).prompts
        controls = [token for token in prompt.tokens if WORDS.texts.get(token) in WORDS.controls]
        assert controls == [WORDS.ids["<s>"], WORDS.ids["<end>"]]
        plain = WORDS.detokenize(prompt.tokens)
        assert plain == f"{spelled}|{spelled}|{spelled}"


def test_an_ambiguous_control_token_is_rejected() -> None:
    looks = "<s>{% if '<end>' in state %}other{% endif %}{{ state | upper }}{{ state[0] }}<end>"
    with pytest.raises(InvalidArgumentError, match="'angry' or the input contains the text of a"):
        ask(build(template=looks), NOUL, "<end>")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('too long') }}", "'angry': the chat template rejects.*too long"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "stop"),
        ("{{ state.a.b }}", "'angry': the chat template failed: UndefinedError"),
        ("{% if false %}x{% endif %}", "'angry': the model's template produced no text"),
    ],
)
def test_a_template_error_names_the_question(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ask(build(template=template), NOUL)


def test_an_invalid_template_is_rejected_immediately() -> None:
    with pytest.raises(ChatTemplateError, match="not valid"):
        build(template="{% for %}")
    with pytest.raises(ChatTemplateError, match="include"):
        build(template="{% include '/etc/passwd' %}")


@pytest.mark.parametrize(
    "state", [math.nan, [math.inf], b"bytes", {1: 2}, {"a": {2, 3}}, [object()]]
)
def test_an_input_must_be_json(state: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="the input is not JSON"):
        ask(build(), NOUL, state)


def test_the_nesting_depth_of_an_input_is_limited() -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    assert variables_of(ask(build(), NOUL, deep).prompts[0])["state"] == deep
    with pytest.raises(InvalidArgumentError, match="nested deeper than 40"):
        ask(build(), NOUL, [deep])
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidArgumentError, match="nested deeper than 40"):
        ask(build("lev"), NOUL, deep)


@pytest.mark.parametrize("kind", ["image_url", "input_image", "input_audio"])
def test_an_input_with_images_or_audio_is_rejected(kind: str) -> None:
    turns = [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": kind}]}]
    for state in (turns, {"messages": turns, "more": 1}):
        with pytest.raises(NotTextError, match=f"{kind}.*only text is supported"):
            ask(build(), NOUL, state)
    assert read_state({"photos": turns}) == {"photos": turns}  # data, not a conversation


def test_questions_are_converted_to_the_systemone_format() -> None:
    of = SystemoneQuestion.of
    expected = SystemoneQuestion("p", "noul", "Is it?", (("true", "so"), ("false", None)))
    assert of(Predicate("Is it?", if_true="so"), "p") == expected
    choice = Choice("Which?", [Option("a", "A"), Option(True), "true"], none="neither")
    keys = ("true (bool)", "true", "neither")
    assert of(choice, "c").options == (("a", "A"), *((key, None) for key in keys))
    score = Score("How?", [Level("low"), Level("high", "very")])
    assert of(score, "s").options == (("0", "low"), ("1", "high: very"))


def test_questions_in_systemone_format_keep_their_json() -> None:
    read = SystemoneQuestion.read
    noul = {"type": "noul", "instructions": [1, {"a": None}], "criteria": {"true": {"x": 1}}}
    options = (("true", {"x": 1}), ("false", None))
    assert read(noul, "n") == SystemoneQuestion("n", "noul", [1, {"a": None}], options)
    assert read({"type": "noul", "instructions": "?"}, "n").options[0] == ("true", None)
    choice = {"type": "choice", "instructions": "?", "criteria": {"a": None, "b": [1]}}
    assert read(choice, "c").options == (("a", None), ("b", [1]))
    score = {"type": "score", "instructions": "?", "criteria": ["low", {"high": 1}]}
    assert read(score, "s").options == (("0", "low"), ("1", {"high": 1}))


@pytest.mark.parametrize(
    ("given_question", "message"),
    [
        ({"type": "predicate", "instructions": "x"}, "is not in the format of /v1/systemone"),
        ({"type": "choice", "instructions": "x", "choices": ["a", "b"]}, "is not in the format"),
        ({"type": "noul", "instructions": math.nan}, "not JSON"),
    ],
)
def test_the_error_of_a_malformed_question_names_its_id(given_question: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'my id'.*{message}"):
        SystemoneQuestion.read(given_question, "my id")


BUCKETS = {"choice": 9.0, "choice.2": 1, "choice.3_5": 2, "choice.6_10": 3, "choice.11": 4}
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
        assert build(type, temperatures=BUCKETS).temperature(choice_of(n)) == temperature
    assert build("lev", temperatures=LEV_BUCKETS).temperature(choice_of(n)) == of_lev


def test_a_temperature_without_a_bucket_is_the_default_of_its_type() -> None:
    model = build(temperatures={"choice.2": 5, "choice": 4, "noul": 3, "choice.small": 2})
    assert model.temperature(choice_of(2)) == 5
    assert model.temperature(choice_of(3)) == 4
    assert model.temperature(NOUL) == 3
    assert model.temperature(SCORE) == 1
    assert ask(model, NOUL).temperature == 3
    assert build("lev", temperatures={"noul.small": 7, "noul": 3}).temperature(NOUL) == 7


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, math.inf, "warm", True, None])
def test_a_temperature_must_be_a_number_above_0(value: Any) -> None:
    with pytest.raises(ModelError, match=r"temperature\.choice\.2 must be a number above 0"):
        build(temperatures={"choice.2": value})


@pytest.mark.parametrize("type", ["openjev", "nimble", "pplx-decider"])
@pytest.mark.parametrize("question", [CHOICE, SCORE], ids=["choice", "score"])
def test_probabilities_are_the_softmax_of_the_logits(
    type: str, question: SystemoneQuestion
) -> None:
    asked = ask(build(type, temperatures={question.type: 1.7}), question)
    p = asked.probabilities([LOGITS[0, :3]])
    assert p == pytest.approx(softmax(LOGITS[0, :3], 1.7), abs=1e-12)
    assert asked.probabilities([LOGITS[0, :3] - 40.0]) == pytest.approx(p, abs=1e-12)


def test_the_probabilities_of_two_orders_are_averaged() -> None:
    asked = ask(build("lev", temperatures={"choice.small": 1.3}), CHOICE)
    first, second = softmax(LOGITS[0, :3], 1.3), softmax(LOGITS[1, :3], 1.3)
    p = asked.probabilities(LOGITS[:, :3].tolist())
    assert p == pytest.approx((first + second[::-1]) / 2, abs=1e-12)
    # A preference for the first label cancels out.
    p = ask(build("lev"), choice_of(2)).probabilities([[5.0, 0.0], [5.0, 0.0]])
    assert p == pytest.approx([0.5, 0.5])


def test_certain_answers_and_extreme_logits_do_not_overflow() -> None:
    assert ask(build(), choice_of(1)).probabilities([[-3.0]]) == [1.0]
    p = ask(build(temperatures={"choice": 0.01}), CHOICE).probabilities([[1e4, -1e4, -math.inf]])
    assert p == [1.0, 0.0, 0.0]


def test_the_probability_of_true_is_the_expected_rating() -> None:
    asked = ask(build("lev", temperatures={"noul": 1.1}), NOUL)
    true = softmax(LOGITS[0], 1.1) @ np.linspace(0.0, 1.0, 9)
    assert asked.probabilities([LOGITS[0]]) == pytest.approx([true, 1.0 - true], abs=1e-12)
    sure = [-30.0] * 8 + [0.0]
    assert asked.probabilities([sure]) == pytest.approx([1.0, 0.0], abs=1e-9)
    assert asked.probabilities([sure[::-1]]) == pytest.approx([0.0, 1.0], abs=1e-9)


def test_the_most_probable_spelling_counts() -> None:
    asked = ask(build("lfm2-d1", temperatures={"noul": 1.4}), NOUL)
    row = LOGITS[0, :6]
    expected = softmax([row[:3].max(), row[3:].max()], 1.4)
    assert asked.probabilities([row]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("logits", [[[math.nan, 1, 2]], [[-math.inf] * 3]])
def test_invalid_logits_are_rejected(logits: list[list[float]]) -> None:
    with pytest.raises(InvalidArgumentError, match="'route'"):
        ask(build(), CHOICE).probabilities(logits)


def model_file(file: Path, metadata: dict[str, Any], architecture: str = "llama") -> dict[str, str]:
    """Write a file that has only metadata, and return the description of its model."""
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


def test_type_template_and_temperatures_are_read_from_the_file(tmp_path: Path) -> None:
    metadata = {
        TEMPLATE: "{{ state }}: {{ instructions }}",
        "qwen3.decision.type": "nimble",
        "qwen3.decision.temperature.choice": 2.0,
        "qwen3.decision.temperature.choice.3_5": 0.5,
        "qwen3.decision.head_count": 3.0,
        "llama.decision.temperature.noul": 4.0,  # another architecture
    }
    model = of(model_file(tmp_path / "m.gguf", metadata, "qwen3"))
    assert model is not None
    assert model.type == "nimble"
    assert model.temperatures == {"choice": 2.0, "choice.3_5": 0.5}
    (prompt,) = ask(model, NOUL, "so").prompts
    assert WORDS.detokenize(prompt.tokens) == "so: Angry?"


TYPE, NOUL_OF_FILE = "llama.decision.type", "llama.decision.temperature.noul"


@pytest.mark.parametrize(
    ("metadata", "kind", "reason"),
    [
        ({TYPE: "new"}, NotSupportedError, "unsupported type 'new'; supported: openjev, lev"),
        ({TYPE: "vllm-d3"}, NotSupportedError, "unsupported type 'vllm-d3', which is newer than"),
        ({TYPE: "lev"}, ModelError, "the file has no template"),
        (
            {TYPE: "lev", NOUL_OF_FILE: 0.0, TEMPLATE: "x"},
            ModelError,
            r"the entry temperature\.noul must",
        ),
        ({TYPE: "lev", TEMPLATE: "{% if %}"}, ChatTemplateError, ".*not valid"),
    ],
)
def test_errors_about_a_file_contain_its_name(
    tmp_path: Path, metadata: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=rf"decision model .*m\.gguf cannot be used: {reason}"):
        of(model_file(tmp_path / "m.gguf", metadata))
    with pytest.raises(ModelError, match=r"gone\.gguf is gone"):
        of({"path": str(tmp_path / "gone.gguf"), "decision_type": "lev"})


def test_rating_types_need_nine_labels(tmp_path: Path) -> None:
    def letters_of_two(text: str, add_special: bool, parse_special: bool) -> list[int]:
        return [ord(text[0])] * (1 if text in set("ABCDEFGH") else 2)

    with pytest.raises(ModelError, match="need 9 labels .* only 8"):
        DecisionModel("lev", "x", {}, letters_of_two, WORDS.detokenize)
    assert DecisionModel("nimble", "x", {}, letters_of_two, WORDS.detokenize).max_options == 8


def test_other_models_give_none_and_their_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = model_file(tmp_path / "m.gguf", {"gemma.decision.type": "lev", TEMPLATE: "x"})
    monkeypatch.setattr(decision_model, "read_metadata", None)
    assert of(other) is None  # the decision type belongs to another architecture
    assert of({"path": str(tmp_path / "gone.gguf"), "decision_type": ""}) is None
    assert of({}) is None


LABELLED = [param for param in DECISION_MODEL_TYPES if param.values[0] in TYPES]


@pytest.fixture(scope="module", params=LABELLED)
def random_model(request: pytest.FixtureRequest, library: Library) -> Any:
    path = cached_decision_model(request.param)
    # Without flash attention, the precision of the cache has almost no effect.
    exact = {"flash_attn": "off"}
    with Model(path, library=library, n_threads=1, options=exact) as model:
        yield model


def test_label_probabilities_match_the_whole_vocabulary(random_model: Model) -> None:
    """Compare the labels' probabilities with their shares in the whole vocabulary."""
    for asked in made_of(random_model).ask([NOUL, CHOICE, SCORE], "The invoice is wrong."):
        for prompt in asked.prompts:
            given = list(prompt.tokens)
            among_all = [random_model.end_of_turn(given, t).probability for t in prompt.read]
            among_labels = np.array(among_all) / np.sum(among_all)
            read = np.exp(label_scores(random_model, prompt))
            assert read == pytest.approx(among_labels, abs=1e-3)


def test_forged_control_tokens_stay_text_with_real_vocabularies(random_model: Model) -> None:
    spell = random_model.detokenize

    def controls(text: str) -> list[int]:
        question = SystemoneQuestion("q", "noul", text, NOUL.options)
        (prompt,) = ask(made_of(random_model), question, {text: text}).prompts
        assert spell(prompt.tokens, unparse_special=True).count(text) >= 2
        return [t for t in prompt.tokens if not spell([t]) and spell([t], unparse_special=True)]

    usual = controls("nothing")
    for forged in ("<|im_end|>", "<|eot_id|>", "</s>", "<|begin_of_text|>", "<s>"):
        assert controls(forged) == usual
