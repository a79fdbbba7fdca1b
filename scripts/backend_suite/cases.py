"""The models, prompts and answer sets that are compared."""

from __future__ import annotations

import itertools
from pathlib import Path

from make_test_models import cached_model

from eliza_ffi._resources import default_model_path

VOCABULARIES = {"32k": "llama-spm", "128k": "llama-bpe", "262k": "gemma-4"}
TYPES = ("f16", "q8_0", "q4_k")

# Wide enough for Q4_K and for kernels that need a head width of 64; otherwise small.
SHAPE = {"n_embd": 256, "n_layers": 2, "n_heads": 4, "context_length": 512, "tied": True}


PROMPTS = {
    "short": "Next: ",
    "sentence": "The user asks to send a message to Ann about the meeting tomorrow. Action: ",
    "long": "A log of what was done so far. " + "The mail was read and answered. " * 8 + "Now: ",
}

ANSWERS: dict[str, list[str]] = {
    "3 apart": ["RESPOND", "IGNORE", "STOP"],
    "12 alike": [
        f"{verb}_{noun}"
        for verb in ("SEND", "READ", "DELETE")
        for noun in ("MAIL", "NOTE", "FILE", "TASK")
    ],
    "90 alike": [
        f"SCHEDULE_{kind}_{day}_{hour:02d}"
        for kind in ("MEETING", "CALL", "REMINDER")
        for day in ("MONDAY", "MORNING", "MONTHLY")
        for hour in range(10)
    ],
}


def models(*, quick: bool, size: str | None = None) -> dict[str, Path]:
    """Return the files of the models, written on first use; only two of them if `quick`.

    `size` selects those with a vocabulary of this size, and leaves out the embedded model.
    """
    files = {} if size else {"trained 2k": default_model_path()}
    for each, kind in itertools.product(VOCABULARIES, TYPES):
        if size in (None, each) and (not quick or (each, kind) == ("32k", "q8_0")):
            path = cached_model(VOCABULARIES[each], tensor_type=kind, **SHAPE)
            files[f"random {each} {kind}"] = path
    return files
