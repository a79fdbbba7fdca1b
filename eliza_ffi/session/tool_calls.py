"""Tool calls: choose the tool, then generate its arguments.

One stream writes a call in the model's own format, in three steps:

1. Does the model call a tool? The answer is the probability of the fixed text that begins a call.
   If the format also has fixed text that begins an answer in words, the model chooses between the
   two texts.
2. Which tool? The model chooses between the names. Each name is tokenized together with the text
   around it. Only the first tokens are scored: as many as distinguish the name from all others.
3. Which arguments? They are generated under token masks of the tool's schema. The fixed text around
   them is part of the grammar, because one token may span fixed text and arguments.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import json
import math
import random
import string
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from .._lazy import once_for_each
from ..chat.call_format import CallFormat, Hole, Json, fill_pieces
from ..chat.call_grammar import call_grammar, first_texts
from ..chat.call_reader import CallPieces, parse_call
from ..chat.template import Messages, check_messages
from ..chat.tool_messages import messages_with_calls, read_call, tool_messages
from ..chat.tools import Tool, read_tools
from ..checks import (
    check_kind,
    check_several,
    check_text,
    check_whole,
    did_you_mean,
    naming,
    short_repr,
    wrong,
)
from ..choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from ..errors import ChatTemplateError, FillError, InvalidArgumentError
from ..library.binding import CffiBinding
from ..library.protocol import PreparedChoices, StreamStats, StreamStep
from ..sampling.params import Sampling
from ..structured.guidance import Constraint
from ..structured.token_texts import continued_tokens
from ..structured.validation import checked_value
from .generation import Generation
from .options import CacheOptions
from .reading import valid_value, whole_answer
from .requests import MAX_TOKENS, Request, check_keywords, generate_request
from .results import GenerationResult, generation_of
from .run import LONG_CALL, Run

if TYPE_CHECKING:
    from .session import Session

MAX_CALLS = 16
"""The default of `max_calls`."""


class ToolSettings(TypedDict, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.call_tools`."""

    temperature: float
    top_k: int
    top_p: float
    seed: int | None
    stop: str | Sequence[str] | None
    sampling: Sampling | None
    think: int
    cache: CacheOptions | None
    chat_template_kwargs: Mapping[str, Any] | None
    max_tokens: int
    timeout: float | None


Row: TypeAlias = tuple[int, ...]
"""A token sequence."""

SETTINGS = frozenset(ToolSettings.__annotations__)
OWN = frozenset(("tool_choice",))

RENDERED_WITH = frozenset(
    ("add_generation_prompt", "close_reasoning", "continue_final_message", "messages", "tools")
)
"""Arguments of the chat template that every request sets itself."""

_RANDOM = random.SystemRandom()

ID_LENGTH = 9  # letters and digits, because Mistral's templates reject other ids


@dataclass(frozen=True)
class ToolCall:
    """A tool call of the model.

    >>> messages = [{"role": "user", "content": "what time is it?"}]
    >>> call = model.call_tool(messages, tools, "required")
    >>> call.name, call.to_message()["role"], call.result("12:00")["content"]
    ('get_time', 'assistant', '12:00')

    Attributes
    ----------
    name : str
    arguments : dict
        Valid against the tool's schema.
    probability : float
        The probability of this tool, as in `probabilities`.
    probabilities : mapping
        From each tool's name to its probability; the probabilities sum to 1. With
        ``tool_choice="auto"``, the key None stands for an answer in words. In later calls of a
        turn, the key None stands for the end of the turn.
    id : str
        A random identifier of nine letters and digits.
    reasoning : str or None
        What the model wrote before the turn; None without ``think=``.
    """

    name: str
    arguments: dict[str, Any]
    probability: float
    probabilities: Mapping[str | None, float]
    id: str
    reasoning: str | None = None

    def __repr__(self) -> str:
        arguments = short_repr(self.arguments)
        return f"ToolCall({self.name!r}, {arguments}, probability {self.probability:.3g})"

    def to_message(self) -> dict[str, Any]:
        """Return the assistant's message with this call, in OpenAI's format."""
        return _message([self])

    def result(self, content: Any) -> dict[str, Any]:
        """Return a message with the tool's result, to append to the conversation.

        Parameters
        ----------
        content
            A string, or another JSON value, which is written as JSON.

        Raises
        ------
        InvalidArgumentError
            If `content` is neither a string nor a JSON value.
        """
        text = content
        if not isinstance(content, str):
            try:
                text = json.dumps(content, ensure_ascii=False, allow_nan=False)
            except (RecursionError, TypeError, ValueError) as error:
                raise InvalidArgumentError(
                    f"content must be a string or another JSON value: {error}"
                ) from None
        return {"role": "tool", "tool_call_id": self.id, "name": self.name, "content": text}


