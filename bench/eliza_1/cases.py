"""The cases of elizaOS's eliza-1 benchmark: prompts, allowed answers and expected answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from demo_prompts import (
    FIXTURES,
    SHOULD_RESPOND_CHOICES,
    planner_prompt,
    should_respond_prompt,
)

from eliza_ffi.elizaos.actions import Action
from eliza_ffi.elizaos.planning import ActionSkeleton, ParametersSkeleton
from eliza_ffi.structured import Skeleton, SkeletonSpan
from eliza_ffi.structured.json_text import json_text

TASKS = ("should_respond", "planner", "action")

ANY = "<<any>>"
"""The expected value of a parameter that may have any value but must be present."""


class _ShouldRespondSkeleton(Skeleton):
    """The skeleton of ``{"shouldRespond":"..."}``."""

    def accepts(self, value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and set(value) == {"shouldRespond"}
            and value["shouldRespond"] in SHOULD_RESPOND_CHOICES
        )


AnswerSkeleton: TypeAlias = _ShouldRespondSkeleton | ActionSkeleton | ParametersSkeleton
"""The allowed answers to a case, for checking answers in every mode of the benchmark."""


@dataclass(frozen=True)
class Case:
    """One case of the benchmark."""

    task: str
    id: str
    # The prompt in the format of `scripts/demo_prompts.py`. The answer follows it.
    prompt: str
    # The same request for a chat model: a system message that describes the answer, and the user's
    # message.
    instruction: str
    question: str
    skeleton: AnswerSkeleton
    # ``action`` or ``shouldRespond``: the right name. ``parameters``: the parameters that must be
    # right.
    expected: Mapping[str, Any]

    def is_right(self, value: Any) -> bool:
        """Return whether an answer that matches the schema is the expected one."""
        given = value if self.task == "action" else value.get("parameters", {})
        expected = self.expected.get("parameters", {})
        return self.has_right_name(value) and same_parameters(expected, given)

    def has_right_name(self, value: Any) -> bool:
        """Return whether the action or the reaction is right; the parameters may be wrong."""
        names = [name for name in ("action", "shouldRespond") if name in self.expected]
        return all(value[name] == self.expected[name] for name in names)


SHOULD_RESPOND = _ShouldRespondSkeleton(
    (
        SkeletonSpan("literal", value='{"shouldRespond":'),
        SkeletonSpan("enum", "shouldRespond", enum_values=SHOULD_RESPOND_CHOICES),
        SkeletonSpan("literal", value="}"),
    )
)


def cases_of(task: str, action: str | None = None) -> Iterator[Case]:
    """Yield the cases of a task from its fixture file; with `action`, only those of an action."""
    readers = {"should_respond": _should_respond, "planner": _planner, "action": _action}
    file = FIXTURES / f"{task.replace('_', '-')}.json"
    fixture = json.loads(file.read_text(encoding="utf-8"))
    for case in fixture["cases"]:
        if action is None or case.get("actionName") == action:
            yield readers[task](case)


def same_parameters(expected: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether all expected parameters are given; further ones are allowed.

    The comparison of strings ignores case and surrounding white space.
    """
    return all(name in given and _same(value, given[name]) for name, value in expected.items())


def _same(expected: Any, given: Any) -> bool:
    if expected == ANY:
        return True
    if isinstance(expected, str) and isinstance(given, str):
        return expected.strip().casefold() == given.strip().casefold()
    return type(expected) is type(given) and bool(expected == given)


def _should_respond(case: Mapping[str, Any]) -> Case:
    return Case(
        task="should_respond",
        id=case["id"],
        prompt=_before_answer(should_respond_prompt(case["input"], case["channelType"])),
        instruction=(
            "You are Eliza, an agent in a chat. Decide whether to react to a message. Answer with "
            'nothing but JSON: {"shouldRespond": "RESPOND"} if you are addressed, '
            '{"shouldRespond": "IGNORE"} if others talk among themselves, '
            '{"shouldRespond": "STOP"} if you are asked to be silent.'
        ),
        question=f"channel: {case['channelType']}\nmessage: {case['input']}",
        skeleton=SHOULD_RESPOND,
        expected={"shouldRespond": case["expected"]},
    )


def _planner(case: Mapping[str, Any]) -> Case:
    actions = case["availableActions"]
    return Case(
        task="planner",
        id=case["id"],
        prompt=_before_answer(planner_prompt(case["input"], actions)),
        instruction=(
            "Choose the action that carries out the user's request, and its parameters. Answer "
            'with nothing but JSON: {"action": NAME, "parameters": {...}}. Parameters that are '
            f"not required may be left out. The actions: {json_text(actions)}"
        ),
        question=case["input"],
        skeleton=ActionSkeleton(actions),
        expected={"action": case["expected_action_name"], "parameters": case["expected_params"]},
    )


def _action(case: Mapping[str, Any]) -> Case:
    action = {"name": case["actionName"], "parameters": case["parameters"]}
    prompt = _before_answer(planner_prompt(case["context"], [action]))
    return Case(
        task="action",
        id=case["id"],
        # The action is fixed here, so the answer continues with the parameters.
        prompt=f'{prompt}{{"action":{json_text(case["actionName"])},"parameters":',
        instruction=(
            f"Give the parameters of an action. Answer with nothing but a JSON object of the "
            f"parameters. The action: {json_text(action)}"
        ),
        question=case["context"],
        skeleton=ParametersSkeleton(Action.from_dict(action)),
        expected={"parameters": case["expected_params"]},
    )


def _before_answer(prompt: str) -> str:
    """Remove the beginning of the JSON answer from a prompt that ends with it."""
    return prompt[: prompt.rindex("{")]
