"""The programs and commands in the README and in some other pages work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from checkout import ROOT
from pages import blocks_of, commands_of, links_of

from eliza_ffi import cli
from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
SHELL = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
SKELETONS = (ROOT / "docs" / "elizaos" / "skeletons.md").read_text(encoding="utf-8")
DECISIONS = (ROOT / "docs" / "reference" / "decisions.md").read_text(encoding="utf-8")
DROP_IN = (ROOT / "docs" / "elizaos" / "replace-the-library.md").read_text(encoding="utf-8")

COMMANDS = [command for page in (README, SHELL) for command in commands_of(page)]
OURS = sorted({command for command in COMMANDS if command.startswith("eliza-ffi ")})


@pytest.mark.parametrize(
    "program",
    [
        block.text
        for page in (PYTHON, DECISIONS, SKELETONS, DROP_IN)
        for block in blocks_of(page)
        if block.language == "python" and block.why_not_run is None
    ],
)
def test_the_python_examples_run(
    program: str,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    code = compile(program, "page", "exec", dont_inherit=True)  # without our __future__
    exec(code, {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("command", OURS)
def test_the_commands_run(
    command: str,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    embedded = str(default_model_path())
    words = [embedded if word == "model.gguf" else word for word in shlex.split(command)]
    assert cli.main(words[1:]) == 0
    out, err = capsys.readouterr()
    assert out.strip()
    assert err == ""


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    named = set(re.findall(r"`make ([a-z]+)`", README))
    named |= {command.split()[1] for command in COMMANDS if command.startswith("make ")}
    assert named
    assert named <= set(targets)


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"]
)
def test_the_files_linked_to_exist(page: str) -> None:
    links = links_of((ROOT / page).read_text(encoding="utf-8"))
    files = [link.partition("#")[0] for link in links if not link.startswith("http")]
    assert [file for file in files if not (ROOT / file).exists()] == []
