"""elizaOS's handwritten fixtures as evaluation examples. Training does not use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from demo_prompts import SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt

from .corpus import Example


def load_fixtures(folder: Path) -> dict[str, list[Example]]:
    """Read ``should-respond.json`` and ``planner.json``."""
    decisions = [
        Example(
            "decision",
            case["input"],
            should_respond_prompt(case["input"], case["channelType"]),
            case["expected"],
            "",
            SHOULD_RESPOND_CHOICES,
        )
        for case in _cases(folder / "should-respond.json")
    ]
    plans = [
        Example(
            "planner",
            case["input"],
            planner_prompt(case["input"], case["availableActions"]),
            case["expected_action_name"],
            "",
            tuple(action["name"] for action in case["availableActions"]),
        )
        for case in _cases(folder / "planner.json")
    ]
    return {"fixtures, should respond": decisions, "fixtures, planner": plans}


def _cases(path: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return cases
