"""Reasoning about an input before its questions are answered.

The model reads the input and all questions, and writes its reasoning once. The reasoning then
becomes a part of the input:

    {input}

    Reasoning:
    {reasoning}

So all questions share one reasoning, and their probabilities are conditional on it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..chat.template import Messages
from ..errors import NoChatTemplateError
from ..session.batches import Job
from ..session.lifecycle import Cancellable, Work
from ..session.requests import generate_request
from ..session.thinking import FinishedReasoning, ReasoningRun
from .answers import Decision, expand
from .asking import score_work
from .deciding import DecisionRun, Settings
from .learning.stopping import decision_requests
from .prompts import ask, input_text
from .questions import Question

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = ["decision_job", "inputs_at_once", "reasoning_work", "with_reasoning"]

HEAD = "Reasoning:"


def decision_job(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    settings: Settings,
    wait: bool | float = True,
    at_once: int | None = None,
) -> Job[Decision]:
    """Return the job that answers questions about an input, after reasoning if requested.

    Parameters
    ----------
    wait, at_once
        As for :func:`~eliza_ffi.decisions.asking.score_job`.
    """
    if settings.think:
        return _ReasonedJob(session, given, questions, settings, wait, at_once)
    return _DecisionJob(session, given, questions, settings, wait, at_once)


def inputs_at_once(session: Session, think: int, asked: int | None) -> int:
    """Return how many inputs of a batch are worked on at the same time.

    Reasonings share forward passes like any generated text, so all slots can be in use. The jobs
    still limit how many decisions run at the same time.

    Parameters
    ----------
    think
        Maximum number of tokens of the reasoning.
    asked
        The requested number, or None.
    """
    return session.at_once(asked) if think else session.decisions_at_once(asked)


class _Steps:
    """Work in several steps. If another thread cancels the running step, no later one runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Cancellable | None = None
        self._is_cancelled = False

    def _make_current(self, current: Cancellable) -> None:
        with self._lock:
            self._current = current
            if self._is_cancelled:
                current.cancel()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._current is not None:
                self._current.cancel()


class _DecisionJob(_Steps):
    """Answer questions without reasoning."""

    def __init__(
        self,
        session: Session,
        given: Any,
        questions: Sequence[Question],
        settings: Settings,
        wait: bool | float,
        at_once: int | None,
    ) -> None:
        super().__init__()
        self._session, self._wait, self._at_once = session, wait, at_once
        self._requests = decision_requests(session, given, questions, settings)
        self._first = next(self._requests)  # an invalid input or question fails here

    def run(self) -> Decision:
        step = self._first
        while not isinstance(step, Decision):
            work = score_work(self._session, step, self._at_once)
            self._make_current(work)
            step = self._requests.send(self._session.result(work, self._wait))
        return step


class _ReasonedJob(_Steps):
    """Let the model reason about an input, then decide."""

    def __init__(
        self,
        session: Session,
        given: Any,
        questions: Sequence[Question],
        settings: Settings,
        wait: bool | float,
        at_once: int | None,
    ) -> None:
        super().__init__()
        self._session = session
        self._given = given
        self._wait = wait
        self._settings = settings
        self._reasoning = reasoning_work(session, given, questions, settings)
        self._decide = partial(
            decision_job,
            session,
            questions=questions,
            settings=replace(settings, think=0),
            wait=wait,
            at_once=at_once,
        )
        self._current = self._reasoning

    def run(self) -> Decision:
        if self._settings.thinks_sometimes:
            decision = self._run(self._decide(self._given))
            if not self._settings.thinks_after(decision):
                return decision
            self._make_current(self._reasoning)
        text = self._session.result(self._reasoning, self._wait).text
        return replace(self._run(self._decide(with_reasoning(self._given, text))), reasoning=text)

    def _run(self, job: Job[Decision]) -> Decision:
        self._make_current(job)
        return job.run()


def reasoning_work(
    session: Session,
    given: Any,
    questions: Sequence[Question],
    settings: Settings,
) -> Work[FinishedReasoning]:
    """Return the work that lets the model reason about an input and its questions.

    Raises
    ------
    InvalidArgumentError
        If the input is malformed, or a question does not fit the settings.
    """
    DecisionRun(session, given, questions, settings)  # checks them before the model reasons
    asked = [ask(each).text for question in questions for each in expand(question)]
    text = "\n\n".join([input_text(given).strip(), *asked])
    messages: Messages = [{"role": "user", "content": text}]
    try:
        prompt: Any = session.chat().tokens(messages)
    except NoChatTemplateError:
        prompt = text + "\n"
    request = generate_request(session, prompt, method="decide", **settings.stream)
    return Work(
        partial(ReasoningRun, session, request, settings.think),
        ReasoningRun.steps,
        slot_id=request.slot_id,
    )


def with_reasoning(given: Any, reasoning: str) -> str:
    """Return the text of an input with a reasoning about it."""
    return f"{input_text(given).strip()}\n\n{HEAD}\n{reasoning}"
