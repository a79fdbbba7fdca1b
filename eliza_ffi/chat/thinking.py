"""How models mark the reasoning before their answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ThinkingFormat:
    """The text around the reasoning of a model."""

    mark: str  # only templates with this format contain it
    start: str  # before the reasoning
    stop: str  # what the model writes when its reasoning is over
    end: str  # between the reasoning and the answer; begins with `stop` after whitespace

    def is_open(self, prompt: str) -> bool:
        """Return whether a prompt ends where the reasoning begins."""
        return prompt.rstrip().endswith(self.start.rstrip())

    def closing(self, prompt: str) -> str:
        """Return the text that ends the reasoning that a prompt has opened; empty if there is
        none."""
        return self.end if self.is_open(prompt) else ""

    def closed_at(self, prompt: str) -> int | None:
        """Return where an empty reasoning at the end of a prompt begins; None without one."""
        start, stop = re.escape(self.start.strip()), re.escape(self.stop)
        found = re.search(rf"(?:{start})?\s*{stop}\s*$", prompt)
        return None if found is None else found.start()


THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""The template variables that switch reasoning off; templates use different names."""

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
    """Return the format of a chat template's reasoning; the most common one if it has none."""
    return known_thinking_format(template) or _THINK


def known_thinking_format(template: str) -> ThinkingFormat | None:
    """Return the format of a chat template's reasoning; None if the template has no reasoning."""
    return next((each for each in (*_FORMATS, _THINK) if each.mark in template), None)


@dataclass(frozen=True)
class WrittenReasoning:
    """How a model marks reasoning that was not requested with `think`."""

    format: ThinkingFormat
    is_open: bool  # the prompt already contains the mark at the beginning of the reasoning
    # the control tokens in the marks, with their texts, which the library leaves out of the
    # generated text
    control: Mapping[int, str]

    def reader(self) -> ReasoningReader:
        return ReasoningReader(self.format, self.is_open)


class ReasoningReader:
    """Splits the text of a model into its reasoning and its answer, piece by piece. A text that
    does not begin with the mark of the reasoning is all answer, unless the prompt contains it
    (`is_open`)."""

    def __init__(self, format: ThinkingFormat, is_open: bool) -> None:
        self.reasoning = ""
        self.answer = ""
        self._stop = format.stop
        self._start = "" if is_open else format.start.strip()
        self._end = format.end.strip().removeprefix(format.stop)
        self._state = "reasoning" if is_open else "start"
        self._held = ""

    def push(self, text: str, is_last: bool = False) -> tuple[str, str]:
        """Add text, and return the new parts of the reasoning and of the answer."""
        reasoning = ""
        self._held += text
        if self._state == "start":
            if not self._has_read(self._start, is_last):
                return "", ""
            self._state = "reasoning" if self._found else "answer"
        if self._state == "reasoning":
            reasoning = self._read_reasoning(is_last)
            self.reasoning += reasoning
        if self._state == "end" and self._has_read(self._end, is_last):
            self._state = "space"
        if self._state == "space":
            self._held = self._held.lstrip()
            if self._held or is_last:
                self._state = "answer"
        if self._state != "answer":
            return reasoning, ""
        answer, self._held = self._held, ""
        self.answer += answer
        return reasoning, answer

    def _has_read(self, mark: str, is_last: bool) -> bool:
        """Read a mark if the text begins with it; return False if more text could decide that."""
        text = self._held.lstrip()
        self._found = text.startswith(mark)
        if self._found:
            self._held = text.removeprefix(mark)
        return self._found or is_last or not mark.startswith(text)

    def _read_reasoning(self, is_last: bool) -> str:
        text = self._held if self.reasoning else self._held.lstrip()
        reasoning, stop, rest = text.partition(self._stop)
        if stop:
            self._state, self._held = "end", rest
            return reasoning.rstrip()
        n = 0 if is_last else n_held(text, self._stop)
        reasoning = text[: len(text) - n].rstrip()
        self._held = "" if is_last else text[len(reasoning) :]
        return reasoning


def n_held(text: str, *marks: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a mark."""
    longest = min(len(text), max(map(len, marks)) - 1)
    for n in range(longest, 0, -1):
        if any(mark.startswith(text[-n:]) for mark in marks):
            return n
    return 0
