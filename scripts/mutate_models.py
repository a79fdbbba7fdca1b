#!/usr/bin/env python3
"""Open broken model files in child processes, and count the outcomes.

GGUF files can come from untrusted sources. A broken file must raise an error and must never end the
process that opens it. This script copies valid model files and changes one or two things in each
copy: a value, a type, a count, a name, an offset, a byte. It then opens the copy with the library,
and asks for a choice, generated text and an embedding.

    $ python scripts/mutate_models.py --seconds 60
    $ python scripts/mutate_models.py --count 500 --seed 7 --keep broken/ other-model.gguf

Exit code 1 if a process died, hung or ran out of memory. The output lists its last message.
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from forked import run_forked, say_stage
from model_mutations import Files, Mutation, all_mutations, chosen, read_gguf

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

MEMORY_BYTES = 4 << 30
CPU_SECONDS = 20
WALL_SECONDS = 30
CHOICES = ["YES", "NO", "MAYBE"]
NO_MEMORY = "bad_alloc"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one file.

    Attributes
    ----------
    result
        ``"worked"``; ``"refused"``: an error when opening; ``"failed"``: an error in use;
        ``"died"``, ``"hung"``, or ``"memory"``: out of memory.
    stage
        The last stage that began.
    message
        The error, or the last message of a process that died.
    answered
        Whether a choice was made.
    """

    result: str
    stage: str = ""
    message: str = ""
    answered: bool = False

    @property
    def is_fatal(self) -> bool:
        return self.result in ("died", "hung", "memory")


def use(path: Path, lora: Path | None, library: Library, note: Callable[[str], object]) -> Outcome:
    """Open a model and use it as programs do."""
    answered = False
    note("open")
    try:
        adapters_wanted = [(lora, 1.0)] if lora else []
        model = Model(path, library=library, n_threads=1, n_slots=2, lora=adapters_wanted)
    except (ElizaError, MemoryError) as error:
        return Outcome("refused", "open", str(error))
    errors = []
    with model:
        steps: tuple[tuple[str, Callable[[], object]], ...] = (
            ("describe", model.describe),
            ("tokenize", lambda: model.tokenize("Hello, wörld! 123\n <|im_start|>\0\t🙂 你好")),
            ("choose", lambda: model.choose("Shall we? ", CHOICES, probabilities=True)),
            ("generate", lambda: model.generate("Once upon a time", max_tokens=2)),
            ("embed", lambda: model.embed("a text")),
            ("detokenize", lambda: model.detokenize(range(64))),
        )
        for name, step in steps:
            note(name)
            try:
                step()
                answered = answered or name == "choose"
            except (ElizaError, MemoryError, UnicodeError, ValueError) as error:
                errors.append(f"{name}: {error}")
        note("close")
    if errors:
        return Outcome("failed", errors[0].split(":")[0], errors[0], answered)
    return Outcome("worked", "close", "", answered)


