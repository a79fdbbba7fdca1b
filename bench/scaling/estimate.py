"""How many rows a second there should be, from what passes cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Costs", "row_seconds", "workers_per_driver"]


@dataclass(frozen=True)
class Costs:
    """What was measured of a model on a machine, with one worker's threads.

    Attributes
    ----------
    tokens : dict of int to float
        Seconds of a token, in passes that rows share, by the tokens that each row has of its own.
    cores : int
        Of the machine.
    host_seconds : float
        What a row takes longer than its passes, while a core is free: its text as tokens and its
        answers, for the most part beside another row's passes.
    host_cpu_seconds : float
        The processor's time for the same, which a row takes where every core has a worker.
    driver_seconds : float
        Of a row, on the machine that rows go out from.
    crowding : dict of int to float
        How many times as long a pass takes where so many workers share the machine.
    """

    tokens: Mapping[int, float]
    cores: int
    host_seconds: float
    host_cpu_seconds: float
    driver_seconds: float
    crowding: Mapping[int, float]


def row_seconds(costs: Costs, tokens: float, n_workers: int = 1) -> float:
    """Return a worker's seconds for a row with so many tokens of its own.

    Between the lengths that were measured a token's costs are taken to lie on straight lines, and
    beyond them to stay as they are.

    Parameters
    ----------
    costs
    tokens
        Of its input and its questions, without those that all rows begin with.
    n_workers
        That share the machine.
    """
    lengths = sorted(costs.tokens)
    a_token = float(np.interp(tokens, lengths, [costs.tokens[n] for n in lengths]))
    host = costs.host_seconds if n_workers < costs.cores else costs.host_cpu_seconds
    return (tokens * a_token + host) * costs.crowding[n_workers]


def workers_per_driver(costs: Costs, tokens: float) -> float:
    """Return how many workers one driver can feed, where a table is decided."""
    return row_seconds(costs, tokens) / costs.driver_seconds
