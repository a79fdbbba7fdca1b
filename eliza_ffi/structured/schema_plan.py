"""Find the choices in a JSON answer: enums, booleans and constants, the next field of an object,
and whether a list continues. A :class:`PlanReader` follows an answer while it is written."""

from __future__ import annotations

import functools
import json
import math
import re
import string
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from .._lazy import lazy_property
from ..errors import InvalidArgumentError
from .json_text import ENDS_PLAIN_TEXT, JsonScanner, json_text, read_json
from .schema_walk import SchemaDocument, alternatives_of, listed_values, rules_of, types_of

MAX_REFERENCES = 32

MAX_LABELS = 4096
"""A value with more labels is free: tokenizing the labels for each value would take too long."""

LONGEST_FIXED = 2**16
"""The maximum length of fixed text between two values, in bytes. A few references can lead to much
more."""

LONGEST_FOLLOWING = 32
"""Fixed text after a label is scored together with the label up to this length, in characters."""

_OBJECT = frozenset(
    ("type", "properties", "required", "additionalProperties", "minProperties", "maxProperties")
)
_ARRAY = frozenset(("type", "items", "prefixItems", "minItems", "maxItems", "uniqueItems"))
_SCALAR = frozenset(b"-+.0123456789" + string.ascii_letters.encode())
_AFTER_SCALAR = re.compile(rb"[^-+.0-9A-Za-z]")
_ESCAPED = re.compile(r'\\[^"\\]|\x7f')
_SPELLED_ONE_WAY = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")

Steps: TypeAlias = "Generator[Steps | PlannedChoice | None, Any, Any]"
"""Reads a value: yields the reader of a part of it, and receives the result of this reader; the
choice that comes next, and receives its label; or None if more text must be written first."""


@dataclass(frozen=True)
class Label:
    """A fixed text that may come next.

    `scored` is the text whose probability counts. For a string it ends before the closing quote, so
    that the probability does not depend on what follows the string. For a bracket it includes the
    fixed text that follows, because the two often share a token.

    `value` is the JSON value. In a choice of the next field, it is the field's name, True if the
    name is free, or None if the object ends. In a list, it says whether another item follows.
    `leads_to` is how the value after the label is read: a field's, or the whole alternative.
    """

    text: str  # the whole text
    scored: str
    value: Any
    leads_to: _Form | None = field(default=None, compare=False, repr=False)
    certain: str = field(init=False)  # what is written if this is the only label

    def __post_init__(self) -> None:
        object.__setattr__(self, "certain", max(self.text, self.scored, key=len))


@dataclass(frozen=True)
class PlannedChoice:
    """A choice between labels. The `path` consists of the keys and indices that lead to the value,
    joined by dots. If it ends with ``?``, the choice is which field comes at this path, or whether
    an item does."""

    path: str
    labels: tuple[Label, ...]
    is_value: bool  # the labels are JSON values


class SchemaPlan:
    """The choices in the answers of a JSON Schema that must not change. `comma` and `colon` are
    JSON's separators, `before` and `after` fixed text around the value."""

    def __init__(
        self, schema: Any, comma: str = ",", colon: str = ":", before: str = "", after: str = ""
    ) -> None:
        self._document = SchemaDocument(schema)
        self.comma = comma
        self.colon = colon
        self.before = before
        self.after = after
        self._lock = threading.RLock()
        self._forms: dict[int, _Form] = {}  # by the identity of a part
        self.root = schema

    @lazy_property
    def whole(self) -> _Form:
        """How the whole value is read."""
        return self.form(self.root)

    def form(self, part: Any) -> _Form:
        """Find out how the values of a part of the schema are read, once for each part."""
        with self._lock:
            form = self._forms.get(id(part))
            if form is None:
                form = self._forms[id(part)] = _Form(self, part)
                # While they are computed, a part that contains itself is free.
                form.labels = form.listed()
            return form

    def resolved(self, part: Any) -> Any:
        """Return a schema itself, or the definition that its ``$ref`` points to."""
        for _ in range(MAX_REFERENCES):
            if not isinstance(part, Mapping) or "$ref" not in part:
                return part
            if rules_of(part) != {"$ref"}:
                return True
            part = self._document.target(part["$ref"])
        return True

    def text(self, value: Any) -> str:
        json_text(value)  # checks the value
        return json.dumps(value, ensure_ascii=False, separators=(self.comma, self.colon))


