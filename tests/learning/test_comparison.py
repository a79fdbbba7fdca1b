"""Comparisons of two sets of answers with loops over the rows, and with enumerated outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.decisions import Choice
from eliza_ffi.decisions.examples import UNLABELLED
from eliza_ffi.learning.comparison import CONFIDENCE, compare_answers, difference_interval
from eliza_ffi.learning.metrics import mcnemar

QUESTION = Choice("Which?", ["a", "b", "c"], "which")
OPTION = st.integers(UNLABELLED, 2)


@given(st.lists(st.tuples(OPTION, OPTION, OPTION), max_size=40))
def test_a_comparison_matches_a_loop_over_the_rows(rows: list[tuple[int, int, int]]) -> None:
    arrays = np.array(rows, dtype=np.intp).reshape(-1, 3)
    (found,) = compare_answers([QUESTION], *(arrays[:, i : i + 1] for i in range(3)))
    n = gained = lost = 0
    unanswered, n_right = [0, 0], [0, 0]
    changed = []
    for place, (y, old, new) in enumerate(rows):
        if y == UNLABELLED:
            continue
        unanswered[0] += old == UNLABELLED
        unanswered[1] += new == UNLABELLED
        if UNLABELLED in (old, new):
            continue
        n += 1
        n_right[0] += old == y
        n_right[1] += new == y
        gained += old != y and new == y
        lost += old == y and new != y
        if old != new:
            changed.append((place, "abc"[y], "abc"[old], "abc"[new]))
    assert (found.n, found.n_gained, found.n_lost) == (n, gained, lost)
    assert found.n_right == tuple(n_right) and found.unanswered == tuple(unanswered)
    assert [(e.row, e.right, e.before, e.after) for e in found.changed] == changed
    assert found.p == mcnemar(gained, lost)
    assert found.verdict == (
        "unclear" if found.p >= 0.05 else "better" if gained > lost else "worse"
    )
    if not n:
        assert found.accuracy(0) is None and found.to_dict()["before_interval"] is None


@pytest.mark.parametrize("n", [5, 20, 40])
@pytest.mark.parametrize(("gain", "loss"), [(0.0, 0.0), (0.1, 0.1), (0.3, 0.05), (0.02, 0.4)])
def test_the_interval_of_a_difference_covers_it(n: int, gain: float, loss: float) -> None:
    covered = 0.0
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            ways = math.comb(n, gained) * math.comb(n - gained, lost)
            low, high = difference_interval(gained, lost, n)
            if low <= gain - loss <= high:
                rest = (1 - gain - loss) ** (n - gained - lost)
                covered += ways * gain**gained * loss**lost * rest
    assert covered >= CONFIDENCE - 0.02
