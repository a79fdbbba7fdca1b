"""Results as Markdown tables and as a plot."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["markdown", "plot", "put_between_markers"]

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

OURS = "eliza-ffi auto"
PEERS = (
    "llama.cpp grammar last",
    "llama.cpp grammar first",
    "llguidance",
    "xgrammar",
    "llama-cpp-python",
)


def markdown(results: dict[str, Any]) -> str:
    """Return the tables: ratios first, then what was measured."""
    machine = results["machine"]
    versions = [
        f"{peer['name']} {peer['version']}" if peer["version"] else f"{peer['name']} not installed"
        for peer in results["peers"]
    ]
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, at most {machine['threads']} compute "
        f"threads; {machine['system']}, Python {machine['python']}, numpy {machine['numpy']}; "
        f"eliza-ffi {machine['eliza_ffi']} over llama.cpp {machine['llama_cpp']}; "
        f"{', '.join(versions)}; {machine['date']}, {results['seconds']:.0f} s in all."
        f"{_disturbance(results['cells'])}",
        "How many times faster a token of a choice is with eliza-ffi (`auto`) than with",
        _table(["model", "vocabulary", "choices", *PEERS], map(_ratio_row, results["cells"])),
        "Time to choose one of the answers, in milliseconds, median, the prompt being in the slot",
        _table(
            ["model", "choices", "eliza-ffi auto", *PEERS],
            ([*_head(cell), *_each(cell, (OURS, *PEERS), _choice_ms)] for cell in results["cells"]),
        ),
        "eliza-ffi by strategy: milliseconds a choice (forward passes beyond the prompt's)",
        _table(
            ["model", "choices", "one pass", *("auto", "tree", "skip-ahead", "token-by-token")],
            map(_strategy_row, results["cells"]),
        ),
        "Choosing one token, without the forward pass, in microseconds: ours over the trie's "
        "tokens; llama.cpp's grammar with sampling; the other masks alone, and with apply, argmax "
        "and accept",
        _table(
            [
                "model",
                "choices",
                "eliza-ffi",
                "grammar last",
                "grammar first",
                *("llguidance mask", "llguidance all", "xgrammar mask", "xgrammar all"),
            ],
            map(_select_row, results["cells"]),
        ),
        "Getting ready for a new set of answers, in milliseconds (ours in parentheses: for one "
        "seen before)",
        _table(
            ["model", "choices", "eliza-ffi", "llama.cpp grammar", "llguidance", "xgrammar"],
            map(_setup_row, results["cells"]),
        ),
        "Same answer as llama.cpp's grammar (share of prompts), and the tokens it took",
        _table(
            ["model", "choices", "eliza-ffi", "our tokens", "grammar tokens"],
            map(_agreement_row, results["cells"]),
        ),
    ]
    missing = [peer for peer in results["peers"] if not peer["version"]]
    if missing:
        parts.append("Not measured, because not installed:")
        parts.append("\n".join(f"- {peer['name']}: {peer['problem']}" for peer in missing))
    unlike = [
        f"{cell['model']} with {cell['choices']} choices"
        for cell in results["cells"]
        if not cell.get("strategies_agree", True)
    ]
    if unlike:
        parts.append(f"Our strategies did not all choose the same tokens: {', '.join(unlike)}.")
    problems = [
        f"- {cell['model']}, {cell['choices']} choices, {name}: {problem[:200]}"
        for cell in results["cells"]
        for name, problem in cell["problems"].items()
    ]
    if problems:
        parts += ["Failed:", "\n".join(problems)]
    return "\n\n".join(parts) + "\n"


def _disturbance(cells: Sequence[dict[str, Any]]) -> str:
    """Say so where other programs took a tenth of a core or more, which makes figures worse."""
    busy = [cell for cell in cells if cell.get("other_programs", 0.0) >= 0.1]
    named = [
        f"{cell['model']} with {cell['choices']} choices ({cell['other_programs']:.1f} cores)"
        for cell in busy
    ]
    return f" Disturbed by other programs: {', '.join(named)}." if named else ""


def put_between_markers(file: Path, table: str) -> None:
    """Replace what stands between the two marker comments of a Markdown file.

    Raises
    ------
    ValueError
        If they are not there.
    """
    text = file.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file} has no {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", encoding="utf-8")


def plot(results: dict[str, Any], file: Path) -> None:
    """Draw the time of a choice over the number of choices, one panel for each model."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    models = list(dict.fromkeys(cell["model"] for cell in results["cells"]))
    figure, axes = pyplot.subplots(1, len(models), figsize=(4 * len(models), 4), sharey=True)
    panels = [axes] if len(models) == 1 else list(axes)
    for axis, model in zip(panels, models, strict=True):
        cells = [cell for cell in results["cells"] if cell["model"] == model]
        for name in (OURS, *PEERS):
            points = [
                (cell["choices"], cell["methods"][name]["choice_ms"])
                for cell in cells
                if name in cell["methods"]
            ]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(title=f"{model} vocabulary", xlabel="choices", xscale="log", yscale="log")
        axis.grid(True, which="both", alpha=0.2)
    panels[0].set_ylabel("milliseconds a choice")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize="small")
    figure.tight_layout(rect=(0.0, 0.06, 1.0, 1.0))
    figure.savefig(file, dpi=120)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    aligned = [":--" if i == 0 else "--:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, aligned, *rows])


def _head(cell: dict[str, Any]) -> list[str]:
    return [cell["model"], f"{cell['choices']:,}"]


def _each(cell: dict[str, Any], names: Iterable[str], show: Any) -> list[str]:
    methods = cell["methods"]
    return [show(methods[name]) if name in methods else "-" for name in names]


def _number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _choice_ms(figures: dict[str, Any]) -> str:
    return _number(figures["choice_ms"])


def _ratio_row(cell: dict[str, Any]) -> list[str]:
    ours = cell["methods"][OURS]["ms_per_token"]
    ratios = _each(cell, PEERS, lambda figures: _number(figures["ms_per_token"] / ours))
    return [cell["model"], f"{cell['n_vocab']:,}", f"{cell['choices']:,}", *ratios]


def _strategy_row(cell: dict[str, Any]) -> list[str]:
    names = [f"eliza-ffi {name}" for name in ("auto", "tree", "skip-ahead", "token-by-token")]
    shown = _each(cell, names, lambda one: f"{_number(one['choice_ms'])} ({one['passes']:.1f})")
    return [*_head(cell), _number(cell["pass_ms"]), *shown]


def _select_row(cell: dict[str, Any]) -> list[str]:
    names = (OURS, "llama.cpp grammar last", "llama.cpp grammar first")
    shown = _each(cell, names, lambda one: _number(one["select_us"]))
    for name in ("llguidance", "xgrammar"):
        one = cell["methods"].get(name)
        shown += [_number(one["mask_us"]), _number(one["step_us"])] if one else ["-", "-"]
    return [*_head(cell), *shown]


def _setup_row(cell: dict[str, Any]) -> list[str]:
    cold, cached = cell["set_token_trie_us_cold"] / 1e3, cell["set_token_trie_us_cached"] / 1e3
    names = ("llama.cpp grammar first", "llguidance", "xgrammar")
    shown = _each(cell, names, lambda one: _number(one["setup_ms"]))
    return [*_head(cell), f"{_number(cold)} ({_number(cached)})", *shown]


def _agreement_row(cell: dict[str, Any]) -> list[str]:
    ours, grammar = cell["methods"][OURS], cell["methods"]["llama.cpp grammar last"]
    tokens = [f"{one['tokens']:.1f}" for one in (ours, grammar)]
    return [*_head(cell), f"{ours['agreement']:.0%}", *tokens]
