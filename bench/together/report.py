"""Render the results of many streams as Markdown tables and as a picture."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.pictures import Picture, plain
from eliza_ffi.errors import NotSupportedError

from ..methods import ALONE, LOOP, OURS, SERVER, colours
from ..parts.machine import disturbance, machine_line
from .cells import PROMPTS

__all__ = ["markdown", "plot"]

WRITERS = (OURS, LOOP, SERVER)
CHOOSERS = (OURS, ALONE, SERVER)


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: tokens first, then choices, then notes about the comparison."""
    cells = results["cells"]
    parts = [
        _state(results) + disturbance((_name(cell), cell) for cell in cells),
        "Tokens per second of all streams together, once every stream has its first token. The "
        "last three columns are ratios within a round: eliza-ffi's rate divided by the batch "
        "loop's, by llama-server's, and by the rate of a single eliza-ffi stream",
        markdown_table(
            [
                *("model", "streams", *WRITERS),
                *("/ batch loop", "/ llama-server", "/ one stream"),
            ],
            map(_tokens_row, cells),
        ),
        "Milliseconds between consecutive tokens of a stream: median (p99)",
        markdown_table(
            ["model", "streams", *WRITERS],
            ([*_head(cell), *_times(cell["writing"], WRITERS, "token_ms")] for cell in cells),
        ),
        "Choices among five labels per second, with one thread per stream. *One thread* makes the "
        "same choices with a single thread. *Own prompts*: 64 new tokens. *Shared prefix*: 64 new "
        "tokens after a prefix of 150 tokens that all prompts share. The last two columns are "
        "ratios within a round: eliza-ffi's rate divided by the rate of one thread and by "
        "llama-server's",
        markdown_table(
            [
                *("model", "streams", "prompts", OURS, "one thread", SERVER),
                *("/ one thread", "/ llama-server"),
            ],
            (_choices_row(cell, prompts) for cell in cells for prompts in PROMPTS),
        ),
        "Milliseconds of a choice, including its prompt: median (p99)",
        markdown_table(
            ["model", "streams", "prompts", OURS, "one thread", SERVER],
            (
                [*_head(cell), kind, *_times(cell["choosing"][kind], CHOOSERS, "choice_ms")]
                for cell in cells
                for kind in PROMPTS
            ),
        ),
        "One thread makes choices while all other streams generate text: milliseconds of a choice, "
        "median (p99), and tokens per second of the other streams together during the choices",
        markdown_table(
            ["model", "streams", OURS, SERVER, f"{OURS}, tokens/s", f"{SERVER}, tokens/s"],
            (_beside_row(cell) for cell in cells if cell["beside"]),
        ),
    ]
    if any("passes_shared" in cell["passes"] for cell in cells):
        parts += [
            "eliza-ffi's passes while all streams generate text: the share of passes that served "
            "several streams, sequences per pass, and microseconds that a stream waited for a pass",
            markdown_table(
                ["model", "streams", "shared", "sequences", "waiting, µs"],
                map(_passes_row, cells),
            ),
        ]
    missing = [peer for peer in results["peers"] if not peer["version"]]
    if missing:
        parts.append("Not measured:")
        parts.append("\n".join(f"- {peer['name']}: {peer['problem']}" for peer in missing))
    noted = [f"- {_name(cell)}: {note}" for cell in cells for note in _notes(cell)]
    if noted:
        parts += [
            "Notes. Where tokens differ from the batch loop's, the margin is the largest "
            "difference between the loop's two best logits at the first different token",
            "\n".join(noted),
        ]
    return "\n\n".join(parts) + "\n"


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw tokens and choices per second over the number of streams, one column per model.

    Without matplotlib, no picture is drawn.
    """
    models = list(dict.fromkeys(cell["model"] for cell in results["cells"]))
    try:
        picture = Picture(2, len(models), (3.2 * len(models), 6.4), sharex=True, sharey="row")
    except NotSupportedError as error:
        print(f"{file}: not drawn: {error}", file=sys.stderr)
        return
    for column, model in enumerate(models):
        above, below = picture.axes[:, column]
        cells = [cell for cell in results["cells"] if cell["model"] == model]
        written = [(cell["streams"], cell["writing"]) for cell in cells]
        chosen = [(cell["streams"], cell["choosing"][PROMPTS[0]]) for cell in cells]
        _draw(above, written, "tokens_per_second")
        _draw(below, chosen, "choices_per_second")
        above.set_title(model)
        below.set_xlabel("streams")
    picture.axes[0][0].set_ylabel("tokens per second, together")
    picture.axes[1][0].set_ylabel("choices per second, together")
    picture.save(file)


def _draw(axis: Any, cells: list[tuple[int, dict[str, Any]]], figure: str) -> None:
    for name, colour in colours(["streams"]).items():
        points = [(streams, ways[name][figure]) for streams, ways in cells if name in ways]
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", ms=4, label=name, color=colour)
    axis.set_xscale("log", base=2)
    places = [streams for streams, _ in cells]
    axis.set_xticks(places, [str(place) for place in places])
    axis.set_ylim(bottom=0)
    plain(axis)


def _state(results: dict[str, Any]) -> str:
    versions = "".join(
        f" {peer['name']} {peer['version']}." if peer["version"] else ""
        for peer in results["peers"]
    )
    plan = results["plan"]
    minutes = sum(cell["seconds"] for cell in results["cells"]) / 60
    return (
        f"{machine_line(results['machine'])}{versions} {plan['tokens']} tokens per stream, after "
        f"prompts of 32 tokens; medians of {plan['rounds']} rounds of text and "
        f"{plan['choice_rounds']} of choices. Measured in {minutes:.1f} minutes."
    )


def _name(cell: dict[str, Any]) -> str:
    return f"{cell['model']} with {cell['streams']} stream{'s' * (cell['streams'] > 1)}"


def _head(cell: dict[str, Any]) -> list[str]:
    return [cell["model"], str(cell["streams"])]


def _shown(ways: Mapping[str, Any], name: str, figure: str) -> str:
    return number(ways[name][figure]) if name in ways else "-"


def _times_server(ways: Mapping[str, Any]) -> str:
    return number(ways[OURS]["times_the_server"]) if SERVER in ways else "-"


def _times(ways: Mapping[str, Any], names: tuple[str, ...], figure: str) -> list[str]:
    return [
        f"{number(ways[name][f'{figure}_p50'])} ({number(ways[name][f'{figure}_p99'])})"
        if name in ways
        else "-"
        for name in names
    ]


def _tokens_row(cell: dict[str, Any]) -> list[str]:
    ways = cell["writing"]
    rates = [_shown(ways, name, "tokens_per_second") for name in WRITERS]
    return [
        *(*_head(cell), *rates),
        _shown(ways, OURS, "times_the_loop"),
        _times_server(ways),
        _shown(ways, OURS, "times_one_alone"),
    ]


def _choices_row(cell: dict[str, Any], prompts: str) -> list[str]:
    ways = cell["choosing"][prompts]
    rates = [_shown(ways, name, "choices_per_second") for name in CHOOSERS]
    return [
        *(*_head(cell), prompts, *rates),
        _shown(ways, OURS, "times_one_by_one"),
        _times_server(ways),
    ]


def _beside_row(cell: dict[str, Any]) -> list[str]:
    ways = cell["beside"]
    names = (OURS, SERVER)
    rates = [_shown(ways, name, "tokens_per_second") for name in names]
    return [*_head(cell), *_times(ways, names, "choice_ms"), *rates]


def _passes_row(cell: dict[str, Any]) -> list[str]:
    passes = cell["passes"]
    if "passes_shared" not in passes:
        return [*_head(cell), "-", "-", "-"]
    counts = [number(passes[name]) for name in ("sequences", "wait_us")]
    return [*_head(cell), f"{passes['passes_shared']:.0%}", *counts]


def _notes(cell: dict[str, Any]) -> list[str]:
    """Return notes about a cell that matter for the comparison."""
    notes = [f"{name} failed: {problem[:200]}" for name, problem in cell["problems"].items()]
    for name, figures in cell["writing"].items():
        if figures["streams_that_part"]:
            notes.append(
                f"tokens of {name} differ in {figures['streams_that_part']} of {cell['streams']} "
                f"streams, margin {number(figures['widest_parting'])}"
            )
        if figures["short_streams"]:
            notes.append(f"{name}: streams with too few tokens: {figures['short_streams']}")
    if cell["passes"]["restarts"]:
        notes.append(f"restarts because the model ended early: {cell['passes']['restarts']}")
    return notes
