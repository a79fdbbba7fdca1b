"""`make demo` answers all messages, and the embedded model is right about most of them."""

from __future__ import annotations

import re

import demo
import pytest
from rich.cells import cell_len

from eliza_ffi.model import Model


@pytest.mark.parametrize("task", ["planner", "should-respond"])
def test_the_embedded_model_is_right_on_seven_of_ten_messages(tiny_model: Model, task: str) -> None:
    cases = list(demo.demo_cases(task))
    for message, prompt, labels, expected in cases:
        assert message[:10] in prompt and expected in labels
    _, *rows = demo.choose_all(tiny_model, task)
    assert [row[1] for row in rows] == [message for message, *_ in cases]
    assert sum(row[2] == row[3] for row in rows) >= 0.7 * len(rows)
    assert all((row[0] == "x") == (row[2] != row[3]) for row in rows)


@pytest.mark.slow
def test_the_tables_fit_and_have_totals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    demo.main()
    out = capsys.readouterr().out
    assert all(cell_len(line) <= 90 for line in out.splitlines())
    assert re.findall(r"^[\w-]+: (?:\d+ of )?(\d+)", out, re.MULTILINE) == [
        *("15", "15", "32", "32"),
        *("12", "36"),
    ]