class ToolCalls(list[ToolCall]):
    """The tool calls of one turn, in order.

    >>> messages = [{"role": "user", "content": "what time is it?"}]
    >>> calls = model.call_tools(messages, tools, "required", max_calls=1)
    >>> len(calls), len(calls.to_message()["tool_calls"])
    (1, 1)

    Attributes
    ----------
    prompt_tokens, cached_tokens, generated_tokens : int
        The number of tokens of the prompt, how many of them were reused from the KV cache, and the
        number of tokens of the calls, including the reasoning of ``think=``.
    is_truncated : bool
        Whether a further call reached the limit and was discarded. Only a server asks for this;
        other requests raise an error instead.
    """

    prompt_tokens = 0
    cached_tokens = 0
    generated_tokens = 0
    is_truncated = False

    def to_message(self) -> dict[str, Any]:
        """Return the assistant's message with these calls, in OpenAI's format."""
        return _message(self)


@dataclass(frozen=True)
class CallPiece:
    """A piece of a call that is being written.

    Attributes
    ----------
    id, name : str
        As in the `ToolCall` that follows when the call is complete.
    text : str
        The next piece of the arguments as JSON; empty in the first piece of a call. The text
        becomes valid JSON only with the last piece.
    """

    id: str
    name: str
    text: str


@dataclass(frozen=True, repr=False)
class TextAnswer(GenerationResult):
    """An answer in words from a model that could have called a tool.

    >>> answer = model.call_tool([{"role": "user", "content": "hello"}], tools, max_tokens=5)
    >>> answer.to_message()["role"]
    'assistant'

    Attributes
    ----------
    probabilities : mapping
        From each tool's name to its probability. The key None stands for an answer in words.
    cached_tokens : int
        The number of prompt tokens that were reused from the KV cache of earlier requests.
    """

    probabilities: Mapping[str | None, float] | None = None
    cached_tokens: int = 0

    def to_message(self) -> dict[str, Any]:
        """Return the assistant's message with this answer."""
        return {"role": "assistant", "content": self.text}


def _message(calls: Sequence[ToolCall]) -> dict[str, Any]:
    written = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for call in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": written}


def one_call(answer: ToolCalls | TextAnswer) -> ToolCall | TextAnswer:
    """Return the only call of a turn, or the answer in words."""
    return answer[0] if isinstance(answer, ToolCalls) else answer


# ---- Requests ----------------------------------------------------------------------------------


