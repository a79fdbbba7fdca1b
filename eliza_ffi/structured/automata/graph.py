"""Graph algorithms on automata: reachability and shortest distances between states."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .tables import DEAD, Tables

__all__ = ["distance_from_start", "distance_to_accepting", "grouped", "moves"]


def distance_from_start(tables: Tables) -> npt.NDArray[np.int64]:
    """Return the length of the shortest path from state 0 to each state; -1 if there is none."""
    sources, targets = moves(tables.transitions)
    return _distances(grouped(sources, targets, len(tables.accepting)), [0])


def distance_to_accepting(tables: Tables) -> npt.NDArray[np.int64]:
    """Return the length of the shortest path from each state to an accepting one, or -1."""
    sources, targets = moves(tables.transitions)
    accepting = np.flatnonzero(tables.accepting).tolist()
    return _distances(grouped(targets, sources, len(tables.accepting)), accepting)


def moves(transitions: npt.NDArray[np.int32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the distinct pairs of a state and its next state, as two arrays."""
    n_states, n_classes = transitions.shape
    sources = np.repeat(np.arange(n_states, dtype=np.int64), n_classes)
    targets = transitions.ravel()
    alive = targets != DEAD
    pairs = np.unique(sources[alive] * n_states + targets[alive])
    return pairs // n_states, pairs % n_states


def grouped(keys: npt.NDArray[Any], values: npt.NDArray[Any], n_keys: int) -> list[list[int]]:
    """Return a list of the values for each key from 0 to `n_keys` - 1."""
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(n_keys + 1)).tolist()
    ordered = values[order].tolist()
    return [ordered[begin:end] for begin, end in pairwise(bounds)]


def _distances(neighbours: list[list[int]], starts: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return the length of the shortest path from any start to each state; -1 if there is none."""
    distances = [-1] * len(neighbours)
    found = deque(starts)
    for state in found:
        distances[state] = 0
    while found:
        state = found.popleft()
        for neighbour in neighbours[state]:
            if distances[neighbour] < 0:
                distances[neighbour] = distances[state] + 1
                found.append(neighbour)
    return np.array(distances, dtype=np.int64)
