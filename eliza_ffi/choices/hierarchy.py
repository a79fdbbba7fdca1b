"""Labels with several parts, such as ``Electronics > Audio``, and their groups at each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import check_text, check_whole
from ..errors import InvalidArgumentError

__all__ = ["Groups", "groups_at"]


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of labels that have the same parts up to one level.

    Attributes
    ----------
    texts : tuple of str
        The text of each group, such as ``Electronics > Audio`` at level 2. A label with fewer parts
        is a group of its own.
    of_label : array of int, shape [n_labels]
        The number of each label's group.
    """

    texts: tuple[str, ...]
    of_label: NDArray[np.int32]


def groups_at(texts: Sequence[str], separator: str, level: int) -> Groups:
    """Group labels by their first `level` parts.

    Parameters
    ----------
    texts
        The labels.
    separator
        The text between two parts of a label.
    level
        1 = group by the first part.

    Raises
    ------
    InvalidArgumentError
        If no label has so many parts.
    """
    check_text("separator", separator)
    if not separator:
        raise InvalidArgumentError("separator must not be empty")
    deepest = depth_of(texts, separator)
    if check_whole("level", level, 1) > deepest:
        raise InvalidArgumentError(
            f"level must be at most {deepest}, the largest number of parts of a label with the "
            f"separator {separator!r}, got {level}"
        )
    numbers: dict[str, int] = {}
    of_label = np.fromiter(
        (
            numbers.setdefault(separator.join(text.split(separator, level)[:level]), len(numbers))
            for text in texts
        ),
        np.int32,
        len(texts),
    )
    return Groups(tuple(numbers), of_label)


def depth_of(texts: Sequence[str], separator: str) -> int:
    """Return the largest number of parts of a label."""
    return max(text.count(separator) for text in texts) + 1
