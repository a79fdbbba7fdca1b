"""Format comparisons: a table of all, and a line for each difference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from page_tables import markdown_table

from .comparing import Comparison

KINDS = ("same", "near-tie", "other leaf", "too far", "wrong")


def table(compared: Sequence[Comparison]) -> str:
    """Return a Markdown table of the verdicts, with a row for each model and strategy.

    The last columns are the largest difference between a leaf's log-probability and the
    reference's, in nats and in units of the model's noise.
    """
    rows: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for each in compared:
        rows[each.model, each.way.strategy].append(each)
    head = ["model", "strategy", "choices", "same", "near-ties", "other leaf", "too far", "wrong"]
    head += ["difference", "of the noise"]
    cells = [[*key, *_counts(group)] for key, group in rows.items()]
    return markdown_table(head, [*cells, ["all", "all", *_counts(compared)]], left=2)


def details(compared: Iterable[Comparison]) -> list[str]:
    """Return a line for each comparison whose verdict is not ``"same"``."""
    lines = []
    for each in compared:
        verdict = each.verdict
        if verdict.kind == "same":
            continue
        where = f"{each.model}, prompt {each.prompt!r}, answers {each.answers!r}, {each.way}"
        what = "; ".join(verdict.problems) or (
            f"margin {verdict.margin:.4f} nats, difference {verdict.difference:.4f},"
            f" noise {each.noise:.4f}"
        )
        lines.append(f"{verdict.kind}: {where}: {what}")
    return lines


def _counts(group: Sequence[Comparison]) -> list[str]:
    count = Counter(each.verdict.kind for each in group)
    difference = max((each.verdict.difference for each in group), default=0.0)
    in_noises = max((_in_noises(each) for each in group), default=0.0)
    cells = [len(group), *(count[kind] for kind in KINDS), f"{difference:.1e}", f"{in_noises:.2f}"]
    return [*map(str, cells)]


def _in_noises(each: Comparison) -> float:
    if each.verdict.difference == 0:
        return 0.0
    return each.verdict.difference / each.noise if each.noise > 0 else float("inf")
