"""The result of a ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from ..checks import short_repr

T = TypeVar("T")


@dataclass(frozen=True)
class RankLevel:
    """One level of the most probable label's path.

    Attributes
    ----------
    text : str
        The label up to this level, such as ``Electronics > Audio``.
    probability : float
        The probability of all labels that begin with this path; a lower bound if the search ended
        before it knew the exact value.
    at_most : float
        An upper bound of the same probability; equal to `probability` if that is exact.
    """

    text: str
    probability: float
    at_most: float


@dataclass(frozen=True)
class RankResult(Generic[T]):
    """The most probable labels, the most probable first.

    ``for label, probability in result`` iterates over them, and ``result[0]`` is the first pair.

    >>> model.rank("A good pet is a ", ["cat", "dog", "horse"], 1).to_dict()["labels"]
    ['cat']

    Attributes
    ----------
    labels : tuple of T
        The values of the labels, or with ``level=`` the texts of the groups.
    probabilities : tuple of float
        The probability of each among all labels. With ``tokenization="any"``, a lower bound, which
        is at most 0.001 below the exact probability if the result is proven.
    rest : float
        The probability of all other labels together.
    proven : bool
        Whether the search has proven that no other label is more probable than these, and that
        their probabilities are exact. False only if a limit of passes ended the search.
    forward_passes : int
        The number of forward passes after the prompt was decoded; -1 if the library does not count
        them.
    seconds : float
        Seconds from the tokenized prompt to the result, prefill included.
    levels : tuple of RankLevel, or None
        The levels of the most probable label, from the first part to the whole label; None without
        ``separator=``.
    reasoning : str or None
        The model's reasoning before the ranking; None without ``think=``.
    """

    labels: tuple[T, ...]
    probabilities: tuple[float, ...]
    rest: float
    proven: bool
    forward_passes: int
    seconds: float
    levels: tuple[RankLevel, ...] | None = None
    reasoning: str | None = None

    def __iter__(self) -> Iterator[tuple[T, float]]:
        return zip(self.labels, self.probabilities, strict=True)

    @overload
    def __getitem__(self, index: int) -> tuple[T, float]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[T, float]]: ...

    def __getitem__(self, index: int | slice) -> tuple[T, float] | list[tuple[T, float]]:
        return list(self)[index]

    def __len__(self) -> int:
        return len(self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict that can be written as JSON, if the labels can."""
        return {
            **vars(self),
            "labels": list(self.labels),
            "probabilities": list(self.probabilities),
            "levels": None if self.levels is None else [vars(level) for level in self.levels],
        }

    def __repr__(self) -> str:
        places = ", ".join(f"{short_repr(label)} {p:.3g}" for label, p in self)
        return f"RankResult({places}{'' if self.proven else ', not proven'})"