class _Form:
    """How the values of a part of a schema are read: by `labels`, by `alternatives`, or as an
    object or array. All other values are free."""

    def __init__(self, plan: SchemaPlan, part: Any) -> None:
        self.part = part  # keeps it alive, because its id is a key
        whole = plan.resolved(part)
        self.whole: Mapping[str, Any] = whole if isinstance(whole, Mapping) else {}
        self.is_forbidden = whole is False or self.whole.get("enum") == []
        self.labels: tuple[Label, ...] | None = None  # None = they are not listed
        self._plan = plan
        self.fields_at = functools.lru_cache(maxsize=1024)(self._fields_at)

    @lazy_property
    def names(self) -> list[str]:
        return list(self.whole.get("properties", {}))

    @lazy_property
    def is_object(self) -> bool:
        part = self.whole
        fields, required = part.get("properties", {}), part.get("required", ())
        is_closed = part.get("additionalProperties", True) is False
        least, most = part.get("minProperties", 0), part.get("maxProperties", math.inf)
        return (
            part.get("type") == "object"
            and rules_of(part) <= _OBJECT
            and all(name in fields for name in required)
            and least <= (len(fields) if is_closed else len(required))
            and most >= (len(fields) if is_closed else math.inf)
        )

    @lazy_property
    def is_array(self) -> bool:
        is_list = self.whole.get("type") == "array" and rules_of(self.whole) <= _ARRAY
        return is_list and not isinstance(self.whole.get("items"), list)

    def listed(self) -> tuple[Label, ...] | None:
        """Return the values if the schema lists them; the grammar may allow fewer."""
        values = listed_values(self.whole)
        if values is None and rules_of(self.whole) == {"type"}:
            of_type: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
            names = types_of(self.whole)
            if of_type.keys() >= set(names):
                values = [value for name in names for value in of_type[name]]
        if values is None:
            return self._union()
        try:
            labels = {label.text: label for label in map(self._label, values)}
        except InvalidArgumentError:
            return None
        return tuple(labels.values()) if len(labels) <= MAX_LABELS else None

    def _label(self, value: Any) -> Label:
        text = self._plan.text(_as_written(value))
        if _ESCAPED.search(text):
            raise InvalidArgumentError("a character can be written in several ways")
        return Label(text, text[:-1] if isinstance(value, str) and value else text, value)

    def _union(self) -> tuple[Label, ...] | None:
        """Return the values of alternatives that all list theirs. Two of a ``oneOf`` may not have
        the same."""
        listed: list[Label] = []
        for part in alternatives_of(self.whole):
            labels = self._plan.form(part).labels
            if labels is None or len(listed) > MAX_LABELS:
                return None
            listed += labels
        counts = Counter(label.text for label in listed)
        most = 1 if "oneOf" in self.whole else len(listed)
        allowed = {label.text: label for label in listed if counts[label.text] <= most}
        return tuple(allowed.values()) or None

    @lazy_property
    def alternatives(self) -> tuple[Label, ...] | None:
        """The fixed texts at the beginnings of the alternatives; None if two may be equal."""
        found: list[tuple[str, _Form]] = []
        for part in alternatives_of(self.whole):
            form = self._plan.form(part)
            if form.labels is not None:
                parts = ((label.text, {"const": label.value}) for label in form.labels)
                found += [(text, self._plan.form(part)) for text, part in parts]
            elif opening := form.opening():
                found.append((opening, form))
            else:
                return None
        texts = sorted(opening for opening, _ in found)
        is_clear = not any(after.startswith(text) for text, after in pairwise(texts))
        if not is_clear or len(found) < 2:
            return None
        return tuple([Label(text, text, text, form) for text, form in found])

    def opening(self, depth: int = 0) -> str:
        """Return the fixed text at the beginning of every value. It is empty for strings, because
        one token may contain the quote and the letters after it."""
        if depth > MAX_REFERENCES:
            return ""
        if self.labels is not None:
            return self.labels[0].text if len(self.labels) == 1 else ""
        if self.is_object:
            first, *others = self.fields_at(0, 0, "")
            if others:
                return ""
            form = first.leads_to
            return first.text + ("" if form is None else form.opening(depth + 1))
        if self.is_array and self.whole.get("minItems", 0) > 0:
            item = self.item(0)
            return "[" + ("" if item is None else item.opening(depth + 1))
        return ""

    def first_text(self) -> str:
        return self.opening() or ('"' if self.whole.get("type") == "string" else "")

    def field(self, name: str) -> _Form:
        others = self.whole.get("additionalProperties", True)
        return self._plan.form(self.whole.get("properties", {}).get(name, others))

    def item(self, index: int) -> _Form | None:
        """Return the form of an item; None if the array must end before it."""
        part = self.whole
        if index >= part.get("maxItems", index + 1):
            return None
        first = part.get("prefixItems", ())
        form = self._plan.form(first[index] if index < len(first) else part.get("items", True))
        is_optional = index >= part.get("minItems", 0)
        return None if form.part is False or (is_optional and form.is_forbidden) else form

    def _fields_at(self, index: int, n_written: int, following: str) -> Sequence[Label]:
        """Return what may come after the first `index` declared fields of an object that has
        `n_written` fields: a field, or the end. The label of a field that is not declared ends
        after the first quote of its name."""
        before = self._plan.comma if n_written else "{"
        required, least = self.whole.get("required", ()), self.whole.get("minProperties", 0)
        names = self.names
        labels: list[Label] = []
        for i, name in enumerate(names[index:], index):
            form = self.field(name)
            if form.is_forbidden:
                continue
            if n_written + len(names) - i < least:
                return labels
            text = before + self._plan.text(name)
            labels.append(Label(text + self._plan.colon, text[:-1] if name else text, name, form))
            if name in required:
                return labels
        close = "}" if n_written else "{}"
        end = [Label(close, _shortened(close + following), None)] if n_written >= least else []
        if self.whole.get("additionalProperties", True) is False:
            return [*labels, *end]
        return [Label(f'{before}"', f'{before}"', True), *end]


