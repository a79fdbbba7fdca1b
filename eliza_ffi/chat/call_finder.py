"""Find the format of a model's tool calls in its chat template. In rendered conversations, names
and values that occur nowhere else mark the holes of the format."""

from __future__ import annotations

import contextlib
import re
import string
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from os.path import commonprefix
from types import MappingProxyType
from typing import Any

from ..errors import ChatTemplateError, InvalidArgumentError
from ..structured.schema_walk import JSON_TYPES
from .call_format import (
    WRITERS,
    Call,
    CallFormat,
    Hole,
    Json,
    Member,
    Members,
    Pieces,
    render_call,
    write_arguments,
    write_members,
)
from .template import ChatTemplate
from .thinking import THINKING_OFF
from .tool_messages import GENERIC
from .tools import Tool

MAX_SECONDS = 5.0  # for all renderings together; each one has its own limit as well
MAX_WORDS = 20_000  # characters of the assistant's turn; comparing turns takes quadratic time
MAX_START = 1_000  # characters of a call before its name

QUESTION, THOUGHT = "eliza question", "Eliza thought"
ANSWER = {"content": "Eliza answer"}
# The fields in which messages may hold the model's thoughts.
REASONING = ("reasoning_content", "reasoning", "thinking")

KEYS = ("eliza_kb", "eliza_ka")  # not in alphabetical order
STRINGS = ("elizavaluev", "elizavaluew")  # letters only: no format needs to quote them
ONE = Call("eliza_tool_x", {KEYS[0]: STRINGS[0]}, "elizaId01")
TWO = Call("eliza_tool_y", {KEYS[1]: STRINGS[1]}, "elizaId02")
PROPERTIES = {key: {"type": "string", "description": "Words."} for key in KEYS}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": []}
TOOLS = [Tool(call.name, "A tool.", PARAMETERS).definition for call in (ONE, TWO)]

# Two values of each type: a single one does not show which characters belong to the value.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "string": (STRINGS[0], ' "<eliza é">\n\n &{}'),
    "quoted": (f"{STRINGS[0]} <&>\n'\"", f"<&>\n'\"{STRINGS[1]}"),
    "number": (424242, -0.125),
    "boolean": (True, False),
    "null": (None, None),
    "array": (["eliza '\"é", 2, None, {"a": True}], [True, []]),
    "object": ({"eliza_c": "'\"é", "eliza_b": [False, None, 7]}, {"eliza_d": {"e": {}}}),
}
# Values without characters that need quotes, for formats that quote only some strings, and for
# nested values if the format of some types has not been found yet.
SIMPLE_SAMPLES: dict[str, tuple[Any, Any]] = {
    "string": STRINGS,
    "array": ([STRINGS[0], 7], [True]),
    "object": ({"eliza_kc": STRINGS[0]}, {"eliza_kd": 7}),
}
MANY = {KEYS[0]: SAMPLES["string"][1], KEYS[1]: SAMPLES["object"][0], "eliza_c": [{}, []]}
JSON_STYLES = [
    *(Json(compact=compact, ascii=ascii) for compact, ascii in product((False, True), repeat=2)),
    *(Json(indent, margin) for indent, margin in product((1, 2, 3, 4), (0, 2, 4, 6, 8, 12))),
]


def find_call_format(
    template: ChatTemplate, /, *, close_reasoning: bool = False, **extra: Any
) -> CallFormat:
    """Return how a model writes tool calls, according to its chat template; the generic format if
    it writes none. `extra` has further variables. Raise ChatTemplateError if the template rejects a
    conversation of one question and one answer."""
    finder = _Finder(template, extra, close_reasoning)
    with contextlib.suppress(_NotFound, ChatTemplateError):
        return finder.native()
    try:
        return finder.generic()
    except _NotFound:
        raise ChatTemplateError(
            "the chat template has no place for tool calls in the assistant's turns: "
            "use a model with another chat template"
        ) from None


class _NotFound(Exception):  # noqa: N818 - an outcome
    """The template writes no calls, or writes them in an unknown way."""


