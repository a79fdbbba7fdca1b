"""The prior that ``prior="inputs"`` computes from the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eliza_ffi import CacheOptions, Model
from eliza_ffi.decisions.answers import Decision
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Score
from eliza_ffi.decisions.wire import as_questions
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.learning import input_prior
from eliza_ffi.learning.input_prior import STRENGTH, fit_input_prior
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.tables import RowDecider, open_table

F32: Any = {"cache": CacheOptions(type_k="f32", type_v="f32")}
CLOSE = 2e-5

INPUTS = [
    *("I was charged twice.", "Where is my parcel?", "A table, please.", "Thanks!"),
    *("Nobody answers.", "It is broken.", "How much is the lamp?", "Call me back."),
    *("I want my money back.", "Do you ship to Norway?", "Wrong colour.", "Goodbye."),
]
TEAM = Choice("Which team should read this?", ["billing", "sales", "support"], "team")
QUESTIONS = (
    TEAM,
    Predicate("The writer is angry.", "angry"),
    Score("How urgent is it?", ["can wait", "now"], "urgency"),
)


def distributions(decisions: list[Decision], name: str) -> Any:
    return np.array([decision[name].distribution for decision in decisions])


def divided(raw: Any, sample: Any) -> Any:
    """Reference implementation: divide by a power of the mean, and normalize."""
    weights = raw / sample.mean(axis=0) ** STRENGTH
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "settings", [{}, {"answer_style": "letters", "orders": 2, "scoring": "full"}]
)
def test_probabilities_are_divided_by_a_power_of_their_mean(
    plain_model: Model, settings: dict[str, Any]
) -> None:
    raw = plain_model.decide_many(INPUTS, QUESTIONS, **settings, **F32)
    found = plain_model.decide_many(INPUTS, QUESTIONS, prior="inputs", **settings, **F32)
    assert not any(decision.calibrated for decision in found)
    for name in ("team", "angry", "urgency"):
        p = distributions(raw, name)
        expected = divided(p, p)
        assert distributions(found, name) == pytest.approx(expected, abs=CLOSE)
        assert np.abs(expected - p).max() > 1e-3


def test_the_prior_of_labels_is_one_for_each_label(plain_model: Model) -> None:
    labels = MultiLabel("Is it about this?", ["sport", "money"], "topics")
    raw = plain_model.decide_many(INPUTS, labels, **F32)
    found = plain_model.decide_many(INPUTS, labels, prior="inputs", **F32)
    for name in ("sport", "money"):
        p = np.array([each["topics"].probabilities[name] for each in raw])
        both = np.stack([p, 1 - p], axis=1)
        got = [each["topics"].probabilities[name] for each in found]
        assert got == pytest.approx(divided(both, both)[:, 0], abs=CLOSE)


def test_a_saved_prior_gives_the_same_probabilities(plain_model: Model, tmp_path: Path) -> None:
    examples = [("I cannot pay.", "billing"), ("A lamp, please.", "sales")]
    settings: Any = {"prompt_order": "input-first", "examples": examples, "answer_style": "letters"}
    found = plain_model.decide_many(INPUTS, TEAM, prior="inputs", **settings, **F32)
    prior = fit_input_prior(plain_model, as_questions(TEAM), INPUTS, {**settings, **F32})
    prior.save(tmp_path / "prior.json")
    for given in (tmp_path / "prior.json", str(tmp_path / "prior.json"), prior):
        again = plain_model.decide_many(INPUTS, TEAM, calibration=given, **F32)
        assert distributions(again, "team") == pytest.approx(
            distributions(found, "team"), abs=CLOSE
        )
    alone = plain_model.decide(INPUTS[0], TEAM, calibration=prior, **F32)
    assert alone["team"].distribution == pytest.approx(found[0]["team"].distribution, abs=CLOSE)
    fitted = prior.questions[0]
    assert (fitted.method, len(fitted.examples)) == ("batch", 2)
    path = str(tmp_path / "prior.json")
    shown = plain_model.decision_prompts("hello", TEAM, calibration=path)
    assert shown == plain_model.decision_prompts("hello", TEAM, **settings)


@pytest.mark.parametrize("method", ["decide", "decide_many", "rows of a table"])
def test_the_prior_uses_the_slot_and_the_cache_of_the_decisions(
    plain_model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    """Before, the prior of decide_many ignored `cache`, and so did the rows of a table."""
    cache = CacheOptions(slot=1, type_k="f32", type_v="f32")
    questions = as_questions(TEAM)
    fitted = fit_input_prior(plain_model, questions, INPUTS, {"cache": cache})
    configs = []
    decision = plain_model.binding.decision

    def recorded(config: StreamConfig, *arguments: Any, **more: Any) -> Any:
        configs.append(config)
        return decision(config, *arguments, **more)

    monkeypatch.setattr(plain_model.binding, "decision", recorded)
    if method == "decide":
        plain_model.decide(INPUTS[0], TEAM, calibration=fitted, cache=cache)
    elif method == "decide_many":
        plain_model.decide_many(INPUTS, TEAM, prior="inputs", cache=cache)
        assert len(configs) >= 2 * len(INPUTS)
    else:
        settings: Any = {"prior": "inputs", "cache": cache}
        path = tmp_path / "in.csv"
        path.write_text("\n".join(["body", *(f'"{each}"' for each in INPUTS)]))
        rows = RowDecider(plain_model, "body", questions, settings, INPUTS)
        rows.begin(open_table(path), None)
        assert len(configs) >= len(INPUTS)
        assert all(each.error is None for each in rows.decide_rows(open_table(path).rows()))
    used = {(config.slot_id, config.cache_type_k, config.cache_type_v) for config in configs}
    assert used == {(1, "f32", "f32")}


def test_inputs_that_cannot_be_used_are_left_out(plain_model: Model) -> None:
    mixed: list[Any] = [INPUTS[0], b"bytes", *INPUTS[1:], "word " * 5000]
    found = plain_model.decide_many(mixed, TEAM, prior="inputs", return_exceptions=True, **F32)
    usable = [each for each in found if isinstance(each, Decision)]
    expected = plain_model.decide_many(INPUTS, TEAM, prior="inputs", **F32)
    assert distributions(usable, "team") == pytest.approx(
        distributions(expected, "team"), abs=CLOSE
    )


def test_the_mean_is_of_an_evenly_spaced_sample(
    plain_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_prior, "N_INPUTS", 10)
    raw = plain_model.decide_many(INPUTS, TEAM, **F32)
    found = plain_model.decide_many(INPUTS, TEAM, prior="inputs", **F32)
    p = distributions(raw, "team")
    assert distributions(found, "team") == pytest.approx(
        divided(p, p[[0, 1, 2, 3, 4, 6, 7, 8, 9, 10]]), abs=CLOSE
    )


def test_wrong_requests_are_named(tiny_model: Model) -> None:
    prior = fit_input_prior(tiny_model, (TEAM,), INPUTS, {})
    few = r"prior=.inputs. needs at least 10 usable inputs, got 9"
    both = "prior=.inputs. and calibration cannot be combined"
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (INPUTS[:9], {}, few),
        ([*INPUTS[:9], b"bytes"], {}, few),
        ([b"bytes"] * 12, {}, "can be used"),
        (iter(INPUTS), {}, r"a list of inputs, .*: pass list\(inputs\)"),
        (INPUTS, {"calibration": prior}, both),
        (INPUTS, {"prior": prior}, "prior must be .* got a Calibration; pass .* as calibration"),
        (INPUTS, {"prior": "a.json"}, "prior must be one of auto, .* got 'a.json'; pass a cal"),
        (INPUTS, {"prior": "option"}, "got 'option'; did you mean 'options'"),
    ]
    for inputs, settings, reason in wrong:
        with pytest.raises(InvalidArgumentError, match=reason):
            tiny_model.decide_many(inputs, TEAM, **{"prior": "inputs", **settings})
    with pytest.raises(InvalidArgumentError, match=r"needs several inputs: use decide_many\(\)"):
        tiny_model.decide(INPUTS[0], TEAM, prior="inputs")
