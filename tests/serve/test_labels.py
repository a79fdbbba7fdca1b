"""Labels over HTTP: how they are stored, and what a set learns from them."""

from __future__ import annotations

import csv
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, SYSTEMONE, ask, check_documented, rejected
from team_examples import EXAMPLES

from eliza_ffi import Model, cli
from eliza_ffi.decisions import Choice
from eliza_ffi.learning import calibrate
from eliza_ffi.learning import examples as asking
from eliza_ffi.library.loading import Library
from eliza_ffi.serve.app import ENDPOINTS
from eliza_ffi.serve.learner import SetLearner
from eliza_ffi.serve.openapi import openapi_document
from eliza_ffi.tables.label_file import Label

LABELS, BATCH = "/v1/labels", "/v1/decisions/batch"
NEXT, UNDO, BACK = (f"{LABELS}/{each}" for each in ("next", "undo", "back"))

TEAM = Choice("Which team?", {"billing": "payments", "technical": "the product"}, name="team")
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": TEAM.instructions,
        "criteria": {"billing": "payments", "technical": "the product"},
    }
}


@pytest.fixture
def questions(tmp_path: Path) -> str:
    (tmp_path / "tickets.json").write_text(json.dumps(QUESTIONS), encoding="utf-8")
    return str(tmp_path / "tickets.json")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tickets.labels.csv"


@pytest.fixture
def app(questions: str, path: Path, learning_app_of: Callable[..., Any]) -> Any:
    return learning_app_of("--questions", questions, "--learn", str(path))[0]


def post(app: Any, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    (answer,) = ask(app, ("POST", path, body), headers=sent)
    return answer


def label(input: str, answer: Any, **more: Any) -> dict[str, Any]:
    return {"model": "tickets", "input": input, "answer": answer, **more}


def lines(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def send(app: Any, examples: list[tuple[str, str]], **more: Any) -> None:
    answers = ask(app, *(("POST", LABELS, label(*each, **more)) for each in examples))
    assert {each.status_code for each in answers} == {200}


def wait_for(learner: SetLearner, n: int) -> None:
    """Wait until `n` fits have ended."""
    end = time.monotonic() + 60
    while learner.refits.total() < n:
        assert time.monotonic() < end, learner.refits
        time.sleep(0.01)


def test_a_label_is_in_the_file_before_the_answer(app: Any, path: Path) -> None:
    texts = ["I was charged twice", 'a "quoted"\r\ntext, in two lines', "é 🙂"]
    answers = ["billing", "technical", None]
    for i, (text, answer) in enumerate(zip(texts, answers, strict=True), 1):
        response = post(app, LABELS, label(text, answer, question="team"))
        assert response.json() == {"model": "tickets", "labels": i, "replaces": False}
        assert lines(path)[-1][1:3] == [text, answer or ""]
    assert lines(path)[0] == ["row", "input", "team", "kind"]
    assert [each[3] for each in lines(path)[1:]] == ["chosen", "chosen", "chosen, none"]
    again = post(app, LABELS, label(texts[0], "technical", kind="random"))
    assert again.json() == {"model": "tickets", "labels": 4, "replaces": True}
    assert lines(path)[-1] == ["", texts[0], "technical", "chosen"]


def test_the_input_of_an_answer_is_named_by_its_id(app: Any, path: Path) -> None:
    for at, field in ((DECISIONS, "input"), (SYSTEMONE, "state")):
        text = f"I was charged twice, says {at}."
        id = post(app, at, {"model": "tickets", field: text}).headers["x-request-id"]
        body = {"model": "tickets", "id": id, "answer": "billing"}
        assert post(app, LABELS, body).status_code == 200
        assert lines(path)[-1][1:3] == [text, "billing"]
    texts = ["My parcel is lost.", "", "I was billed twice."]
    batch = post(app, f"{DECISIONS}/batch", {"model": "tickets", "inputs": texts})
    ids = {each["index"]: each.get("id") for each in map(json.loads, batch.text.splitlines())}
    assert ids[1] is None and ids[0] != ids[2]
    body = {"model": "tickets", "id": ids[2], "answer": "billing"}
    assert post(app, LABELS, body).status_code == 200
    assert lines(path)[-1][1:3] == [texts[2], "billing"]
    for text in ("one", "another"):  # the client sends its id twice
        post(app, DECISIONS, {"model": "tickets", "input": text}, x_request_id="mine")
    for id in ("mine", "unknown"):
        body = {"model": "tickets", "id": id, "answer": "billing"}
        assert rejected(post(app, LABELS, body), 404)["code"] == "unknown_id"
    assert len(lines(path)) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": "other"}, "model: expected a set that learns, 'tickets'; got 'other'"),
        ({"question": "urgent"}, "question: expected one of 'team', got 'urgent'"),
        ({"answer": "sales"}, "answer: expected one of 'billing', 'technical', got 'sales'"),
        ({"answer": ""}, "answer: expected an option, or null if none fits, got ''"),
        ({"answer": " "}, "answer: expected an option, or null if none fits, got ' '"),
        ({"id": "x"}, "expected exactly one of input, id and row"),
        ({"input": None}, "expected exactly one of input, id and row"),
        ({"input": None, "row": 1}, "row: the server's table has no row 1 to label"),
        ({"skip": True}, "skip needs a row, and no answer"),
        ({"input": "a\0b"}, "input: a file of labels cannot have NUL characters"),
        ({"kind": "all"}, "kind: expected chosen or random, got 'all'"),
    ],
)
def test_wrong_labels_are_explained(
    app: Any, path: Path, more: dict[str, Any], message: str
) -> None:
    before = path.read_bytes()
    answer = post(app, LABELS, label("I was charged twice", "billing") | more)
    assert message in rejected(answer)["message"]
    assert path.read_bytes() == before


