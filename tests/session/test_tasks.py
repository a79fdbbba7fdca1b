"""What a task checks before it waits, what it holds while it runs, and what a cancel stops."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import pytest

from eliza_ffi import ContextFullError, ElizaError, Model, NotSupportedError
from eliza_ffi.errors import GenerationCancelledError
from eliza_ffi.session.run import Run
from eliza_ffi.session.runs import text_run
from eliza_ffi.session.task import Task

YES_NO = {"spans": [{"kind": "boolean", "key": "a"}]}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancel_between_two_runs_starts_no_further_run(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    opened: list[Any] = []
    real = tiny_model.binding.open
    monkeypatch.setattr(tiny_model.binding, "open", lambda *a: (opened.append(a), real(*a))[1])

    def runs() -> Generator[Run[Any], Any, str]:
        yield text_run(tiny_model.session, "a", method="generate", max_tokens=2)
        task.cancel()
        yield text_run(tiny_model.session, "b", method="generate", max_tokens=2)
        return "not cancelled"

    task = Task(tiny_model.session, runs())
    with pytest.raises(GenerationCancelledError):
        asyncio.run(task.run_async()) if is_async else task.run()
    assert len(opened) == 1
    assert tiny_model.session.turns.n_running == 0


class Anything:
    """Masks of a caller's own."""

    n_words = 1

    def start(self) -> Any:
        raise AssertionError("the library has no masks")


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        (lambda m: m.rank("x", ["a", "b"], think=5), "rank"),
        (lambda m: m.rank("x", ["a", "b"], timeout=0), "rank"),
        (lambda m: m.stream("x", schema=Anything()), "set_forced_tokens"),
        (lambda m: m.generate("x", schema=Anything(), timeout=0), "set_forced_tokens"),
        (lambda m: m.fill_stream("x", YES_NO), "fill"),
    ],
    ids=["rank after thinking", "rank", "stream", "generate", "fill"],
)
def test_what_the_library_lacks_is_reported_before_the_request_waits(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Model], Any], missing: str
) -> None:
    with Model(n_slots=1, n_threads=1) as model, model.stream("x", 50) as stream:
        next(stream)
        name, library = f"eliza_inference_llm_stream_{missing}", model.binding.library
        monkeypatch.setattr(library, "functions", library.functions - {name})
        with pytest.raises(NotSupportedError, match=f"has no {name}$"):
            call(model)


def test_a_run_after_close_says_that_the_model_is_closed() -> None:
    model = Model(n_threads=1)
    run = text_run(model.session, "x", method="generate", max_tokens=2)
    model.close()
    with pytest.raises(ElizaError, match="is closed"):
        list(run.steps())


def test_a_failed_long_call_does_not_keep_the_model_alive() -> None:
    model = Model(n_threads=1)
    gone = weakref.ref(model.session)
    gc.collect()
    gc.disable()
    try:
        with suppress(ContextFullError):  # `pytest.raises` would keep the error, too
            pytest.fail(str(model.generate("Hi " * 9000)))
        del model
        assert gone() is None
    finally:
        gc.enable()
