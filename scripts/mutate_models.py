#!/usr/bin/env python3
"""Open broken model files, each in a process of its own, and count what becomes of it.

A GGUF file may come from anybody, and what is wrong in it must be an error, never the end of the
process that opens it. This script takes model files that work, changes one thing or two in each
copy (a value, a type, a count, a name, an offset, a byte), opens the copy with the library and asks
it for a choice, a text and an embedding.

    $ python scripts/mutate_models.py --seconds 60
    $ python scripts/mutate_models.py --count 500 --seed 7 --keep broken/ other-model.gguf

Exit code 1 where a process died, hung or ran out of memory; what its last words were is listed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
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

from model_mutations import Files, Mutation, all_mutations, chosen, read_gguf

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

MEMORY_BYTES = 4 << 30
CPU_SECONDS = 20
WALL_SECONDS = 30
CHOICES = ["YES", "NO", "MAYBE"]


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    Attributes
    ----------
    result
        ``"refused"`` when it was opened, ``"worked"``, ``"failed"`` when it was used, ``"died"``,
        ``"hung"`` or ``"memory"``.
    stage
        What was being done last.
    message
        The error, or the last words of a process that died.
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


def use(path: Path, lora: Path | None, library: Library, note: Callable[[str], None]) -> Outcome:
    """Open a model and do what programs do with one."""
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


def last_words(stderr: str) -> str:
    """Return where llama.cpp or the C++ runtime says a process ended."""
    for pattern in (r"\S+?([\w-]+\.\w+:\d+): (.*)", r"(terminate called.*)\n\s*(what.*)"):
        if found := re.search(pattern, stderr):
            return " ".join(found.groups())
    return stderr.strip()[-200:]


class Opener:
    """Runs functions in children of this process, which has the library loaded and no threads.

    Parameters
    ----------
    folder
        Where the files are written; one in memory is the fastest.
    action
        What a child does; by default :func:`use` with `library`.
    """

    def __init__(
        self,
        folder: Path,
        library: Library | None = None,
        action: Callable[[Path, Path | None, Callable[[str], None]], Outcome] | None = None,
    ) -> None:
        self.folder = folder
        if action is None:
            loaded = library or Library()

            def action(path: Path, lora: Path | None, note: Callable[[str], None]) -> Outcome:
                return use(path, lora, loaded, note)

        self.action = action

    def write(self, files: Files) -> tuple[Path, Path | None]:
        """Write a mutation's files; return the one to open, and the adapter if there is one."""
        for old in self.folder.iterdir():
            old.unlink()
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        lora = self.folder / "lora.gguf" if "lora.gguf" in files else None
        return self.folder / next(iter(files)), lora

    def open(self, files: Files) -> Outcome:
        """Return what becomes of a process that opens these files."""
        return self.open_path(*self.write(files))

    def open_path(self, path: Path, lora: Path | None = None) -> Outcome:
        """Return what becomes of a process that opens what is at this path."""
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as stderr:
            pid = os.fork()
            if pid == 0:
                self._child(path, lora, said.fileno(), stderr.fileno())
            _, status, _ = os.wait4(pid, 0)
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            stderr.seek(0)
            words = stderr.read().decode(errors="replace")
        stage = next((line for line in reversed(lines) if not line.startswith("{")), "")
        if os.WIFEXITED(status) and lines and lines[-1].startswith("{"):
            outcome = Outcome(**json.loads(lines[-1]))
            # An allocation that failed was caught here, and takes a machine's memory elsewhere.
            if "bad_alloc" in outcome.message:
                return replace(outcome, result="memory")
            return outcome
        answered = lines.index("generate") > 0 if "generate" in lines else False
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number in (signal.SIGXCPU, signal.SIGALRM):
                return Outcome("hung", stage, signal.Signals(number).name, answered)
            name = signal.Signals(number).name
            where = last_words(words)
            no_memory = re.search("alloc|memory", where) is not None
            return Outcome("memory" if no_memory else "died", stage, f"{name} {where}", answered)
        return Outcome(
            "died", stage, f"exit {os.WEXITSTATUS(status)} {last_words(words)}", answered
        )

    def _child(self, path: Path, lora: Path | None, said: int, stderr: int) -> None:
        code = 1
        try:
            os.environ["GGML_NO_BACKTRACE"] = "1"
            faulthandler.disable()  # pytest's, which would write a traceback of this process
            for number in (signal.SIGALRM, signal.SIGXCPU):
                signal.signal(number, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(stderr, 2)
            outcome = self.action(path, lora, lambda stage: _write(said, stage))
            _write(said, json.dumps(vars(outcome)))
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())


def table(rows: Iterable[tuple[Mutation, Outcome]]) -> str:
    """Return how many files of each kind ended how."""
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
    """Open mutations of the models until so many are done or the time is over."""
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
    parser = argparse.ArgumentParser(description="Open broken model files, and count what happens.")
    parser.add_argument("models", type=Path, nargs="*", help="what to break; without, our own")
    parser.add_argument("--count", type=int, help="files; without, all that there are")
    parser.add_argument("--seconds", type=float, help="end after this long")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same files")
    parser.add_argument("--keep", type=Path, help="folder for the files that were fatal")
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
