"""Pulls over libraries that only push, against real ones that note what would have crashed."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from elder_fake import (
    BYTES,
    ENDLESS,
    FAIL,
    GATED,
    NO_ROOM,
    ONE_SHOT,
    PLAIN,
    PULL,
    PUSH,
    REFUSE,
    TEXT,
    TRIE,
    Fake,
    Fakes,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from eliza_ffi.elizaos import (
    FfiStreamingGenerateArgs,
    FfiStreamingRunner,
    SyncStreamingRunner,
)
from eliza_ffi.errors import (
    GenerationCancelled,
    InvalidArgumentError,
    NativeFault,
    NotSupportedError,
)
from eliza_ffi.library.binding import CffiBinding, StreamConfig
from eliza_ffi.library.elder.pull import NO_LIMIT
from eliza_ffi.library.loading import Library

PUSH_AND_TRIE = PUSH | TRIE
UNCANCELLABLE = PUSH - {"llm_stream_cancel"}


class Session:
    """A stream of a fake library that has been prefilled."""

    def __init__(self, fake: Fake, manner: int = PLAIN, max_tokens: int = 0) -> None:
        self.fake = fake
        self.binding = CffiBinding(Library(fake.path))
        self.ctx = self.binding.create("any")
        self.stream: Any = self.binding.open(self.ctx, StreamConfig(max_tokens=max_tokens))
        self.binding.prefill(self.stream, [manner])

    def pull(self) -> int:
        """Return the next token."""
        (token,) = self.binding.next(self.stream).tokens
        return token

    def wait_until_computing(self) -> None:
        """Return when the library computes the token that takes until it is stopped.

        It is not enough that it has left its callback: a cancel before that token is begun stops
        the call, and then the token takes as long for the pull after it, which nobody cancels.
        """
        while not self.fake.stuck:
            time.sleep(0.0005)

    def pull_all(self) -> tuple[list[int], str]:
        """Return what there still is."""
        tokens: list[int] = []
        text = ""
        while True:
            step = self.binding.next(self.stream)
            tokens += step.tokens
            text += step.text
            if step.done:
                return tokens, text

    def end(self) -> None:
        """Close all; nothing that was done may have harmed the library."""
        self.binding.destroy(self.ctx)
        assert self.fake.harm == ""


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    return Fakes(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def push(fakes: Fakes) -> Fake:
    return fakes(PUSH_AND_TRIE)


@pytest.fixture
def session(push: Fake) -> Iterator[Session]:
    session = Session(push)
    yield session
    session.end()


# ---- tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("functions", [PULL, PUSH, UNCANCELLABLE])
def test_the_same_tokens_and_text_are_pulled_whether_the_library_pulls_or_pushes(
    functions: frozenset[str], fakes: Fakes
) -> None:
    session = Session(fakes(functions))
    assert session.binding.supports("next")
    assert session.pull_all() == (list(BYTES), TEXT)
    assert session.binding.next(session.stream).done, "the end stays the end"
    session.end()


def test_nothing_is_computed_before_it_is_asked_for(session: Session) -> None:
    for count in range(1, 6):
        session.pull()
        assert session.stream.pushed._is_resting
        assert session.fake.sampled == count


def test_one_call_of_the_library_brings_all_tokens(session: Session) -> None:
    session.pull_all()
    assert session.fake.calls == ["open", "prefill", "generate"]


def test_a_library_that_cannot_go_on_after_a_call_is_pulled_right_all_the_same(
    fakes: Fakes,
) -> None:
    session = Session(fakes(PUSH), ONE_SHOT)
    assert session.pull_all() == (list(BYTES), TEXT)
    session.end()


@pytest.mark.parametrize(("max_tokens", "limit"), [(0, NO_LIMIT), (5, 5)])
def test_the_limit_is_the_librarys_and_no_limit_is_not_taken_for_no_token(
    max_tokens: int, limit: int, fakes: Fakes
) -> None:
    session = Session(fakes(PUSH), max_tokens=max_tokens)
    tokens, _ = session.pull_all()
    assert tokens == list(BYTES[: max_tokens or None])
    assert session.fake.limit == limit
    session.end()


def test_after_another_prefill_the_limit_counts_anew(fakes: Fakes) -> None:
    session = Session(fakes(PUSH), max_tokens=5)
    assert session.pull_all()[0] == list(BYTES[:5])
    session.binding.prefill(session.stream, [PLAIN])
    assert session.pull_all()[0] == list(BYTES[5:10])
    session.end()


def test_a_generation_that_ends_inside_a_character_says_so(fakes: Fakes) -> None:
    session = Session(fakes(PUSH), max_tokens=3)
    assert session.pull_all() == (list(BYTES[:3]), "Gr\ufffd")
    session.end()


# ---- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manner", "kind", "said"),
    [(FAIL, NativeFault, "the disk is on fire"), (NO_ROOM, NativeFault, "context full")],
)
@pytest.mark.parametrize("functions", [PULL, PUSH])
def test_a_failure_comes_after_the_tokens_before_it(
    functions: frozenset[str], manner: int, kind: type[Exception], said: str, fakes: Fakes
) -> None:
    session = Session(fakes(functions), manner)
    assert [session.pull() for _ in range(3)] == list(BYTES[:3])
    with pytest.raises(kind, match=f"cannot generate: {said}"):
        session.pull()
    session.end()


def test_a_refused_prefill_leaves_a_stream_that_can_be_prefilled(fakes: Fakes) -> None:
    session = Session(fakes(PUSH))
    with pytest.raises(InvalidArgumentError, match="token 2 is not for prompts"):
        session.binding.prefill(session.stream, [REFUSE])
    session.binding.prefill(session.stream, [PLAIN])
    assert session.pull_all()[1] == TEXT
    session.end()


# ---- cancel ------------------------------------------------------------------------------------


def test_a_cancel_stops_the_pass_that_is_running_and_no_token_is_lost(fakes: Fakes) -> None:
    session = Session(fakes(PUSH), ENDLESS)
    tokens = [session.pull(), session.pull()]
    with ThreadPoolExecutor() as threads:
        pull = threads.submit(session.pull)
        session.wait_until_computing()
        session.binding.cancel(session.stream)
        with pytest.raises(GenerationCancelled):
            pull.result(10)
    assert tokens + session.pull_all()[0] == list(BYTES)
    session.end()


@pytest.mark.parametrize("functions", [PUSH, UNCANCELLABLE])
def test_a_cancel_between_two_pulls_stops_the_next_and_no_token_is_lost(
    functions: frozenset[str], fakes: Fakes
) -> None:
    session = Session(fakes(functions))
    tokens = [session.pull() for _ in range(3)]
    text = "Gr"
    session.binding.cancel(session.stream)
    with pytest.raises(GenerationCancelled):
        session.pull()
    rest, rest_of_text = session.pull_all()
    assert tokens + rest == list(BYTES)
    assert text + rest_of_text == TEXT, "half a character was in the library's hands"
    assert session.fake.calls.count("generate") == 2
    session.end()


def test_without_a_cancel_function_a_generation_ends_at_its_next_token(fakes: Fakes) -> None:
    session = Session(fakes(UNCANCELLABLE), GATED)
    assert session.binding.supports("cancel")
    tokens = [session.pull(), session.pull()]
    with ThreadPoolExecutor() as threads:
        pull = threads.submit(session.pull)
        session.wait_until_computing()
        session.binding.cancel(session.stream)
        session.fake.open_gate()
        with pytest.raises(GenerationCancelled):
            pull.result(10)
    assert session.fake.sampled == 3
    assert tokens + session.pull_all()[0] == list(BYTES), "the third token waited"
    session.end()


# ---- other calls between two pulls -------------------------------------------------------------


def test_a_trie_set_between_two_pulls_is_set_while_the_library_is_at_rest(
    session: Session,
) -> None:
    tokens = [session.pull(), session.pull()]
    session.binding.set_token_trie(session.stream, "{}", 0)
    tokens.append(session.pull())
    session.binding.clear_token_trie(session.stream)
    assert tokens + session.pull_all()[0] == list(BYTES)
    between = [name for name in session.fake.calls if name not in ("open", "prefill")]
    assert between == ["generate", "set", "generate", "clear", "generate"]


OPERATIONS = st.lists(st.sampled_from(("pull", "cancel", "set", "clear")), max_size=30)


@settings(max_examples=60)
@given(operations=OPERATIONS, max_tokens=st.integers(0, 24))
def test_whatever_is_done_between_pulls_the_tokens_are_those_of_one_generation(
    fakes: Fakes, operations: list[str], max_tokens: int
) -> None:
    session = Session(fakes(PUSH_AND_TRIE), max_tokens=max_tokens)
    tokens: list[int] = []
    text = ""
    for operation in itertools.chain(operations, itertools.repeat("pull")):
        if operation == "cancel":
            session.binding.cancel(session.stream)
        elif operation == "set":
            session.binding.set_token_trie(session.stream, "{}", 0)
        elif operation == "clear":
            session.binding.clear_token_trie(session.stream)
        else:
            try:
                step = session.binding.next(session.stream)
            except GenerationCancelled:
                continue
            tokens += step.tokens
            text += step.text
            if step.done:
                break
    expected = BYTES[: max_tokens or None]
    assert tuple(tokens) == expected
    assert text == bytes(expected).decode("utf-8", "replace")
    session.end()


# ---- misuse ------------------------------------------------------------------------------------


def test_the_second_of_two_pulls_at_once_is_refused_and_the_first_is_not_harmed(
    fakes: Fakes,
) -> None:
    session = Session(fakes(PUSH_AND_TRIE), ENDLESS)
    tokens = [session.pull(), session.pull()]
    with ThreadPoolExecutor() as threads:
        first = threads.submit(session.pull)
        session.wait_until_computing()
        for doing in ("next", "prefill", "set_token_trie"):
            arguments = {"prefill": ([1],), "set_token_trie": ("{}", 0)}.get(doing, ())
            with pytest.raises(InvalidArgumentError, match="another call is running on this"):
                getattr(session.binding, doing)(session.stream, *arguments)
        session.binding.cancel(session.stream)
        with pytest.raises(GenerationCancelled):
            first.result(10)
    assert tokens + session.pull_all()[0] == list(BYTES)
    session.end()


def test_two_generates_at_once_and_a_callback_that_calls_its_own_stream_are_refused(
    session: Session,
) -> None:
    refused: list[str] = []

    def on_token(token: int, text: str) -> bool:
        for call in (
            lambda: session.binding.generate(session.stream, 0, on_token),
            lambda: session.binding.next(session.stream),
            lambda: session.binding.close(session.stream),
        ):
            with pytest.raises(InvalidArgumentError) as caught:
                call()
            refused.append(str(caught.value))
        return False

    session.binding.generate(session.stream, 2, on_token)
    assert refused == 2 * [
        "cannot generate: another call is running on this stream",
        "cannot generate: another call is running on this stream",
        "cannot close a stream from inside its own callback",
    ]
    assert session.pull_all()[0] == list(BYTES[2:])


def test_an_exception_in_a_token_callback_comes_out_and_the_stream_goes_on(
    session: Session,
) -> None:
    def complain(token: int, text: str) -> bool:
        raise KeyError(token)

    with pytest.raises(KeyError, match=str(BYTES[0])):
        session.binding.generate(session.stream, 0, complain)
    assert session.pull() == BYTES[1]


def test_a_cancel_during_a_generate_of_ones_own_stops_it_if_the_library_can(
    fakes: Fakes,
) -> None:
    for functions, can in ((PUSH, True), (UNCANCELLABLE, False)):
        session = Session(fakes(functions))
        errors: list[Exception] = []

        def on_token(
            token: int, text: str, session: Session = session, errors: list[Exception] = errors
        ) -> bool:
            try:
                session.binding.cancel(session.stream)
            except NotSupportedError as error:
                errors.append(error)
            return len(errors) == 2

        with pytest.raises(GenerationCancelled):
            session.binding.generate(session.stream, 0, on_token)
        assert session.fake.sampled == (1 if can else 2)
        assert bool(errors) is not can
        session.end()


# ---- the end -----------------------------------------------------------------------------------


def test_closing_ends_the_librarys_call_first(push: Fake) -> None:
    session = Session(push)
    session.pull()
    session.binding.close(session.stream)
    session.binding.close(session.stream)
    assert push.calls == ["open", "prefill", "generate", "close"]
    with pytest.raises(InvalidArgumentError, match="cannot generate: the stream is closed"):
        session.pull()
    with pytest.raises(InvalidArgumentError, match="cannot prefill 1 tokens: the stream is closed"):
        session.binding.prefill(session.stream, [1])
    session.binding.cancel(session.stream)
    session.end()


def test_closing_from_another_thread_ends_the_pull_that_is_waiting(fakes: Fakes) -> None:
    session = Session(fakes(PUSH), ENDLESS)
    session.pull(), session.pull()
    with ThreadPoolExecutor() as threads:
        pull = threads.submit(session.pull)
        session.wait_until_computing()
        session.binding.close(session.stream)
        with pytest.raises(GenerationCancelled):
            pull.result(10)
    session.end()


@pytest.mark.parametrize("functions", [PULL, PUSH])
def test_a_context_closes_its_streams_before_it_goes_and_goes_once(
    functions: frozenset[str], fakes: Fakes
) -> None:
    fake = fakes(functions)
    session = Session(fake)
    other = session.binding.open(session.ctx, StreamConfig())
    session.pull()
    session.binding.destroy(session.ctx)
    session.binding.destroy(session.ctx)
    assert fake.calls[-3:] == ["close", "close", "destroy"]
    session.binding.close(other)
    with pytest.raises(InvalidArgumentError, match="cannot open a stream: the context is destroy"):
        session.binding.open(session.ctx, StreamConfig())
    session.end()


def test_no_thread_is_left_behind(push: Fake) -> None:
    before = set(threading.enumerate())
    sessions = [Session(push) for _ in range(5)]
    for session in sessions:
        session.pull()
    started = set(threading.enumerate()) - before
    assert len(started) == 5
    for session in sessions:
        session.end()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


# ---- the runners -------------------------------------------------------------------------------


def test_many_generations_at_once_each_bring_their_own_text(fakes: Fakes) -> None:
    fake = fakes(PUSH)
    binding = CffiBinding(Library(fake.path))
    ctx = binding.create("any")
    runner = FfiStreamingRunner(binding, ctx)

    async def all_of_them() -> list[str]:
        args = FfiStreamingGenerateArgs([PLAIN])
        results = await asyncio.gather(*(runner.generate_with_usage(args) for _ in range(12)))
        return [result.text for result in results]

    assert asyncio.run(all_of_them()) == [TEXT] * 12
    binding.destroy(ctx)
    assert fake.harm == ""


def test_a_cancelled_task_stops_a_pass_and_closes_in_order(fakes: Fakes) -> None:
    fake = fakes(PUSH)
    binding = CffiBinding(Library(fake.path))
    ctx = binding.create("any")
    runner = FfiStreamingRunner(binding, ctx)

    async def cancel() -> None:
        task = asyncio.create_task(runner.generate_with_usage(FfiStreamingGenerateArgs([ENDLESS])))
        while not fake.stuck:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert fake.calls == ["open", "prefill", "generate", "cancel", "close"]
    binding.destroy(ctx)
    assert fake.harm == ""


def test_an_exception_in_the_text_callback_closes_in_order_and_comes_out(fakes: Fakes) -> None:
    fake = fakes(PUSH)
    binding = CffiBinding(Library(fake.path))
    ctx = binding.create("any")

    def complain(text: str) -> None:
        raise KeyError(text)

    args = FfiStreamingGenerateArgs([PLAIN], on_text_chunk=complain)
    with pytest.raises(KeyError, match="G"):
        SyncStreamingRunner(binding, ctx).generate_with_usage(args)
    assert fake.calls == ["open", "prefill", "generate", "close"]
    binding.destroy(ctx)
    assert fake.harm == ""
