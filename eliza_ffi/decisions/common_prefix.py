"""Split prompts into their common beginning and the rest of each."""

from __future__ import annotations

from ..errors import InvalidArgumentError

__all__ = ["split_common_prefix"]


def split_common_prefix(prompts: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return the common first tokens of all prompts, and the remaining tokens of each prompt.

    Raises
    ------
    InvalidArgumentError
        If the prompts begin with different tokens, or one of several prompts is empty.
    """
    if len(prompts) == 1:
        return prompts[0], [[]]
    n = 0
    for tokens in zip(*prompts, strict=False):
        if any(token != tokens[0] for token in tokens):
            break
        n += 1
    if n == 0:
        raise InvalidArgumentError("the prompts of all questions must begin with the same token")
    return prompts[0][:n], [tokens[n:] for tokens in prompts]
