"""The repr of every result is one line."""

from __future__ import annotations

from typing import Any

import pytest

from eliza_ffi import (
    ChoiceResult,
    Decision,
    FilledSpan,
    FillResult,
    GenerationResult,
    PartialField,
    TextAnswer,
    ToolCall,
    ToolCalls,
)
from eliza_ffi.decisions import (
    ChoiceAnswer,
    DecisionUsage,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
)

LONG = "several\nlines " * 50
CUT = repr(LONG)[:60] + "..."
LONG_VALUE = {"text": LONG, "items": list(range(1000))}
TOKENS = (1, 2, 3)


class Lines:
    """A value with a repr of several lines."""

    def __repr__(self) -> str:
        return "Lines(\n  1,\n)"


def filled(text: str, **more: Any) -> dict[str, Any]:
    known = {"value": None, "spans": (), "tokens": TOKENS, "complete": True, "forward_passes": 1}
    return {"text": text, **known, "seconds": 0.1, "stats": None, **more}


def span(value: Any, **more: Any) -> FilledSpan:
    known = {"index": 2, "key": "team", "kind": "enum", "before": LONG, "text": LONG}
    return FilledSpan(**{**known, "value": value, "logprob": -1.0, "tokens": TOKENS, **more})


def call(arguments: dict[str, Any]) -> ToolCall:
    return ToolCall("get", arguments, 0.9, {"get": 0.9, None: 0.1}, "abcdefghi")


FIVE, CUT_VALUE = filled("5", value=5), f"{repr(LONG_VALUE)[:60]}..."
CUT_SPAN = span("x", truncated=True)
ABSTAINED = ChoiceAnswer(options=((LONG, 0.75), ("b", 0.25)), abstained=True)
USAGE = DecisionUsage(10, 4, 2, 0.5)
YES = PredicateAnswer(name="urgent", probability=0.75)
NO = PredicateAnswer(probability=0.25)
ANGER = ScoreAnswer(levels=(("low", 0.25), ("high", 0.75)))
TEAM = ChoiceAnswer(name="team", options=(("billing", 0.75), ("sales", 0.25)))

RESULTS: list[tuple[object, str]] = [
    (ChoiceResult("a", 0, "a", -0.1054, TOKENS, 0, 0.1), "ChoiceResult('a', probability 0.9)"),
    (ChoiceResult(LONG, 0, LONG, 0.0, TOKENS, 0, 0.1), f"ChoiceResult({CUT}, probability 1)"),
    (ChoiceResult(Lines(), 0, "a", 0, TOKENS, 0, 0), "ChoiceResult(Lines(   1, ), probability 1)"),
    (GenerationResult("a", TOKENS, "end", 5, None), "GenerationResult('a', 3 tokens, end)"),
    (GenerationResult(LONG, TOKENS, "end", 5, None), f"GenerationResult({CUT}, 3 tokens, end)"),
    (TextAnswer("a", TOKENS, "length", 5, None), "TextAnswer('a', 3 tokens, length)"),
    (FillResult(**filled("a")), "FillResult('a', 3 tokens)"),
    (FillResult(**filled(LONG, complete=False)), f"FillResult({CUT}, 3 tokens, incomplete)"),
    (FillResult(**filled("a", spans=(CUT_SPAN,))), "FillResult('a', 3 tokens, truncated)"),
    (FillResult(**FIVE), "FillResult(5, 3 tokens)"),
    (FillResult(**FIVE, is_closed=True), "FillResult(5, 3 tokens, truncated)"),
    (
        FillResult(**filled(LONG, value=LONG_VALUE)),
        f"FillResult({CUT_VALUE}, 3 tokens)",
    ),
    (span("billing", truncated=False), "FilledSpan('team', enum, 'billing')"),
    (span(LONG, truncated=True, key=None), f"FilledSpan(2, enum, {CUT}, truncated)"),
    (PartialField(("items", 0), 5, dict), "PartialField(('items', 0), 5)"),
    (YES, "PredicateAnswer(True, probability of true 0.75)"),
    (TEAM, "ChoiceAnswer('billing', probability 0.75)"),
    (ABSTAINED, "ChoiceAnswer(None, probability 0.75, abstained)"),
    (ANGER, "ScoreAnswer(0.75, 'high' with probability 0.75)"),
    (MultiLabelAnswer(answers=(("a", YES), ("b", NO))), "MultiLabelAnswer(('a',) of 2 labels)"),
    (Decision((TEAM, YES), USAGE), "Decision({'team': 'billing', 'urgent': True}, 2 answers)"),
    (call({"id": 1}), "ToolCall('get', {'id': 1}, probability 0.9)"),
    (ToolCalls([call({})]), "[ToolCall('get', {}, probability 0.9)]"),
]


@pytest.mark.parametrize(("result", "expected"), RESULTS)
def test_the_repr_of_a_result_is_one_line(result: object, expected: str) -> None:
    assert repr(result) == expected
    assert "\n" not in expected


def test_the_repr_of_a_large_decision_is_one_line() -> None:
    answers = tuple(PredicateAnswer(name=f"question {i}", probability=0.9) for i in range(400))
    shown = repr(Decision(answers, USAGE))
    assert len(shown) < 100
    assert shown.endswith("..., 400 answers)")
