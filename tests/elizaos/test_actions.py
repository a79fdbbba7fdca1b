"""Actions and their parameters."""

from __future__ import annotations

from typing import Any

import pytest

from eliza_ffi.elizaos.actions import Action, Parameter
from eliza_ffi.elizaos.planning import ActionSkeleton, ParametersSkeleton
from eliza_ffi.errors import InvalidArgumentError

DELETE = {
    "name": "DELETE_FILE",
    "description": "Delete a file.",
    "parameters": [
        {"name": "path", "type": "string", "required": True},
        {"name": "confirm", "type": "boolean", "required": False},
        {"name": "times", "type": "integer", "required": False},
    ],
}
SET = {
    "name": "SET_STATUS",
    "parameters": [{"name": "status", "type": "string", "enum": ["away", "online"]}],
}
NOTHING = {"name": "NOTHING"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('{"action":"DELETE_FILE","parameters":{"path":"x"}}', True),
        ('{"action":"DELETE_FILE","parameters":{"path":"x","confirm":true}}', True),
        ('{"action":"DELETE_FILE","parameters":{"path":"x","times":3}}', True),
        ('{"action":"DELETE_FILE","parameters":{"path":"x","confirm":false,"times":3}}', True),
        ('{"action":"DELETE_FILE","parameters":{"path":"x","times":3,"confirm":false}}', False),
        ('{"action":"DELETE_FILE","parameters":{"confirm":true}}', False),
        ('{"action":"DELETE_FILE","parameters":{"path":"x","times":3.5}}', False),
        ('{"action":"SET_STATUS","parameters":{"status":"away"}}', True),
        ('{"action":"SET_STATUS","parameters":{"status":"offline"}}', False),
        ('{"action":"SET_STATUS","parameters":{"path":"x"}}', False),
        ('{"action":"NOTHING","parameters":{}}', True),
        ('{"action":"NOTHING","parameters":{"path":"x"}}', False),
        ('{"action":"OTHER","parameters":{}}', False),
        ('{"action":"NOTHING","parameters":{}}}', False),
    ],
)
def test_only_parameters_of_the_chosen_action_match(text: str, matches: bool) -> None:
    skeleton = ActionSkeleton([DELETE, SET, NOTHING])
    assert skeleton.matches(text) == matches
    if matches:
        assert skeleton.accepts(skeleton.parse(text))


def test_values_are_accepted_with_keys_in_any_order() -> None:
    skeleton = ActionSkeleton([DELETE, SET, NOTHING])
    assert skeleton.accepts({"parameters": {"times": 1, "path": "x"}, "action": "DELETE_FILE"})
    for value in (
        None,
        {"action": "NOTHING"},
        {"action": [], "parameters": {}},
        {"action": "NOTHING", "parameters": []},
        {"action": "NOTHING", "parameters": {}, "more": 1},
        {"action": "DELETE_FILE", "parameters": {"path": 1}},
        {"action": "DELETE_FILE", "parameters": {"path": "x", "times": True}},
        {"action": "SET_STATUS", "parameters": {"status": "AWAY"}},
    ):
        assert not skeleton.accepts(value)


def test_fixed_text_between_values_is_one_piece() -> None:
    script = ActionSkeleton([DELETE, SET, NOTHING]).script()
    action = next(script)
    assert (action.before, action.after) == ('{"action":', ',"parameters":{')
    path = script.send(('"DELETE_FILE"', action.after))
    assert (path.before, path.in_string) == ('"path":"', True)
    assert path.follow == ('","confirm":', '","times":', '"}}')
    times = script.send(("x", '","times":'))
    assert (times.index, times.before, times.after) == (3, "", "}}")
    with pytest.raises(StopIteration):
        script.send(("3", "}}"))


def test_an_action_without_parameters_ends_in_a_literal() -> None:
    script = ActionSkeleton([NOTHING]).script()
    next(script)
    end = script.send(('"NOTHING"', ""))
    assert end.is_literal
    assert end.before == "}}"


def test_an_action_with_only_optional_parameters_begins_with_a_choice() -> None:
    """The model first chooses between the first key and the end of the object."""
    optional = {"name": "A", "parameters": [{"name": "x", "type": "number", "required": False}]}
    script = ParametersSkeleton(optional).script()
    first = next(script)
    assert first.is_literal
    assert first.follow == ('"x":', "}")
    with pytest.raises(StopIteration):
        script.send(("", "}"))
    assert ParametersSkeleton(optional).matches("{}")
    assert ParametersSkeleton(optional).matches('{"x":-0.5}')


def with_parameter(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "A", "parameters": [{"name": "x", **fields}]}]


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([], "no actions were given"),
        ([NOTHING, NOTHING], "actions: expected distinct names, got 'NOTHING' twice"),
        ([{"name": ""}], "the name of an action must be a non-empty string"),
        ([{"name": "\ud800"}], "lone surrogate"),
        ([{"name": "A", "parameters": "x"}], "action 'A': parameters must be a list"),
        ([{"name": "A", "parameters": [{}]}], "action 'A': a parameter must be an object"),
        ([{"name": "A", "parameters": [{"name": "x"}] * 2}], "'A': expected distinct .* 'x' twice"),
        (with_parameter(type="date"), "parameter 'x': type must be one of string, number"),
        (with_parameter(enum="ab"), "enum must be a list"),
        (with_parameter(enum=[]), "nothing to choose from"),
        (with_parameter(enum=[1]), "parameter 'x': expected enum values of type string, got 1"),
    ],
)
def test_malformed_actions_are_rejected(actions: list[Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        ActionSkeleton(actions)


def test_a_boolean_is_not_a_number_and_a_number_not_a_boolean() -> None:
    number = Parameter("n", "number", enum=(0, 1, 2.5))
    assert number.accepts(1)
    assert number.accepts(2.5)
    assert not number.accepts(True)
    assert not number.accepts(3)
    assert not Parameter("n", "integer").accepts(1.5)
    assert Parameter("b", "boolean").accepts(False)
    assert not Parameter("b", "boolean").accepts(0)


def test_an_action_can_be_read_from_json() -> None:
    action = Action.from_dict(DELETE)
    assert [(each.name, each.type, each.required) for each in action.parameters] == [
        ("path", "string", True),
        ("confirm", "boolean", False),
        ("times", "integer", False),
    ]
    assert action.description == "Delete a file."
