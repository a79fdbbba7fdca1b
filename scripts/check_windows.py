#!/usr/bin/env python3
"""Run the Windows build's native tests and examples under wine: ``make check-windows``.

    $ python scripts/check_windows.py
    native tests: 521 passed, 0 failed, 9 skipped
      skipped ForkedProcess.EndsNormally: Windows has no fork()
      ...
    load_library.exe: chose REPLY, chose REPLY, chose REPLY, chose REPLY
    choose.exe: chosen: STOP, in 0 forward passes after the prompt
    sampler_in_chain.exe: REPLY

wine is not Windows: it tests that the library's calls of Windows functions work together, not how
Windows itself behaves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "eliza-tiny.gguf"


@dataclass
class Outcome:
    """The tests of one GoogleTest report.

    Attributes
    ----------
    failed
        The names of the failed tests.
    skipped
        The name of each skipped test, and the reason.
    """

    n_passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def read_report(text: str) -> Outcome:
    """Read a report that GoogleTest wrote with ``--gtest_output=xml``."""
    outcome = Outcome()
    for test in ElementTree.fromstring(text).iter("testcase"):
        if test.get("status") == "notrun":
            continue
        name = f"{test.get('classname')}.{test.get('name')}"
        skip = test.find("skipped")
        if test.find("failure") is not None:
            outcome.failed.append(name)
        elif skip is not None:
            *_, reason = skip.get("message", "").strip().splitlines() or ["no reason given"]
            outcome.skipped[name] = reason
        else:
            outcome.n_passed += 1
    return outcome


class Wine:
    """Runs programs of a build folder under wine, with settings of their own.

    Raises
    ------
    FileNotFoundError
        If wine is not installed, or the build folder has no tests.
    """

    def __init__(self, build: Path) -> None:
        wine = shutil.which("wine")
        if wine is None:
            raise FileNotFoundError("wine is missing (Debian: apt install wine)")
        if not (build / "tests" / "native_tests.exe").is_file():
            raise FileNotFoundError(f"{build} has no native_tests.exe: run 'make windows'")
        self._wine = wine
        self._build = build
        settings = {
            "WINEPREFIX": str(build / "wine"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=",  # do not offer to install .NET and a browser
            "WINEPATH": str(build),  # with elizainference.dll
        }
        self._environment = {**os.environ, **settings}

    def run(
        self, program: str, *arguments: str | Path, capture: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program; without `capture`, its output goes to this program's output."""
        return subprocess.run(
            [self._wine, str(self._build / program), *map(str, arguments)],
            env=self._environment,
            cwd=ROOT,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            encoding="utf-8",
            errors="replace",
        )


def check_tests(wine: Wine, build: Path, filters: str) -> bool:
    """Run the native tests and print their counts; return whether none failed."""
    report = build / "native_tests.xml"
    report.unlink(missing_ok=True)
    done = wine.run(
        "tests/native_tests.exe",
        "--gtest_brief=1",
        f"--gtest_filter={filters}",
        f"--gtest_output=xml:{os.path.relpath(report, ROOT)}",  # it has no drive, so not absolute
    )
    if not report.is_file():  # the program ended before its last test
        print(done.stdout, end="")
        print(f"native tests: no report, exit code {done.returncode}")
        return False
    outcome = read_report(report.read_text(encoding="utf-8"))
    if outcome.failed:
        print(done.stdout, end="")
    print(
        f"native tests: {outcome.n_passed} passed, {len(outcome.failed)} failed, "
        f"{len(outcome.skipped)} skipped"
    )
    for name in outcome.failed:
        print(f"  failed {name}")
    for name, reason in outcome.skipped.items():
        print(f"  skipped {name}: {reason}")
    return done.returncode == 0 and outcome.n_passed > 0


def check_program(wine: Wine, program: str, expected: str, *arguments: str | Path) -> bool:
    """Run a program and print its output; return whether it succeeded as expected."""
    done = wine.run(program, *arguments)
    # Wine reports, for example, that it created its folder of settings.
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith("wine: ")]
    print(f"{Path(program).name}: {', '.join(lines[:4])}")
    if done.returncode == 0 and expected in done.stdout:
        return True
    print(f"  failed: expected exit code 0 and {expected!r}, got exit code {done.returncode}")
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the Windows build under wine.")
    parser.add_argument("--build", type=Path, default=ROOT / "build/windows", metavar="FOLDER")
    parser.add_argument("--filter", default="*", help="the native tests to run (default: all)")
    options = parser.parse_args(arguments)
    build = options.build.resolve()
    try:
        wine = Wine(build)
    except FileNotFoundError as error:
        print(f"make check-windows: {error}", file=sys.stderr)
        return 1
    dll = build / "elizainference.dll"
    passed = [
        check_program(wine, "tests/load_library.exe", "chose ", dll, MODEL),
        check_program(wine, "examples/choose.exe", "chosen: ", MODEL),
        check_program(
            wine, "examples/sampler_in_chain.exe", "REPLY", MODEL, "Next: ", "REPLY", "REPLY_NOW"
        ),
        check_tests(wine, build, options.filter),
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
