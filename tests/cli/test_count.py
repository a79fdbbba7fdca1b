"""``eliza-ffi count``: the shares of answers in a table."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from command import Run


@pytest.fixture
def decided(tmp_path: Path) -> str:
    lines = [f"{i},mail {i},{'true' if i % 4 else 'false'},{'ab'[i % 2]}" for i in range(1, 101)]
    (tmp_path / "out.csv").write_text("row,text,urgent,region\n" + "\n".join(lines) + "\n")
    return str(tmp_path / "out.csv")


def labels(path: Path, kinds: dict[int, str]) -> str:
    """Write labels: rows up to 40 are urgent."""
    lines = []
    for row, kind in kinds.items():
        answer = "" if ", " in kind else str(row <= 40).lower()
        lines.append(f'{row},mail {row},{answer},"{kind}"')
    path.write_text("row,text,urgent,kind\n" + "\n".join(lines) + "\n")
    return str(path)


def test_random_labels_give_intervals(eliza: Run, decided: str, tmp_path: Path) -> None:
    drawn = Random(0).sample(range(1, 101), 50)
    kinds = dict.fromkeys(drawn, "random")
    kinds |= {drawn[0]: "random, skipped", drawn[1]: "random, none"}
    kinds |= {row: "chosen" for row in range(1, 101) if row not in drawn}
    command = ("count", decided, "--answers", "urgent")
    path = labels(tmp_path / "labels.csv", kinds)
    false, true = eliza(*command, "--random-labels", path, "--json").json["shares"]
    assert (true["answer"], true["n_rows"], true["n_labels"]) == ("true", 100, 49)
    assert true["interval"][0] < true["share"] < true["interval"][1]
    assert true["share"] == pytest.approx(0.4, abs=0.1)  # the model says .75
    assert false["share"] + true["share"] == pytest.approx(48 / 49)  # one row has none of both
    shown = eliza(*command, "--random-labels", path, "--by", "region").out
    assert "a      true" in shown and "b      true" in shown


def test_without_labels_the_interval_is_missing_and_says_why(eliza: Run, decided: str) -> None:
    found = eliza("count", decided, "--answers", "urgent").out
    assert "true    75.0%         -" in found
    assert "no interval: 0 random labels, at least 10 are needed; eliza-ffi label" in found


def test_wrong_files_are_named(eliza: Run, decided: str, tmp_path: Path) -> None:
    assert "no column 'team'" in eliza("count", decided, "--answers", "team", code=1).err
    command = ("count", decided, "--answers", "urgent", "--random-labels")
    assert "is not a file of eliza-ffi label" in eliza(*command, decided, code=1).err
    path = labels(tmp_path / "labels.csv", {700: "random"})
    assert "row 700 is not in" in eliza(*command, path, code=1).err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("101,mail\n", "out.csv, line 102: expected 4 fields as in the header, got 2"),
        ("1.0,mail,true,a\n", "out.csv, line 102, column 'row': expected the number of a row, got"),
        (",mail,true,a\n", "out.csv, line 102, column 'row': expected the number of a row, got ''"),
        ("7,mail,true,a\n", "out.csv, line 102: row 7 is there twice"),
    ],
)
def test_a_table_that_was_edited_is_rejected_with_the_place(
    eliza: Run, decided: str, line: str, message: str
) -> None:
    with Path(decided).open("a") as file:
        file.write(line)
    assert message in eliza("count", decided, "--answers", "urgent", code=1).err


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "\n7,",
            "\n7.0,",
            "labels.csv, line 2, column 'row': expected the number of a row, got '7.0",
        ),
        ("random", "rnd", "labels.csv, line 2, column 'kind': expected chosen or random, as eliza"),
        ("mail 7", "post", "row 7 has another 'text' in "),
    ],
)
def test_labels_that_were_edited_are_rejected_with_the_place(
    eliza: Run, decided: str, tmp_path: Path, before: str, after: str, message: str
) -> None:
    path = Path(labels(tmp_path / "labels.csv", {7: "random"}))
    path.write_text(path.read_text().replace(before, after))
    command = ("count", decided, "--answers", "urgent", "--random-labels", str(path))
    assert message in eliza(*command, code=1).err


def test_the_labels_may_answer_several_questions(eliza: Run, decided: str, tmp_path: Path) -> None:
    """A row counts as soon as its question was answered, and not if it was skipped."""
    path = tmp_path / "labels.csv"
    lines = [f"{i},mail {i},x,{answer},random" for i in range(1, 31) for answer in ("", "true")]
    lines += [
        "31,mail 31,x,,random",
        '32,mail 32,,,"random, none, skipped"',
        "33,mail 33,x,true,chosen",
    ]
    path.write_text("row,text,team,urgent,kind\n" + "\n".join(lines) + "\n")
    command = ("count", decided, "--random-labels", str(path), "--json", "--answers")
    shares = {each["answer"]: each for each in eliza(*command, "urgent").json["shares"]}
    assert shares["true"]["n_labels"] == 30 and shares["true"]["share"] > 0.9
    err = eliza(*command, "region", code=1).err
    assert "labels.csv has no column 'region'; its columns are 'row', 'text', 'team'" in err
