#!/usr/bin/env python3
"""Use one process for a long time in every way at once; memory, files and threads must not grow.

    $ make check CHECK=soak  # 100,000 choices, 5,000 loads
    $ make check CHECK=soak CHECK_ARGS='--choices 5000 --loads 200'  # a few minutes
    $ make check CHECK=soak CHECK_ARGS='--seconds 60'  # at most a minute for each part

In the first part, several threads share a model and do the random things of `ACTIVITIES`, while
SIGINT interrupts the main thread. Every choice must equal the first answer to the same prompt. In
the second part, models are opened and closed. Both parts measure the process after a tenth, when
everything that is allocated once exists, and at the end. Needs Linux's /proc.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from operations import USES
from stage import ACTIONS, CHAT, Stage

from eliza_ffi import Gbnf
from eliza_ffi.elizaos import generate_args, runner_of
from eliza_ffi.errors import GenerationCancelledError, InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

N_THREADS = 6
N_WAYS = 12
MAX_MIB = 12.0
"""Tolerance for the memory: the variation of an allocator with several threads' arenas."""

MAX_MIB_OF_LOADS = 3.0
"""The same with one thread: far less than a kilobyte for each load."""

MAX_DIFFERENCE = 0.01
"""Tolerance for a probability: streams that share a forward pass round differently."""

PROMPTS = [
    *(f"message: {said}\naction: " for said in ("hello", "stop it", "haha", "could you look?")),
    *(f"message: number {number}\naction: " for number in range(20)),
]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Use one process for a long time in every way.")
    add = parser.add_argument
    add("--choices", type=int, default=100_000, metavar="N", help="default: 100000")
    add("--loads", type=int, default=5_000, metavar="N", help="default: 5000")
    add("--seconds", type=float, default=math.inf, metavar="S", help="time limit of each part")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        held = soak.run(options.choices, options.seconds)
        soak.model.close()
    print(", ".join(f"{count:,} {name}" for name, count in sorted(soak.done.items())))
    problems = [*soak.problems, *growth("choices", *held, MAX_MIB)]
    if options.loads > 0:
        problems += growth("loads", *cycles(options.loads, options.seconds), MAX_MIB_OF_LOADS)
    for problem in problems[:20]:
        print(f"check_soak: {problem}", file=sys.stderr)
    return 1 if problems else 0


@dataclass(frozen=True)
class Held:
    """The resources of a process at one moment."""

    mib: float  # resident memory, in MiB
    objects: int  # objects tracked by Python's garbage collector
    files: int  # open files and threads
    threads: int

    @staticmethod
    def now() -> Held:
        gc.collect()
        # glibc keeps freed memory for later allocations; without the trim it looks like a leak.
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return Held(
            mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            objects=len(gc.get_objects()),
            files=sum(1 for _ in Path("/proc/self/fd").iterdir()),
            threads=sum(1 for _ in Path("/proc/self/task").iterdir()),
        )


def growth(part: str, early: Held, late: Held, most_mib: float) -> Iterator[str]:
    """Print what the process held, and yield a line for each resource that grew."""
    print(f"{part}: after a tenth {early}, at the end {late}")
    for name, most in {"mib": most_mib, "objects": 100, "files": 0, "threads": 0}.items():
        grown = getattr(late, name) - getattr(early, name)
        if grown > most:
            yield f"{part}: the process grew by {grown:.2f} {name}"


