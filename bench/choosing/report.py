"""Render the comparison as Markdown tables."""

from __future__ import annotations

from typing import Any

from page_tables import markdown_table, number

from ..parts.machine import machine_line
from ..parts.pages import by_method, notes_of, page_of, versions_of
from .cells import AUTO, GRAMMAR_FIRST, GRAMMAR_LAST, LLGUIDANCE, XGRAMMAR

PEERS = (GRAMMAR_LAST, GRAMMAR_FIRST, LLGUIDANCE, XGRAMMAR)


def markdown(results: dict[str, Any]) -> str:
    """Return the table of the time of a choice."""
    cells = results["cells"]
    named = [(f"{cell['model']} with {cell['choices']} labels", cell) for cell in cells]
    rows = [
        [
            *(cell["model"], f"{cell['choices']:,}", f"{cell['n_vocab']:,}"),
            *(number(cell["pass_ms"]), *_times(cell)),
        ]
        for cell in cells
    ]
    return page_of(
        f"{machine_line(results['machine'])} {versions_of(results['peers'], 'not installed')}.",
        "Milliseconds of processor time of a choice after a cached prompt: median, and how many "
        "times as long as eliza-ffi. *Pass*: one forward pass",
        markdown_table(["model", "labels", "vocabulary", "pass", "eliza-ffi", *PEERS], rows),
        notes_of(results, named, "Failed:"),
    )


def _times(cell: dict[str, Any]) -> list[str]:
    ours = cell["methods"][AUTO]["choice_ms"]

    def show(figures: dict[str, Any]) -> str:
        return f"{number(figures['choice_ms'])} ({number(figures['choice_ms'] / ours)})"

    return [number(ours), *by_method(cell["methods"], PEERS, show)]
