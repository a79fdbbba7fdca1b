"""Random skeletons, and a check whether a value has the shape of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from eliza_ffi.structured import Skeleton, SkeletonSpan
from eliza_ffi.structured.json_text import json_text

texts = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=6
) | st.sampled_from(["REPLY", "SEND_EMAIL", "a", "Grüße", "日本", "two words", '"', "\\", "\n"])

scalars = (
    texts
    | st.integers(-1000, 1000)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
)


@dataclass(frozen=True)
class Field:
    """A field of an object: a span, or an object of fields."""

    name: str
    span: SkeletonSpan | None
    quoted: bool  # whether the literals around the span contain its quotes
    inner: tuple[Field, ...] = ()

    def has_shape(self, value: Any) -> bool:
        """Return whether this field may have a value."""
        if self.span is None:
            return has_shape(self.inner, value)
        kind = self.span.kind
        if kind == "enum":
            assert self.span.enum_values is not None
            return json_text(value) in [json_text(each) for each in self.span.enum_values]
        if kind == "free-json":
            return True
        if kind == "boolean":
            return isinstance(value, bool)
        if kind == "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        if kind == "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        return isinstance(value, str)


def has_shape(fields: tuple[Field, ...], value: Any) -> bool:
    """Return whether a value is an object with exactly these fields."""
    return (
        isinstance(value, dict)
        and list(value) == [field.name for field in fields]
        and all(field.has_shape(value[field.name]) for field in fields)
    )


def spans_of(fields: tuple[Field, ...], space: str = "") -> list[SkeletonSpan]:
    """Return the spans of an object, with `space` around its punctuation."""
    spans = [_literal("{" + space)]
    for i, field in enumerate(fields):
        glue = ("," + space if i else "") + json_text(field.name) + space + ":" + space
        quote = '"' if field.quoted else ""
        spans.append(_literal(glue + quote))
        spans += spans_of(field.inner, space) if field.span is None else [field.span]
        if quote:
            spans.append(_literal(quote))
    return [*spans, _literal(space + "}")]


def _literal(text: str) -> SkeletonSpan:
    return SkeletonSpan("literal", value=text)


@st.composite
def _field(draw: st.DrawFn, depth: int) -> Field:
    name = draw(texts)
    kinds = ["enum", "number", "integer", "boolean", "free-string", "free-json"]
    kind = draw(st.sampled_from(kinds + ["object"] * (depth > 0)))
    if kind == "object":
        inner = draw(_fields(depth - 1))
        return Field(name, None, False, inner)
    quoted = kind in ("enum", "free-string") and draw(st.booleans())
    values = None
    if kind == "enum":
        # If the literals have the quotes, only strings can be values.
        pool = texts if quoted else scalars
        listed = draw(st.lists(pool, min_size=1, max_size=5, unique_by=json_text))
        values = tuple(listed)
    span = SkeletonSpan(kind, name, enum_values=values)
    return Field(name, span, quoted)


@st.composite
def _fields(draw: st.DrawFn, depth: int) -> tuple[Field, ...]:
    return tuple(draw(st.lists(_field(depth), max_size=4, unique_by=lambda field: field.name)))


@st.composite
def shaped_skeletons(draw: st.DrawFn) -> tuple[tuple[Field, ...], Skeleton]:
    """Draw fields, and the skeleton of an object with these fields."""
    fields = draw(_fields(2))
    space = draw(st.sampled_from(["", "", " ", "\n  "]))
    return fields, Skeleton(tuple(spans_of(fields, space)))


@st.composite
def actions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw actions in elizaOS's JSON format."""

    def parameter(name: str) -> dict[str, Any]:
        kind = draw(st.sampled_from(["string", "number", "integer", "boolean"]))
        form: dict[str, Any] = {"name": name, "type": kind, "required": draw(st.booleans())}
        if kind in ("string", "integer") and draw(st.booleans()):
            pool: st.SearchStrategy[Any] = texts | st.just("")
            if kind == "integer":
                pool = st.integers(-200, 200)
            form["enum"] = draw(st.lists(pool, min_size=1, max_size=4, unique=True))
        return form

    names = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    return [
        {
            "name": name,
            "parameters": [
                parameter(each) for each in draw(st.lists(texts, max_size=4, unique=True))
            ],
        }
        for name in names
    ]
