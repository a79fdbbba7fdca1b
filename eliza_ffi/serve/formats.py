"""Requests and answers in the two wire formats, around :mod:`eliza_ffi.decisions.wire`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..decisions.answers import Decision, name_of
from ..decisions.prompts import as_one_input, input_text
from ..decisions.questions import Question
from ..decisions.wire import as_questions, decisions_answer, systemone_answer
from ..errors import InvalidArgumentError
from .refusals import Refusal

__all__ = ["DECISIONS", "EXTRAS", "SYSTEMONE", "DecisionRequest", "WireFormat"]

EXTRAS = ("option_mass", "prompts", "timings")
"""What a request may ask for besides, under ``include``."""

_ROLES = ("user", "developer", "system", "assistant")
_ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


@dataclass(frozen=True)
class WireFormat:
    """One of the two formats.

    Attributes
    ----------
    path : str
        Where it is spoken.
    input_name : str
        What it calls the input.
    kinds : tuple of str
        The types of its questions.
    questions_are : type
        A list of them, or a mapping from ids.
    check_input : callable
        Raises InvalidArgumentError for what the format does not take.
    write : callable
        Returns the answers and the usage of a decision.
    """

    path: str
    input_name: str
    kinds: tuple[str, ...]
    questions_are: type
    check_input: Callable[[Any], None]
    write: Callable[[Decision], dict[str, Any]]

    def read(self, given: Mapping[str, Any]) -> DecisionRequest:
        """Return what a request asks.

        Raises
        ------
        Refusal
            If it is malformed.
        """
        if not isinstance(given.get("model", ""), str):
            raise _malformed("model must be a text", "model")
        for name in (self.input_name, "questions"):
            if given.get(name) is None:
                raise _malformed(f"{name} is missing", name)
        return DecisionRequest(
            self._input(given[self.input_name]),
            self._questions(given["questions"]),
            _included(given.get("include")),
        )

    def _input(self, given: Any) -> Any:
        try:
            self.check_input(given)
            input_text(given)  # which refuses images
        except InvalidArgumentError as error:
            raise _malformed(str(error), self.input_name) from None
        return as_one_input(given)

    def _questions(self, given: Any) -> tuple[Question, ...]:
        if not isinstance(given, self.questions_are):
            wanted = "a list" if self.questions_are is list else "an object, an id for each"
            raise _malformed(f"questions must be {wanted}", "questions")
        self._check_kinds(given)
        try:
            return as_questions(given)
        except InvalidArgumentError as error:
            raise _malformed(str(error), "questions") from None

    def _check_kinds(self, given: Any) -> None:
        for name, question in given.items() if isinstance(given, dict) else enumerate(given):
            kind = question.get("type") if isinstance(question, dict) else None
            if kind not in self.kinds:
                raise _malformed(
                    f"the question {str(name)!r}: type must be one of {', '.join(self.kinds)}, "
                    f"not {kind!r}",
                    "questions",
                )


@dataclass(frozen=True)
class DecisionRequest:
    """What is asked.

    Attributes
    ----------
    input
    questions : tuple of Question
    include : frozenset of str
        Which of `EXTRAS` are wanted.
    """

    input: Any
    questions: tuple[Question, ...]
    include: frozenset[str]


def _included(given: Any) -> frozenset[str]:
    if given is None:
        return frozenset()
    if not isinstance(given, list) or not all(each in EXTRAS for each in given):
        raise _malformed(f"include must be a list of some of {', '.join(EXTRAS)}", "include")
    return frozenset(given)


def _malformed(message: str, param: str) -> Refusal:
    return Refusal(400, message, "invalid_value", param)


def _check_conversation(given: Any) -> None:
    """Check an input of ``/v1/decisions``."""
    if isinstance(given, str):
        return
    if not isinstance(given, list) or not given:
        raise InvalidArgumentError("input must be a text or a list of messages")
    for i, item in enumerate(given):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            if item.get("role") not in _ROLES:
                raise InvalidArgumentError(f"input[{i}]: role must be one of {', '.join(_ROLES)}")
            if not isinstance(item.get("content"), str | list):
                raise InvalidArgumentError(f"input[{i}]: content must be a text or a list of parts")
        elif kind not in _ITEMS:
            raise InvalidArgumentError(
                f"input[{i}] must be a message or of the type {', '.join(_ITEMS)}"
            )


def _check_state(given: Any) -> None:
    """Check an input of ``/v1/systemone``."""
    if not isinstance(given, str | dict | list):
        raise InvalidArgumentError("state must be a text, an object or a list")


def _write_decisions(decision: Decision) -> dict[str, Any]:
    n_input, n_cached = decision.usage.input_tokens, decision.usage.cached_tokens
    return {
        "answers": [decisions_answer(answer) for answer in decision.answers],
        "usage": {
            "input_tokens": n_input,
            # What was read is in the cache now.
            "input_tokens_details": {
                "cached_tokens": n_cached,
                "cache_write_tokens": n_input - n_cached,
            },
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_input,
        },
    }


def _write_systemone(decision: Decision) -> dict[str, Any]:
    return {
        "answers": {
            name_of(answer.name, i): systemone_answer(answer)
            for i, answer in enumerate(decision.answers)
        },
        "usage": {"input_tokens": decision.usage.input_tokens, "output_tokens": 0},
    }


DECISIONS = WireFormat(
    "/v1/decisions",
    "input",
    ("predicate", "choice", "score", "labels"),
    list,
    _check_conversation,
    _write_decisions,
)
"""OpenAI's; questions about many labels are ours."""

SYSTEMONE = WireFormat(
    "/v1/systemone",
    "state",
    ("noul", "choice", "score"),
    dict,
    _check_state,
    _write_systemone,
)
"""That of llama-server and others."""
