"""A fake decision model with given scores, which records its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.prompts import AskedQuestion, option_count
from eliza_ffi.evidence.question_plan import orders_of
from eliza_ffi.evidence.scoring import OptionScores, QuestionScores
from eliza_ffi.learning.examples import ask_many


@dataclass
class ScriptedModel:
    """A fake model.

    Attributes
    ----------
    path : Path
        The path that `describe` reports.
    logits : callable
        Takes an input and a question; returns the scores of the question's options.
    first_bonus : float
        Added to the score of the option that is shown first.
    calls : list
        For each call, the inputs, the instructions, and the argument `whole`.
    """

    path: Path
    logits: Callable[[Any, AskedQuestion], Sequence[float]]
    first_bonus: float = 0.0
    lora: tuple[dict[str, Any], ...] = ()
    decision_type: str = ""
    session: Any = None
    calls: list[tuple[list[Any], list[str], bool]] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        facts = {"path": str(self.path), "n_params": 7, "decision_type": self.decision_type}
        return {"model": {**facts, "lora": list(self.lora)}}

    def scores(
        self, given: Any, question: AskedQuestion, how: PromptSettings, whole: bool
    ) -> QuestionScores:
        n = option_count(question)
        n_tokens = np.arange(1.0, n + 1)
        each = []
        for order in orders_of(question, how.orders):
            logits = np.array(self.logits(given, question), dtype=float)
            logits[order[0]] += self.first_bonus
            constrained = log_softmax(logits)
            if not whole:
                each.append(OptionScores(constrained))
                continue
            # Longer labels are less probable for every input.
            full = constrained - 2.0 * n_tokens
            each.append(OptionScores(constrained, full))
        return QuestionScores(tuple(each))


MakeModel = Callable[..., ScriptedModel]
"""A fixture that makes a model."""


def ask_scripted(
    model: Any,
    inputs: Sequence[Any],
    questions: Sequence[AskedQuestion],
    how: PromptSettings,
    *,
    whole: bool,
    progress: Callable[[int, int | None], Any] | None = None,
    **more: Any,
) -> list[Any]:
    """Replace ``ask_many`` for a ScriptedModel; call it for other models."""
    if not isinstance(model, ScriptedModel):
        return ask_many(model, inputs, questions, how, whole=whole, progress=progress, **more)
    model.calls.append((list(inputs), [question.instructions for question in questions], whole))
    answered = []
    for place, given in enumerate(inputs):
        answered.append(tuple(model.scores(given, each, how, whole) for each in questions))
        if progress is not None:
            progress(place + 1, len(inputs))
    return answered


def scripted_settings(
    session: Any, questions: Any, given: Any, *, calibration: Any = None, **_: Any
) -> PromptSettings:
    """Replace ``settings_of_prompts`` for a ScriptedModel, which has no session."""
    fitted = {} if calibration is None else calibration.prompt_arguments()
    wanted = {**fitted, **{name: each for name, each in given.items() if each is not None}}
    return PromptSettings(
        wanted.get("answer_style", "text"), wanted.get("orders", 1), wanted.get("prompt")
    )
