"""Tests of jobs whose rows teach the model."""

from __future__ import annotations

import base64
import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import table_work
from job_rows import ENVIRONMENT, content, kill_after, stored_rows
from table_work import KIND, LearningDecider, kind_of
from tiny_files import write_reranker

from eliza_ffi.decisions import Choice, MultiLabel, Score
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.deciding import DecisionPlan
from eliza_ffi.learning import calibrate
from eliza_ffi.model import Model
from eliza_ffi.tables import OutputColumns, TableResult, decide_table, open_table, run
from eliza_ffi.tables.learning import N_SHOWN, N_VALUES, kept_of, kept_type, projected

TEAM = Choice("Which team?", {"billing": "payments", "sales": "prices"}, "team")


def table_of(path: Path, texts: Iterable[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["body"], *([text] for text in texts)])
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    texts = [f"text {i % 380}" if i % 50 else " " for i in range(400)]
    return table_of(tmp_path / "in.csv", texts)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def learned(table: Path, output: Path, **settings: Any) -> TableResult:
    return run(open_table(table), LearningDecider(**settings), output)


def accuracy(rows: Iterable[dict[str, Any]]) -> float:
    right = [row["kind"] == "abc"[kind_of(row["body"])] for row in rows if not row["error"]]
    return float(np.mean(right))


def test_the_rows_improve_the_answers_and_the_result_says_how(table: Path, tmp_path: Path) -> None:
    own = LearningDecider()
    own.learns = ()
    run(open_table(table), own, tmp_path / "own.jsonl")
    result = learned(table, tmp_path / "out.jsonl")
    before, after = rows_of(tmp_path / "own.jsonl"), rows_of(tmp_path / "out.jsonl")
    assert accuracy(before) < 0.6 and accuracy(after) > 0.85
    found = result.learned["kind"]
    changed = {row["row"] for row, old in zip(after, before, strict=True) if row != old}
    different = {
        row["row"] for row, old in zip(after, before, strict=True) if row["kind"] != old["kind"]
    }
    assert found.is_accepted and found.n_changed == len(different)
    assert found.training[0].n_rows == len({row["body"] for row in after}) - 1
    assert len(found.changed) == N_SHOWN
    for each in found.changed:
        assert each.row in different
        assert (before[each.row - 1]["kind"], after[each.row - 1]["kind"]) == (
            each.before,
            each.after,
        )
    assert changed == {row["row"] for row in after if not row["error"]}
    for row in after:
        if not row["error"]:
            p = row["kind_probabilities"]
            assert row["kind"] == max(p, key=p.__getitem__)
            assert row["kind_probability"] == p[row["kind"]]
    assert sum(result.counts.answers["kind"].values()) == 400 - result.counts.errors


def test_abstentions_follow_the_new_answers(table: Path, tmp_path: Path) -> None:
    learned(table, tmp_path / "out.jsonl", settings={"min_probability": 0.6})
    for row in rows_of(tmp_path / "out.jsonl"):
        if not row["error"]:
            is_sure = max(row["kind_probabilities"].values()) >= 0.6
            assert (row["kind"] is None, row["review"]) == (not is_sure, not is_sure)


def test_rows_that_do_not_agree_leave_the_answers_as_they_are(table: Path, tmp_path: Path) -> None:
    own = LearningDecider()
    own.learns = ()
    run(open_table(table), own, tmp_path / "own.csv")
    result = learned(table, tmp_path / "out.csv", is_noise=True)
    assert not result.learned["kind"].is_accepted
    assert (result.learned["kind"].n_changed, result.learned["kind"].changed) == (0, ())
    assert "own answers are kept" in str(result.learned["kind"].training[0])
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "own.csv").read_bytes()


