"""Render the results of many streams as Markdown tables and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.learning.pictures import Picture

from ..methods import ALONE, LOOP, LOOP_EQUAL, OURS, SERVER, SERVER_EQUAL, colours
from ..model.streams import PROMPT_TOKENS
from ..parts.charts import Points, draw_lines
from ..parts.machine import disturbance, machine_line
from ..parts.pages import by_method, notes_of, page_of, spread
from .cells import PROMPTS

SERVED = (OURS, SERVER, SERVER_EQUAL)
WRITERS = (OURS, LOOP, LOOP_EQUAL, SERVER, SERVER_EQUAL)
CHOOSERS = (OURS, ALONE, SERVER, SERVER_EQUAL)

Rows = list[tuple[list[str], Mapping[str, Any]]]
"""The rows of a table: the first columns, and the figures of each method."""


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: tokens first, then choices, then notes about the comparison."""
    cells = results["cells"]
    text: Rows = [(_head(cell), cell["writing"]) for cell in cells]
    choices: Rows = [
        ([*_head(cell), kind], ways)
        for cell in cells
        for kind, ways in cell.get("choosing", {}).items()
    ]
    beside: Rows = [(_head(cell), cell["beside"]) for cell in cells if cell.get("beside")]
    named = [(_name(cell), cell) for cell in cells]
    shared = [cell for cell in cells if "passes_shared" in cell["passes"]]
    noted = [f"- {name}: {note}" for name, cell in named for note in _notes(cell)]
    return page_of(
        _state(results) + disturbance(named),
        _table(
            "Tokens per second of all streams together, once every stream has its first token: "
            "median (quartiles) over the rounds",
            *(text, WRITERS, _quartiles, "tokens_per_second"),
        ),
        _table(
            "eliza-ffi's tokens per second divided by the tokens per second of another method in "
            "the same round: median (quartiles). *One stream* is a single eliza-ffi stream",
            *(text, (*WRITERS[1:], ALONE), _quartiles, "times_theirs"),
            before="/ ",
        ),
        _table(
            "The same with the time of the prompts, first requests included: eliza-ffi's median "
            "divided by the median of another method",
            *(list(map(_with_prompts, text)), WRITERS[1:], _shown, "times_theirs"),
            before="/ ",
        ),
        _table(
            "Milliseconds between consecutive tokens of a stream: median (p99)",
            *(text, WRITERS, _times, "token_ms"),
        ),
        _table(
            "The same times divided by the times of the batch loop with its defaults: median (p99)",
            *(text, [name for name in WRITERS if name != LOOP], _times, "times_the_loop"),
        ),
        _table(
            "The first requests of a context: tokens per second, prompts included, in the first "
            "round divided by the median of the later rounds. The batch loop has a new context in "
            "each round",
            *(text, SERVED, _shown, "first_round"),
        ),
        _table(
            "Choices among five labels per second, with one thread per stream: median (quartiles) "
            "over the rounds. *One stream* makes the same choices with a single thread. *Own "
            "prompts*: 64 new tokens. *Shared prefix*: 64 new tokens after a prefix of 150 tokens "
            "that all prompts share",
            *(choices, CHOOSERS, _quartiles, "choices_per_second"),
        ),
        _table(
            "eliza-ffi's choices per second divided by the choices per second of another method in "
            "the same round: median (quartiles)",
            *(choices, CHOOSERS[1:], _quartiles, "times_theirs"),
            before="/ ",
        ),
        _table(
            "Milliseconds of a choice, including its prompt: median (p99)",
            *(choices, CHOOSERS, _times, "choice_ms"),
        ),
        _table(
            "One thread makes choices while all other streams generate text: milliseconds of a "
            "choice, median (p99)",
            *(beside, SERVED, _times, "choice_ms"),
        ),
        _table(
            "Tokens per second of the other streams together during these choices",
            *(beside, SERVED, _shown, "tokens_per_second"),
        ),
        "eliza-ffi's passes while all streams generate text: the share of passes that served "
        "several streams, sequences per pass, and microseconds that a stream waited for a pass"
        if shared
        else "",
        markdown_table(
            ["model", "streams", "shared", "sequences", "waiting, µs"], map(_passes_row, cells)
        )
        if shared
        else "",
        notes_of(results, named, "Failed:"),
        "Notes. Where tokens differ from the tokens of the batch loop with our settings, the "
        "margin is the largest difference between the loop's two best logits at the first "
        "different token"
        if noted
        else "",
        "\n".join(noted),
    )


