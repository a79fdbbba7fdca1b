"""Model files with one or two changes each, from ``model_mutations``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from forked import say_stage
from model_mutations import Files, Mutation, all_mutations, chosen, read_gguf
from stage import Stage

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

from .case import Broken, Case

MEBIBYTES = 4096
CHOICES = ["YES", "NO", "MAYBE"]


def write(files: Files, folder: Path) -> tuple[Path, Path | None]:
    """Write the files of a mutation; return the file to open, and the adapter or None."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files)), folder / "lora.gguf" if "lora.gguf" in files else None


def use(path: Path, lora: Path | None, library: Library) -> list[str]:
    """Open a model, use it as programs do, and return the errors of its uses.

    An ElizaError means that the library rejects the file. Broken means that it ran out of memory,
    which would take all memory of a machine without limits.
    """
    say_stage("open")
    adapters = [(lora, 1.0)] if lora else []
    errors = []
    try:
        with Model(path, library=library, n_threads=1, n_slots=2, lora=adapters) as model:
            uses: tuple[tuple[str, Callable[[], object]], ...] = (
                ("describe", model.describe),
                ("tokenize", lambda: model.tokenize("Hello, wörld! 123\n <|im_start|>\0\t🙂 你好")),
                ("choose", lambda: model.choose("Shall we? ", CHOICES, probabilities=True)),
                ("generate", lambda: model.generate("Once upon a time", max_tokens=2)),
                ("embed", lambda: model.embed("a text")),
                ("detokenize", lambda: model.detokenize(range(64))),
            )
            for name, call in uses:
                say_stage(name)
                try:
                    call()
                except (ElizaError, UnicodeError, ValueError) as error:
                    errors.append(f"{name}: {error}")
            say_stage("close")
    except MemoryError as error:
        raise Broken(f"needs too much memory: {error}") from error
    if "bad_alloc" in "".join(errors):
        raise Broken(f"needs too much memory: {errors}")
    return errors


def _open(mutation: Mutation, stage: Stage) -> str:
    return "; ".join(use(*write(mutation.files(), stage.folder), stage.library)) or "worked"


def cases(count: int, seed: int = 1) -> Sequence[Case]:
    """Return cases for `count` of about 12,000 mutations of the embedded model."""
    mutations = all_mutations(read_gguf(default_model_path()), seed)
    return [
        Case(
            f"mutated model: {each.kind}: {each.what}",
            partial(_open, each),
            seconds=20,
            mib=MEBIBYTES,
            address_mib=MEBIBYTES,
            prepare=None,
        )
        for each in chosen(mutations, count, seed)
    ]
