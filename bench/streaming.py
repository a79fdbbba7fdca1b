"""Measure the time that Python adds to a generated token.

Four consumers generate the same tokens in one process and take turns: a loop in C (compiled here)
over ``eliza_inference_llm_stream_next``, the same loop through cffi, `SyncStreamingRunner` and
`FfiStreamingRunner`. A model that takes about 20 ms per token shows the loss in tokens per second.
A model that takes some ten microseconds per token shows the time of a pull beyond the C call.

    $ python -m bench.streaming
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from page_tables import markdown_table, number

from eliza_ffi import CacheOptions
from eliza_ffi._resources import default_model_path
from eliza_ffi.elizaos import (
    FfiStreamingGenerateArgs,
    FfiStreamingRunner,
    SyncStreamingRunner,
    generate_args,
)
from eliza_ffi.model import Model

from .parts.compiled import address, compiled
from .parts.figures import in_turns, median, quartiles
from .parts.machine import machine_facts, machine_line
from .parts.pages import bench_parser, publish, stored_or_measured
from .parts.workload import Subject, wide

C_DECLARATION = "double drain(void * next, void * stream, int64_t * pulls);"

C_LOOP = """
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int (*next_function)(void *, int32_t *, size_t, size_t *, char *, size_t,
                             int32_t *, int32_t *, char **);

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Pulls until the generation ends. Returns the seconds from the first step to the last, or -1. */
double drain(void * function, void * stream, int64_t * pulls) {
    const next_function next = (next_function)function;
    int32_t tokens[32], drafted, accepted;
    char text[4096];
    size_t count;
    double first = 0.0;
    for (*pulls = 0;; ++*pulls) {
        const int status = next(stream, tokens, 32, &count, text, sizeof text,
                                &drafted, &accepted, NULL);
        if (status < 0) return -1.0;
        if (*pulls == 0) first = seconds();
        if (status == 1) return seconds() - first;
    }
}
"""

C_LOOP_NAME = "C loop"


@dataclass(frozen=True)
class PullEffort:
    """How long to measure.

    Attributes
    ----------
    slow_tokens, small_tokens : int
        Tokens of a generation with the model that takes 20 ms per token, and with the small model.
    """

    slow_tokens: int
    small_tokens: int
    slow_rounds: int
    small_rounds: int


# With short generations and many rounds, a slow moment of the machine spoils only one round.
FULL = PullEffort(slow_tokens=16, small_tokens=256, slow_rounds=80, small_rounds=200)
QUICK = PullEffort(slow_tokens=16, small_tokens=256, slow_rounds=8, small_rounds=40)


@dataclass(frozen=True)
class PullRun:
    """One generation: the pulls after its first step, and their seconds."""

    pulls: int
    seconds: float


class Consumers:
    """The ways to consume a generation, all with one model and one KV slot.

    Parameters
    ----------
    max_tokens
        Tokens of every generation. The model does not end earlier, because of the chosen prompt.

    Attributes
    ----------
    by_name : dict of str to callable
        Runs one generation and returns a `PullRun`.
    """

    def __init__(self, model: Model, max_tokens: int) -> None:
        self._model = model
        self._ffi, self._loop = compiled(C_DECLARATION, C_LOOP)
        self._args = endless_args(model, max_tokens)
        self._sync = SyncStreamingRunner(model.binding, model.session.ctx)
        self._async = FfiStreamingRunner(model.binding, model.session.ctx)
        self.by_name: dict[str, Callable[[], PullRun]] = {
            C_LOOP_NAME: self._in_c,
            "cffi loop": self._in_cffi,
            "SyncStreamingRunner": self._synchronously,
            "FfiStreamingRunner": lambda: asyncio.run(self._asynchronously()),
        }

    def _in_c(self) -> PullRun:
        return self._with_stream(self._drain)

    def _drain(self, stream: Any) -> PullRun:
        pull = self._model.binding.library.lib.eliza_inference_llm_stream_next
        pulls = self._ffi.new("int64_t *")
        handles = (address(self._ffi, pull), address(self._ffi, stream.pointer))
        seconds = self._loop.drain(*handles, pulls)
        if seconds < 0:
            raise RuntimeError("the C loop failed")
        return PullRun(pulls[0], seconds)

    def _in_cffi(self) -> PullRun:
        return self._with_stream(self._pull)

    def _pull(self, stream: Any) -> PullRun:
        pull = self._model.binding.library.lib.eliza_inference_llm_stream_next
        buffers = (stream.tokens, 32, stream.count, stream.text, stream.text_cap)
        counts = (stream.drafted, stream.accepted, stream.error)
        status = pull(stream.pointer, *buffers, *counts)
        first, pulls = time.perf_counter(), 0
        while status == 0:
            status = pull(stream.pointer, *buffers, *counts)
            pulls += 1
        if status < 0:
            raise RuntimeError("the cffi loop failed")
        return PullRun(pulls, time.perf_counter() - first)

    def _with_stream(self, consume: Callable[[Any], PullRun]) -> PullRun:
        binding = self._model.binding
        stream = binding.open(self._model.session.ctx, self._args.config())
        try:
            binding.prefill(stream, self._args.prompt_tokens)
            return consume(stream)
        finally:
            binding.close(stream)

    def _synchronously(self) -> PullRun:
        with closing(self._sync.generate_stream(self._args)) as steps:
            next(steps)
            first = time.perf_counter()
            for pulls, step in enumerate(steps, start=1):
                if step.done:
                    return PullRun(pulls, time.perf_counter() - first)
        raise RuntimeError("the generation stopped without a final step")

    async def _asynchronously(self) -> PullRun:
        async with aclosing(self._async.generate_stream(self._args)) as steps:
            await anext(steps)
            first, pulls = time.perf_counter(), 0
            async for step in steps:
                pulls += 1
                if step.done:
                    return PullRun(pulls, time.perf_counter() - first)
        raise RuntimeError("the generation stopped without a final step")


def endless_args(model: Model, max_tokens: int) -> FfiStreamingGenerateArgs:
    """Return the arguments of a greedy generation that ends only after `max_tokens` tokens.

    Raises
    ------
    RuntimeError
        If the model ends all prompts earlier.
    """
    for text in ("Once upon a time", "The", "A", "In", "1, 2, 3", "Why"):
        args = generate_args(model, text, max_tokens=max_tokens, cache=CacheOptions(slot=0))
        runner = SyncStreamingRunner(model.binding, model.session.ctx)
        if len(runner.generate_with_usage(args).tokens) == max_tokens:
            return args
    raise RuntimeError(f"the model ends every prompt before {max_tokens} tokens")


def measure(path: Path, max_tokens: int, rounds: int) -> dict[str, Any]:
    """Run all consumers, round by round, and return the figures of each.

    Returns
    -------
    dict
        ``token_ms`` is the C loop's time per token. ``consumers`` has, by name, medians over the
        rounds: ``tokens_per_second``; ``loss_percent``, the loss of speed compared with the C loop;
        and ``us_per_pull``, the additional microseconds of a pull. The last two are computed within
        each round, and have the standard error of their median as ``..._error``.
    """
    with Model(path, n_slots=1, n_threads=physical_cores()) as model:
        consumers = Consumers(model, max_tokens).by_name
        runs: dict[str, list[PullRun]] = {name: [] for name in consumers}
        for turn, names in enumerate(in_turns(consumers, rounds + 1)):
            for name in names:
                run = consumers[name]()
                if turn > 0:  # the first round warms up
                    runs[name].append(run)
    seconds = {name: np.array([run.seconds for run in each]) for name, each in runs.items()}
    pulls = np.array([run.pulls for run in runs[C_LOOP_NAME]])
    in_c = seconds[C_LOOP_NAME]
    return {
        "model": path.name,
        "tokens": max_tokens,
        "rounds": rounds,
        "token_ms": median(in_c / pulls) * 1e3,
        "consumers": {
            name: {
                "tokens_per_second": median(pulls / taken),
                **median_and_error("loss_percent", 100.0 * (1.0 - in_c / taken)),
                **median_and_error("us_per_pull", 1e6 * (taken - in_c) / pulls),
            }
            for name, taken in seconds.items()
        },
    }


def median_and_error(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    """Return a median and its standard error, as of normal values with the same quartiles."""
    low, middle, high = quartiles(values)
    deviation = (high - low) / 1.349
    return {
        name: middle,
        f"{name}_error": float(np.sqrt(np.pi / 2 / len(values)) * deviation),
    }


def markdown(results: dict[str, Any]) -> str:
    """Return the table: the loss, the rates, and the additional time of a pull."""
    slow, small = results["slow"], results["small"]

    def shown(figures: dict[str, float], name: str) -> str:
        return f"{figures[name]:.1f} ± {figures[f'{name}_error']:.1f}"

    rows = [
        [
            name,
            "" if name == C_LOOP_NAME else shown(figures, "loss_percent"),
            number(figures["tokens_per_second"]),
            "" if name == C_LOOP_NAME else shown(small["consumers"][name], "us_per_pull"),
        ]
        for name, figures in slow["consumers"].items()
    ]
    head = ["consumer", "loss, %", "tokens per second", "additional time per pull, µs"]
    intro = (
        f"{machine_line(results['machine'])} Loss and tokens per second: a model that takes "
        f"{slow['token_ms']:.1f} ms per token, {slow['rounds']} generations of {slow['tokens']} "
        "tokens. Additional time per pull, compared with the C loop: a model that takes "
        f"{small['token_ms'] * 1e3:.0f} µs per token, {small['rounds']} generations of "
        f"{small['tokens']} tokens. Losses and additional times are medians of the differences "
        "within a round, ± their standard error."
    )
    return f"{intro}\n\n{markdown_table(head, rows)}\n"


def physical_cores() -> int:
    """Return the default number of compute threads.

    The benchmark passes this number explicitly, because otherwise the library may change the number
    during the run.
    """
    with Model() as model:
        return int(model.describe()["threads"])


SLOW = wide("slow", "llama-spm")
"""A model that takes about 20 ms per token on a small machine."""

SMALL = Subject("small", str(default_model_path()), n_embd=32, n_layers=1, n_heads=2)
"""A very small model: one narrow layer, and a vocabulary of 2k tokens."""


def run(effort: PullEffort) -> dict[str, Any]:
    """Measure both models and return the results."""
    return {
        "machine": machine_facts(),
        "effort": asdict(effort),
        "slow": measure(SLOW.path(), effort.slow_tokens, effort.slow_rounds),
        "small": measure(SMALL.path(), effort.small_tokens, effort.small_rounds),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Measure the time that Python adds to a token.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and tokens")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    results = stored_or_measured(options, "streaming", lambda: run(effort))
    return publish("streaming", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
