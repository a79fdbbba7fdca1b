"""Properties that are computed once."""

from __future__ import annotations

import pytest

from eliza_ffi._lazy import lazy_property


class Circle:
    """Counts how often its area is computed."""

    def __init__(self, radius: float) -> None:
        self.radius = radius
        self.n_computed = 0

    @lazy_property
    def area(self) -> float:
        """The area."""
        self.n_computed += 1
        if self.radius < 0:
            raise ValueError("a negative radius")
        return 3 * self.radius**2


def test_a_value_is_computed_once_for_each_instance() -> None:
    small, large = Circle(1), Circle(2)
    assert (small.area, large.area, small.area) == (3, 12, 3)
    assert (small.n_computed, large.n_computed) == (1, 1)


def test_an_error_is_not_kept() -> None:
    circle = Circle(-1)
    with pytest.raises(ValueError, match="negative"):
        _ = circle.area
    circle.radius = 1
    assert circle.area == 3


def test_the_class_has_the_property_with_its_docstring() -> None:
    assert isinstance(Circle.area, lazy_property)
    assert Circle.area.__doc__ == "The area."
