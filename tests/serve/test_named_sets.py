"""Questions that the server knows by name, with their calibrations."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import DECISIONS, SYSTEMONE, ask, rejected, served
from team_examples import BILLING, EXAMPLES, TECHNICAL

from eliza_ffi import Model, cli
from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.learning import calibrate
from eliza_ffi.learning.input_prior import fit_input_prior
from eliza_ffi.library.loading import Library

BATCH = "/v1/decisions/batch"

TEAM = Choice("Which team?", {"billing": "payments", "technical": "the product"}, name="team")
OTHERS = {"urgent": {"type": "predicate", "instructions": "The writer needs an answer today."}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Model) -> Path:
    """Return a folder with the questions ``others`` and the calibration ``tickets``."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "others.json").write_text(json.dumps(OTHERS))
    calibration = calibrate(tiny_model, TEAM, EXAMPLES, method="head", risk=0.2)
    calibration.save(folder / "tickets.calibration.json")
    return folder


@pytest.fixture
def app(folder: Path, app_of: Callable[..., Any]) -> Any:
    files = str(folder / "others.json"), str(folder / "tickets.calibration.json")
    return app_of("--questions", files[0], "--calibration", files[1])


def post(app: Any, path: str, body: dict[str, Any]) -> httpx.Response:
    (answer,) = ask(app, ("POST", path, body))
    return answer


def get(app: Any, path: str) -> httpx.Response:
    (answer,) = ask(app, ("GET", path, None))
    return answer


def test_a_calibrated_set_is_answered_by_its_name(
    app: Any, tiny_model: Model, folder: Path
) -> None:
    text = "My card was charged again."
    path = folder / "tickets.calibration.json"
    expected = tiny_model.decide(text, TEAM, calibration=path)["team"]
    response = post(app, DECISIONS, {"model": "tickets", "input": text}).json()
    (answer,) = response["answers"]
    assert (response["model"], response["calibrated"]) == ("tickets", True)
    found = {each["value"]: each["probability"] for each in answer["probabilities"]}
    assert found == pytest.approx(dict(expected.options), abs=1e-2)
    assert answer["certified"] == expected.certified
    assert answer["unfamiliar"] == expected.unfamiliar and expected.unfamiliar in (False, True)
    assert answer["prediction_set"] == list(expected.prediction_set)
    same = post(app, SYSTEMONE, {"model": "tickets", "state": text}).json()
    assert same["calibrated"] is True
    assert same["answers"]["team"]["probabilities"] == pytest.approx(found, abs=1e-2)


def test_a_set_without_a_calibration_says_so(app: Any) -> None:
    response = post(app, DECISIONS, {"model": "others", "input": "Call me now!"}).json()
    assert response["calibrated"] is False
    (answer,) = response["answers"]
    assert (answer["type"], answer["name"]) == ("predicate", "urgent")
    assert "certified" not in answer


def test_a_set_can_have_a_prior_of_inputs(
    folder: Path, tiny_model: Model, app_of: Callable[..., Any]
) -> None:
    path, text = folder / "hurried.prior.json", "Call me now!"
    urgent = Predicate(OTHERS["urgent"]["instructions"], name="urgent")
    fit_input_prior(tiny_model, [urgent], [text for text, _ in EXAMPLES], {}).save(path)
    expected = tiny_model.decide(text, urgent, calibration=path)["urgent"].probability
    assert expected > tiny_model.decide(text, urgent)["urgent"].probability + 0.1
    app = app_of("--calibration", str(path), "--prior", "none")
    response = post(app, DECISIONS, {"model": "hurried", "input": text}).json()
    assert response["answers"][0]["probability"] == pytest.approx(expected, abs=1e-2)
    assert response["calibrated"] is False


def test_other_requests_are_as_before(app: Any) -> None:
    question = {"type": "predicate", "instructions": "It is about money."}
    for model in ("any", None, "eliza-tiny"):
        body = {"model": model, "input": "I was charged twice.", "questions": [question]}
        response = post(app, DECISIONS, body).json()
        assert response["model"] == "eliza-tiny"
        assert "calibrated" not in response


