"""The plan of a JSON Schema finds the choices in an answer, and the best label is written."""

from __future__ import annotations

import json
import math
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from compiled import schema_masks
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from random_answers import random_answer
from schema_strategies import an

from eliza_ffi import Model
from eliza_ffi.structured.schema_plan import PlanReader, SchemaPlan, plan_of_text
from eliza_ffi.structured.schema_walk import SchemaDocument, forbid_impossible_parts

STRING, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = st.text(st.sampled_from('ab"\\/ \u00e9\n\u2028\U0001f600{}:,'), max_size=4)
SCALARS = TEXTS | st.integers(-(2**53), 2**53) | st.booleans() | st.none()
LISTED = (
    st.just(BOOLEAN)
    | st.just({"type": "null"})
    | SCALARS.map(lambda value: {"const": value})
    | st.lists(SCALARS, min_size=1, max_size=4, unique_by=json.dumps).map(lambda e: {"enum": e})
    | st.lists(TEXTS, min_size=1, max_size=4, unique=True).map(
        lambda e: {"enum": e, "type": "string", "title": "A kind"}
    )
)
SHORT_TEXT = {"type": "string", "maxLength": 4, "pattern": "^[a-z]*$"}
FREE = st.sampled_from(
    [
        SHORT_TEXT,
        {"type": "integer", "minimum": -20, "maximum": 300},
        {"type": ["boolean", "string"], "maxLength": 3},
        {"anyOf": [SHORT_TEXT, {"type": "null"}]},
        {"type": "object", "patternProperties": {"^[a-c]$": BOOLEAN}, "maxProperties": 2},
    ]
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    fields = draw(st.dictionaries(TEXTS, inner, max_size=3))
    required = draw(st.lists(st.sampled_from(sorted(fields)), unique=True)) if fields else []
    others = draw(st.sampled_from([False, False, True, SHORT_TEXT]))
    return {**an(required, **fields), "additionalProperties": others}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    least = draw(st.integers(0, 2))
    first = draw(st.lists(inner, max_size=2))
    schema: dict[str, Any] = {"type": "array", "items": draw(inner), "minItems": least}
    schema["maxItems"] = least + draw(st.integers(0, 2))
    return {**schema, "prefixItems": first} if first else schema


def unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts})


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return objects(inner) | arrays(inner) | unions(inner)


SCHEMAS = st.recursive(LISTED | FREE, larger, max_leaves=8)


def check_followed(reader: PlanReader, text: bytes, dice: random.Random) -> None:
    """Let a reader follow a text, and check that its choices have the labels that follow."""
    at = 0
    while at < len(text):
        if reader.is_at_choice and dice.random() < 0.5:
            assert reader.choice is not None
            rest = text[at:].removeprefix(reader.fixed)
            assert len(rest) < len(text[at:]) or not reader.fixed
            labels = reader.choice.labels
            texts = [(label.scored.encode(), label.text.encode()) for label in labels]
            found = [i for i, both in enumerate(texts) if all(map(rest.startswith, both))]
            assert found, (reader.choice, rest)
            index = max(found, key=lambda i: len(labels[i].text))
            at += len(reader.fixed + texts[index][0])
            reader.choose(index)
            continue
        size = dice.randint(1, 4)
        reader.push(text[at : at + size])
        at += size
        while reader.choice is not None and reader.beyond:  # this text contains the choice
            reader.push(b"")


@settings(deadline=None, max_examples=200)
@given(SCHEMAS, st.integers(0, 10**6))
@example({"enum": [1, 12, 123, True, "1", "", "12"]}, 0)
@example({"type": "array", "items": {"enum": [1, 10, 100]}, "maxItems": 3}, 1)
def test_a_reader_follows_every_answer_that_the_masks_allow(
    tiny_model: Model, schema: Any, seed: int
) -> None:
    dice, texts = random.Random(seed), tiny_model.vocabulary().texts
    masks = schema_masks(tiny_model.session.guidance(), an(a=schema, b=BOOLEAN))
    for _ in range(4):
        written = random_answer(masks, texts, dice, 200)
        assume(written is not None)
        assert written is not None
        reader = PlanReader(SchemaPlan(an(a=schema, b=BOOLEAN)))
        check_followed(reader, written.encode(), dice)
        assert reader.is_over
        assert reader.fixed == b""


