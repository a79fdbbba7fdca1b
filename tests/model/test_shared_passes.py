"""Streams of one model share forward passes, and wait for a slot if all are in use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eliza_ffi import CacheOptions
from eliza_ffi.errors import BusyError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

T = TypeVar("T")

ACTIONS = ["REPLY", "SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE"]
PROMPTS = [f"Request {i}: do what has to be done. Next action: " for i in range(16)]

FULL_PRECISION = CacheOptions(type_k="f32", type_v="f32")
"""With f32 weights and this cache, rounding differs too little between passes to change a token."""


@pytest.fixture(scope="module")
def new_model(library: Library, plain_path: Path) -> Callable[..., Model]:
    def open_model(n_slots: int = 8, **options: str) -> Model:
        return Model(
            plain_path, library=library, n_ctx=4096, n_slots=n_slots, n_threads=1, options=options
        )

    return open_model


@pytest.fixture(scope="module")
def alone(new_model: Callable[..., Model]) -> Iterator[Model]:
    with new_model(batching="off") as model:
        yield model


def on_threads(work: Callable[[str], T], prompts: Sequence[str] = PROMPTS) -> list[T]:
    """Call `work` with each prompt on its own thread, all at the same time; return the results."""
    together = threading.Barrier(len(prompts), timeout=60)

    def begin(prompt: str) -> T:
        together.wait()
        return work(prompt)

    with ThreadPoolExecutor(len(prompts)) as threads:
        return list(threads.map(begin, prompts))


# ---- Shared passes -----------------------------------------------------------------------------


def test_concurrent_choices_equal_sequential_choices(
    new_model: Callable[..., Model], alone: Model
) -> None:
    def choose(model: Model, prompt: str) -> Any:
        return model.choose(prompt, ACTIONS, cache=FULL_PRECISION)

    expected = [choose(alone, prompt) for prompt in PROMPTS]
    with new_model(n_slots=8) as model:
        choices = on_threads(lambda prompt: choose(model, prompt))
    assert [choice.value for choice in choices] == [choice.value for choice in expected]
    for choice, other in zip(choices, expected, strict=True):
        assert choice.logprob == pytest.approx(other.logprob, abs=1e-3)


def test_the_context_length_is_known_after_the_first_stream(
    new_model: Callable[..., Model],
) -> None:
    with new_model() as model:
        assert model.session.n_ctx() is None
        model.generate("x", 1)
        assert model.session.n_ctx() == 4096


# ---- Waiting for a slot ------------------------------------------------------------------------


def test_a_request_waits_until_a_stream_is_closed(new_model: Callable[..., Model]) -> None:
    with new_model(n_slots=2) as model:
        first, second = model.stream(PROMPTS[0], 0), model.stream(PROMPTS[1], 0)
        next(first), next(second)
        with ThreadPoolExecutor(1) as threads:
            third = threads.submit(model.generate, PROMPTS[2], 5)
            with pytest.raises(FutureTimeoutError):
                third.result(0.1)
            first.close()  # type: ignore[attr-defined]
            assert len(third.result(60).tokens) == 5
        assert next(second)


def test_an_option_limits_the_wait(new_model: Callable[..., Model]) -> None:
    with new_model(n_slots=1, slot_wait_ms="20") as model:
        assert model.describe()["passes"]["slot_wait_ms"] == 20
        stream = model.stream(PROMPTS[0], 0)
        next(stream)
        with pytest.raises(BusyError, match="all 1 slots are in use by open streams after 0.02 s"):
            model.generate("x", 1)
        stream.close()  # type: ignore[attr-defined]


def test_a_named_slot_can_be_in_use_by_a_request_without_a_slot(
    new_model: Callable[..., Model],
) -> None:
    """Only the library knows which slot such a request uses."""
    with new_model(n_slots=3) as model, ThreadPoolExecutor(1) as threads:
        stream, other = model.stream(PROMPTS[0], 0), model.stream(PROMPTS[1], 0)
        next(stream), next(other)
        free = []
        begin = time.monotonic()
        for slot in range(3):
            try:
                model.generate(PROMPTS[2], 2, timeout=0.1, cache=CacheOptions(slot=slot))
                free.append(slot)
            except BusyError as busy:
                assert f"slot {slot} is in use by another" in str(busy)
        assert len(free) == 1 and time.monotonic() - begin < 10
        (taken, _) = sorted({0, 1, 2} - set(free))
        asked = threads.submit(model.generate, PROMPTS[2], 2, cache=CacheOptions(slot=taken))
        with pytest.raises(FutureTimeoutError):
            asked.result(0.1)
        assert model.generate(
            PROMPTS[3], 2, timeout=0
        ).tokens  # the waiting request does not block it
        stream.close()  # type: ignore[attr-defined]
        other.close()  # type: ignore[attr-defined]
        assert len(asked.result(60).tokens) == 2
