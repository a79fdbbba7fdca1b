"""The order of a chain: sampler names separated by semicolons, as llama.cpp's ``--samplers``."""

from __future__ import annotations

from ..checks import check_text, did_you_mean
from ..errors import InvalidArgumentError

__all__ = ["BOOK_ORDER", "DEFAULT_ORDER", "SAMPLER_NAMES", "parse_order"]

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
"""What an order may name."""

DEFAULT_ORDER = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
"""llama.cpp's."""

BOOK_ORDER = "penalties;temperature;top_k;min_p;top_p"
"""The order of the CPU sampler in akunu's book, for a chain of llama.cpp's samplers."""


def parse_order(text: str) -> tuple[str, ...]:
    """Return the names of an order string; the empty string has none.

    Raises
    ------
    InvalidArgumentError
        If a name is unknown or stands twice, or something comes after ``adaptive_p``, which draws
        the token.
    """
    check_text("samplers", text)
    names = tuple(text.split(";")) if text else ()
    for i, name in enumerate(names):
        if name not in SAMPLER_NAMES:
            hint = did_you_mean(name, SAMPLER_NAMES)
            raise InvalidArgumentError(
                f"samplers: {name!r} is not one of {', '.join(SAMPLER_NAMES)}"
                + (f"; {hint}" if hint else "")
            )
        if name in names[:i]:
            raise InvalidArgumentError(f"samplers: {name!r} stands twice in {text!r}")
        if "adaptive_p" in names[:i]:
            raise InvalidArgumentError(
                f"samplers: adaptive_p draws the token, so {name!r} cannot come after it"
            )
    return names
