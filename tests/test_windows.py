"""The package's behaviour on Windows, and the functions that it must not use there."""

from __future__ import annotations

import ast
import errno
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT

from eliza_ffi import _resources, cli
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library, find_library

NOT_ON_WINDOWS = {
    *("crypt", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios"),
    *("tty", "os.fork", "os.forkpty", "os.getloadavg", "os.getpgid", "os.getuid", "os.geteuid"),
    *("os.killpg", "os.mkfifo", "os.nice", "os.openpty", "os.posix_spawn", "os.register_at_fork"),
    *("os.sched_getaffinity", "os.set_blocking", "os.setsid", "os.sysconf", "os.uname"),
    *("signal.SIGALRM", "signal.SIGHUP", "signal.SIGKILL", "signal.SIGUSR1", "signal.alarm"),
    *("signal.pthread_kill", "signal.setitimer", "signal.sigwait", "socket.AF_UNIX"),
    *("socket.socketpair", "time.tzset"),
}
WORKS_OTHERWISE = {
    *("os.kill", "os.rename", "os.link", "os.symlink", "os.pipe", "select", "selectors"),
    *("multiprocessing", "path.rename"),
}
"""Names that exist on Windows, where they fail in cases that work elsewhere."""

GUARDED = {
    *(("serve/server.py", "resource"), ("serve/server.py", "socket.AF_UNIX")),
    *(("tables/store.py", "fcntl"), ("cli/label.py", "termios"), ("cli/label.py", "tty")),
}
"""Uses that only other systems reach."""


def names_used(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}"
            if node.attr == "rename":  # of a Path: on Windows, it does not replace a file
                yield "path.rename"


def test_the_package_uses_nothing_that_windows_lacks() -> None:
    package = ROOT / "eliza_ffi"
    found = {
        (file.relative_to(package).as_posix(), name)
        for file in package.rglob("*.py")
        for name in names_used(file.read_text(encoding="utf-8"))
        if name in NOT_ON_WINDOWS | WORKS_OTHERWISE
    }
    assert found == GUARDED


def test_the_library_is_found_under_its_windows_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "lib" / "elizainference.dll"
    library.parent.mkdir()
    library.touch()
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(_resources, "package_folders", lambda: [tmp_path])
    monkeypatch.setattr(sys, "platform", "win32")
    assert find_library() == library


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, library: Library) -> pytest.MonkeyPatch:
    """Set the platform to Windows, with a library that runs here; return the monkeypatch."""
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.setattr(sys, "platform", "win32")
    return monkeypatch


def test_output_into_a_file_is_utf8_on_windows(windows: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    windows.setattr(sys, "stdout", io.TextIOWrapper(file, encoding="cp1252"))
    arguments = ["choose", "--prompt", "1 2 3 ", "--label", "模型 é", "--label", "模型 é 2"]
    assert cli.main(arguments) == 0
    assert file.getvalue().decode("utf-8").startswith("模型 é")


class ClosedPipe(io.TextIOWrapper):
    """A pipe without a reader, as Windows reports it."""

    def write(self, text: str) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")


def test_a_closed_pipe_ends_a_command_silently_on_windows(
    windows: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # The inner context puts the captured stdout back before pytest closes it.
    with (tmp_path / "pipe").open("wb") as file, windows.context() as patch:
        patch.setattr(sys, "stdout", ClosedPipe(file))
        assert cli.main(["choose", "--prompt", "1 2 3 ", "--label", "4", "--label", "5"]) == 1
    assert capsys.readouterr().err == ""
