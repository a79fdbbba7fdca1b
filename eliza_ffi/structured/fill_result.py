"""The results of filling skeletons and schemas, and the object that collects a skeleton's spans."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .._lazy import lazy_property
from ..checks import short_repr
from ..library.protocol import StreamStats
from .json_reader import Path

T = TypeVar("T")


@dataclass(frozen=True)
class FilledSpan:
    """A filled span.

    >>> span = model.fill("Yes or no? ", {"enum": ["yes", "no"]}).spans[0]
    >>> span.value in ("yes", "no"), 0 < span.probability <= 1
    (True, True)

    Attributes
    ----------
    index : int
        The index of the span in the skeleton, from 0.
    key : str or None
    kind : str
    before : str
        The fixed text between the previous value and this one.
    text : str
        The text of the value in the answer.
    value : Any
        The value that the text spells. If a rule matched text that is not JSON, this is
        the text itself.
    logprob : float or None
        Natural logarithm of the value's probability among the allowed values, computed token by
        token. None for free values unless log-probabilities were requested. If optional parameters
        of an action may follow a free value, the log-probability also covers the text after it.
    tokens : tuple of int
        The tokens that begin inside the value. A token that begins in the fixed text before it,
        such as a quote together with the first letters, is not included. Empty if the library does
        not report tokens.
    truncated : bool
        Whether `max_tokens` was reached and the value was closed early.
    """

    index: int
    key: str | None
    kind: str
    before: str
    text: str
    value: Any
    logprob: float | None
    tokens: tuple[int, ...]
    truncated: bool

    @property
    def probability(self) -> float | None:
        """The probability that belongs to `logprob`."""
        return None if self.logprob is None else math.exp(self.logprob)

    def __repr__(self) -> str:
        name = self.index if self.key is None else self.key
        end = ", truncated" if self.truncated else ""
        return f"FilledSpan({name!r}, {self.kind}, {short_repr(self.value)}{end})"


@dataclass(frozen=True)
class FillResult(Generic[T]):
    """A structured answer.

    >>> ok = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    >>> result = model.fill("Yes: ", {**ok, "additionalProperties": False})
    >>> result.fields == result.value, result.truncated
    (True, False)

    Attributes
    ----------
    text : str
        The whole answer.
    value : T
        JSON data for a schema or a skeleton, an instance for a class, and the text for a regular
        expression or a grammar. None if a skeleton's answer is not JSON or not complete.
    spans : tuple of FilledSpan
        For a skeleton, the filled spans in the order in which they were written, without literals.
        For a schema, the values that were chosen as a whole.
    tokens : tuple of int
        The tokens of the whole answer.
    complete : bool
        False in the `partial` result of an error.
    forward_passes : int
        Forward passes after the prompt; -1 if the library does not count them.
    seconds : float
        Seconds from the tokenized prompt to the finished answer, prefill included.
    stats : StreamStats or None
    reasoning : str or None
        What the model wrote before the answer; None without ``think=``.
    relaxed : tuple of str
        The parts of the schema that were not enforced while the answer was written, each with its
        JSON pointer. The value was validated afterwards, so it is valid against them too.
    is_closed : bool
        Whether the answer for a schema reached `max_tokens` and was completed with a short ending.
    choices : mapping of str to FilledSpan
        The values for a schema that were chosen as a whole (enums, constants and booleans), each by
        the keys and indices that lead to it, such as ``"pets.0.kind"``. Also the decisions about
        the structure, with a ``?`` after the path: for ``"note?"``, which field came where the
        optional ``note`` could come, or None if the object ended; for ``"pets.1?"``, whether the
        list went on. `spans` has the values alone.
    """

    text: str
    value: T
    spans: tuple[FilledSpan, ...]
    tokens: tuple[int, ...]
    complete: bool
    forward_passes: int
    seconds: float
    stats: StreamStats | None
    reasoning: str | None = None
    relaxed: tuple[str, ...] = ()
    is_closed: bool = False
    choices: Mapping[str, FilledSpan] = field(default_factory=dict, compare=False)

    @property
    def truncated(self) -> bool:
        """Whether `max_tokens` was reached and a value, or the answer, was closed early."""
        return self.is_closed or any(span.truncated for span in self.spans)

    @property
    def fields(self) -> dict[str, Any]:
        """The values of the spans that have a key, by key."""
        return {span.key: span.value for span in self.spans if span.key is not None}

    def __repr__(self) -> str:
        content = self.text if self.value is None else self.value
        end = ", truncated" if self.truncated else "" if self.complete else ", incomplete"
        return f"{type(self).__name__}({short_repr(content)}, {len(self.tokens)} tokens{end})"


@dataclass(frozen=True)
class PartialField:
    """A finished field of an object, or a finished item of an array.

    >>> shape = {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}
    >>> field, result = model.fill_stream("Yes: ", shape)
    >>> field.path, field.partial == result.value
    ((0,), True)

    Attributes
    ----------
    path : tuple of str or int
        The keys and array indices that lead to the field, outermost first.
    value : Any
        The field's value, as JSON data.
    read_partial : callable
        Computes `partial`.
    """

    path: Path
    value: Any
    read_partial: Callable[[], Any] = field(compare=False)

    @lazy_property
    def partial(self) -> Any:
        """The answer up to this field.

        For a pydantic model, this is an instance that has only the finished fields; otherwise it
        is JSON data. It is created on first access. All partial answers share their finished parts.
        """
        return self.read_partial()

    def __repr__(self) -> str:
        return f"PartialField({self.path!r}, {short_repr(self.value)})"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "value": self.value, "partial": self.partial}
