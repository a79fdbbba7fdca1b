"""One schema: who can answer it, and what an answer costs each of them, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.masks import GuidanceMasks
from eliza_ffi.measuring.figures import median
from eliza_ffi.model import Model
from eliza_ffi.shapes import Shape, shape_of

__all__ = ["coverage", "measure"]

PROMPT = "Message: the app crashes when I log in, please call me back.\nAnswer: "

MOST_TOKENS = 400

METHODS = ("skeleton", "masks", "grammar")
"""Ours; llguidance's masks over our passes; llama.cpp's grammar of the skeleton."""


def coverage(model: Model, schema: Any) -> dict[str, bool]:
    """Return who can answer a schema."""
    found = {"skeleton": False, "llguidance": False}
    if not isinstance(schema, dict):
        return found
    try:
        shape = shape_of(schema)
        found["skeleton"] = shape.skeleton is not None
        shape.masks(model.session.guidance())
        found["llguidance"] = True
    except InvalidArgumentError:
        pass
    return found


def measure(model: Model, schema: Any, rounds: int) -> dict[str, Any]:
    """Return what answers cost: milliseconds, tokens and passes by method, microseconds a mask.

    A method that cannot answer, or does not come to an end, is left out.
    """
    shape = shape_of(schema)
    ways = _ways(model, shape)
    spent: dict[str, list[float]] = {}
    cells: dict[str, dict[str, Any]] = {}
    for turn in range(rounds + 1):  # the first makes the prompt known to the cache
        for name, answer in ways.items():
            begin = time.perf_counter()
            try:
                cell = answer()
            except ElizaError:
                cell = {}
            seconds = time.perf_counter() - begin
            if cell and turn > 0:
                spent.setdefault(name, []).append(1e3 * seconds)
                cells[name] = cell
    for name, cell in cells.items():
        cell["ms"] = median(spent[name])
    found: dict[str, Any] = {"methods": cells}
    if "masks" in cells:
        masks = shape.masks(model.session.guidance())
        found |= _mask_costs(masks, cells["masks"].pop("ids"), rounds)
    return found


def _ways(model: Model, shape: Shape[Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    def by_skeleton() -> dict[str, Any]:
        result = model.fill(PROMPT, shape.skeleton)
        return {"tokens": len(result.tokens), "passes": result.forward_passes}

    def as_text(**given: Any) -> dict[str, Any]:
        result = model.generate(PROMPT, MOST_TOKENS, **given)
        if result.finish_reason != "end" or result.stats is None:
            return {}
        passes = result.stats.passes_after_prompt
        ids = {"ids": result.tokens} if "masks" in given else {}
        return {"tokens": len(result.tokens), "passes": passes, **ids}

    ways: dict[str, Callable[[], dict[str, Any]]] = {}
    if shape.skeleton is not None:
        grammar = shape.skeleton.to_gbnf()
        ways["skeleton"] = by_skeleton
        ways["grammar"] = lambda: as_text(grammar=grammar)
    masks = shape.masks(model.session.guidance())
    ways["masks"] = lambda: as_text(masks=masks)
    return ways


def _mask_costs(masks: GuidanceMasks, tokens: tuple[int, ...], rounds: int) -> dict[str, float]:
    """Return what llguidance takes alone, along the tokens of an answer, in microseconds.

    That is for a mask; to find that no token is forced, which comes before it; and to find those
    that are, of which a run is asked for once.
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
