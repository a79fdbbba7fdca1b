"""Progress on standard error: one line, which is drawn only in a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from eliza_ffi.cli.progress import ProgressBar, RowProgress, preparing
from eliza_ffi.tables import TableStep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal. Not a fixture: pytest replaces it after the fixtures."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    return clock


def test_the_progress_bar_appears_after_a_delay_and_is_erased(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = terminal_of(monkeypatch)
    bar = ProgressBar()
    bar("load", 0.1)
    assert terminal.getvalue() == ""
    clock.now = 1.0
    bar("load", 0.5)
    assert terminal.getvalue().startswith("\rloading the model  50%")
    bar("load", 1.0)
    drawn, erased, end = terminal.getvalue().split("\r")[1:]
    assert (erased, end) == (" " * len(drawn), "")
    shown = terminal.getvalue()
    bar("prefill", 0.5)
    bar("prefill", 1.0)
    bar.erase()
    assert terminal.getvalue() == shown


def test_a_terminal_shows_that_questions_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with pytest.raises(ValueError, match="wrong"), preparing():
        assert terminal.getvalue() == "\rpreparing the questions"
        raise ValueError("wrong")
    assert terminal.getvalue().split("\r")[2:] == [" " * len("preparing the questions"), ""]
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    shown = terminal.getvalue()
    with preparing():
        pass
    assert terminal.getvalue() == shown


def test_progress_shows_rows_rate_and_time_left(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", "100")
    progress = RowProgress()
    progress(TableStep(1, 1, 0.01, 0.0))
    assert terminal.getvalue() == ""
    clock.now = 50.0
    progress(TableStep(1500, 1000, 0.6, 0.5))
    assert terminal.getvalue().startswith("\r1,500 rows   60%  20.0 rows/s  3:20 left  ")
    progress.erase()
    assert terminal.getvalue().endswith(" \r")
    limited = RowProgress(limit=2000)
    clock.now = 150.0
    limited(TableStep(1000, 1000, 0.1, 0.0))
    assert "50%  10.0 rows/s  1:40 left" in terminal.getvalue()


def test_progress_fits_on_one_line(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", "50")
    loading, rows = ProgressBar(), RowProgress()
    loading("load", 0.1)
    clock.now = 1.0
    loading("load", 0.5)
    rows(TableStep(1_234_567, 1_234_567, 0.5, 0.0))
    drawn = [part for part in terminal.getvalue().split("\r") if part]
    assert [part[:17] for part in drawn] == ["loading the model", "1,234,567 rows   "]
    assert all(len(part) < 50 for part in drawn)


def test_progress_is_not_drawn_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eliza_ffi.cli.progress.DELAY_SECONDS", 0.0)
    monkeypatch.setattr("eliza_ffi.cli.progress.REDRAW_SECONDS", 0.0)
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    ProgressBar()("load", 0.5)
    RowProgress()(TableStep(1, 1, 0.5, 0.0))
    assert output.getvalue() == ""
