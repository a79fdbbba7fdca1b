"""Render the results of decisions as Markdown tables and as a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.pictures import Picture, plain
from eliza_ffi.errors import NotSupportedError

from ..methods import (
    CAPPR,
    LLAMA_CPP_PYTHON,
    LLGUIDANCE,
    ONE_BY_ONE,
    ONE_BY_ONE_ANEW,
    OURS,
    TOKENS_ALONE,
    colours,
)
from ..parts.machine import disturbance, machine_line
from .elsewhere import SERVER_GRAMMAR, SYSTEMONE

WAYS = (
    TOKENS_ALONE,
    ONE_BY_ONE,
    ONE_BY_ONE_ANEW,
    SYSTEMONE,
    SERVER_GRAMMAR,
    LLGUIDANCE,
    LLAMA_CPP_PYTHON,
    CAPPR,
)
"""The methods that are compared with one call for all questions, in the order of the tables."""

HEAD = ("model", "input", "questions", "options", "labels")
AXES = ("input_tokens", "questions", "options")


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: the ratios first, then the measured figures, then notes."""
    cells = results["cells"]
    ways = [name for name in WAYS if any(name in cell["ways"] for cell in cells)]
    parts = [
        _state(results) + disturbance((_name(cell), cell) for cell in cells),
        f"Time relative to {OURS} with all questions in one call: 2 means twice as long. Median "
        "over the inputs, and the quartiles in parentheses if there were several inputs",
        _table(cells, ways, "times_ours", _ratio),
        "Milliseconds per request: median. *Tokens*: the input once and all questions. *Passes*: "
        f"the forward passes of {OURS}",
        markdown_table(
            [*HEAD, "tokens", "passes", OURS, *ways],
            (
                [
                    *_head(cell),
                    f"{cell['tokens']:,}",
                    f"{cell['ways'][OURS]['passes']:,}",
                    *_each(cell, (OURS, *ways), lambda way: number(way["request_ms"])),
                ]
                for cell in cells
            ),
            left=len(HEAD),
        ),
        "Decisions per second",
        _table(
            cells,
            [OURS, *(name for name in ways if name != TOKENS_ALONE)],
            "decisions_per_second",
            number,
        ),
        f"Agreement with {OURS}: the share of questions with the same answer. In parentheses: the "
        "largest difference between two probabilities, if both methods compute them; and after "
        f"*apart*, the largest difference between the probabilities that {OURS} computes for its "
        "own answer and for the other method's answer",
        _table(
            cells,
            [name for name in ways if name != TOKENS_ALONE],
            None,
            _sameness,
        ),
    ]
    missing = [peer for peer in results["peers"] if not peer["version"]]
    if missing:
        parts.append("Not measured:")
        parts.append("\n".join(f"- {peer['name']}: {peer['problem']}" for peer in missing))
    problems = [
        f"- {_name(cell)}, {name}: {problem[:200]}"
        for cell in cells
        for name, problem in cell["problems"].items()
    ]
    if problems:
        parts += ["Left out or failed:", "\n".join(problems)]
    return "\n\n".join(parts) + "\n"


