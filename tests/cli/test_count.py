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
