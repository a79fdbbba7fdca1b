"""How models mark the reasoning before their answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ThinkingFormat", "thinking_format"]


@dataclass(frozen=True)
class ThinkingFormat:
    """The text around the reasoning of a model.

    Attributes
    ----------
    mark : str
        A text that only templates with this format contain.
    start : str
        The text before the reasoning.
    stop : str
        The text that the model writes when its reasoning is over.
    end : str
        The text between the reasoning and the answer. It begins with `stop`, except for whitespace.
    """

    mark: str
    start: str
    stop: str
    end: str

    def is_open(self, prompt: str) -> bool:
        """Return whether a prompt ends where the reasoning begins."""
        return prompt.rstrip().endswith(self.start.rstrip())

    def closed_at(self, prompt: str) -> int | None:
        """Return where an empty reasoning at the end of a prompt begins; None without one."""
        start, stop = re.escape(self.start.strip()), re.escape(self.stop)
        found = re.search(rf"(?:{start})?\s*{stop}\s*$", prompt)
        return None if found is None else found.start()


_THINK = ThinkingFormat("<think>", "<think>\n", "</think>", "\n</think>\n\n")

_FORMATS = (
    ThinkingFormat(
        "<|channel|>analysis",
        "<|channel|>analysis<|message|>",
        "<|end|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    ThinkingFormat("<|channel>thought", "<|channel>thought\n", "<channel|>", "<channel|>"),
    ThinkingFormat("[THINK]", "[THINK]", "[/THINK]", "[/THINK]"),
    ThinkingFormat("<seed:think>", "<seed:think>", "</seed:think>", "</seed:think>"),
    ThinkingFormat("<mm:think>", "<mm:think>\n", "</mm:think>", "\n</mm:think>\n"),
)
"""The formats of gpt-oss, Gemma 4, Magistral, Seed-OSS and MiniMax."""


def thinking_format(template: str) -> ThinkingFormat:
    """Return the format of a chat template's reasoning.

    A template without reasoning gets the most common format, ``<think>`` and ``</think>``.

    Parameters
    ----------
    template
        The source of the template; empty if the model has none.
    """
    return next((each for each in _FORMATS if each.mark in template), _THINK)
