"""Render the results of decisions as Markdown tables and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.learning.pictures import Picture

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
from ..parts.charts import draw_lines
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
            *_head(cell, sizes=True),
            number(cell["ways"][OURS]["request_ms"]),
            number(cell["ways"][OURS]["decisions_per_second"]),
            *by_method(cell["ways"], ways, lambda way: number(way["times_ours"][1])),
        ]
        for cell in cells
    )
    head = [*HEAD, "tokens", "passes", "ms per request", "decisions per second", *ways]
    disturbed = disturbance((_name(cell), cell) for cell in cells)
    table = markdown_table(head, rows, left=len(HEAD))
    return f"{_state(results)}{disturbed}\n\n{table}\n"


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw decisions per second over each axis through the middle cell, one row per model."""
    models = dict.fromkeys(cell["model"] for cell in results["cells"])
    all_lines = {model: _lines(results, model) for model in models}
    drawn = [
        (model, lines) for model, lines in all_lines.items() if any(len(line) > 1 for line in lines)
    ]
    if not drawn:
        return
    picture = Picture(len(drawn), len(AXES), (3.4 * len(AXES), 3.0 * len(drawn) + 0.6))
    for row, (model, lines) in enumerate(drawn):
        for axis, name, cells in zip(picture.axes[row], AXES, lines, strict=True):
            points = [(cell[name], cell["ways"]) for cell in cells]
            labels = {"title": model, "xlabel": name.replace("_", " ")}
            draw_lines(
                axis,
                points,
                colours(["decides"]),
                lambda way: float(way["decisions_per_second"]),
                **labels,
            )
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
