"""Little memory: each operation succeeds or reports it, and succeeds once there is enough."""

from __future__ import annotations

import ctypes
import functools
import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

from make_test_models import cached_model
from stage import ACTIONS, CHAT, PROMPT, Stage

from eliza_ffi import Gbnf, Speculation
from eliza_ffi.errors import ElizaError
from eliza_ffi.model import Model

from .case import Broken, Case

STEPS_MIB = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
GRAMMAR = "root ::= [a-zA-Z .]+"

Act = Callable[[Stage, Model], str]


@functools.cache
def _other_model() -> Path:
    # Large enough that its weights do not fit into the unused part of the heap.
    return cached_model("gemma-4", n_embd=64, n_layers=2, seed=1)


def _open(stage: Stage, _: Model) -> str:
    with stage.open(_other_model(), options={"use_mmap": "0"}) as model:
        return str(len(model.tokenize("a text")))


def _choose(_: Stage, model: Model) -> str:
    return str(model.choose(PROMPT, ACTIONS, probabilities=True).value)


def _choose_texts(_: Stage, model: Model) -> str:
    return str(model.choose(PROMPT, ACTIONS, tokenization="any").value)


def _generate(_: Stage, model: Model) -> str:
    return model.generate(CHAT, 4, shape=Gbnf(GRAMMAR), speculation=Speculation(max_tokens=2)).text


def _save(stage: Stage, model: Model) -> str:
    return str(model.save(stage.folder / "prompt.slot", PROMPT * 100))


def _embed(_: Stage, model: Model) -> str:
    return str(model.embed("a text").shape)


def _under(mib: int, act: Act, stage: Stage) -> str:
    """Run an operation for the first time with `mib` more address space than the process holds.

    Then run it again without a limit, which must succeed with the same result.
    """
    with stage.open(n_ctx=4096) as model:
        model.describe()
        _other_model()
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        soft, most = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        held = pages * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (held + (mib << 20), most))
        error: ElizaError | None = None
        said = ""
        try:
            said = act(stage, model)
        except ElizaError as raised:
            error = raised
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, most))
        again = act(stage, model)
        if error is not None:
            raise error
        if again != said:
            raise Broken(f"expected {again!r}, as with enough memory, got {said!r} with little")
        return said


CASES = tuple(
    Case(
        f"memory: {name} with {mib} MiB",
        partial(_under, mib, act),
        seconds=5,
        mib=400,
        prepare=lambda _: None,
        may_die_in_llama_cpp=True,
    )
    for name, act in (
        ("open", _open),
        ("choose", _choose),
        ("choose with any tokenization", _choose_texts),
        ("generate", _generate),
        ("save", _save),
        ("embed", _embed),
    )
    for mib in STEPS_MIB
)
