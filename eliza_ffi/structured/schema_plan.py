"""Find the choices in a JSON answer: the places where a schema allows only a few fixed texts.

These are enums, booleans and constants, the next field of an object, and whether a list continues.
A :class:`PlanReader` follows an answer while it is written, and says which choice comes next. All
other values are free values: strings, numbers, alternatives with the same beginning, and the like.
The reader does not choose them. It reads to their end, and resumes there.

Answers have no white space between their parts, as with :data:`.schema.COMPACT`.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import string
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from ..errors import InvalidArgumentError
from .json_text import ENDS_PLAIN_TEXT, JsonScanner, json_text, read_json
from .number_values import list_few_numbers
from .schema_walk import ANNOTATIONS, reference_target, schema_parts

DEEPEST_REFERENCE = 32

MOST_LABELS = 4096
"""A value with more labels is free: tokenizing the labels for each value would take too long."""

LONGEST_FIXED = 2**16
"""The maximum length of fixed text between two values, in bytes. A few references can lead to much
more."""

LONGEST_FOLLOWING = 32
"""Fixed text after a label is scored together with the label up to this length, in characters."""

_OBJECT = ANNOTATIONS | {
    *("type", "properties", "required", "additionalProperties", "minProperties", "maxProperties")
}
_ARRAY = frozenset(("type", "items", "prefixItems", "minItems", "maxItems")) | ANNOTATIONS
_UNION = frozenset(("discriminator",)) | ANNOTATIONS
_TYPE_NAMES: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}
_SCALAR = frozenset(b"-+.0123456789" + string.ascii_letters.encode())
_AFTER_SCALAR = re.compile(rb"[^-+.0-9A-Za-z]")
_ESCAPED = re.compile(r'\\[^"\\]|\x7f')
_SPELLED_ONE_WAY = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")

T = TypeVar("T")
Steps: TypeAlias = "Generator[Steps | PlannedChoice | None, Any, Any]"
"""Reads a value: yields the reader of a part of it, and receives the result of this reader; the
choice that comes next; or None if more text must be written first."""


@dataclass(frozen=True)
class Label:
    """A fixed text that may come next.

    `scored` is the text whose probability counts. For a string it ends before the closing quote, so
    that the probability does not depend on what follows the string. For a bracket it includes the
    fixed text that follows, because the two often share a token.

    `value` is the JSON value. In a choice of the next field, it is the field's name, True if the
    name is free, or None if the object ends. In a list, it says whether another item follows.
    """

    text: str  # the whole text
    scored: str
    value: Any
    certain: str = field(init=False)  # what is written if this is the only label

    def __post_init__(self) -> None:
        object.__setattr__(self, "certain", max(self.text, self.scored, key=len))


@dataclass(frozen=True)
class PlannedChoice:
    """A choice between labels.

    The `path` consists of the keys and indices that lead to the value, joined by dots. If it ends
    with ``?``, the choice is which field comes at this path, or whether a list item does.
    """

    path: str
    labels: tuple[Label, ...]
    is_value: bool  # the labels are JSON values


class SchemaPlan:
    """The choices in the answers of one JSON Schema.

    The schema must have passed :func:`.limits.checked_schema`, and must not change. `comma` and
    `colon` are JSON's separators. `before` and `after` are fixed text around the JSON value.
    """

    def __init__(
        self, schema: Any, comma: str = ",", colon: str = ":", before: str = "", after: str = ""
    ) -> None:
        self.root = schema
        self.comma = comma
        self.colon = colon
        self.before = before
        self.after = after
        self._lock = threading.RLock()
        # By the identity of a part.
        self.forms: dict[int, _Form] = {}
        self._labels: dict[int, list[Label] | None] = {}
        self._alternatives: dict[int, list[tuple[str, Any]] | None] = {}
        self._is_impossible: dict[int, bool] = {}
        self._fields: dict[tuple[int, int, int, str], list[Label]] = {}

    def start(self) -> PlanReader:
        """Return the reader of a new answer."""
        return PlanReader(self)

    def resolved(self, part: Any) -> Any:
        """Return a schema itself, or the definition that its ``$ref`` points to."""
        for _ in range(DEEPEST_REFERENCE):
            if not isinstance(part, Mapping) or "$ref" not in part:
                return part
            reference = part["$ref"]
            if not ANNOTATIONS.issuperset(part.keys() - {"$ref"}) or not isinstance(reference, str):
                return True
            part = reference_target(self.root, reference)
        return True

    def form(self, part: Any) -> _Form:
        """Find out how the values of a part of the schema are read, and keep it in `forms`."""
        whole = self.resolved(part)
        if not isinstance(whole, Mapping):
            return self.forms.setdefault(id(part), _Form(part, whole))
        labels, alternatives = self.labels(whole), None
        if not labels:
            alternatives = self.alternatives(whole)
        is_choice = bool(labels) or alternatives is not None
        is_object = not is_choice and _is_simple_object(whole)
        is_array = not is_choice and not is_object and _is_simple_array(whole)
        form = _Form(part, whole, labels or (), alternatives, is_object, is_array)
        return self.forms.setdefault(id(part), form)

    def labels(self, part: Any) -> list[Label] | None:
        """Return the values of a resolved schema that lists them; None if it does not."""
        if not isinstance(part, Mapping):
            return None
        return self._once(self._labels, self._listed, part)

    def _once(
        self, known: dict[int, T | None], find: Callable[[Any], T | None], part: Any
    ) -> T | None:
        """Return `find(part)`, computed once. A recursive call meanwhile returns None."""
        with self._lock:
            if id(part) not in known:
                known[id(part)] = None
                known[id(part)] = find(part)
            return known[id(part)]

    def _listed(self, part: Mapping[str, Any]) -> list[Label] | None:
        keywords = part.keys() - ANNOTATIONS
        values: Sequence[Any]
        if "enum" in keywords and keywords <= {"type", "enum"}:
            values = part["enum"]
        elif "const" in keywords and keywords <= {"type", "const"}:
            values = [part["const"]]
        elif keywords == {"type"}:
            of_name: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
            names = _listed_types(part)
            values = [value for name in names for value in of_name.get(name, ())]
            if not of_name.keys() >= set(names):
                return None
        else:
            return self._union(part)
        types = set(_listed_types(part))
        try:
            found = {
                label.text: label
                for value in values
                if "type" not in part or not types.isdisjoint(_TYPE_NAMES[type(value)])
                for label in (self._label(value),)
            }
        except InvalidArgumentError:
            return None
        return list(found.values()) if len(found) <= MOST_LABELS else None

    def _union(self, part: Mapping[str, Any]) -> list[Label] | None:
        """Return the values of alternatives that all list theirs.

        A value that two alternatives of a ``oneOf`` list is not allowed.
        """
        listed: list[Label] = []
        for each in _alternatives_of(part):
            labels = self.labels(self.resolved(each))
            if labels is None or len(listed) > MOST_LABELS:
                return None
            listed += labels
        counts = Counter(label.text for label in listed)
        most = 1 if "oneOf" in part else len(listed)
        found = {label.text: label for label in listed if counts[label.text] <= most}
        return list(found.values()) or None

    def alternatives(self, part: Mapping[str, Any]) -> list[tuple[str, Any]] | None:
        """Return a schema's alternatives, each with the fixed text at its beginning.

        None if the schema has no alternatives, or if these texts do not tell them apart.
        """
        return self._once(self._alternatives, self._told_apart, part)

    def _told_apart(self, part: Mapping[str, Any]) -> list[tuple[str, Any]] | None:
        found: list[tuple[str, Any]] = []
        for each in _alternatives_of(part):
            each = self.resolved(each)
            labels = self.labels(each)
            if labels is not None:
                found += [(label.text, {"const": label.value}) for label in labels]
            elif opening := self.opening(each):
                found.append((opening, each))
            else:
                return None
        texts = sorted(opening for opening, _ in found)
        is_clear = not any(after.startswith(text) for text, after in pairwise(texts))
        return found if is_clear and len(found) > 1 else None

    def opening(self, part: Any, depth: int = 0) -> str:
        """Return the fixed text with which every value begins; empty if there is none.

        A string has none, because one token may contain the quote and the letters after it.
        """
        part = self.resolved(part)
        if not isinstance(part, Mapping) or depth > DEEPEST_REFERENCE:
            return ""
        labels = self.labels(part)
        if labels is not None:
            return labels[0].text if len(labels) == 1 else ""
        if _is_simple_object(part):
            first, *others = self.fields_at(part, 0, 0, "")
            if others:
                return ""
            inner = part.get("properties", {}).get(first.value)
            return first.text + ("" if inner is None else self.opening(inner, depth + 1))
        if _is_simple_array(part) and part.get("minItems", 0) > 0:
            return "[" + self.opening(_item(part, 0), depth + 1)
        return ""

    def fields_at(
        self, part: Mapping[str, Any], index: int, n_written: int, following: str
    ) -> list[Label]:
        """Return what may come after the first `index` declared fields of an object.

        This is a field, or the end of the object. A field that is not declared is a label that ends
        after the first quote of its name, and has the value True. `n_written` is the number of
        fields in the object so far.
        """
        n_written = min(n_written, max(part.get("minProperties", 0), 1))  # more make no difference
        key = id(part), index, n_written, following
        if key not in self._fields:
            self._fields[key] = self._found_fields(part, index, n_written, following)
        return self._fields[key]

    def _found_fields(
        self, part: Mapping[str, Any], index: int, n_written: int, following: str
    ) -> list[Label]:
        before = self.comma if n_written else "{"
        required, least = part.get("required", ()), part.get("minProperties", 0)
        names = list(part.get("properties", {}))
        found: list[Label] = []
        for i, name in enumerate(names[index:], index):
            if self.is_impossible(part["properties"][name]):
                if name in required:
                    raise _LostError
                continue
            if n_written + len(names) - i < least:
                return found
            text = before + self._text(name)
            found.append(Label(text + self.colon, text[:-1] if name else text, name))
            if name in required:
                return found
        close = "}" if n_written else "{}"
        end = [Label(close, _shortened(close + following), None)] if n_written >= least else []
        if part.get("additionalProperties", True) is False:
            return [*found, *end]
        return [Label(f'{before}"', f'{before}"', True), *end]

    def _text(self, value: Any) -> str:
        json_text(value)  # checks the value
        return json.dumps(value, ensure_ascii=False, separators=(self.comma, self.colon))

    def _label(self, value: Any) -> Label:
        """Return the label of a value; raise InvalidArgumentError if it has several spellings."""
        text = self._text(_as_written(value))
        if _ESCAPED.search(text):
            raise InvalidArgumentError("a character can be written in several ways")
        return Label(text, text[:-1] if isinstance(value, str) and value else text, value)

    def is_impossible(self, part: Any) -> bool:
        """Return whether it is obvious that no value matches. llguidance leaves such fields out."""
        part = self.resolved(part)
        with self._lock:
            if id(part) not in self._is_impossible:
                self._find_impossible(part)
            return self._is_impossible[id(part)]

    def _find_impossible(self, part: Any) -> None:
        """Find out whether a resolved schema, and each schema that it needs, is impossible.

        Schemas can need each other. So all of them count as possible at first, and the loop runs
        until it finds no more impossible ones.
        """
        needs: dict[int, list[list[Any]]] = {}
        reached = [part]
        for each in reached:
            if id(each) not in needs:
                needs[id(each)] = [[self.resolved(one) for one in need] for need in _needs(each)]
                if self.labels(each) == []:
                    needs[id(each)].append([])
                reached += itertools.chain.from_iterable(needs[id(each)])
        self._is_impossible.update(dict.fromkeys(needs, False))
        found = True
        while found:
            found = False
            for key in reversed(needs):
                if not self._is_impossible[key] and any(
                    all(self._is_impossible[id(one)] for one in need) for need in needs[key]
                ):
                    self._is_impossible[key] = found = True

    def first_text(self, item: Any) -> str:
        """Return the fixed text at the beginning of an item after a comma or a bracket."""
        part = self.resolved(item)
        is_text = isinstance(part, Mapping) and part.get("type") == "string"
        return self.opening(part) or ('"' if is_text else "")


@dataclass(frozen=True, slots=True)
class _Form:
    """How the values of a part of a schema are read: at most one of the last four fields is set.

    `whole` is the resolved `part`. `part` is stored to keep it alive, because its id is a key.
    """

    part: Any
    whole: Any
    labels: Sequence[Label] = ()
    alternatives: Sequence[tuple[str, Any]] | None = None
    is_object: bool = False
    is_array: bool = False


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
    used : list of bytes
        If the name of the next field is free: the names that it cannot have, as JSON.
    """

    def __init__(self, plan: SchemaPlan) -> None:
        self.choice: PlannedChoice | None = None
        self.fixed = b""
        self.is_over = False
        self._plan = plan
        self._text = bytearray()
        self._at = 0  # everything before this offset has been read; `fixed` counts as written
        self._name_at = 0  # where the name of the next field begins, if it is free
        self.used: list[bytes] = []
        self._chosen: int | None = None
        self._string: JsonScanner | None = None  # of a free value
        # The values that are being read, innermost last. The reader resumes only the innermost.
        self._open: list[Steps] = [self._answer()]
        self._resume()

    @property
    def beyond(self) -> bytes:
        """The text after the beginning of `choice` that a free token has already written."""
        return bytes(self._text[self._at :])

    @property
    def repeats(self) -> list[bytes]:
        """The texts that would end the name of a field which the object already has."""
        begun = bytes(self._text[self._name_at :])
        return [name[len(begun) :] for name in self.used if name.startswith(begun)]

    def push(self, data: bytes) -> None:
        """Add text that was written without the reader's choices."""
        self._text += data
        string = self._string
        if string is not None and string.is_plain and not ENDS_PLAIN_TEXT.search(data):
            self._at = len(self._text)
            return
        n = min(len(data), len(self.fixed))
        if self.fixed[:n] != data[:n]:
            self._give_up()
        else:
            self.fixed = self.fixed[n:]
        if self._open and not self.fixed:
            self._resume()
        elif self.choice is not None or self.is_over:
            self._look()

    def choose(self, index: int) -> None:
        """Replace `beyond` by `fixed` and the scored text of a label of `choice`."""
        if self.choice is None:
            raise ValueError("no choice comes next")
        label = self.choice.labels[index]
        del self._text[self._at :]
        self._text += self.fixed + label.scored.encode()
        self.fixed = label.text[len(label.scored) :].encode()
        self._chosen = index
        self._resume()

    def _resume(self) -> None:
        """Read as far as possible."""
        result = None
        try:
            while self._open:
                try:
                    step = self._open[-1].send(result)
                except StopIteration as end:
                    del self._open[-1]
                    result = end.value
                    continue
                result = None
                if step is None or isinstance(step, PlannedChoice):
                    self.choice = step
                    break
                self._open.append(step)
            else:
                self.choice, self.is_over = None, True
        except (_LostError, RecursionError):
            self._give_up()
        self.is_at_choice = self.is_at_end = False
        if self.choice is not None or self.is_over:
            self._look()

    def _give_up(self) -> None:
        """Treat the rest of the answer as free."""
        self.choice, self.fixed = None, b""
        self.is_at_choice = False
        self._open.clear()

    def _look(self) -> None:
        """Find out whether the answer is at a choice or at its end."""
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

    def _one_of(self, path: str, labels: Sequence[Label], is_value: bool = False) -> Steps:
        """Read one of the labels, and return it."""
        if len(labels) == 1:
            self._expect(labels[0].text)
            return labels[0]
        yield PlannedChoice(path, tuple(labels), is_value)
        if self._chosen is None:
            found = yield self._written_of(labels)
        else:
            found, self._chosen = labels[self._chosen], None
        self._at += len(found.text.encode())
        return found

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
        return max(written, key=lambda label: len(label.text))

    def _free(self) -> Steps:
        """Read a value of any kind, and return it.

        A number or a word ends where other text begins.
        """
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
        self._expect(self._plan.before)
        yield self._value(self._plan.root, "", self._plan.after)
        self._expect(self._plan.after)

    def _value(self, part: Any, path: str, following: str) -> Steps:
        """Read a value. `following` is the fixed text after it, as far as it is known."""
        form = self._plan.forms.get(id(part)) or self._plan.form(part)
        if form.labels:
            return self._one_of(path, form.labels, is_value=True)
        if form.alternatives is not None:
            return self._alternative(form.alternatives, path, following)
        if form.is_object:
            return self._object(form.whole, path, following)
        return self._array(form.whole, path, following) if form.is_array else self._free()

    def _alternative(
        self, alternatives: Sequence[tuple[str, Any]], path: str, following: str
    ) -> Steps:
        openings = [Label(text, text, text) for text, _ in alternatives]
        found = yield self._one_of(f"{path}?", openings)
        self._at -= len(found.text.encode())
        yield self._value(dict(alternatives)[found.text], path, following)

    def _object(self, part: Mapping[str, Any], path: str, following: str) -> Steps:
        fields: Mapping[str, Any] = part.get("properties", {})
        names = list(fields)
        others = part.get("additionalProperties", True)
        index, n, used = 0, 0, list[bytes]()
        prefix = f"{path}." if path else ""
        labels = self._plan.fields_at(part, index, n, following)
        while True:
            if len(labels) == 1:
                found = labels[0]
                self._expect(found.text)
            else:
                name = names[index] if index < len(names) else str(n)
                found = yield self._one_of(f"{prefix}{name}?", labels)
            name = found.value
            if name is None:
                return
            if name is True:
                self._at -= 1  # its quote
                self._name_at, self.used = self._at, used
                name = read_json((yield self._free()).decode())
                self.used = []
                self._expect(self._plan.colon)
            index = names.index(name) + 1 if name in names[index:] else len(names)
            n += 1
            if others is not False:
                used.append(json_text(name).encode())
            labels = self._plan.fields_at(part, index, n, following)
            only = labels[0].certain if len(labels) == 1 else ""
            yield self._value(fields.get(name, others), prefix + name, only)

    def _array(self, part: Mapping[str, Any], path: str, following: str) -> Steps:
        least, n, before = part.get("minItems", 0), 0, ""
        prefix = f"{path}." if path else ""
        end = Label("]", _shortened("]" + following), False)
        self._expect("[")
        while True:
            item, item_path = _item(part, n), f"{prefix}{n}"
            if item is not None and n >= least and self._plan.is_impossible(item):
                item = None
            begins = before + self._plan.first_text(item)
            if item is None:
                found = end
                self._expect(end.text)
            elif n < least:
                found = Label(before, before, True)
                self._expect(before)
            elif begins:
                found = yield self._one_of(f"{item_path}?", [Label(before, begins, True), end])
            else:  # the first item begins in several ways
                found = yield self._written_of([Label("", "", True), end])
                self._at += len(found.text)
            if not found.value:
                return
            n, before = n + 1, self._plan.comma
            yield self._value(item, item_path, "")


