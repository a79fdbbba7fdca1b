"""The actor classes for Ray Data, called as Ray Data calls them, without Ray."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_ray import FakeRay

from eliza_ffi.decisions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.ray import ChooserActor, DeciderActor, choose_dataset, decide_dataset
from eliza_ffi.tables import RowDecider, TableRow

pytestmark = pytest.mark.slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

QUESTIONS = [
    Choice("Which team?", ["billing", "sales"], "team"),
    Predicate("It is urgent.", "urgent"),
    Score("How angry?", ["calm", "cross"], "anger"),
    MultiLabel("Is it about this?", ["money", "time"], "about"),
]
BODIES = ["I was charged twice!", None, " ", "Where is my order?", "x " * 3000]
OPTIONS = {"n_slots": 1, "n_threads": 1}


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    data = type(sys)("ray.data")
    data.ActorPoolStrategy = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.data", data)


@pytest.fixture
def alone(library: object) -> Any:
    """Return the embedded model with the options of the actors in this file."""
    with Model(**OPTIONS) as model:  # type: ignore[arg-type]
        yield model


def batch(**more: list[Any]) -> Any:
    return pa.table({"id": list(range(len(BODIES))), "body": BODIES, **more})


def test_think_lets_the_model_reason_about_every_row(alone: Model) -> None:
    found = DeciderActor("body", QUESTIONS[:2], think=8, model_options=OPTIONS)(batch())
    assert found.column_names[-2:] == ["reasoning", "error"]
    rows = found.to_pylist()
    for row in (rows[0], rows[3]):
        wanted = alone.decide(row["body"], QUESTIONS[:2], think=8)
        assert row["reasoning"] == wanted.reasoning
        assert row["team_probability"] == pytest.approx(wanted["team"].probability, abs=0.05)
    assert rows[1]["reasoning"] is None


def test_a_list_of_strings_in_a_row_is_one_input(alone: Model) -> None:
    """As in a table without Ray. Before, such a row had an error."""
    table = pa.table({"body": [["I was charged twice.", "Please help."]]})
    (row,) = DeciderActor("body", QUESTIONS[0], model_options=OPTIONS)(table).to_pylist()
    wanted = alone.decide(("I was charged twice.", "Please help."), QUESTIONS[0])["team"]
    assert row["error"] is None
    assert row["team_probability"] == pytest.approx(wanted.probability, abs=0.05)


def test_answer_columns_follow_the_columns_of_the_batch(alone: Model) -> None:
    found = DeciderActor("body", QUESTIONS, model_options=OPTIONS)(batch())
    assert found.column_names == [
        *("id", "body"),
        *("team", "team_probability", "team_confidence"),
        *("urgent", "urgent_probability", "urgent_confidence"),
        *("anger", "anger_probability", "anger_label", "anger_confidence"),
        *("about", "about_confidence"),
        "error",
    ]
    rows = found.to_pylist()
    assert [row["error"] is None for row in rows] == [True, False, False, True, False]
    for row in (rows[0], rows[3]):
        wanted = alone.decide(row["body"], QUESTIONS)
        assert row["team"] == wanted["team"].value
        assert row["urgent"] is wanted["urgent"].value
        assert row["team_probability"] == pytest.approx(wanted["team"].probability, abs=0.05)
        assert row["anger_label"] == wanted["anger"].label
        assert row["about"] == list(wanted["about"].value)
    assert rows[1]["error"] == "no value in column 'body'"
    assert rows[2]["error"] == "column 'body' is empty"
    assert "context" in rows[4]["error"]
    for row in (rows[1], rows[2], rows[4]):
        assert row["team"] is row["urgent_probability"] is row["about"] is None


def test_column_types_do_not_depend_on_the_batch(alone: Model) -> None:
    decider = DeciderActor("body", QUESTIONS, model_options=OPTIONS, probabilities=True)
    schemas = {decider(batch().slice(start, 1)).schema for start in range(4)}
    assert len(schemas) == 1
    (schema,) = schemas
    assert schema.field("urgent").type == pa.bool_()
    assert schema.field("anger").type == pa.float64()
    assert schema.field("about").type == pa.list_(pa.string())
    assert schema.field("error").type == pa.string()


def test_input_columns_named_like_answers_get_a_prefix(library: object) -> None:
    decider = DeciderActor("body", QUESTIONS[1], model_options=OPTIONS, min_probability=1.0)
    found = decider(batch(urgent=["a"] * 5, input_urgent=["b"] * 5))
    assert found.column_names == [
        *("id", "body", "input_input_urgent", "input_urgent"),
        *("urgent", "urgent_probability", "urgent_confidence", "review", "error"),
    ]
    assert found.column("input_input_urgent").to_pylist() == ["a"] * 5
    assert found.column("review").to_pylist() == [True, None, None, True, None]


WHICH = {"type": "choice", "instructions": "Which?"}


def test_each_row_can_have_its_own_questions(alone: Model) -> None:
    team = {"team": {**WHICH, "choices": {"a": None, "b": None}}}
    predicate = {"type": "predicate", "instructions": "It is urgent.", "name": "u"}
    labels = {"type": "labels", "instructions": "About?", "labels": ["x", "y"], "name": "l"}
    own = [json.dumps(team), json.dumps(predicate), None, json.dumps([predicate, labels]), "{"]
    found = DeciderActor("body", questions_column="q", model_options=OPTIONS)(batch(q=own))
    rows = found.to_pylist()
    assert found.column_names == ["id", "body", "q", "answers", "error"]
    assert [row["answers"] is None for row in rows] == [False, True, True, False, True]
    (answer,) = rows[0]["answers"]
    wanted = alone.decide(BODIES[0], {"team": Choice("Which?", ["a", "b"])})["team"]
    assert (answer["name"], answer["answer"]) == ("team", wanted.value)
    assert answer["probability"] == pytest.approx(wanted.probability, abs=0.05)
    assert sum(json.loads(answer["probabilities"]).values()) == pytest.approx(1.0)
    urgent, about = rows[3]["answers"]
    assert (urgent["name"], about["name"], about["probability"]) == ("u", "l", None)
    assert urgent["answer"] in ("true", "false")
    assert isinstance(json.loads(about["answer"]), list)
    assert rows[1]["error"] == "no value in column 'body'"
    assert rows[2]["error"] == "column 'body' is empty"
    assert rows[4]["error"].startswith("questions are not JSON: ")
    none = pa.table({"body": ["one"], "q": pa.array([None], pa.string())})
    (row,) = DeciderActor("body", questions_column="q", model_options=OPTIONS)(none).to_pylist()
    assert (row["answers"], row["error"]) == (None, "no questions")


def test_a_cancelled_table_leaves_the_model_open(
    library: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling ends each running row and does not close the model."""
    running = threading.Event()
    model = Model(n_slots=2, n_threads=1)
    steps = model.session.scheduler.steps

    def noted(*arguments: Any, **more: Any) -> Any:
        running.set()
        return steps(*arguments, **more)

    def interrupted() -> Iterator[TableRow]:
        yield TableRow(1, "", {"body": "Where is my order? " * 50})
        assert running.wait(60)
        raise KeyboardInterrupt

    with model:
        decider = RowDecider(model, "body", QUESTIONS, {}, None)
        monkeypatch.setattr(model.session.scheduler, "steps", noted)
        with pytest.raises(KeyboardInterrupt):
            list(decider.decide_rows(interrupted()))
        (decided,) = decider.decide_rows([TableRow(1, "", {"body": "Where is my order?"})])
    assert decided.decision["urgent"].value in (True, False)


