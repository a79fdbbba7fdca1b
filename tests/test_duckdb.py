"""SQL functions in DuckDB, with DuckDB's own package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from eliza_ffi import InvalidArgumentError
from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.duckdb import register
from eliza_ffi.evidence import Calibration
from eliza_ffi.learning import calibrate
from eliza_ffi.model import Model
from eliza_ffi.tables import OutputColumns, RowDecider, TableRow

duckdb: Any = pytest.importorskip("duckdb", reason="duckdb is not installed")

TEXTS = ["Where is my parcel?", "I was charged twice!", "Where is my parcel?", None, " ", "Ümlaut"]
QUESTIONS = (
    Choice("Which team?", ["billing", "delivery"], "team"),
    Predicate("It is urgent.", "urgent"),
    Score("How angry?", ["calm", "furious"], "anger"),
    MultiLabel("Is it about this?", ["money", "parcels"], "topics"),
)


@pytest.fixture
def connection() -> Iterator[Any]:
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE mails (id INTEGER, body VARCHAR)")
        opened.executemany("INSERT INTO mails VALUES (?, ?)", list(enumerate(TEXTS)))
        yield opened


def column(connection: Any, expression: str) -> list[Any]:
    rows = connection.execute(f"SELECT {expression} FROM mails ORDER BY id").fetchall()
    return [row[0] for row in rows]


def cells(model: Model, text: str, questions: Any, **settings: Any) -> dict[str, Any]:
    """Return the cells of a table's output for one text, decided alone."""
    columns = OutputColumns(questions, settings=settings)
    row = TableRow(1, "", {"text": text})
    (decided,) = RowDecider(model, "text", questions, settings, None).decide_rows([row])
    return columns.cells(row, decided.decision, decided.error)


def test_decide_all_has_the_columns_of_a_table(exact_model: Model, connection: Any) -> None:
    register(connection, exact_model, QUESTIONS)
    found = column(connection, "decide_all(body)")
    for text, row in zip(TEXTS, found, strict=True):
        if text is None or not text.strip():
            assert row is None
            continue
        expected = cells(exact_model, text, QUESTIONS)
        del expected["row"]
        assert list(row) == list(expected)
        for name, value in expected.items():
            if name.endswith("_probabilities"):
                assert json.loads(row[name]) == pytest.approx(value, abs=1e-4)
            else:
                assert row[name] == (
                    pytest.approx(value, abs=1e-4) if isinstance(value, float) else value
                )
    unnested = connection.execute("SELECT unnest(decide_all(body)) FROM mails")
    assert [each[0] for each in unnested.description] == list(found[0])


def test_decide_answers_one_question_by_name_or_as_json(
    exact_model: Model, connection: Any
) -> None:
    register(connection, exact_model, QUESTIONS)
    given = [text for text in TEXTS if text is not None and text.strip()]
    for question in QUESTIONS:
        assert question.name is not None
        expected = [cells(exact_model, text, [question])[question.name] for text in given]
        found = [each for each in column(connection, f"decide(body, '{question.name}')") if each]
        if isinstance(question, Choice):
            assert found == expected
        elif isinstance(question, MultiLabel):
            assert list(map(json.loads, found)) == expected
        else:
            assert [json.loads(each) for each in found] == pytest.approx(expected, abs=1e-4)
    asked = {"type": "noul", "instructions": "It is urgent."}
    same = column(connection, f"decide(body, '{json.dumps(asked)}')")
    assert same == column(connection, "decide(body, 'urgent')")
    mixed = "decide(body, CASE WHEN id < 1 THEN 'team' WHEN id < 2 THEN NULL ELSE 'urgent' END)"
    team = column(connection, "decide(body, 'team')")
    assert column(connection, mixed) == [team[0], None, *same[2:]]


