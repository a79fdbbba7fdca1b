"""What the demo, the evaluation and the benchmarks share: figures, tables, methods, pictures."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from eliza_ffi.errors import NotSupportedError
from eliza_ffi.measuring.cases import TASKS, cases_of
from eliza_ffi.measuring.figures import mean, median, median_ratio, percentiles
from eliza_ffi.measuring.methods import CHOICE_MODES, METHOD_OF_MODE, MODES
from eliza_ffi.measuring.pictures import Picture, plain
from eliza_ffi.measuring.tables import markdown_table, number, text_table
from eliza_ffi.measuring.terminal_text import text_width


def test_numbers_have_three_digits() -> None:
    values = (12345.6, 123.4, 12.34, 1.234, 0.01234)
    assert [number(value) for value in values] == ["12,346", "123", "12.3", "1.23", "0.012"]


def test_a_table_is_aligned_by_its_first_columns() -> None:
    assert markdown_table(["a", "b"], [["x", "1"]]) == "| a | b |\n| :-- | --: |\n| x | 1 |"
    assert markdown_table(["a", "b"], [], left=2) == "| a | b |\n| :-- | :-- |"
    assert text_table([["name", "n", ""], ["x", "10", ""]]) == "name   n\nx     10"
    assert text_table([["a", "name"], ["bb", "x"]], left=2) == "a   name\nbb  x"


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


def test_a_ratio_is_taken_within_a_round() -> None:
    assert median_ratio([2.0, 9.0, 40.0], [1.0, 3.0, 10.0]) == 3.0
    assert median_ratio([2.0, 9.0], [1.0, 3.0, 10.0]) == 2.5


def test_figures_have_the_names_of_their_columns() -> None:
    assert percentiles(list(range(101)), "ms_*") == {"ms_p50": 50.0, "ms_p99": 99.0}
    assert (mean([1, 2, 6]), median([1, 2, 6])) == (3.0, 2.0)


def test_every_mode_is_a_method_of_choosing() -> None:
    assert tuple(METHOD_OF_MODE) == MODES
    assert {method.mode for method in METHOD_OF_MODE.values()} == set(CHOICE_MODES)
    assert [mode for mode in MODES if METHOD_OF_MODE[mode].has_trie] == ["strict-trie-ffi"]


@pytest.mark.parametrize("task", TASKS)
def test_a_name_to_choose_is_the_one_that_is_expected(task: str) -> None:
    for case in cases_of(task):
        assert (case.expected_name in case.choices) == bool(case.opening) == (task != "action")


def test_a_picture_names_everything_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = Picture(1, 2, (4.0, 3.0), sharey=True)
    for axis in picture.axes.flat:
        axis.plot([1, 2], [3, 4], label="ours")
        axis.plot([1, 2], [4, 3])
        plain(axis)
    picture.save(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (legend,) = picture.axes[0][0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours"]


def test_a_picture_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotSupportedError, match="plot"):
        Picture(1, 1, (1.0, 1.0))
