"""Skeletons: JSON form, positions of values, matching, sampler plans, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from skeleton_strategies import Field, shaped_skeletons

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured import Skeleton, SkeletonSpan, SpanSamplerPlan, SpanSampling

RESPONSE = {
    "id": "response",
    "spans": [
        {"kind": "literal", "value": '{"shouldRespond":"'},
        {"kind": "enum", "key": "shouldRespond", "enumValues": ["RESPOND", "IGNORE"]},
        {"kind": "literal", "value": '","contexts":'},
        {"kind": "free-json", "key": "contexts"},
        {"kind": "literal", "value": ',"sure":'},
        {"kind": "boolean", "key": "sure"},
        {"kind": "literal", "value": ',"score":'},
        {"kind": "number", "key": "score"},
        {"kind": "literal", "value": ',"replyText":"'},
        {"kind": "free-string", "key": "replyText"},
        {"kind": "literal", "value": '"}'},
    ],
}


def literal(text: str) -> dict[str, Any]:
    return {"kind": "literal", "value": text}


def enum(*values: Any) -> dict[str, Any]:
    return {"kind": "enum", "enumValues": list(values)}


def skeleton(*spans: dict[str, Any], grammar: str | None = None) -> Skeleton:
    return Skeleton.from_dict({"spans": list(spans)}, grammar)


# ---- the JSON form -----------------------------------------------------------------------------


@given(shaped_skeletons())
def test_any_skeleton_survives_its_json_form(shaped: tuple[tuple[Field, ...], Skeleton]) -> None:
    assert Skeleton.from_dict(shaped[1].to_dict()) == shaped[1]


def test_both_spellings_of_enum_values_are_accepted() -> None:
    a = SkeletonSpan.from_dict({"kind": "enum", "enumValues": ["a", 1]})
    b = SkeletonSpan.from_dict({"kind": "enum", "enum_values": ["a", 1], "key": None})
    assert a == b


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (None, "a skeleton must be an object"),
        ({}, "spans must be a list"),
        ({"spans": []}, "expected at least one span, got none"),
        ({"spans": [], "span": 1}, "has no field 'span'"),
        ({"spans": [literal("a")], "id": 3}, "id must be a string"),
        ({"spans": [literal("a")], "grammar": 3}, "grammar must be a string"),
        ({"spans": [literal("a")], "grammar": "r ::= [\0]"}, "grammar contains a NUL"),
        ({"spans": [literal("a"), 3]}, r"spans\[1\]: a span must be an object"),
        ({"spans": [{"value": "x"}]}, r"spans\[0\]: a span needs a kind"),
        ({"spans": [{"kind": "free"}]}, r"spans\[0\]: kind must be one of literal, enum, "),
        ({"spans": [{"kind": []}]}, r"spans\[0\]: kind must be one of"),
        ({"spans": [{"kind": "number", "min": 3}]}, r"spans\[0\]: a span has no field 'min'"),
        ({"spans": [{"kind": "literal"}]}, "a span of kind literal needs value"),
        ({"spans": [{"kind": "enum"}]}, "a span of kind enum needs enum_values"),
        ({"spans": [{"kind": "enum", "enumValues": "ab"}]}, "enumValues must be a list"),
        ({"spans": [enum()]}, "nothing to choose from"),
        ({"spans": [enum("a", "b", "a")]}, r"\[2\] is \"a\", a duplicate"),
        ({"spans": [enum({})]}, "must be a string, number, boolean"),
        ({"spans": [enum("\ud800")]}, r"lone surrogate, U\+D800"),
        ({"spans": [{"kind": "number", "value": "1"}]}, "value is only allowed in a span of kind"),
        ({"spans": [literal("a\0b")]}, "value contains a NUL"),
        ({"spans": [literal("\udc00")]}, "value has a lone surrogate"),
        ({"spans": [{"kind": "literal", "value": 3}]}, "value must be a string"),
        ({"spans": [{"kind": "literal", "value": "a", "rule": "r"}]}, "rule is not allowed"),
        ({"spans": [{"kind": "number", "dfa": {}}]}, r"spans\[0\]: a span has no field 'dfa'"),
    ],
)
def test_the_error_for_a_malformed_skeleton_names_the_place(form: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        Skeleton.from_dict(form)


# ---- positions of values -----------------------------------------------------------------------


def test_values_include_quotes_unless_a_literal_opens_the_string() -> None:
    inside, contexts, *_, reply = Skeleton.from_dict(RESPONSE).placed
    assert inside.in_string
    assert inside.request() == {"choices": ["RESPOND", "IGNORE"]}
    assert not contexts.in_string
    assert reply.request() == {"json": "string-body"}
    outside = skeleton(literal('{"a":'), enum("x", "y"), literal("}"))
    assert outside.placed[0].request() == {"choices": ['"x"', '"y"']}


def test_adjacent_literals_are_joined() -> None:
    number, integer = {"kind": "number"}, {"kind": "integer"}
    spans = ["[", "[", number, ",", "", integer, "]", "]"]
    row = skeleton(*(literal(each) if isinstance(each, str) else each for each in spans))
    assert [(each.before, each.after) for each in row.placed] == [("[[", ","), ("", "]]")]
    assert [each.index for each in row.placed] == [2, 5]


def test_an_enum_with_one_value_is_a_literal() -> None:
    first = (literal('{"a":'), enum('x"y'), literal(',"b":"'), enum("ü"))
    row = skeleton(*first, literal('","c":'), enum(None), literal("}"))
    (only,) = row.placed
    assert only.is_literal
    assert only.before == '{"a":"x\\"y","b":"ü","c":null}'
    assert row.matches(only.before)


QUOTE = literal('"')


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([{"kind": "number"}, {"kind": "number"}], r"\[0\]: a number span must be followed by a"),
        ([{"kind": "free-json"}, literal("5")], r"\[0\].*'5', which could be part of a number"),
        ([literal('"a '), {"kind": "free-json"}, QUOTE], r"\[1\]: a free-json span is not allowed"),
        ([QUOTE, {"kind": "free-string"}, literal("!")], r"\[1\].* begins with the closing quote"),
        ([QUOTE, {"kind": "free-string"}], r"\[1\].* begins with the closing quote"),
        ([literal('"a\\'), {"kind": "boolean"}], r"\[1\]: .* inside an escape"),
        ([QUOTE, enum("", "a"), QUOTE], r"\[1\]: an empty value inside a JSON string"),
        ([QUOTE, enum("1", 1), QUOTE], r"\[1\]: enum_values: expected different spellings"),
    ],
)
def test_a_misplaced_value_is_rejected(spans: list[Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"spans{reason}"):
        skeleton(*spans)


def test_values_with_a_recognizable_end_can_be_adjacent() -> None:
    row = skeleton({"kind": "free-string"}, {"kind": "boolean"}, {"kind": "number"})
    assert row.matches('"a"true-1.5')
    assert not row.matches('"a"true')


# ---- rules -------------------------------------------------------------------------------------


def test_the_named_rule_becomes_the_start_rule() -> None:
    span = {"kind": "free-json", "rule": "digit"}
    placed = skeleton(span, grammar='root ::= "root" digit\ndigit ::= [0-9] # root').placed[0]
    assert placed.request() == {
        "grammar": 'root ::= digit\nformer-root ::= "root" digit\ndigit ::= [0-9] # root'
    }


@pytest.mark.parametrize("grammar", [None, 'root ::= "digit ::="'])
def test_the_error_for_a_missing_rule_names_it(grammar: str | None) -> None:
    with pytest.raises(InvalidArgumentError, match=r"spans\[1\]: .*the rule 'digit'"):
        skeleton(literal("x"), {"kind": "number", "rule": "digit"}, grammar=grammar)


# ---- matching ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "matches"),
    [
        (':1,"replyText"', ':-1e5,"replyText"', True),
        ('""}', '"\\""}', True),
        ("IGNORE", "STOP", False),
        (":1,", ":01,", False),
        ("[]", "[,]", False),
        ("true", "null", False),
        ('""}', '"\n"}', False),
        ("}", "} ", False),
    ],
)
def test_matching_accepts_exactly_the_text_that_filling_could_write(
    old: str, new: str, matches: bool
) -> None:
    text = '{"shouldRespond":"IGNORE","contexts":[],"sure":true,"score":1,"replyText":""}'
    assert Skeleton.from_dict(RESPONSE).matches(text)
    assert text.count(old) == 1
    assert Skeleton.from_dict(RESPONSE).matches(text.replace(old, new)) == matches
    assert not Skeleton.from_dict(RESPONSE).matches("")


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("[1,-2.5e+3 , {}]", True),
        ('{"a" : {"b":[null,true,"x\\u00e4"]}}', True),
        ("[" * 16 + "]" * 16, True),
        ("[" * 17 + "]" * 17, False),
        ("[" + " " * 20 + "]", True),
        ("[" + " " * 21 + "]", False),
        (" 1", False),
        ("[1,]", False),
        ("{a:1}", False),
        ('{"a"}', False),
        ('"\\ud800"', False),
        ('"a\\u00e4\\ud83d\\ude00"', True),
        ('"\x7f"', True),
        ('"\x1f"', False),
        ("[1", False),
    ],
)
def test_free_json_is_any_json_within_the_limits(text: str, matches: bool) -> None:
    assert skeleton({"kind": "free-json"}).matches(text) == matches


# ---- the sampler plan --------------------------------------------------------------------------


def test_only_free_values_use_the_calls_sampling() -> None:
    call = SpanSampling(0.7, 40, 0.9)
    plan = SpanSamplerPlan()
    for kind in ("enum", "number", "integer", "boolean"):
        assert plan.sampling(0, kind, call) == SpanSampling(0.0)
    for kind in ("free-string", "free-json"):
        assert plan.sampling(0, kind, call) == call


def test_an_override_wins_unless_the_plan_is_strict() -> None:
    call = SpanSampling(0.7, 40, 0.9)
    overrides = [
        {"spanIndex": 1, "temperature": 0.2, "topK": 3},
        {"span_index": 2, "temperature": 1, "top_p": 0.5},
    ]
    plan = SpanSamplerPlan.from_dict({"overrides": overrides})
    assert plan.sampling(1, "enum", call) == SpanSampling(0.2, 3, 0.9)
    assert plan.sampling(2, "free-string", call) == SpanSampling(1, 40, 0.5)
    assert plan.sampling(3, "free-string", call) == call
    strict = SpanSamplerPlan.from_dict({"overrides": overrides, "strict": True})
    assert strict.sampling(1, "enum", call) == SpanSampling(0.0)
    assert strict.sampling(2, "free-string", call) == SpanSampling(1, 40, 0.5)
    assert SpanSamplerPlan.from_dict(strict.to_dict()) == strict


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ([], "a sampler plan must be an object"),
        ({"override": []}, "has no field 'override'"),
        ({"overrides": {}}, "overrides must be a list"),
        ({"strict": 1}, "strict must be True or False, got 1"),
        ({"overrides": [{"temperature": 1}]}, r"overrides\[0\]: an override needs span_index"),
        ({"overrides": [{"spanIndex": 0}]}, r"overrides\[0\]: an override needs temperature"),
        ({"overrides": [{"spanIndex": -1, "temperature": 0}]}, "spanIndex must be a whole number"),
        *(
            ({"overrides": [{"spanIndex": 0, "temperature": wrong}]}, "must be a number of 0 or mo")
            for wrong in (-1, float("nan"))
        ),
        ({"overrides": [{"spanIndex": 0, "temperature": 1, "topP": 0}]}, "top_p must be above 0"),
        ({"overrides": [{"spanIndex": 0, "temperature": 1, "topK": 0.5}]}, "top_k must be a whole"),
        ({"overrides": [{"spanIndex": 0, "temperature": 1}] * 2}, "two overrides are for span 0"),
    ],
)
def test_a_malformed_plan_is_rejected(form: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        SpanSamplerPlan.from_dict(form)