def test_each_text_is_decided_once(exact_model: Model, connection: Any) -> None:
    connection.execute("DELETE FROM mails")
    connection.execute("INSERT INTO mails SELECT i, 'mail ' || i % 7 FROM range(5000) r(i)")
    register(connection, exact_model, QUESTIONS[:1])
    given: list[str] = []
    real = RowDecider.decide_rows

    def counted(decider: RowDecider, rows: Any) -> Any:
        listed = list(rows)
        given.extend(row.fields["text"] for row in listed)
        return real(decider, listed)

    with patch.object(RowDecider, "decide_rows", counted):
        first = column(connection, "decide_all(body).team")
        assert sorted(given) == [f"mail {i}" for i in range(7)]
        assert column(connection, "decide_all(body).team") == first
        assert len(given) == 7
        register(connection, exact_model, QUESTIONS[:1], cached_texts=3)
        assert column(connection, "decide_all(body).team") == first
        n = len(given)
        assert column(connection, "decide_all(body).team") == first
        assert len(given) > n  # not all were kept


def test_a_parquet_file_is_asked(exact_model: Model, connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "mails.parquet"
    connection.execute(f"COPY mails TO '{file}'")
    register(connection, exact_model, QUESTIONS[:1])
    found = connection.execute(f"SELECT decide(body, 'team') FROM '{file}' ORDER BY id").fetchall()
    assert [each[0] for each in found] == column(connection, "decide(body, 'team')")


def test_abstentions_are_null_and_too_long_texts_have_an_error(
    exact_model: Model, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    register(connection, exact_model, QUESTIONS[:1], min_probability=1.0)
    assert column(connection, "decide(body, 'team')") == [None] * len(TEXTS)
    assert column(connection, "decide_all(body).review")[0] is True
    long = f"decide_all('{'word ' * 20_000}')"
    (row,) = connection.execute(f"SELECT {long}").fetchone()
    assert row["team"] is None and "does not fit the context" in row["error"]
    assert "no answer for the text 'word word" in caplog.text


def test_a_calibration_is_applied(exact_model: Model, connection: Any) -> None:
    examples = [(f"{TEXTS[i % 2]} {i}", QUESTIONS[0].values[1 - i % 2]) for i in range(12)]
    fitted = calibrate(exact_model, QUESTIONS[:1], examples, method="frequencies")
    assert isinstance(fitted, Calibration)
    register(connection, exact_model, QUESTIONS[:1], calibration=fitted)
    assert column(connection, "decide_all(body).team_probability")[0] == pytest.approx(0.5)
    assert column(connection, "decide(body, 'team')")[0] == "billing"
    with pytest.raises(duckdb.InvalidInputException, match="cannot be combined with a calibration"):
        column(connection, """decide(body, '{"type": "noul", "instructions": "It is late."}')""")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("decide(body, 'taem')", "unknown question: 'taem'; expected the name"),
        ("""decide(body, '{"type": "noul"')""", "not JSON"),
        ("""decide(body, '{"type": "noul"}')""", "instructions"),
        (
            """decide(body, '{"a": {"type": "noul", "instructions": "x"}, """
            """"b": {"type": "noul", "instructions": "y"}}')""",
            "asks one question, got 2",
        ),
        ("decide_all(body)", "needs questions: pass them to"),
    ],
)
def test_wrong_questions_end_the_query(
    exact_model: Model, connection: Any, expression: str, message: str
) -> None:
    register(connection, exact_model)
    with pytest.raises(duckdb.InvalidInputException, match=message):
        column(connection, expression)


def test_wrong_settings_are_named(exact_model: Model, connection: Any) -> None:
    with pytest.raises(TypeError, match="min_probabilty"):
        register(connection, exact_model, QUESTIONS, min_probabilty=0.5)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="cached_texts"):
        register(connection, exact_model, QUESTIONS, cached_texts=-1)
    with pytest.raises(InvalidArgumentError, match="needs several inputs"):
        register(connection, exact_model, QUESTIONS, prior="inputs")
    same = [Predicate("x", "team"), Predicate("y", "team_probability")]
    with pytest.raises(InvalidArgumentError, match="rename a question"):
        register(connection, exact_model, same)