def summary(results: dict[str, Any]) -> str:
    """Return one table for documents: the middle cell, and cells that differ in one parameter."""
    middle = results["plan"]["middle"]
    cells = [
        cell
        for cell in results["cells"]
        if sum(cell[axis] != middle[axis] for axis in AXES) <= 1 or cell["model"].startswith("wide")
    ]
    ways = [name for name in WAYS if any(name in cell["ways"] for cell in cells)]
    rows = (
        [
            *_head(cell),
            f"{cell['tokens']:,}",
            f"{cell['ways'][OURS]['passes']:,}",
            number(cell["ways"][OURS]["request_ms"]),
            number(cell["ways"][OURS]["decisions_per_second"]),
            *_each(cell, ways, lambda way: number(way["times_ours"][1])),
        ]
        for cell in cells
    )
    head = [*HEAD, "tokens", "passes", "ms per request", "decisions per second", *ways]
    disturbed = disturbance((_name(cell), cell) for cell in cells)
    table = markdown_table(head, rows, left=len(HEAD))
    return f"{_state(results)}{disturbed}\n\n{table}\n"


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw decisions per second over each axis through the middle cell, one row per model.

    Without matplotlib, no picture is drawn.
    """
    models = dict.fromkeys(cell["model"] for cell in results["cells"])
    all_lines = {model: _lines(results, model) for model in models}
    drawn = [
        (model, lines) for model, lines in all_lines.items() if any(len(line) > 1 for line in lines)
    ]
    if not drawn:
        return
    try:
        picture = Picture(len(drawn), len(AXES), (3.4 * len(AXES), 3.0 * len(drawn) + 0.6))
    except NotSupportedError as error:
        print(f"{file}: not drawn: {error}", file=sys.stderr)
        return
    for row, (model, lines) in enumerate(drawn):
        for axis, name, cells in zip(picture.axes[row], AXES, lines, strict=True):
            _draw(axis, cells, name)
            axis.set_title(model)
        picture.axes[row][0].set_ylabel("decisions per second")
    picture.save(file)


def _lines(results: dict[str, Any], model: str) -> list[list[dict[str, Any]]]:
    """Return, for each axis, a model's cells that differ from the middle cell only there."""
    middle = results["plan"]["middle"]
    cells = [cell for cell in results["cells"] if cell["model"] == model]
    labels = cells[0]["labels"]
    return [
        sorted(
            (
                cell
                for cell in cells
                if cell["labels"] == labels
                and all(cell[other] == middle[other] for other in AXES if other != axis)
            ),
            key=lambda cell, axis=axis: int(cell[axis]),  # type: ignore[misc]
        )
        for axis in AXES
    ]


def _draw(axis: Any, cells: Sequence[dict[str, Any]], name: str) -> None:
    for way, colour in colours(["decides"]).items():
        points = [
            (cell[name], cell["ways"][way]["decisions_per_second"])
            for cell in cells
            if way in cell["ways"]
        ]
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", ms=4, label=way, color=colour)
    axis.set(xlabel=name.replace("_", " "), xscale="log", yscale="log")
    places = [cell[name] for cell in cells]
    axis.set_xticks(places, [f"{place:,}" for place in places])
    axis.minorticks_off()
    plain(axis)


def _state(results: dict[str, Any]) -> str:
    versions = [
        f"{peer['name']} {peer['version']}" if peer["version"] else f"{peer['name']} not available"
        for peer in results["peers"]
    ]
    minutes = sum(cell["seconds"] for cell in results["cells"]) / 60
    threads = results["plan"]["threads"]
    limit = f" Compute threads of every method: {threads}." if threads else ""
    return (
        f"{machine_line(results['machine'])} {', '.join(versions)}.{limit} "
        f"Measured in {minutes:.1f} minutes."
    )


def _name(cell: dict[str, Any]) -> str:
    return (
        f"{cell['model']}, {cell['input_tokens']:,} tokens, {cell['questions']} questions of "
        f"{cell['options']} {cell['labels']}"
    )


def _head(cell: dict[str, Any]) -> list[str]:
    counts = [f"{cell[axis]:,}" for axis in AXES]
    return [cell["model"], *counts, cell["labels"]]


def _table(cells: Sequence[dict[str, Any]], ways: Sequence[str], figure: Any, show: Any) -> str:
    rows = (
        [*_head(cell), *_each(cell, ways, lambda way: show(way[figure] if figure else way))]
        for cell in cells
    )
    return markdown_table([*HEAD, *ways], rows, left=len(HEAD))


def _each(cell: dict[str, Any], names: Sequence[str], show: Any) -> list[str]:
    return [show(cell["ways"][name]) if name in cell["ways"] else "-" for name in names]


def _ratio(quartiles: Sequence[float]) -> str:
    low, middle, high = quartiles
    return number(middle) if low == high else f"{number(middle)} ({number(low)}-{number(high)})"


def _sameness(way: dict[str, Any]) -> str:
    if way["same_answers"] is None:
        return "-"
    found = [f"{way['widest']:.3f}"] if way["widest"] is not None else []
    if way.get("parting"):
        found.append(f"apart {way['parting']:.3f}")
    return f"{way['same_answers']:.0%}" + (f" ({', '.join(found)})" if found else "")
