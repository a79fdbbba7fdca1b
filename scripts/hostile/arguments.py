"""Deep, huge and malformed arguments of the C functions; options; caches."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from make_test_models import cached_model
from stage import ACTIONS, CHAT, PROMPT, Stage

from eliza_ffi import Gbnf, Sampling
from eliza_ffi.errors import error_from_status
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.structured import Skeleton, SkeletonSpan

from .case import Broken, Case, Must, cases, cpu_seconds

DEPTH = 10_000
HUGE = 20_000_000

# Input that is invalid or extreme for every function.
MALFORMED: dict[str, bytes] = {
    "10,000 arrays deep": b"[" * DEPTH + b"]" * DEPTH,
    "10,000 objects deep": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    "a million unclosed arrays": b"[" * 1_000_000,
    "a string of 20 MB": b'"' + b"a" * HUGE + b'"',
    "an array of 20 MB": b"[" + b"1," * (HUGE // 2) + b"1]",
    "an unknown member of 20 MB": b'{"x":"' + b"a" * HUGE + b'"}',
    "a number of a million digits": b"[" + b"9" * 1_000_000 + b"]",
    "invalid UTF-8": b'["\xff\xfe\xc0\x80"]',
    "a name of invalid UTF-8": b'{"\xff\xfe": 1}',
    "a lone surrogate": b'["\\ud800"]',
    "a raw NUL": b'["a\0b"]\0',
    "an escaped NUL": b'["a\\u0000b", "a\\u0000b"]',
    "a NUL between values": b"[]\0[]",
    "an empty text": b"",
    "a million spaces": b" " * 1_000_000,
    "a number instead of an object": b"17",
    "a duplicate name": b'{"descriptors":[],"descriptors":[]}',
    "NaN": b"[NaN]",
    "a number that overflows": b"[1e999999999]",
    "only the magic RTKT": b"RTKT",
    "RTKT of 2 ** 32 - 1 nodes": b"RTKT" + b"\1\0\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff" * 8,
}

Native = Callable[[Any, Any, bytes, Any], int]
"""Calls a C function with the library, a stream or context, bytes and an error pointer; returns its
status."""


@contextmanager
def _stream(stage: Stage) -> Iterator[Any]:
    """Yield a stream that has read a prompt."""
    binding = stage.model.binding
    with closing(binding.open(stage.model.session.ctx, StreamConfig())) as stream:
        binding.prefill(stream, stage.model.prompt_tokens(PROMPT))
        yield stream.pointer


@contextmanager
def _unloaded(stage: Stage) -> Iterator[Any]:
    """Yield a context that has not loaded its model."""
    binding = stage.model.binding
    ctx = binding.create(stage.model.path)
    try:
        yield ctx
    finally:
        binding.destroy(ctx)


def _loaded(stage: Stage) -> AbstractContextManager[Any]:
    return nullcontext(stage.model.session.ctx)


def _call(owner: Owner, native: Native, raw: bytes, stage: Stage) -> None:
    lib, ffi = stage.library.lib, stage.library.ffi
    with owner(stage) as called:
        error = ffi.new("char **")
        status = native(stage.library, called, raw, error)
        if status >= 0:
            return
        if not error[0] and owner is _stream:
            said = ffi.string(lib.eliza_inference_last_error(called))
        else:
            said = ffi.string(error[0]) if error[0] else b""
            lib.eliza_inference_free_string(error[0])
    if not said:
        raise Broken(f"status {status} without an error message")
    raise error_from_status(status, said.decode("utf-8", "strict")[:300], "call it")


def _fill(library: Any, stream: Any, raw: bytes, error: Any) -> int:
    out = library.ffi.new("char **")
    status = library.lib.eliza_inference_llm_stream_fill(stream, raw, len(raw), out, error)
    library.lib.eliza_inference_free_string(out[0])
    return int(status)


def _prepare(name: str, library: Any, ctx: Any, raw: bytes, error: Any) -> int:
    prepare = getattr(library.lib, f"eliza_inference_{name}")
    choices = prepare(ctx, raw, len(raw), library.ffi.NULL, error)
    library.lib.eliza_inference_free_choices(choices)
    return 0 if choices else -2


def _set(name: str, library: Any, stream: Any, raw: bytes, error: Any) -> int:
    function = getattr(library.lib, f"eliza_inference_{name}")
    more = error if name == "llm_stream_set_sampling" else 0  # the others have a mode
    return int(function(stream, raw, len(raw), more))


def _option(name: str, library: Any, ctx: Any, raw: bytes, error: Any) -> int:
    return int(library.lib.eliza_inference_set_option(ctx, name.encode(), raw, error))


Owner = Callable[[Stage], AbstractContextManager[Any]]
# These functions take a length, so NUL characters reach them. The others end the text at a NUL.
SETTERS = ("set_token_trie", "set_text_choices", "llm_stream_set_sampling")
BY_LENGTH: dict[str, tuple[Owner, Native]] = {
    **{name: (_stream, partial(_set, name)) for name in SETTERS},
    "fill": (_stream, _fill),
    **{
        name: (_loaded, partial(_prepare, name))
        for name in ("prepare_choices", "prepare_token_trie")
    },
}
OPTIONS = ("logit_bias", "grammar_triggers", "dry_sequence_breakers")
CALLS: dict[str, tuple[Owner, Native]] = {
    **BY_LENGTH,
    **{f"option {name}": (_loaded, partial(_option, name)) for name in OPTIONS},
    "option lora": (_unloaded, partial(_option, "lora")),
}
SURE = (
    *("10,000 arrays deep", "10,000 objects deep", "an array of 20 MB"),
    *("a million unclosed arrays", "invalid UTF-8"),
)
"""The input that every function must reject."""


# ---- Caches, options, long lists ----------------------------------------------------------------


def _many_choice_sets(tokenization: Any, stage: Stage) -> str:
    draw = random.Random(1)
    for number in range(1000):
        names = [f"{draw.getrandbits(40):010x}-{number}" for _ in range(100)]
        stage.model.choose(PROMPT, names, tokenization=tokenization)
    return "1,000 sets"


def _many_skeletons(stage: Stage) -> str:
    for number in range(300):
        kinds = tuple(f"K{number}_{i}" for i in range(50))
        spans = (
            SkeletonSpan("literal", value='{"id":'),
            SkeletonSpan("integer", "id"),
            SkeletonSpan("literal", value=',"kind":'),
            SkeletonSpan("enum", "kind", enum_values=kinds),
            SkeletonSpan("literal", value="}"),
        )
        stage.model.fill(PROMPT, Skeleton(spans), max_tokens=2, on_limit="close")
    return "300 skeletons"


def _many_grammars(stage: Stage) -> str:
    for number in range(500):
        words = " | ".join(f'"word{number}x{i}"' for i in range(100))
        stage.model.generate(PROMPT, 1, schema=Gbnf(f"root ::= {words}"))
    return "500 grammars"


def _many_options(stage: Stage) -> str:
    for number in range(20_000):
        stage.set_option("model_id", f"model {number}" * 10)
    stage.set_option("model_id", "")
    return "20,000 options"


def _large_vocabulary() -> Path:
    return cached_model("gemma-4", n_embd=64, n_layers=2, seed=1)


def _bias_everything(stage: Stage) -> str:
    """Give every token of a vocabulary a bias: as a sampling setting, and as an option."""
    with stage.open(_large_vocabulary()) as model:
        n = model.describe()["model"]["n_vocab"]
        biases = [(token, 0.25) for token in range(n)]
        model.generate(PROMPT, 1)
        sampling, option = Sampling(logit_bias=tuple(biases)), json.dumps(biases)
        set_option = partial(model.binding.set_option, model.session.ctx)
        times = {
            "a setting": cpu_seconds(lambda: model.generate(PROMPT, 2, sampling=sampling)),
            "an option": cpu_seconds(lambda: set_option("logit_bias", option)),
            "a stream with the option": cpu_seconds(lambda: model.generate(PROMPT, 2)),
        }
    said = ", ".join(f"{name} {took:.2f} s" for name, took in times.items())
    if max(times.values()) > 1:
        raise Broken(f"{n:,} biases: {said}")
    return said


def _with_stops(stops: list[str], stage: Stage) -> str:
    return stage.model.generate(CHAT, 20, stop=stops).text


def _from(labels: list[str], stage: Stage) -> str:
    return str(stage.model.choose(PROMPT, labels).value)


def _long_prompt(stage: Stage) -> str:
    return str(stage.model.choose("many words " * 1_000_000, ACTIONS).value)


def _many_breakers(stage: Stage) -> str:
    breakers = tuple(f"{i:039d}" for i in range(20_000))
    sampling = Sampling(temperature=0.5, dry_multiplier=0.5, dry_sequence_breakers=breakers)
    return stage.model.generate(CHAT, 4, sampling=sampling).text


STOPS = [f"stop number {i}" for i in range(100_000)]
LABELS = [f"choice {i}" for i in range(100_000)]
LONG_LABELS = ["a" * 1_000_000, "b"]
MALFORMED_CASES = [
    Case(
        f"arguments: {function}, {name}",
        partial(_call, owner, native, raw),
        Must.FAIL if name in SURE else Must.END,
        seconds=3,
        mib=700,
    )
    for function, (owner, native) in CALLS.items()
    for name, raw in MALFORMED.items()
    if "NUL" not in name or function in BY_LENGTH
]

CASES = (
    *MALFORMED_CASES,
    *cases(
        "caches: 1,000 sets of labels, {} tokenization",
        _many_choice_sets,
        {"canonical": "canonical", "any": "any"},
        Must.ANSWER,
        seconds=60,
    ),
    Case("caches: 300 schemas", _many_skeletons, Must.ANSWER, seconds=60),
    Case("caches: 500 grammars", _many_grammars, Must.ANSWER, seconds=60),
    Case("options: set 20,000 times", _many_options, Must.ANSWER, seconds=5),
    Case(
        "options: a bias for each of 262,144 tokens",
        _bias_everything,
        Must.ANSWER,
        seconds=10,
        mib=400,
        prepare=lambda _: _large_vocabulary(),
    ),
    Case("options: 20,000 breakers", _many_breakers, seconds=20, neighbour=True),
    *cases(
        "options: {}",
        _with_stops,
        {"100,000 stop strings": STOPS, "a stop string of 10 MB": ["a" * 10_000_000]},
        seconds=5,
        neighbour=True,
    ),
    Case("options: 100,000 labels", partial(_from, LABELS), Must.ANSWER, seconds=10, mib=300),
    Case("options: a label of a megabyte", partial(_from, LONG_LABELS), seconds=10, neighbour=True),
    Case("options: a prompt of 11 MB", _long_prompt, Must.FAIL, "context", 20, 1500),
    Case("options: labels with a NUL", partial(_from, ["a\0b", "a\0c"])),
)
