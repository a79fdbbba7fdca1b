"""Read the results of a Model and of an AsyncModel in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any


async def result_of(found: Any) -> Any:
    """Await a result, or read an iterator to its end and return its items."""
    if hasattr(found, "__aiter__"):
        return [each async for each in found]
    if inspect.isawaitable(found):
        return await found
    return list(found) if isinstance(found, Iterator) else found
