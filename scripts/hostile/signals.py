"""Signals at random moments, and forks during a generation."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from functools import partial

from stage import ACTIONS, CHAT, PROMPT, Stage

from eliza_ffi.errors import ElizaError

from .case import Broken, Case, Must

N_INTERRUPTS = 500
LOST_AFTER_S = 10.0
END_LIMIT_S = 10.0


def _interrupted(what: str, stage: Stage) -> str:
    """Interrupt an endless loop of calls many times; each time it must raise KeyboardInterrupt."""
    model = stage.model
    draw = random.Random(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def work() -> None:
        end = time.monotonic() + LOST_AFTER_S
        while time.monotonic() < end:
            if what == "choose":
                model.choose(PROMPT, ACTIONS)
            elif what == "generate":
                model.generate(CHAT, 20)
            elif what == "stream":
                for _ in model.stream(CHAT, 20):
                    pass
            elif what == "choose many":
                model.choose_many([PROMPT, CHAT, "one", "two"], ACTIONS)
            else:
                stage.open().close()
        raise Broken("an interrupt was lost")

    for number in range(N_INTERRUPTS):
        delay = draw.uniform(0.0005, 0.01)
        sender = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            sender.start()
            work()
        except KeyboardInterrupt:
            pass
        except ElizaError as error:
            raise Broken(f"interrupt {number} raised {error!r}") from None
        sender.join()
    return f"{N_INTERRUPTS} interrupts"


def _terminated(stage: Stage) -> str:
    """Send SIGTERM to a process that generates; it must end."""
    for number in range(20):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            model = Stage(stage.library, stage.folder).model
            while True:
                model.generate(CHAT, 20)
        time.sleep(0.02 + 0.005 * number)
        os.kill(child, signal.SIGTERM)
        status = _waited(child)
        if os.waitstatus_to_exitcode(status) != -signal.SIGTERM:
            raise Broken(
                f"expected the process to end by SIGTERM, got exit code"
                f" {os.waitstatus_to_exitcode(status)}"
            )
    return "20 ended"


def _forked(is_first: bool, stage: Stage) -> str:
    """Fork while a thread generates.

    In the child, the parent's model must raise an error, and a new model must work. `is_first`
    forks during the first calls of the library's functions, in which cffi holds a lock.
    """
    model = stage.model
    if not is_first:
        model.generate(CHAT, 20)
    is_over = threading.Event()

    def generate() -> None:
        while not is_over.is_set():
            model.generate(CHAT, 20)

    thread = threading.Thread(target=generate)
    thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                os._exit(_in_child(stage))
            code = os.waitstatus_to_exitcode(_waited(child))
            if code != 0:
                raise Broken(f"a child ended with {code}")
    finally:
        is_over.set()
        thread.join()
    return "50 forks"


def _in_child(stage: Stage) -> int:
    try:
        stage.model.choose(PROMPT, ACTIONS)
    except ElizaError as error:
        if "fork" not in str(error):
            return 2
    else:
        return 3
    with Stage(stage.library, stage.folder).model as own:
        return 0 if own.choose(PROMPT, ACTIONS).value in ACTIONS else 4


def _waited(child: int) -> int:
    end = time.monotonic() + END_LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise Broken(f"a child did not end within {END_LIMIT_S:g} s")


CASES = (
    *(
        Case(
            f"signals: {N_INTERRUPTS} interrupts, {what}",
            partial(_interrupted, what),
            Must.ANSWER,
            seconds=60,
        )
        for what in ("choose", "generate", "stream", "choose many", "open")
    ),
    Case("signals: SIGTERM during a generation", _terminated, Must.ANSWER, seconds=30),
    Case("signals: fork during a generation", partial(_forked, False), Must.ANSWER, seconds=30),
    Case(
        "signals: fork during the first generation",
        partial(_forked, True),
        Must.ANSWER,
        seconds=30,
    ),
)
