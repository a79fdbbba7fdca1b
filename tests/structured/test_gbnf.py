"""The grammar of a skeleton accepts exactly the answers that filling can write."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gbnf_reader import Gbnf as GbnfReader
from hypothesis import given
from hypothesis import strategies as st
from skeleton_strategies import Field, actions, shaped_skeletons

from eliza_ffi import Gbnf
from eliza_ffi.elizaos.planning import ActionSkeleton, ParametersSkeleton
from eliza_ffi.model import Model
from eliza_ffi.structured import gbnf
from eliza_ffi.structured.automata import NUMBER_PATTERN, compile_regex
from eliza_ffi.structured.skeleton import Skeleton

seeds = st.integers(0, 10**6)


@pytest.mark.slow
@given(shaped_skeletons(), seeds)
def test_text_generated_from_the_grammar_matches_the_skeleton(
    shaped: tuple[tuple[Field, ...], Skeleton], seed: int
) -> None:
    # The other direction is tested in test_fill.py: the grammar accepts every filled answer.
    skeleton = shaped[1]
    text = GbnfReader(skeleton.to_gbnf()).make_up(random.Random(seed))
    assert skeleton.matches(text)


@pytest.mark.slow
@given(actions(), seeds)
def test_text_generated_from_a_plans_grammar_is_a_valid_plan(
    listed: list[dict[str, Any]], seed: int
) -> None:
    for skeleton in (ActionSkeleton(listed), ParametersSkeleton(listed[0])):
        text = GbnfReader(skeleton.to_gbnf()).make_up(random.Random(seed))
        assert skeleton.matches(text)
        assert skeleton.accepts(skeleton.parse(text))


@pytest.mark.slow
@given(st.text(st.sampled_from("aé€日😀0-9.e\n\x7f]^"), max_size=6))
def test_the_rules_of_an_automaton_accept_the_same_strings(text: str) -> None:
    patterns = ["[^a]*", "(?:é|日)+[€-😀]?", r"[\]^-]a*|\n\x7F", ".", NUMBER_PATTERN]
    for dfa in map(compile_regex, patterns):
        rules = gbnf.dfa_rules(dfa, "p")
        grammar = "root ::= p-0\n" + "".join(f"{name} ::= {body}\n" for name, body in rules.items())
        assert GbnfReader(grammar).accepts(text) == dfa.accepts(text.encode())


def test_a_users_rules_do_not_clash_with_built_in_rules() -> None:
    spans = [
        {"kind": "literal", "value": "["},
        {"kind": "free-json", "rule": "json-string"},
        {"kind": "literal", "value": ","},
        {"kind": "free-string"},
        {"kind": "literal", "value": ","},
        {"kind": "free-json", "rule": "root"},
        {"kind": "literal", "value": "]"},
    ]
    theirs = 'root ::= "r" json-string\njson-string ::= [0-9]+ ("a"\n | "root ::= b")? # "x'
    grammar = GbnfReader(Skeleton.from_dict({"spans": spans}, theirs).to_gbnf())
    assert grammar.accepts('[12a,"q",r3]')
    assert grammar.accepts('[1root ::= b,"",r3]')
    assert not grammar.accepts('["1","q",r3]')
    assert not grammar.accepts('[12,12,r"3"]')


SHAPES = (
    {"kind": "enum", "enumValues": ["a\nb", "ü]", 3]},
    {"kind": "free-string"},
    {"kind": "number"},
    {"kind": "free-json"},
    {"kind": "pattern", "pattern": "[ä-ü]{2}|x-*y"},
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape["kind"]))
def test_llama_cpp_accepts_the_grammar_and_writes_matching_text(
    tiny_model: Model, shape: dict[str, Any]
) -> None:
    spans = [{"kind": "literal", "value": "<"}, shape, {"kind": "literal", "value": ">"}]
    skeleton = Skeleton.from_dict({"spans": spans})
    grammar = GbnfReader(skeleton.to_gbnf())
    finished = 0
    for prompt in ("x", '{"a":', "1.5, 2.5,", "hello", "ä"):
        made = tiny_model.generate(prompt, 60, shape=Gbnf(skeleton.to_gbnf()), temperature=2.0)
        if made.finish_reason == "end":
            assert skeleton.matches(made.text)
            assert grammar.accepts(made.text)
            finished += 1
    assert finished > 0 or shape["kind"] not in (
        "enum",
        "pattern",
    )  # enums and patterns are short enough to finish
