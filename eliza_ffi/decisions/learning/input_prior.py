"""A prior from the inputs themselves: ``prior="inputs"``.

The probabilities of each input are divided by a power of their mean over a sample of the inputs
(batch calibration; Zhou et al. 2023). No right answers are needed. The result is a calibration with
the method ``batch``.

It assumes that all options are about equally common. If an answer is rare, a full division finds
too many of it; the strength :data:`STRENGTH` below 1 limits this. docs/explanation/accuracy.md has
measurements.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InvalidArgumentError
from ..auto_prompts import sample_of
from ..prompt_settings import PromptArguments
from ..questions import Question
from .calibration import Calibration, as_calibration

N_INPUTS = 300
"""The most inputs of which the mean is computed, evenly spaced."""

STRENGTH = 0.5
"""The exponent of the mean."""


def fit_input_prior(
    model: Any, questions: Sequence[Question], inputs: Sequence[Any], settings: Mapping[str, Any]
) -> Calibration:
    """Fit the prior to a sample of the inputs, with the arguments of `decide`.

    Inputs that cannot be used are left out. At least 10 must remain.
    """
    from .fitting import LEAST_EXAMPLES, calibrate  # later: most decisions do not need it

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
            rule=settings.get("scoring") or "constrained",
            strength=STRENGTH,
            on_skip=lambda index, reason: skipped.append(index),
            prompt_examples=settings.get("examples"),
            cache=settings.get("cache"),
            **{**prompts, "prior": None},
        )
    except InvalidArgumentError as error:
        n = len(sample) - len(skipped)
        if not 0 < n < LEAST_EXAMPLES:
            raise
        raise InvalidArgumentError(
            f'prior="inputs" needs at least {LEAST_EXAMPLES} usable inputs, got {n}; pass more '
            f'inputs, or prior="options"'
        ) from error


def given_calibration(settings: Mapping[str, Any]) -> Calibration | None:
    """Return the calibration that `calibration` or `prior` names; None if there is none."""
    prior = settings.get("prior")
    return as_calibration(prior if _is_calibration(prior) else settings.get("calibration"))


def _is_calibration(prior: Any) -> bool:
    return isinstance(prior, Calibration | os.PathLike) or (
        isinstance(prior, str) and prior not in ("auto", "options", "none", "inputs")
    )


def with_input_prior(
    model: Any, questions: Sequence[Question], inputs: Any, settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return settings with a calibration in place of ``prior="inputs"`` or the path of a file."""
    prior = settings.get("prior")
    is_file = _is_calibration(prior)
    if not is_file and not (isinstance(prior, str) and prior == "inputs"):
        return settings
    if settings.get("think"):
        raise InvalidArgumentError(
            "think must be 0 with a prior of the inputs, which is fitted without reasoning"
        )
    if settings.get("calibration") is not None:
        raise InvalidArgumentError(
            "prior and calibration cannot be combined: a calibration contains a prior"
        )
    if not is_file and inputs is None:
        raise InvalidArgumentError('prior="inputs" needs several inputs: use decide_many()')
    if not is_file and not isinstance(inputs, Sequence):
        raise InvalidArgumentError(
            f'prior="inputs" needs a list of inputs, got {type(inputs).__name__}: pass list(inputs)'
        )
    rest = {name: value for name, value in settings.items() if name != "prior"}
    rest["calibration"] = prior if is_file else fit_input_prior(model, questions, inputs, settings)
    return rest
