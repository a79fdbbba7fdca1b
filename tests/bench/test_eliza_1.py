"""`bench.eliza_1`: how answers are judged, and the modes."""

from __future__ import annotations

import pytest

from bench.eliza_1.answers import TimedAnswer, answer, prompt_of
from bench.eliza_1.cases import TASKS, cases_of, same_parameters
from bench.eliza_1.report import judge
from bench.parts.modes import MODES
from eliza_ffi.model import Model


def answered(text: str) -> TimedAnswer:
    return TimedAnswer(text, 4, 2, 0.5)


def test_keys_may_have_any_order_but_types_must_match() -> None:
    case = next(
        case for case in cases_of("planner") if case.id == "delete-file-with-confirmation-flag"
    )
    for text, expected in {
        '\n{"parameters": {"confirm": true, "path": "FOO.tmp "}, "action": "DELETE_FILE"}': (
            *(True, True, True, True),
        ),
        '{"action":"DELETE_FILE","parameters":{"path":"foo.tmp"}}': (True, True, True, False),
        '{"action":"REPLY","parameters":{"text":"x"}}': (True, True, False, False),
        '{"action":"DELETE_FILE","parameters":{"path":3}}': (True, False, False, False),
        '{"action":"DELETE_FILE"': (False, False, False, False),
        "": (False, False, False, False),
    }.items():
        row = judge(case, "unguided", answered(text))
        assert (row.parsed, row.of_schema, row.right_name, row.right) == expected


def test_the_decision_to_respond_is_judged() -> None:
    case = next(
        case for case in cases_of("should_respond") if case.expected["shouldRespond"] == "STOP"
    )
    assert judge(case, "m", answered('{"shouldRespond":"STOP"}')).right
    assert not judge(case, "m", answered('{"shouldRespond":"IGNORE"}')).right
    assert not judge(case, "m", answered('{"shouldRespond":"MAYBE"}')).of_schema
    assert not judge(case, "m", answered('"STOP"')).of_schema


def test_expected_parameters_are_required_and_others_are_allowed() -> None:
    assert same_parameters({}, {"a": 1})
    assert same_parameters({"a": "<<any>>"}, {"a": ""})
    assert same_parameters({"a": "Bob"}, {"a": " bob", "b": 1})
    assert not same_parameters({"a": "<<any>>"}, {})
    assert not same_parameters({"a": 5}, {"a": "5"})
    assert not same_parameters({"a": True}, {"a": 1})


@pytest.mark.parametrize("task", TASKS)
def test_filled_answers_match_the_skeleton(tiny_model: Model, task: str) -> None:
    """Both orders of the grammar generate the same tokens, because decoding is greedy."""
    for case in list(cases_of(task))[:3]:
        prompt = prompt_of(tiny_model, case, chat=False)
        made = {mode: answer(tiny_model, case, prompt, mode, 60) for mode in MODES}
        filled, strict, guided = (
            made[mode] for mode in ("strict-trie-ffi", "strict-guided", "guided")
        )
        assert case.skeleton.matches(filled.text)
        assert guided.text == strict.text
        assert guided.tokens == 60 or case.skeleton.matches(guided.text)
        if filled.text == strict.text:
            assert filled.forward_passes < strict.forward_passes