def test_the_prompts_of_a_set_are_in_the_cache_before_the_first_request(folder: Path) -> None:
    files = "--questions", str(folder / "others.json"), "--prompt-order", "question-first"
    with served(*files) as running:
        body = {"model": "others", "input": "Hello, who is there?"}
        first = httpx.post(running.url + DECISIONS, json=body, timeout=60).json()
    assert first["usage"]["input_tokens_details"]["cached_tokens"] > 10


def test_sets_are_listed_as_models(app: Any) -> None:
    listed = get(app, "/v1/models").json()
    assert [each["id"] for each in listed["data"]] == ["eliza-tiny", "others", "tickets"]
    assert listed["models"][2]["description"] == "1 question: team"
    described = get(app, "/v1/models/others").json()
    assert described["id"] == "others"
    assert described["questions"] == [{"name": "urgent", **OTHERS["urgent"]}]
    assert get(app, "/v1/models/nothing").status_code == 404


MISSING = "this field is missing, or `model` must name a set of questions: 'others', 'tickets'"
TICKETS = {"model": "tickets", "input": "x"}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (DECISIONS, {"model": "nothing", "input": "x"}, 400, MISSING),
        (SYSTEMONE, {"state": "x"}, 422, MISSING),
        (DECISIONS, {**TICKETS, "questions": [OTHERS["urgent"]]}, 400, "'tickets' has its own"),
    ],
)
def test_wrong_requests_are_named(
    app: Any, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    response = post(app, path, body)
    assert response.status_code == status
    found = response.json()["error"]["message"]
    assert found.startswith("questions: ") and message in found


def test_uncertain_answers_abstain(
    folder: Path, tiny_model: Model, app_of: Callable[..., Any]
) -> None:
    unsure = calibrate(tiny_model, TEAM, EXAMPLES, risk=0.001)
    unsure.save(folder / "unsure.json")
    app = app_of("--calibration", str(folder / "unsure.json"), "--abstain", "risk")
    response = post(app, DECISIONS, {"model": "unsure", "input": "The app crashes."}).json()
    assert response["answers"][0]["abstained"] is True
    assert response["answers"][0]["certified"] is False
    listed = get(app, "/v1/models").json()
    assert [each["id"] for each in listed["data"]] == ["eliza-tiny", "unsure"]


def test_wrong_files_are_named_at_the_start(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], library: Library
) -> None:
    labels = [f"label {i}" for i in range(300)]
    many = {"many": {"type": "choice", "instructions": "Which?", "choices": labels}}
    toml = '[urgent]\ntype = "predicate"\ninstructions = "It is so."\n'
    for name, text in (
        ("others.toml", toml),
        (".json", json.dumps(OTHERS)),
        ("tickets.json", json.dumps(OTHERS)),
        ("many.json", json.dumps(many)),
    ):
        (tmp_path / name).write_text(text)
    others, tickets = str(folder / "others.json"), str(folder / "tickets.calibration.json")

    def of(name: str) -> str:
        return str(tmp_path / name)

    for options, message in (
        (("--questions", others, "--questions", of("others.toml")), "two files are named 'others'"),
        (("--questions", others, "--abstain", "risk"), "requires a --calibration for the set"),
        (("--calibration", tickets, "--alias", "tickets"), "has the model's name 'tickets'"),
        (("--calibration", others), "not a usable calibration"),
        (("--prior", others), "pass a file as --calibration"),
        (("--prior", "inputs"), "--prior inputs is not supported here"),
        (("--min-probability", "0.5"), "--abstain and --min-probability require --questions"),
        (("--questions", of(".json")), "the name of a set is that of its file"),
        (("--questions", of("many.json")), "'many': many: 300 options, expected at most 255"),
        (("--questions", of("tickets.json"), "--calibration", tickets), "is for another question"),
    ):
        assert cli.main(["serve", "--port", "0", *options]) in (1, 2)
        assert message in capsys.readouterr().err


