"""Render the comparison as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from page_tables import markdown_table, number

from ..parts.machine import disturbance, machine_line
from ..parts.pages import by_method, notes_of, page_of, versions_of
from .cells import AUTO, GRAMMAR_FIRST, GRAMMAR_LAST, LLGUIDANCE, XGRAMMAR

PEERS = (GRAMMAR_LAST, GRAMMAR_FIRST, LLGUIDANCE, XGRAMMAR)


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: the ratios first, then the measured figures."""
    cells = results["cells"]
    named = [(_name(cell), cell) for cell in cells]
    return page_of(
        _state(results) + disturbance(named),
        "Time per token of a choice relative to eliza-ffi: 2 means twice as long",
        markdown_table(
            ["model", "vocabulary", "labels", *PEERS],
            (
                [cell["model"], f"{cell['n_vocab']:,}", *_head(cell)[1:], *_ratios(cell, PEERS)]
                for cell in cells
            ),
        ),
        "Time of a choice in milliseconds: median. The prompt is in a slot",
        markdown_table(
            ["model", "labels", "one pass", AUTO, *PEERS],
            (
                [
                    *_head(cell),
                    number(cell["pass_ms"]),
                    *by_method(cell["methods"], (AUTO, *PEERS), _choice_ms),
                ]
                for cell in cells
            ),
        ),
        "Getting ready: milliseconds to prepare a new set of labels (in parentheses: a set that "
        "is in eliza-ffi's cache)",
        markdown_table(
            ["model", "labels", "eliza-ffi", "llama.cpp grammar", LLGUIDANCE, XGRAMMAR],
            map(_setup_row, cells),
        ),
        notes_of(results, named, "Failed:"),
    )


def _state(results: dict[str, Any]) -> str:
    minutes = sum(cell["seconds"] for cell in results["cells"]) / 60
    return (
        f"{machine_line(results['machine'])} {versions_of(results['peers'], 'not installed')}. "
        f"Measured in {minutes:.1f} minutes."
    )


def _name(cell: dict[str, Any]) -> str:
    return f"{cell['model']} with {cell['choices']:,} labels"


def _head(cell: dict[str, Any]) -> list[str]:
    return [cell["model"], f"{cell['choices']:,}"]


def _choice_ms(figures: dict[str, Any]) -> str:
    return number(figures["choice_ms"])


def _ratios(cell: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return each method's time per token, divided by eliza-ffi's."""
    ours = cell["methods"][AUTO]["ms_per_token"]
    return by_method(cell["methods"], names, lambda figures: number(figures["ms_per_token"] / ours))


def _setup_row(cell: dict[str, Any]) -> list[str]:
    names = (AUTO, GRAMMAR_FIRST, LLGUIDANCE, XGRAMMAR)
    ours, *others = by_method(cell["methods"], names, lambda one: number(one["setup_ms"]))
    cached = number(cell["set_token_trie_us_cached"] / 1e3)
    return [*_head(cell), f"{ours} ({cached})", *others]
