"""How many cases a test tries. Hypothesis's profile decides, also for other tests."""

from __future__ import annotations

from hypothesis import settings

MAX_EXAMPLES = 100
"""The examples of a Hypothesis test in `.ci/run`."""

USUAL_EXAMPLES = 30
"""The examples in `make test`."""

FEWEST_EXAMPLES = 20
"""The examples in `make test-fast`."""


def share(n: int) -> int:
    """Return all `n` cases in `.ci/run`, and the profile's share of them elsewhere, at least one.

    `make test` tries three in ten cases, and `make test-fast` tries two in ten.
    """
    return max(n * settings.default.max_examples // MAX_EXAMPLES, 1)