class Opener:
    """Runs functions in forked children. This process has loaded the library and has no threads.

    Parameters
    ----------
    folder
        Folder for the files; a folder in memory is fastest.
    action
        The function that a child runs; by default :func:`use` with `library`.
    """

    def __init__(
        self,
        folder: Path,
        library: Library | None = None,
        action: Callable[[Path, Path | None, Callable[[str], object]], Outcome] | None = None,
    ) -> None:
        self.folder = folder
        if action is None:
            loaded = library or Library()

            def action(path: Path, lora: Path | None, note: Callable[[str], object]) -> Outcome:
                return use(path, lora, loaded, note)

        self.action = action

    def write(self, files: Files) -> tuple[Path, Path | None]:
        """Write a mutation's files; return the file to open, and the adapter or None."""
        for old in self.folder.iterdir():
            old.unlink()
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        lora = self.folder / "lora.gguf" if "lora.gguf" in files else None
        return self.folder / next(iter(files)), lora

    def open(self, files: Files) -> Outcome:
        """Open the files in a child process; return the outcome."""
        return self.open_path(*self.write(files))

    def open_path(self, path: Path, lora: Path | None = None) -> Outcome:
        """Open the file at this path in a child process; return the outcome."""
        child = run_forked(lambda: self._child(path, lora), 2 * WALL_SECONDS, MEMORY_BYTES >> 20)
        stages = child.stages
        if child.report is not None:
            outcome: Outcome = child.report
            # Report this error as "memory": without the child's limit, the same allocation could
            # use all memory of the machine.
            return replace(outcome, result="memory") if NO_MEMORY in outcome.message else outcome
        stage, answered = stages[-1] if stages else "", "generate" in stages
        if child.is_late or -child.code in (signal.SIGXCPU, signal.SIGALRM):
            return Outcome("hung", stage, child.how, answered)
        where = child.last_words
        no_memory = child.code < 0 and re.search("alloc|memory", where) is not None
        return Outcome("memory" if no_memory else "died", stage, f"{child.how} {where}", answered)

    def _child(self, path: Path, lora: Path | None) -> Outcome:
        faulthandler.disable()  # pytest enables it, and it would print a traceback
        for number in (signal.SIGALRM, signal.SIGXCPU):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        return self.action(path, lora, say_stage)


def table(rows: Iterable[tuple[Mutation, Outcome]]) -> str:
    """Return a table of the outcomes for each kind of mutation."""
    results = ("refused", "failed", "worked", "died", "hung", "memory")
    counts: dict[str, Counter[str]] = {}
    for mutation, outcome in rows:
        for kind in (mutation.kind, "all"):
            counts.setdefault(kind, Counter())[outcome.result] += 1
    total = counts.pop("all", Counter())
    lines = [f"{'mutation':14}{'files':>7}" + "".join(f"{name:>9}" for name in results)]
    for kind, count in [*counts.items(), ("all", total)]:
        cells = "".join(f"{count[name]:9}" for name in results)
        lines.append(f"{kind:14}{sum(count.values()):7}{cells}")
    return "\n".join(lines)


def run(
    bases: Sequence[Path], *, count: int | None, seconds: float | None, seed: int, keep: Path | None
) -> list[tuple[Mutation, Outcome]]:
    """Open mutations of the models until `count` are done or `seconds` have passed."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    rows: list[tuple[Mutation, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="eliza-mutated-") as scratch:
        opener = Opener(Path(scratch))
        for number, path in enumerate(bases):
            base = read_gguf(path)
            mutations = all_mutations(base, seed)
            share = len(mutations) if count is None else count // len(bases)
            end = time.monotonic() + (deadline - time.monotonic()) / (len(bases) - number)
            for mutation in chosen(mutations, share, seed):
                if time.monotonic() > end:
                    break
                outcome = opener.open(mutation.files())
                rows.append((mutation, outcome))
                if outcome.is_fatal:
                    what = f"{mutation.kind}: {mutation.what}: {outcome.message}"
                    print(f"{outcome.result} at {outcome.stage}: {what}", flush=True)
                    if keep:
                        into = keep / f"{len(rows)}-{outcome.result}"
                        shutil.copytree(scratch, into)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Open broken model files, and count the outcomes.")
    parser.add_argument(
        "models", type=Path, nargs="*", help="models to mutate (default: the embedded model)"
    )
    parser.add_argument("--count", type=int, help="number of files (default: all mutations)")
    parser.add_argument("--seconds", type=float, help="time limit")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same files")
    parser.add_argument("--keep", type=Path, help="folder for files that ended the process")
    options = parser.parse_args(arguments)
    models = options.models or [default_model_path()]
    try:
        rows = run(
            models,
            count=options.count,
            seconds=options.seconds,
            seed=options.seed,
            keep=options.keep,
        )
    except (ElizaError, OSError, ValueError, struct.error) as error:
        print(f"mutate_models: error: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    return 1 if any(outcome.is_fatal for _, outcome in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
