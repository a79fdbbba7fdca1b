"""How the CPUs and GPUs of a cluster are shared out among workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["cpus_for_each", "gpus_for_each"]


def cpus_for_each(nodes: Iterable[Mapping[str, Any]], n_workers: int) -> int:
    """Return the most CPUs that each worker can have at the same time as all others, at least 1.

    Parameters
    ----------
    nodes
        As ``ray.nodes()`` tells of them.
    n_workers
    """
    sizes = _of_alive(nodes, "CPU")
    for n_cpus in range(max(sizes, default=1), 1, -1):
        if sum(size // n_cpus for size in sizes) >= n_workers:
            return n_cpus
    return 1


def gpus_for_each(nodes: Iterable[Mapping[str, Any]], n_workers: int) -> float:
    """Return a GPU for each worker, or a share of one where there are fewer; 0 where there is none.

    Parameters as :func:`cpus_for_each`.
    """
    n_gpus = sum(_of_alive(nodes, "GPU"))
    return 1.0 / math.ceil(n_workers / n_gpus) if n_gpus else 0.0


def _of_alive(nodes: Iterable[Mapping[str, Any]], resource: str) -> Sequence[int]:
    return [int(node["Resources"].get(resource, 0)) for node in nodes if node["Alive"]]
