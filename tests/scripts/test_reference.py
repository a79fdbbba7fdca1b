"""The page of public names: it says what the code says, and every name says what it is."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from write_reference import HOW, PAGE, ROOMS, main, page, undocumented

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_says_what_it_is(room: str) -> None:
    names = undocumented(importlib.import_module(room))
    assert not names, f"no docstring, or no string behind the assignment of a constant: {names}"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), HOW


def test_a_page_that_is_behind_is_found_and_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "reference.md"
    assert main(["--check", "--page", str(file)]) == 1
    assert HOW in capsys.readouterr().err
    assert main(["--page", str(file)]) == 0
    assert main(["--check", "--page", str(file)]) == 0
    file.write_text(file.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    assert main(["--check", "--page", str(file)]) == 1
