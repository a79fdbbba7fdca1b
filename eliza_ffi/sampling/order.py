"""The order of samplers: names separated by semicolons, as in llama.cpp's ``--samplers``."""

from __future__ import annotations

from ..checks import check_text, did_you_mean
from ..errors import InvalidArgumentError

SAMPLER_NAMES = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "infill",
    "adaptive_p",
)
"""The names of all samplers."""

DEFAULT_ORDER = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
"""llama.cpp's default order."""

BOOK_ORDER = "penalties;temperature;top_k;min_p;top_p"
"""The order of the samplers on the CPU in akunu, an inference engine, under llama.cpp's names.

Source: the book *Inside Akunu*, chapter "The Sampling Pipeline",
https://akunu.prabod.rathnayaka.me.
"""


def parse_order(text: str) -> tuple[str, ...]:
    """Split an order string into sampler names; an empty string gives no names.

    Raises
    ------
    InvalidArgumentError
        If a name is unknown or occurs twice, or if a sampler follows ``adaptive_p``, which draws
        the token and must be the last one.
    """
    check_text("samplers", text)
    names = tuple(text.split(";")) if text else ()
    for i, name in enumerate(names):
        if name not in SAMPLER_NAMES:
            hint = did_you_mean(name, SAMPLER_NAMES)
            raise InvalidArgumentError(
                f"samplers: expected names from {', '.join(SAMPLER_NAMES)}, got {name!r}"
                + (f"; {hint}" if hint else "")
            )
        if name in names[:i]:
            raise InvalidArgumentError(f"samplers: {name!r} occurs twice in {text!r}")
        if "adaptive_p" in names[:i]:
            raise InvalidArgumentError(
                f"samplers: {name!r} cannot follow adaptive_p, which draws the token"
            )
    return names
