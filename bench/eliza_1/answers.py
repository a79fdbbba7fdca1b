"""Answer one case in one mode, and time the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eliza_ffi.errors import FillError
from eliza_ffi.library.protocol import StreamConfig, Tokens
from eliza_ffi.model import Model
from eliza_ffi.session.lifecycle import open_stream

from ..parts.modes import METHOD_OF_MODE, UNGUIDED
from .cases import Case


@dataclass(frozen=True)
class TimedAnswer:
    """An answer of the model.

    Attributes
    ----------
    forward_passes : int
        Forward passes after the prompt.
    seconds : float
        The time of the prefill, with the prompt in the KV cache, and of the answer.
    """

    text: str
    tokens: int
    forward_passes: int
    seconds: float


def prompt_of(model: Model, case: Case, *, chat: bool) -> Tokens:
    """Return the tokens of a question, in the embedded model's format or as a chat."""
    if chat:
        turns = {"system": case.instruction, "user": case.question}
        return model.chat_tokens([{"role": r, "content": c} for r, c in turns.items()])
    return model.tokenize(case.prompt, add_special=True, parse_special=True)


def answer(model: Model, case: Case, prompt: Tokens, mode: str, max_tokens: int) -> TimedAnswer:
    """Answer a case.

    Parameters
    ----------
    mode
        A mode in :data:`~bench.parts.modes.MODES`.
    max_tokens
        The most tokens of the answer; in the mode `TRIE`, of each free value.
    """
    _read_prompt(model, prompt)
    method = METHOD_OF_MODE[mode]
    if method.has_trie:
        return _fill(model, case, prompt, max_tokens)
    if method.mode == UNGUIDED:
        return _generate(model, prompt, max_tokens)
    model.binding.set_option(model.session.ctx, "grammar_order", method.grammar_order)

    def is_complete(text: str) -> bool:
        # All answers end with a closing bracket, which no text can follow.
        return text.endswith("}") and case.skeleton.matches(text)

    return _generate(model, prompt, max_tokens, case.skeleton.to_gbnf(), is_complete)


def _read_prompt(model: Model, prompt: Tokens) -> None:
    """Bring the prompt into the KV cache, so that all modes have it there."""
    with open_stream(model.binding, model.session.ctx, StreamConfig()) as stream:
        model.binding.prefill(stream, prompt)


def _fill(model: Model, case: Case, prompt: Tokens, max_tokens: int) -> TimedAnswer:
    begin = time.perf_counter()
    try:
        result = model.fill(prompt, case.skeleton, max_tokens=max_tokens, on_limit="close")
    except FillError as error:
        result = error.partial
    seconds = time.perf_counter() - begin
    return TimedAnswer(result.text, len(result.tokens), result.forward_passes, seconds)


def _generate(
    model: Model,
    prompt: Tokens,
    max_tokens: int,
    grammar: str | None = None,
    is_complete: Callable[[str], bool] = lambda text: False,
) -> TimedAnswer:
    binding: Any = model.binding
    begin = time.perf_counter()
    config = StreamConfig(max_tokens=max_tokens, gbnf_grammar=grammar)
    with open_stream(binding, model.session.ctx, config) as stream:
        binding.prefill(stream, prompt)
        text, n_tokens, done = "", 0, False
        while not done:
            step = binding.next(stream)
            text += step.text
            n_tokens += len(step.tokens)
            # If the grammar allows only the end token, another pass would be wasted.
            done = step.done or is_complete(text)
        seconds = time.perf_counter() - begin
        return TimedAnswer(text, n_tokens, binding.stats(stream).passes_after_prompt, seconds)
