"""A binding whose `fill` writes random valid values, as a model with random weights would."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from automata_walks import shortest_completion
from recording_binding import ALL, RecordingBinding

from eliza_ffi.errors import ContextFullError
from eliza_ffi.library.protocol import SpanResult, StreamStats
from eliza_ffi.structured.automata import DEAD, Dfa

LONGEST_WALK = 12


class FillingBinding(RecordingBinding):
    """Fills spans with random values. Every byte is one token.

    Parameters
    ----------
    seed
        The seed of the random values.
    full_at
        The index of the call of `fill` that finds the context full.
    grammar_text
        The value for a span with a grammar.
    has_byte_counts
        Whether results have `answer_bytes`.
    write
        A function that takes the request and returns the value, instead of a random value.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        full_at: int | None = None,
        grammar_text: str = "1",
        write: Callable[[Mapping[str, Any]], str] | None = None,
        has_byte_counts: bool = True,
        has: Iterable[str] = ALL | {"fill"},
        **more: Any,
    ) -> None:
        super().__init__(has=has, **more)
        self.requests: list[dict[str, Any]] = []
        self.written = b""
        self._rng = random.Random(seed)
        self._full_at = full_at
        self._grammar_text = grammar_text
        self._has_byte_counts = has_byte_counts
        self._write = write or self._random

    def fill(self, stream: int, span: Mapping[str, Any]) -> SpanResult:
        position = len(self.requests)
        self.requests.append(dict(span))
        self._record("fill", stream, f"fill:{position}")
        self.written += span.get("before", "").encode()
        text = self._write(span)
        if position == self._full_at:
            error = ContextFullError("context full")
            error.partial = self._result(span, text[: len(text) // 2])
            raise error
        result = self._result(span, text)
        self.written += span.get("after", "").encode()
        return replace(result, **self._answer())

    def stats(self, stream: int) -> StreamStats:
        return super().stats(stream)

    def _result(self, span: Mapping[str, Any], text: str) -> SpanResult:
        self.written += text.encode()
        choices = span.get("choices", [])
        index = choices.index(text) if text in choices else -1
        return SpanResult(text, -0.5, len(text), False, index, **self._answer())

    def _answer(self) -> dict[str, tuple[int, ...]]:
        lengths = (1,) * len(self.written) if self._has_byte_counts else ()
        return {"answer_tokens": tuple(self.written), "answer_bytes": lengths}

    def _random(self, span: Mapping[str, Any]) -> str:
        if "choices" in span:
            return str(self._rng.choice(span["choices"]))
        if "grammar" in span:
            return self._grammar_text
        if "dfa" in span:
            return walk(span["dfa"], self._rng)
        if "json" not in span:
            return ""
        kind = span["json"]
        if kind == "string-body":
            return json.dumps(self._some_text())[1:-1]
        values: dict[str, Any] = {
            "string": self._some_text(),
            "integer": self._rng.randint(-(10**9), 10**9),
            "number": self._rng.choice([0, -1, 2.5, -1e-9, 3e20]),
            "value": self._some_value(3),
        }
        return json.dumps(values[kind], ensure_ascii=self._rng.random() < 0.5)

    def _some_text(self) -> str:
        return "".join(self._rng.choices('ab "\\\n日😀', k=self._rng.randint(0, 5)))

    def _some_value(self, depth: int) -> Any:
        kind = self._rng.randint(0, 5 if depth else 3)
        if kind < 4:
            return [None, True, self._some_text(), self._rng.uniform(-5, 5)][kind]
        some = [self._some_value(depth - 1) for _ in range(self._rng.randint(0, 3))]
        return some if kind == 4 else {self._some_text(): each for each in some}


def walk(form: Mapping[str, Any], rng: random.Random) -> str:
    """Return a string that an automaton accepts: random steps, then the shortest completion."""
    transitions = np.array(form["transitions"], dtype=np.int32)
    accepting = np.zeros(len(transitions), dtype=np.bool_)
    accepting[form["accepting"]] = True
    dfa = Dfa(np.array(form["classes"], dtype=np.uint8), transitions, accepting)
    state, data = 0, bytearray()
    for _ in range(rng.randint(0, LONGEST_WALK)):
        targets = dfa.transitions[state, dfa.classes]
        allowed = np.flatnonzero(targets != DEAD).tolist()
        if not allowed:
            break
        data.append(rng.choice(allowed))
        state = int(targets[data[-1]])
    return (data + shortest_completion(dfa, state)).decode()
