"""Render the comparison as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from page_tables import markdown_table, number

from ..methods import (
    AUTO,
    GRAMMAR_FIRST,
    GRAMMAR_LAST,
    LLAMA_CPP_PYTHON,
    LLGUIDANCE,
    SKIP_AHEAD,
    TOKEN_BY_TOKEN,
    TREE,
    XGRAMMAR,
)
from ..parts.machine import disturbance, machine_line
from ..parts.pages import by_method, notes_of, page_of, versions_of

PEERS = (GRAMMAR_LAST, GRAMMAR_FIRST, LLGUIDANCE, XGRAMMAR, LLAMA_CPP_PYTHON)

SHORT_PEERS = (GRAMMAR_LAST, LLGUIDANCE, XGRAMMAR, LLAMA_CPP_PYTHON)
SHORT_CHOICES = (30, 3000)
"""The rows of the short table: the numbers of labels."""


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: the ratios first, then the measured figures."""
    named = [(_name(cell), cell) for cell in results["cells"]]
    unlike = [name for name, cell in named if not cell.get("strategies_agree", True)]
    agreed = f"Strategies of eliza-ffi chose different tokens: {', '.join(unlike)}."
    return page_of(
        _state(results) + disturbance(named),
        "Time per token of a choice relative to eliza-ffi (`auto`): 2 means twice as long",
        markdown_table(
            ["model", "vocabulary", "labels", *PEERS], map(_ratio_row, results["cells"])
        ),
        "Time of a choice in milliseconds: median. The prompt is in a slot",
        markdown_table(
            ["model", "labels", AUTO, *PEERS],
            (
                [*_head(cell), *by_method(cell["methods"], (AUTO, *PEERS), _choice_ms)]
                for cell in results["cells"]
            ),
        ),
        "Strategies of eliza-ffi: milliseconds per choice, and forward passes after the prompt in "
        "parentheses",
        markdown_table(
            ["model", "labels", "one pass", *("auto", "tree", "skip-ahead", "token-by-token")],
            map(_strategy_row, results["cells"]),
        ),
        "Time to select one token in microseconds, without the forward pass. eliza-ffi selects "
        "among the tokens of the trie; llama.cpp's times include sampling. *Mask* is the time to "
        "compute the mask. *All* also includes applying it, the argmax and accepting the token",
        markdown_table(
            [
                "model",
                "labels",
                "eliza-ffi",
                "grammar last",
                "grammar first",
                *("llguidance mask", "llguidance all", "xgrammar mask", "xgrammar all"),
            ],
            map(_select_row, results["cells"]),
        ),
        "Getting ready: milliseconds to prepare a new set of labels (in parentheses: a set that "
        "is in eliza-ffi's cache)",
        markdown_table(
            ["model", "labels", "eliza-ffi", "llama.cpp grammar", "llguidance", "xgrammar"],
            map(_setup_row, results["cells"]),
        ),
        "Share of prompts for which eliza-ffi and llama.cpp's grammar choose the same label, and "
        "the tokens of their labels",
        markdown_table(
            ["model", "labels", "same label", "tokens, eliza-ffi", "tokens, grammar"],
            map(_agreement_row, results["cells"]),
        ),
        agreed if unlike else "",
        notes_of(results, named, "Failed:"),
    )


def ratios(results: dict[str, Any]) -> str:
    """Return the short table: time per token relative to eliza-ffi, and its time of a choice."""
    cells = [cell for cell in results["cells"] if cell["choices"] in SHORT_CHOICES]
    peers = [name for name in SHORT_PEERS if any(name in cell["methods"] for cell in cells)]
    rows = [
        [
            f"{cell['model']}, {cell['choices']:,}",
            *_ratios(cell, peers),
            _choice_ms(cell["methods"][AUTO]),
        ]
        for cell in cells
    ]
    names = [name.removesuffix(" last") for name in peers]
    head = ["model, labels", *names, "eliza-ffi, ms per choice"]
    disturbed = disturbance((_name(cell), cell) for cell in cells)
    return f"{markdown_table(head, rows)}\n\n{_state(results)}{disturbed}\n"


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


def _ratio_row(cell: dict[str, Any]) -> list[str]:
    return [cell["model"], f"{cell['n_vocab']:,}", f"{cell['choices']:,}", *_ratios(cell, PEERS)]


def _ratios(cell: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return each method's time per token, divided by eliza-ffi's."""
    ours = cell["methods"][AUTO]["ms_per_token"]
    return by_method(cell["methods"], names, lambda figures: number(figures["ms_per_token"] / ours))


def _strategy_row(cell: dict[str, Any]) -> list[str]:
    names = (AUTO, TREE, SKIP_AHEAD, TOKEN_BY_TOKEN)
    shown = by_method(
        cell["methods"], names, lambda one: f"{number(one['choice_ms'])} ({one['passes']:.1f})"
    )
    return [*_head(cell), number(cell["pass_ms"]), *shown]


def _select_row(cell: dict[str, Any]) -> list[str]:
    names = (AUTO, GRAMMAR_LAST, GRAMMAR_FIRST)
    shown = by_method(cell["methods"], names, lambda one: number(one["select_us"]))
    for name in (LLGUIDANCE, XGRAMMAR):
        one = cell["methods"].get(name)
        shown += [number(one["mask_us"]), number(one["step_us"])] if one else ["-", "-"]
    return [*_head(cell), *shown]


def _setup_row(cell: dict[str, Any]) -> list[str]:
    cold, cached = cell["set_token_trie_us_cold"] / 1e3, cell["set_token_trie_us_cached"] / 1e3
    names = (GRAMMAR_FIRST, LLGUIDANCE, XGRAMMAR)
    shown = by_method(cell["methods"], names, lambda one: number(one["setup_ms"]))
    return [*_head(cell), f"{number(cold)} ({number(cached)})", *shown]


def _agreement_row(cell: dict[str, Any]) -> list[str]:
    ours, grammar = cell["methods"][AUTO], cell["methods"][GRAMMAR_LAST]
    tokens = [f"{one['tokens']:.1f}" for one in (ours, grammar)]
    return [*_head(cell), f"{ours['agreement']:.0%}", *tokens]