class CallTexts:
    """The fixed text of a model's calls as tokens, and the grammars of its tools.

    They do not depend on the request, so the session keeps the most recent ones.
    """

    def __init__(self, session: Session) -> None:
        self._session = weakref.proxy(session)
        self.vocabulary = session.vocabulary()
        self.read = functools.lru_cache(maxsize=1024)(self._read)
        self.split = functools.lru_cache(maxsize=256)(self._split)
        self.grammar = functools.lru_cache(maxsize=128)(self._grammar)
        self.tools = functools.lru_cache(maxsize=64)(self._tools)
        self.check = functools.lru_cache(maxsize=256)(self._check)
        self.start = functools.lru_cache(maxsize=256)(self._start)
        self.fixed = functools.lru_cache(maxsize=256)(self._fixed)
        self.labels = functools.lru_cache(maxsize=64)(self._labels)
        self.ways = functools.lru_cache(maxsize=64)(self._ways)

    def text(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens, with control tokens spelled out."""
        return b"".join(map(self.vocabulary.texts.__getitem__, tokens))

    def _read(self, text: str) -> Row:
        """Return the tokens of fixed text that follows other text."""
        session = self._session
        return tuple(continued_tokens(lambda text: session.tokenize(text, False, True), text))

    def _grammar(self, format: CallFormat, schema: str, before: str, after: str) -> Constraint:
        """Return the grammar of the arguments and the fixed text around them."""
        return call_grammar(format, json.loads(schema), before, after, self.split)

    def listed(self, tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
        """Read tool definitions, equal ones only once."""
        try:
            text = json.dumps(tools)
        except (RecursionError, TypeError, ValueError):
            return read_tools(tools)
        return self.tools(text)

    def _tools(self, text: str) -> tuple[Tool, ...]:
        return read_tools(json.loads(text))

    def _check(self, format: CallFormat, tool: Tool) -> None:
        """Raise InvalidArgumentError, which names the tool, if its schema is not supported."""
        try:
            self.grammar(format, tool.schema, "", "")
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"the parameters of tool {tool.name!r}: {error}") from error

    def _start(self, format: CallFormat, tool: Tool, is_first: bool, index: int, id: str) -> _Start:
        """Return the beginning of a call; `is_first` is whether it is the first one of its turn."""
        holes = {Hole.NAME: tool.name, Hole.ID: id, Hole.INDEX: str(index)}
        place = format.call.index(Hole.ARGUMENTS)
        opening = fill_pieces(format.call[:place], holes)
        after = fill_pieces(format.call[place + 1 :], holes)
        text = (format.open if is_first else format.between) + opening
        following = [""]
        if format.call[place - 1] is Hole.NAME:  # one name may begin with another
            following = first_texts(format, tool.parameters, after)
        rows = tuple([self.read(text + each) for each in following])
        near = next(iter(self.split(after)), "")
        near = near if isinstance(near, str) else ""
        return _Start(tool, text, self.read(text), rows, opening, near, after.removeprefix(near))

    def _fixed(self, start: _Start, starts: tuple[_Start, ...]) -> tuple[Row, str]:
        """Return the fixed tokens before the arguments, and the text after these tokens.

        Control tokens and the tokens that the choice of the tool has decided are fixed. The plain
        text after them is left to the grammar, so that a token can span that text and the
        arguments.
        """
        tokens, controls = start.tokens, self.vocabulary.controls
        others = [row for each in starts if each is not start for row in each.rows]
        n_decided = len(_decided(tokens, others))
        n_fixed = max([n_decided, *(i for i, token in enumerate(tokens, 1) if token in controls)])
        for n in range(n_fixed, len(tokens)):
            rest = start.text.encode()[len(self.text(tokens[:n])) :]
            with suppress(UnicodeDecodeError):
                return tokens[:n], rest.decode()
        return tokens, ""

    def _labels(self, rows: tuple[Row, ...]) -> PreparedChoices:
        """Prepare token sequences; their scores have the same order."""
        leaves = tuple([TokenTreeLeaf(f"{i:06}", row) for i, row in enumerate(rows)])
        payload = TokenTreePayload("", (TokenTreeDescriptor("tools", leaves),)).to_json()
        binding: CffiBinding = self._session.binding
        return binding.prepare_token_trie(self._session.ctx, payload, len(rows))

    def _ways(
        self, ways: tuple[tuple[Row, ...], ...]
    ) -> tuple[Row, PreparedChoices, NDArray[np.intp]]:
        """Prepare a choice between continuations, each of which can begin in several ways.

        Return the tokens that all of them begin with, the sequences after these tokens that decide
        between the continuations, and which continuation each sequence begins.
        """
        decided = [dict.fromkeys(way) for way in _decided_ways(ways)]
        common = tuple(commonprefix([row for way in decided for row in way]))
        way_of = {row[len(common) :]: i for i, way in enumerate(decided) for row in way}
        return common, self.labels(tuple(way_of)), np.array([*way_of.values()])

    def _split(self, text: str) -> list[str | int]:
        """Split fixed text into plain text and control tokens."""
        parts: list[str | int] = []
        plain: list[int] = []
        for token in [*self.read(text), -1]:
            if token >= 0 and token not in self.vocabulary.controls:
                plain.append(token)
                continue
            if plain:
                parts.append(self.text(plain).decode("utf-8", "replace"))
            parts += [token] if token >= 0 else []
            plain = []
        return parts


call_texts = once_for_each(CallTexts)


def tool_request(
    session: Session,
    messages: Messages,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any] = "auto",
    /,
    *,
    max_calls: int = 1,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    max_tokens: int = MAX_TOKENS,
    method: str = "call_tool",
    words: Any = None,
    close_reasoning: bool = True,
    with_steps: bool = False,
    ends_at_limit: bool = False,
    **more: Any,
) -> tuple[Request, ToolTurn]:
    """Return a request for tool calls, and the turn that a run of it writes.

    The parameters are as for :meth:`~eliza_ffi.Model.call_tools` and :class:`ToolTurn`.

    `words` limits an answer in words, like `schema` in :meth:`~eliza_ffi.Model.generate`; None = no
    limit. `close_reasoning` is as in :meth:`~eliza_ffi.chat.ChatTokenizer.tokens`.
    """
    check_keywords(method, more, SETTINGS, OWN)
    max_calls = check_whole("max_calls", max_calls, 1)
    max_tokens = check_whole("max_tokens", max_tokens, 0)
    if chat_template_kwargs is not None:
        check_kind("chat_template_kwargs", chat_template_kwargs, Mapping, "a mapping or None")
    for name in chat_template_kwargs or ():
        check_text("a name in chat_template_kwargs", name)
        if name in RENDERED_WITH:
            raise InvalidArgumentError(
                f"chat_template_kwargs must not contain {name!r}, which {method} sets itself"
            )
    texts = call_texts(session)
    with naming("tools"):
        listed = texts.listed(tools)
    offered, may_answer = _offered(tool_choice, listed)
    extra = {**(chat_template_kwargs or {}), "close_reasoning": close_reasoning}
    with naming("messages"):
        talk = _with_mappings(messages)
        format = session.call_format(extra)
        prompt, definitions = tool_messages(format, talk, listed)
        tokens = _turn_start(format, texts, _prompt(session, prompt, definitions, extra))
    settings = {**more, "max_tokens": max_tokens, "method": method}
    request = generate_request(session, tokens, **settings)
    n_earlier = 0
    if format.index_continues:
        n_earlier = sum(len(message.get("tool_calls") or ()) for message in talk)
    turn = ToolTurn(
        session=session,
        format=format,
        texts=texts,
        tools=offered,
        may_answer=may_answer,
        max_calls=max_calls if format.parallel else 1,
        n_earlier_calls=n_earlier,
        words=None
        if words is None
        else generate_request(session, tokens, schema=words, **settings),
        with_steps=with_steps,
        ends_at_limit=ends_at_limit,
    )
    with naming("tools"):
        for tool in offered:  # reject unsupported schemas before anything runs
            texts.check(format, tool)
        for tool in listed:
            _ = tool.schema
    return request, turn


def conversation_tokens(
    session: Session, messages: Messages, chat_template_kwargs: Mapping[str, Any], **ending: bool
) -> list[int]:
    """Return the prompt of a conversation that may contain tool calls, without offering tools.

    `ending` may have ``add_generation_prompt``, ``close_reasoning`` or ``continue_final_message``,
    as in :meth:`~eliza_ffi.chat.ChatTokenizer.tokens`.
    """
    with naming("messages"):
        talk = _with_mappings(messages)
        if any(message.get("tool_calls") or message.get("role") == "tool" for message in talk):
            talk = list(messages_with_calls(session.call_format(chat_template_kwargs), talk))
        return session.chat().tokens(talk, **{**chat_template_kwargs, **ending})


def _with_mappings(messages: Messages) -> list[Mapping[str, Any]]:
    """Return messages in which the arguments of tool calls are mappings, not strings of JSON.

    Templates write mappings in the model's call format, but some write a string as a JSON string.
    """
    check_messages(messages)
    talk = list(messages)
    for i, message in enumerate(talk):
        if not (given := message.get("tool_calls")):
            continue
        name, calls = f"the tool_calls of message {i}", []
        for call in check_several(name, given, "a list of tool calls"):
            try:
                arguments = dict(read_call(call).arguments)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{name}: {error}") from None
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
        talk[i] = {**message, "tool_calls": calls}
    return talk


def _prompt(
    session: Session,
    messages: Messages,
    tools: list[dict[str, Any]] | None,
    chat_template_kwargs: Mapping[str, Any],
) -> list[int]:
    """Return the tokens of a conversation with tools."""
    try:
        return session.chat().tokens(messages, tools=tools, **chat_template_kwargs)
    except ChatTemplateError:
        if tools is None:
            raise
        described = [_described(tool) for tool in tools]
        if described == tools:
            raise
        return session.chat().tokens(messages, tools=described, **chat_template_kwargs)


def _described(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Add an empty description to parameters without one, because some templates need it."""
    function = tool["function"]
    parameters = function["parameters"]
    properties = {
        name: {"description": "", **each} if isinstance(each, Mapping) else each
        for name, each in parameters["properties"].items()
    }
    parameters = {**parameters, "properties": properties}
    return {**tool, "function": {**function, "parameters": parameters}}


def _offered(choice: Any, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], bool]:
    """Return the tools that `choice` allows, and whether the model may answer in words."""
    if isinstance(choice, str) and choice in ("auto", "required"):
        return tools, choice == "auto"
    name = choice
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        expected = '"auto", "required", a tool\'s name or {"type": "function", "function": ...}'
        raise wrong("tool_choice", expected, choice)
    named = tuple(tool for tool in tools if tool.name == name)
    if not named:
        names = [tool.name for tool in tools]
        hint = did_you_mean(name, {*names, "auto", "required"})
        if name == "none":
            hint = "for an answer without tools use generate()"
        expected = f'"auto", "required" or the name of a tool ({", ".join(names):.200})'
        raise wrong("tool_choice", expected, name, hint)
    return named, False


