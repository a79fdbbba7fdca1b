"""The cases of the demo: prompts, labels and the expected labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _resources
from .demo_prompts import SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt

__all__ = ["DemoCase", "demo_cases"]


@dataclass(frozen=True)
class DemoCase:
    """One case of the demo.

    Attributes
    ----------
    task, id : str
    message : str
        The user's message.
    prompt : str
        The prompt in the format of :mod:`eliza_ffi.cli.demo_prompts`. The label follows it.
    labels : tuple of str
    expected : str
        The right label.
    """

    task: str
    id: str
    message: str
    prompt: str
    labels: tuple[str, ...]
    expected: str


def demo_cases(task: str) -> Iterator[DemoCase]:
    """Yield the cases of a task, ``"planner"`` or ``"should-respond"``, from its fixture file."""
    read = {"planner": _planner, "should-respond": _should_respond}[task]
    fixture = json.loads(_resources.fixture_path(f"{task}.json").read_text(encoding="utf-8"))
    yield from map(read, fixture["cases"])


def _planner(case: Mapping[str, Any]) -> DemoCase:
    actions = case["availableActions"]
    return DemoCase(
        task="planner",
        id=case["id"],
        message=case["input"],
        prompt=planner_prompt(case["input"], actions),
        labels=tuple(action["name"] for action in actions),
        expected=case["expected_action_name"],
    )


def _should_respond(case: Mapping[str, Any]) -> DemoCase:
    return DemoCase(
        task="should-respond",
        id=case["id"],
        message=case["input"],
        prompt=should_respond_prompt(case["input"], case["channelType"]),
        labels=SHOULD_RESPOND_CHOICES,
        expected=case["expected"],
    )
