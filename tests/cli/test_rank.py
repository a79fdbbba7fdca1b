"""Tests of ``eliza-ffi rank``: its labels, its output and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import Run, runner

from eliza_ffi.library.loading import Library

LABELS = [
    f"{colour} > {thing} > {size}"
    for colour in ("red", "green", "blue")
    for thing in ("car", "house")
    for size in ("big", "small")
]
PROMPT = ["rank", "--prompt", "I like the "]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], library: Library) -> Run:
    return runner(capsys, "--library", str(library.path))


@pytest.fixture
def listed(tmp_path: Path) -> list[str]:
    """Return the option that names a file with the labels."""
    path = tmp_path / "labels.txt"
    path.write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")
    return ["--labels-file", str(path)]


def lines_of(out: str) -> list[tuple[str, float]]:
    """Return the labels and probabilities, in per cent, of the lines with bars."""
    found = re.findall(r"^  (.+?) +([0-9.]+)%", out, flags=re.MULTILINE)
    return [(label, float(percent)) for label, percent in found]


def test_rank_agrees_with_the_probabilities_of_choose(run: Run, listed: list[str]) -> None:
    given = [word for label in LABELS for word in ("--label", label)]
    chosen = run("choose", *PROMPT[1:], *given, "--probabilities", "--json").json
    probabilities = chosen["probabilities"]
    best = sorted(probabilities, key=probabilities.__getitem__, reverse=True)[:3]
    ranking = run(*PROMPT, *listed, "-k", "3", "--json").json
    assert ranking["labels"] == best
    assert ranking["probabilities"] == pytest.approx([probabilities[b] for b in best], rel=1e-3)
    assert ranking["rest"] == pytest.approx(1.0 - sum(ranking["probabilities"]), abs=1e-6)
    assert ranking["proven"] is True
    out = run(*PROMPT, *listed, "-k", "3").out
    expected = [(label, 100 * probabilities[label]) for label in best]
    assert [label for label, _ in lines_of(out)] == best
    assert [p for _, p in lines_of(out)] == pytest.approx([p for _, p in expected], abs=0.2)
    assert f"all other labels together: {ranking['rest']:.1%}" in out
    assert "proven: no other label is more probable" in out


def test_a_level_ranks_groups_of_labels(run: Run, listed: list[str]) -> None:
    ranking = run(*PROMPT, *listed, "-k", "99", "--json").json
    sums = dict.fromkeys(("red", "green", "blue"), 0.0)
    for label, probability in zip(ranking["labels"], ranking["probabilities"], strict=True):
        sums[label.split(" > ")[0]] += probability
    options = ["--separator", " > ", "--group-level", "1", "-k", "3", "--json"]
    groups = run(*PROMPT, *listed, *options).json
    found = dict(zip(groups["labels"], groups["probabilities"], strict=True))
    assert found == pytest.approx(sums, rel=1e-3)


def test_a_separator_prints_the_levels_of_the_first_label(run: Run, listed: list[str]) -> None:
    out = run(*PROMPT, *listed, "--separator", " > ", "-k", "1").out
    first, levels = out.split("levels of the first label:")
    ((label, probability),) = lines_of(first)
    colour, thing, _ = label.split(" > ")
    assert [text for text, _ in lines_of(levels)] == [colour, f"{colour} > {thing}", label]
    assert lines_of(levels)[-1][1] == probability


def test_a_search_that_max_passes_ends_is_not_proven(run: Run, listed: list[str]) -> None:
    out = run(*PROMPT, *listed, "--max-passes", "0").out
    assert "not proven: the limit of passes ended the search; 0 passes" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat\ndog\n\ndog\n", "line 4 repeats a label: 'dog' is also at"),
        ("cat\r\ncat", "line 2 repeats a label: 'cat'"),
        ("", "is empty: expected one label per line"),
        ("\n  \n", "is empty: expected one label per line"),
    ],
)
def test_a_wrong_line_of_the_labels_file_is_named(
    eliza: Run, text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(text.encode())
    out, err = eliza(*PROMPT, "--labels-file", str(path), code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert str(path) in err
    assert message in err


def test_choose_takes_the_most_probable_label_by_default(run: Run) -> None:
    labels = ["red red big", *(f"car {end}" for end in ("tree blue", "open green", "small now"))]
    labels += ["car red old", "car play dog", "car house dog", "now note dog", "now tree note"]
    given = [word for label in labels for word in ("--label", label)]
    chosen = []
    for mode in ([], ["--mode", "best"], ["--mode", "greedy"]):
        chosen.append(run("choose", "--prompt", "x", *given, *mode).out)
    default, best, greedy = chosen
    assert default == best != greedy
