"""The file of labels: what it has after a kill, and what it rejects."""

from __future__ import annotations

import csv
import errno
import os
import sys
from pathlib import Path

import pytest

from eliza_ffi.decisions import Choice
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.tables import open_table
from eliza_ffi.tables.label_file import MAX_ROWS, Label, LabelFile, draw_rows
from eliza_ffi.tables.labels import LabelledRows

ROWS = {3: 'a "quoted"\ntext, in two lines', 1: "first", 7: "é"}
ANSWERS = ("yes", "no, never")
LABELS = [
    Label(3, "no, never", "chosen", ROWS[3]),
    Label(1, "", "random", ROWS[1]),
    Label(7, None, "chosen", ROWS[7]),
]


def opened(path: Path, rows: dict[int, str] = ROWS) -> LabelFile:
    return LabelFile(path, "text", "urgent", ANSWERS, rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    file = opened(path)
    for label in LABELS:
        file.add(label)
    file.close()
    return path


def test_the_labels_are_there_again(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        cells = list(csv.reader(file))
    assert cells == [
        ["row", "text", "urgent", "kind"],
        ["3", ROWS[3], "no, never", "chosen"],
        ["1", "first", "", "random, none"],
        ["7", "é", "", "chosen, skipped"],
    ]
    file = opened(path)
    assert file.labels == LABELS
    assert [file.take_back() for _ in LABELS] == LABELS[::-1]
    file.add(LABELS[1])
    file.close()
    again = opened(path)
    assert again.labels == [LABELS[1]]
    again.close()


def test_a_line_that_was_written_in_part_is_cut_off(path: Path) -> None:
    whole = path.read_bytes()
    ends = [len(whole) - len(whole.split(b"\n", 1)[1])]
    for n in range(ends[0], len(whole)):
        path.write_bytes(whole[:n])
        file = opened(path)
        assert file.labels == LABELS[: len(file.labels)]
        file.add(LABELS[2])
        file.close()
        file = opened(path)
        assert file.labels[-1] == LABELS[2]
        file.close()


def test_a_second_session_is_rejected(path: Path) -> None:
    file = opened(path)
    with pytest.raises(ElizaError, match=r"another process is writing .*labels\.csv"):
        opened(path)
    file.close()
    opened(path).close()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({**ROWS, 1: "other"}, "label 2: row 1 of the table has another input now"),
        ({3: ROWS[3]}, "label 2: expected the number of a row of the table"),
    ],
)
def test_a_table_that_changed_is_rejected(path: Path, rows: dict[int, str], message: str) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidArgumentError, match=message):
        opened(path, rows)
    assert path.read_bytes() == before


def test_other_files_are_rejected(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidArgumentError, match="has the columns row, text, urgent, kind, exp"):
        LabelFile(path, "body", "urgent", ANSWERS, ROWS)
    with pytest.raises(InvalidArgumentError, match=r"label 1: 'no, never' is none of the answers"):
        LabelFile(path, "text", "urgent", ("yes", "no"), ROWS)
    assert path.read_bytes() == before


