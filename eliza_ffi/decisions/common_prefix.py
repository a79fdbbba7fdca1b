"""Split prompts into their common beginning and the rest of each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..errors import InvalidArgumentError
from ..library.protocol import Tokens


def split_common_prefix(prompts: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return the common first tokens of all prompts, and the remaining tokens of each prompt."""
    if len(prompts) == 1:
        return prompts[0], [[]]
    n = length_shared(prompts)
    if n == 0:
        raise InvalidArgumentError("the prompts of all questions must begin with the same token")
    return prompts[0][:n], [tokens[n:] for tokens in prompts]


def length_shared(prompts: Sequence[Tokens]) -> int:
    """Return the number of first tokens that all prompts have in common."""
    columns = zip(*prompts, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
