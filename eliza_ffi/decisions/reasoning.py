"""Reasoning about an input before its questions are answered.

The model reads the input and all questions, and writes its reasoning once. The reasoning then
becomes a part of the input:

    {input}

    Reasoning:
    {reasoning}

So all questions share one reasoning, and their probabilities are conditional on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..chat.template import Messages
from ..checks import check_whole
from ..errors import InvalidArgumentError, NoChatTemplateError
from ..session.lifecycle import Work
from ..session.requests import generate_request
from ..session.thinking import FinishedReasoning, ReasoningRun
from .answers import expand
from .deciding import Settings
from .models.model_asking import decision_model_of
from .prompts import ask, input_text
from .questions import Question

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = ["reasoning_work", "with_reasoning"]

HEAD = "Reasoning:"


def reasoning_work(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    n_tokens: int,
    settings: Settings,
) -> Work[FinishedReasoning]:
    """Return the work that lets the model reason about an input and its questions.

    Parameters
    ----------
    session, given, questions
        As in :class:`~eliza_ffi.decisions.asking.Asking`.
    n_tokens
        Maximum number of tokens of the reasoning.
    settings
        The settings of the decision.

    Raises
    ------
    InvalidArgumentError
        If the input is malformed, if there is a calibration, which is fitted without reasoning, or
        if the model is a decision model, which cannot reason.
    """
    check_whole("think", n_tokens, 1)
    if settings.calibration is not None:
        raise InvalidArgumentError(
            "think must be 0 with a calibration, because calibrations are fitted without reasoning"
        )
    if decision_model_of(session) is not None:
        raise InvalidArgumentError("think must be 0 for a decision model, which cannot reason")
    asked = [ask(each).text for question in questions for each in expand(question)]
    text = "\n\n".join([input_text(given).strip(), *asked])
    messages: Messages = [{"role": "user", "content": text}]
    try:
        prompt: Any = session.chat().tokens(messages)
    except NoChatTemplateError:
        prompt = text + "\n"
    request = generate_request(session, prompt, method="decide", **settings.stream)
    return Work(
        partial(ReasoningRun, session, request, n_tokens),
        ReasoningRun.steps,
        n_tokens=len(request.prompt_tokens) + n_tokens,
        slot_id=request.slot_id,
    )


def with_reasoning(given: Any, reasoning: str) -> str:
    """Return the text of an input with a reasoning about it."""
    return f"{input_text(given).strip()}\n\n{HEAD}\n{reasoning}"
