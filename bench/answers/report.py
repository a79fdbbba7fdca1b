"""Show the accuracy of answers as tables and as a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from page_tables import markdown_table, number

from ..parts.charts import GREY, OTHER, OURS, PINK, PURPLE, SERVER, Panel, Scale, picture
from ..parts.machine import machine_line
from ..parts.pages import page_of, versions_of
from .methods import DEFAULT

Cell = dict[str, Any]

ONLY_IN_PICTURES = re.compile(
    r"(chat|plain), |letters$|2 ex|.*(, 300 labels| 100 inputs| 1000 inputs)$"
)
"""The methods that tables leave out: worse prompts, and numbers between and above the others."""


def markdown(results: dict[str, Any]) -> str:
    """Return a table for each model: accuracy by data set, and means over the data sets.

    Methods that lack a data set are left out.
    """
    parts = [f"Last run: {machine_line(results['machine'])} {versions_of(results['peers'])}."]
    shown = [cell for cell in results["cells"] if not ONLY_IN_PICTURES.match(cell["method"])]
    for model, cells in _groups(shown, "model").items():
        parts += [f"**{model}**", _table(_measured(cells))]
    return page_of(*parts)


def plot_methods(results: dict[str, Any], file: Path) -> None:
    """Draw the accuracy of each method: a dot for each data set, and a larger one for the mean."""
    models = _groups(_measured(results["cells"]), "model")
    accuracy = Scale("", {i / 5: f"{i / 5:.1f}" for i in range(6)}, 0.0, 1.0)
    most = max(len(_groups(cells, "method")) for cells in models.values())
    panels = []
    for model, cells in models.items():
        methods = _groups(cells, "method")
        names = {float(most - i): _shown(name) for i, name in enumerate(methods)}
        panel = Panel(
            *(f"Accuracy of {model}", accuracy, Scale("", names, 0.0, most + 1.0)),
            left=230,
            height=24.0 * most + 125,
        )
        for place, name in zip(names, methods, strict=True):
            found = [float(cell["accuracy"]) for cell in methods[name]]
            panel.dots([(each, place) for each in found], GREY, radius=3)
            panel.dots([(fmean(found), place)], OURS if name == DEFAULT else SERVER)
        panels.append(panel)
    file.write_text(picture(panels, "Accuracy of each method on each data set"), encoding="utf-8")


LINES = {
    "calibrate": (OURS, "calibrate"),
    "calibrate with an encoder": (PURPLE, "with an encoder"),
    "calibrate an encoder": (PINK, "an encoder"),
    "MiniLM": (SERVER, "MiniLM"),
    "TF-IDF": (OTHER, "TF-IDF"),
    "brier's head": (GREY, "brier's head"),
}
"""The colour and the name of each family of methods in the picture."""


def plot_labels(results: dict[str, Any], file: Path) -> None:
    """Draw the accuracy over the number of examples: one panel for each model and data set."""
    cells = [cell for cell in _measured(results["cells"]) if cell["n_labels"]]
    sizes = sorted({cell["n_labels"] for cell in cells})
    ticks = {float(n): str(n) for n in sizes}
    examples = Scale("examples", ticks, sizes[0] * 0.9, 700, is_log=True)
    accuracy = Scale("accuracy", {i / 5: f"{i / 5:.1f}" for i in range(1, 6)}, 0.2, 1.0)
    panels = []
    for data, of_data in _groups(cells, "data").items():
        for model, of_model in _groups(of_data, "model").items():
            panel = Panel(f"{data}, {model}", examples, accuracy, height=260)
            ends = {}
            for family, (colour, _) in LINES.items():
                by_size = _groups([c for c in of_model if _family(c) == family], "n_labels")
                points = sorted((n, _mean_accuracy(cells)) for n, cells in by_size.items())
                if points:
                    panel.line(points, colour)
                    ends[family] = points[-1]
            lowest = 0.0
            for family in sorted(ends, key=lambda name: -ends[name][1]):
                y = panel.at(ends[family])[1]
                lowest = max(y, lowest + 16)  # names must not overlap
                colour, name = LINES[family]
                panel.label(ends[family], name, colour, dy=lowest - y + 5)
            panels.append(panel)
    file.write_text(picture(panels, "Accuracy over the number of examples"), encoding="utf-8")


def _share(value: float) -> str:
    return f"{value:.2f}"


FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "mean": ("accuracy", _share),
    "automated": ("automated", _share),
    "ECE": ("ece", _share),
    "CPU ms": ("cpu_ms", number),
}
"""The heads of the columns with means, and the figures; older results lack some."""


def _mean_accuracy(cells: Sequence[Cell]) -> float:
    return fmean(float(cell["accuracy"]) for cell in cells)


def _table(cells: Sequence[Cell]) -> str:
    data_sets = [*_groups(cells, "data")]
    figures = [
        head for head, (figure, _) in FIGURES.items() if any(figure in cell for cell in cells)
    ]
    rows = []
    for name, of_method in _groups(cells, "method").items():
        by_data = _groups(of_method, "data")
        if len(by_data) < len(data_sets):
            continue
        shares = [_share(_mean_accuracy(by_data[name])) for name in data_sets]
        mean = _mean_of(of_method)
        rows.append([_shown(name), *shares, *(mean(*FIGURES[head]) for head in figures)])
    return markdown_table(["method", *data_sets, *figures], rows)


def _mean_of(cells: Sequence[Cell]) -> Callable[[str, Callable[[float], str]], str]:
    def mean(figure: str, show: Callable[[float], str]) -> str:
        measured = [cell for cell in cells if cell.get(figure) is not None]
        known = _groups(measured, "data").values()
        return show(fmean(fmean(cell[figure] for cell in each) for each in known)) if known else "-"

    return mean


def _measured(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if "problem" not in cell]


def _groups(cells: Sequence[Cell], key: str) -> dict[Any, list[Cell]]:
    found: dict[Any, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell[key], []).append(cell)
    return found


def _family(cell: Cell) -> str:
    return str(cell["method"]).partition(",")[0]


def _shown(method: str) -> str:
    """Return the name of a method for readers: labelled examples are not labels."""
    return method.replace(" labels", " examples").replace("plain prompt", "hand-written prompt")
