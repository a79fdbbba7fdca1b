"""Render the results of decisions as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from page_tables import markdown_table, number

from ..methods import LLGUIDANCE, ONE_BY_ONE, ONE_BY_ONE_ANEW, OURS, TOKENS_ALONE
from ..parts.machine import disturbance, machine_line
from ..parts.pages import by_method, notes_of, page_of, spread, versions_of
from .elsewhere import SERVER_GRAMMAR, SYSTEMONE

WAYS = (
    TOKENS_ALONE,
    ONE_BY_ONE,
    ONE_BY_ONE_ANEW,
    SYSTEMONE,
    SERVER_GRAMMAR,
    LLGUIDANCE,
)
"""The methods that are compared with one call for all questions, in the order of the tables."""

HEAD = ("model", "input", "questions", "options", "labels")
AXES = ("input_tokens", "questions", "options")


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: the ratios first, then the measured figures, then notes."""
    cells = results["cells"]
    ways = [name for name in WAYS if any(name in cell["ways"] for cell in cells)]
    answering = [name for name in ways if name != TOKENS_ALONE]
    named = [(_name(cell), cell) for cell in cells]
    return page_of(
        _state(results) + disturbance(named),
        f"Time relative to {OURS} with all questions in one call: 2 means twice as long. Median "
        "over the inputs, and the quartiles in parentheses if there were several inputs",
        _table(cells, ways, lambda way: _ratio(way["times_ours"])),
        "Milliseconds per request: median. *Tokens*: the input once and all questions. *Passes*: "
        f"the forward passes of {OURS}",
        markdown_table(
            [*HEAD, "tokens", "passes", OURS, *ways],
            (
                [
                    *_head(cell, sizes=True),
                    *by_method(cell["ways"], (OURS, *ways), lambda way: number(way["request_ms"])),
                ]
                for cell in cells
            ),
            left=len(HEAD),
        ),
        "Decisions per second",
        _table(cells, [OURS, *answering], lambda way: number(way["decisions_per_second"])),
        f"Agreement with {OURS}: the share of questions with the same answer. In parentheses: the "
        "largest difference between two probabilities, if both methods compute them; and after "
        f"*apart*, the largest difference between the probabilities that {OURS} computes for its "
        "own answer and for the other method's answer",
        _table(cells, answering, _sameness),
        notes_of(results, named, "Left out or failed:"),
    )


def _state(results: dict[str, Any]) -> str:
    versions = versions_of(results["peers"], "not available")
    minutes = sum(cell["seconds"] for cell in results["cells"]) / 60
    threads = results["plan"]["threads"]
    limit = f" Compute threads of every method: {threads}." if threads else ""
    return (
        f"{machine_line(results['machine'])} {versions}.{limit} Measured in {minutes:.1f} minutes."
    )


def _name(cell: dict[str, Any]) -> str:
    return (
        f"{cell['model']}, {cell['input_tokens']:,} tokens, {cell['questions']} questions of "
        f"{cell['options']} {cell['labels']}"
    )


def _head(cell: dict[str, Any], sizes: bool = False) -> list[str]:
    counts = [f"{cell[axis]:,}" for axis in AXES]
    more = [f"{cell['tokens']:,}", f"{cell['ways'][OURS]['passes']:,}"] if sizes else []
    return [cell["model"], *counts, cell["labels"], *more]


def _table(cells: Sequence[dict[str, Any]], ways: Sequence[str], show: Any) -> str:
    rows = ([*_head(cell), *by_method(cell["ways"], ways, show)] for cell in cells)
    return markdown_table([*HEAD, *ways], rows, left=len(HEAD))


def _ratio(quartiles: Sequence[float]) -> str:
    return number(quartiles[1]) if quartiles[0] == quartiles[2] else spread(quartiles)


def _sameness(way: dict[str, Any]) -> str:
    if way["same_answers"] is None:
        return "-"
    found = [f"{way['widest']:.3f}"] if way["widest"] is not None else []
    if way.get("parting"):
        found.append(f"apart {way['parting']:.3f}")
    return f"{way['same_answers']:.0%}" + (f" ({', '.join(found)})" if found else "")
