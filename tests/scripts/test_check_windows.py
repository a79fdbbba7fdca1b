"""The report about the tests for Windows counts every test, and a missing wine gets one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_windows import main, read_report

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5"><testsuite name="Files">
  <testcase name="AreRead" status="run" result="completed" classname="Files" />
  <testcase name="AreWritten" status="run" result="completed" classname="Files">
    <failure message="files_test.cpp:5&#x0A;Expected: true" type=""><![CDATA[...]]></failure>
  </testcase>
  <testcase name="AreForked" status="run" result="skipped" classname="Files">
    <skipped message="files_test.cpp:9&#x0A;Windows has no fork()&#x0A;"><![CDATA[...]]></skipped>
  </testcase>
  <testcase name="DISABLED_Others" status="notrun" result="suppressed" classname="Files" />
</testsuite></testsuites>
"""


def test_a_report_has_the_failed_and_skipped_tests() -> None:
    outcome = read_report(REPORT)
    assert outcome.n_passed == 1
    assert outcome.failed == ["Files.AreWritten"]
    assert outcome.skipped == {"Files.AreForked": "Windows has no fork()"}


def test_a_missing_wine_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--build", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error == "make check-windows: wine is missing (Debian: apt install wine)\n"


def test_a_missing_build_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wine = tmp_path / "wine"
    wine.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--build", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith("has no native_tests.exe: run 'make windows'\n")