@functools.lru_cache(maxsize=128)
def plan_of_text(
    text: str, comma: str = ",", colon: str = ":", before: str = "", after: str = ""
) -> SchemaPlan | None:
    """Return the plan of a schema, given as the text that :func:`.limits.checked_schema` returned.

    The other parameters are as in :class:`SchemaPlan`. None if the schema sets llguidance's own
    options, which may allow white space.
    """
    if '"x-guidance"' in text:
        return None
    schema = json.loads(text)
    list_few_numbers([part for _, part in schema_parts(schema)])
    return SchemaPlan(schema, comma, colon, before, after)


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


def _alternatives_of(part: Mapping[str, Any]) -> Sequence[Any]:
    """Return the alternatives of a schema that consists only of alternatives."""
    keywords = part.keys() - _UNION
    if len(keywords) == 1 and keywords <= {"anyOf", "oneOf"}:
        alternatives: Sequence[Any] = part[next(iter(keywords))]
        return alternatives
    return ()


def _needs(part: Any) -> list[list[Any]]:
    """Return lists of schemas: `part` is impossible if all schemas of one list are."""
    if not isinstance(part, Mapping):
        return [[]] if part is False else []
    limits = ("minimum", "maximum"), ("minItems", "maxItems"), ("minLength", "maxLength")
    if any(part.get(low, -math.inf) > part.get(high, math.inf) for low, high in limits):
        return [[]]
    if alternatives := _alternatives_of(part):
        return [list(alternatives)]
    if _is_simple_object(part):
        return [[part["properties"][name]] for name in part.get("required", ())]
    least = int(part.get("minItems", 0))  # 2.0 is a whole number, too
    if _is_simple_array(part) and least <= DEEPEST_REFERENCE:
        items = (_item(part, i) for i in range(least))
        return [[] if item is None else [item] for item in items]
    return []


def _listed_types(part: Mapping[str, Any]) -> list[str]:
    types = part.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _is_simple_object(part: Mapping[str, Any]) -> bool:
    fields, required = part.get("properties", {}), part.get("required", ())
    is_closed = part.get("additionalProperties", True) is False
    least, most = part.get("minProperties", 0), part.get("maxProperties", math.inf)
    return (
        part.get("type") == "object"
        and _OBJECT.issuperset(part)
        and all(name in fields for name in required)
        and least <= (len(fields) if is_closed else len(required))
        and most >= (len(fields) if is_closed else math.inf)
    )


def _is_simple_array(part: Mapping[str, Any]) -> bool:
    is_list = part.get("type") == "array" and _ARRAY.issuperset(part)
    return is_list and not isinstance(part.get("items"), list)


def _item(part: Mapping[str, Any], index: int) -> Any:
    """Return the schema of an item; None if the array must end before it."""
    if index >= part.get("maxItems", index + 1):
        return None
    first = part.get("prefixItems", ())
    item = first[index] if index < len(first) else part.get("items", True)
    return None if item is False else item
