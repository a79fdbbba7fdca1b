"""Ctrl-C while the main thread is inside a long native call."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eliza_ffi.decisions import Choice
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to its own thread")

TEXT = "the parcel did not come and nobody knows where it is " * 700


@pytest.fixture(scope="module")
def model(library: Library) -> Iterator[Model]:
    # Small batches, so that a prompt takes many passes.
    with Model(library=library, n_ctx=16384, n_threads=1, options={"n_batch": "64"}) as opened:
        yield opened


CALLS: dict[str, Callable[[Model, str], Any]] = {
    "choose": lambda model, text: model.choose(text, ["now", "later"]),
    "generate": lambda model, text: model.generate(text, 1),
    "rank": lambda model, text: model.rank(text, ["now", "later"]),
    "decide": lambda model, text: model.decide(text, {"when": Choice("When?", ["now", "later"])}),
    "fill": lambda model, text: model.fill(text, {"enum": ["now", "later"]}),
}


@pytest.fixture(scope="module")
def whole(model: Model) -> float:
    """Return the seconds that the prompt takes, which is nearly all the time of each call."""
    begin = time.perf_counter()
    model.generate(f"whole {TEXT}", 1)
    return time.perf_counter() - begin


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_a_long_prompt(name: str, model: Model, whole: float) -> None:
    main = threading.get_ident()
    timer = threading.Timer(whole / 10, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        CALLS[name](model, f"{name} {TEXT}")
    assert time.perf_counter() - begin < whole / 2
    timer.join()
    assert model.choose("Is it late? ", ["yes", "no"]).value in ("yes", "no")  # the slot is free