class _Finder:
    def __init__(
        self, template: ChatTemplate, extra: Mapping[str, Any], close_reasoning: bool
    ) -> None:
        self.template = template
        self.extra = {**THINKING_OFF, **extra} if close_reasoning else extra
        self.until = time.thread_time() + MAX_SECONDS
        self.prompt = self.render(prompt=True)
        if close_reasoning:
            self.prompt += template.closing(self.prompt)
        self.answered = self.render(ANSWER)

    def generic(self) -> CallFormat:
        """Return the generic format, in turns as this template writes them."""
        self.turn = _whole_tags(commonprefix([self.prompt, self.answered]))
        return self.with_start(GENERIC, "")[0]

    def native(self) -> CallFormat:
        called = self.render(_calling(ONE))
        self.turn = _whole_tags(commonprefix([self.prompt, self.answered, called]))
        format = self.with_arguments(CallFormat(lists_tools=TWO.name in self.prompt))
        before, *inner, after = _split(self.write(ONE), _marks(format, ONE))
        if Hole.NAME not in inner or inner.count(Hole.ARGUMENTS) != 1:
            raise _NotFound
        format, rest = self.with_start(format, before)
        start = before.removesuffix(rest)
        end = _common_end(after, self.turn_text(ANSWER).partition(ANSWER["content"])[2])
        alone = [rest, *inner, after.removesuffix(end)]
        try:
            both = self.write(ONE, TWO).removeprefix(start).removesuffix(end)
            format = _with_calls(
                format, alone, _split(both, _marks(format, ONE) | _marks(format, TWO))
            )
        except (_NotFound, ChatTemplateError):
            format = replace(format, call=_joined(alone), parallel=False)
        format = replace(format, index_continues=self.index_continues(format))
        self.check(format, start, end)
        return format

    # ---- rendering -----------------------------------------------------------------------------

    def render(self, *turns: Mapping[str, Any], prompt: bool = False) -> str:
        """Render a question and further turns; the default role of a turn is the assistant."""
        if time.thread_time() > self.until:
            raise ChatTemplateError(
                f"the chat template takes more than {MAX_SECONDS:g} seconds to write short messages"
            )
        messages = [{"role": "user", "content": QUESTION}]
        messages += [{"role": "assistant", **turn} for turn in turns]
        return self.template.render(
            messages, add_generation_prompt=prompt, tools=TOOLS, **self.extra
        )

    def turn_text(self, turn: Mapping[str, Any]) -> str:
        """Render a turn, and return its text after the beginning that all turns have in common."""
        text = self.render(turn)
        if not text.startswith(self.turn) or len(text) - len(self.turn) > MAX_WORDS:
            raise _NotFound
        return text.removeprefix(self.turn)

    def write(self, *calls: Call) -> str:
        return self.turn_text(_calling(*calls))

    # ---- the turn ------------------------------------------------------------------------------

    def with_start(self, format: CallFormat, before: str) -> tuple[CallFormat, str]:
        """Return the format with `cut`, `lead` and `text_start`, and the beginning of a call.
        `before` is the turn up to the name of the first tool."""
        text_start = self.turn_text(ANSWER).partition(ANSWER["content"])[0]
        opening, cut, lead = self.prompt.removeprefix(self.turn), "", ""
        if len(opening) > MAX_WORDS:
            raise _NotFound
        same = _overlap(opening, before)
        if self.begins_thoughts():
            cut = opening
        elif same:  # the turn and the generation prompt begin with the same text
            before, text_start = before.removeprefix(same), text_start.removeprefix(same)
        # Calls and answers in words both begin with empty thoughts.
        elif "</" in opening and before.startswith(text_start):
            before, text_start = before.removeprefix(text_start), ""
        else:
            cut = opening  # the generation prompt may begin thoughts
        if before.startswith(text_start):
            before, lead, text_start = before.removeprefix(text_start), text_start, ""
        return replace(format, cut=cut, lead=lead, text_start=text_start), before

    def begins_thoughts(self) -> bool:
        """Return whether the generation prompt begins thoughts that the turn continues."""
        for name in REASONING:
            with contextlib.suppress(ChatTemplateError):
                text = self.render({**ANSWER, name: THOUGHT})
                before, _, after = text.partition(THOUGHT)
                if ANSWER["content"] in after and before.rstrip() == self.prompt.rstrip():
                    return True
        return False

    # ---- calls ---------------------------------------------------------------------------------

    def with_arguments(self, format: CallFormat) -> CallFormat:
        text = self.write(replace(ONE, arguments=MANY))
        for style in JSON_STYLES:
            if style.write(MANY) in text:
                return replace(format, arguments=style)
        arguments, items = _find_members(
            lambda arguments: self.write(replace(ONE, arguments=arguments)), None
        )
        return replace(format, arguments=arguments, items=items)

    def index_continues(self, format: CallFormat) -> bool:
        """Return whether the number of a call depends on the calls in earlier turns."""
        if Hole.INDEX not in format.call:
            return False
        result = {"role": "tool", "name": ONE.name, "tool_call_id": ONE.id, "content": THOUGHT}
        text = self.render(_calling(ONE), result, _calling(TWO)).rpartition(THOUGHT)[2]
        return render_call(replace(format, index_continues=True), [TWO], 1) in text

    def check(self, format: CallFormat, start: str, end: str) -> None:
        """Raise if the format writes some calls differently from the template."""
        values = {"eliza_s": STRINGS[1], "eliza_n": 1.5, "eliza_b": False}
        calls = [replace(ONE, arguments={}), replace(TWO, arguments=values), ONE]
        for several in (calls[:1], calls[1:2], calls[:2], calls):
            if len(several) > 1 and not format.parallel:
                break
            if self.write(*several) != start + render_call(format, several) + end:
                raise _NotFound


