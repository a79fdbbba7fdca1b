"""Draw the pictures of docs/explanation/measurements.md from stored results, and write its tables.

    $ python -m bench.pictures

Draws ``performance.svg`` and ``time-of-a-choice.svg`` in ``bench/results``. Writes the sentences
below the first picture, the tables of choices and rankings, and README's table. It measures
nothing: run the other benchmarks first.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from page_tables import markdown_table, number

from . import peers, ranking, sizes, streams
from .answers.methods import TO_DECIDE
from .choosing.cells import AUTO, GRAMMAR_LAST, LLGUIDANCE, XGRAMMAR
from .parts.charts import GREY, OTHER, OURS, SERVER, Panel, Scale, picture
from .parts.pages import RESULTS, Results, fill_sections, stored
from .parts.workload import SMOLLM2

ROOT = RESULTS.parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "explanation" / "measurements.md")
TABLES = {
    "peers": peers.markdown,
    "ranking": ranking.markdown,
}
"""The functions that return the tables of stored results."""

SIZES, STREAMS, SERVERS, CHAT = "sizes", "streams", "serving-beside", "serving-chat-beside"
"""Stored results without tables, and those whose tables ``bench.serving`` writes."""

FEW_LABELS = "few-labels"
"""The stored results of README's table."""

COLUMNS = ("no examples", "300 unlabelled texts", "60 labelled examples")
"""README's table: what the methods learn from."""

TIMES = {0.01: "0.01 ms", 0.1: "0.1 ms", 1.0: "1 ms", 10.0: "10 ms", 100.0: "100 ms"}
TIMES |= {1e3: "1 s", 1e4: "10 s", 1e5: "100 s"}
FACTORS = {1.0: "1", 10.0: "10", 100.0: "100", 1000.0: "1,000"}
STREAMED = "F16 32k"
"""The model with many streams: 155 million random weights."""


def by_size(results: Results) -> tuple[Panel, str]:
    """Return the time of a choice, by model."""
    cells = {cell["model"]: cell["ways"] for cell in results["sizes"]["cells"]}
    names = {float(i): "\n".join(name.rsplit(" ", 1)) for i, name in enumerate(cells)}
    panel = Panel(
        "A choice, by the size of the model",
        Scale("model and parameters", names, -0.5, 3.5),
        Scale("processor time", dict([*TIMES.items()][1:6]), 0.1, 1e3, is_log=True),
    )
    for name, colour, words, dashes, place, anchor, dy in (
        (sizes.SERVER, SERVER, "llama-server", "none", 1, "end", -8),
        (sizes.NEW, OURS, "eliza-ffi", "none", 2, "middle", 24),
        (sizes.CACHED, OURS, "eliza-ffi, cached prompt", "5 4", 2, "middle", 26),
    ):
        points = [(i, ways[name]["ms"]) for i, ways in enumerate(cells.values())]
        panel.line(points, colour, dashes)
        panel.label(points[place], words, colour, anchor, dy)
    ours = cells[SMOLLM2.name]
    return panel, (
        f"With SmolLM2 and a new prompt of {sizes.PROMPT_TOKENS} tokens, a choice takes "
        f"{duration(ours[sizes.NEW]['ms'])} of processor time, mostly to read the prompt. With a "
        f"cached prompt, it takes {duration(ours[sizes.CACHED]['ms'])}."
    )


