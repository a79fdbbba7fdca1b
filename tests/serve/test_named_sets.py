"""Questions that the server knows by name, with their calibrations."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, SYSTEMONE, Served, served

from eliza_ffi import Model
from eliza_ffi.decisions import Calibration, Choice, Predicate, calibrate
from eliza_ffi.decisions.learning.input_prior import fit_input_prior

TEAM = Choice("Which team?", {"billing": "payments", "technical": "the product"}, name="team")
BILLING = ["I was charged twice", "Refund my money", "The invoice is wrong", "My card was declined"]
TECHNICAL = ["The app crashes", "Error on startup", "I cannot log in", "The screen is blank"]
EXAMPLES = [
    (f"{text}{end}", team)
    for end in (".", "!", " today.", " again.", " since May.", " - please help.")
    for team, texts in (("billing", BILLING), ("technical", TECHNICAL))
    for text in texts
]
OTHERS = {"urgent": {"type": "predicate", "instructions": "The writer needs an answer today."}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Model) -> Path:
    """Return a folder with the questions ``others`` and the calibration ``tickets``."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "others.json").write_text(json.dumps(OTHERS))
    calibration = calibrate(tiny_model, TEAM, EXAMPLES, method="head", risk=0.2)
    calibration.save(folder / "tickets.calibration.json")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    files = str(folder / "others.json"), str(folder / "tickets.calibration.json")
    with served("--questions", files[0], "--calibration", files[1]) as running:
        yield running


def post(server: Served, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=60)


def test_a_calibrated_set_is_answered_by_its_name(
    server: Served, tiny_model: Model, folder: Path
) -> None:
    text = "My card was charged again."
    path = folder / "tickets.calibration.json"
    expected = tiny_model.decide(text, TEAM, calibration=path)["team"]
    response = post(server, DECISIONS, {"model": "tickets", "input": text}).json()
    (answer,) = response["answers"]
    assert (response["model"], response["calibrated"]) == ("tickets", True)
    found = {each["value"]: each["probability"] for each in answer["probabilities"]}
    assert found == pytest.approx(dict(expected.options), abs=1e-2)
    assert answer["certified"] == expected.certified
    assert answer["set"] == list(expected.set)
    same = post(server, SYSTEMONE, {"model": "tickets", "state": text}).json()
    assert same["calibrated"] is True
    assert same["answers"]["team"]["probabilities"] == pytest.approx(found, abs=1e-2)


def test_a_set_without_a_calibration_says_so(server: Served) -> None:
    response = post(server, DECISIONS, {"model": "others", "input": "Call me now!"}).json()
    assert response["calibrated"] is False
    (answer,) = response["answers"]
    assert (answer["type"], answer["name"]) == ("predicate", "urgent")
    assert "certified" not in answer


def test_a_set_can_have_a_prior_of_inputs(folder: Path, tiny_model: Model) -> None:
    path, text = folder / "hurried.prior.json", "Call me now!"
    urgent = Predicate(OTHERS["urgent"]["instructions"], name="urgent")
    fit_input_prior(tiny_model, [urgent], [text for text, _ in EXAMPLES], {}).save(path)
    expected = tiny_model.decide(text, urgent, prior=path)["urgent"].probability
    assert expected > tiny_model.decide(text, urgent)["urgent"].probability + 0.1
    with served("--prior", str(path), "--prior", "none") as running:
        response = post(running, DECISIONS, {"model": "hurried", "input": text}).json()
    assert response["answers"][0]["probability"] == pytest.approx(expected, abs=1e-2)
    assert response["calibrated"] is False


def test_other_requests_are_as_before(server: Served) -> None:
    question = {"type": "predicate", "instructions": "It is about money."}
    for model in ("any", None, "eliza-tiny"):
        body = {"model": model, "input": "I was charged twice.", "questions": [question]}
        response = post(server, DECISIONS, body).json()
        assert response["model"] == "eliza-tiny"
        assert "calibrated" not in response


