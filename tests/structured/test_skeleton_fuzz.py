"""Random skeletons, schemas, plans and actions are accepted or rejected, and never crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compiled import schema_grammar
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi.elizaos.planning import ActionSkeleton
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured import Skeleton, SpanSamplerPlan
from eliza_ffi.structured.shape import shape_of

WORDS = ["a", "\ud800", "a\0", "object", "string", "array", "integer", "enum", "literal", "(", '"']

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2000)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(WORDS)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["a", "b", "\ud800"]), inner, max_size=2),
    max_leaves=4,
)


def objects(names: str, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with some of these fields, and any values."""
    return st.fixed_dictionaries(fixed, optional=dict.fromkeys(names.split(), values))


schemas = st.recursive(
    objects("type properties items enum const required pattern minimum $ref title") | values,
    lambda inner: objects(
        "required",
        type=st.just("object"),
        properties=st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )
    | objects("minItems maxItems", type=st.just("array"), items=inner)
    | objects(
        "pattern minLength maxLength minimum maximum enum",
        type=st.sampled_from(["string", "integer", "number"]),
    ),
    max_leaves=5,
)
kinds = st.sampled_from(["literal", "enum", "number", "free-string", "free-json"])
spans = objects("key value enumValues rule other", kind=kinds | values)
parameters = objects("type enum required description", name=values)
actions = objects("description", name=values, parameters=st.lists(parameters, max_size=3) | values)
overrides = objects("spanIndex temperature topK topP other")


def check_accepted_or_rejected(read: Callable[[], Any]) -> None:
    try:
        read()
    except InvalidArgumentError as error:
        assert str(error)


@pytest.mark.slow
@given(schemas)
def test_a_random_schema_is_accepted_or_rejected(schema: Any) -> None:
    check_accepted_or_rejected(lambda: schema_grammar(schema))
    if isinstance(schema, dict):
        check_accepted_or_rejected(lambda: shape_of(schema))


@given(st.lists(spans, max_size=4) | values, values, values)
def test_random_spans_are_accepted_or_rejected(listed: Any, name: Any, grammar: Any) -> None:
    form = {"spans": listed, "id": name, "grammar": grammar}
    check_accepted_or_rejected(lambda: Skeleton.from_dict(form).n_spans)


@pytest.mark.slow
@given(st.lists(actions, max_size=3))
def test_random_actions_are_accepted_or_rejected(listed: Any) -> None:
    check_accepted_or_rejected(lambda: ActionSkeleton(listed).n_spans)


@given(st.lists(overrides, max_size=3) | values, values)
def test_a_random_sampler_plan_is_accepted_or_rejected(listed: Any, strict: Any) -> None:
    check_accepted_or_rejected(
        lambda: SpanSamplerPlan.from_dict({"overrides": listed, "strict": strict})
    )
