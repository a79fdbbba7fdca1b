"""Render the results as tables, with the ratios first, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.pictures import Picture, plain

from ..methods import METHODS, OURS
from ..parts.machine import disturbance, machine_line


def markdown(results: dict[str, Any]) -> str:
    """Return all tables."""
    cells, peers = results["cells"], results["peers"]
    versions = ", ".join(f"{name} {version}" for name, version in peers.items())
    named = ((f"{cell['vocabulary']} {cell['constraint']}", cell) for cell in cells)
    parts = [
        f"{machine_line(results['machine'])} {versions}. {_calls(cells)}{disturbance(named)}",
        "Time of a mask relative to eliza-ffi, p50 / p99; below 1 the other library is faster. "
        "*Warm*: all states of the constraint were seen before. *Step*: a warm mask, and accepting "
        "the token. *Cold*: no mask was computed before",
        markdown_table(*_ratios(cells, list(peers))),
        "Microseconds of a warm mask: p50 / p99 over the places in 40 samples. eliza-ffi's times "
        "include accepting the token",
        markdown_table(*_masks(cells, list(peers), "warm")),
        "Microseconds of a warm mask and accepting the token: p50 / p99",
        markdown_table(*_masks(cells, list(peers), "step")),
        "Microseconds of a cold mask: p50 / p99. The constraint is compiled again, all earlier "
        "tokens are accepted without a mask, and then one mask is computed",
        markdown_table(*_masks(cells, list(peers), "cold")),
        "The first text of a new constraint: milliseconds to compile the constraint, and "
        "microseconds to compile it and compute all masks of the text",
        markdown_table(*_first_texts(cells, list(peers))),
        "Agreement with eliza-ffi's masks: the share of places with identical masks / the number "
        "of tokens that both masks allow, divided by the number that at least one mask allows "
        "(mean over the places)",
        markdown_table(*_agreement(cells, list(peers))),
        "Preparing the vocabulary, once per model",
        markdown_table(*_vocabularies(results["vocabularies"], list(peers))),
        _node_line(results),
        markdown_table(*_nodes(results)),
    ]
    return "\n\n".join(parts) + "\n"


def _calls(cells: Sequence[dict[str, Any]]) -> str:
    calls = {name: each["call_us"] for cell in cells for name, each in cell["engines"].items()}
    listed = ", ".join(f"{us:.2f} µs with {name}" for name, us in calls.items())
    return f"The times of masks exclude an empty call from Python, which takes {listed}."


def _labels(cell: dict[str, Any]) -> list[str]:
    return [cell["vocabulary"], cell["constraint"]]


def _ratios(
    cells: Sequence[dict[str, Any]], peers: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    kinds = [(peer, kind) for peer in peers for kind in ("warm", "step", "cold")]
    head = ["vocabulary", "constraint", *(f"{p}, {kind}" for p, kind in kinds)]
    rows = []
    for cell in cells:
        ours = cell["engines"][OURS]
        row = _labels(cell)
        for peer, kind in kinds:
            theirs = cell["engines"][peer][kind]
            row.append(" / ".join(number(theirs[p] / ours[kind][p]) for p in ("p50_us", "p99_us")))
        rows.append(row)
    return head, rows


def _masks(
    cells: Sequence[dict[str, Any]], peers: Sequence[str], kind: str
) -> tuple[list[str], list[list[str]]]:
    names = [OURS, *peers]
    rows = [
        _labels(cell)
        + [
            " / ".join(number(cell["engines"][name][kind][p]) for p in ("p50_us", "p99_us"))
            for name in names
        ]
        for cell in cells
    ]
    return ["vocabulary", "constraint", *names], rows


def _first_texts(
    cells: Sequence[dict[str, Any]], peers: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    names = [OURS, *peers]
    rows = [
        _labels(cell)
        + [number(cell["engines"][name]["compile_ms"]) for name in names]
        + [number(cell["engines"][name]["first_text_us"]) for name in names]
        for cell in cells
    ]
    head = [*(f"{name}, compile ms" for name in names), *(f"{name}, text µs" for name in names)]
    return ["vocabulary", "constraint", *head], rows


def _agreement(
    cells: Sequence[dict[str, Any]], peers: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    rows = [
        [*_labels(cell), f"{cell['places']}", *(_agreed(cell["agreement"][peer]) for peer in peers)]
        for cell in cells
    ]
    return ["vocabulary", "constraint", "places", *peers], rows


def _agreed(agreement: dict[str, float]) -> str:
    return f"{agreement['same']:.0%} / {agreement['in_common']:.2%}"


def _vocabularies(
    vocabularies: Sequence[dict[str, Any]], peers: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
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
    return [*head, *(f"{peer}, ms" for peer in peers)], rows


def _node_line(results: dict[str, Any]) -> str:
    ghz = results["gigahertz"]
    return (
        f"The cost of one node in a cold walk. A cycle is {1 / ghz:.2f} ns: the clock rate, "
        f"measured with a chain of dependent operations, is {ghz:.2f} GHz"
    )


def _nodes(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    instructions = results["instructions"] or {}
    rows = [
        [
            vocabulary,
            kind,
            f"{cost['visited']:,}",
            f"{cost['ns']:.2f}",
            f"{cost['ns'] * results['gigahertz']:.1f}",
            f"{instructions[kind]:.1f}" if kind in instructions else "-",
        ]
        for vocabulary, kind, cost in _node_costs(results)
    ]
    return ["vocabulary", "recognizer", "nodes visited", "ns", "cycles", "instructions"], rows


def _node_costs(results: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for each in results["vocabularies"]:
        for kind, cost in each["node_cost"].items():
            yield each["name"], kind, cost


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
        low, high = ([each[p] for each in spreads] for p in ("p50_us", "p99_us"))
        axis.vlines(xs, low, high, color=colour, lw=2, alpha=0.5)
        axis.plot(xs, low, "o", ms=5, color=colour, label=name)
        axis.plot(xs, high, "_", ms=7, color=colour)
    axis.set_yscale("log")
    labels = [cell["constraint"].replace("JSON ", "JSON\n") for cell in cells]
    axis.set_xticks(range(len(cells)), labels, fontsize="small")
    plain(axis, "y")
