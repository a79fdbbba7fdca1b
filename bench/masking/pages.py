"""Render the results as tables, with the ratios first, and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.learning.pictures import Picture, plain

from ..methods import METHODS, OURS
from ..parts.machine import disturbance, machine_line
from ..parts.pages import by_method, page_of

KINDS = ("warm", "step", "cold")
PERCENTILES = ("p50_us", "p99_us")


def markdown(results: dict[str, Any]) -> str:
    """Return all tables."""
    cells, peers = results["cells"], list(results["peers"])
    names, ratios = [OURS, *peers], [(peer, kind) for peer in peers for kind in KINDS]
    versions = ", ".join(f"{name} {version}" for name, version in results["peers"].items())
    named = ((f"{cell['vocabulary']} {cell['constraint']}", cell) for cell in cells)
    ghz = results["gigahertz"]

    def table(head: Sequence[str], row: Callable[[dict[str, Any]], Sequence[str]]) -> str:
        rows = ([cell["vocabulary"], cell["constraint"], *row(cell)] for cell in cells)
        return markdown_table(["vocabulary", "constraint", *head], rows)

    def masks(kind: str) -> str:
        return table(names, lambda cell: by_method(cell["engines"], names, lambda e: _us(e[kind])))

    return page_of(
        f"{machine_line(results['machine'])} {versions}. {_calls(cells)}{disturbance(named)}",
        "Time of a mask relative to eliza-ffi, p50 / p99; below 1 the other library is faster. "
        "*Warm*: all states of the constraint were seen before. *Step*: a warm mask, and accepting "
        "the token. *Cold*: no mask was computed before",
        table(
            [f"{peer}, {kind}" for peer, kind in ratios],
            lambda cell: [_ratio(cell["engines"], *each) for each in ratios],
        ),
        "Microseconds of a warm mask: p50 / p99 over the places in 40 samples. eliza-ffi's times "
        "include accepting the token",
        masks("warm"),
        "Microseconds of a warm mask and accepting the token: p50 / p99",
        masks("step"),
        "Microseconds of a cold mask: p50 / p99. The constraint is compiled again, all earlier "
        "tokens are accepted without a mask, and then one mask is computed",
        masks("cold"),
        "The first text of a new constraint: milliseconds to compile the constraint, and "
        "microseconds to compile it and compute all masks of the text",
        table(
            [*(f"{name}, compile ms" for name in names), *(f"{name}, text µs" for name in names)],
            lambda cell: [
                number(cell["engines"][name][figure])
                for figure in ("compile_ms", "first_text_us")
                for name in names
            ],
        ),
        "Agreement with eliza-ffi's masks: the share of places with identical masks / the number "
        "of tokens that both masks allow, divided by the number that at least one mask allows "
        "(mean over the places)",
        table(
            ["places", *peers],
            lambda cell: [str(cell["places"]), *by_method(cell["agreement"], peers, _agreed)],
        ),
        "Preparing the vocabulary, once per model",
        _vocabularies(results["vocabularies"], peers),
        f"The cost of one node in a cold walk. A cycle is {1 / ghz:.2f} ns: the clock rate, "
        f"measured with a chain of dependent operations, is {ghz:.2f} GHz",
        _nodes(results),
    )


def _calls(cells: Sequence[dict[str, Any]]) -> str:
    calls = {name: each["call_us"] for cell in cells for name, each in cell["engines"].items()}
    listed = ", ".join(f"{us:.2f} µs with {name}" for name, us in calls.items())
    return f"The times of masks exclude an empty call from Python, which takes {listed}."


def _us(figures: dict[str, float]) -> str:
    return " / ".join(number(figures[each]) for each in PERCENTILES)


def _ratio(engines: dict[str, Any], peer: str, kind: str) -> str:
    theirs, ours = engines[peer][kind], engines[OURS][kind]
    return _us({each: theirs[each] / ours[each] for each in PERCENTILES})


def _agreed(agreement: dict[str, float]) -> str:
    return f"{agreement['same']:.0%} / {agreement['in_common']:.2%}"


def _vocabularies(vocabularies: Sequence[dict[str, Any]], peers: Sequence[str]) -> str:
    head = ["vocabulary", "tokens", "nodes", "MiB", "ms to build", "ms, tokens with a quote"]
    rows = [
        [
            each["name"],
            f"{each['tokens']:,}",
            f"{each['nodes']:,}",
            f"{each['bytes'] / 2**20:.2f}",
            number(each["build_ms"][OURS]),
            number(each["with_quote_ms"]),
            *(number(each["build_ms"][peer]) for peer in peers),
        ]
        for each in vocabularies
    ]
    return markdown_table([*head, *(f"{peer}, ms" for peer in peers)], rows)


def _nodes(results: dict[str, Any]) -> str:
    instructions = results["instructions"] or {}
    rows = [
        [
            each["name"],
            kind,
            f"{cost['visited']:,}",
            f"{cost['ns']:.2f}",
            f"{cost['ns'] * results['gigahertz']:.1f}",
            f"{instructions[kind]:.1f}" if kind in instructions else "-",
        ]
        for each in results["vocabularies"]
        for kind, cost in each["node_cost"].items()
    ]
    head = ["vocabulary", "recognizer", "nodes visited", "ns", "cycles", "instructions"]
    return markdown_table(head, rows)


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw p50 to p99 of each library: a panel per vocabulary, for warm and for cold masks."""
    vocabularies = list(dict.fromkeys(cell["vocabulary"] for cell in results["cells"]))
    picture = Picture(2, len(vocabularies), (3.6 * len(vocabularies), 6.2), sharey="row")
    for row, kind in zip(picture.axes, ("warm", "cold"), strict=True):
        for axis, vocabulary in zip(row, vocabularies, strict=True):
            cells = [cell for cell in results["cells"] if cell["vocabulary"] == vocabulary]
            _panel(axis, cells, kind)
            axis.set_title(f"{vocabulary}, {kind}", fontsize="medium")
        row[0].set_ylabel("microseconds per mask, p50 to p99")
    picture.save(file)


def _panel(axis: Any, cells: Sequence[dict[str, Any]], kind: str) -> None:
    names = list(cells[0]["engines"])
    for place, name in enumerate(names):
        colour = METHODS[name].colour
        spreads = [cell["engines"][name][kind] for cell in cells]
        xs = [x + (place - (len(names) - 1) / 2) * 0.2 for x in range(len(cells))]
        low, high = ([each[p] for each in spreads] for p in PERCENTILES)
        axis.vlines(xs, low, high, color=colour, lw=2, alpha=0.5)
        axis.plot(xs, low, "o", ms=5, color=colour, label=name)
        axis.plot(xs, high, "_", ms=7, color=colour)
    axis.set_yscale("log")
    labels = [cell["constraint"].replace("JSON ", "JSON\n") for cell in cells]
    axis.set_xticks(range(len(cells)), labels, fontsize="small")
    plain(axis, "y")
