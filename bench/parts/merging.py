"""Read stored results, and merge the results of a partial run into them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Results = dict[str, Any]
Order = Callable[[list[dict[str, Any]]], Iterable[Sequence[Any]]]
"""Returns the identities of some items, in the order of the result."""


def stored(file: Path) -> Results:
    """Return the results in a JSON file."""
    results: Results = json.loads(file.read_text(encoding="utf-8"))
    return results


def stored_or_measured(
    options: argparse.Namespace,
    file: Path,
    measure: Callable[[], Results],
    items: str,
    key: Sequence[str],
    order: Order,
) -> Results:
    """Return the stored results with ``--render``, and measured results otherwise.

    With ``--merge``, stored items that were not measured are added.

    Parameters
    ----------
    options
        The command line, with the options `merge` and `render`.
    file
        The stored results.
    measure
        Returns new results.
    items, key, order
        See `merged`.
    """
    if options.render:
        return stored(file)
    results = measure()
    if options.merge and file.is_file():
        return merged(stored(file), results, items, key, order)
    return results


def merged(old: Results, new: Results, items: str, key: Sequence[str], order: Order) -> Results:
    """Return the new results, with the old items that the new run did not measure.

    Parameters
    ----------
    old, new
        Results: a list of items under the key `items`, and the facts that the items depend on under
        the other keys.
    items
        The key of the list.
    key
        The fields that identify an item; a new item replaces the old item with the same values.
    order
        Returns the identities of all items, in the order of the result.

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
    both = [*old[items], *new[items]]
    found = {tuple(item[name] for name in key): item for item in both}
    return {**new, items: [found[each] for each in map(tuple, order(both)) if each in found]}


def _state(results: Results, items: str) -> Any:
    state = {name: value for name, value in results.items() if name != items}
    state["machine"] = {name: fact for name, fact in state["machine"].items() if name != "date"}
    return json.loads(json.dumps(state))  # turns tuples into lists, as in the stored results
