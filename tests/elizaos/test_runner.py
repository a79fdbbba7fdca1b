"""The order in which the runners call the library, checked with a binding that records calls."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from recording_binding import ALL, STEPS, RecordingBinding

from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.elizaos import (
    FfiStreamingGenerateArgs,
    FfiStreamingResult,
    FfiStreamingRunner,
    Usage,
)
from eliza_ffi.errors import (
    ContextFullError,
    InvalidArgumentError,
    NativeFaultError,
    TokenTrieError,
)
from eliza_ffi.library.protocol import STOP_AT_LEAF, StreamConfig, StreamStep
from eliza_ffi.session.tool_calls import Beginning

PAYLOAD = TokenTreePayload(
    "m",
    (
        TokenTreeDescriptor("action", (TokenTreeLeaf("A", (1, 2)),)),
        TokenTreeDescriptor("status", (TokenTreeLeaf("B", (3,)),)),
    ),
)
PULLED = ["open", "prefill", "set_token_trie", "next", "next", "next", "clear_token_trie", "close"]


def run(binding: RecordingBinding, args: FfiStreamingGenerateArgs) -> FfiStreamingResult:
    return asyncio.run(FfiStreamingRunner(binding, "ctx").generate_with_usage(args))


def args_with(**changes: object) -> FfiStreamingGenerateArgs:
    fields = {"prompt_tokens": [7, 8, 9], "token_tree_payload": PAYLOAD, **changes}
    return FfiStreamingGenerateArgs(**fields)  # type: ignore[arg-type]


def hold(binding: RecordingBinding, name: str, n: int = 1) -> tuple[threading.Event, ...]:
    """Let the n-th call of a function wait; return the events of its begin and of its end."""
    begun, resume = threading.Event(), threading.Event()

    def on_call(called: str) -> None:
        if called == name and binding.calls.count(name) == n:
            begun.set()
            assert resume.wait(10), "the event loop was blocked"

    binding.on_call = on_call
    return begun, resume


# ---- order -------------------------------------------------------------------------------------

BEGIN, END = PULLED[:3], PULLED[-2:]
UNCONSTRAINED = ["open", "prefill", "next", "next", "next", "close"]
SCORING = ALL | {"token_trie_scores"}


@pytest.mark.parametrize(
    ("has", "changes", "calls"),
    [
        (ALL, {"token_tree_mode": 1 | STOP_AT_LEAF}, PULLED),
        (ALL, {"token_tree_payload": None}, UNCONSTRAINED),
        (ALL | {"token_trie_leaf"}, {}, [*PULLED[:-2], "token_trie_leaf", *END]),
        (SCORING, {"score_leaves": True}, [*BEGIN, "token_trie_scores", *PULLED[3:]]),
        (SCORING, {}, PULLED),
        (SCORING, {"score_leaves": True, "token_tree_payload": None}, UNCONSTRAINED),
        (SCORING - {"set_token_trie"}, {"score_leaves": True}, UNCONSTRAINED),
        (ALL - {"clear_token_trie"}, {}, UNCONSTRAINED),
    ],
)
def test_calls_are_open_prefill_set_next_clear_close(
    has: set[str], changes: dict[str, Any], calls: list[str]
) -> None:
    binding = RecordingBinding(has=has)
    result = run(binding, args_with(**changes))
    assert binding.calls == calls
    assert result.text == "onetwoend" and result.tokens == (1, 2, 3, 4)
    assert result.usage == Usage(prompt_tokens=3, completion_tokens=4, drafted=2, accepted=1)
    mode = changes.get("token_tree_mode", 0)
    assert binding.payloads == [(PAYLOAD.to_json(), mode)] * ("set_token_trie" in calls)
    assert (result.leaf is not None and result.leaf.name) == ("token_trie_leaf" in calls and "A")
    assert (result.leaf_logprobs is not None) == ("token_trie_scores" in calls)
    if result.leaf_logprobs is not None:
        assert np.allclose(np.exp(result.leaf_logprobs), [0.25, 0.75])


def test_the_finish_reason_does_not_need_the_librarys_counters() -> None:
    """This binding lacks the counters."""
    assert run(RecordingBinding(), args_with()).finish_reason == "end"
    binding = RecordingBinding(has=ALL | {"token_trie_leaf"})
    changes = {"token_tree_mode": STOP_AT_LEAF, "max_tokens": 4}
    assert run(binding, args_with(**changes)).finish_reason == "leaf"
    assert run(binding, args_with(max_tokens=4)).finish_reason == "length"


def test_every_config_field_reaches_the_library() -> None:
    expected = StreamConfig(
        **{"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "repeat_penalty": 1.1},
        **{"slot_id": 2, "prompt_cache_key": "room", "disable_thinking": True, "n_gpu_layers": 0},
        **{"draft_min": 1, "draft_max": 4, "mtp_drafter_path": "d.gguf"},
        **{"gbnf_grammar": 'root ::= "x"', "cache_type_k": "q8_0", "cache_type_v": "f16"},
    )
    assert all(value != getattr(StreamConfig(), name) for name, value in vars(expected).items())
    binding = RecordingBinding()
    run(binding, args_with(**vars(expected)))
    assert binding.configs == [expected]


def test_only_descriptors_with_the_given_path_are_sent() -> None:
    binding = RecordingBinding()
    run(binding, args_with(token_tree_path="status"))
    assert binding.payloads == [(PAYLOAD.select("status").to_json(), 0)]


def test_an_unknown_path_is_rejected_before_a_stream_is_opened() -> None:
    binding = RecordingBinding()
    with pytest.raises(TokenTrieError, match="'actions'; its paths are 'action', 'status'"):
        run(binding, args_with(token_tree_path="actions"))
    assert binding.calls == []


def test_empty_text_chunks_are_not_reported() -> None:
    chunks: list[str] = []
    steps = [StreamStep((1,), "", False), StreamStep((2,), "é", False), StreamStep((), "", True)]
    run(RecordingBinding(steps), args_with(on_text_chunk=chunks.append))
    assert chunks == ["é"]


def test_an_asynchronous_text_callback_is_awaited() -> None:
    chunks: list[str] = []

    async def on_text_chunk(text: str) -> None:
        await asyncio.sleep(0)
        chunks.append(text)

    run(RecordingBinding(), args_with(on_text_chunk=on_text_chunk))
    assert chunks == ["one", "two", "end"]


def test_a_full_context_ends_the_generation_and_keeps_the_text() -> None:
    """Without any text, ContextFullError is raised."""
    full = ContextFullError("context full")
    binding = RecordingBinding(failures={"next:1": full})
    result = run(binding, args_with(max_tokens=1))
    assert (result.text, result.finish_reason) == ("one", "context_full")
    assert binding.calls[-2:] == END
    binding = RecordingBinding(failures={"next:0": full})
    with pytest.raises(ContextFullError):
        run(binding, args_with())


# ---- errors and early exits --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "calls"),
    [
        ("open", PULLED[:1]),
        ("prefill", [*PULLED[:2], "close"]),
        ("set_token_trie", [*PULLED[:3], "close"]),
        ("next:0", [*PULLED[:4], *END]),
        ("next:1", [*PULLED[:5], *END]),
        ("next:2", [*PULLED[:6], *END]),
        ("clear_token_trie", PULLED),
        ("close", PULLED),
        ("token_trie_scores", [*BEGIN, "token_trie_scores", *END]),
        # A failed request reads the counters again, for the record of what it used.
        ("stats", [*PULLED[:-2], "stats", END[0], "stats", END[1]]),
        ("token_trie_leaf", [*PULLED[:-2], "token_trie_leaf", *END]),
    ],
)
def test_an_error_in_any_call_clears_the_trie_and_closes_the_stream(
    point: str, calls: list[str]
) -> None:
    failures: dict[str, BaseException] = {point: NativeFaultError(f"broken at {point}")}
    binding = RecordingBinding(has=ALL | {point}, failures=failures)
    with pytest.raises(NativeFaultError, match=f"broken at {point}"):
        run(binding, args_with(score_leaves=point == "token_trie_scores"))
    assert binding.calls == calls


def test_an_exception_in_the_text_callback_clears_and_closes() -> None:
    def on_text_chunk(text: str) -> None:
        raise ZeroDivisionError(text)

    binding = RecordingBinding()
    with pytest.raises(ZeroDivisionError, match="one"):
        run(binding, args_with(on_text_chunk=on_text_chunk))
    assert binding.calls[-2:] == END


def test_an_abandoned_asynchronous_iterator_clears_and_closes() -> None:
    binding = RecordingBinding()

    async def abandon() -> None:
        stream = FfiStreamingRunner(binding, "ctx").generate_stream(args_with())
        async with aclosing(stream) as steps:
            async for step in steps:
                assert step.text == "one"
                break
        assert binding.calls[-2:] == END

    asyncio.run(abandon())


def test_a_discarded_iterator_clears_and_closes_when_its_event_loop_ends() -> None:
    binding = RecordingBinding()

    async def drop() -> None:
        async for _ in FfiStreamingRunner(binding, "ctx").generate_stream(args_with()):
            break

    asyncio.run(drop())
    assert binding.calls[-2:] == END


# ---- cancelling --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hold", "ending"),
    [
        ("prefill", ["prefill", "cancel", "close"]),
        ("token_trie_scores", ["token_trie_scores", "cancel", "clear_token_trie", "close"]),
        ("next:0", ["next", "cancel", "clear_token_trie", "close"]),
        ("next:1", ["next", "cancel", "clear_token_trie", "close"]),
    ],
)
def test_cancelling_the_task_stops_the_native_call_and_then_closes(
    hold: str, ending: list[str]
) -> None:
    binding = RecordingBinding(hold=hold)

    async def cancel_midway() -> None:
        runner = FfiStreamingRunner(binding, "ctx")
        args = args_with(score_leaves=hold == "token_trie_scores")
        task = asyncio.ensure_future(runner.generate_with_usage(args))
        await asyncio.to_thread(binding.held.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert binding.calls[-len(ending) :] == ending

    asyncio.run(cancel_midway())
    assert binding.calls.count("cancel") <= 2
    assert binding.calls.count("close") == 1


def test_a_second_cancel_does_not_close_during_the_running_call() -> None:
    binding = RecordingBinding(hold="next:0")
    resume = threading.Event()

    def on_call(name: str) -> None:
        if name == "cancel":
            resume.wait(10)

    async def cancel_twice() -> None:
        runner = FfiStreamingRunner(binding, "ctx")
        task = asyncio.ensure_future(runner.generate_with_usage(args_with()))
        await asyncio.to_thread(binding.held.wait, 10)
        task.cancel()
        asyncio.get_running_loop().call_soon(task.cancel)
        resume.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    binding.on_call = on_call
    asyncio.run(cancel_twice())
    assert binding.calls[-2:] == END


def test_after_a_cancel_during_open_only_close_is_called() -> None:
    binding = RecordingBinding()
    opening, resume = hold(binding, "open")

    async def cancel_while_opening() -> None:
        runner = FfiStreamingRunner(binding, "ctx")
        task = asyncio.ensure_future(runner.generate_with_usage(args_with()))
        await asyncio.to_thread(opening.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        resume.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_while_opening())
    assert binding.calls == ["open", "close"]


def test_leaving_after_the_stream_was_closed_cancels_nothing() -> None:
    binding = RecordingBinding()
    closed = threading.Event()
    binding.on_call = lambda name: closed.set() if name == "close" else None

    async def leave_late() -> None:
        runner = FfiStreamingRunner(binding, "ctx")
        async with aclosing(runner.generate_stream(args_with())) as steps:
            await anext(steps)
            await asyncio.to_thread(closed.wait, 10)

    asyncio.run(leave_late())
    assert binding.calls == PULLED


def test_no_cancel_is_sent_between_clearing_and_closing() -> None:
    binding = RecordingBinding()
    clearing, resume = hold(binding, "clear_token_trie")

    async def leave_while_clearing() -> None:
        runner = FfiStreamingRunner(binding, "ctx")
        async with aclosing(runner.generate_stream(args_with())) as steps:
            await anext(steps)
            await asyncio.to_thread(clearing.wait, 10)
            asyncio.get_running_loop().call_later(0.01, resume.set)

    asyncio.run(leave_while_clearing())
    assert binding.calls == PULLED


# ---- the event loop and the slots ----------------------------------------------------------------


def test_a_slow_consumer_does_not_delay_the_library() -> None:
    binding = RecordingBinding()
    closed = threading.Event()
    binding.on_call = lambda name: closed.set() if name == "close" else None

    async def read_slowly() -> list[StreamStep]:
        steps = []
        async for step in FfiStreamingRunner(binding, "ctx").generate_stream(args_with()):
            steps.append(step)
            assert await asyncio.to_thread(closed.wait, 10)
        return steps

    assert asyncio.run(read_slowly()) == list(STEPS)


# Python warns that the iterator cannot be finished, because its event loop is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stream_is_closed_even_if_its_event_loop_was_closed() -> None:
    binding = RecordingBinding()
    pulling, resume = hold(binding, "next", 2)
    loop = asyncio.new_event_loop()
    runner = FfiStreamingRunner(binding, "ctx")
    steps = runner.generate_stream(args_with())
    assert loop.run_until_complete(anext(steps)).text == "one"
    assert pulling.wait(10)
    loop.close()
    closed = threading.Event()
    binding.on_call = lambda name: closed.set() if name == "close" else None
    resume.set()
    assert closed.wait(10)
    assert binding.calls[-2:] == END


def test_one_runner_serves_several_event_loops() -> None:
    binding = RecordingBinding()
    runner = FfiStreamingRunner(binding, "ctx")
    for _ in range(2):
        asyncio.run(runner.generate_with_usage(args_with(slot_id=0)))
    assert binding.calls == PULLED * 2


# ---- without a usable trie -----------------------------------------------------------------------


def test_each_runner_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    binding = RecordingBinding(has=ALL - {"set_token_trie"})
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        for _ in range(2):
            runner = FfiStreamingRunner(binding, "ctx")
            for _ in range(3):
                asyncio.run(runner.generate_with_usage(args_with()))
    assert len(caplog.records) == 2


def test_a_rejected_payload_raises_or_falls_back_to_the_grammar(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The argument `on_trie_error` decides."""
    binding = RecordingBinding(failures={"set_token_trie": TokenTrieError("token 9 is too large")})
    with pytest.raises(TokenTrieError, match="token 9 is too large"):
        run(binding, args_with())
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        result = run(binding, args_with(on_trie_error="grammar"))
    assert result.text == "onetwoend"
    assert "clear_token_trie" not in binding.calls
    assert [record.getMessage() for record in caplog.records] == [
        "token 9 is too large; continuing with the grammar alone"
    ]


def test_errors_name_the_wrong_argument() -> None:
    with pytest.raises(InvalidArgumentError, match="one constraint, got masks, token_tree_payload"):
        args_with(masks=Beginning(1))
    with pytest.raises(InvalidArgumentError, match="on_trie_error must be one of raise, grammar"):
        args_with(on_trie_error="ignore")
    with pytest.raises(InvalidArgumentError, match="max_tokens must be 0 or more, got -1"):
        args_with(max_tokens=-1)
