"""Show the accuracy of answers as tables and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from page_tables import markdown_table, number

from eliza_ffi.decisions.learning.pictures import Picture, plain

from ..parts.machine import machine_line
from ..parts.pages import page_of, versions_of

Cell = dict[str, Any]

ABOUT = (
    "Accuracy on the first test rows, by data set. *Labels*: how many labelled rows the method "
    "uses, on most data sets. With 200 rows, a difference of fewer than 10 points can be chance"
)
ABOUT_SLOW = ". typed-gguf answers only the first 50 rows"
COSTS = (
    "Means over the data sets, of the methods that answered all of them. *ECE*: 15 bins with "
    "equally many answers; in parentheses, the ECE that a perfectly calibrated model would have on "
    "as many rows. *Flips*: the share of choices whose answer changes with a reversed list of "
    "options. *CPU*: processor time per row, and relative to our default in the same run"
)


def markdown(results: dict[str, Any]) -> str:
    """Return two tables for each model: accuracy by data set, and means over the data sets."""
    parts = [f"{machine_line(results['machine'])} {versions_of(results['peers'])}."]
    for model, cells in _groups(results["cells"], "model").items():
        has_slow = any(cell["method"] == "typed-gguf" for cell in cells)
        about = ABOUT + (ABOUT_SLOW if has_slow else "")
        parts += [f"**{model}**", about, _accuracies(cells), COSTS, _means(cells)]
    failed = {
        f"- {cell['method']}: {cell['problem'][:200]}"
        for cell in results["cells"]
        if "problem" in cell
    }
    return page_of(*parts, *(["Not measured:", "\n".join(sorted(failed))] if failed else []))


def details(results: dict[str, Any]) -> str:
    """Return one table with the figures of every cell."""
    head = ["model", "data", "seed", "method", "labels", "rows", "accuracy", "95 % interval"]
    head += ["largest share", "NLL", "ECE", "calibrated ECE", "flips", "rows/s", "CPU ms"]
    rows = [
        [
            *(cell["model"], cell["data"], str(cell.get("seed", 0)), cell["method"]),
            str(cell["n_labels"]),
            *(str(cell["rows"]), _share(cell["accuracy"])),
            "-".join(map(_share, cell["interval"])),
            *(_share(cell["largest_share"]), number(cell["nll"])),
            *(_share(cell["ece"]), _share(cell["calibrated_ece"]), _share(cell["flips"])),
            *(_number(cell["rows_per_second"]), _number(cell["cpu_ms"])),
        ]
        for cell in _measured(results["cells"])
    ]
    return markdown_table(head, rows, left=4) + "\n"


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw accuracy over the number of labels: one panel for each model and data set."""
    cells = _measured(results["cells"])
    models, data_sets = _groups(cells, "model"), [*_groups(cells, "data")]
    families = dict.fromkeys(_family(cell) for cell in cells)
    styles = {family: (f"C{i % 10}", "osD"[i // 10]) for i, family in enumerate(families)}
    size = (2.6 * len(data_sets), 2.9 * len(models) + 0.8)
    picture = Picture(len(models), len(data_sets), size, sharey=True)
    for axes, (model, of_model) in zip(picture.axes, models.items(), strict=True):
        axes[0].set_ylabel(f"{model}: accuracy")
        for axis, data in zip(axes, data_sets, strict=True):
            shown = [cell for cell in of_model if cell["data"] == data]
            labels = sorted({cell["n_labels"] for cell in shown})
            for family, (colour, marker) in styles.items():
                own = [cell for cell in shown if _family(cell) == family]
                points = sorted(
                    (labels.index(n), fmean(cell["accuracy"] for cell in cells))
                    for n, cells in _groups(own, "n_labels").items()
                )
                if points:
                    style = {"color": colour, "marker": marker, "ms": 4}
                    axis.plot(*zip(*points, strict=True), label=family, **style)
            axis.set(title=data, xlabel="labelled rows")
            axis.set_xticks(range(len(labels)), list(map(str, labels)))
            plain(axis)
    picture.save(file)


def _accuracies(cells: Sequence[Cell]) -> str:
    data_sets = [*_groups(cells, "data")]
    rows = []
    for name, of_method in _groups(_measured(cells), "method").items():
        by_data = {
            data: _share(fmean(cell["accuracy"] for cell in cells))
            for data, cells in _groups(of_method, "data").items()
        }
        labels = max(of_method, key=lambda cell: int(cell["n_labels"]))["n_labels"]
        rows.append([name, str(labels), *(by_data.get(data, "-") for data in data_sets)])
    return markdown_table(["method", "labels", *data_sets], rows)


def _means(cells: Sequence[Cell]) -> str:
    head = ["method", "accuracy", "NLL", "ECE", "flips", "rows/s", "CPU ms", "CPU relative"]
    rows = []
    n_sets = len(_groups(cells, "data"))
    for name, of_method in _groups(_measured(cells), "method").items():
        if len(_groups(of_method, "data")) < n_sets:
            continue
        mean = _mean_of(of_method)
        rows.append(
            [
                *(name, mean("accuracy", _share), mean("nll", number)),
                f"{mean('ece', _share)} ({mean('calibrated_ece', _share)})",
                *(mean("flips", _share), mean("rows_per_second", number)),
                *(mean("cpu_ms", number), mean("times_default", number)),
            ]
        )
    return markdown_table(head, rows)


def _mean_of(cells: Sequence[Cell]) -> Callable[[str, Callable[[float], str]], str]:
    def mean(figure: str, show: Callable[[float], str]) -> str:
        values = [cell[figure] for cell in cells if cell[figure] is not None]
        return show(fmean(values)) if values else "-"

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


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
