"""Reasoning about an input before its questions are answered.

The model reads the input and all questions, and writes its reasoning once. The reasoning then
becomes a part of the input:

    {input}

    Reasoning:
    {reasoning}

So all questions share one reasoning, and their probabilities are conditional on it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..chat.template import Messages
from ..errors import NoChatTemplateError
from ..session.requests import generate_request
from ..session.run import Run
from ..session.task import Task
from ..session.thinking import FinishedReasoning, Reasoning
from .answers import Decision, expand
from .deciding import DecisionPlan, Settings, decision_runs
from .prompts import ask, input_text
from .questions import Question

if TYPE_CHECKING:
    from ..session.session import Session

HEAD = "Reasoning:"


def decision_task(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    settings: Settings,
    timeout: float | None = None,
    at_once: int | None = None,
) -> Task[Decision]:
    """Return the task that answers questions about an input, after reasoning if requested.

    Parameters
    ----------
    timeout
        As in :class:`~eliza_ffi.session.task.Task`.
    at_once
        As for :func:`~eliza_ffi.decisions.asking.score_run`.
    """
    return Task(session, _runs(session, given, questions, settings, at_once), timeout)


def _runs(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    settings: Settings,
    at_once: int | None,
) -> Generator[Run[Any], Any, Decision]:
    if not settings.think:
        return (yield from decision_runs(session, given, questions, settings, at_once))
    reasoning = reasoning_run(session, given, questions, settings)
    alone = replace(settings, think=0)
    if settings.thinks_sometimes:
        decision = yield from decision_runs(session, given, questions, alone, at_once)
        if not settings.thinks_after(decision):
            return decision
    text = (yield reasoning).text
    reasoned = with_reasoning(given, text)
    decision = yield from decision_runs(session, reasoned, questions, alone, at_once)
    return replace(decision, reasoning=text)


def inputs_at_once(session: Session, think: int, asked: int | None) -> int:
    """Return how many inputs of a batch are worked on at the same time.

    Reasonings share forward passes like any generated text, so all slots can be in use. The
    decisions after them have a limit of their own (`score_run`).

    Parameters
    ----------
    think
        Maximum number of tokens of the reasoning.
    asked
        The requested number, or None.
    """
    return session.at_once(asked) if think else session.decisions_at_once(asked)


def reasoning_run(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    settings: Settings,
) -> Run[FinishedReasoning]:
    """Return the run that lets the model reason about an input and its questions.

    Raises
    ------
    InvalidArgumentError
        If the input is malformed, or a question does not fit the settings.
    """
    DecisionPlan(session, given, questions, settings)  # checks them before the model reasons
    asked = [ask(each).text for question in questions for each in expand(question)]
    text = "\n\n".join([input_text(given).strip(), *asked])
    messages: Messages = [{"role": "user", "content": text}]
    try:
        prompt: Any = session.chat().tokens(messages)
    except NoChatTemplateError:
        prompt = text + "\n"
    request = generate_request(session, prompt, method="decide", **settings.stream)
    reasoning = Reasoning(session, request, settings.think)

    def steps(run: Run[Any]) -> Generator[FinishedReasoning, None, None]:
        yield reasoning.result(run)

    return session.new_run(steps, slot_id=request.slot_id)


def with_reasoning(given: Any, reasoning: str) -> str:
    """Return the text of an input with a reasoning about it."""
    return f"{input_text(given).strip()}\n\n{HEAD}\n{reasoning}"
