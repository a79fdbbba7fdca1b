"""Tests of table jobs: reading, writing, errors, resuming, retries, and Parquet."""

from __future__ import annotations

import csv
import datetime
import json
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import table_work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_rows import ENVIRONMENT, content, facts_of, kill_after, stored_rows
from table_work import QUESTIONS, SETTINGS, CallTask, FunctionDecider, decide

from eliza_ffi.decisions.answers import Decision, DecisionUsage, answer_of, collect, expand
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate
from eliza_ffi.errors import (
    ChatTemplateError,
    ContextFullError,
    ElizaError,
    InvalidArgumentError,
    NativeFaultError,
    NotSupportedError,
)
from eliza_ffi.tables import (
    AnswerCounts,
    OutputColumns,
    TableResult,
    TableRow,
    TableStep,
    decide_rows,
    open_table,
)
from eliza_ffi.tables import run as run_job
from eliza_ffi.tables import text_tables as text_tables_module
from eliza_ffi.tables.file_formats import write_csv as write_csv_rows
from eliza_ffi.tables.file_formats import write_jsonl as write_jsonl_rows
from eliza_ffi.tables.rows import json_value

ANY_SUFFIX = pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".tsv", ".parquet"])

BODIES = [
    "Hello, all",
    'He message "no"\nand left',
    "Grüße 日本 😀",
    "",
    "x" * 2000,
    "a;b,c\td",
    "\r",
]


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def table_of(folder: Path, suffix: str, n_rows: int = 20) -> Path:
    rows = [{"id": str(i), "body": f"{BODIES[i % len(BODIES)]} {i}"} for i in range(n_rows)]
    path = folder / f"in{suffix}"
    if suffix == ".jsonl":
        return write_jsonl(path, rows)
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
        return path
    return write_csv(path, [["id", "body"], *[row.values() for row in rows]])


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [dict(row.fields) for row in open_table(path).rows()]


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def once_at(row: int, act: Callable[[], Any]) -> Callable[[TableStep], None]:
    """Return a progress callback that calls `act` at one row."""
    return lambda step: act() if step.new_rows == row else None


def run(table: Path, output: Path, column: str = "body", **options: Any) -> TableResult:
    questions = options.pop("questions", QUESTIONS)
    work = options.pop("decide", lambda given: decide(given, questions))
    of_decider = {"settings", "described", "at_once"} & options.keys()
    more = {"at_once": 3, **{name: options.pop(name) for name in of_decider}}
    decider = FunctionDecider(work, column, questions, **more)
    return run_job(open_table(table), decider, output, **options)


def assert_whole(table: Path, output: Path, **options: Any) -> None:
    """Check that an output is the same as if a job had decided the whole table at once."""
    whole = output.with_name(f"whole{output.suffix}")
    run(table, whole, **options)
    assert content(output) == content(whole)


# ---- reading -----------------------------------------------------------------------------------


def errors_of(path: Path) -> list[str | None]:
    return [row.error for row in open_table(path).rows()]


def test_a_csv_file_can_have_a_bom_quotes_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes('\ufeffid,body\r\n\r\n1,"two\r\nlines, ""quoted"""\n2,x'.encode())
    assert open_table(path).columns == ("id", "body")
    rows = list(open_table(path).rows())
    assert [dict(row.fields) for row in rows] == [
        {"id": "1", "body": 'two\r\nlines, "quoted"'},
        {"id": "2", "body": "x"},
    ]
    assert [row.place for row in rows] == ["in.csv, lines 3 to 4", "in.csv, line 5"]
    assert rows[-1].done == 1.0


def test_columns_without_names_get_names_if_there_are_several(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "in.csv", [["", "body", "", ""], ["1", "x", "", "y"]])
    assert open_table(path).columns == ("column 1", "body", "column 3", "column 4")
    run(path, tmp_path / "out.csv", keep=["column 1", "column 4"])
    assert read_rows(tmp_path / "out.csv")[0]["column 4"] == "y"
    assert open_table(write_csv(path, [["", "body"], ["1", "x"]])).columns == ("", "body")


def test_a_malformed_csv_row_is_an_error_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('a,b\n1\n1,2,3\n1,"x"y\n1,2\n1,"never closed\n', encoding="utf-8")
    one, many, quote, fine, unclosed = errors_of(path)
    assert one == "expected 2 fields as in the header, got 1"
    assert many == "expected 2 fields as in the header, got 3"
    assert str(quote).startswith("malformed")
    assert fine is None
    assert str(unclosed).startswith("malformed")


def test_a_malformed_jsonl_line_is_an_error_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    deep = "[" * 100_000
    path.write_text(
        f'{{"a": 1}}\n\n{{"a": \n[1]\n{deep}\n{{"a": NaN}}\n{{"a": {"9" * 5000}}}\n{{"a": 2}}',
        encoding="utf-8",
    )
    rows = list(open_table(path).rows())
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.place for row in rows][:2] == ["in.jsonl, line 1", "in.jsonl, line 3"]
    assert [row.error is None for row in rows] == [True, False, False, False, True, False, True]
    assert rows[2].error == "malformed: expected a JSON object, got a list"
    assert rows[4].fields == {"a": None}
    assert rows[6].fields == {"a": 2}


