"""Adapters of public boards, on rows of our own in the form of each board."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from served import Served

from bench.boards.__main__ import main, measure
from bench.boards.asking import UnansweredError, in_process, over_http, probabilities
from bench.boards.rows import BoardRow, read_rows
from eliza_ffi.decisions import Choice, Predicate, Score
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.model import Model

NOUL = {"type": "noul", "instructions": "Is it about money?", "criteria": None}
TEAM = {"type": "choice", "instructions": "Which team?", "criteria": {"a": "invoices", "b": None}}
ANGER = {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]}
STATES: list[Any] = ["I was charged twice!", {"mail": "Where is my parcel?"}, "It is broken."]


def lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    opener: Any = gzip.open if file.suffix == ".gz" else open
    with opener(file, "wt", encoding="utf-8") as out:
        out.write(text)


def jevbench(question: Any, labels: list[str], expected: Any, state: Any = "x") -> dict[str, Any]:
    return {
        **{"id": f"t-{expected}", "state": state, "question": question, "labels": labels},
        **{"expected": expected, "split": "public", "group": None, "provenance": {}},
    }


def index(questions: Any, expected: Any, dataset: str = "MMLU", state: Any = "x") -> dict[str, Any]:
    return {
        **{"id": "r1", "family": "f", "split": "test", "state": state, "questions": questions},
        **{"expected": expected, "metadata": {}, "_evaluation": {"run_id": 1, "dataset": dataset}},
    }


def decisions(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    (folder / "all").mkdir(parents=True)
    columns = {
        name: [row[name] if name == "workflow" else json.dumps(row[name]) for row in rows]
        for name in ("workflow", "state", "questions", "gold")
    }
    pq.write_table(pa.table(columns), folder / "all" / "test-00000-of-00001.parquet")


def write_all(folder: Path) -> None:
    """Write rows of every board into one folder."""
    easy = [
        jevbench(NOUL, ["no", "yes"], "yes", STATES[0]),
        jevbench(TEAM, ["a", "b"], "b", STATES[1]),
        jevbench({**TEAM, "criteria": None}, ["x", "y", "z"], "z", STATES[2]),
        jevbench(ANGER, ["0", "1", "2"], 2, STATES[2]),
        jevbench(NOUL, ["no", "yes"], None),
    ]
    lines(folder / "datasets" / "public" / "easy.jsonl", easy)
    gold = {"t": {"type": "choice", "label": "a"}, "n": {"type": "noul", "label": "false"}}
    questions = {"t": TEAM, "n": {**NOUL, "criteria": {"true": "money", "false": "else"}}}
    asked = {"questions": questions, "state": STATES[1], "workflow": "service"}
    score = {"s": {"type": "score", "label": "1", "score": 1.2}}
    decisions(
        folder,
        [
            {**asked, "gold": gold},
            {**asked, "workflow": "invoices", "questions": {"s": ANGER}, "gold": score},
        ],
    )
    lines(
        folder / "work" / "selected-rows.jsonl.gz",
        [index({"q": TEAM, "r": NOUL}, {"q": "a", "r": None}), index({"q": TEAM}, {"q": None})],
    )
    lines(folder / "work" / "added-rows.jsonl", [index({"q": NOUL}, {"q": "no"}, "RAGTruth")])


def test_rows_of_every_board_are_read(tmp_path: Path) -> None:
    write_all(tmp_path)
    rows = list(read_rows(tmp_path))
    found = [(row.board, row.benchmark, row.place, row.targets) for row in rows]
    easy, test = "easy.jsonl, line", "test-00000-of-00001.parquet, row"
    assert found == [
        ("JevBench", "easy", f"{easy} 1", {"answer": 0}),
        ("JevBench", "easy", f"{easy} 2", {"answer": 1}),
        ("JevBench", "easy", f"{easy} 3", {"answer": 2}),
        ("JevBench", "easy", f"{easy} 4", {"answer": 2}),
        ("JevBench", "easy", f"{easy} 5", {}),
        ("typed-decisions", "service", f"{test} 1", {"t": 0, "n": 1}),
        ("typed-decisions", "invoices", f"{test} 2", {"s": 1}),
        ("Decision Index", "RAGTruth", "added-rows.jsonl, line 1", {"q": 1}),
        ("Decision Index", "MMLU", "selected-rows.jsonl.gz, line 1", {"q": 0}),
        ("Decision Index", "MMLU", "selected-rows.jsonl.gz, line 2", {}),
    ]
    assert rows[1].state == rows[5].state == STATES[1]  # one of both is stored as a string
    assert isinstance(rows[0].asked("answer"), Predicate)
    options = rows[2].asked("answer")
    assert isinstance(options, Choice) and options.values == ("x", "y", "z")
    assert isinstance(rows[6].asked("s"), Score)


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        ("datasets/public/a.jsonl", jevbench(TEAM, ["a", "b"], "c"), "expected one of 'a', 'b'"),
        ("datasets/public/a.jsonl", jevbench(NOUL, ["no", "yes"], "maybe"), "expected yes or no"),
        ("datasets/public/a.jsonl", jevbench(ANGER, ["0"], 3), "or a level from 0 to 2, got 3"),
        ("datasets/public/a.jsonl", {"question": NOUL, "expected": "yes"}, "no 'state'"),
        ("x/b-rows.jsonl", index({"q": TEAM}, {"p": "a"}), "b-rows.jsonl, line 1: no 'p'"),
        ("x/b-rows.jsonl", index({"q": {"type": "rank"}}, {"q": "a"}), "line 1: the question 'q'"),
        ("x/b-rows.jsonl", [], "line 1: "),
    ],
)
def test_a_row_in_another_form_is_named(tmp_path: Path, file: str, row: Any, message: str) -> None:
    lines(tmp_path / file, [row])
    with pytest.raises(InvalidArgumentError) as error:
        list(read_rows(tmp_path))
    assert message in str(error.value) and "line 1" in str(error.value)


def test_a_row_with_its_own_scorer_counts_if_its_answer_is_an_option(tmp_path: Path) -> None:
    rows = [{**index({"q": TEAM}, {"q": each}), "scoring": {"values": {}}} for each in ("b", "c")]
    lines(tmp_path / "selected-rows.jsonl", rows)
    assert [row.targets for row in read_rows(tmp_path)] == [{"q": 1}, {}]


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="has no rows of a known board; expected JevB"):
        list(read_rows(tmp_path))
    (tmp_path / "datasets" / "public").mkdir(parents=True)
    (tmp_path / "datasets" / "public" / "a.jsonl").write_text("{\n")
    with pytest.raises(InvalidArgumentError, match="a.jsonl, line 1 is not JSON"):
        list(read_rows(tmp_path))


def row_of(target: int, text: str, board: str = "JevBench") -> BoardRow:
    return BoardRow(board, "easy", "line 1", text, {"answer": TEAM}, {"answer": target})


def test_the_figures_match_a_loop_over_the_answers() -> None:
    p = [0.9, 0.2, 0.6, 0.55, 0.7]  # of the first option
    targets = [0, 1, 1, 0, 0]

    def ask(state: Any, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        if state == "none":
            raise UnansweredError("too long")
        first = p[int(state)]
        return {"answer": {"type": "choice", "probabilities": {"a": first, "b": 1 - first}}}

    rows = [row_of(y, str(i)) for i, y in enumerate(targets)]
    (part,) = measure([*rows, row_of(0, "none")], ask)
    figures = part.figures()
    right = [(each >= 0.5) == (y == 0) for each, y in zip(p, targets, strict=True)]
    assert (figures["questions"], figures["answered"]) == (6, 5)
    assert figures["accuracy"] == pytest.approx(sum(right) / 6)
    brier = [2 * (each - (y == 0)) ** 2 for each, y in zip(p, targets, strict=True)]
    assert figures["brier"] == pytest.approx(np.mean(brier))
    gaps: dict[int, list[float]] = {}
    for each, hit in zip(p, right, strict=True):
        sure = max(each, 1 - each)
        gaps.setdefault(int(np.ceil(sure * 10)), []).append(sure - hit)
    assert figures["ece"] == pytest.approx(sum(abs(sum(gap)) for gap in gaps.values()) / 5)
    assert figures["unanswered"] == ["line 1: too long"]
    (part,) = measure(rows, ask, limit=2)
    assert part.figures()["questions"] == 2 and part.figures()["accuracy"] == 1.0


def test_answers_in_another_form_are_named() -> None:
    team = Choice("Which?", ["a", "b"], "team")
    assert probabilities(team, {"probabilities": {"b": 0.25, "a": 0.75}}).tolist() == [0.75, 0.25]
    score = Score("How?", ["low", "high"], "how")
    assert probabilities(score, {"probabilities": {"0": 0.1, "1": 0.9}}).tolist() == [0.1, 0.9]
    assert probabilities(Predicate("x"), {"noul": 0.2}).tolist() == [0.2, 0.8]
    for wrong in ({"probabilities": {"a": 1.0}}, {"choice": "a"}, None, {"probabilities": None}):
        with pytest.raises(InvalidArgumentError, match="'team': expected an answer with"):
            probabilities(team, wrong)
    with pytest.raises(InvalidArgumentError, match="that sum to 1"):
        probabilities(team, {"probabilities": {"a": 0.9, "b": 0.9}})


def test_a_model_is_measured_in_this_process(
    tmp_path: Path, tiny_model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    write_all(tmp_path)
    out = tmp_path / "figures.json"
    assert main(["--kit", str(tmp_path), "--json", str(out), "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    figures = json.loads(out.read_text())
    assert [(each["benchmark"], each["answered"]) for each in figures] == [
        ("easy", 4),
        ("service", 2),
        ("invoices", 1),
        ("RAGTruth", 1),
        ("MMLU", 1),
    ]
    hits = [
        tiny_model.decide(STATES[0], {"answer": NOUL})["answer"].value is True,
        tiny_model.decide(STATES[1], {"answer": TEAM})["answer"].value == "b",
        tiny_model.decide(STATES[2], Choice("Which team?", ["x", "y", "z"]))[0].value == "z",
        tiny_model.decide(STATES[2], {"answer": ANGER})["answer"].label == "furious",
    ]
    assert figures[0]["accuracy"] == pytest.approx(sum(hits) / 4)
    assert "RAGTruth" in shown and "at 5 % error" in shown


def test_an_input_that_is_too_long_counts_as_unanswered(tiny_model: Model) -> None:
    (part,) = measure([row_of(0, "word " * 20_000), row_of(0, "x")], in_process(tiny_model))
    assert part.figures()["questions"] == 2 and part.figures()["answered"] == 1
    assert "does not fit the context" in part.figures()["unanswered"][0]


def test_a_server_gives_the_same_answers(tmp_path: Path, tiny_model: Model) -> None:
    write_all(tmp_path)
    served = Served()
    try:
        ask = over_http(served.url)
        for row in read_rows(tmp_path):
            expected = in_process(tiny_model)(row.state, row.questions)
            found = ask(row.state, row.questions)
            for name in row.questions:
                p, q = (probabilities(row.asked(name), each[name]) for each in (expected, found))
                assert p == pytest.approx(q, abs=0.03)
        with pytest.raises(UnansweredError, match="answered 400"):
            ask("word " * 20_000, {"answer": TEAM})
        with pytest.raises(ElizaError, match="answered 404"):
            over_http(f"{served.url}/none")("x", {"answer": TEAM})
    finally:
        served.process.terminate()
        served.process.wait()


def test_a_wrong_command_line_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines(tmp_path / "datasets" / "public" / "a.jsonl", [jevbench(NOUL, ["no", "yes"], None)])
    for more, message in (
        (["--server", "http://127.0.0.1:9", "--model", "x.gguf"], "give --server-model"),
        ([], "has no row with a right answer"),
    ):
        with pytest.raises(SystemExit):
            main(["--kit", str(tmp_path), *more])
        assert message in capsys.readouterr().err
