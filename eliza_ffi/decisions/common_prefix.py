"""Prompts that begin alike, cut where they part."""

from __future__ import annotations

from ..errors import InvalidArgumentError

__all__ = ["split_common_prefix"]


def split_common_prefix(prompts: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return the tokens that all prompts begin with, and of each those behind them, if any.

    Raises
    ------
    InvalidArgumentError
        If they begin with different tokens.
    """
    if len(prompts) == 1:
        return prompts[0], [[]]
    n = 0
    for tokens in zip(*prompts, strict=False):
        if any(token != tokens[0] for token in tokens):
            break
        n += 1
    if n == 0:
        raise InvalidArgumentError("the prompts of two questions have no beginning in common")
    return prompts[0][:n], [tokens[n:] for tokens in prompts]