def test_questions_can_be_structs_with_fields_of_other_rows(library: object) -> None:
    own = [
        {"type": "choice", "instructions": "Which?", "choices": ["a", "b"]},
        {"type": "predicate", "instructions": "Is it?", "choices": None},
    ]
    table = pa.table({"body": ["one", "two"], "q": own})
    found = DeciderActor("body", questions_column="q", model_options=OPTIONS)(table).to_pylist()
    assert [row["error"] for row in found] == [None, None]
    assert found[0]["answers"][0]["answer"] in ("a", "b")
    assert found[1]["answers"][0]["answer"] in ("true", "false")


def test_wrong_model_options_are_rejected_by_name(library: object) -> None:
    with pytest.raises(InvalidArgumentError, match="model_options must be a mapping, got a list"):
        DeciderActor("body", QUESTIONS, model_options=[1])  # type: ignore[arg-type]


def test_a_column_can_contain_conversations(library: object) -> None:
    table = pa.table({"body": [[{"role": "user", "content": "hello"}], None]})
    found = DeciderActor("body", QUESTIONS[1], model_options=OPTIONS)(table).to_pylist()
    assert found[0]["urgent"] in (True, False)
    assert found[1]["error"] == "no value in column 'body'"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "one of questions and questions_column"),
        ({"questions": QUESTIONS, "questions_column": "q"}, "and questions_column"),
        ({"questions": {**WHICH, "choices": ["a"]}}, "2 to 100000"),
        ({"questions": {**WHICH, "choices": ["a", "b " * 9000]}}, "context"),
        ({"questions": QUESTIONS, "min_probability": 2.0}, "min_probability must be a number from"),
        ({"questions": QUESTIONS, "probabilities": "yes"}, "probabilities must be True or False"),
        ({"questions": QUESTIONS, "allowed_probability": "yes"}, "allowed_probability must be"),
    ],
)
def test_settings_wrong_for_all_rows_raise_in_the_constructor(
    settings: dict[str, Any], message: str, library: object
) -> None:
    with pytest.raises(ElizaError, match=message):
        DeciderActor("body", model_options=OPTIONS, **settings)


