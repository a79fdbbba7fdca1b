"""Estimate the time of a row from measured costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Costs:
    """The measured costs of a model on a machine, with the threads of one worker.

    Attributes
    ----------
    tokens : dict of int to float
        Seconds per token in passes that several rows share, by the number of tokens of a row.
    cores : int
        Cores of the machine.
    host_seconds : float
        The additional time of a row outside its passes if a core is free: tokenizing its input and
        computing its answers. Most of this work happens during another row's passes.
    host_cpu_seconds : float
        The processor time of the same work. A row takes this long if every core has a worker.
    driver_seconds : float
        The time of a row on the driver.
    crowding : dict of int to float
        By the number of workers on the machine: the time of a pass, relative to a single worker.
    """

    tokens: Mapping[int, float]
    cores: int
    host_seconds: float
    host_cpu_seconds: float
    driver_seconds: float
    crowding: Mapping[int, float]


def row_seconds(costs: Costs, tokens: float, n_workers: int = 1) -> float:
    """Return a worker's seconds for one row.

    The cost of a token is interpolated linearly between the measured lengths, and constant beyond
    them.

    Parameters
    ----------
    tokens
        Tokens of the row's input and questions, without the prefix that all rows share.
    n_workers
        Workers on the machine.
    """
    lengths = sorted(costs.tokens)
    a_token = float(np.interp(tokens, lengths, [costs.tokens[n] for n in lengths]))
    host = costs.host_seconds if n_workers < costs.cores else costs.host_cpu_seconds
    return (tokens * a_token + host) * costs.crowding[n_workers]


def workers_per_driver(costs: Costs, tokens: float) -> float:
    """Return how many workers one driver can keep busy."""
    return row_seconds(costs, tokens) / costs.driver_seconds
