"""Measure one schema: whether it compiles, and the time of an answer with every method."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import jsonschema

from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.structured import GuidanceMasks, shape_of

from ..methods import OUR_MASKS, OURS
from ..parts.figures import median, quartiles
from .answering import Answerer, WrittenAnswer


def coverage(model: Model, schema: Any) -> dict[str, bool]:
    """Return whether eliza-ffi compiles a schema, and whether the schema is closed."""
    found = {"closed": False, "compiled": False}
    if not isinstance(schema, dict):
        return found
    try:
        shape = shape_of(schema)
        found["closed"] = shape.skeleton is not None
        shape.masks(model.session.guidance())
        found["compiled"] = True
    except InvalidArgumentError:
        pass
    return found


def measure(ways: Mapping[str, Answerer], schema: Any, rounds: int) -> dict[str, Any]:
    """Return the figures of all methods, and the error of each method that failed.

    Times are medians over the rounds, after one untimed round. Ratios are relative to eliza-ffi's
    answer of the same round.
    """
    written: dict[str, list[WrittenAnswer]] = {}
    problems: dict[str, str] = {}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            if name in problems:
                continue
            try:
                answer = way.answer(schema)
            except (ElizaError, ValueError, RuntimeError) as error:
                problems[name] = f"{type(error).__name__}: {error}"
                continue
            if answer is None:
                problems[name] = "the answer did not end"
                continue
            written.setdefault(name, []).append(answer)
    # The first round brings the prompt into the caches, so it does not count.
    kept = {name: answers[1:] for name, answers in written.items() if name not in problems}
    base = kept.get(OURS) or kept.get(OUR_MASKS)
    return {
        "methods": {name: _costs(answers, base, schema) for name, answers in kept.items()},
        "problems": problems,
    }


def _costs(
    answers: list[WrittenAnswer], base: list[WrittenAnswer] | None, schema: Any
) -> dict[str, Any]:
    firsts = [each.first_ms for each in answers if each.first_ms is not None]
    costs: dict[str, Any] = {
        "tokens": answers[-1].tokens,
        "passes": answers[-1].passes,
        "compile_ms": median([each.compile_ms for each in answers]),
        "first_ms": median(firsts) if firsts else None,
        "ms": median([each.ms for each in answers]),
        "is_valid": all(_is_valid(each.text, schema) for each in answers),
    }
    if base is not None:
        costs["times_ours"] = quartiles(
            [one.ms / ours.ms for one, ours in zip(answers, base, strict=True)]
        )
    return costs


def _is_valid(text: str, schema: Any) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def mask_costs(masks: GuidanceMasks, tokens: tuple[int, ...], rounds: int) -> dict[str, float]:
    """Return the median microseconds of llguidance's own work, along the tokens of an answer.

    ``mask_us`` is the time to compute a mask. Before each mask, llguidance is asked for forced
    tokens: ``none_forced_us`` is the time of this call if there are none, ``run_forced_us`` if
    there are some.
    """
    spent: dict[str, list[float]] = {"mask_us": [], "none_forced_us": [], "run_forced_us": []}
    for _ in range(rounds):
        source, at = masks.start(), 0
        while at < len(tokens):
            begin = time.perf_counter()
            n_forced = len(source.forced())
            asked = time.perf_counter()
            spent["run_forced_us" if n_forced else "none_forced_us"].append(1e6 * (asked - begin))
            if not n_forced:
                source.mask()
                spent["mask_us"].append(1e6 * (time.perf_counter() - asked))
            for token in tokens[at : at + max(n_forced, 1)]:
                source.accept(token)
            at += max(n_forced, 1)
    return {name: median(values) for name, values in spent.items() if values}
