"""Tool calls: choose the tool, then generate its arguments.

A call is written in the model's own format, with up to three requests that share a slot:

1. Does the model call a tool? The answer is the probability of the fixed text that begins a call.
   If the format also has fixed text that begins an answer in words, the model chooses between the
   two texts.
2. Which tool? The model chooses between the names. Each name is tokenized together with the text
   around it. Only the first tokens are scored: as many as distinguish the name from all others.
3. Which arguments? They are generated under token masks of the tool's schema. The fixed text around
   them is part of the grammar, because one token may span fixed text and arguments.

Each request begins with the tokens of the previous request, which are already in the slot.
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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from .._lazy import lazy_property, once_for_each
from ..chat.call_format import CallFormat, Hole, fill_pieces
from ..chat.call_grammar import CallGrammar, call_grammar, first_texts
from ..chat.call_pieces import CallPieces
from ..chat.call_reader import parse_call
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
from ..library.protocol import STOP_AT_LEAF, TRIE_BEST_LEAF, StreamStep
from ..sampling.params import Sampling
from ..structured.shape import Shape
from ..structured.token_texts import continued_tokens
from ..structured.validation import schema_validator
from .generation import Generation
from .options import CacheOptions
from .reading import Reading
from .requests import MAX_TOKENS, GenerationRequest, check_keywords, generate_request
from .results import GenerationResult, RunResult, generation_of
from .run import Run

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

ID_LENGTH = 9  # letters and digits, because Mistral's templates reject other ids


@dataclass(frozen=True)
class ToolCall:
    """A tool call of the model.

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

    Attributes
    ----------
    probabilities : mapping
        From each tool's name to its probability. The key None stands for an answer in words.
    cached_tokens : int
        The number of prompt tokens that were reused from the KV cache of earlier requests.
    reasoning : str or None
        What the model wrote before the answer; None without ``think=``.
    """

    probabilities: Mapping[str | None, float] | None = None
    cached_tokens: int = 0
    reasoning: str | None = None

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


@dataclass(frozen=True, eq=False)
class ToolRequest:
    """A checked request for tool calls, with its prompt."""

    session: Session
    format: CallFormat
    tools: tuple[Tool, ...]  # that the model may call
    may_answer: bool  # in words
    max_calls: int
    earlier_calls: int  # in the conversation, if the format numbers calls across turns
    generation: GenerationRequest  # its prompt ends where a call or an answer in words begins
    texts: CallTexts
    words: GenerationRequest | None = None  # for an answer in words with a limit, such as a schema


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

    def text(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of tokens, with control tokens spelled out."""
        return b"".join(map(self.vocabulary.texts.__getitem__, tokens))

    def _read(self, text: str) -> Row:
        """Return the tokens of fixed text that follows other text."""
        session = self._session
        return tuple(continued_tokens(lambda text: session.tokenize(text, False, True), text))

    def _grammar(self, format: CallFormat, schema: str, before: str, after: str) -> CallGrammar:
        """Return the grammar of the arguments and the fixed text around them."""
        return call_grammar(format, json.loads(schema), before, after, self.split)

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
    **more: Any,
) -> ToolRequest:
    """Return a request for tool calls; parameters as :meth:`~eliza_ffi.Model.call_tools`.

    `words` limits an answer in words, as `schema` does in :meth:`~eliza_ffi.Model.generate`; None =
    no limit. `close_reasoning` is as in :meth:`~eliza_ffi.chat.ChatTokenizer.tokens`.
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
    with naming("tools"):
        listed = tuple(read_tools(tools))
    with naming("tool_choice"):
        offered, may_answer = _offered(tool_choice, listed)
    talk = _with_mappings(messages)
    extra = {**(chat_template_kwargs or {}), "close_reasoning": close_reasoning}
    with naming("messages"):
        format = session.call_format(extra)
        prompt, definitions = tool_messages(format, talk, listed)
        tokens = _prompt(session, prompt, definitions, extra)
    generation = generate_request(session, tokens, max_tokens=max_tokens, method=method, **more)
    shaped = None
    if words is not None:
        settings = {**more, "max_tokens": max_tokens, "schema": words}
        shaped = generate_request(session, tokens, method=method, **settings)
    earlier = sum(len(message.get("tool_calls") or ()) for message in talk)
    request = ToolRequest(
        session=session,
        format=format,
        tools=offered,
        may_answer=may_answer,
        max_calls=max_calls if format.parallel else 1,
        earlier_calls=earlier if format.index_continues else 0,
        generation=generation,
        texts=call_texts(session),
        words=shaped,
    )
    for tool in listed:  # reject unsupported schemas before anything runs
        with naming("tools"), _named(tool):
            schema = tool.schema
            if tool in offered:
                request.texts.grammar(format, schema, "", "")
    start = replace(generation, prompt_tokens=_turn_start(request, tokens))
    return replace(request, generation=start)


def conversation_tokens(
    session: Session, messages: Messages, chat_template_kwargs: Mapping[str, Any], **ending: bool
) -> list[int]:
    """Return the prompt of a conversation that may contain tool calls, without offering tools.

    `ending` may have ``add_generation_prompt``, ``close_reasoning`` or ``continue_final_message``,
    as in :meth:`~eliza_ffi.chat.ChatTokenizer.tokens`.
    """
    talk = _with_mappings(messages)
    with naming("messages"):
        if any(message.get("tool_calls") or message.get("role") == "tool" for message in talk):
            talk = list(messages_with_calls(session.call_format(chat_template_kwargs), talk))
        return session.chat().tokens(talk, **{**chat_template_kwargs, **ending})


@naming("messages")
def _with_mappings(messages: Messages) -> list[Mapping[str, Any]]:
    """Return messages in which the arguments of tool calls are mappings, not strings of JSON.

    Templates write mappings in the model's call format, but some write a string as a JSON string.
    """
    check_messages(messages)
    talk = list(messages)
    for i, message in enumerate(talk):
        name, calls = f"the tool_calls of message {i}", []
        given = message.get("tool_calls") or ()
        for call in check_several(name, given, "a list of tool calls"):
            try:
                arguments = dict(read_call(call).arguments)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{name}: {error}") from None
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
        if calls:
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


@contextmanager
def _named(tool: Tool) -> Iterator[None]:
    """Name the tool in errors of its schema."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"the parameters of tool {tool.name!r}: {error}") from error


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
        raise InvalidArgumentError(
            f'tool_choice must be "auto", "required" or the name of a tool '
            f"({', '.join(names):.200}), got {name!r:.80}" + (f"; {hint}" if hint else "")
        )
    return named, False


