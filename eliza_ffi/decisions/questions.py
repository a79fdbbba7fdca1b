"""Questions with typed answers: is it true, which of these, how much, which labels.

:class:`Predicate`, :class:`Choice` and :class:`Score` have the same fields as in OpenAI's
``/v1/decisions``. :class:`MultiLabel` has no counterpart there. A question does not depend on
models, prompts or tokens."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, get_args, get_origin, overload

from .._lazy import lazy_property
from ..checks import (
    check_kind,
    check_known,
    check_ordered,
    check_unicode,
    check_whole,
    did_you_mean,
    wrong,
)
from ..choices.label_set import LabelSet, label_text
from ..errors import InvalidArgumentError, NotTextError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    A = TypeVar("A", default=Any)
    Q = TypeVar("Q")
    V = TypeVar("V", bound="str | bool | Enum", default=Any)
else:  # before Python 3.13, typing.TypeVar takes no default
    from typing import TypeVar

    A = TypeVar("A")
    Q = TypeVar("Q")
    V = TypeVar("V", bound="str | bool | Enum")

MAX_QUESTIONS = 400
MAX_OPTIONS = 255
"""The maximum number of options in the HTTP formats, and of labels in :class:`MultiLabel`. The
answer to a :class:`Choice` with more options contains only the most probable ones."""

MAX_CHOICES = 100_000
"""The maximum number of options of a :class:`Choice`."""

MAX_LEVELS = 10

NOT_TEXT = ("input_image", "image_url", "input_audio", "input_file")
"""Types of message and instruction parts that are rejected because they are not text."""

Value: TypeAlias = "str | bool | Enum"
"""The value of an option. ``True`` and ``"true"`` are two different values. The text of an enum's
member is its value if that is a string, and its name otherwise."""


@dataclass(frozen=True)
class Option(Generic[V]):
    """Describe one option of a choice, or one label of :class:`MultiLabel`.

    Attributes
    ----------
    value : str, bool or member of an enum
        The value that the answer contains if the model picks this option.
    description : str or None
        The meaning of the option. The model sees it.
    """

    value: V
    description: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.value, bool):
            text = label_text(self.value) if isinstance(self.value, Enum) else self.value
            _check_label(text, "option", "a string or a bool")
        _check_text("a description", self.description)

    # In a file, a member of an enum is a string. A calibration must recognize its questions.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Option) and self._shown == other._shown

    def __hash__(self) -> int:
        return hash(self._shown)

    @property
    def _shown(self) -> tuple[str | bool, str | None]:
        return plain_value(self.value), self.description


@dataclass(frozen=True)
class Level:
    """Describe one level of a score.

    Attributes
    ----------
    label : str
        The name of the level.
    description : str or None
        The meaning of the level. The model sees it.
    """

    label: str
    description: str | None = None

    def __post_init__(self) -> None:
        _check_label(self.label, "level", "a string")
        _check_text("a description", self.description)


@dataclass(frozen=True)
class Predicate:
    """Ask whether a statement about the input is true.

    >>> Predicate("Is the writer angry?", name="angry").values
    (True, False)

    Attributes
    ----------
    instructions : str
        The statement, or a yes-or-no question. A list of parts ``{"text": ...}`` or other JSON is
        converted to text.
    name : str or None
        The key of the answer in the decision.
    if_true, if_false : str or None
        When the statement counts as true, and when it counts as false. The model sees both. An
        encoder or a reranker compares the input with them, and needs both.
    label : Option or None
        The label that the statement is about, if it is a part of :class:`MultiLabel`.
    source : mapping or None
        The original question in the format of ``/v1/systemone``. Decision models receive its JSON
        unchanged.
    """

    instructions: str
    name: str | None = None
    if_true: str | None = None
    if_false: str | None = None
    source: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    label: Option | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_asked(self)
        _check_text(f"{_called(self)}: if_true", self.if_true)
        _check_text(f"{_called(self)}: if_false", self.if_false)

    @property
    def values(self) -> tuple[bool, ...]:
        """True and False."""
        return True, False


@dataclass(frozen=True)
class Choice(Generic[V]):
    """Ask which option fits the input best.

    >>> teams = {"billing": "payments", "login": "passwords"}
    >>> choice = Choice("Which team?", teams, name="team", none="neither")
    >>> choice.values, choice.options[0].description, choice.lists_options, choice.has_many_options
    (('billing', 'login', 'neither'), 'payments', True, False)

    Attributes
    ----------
    instructions, name, source
        As in :class:`Predicate`.
    choices : tuple of Option
        2 to 100,000 options with different values; `none` counts as one of them. Pass values,
        :class:`Option` objects, pairs of a value and a description, a mapping from values to
        descriptions, an enum class, or a ``Literal[...]``. The HTTP formats allow 255.
    none : str or None
        The text of an additional option, which comes last and means that no other option fits. Its
        value is the same text.
    show_options : bool or "auto"
        Whether the prompt lists the options. ``"auto"`` = if there are at most 255. Without a
        list, the prompt has only the instructions, and descriptions are not used.
    top : int
        How many options the answer contains if there are more than 255: the most probable ones.
    """

    instructions: str
    choices: tuple[Option[V], ...]
    name: str | None = None
    none: str | None = None
    show_options: bool | Literal["auto"] = "auto"
    top: int = 5
    source: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @overload
    def __init__(
        self,
        instructions: str,
        choices: Mapping[V, Any] | Iterable[V | Option[V] | tuple[V, str | None]],
        name: str | None = ...,
        none: str | None = ...,
        show_options: bool | Literal["auto"] = ...,
        top: int = ...,
        source: Mapping[str, Any] | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Choice[Any],
        instructions: str,
        choices: object,  # a Literal
        name: str | None = ...,
        none: str | None = ...,
        show_options: bool | Literal["auto"] = ...,
        top: int = ...,
        source: Mapping[str, Any] | None = ...,
    ) -> None: ...

    def __init__(
        self,
        instructions: str,
        choices: Any,
        name: str | None = None,
        none: str | None = None,
        show_options: bool | Literal["auto"] = "auto",
        top: int = 5,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        options = tuple(_listed(choices, Option, "choices"))
        _set(self, instructions=instructions, choices=options, name=name, none=none, source=source)
        _set(self, show_options=show_options)
        _check_asked(self)
        _check_text(f"{_called(self)}: none", none)
        if none is not None and not none.strip():
            raise wrong(f"{_called(self)}: none", "a non-empty string or None", none)
        counted = self.options if len(self.choices) > 1 else self.choices
        _check_count(self, "options", len(counted), 2, MAX_CHOICES)
        _check_unique(self, self.values)
        if not isinstance(show_options, bool | str) or show_options not in (True, False, "auto"):
            hint = did_you_mean(show_options, ["auto"])
            raise wrong(
                f"{_called(self)}: show_options", 'True, False or "auto"', show_options, hint
            )
        _set(self, top=check_whole(f"{_called(self)}: top", top, 1))

    @property
    def options(self) -> tuple[Option[V], ...]:
        """All options, including `none`."""
        none: Any = self.none
        return self.choices if none is None else (*self.choices, Option(none))

    def __hash__(self) -> int:
        return self._hash

    @lazy_property
    def _hash(self) -> int:
        return hash((self.instructions, self.choices, self.none))

    @lazy_property
    def values(self) -> tuple[V, ...]:
        """The values of all options."""
        return tuple(option.value for option in self.options)

    @lazy_property
    def has_many_options(self) -> bool:
        """Whether there are more than 255 options. The answer then has only the `top` best ones."""
        return len(self.choices) + (self.none is not None) > MAX_OPTIONS

    @property
    def lists_options(self) -> bool:
        """Whether the prompt lists the options."""
        return not self.has_many_options if self.show_options == "auto" else bool(self.show_options)

    @lazy_property
    def texts(self) -> tuple[str, ...]:
        """The texts of all options; a bool whose text is also an option gets a mark."""
        texts = {text_of(value) for value in self.values if not isinstance(value, bool)}
        return tuple(value_text(value, texts) for value in self.values)

    @lazy_property
    def label_set(self) -> LabelSet[V]:
        """The options as labels."""
        return LabelSet(self.values, self.texts)


@dataclass(frozen=True)
class Score:
    """Ask for a position on a scale.

    >>> Score("How urgent is it?", ["low", "normal", "high"]).values
    ('low', 'normal', 'high')

    Attributes
    ----------
    instructions, name, source
        As in :class:`Predicate`.
    levels : tuple of Level
        2 to 10 levels with different labels, lowest first. Pass labels, :class:`Level` objects,
        pairs of a label and a description, or a mapping from labels to descriptions.
    """

    instructions: str
    levels: tuple[Level, ...]
    name: str | None = None
    source: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def __init__(
        self,
        instructions: str,
        levels: Mapping[str, Any] | Iterable[str | Level | tuple[str, str | None]],
        name: str | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        listed = tuple(_listed(levels, Level, "levels"))
        _set(self, instructions=instructions, levels=listed, name=name, source=source)
        _check_asked(self)
        _check_count(self, "levels", len(self.levels), 2, MAX_LEVELS)
        _check_unique(self, self.values)

    @property
    def values(self) -> tuple[str, ...]:
        """The labels of the levels."""
        return tuple(level.label for level in self.levels)


@dataclass(frozen=True)
class MultiLabel(Generic[V]):
    """Ask which labels fit the input. Each label is asked as a predicate of its own.

    >>> topics = MultiLabel("What is it about?", ["parcels", "money"])
    >>> topics.values, len(topics.predicates), topics.n_asked, topics.has_many_labels
    (('parcels', 'money'), 2, 2, False)

    Attributes
    ----------
    instructions : str
        The question for every label, such as ``"Is the message about this?"``.
    labels : tuple of Option
        1 to 100,000 labels, in the same forms as the options of :class:`Choice`.
    name : str or None
        As in :class:`Predicate`.
    shortlist : int
        How many of more than 255 labels are asked, 1 to 255. An encoder or a search selects the
        labels that seem to fit best. All other labels count as not fitting.
    """

    instructions: str
    labels: tuple[Option[V], ...]
    name: str | None = None
    shortlist: int = 5

    def __init__(
        self,
        instructions: str,
        labels: Mapping[V, Any] | Iterable[V | Option[V] | tuple[V, str | None]],
        name: str | None = None,
        shortlist: int = 5,
    ) -> None:
        listed = tuple(_listed(labels, Option, "labels"))
        _set(self, instructions=instructions, labels=listed, name=name)
        _check_asked(self)
        _check_count(self, "labels", len(self.labels), 1, MAX_CHOICES)
        _check_unique(self, self.values)
        what = f"{_called(self)}: shortlist"
        _set(self, shortlist=check_whole(what, shortlist, 1, MAX_OPTIONS))

    def __hash__(self) -> int:
        return self._hash

    @lazy_property
    def _hash(self) -> int:
        return hash((self.instructions, self.labels))

    @lazy_property
    def values(self) -> tuple[V, ...]:
        """The values of all labels."""
        return tuple(label.value for label in self.labels)

    @property
    def has_many_labels(self) -> bool:
        """Whether there are more than 255 labels, of which only a shortlist is asked."""
        return len(self.labels) > MAX_OPTIONS

    @property
    def n_asked(self) -> int:
        """The number of labels that are asked."""
        return self.shortlist if self.has_many_labels else len(self.labels)

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """One predicate for each label: the instructions followed by the label."""
        return tuple(
            Predicate(f"{self.instructions}\n{_described(label)}", label=label)
            for label in self.labels
        )


Question: TypeAlias = "Predicate | Choice | Score | MultiLabel"
"""A question of any kind."""

Questions: TypeAlias = "Q | Iterable[Q] | Mapping[str, Q]"
"""Questions of the type `Q`, in the forms that :meth:`~eliza_ffi.Model.decide` accepts."""


def text_of(value: Any, what: str = "the value") -> str:
    """Return a string unchanged, a member of an enum as its text, and any other value as JSON text.

    `what` names the value in errors.
    """
    if isinstance(value, Enum):  # first, because a member can be a string, too
        return label_text(value)
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} is neither a string nor JSON: {error}") from error


def plain_value(value: Value) -> str | bool:
    """Return the value of an option for JSON: the member of an enum as its text."""
    return value if isinstance(value, bool) else text_of(value)


def renamed(question: Question, name: str) -> Question:
    _check_name(name)
    if question.name == name:
        return question
    hash(question)  # the copy keeps what was computed
    copied = copy.copy(question)
    object.__setattr__(copied, "name", name)
    return copied


def with_top(questions: Sequence[Question], n: int | None) -> tuple[Question, ...]:
    """Return the questions with `top` at least `n` if there are more than 255 options."""
    if n is None:
        return tuple(questions)
    return tuple(
        replace(each, top=max(n, each.top))
        if isinstance(each, Choice) and each.has_many_options
        else each
        for each in questions
    )


def value_text(value: Value, texts: Container[str]) -> str:
    """Return the text of a value. A bool gets the suffix `` (bool)`` if its text is in `texts`."""
    text = text_of(value)
    return f"{text} (bool)" if isinstance(value, bool) and text in texts else text


def refuse_not_text(part: Any, whose: str) -> None:
    """Reject parts of the types in :data:`NOT_TEXT`. Any other JSON is accepted."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in NOT_TEXT:
        raise NotTextError(f"{whose} a part of type {kind!r}: only text is supported")


