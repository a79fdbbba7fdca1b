"""The lifetime of a session: interrupts, forks, references, repeated opening and closing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eliza_ffi._resources import default_model_path
from eliza_ffi.library import Library
from eliza_ffi.model import Model

N_INTERRUPTS = 2000

INTERRUPTED = f"""
import random, signal
from eliza_ffi import Model
from eliza_ffi.library import StreamConfig

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

def work(model, i):
    if i % 3 == 0:
        model.choose("x: ", ["RESPOND", "STOP"])
    elif i % 3 == 1:
        for text in model.stream("x: ", 3):
            pass
    else:
        model.binding.close(model.binding.open(model.session.ctx, StreamConfig()))

random.seed(1)
signal.signal(signal.SIGALRM, interrupt)
with Model(n_threads=1, n_ctx=512, options={{"slot_wait_ms": "2000"}}) as model:
    n_interrupts = i = 0
    while n_interrupts < {N_INTERRUPTS}:
        i += 1
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 1.5e-3))
                work(model, i)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            n_interrupts += 1
    streams = [model.stream(str(i), 3) for i in range(8)]
    assert all(next(stream) is not None for stream in streams)
    print("interrupts", n_interrupts)
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGALRM and setitimer")
def test_interrupts_never_lose_a_slot(library: Library) -> None:
    assert run(INTERRUPTED).split() == ["interrupts", str(N_INTERRUPTS)]


FORKED = """
import os
from eliza_ffi import Model

with Model(n_threads=1) as model:
    model.choose("x: ", ["RESPOND", "STOP"])
    if os.fork() == 0:
        try:
            model.choose("x: ", ["RESPOND", "STOP"])
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        model.close()
        with Model(n_threads=1) as own:
            print(own.choose("x: ", ["RESPOND", "STOP"]).value, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
    print(model.choose("x: ", ["RESPOND", "STOP"]).value)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_must_open_its_own_model(library: Library) -> None:
    said, own, parents = run(FORKED).splitlines()
    assert said.startswith("ElizaError") and "open the model in the child" in said
    assert own == parents


def test_a_callback_with_the_model_does_not_keep_it_alive(library: Library) -> None:
    held: list[Any] = []

    class Watcher:
        def __call__(self, stage: str, fraction: float) -> None:
            held.append((stage, fraction))

    watcher = Watcher()
    model = Model(library=library, n_threads=1, progress=watcher)
    watcher.model = model  # type: ignore[attr-defined]
    model.generate("a prompt of some tokens", 1)
    gone = weakref.ref(model)
    session = weakref.ref(model.session)
    del model, watcher
    gc.collect()
    assert gone() is None and session() is None
    assert held


@pytest.mark.slow
def test_a_callback_exception_reaches_only_its_own_request(library: Library) -> None:
    mine = threading.get_ident()

    def complain(stage: str, fraction: float) -> None:
        if threading.get_ident() == mine:
            raise RuntimeError("mine")

    texts: list[str] = []
    with Model(library=library, n_threads=1) as model:
        model.binding.set_progress_callback(model.session.ctx, complain)

        def generate() -> None:
            texts.extend(model.generate(f"{i} " * 20, 4).text for i in range(30))

        thread = threading.Thread(target=generate)
        thread.start()
        for i in range(30):
            with pytest.raises(RuntimeError, match="mine"):
                model.generate(f"mine {i} " * 20, 4)
        thread.join()
    assert len(texts) == 30


MANY = """
import resource
from eliza_ffi import Model

def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20

def open_and_close(n):
    for _ in range(n):
        with Model(n_threads=1, n_ctx=256) as model:
            pass

open_and_close(50)
before = used()
open_and_close(300)
print(used() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_opening_and_closing_repeatedly_leaks_no_memory(library: Library) -> None:
    assert float(run(MANY)) < 8.0  # MiB; an old leak of 191 KB per model was 57 MiB here


@pytest.mark.parametrize(("n_slots", "at_once"), [(1, 1), (8, 2)])
def test_concurrent_decisions_are_limited_to_two_on_a_cpu(
    library: Library, n_slots: int, at_once: int
) -> None:
    with Model(default_model_path(), library=library, n_threads=1, n_slots=n_slots) as model:
        assert model.session.decisions_at_once(None) == at_once
        assert model.session.decisions_at_once(5) == 5
        assert model.session.at_once(None) == n_slots
    with Model(default_model_path(), library=library, n_threads=1, n_slots=n_slots) as model:
        placed = [{"device": "CUDA0", "layers": 5}, {"device": "CPU", "layers": 1}]
        facts = model.describe()
        facts["model"]["placement"] = placed
        with mock.patch.object(model.session, "_facts", facts["model"]):
            assert model.session.decisions_at_once(None) == n_slots
