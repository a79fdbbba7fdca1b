"""What the benchmarks share: figures and tables."""

from __future__ import annotations

from page_tables import markdown_table, number

from bench.parts.figures import median_ratio


def test_numbers_have_three_digits() -> None:
    values = (12345.6, 123.4, 12.34, 1.234, 0.01234)
    assert [number(value) for value in values] == ["12,346", "123", "12.3", "1.23", "0.012"]


def test_a_table_is_aligned_by_its_first_columns() -> None:
    assert markdown_table(["a", "b"], [["x", "1"]]) == "| a | b |\n| :-- | --: |\n| x | 1 |"
    assert markdown_table(["a", "b"], [], left=2) == "| a | b |\n| :-- | :-- |"


def test_a_ratio_is_taken_within_a_round() -> None:
    assert median_ratio([2.0, 9.0, 40.0], [1.0, 3.0, 10.0]) == 3.0
    assert median_ratio([2.0, 9.0], [1.0, 3.0, 10.0]) == 2.5
