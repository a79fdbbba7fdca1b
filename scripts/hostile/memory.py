"""Little memory: each operation succeeds or reports it, and succeeds once there is enough."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from faults.operations import OPERATIONS
from forked import little_memory
from make_test_models import cached_model
from stage import Stage

from eliza_ffi.errors import ElizaError

from .case import Broken, Case

WHAT = ("choose", "choose with any tokenization", "generate with a grammar", "save", "embed")
STEPS_MIB = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)


@functools.cache
def _other_model() -> Path:
    # Large enough that its weights do not fit into the unused part of the heap.
    return cached_model("gemma-4", n_embd=64, n_layers=2, seed=1)


def _open(stage: Stage) -> str:
    with stage.open(_other_model(), options={"use_mmap": "0"}) as model:
        return str(len(model.tokenize("a text")))


def _under(mib: int, act: Callable[[Stage], Any], case: Stage) -> str:
    """Run an operation for the first time with `mib` more address space than the process holds.

    Then run it again without a limit, which must succeed with the same result.
    """
    stage = Stage(case.library, case.folder, n_ctx=4096)
    stage.model.describe()
    _other_model()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    error: ElizaError | None = None
    said = None
    try:
        with little_memory(mib):
            said = act(stage)
    except ElizaError as raised:
        error = raised
    again = act(stage)
    if error is not None:
        raise error
    if again != said:
        raise Broken(f"expected {again!r}, as with enough memory, got {said!r} with little")
    return str(said)


USES = [each for each in OPERATIONS if each.name in WHAT]

CASES = tuple(
    Case(
        f"memory: {name} with {mib} MiB",
        partial(_under, mib, act),
        seconds=5,
        mib=400,
        prepare=None,
        may_die_in_llama_cpp=True,
    )
    for name, act in (("open", _open), *((each.name, each.run) for each in USES))
    for mib in STEPS_MIB
)