def _parts_text(value: Any) -> str:
    """Return the text of instructions, which may be a string, a list of parts, or other JSON."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value:
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in value]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(text for text in texts if text)
    return text_of(value, "instructions")


def _set(question: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(question, name, value)


def _listed(items: Any, kind: type[Any], what: str) -> list[Any]:
    if isinstance(items, Mapping):
        items = items.items()
    elif isinstance(items, EnumMeta):
        items = list(items)
    elif get_origin(items) is Literal:
        items = get_args(items)
    items = check_ordered(what, items, f"a list of {what}, or a mapping from them to descriptions")
    return [item if isinstance(item, kind) else _item(item, kind) for item in items]


def _item(item: Any, kind: type[Any]) -> Any:
    """Read an option or a level: its text, a pair with a description, or a JSON object."""
    description = None
    if isinstance(item, tuple) and len(item) == 2:
        item, description = item
    elif isinstance(item, Mapping):
        key, article = ("value", "an option") if kind is Option else ("label", "a level")
        what = f"{article} {dict(item)!r:.80}"
        check_known(what, item, (key, "description"))
        if key not in item:
            raise InvalidArgumentError(f"{what}: the field {key!r} is missing")
        item, description = item[key], item.get("description")
    return kind(item, None if description is None else text_of(description))


def _check_asked(question: Any) -> None:
    """Check the fields that all questions have, and convert the instructions to text."""
    if question.name is not None:
        _check_name(question.name)
    instructions = question.instructions
    for part in instructions if isinstance(instructions, list | tuple) else ():
        refuse_not_text(part, f"{_called(question)}: the instructions have")
    _set(question, instructions=_parts_text(instructions))
    if getattr(question, "source", None) is not None:
        check_kind("source", question.source, Mapping, "a mapping or None")
        _set(question, source=copy.deepcopy(question.source))  # the caller may change theirs
    if not question.instructions.strip():
        raise InvalidArgumentError(f"{_called(question)}: the instructions are empty")


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise wrong("the name of a question", "a non-empty string", name)


def _check_count(question: Any, what: str, n: int, least: int, most: int) -> None:
    if not least <= n <= most:
        raise InvalidArgumentError(
            f"{_called(question)}: expected {least} to {most} {what}, got {n}"
        )


def _check_unique(question: Any, values: Sequence[Value]) -> None:
    for (_, value), n in Counter((type(each), each) for each in map(plain_value, values)).items():
        if n > 1:
            raise InvalidArgumentError(f"{_called(question)}: {value!r} is given twice")


def _check_label(value: Any, what: str, expected: str) -> None:
    if not isinstance(value, str):
        raise wrong(f"the {what}", expected, value)
    if not value.strip():
        raise wrong(f"the {what}", "a non-empty string", value)
    check_unicode(value, f"the {what}")


def _check_text(what: str, text: Any) -> None:
    if text is not None and not isinstance(text, str):
        raise wrong(what, "a string or None", text)


def _called(question: Any) -> str:
    return "the question" if question.name is None else f"the question {question.name!r}"


def _described(label: Option) -> str:
    text = text_of(label.value)
    return f"{text}: {label.description}" if label.description else text
