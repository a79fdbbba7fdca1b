"""JSON Schemas: enforcement while the answer is written, and validation afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Optional

import jsonschema
import pydantic
import pytest
from compiled import schema_grammar, schema_masks
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_answers import random_answer
from schema_strategies import an, schemas

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.errors import FillError, InvalidAnswerError, InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.sampling.params import MAX_SEED, Sampling
from eliza_ffi.session.requests import Request, sampled_again
from eliza_ffi.structured import Lark, Regex
from eliza_ffi.structured import schema as schema_module
from eliza_ffi.structured.patterns import without_lookaround
from eliza_ffi.structured.schema_walk import SchemaDocument, is_impossible
from eliza_ffi.structured.shape import shape_of
from eliza_ffi.structured.validation import checked_value

STRING = {"type": "string"}


CONDITION = {"$defs": {"a/b": {"if": {"const": 1}, "else": {}}}}
UPPER_CASE = {"patternProperties": {r"^\p{Lu}": {}}, "additionalProperties": False}
TWO_NUMBERS = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
REQUIRED_HERE = {"$ref": "#", "required": ["next"], "title": "next"}
LONG_NAME = "a[a-z]{2}(-[a-z]+)+-[0-9]{12}:[a-z0-9]{26}"
BACKWARD = r"(a)\1"  # which no part of llguidance supports
NAMES = {"^a": STRING, "b$": {"type": "null"}, "^(?=c)d": {}}


RELAXED: list[tuple[Any, tuple[str, ...]]] = [
    (an(a=STRING), ()),
    ({"type": "string", "x-order": 3, "unheard of": {"not": {}}}, ()),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ()),
    (an(a={"type": "string", "format": "nope"}), ("#/properties/a/format",)),
    (an(a={"items": STRING, "uniqueItems": True}), ("#/properties/a/uniqueItems",)),
    ({"anyOf": [{"type": "integer", "not": {"const": 3}}, STRING]}, ("#/anyOf/0/not",)),
    ({**CONDITION, "items": {"$ref": "#/$defs/a~1b"}}, ("#/$defs/a~1b/else", "#/$defs/a~1b/if")),
    ({"$defs": {"unused": {"not": {}}}, "type": "null"}, ()),
    (an(a=TWO_NUMBERS, b={"oneOf": [{"const": "x"}]}), ("#/properties/a/oneOf",)),
    (an(a={"pattern": "^(?!x)[a-z]+$"}), ("#/properties/a/pattern",)),
    ({"pattern": r"\A[a-z]+\Z"}, ()),
    ({"pattern": r"^[\uD800\uDC00-\uDBFF\uDFFF]*(?![\s\S])"}, ()),
    ({"patternProperties": NAMES}, ("#/patternProperties", "#/patternProperties/^(?=c)d")),
    ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, ("#/minimum",)),
    ({"type": "number", "maximum": 1.7e308, "multipleOf": 1e-20}, ("#/maximum", "#/multipleOf")),
    ({**an(a=STRING), "patternProperties": {"^(a|b)$": STRING, "^c+$": {}}}, ()),
    ({"pattern": LONG_NAME, "maxLength": 1600}, ("#/maxLength",)),
    ({"properties": {"next": REQUIRED_HERE}}, ("#/properties/next/required",)),
    ({"properties": {"b": {"$ref": "#/$defs/\u00f6 b"}}, "$defs": {"\u00f6 b": STRING}}, ()),
    ({"type": "array", "minItems": 2.0, "maxItems": 3.0}, ()),
    ({"type": "integer", "multipleOf": 2**31}, ("#/multipleOf",)),
    ({"type": "integer", "multipleOf": 99991.1}, ("#/multipleOf",)),
    ({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}, ("#/allOf/1/multipleOf",)),
    (an(a={"multipleOf": 10**9}, b={"multipleOf": 0.01}, c={"multipleOf": 999.5}), ()),
]


@pytest.mark.parametrize(("schema", "places"), RELAXED, ids=str)
def test_each_relaxation_names_its_location(schema: Any, places: tuple[str, ...]) -> None:
    relaxed = schema_grammar(schema).relaxed
    assert sorted(each.partition(":")[0] for each in relaxed) == sorted(places)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strin"}, 'at #/type: "strin" is not one of'),
        (an(a=an(b={"pattern": BACKWARD})), "at #/properties/a/properties/b/pattern: .*backref"),
        ({"$defs": {"q": {"maxLength": -1}}}, r"at #/\$defs/q/maxLength: -1 is less than the"),
        (an(a={"$ref": "https://example.org/x"}), r"at #/properties/a/\$ref: .*not present"),
        ({"enum": []}, "at #/enum: Unsatisfiable"),
    ],
)
def test_the_error_for_an_unsupported_keyword_names_its_location(schema: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        schema_grammar(schema)


def test_constants_that_crash_llguidance_are_rejected() -> None:
    small = -(2.0**63)
    for schema in ({"const": small}, {"enum": [0, {"a": [small]}]}, {"allOf": [{"const": -1e300}]}):
        with pytest.raises(InvalidArgumentError, match="64-bit floats above -2\\^63"):
            schema_grammar(schema)


def test_bounds_that_crash_llguidance_are_not_enforced() -> None:
    relaxed = ("#/minimum: minimum is not enforced",)
    for bound in (-(2**63), -(2**63) + 1, -1e19, -(10**400)):
        schema = {"type": "integer", "minimum": bound, "exclusiveMaximum": 0}
        assert schema_grammar(schema).relaxed == relaxed


@pytest.mark.parametrize("value", [-(2**63), 2**64 + 1, -(10**30)], ids=str)
def test_integers_that_llguidance_would_round_are_written_exactly(
    tiny_model: Model, value: int
) -> None:
    bounds = {"type": "integer", "minimum": value, "maximum": value}
    for schema in ({"const": value}, {"enum": [value, value - 1]}, bounds):
        filled = tiny_model.fill("x", an(a=schema, b={"type": "boolean"})).value
        assert filled["a"] in (value, value - 1)


def test_the_search_for_the_location_of_an_error_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each part is compiled with all definitions, so the search would take very long otherwise."""
    compiled: list[int] = []

    def compile_one(part: Any, lenient: bool = False) -> Any:
        compiled.append(len(json.dumps(part)))
        return original(part, lenient)

    original = schema_module._compiled
    monkeypatch.setattr(schema_module, "_compiled", compile_one)
    definitions = {f"d{i}": {"enum": [f"{i:0100}"]} for i in range(1000)}
    parts = [{"$ref": f"#/$defs/d{i}"} for i in range(300)]
    with pytest.raises(InvalidArgumentError, match="backref"):
        schema_grammar({"$defs": definitions, "anyOf": [*parts, {"pattern": BACKWARD}]})
    assert sum(compiled) < 2 * schema_module.MAX_TRIAL_BYTES