def test_a_folder_has_the_questions_and_calibrations_of_several_sets(
    folder: Path, tmp_path: Path, app_of: Callable[..., Any]
) -> None:
    for name in ("others.json", "tickets.calibration.json"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "notes.txt").write_text("not a set", encoding="utf-8")
    app = app_of("--questions", str(tmp_path))
    listed = get(app, "/v1/models").json()["data"]
    assert [each["id"] for each in listed][1:] == ["others", "tickets"]
    text = post(app, "/v1/decisions/batch", {"model": "tickets", "inputs": BILLING}).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert sorted(line["index"] for line in lines) == list(range(len(BILLING)))
    assert all(line["calibrated"] and line["model"] == "tickets" for line in lines)
    assert all("certified" in line["answers"][0] for line in lines)


def test_metrics_count_the_answers_of_sets(app: Any) -> None:
    expected: Counter[tuple[str, ...]] = Counter()
    n_marked = 0
    for text in (*BILLING, *TECHNICAL, "4711 % § 0815"):
        (answer,) = post(app, DECISIONS, {"model": "tickets", "input": text}).json()["answers"]
        expected["tickets", "team", answer["choice"]] += 1
        n_marked += answer["unfamiliar"]
        (answer,) = post(app, DECISIONS, {"model": "others", "input": text}).json()["answers"]
        expected["others", "urgent", json.dumps(answer["probability"] >= 0.5)] += 1
    own = {"type": "predicate", "instructions": "It rains.", "name": "rain"}
    post(app, DECISIONS, {"input": "It is wet.", "questions": [own]})
    families = {
        each.name: each for each in text_string_to_metric_families(get(app, "/metrics").text)
    }
    found = {
        tuple(sample.labels[name] for name in ("set", "question", "answer")): sample.value
        for sample in families["eliza_answers"].samples
        if sample.name.endswith("_total")
    }
    assert found == expected
    abstained = families["eliza_abstentions"].samples
    assert {each.value for each in abstained if each.name.endswith("_total")} == {0}
    (marked,) = (
        each.value
        for each in families["eliza_unfamiliar_inputs"].samples
        if each.name.endswith("_total") and each.labels["set"] == "tickets"
    )
    assert marked == n_marked


def test_sets_with_a_calibration_do_not_think(folder: Path, app_of: Callable[..., Any]) -> None:
    files = "--questions", str(folder / "others.json"), "--calibration"
    thinking = "--think", "4"
    app = app_of(*files, str(folder / "tickets.calibration.json"), *thinking)
    for name, n_thought in (("others", 2), ("tickets", 0)):
        answers = [post(app, DECISIONS, {"model": name, "input": "hi"}) for _ in range(2)]
        assert all(each.status_code == 200 for each in answers)
        assert sum("reasoning" in each.json() for each in answers) == n_thought
        for each in answers:
            usage = each.json()["usage"]
            n_tokens = usage["output_tokens_details"]["reasoning_tokens"]
            assert usage["output_tokens"] == n_tokens and (n_tokens > 0) == (n_thought > 0)
    (metrics,) = ask(app, ("GET", "/metrics", None))
    assert re.search(r'^eliza_tokens_total{source="generated"} [1-9]', metrics.text, re.M)


@pytest.mark.parametrize(
    ("path", "questions"),
    [
        (SYSTEMONE, {}),
        *((path, each) for path in (DECISIONS, BATCH, SYSTEMONE) for each in (None, [])),
    ],
)
def test_no_questions_are_the_same_as_left_out_questions(
    app: Any, path: str, questions: Any
) -> None:
    field = {DECISIONS: "input", BATCH: "inputs", SYSTEMONE: "state"}[path]
    body = {field: ["a"] if path == BATCH else "a", "questions": questions}
    answer = post(app, path, {"model": "others", **body})
    assert answer.status_code == 200, answer.text
    error = rejected(post(app, path, body))
    assert error["param"] == "questions" and "'others', 'tickets'" in error["message"]
