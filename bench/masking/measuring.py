"""What a mask costs: warm, cold, and all of a text's masks for a constraint never seen before.

All libraries are driven along the same tokens, the longest that spell each sample. What is measured
several times counts with its fastest time, so that percentiles are over places in texts and not
over what else the machine did.
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

__all__ = ["MaskEffort", "Places", "agreement", "measure"]


@dataclass(frozen=True)
class MaskEffort:
    """How much is measured.

    Attributes
    ----------
    rounds : int
        Walks along each sample, of which the fastest counts, place by place.
    cold_places : int
        Places at which a mask is computed with nothing known.
    cold_rounds : int
        Times at each of them, of which the fastest counts.
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
        Walks, and a place in each: a mask there is the one before the walk's token of that number.
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
        ``compile_ms``, the median; ``warm`` and ``cold``, each ``p50_us`` and ``p99_us`` of a mask
        without the time of an empty call (``call_us``); ``step``, the same of a warm mask with
        accepting the token; ``first_text_us``, the median over samples of compiling and all masks
        of one, the calls included.
    """
    call_us = engine.empty_call() / 1e3
    compile_ms, first_text_us = _first_texts(engine, constraint, places)
    warm, step = _warm(engine, constraint, places, effort.rounds)
    return {
        "call_us": call_us,
        "compile_ms": compile_ms,
        "first_text_us": first_text_us,
        "warm": _spread(warm, call_us),
        # Ours is one call, the others' a second one.
        "step": _spread(step, call_us * (1 + engine.accepts_by_itself)),
        "cold": _spread(_cold(engine, constraint, places, effort.cold_rounds), call_us),
    }


def agreement(
    engines: Sequence[Engine], constraint: Constraint, places: Places
) -> list[dict[str, float]]:
    """Compare the masks of each library but the first with the first's.

    Control tokens, which end the text, are not compared.

    Returns
    -------
    list of dict
        ``same``, the share of places whose masks are the same, and ``in_common``, the mean over
        places of the tokens that both allow divided by those that either allows.
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
    """Return the medians of the milliseconds of compiling and the microseconds up to a text's end.

    The times of the library's masks are those of its calls; the samples are the first ones.
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
    """Return the nanoseconds of a mask at every place, and with accepting its token.

    One round more is not counted.
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
    """Return the nanoseconds of a mask at some places, the constraint compiled anew for each."""
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
    """Return percentiles without the empty call, which is at times the longer one."""
    net = np.maximum(nanoseconds / 1e3 - call_us, 0.01)
    return percentiles(net, "*_us")
