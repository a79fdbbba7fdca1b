"""All nine stages combined: the two entry points of akunu's CPU sampler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import stages as stage


def sample_logits_f16(
    raw: bytes | NDArray[Any],
    rng: np.random.Generator,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repeat_penalty: float = 1.0,
    previous: Iterable[int] = (),
    cap: int | None = stage.TOP_K_CAP,
) -> int:
    """Draw a token from half-precision logits with all nine stages.

    One uniform number is drawn from `rng`, except at temperature 0, which takes the largest logit
    after the repetition penalty. The other arguments are those of the stages. By default, all are
    off except the cap.
    """
    logits = stage.penalize_repeats(stage.widen_f16(raw), previous, repeat_penalty)
    if temperature <= 0:
        return stage.argmax(logits)
    scaled = stage.scale_temperature(stage.check_logits(logits), temperature)
    ranked = _truncate(scaled, top_k, top_p, min_p, cap)
    return stage.draw(ranked, rng.random(dtype=np.float32))


def sample_logits(
    logits: ArrayLike,
    rng: np.random.Generator,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    cap: int | None = stage.TOP_K_CAP,
) -> int:
    """Draw a token from single-precision logits, which the caller may have masked.

    Skips the conversion and the repetition penalty. Parameters as for :func:`sample_logits_f16`.
    With a temperature of exactly 1, the logits are not scaled, so they are not rounded.
    """
    if temperature <= 0:
        return stage.argmax(logits)
    ranked = distribution(logits, temperature, top_k, top_p, min_p, cap)
    return stage.draw(ranked, rng.random(dtype=np.float32))


def distribution(
    logits: ArrayLike,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    cap: int | None = stage.TOP_K_CAP,
) -> stage.Ranked:
    """Return the distribution that :func:`sample_logits` draws from (stages 3 to 8).

    `temperature` must be above 0.
    """
    scaled = stage.check_logits(logits)
    if temperature != 1:
        scaled = stage.scale_temperature(scaled, temperature)
    return _truncate(scaled, top_k, top_p, min_p, cap)


def _truncate(
    logits: NDArray[np.float32], top_k: int, top_p: float, min_p: float, cap: int | None
) -> stage.Ranked:
    ranked = stage.top_k(stage.softmax(logits), top_k, cap)
    return stage.renormalize(stage.top_p(stage.min_p(ranked, min_p), top_p))
