"""Every argument that takes one of a few words names the right word if one is misspelt."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typing_extensions

import eliza_ffi
from eliza_ffi import CacheOptions, Classifier, Model, Sampling, decisions, evidence, learning
from eliza_ffi.decisions import Choice
from eliza_ffi.decisions.prompt_settings import PromptArguments
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence.deciding import DecideOptions, DecideSettings
from eliza_ffi.learning import calibrate, evaluate
from eliza_ffi.session import options, tool_calls

TALK = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "lookup"}}]
TEAM = Choice("Which team?", ["billing", "sales"], "team")
EXAMPLES = [(f"input {i}", "sales") for i in range(10)]
FEW = {"labels": ["a", "b"]}


def deciding(name: str) -> Callable[[Model, str], Any]:
    return lambda model, word: model.decide("x", TEAM, **{name: word})  # type: ignore[misc]


CALLS: dict[str, tuple[str, Callable[[Model, str], Any]]] = {
    "mode": ("sample", lambda model, word: model.choose("x", ["a", "b"], mode=word)),
    "tokenization": ("canonical", lambda model, w: model.rank("x", ["a", "b"], tokenization=w)),
    "on_limit": ("close", lambda model, word: model.fill("x", {"type": "null"}, on_limit=word)),
    "pooling": ("last", lambda model, word: model.embed("x", word)),
    "long_texts": ("average", lambda model, word: model.embed("x", long_texts=word)),
    "prefer": ("cheap", lambda m, w: calibrate(m, TEAM, EXAMPLES, prefer=w)),
    "type_k": ("q8_0", lambda m, w: m.choose("x", ["a", "b"], cache=CacheOptions(type_k=w))),
    "type_v": ("q8_0", lambda m, w: m.choose("x", ["a", "b"], cache=CacheOptions(type_v=w))),
    "tool_choice": ("required", lambda model, word: model.call_tool(TALK, TOOLS, word)),
    "name": ("greedy", lambda model, word: Sampling.preset(word)),
    **{
        name: (word, deciding(name))
        for name, word in [
            ("answer_style", "letters"),
            ("prompt_order", "question-first"),
            ("prompt_format", "plain"),
            ("scoring", "constrained"),
            ("prior", "options"),
            ("abstain", "risk"),
        ]
    },
    "prior of many": ("inputs", lambda m, word: m.decide_many(["x"], TEAM, prior=word)),
    "prior of evaluate": ("options", lambda m, w: evaluate(m, TEAM, EXAMPLES, prior=w)),
    "target": (
        "accuracy",
        lambda m, w: calibrate(eliza_ffi.Cascade([m]), TEAM, EXAMPLES, target=w),  # type: ignore
    ),
    "method": ("temperature", lambda m, w: calibrate(m, TEAM, EXAMPLES, method=w)),  # type: ignore
    "method of fit": ("head", lambda m, w: Classifier(m, **FEW, method=w).fit(["x"], ["a"])),
    "on_error": ("row", lambda m, w: Classifier(m, **FEW, on_error=w).predict(["x"])),
    "show_options": ("auto", lambda m, w: Choice("?", ["a", "b"], show_options=w)),
}


def misspelt(word: str) -> str:
    return word[:-1] if len(word) > 4 else word + word[-1]


@pytest.mark.parametrize("name", CALLS)
def test_a_misspelt_word_is_named_with_the_right_one(tiny_model: Model, name: str) -> None:
    word, call = CALLS[name]
    pattern = f"got {misspelt(word)!r}; did you mean {word!r}"
    if name in ("type_k", "type_v"):  # which the library checks
        pattern = f'expected one of .*{word}.*, got "{misspelt(word)}"'
    with pytest.raises(InvalidArgumentError, match=pattern):
        call(tiny_model, misspelt(word))


def words_of(hint: Any) -> set[str]:
    if isinstance(hint, str):
        return {hint} if "Literal['" in hint else set()
    if get_origin(hint) is Literal:
        return {each for each in get_args(hint) if isinstance(each, str)}
    arguments = get_args(hint)
    if get_origin(hint) is Mapping:
        arguments = arguments[1:]  # a misspelt key is a missing one
    return set().union(*map(words_of, arguments))


def public_parameters() -> Iterator[tuple[str, Any]]:
    """Yield the names and types of the parameters of all public functions and settings."""
    settings = [DecideSettings, PromptArguments, tool_calls.ToolSettings, options.ChoiceSettings]
    settings += [options.FillSettings, options.StreamSettings, options.TextSettings]
    names = {**{each: getattr(eliza_ffi, each) for each in eliza_ffi.__all__}}
    for room in (decisions, evidence, learning):
        names |= {each: getattr(room, each) for each in room.__all__}
    functions: list[Any] = list(settings)
    for each in names.values():
        if inspect.isclass(each):
            members = vars(each).items()
            functions += [
                found
                for name, found in members
                if isinstance(found, types.FunctionType) and not name.startswith("_")
            ]
            functions.append(each.__init__)
        elif inspect.isfunction(each):
            functions.append(each)
    for function in functions:
        try:
            hints = get_type_hints(function, localns={**vars(typing_extensions), **names})
        except (NameError, TypeError):  # only type checkers can read an annotation
            hints = function.__annotations__
        yield from hints.items()


def test_every_word_is_tested() -> None:
    listed = {name for name, hint in public_parameters() if name != "return" and words_of(hint)}
    assert {"mode", "prompt_order", "method", "on_error", "show_options"} <= listed
    assert listed - CALLS.keys() == set()


def test_the_docstring_of_decide_has_exactly_its_keywords() -> None:
    doc = inspect.getdoc(Model.decide) or ""
    part = doc.partition("Other Parameters\n")[2].partition("\nReturns\n")[0]
    named = {
        name for line in re.findall(r"^([a-z_, ]+) : ", part, re.M) for name in line.split(", ")
    }
    assert named == set(DecideOptions.__annotations__)