def _choices_with_own_prompts(cell: Mapping[str, Any]) -> Any:
    return cell.get("choosing", {}).get(PROMPTS[0])


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw tokens and choices per second over the number of streams, one column per model."""
    models = list(dict.fromkeys(cell["model"] for cell in results["cells"]))
    rows: list[tuple[str, str, Callable[[Any], Mapping[str, Any]]]] = [
        ("tokens per second, together", "tokens_per_second", lambda cell: cell["writing"])
    ]
    if any(cell.get("choosing") for cell in results["cells"]):
        label = "choices per second, together"
        rows.append((label, "choices_per_second", _choices_with_own_prompts))
    picture = Picture(len(rows), len(models), (3.2 * len(models), 3.2 * len(rows)), sharey="row")
    for axes, (label, figure, ways_of) in zip(picture.axes, rows, strict=True):
        for axis, model in zip(axes, models, strict=True):
            cells = [cell for cell in results["cells"] if cell["model"] == model and ways_of(cell)]
            points = [(cell["streams"], ways_of(cell)) for cell in cells]
            axis.set_visible(bool(cells))
            _draw(axis, points, figure, title=model, xlabel="streams")
        axes[0].set_ylabel(label)
    picture.save(file)


def _draw(axis: Any, points: Points, figure: str, **settings: Any) -> None:
    drawn = colours(["streams"])
    draw_lines(axis, points, drawn, lambda way: float(way[figure][1]), yscale="linear", **settings)
    axis.set_ylim(bottom=0)


def _state(results: dict[str, Any]) -> str:
    versions = "".join(
        f" {peer['name']} {peer['version']}." if peer["version"] else ""
        for peer in results["peers"]
    )
    plan = results["plan"]
    minutes = sum(cell["seconds"] for cell in results["cells"]) / 60
    return (
        f"{machine_line(results['machine'])}{versions} {plan['tokens']} tokens per stream, after "
        f"prompts of {PROMPT_TOKENS} tokens if not stated otherwise; medians of {plan['rounds']} "
        f"rounds of text and {plan['choice_rounds']} of choices. Measured in {minutes:.1f} minutes."
        f"{' One other busy process ran all the time.' * results['busy']}"
    )


def _name(cell: dict[str, Any]) -> str:
    return f"{cell['model']} with {cell['streams']} stream{'s' * (cell['streams'] > 1)}"


def _head(cell: dict[str, Any]) -> list[str]:
    return [cell["model"], str(cell["streams"])]


def _table(
    title: str,
    rows: Rows,
    names: Sequence[str],
    shown: Callable[[str, Any], str],
    figure: str,
    before: str = "",
) -> str:
    """Return a title and a table of one figure, with a column for each measured method.

    Without rows, return an empty text.

    Parameters
    ----------
    names
        The methods.
    shown
        Formats the figure, which it takes by name, of a method.
    before
        Precedes the names in the table's head.
    """
    if not rows:
        return ""
    measured = [name for name in names if any(name in ways for _, ways in rows)]
    left = ["model", "streams", "prompts"][: len(rows[0][0])]
    heads = [before + ("one stream" if name == ALONE else name) for name in measured]
    show = partial(shown, figure)
    table = markdown_table(
        [*left, *heads], ([*head, *by_method(ways, measured, show)] for head, ways in rows)
    )
    return f"{title}\n\n{table}"


def _with_prompts(
    row: tuple[list[str], Mapping[str, Any]],
) -> tuple[list[str], Mapping[str, Any]]:
    head, ways = row
    rates = {name: figures["with_prompts"] for name, figures in ways.items()}
    return head, {name: {"times_theirs": rates[OURS] / rate} for name, rate in rates.items()}


def _shown(figure: str, way: Mapping[str, Any]) -> str:
    return "-" if way.get(figure) is None else number(way[figure])


def _quartiles(figure: str, way: Mapping[str, Any]) -> str:
    return spread(way[figure])


def _times(figure: str, way: Mapping[str, Any]) -> str:
    return f"{number(way[f'{figure}_p50'])} ({number(way[f'{figure}_p99'])})"


def _passes_row(cell: dict[str, Any]) -> list[str]:
    passes = cell["passes"]
    if "passes_shared" not in passes:
        return [*_head(cell), "-", "-", "-"]
    counts = [number(passes[name]) for name in ("sequences", "wait_us")]
    return [*_head(cell), f"{passes['passes_shared']:.0%}", *counts]


def _notes(cell: dict[str, Any]) -> list[str]:
    """Return notes about a cell that matter for the comparison."""
    notes = []
    for name, partings in cell["partings"].items():
        if partings["streams"]:
            notes.append(
                f"tokens of {name} differ in {partings['streams']} of {cell['streams']} streams, "
                f"margin {number(partings['widest'])}"
            )
    for name, figures in cell["writing"].items():
        if figures["short_streams"]:
            notes.append(f"{name}: streams with too few tokens: {figures['short_streams']}")
    if cell["passes"]["restarts"]:
        notes.append(f"restarts because the model ended early: {cell['passes']['restarts']}")
    return notes
