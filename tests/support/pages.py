"""Run the code blocks of a Markdown page, and compare their output with the page.

All blocks of a page run in order in one folder. Python blocks share one namespace.

- A ``python`` block is run. An optional ``text`` block directly after it shows its output.
- A ``console`` block has commands after ``$``, each followed by its output. Commands of
  ``eliza-ffi`` and ``bun`` are run.
- A block with a title, such as ``json title="questions.json"``, is written to a file of that name.
- A block with ``<!-- not run: why -->`` above it is not run.

If the embedded model or the output of a command has changed, write the current output into a page:

    $ python tests/support/pages.py docs/start/tutorial.md
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from checkout import ROOT

from eliza_ffi import cli
from eliza_ffi._resources import default_model_path

FENCE = re.compile(
    r'^(?:<!-- not run: (?P<why>[^\n]+?) -->\n+)?```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?'
    r"\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", flags=re.MULTILINE)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?%?")
COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n", flags=re.MULTILINE)
BARS = re.compile("[#█▉▊▋▌▍▎▏]+$")  # their length changes with the numbers

BUN = ROOT / "tests" / "bun" / "node_modules" / "bun" / "bin" / "bun.exe"
"""The program that runs TypeScript, if `make check CHECK=bun` has installed it.

The file name ends in .exe on every system.
"""

TOLERANCE = 0.05
"""The largest allowed difference between numbers, because processors round differently.

Percentages are compared as fractions.
"""

LEFT_OUT = "…"
"""At the end of a shown line, stands for the rest of the line. Alone, stands for any lines."""


@dataclass(frozen=True)
class Block:
    """A block of code. Its title is the name of the file that it is written to."""

    language: str
    text: str
    title: str | None
    why_not_run: str | None
    is_followed_at_once: bool


def blocks_of(page: str) -> list[Block]:
    found = list(FENCE.finditer(page))
    ends = [*(each.start() for each in found), len(page)][1:]
    return [
        Block(*each.group("language", "text", "title", "why"), not page[each.end() : end].strip())
        for each, end in zip(found, ends, strict=True)
    ]


def programs_of(page: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == "python"]


def commands_of(page: str) -> list[str]:
    texts = [block.text for block in blocks_of(page) if block.language == "console"]
    return [command for text in texts for command, _ in _commands(text)]


def output_shown_by(blocks: Sequence[Block], place: int) -> str | None:
    """Return the output that the page shows for a Python block; None if it shows none."""
    is_shown = place + 1 < len(blocks) and blocks[place].is_followed_at_once
    output = blocks[place + 1] if is_shown else None
    if output is None or output.language != "text" or output.title is not None:
        return None
    return output.text


def run_block(
    block: Block, shown: str | None, namespace: dict[str, Any], printed: Callable[[], str]
) -> Iterator[tuple[str, str]]:
    """Run a block; yield each output that the page shows, with the actual output.

    `shown` is the output that the page shows for a Python block, `namespace` the namespace of all
    Python blocks, and `printed` returns the output since its last call.
    """
    if block.title is not None:
        Path(block.title).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        exec(compile(block.text, "page", "exec", dont_inherit=True), namespace)
        came = printed()
        if shown is not None:
            yield shown, came
    elif block.language == "console":
        for command, below in _commands(block.text):
            words = shlex.split(command)
            came = _run(words, printed)
            if below:
                yield below, came


def _run(words: Sequence[str], printed: Callable[[], str]) -> str:
    if words[0] == "bun":
        done = subprocess.run([BUN, *words[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
    if words[0] == "printf":  # keys for the next command
        with patch.object(sys, "stdin", io.StringIO(words[1].replace("\\n", "\n"))):
            return _run(words[words.index("|") + 1 :], printed)
    assert words[0] == "eliza-ffi", (
        f"cannot run {words}: add a comment <!-- not run: why --> above the block"
    )
    assert cli.main(list(words[1:])) == 0, words
    return printed()


def differences(shown: str, came: str) -> list[str]:
    """Return the shown lines that are missing in the output, and the output lines not shown.

    Words must be equal, and numbers must agree within `TOLERANCE`.
    """
    lines = [line.rstrip() for line in came.splitlines()]
    missing = []
    at = 0
    may_skip = False
    for line in (line.rstrip() for line in shown.splitlines()):
        if line == LEFT_OUT:
            may_skip = True
            continue
        last = len(lines) if may_skip else min(at + 1, len(lines))
        place = next((i for i in range(at, last) if _is_same(line, lines[i])), None)
        if place is None:
            missing.append(line)
        at = at + 1 if place is None else place + 1
        may_skip = False
    return missing if may_skip else missing + [f"not shown: {line}" for line in lines[at:] if line]


def links_of(page: str) -> list[str]:
    return LINK.findall(FENCE.sub("", page))


def headings_of(page: str) -> set[str]:
    """Return the anchors that GitHub and MkDocs generate for a page's headings."""
    texts = HEADING.findall(FENCE.sub("", page))
    plain = (re.sub(r"\]\([^)]*\)|[`\[]", "", text).strip().lower() for text in texts)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", text)) for text in plain}