def test_the_error_for_a_missing_column_names_it(library: object) -> None:
    with pytest.raises(InvalidArgumentError, match="no column 'text'; its columns are 'id'"):
        DeciderActor("text", QUESTIONS, model_options=OPTIONS)(batch())


# ---- labels ------------------------------------------------------------------------------------

TEAMS = ["billing", "sales"]
PROMPT = "Mail: {body}\nTeam: "


def test_label_columns_follow_the_columns_of_the_batch(alone: Model) -> None:
    found = ChooserActor(PROMPT, TEAMS, model_options=OPTIONS, probabilities=True)(batch())
    assert found.column_names == [
        *("id", "body", "choice", "choice_probability", "choice_confidence"),
        *("choice_probabilities", "error"),
    ]
    rows = found.to_pylist()
    assert [row["error"] is None for row in rows] == [True, False, True, True, False]
    for row in (rows[0], rows[3]):
        wanted = alone.choose(PROMPT.format(**row), TEAMS, probabilities=True)
        assert row["choice"] == wanted.value
        assert row["choice_probability"] == pytest.approx(wanted.probability, abs=0.05)
        assert row["choice_confidence"] == pytest.approx(wanted.confidence, abs=0.1)
        assert list(json.loads(row["choice_probabilities"])) == TEAMS
    assert rows[1]["error"] == "no value in column 'body'"
    assert rows[1]["choice"] is None


def test_a_row_gets_the_most_probable_label_by_default(library: object) -> None:
    labels = ["red red big", *(f"car {end}" for end in ("tree blue", "open green", "small now"))]
    labels += ["car red old", "car play dog", "car house dog", "now note dog", "now tree note"]
    table = pa.table({"text": ["x"]})

    def chosen(**settings: Any) -> Any:
        chooser = ChooserActor("{text}", labels, model_options=OPTIONS, **settings)
        return chooser(table).to_pylist()[0]["choice"]

    assert chosen() == chosen(mode="best") != chosen(mode="greedy")


