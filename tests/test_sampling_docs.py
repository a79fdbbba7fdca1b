"""The examples of docs/sampling.md print what they say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "sampling.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_print_what_the_page_says(example: str) -> None:
    said = re.findall(r"^# (.*?)(?:  +.*)?$", example, flags=re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert printed.getvalue().splitlines() == said


def test_every_test_that_the_page_names_exists() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_sampling_*.py"))
    named = re.findall(r"`(test_[a-z0-9_]+?)_?…?`", PAGE)
    assert len(named) > 20
    assert [name for name in named if f"def {name}" not in tests] == []