@settings(deadline=None, max_examples=150)
@given(SCHEMAS, st.integers(0, 10**6))
def test_the_masks_allow_every_answer_that_a_plan_writes(
    tiny_model: Model, schema: Any, seed: int
) -> None:
    """With a high temperature, the choices are nearly random."""
    masks = schema_masks(tiny_model.session.guidance(), an(a=schema, b=BOOLEAN))
    result = tiny_model.generate("x", 400, schema=masks, temperature=20.0, seed=seed)
    source = masks.start()
    for token in result.tokens:
        source.accept(token)
    if result.finish_reason == "end":
        assert source.may_end
        json.loads(result.text)
    else:
        assert result.finish_reason == "length"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (an(city={"enum": ["rome", "paris"]}), "city"),
        (an([], city={"enum": ["rome", "paris"]}, n=INTEGER), "city?"),
        ({"enum": ["a", 2, None, [1, {"b": 2}]]}, ""),
        ({"enum": ["a", "b"], "minLength": 1, "x-names": ["A", "B"]}, ""),
        ({"type": ["boolean", "null"]}, ""),
        ({"anyOf": [BOOLEAN, {"enum": ["x"]}]}, ""),
        ({"anyOf": [an(kind={"const": "a"}), an(kind={"const": "b"})]}, "?"),
        ({"anyOf": [an(x=STRING), {"type": "null"}]}, "?"),
        ({"type": "array", "items": STRING}, "0?"),
        (an(a=an(b=BOOLEAN)), "a.b"),
        ({**an(a=an(b=BOOLEAN)), "$id": "https://example.org/a", "x-order": ["a"]}, "a.b"),
        ({"$ref": "#/$defs/a", "$defs": {"a": BOOLEAN}}, ""),
        ({"properties": {"a": BOOLEAN}, "type": "object"}, "a?"),
    ],
    ids=str,
)
def test_the_first_choice(schema: Any, path: str) -> None:
    choice = PlanReader(SchemaPlan(schema)).choice
    assert choice is not None and choice.path == path


@pytest.mark.parametrize(
    "schema",
    [
        STRING,
        INTEGER,
        {},
        True,
        {"enum": [1e300, 2]},
        {"enum": ["a\x7f", "b"]},
        {"enum": ["a\x01", "b"]},
        {"type": "array", "items": INTEGER},
        {"anyOf": [STRING, {"type": "null"}]},
        {"anyOf": [an(a=STRING), an(a=BOOLEAN)]},
        {**an([], a=BOOLEAN, b=BOOLEAN), "maxProperties": 1},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"const": 1}]},
        {"type": "object", "required": ["a"]},
        {"enum": [*range(5000)]},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_value_that_cannot_be_divided_is_free(schema: Any) -> None:
    reader = PlanReader(SchemaPlan(schema))
    assert reader.choice is None
    assert not reader.is_over


def test_references_that_multiply_end_in_free_text() -> None:
    refs = [{f"f{i}": {"$ref": f"#/$defs/d{n}"} for i in range(2)} for n in range(26)]
    defs: dict[str, Any] = {f"d{n}": an(**refs[n + 1]) for n in range(25)}
    reader = PlanReader(SchemaPlan({**an(**refs[0]), "$defs": {**defs, "d25": {"const": 1}}}))
    assert (reader.choice, reader.is_over, reader.fixed) == (None, False, b"")
    unions: dict[str, Any] = {f"d{n}": {"anyOf": [*refs[n + 1].values()]} for n in range(25)}
    reader = PlanReader(
        SchemaPlan({"$ref": "#/$defs/d0", "$defs": {**unions, "d25": {"const": 1}}})
    )
    assert reader.choice is None