def test_a_row_nested_too_deeply_has_an_error(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    nested = [f'{{"body": "x", "meta": {"[" * n}{"]" * n}}}' for n in (150, 450, 950)]
    wide = json.dumps({"body": "x", "meta": [[]] * 1000})
    surrogate = '{"body": "x", "\\ud800": 1}'
    path.write_text("\n".join([*nested, wide, surrogate]), encoding="utf-8")
    run(path, tmp_path / "out.jsonl")
    errors = [row["error"] for row in read_rows(tmp_path / "out.jsonl")]
    assert [error is None for error in errors] == [True, False, False, True, True]
    assert errors[1] == "in.jsonl, line 2: malformed: nested more than 200 levels deep"


def test_invalid_utf8_is_an_error_only_in_its_row(tmp_path: Path) -> None:
    """Before, bytes in a column that is only copied were replaced without an error."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"id,body\n1,caf\xe9\ncaf\xe9,x\n2,y\n")
    run(path, tmp_path / "out.jsonl")
    rows = read_rows(tmp_path / "out.jsonl")
    assert rows[0]["error"] == "in.csv, line 2: column 'body' is not UTF-8"
    assert rows[0]["body"] == "caf\ufffd"
    errors = [row["error"] for row in rows[1:]]
    assert errors == ["in.csv, line 3: column 'id' is not UTF-8", None]
    assert rows[1]["id"] == "caf\ufffd"
    run(path, tmp_path / "body.jsonl", keep=["body"])
    errors = [row["error"] for row in read_rows(tmp_path / "body.jsonl")]
    assert [error is None for error in errors] == [False, True, True]


def test_invalid_utf8_in_nested_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(
        b'{"body": "x", "meta": {"name": "caf\xe9"}}\n{"body": "x", "meta": {"name": "\\ud800"}}\n'
    )
    run(path, tmp_path / "out.jsonl")
    errors = [row["error"] for row in read_rows(tmp_path / "out.jsonl")]
    assert errors == ["in.jsonl, line 1: column 'meta' is not UTF-8", None]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_over_the_limit_is_an_error_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(text_tables_module, "MAX_BYTES", 100)
    path = tmp_path / "in.jsonl"
    long = json.dumps({"a": "x" * 1000})
    path.write_text(f'{{"a": 1}}\n{long}\n{{"a": 2}}\n{long}{end}', encoding="utf-8")
    assert errors_of(path) == [None, errors_of(path)[1], None, errors_of(path)[1]]
    assert errors_of(path)[1] == "malformed: the line is longer than 100 bytes"
    csv_path = tmp_path / "in.csv"
    csv_path.write_text(f"a,b\n1,2\n{'x' * 1000},1\n3,4{end}", encoding="utf-8")
    assert [error is None for error in errors_of(csv_path)] == [True, False, True]


def test_a_field_of_several_megabytes_is_read(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "in.csv", [["body"], ["x\n" * 200_000 + "y" * 4_000_000]])
    (row,) = open_table(path).rows()
    assert len(row.fields["body"]) == 4_400_000


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("in.csv", b"", "has no header"),
        ("in.csv", b"a,b,a\n", "two columns 'a'"),
        ("in.csv", b"a,\xff\n", "not UTF-8"),
        ("in.csv", "a,b\n".encode("utf-16"), "UTF-16"),
        ("in.jsonl", '{"a": 1}\n'.encode("utf-16"), "UTF-16"),
        ("in.parquet", b"nonsense", r"in\.parquet is not a Parquet file"),
        ("in.txt", b"x", r"unsupported table format: .*in\.txt \(supported: \.csv, \.tsv,"),
    ],
)
def test_an_unusable_table_is_rejected(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidArgumentError, match=message):
        open_table(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("none.csv", "none.jsonl", "none.parquet"):
        with pytest.raises(FileNotFoundError, match=name):
            open_table(tmp_path / name)


def test_tabs_and_other_delimiters_are_read(tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("a\tb\n1\t2,3\n", encoding="utf-8")
    assert read_rows(tmp_path / "in.tsv") == [{"a": "1", "b": "2,3"}]
    (tmp_path / "in.csv").write_text("a;b\n1;2,3\n", encoding="utf-8")
    table = open_table(tmp_path / "in.csv", ";")
    assert [dict(row.fields) for row in table.rows()] == [{"a": "1", "b": "2,3"}]


@ANY_SUFFIX
def test_rows_at_the_beginning_can_be_skipped(tmp_path: Path, suffix: str) -> None:
    path = table_of(tmp_path, suffix)
    rows = list(open_table(path).rows())
    for after in (0, 1, 7, 13, 20, 30):
        assert list(open_table(path).rows(after)) == rows[after:]


# In Python 3.10, the csv module does not support NUL.
NO_NUL = "\0" if sys.version_info < (3, 11) else ""
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=NO_NUL), max_size=30)
ROWS = st.lists(st.tuples(TEXTS, TEXTS), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_csv_output_is_read_back_unchanged(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = tmp_path / "round.csv"
    names = ("row", "a,\n", "")
    cells = [dict(zip(names, (str(i), *row), strict=True)) for i, row in enumerate(rows, 1)]
    with path.open("wb") as file:
        write_csv_rows(file, cells, names, ",")
    assert read_rows(path) == cells
    # Python's own reader gives the same rows.
    with path.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file))[1:] == [[str(i), *row] for i, row in enumerate(rows, 1)]


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="csv supports NUL since Python 3.11")
def test_nul_is_escaped_in_csv_on_python_3_10(tmp_path: Path) -> None:
    with (tmp_path / "nul.csv").open("wb") as file:
        write_csv_rows(file, [{"row": 1, "text": "a\0b"}], ("row", "text"), ",")
    assert read_rows(tmp_path / "nul.csv") == [{"row": "1", "text": "a\\x00b"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(JSON, max_size=6))
def test_jsonl_output_is_read_back_unchanged(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "round.jsonl"
    rows = [{"row": i, "value": json_value(value)} for i, value in enumerate(values, 1)]
    with path.open("wb") as file:
        write_jsonl_rows(file, rows)
    assert read_rows(path) == rows


def test_values_are_converted_to_json_types() -> None:
    moment = datetime.datetime(2026, 11, 22, 8, 0, tzinfo=datetime.timezone.utc)
    given = {"a": moment, "b": [float("nan"), Decimal("1.50")], 3: b"\x00", "c": "\ud800x"}
    assert json_value(given) == {
        "a": "2026-11-22T08:00:00+00:00",
        "b": [None, "1.50"],
        "3": "AA==",
        "c": "\ufffdx",
    }


# ---- columns -----------------------------------------------------------------------------------


def test_a_row_has_the_input_columns_and_every_answer(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "in.csv", [["id", "body"], ["7", "hello"]])
    run(table, tmp_path / "out.jsonl", settings={"min_probability": 0.5})
    (row,) = read_rows(tmp_path / "out.jsonl")
    decision = decide("hello")
    assert list(row) == [
        *("row", "id", "body"),
        *("topic", "topic_probability", "topic_confidence", "topic_probabilities"),
        *("urgent", "urgent_probability", "urgent_confidence", "urgent_probabilities"),
        *("anger", "anger_probability", "anger_label", "anger_confidence", "anger_probabilities"),
        *("tags", "tags_confidence", "tags_probabilities"),
        *("review", "error"),
    ]
    assert (row["row"], row["id"], row["body"]) == (1, "7", "hello")
    assert row["topic"] == decision["topic"].choice
    assert set(row["topic_probabilities"]) == {"billing", "sales", "true"}
    assert row["urgent_probability"] == decision["urgent"].probability
    assert row["anger"] == pytest.approx(decision["anger"].score)
    assert row["anger_label"] == decision["anger"].label
    assert row["tags"] == list(decision["tags"].value)
    assert (row["review"], row["error"]) == (False, None)


def test_csv_has_the_same_columns_except_the_distributions(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "in.csv", [["id", "body"], ["7", "hello"]])
    run(table, tmp_path / "out.csv")
    run(table, tmp_path / "out.jsonl")
    (row,) = read_rows(tmp_path / "out.csv")
    (jsonl_row,) = read_rows(tmp_path / "out.jsonl")
    assert list(row) == [name for name in jsonl_row if not name.endswith("_probabilities")]
    assert float(row["topic_probability"]) == jsonl_row["topic_probability"]
    assert row["urgent"] == json.dumps(jsonl_row["urgent"])
    assert json.loads(row["tags"]) == jsonl_row["tags"]
    assert row["error"] == ""


def test_an_input_column_never_replaces_an_output_column(tmp_path: Path) -> None:
    header = ["topic", "input_topic", "error", "body"]
    table = write_csv(tmp_path / "in.csv", [header, ["sales", "x", "none", "hello"]])
    run(table, tmp_path / "out.jsonl")
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert row["input_input_topic"] == "sales"
    assert row["input_topic"] == "x"
    assert row["input_error"] == "none"
    assert row["error"] is None
    assert row["topic"] in ("billing", "sales", True)


OUTPUT_NAMES = ("review", *(f"team_{name}" for name in ("label", "probabilities", "confidence")))
OUTPUT_NAMES += ("team_allowed_probability",)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_kept_column_is_never_read_as_an_output_column(tmp_path: Path, suffix: str) -> None:
    row: dict[str, Any] = {"body": "hello", **dict.fromkeys(OUTPUT_NAMES, "MINE"), "review": "true"}
    table = write_jsonl(tmp_path / "in.jsonl", [row, {**row, "body": "other"}])
    team = (Choice("Which?", ["billing", "sales"], "team"),)
    output = tmp_path / f"out{suffix}"
    for _ in range(2):  # the second run decides nothing and only counts
        result = run(table, output, questions=team)
        assert (result.counts.rows, result.counts.review) == (2, 0)
    for found in read_rows(output):
        shown = {name: found.get(f"input_{name}", found.get(name)) for name in OUTPUT_NAMES}
        assert shown == {name: row[name] for name in OUTPUT_NAMES}
        assert 0.0 <= float(found["team_confidence"]) <= 1.0
        assert isinstance(found.get("input_team_probabilities", ""), str)


def test_a_renamed_kept_column_keeps_its_type_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"body": ["x"], "team_label": [7], "team": [8], "review": [9]}), path)
    run(path, tmp_path / "out.parquet", questions=(Choice("?", ["a", "b"], "team"),))
    found = pq.read_table(tmp_path / "out.parquet")
    for name, value in (("team_label", 7), ("input_team", 8), ("review", 9)):
        assert str(found.schema.field(name).type) == "int64"
        assert found[name].to_pylist() == [value]


def test_questions_with_colliding_columns_are_rejected() -> None:
    questions = (Predicate("x", "a"), Predicate("y", "a_probability"))
    with pytest.raises(InvalidArgumentError, match="'a_probability'"):
        OutputColumns(questions)
    with pytest.raises(InvalidArgumentError, match="'error'"):
        OutputColumns((Predicate("x", "error"),))


def test_columns_that_appear_late_in_jsonl_are_kept(tmp_path: Path) -> None:
    rows = [{"body": "x", "n": i} for i in range(150)] + [{"body": "y", "late": [1]}]
    table = write_jsonl(tmp_path / "in.jsonl", rows)
    run(table, tmp_path / "out.jsonl")
    found = read_rows(tmp_path / "out.jsonl")
    assert found[-1]["late"] == [1]
    assert found[0]["late"] is None


def test_rows_with_an_abstention_are_marked_for_review(tmp_path: Path) -> None:
    table = table_of(tmp_path, ".csv")

    def work(given: Any) -> Decision:
        return decide(given, min_probability=0.5)

    result = run(table, tmp_path / "out.jsonl", decide=work, settings={"min_probability": 0.5})
    rows = read_rows(tmp_path / "out.jsonl")
    for row in rows:
        is_unsure = max(row["topic_probability"], row["anger_probability"]) < 0.5
        assert row["review"] is (row["topic"] is None or row["anger"] is None)
        assert row["review"] or not is_unsure
    assert result.counts.review == sum(row["review"] for row in rows)
    assert 0 < result.counts.review <= 20


def test_an_abstention_is_an_empty_answer_marked_for_review() -> None:
    question = Choice("?", ["a", "b"], "q")
    columns = OutputColumns([question], settings={"min_probability": 0.5})
    answer = answer_of(question, [0.6, 0.4], min_probability=0.7)
    cells = columns.cells(TableRow(1, "x", {}), Decision((answer,), DecisionUsage(0, 0, 0, 0.0)))
    assert (cells["q"], cells["review"]) == (None, True)
    assert cells["q_probability"] == 0.6
    counts = AnswerCounts(columns, [cells, columns.cells(TableRow(2, "x", {}), None, "too long")])
    assert counts.answers["q"] == {}
    assert (counts.unanswered, counts.errors) == ({"q": 1}, 1)


def test_a_row_that_no_label_fits_counts_as_unanswered() -> None:
    question = MultiLabel("?", ["a", "b"], "q")
    columns = OutputColumns([question])
    rows = []
    for low, high in ((0.1, 0.9), (0.1, 0.2)):
        each = [
            answer_of(predicate, [p, 1 - p])
            for predicate, p in zip(expand(question), (low, high), strict=True)
        ]
        decision = Decision((collect(question, each),), DecisionUsage(0, 0, 0, 0.0))
        rows.append(columns.cells(TableRow(1, "x", {}), decision))
    counts = AnswerCounts(columns, rows)
    assert (counts.answers["q"], counts.unanswered) == ({"b": 1}, {"q": 1})


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".tsv"])
def test_a_second_run_counts_the_same_answers(tmp_path: Path, suffix: str) -> None:
    table = table_of(tmp_path, ".csv")
    first = run(table, tmp_path / f"out{suffix}", settings={"min_probability": 0.5}).counts
    again = run(table, tmp_path / f"out{suffix}", settings={"min_probability": 0.5})
    assert again.new_rows == 0
    assert vars(again.counts) | {"_columns": None} == vars(first) | {"_columns": None}
    assert sum(first.answers["topic"].values()) == 20 - first.errors
    assert set(first.answers["anger"]) <= {"calm", "cross", "furious"}


# ---- rows with errors ---------------------------------------------------------------------------


def test_a_row_with_an_error_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        '{"body": "fine"}\n{"body": null}\n{"id": 1}\nnonsense\n{"body": "  "}\n'
        '{"body": "too long"}\n{"body": [{"role": "user", "content": "hi"}]}\n{"body": "end"}\n',
        encoding="utf-8",
    )

    def work(given: Any) -> Decision:
        if given == "too long":
            raise ContextFullError("9,000 tokens do not fit the context")
        return decide(given)

    result = run(path, tmp_path / "out.jsonl", decide=work)
    errors = [row["error"] for row in read_rows(tmp_path / "out.jsonl")]
    assert errors[0] is None
    assert errors[1] == "in.jsonl, line 2: no value in column 'body'"
    assert errors[2] == "in.jsonl, line 3: no value in column 'body'"
    assert errors[3].startswith("in.jsonl, line 4: malformed: not JSON")
    assert errors[4] == "in.jsonl, line 5: column 'body' is empty"
    assert errors[5] == "in.jsonl, line 6: 9,000 tokens do not fit the context"
    assert errors[6:] == [None, None]
    assert (result.counts.rows, result.counts.errors) == (8, 5)


@pytest.mark.parametrize(
    "error", [NativeFaultError("gone"), ChatTemplateError("none"), OSError("io")]
)
def test_a_model_failure_stops_the_job_which_can_be_resumed(
    tmp_path: Path, error: Exception
) -> None:
    table = table_of(tmp_path, ".csv", 12)

    def work(given: Any) -> Decision:
        if given.endswith(" 6"):
            raise error
        return decide(given)

    with pytest.raises(type(error)):
        run(table, tmp_path / "out.csv", decide=work)
    assert run(table, tmp_path / "out.csv").new_rows == 6
    assert_whole(table, tmp_path / "out.csv")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_missing_column_stops_the_job_at_once(tmp_path: Path, suffix: str) -> None:
    table = table_of(tmp_path, suffix)
    with pytest.raises(InvalidArgumentError, match="no column 'text'; its columns are 'id', 'bod"):
        run(table, tmp_path / "out.jsonl", "text")
    with pytest.raises(InvalidArgumentError, match="no column 'date'"):
        run(table, tmp_path / "out.jsonl", keep=["date"])
    assert not (tmp_path / "out.jsonl").exists()


# ---- resuming ----------------------------------------------------------------------------------


def job_of(output: Path) -> Path:
    return output.with_name(output.name + ".job")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_job_killed_at_any_byte_keeps_all_decided_rows(tmp_path: Path, suffix: str) -> None:
    table = table_of(tmp_path, ".csv", 8)
    output = tmp_path / f"out{suffix}"
    ends: list[int] = []
    settings: dict[str, Any] = {"questions": QUESTIONS[:1], "keep": ["body"], "at_once": 1}
    run(table, output, progress=lambda _: ends.append(job_of(output).stat().st_size), **settings)
    whole, written = output.read_bytes(), job_of(output).read_bytes()
    begin = written.index(b"\n") + 1  # the description of the job is written before any row
    for size in range(begin, ends[-1] + 1):
        output.unlink()
        job_of(output).write_bytes(written[:size])
        result = run(table, output, **settings)
        assert output.read_bytes() == whole, size
        assert result.new_rows == sum(end > size for end in ends), size


@pytest.mark.slow
@ANY_SUFFIX
def test_a_job_killed_three_times_writes_every_row_once(tmp_path: Path, suffix: str) -> None:
    table = table_of(tmp_path, ".csv", 400)
    output = tmp_path / f"out{suffix}"
    random_times = random.Random(7)
    command = [sys.executable, table_work.__file__, str(table), str(output)]
    n_before = 0
    for _ in range(3):
        n_decided = kill_after(command, 1, random_times.uniform(0.0, 0.08))
        rows = stored_rows(output)
        assert rows == list(range(1, len(rows) + 1))
        assert len(rows) >= n_before + n_decided
        n_before = len(rows)
        assert not output.exists()
    subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    assert_whole(table, output)
    assert [int(row["row"]) for row in read_rows(output)] == list(range(1, 401))


def test_a_slow_row_limits_how_many_rows_are_read_ahead(tmp_path: Path) -> None:
    read: list[int] = []

    def rows() -> Iterator[TableRow]:
        for i in range(1, 500):
            read.append(i)
            yield TableRow(i, f"row {i}", {"body": f"text {i}"})

    decided = FunctionDecider(at_once=2).decide_rows(rows())
    assert next(decided).row.number == 1
    decided.close()
    assert len(read) <= 20


def test_closing_the_rows_cancels_the_tasks_that_run() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    class SlowTask(CallTask):
        def cancel(self) -> None:
            cancelled.set()

    def start(row: TableRow) -> Any:
        if row.number == 1:
            return CallTask(lambda: decide("text"))
        begun.set()
        return SlowTask(lambda: decide(cancelled.wait(60)))

    rows = [TableRow(i, f"row {i}", {}) for i in (1, 2)]
    decided = decide_rows(rows, start, at_once=2)
    assert next(decided).row.number == 1
    assert begun.wait(60)
    decided.close()  # waits for the tasks
    assert cancelled.is_set()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_interrupted_job_can_be_resumed(tmp_path: Path, suffix: str) -> None:
    table, output = table_of(tmp_path, suffix, 30), tmp_path / f"out{suffix}"
    with pytest.raises(KeyboardInterrupt):
        run(table, output, progress=once_at(11, interrupt))
    assert not output.exists()
    steps: list[TableStep] = []
    result = run(table, output, progress=steps.append)
    assert (result.new_rows, result.counts.rows, result.is_whole) == (19, 30, True)
    assert [step.rows for step in steps] == list(range(12, 31))
    assert steps[0].new_rows == 1
    assert 0.0 < steps[0].done_before <= steps[0].done < 1.0
    assert steps[-1].done == 1.0


@pytest.mark.parametrize(("of", "suffix"), [(".jsonl", ".csv"), (".parquet", ".parquet")])
def test_a_run_with_a_higher_limit_resumes_the_job(tmp_path: Path, of: str, suffix: str) -> None:
    table, output = table_of(tmp_path, of, 20), tmp_path / f"out{suffix}"
    assert run(table, output, limit=5).is_whole is False
    assert len(read_rows(output)) == 5
    assert run(table, output, limit=5).new_rows == 0
    result = run(table, output)
    assert (result.new_rows, result.is_whole) == (15, True)
    assert_whole(table, output)


def test_a_low_limit_writes_the_rows_of_an_interrupted_run(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 30), tmp_path / "out.csv"
    with pytest.raises(KeyboardInterrupt):
        run(table, output, progress=once_at(11, interrupt))
    result = run(table, output, limit=1)
    assert (result.new_rows, result.is_whole, len(read_rows(output))) == (0, False, 11)
    assert run(table, output).new_rows == 19
    assert len(read_rows(output)) == 30


# ---- retries of rows with errors ---------------------------------------------------------------


@ANY_SUFFIX
@pytest.mark.parametrize("of", [".csv", ".jsonl", ".parquet"])
def test_a_retry_decides_only_rows_with_errors(tmp_path: Path, suffix: str, of: str) -> None:
    table = table_of(tmp_path, of, 60)
    output, whole = tmp_path / f"out{suffix}", tmp_path / f"whole{suffix}"
    run(table, output, decide=table_work.fail_some)
    run(table, whole)
    failed = [row["body"] for row in read_rows(output) if row["error"]]
    lasting = [row["body"] for row in read_rows(whole) if row["error"]]
    assert len(failed) > len(lasting) + 5
    asked: list[str] = []
    steps: list[TableStep] = []

    def decide_noting(given: Any) -> Decision:
        asked.append(given)
        return decide(given)

    result = run(
        table, output, decide=decide_noting, retry_errors=True, progress=steps.append, at_once=1
    )
    assert asked == [body for body in failed if body not in lasting]
    assert content(output) == content(whole)
    assert (result.new_rows, result.counts.rows, result.is_whole) == (len(failed), 60, True)
    assert result.counts.errors == len(lasting)
    assert [step.new_rows for step in steps] == list(range(1, len(failed) + 1))
    assert {path.name for path in tmp_path.iterdir()} == {
        *(table.name, output.name, whole.name, f"{output.name}.job", f"{whole.name}.job")
    }


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_retry_killed_three_times_writes_the_same_output(tmp_path: Path, suffix: str) -> None:
    table = table_of(tmp_path, ".csv", 500)
    output = tmp_path / f"out{suffix}"
    run(table, output, decide=table_work.fail_some, at_once=4)
    before, n_before = content(output), 500
    random_times = random.Random(3)
    command = [sys.executable, table_work.__file__, str(table), str(output), "--retry-errors"]
    for _ in range(3):
        n_decided = kill_after(command, 1, random_times.uniform(0.0, 0.03))
        assert content(output) == before
        rows = stored_rows(output)
        assert len(rows) >= n_before + n_decided
        n_before = len(rows)
    subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    assert_whole(table, output)


def test_an_interrupted_retry_can_be_resumed(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 60), tmp_path / "out.csv"
    first = run(table, output, decide=table_work.fail_some)
    before = output.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run(table, output, retry_errors=True, progress=once_at(6, interrupt))
    assert output.read_bytes() == before
    again = run(table, output)  # a run without retries decides nothing, and writes what is known
    assert (again.new_rows, again.counts.rows) == (0, 60)
    assert again.counts.errors < first.counts.errors
    assert run(table, output, retry_errors=True).new_rows == again.counts.errors
    assert_whole(table, output)


def test_a_retry_ends_at_the_limit_and_then_resumes_the_job(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".jsonl", 30), tmp_path / "out.jsonl"
    run(table, output, decide=table_work.fail_some, limit=20)
    failed = [row["row"] for row in read_rows(output) if row["error"]]
    early = [row for row in failed if row <= 10]
    assert 0 < len(early) < len(failed)
    assert run(table, output, retry_errors=True, limit=10).new_rows == len(early)
    still = [row["row"] for row in read_rows(output) if row["error"]]
    assert set(still) >= set(failed) - set(early)
    result = run(table, output, retry_errors=True)
    assert (result.counts.rows, result.is_whole) == (30, True)
    assert_whole(table, output)


def test_a_retry_of_another_job_or_during_another_run_is_rejected(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 12), tmp_path / "out.csv"
    run(table, output, decide=table_work.fail_some)
    before = output.read_bytes()
    with pytest.raises(InvalidArgumentError, match="different settings: model"):
        run(table, output, retry_errors=True, described={"model": "another"})

    def second(step: TableStep) -> None:
        with pytest.raises(ElizaError, match="another process is writing"):
            run(table, output, retry_errors=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(table, output, retry_errors=True, progress=second)
    assert output.read_bytes() == before


def test_overwrite_discards_an_unfinished_retry(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 12), tmp_path / "out.csv"
    run(table, output, decide=table_work.fail_some)
    with pytest.raises(KeyboardInterrupt):
        run(table, output, retry_errors=True, progress=interrupt)
    assert len(stored_rows(output)) == 13
    run(table, output, overwrite=True, questions=QUESTIONS[:1])
    assert stored_rows(output) == list(range(1, 13))
    assert run(table, output, retry_errors=True, questions=QUESTIONS[:1]).counts.rows == 12


# ---- files that change during a run ------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    """Change a file as another program might."""
    data = path.read_bytes()
    if how == "delete":
        path.unlink()
    elif how == "replace":
        path.rename(path.with_name("moved"))
        path.write_bytes(data)
    elif how == "truncate":
        os.truncate(path, len(data) // 2)
    elif how == "append":
        with path.open("ab") as file:
            file.write(b"more" * 10_000)
    else:
        with path.open("r+b") as file:
            file.seek(len(data) - 5)
            file.write(b"X")


@ANY_SUFFIX
@pytest.mark.parametrize("of", [".csv", ".jsonl", ".parquet"])
def test_a_job_fails_if_its_input_changed_during_the_run(
    tmp_path: Path, suffix: str, of: str
) -> None:
    table, output = table_of(tmp_path, of, 60), tmp_path / f"out{suffix}"
    first, second = table.read_bytes(), table_of(tmp_path, of, 30).read_bytes()
    table.write_bytes(first)
    change = once_at(5, lambda: table.write_bytes(second))
    with pytest.raises(ElizaError, match=f"{table.name} was changed while the job was running"):
        run(table, output, progress=change, at_once=1)
    assert not output.exists()
    assert stored_rows(output) == []
    table.write_bytes(first)
    result = run(table, output, limit=40)
    change = once_at(5, lambda: table.write_bytes(second))
    with pytest.raises(ElizaError, match="the answers of this run are discarded"):
        run(table, output, progress=change, at_once=1)
    assert len(stored_rows(output)) == 40
    with pytest.raises(InvalidArgumentError, match="different settings: input"):
        run(table, output)
    table.write_bytes(first)
    result = run(table, output)
    assert (result.new_rows, result.counts.rows, result.is_whole) == (20, 60, True)
    assert_whole(table, output)


def test_a_retry_fails_if_its_input_changed_and_leaves_the_output(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 30), tmp_path / "out.csv"
    run(table, output, decide=table_work.fail_some)
    before, first = output.read_bytes(), table.read_bytes()
    change = once_at(5, lambda: damage(table, "append"))
    with pytest.raises(ElizaError, match="was changed while the job was running"):
        run(table, output, retry_errors=True, progress=change)
    assert output.read_bytes() == before
    table.write_bytes(first)
    run(table, output, retry_errors=True)
    assert_whole(table, output)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_with_changed_columns_is_rejected(tmp_path: Path, suffix: str) -> None:
    table = open_table(table_of(tmp_path, suffix))
    if suffix == ".csv":
        write_csv(table.path, [["body", "id"], ["2", "1"]])
        names = ".*'id', 'body'.*'body', 'id'"
    else:  # only a type has changed
        pq.write_table(pa.table({"id": [1], "body": ["2"]}), table.path)
        names = ""
    with pytest.raises(InvalidArgumentError, match=rf"in\{suffix} was changed{names}"):
        next(table.rows())


CHANGES = ["truncate", "append", "overwrite"]


@ANY_SUFFIX
@pytest.mark.parametrize("how", ["delete", "replace", *CHANGES])
def test_a_job_writes_all_rows_even_if_its_output_changed(
    tmp_path: Path, suffix: str, how: str
) -> None:
    table, output = table_of(tmp_path, ".csv", 20), tmp_path / f"out{suffix}"
    run(table, output, limit=5)
    assert run(table, output, progress=once_at(10, lambda: damage(output, how))).new_rows == 15
    assert_whole(table, output)


@pytest.mark.parametrize("how", ["delete", "replace", *CHANGES])
def test_a_damaged_job_file_never_leads_to_missing_rows(tmp_path: Path, how: str) -> None:
    table, output = table_of(tmp_path, ".csv", 20), tmp_path / "out.csv"
    change = once_at(10, lambda: damage(job_of(output), how))
    try:
        run(table, output, progress=change, at_once=1)
    except ElizaError as error:
        assert "out.csv.job" in str(error)
        assert not output.exists()
        run(table, output, overwrite=True)
    assert_whole(table, output)


@ANY_SUFFIX
def test_a_deleted_output_is_written_again_without_deciding_a_row(
    tmp_path: Path, suffix: str
) -> None:
    table, output = table_of(tmp_path, ".csv", 20), tmp_path / f"out{suffix}"
    run(table, output)
    before = content(output)
    output.unlink()
    assert run(table, output).new_rows == 0
    assert content(output) == before


@ANY_SUFFIX
def test_a_link_to_the_output_stays_a_link(tmp_path: Path, suffix: str) -> None:
    table, target = table_of(tmp_path, ".csv", 20), tmp_path / "elsewhere" / f"target{suffix}"
    target.parent.mkdir()
    target.write_text("old")
    link = tmp_path / f"out{suffix}"
    link.symlink_to(target)
    run(table, link, overwrite=True)
    assert link.is_symlink()
    assert content(target) == content(link) != "old"


OTHER_JOBS: dict[str, dict[str, Any]] = {
    "model": {"described": {"model": "another"}},
    "questions": {"questions": QUESTIONS[:1]},
    "keep": {"keep": []},
    "column": {"column": "id"},
}


@pytest.mark.parametrize("named", OTHER_JOBS)
def test_the_output_of_another_job_is_rejected_and_not_changed(tmp_path: Path, named: str) -> None:
    table = table_of(tmp_path, ".csv", 4)
    output = tmp_path / "out.jsonl"
    run(table, output)
    before = output.read_bytes()
    with pytest.raises(InvalidArgumentError, match=f"different settings: .*{named}.*--overwrite"):
        run(table, output, **OTHER_JOBS[named])
    assert output.read_bytes() == before
    assert run(table, output, overwrite=True, **OTHER_JOBS[named]).new_rows == 4
    assert run(table, output, **OTHER_JOBS[named]).new_rows == 0
    with pytest.raises(InvalidArgumentError, match="different settings"):
        run(table, output)


def test_a_misspelt_column_of_a_wide_table_gets_a_hint(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "in.csv", [[*(f"c{i}" for i in range(500)), "body"]])
    message = "no column 'bdy'; its columns are 'c0', .* 'c19' and 481 more; did you mean 'body'?"
    with pytest.raises(InvalidArgumentError, match=message):
        run(table, tmp_path / "out.csv", "bdy")


def test_an_unknown_file_is_never_overwritten(tmp_path: Path) -> None:
    table = table_of(tmp_path, ".csv", 4)
    output = tmp_path / "out.csv"
    output.write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="exists, but out.csv.job does not"):
        run(table, output)
    assert output.read_text(encoding="utf-8") == "mine"
    with pytest.raises(InvalidArgumentError, match="is the input"):
        run(table, table)


@ANY_SUFFIX
@pytest.mark.parametrize("how", CHANGES)
def test_an_edited_output_is_rejected_and_not_changed(
    tmp_path: Path, suffix: str, how: str
) -> None:
    table, output = table_of(tmp_path, ".csv", 6), tmp_path / f"out{suffix}"
    run(table, output)
    damage(output, how)
    data = output.read_bytes()
    for again in ({}, {"retry_errors": True}):
        with pytest.raises(InvalidArgumentError, match="was changed after the job wrote it"):
            run(table, output, **again)
    assert output.read_bytes() == data


@pytest.mark.parametrize(
    ("begin", "data", "message"),
    [
        (0, b"SQLite format 3\0", r"out\.csv\.job is damaged"),  # as version 0.2.0 wrote
        (0, None, r"out\.csv\.job is damaged"),
        (100, None, r"out\.csv\.job is damaged"),
        (4096, None, r"out\.csv was changed after the job wrote it"),
    ],
)
def test_a_damaged_job_file_is_rejected_and_can_be_overwritten(
    tmp_path: Path, begin: int, data: bytes | None, message: str
) -> None:
    """Before, the output was deleted first, and this run and all later ones failed."""
    table, output = table_of(tmp_path, ".csv", 40), tmp_path / "out.csv"
    run(table, output)
    before, job = content(output), job_of(output).read_bytes()
    damaged = job[:begin] + (data or b"\xff" * (len(job) - begin))
    job_of(output).write_bytes(damaged)
    with pytest.raises(InvalidArgumentError, match=message):
        run(table, output)
    assert content(output) == before
    assert job_of(output).read_bytes() == damaged
    assert run(table, output, overwrite=True).new_rows == 40
    assert run(table, output).new_rows == 0


def test_the_rows_before_a_damaged_line_are_kept(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 40), tmp_path / "out.csv"
    run(table, output)
    job = job_of(output).read_bytes()
    lines = job.splitlines(keepends=True)
    lines[21] = lines[21].replace(b'"row": 21', b'"row": 12')
    output.unlink()
    job_of(output).write_bytes(b"".join(lines))
    assert run(table, output).new_rows == 20
    assert_whole(table, output)


def test_a_job_in_a_newer_format_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, output = table_of(tmp_path, ".csv", 4), tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        patch.setattr("eliza_ffi.tables.store.FORMAT", 9)
        run(table, output)
    with pytest.raises(InvalidArgumentError, match="expected 3, found 9"):
        run(table, output)
    assert run(table, output, overwrite=True).new_rows == 4


@pytest.mark.parametrize("described", [SETTINGS, {"model": "another"}])
def test_two_runs_never_write_the_same_output(tmp_path: Path, described: dict[str, str]) -> None:
    """The lock is checked before the settings."""
    table, output = table_of(tmp_path, ".csv", 4), tmp_path / "out.csv"
    steps: list[TableStep] = []

    def second(step: TableStep) -> None:
        for overwrite in (False, True):
            with pytest.raises(ElizaError, match="another process is writing"):
                run(table, output, overwrite=overwrite, described=described)
        steps.append(step)

    run(table, output, progress=second)
    assert len(steps) == len(read_rows(output)) == 4
    assert run(table, output).new_rows == 0


def test_of_two_jobs_started_together_only_one_runs(tmp_path: Path) -> None:
    table = table_of(tmp_path, ".csv", 6)
    for round in range(20):
        output, both = tmp_path / f"out{round}.csv", threading.Barrier(2)

        def start(model: str, output: Path = output, both: threading.Barrier = both) -> None:
            both.wait()
            run(table, output, described={"model": model}, at_once=1)

        with ThreadPoolExecutor(2) as threads:
            jobs = {model: threads.submit(start, model) for model in "AB"}
        (winner,) = [model for model, job in jobs.items() if job.exception() is None]
        (loser,) = jobs.keys() - {winner}
        assert isinstance(jobs[loser].exception(), ElizaError)
        assert facts_of(output)[0]["job"]["model"] == winner
        assert run(table, output, described={"model": winner}).new_rows == 0


def test_a_job_without_rows_can_be_started_with_different_settings(tmp_path: Path) -> None:
    table, output = table_of(tmp_path, ".csv", 4), tmp_path / "out.csv"

    def fail(given: Any) -> Decision:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        run(table, output, decide=fail)
    assert run(table, output, questions=QUESTIONS[:1]).new_rows == 4
    with pytest.raises(InvalidArgumentError, match="different settings: questions"):
        run(table, output)


def test_a_limit_of_all_rows_decides_the_whole_table(tmp_path: Path) -> None:
    table = table_of(tmp_path, ".csv", 4)
    assert run(table, tmp_path / "out.csv", limit=3).is_whole is False
    assert run(table, tmp_path / "out.csv", limit=4).is_whole is True
    assert run(table, tmp_path / "out.csv", limit=4).is_whole is True
    assert run(table, tmp_path / "out.csv", limit=5).is_whole is True


def test_a_job_resumes_after_a_row_longer_than_the_line_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_tables_module, "MAX_BYTES", 1000)
    table = write_csv(tmp_path / "in.csv", [["body"], ["\x01" * 990], ["y"]])
    for output in (tmp_path / "out.jsonl", tmp_path / "out.csv"):
        run(table, output, limit=1)
        assert run(table, output).new_rows == 1


def test_a_job_can_be_resumed_after_a_full_disk(tmp_path: Path) -> None:
    table = table_of(tmp_path, ".csv", 40)
    output = tmp_path / "out.jsonl"
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "from pathlib import Path\n"
        "import table_work\n"
        "table_work.run(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", program, str(table), str(output)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert "out.jsonl.job: " in done.stderr
    assert 0 < len(stored_rows(output)) < 40
    table_work.run(table, output)
    assert_whole(table, output)


# ---- Parquet -----------------------------------------------------------------------------------


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "in.parquet").touch()
    with pytest.raises(NotSupportedError, match=r"pip install 'eliza-ffi\[parquet\]'"):
        open_table(tmp_path / "in.parquet")
    table = table_of(tmp_path, ".csv")
    with pytest.raises(NotSupportedError, match="pyarrow"):
        run(table, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet.job").exists()


@pytest.mark.slow
def test_parquet_output_keeps_the_types_of_a_parquet_input(tmp_path: Path) -> None:
    kinds = {"when": pa.timestamp("us", tz="UTC"), "price": pa.decimal128(9, 2)}
    kinds |= {"raw": pa.binary(), "body": pa.string(), "n": pa.int8()}
    schema = pa.schema([*kinds.items()])
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    rows = [
        {"when": moment, "price": Decimal(i), "raw": b"\xff", "body": f"text {i}", "n": i % 100}
        for i in range(3000)
    ]
    table = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), table, row_group_size=700)
    run(table, tmp_path / "out.parquet", at_once=2)
    found = pq.read_table(tmp_path / "out.parquet")
    assert {name: found.schema.field(name).type for name in kinds} == kinds
    assert found.select(schema.names).to_pylist() == rows
    assert found.schema.field("urgent").type == pa.bool_()
    assert found.schema.field("tags").type == pa.list_(pa.string())
    assert found["row"].to_pylist() == list(range(1, 3001))
    assert found["anger"].to_pylist()[:9] == [
        pytest.approx(decide(f"text {i}")["anger"].score) for i in range(9)
    ]
    assert not (tmp_path / "out.parquet.rows").exists()


def test_parquet_output_infers_the_types_of_other_inputs(tmp_path: Path) -> None:
    values: list[dict[str, Any]] = [
        {"id": 1, "body": "x", "f": 1, "m": 1, "big": 2**70},
        {"id": None, "body": "", "f": 0.5, "m": "x", "big": 1},
    ]
    run(write_jsonl(tmp_path / "in.jsonl", values), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    types = {field.name: str(field.type) for field in found.schema}
    assert types | {"id": "int64", "f": "double", "m": "string", "big": "string"} == types
    assert found["m"].to_pylist() == ["1", "x"]
    assert found["error"].to_pylist() == [None, "in.jsonl, line 2: column 'body' is empty"]
    run(table_of(tmp_path, ".csv"), tmp_path / "of csv.parquet")
    assert str(pq.read_schema(tmp_path / "of csv.parquet").field("id").type) == "string"


@pytest.mark.parametrize("key", [b"\\ud800", b"\xff"])
def test_a_key_unsupported_by_parquet_is_rejected_before_any_row(
    tmp_path: Path, key: bytes
) -> None:
    table = tmp_path / "in.jsonl"
    table.write_bytes(b'{"body": "x"}\n{"body": "y", "' + key + b'": 1}\n')
    asked: list[Any] = []

    def work(given: Any) -> Decision:
        asked.append(given)
        return decide(given)

    message = r"in\.jsonl, line 2: the key '\\ud.*cannot name a column .*--keep"
    with pytest.raises(InvalidArgumentError, match=message):
        run(table, tmp_path / "out.parquet", decide=work)
    assert asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    run(table, tmp_path / "out.parquet", keep=["body"])
    run(table, tmp_path / "out.jsonl")


def test_a_question_name_unsupported_by_parquet_is_rejected(tmp_path: Path) -> None:
    table = table_of(tmp_path, ".csv", 2)
    with pytest.raises(InvalidArgumentError, match=r"question's name 'a\\ud800' cannot name"):
        run(table, tmp_path / "out.parquet", questions=(Predicate("x", "a\ud800"),))


def test_values_unsupported_by_parquet_are_converted(tmp_path: Path) -> None:
    table = tmp_path / os.fsdecode(b"in\xff.jsonl")
    table.write_bytes(
        b'{"body": "x", "v": "\\ud800", "n": 9007199254740993, "i": 9007199254740993}\n'
        b'{"body": "", "v": {"\\ud800": 1}, "n": 0.5, "i": 1}\n'
    )
    run(table, tmp_path / "out.parquet")
    first, second = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert (first["v"], first["n"], first["i"]) == ("\ufffd", "9007199254740993", 2**53 + 1)
    assert (json.loads(second["v"]), second["n"], second["i"]) == ({"\ufffd": 1}, "0.5", 1)
    assert second["error"] == "in\ufffd.jsonl, line 2: column 'body' is empty"


@ANY_SUFFIX
@pytest.mark.parametrize("broken", ["write_output", "replace_file"])
def test_an_output_whose_writing_was_interrupted_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, broken: str
) -> None:
    table, output = table_of(tmp_path, ".csv", 9), tmp_path / f"out{suffix}"
    run(table, output, limit=5)
    before = content(output)

    def interrupted(path: Path, *others: Any) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"eliza_ffi.tables.job.{broken}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(table, output)
    assert content(output) == before
    assert run(table, output).new_rows == 0
    assert_whole(table, output)
    assert not output.with_name(output.name + ".part").exists()


def write_odd_parquet(path: Path) -> Path:
    """Write 7 rows. Rows 3, 4 and 5 each have a cell that Python cannot represent."""
    texts = [b"a", b"b", b"c", b"\xe9t\xe9", b"e", b"f", None]
    offsets = [sum(map(len, filter(None, texts[:i]))) for i in range(len(texts) + 1)]
    buffers = [
        pa.array([text is not None for text in texts]).buffers()[1],
        pa.py_buffer(struct.pack("<8i", *offsets)),
        pa.py_buffer(b"".join(filter(None, texts))),
    ]
    columns = {
        "body": pa.Array.from_buffers(pa.string(), len(texts), buffers),
        "when": pa.array([0, 1000, 1, 2000, 3000, None, 0], pa.timestamp("ns")),
        "day": pa.array([0, 1, 2, 3, 2**30, 5, 6], pa.date32()),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_an_unreadable_parquet_cell_is_an_error_only_in_its_row(tmp_path: Path) -> None:
    table = write_odd_parquet(tmp_path / "in.parquet")
    run(table, tmp_path / "out.jsonl")
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["error"] for row in rows] == [
        *(None, None, None),
        "in.parquet, row 4: column 'body' is not UTF-8",
        "in.parquet, row 5: column 'day' cannot be read: "
        "days=1073741824; must have magnitude <= 999999999",
        None,
        "in.parquet, row 7: no value in column 'body'",
    ]
    assert rows[2]["when"] == "1970-01-01T00:00:00.000000001"
    assert rows[3]["body"] == "\ufffdt\ufffd"
    assert (rows[4]["body"], rows[4]["day"], rows[4]["topic"]) == ("e", None, None)
    assert rows[5]["topic"] == decide("f")["topic"].value


def test_unreadable_parquet_cells_of_other_types_are_named(tmp_path: Path) -> None:
    bad = [None, pa.py_buffer(struct.pack("<3q", 0, 1, 3)), pa.py_buffer(b"ab\xe9")]
    texts = pa.Array.from_buffers(pa.large_string(), 2, bad)
    columns = {
        "body": pa.array(["x", "y"]),
        "text": texts,
        "texts": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts.cast("string")),
        "span": pa.array([1, 1000], pa.duration("ns")),
    }
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns), path)
    first, second = open_table(path).rows(columns=["text"])
    assert [first.fields, second.fields] == [{"text": "a"}, {"text": "b\udce9"}]
    assert [row.error for row in open_table(path).rows(columns=["body", "text"])] == [None, None]
    first, second = open_table(path).rows()
    assert first.error is not None and second.error is not None
    assert first.error.startswith("column 'span' cannot be read: Nanosecond duration 1 is not")
    assert second.error.startswith("column 'texts' cannot be read: 'utf-8' codec can't decode")
    assert first.fields == {"body": "x", "text": "a", "texts": ["a"]}


def test_nanosecond_columns_are_read_as_python_times(tmp_path: Path) -> None:
    moment = datetime.datetime(1970, 1, 1, microsecond=2)
    kinds = {"when": pa.timestamp("ns"), "span": pa.duration("ns"), "time": pa.time64("ns")}
    columns = {name: pa.array([2000, None], kind) for name, kind in kinds.items()}
    columns["list"] = pa.array([[2000, None], None], pa.list_(pa.timestamp("ns")))
    columns["struct"] = pa.array([{"at": 2000}, None], pa.struct([("at", pa.timestamp("ns"))]))
    span = datetime.timedelta(microseconds=2)
    values: dict[str, Any] = {"when": moment, "span": span, "time": moment.time()}
    values |= {"list": [moment, None], "struct": {"at": moment}}
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns), path)
    assert [row.fields for row in open_table(path).rows(columns=[])] == [{}, {}]
    first, second = open_table(path).rows()
    assert first.fields == values
    assert type(first.fields["when"]) is type(first.fields["list"][0]) is datetime.datetime
    assert type(first.fields["span"]) is datetime.timedelta
    assert set(second.fields.values()) == {None}
    pq.write_table(pa.table({"time": pa.array([1, 2000], pa.time64("ns"))}), path)
    times = [row.fields["time"] for row in open_table(path).rows()]
    assert times == ["00:00:00.000000001", moment.time()]


def test_copied_parquet_columns_cause_no_errors(tmp_path: Path) -> None:
    table = write_odd_parquet(tmp_path / "in.parquet")
    output = tmp_path / "out.parquet"
    run(table, output, keep=["day", "when"])
    found = pq.read_table(output)
    assert found.select(["day", "when"]).equals(pq.read_table(table).select(["day", "when"]))
    errors = found["error"].to_pylist()
    assert [place for place, error in enumerate(errors, 1) if error] == [4, 7]
