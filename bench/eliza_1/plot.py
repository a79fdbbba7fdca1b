"""Draw the summaries as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eliza_ffi.decisions.learning.pictures import Picture, plain

from .report import AnswerRates

RATES = {"parse_rate": "parses", "schema_rate": "valid", "label_rate": "correct"}


def draw(summaries: Sequence[AnswerRates], path: Path) -> None:
    """Write a PNG with the rates above and the times below, one column per task."""
    tasks = list(dict.fromkeys(each.task for each in summaries))
    modes = list(dict.fromkeys(each.mode for each in summaries))
    picture = Picture(2, len(tasks), size=(3.6 * len(tasks) + 1.6, 6.4))
    width = 0.8 / len(modes)
    for column, task in enumerate(tasks):
        rates, times = picture.axes[:, column]
        rates.set_title(task)
        for i, mode in enumerate(modes):
            of_mode = [each for each in summaries if (each.task, each.mode) == (task, mode)]
            places = [j + (i - (len(modes) - 1) / 2) * width for j in range(len(RATES))]
            for each in of_mode:
                heights = [getattr(each, name) for name in RATES]
                rates.bar(places, heights, width, label=mode, color=f"C{i}")
                times.bar([i], [each.ms_p50], color=f"C{i}")
                times.plot([i, i], [each.ms_p50, each.ms_p95], color="black", linewidth=1)
        rates.set_xticks(range(len(RATES)), list(RATES.values()))
        rates.set_ylim(0, 1.05)
        times.set_xticks(range(len(modes)), modes, rotation=20, ha="right", fontsize="small")
        times.set_ylabel("ms per answer: median, line to p95")
        plain(rates, "y")
        plain(times, "y")
    picture.axes[0][0].set_ylabel("share of answers")
    picture.save(path)
