"""Text for a terminal: tables, wrapped lines and bars, with and without rich."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from eliza_ffi.terminal import bar, fact_table, headline, printable, text_table, wrap

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
HEAD = ["question", "kind", "n", "accuracy", "NLL", "Brier"]
ROWS = [
    ["紧急吗\uff1f这是一封非常长的邮件\U0001f389", "predicate", "12", "91.7%", "0.243", "0.117"],
    [f"e\u0301te\u0301 {FAMILY}", "choice", "7", "8.3%", "1.5", "0.9"],
]


@pytest.fixture
def no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)


def test_control_characters_are_escaped_but_joiners_and_spaces_are_kept() -> None:
    assert printable("\x1b[2Jname\x07\r\u200f é 日本") == "\\x1b[2Jname\\x07\\r\\u200f é 日本"
    for text in (FAMILY, ENGLAND, "two\nlines", "a\u3000b\u00a0c", "می\u200cشود"):
        assert printable(text) == text


@pytest.mark.parametrize("width", [None, 200, 72])
def test_cells_are_aligned_in_terminal_columns(width: int | None) -> None:
    lines = text_table([HEAD, *ROWS], 2, width).splitlines()
    assert len(lines) == 3
    assert len({cell_len(line) for line in lines}) == 1
    kinds = ["kind", "predicate", "choice"]
    starts = {cell_len(line[: line.index(kind)]) for line, kind in zip(lines, kinds, strict=True)}
    assert len(starts) == 1


@pytest.mark.parametrize("width", [60, 40, 20])
def test_a_wide_table_wraps_its_names_or_lists_each_row(width: int) -> None:
    shown = text_table([HEAD, *ROWS], 2, width)
    assert all(cell_len(line) <= width for line in shown.splitlines())
    said = "".join(shown.split())
    assert all(cell in said for row in ROWS for cell in row[1:])
    assert shown.startswith(" ".join(HEAD[:1]))
    assert (shown.count("accuracy") == 2) == (width < 60)


@pytest.mark.parametrize("width", [1, 2, 19])
def test_tables_have_at_least_20_columns(width: int) -> None:
    assert text_table([HEAD, *ROWS], 2, width) == text_table([HEAD, *ROWS], 2, 20)


def test_line_breaks_and_markup_in_cells_are_harmless() -> None:
    table = text_table([["a\nb", "1"], ["\x1b[2J", "2"], ["[bold]x[/] :smile:", "3"]])
    assert table.splitlines() == [
        "a b                 1",
        "\\x1b[2J             2",
        "[bold]x[/] :smile:  3",
    ]


def test_long_facts_wrap_to_the_right_of_their_names() -> None:
    lines = fact_table({"name": ["one two three", "last"], "x": ["1"]}, 20).splitlines()
    assert lines == ["name  one two three", "      last", "x     1"]
    narrow = fact_table({"name": ["one two three " * 3]}, 20).splitlines()
    assert len(narrow) > 2
    assert all(line.startswith("      ") for line in narrow[1:])


@given(st.text(st.sampled_from(["a", " ", "é", "日", "\u0301", "क", "\u200d", "\n", "["])))
@example("\u200d[[[[[[[日日日 ")
def test_wrapped_lines_fit_the_width_and_keep_every_character(text: str) -> None:
    text = printable(text)
    shown = wrap(text, 12)
    assert all(cell_len(line) <= 12 for line in shown.splitlines())
    assert "".join(shown.split()) == "".join(text.split())


def test_lines_of_one_column_keep_wide_characters() -> None:
    assert wrap("日本", 1) == "日\n本"


def test_bars_are_as_long_as_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    drawn = [bar(share, 8) for share in (0.0, 0.5, 1.0)]
    assert drawn == ["", "████", "█" * 8]
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert bar(0.5, 8) == "####"


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self) -> bool:
        return True


def test_bold_depends_on_the_terminal_force_color_and_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    plain = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert headline("team", "sales", 40) == "team: \x1b[1msales\x1b[0m"
    monkeypatch.setattr(sys, "stdout", plain)
    assert headline("team", "sales", 40) == "team: sales"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert headline("team", "sales", 40) == "team: \x1b[1msales\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert headline("team", "sales", 40) == "team: sales"


@pytest.mark.usefixtures("no_rich")
def test_without_rich_all_text_is_still_printed() -> None:
    table = text_table([["name", "n"], ["[x]\x1b", "10"], ["é", "2"]], width=20)
    assert table == "name      n\n[x]\\x1b  10\né         2"
    assert fact_table({"a": ["1", "2"]}, 20) == "a  1\n   2"
    assert wrap("word " * 30, 20) == "word " * 30
    assert headline("team", "sales", 10) == "team: sales"
    assert bar(0.5, 8) == "####"
