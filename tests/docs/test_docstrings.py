"""Every public name has a docstring, which `help` and the reference show."""

from __future__ import annotations

import importlib

import pytest
from public_names import ROOMS, undocumented

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room: str) -> None:
    names = undocumented(importlib.import_module(room))
    assert not names, f"no docstring, or no string after the assignment of a constant: {names}"