class _LostError(Exception):
    """The text does not match what the reader expects, or a limit is reached."""


class PlanReader:
    """Follows one answer.

    Attributes
    ----------
    choice : PlannedChoice or None
        The choice that comes next, after `fixed`. With None, free text comes next, unless the
        answer `is_over`.
    fixed : bytes
        The fixed text that comes next and has not been written yet.
    is_over : bool
        Whether the answer is complete after `fixed`.
    is_at_choice : bool
        Whether nothing of the choice is written, and `fixed` begins with a whole character.
    is_at_end : bool
        Whether only `fixed` is missing, and it begins with a whole character.
    """

    def __init__(self, plan: SchemaPlan) -> None:
        self.choice: PlannedChoice | None = None
        self.fixed = b""
        self.is_over = False
        self._plan = plan
        self._text = bytearray()
        self._at = 0  # everything before this offset has been read; `fixed` counts as written
        self._string: JsonScanner | None = None  # of a free value
        # The values that are being read, innermost last. The reader resumes only the innermost.
        self._open: list[Steps] = [self._answer()]
        self._resume()

    @property
    def beyond(self) -> bytes:
        """The text after the beginning of `choice` that a free token has already written."""
        return bytes(self._text[self._at :])

    def push(self, *texts: bytes, past_choices: bool = False) -> int:
        """Add texts that were written without the reader's choices, until the answer is over or,
        unless `past_choices`, a choice comes next. Return the number of texts that were added."""
        for n, data in enumerate(texts, 1):
            self._text += data
            string = self._string
            if string is not None and string.is_plain and not ENDS_PLAIN_TEXT.search(data):
                self._at = len(self._text)
                continue
            n_fixed = min(len(data), len(self.fixed))
            if self.fixed[:n_fixed] != data[:n_fixed]:
                self.give_up()
            else:
                self.fixed = self.fixed[n_fixed:]
            if self._open and not self.fixed:
                if self.choice is not None:
                    self._open.append(self._written_of(self.choice.labels))
                self._resume()
            elif self.choice is not None or self.is_over:
                self._set_position()
            if self.is_over or (self.choice is not None and not past_choices):
                return n
        return len(texts)

    def choose(self, index: int) -> None:
        """Replace `beyond` by `fixed` and the scored text of a label of `choice`."""
        if self.choice is None:
            raise ValueError("no choice comes next")
        label = self.choice.labels[index]
        del self._text[self._at :]
        self._text += self.fixed + label.scored.encode()
        self.fixed = label.text[len(label.scored) :].encode()
        self._at += len(label.text.encode())
        self._resume(label)

    def _resume(self, result: Label | None = None) -> None:
        """Read on; `result` is the label that was chosen, if any."""
        try:
            while self._open:
                try:
                    step = self._open[-1].send(result)
                except StopIteration as end:
                    del self._open[-1]
                    result = end.value
                    continue
                result = None
                if isinstance(step, PlannedChoice) and len(step.labels) == 1:
                    result = step.labels[0]
                    self._expect(result.text)
                elif step is None or isinstance(step, PlannedChoice):
                    self.choice = step
                    break
                else:
                    self._open.append(step)
            else:
                self.choice, self.is_over = None, True
        except (_LostError, RecursionError):
            self.give_up()
        self.is_at_choice = self.is_at_end = False
        if self.choice is not None or self.is_over:
            self._set_position()

    def give_up(self) -> None:
        """Treat the rest of the answer as free."""
        self.choice, self.fixed = None, b""
        self.is_at_choice = self.is_at_end = self.is_over = False
        self._open.clear()

    def _set_position(self) -> None:
        begins_whole = not self.fixed or self.fixed[0] & 0xC0 != 0x80
        nothing_beyond = len(self._text) <= self._at
        self.is_at_choice = self.choice is not None and nothing_beyond and begins_whole
        self.is_at_end = self.is_over and begins_whole

    # ---- texts -----------------------------------------------------------------------------------

    def _expect(self, fixed: str) -> None:
        """Read fixed text. What has not been written yet is added to `fixed`."""
        data = fixed.encode()
        written = bytes(self._text[self._at : self._at + len(data)])
        if not data.startswith(written):
            raise _LostError
        self.fixed += data[len(written) :]
        if len(self.fixed) > LONGEST_FIXED:
            raise _LostError
        self._at += len(data)

    def _written_of(self, labels: Sequence[Label]) -> Steps:
        """Return the label that is written without a choice."""
        while True:
            beyond = self.beyond
            texts = [label.text.encode() for label in labels]
            if not any(text.startswith(beyond) and text != beyond for text in texts):
                break
            yield None  # it may become a longer label
        written = [
            label for label, text in zip(labels, texts, strict=True) if beyond.startswith(text)
        ]
        if not written:
            raise _LostError
        found = max(written, key=lambda label: len(label.text))
        self._at += len(found.text.encode())
        return found

    def _free(self) -> Steps:
        """Read a value of any kind. A number or a word ends where other text begins."""
        begin = self._at
        while len(self._text) <= begin:
            yield None
        scanner = self._string = None if self._text[begin] in _SCALAR else JsonScanner()
        while True:
            if scanner is None:
                found = _AFTER_SCALAR.search(self._text, self._at)
                end = -1 if found is None else found.start()
            else:
                end = scanner.push(self._text[self._at :].decode("latin-1"))
                end += self._at if end >= 0 else 0
            if end >= 0:
                self._at, self._string = end, None
                return bytes(self._text[begin:end])
            self._at = len(self._text)
            yield None

    # ---- values ----------------------------------------------------------------------------------

    def _answer(self) -> Steps:
        plan = self._plan
        if plan.before:
            self._expect(plan.before)
        yield self._value(plan.whole, "", plan.after)
        if plan.after:
            self._expect(plan.after)

    def _value(self, form: Any, path: str, following: str) -> Steps | PlannedChoice:
        """Read a value. `following` is the known part of the fixed text after the value."""
        if form.labels:
            return PlannedChoice(path, form.labels, True)
        if form.alternatives is not None:
            return self._alternative(form.alternatives, path, following)
        if form.is_object:
            return self._object(form, path, following)
        return self._array(form, path, following) if form.is_array else self._free()

    def _alternative(self, openings: tuple[Label, ...], path: str, following: str) -> Steps:
        found = yield PlannedChoice(f"{path}?", openings, False)
        self._at -= len(found.text.encode())
        yield self._value(found.leads_to, path, following)

    def _object(self, form: _Form, path: str, following: str) -> Steps:
        names = form.names
        index, n = 0, 0
        prefix = f"{path}." if path else ""
        labels = form.fields_at(index, n, following)
        while True:
            if len(labels) == 1:
                found = labels[0]
                self._expect(found.text)
            else:
                name = names[index] if index < len(names) else str(n)
                found = yield PlannedChoice(f"{prefix}{name}?", tuple(labels), False)
            name, value = found.value, found.leads_to
            if name is None:
                return
            if name is True:
                self._at -= 1  # its quote
                name = read_json((yield self._free()).decode())
                value = form.field(name)
                self._expect(self._plan.colon)
            index = names.index(name) + 1 if name in names[index:] else len(names)
            n += 1
            labels = form.fields_at(index, n, following)
            only = labels[0].certain if len(labels) == 1 else ""
            yield self._value(value, prefix + name, only)

    def _array(self, form: _Form, path: str, following: str) -> Steps:
        least, n, before = form.whole.get("minItems", 0), 0, ""
        prefix = f"{path}." if path else ""
        end = Label("]", _shortened("]" + following), False)
        is_unique, written = form.whole.get("uniqueItems") is True, list[Label]()
        self._expect("[")
        while (item := form.item(n)) is not None:
            item_path, begins = f"{prefix}{n}", before + item.first_text()
            if n < least:
                self._expect(before)
            else:
                labels = [Label(before, begins, True), end]
                if begins:
                    found = yield PlannedChoice(f"{item_path}?", tuple(labels), False)
                else:  # the first item begins in several ways
                    found = yield self._written_of(labels)
                if not found.value:
                    return
            n, before = n + 1, self._plan.comma
            if is_unique and item.labels:
                left = [label for label in item.labels if label not in written]
                written.append((yield PlannedChoice(item_path, tuple(left), True)))
            else:
                yield self._value(item, item_path, "")
        self._expect(end.text)


@functools.lru_cache(maxsize=128)
def plan_of_text(
    text: str, comma: str = ",", colon: str = ":", before: str = "", after: str = ""
) -> SchemaPlan | None:
    """Return the plan of a schema, given as JSON; None if it sets llguidance's own options, which
    may allow white space."""
    if '"x-guidance"' in text:
        return None
    return SchemaPlan(json.loads(text), comma, colon, before, after)


def _as_written(value: Any) -> Any:
    """Return a value as llguidance writes it; raise InvalidArgumentError if that is unknown."""
    if isinstance(value, float):
        if value.is_integer() and 0 < abs(value) < 2**53:
            return int(value)
        if not _SPELLED_ONE_WAY.fullmatch(json_text(value)) or value == 0:
            raise InvalidArgumentError("the number can be written in several ways")
    elif isinstance(value, list):
        return [_as_written(each) for each in value]
    elif isinstance(value, dict):
        return {name: _as_written(each) for name, each in value.items()}
    return value


def _shortened(text: str) -> str:
    return text[:LONGEST_FOLLOWING]