def test_rows_are_drawn_at_random_and_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    n = 3 * MAX_ROWS
    lines = [f"{i},text {i}" if i % 50 else f"{i}," for i in range(n)]
    path.write_text("\n".join(["id,text", *lines]), encoding="utf-8")
    drawn = draw_rows(open_table(path), "text")
    assert len(drawn) == MAX_ROWS
    assert list(drawn.items()) == list(draw_rows(open_table(path), "text").items())
    numbers = list(drawn)
    assert all(drawn[number] == f"text {number - 1}" for number in numbers)
    assert all((number - 1) % 50 for number in numbers)  # empty inputs are left out
    assert abs(sum(numbers[: MAX_ROWS // 2]) / (MAX_ROWS // 2) - n / 2) < n / 20
    assert abs(sum(numbers) / MAX_ROWS - n / 2) < n / 20


def test_a_table_without_inputs_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("text\n\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="has no row with a usable input"):
        draw_rows(open_table(path), "text")


def test_a_later_label_of_a_row_counts_and_keeps_the_kind_of_the_first(path: Path) -> None:
    file = opened(path)
    file.add(Label(None, "yes", "chosen", "first"))  # the text of row 1, which is random
    file.add(Label(None, "yes", "chosen", "in no table"))
    file.add(Label(None, "no, never", "random", "in no table"))
    assert file.labels[3:] == [
        Label(1, "yes", "random", "first"),
        Label(None, "yes", "chosen", "in no table"),
        Label(None, "no, never", "chosen", "in no table"),
    ]
    file.close()
    again = LabelFile(path, "text", "urgent", ANSWERS)  # without the table
    assert again.labels == [*LABELS, *file.labels[3:]]
    again.close()
    question = Choice("Is it urgent?", ANSWERS, name="urgent")
    rows = LabelledRows(open_table(path), "text", (question,), {"urgent": "urgent"})
    answers = {text: each.get("urgent") for text, each in rows}
    assert answers == {
        ROWS[3]: "no, never",
        "first": "yes",
        "é": None,
        "in no table": "no, never",
    }
    assert rows.kinds == ["chosen", "random", "chosen", "chosen"]


def test_each_answer_about_a_row_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    others = {"team": ("bugs", "billing")}

    def two() -> LabelFile:
        return LabelFile(path, "text", "urgent", ANSWERS, ROWS, others)

    steps = [
        Label(7, None, "random", "é"),
        Label(7, None, "random", "é", ("bugs",)),
        Label(1, "yes", "chosen", "first"),
        Label(1, "yes", "chosen", "first", ("",)),
        Label(1, "", "chosen", "first", (None,)),
    ]
    for n, step in enumerate(steps, 1):
        file = two()
        file.add(step)
        file.close()
        file = two()
        assert file.labels == steps[:n]
        file.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "row,text,urgent,team,kind"
    assert lines[2] == '7,é,,bugs,"random, skipped"'
    assert lines[-2:] == ['1,first,yes,,"chosen, none"', '1,first,,,"chosen, none, skipped"']
    rows = LabelledRows(open_table(path), "text", (), {"team": "team"})
    assert [text for text, _ in rows] == ["é", "first"]
    assert rows.kinds == ["random", "chosen"]
    with pytest.raises(InvalidArgumentError, match="expected row, text, urgent, kind"):
        opened(path)
    file = two()
    assert [file.take_back() for _ in steps] == steps[::-1]
    file.close()


def test_a_line_of_an_unknown_kind_is_rejected(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"random", b"guess"))
    with pytest.raises(
        InvalidArgumentError, match="label 2, column 'kind': expected chosen or random"
    ):
        opened(path)


def test_every_text_is_read_again_as_it_was(tmp_path: Path) -> None:
    """A carriage return was not quoted, and a field of more than 131,072 characters not read."""
    path, limit = tmp_path / "labels.csv", csv.field_size_limit(2**17)
    texts = ["a\rb", "\r", "a\r\nb", "\n", " a ", '"', "\x85\u2028", "x" * 2**18]
    try:
        file = opened(path)
        for text in texts:
            file.add(Label(None, "yes", "chosen", text))
        file.close()
        again = opened(path)
    finally:
        csv.field_size_limit(limit)
    assert [each.input for each in again.labels] == texts
    again.close()
    path.write_bytes(path.read_bytes() + b",a\rb,yes,chosen\n")
    with pytest.raises(InvalidArgumentError, match=r"labels\.csv is malformed: new-line"):
        opened(path)


def test_a_file_that_a_spreadsheet_saved_goes_on(path: Path) -> None:
    """It begins with a byte order mark, and its lines end with a carriage return."""
    before = b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(before)
    texts = {number: text.replace("\n", "\r\n") for number, text in ROWS.items()}
    file = opened(path, texts)
    assert [each.row for each in file.labels] == [3, 1, 7]
    file.add(Label(1, "yes", "chosen", "first"))
    assert file.take_back().answer == "yes"
    file.close()
    assert path.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_a_label_that_is_written_in_part_leaves_no_trace(path: Path) -> None:
    import resource

    before = path.read_bytes()
    file = opened(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 3, limits[1]))
        with pytest.raises(OSError, match=r"No space left.*labels\.csv"):
            file.add(LABELS[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and file.labels == LABELS
    file.close()


def test_a_label_that_cannot_be_written_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    file = opened(path)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            file.add(Label(None, "yes", "chosen", "another"))
    assert path.read_bytes() == before and file.labels == LABELS
    file.close()