def _turn_start(format: CallFormat, texts: CallTexts, tokens: Sequence[int]) -> list[int]:
    """Return the prompt's tokens up to the point where calls and answers in words differ."""
    kept, taken = list(tokens), b""
    cut = format.cut.encode()
    while len(taken) < len(cut):
        taken = texts.text([kept.pop()]) + taken
    if not taken.endswith(cut):  # some templates have no generation prompt after a tool result
        return list(tokens)
    between = taken[: len(taken) - len(cut)].decode() + format.lead
    return [*kept, *texts.read(between)] if between else kept


# ---- Turns -------------------------------------------------------------------------------------


class Beginning:
    """Token masks that restrict only the first token of an answer: it is not in `forbidden`."""

    has_ended = False

    def __init__(self, n_words: int, forbidden: Iterable[int] = ()) -> None:
        self.n_words = n_words
        self._forbidden = forbidden

    def start(self) -> Beginning:
        return Beginning(self.n_words, self._forbidden)

    def forced(self) -> Sequence[int]:
        return ()

    def mask(self) -> NDArray[np.uint32]:
        mask = np.full(self.n_words, 0xFFFFFFFF, np.uint32)
        for token in self._forbidden:
            mask[token // 32] &= ~np.uint32(1 << token % 32)
        return mask

    def accept(self, token: int) -> None:
        self._forbidden = ()


class _LimitReached(Exception):  # noqa: N818 - an outcome
    """A call does not fit into `max_tokens`."""


@dataclass(frozen=True)
class _Start:
    """The beginning of a call of one tool, up to its arguments.

    `rows` are its possible token sequences. If the arguments follow the name directly, each of them
    also contains the beginning of the arguments, which distinguishes the name from a longer name
    that begins with it.
    """

    tool: Tool
    text: str
    tokens: Row
    rows: tuple[Row, ...]
    opening: str  # the end of `text`, which each call begins with
    near: str  # the text after the arguments, up to a control token
    after: str  # the rest of the text after the arguments


@dataclass(eq=False)
class ToolTurn:
    """The turn of a model that may call tools."""

    session: Session
    format: CallFormat
    texts: CallTexts
    tools: tuple[Tool, ...]
    may_answer: bool  # in words
    max_calls: int
    n_earlier_calls: int  # in the conversation, if the format counts them
    words: Request | None  # a limited answer in words
    # Whether to yield the pieces of calls, the finished calls, and the pieces of an answer in
    # words, before the result.
    with_steps: bool
    # Whether `max_tokens` limits the whole turn, and a call that does not fit ends the turn without
    # an error.
    ends_at_limit: bool

    def steps(
        self, run: Run[Any], request: Request
    ) -> Generator[str | CallPiece | ToolCall | ToolCalls | TextAnswer, None, None]:
        """Yield the steps of a run; the last one is the result: calls, or an answer in words."""
        self._run, self._binding, self._request = run, run.binding, request
        self._n_prompt = len(request.prompt_tokens)
        self._tokens = list(request.prompt_tokens)
        self._n_read = 0  # how many of the tokens the stream has
        self._stats: StreamStats | None = None
        sampling = None if request.sampling is None else request.sampling.to_json()
        with run.opened(request, None, sampling) as self._stream:
            found: Any = yield from self._calls()
            result: ToolCalls | TextAnswer | None = None
            if isinstance(found, ToolCalls):
                result = found
            elif self.words is None or self.words.gbnf_grammar is None:
                result = yield from self._answer(found, self._stream)
        if result is None:  # a grammar needs a stream of its own
            result = yield from self._answer(found, None)
        yield result

    def _calls(
        self,
    ) -> Generator[CallPiece | ToolCall, None, ToolCalls | Mapping[str | None, float]]:
        """Write the calls; if the model makes none, return the probabilities instead."""
        calls = ToolCalls()
        calls.prompt_tokens = self._n_prompt
        try:
            while len(calls) < self.max_calls:
                call = yield from self._call(len(calls))
                if not isinstance(call, ToolCall):
                    if not calls:
                        return call
                    break
                calls.append(call)
                if self.with_steps:
                    yield call
        except _LimitReached:
            calls.is_truncated = True
        stats = self._stats or self._binding.stats(self._stream)
        calls.cached_tokens = min(stats.prompt_tokens_reused, self._n_prompt)
        calls.generated_tokens = self._n_written
        return calls

    @property
    def _n_written(self) -> int:
        """The number of tokens of the calls so far."""
        return len(self._tokens) - self._n_prompt

    def _append(self) -> int:
        """Append the tokens to the stream that it has not read; return their number."""
        unread = self._tokens[self._n_read :]
        self._binding.append(self._stream, unread)
        self._n_read += len(unread)
        return len(unread)

    # ---- One call ------------------------------------------------------------------------------

    def _call(
        self, index: int
    ) -> Generator[CallPiece, None, ToolCall | Mapping[str | None, float]]:
        """Write a call; if the model makes no call, return the probabilities instead."""
        id = "".join(_RANDOM.choices(string.ascii_letters + string.digits, k=ID_LENGTH))
        starts = self._starts(index, id)
        probabilities = self._probabilities(starts, index)
        if probabilities.get(None, 0.0) > 0.5:
            return probabilities
        name = max(starts, key=probabilities.__getitem__)
        arguments = yield from self._arguments(starts[name], id, tuple(starts.values()))
        return ToolCall(name, arguments, probabilities[name], probabilities, id)

    def _starts(self, index: int, id: str) -> dict[str, _Start]:
        """Return the beginnings of call number `index` of the turn, from 0, by the tools' names."""
        format = self.format
        number = format.first_index + self.n_earlier_calls + index
        own_id = id if Hole.ID in format.call else ""  # without it, equal calls begin equally
        start = self.texts.start
        return {tool.name: start(format, tool, index == 0, number, own_id) for tool in self.tools}

    def _probabilities(self, starts: Mapping[str, _Start], index: int) -> dict[str | None, float]:
        """Return the probability of each tool, and of no call (key None) if that is allowed."""
        format, texts = self.format, self.texts
        names: list[str | None] = [*starts]
        ways = [start.rows for start in starts.values()]
        begins: tuple[Row, ...] = ()  # how a call can begin
        if index or self.may_answer:
            names.append(None)
            if index == 0 and format.text_start:
                ways.append((texts.read(format.text_start),))
            else:
                begins = self._begins(ways, index)
        endings: list[tuple[Row, PreparedChoices]] = []
        if begins:
            endings.append(((), texts.labels(begins)))
        if len(ways) > 1:
            common, labels, way_of = texts.ways(tuple(ways))
            endings.append((common, labels))
        found = [1.0]
        if endings:
            n_tokens = self._append()
            for _, labels in endings:
                n_tokens += labels.longest
            score = partial(
                self._binding.score_endings,
                self._stream,
                endings,
                full=bool(begins),
                allowed_probability=False,
            )
            scores = self._run.call(score, n_tokens)
            if len(ways) > 1:
                likely = np.exp(scores[-1].constrained)
                found = np.bincount(way_of, likely, len(ways)).tolist()
            if begins:
                call = self._probability_of_call(scores[0].full)
                found = [*(call * each for each in found), 1 - call]
        return dict(zip(names, found, strict=True))

    def _begins(self, ways: Sequence[tuple[Row, ...]], index: int) -> tuple[Row, ...]:
        """Return the token sequences of the fixed text that begins a call."""
        format = self.format
        text = (format.between if index else format.open) + format.call_start[len(format.open) :]
        rows = [row for way in ways for row in way]
        common = tuple(commonprefix([self.texts.read(text), *rows]))
        return (common,) if common else tuple(dict.fromkeys(rows))

    def _probability_of_call(self, logprobs: Any) -> float:
        """Return the sum of the probabilities of the ways in which a call can begin."""
        return min(math.fsum(np.exp(logprobs).tolist()), 1.0)

    # ---- Arguments -----------------------------------------------------------------------------

    def _arguments(
        self, start: _Start, id: str, starts: tuple[_Start, ...]
    ) -> Generator[CallPiece, None, dict[str, Any]]:
        """Write the rest of a call, and return its arguments."""
        request, texts, tool = self._request, self.texts, start.tool
        fixed, before = texts.fixed(start, starts)
        format, near = self.format, start.near
        most = request.max_tokens
        if self.ends_at_limit and most:
            most -= self._n_written + len(fixed)
            if most < 1:
                raise _LimitReached
        self._tokens += fixed
        n_new = self._append()
        if not n_new:  # the stream counts the tokens of an answer from the last prompt on
            self._binding.reset_keep(self._stream, len(self._tokens))
            self._run.check()
        if n_new >= LONG_CALL:
            self._run.call(partial(self._binding.decode, self._stream), n_new)

        def value(text: str) -> dict[str, Any]:
            arguments = text.removeprefix(before)
            if isinstance(format.arguments, Json):
                arguments = arguments.removesuffix(near)
            else:
                call = start.opening + arguments + start.after
                (read,) = parse_call(replace(format, open="", close=""), call, [tool])
                arguments = json.dumps(read.arguments)
            valid: dict[str, Any] = checked_value(tool.schema, arguments)
            return valid

        masks = self.session.guidance().masks(texts.grammar(format, tool.schema, before, near))
        args = replace(request, max_tokens=most, constraint=masks, stop=())
        piece = partial(CallPiece, id, tool.name)
        pieces, decoder = None, codecs.getincrementaldecoder("utf-8")("replace")
        if self.with_steps:
            pieces = CallPieces(format, tool.parameters, before, near)
            yield piece("")

        def piece_of(step: StreamStep) -> CallPiece | None:
            text = pieces.push(decoder.decode(texts.text(step.tokens))) if pieces else ""
            return piece(text) if text else None

        result = yield from self._written(args, self._stream, piece_of)
        self._stats = result.stats
        result.text = texts.text(result.tokens).decode("utf-8", "replace")
        self._n_read += len(result.tokens)
        try:
            answer = whole_answer(result)
        except FillError as error:
            if result.finish_reason != "length":
                raise
            if self.ends_at_limit:
                self._tokens += result.tokens
                raise _LimitReached from None
            raise FillError(
                f"the call of {tool.name!r} has not ended within max_tokens="
                f"{request.max_tokens}: raise max_tokens, or limit the strings and "
                "lists of the tool's schema",
                error.partial,
            ) from None
        arguments = valid_value(answer, value)
        self._tokens += [*result.tokens, *texts.read(start.after)]
        if pieces is not None:
            yield piece(pieces.finish(arguments))
        return arguments

    def _written(
        self, args: Request, stream: Any, piece_of: Callable[[StreamStep], Any]
    ) -> Generator[Any, None, Generation]:
        """Generate text, and return the generation; yield the steps' pieces if they are wanted."""
        at_once = not self.with_steps
        writing = Generation(self._run, args, self.session.warn_once, at_once=at_once)
        with closing(writing.steps(stream)) as steps:
            for step in steps:
                if isinstance(step, StreamStep) and (piece := piece_of(step)):
                    yield piece
        return writing

    # ---- Words ---------------------------------------------------------------------------------

    def _answer(
        self, probabilities: Mapping[str | None, float], stream: Any
    ) -> Generator[str, None, TextAnswer]:
        """Write an answer in words, and return it; yield its pieces if the caller wants them."""
        format, texts = self.format, self.texts
        args = self.words or self._request
        if format.text_start:
            self._tokens += texts.read(format.text_start)
        elif self.words is None:
            begin = format.call_start
            calls = {texts.read(begin[:n])[0] for n in range(1, len(begin) + 1)}
            args = replace(args, constraint=Beginning(texts.vocabulary.n_words, calls))
        args = replace(args, prompt_tokens=self._tokens)
        if stream is not None:
            self._append()
        writing = yield from self._written(args, stream, attrgetter("text"))
        found = generation_of(self.session, writing)
        n_reused = found.stats.prompt_tokens_reused if found.stats else 0
        return TextAnswer(
            **vars(found),
            probabilities=probabilities,
            cached_tokens=min(n_reused, self._n_prompt),
        )


def _decided(row: Row, others: Sequence[Row]) -> Row:
    """Return the shortest beginning of a row that no other row shares, or else the whole row."""
    n_common = max((len(commonprefix([row, other])) for other in others), default=-1)
    return row[: n_common + 1]


def _decided_ways(ways: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Apply :func:`_decided` to each row of each way, with the rows of all other ways.

    In lexicographic order, a row shares most with the nearest row of another way, before or after.
    """
    ordered = sorted((row, i) for i, way in enumerate(ways) for row in way)
    runs = [list(run) for _, run in itertools.groupby(ordered, key=lambda each: each[1])]
    n_decided = dict.fromkeys(ordered, 0)
    for before, after in itertools.pairwise(runs):
        for run, neighbour in ((before, after[0]), (after, before[-1])):
            for each in run:
                n_decided[each] = max(n_decided[each], len(_decided(each[0], [neighbour[0]])))
    return [[row[: n_decided[row, i]] for row in way] for i, way in enumerate(ways)]
