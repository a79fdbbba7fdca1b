"""Random JSON Schemas. Some of them contradict themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KINDS = ("object", "array", "string", "integer", "number", "boolean", "null")
NAMES = ("a", "b", "c d", "x-1")

names = st.sampled_from(NAMES)
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, -3, 2.5, "", "a", "b", "ab", "1"])
bounds = st.sampled_from([0, 1, -5, 10, 2.5, -0.1, 1e-9, 100, 0.1 + 0.2, 1e20, 123456789012])
types = st.sampled_from(KINDS) | st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)
references = st.sampled_from(["#", "#/$defs/A", "#/$defs/B"])

ALONE: dict[str, st.SearchStrategy[Any]] = {
    "type": types,
    "enum": st.lists(scalars, min_size=1, max_size=3, unique_by=repr),
    "const": scalars | st.sampled_from([{"a": 1}, [1, 2], {}]),
    "$ref": references,
}
OF_STRINGS: dict[str, st.SearchStrategy[Any]] = {
    "minLength": st.integers(0, 4),
    "maxLength": st.integers(0, 6),
    "pattern": st.sampled_from(["^[a-c]+$", "a", "^x?$", "^\\d{2}"]),
}
OF_NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), bounds),
    "multipleOf": st.sampled_from([1, 2, 5, 7, 0.5, 0.01]),
}


def an(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    """Return a closed object schema. All fields are required unless `required` is given."""
    names = list(properties) if required is None else required
    schema = {"type": "object", "properties": properties, "required": names}
    return {**schema, "additionalProperties": False}


def _some(keywords: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[Any]:
    """Draw at most `most` of the keywords. With more, most schemas would contradict themselves."""
    return st.lists(st.sampled_from(sorted(keywords)), max_size=most, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen})
    )


def _of_objects(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "properties": st.dictionaries(names, inner, max_size=3),
        "required": st.lists(names, max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(
            st.sampled_from(
                ["^x-", ".*", "^a", "[ab]$", "^a|b|^c$", "[^b]", "^[ab]$", "^(?:b|é)?$"]
            ),
            inner,
            max_size=2,
        ),
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 3),
        "propertyNames": st.sampled_from(
            [{"pattern": "^[a-c]"}, {"pattern": "^[a-c]$"}, {"enum": ["a", "b"]}]
        ),
        "dependentRequired": st.just({"a": ["b"]}),
        "dependentSchemas": st.dictionaries(names, inner, max_size=1),
    }


def _of_arrays(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "items": inner,
        "prefixItems": st.lists(inner, max_size=2),
        "minItems": st.integers(0, 3),
        "maxItems": st.integers(0, 4),
        "uniqueItems": st.booleans(),
    }


def _of_several(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    listed = st.lists(inner, min_size=1, max_size=3)
    return {
        **{"anyOf": listed, "oneOf": listed, "allOf": listed, "not": inner},
        **{"if": inner, "then": inner, "else": inner},
    }


def _typed(kind: str, keywords: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return _some(keywords, 4).map(lambda made: {"type": kind, **made})


IMPOSSIBLE: list[Any] = [
    False,
    {"enum": []},
    {"type": "integer", "minimum": 2, "maximum": 1},
    {"type": "string", "minLength": 2, "maxLength": 1},
    {"type": "array", "items": False, "minItems": 1},
    {"type": "object", "required": ["a", "b"], "maxProperties": 1},
    {"type": "object", "required": ["a"], "additionalProperties": False},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
]
impossible = st.sampled_from(IMPOSSIBLE)

flat = (
    _some(ALONE, 2)
    | _typed("string", OF_STRINGS)
    | _typed("integer", OF_NUMBERS)
    | _typed("number", OF_NUMBERS)
    | st.booleans()
    | impossible
)
nested = st.recursive(
    flat,
    lambda inner: _typed("object", _of_objects(inner))
    | _typed("array", _of_arrays(inner))
    | st.builds(
        lambda keyword, listed: {keyword: listed},
        st.sampled_from(["anyOf", "oneOf"]),
        st.lists(inner, min_size=2, max_size=3),
    )
    | _some({**ALONE, **_of_objects(inner), **_of_arrays(inner), **_of_several(inner)}, 4),
    max_leaves=8,
)


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """Draw a schema with the definitions that its references need."""
    schema = draw(nested)
    if isinstance(schema, bool):
        return schema
    return {**schema, "$defs": {"A": draw(flat), "B": draw(nested)}}
