"""Penalties for tokens that already occur in the text."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from .candidates import Candidates, Sampler

__all__ = ["Penalties"]


@dataclass
class Penalties(Sampler):
    r"""``llama_sampler_init_penalties``: repetition, frequency and presence penalty.

    For a token that occurs `c` > 0 times among the last tokens:

    .. math:: l \leftarrow \begin{cases} l / r & l > 0 \\ l \cdot r & l \le 0 \end{cases}
              \quad\text{then}\quad l \leftarrow l - c f - q

    The repetition penalty is applied once, however often the token occurs.

    Attributes
    ----------
    last_n : int
        The number of last accepted tokens that count; 0 = off.
    repeat : float
        `r`, above 0; 1 = off.
    frequency, presence : float
        `f` and `q`; 0 = off.
    """

    last_n: int = 64
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    _recent: deque[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._recent = deque(maxlen=self.last_n)

    def apply(self, candidates: Candidates) -> None:
        if self.last_n == 0 or (self.repeat == 1 and self.frequency == 0 and self.presence == 0):
            return
        repeat, frequency = np.float32(self.repeat), np.float32(self.frequency)
        logits = candidates.logits
        for token, count in Counter(self._recent).items():
            at = candidates.ids == token
            logits[at] = np.where(logits[at] <= 0, logits[at] * repeat, logits[at] / repeat)
            logits[at] -= np.float32(count) * frequency + np.float32(self.presence)
        candidates.is_sorted = False

    def accept(self, token: int) -> None:
        self._recent.append(token)

    def reset(self) -> None:
        self._recent.clear()
