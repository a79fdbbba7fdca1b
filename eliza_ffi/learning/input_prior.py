"""A prior from the inputs themselves: ``prior="inputs"``.

The probabilities of each input are divided by a power of their mean over a sample of the inputs
(batch calibration; Zhou et al. 2023). No labels are needed. The result is a calibration with
the method ``batch``.

It assumes that all options are about equally common. If an answer is rare, a full division finds
too many of it; the strength :data:`STRENGTH` below 1 limits this (see
docs/explanation/measurements.md). The similarities of an encoder are centred instead: the mean of
each option over the sample is subtracted from its logarithms. A label of several gets its threshold
in the same way.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ..checks import did_you_mean, wrong
from ..decisions.prompt_settings import PromptArguments
from ..decisions.questions import Question
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..evidence.auto_prompts import PRIORS, sample_of
from ..evidence.calibration import Calibration
from ..evidence.comparing import only_compares
from ..evidence.deciding import DecisionPlan, plan_runs
from ..session.run import Run

N_INPUTS = 300
"""The maximum number of inputs for the mean, evenly spaced."""

STRENGTH = 0.5
"""The exponent of the mean."""


def fit_input_prior(
    model: Any, questions: Sequence[Question], inputs: Sequence[Any], settings: Mapping[str, Any]
) -> Calibration:
    """Fit the prior to a sample of the inputs, with the arguments of `decide`.

    Inputs that cannot be used are left out. At least 10 must remain.
    """
    from .fitting import MIN_EXAMPLES, calibrate  # later: most decisions do not need it

    sample = sample_of(inputs, N_INPUTS)
    skipped: list[int] = []
    prompts: Any = {
        name: settings[name] for name in PromptArguments.__annotations__ if name in settings
    }
    try:
        return calibrate(
            model,
            questions,
            [(each, {}) for each in sample],
            method="batch",
            scoring=settings.get("scoring") or "constrained",
            strength=1.0 if only_compares(model.session) else STRENGTH,
            on_skip=lambda index, reason: skipped.append(index),
            examples=settings.get("examples"),
            cache=settings.get("cache"),
            **{**prompts, "prior": None},
        )
    except InvalidArgumentError as error:
        n = len(sample) - len(skipped)
        if not 0 < n < MIN_EXAMPLES:
            raise
        raise InvalidArgumentError(
            f'prior="inputs" needs at least {MIN_EXAMPLES} usable inputs, got {n}; pass more '
            f'inputs, or prior="options"'
        ) from error


def many_plan_runs(
    model: Any, questions: Any, inputs: Any, settings: Mapping[str, Any]
) -> Generator[Run[Any], Any, DecisionPlan]:
    """Yield the runs that the plan of `decide_many` needs, and return it."""
    _ = model.session.ctx  # raises if the model is closed or belongs to the parent process
    asked = as_questions(questions)
    own = with_input_prior(model, asked, inputs, settings)
    return (yield from plan_runs(model.session, asked, own, "decide_many", inputs))


def with_input_prior(
    model: Any, questions: Sequence[Question], inputs: Any, settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return settings with a calibration instead of ``prior="inputs"``."""
    prior = settings.get("prior")
    if not (isinstance(prior, str) and prior == "inputs"):
        if hint := did_you_mean(prior, ["inputs"]):
            raise wrong("prior", f"one of {', '.join(PRIORS)}, inputs", prior, hint)
        return settings
    if settings.get("think"):
        raise InvalidArgumentError(
            "think must be 0 with a prior of the inputs, which is fitted without reasoning"
        )
    if settings.get("calibration") is not None:
        raise InvalidArgumentError(
            'prior="inputs" and calibration cannot be combined: a calibration contains a prior'
        )
    if not isinstance(inputs, Sequence):
        raise InvalidArgumentError(
            f'prior="inputs" needs a list of inputs, got {type(inputs).__name__}: pass list(inputs)'
        )
    rest = {name: value for name, value in settings.items() if name != "prior"}
    return {**rest, "calibration": fit_input_prior(model, questions, inputs, settings)}