def test_only_keys_with_the_right_can_send_labels(
    questions: str, path: Path, tmp_path: Path, learning_app_of: Callable[..., Any]
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("reader first-key\nteacher second-key\n", encoding="utf-8")
    options = "--questions", questions, "--learn", str(path), "--api-key-file", str(keys)
    app, _ = learning_app_of(*options, "--label-key", "teacher")
    body = label("I was charged twice", "billing")
    for at, sent in ((LABELS, body), (BACK, {"model": "tickets"})):
        answer = post(app, at, sent, authorization="Bearer first-key")
        assert rejected(answer, 403)["code"] == "labels_not_allowed"
    assert len(lines(path)) == 1
    assert post(app, LABELS, body, authorization="Bearer second-key").status_code == 200
    rejected(post(app, LABELS, body), 401)


def test_a_file_that_cannot_be_written_is_reported(
    app: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        answer = post(app, LABELS, label("I was charged twice", "billing"))
    error = rejected(answer, 500)
    assert error["code"] == "labels_not_written"
    assert "No space left on device; the label is not stored" in error["message"]
    assert path.read_bytes() == before
    assert post(app, LABELS, label("I was charged twice", "billing")).json()["labels"] == 1


def test_a_server_that_does_not_learn_says_so(questions: str, app_of: Callable[..., Any]) -> None:
    answer = post(app_of("--questions", questions), LABELS, label("a", "billing"))
    assert "start it with --learn FILE" in rejected(answer, 501)["message"]


def test_a_set_learns_from_labels_and_goes_back(
    questions: str, path: Path, tiny_model: Model, learning_app_of: Callable[..., Any]
) -> None:
    app, learners = learning_app_of("--questions", questions, "--learn", str(path))
    learner, text = learners["tickets"], "My card was charged again."

    def answered() -> tuple[bool, float]:
        response = post(app, DECISIONS, {"model": "tickets", "input": text}).json()
        return response["calibrated"], response["answers"][0]["probabilities"][0]["probability"]

    first = answered()
    assert first[0] is False
    send(app, EXAMPLES[:9])
    assert (learner.version.number, learner.refits.total()) == (0, 0)  # too few
    send(app, EXAMPLES[9:])
    end = time.monotonic() + 60
    while len(learner.version.fitted_on[0]) < len(EXAMPLES) and time.monotonic() < end:
        n = learner.refits.total()
        send(app, EXAMPLES[-1:])  # until a version of all labels is better than the others
        wait_for(learner, n + 1)
    assert learner.version.number >= 1
    calibrated, p = answered()
    assert calibrated
    calibration = learner.version.calibration
    expected = tiny_model.decide(text, TEAM, calibration=calibration)["team"]
    assert p == pytest.approx(expected.probabilities["billing"], abs=1e-2)
    n = learner.version.number
    figures = metrics(app)
    assert figures['eliza_calibration_version{set="tickets"}'] == n
    assert figures['eliza_refits_total{result="accepted",set="tickets"}'] == n
    assert figures['eliza_labels_total{set="tickets"}'] == len(learner.file.labels)
    while n:
        n -= 1
        assert post(app, BACK, {"model": "tickets"}).json() == {"model": "tickets", "version": n}
    assert answered() == pytest.approx(first, abs=1e-2)
    refits = learner.refits.total()
    assert "no earlier version" in rejected(post(app, BACK, {"model": "tickets"}))["message"]
    send(app, EXAMPLES[:1])  # stored, but not learned
    time.sleep(0.2)
    assert (learner.version.number, learner.refits.total()) == (0, refits)


def metrics(app: Any) -> dict[str, float]:
    (answer,) = ask(app, ("GET", "/metrics", None))
    pairs = (each.rsplit(" ", 1) for each in answer.text.splitlines() if not each.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_a_refit_equals_calibrate_and_reads_only_new_inputs(
    questions: str,
    path: Path,
    tiny_model: Model,
    learning_app_of: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[list[Any]] = []
    ask_many = asking.ask_many

    def counted(model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
        read.append(list(inputs))
        return ask_many(model, inputs, *rest, **more)

    monkeypatch.setattr(asking, "ask_many", counted)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [["", *each, "chosen"] for each in EXAMPLES]
        csv.writer(file, lineterminator="\n").writerows([["row", "input", "team", "kind"], *rows])
    _, learners = learning_app_of("--questions", questions, "--learn", str(path))
    learner = learners["tickets"]
    wait_for(learner, 1)
    assert learner.version.number == 1
    n_read = len(read)
    assert read[0] == [text for text, _ in EXAMPLES]
    learner.add(Label(None, "billing", "chosen", "My bill is too high."))
    wait_for(learner, 2)
    assert ["My bill is too high."] in read[n_read:]
    assert not set(read[0]) & {text for each in read[n_read:] for text in each}
    arguments = learner.version.calibration.prompt_arguments()
    expected = calibrate(tiny_model, TEAM, EXAMPLES, **arguments).questions[0]
    found = learner._versions[1].calibration.questions[0]
    assert found.method == expected.method
    assert found.nll == pytest.approx(dict(expected.nll), abs=1e-2)


def test_labels_that_make_it_worse_are_rejected(
    questions: str, path: Path, tiny_model: Model, learning_app_of: Callable[..., Any]
) -> None:
    """The calibration of the start was fitted to more examples than the labels have."""
    calibration = calibrate(tiny_model, TEAM, EXAMPLES, method="head")
    fitted = path.with_name("tickets.calibration.json")
    calibration.save(fitted)
    options = "--questions", questions, "--calibration", str(fitted), "--learn", str(path)
    app, learners = learning_app_of(*options)
    send(app, EXAMPLES[:10])
    wait_for(learners["tickets"], 1)
    assert learners["tickets"].version.number == 0
    assert learners["tickets"].refits["rejected"] >= 1
    response = post(app, DECISIONS, {"model": "tickets", "input": EXAMPLES[0][0]}).json()
    expected = tiny_model.decide(EXAMPLES[0][0], TEAM, calibration=fitted)["team"]
    assert response["answers"][0]["probabilities"][0]["probability"] == pytest.approx(
        expected.probabilities["billing"], abs=1e-2
    )


@pytest.mark.parametrize(
    "promise",
    [
        {"risk": 0.4},
        {"target": "recall", "option": "billing", "at": 0.2},
        {"risk": 0.8, "option_risks": {"billing": 0.7}},
        {"risk": 0.9, "costs": {"billing": {"technical": 2}}},
    ],
)
def test_a_certified_set_is_certified_again_by_random_rows(
    questions: str,
    path: Path,
    tiny_model: Model,
    learning_app_of: Callable[..., Any],
    promise: dict[str, Any],
) -> None:
    wrong = [(text, "technical" if team == "billing" else "billing") for text, team in EXAMPLES]
    bad = calibrate(tiny_model, TEAM, wrong, **promise)
    fitted = path.with_name("tickets.calibration.json")
    bad.save(fitted)
    options = "--calibration", str(fitted), "--learn", str(path)
    app, learners = learning_app_of(*options)
    learner = learners["tickets"]
    send(app, EXAMPLES[:24])
    time.sleep(0.2)
    assert learner.refits.total() == 0  # no random rows
    send(app, EXAMPLES[24:], kind="random")
    wait_for_version(learner)
    threshold = learner.version.calibration.questions[0].threshold
    assert threshold is not None and threshold.risk == pytest.approx(promise.get("risk", 0.8))
    assert threshold.option == promise.get("option")
    assert threshold.option_risks == ((0.7, 0.8) if "option_risks" in promise else None)
    assert threshold.largest_cost == (2 if "costs" in promise else None)
    assert learner.version.fitted_on[0].keys() <= {text for text, _ in EXAMPLES[:24]}


def test_a_batch_is_answered_by_one_version(
    questions: str, path: Path, tiny_model: Model, learning_app_of: Callable[..., Any]
) -> None:
    """The version is replaced while the first inputs are answered."""
    app, learners = learning_app_of("--questions", questions, "--learn", str(path))
    learner = learners["tickets"]
    inputs = [text for text, _ in EXAMPLES]

    def answered() -> set[bool]:
        text = post(app, BATCH, {"model": "tickets", "inputs": inputs}).text
        return {json.loads(each)["calibrated"] for each in text.splitlines()}

    assert answered() == {False}

    def replace_soon() -> None:
        time.sleep(0.02)
        for each in EXAMPLES:
            learner.add(Label(None, each[1], "chosen", each[0]))

    changing = threading.Thread(target=replace_soon)
    changing.start()
    found = [answered()]
    while learner.version.number == 0 and len(found) < 200:
        found.append(answered())
    changing.join()
    assert found[-1] in ({True}, {False})
    assert answered() == {True} and all(len(each) == 1 for each in found)


def test_each_question_of_a_set_learns(
    path: Path, tmp_path: Path, tiny_model: Model, learning_app_of: Callable[..., Any]
) -> None:
    """Only the second question gets enough labels. Its fit leaves the first one as it was."""
    both = {"urgent": {"type": "predicate", "instructions": "Is it urgent?"}, **QUESTIONS}
    (tmp_path / "tickets.json").write_text(json.dumps(both), encoding="utf-8")
    options = "--questions", str(tmp_path / "tickets.json"), "--learn", str(path)
    app, learners = learning_app_of(*options)
    text = "My card was charged again."

    def answered() -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = post(
            app, DECISIONS, {"model": "tickets", "input": text}
        ).json()["answers"]
        return answers

    before = answered()
    send(app, EXAMPLES, question="team")
    assert lines(path)[0] == ["row", "input", "urgent", "team", "kind"]
    assert lines(path)[1] == ["", EXAMPLES[0][0], "", "billing", "chosen, skipped"]
    wait_for_version(learners["tickets"])
    after = answered()
    assert after[0]["probability"] == pytest.approx(before[0]["probability"], abs=1e-2)
    fitted = learners["tickets"].version.calibration.questions
    assert fitted[0].method == "none" and fitted[1].nll
    expected = tiny_model.decide(
        text,
        TEAM,
        calibration=replace(learners["tickets"].version.calibration, questions=fitted[1:]),
    )["team"]
    assert after[1]["probabilities"][0]["probability"] == pytest.approx(
        expected.probabilities["billing"], abs=1e-2
    )
    sent = {"model": "tickets", "input": EXAMPLES[0][0], "question": "urgent", "answer": True}
    assert post(app, LABELS, sent).json()["replaces"] is True
    assert lines(path)[-1] == ["", EXAMPLES[0][0], "true", "billing", "chosen"]
    error = rejected(post(app, LABELS, {**sent, "question": None}))
    assert "expected one of 'urgent', 'team', got None" in error["message"]


def wait_for_version(learner: SetLearner) -> None:
    end = time.monotonic() + 60
    while learner.version.number < 1:
        assert time.monotonic() < end, learner.refits
        time.sleep(0.01)


@pytest.fixture
def tabled(questions: str, path: Path, learning_app_of: Callable[..., Any]) -> Any:
    table = path.with_name("mails.csv")
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["body"], *([text] for text, _ in EXAMPLES[:30])])
    options = "--questions", questions, "--learn", str(path), "--table", str(table)
    return learning_app_of(*options, "--column", "body")[0]


def test_rows_of_the_table_are_offered_and_labelled(tabled: Any, path: Path) -> None:
    offered = []
    right = dict(EXAMPLES)
    for i in range(30):
        row = post(tabled, NEXT, {"model": "tickets"}).json()
        assert (row["instructions"], row["options"]) == (
            TEAM.instructions,
            ["billing", "technical"],
        )
        assert row["input"] == EXAMPLES[row["row"] - 1][0]
        assert sum(row["probabilities"]) == pytest.approx(1)
        offered.append(row)
        more = {"row": row["row"], "kind": row["kind"]}
        answer = {"skip": True} if i == 1 else {"answer": right[row["input"]] if i != 2 else None}
        sent = post(tabled, LABELS, {"model": "tickets", **more, **answer})
        assert sent.json()["labels"] == i + 1
    assert post(tabled, NEXT, {"model": "tickets"}).json()["row"] is None
    assert sorted(each["row"] for each in offered) == [*range(1, 31)]
    assert [each["kind"] for each in offered[:3]] == ["chosen", "random", "random"]
    assert lines(path)[0] == ["row", "body", "team", "kind"]
    assert lines(path)[1][:3] == [
        str(offered[0]["row"]),
        offered[0]["input"],
        right[offered[0]["input"]],
    ]
    assert lines(path)[2][2:] == ["", "random, skipped"]
    assert lines(path)[3][2:] == ["", "random, none"]
    random = [each for each in offered if each["kind"] == "random"][1:]  # one was skipped
    assert len(random) >= 13
    n = f"{len(random) - (offered[-1]['kind'] == 'random')} random rows"
    assert (
        offered[-1]["progress"].startswith("28 labelled rows, accuracy ")
        and n in offered[-1]["progress"]
    )


def test_the_last_label_can_be_undone(tabled: Any, path: Path) -> None:
    row = post(tabled, NEXT, {"model": "tickets"}).json()
    body = {"model": "tickets", "row": row["row"]}
    post(tabled, LABELS, {**body, "kind": row["kind"], "answer": "billing"})
    error = rejected(post(tabled, UNDO, {**body, "row": row["row"] % 30 + 1}))
    assert "the last label is not that of row" in error["message"]
    assert post(tabled, UNDO, body).json() == {"model": "tickets", "labels": 0}
    assert len(lines(path)) == 1
    again = post(tabled, NEXT, {"model": "tickets"}).json()
    assert again == row
    assert "is not that of row" in rejected(post(tabled, UNDO, body))["message"]
    for answer in ("billing", "technical"):  # of two people
        post(tabled, LABELS, {**body, "answer": answer})
    assert post(tabled, UNDO, body).json() == {"model": "tickets", "labels": 1}
    again = post(tabled, NEXT, {"model": "tickets"}).json()
    assert again["row"] != row["row"] and again["progress"].startswith("1 labelled row")


def test_a_label_for_the_text_of_a_row_is_one_of_the_row(tabled: Any, path: Path) -> None:
    row = post(tabled, NEXT, {"model": "tickets"}).json()
    post(tabled, LABELS, label(row["input"], "billing"))
    assert lines(path)[1][0] == str(row["row"])
    assert post(tabled, NEXT, {"model": "tickets"}).json()["row"] != row["row"]


def test_a_server_without_a_table_offers_no_rows(app: Any) -> None:
    answer = post(app, NEXT, {"model": "tickets"})
    assert "start it with --table FILE" in rejected(answer, 501)["message"]


def test_answers_match_the_openapi_document(tabled: Any) -> None:
    document = json.loads(openapi_document(ENDPOINTS))
    for at, body in (
        (LABELS, label("a", "billing")),
        (LABELS, label("a", "sales")),
        (NEXT, {"model": "tickets"}),
        (UNDO, {"model": "tickets", "row": 1}),
        (BACK, {"model": "tickets"}),
    ):
        check_documented(post(tabled, at, body), document, at)


def test_wrong_options_are_named_at_the_start(
    questions: str,
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    library: Library,
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("reader first-key\nteacher second-key\n", encoding="utf-8")
    topics = {"topics": {"type": "labels", "instructions": "About this?", "labels": ["money"]}}
    (tmp_path / "topics.json").write_text(json.dumps(topics), encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    (other / "tickets.labels.csv").write_text("row,input,urgent,kind\n", encoding="utf-8")
    asked, with_keys = ("--questions", questions), ("--api-key-file", str(keys))
    for options, message in (
        ((*asked, "--learn", str(tmp_path / "labels.csv")), "there is no set 'labels'"),
        ((*asked, "--learn", str(path), *with_keys), "--learn needs --label-key"),
        ((*asked, *with_keys, "--label-key", "x"), "no API key has the name 'x'"),
        ((*asked, "--learn", str(other / "tickets.labels.csv")), "has the columns row, input, urg"),
        ((*asked, "--learn", str(tmp_path / "no" / "tickets.csv")), "No such file"),
        ((*asked, "--table", questions, "--column", "a"), "--table requires --learn with one file"),
        (
            ("--questions", str(tmp_path / "topics.json"), "--learn", str(tmp_path / "topics.csv")),
            "the set 'topics' cannot learn: expected questions with one answer",
        ),
    ):
        assert cli.main(["serve", "--port", "0", *options]) in (1, 2)
        assert message in capsys.readouterr().err, options
