"""The few of many options that fit a text best, found before a model is asked about each of them.

An encoder finds them by the similarity of :mod:`.sources`, and computes the vectors of the options
once. A model without an encoder searches for them like the options of a long choice.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..decisions.prompt_settings import PromptSettings
from ..decisions.questions import Choice
from ..errors import InvalidArgumentError
from ..library.protocol import Ranking
from ..session.run import Run
from ..session.scoring import ScoreArgs, ScoreResult
from .comparing import compared, evidence_source
from .question_plan import QuestionPlan, score_run

if TYPE_CHECKING:
    from ..session.session import Session


class Shortlist:
    """Find the `question.top` best options of a choice, prepared for any text.

    `settings` are the prompts of a model without an encoder, and `stream` its slot and cache.
    """

    def __init__(
        self,
        session: Session,
        question: Choice,
        settings: PromptSettings,
        stream: Mapping[str, Any] | None = None,
    ) -> None:
        self._source = evidence_source(session)
        self._question = question
        if self._source is not None:
            self._compared = compared(question)
            return
        question = replace(question, show_options=False)
        settings = replace(settings, orders=1, answer_style="text", examples=(), prior="none")
        self._plan = QuestionPlan(session, [question], settings, stream=stream, may_search=True)

    def runs(
        self, session: Session, text: str, at_once: int | None = None
    ) -> Generator[Run[ScoreResult], ScoreResult, tuple[list[int], ScoreResult]]:
        """Yield the run that finds the options; return their places, best first, and its result."""
        k = min(self._question.top, len(self._question.options))
        if self._source is None:
            request = self._plan.about(session, text)
            result = yield score_run(session, request.args, at_once)
            (scores,) = request.scores(result)
            if isinstance(scores, Ranking):
                return scores.labels.tolist(), result
            values: Any = scores.log_probabilities("constrained")  # few options are not searched
            return np.argsort(-values, kind="stable")[:k].tolist(), result
        read = partial(self._source.read, text, [self._compared])
        result = yield score_run(session, ScoreArgs([], evidence=read), at_once)
        (values,) = result.evidence.scores
        return np.argsort(-values, kind="stable")[:k].tolist(), result


def check_can_shortlist(session: Session, what: str) -> None:
    """Raise InvalidArgumentError if a model cannot be asked about the options of a shortlist."""
    kind = getattr(session, "kind", "decoder")
    if kind != "decoder":
        raise InvalidArgumentError(
            f"{what} need a model that generates text, got an encoder or a reranker: open it "
            "beside such a model, with encoder="
        )
