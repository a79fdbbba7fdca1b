"""Labels such as ``Electronics > Audio > Headphones``, and their groups at each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import check_text, check_whole
from ..errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class Groups:
    """Labels grouped by their first parts, up to one level."""

    # The text of each group, such as ``Electronics > Audio`` at level 2. A label with fewer parts
    # is a group of its own.
    texts: tuple[str, ...]
    of_label: NDArray[np.int32]  # the number of each label's group


class Hierarchy:
    """Labels whose parts are divided by a separator; `depth` is the largest number of parts. The
    groups of each level are computed once, because this takes a while for 100,000 labels."""

    def __init__(self, texts: Sequence[str], separator: str) -> None:
        check_text("separator", separator)
        if not separator:
            raise InvalidArgumentError("separator must not be empty")
        self.separator = separator
        self.depth = max(map(self.depth_of, texts))
        self._texts = texts
        self._groups: dict[int, Groups] = {}

    def depth_of(self, text: str) -> int:
        return text.count(self.separator) + 1

    def groups_at(self, level: int) -> Groups:
        """Group the labels by their first `level` parts; raise InvalidArgumentError if all have
        fewer."""
        if check_whole("level", level, 1) > self.depth:
            raise InvalidArgumentError(
                f"level must be at most {self.depth}, the largest number of parts of a label with "
                f"the separator {self.separator!r}, got {level}"
            )
        if level not in self._groups:
            numbers: dict[str, int] = {}
            parts = (text.split(self.separator, level) for text in self._texts)
            begins = (self.separator.join(each[:level]) for each in parts)
            of_label = np.fromiter(
                (numbers.setdefault(begin, len(numbers)) for begin in begins),
                np.int32,
                len(self._texts),
            )
            self._groups[level] = Groups(tuple(numbers), of_label)
        return self._groups[level]
