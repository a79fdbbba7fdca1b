"""Thinking for uncertain decisions only, and for a share of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, MultiLabel, Predicate
from eliza_ffi.decisions.answers import Decision, DecisionUsage, answer_of, collect, expand
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.think_budget import MAX_COUNTED, ThinkBudget, certainty

TEAM = Choice("Which team?", ["billing", "technical"], name="team")
INPUTS = [f"Mail {i}: I was charged {i} times." for i in range(12)]


@pytest.mark.parametrize("share", [0.0, 0.07, 0.2, 0.5, 1.0])
def test_the_share_is_never_exceeded(share: float) -> None:
    budget = ThinkBudget()
    thought = 0
    for n in range(1, 3 * MAX_COUNTED):
        thought += budget.allows(n % 3 != 0, share)
        assert thought <= share * n + 1e-9
    small = ThinkBudget()
    assert 15 <= sum(small.allows(True, 0.001) for _ in range(20_000)) <= 20
    uncertain = 2 * MAX_COUNTED - 1
    assert thought >= min(share * 3 * MAX_COUNTED, uncertain) * 0.98 - 2


def test_the_share_is_not_exceeded_by_threads() -> None:
    budget = ThinkBudget()
    with ThreadPoolExecutor(8) as threads:
        thought = threads.map(lambda _: sum(budget.allows(True, 0.2) for _ in range(100)), range(8))
        assert sum(thought) == 160


def test_the_certainty_of_a_decision_is_that_of_its_least_certain_answer() -> None:
    labels = MultiLabel("What is it about?", ["sport", "money"])
    parts = [
        answer_of(each, [p, 1 - p]) for each, p in zip(expand(labels), (0.1, 0.6), strict=True)
    ]
    sure, usage = answer_of(Predicate("It is so."), [0.05, 0.95]), DecisionUsage(1, 0, 1, 0.0)
    assert certainty(Decision((sure, collect(labels, parts)), usage)) == pytest.approx(0.6)
    assert certainty(Decision((sure,), usage)) == pytest.approx(0.95)


def thought(decisions: list[Decision]) -> list[bool]:
    return [each.reasoning is not None for each in decisions]


def test_only_uncertain_decisions_think(tiny_model: Model) -> None:
    alone = tiny_model.decide_many(INPUTS, TEAM)
    p = sorted(certainty(each) for each in alone)
    for below in (p[0] - 0.05, p[6], 1.0):
        found = tiny_model.decide_many(INPUTS, TEAM, think=3, think_below=below)
        near = 0.05  # probabilities in shared passes differ a little
        for before, after in zip(alone, found, strict=True):
            if below == 1 or abs(certainty(before) - below) > near:
                thinks = below == 1 or certainty(before) < below
                assert (after.reasoning is not None) == thinks
    assert thought(tiny_model.decide_many(INPUTS, TEAM, think=3)) == [True] * 12


def test_at_most_a_share_of_the_inputs_thinks(tiny_model: Model) -> None:
    for share, n in ((0.25, 3), (0.0, 0), (1.0, 12)):
        found = tiny_model.decide_many(INPUTS, TEAM, think=2, think_share=share, max_concurrency=1)
        assert thought(found).count(True) == n
        assert not any(thought(found)[: int(1 / share) - 1] if share else [])


def test_single_decisions_share_the_budget_of_their_model(tiny_model: Model) -> None:
    how: dict[str, Any] = {"think": 2, "think_share": 0.5}
    before = ThinkBudget.of(tiny_model.session)
    found = [tiny_model.decide(each, TEAM, **how) for each in INPUTS]
    assert 4 <= thought(found).count(True) <= 8
    assert ThinkBudget.of(tiny_model.session) is before


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"think_below": 0.5}, "think_below and think_share need think"),
        ({"think_share": 0.5}, "think_below and think_share need think"),
        ({"think": 3, "think_below": 2}, "think_below must be"),
        ({"think": 3, "think_share": "x"}, "think_share must be"),
    ],
)
def test_wrong_settings_are_named(tiny_model: Model, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        tiny_model.decide("x", TEAM, **settings)
