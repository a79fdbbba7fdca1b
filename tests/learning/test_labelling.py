"""Which row is labelled next, and what the labels say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eliza_ffi.decisions.probabilities import log_softmax
from eliza_ffi.learning.labelling import N_FIRST_OF_SCORE, NO_OPTION, Labelling, interval
from eliza_ffi.learning.thresholds import certify, looks

N_OPTIONS = 3


def clusters(n: int, seed: int = 0, noise: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Return states in three groups, and the group of each."""
    rng = np.random.default_rng(seed)
    right = rng.integers(N_OPTIONS, size=n)
    states = 3 * np.eye(8)[right] + noise * rng.standard_normal((n, 8))
    return states.astype(np.float32), right


def own_answers(right: np.ndarray, sure: float = 1.0, wrong: int = 0) -> np.ndarray:
    """Return log-probabilities that favour the right option but in the first `wrong` rows."""
    logits = sure * np.eye(N_OPTIONS)[right]
    logits[:wrong] = sure * np.eye(N_OPTIONS)[(right[:wrong] + 1) % N_OPTIONS]
    return log_softmax(logits)


def labelling_of(states: np.ndarray, own: np.ndarray, **settings: float) -> Labelling:
    labelling = Labelling(N_OPTIONS, **settings)
    for state, log_p in zip(states, own, strict=True):
        labelling.add_row(state, log_p)
    return labelling


def answer(labelling: Labelling, right: np.ndarray, n: int) -> list[tuple[int, str]]:
    offered = []
    for _ in range(n):
        found = labelling.next()
        assert found is not None
        labelling.label(found.row, int(right[found.row]), found.kind)
        offered.append(tuple(found))
    return offered


def test_chosen_and_random_rows_take_turns_and_no_row_comes_twice() -> None:
    states, right = clusters(60)
    offered = answer(labelling_of(states, own_answers(right)), right, 40)
    assert [kind for _, kind in offered] == ["chosen", "random"] * 20
    assert len({row for row, _ in offered}) == 40
    chosen = {row for row, kind in offered if kind == "chosen"}
    random = [row for row, kind in offered if kind == "random"]
    # In the order of the rows, which is random, however the others were chosen.
    assert random == sorted(random)
    assert set(range(random[-1])) <= {*random, *chosen}


def test_the_first_chosen_rows_are_typical_of_each_answer() -> None:
    states, right = clusters(90)
    states[:3] *= 20  # unlike all others
    offered = answer(labelling_of(states, own_answers(right)), right, 11)
    chosen = [row for row, kind in offered if kind == "chosen"]
    assert np.bincount(right[chosen]).tolist() == [2, 2, 2]
    assert min(chosen) > 2


def test_the_first_chosen_rows_of_a_score_are_the_last_ones_of_a_random_order() -> None:
    rng = np.random.default_rng(1)
    labelling = Labelling(3, is_score=True)
    for _ in range(40):
        labelling.add_row(rng.normal(size=4).astype(np.float32), np.log(rng.dirichlet(np.ones(3))))
    chosen = []
    while len(chosen) < N_FIRST_OF_SCORE + 1:
        found = labelling.next()
        assert found is not None
        labelling.label(found.row, found.row % 3, found.kind)
        chosen += [found.row] if found.kind == "chosen" else []
    assert chosen[:-1] == list(range(39, 39 - N_FIRST_OF_SCORE, -1))


def test_later_chosen_rows_are_uncertain_and_unlike_those_before() -> None:
    states, right = clusters(80, noise=1.2)
    own = own_answers(right, sure=3.0)
    copies = range(40, 46)  # half way between two groups
    states[copies] = (states[right == 0].mean(axis=0) + states[right == 1].mean(axis=0)) / 2
    own[copies] = math.log(1 / N_OPTIONS)
    labelling = labelling_of(states, own)
    chosen = [row for row, kind in answer(labelling, right, 24) if kind == "chosen"]
    assert len([row for row in chosen if row in copies]) == 1
    p = np.sort(np.exp(labelling.log_probabilities()), axis=1)
    margins = p[:, -1] - p[:, -2]
    found = labelling.next()
    assert found is not None
    assert found.kind == "chosen"
    assert margins[found.row] < np.median(margins)


def test_random_rows_teach_nothing() -> None:
    states, right = clusters(60)
    labelling = labelling_of(states, own_answers(right, 0.3, wrong=20))
    answer(labelling, right, 30)
    before = labelling.log_probabilities().copy()
    for row in range(60):
        if row not in labelling._labels:
            labelling.label(row, 0, "random")
    assert labelling.log_probabilities() == pytest.approx(before)


def test_chosen_rows_teach_the_model() -> None:
    states, right = clusters(100)
    labelling = labelling_of(states, own_answers(right, 0.3, wrong=30))
    own = (labelling.log_probabilities().argmax(axis=1) == right).mean()
    answer(labelling, right, 30)
    assert own == pytest.approx(0.7)
    assert (labelling.log_probabilities().argmax(axis=1) == right).mean() > 0.95


