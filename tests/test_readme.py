"""What the README shows works as it is shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from eliza_ffi import _resources, cli
from eliza_ffi.library import LIBRARY_VARIABLE, Library

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [
    line.removeprefix("$ ")
    for block in blocks("console")
    for line in block.splitlines()
    if line.startswith("$ ")
]


@pytest.mark.parametrize("program", blocks("python"))
def test_the_python_examples_run(
    program: str,
    library: Library,
    random_model_path: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = random_model_path("llama-bpe", n_embd=64, n_layers=2, seed=1)
    monkeypatch.setattr(_resources, "default_model_path", lambda: path)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command.startswith("eliza-ffi ")]
)
def test_the_commands_are_understood(command: str) -> None:
    arguments = cli.build_parser().parse_args(shlex.split(command)[1:])
    assert callable(arguments.run)


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    named = set(re.findall(r"`make ([a-z]+)`", README))
    named |= {command.split()[1] for command in COMMANDS if command.startswith("make ")}
    assert named
    assert named <= set(targets)


def test_the_files_linked_to_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
