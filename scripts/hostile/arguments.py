"""Deep, huge and malformed arguments of the C functions; options; caches."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from make_test_models import cached_model

from eliza_ffi import Gbnf, Sampling
from eliza_ffi.errors import error_from_status
from eliza_ffi.library.protocol import StreamConfig

from .case import ACTIONS, CHAT, PROMPT, Broken, Case, Must, Stage

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

Call = Callable[[Stage, bytes], None]


def _stream_call(name: str, *more: int) -> Call:
    """Return a caller of a C function that takes a stream, JSON and its length."""

    def call(stage: Stage, raw: bytes) -> None:
        binding, lib, ffi = stage.model.binding, stage.library.lib, stage.library.ffi
        stream = binding.open(stage.model.session.ctx, StreamConfig())
        try:
            binding.prefill(stream, stage.model.prompt_tokens(PROMPT))
            error = ffi.new("char **")
            last = (error,) if name == "llm_stream_set_sampling" else ()
            status = getattr(lib, f"eliza_inference_{name}")(
                stream.pointer, raw, len(raw), *more, *last
            )
            _check(stage, status, error, stream)
        finally:
            binding.close(stream)

    return call


def _fill(stage: Stage, raw: bytes) -> None:
    binding, lib, ffi = stage.model.binding, stage.library.lib, stage.library.ffi
    stream = binding.open(stage.model.session.ctx, StreamConfig())
    out, error = ffi.new("char **"), ffi.new("char **")
    try:
        binding.prefill(stream, stage.model.prompt_tokens(PROMPT))
        status = lib.eliza_inference_llm_stream_fill(stream.pointer, raw, len(raw), out, error)
        lib.eliza_inference_free_string(out[0])
        _check(stage, status, error, stream)
    finally:
        binding.close(stream)


def _prepare(name: str) -> Call:
    """Return a caller of a C function that prepares choices."""

    def call(stage: Stage, raw: bytes) -> None:
        lib, ffi = stage.library.lib, stage.library.ffi
        error = ffi.new("char **")
        prepare = getattr(lib, f"eliza_inference_{name}")
        choices = prepare(stage.model.session.ctx, raw, len(raw), ffi.NULL, error)
        if choices:
            lib.eliza_inference_free_choices(choices)
        _check(stage, 0 if choices else -2, error, None)

    return call


def _option(name: str) -> Call:
    def call(stage: Stage, raw: bytes) -> None:
        lib, ffi = stage.library.lib, stage.library.ffi
        error = ffi.new("char **")
        ctx = stage.model.session.ctx
        status = lib.eliza_inference_set_option(ctx, name.encode(), raw, error)
        _check(stage, status, error, None)

    return call


def _early_option(name: str) -> Call:
    """Return a caller that sets an option before the model is loaded."""

    def call(stage: Stage, raw: bytes) -> None:
        lib, ffi = stage.library.lib, stage.library.ffi
        binding = stage.model.binding
        error = ffi.new("char **")
        ctx = binding.create(stage.model.path)
        try:
            status = lib.eliza_inference_set_option(ctx, name.encode(), raw, error)
            _check(stage, status, error, None)
        finally:
            binding.destroy(ctx)

    return call


def _check(stage: Stage, status: int, error: Any, stream: Any) -> None:
    lib, ffi = stage.library.lib, stage.library.ffi
    if status >= 0:
        return
    pointer = error[0]
    if not pointer and stream is not None:
        said = ffi.string(lib.eliza_inference_last_error(stream.pointer))
    else:
        said = ffi.string(pointer) if pointer else b""
        lib.eliza_inference_free_string(pointer)
    if not said:
        raise Broken(f"status {status} without an error message")
    raise error_from_status(status, said.decode("utf-8", "strict")[:300], "call it")


CALLS: dict[str, Call] = {
    "set_token_trie": _stream_call("set_token_trie", 0),
    "set_text_choices": _stream_call("set_text_choices", 0),
    "set_sampling": _stream_call("llm_stream_set_sampling"),
    "fill": _fill,
    "prepare_choices": _prepare("prepare_choices"),
    "prepare_token_trie": _prepare("prepare_token_trie"),
    **{
        f"option {name}": _option(name)
        for name in ("logit_bias", "grammar_triggers", "dry_sequence_breakers")
    },
    "option lora": _early_option("lora"),
}
# These functions take a length, so NUL characters reach them. The others end the text at a NUL.
BY_LENGTH = (
    "set_token_trie",
    "set_text_choices",
    "set_sampling",
    "fill",
    "prepare_choices",
    "prepare_token_trie",
)


def _give(call: Call, raw: bytes, stage: Stage) -> None:
    call(stage, raw)


def _json_cases() -> list[Case]:
    cases = []
    for function, call in CALLS.items():
        for name, raw in MALFORMED.items():
            if "NUL" in name and function not in BY_LENGTH:
                continue
            is_sure = name in ("10,000 arrays deep", "10,000 objects deep", "an array of 20 MB")
            is_sure = is_sure or name in ("a million unclosed arrays", "invalid UTF-8")
            must = Must.FAIL if is_sure else Must.END
            cases.append(
                Case(
                    f"arguments: {function}, {name}",
                    partial(_give, call, raw),
                    must,
                    seconds=3,
                    mib=700,
                )
            )
    return cases


# ---- Caches, options, long lists ----------------------------------------------------------------


def _many_choice_sets(tokenization: Any, stage: Stage) -> str:
    """Choose from a thousand different sets."""
    draw = random.Random(1)
    for number in range(1000):
        names = [f"{draw.getrandbits(40):010x}-{number}" for _ in range(100)]
        stage.model.choose(PROMPT, names, tokenization=tokenization)
    return "1,000 sets"


def _many_automata(stage: Stage) -> str:
    from eliza_ffi.structured import Skeleton, SkeletonSpan

    for number in range(300):
        pattern = f'"[a-f]{{1,{number % 30 + 1}}}x{number}"'
        kinds = tuple(f"K{number}_{i}" for i in range(50))
        spans = (
            SkeletonSpan("literal", value='{"id":'),
            SkeletonSpan("pattern", "id", pattern=pattern),
            SkeletonSpan("literal", value=',"kind":'),
            SkeletonSpan("enum", "kind", enum_values=kinds),
            SkeletonSpan("literal", value="}"),
        )
        stage.model.fill(PROMPT, Skeleton(spans), max_tokens=2, on_limit="close")
    return "300 skeletons"


def _many_grammars(stage: Stage) -> str:
    for number in range(500):
        words = " | ".join(f'"word{number}x{i}"' for i in range(100))
        stage.model.generate(PROMPT, 1, shape=Gbnf(f"root ::= {words}"))
    return "500 grammars"


def _many_options(stage: Stage) -> str:
    for number in range(20_000):
        stage.set_option("model_id", f"model {number}" * 10)
    stage.set_option("model_id", "")
    return "20,000 options"


def _large_vocabulary() -> Path:
    return cached_model("gemma-4", n_embd=64, n_layers=2, seed=1)


def _open_large(stage: Stage) -> None:
    _large_vocabulary()


def _bias_everything(stage: Stage) -> str:
    """Give every token of a vocabulary a bias: as a sampling setting, and as an option."""
    with stage.open(_large_vocabulary()) as model:
        n = model.describe()["model"]["n_vocab"]
        biases = [(token, 0.25) for token in range(n)]
        model.generate(PROMPT, 1)
        times = {
            "a setting": _timed(
                lambda: model.generate(PROMPT, 2, sampling=Sampling(logit_bias=tuple(biases)))
            ),
            "an option": _timed(
                lambda: model.binding.set_option(
                    model.session.ctx, "logit_bias", json.dumps(biases)
                )
            ),
            "a stream with the option": _timed(lambda: model.generate(PROMPT, 2)),
        }
    said = ", ".join(f"{name} {took:.2f} s" for name, took in times.items())
    if max(times.values()) > 1:
        raise Broken(f"{n:,} biases: {said}")
    return said


def _timed(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def _many_stops(stage: Stage) -> str:
    stops = [f"stop number {i}" for i in range(100_000)]
    return stage.model.generate(CHAT, 20, stop=stops).text


def _long_stop(stage: Stage) -> str:
    return stage.model.generate(CHAT, 20, stop=["a" * 10_000_000]).text


def _many_choices(stage: Stage) -> str:
    return str(stage.model.choose(PROMPT, [f"choice {i}" for i in range(100_000)]).value)


def _long_choice(stage: Stage) -> str:
    return str(stage.model.choose(PROMPT, ["a" * 1_000_000, "b"]).value)


def _long_prompt(stage: Stage) -> str:
    return str(stage.model.choose("many words " * 1_000_000, ACTIONS).value)


def _nul_choices(stage: Stage) -> str:
    return str(stage.model.choose(PROMPT, ["a\0b", "a\0c"]).value)


def _many_breakers(stage: Stage) -> str:
    breakers = tuple(f"{i:039d}" for i in range(20_000))
    return stage.model.generate(
        CHAT,
        4,
        sampling=Sampling(temperature=0.5, dry_multiplier=0.5, dry_sequence_breakers=breakers),
    ).text


CASES = (
    *_json_cases(),
    Case(
        "caches: 1,000 sets of labels",
        partial(_many_choice_sets, "own"),
        Must.ANSWER,
        seconds=60,
    ),
    Case(
        "caches: 1,000 sets of labels, any tokenization",
        partial(_many_choice_sets, "any"),
        Must.ANSWER,
        seconds=60,
    ),
    Case("caches: 300 schemas", _many_automata, Must.ANSWER, seconds=60),
    Case("caches: 500 grammars", _many_grammars, Must.ANSWER, seconds=60),
    Case("options: set 20,000 times", _many_options, Must.ANSWER, seconds=5),
    Case(
        "options: a bias for each of 262,144 tokens",
        _bias_everything,
        Must.ANSWER,
        seconds=10,
        mib=400,
        prepare=_open_large,
    ),
    Case("options: 20,000 breakers", _many_breakers, seconds=20, neighbour=True),
    Case("options: 100,000 stop strings", _many_stops, seconds=5, neighbour=True),
    Case("options: a stop string of 10 MB", _long_stop, seconds=5, neighbour=True),
    Case("options: 100,000 labels", _many_choices, Must.ANSWER, seconds=10, mib=300),
    Case("options: a label of a megabyte", _long_choice, seconds=10, neighbour=True),
    Case("options: a prompt of 11 MB", _long_prompt, Must.FAIL, "context", 20, 1500),
    Case("options: labels with a NUL", _nul_choices),
)