def _calling(*calls: Call) -> dict[str, Any]:
    written = []
    for call in calls:
        function = {"name": call.name, "arguments": dict(call.arguments)}
        written.append({"id": call.id, "type": "function", "function": function})
    return {"content": None, "tool_calls": written}


def _with_calls(format: CallFormat, alone: Sequence[Any], both: Sequence[Any]) -> CallFormat:
    """Find the fixed text of calls from the pieces of two turns: `alone` has one call, `both` has
    two."""
    before, *inner, after = alone
    size = len(inner)
    if len(both) != 2 * size + 3 or both[0] != before or both[-1] != after:
        raise _NotFound
    middle = both[size + 1]
    closing = _whole_tags(commonprefix([middle, after]))
    middle = middle.removeprefix(closing)
    opening = next(
        before[len(before) - n :]
        for n in range(min(len(before), len(middle), MAX_START), -1, -1)
        if _numbered(before[len(before) - n :], middle[len(middle) - n :])
        and not 0 <= before.find(">", len(before) - n) < before.find("<", len(before) - n)
    )
    first = [opening, *both[1 : size + 1]]
    second = [middle[len(middle) - len(opening) :], *both[size + 2 : -1]]
    call: list[Any] = []
    for one, two in zip(first, second, strict=True):
        pieces = [one] if one is two else _numbered(one, two)
        if pieces is None:
            raise _NotFound
        call += pieces
    numbers = [piece for piece in call if isinstance(piece, int)]
    pieces = [Hole.INDEX if isinstance(piece, int) else piece for piece in call]
    return replace(
        format,
        open=before.removesuffix(opening),
        call=_joined([*pieces, closing]),
        between=middle[: len(middle) - len(opening)],
        close=after.removeprefix(closing),
        first_index=numbers[0] if numbers else 0,
    )


def _numbered(text: Any, other: Any) -> list[str | int] | None:
    """Split `text` at its number, which `other` has increased by one. Return None if they differ in
    other ways, and the whole text if they are equal."""
    if not isinstance(text, str) or not isinstance(other, str):
        return None
    if text == other:
        return [text]
    for number in re.finditer(r"\d{1,9}", text):
        head, tail = text[: number.start()], text[number.end() :]
        if f"{head}{int(number.group()) + 1}{tail}" == other:
            return [head, int(number.group()), tail]
    return None


# ---- fixed text and holes ----------------------------------------------------------------------


def _marks(format: CallFormat, call: Call) -> dict[str, Hole]:
    """Return the strings that mark the holes of a call."""
    arguments = write_arguments(format, call.arguments)
    return {arguments: Hole.ARGUMENTS, call.name: Hole.NAME, call.id or "": Hole.ID}


def _split(text: str, marks: Mapping[str, Hole]) -> list[Any]:
    """Cut `text` at marks. Fixed text comes first, last and between two holes."""
    if not marks:
        return [text]
    pattern = "|".join(map(re.escape, sorted(marks, key=len, reverse=True)))
    parts = re.split(f"({pattern})", text)
    return [marks[part] if i % 2 else part for i, part in enumerate(parts)]


def _joined(pieces: Sequence[str | Hole]) -> Pieces:
    joined: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece != "":
            joined.append(piece)
    return tuple(joined)


def _whole_tags(text: str) -> str:
    """Return `text` without the unfinished tag at its end."""
    start = max(text.rfind("<"), text.rfind("["))
    unfinished = start > max(text.rfind(">"), text.rfind("]"), text.rfind("\n"))
    return text[:start] if unfinished else text


def _common_end(text: str, other: str) -> str:
    """Return the longest common end of two strings that begins with a tag, or an empty string."""
    if (stop := other.strip()) and stop in text:
        return text[text.index(stop) :]
    end = commonprefix([text[::-1], other[::-1]])[::-1]
    for i, char in enumerate(end):
        befores = [each.removesuffix(end[i:])[-1:] for each in (text, other)]
        if char in "<[" and not any(before.isalnum() for before in befores):
            return end[i:]
    return ""


def _overlap(text: str, other: str) -> str:
    """Return the longest end of `text` with which `other` begins, unless it may be a coincidence:
    it has no tag and is not all of `text`."""
    sizes = range(min(len(text), len(other)), 0, -1)
    same = next((text[-size:] for size in sizes if other.startswith(text[-size:])), "")
    return same if same == text or "<" in same else ""