def _turn_start(request: ToolRequest, tokens: Sequence[int]) -> list[int]:
    """Return the prompt's tokens up to the point where calls and answers in words differ."""
    format, kept, taken = request.format, list(tokens), b""
    cut = format.cut.encode()
    while len(taken) < len(cut):
        taken = request.texts.text([kept.pop()]) + taken
    if not taken.endswith(cut):  # some templates have no generation prompt after a tool result
        return list(tokens)
    between = taken[: len(taken) - len(cut)].decode() + format.lead
    return [*kept, *request.texts.read(between)] if between else kept


def _grammar(request: ToolRequest, tool: Tool, before: str, after: str) -> Any:
    """Return token masks for a call's arguments and the fixed text around them."""
    made = request.texts.grammar(request.format, tool.schema, before, after)
    return request.session.guidance().lark(
        made.lark, json_after=made.json_after, max_digits=made.max_digits, plan=made.plan
    )


# ---- Turns -------------------------------------------------------------------------------------


class Beginning:
    """Token masks that restrict only how an answer begins.

    The answer begins with the tokens `forced`, or with a token that is not in `forbidden`.
    """

    has_ended = False

    def __init__(
        self, n_words: int, *, forced: Sequence[int] = (), forbidden: Iterable[int] = ()
    ) -> None:
        self.n_words = n_words
        self._forced = forced
        self._forbidden = forbidden

    def start(self) -> Beginning:
        return Beginning(self.n_words, forced=self._forced, forbidden=self._forbidden)

    def forced(self) -> Sequence[int]:
        return self._forced

    def mask(self) -> NDArray[np.uint32]:
        mask = np.full(self.n_words, 0xFFFFFFFF, np.uint32)
        for token in self._forbidden:
            mask[token // 32] &= ~np.uint32(1 << token % 32)
        return mask

    def accept(self, token: int) -> None:
        self._forced = self._forced[1:]
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


class ToolTurn:
    """The turn of a model that may call tools, as a part of `run`.

    With `with_steps`, it yields the pieces of calls, the finished calls, and the pieces of an
    answer in words, before the result. With `ends_at_limit`, `max_tokens` limits the whole turn,
    and a call that does not fit ends the turn without an error.
    """

    def __init__(
        self,
        run: Run[Any],
        request: ToolRequest,
        with_steps: bool = False,
        ends_at_limit: bool = False,
    ) -> None:
        self.request = request
        self._run = run
        self._with_steps = with_steps
        self._ends_at_limit = ends_at_limit
        self._n_cached: int | None = None  # of the first generation
        self._tokens = list(request.generation.prompt_tokens)
        self._ids = random.SystemRandom()

    def steps(self) -> Generator[str | CallPiece | ToolCall | ToolCalls | TextAnswer, None, None]:
        """Yield the steps; the last one is the result: the calls, or an answer in words."""
        calls = ToolCalls()
        try:
            for index in range(self.request.max_calls):
                call = yield from self._call(index)
                if not isinstance(call, ToolCall):
                    if not calls:
                        yield from self._words(call)
                        return
                    break
                calls.append(call)
                if self._with_steps:
                    yield call
        except _LimitReached:
            calls.is_truncated = True
        calls.prompt_tokens = len(self.request.generation.prompt_tokens)
        calls.cached_tokens = self._n_cached or 0
        calls.generated_tokens = self._n_written
        yield calls

    @property
    def _n_written(self) -> int:
        """The number of tokens of the calls so far."""
        return len(self._tokens) - len(self.request.generation.prompt_tokens)

    # ---- One call ------------------------------------------------------------------------------

    def _call(
        self, index: int
    ) -> Generator[CallPiece, None, ToolCall | Mapping[str | None, float]]:
        """Write a call; if the model makes no call, return the probabilities instead."""
        request = self.request
        id = "".join(self._ids.choices(string.ascii_letters + string.digits, k=ID_LENGTH))
        starts = [self._start(tool, index, id) for tool in request.tools]
        probabilities = self._probabilities(starts, index)
        if probabilities.get(None, 0.0) > 0.5:
            return probabilities
        start = max(starts, key=lambda start: probabilities[start.tool.name])
        arguments = yield from self._arguments(start, index, id, starts)
        name = start.tool.name
        return ToolCall(name, arguments, probabilities[name], probabilities, id)

    def _probabilities(self, starts: Sequence[_Start], index: int) -> dict[str | None, float]:
        """Return the probability of each tool, and of no call (key None) if that is allowed."""
        names: list[str | None] = [start.tool.name for start in starts]
        ways = [start.rows for start in starts]
        if index == 0 and not self.request.may_answer:
            return dict(zip(names, self._choose(ways), strict=True))
        names.append(None)
        if index == 0 and (text_start := self.request.format.text_start):
            ways.append((self.request.texts.read(text_start),))
            return dict(zip(names, self._choose(ways), strict=True))
        call = self._probability_of_call(starts, index)
        found = [*(call * each for each in self._choose(ways)), 1 - call]
        return dict(zip(names, found, strict=True))

    def _start(self, tool: Tool, index: int, id: str) -> _Start:
        """Return the beginning of a call of a tool."""
        format = self.request.format
        place = format.call.index(Hole.ARGUMENTS)
        text = self._before(index) + self._fill(format.call[:place], tool, index, id)
        following = [""]
        if format.call[place - 1] is Hole.NAME:  # one name may begin with another
            after = self._fill(format.call[place + 1 :], tool, index, id)
            following = first_texts(format, tool.parameters, after)
        read = self.request.texts.read
        return _Start(tool, text, read(text), tuple([read(text + each) for each in following]))

    def _before(self, index: int) -> str:
        """Return the fixed text before call number `index` of the turn, from 0."""
        return self.request.format.between if index else self.request.format.open

    def _fill(self, pieces: Any, tool: Tool, index: int, id: str) -> str:
        number = self.request.format.first_index + self.request.earlier_calls + index
        return fill_pieces(pieces, {Hole.NAME: tool.name, Hole.ID: id, Hole.INDEX: str(number)})

    def _probability_of_call(self, starts: Sequence[_Start], index: int) -> float:
        """Return the probability of the fixed text that begins a call."""
        format = self.request.format
        text = self._before(index) + format.call_start.removeprefix(format.open)
        rows = [row for start in starts for row in start.rows]
        common = tuple(commonprefix([self.request.texts.read(text), *rows]))
        return min(math.fsum(map(self._probability, [common] if common else rows)), 1.0)

    def _probability(self, tokens: Sequence[int]) -> float:
        """Return the probability that the model continues with these tokens."""
        masks = Beginning(self.request.texts.vocabulary.n_words, forced=tokens)
        plain = GenerationRequest(
            prompt_tokens=self._tokens,
            **self._stream,
            max_tokens=len(tokens),
            constraint=masks,
            logprobs=0,
        )
        result = self._generate(plain)
        assert result.logprobs is not None
        return math.exp(math.fsum(row[0]["logprob"] for row in result.logprobs))

    def _choose(self, ways: Sequence[Sequence[Row]]) -> list[float]:
        """Return the probability of each of several continuations.

        Each item of `ways` stands for one continuation, and lists the token sequences with which
        this continuation can begin.
        """
        if len(ways) == 1:
            return [1.0]
        decided = [dict.fromkeys(way) for way in _decided_ways(ways)]
        n_common = len(commonprefix([row for way in decided for row in way]))
        way_of = {row[n_common:]: i for i, way in enumerate(decided) for row in way}
        leaves = tuple(TokenTreeLeaf(str(i), row) for i, row in enumerate(way_of))
        first = next(iter(decided[0]))
        payload = TokenTreePayload("", (TokenTreeDescriptor("tools", leaves),))
        args = GenerationRequest(
            prompt_tokens=[*self._tokens, *first[:n_common]],
            **self._stream,
            constraint=payload,
            choice_mode=TRIE_BEST_LEAF | STOP_AT_LEAF,
            score_choices=True,
        )
        result = self._generate(args)
        assert result.leaf_logprobs is not None
        probabilities = [0.0] * len(ways)
        for leaf, logprob in zip(payload.leaves(), result.leaf_logprobs, strict=True):
            probabilities[way_of[leaf.tokens]] += math.exp(logprob)
        return probabilities

    # ---- Arguments -----------------------------------------------------------------------------

    def _arguments(
        self, start: _Start, index: int, id: str, starts: Sequence[_Start]
    ) -> Generator[CallPiece, None, dict[str, Any]]:
        """Write the rest of a call, and return its arguments."""
        request = self.request
        others = [row for each in starts if each is not start for row in each.rows]
        fixed, before = self._fixed_tokens(start, len(_decided(start.tokens, others)))
        format = request.format
        place = format.call.index(Hole.ARGUMENTS)
        after = self._fill(format.call[place + 1 :], start.tool, index, id)
        first = next(iter(request.texts.split(after)), "")
        near = first if isinstance(first, str) else ""
        most = request.generation.max_tokens
        if self._ends_at_limit and most:
            most -= self._n_written + len(fixed)
            if most < 1:
                raise _LimitReached
        self._tokens += fixed
        opening = start.text.removeprefix(self._before(index))
        validate = schema_validator(start.tool.schema)

        def value(text: str) -> dict[str, Any]:
            call = opening + text.removeprefix(before) + after.removeprefix(near)
            alone = replace(format, open="", close="")
            (read,) = parse_call(alone, call, [start.tool])
            valid: dict[str, Any] = validate(json.dumps(read.arguments))
            return valid

        masks = _grammar(request, start.tool, before, near)
        shape = Shape(lambda _: masks, value, None)
        args = replace(
            request.generation,
            prompt_tokens=self._tokens,
            max_tokens=most,
            constraint=masks,
            stop=(),
        )
        pieces = CallPieces(format, start.tool.parameters, before, near)
        piece = partial(CallPiece, id, start.tool.name)
        result = yield from self._written(args, pieces, piece)
        text = request.texts.text(result.tokens).decode("utf-8", "replace")
        try:
            (filled,) = Reading(shape, False).take(replace(result, text=text))
        except FillError as error:
            if result.finish_reason != "length":
                raise
            if self._ends_at_limit:
                self._tokens += result.tokens
                raise _LimitReached from None
            raise FillError(
                f"the call of {start.tool.name!r} has not ended within max_tokens="
                f"{request.generation.max_tokens}: raise max_tokens, or limit the strings and "
                "lists of the tool's schema",
                error.partial,
            ) from None
        self._tokens += [*result.tokens, *request.texts.read(after.removeprefix(near))]
        arguments: dict[str, Any] = filled.value
        if self._with_steps:
            yield piece(pieces.finish(arguments))
        return arguments

    def _written(
        self, args: GenerationRequest, pieces: CallPieces, piece: Callable[[str], CallPiece]
    ) -> Generator[CallPiece, None, RunResult]:
        """Write arguments, and return the result; yield their pieces if the caller wants them."""
        if not self._with_steps:
            return self._generate(args)
        yield piece("")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for step in self._steps(args):
            if isinstance(step, RunResult):
                return step
            text = pieces.push(decoder.decode(self.request.texts.text(step.tokens)))
            if text:
                yield piece(text)
        raise AssertionError("the last step is the result")

    def _fixed_tokens(self, start: _Start, n_decided: int) -> tuple[list[int], str]:
        """Return the fixed tokens before the arguments, and the text after these tokens.

        Control tokens and the tokens that the choice of the tool has decided are fixed. The plain
        text after them is left to the grammar, so that a token can span that text and the
        arguments.
        """
        texts, tokens = self.request.texts, start.tokens
        controls = texts.vocabulary.controls
        n_fixed = max([n_decided, *(i for i, token in enumerate(tokens, 1) if token in controls)])
        for n in range(n_fixed, len(tokens)):
            rest = start.text.encode()[len(texts.text(tokens[:n])) :]
            with suppress(UnicodeDecodeError):
                return list(tokens[:n]), rest.decode()
        return list(tokens), ""

    # ---- Words ---------------------------------------------------------------------------------

    def _words(
        self, probabilities: Mapping[str | None, float]
    ) -> Generator[str | TextAnswer, None, None]:
        """Write an answer in words; yield its pieces if the caller wants them, and the result."""
        request = self.request
        args = replace(request.words or request.generation, prompt_tokens=self._tokens)
        if request.format.text_start:
            tokens = [*self._tokens, *request.texts.read(request.format.text_start)]
            args = replace(args, prompt_tokens=tokens)
        elif request.words is None:
            begin = request.format.call_start
            calls = {request.texts.read(begin[:n])[0] for n in range(1, len(begin) + 1)}
            masks = Beginning(request.texts.vocabulary.n_words, forbidden=calls)
            args = replace(args, constraint=masks)
        for step in self._steps(args):
            if isinstance(step, RunResult):
                found = generation_of(request.session, step)
                known = {field.name: getattr(found, field.name) for field in fields(found)}
                known["cached_tokens"] = self._n_cached or 0
                yield TextAnswer(**known, probabilities=probabilities)
            elif self._with_steps and step.text:
                yield step.text

    # ---- Generations ---------------------------------------------------------------------------

    @lazy_property
    def _stream(self) -> dict[str, Any]:
        """The slot and its settings."""
        names = ("slot_id", "prompt_cache_key", "n_gpu_layers", "cache_type_k", "cache_type_v")
        return {name: getattr(self.request.generation, name) for name in names}

    def _generate(self, args: GenerationRequest) -> RunResult:
        *_, result = self._steps(args)
        assert isinstance(result, RunResult)
        return result

    def _steps(self, args: GenerationRequest) -> Generator[StreamStep | RunResult, None, None]:
        """Yield the steps of a generation, and its result."""
        warn = self.request.session.warn_once
        writing = Generation(self._run, args, warn, at_once=not self._with_steps)
        with closing(writing.steps()) as steps:
            for step in steps:
                if isinstance(step, RunResult) and self._n_cached is None:
                    # This prompt may also contain the first tokens of a call.
                    n_reused = step.stats.prompt_tokens_reused if step.stats else 0
                    self._n_cached = min(n_reused, len(self.request.generation.prompt_tokens))
                yield step


def _decided(row: Row, others: Sequence[Row]) -> Row:
    """Return the shortest beginning of a row that no other row shares, or else the whole row."""
    n_common = max((len(commonprefix([row, other])) for other in others), default=-1)
    return row[: n_common + 1]


def _decided_ways(ways: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Apply :func:`_decided` to each row of each way; the other rows are those of the other ways.

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
