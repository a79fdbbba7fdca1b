"""Measure the work around a choice: setting a trie, and opening and closing a stream.

All times are times of C calls. Calls of several threads come from a loop in C (compiled here),
so that threads do not wait for Python's global interpreter lock. All other calls come from Python.

    $ python -m bench.tries
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from page_tables import markdown_table, number

from eliza_ffi.library.protocol import TRIE_ARGMAX, StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.session.lifecycle import open_stream

from .model import Alternatives
from .parts.compiled import address, compiled
from .parts.figures import percentiles
from .parts.machine import machine_facts, machine_line
from .parts.pages import bench_parser, page_of, publish, stored_or_measured
from .parts.workload import action_names

C_DECLARATION = """
int race(void * function, int n_threads, void ** streams, int n_calls, const char ** payloads,
         const size_t * lengths, double * microseconds, double * seconds);
"""

C_RACE = """
#include <pthread.h>
#include <stddef.h>
#include <time.h>

typedef int (*set_function)(void *, const char *, size_t, int);

typedef struct {
    set_function set;
    void * stream;
    int n_calls, failed;
    const char ** payloads;
    const size_t * lengths;
    double * microseconds;
    pthread_barrier_t * start;
} racer;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void * run(void * user) {
    racer * me = user;
    pthread_barrier_wait(me->start);
    for (int i = 0; i < me->n_calls; ++i) {
        const double begin = now();
        me->failed |= me->set(me->stream, me->payloads[i], me->lengths[i], 0) < 0;
        me->microseconds[i] = (now() - begin) * 1e6;
    }
    return NULL;
}

/* Each thread sets its own n_calls payloads on its own stream. Writes the microseconds of each
 * call, shape [n_threads][n_calls], and the seconds from the start until the last thread has
 * finished. Returns 0, or -1 if a call failed. */
int race(void * function, int n_threads, void ** streams, int n_calls, const char ** payloads,
         const size_t * lengths, double * microseconds, double * seconds) {
    pthread_t threads[64];
    racer racers[64];
    pthread_barrier_t start;
    int failed = 0;
    pthread_barrier_init(&start, NULL, (unsigned)n_threads + 1);
    for (int t = 0; t < n_threads; ++t) {
        const size_t first = (size_t)t * (size_t)n_calls;
        racers[t] = (racer){(set_function)function, streams[t], n_calls, 0, payloads + first,
                            lengths + first, microseconds + first, &start};
        pthread_create(&threads[t], NULL, run, &racers[t]);
    }
    const double begin = now();
    pthread_barrier_wait(&start);
    for (int t = 0; t < n_threads; ++t) {
        pthread_join(threads[t], NULL);
        failed |= racers[t].failed;
    }
    *seconds = now() - begin;
    pthread_barrier_destroy(&start);
    return failed ? -1 : 0;
}
"""

MOST_THREADS = 8


@dataclass(frozen=True)
class TrieEffort:
    """How long to measure.

    Attributes
    ----------
    leaves : tuple of int
        Numbers of action names in the tries that one thread sets.
    shared_leaves : int
        Number of action names in the tries that several threads set.
    calls : int
        Calls of one thread for each figure.
    raced_known, raced_new : int
        Calls of each of several threads, with a cached payload and with new payloads.
    """

    leaves: tuple[int, ...]
    shared_leaves: int
    calls: int
    raced_known: int
    raced_new: int


FULL = TrieEffort(
    (3, 30, 200, 3000), shared_leaves=200, calls=300, raced_known=20_000, raced_new=300
)
QUICK = TrieEffort((3, 200), shared_leaves=200, calls=60, raced_known=3_000, raced_new=60)


def microseconds_of(call: Callable[[], Any], calls: int) -> dict[str, float]:
    """Return the median and the 99th percentile of a call's microseconds."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return percentiles(np.array(times) * 1e6, "*_us")


@contextmanager
def open_streams(model: Model, count: int) -> Iterator[list[Any]]:
    """Open streams and close them at the end."""
    with ExitStack() as opened:
        ctx = model.session.ctx
        yield [
            opened.enter_context(open_stream(model.binding, ctx, StreamConfig()))
            for _ in range(count)
        ]


def measure_setting(model: Model, n_leaves: int, calls: int) -> dict[str, Any]:
    """Set the trie of some action names from Python, with new payloads and with a cached one."""
    alternatives = Alternatives.of_texts(model, action_names(n_leaves))
    unseen = iter([alternatives.unseen_json() for _ in range(calls)])
    binding = model.binding
    with open_streams(model, 1) as (stream,):
        new = microseconds_of(
            lambda: binding.set_token_trie(stream, next(unseen), TRIE_ARGMAX), calls
        )
        binding.set_token_trie(stream, alternatives.json, TRIE_ARGMAX)
        known = microseconds_of(
            lambda: binding.set_token_trie(stream, alternatives.json, TRIE_ARGMAX), calls
        )
    return {"leaves": n_leaves, "bytes": len(alternatives.json), "new": new, "known": known}