@pytest.mark.parametrize(
    "pattern",
    [
        *("^(?!ab)[a-c]+$", "^(?=.*c)(?!.*bb)[a-c]*$", r"\A(?!a|b)c?", "^(?![ab)]|b).+c"),
        *("^(?=a)b|c", "^(?!^a+$)[abc]+", r"^(?!\))a", "^[ab](?!.*cc)[abc]+$"),
        *(r"^a(?!b)c?(?=[)])\)", "^a+(?!b)c", "^[abc]*(?<!b)$"),
        *(r"^(?!a)[abc)]*(?<!\))$", "b(?<=ab)$", "a|b(?<!ab)$"),
    ],
)
def test_patterns_with_lookaround_match_like_pythons_patterns(pattern: str) -> None:
    assert schema_grammar({"pattern": pattern}).relaxed
    validate = partial(checked_value, json.dumps({"pattern": pattern}))
    for n in range(5):
        for letters in itertools.product("abc)", repeat=n):
            text = "".join(letters)
            try:
                validate(json.dumps(text))
            except InvalidArgumentError:
                assert not re.search(pattern, text), text
            else:
                assert re.search(pattern, text), text


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"^(?!aws:)[a-z:]+(?<!x)$", "^[a-z:]+$"),
        (r"(?=a(b(c)))d|(?<=b)c", "d|c"),
        (r"[(?=]x\b\B[\b]", r"[(?=]x[\b]"),
        (r"(?<n>a)(?:b)\((?!\))", r"(?<n>a)(?:b)\("),
        *((pattern, pattern) for pattern in ("(?=a", "(?=a)*b", "(?<!a){2}b")),
    ],
)
def test_conditions_are_removed_from_patterns(pattern: str, expected: str) -> None:
    assert without_lookaround(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^[[(]$", ["[", "("], ["", "[("]),
        (r"^[^]$", ["a", "\n"], ["", "ab"]),
        (r"^a[^]b$", ["a\nb"], ["ab"]),
        (r"^[^[]$", ["a", "]"], ["["]),
        (r"^\cJ$", ["\n"], ["cJ", "J"]),
        (r"^[\cI]$", ["\t"], ["c", "I"]),
        (r"^\0$", ["\0"], ["0"]),
        (r"^[a&&b]$", ["a", "&", "b"], []),
        (r"^[a~~b]$", ["~"], ["c"]),
        (r"^[--a]$", ["-", "A", "a"], ["+", "b"]),
        (r"^[+--]$", ["+", ",", "-"], ["."]),
        (r"^{a}$", ["{a}"], ["a"]),
        (r"^a{2}$", ["aa"], ["a{2}", "a"]),
        (r"^a{,2}$", ["a{,2}"], ["aa"]),
        (r"^\a\<\>$", ["a<>"], ["\a<>"]),
        (r"^\p{Lu}\z", ["A"], ["a", "Ab"]),
    ],
)
def test_patterns_have_the_meaning_of_javascript(
    tiny_model: Model, pattern: str, matching: list[str], other: list[str]
) -> None:
    """Node.js gave the expected results, except for ``\\z``."""
    validate = partial(checked_value, json.dumps({"pattern": pattern}))
    for text in matching:
        assert validate(json.dumps(text)) == text
    for text in other:
        with pytest.raises(InvalidArgumentError, match="does not match"):
            validate(json.dumps(text))
    filled = tiny_model.fill("x", {"type": "string", "pattern": pattern}, retries=9)
    assert json.loads(filled.text) == filled.value


def test_lookaround_is_validated_in_answers(tiny_model: Model) -> None:
    result = tiny_model.fill("x", an(a={"pattern": "^(?!b)a$", "type": "string"}))
    assert result.value == {"a": "a"}
    assert result.relaxed == ("#/properties/a/pattern: its lookaround is not enforced",)
    with pytest.raises(InvalidAnswerError, match='"a" does not match'):
        tiny_model.fill("x", an(a={"pattern": "^(?!a)a$", "type": "string"}))


ROOT = {"$ref": "#"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 1, "items": ROOT},
        {"type": "array", "minItems": 1, "prefixItems": [ROOT]},
        {"type": "object", "required": ["a"], "properties": {"a": ROOT}},
        {"type": "object", "required": ["a"], "additionalProperties": ROOT},
        {"type": "array", "minItems": 2, "prefixItems": [{}], "items": {"anyOf": [ROOT, ROOT]}},
        an(a={"$ref": "#/$defs/b"}) | {"$defs": {"b": an(b=ROOT)}},
    ],
)
def test_a_schema_without_a_value_that_ends_is_rejected(schema: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="each value would contain another one"):
        schema_grammar(schema)


@pytest.mark.parametrize(
    "schema",
    [
        ROOT,
        {"anyOf": [ROOT, {"type": "null"}]},
        {"allOf": [{"type": "object"}, {"not": ROOT}]},
        an(a={"$ref": "#/$defs/b"}) | {"$defs": {"b": {"oneOf": [{"$ref": "#/$defs/b"}, True]}}},
        {"if": True, "then": {"$ref": "#/then"}},
    ],
)
def test_a_schema_that_refers_to_itself_for_the_same_value_is_rejected(schema: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="refers to itself for the same value"):
        schema_grammar(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": ROOT},
        {"type": "array", "minItems": 1, "prefixItems": [{}], "items": ROOT},
        {"type": ["array", "null"], "minItems": 1, "items": ROOT},
        {"type": "object", "properties": {"a": ROOT}},
        an(a={"anyOf": [ROOT, {"type": "null"}]}),
        an(a={"$ref": "#a"}) | {"$defs": {"a": {"$anchor": "a", "type": "null"}}},
    ],
)
def test_recursive_schemas_with_a_value_that_ends_are_compiled(schema: Any) -> None:
    assert not is_impossible(SchemaDocument(schema))
    assert schema_grammar(schema).grammar


@pytest.mark.slow
@settings(deadline=None)
@given(schemas(), st.integers(0, 10**6))
def test_answers_under_masks_are_valid_without_relaxations(
    tiny_model: Model, schema: Any, seed: int
) -> None:
    """If there are relaxations, every value that the validator accepts is valid."""
    try:
        masks = schema_masks(tiny_model.session.guidance(), schema)
    except InvalidArgumentError:
        assume(False)
    texts, dice = tiny_model.vocabulary().texts, random.Random(seed)
    validate = partial(checked_value, json.dumps(schema))
    for _ in range(3):
        try:
            text = random_answer(masks, texts, dice, 20)
        except InvalidArgumentError as error:  # not every schema without an end is rejected
            assert "too complex" in str(error)
            return
        if text is None:
            continue
        try:
            value = validate(text)
        except InvalidArgumentError:
            assert masks.relaxed
            continue
        if "multipleOf" not in str(schema):  # which jsonschema computes in binary fractions
            jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize(
    ("schema", "text", "is_valid"),
    [
        ({"multipleOf": 0.01}, "1.15", True),
        ({"multipleOf": 0.01}, "1.155", False),
        ({"maximum": 0.1}, "0.1", True),
        ({"type": "integer"}, "1.0", True),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, "1.0", False),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1.0", False),
        ({"uniqueItems": True}, "[1,1.0]", False),
        ({"pattern": r"^\p{L}+$"}, '"h\u00e9"', True),
        (UPPER_CASE, '{"\u00c9":1}', True),
        ({"pattern": "\x7f"}, '"a\x7fb"', True),
        ({"if": {"const": 1}, "then": False}, "1", False),
    ],
)
def test_values_are_validated_exactly(schema: Any, text: str, is_valid: bool) -> None:
    validate = partial(checked_value, json.dumps(schema))
    if is_valid:
        assert validate(text) == json.loads(text)
    else:
        with pytest.raises(InvalidArgumentError):
            validate(text)


def test_no_reference_is_fetched() -> None:
    validate = partial(checked_value, '{"$ref":"file:///etc/passwd"}')
    with pytest.raises(InvalidArgumentError, match="Retrieval is disabled"):
        validate("1")


NEVER = {"type": "boolean", "not": {"type": "boolean"}}


def test_the_error_for_an_invalid_value_has_its_text_and_the_reason(tiny_model: Model) -> None:
    with pytest.raises(InvalidAnswerError, match="is not allowed for") as caught:
        tiny_model.fill("x", NEVER)
    assert isinstance(caught.value, FillError)
    assert json.loads(caught.value.partial.text) in (True, False)
    assert caught.value.partial.text in str(caught.value)


class Dice(pydantic.BaseModel):
    number: Literal[1, 2, 3, 4, 5, 6, 7, 8]
    seen: bool

    @pydantic.field_validator("number")
    @classmethod
    def is_new(cls, number: int) -> int:
        tried.append(number)
        if len(set(tried)) < 2:
            raise ValueError("seen before")
        return number


tried: list[int] = []


@pytest.mark.parametrize("face", ["fill", "fill_many", "asynchronous"])
def test_an_invalid_answer_is_retried(tiny_model: Model, face: str) -> None:
    tried.clear()
    settings: Any = {"retries": 50, "temperature": 5.0}
    if face == "fill":
        value = tiny_model.fill("x", Dice, **settings).value
    elif face == "fill_many":
        value = tiny_model.fill_many(["x"], Dice, **settings)[0].value
    else:
        value = asyncio.run(AsyncModel.of(tiny_model).fill("x", Dice, **settings)).value
    assert len(tried) >= 2
    assert value.number == tried[-1]


def test_after_the_last_retry_the_error_is_raised(tiny_model: Model) -> None:
    class Never(pydantic.BaseModel):
        @pydantic.model_validator(mode="after")
        def count(self) -> Never:
            tried.append(0)
            raise ValueError("never good")

    tried.clear()
    with pytest.raises(InvalidAnswerError, match="never good") as rejected:
        tiny_model.fill("x", Never, retries=3)
    assert len(tried) == 4
    assert isinstance(rejected.value.__cause__, pydantic.ValidationError)


def test_retries_keep_the_sampling_and_follow_the_seed() -> None:
    def retried(**options: Any) -> list[Sampling]:
        request = Request(prompt_tokens=[1], **options)
        found = []
        for n_left in (3, 2, 1):
            request = sampled_again(request, n_left)
            assert request.sampling is not None
            found.append(request.sampling)
        assert len({each.seed for each in found}) == 3
        return found

    given = Sampling(temperature=2.0, min_p=0.3, top_k=7, dry_multiplier=0.5, seed=MAX_SEED)
    for each in retried(sampling=given):
        assert replace(each, seed=given.seed) == given
    assert retried(sampling=given) == retried(sampling=given)
    assert retried(sampling=given) != retried(sampling=replace(given, seed=5))
    for each in retried(top_p=0.5, repeat_penalty=1.5):
        assert (each.temperature, each.top_p, each.repeat_penalty) == (0.7, 0.5, 1.5)


def test_retries_are_checked(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="retries must be a whole number of 0 or more"):
        tiny_model.fill("x", bool, retries=-1)
    with pytest.raises(InvalidArgumentError, match="fill_stream has no retries"):
        list(tiny_model.fill_stream("x", bool, retries=1))
    skeleton = {"spans": [{"kind": "boolean"}]}
    with pytest.raises(InvalidArgumentError, match="retries must be 0 for a skeleton"):
        tiny_model.fill("x", skeleton, retries=1)


class Order(pydantic.BaseModel):
    drink: Literal["tea", "milk"]
    cups: Literal[1, 2] = 1
    note: Optional[str] = pydantic.Field(default=None, max_length=3)  # noqa: UP045


@dataclasses.dataclass
class Visit:
    name: Literal["a", "b"]
    again: bool = True


@pytest.fixture(scope="module")
def drawing_model(library: Library) -> Iterator[Model]:
    """Return a model without a seed, so that each call draws different tokens."""
    with Model(library=library, n_threads=1) as model:
        yield model


def test_the_model_decides_whether_to_write_optional_fields(drawing_model: Model) -> None:
    texts = {drawing_model.fill("x", Order, temperature=3.0).text for _ in range(60)}
    with_cups = [text for text in texts if "cups" in text]
    assert with_cups
    assert len(with_cups) < len(texts)
    for text in texts:
        assert Order.model_validate_json(text)


@pytest.mark.parametrize("given", [Order, Visit])
def test_an_omitted_field_gets_its_default(given: Any) -> None:
    value = shape_of(given).value('{"drink":"tea"}' if given is Order else '{"name":"a"}')
    assert value == (Order(drink="tea") if given is Order else Visit("a"))


BEFORE, AFTER = ({"kind": "literal", "value": text} for text in ('{"a":"', '"}'))
FREE_TEXT = {"spans": [BEFORE, {"kind": "free-string", "key": "a"}, AFTER]}


@pytest.mark.parametrize(
    "shape",
    [an(a={"type": "string", "maxLength": 20}), {"enum": [*"abcdefgh"]}, FREE_TEXT],
    ids=["masks", "closed", "skeleton"],
)
def test_a_seed_repeats_the_answer(drawing_model: Model, shape: Any) -> None:
    def texts(seed: int | None) -> list[str]:
        settings: dict[str, Any] = {"temperature": 3.0, "max_tokens": 40, "on_limit": "close"}
        return [drawing_model.fill("x", shape, seed=seed, **settings).text for _ in range(12)]

    assert len(set(texts(None))) > 1
    assert len(set(texts(5))) == 1
    assert len({texts(seed)[0] for seed in range(12)}) > 1


# ---- Limits --------------------------------------------------------------------------------------


def test_numbers_have_at_most_19_digits(tiny_model: Model) -> None:
    texts, guidance = tiny_model.vocabulary().texts, tiny_model.session.guidance()
    for schema in ({"type": "integer"}, {"type": "number"}, {"type": "number", "maximum": 1}, {}):
        masks = schema_masks(guidance, schema)
        source, text = masks.start(), b""
        while not source.has_ended and len(text) < 60:
            mask = source.mask()
            digits = [
                token
                for token, spelled in enumerate(texts)
                if spelled[:1].isdigit() and mask[token // 32] >> token % 32 & 1
            ]
            if not digits:
                break
            longest = max(digits, key=lambda token: len(texts[token]))
            source.accept(longest)
            text += texts[longest]
        assert source.may_end
        assert abs(float(text)) < 10**19
        assert len(text.replace(b".", b"").replace(b"-", b"")) <= 19


def test_a_longer_number_in_the_schema_is_allowed(tiny_model: Model) -> None:
    ids = [2**62, 2**62 + 2**61, 5]  # 19 digits
    assert all(allows(tiny_model, {"enum": ids}, str(each)) for each in ids)


def allows(model: Model, schema: Any, written: str) -> bool:
    source = schema_masks(model.session.guidance(), schema).start()
    for token in model.tokenize(written):
        if not source.mask()[token // 32] >> token % 32 & 1:
            return False
        source.accept(token)
    return source.may_end


@pytest.mark.parametrize("bound", [0, 0.25, 1, 1.5, 10, 99, 100, 100.5])
def test_a_number_above_an_exclusive_bound_may_end_in_zeros(
    tiny_model: Model, bound: float
) -> None:
    """Otherwise a model that has written 0.50 would have to add another digit, as in 0.501."""
    above = {"type": "number", "exclusiveMinimum": bound}
    below = {"type": ["number", "null"], "exclusiveMaximum": -bound}
    whole = {**above, "type": "integer"}
    texts = ("0", "0.0", "0.00010", "0.25", "0.250", "0.50", "1", "1.0", "1.90", "2.5", "99.0")
    for text in (*texts, "100", "100.50", "101"):
        is_inside = float(text) > bound
        assert allows(tiny_model, above, text) is is_inside
        assert allows(tiny_model, below, f"-{text}") is is_inside
        assert allows(tiny_model, whole, text) is (is_inside and "." not in text)
    with pytest.raises(InvalidArgumentError, match=rf"exclusiveMinimum \({bound}\)"):
        schema_grammar({**above, "maximum": bound})


@pytest.mark.parametrize(
    "format, longest",
    [
        ("date-time", "2026-11-25T12:30:00.123456789+01:00"),
        ("time", "12:30:00.12345678901234567890+01:00"),
    ],
)
def test_times_have_at_most_35_characters(tiny_model: Model, format: str, longest: str) -> None:
    schema = {"type": "string", "format": format}
    longer = longest.replace(".", ".0")
    assert allows(tiny_model, schema, json.dumps(longest))
    assert not allows(tiny_model, schema, json.dumps(longer))
    assert allows(tiny_model, {**schema, "maxLength": 36}, json.dumps(longer))
    inside = {"$defs": {"t": schema}, "type": "array", "items": {"$ref": "#/$defs/t"}}
    assert schema_grammar(inside).schema["$defs"]["t"]["maxLength"] == len(longest)


@pytest.mark.parametrize("text", ["P1Y2M10DT2H30M59S", "P999999Y999999M", "P3W", "PT36H", "P1DT9M"])
def test_durations_have_numbers_of_at_most_six_digits(tiny_model: Model, text: str) -> None:
    duration = {"type": "string", "format": "duration"}
    assert allows(tiny_model, duration, json.dumps(text))
    longer = re.sub("([0-9]+)", lambda found: found[0].zfill(7), text, count=1)
    for other in (longer, f"{text}1", f"{text}T", f"P-{text[1:]}", f"P1W{text[1:]}", text[1:]):
        assert not allows(tiny_model, duration, json.dumps(other))
    assert allows(tiny_model, {**duration, "maxLength": 99}, json.dumps(longer))


def test_a_filled_duration_is_a_timedelta(tiny_model: Model) -> None:
    for seed in range(5):
        filled = tiny_model.fill("x", datetime.timedelta, temperature=2.0, seed=seed)
        assert isinstance(filled.value, datetime.timedelta)


SHORT = an(a={"type": "string", "maxLength": 20}, b={"type": "integer"})


def fills(tiny_model: Model) -> dict[str, Callable[..., Any]]:
    return {
        "masks": lambda **more: tiny_model.fill("x", SHORT, **more),
        "skeleton": lambda **more: tiny_model.fill("x", FREE_TEXT, temperature=3.0, **more),
        "closed": lambda **more: tiny_model.fill("x", an(a={"enum": ["one", "two"]}), **more),
    }


@pytest.mark.parametrize("engine", ["masks", "skeleton", "closed"])
def test_max_tokens_limits_the_whole_answer(tiny_model: Model, engine: str) -> None:
    fill = fills(tiny_model)[engine]
    with pytest.raises(FillError, match="has not ended") as caught:
        fill(max_tokens=3)
    assert not caught.value.partial.complete
    assert fill(max_tokens=500).complete


@pytest.mark.parametrize("engine", ["masks", "skeleton", "closed"])
def test_an_answer_can_be_closed_at_the_limit(tiny_model: Model, engine: str) -> None:
    result = fills(tiny_model)[engine](max_tokens=3, on_limit="close")
    assert result.complete
    assert json.loads(result.text) == result.value
    assert len(result.tokens) < 40
    assert result.truncated or engine == "closed"


def test_generate_and_fill_write_the_same_text_for_a_shape(tiny_model: Model) -> None:
    short = an([], a={"type": "string", "maxLength": 9}, b={"type": "integer"})
    for shape in (short, Regex("[a-f]{2,9}"), Lark('start: "a" /[b-z]{3}/')):
        text = tiny_model.generate("x", 1024, schema=shape).text
        assert text == tiny_model.fill("x", shape).text
