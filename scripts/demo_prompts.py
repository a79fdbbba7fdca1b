"""The prompt formats of the embedded model, shared by its training script and the demo.

Every function returns text with the special tokens written out and without the BOS token. Tokenize
it with ``parse_special=True``. A prompt for a choice ends with the opening quote of the JSON string
that holds the answer. Therefore the labels are the bare names, tokenized on their own.

The message comes before the actions. A causal model then reads each action with the request already
in its context. A model of a few million weights learns this far more easily than matching a request
against actions that it read earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "bench" / "eliza_1"

START_OF_TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"

SHOULD_RESPOND_CHOICES: tuple[str, ...] = ("RESPOND", "IGNORE", "STOP")
"""The possible answers to :func:`should_respond_prompt`."""


def should_respond_prompt(message: str, channel_type: str, agent_name: str = "Eliza") -> str:
    """Write the prompt that asks whether the agent should react to a message.

    `channel_type` is ``"dm"``, ``"group"`` or ``"voice"``. Line breaks of the message become
    spaces. Each of :data:`SHOULD_RESPOND_CHOICES` can follow the prompt directly.
    """
    question = (
        f"agent: {_one_line(agent_name)}\n"
        f"channel: {_one_line(channel_type)}\n"
        f"message: {_one_line(message)}"
    )
    return _turn("user", question) + START_OF_TURN + 'assistant\n{"shouldRespond":"'


def planner_prompt(message: str, actions: Sequence[Mapping[str, Any]]) -> str:
    """Write the prompt that asks which of the available actions carries out a request.

    Each action has a ``name`` and may have a ``description`` and ``parameters``, a sequence of
    mappings with a ``name`` and optionally ``type``, ``enum`` and ``required``. Descriptions of
    parameters are left out, to keep the prompt short. The name of an action can follow the prompt
    directly. Raises ValueError if there are no actions.
    """
    if not actions:
        raise ValueError("a planner prompt needs at least one action")
    lines = "\n".join(_action_line(action) for action in actions)
    question = f"message: {_one_line(message)}\nactions:\n{lines}\n"
    return _turn("user", question) + START_OF_TURN + 'assistant\n{"action":"'


def chat_prompt(messages: Sequence[Mapping[str, str]]) -> str:
    """Write the prompt for a reply in plain text, up to the begin of the assistant's turn.

    Each message, oldest first, has a ``role`` (``"system"``, ``"user"`` or ``"assistant"``) and a
    ``content``.
    """
    turns = [_turn(_one_line(message["role"]), _plain(message["content"])) for message in messages]
    return "".join(turns) + START_OF_TURN + "assistant\n"


def _turn(role: str, content: str) -> str:
    return f"{START_OF_TURN}{role}\n{content}{END_OF_TURN}\n"


def _action_line(action: Mapping[str, Any]) -> str:
    """Write an action as ``NAME: description (to, count: number, unit?: metric|imperial)``."""
    line = _one_line(str(action["name"])) + ":"
    description = _one_line(str(action.get("description") or ""))
    if description:
        line += f" {description}"
    parameters = [_parameter(parameter) for parameter in action.get("parameters") or ()]
    return f"{line} ({', '.join(parameters)})" if parameters else line


def _parameter(parameter: Mapping[str, Any]) -> str:
    text = str(parameter["name"]) if parameter.get("required", True) else f"{parameter['name']}?"
    if parameter.get("enum"):
        text += ": " + "|".join(str(value) for value in parameter["enum"])
    elif parameter.get("type", "string") != "string":
        text += f": {parameter['type']}"
    return _one_line(text)


def _one_line(text: str) -> str:
    """Replace white space by single spaces, because line breaks separate the fields of a prompt."""
    return " ".join(_plain(text).split())


def _plain(text: str) -> str:
    """Break up special tokens in a message or a name, because they could end the turn early."""
    return text.replace("<|", "< |")
