"""AsyncModel does not block the event loop, and cancelled tasks free their slots."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest
from both_faces import check_cancelling_ends_calls

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.chat import ChatTemplate
from eliza_ffi.chat.tokens import ChatTokenizer
from eliza_ffi.choices.label_set import LabelSet
from eliza_ffi.decisions import Predicate
from eliza_ffi.elizaos import ActionSkeleton
from eliza_ffi.errors import ContextFullError, FillError, NativeFaultError
from eliza_ffi.evidence.deciding import DecisionPlan
from eliza_ffi.evidence.question_plan import QuestionPlan
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.session import tool_calls
from eliza_ffi.session.session import Session
from eliza_ffi.structured import PartialField
from eliza_ffi.structured import shape as shape_module
from eliza_ffi.structured.guidance import Guidance
from eliza_ffi.structured.token_texts import TokenTexts

# Both are too long for the context of the tests.
LONG = "the parcel did not come and nobody knows where it is\n" * 100
TALK = [{"role": ("user", "assistant")[i % 2], "content": f"message {i}"} for i in range(99)]
ACTIONS = [{"name": "REPLY"}, {"name": "IGNORE"}]
SKELETON = {"spans": [{"kind": "enum", "key": "k", "enumValues": ["yes", "no"]}]}
LABELS = [f"label {i}" for i in range(300)]
QUESTIONS = {"angry": Predicate("The writer is angry.")}
HELLO = [{"role": "user", "content": "hello"}]
KINDS = {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": KINDS}} for name in "xy"]
A_FILE = "there-is-no-such-file"


class Ticket(pydantic.BaseModel):
    kind: Literal["bug", "wish"]
    urgent: bool


SCHEMA = {
    "type": "object",
    "properties": {f"field{i}": {"type": "string", "enum": ["a", "b"]} for i in range(40)},
    "required": [f"field{i}" for i in range(40)],
    "additionalProperties": False,
}

Call = Callable[[AsyncModel], Coroutine[Any, Any, Any]]


async def read(steps: Any) -> list[Any]:
    async with aclosing(steps):
        return [step async for step in steps]


CALLS: dict[str, Call] = {
    "describe": lambda m: m.describe(),
    "tokenize": lambda m: m.tokenize(LONG),
    "prompt_tokens": lambda m: m.prompt_tokens(LONG),
    "hidden_states": lambda m: m.hidden_states("x"),
    "prompt_logprobs": lambda m: m.prompt_logprobs("x", 1),
    "detokenize": lambda m: m.detokenize([5] * 50_000),
    "vocabulary": lambda m: m.vocabulary(),
    "chat_template": lambda m: m.chat_template(),
    "chat_tokens": lambda m: m.chat_tokens(TALK),
    "embed": lambda m: m.embed(["a text", "another text"]),
    "end_of_turn": lambda m: m.end_of_turn(LONG, "<|im_end|>"),
    "generate": lambda m: m.generate(LONG, 1),
    "generate, messages": lambda m: m.generate(TALK, max_tokens=1),
    "generate, schema": lambda m: m.generate("x", 4, schema=SCHEMA),
    "generate, logprobs": lambda m: m.generate("x", 4, logprobs=8),
    "stream": lambda m: read(m.stream(LONG, 1)),
    "stream, schema": lambda m: read(m.stream("x", 4, schema=SCHEMA)),
    "generate_many": lambda m: m.generate_many([LONG, TALK], 1, return_exceptions=True),
    "generate_many, schema": lambda m: m.generate_many(["x", "y"], 4, schema=SCHEMA),
    "choose": lambda m: m.choose(LONG, ["yes", "no"]),
    "choose, labels": lambda m: m.choose("x", LABELS),
    "rank": lambda m: m.rank(LONG, LABELS),
    "rank_many": lambda m: m.rank_many([LONG, "x"], LABELS, return_exceptions=True),
    "choose_many": lambda m: m.choose_many([LONG, "x"], LABELS, return_exceptions=True),
    "prepare_labels": lambda m: m.prepare_labels(LABELS),
    "decide": lambda m: m.decide(LONG, QUESTIONS),
    "decide, messages": lambda m: m.decide(TALK, QUESTIONS),
    "decide, short": lambda m: m.decide("hello", QUESTIONS),
    "count": lambda m: m.count([LONG, "x"], QUESTIONS["angry"]),
    "decide_many": lambda m: m.decide_many([LONG, "x"], QUESTIONS, return_exceptions=True),
    "decision_prompts": lambda m: m.decision_prompts(LONG, QUESTIONS),
    "fill": lambda m: m.fill(LONG, SKELETON),
    "fill, class": lambda m: m.fill("x", Ticket),
    "fill, schema": lambda m: m.fill("x", SCHEMA),
    "fill_stream": lambda m: read(m.fill_stream("x", SCHEMA)),
    "fill_many": lambda m: m.fill_many([LONG, "x"], Ticket, return_exceptions=True),
    "fill, actions": lambda m: m.fill(LONG, ActionSkeleton(ACTIONS)),
    "call_tool": lambda m: m.call_tool([{"role": "user", "content": LONG}], TOOLS),
    "call_tool, short": lambda m: m.call_tool(HELLO, TOOLS, "required"),
    "call_tools": lambda m: m.call_tools(HELLO, TOOLS, max_calls=2, max_tokens=4),
    "save_prompt_cache": lambda m: m.save_prompt_cache(A_FILE, LONG),
    "load_prompt_cache": lambda m: m.load_prompt_cache(__file__),
}

HEAVY: list[tuple[Any, str]] = [
    (ChatTokenizer, "tokens"),
    (ChatTemplate, "render"),
    (LabelSet, "__init__"),
    (DecisionPlan, "__init__"),
    (QuestionPlan, "about"),
    (Guidance, "schema_text"),
    (Guidance, "masks"),
    (Session, "call_format"),
    (Session, "describe"),
    (Session, "detokenize"),
    (Session, "prompt_tokens"),
    (Session, "tokenize"),
    (TokenTexts, "of"),
    (tool_calls, "tool_request"),
    (tool_calls, "call_grammar"),
    (tool_calls, "parse_call"),
    (shape_module, "_schema_of_class"),
    (shape_module, "checked_schema"),
    (shape_module, "checked_value"),
]
"""Slow Python functions."""

NATIVE = (
    "choose",
    "decide",
    "embed_texts",
    "eot_score",
    "fill",
    "next",
    "prefill",
    "score_endings",
    "tokenize",
)
"""Slow calls of the library."""


@pytest.fixture(scope="module")
def model(library: Library) -> Iterator[Model]:
    with Model(library=library, n_ctx=512, n_slots=2, n_threads=1) as opened:
        yield opened


def test_every_method_has_an_example_call() -> None:
    named = {name.partition(",")[0] for name in CALLS}
    awaited = {
        name
        for name, found in vars(AsyncModel).items()
        if callable(found) and not name.startswith("_")
    }
    assert awaited - {"close", "rerank"} == named  # tests/model/test_rerank.py has a reranker


@pytest.mark.parametrize("name", CALLS)
def test_slow_functions_do_not_run_on_the_event_loop(
    model: Model, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    on_loop: list[str] = []
    loop_thread = threading.get_ident()

    def watch(owner: Any, name: str) -> None:
        heavy = getattr(owner, name)

        def noting(*arguments: Any, **more: Any) -> Any:
            if threading.get_ident() == loop_thread:
                on_loop.append(name)
            return heavy(*arguments, **more)

        is_bound = hasattr(heavy, "__self__")
        monkeypatch.setattr(owner, name, staticmethod(noting) if is_bound else noting)

    for owner, each in HEAVY:
        watch(owner, each)
    for each in NATIVE:
        watch(model.binding, each)
    model.session.choices.clear()

    async def story() -> None:
        # Many requests are too long for the context.
        with suppress(ContextFullError, FillError, NativeFaultError):
            await CALLS[name](AsyncModel.of(model))

    asyncio.run(story())
    assert on_loop == []


# ---- Cancelling --------------------------------------------------------------------------------


class Held:
    """A call of the library that blocks until `may_end` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, binding: Any, name: str) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False
        call = getattr(binding, name)

        def held(*arguments: Any, **more: Any) -> Any:
            self.has_begun.set()
            assert self.may_end.wait(60)
            try:
                return call(*arguments, **more)
            finally:
                self.has_ended = True

        monkeypatch.setattr(binding, name, held)