def prepare_folder() -> None:
    """Create ``model.gguf`` and the pages' files in ``examples/``, and set ``ELIZA_MODEL``."""
    for file in (*(ROOT / "examples").glob("*.csv"), *(ROOT / "examples" / "elizaos").iterdir()):
        shutil.copy(file, file.name)
    shutil.copy(default_model_path(), "model.gguf")  # the pages' name for the reader's own model
    os.environ["ELIZA_MODEL"] = str(default_model_path())


def filled(page: str, printed: Callable[[], str]) -> str:
    """Run a page and return it with the current output in place of the shown output."""
    blocks = blocks_of(page)
    texts = [block.text for block in blocks]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for place, block in enumerate(blocks):
        if block.why_not_run is not None:
            continue
        shown = output_shown_by(blocks, place)
        for wanted, came in run_block(block, shown, namespace, printed):
            target = place + (block.language == "python")
            if LEFT_OUT not in wanted:
                texts[target] = texts[target].replace(wanted, came) if wanted else came
    places = [found.span("text") for found in FENCE.finditer(page)]
    for (begin, end), text in reversed(list(zip(places, texts, strict=True))):
        page = page[:begin] + text + page[end:]
    return page


def main(paths: Sequence[str]) -> None:
    """Replace the output shown in pages by their current output."""
    # The encoding must be UTF-8, so that commands draw bars as in a terminal.
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")

    def printed() -> str:
        output.flush()
        text = output.buffer.getvalue().decode()  # type: ignore[attr-defined]
        output.seek(0)
        output.truncate()
        return text

    for path in [Path(path).resolve() for path in paths]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            prepare_folder()
            with contextlib.redirect_stdout(output):
                page = filled(path.read_text(encoding="utf-8"), printed)
            path.write_text(page, encoding="utf-8")


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block and the output below it."""
    found = list(COMMAND.finditer(text))
    ends = [*(each.start() for each in found), len(text)][1:]
    for each, end in zip(found, ends, strict=True):
        yield each[1].replace("\\\n", " "), text[each.end() : end]


def _is_same(shown: str, came: str) -> bool:
    shown, came = (" ".join(BARS.sub("", line).split()) for line in (shown, came))
    if shown.endswith(LEFT_OUT):
        shown = shown.removesuffix(LEFT_OUT).rstrip()
        if not NUMBER.search(shown):
            return came.startswith(shown)
        came = " ".join(came.split()[: len(shown.split())])
    if NUMBER.split(shown) != NUMBER.split(came):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(came), strict=True)
    return all(abs(_value(one) - _value(other)) <= TOLERANCE for one, other in pairs)


def _value(number: str) -> float:
    value = float(number.rstrip("%").replace(",", ""))
    return value / 100 if number.endswith("%") else value


if __name__ == "__main__":
    main(sys.argv[1:])
