"""Streams of libraries that do not check their calls.

The fake libraries record each call that would have crashed such a library.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from elizaos_fake import (
    BYTES,
    ENDLESS,
    FAIL,
    GENERATE,
    PLAIN,
    STREAM,
    TEXT,
    TRIE,
    Fake,
    Fakes,
    opened,
)

from eliza_ffi.elizaos import FfiStreamingGenerateArgs, FfiStreamingRunner
from eliza_ffi.errors import GenerationCancelledError, InvalidArgumentError, NativeFaultError
from eliza_ffi.library.protocol import StreamConfig

LARGEST_INT32 = 2**31 - 1


class Session:
    """A stream of a fake library that has been prefilled."""

    def __init__(self, fake: Fake, manner: int = PLAIN, max_tokens: int = 0) -> None:
        self.fake = fake
        self.binding, self.ctx, self.stream = opened(fake, manner, max_tokens=max_tokens)

    def pull(self) -> int:
        (token,) = self.binding.next(self.stream).tokens
        return token

    def wait_until_computing(self) -> None:
        """Wait until the library computes a token that only a cancel can stop."""
        while not self.fake.stuck:
            time.sleep(0.0005)

    def pull_all(self) -> tuple[list[int], str]:
        tokens: list[int] = []
        text = ""
        while True:
            step = self.binding.next(self.stream)
            tokens += step.tokens
            text += step.text
            if step.done:
                return tokens, text

    def generate(self, max_tokens: int = 0) -> tuple[list[int], str]:
        tokens: list[int] = []
        pieces: list[str] = []

        def on_token(token: int, text: str) -> bool:
            tokens.extend([token] if token >= 0 else [])
            pieces.append(text)
            return False

        self.binding.generate(self.stream, max_tokens, on_token)
        return tokens, "".join(pieces)


@pytest.fixture
def fake(fakes: Fakes) -> Fake:
    return fakes(STREAM | GENERATE | TRIE)


@pytest.fixture
def session(fake: Fake) -> Session:
    return Session(fake)


# ---- tokens ------------------------------------------------------------------------------------


both_ways = pytest.mark.parametrize("read", [Session.pull_all, Session.generate])


@both_ways
def test_all_tokens_and_their_text_can_be_read(read: Any, session: Session) -> None:
    assert read(session) == (list(BYTES), TEXT)


def test_pulls_resume_after_pushed_tokens(session: Session) -> None:
    assert session.generate(6) == (list(BYTES[:6]), TEXT[:4])
    assert session.pull_all()[0] == list(BYTES[6:])


@pytest.mark.parametrize(("max_tokens", "limit"), [(0, LARGEST_INT32), (5, 5)])
def test_a_generate_without_limit_gets_the_largest_limit(
    max_tokens: int, limit: int, session: Session
) -> None:
    """Some libraries read a limit of 0 as "no token"."""
    tokens, _ = session.generate(max_tokens)
    assert tokens == list(BYTES[: max_tokens or None])
    assert session.fake.limit == limit


# ---- failures ----------------------------------------------------------------------------------


def test_the_tokens_before_a_failure_are_returned_first(fake: Fake) -> None:
    pulled, pushed = Session(fake, FAIL), Session(fake, FAIL)
    assert [pulled.pull() for _ in range(3)] == list(BYTES[:3])
    for read in (pulled.pull, pushed.generate):
        with pytest.raises(NativeFaultError, match="cannot generate: the disk is on fire"):
            read()


# ---- cancel ------------------------------------------------------------------------------------


def test_a_cancel_stops_the_running_pull_and_no_token_is_lost(fake: Fake) -> None:
    session = Session(fake, ENDLESS)
    tokens = [session.pull(), session.pull()]
    with ThreadPoolExecutor() as threads:
        pull = threads.submit(session.pull)
        session.wait_until_computing()
        session.binding.cancel(session.stream)
        with pytest.raises(GenerationCancelledError):
            pull.result(10)
    assert tokens + session.pull_all()[0] == list(BYTES)


def test_a_cancel_from_a_token_callback_stops_generate(session: Session) -> None:
    def on_token(token: int, text: str) -> bool:
        session.binding.cancel(session.stream)
        return False

    with pytest.raises(GenerationCancelledError):
        session.binding.generate(session.stream, 0, on_token)
    assert session.fake.sampled == 1


# ---- misuse ------------------------------------------------------------------------------------


def test_a_second_call_on_a_busy_stream_is_rejected(fake: Fake) -> None:
    session = Session(fake, ENDLESS)
    tokens = [session.pull(), session.pull()]
    with ThreadPoolExecutor() as threads:
        first = threads.submit(session.pull)
        session.wait_until_computing()
        for doing in ("next", "prefill", "set_token_trie"):
            arguments = {"prefill": ([1],), "set_token_trie": ("{}", 0)}.get(doing, ())
            with pytest.raises(InvalidArgumentError, match="another call is running on this"):
                getattr(session.binding, doing)(session.stream, *arguments)
        session.binding.cancel(session.stream)
        with pytest.raises(GenerationCancelledError):
            first.result(10)
    assert tokens + session.pull_all()[0] == list(BYTES)


def test_a_callback_cannot_call_its_own_stream(session: Session) -> None:
    errors: list[str] = []

    def on_token(token: int, text: str) -> bool:
        for call in (
            lambda: session.binding.generate(session.stream, 0, on_token),
            lambda: session.binding.next(session.stream),
            lambda: session.binding.close(session.stream),
        ):
            with pytest.raises(InvalidArgumentError) as caught:
                call()
            errors.append(str(caught.value))
        return False

    session.binding.generate(session.stream, 2, on_token)
    assert errors == 2 * [
        "cannot generate: another call is running on this stream",
        "cannot generate: another call is running on this stream",
        "cannot close a stream from inside its own callback",
    ]
    assert session.pull_all()[0] == list(BYTES[2:])


def test_a_stream_resumes_after_an_exception_in_a_token_callback(session: Session) -> None:
    def complain(token: int, text: str) -> bool:
        raise KeyError(token)

    with pytest.raises(KeyError, match=str(BYTES[0])):
        session.binding.generate(session.stream, 0, complain)
    assert session.pull() == BYTES[1]


# ---- close and destroy -------------------------------------------------------------------------


def test_a_closed_stream_is_rejected_and_can_be_closed_again(session: Session) -> None:
    session.pull()
    session.binding.close(session.stream)
    session.binding.close(session.stream)
    assert session.fake.calls == ["open", "prefill", "next", "close"]
    with pytest.raises(InvalidArgumentError, match="cannot generate: the stream is closed"):
        session.pull()
    with pytest.raises(InvalidArgumentError, match="cannot prefill 1 tokens: the stream is closed"):
        session.binding.prefill(session.stream, [1])
    session.binding.cancel(session.stream)


@both_ways
def test_closing_from_another_thread_ends_the_running_call(read: Any, fake: Fake) -> None:
    session = Session(fake, ENDLESS)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(read, session)
        session.wait_until_computing()
        session.binding.close(session.stream)
        with pytest.raises(GenerationCancelledError):
            running.result(10)


def test_destroying_a_context_closes_its_streams_first(session: Session) -> None:
    """A second call does nothing."""
    other = session.binding.open(session.ctx, StreamConfig())
    session.pull()
    session.binding.destroy(session.ctx)
    session.binding.destroy(session.ctx)
    assert session.fake.calls[-3:] == ["close", "close", "destroy"]
    session.binding.close(other)
    with pytest.raises(InvalidArgumentError, match="cannot open a stream: the context is destroy"):
        session.binding.open(session.ctx, StreamConfig())


# ---- the runners -------------------------------------------------------------------------------


def test_concurrent_generations_each_return_their_own_text(session: Session) -> None:
    runner = FfiStreamingRunner(session.binding, session.ctx)

    async def generate_all() -> list[str]:
        args = FfiStreamingGenerateArgs([PLAIN])
        results = await asyncio.gather(*(runner.generate_with_usage(args) for _ in range(12)))
        return [result.text for result in results]

    assert asyncio.run(generate_all()) == [TEXT] * 12