@pytest.fixture
def saved(model: Model, tmp_path: Path) -> Path:
    model.save_prompt_cache(tmp_path / "prompt", "hello")
    return tmp_path / "prompt"


CANCELLED: dict[str, tuple[str, Callable[[AsyncModel, Path], Coroutine[Any, Any, Any]]]] = {
    "embed": ("embed_texts", lambda m, _: m.embed(["a text", "another"])),
    "end_of_turn": ("eot_score", lambda m, _: m.end_of_turn("hello", "<|im_end|>")),
    "generate": ("prefill", lambda m, _: m.generate("hello", 4)),
    "choose": ("choose", lambda m, _: m.choose("hello", ["yes", "no"])),
    "rank": ("rank", lambda m, _: m.rank("hello", ["yes", "no"])),
    "decide": ("decide", lambda m, _: m.decide("hello", QUESTIONS)),
    "fill": ("fill", lambda m, _: m.fill("hello", SKELETON)),
    "fill, class": ("fill", lambda m, _: m.fill("hello", Ticket)),
    "call_tool": ("score_endings", lambda m, _: m.call_tool(HELLO, TOOLS, "required")),
    "call_tools": ("fill", lambda m, _: m.call_tools(HELLO, TOOLS, "required")),
    "plan": ("fill", lambda m, _: m.fill("hello", ActionSkeleton(ACTIONS))),
    "stream": ("prefill", lambda m, _: read(m.stream("hello", 4))),
    "save": ("save_slot", lambda m, path: m.save_prompt_cache(path, "hello")),
    "restore": ("restore_slot", lambda m, path: m.load_prompt_cache(path)),
}


