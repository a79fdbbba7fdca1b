"""The page of call formats contains the current table."""

from __future__ import annotations

import call_formats
import pytest


@pytest.mark.slow
def test_the_page_of_call_formats_is_up_to_date() -> None:
    assert call_formats.main(["--check"]) == 0
