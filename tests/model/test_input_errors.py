"""Common mistakes: the error names the argument, the expected and found values, and a next step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from both_faces import result_of

from eliza_ffi import AsyncModel, Gbnf, Model, Skeleton
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.elizaos import ActionSkeleton
from eliza_ffi.errors import ContextFullError, InvalidArgumentError, ModelError, TokenTrieError
from eliza_ffi.evidence import Calibration
from eliza_ffi.learning import calibrate
from eliza_ffi.library.loading import Library
from eliza_ffi.sampling import Sampling

QUESTIONS = {"team": Choice("Which team?", ["billing", "sales"])}
SKELETON = {"spans": [{"kind": "boolean", "key": "urgent"}]}
CONVERSATION = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "delete",
        "description": "Delete a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}

Face = Model | AsyncModel


@dataclass
class Order:
    """A schema for `fill`."""

    item: str


@pytest.fixture(params=[Model, AsyncModel])
def face(request: pytest.FixtureRequest, tiny_model: Model) -> Face:
    return tiny_model if request.param is Model else AsyncModel.of(tiny_model)


def run(found: Any) -> Any:
    return asyncio.run(result_of(found))


def said(call: Callable[[], Any], kind: type[Exception] = InvalidArgumentError) -> str:
    with pytest.raises(kind) as caught:
        run(call())
    return str(caught.value)


# ---- One value in place of several, and the reverse ------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("generate", {}),
        ("choose", {"labels": ["a", "b"]}),
        ("fill", {"schema": SKELETON}),
        ("decide", {"questions": QUESTIONS}),
    ],
)
def test_a_string_is_not_a_list_of_prompts(
    face: Face, name: str, arguments: dict[str, Any]
) -> None:
    many = getattr(face, f"{name}_many")
    what = "inputs" if name == "decide" else "prompts"
    expected = f"{what} must be a list of {what}, got 'hello'; for one {what[:-1]} use {name}()"
    assert said(lambda: many("hello", **arguments)) == expected
    assert said(lambda: many(b"hello", **arguments)).endswith(
        f"got bytes; for one {what[:-1]} use {name}()"
    )
    assert said(lambda: many({"a": 1}, **arguments)).endswith(
        f"got a dict; for one {what[:-1]} use {name}()"
    )


def test_a_conversation_is_not_a_list_of_prompts(face: Face) -> None:
    assert said(lambda: face.choose_many(CONVERSATION, ["a", "b"])) == (
        "prompts[0]: prompt must be a string, a Prompt, token ids or a list of messages, got a "
        "dict; a conversation is a list of messages"
    )


def test_a_list_of_strings_is_not_one_input(face: Face) -> None:
    assert said(lambda: face.decide(["hi", "ho"], QUESTIONS)) == (
        "input must be one input, got a list; to ask about each string use decide_many(); "
        "otherwise join the strings"
    )
    assert "decide_many()" in said(lambda: face.decision_prompts(["hi", "ho"], QUESTIONS))


def test_a_tuple_of_strings_is_one_input(tiny_model: Model) -> None:
    of_text = tiny_model.decide('["hi", "ho"]', QUESTIONS)["team"]
    of_tuple = tiny_model.decide(("hi", "ho"), QUESTIONS)["team"]
    assert of_tuple.probabilities == of_text.probabilities
    assert tiny_model.decide([["hi"], {"a": 1}], QUESTIONS)["team"].value
    assert len(tiny_model.decide_many([["hi", "ho"], "hi"], QUESTIONS)) == 2


def test_a_column_of_inputs_is_not_one_input(face: Face) -> None:
    column = np.array(["hi", "ho"])
    assert said(lambda: face.decide(column, QUESTIONS)) == (
        "input is neither a string nor JSON: Object of type ndarray is not JSON serializable; "
        "for several inputs use decide_many()"
    )


# ---- Prompts and labels -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (5, "got 5"),
        (b"hello", "got bytes"),
        ({"role": "user"}, "got a dict; a conversation is a list of messages"),
        (Order("a pen"), "got an Order"),
        (Order, "got the class Order"),
        (["a", "b"], "got a list; for several prompts use the method whose name ends in _many"),
    ],
)
def test_a_wrong_prompt_is_named_in_the_error(face: Face, prompt: Any, expected: str) -> None:
    message = f"prompt must be a string, a Prompt, token ids or a list of messages, {expected}"
    assert said(lambda: face.choose(prompt, ["a", "b"])) == message
    assert said(lambda: face.generate(prompt)) == message
    assert said(lambda: face.fill(prompt, SKELETON)) == message


def test_a_token_outside_the_vocabulary_is_named(face: Face) -> None:
    prompt = [5, 2**30]
    for call in (lambda: face.choose(prompt, ["a", "b"]), lambda: face.generate(prompt, 1)):
        assert f"tokens[1]: {2**30} is outside the vocabulary" in said(call)


# ---- Shapes and actions -------------------------------------------------------------------------


def test_fill_accepts_the_schema_by_its_name(tiny_model: Model) -> None:
    schema = {"enum": ["a", "b"]}
    assert tiny_model.fill("x", schema=schema).value in ("a", "b")
    assert tiny_model.fill_many(["x"], schema=schema)[0].value in ("a", "b")


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({}, "an empty dict"),
        (None, "None"),
        (["a"], "a list; for a list of labels use choose()"),
        (Gbnf('root ::= "a"'), "a Gbnf; for a GBNF grammar use generate(prompt, schema=...)"),
        ('{"enum": [1]}', "'{\"enum\": [1]}'; read JSON text with json.loads() first"),
    ],
)
def test_a_wrong_schema_is_named_in_the_error(face: Face, schema: Any, found: str) -> None:
    assert said(lambda: face.fill("x", schema)) == (
        "schema must be a Skeleton or its JSON form, a non-empty JSON Schema as a mapping, "
        f"a class, a Regex or a Lark, got {found}"
    )


@pytest.mark.parametrize("schema", [SKELETON, Skeleton.from_dict(SKELETON)])
def test_generate_points_to_fill_for_a_skeleton(face: Face, schema: Any) -> None:
    assert said(lambda: face.generate("x", schema=schema)).endswith("; for a skeleton use fill()")


def test_openai_tool_definitions_are_rejected_as_actions(face: Face) -> None:
    form = "the parameters as a list of objects with name, type, enum, required and description"
    assert said(lambda: face.fill("x", ActionSkeleton([TOOL]))) == (
        "an action must be an object with name, description and parameters, got an OpenAI tool "
        f"definition; pass the contents of its 'function', with {form}"
    )
    assert said(lambda: face.fill("x", ActionSkeleton([TOOL["function"]]))) == (
        "action 'delete': parameters must be a list, got a mapping in parameters, such as a JSON "
        f"Schema; pass {form}"
    )
    of_others = {"name": "delete", "input_schema": {"type": "object"}}
    assert "got a mapping in input_schema" in said(
        lambda: face.fill("x", ActionSkeleton([of_others]))
    )
    assert (
        said(lambda: face.fill("x", ActionSkeleton("delete")))
        == "actions must be a list of actions, got 'delete'"
    )


# ---- Misspelt names --------------------------------------------------------------------


KEEY = {"spans": [{"kind": "boolean", "keey": "a"}]}
OVERIDES = {"overides": []}
IS_IT = {"type": "predicate", "instruction": "Is it?"}


def go(**fields: Any) -> ActionSkeleton:
    return ActionSkeleton([{"name": "GO", **fields}])


@pytest.mark.parametrize(
    ("call", "where", "wrong", "right"),
    [
        (lambda m: m.fill("x", KEEY), "spans[0]: a span", "keey", "key"),
        (lambda m: m.fill("x", {**SKELETON, "gramar": ""}), "a skeleton", "gramar", "grammar"),
        (lambda m: m.fill("x", SKELETON, sampler_plan=OVERIDES), "plan", "overides", "overrides"),
        (lambda m: m.fill("x", go(parameter=[])), "action 'GO'", "parameter", "parameters"),
        (
            lambda m: m.fill("x", go(parameters=[{"name": "where", "requird": False}])),
            *("action 'GO': parameter 'where'", "requird", "required"),
        ),
        (
            lambda m: m.decide("x", {"q": IS_IT}),
            *("the question 'q': predicate", "instruction", "instructions"),
        ),
    ],
)
def test_a_misspelt_field_suggests_the_right_one(
    tiny_model: Model, call: Callable[[Model], Any], where: str, wrong: str, right: str
) -> None:
    expected = f"{where} has no field '{wrong}'; did you mean '{right}'?"
    assert said(lambda: call(tiny_model)).endswith(expected)


def test_a_misspelt_name_suggests_the_right_one(tiny_model: Model) -> None:
    question = {"q": {"type": "predikate", "instructions": "Is it?"}}
    assert said(lambda: tiny_model.decide("x", question)) == (
        "the question 'q': type must be one of predicate, noul, choice, score, labels, "
        "got 'predikate'; did you mean 'predicate'?"
    )
    text = said(lambda: tiny_model.generate("x", sampling=Sampling(samplers="top_k;temprature")))
    assert text.endswith("did you mean 'temperature'?")


def test_unknown_fields_of_actions_are_ignored(tiny_model: Model) -> None:
    action = {"name": "GO", "similes": ["LEAVE"], "descriptionCompressed": "Go."}
    assert tiny_model.fill("x", ActionSkeleton([action])).value["action"] == "GO"


# ---- Calibrations -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibration(tiny_model: Model) -> Calibration:
    examples = [(f"input {i}", {"0": i % 3 > 0}) for i in range(12)]
    return calibrate(tiny_model, [Predicate("Is it so?")], examples, method="temperature")


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_calibration_can_be_the_path_of_its_file(
    face: Face, calibration: Calibration, tmp_path: Path, as_path: Callable[[Path], Any]
) -> None:
    calibration.save(tmp_path / "calibration.json")
    file, questions = as_path(tmp_path / "calibration.json"), [Predicate("Is it so?")]
    wanted = run(face.decide("hello", questions, calibration=calibration))
    found = run(face.decide("hello", questions, calibration=file))
    assert found.calibrated
    assert found["0"].probability == wanted["0"].probability
    (of_many,) = run(face.decide_many(["hello"], questions, calibration=file))
    assert of_many["0"].probability == wanted["0"].probability


def test_a_wrong_calibration_is_named_in_the_error(face: Face, tmp_path: Path) -> None:
    given: Any = {"temperature": 2.0}
    assert said(lambda: face.decide("hello", QUESTIONS, calibration=given)) == (
        "calibration must be a Calibration, the path of a calibration file or None, got a dict"
    )
    missing = tmp_path / "missing.json"
    assert str(missing) in said(
        lambda: face.decide("hello", QUESTIONS, calibration=missing), FileNotFoundError
    )


# ---- Model files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            ["config.json", "model-00001-of-00002.safetensors", "tokenizer.json"],
            "its model is not in the GGUF format: fetch the model as a .gguf file, or convert it "
            "with llama.cpp's convert_hf_to_gguf.py",
        ),
        (["mmproj.gguf", "README.md"], "there is no .gguf file in it"),
        ([], "there is no .gguf file in it"),
    ],
)
def test_the_error_for_a_folder_without_a_bundle_says_what_to_do(
    library: Library, tmp_path: Path, files: list[str], expected: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("x")
    text = said(lambda: Model(tmp_path, library=library), ModelError)
    assert f"{tmp_path} is not a model bundle: expected a model file, or a folder with a" in text
    assert text.endswith(expected.format(folder=tmp_path))


def test_a_bundle_is_opened_by_its_folder(
    library: Library, tiny_model: Model, tmp_path: Path
) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "model.gguf").symlink_to(tiny_model.path)
    with Model(tmp_path, library=library, n_ctx=128, n_threads=1) as model:
        assert model.choose("hello", ["a", "b"]).value in ("a", "b")


# ---- Settings and collections that would have no effect, or another one in each run --------------


def test_a_setting_of_choose_without_effect_is_rejected(face: Face) -> None:
    labels = ["a", "b"]
    for mode in (None, "best", "greedy"):
        message = said(lambda mode=mode: face.choose("x", labels, mode=mode, temperature=2.0))
        assert message.startswith('temperature=2.0 needs mode="sample"')
    assert run(face.choose("x", labels, mode="sample", temperature=2.0)).value in labels
    assert said(lambda: face.choose("x", labels, heal_prompt=True)) == (
        'heal_prompt=True needs tokenization="any"'
    )


@pytest.mark.parametrize("labels", [["b", "a\ud800"], Literal["b", "a\ud800"]])
def test_a_label_with_a_lone_surrogate_is_named(face: Face, labels: Any) -> None:
    for call in (
        lambda: face.choose("x", labels),
        lambda: face.choose("x", labels, tokenization="any"),
        lambda: face.rank("x", labels),
        lambda: face.choose_many(["x"], labels),
    ):
        assert said(call).startswith("labels[1] has a lone surrogate, U+D800, at character 1")


def test_a_set_is_no_list_of_options(face: Face) -> None:
    options = {"a", "b"}
    for call in (
        lambda: face.choose("x", options),
        lambda: face.choose_many(["x"], frozenset(options)),
        lambda: face.rank("x", options),
        lambda: Choice("Which?", options),
        lambda: MultiLabel("Which?", options),
        lambda: Score("How much?", options),
    ):
        assert said(call).endswith("sort it first, because a set has no fixed order")
    assert run(face.choose("x", {"a": 1, "b": 2}.keys())).value in options


def test_a_label_longer_than_the_context_is_named(library: Library) -> None:
    long = "too long " * 100
    labels = ["short", long]
    question = Choice("Which?", labels)

    def write(given: str, asked: Any) -> str:
        return given

    with Model(library=library, n_ctx=256, n_threads=1) as model:
        n = len(model.tokenize(long))
        for call, kind in (
            (lambda: model.choose("x", labels), TokenTrieError),
            (lambda: model.choose("x", labels, mode="greedy"), TokenTrieError),
            (lambda: model.choose_many(["x"], labels, probabilities=True), TokenTrieError),
            (lambda: model.rank("x", labels, 1), ContextFullError),
            (lambda: model.decide("x", question, prompt=write), ContextFullError),
        ):
            text = said(call, kind).removeprefix("prompts[0]: ")
            assert text.startswith(f"the label 'too long too long {'too long ' * 4}"[:60])
            assert f"has {n} tokens" in text
            assert text.endswith("which do not fit the context of 256 tokens")
        # A prompt that does not fit even without a label is another error.
        assert "label" not in said(lambda: model.rank("x " * 400, labels, 1), ContextFullError)


def test_an_error_inside_a_label_is_short(library: Library) -> None:
    labels = ["a" * 1000 + "b", "a" * 1000 + "c"]
    with Model(library=library, n_ctx=256, n_threads=1) as model:
        text = said(
            lambda: model.choose("x", labels, tokenization="any", mode="greedy"), ContextFullError
        )
    assert "the context was full inside a label" in text
    assert len(text) < 200