def by_streams(results: Results) -> tuple[Panel, str]:
    """Return choices per second over the number of streams, with quartiles."""
    cells = [cell for cell in results["streams"]["cells"] if cell["model"] == STREAMED]
    names = {streams.OURS: OURS, streams.SERVER: SERVER}
    rates = {
        name: [(cell["streams"], cell["choosing"][name]["choices_per_second"]) for cell in cells]
        for name in names
    }
    most = max(high for points in rates.values() for _, (_, _, high) in points)
    step = next(each for each in (1, 2, 5, 10, 20, 50, 100) if most / each < 6)
    ticks = range(0, round(most) + 2 * step, step)
    panel = Panel(
        "Many choices at once",
        Scale("streams", {n: str(n) for n in streams.STREAMS}, 0.9, 18, is_log=True),
        Scale("choices per second", {n: str(n) for n in ticks}, 0, ticks[-1]),
    )
    for name, colour in names.items():
        points = rates[name]
        for n, (low, _, high) in points:
            panel.bar((n, low), (n, high), colour, 10, 0.4)
        panel.line([(n, middle) for n, (_, middle, _) in points], colour)
        panel.label((points[2][0], points[2][1][2]), name, colour, "middle", -12)
    panel.label((1, 0), "bars: the middle half of the rounds", dy=-10)
    ranges = {name: between([middle for _, (_, middle, _) in rates[name]]) for name in names}
    return panel, (
        "On two cores, a model with 155 million random weights makes "
        f"{ranges[streams.OURS]} choices per second ({ranges[streams.SERVER]} in llama-server). "
        "More streams add little, because the prompts of one stream keep both cores busy."
    )


def by_labels(results: Results) -> tuple[Panel, str]:
    """Return the time of a choice over the number of labels."""
    cells = [
        cell
        for cell in results["ranking"]["cells"]
        if (cell["model"], cell["kind"]) == (SMOLLM2.name, "names")
    ]
    labels = {100.0: "100", 1e3: "1,000", 1e4: "10,000", 1e5: "100,000"}
    panel = Panel(
        "The best of many labels (SmolLM2)",
        Scale("labels", labels, 80, 1.7e5, is_log=True),
        Scale("processor time after the prompt", dict([*TIMES.items()][3:]), 10, 1e5, is_log=True),
    )
    times = {
        name: [(float(cell["n"]), float(cell["ways"][name]["ms"])) for cell in cells]
        for name in (ranking.ALL, ranking.RANK)
    }
    panel.line(times[ranking.ALL], GREY)
    panel.label(times[ranking.ALL][-2], "score every label", "#777777", "end", -10)
    panel.line(times[ranking.RANK], OURS)
    panel.label(times[ranking.RANK][-2], "rank: the five best", OURS, "middle", 26)
    ours, all_scores = (duration(times[name][-1][1]) for name in (ranking.RANK, ranking.ALL))
    return panel, (
        f"`rank` finds the five most probable of 100,000 labels in {ours}; scoring every label "
        f"takes {all_scores}."
    )


def compared(results: Results) -> tuple[Panel, str]:
    """Return the times of other programs, relative to eliza-ffi's."""

    def ratios_to(name: str) -> list[float]:
        return [
            cell["methods"][name]["choice_ms"] / cell["methods"][AUTO]["choice_ms"]
            for cell in results["peers"]["cells"]
            if name in cell["methods"]
        ]

    def of_server(part: str) -> list[float]:
        cells = results["streams"]["cells"]
        return [cell[part][streams.SERVER]["times_theirs"][1] for cell in cells]

    chats, decisions = results[CHAT]["cells"], results[SERVERS]["cells"]
    one_thread = [
        cell["ways"][sizes.SERVER]["ms"] / cell["ways"][sizes.NEW]["ms"]
        for cell in results["sizes"]["cells"]
    ]
    rows = {
        "llama-server, new prompt": ([*of_server("choosing"), *one_thread], SERVER),
        "llama-server, text": (of_server("writing"), SERVER),
        "llama-server, chat": ([c["times_theirs"]["llama-server"][1] for c in chats], SERVER),
        "llama-server, decisions": ([cell["times_theirs"][1] for cell in decisions], SERVER),
        "llguidance, cached prompt": (ratios_to(LLGUIDANCE), OTHER),
        "xgrammar, cached prompt": (ratios_to(XGRAMMAR), OTHER),
        "grammar, cached prompt": (ratios_to(GRAMMAR_LAST), OTHER),
    }
    n = len(rows)
    panel = Panel(
        "Other programs and libraries",
        Scale("times as long as eliza-ffi", FACTORS, 0.6, 2000, is_log=True),
        Scale(
            "each dot is one measurement", {n - i: name for i, name in enumerate(rows)}, 0.4, n + 1
        ),
        left=200,
    )
    panel.bar((1, 0.4), (1, n + 0.5), OURS, 2, 1.0)
    panel.label((1, n + 1), "eliza-ffi", OURS, "middle")
    for i, (values, colour) in enumerate(rows.values()):
        panel.dots([(value, n - i) for value in values], colour)
    new, text, chat, decided, *others = (values for values, _ in rows.values())
    return panel, (
        f"llama-server takes {between(new)} times as long as our library for a choice with a new "
        f"prompt, and {between(text)} times for text. Compared with our server, it takes "
        f"{between(chat)} times as long for chat, and {between(decided)} times for decisions. With "
        "a cached prompt, a choice with llguidance, xgrammar or llama.cpp's grammar sampling takes "
        f"{between([each for values in others for each in values])} times as long."
    )