def cycles(count: int, seconds: float) -> tuple[Held, Held]:
    """Open, use and close a model `count` times; return measurements after a tenth and at the end.

    Stops early when `seconds` have passed.
    """
    begin = time.monotonic()
    early: Held | None = None
    for done in range(1, count + 1):
        with Model() as model:
            model.choose("message: hello\naction: ", ["RESPOND", "IGNORE"])
            model.generate("Once", 2)
        passed = time.monotonic() - begin
        if early is None and (done >= count // 10 or passed > seconds / 10):
            early = Held.now()
        if passed > seconds:
            break
    late = Held.now()
    return early or late, late


class Soak:
    """Several threads that use one model."""

    def __init__(self, folder: Path) -> None:
        self._stage = Stage(Library(), folder, n_ctx=2048)
        self.model = self._stage.model
        self._runner = runner_of(self.model)
        self.done: Counter[str] = Counter()  # how often each activity was completed
        self.problems: list[str] = []  # wrong results and unexpected errors
        self._lock = threading.Lock()
        self._left = 0
        self._ends_at = 0.0
        self._expected = {prompt: self.model.choose(prompt, ACTIONS) for prompt in PROMPTS}

    def run(self, n_choices: int, seconds: float) -> tuple[Held, Held]:
        """Run until `n_choices` are made; return measurements after a tenth and at the end."""
        draw = random.Random(1)
        # Allocate everything that is allocated once, even if the first tenth is short.
        for each in USES.values():
            each(self._stage)
        for number in range(200):  # fills the cache of label sets
            self.model.choose(PROMPTS[0], [f"a{number}", f"b{number}"])
        for _, activity in [*ACTIVITIES.values()] * N_WAYS:
            activity(self, draw)
        self._round(max(1, n_choices // 10), seconds / 10, draw)
        early = Held.now()
        self._round(n_choices - n_choices // 10, seconds * 0.9, draw)
        return early, Held.now()

    def _round(self, n_choices: int, seconds: float, draw: random.Random) -> None:
        self._left = n_choices
        self._ends_at = time.monotonic() + seconds
        seeds = [draw.random() for _ in range(N_THREADS)]
        threads = [threading.Thread(target=self._work, args=(seed,)) for seed in seeds]
        for thread in threads:
            thread.start()
        self._be_interrupted(draw)
        for thread in threads:
            thread.join()

    @property
    def _is_running(self) -> bool:
        return self._left > 0 and time.monotonic() < self._ends_at and not self.problems

    def _work(self, seed: float) -> None:
        draw = random.Random(seed)
        weights = [weight for weight, _ in ACTIVITIES.values()]
        while self._is_running:
            ((name, (_, activity)),) = draw.choices([*ACTIVITIES.items()], weights)
            try:
                self._count(name, activity(self, draw) or 0)
            except BaseException:
                self.problems.append(f"{name}: {traceback.format_exc(limit=-4)}")

    def _count(self, name: str, n_choices: int) -> None:
        with self._lock:
            self.done[name] += 1
            self._left -= n_choices

    def _be_interrupted(self, draw: random.Random) -> None:
        """Choose on the main thread while SIGINT interrupts it again and again."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt = partial(os.kill, os.getpid(), signal.SIGINT)
        try:
            while self._is_running:
                sender = threading.Timer(draw.uniform(0.01, 0.2), interrupt)
                n_choices = 0
                try:
                    sender.start()
                    while sender.is_alive():
                        n_choices += self.choose(draw)
                    time.sleep(10)  # the signal was sent and arrives any moment
                    self.problems.append("an interrupt was lost")
                except KeyboardInterrupt:
                    pass
                except BaseException as error:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it may still be on its way
                    self.problems.append(f"expected KeyboardInterrupt, got {error!r}")
                sender.join()
                self._count("interrupts", n_choices)
        finally:
            signal.signal(signal.SIGINT, before)

    # ---- Activities; they return the number of choices that they made -------------------------

    def choose(self, draw: random.Random) -> int:
        """Choose, and compare with the first answer."""
        prompt = draw.choice(PROMPTS)
        choice = self.model.choose(prompt, ACTIONS)
        expected = self._expected[prompt]
        difference = abs(choice.probability - expected.probability)
        if choice.value != expected.value or difference > MAX_DIFFERENCE:
            raise AssertionError(f"{prompt!r}: expected {expected}, as at first, got {choice}")
        return 1

    def choose_otherwise(self, draw: random.Random) -> int:
        model, prompt = self.model, draw.choice(PROMPTS)
        if draw.random() < 0.5:
            model.choose(prompt, ACTIONS, mode="sample", temperature=1.5)
        else:
            model.choose(prompt, [f"n{draw.getrandbits(30)}" for _ in range(20)])
        return 1

    def use(self, draw: random.Random) -> None:
        """Use the model in another way, such as a decision, a grammar, or an embedding."""
        draw.choice([*USES.values()])(self._stage)

    def cancel(self, draw: random.Random) -> None:
        """Cancel a generation from another thread at a random moment."""
        args = generate_args(self.model, CHAT, max_tokens=200)
        generation = self._runner.generation(args)
        canceller = threading.Timer(draw.uniform(0, 0.01), generation.cancel)
        canceller.start()
        with suppress(GenerationCancelledError), self.model.session.turns.one(None):
            list(generation.steps())
        canceller.join()

    def give_up(self, draw: random.Random) -> None:
        texts = self.model.stream(CHAT, 50)
        for _, _ in zip(range(draw.randrange(3)), texts, strict=False):
            pass
        texts.close()

    def save(self, draw: random.Random) -> None:
        """Save a prompt and restore it, while other threads save to the same files."""
        path = self._stage.folder / f"{draw.randrange(4)}.slot"
        prompt = draw.choice(PROMPTS) + "more words " * draw.randrange(20)
        self.model.save_prompt_cache(path, prompt)
        self.model.load_prompt_cache(path)

    def fail(self, draw: random.Random) -> None:
        """Call a method with invalid arguments, which it must reject."""
        wrong: list[Callable[[], object]] = [
            lambda: self.model.choose("a", ["b", "b"]),
            lambda: self.model.choose([], ACTIONS),
            lambda: self.model.choose([2**30], ACTIONS),
            lambda: self.model.generate("a", 4, schema=Gbnf('root ::= "a')),
            lambda: self.model.generate("a", 4, top_p=-1.0, min_p=2.0),
        ]
        try:
            draw.choice(wrong)()
        except InvalidArgumentError:
            return
        raise AssertionError("an invalid argument was accepted")


ACTIVITIES: dict[str, tuple[float, Callable[[Soak, random.Random], int | None]]] = {
    "choices": (60, Soak.choose),
    "choices in other ways": (5, Soak.choose_otherwise),
    "other uses": (17, Soak.use),
    "cancelled": (5, Soak.cancel),
    "given up": (3, Soak.give_up),
    "saved and restored": (3, Soak.save),
    "refused": (3, Soak.fail),
}
"""The threads' activities, each with its approximate frequency in percent."""


if __name__ == "__main__":
    sys.exit(main())
