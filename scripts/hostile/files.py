"""Slot files and model files: damaged, forged, and paths that are not files."""

from __future__ import annotations

import os
import random
import signal
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Timer

import numpy as np
from forked import run_forked
from stage import ACTIONS, PROMPT, Stage

from eliza_ffi.errors import ElizaError

from .case import Broken, Case, Must, cases

N_KILLS = 50
# Passes have another shape when more of a prompt is cached. With the quantized embedded model, this
# changed probabilities by up to 0.005.
ROUNDING = 0.02
HALF_NAN, HALF_INF, HALF_NEGATIVE_INF = b"\x00\x7e", b"\x00\x7c", b"\x00\xfc"


@dataclass(frozen=True)
class SlotBytes:
    """The parts of a slot file, which can be changed and written again with a valid hash."""

    magic: bytes
    version: int
    fingerprint: bytes
    tokens: bytes
    state: bytes
    # Wrong lengths of the three parts, by their places.
    lengths: Mapping[int, int] = field(default_factory=dict)
    tail: bytes = b""

    @classmethod
    def read(cls, raw: bytes) -> SlotBytes:
        magic, version = struct.unpack_from("<8sI", raw)
        at = 12
        parts = []
        for _ in range(3):
            (length,) = struct.unpack_from("<Q", raw, at)
            parts.append(raw[at + 8 : at + 8 + length])
            at += 8 + length
        fingerprint, tokens, state = parts
        slot = cls(magic, version, fingerprint, tokens, state)
        if slot.whole() != raw:
            raise Broken("the format of slot files has changed; update these cases")
        return slot

    def whole(self) -> bytes:
        raw = self.magic + struct.pack("<I", self.version)
        for i, part in enumerate((self.fingerprint, self.tokens, self.state)):
            raw += struct.pack("<Q", self.lengths.get(i, len(part))) + part
        raw += self.tail
        return raw + struct.pack("<Q", fnv1a(raw))

    def with_values(self, value: bytes, at: float, n: int = 20) -> SlotBytes:
        """Write a value `n` times into the state, beginning at a fraction of its length."""
        begin = int(len(self.state) * at) // len(value) * len(value)
        end = begin + n * len(value)
        return replace(self, state=self.state[:begin] + value * n + self.state[end:])

    @property
    def n_tokens(self) -> int:
        return len(self.tokens) // 4

    def with_tokens(self, n: int) -> SlotBytes:
        return replace(self, tokens=(self.tokens * (n // self.n_tokens + 1))[: 4 * n])

    def with_token(self, value: int) -> SlotBytes:
        return replace(self, tokens=struct.pack("<i", value) + self.tokens[4:])

    def with_cells(self, n: int) -> SlotBytes:
        """Replace the number of cells in the state, which is that of the tokens."""
        old, new = struct.pack("<I", self.n_tokens), struct.pack("<I", n)
        return replace(self, state=self.state.replace(old, new, 1))


def fnv1a(raw: bytes) -> int:
    """Return the 64-bit FNV-1a hash, which ends a slot file."""
    value = 0xCBF29CE484222325
    for byte in raw:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


Change = Callable[[SlotBytes], SlotBytes]
LIES: dict[str, Change] = {
    "another magic": lambda slot: replace(slot, magic=b"ELIZASLX"),
    "another version": lambda slot: replace(slot, version=2),
    "another fingerprint": lambda slot: replace(slot, fingerprint=b"unknown"),
    "NaN in the last values": lambda slot: slot.with_values(HALF_NAN, 0.98),
    "inf in the last values": lambda slot: slot.with_values(HALF_INF, 0.98),
    "-inf in the last values": lambda slot: slot.with_values(HALF_NEGATIVE_INF, 0.98),
    "NaN in the first keys": lambda slot: slot.with_values(HALF_NAN, 0.1),
    "inf in the first keys": lambda slot: slot.with_values(HALF_INF, 0.1),
    "NaN in one value": lambda slot: slot.with_values(HALF_NAN, 0.99, 1),
    "one token more than cells": lambda slot: slot.with_tokens(slot.n_tokens + 1),
    "one token fewer than cells": lambda slot: slot.with_tokens(slot.n_tokens - 1),
    "no tokens": lambda slot: slot.with_tokens(0),
    "more tokens than the context has room for": lambda slot: slot.with_tokens(5000),
    "one cell too many": lambda slot: slot.with_cells(slot.n_tokens + 1),
    "one cell missing": lambda slot: slot.with_cells(slot.n_tokens - 1),
    "no cells": lambda slot: slot.with_cells(0),
    "2 ** 31 cells": lambda slot: slot.with_cells(2**31),
    "2 ** 32 - 1 cells": lambda slot: slot.with_cells(2**32 - 1),
    "a token beyond the vocabulary": lambda slot: slot.with_token(2**31 - 1),
    "a negative token": lambda slot: slot.with_token(-1),
    "a length of 2 ** 64 - 1": lambda slot: replace(slot, lengths={2: 2**64 - 1}),
    "a length of 2 ** 40 tokens": lambda slot: replace(slot, lengths={1: 2**40}),
    "a length that is too small": lambda slot: replace(slot, lengths={2: 8}),
    "no state": lambda slot: replace(slot, state=b""),
    "a truncated state": lambda slot: replace(slot, state=slot.state[: len(slot.state) // 2]),
    "a state with trailing bytes": lambda slot: replace(slot, state=slot.state + b"\0" * 4096),
    "a state of zeros": lambda slot: replace(slot, state=bytes(len(slot.state))),
    "a state of ones": lambda slot: replace(slot, state=b"\xff" * len(slot.state)),
    "a truncated token": lambda slot: replace(slot, tokens=b"\0\0"),
    "trailing bytes": lambda slot: replace(slot, tail=b"more"),
}
"""Forged slot files that must be rejected."""


def _save_first(stage: Stage) -> None:
    stage.model.save_prompt_cache(stage.folder / "prompt.slot", PROMPT)


def _refused(stage: Stage, path: Path) -> None:
    """Restore a bad file; afterwards, many prompts must be answered as before."""
    prompts = [f"message: {n} times hello\naction: " for n in range(25)]
    before = [_probabilities(stage, prompt) for prompt in prompts]
    try:
        stage.model.load_prompt_cache(path)
    finally:
        after = [_probabilities(stage, prompt) for prompt in prompts]
        if not np.allclose(before, after, rtol=0, atol=ROUNDING):
            raise Broken(f"expected {before}, as before, got {after}")


def _probabilities(stage: Stage, prompt: str) -> list[float]:
    found = stage.model.choose(prompt, ACTIONS, probabilities=True).probabilities or {}
    return [found[action] for action in ACTIONS]


def _damaged(damage: Callable[[bytes], bytes], stage: Stage) -> None:
    path = stage.folder / "prompt.slot"
    path.write_bytes(damage(path.read_bytes()))
    _refused(stage, path)


def _forged(change: Change, raw: bytes) -> bytes:
    return change(SlotBytes.read(raw)).whole()


def _beginning(share: float, raw: bytes) -> bytes:
    return raw[: int(len(raw) * share)]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    **{name: partial(_forged, change) for name, change in LIES.items()},
    **{f"the first {n:.1%}": partial(_beginning, n) for n in (0.0001, 0.01, 0.5, 0.999)},
}


def _flip(stage: Stage) -> str:
    """Flip single bits of a file; the hash must detect each of them."""
    path = stage.folder / "prompt.slot"
    raw = path.read_bytes()
    draw = random.Random(1)
    for _ in range(100):
        changed = bytearray(raw)
        changed[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(changed))
        with suppress(ElizaError):
            stage.model.load_prompt_cache(path)
            raise Broken("a file with a flipped bit was accepted")
    return "100 refused"


# ---- Paths that are not files -------------------------------------------------------------------


def _to_fifo(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    path.symlink_to(path.parent / "pipe")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to a FIFO": _to_fifo,
    "an empty file": Path.touch,
}


def _restore_from(make: Callable[[Path], object], stage: Stage) -> None:
    path = stage.folder / "other.slot"
    make(path)
    _refused(stage, path)


def _save_over(make: Callable[[Path], object], stage: Stage) -> str:
    path = stage.folder / "other.slot"
    make(path)
    try:
        stage.model.save_prompt_cache(path, PROMPT)
    finally:
        if n_left := _n_parts(stage.folder):
            raise Broken(f"{n_left} unfinished files were left")
    if stage.model.load_prompt_cache(path) == 0:
        raise Broken("the saved file cannot be restored")
    return "saved"


def _save_through_link(stage: Stage) -> str:
    """Save to a link to a file. The link may be replaced or followed; the file must be whole."""
    target, link = stage.folder / "target.slot", stage.folder / "link.slot"
    stage.model.save_prompt_cache(target, PROMPT)
    old = target.read_bytes()
    link.symlink_to(target)
    stage.model.save_prompt_cache(link, "another prompt")
    if target.read_bytes() != old and target.read_bytes() != link.read_bytes():
        raise Broken("the link's target is neither the old nor the new file")
    return "replaced" if target.read_bytes() == old else "followed"


def _save_nowhere(stage: Stage) -> None:
    stage.model.save_prompt_cache(stage.folder / "no folder" / "prompt.slot", PROMPT)


def _killed_while_saving(stage: Stage) -> str:
    """Kill processes while they save; the next save must remove their unfinished files."""
    draw = random.Random(1)
    path = stage.folder / "prompt.slot"
    n_left = 0

    def save_until_killed(delay: float) -> None:
        model = Stage(stage.library, stage.folder).model
        tokens = model.prompt_tokens(PROMPT * 20)
        model.save_prompt_cache(path, tokens)
        Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        while True:
            model.save_prompt_cache(path, tokens)

    for _ in range(N_KILLS):
        run_forked(partial(save_until_killed, draw.uniform(0, 0.02)), 20.0)
        n_left = max(n_left, _n_parts(stage.folder))
    model = Stage(stage.library, stage.folder).model
    if model.load_prompt_cache(path) == 0:
        raise Broken("the file is incomplete")
    model.save_prompt_cache(path, PROMPT)
    if left := _n_parts(stage.folder):
        raise Broken(f"{left} unfinished files were left")
    return f"at most {n_left} unfinished files at a time, none at the end"


def _n_parts(folder: Path) -> int:
    return sum(file.name.endswith(".part") for file in folder.iterdir())


# ---- Models -------------------------------------------------------------------------------------


def _open_model(make: Callable[[Path], object], stage: Stage) -> str:
    path = stage.folder / "model.gguf"
    make(path)
    with stage.open(path) as model:
        return str(model.choose(PROMPT, ACTIONS).value)


# Damaged models are mutations; see mutated.py.
MODELS: dict[str, Callable[[Path], object]] = {
    **NO_FILES,
    "a missing file": lambda path: None,
    "a text file": lambda path: path.write_text("hello\n" * 1000),
}

CASES = (
    *cases(
        "slot file: {}",
        _damaged,
        DAMAGES,
        Must.FAIL,
        says="slot file|saved state|context full|token",
        seconds=5,
        prepare=_save_first,
    ),
    Case("slot file: flipped bits", _flip, Must.ANSWER, seconds=20, prepare=_save_first),
    *cases(
        "slot file: {}, restored",
        _restore_from,
        NO_FILES,
        Must.FAIL,
        says=r"other\.slot",
        seconds=5,
    ),
    *cases("slot file: {}, overwritten", _save_over, NO_FILES, says=r"other\.slot"),
    Case("slot file: a link to a file, overwritten", _save_through_link),
    Case("slot file: in a missing folder", _save_nowhere, Must.FAIL, "no folder"),
    Case(
        f"slot file: killed {N_KILLS} times while saving",
        _killed_while_saving,
        Must.ANSWER,
        seconds=60,
        prepare=None,
    ),
    *cases("model file: {}", _open_model, MODELS, Must.FAIL, says=r"model\.gguf", prepare=None),
)
