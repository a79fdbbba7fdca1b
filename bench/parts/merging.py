"""Merge the results of a partial run into the stored results of an earlier run."""

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
    """Return the new results, with the old items that the new run did not measure.

    Parameters
    ----------
    old, new
        Results: a list of items under the key `items`, and the facts that the items depend on under
        the other keys.
    items
        The key of the list.
    key
        Returns the identity of an item; a new item replaces the old item with the same identity.
    order
        All identities, in the order of the result.

    Raises
    ------
    SystemExit
        If anything except the items and the date differs, because then the figures cannot be
        compared.
    """
    if _state(old, items) != _state(new, items):
        raise SystemExit(
            "--merge: the stored results were measured on another machine, with other versions or "
            "with other settings"
        )
    by_key = {key(item): item for item in (*old[items], *new[items])}
    return {**new, items: [by_key[each] for each in order if each in by_key]}


def _state(results: dict[str, Any], items: str) -> Any:
    state = {name: value for name, value in results.items() if name != items}
    state["machine"] = {name: fact for name, fact in state["machine"].items() if name != "date"}
    return json.loads(json.dumps(state))  # turns tuples into lists, as in the stored results