def between(values: Sequence[float]) -> str:
    low, high = (
        f"{each:,.0f}" if each >= 10 else f"{each:.1f}" for each in (min(values), max(values))
    )
    return f"{low} to {high}"


def duration(milliseconds: float) -> str:
    """Return a time with two digits and its unit."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2g} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1g} ms"


PANELS = (by_size, by_streams, by_labels, compared)


def to_decide(results: Results) -> str:
    """Return README's table of means over the data sets, with the version measured."""

    def mean(method: str, figure: str) -> float:
        found: dict[str, list[float]] = defaultdict(list)
        for cell in results["cells"]:
            if cell["method"] == method and cell[figure] is not None:
                found[cell["data"]].append(cell[figure])
        return fmean(map(fmean, found.values()))

    rows = []
    for name, methods in TO_DECIDE.items():
        shares = [
            "" if each is None else f"{mean(each, 'accuracy'):.0%}, {mean(each, 'automated'):.0%}"
            for each in methods
        ]
        cpu = fmean(mean(each, "cpu_ms") for each in methods if each is not None)
        rows.append([name, *shares, f"{number(cpu)} ms"])
    columns = [f"{each}: right, automated" for each in COLUMNS]
    machine = results["machine"]
    return (
        f"{markdown_table(['method', *columns, 'processor time per text'], rows)}\n\n"
        f"Processor: {machine['cpu']}, {machine['cores']} cores. Measured with eliza-ffi "
        f"{machine['eliza_ffi']} (llama.cpp {machine['llama_cpp']})."
    )


def versions(results: Results) -> str:
    """Return the machines, the versions and the dates of the measurements."""
    found: dict[str, dict[str, set[str]]] = {}
    for each in results.values():
        machine = each["machine"]
        versions = f"eliza-ffi {machine['eliza_ffi']} (llama.cpp {machine['llama_cpp']})"
        measured = found.setdefault(f"{machine['cpu']}, {machine['cores']} cores", {})
        measured.setdefault(versions, set()).add(machine["date"])
    return " ".join(
        f"We measured {' and '.join(map(_with_days, measured.items()))} on this machine: {name}."
        for name, measured in found.items()
    )


def _with_days(measured: tuple[str, set[str]]) -> str:
    versions, days = measured
    return f"{versions} ({min(days)}{f' to {max(days)}' if len(days) > 1 else ''})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the pictures, and write the tables.")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    folder = parser.parse_args(arguments).results
    timed = {
        name: stored(folder / f"{name}.json") for name in (*TABLES, SIZES, STREAMS, SERVERS, CHAT)
    }
    panels, sentences = zip(*(draw(timed) for draw in PANELS), strict=True)
    title = "Charts: " + "; ".join(panel.title for panel in panels)
    write = {"performance": panels, "time-of-a-choice": panels[:1]}
    for name, drawn in write.items():
        (folder / f"{name}.svg").write_text(picture(drawn, title), encoding="utf-8")
    shown = [f"- **{panel.title}.** {said}" for panel, said in zip(panels, sentences, strict=True)]
    sections = {name: show(timed[name]) for name, show in TABLES.items()}
    sections["pictures"] = "\n".join([*shown, "", versions(timed)])
    sections["decide"] = to_decide(stored(folder / f"{FEW_LABELS}.json"))
    for page in PAGES if folder == RESULTS else ():
        fill_sections(page, sections)
    print(sections["pictures"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
