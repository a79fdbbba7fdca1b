"""A long run in pieces: new results put beside older ones of the same state."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["merged"]


def merged(
    old: dict[str, Any],
    new: dict[str, Any],
    items: str,
    key: Callable[[dict[str, Any]], Any],
    order: Sequence[Any],
) -> dict[str, Any]:
    """Return the new results with the old items that they did not measure anew.

    Parameters
    ----------
    old, new
        Results: lists under `items`, and everything they depend on beside it.
    items
    key
        What an item is told by.
    order
        All keys, in the order they are to stand in.

    Raises
    ------
    SystemExit
        If anything but the items and the date differs: such figures do not compare.
    """
    if _state(old, items) != _state(new, items):
        raise SystemExit("--merge: the file is of another machine, other versions or another plan")
    by_key = {key(item): item for item in (*old[items], *new[items])}
    return {**new, items: [by_key[each] for each in order if each in by_key]}


def _state(results: dict[str, Any], items: str) -> Any:
    state = {name: value for name, value in results.items() if name != items}
    state["machine"] = {name: fact for name, fact in state["machine"].items() if name != "date"}
    return json.loads(json.dumps(state))  # tuples as the lists they come back as