@pytest.mark.parametrize("name", CANCELLED)
def test_a_cancelled_call_returns_when_its_slot_is_free(
    model: Model, monkeypatch: pytest.MonkeyPatch, saved: Path, name: str
) -> None:
    blocked, call = CANCELLED[name]
    held = Held(monkeypatch, model.binding, blocked)

    async def story() -> None:
        task = asyncio.ensure_future(call(AsyncModel.of(model), saved))
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        for _ in range(3):  # repeated cancels change nothing
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        held.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held.has_ended
        assert model.session.turns.n_running == 0

    asyncio.run(story())
    monkeypatch.undo()
    streams = [model.binding.open(model.session.ctx, StreamConfig()) for _ in range(2)]
    for stream in streams:
        model.binding.close(stream)


def test_a_call_cancelled_while_waiting_takes_no_slot(model: Model, saved: Path) -> None:
    async def story() -> None:
        face = AsyncModel.of(model)
        turns = model.session.turns
        async with AsyncExitStack() as slots:
            for _ in range(turns.n):
                await slots.enter_async_context(turns.one_async(None))
            tasks = [
                asyncio.ensure_future(call(face, saved))
                for name, (_, call) in CANCELLED.items()
                if name != "embed"  # embedding needs no slot
            ]
            while turns.n_waiting < len(tasks):
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in found)
        assert model.session.turns.n_running == 0

    asyncio.run(story())


def test_cancelling_stops_the_embedding_of_many_strings(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["some text"] * 100_000  # each call of the library gets up to 32 of them
    work = partial(AsyncModel.of(model).embed, texts)
    check_cancelling_ends_calls(monkeypatch, model.binding, "embed_texts", work)


# ---- Callbacks ---------------------------------------------------------------------------------


def test_asynchronous_callbacks_are_awaited(model: Model) -> None:
    received: dict[str, list[Any]] = {}

    def into(name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def callback(*arguments: Any) -> None:
            await asyncio.sleep(0)
            received.setdefault(name, []).append(arguments)

        return callback

    async def story() -> None:
        face = AsyncModel.of(model)
        await face.generate("x", 4, on_text=into("generate"))
        await face.choose("x", ["yes", "no"], on_text=into("choose"))
        await face.fill("x", SKELETON, on_span=into("fill"))
        await face.fill("x", Ticket, on_span=into("fill, class"))
        await face.fill("x", ActionSkeleton(ACTIONS), on_span=into("plan"))
        await face.generate_many(["x"], 4, on_text=into("chunk"), progress=into("texts"))
        await face.choose_many(["x"], ["yes", "no"], progress=into("choices"))
        await face.decide_many(["x"], QUESTIONS, progress=into("decisions"))
        await face.fill_many(["x"], SKELETON, progress=into("fills"))

    asyncio.run(story())
    assert list(received) == [
        *("generate", "choose", "fill", "fill, class", "plan"),
        *("chunk", "texts", "choices", "decisions", "fills"),
    ]
    assert [
        found.path for (found,) in received["fill, class"] if isinstance(found, PartialField)
    ] == [("kind",), ("urgent",)]
    assert (
        received["texts"]
        == received["choices"]
        == received["decisions"]
        == received["fills"]
        == [(1, 1)]
    )
    assert "".join(text for (text,) in received["chunk"]) == model.generate("x", 4).text


def test_an_exception_in_an_asynchronous_callback_ends_the_request(model: Model) -> None:
    async def fail(_: Any) -> None:
        raise KeyError("gone")

    async def story() -> None:
        with pytest.raises(KeyError, match="gone"):
            await AsyncModel.of(model).fill("x", SKELETON, on_span=fail)
        assert model.session.turns.n_running == 0

    asyncio.run(story())


def test_an_iterator_that_is_left_at_the_end_of_the_loop_logs_no_error(model: Model) -> None:
    logged: list[Any] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: logged.append(about))
        face = AsyncModel.of(model)
        numbers = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 50}
        for steps in (face.stream("x", 200), face.fill_stream("x", numbers)):
            async for _ in steps:
                break

    for _ in range(5):
        asyncio.run(story())
        gc.collect()
    assert not logged
    assert model.choose("x", ["a", "b"], timeout=10).value in ("a", "b")
