"""Answer one case in one mode, time and judge the answer, and summarize answers as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from page_tables import markdown_table

from eliza_ffi.errors import FillError, InvalidArgumentError
from eliza_ffi.library.protocol import StreamConfig, Tokens
from eliza_ffi.model import Model
from eliza_ffi.structured.json_text import read_json

from ..parts.figures import mean, median, percentile
from ..parts.modes import METHOD_OF_MODE, UNGUIDED
from .cases import Case
from .grammars import grammar_of

HEADS = (
    *("task", "mode", "cases", "parse", "schema", "name", "label"),
    *("p50 ms", "p95 ms", "tok/s", "tokens", "passes"),
)


@dataclass(frozen=True)
class Answer:
    """An answer of the model, and whether it is correct."""

    task: str
    id: str
    mode: str
    text: str
    tokens: int
    forward_passes: int  # forward passes after the prompt
    seconds: float  # the time of the prefill, with the prompt in the KV cache, and of the answer
    parses: bool  # whether the whole text is JSON, except for white space around it
    of_schema: bool  # whether the value has the keys and types that the task requires, in any order
    right_name: bool  # whether the action, or the decision whether to respond, is the expected one
    right: bool  # whether the parameters are the expected ones as well


def prompt_of(model: Model, case: Case, *, chat: bool) -> Tokens:
    """Return the tokens of a question, in the embedded model's format or as a chat."""
    if chat:
        turns = {"system": case.instruction, "user": case.question}
        return model.chat_tokens([{"role": r, "content": c} for r, c in turns.items()])
    return model.tokenize(case.prompt, add_special=True, parse_special=True)


def answer(
    model: Model,
    case: Case,
    prompt: Tokens,
    mode: str,  # a mode in :data:`~bench.parts.modes.MODES`
    max_tokens: int,  # the most tokens of the answer; in the mode `TRIE`, of each free value
) -> Answer:
    """Answer a case."""
    with closing(model.binding.open(model.session.ctx, StreamConfig())) as stream:
        model.binding.prefill(stream, prompt)  # brings the prompt into the cache for all modes
    method = METHOD_OF_MODE[mode]
    begin = time.perf_counter()
    if method.has_trie:
        try:
            filled = model.fill(prompt, case.skeleton, max_tokens=max_tokens, on_limit="close")
        except FillError as error:
            filled = error.partial
        made = (filled.text, len(filled.tokens), filled.forward_passes)
    elif method.mode == UNGUIDED:
        made = _generate(model, prompt, StreamConfig(max_tokens=max_tokens), lambda text: False)
    else:
        model.binding.set_option(model.session.ctx, "grammar_order", method.grammar_order)
        config = StreamConfig(max_tokens=max_tokens, gbnf_grammar=grammar_of(case.skeleton))
        # All answers end with a closing bracket, which no text can follow.
        made = _generate(
            model, prompt, config, lambda text: text.endswith("}") and case.skeleton.matches(text)
        )
    return _judged(case, mode, made, time.perf_counter() - begin)


def _generate(
    model: Model, prompt: Tokens, config: StreamConfig, is_complete: Callable[[str], bool]
) -> tuple[str, int, int]:
    binding: Any = model.binding
    with closing(binding.open(model.session.ctx, config)) as stream:
        binding.prefill(stream, prompt)
        text, n_tokens, done = "", 0, False
        while not done:
            step = binding.next(stream)
            text += step.text
            n_tokens += len(step.tokens)
            # If the grammar allows only the end token, another pass would be wasted.
            done = step.done or is_complete(text)
        return text, n_tokens, binding.stats(stream).passes_after_prompt


def _judged(case: Case, mode: str, made: tuple[str, int, int], seconds: float) -> Answer:
    value: Any = None
    parses = True
    try:
        value = read_json(made[0].strip())
    except InvalidArgumentError:
        parses = False
    of_schema = parses and case.skeleton.accepts(value)
    right_name = of_schema and case.has_right_name(value)
    right = of_schema and case.is_right(value)
    return Answer(case.task, case.id, mode, *made, seconds, parses, of_schema, right_name, right)


def table(answers: Iterable[Answer]) -> str:
    """Return a Markdown table with a row for each task and mode."""
    groups: dict[tuple[str, str], list[Answer]] = {}
    for each in answers:
        groups.setdefault((each.task, each.mode), []).append(each)
    rows = []
    for key, group in groups.items():
        ms = [each.seconds * 1e3 for each in group]
        shares = ("parses", "of_schema", "right_name", "right")
        rows.append(
            [
                *key,
                str(len(group)),
                *(f"{mean([getattr(each, name) for each in group]):.0%}" for name in shares),
                f"{median(ms):.1f}",
                f"{percentile(ms, 95):.1f}",
                f"{sum(each.tokens for each in group) / (sum(ms) / 1e3):.0f}",
                f"{mean([each.tokens for each in group]):.1f}",
                f"{mean([each.forward_passes for each in group]):.1f}",
            ]
        )
    return markdown_table(HEADS, rows, left=2)