def test_impossible_options_and_states_without_numbers_do_not_end_the_job(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_p, state = LearningDecider._log_p, LearningDecider._state

    def odd_log_p(text: str) -> Any:
        return np.array([0.0, -np.inf, -np.inf]) if text == "text 7" else log_p(text)

    def odd_state(self: Any, text: str) -> Any:
        return state(self, text) * (np.nan if text == "text 8" else 1)

    monkeypatch.setattr(LearningDecider, "_log_p", staticmethod(odd_log_p))
    monkeypatch.setattr(LearningDecider, "_state", odd_state)
    assert learned(table, tmp_path / "out.jsonl").learned["kind"].is_accepted
    rows = rows_of(tmp_path / "out.jsonl")
    assert rows[7]["kind"] == "a"
    assert accuracy(rows) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_job_killed_in_and_between_its_phases_writes_the_same_output(
    table: Path, tmp_path: Path, suffix: str
) -> None:
    output, whole = tmp_path / f"out{suffix}", tmp_path / f"whole{suffix}"
    assert learned(table, whole).learned["kind"].is_accepted
    command = [sys.executable, table_work.__file__, str(table), str(output), "--learn"]
    kill_after(command, 100, 0.0)
    assert 100 <= len(stored_rows(output)) < 400
    done = subprocess.run([*command, "--die"], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    assert stored_rows(output) == list(range(1, 401))
    assert not output.exists()
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, b"")  # no row was decided again
    assert content(output) == content(whole)


def test_a_limited_job_learns_again_from_all_rows(table: Path, tmp_path: Path) -> None:
    first = run(open_table(table), LearningDecider(), tmp_path / "out.csv", limit=100)
    again = learned(table, tmp_path / "out.csv")
    assert first.learned["kind"].training[0].n_rows < again.learned["kind"].training[0].n_rows
    learned(table, tmp_path / "whole.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


# ---- what is kept ------------------------------------------------------------------------------


def test_what_is_kept_of_a_row_is_small_and_keeps_inner_products() -> None:
    columns = OutputColumns([KIND])
    assert kept_type(columns, [0]).itemsize == 8 + 3 * 4 + 4 + N_VALUES
    states = np.random.default_rng(1).normal(size=(200, 2048)).astype(np.float32)
    states[100:] += np.random.default_rng(2).normal(size=2048)
    logs = np.log([0.2, 0.3, 0.5])
    kept = [base64.b64decode(kept_of("x", [logs], [state])) for state in states]
    read = np.frombuffer(b"".join(kept), kept_type(columns, [0]))
    assert read["log_p 0"] == pytest.approx(np.tile(logs, (200, 1)), abs=1e-6)
    values = read["values 0"] * read["scale 0"][:, None] * np.sqrt(2048 / N_VALUES)
    difference = values[:100].mean(axis=0) - values[100:].mean(axis=0)
    wanted = states[:100].mean(axis=0) - states[100:].mean(axis=0)
    assert np.linalg.norm(difference) == pytest.approx(np.linalg.norm(wanted), rel=0.15)
    assert len(set(read["text"].tolist())) == 1


def test_a_short_state_is_kept_as_it_is() -> None:
    state = np.arange(100, dtype=np.float32)
    assert projected(state).tolist() == [*state.tolist(), *[0.0] * (N_VALUES - 100)]
    columns = np.eye(600, dtype=np.float32)
    matrix = np.array([projected(row) for row in columns])
    assert matrix.T @ matrix == pytest.approx(np.eye(N_VALUES), abs=1e-5)


# ---- with a model ------------------------------------------------------------------------------

SUBJECTS = ["the invoice", "the price", "my order", "the lamp", "a refund", "the table"]
FRAMES = ["Where is {}?", "{} was wrong.", "How much is {}?", "I paid {} twice.", "Send me {}."]
TEXTS = [f"{i}: {frame.format(each)}" for i in range(3) for frame in FRAMES for each in SUBJECTS]


def test_the_answers_are_those_of_calibrate_with_the_same_inputs(
    tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate is open, because the embedded model's own answers are hardly better than chance.

    With three options the gate accepts by a margin that rounding does not change.
    """
    question = Choice("Which team?", ["billing", "sales", "delivery"], "team")
    monkeypatch.setattr("eliza_ffi.learning.self_training.MAX_LOSS", 1.0)
    table = table_of(tmp_path / "in.csv", TEXTS)
    n_read: list[int] = []
    runs = DecisionPlan.runs

    def counted(*arguments: Any, **more: Any) -> Any:
        n_read.append(1)
        return runs(*arguments, **more)

    monkeypatch.setattr(DecisionPlan, "runs", counted)
    result = decide_table(tiny_model, table, "body", question, tmp_path / "out.jsonl", learn=True)
    assert len(n_read) == len(TEXTS) + 1  # and the test before the first row
    calibration = calibrate(tiny_model, question, inputs=TEXTS)
    (fitted,) = calibration.questions
    assert fitted.rows is not None
    assert fitted.rows.agreement > fitted.rows.own_agreement + 0.02
    assert (fitted.rows.head is not None) == result.learned["team"].is_accepted
    decided = tiny_model.decide_many(TEXTS, question, calibration=calibration)
    found = [row["team_probabilities"]["sales"] for row in rows_of(tmp_path / "out.jsonl")]
    wanted = [decision["team"].distribution[1] for decision in decided]
    own = [each["team"].distribution[1] for each in tiny_model.decide_many(TEXTS, question)]
    moved = np.abs(np.subtract(own, wanted)).mean()
    assert np.abs(np.subtract(found, wanted)).mean() < 0.7 * moved  # values are rounded to 8 bits


def test_states_are_read_in_the_passes_that_score_the_options(
    tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning reads no token of a row again, and takes no pass of its own."""
    counted: list[tuple[int, int]] = []
    stats = tiny_model.binding.stats

    def noted(stream: Any) -> Any:
        found = stats(stream)
        counted.append((found.prompt_tokens, found.forward_passes))
        return found

    table = table_of(tmp_path / "in.csv", TEXTS)
    monkeypatch.setattr(tiny_model.binding, "stats", noted)
    rows = []
    for learn in (False, True):
        decide_table(tiny_model, table, "body", TEAM, tmp_path / f"{learn}.csv", learn=learn)
        rows.append(sorted(counted[-len(TEXTS) :]))
        counted.clear()
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("questions", "settings", "message"),
    [
        (TEAM, {"think": 5}, "learn cannot be combined with think"),
        (Score("How?", ["low", "high"], "s"), {}, "scores cannot learn from rows"),
        (Choice("Which?", [f"o{i}" for i in range(300)]), {}, "a choice of at most 255 options"),
        (TEAM, {"limit": 59}, "learn needs at least 60 different rows, got 59 in the first 59"),
    ],
)
def test_what_cannot_learn_is_an_error_before_the_first_row(
    tiny_model: Model, tmp_path: Path, questions: Any, settings: dict[str, Any], message: str
) -> None:
    table = table_of(tmp_path / "in.csv", TEXTS)
    with pytest.raises(InvalidArgumentError, match=message):
        output = tmp_path / "out.csv"
        decide_table(tiny_model, table, "body", questions, output, learn=True, **settings)
    assert not list(tmp_path.glob("out*"))


def test_a_calibration_copies_and_a_reranker_cannot_learn(
    tiny_model: Model, library: Any, tmp_path: Path
) -> None:
    table, output = table_of(tmp_path / "in.csv", TEXTS), tmp_path / "out.csv"
    fitted = calibrate(tiny_model, TEAM, [(text, {"team": "sales"}) for text in TEXTS[:20]])
    with pytest.raises(InvalidArgumentError, match="cannot be combined with a calibration, which"):
        decide_table(tiny_model, table, "body", TEAM, output, learn=True, calibration=fitted)
    copies = table_of(tmp_path / "copies.csv", ["x", "y", ""] * 100)
    with pytest.raises(InvalidArgumentError, match="at least 60 different rows, got 2$"):
        decide_table(tiny_model, copies, "body", TEAM, output, learn=True)
    write_reranker(tmp_path / "reranker.gguf")
    with (
        Model(tmp_path / "reranker.gguf", library=library) as model,
        pytest.raises(InvalidArgumentError, match="learn needs hidden states, which this model"),
    ):
        decide_table(model, table, "body", TEAM, output, learn=True)


def test_rows_learn_from_answers_divided_by_a_prior(tiny_model: Model, tmp_path: Path) -> None:
    table = table_of(tmp_path / "in.csv", TEXTS)
    for name in ("out.jsonl", "again.jsonl"):
        result = decide_table(
            tiny_model, table, "body", TEAM, tmp_path / name, learn=True, prior="inputs", limit=80
        )
        assert result.learned["team"].training[0].n_rows == 80
    result = decide_table(
        tiny_model, table, "body", TEAM, tmp_path / "out.jsonl", learn=True, prior="inputs"
    )
    assert (result.new_rows, result.learned["team"].training[0].n_rows) == (10, 90)


def test_labels_learn_one_by_one(tiny_model: Model, tmp_path: Path) -> None:
    labels = MultiLabel("What is it about?", ["money", "furniture"], "about")
    table = table_of(tmp_path / "in.csv", TEXTS)
    result = decide_table(tiny_model, table, "body", [labels, TEAM], tmp_path / "o.csv", learn=True)
    assert len(result.learned["about"].training) == 2
    assert len(result.learned["team"].training) == 1
    assert result.counts.errors == 0
