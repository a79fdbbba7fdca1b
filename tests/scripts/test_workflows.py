"""The workflows in .github run targets of the Makefile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TOOLS = ("sudo apt-get ", "brew install ", "pipx run cibuildwheel==", "gh release create ")
"""The other commands that a step may run."""


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    backends = re.search(r"^BACKENDS := (.*)$", text, flags=re.MULTILINE)
    assert backends is not None
    named = re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", text, flags=re.MULTILINE)
    names = {name for line in named for name in line.split()}
    return names | {f"{prefix}{name}" for name in backends[1].split() for prefix in ("", "check-")}


def jobs(workflow: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    return dict(read["jobs"])


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(workflow).values():
        yield from job.get("steps", [])


def unknown_commands(commands: str) -> list[str]:
    """Return the lines that run no target, no script of this repository and none of the tools."""
    unknown = []
    for line in commands.splitlines():
        words = line.split()
        if words[0] == "make":
            named = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
            is_known = bool(named) and set(named) <= targets()
        else:
            is_known = (ROOT / words[0]).is_file() or line.startswith(TOOLS)
        if not is_known:
            unknown.append(line)
    return unknown


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_step_runs_a_make_target_a_script_or_a_known_tool(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert [line for text in commands for line in unknown_commands(text)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_has_a_version(workflow: Path) -> None:
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [name for name in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./]+", name)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_with_steps_has_a_time_limit(workflow: Path) -> None:
    assert all("timeout-minutes" in job for job in jobs(workflow).values() if "steps" in job)
