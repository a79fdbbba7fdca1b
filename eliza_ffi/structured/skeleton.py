"""Skeletons: answers of fixed text with values to fill in (elizaOS's ``ResponseSkeleton``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._lazy import lazy_property
from ..checks import check_each, check_kind, check_known, within
from ..checks import check_text as check_string
from ..errors import InvalidArgumentError
from .json_text import JsonScanner, read_json
from .placed_span import PlacedSpan, Script
from .spans import SkeletonSpan, check_text

MAX_SPANS = 10_000

# The lexical elements of a grammar in GBNF. Strings, classes and comments come first, because they
# can contain text that looks like the other elements.
_PIECE = re.compile(
    r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|(?P<name>[A-Za-z0-9-]+)(?P<defines>\s*::=)?|.',
    re.DOTALL,
)


@dataclass(frozen=True)
class Skeleton:
    """The sequence of spans that make up an answer.

    >>> spans = [{"kind": "literal", "value": '{"ok":'}, {"kind": "boolean", "key": "ok"}]
    >>> skeleton = Skeleton.from_dict({"spans": [*spans, {"kind": "literal", "value": "}"}]})
    >>> skeleton.n_spans, skeleton.matches('{"ok":true}'), skeleton.to_dict()["spans"][:2] == spans
    (3, True, True)
    >>> skeleton.parse('{"ok":true}')
    {'ok': True}

    Attributes
    ----------
    spans : tuple of SkeletonSpan
    id : str or None
        A name chosen by the caller. It is kept but not used.
    grammar : str or None
        A GBNF grammar with the rules that spans name.

    Raises
    ------
    InvalidArgumentError
        If there are no spans, a span names an undefined rule, or the end of a value could not be
        recognized. If the error is in one span, the message begins with this span.
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
            raise InvalidArgumentError("spans: expected at least one span, got none")
        if len(self.spans) > MAX_SPANS:
            raise InvalidArgumentError(
                f"spans: expected at most {MAX_SPANS} spans, got {len(self.spans)}"
            )
        for placed in self.placed:
            with within(f"spans[{placed.index}]"):
                placed.request()

    @classmethod
    def from_dict(cls, data: Any, grammar: str | None = None) -> Skeleton:
        """Create a skeleton from elizaOS's JSON form.

        Parameters
        ----------
        data
            ``{"spans": [{"kind": ..., "key": ..., "value": ..., "enumValues": ..., "rule": ...},
            ...], "id": ...}``.
        grammar
            The GBNF grammar for the spans' rules. elizaOS passes it separately from the skeleton.

        Raises
        ------
        InvalidArgumentError
            If the data is not a valid skeleton. If the error is in one span, the message begins
            with this span.
        """
        check_kind("a skeleton", data, Mapping, "an object")
        check_known("a skeleton", data, ("spans", "id", "grammar"))
        listed = data.get("spans")
        check_kind("spans", listed, (list, tuple), "a list")
        spans = []
        for i, each in enumerate(listed):
            with within(f"spans[{i}]"):
                spans.append(SkeletonSpan.from_dict(each))
        if grammar is not None:
            check_string("grammar", grammar)
        return cls(tuple(spans), data.get("id"), grammar or data.get("grammar"))

    def to_dict(self) -> dict[str, Any]:
        """Return elizaOS's JSON form, including ``grammar`` if the skeleton has one."""
        form: dict[str, Any] = {"spans": [span.to_dict() for span in self.spans]}
        if self.id is not None:
            form["id"] = self.id
        if self.grammar is not None:
            form["grammar"] = self.grammar
        return form

    @property
    def n_spans(self) -> int:
        """The number of spans."""
        return len(self.spans)

    @lazy_property
    def placed(self) -> tuple[PlacedSpan, ...]:
        """The spans that the model writes, each with the fixed text around it.

        An enum with a single value is fixed text, like a literal. The fixed text after a value is
        its `after`. Only the first value has a `before`. A skeleton of only fixed text becomes a
        single literal.
        """
        fixed: list[str] = [""]
        values: list[PlacedSpan] = []
        position = JsonScanner()
        for i, span in enumerate(self.spans):
            texts = span.texts(position.in_string) or (span.value,)
            text = texts[0]
            if len(texts) == 1 and text is not None:
                fixed[-1] += text
                position.push(text)
                continue
            if position.escape:
                raise InvalidArgumentError(
                    f"spans[{i}]: the preceding literal ends inside an escape sequence, "
                    f"{position.escape!r}"
                )
            with within(f"spans[{i}]"):
                grammar = None if span.rule is None else self._grammar_of(span.rule)
            values.append(PlacedSpan(i, span, position.in_string, grammar=grammar))
            fixed.append("")
        if not values:
            return (PlacedSpan(0, SkeletonSpan("literal", value=fixed[0]), before=fixed[0]),)
        placed = []
        for i, value in enumerate(values):
            following = fixed[i + 1]
            is_last = i == len(values) - 1
            with within(f"spans[{value.index}]"):
                value.check_follower(following if following or is_last else None)
            placed.append(replace(value, before=fixed[0] if i == 0 else "", after=following))
        return tuple(placed)

    def script(self) -> Script:
        """Yield the spans in the order in which they are filled."""
        for placed in self.placed:
            _ = yield placed  # the caller sends the filled value, which no later span depends on

    def parse(self, text: str) -> Any:
        """Parse a complete answer as JSON, and return its value.

        Raises
        ------
        InvalidArgumentError
            If the text is not JSON.
        """
        return read_json(text)

    def matches(self, text: str) -> bool:
        """Return whether filling this skeleton could produce this answer.

        Grammar rules are not checked: a span with a rule matches any text.
        """
        first = self.placed[0].before
        if not check_string("text", text).startswith(first):
            return False
        ends = {len(first)}
        for placed in self.placed:
            ends = {
                end + len(placed.after)
                for start in ends
                for end in placed.ends(text, start)
                if text.startswith(placed.after, end)
            }
        return len(text) in ends

    def _grammar_of(self, rule: str) -> str:
        if self.grammar is None:
            raise InvalidArgumentError(
                f"the rule {rule!r} is not defined: the skeleton has no grammar"
            )
        if rule not in _rule_names(self.grammar):
            raise InvalidArgumentError(f"the skeleton's grammar does not define the rule {rule!r}")
        return _with_root(self.grammar, rule)


def _rule_names(grammar: str) -> frozenset[str]:
    return frozenset(piece["name"] for piece in _PIECE.finditer(grammar) if piece["defines"])


def _with_root(grammar: str, rule: str) -> str:
    """Return the grammar with `rule` as its start rule. An existing ``root`` is renamed."""
    if rule == "root":
        return grammar
    names, other = _rule_names(grammar), "former-root"
    while other in names:
        other += "-x"
    renamed = _PIECE.sub(
        lambda piece: other + (piece["defines"] or "") if piece["name"] == "root" else piece[0],
        grammar,
    )
    return f"root ::= {rule}\n{renamed}"