def test_each_row_can_have_its_own_labels(library: object) -> None:
    own = ['["yes", "no"]', None, "[", '["a", "a"]', '["a"]']
    chooser = ChooserActor("{id}: ", labels_column="may", name="picked", model_options=OPTIONS)
    found = chooser(batch(may=own)).to_pylist()
    assert found[0]["picked"] in ("yes", "no")
    assert found[0]["picked_probability"] > 0
    assert found[4]["picked"] == "a"
    assert [bool(row["error"]) for row in found] == [False, True, True, True, False]
    assert "picked_confidence" not in found[0]
    lists = pa.table({"id": [1, 2], "may": [["x", "y"], ["z"]]})
    assert chooser(lists).column("picked").to_pylist()[1] == "z"
    none = pa.table({"id": [1], "may": pa.array([None], pa.string())})
    assert chooser(none).column("error").to_pylist() != [None]


def test_control_tokens_in_a_cell_are_plain_text(alone: Model) -> None:
    table = pa.table({"body": ["<|im_end|>"]})
    turn = "<|im_start|>user\n{body}<|im_end|>\n"
    found = ChooserActor(turn, TEAMS, model_options=OPTIONS)(table).to_pylist()
    trusted = alone.choose(turn.format(body="<|im_end|>"), TEAMS).probability
    assert found[0]["choice_probability"] != pytest.approx(trusted, abs=1e-6)


def test_prompts_can_be_conversations(library: object) -> None:
    pytest.importorskip("jinja2")
    table = pa.table({"m": [[{"role": "user", "content": "hello"}], None]})
    chooser = ChooserActor(labels=TEAMS, messages_column="m", model_options=OPTIONS)
    found = chooser(table).to_pylist()
    assert found[0]["choice"] in TEAMS
    assert found[1]["error"] == "no conversation in column 'm'"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": "x"}, "exactly one of labels and labels_column"),
        ({"labels": TEAMS}, "prompt and messages_column"),
        ({"prompt": "{", "labels": TEAMS}, "prompt: expected a valid format string"),
        ({"prompt": 5, "labels": TEAMS}, "prompt must be a string, got 5"),
        ({"prompt": "x", "labels": ["a", "a"]}, "the same as"),
    ],
)
def test_wrong_labels_and_settings_raise_in_the_constructor(
    settings: dict[str, Any], message: str, library: object
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ChooserActor(model_options=OPTIONS, **settings)


# ---- datasets ----------------------------------------------------------------------------------


class FakeDataset:
    """A dataset whose ``map_batches`` returns its arguments."""

    def schema(self, fetch_if_missing: bool = True) -> Any:
        assert not fetch_if_missing
        return pa.schema([("body", pa.string())])

    def map_batches(self, kind: type, **settings: Any) -> Any:
        return kind, settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"column": "text", "questions": QUESTIONS}, "no column 'text'; its columns are 'body'"),
        ({"column": "body", "questions_column": "q"}, "no column 'q'"),
        ({"column": "body", "questions": []}, "1 to 400 questions"),
        ({"column": "body", "questions": QUESTIONS, "workers": 0}, "workers must be 1 or more"),
        ({"column": "body", "questions": QUESTIONS, "workers": (3, 2)}, "workers must be"),
    ],
)
def test_wrong_arguments_of_decide_dataset_raise_at_once(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        decide_dataset(FakeDataset(), **settings)  # type: ignore[arg-type]


def test_choose_dataset_passes_its_arguments_to_map_batches() -> None:
    dataset: Any = FakeDataset()
    actors: Any = {"workers": (2, 5), "cpus": 4, "gpus": 0.5, "batch_size": 64}
    found: Any = choose_dataset(dataset, PROMPT, TEAMS, model="m.gguf", name="team", **actors)
    kind, settings = found
    assert kind is ChooserActor
    assert settings["compute"] == {"min_size": 2, "max_size": 5}
    assert (settings["num_cpus"], settings["num_gpus"], settings["batch_size"]) == (4, 0.5, 64)
    given = settings["fn_constructor_kwargs"]
    assert given["model"].startswith("/")
    assert (given["name"], given["labels"].texts) == ("team", ("billing", "sales"))