def test_parts_without_values_are_found_in_schemas_that_need_each_other() -> None:
    defs = {
        "branches": {"anyOf": [{"$ref": "#/$defs/deeper"}, {"$ref": "#/$defs/nothing"}]},
        "deeper": an(left={"$ref": "#/$defs/branches"}, right={"$ref": "#/$defs/branches"}),
        "nothing": {"type": "integer", "minimum": 2, "maximum": 1},
        "list": {"type": "array", "items": {"$ref": "#/$defs/list"}, "minItems": 2},
        "one": {"enum": [1]},
        "either": {"anyOf": [{"$ref": "#/$defs/nothing"}, {"$ref": "#/$defs/one"}]},
        "both": an(a={"$ref": "#/$defs/either"}, b={"$ref": "#/$defs/nothing"}),
        "one of both": {"anyOf": [{"$ref": "#/$defs/both"}, {"$ref": "#/$defs/both"}]},
        "all": {"allOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/both"}]},
        "tree": an([], left={"$ref": "#/$defs/tree"}),
        "forbidden": an(["c"], a=STRING),
        "too many": {**an(a=STRING, b=STRING), "maxProperties": 1},
        "text": {"minimum": 2, "maximum": 1},
    }
    schema: dict[str, Any] = {**an([], **defs), "$defs": defs}
    forbid_impossible_parts(SchemaDocument(schema))
    names = [name for name in defs if defs[name].get("enum") == []]
    assert names == [
        *("branches", "deeper", "nothing", "list", "both", "one of both", "all"),
        *("forbidden", "too many"),
    ]


IMPOSSIBLE: dict[str, Any] = {
    "a required name that is forbidden": an(["street_name"], street=STRING),
    "more required names than properties": {**an(a=STRING, b=STRING), "maxProperties": 1},
    "more properties than declared": {**an([], a=STRING), "minProperties": 2},
    "an endless list": {"type": "array", "items": {"$ref": "#/$defs/list"}, "minItems": 1},
    "an enum of longer strings": {"type": "string", "enum": ["abc"], "maxLength": 2},
    "an enum that does not match": {"enum": ["abc"], "pattern": "^x"},
    "two types": {"allOf": [STRING, INTEGER]},
    "a constant of another type": {"allOf": [{"const": 1}, STRING]},
    "a list of impossible items": {"type": "array", "items": an(["b"], a=STRING), "minItems": 1},
    "impossible alternatives": {"anyOf": [an(["b"], a=STRING), {**STRING, "enum": [1]}]},
}
LIST = {"$defs": {"list": IMPOSSIBLE["an endless list"]}}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("others", [True, False])
def test_an_impossible_field_is_never_begun(tiny_model: Model, name: str, others: bool) -> None:
    """With a high temperature, the choices are nearly random."""
    fields = {"a": IMPOSSIBLE[name], "b": BOOLEAN}
    schema = {**LIST, **an(["b"], **fields), "additionalProperties": others}
    options: Any = {"max_tokens": 60, "on_limit": "close", "temperature": 20.0}
    for seed in range(10):
        assert "a" not in tiny_model.fill("x", schema, seed=seed, **options).value


def test_the_masks_write_an_answer_whose_plan_is_wrong(tiny_model: Model) -> None:
    """A plan that offers only what the grammar refuses has no effect, at every kind of step."""
    item = {"enum": ["x", "y"]}
    schema = an(a=item, b={"type": "array", "items": item, "minItems": 1, "maxItems": 2})
    wrong = [
        an(a={"enum": ["z", "w"]}, b=schema["properties"]["b"]),
        an(a=item, c=item),
        an(a=item, b={**schema["properties"]["b"], "items": BOOLEAN}),
        an(a=item, b={**schema["properties"]["b"], "minItems": 4, "maxItems": 6}),
        an([], c=item, d=item),
        {"type": "array", "items": item},
        an(a=item),
        item,
    ]
    masks = schema_masks(tiny_model.session.guidance(), schema)
    for each in wrong:
        masks.plan = SchemaPlan(each)
        for seed in range(4):
            result = tiny_model.generate("x", 60, schema=masks, temperature=20.0, seed=seed)
            jsonschema.validate(json.loads(result.text), schema)


def test_a_schema_with_its_own_options_for_white_space_has_no_plan() -> None:
    assert plan_of_text('{"x-guidance": {"whitespace_flexible": true}, "enum": [1, 2]}') is None


# ---- Answers of a model ------------------------------------------------------------------------