def test_a_label_can_be_taken_back() -> None:
    states, right = clusters(30)
    labelling = labelling_of(states, own_answers(right, wrong=5))
    answer(labelling, right, 12)
    counts, before = labelling.counts(), labelling.log_probabilities().copy()
    found = labelling.next()
    assert found is not None
    labelling.label(found.row, NO_OPTION, found.kind)
    labelling.take_back(found.row)
    assert labelling.next() == found
    assert labelling.counts() == counts
    assert labelling.log_probabilities() == pytest.approx(before)
    labelling.skip(found.row)
    assert labelling.next() != found
    labelling.take_back(found.row)
    assert labelling.next() == found


def test_rows_that_no_option_fits_count_as_wrong_and_teach_nothing() -> None:
    states, right = clusters(20)
    labelling = labelling_of(states, own_answers(right))
    for _ in range(20):
        found = labelling.next()
        assert found is not None
        labelling.label(found.row, NO_OPTION, found.kind)
    assert labelling.next() is None
    counts = labelling.counts()
    assert (counts.n_chosen, counts.n_random, counts.n_right) == (10, 10, 0)
    assert labelling.log_probabilities() == pytest.approx(own_answers(right))


def test_without_labels_nothing_is_known() -> None:
    counts = Labelling(N_OPTIONS).counts()
    assert math.isnan(counts.accuracy)
    assert (counts.low, counts.high) == (0.0, 1.0)
    assert counts.certificate.threshold is None
    assert Labelling(N_OPTIONS).next() is None


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    # Values of scipy.stats.binomtest(k, n).proportion_ci(0.9).
    for n_right, n, low, high in (
        (8, 10, 0.4931, 0.9632),
        (0, 20, 0.0, 0.1391),
        (45, 50, 0.8012, 0.9605),
    ):
        assert interval(n_right, n, 0.9) == pytest.approx((low, high), abs=1.1e-3)


def share_of_certificates(rate: float, at_looks: bool, n_runs: int) -> float:
    """Return how many people who label until there is a certificate find one within 300 rows.

    The share `rate` of the answers is wrong, whatever their probability, and the risk is 0.3.
    """
    rng = np.random.default_rng(0)
    stops = looks(0.3, 0.9) if at_looks else range(20, 301, 7)
    n_found = 0
    for _ in range(n_runs):
        p, right = 1 / (1 + np.exp(-rng.uniform(-1, 9, 300))), rng.random(300) >= rate
        n_found += any(
            certify(p[:n], right[:n], risk=0.3, at_looks=at_looks).threshold is not None
            for n in stops
            if n <= 300
        )
    return n_found / n_runs


def test_a_certificate_holds_for_people_who_stop_when_they_like_it() -> None:
    """With an error rate just above the risk, every certificate is wrong.

    The bound for a fixed number of rows breaks the promise in more than the allowed 10 % of runs.
    """
    assert share_of_certificates(0.3001, True, n_runs=200) <= 0.1
    assert share_of_certificates(0.3001, False, n_runs=150) > 0.1
    assert share_of_certificates(0.1, True, n_runs=50) > 0.9


def test_the_certificate_changes_only_at_looks() -> None:
    states, right = clusters(80)
    labelling = labelling_of(states, own_answers(right, sure=3.0), risk=0.4)
    first, second, *_ = looks(0.4, 0.9)
    seen = {}
    while (counts := labelling.counts()).n_random <= second:
        seen[counts.n_random] = counts
        found = labelling.next()
        assert found is not None
        labelling.label(found.row, int(right[found.row]), found.kind)
    assert all(seen[n].certificate.threshold is None for n in range(first))
    assert all(seen[n].certificate.needed == first for n in range(10, first))
    assert seen[first].certificate.n == first
    assert all(seen[n].certificate is seen[first].certificate for n in range(first, second))
    assert seen[second].certificate.n == second
    assert (seen[0].next_look, seen[first].next_look) == (first, second)
    labelling.take_back(labelling._random()[-1])
    assert labelling.counts().n_random == second
    labelling.take_back(labelling._random()[-1])
    assert labelling.counts().certificate is seen[first].certificate


def test_labels_that_differ_from_the_other_rows_are_suspicious() -> None:
    states, right = clusters(120)
    labelling = labelling_of(states, own_answers(right, 0.3))
    given = right.copy()
    for _ in range(60):
        found = labelling.next()
        assert found is not None
        n = len(labelling._labels)
        if n in (20, 33, 47):  # random and chosen rows
            given[found.row] = (right[found.row] + 1) % N_OPTIONS
        labelling.label(found.row, int(given[found.row]), found.kind)
    assert sorted(labelling.suspicious()) == np.flatnonzero(given != right).tolist()
    assert Labelling(N_OPTIONS).suspicious() == []


def test_the_interval_of_the_accuracy_holds_while_rows_are_chosen() -> None:
    """In at least 90 % of the runs, minus three standard errors of this share."""
    states, right = clusters(400, seed=1, noise=1.4)
    n_runs, n_inside = 60, 0
    for seed in range(n_runs):
        order = np.random.default_rng(seed).permutation(400)
        labelling = labelling_of(states[order], own_answers(right, 0.5, wrong=120)[order])
        answer(labelling, right[order], 60)
        is_right = labelling.log_probabilities().argmax(axis=1) == right[order]
        counts = labelling.counts()
        n_inside += counts.low <= is_right.mean() <= counts.high
    assert n_inside / n_runs > 0.9 - 3 * math.sqrt(0.9 * 0.1 / n_runs)
