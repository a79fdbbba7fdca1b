"""The page of call formats has the table that the templates lead to."""

from __future__ import annotations

from pathlib import Path

import call_formats
import pytest

pytestmark = pytest.mark.slow


def test_the_page_is_up_to_date() -> None:
    assert call_formats.main(["--check"]) == 0


def test_a_page_with_another_table_is_found_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{call_formats.BEGIN}\nold\n{call_formats.END}\nMore.\n")
    assert call_formats.main(["--check", "--page", str(page)]) == 1
    assert "is out of date" in capsys.readouterr().err
    assert call_formats.main(["--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Page\n") and text.endswith("\nMore.\n") and "old" not in text
    assert "| `Qwen3-Coder` | yes | yes | yes | `<tool_call>\\n<function=` | one by one |" in text
    assert call_formats.main(["--check", "--page", str(page)]) == 0
