"""Answer elizaOS's eliza-1 tasks, in modes from free generation to strict.

Modes: ``unguided`` generates freely. ``guided`` checks each sampled token with a grammar of the
answers, and masks the vocabulary only if the token is not allowed. ``strict-guided`` uses the same
grammar, and masks before sampling. ``strict-trie-ffi`` fills the skeleton; the grammar is derived
from the same skeleton.

    $ python -m bench.eliza_1 --task all --mode all --output eval.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from eliza_ffi.cli.console import UsageError, open_model
from eliza_ffi.cli.files import check_output
from eliza_ffi.model import Model
from eliza_ffi.terminal import printable

from ..parts.modes import MODES, TRIE
from ..parts.programs import run_program
from .answers import Answer, answer, prompt_of, table
from .cases import TASKS, Case, cases_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.eliza_1", description="Answer elizaOS's eliza-1 tasks."
    )
    add = parser.add_argument
    tasks = f"{', '.join(TASKS)}, action:NAME or all"
    add("--task", required=True, metavar="TASK", help=tasks)
    add("--action", metavar="NAME", help="with --task action: only this action")
    add("--mode", choices=(*MODES, "all"), required=True, help="how answers are generated")
    add("--limit", type=int, metavar="N", help="only the first N cases of a task")
    most = "at most N tokens per answer; with strict-trie-ffi, per free value (128)"
    add("--max-tokens", type=int, default=128, metavar="N", help=most)
    chat = "use the chat template, with an instruction about the format of the answer"
    add("--chat", action="store_true", help=chat)
    add("--output", metavar="FILE", help="write all answers to FILE, as JSON")
    return run_program(parser, _run, arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Answer the cases and print the table. Returns 1 if a filled answer violates its schema."""
    cases = _cases(arguments)
    if arguments.max_tokens < 1:
        raise UsageError(f"--max-tokens: expected 1 or more, got {arguments.max_tokens}")
    check_output(arguments)
    modes = MODES if arguments.mode == "all" else (arguments.mode,)
    with open_model(arguments) as model:
        rows = list(_rows(model, cases, modes, arguments))
        path = model.path
    print(table(rows))
    if arguments.output is not None:
        report = {"model": path, "rows": [asdict(row) for row in rows]}
        text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
        Path(arguments.output).write_text(text, encoding="utf-8")
    wrong = [row for row in rows if row.mode == TRIE and not row.of_schema]
    for row in wrong:
        problem = f"{row.task} {row.id}: the answer violates its schema: {row.text}"
        print(printable(problem), file=sys.stderr)
    return 1 if wrong else 0


def _cases(arguments: argparse.Namespace) -> list[list[Case]]:
    """Return the cases of each requested task."""
    task, _, action = arguments.task.partition(":")
    if task not in (*TASKS, "all"):
        raise UsageError(f"--task: expected {', '.join(TASKS)}, action:NAME or all, got {task!r}")
    action = action or arguments.action
    if action and task != "action":
        raise UsageError("--action requires --task action")
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit: expected 1 or more, got {arguments.limit}")
    listed = []
    for name in TASKS if task == "all" else (task,):
        cases = list(cases_of(name, action or None))[: arguments.limit]
        if not cases:
            raise UsageError(f"--action: no case for the action {action!r}")
        listed.append(cases)
    return listed


def _rows(
    model: Model, cases: list[list[Case]], modes: tuple[str, ...], arguments: argparse.Namespace
) -> Iterator[Answer]:
    for of_task in cases:
        for mode in modes:
            for case in of_task:
                prompt = prompt_of(model, case, chat=arguments.chat)
                yield answer(model, case, prompt, mode, arguments.max_tokens)


if __name__ == "__main__":
    sys.exit(main())