CITY = {"enum": ["rome", "paris", "new york", "new delhi", "newcastle"]}
PROMPTS = ("Where?", "The capital of Italy:", 'Not {"city":"new york"}.')
WITH_OTHERS = {
    "alone": an(city=CITY),
    "a text": an(city=CITY, note={"type": "string", "maxLength": 8}),
    "a number": an(city=CITY, n={"type": "integer", "minimum": 0, "maximum": 99}),
    "an optional field": an(["city"], city=CITY, ok=BOOLEAN),
    "open": {"type": "object", "properties": {"city": CITY}, "required": ["city"]},
    "a list": an(city=CITY, tags={"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}),
    "alternatives": an(city=CITY, x={"anyOf": [{"type": "string", "maxLength": 3}, BOOLEAN]}),
}


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("others", WITH_OTHERS)
def test_an_enum_does_not_depend_on_later_fields(
    tiny_model: Model, prompt: str, others: str
) -> None:
    ranked = tiny_model.rank(prompt, [f'{{"city":"{city}' for city in CITY["enum"]], k=5)
    first, second, *_ = ranked.probabilities
    assert first > 1.05 * second  # no near-tie
    result = tiny_model.fill(prompt, WITH_OTHERS[others], max_tokens=200, on_limit="close")
    alone = tiny_model.fill(prompt, WITH_OTHERS["alone"])
    assert result.value["city"] == alone.value["city"]
    assert result.choices["city"].logprob == pytest.approx(alone.choices["city"].logprob, abs=1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_most_probable_label_is_written(tiny_model: Model, prompt: str) -> None:
    """The reference sums the log-probabilities of all labels."""
    colors = ["red", "reddish", "green", "greenish blue", "blue"]
    result = tiny_model.fill(prompt, an(color={"enum": colors}, note={"type": "integer"}))
    labels = [f'{{"color":"{color}' for color in colors]
    expected = tiny_model.rank(prompt, labels, k=len(labels))
    assert f'{{"color":"{result.value["color"]}' == expected.labels[0]
    chosen = result.choices["color"]
    assert chosen.probability == pytest.approx(expected.probabilities[0], abs=1e-4)


def test_a_choice_takes_at_most_one_pass_if_the_first_tokens_differ(tiny_model: Model) -> None:
    ticket = an(kind={"enum": ["bug", "wish"]}, urgent=BOOLEAN, of=an(team={"enum": ["x", "y"]}))
    result = tiny_model.fill("x", ticket)
    assert [span.key for span in result.spans] == ["kind", "urgent", "of.team"]
    assert result.forward_passes <= 3
    assert result.value["kind"] in ("bug", "wish")


def test_the_only_value_of_an_answer_has_no_key(tiny_model: Model) -> None:
    result = tiny_model.fill("Where?", CITY)
    assert result.fields == {} and result.choices[""].value == result.value


TEXT = {"type": "string", "maxLength": 5}
LARGE = [{"x": [2**53 + 1, 0.5]}, {"y": {"z": -(2**70)}}, 7, [10**19]]
ODD = {
    "an enum whose label begins another": an(a={"enum": ["a", "ab", "abc"]}, b=TEXT),
    "numbers that begin another": {"type": "array", "prefixItems": [{"enum": [1, 10, 100]}, TEXT]},
    "large numbers": an(a={"enum": [2**53 + 1, 2**53 + 3]}, b=TEXT),
    "large numbers inside": an(a={"enum": LARGE}, b=TEXT),
    "whole floats": an(a={"enum": [0.5, 1.0, 2.0]}, b=TEXT),
    "floats inside": an(a={"enum": [{"x": 1.0}, {"x": 1e20}]}, b=TEXT),
    "a field that cannot be": an([], a=False, b=TEXT),
    "an empty range": an([], a={"type": "integer", "minimum": 5, "maximum": 1}, b=TEXT),
    "an enum of another type": an([], a={"type": "string", "enum": [1]}, b=TEXT),
    "items that cannot be": an(a={"type": "array", "items": an(k=False)}, b=TEXT),
    "counts with a point": an(a={"type": "array", "items": BOOLEAN, "minItems": 2.0}, b=TEXT),
    "least fields inside": an(a={**an([], p=TEXT, q=TEXT, z=TEXT), "minProperties": 2.0}),
    "a value of two alternatives": {"oneOf": [{"type": "null"}, {"enum": [None, "q", "r"]}]},
    "a name with a mark": an(**{"ok?": {"enum": ["y", "n"]}}, b=TEXT),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_the_value_is_the_chosen_one(tiny_model: Model, name: str, temperature: float) -> None:
    """Also if the masks allow a longer text, write a number differently, or leave a field out."""
    options: Any = {"temperature": temperature, "seed": 3, "max_tokens": 100, "on_limit": "close"}
    result = tiny_model.fill("Where?", ODD[name], **options)
    for path, choice in result.choices.items():
        value = result.value
        for key in path.split(".") if path and choice.kind == "enum" else ():
            value = value[int(key) if isinstance(value, list) else key]
        assert choice.kind != "enum" or value == choice.value


def test_a_choice_that_the_limit_cuts_is_not_reported(tiny_model: Model) -> None:
    schema = an(color={"enum": ["red", "green", "blue"]}, ok=BOOLEAN)
    for n in range(1, 12):
        result = tiny_model.fill("Where?", schema, max_tokens=n, on_limit="close")
        for name in result.choices.keys() & {"color", "ok"}:
            assert result.choices[name].value == result.value[name]


def test_threads_read_one_plan(tiny_model: Model) -> None:
    values = [f"value {i}" for i in range(3000)]
    plan = SchemaPlan(an(a={"enum": values}))
    with ThreadPoolExecutor(4) as pool:
        readers = list(pool.map(PlanReader, [plan] * 8))
    assert all(reader.choice is not None for reader in readers)


def test_choices_about_the_structure_have_probabilities(tiny_model: Model) -> None:
    schema = an(["a"], a=BOOLEAN, b=BOOLEAN, c={"type": "array", "items": BOOLEAN, "maxItems": 2})
    filled = [tiny_model.fill("x", schema, temperature=9.0, seed=seed) for seed in range(30)]
    results = [each.choices for each in filled]
    assert {choices["b?"].value for choices in results} == {"b", "c", None}
    for choices in results:
        assert all(0 < (choice.probability or 0) <= 1 for choice in choices.values())
        assert ("b" in choices) == (choices["b?"].value == "b")


def test_the_tokens_of_an_answer_spell_its_text(tiny_model: Model) -> None:
    texts = tiny_model.vocabulary().texts
    options: Any = {"temperature": 2.0, "max_tokens": 200, "on_limit": "close"}
    for seed in range(20):
        for schema in WITH_OTHERS.values():
            result = tiny_model.fill("x", schema, seed=seed, **options)
            assert b"".join(texts[token] for token in result.tokens).decode() == result.text


def test_log_probabilities_belong_to_the_tokens(tiny_model: Model) -> None:
    schema = an(["note"], note={"type": "string", "maxLength": 8}, city=CITY)
    result = tiny_model.generate("x", 100, schema=schema, logprobs=2)
    assert result.logprobs is not None
    assert tuple(each.token for each in result.logprobs) == result.tokens
    known = [each for each in result.logprobs if not math.isnan(each.logprob)]
    assert known
    assert len(known) < len(result.logprobs)  # the tokens of labels have none
    pieces = list(tiny_model.stream("x", 100, schema=schema, logprobs=2))
    assert "".join(pieces) == result.text


@pytest.mark.parametrize("n", range(1, 12))
def test_max_tokens_limits_all_tokens(tiny_model: Model, n: int) -> None:
    whole = tiny_model.generate("x", 200, schema=WITH_OTHERS["a text"])
    cut = tiny_model.generate("x", n, schema=WITH_OTHERS["a text"])
    assert cut.tokens == whole.tokens[:n]
    assert cut.finish_reason == ("length" if n < len(whole.tokens) else "end")


def test_a_schema_without_keywords_has_no_choices() -> None:
    for schema in ("true", "false", "{}"):
        plan = plan_of_text(schema)
        assert plan is not None and PlanReader(plan).choice is None


OPEN = {"type": "object", "additionalProperties": {"enum": [1, 2]}}


def test_an_open_object_has_no_field_twice(tiny_model: Model) -> None:
    prompt = '{"a":1,"a":1,"a":1,"a":1,'  # without the rule, the model repeats a field here
    result = tiny_model.fill(prompt, OPEN, max_tokens=160, on_limit="close")
    names: list[str] = []

    def note(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        names.extend(name for name, _ in fields)
        return dict(fields)

    json.loads(result.text, object_pairs_hook=note)
    assert len(names) == len(set(names)) > 1
