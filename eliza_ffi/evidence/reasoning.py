"""Decisions as tasks, after reasoning about the input if requested.

The model reads the input and all questions, and writes its reasoning once. The reasoning then
becomes a part of the input:

    {input}

    Reasoning:
    {reasoning}

So all questions share one reasoning, and their probabilities are conditional on it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..chat.template import Messages
from ..decisions.answers import Decision, DecisionUsage
from ..decisions.prompts import ask, input_text
from ..errors import NoChatTemplateError
from ..session.requests import generate_request
from ..session.run import Run
from ..session.task import Task
from ..session.thinking import Reasoning
from .deciding import DecisionPlan, OnScores, plan_runs
from .doubts import Doubts

if TYPE_CHECKING:
    from ..session.session import Session

HEAD = "Reasoning:"


def decision_task(
    session: Session,
    input: Any,
    plan: DecisionPlan,
    timeout: float | None = None,
    at_once: int | None = None,
    doubts: Doubts | None = None,
    on_scores: OnScores | None = None,
) -> Task[Decision]:
    """Return the task that answers the questions of a prepared plan about an input.

    `at_once` and `on_scores` are as for :meth:`.DecisionPlan.runs`; `doubts` counts the answer.
    """
    return Task(session, _runs(session, input, plan, at_once, doubts, on_scores), timeout)


def question_task(
    model: Any,
    input: Any,
    questions: Any,
    settings: Mapping[str, Any],
    timeout: float | None = None,
    on_scores: OnScores | None = None,
) -> Task[Decision]:
    """Return the task that answers questions about an input, with the arguments of `decide`.

    If the settings must be measured first, the measurement is a part of the task. `on_scores` is as
    for :meth:`.DecisionPlan.runs`.
    """

    def runs() -> Generator[Run[Any], Any, Decision]:
        plan = yield from plan_runs(model.session, questions, settings)
        return (yield from _runs(model.session, input, plan, on_scores=on_scores))

    return Task(model.session, runs(), timeout)


def prompts_task(
    model: Any, input: Any, questions: Any, settings: Mapping[str, Any]
) -> Task[list[str]]:
    """Return the task that writes the prompts of :func:`question_task`."""

    def runs() -> Generator[Run[Any], Any, list[str]]:
        plan = yield from plan_runs(model.session, questions, settings, "decision_prompts")
        return plan.texts(model.session, input)

    return Task(model.session, runs())


def _runs(
    session: Session,
    input: Any,
    plan: DecisionPlan,
    at_once: int | None = None,
    doubts: Doubts | None = None,
    on_scores: OnScores | None = None,
) -> Generator[Run[Any], Any, Decision]:
    with_mass = doubts is not None and doubts.wants_mass()
    thought, begin = None, time.perf_counter()
    if plan.settings.think:
        thought = yield reasoning_run(session, input, plan)
        input = with_reasoning(input, thought.text)
        n_read = thought.n_prompt, thought.n_cached, thought.n_passes
        spent = DecisionUsage(*n_read, time.perf_counter() - begin, thought.n_generated)
    decision, masses = yield from plan.runs(
        session, input, at_once, with_mass=with_mass, on_scores=on_scores
    )
    if thought is not None:
        decision = replace(decision, reasoning=thought.text, usage=decision.usage + spent)
    if doubts is not None:
        doubts.add(decision, masses)
    return decision


def inputs_at_once(session: Session, think: int, asked: int | None) -> int:
    """Return how many inputs of a batch are worked on at the same time; `asked` were requested.

    Reasonings share forward passes like any generated text, so all slots can be in use. The
    decisions after them have a limit of their own (`score_run`).
    """
    return session.at_once(asked) if think else session.decisions_at_once(asked)


def reasoning_run(session: Session, input: Any, plan: DecisionPlan) -> Run[Reasoning]:
    """Return the run that lets the model reason about an input and its questions."""
    plan.question_plan.about(session, input)  # checks the input before the model reasons
    asked = "\n\n".join(ask(each).text for each in plan.every)
    text = f"{input_text(input).strip()}\n\n{asked}"
    messages: Messages = [{"role": "user", "content": text}]
    try:
        prompt: Any = session.chat().tokens(messages)
    except NoChatTemplateError:
        prompt = text + "\n"
    request = generate_request(session, prompt, method="decide", **plan.settings.stream)
    reasoning = Reasoning(session, request, plan.settings.think)

    def steps(run: Run[Any]) -> Generator[Any, None, None]:
        yield from reasoning.steps(run)
        yield reasoning

    return Run(session, steps, slot_id=request.slot_id)


def with_reasoning(input: Any, reasoning: str) -> str:
    return f"{input_text(input).strip()}\n\n{HEAD}\n{reasoning}"
