"""The scores of a model for labelled examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decisions.models.session_models import decision_model_of
from ..decisions.prompt_settings import PromptSettings
from ..decisions.prompts import AskedQuestion, input_text
from ..errors import ContextFullError, InvalidArgumentError
from ..evidence.calibration import Calibration
from ..evidence.question_plan import N_MASSES, QuestionPlan, WantedHidden, is_of_row, score_run
from ..evidence.scoring import QuestionScores
from ..session.batches import OnError, run_many
from ..session.task import Task

Progress = Callable[[int, "int | None"], Any]
"""Takes the number of finished inputs and the number of all inputs."""

OnSkip = Callable[[int, str], Any]
"""Takes the index of a skipped example and the reason."""


@dataclass(frozen=True, eq=False)
class ScoreCache:
    """Scores of one model, which later fits use instead of reading the same inputs again.

    The settings of the prompts are those of `calibration`. `found` has the scores by the text of
    the input, for each way to ask; it is empty at first.
    """

    calibration: Calibration
    found: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def of(self, *asked: Any) -> dict[str, Any]:
        return self.found.setdefault(asked, {})


def raised_or_skipped(on_skip: OnSkip | None) -> Callable[[int, Exception], None]:
    """Return what to do with an error of an example; one that is not about it is raised."""

    def failed(i: int, error: Exception) -> None:
        if not is_of_row(error):
            raise error
        if on_skip is None:
            raise InvalidArgumentError(f"example {i}: {error}") from error
        on_skip(i, str(error))

    return failed


def is_made(model: Any, settings: PromptSettings) -> bool:
    """Return whether a model is a decision model, and the questions have its own format."""
    session = getattr(model, "session", None)
    return (
        session is not None and settings.prompt is None and decision_model_of(session) is not None
    )


def ask_examples(
    model: Any,
    inputs: Sequence[Any],
    questions: Sequence[AskedQuestion],
    wanted: NDArray[np.bool_],
    settings: PromptSettings,
    *,
    whole: bool,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
    stream: Mapping[str, Any] | None = None,
    hidden: WantedHidden | None = None,
    score_cache: ScoreCache | None = None,
) -> tuple[list[list[QuestionScores]], NDArray[np.bool_]]:
    """Ask about each input the questions that are `wanted`, shape [n_inputs, n_questions].

    Inputs with the same set of questions are processed as one batch. `on_skip` gets the index of
    each input that cannot be used, and the reason. If it is None, or if no input can be used, an
    error with this reason is raised. With `score_cache`, only inputs without scores there are read.

    Return, for each question, the scores of the inputs about which it was asked, in order, and
    `wanted` without the skipped inputs.
    """

    groups: dict[tuple[int, ...], list[int]] = {}  # the inputs of each set of questions
    for row in np.flatnonzero(wanted.any(axis=1)).tolist():
        groups.setdefault(tuple(np.flatnonzero(wanted[row]).tolist()), []).append(row)
    total = sum(map(len, groups.values()))
    answers: dict[int, Any] = {}  # for each input, the reason to skip it or its scores by question
    for group, every in groups.items():
        wanted_hidden = hidden and hidden.of(group)
        known: dict[str, Any] = {}
        if score_cache is not None:
            every_question = tuple(questions[i] for i in group)
            known = score_cache.of(every_question, settings, wanted_hidden, whole)
        rows = [row for row in every if not known or input_text(inputs[row]) not in known]

        def failed(place: int, error: Exception, rows: Sequence[int] = rows) -> str:
            if not is_of_row(error):
                raise error
            row, why = rows[place], str(error)
            is_long = isinstance(error, ContextFullError)
            if is_long:
                why = f"an input of {len(input_text(inputs[row])):,} characters: {why}"
            if on_skip is None:
                kind = ContextFullError if is_long else InvalidArgumentError
                raise kind(f"example {row}: {why}") from error
            return why

        answered: list[Any] = (
            []
            if not rows
            else ask_many(
                model,
                [inputs[row] for row in rows],
                [questions[i] for i in group],
                settings,
                whole=whole,
                on_error=failed,
                progress=_after(len(answers), total, progress),
                stream=stream,
                hidden=wanted_hidden,
            )
        )
        if score_cache is not None:
            texts = [input_text(inputs[row]) for row in rows]
            known.update(zip(texts, answered, strict=True))
            rows, answered = every, [known[input_text(inputs[row])] for row in every]
        for row, scores in zip(rows, answered, strict=True):
            is_skipped = isinstance(scores, str)
            answers[row] = scores if is_skipped else dict(zip(group, scores, strict=True))
    skipped = {row: why for row, why in sorted(answers.items()) if isinstance(why, str)}
    asked = wanted.copy()
    for row, why in skipped.items():
        asked[row] = False
        assert on_skip is not None, "without on_skip the error was raised"
        on_skip(row, why)
    if skipped and len(skipped) == total:
        first, why = next(iter(skipped.items()))
        raise InvalidArgumentError(f"no example can be used; example {first}: {why}")
    scores = [
        [answers[row][i] for row in np.flatnonzero(asked[:, i]).tolist()]
        for i in range(len(questions))
    ]
    return scores, asked


def ask_many(
    model: Any,
    inputs: Sequence[Any],
    questions: Sequence[AskedQuestion],
    settings: PromptSettings,
    *,
    whole: bool,
    on_error: OnError,
    progress: Progress | None,
    stream: Mapping[str, Any] | None,
    hidden: WantedHidden | None,
) -> list[Any]:
    """Return the scores of the questions for each input, or what `on_error` returns for it.

    The first :data:`N_MASSES` inputs have allowed probabilities.
    """
    session = model.session
    plan = QuestionPlan(session, questions, settings, full=whole, stream=stream, hidden=hidden)
    plan.about(session, "a test")  # if the questions are invalid, fail here and not for each input
    Task(session, plan.prior_runs(session)).run()

    def task(numbered: tuple[int, Any]) -> Task[Any]:
        place, input = numbered
        request = plan.about(session, input, allowed_probability=place < N_MASSES)
        return Task(session, score_run(session, request.args), read=request.scores)

    return run_many(
        enumerate(plan.ahead(inputs, lambda input: input)),
        task,
        at_once=session.decisions_at_once(None),
        total=len(inputs),
        progress=progress,
        on_error=on_error,
    )


def _after(before: int, total: int, progress: Progress | None) -> Progress | None:
    """Wrap `progress` for a batch that starts after `before` of `total` inputs are finished."""
    return None if progress is None else lambda done, _: progress(before + done, total)