# ---- members -----------------------------------------------------------------------------------


def _find_members(
    write: Callable[[Any], str], of_objects: Members | None
) -> tuple[Members, Members | None]:
    """Find the format of arguments that are written one by one, or of the items of an array, from
    the turns that `write` returns. The second result is the format of the items, if needed."""
    keys = KEYS if of_objects is None else ()

    def several(*values: Any) -> Any:
        return dict(zip(keys, values, strict=False)) if keys else [*values]

    before, between, after, sort = _around(
        write(several()), write(several(STRINGS[0])), write(several(*STRINGS)), keys
    )
    found: dict[str, Member] = {}
    members = Members(found, between, sort)
    objects, items = (members, None) if keys else (of_objects, members)

    def member(kind: str, samples: Mapping[str, tuple[Any, Any]]) -> Member | None:
        texts = [write(several(value)) for value in samples[kind]]
        if not all(text.startswith(before) and text.endswith(after) for text in texts):
            return None
        texts = [text[len(before) : len(text) - len(after)] for text in texts]
        writers = {name: WRITERS[name] for name in ("json", "python")}
        if kind in ("string", "quoted"):
            writers = WRITERS
        elif inner := objects if kind == "object" else items if kind == "array" else None:
            writers |= {"members": lambda value: write_members(inner, value, objects, items)}
        return _find_member(samples[kind], texts, writers, keys, [*found.values()])

    for kind in reversed(JSON_TYPES):  # scalars first
        one = member(kind, SAMPLES)
        if one is None and kind == "array" and keys:
            items, _ = _find_members(lambda value: write(several(value)), members)
        if one is None and kind in SIMPLE_SAMPLES:
            one = member(kind, SIMPLE_SAMPLES)
        if one is not None:
            found[kind] = one
    if "string" not in found:
        raise _NotFound
    quoting = ""
    if member("string", SAMPLES) is None and (quoted := member("quoted", SAMPLES)):
        found["quoted"] = quoted
        for each in string.punctuation + string.whitespace:
            value = several(f"x{each}x")
            plain = before + write_members(members, value, objects, items) + after
            quoting += each if write(value) != plain else ""
    return Members(MappingProxyType(found), between, sort, quoting), items


def _around(none: str, one: str, both: str, keys: Sequence[str]) -> tuple[str, str, str, bool]:
    """Return the fixed text before, between and after members, and whether members are sorted, from
    turns with no, one and two members. Items have no `keys`."""
    sort = bool(keys) and -1 < both.find(keys[1]) < both.find(keys[0])
    for key in keys:
        one, both = one.replace(key, KEYS[0]), both.replace(key, KEYS[0])
    first, second = STRINGS[:: -1 if sort else 1]
    if [one.count(STRINGS[0]), both.count(first), both.count(second)] != [1, 1, 1]:
        raise _NotFound
    head, tail = one.split(STRINGS[0])
    key = head[head.rfind(KEYS[0]) :] if keys else ""
    both_head, rest = both.split(first)
    middle, both_tail = rest.split(second)
    if (both_head, both_tail) != (head, tail) or not middle.endswith(key):
        raise _NotFound
    head, middle = head.removesuffix(key), middle.removesuffix(key)
    splits = []
    for n in range(len(none) + 1):
        before, after = none[:n], none[n:]
        if not (head.startswith(before) and tail.endswith(after)):
            continue
        opening, closing = head.removeprefix(before), tail.removesuffix(after)
        between = middle.removeprefix(closing).removesuffix(opening)
        if closing + between + opening == middle:
            splits.append((_whole_tags(before) != before, n, between))
    if not splits:
        raise _NotFound
    _, n, between = min(splits)
    return none[:n], between, none[n:], sort


def _find_member(
    values: Sequence[Any],
    texts: Sequence[str],
    writers: Mapping[str, Callable[[Any], str]],
    keys: Sequence[str],
    known: Sequence[Member],
) -> Member | None:
    """Find how a value is written, given the template's output for two values."""
    for name, write in writers.items():
        try:
            one, two = map(write, values)
        except InvalidArgumentError:  # a member of a type that the format cannot write
            continue
        members = []
        for found in re.finditer(re.escape(one), texts[0]):
            opening, closing = texts[0][: found.start()], texts[0][found.end() :]
            if texts[1] == opening + two + closing:
                marks = dict.fromkeys(keys[:1], Hole.KEY)
                pieces = [*_split(opening, marks), Hole.VALUE, *_split(closing, marks)]
                members.append(Member(_joined(pieces), name))
        if members:
            # "null" may occur several times. Prefer the place where values of other types occur.
            alike = [each for each in members if each.pieces in [one.pieces for one in known]]
            return (alike or members)[-1]
    return None
