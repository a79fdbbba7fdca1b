"""A known answer with blanks: elizaOS's ``ResponseSkeleton``.

A skeleton is a row of spans. Literals are known and cost nothing; the model writes the others, each
held to its kind.

>>> skeleton = Skeleton.from_dict({"spans": [
...     {"kind": "literal", "value": '{"action":'},
...     {"kind": "enum", "key": "action", "enumValues": ["REPLY", "IGNORE"]},
...     {"kind": "literal", "value": ',"text":'},
...     {"kind": "free-string", "key": "text"},
...     {"kind": "literal", "value": "}"}]})
>>> skeleton.matches('{"action":"REPLY","text":"hi"}')
True
>>> skeleton.matches('{"action":"reply","text":"hi"}')
False
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..checks import check_each, check_kind, check_known
from ..checks import check_text as check_string
from ..errors import InvalidArgumentError
from . import gbnf
from .json_text import JsonPosition, read_json
from .placed_span import PlacedSpan, Script
from .sampler_plan import SpanOverride, SpanSamplerPlan, SpanSampling
from .spans import KINDS, Scalar, SkeletonSpan, check_text

__all__ = [
    "KINDS",
    "Scalar",
    "Skeleton",
    "SkeletonSpan",
    "SpanOverride",
    "SpanSamplerPlan",
    "SpanSampling",
]

MOST_SPANS = 10_000


@dataclass(frozen=True)
class Skeleton:
    """The spans of an answer.

    Attributes
    ----------
    spans : tuple of SkeletonSpan
    id : str or None
        A name that the caller gave it; not used here.
    grammar : str or None
        The rules that spans name, in GBNF.

    Raises
    ------
    InvalidArgumentError
        If there are no spans, a rule is missing, or it cannot be seen where a value ends. The
        message begins with the span it is about.
    """

    spans: tuple[SkeletonSpan, ...]
    id: str | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        spans = check_each("spans", self.spans, SkeletonSpan, "a SkeletonSpan")
        object.__setattr__(self, "spans", spans)
        for name in ("id", "grammar"):
            text = getattr(self, name)
            if text is not None:
                check_text(text, name)
        if not self.spans:
            raise InvalidArgumentError("the skeleton has no spans")
        if len(self.spans) > MOST_SPANS:
            raise InvalidArgumentError(
                f"the skeleton has {len(self.spans)} spans, more than {MOST_SPANS}"
            )
        for placed in self.placed:
            try:
                placed.request()
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"spans[{placed.index}]: {error}") from None

    @classmethod
    def from_dict(cls, data: Any, grammar: str | None = None) -> Skeleton:
        """Return the skeleton of elizaOS's JSON form.

        Parameters
        ----------
        data
            ``{"spans": [{"kind": ..., "key": ..., "value": ..., "enumValues": ..., "rule": ...},
            ...], "id": ...}``.
        grammar
            The GBNF that goes with it; elizaOS hands it over beside the skeleton.

        Raises
        ------
        InvalidArgumentError
            If it is no skeleton; the message begins with the span that is wrong.
        """
        check_kind("a skeleton", data, Mapping, "an object")
        check_known("a skeleton", data, ("spans", "id", "grammar"))
        listed = data.get("spans")
        check_kind("spans", listed, (list, tuple), "a list")
        spans = []
        for i, each in enumerate(listed):
            try:
                spans.append(SkeletonSpan.from_dict(each))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"spans[{i}]: {error}") from None
        if grammar is not None:
            check_string("grammar", grammar)
        return cls(tuple(spans), data.get("id"), grammar or data.get("grammar"))

    def to_dict(self) -> dict[str, Any]:
        """Return elizaOS's JSON form, with ``grammar`` where there is one."""
        form: dict[str, Any] = {"spans": [span.to_dict() for span in self.spans]}
        if self.id is not None:
            form["id"] = self.id
        if self.grammar is not None:
            form["grammar"] = self.grammar
        return form

    @property
    def n_spans(self) -> int:
        """How many spans there are."""
        return len(self.spans)

    @functools.cached_property
    def placed(self) -> tuple[PlacedSpan, ...]:
        """The spans that are to be written, with the literals around them.

        Enums of one value have become literals. A literal is `after` of the value in front of it;
        what comes before the first value is that one's `before`. A skeleton of literals alone is
        one literal.
        """
        known: list[str] = [""]
        values: list[PlacedSpan] = []
        position = JsonPosition()
        for i, span in enumerate(self.spans):
            text = span.value if span.kind == "literal" else _only_text(span, position.in_string)
            if text is not None:
                known[-1] += text
                position = position.after(text)
                continue
            if position.escape:
                raise InvalidArgumentError(
                    f"spans[{i}]: the literal before it ends inside an escape, {position.escape!r}"
                )
            grammar = None if span.rule is None else self._grammar_of(i, span.rule)
            values.append(PlacedSpan(i, span, position.in_string, grammar=grammar))
            known.append("")
        if not values:
            return (PlacedSpan(0, SkeletonSpan("literal", value=known[0]), before=known[0]),)
        placed = []
        for i, value in enumerate(values):
            following = known[i + 1]
            is_last = i == len(values) - 1
            try:
                value.check_follower(following if following or is_last else None)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"spans[{value.index}]: {error}") from None
            placed.append(replace(value, before=known[0] if i == 0 else "", after=following))
        return tuple(placed)

    def script(self) -> Script:
        """Return the spans one after the other, as filling them asks for them."""
        for placed in self.placed:
            _ = yield placed  # it is sent what came of the span, which changes nothing here

    def parse(self, text: str) -> Any:
        """Return the value of an answer.

        Raises
        ------
        InvalidArgumentError
            If the text is not JSON.
        """
        return read_json(text)

    def matches(self, text: str) -> bool:
        """Return whether filling this skeleton could give this answer.

        A span with a rule is taken to be able to give any text: rules are not read here.
        """
        data = check_string("text", text).encode("utf-8", "surrogatepass")
        first = self.placed[0].before.encode()
        if not data.startswith(first):
            return False
        ends = {len(first)}
        for placed in self.placed:
            after = placed.after.encode()
            ends = {
                end + len(after)
                for start in ends
                for end in placed.ends(data, start)
                if data.startswith(after, end)
            }
        return len(data) in ends

    def to_gbnf(self) -> str:
        """Return a grammar of exactly the answers that filling this skeleton can give."""
        builder = gbnf.Builder()
        parts = [gbnf.quoted(self.placed[0].before)]
        for placed in self.placed:
            parts += [builder.span(placed), gbnf.quoted(placed.after)]
        return builder.grammar(" ".join(part for part in parts if part))

    def _grammar_of(self, index: int, rule: str) -> str:
        if self.grammar is None:
            raise InvalidArgumentError(
                f"spans[{index}] names the rule {rule!r}, but the skeleton has no grammar"
            )
        if rule not in gbnf.rule_names(self.grammar):
            raise InvalidArgumentError(
                f"spans[{index}] names the rule {rule!r}, which the skeleton's grammar does not "
                f"define"
            )
        return gbnf.with_root(self.grammar, rule)


def _only_text(span: SkeletonSpan, in_string: bool) -> str | None:
    texts: Iterable[str] | None = span.texts(in_string)
    if texts is None:
        return None
    listed = list(texts)
    return listed[0] if len(listed) == 1 else None