def test_the_prompts_of_a_set_are_in_the_cache_before_the_first_request(folder: Path) -> None:
    path = str(folder / "tickets.calibration.json")
    with served("--calibration", path) as running:
        first = post(running, DECISIONS, {"model": "tickets", "input": "Hello, who is there?"})
    usage = first.json()["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] >= 4
    with served() as running:
        question = {"type": "choice", "instructions": "Which team?", "choices": []}
        question["choices"] = [{"value": "billing"}, {"value": "technical"}]
        fresh = post(running, DECISIONS, {"input": "Hello", "questions": [question]})
    assert fresh.json()["usage"]["input_tokens_details"]["cached_tokens"] <= 4


def test_sets_are_listed_as_models(server: Served) -> None:
    listed = httpx.get(f"{server.url}/v1/models").json()
    assert [each["id"] for each in listed["data"]] == ["eliza-tiny", "others", "tickets"]
    assert listed["models"][2]["description"] == "1 question: team"
    assert httpx.get(f"{server.url}/v1/models/tickets").json()["id"] == "tickets"
    assert httpx.get(f"{server.url}/v1/models/nothing").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (
            DECISIONS,
            {"model": "nothing", "input": "x"},
            400,
            "questions: this field is missing, or `model` must name a set of questions: 'others', "
            "'tickets'",
        ),
        (SYSTEMONE, {"state": "x"}, 422, "questions: this field is missing, or `model`"),
        (
            DECISIONS,
            {"model": "tickets", "input": "x", "questions": [{**OTHERS["urgent"]}]},
            400,
            "questions: the set 'tickets' has its own; leave them out",
        ),
        (
            DECISIONS,
            {"model": "tickets", "input": "x", "questions": None},
            400,
            "questions: expected a list of questions, or an object",
        ),
    ],
)
def test_wrong_requests_are_named(
    server: Served, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    response = post(server, path, body)
    assert response.status_code == status
    assert response.json()["error"]["message"].startswith(message)


def test_uncertain_answers_abstain(folder: Path, tiny_model: Model) -> None:
    unsure = calibrate(tiny_model, TEAM, EXAMPLES, risk=0.001)
    unsure.save(folder / "unsure.json")
    path = str(folder / "unsure.json")
    with served("--calibration", path, "--abstain", "risk") as running:
        response = post(running, DECISIONS, {"model": "unsure", "input": "The app crashes."}).json()
        listed = httpx.get(f"{running.url}/v1/models").json()
    assert response["answers"][0]["abstained"] is True
    assert response["answers"][0]["certified"] is False
    assert [each["id"] for each in listed["data"]] == ["eliza-tiny", "unsure"]


def test_wrong_files_are_named_at_the_start(folder: Path, tiny_model: Model) -> None:
    def message(*options: str) -> str:
        command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", "0", *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ended.returncode in (1, 2)
        return ended.stderr

    others, tickets = str(folder / "others.json"), str(folder / "tickets.calibration.json")
    same = folder / "more"
    same.mkdir(exist_ok=True)
    (same / "others.toml").write_text('[urgent]\ntype = "predicate"\ninstructions = "It is so."\n')
    assert "two files are named 'others'" in message(
        "--questions", others, "--questions", str(same / "others.toml")
    )
    assert "--abstain risk requires a --calibration for the set 'others'" in message(
        "--questions", others, "--abstain", "risk"
    )
    assert "has the model's name 'tickets'" in message(
        "--calibration", tickets, "--alias", "tickets"
    )
    assert "not a usable calibration" in message("--calibration", others)
    assert "not a usable calibration" in message("--prior", others)
    assert "the set 'tickets' has a --calibration and a --prior" in message(
        "--calibration", tickets, "--prior", tickets
    )
    assert "--prior inputs needs a table" in message("--prior", "inputs")
    assert "--prior is given twice for all questions" in message(
        "--prior", "none", "--prior", "options"
    )
    assert "--abstain and --min-probability require --questions" in message(
        "--min-probability", "0.5"
    )
    (same / ".json").write_text(json.dumps(OTHERS))
    assert "the name of a set is that of its file" in message("--questions", str(same / ".json"))
    many = {
        "type": "choice",
        "instructions": "Which?",
        "choices": [f"label {i}" for i in range(300)],
    }
    (same / "many.json").write_text(json.dumps({"many": many}))
    assert "'many': many: 300 options, expected at most 255" in message(
        "--questions", str(same / "many.json")
    )
    (same / "tickets.json").write_text(json.dumps(OTHERS))
    assert "the set of questions 'tickets': the calibration is for another question" in message(
        "--questions", str(same / "tickets.json"), "--calibration", tickets
    )


def test_a_folder_has_the_questions_and_calibrations_of_several_sets(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("others.json", "tickets.calibration.json"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "notes.txt").write_text("not a set", encoding="utf-8")
    with served("--questions", str(tmp_path)) as running:
        listed = httpx.get(f"{running.url}/v1/models").json()["data"]
        assert [each["id"] for each in listed][1:] == ["others", "tickets"]
        body = {"model": "tickets", "inputs": BILLING}
        text = httpx.post(f"{running.url}/v1/decisions/batch", json=body, timeout=60).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert sorted(line["index"] for line in lines) == list(range(len(BILLING)))
    assert all(line["calibrated"] and line["model"] == "tickets" for line in lines)
    assert all("certified" in line["answers"][0] for line in lines)


def test_a_calibration_has_its_questions(folder: Path) -> None:
    calibration = Calibration.load(folder / "tickets.calibration.json")
    assert calibration.asked == (TEAM,)
    assert not isinstance(calibration.asked[0], Predicate)


def test_metrics_compare_recent_answers_with_the_fitted_ones(server: Served) -> None:
    for text in BILLING:
        post(server, DECISIONS, {"model": "tickets", "input": text})
    lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("eliza_answer"))
    of_set = 'question="team",set="tickets"'

    def value(name: str, *more: str) -> float:
        labels = sorted([*of_set.split(","), *more])
        return float(found[f"eliza_answer_{name}{{{','.join(labels)}}}"])

    assert 0 <= value("drift") <= 1 and 0 < value("drift_by_chance") < 1
    assert value("abstained") == 0
    for of in ("fitted", "recent"):
        shares = [value("share", f'of="{of}"', f'answer="{a}"') for a in ("billing", "technical")]
        assert sum(shares) == pytest.approx(1, abs=1e-3)
        assert 0.5 <= value("probability", f'of="{of}"') <= 1
    assert not any("others" in name for name in found)


def test_a_share_of_the_decisions_thinks(folder: Path) -> None:
    files = "--questions", str(folder / "others.json"), "--calibration"
    thinking = "--think", "4", "--think-share", "0.5"
    with served(*files, str(folder / "tickets.calibration.json"), *thinking) as running:
        for name, n_thought in (("others", 3), ("tickets", 0)):
            answers = [post(running, DECISIONS, {"model": name, "input": "hi"}) for _ in range(6)]
            assert all(each.status_code == 200 for each in answers)
            assert sum("reasoning" in each.json() for each in answers) == n_thought
