"""Missing system packages are installed if possible; otherwise one line names them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "system_packages.sh"
TOOLS = ("cat", "dirname", "env", "mktemp", "rm", "sh", "tail", "touch", "chmod")
# Installs packages by writing an empty program, which is all that the script looks for.
APT_GET = """
echo "$*" >> "$LOG"
[ -z "$DEBIAN_FRONTEND" ] && exit 9
for package; do
    case $package in g++ | npm) touch "$BIN/$package"; chmod +x "$BIN/$package" ;; esac
done
"""


class FakeMachine:
    """A folder that represents a machine: its programs, and a checkout with the script."""

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


def test_nothing_is_printed_or_installed_if_all_tools_are_there(fake: FakeMachine) -> None:
    fake.with_apt().with_root()
    for program in ("c++", "npm", "python3"):
        fake.add(program)
    assert fake.run("compiler", "python", "npm") == (0, "", "")
    assert fake.apt_calls == []


def test_root_installs_missing_packages(fake: FakeMachine) -> None:
    code, out, err = fake.with_apt().with_root().run("compiler", "npm")
    assert (code, out, err) == (0, "Installing g++ npm with apt-get\n", "")
    update, install = fake.apt_calls
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends g++ npm")
    assert fake.run("compiler", "npm") == (0, "", "")
    assert len(fake.apt_calls) == 2


@pytest.mark.parametrize("sudo", [None, "exit 1"])
def test_a_user_without_root_gets_the_command_to_run(fake: FakeMachine, sudo: str | None) -> None:
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


def test_eliza_install_packages_0_prevents_installing(fake: FakeMachine) -> None:
    code, _, err = fake.with_apt().with_root().run("compiler", ELIZA_INSTALL_PACKAGES="0")
    assert code == 1
    assert err == "make: missing: g++; please run: sudo apt-get install g++\n"
    assert fake.apt_calls == []
