"""What the system lacks is installed where that is possible, and named in one line elsewhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "system_packages.sh"
TOOLS = ("cat", "dirname", "env", "mktemp", "rm", "sh", "tail", "touch", "chmod")
# Plays Debian's packages: a program of the name is all that the script looks for.
APT_GET = """
echo "$*" >> "$LOG"
[ -z "$DEBIAN_FRONTEND" ] && exit 9
case "$*" in
    *update*) exit ${UPDATE:-0} ;;
    *install*)
        [ -n "$INSTALL" ] && { echo "E: $INSTALL"; exit 100; }
        for package; do
            case $package in g++ | curl | npm)
                [ -n "$ELSEWHERE" ] || { touch "$BIN/$package"; chmod +x "$BIN/$package"; }
            esac
        done
esac
"""
PYTHON = 'case "$*" in --version) echo "Python $VERSION";; *venv*) exit $VENV;; *) exit $OLD;; esac'


class FakeMachine:
    """A folder that plays a machine: its programs, and a checkout with the script in it."""

    def __init__(self, root: Path) -> None:
        self.bin, self.log = root / "bin", root / "apt.log"
        self.script = root / "checkout" / "scripts" / SCRIPT.name
        self.script.parent.mkdir(parents=True)
        shutil.copy(SCRIPT, self.script)
        self.bin.mkdir()
        self.variables = {"LOG": str(self.log), "BIN": str(self.bin)}
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.add("id", "echo 1000")

    def add(self, name: str, text: str = "") -> None:
        (self.bin / name).write_text(f"#!{self.bin}/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def with_apt(self) -> FakeMachine:
        self.add("dpkg")
        self.add("apt-get", APT_GET)
        return self

    def with_root(self) -> FakeMachine:
        self.add("id", "echo 0")
        return self

    def with_python(self, version: str, *, old: bool, venv: bool) -> FakeMachine:
        self.add("python3", PYTHON)
        self.variables |= {"VERSION": version, "OLD": str(int(old)), "VENV": str(int(not venv))}
        return self

    def run(self, *needs: str, **variables: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [self.bin / "sh", self.script, *needs],
            env={"PATH": str(self.bin), **self.variables, **variables},
            cwd="/",
            text=True,
            capture_output=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    @property
    def apt_calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_where_nothing_is_missing_nothing_is_said_or_run(fake: FakeMachine) -> None:
    fake.with_apt().with_root().with_python("3.11.2", old=False, venv=True)
    fake.add("c++")
    fake.add("npm")
    assert fake.run("compiler", "python", "npm") == (0, "", "")
    assert fake.apt_calls == []


def test_root_installs_what_is_missing_and_names_it(fake: FakeMachine) -> None:
    code, out, err = fake.with_apt().with_root().run("compiler", "npm")
    assert (code, out, err) == (0, "Installing g++ npm with apt-get\n", "")
    update, install = fake.apt_calls
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends g++ npm")
    assert fake.run("compiler", "npm") == (0, "", "")
    assert len(fake.apt_calls) == 2


@pytest.mark.parametrize("sudo", [None, "exit 1"])
def test_a_user_who_cannot_install_is_told_in_one_line(fake: FakeMachine, sudo: str | None) -> None:
    fake.with_apt()
    if sudo is not None:
        fake.add("sudo", sudo)
    code, out, err = fake.run("compiler", "python", "npm")
    assert (code, out) == (1, "")
    assert err == (
        "make: missing: g++ python3-venv npm;"
        " please run: sudo apt-get install g++ python3-venv npm\n"
    )
    assert fake.apt_calls == []


def test_nothing_is_installed_against_the_users_will(fake: FakeMachine) -> None:
    code, _, err = fake.with_apt().with_root().run("compiler", ELIZA_INSTALL_PACKAGES="0")
    assert code == 1
    assert err == "make: missing: g++; please run: sudo apt-get install g++\n"
    assert fake.apt_calls == []
