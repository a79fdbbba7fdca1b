"""Every public name has a docstring, and docs/reference.md is up to date."""

from __future__ import annotations

import importlib

import pytest
from write_reference import HOW, PAGE, ROOMS, page, undocumented

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room: str) -> None:
    names = undocumented(importlib.import_module(room))
    assert not names, f"no docstring, or no string after the assignment of a constant: {names}"


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), HOW
