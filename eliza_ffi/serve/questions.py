"""The questions of requests, in every form that Python and the command line accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from ..decisions.answers import name_of
from ..decisions.questions import (
    MAX_CHOICES,
    MAX_LEVELS,
    MAX_OPTIONS,
    MAX_QUESTIONS,
    NOT_TEXT,
    Choice,
    MultiLabel,
    Question,
)
from ..decisions.wire import as_questions, is_question
from ..errors import InvalidArgumentError
from .request_body import BY_TYPE, Body, NotBlank, by_kind

Q = TypeVar("Q")

NONE: Any = None
"""The default of fields that may be left out and cannot be null."""


def without_default(schema: dict[str, Any]) -> None:
    """Remove the default of a field that cannot be null."""
    schema.pop("default", None)


def _named(schema: dict[str, Any]) -> None:
    """Describe an object whose names are options: pydantic would also allow blank names."""
    without_default(schema)
    schema["propertyNames"] = {"pattern": r"\S"}
    schema["additionalProperties"] = True
    schema.pop("patternProperties", None)


def _one_of(*fields: str) -> ConfigDict:
    """Return the configuration of a model that needs exactly one of several fields.

    The reader of questions checks it; this only describes it.
    """
    return ConfigDict(json_schema_extra={"oneOf": [{"required": [name]} for name in fields]})


_OPTIONAL = Field(json_schema_extra=without_default)
_NO_MEDIA = {
    "items": {
        "not": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": list(NOT_TEXT)}},
        }
    }
}

Text: TypeAlias = Annotated[
    Annotated[NotBlank, Tag("string")]
    | Annotated[dict[str, Any], Tag("object")]
    | Annotated[list[Any], Field(min_length=1, json_schema_extra=_NO_MEDIA), Tag("array")],
    by_kind("string", "object", "array"),
    Field(description="the question: a string that is not blank, a list of parts, or other JSON"),
]


class OptionObject(Body):
    value: Annotated[
        Annotated[NotBlank, Tag("string")] | Annotated[bool, Tag("boolean")],
        by_kind("string", "boolean"),
    ]
    description: Any = None


class LevelObject(Body):
    label: NotBlank
    description: Any = None


Option: TypeAlias = Annotated[
    Annotated[NotBlank, Tag("string")]
    | Annotated[bool, Tag("boolean")]
    | Annotated[OptionObject, Tag("object")],
    by_kind("string", "boolean", "object"),
]
Level: TypeAlias = Annotated[
    Annotated[NotBlank, Tag("string")] | Annotated[LevelObject, Tag("object")],
    by_kind("string", "object"),
]
Descriptions: TypeAlias = Annotated[
    dict[NotBlank, Any],
    Field(min_length=2, max_length=MAX_CHOICES, json_schema_extra=_named),
]


class _Question(Body):
    instructions: Text
    name: Annotated[str, Field(min_length=1)] | None = None


class PredicateQuestion(_Question):
    """A statement about the input, which is true or false."""

    type: Literal["predicate"]
    if_true: str | None = Field(None, description="when the statement counts as true")
    if_false: str | None = Field(None, description="when the statement counts as false")


class NoulCriteria(Body):
    true: Any = None
    false: Any = None


_SAID: dict[str, Any] = {
    "anyOf": [{"type": "string", "pattern": r"\S"}, {"not": {"type": ["string", "null"]}}]
}
_NEEDS_TEXT: dict[str, Any] = {
    "anyOf": [
        {"required": ["instructions"], "properties": {"instructions": _SAID}},
        *(
            {
                "required": ["criteria"],
                "properties": {"criteria": {"required": [key], "properties": {key: _SAID}}},
            }
            for key in ("true", "false")
        ),
    ]
}


class NoulQuestion(Body):
    """The same as a predicate, in the format of `/v1/systemone`."""

    model_config = ConfigDict(json_schema_extra=_NEEDS_TEXT)
    type: Literal["noul"]
    instructions: Text | None = None
    criteria: NoulCriteria | None = None
    name: Annotated[str, Field(min_length=1)] | None = None


class ChoiceQuestion(_Question):
    """A question with several options, one of which fits."""

    model_config = _one_of("choices", "criteria")
    type: Literal["choice"]
    choices: Annotated[
        Annotated[list[Option], Field(min_length=2, max_length=MAX_CHOICES), Tag("array")]
        | Annotated[Descriptions, Tag("object")],
        by_kind("array", "object"),
        _OPTIONAL,
    ] = NONE
    criteria: Descriptions = NONE
    none: NotBlank | None = Field(None, description="a last option: no other option fits")
    show_options: bool | Literal["auto"] = "auto"
    top: Annotated[int, Field(ge=1)] = 5


class ScoreQuestion(_Question):
    """A question about a position on a scale, lowest level first."""

    model_config = _one_of("levels", "criteria")
    type: Literal["score"]
    levels: Annotated[list[Level], Field(min_length=2, max_length=MAX_LEVELS), _OPTIONAL] = NONE
    criteria: Annotated[
        list[Annotated[Any, WithJsonSchema({"pattern": r"\S"})]],
        Field(min_length=2, max_length=MAX_LEVELS),
        _OPTIONAL,
    ] = NONE


class MultiLabelQuestion(_Question):
    """A question about each of several labels, any of which may fit."""

    type: Literal["labels"]
    labels: Annotated[
        Annotated[list[Option], Field(min_length=1, max_length=MAX_CHOICES), Tag("array")]
        | Annotated[
            dict[NotBlank, Any],
            Field(min_length=1, max_length=MAX_CHOICES, json_schema_extra=_named),
            Tag("object"),
        ],
        by_kind("array", "object"),
    ]
    # The question checks it, because an error here would be read as one of the field `labels`.
    shortlist: Annotated[
        Any, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_OPTIONS})
    ] = Field(5, description="how many of more than 255 labels are asked: those that fit best")


SystemoneQuestion: TypeAlias = Annotated[
    PredicateQuestion | NoulQuestion | ChoiceQuestion | ScoreQuestion, BY_TYPE
]
AnyQuestion: TypeAlias = Annotated[
    PredicateQuestion | NoulQuestion | ChoiceQuestion | ScoreQuestion | MultiLabelQuestion, BY_TYPE
]


def _form_of(questions: Any) -> str | None:
    if isinstance(questions, list):
        return "a list"
    if not isinstance(questions, dict):
        return None
    return "a question" if is_question(questions) else "an object"


Asked: TypeAlias = Annotated[
    Annotated[list[Q], Field(min_length=1, max_length=MAX_QUESTIONS), Tag("a list")]
    | Annotated[
        dict[Annotated[str, Field(min_length=1)], Q],
        Field(min_length=1, max_length=MAX_QUESTIONS),
        Tag("an object"),
    ]
    | Annotated[Q, Tag("a question")],
    Discriminator(
        _form_of,
        custom_error_type="unfit",
        custom_error_message="expected a list of questions, or an object with names as keys",
    ),
]
"""Questions in any form: a list, an object with names as keys, or a single question."""

Questions: TypeAlias = Asked[AnyQuestion]
SystemoneQuestions: TypeAlias = Asked[SystemoneQuestion]


def read_questions(questions: Any, check: Callable[[Any], Any]) -> Any:
    """Check questions, and return them as question objects.

    They are read from their JSON, because decision models need it. No questions are returned as
    they are.
    """
    if questions is None or questions == [] or questions == {}:
        return questions  # they come from a set of the server
    return as_questions(_as_json(check(questions)))


def check_options(questions: Sequence[Question], at_most: int) -> None:
    """Raise InvalidArgumentError if a question has more options than the server allows."""
    for i, question in enumerate(questions):
        n = 0
        if isinstance(question, Choice | MultiLabel):
            listed = question.options if isinstance(question, Choice) else question.labels
            n = len(listed)
        if n > at_most:
            what = "options" if isinstance(question, Choice) else "labels"
            none = ", including `none`" if isinstance(question, Choice) else ""
            raise InvalidArgumentError(
                f"{name_of(question.name, i)}: {n:,} {what}, expected at most {at_most:,}{none}: "
                "the server's option --max-options"
            )


def _as_json(checked: Any) -> Any:
    """Return the JSON of checked questions: the same values, without unknown fields."""
    if isinstance(checked, Body):
        checked = {name: getattr(checked, name) for name in checked.model_fields_set}
    if isinstance(checked, dict):
        return {name: _as_json(each) for name, each in checked.items()}
    return [*map(_as_json, checked)] if isinstance(checked, list) else checked