def measure_race(
    model: Model, n_leaves: int, n_threads: int, calls: int, *, known: bool
) -> dict[str, Any]:
    """Set tries from several threads at once: all with one cached payload, or all with new ones.

    Returns
    -------
    dict
        ``threads``, ``known``, ``calls_per_second`` of all threads together, and ``p50_us`` and
        ``p99_us`` of a call.
    """
    alternatives = Alternatives.of_texts(model, action_names(n_leaves))
    total = n_threads * calls
    payloads = [alternatives.json if known else alternatives.unseen_json() for _ in range(total)]
    ffi, lib = compiled(C_DECLARATION, C_RACE)
    held = {payload: ffi.from_buffer("char[]", payload) for payload in set(payloads)}
    microseconds = np.zeros(total)
    seconds = ffi.new("double *")
    with open_streams(model, n_threads) as streams:
        if known:
            model.binding.set_token_trie(streams[0], alternatives.json, TRIE_ARGMAX)
        status = lib.race(
            address(ffi, model.binding.library.lib.eliza_inference_set_token_trie),
            n_threads,
            [address(ffi, stream.pointer) for stream in streams],
            calls,
            [held[payload] for payload in payloads],
            [len(payload) for payload in payloads],
            ffi.from_buffer("double[]", microseconds),
            seconds,
        )
    if status != 0:
        raise RuntimeError("the library rejected a trie")
    rate = total / seconds[0]
    return {
        "threads": n_threads,
        "known": known,
        "calls_per_second": rate,
        **percentiles(microseconds, "*_us"),
    }


def measure_streams(model: Model, calls: int) -> dict[str, Any]:
    """Open and close a stream, without a prompt and with a prompt that is in the slot."""
    binding, ctx = model.binding, model.session.ctx
    prompt = model.tokenize("Which tool helps best? Answer: ", add_special=True)

    def open_and_close() -> None:
        binding.close(binding.open(ctx, StreamConfig()))

    def with_prompt() -> None:
        with open_streams(model, 1) as (stream,):
            binding.prefill(stream, prompt)

    with_prompt()
    return {
        "open_and_close": microseconds_of(open_and_close, calls),
        "with_known_prompt": microseconds_of(with_prompt, calls),
    }


def run(effort: TrieEffort) -> dict[str, Any]:
    """Measure everything with the embedded model."""
    with Model(n_slots=MOST_THREADS, n_threads=1) as model:
        return {
            "machine": machine_facts(),
            "effort": asdict(effort),
            "setting": [measure_setting(model, n, effort.calls) for n in effort.leaves],
            "race": [
                measure_race(model, effort.shared_leaves, n_threads, calls, known=known)
                for known, calls in ((True, effort.raced_known), (False, effort.raced_new))
                for n_threads in (1, 2, MOST_THREADS)
            ],
            "streams": measure_streams(model, effort.calls),
        }


def markdown(results: dict[str, Any]) -> str:
    """Return the tables."""
    setting = [
        [
            f"{each['leaves']:,}",
            f"{each['bytes'] / 1024:.1f}",
            *(number(each[kind][p]) for kind in ("new", "known") for p in ("p50_us", "p99_us")),
        ]
        for each in results["setting"]
    ]
    race = [
        [
            "the same, cached" if each["known"] else "all new",
            f"{each['threads']}",
            number(each["calls_per_second"]),
            number(each["p50_us"]),
            number(each["p99_us"]),
        ]
        for each in results["race"]
    ]
    streams = [
        [
            label,
            number(results["streams"][key]["p50_us"]),
            number(results["streams"][key]["p99_us"]),
        ]
        for label, key in (
            ("open and close", "open_and_close"),
            ("open, prefill a prompt that is in the slot, close", "with_known_prompt"),
        )
    ]
    return page_of(
        machine_line(results["machine"]),
        "Setting the trie of some action names from Python, with a new payload and with a cached "
        "one: microseconds, median and p99",
        markdown_table(["names", "payload, KiB", "new", "p99", "cached", "p99"], setting),
        f"Setting the trie of {results['effort']['shared_leaves']} names from C, with several "
        "threads at once, each on its own stream: microseconds per call",
        markdown_table(["payload", "threads", "calls per second", "median", "p99"], race),
        "Opening and closing a stream from Python: microseconds",
        markdown_table(["", "median", "p99"], streams),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Measure setting tries and opening streams.")
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    results = stored_or_measured(options, "tries", lambda: run(effort))
    return publish("tries", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
