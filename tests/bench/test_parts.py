"""The shared parts of the benchmarks: rounding of figures, and ratios."""

from __future__ import annotations

from page_tables import number

from bench.parts.figures import median_ratio


def test_numbers_have_three_digits() -> None:
    values = (12345.6, 123.4, 12.34, 1.234, 0.01234)
    assert [number(value) for value in values] == ["12,346", "123", "12.3", "1.23", "0.012"]


def test_ratios_are_computed_within_each_round() -> None:
    assert median_ratio([2.0, 9.0, 40.0], [1.0, 3.0, 10.0]) == 3.0
    assert median_ratio([2.0, 9.0], [1.0, 3.0, 10.0]) == 2.5
