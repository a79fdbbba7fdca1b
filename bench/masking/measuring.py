"""Measure warm masks, cold masks, and all masks of a first text with a new constraint.

All libraries run along the same tokens: each sample is spelled with the longest possible tokens.
Every place in a sample is measured several times, and the fastest time counts. So the percentiles
describe the places in the samples, not other activity on the machine.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..parts.figures import percentiles
from .constraints import Constraint
from .engines import Engine
from .vocabularies import TokenBytes, tokens_of_texts


@dataclass(frozen=True)
class MaskEffort:
    """How long to measure.

    Attributes
    ----------
    rounds : int
        Walks along each sample. For each place, the fastest time counts.
    cold_places : int
        Places at which a cold mask is computed.
    cold_rounds : int
        Measurements at each of these places. The fastest time counts.
    """

    rounds: int
    cold_places: int
    cold_rounds: int


class Places:
    """The samples of a constraint as tokens, and some of the places in them.

    Attributes
    ----------
    walks : list of list of int
        The tokens of each sample.
    some : list of (int, int)
        Places, each as the index of a walk and the index of a token in it. The mask of a place is
        the mask before that token.
    """

    def __init__(self, vocabulary: TokenBytes, constraint: Constraint, n_some: int) -> None:
        self.walks = tokens_of_texts(vocabulary, constraint.samples)
        every = [(i, k) for i, walk in enumerate(self.walks) for k in range(len(walk))]
        self.some = random.Random(1).sample(every, min(n_some, len(every)))


def measure(
    engine: Engine, constraint: Constraint, places: Places, effort: MaskEffort
) -> dict[str, Any]:
    """Measure a library with a constraint.

    Returns
    -------
    dict
        ``call_us`` is the time of an empty call. ``compile_ms`` is the median time to compile the
        constraint. ``warm`` and ``cold`` have ``p50_us`` and ``p99_us`` of a mask, and ``step`` has
        them for a warm mask and accepting the token; all without the time of the empty call.
        ``first_text_us`` is the time to compile the constraint and to compute all masks of a
        sample, including the calls: the median over the samples.
    """
    call_us = engine.empty_call() / 1e3
    compile_ms, first_text_us = _first_texts(engine, constraint, places)
    warm, step = _warm(engine, constraint, places, effort.rounds)
    return {
        "call_us": call_us,
        "compile_ms": compile_ms,
        "first_text_us": first_text_us,
        "warm": _spread(warm, call_us),
        # In eliza-ffi, mask and accept are one call; in the other libraries they are two.
        "step": _spread(step, call_us * (1 + engine.accepts_by_itself)),
        "cold": _spread(_cold(engine, constraint, places, effort.cold_rounds), call_us),
    }


def agreement(
    engines: Sequence[Engine], constraint: Constraint, places: Places
) -> list[dict[str, float]]:
    """Compare the masks of all libraries with the masks of the first library.

    Control tokens, which end the text, are not compared.

    Returns
    -------
    list of dict
        For each other library: ``same``, the share of places with identical masks; and
        ``in_common``, the number of tokens that both masks allow, divided by the number of tokens
        that at least one mask allows (the mean over the places).
    """
    matchers = [engine.compile(constraint) for engine in engines]
    same, in_common = np.zeros(len(engines)), np.zeros(len(engines))
    for i, k in places.some:
        masks = []
        for engine, matcher in zip(engines, matchers, strict=True):
            matcher.restart()
            for token in places.walks[i][:k]:
                matcher.accept(token)
            masks.append(np.setdiff1d(matcher.allowed(), engine.control, assume_unique=True))
        same += [np.array_equal(mask, masks[0]) for mask in masks]
        in_common += [
            np.intersect1d(mask, masks[0], assume_unique=True).size
            / max(np.union1d(mask, masks[0]).size, 1)
            for mask in masks
        ]
    n = len(places.some)
    return [
        {"same": float(a / n), "in_common": float(b / n)}
        for a, b in zip(same[1:], in_common[1:], strict=True)
    ]


def _first_texts(
    engine: Engine, constraint: Constraint, places: Places, n_texts: int = 8, rounds: int = 3
) -> tuple[float, float]:
    """Return the milliseconds to compile, and the microseconds to compile and mask a whole text.

    Both are medians over the first samples. The times of masks include the calls.
    """
    times = np.zeros((rounds, n_texts, 2))
    for i, k in itertools.product(range(rounds), range(n_texts)):
        engine.forget()
        begin = time.perf_counter_ns()
        matcher = engine.compile(constraint)
        compiling = time.perf_counter_ns() - begin
        times[i, k] = compiling / 1e6, (compiling + sum(matcher.walk(places.walks[k]))) / 1e3
    compile_ms, text_us = np.median(times.min(axis=0), axis=0)
    return float(compile_ms), float(text_us)


def _warm(
    engine: Engine, constraint: Constraint, places: Places, rounds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the nanoseconds of the mask at every place, without and with accepting the token.

    One untimed round comes first.
    """
    matcher = engine.compile(constraint)
    masks, steps = [], []
    for walk in places.walks:
        times = []
        for _ in range(rounds + 1):
            matcher.restart()
            times.append((matcher.walk(walk), matcher.step_ns))
        mask, step = np.min(times[1:], axis=0)
        masks.append(mask)
        steps.append(step)
    return np.concatenate(masks).astype(np.float64), np.concatenate(steps).astype(np.float64)


def _cold(
    engine: Engine, constraint: Constraint, places: Places, rounds: int
) -> NDArray[np.float64]:
    """Return the nanoseconds of the mask at some places, compiling the constraint for each."""
    fastest = []
    for i, k in places.some:
        walk, times = places.walks[i], []
        for _ in range(rounds):
            engine.forget()
            matcher = engine.compile(constraint)
            for token in walk[:k]:
                matcher.accept(token)
            times += matcher.walk(walk[k : k + 1])
        fastest.append(min(times))
    return np.array(fastest, dtype=np.float64)


def _spread(nanoseconds: NDArray[np.float64], call_us: float) -> dict[str, float]:
    """Return percentiles without the time of the empty call.

    A mask can take less time than the empty call; then it counts as 0.01 µs.
    """
    net = np.maximum(nanoseconds / 1e3 - call_us, 0.01)
    return percentiles(net, "*_us")
