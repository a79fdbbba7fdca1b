"""Tables in a terminal."""

from __future__ import annotations

import re

import pytest

from eliza_ffi.measuring.tables import text_table
from eliza_ffi.measuring.terminal_text import text_width

WIDE = [
    ["question", "kind", "n", "accuracy", "NLL", "Brier"],
    ["紧急吗\uff1f这是一封非常长的邮件\U0001f389", "predicate", "12", "91.7%", "0.243", "0.117"],
    ["e\u0301te\u0301 \U0001f469\u200d\U0001f467", "choice", "7", "8.3%", "1.5", "0.9"],
]


def second_column(line: str) -> int:
    """Return where the second cell begins."""
    found = re.search(r"  +(?=\S)", line)
    assert found is not None
    return text_width(line[: found.end()])


@pytest.mark.parametrize("width", [None, 200, 50, 40])
def test_cells_line_up_by_what_a_terminal_shows(width: int | None) -> None:
    for block in text_table(WIDE, 2, width).split("\n\n"):
        lines = block.splitlines()
        assert len(lines) == 3
        assert len({text_width(line) for line in lines}) == 1
        assert len({second_column(line) for line in lines}) == 1


@pytest.mark.parametrize("width", [200, 90, 60, 50, 40, 34])
def test_a_table_that_is_too_wide_goes_on_below_beside_its_names(width: int) -> None:
    blocks = text_table(WIDE, 2, width).split("\n\n")
    assert all(text_width(line) <= width for block in blocks for line in block.splitlines())
    heads = [block.splitlines()[0].split() for block in blocks]
    assert all(head[:2] == ["question", "kind"] for head in heads)
    assert [name for head in heads for name in head[2:]] == WIDE[0][2:]
    figures = [block.splitlines()[1].split()[2:] for block in blocks]
    assert [figure for row in figures for figure in row] == WIDE[1][2:]
    assert len(blocks) == (1 if width >= 60 else 2)


def test_a_cell_cannot_break_a_table() -> None:
    table = text_table([["a\nb", "1"], ["\x1b[2J", "2"]])
    assert table == "a b      1\n\\x1b[2J  2"
