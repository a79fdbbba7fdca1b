"""Ambiguous, large and deep grammars and shapes, and the triggers of lazy grammars."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from typing import Any

from stage import CHAT, PROMPT, Stage

from eliza_ffi import Gbnf, Sampling
from eliza_ffi.errors import GenerationCancelledError
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.structured import Lark, Regex

from .case import Broken, Case, Must, cases, cpu_seconds

CANCEL_LIMIT_S = 0.5
SMALL_STACK = 256 << 10

AMBIGUOUS = {
    'four hundred optional "a"': "root ::= " + '"a"? ' * 400,
    "three hundred optional letters": "root ::= " + "[a-z]? " * 300,
    "nested optional rules": 'root ::= x x x x x x x x\nx ::= "" | "a" | x2 x2\nx2 ::= "" | "a"',
}

BOMBS = {
    "a maximum below the minimum": 'root ::= "a"{2,1}',
    "a maximum of 0 below the minimum": 'root ::= "a"{1,0}',
    "100 KB repeated 2,000 times": 'root ::= "' + "a" * 100_000 + '"{2000}',
    "100 KB of repetitions": "root ::= " + '"a"{0,1999} ' * 8_000,
    "repetitions of repetitions": 'root ::= (("a"{1,999}){1,999}){1,999}',
    "20,000 groups deep": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "20,000 unclosed groups": "root ::= " + "(" * 20_000,
    "a million alternatives": "root ::= " + '"a" | ' * 1_000_000 + '"b"',
    "a rule that is only itself": "root ::= root",
    "left recursion": 'root ::= x "a"\nx ::= y\ny ::= x "b" | "c"',
    "an undefined rule": "root ::= nothing",
    "an unclosed literal": 'root ::= "' + "a" * 1_000_000,
}

# Large but usable: the library must answer with them.
LARGE = {
    "300,000 references to a large rule": f"root ::= {'x ' * 300_000}\nx ::= "
    + '"abcdef" ' * 100_000,
    "a character class of a megabyte": "root ::= [" + "a-z" * 300_000 + "]",
}


def _chain(n: int) -> str:
    """Return a grammar of `n` rules, each of which refers to the next."""
    return "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(n)) + f'r{n} ::= "a"'


PATTERNS = {
    "20,000 parentheses": "(" * 20_000 + "a" + ")" * 20_000,
    "20,000 unclosed parentheses": "(" * 20_000,
    "a repeated group of repetitions": "([a-zA-Z .,]*)*!{9}#",
    "two ways to match a letter": "(a|a)*b",
    "repeated repetitions": "(a*)*$",
    "a back reference": r"(a+)+\1\1\1b",
    "a repeated repetition": "a{1000}{1000}",
    "repetitions of repetitions": "(?:a{0,999}){0,999}",
    "a million repetitions": "a{1000000}",
    "a lookahead": "(?=(a+))a*b",
    "a long alternation": "|".join(f"word{i}" for i in range(20_000)),
    "an invalid expression": "[",
}


NUMBERS = {"2^31": 2**31, "2^63": 2**63, "10^30": 10**30, "a tiny number": 5e-324}
TYPE_OF = {
    **dict.fromkeys(("multipleOf", "minimum", "maximum", "exclusiveMinimum"), "number"),
    **dict.fromkeys(("minLength", "maxLength"), "string"),
    **dict.fromkeys(("minItems", "maxItems", "minContains"), "array"),
    **dict.fromkeys(("minProperties", "maxProperties"), "object"),
}
SHAPES: dict[str, Any] = {
    **{name: Regex(pattern) for name, pattern in PATTERNS.items()},
    **{
        f"{keyword} of {name}": {"type": kind, keyword: number}
        for keyword, kind in TYPE_OF.items()
        for name, number in NUMBERS.items()
    },
    "two multiples without a common factor": {
        "allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]
    },
    "a multiple in a Lark grammar": Lark('start: %json {"multipleOf": 2147483648}'),
    "7,000 long repetitions": Regex("a{1000}" * 7000),
    "3,000 rules at the same place": Lark(
        "start: "
        + " | ".join(f"r{i}" for i in range(3000))
        + "".join(f'\nr{i}: "x" r{(7 * i + 1) % 3000} | "x"' for i in range(3000))
    ),
    "30 references, each to two others": {
        "$ref": "#/$defs/0",
        "$defs": {
            **{str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(30)},
            "30": {"type": "null"},
        },
    },
}


def _filled(shape: Any, stage: Stage) -> str:
    text: str = stage.model.fill(PROMPT, shape, max_tokens=20, on_limit="close").text
    return text


def _one_token(grammar: str, stage: Stage) -> str:
    return stage.model.generate(PROMPT, 1, schema=Gbnf(grammar)).text


def _over_budget(stage: Stage) -> str:
    """Limit the grammar to fewer steps per token than it needs."""
    with stage.option("grammar_budget", "100", then="10000000"):
        return _one_token(AMBIGUOUS["three hundred optional letters"], stage)


def _cancelled(stage: Stage) -> str:
    """Cancel a generation if its grammar still keeps it busy after 0.3 s."""
    model = stage.model
    binding = model.binding
    grammar = "root ::= " + "[a-z]? [A-Z]? [0-9]? " * 3000

    def generate() -> str:
        try:
            binding.prefill(stream, model.prompt_tokens(PROMPT))
            for _ in range(50):
                binding.next(stream)
            return "finished"
        except GenerationCancelledError:
            return "was cancelled"

    with (
        closing(binding.open(model.session.ctx, StreamConfig(gbnf_grammar=grammar))) as stream,
        ThreadPoolExecutor(1) as threads,
    ):
        running = threads.submit(generate)
        wait([running], 0.3)
        begin = time.perf_counter()
        if not running.done():
            binding.cancel(stream)
        ended = running.result()
    if (took := time.perf_counter() - begin) > CANCEL_LIMIT_S:
        raise Broken(f"{ended} {took:.1f} s after it was cancelled")
    return ended


def _before_a_word(stage: Stage, n: int = 200) -> str:
    """Wait for a trigger while a bias makes the model write one letter many times."""
    with stage.option("grammar_triggers", json.dumps([{"type": "word", "value": "never"}])):
        return _write(stage, n, schema=Gbnf('root ::= "a"'))


def _write(stage: Stage, n: int, **more: Any) -> str:
    model = stage.model
    (letter,) = model.tokenize("a")
    return model.generate(CHAT, n, **more, sampling=Sampling(logit_bias=((letter, 100.0),))).text


def _cost_of_words(stage: Stage) -> str:
    """Compare the cost of a token with and without a trigger word to wait for."""
    ratios = []
    stage.model  # noqa: B018 - loads the model before the first measurement
    for _ in range(5):
        plain = cpu_seconds(partial(_write, stage, 800))
        ratios.append(cpu_seconds(partial(_before_a_word, stage, 800)) / plain)
    ratio = statistics.median(ratios)
    if ratio > 2.5:
        raise Broken(f"waiting for a word: expected at most 2.5 times the cost, got {ratio:.1f}")
    return f"{ratio:.2f} times as much"


def _on_small_stack(run: Callable[[Stage], str], stage: Stage) -> str:
    """Run a function on a thread with a small stack, as some languages use."""
    before = threading.stack_size(SMALL_STACK)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run, stage)
        threading.stack_size(before)
        return running.result()


STACKED = {
    "20,000 groups deep": partial(_one_token, BOMBS["20,000 groups deep"]),
    "5,000 rules in a chain": partial(_one_token, _chain(5_000)),
}
CHAINS = {f"{n:,}": _chain(n) for n in (5_000, 100_000)}
STACKED_SHAPES = {name: partial(_filled, shape) for name, shape in [*SHAPES.items()][:4]}

CASES = (
    Case("grammar: exceeds its budget", _over_budget, Must.FAIL, "grammar_budget"),
    *cases("grammar: {}", _one_token, AMBIGUOUS, Must.ANSWER, seconds=5, neighbour=True),
    Case("grammar: 9,000 optional letters, cancelled", _cancelled, Must.ANSWER, seconds=5),
    *cases("grammar: {}", _one_token, BOMBS, Must.FAIL, neighbour=True),
    *cases("grammar: {}", _one_token, LARGE, Must.ANSWER, neighbour=True),
    *cases("grammar: {} rules in a chain", _one_token, CHAINS, neighbour=True),
    *cases("grammar: {}, on a small stack", _on_small_stack, STACKED),
    *cases("shape: {}", _filled, SHAPES, seconds=3, mib=300, neighbour=True),
    *cases("shape: {}, on a small stack", _on_small_stack, STACKED_SHAPES, seconds=3),
    Case("trigger: 800 tokens before a word", _cost_of_words, Must.ANSWER, seconds=120),
    Case(
        "trigger: a word, on a small stack",
        partial(_on_small_stack, _before_a_word),
        Must.ANSWER,
        seconds=5,
    ),
)
