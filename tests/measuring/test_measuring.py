"""What the demo, the evaluation and the benchmarks share: figures, tables, methods, pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eliza_ffi.errors import NotSupportedError
from eliza_ffi.measuring.cases import TASKS, cases_of
from eliza_ffi.measuring.figures import mean, median, median_ratio, percentiles
from eliza_ffi.measuring.methods import CHOICE_MODES, METHOD_OF_MODE, MODES
from eliza_ffi.measuring.pictures import Picture, plain
from eliza_ffi.measuring.tables import markdown_table, number, text_table


def test_numbers_have_three_digits() -> None:
    values = (12345.6, 123.4, 12.34, 1.234, 0.01234)
    assert [number(value) for value in values] == ["12,346", "123", "12.3", "1.23", "0.012"]


def test_a_table_is_aligned_by_its_first_columns() -> None:
    assert markdown_table(["a", "b"], [["x", "1"]]) == "| a | b |\n| :-- | --: |\n| x | 1 |"
    assert markdown_table(["a", "b"], [], left=2) == "| a | b |\n| :-- | :-- |"
    assert text_table([["name", "n", ""], ["x", "10", ""]]) == "name   n\nx     10"
    assert text_table([["a", "name"], ["bb", "x"]], left=2) == "a   name\nbb  x"


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
